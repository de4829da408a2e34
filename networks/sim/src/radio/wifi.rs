//! IEEE 802.11b and 802.11g: an infrastructure basic service set as a sans-IO machine.
//!
//! ```text
//! │ back-off │ preamble │ frame │ SIFS │ preamble │ ACK │ DIFS │ back-off │ ...
//!             └── 192 µs                └── 192 µs
//! ```
//! A [`Bss`] takes packets ([`Bss::send`]), commands to links ([`Bss::command`]) and the time
//! ([`Bss::handle_timeout`]). Polls return its next timeout ([`Bss::poll_timeout`]), arrivals, drops and link
//! events; getters return its counters and settings. It carries numbers, not octets. Invisible work, such as a
//! beacon that all stations expect, is no event; the next call catches up on it in order.
//!
//! # The frame exchange (IEEE 802.11-1999, 9.2)
//! The access point and the stations contend alike (DCF), each with one queue. A contender with a new frame on an
//! idle medium senses it for DIFS and sends. Otherwise it draws a number of slots from its contention window. It
//! counts only slots in which the medium is idle; after DIFS the count continues. A slot is the time to detect
//! others, so frames that begin less than a slot apart collide, and all of them are lost. An unacknowledged frame
//! is sent again with a doubled window (31, 63, … 1023), up to [`WifiConfig::retransmissions`] times. After each
//! frame its sender draws a back-off, even without another frame. A packet has arrived at the end of its frame.
//! The medium is idle again at the end of the acknowledgement.
//!
//! # Association and coverage
//! Within [`WifiConfig::radius`] of the access point all frames are received, beyond it none. Beacons contend
//! like other frames, but precede the queue. A station that is not associated reports `Detected` at the first
//! frame it receives. An associated station that crosses [`WifiConfig::going_down`] outward reports `GoingDown`
//! with the time left. It reports `Down` after [`WifiConfig::beacons_missed`] missed beacons in a row without
//! another frame. A scan visits all channels; the access point is on one of them. There the station sends a probe
//! request; the response makes it stay for MaxChannelTime. An association takes four frames: requests and
//! responses of authentication (open system) and association. At its end the queues of and for the station are
//! dropped.
//!
//! # Assumptions
//! - Stations sense and disturb each other beyond the radius too: a set shares one medium, without hidden
//!   stations. Simulators commonly sense carriers at about twice the reception range.
//! - Noise destroys a frame together with its acknowledgement, so no frame arrives twice. The sender of a lost
//!   frame detects the loss when the others' wait (EIFS) ends, so all count slots from one instant.
//! - A scanning station is absent: frames sent to it are lost, its own frames wait, and it neither receives nor
//!   misses beacons. A channel change takes no time, and the probe's time counts as part of MinChannelTime.
//! - Noise affects beacons and probes, independently per station. Packet loss beyond the MAC does not affect
//!   management.
//!
//! - OFDM frames (802.11g) have the configured rate and slot, and no protection by CTS-to-self. A pure 802.11g
//!   set has the short slot, windows from 15 and OFDM acknowledgements. One with 802.11b stations has the values
//!   of 802.11b.
//!
//! # Not modelled
//! Fragmentation, RTS and CTS, power save, rate selection, the point coordination function, and capture of the
//! stronger of two frames. Propagation time, encryption, disassociation frames, and more than one access point.
//!
//! # Sources
//! IEEE 802.11-1999, 802.11a-1999, 802.11b-1999 and 802.11g-2003, by public descriptions and open code (ns-2,
//! ns-3, Wireshark). G. Bianchi, "Performance Analysis of the IEEE 802.11 Distributed Coordination Function",
//! IEEE JSAC 18(3), 2000, with which tests compare the contention. The defaults of NIST's mobility modules for
//! ns-2.

mod bss;
mod config;
mod frame;
mod medium;
mod station;

pub use bss::{Bss, BssCounters};
pub use config::{ConfigError, FrameLoss, LossFrom, PreambleLength, SlotTime, WifiConfig};
pub use frame::WifiDataRate;

pub(crate) use frame::DATA_HEADER;

#[cfg(test)]
mod tests;
