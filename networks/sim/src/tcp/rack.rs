//! Loss detection by time (RFC 8985): RACK's record of transmission times, and the tail-loss probe.
//!
//! The minimum round trip is that of the whole connection; the RFC recommends a window of time.

use super::reduction::ProportionalRateReduction;
use super::scoreboard::Scoreboard;
use super::segment::{Segment, timestamp_value};
use super::seq;
use std::collections::VecDeque;
use usher_core::{Duration, Instant};

/// Recoveries without a DSACK after which the reordering window is reset (§6.2, step 4).
pub(super) const PERSIST: u8 = 16;
/// Delay of a probe before the first measurement (§7.2).
pub(super) const UNMEASURED: Duration = Duration::from_secs(1);
/// No round trip is measured yet.
pub(super) const UNKNOWN: Duration = Duration::from_nanos(u64::MAX);
/// Linux's addition to the delay of a probe behind several segments, and of its reordering timer
/// (`TCP_TIMEOUT_MIN_US`).
pub(super) const LEAST: Duration = Duration::from_millis(2);

/// The latest transmission of a segment (§5.2).
#[derive(Clone, Copy, Debug)]
pub(super) struct RackSegment {
    pub(super) start: u32,
    pub(super) end: u32,
    pub(super) sent_at: Instant,
    /// True if it was sent more than once.
    pub(super) is_retransmitted: bool,
    /// True if the peer has it.
    pub(super) delivered: bool,
    pub(super) lost: bool,
}

/// Segments in flight, and the state of loss detection.
#[derive(Debug)]
pub(super) struct Rack {
    /// Segments by sequence number, without gaps.
    pub(super) sent: VecDeque<RackSegment>,
    /// RACK.xmit_ts and RACK.end_seq.
    pub(super) latest: Option<(Instant, u32)>,
    /// RACK.rtt.
    pub(super) rtt: Duration,
    /// RACK.min_RTT.
    pub(super) min_rtt: Duration,
    /// RACK.fack.
    pub(super) fack: u32,
    pub(super) reordering_seen: bool,
    /// RACK.dsack_round.
    pub(super) round: Option<u32>,
    /// RACK.reo_wnd_mult.
    pub(super) multiplier: u32,
    /// RACK.reo_wnd_persist.
    pub(super) persist: u8,
    /// When unreported segments count as lost.
    pub(super) reorder_at: Instant,
    /// Time of the next probe.
    pub(super) probe_at: Instant,
    /// TLP.end_seq.
    pub(super) probe_end: Option<u32>,
    /// TLP.is_retrans.
    pub(super) is_probe_retransmission: bool,
    /// True if the round trip was measured after the last probe.
    pub(super) measured: bool,
    /// True if the congestion window counts segments.
    pub(super) counts: bool,
    /// Rate reduction of this recovery.
    pub(super) reduction: Option<ProportionalRateReduction>,
}

/// The report of an acknowledgement, beside the scoreboard.
pub(super) struct RackAckReport {
    pub(super) now: Instant,
    pub(super) una: u32,
    /// The echoed timestamp.
    pub(super) echo: Option<u32>,
}

pub(super) fn is_segment_sent_after(a: (Instant, u32), b: (Instant, u32)) -> bool {
    a.0 > b.0 || (a.0 == b.0 && seq::lt(b.1, a.1))
}

impl Rack {
    /// Creates it; `rtt` is the handshake's measurement.
    pub(super) fn new(una: u32, rtt: Option<Duration>, counts: bool) -> Self {
        Self {
            sent: VecDeque::new(),
            latest: None,
            rtt: Duration::ZERO,
            min_rtt: rtt.unwrap_or(UNKNOWN),
            fack: una,
            reordering_seen: false,
            round: None,
            multiplier: 1,
            persist: 0,
            reorder_at: Instant::FAR_FUTURE,
            probe_at: Instant::FAR_FUTURE,
            probe_end: None,
            is_probe_retransmission: false,
            measured: true,
            counts,
            reduction: None,
        }
    }
    /// Returns its next timeout.
    pub(super) fn next_timeout(&self) -> Instant {
        self.reorder_at.min(self.probe_at)
    }
    pub(super) fn stop_timers(&mut self) {
        self.reorder_at = Instant::FAR_FUTURE;
        self.probe_at = Instant::FAR_FUTURE;
    }
    /// Records a transmission of `[start, end)` (§6.1).
    pub(super) fn on_sent(&mut self, now: Instant, start: u32, end: u32) {
        if let Some(reduction) = &mut self.reduction {
            reduction.on_sent();
        }
        let known = self.sent.back().map_or(start, |last| last.end);
        let mut at = 0;
        while seq::lt(start, known)
            && let Some(&one) = self.sent.get(at)
        {
            at += 1;
            if !seq::lt(start, one.end) || !seq::lt(one.start, end) {
                continue;
            }
            // Parts of a segment outside the range that was sent again keep their time.
            let (from, to) = (seq::max(one.start, start), seq::min(one.end, end));
            if from != one.start {
                self.sent.insert(at - 1, RackSegment { end: from, ..one });
                at += 1;
            }
            if to != one.end {
                self.sent.insert(at, RackSegment { start: to, ..one });
            }
            self.sent[at - 1] = RackSegment {
                start: from,
                end: to,
                sent_at: now,
                is_retransmitted: true,
                lost: false,
                ..one
            };
        }
        if seq::lt(known, end) || self.sent.is_empty() {
            let start = seq::max(start, known);
            let new = RackSegment {
                start,
                end,
                sent_at: now,
                is_retransmitted: false,
                delivered: false,
                lost: false,
            };
            self.sent.push_back(new);
        }
        if self.counts {
            self.merge_segments(start, end);
        }
    }
    /// Merges the parts of a segment that was sent as one.
    pub(super) fn merge_segments(&mut self, start: u32, end: u32) {
        let mut at = self.sent.partition_point(|one| seq::lt(one.start, start));
        while let (Some(&one), Some(&next)) = (self.sent.get(at), self.sent.get(at + 1))
            && seq::le(next.end, end)
        {
            if one.delivered || next.delivered {
                at += 1;
            } else {
                self.sent[at].end = next.end;
                self.sent.remove(at + 1);
            }
        }
    }
    /// Steps 1 to 3 of §6.2. Returns the number of newly reported segments.
    pub(super) fn on_ack(&mut self, ack: &RackAckReport, board: Option<&Scoreboard>) -> u32 {
        let (mut newest, mut delivered) = (self.latest, 0);
        for one in &mut self.sent {
            let covered = seq::le(one.end, ack.una)
                || board.and_then(|b| b.sacked_end(one.start)).is_some_and(|end| seq::le(one.end, end));
            if one.delivered || !covered {
                continue;
            }
            one.delivered = true;
            one.lost = false;
            delivered += 1;
            if seq::lt(self.fack, one.end) {
                self.fack = one.end;
            } else if one.end != self.fack && !one.is_retransmitted {
                self.reordering_seen = true;
            }
            let rtt = ack.now - one.sent_at;
            if one.is_retransmitted {
                let earlier = ack.echo.is_some_and(|echo| seq::lt(echo, timestamp_value(one.sent_at)));
                if earlier || (rtt < self.min_rtt && self.min_rtt != UNKNOWN) {
                    continue;
                }
            } else {
                self.min_rtt = self.min_rtt.min(rtt);
            }
            if newest.is_none_or(|newest| is_segment_sent_after((one.sent_at, one.end), newest)) {
                newest = Some((one.sent_at, one.end));
                self.rtt = rtt;
            }
        }
        self.latest = newest;
        while self.sent.front().is_some_and(|one| seq::le(one.end, ack.una)) {
            self.sent.pop_front();
        }
        delivered
    }
    /// Step 4 of §6.2, after a DSACK or a recovery.
    pub(super) fn adapt_reordering_window(&mut self, una: u32, next: u32, duplicate: bool, recovered: bool) {
        if self.round.is_some_and(|round| seq::le(round, una)) {
            self.round = None;
        }
        if self.round.is_none() && duplicate {
            self.round = Some(next);
            self.multiplier = self.multiplier.saturating_add(1);
            self.persist = PERSIST;
        } else if recovered {
            self.persist = self.persist.saturating_sub(1);
            if self.persist == 0 {
                self.multiplier = 1;
            }
        }
    }
    pub(super) fn reordering_window(
        &self,
        recovering: bool,
        threshold: u8,
        srtt: Option<Duration>,
    ) -> Duration {
        let reported = || self.sent.iter().filter(|one| one.delivered).count();
        if !self.reordering_seen && (recovering || reported() >= usize::from(threshold)) {
            return Duration::ZERO;
        }
        if self.min_rtt == UNKNOWN {
            return srtt.unwrap_or_default();
        }
        let part = Duration::from_nanos(self.min_rtt.as_nanos() / 4);
        let window = Duration::from_nanos(part.as_nanos().saturating_mul(self.multiplier.into()));
        window.min(srtt.unwrap_or(window))
    }
    /// Step 5 of §6.2: true if more segments count as lost. Sets the time when later ones will.
    pub(super) fn detect_losses(&mut self, now: Instant, window: Duration) -> bool {
        self.reorder_at = Instant::FAR_FUTURE;
        let Some(latest) = self.latest else { return false };
        let (mut found, mut last) = (false, None);
        for one in self.sent.iter_mut().filter(|one| !one.delivered && !one.lost) {
            if !is_segment_sent_after(latest, (one.sent_at, one.end)) {
                continue;
            }
            let at = one.sent_at + self.rtt + window;
            if at <= now {
                one.lost = true;
                found = true;
            } else {
                last = last.max(Some(at));
            }
        }
        self.reorder_at = last.unwrap_or(Instant::FAR_FUTURE);
        found
    }
    pub(super) fn first_is_lost(&self) -> bool {
        self.sent.front().is_some_and(|one| one.lost)
    }
    /// Returns the octets in flight.
    pub(super) fn pipe(&self) -> u32 {
        let there = self.sent.iter().filter(|one| !one.delivered && !one.lost);
        there.map(|one| one.end.wrapping_sub(one.start)).sum()
    }
    /// Returns the segments below `next` that are in flight. `next` is below the end of sent data while a timeout
    /// retransmits.
    pub(super) fn in_flight(&self, next: u32) -> u32 {
        let there = |one: &&RackSegment| !one.delivered && !one.lost && seq::lt(one.start, next);
        self.sent.iter().filter(there).count() as u32
    }
    /// Returns the number of segments that an acknowledgement up to `ack` reports first.
    pub(super) fn newly_acknowledged(&self, ack: u32) -> u32 {
        self.sent.iter().filter(|one| !one.delivered && seq::le(one.end, ack)).count() as u32
    }
    /// Returns the end of a segment from `start` that is filled up to `room` octets with following unreported data.
    pub(super) fn collapsed_segment_end(&self, start: u32, room: u32) -> u32 {
        let at = self.sent.partition_point(|one| seq::lt(one.start, start));
        let fits = |one: &&RackSegment| !one.delivered && one.end.wrapping_sub(start) <= room;
        self.sent.range(at..).take_while(fits).last().map_or(start, |one| one.end)
    }
    /// Returns the first lost segment.
    pub(super) fn next_lost(&self) -> Option<(u32, u32)> {
        self.sent.iter().find(|one| one.lost).map(|one| (one.start, one.end))
    }
    /// Returns the last segment.
    pub(super) fn last_segment(&self) -> Option<(u32, u32)> {
        self.sent.back().map(|one| (one.start, one.end))
    }
    /// Records a probe up to `end`; `again` for a retransmission.
    pub(super) fn record_tail_loss_probe(&mut self, end: u32, again: bool) {
        self.probe_at = Instant::FAR_FUTURE;
        self.probe_end = Some(end);
        self.is_probe_retransmission = again;
        self.measured = false;
    }
    /// Handles the retransmission timeout: all data is sent again in order, and no probe is in flight (§7.1).
    pub(super) fn on_timeout(&mut self) {
        self.stop_timers();
        self.probe_end = None;
        self.reduction = None;
        self.sent.iter_mut().for_each(|one| one.lost = false);
    }
    /// TLP_process_ack() of §7.4.2: true if the probe has repaired a loss.
    pub(super) fn finish_tail_loss_probe(&mut self, s: &Segment, una: u32, duplicate: Option<u32>) -> bool {
        let Some(end) = self.probe_end.filter(|end| seq::le(*end, s.ack)) else { return false };
        let beyond = seq::lt(end, s.ack);
        let alone = s.len == 0 && s.ack == una && s.options.as_ref().is_none_or(|o| o.sack.is_empty());
        let done = !self.is_probe_retransmission || duplicate == Some(end) || beyond || alone;
        if done {
            self.probe_end = None;
        }
        done && self.is_probe_retransmission && duplicate != Some(end) && beyond
    }
}
