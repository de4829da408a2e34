//! Prometheus metrics, collected at each scrape, and the readiness check.

use crate::homes::{self, HomeServers};
use crate::running::RunningServer;
use crate::stats::{BOUNDS, LatencyHistogram};
use prometheus_client::collector::Collector;
use prometheus_client::encoding::text::encode;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric, MetricEncoder, NoLabelSet};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::registry::{Registry, Unit};
use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError, Weak};
use usher_diameter::node::DiameterNodeCounters as DiameterCounters;
use usher_radius::client::{ServerCounts, ServerHealth};
use usher_radius::packet::PacketCode;
use usher_radius::server::RadiusServerCounters as RadiusCounters;
use usher_service::metrics::ServiceProbe;

/// The server behind the metrics endpoint. It may end before the program.
pub(crate) struct RunningServerProbe(pub(crate) Weak<RunningServer>);

impl ServiceProbe for RunningServerProbe {
    fn expose_metrics(&self) -> Option<String> {
        render_metrics(&self.0.upgrade()?)
    }
    fn is_serving(&self) -> bool {
        self.0.strong_count() > 0
    }
    fn check_readiness(&self) -> Result<(), String> {
        self.0.upgrade().ok_or("the server has ended")?.check_ready()
    }
}

/// Returns the exposition. `None`: it cannot be made.
fn render_metrics(running: &Arc<RunningServer>) -> Option<String> {
    let mut registry = Registry::with_prefix("usher_aaa");
    registry.register_collector(Box::new(MetricsCollector(running.clone())));
    let mut text = String::new();
    encode(&mut text, &registry).ok()?;
    Some(text)
}

struct MetricsCollector(Arc<RunningServer>);

impl std::fmt::Debug for MetricsCollector {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Scrape")
    }
}

/// The type of a metric.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum MetricKind {
    Counter,
    Gauge,
    /// A gauge in seconds.
    Seconds,
    /// A histogram in seconds.
    Latency,
}

/// A metric of the exposition. Its name, its help and its row in docs/reference/aaa-server.md are derived
/// from this declaration.
#[derive(Debug)]
struct MetricDeclaration {
    name: &'static str,
    kind: MetricKind,
    labels: &'static [&'static str],
    help: &'static str,
}

macro_rules! metrics {
    ($($metric:ident = $kind:ident $name:literal [$($label:literal),*] $help:literal;)+) => {
        $(const $metric: MetricDeclaration =
            MetricDeclaration { name: $name, kind: MetricKind::$kind, labels: &[$($label),*], help: $help };)+
        #[cfg(test)]
        const METRICS: &[MetricDeclaration] = &[$($metric),+];
    };
}

metrics! {
    REQUESTS = Counter "requests" ["client", "code"] "RADIUS packets received over UDP";
    LOGINS = Counter "logins" ["method", "inner", "result", "reason"] "Ended logins; `reason` is the cause";
    LOGIN_LATENCY = Latency "login_latency" [] "Time from a login's first request to its verdict";
    STORE_LATENCY = Latency "store_latency" [] "Time of a user lookup in the store";
    STORE_WRITE_LATENCY = Latency "store_write_latency" [] "Time to write a batch of changes to the store";
    AAA_EVENTS = Counter "aaa_events" ["kind"] "Events and dropped requests of logins and accounting";
    RADIUS_EVENTS = Counter "radius_events" ["kind"] "Events and dropped packets of RADIUS";
    DIAMETER_EVENTS = Counter "diameter_events" ["kind"] "Events and dropped messages of Diameter";
    DRIVER_EVENTS = Counter "driver_events" ["kind"] "Events and dropped packets of the sockets";
    LEDGER_EVENTS = Counter "ledger_events" ["kind"] "Events and refused changes of the session ledger";
    CACHE = Counter "cache" ["result"]
        "User lookups: from memory (`hit`), from the store (`miss`); `away`: misses that memory answered while the \
         store was unavailable";
    DIVERTED = Counter "diverted" [] "Requests passed to the shard that has their login";
    NOT_DIVERTED = Counter "not_diverted" [] "Requests refused because 4096 others waited for that shard";
    EVICTED = Counter "evicted" ["client"]
        "Unfinished logins evicted for new ones because this client had the most";
    WORK = Counter "work" ["kind"] "Units of work; docs/reference/study-files.md lists the kinds";
    HALF_OPEN = Gauge "half_open" [] "Unfinished logins";
    HALF_OPEN_OCTETS = Gauge "half_open_octets" [] "Approximate memory of unfinished logins, in octets";
    SESSIONS = Gauge "sessions" [] "Open sessions";
    DIAMETER_PEERS = Gauge "diameter_peers" [] "Connected Diameter peers";
    DIAMETER_PEER_UP = Gauge "diameter_peer_up" ["peer"]
        "1 if this peer, to which the server connects, takes requests; 0 if it is disconnected or owes a watchdog \
         answer";
    HOME_SERVER_STATE = Gauge "home_server_state" ["home_server", "service", "state"]
        "1 for the server's current state, `alive`, `zombie` or `dead`; the service is `authentication`, \
         `accounting`, or `radsec` for both";
    HOME_SERVER_REQUESTS = Counter "home_server_requests" ["home_server", "service"] "Requests sent to the home server";
    HOME_SERVER_ANSWERS = Counter "home_server_answers" ["home_server", "service"]
        "Requests that the home server answered";
    HOME_SERVER_TIMEOUTS = Counter "home_server_timeouts" ["home_server", "service"]
        "Requests that the home server did not answer in time: they failed over or ended";
    HOME_SERVER_ROUND_TRIP = Latency "home_server_round_trip" ["home_server", "service"]
        "Round-trip time (sum and count) of requests sent only once";
    LEDGER_QUEUE = Gauge "ledger_queue" [] "Changes that wait for the ledger: accounting records and results of logins";
    LEDGER_REFUSED = Counter "ledger_refused" []
        "Changes dropped without acknowledgement because the ledger's queue was full";
    STORE_REFUSED = Counter "store_refused" [] "Changes that the store refused permanently";
    REPLY_ROWS_LEFT_OUT = Counter "reply_rows_left_out" []
        "Reply rows left out because they cannot be parsed, counted at each read";
    JOBS_WAITING = Gauge "jobs_waiting" ["queue"]
        "Queued jobs: user lookups (`lookup`), password hashes (`password`), certificate checks (`certificate`)";
    JOBS_REFUSED = Counter "jobs_refused" ["queue"]
        "Jobs refused by a full queue (8192 lookups, 256 passwords, 256 certificates; 4 passwords of one name for each \
         client): their logins get no reply";
    JOBS_GIVEN_UP = Counter "jobs_given_up" ["queue"]
        "Jobs skipped because their login ended before their turn";
    CERTIFICATE_EXPIRY = Seconds "certificate_expiry" ["certificate"]
        "Time until the certificate of the server, or of the authority, expires; negative after that";
    CRL_NEXT_UPDATE = Seconds "crl_next_update" ["list", "issuer"]
        "Expiry of a revocation list, seconds since 1970";
    CRL_UPDATES = Counter "crl_updates" ["from", "result"]
        "Attempts to fetch, read or reissue a revocation list: `new`, `same`, `failed`";
    RELOADS = Counter "reloads" ["result"] "Reloads of the configuration, `done` and `failed`";
    BUILD_INFO = Gauge "build_info" ["version"] "1, with the program's version as a label";
}

/// The sum of a histogram, and its cumulative counts by bound.
struct CumulativeHistogram(f64, Vec<(f64, u64)>);

impl From<LatencyHistogram> for CumulativeHistogram {
    fn from(histogram: LatencyHistogram) -> Self {
        let bounds = BOUNDS.into_iter().chain([f64::MAX]);
        Self(histogram.sum, bounds.zip(histogram.classes).collect())
    }
}

impl EncodeMetric for CumulativeHistogram {
    fn encode(&self, mut encoder: MetricEncoder<'_>) -> std::fmt::Result {
        let Self(sum, classes) = self;
        encoder.encode_histogram::<NoLabelSet>(*sum, classes.iter().map(|(_, n)| n).sum(), classes, None)
    }
    fn metric_type(&self) -> MetricType {
        MetricType::Histogram
    }
}

impl MetricDeclaration {
    /// Encodes a value for each set of labels, in their declared order.
    fn encode<const N: usize, M: EncodeMetric>(
        &self,
        e: &mut DescriptorEncoder<'_>,
        values: impl IntoIterator<Item = ([String; N], M)>,
    ) -> std::fmt::Result {
        debug_assert_eq!(self.labels.len(), N, "{}", self.name);
        let (kind, unit) = match self.kind {
            MetricKind::Counter => (MetricType::Counter, None),
            MetricKind::Gauge => (MetricType::Gauge, None),
            MetricKind::Seconds => (MetricType::Gauge, Some(&Unit::Seconds)),
            MetricKind::Latency => (MetricType::Histogram, Some(&Unit::Seconds)),
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
    fn encode_count(&self, e: &mut DescriptorEncoder<'_>, n: u64) -> std::fmt::Result {
        self.encode_counts(e, [([], n)])
    }
    fn encode_counts<const N: usize>(
        &self,
        e: &mut DescriptorEncoder<'_>,
        values: impl IntoIterator<Item = ([String; N], u64)>,
    ) -> std::fmt::Result {
        self.encode(e, values.into_iter().map(|(labels, n)| (labels, ConstCounter::new(n))))
    }
    /// Encodes the counters of a part by name.
    fn encode_counters_by_name(
        &self,
        e: &mut DescriptorEncoder<'_>,
        counters: impl Iterator<Item = (&'static str, u64)>,
    ) -> std::fmt::Result {
        self.encode_counts(e, counters.map(|(kind, n)| ([kind.to_owned()], n)))
    }
    fn encode_gauge(&self, e: &mut DescriptorEncoder<'_>, n: u64) -> std::fmt::Result {
        self.encode_gauges(e, [([], n as i64)])
    }
    fn encode_gauges<const N: usize>(
        &self,
        e: &mut DescriptorEncoder<'_>,
        values: impl IntoIterator<Item = ([String; N], i64)>,
    ) -> std::fmt::Result {
        self.encode(e, values.into_iter().map(|(labels, n)| (labels, ConstGauge::new(n))))
    }
}

/// Encodes home servers by name and service.
fn home_servers(e: &mut DescriptorEncoder<'_>, homes: &HomeServers) -> std::fmt::Result {
    let labels = |name: &str, service| [name.to_owned(), homes::home_server_type_label(service).to_owned()];
    let states = homes.iter().flat_map(|((name, service), home)| {
        [ServerHealth::Alive, ServerHealth::Suspect, ServerHealth::Dead].map(|health| {
            let [name, service] = labels(name, *service);
            (
                [name, service, homes::freeradius_health_name(health).to_owned()],
                i64::from(health == home.health),
            )
        })
    });
    HOME_SERVER_STATE.encode_gauges(e, states)?;
    for (metric, value) in [
        (HOME_SERVER_REQUESTS, (|asked| asked.requests) as fn(&ServerCounts) -> u64),
        (HOME_SERVER_ANSWERS, |asked| asked.answers),
        (HOME_SERVER_TIMEOUTS, |asked| asked.timeouts),
    ] {
        metric.encode_counts(
            e,
            homes.iter().map(|((name, service), h)| (labels(name, *service), value(&h.request_counts))),
        )?;
    }
    let round_trips = homes.iter().map(|((name, service), home)| {
        let taken = CumulativeHistogram(
            home.request_counts.round_trips.as_secs_f64(),
            vec![(f64::MAX, home.request_counts.timed)],
        );
        (labels(name, *service), taken)
    });
    HOME_SERVER_ROUND_TRIP.encode(e, round_trips)
}

impl Collector for MetricsCollector {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> std::fmt::Result {
        let running = &self.0;
        let all = running.mailboxes.collect_snapshot();
        let e = &mut encoder;
        let requests = all.requests.iter().map(|((client, code), n)| {
            let client = if client.is_empty() { "unknown".to_owned() } else { client.clone() };
            ([client, code_name(*code)], *n)
        });
        REQUESTS.encode_counts(e, requests)?;
        let logins = all.logins.iter().map(|((method, inner, outcome, reason), n)| {
            let result = outcome.name().to_owned();
            ([(*method).to_owned(), inner.clone(), result, (*reason).to_owned()], *n)
        });
        LOGINS.encode_counts(e, logins)?;
        for (metric, histogram) in [
            (LOGIN_LATENCY, all.latency),
            (STORE_LATENCY, running.lookups.read()),
            (STORE_WRITE_LATENCY, running.ledger.stats.write.read()),
        ] {
            metric.encode(e, [([], CumulativeHistogram::from(histogram))])?;
        }
        AAA_EVENTS.encode_counters_by_name(e, all.aaa.iter())?;
        RADIUS_EVENTS.encode_counters_by_name(e, all.radius.iter().flat_map(RadiusCounters::iter))?;
        DIAMETER_EVENTS.encode_counters_by_name(e, all.diameter.iter().flat_map(DiameterCounters::iter))?;
        DRIVER_EVENTS.encode_counters_by_name(e, all.driver.iter())?;
        DIVERTED.encode_count(e, all.diverted)?;
        NOT_DIVERTED.encode_count(e, all.not_diverted)?;
        EVICTED.encode_counts(e, all.evicted.iter().map(|(client, n)| ([client.clone()], *n)))?;
        let found = [("hit", all.aaa.lookups_saved), ("miss", all.aaa.lookups), ("away", all.aaa.remembered)];
        CACHE.encode_counters_by_name(e, found.into_iter())?;
        WORK.encode_counters_by_name(e, all.work.iter().map(|(label, units)| (*label, *units)))?;
        HALF_OPEN.encode_gauge(e, all.half_open)?;
        HALF_OPEN_OCTETS.encode_gauge(e, all.half_open_octets)?;
        home_servers(e, &all.homes)?;
        let peers = all.diameter_servers.iter();
        DIAMETER_PEER_UP.encode_gauges(e, peers.map(|(name, okay)| ([name.clone()], i64::from(*okay))))?;
        DIAMETER_PEERS.encode_gauge(e, all.diameter_peers)?;
        if let Some(ledger) = running.ledger.collect_snapshot() {
            SESSIONS.encode_gauge(e, ledger.open)?;
            LEDGER_EVENTS.encode_counters_by_name(e, ledger.counters.iter())?;
        }
        let load = running.workers.worker_job_loads();
        JOBS_WAITING.encode_gauges(e, load.map(|(name, load)| ([name.to_owned()], load.waiting as i64)))?;
        JOBS_REFUSED.encode_counts(e, load.map(|(name, load)| ([name.to_owned()], load.refused)))?;
        JOBS_GIVEN_UP.encode_counts(e, load.map(|(name, load)| ([name.to_owned()], load.abandoned)))?;
        let stats = &running.ledger.stats;
        LEDGER_QUEUE.encode_gauge(e, running.ledger.queued_count() as u64)?;
        LEDGER_REFUSED.encode_count(e, stats.refused.load(Ordering::Relaxed))?;
        STORE_REFUSED.encode_count(e, stats.lost.load(Ordering::Relaxed))?;
        REPLY_ROWS_LEFT_OUT.encode_count(e, running.workers.left_out())?;
        self.encode_certificates(e)?;
        let (done, failed) = *running.reloads.lock().unwrap_or_else(PoisonError::into_inner);
        RELOADS.encode_counters_by_name(e, [("done", done), ("failed", failed)].into_iter())?;
        BUILD_INFO.encode_gauges(e, [([env!("CARGO_PKG_VERSION").to_owned()], 1)])
    }
}

impl MetricsCollector {
    fn encode_certificates(&self, e: &mut DescriptorEncoder<'_>) -> std::fmt::Result {
        let tls = self.0.tls.read().unwrap_or_else(PoisonError::into_inner).clone();
        let Some(tls) = tls else { return Ok(()) };
        let now = i64::try_from(usher_service::setup::wall_time().unix_secs()).unwrap_or(i64::MAX);
        let ends = tls.ends.iter().map(|(whose, end)| ([(*whose).to_owned()], end - now));
        CERTIFICATE_EXPIRY.encode_gauges(e, ends)?;
        let lists = tls.lists.iter().filter_map(|list| {
            let end = i64::try_from(list.next_update?.unix_secs()).unwrap_or(i64::MAX);
            Some(([list.from.clone(), list.issuer.clone()], end))
        });
        CRL_NEXT_UPDATE.encode_gauges(e, lists)?;
        let attempts = self.0.lists.lock().unwrap_or_else(PoisonError::into_inner).clone();
        CRL_UPDATES
            .encode_counts(e, attempts.into_iter().map(|((from, result), n)| ([from, result.to_owned()], n)))
    }
}

/// Returns a code's name such as `Access-Request`, or its number if unknown.
fn code_name(code: u8) -> String {
    PacketCode(code).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    impl MetricDeclaration {
        /// Returns its row of the page: exposed name, labels and help.
        fn metric_table_row(&self) -> String {
            let (unit, end) = match self.kind {
                MetricKind::Counter => ("", "_total"),
                MetricKind::Gauge => ("", ""),
                MetricKind::Seconds | MetricKind::Latency => ("_seconds", ""),
            };
            format!("| `{}{unit}{end}` | {} | {} |", self.name, self.labels.join(", "), self.help)
        }
    }

    /// Returns the rows of the page's table whose first column has this title.
    fn page_table(page: &str, title: &str) -> Vec<String> {
        let path = format!("{}/../../docs/{page}", env!("CARGO_MANIFEST_DIR"));
        let text = std::fs::read_to_string(path).unwrap();
        let (_, table) = text.split_once(&format!("\n| {title} |")).unwrap();
        table.lines().skip(2).take_while(|line| line.starts_with('|')).map(str::to_owned).collect()
    }

    #[test]
    fn a_server_that_has_ended_is_not_serving() {
        let probe = RunningServerProbe(Weak::new());
        assert_eq!((probe.is_serving(), probe.expose_metrics()), (false, None));
        assert_eq!(probe.check_readiness(), Err("the server has ended".to_owned()));
    }

    #[test]
    fn the_page_lists_metrics_as_they_are_declared() {
        let rows: Vec<String> = METRICS.iter().map(MetricDeclaration::metric_table_row).collect();
        assert!(
            page_table("reference/aaa-server.md", "metric") == rows,
            "docs/reference/aaa-server.md needs\n{}\n",
            rows.join("\n")
        );
    }

    #[test]
    fn the_page_lists_counters_as_they_are_declared() {
        let parts = [
            ("aaa", usher_aaa::AaaServerCounters::DECLARED),
            ("radius", RadiusCounters::DECLARED),
            ("diameter", DiameterCounters::DECLARED),
            ("driver", usher_live::DriverCounterSnapshot::DECLARED),
            ("ledger", usher_aaa::ledger::LedgerCounters::DECLARED),
        ];
        let wrong: Vec<String> = parts
            .into_iter()
            .map(|(part, counters)| (format!("`{part}_events_total`"), counters))
            .filter_map(|(part, counters)| {
                let row = |(kind, about): &(&str, &str)| format!("| `{kind}` | {about} |");
                let rows: Vec<String> = counters.iter().map(row).collect();
                let head = format!("kind of {part}");
                (page_table("reference/counters.md", &head) != rows)
                    .then(|| format!("| {head} | what is counted |\n|---|---|\n{}\n", rows.join("\n")))
            })
            .collect();
        assert!(wrong.is_empty(), "docs/reference/counters.md needs\n{}", wrong.join("\n"));
    }
}
