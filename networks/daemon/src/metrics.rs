//! Metrics for Prometheus at /metrics, collected when they are asked for, and a health check at /health.

use crate::daemon::Running;
use crate::door::Door;
use crate::homes::{self, Homes};
use crate::stats::{BOUNDS, Histogram};
use axum::Router;
use axum::http::StatusCode;
use axum::http::header::CONTENT_TYPE;
use axum::routing::get;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::text::encode;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric, MetricEncoder, NoLabelSet};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::registry::{Registry, Unit};
use std::net::SocketAddr;
use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};
use std::time::Duration;
use tokio::net::TcpListener;
use usher_radius::client::{Asked, Health};
use usher_radius::packet::Code;

type Labels<'a> = Vec<(&'a str, String)>;

/// Connections at one time; who comes then waits until one ends.
const CONNECTIONS: usize = 64;
/// How long a connection lasts, whatever it does: whoever asks takes less, and opens another one.
const LASTS: Duration = Duration::from_secs(10);

/// Begins to serve.
pub(crate) async fn begin(running: &Arc<Running>, address: SocketAddr) -> std::io::Result<()> {
    let listener = Door::new(TcpListener::bind(address).await?, CONNECTIONS, LASTS);
    let running = running.clone();
    let scrape = move || {
        let running = running.clone();
        async move {
            // Shards and ledger are asked and waited for.
            let text = tokio::task::spawn_blocking(move || exposition(&running)).await;
            let text = text.ok().flatten().ok_or(StatusCode::INTERNAL_SERVER_ERROR)?;
            let kind = "application/openmetrics-text; version=1.0.0; charset=utf-8";
            Ok::<_, StatusCode>(([(CONTENT_TYPE, kind)], text))
        }
    };
    let router = Router::new().route("/metrics", get(scrape)).route("/health", get(async || "serving\n"));
    tokio::spawn(async move {
        if let Err(error) = axum::serve(listener, router).await {
            tracing::error!(%error, "metrics are not served any more");
        }
    });
    Ok(())
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

/// A histogram that was filled elsewhere.
struct Filled(Histogram);

impl EncodeMetric for Filled {
    fn encode(&self, mut encoder: MetricEncoder<'_>) -> std::fmt::Result {
        let bounds = BOUNDS.into_iter().chain([f64::MAX]);
        let classes: Vec<(f64, u64)> = bounds.zip(self.0.classes).collect();
        encoder.encode_histogram::<NoLabelSet>(
            self.0.sum,
            classes.iter().map(|(_, n)| n).sum(),
            &classes,
            None,
        )
    }
    fn metric_type(&self) -> MetricType {
        MetricType::Histogram
    }
}

/// One metric with a value for each set of labels.
fn family<'a, M: EncodeMetric>(
    encoder: &mut DescriptorEncoder<'_>,
    name: &str,
    help: &str,
    kind: MetricType,
    values: impl IntoIterator<Item = (Labels<'a>, M)>,
) -> std::fmt::Result {
    let mut family = encoder.encode_descriptor(name, help, None, kind)?;
    for (labels, value) in values {
        value.encode(family.encode_family(&labels)?)?;
    }
    Ok(())
}

/// One counter with a value for each set of labels.
fn counters<'a>(
    encoder: &mut DescriptorEncoder<'_>,
    name: &str,
    help: &str,
    values: impl IntoIterator<Item = (Labels<'a>, u64)>,
) -> std::fmt::Result {
    let values = values.into_iter().map(|(labels, n)| (labels, ConstCounter::new(n)));
    family(encoder, name, help, MetricType::Counter, values)
}

/// One gauge with a value for each set of labels.
fn gauges<'a>(
    encoder: &mut DescriptorEncoder<'_>,
    name: &str,
    help: &str,
    values: impl IntoIterator<Item = (Labels<'a>, i64)>,
) -> std::fmt::Result {
    let values = values.into_iter().map(|(labels, n)| (labels, ConstGauge::new(n)));
    family(encoder, name, help, MetricType::Gauge, values)
}

/// One counter without labels.
fn counter(encoder: &mut DescriptorEncoder<'_>, name: &str, help: &str, value: u64) -> std::fmt::Result {
    let counter = ConstCounter::new(value);
    counter.encode(encoder.encode_descriptor(name, help, None, counter.metric_type())?)
}

fn gauge(encoder: &mut DescriptorEncoder<'_>, name: &str, help: &str, value: i64) -> std::fmt::Result {
    let gauge = ConstGauge::new(value);
    gauge.encode(encoder.encode_descriptor(name, help, None, gauge.metric_type())?)
}

/// Home servers by their names and what they are asked for.
fn home_servers(e: &mut DescriptorEncoder<'_>, homes: &Homes) -> std::fmt::Result {
    let labels = |name: &str, service| {
        vec![("home_server", name.to_owned()), ("service", homes::service_name(service).to_owned())]
    };
    let states = homes.iter().flat_map(|((name, service), home)| {
        [Health::Alive, Health::Suspect, Health::Dead].map(|health| {
            let mut labels = labels(name, *service);
            labels.push(("state", homes::health_name(health).to_owned()));
            (labels, i64::from(health == home.health))
        })
    });
    gauges(e, "home_server_state", "1: the home server is in this state", states)?;
    for (name, help, value) in [
        (
            "home_server_requests",
            "Requests that a home server was asked",
            (|asked| asked.requests) as fn(&Asked) -> u64,
        ),
        ("home_server_answers", "Requests that it answered", |asked| asked.answers),
        ("home_server_timeouts", "Requests that it did not answer in time", |asked| asked.timeouts),
    ] {
        let values = homes.iter().map(|((name, service), home)| (labels(name, *service), value(&home.asked)));
        counters(e, name, help, values)?;
    }
    let help = "Its answers to requests that were sent once, and how long they took";
    let kind = MetricType::Histogram;
    let mut family = e.encode_descriptor("home_server_round_trip", help, Some(&Unit::Seconds), kind)?;
    for ((name, service), home) in homes {
        let labels = labels(name, *service);
        let seconds = home.asked.round_trips.as_secs_f64();
        let all = [(f64::MAX, home.asked.timed)];
        family.encode_family(&labels)?.encode_histogram::<NoLabelSet>(
            seconds,
            home.asked.timed,
            &all,
            None,
        )?;
    }
    Ok(())
}

impl Collector for Scrape {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> std::fmt::Result {
        let running = &self.0;
        let all = running.mailboxes.collect();
        let e = &mut encoder;
        let requests = all.requests.iter().map(|((client, code), n)| {
            let client = if client.is_empty() { "unknown".to_owned() } else { client.clone() };
            (vec![("client", client), ("code", code_name(*code))], *n)
        });
        counters(e, "requests", "RADIUS packets that came, by client and code", requests)?;
        let results = all.logins.iter().map(|((method, inner, outcome, reason), n)| {
            let labels = vec![
                ("method", (*method).to_owned()),
                ("inner", inner.clone()),
                ("result", outcome.name().to_owned()),
                ("reason", (*reason).to_owned()),
            ];
            (labels, *n)
        });
        counters(e, "logins", "Logins that ended, by method, inner method, result and reason", results)?;
        let seconds = Some(&Unit::Seconds);
        for (name, help, histogram) in [
            ("login_latency", "From a login's first request to its verdict", all.latency),
            ("store_latency", "How long the store took to find a user", running.lookups.read()),
            (
                "store_write_latency",
                "How long the store took to write a group",
                running.ledger.stats.write.read(),
            ),
        ] {
            let filled = Filled(histogram);
            filled.encode(e.encode_descriptor(name, help, seconds, filled.metric_type())?)?;
        }
        for part in ["aaa", "radius", "diameter", "driver"] {
            let values = all.counters.iter().filter(|((p, _), _)| *p == part);
            let values = values.map(|((_, name), n)| (vec![("kind", (*name).to_owned())], *n));
            let help = "What this part did and dropped, by kind";
            counters(e, &format!("{part}_events"), help, values)?;
        }
        counter(e, "diverted", "Requests handed to the shard of their State", all.diverted)?;
        let help = "Requests dropped because the shard of their State had too many waiting";
        counter(e, "not_diverted", help, all.not_diverted)?;
        let evicted = all.evicted.iter().map(|(client, n)| (vec![("client", client.clone())], *n));
        counters(e, "evicted", "Unfinished logins pushed out by new ones, by client", evicted)?;
        let cache = |kind| all.counters.get(&("aaa", kind)).copied().unwrap_or(0);
        let found = [
            (vec![("result", "hit".to_owned())], cache("lookups_saved")),
            (vec![("result", "miss".to_owned())], cache("lookups")),
            (vec![("result", "away".to_owned())], cache("remembered")),
        ];
        let help = "Users found in memory, asked of the store, and found in memory since the store was away";
        counters(e, "cache", help, found)?;
        gauge(e, "half_open", "Unfinished logins", all.half_open as i64)?;
        let help = "About how many octets unfinished logins hold";
        gauge(e, "half_open_octets", help, all.half_open_octets as i64)?;
        home_servers(e, &all.homes)?;
        let help =
            "1: requests are sent to this Diameter peer; 0: it is not connected, or owes a watchdog's answer";
        let servers = all.diameter_servers.iter();
        let servers = servers.map(|(name, okay)| (vec![("peer", name.clone())], i64::from(*okay)));
        gauges(e, "diameter_peer_up", help, servers)?;
        gauge(e, "diameter_peers", "Diameter peers that are connected", all.diameter_peers as i64)?;
        if let Some(ledger) = running.ledger.collect() {
            gauge(e, "sessions", "Open sessions", ledger.open as i64)?;
            let values = ledger.counters.iter().map(|(name, n)| (vec![("kind", name.to_owned())], n));
            counters(e, "ledger_events", "What the ledger did, by kind", values)?;
        }
        let load = running.workers.load();
        let queue = |name: &str| vec![("queue", name.to_owned())];
        let kind = ConstGauge::new(0_i64).metric_type();
        let help = "Jobs that wait for a thread: users to be found, passwords to be hashed, certificates to be asked about";
        let mut family = e.encode_descriptor("jobs_waiting", help, None, kind)?;
        for (name, waiting, _) in load {
            ConstGauge::new(waiting as i64).encode(family.encode_family(&queue(name))?)?;
        }
        let refused = load.map(|(name, _, refused)| (queue(name), refused));
        let help = "Jobs that found no room in their queue: their logins got no answer";
        counters(e, "jobs_refused", help, refused)?;
        let stats = &running.ledger.stats;
        gauge(e, "ledger_queue", "Entries that wait for the ledger", running.ledger.waiting() as i64)?;
        for (name, help, value) in [
            (
                "ledger_refused",
                "Entries for which the ledger's queue had no room: not acknowledged",
                &stats.refused,
            ),
            ("store_refused", "Changes that the store refused for good", &stats.lost),
        ] {
            counter(e, name, help, value.load(Ordering::Relaxed))?;
        }
        let help =
            "Rows of replies that could not be understood and were left out, each time that they were read";
        counter(e, "reply_rows_left_out", help, running.workers.left_out())?;
        self.certificates(e)?;
        let (done, failed) = *running.reloads.lock().unwrap_or_else(PoisonError::into_inner);
        let reloads = [("done", done), ("failed", failed)];
        let reloads = reloads.map(|(result, n)| (vec![("result", result.to_owned())], n));
        counters(e, "reloads", "Times that the configuration was read again", reloads)?;
        let version = vec![("version", env!("CARGO_PKG_VERSION").to_owned())];
        let gauge = ConstGauge::new(1_i64);
        let mut info = e.encode_descriptor("build_info", "The program", None, gauge.metric_type())?;
        gauge.encode(info.encode_family(&version)?)
    }
}

impl Scrape {
    fn certificates(&self, e: &mut DescriptorEncoder<'_>) -> std::fmt::Result {
        let tls = self.0.tls.read().unwrap_or_else(PoisonError::into_inner).clone();
        let Some(tls) = tls else { return Ok(()) };
        let kind = ConstGauge::new(0_i64).metric_type();
        let help = "Seconds until a certificate ends; less than 0: it has ended";
        let mut family = e.encode_descriptor("certificate_expiry", help, Some(&Unit::Seconds), kind)?;
        let now = i64::try_from(crate::tls::wall().unix_secs()).unwrap_or(i64::MAX);
        for (whose, end) in &tls.ends {
            let labels = vec![("certificate", (*whose).to_owned())];
            ConstGauge::new(end - now).encode(family.encode_family(&labels)?)?;
        }
        let help = "When a revocation list is out of date, seconds since 1970";
        let mut family = e.encode_descriptor("crl_next_update", help, Some(&Unit::Seconds), kind)?;
        for list in &tls.lists {
            let Some(end) = list.next_update else { continue };
            let labels = vec![("list", list.from.clone()), ("issuer", list.issuer.clone())];
            let end = i64::try_from(end.unix_secs()).unwrap_or(i64::MAX);
            ConstGauge::new(end).encode(family.encode_family(&labels)?)?;
        }
        let attempts = self.0.lists.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let attempts = attempts.into_iter();
        let attempts =
            attempts.map(|((from, result), n)| (vec![("from", from), ("result", result.to_owned())], n));
        counters(e, "crl_updates", "Attempts to get a new revocation list", attempts)
    }
}

/// `Access-Request` for a known code, the number for others.
fn code_name(code: u8) -> String {
    Code(code).to_string()
}
