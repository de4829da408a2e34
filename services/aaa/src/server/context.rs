//! What every step of a server works with, whichever of its parts takes it.

use super::answer::RequestToken;
use super::api::{AaaServerEvent, AaaServerJob, FinishedLogin, ShardRequest, TraceLine};
use super::ask::{LoginOutcome, SessionlessLogin};
use super::cache::UserCache;
use super::config::{AaaServerConfig, UserSource};
use super::counters::AaaServerCounters;
use super::held_back::ServerLockout;
use super::shard::ShardConfig;
use super::stand_in::StandIns;
use super::trace::{TraceSlots, TraceTable};
use crate::proxy::RealmTarget;
use crate::users::User;
use alloc::boxed::Box;
use alloc::format;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use usher_core::{Instant, OutputQueue, SecureRng, WallTime};
use usher_radius::attribute::{AttributeList, kind};

/// What the parts of a server share. No part has another; each is given this.
#[derive(Debug)]
pub(super) struct ServerContext {
    /// When the step is taken.
    pub(super) now: Instant,
    /// The wall time at [`Instant::ZERO`].
    pub(super) epoch: WallTime,
    pub(super) config: AaaServerConfig,
    pub(super) shard: ShardConfig,
    pub(super) cache: UserCache,
    pub(super) stand_ins: StandIns,
    pub(super) lockout: ServerLockout,
    pub(super) outputs: OutputQueue<AaaServerEvent, AaaServerJob>,
    pub(super) counters: AaaServerCounters,
    pub(super) tracers: TraceTable,
    pub(super) rng: SecureRng,
    /// The EAP packet that goes out.
    pub(super) out: Vec<u8>,
    /// An empty list for what a session says, one of earlier use where there is one.
    pub(super) list: AttributeList,
}

impl ServerContext {
    /// The wall time.
    pub(super) fn wall_time(&self) -> WallTime {
        self.now.to_wall_time(self.epoch)
    }

    /// Asks something of the host that is to be done whoever waits for it.
    pub(super) fn assign_job(&mut self, token: u64, what: AaaServerJob) {
        self.outputs.push_job(usher_core::JobRequest::new(token, what));
    }

    /// Looks a user up where that takes no time; `None`: the host is to be asked.
    pub(super) fn look_up_locally(&mut self, name: &[u8]) -> Option<Option<Arc<User>>> {
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
        let found = proxy.realms.find_route(name);
        found.realm.is_some() && *found.route != RealmTarget::Local
    }

    /// The other server whose login a State names.
    pub(super) fn owning_shard(&self, state: Option<&[u8]>) -> Option<u16> {
        self.shard.number_of(state?).filter(|number| *number != self.shard.number)
    }

    /// Has another server decide a request.
    pub(super) fn hand_over(&mut self, shard: u16, handed: ShardRequest) {
        self.counters.handed_over += 1;
        self.outputs.push_event(AaaServerEvent::ShardRequest { shard, request: handed });
    }

    /// Tells the host that somebody is turned away.
    pub(super) fn report_reject(&mut self, login: FinishedLogin) {
        if let Some(reason) = login.reason {
            self.counters.count_rejected(reason);
        }
        if let Some((name, station)) = login.failed_as() {
            self.lockout.record_failure(self.now, name, station);
        }
        self.outputs.push_event(AaaServerEvent::Rejected(Box::new(login)));
    }

    /// Counts, traces and tells the host how a login ended that no session here has. The answer to whoever waits is the
    /// caller's.
    pub(super) fn finish_sessionless_login(
        &mut self,
        begun: SessionlessLogin,
        ending: LoginOutcome,
        request: AttributeList,
    ) {
        let (reason, verdict) = match ending {
            LoginOutcome::Accepted => (None, "accepted"),
            LoginOutcome::Rejected(reason) => (Some(reason), "rejected"),
            LoginOutcome::Undecided(reason) => (Some(reason), "no verdict"),
        };
        let to = self.tracers.slots_for_request(&request);
        if let Some(reason) = reason.filter(|_| to != 0) {
            let number = trace_number(begun.asker);
            let mut lines = alloc::vec!["the request".into()];
            lines.extend(self.tracers.describe_attributes(&request));
            self.trace_lines(number, (to, 0), begun.client, lines);
            let text = format!("{verdict}, {}: {reason}", reason.name());
            self.trace_line(
                TraceLine { to, reason: Some(reason), ..TraceLine::new(self.now, number, text) },
                0,
            );
        }
        let name = request.get(kind::USER_NAME).unwrap_or_default().to_vec();
        let login = FinishedLogin {
            started_at: begun.started_at,
            ..FinishedLogin::without_method(name, begun.client, reason, request)
        };
        let login = Box::new(login);
        self.outputs.push_event(match ending {
            LoginOutcome::Rejected(reason) => {
                self.counters.count_rejected(reason);
                AaaServerEvent::Rejected(login)
            }
            LoginOutcome::Undecided(_) => AaaServerEvent::Undecided(login),
            LoginOutcome::Accepted => {
                self.counters.accepted_elsewhere += 1;
                AaaServerEvent::Accepted(login)
            }
        });
    }

    /// Tells a line to those who hear it, and keeps it where others may turn out to.
    pub(super) fn trace_line(&mut self, line: TraceLine, maybe: TraceSlots) {
        if maybe != 0 {
            self.tracers.retain_line(TraceLine { to: 0, ..line.clone() });
        }
        if line.to != 0 {
            self.outputs.push_event(AaaServerEvent::Trace(line));
        }
    }

    /// Tells lines of a login to those who hear of it, the first of them with the client.
    pub(super) fn trace_lines(
        &mut self,
        number: u64,
        (to, maybe): (TraceSlots, TraceSlots),
        mut client: Option<u32>,
        lines: Vec<String>,
    ) {
        for text in lines {
            let line = TraceLine { to, client: client.take(), ..TraceLine::new(self.now, number, text) };
            self.trace_line(line, maybe);
        }
    }

    /// Says what happens to a request that no session here has, such as one that is passed on. Its lines have a number of
    /// their own.
    pub(super) fn trace_sessionless(
        &mut self,
        asker: Option<RequestToken>,
        request: &AttributeList,
        lines: impl FnOnce(&TraceTable) -> Vec<String>,
    ) {
        let to = self.tracers.slots_for_request(request);
        if to != 0 {
            let lines = lines(&self.tracers);
            self.trace_lines(trace_number(asker), (to, 0), None, lines);
        }
    }
}

/// The number of the lines of a request that no session has.
fn trace_number(asker: Option<RequestToken>) -> u64 {
    match asker {
        Some(RequestToken::Radius(token) | RequestToken::Diameter(token, _)) => token | 1 << 63,
        None => u64::MAX,
    }
}
