//! RadSec: RADIUS over TLS (RFC 6614), with the framing of RADIUS over TCP (RFC 6613).
//!
//! The host does TLS. [`crate::server::RadiusServer`] and [`crate::client::RadiusClient`] see a stream of octets and
//! the certificate of the peer. The connection protects the packets and proves their source; the shared secret is a
//! fixed word.

pub use usher_crypto::certificate::PeerCertificateCondition;

use crate::auth::SharedSecret;
use crate::packet::{HEADER_LEN, MAX_LEN};
use alloc::vec::Vec;

/// The shared secret of every RadSec connection (RFC 6614 §2.3).
pub const SECRET: &[u8] = b"radsec";
/// The registered port (RFC 6614 §2.1).
pub const PORT: u16 = 2083;

/// [`SECRET`], prepared.
#[must_use]
pub fn radsec_secret() -> SharedSecret {
    SharedSecret::new(SECRET)
}

/// A Length field outside 20 to 4096. The next packet cannot be found, so the connection must be closed (RFC 6613
/// §2.6.4).
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("the Length field is {0}, but must be 20 to 4096")]
pub struct BadLength(pub u16);

/// Splits a stream into packets by their Length fields. It buffers at most one packet.
#[derive(Clone, Debug, Default)]
pub struct PacketFramer {
    buffer: Vec<u8>,
    /// True if the buffer was returned as a packet.
    is_emitted: bool,
}

impl PacketFramer {
    /// A framer at the start of a stream.
    #[must_use]
    pub const fn new() -> Self {
        Self { buffer: Vec::new(), is_emitted: false }
    }
    /// Returns the next whole packet of the buffer and `data`, and removes its octets from `data`. `None`: all of
    /// `data` is consumed.
    ///
    /// # Errors
    /// If a Length field is impossible. The rest of the stream is unusable.
    pub fn next_packet<'s, 'd: 's>(&'s mut self, data: &mut &'d [u8]) -> Result<Option<&'s [u8]>, BadLength> {
        if core::mem::take(&mut self.is_emitted) {
            self.buffer.clear();
        }
        if self.buffer.is_empty() {
            let Some(length) = packet_length(data)? else {
                self.buffer_octets(data, usize::MAX);
                return Ok(None);
            };
            if let Some((packet, rest)) = data.split_at_checked(length) {
                *data = rest;
                return Ok(Some(packet));
            }
        }
        self.buffer_octets(data, 4);
        let Some(length) = packet_length(&self.buffer)? else { return Ok(None) };
        self.buffer_octets(data, length);
        self.is_emitted = self.buffer.len() == length;
        Ok(self.is_emitted.then_some(&self.buffer))
    }
    /// The number of octets that wait for the rest of their packet.
    #[must_use]
    pub const fn buffered_octets(&self) -> usize {
        if self.is_emitted { 0 } else { self.buffer.len() }
    }
    /// Moves octets to the buffer until it holds `upto`.
    fn buffer_octets(&mut self, data: &mut &[u8], upto: usize) {
        let (taken, rest) = data.split_at(data.len().min(upto.saturating_sub(self.buffer.len())));
        self.buffer.extend_from_slice(taken);
        *data = rest;
    }
}

/// Returns the Length field of the packet that starts here, once it has arrived.
fn packet_length(bytes: &[u8]) -> Result<Option<usize>, BadLength> {
    let Some(&[_, _, hi, lo]) = bytes.first_chunk() else { return Ok(None) };
    let length = u16::from_be_bytes([hi, lo]);
    if (HEADER_LEN..=MAX_LEN).contains(&usize::from(length)) {
        Ok(Some(length.into()))
    } else {
        Err(BadLength(length))
    }
}

#[cfg(test)]
mod tests;
