//! The handover workload: mobile nodes that go from 802.11 to 802.16, points of service of both networks, and a
//! correspondent for each node.

mod build;
mod correspondent;
mod node;
mod point;
mod tally;

pub(super) use build::build;
pub(super) use correspondent::CorrespondentRole;
pub(super) use node::MobileRole;
pub(super) use point::PointRole;
pub(super) use tally::{Milestone, Tally};

/// The port of the application that receives a node's flow.
const FLOW_PORT: u16 = 5001;
