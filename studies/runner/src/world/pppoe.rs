//! PPPoE: the access concentrator of `usher pppoe serve`, its data plane, and hosts with sessions.

mod carry;
mod service;
mod station;

pub(super) use service::place_concentrators;
pub(super) use station::{build_pppoe_roles, station_users};
