//! The EAP workload: stations that authenticate at NASes, which send requests to AAA servers.

mod accounts;
mod agenda;
mod build;
mod diameter;
mod nas;
mod server;
mod station;
mod tls;
mod users;

pub(super) use build::{build_eap_roles, radius_retransmission};
pub(super) use tls::offer_tls_method;
pub(super) use users::{PASSWORD, SECRET, StationUserNames, station_identity};
