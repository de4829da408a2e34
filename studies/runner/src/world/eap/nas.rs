//! A NAS on a simulated host: the authenticator, and where the study has no access link, the station too.

use super::super::Report;
use super::super::machine::Place;
use super::accounts::Accounts;
use super::station::{GivenUp, Supplicant};
use usher_core::{Input, Machine, PortId, Transmit};
use usher_nas::StationId;
use usher_nas::authenticator::{Authenticator, Event};
use usher_nas::keying::Counters;
use usher_sim::{Context, Delivery};

/// The authenticator and where it lives.
#[derive(Debug)]
pub(in super::super) struct NasRole {
    place: Place,
    nas: Authenticator,
    /// The station in the NAS's own host, joined with it by frames in memory.
    local: Option<Supplicant>,
    given_up: GivenUp,
    accounts: Option<Accounts>,
    repeated: u64,
    buf: Vec<u8>,
}

impl NasRole {
    pub(super) fn new(
        place: Place,
        nas: Authenticator,
        local: Option<Supplicant>,
        given_up: GivenUp,
        accounts: Option<Accounts>,
    ) -> Self {
        Self { place, nas, local, given_up, accounts, repeated: 0, buf: Vec::new() }
    }

    /// What its exchanges of traffic keys did; a station in its own host has none.
    pub(in super::super) fn keying_totals(&self) -> Counters {
        self.nas.keying_counters()
    }

    pub(in super::super) fn handle(&mut self, ctx: &mut Context<'_, Report>, delivery: Delivery) {
        self.place.feed(ctx, &mut self.nas, &delivery);
        if let Some(local) = &mut self.local
            && matches!(delivery, Delivery::Timer)
        {
            local.station.handle(ctx.now(), Input::Timeout);
        }
        if let Some(accounts) = &mut self.accounts {
            accounts.expire(ctx, &mut self.nas);
        }
        loop {
            while let Some(event) = self.nas.poll_event() {
                // Verdicts show at the stations; that there was none does not.
                if let Event::Failed { station: StationId::Frame { mac, .. }, .. } = event {
                    self.given_up.borrow_mut().insert(mac);
                } else if let Some(accounts) = &mut self.accounts {
                    accounts.hear(ctx, &mut self.nas, event);
                }
            }
            if let Some(local) = &mut self.local {
                local.attend(ctx);
                if let Some(Transmit::Frame { .. }) = local.station.poll_transmit(ctx.now(), &mut self.buf) {
                    self.nas.handle(ctx.now(), Input::Frame { port: PortId(0), data: &self.buf });
                    continue;
                }
            }
            match (self.nas.poll_transmit(ctx.now(), &mut self.buf), &mut self.local) {
                (None, _) => break,
                (Some(Transmit::Frame { .. }), Some(local)) => {
                    let frame = Input::Frame { port: PortId(0), data: &self.buf };
                    local.station.handle(ctx.now(), frame);
                }
                (Some(transmit), _) => self.place.transmit(ctx, &mut self.nas, transmit, &self.buf),
            }
        }
        while let Some(work) = self.nas.poll_work() {
            ctx.work(work);
        }
        let repeated = self.nas.radius_counters().map_or(0, |c| c.retransmissions);
        if repeated > self.repeated {
            ctx.report(Report::Retransmissions(repeated - self.repeated));
            self.repeated = repeated;
        }
        let local = self.local.as_mut().and_then(Supplicant::next);
        let accounts = self.accounts.as_ref().and_then(Accounts::next);
        ctx.set_timer([self.nas.poll_timeout(), local, accounts].into_iter().flatten().min());
    }
}
