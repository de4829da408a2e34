//! Handover between networks after IEEE 802.21: the [`MobileStation`] that moves, the [`PointOfService`] in the network
//! that it leaves and in the one that it goes to, and the [`CorrespondentNode`] that sends it a flow.
//!
//! ```text
//!                 ┌─ 802.11 ─ PointOfService (serving) ─┐
//! Station ◀─ MIH ─┤                 │ MIH               ├─ Correspondent
//!                 └─ 802.16 ─ PointOfService (target) ──┘
//! ```
//! A handover begins with Link_Going_Down. Who leads it is the station's setting ([`HandoverInitiation`]); its controller, and
//! the point of service's, are tables ([`station::StationTable`],
//! [`pos::PointOfServiceTable`]).
//!
//! ```text
//! led by the station                                      led by the network
//! station: Link_Going_Down, scan                          station: Link_Going_Down, MIH_Link_Going_Down indication
//! MIH_MN_HO_Candidate_Query ─▶                            MIH_N2N_HO_Query_Resources ─▶ target
//!   MIH_N2N_HO_Query_Resources ─▶ target                  ◀─ MIH_Net_HO_Candidate_Query: station scans, answers
//! MIH_MN_HO_Commit ─▶                                     MIH_N2N_HO_Commit ─▶ target
//!   MIH_N2N_HO_Commit ─▶ target                           ◀─ MIH_Net_HO_Commit
//! station: connects the new link, Binding Update          station: connects the new link, Binding Update
//! MIH_MN_HO_Complete ─▶ target ─ MIH_N2N_HO_Complete ─▶ serving              (the same)
//! ```
//!
//! # What is known from where
//!
//! The study that this is made for follows draft 6 of 802.21, which is not public. The messages and their order are
//! those of public descriptions of the standard of 2008 (handover procedures led by the station and by the network), held
//! to the little that the study says. Assumed is:
//! - The network checks the target's resources before it asks the station, as the study says; the standard of 2008
//!   describes the other order. It reserves them after the station's answer, which is where both agree.
//! - A request is acted upon after a processing time ([`station::StationConfig::processing`], [`pos::PosConfig::processing`]),
//!   once in each node that a request reaches; responses and indications are acted upon at once. So a candidate query
//!   takes two processing times, the serving node's and the target's.
//! - MIH_Net_HO_Commit request is the exception: the station begins to move when it arrives, as the study says, and
//!   only the answer takes the processing time ([`station::CommitAnswer`]).
//! - The traffic redirection is a Mobile IPv6 registration (`usher-mip`) sent over the new link to the correspondent
//!   itself, which stands for the home agent too; it is complete when the acknowledgement arrives.
//! - A handover has succeeded when its exchange led the station to the new link; it has failed when the station had to
//!   find its way alone ([`station::HandoverFailure`]), although its flow is redirected then too.
//! - The new link is entered before the redirection, and the old one is released after MIH_MN_HO_Complete.
//!
//! # Work
//!
//! [`work`], and what `usher-mih` reports.

#![cfg_attr(not(test), no_std)]

extern crate alloc;

pub mod correspondent;
mod flow;
mod link;
mod messages;
pub mod pos;
mod requests;
pub mod station;
mod step;
pub mod work;

pub use correspondent::CorrespondentNode;
pub use link::{LinkCommand, LinkEvent, StationInterface};
pub use pos::PointOfService;
pub use station::{HandoverInitiation, MobileStation};
pub use step::Step;

use usher_core::automaton::AutomatonDiagram;

/// The two controllers as they run.
pub const AUTOMATA: [AutomatonDiagram; 2] =
    [station::StationTable::DIAGRAM, pos::PointOfServiceTable::DIAGRAM];
