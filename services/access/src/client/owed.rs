//! Records of accounting that no server has acknowledged yet: they are kept, and sent again for long (RFC 2866 §2: "it is recommended
//! that the client continue attempting to send the Accounting-Request packet until it receives an acknowledgement").

use super::{Event, Failure};
use crate::{Record, RecordKind};
use alloc::borrow::ToOwned;
use alloc::collections::{BTreeMap, VecDeque};
use alloc::string::String;
use alloc::vec::Vec;
use usher_core::timer::{TimerQueue, earliest};
use usher_core::{Duration, Instant};
use usher_diameter::node;
use usher_radius::attribute::Attributes;

/// How long records of accounting are sent again, and how many wait.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Patience {
    /// From when a record was made until it is given up (MRD, RFC 5080 §2.2.1).
    pub lasts: Duration,
    /// Records that wait at most; beyond that the oldest is given up.
    pub most: usize,
}

impl Default for Patience {
    /// A day, 65,536 records.
    fn default() -> Self {
        Self { lasts: Duration::from_secs(86_400), most: 65_536 }
    }
}

/// Records under way at a time: they leave half of what RadSec's connections carry (8 × 255) to logins.
const UNDER_WAY: usize = 1024;
/// How long a record that was not answered rests at first, and at most; twice as long each time between.
const REST: Duration = Duration::from_secs(1);
const LONGEST_REST: Duration = Duration::from_secs(60);

/// A record as its protocol sends it.
#[derive(Clone, Debug)]
pub(super) enum Told {
    Radius(Attributes),
    Diameter(super::nodes::NodeId, node::Request),
}

/// How far a record is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum State {
    /// Another of its session, which was made before it, has no answer yet.
    Behind,
    /// It is sent then.
    Due(Instant),
    UnderWay,
}

#[derive(Debug)]
struct One {
    session: String,
    kind: RecordKind,
    made: Instant,
    told: Told,
    state: State,
    /// How often nobody answered.
    failures: u32,
}

/// Records without an answer, by their tokens, which ascend.
#[derive(Debug)]
pub(super) struct Owed {
    patience: Patience,
    all: BTreeMap<u64, One>,
    /// Those of each session, in their order.
    sessions: BTreeMap<String, VecDeque<u64>>,
    due: TimerQueue<u64>,
    old: TimerQueue<u64>,
    under_way: usize,
    /// What became of records, until it is said.
    said: VecDeque<Event>,
}

impl Owed {
    pub(super) fn new(patience: Patience) -> Self {
        Self {
            patience,
            all: BTreeMap::new(),
            sessions: BTreeMap::new(),
            due: TimerQueue::new(),
            old: TimerQueue::new(),
            under_way: 0,
            said: VecDeque::new(),
        }
    }

    /// A record is to be sent. Gives those under way that it takes the place of, or has no room beside: nobody is to wait for their
    /// answers.
    pub(super) fn add(&mut self, now: Instant, token: u64, record: &Record<'_>, told: Told) -> Vec<u64> {
        let mut dropped = Vec::new();
        // What an interim record says is cumulative: of one session no two are sent again (RFC 2869 §2.1).
        if matches!(record.kind, RecordKind::Interim | RecordKind::Stop) {
            let before = self.sessions.get(record.session).into_iter().flatten().copied();
            let interim =
                |token: &u64| self.all.get(token).is_some_and(|one| one.kind == RecordKind::Interim);
            for old in before.filter(interim).collect::<Vec<_>>() {
                self.end(now, old, Ok(()), &mut dropped);
            }
        }
        if self.all.len() >= self.patience.most
            && let Some(oldest) = self.all.keys().next().copied()
        {
            self.end(now, oldest, Err(Failure::Unavailable), &mut dropped);
        }
        let session = record.session.to_owned();
        let of = self.sessions.entry(session.clone()).or_default();
        of.push_back(token);
        let first = of.len() == 1;
        let one = One { session, kind: record.kind, made: now, told, state: State::Behind, failures: 0 };
        self.all.insert(token, one);
        self.old.insert(now + self.patience.lasts, token);
        if first {
            self.put_off(token, now);
        }
        dropped
    }

    fn put_off(&mut self, token: u64, until: Instant) {
        if let Some(one) = self.all.get_mut(&token) {
            one.state = State::Due(until);
            self.due.insert(until, token);
        }
    }

    /// A record has its end, which is said; where it is under way nobody is to wait for its answer.
    fn end(&mut self, now: Instant, token: u64, kept: Result<(), Failure>, dropped: &mut Vec<u64>) {
        if self.remove(now, token) == Some(State::UnderWay) {
            dropped.push(token);
        }
        self.said.push_back(Event::Accounted { token, kept });
    }

    /// Forgets a record; the next of its session is due. `None`: there is none.
    fn remove(&mut self, now: Instant, token: u64) -> Option<State> {
        let one = self.all.remove(&token)?;
        self.old.remove(one.made + self.patience.lasts, token);
        match one.state {
            State::Behind => {}
            State::Due(at) => drop(self.due.remove(at, token)),
            State::UnderWay => self.under_way -= 1,
        }
        let of = self.sessions.get_mut(&one.session)?;
        of.retain(|other| *other != token);
        match of.front().copied() {
            None => drop(self.sessions.remove(&one.session)),
            Some(next) if self.all.get(&next).is_some_and(|next| next.state == State::Behind) => {
                self.put_off(next, now);
            }
            Some(_) => {}
        }
        Some(one.state)
    }

    /// Nobody wants to know of a record any more; true: it is under way.
    pub(super) fn cancel(&mut self, now: Instant, token: u64) -> bool {
        self.remove(now, token) == Some(State::UnderWay)
    }

    /// The next record to be sent, as it is to be sent now. It is under way from then on.
    pub(super) fn next(&mut self, now: Instant) -> Option<(u64, Told)> {
        if self.under_way >= UNDER_WAY {
            return None;
        }
        let (_, token) = self.due.pop_due(now)?;
        let one = self.all.get_mut(&token)?;
        one.state = State::UnderWay;
        self.under_way += 1;
        let mut told = one.told.clone();
        if let Told::Radius(attributes) = &mut told {
            // How long it has waited (RFC 2866 §5.2). The client adds what it waits itself.
            let seconds = u32::try_from(now.since(one.made).as_secs()).unwrap_or(u32::MAX);
            attributes.replace(usher_radius::attribute::kind::ACCT_DELAY_TIME, &seconds.to_be_bytes());
        }
        Some((token, told))
    }

    /// A record could not be sent, since too much else is under way.
    pub(super) fn full(&mut self, now: Instant, token: u64) {
        self.under_way -= 1;
        self.put_off(token, now + REST);
    }
    /// It never can be.
    pub(super) fn unsayable(&mut self, now: Instant, token: u64) {
        self.end(now, token, Err(Failure::Unavailable), &mut Vec::new());
    }

    /// A record was answered, or was not.
    pub(super) fn answered(&mut self, now: Instant, token: u64, kept: Result<(), Failure>) {
        let Some(one) = self.all.get_mut(&token).filter(|one| one.state == State::UnderWay) else { return };
        match kept {
            Err(why) if !is_final(why) => {
                let rest = REST * (1 << one.failures.min(6));
                one.failures += 1;
                self.under_way -= 1;
                self.put_off(token, now + rest.min(LONGEST_REST));
            }
            _ => self.end(now, token, kept, &mut Vec::new()),
        }
    }

    /// Gives up what is too old; gives what of it is under way.
    pub(super) fn expire(&mut self, now: Instant) -> Vec<u64> {
        let mut dropped = Vec::new();
        while let Some((_, token)) = self.old.pop_due(now) {
            self.end(now, token, Err(Failure::Timeout), &mut dropped);
        }
        dropped
    }

    pub(super) fn said(&mut self) -> Option<Event> {
        self.said.pop_front()
    }
    pub(super) fn poll_timeout(&self) -> Option<Instant> {
        let due = self.due.next().filter(|_| self.under_way < UNDER_WAY);
        earliest([due, self.old.next()])
    }
}

/// Whether asking again would end the same: a Diameter server's permanent failures (RFC 6733 §7.1.5), and answers that make no sense.
const fn is_final(failure: Failure) -> bool {
    match failure {
        Failure::Timeout | Failure::Unavailable | Failure::ConnectionLost => false,
        Failure::Fault(code) => code / 1000 == 5,
        Failure::BadAnswer => true,
    }
}
