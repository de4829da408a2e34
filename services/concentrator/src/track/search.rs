//! The log as it is asked: who had an address in a second. A log is read from its first line to its last, and what is kept of it is what may
//! be the answer, however long it is.

use super::{Begin, End, Record};
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::string::String;
use alloc::vec::Vec;
use core::hash::BuildHasher;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use foldhash::quality::FixedState;
use usher_core::{Duration, WallTime};

/// An address, and a port of it (`None`: any).
pub type TransportAddress = (IpAddr, Option<u16>);

/// Looks for who had addresses in a second, in lines of the log from the begin of a day's file on.
#[derive(Debug)]
pub struct Search {
    /// With their addresses as IPv4 has them, where they are of IPv4.
    addresses: Vec<TransportAddress>,
    from: WallTime,
    to: WallTime,
    /// Sessions that began before the second was over, and had one of the addresses.
    sessions: Vec<Known>,
    /// Those by Acct-Session-Id.
    all: BTreeMap<String, usize>,
    /// Those that are open, likewise.
    open: BTreeMap<String, usize>,
    /// Which of those was the last to get an IPv4 address; somebody else's who got it later is not here.
    holders: BTreeMap<Ipv4Addr, usize>,
    octets: u64,
    subscribers: Subscribers,
    span: Option<(WallTime, WallTime)>,
    /// Lines that are no records.
    unreadable: u64,
}

#[derive(Debug)]
struct Known {
    begin: Begin,
    until: Option<WallTime>,
    end: Option<End>,
}

/// Who it was.
#[derive(Clone, PartialEq, Debug)]
pub struct Whose<'a> {
    /// The session.
    pub begin: &'a Begin,
    /// Until when it had it; `None`: it still has.
    pub until: Option<WallTime>,
    /// How the session ended, where that was logged.
    pub end: Option<&'a End>,
}

/// How much there is to keep.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Volume {
    /// Octets of the log.
    pub octets: u64,
    /// Users that it names: counted up to 16,384, beyond that estimated (standard error 0.8 %).
    pub subscribers: u64,
    /// The time that it is about, days; at least one.
    pub days: f64,
}

impl Volume {
    /// What RFC 7422 §1 counts for a log of each connection of a subscriber, octets a day.
    pub const PER_CONNECTION: f64 = 5e6;
    /// Octets of a subscriber and day.
    #[must_use]
    pub fn per_subscriber_and_day(&self) -> f64 {
        if self.subscribers == 0 { 0.0 } else { self.octets as f64 / self.subscribers as f64 / self.days }
    }
}

/// How many different users there are: of their hashes the least ones say that, wherever these lie ("k minimum values", Bar-Yossef and
/// others, 2002).
#[derive(Debug, Default)]
struct Subscribers(BTreeSet<u64>);

impl Subscribers {
    const MOST: usize = 1 << 14;

    fn take(&mut self, user: &str) {
        let hash = FixedState::with_seed(0).hash_one(user);
        if self.0.len() < Self::MOST || self.0.last().is_some_and(|last| hash < *last) {
            self.0.insert(hash);
            if self.0.len() > Self::MOST {
                self.0.pop_last();
            }
        }
    }
    fn count(&self) -> u64 {
        match self.0.last().filter(|_| self.0.len() == Self::MOST) {
            Some(last) => ((Self::MOST - 1) as f64 / (*last as f64 / u64::MAX as f64)) as u64,
            None => self.0.len() as u64,
        }
    }
}

fn masked(address: Ipv6Addr, bits: u8) -> u128 {
    let host = u128::MAX.checked_shr(bits.into()).unwrap_or(0);
    address.to_bits() & !host
}

/// Whether a session has an address, or the port of it.
fn had(begin: &Begin, (address, port): TransportAddress) -> bool {
    match address {
        IpAddr::V4(v4) => {
            let of_block = |block: super::PortBlock| match port {
                Some(port) => block.holds(address, port),
                None => block.address == v4,
            };
            begin.ipv4 == Some(v4) || begin.block.is_some_and(of_block)
        }
        IpAddr::V6(v6) => begin.ipv6.iter().any(|(prefix, bits)| masked(*prefix, *bits) == masked(v6, *bits)),
    }
}

impl Search {
    /// Who had one of these in the second that begins then?
    #[must_use]
    pub fn new(at: WallTime, addresses: impl IntoIterator<Item = TransportAddress>) -> Self {
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
            subscribers: Subscribers::default(),
            span: None,
            unreadable: 0,
        }
    }

    /// Takes further lines, in the order in which they were written. Those that are no records are counted: a loss of power may
    /// have torn the last one of a file.
    pub fn read(&mut self, text: &str) {
        for line in text.split_inclusive('\n') {
            self.octets += line.len() as u64;
            if line.trim().is_empty() {
                continue;
            }
            match Record::parse(line) {
                Ok(record) => self.take(record),
                Err(_) => self.unreadable += 1,
            }
        }
    }
    /// Lines that were no records.
    #[must_use]
    pub const fn unreadable(&self) -> u64 {
        self.unreadable
    }
    /// How many sessions are kept.
    #[must_use]
    pub const fn kept(&self) -> usize {
        self.sessions.len()
    }

    fn take(&mut self, record: Record) {
        let at = record.at();
        let (first, last) = self.span.unwrap_or((at, at));
        self.span = Some((first.min(at), last.max(at)));
        match record {
            Record::Started(at) => {
                // They ended with their concentrator: after the last word of the log, and before this.
                for n in core::mem::take(&mut self.open).into_values() {
                    if let Some(known) = self.sessions.get_mut(n) {
                        known.until = Some(at);
                    }
                }
            }
            Record::Stopped(_) | Record::StopAcknowledged { .. } => {}
            Record::Begin(begin) => self.begin(begin),
            Record::End(end) => {
                self.open.remove(&end.session);
                if let Some(known) = self.all.get(&end.session).and_then(|n| self.sessions.get_mut(*n)) {
                    // Where the clock was set back meanwhile it ends no sooner than it began.
                    let at = end.at.max(known.begin.at);
                    known.until = Some(known.until.map_or(at, |until| until.min(at)));
                    known.end = Some(end);
                }
            }
        }
    }

    fn begin(&mut self, begin: Begin) {
        self.subscribers.take(&begin.user);
        // What was open at the end of a day stands at the begin of the next day's file, too.
        if self.all.contains_key(&begin.session) {
            return;
        }
        let keeps = begin.at < self.to && self.addresses.iter().any(|wanted| had(&begin, *wanted));
        if let Some(address) = begin.ipv4
            && let Some(before) = self.holders.get(&address).and_then(|n| self.sessions.get_mut(*n))
            && (keeps || begin.at > before.begin.at)
        {
            // One that has the address still has ended, though the log could not be written then. Of somebody else's session the begin of a
            // day's file repeats what was before.
            before.until.get_or_insert(begin.at);
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
        self.sessions.push(Known { begin, until: None, end: None });
    }

    /// Who had them: of each nobody, or one, or in a second in which it changed hands each of them, in the order of time.
    #[must_use]
    pub fn found(&self) -> Vec<Whose<'_>> {
        let mut all = Vec::new();
        for wanted in &self.addresses {
            let held = |known: &&Known| {
                had(&known.begin, *wanted) && known.until.is_none_or(|until| until >= self.from)
            };
            let of = self.sessions.iter().filter(held).map(|known| Whose {
                begin: &known.begin,
                until: known.until,
                end: known.end.as_ref(),
            });
            let mut of: Vec<Whose<'_>> = of.collect();
            of.sort_by_key(|whose| whose.begin.at);
            all.append(&mut of);
        }
        all
    }

    /// How much there is to keep.
    #[must_use]
    pub fn volume(&self) -> Volume {
        let seconds = self.span.map_or(0, |(first, last)| last.unix_secs().saturating_sub(first.unix_secs()));
        Volume {
            octets: self.octets,
            subscribers: self.subscribers.count(),
            days: (seconds as f64 / 86_400.0).max(1.0),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::PortBlock;
    use super::super::record::tests::begin;
    use super::*;
    use alloc::format;
    use alloc::string::ToString;
    use proptest::prelude::*;

    const T: u64 = 1_790_000_000;

    fn at(secs: u64) -> WallTime {
        WallTime::from_unix_secs(T + secs)
    }
    fn end(secs: u64, session: &str) -> String {
        let (at, session, reason) = (at(secs), session.into(), "padt".into());
        Record::end(End { at, session, reason, octets_in: 1, octets_out: 2, stop: None }).to_line()
    }
    fn with(secs: u64, session: &str, user: &str, change: impl FnOnce(&mut Begin)) -> String {
        let mut one = begin(T + secs, session, user);
        change(&mut one);
        Record::begin(one).to_line()
    }
    fn search(log: &str, address: &str, port: Option<u16>, secs: u64) -> Search {
        let mut search = Search::new(at(secs), [(address.parse().unwrap(), port)]);
        search.read(log);
        search
    }
    fn users(log: &str, address: &str, port: Option<u16>, secs: u64) -> Vec<String> {
        let search = search(log, address, port, secs);
        search.found().iter().map(|whose| whose.begin.user.clone()).collect()
    }
    fn has(one: &mut Begin) {
        one.ipv4 = Some(Ipv4Addr::new(10, 0, 0, 2));
    }

    #[test]
    fn ends_that_are_missing_or_too_early_leave_nobody_with_what_another_has() {
        let log =
            [with(10, "1", "ann", has), with(20, "2", "bob", has), end(15, "2"), with(30, "3", "eve", has)]
                .concat();
        for (secs, expected) in
            [(12, &["ann"][..]), (20, &["ann", "bob"]), (25, &[]), (30, &["eve"]), (99, &["eve"])]
        {
            assert_eq!(users(&log, "10.0.0.2", None, secs), expected, "{secs}");
        }
    }

    #[test]
    fn an_address_is_of_whoever_had_it_in_that_second() {
        let mut log = [
            Record::started(at(0)).to_line(),
            with(10, "1", "ann", has),
            end(20, "1"),
            with(20, "2", "bob", has),
            with(21, "3", "eve", |_| {}),
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
            assert_eq!(users(&log, "10.0.0.2", None, secs), expected, "{secs}");
            assert_eq!(users(&log, "::ffff:10.0.0.2", Some(80), secs), expected);
        }
        log += &Record::started(at(50)).to_line();
        assert!(users(&log, "10.0.0.2", None, 51).is_empty(), "a start ends what was open");
        log += &end(50, "2");
        assert_eq!(users(&log, "10.0.0.2", None, 49), ["bob"]);
    }

    #[test]
    fn ipv6_is_asked_by_any_address_of_a_prefix() {
        let ann = |one: &mut Begin| {
            one.ipv6 =
                [("2001:db8:1:1::".parse().unwrap(), 64), ("2001:db8:ff00::".parse().unwrap(), 56)].into()
        };
        let bob = |one: &mut Begin| one.ipv6 = [("2001:db8:1:2::".parse().unwrap(), 64)].into();
        let log = [with(0, "1", "ann", ann), with(0, "2", "bob", bob)].concat();
        assert_eq!(users(&log, "2001:db8:1:1:ffff::9", Some(9), 5), ["ann"]);
        assert_eq!(users(&log, "2001:db8:ff00:ab::1", None, 5), ["ann"]);
        assert_eq!(users(&log, "2001:db8:1:2::1", None, 5), ["bob"]);
        assert!(users(&log, "2001:db8:1:3::1", None, 5).is_empty());
    }

    #[test]
    fn a_port_of_an_address_outside_is_of_its_block() {
        let address = Ipv4Addr::new(192, 0, 2, 1);
        let block = |first, last| move |one: &mut Begin| one.block = Some(PortBlock { address, first, last });
        let log = [with(0, "1", "ann", block(1024, 2047)), with(0, "2", "bob", block(2048, 3071))].concat();
        assert_eq!(users(&log, "192.0.2.1", Some(2047), 1), ["ann"]);
        assert_eq!(users(&log, "192.0.2.1", Some(2048), 1), ["bob"]);
        assert!(users(&log, "192.0.2.1", Some(80), 1).is_empty());
        assert_eq!(users(&log, "192.0.2.1", None, 1), ["ann", "bob"], "without a port anybody of them");
    }

    #[test]
    fn days_that_overlap_and_torn_lines_do_no_harm() {
        let line = with(0, "1", "ann", has);
        let log = [&*line, &line[..line.len() / 2], "\n\n", &line, &end(10 * 86_400, "1")].concat();
        let search = search(&log, "10.0.0.2", None, 5);
        assert_eq!((search.found().len(), search.unreadable()), (1, 1));
        let volume = search.volume();
        assert_eq!((volume.subscribers, volume.days), (1, 10.0));
        assert!((20.0..100.0).contains(&volume.per_subscriber_and_day()), "{volume:?}");
        assert!(volume.per_subscriber_and_day() < Volume::PER_CONNECTION / 10_000.0);
    }

    #[test]
    fn of_a_long_log_that_is_kept_which_may_answer() {
        // 50,000 users, each for an hour, of whom 250 have an address one after the other; one is there all the time.
        let mut search =
            Search::new(at(5 * 3600 + 7), [([10, 0, 0, 2].into(), None), ([10, 0, 9, 9].into(), None)]);
        search.read(&with(0, "long", "joe", |one| one.ipv4 = Some([10, 0, 9, 9].into())));
        for n in 0..50_000_u64 {
            let (round, host) = (n / 200, (n % 200) as u8);
            let session = format!("{n}");
            let begin = with(round * 3600, &session, &format!("user{n}"), |one| {
                one.ipv4 = Some([10, 0, 0, host].into())
            });
            search.read(&begin);
            search.read(&end(round * 3600 + 3599, &session));
        }
        let found: Vec<_> =
            search.found().iter().map(|whose| (whose.begin.user.to_string(), whose.until)).collect();
        assert_eq!(found, [("user1002".to_owned(), Some(at(6 * 3600 - 1))), ("joe".to_owned(), None)]);
        assert_eq!(search.kept(), 7, "those of the one address until then, and that of the other");
        let users = search.volume().subscribers;
        assert!((48_500..51_500).contains(&users), "{users} of 50001, by four standard errors");
        assert!(search.subscribers.0.len() == Subscribers::MOST);
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
                let mut users = Subscribers::default();
                (0..many).for_each(|n| users.take(&name(n)));
                let off = (users.count() as f64 - many as f64).abs() / many as f64;
                assert!(off < 0.032, "{which}: {} of {many}, four standard errors off", users.count());
            }
        }
    }

    /// The answer by all that a log has, kept.
    fn by_all(records: &[Record], at: WallTime, wanted: TransportAddress) -> Vec<(String, Option<WallTime>)> {
        let mut all: Vec<(Begin, Option<WallTime>, bool)> = Vec::new();
        for record in records {
            match record {
                Record::Started(at) => all.iter_mut().filter(|one| one.2).for_each(|one| {
                    (one.1, one.2) = (Some(*at), false);
                }),
                Record::Begin(begin) if all.iter().any(|one| one.0.session == begin.session) => {}
                Record::Begin(begin) => {
                    let before = all.iter_mut().rfind(|one| one.0.ipv4.is_some() && one.0.ipv4 == begin.ipv4);
                    if let Some(before) = before {
                        before.1.get_or_insert(begin.at);
                    }
                    all.push((begin.clone(), None, true));
                }
                Record::End(end) => {
                    if let Some(one) = all.iter_mut().find(|one| one.0.session == end.session) {
                        let at = end.at.max(one.0.at);
                        (one.1, one.2) = (Some(one.1.map_or(at, |until| until.min(at))), false);
                    }
                }
                _ => {}
            }
        }
        let until = at + Duration::from_secs(1);
        all.retain(|one| had(&one.0, wanted) && one.0.at < until && one.1.is_none_or(|until| until >= at));
        all.sort_by_key(|one| one.0.at);
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
                        let mut one = begin(T + now, &number.to_string(), "ann");
                        one.ipv4 = Some([10, 0, 0, host].into());
                        one.ipv6 = [(Ipv6Addr::from_bits(u128::from(which % 3) << 64), 64)].into();
                        let first = 1000 * (1 + u16::from(which % 2));
                        one.block = Some(PortBlock { address: [192, 0, 2, 1].into(), first, last: first + 999 });
                        open.insert(one.session.clone(), one.clone());
                        records.push(Record::begin(one));
                    }
                    3 => {
                        let end = open.keys().nth(usize::from(which) % open.len().max(1)).cloned();
                        if let Some(session) = end {
                            open.remove(&session);
                            records.push(Record::parse(&super::tests::end(now, &session)).unwrap());
                        }
                    }
                    // A day's file begins with what is open.
                    4 => records.extend(open.values().cloned().map(Record::begin)),
                    _ => {
                        if which == 0 {
                            open.clear();
                            records.push(Record::started(at(now)));
                        }
                    }
                }
            }
            let wanted: TransportAddress = match asked {
                0 => (IpAddr::from([10, 0, 0, 1]), None),
                1 => ("::1:0:0:0:7".parse().unwrap(), None),
                2 => (IpAddr::from([192, 0, 2, 1]), Some(1500)),
                3 => (IpAddr::from([192, 0, 2, 1]), None),
                _ => (IpAddr::from([10, 0, 0, 9]), None),
            };
            let mut search = Search::new(at(second), [wanted]);
            records.iter().for_each(|record| search.read(&record.to_line()));
            let found: Vec<_> =
                search.found().iter().map(|whose| (whose.begin.session.clone(), whose.until)).collect();
            prop_assert_eq!(found, by_all(&records, at(second), wanted));
        }
    }
}
