//! The TCP segment in the simulator's form.

use super::fast_open::FastOpenCookie;
use std::fmt;
use std::ops::{BitOr, BitOrAssign};
use std::sync::Arc;
use usher_core::Instant;

/// The control bits of RFC 9293 §3.1, in their wire positions.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct SegmentFlags(pub u8);

impl SegmentFlags {
    /// No more data from the sender.
    pub const FIN: Self = Self(1);
    /// Synchronise sequence numbers.
    pub const SYN: Self = Self(2);
    /// Reset the connection.
    pub const RST: Self = Self(4);
    /// Push.
    pub const PSH: Self = Self(8);
    /// The acknowledgement field is valid.
    pub const ACK: Self = Self(16);

    /// True if all bits of `other` are set.
    pub const fn contains(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }
    /// True if any bit of `other` is set.
    pub const fn intersects(self, other: Self) -> bool {
        self.0 & other.0 != 0
    }
}
impl BitOr for SegmentFlags {
    type Output = Self;
    fn bitor(self, o: Self) -> Self {
        Self(self.0 | o.0)
    }
}
impl BitOrAssign for SegmentFlags {
    fn bitor_assign(&mut self, o: Self) {
        self.0 |= o.0;
    }
}
impl fmt::Debug for SegmentFlags {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}
impl fmt::Display for SegmentFlags {
    /// Formats as tcpdump: `S.`, `P.`, `F.`, `R`, `.`; `-` for none.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0 == 0 {
            return f.write_str("-");
        }
        for (bit, c) in [(2, "S"), (1, "F"), (4, "R"), (8, "P"), (32, "U"), (64, "E"), (128, "W"), (16, ".")]
        {
            if self.0 & bit != 0 {
                f.write_str(c)?;
            }
        }
        Ok(())
    }
}

/// Up to four blocks of received data beyond the acknowledgement, each `[left, right)` (RFC 2018 §3). Boxed,
/// since few segments have any.
#[derive(Clone, PartialEq, Eq, Default)]
pub struct SackBlocks(Option<Box<SackBlockArray>>);

#[derive(Clone, PartialEq, Eq, Default)]
struct SackBlockArray {
    /// From 1 to 4.
    len: u8,
    all: [(u32, u32); 4],
}

impl SackBlocks {
    /// Appends a block.
    ///
    /// Returns false without a change if there are four already.
    pub fn push(&mut self, left: u32, right: u32) -> bool {
        let blocks = self.0.get_or_insert_default();
        let Some(slot) = blocks.all.get_mut(usize::from(blocks.len)) else { return false };
        *slot = (left, right);
        blocks.len += 1;
        true
    }
    /// Keeps the first `n` blocks.
    pub(super) fn truncate(&mut self, n: usize) {
        if n == 0 {
            self.0 = None;
        } else if let Some(blocks) = &mut self.0 {
            let n = n.min(usize::from(blocks.len));
            blocks.all[n..].fill((0, 0));
            blocks.len = n as u8;
        }
    }
    /// Returns the blocks, the most recent first.
    pub fn as_slice(&self) -> &[(u32, u32)] {
        self.0.as_ref().map_or(&[], |blocks| &blocks.all[..usize::from(blocks.len)])
    }
    /// True without blocks.
    pub const fn is_empty(&self) -> bool {
        self.0.is_none()
    }
}
impl fmt::Debug for SackBlocks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.as_slice()).finish()
    }
}

/// The options of a segment.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct TcpOptions {
    /// Maximum segment size of the sender, in octets of TCP payload (RFC 9293 §3.7.1).
    pub mss: Option<u16>,
    /// Shift of the sender's later window fields (RFC 7323 §2).
    pub window_scale: Option<u8>,
    /// The sender supports SACK (RFC 2018 §2).
    pub sack_permitted: bool,
    /// TSval and TSecr (RFC 7323 §3).
    pub timestamps: Option<(u32, u32)>,
    /// SACK blocks.
    pub sack: SackBlocks,
    /// A Fast Open cookie, or a request for one (RFC 7413).
    pub fast_open: Option<Box<FastOpenCookie>>,
}

/// Maximum octets of options in a TCP header.
pub(super) const MAX_OPTIONS: u32 = 40;

/// Returns the octets of a Fast Open option, padded.
pub(super) fn fast_open_len(cookie: FastOpenCookie) -> u32 {
    (2 + cookie.as_slice().len() as u32).next_multiple_of(4)
}

impl TcpOptions {
    /// Returns the number of SACK blocks that fit beside the other options.
    pub(super) fn fitting_sack_block_count(&self) -> usize {
        let room = MAX_OPTIONS.saturating_sub(self.len_without_sack()).saturating_sub(4) / 8;
        self.sack.as_slice().len().min(room as usize)
    }
    fn len_without_sack(&self) -> u32 {
        4 * u32::from(self.mss.is_some())
            + 4 * u32::from(self.window_scale.is_some())
            + 12 * u32::from(self.timestamps.is_some())
            // SACK-permitted takes no octets if timestamps are present, because it fills their two octets of padding.
            + 4 * u32::from(self.sack_permitted && self.timestamps.is_none())
            + self.fast_open.as_ref().map_or(0, |cookie| fast_open_len(**cookie))
    }
    /// Returns the octets on the wire, padded to a multiple of four; at most 40.
    pub fn wire_len(&self) -> u32 {
        let blocks = self.fitting_sack_block_count() as u32;
        self.len_without_sack() + if blocks > 0 { 4 + 8 * blocks } else { 0 }
    }
}

/// A TCP segment without ports: the host keeps them with the connection.
///
/// `len` counts payload octets even without content (`payload` is `None`): a simulated application may send
/// counts.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Segment {
    /// Sequence number of the first payload octet, or of SYN.
    pub seq: u32,
    /// Acknowledgement number; valid with [`SegmentFlags::ACK`].
    pub ack: u32,
    /// Payload octets.
    pub len: u32,
    /// The window field as on the wire (not scaled up).
    pub window: u16,
    /// Control bits.
    pub flags: SegmentFlags,
    /// Options, if any.
    pub options: Option<Box<TcpOptions>>,
    /// The payload, if it has content; its length is `len`.
    pub payload: Option<Arc<[u8]>>,
}

impl Segment {
    /// Returns the octets of the TCP header with padded options.
    pub fn header_len(&self) -> u32 {
        20 + self.options.as_ref().map_or(0, |o| o.wire_len())
    }
    /// Returns the octets of header and payload.
    pub fn wire_len(&self) -> u32 {
        self.header_len() + self.len
    }
    /// Returns its sequence space: payload, and one each for SYN and FIN (RFC 9293 SEG.LEN).
    pub fn sequence_len(&self) -> u32 {
        self.len
            .wrapping_add(u32::from(self.flags.contains(SegmentFlags::SYN)))
            .wrapping_add(u32::from(self.flags.contains(SegmentFlags::FIN)))
    }
    /// True if the payload contradicts `len`, or exceeds an IP packet.
    pub(super) fn is_malformed(&self) -> bool {
        self.len > 65_535 || self.payload.as_ref().is_some_and(|p| p.len() != self.len as usize)
    }
    /// Returns the reset that answers a segment without a connection (RFC 9293 §3.10.7.1); `None` for a reset, which
    /// is never answered.
    pub fn reset_reply(&self) -> Option<Segment> {
        if self.flags.contains(SegmentFlags::RST) {
            return None;
        }
        Some(if self.flags.contains(SegmentFlags::ACK) {
            Segment { seq: self.ack, flags: SegmentFlags::RST, ..Default::default() }
        } else {
            Segment {
                ack: self.seq.wrapping_add(self.sequence_len()),
                flags: SegmentFlags::RST | SegmentFlags::ACK,
                ..Default::default()
            }
        })
    }
}

impl fmt::Display for Segment {
    /// Formats as tcpdump: `P. 1:201(200) ack 1 win 65535 <mss 1460,wscale 7>`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}:{}({})", self.flags, self.seq, self.seq.wrapping_add(self.len), self.len)?;
        if self.flags.contains(SegmentFlags::ACK) {
            write!(f, " ack {}", self.ack)?;
        }
        write!(f, " win {}", self.window)?;
        let Some(options) = &self.options else { return Ok(()) };
        let mut parts = Vec::new();
        if let Some(mss) = options.mss {
            parts.push(format!("mss {mss}"));
        }
        if let Some(shift) = options.window_scale {
            parts.push(format!("wscale {shift}"));
        }
        if options.sack_permitted {
            parts.push("sackOK".into());
        }
        if let Some((val, ecr)) = options.timestamps {
            parts.push(format!("ts {val}:{ecr}"));
        }
        if let Some(cookie) = &options.fast_open {
            parts.push(format!("FO {cookie:?}").trim_end().into());
        }
        for (left, right) in options.sack.as_slice() {
            parts.push(format!("sack {left}:{right}"));
        }
        write!(f, " <{}>", parts.join(","))
    }
}

/// Returns the timestamp clock, in milliseconds.
pub(super) fn timestamp_value(now: Instant) -> u32 {
    // RFC 7323, 4.1 and 5.4: proportional to time.
    (now.as_nanos() / 1_000_000) as u32
}
