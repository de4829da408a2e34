//! The handover workload: mobile nodes that move from 802.11 to 802.16, points of service of both networks, and a
//! correspondent for each node.

mod build;
mod correspondent;
mod node;
mod point;
mod tally;

pub(super) use build::build_handover_roles;
pub(super) use tally::HandoverStats;
