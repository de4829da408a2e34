//! The workload `ike`: initiators, gateways and its own AAA servers, which run the machines of `usher ike` and of the
//! AAA server.

mod build;
mod certificates;
mod counted;
mod initiator;
mod protection;

pub(super) use build::build_ike_roles;
pub(super) use counted::CountedMachine;
pub(super) use protection::HostPolicies;
