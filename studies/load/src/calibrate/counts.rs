//! The counters of a running server, from its metrics.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

/// Time limit of one scrape. A busy server answers with code 503 before that.
const SCRAPE_TIMEOUT: Duration = Duration::from_secs(5);
/// Time in which a busy server may go on to answer with code 503.
const BUSY_TIMEOUT: Duration = Duration::from_secs(30);
const BUSY_PAUSE: Duration = Duration::from_millis(200);
/// Limit to the octets of a response.
const MOST: u64 = 4 << 20;

/// The kind of server.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CalibratedServerKind {
    /// An AAA server.
    Aaa,
    /// An IKEv2 gateway.
    Gateway,
}

impl CalibratedServerKind {
    /// Returns the prefix of its metrics.
    const fn metric_prefix(self) -> &'static str {
        match self {
            Self::Aaa => "usher_aaa_",
            Self::Gateway => "usher_ike_",
        }
    }
    /// Returns the command that starts it.
    const fn start_command(self) -> &'static str {
        match self {
            Self::Aaa => "usher aaa serve",
            Self::Gateway => "usher ike serve",
        }
    }
    /// Returns the name of its counter of accepted logins.
    pub(super) const fn login_counter(self) -> &'static str {
        match self {
            Self::Aaa => "logins/accept",
            Self::Gateway => "sessions",
        }
    }
}

/// Counters of the server by name; the value of the label `kind` follows after a slash.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct ServerCounts {
    /// The server's version.
    pub version: String,
    all: BTreeMap<String, f64>,
}

impl ServerCounts {
    /// Queries a server.
    ///
    /// # Errors
    /// A sentence: no server answers there, it is too busy, or it is not ours.
    pub fn query_metrics(server: CalibratedServerKind, metrics: SocketAddr) -> Result<Self, String> {
        let since = Instant::now();
        let text = loop {
            let text = fetch_metrics(metrics)
                .map_err(|e| format!("cannot read the server's metrics at {metrics}: {e}"))?;
            if !is_http_503_response(&text) {
                break text;
            }
            if since.elapsed() >= BUSY_TIMEOUT {
                return Err(format!(
                    "the server's metrics at {metrics} are unavailable: the server is too busy; calibrate again where \
                     nothing else runs"
                ));
            }
            std::thread::sleep(BUSY_PAUSE);
        };
        let counts = Self::parse(server, &text);
        if counts.version.is_empty() {
            return Err(format!("{metrics} does not serve the metrics of `{}`", server.start_command()));
        }
        Ok(counts)
    }

    pub(super) fn parse(server: CalibratedServerKind, text: &str) -> Self {
        let (mut all, mut version) = (BTreeMap::new(), String::new());
        for line in text.lines().filter_map(|line| line.strip_prefix(server.metric_prefix())) {
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

    /// Returns a counter; zero if it is absent.
    #[must_use]
    pub fn counter_value(&self, name: &str) -> f64 {
        self.all.get(name).copied().unwrap_or(0.0)
    }

    /// Returns the counts since `earlier`.
    #[must_use]
    pub fn delta_since(&self, earlier: &Self) -> Self {
        let all = self.all.iter().map(|(name, n)| (name.clone(), n - earlier.counter_value(name))).collect();
        Self { version: self.version.clone(), all }
    }

    /// Returns the counters of a family, by the rest of their names.
    pub fn counts_by_kind<'a>(&'a self, family: &'a str) -> impl Iterator<Item = (&'a str, f64)> + 'a {
        self.all.iter().filter_map(move |(name, n)| Some((name.strip_prefix(family)?.strip_prefix('/')?, *n)))
    }
}

/// True for a response of code 503, which a server gives while its shards do not answer.
fn is_http_503_response(response: &str) -> bool {
    response.split(' ').nth(1) == Some("503")
}

fn fetch_metrics(at: SocketAddr) -> std::io::Result<String> {
    let mut stream = TcpStream::connect_timeout(&at, SCRAPE_TIMEOUT)?;
    stream.set_read_timeout(Some(SCRAPE_TIMEOUT))?;
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
        let all = ServerCounts::parse(CalibratedServerKind::Aaa, TEXT);
        assert_eq!(all.version, "1");
        assert_eq!(
            (all.counter_value("logins/accept"), all.counter_value("store_latency_seconds_sum")),
            (35.0, 0.25)
        );
        assert_eq!(
            all.counts_by_kind("work").collect::<Vec<_>>(),
            [("eap.md5", 7.0), ("radius.request", 41.0)]
        );
        assert_eq!(
            (all.counter_value("nothing"), all.delta_since(&all).counter_value("work/eap.md5")),
            (0.0, 0.0)
        );
    }

    #[test]
    fn a_gateways_counters_are_its_own() {
        let text = format!(
            "{TEXT}usher_ike_sessions_total 4\nusher_ike_work_total{{kind=\"ike.message\"}} 24\n\
             usher_ike_build_info{{version=\"2\"}} 1\n"
        );
        let of = |server| ServerCounts::parse(server, &text);
        assert_eq!(
            (
                of(CalibratedServerKind::Aaa).counter_value("logins/accept"),
                of(CalibratedServerKind::Aaa).counter_value("sessions")
            ),
            (35.0, 0.0)
        );
        let gateway = of(CalibratedServerKind::Gateway);
        assert_eq!(
            (gateway.version.as_str(), gateway.counter_value(CalibratedServerKind::Gateway.login_counter())),
            ("2", 4.0)
        );
        assert_eq!(gateway.counts_by_kind("work").collect::<Vec<_>>(), [("ike.message", 24.0)]);
        // The metrics of another service give no counters.
        assert_eq!(ServerCounts::parse(CalibratedServerKind::Gateway, TEXT), ServerCounts::default());
    }

    #[test]
    fn a_busy_server_is_asked_again() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let at = listener.local_addr().unwrap();
        let serve = std::thread::spawn(move || {
            for response in ["HTTP/1.0 503 Service Unavailable\r\n\r\nbusy\n", TEXT] {
                let mut stream = listener.accept().unwrap().0;
                let mut request = [0; 256];
                assert!(stream.read(&mut request).unwrap() > 0);
                stream.write_all(response.as_bytes()).unwrap();
            }
        });
        let counts = ServerCounts::query_metrics(CalibratedServerKind::Aaa, at).unwrap();
        assert_eq!(counts.counter_value("logins/accept"), 35.0);
        serve.join().unwrap();
    }

    #[test]
    fn who_is_not_there_is_named() {
        // A loopback address that no other process has, because it derives from this process's id.
        let [_, high, middle, low] = std::process::id().to_be_bytes();
        let gone = std::net::SocketAddr::from(([127, 64 | high, middle, low], 9));
        assert!(
            ServerCounts::query_metrics(CalibratedServerKind::Aaa, gone)
                .unwrap_err()
                .contains(&format!("cannot read the server's metrics at {gone}"))
        );
    }
}
