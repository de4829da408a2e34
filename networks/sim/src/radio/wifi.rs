//! IEEE 802.11b and 802.11g: an infrastructure basic service set as a machine without input or output of its own.
//!
//! ```text
//! │ back-off │ preamble │ frame │ SIFS │ preamble │ ACK │ DIFS │ back-off │ ...
//!             └── 192 µs                └── 192 µs
//! ```
//! A [`Bss`] is told of packets ([`Bss::send`]), of what links are to do ([`Bss::command`]) and of the time
//! ([`Bss::handle_timeout`]), and says when it wants to be told next ([`Bss::poll_timeout`]), which packets have arrived or
//! are lost, and what the links have to say. It carries numbers, not bytes. What is not seen from outside, as beacons
//! that everybody expects, is no event; it is made up for, in its order, whenever the set is called.
//!
//! # How a frame goes (IEEE 802.11-1999, 9.2)
//! The access point and the stations contend alike (DCF), each with one queue. Who gets something to send while the
//! medium is idle senses it for DIFS and sends. Else it draws how many slots it lets pass from its contention window, and
//! counts only slots in which the medium is idle; after DIFS the count goes on where it stopped. A slot is how long it
//! takes to notice others, so frames that begin less than a slot apart collide, and all of them are lost. A frame that is
//! not acknowledged is sent again with a window twice as large (31, 63, … 1023), up to
//! [`WifiConfig::retransmissions`] times. After each frame its sender draws a back-off, whether or not it has another.
//! A packet has arrived at the end of its frame; the medium is idle again at the end of the acknowledgement.
//!
//! # How a station comes and goes
//! Within [`WifiConfig::radius`] of the access point everything is heard, beyond it nothing. Beacons compete for the medium
//! as other frames do, but go before what waits. Who is not associated says `Detected` at the first it hears. An
//! associated station that crosses [`WifiConfig::going_down`] outward says `GoingDown` with the time that it has left, and
//! `Down` when it has missed [`WifiConfig::beacons_missed`] beacons in a row and heard nothing else meanwhile. A scan visits all channels, of which one has
//! the access point; there a probe request goes, and the answer makes the station stay for MaxChannelTime. An association
//! is four frames: authentication (open system) and association, requests and answers. What waits for a station, or at
//! it, when its association ends is dropped.
//!
//! # What is assumed
//! - Carriers are sensed, and do harm, beyond the radius too: all in a set share one medium, and no station is hidden.
//!   Simulators commonly let a carrier be sensed at about twice the distance at which frames are received.
//! - Noise takes a frame together with its acknowledgement, so nothing arrives twice. The sender of a frame that is lost
//!   takes as long to notice as the others wait then (EIFS), so all count slots from one instant.
//! - A scanning station is away: what is sent to it is spent, what it wants to send waits, and beacons are neither heard nor
//!   missed. Changing the channel takes no time, and the probe's own time counts as part of MinChannelTime.
//! - Beacons and probes are subject to noise, each station by itself; packet loss beyond the MAC spares management.
//!
//! - Frames by OFDM (802.11g) have the rate and the slot that are set, and no protection by CTS-to-self: an 802.11g set without
//!   stations of 802.11b has the short slot, windows from 15 and acknowledgements by OFDM, one with them what 802.11b has.
//!
//! # What is left out
//! Fragmentation, RTS and CTS, power save, the choice among rates, the point coordination function, capture of the
//! stronger of two frames, propagation time, encryption, the notice of disassociation, and more than one access point.
//!
//! # Sources
//! IEEE 802.11-1999, 802.11a-1999, 802.11b-1999 and 802.11g-2003 as public descriptions and open code (ns-2's, ns-3's and Wireshark's) have them;
//! G. Bianchi, "Performance Analysis of the IEEE 802.11 Distributed Coordination Function", IEEE JSAC 18(3), 2000, which
//! the tests hold the contention against; the defaults of NIST's mobility modules for ns-2.

mod bss;
mod config;
mod frame;
mod medium;
mod station;

pub use bss::{Bss, BssCounters};
pub use config::{ConfigError, FrameLoss, LossFrom, PreambleLength, SlotTime, WifiConfig};
pub use frame::DataRate;

pub(crate) use frame::DATA_HEADER;

#[cfg(test)]
mod tests;
