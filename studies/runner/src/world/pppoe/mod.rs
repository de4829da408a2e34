//! PPPoE: the access concentrator that `usher pppoe serve` runs, with what carries packets, and hosts with sessions.

mod carry;
mod service;
mod station;

pub(super) use service::serve;
pub(super) use station::{build, users};
