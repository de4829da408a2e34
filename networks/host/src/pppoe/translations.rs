//! The log of translated connections on the disk, a file for each day beside that of sessions, as the kernel's table of connections
//! tells of them.

use super::daily::{Daily, day, lines};
use super::ipfix::Ipfix;
use super::track::TrackLog;
use crate::setup::wall;
use std::fs::File;
use std::io::{self, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, SocketAddrV4};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use usher_access::pool::{PoolConfig, Range};
use usher_concentrator::track::{Behind, Translated, TranslationRecord};
use usher_core::WallTime;
use usher_pppoe::netfilter::conntrack::Connection;
use usher_pppoe::netfilter::{Change, Follower};

/// What files are called, before the day.
pub(super) const KIND: &str = "translations";

/// What was counted.
#[derive(Clone, Debug, Default)]
pub(super) struct TranslationCounters {
    logged: Arc<AtomicU64>,
    missed: Arc<AtomicU64>,
}

impl TranslationCounters {
    pub(super) fn read(&self) -> [(String, u64); 2] {
        [("translations_logged", &self.logged), ("translations_missed", &self.missed)]
            .map(|(name, n)| (name.to_owned(), n.load(Ordering::Relaxed)))
    }
}

struct Log {
    files: Daily,
    day: String,
    file: File,
}

impl Log {
    fn open(files: Daily, today: String) -> io::Result<Self> {
        let file = files.append(&today)?;
        Ok(Self { files, day: today, file })
    }
    fn write(&mut self, record: &TranslationRecord) -> io::Result<()> {
        let today = day(record.at());
        if today > self.day {
            *self = Self::open(self.files.clone(), today)?;
        }
        // A whole line at once: nobody else writes here.
        self.file.write_all(record.to_line().as_bytes())
    }
}

/// Begins to log, and to tell collectors, whose connections are translated: those of hosts, by their pools or their sessions.
pub(super) fn follow(
    track: &TrackLog,
    pools: &[PoolConfig],
    ipfix: Option<Ipfix>,
) -> io::Result<TranslationCounters> {
    let mut follower = Follower::new()?;
    let mut log = Log::open(Daily::new(&track.folder(), KIND), day(wall()))?;
    log.write(&TranslationRecord::Started(wall()))?;
    let ranges: Vec<Range> = pools.iter().flat_map(|pool| pool.ranges.clone()).collect();
    let counters = TranslationCounters::default();
    let (track, counts) = (track.clone(), counters.clone());
    let run = move || {
        loop {
            let (connection, protocol, begins) = match follower.wait() {
                Ok(Change::Begun(connection, protocol)) => (connection, protocol, true),
                Ok(Change::Ended(connection, protocol)) => (connection, protocol, false),
                Ok(Change::Missed) => {
                    counts.missed.fetch_add(1, Ordering::Relaxed);
                    tracing::warn!(
                        "connections come faster than they can be logged: some are not in the log"
                    );
                    // Which of those of before have ended is not known: the table tells anew which there are.
                    let anew = Follower::new().and_then(|anew| {
                        log.write(&TranslationRecord::Started(wall()))?;
                        Ok(anew)
                    });
                    match anew {
                        Ok(anew) => follower = anew,
                        Err(error) => tracing::error!(%error, "the table of connections cannot be read anew"),
                    }
                    continue;
                }
                Err(error) => {
                    tracing::error!(%error, "the kernel tells of connections no longer: none is logged from here on");
                    return;
                }
            };
            let Some(one) = translated(&connection, protocol) else { continue };
            let inside = *one.inside.ip();
            if !of_pools(&ranges, inside) && !track.has_had(inside) {
                continue;
            }
            let at = wall();
            let record =
                if begins { TranslationRecord::Begin(at, one) } else { TranslationRecord::End(at, one) };
            if let Err(error) = log.write(&record) {
                counts.missed.fetch_add(1, Ordering::Relaxed);
                tracing::error!(%error, "the log of translations cannot be written");
            } else {
                counts.logged.fetch_add(1, Ordering::Relaxed);
            }
            if let Some(ipfix) = &ipfix {
                ipfix.connection(at, begins, one);
            }
        }
    };
    std::thread::Builder::new().name("usher-translate".to_owned()).spawn(run)?;
    Ok(counters)
}

/// What of a connection is translated: its begun end. `None`: it goes as it is.
fn translated(Connection { original, reply }: &Connection, protocol: u8) -> Option<Translated> {
    let (SocketAddr::V4(inside), SocketAddr::V4(outside)) = (original.source, reply.destination) else {
        return None;
    };
    (inside != outside).then_some(Translated { protocol, inside, outside })
}

/// Whether an address is of these ranges.
pub(super) fn of_pools(ranges: &[Range], address: Ipv4Addr) -> bool {
    let address = IpAddr::V4(address);
    ranges.iter().any(|range| match range {
        Range::Addresses { first, last } => (*first..=*last).contains(&address),
        Range::Prefixes { .. } => false,
    })
}

/// The hosts that stood behind an end outside in the second that begins then, and how many lines cannot be read.
pub(super) fn behind(folder: &Path, outside: SocketAddrV4, at: WallTime) -> io::Result<(Vec<Ipv4Addr>, u64)> {
    let wanted = day(at);
    let mut behind = Behind::new(outside, at);
    let files = Daily::new(folder, KIND);
    for day in files.days()?.iter().rev().filter(|day| **day <= wanted) {
        // A day may have more lines than there is memory.
        behind.read(lines(&files.path(day))?)?;
        if behind.decided() {
            break;
        }
    }
    Ok((behind.inside(), behind.unreadable()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use usher_pppoe::netfilter::conntrack::Direction;

    #[test]
    fn the_end_that_is_translated_is_the_begun_one() {
        let direction = |source: &str, destination: &str| Direction {
            source: source.parse().unwrap(),
            destination: destination.parse().unwrap(),
        };
        let original = direction("10.0.0.7:40000", "203.0.113.2:80");
        let connection = |reply| Connection { original, reply };
        let one = translated(&connection(direction("203.0.113.2:80", "192.0.2.1:1025")), 6).unwrap();
        let expected = ("10.0.0.7:40000".to_owned(), "192.0.2.1:1025".to_owned());
        assert_eq!((one.inside.to_string(), one.outside.to_string()), expected);
        assert_eq!(translated(&connection(direction("203.0.113.2:80", "10.0.0.7:40000")), 6), None);
        // Where the destination is translated, the source is not: as of an IDENT query that is led to us.
        assert_eq!(translated(&connection(direction("10.0.0.1:1113", "10.0.0.7:40000")), 6), None);
    }

    #[test]
    fn a_days_file_is_followed_by_the_next_days() {
        let folder = std::env::temp_dir().join(format!("usher-translations-{}", std::process::id()));
        let _ = fs::remove_dir_all(&folder);
        fs::create_dir_all(&folder).unwrap();
        let at = |secs: u64| WallTime::from_unix_secs(1_790_000_000 + secs);
        let one = Translated {
            protocol: 6,
            inside: "10.0.0.7:40000".parse().unwrap(),
            outside: "192.0.2.1:1025".parse().unwrap(),
        };
        let mut log = Log::open(Daily::new(&folder, KIND), day(at(0))).unwrap();
        log.write(&TranslationRecord::Started(at(0))).unwrap();
        log.write(&TranslationRecord::Begin(at(5), one)).unwrap();
        log.write(&TranslationRecord::End(at(2 * 86_400), one)).unwrap();
        assert_eq!(Daily::new(&folder, KIND).days().unwrap().len(), 2);
        let hosts = |secs| behind(&folder, one.outside, at(secs)).unwrap().0;
        assert_eq!(hosts(86_400), [*one.inside.ip()], "in a day without a file of its own");
        assert!(hosts(3 * 86_400).is_empty() && hosts(1).is_empty());
        fs::remove_dir_all(&folder).unwrap();
    }
}
