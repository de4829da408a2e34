//! Which servers are alive, by what comes of asking them, with Status-Server (RFC 5997) for the messages of RFC 3539
//! §3.4's watchdog.
//!
//! ```text
//! Alive ── owes an answer and says nothing for the response window ─▶ Suspect ── for the zombie period ─▶ Dead
//! Alive ── its connection cannot be had ────────────────────────────────────────────────────────────────▶ Dead
//! Suspect ── answers anything ─▶ Alive          Dead ── answers some Status-Servers in a row ─▶ Alive
//! ```

use super::identifier::Slot;
use super::machine::{Client, Pending, Timer};
use super::reply::Again;
use super::{Event, Liveness, Transport};
use crate::packet::Code;
use alloc::vec::Vec;
use usher_core::{Duration, Instant};

/// How a server is, as far as is known.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub enum Health {
    /// It answers, or was asked nothing yet.
    #[default]
    Alive,
    /// It owes an answer and says nothing: others are asked before it.
    Suspect,
    /// It is not asked for anything but its status.
    Dead,
}

/// Why a server is taken to be as it is.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum HealthCause {
    /// It owed an answer and said nothing for so long.
    Silent(Duration),
    /// No connection to it can be had.
    NoConnection,
    /// It answered.
    Answered,
    /// A connection to it came up.
    Connected,
    /// It was left alone for so long that it is tried again.
    Revived(Duration),
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum State {
    /// OKAY.
    Alive,
    /// SUSPECT.
    Suspect,
    /// DOWN, and REOPEN after the first of so many answers.
    Dead(u32),
}

/// What is known of one server's life.
#[derive(Debug)]
pub(super) struct Watch {
    settings: Liveness,
    state: State,
    /// When it came to this state.
    since: Instant,
    armed: Option<Instant>,
    /// The Status-Server that waits for its answer, by its place.
    probe: Option<u32>,
    /// The last Status-Server was answered.
    answered: bool,
    /// It was asked something and has said nothing since, though nobody may wait any more.
    unheard: bool,
    /// It has answered a Status-Server: its silence to another says something. One that never did may not know them, and
    /// comes back after a while without (RFC 5997 §4.1 leaves it to a setting).
    knows_status: bool,
    /// It was heard. With its first word by a datagram it is asked whether it knows Status-Server: once it is dead, one
    /// that does comes back by that alone, and no request is risked.
    met: bool,
    /// This client asks for its status; another that found its state out does where not.
    leads: bool,
    /// It died of having no connection.
    unconnected: bool,
}

impl Watch {
    pub(super) const fn new(settings: Liveness) -> Self {
        Self {
            settings,
            state: State::Alive,
            since: Instant::ZERO,
            armed: None,
            probe: None,
            answered: false,
            unheard: false,
            knows_status: false,
            met: false,
            leads: true,
            unconnected: false,
        }
    }
    fn enter(&mut self, now: Instant, state: State, leads: bool) {
        (self.state, self.since, self.leads) = (state, now, leads);
    }
}

impl Client {
    /// How a server is; alive where it is not watched.
    #[must_use]
    pub fn health(&self, server: u16) -> Health {
        let watch = self.watches.get(usize::from(server)).and_then(Option::as_ref);
        match watch.map(|w| w.state) {
            _ if self.unreachable(server) => Health::Dead,
            None | Some(State::Alive) => Health::Alive,
            Some(State::Suspect) => Health::Suspect,
            Some(State::Dead(_)) => Health::Dead,
        }
    }
    /// Whether a server may be asked: it is not dead.
    #[must_use]
    pub fn usable(&self, server: u16) -> bool {
        self.health(server) != Health::Dead
    }

    fn watch(&mut self, server: u16) -> Option<&mut Watch> {
        self.watches.get_mut(usize::from(server))?.as_mut()
    }
    fn arm(&mut self, server: u16, at: Option<Instant>) {
        let Some(watch) = self.watch(server) else { return };
        let before = core::mem::replace(&mut watch.armed, at);
        if let Some(before) = before {
            self.timers.remove(before, Timer::Watch(server));
        }
        if let Some(at) = at {
            self.timers.insert(at, Timer::Watch(server));
        }
    }

    /// Something was asked of a server: it owes an answer from now on, if it did not before.
    pub(super) fn expect(&mut self, now: Instant, server: u16) {
        let Some(watch) = self.watch(server) else { return };
        let first = !core::mem::replace(&mut watch.unheard, true);
        let at = now + watch.settings.window;
        if watch.state == State::Alive && (first || watch.armed.is_none()) {
            self.arm(server, Some(at));
        }
    }

    /// A server answered.
    pub(super) fn heard(&mut self, now: Instant, slot: Slot, status: bool) {
        let tls = self.transport(slot.server) == Transport::Tls;
        if tls {
            self.prove(slot);
        }
        let server = slot.server;
        let Some(watch) = self.watch(server) else { return };
        if status {
            (watch.probe, watch.answered, watch.knows_status) = (None, true, true);
        }
        let strange = watch.settings.status && !core::mem::replace(&mut watch.met, true);
        match watch.state {
            State::Alive => {
                self.rest(now, server);
                if strange && !status && !tls {
                    self.probe(now, server);
                }
            }
            State::Suspect => self.revive(now, server, HealthCause::Answered),
            State::Dead(answers) if status => {
                if answers + 1 < watch.settings.answers {
                    watch.state = State::Dead(answers + 1);
                } else {
                    self.revive(now, server, HealthCause::Answered);
                }
            }
            State::Dead(_) => {}
        }
    }

    /// A server is alive: looks at it when it has owed an answer for too long; at a connection where nothing happens, too.
    fn rest(&mut self, now: Instant, server: u16) {
        let owes = self.owes(server);
        let tls = self.transport(server) == Transport::Tls;
        let Some(watch) = self.watch(server) else { return };
        watch.unheard = owes;
        let settings = watch.settings;
        let at = if owes { Some(now + settings.window) } else { tls.then_some(now + settings.interval) };
        self.arm(server, at);
    }

    fn revive(&mut self, now: Instant, server: u16, cause: HealthCause) {
        let Some(watch) = self.watch(server) else { return };
        watch.enter(now, State::Alive, true);
        self.rest(now, server);
        self.say(Event::Server { server, health: Health::Alive, cause });
    }

    /// Whether somebody waits for a server's answer.
    fn owes(&self, server: u16) -> bool {
        self.owed[usize::from(server)] > 0
    }
    /// Nobody waits for the answer to a Status-Server any more.
    pub(super) fn unanswered(&mut self, server: u16) {
        if let Some(watch) = self.watch(server) {
            watch.probe = None;
        }
    }
    /// How long a server may take to answer before others are asked; none where it is not watched.
    pub(super) fn window(&self, server: u16) -> Duration {
        self.watches[usize::from(server)].as_ref().map_or(Duration::ZERO, |w| w.settings.window)
    }
    /// How long a Status-Server waits for its answer: until the next.
    pub(super) fn probe_wait(&self, server: u16) -> Duration {
        let watch = self.watches[usize::from(server)].as_ref();
        let dead = watch.is_some_and(|w| matches!(w.state, State::Dead(_)));
        watch.map_or(Duration::ZERO, |w| if dead { w.settings.interval } else { w.settings.window })
    }

    /// A server's timer.
    pub(super) fn look(&mut self, now: Instant, server: u16) {
        let owed = self.owes(server);
        let idle = self.transport(server) == Transport::Tls && self.connected(server);
        let Some(watch) = self.watch(server) else { return };
        watch.armed = None;
        let settings = watch.settings;
        let led = core::mem::replace(&mut watch.leads, true);
        match watch.state {
            State::Alive if owed || watch.unheard => self.suspect(now, server),
            // A connection without a debt is not suspect: it is tried.
            State::Alive if idle && settings.status => self.probe(now, server),
            State::Alive => {}
            // Whoever asked for its status says nothing more.
            State::Suspect if !led => {
                watch.since = now;
                self.doubt(now, server);
            }
            State::Suspect if now < watch.since + settings.zombie => self.doubt(now, server),
            State::Suspect => {
                let silent = HealthCause::Silent(settings.window + settings.zombie);
                self.die(now, server, silent);
            }
            State::Dead(_)
                if settings.status && (watch.knows_status || now < watch.since + settings.revive) =>
            {
                let mut cause = HealthCause::NoConnection;
                if !watch.answered {
                    watch.state = State::Dead(0);
                }
                if !watch.unconnected {
                    cause = HealthCause::Silent(now.since(watch.since) + settings.window + settings.zombie);
                }
                self.arm(server, Some(now + settings.interval));
                // Others who were told of it hear that somebody still asks.
                self.say(Event::Server { server, health: Health::Dead, cause });
                self.probe(now, server);
            }
            State::Dead(_) => self.revive(now, server, HealthCause::Revived(settings.revive)),
        }
    }

    /// A server said nothing for the response window: whoever waits for it asks another where there is one, and it is
    /// asked for its status.
    fn suspect(&mut self, now: Instant, server: u16) {
        let Some(watch) = self.watch(server) else { return };
        watch.enter(now, State::Suspect, true);
        let cause = HealthCause::Silent(watch.settings.window);
        self.counters.suspects += 1;
        self.say(Event::Server { server, health: Health::Suspect, cause });
        self.doubt(now, server);
        self.evacuate(now, server);
    }

    /// Asks a suspect server for its status.
    fn doubt(&mut self, now: Instant, server: u16) {
        let Some(watch) = self.watch(server) else { return };
        let end = watch.since + watch.settings.zombie;
        let at = if watch.settings.status { end.min(now + watch.settings.window) } else { end };
        self.arm(server, Some(at));
        self.probe(now, server);
    }

    /// A connection to a server came to nothing.
    pub(super) fn lost(&mut self, now: Instant, server: u16) {
        let alive =
            self.watches[usize::from(server)].as_ref().is_some_and(|w| !matches!(w.state, State::Dead(_)));
        if alive && self.unreachable(server) {
            self.die(now, server, HealthCause::NoConnection);
        }
    }

    /// A connection to a server came up.
    pub(super) fn came(&mut self, now: Instant, server: u16) {
        let died = |w: &&mut Watch| matches!(w.state, State::Dead(_)) && w.unconnected;
        if self.watch(server).as_ref().is_some_and(died) {
            self.revive(now, server, HealthCause::Connected);
        }
    }

    fn die(&mut self, now: Instant, server: u16, cause: HealthCause) {
        let connected = self.connected(server);
        let tls = self.transport(server) == Transport::Tls;
        let Some(watch) = self.watch(server) else { return };
        watch.enter(now, State::Dead(0), true);
        watch.unconnected = tls && !connected;
        let wait = if watch.settings.status { watch.settings.interval } else { watch.settings.revive };
        self.arm(server, Some(now + wait));
        self.counters.deaths += 1;
        self.say(Event::Server { server, health: Health::Dead, cause });
        self.bury(now, server);
    }

    /// A server is dead: what waits for it goes elsewhere; a login for which there is no elsewhere ends, so that whoever
    /// asks hears so while it still waits.
    fn bury(&mut self, now: Instant, server: u16) {
        if self.transport(server) == Transport::Tls {
            self.leave(now, server);
        }
        self.evacuate(now, server);
        let hopeless = |c: &Self, p: &Pending| {
            let of = p.slot.server;
            p.token.is_some()
                && Code(p.bytes[0]) == Code::ACCESS_REQUEST
                && c.watches[usize::from(of)].is_some()
                && !c.usable(of)
        };
        for index in self.places(hopeless) {
            self.give_up(now, index);
        }
    }

    /// The places of requests of a kind.
    fn places(&self, of: impl Fn(&Self, &Pending) -> bool) -> Vec<u32> {
        let all = self.pending.iter().enumerate();
        all.filter(|(_, p)| p.as_ref().is_some_and(|p| of(self, p))).map(|(i, _)| i as u32).collect()
    }

    /// Whether a request may go to another server that does not look worse.
    pub(super) fn has_other(&self, p: &Pending) -> bool {
        self.others(p).any(|health| health <= self.health(p.slot.server))
    }
    /// How the others of a request's group are.
    fn others<'a>(&'a self, p: &'a Pending) -> impl Iterator<Item = Health> + 'a {
        let group = p.source.as_ref().and_then(|s| s.group);
        let members = group.and_then(|g| self.config.groups.get(usize::from(g)));
        members.into_iter().flatten().filter(|&&s| s != p.slot.server).map(|&s| self.health(s))
    }

    /// Moves what waits for a server to others that are better.
    fn evacuate(&mut self, now: Instant, server: u16) {
        let worth = self.health(server);
        let movable = |c: &Self, p: &Pending| p.slot.server == server && c.others(p).any(|h| h < worth);
        for index in self.places(movable) {
            self.again(now, index, Again::Left);
        }
    }

    /// Asks a server for its status, in the place of an earlier question.
    fn probe(&mut self, now: Instant, server: u16) {
        let Some(watch) = self.watch(server) else { return };
        let (before, settings) = (watch.probe.take(), watch.settings);
        watch.answered = false;
        if let Some(p) = before.and_then(|index| self.release(now, index, true)) {
            self.recycle(p);
        }
        if !settings.status {
            return;
        }
        let list = self.attributes();
        // Without an identifier there is none to be asked with: then there is a debt to judge by.
        if let Ok(index) = self.open(now, None, server, None, Code::STATUS_SERVER, list) {
            self.counters.probes += 1;
            if let Some(watch) = self.watch(server) {
                watch.probe = Some(index);
            }
        }
    }

    /// Another client of the same server found out how it is, and says so each time that it asks again. A connection is
    /// each client's own: one that stands is tried, whatever is said of another's.
    pub fn told(&mut self, now: Instant, server: u16, health: Health) {
        let connected = self.connected(server);
        let Some(watch) = self.watch(server) else { return };
        let settings = watch.settings;
        match (watch.state, health) {
            (State::Alive, Health::Alive) | (State::Suspect | State::Dead(_), Health::Suspect) => {}
            (_, Health::Alive) => {
                watch.enter(now, State::Alive, true);
                self.rest(now, server);
                self.reconnect(now, server);
            }
            (State::Alive, _) if connected => {
                if settings.status && watch.probe.is_none() {
                    self.probe(now, server);
                }
            }
            (State::Alive, Health::Suspect) => {
                watch.enter(now, State::Suspect, false);
                self.arm(server, Some(now + settings.zombie + settings.window * 2));
                self.evacuate(now, server);
            }
            (state, Health::Dead) => {
                let known = matches!(state, State::Dead(_));
                if known && watch.leads {
                    return;
                }
                if !known {
                    watch.enter(now, State::Dead(0), false);
                    watch.unconnected = false;
                }
                let word = if settings.status { settings.interval * 2 } else { settings.revive };
                self.arm(server, Some(now + word + settings.window));
                if !known {
                    self.bury(now, server);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests;
