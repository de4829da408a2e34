//! Liveness of servers, by their replies and by Status-Server (RFC 5997) in place of the watchdog of RFC 3539 §3.4.
//!
//! ```text
//! Alive ── owes an answer and says nothing for the response window ─▶ Suspect ── for the zombie period ─▶ Dead
//! Alive ── its connection cannot be had ────────────────────────────────────────────────────────────────▶ Dead
//! Suspect ── answers anything ─▶ Alive          Dead ── answers some Status-Servers in a row ─▶ Alive
//! ```

use super::identifier::AllocatedIdentifier;
use super::machine::{ClientTimer, PendingRequest, RadiusClient};
use super::reply::RetransmitCause;
use super::{RadiusClientEvent, ServerLivenessConfig, ServerTransport};
use crate::packet::PacketCode;
use alloc::vec::Vec;
use usher_core::{Duration, Instant};

/// The known health of a server.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub enum ServerHealth {
    /// It answers, or has had no request yet.
    #[default]
    Alive,
    /// It owes a reply and is silent: others are preferred.
    Suspect,
    /// It gets nothing except Status-Server.
    Dead,
}

/// The cause of a server's health.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum ServerHealthCause {
    /// It owed a reply and was silent for this time.
    Silent(Duration),
    /// No connection to it succeeds.
    NoConnection,
    /// It answered.
    Answered,
    /// A connection to it came up.
    Connected,
    /// It was left alone for this time and is tried again.
    Revived(Duration),
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum WatchdogState {
    /// OKAY.
    Alive,
    /// SUSPECT.
    Suspect,
    /// DOWN, and REOPEN after the first of these replies.
    Dead(u32),
}

/// The liveness state of one server.
#[derive(Debug)]
pub(super) struct ServerWatchdog {
    settings: ServerLivenessConfig,
    state: WatchdogState,
    /// The time when it entered this state.
    since: Instant,
    armed: Option<Instant>,
    /// The index of the pending Status-Server.
    probe: Option<u32>,
    /// True if it answered the last Status-Server.
    answered: bool,
    /// True if it has had a request and sent nothing since, even if that request has ended.
    awaits_any_reply: bool,
    /// True if it has answered a Status-Server, so its silence to another is significant. A server that never did may
    /// not support Status-Server. It revives after a time without it (RFC 5997 §4.1 leaves this to configuration).
    supports_status_server: bool,
    /// True after its first reply. After the first reply by UDP the client sends a Status-Server to learn whether the
    /// server supports it. If so, only Status-Server revives the server, and no request is risked.
    met: bool,
    /// True if this client sends the Status-Server. If false, another client that detected the state does.
    leads: bool,
    /// True if it died because it had no connection.
    unconnected: bool,
}

impl ServerWatchdog {
    pub(super) const fn new(settings: ServerLivenessConfig) -> Self {
        Self {
            settings,
            state: WatchdogState::Alive,
            since: Instant::ZERO,
            armed: None,
            probe: None,
            answered: false,
            awaits_any_reply: false,
            supports_status_server: false,
            met: false,
            leads: true,
            unconnected: false,
        }
    }
    fn enter_state(&mut self, now: Instant, state: WatchdogState, leads: bool) {
        (self.state, self.since, self.leads) = (state, now, leads);
    }
}

impl RadiusClient {
    /// The health of a server; alive without liveness detection.
    #[must_use]
    pub fn server_health(&self, server: u16) -> ServerHealth {
        let watch = self.watches.get(usize::from(server)).and_then(Option::as_ref);
        match watch.map(|w| w.state) {
            _ if self.is_unreachable(server) => ServerHealth::Dead,
            None | Some(WatchdogState::Alive) => ServerHealth::Alive,
            Some(WatchdogState::Suspect) => ServerHealth::Suspect,
            Some(WatchdogState::Dead(_)) => ServerHealth::Dead,
        }
    }
    /// True if a server is not dead.
    #[must_use]
    pub fn is_server_usable(&self, server: u16) -> bool {
        self.server_health(server) != ServerHealth::Dead
    }

    fn server_watchdog_mut(&mut self, server: u16) -> Option<&mut ServerWatchdog> {
        self.watches.get_mut(usize::from(server))?.as_mut()
    }
    fn arm_watchdog(&mut self, server: u16, at: Option<Instant>) {
        let Some(watch) = self.server_watchdog_mut(server) else { return };
        let before = core::mem::replace(&mut watch.armed, at);
        if let Some(before) = before {
            self.timers.remove(before, ClientTimer::Watch(server));
        }
        if let Some(at) = at {
            self.timers.insert(at, ClientTimer::Watch(server));
        }
    }

    /// Records a request to a server, which now owes a reply.
    pub(super) fn record_reply_expectation(&mut self, now: Instant, server: u16) {
        let Some(watch) = self.server_watchdog_mut(server) else { return };
        let first = !core::mem::replace(&mut watch.awaits_any_reply, true);
        let at = now + watch.settings.window;
        if watch.state == WatchdogState::Alive && (first || watch.armed.is_none()) {
            self.arm_watchdog(server, Some(at));
        }
    }

    /// Records a reply of a server.
    pub(super) fn record_server_reply(&mut self, now: Instant, slot: AllocatedIdentifier, status: bool) {
        let tls = self.server_transport(slot.server) == ServerTransport::Tls;
        if tls {
            self.mark_connection_proved(slot);
        }
        let server = slot.server;
        let Some(watch) = self.server_watchdog_mut(server) else { return };
        if status {
            (watch.probe, watch.answered, watch.supports_status_server) = (None, true, true);
        }
        let strange = watch.settings.status && !core::mem::replace(&mut watch.met, true);
        match watch.state {
            WatchdogState::Alive => {
                self.schedule_liveness_check(now, server);
                if strange && !status && !tls {
                    self.send_status_server(now, server);
                }
            }
            // RFC 5997, 4.3; RFC 6613, 2.4: any reply, by any connection, proves that the server lives.
            WatchdogState::Suspect => self.mark_server_alive(now, server, ServerHealthCause::Answered),
            WatchdogState::Dead(answers) if status => {
                if answers + 1 < watch.settings.answers {
                    watch.state = WatchdogState::Dead(answers + 1);
                } else {
                    self.mark_server_alive(now, server, ServerHealthCause::Answered);
                }
            }
            WatchdogState::Dead(_) => {}
        }
    }

    /// Schedules the next check of a live server: when it has owed a reply for too long, or its connection is idle.
    fn schedule_liveness_check(&mut self, now: Instant, server: u16) {
        let owes = self.awaits_reply(server);
        let tls = self.server_transport(server) == ServerTransport::Tls;
        let Some(watch) = self.server_watchdog_mut(server) else { return };
        watch.awaits_any_reply = owes;
        let settings = watch.settings;
        let at = if owes { Some(now + settings.window) } else { tls.then_some(now + settings.interval) };
        self.arm_watchdog(server, at);
    }

    fn mark_server_alive(&mut self, now: Instant, server: u16, cause: ServerHealthCause) {
        let Some(watch) = self.server_watchdog_mut(server) else { return };
        watch.enter_state(now, WatchdogState::Alive, true);
        self.schedule_liveness_check(now, server);
        self.push_event(RadiusClientEvent::Server { server, health: ServerHealth::Alive, cause });
    }

    /// True if a request waits for a reply of this server.
    fn awaits_reply(&self, server: u16) -> bool {
        self.pending_counts[usize::from(server)] > 0
    }
    /// Clears the pending Status-Server.
    pub(super) fn clear_status_server_probe(&mut self, server: u16) {
        if let Some(watch) = self.server_watchdog_mut(server) {
            watch.probe = None;
        }
    }
    /// Returns the response window of a server; zero without liveness detection.
    pub(super) fn response_window(&self, server: u16) -> Duration {
        self.watches[usize::from(server)].as_ref().map_or(Duration::ZERO, |w| w.settings.window)
    }
    /// Returns the time that a Status-Server waits for its reply: until the next one.
    pub(super) fn status_server_wait(&self, server: u16) -> Duration {
        let watch = self.watches[usize::from(server)].as_ref();
        let dead = watch.is_some_and(|w| matches!(w.state, WatchdogState::Dead(_)));
        watch.map_or(Duration::ZERO, |w| if dead { w.settings.interval } else { w.settings.window })
    }

    /// Handles the timer of a server.
    pub(super) fn check_server(&mut self, now: Instant, server: u16) {
        let owed = self.awaits_reply(server);
        let idle = self.server_transport(server) == ServerTransport::Tls && self.has_connection(server);
        let Some(watch) = self.server_watchdog_mut(server) else { return };
        watch.armed = None;
        let settings = watch.settings;
        let led = core::mem::replace(&mut watch.leads, true);
        match watch.state {
            WatchdogState::Alive if owed || watch.awaits_any_reply => self.mark_server_suspect(now, server),
            // RFC 6613, 2.6: an idle connection is not suspect. A Status-Server probes it.
            WatchdogState::Alive if idle && settings.status => self.send_status_server(now, server),
            WatchdogState::Alive => {}
            // The client that detected the state and sent Status-Server reports nothing more, so this client takes
            // over.
            WatchdogState::Suspect if !led => {
                watch.since = now;
                self.probe_suspect(now, server);
            }
            WatchdogState::Suspect if now < watch.since + settings.zombie => self.probe_suspect(now, server),
            WatchdogState::Suspect => {
                let silent = ServerHealthCause::Silent(settings.window + settings.zombie);
                self.mark_dead(now, server, silent);
            }
            WatchdogState::Dead(_)
                if settings.status
                    && (watch.supports_status_server || now < watch.since + settings.revive) =>
            {
                let mut cause = ServerHealthCause::NoConnection;
                if !watch.answered {
                    watch.state = WatchdogState::Dead(0);
                }
                if !watch.unconnected {
                    cause = ServerHealthCause::Silent(
                        now.duration_since(watch.since) + settings.window + settings.zombie,
                    );
                }
                self.arm_watchdog(server, Some(now + settings.interval));
                // This event tells the other clients that this client still sends Status-Server, so that none of them
                // takes over.
                self.push_event(RadiusClientEvent::Server { server, health: ServerHealth::Dead, cause });
                self.send_status_server(now, server);
            }
            WatchdogState::Dead(_) => {
                self.mark_server_alive(now, server, ServerHealthCause::Revived(settings.revive))
            }
        }
    }

    /// Marks a server suspect after a silent response window. Its requests move to other servers if possible, and the
    /// client sends a Status-Server.
    fn mark_server_suspect(&mut self, now: Instant, server: u16) {
        let Some(watch) = self.server_watchdog_mut(server) else { return };
        watch.enter_state(now, WatchdogState::Suspect, true);
        let cause = ServerHealthCause::Silent(watch.settings.window);
        self.counters.suspects += 1;
        self.push_event(RadiusClientEvent::Server { server, health: ServerHealth::Suspect, cause });
        self.probe_suspect(now, server);
        self.move_requests_to_better_servers(now, server);
    }

    /// Sends a Status-Server to a suspect server.
    fn probe_suspect(&mut self, now: Instant, server: u16) {
        let Some(watch) = self.server_watchdog_mut(server) else { return };
        let end = watch.since + watch.settings.zombie;
        let at = if watch.settings.status { end.min(now + watch.settings.window) } else { end };
        self.arm_watchdog(server, Some(at));
        self.send_status_server(now, server);
    }

    /// Handles a failed connection to a server.
    pub(super) fn handle_connect_failure(&mut self, now: Instant, server: u16) {
        let alive = self.watches[usize::from(server)]
            .as_ref()
            .is_some_and(|w| !matches!(w.state, WatchdogState::Dead(_)));
        if alive && self.is_unreachable(server) {
            self.mark_dead(now, server, ServerHealthCause::NoConnection);
        }
    }

    /// Handles a new connection to a server.
    pub(super) fn handle_connected(&mut self, now: Instant, server: u16) {
        let died = |w: &&mut ServerWatchdog| matches!(w.state, WatchdogState::Dead(_)) && w.unconnected;
        if self.server_watchdog_mut(server).as_ref().is_some_and(died) {
            self.mark_server_alive(now, server, ServerHealthCause::Connected);
        }
    }

    fn mark_dead(&mut self, now: Instant, server: u16, cause: ServerHealthCause) {
        let connected = self.has_connection(server);
        let tls = self.server_transport(server) == ServerTransport::Tls;
        let Some(watch) = self.server_watchdog_mut(server) else { return };
        watch.enter_state(now, WatchdogState::Dead(0), true);
        watch.unconnected = tls && !connected;
        let wait = if watch.settings.status { watch.settings.interval } else { watch.settings.revive };
        self.arm_watchdog(server, Some(now + wait));
        self.counters.deaths += 1;
        self.push_event(RadiusClientEvent::Server { server, health: ServerHealth::Dead, cause });
        self.reroute_dead_server_requests(now, server);
    }

    /// Moves the requests of a dead server to other servers. A login without another server ends now, so that its
    /// client gets the result while it still waits.
    fn reroute_dead_server_requests(&mut self, now: Instant, server: u16) {
        if self.server_transport(server) == ServerTransport::Tls {
            self.abort_connections(now, server);
        }
        self.move_requests_to_better_servers(now, server);
        let hopeless = |c: &Self, p: &PendingRequest| {
            let of = p.slot.server;
            p.token.is_some()
                && PacketCode(p.bytes[0]) == PacketCode::ACCESS_REQUEST
                && c.watches[usize::from(of)].is_some()
                && !c.is_server_usable(of)
        };
        for index in self.pending_indexes(hopeless) {
            self.give_up(now, index);
        }
    }

    /// Returns the indexes of the requests that match.
    fn pending_indexes(&self, of: impl Fn(&Self, &PendingRequest) -> bool) -> Vec<u32> {
        let all = self.pending.iter().enumerate();
        all.filter(|(_, p)| p.as_ref().is_some_and(|p| of(self, p))).map(|(i, _)| i as u32).collect()
    }

    /// True if a request may move to another server of equal or better health.
    pub(super) fn has_equal_or_better_server(&self, p: &PendingRequest) -> bool {
        self.group_peer_health(p).any(|health| health <= self.server_health(p.slot.server))
    }
    /// Returns the health of the other servers in the group of a request.
    fn group_peer_health<'a>(&'a self, p: &'a PendingRequest) -> impl Iterator<Item = ServerHealth> + 'a {
        let group = p.source.as_ref().and_then(|s| s.group);
        let members = group.and_then(|g| self.config.groups.get(usize::from(g)));
        members.into_iter().flatten().filter(|&&s| s != p.slot.server).map(|&s| self.server_health(s))
    }

    /// Moves the requests of a server to servers of better health.
    fn move_requests_to_better_servers(&mut self, now: Instant, server: u16) {
        let worth = self.server_health(server);
        let movable = |c: &Self, p: &PendingRequest| {
            p.slot.server == server && c.group_peer_health(p).any(|h| h < worth)
        };
        for index in self.pending_indexes(movable) {
            self.retransmit_request(now, index, RetransmitCause::Left);
        }
    }

    /// Sends a Status-Server in place of an earlier one.
    fn send_status_server(&mut self, now: Instant, server: u16) {
        let Some(watch) = self.server_watchdog_mut(server) else { return };
        let (before, settings) = (watch.probe.take(), watch.settings);
        watch.answered = false;
        if let Some(p) = before.and_then(|index| self.release_request(now, index, true)) {
            self.recycle_buffer(p);
        }
        if !settings.status {
            return;
        }
        let list = self.take_attributes();
        // If no identifier is free, the server owes replies to other requests, and these show its health.
        if let Ok(index) = self.open_request(now, None, server, None, PacketCode::STATUS_SERVER, list) {
            self.counters.probes += 1;
            if let Some(watch) = self.server_watchdog_mut(server) {
                watch.probe = Some(index);
            }
        }
    }

    /// Applies the health of a server as another client of the same server reports it, with each repetition. Each
    /// client has its own connection: the client probes an open one, whatever the other reports.
    pub fn apply_shared_health(&mut self, now: Instant, server: u16, health: ServerHealth) {
        let connected = self.has_connection(server);
        let Some(watch) = self.server_watchdog_mut(server) else { return };
        let settings = watch.settings;
        match (watch.state, health) {
            (WatchdogState::Alive, ServerHealth::Alive)
            | (WatchdogState::Suspect | WatchdogState::Dead(_), ServerHealth::Suspect) => {}
            (_, ServerHealth::Alive) => {
                watch.enter_state(now, WatchdogState::Alive, true);
                self.schedule_liveness_check(now, server);
                self.reconnect_server(now, server);
            }
            (WatchdogState::Alive, _) if connected => {
                if settings.status && watch.probe.is_none() {
                    self.send_status_server(now, server);
                }
            }
            (WatchdogState::Alive, ServerHealth::Suspect) => {
                watch.enter_state(now, WatchdogState::Suspect, false);
                self.arm_watchdog(server, Some(now + settings.zombie + settings.window * 2));
                self.move_requests_to_better_servers(now, server);
            }
            (state, ServerHealth::Dead) => {
                let known = matches!(state, WatchdogState::Dead(_));
                if known && watch.leads {
                    return;
                }
                if !known {
                    watch.enter_state(now, WatchdogState::Dead(0), false);
                    watch.unconnected = false;
                }
                let word = if settings.status { settings.interval * 2 } else { settings.revive };
                self.arm_watchdog(server, Some(now + word + settings.window));
                if !known {
                    self.reroute_dead_server_requests(now, server);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests;
