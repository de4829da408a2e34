//! What those hear who trace: of a session, and of a request that has none.

use super::AaaServer;
use crate::server::answer::Asker;
use crate::server::api::{Event, TraceFilter, TraceLine};
use crate::server::proof::Proof;
use crate::server::reason::Reason;
use crate::server::session::{Owner, Stage};
use crate::server::trace::{Slots, Tracers};
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use usher_core::{CommandError, Instant};
use usher_radius::attribute::Attributes;

impl AaaServer {
    /// Begins or ends a trace. Logins under way are told of from their next request on.
    pub(super) fn set_trace(&mut self, slot: u8, filter: Option<TraceFilter>) -> Result<(), CommandError> {
        if !self.tracers.set(slot, filter, self.config.dictionary.as_ref()) {
            return Err(CommandError::Invalid("there is no trace of this number"));
        }
        let others: Slots = !(1 << slot);
        self.sessions.for_each(|session| {
            session.traced &= others;
            session.maybe &= others;
        });
        Ok(())
    }

    /// Who hears of a session, by the request that it has before it.
    fn mark(&mut self, token: u64) {
        let Some(session) = self.sessions.get_mut(token) else { return };
        let Some(pending) = &session.pending else { return };
        session.traced |= self.tracers.concerned(&pending.request);
        let inside = match &session.stage {
            Stage::Eap(conversation) => conversation.server.identity(),
            Stage::Identity { .. } | Stage::Looking(Proof::Eap(_)) => None,
            _ => return,
        };
        match inside {
            Some(name) => session.traced |= self.tracers.of_user(name),
            None => session.maybe = self.tracers.of_users() & !session.traced,
        }
    }

    /// Tells a line to those who hear it, and keeps it where others may turn out to.
    fn tell_line(&mut self, line: TraceLine, maybe: Slots) {
        if maybe != 0 {
            self.tracers.keep(TraceLine { to: 0, ..line.clone() });
        }
        if line.to != 0 {
            self.outputs.event(Event::Trace(line));
        }
    }

    /// Says what happens to a session that is traced.
    pub(super) fn trace(&mut self, now: Instant, token: u64, text: impl FnOnce() -> String) {
        self.trace_with(now, token, None, text);
    }

    /// Says how a session that is traced ends, where nobody is let in.
    pub(super) fn trace_end(
        &mut self,
        now: Instant,
        token: u64,
        reason: Reason,
        text: impl FnOnce() -> String,
    ) {
        self.trace_with(now, token, Some(reason), text);
        self.tracers.forget(token);
    }

    fn trace_with(
        &mut self,
        now: Instant,
        token: u64,
        reason: Option<Reason>,
        text: impl FnOnce() -> String,
    ) {
        if !self.tracers.any() {
            return;
        }
        let Some((to, maybe)) = self.sessions.get(token).map(|s| (s.traced, s.maybe)) else { return };
        if to | maybe != 0 {
            self.tell_line(TraceLine { to, reason, ..TraceLine::new(now, token, text()) }, maybe);
        }
    }

    /// It is known who is inside a session's tunnel: those who look for that user hear what was said before.
    pub(super) fn look_inside(&mut self, now: Instant, token: u64, name: &[u8]) {
        let Some(session) = self.sessions.get_mut(token).filter(|session| session.maybe != 0) else { return };
        let to = self.tracers.of_user(name) & session.maybe;
        (session.traced, session.maybe) = (session.traced | to, 0);
        let lines = self.tracers.found(now, token, to);
        lines.into_iter().for_each(|line| self.outputs.event(Event::Trace(line)));
    }

    /// Says what a request holds, where its session is traced.
    pub(super) fn tell_request(&mut self, now: Instant, token: u64) {
        if !self.tracers.any() {
            return;
        }
        self.mark(token);
        let Some(session) = self.sessions.get(token) else { return };
        let hear = (session.traced, session.maybe);
        let Some(pending) = session.pending.as_ref().filter(|_| hear != (0, 0)) else { return };
        let from = match &session.owner {
            Owner::Radius(_) => format!("Access-Request from {}", pending.source.address()),
            Owner::Diameter(origin) => format!("Diameter request of {origin}"),
        };
        let client = session.owner.client();
        let mut lines = alloc::vec![from];
        lines.extend(self.tracers.attributes(&pending.request));
        self.tell_lines(now, token, hear, client, lines);
    }

    /// Tells lines to those who hear of a session, the first of them with the client.
    pub(super) fn tell_lines(
        &mut self,
        now: Instant,
        token: u64,
        (to, maybe): (Slots, Slots),
        client: Option<u32>,
        lines: Vec<String>,
    ) {
        let mut client = client;
        for text in lines {
            let line = TraceLine { to, client: client.take(), ..TraceLine::new(now, token, text) };
            self.tell_line(line, maybe);
        }
    }

    /// Says what happens to a request that no session here has, such as one that is passed on. Its lines have a number of
    /// their own.
    pub(super) fn trace_elsewhere(
        &mut self,
        now: Instant,
        asker: Option<Asker>,
        request: &Attributes,
        lines: impl FnOnce(&Tracers) -> Vec<String>,
    ) {
        let to = self.tracers.concerned(request);
        if to != 0 {
            let lines = lines(&self.tracers);
            self.tell_lines(now, number(asker), (to, 0), None, lines);
        }
    }

    /// Says why a request that no session here has is turned away, or gets no verdict.
    pub(super) fn trace_refusal(
        &mut self,
        now: Instant,
        asker: Option<Asker>,
        request: &Attributes,
        client: Option<u32>,
        reason: Reason,
        verdict: &str,
    ) {
        let to = self.tracers.concerned(request);
        if to == 0 {
            return;
        }
        let mut lines = alloc::vec!["the request".into()];
        lines.extend(self.tracers.attributes(request));
        self.tell_lines(now, number(asker), (to, 0), client, lines);
        let text = format!("{verdict}, {}: {reason}", reason.name());
        let line = TraceLine { to, reason: Some(reason), ..TraceLine::new(now, number(asker), text) };
        self.tell_line(line, 0);
    }
}

/// The number of the lines of a request that no session has.
fn number(asker: Option<Asker>) -> u64 {
    match asker {
        Some(Asker::Radius(token) | Asker::Diameter(token, _)) => token | 1 << 63,
        None => u64::MAX,
    }
}
