//! The log as a start reads it: open sessions, and sessions with an unacknowledged Stop.

use super::{SessionEnd, SessionLogRecord, SessionLostByRestart, SessionStart, UnacknowledgedStop};
use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::vec::Vec;

/// The sessions of a log.
#[derive(Debug, Default)]
pub struct SessionLogIndex {
    sessions: Vec<IndexedSession>,
    /// The open sessions by Acct-Session-Id.
    open: BTreeMap<String, usize>,
    all: BTreeMap<String, usize>,
    /// The numbers of lines that are records and that are not.
    records: u64,
    unreadable: u64,
}

#[derive(Debug)]
struct IndexedSession {
    begin: SessionStart,
    end: Option<SessionEnd>,
    /// True if an AAA server has acknowledged its Stop.
    acknowledged: bool,
}

impl SessionLogIndex {
    /// Reads further lines, in the order of the log. Counts lines that are not records: a power loss may have torn the
    /// last line of a file.
    pub fn read_lines(&mut self, text: &str) {
        for line in text.lines().filter(|line| !line.trim().is_empty()) {
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

    fn apply_record(&mut self, record: SessionLogRecord) {
        self.records += 1;
        match record {
            // The process has started anew, and the sessions that were open have ended with the old process.
            SessionLogRecord::Started(_) => self.open.clear(),
            SessionLogRecord::Stopped(_) => {}
            SessionLogRecord::StopAcknowledged { session, .. } => {
                if let Some(known) = self.all.get(&session).and_then(|n| self.sessions.get_mut(*n)) {
                    known.acknowledged = true;
                }
            }
            // A day's file begins with the sessions that are open, which the previous file has too.
            SessionLogRecord::Begin(begin) if self.all.contains_key(&begin.session) => {}
            SessionLogRecord::Begin(begin) => {
                let n = self.sessions.len();
                self.open.insert(begin.session.clone(), n);
                self.all.insert(begin.session.clone(), n);
                self.sessions.push(IndexedSession { begin, end: None, acknowledged: false });
            }
            SessionLogRecord::End(end) => {
                self.open.remove(&end.session);
                if let Some(known) = self.all.get(&end.session).and_then(|n| self.sessions.get_mut(*n)) {
                    known.end = Some(end);
                }
            }
        }
    }

    /// True if no record was read.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.records == 0
    }

    /// Returns the sessions that have begun and not ended.
    pub fn open_sessions(&self) -> impl Iterator<Item = SessionLostByRestart> {
        let open = self.open.values().filter_map(|n| self.sessions.get(*n));
        open.map(|known| SessionLostByRestart { begin: known.begin.clone() })
    }

    /// Returns the sessions with an unacknowledged Stop, in the order of their begins.
    pub fn unacknowledged_stops(&self) -> impl Iterator<Item = UnacknowledgedStop> {
        let owes = |known: &&IndexedSession| !known.acknowledged;
        self.sessions.iter().filter(owes).filter_map(|known| {
            let end = known.end.clone().filter(|end| end.stop.is_some())?;
            Some(UnacknowledgedStop { begin: known.begin.clone(), end })
        })
    }
}

#[cfg(test)]
mod tests {
    use super::super::AccountingStop;
    use super::super::record::tests::test_start;
    use super::*;
    use usher_core::WallTime;

    const T: u64 = 1_790_000_000;

    fn time_at(secs: u64) -> WallTime {
        WallTime::from_unix_secs(T + secs)
    }
    fn test_end(secs: u64, session: &str) -> SessionEnd {
        let (at, reason) = (time_at(secs), "padt".into());
        SessionEnd { ended_at: at, session: session.into(), reason, octets_in: 1, octets_out: 2, stop: None }
    }
    fn start_line(secs: u64, session: &str, user: &str) -> String {
        SessionLogRecord::session_started(test_start(T + secs, session, user)).to_line()
    }

    #[test]
    fn what_has_begun_and_not_ended_is_open() {
        let mut index = SessionLogIndex::default();
        assert!(index.is_empty());
        index.read_lines("{\"event\":\"beg\n\n");
        assert!(index.is_empty() && index.unreadable_count() == 1);
        let lines =
            [start_line(10, "1", "ann"), start_line(20, "2", "bob"), start_line(20, "3", "eve")].concat();
        index.read_lines(&lines);
        index.read_lines(&SessionLogRecord::session_ended(test_end(30, "2")).to_line());
        // The next day's file repeats the begins of open sessions. Ended sessions stay ended.
        index.read_lines(&lines);
        assert!(!index.is_empty());
        let open =
            |index: &SessionLogIndex| index.open_sessions().map(|lost| lost.begin.user).collect::<Vec<_>>();
        assert_eq!(open(&index), ["ann", "eve"], "their accounting is owed a last word");
        index.read_lines(&SessionLogRecord::service_started(time_at(50)).to_line());
        assert!(open(&index).is_empty(), "a start ends what was open");
    }

    #[test]
    fn a_stop_is_owed_until_it_is_acknowledged() {
        let stop = Some(AccountingStop { cause: 1, record: 1, packets: Some((3, 4)) });
        let owing = |secs, session| {
            SessionLogRecord::session_ended(SessionEnd { stop, ..test_end(secs, session) }).to_line()
        };
        let acknowledged = |secs, session: &str| {
            SessionLogRecord::StopAcknowledged { acknowledged_at: time_at(secs), session: session.into() }
                .to_line()
        };
        let begins = ["1", "2", "3", "4"].map(|session| start_line(0, session, "ann")).concat();
        let mut index = SessionLogIndex::default();
        index.read_lines(&begins);
        // Sessions 1 and 2 still owe a Stop. Session 3 has ended and owes none. Session 4 is open.
        index.read_lines(
            &[owing(10, "1"), owing(11, "2"), SessionLogRecord::session_ended(test_end(12, "3")).to_line()]
                .concat(),
        );
        let owed = |index: &SessionLogIndex| {
            index.unacknowledged_stops().map(|owed| owed.end.session).collect::<Vec<_>>()
        };
        assert_eq!(owed(&index), ["1", "2"]);
        index.read_lines(&acknowledged(13, "2"));
        index.read_lines(&acknowledged(13, "of another log"));
        assert_eq!(owed(&index), ["1"]);
        let one = index.unacknowledged_stops().next().unwrap();
        assert_eq!((one.begin.user.as_str(), one.end.stop, one.end.octets_out), ("ann", stop, 2));
        // A start does not change the unacknowledged Stops.
        index.read_lines(&SessionLogRecord::service_started(time_at(20)).to_line());
        assert_eq!((owed(&index), index.open_sessions().count()), (vec!["1".to_owned()], 0));
    }
}
