//! The context that all parts of a server share.

use super::access_request::{LoginOutcome, LoginWithoutLocalSession};
use super::answer::RequestToken;
use super::api::{AaaServerEvent, AaaServerJob, FinishedLogin, ShardRequest, TraceLine};
use super::cache::UserCache;
use super::config::{AaaServerConfig, UserSource};
use super::counters::AaaServerCounters;
use super::lockout::ServerLockout;
use super::shard::ShardConfig;
use super::stand_in::StandInUserFactory;
use super::trace::{LoginTraceSlots, LoginTraceTable};
use crate::proxy::RealmTarget;
use crate::users::User;
use alloc::boxed::Box;
use alloc::format;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use usher_core::{Instant, OutputQueue, SecureRng, WallTime};
use usher_radius::attribute::{AttributeList, kind};

/// State that the parts of a server share. A part has no reference to another part.
#[derive(Debug)]
pub(super) struct ServerContext {
    /// Time of the step.
    pub(super) now: Instant,
    /// The wall time at [`Instant::ZERO`].
    pub(super) epoch: WallTime,
    pub(super) config: AaaServerConfig,
    pub(super) shard: ShardConfig,
    pub(super) cache: UserCache,
    pub(super) stand_ins: StandInUserFactory,
    pub(super) lockout: ServerLockout,
    pub(super) outputs: OutputQueue<AaaServerEvent, AaaServerJob>,
    pub(super) counters: AaaServerCounters,
    pub(super) tracers: LoginTraceTable,
    pub(super) rng: SecureRng,
    /// The outgoing EAP packet.
    pub(super) out: Vec<u8>,
    /// An empty attribute list, for reuse.
    pub(super) list: AttributeList,
}

impl ServerContext {
    /// Current wall time.
    pub(super) fn wall_time(&self) -> WallTime {
        self.now.to_wall_time(self.epoch)
    }

    /// Starts a job that is done even if its session ends.
    pub(super) fn assign_job(&mut self, token: u64, what: AaaServerJob) {
        self.outputs.push_job(usher_core::JobRequest::new(token, what));
    }

    /// Looks a user up in memory. `None`: the host has to look it up.
    pub(super) fn find_user_in_memory(&mut self, name: &[u8]) -> Option<Option<Arc<User>>> {
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

    /// True if the realm of an inner name is rejected or belongs to home servers: then it names no local user. An
    /// inner name without a realm has the outer realm (RFC 7542 §2.4).
    pub(super) fn is_elsewhere(&self, name: &[u8]) -> bool {
        let Some(proxy) = &self.config.proxy else { return false };
        let found = proxy.realms.find_route(name);
        found.realm.is_some() && *found.route != RealmTarget::Local
    }

    /// Returns the other shard that owns the session of a State.
    pub(super) fn other_shard_for_state(&self, state: Option<&[u8]>) -> Option<u16> {
        self.shard.shard_number_in_state(state?).filter(|number| *number != self.shard.number)
    }

    /// Passes a request to another shard.
    pub(super) fn hand_over(&mut self, shard: u16, handed: ShardRequest) {
        self.counters.handed_over += 1;
        self.outputs.push_event(AaaServerEvent::ShardRequest { shard, request: handed });
    }

    /// Reports a reject to the host.
    pub(super) fn record_and_report_reject(&mut self, login: FinishedLogin) {
        if let Some(reason) = login.reason {
            self.counters.count_rejected(reason);
        }
        if let Some((name, station)) = login.failed_attempt_identity() {
            self.lockout.record_failure(self.now, name, station);
        }
        self.outputs.push_event(AaaServerEvent::Rejected(Box::new(login)));
    }

    /// Counts, traces and reports the end of a login without a session here. The caller answers the request.
    pub(super) fn finish_login_without_session(
        &mut self,
        begun: LoginWithoutLocalSession,
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
            let number = trace_number_without_session(begun.asker);
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

    /// Writes a line to the traces of a login, and keeps it for traces that may match later.
    pub(super) fn trace_line(&mut self, line: TraceLine, maybe: LoginTraceSlots) {
        if maybe != 0 {
            self.tracers.retain_line(TraceLine { to: 0, ..line.clone() });
        }
        if line.to != 0 {
            self.outputs.push_event(AaaServerEvent::Trace(line));
        }
    }

    /// Writes lines of a login to its traces. The first has the client.
    pub(super) fn trace_lines(
        &mut self,
        number: u64,
        (to, maybe): (LoginTraceSlots, LoginTraceSlots),
        mut client: Option<u32>,
        lines: Vec<String>,
    ) {
        for text in lines {
            let line = TraceLine { to, client: client.take(), ..TraceLine::new(self.now, number, text) };
            self.trace_line(line, maybe);
        }
    }

    /// Traces a request without a session here, such as a proxied one. Its lines have their own number.
    pub(super) fn trace_request_without_session(
        &mut self,
        asker: Option<RequestToken>,
        request: &AttributeList,
        lines: impl FnOnce(&LoginTraceTable) -> Vec<String>,
    ) {
        let to = self.tracers.slots_for_request(request);
        if to != 0 {
            let lines = lines(&self.tracers);
            self.trace_lines(trace_number_without_session(asker), (to, 0), None, lines);
        }
    }
}

/// Returns the trace number of a request without a session.
fn trace_number_without_session(asker: Option<RequestToken>) -> u64 {
    match asker {
        Some(RequestToken::Radius(token) | RequestToken::Diameter(token, _)) => token | 1 << 63,
        None => u64::MAX,
    }
}
