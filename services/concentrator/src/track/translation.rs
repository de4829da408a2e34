//! The log of translated connections: the internal and the external end of each. Hosts need it if they share addresses
//! by connection. With port blocks (RFC 7422) it is not needed.

use super::parse_time;
use alloc::collections::BTreeMap;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::net::{Ipv4Addr, SocketAddrV4};
use serde::{Deserialize, Serialize};
use usher_core::{Duration, WallTime};

/// A translated connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TranslatedConnection {
    /// The IP protocol: 6 (TCP), 17 (UDP) or 1 (ICMP, with the query's identifier as port).
    pub protocol: u8,
    /// The host's end.
    pub inside: SocketAddrV4,
    /// The external end.
    pub outside: SocketAddrV4,
}

/// A record of the log: one line.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TranslationRecord {
    /// The follower has started. Connections before it are unknown.
    Started(WallTime),
    /// A translation has begun.
    Begin(WallTime, TranslatedConnection),
    /// A translation has ended.
    End(WallTime, TranslatedConnection),
}

#[derive(Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "kebab-case")]
enum TranslationLogLine {
    Started { at: String },
    Begin { at: String, protocol: u8, inside: SocketAddrV4, outside: SocketAddrV4 },
    End { at: String, protocol: u8, inside: SocketAddrV4, outside: SocketAddrV4 },
}

impl TranslationRecord {
    /// Returns the record's time.
    #[must_use]
    pub const fn time(&self) -> WallTime {
        match self {
            Self::Started(at) | Self::Begin(at, _) | Self::End(at, _) => *at,
        }
    }

    /// Returns the record as a line, with its line feed.
    #[must_use]
    pub fn to_line(&self) -> String {
        let line = match *self {
            Self::Started(at) => TranslationLogLine::Started { at: at.to_string() },
            Self::Begin(at, TranslatedConnection { protocol, inside, outside }) => {
                TranslationLogLine::Begin { at: at.to_string(), protocol, inside, outside }
            }
            Self::End(at, TranslatedConnection { protocol, inside, outside }) => {
                TranslationLogLine::End { at: at.to_string(), protocol, inside, outside }
            }
        };
        // Strings and numbers always serialize.
        let mut text = serde_json::to_string(&line).unwrap_or_default();
        text.push('\n');
        text
    }

    /// Parses a line.
    ///
    /// # Errors
    /// The line is not a record. The text names the reason.
    pub fn parse(line: &str) -> Result<Self, String> {
        let line: TranslationLogLine = serde_json::from_str(line).map_err(|error| error.to_string())?;
        let time = |at: &str| parse_time(at).ok_or_else(|| format!("\"{at}\" is not a time"));
        Ok(match line {
            TranslationLogLine::Started { at } => Self::Started(time(&at)?),
            TranslationLogLine::Begin { at, protocol, inside, outside } => {
                Self::Begin(time(&at)?, TranslatedConnection { protocol, inside, outside })
            }
            TranslationLogLine::End { at, protocol, inside, outside } => {
                Self::End(time(&at)?, TranslatedConnection { protocol, inside, outside })
            }
        })
    }
}

/// A search for the hosts behind an external end at a given second. It reads the log's files backwards from that
/// second's day.
#[derive(Debug)]
pub struct TranslationSearch {
    outside: SocketAddrV4,
    from: WallTime,
    to: WallTime,
    /// Relevant records of the files read, the oldest first. Connections that ended before the second are removed, so
    /// that the number of simultaneous connections bounds the size.
    records: Vec<TranslationRecord>,
    /// The number of lines that are not records.
    unreadable: u64,
}

impl TranslationSearch {
    /// Starts a search for the hosts behind `outside` in the second that begins at `at`.
    #[must_use]
    pub fn new(outside: SocketAddrV4, at: WallTime) -> Self {
        let to = at + Duration::from_secs(1);
        Self { outside, from: at, to, records: Vec::new(), unreadable: 0 }
    }

    /// Reads the lines of the file before those already read.
    ///
    /// # Errors
    /// The error of an unreadable line. The lines before it are discarded too.
    pub fn read_file<L: AsRef<str>, E>(
        &mut self,
        lines: impl Iterator<Item = Result<L, E>>,
    ) -> Result<(), E> {
        // Parse only lines of this end: a day can have millions of others.
        let named = format!("\"outside\":\"{}\"", self.outside);
        let mut records = MatchingTranslationRecords::default();
        for line in lines {
            let line = line?;
            let line = line.as_ref();
            if !line.contains(&named) && !line.contains("\"started\"") {
                continue;
            }
            match TranslationRecord::parse(line) {
                Ok(record) if record.time() < self.to => records.insert_record(record, self.from),
                Ok(_) => {}
                Err(_) => self.unreadable += 1,
            }
        }
        let mut records: Vec<TranslationRecord> = records.all.into_values().collect();
        records.append(&mut self.records);
        self.records = records;
        Ok(())
    }

    /// True if earlier files cannot change the result.
    #[must_use]
    pub fn is_decided(&self) -> bool {
        // A start before the searched second ended all connections of earlier files. A start within that second may end
        // connections that only earlier files name.
        self.records.iter().any(|record| matches!(record, TranslationRecord::Started(at) if *at < self.from))
    }

    /// Returns the number of lines that were not records.
    #[must_use]
    pub const fn unreadable_count(&self) -> u64 {
        self.unreadable
    }

    /// Returns the hosts behind the external end. Linux can give it to several connections with different remote ends.
    #[must_use]
    pub fn inside_hosts(&self) -> Vec<Ipv4Addr> {
        // The connections of each internal end are counted, since one can have several to different remote ends.
        let mut held: BTreeMap<(u8, SocketAddrV4), u32> = BTreeMap::new();
        let mut found = Vec::new();
        let mut keep = |end: SocketAddrV4| {
            if !found.contains(end.ip()) {
                found.push(*end.ip());
            }
        };
        for record in &self.records {
            match record {
                TranslationRecord::Started(at) => {
                    // A follower that starts does not know the earlier connections, so they count as ended.
                    let ended = core::mem::take(&mut held);
                    if *at >= self.from {
                        ended.into_keys().for_each(|(_, end)| keep(end));
                    }
                }
                TranslationRecord::Begin(_, one) => {
                    *held.entry((one.protocol, one.inside)).or_default() += 1;
                }
                TranslationRecord::End(at, one) => {
                    let key = (one.protocol, one.inside);
                    let Some(count) = held.get_mut(&key) else { continue };
                    if *at >= self.from {
                        keep(one.inside);
                    }
                    *count -= 1;
                    if *count == 0 {
                        held.remove(&key);
                    }
                }
            }
        }
        held.into_keys().for_each(|(_, end)| keep(end));
        found
    }
}

/// The relevant records of a file, in their order.
#[derive(Default)]
struct MatchingTranslationRecords {
    all: BTreeMap<u64, TranslationRecord>,
    next: u64,
    /// The begins after the last kept end, by internal end, since the last start.
    open_connections: BTreeMap<(u8, SocketAddrV4), Vec<u64>>,
}

impl MatchingTranslationRecords {
    /// Inserts a record. `from` is the begin of the searched second.
    fn insert_record(&mut self, record: TranslationRecord, from: WallTime) {
        match record {
            TranslationRecord::Started(at) => {
                if at < from {
                    // All earlier connections ended at this start, before the second, so their records are irrelevant.
                    self.all.clear();
                }
                self.open_connections.clear();
            }
            TranslationRecord::Begin(_, one) => {
                self.open_connections.entry((one.protocol, one.inside)).or_default().push(self.next);
            }
            TranslationRecord::End(at, one) => {
                let key = (one.protocol, one.inside);
                // A connection that ended before the second is irrelevant: remove its begin, too.
                let mut begun = self.open_connections.remove(&key).filter(|_| at < from).unwrap_or_default();
                if let Some(begin) = begun.pop() {
                    self.all.remove(&begin);
                    if !begun.is_empty() {
                        self.open_connections.insert(key, begun);
                    }
                    return;
                }
            }
        }
        self.all.insert(self.next, record);
        self.next += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const T: u64 = 1_790_000_000;

    fn time_at(secs: u64) -> WallTime {
        WallTime::from_unix_secs(T + secs)
    }
    fn test_connection(protocol: u8, host: u8) -> TranslatedConnection {
        let outside = "192.0.2.1:40022".parse().unwrap();
        TranslatedConnection { protocol, inside: SocketAddrV4::new([10, 0, 0, host].into(), 50_000), outside }
    }
    fn log_text(records: &[TranslationRecord]) -> String {
        records.iter().map(TranslationRecord::to_line).collect()
    }
    fn find_inside_hosts(files: &[&str], secs: u64) -> Vec<u8> {
        let mut behind = TranslationSearch::new("192.0.2.1:40022".parse().unwrap(), time_at(secs));
        for file in files.iter().rev() {
            if !behind.is_decided() {
                let Ok(()) = behind.read_file(file.lines().map(Ok::<_, core::convert::Infallible>));
            }
        }
        behind.inside_hosts().iter().map(|address| address.octets()[3]).collect()
    }

    #[test]
    fn a_line_is_as_the_manual_has_it() {
        let line = TranslationRecord::Begin(time_at(0), test_connection(6, 7)).to_line();
        assert_eq!(
            line,
            "{\"event\":\"begin\",\"at\":\"2026-09-21T14:13:20.000000Z\",\"protocol\":6,\"inside\":\"10.0.0.7:50000\",\
             \"outside\":\"192.0.2.1:40022\"}\n"
        );
    }

    #[test]
    fn an_end_outside_is_whose_connection_had_it_in_that_second() {
        use TranslationRecord::{Begin, End, Started};
        let file = log_text(&[
            Started(time_at(0)),
            Begin(time_at(10), test_connection(6, 7)),
            End(time_at(20), test_connection(6, 7)),
            Begin(time_at(20), test_connection(6, 8)),
            Begin(time_at(25), test_connection(17, 9)),
            // The kernel gives an external end to several connections with different remote ends.
            Begin(time_at(40), test_connection(6, 7)),
            End(time_at(45), test_connection(6, 7)),
            // One of two connections of the same internal end is still open.
            Begin(time_at(46), test_connection(6, 8)),
            End(time_at(47), test_connection(6, 8)),
            Started(time_at(50)),
        ]);
        for (secs, expected) in [
            (9, &[][..]),
            (10, &[7]),
            (20, &[7, 8]),
            (24, &[8]),
            (30, &[8, 9]),
            (41, &[7, 8, 9]),
            (46, &[8, 9]),
            (50, &[8, 9]),
            (51, &[]),
        ] {
            let mut found = find_inside_hosts(&[&file], secs);
            found.sort_unstable();
            assert_eq!(found, expected, "{secs}");
        }
        // The previous day's file has earlier begins. Other ends and torn lines are ignored.
        let day = 86_400;
        let before = log_text(&[Started(time_at(0)), Begin(time_at(10), test_connection(6, 7))]);
        let after = format!("{}{{\"event\":\"beg\n", log_text(&[End(time_at(day), test_connection(6, 7))]));
        assert_eq!(find_inside_hosts(&[&before, &after], day - 5), [7]);
        assert!(find_inside_hosts(&[&before, &after], day + 5).is_empty());
        let other =
            TranslatedConnection { outside: "192.0.2.1:4002".parse().unwrap(), ..test_connection(6, 9) };
        assert!(
            find_inside_hosts(&[&log_text(&[Started(time_at(0)), Begin(time_at(1), other)])], 5).is_empty()
        );
    }

    #[test]
    fn of_connections_that_had_ended_before_nothing_is_kept() {
        use TranslationRecord::{Begin, End, Started};
        let mut log = log_text(&[Started(time_at(0)), Begin(time_at(1), test_connection(6, 200))]);
        for n in 0..20_000 {
            let of = test_connection(6, (n % 200) as u8);
            log += &log_text(&[Begin(time_at(2 + n), of), End(time_at(2 + n), of)]);
        }
        let mut behind = TranslationSearch::new("192.0.2.1:40022".parse().unwrap(), time_at(19_000));
        let Ok(()) = behind.read_file(log.lines().map(Ok::<_, core::convert::Infallible>));
        let hosts: Vec<u8> = behind.inside_hosts().iter().map(|address| address.octets()[3]).collect();
        assert_eq!((hosts, behind.records.len()), (vec![198, 200], 4));
    }

    proptest! {
        #[test]
        fn the_answer_is_that_of_the_whole_log(
            steps in proptest::collection::vec((0_u8..9, 0_u8..3, any::<bool>(), 0_i8..4), 0..80), second in 0_u64..60,
        ) {
            use TranslationRecord::{Begin, End, Started};
            // The clock can be set back.
            let mut now = 20_i64;
            let records = steps.into_iter().map(|(what, host, tcp, passes)| {
                now = (now + i64::from(passes) - i64::from(what == 7) * 5).max(0);
                let (now, of) = (time_at(now as u64), test_connection(if tcp { 6 } else { 17 }, host));
                match what {
                    0..4 => Begin(now, of),
                    4..8 => End(now, of),
                    _ => Started(now),
                }
            });
            let records: Vec<TranslationRecord> = records.collect();
            for files in [1, 3] {
                let mut behind = TranslationSearch::new("192.0.2.1:40022".parse().unwrap(), time_at(second));
                for file in records.chunks((records.len() / files).max(1)).rev() {
                    if !behind.is_decided() {
                        let log = log_text(file);
                        let Ok(()) = behind.read_file(log.lines().map(Ok::<_, core::convert::Infallible>));
                    }
                }
                let sorted = |of: &TranslationSearch| {
                    let mut all = of.inside_hosts();
                    all.sort_unstable();
                    all
                };
                let found = sorted(&behind);
                // The reference: all records since the last start before.
                let to = behind.to;
                let first = records.iter().rposition(|one| matches!(one, Started(at) if *at < behind.from));
                let whole = records[first.unwrap_or(0)..].iter().copied().filter(|one| one.time() < to);
                behind.records = whole.collect();
                prop_assert_eq!(found, sorted(&behind));
            }
        }
        #[test]
        fn a_record_that_is_written_is_read(secs in 0_u64..1 << 31, protocol: u8, host: u8) {
            use TranslationRecord::{Begin, End, Started};
            for record in [Started(time_at(secs)), Begin(time_at(secs), test_connection(protocol, host)), End(time_at(secs), test_connection(protocol, host))] {
                prop_assert_eq!(TranslationRecord::parse(&record.to_line()), Ok(record));
            }
        }
        #[test]
        fn what_is_no_record_is_refused(text in "\\PC{0,200}") {
            prop_assert!(TranslationRecord::parse(&text).is_err());
            let mut behind = TranslationSearch::new("192.0.2.1:40022".parse().unwrap(), time_at(0));
            let line = format!("\"outside\":\"192.0.2.1:40022\"{text}");
            let Ok(()) = behind.read_file([Ok::<_, core::convert::Infallible>(line)].into_iter());
            prop_assert!(behind.inside_hosts().is_empty());
        }
    }
}
