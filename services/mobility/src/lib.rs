//! Handover between networks after IEEE 802.21: the [`MobileStation`], the [`PointOfService`] of its old and of its
//! new network, and the [`CorrespondentNode`] that sends it a flow.
//!
//! Each is a [machine](usher_core::Machine) with four kinds of methods:
//!
//! - Getters, such as `counters`.
//! - `handle_input` takes datagrams and the timeout. Station and point of service also take the streams and SCTP
//!   associations of their MIH functions.
//! - `handle_command` takes a [`StationCommand`](station::StationCommand), a [`PosCommand`](pos::PosCommand) or a
//!   [`CorrespondentCommand`](correspondent::CorrespondentCommand).
//! - `poll_output` gives transmissions, events ([`StationEvent`](station::StationEvent),
//!   [`PosEvent`](pos::PosEvent), [`CorrespondentEvent`](correspondent::CorrespondentEvent)) and work. `poll_timeout`
//!   gives the time of the next timeout.
//!
//! ```text
//!                 ┌─ 802.11 ─ PointOfService (serving) ─┐
//! Station ◀─ MIH ─┤                 │ MIH               ├─ Correspondent
//!                 └─ 802.16 ─ PointOfService (target) ──┘
//! ```
//! A handover begins with Link_Going_Down. The station's setting [`HandoverInitiatingSide`] says whether the station or
//! the network leads it. The controllers of station and point of service are tables ([`station::StationTable`],
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
//! # Sources
//!
//! The reproduced study follows draft 6 of 802.21, which is not public. Messages and their order come from public
//! descriptions of the 2008 standard (handover led by the station and by the network) and agree with the study. These
//! are assumptions:
//! - The network checks the target's resources before it queries the station, as in the study. The 2008 standard
//!   describes the reverse order. The network reserves them after the station's answer, as in both.
//! - A node acts on a request after a processing time ([`station::StationConfig::processing`],
//!   [`pos::PosConfig::processing`]). It acts on responses and indications at once. So a candidate query takes two
//!   processing times, the serving node's and the target's.
//! - MIH_Net_HO_Commit request is an exception: the station begins to move when it arrives, as in the study. Only the
//!   response takes the processing time ([`station::CommitAnswer`]).
//! - Traffic redirection is a Mobile IPv6 registration (`usher-mip`) over the new link. It goes directly to the
//!   correspondent, which also stands for the home agent. It is complete when the acknowledgement arrives.
//! - A handover succeeds if its exchange led the station to the new link. It fails if the station had to move on its
//!   own ([`station::HandoverFailure`]), although the flow is redirected in that case too.
//! - The station connects the new link before the redirection, and releases the old one after MIH_MN_HO_Complete.
//!
//! # Work
//!
//! [`work`], and the work that `usher-mih` reports.

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
pub use station::{HandoverInitiatingSide, MobileStation};
pub use step::Step;

use usher_core::automaton::AutomatonDiagram;

/// The state tables of the two controllers, as they run.
pub const AUTOMATA: [AutomatonDiagram; 2] =
    [station::StationTable::DIAGRAM, pos::PointOfServiceTable::DIAGRAM];
