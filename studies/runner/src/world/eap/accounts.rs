//! The sessions that a NAS tells its AAA server of: one for each login, of a drawn length.

use super::super::report::RoleReport;
use std::collections::BTreeMap;
use usher_core::timer::TimerQueue;
use usher_core::{Duration, Instant, Machine, ModelRng};
use usher_nas::authenticator::{AuthenticatorCommand, AuthenticatorEvent, NasAuthenticator};
use usher_nas::{RecordKind, StationId, StationRecord};
use usher_scenario::model;
use usher_sim::AppContext;

/// A session.
#[derive(Debug)]
struct AccountedSession {
    station: StationId,
    name: Vec<u8>,
    started_at: Instant,
    ends: Instant,
    /// Of its next record.
    number: u32,
}

/// All sessions of a NAS, and its records without an answer.
#[derive(Debug)]
pub(super) struct NasAccounting {
    settings: model::AccountingSettings,
    /// Traffic keys follow an authentication, and a session begins with them.
    keyed: bool,
    /// Who was let in and waits for keys, with the names given.
    entering: BTreeMap<StationId, Vec<u8>>,
    rng: ModelRng,
    open: BTreeMap<u64, AccountedSession>,
    timers: TimerQueue<u64>,
    /// When each record fell due.
    waiting: BTreeMap<u64, Instant>,
    sessions: u64,
    records: u64,
}

impl NasAccounting {
    pub(super) fn new(settings: model::AccountingSettings, keyed: bool, rng: ModelRng) -> Self {
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

    /// A station has been let in.
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

    /// Hears what else the authenticator has to say.
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

    /// A station's session begins.
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
        self.send_record(ctx, nas, id, RecordKind::Start);
    }

    /// Does what is due.
    pub(super) fn send_due_records(
        &mut self,
        ctx: &mut AppContext<'_, RoleReport>,
        nas: &mut NasAuthenticator,
    ) {
        while let Some((at, id)) = self.timers.pop_due(ctx.now()) {
            let over = self.open.get(&id).is_some_and(|open| open.ends <= at);
            self.send_record(ctx, nas, id, if over { RecordKind::Stop } else { RecordKind::Interim });
        }
    }

    /// Sends a session's next record, and sees to the one after.
    fn send_record(
        &mut self,
        ctx: &mut AppContext<'_, RoleReport>,
        nas: &mut NasAuthenticator,
        id: u64,
        kind: RecordKind,
    ) {
        let now = ctx.now();
        let Some(open) = self.open.get_mut(&id) else { return };
        let record = StationRecord {
            name: open.name.clone(),
            lasted: now.duration_since(open.started_at),
            ..StationRecord::new(kind, open.station, format!("{id:016x}"), open.number)
        };
        open.number += 1;
        if kind == RecordKind::Stop {
            self.open.remove(&id);
        } else {
            let interim = self.settings.interim.get().map_or(Duration::MAX, |time| time.get());
            self.timers.insert(open.ends.min(now + interim), id);
        }
        ctx.report(RoleReport::Record);
        let token = self.records;
        self.records += 1;
        // What cannot be sent now is as good as sent to nobody.
        if nas.handle_command(now, AuthenticatorCommand::Account { token, record }).is_ok() {
            self.waiting.insert(token, now);
        } else {
            ctx.report(RoleReport::Recorded { due: now, acknowledged_late: None });
        }
    }

    /// A record has its end.
    fn finish_record(&mut self, ctx: &mut AppContext<'_, RoleReport>, token: u64, kept: bool) {
        let Some(due) = self.waiting.remove(&token) else { return };
        let late = ctx.now().duration_since(due) > self.settings.late.get();
        ctx.report(RoleReport::Recorded { due, acknowledged_late: kept.then_some(late) });
    }

    /// When something falls due next.
    pub(super) fn next_due(&self) -> Option<Instant> {
        self.timers.next_deadline()
    }
}
