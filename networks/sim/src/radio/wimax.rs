//! IEEE 802.16 (OFDMA, TDD): a point-to-multipoint cell as a sans-IO machine.
//!
//! ```text
//! frame n begins at n × frame
//! │preamble│FCH│DL-MAP│UL-MAP│ downlink bursts      │gap│contention│ uplink bursts      │gap│
//!          └── slots: 2 symbols × 1 subchannel ─────┘   └─ slots: 3 symbols × 1 subchannel ┘
//! ```
//! A [`WimaxCell`] takes packets ([`WimaxCell::send`]), commands ([`WimaxCell::command`]) and the time
//! ([`WimaxCell::handle_timeout`]). Polls return its next timeout ([`WimaxCell::poll_timeout`]), arrivals, drops
//! and link events; getters return its counters and settings. It carries numbers, not octets. It skips frames
//! without events, so an idle cell costs nothing.
//!
//! # The downlink
//! A packet waits in its station's queue until the next frame. The base station serves the stations with queued
//! packets in turn, a burst each. A packet, or a fragment, is a PDU: 6 octets of generic MAC header, 4 of CRC
//! and, for a fragment, 2 of fragmentation subheader. Slots are filled along the subchannels first, then in time.
//! A packet has arrived at the end of the pair of symbols with its last octet.
//!
//! # The uplink
//! A station without a grant requests bandwidth in an opportunity of the contention part. It draws the number of
//! opportunities to skip from a window of 2^start, doubled at each failure up to 2^end (truncated binary
//! exponential back-off). Two requests in one opportunity are both lost. A station without a grant after
//! [`WimaxConfig::request_timeout`] (T16) tries again. The base station's next UL-MAP grants a burst in the
//! uplink [`WimaxConfig::uplink_lead`] frames later. A station requests more on a full burst (2 octets of grant
//! management subheader). Uplink slots run in time first, so a whole burst counts as arrived at the end of the
//! uplink.
//!
//! # Network entry
//! Before its first packet, in either direction, a station ranges: RNG-REQ in an opportunity of its own kind,
//! with its own back-off and T3. After that, RNG-RSP and the exchange of capabilities (SBC) take
//! [`WimaxConfig::entry_frames`] frames; then packets flow. The slots of these messages are left out. A command
//! ([`WimaxCell::command`]) starts the same entry without a packet. Registration then takes
//! [`WimaxConfig::registration_frames`] more. The standard's authentication before it is left out.
//!
//! # Scans
//! A station that scans, or enters without knowledge of the cell, waits for a preamble on each of
//! [`WimaxConfig::scan_channels`]. The last is the base station's. There it receives the next frame's preamble
//! and DL-MAP, then waits for the channel descriptors (DCD and UCD), sent every
//! [`WimaxConfig::descriptor_interval`]. They count as received at the end of their downlink; their slots are
//! left out. The station knows the cell until it leaves it.
//!
//! # Reach
//! Beyond [`WimaxConfig::radius`], if set, a station and the base station do not receive each other. A station
//! that crosses the edge is out of reach at once, and loses packets on the air. A real receiver's time to notice
//! is left out.
//!
//! # Assumptions
//! The standard's text was not at hand. Numbers are those on which public descriptions of Mobile WiMAX agree (10
//! MHz, 1024 carriers, partial usage of subchannels): see [`WimaxConfig::default`]. Further assumptions:
//! - An *opportunity* is a resource that one station can use alone. In OFDMA it is a code in a ranging slot. Here
//!   a received request states the amount; OFDMA has one more round: code, allocation, request header.
//! - Maps are sent with QPSK 1/2 and repetition coding. They grow by one element per burst. Sizes follow the
//!   message formats: DL-MAP 13 octets and 60 bits per burst, UL-MAP 8 octets, 52 bits for each of the two
//!   contention regions and 32 per grant. Each message has a PDU of its own.
//! - Packets are concatenated, one PDU each. Packing into one PDU, ARQ and HARQ are left out. A packet is lost
//!   with probability [`WimaxConfig::loss`], after its time on the air. Management and requests are lost only by
//!   collision.
//! - A packet that arrives at the instant when a frame begins is in time for it, unless the frame is already
//!   built.

mod burst;
mod cell;
mod config;
mod contention;
mod coverage;
mod schedule;

pub use super::{DropReason, RadioDirection};
pub use cell::{CellCounters, WimaxCell};
pub use config::{ConfigError, Modulation, NetworkEntryTrigger, WimaxConfig};
pub use contention::ContentionBackoffConfig;

pub(crate) use burst::PDU;

#[cfg(test)]
mod tests;
