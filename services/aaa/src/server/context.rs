//! What every step of a server works with, whichever of its parts takes it.

use super::answer::Asker;
use super::api::{Event, Handed, Job, Login, TraceLine};
use super::ask::{Begun, Ending};
use super::cache::UserCache;
use super::config::{Config, UserSource};
use super::counters::Counters;
use super::held_back::HeldBack;
use super::shard::ShardConfig;
use super::stand_in::StandIns;
use super::trace::{Slots, Tracers};
use crate::proxy::Route;
use crate::users::User;
use alloc::boxed::Box;
use alloc::format;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use usher_core::{Instant, Outputs, SecureRng, WallTime};
use usher_radius::attribute::{Attributes, kind};

/// What the parts of a server share. No part has another; each is given this.
#[derive(Debug)]
pub(super) struct Context {
    /// When the step is taken.
    pub(super) now: Instant,
    /// The wall time at [`Instant::ZERO`].
    pub(super) epoch: WallTime,
    pub(super) config: Config,
    pub(super) shard: ShardConfig,
    pub(super) cache: UserCache,
    pub(super) stand_ins: StandIns,
    pub(super) held_back: HeldBack,
    pub(super) outputs: Outputs<Event, Job>,
    pub(super) counters: Counters,
    pub(super) tracers: Tracers,
    pub(super) rng: SecureRng,
    /// The EAP packet that goes out.
    pub(super) out: Vec<u8>,
    /// An empty list for what a session says, one of earlier use where there is one.
    pub(super) list: Attributes,
}

impl Context {
    /// The wall time.
    pub(super) fn wall(&self) -> WallTime {
        self.now.wall(self.epoch)
    }

    /// Asks something of the host that is to be done whoever waits for it.
    pub(super) fn assign(&mut self, token: u64, what: Job) {
        self.outputs.job(usher_core::Job::new(token, what));
    }

    /// Looks a user up where that takes no time; `None`: the host is to be asked.
    pub(super) fn known(&mut self, name: &[u8]) -> Option<Option<Arc<User>>> {
        if let UserSource::Memory(users) = &self.config.users {
            return Some(users.find(name).cloned());
        }
        let known = self.cache.find(self.now, name);
        match known {
            Some(_) => self.counters.lookups_saved += 1,
            None => self.counters.lookups += 1,
        }
        known
    }

    /// Whether the realm of a name that was given inside a tunnel is refused, or known to home servers: it is no user's of ours, whatever
    /// the name outside. A name without a realm is of the realm outside (RFC 7542 §2.4).
    pub(super) fn is_elsewhere(&self, name: &[u8]) -> bool {
        let Some(proxy) = &self.config.proxy else { return false };
        let found = proxy.realms.find(name);
        found.realm.is_some() && *found.route != Route::Local
    }

    /// The other server whose login a State names.
    pub(super) fn elsewhere(&self, state: Option<&[u8]>) -> Option<u16> {
        self.shard.number_of(state?).filter(|number| *number != self.shard.number)
    }

    /// Has another server decide a request.
    pub(super) fn hand_over(&mut self, shard: u16, handed: Handed) {
        self.counters.handed_over += 1;
        self.outputs.event(Event::HandOver { shard, handed });
    }

    /// Tells the host that somebody is turned away.
    pub(super) fn tell_rejected(&mut self, login: Login) {
        if let Some(reason) = login.reason {
            self.counters.rejected(reason);
        }
        if let Some((name, station)) = login.failed_as() {
            self.held_back.failed(self.now, name, station);
        }
        self.outputs.event(Event::Rejected(Box::new(login)));
    }

    /// Counts, traces and tells the host how a login ended that no session here has. The answer to whoever waits is the
    /// caller's.
    pub(super) fn ended_elsewhere(&mut self, begun: Begun, ending: Ending, request: Attributes) {
        let (reason, verdict) = match ending {
            Ending::Accepted => (None, "accepted"),
            Ending::Rejected(reason) => (Some(reason), "rejected"),
            Ending::Undecided(reason) => (Some(reason), "no verdict"),
        };
        let to = self.tracers.concerned(&request);
        if let Some(reason) = reason.filter(|_| to != 0) {
            let number = number(begun.asker);
            let mut lines = alloc::vec!["the request".into()];
            lines.extend(self.tracers.attributes(&request));
            self.tell_lines(number, (to, 0), begun.client, lines);
            let text = format!("{verdict}, {}: {reason}", reason.name());
            self.tell_line(
                TraceLine { to, reason: Some(reason), ..TraceLine::new(self.now, number, text) },
                0,
            );
        }
        let name = request.get(kind::USER_NAME).unwrap_or_default().to_vec();
        let login = Login { begun: begun.at, ..Login::of(name, begun.client, reason, request) };
        let login = Box::new(login);
        self.outputs.event(match ending {
            Ending::Rejected(reason) => {
                self.counters.rejected(reason);
                Event::Rejected(login)
            }
            Ending::Undecided(_) => Event::Undecided(login),
            Ending::Accepted => {
                self.counters.accepted_elsewhere += 1;
                Event::Accepted(login)
            }
        });
    }

    /// Tells a line to those who hear it, and keeps it where others may turn out to.
    pub(super) fn tell_line(&mut self, line: TraceLine, maybe: Slots) {
        if maybe != 0 {
            self.tracers.keep(TraceLine { to: 0, ..line.clone() });
        }
        if line.to != 0 {
            self.outputs.event(Event::Trace(line));
        }
    }

    /// Tells lines of a login to those who hear of it, the first of them with the client.
    pub(super) fn tell_lines(
        &mut self,
        number: u64,
        (to, maybe): (Slots, Slots),
        mut client: Option<u32>,
        lines: Vec<String>,
    ) {
        for text in lines {
            let line = TraceLine { to, client: client.take(), ..TraceLine::new(self.now, number, text) };
            self.tell_line(line, maybe);
        }
    }

    /// Says what happens to a request that no session here has, such as one that is passed on. Its lines have a number of
    /// their own.
    pub(super) fn trace_elsewhere(
        &mut self,
        asker: Option<Asker>,
        request: &Attributes,
        lines: impl FnOnce(&Tracers) -> Vec<String>,
    ) {
        let to = self.tracers.concerned(request);
        if to != 0 {
            let lines = lines(&self.tracers);
            self.tell_lines(number(asker), (to, 0), None, lines);
        }
    }
}

/// The number of the lines of a request that no session has.
fn number(asker: Option<Asker>) -> u64 {
    match asker {
        Some(Asker::Radius(token) | Asker::Diameter(token, _)) => token | 1 << 63,
        None => u64::MAX,
    }
}
