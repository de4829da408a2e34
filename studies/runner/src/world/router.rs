//! Routers whose processors are charged for what they forward.

use super::error::WorldError;
use super::plan::Plan;
use super::report::Report;
use super::role::Role;
use super::topology::Topology;
use usher_core::Work;
use usher_scenario::work::FORWARD;
use usher_sim::{Context, Delivery};

/// Forwards each packet once its processor had time for it.
#[derive(Debug)]
struct RouterRole;

impl Role for RouterRole {
    fn handle(&mut self, ctx: &mut Context<'_, Report>, delivery: Delivery) {
        if let Delivery::Transit { packet, .. } = delivery {
            ctx.work(Work { label: FORWARD, units: 1 });
            ctx.forward(packet);
        }
    }
}

/// Puts a router on each host that is charged for forwarding and does not do it as a concentrator.
pub(super) fn serve(plan: &mut Plan<'_>, topology: &Topology) -> Result<(), WorldError> {
    for (name, host) in plan.scenario.hosts.iter() {
        let charged = host.cpu.as_ref().is_some_and(|cpu| cpu.service.get(FORWARD.name()).is_some());
        if !charged || plan.scenario.concentrator_service(name).is_some() {
            continue;
        }
        for &host in topology.group(name)? {
            let app = plan.builder.app(host, Box::new(RouterRole), None);
            plan.builder.take_transit(app);
        }
    }
    Ok(())
}
