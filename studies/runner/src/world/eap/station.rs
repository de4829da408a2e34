//! A station: an EAP peer that sends EAPOL frames on its access link.

use super::super::machine::{MachineEventOrJob, MachineSockets};
use super::super::report::{DialogueEnd, RoleReport};
use super::super::role::HostRole;
use super::agenda::StationLoginSchedule;
use std::cell::RefCell;
use std::collections::BTreeSet;
use std::rc::Rc;
use usher_core::timer::earliest_deadline;
use usher_core::{Duration, Instant, Machine};
use usher_nas::MacAddress;
use usher_nas::keying::KeyingCounters;
use usher_nas::station::{AccessStation, EapCredentials, StationCommand, StationEvent};
use usher_sim::{AppContext, AppDelivery};

/// The credentials of a station.
#[derive(Debug)]
pub(super) struct StationCredentials {
    pub(super) right: EapCredentials,
    pub(super) wrong: EapCredentials,
}

/// Stations whose NAS has given up on the AAA server. They receive an EAP-Failure that is not a reject.
pub(super) type AbandonedStations = Rc<RefCell<BTreeSet<MacAddress>>>;

/// The user of a station, and its schedule.
#[derive(Debug)]
pub(super) struct Supplicant {
    /// Time of the EAP success, if traffic keys follow.
    pub(super) let_in: Option<Instant>,
    /// True if the success of the running authentication was reported; it may take several attempts.
    pub(super) counted: bool,
    pub(super) agenda: StationLoginSchedule,
    pub(super) identity: Vec<u8>,
    pub(super) proof: Rc<StationCredentials>,
    pub(super) mac: MacAddress,
    pub(super) abandoned_stations: AbandonedStations,
    /// Delay from a failure to the next attempt.
    pub(super) retry: Option<Duration>,
    /// Time of the next attempt.
    pub(super) retry_at: Option<Instant>,
}

impl Supplicant {
    /// Handles a station's event.
    pub(super) fn handle_event(&mut self, ctx: &mut AppContext<'_, RoleReport>, event: StationEvent) {
        let given_up =
            event == StationEvent::Failure && self.abandoned_stations.borrow_mut().remove(&self.mac);
        match classify_attempt_end(&event, given_up) {
            None => self.report_admission(ctx),
            Some(end) => self.finish_login_attempt(ctx, end),
        }
    }

    /// Starts the work due at its station; false if none is due.
    pub(super) fn start_due(
        &mut self,
        ctx: &mut AppContext<'_, RoleReport>,
        station: &mut AccessStation,
    ) -> bool {
        let right = if self.retry_at.is_some_and(|at| at <= ctx.now()) {
            self.retry_at = None;
            self.agenda.uses_right_credentials()
        } else {
            let Some(right) = self.agenda.start_due(ctx.now()) else { return false };
            ctx.report(RoleReport::Started);
            right
        };
        let credentials = if right { &self.proof.right } else { &self.proof.wrong }.clone();
        let command = StationCommand::Authenticate { identity: self.identity.clone(), credentials };
        if station.handle_command(ctx.now(), command).is_err() {
            self.finish_authentication(ctx, DialogueEnd::Failed);
        }
        true
    }

    /// Reports the EAP success if traffic keys follow.
    fn report_admission(&mut self, ctx: &mut AppContext<'_, RoleReport>) {
        let Some(began) = self.agenda.busy else { return };
        self.let_in = Some(ctx.now());
        if !std::mem::replace(&mut self.counted, true) {
            ctx.report(RoleReport::Admitted(began));
        }
    }

    /// Ends an attempt.
    fn finish_login_attempt(&mut self, ctx: &mut AppContext<'_, RoleReport>, end: DialogueEnd) {
        let let_in = self.let_in.take();
        if let (DialogueEnd::Completed, Some(at), Some(began)) = (end, let_in, self.agenda.busy) {
            ctx.report(RoleReport::Keyed(began, ctx.now().duration_since(at)));
        }
        self.finish_authentication(ctx, end);
    }

    fn finish_authentication(&mut self, ctx: &mut AppContext<'_, RoleReport>, end: DialogueEnd) {
        if let (DialogueEnd::Failed, Some(pause)) = (end, self.retry) {
            self.retry_at = Some(ctx.now() + pause);
            return;
        }
        self.counted = false;
        if let Some(began) = self.agenda.finish_authentication(ctx.now()) {
            ctx.report(RoleReport::Ended { started_at: began, end });
        }
    }

    /// Returns the next due time.
    pub(super) fn next_due(&self) -> Option<Instant> {
        earliest_deadline([self.agenda.next_due(), self.retry_at])
    }
}

/// Returns the end of an attempt by an event; `None` if the attempt continues.
fn classify_attempt_end(event: &StationEvent, given_up: bool) -> Option<DialogueEnd> {
    Some(match event {
        StationEvent::Admitted => return None,
        StationEvent::Success { .. } => DialogueEnd::Completed,
        StationEvent::Failure if !given_up => DialogueEnd::Rejected,
        StationEvent::Failure | StationEvent::Timeout | StationEvent::Unkeyed => DialogueEnd::Failed,
    })
}

/// A station on a host of its own.
#[derive(Debug)]
pub(in super::super) struct StationRole {
    endpoint: MachineSockets,
    station: AccessStation,
    supplicant: Supplicant,
}

impl StationRole {
    pub(super) fn new(endpoint: MachineSockets, (station, supplicant): (AccessStation, Supplicant)) -> Self {
        Self { endpoint, station, supplicant }
    }
}

impl HostRole for StationRole {
    fn handle_delivery(&mut self, ctx: &mut AppContext<'_, RoleReport>, delivery: AppDelivery) {
        let Self { endpoint, station, supplicant } = self;
        endpoint.deliver_to_machine(ctx, station, &delivery);
        loop {
            endpoint.drain_outputs(ctx, station, |ctx, _, word| match word {
                MachineEventOrJob::Event(event) => supplicant.handle_event(ctx, event),
                MachineEventOrJob::Job(job) => match job.job {},
            });
            if !supplicant.start_due(ctx, station) {
                break;
            }
        }
        ctx.set_timer(earliest_deadline([station.poll_timeout(), supplicant.next_due()]));
    }

    fn keying_totals(&self) -> Option<KeyingCounters> {
        Some(self.station.keying_counters())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn to_be_let_in_is_no_end_where_keys_are_to_follow() {
        assert_eq!(classify_attempt_end(&StationEvent::Admitted, false), None);
        assert_eq!(classify_attempt_end(&StationEvent::Admitted, true), None);
        assert_eq!(
            classify_attempt_end(&StationEvent::Success { msk: None }, false),
            Some(DialogueEnd::Completed)
        );
        assert_eq!(classify_attempt_end(&StationEvent::Failure, false), Some(DialogueEnd::Rejected));
        assert_eq!(classify_attempt_end(&StationEvent::Failure, true), Some(DialogueEnd::Failed));
        for event in [StationEvent::Timeout, StationEvent::Unkeyed] {
            assert_eq!(classify_attempt_end(&event, false), Some(DialogueEnd::Failed));
        }
    }
}
