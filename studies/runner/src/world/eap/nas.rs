//! A NAS on a simulated host: the authenticator and, in studies without an access link, the station.

use super::super::machine::MachineSockets;
use super::super::report::RoleReport;
use super::super::role::HostRole;
use super::accounts::NasAccounting;
use super::station::{AbandonedStations, Supplicant};
use usher_core::timer::earliest_deadline;
use usher_core::{LinkLayerPortId, Machine, MachineInput, MachineOutput, Transmit};
use usher_nas::StationId;
use usher_nas::authenticator::{AuthenticatorEvent, NasAuthenticator};
use usher_nas::keying::KeyingCounters;
use usher_nas::station::AccessStation;
use usher_sim::{AppContext, AppDelivery};

/// The authenticator on its host.
#[derive(Debug)]
pub(in super::super) struct NasRole {
    endpoint: MachineSockets,
    nas: NasAuthenticator,
    /// The station on the NAS's own host, connected by frames in memory.
    local: Option<(AccessStation, Supplicant)>,
    abandoned_stations: AbandonedStations,
    accounts: Option<NasAccounting>,
    repeated: u64,
    buf: Vec<u8>,
}

impl NasRole {
    pub(super) fn new(
        endpoint: MachineSockets,
        nas: NasAuthenticator,
        local: Option<(AccessStation, Supplicant)>,
        given_up: AbandonedStations,
        accounts: Option<NasAccounting>,
    ) -> Self {
        Self { endpoint, nas, local, abandoned_stations: given_up, accounts, repeated: 0, buf: Vec::new() }
    }

    /// Applies the authenticator's outputs; frames go to the local station, if any.
    fn carry_out(&mut self, ctx: &mut AppContext<'_, RoleReport>) {
        // Match on the poll itself, because binding its result first would copy the whole enum.
        loop {
            match self.nas.poll_output(&mut self.buf) {
                Some(MachineOutput::Transmit(transmit)) => match (transmit, &mut self.local) {
                    (Transmit::Frame { .. }, Some((station, _))) => {
                        station.handle_input(
                            ctx.now(),
                            MachineInput::Frame { port: LinkLayerPortId(0), data: &self.buf },
                        );
                    }
                    (transmit, _) => self.endpoint.apply_transmit(ctx, &mut self.nas, transmit, &self.buf),
                },
                // A station itself reports a reject, but it cannot report that no verdict came.
                Some(MachineOutput::Event(AuthenticatorEvent::Failed {
                    station: StationId::Frame { mac, .. },
                    ..
                })) => {
                    self.abandoned_stations.borrow_mut().insert(mac);
                }
                Some(MachineOutput::Event(AuthenticatorEvent::Authenticated(login))) => {
                    self.nas.recycle_reply(login.reply);
                    if let Some(accounts) = &mut self.accounts {
                        accounts.let_in(ctx, &mut self.nas, login.station, login.name);
                    }
                }
                Some(MachineOutput::Event(event)) => {
                    if let Some(accounts) = &mut self.accounts {
                        accounts.handle_event(ctx, &mut self.nas, event);
                    }
                }
                Some(MachineOutput::Work(work)) => ctx.charge_work(work),
                Some(MachineOutput::Job(job)) => match job.job {},
                None => break,
            }
        }
    }

    /// Applies the local station's outputs and starts its due work; false if there is none. Its work costs no processor
    /// time of the NAS.
    fn serve_local_station(&mut self, ctx: &mut AppContext<'_, RoleReport>) -> bool {
        let Some((station, user)) = &mut self.local else { return false };
        let mut spoke = false;
        loop {
            loop {
                match station.poll_output(&mut self.buf) {
                    Some(MachineOutput::Transmit(_)) => {
                        spoke = true;
                        self.nas.handle_input(
                            ctx.now(),
                            MachineInput::Frame { port: LinkLayerPortId(0), data: &self.buf },
                        );
                    }
                    Some(MachineOutput::Event(event)) => user.handle_event(ctx, event),
                    Some(MachineOutput::Work(_)) => {}
                    Some(MachineOutput::Job(job)) => match job.job {},
                    None => break,
                }
            }
            if !user.start_due(ctx, station) {
                return spoke;
            }
        }
    }
}

impl HostRole for NasRole {
    fn handle_delivery(&mut self, ctx: &mut AppContext<'_, RoleReport>, delivery: AppDelivery) {
        self.endpoint.deliver_to_machine(ctx, &mut self.nas, &delivery);
        match (&mut self.local, &delivery) {
            (Some((station, _)), AppDelivery::Start) => station.set_epoch(ctx.now(), ctx.epoch()),
            (Some((station, _)), AppDelivery::Timer) => {
                station.handle_input(ctx.now(), MachineInput::Timeout)
            }
            _ => {}
        }
        if let Some(accounts) = &mut self.accounts {
            accounts.send_due_records(ctx, &mut self.nas);
        }
        loop {
            self.carry_out(ctx);
            if !self.serve_local_station(ctx) {
                break;
            }
        }
        let repeated = self.nas.radius_counters().map_or(0, |c| c.retransmissions);
        if repeated > self.repeated {
            ctx.report(RoleReport::Retransmissions(repeated - self.repeated));
            self.repeated = repeated;
        }
        let local = self
            .local
            .as_mut()
            .and_then(|(station, user)| earliest_deadline([station.poll_timeout(), user.next_due()]));
        let accounts = self.accounts.as_ref().and_then(NasAccounting::next_due);
        let tls = self.endpoint.poll_timeout();
        ctx.set_timer(earliest_deadline([self.nas.poll_timeout(), local, accounts, tls]));
    }

    fn keying_totals(&self) -> Option<KeyingCounters> {
        Some(self.nas.keying_counters())
    }
}
