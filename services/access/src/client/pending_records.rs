//! The queue of unacknowledged accounting records. It retransmits them for a long time (RFC 2866 §2: "it is recommended
//! that the client continue attempting to send the Accounting-Request packet until it receives an acknowledgement").

use super::event::{AaaRequestFailure, AccessClientEvent};
use crate::{AccountingRecord, AccountingRecordKind};
use alloc::borrow::ToOwned;
use alloc::collections::{BTreeMap, VecDeque};
use alloc::string::String;
use alloc::vec::Vec;
use usher_core::timer::{TimerQueue, earliest_deadline};
use usher_core::{Duration, Instant};
use usher_diameter::{codes, node};
use usher_radius::attribute::AttributeList;

/// The lifetime and the number of unacknowledged records.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct AccountingRetryConfig {
    /// The time from a record's event until the record is dropped (MRD, RFC 5080 §2.2.1).
    pub lasts: Duration,
    /// The maximum number of pending records. Beyond it the oldest is dropped.
    pub most: usize,
}

impl Default for AccountingRetryConfig {
    /// A day, 65,536 records.
    fn default() -> Self {
        Self { lasts: Duration::from_secs(86_400), most: 65_536 }
    }
}

/// The maximum number of records in flight. It leaves half of the capacity of RadSec's connections (8 × 255) to logins.
const MAX_IN_FLIGHT: usize = 1024;
/// The first pause after a failure. Each further pause is twice as long, up to the next constant.
const REST: Duration = Duration::from_secs(1);
const LONGEST_REST: Duration = Duration::from_secs(60);

/// An encoded record.
#[derive(Clone, Debug)]
pub(super) enum EncodedAccountingRecord {
    Radius(AttributeList),
    Diameter(super::nodes::DiameterNodeSlot, node::DiameterRequest),
}

/// The state of a record.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum PendingRecordState {
    /// An earlier record of the session is pending.
    Blocked,
    /// To be sent at this time.
    Due(Instant),
    InFlight,
}

#[derive(Debug)]
struct PendingRecord {
    session: String,
    kind: AccountingRecordKind,
    created_at: Instant,
    /// The age of the record at creation.
    ago: Duration,
    record: EncodedAccountingRecord,
    state: PendingRecordState,
    /// The number of failed transmissions.
    failures: u32,
}

impl PendingRecord {
    /// The time at which the record is dropped.
    fn expiry_time(&self, patience: AccountingRetryConfig) -> Instant {
        self.created_at + patience.lasts.saturating_sub(self.ago)
    }
}

/// The pending records by their tokens, which ascend.
#[derive(Debug)]
pub(super) struct RecordQueue {
    record_retry: AccountingRetryConfig,
    all: BTreeMap<u64, PendingRecord>,
    /// The tokens of each session's records, in order.
    sessions: BTreeMap<String, VecDeque<u64>>,
    due: TimerQueue<u64>,
    old: TimerQueue<u64>,
    /// A pending Accounting-On. It goes before all records of sessions, because the server ends all sessions by it.
    on: Option<u64>,
    in_flight_count: usize,
    /// The events of completed records.
    queued_events: VecDeque<AccessClientEvent>,
}

impl RecordQueue {
    pub(super) fn new(patience: AccountingRetryConfig) -> Self {
        Self {
            record_retry: patience,
            all: BTreeMap::new(),
            sessions: BTreeMap::new(),
            due: TimerQueue::new(),
            old: TimerQueue::new(),
            on: None,
            in_flight_count: 0,
            queued_events: VecDeque::new(),
        }
    }

    /// Adds a record. Returns the tokens in flight of records that it replaces or evicts, for cancelling.
    pub(super) fn enqueue(
        &mut self,
        now: Instant,
        token: u64,
        record: &AccountingRecord<'_>,
        told: EncodedAccountingRecord,
    ) -> Vec<u64> {
        let mut dropped = Vec::new();
        // RFC 2869, 2.1: interim records are cumulative, so a later record replaces a pending one.
        if matches!(record.kind, AccountingRecordKind::Interim | AccountingRecordKind::Stop) {
            let before = self.sessions.get(record.session).into_iter().flatten().copied();
            let interim = |token: &u64| {
                self.all.get(token).is_some_and(|one| one.kind == AccountingRecordKind::Interim)
            };
            for old in before.filter(interim).collect::<Vec<_>>() {
                self.finish_record(now, old, Ok(()), &mut dropped);
            }
        }
        if self.all.len() >= self.record_retry.most
            && let Some(oldest) = self.all.keys().next().copied()
        {
            self.finish_record(now, oldest, Err(AaaRequestFailure::Unavailable), &mut dropped);
        }
        let session = record.session.to_owned();
        let of = self.sessions.entry(session.clone()).or_default();
        of.push_back(token);
        let first = of.len() == 1;
        let (kind, ago, state) = (record.kind, record.ago, PendingRecordState::Blocked);
        let one = PendingRecord { session, kind, created_at: now, ago, record: told, state, failures: 0 };
        let old = one.expiry_time(self.record_retry);
        self.all.insert(token, one);
        self.old.insert(old, token);
        if first {
            self.put_off(token, now);
        }
        match (record.kind, self.on.and_then(|on| Some((on, self.all.get(&on)?.state)))) {
            (AccountingRecordKind::On, _) if first => self.on = Some(token),
            // A session has started, so the server may be available again, and the waiting Accounting-On is sent now.
            (AccountingRecordKind::Start, Some((on, PendingRecordState::Due(at)))) => {
                self.due.remove(at, on);
                self.put_off(on, now);
            }
            _ => {}
        }
        dropped
    }

    fn put_off(&mut self, token: u64, until: Instant) {
        if let Some(one) = self.all.get_mut(&token) {
            one.state = PendingRecordState::Due(until);
            self.due.insert(until, token);
        }
    }

    /// Completes a record with an event. A record in flight is added to `dropped`.
    fn finish_record(
        &mut self,
        now: Instant,
        token: u64,
        kept: Result<(), AaaRequestFailure>,
        dropped: &mut Vec<u64>,
    ) {
        if self.remove(now, token) == Some(PendingRecordState::InFlight) {
            dropped.push(token);
        }
        self.queued_events.push_back(AccessClientEvent::Accounted { token, result: kept });
    }

    /// Removes a record and unblocks the next of its session. `None` if there is no such record.
    fn remove(&mut self, now: Instant, token: u64) -> Option<PendingRecordState> {
        let one = self.all.remove(&token)?;
        self.old.remove(one.expiry_time(self.record_retry), token);
        self.on.take_if(|on| *on == token);
        match one.state {
            PendingRecordState::Blocked => {}
            PendingRecordState::Due(at) => drop(self.due.remove(at, token)),
            PendingRecordState::InFlight => self.in_flight_count -= 1,
        }
        let of = self.sessions.get_mut(&one.session)?;
        of.retain(|other| *other != token);
        match of.front().copied() {
            None => drop(self.sessions.remove(&one.session)),
            Some(next)
                if self.all.get(&next).is_some_and(|next| next.state == PendingRecordState::Blocked) =>
            {
                self.put_off(next, now);
            }
            Some(_) => {}
        }
        Some(one.state)
    }

    /// Removes a record without an event. Returns true if it is in flight.
    pub(super) fn remove_queued_record(&mut self, now: Instant, token: u64) -> bool {
        self.remove(now, token) == Some(PendingRecordState::InFlight)
    }

    /// Returns the next record to send, and marks it as in flight.
    pub(super) fn next_due(&mut self, now: Instant) -> Option<(u64, EncodedAccountingRecord)> {
        if self.in_flight_count >= MAX_IN_FLIGHT {
            return None;
        }
        let token = match self.on {
            Some(on) => match self.all.get(&on)?.state {
                PendingRecordState::Due(at) if at <= now => {
                    self.due.remove(at, on);
                    on
                }
                _ => return None,
            },
            None => self.due.pop_due(now)?.1,
        };
        let one = self.all.get_mut(&token)?;
        one.state = PendingRecordState::InFlight;
        self.in_flight_count += 1;
        let mut told = one.record.clone();
        let seconds =
            u32::try_from((one.ago + now.duration_since(one.created_at)).as_secs()).unwrap_or(u32::MAX);
        match &mut told {
            // RFC 2866, 5.2: the delay so far. The RADIUS client adds the delay of its retransmissions.
            EncodedAccountingRecord::Radius(attributes) => {
                attributes
                    .replace_value(usher_radius::attribute::kind::ACCT_DELAY_TIME, &seconds.to_be_bytes());
            }
            // RFC 7155, 4.6.8: the first transmission of a fresh record has no Acct-Delay-Time.
            EncodedAccountingRecord::Diameter(_, request) if seconds > 0 => {
                request.avps.push_u32(codes::ACCT_DELAY_TIME, seconds);
            }
            EncodedAccountingRecord::Diameter(..) => {}
        }
        Some((token, told))
    }

    /// Defers a record that could not be sent because too many requests are in flight.
    pub(super) fn defer_unsent_record(&mut self, now: Instant, token: u64) {
        self.in_flight_count -= 1;
        self.put_off(token, now + REST);
    }
    /// Completes a record that can never be sent.
    pub(super) fn fail_unsendable_record(&mut self, now: Instant, token: u64) {
        self.finish_record(now, token, Err(AaaRequestFailure::Unavailable), &mut Vec::new());
    }

    /// Handles the result of a transmission.
    pub(super) fn handle_answer(&mut self, now: Instant, token: u64, kept: Result<(), AaaRequestFailure>) {
        // Some servers never acknowledge Accounting-On. Once a session has started, it is not repeated, since it would
        // then end that session.
        let late =
            self.on == Some(token) && self.all.values().any(|one| one.kind == AccountingRecordKind::Start);
        let Some(one) = self.all.get_mut(&token).filter(|one| one.state == PendingRecordState::InFlight)
        else {
            return;
        };
        match kept {
            Err(why) if !is_permanent_failure(why) && !late => {
                let rest = REST * (1 << one.failures.min(6));
                one.failures += 1;
                self.in_flight_count -= 1;
                self.put_off(token, now + rest.min(LONGEST_REST));
            }
            _ => self.finish_record(now, token, kept, &mut Vec::new()),
        }
    }

    /// Makes all pausing records due, after a server has become available.
    pub(super) fn make_pausing_records_due(&mut self, now: Instant) {
        let resting = |(token, one): (&u64, &PendingRecord)| match one.state {
            PendingRecordState::Due(at) if at > now => Some((at, *token)),
            _ => None,
        };
        for (at, token) in self.all.iter().filter_map(resting).collect::<Vec<_>>() {
            self.due.remove(at, token);
            self.put_off(token, now);
        }
    }

    /// Drops expired records. Returns the tokens of those in flight.
    pub(super) fn fail_expired_records(&mut self, now: Instant) -> Vec<u64> {
        let mut dropped = Vec::new();
        while let Some((_, token)) = self.old.pop_due(now) {
            self.finish_record(now, token, Err(AaaRequestFailure::Timeout), &mut dropped);
        }
        dropped
    }

    pub(super) fn next_record_event(&mut self) -> Option<AccessClientEvent> {
        self.queued_events.pop_front()
    }
    pub(super) fn poll_timeout(&self) -> Option<Instant> {
        let due = match self.on.and_then(|on| self.all.get(&on)) {
            Some(PendingRecord { state: PendingRecordState::Due(at), .. }) => Some(*at),
            Some(_) => None,
            None => self.due.next_deadline(),
        };
        let due = due.filter(|_| self.in_flight_count < MAX_IN_FLIGHT);
        earliest_deadline([due, self.old.next_deadline()])
    }
}

/// True if a retransmission cannot succeed: after a Diameter server's permanent failure (RFC 6733 §7.1.5) or a
/// malformed answer.
const fn is_permanent_failure(failure: AaaRequestFailure) -> bool {
    match failure {
        AaaRequestFailure::Timeout | AaaRequestFailure::Unavailable | AaaRequestFailure::ConnectionLost => {
            false
        }
        AaaRequestFailure::Fault(code) => code / 1000 == 5,
        AaaRequestFailure::BadAnswer => true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use usher_diameter::avp::AvpBuf;
    use usher_diameter::codes::{application, command};
    use usher_radius::attribute::kind;

    fn time_at(seconds: u64) -> Instant {
        Instant::ZERO + Duration::from_secs(seconds)
    }
    fn test_queue(lasts: u64, most: usize) -> RecordQueue {
        RecordQueue::new(AccountingRetryConfig { lasts: Duration::from_secs(lasts), most })
    }
    /// Adds a record of a session. Returns the records in flight that it replaces.
    fn enqueue_record(
        owed: &mut RecordQueue,
        seconds: u64,
        token: u64,
        kind: AccountingRecordKind,
        session: &str,
    ) -> Vec<u64> {
        let mut attributes = AttributeList::new();
        attributes.push_u32(kind::ACCT_DELAY_TIME, 0);
        owed.enqueue(
            time_at(seconds),
            token,
            &AccountingRecord::new(kind, session, 0),
            EncodedAccountingRecord::Radius(attributes),
        )
    }
    /// The sent records, each with its delay.
    fn take_due_record_delays(owed: &mut RecordQueue, seconds: u64) -> Vec<(u64, u32)> {
        let all = core::iter::from_fn(|| owed.next_due(time_at(seconds)));
        let delay = |told: EncodedAccountingRecord| match told {
            EncodedAccountingRecord::Radius(attributes) => attributes.get_u32(kind::ACCT_DELAY_TIME).unwrap(),
            EncodedAccountingRecord::Diameter(..) => panic!("RADIUS"),
        };
        all.map(|(token, told)| (token, delay(told))).collect()
    }
    fn take_accounting_results(owed: &mut RecordQueue) -> Vec<(u64, Result<(), AaaRequestFailure>)> {
        let all = core::iter::from_fn(|| owed.next_record_event());
        all.map(|event| match event {
            AccessClientEvent::Accounted { token, result: kept } => (token, kept),
            other => panic!("{other:?}"),
        })
        .collect()
    }

    /// RFC 7155 §4.6.8: the server subtracts the delay from the time of arrival.
    #[test]
    fn over_diameter_a_late_record_says_how_late_it_is() {
        let mut owed = test_queue(200, 10);
        let request = node::DiameterRequest {
            token: 1,
            application: application::ACCOUNTING,
            command: command::ACCOUNTING,
            destination_realm: "usher.test".to_owned(),
            destination_host: None,
            session_id: "nas;1;a".to_owned(),
            avps: AvpBuf::new(),
        };
        owed.enqueue(
            time_at(0),
            1,
            &AccountingRecord::new(AccountingRecordKind::Stop, "a", 0),
            EncodedAccountingRecord::Diameter(0, request),
        );
        let mut waited = |seconds| {
            let (token, told) = owed.next_due(time_at(seconds)).unwrap();
            owed.handle_answer(time_at(seconds), token, Err(AaaRequestFailure::Unavailable));
            let EncodedAccountingRecord::Diameter(_, request) = told else { panic!("Diameter") };
            request.avps.as_sequence().get(codes::ACCT_DELAY_TIME).map(|avp| avp.as_u32().unwrap())
        };
        assert_eq!(waited(0), None, "it has just happened");
        assert_eq!((waited(50), waited(150)), (Some(50), Some(150)));
    }

    #[test]
    fn a_record_is_sent_again_until_it_is_kept_or_too_old() {
        let mut owed = test_queue(200, 10);
        enqueue_record(&mut owed, 0, 1, AccountingRecordKind::Stop, "a");
        let mut times = Vec::new();
        let mut now = 0;
        while now < 200 {
            for (token, delay) in take_due_record_delays(&mut owed, now) {
                assert_eq!((token, u64::from(delay)), (1, now));
                times.push(now);
                owed.handle_answer(time_at(now), token, Err(AaaRequestFailure::Timeout));
            }
            now += 1;
        }
        assert_eq!(times, [0, 1, 3, 7, 15, 31, 63, 123, 183], "twice as long each time, up to a minute");
        assert_eq!(take_accounting_results(&mut owed), []);
        assert_eq!(
            (owed.poll_timeout(), owed.fail_expired_records(time_at(200))),
            (Some(time_at(200)), vec![])
        );
        assert_eq!(take_accounting_results(&mut owed), [(1, Err(AaaRequestFailure::Timeout))]);
        assert_eq!((owed.poll_timeout(), owed.all.len(), owed.sessions.len()), (None, 0, 0));
    }

    #[test]
    fn what_rests_is_due_when_a_server_is_there_again() {
        let mut owed = test_queue(1000, 10);
        enqueue_record(&mut owed, 0, 1, AccountingRecordKind::On, "");
        for now in [0, 1, 3, 7, 15, 31] {
            assert_eq!(take_due_record_delays(&mut owed, now), [(1, u32::try_from(now).unwrap())]);
            owed.handle_answer(time_at(now), 1, Err(AaaRequestFailure::Unavailable));
        }
        enqueue_record(&mut owed, 40, 2, AccountingRecordKind::Stop, "a");
        enqueue_record(&mut owed, 40, 3, AccountingRecordKind::Stop, "b");
        enqueue_record(&mut owed, 41, 4, AccountingRecordKind::Stop, "b");
        assert_eq!((take_due_record_delays(&mut owed, 41), owed.poll_timeout()), (vec![], Some(time_at(63))));
        owed.make_pausing_records_due(time_at(42));
        assert_eq!(
            (owed.poll_timeout(), take_due_record_delays(&mut owed, 42)),
            (Some(time_at(42)), vec![(1, 42)])
        );
        owed.handle_answer(time_at(42), 1, Ok(()));
        assert_eq!(take_due_record_delays(&mut owed, 42), [(2, 2), (3, 2)]);
        // Records in flight and blocked ones are unaffected.
        owed.make_pausing_records_due(time_at(43));
        assert_eq!((take_due_record_delays(&mut owed, 43), owed.in_flight_count), (vec![], 2));
        owed.handle_answer(time_at(43), 2, Err(AaaRequestFailure::Timeout));
        owed.make_pausing_records_due(time_at(43));
        assert_eq!((take_due_record_delays(&mut owed, 43), owed.due.len()), (vec![(2, 3)], 0));
    }

    #[test]
    fn what_happened_before_this_start_has_waited_since_then() {
        let mut owed = test_queue(200, 10);
        let mut attributes = AttributeList::new();
        attributes.push_u32(kind::ACCT_DELAY_TIME, 150);
        let record = AccountingRecord {
            ago: Duration::from_secs(150),
            ..AccountingRecord::new(AccountingRecordKind::Stop, "a", 0)
        };
        owed.enqueue(time_at(10), 1, &record, EncodedAccountingRecord::Radius(attributes));
        assert_eq!(take_due_record_delays(&mut owed, 12), [(1, 152)]);
        owed.handle_answer(time_at(12), 1, Err(AaaRequestFailure::Timeout));
        assert_eq!(
            (owed.fail_expired_records(time_at(59)), take_accounting_results(&mut owed)),
            (vec![], vec![])
        );
        assert_eq!(
            (owed.fail_expired_records(time_at(60)), take_accounting_results(&mut owed)),
            (vec![], vec![(1, Err(AaaRequestFailure::Timeout))])
        );
        assert_eq!((owed.poll_timeout(), owed.all.len()), (None, 0));
    }

    #[test]
    fn what_a_server_will_never_keep_is_not_sent_again() {
        for (failure, again) in [
            (AaaRequestFailure::Unavailable, true),
            (AaaRequestFailure::ConnectionLost, true),
            (AaaRequestFailure::Fault(3004), true),
            (AaaRequestFailure::Fault(4002), true),
            (AaaRequestFailure::Fault(5004), false),
            (AaaRequestFailure::BadAnswer, false),
        ] {
            let mut owed = test_queue(200, 10);
            enqueue_record(&mut owed, 0, 1, AccountingRecordKind::Start, "a");
            assert_eq!(take_due_record_delays(&mut owed, 0).len(), 1);
            owed.handle_answer(time_at(0), 1, Err(failure));
            assert_eq!(take_accounting_results(&mut owed).is_empty(), again, "{failure:?}");
            assert_eq!(owed.in_flight_count, 0);
        }
    }

    #[test]
    fn session_records_keep_order_and_only_the_last_interim_waits() {
        let mut owed = test_queue(1000, 100);
        enqueue_record(&mut owed, 0, 1, AccountingRecordKind::Start, "a");
        assert!(enqueue_record(&mut owed, 1, 2, AccountingRecordKind::Interim, "a").is_empty());
        enqueue_record(&mut owed, 1, 3, AccountingRecordKind::Start, "b");
        assert_eq!(
            take_due_record_delays(&mut owed, 1),
            [(1, 1), (3, 0)],
            "the interim record waits behind its start"
        );
        assert!(
            enqueue_record(&mut owed, 2, 4, AccountingRecordKind::Interim, "a").is_empty(),
            "the one before was not under way"
        );
        assert_eq!(take_accounting_results(&mut owed), [(2, Ok(()))]);
        owed.handle_answer(time_at(3), 1, Ok(()));
        assert_eq!(
            (take_accounting_results(&mut owed), take_due_record_delays(&mut owed, 3)),
            (vec![(1, Ok(()))], vec![(4, 1)])
        );
        // The replaced record in flight is cancelled.
        assert_eq!(enqueue_record(&mut owed, 5, 5, AccountingRecordKind::Stop, "a"), [4]);
        assert_eq!(
            (take_accounting_results(&mut owed), take_due_record_delays(&mut owed, 5)),
            (vec![(4, Ok(()))], vec![(5, 0)])
        );
        // Its late answer is ignored.
        owed.handle_answer(time_at(5), 4, Ok(()));
        assert_eq!(take_accounting_results(&mut owed), []);
        assert!(owed.remove_queued_record(time_at(6), 5) && !owed.remove_queued_record(time_at(6), 5));
    }

    #[test]
    fn no_more_wait_and_are_under_way_than_may() {
        let mut owed = test_queue(1000, 3000);
        for token in 1..=3000 {
            enqueue_record(&mut owed, 0, token, AccountingRecordKind::Start, &alloc::format!("{token}"));
        }
        assert_eq!(take_due_record_delays(&mut owed, 0).len(), MAX_IN_FLIGHT);
        assert_eq!(owed.poll_timeout(), Some(time_at(1000)), "the others wait for answers, not for a time");
        assert_eq!(
            enqueue_record(&mut owed, 0, 3001, AccountingRecordKind::Start, "more"),
            [1],
            "the oldest is lost"
        );
        assert_eq!(take_accounting_results(&mut owed), [(1, Err(AaaRequestFailure::Unavailable))]);
        assert_eq!(take_due_record_delays(&mut owed, 0).len(), 1);
        owed.handle_answer(time_at(0), 2, Ok(()));
        let next = owed.next_due(time_at(0)).unwrap().0;
        owed.defer_unsent_record(time_at(0), next);
        assert_eq!(owed.in_flight_count, MAX_IN_FLIGHT - 1);
        assert!(owed.all.len() == 2999 && take_accounting_results(&mut owed) == [(2, Ok(()))]);
        assert!(owed.fail_expired_records(time_at(1000)).len() >= MAX_IN_FLIGHT - 1);
        assert_eq!((owed.all.len(), owed.in_flight_count, owed.due.len()), (0, 0, 0));
    }

    #[test]
    fn an_accounting_on_precedes_all_records_of_sessions() {
        let mut owed = test_queue(1000, 100);
        enqueue_record(&mut owed, 0, 1, AccountingRecordKind::On, "on");
        // A record of an earlier start.
        enqueue_record(&mut owed, 0, 2, AccountingRecordKind::Stop, "lost");
        assert_eq!(take_due_record_delays(&mut owed, 0), [(1, 0)]);
        assert_eq!(owed.poll_timeout(), Some(time_at(1000)));
        owed.handle_answer(time_at(15), 1, Err(AaaRequestFailure::Timeout));
        assert_eq!((take_due_record_delays(&mut owed, 15), owed.poll_timeout()), (vec![], Some(time_at(16))));
        assert_eq!(take_due_record_delays(&mut owed, 16), [(1, 16)]);
        owed.handle_answer(time_at(31), 1, Err(AaaRequestFailure::Timeout));
        // A session starts, so the next transmission is at once.
        enqueue_record(&mut owed, 32, 3, AccountingRecordKind::Start, "a");
        assert_eq!(take_due_record_delays(&mut owed, 32), [(1, 32)]);
        let kept = owed.all.len();
        owed.handle_answer(time_at(33), 1, Ok(()));
        assert_eq!((kept, take_accounting_results(&mut owed)), (3, vec![(1, Ok(()))]));
        assert_eq!(take_due_record_delays(&mut owed, 33), [(2, 33), (3, 1)]);
        // A server that acknowledges no Accounting-On does not block records of sessions.
        enqueue_record(&mut owed, 40, 4, AccountingRecordKind::On, "on");
        enqueue_record(&mut owed, 40, 5, AccountingRecordKind::Start, "b");
        assert_eq!(take_due_record_delays(&mut owed, 40), [(4, 0)]);
        owed.handle_answer(time_at(55), 4, Err(AaaRequestFailure::Timeout));
        assert_eq!(
            (take_accounting_results(&mut owed), take_due_record_delays(&mut owed, 55)),
            (vec![(4, Err(AaaRequestFailure::Timeout))], vec![(5, 15)])
        );
    }
}
