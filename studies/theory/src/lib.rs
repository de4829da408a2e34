//! Closed forms: head-of-line delay ([`hol`]), messages of IEEE 802.21 ([`mih`]), waiting at servers ([`queues`]), and what they and others give for a
//! scenario ([`closed_form_value`]). Reports draw them beside what was simulated, and `usher verify` holds the two together.

pub mod hol;
pub mod mih;
pub mod queues;
mod scenario;

pub use scenario::closed_form_value;
