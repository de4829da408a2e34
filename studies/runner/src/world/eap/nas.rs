//! A NAS on a simulated host: the authenticator, and where the study has no access link, the station too.

use super::super::machine::Endpoint;
use super::super::report::Report;
use super::super::role::Role;
use super::accounts::Accounts;
use super::station::{GivenUp, Supplicant};
use usher_core::timer::earliest;
use usher_core::{Input, Machine, Output, PortId, Transmit};
use usher_nas::StationId;
use usher_nas::authenticator::{Authenticator, Event};
use usher_nas::keying::Counters;
use usher_nas::station::Station;
use usher_sim::{Context, Delivery};

/// The authenticator and where it lives.
#[derive(Debug)]
pub(in super::super) struct NasRole {
    endpoint: Endpoint,
    nas: Authenticator,
    /// The station in the NAS's own host, joined with it by frames in memory.
    local: Option<(Station, Supplicant)>,
    given_up: GivenUp,
    accounts: Option<Accounts>,
    repeated: u64,
    buf: Vec<u8>,
}

impl NasRole {
    pub(super) fn new(
        endpoint: Endpoint,
        nas: Authenticator,
        local: Option<(Station, Supplicant)>,
        given_up: GivenUp,
        accounts: Option<Accounts>,
    ) -> Self {
        Self { endpoint, nas, local, given_up, accounts, repeated: 0, buf: Vec::new() }
    }

    /// Carries out what the authenticator decided; frames go to the station in its own host, where there is one.
    fn carry_out(&mut self, ctx: &mut Context<'_, Report>) {
        // Matched where it comes from: its first move would be a copy of all that it could be.
        loop {
            match self.nas.poll_output(&mut self.buf) {
                Some(Output::Transmit(transmit)) => match (transmit, &mut self.local) {
                    (Transmit::Frame { .. }, Some((station, _))) => {
                        station.handle(ctx.now(), Input::Frame { port: PortId(0), data: &self.buf });
                    }
                    (transmit, _) => self.endpoint.transmit(ctx, &mut self.nas, transmit, &self.buf),
                },
                // Verdicts show at the stations; that there was none does not.
                Some(Output::Event(Event::Failed { station: StationId::Frame { mac, .. }, .. })) => {
                    self.given_up.borrow_mut().insert(mac);
                }
                Some(Output::Event(Event::Authenticated(login))) => {
                    self.nas.recycle(login.reply);
                    if let Some(accounts) = &mut self.accounts {
                        accounts.let_in(ctx, &mut self.nas, login.station, login.name);
                    }
                }
                Some(Output::Event(event)) => {
                    if let Some(accounts) = &mut self.accounts {
                        accounts.hear(ctx, &mut self.nas, event);
                    }
                }
                Some(Output::Work(work)) => ctx.work(work),
                Some(Output::Job(job)) => match job.what {},
                None => break,
            }
        }
    }

    /// Carries out what the station in its own host decided, and begins what is due there; false where it is silent. What
    /// it does costs the authenticator's processor nothing.
    fn attend(&mut self, ctx: &mut Context<'_, Report>) -> bool {
        let Some((station, user)) = &mut self.local else { return false };
        let mut spoke = false;
        loop {
            loop {
                match station.poll_output(&mut self.buf) {
                    Some(Output::Transmit(_)) => {
                        spoke = true;
                        self.nas.handle(ctx.now(), Input::Frame { port: PortId(0), data: &self.buf });
                    }
                    Some(Output::Event(event)) => user.hear(ctx, event),
                    Some(Output::Work(_)) => {}
                    Some(Output::Job(job)) => match job.what {},
                    None => break,
                }
            }
            if !user.begin(ctx, station) {
                return spoke;
            }
        }
    }
}

impl Role for NasRole {
    fn handle(&mut self, ctx: &mut Context<'_, Report>, delivery: Delivery) {
        self.endpoint.feed(ctx, &mut self.nas, &delivery);
        match (&mut self.local, &delivery) {
            (Some((station, _)), Delivery::Start) => station.set_epoch(ctx.now(), ctx.epoch()),
            (Some((station, _)), Delivery::Timer) => station.handle(ctx.now(), Input::Timeout),
            _ => {}
        }
        if let Some(accounts) = &mut self.accounts {
            accounts.expire(ctx, &mut self.nas);
        }
        loop {
            self.carry_out(ctx);
            if !self.attend(ctx) {
                break;
            }
        }
        let repeated = self.nas.radius_counters().map_or(0, |c| c.retransmissions);
        if repeated > self.repeated {
            ctx.report(Report::Retransmissions(repeated - self.repeated));
            self.repeated = repeated;
        }
        let local =
            self.local.as_mut().and_then(|(station, user)| earliest([station.poll_timeout(), user.next()]));
        let accounts = self.accounts.as_ref().and_then(Accounts::next);
        let tls = self.endpoint.poll_timeout();
        ctx.set_timer(earliest([self.nas.poll_timeout(), local, accounts, tls]));
    }

    fn keying_totals(&self) -> Option<Counters> {
        Some(self.nas.keying_counters())
    }
}
