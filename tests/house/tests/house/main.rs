//! The house's rules, and what the pages on standards say.

mod rules;
mod standards;
