//! A point of service, with the link events of its access point if it receives them.

use super::super::machine::{MachineEventOrJob, MachineSockets};
use super::super::report::{HandoverMilestone, RoleReport};
use super::super::role::{HostRole, MihTotals};
use super::node::convert_link_event;
use std::collections::BTreeMap;
use usher_core::Machine;
use usher_mih::MihfId;
use usher_mobility::PointOfService;
use usher_mobility::pos::{PosCommand, PosEvent};
use usher_sim::{AppContext, AppDelivery, HostId};

/// The mobile nodes of a run: numbers by identifier, and identifiers by interface in the 802.11 cell.
#[derive(Debug, Default)]
pub(super) struct MobileNodeMap {
    pub(super) numbers: BTreeMap<MihfId, u32>,
    pub(super) by_interface: BTreeMap<HostId, MihfId>,
}

/// The point of service on its host.
#[derive(Debug)]
pub(in super::super) struct PointOfServiceRole {
    endpoint: MachineSockets,
    nodes: std::rc::Rc<MobileNodeMap>,
    point: PointOfService,
}

impl PointOfServiceRole {
    pub(super) fn new(
        endpoint: MachineSockets,
        nodes: std::rc::Rc<MobileNodeMap>,
        point: PointOfService,
    ) -> Self {
        Self { endpoint, nodes, point }
    }
}

impl HostRole for PointOfServiceRole {
    fn handle_delivery(&mut self, ctx: &mut AppContext<'_, RoleReport>, delivery: AppDelivery) {
        let command = match &delivery {
            AppDelivery::Start => Some(PosCommand::Start),
            AppDelivery::Link { station, event, .. } => self
                .nodes
                .by_interface
                .get(station)
                .map(|id| PosCommand::Link { station: id.clone(), event: convert_link_event(*event) }),
            _ => None,
        };
        if let Some(command) = command {
            // The result is ignored here, because the machine itself counts rejected commands.
            let _ = self.point.handle_command(ctx.now(), command);
        }
        self.endpoint.deliver_to_machine(ctx, &mut self.point, &delivery);
        let nodes = &self.nodes;
        self.endpoint.drain_outputs(ctx, &mut self.point, |ctx, _, word| {
            if let MachineEventOrJob::Event(PosEvent::Step { station, step, duration: took }) = word
                && let Some(number) = nodes.numbers.get(&station)
            {
                ctx.report(RoleReport::Mobile(*number, HandoverMilestone::Step { step, duration: took }));
            }
        });
    }

    fn mih_totals(&self) -> Option<MihTotals> {
        Some(MihTotals::from(self.point.mihf()))
    }
}
