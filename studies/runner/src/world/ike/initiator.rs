//! An initiator, which authenticates when it is to.

use super::super::arrivals::ArrivalProcess;
use super::super::helpers::Helpers;
use super::super::ike_service::answer;
use super::super::machine::{Endpoint, EventOrJob};
use super::super::report::{End, Report};
use super::super::role::{IkeTotals, Role};
use super::{Counted, Protection};
use std::net::SocketAddr;
use std::sync::Arc;
use usher_core::timer::earliest;
use usher_core::{Duration, Instant, Job, Machine, Seed, Work};
use usher_ike::credentials::Credentials;
use usher_ike::machine::{self as ike, Command, Connection, EndReason, Event, IkeJob, SaId};
use usher_scenario::model::Reauthentication;
use usher_sim::{Context, Delivery};

/// What initiators have to do.
#[derive(Clone, Debug)]
pub(super) struct Task {
    pub(super) endpoint: ike::Config,
    pub(super) connection: Arc<Connection>,
    pub(super) credentials: Arc<Credentials>,
    pub(super) local: SocketAddr,
    pub(super) remote: SocketAddr,
    pub(super) reauthentication: Reauthentication,
    /// How long its IKE_SAs last.
    pub(super) lifetime: Option<Duration>,
    /// How long an authentication may take.
    pub(super) give_up: Option<Duration>,
    /// The security policies of its host.
    pub(super) protection: Option<Protection>,
    /// It begins when a packet needs a CHILD_SA that is not there.
    pub(super) on_demand: bool,
    /// It takes up by a ticket what it has lost.
    pub(super) resumes: bool,
}

/// An authentication under way.
#[derive(Clone, Copy, Debug)]
struct Attempt {
    began: Instant,
    /// Its IKE_SA, once that has begun.
    sa: Option<SaId>,
    /// Since when there is no IKE_SA, where there was one.
    without: Option<Instant>,
}

/// An initiator on a host of its own.
#[derive(Debug)]
pub(super) struct InitiatorRole {
    endpoint: Endpoint,
    ike: Counted<usher_ike::Endpoint>,
    task: Task,
    helpers: Helpers<Job<IkeJob>>,
    seed: Seed,
    boots: u64,
    arrivals: ArrivalProcess,
    /// How many fell due while it was busy.
    waiting: u64,
    attempt: Option<Attempt>,
    /// The IKE_SA that it has, and when it deletes it by itself.
    current: Option<(SaId, Option<Instant>)>,
}

impl InitiatorRole {
    pub(super) fn new(
        endpoint: Endpoint,
        task: Task,
        helpers: Helpers<Job<IkeJob>>,
        seed: Seed,
        arrivals: ArrivalProcess,
    ) -> Self {
        let ike = Counted::new(usher_ike::Endpoint::new(task.endpoint, seed.secure("start", 0)), false);
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

    /// Begins what is due.
    fn begin(&mut self, ctx: &mut Context<'_, Report>) {
        let now = ctx.now();
        while self.arrivals.take(now) {
            self.waiting += 1;
        }
        if self.attempt.is_some() || self.waiting == 0 {
            return;
        }
        self.waiting -= 1;
        ctx.report(Report::Begun);
        let mut attempt = Attempt { began: now, sa: None, without: None };
        self.ike.counts = true;
        match self.current {
            Some((old, _)) if self.task.reauthentication == Reauthentication::BreakBeforeMake => {
                attempt.without = Some(now);
                self.attempt = Some(attempt);
                // What has ended meanwhile is heard of.
                if self.ike.command(now, Command::Delete(old)).is_err() {
                    self.initiate(ctx);
                }
            }
            _ => {
                self.attempt = Some(attempt);
                self.initiate(ctx);
            }
        }
    }

    fn initiate(&mut self, ctx: &mut Context<'_, Report>) {
        let (local, remote) = (self.task.local, self.task.remote);
        let command = Command::Initiate { token: 0, connection: self.task.connection.clone(), local, remote };
        if self.ike.command(ctx.now(), command).is_err() {
            self.end(ctx, End::Failed);
        }
    }

    fn end(&mut self, ctx: &mut Context<'_, Report>, end: End) {
        let Some(attempt) = self.attempt.take() else { return };
        self.ike.counts = false;
        if let Some(protection) = self.task.protection.as_ref().filter(|_| end != End::Completed) {
            protection.abandon(ctx);
        }
        if let (End::Completed, Some(without)) = (end, attempt.without) {
            ctx.report(Report::Interrupted(attempt.began, ctx.now().since(without)));
        }
        self.arrivals.ended(ctx.now());
        ctx.report(Report::Ended { began: attempt.began, end });
    }

    fn hear(&mut self, ctx: &mut Context<'_, Report>, event: &Event) {
        let now = ctx.now();
        match event {
            Event::Initiated { sa, .. } => {
                if let Some(attempt) = &mut self.attempt {
                    attempt.sa = Some(*sa);
                }
            }
            Event::Established { sa, .. } if self.attempt.is_some_and(|attempt| attempt.sa == Some(*sa)) => {
                let old = self.current.take();
                self.current = Some((*sa, self.task.lifetime.map(|lifetime| now + lifetime)));
                // Of one that is taken up again the gateway drops the old one without a word (RFC 5723 §4.3.4).
                let old = old.filter(|_| !self.task.resumes);
                if let (Some((old, _)), Some(attempt)) = (old, &mut self.attempt) {
                    // Its packets could go all the time.
                    attempt.without = Some(now);
                    self.ike.counts = false;
                    let _ = self.ike.command(now, Command::Delete(old));
                }
                self.end(ctx, End::Completed);
            }
            Event::Ended { sa, reason } => {
                if self.attempt.is_some_and(|attempt| attempt.sa == Some(*sa)) {
                    let refused = matches!(reason, EndReason::Refused | EndReason::AuthenticationFailed);
                    self.end(ctx, if refused { End::Rejected } else { End::Failed });
                } else if self.current.is_some_and(|(current, _)| current == *sa) {
                    self.current = None;
                    if self.attempt.is_some_and(|attempt| attempt.sa.is_none()) {
                        self.initiate(ctx);
                    }
                }
            }
            _ => {}
        }
    }

    /// What falls due by itself.
    fn expire(&mut self, ctx: &mut Context<'_, Report>) {
        let now = ctx.now();
        while let Some(jobs) = self.helpers.pop_due(now) {
            for job in jobs {
                // The IKE_SA may have been given up.
                let _ = self.ike.command(now, answer(&self.task.credentials, &job));
            }
        }
        if let Some((sa, Some(at))) = self.current
            && at <= now
            && self.attempt.is_none()
        {
            self.current = Some((sa, None));
            let _ = self.ike.command(now, Command::Delete(sa));
        }
        if let Some(attempt) = self.attempt.filter(|_| self.gives_up().is_some_and(|at| at <= now)) {
            self.end(ctx, End::Failed);
            if let Some(sa) = attempt.sa {
                let _ = self.ike.command(now, Command::Delete(sa));
            }
        }
    }

    fn gives_up(&self) -> Option<Instant> {
        Some(self.attempt?.began + self.task.give_up?)
    }

    /// Carries out what the endpoint decided, and begins what follows from it, until nothing is left.
    fn settle(&mut self, ctx: &mut Context<'_, Report>) {
        loop {
            let mut heard = Vec::new();
            let Self { endpoint, ike, task, helpers, .. } = self;
            endpoint.drain(ctx, ike, |ctx, ike, word| match word {
                EventOrJob::Event(event) => {
                    // Before what depends on it is sent.
                    if let Some(protection) = &task.protection {
                        protection.follow(ctx, &event);
                    }
                    heard.push(event);
                }
                EventOrJob::Job(job) => {
                    let (now, label) = (ctx.now(), job.what.work());
                    if let Some(job) = helpers.put(now, Some(label), job) {
                        // What no helper does keeps this host's processor.
                        ctx.work(Work { label, units: 1 });
                        let _ = ike.command(now, answer(&task.credentials, &job));
                    }
                }
            });
            if heard.is_empty() {
                return;
            }
            heard.iter().for_each(|event| self.hear(ctx, event));
            self.begin(ctx);
        }
    }
}

impl Role for InitiatorRole {
    fn handle(&mut self, ctx: &mut Context<'_, Report>, delivery: Delivery) {
        match &delivery {
            Delivery::Start => {
                self.boots += 1;
                if let Some(protection) = &self.task.protection {
                    protection.begin(ctx);
                }
                if self.boots > 1 {
                    let rng = self.seed.secure("start", self.boots);
                    self.ike.replace(usher_ike::Endpoint::new(self.task.endpoint, rng));
                    self.helpers.restart();
                    self.current = None;
                    self.end(ctx, End::Failed);
                    self.arrivals.skip(ctx.now());
                }
            }
            Delivery::Timer => self.expire(ctx),
            Delivery::Acquire { .. } if self.task.on_demand && self.attempt.is_none() => self.waiting += 1,
            _ => {}
        }
        self.endpoint.feed(ctx, &mut self.ike, &delivery);
        self.settle(ctx);
        self.begin(ctx);
        self.settle(ctx);
        let expiry = self.current.and_then(|(_, at)| at).filter(|_| self.attempt.is_none());
        ctx.set_timer(earliest([
            self.ike.poll_timeout(),
            self.helpers.next(),
            self.arrivals.next(),
            expiry,
            self.gives_up(),
        ]));
    }

    fn ike_totals(&self) -> Option<IkeTotals> {
        Some(self.ike.totals)
    }
}
