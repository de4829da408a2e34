//! IEEE 802.16 (OFDMA, TDD): a point-to-multipoint cell as a machine without input or output of its own.
//!
//! ```text
//! frame n begins at n × frame
//! │preamble│FCH│DL-MAP│UL-MAP│ downlink bursts      │gap│contention│ uplink bursts      │gap│
//!          └── slots: 2 symbols × 1 subchannel ─────┘   └─ slots: 3 symbols × 1 subchannel ┘
//! ```
//! A [`WimaxCell`] is told of packets ([`WimaxCell::send`]) and of the time ([`WimaxCell::handle_timeout`]), and says when it wants to
//! be told next ([`WimaxCell::poll_timeout`]) and which packets have arrived or are lost. It carries numbers, not bytes. Frames
//! in which nothing happens are not counted through, so an idle cell costs nothing.
//!
//! # How a packet goes down
//! It waits in its station's queue until the next frame begins. The base station goes round the stations that have
//! something waiting and gives each a burst. A packet, or a piece of one, is a PDU: 6 octets of generic MAC header, 4 of
//! CRC and, for a piece, 2 of fragmentation subheader. Slots are filled along the subchannels first, then in time; a
//! packet has arrived at the end of the pair of symbols that holds its last octet.
//!
//! # How a packet goes up
//! A station without a grant asks for bandwidth in an opportunity of the contention part: it draws how many opportunities
//! it lets pass from a window of 2^start, doubled with each failure up to 2^end (truncated binary exponential back-off).
//! Two in one opportunity are both lost; who hears of no grant for [`WimaxConfig::request_timeout`] (T16) tries again. The
//! base station's next UL-MAP grants a burst in the uplink [`WimaxConfig::uplink_lead`] frames on. What remains when the
//! burst is full is asked for on the burst itself (2 octets of grant management subheader). Uplink slots run in time
//! first, so all of a burst is taken to have arrived at the end of the uplink.
//!
//! # How a station comes in
//! Before its first packet, in either direction, it ranges: RNG-REQ in an opportunity of its own kind, with its own back-off
//! and T3. When the base station has heard it, RNG-RSP and the exchange of capabilities (SBC) take
//! [`WimaxConfig::entry_frames`] frames, after which packets go. The slots of the messages of network entry are left out.
//! On command ([`WimaxCell::command`]) it comes in the same way, without a packet, and registers, which takes
//! [`WimaxConfig::registration_frames`] more; authentication, which goes before in the standard, is left out.
//!
//! # How a station finds the cell
//! A station that is told to scan, or to come in without knowing the cell, waits for a preamble on each of
//! [`WimaxConfig::scan_channels`]. The last is the base station's, where it takes the next frame's preamble and DL-MAP, then
//! waits for the descriptors of the channels (DCD and UCD), which go every [`WimaxConfig::descriptor_interval`] and are
//! taken to have been heard at the end of their downlink; their slots are left out. It knows the cell until it leaves it.
//!
//! # Reach
//! With a [`WimaxConfig::radius`], a station farther away hears and is heard by nobody. Who crosses the edge is out at that
//! instant, and what is on the air for it is lost; what a real receiver would take to notice is left out.
//!
//! # What is assumed
//! The standard's text was not at hand; numbers are those that public descriptions of Mobile WiMAX (10 MHz, 1024 carriers,
//! partial usage of subchannels) agree on: see [`WimaxConfig::default`]. Beyond them:
//! - An *opportunity* is what one station can use alone. In OFDMA it is a code in a ranging slot; here a heard request
//!   says at once how much is wanted, where OFDMA has one more round: code, allocation, request header.
//! - Maps are sent with QPSK 1/2 and repetition coding. They grow by one element per burst; their fixed parts and
//!   elements have the sizes that the message formats add up to: DL-MAP 13 octets and 60 bits per burst, UL-MAP 8 octets,
//!   52 bits for each of the two contention regions and 32 per grant, each message in a PDU of its own.
//! - Packets are concatenated, one PDU each; packing several into one PDU is left out, and so are ARQ and HARQ: a packet
//!   is lost with [`WimaxConfig::loss`], after it has taken its time. Management and requests are lost by collision only.
//! - A packet that comes in the very instant in which a frame begins is in time for it, unless the frame has been put
//!   together already.

mod burst;
mod cell;
mod config;
mod contention;
mod reach;
mod schedule;

pub use super::{DropReason, StationDirection};
pub use cell::{CellCounters, WimaxCell};
pub use config::{ConfigError, Modulation, NetworkEntry, WimaxConfig};
pub use contention::BackoffPolicy;

pub(crate) use burst::PDU;

#[cfg(test)]
mod tests;
