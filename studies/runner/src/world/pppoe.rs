//! PPPoE: the access concentrator that `usher pppoe serve` runs, with what carries packets, and hosts with sessions.

mod carry;
mod service;
mod station;

pub(super) use service::place_concentrators;
pub(super) use station::{build_pppoe_roles, station_users};
