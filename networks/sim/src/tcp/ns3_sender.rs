//! ns-3's TCP sender with SACK, CUBIC and proportional rate reduction (tcp-socket-base.cc, tcp-tx-buffer.cc and
//! tcp-prr-recovery.cc of ns-3.37).
//!
//! It counts segments as sent: one is lost after three above it are SACKed, however small they are.
//! `docs/reference/transports.md` lists its other differences from RFC 6675.

use super::ns3_cubic::Ns3Cubic;
use super::segment::Segment;
use super::seq;
use std::collections::VecDeque;
use usher_core::Instant;

/// `TcpCongState_t`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) enum Ns3CongestionState {
    #[default]
    Open,
    Disorder,
    Recovery,
    Loss,
}

/// A segment in flight (`TcpTxItem`).
#[derive(Clone, Copy, Debug)]
pub(super) struct SentSegment {
    pub(super) start: u32,
    pub(super) end: u32,
    pub(super) reported: bool,
    pub(super) lost: bool,
    /// True if it was retransmitted after the last timeout.
    pub(super) is_retransmitted: bool,
}

impl SentSegment {
    pub(super) fn len(&self) -> u32 {
        self.end.wrapping_sub(self.start)
    }
    /// Returns its copies in flight: a retransmission adds one, a SACK or a loss subtracts one.
    pub(super) fn copies_in_flight(&self) -> i64 {
        1 + i64::from(self.is_retransmitted) - i64::from(self.reported) - i64::from(self.lost)
    }
}

/// A segment for round-trip measurement (`RttHistory`).
#[derive(Clone, Copy, Debug)]
pub(super) struct RttTimedSegment {
    pub(super) start: u32,
    pub(super) end: u32,
    pub(super) sent_at: Instant,
    pub(super) is_retransmitted: bool,
}

/// State beside that of every connection.
#[derive(Clone, Debug, Default)]
pub(super) struct Ns3Sender {
    pub(super) sent: VecDeque<SentSegment>,
    /// Start of the highest SACKed segment, or of one SACKed later that ends there (`m_highestSack`).
    pub(super) highest: Option<u32>,
    pub(super) timed: VecDeque<RttTimedSegment>,
    pub(super) phase: Ns3CongestionState,
    /// True until the recovery point is acknowledged (`m_recoverActive`).
    pub(super) repairing: bool,
    /// True after a partial acknowledgement in this recovery (the inverse of `m_isFirstPartialAck`).
    pub(super) has_partial_ack: bool,
    /// Acknowledged octets below a whole segment (`m_bytesAckedNotProcessed`).
    pub(super) rest: u32,
    /// Octets in flight at the last update (`m_bytesInFlight`).
    pub(super) in_flight: i64,
    /// `m_prrDelivered`, `m_prrOut` and `m_recoveryFlightSize`, in octets.
    pub(super) delivered: u32,
    pub(super) out: u32,
    pub(super) flight_before: u32,
    pub(super) cubic: Ns3Cubic,
    /// Further retransmissions that an acknowledgement requested, beside the first.
    pub(super) ready: VecDeque<Segment>,
    /// When written data is sent, unless another event sends it before (`m_sendPendingDataEvent`).
    pub(super) written_at: Option<Instant>,
}

impl Ns3Sender {
    /// `BytesInFlight()`.
    pub(super) fn update_in_flight(&mut self) -> i64 {
        self.in_flight = self.sent.iter().map(|one| one.copies_in_flight() * i64::from(one.len())).sum();
        self.in_flight
    }
    /// Records SACK blocks; returns the number of new octets (`Update()`, `UpdateLostCount()`).
    pub(super) fn record_sacked(&mut self, blocks: &[(u32, u32)], threshold: u32) -> u32 {
        let mut news = 0;
        for &(left, right) in blocks {
            let covered = |one: &&mut SentSegment| seq::le(left, one.start) && seq::le(one.end, right);
            for one in self.sent.iter_mut().filter(covered).filter(|one| !one.reported) {
                (one.reported, one.lost) = (true, false);
                news += one.len();
                if self.highest.is_none_or(|highest| seq::le(highest, one.end)) {
                    self.highest = Some(one.start);
                }
            }
        }
        if let Some(highest) = self.highest.filter(|_| news > 0) {
            let mut above = 0;
            for one in self.sent.iter_mut().rev().filter(|one| seq::le(one.start, highest)) {
                above += u32::from(one.reported);
                one.lost |= above >= threshold && !one.reported;
            }
        }
        news
    }
    /// Drops acknowledged segments; returns their octets that were not SACKed (`DiscardUpTo()`).
    pub(super) fn discard_acked(&mut self, ack: u32) -> u32 {
        let mut news = 0;
        while let Some(first) = self.sent.front_mut()
            && seq::lt(first.start, ack)
        {
            if seq::lt(ack, first.end) {
                first.start = ack;
                break;
            }
            news += if first.reported { 0 } else { first.len() };
            self.sent.pop_front();
        }
        self.highest = self.highest.filter(|highest| seq::lt(ack, *highest));
        news
    }
    /// True if a retransmission ends here and is not SACKed (`IsRetransmittedDataAcked()`).
    pub(super) fn is_unsacked_retransmission_end(&self, end: u32) -> bool {
        self.sent.iter().any(|one| one.end == end && one.is_retransmitted && !one.reported)
    }
    /// True if the first lost or SACKed segment from `at` on is a lost one (`IsLost()`).
    pub(super) fn is_lost(&self, at: u32) -> bool {
        let mut above = self.sent.iter().filter(|one| seq::le(at, one.start));
        self.highest.is_some_and(|highest| seq::lt(at, highest))
            && above.find(|one| one.lost || one.reported).is_some_and(|one| one.lost)
    }
    /// Returns the first lost segment that was not retransmitted (rule 1 of `NextSeg()`).
    pub(super) fn next_lost(&self) -> Option<u32> {
        self.sent.iter().find(|one| one.lost && !one.is_retransmitted && !one.reported).map(|one| one.start)
    }
    /// Returns the first segment that may be lost (rule 3).
    pub(super) fn next_possibly_lost_start(&self) -> Option<u32> {
        self.sent.iter().find(|one| !one.is_retransmitted && !one.reported).map(|one| one.start)
    }
    /// Cuts at most `most` octets from `start`, from at most two segments, and returns their end
    /// (`GetTransmittedSegment()`).
    pub(super) fn cut_sent_segments(&mut self, start: u32, most: u32) -> u32 {
        let at = self.sent.partition_point(|one| seq::lt(one.start, start));
        let Some(&one) = self.sent.get(at) else { return start };
        let next = self.sent.get(at + 1).filter(|next| !next.reported && next.lost == one.lost).copied();
        let len = most.min(one.len() + next.map_or(0, |next| next.len()));
        if len > one.len()
            && let Some(next) = next
        {
            self.sent[at] = SentSegment {
                end: next.end,
                is_retransmitted: one.is_retransmitted && next.is_retransmitted,
                ..one
            };
            self.sent.remove(at + 1);
        }
        let (whole, end) = (self.sent[at], start.wrapping_add(len));
        if end != whole.end {
            self.sent.insert(at + 1, SentSegment { start: end, ..whole });
        }
        self.sent[at] = SentSegment { end, is_retransmitted: true, ..whole };
        end
    }
    /// Returns the congestion window of a recovery (`TcpPrrRecovery::DoRecovery()`). Its numbers are unsigned: a
    /// negative one wraps to a large one.
    pub(super) fn reduced_window(&mut self, delivered: u32, ssthresh: u32, mss: u32, repaired: bool) -> u32 {
        self.delivered = self.delivered.wrapping_add(delivered);
        let room = i64::from(ssthresh) - self.in_flight;
        let may = if room < 0 {
            let share = u64::from(self.delivered) * u64::from(ssthresh);
            share.div_ceil(u64::from(self.flight_before.max(1))) as i64 - i64::from(self.out)
        } else {
            let limit = if repaired {
                self.delivered.wrapping_sub(self.out).max(delivered).wrapping_add(mss)
            } else {
                delivered
            };
            i64::from(limit as i32).min(room)
        };
        let least = if self.out > 0 { 0 } else { mss };
        (self.in_flight + may.max(i64::from(least))).max(0) as u32
    }
    /// `UpdateRttHistory()`.
    pub(super) fn record_segment_timing(&mut self, now: Instant, start: u32, end: u32, again: bool) {
        if !again {
            self.timed.push_back(RttTimedSegment { start, end, sent_at: now, is_retransmitted: again });
        } else if let Some(one) =
            self.timed.iter_mut().find(|one| seq::le(one.start, start) && seq::lt(start, one.end))
        {
            one.is_retransmitted = true;
            one.end = end;
        }
    }
}
