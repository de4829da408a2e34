//! The log as what it is asked: who had an address at a time.

use super::{Begin, End, Lost, Owed, Record};
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::string::String;
use alloc::vec::Vec;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use usher_core::{Duration, WallTime};

/// The log, read.
#[derive(Debug, Default)]
pub struct Index {
    sessions: Vec<Known>,
    /// Open ones by Acct-Session-Id.
    open: BTreeMap<String, usize>,
    all: BTreeMap<String, usize>,
    ipv4: BTreeMap<Ipv4Addr, Vec<usize>>,
    /// Sessions that ports of this address outside stood for.
    blocks: BTreeMap<Ipv4Addr, Vec<usize>>,
    /// By the length and the first address of a prefix.
    ipv6: BTreeMap<(u8, u128), Vec<usize>>,
    lengths: BTreeSet<u8>,
    octets: u64,
    span: Option<(WallTime, WallTime)>,
    /// Lines that are no records.
    unreadable: u64,
}

#[derive(Debug)]
struct Known {
    begin: Begin,
    until: Option<WallTime>,
    end: Option<End>,
    /// An AAA server has acknowledged its Stop.
    acknowledged: bool,
}

/// What is asked.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Query {
    /// Who had this address,
    pub address: IpAddr,
    /// and this port of it (`None`: any),
    pub port: Option<u16>,
    /// at this second.
    pub at: WallTime,
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
    /// Users that it names.
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

fn masked(address: Ipv6Addr, bits: u8) -> u128 {
    let host = u128::MAX.checked_shr(bits.into()).unwrap_or(0);
    address.to_bits() & !host
}

impl Index {
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
            Record::Stopped(_) => {}
            Record::StopAcknowledged { session, .. } => {
                if let Some(known) = self.all.get(&session).and_then(|n| self.sessions.get_mut(*n)) {
                    known.acknowledged = true;
                }
            }
            // What was open at the end of a day stands at the begin of the next day's file, too.
            Record::Begin(begin) if self.all.contains_key(&begin.session) => {}
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
        let n = self.sessions.len();
        self.open.insert(begin.session.clone(), n);
        self.all.insert(begin.session.clone(), n);
        if let Some(address) = begin.ipv4 {
            let held = self.ipv4.entry(address).or_default();
            // One that has the address still has ended, though the log could not be written then.
            if let Some(before) = held.last().and_then(|before| self.sessions.get_mut(*before)) {
                before.until.get_or_insert(begin.at);
            }
            held.push(n);
        }
        if let Some(block) = begin.block {
            self.blocks.entry(block.address).or_default().push(n);
        }
        for (prefix, bits) in &begin.ipv6 {
            self.lengths.insert(*bits);
            self.ipv6.entry((*bits, masked(*prefix, *bits))).or_default().push(n);
        }
        self.sessions.push(Known { begin, until: None, end: None, acknowledged: false });
    }

    /// Who had an address at a second: nobody, or one, or in a second in which it changed hands each of them, in the order of time.
    #[must_use]
    pub fn who(&self, query: &Query) -> Vec<Whose<'_>> {
        let mut found: BTreeSet<usize> = BTreeSet::new();
        match query.address.to_canonical() {
            IpAddr::V4(v4) => {
                found.extend(self.ipv4.get(&v4).into_iter().flatten());
                let of_block = |n: &&usize| {
                    let block = self.sessions.get(**n).and_then(|known| known.begin.block);
                    block.is_some_and(|block| query.port.is_none_or(|port| block.holds(v4.into(), port)))
                };
                found.extend(self.blocks.get(&v4).into_iter().flatten().filter(of_block));
            }
            IpAddr::V6(v6) => {
                for bits in &self.lengths {
                    found.extend(self.ipv6.get(&(*bits, masked(v6, *bits))).into_iter().flatten());
                }
            }
        }
        let (from, to) = (query.at, query.at + Duration::from_secs(1));
        let held = |known: &&Known| known.begin.at < to && known.until.is_none_or(|until| until >= from);
        let all = found.into_iter().filter_map(|n| self.sessions.get(n)).filter(held);
        let mut all: Vec<Whose<'_>> = all
            .map(|known| Whose { begin: &known.begin, until: known.until, end: known.end.as_ref() })
            .collect();
        all.sort_by_key(|whose| whose.begin.at);
        all
    }

    /// Whether nothing was read that is a record.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.span.is_none()
    }

    /// Sessions that have begun and not ended.
    pub fn open(&self) -> impl Iterator<Item = Lost> {
        let open = self.open.values().filter_map(|n| self.sessions.get(*n));
        open.map(|known| Lost { begin: known.begin.clone() })
    }

    /// Sessions whose Stop no AAA server has acknowledged, in the order in which they began.
    pub fn owed(&self) -> impl Iterator<Item = Owed> {
        let owes = |known: &&Known| !known.acknowledged;
        self.sessions.iter().filter(owes).filter_map(|known| {
            let end = known.end.clone().filter(|end| end.stop.is_some())?;
            Some(Owed { begin: known.begin.clone(), end })
        })
    }

    /// How much there is to keep.
    #[must_use]
    pub fn volume(&self) -> Volume {
        let users: BTreeSet<&str> = self.sessions.iter().map(|known| known.begin.user.as_str()).collect();
        let seconds = self.span.map_or(0, |(first, last)| last.unix_secs().saturating_sub(first.unix_secs()));
        Volume {
            octets: self.octets,
            subscribers: users.len() as u64,
            days: (seconds as f64 / 86_400.0).max(1.0),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::record::tests::begin;
    use super::super::{PortBlock, Stop};
    use super::*;

    const T: u64 = 1_790_000_000;

    fn at(secs: u64) -> WallTime {
        WallTime::from_unix_secs(T + secs)
    }
    fn end(secs: u64, session: &str) -> String {
        Record::end(ended(secs, session)).to_line()
    }
    fn ended(secs: u64, session: &str) -> End {
        let (at, reason) = (at(secs), "padt".into());
        End { at, session: session.into(), reason, octets_in: 1, octets_out: 2, stop: None }
    }
    fn with(secs: u64, session: &str, user: &str, change: impl FnOnce(&mut Begin)) -> String {
        let mut one = begin(T + secs, session, user);
        change(&mut one);
        Record::begin(one).to_line()
    }
    fn users(index: &Index, address: &str, port: Option<u16>, secs: u64) -> Vec<String> {
        let query = Query { address: address.parse().unwrap(), port, at: at(secs) };
        index.who(&query).iter().map(|whose| whose.begin.user.clone()).collect()
    }

    #[test]
    fn ends_that_are_missing_or_too_early_leave_nobody_with_what_another_has() {
        let has = |one: &mut Begin| one.ipv4 = Some(Ipv4Addr::new(10, 0, 0, 2));
        let mut index = Index::default();
        assert!(index.is_empty());
        let lines =
            [with(10, "1", "ann", has), with(20, "2", "bob", has), end(15, "2"), with(30, "3", "eve", has)];
        index.read(&lines.concat());
        assert!(!index.is_empty());
        for (secs, expected) in
            [(12, &["ann"][..]), (20, &["ann", "bob"]), (25, &[]), (30, &["eve"]), (99, &["eve"])]
        {
            assert_eq!(users(&index, "10.0.0.2", None, secs), expected, "{secs}");
        }
        let open: Vec<_> = index.open().map(|lost| lost.begin.session).collect();
        assert_eq!(open, ["1", "3"], "their accounting is owed a last word");
    }

    #[test]
    fn a_stop_is_owed_until_it_is_acknowledged() {
        let stop = Some(Stop { cause: 1, record: 1, packets: Some((3, 4)) });
        let owing = |secs, session| Record::end(End { stop, ..ended(secs, session) }).to_line();
        let acknowledged = |secs, session: &str| {
            Record::StopAcknowledged { at: at(secs), session: session.into() }.to_line()
        };
        let begins = ["1", "2", "3", "4"].map(|session| with(0, session, "ann", |_| {})).concat();
        let mut index = Index::default();
        index.read(&begins);
        // Of 3 no Stop is owed, 4 is open.
        index.read(&[owing(10, "1"), owing(11, "2"), end(12, "3")].concat());
        let owed = |index: &Index| index.owed().map(|owed| owed.end.session).collect::<Vec<_>>();
        assert_eq!(owed(&index), ["1", "2"]);
        index.read(&acknowledged(13, "2"));
        index.read(&acknowledged(13, "of another log"));
        assert_eq!(owed(&index), ["1"]);
        let one = index.owed().next().unwrap();
        assert_eq!((one.begin.user.as_str(), one.end.stop, one.end.octets_out), ("ann", stop, 2));
        // A start changes nothing of that.
        index.read(&Record::started(at(20)).to_line());
        assert_eq!((owed(&index), index.open().count()), (vec!["1".to_owned()], 0));
    }

    #[test]
    fn an_address_is_of_whoever_had_it_in_that_second() {
        let has = |one: &mut Begin| one.ipv4 = Some(Ipv4Addr::new(10, 0, 0, 2));
        let mut index = Index::default();
        index.read(&Record::started(at(0)).to_line());
        index.read(
            &[
                with(10, "1", "ann", has),
                end(20, "1"),
                with(20, "2", "bob", has),
                with(21, "3", "eve", |_| {}),
            ]
            .concat(),
        );
        for (secs, expected) in [
            (9, &[][..]),
            (10, &["ann"]),
            (19, &["ann"]),
            (20, &["ann", "bob"]),
            (21, &["bob"]),
            (99, &["bob"]),
        ] {
            assert_eq!(users(&index, "10.0.0.2", None, secs), expected, "{secs}");
            assert_eq!(users(&index, "::ffff:10.0.0.2", Some(80), secs), expected);
        }
        assert_eq!(index.open().map(|lost| lost.begin.user).collect::<Vec<_>>(), ["bob", "eve"]);
        index.read(&Record::started(at(50)).to_line());
        assert_eq!(
            (index.open().count(), users(&index, "10.0.0.2", None, 51)),
            (0, vec![]),
            "a start ends what was open"
        );
        index.read(&end(50, "2"));
        assert_eq!(users(&index, "10.0.0.2", None, 49), ["bob"]);
    }

    #[test]
    fn ipv6_is_asked_by_any_address_of_a_prefix() {
        let mut index = Index::default();
        index.read(&with(0, "1", "ann", |one| {
            one.ipv6 = vec![("2001:db8:1:1::".parse().unwrap(), 64), ("2001:db8:ff00::".parse().unwrap(), 56)]
        }));
        index.read(&with(0, "2", "bob", |one| one.ipv6 = vec![("2001:db8:1:2::".parse().unwrap(), 64)]));
        assert_eq!(users(&index, "2001:db8:1:1:ffff::9", Some(9), 5), ["ann"]);
        assert_eq!(users(&index, "2001:db8:ff00:ab::1", None, 5), ["ann"]);
        assert_eq!(users(&index, "2001:db8:1:2::1", None, 5), ["bob"]);
        assert!(users(&index, "2001:db8:1:3::1", None, 5).is_empty());
    }

    #[test]
    fn a_port_of_an_address_outside_is_of_its_block() {
        let address = Ipv4Addr::new(192, 0, 2, 1);
        let block = |first, last| move |one: &mut Begin| one.block = Some(PortBlock { address, first, last });
        let mut index = Index::default();
        index
            .read(&[with(0, "1", "ann", block(1024, 2047)), with(0, "2", "bob", block(2048, 3071))].concat());
        assert_eq!(users(&index, "192.0.2.1", Some(2047), 1), ["ann"]);
        assert_eq!(users(&index, "192.0.2.1", Some(2048), 1), ["bob"]);
        assert!(users(&index, "192.0.2.1", Some(80), 1).is_empty());
        assert_eq!(users(&index, "192.0.2.1", None, 1), ["ann", "bob"], "without a port anybody of them");
    }

    #[test]
    fn days_that_overlap_and_torn_lines_do_no_harm() {
        let has = |one: &mut Begin| one.ipv4 = Some(Ipv4Addr::new(10, 0, 0, 2));
        let line = with(0, "1", "ann", has);
        let mut index = Index::default();
        index.read(&line);
        index.read(&line[..line.len() / 2]);
        index.read("\n\n");
        index.read(&line);
        index.read(&end(10 * 86_400, "1"));
        assert_eq!((users(&index, "10.0.0.2", None, 5).len(), index.unreadable()), (1, 1));
        let volume = index.volume();
        assert_eq!((volume.subscribers, volume.days), (1, 10.0));
        assert!((20.0..100.0).contains(&volume.per_subscriber_and_day()), "{volume:?}");
        assert!(volume.per_subscriber_and_day() < Volume::PER_CONNECTION / 10_000.0);
    }
}
