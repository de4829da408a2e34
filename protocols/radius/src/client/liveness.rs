//! Which servers are alive: RFC 3539 §3.4's watchdog, with Status-Server (RFC 5997) for its messages.

use super::identifier::Slot;
use super::machine::{Client, Timer};
use super::{Event, Liveness, Transport};
use crate::packet::Code;
use alloc::vec::Vec;
use usher_core::{Duration, Instant};

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum State {
    /// OKAY.
    Alive,
    /// SUSPECT: it owes an answer for an interval, and was asked for its status so often since.
    Suspect(u32),
    /// DOWN, and REOPEN after the first of so many answers.
    Dead(u32),
}

/// What is known of one server's life.
#[derive(Debug)]
pub(super) struct Watch {
    settings: Liveness,
    state: State,
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
    /// When it was taken for dead.
    died: Instant,
}

/// How often a datagram is risked before its answer is missed.
const CHANCES: u32 = 3;

impl Watch {
    pub(super) const fn new(settings: Liveness) -> Self {
        Self {
            settings,
            state: State::Alive,
            armed: None,
            probe: None,
            answered: false,
            unheard: false,
            knows_status: false,
            died: Instant::ZERO,
        }
    }
}

impl Client {
    /// Whether a server is worth asking: watched and not dead, or reachable by what is known.
    #[must_use]
    pub fn usable(&self, server: u16) -> bool {
        let watch = self.watches.get(usize::from(server)).and_then(Option::as_ref);
        !watch.is_some_and(|w| matches!(w.state, State::Dead(_))) && !self.unreachable(server)
    }

    fn arm(&mut self, server: u16, at: Option<Instant>) {
        let Some(watch) = &mut self.watches[usize::from(server)] else { return };
        if let Some(before) = watch.armed.take() {
            self.timers.remove(before, Timer::Watch(server));
        }
        watch.armed = at;
        if let Some(at) = at {
            self.timers.insert(at, Timer::Watch(server));
        }
    }

    /// Something was asked of a server: it owes an answer from now on, if it did not before.
    pub(super) fn expect(&mut self, now: Instant, server: u16) {
        let Some(watch) = &mut self.watches[usize::from(server)] else { return };
        watch.unheard = true;
        if watch.armed.is_none() {
            let at = now + watch.settings.interval;
            self.arm(server, Some(at));
        }
    }

    /// A server answered.
    pub(super) fn heard(&mut self, now: Instant, slot: Slot, status: bool) {
        if self.transport(slot.server) == Transport::Tls {
            self.prove(slot);
        }
        let server = slot.server;
        let owes = self.owes(server);
        let quiet = self.transport(server) == Transport::Udp && !owes;
        let Some(watch) = &mut self.watches[usize::from(server)] else { return };
        watch.unheard = false;
        if status {
            (watch.probe, watch.answered, watch.knows_status) = (None, true, true);
        }
        let next = now + watch.settings.interval;
        match watch.state {
            State::Alive | State::Suspect(_) => {
                watch.state = State::Alive;
                // Without a debt nothing needs watching, but for connections.
                self.arm(server, (!quiet).then_some(next));
            }
            State::Dead(answers) if status => {
                if answers + 1 < watch.settings.answers {
                    watch.state = State::Dead(answers + 1);
                } else {
                    watch.state = State::Alive;
                    self.arm(server, (!quiet).then_some(next));
                    self.events.push_back(Event::Server { server, alive: true });
                }
            }
            State::Dead(_) => {}
        }
    }

    /// Whether somebody waits for a server's answer.
    fn owes(&self, server: u16) -> bool {
        self.owed[usize::from(server)] > 0
    }
    /// Nobody waits for the answer to a Status-Server any more.
    pub(super) fn unanswered(&mut self, server: u16) {
        if let Some(watch) = &mut self.watches[usize::from(server)] {
            watch.probe = None;
        }
    }
    /// How long a Status-Server waits for its answer.
    pub(super) fn probe_wait(&self, server: u16) -> Duration {
        let watch = self.watches[usize::from(server)].as_ref();
        let interval = watch.map_or(Duration::ZERO, |w| w.settings.interval);
        let alive = watch.is_some_and(|w| !matches!(w.state, State::Dead(_)));
        if alive && self.transport(server) == Transport::Udp {
            interval / u64::from(CHANCES)
        } else {
            interval
        }
    }

    /// A server's timer.
    pub(super) fn look(&mut self, now: Instant, server: u16) {
        let owed = self.owes(server);
        let tls = self.transport(server) == Transport::Tls;
        let connected = self.connected(server);
        let Some(watch) = &mut self.watches[usize::from(server)] else { return };
        watch.armed = None;
        let owes = owed || watch.unheard;
        let settings = watch.settings;
        let next = now + settings.interval;
        match watch.state {
            State::Alive if !(owes || tls && connected) => {}
            State::Alive => {
                // A connection without a debt is not suspect: it is tried.
                if owes || settings.status {
                    watch.state = State::Suspect(1);
                    self.doubt(now, server);
                }
            }
            State::Suspect(asked) if settings.status && !tls && asked < CHANCES => {
                watch.state = State::Suspect(asked + 1);
                self.doubt(now, server);
            }
            State::Suspect(_) => self.die(now, server),
            State::Dead(_)
                if settings.status && (watch.knows_status || now < watch.died + settings.revive) =>
            {
                if !watch.answered {
                    watch.state = State::Dead(0);
                }
                self.arm(server, Some(next));
                self.probe(now, server);
            }
            State::Dead(_) => {
                watch.state = State::Alive;
                self.events.push_back(Event::Server { server, alive: true });
            }
        }
    }

    /// Asks a suspect server, and waits as long as it may take.
    fn doubt(&mut self, now: Instant, server: u16) {
        let Some(watch) = &self.watches[usize::from(server)] else { return };
        let wait = if watch.settings.status { self.probe_wait(server) } else { watch.settings.interval };
        self.arm(server, Some(now + wait));
        self.probe(now, server);
    }

    /// A connection to a server came to nothing.
    pub(super) fn lost(&mut self, now: Instant, server: u16) {
        let alive =
            self.watches[usize::from(server)].as_ref().is_some_and(|w| !matches!(w.state, State::Dead(_)));
        if alive && self.unreachable(server) {
            self.die(now, server);
        }
    }

    /// A server is taken for dead: what waits for it goes elsewhere where it can.
    fn die(&mut self, now: Instant, server: u16) {
        let Some(watch) = &mut self.watches[usize::from(server)] else { return };
        watch.state = State::Dead(0);
        watch.died = now;
        let wait = if watch.settings.status { watch.settings.interval } else { watch.settings.revive };
        self.arm(server, Some(now + wait));
        self.counters.deaths += 1;
        self.events.push_back(Event::Server { server, alive: false });
        if self.transport(server) == Transport::Tls {
            return self.leave(now, server);
        }
        let movable = |p: &super::machine::Pending| {
            p.slot.server == server && p.source.as_ref().is_some_and(|s| s.group.is_some())
        };
        let all = self.pending.iter().enumerate();
        let fleeing: Vec<u32> =
            all.filter(|(_, p)| p.as_ref().is_some_and(movable)).map(|(i, _)| i as u32).collect();
        fleeing.into_iter().for_each(|index| self.again(now, index, true));
    }

    /// Asks a server for its status, in the place of an earlier question.
    fn probe(&mut self, now: Instant, server: u16) {
        let Some(watch) = &mut self.watches[usize::from(server)] else { return };
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
            if let Some(watch) = &mut self.watches[usize::from(server)] {
                watch.probe = Some(index);
            }
        }
    }
}
