//! Metrics for Prometheus, collected when they are asked for, and whether the server is ready.

use crate::homes::{self, HomeServers};
use crate::running::Running;
use crate::stats::{BOUNDS, Histogram};
use prometheus_client::collector::Collector;
use prometheus_client::encoding::text::encode;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric, MetricEncoder, NoLabelSet};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::registry::{Registry, Unit};
use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError, Weak};
use usher_diameter::node::Counters as DiameterCounters;
use usher_host::metrics::ServiceProbe;
use usher_radius::client::{Health, ServerCounts};
use usher_radius::packet::Code;
use usher_radius::server::Counters as RadiusCounters;

/// What the metrics endpoint asks of the server, which may end before the program does.
pub(crate) struct RunningProbe(pub(crate) Weak<Running>);

impl ServiceProbe for RunningProbe {
    fn expose_metrics(&self) -> Option<String> {
        exposition(&self.0.upgrade()?)
    }
    fn is_serving(&self) -> bool {
        self.0.strong_count() > 0
    }
    fn check_readiness(&self) -> Result<(), String> {
        self.0.upgrade().ok_or("the server has ended")?.ready()
    }
}

/// The text that is exposed; `None` where it cannot be made.
fn exposition(running: &Arc<Running>) -> Option<String> {
    let mut registry = Registry::with_prefix("usher_aaa");
    registry.register_collector(Box::new(Scrape(running.clone())));
    let mut text = String::new();
    encode(&mut text, &registry).ok()?;
    Some(text)
}

struct Scrape(Arc<Running>);

impl std::fmt::Debug for Scrape {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Scrape")
    }
}

/// What a metric counts or shows.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Kind {
    Counter,
    Gauge,
    /// A gauge of seconds.
    Seconds,
    /// A histogram of seconds.
    Latency,
}

/// A metric of the exposition, by the one declaration of which its name there, its help and its row of the page for operators
/// (docs/aaa-server.md) are made.
#[derive(Debug)]
struct Metric {
    name: &'static str,
    kind: Kind,
    labels: &'static [&'static str],
    help: &'static str,
}

macro_rules! metrics {
    ($($metric:ident = $kind:ident $name:literal [$($label:literal),*] $help:literal;)+) => {
        $(const $metric: Metric =
            Metric { name: $name, kind: Kind::$kind, labels: &[$($label),*], help: $help };)+
        #[cfg(test)]
        const METRICS: &[Metric] = &[$($metric),+];
    };
}

metrics! {
    REQUESTS = Counter "requests" ["client", "code"] "RADIUS packets that came by UDP";
    LOGINS = Counter "logins" ["method", "inner", "result", "reason"] "Logins that ended, by cause";
    LOGIN_LATENCY = Latency "login_latency" [] "From a login's first request to its verdict";
    STORE_LATENCY = Latency "store_latency" [] "How long the store took to find a user";
    STORE_WRITE_LATENCY = Latency "store_write_latency" [] "How long the store took to write a group";
    AAA_EVENTS = Counter "aaa_events" ["kind"] "What the AAA server did and dropped";
    RADIUS_EVENTS = Counter "radius_events" ["kind"] "What its RADIUS did and dropped";
    DIAMETER_EVENTS = Counter "diameter_events" ["kind"] "What its Diameter did and dropped";
    DRIVER_EVENTS = Counter "driver_events" ["kind"] "What the drivers of its sockets did and dropped";
    LEDGER_EVENTS = Counter "ledger_events" ["kind"] "What the ledger of sessions did and refused";
    CACHE = Counter "cache" ["result"]
        "Users found in memory (`hit`), asked of the store (`miss`), and, of those, served from memory since it was away (`away`)";
    DIVERTED = Counter "diverted" [] "Requests handed to another shard, which has their login";
    NOT_DIVERTED = Counter "not_diverted" [] "Requests of another shard's logins for which 4096 others waited there";
    EVICTED = Counter "evicted" ["client"]
        "Unfinished logins of the client with the most, pushed out by new ones";
    WORK = Counter "work" ["kind"]
        "Units of work that shards did, by the kinds that studies charge a processor for (docs/study-files.md)";
    HALF_OPEN = Gauge "half_open" [] "Unfinished logins";
    HALF_OPEN_OCTETS = Gauge "half_open_octets" [] "About how many octets of memory unfinished logins hold";
    SESSIONS = Gauge "sessions" [] "Open sessions";
    DIAMETER_PEERS = Gauge "diameter_peers" [] "Diameter peers that are connected";
    DIAMETER_PEER_UP = Gauge "diameter_peer_up" ["peer"]
        "1: requests are sent to this peer, to which the server connects; 0: it is not connected, or owes a watchdog's answer";
    HOME_SERVER_STATE = Gauge "home_server_state" ["home_server", "service", "state"]
        "1 for the state it is in, of `alive`, `zombie`, `dead`; the service is `authentication`, `accounting`, or `radsec` for both";
    HOME_SERVER_REQUESTS = Counter "home_server_requests" ["home_server", "service"] "Requests that it was asked";
    HOME_SERVER_ANSWERS = Counter "home_server_answers" ["home_server", "service"] "Requests that it answered";
    HOME_SERVER_TIMEOUTS = Counter "home_server_timeouts" ["home_server", "service"]
        "Requests that it did not answer in time: they went to another one or ended";
    HOME_SERVER_ROUND_TRIP = Latency "home_server_round_trip" ["home_server", "service"]
        "How long its answers took (sum and count), of requests that were sent once";
    LEDGER_QUEUE = Gauge "ledger_queue" [] "Entries that wait for the ledger";
    LEDGER_REFUSED = Counter "ledger_refused" []
        "Entries that found no room there, or made room for other clients: not acknowledged";
    STORE_REFUSED = Counter "store_refused" [] "Changes that the store refused for good";
    REPLY_ROWS_LEFT_OUT = Counter "reply_rows_left_out" []
        "Rows of replies that could not be understood and were left out, each time that they were read";
    JOBS_WAITING = Gauge "jobs_waiting" ["queue"]
        "Users to be found (`lookup`), passwords to be hashed (`password`) and certificates to be asked about (`certificate`) that wait";
    JOBS_REFUSED = Counter "jobs_refused" ["queue"]
        "Those that found no room (8192, 256, 256 in all; 4 passwords of one name for each client): their logins got no answer";
    JOBS_GIVEN_UP = Counter "jobs_given_up" ["queue"]
        "Those that were left out since their login was over before their turn came";
    CERTIFICATE_EXPIRY = Seconds "certificate_expiry" ["certificate"]
        "Until the server's certificate, and the authority's, end; less than 0: it has ended";
    CRL_NEXT_UPDATE = Seconds "crl_next_update" ["list", "issuer"]
        "When a revocation list is out of date, seconds since 1970";
    CRL_UPDATES = Counter "crl_updates" ["from", "result"]
        "Attempts to fetch a list, to read its file or to make it anew: `new`, `same`, `failed`";
    RELOADS = Counter "reloads" ["result"] "Reloads of the configuration, `done` and `failed`";
    BUILD_INFO = Gauge "build_info" ["version"] "1, of the program's version";
}

/// A histogram that was filled elsewhere: its sum, and how many were up to each bound.
struct Filled(f64, Vec<(f64, u64)>);

impl From<Histogram> for Filled {
    fn from(histogram: Histogram) -> Self {
        let bounds = BOUNDS.into_iter().chain([f64::MAX]);
        Self(histogram.sum, bounds.zip(histogram.classes).collect())
    }
}

impl EncodeMetric for Filled {
    fn encode(&self, mut encoder: MetricEncoder<'_>) -> std::fmt::Result {
        let Self(sum, classes) = self;
        encoder.encode_histogram::<NoLabelSet>(*sum, classes.iter().map(|(_, n)| n).sum(), classes, None)
    }
    fn metric_type(&self) -> MetricType {
        MetricType::Histogram
    }
}

impl Metric {
    /// One value for each set of labels, which stand in their declared order.
    fn encode<const N: usize, M: EncodeMetric>(
        &self,
        e: &mut DescriptorEncoder<'_>,
        values: impl IntoIterator<Item = ([String; N], M)>,
    ) -> std::fmt::Result {
        debug_assert_eq!(self.labels.len(), N, "{}", self.name);
        let (kind, unit) = match self.kind {
            Kind::Counter => (MetricType::Counter, None),
            Kind::Gauge => (MetricType::Gauge, None),
            Kind::Seconds => (MetricType::Gauge, Some(&Unit::Seconds)),
            Kind::Latency => (MetricType::Histogram, Some(&Unit::Seconds)),
        };
        let mut family = e.encode_descriptor(self.name, self.help, unit, kind)?;
        for (labels, value) in values {
            let labels: Vec<(&str, String)> = self.labels.iter().copied().zip(labels).collect();
            if labels.is_empty() {
                return value.encode(family);
            }
            value.encode(family.encode_family(&labels)?)?;
        }
        Ok(())
    }
    fn count(&self, e: &mut DescriptorEncoder<'_>, n: u64) -> std::fmt::Result {
        self.counts(e, [([], n)])
    }
    fn counts<const N: usize>(
        &self,
        e: &mut DescriptorEncoder<'_>,
        values: impl IntoIterator<Item = ([String; N], u64)>,
    ) -> std::fmt::Result {
        self.encode(e, values.into_iter().map(|(labels, n)| (labels, ConstCounter::new(n))))
    }
    /// The counters of a part by their names.
    fn kinds(
        &self,
        e: &mut DescriptorEncoder<'_>,
        counters: impl Iterator<Item = (&'static str, u64)>,
    ) -> std::fmt::Result {
        self.counts(e, counters.map(|(kind, n)| ([kind.to_owned()], n)))
    }
    fn level(&self, e: &mut DescriptorEncoder<'_>, n: u64) -> std::fmt::Result {
        self.levels(e, [([], n as i64)])
    }
    fn levels<const N: usize>(
        &self,
        e: &mut DescriptorEncoder<'_>,
        values: impl IntoIterator<Item = ([String; N], i64)>,
    ) -> std::fmt::Result {
        self.encode(e, values.into_iter().map(|(labels, n)| (labels, ConstGauge::new(n))))
    }
}

/// Home servers by their names and what they are asked for.
fn home_servers(e: &mut DescriptorEncoder<'_>, homes: &HomeServers) -> std::fmt::Result {
    let labels = |name: &str, service| [name.to_owned(), homes::service_name(service).to_owned()];
    let states = homes.iter().flat_map(|((name, service), home)| {
        [Health::Alive, Health::Suspect, Health::Dead].map(|health| {
            let [name, service] = labels(name, *service);
            ([name, service, homes::health_name(health).to_owned()], i64::from(health == home.health))
        })
    });
    HOME_SERVER_STATE.levels(e, states)?;
    for (metric, value) in [
        (HOME_SERVER_REQUESTS, (|asked| asked.requests) as fn(&ServerCounts) -> u64),
        (HOME_SERVER_ANSWERS, |asked| asked.answers),
        (HOME_SERVER_TIMEOUTS, |asked| asked.timeouts),
    ] {
        metric
            .counts(e, homes.iter().map(|((name, service), h)| (labels(name, *service), value(&h.asked))))?;
    }
    let round_trips = homes.iter().map(|((name, service), home)| {
        let taken = Filled(home.asked.round_trips.as_secs_f64(), vec![(f64::MAX, home.asked.timed)]);
        (labels(name, *service), taken)
    });
    HOME_SERVER_ROUND_TRIP.encode(e, round_trips)
}

impl Collector for Scrape {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> std::fmt::Result {
        let running = &self.0;
        let all = running.mailboxes.collect();
        let e = &mut encoder;
        let requests = all.requests.iter().map(|((client, code), n)| {
            let client = if client.is_empty() { "unknown".to_owned() } else { client.clone() };
            ([client, code_name(*code)], *n)
        });
        REQUESTS.counts(e, requests)?;
        let logins = all.logins.iter().map(|((method, inner, outcome, reason), n)| {
            let result = outcome.name().to_owned();
            ([(*method).to_owned(), inner.clone(), result, (*reason).to_owned()], *n)
        });
        LOGINS.counts(e, logins)?;
        for (metric, histogram) in [
            (LOGIN_LATENCY, all.latency),
            (STORE_LATENCY, running.lookups.read()),
            (STORE_WRITE_LATENCY, running.ledger.stats.write.read()),
        ] {
            metric.encode(e, [([], Filled::from(histogram))])?;
        }
        AAA_EVENTS.kinds(e, all.aaa.iter())?;
        RADIUS_EVENTS.kinds(e, all.radius.iter().flat_map(RadiusCounters::iter))?;
        DIAMETER_EVENTS.kinds(e, all.diameter.iter().flat_map(DiameterCounters::iter))?;
        DRIVER_EVENTS.kinds(e, all.driver.iter())?;
        DIVERTED.count(e, all.diverted)?;
        NOT_DIVERTED.count(e, all.not_diverted)?;
        EVICTED.counts(e, all.evicted.iter().map(|(client, n)| ([client.clone()], *n)))?;
        let found = [("hit", all.aaa.lookups_saved), ("miss", all.aaa.lookups), ("away", all.aaa.remembered)];
        CACHE.kinds(e, found.into_iter())?;
        WORK.kinds(e, all.work.iter().map(|(label, units)| (*label, *units)))?;
        HALF_OPEN.level(e, all.half_open)?;
        HALF_OPEN_OCTETS.level(e, all.half_open_octets)?;
        home_servers(e, &all.homes)?;
        let peers = all.diameter_servers.iter();
        DIAMETER_PEER_UP.levels(e, peers.map(|(name, okay)| ([name.clone()], i64::from(*okay))))?;
        DIAMETER_PEERS.level(e, all.diameter_peers)?;
        if let Some(ledger) = running.ledger.collect() {
            SESSIONS.level(e, ledger.open)?;
            LEDGER_EVENTS.kinds(e, ledger.counters.iter())?;
        }
        let load = running.workers.load();
        JOBS_WAITING.levels(e, load.map(|(name, load)| ([name.to_owned()], load.waiting as i64)))?;
        JOBS_REFUSED.counts(e, load.map(|(name, load)| ([name.to_owned()], load.refused)))?;
        JOBS_GIVEN_UP.counts(e, load.map(|(name, load)| ([name.to_owned()], load.given_up)))?;
        let stats = &running.ledger.stats;
        LEDGER_QUEUE.level(e, running.ledger.waiting() as u64)?;
        LEDGER_REFUSED.count(e, stats.refused.load(Ordering::Relaxed))?;
        STORE_REFUSED.count(e, stats.lost.load(Ordering::Relaxed))?;
        REPLY_ROWS_LEFT_OUT.count(e, running.workers.left_out())?;
        self.certificates(e)?;
        let (done, failed) = *running.reloads.lock().unwrap_or_else(PoisonError::into_inner);
        RELOADS.kinds(e, [("done", done), ("failed", failed)].into_iter())?;
        BUILD_INFO.levels(e, [([env!("CARGO_PKG_VERSION").to_owned()], 1)])
    }
}

impl Scrape {
    fn certificates(&self, e: &mut DescriptorEncoder<'_>) -> std::fmt::Result {
        let tls = self.0.tls.read().unwrap_or_else(PoisonError::into_inner).clone();
        let Some(tls) = tls else { return Ok(()) };
        let now = i64::try_from(crate::clock::wall().unix_secs()).unwrap_or(i64::MAX);
        let ends = tls.ends.iter().map(|(whose, end)| ([(*whose).to_owned()], end - now));
        CERTIFICATE_EXPIRY.levels(e, ends)?;
        let lists = tls.lists.iter().filter_map(|list| {
            let end = i64::try_from(list.next_update?.unix_secs()).unwrap_or(i64::MAX);
            Some(([list.from.clone(), list.issuer.clone()], end))
        });
        CRL_NEXT_UPDATE.levels(e, lists)?;
        let attempts = self.0.lists.lock().unwrap_or_else(PoisonError::into_inner).clone();
        CRL_UPDATES.counts(e, attempts.into_iter().map(|((from, result), n)| ([from, result.to_owned()], n)))
    }
}

/// `Access-Request` for a known code, the number for others.
fn code_name(code: u8) -> String {
    Code(code).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    impl Metric {
        /// Its row of the page: the name that is exposed, labels, and what it is.
        fn row(&self) -> String {
            let (unit, end) = match self.kind {
                Kind::Counter => ("", "_total"),
                Kind::Gauge => ("", ""),
                Kind::Seconds | Kind::Latency => ("_seconds", ""),
            };
            format!("| `{}{unit}{end}` | {} | {} |", self.name, self.labels.join(", "), self.help)
        }
    }

    /// The rows of the table of a page whose first column has this title.
    fn table(page: &str, title: &str) -> Vec<String> {
        let path = format!("{}/../../docs/{page}", env!("CARGO_MANIFEST_DIR"));
        let text = std::fs::read_to_string(path).unwrap();
        let (_, table) = text.split_once(&format!("\n| {title} |")).unwrap();
        table.lines().skip(2).take_while(|line| line.starts_with('|')).map(str::to_owned).collect()
    }

    #[test]
    fn a_server_that_has_ended_is_not_serving() {
        let probe = RunningProbe(Weak::new());
        assert_eq!((probe.is_serving(), probe.expose_metrics()), (false, None));
        assert_eq!(probe.check_readiness(), Err("the server has ended".to_owned()));
    }

    #[test]
    fn the_page_lists_metrics_as_they_are_declared() {
        let rows: Vec<String> = METRICS.iter().map(Metric::row).collect();
        assert!(table("aaa-server.md", "metric") == rows, "docs/aaa-server.md needs\n{}\n", rows.join("\n"));
    }

    #[test]
    fn the_page_lists_counters_as_they_are_declared() {
        let parts = [
            ("aaa", usher_aaa::Counters::DECLARED),
            ("radius", RadiusCounters::DECLARED),
            ("diameter", DiameterCounters::DECLARED),
            ("driver", usher_live::DriverCounts::DECLARED),
            ("ledger", usher_aaa::ledger::Counters::DECLARED),
        ];
        let wrong: Vec<String> = parts
            .into_iter()
            .map(|(part, counters)| (format!("`{part}_events_total`"), counters))
            .filter_map(|(part, counters)| {
                let row = |(kind, about): &(&str, &str)| format!("| `{kind}` | {about} |");
                let rows: Vec<String> = counters.iter().map(row).collect();
                let head = format!("kind of {part}");
                (table("counters.md", &head) != rows)
                    .then(|| format!("| {head} | what is counted |\n|---|---|\n{}\n", rows.join("\n")))
            })
            .collect();
        assert!(wrong.is_empty(), "docs/counters.md needs\n{}", wrong.join("\n"));
    }
}
