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
use usher_diameter::{codes, node};
use usher_radius::attribute::Attributes;

/// How long records of accounting are sent again, and how many wait.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Patience {
    /// From when what a record is of happened until it is given up (MRD, RFC 5080 §2.2.1).
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
    /// How long before that it had happened.
    ago: Duration,
    told: Told,
    state: State,
    /// How often nobody answered.
    failures: u32,
}

impl One {
    /// When it is too old.
    fn given_up(&self, patience: Patience) -> Instant {
        self.made + patience.lasts.saturating_sub(self.ago)
    }
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
    /// An Accounting-On: with it the server takes all sessions for ended, so that it goes before all records of sessions.
    on: Option<u64>,
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
            on: None,
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
        let (kind, ago, state) = (record.kind, record.ago, State::Behind);
        let one = One { session, kind, made: now, ago, told, state, failures: 0 };
        let old = one.given_up(self.patience);
        self.all.insert(token, one);
        self.old.insert(old, token);
        if first {
            self.put_off(token, now);
        }
        match (record.kind, self.on.and_then(|on| Some((on, self.all.get(&on)?.state)))) {
            (RecordKind::On, _) if first => self.on = Some(token),
            // A session has begun, and so the server may be back.
            (RecordKind::Start, Some((on, State::Due(at)))) => {
                self.due.remove(at, on);
                self.put_off(on, now);
            }
            _ => {}
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
        self.old.remove(one.given_up(self.patience), token);
        self.on.take_if(|on| *on == token);
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
        let token = match self.on {
            Some(on) => match self.all.get(&on)?.state {
                State::Due(at) if at <= now => {
                    self.due.remove(at, on);
                    on
                }
                _ => return None,
            },
            None => self.due.pop_due(now)?.1,
        };
        let one = self.all.get_mut(&token)?;
        one.state = State::UnderWay;
        self.under_way += 1;
        let mut told = one.told.clone();
        let seconds = u32::try_from((one.ago + now.since(one.made)).as_secs()).unwrap_or(u32::MAX);
        match &mut told {
            // How long it has waited (RFC 2866 §5.2). The client adds what it waits itself.
            Told::Radius(attributes) => {
                attributes.replace(usher_radius::attribute::kind::ACCT_DELAY_TIME, &seconds.to_be_bytes());
            }
            // A record that is sent for the first time as it happens has none (RFC 7155 §4.6.8).
            Told::Diameter(_, request) if seconds > 0 => {
                request.avps.push_u32(codes::ACCT_DELAY_TIME, seconds);
            }
            Told::Diameter(..) => {}
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
        // Sessions have begun, and an Accounting-On is not to end them later: there are servers that never acknowledge one.
        let late = self.on == Some(token) && self.all.values().any(|one| one.kind == RecordKind::Start);
        let Some(one) = self.all.get_mut(&token).filter(|one| one.state == State::UnderWay) else { return };
        match kept {
            Err(why) if !is_final(why) && !late => {
                let rest = REST * (1 << one.failures.min(6));
                one.failures += 1;
                self.under_way -= 1;
                self.put_off(token, now + rest.min(LONGEST_REST));
            }
            _ => self.end(now, token, kept, &mut Vec::new()),
        }
    }

    /// A server is there again: what rests need not rest longer.
    pub(super) fn hasten(&mut self, now: Instant) {
        let resting = |(token, one): (&u64, &One)| match one.state {
            State::Due(at) if at > now => Some((at, *token)),
            _ => None,
        };
        for (at, token) in self.all.iter().filter_map(resting).collect::<Vec<_>>() {
            self.due.remove(at, token);
            self.put_off(token, now);
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
        let due = match self.on.and_then(|on| self.all.get(&on)) {
            Some(One { state: State::Due(at), .. }) => Some(*at),
            Some(_) => None,
            None => self.due.next(),
        };
        let due = due.filter(|_| self.under_way < UNDER_WAY);
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

#[cfg(test)]
mod tests {
    use super::*;
    use usher_diameter::avp::AvpBuf;
    use usher_diameter::codes::{application, command};
    use usher_radius::attribute::kind;

    fn at(seconds: u64) -> Instant {
        Instant::ZERO + Duration::from_secs(seconds)
    }
    fn owed(lasts: u64, most: usize) -> Owed {
        Owed::new(Patience { lasts: Duration::from_secs(lasts), most })
    }
    /// A record of a session; gives those that it takes the place of.
    fn add(owed: &mut Owed, seconds: u64, token: u64, kind: RecordKind, session: &str) -> Vec<u64> {
        let mut attributes = Attributes::new();
        attributes.push_u32(kind::ACCT_DELAY_TIME, 0);
        owed.add(at(seconds), token, &Record::new(kind, session, 0), Told::Radius(attributes))
    }
    /// What is sent, each with how long it has waited.
    fn sent(owed: &mut Owed, seconds: u64) -> Vec<(u64, u32)> {
        let all = core::iter::from_fn(|| owed.next(at(seconds)));
        let delay = |told: Told| match told {
            Told::Radius(attributes) => attributes.get_u32(kind::ACCT_DELAY_TIME).unwrap(),
            Told::Diameter(..) => panic!("RADIUS"),
        };
        all.map(|(token, told)| (token, delay(told))).collect()
    }
    fn said(owed: &mut Owed) -> Vec<(u64, Result<(), Failure>)> {
        let all = core::iter::from_fn(|| owed.said());
        all.map(|event| match event {
            Event::Accounted { token, kept } => (token, kept),
            other => panic!("{other:?}"),
        })
        .collect()
    }

    /// RFC 7155 §4.6.8: the server takes it off the time at which the record came.
    #[test]
    fn over_diameter_a_late_record_says_how_late_it_is() {
        let mut owed = owed(200, 10);
        let request = node::Request {
            token: 1,
            application: application::ACCOUNTING,
            command: command::ACCOUNTING,
            destination_realm: "usher.test".to_owned(),
            destination_host: None,
            session_id: "nas;1;a".to_owned(),
            avps: AvpBuf::new(),
        };
        owed.add(at(0), 1, &Record::new(RecordKind::Stop, "a", 0), Told::Diameter(0, request));
        let mut waited = |seconds| {
            let (token, told) = owed.next(at(seconds)).unwrap();
            owed.answered(at(seconds), token, Err(Failure::Unavailable));
            let Told::Diameter(_, request) = told else { panic!("Diameter") };
            request.avps.view().get(codes::ACCT_DELAY_TIME).map(|avp| avp.u32().unwrap())
        };
        assert_eq!(waited(0), None, "it has just happened");
        assert_eq!((waited(50), waited(150)), (Some(50), Some(150)));
    }

    #[test]
    fn a_record_is_sent_again_until_it_is_kept_or_too_old() {
        let mut owed = owed(200, 10);
        add(&mut owed, 0, 1, RecordKind::Stop, "a");
        let mut times = Vec::new();
        let mut now = 0;
        while now < 200 {
            for (token, delay) in sent(&mut owed, now) {
                assert_eq!((token, u64::from(delay)), (1, now));
                times.push(now);
                owed.answered(at(now), token, Err(Failure::Timeout));
            }
            now += 1;
        }
        assert_eq!(times, [0, 1, 3, 7, 15, 31, 63, 123, 183], "twice as long each time, up to a minute");
        assert_eq!(said(&mut owed), []);
        assert_eq!((owed.poll_timeout(), owed.expire(at(200))), (Some(at(200)), vec![]));
        assert_eq!(said(&mut owed), [(1, Err(Failure::Timeout))]);
        assert_eq!((owed.poll_timeout(), owed.all.len(), owed.sessions.len()), (None, 0, 0));
    }

    #[test]
    fn what_rests_is_due_when_a_server_is_there_again() {
        let mut owed = owed(1000, 10);
        add(&mut owed, 0, 1, RecordKind::On, "");
        for now in [0, 1, 3, 7, 15, 31] {
            assert_eq!(sent(&mut owed, now), [(1, u32::try_from(now).unwrap())]);
            owed.answered(at(now), 1, Err(Failure::Unavailable));
        }
        add(&mut owed, 40, 2, RecordKind::Stop, "a");
        add(&mut owed, 40, 3, RecordKind::Stop, "b");
        add(&mut owed, 41, 4, RecordKind::Stop, "b");
        assert_eq!((sent(&mut owed, 41), owed.poll_timeout()), (vec![], Some(at(63))));
        owed.hasten(at(42));
        assert_eq!((owed.poll_timeout(), sent(&mut owed, 42)), (Some(at(42)), vec![(1, 42)]));
        owed.answered(at(42), 1, Ok(()));
        assert_eq!(sent(&mut owed, 42), [(2, 2), (3, 2)]);
        // What is under way stays so, and what is behind it.
        owed.hasten(at(43));
        assert_eq!((sent(&mut owed, 43), owed.under_way), (vec![], 2));
        owed.answered(at(43), 2, Err(Failure::Timeout));
        owed.hasten(at(43));
        assert_eq!((sent(&mut owed, 43), owed.due.len()), (vec![(2, 3)], 0));
    }

    #[test]
    fn what_happened_before_this_start_has_waited_since_then() {
        let mut owed = owed(200, 10);
        let mut attributes = Attributes::new();
        attributes.push_u32(kind::ACCT_DELAY_TIME, 150);
        let record = Record { ago: Duration::from_secs(150), ..Record::new(RecordKind::Stop, "a", 0) };
        owed.add(at(10), 1, &record, Told::Radius(attributes));
        assert_eq!(sent(&mut owed, 12), [(1, 152)]);
        owed.answered(at(12), 1, Err(Failure::Timeout));
        assert_eq!((owed.expire(at(59)), said(&mut owed)), (vec![], vec![]));
        assert_eq!((owed.expire(at(60)), said(&mut owed)), (vec![], vec![(1, Err(Failure::Timeout))]));
        assert_eq!((owed.poll_timeout(), owed.all.len()), (None, 0));
    }

    #[test]
    fn what_a_server_will_never_keep_is_not_sent_again() {
        for (failure, again) in [
            (Failure::Unavailable, true),
            (Failure::ConnectionLost, true),
            (Failure::Fault(3004), true),
            (Failure::Fault(4002), true),
            (Failure::Fault(5004), false),
            (Failure::BadAnswer, false),
        ] {
            let mut owed = owed(200, 10);
            add(&mut owed, 0, 1, RecordKind::Start, "a");
            assert_eq!(sent(&mut owed, 0).len(), 1);
            owed.answered(at(0), 1, Err(failure));
            assert_eq!(said(&mut owed).is_empty(), again, "{failure:?}");
            assert_eq!(owed.under_way, 0);
        }
    }

    #[test]
    fn records_of_a_session_go_in_their_order_and_interim_ones_only_the_last() {
        let mut owed = owed(1000, 100);
        add(&mut owed, 0, 1, RecordKind::Start, "a");
        assert!(add(&mut owed, 1, 2, RecordKind::Interim, "a").is_empty());
        add(&mut owed, 1, 3, RecordKind::Start, "b");
        assert_eq!(sent(&mut owed, 1), [(1, 1), (3, 0)], "the interim record waits behind its start");
        assert!(
            add(&mut owed, 2, 4, RecordKind::Interim, "a").is_empty(),
            "the one before was not under way"
        );
        assert_eq!(said(&mut owed), [(2, Ok(()))]);
        owed.answered(at(3), 1, Ok(()));
        assert_eq!((said(&mut owed), sent(&mut owed, 3)), (vec![(1, Ok(()))], vec![(4, 1)]));
        // One that is under way is not waited for either.
        assert_eq!(add(&mut owed, 5, 5, RecordKind::Stop, "a"), [4]);
        assert_eq!((said(&mut owed), sent(&mut owed, 5)), (vec![(4, Ok(()))], vec![(5, 0)]));
        // An answer that comes all the same is nobody's.
        owed.answered(at(5), 4, Ok(()));
        assert_eq!(said(&mut owed), []);
        assert!(owed.cancel(at(6), 5) && !owed.cancel(at(6), 5));
    }

    #[test]
    fn no_more_wait_and_are_under_way_than_may() {
        let mut owed = owed(1000, 3000);
        for token in 1..=3000 {
            add(&mut owed, 0, token, RecordKind::Start, &alloc::format!("{token}"));
        }
        assert_eq!(sent(&mut owed, 0).len(), UNDER_WAY);
        assert_eq!(owed.poll_timeout(), Some(at(1000)), "the others wait for answers, not for a time");
        assert_eq!(add(&mut owed, 0, 3001, RecordKind::Start, "more"), [1], "the oldest is lost");
        assert_eq!(said(&mut owed), [(1, Err(Failure::Unavailable))]);
        assert_eq!(sent(&mut owed, 0).len(), 1);
        owed.answered(at(0), 2, Ok(()));
        let next = owed.next(at(0)).unwrap().0;
        owed.full(at(0), next);
        assert_eq!(owed.under_way, UNDER_WAY - 1);
        assert!(owed.all.len() == 2999 && said(&mut owed) == [(2, Ok(()))]);
        assert!(owed.expire(at(1000)).len() >= UNDER_WAY - 1);
        assert_eq!((owed.all.len(), owed.under_way, owed.due.len()), (0, 0, 0));
    }

    #[test]
    fn an_accounting_on_goes_before_records_of_sessions_and_never_behind_them() {
        let mut owed = owed(1000, 100);
        add(&mut owed, 0, 1, RecordKind::On, "on");
        // Of an earlier start.
        add(&mut owed, 0, 2, RecordKind::Stop, "lost");
        assert_eq!(sent(&mut owed, 0), [(1, 0)]);
        assert_eq!(owed.poll_timeout(), Some(at(1000)));
        owed.answered(at(15), 1, Err(Failure::Timeout));
        assert_eq!((sent(&mut owed, 15), owed.poll_timeout()), (vec![], Some(at(16))));
        assert_eq!(sent(&mut owed, 16), [(1, 16)]);
        owed.answered(at(31), 1, Err(Failure::Timeout));
        // A session begins, so that the server is there, and the next try is at once.
        add(&mut owed, 32, 3, RecordKind::Start, "a");
        assert_eq!(sent(&mut owed, 32), [(1, 32)]);
        let kept = owed.all.len();
        owed.answered(at(33), 1, Ok(()));
        assert_eq!((kept, said(&mut owed)), (3, vec![(1, Ok(()))]));
        assert_eq!(sent(&mut owed, 33), [(2, 33), (3, 1)]);
        // A server that acknowledges none does not keep records of sessions waiting.
        add(&mut owed, 40, 4, RecordKind::On, "on");
        add(&mut owed, 40, 5, RecordKind::Start, "b");
        assert_eq!(sent(&mut owed, 40), [(4, 0)]);
        owed.answered(at(55), 4, Err(Failure::Timeout));
        assert_eq!((said(&mut owed), sent(&mut owed, 55)), (vec![(4, Err(Failure::Timeout))], vec![(5, 15)]));
    }
}
