//! An initiator that authenticates on schedule.

use super::super::arrivals::ArrivalProcess;
use super::super::helpers::WorkerPool;
use super::super::ike_service::answer_job;
use super::super::machine::{MachineEventOrJob, MachineSockets};
use super::super::report::{DialogueEnd, RoleReport};
use super::super::role::{HostRole, IkeTotals};
use super::{DatagramCountingMachine, HostSecurityPolicies};
use std::net::SocketAddr;
use std::sync::Arc;
use usher_core::timer::earliest_deadline;
use usher_core::{Duration, Instant, JobRequest, Machine, Seed, WorkRecord};
use usher_ike::credentials::IkeCredentials;
use usher_ike::machine::{
    self as ike, EndReason, IkeCommand, IkeConnectionConfig, IkeEvent, IkeJob, IkeSaId,
};
use usher_scenario::model::ReauthenticationOrder;
use usher_sim::{AppContext, AppDelivery};

/// The task of initiators.
#[derive(Clone, Debug)]
pub(super) struct InitiatorConfig {
    pub(super) endpoint: ike::IkeEndpointConfig,
    pub(super) connection: Arc<IkeConnectionConfig>,
    pub(super) credentials: Arc<IkeCredentials>,
    pub(super) local: SocketAddr,
    pub(super) remote: SocketAddr,
    pub(super) reauthentication: ReauthenticationOrder,
    /// Lifetime of its IKE_SAs.
    pub(super) lifetime: Option<Duration>,
    /// Time limit of an authentication.
    pub(super) give_up: Option<Duration>,
    /// The security policies of its host.
    pub(super) protection: Option<HostSecurityPolicies>,
    /// True if it initiates when a packet needs a CHILD_SA that does not exist.
    pub(super) on_demand: bool,
    /// True if it resumes a lost IKE_SA by a ticket.
    pub(super) resumes: bool,
}

/// A running authentication.
#[derive(Clone, Copy, Debug)]
struct AuthenticationAttempt {
    started_at: Instant,
    /// Its IKE_SA, once initiated.
    sa: Option<IkeSaId>,
    /// Since when no IKE_SA exists, if there was one before.
    without_sa_since: Option<Instant>,
}

/// An initiator on a host of its own.
#[derive(Debug)]
pub(super) struct InitiatorRole {
    endpoint: MachineSockets,
    ike: DatagramCountingMachine<usher_ike::IkeEndpoint>,
    task: InitiatorConfig,
    helpers: WorkerPool<JobRequest<IkeJob>>,
    seed: Seed,
    boots: u64,
    arrivals: ArrivalProcess,
    /// Authentications that fell due while one was running.
    waiting: u64,
    attempt: Option<AuthenticationAttempt>,
    /// The established IKE_SA, and when the initiator deletes it.
    current: Option<(IkeSaId, Option<Instant>)>,
}

impl InitiatorRole {
    pub(super) fn new(
        endpoint: MachineSockets,
        task: InitiatorConfig,
        helpers: WorkerPool<JobRequest<IkeJob>>,
        seed: Seed,
        arrivals: ArrivalProcess,
    ) -> Self {
        let ike = DatagramCountingMachine::new(
            usher_ike::IkeEndpoint::new(task.endpoint, seed.derive_secure_rng("start", 0)),
            false,
        );
        Self {
            endpoint,
            ike,
            task,
            helpers,
            seed,
            boots: 0,
            arrivals,
            waiting: 0,
            attempt: None,
            current: None,
        }
    }

    /// Begins a due authentication.
    fn start_due(&mut self, ctx: &mut AppContext<'_, RoleReport>) {
        let now = ctx.now();
        while self.arrivals.take_due_arrival(now) {
            self.waiting += 1;
        }
        if self.attempt.is_some() || self.waiting == 0 {
            return;
        }
        self.waiting -= 1;
        ctx.report(RoleReport::Started);
        let mut attempt = AuthenticationAttempt { started_at: now, sa: None, without_sa_since: None };
        self.ike.counts = true;
        match self.current {
            Some((old, _)) if self.task.reauthentication == ReauthenticationOrder::BreakBeforeMake => {
                attempt.without_sa_since = Some(now);
                self.attempt = Some(attempt);
                // If the command fails, the IKE_SA has ended meanwhile, so initiate a new one at once.
                if self.ike.handle_command(now, IkeCommand::Delete(old)).is_err() {
                    self.initiate_sa(ctx);
                }
            }
            _ => {
                self.attempt = Some(attempt);
                self.initiate_sa(ctx);
            }
        }
    }

    fn initiate_sa(&mut self, ctx: &mut AppContext<'_, RoleReport>) {
        let (local, remote) = (self.task.local, self.task.remote);
        let command =
            IkeCommand::Initiate { token: 0, connection: self.task.connection.clone(), local, remote };
        if self.ike.handle_command(ctx.now(), command).is_err() {
            self.finish_attempt(ctx, DialogueEnd::Failed);
        }
    }

    fn finish_attempt(&mut self, ctx: &mut AppContext<'_, RoleReport>, end: DialogueEnd) {
        let Some(attempt) = self.attempt.take() else { return };
        self.ike.counts = false;
        if let Some(protection) = self.task.protection.as_ref().filter(|_| end != DialogueEnd::Completed) {
            protection.abandon_policy(ctx);
        }
        if let (DialogueEnd::Completed, Some(without)) = (end, attempt.without_sa_since) {
            ctx.report(RoleReport::Interrupted(attempt.started_at, ctx.now().duration_since(without)));
        }
        self.arrivals.finish_dialogue(ctx.now());
        ctx.report(RoleReport::Ended { started_at: attempt.started_at, end });
    }

    fn handle_event(&mut self, ctx: &mut AppContext<'_, RoleReport>, event: &IkeEvent) {
        let now = ctx.now();
        match event {
            IkeEvent::Initiated { sa, .. } => {
                if let Some(attempt) = &mut self.attempt {
                    attempt.sa = Some(*sa);
                }
            }
            IkeEvent::Established { sa, .. }
                if self.attempt.is_some_and(|attempt| attempt.sa == Some(*sa)) =>
            {
                let old = self.current.take();
                self.current = Some((*sa, self.task.lifetime.map(|lifetime| now + lifetime)));
                // RFC 5723 §4.3.4: after resumption the gateway silently drops the old IKE_SA.
                let old = old.filter(|_| !self.task.resumes);
                if let (Some((old, _)), Some(attempt)) = (old, &mut self.attempt) {
                    // With make-before-break, packets had an SA all the time, so there was no interruption.
                    attempt.without_sa_since = Some(now);
                    self.ike.counts = false;
                    let _ = self.ike.handle_command(now, IkeCommand::Delete(old));
                }
                self.finish_attempt(ctx, DialogueEnd::Completed);
            }
            IkeEvent::Ended { sa, reason } => {
                if self.attempt.is_some_and(|attempt| attempt.sa == Some(*sa)) {
                    let refused = matches!(reason, EndReason::Refused | EndReason::AuthenticationFailed);
                    self.finish_attempt(
                        ctx,
                        if refused { DialogueEnd::Rejected } else { DialogueEnd::Failed },
                    );
                } else if self.current.is_some_and(|(current, _)| current == *sa) {
                    self.current = None;
                    if self.attempt.is_some_and(|attempt| attempt.sa.is_none()) {
                        self.initiate_sa(ctx);
                    }
                }
            }
            _ => {}
        }
    }

    /// Does the work that is due by time.
    fn handle_timeouts(&mut self, ctx: &mut AppContext<'_, RoleReport>) {
        let now = ctx.now();
        while let Some(jobs) = self.helpers.pop_due(now) {
            for job in jobs {
                // An error is ignored: the IKE_SA may have ended meanwhile.
                let _ = self.ike.handle_command(now, answer_job(&self.task.credentials, &job));
            }
        }
        if let Some((sa, Some(at))) = self.current
            && at <= now
            && self.attempt.is_none()
        {
            self.current = Some((sa, None));
            let _ = self.ike.handle_command(now, IkeCommand::Delete(sa));
        }
        if let Some(attempt) = self.attempt.filter(|_| self.give_up_time().is_some_and(|at| at <= now)) {
            self.finish_attempt(ctx, DialogueEnd::Failed);
            if let Some(sa) = attempt.sa {
                let _ = self.ike.handle_command(now, IkeCommand::Delete(sa));
            }
        }
    }

    fn give_up_time(&self) -> Option<Instant> {
        Some(self.attempt?.started_at + self.task.give_up?)
    }

    /// Applies the endpoint's outputs, and their consequences, until none are left.
    fn drain_outputs(&mut self, ctx: &mut AppContext<'_, RoleReport>) {
        loop {
            let mut heard = Vec::new();
            let Self { endpoint, ike, task, helpers, .. } = self;
            endpoint.drain_outputs(ctx, ike, |ctx, ike, word| match word {
                MachineEventOrJob::Event(event) => {
                    // Apply policies and SAs before sending the packets that depend on them.
                    if let Some(protection) = &task.protection {
                        protection.apply_event(ctx, &event);
                    }
                    heard.push(event);
                }
                MachineEventOrJob::Job(job) => {
                    let (now, label) = (ctx.now(), job.job.work_label());
                    if let Some(job) = helpers.submit_worker_job(now, Some(label), job) {
                        // Work that no worker does loads this host's processor.
                        ctx.charge_work(WorkRecord { label, units: 1 });
                        let _ = ike.handle_command(now, answer_job(&task.credentials, &job));
                    }
                }
            });
            if heard.is_empty() {
                return;
            }
            heard.iter().for_each(|event| self.handle_event(ctx, event));
            self.start_due(ctx);
        }
    }
}

impl HostRole for InitiatorRole {
    fn handle_delivery(&mut self, ctx: &mut AppContext<'_, RoleReport>, delivery: AppDelivery) {
        match &delivery {
            AppDelivery::Start => {
                self.boots += 1;
                if let Some(protection) = &self.task.protection {
                    protection.install_ipsec_policies(ctx);
                }
                if self.boots > 1 {
                    let rng = self.seed.derive_secure_rng("start", self.boots);
                    self.ike.replace_counted_machine(usher_ike::IkeEndpoint::new(self.task.endpoint, rng));
                    self.helpers.discard_worker_jobs();
                    self.current = None;
                    self.finish_attempt(ctx, DialogueEnd::Failed);
                    self.arrivals.skip_missed_arrivals(ctx.now());
                }
            }
            AppDelivery::Timer => self.handle_timeouts(ctx),
            AppDelivery::Acquire { .. } if self.task.on_demand && self.attempt.is_none() => self.waiting += 1,
            _ => {}
        }
        self.endpoint.deliver_to_machine(ctx, &mut self.ike, &delivery);
        self.drain_outputs(ctx);
        self.start_due(ctx);
        self.drain_outputs(ctx);
        let expiry = self.current.and_then(|(_, at)| at).filter(|_| self.attempt.is_none());
        ctx.set_timer(earliest_deadline([
            self.ike.poll_timeout(),
            self.helpers.next_job_completion(),
            self.arrivals.next_arrival(),
            expiry,
            self.give_up_time(),
        ]));
    }

    fn ike_totals(&self) -> Option<IkeTotals> {
        Some(self.ike.totals)
    }
}
