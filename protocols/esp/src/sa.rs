//! Security associations (RFC 4301 §4.4.2): one for packets that go, one for packets that come.

use crate::ip::protocol::NO_NEXT_HEADER;
use crate::packet::{EspHeader, HEADER_LEN, TRAILER_LEN};
use crate::replay::{ReplayError, ReplayWindow};
use crate::transform::{EspKeys, EspTransform, KeyedTransform, PacketParts, TransformError};
use alloc::boxed::Box;
use core::ops::Range;
use usher_core::SecureRng;

/// How much an SA may carry (RFC 4301 §4.4.2.1). `None`: as much as its sequence numbers allow.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct SaLifetime {
    /// Octets that are carried, after which it should be replaced.
    pub soft_octets: Option<u64>,
    /// Octets after which it carries nothing more.
    pub hard_octets: Option<u64>,
    /// Packets after which it should be replaced.
    pub soft_packets: Option<u64>,
    /// Packets after which it carries nothing more.
    pub hard_packets: Option<u64>,
}

/// That an SA's time is near its end, or at it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum SaExpiry {
    /// It should be replaced.
    Soft,
    /// It carries nothing more.
    Hard,
}

/// What an SA has carried, and what became of that.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct TrafficVolume {
    /// Packets.
    pub packets: u64,
    /// Octets of what they carried: in tunnel mode whole packets.
    pub octets: u64,
}

/// How much is carried, held against a lifetime.
#[derive(Debug)]
struct LifetimeMeter {
    volume: TrafficVolume,
    lifetime: SaLifetime,
    /// What was told.
    reported_expiry: Option<SaExpiry>,
    /// To be told.
    expiry: Option<SaExpiry>,
}

impl LifetimeMeter {
    fn new(lifetime: SaLifetime) -> Self {
        Self { volume: TrafficVolume::default(), lifetime, reported_expiry: None, expiry: None }
    }
    fn queue_expiry(&mut self, expiry: SaExpiry) {
        if self.reported_expiry < Some(expiry) {
            (self.reported_expiry, self.expiry) = (Some(expiry), Some(expiry));
        }
    }
    /// Whether so many octets more may be carried.
    fn allows_octets(&mut self, octets: usize) -> bool {
        let (packets, octets) = (self.volume.packets + 1, self.volume.octets + octets as u64);
        let beyond = |limit: Option<u64>, value: u64| limit.is_some_and(|limit| value > limit);
        let over = self.reported_expiry == Some(SaExpiry::Hard)
            || beyond(self.lifetime.hard_packets, packets)
            || beyond(self.lifetime.hard_octets, octets);
        if over {
            self.queue_expiry(SaExpiry::Hard);
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
            self.queue_expiry(SaExpiry::Soft);
        }
    }
}

/// Why a packet was not sealed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum SealError {
    /// The caller's buffer is shorter than [`EspTransform::packet_len`].
    #[error("the buffer has {is} octets, the packet needs {needed}")]
    BufferTooShort {
        /// How long the packet is.
        needed: usize,
        /// How long the buffer is.
        is: usize,
    },
    /// The SA has carried all that it may, or all numbers have been used (RFC 4303 §3.3.3).
    #[error("the SA has carried as much as it may")]
    Expired,
}

/// An SA for packets that go.
pub struct OutboundSa {
    spi: u32,
    transform: EspTransform,
    keyed: KeyedTransform,
    /// The last number that was used.
    sequence: u64,
    account: LifetimeMeter,
    /// For initialization vectors that must not be foreseen (RFC 3602 §3, RFC 2451 §3).
    rng: Option<Box<SecureRng>>,
}

impl core::fmt::Debug for OutboundSa {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "OutboundSa({:08x})", self.spi)
    }
}

/// Of the last sequence number, where the SA should be replaced.
const NEAR_THE_LAST: fn(u64) -> u64 = |last| last - last / 16;

impl OutboundSa {
    /// An SA that has carried nothing. The seed is for initialization vectors of CBC, and must not be guessed.
    ///
    /// # Errors
    /// There is no such transform, or the keys do not fit it.
    pub fn new(
        spi: u32,
        transform: EspTransform,
        keys: &EspKeys,
        lifetime: SaLifetime,
        seed: [u8; 32],
    ) -> Result<Self, TransformError> {
        let keyed = transform.with_keys(keys)?;
        let chained = transform.cipher.is_some_and(|cipher| cipher.tag_len() == 0);
        let rng = chained.then(|| Box::new(SecureRng::from_seed(seed)));
        Ok(Self { spi, transform, keyed, sequence: 0, account: LifetimeMeter::new(lifetime), rng })
    }
    /// Its SPI, which the other side chose.
    #[must_use]
    pub const fn spi(&self) -> u32 {
        self.spi
    }
    /// How it protects.
    #[must_use]
    pub const fn transform(&self) -> &EspTransform {
        &self.transform
    }
    /// What it has carried.
    #[must_use]
    pub const fn volume(&self) -> TrafficVolume {
        self.account.volume
    }
    /// That it nears its end, once each.
    pub fn poll_expiry(&mut self) -> Option<SaExpiry> {
        self.account.expiry.take()
    }

    fn last_sequence(&self) -> u64 {
        if self.transform.extended_sequence_numbers { u64::MAX } else { u32::MAX.into() }
    }

    /// Makes a packet in place: what is carried stands in `buf` from [`EspTransform::headroom`] on and has `payload` octets of the
    /// protocol `next_header`. Gives the packet's length, [`EspTransform::packet_len`]; what is behind it in `buf` stays.
    ///
    /// # Errors
    /// [`SealError`]; the buffer is as it was.
    pub fn seal(&mut self, buf: &mut [u8], payload: usize, next_header: u8) -> Result<usize, SealError> {
        let needed = self.transform.packet_len(payload);
        let is = buf.len();
        let packet = buf.get_mut(..needed).ok_or(SealError::BufferTooShort { needed, is })?;
        if self.sequence >= self.last_sequence() {
            self.account.queue_expiry(SaExpiry::Hard);
        }
        if !self.account.allows_octets(payload) {
            return Err(SealError::Expired);
        }
        self.sequence += 1;
        let mut iv = [0; 16];
        let iv = &mut iv[..self.transform.iv_len()];
        match &mut self.rng {
            Some(rng) => rng.fill_bytes(iv),
            // A number is used once, and so is a vector of the same octets (RFC 4106 §3.1, RFC 7634 §2).
            None => iv.iter_mut().zip(self.sequence.to_be_bytes()).for_each(|(iv, octet)| *iv = octet),
        }
        write_packet(self, packet, payload, next_header, self.sequence, iv);
        self.account.count_packet(payload);
        if self.sequence >= NEAR_THE_LAST(self.last_sequence()) {
            self.account.queue_expiry(SaExpiry::Soft);
        }
        Ok(needed)
    }

    /// Makes a packet that carries nothing (RFC 4303 §2.6), with so many octets of padding in its place.
    ///
    /// # Errors
    /// As [`seal`](Self::seal).
    pub fn seal_dummy(&mut self, buf: &mut [u8], octets: usize) -> Result<usize, SealError> {
        self.seal(buf, octets, NO_NEXT_HEADER)
    }
}

/// Writes all but what is carried, and enciphers.
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
    let Some(mut parts) = PacketParts::from_packet(packet, &sa.transform) else { return };
    let padding = parts.body.len() - payload - TRAILER_LEN;
    // 1, 2, 3, … (RFC 4303 §2.4).
    for (n, octet) in (1..).zip(&mut parts.body[payload..payload + padding]) {
        *octet = n;
    }
    parts.body[payload + padding..].copy_from_slice(&[padding as u8, next_header]);
    let sealed = sa.keyed.seal(&mut parts, high);
    debug_assert!(sealed, "the parts are of the transform's lengths");
}

#[cfg(test)]
impl OutboundSa {
    /// A packet of this number and initialization vector, for vectors that were published.
    pub(crate) fn seal_as(
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
    /// As if it had sent so much.
    pub(crate) fn set_sequence(&mut self, sequence: u64) {
        self.sequence = sequence;
    }
}

/// Why a packet was not opened.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum OpenError {
    /// It is too short for what its SA puts around what it carries, or not a whole number of blocks.
    Length,
    /// Its sequence number was taken before.
    Replayed,
    /// Its sequence number is left of the window.
    BelowWindow,
    /// Its ICV is not that of its octets.
    Integrity,
    /// Its padding is not as it must be.
    Padding,
    /// It carries nothing on purpose.
    Dummy,
    /// The SA has carried as much as it may.
    Expired,
}

/// What a packet carried.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct OpenedPacket {
    /// Where it stands in the packet. In tunnel mode octets behind the inner packet are padding (RFC 4303 §2.7).
    pub payload: Range<usize>,
    /// Of which protocol it is.
    pub next_header: u8,
    /// Its whole sequence number.
    pub sequence: u64,
    /// No packet before had a higher one.
    pub newest: bool,
}

/// An SA for packets that come.
pub struct InboundSa {
    spi: u32,
    transform: EspTransform,
    keyed: KeyedTransform,
    window: ReplayWindow,
    account: LifetimeMeter,
    /// Packets one after another that were not authentic.
    failures: u32,
}

impl core::fmt::Debug for InboundSa {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "InboundSa({:08x})", self.spi)
    }
}

/// After so many packets one after another that are not authentic, as many have perhaps been lost as the low half of a number
/// can say, and higher halves are tried (RFC 4303 appendix A3).
const LOST_SYNCHRONIZATION: u32 = 64;
/// How many higher halves are tried.
const TRIED_AHEAD: u64 = 4;

impl InboundSa {
    /// An SA that has carried nothing, with a window of so many numbers.
    ///
    /// # Errors
    /// There is no such transform, or the keys do not fit it.
    pub fn new(
        spi: u32,
        transform: EspTransform,
        keys: &EspKeys,
        lifetime: SaLifetime,
        window: u32,
    ) -> Result<Self, TransformError> {
        let keyed = transform.with_keys(keys)?;
        let window = ReplayWindow::new(window, transform.extended_sequence_numbers);
        Ok(Self { spi, transform, keyed, window, account: LifetimeMeter::new(lifetime), failures: 0 })
    }
    /// Its SPI, which this side chose.
    #[must_use]
    pub const fn spi(&self) -> u32 {
        self.spi
    }
    /// How it protects.
    #[must_use]
    pub const fn transform(&self) -> &EspTransform {
        &self.transform
    }
    /// What it has carried.
    #[must_use]
    pub const fn volume(&self) -> TrafficVolume {
        self.account.volume
    }
    /// That it nears its end, once each.
    pub fn poll_expiry(&mut self) -> Option<SaExpiry> {
        self.account.expiry.take()
    }

    /// Opens a packet in place, whose SPI is this one's: number, ICV, deciphering, padding.
    ///
    /// # Errors
    /// [`OpenError`]; what the packet holds then means nothing.
    pub fn open(&mut self, packet: &mut [u8]) -> Result<OpenedPacket, OpenError> {
        let header = EspHeader::parse(packet).map_err(|_| OpenError::Length)?;
        let (headroom, length) = (self.transform.headroom(), packet.len());
        let mut parts = PacketParts::from_packet(packet, &self.transform).ok_or(OpenError::Length)?;
        if parts.body.len() < TRAILER_LEN || !parts.body.len().is_multiple_of(self.transform.block_len()) {
            return Err(OpenError::Length);
        }
        let mut sequence = self.window.infer_sequence(header.sequence);
        match self.window.check_sequence(sequence) {
            Ok(()) => {}
            Err(ReplayError::Replayed) => return Err(OpenError::Replayed),
            Err(ReplayError::BelowWindow) => return Err(OpenError::BelowWindow),
        }
        let extended = self.transform.extended_sequence_numbers;
        let high = |sequence: u64| extended.then_some((sequence >> 32) as u32);
        // A cipher that authenticates spoils what it does not open.
        let spare = (extended && self.failures >= LOST_SYNCHRONIZATION).then(|| parts.body.to_vec());
        if !self.keyed.open(&mut parts, high(sequence)) {
            self.failures += 1;
            let spare = spare.ok_or(OpenError::Integrity)?;
            self.failures = 0;
            let ahead = (1..=TRIED_AHEAD).filter_map(|n| sequence.checked_add(n << 32)).find(|ahead| {
                parts.body.copy_from_slice(&spare);
                self.keyed.open(&mut parts, high(*ahead))
            });
            sequence = ahead.ok_or(OpenError::Integrity)?;
        }
        self.failures = 0;
        let newest = self.window.accept_sequence(sequence);
        let &mut [.., padding, next_header] = parts.body else { return Err(OpenError::Length) };
        let end = parts.body.len() - TRAILER_LEN;
        let payload = end.checked_sub(usize::from(padding)).ok_or(OpenError::Padding)?;
        if !(1u8..).zip(&parts.body[payload..end]).all(|(n, octet)| n == *octet) {
            return Err(OpenError::Padding);
        }
        if !self.account.allows_octets(payload) {
            return Err(OpenError::Expired);
        }
        self.account.count_packet(payload);
        debug_assert!(headroom + end <= length);
        if next_header == NO_NEXT_HEADER {
            return Err(OpenError::Dummy);
        }
        Ok(OpenedPacket { payload: headroom..headroom + payload, next_header, sequence, newest })
    }
}
