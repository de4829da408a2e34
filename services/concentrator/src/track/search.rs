//! Searches the log: which session had an address at a given second. It reads the log once, forwards, and keeps only
//! candidate sessions, whatever the log's length.

use super::{SessionEnd, SessionLogRecord, SessionStart};
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::string::String;
use alloc::vec::Vec;
use core::hash::BuildHasher;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use foldhash::quality::FixedState;
use usher_core::{Duration, WallTime};

/// An address and a port of it (`None`: any port).
pub type AddressAndOptionalPort = (IpAddr, Option<u16>);

/// A search for the sessions of addresses at a given second. It reads the log from the start of a day's file.
#[derive(Debug)]
pub struct AddressSearch {
    /// The addresses, IPv4-mapped ones as IPv4.
    addresses: Vec<AddressAndOptionalPort>,
    from: WallTime,
    to: WallTime,
    /// Sessions that began before the end of the second and had one of the addresses.
    sessions: Vec<MatchingSession>,
    /// The same by Acct-Session-Id.
    all: BTreeMap<String, usize>,
    /// The open sessions by Acct-Session-Id.
    open: BTreeMap<String, usize>,
    /// The last session of each IPv4 address among these. A later session of the address removes it.
    holders: BTreeMap<Ipv4Addr, usize>,
    octets: u64,
    subscribers: DistinctSubscriberEstimator,
    span: Option<(WallTime, WallTime)>,
    /// The number of lines that are not records.
    unreadable: u64,
}

#[derive(Debug)]
struct MatchingSession {
    begin: SessionStart,
    until: Option<WallTime>,
    end: Option<SessionEnd>,
}

/// A session's use of an address.
#[derive(Clone, PartialEq, Debug)]
pub struct AddressUse<'a> {
    /// The session.
    pub begin: &'a SessionStart,
    /// The end of the use; `None`: it continues.
    pub until: Option<WallTime>,
    /// The session's end, if it was logged.
    pub end: Option<&'a SessionEnd>,
}

/// The size of a log.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct LogVolume {
    /// Octets of the log.
    pub octets: u64,
    /// Number of users: exact up to 16,384, beyond that an estimate (standard error 0.8 %).
    pub subscribers: u64,
    /// The time that the log covers, in days, at least one.
    pub days: f64,
}

impl LogVolume {
    /// RFC 7422 §1's estimate for a log of each connection: octets per subscriber and day.
    pub const PER_CONNECTION: f64 = 5e6;
    /// Returns octets per subscriber and day.
    #[must_use]
    pub fn octets_per_subscriber_day(&self) -> f64 {
        if self.subscribers == 0 { 0.0 } else { self.octets as f64 / self.subscribers as f64 / self.days }
    }
}

/// Estimates the number of distinct users by the smallest of their hashes ("k minimum values", Bar-Yossef and others,
/// 2002).
#[derive(Debug, Default)]
struct DistinctSubscriberEstimator(BTreeSet<u64>);

impl DistinctSubscriberEstimator {
    const MOST: usize = 1 << 14;

    fn insert(&mut self, user: &str) {
        let hash = FixedState::with_seed(0).hash_one(user);
        if self.0.len() < Self::MOST || self.0.last().is_some_and(|last| hash < *last) {
            self.0.insert(hash);
            if self.0.len() > Self::MOST {
                self.0.pop_last();
            }
        }
    }
    fn estimate_count(&self) -> u64 {
        match self.0.last().filter(|_| self.0.len() == Self::MOST) {
            Some(last) => ((Self::MOST - 1) as f64 / (*last as f64 / u64::MAX as f64)) as u64,
            None => self.0.len() as u64,
        }
    }
}

fn mask_address(address: Ipv6Addr, bits: u8) -> u128 {
    let host = u128::MAX.checked_shr(bits.into()).unwrap_or(0);
    address.to_bits() & !host
}

/// True if a session has an address, or the port of it.
fn has_address(begin: &SessionStart, (address, port): AddressAndOptionalPort) -> bool {
    match address {
        IpAddr::V4(v4) => {
            let of_block = |block: super::PortBlock| match port {
                Some(port) => block.contains(address, port),
                None => block.address == v4,
            };
            begin.ipv4 == Some(v4) || begin.block.is_some_and(of_block)
        }
        IpAddr::V6(v6) => {
            begin.ipv6.iter().any(|(prefix, bits)| mask_address(*prefix, *bits) == mask_address(v6, *bits))
        }
    }
}

impl AddressSearch {
    /// Starts a search for the sessions that had one of the addresses in the second that begins at `at`.
    #[must_use]
    pub fn new(at: WallTime, addresses: impl IntoIterator<Item = AddressAndOptionalPort>) -> Self {
        let addresses = addresses.into_iter().map(|(address, port)| (address.to_canonical(), port));
        Self {
            addresses: addresses.collect(),
            from: at,
            to: at + Duration::from_secs(1),
            sessions: Vec::new(),
            all: BTreeMap::new(),
            open: BTreeMap::new(),
            holders: BTreeMap::new(),
            octets: 0,
            subscribers: DistinctSubscriberEstimator::default(),
            span: None,
            unreadable: 0,
        }
    }

    /// Reads further lines, in the order of the log. Counts lines that are not records: a power loss may have torn the
    /// last line of a file.
    pub fn read_lines(&mut self, text: &str) {
        for line in text.split_inclusive('\n') {
            self.octets += line.len() as u64;
            if line.trim().is_empty() {
                continue;
            }
            match SessionLogRecord::parse(line) {
                Ok(record) => self.apply_record(record),
                Err(_) => self.unreadable += 1,
            }
        }
    }
    /// Returns the number of lines that were not records.
    #[must_use]
    pub const fn unreadable_count(&self) -> u64 {
        self.unreadable
    }
    /// Returns the number of candidate sessions.
    #[must_use]
    pub const fn session_count(&self) -> usize {
        self.sessions.len()
    }

    fn apply_record(&mut self, record: SessionLogRecord) {
        let at = record.time();
        let (first, last) = self.span.unwrap_or((at, at));
        self.span = Some((first.min(at), last.max(at)));
        match record {
            SessionLogRecord::Started(at) => {
                // The process has started anew. The open sessions ended with the old process, between the last record
                // and this one.
                for n in core::mem::take(&mut self.open).into_values() {
                    if let Some(known) = self.sessions.get_mut(n) {
                        known.until = Some(at);
                    }
                }
            }
            SessionLogRecord::Stopped(_) | SessionLogRecord::StopAcknowledged { .. } => {}
            SessionLogRecord::Begin(begin) => self.start_session(begin),
            SessionLogRecord::End(end) => {
                self.open.remove(&end.session);
                if let Some(known) = self.all.get(&end.session).and_then(|n| self.sessions.get_mut(*n)) {
                    // If the clock was set back, let the end be no earlier than the begin.
                    let at = end.ended_at.max(known.begin.started_at);
                    known.until = Some(known.until.map_or(at, |until| until.min(at)));
                    known.end = Some(end);
                }
            }
        }
    }

    fn start_session(&mut self, begin: SessionStart) {
        self.subscribers.insert(&begin.user);
        // A day's file begins with the sessions that are open, which the previous file has too.
        if self.all.contains_key(&begin.session) {
            return;
        }
        let keeps =
            begin.started_at < self.to && self.addresses.iter().any(|wanted| has_address(&begin, *wanted));
        if let Some(address) = begin.ipv4
            && let Some(before) = self.holders.get(&address).and_then(|n| self.sessions.get_mut(*n))
            && (keeps || begin.started_at > before.begin.started_at)
        {
            // A newer session has this address, so the earlier one has ended, although its end could not be logged. A
            // begin of another user that is not newer is only a repetition in a day's file.
            before.until.get_or_insert(begin.started_at);
            self.holders.remove(&address);
        }
        if !keeps {
            return;
        }
        let n = self.sessions.len();
        self.open.insert(begin.session.clone(), n);
        self.all.insert(begin.session.clone(), n);
        if let Some(address) = begin.ipv4 {
            self.holders.insert(address, n);
        }
        self.sessions.push(MatchingSession { begin, until: None, end: None });
    }

    /// Returns the uses of the addresses in the order of time. If an address changed hands within the second, it has
    /// several.
    #[must_use]
    pub fn holders(&self) -> Vec<AddressUse<'_>> {
        let mut all = Vec::new();
        for wanted in &self.addresses {
            let held = |known: &&MatchingSession| {
                has_address(&known.begin, *wanted) && known.until.is_none_or(|until| until >= self.from)
            };
            let of = self.sessions.iter().filter(held).map(|known| AddressUse {
                begin: &known.begin,
                until: known.until,
                end: known.end.as_ref(),
            });
            let mut of: Vec<AddressUse<'_>> = of.collect();
            of.sort_by_key(|whose| whose.begin.started_at);
            all.append(&mut of);
        }
        all
    }

    /// Returns the size of the log.
    #[must_use]
    pub fn log_volume(&self) -> LogVolume {
        let seconds = self.span.map_or(0, |(first, last)| last.unix_secs().saturating_sub(first.unix_secs()));
        LogVolume {
            octets: self.octets,
            subscribers: self.subscribers.estimate_count(),
            days: (seconds as f64 / 86_400.0).max(1.0),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::PortBlock;
    use super::super::record::tests::test_start;
    use super::*;
    use alloc::format;
    use alloc::string::ToString;
    use proptest::prelude::*;

    const T: u64 = 1_790_000_000;

    fn time_at(secs: u64) -> WallTime {
        WallTime::from_unix_secs(T + secs)
    }
    fn session_end_line(secs: u64, session: &str) -> String {
        let (at, session, reason) = (time_at(secs), session.into(), "padt".into());
        SessionLogRecord::session_ended(SessionEnd {
            ended_at: at,
            session,
            reason,
            octets_in: 1,
            octets_out: 2,
            stop: None,
        })
        .to_line()
    }
    fn start_line(secs: u64, session: &str, user: &str, change: impl FnOnce(&mut SessionStart)) -> String {
        let mut one = test_start(T + secs, session, user);
        change(&mut one);
        SessionLogRecord::session_started(one).to_line()
    }
    fn search_log(log: &str, address: &str, port: Option<u16>, secs: u64) -> AddressSearch {
        let mut search = AddressSearch::new(time_at(secs), [(address.parse().unwrap(), port)]);
        search.read_lines(log);
        search
    }
    fn found_users(log: &str, address: &str, port: Option<u16>, secs: u64) -> Vec<String> {
        let search = search_log(log, address, port, secs);
        search.holders().iter().map(|whose| whose.begin.user.clone()).collect()
    }
    fn set_address(one: &mut SessionStart) {
        one.ipv4 = Some(Ipv4Addr::new(10, 0, 0, 2));
    }

    #[test]
    fn missing_or_early_ends_give_no_user_the_address_of_another() {
        let log = [
            start_line(10, "1", "ann", set_address),
            start_line(20, "2", "bob", set_address),
            session_end_line(15, "2"),
            start_line(30, "3", "eve", set_address),
        ]
        .concat();
        for (secs, expected) in
            [(12, &["ann"][..]), (20, &["ann", "bob"]), (25, &[]), (30, &["eve"]), (99, &["eve"])]
        {
            assert_eq!(found_users(&log, "10.0.0.2", None, secs), expected, "{secs}");
        }
    }

    #[test]
    fn an_address_is_of_whoever_had_it_in_that_second() {
        let mut log = [
            SessionLogRecord::service_started(time_at(0)).to_line(),
            start_line(10, "1", "ann", set_address),
            session_end_line(20, "1"),
            start_line(20, "2", "bob", set_address),
            start_line(21, "3", "eve", |_| {}),
        ]
        .concat();
        for (secs, expected) in [
            (9, &[][..]),
            (10, &["ann"]),
            (19, &["ann"]),
            (20, &["ann", "bob"]),
            (21, &["bob"]),
            (99, &["bob"]),
        ] {
            assert_eq!(found_users(&log, "10.0.0.2", None, secs), expected, "{secs}");
            assert_eq!(found_users(&log, "::ffff:10.0.0.2", Some(80), secs), expected);
        }
        log += &SessionLogRecord::service_started(time_at(50)).to_line();
        assert!(found_users(&log, "10.0.0.2", None, 51).is_empty(), "a start ends what was open");
        log += &session_end_line(50, "2");
        assert_eq!(found_users(&log, "10.0.0.2", None, 49), ["bob"]);
    }

    #[test]
    fn ipv6_is_asked_by_any_address_of_a_prefix() {
        let ann = |one: &mut SessionStart| {
            one.ipv6 =
                [("2001:db8:1:1::".parse().unwrap(), 64), ("2001:db8:ff00::".parse().unwrap(), 56)].into()
        };
        let bob = |one: &mut SessionStart| one.ipv6 = [("2001:db8:1:2::".parse().unwrap(), 64)].into();
        let log = [start_line(0, "1", "ann", ann), start_line(0, "2", "bob", bob)].concat();
        assert_eq!(found_users(&log, "2001:db8:1:1:ffff::9", Some(9), 5), ["ann"]);
        assert_eq!(found_users(&log, "2001:db8:ff00:ab::1", None, 5), ["ann"]);
        assert_eq!(found_users(&log, "2001:db8:1:2::1", None, 5), ["bob"]);
        assert!(found_users(&log, "2001:db8:1:3::1", None, 5).is_empty());
    }

    #[test]
    fn a_port_of_an_address_outside_is_of_its_block() {
        let address = Ipv4Addr::new(192, 0, 2, 1);
        let block =
            |first, last| move |one: &mut SessionStart| one.block = Some(PortBlock { address, first, last });
        let log =
            [start_line(0, "1", "ann", block(1024, 2047)), start_line(0, "2", "bob", block(2048, 3071))]
                .concat();
        assert_eq!(found_users(&log, "192.0.2.1", Some(2047), 1), ["ann"]);
        assert_eq!(found_users(&log, "192.0.2.1", Some(2048), 1), ["bob"]);
        assert!(found_users(&log, "192.0.2.1", Some(80), 1).is_empty());
        assert_eq!(found_users(&log, "192.0.2.1", None, 1), ["ann", "bob"], "without a port anybody of them");
    }

    #[test]
    fn days_that_overlap_and_torn_lines_do_no_harm() {
        let line = start_line(0, "1", "ann", set_address);
        let log =
            [&*line, &line[..line.len() / 2], "\n\n", &line, &session_end_line(10 * 86_400, "1")].concat();
        let search = search_log(&log, "10.0.0.2", None, 5);
        assert_eq!((search.holders().len(), search.unreadable_count()), (1, 1));
        let volume = search.log_volume();
        assert_eq!((volume.subscribers, volume.days), (1, 10.0));
        assert!((20.0..100.0).contains(&volume.octets_per_subscriber_day()), "{volume:?}");
        assert!(volume.octets_per_subscriber_day() < LogVolume::PER_CONNECTION / 10_000.0);
    }

    #[test]
    fn of_a_long_log_that_is_kept_which_may_answer() {
        // 50,000 users with a session of an hour each. 250 of them have the address in turn, and one session stays
        // open.
        let mut search = AddressSearch::new(
            time_at(5 * 3600 + 7),
            [([10, 0, 0, 2].into(), None), ([10, 0, 9, 9].into(), None)],
        );
        search.read_lines(&start_line(0, "long", "joe", |one| one.ipv4 = Some([10, 0, 9, 9].into())));
        for n in 0..50_000_u64 {
            let (round, host) = (n / 200, (n % 200) as u8);
            let session = format!("{n}");
            let begin = start_line(round * 3600, &session, &format!("user{n}"), |one| {
                one.ipv4 = Some([10, 0, 0, host].into())
            });
            search.read_lines(&begin);
            search.read_lines(&session_end_line(round * 3600 + 3599, &session));
        }
        let found: Vec<_> =
            search.holders().iter().map(|whose| (whose.begin.user.to_string(), whose.until)).collect();
        assert_eq!(found, [("user1002".to_owned(), Some(time_at(6 * 3600 - 1))), ("joe".to_owned(), None)]);
        assert_eq!(search.session_count(), 7, "those of the one address until then, and that of the other");
        let users = search.log_volume().subscribers;
        assert!((48_500..51_500).contains(&users), "{users} of 50001, by four standard errors");
        assert!(search.subscribers.0.len() == DistinctSubscriberEstimator::MOST);
    }

    #[test]
    fn users_are_estimated_whatever_they_are_called() {
        let names: [fn(u64) -> String; 6] = [
            |n| format!("{n}"),
            |n| format!("{n:08}"),
            |n| format!("{n:016}"),
            |n| format!("{}", n << 20),
            |n| format!("s{n:06}@students.example"),
            |n| format!("host/{:032x}", n << 64_u32.saturating_sub(40)),
        ];
        for (which, name) in names.into_iter().enumerate() {
            for many in [20_000, 100_000] {
                let mut users = DistinctSubscriberEstimator::default();
                (0..many).for_each(|n| users.insert(&name(n)));
                let off = (users.estimate_count() as f64 - many as f64).abs() / many as f64;
                assert!(
                    off < 0.032,
                    "{which}: {} of {many}, four standard errors off",
                    users.estimate_count()
                );
            }
        }
    }

    /// The reference: the result of a search that keeps all records.
    fn reference_holders(
        records: &[SessionLogRecord],
        at: WallTime,
        wanted: AddressAndOptionalPort,
    ) -> Vec<(String, Option<WallTime>)> {
        let mut all: Vec<(SessionStart, Option<WallTime>, bool)> = Vec::new();
        for record in records {
            match record {
                SessionLogRecord::Started(at) => all.iter_mut().filter(|one| one.2).for_each(|one| {
                    (one.1, one.2) = (Some(*at), false);
                }),
                SessionLogRecord::Begin(begin) if all.iter().any(|one| one.0.session == begin.session) => {}
                SessionLogRecord::Begin(begin) => {
                    let before = all.iter_mut().rfind(|one| one.0.ipv4.is_some() && one.0.ipv4 == begin.ipv4);
                    if let Some(before) = before {
                        before.1.get_or_insert(begin.started_at);
                    }
                    all.push((begin.clone(), None, true));
                }
                SessionLogRecord::End(end) => {
                    if let Some(one) = all.iter_mut().find(|one| one.0.session == end.session) {
                        let at = end.ended_at.max(one.0.started_at);
                        (one.1, one.2) = (Some(one.1.map_or(at, |until| until.min(at))), false);
                    }
                }
                _ => {}
            }
        }
        let until = at + Duration::from_secs(1);
        all.retain(|one| {
            has_address(&one.0, wanted) && one.0.started_at < until && one.1.is_none_or(|until| until >= at)
        });
        all.sort_by_key(|one| one.0.started_at);
        all.into_iter().map(|one| (one.0.session, one.1)).collect()
    }

    proptest! {
        #[test]
        fn the_answer_is_that_of_the_whole_log(
            steps in proptest::collection::vec((0_u8..6, 0_u8..12, 0_u8..3, 0_u64..4), 0..60), second in 0_u64..150, asked in 0_u8..5,
        ) {
            let (mut now, mut records, mut open) = (0, Vec::new(), BTreeMap::new());
            let mut number = 0;
            for (what, which, host, passes) in steps {
                now += 1 + passes;
                match what {
                    0..3 => {
                        number += 1;
                        let mut one = test_start(T + now, &number.to_string(), "ann");
                        one.ipv4 = Some([10, 0, 0, host].into());
                        one.ipv6 = [(Ipv6Addr::from_bits(u128::from(which % 3) << 64), 64)].into();
                        let first = 1000 * (1 + u16::from(which % 2));
                        one.block = Some(PortBlock { address: [192, 0, 2, 1].into(), first, last: first + 999 });
                        open.insert(one.session.clone(), one.clone());
                        records.push(SessionLogRecord::session_started(one));
                    }
                    3 => {
                        let end = open.keys().nth(usize::from(which) % open.len().max(1)).cloned();
                        if let Some(session) = end {
                            open.remove(&session);
                            records.push(SessionLogRecord::parse(&super::tests::session_end_line(now, &session)).unwrap());
                        }
                    }
                    // A day's file begins with the open sessions.
                    4 => records.extend(open.values().cloned().map(SessionLogRecord::session_started)),
                    _ => {
                        if which == 0 {
                            open.clear();
                            records.push(SessionLogRecord::service_started(time_at(now)));
                        }
                    }
                }
            }
            let wanted: AddressAndOptionalPort = match asked {
                0 => (IpAddr::from([10, 0, 0, 1]), None),
                1 => ("::1:0:0:0:7".parse().unwrap(), None),
                2 => (IpAddr::from([192, 0, 2, 1]), Some(1500)),
                3 => (IpAddr::from([192, 0, 2, 1]), None),
                _ => (IpAddr::from([10, 0, 0, 9]), None),
            };
            let mut search = AddressSearch::new(time_at(second), [wanted]);
            records.iter().for_each(|record| search.read_lines(&record.to_line()));
            let found: Vec<_> =
                search.holders().iter().map(|whose| (whose.begin.session.clone(), whose.until)).collect();
            prop_assert_eq!(found, reference_holders(&records, time_at(second), wanted));
        }
    }
}
