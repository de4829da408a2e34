//! A point of service, with the links of its access point where it hears them.

use super::super::machine::{Endpoint, EventOrJob};
use super::super::report::{Milestone, Report};
use super::super::role::{MihTotals, Role};
use super::node::heard;
use std::collections::BTreeMap;
use usher_core::Machine;
use usher_mih::MihfId;
use usher_mobility::PointOfService;
use usher_mobility::pos::{Command, Event};
use usher_sim::{Context, Delivery, HostId};

/// The mobile nodes of a run: by their identifiers their numbers, by their interfaces in the 802.11 cell their identifiers.
#[derive(Debug, Default)]
pub(super) struct Nodes {
    pub(super) numbers: BTreeMap<MihfId, u32>,
    pub(super) by_interface: BTreeMap<HostId, MihfId>,
}

/// The point of service and where it lives.
#[derive(Debug)]
pub(in super::super) struct PointRole {
    endpoint: Endpoint,
    nodes: std::rc::Rc<Nodes>,
    point: PointOfService,
}

impl PointRole {
    pub(super) fn new(endpoint: Endpoint, nodes: std::rc::Rc<Nodes>, point: PointOfService) -> Self {
        Self { endpoint, nodes, point }
    }
}

impl Role for PointRole {
    fn handle(&mut self, ctx: &mut Context<'_, Report>, delivery: Delivery) {
        let command = match &delivery {
            Delivery::Start => Some(Command::Start),
            Delivery::Link { station, event, .. } => self
                .nodes
                .by_interface
                .get(station)
                .map(|id| Command::Link { station: id.clone(), event: heard(*event) }),
            _ => None,
        };
        if let Some(command) = command {
            // What it will not hear, it counts.
            let _ = self.point.command(ctx.now(), command);
        }
        self.endpoint.feed(ctx, &mut self.point, &delivery);
        let nodes = &self.nodes;
        self.endpoint.drain(ctx, &mut self.point, |ctx, _, word| {
            if let EventOrJob::Event(Event::Step { station, step, took }) = word
                && let Some(number) = nodes.numbers.get(&station)
            {
                ctx.report(Report::Mobile(*number, Milestone::Step { step, took }));
            }
        });
    }

    fn mih_totals(&self) -> Option<MihTotals> {
        Some(MihTotals::from(self.point.mihf()))
    }
}
