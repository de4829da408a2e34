//! A station: an EAP peer behind EAPOL frames on its access link.

use super::super::machine::Place;
use super::super::{End, Report};
use super::Agenda;
use std::cell::RefCell;
use std::collections::BTreeSet;
use std::rc::Rc;
use usher_core::{Duration, Instant, Machine};
use usher_nas::MacAddress;
use usher_nas::keying::Counters;
use usher_nas::station::{Command, Credentials, Event, Station};
use usher_sim::{Context, Delivery};

/// What a station can prove itself with.
#[derive(Debug)]
pub(super) struct Proof {
    pub(super) right: Credentials,
    pub(super) wrong: Credentials,
}

/// Stations whose NAS has given up asking the AAA server: they hear an EAP-Failure that is no reject.
pub(super) type GivenUp = Rc<RefCell<BTreeSet<MacAddress>>>;

/// A station and what it has to do.
#[derive(Debug)]
pub(super) struct Supplicant {
    pub(super) station: Station,
    /// When EAP let it in, where traffic keys follow.
    pub(super) admitted: Option<Instant>,
    pub(super) agenda: Agenda,
    pub(super) identity: Vec<u8>,
    pub(super) proof: Rc<Proof>,
    pub(super) mac: MacAddress,
    pub(super) given_up: GivenUp,
    /// How long after a failure it tries again.
    pub(super) retry: Option<Duration>,
    /// When it does so.
    pub(super) retry_at: Option<Instant>,
}

impl Supplicant {
    /// Hears what the station has to say, and begins what is due.
    pub(super) fn attend(&mut self, ctx: &mut Context<'_, Report>) {
        loop {
            while let Some(event) = self.station.poll_event() {
                if let (Event::Admitted, Some(began)) = (&event, self.agenda.busy) {
                    self.admitted = Some(ctx.now());
                    ctx.report(Report::Admitted(began));
                    continue;
                }
                let admitted = self.admitted.take();
                if let (Event::Success { .. }, Some(at), Some(began)) = (&event, admitted, self.agenda.busy) {
                    ctx.report(Report::Keyed(began, ctx.now().since(at)));
                }
                self.ended(
                    ctx,
                    match event {
                        Event::Success { .. } => End::Completed,
                        Event::Failure if self.given_up.borrow_mut().remove(&self.mac) => End::Failed,
                        Event::Failure => End::Rejected,
                        Event::Timeout | Event::Unkeyed | Event::Admitted => End::Failed,
                    },
                );
            }
            let right = if self.retry_at.is_some_and(|at| at <= ctx.now()) {
                self.retry_at = None;
                self.agenda.again()
            } else {
                let Some(right) = self.agenda.begin(ctx.now()) else { return };
                ctx.report(Report::Begun);
                right
            };
            let credentials = if right { &self.proof.right } else { &self.proof.wrong }.clone();
            let command = Command::Authenticate { identity: self.identity.clone(), credentials };
            if self.station.command(ctx.now(), command).is_err() {
                self.ended(ctx, End::Failed);
            }
        }
    }

    fn ended(&mut self, ctx: &mut Context<'_, Report>, end: End) {
        if let (End::Failed, Some(pause)) = (end, self.retry) {
            self.retry_at = Some(ctx.now() + pause);
            return;
        }
        if let Some(began) = self.agenda.end(ctx.now()) {
            ctx.report(Report::Ended { began, end });
        }
    }

    /// What its exchanges of traffic keys did.
    pub(super) fn keying(&self) -> Counters {
        self.station.keying_counters()
    }

    /// When it wants to be woken.
    pub(super) fn next(&mut self) -> Option<Instant> {
        [self.station.poll_timeout(), self.agenda.next(), self.retry_at].into_iter().flatten().min()
    }
}

/// A station on a host of its own.
#[derive(Debug)]
pub(in super::super) struct StationRole {
    place: Place,
    supplicant: Supplicant,
    buf: Vec<u8>,
}

impl StationRole {
    pub(super) fn new(place: Place, supplicant: Supplicant) -> Self {
        Self { place, supplicant, buf: Vec::new() }
    }

    /// What its exchanges of traffic keys did.
    pub(in super::super) fn keying_totals(&self) -> Counters {
        self.supplicant.keying()
    }

    pub(in super::super) fn handle(&mut self, ctx: &mut Context<'_, Report>, delivery: Delivery) {
        self.place.feed(ctx, &mut self.supplicant.station, &delivery);
        self.supplicant.attend(ctx);
        self.place.drain(ctx, &mut self.supplicant.station, &mut self.buf);
        ctx.set_timer(self.supplicant.next());
    }
}
