//! Security associations (RFC 4301 §4.4.2), outbound and inbound.

use crate::ip::protocol::NO_NEXT_HEADER;
use crate::packet::{EspHeader, HEADER_LEN, TRAILER_LEN};
use crate::replay::{ReplayError, ReplayWindow};
use crate::transform::{EspKeys, EspPacketParts, EspTransform, EspTransformError, KeyedEspTransform};
use alloc::boxed::Box;
use core::ops::Range;
use usher_core::SecureRng;

/// The volume limits of an SA (RFC 4301 §4.4.2.1). `None`: as much as its sequence numbers allow.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct SaLifetime {
    /// Payload octets after which it should be replaced.
    pub soft_octets: Option<u64>,
    /// Payload octets after which it carries no more.
    pub hard_octets: Option<u64>,
    /// Packets after which it should be replaced.
    pub soft_packets: Option<u64>,
    /// Packets after which it carries no more.
    pub hard_packets: Option<u64>,
}

/// An SA that is near its limit, or at it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum SaExpiry {
    /// It should be replaced.
    Soft,
    /// It carries no more packets.
    Hard,
}

/// The traffic that an SA has carried.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct TrafficVolume {
    /// Packets.
    pub packets: u64,
    /// Payload octets: in tunnel mode, whole inner packets.
    pub octets: u64,
}

/// Counts traffic against a lifetime.
#[derive(Debug)]
struct SaLifetimeCounter {
    volume: TrafficVolume,
    lifetime: SaLifetime,
    /// The last reported expiry.
    reported_expiry: Option<SaExpiry>,
    /// The expiry to report.
    expiry: Option<SaExpiry>,
}

impl SaLifetimeCounter {
    fn new(lifetime: SaLifetime) -> Self {
        Self { volume: TrafficVolume::default(), lifetime, reported_expiry: None, expiry: None }
    }
    fn queue_sa_expiry(&mut self, expiry: SaExpiry) {
        // RFC 4301, 4.4.2.1: a soft and a hard lifetime.
        if self.reported_expiry < Some(expiry) {
            (self.reported_expiry, self.expiry) = (Some(expiry), Some(expiry));
        }
    }
    /// True if this many more octets may be carried.
    fn allows_more_octets(&mut self, octets: usize) -> bool {
        let (packets, octets) = (self.volume.packets + 1, self.volume.octets + octets as u64);
        let beyond = |limit: Option<u64>, value: u64| limit.is_some_and(|limit| value > limit);
        let over = self.reported_expiry == Some(SaExpiry::Hard)
            || beyond(self.lifetime.hard_packets, packets)
            || beyond(self.lifetime.hard_octets, octets);
        if over {
            self.queue_sa_expiry(SaExpiry::Hard);
        }
        !over
    }
    fn count_packet(&mut self, octets: usize) {
        self.volume.packets += 1;
        self.volume.octets += octets as u64;
        let reached = |limit: Option<u64>, value: u64| limit.is_some_and(|limit| value >= limit);
        if reached(self.lifetime.soft_packets, self.volume.packets)
            || reached(self.lifetime.soft_octets, self.volume.octets)
        {
            self.queue_sa_expiry(SaExpiry::Soft);
        }
    }
}

/// The reason why a packet was not sealed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum EspOutboundError {
    /// The caller's buffer is shorter than [`EspTransform::packet_len`].
    #[error("the buffer has {is} octets, but the packet needs {needed}")]
    BufferTooShort {
        /// How long the packet is.
        needed: usize,
        /// How long the buffer is.
        is: usize,
    },
    /// The SA is at its limit, or its sequence numbers are used up (RFC 4303 §3.3.3).
    #[error("the SA has reached its limit")]
    Expired,
}

/// An outbound SA.
pub struct OutboundSa {
    spi: u32,
    transform: EspTransform,
    keyed: KeyedEspTransform,
    /// The last used sequence number.
    sequence: u64,
    account: SaLifetimeCounter,
    /// For initialization vectors that must be unpredictable (RFC 3602 §3, RFC 2451 §3).
    rng: Option<Box<SecureRng>>,
}

impl core::fmt::Debug for OutboundSa {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "OutboundSa({:08x})", self.spi)
    }
}

/// The sequence number at which the SA should be replaced, from the last one.
const NEAR_THE_LAST: fn(u64) -> u64 = |last| last - last / 16;

impl OutboundSa {
    /// Creates an SA. The seed is for CBC's initialization vectors and must be unpredictable.
    ///
    /// # Errors
    /// The transform is invalid, or a key does not fit it.
    pub fn new(
        spi: u32,
        transform: EspTransform,
        keys: &EspKeys,
        lifetime: SaLifetime,
        seed: [u8; 32],
    ) -> Result<Self, EspTransformError> {
        let keyed = transform.with_keys(keys)?;
        let chained = transform.cipher.is_some_and(|cipher| cipher.tag_len() == 0);
        let rng = chained.then(|| Box::new(SecureRng::from_seed(seed)));
        Ok(Self { spi, transform, keyed, sequence: 0, account: SaLifetimeCounter::new(lifetime), rng })
    }
    /// Its SPI, chosen by the peer.
    #[must_use]
    pub const fn spi(&self) -> u32 {
        self.spi
    }
    /// Its transform.
    #[must_use]
    pub const fn transform(&self) -> &EspTransform {
        &self.transform
    }
    /// The traffic that it has carried.
    #[must_use]
    pub const fn volume(&self) -> TrafficVolume {
        self.account.volume
    }
    /// Returns each expiry once.
    pub fn poll_expiry(&mut self) -> Option<SaExpiry> {
        self.account.expiry.take()
    }

    fn last_sequence(&self) -> u64 {
        if self.transform.extended_sequence_numbers { u64::MAX } else { u32::MAX.into() }
    }

    /// Seals a packet in place. The payload is in `buf` from [`EspTransform::headroom`] on, with `payload` octets of
    /// the protocol `next_header`. Returns the packet's length, [`EspTransform::packet_len`]. Octets after it in
    /// `buf` stay.
    ///
    /// # Errors
    /// [`EspOutboundError`]; the buffer is as it was.
    pub fn seal(
        &mut self,
        buf: &mut [u8],
        payload: usize,
        next_header: u8,
    ) -> Result<usize, EspOutboundError> {
        let needed = self.transform.packet_len(payload);
        let is = buf.len();
        let packet = buf.get_mut(..needed).ok_or(EspOutboundError::BufferTooShort { needed, is })?;
        // RFC 4303, 3.3.3: a sequence number is never used twice, so the SA ends before its numbers repeat.
        if self.sequence >= self.last_sequence() {
            self.account.queue_sa_expiry(SaExpiry::Hard);
        }
        if !self.account.allows_more_octets(payload) {
            return Err(EspOutboundError::Expired);
        }
        // RFC 4303, 2.2: every packet is numbered, from 1.
        self.sequence += 1;
        let mut iv = [0; 16];
        let iv = &mut iv[..self.transform.iv_len()];
        match &mut self.rng {
            // RFC 3602, 3: a random IV.
            Some(rng) => rng.fill_bytes(iv),
            // A sequence number is never used twice, so an IV of the same octets is unique (RFC 4106 §3.1, RFC 7634
            // §2).
            None => iv.iter_mut().zip(self.sequence.to_be_bytes()).for_each(|(iv, octet)| *iv = octet),
        }
        write_packet(self, packet, payload, next_header, self.sequence, iv);
        self.account.count_packet(payload);
        if self.sequence >= NEAR_THE_LAST(self.last_sequence()) {
            self.account.queue_sa_expiry(SaExpiry::Soft);
        }
        Ok(needed)
    }

    /// Makes a dummy packet (RFC 4303 §2.6) with this many octets of padding as its payload.
    ///
    /// # Errors
    /// As [`seal`](Self::seal).
    pub fn seal_dummy(&mut self, buf: &mut [u8], octets: usize) -> Result<usize, EspOutboundError> {
        self.seal(buf, octets, NO_NEXT_HEADER)
    }
}

/// Writes all but the payload, and encrypts.
fn write_packet(
    sa: &OutboundSa,
    packet: &mut [u8],
    payload: usize,
    next_header: u8,
    sequence: u64,
    iv: &[u8],
) {
    let header = EspHeader { spi: sa.spi, sequence: sequence as u32 };
    packet[..HEADER_LEN].copy_from_slice(&header.to_octets());
    packet[HEADER_LEN..HEADER_LEN + iv.len()].copy_from_slice(iv);
    let high = sa.transform.extended_sequence_numbers.then_some((sequence >> 32) as u32);
    let Some(mut parts) = EspPacketParts::from_packet(packet, &sa.transform) else { return };
    let padding = parts.body.len() - payload - TRAILER_LEN;
    // RFC 4303, 2.4: the padding is 1, 2, 3, …
    for (n, octet) in (1..).zip(&mut parts.body[payload..payload + padding]) {
        *octet = n;
    }
    parts.body[payload + padding..].copy_from_slice(&[padding as u8, next_header]);
    let sealed = sa.keyed.seal(&mut parts, high);
    debug_assert!(sealed, "the parts are of the transform's lengths");
}

#[cfg(test)]
impl OutboundSa {
    /// Seals a packet with this sequence number and IV, for published test vectors.
    pub(crate) fn seal_with_sequence_and_iv(
        &mut self,
        buf: &mut [u8],
        payload: usize,
        next: u8,
        sequence: u64,
        iv: &[u8],
    ) -> usize {
        let needed = self.transform.packet_len(payload);
        write_packet(self, &mut buf[..needed], payload, next, sequence, iv);
        needed
    }
    /// Sets the sequence number, as if it had sent so many packets.
    pub(crate) fn set_sequence_number(&mut self, sequence: u64) {
        self.sequence = sequence;
    }
}

/// The reason why a packet was not opened.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum EspInboundError {
    /// It is too short for its transform, or not a whole number of blocks.
    Length,
    /// Its sequence number was already received.
    Replayed,
    /// Its sequence number is left of the window.
    BelowWindow,
    /// Its ICV does not match.
    Integrity,
    /// Its padding is invalid.
    Padding,
    /// It is a dummy packet.
    Dummy,
    /// The SA is at its limit.
    Expired,
}

/// The contents of an opened packet.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DecryptedPacket {
    /// The payload's place in the packet. In tunnel mode, octets after the inner packet are padding (RFC 4303 §2.7).
    pub payload: Range<usize>,
    /// The protocol of the payload.
    pub next_header: u8,
    /// Its whole sequence number.
    pub sequence: u64,
    /// True if no earlier packet had a higher one.
    pub newest: bool,
}

/// An inbound SA.
pub struct InboundSa {
    spi: u32,
    transform: EspTransform,
    keyed: KeyedEspTransform,
    window: ReplayWindow,
    account: SaLifetimeCounter,
    /// Number of consecutive packets that were not authentic.
    failures: u32,
}

impl core::fmt::Debug for InboundSa {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "InboundSa({:08x})", self.spi)
    }
}

/// After this many consecutive failures, more packets may be lost than the low half of a sequence number can count.
/// Higher halves are then tried (RFC 4303 appendix A3).
const LOST_SYNCHRONIZATION: u32 = 64;
/// Number of higher halves to try.
const TRIED_AHEAD: u64 = 4;

impl InboundSa {
    /// Creates an SA with an anti-replay window of this size.
    ///
    /// # Errors
    /// The transform is invalid, or a key does not fit it.
    pub fn new(
        spi: u32,
        transform: EspTransform,
        keys: &EspKeys,
        lifetime: SaLifetime,
        window: u32,
    ) -> Result<Self, EspTransformError> {
        let keyed = transform.with_keys(keys)?;
        let window = ReplayWindow::new(window, transform.extended_sequence_numbers);
        Ok(Self { spi, transform, keyed, window, account: SaLifetimeCounter::new(lifetime), failures: 0 })
    }
    /// Its SPI, chosen by this side.
    #[must_use]
    pub const fn spi(&self) -> u32 {
        self.spi
    }
    /// Its transform.
    #[must_use]
    pub const fn transform(&self) -> &EspTransform {
        &self.transform
    }
    /// The traffic that it has carried.
    #[must_use]
    pub const fn volume(&self) -> TrafficVolume {
        self.account.volume
    }
    /// Returns each expiry once.
    pub fn poll_expiry(&mut self) -> Option<SaExpiry> {
        self.account.expiry.take()
    }

    /// Opens a packet of this SPI in place: checks sequence number and ICV, decrypts, checks the padding.
    ///
    /// # Errors
    /// [`EspInboundError`]; the octets of the packet are then meaningless.
    pub fn open(&mut self, packet: &mut [u8]) -> Result<DecryptedPacket, EspInboundError> {
        let header = EspHeader::parse(packet).map_err(|_| EspInboundError::Length)?;
        let (headroom, length) = (self.transform.headroom(), packet.len());
        let mut parts =
            EspPacketParts::from_packet(packet, &self.transform).ok_or(EspInboundError::Length)?;
        if parts.body.len() < TRAILER_LEN || !parts.body.len().is_multiple_of(self.transform.block_len()) {
            return Err(EspInboundError::Length);
        }
        let mut sequence = self.window.infer_sequence(header.sequence);
        match self.window.check_sequence(sequence) {
            Ok(()) => {}
            Err(ReplayError::Replayed) => return Err(EspInboundError::Replayed),
            Err(ReplayError::BelowWindow) => return Err(EspInboundError::BelowWindow),
        }
        let extended = self.transform.extended_sequence_numbers;
        let high = |sequence: u64| extended.then_some((sequence >> 32) as u32);
        // An AEAD cipher destroys a packet that it cannot open, so further attempts need a copy.
        let spare = (extended && self.failures >= LOST_SYNCHRONIZATION).then(|| parts.body.to_vec());
        if !self.keyed.open(&mut parts, high(sequence)) {
            self.failures += 1;
            let spare = spare.ok_or(EspInboundError::Integrity)?;
            self.failures = 0;
            let ahead = (1..=TRIED_AHEAD).filter_map(|n| sequence.checked_add(n << 32)).find(|ahead| {
                parts.body.copy_from_slice(&spare);
                self.keyed.open(&mut parts, high(*ahead))
            });
            sequence = ahead.ok_or(EspInboundError::Integrity)?;
        }
        self.failures = 0;
        // RFC 4303, 3.4.3, 3.4.4: only authentic packets move the window.
        let newest = self.window.accept_sequence(sequence);
        let &mut [.., padding, next_header] = parts.body else { return Err(EspInboundError::Length) };
        let end = parts.body.len() - TRAILER_LEN;
        let payload = end.checked_sub(usize::from(padding)).ok_or(EspInboundError::Padding)?;
        if !(1u8..).zip(&parts.body[payload..end]).all(|(n, octet)| n == *octet) {
            return Err(EspInboundError::Padding);
        }
        if !self.account.allows_more_octets(payload) {
            return Err(EspInboundError::Expired);
        }
        self.account.count_packet(payload);
        debug_assert!(headroom + end <= length);
        // RFC 4303, 2.6: a dummy packet is dropped without an error.
        if next_header == NO_NEXT_HEADER {
            return Err(EspInboundError::Dummy);
        }
        Ok(DecryptedPacket { payload: headroom..headroom + payload, next_header, sequence, newest })
    }
}
