//! What a running AAA server counted, by its metrics.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

const PATIENCE: Duration = Duration::from_secs(5);
/// The most octets of an answer.
const MOST: u64 = 4 << 20;

/// Counters of the server by their names, with the value of their label `kind` behind a slash.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Counts {
    /// The server's version.
    pub version: String,
    all: BTreeMap<String, f64>,
}

impl Counts {
    /// Asks a server.
    ///
    /// # Errors
    /// A sentence: nobody answers there, or it is no server of ours.
    pub fn ask(metrics: SocketAddr) -> Result<Self, String> {
        let text =
            fetch(metrics).map_err(|e| format!("the server's metrics at {metrics} cannot be read: {e}"))?;
        let counts = Self::parse(&text);
        if counts.version.is_empty() {
            return Err(format!("what answers at {metrics} are not the metrics of usher aaa serve"));
        }
        Ok(counts)
    }

    /// What so many logins come to, each with these units of work.
    pub(super) fn of_logins(logins: f64, units: &BTreeMap<String, f64>) -> Self {
        let work = units.iter().map(|(label, n)| (format!("work/{label}"), n * logins));
        let all = work.chain([("logins/accept".to_owned(), logins)]).collect();
        Self { version: String::new(), all }
    }

    pub(super) fn parse(text: &str) -> Self {
        let (mut all, mut version) = (BTreeMap::new(), String::new());
        for line in text.lines().filter_map(|line| line.strip_prefix("usher_aaa_")) {
            let Some((name, value)) = line.rsplit_once(' ') else { continue };
            let Ok(value) = value.parse::<f64>() else { continue };
            let (name, labels) = name.split_once('{').unwrap_or((name, ""));
            let of = |key: &str| {
                labels.split(',').find_map(|l| {
                    l.trim_end_matches('}').strip_prefix(key)?.strip_prefix("=\"")?.strip_suffix('"')
                })
            };
            if name == "build_info" {
                version = of("version").unwrap_or_default().to_owned();
            }
            let mut key = name.strip_suffix("_total").unwrap_or(name).to_owned();
            if let Some(part) = of("kind").or_else(|| of("result")) {
                key = format!("{key}/{part}");
            }
            *all.entry(key).or_default() += value;
        }
        Self { version, all }
    }

    /// A counter; of one that is not there, zero.
    #[must_use]
    pub fn of(&self, name: &str) -> f64 {
        self.all.get(name).copied().unwrap_or(0.0)
    }

    /// What was counted since `earlier`.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Self {
        let all = self.all.iter().map(|(name, n)| (name.clone(), n - earlier.of(name))).collect();
        Self { version: self.version.clone(), all }
    }

    /// The counters whose names begin so, by what follows.
    pub fn kinds<'a>(&'a self, family: &'a str) -> impl Iterator<Item = (&'a str, f64)> + 'a {
        self.all.iter().filter_map(move |(name, n)| Some((name.strip_prefix(family)?.strip_prefix('/')?, *n)))
    }
}

fn fetch(at: SocketAddr) -> std::io::Result<String> {
    let mut stream = TcpStream::connect_timeout(&at, PATIENCE)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.write_all(format!("GET /metrics HTTP/1.0\r\nHost: {at}\r\n\r\n").as_bytes())?;
    let mut text = String::new();
    stream.take(MOST).read_to_string(&mut text)?;
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "HTTP/1.0 200 OK\r\n\r\n# TYPE usher_aaa_work counter\n\
        usher_aaa_work_total{kind=\"radius.request\"} 41\nusher_aaa_work_total{kind=\"eap.md5\"} 7\n\
        usher_aaa_logins_total{method=\"pap\",inner=\"\",result=\"accept\",reason=\"\"} 30\n\
        usher_aaa_logins_total{method=\"eap-md5\",inner=\"\",result=\"accept\",reason=\"\"} 5\n\
        usher_aaa_store_latency_seconds_sum 0.25\nusher_aaa_build_info{version=\"1\"} 1\n";

    #[test]
    fn counters_are_read_by_name_and_kind() {
        let all = Counts::parse(TEXT);
        assert_eq!(all.version, "1");
        assert_eq!((all.of("logins/accept"), all.of("store_latency_seconds_sum")), (35.0, 0.25));
        assert_eq!(all.kinds("work").collect::<Vec<_>>(), [("eap.md5", 7.0), ("radius.request", 41.0)]);
        assert_eq!((all.of("nothing"), all.since(&all).of("work/eap.md5")), (0.0, 0.0));
    }

    #[test]
    fn who_is_not_there_is_named() {
        let gone = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        assert!(Counts::ask(gone).unwrap_err().contains(&format!("metrics at {gone} cannot be read")));
    }
}
