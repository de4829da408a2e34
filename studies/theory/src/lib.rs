//! Closed forms for head-of-line delay ([`hol`]), IEEE 802.21 messages ([`mih`]) and waiting at servers ([`queues`]).
//!
//! [`closed_form_value`] computes the closed form of a figure for a scenario. Reports draw it beside the simulated
//! values, and `usher verify` compares both.

pub mod hol;
pub mod mih;
pub mod queues;
mod scenario;

pub use scenario::closed_form_value;
