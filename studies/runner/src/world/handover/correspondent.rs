//! A correspondent: sends a mobile node its flow.

use super::super::machine::{Endpoint, EventOrJob};
use super::super::report::{Milestone, Report};
use super::super::role::Role;
use usher_core::timer::earliest;
use usher_core::{Instant, Machine};
use usher_mobility::Correspondent;
use usher_mobility::correspondent::{Command, Event};
use usher_sim::{Context, Delivery};

/// The correspondent and where it lives.
#[derive(Debug)]
pub(in super::super) struct CorrespondentRole {
    endpoint: Endpoint,
    /// The number of its mobile node.
    number: u32,
    /// When the flow begins, and has not yet.
    begins: Option<Instant>,
    correspondent: Correspondent,
}

impl CorrespondentRole {
    pub(super) fn new(
        endpoint: Endpoint,
        number: u32,
        begins: Instant,
        correspondent: Correspondent,
    ) -> Self {
        Self { endpoint, number, begins: Some(begins), correspondent }
    }
}

impl Role for CorrespondentRole {
    fn handle(&mut self, ctx: &mut Context<'_, Report>, delivery: Delivery) {
        if self.begins.is_some_and(|at| at <= ctx.now()) {
            self.begins = None;
            let _ = self.correspondent.command(ctx.now(), Command::Start);
        }
        self.endpoint.feed(ctx, &mut self.correspondent, &delivery);
        let number = self.number;
        let next = self.endpoint.drain(ctx, &mut self.correspondent, |ctx, _, word| {
            let said = match word {
                EventOrJob::Event(Event::Sent { sequence, .. }) => Milestone::Sent { sequence },
                EventOrJob::Event(Event::Redirected { .. }) => Milestone::Redirected,
                EventOrJob::Job(job) => match job.what {},
            };
            ctx.report(Report::Mobile(number, said));
        });
        ctx.set_timer(earliest([next, self.begins]));
    }
}
