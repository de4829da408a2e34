//! Timers: T1 and T2 (one at a time), T5, delayed SACK, and per path T3-rtx and heartbeats.

use super::association::{SctpAssociation, SctpAssociationState, SctpEvent, SctpTimer};
use super::chunk::{Chunk, ErrorCause};
use super::config::LossRecovery;
use super::outbound::SentChunkStatus;
use usher_core::{CloseReason, Instant};

impl SctpAssociation {
    /// Returns when to call [`handle_timeout`](Self::handle_timeout); it may change at any call.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Instant> {
        let own = self.timer_at.min(self.guard_at).min(self.sack_at).min(self.probe_at);
        let next = self.paths.iter().fold(own, |at, path| at.min(path.next_timeout()));
        (next != Instant::FAR_FUTURE).then_some(next)
    }

    /// Handles the timeout of [`poll_timeout`](Self::poll_timeout); early calls are harmless. Then drain
    /// [`poll_event`](Self::poll_event) and [`poll_transmit`](Self::poll_transmit).
    pub fn handle_timeout(&mut self, now: Instant) {
        if self.sack_at <= now {
            (self.sack_at, self.unsacked) = (Instant::FAR_FUTURE, 0);
            (self.owe_sack, self.sack_now) = (true, true);
            self.wake = true;
        }
        if self.guard_at <= now {
            self.send_abort(vec![ErrorCause::UserAbort(Vec::new())]);
            self.fail(CloseReason::TimedOut);
            return;
        }
        if self.probe_at <= now {
            (self.probe_at, self.probe_due) = (Instant::FAR_FUTURE, true);
            self.request_output();
        }
        if self.timer_at <= now {
            self.request_output();
            self.handle_association_timer(now);
        }
        for path in 0..self.paths.len() as u8 {
            if self.paths[usize::from(path)].next_timeout() <= now {
                self.request_output();
                self.handle_path_timeout(now, path);
            }
        }
    }

    /// Arms T1-init or T1-cookie.
    pub(super) fn arm_setup_timer(&mut self, now: Instant) {
        self.timer = if self.state == SctpAssociationState::CookieEchoed {
            SctpTimer::Cookie
        } else {
            SctpTimer::Init
        };
        self.arm_timer(now);
    }
    /// Arms T1 or T2 for the path's RTO, like T3-rtx; each expiration doubles it (§5.1, §9.2).
    fn arm_timer(&mut self, now: Instant) {
        self.timer_at = now + self.paths[usize::from(self.timer_path)].rtt.rto.min(self.config.rto_max);
    }
    pub(super) fn arm_shutdown_timer(&mut self, now: Instant) {
        self.timer = SctpTimer::Shutdown;
        self.arm_timer(now);
    }
    pub(super) fn stop_timer(&mut self) {
        self.timer = SctpTimer::Off;
        self.timer_at = Instant::FAR_FUTURE;
        self.retries = 0;
    }

    fn handle_association_timer(&mut self, now: Instant) {
        let limit = match self.timer {
            SctpTimer::Off => return,
            // RFC 9260, 4: INIT and COOKIE ECHO, at most Max.Init.Retransmits times.
            SctpTimer::Init | SctpTimer::Cookie => self.config.max_init_retransmissions,
            SctpTimer::Shutdown => self.config.max_association_retransmissions,
        };
        if limit.is_some_and(|limit| self.retries >= limit) {
            self.give_up();
            return;
        }
        self.retries += 1;
        self.paths[usize::from(self.timer_path)].rtt.back_off(&self.config);
        // Alternate between the paths, because a host does not know which path works before the first answer.
        self.timer_path = self.alternate_path(self.timer_path);
        match self.timer {
            SctpTimer::Off => {}
            SctpTimer::Init | SctpTimer::Cookie => {
                self.setup_due = true;
                self.setup_sent_at = None;
                self.mark_all_paths_lost();
                self.arm_setup_timer(now);
            }
            SctpTimer::Shutdown => {
                self.send_shutdown(self.timer_path);
                self.arm_shutdown_timer(now);
            }
        }
    }
    /// Sends SHUTDOWN or SHUTDOWN ACK, by the state. Heartbeats stop (§8.3).
    pub(super) fn send_shutdown(&mut self, path: u8) {
        self.timer_path = path;
        self.paths.iter_mut().for_each(|path| path.heartbeat_at = Instant::FAR_FUTURE);
        let chunk = match self.state {
            SctpAssociationState::ShutdownSent => Chunk::Shutdown { cumulative: self.inb.cumulative },
            _ => Chunk::ShutdownAck,
        };
        self.queue_control(path, chunk);
    }

    fn handle_path_timeout(&mut self, now: Instant, path: u8) {
        let p = &mut self.paths[usize::from(path)];
        if p.heartbeat_lost_at <= now {
            p.heartbeat_lost_at = Instant::FAR_FUTURE;
            p.heartbeat_sent = None;
            p.rtt.back_off(&self.config);
            // RFC 9260, 8.1: a path without data shows nothing about the delivery of data.
            if path == self.path_of_new_data() && self.count_association_error() {
                return;
            }
            self.count_path_error(path);
        }
        let p = &mut self.paths[usize::from(path)];
        if p.heartbeat_at <= now {
            p.heartbeat_sent = Some(now);
            p.heartbeat_lost_at = now + p.rtt.rto;
            p.arm_heartbeat(&self.config, now);
            let mut info = vec![path];
            info.extend_from_slice(&now.as_nanos().to_be_bytes());
            self.queue_control(path, Chunk::Heartbeat(info));
        }
        if self.paths[usize::from(path)].t3_at <= now {
            self.handle_t3_expiry(path);
        }
    }

    /// §6.3.3.
    fn handle_t3_expiry(&mut self, path: u8) {
        self.stats.timeouts += 1;
        // RFC 9260, 6.1 A: a peer that answers probes of its closed window is reachable.
        let probing = self.probing && self.sack_since_timeout;
        self.sack_since_timeout = false;
        self.paths[usize::from(path)].on_timeout(&self.config);
        self.mark_path_lost(path);
        let ns2 = self.config.loss_recovery == LossRecovery::Ns2;
        self.in_fast_recovery &= ns2;
        (self.grant, self.is_repair_blocked) = (true, !self.config.one_packet_after_timeout);
        if !probing && !self.count_association_error() {
            self.count_path_error(path);
        }
    }

    /// Marks all chunks in flight on a path as lost.
    fn mark_path_lost(&mut self, path: u8) {
        let p = &mut self.paths[usize::from(path)];
        p.flight = 0;
        p.timed = None;
        for sent in &mut self.out.sent {
            if sent.path == path && sent.whereabouts == SentChunkStatus::Flying {
                sent.whereabouts = SentChunkStatus::Lost { fast: false };
                sent.missing = 0;
                self.out.lost += 1;
                self.out.flying -= sent.data.payload.len;
                self.peer_window = self.peer_window.saturating_add(sent.data.payload.len);
            } else if sent.path == path && self.config.loss_recovery == LossRecovery::Ns2 {
                sent.missing = 0;
            }
        }
    }
    pub(super) fn mark_all_paths_lost(&mut self) {
        for path in 0..self.paths.len() as u8 {
            self.mark_path_lost(path);
            self.paths[usize::from(path)].t3_at = Instant::FAR_FUTURE;
        }
    }

    /// Counts an error of the association; true if it ends the association (§8.1).
    fn count_association_error(&mut self) -> bool {
        self.errors += 1;
        let over = self.config.max_association_retransmissions.is_some_and(|limit| self.errors > limit);
        if over {
            self.give_up();
        }
        over
    }
    /// Ends the association with an unreachable peer.
    fn give_up(&mut self) {
        if self.config.abort_unreachable && self.state != SctpAssociationState::CookieWait {
            self.send_abort(Vec::new());
        }
        self.fail(CloseReason::TimedOut);
    }
    /// Counts an error of a path (§8.2), which may fail (§8.3).
    fn count_path_error(&mut self, path: u8) {
        let p = &mut self.paths[usize::from(path)];
        if !p.active {
            return;
        }
        p.errors += 1;
        if p.errors > self.config.max_path_retransmissions {
            p.active = false;
            self.stats.path_failures += 1;
            self.events.push_back(SctpEvent::PathDown(path));
        }
    }
    /// Resets the errors of a path that works.
    pub(super) fn record_path_working(&mut self, path: u8) {
        // RFC 9260, 8.1: acknowledged DATA or an answered heartbeat resets the count.
        self.errors = 0;
        let p = &mut self.paths[usize::from(path)];
        p.errors = 0;
        if !p.active {
            p.active = true;
            self.events.push_back(SctpEvent::PathUp(path));
        }
    }
}
