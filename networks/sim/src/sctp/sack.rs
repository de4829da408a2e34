//! Arriving acknowledgements (RFC 9260 §6.2.1, §6.3, §7.2).

use super::association::SctpAssociation;
use super::chunk::{ErrorCause, SackChunk};
use super::config::LossRecovery;
use super::outbound::{SentChunk, SentChunkStatus};
use super::path::PathSackReport;
use crate::tcp::seq;
use usher_core::Instant;

/// Missing reports that indicate a loss (RFC 9260 §7.2.4).
const FAST_RETRANSMIT_THRESHOLD: u8 = 3;
/// Packets sent at the SACK of a fast retransmission: ns-2's `MAX_BURST`.
const FAST_RETRANSMIT_BURST: u32 = 4;

impl SctpAssociation {
    pub(super) fn handle_sack(&mut self, now: Instant, sack: &SackChunk) {
        self.apply_acknowledgement(now, sack, true);
    }
    /// Handles the acknowledgement of SHUTDOWN. It has neither gap blocks nor a window, and revokes nothing (§3.3.8).
    pub(super) fn apply_shutdown_acknowledgement(&mut self, now: Instant, cumulative: u32) {
        let window = self.peer_window.saturating_add(self.out.flying);
        self.apply_acknowledgement(now, &SackChunk { cumulative, window, ..SackChunk::default() }, false);
    }

    fn apply_acknowledgement(&mut self, now: Instant, sack: &SackChunk, tells_gaps: bool) {
        if seq::lt(sack.cumulative, self.out.cumulative) {
            return;
        }
        // RFC 9260, 12.4: an acknowledgement of an unsent TSN ends the association.
        if seq::lt(self.out.last_tsn(), sack.cumulative) {
            self.abort_with_cause(ErrorCause::ProtocolViolation(
                b"a TSN was acknowledged that was never sent".into(),
            ));
            return;
        }
        if sack.gaps.iter().any(|&(first, last)| first < 2 || last < first) {
            self.stats.malformed += 1;
            return;
        }
        self.sack_since_timeout = true;
        self.is_repair_blocked = false;
        self.reset_path_sack_reports();
        let advanced = sack.cumulative != self.out.cumulative;
        while self.out.cumulative != sack.cumulative {
            // `cumulative` does not exceed `last_tsn`, so the queue has a chunk.
            let Some(mut sent) = self.out.pop() else { break };
            if sent.whereabouts != SentChunkStatus::GapAcked {
                self.highest_acked = sent.data.tsn;
            }
            self.bound_burst |= sent.fast_retransmitted && self.config.loss_recovery == LossRecovery::Ns2;
            self.has_come(now, &mut sent);
        }
        let highest_new = if tells_gaps { self.apply_gap_blocks(now, sack) } else { 0 };
        if self.in_fast_recovery && seq::le(self.recover, self.out.cumulative) {
            self.in_fast_recovery = false;
        }
        self.apply_path_sack_reports(now, advanced);
        match self.config.loss_recovery {
            LossRecovery::Rfc9260 => self.count_missing_reports(sack, highest_new, advanced),
            LossRecovery::Ns2 => self.count_missing_reports_as_ns2(sack, advanced),
        }
        self.peer_window = sack.window.saturating_sub(self.out.flying);
        let room = if tells_gaps { sack.window } else { 0 };
        self.probing &= self.out.sent.front().is_some_and(|first| first.data.payload.len > room);
    }

    fn reset_path_sack_reports(&mut self) {
        for path in &mut self.paths {
            path.report = PathSackReport { flight_before: path.flight, ..PathSackReport::default() };
        }
        if self.config.cumulative_growth && self.out.lost > 0 {
            for sent in &self.out.sent {
                if matches!(sent.whereabouts, SentChunkStatus::Lost { .. }) {
                    self.paths[usize::from(sent.path)].report.flight_before +=
                        sent.congestion_window_octets(&self.config);
                }
            }
        }
    }

    /// Handles the first acknowledgement of a chunk.
    fn has_come(&mut self, now: Instant, sent: &mut SentChunk) {
        let path = &mut self.paths[usize::from(sent.path)];
        match sent.whereabouts {
            SentChunkStatus::GapAcked => return,
            SentChunkStatus::Flying => {
                path.remove_octets_in_flight(sent.congestion_window_octets(&self.config));
                self.out.flying -= sent.data.payload.len;
                if !path.report.is_earliest_checked {
                    path.report.is_earliest_checked = true;
                    path.report.earliest_acked = true;
                }
            }
            SentChunkStatus::Lost { .. } => self.out.lost -= 1,
        }
        path.report.acked += sent.congestion_window_octets(&self.config);
        if let Some((tsn, at)) = path.timed
            && tsn == sent.data.tsn
        {
            path.timed = None;
            path.rtt.add_sample(&self.config, now - at);
        }
        sent.whereabouts = SentChunkStatus::GapAcked;
    }

    /// Handles chunks beyond the cumulative TSN. Returns the number of chunks before the highest newly acknowledged
    /// one.
    fn apply_gap_blocks(&mut self, now: Instant, sack: &SackChunk) -> usize {
        let mut highest_new = 0;
        if sack.gaps.is_empty() && self.out.sent.is_empty() {
            return 0;
        }
        let mut all = std::mem::take(&mut self.out.sent);
        for (i, sent) in all.iter_mut().enumerate() {
            let distance = (i + 1) as u64;
            let covered =
                sack.gaps.iter().any(|&(a, b)| u64::from(a) <= distance && distance <= u64::from(b));
            if covered {
                if sent.whereabouts != SentChunkStatus::GapAcked {
                    highest_new = i;
                    if seq::lt(self.highest_acked, sent.data.tsn) {
                        self.highest_acked = sent.data.tsn;
                    }
                    self.has_come(now, sent);
                    self.paths[usize::from(sent.path)].report.by_gaps +=
                        sent.congestion_window_octets(&self.config);
                }
                continue;
            }
            let path = &mut self.paths[usize::from(sent.path)];
            match sent.whereabouts {
                SentChunkStatus::Flying => path.report.is_earliest_checked = true,
                SentChunkStatus::GapAcked => {
                    // Either the peer has reneged (§6.2.1 D iii), or this SACK is older than an earlier processed one.
                    sent.whereabouts = SentChunkStatus::Flying;
                    sent.is_reneged = true;
                    path.flight += sent.congestion_window_octets(&self.config);
                    self.out.flying += sent.data.payload.len;
                    if path.t3_at == Instant::FAR_FUTURE {
                        path.arm_t3(now);
                    }
                }
                SentChunkStatus::Lost { .. } => {}
            }
        }
        self.out.sent = all;
        highest_new
    }

    /// Updates congestion windows, timers and error counters by the acknowledged data of each path.
    fn apply_path_sack_reports(&mut self, now: Instant, advanced: bool) {
        for path in 0..self.paths.len() as u8 {
            let p = &mut self.paths[usize::from(path)];
            let PathSackReport { acked, earliest_acked, .. } = p.report;
            if acked > 0 {
                p.allows_one_packet = false;
                if advanced || !self.config.cumulative_growth {
                    p.grow_window(&self.config, self.in_fast_recovery);
                }
            }
            // RFC 9260, 6.3.2 R2 and R3: stops T3-rtx without data in flight, or restarts it.
            if p.flight == 0 {
                p.t3_at = Instant::FAR_FUTURE;
            } else if earliest_acked {
                p.arm_t3(now);
            }
            if acked > 0 {
                self.record_path_working(path);
            }
        }
    }

    /// Counts missing reports by the Highest TSN Newly Acknowledged algorithm, and reneged chunks (§6.2.1 D iii).
    /// Marks chunks at the threshold as lost (§7.2.4).
    fn count_missing_reports(&mut self, sack: &SackChunk, highest_new: usize, advanced: bool) {
        let reported = sack.gaps.iter().map(|&(_, last)| usize::from(last)).max().unwrap_or(0);
        let until = if self.in_fast_recovery && advanced { reported } else { highest_new };
        let mut halved = false;
        for (i, sent) in self.out.sent.iter_mut().enumerate() {
            let missed = std::mem::take(&mut sent.is_reneged) || i < until;
            if !missed || sent.whereabouts != SentChunkStatus::Flying || sent.fast_retransmitted {
                continue;
            }
            sent.missing = sent.missing.saturating_add(1);
            if sent.missing < FAST_RETRANSMIT_THRESHOLD {
                continue;
            }
            sent.whereabouts = SentChunkStatus::Lost { fast: true };
            sent.fast_retransmitted = true;
            let size = sent.congestion_window_octets(&self.config);
            let path = &mut self.paths[usize::from(sent.path)];
            path.remove_octets_in_flight(size);
            if path.timed.is_some_and(|(tsn, _)| tsn == sent.data.tsn) {
                path.timed = None;
            }
            if !self.in_fast_recovery && !path.report.halved {
                path.handle_fast_retransmit_loss(&self.config);
                path.report.halved = true;
                halved = true;
            }
            self.out.lost += 1;
            self.out.flying -= sent.data.payload.len;
        }
        if halved {
            self.in_fast_recovery = true;
            self.recover = self.out.last_tsn();
            self.grant = true;
            self.stats.fast_retransmits += 1;
        }
    }

    /// The same by `ProcessGapAckBlocks()` and `FastRtx()` of ns-2's `sctp.cc`.
    fn count_missing_reports_as_ns2(&mut self, sack: &SackChunk, advanced: bool) {
        if self.bound_burst {
            self.burst = self.burst.min(FAST_RETRANSMIT_BURST);
        }
        if let Some(last) = sack.gaps.iter().map(|&(_, last)| last).max() {
            let reported = self.out.cumulative.wrapping_add(u32::from(last));
            let again = advanced && seq::le(self.highest_acked, self.recover);
            let mut found = false;
            for sent in self.out.sent.iter_mut().filter(|sent| sent.whereabouts != SentChunkStatus::GapAcked)
            {
                let tsn = sent.data.tsn;
                let missed = seq::lt(tsn, self.highest_acked) || (again && seq::lt(tsn, reported));
                if !missed {
                    continue;
                }
                sent.missing = sent.missing.saturating_add(1);
                if sent.missing < FAST_RETRANSMIT_THRESHOLD || sent.fast_retransmitted {
                    continue;
                }
                sent.fast_retransmitted = true;
                found = true;
                if sent.whereabouts == SentChunkStatus::Flying {
                    self.paths[usize::from(sent.path)]
                        .remove_octets_in_flight(sent.congestion_window_octets(&self.config));
                    self.out.lost += 1;
                    self.out.flying -= sent.data.payload.len;
                }
                sent.whereabouts = SentChunkStatus::Lost { fast: true };
            }
            if found {
                self.fast_retransmit_as_ns2();
            }
        }
        if !self.in_fast_recovery {
            self.recover = self.out.cumulative;
        }
    }
    fn fast_retransmit_as_ns2(&mut self) {
        (self.grant, self.is_repair_blocked) = (true, true);
        for at in 0..self.out.sent.len() {
            let sent = &self.out.sent[at];
            let lost = matches!(sent.whereabouts, SentChunkStatus::Lost { .. });
            let path = &mut self.paths[usize::from(sent.path)];
            if lost && seq::lt(self.recover, sent.data.tsn) && !path.report.halved {
                path.handle_fast_retransmit_loss(&self.config);
                (path.timed, path.report.halved) = (None, true);
                (self.recover, self.in_fast_recovery) = (self.highest_outstanding_as_ns2(), true);
                self.stats.fast_retransmits += 1;
            }
        }
    }
    /// Returns the last chunk not waiting for retransmission, or the previous result, as
    /// `GetHighestOutstandingTsn()`.
    fn highest_outstanding_as_ns2(&mut self) -> u32 {
        let waits = |sent: &&SentChunk| matches!(sent.whereabouts, SentChunkStatus::Lost { .. });
        if let Some(last) = self.out.sent.iter().rev().find(|sent| !waits(sent))
            && seq::lt(self.outstanding_until, last.data.tsn)
        {
            self.outstanding_until = last.data.tsn;
        }
        self.outstanding_until
    }
}
