//! A mobile node: the station's machine with its two interfaces.

use super::super::machine::{Endpoint, EventOrJob};
use super::super::report::{End, Milestone, Report};
use super::super::role::{MihTotals, Role};
use usher_core::{Instant, Machine};
use usher_mobility::station::{Command, Event};
use usher_mobility::{Interface, LinkCommand, LinkEvent, Station};
use usher_sim::radio;
use usher_sim::{Context, Delivery, HostId};

/// The station and where it lives.
#[derive(Debug)]
pub(in super::super) struct MobileRole {
    endpoint: Endpoint,
    station: Station,
    user: MobileUser,
}

/// Who is behind a mobile node's station.
#[derive(Debug)]
struct MobileUser {
    /// Its number among the mobile nodes.
    number: u32,
    /// Its interfaces: the one that it is attached by at first, and the other.
    wlan: HostId,
    wimax: HostId,
    /// When the handover that is under way began.
    began: Option<Instant>,
}

impl MobileRole {
    pub(super) fn new(
        endpoint: Endpoint,
        number: u32,
        wlan: HostId,
        wimax: HostId,
        station: Station,
    ) -> Self {
        Self { endpoint, station, user: MobileUser { number, wlan, wimax, began: None } }
    }
}

impl Role for MobileRole {
    fn handle(&mut self, ctx: &mut Context<'_, Report>, delivery: Delivery) {
        let now = ctx.now();
        let command = match &delivery {
            Delivery::Start => Some(Command::Start),
            Delivery::Link { at, event, .. } if *at == self.user.wlan => {
                Some(Command::Link { interface: Interface::Serving, event: heard(*event) })
            }
            Delivery::Link { event, .. } => {
                Some(Command::Link { interface: Interface::Target, event: heard(*event) })
            }
            _ => None,
        };
        if let Some(command) = command {
            // What it will not hear, it counts.
            let _ = self.station.command(now, command);
        }
        if let Delivery::Link { at, event: radio::LinkEvent::GoingDown { within }, .. } = &delivery
            && *at == self.user.wlan
        {
            ctx.report(Report::Mobile(self.user.number, Milestone::Leaves { at: now + *within }));
        }
        self.endpoint.feed(ctx, &mut self.station, &delivery);
        let Self { endpoint, station, user, .. } = self;
        endpoint.drain(ctx, station, |ctx, _, word| match word {
            EventOrJob::Event(event) => user.event(ctx, event),
            EventOrJob::Job(job) => match job.what {},
        });
    }

    fn mih_totals(&self) -> Option<MihTotals> {
        Some(MihTotals::from(self.station.mihf()))
    }
}

impl MobileUser {
    fn event(&mut self, ctx: &mut Context<'_, Report>, event: Event) {
        let number = self.number;
        let mobile = |said| Report::Mobile(number, said);
        match event {
            Event::LinkCommand { interface, command } => {
                let at = match interface {
                    Interface::Serving => self.wlan,
                    Interface::Target => self.wimax,
                };
                ctx.link_command(at, told(command));
            }
            Event::HandoverBegan => {
                self.began = Some(ctx.now());
                ctx.report(Report::Begun);
                ctx.report(mobile(Milestone::Begun));
            }
            Event::Step { step, took } => ctx.report(mobile(Milestone::Step { step, took })),
            Event::HandoverDone { success, began, .. } => {
                self.began = None;
                ctx.report(mobile(Milestone::Done { began, success }));
                let end = if success { End::Completed } else { End::Otherwise };
                ctx.report(Report::Ended { began, end });
            }
            Event::Received { sequence, .. } => ctx.report(mobile(Milestone::Received { sequence })),
            Event::HandoverCancelled => {
                if let Some(began) = self.began.take() {
                    ctx.report(Report::Withdrawn(began));
                }
            }
            Event::Registered | Event::ClaimRefused { .. } => {}
        }
    }
}

/// What a link says, as a station hears it.
pub(super) fn heard(event: radio::LinkEvent) -> LinkEvent {
    match event {
        radio::LinkEvent::Detected => LinkEvent::Detected,
        radio::LinkEvent::Up => LinkEvent::Up,
        radio::LinkEvent::GoingDown { within } => LinkEvent::GoingDown { within },
        radio::LinkEvent::Down(_) => LinkEvent::Down,
        radio::LinkEvent::Scanned { found } => LinkEvent::Scanned { found },
    }
}

fn told(command: LinkCommand) -> radio::LinkCommand {
    match command {
        LinkCommand::Scan => radio::LinkCommand::Scan,
        LinkCommand::Connect => radio::LinkCommand::Connect,
        LinkCommand::Disconnect => radio::LinkCommand::Disconnect,
    }
}
