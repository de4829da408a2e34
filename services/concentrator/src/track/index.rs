//! The log as a start reads it: which sessions are open, and of which a Stop is owed.

use super::{Begin, End, Lost, Owed, Record};
use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::vec::Vec;

/// The log, read.
#[derive(Debug, Default)]
pub struct Index {
    sessions: Vec<Known>,
    /// Open ones by Acct-Session-Id.
    open: BTreeMap<String, usize>,
    all: BTreeMap<String, usize>,
    /// Lines that are records, and those that are none.
    records: u64,
    unreadable: u64,
}

#[derive(Debug)]
struct Known {
    begin: Begin,
    end: Option<End>,
    /// An AAA server has acknowledged its Stop.
    acknowledged: bool,
}

impl Index {
    /// Takes further lines, in the order in which they were written. Those that are no records are counted: a loss of power may
    /// have torn the last one of a file.
    pub fn read(&mut self, text: &str) {
        for line in text.lines().filter(|line| !line.trim().is_empty()) {
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
        self.records += 1;
        match record {
            // They ended with their concentrator.
            Record::Started(_) => self.open.clear(),
            Record::Stopped(_) => {}
            Record::StopAcknowledged { session, .. } => {
                if let Some(known) = self.all.get(&session).and_then(|n| self.sessions.get_mut(*n)) {
                    known.acknowledged = true;
                }
            }
            // What was open at the end of a day stands at the begin of the next day's file, too.
            Record::Begin(begin) if self.all.contains_key(&begin.session) => {}
            Record::Begin(begin) => {
                let n = self.sessions.len();
                self.open.insert(begin.session.clone(), n);
                self.all.insert(begin.session.clone(), n);
                self.sessions.push(Known { begin, end: None, acknowledged: false });
            }
            Record::End(end) => {
                self.open.remove(&end.session);
                if let Some(known) = self.all.get(&end.session).and_then(|n| self.sessions.get_mut(*n)) {
                    known.end = Some(end);
                }
            }
        }
    }

    /// Whether nothing was read that is a record.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.records == 0
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
}

#[cfg(test)]
mod tests {
    use super::super::Stop;
    use super::super::record::tests::begin;
    use super::*;
    use usher_core::WallTime;

    const T: u64 = 1_790_000_000;

    fn at(secs: u64) -> WallTime {
        WallTime::from_unix_secs(T + secs)
    }
    fn ended(secs: u64, session: &str) -> End {
        let (at, reason) = (at(secs), "padt".into());
        End { at, session: session.into(), reason, octets_in: 1, octets_out: 2, stop: None }
    }
    fn with(secs: u64, session: &str, user: &str) -> String {
        Record::begin(begin(T + secs, session, user)).to_line()
    }

    #[test]
    fn what_has_begun_and_not_ended_is_open() {
        let mut index = Index::default();
        assert!(index.is_empty());
        index.read("{\"event\":\"beg\n\n");
        assert!(index.is_empty() && index.unreadable() == 1);
        let lines = [with(10, "1", "ann"), with(20, "2", "bob"), with(20, "3", "eve")].concat();
        index.read(&lines);
        index.read(&Record::end(ended(30, "2")).to_line());
        // Of what was open at the end of a day the next day's file has the begins, and those who have gone stay so.
        index.read(&lines);
        assert!(!index.is_empty());
        let open = |index: &Index| index.open().map(|lost| lost.begin.user).collect::<Vec<_>>();
        assert_eq!(open(&index), ["ann", "eve"], "their accounting is owed a last word");
        index.read(&Record::started(at(50)).to_line());
        assert!(open(&index).is_empty(), "a start ends what was open");
    }

    #[test]
    fn a_stop_is_owed_until_it_is_acknowledged() {
        let stop = Some(Stop { cause: 1, record: 1, packets: Some((3, 4)) });
        let owing = |secs, session| Record::end(End { stop, ..ended(secs, session) }).to_line();
        let acknowledged = |secs, session: &str| {
            Record::StopAcknowledged { at: at(secs), session: session.into() }.to_line()
        };
        let begins = ["1", "2", "3", "4"].map(|session| with(0, session, "ann")).concat();
        let mut index = Index::default();
        index.read(&begins);
        // Of 3 no Stop is owed, 4 is open.
        index.read(&[owing(10, "1"), owing(11, "2"), Record::end(ended(12, "3")).to_line()].concat());
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
}
