//! Routers whose processors are charged for forwarding.

use super::error::ScenarioRunError;
use super::plan::NetworkPlan;
use super::report::RoleReport;
use super::role::HostRole;
use super::topology::NetworkTopology;
use usher_core::WorkRecord;
use usher_scenario::work::FORWARD;
use usher_sim::{AppContext, AppDelivery};

/// Forwards each packet after its processor had time for it.
#[derive(Debug)]
struct RouterRole;

impl HostRole for RouterRole {
    fn handle_delivery(&mut self, ctx: &mut AppContext<'_, RoleReport>, delivery: AppDelivery) {
        if let AppDelivery::Transit { packet, .. } = delivery {
            ctx.charge_work(WorkRecord { label: FORWARD, units: 1 });
            ctx.forward_packet(packet);
        }
    }
}

/// Places a router on each host that is charged for forwarding and is not a concentrator.
pub(super) fn place_routers(
    plan: &mut NetworkPlan<'_>,
    topology: &NetworkTopology,
) -> Result<(), ScenarioRunError> {
    for (name, host) in plan.scenario.hosts.iter() {
        let charged = host.cpu.as_ref().is_some_and(|cpu| cpu.service.get(FORWARD.name()).is_some());
        if !charged || plan.scenario.concentrator_service(name).is_some() {
            continue;
        }
        for &host in topology.host_group(name)? {
            let app = plan.builder.add_application(host, Box::new(RouterRole), None);
            plan.builder.deliver_transit_to(app);
        }
    }
    Ok(())
}
