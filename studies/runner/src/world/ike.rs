//! The workload `ike`: initiators, gateways and its own AAA servers, which run the machines of `usher ike` and of the
//! AAA server.

mod build;
mod certificates;
mod datagram_counter;
mod initiator;
mod protection;

pub(super) use build::build_ike_roles;
pub(super) use datagram_counter::DatagramCountingMachine;
pub(super) use protection::HostSecurityPolicies;
