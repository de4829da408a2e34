//! The house's rules, and what the pages on standards say.

mod circles;
mod conformance;
mod names;
mod pages;
mod rules;
mod standards;
