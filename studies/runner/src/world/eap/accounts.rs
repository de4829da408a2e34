//! Sessions that a NAS reports to its AAA server: one for each login, of random length.

use super::super::report::RoleReport;
use std::collections::BTreeMap;
use usher_core::timer::TimerQueue;
use usher_core::{Duration, Instant, Machine, SimulationRng};
use usher_nas::authenticator::{AuthenticatorCommand, AuthenticatorEvent, NasAuthenticator};
use usher_nas::{AccountingRecordKind, StationAccountingRecord, StationId};
use usher_scenario::model;
use usher_sim::AppContext;

/// A session.
#[derive(Debug)]
struct AccountedSession {
    station: StationId,
    name: Vec<u8>,
    started_at: Instant,
    ends: Instant,
    /// The number of its next record.
    number: u32,
}

/// All sessions of a NAS, and its unacknowledged records.
#[derive(Debug)]
pub(super) struct NasAccounting {
    settings: model::AccountingSettings,
    /// True if the session begins with the traffic keys that follow an authentication.
    keyed: bool,
    /// Accepted stations that wait for keys, with their names.
    entering: BTreeMap<StationId, Vec<u8>>,
    rng: SimulationRng,
    open: BTreeMap<u64, AccountedSession>,
    timers: TimerQueue<u64>,
    /// The due time of each record.
    waiting: BTreeMap<u64, Instant>,
    sessions: u64,
    records: u64,
}

impl NasAccounting {
    pub(super) fn new(settings: model::AccountingSettings, keyed: bool, rng: SimulationRng) -> Self {
        Self {
            settings,
            keyed,
            entering: BTreeMap::new(),
            rng,
            open: BTreeMap::new(),
            timers: TimerQueue::new(),
            waiting: BTreeMap::new(),
            sessions: 0,
            records: 0,
        }
    }

    /// Handles the accept of a station.
    pub(super) fn let_in(
        &mut self,
        ctx: &mut AppContext<'_, RoleReport>,
        nas: &mut NasAuthenticator,
        station: StationId,
        name: Vec<u8>,
    ) {
        if self.keyed {
            self.entering.insert(station, name);
        } else {
            self.start_session(ctx, nas, station, name);
        }
    }

    /// Handles the authenticator's other events.
    pub(super) fn handle_event(
        &mut self,
        ctx: &mut AppContext<'_, RoleReport>,
        nas: &mut NasAuthenticator,
        event: AuthenticatorEvent,
    ) {
        match event {
            AuthenticatorEvent::Keyed { station } => {
                if let Some(name) = self.entering.remove(&station) {
                    self.start_session(ctx, nas, station, name);
                }
            }
            AuthenticatorEvent::Ended { station, .. } => {
                self.entering.remove(&station);
            }
            AuthenticatorEvent::Accounted { token, is_acknowledged: kept } => {
                self.finish_record(ctx, token, kept)
            }
            _ => {}
        }
    }

    /// Begins a station's session.
    fn start_session(
        &mut self,
        ctx: &mut AppContext<'_, RoleReport>,
        nas: &mut NasAuthenticator,
        station: StationId,
        name: Vec<u8>,
    ) {
        let (id, now) = (self.sessions, ctx.now());
        self.sessions += 1;
        let ends = now + self.settings.session.draw_time(&mut self.rng);
        self.open.insert(id, AccountedSession { station, name, started_at: now, ends, number: 0 });
        self.send_record(ctx, nas, id, AccountingRecordKind::Start);
    }

    /// Sends the records that are due.
    pub(super) fn send_due_records(
        &mut self,
        ctx: &mut AppContext<'_, RoleReport>,
        nas: &mut NasAuthenticator,
    ) {
        while let Some((at, id)) = self.timers.pop_due(ctx.now()) {
            let over = self.open.get(&id).is_some_and(|open| open.ends <= at);
            self.send_record(
                ctx,
                nas,
                id,
                if over { AccountingRecordKind::Stop } else { AccountingRecordKind::Interim },
            );
        }
    }

    /// Sends a session's next record and schedules the one after.
    fn send_record(
        &mut self,
        ctx: &mut AppContext<'_, RoleReport>,
        nas: &mut NasAuthenticator,
        id: u64,
        kind: AccountingRecordKind,
    ) {
        let now = ctx.now();
        let Some(open) = self.open.get_mut(&id) else { return };
        let record = StationAccountingRecord {
            name: open.name.clone(),
            lasted: now.duration_since(open.started_at),
            ..StationAccountingRecord::new(kind, open.station, format!("{id:016x}"), open.number)
        };
        open.number += 1;
        if kind == AccountingRecordKind::Stop {
            self.open.remove(&id);
        } else {
            let interim = self.settings.interim.get().map_or(Duration::MAX, |time| time.get());
            self.timers.insert(open.ends.min(now + interim), id);
        }
        ctx.report(RoleReport::Record);
        let token = self.records;
        self.records += 1;
        // A record that cannot be sent now counts as lost.
        if nas.handle_command(now, AuthenticatorCommand::Account { token, record }).is_ok() {
            self.waiting.insert(token, now);
        } else {
            ctx.report(RoleReport::Recorded { due: now, acknowledged_late: None });
        }
    }

    /// Ends a record: acknowledged or lost.
    fn finish_record(&mut self, ctx: &mut AppContext<'_, RoleReport>, token: u64, kept: bool) {
        let Some(due) = self.waiting.remove(&token) else { return };
        let late = ctx.now().duration_since(due) > self.settings.late.get();
        ctx.report(RoleReport::Recorded { due, acknowledged_late: kept.then_some(late) });
    }

    /// Returns the next due time.
    pub(super) fn next_due(&self) -> Option<Instant> {
        self.timers.next_deadline()
    }
}
