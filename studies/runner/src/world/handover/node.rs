//! A mobile node: the station's machine with its two interfaces.

use super::super::machine::{MachineEventOrJob, MachineSockets};
use super::super::report::{DialogueEnd, HandoverMilestone, RoleReport};
use super::super::role::{HostRole, MihTotals};
use usher_core::{Instant, Machine};
use usher_mobility::station::{StationCommand, StationEvent};
use usher_mobility::{LinkCommand, LinkEvent, MobileStation, StationInterface};
use usher_sim::radio;
use usher_sim::{AppContext, AppDelivery, HostId};

/// The station on its host.
#[derive(Debug)]
pub(in super::super) struct MobileNodeRole {
    endpoint: MachineSockets,
    station: MobileStation,
    user: MobileStationUser,
}

/// The user of a mobile node's station.
#[derive(Debug)]
struct MobileStationUser {
    /// Its number among the mobile nodes.
    number: u32,
    /// Its interfaces: the first attachment, and the other.
    wlan: HostId,
    wimax: HostId,
    /// Start of the running handover.
    handover_started_at: Option<Instant>,
}

impl MobileNodeRole {
    pub(super) fn new(
        endpoint: MachineSockets,
        number: u32,
        wlan: HostId,
        wimax: HostId,
        station: MobileStation,
    ) -> Self {
        Self { endpoint, station, user: MobileStationUser { number, wlan, wimax, handover_started_at: None } }
    }
}

impl HostRole for MobileNodeRole {
    fn handle_delivery(&mut self, ctx: &mut AppContext<'_, RoleReport>, delivery: AppDelivery) {
        let now = ctx.now();
        let command = match &delivery {
            AppDelivery::Start => Some(StationCommand::Start),
            AppDelivery::Link { host: at, event, .. } if *at == self.user.wlan => {
                Some(StationCommand::Link {
                    interface: StationInterface::Serving,
                    event: convert_link_event(*event),
                })
            }
            AppDelivery::Link { event, .. } => Some(StationCommand::Link {
                interface: StationInterface::Target,
                event: convert_link_event(*event),
            }),
            _ => None,
        };
        if let Some(command) = command {
            // The result is ignored here, because the machine itself counts rejected commands.
            let _ = self.station.handle_command(now, command);
        }
        if let AppDelivery::Link {
            host: at, event: radio::LinkEvent::GoingDown { time_left: within }, ..
        } = &delivery
            && *at == self.user.wlan
        {
            ctx.report(RoleReport::Mobile(
                self.user.number,
                HandoverMilestone::Leaves { leave_time: now + *within },
            ));
        }
        self.endpoint.deliver_to_machine(ctx, &mut self.station, &delivery);
        let Self { endpoint, station, user, .. } = self;
        endpoint.drain_outputs(ctx, station, |ctx, _, word| match word {
            MachineEventOrJob::Event(event) => user.handle_event(ctx, event),
            MachineEventOrJob::Job(job) => match job.job {},
        });
    }

    fn mih_totals(&self) -> Option<MihTotals> {
        Some(MihTotals::from(self.station.mihf()))
    }
}

impl MobileStationUser {
    fn handle_event(&mut self, ctx: &mut AppContext<'_, RoleReport>, event: StationEvent) {
        let number = self.number;
        let mobile = |said| RoleReport::Mobile(number, said);
        match event {
            StationEvent::LinkCommand { interface, command } => {
                let at = match interface {
                    StationInterface::Serving => self.wlan,
                    StationInterface::Target => self.wimax,
                };
                ctx.link_command(at, convert_link_command(command));
            }
            StationEvent::HandoverStarted => {
                self.handover_started_at = Some(ctx.now());
                ctx.report(RoleReport::Started);
                ctx.report(mobile(HandoverMilestone::Started));
            }
            StationEvent::Step { step, duration: took } => {
                ctx.report(mobile(HandoverMilestone::Step { step, duration: took }))
            }
            StationEvent::HandoverDone { success, started_at: began, .. } => {
                self.handover_started_at = None;
                ctx.report(mobile(HandoverMilestone::Done { started_at: began, success }));
                let end = if success { DialogueEnd::Completed } else { DialogueEnd::Otherwise };
                ctx.report(RoleReport::Ended { started_at: began, end });
            }
            StationEvent::Received { sequence, .. } => {
                ctx.report(mobile(HandoverMilestone::Received { sequence }))
            }
            StationEvent::HandoverCancelled => {
                if let Some(began) = self.handover_started_at.take() {
                    ctx.report(RoleReport::Withdrawn(began));
                }
            }
            StationEvent::Registered | StationEvent::ClaimRefused { .. } => {}
        }
    }
}

/// Converts a link's event to a station's.
pub(super) fn convert_link_event(event: radio::LinkEvent) -> LinkEvent {
    match event {
        radio::LinkEvent::Detected => LinkEvent::Detected,
        radio::LinkEvent::Up => LinkEvent::Up,
        radio::LinkEvent::GoingDown { time_left: within } => LinkEvent::GoingDown { time_to_loss: within },
        radio::LinkEvent::Down(_) => LinkEvent::Down,
        radio::LinkEvent::Scanned { found } => LinkEvent::Scanned { found },
    }
}

fn convert_link_command(command: LinkCommand) -> radio::LinkCommand {
    match command {
        LinkCommand::Scan => radio::LinkCommand::Scan,
        LinkCommand::Connect => radio::LinkCommand::Connect,
        LinkCommand::Disconnect => radio::LinkCommand::Disconnect,
    }
}
