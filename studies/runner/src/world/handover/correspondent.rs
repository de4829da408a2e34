//! A correspondent: sends a mobile node its flow.

use super::super::machine::{MachineEventOrJob, MachineSockets};
use super::super::report::{HandoverMilestone, RoleReport};
use super::super::role::HostRole;
use usher_core::timer::earliest_deadline;
use usher_core::{Instant, Machine};
use usher_mobility::CorrespondentNode;
use usher_mobility::correspondent::{CorrespondentCommand, CorrespondentEvent};
use usher_sim::{AppContext, AppDelivery};

/// The correspondent on its host.
#[derive(Debug)]
pub(in super::super) struct CorrespondentRole {
    endpoint: MachineSockets,
    /// The number of its mobile node.
    number: u32,
    /// Start of the flow, until it has started.
    flow_start: Option<Instant>,
    correspondent: CorrespondentNode,
}

impl CorrespondentRole {
    pub(super) fn new(
        endpoint: MachineSockets,
        number: u32,
        begins: Instant,
        correspondent: CorrespondentNode,
    ) -> Self {
        Self { endpoint, number, flow_start: Some(begins), correspondent }
    }
}

impl HostRole for CorrespondentRole {
    fn handle_delivery(&mut self, ctx: &mut AppContext<'_, RoleReport>, delivery: AppDelivery) {
        if self.flow_start.is_some_and(|at| at <= ctx.now()) {
            self.flow_start = None;
            let _ = self.correspondent.handle_command(ctx.now(), CorrespondentCommand::Start);
        }
        self.endpoint.deliver_to_machine(ctx, &mut self.correspondent, &delivery);
        let number = self.number;
        let next = self.endpoint.drain_outputs(ctx, &mut self.correspondent, |ctx, _, word| {
            let said = match word {
                MachineEventOrJob::Event(CorrespondentEvent::Sent { sequence, .. }) => {
                    HandoverMilestone::Sent { sequence }
                }
                MachineEventOrJob::Event(CorrespondentEvent::Redirected { .. }) => {
                    HandoverMilestone::Redirected
                }
                MachineEventOrJob::Job(job) => match job.job {},
            };
            ctx.report(RoleReport::Mobile(number, said));
        });
        ctx.set_timer(earliest_deadline([next, self.flow_start]));
    }
}
