//! The begin of sessions, their timeouts and traffic, and their end.

use super::grant::nonzero_limit;
use super::session::{NewSubscriberSession, SubscriberSession};
use super::{SubscriberEvent, SubscriberKey, SubscriberManager, SubscriberTimer};
use crate::grace::AaaOutagePolicy;
use crate::{SessionTraffic, TerminateCause, session_id};
use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;
use usher_core::{Duration, Instant};

/// Maximum wait for the last traffic of an ended session.
const LAST_TRAFFIC_WAIT: Duration = Duration::from_secs(5);
/// The name of the rates of sessions without a named rate.
const DEFAULT_RATE: &str = "default";

impl<K: SubscriberKey, A: fmt::Debug> SubscriberManager<K, A> {
    /// Returns the number and the Acct-Session-Id of the next session.
    pub fn allocate_session(&mut self) -> (u64, String) {
        self.last_session += 1;
        (self.last_session, session_id(self.start, self.last_session as u32))
    }

    /// Opens a session with a number of [`allocate_session`](Self::allocate_session).
    pub fn open_session(&mut self, now: Instant, id: u64, new: NewSubscriberSession<A>) {
        let NewSubscriberSession { grant, place, addresses, leases, is_accounted, access } = new;
        let accounting = self.config.aaa.as_ref().filter(|aaa| aaa.accounting && is_accounted);
        let interim = accounting.and_then(|aaa| grant.interim.or(aaa.interim));
        let interim = interim.filter(|every| !every.is_zero()).map(|every| (every, now + every));
        let idle = grant.idle_timeout.or(self.config.idle_timeout);
        let idle = idle.filter(|_| self.config.is_metered && is_accounted);
        let idle = idle.map(|idle| self.reportable_idle_time(idle)).map(|idle| (idle, now + idle));
        let session = SubscriberSession {
            access,
            addresses,
            rates: self.select_rates(&grant.filters, grant.bandwidth),
            awaits_traffic: false,
            awaits_log: false,
            place,
            leases,
            acct: session_id(self.start, id as u32),
            is_accounted,
            has_sent_start: false,
            record_count: 0,
            since: now,
            traffic: SessionTraffic::default(),
            last_traffic: now,
            ends: grant.session_timeout.or(self.config.session_timeout).map(|lasts| now + lasts),
            idle,
            interim,
            is_overdue: false,
            is_ending: false,
            end: None,
            grant,
        };
        if let Some(at) = session.ends {
            self.timers.insert(at, SubscriberTimer::SessionEnd(id));
        }
        if let Some((_, at)) = session.interim {
            self.timers.insert(at, SubscriberTimer::Interim(id));
        }
        if let Some((_, at)) = session.idle {
            self.timers.insert(at, SubscriberTimer::Idle(id));
        }
        self.users.entry(session.grant.user.clone()).or_default().insert(id);
        self.sessions.insert(id, session);
    }

    /// Returns a session.
    #[must_use]
    pub fn session(&self, id: u64) -> Option<&SubscriberSession<A>> {
        self.sessions.get(&id)
    }
    /// Returns a session, to change the service's state.
    pub fn session_mut(&mut self, id: u64) -> Option<&mut SubscriberSession<A>> {
        self.sessions.get_mut(&id)
    }
    /// Returns the sessions by number.
    pub const fn sessions(&self) -> &BTreeMap<u64, SubscriberSession<A>> {
        &self.sessions
    }
    /// Returns the ended sessions that are not closed, by number.
    pub const fn closing_sessions(&self) -> &BTreeMap<u64, SubscriberSession<A>> {
        &self.closing
    }
    /// Returns the sessions of a user, the oldest first.
    #[must_use]
    pub fn sessions_of_user(&self, user: &[u8]) -> Vec<u64> {
        self.users.get(user).map(|ids| ids.iter().copied().collect()).unwrap_or_default()
    }
    /// Returns a session, open or ended but not closed.
    pub fn any_session_mut(&mut self, id: u64) -> Option<&mut SubscriberSession<A>> {
        match self.sessions.get_mut(&id) {
            Some(session) => Some(session),
            None => self.closing.get_mut(&id),
        }
    }

    /// Returns the rates of a user: those that the AAA server sends, those that it names, or the default.
    pub(super) fn select_rates(
        &self,
        filters: &[String],
        bandwidth: (Option<u64>, Option<u64>),
    ) -> (Option<u64>, Option<u64>) {
        let named = |name: &str| self.config.rates.iter().flatten().find(|rate| rate.name == name);
        let profile = filters.iter().find_map(|filter| named(filter)).or_else(|| named(DEFAULT_RATE));
        let (up, down) = profile.map_or((None, None), |rate| (rate.up, rate.down));
        (bandwidth.0.or(up), bandwidth.1.or(down))
    }

    /// Adds traffic since the last report to that of a session.
    pub fn add_traffic(&mut self, now: Instant, id: u64, new: SessionTraffic) {
        let Some(session) = self.any_session_mut(id) else { return };
        session.traffic.input_octets += new.input_octets;
        session.traffic.output_octets += new.output_octets;
        session.traffic.input_packets += new.input_packets;
        session.traffic.output_packets += new.output_packets;
        if new.input_packets > 0 || new.output_packets > 0 {
            session.last_traffic = now;
        }
    }

    pub(super) fn handle_session_end(&mut self, now: Instant, id: u64) {
        let Some(session) = self.sessions.get_mut(&id) else { return };
        session.ends = None;
        if let (AaaOutagePolicy::Grace(lasts), Some(since)) =
            (self.config.without_aaa, self.grace.aaa_unavailable_since())
            && since + lasts > now
        {
            // The session end is checked again when a server answers, and at the end of the grace time.
            session.ends = Some(since + lasts);
            session.is_overdue = true;
            self.timers.insert(since + lasts, SubscriberTimer::SessionEnd(id));
            self.counters.sessions_in_grace += 1;
            return;
        }
        self.counters.sessions_timed_out += 1;
        self.mark_ending(id);
        self.outputs.push_event(SubscriberEvent::End { id, cause: TerminateCause::SessionTimeout });
    }
    /// Marks a session that the service is ending, which may take a while. Its timeouts and AAA servers no longer end or
    /// change it.
    pub fn mark_ending(&mut self, id: u64) {
        let Some(session) = self.sessions.get_mut(&id) else { return };
        (session.is_overdue, session.is_ending) = (false, true);
        if let Some(at) = session.ends.take() {
            self.timers.remove(at, SubscriberTimer::SessionEnd(id));
        }
        if let Some((_, at)) = session.idle.take() {
            self.timers.remove(at, SubscriberTimer::Idle(id));
        }
    }

    /// Ends overdue sessions once a server answers again.
    pub(super) fn end_overdue_sessions(&mut self, now: Instant) {
        if !matches!(self.config.without_aaa, AaaOutagePolicy::Grace(_)) {
            return;
        }
        for (id, session) in self.sessions.iter_mut().filter(|(_, session)| session.is_overdue) {
            if let Some(at) = session.ends.replace(now) {
                self.timers.remove(at, SubscriberTimer::SessionEnd(*id));
            }
            self.timers.insert(now, SubscriberTimer::SessionEnd(*id));
        }
    }

    pub(super) fn check_idle(&mut self, now: Instant, id: u64) {
        let Some(session) = self.sessions.get_mut(&id) else { return };
        let Some((idle, at)) = &mut session.idle else { return };
        let due = session.last_traffic + *idle;
        if due > now {
            *at = due;
            self.timers.insert(due, SubscriberTimer::Idle(id));
            return;
        }
        self.counters.sessions_idle += 1;
        self.mark_ending(id);
        self.outputs.push_event(SubscriberEvent::End { id, cause: TerminateCause::IdleTimeout });
    }

    /// Changes the time until the end of a session. RFC 2865, 5.27: it counts from the start.
    pub(super) fn set_session_timeout(&mut self, now: Instant, id: u64, lasts: Duration) {
        let default = self.config.session_timeout;
        let Some(session) = self.sessions.get_mut(&id) else { return };
        if let Some(before) = session.ends {
            self.timers.remove(before, SubscriberTimer::SessionEnd(id));
        }
        let lasts = nonzero_limit(Some(lasts)).or(default);
        session.ends = lasts.map(|lasts| (session.since + lasts).max(now));
        if let Some(end) = session.ends {
            self.timers.insert(end, SubscriberTimer::SessionEnd(id));
        }
        // The session may have been overdue. It has a new end now.
        session.is_overdue = false;
    }
    fn reportable_idle_time(&self, idle: Duration) -> Duration {
        idle.max(self.config.traffic_interval * 2)
    }
    pub(super) fn set_idle_timeout(&mut self, id: u64, idle: Duration) {
        let idle = nonzero_limit(Some(idle)).or(self.config.idle_timeout);
        let idle = idle.map(|idle| self.reportable_idle_time(idle));
        let Some(session) = self.sessions.get_mut(&id) else { return };
        if let Some((_, before)) = session.idle {
            self.timers.remove(before, SubscriberTimer::Idle(id));
        }
        session.idle = idle.map(|idle| (idle, session.last_traffic + idle));
        if let Some((_, at)) = session.idle {
            self.timers.insert(at, SubscriberTimer::Idle(id));
        }
    }
    pub(super) fn set_interim_interval(&mut self, now: Instant, id: u64, every: Duration) {
        let Some(session) = self.sessions.get_mut(&id) else { return };
        if let Some((_, before)) = session.interim {
            self.timers.remove(before, SubscriberTimer::Interim(id));
        }
        session.interim = Some((every, now + every));
        self.timers.insert(now + every, SubscriberTimer::Interim(id));
    }
    /// Schedules the next interim record. Returns true if one is to be sent now.
    pub(super) fn schedule_interim(&mut self, now: Instant, id: u64) -> bool {
        let Some(session) = self.sessions.get_mut(&id) else { return false };
        if let Some((every, at)) = &mut session.interim {
            *at = now + *every;
            self.timers.insert(*at, SubscriberTimer::Interim(id));
        }
        session.has_sent_start
    }

    /// Ends a session and releases its addresses. [`take_closed_session`](Self::take_closed_session) returns it, at
    /// once or after its last traffic ([`SubscriberSession::awaits_traffic`]) and the log.
    pub fn end_session(&mut self, now: Instant, id: u64, cause: TerminateCause) {
        self.mark_ending(id);
        let Some(mut session) = self.sessions.remove(&id) else { return };
        if let Some((_, at)) = session.interim {
            self.timers.remove(at, SubscriberTimer::Interim(id));
        }
        if let Some(ids) = self.users.get_mut(&session.grant.user) {
            ids.remove(&id);
            if ids.is_empty() {
                self.users.remove(&session.grant.user);
            }
        }
        for lease in core::mem::take(&mut session.leases) {
            self.release_lease(lease);
        }
        session.end = Some((now, cause));
        if session.awaits_traffic {
            self.timers.insert(now + LAST_TRAFFIC_WAIT, SubscriberTimer::Close(id));
        }
        self.closing.insert(id, session);
    }
    pub(super) fn stop_waiting_for_traffic(&mut self, id: u64) {
        if let Some(session) = self.closing.get_mut(&id) {
            session.awaits_traffic = false;
            self.outputs.push_event(SubscriberEvent::CloseDue { id });
        }
    }
    /// Returns an ended session that waits for nothing more. The service logs it and calls
    /// [`stop_accounting`](Self::stop_accounting).
    pub fn take_closed_session(&mut self, id: u64) -> Option<SubscriberSession<A>> {
        let session = self.closing.get(&id)?;
        if session.awaits_traffic || session.awaits_log {
            return None;
        }
        self.closing.remove(&id)
    }
    /// Returns the numbers of all ended sessions that are not closed. They no longer wait for their last traffic.
    pub fn stop_waiting_for_all_traffic(&mut self) -> Vec<u64> {
        self.closing.values_mut().for_each(|session| session.awaits_traffic = false);
        self.closing.keys().copied().collect()
    }
}
