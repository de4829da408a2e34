//! A station: an EAP peer behind EAPOL frames on its access link.

use super::super::machine::{Endpoint, EventOrJob};
use super::super::report::{End, Report};
use super::super::role::Role;
use super::agenda::Agenda;
use std::cell::RefCell;
use std::collections::BTreeSet;
use std::rc::Rc;
use usher_core::timer::earliest;
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

/// Who is behind a station, and what it has to do.
#[derive(Debug)]
pub(super) struct Supplicant {
    /// When EAP let it in, where traffic keys follow.
    pub(super) let_in: Option<Instant>,
    /// That was told of the authentication under way, which may take several tries.
    pub(super) counted: bool,
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
    /// Hears what the station says.
    pub(super) fn hear(&mut self, ctx: &mut Context<'_, Report>, event: Event) {
        let given_up = event == Event::Failure && self.given_up.borrow_mut().remove(&self.mac);
        match end(&event, given_up) {
            None => self.admitted(ctx),
            Some(end) => self.over(ctx, end),
        }
    }

    /// Begins what is due at its station; false where nothing is.
    pub(super) fn begin(&mut self, ctx: &mut Context<'_, Report>, station: &mut Station) -> bool {
        let right = if self.retry_at.is_some_and(|at| at <= ctx.now()) {
            self.retry_at = None;
            self.agenda.again()
        } else {
            let Some(right) = self.agenda.begin(ctx.now()) else { return false };
            ctx.report(Report::Begun);
            right
        };
        let credentials = if right { &self.proof.right } else { &self.proof.wrong }.clone();
        let command = Command::Authenticate { identity: self.identity.clone(), credentials };
        if station.command(ctx.now(), command).is_err() {
            self.ended(ctx, End::Failed);
        }
        true
    }

    /// EAP has let it in, and traffic keys are to follow.
    fn admitted(&mut self, ctx: &mut Context<'_, Report>) {
        let Some(began) = self.agenda.busy else { return };
        self.let_in = Some(ctx.now());
        if !std::mem::replace(&mut self.counted, true) {
            ctx.report(Report::Admitted(began));
        }
    }

    /// A try has its end.
    fn over(&mut self, ctx: &mut Context<'_, Report>, end: End) {
        let let_in = self.let_in.take();
        if let (End::Completed, Some(at), Some(began)) = (end, let_in, self.agenda.busy) {
            ctx.report(Report::Keyed(began, ctx.now().since(at)));
        }
        self.ended(ctx, end);
    }

    fn ended(&mut self, ctx: &mut Context<'_, Report>, end: End) {
        if let (End::Failed, Some(pause)) = (end, self.retry) {
            self.retry_at = Some(ctx.now() + pause);
            return;
        }
        self.counted = false;
        if let Some(began) = self.agenda.end(ctx.now()) {
            ctx.report(Report::Ended { began, end });
        }
    }

    /// When it wants to be woken.
    pub(super) fn next(&self) -> Option<Instant> {
        earliest([self.agenda.next(), self.retry_at])
    }
}

/// How an event ends a try; `None`: it goes on.
fn end(event: &Event, given_up: bool) -> Option<End> {
    Some(match event {
        Event::Admitted => return None,
        Event::Success { .. } => End::Completed,
        Event::Failure if !given_up => End::Rejected,
        Event::Failure | Event::Timeout | Event::Unkeyed => End::Failed,
    })
}

/// A station on a host of its own.
#[derive(Debug)]
pub(in super::super) struct StationRole {
    endpoint: Endpoint,
    station: Station,
    supplicant: Supplicant,
}

impl StationRole {
    pub(super) fn new(endpoint: Endpoint, (station, supplicant): (Station, Supplicant)) -> Self {
        Self { endpoint, station, supplicant }
    }
}

impl Role for StationRole {
    fn handle(&mut self, ctx: &mut Context<'_, Report>, delivery: Delivery) {
        let Self { endpoint, station, supplicant } = self;
        endpoint.feed(ctx, station, &delivery);
        loop {
            endpoint.drain(ctx, station, |ctx, _, word| match word {
                EventOrJob::Event(event) => supplicant.hear(ctx, event),
                EventOrJob::Job(job) => match job.what {},
            });
            if !supplicant.begin(ctx, station) {
                break;
            }
        }
        ctx.set_timer(earliest([station.poll_timeout(), supplicant.next()]));
    }

    fn keying_totals(&self) -> Option<Counters> {
        Some(self.station.keying_counters())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn to_be_let_in_is_no_end_where_keys_are_to_follow() {
        assert_eq!(end(&Event::Admitted, false), None);
        assert_eq!(end(&Event::Admitted, true), None);
        assert_eq!(end(&Event::Success { msk: None }, false), Some(End::Completed));
        assert_eq!(end(&Event::Failure, false), Some(End::Rejected));
        assert_eq!(end(&Event::Failure, true), Some(End::Failed));
        for event in [Event::Timeout, Event::Unkeyed] {
            assert_eq!(end(&event, false), Some(End::Failed));
        }
    }
}
