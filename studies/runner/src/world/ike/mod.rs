//! The workload `ike`: initiators, gateways and AAA servers of its own, which run the machines of `usher ike` and of the AAA
//! server.

mod build;
mod certificates;
mod counted;
mod initiator;
mod protection;

pub(super) use build::build;
pub(super) use counted::Counted;
pub(super) use protection::Protection;
