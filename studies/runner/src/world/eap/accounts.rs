//! The sessions that a NAS tells its AAA server of: one for each login, of a drawn length.

use super::super::report::Report;
use std::collections::BTreeMap;
use usher_core::timer::TimerQueue;
use usher_core::{Duration, Instant, Machine, Rng};
use usher_nas::authenticator::{Authenticator, Command, Event};
use usher_nas::{Record, RecordKind, StationId};
use usher_scenario::model;
use usher_sim::Context;

/// A session.
#[derive(Debug)]
struct Open {
    station: StationId,
    name: Vec<u8>,
    began: Instant,
    ends: Instant,
    /// Of its next record.
    number: u32,
}

/// All sessions of a NAS, and its records without an answer.
#[derive(Debug)]
pub(super) struct Accounts {
    settings: model::Accounting,
    /// Traffic keys follow an authentication, and a session begins with them.
    keyed: bool,
    /// Who was let in and waits for keys, with the names given.
    entering: BTreeMap<StationId, Vec<u8>>,
    rng: Rng,
    open: BTreeMap<u64, Open>,
    timers: TimerQueue<u64>,
    /// When each record fell due.
    waiting: BTreeMap<u64, Instant>,
    sessions: u64,
    records: u64,
}

impl Accounts {
    pub(super) fn new(settings: model::Accounting, keyed: bool, rng: Rng) -> Self {
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
        ctx: &mut Context<'_, Report>,
        nas: &mut Authenticator,
        station: StationId,
        name: Vec<u8>,
    ) {
        if self.keyed {
            self.entering.insert(station, name);
        } else {
            self.begin(ctx, nas, station, name);
        }
    }

    /// Hears what else the authenticator has to say.
    pub(super) fn hear(&mut self, ctx: &mut Context<'_, Report>, nas: &mut Authenticator, event: Event) {
        match event {
            Event::Keyed { station } => {
                if let Some(name) = self.entering.remove(&station) {
                    self.begin(ctx, nas, station, name);
                }
            }
            Event::Ended { station, .. } => {
                self.entering.remove(&station);
            }
            Event::Accounted { token, kept } => self.ended(ctx, token, kept),
            _ => {}
        }
    }

    /// A station's session begins.
    fn begin(
        &mut self,
        ctx: &mut Context<'_, Report>,
        nas: &mut Authenticator,
        station: StationId,
        name: Vec<u8>,
    ) {
        let (id, now) = (self.sessions, ctx.now());
        self.sessions += 1;
        let ends = now + self.settings.session.draw(&mut self.rng);
        self.open.insert(id, Open { station, name, began: now, ends, number: 0 });
        self.tell(ctx, nas, id, RecordKind::Start);
    }

    /// Does what is due.
    pub(super) fn expire(&mut self, ctx: &mut Context<'_, Report>, nas: &mut Authenticator) {
        while let Some((at, id)) = self.timers.pop_due(ctx.now()) {
            let over = self.open.get(&id).is_some_and(|open| open.ends <= at);
            self.tell(ctx, nas, id, if over { RecordKind::Stop } else { RecordKind::Interim });
        }
    }

    /// Sends a session's next record, and sees to the one after.
    fn tell(&mut self, ctx: &mut Context<'_, Report>, nas: &mut Authenticator, id: u64, kind: RecordKind) {
        let now = ctx.now();
        let Some(open) = self.open.get_mut(&id) else { return };
        let record = Record {
            name: open.name.clone(),
            lasted: now.since(open.began),
            ..Record::new(kind, open.station, format!("{id:016x}"), open.number)
        };
        open.number += 1;
        if kind == RecordKind::Stop {
            self.open.remove(&id);
        } else {
            let interim = self.settings.interim.get().map_or(Duration::MAX, |time| time.get());
            self.timers.insert(open.ends.min(now + interim), id);
        }
        ctx.report(Report::Record);
        let token = self.records;
        self.records += 1;
        // What cannot be sent now is as good as sent to nobody.
        if nas.command(now, Command::Account { token, record }).is_ok() {
            self.waiting.insert(token, now);
        } else {
            ctx.report(Report::Recorded { due: now, kept: None });
        }
    }

    /// A record has its end.
    fn ended(&mut self, ctx: &mut Context<'_, Report>, token: u64, kept: bool) {
        let Some(due) = self.waiting.remove(&token) else { return };
        let late = ctx.now().since(due) > self.settings.late.get();
        ctx.report(Report::Recorded { due, kept: kept.then_some(late) });
    }

    /// When something falls due next.
    pub(super) fn next(&self) -> Option<Instant> {
        self.timers.next()
    }
}
