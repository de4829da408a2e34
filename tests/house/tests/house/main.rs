//! The house's rules, and what the pages on standards say.

mod conformance;
mod rules;
mod standards;
