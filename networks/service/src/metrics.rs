//! Metrics over HTTP in the Prometheus text format.

use crate::bounded_listener::BoundedListener;
use axum::Router;
use axum::http::StatusCode;
use axum::http::header::{CONTENT_TYPE, HeaderName};
use axum::routing::get;
use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;
use std::collections::BTreeMap;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Mutex;
use tokio::task::spawn_blocking;
use tokio::time::timeout;

/// The number of connections at one time.
const CONNECTIONS: usize = 64;
/// The lifetime of a connection. A scraper needs less, and can reconnect.
const LASTS: Duration = Duration::from_secs(10);
/// The time limit of a service's answer.
const PROBE_TIMEOUT: Duration = Duration::from_secs(3);

/// Builds a page of metrics.
pub struct MetricsExposition(Registry);

impl MetricsExposition {
    /// Creates an empty page whose metric names begin with `prefix`.
    pub fn new(prefix: &str) -> Self {
        Self(Registry::with_prefix(prefix))
    }
    /// Adds a gauge without labels.
    pub fn add_gauge(&mut self, name: &str, help: &str, value: u64) {
        let gauge: Gauge = Gauge::default();
        gauge.set(gauge_value(value));
        self.0.register(name, help, gauge);
    }
    /// Adds counters by name.
    pub fn add_counters(&mut self, counters: &BTreeMap<String, u64>, help: &str) {
        for (name, value) in counters {
            let counter: Counter = Counter::default();
            counter.inc_by(*value);
            self.0.register(name, help, counter);
        }
    }
    /// Adds units of work by work label.
    pub fn add_work(&mut self, work: &BTreeMap<String, u64>) {
        let family = Family::<Vec<(String, String)>, Counter>::default();
        for (kind, units) in work {
            family.get_or_create(&vec![("kind".to_owned(), kind.clone())]).inc_by(*units);
        }
        self.0.register("work", "Units of work by work label, as studies charge them", family);
    }
    /// Adds the program's version.
    pub fn add_version(&mut self, version: &str) {
        self.add_gauges(
            "build_info",
            "Always 1; the label is the program's version",
            "version",
            [(version, 1)].into_iter(),
        );
    }
    /// Adds one gauge per pool.
    pub fn add_pool_gauges<'a>(
        &mut self,
        name: &str,
        help: &str,
        values: impl Iterator<Item = (&'a str, u64)>,
    ) {
        self.add_gauges(name, help, "pool", values);
    }
    fn add_gauges<'a>(
        &mut self,
        name: &str,
        help: &str,
        label: &str,
        values: impl Iterator<Item = (&'a str, u64)>,
    ) {
        let family = Family::<Vec<(String, String)>, Gauge>::default();
        for (of, value) in values {
            family.get_or_create(&vec![(label.to_owned(), of.to_owned())]).set(gauge_value(value));
        }
        self.0.register(name, help, family);
    }
    /// Returns the page in the format of Prometheus.
    #[must_use]
    pub fn to_text(&self) -> String {
        let mut text = String::new();
        // Encoding to a string cannot fail.
        let _ = encode(&mut text, &self.0);
        text
    }
}

fn gauge_value(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}

/// The queries of the metrics endpoint to a service. Each may block.
pub trait ServiceProbe: Send + Sync + 'static {
    /// Returns the metrics in the Prometheus text format. `None`: the service does not answer.
    fn expose_metrics(&self) -> Option<String>;
    /// True if the service answers at all.
    fn is_serving(&self) -> bool;
    /// Checks that the service can do its work.
    ///
    /// # Errors
    /// The reason why it cannot.
    fn check_readiness(&self) -> Result<(), String>;
}

/// Starts to serve `/metrics`, `/health` (is it running?) and `/ready` (can it work?) over HTTP, on threads that run
/// until the program ends. Each page has at most one query to the service at a time. A connection lasts 10 s, and
/// there are at most 64.
///
/// # Errors
/// The address or a thread is unavailable.
pub fn start_metrics(address: SocketAddr, probe: Arc<dyn ServiceProbe>) -> io::Result<()> {
    let listener = TcpListener::bind(address)?;
    listener.set_nonblocking(true)?;
    // Queries for a page block, so each page gets a thread and waits for no other page's answer.
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().max_blocking_threads(3).build()?;
    let serve = move || {
        let ended = runtime.block_on(async {
            let door = BoundedListener::new(tokio::net::TcpListener::from_std(listener)?, CONNECTIONS, LASTS);
            axum::serve(door, metrics_router(&probe)).await
        });
        if let Err(error) = ended {
            tracing::error!(%error, "the metrics endpoint has failed");
        }
    };
    std::thread::Builder::new().name("usher-metrics".to_owned()).spawn(serve)?;
    Ok(())
}

fn metrics_router(probe: &Arc<dyn ServiceProbe>) -> Router {
    let page = |ask| {
        let (probe, turn) = (probe.clone(), Arc::default());
        get(move || answer_page_query(probe.clone(), ask, Arc::clone(&turn)))
    };
    Router::new()
        .route("/metrics", page(scrape_metrics))
        .route("/health", page(health_response))
        .route("/ready", page(readiness_response))
        .fallback(async || (StatusCode::NOT_FOUND, "/metrics, /health, /ready\n"))
}

type MetricsPageResponse = (StatusCode, [(HeaderName, &'static str); 1], String);

fn plain_response(code: StatusCode, text: String) -> MetricsPageResponse {
    (code, [(CONTENT_TYPE, "text/plain")], text)
}

/// Answers one query after it gets its page's turn. An abandoned query keeps the turn until it is answered.
async fn answer_page_query(
    probe: Arc<dyn ServiceProbe>,
    ask: fn(&dyn ServiceProbe) -> MetricsPageResponse,
    turn: Arc<Mutex<()>>,
) -> MetricsPageResponse {
    let answered = timeout(PROBE_TIMEOUT, async {
        let turn = turn.lock_owned().await;
        spawn_blocking(move || {
            let _turn = turn;
            ask(&*probe)
        })
        .await
    });
    match answered.await {
        Ok(Ok(answer)) => answer,
        Ok(Err(failed)) => plain_response(StatusCode::INTERNAL_SERVER_ERROR, format!("{failed}\n")),
        Err(_) => {
            let why = format!("the service has not answered for {} s\n", PROBE_TIMEOUT.as_secs());
            plain_response(StatusCode::SERVICE_UNAVAILABLE, why)
        }
    }
}

fn scrape_metrics(probe: &dyn ServiceProbe) -> MetricsPageResponse {
    let kind = "application/openmetrics-text; version=1.0.0; charset=utf-8";
    match probe.expose_metrics() {
        Some(text) => (StatusCode::OK, [(CONTENT_TYPE, kind)], text),
        None => plain_response(StatusCode::INTERNAL_SERVER_ERROR, String::new()),
    }
}

fn health_response(probe: &dyn ServiceProbe) -> MetricsPageResponse {
    match probe.is_serving() {
        true => plain_response(StatusCode::OK, "serving\n".to_owned()),
        false => plain_response(StatusCode::INTERNAL_SERVER_ERROR, String::new()),
    }
}

fn readiness_response(probe: &dyn ServiceProbe) -> MetricsPageResponse {
    match probe.check_readiness() {
        Ok(()) => plain_response(StatusCode::OK, "ready\n".to_owned()),
        Err(why) => plain_response(StatusCode::SERVICE_UNAVAILABLE, why + "\n"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};
    use std::net::TcpStream;
    use std::sync::Mutex as SyncMutex;

    /// Returns the status line and the body.
    fn request_page(address: SocketAddr, path: &str) -> (String, String) {
        let mut stream = TcpStream::connect(address).unwrap();
        write!(stream, "GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        (head.lines().next().unwrap().to_owned(), body.to_owned())
    }

    /// A test service. `None`: it does not answer. Otherwise the reason why it cannot work, if any.
    struct TestService(SyncMutex<Option<Option<&'static str>>>);

    impl ServiceProbe for TestService {
        fn expose_metrics(&self) -> Option<String> {
            self.0.lock().unwrap().map(|_| "# EOF\n".to_owned())
        }
        fn is_serving(&self) -> bool {
            self.0.lock().unwrap().is_some()
        }
        fn check_readiness(&self) -> Result<(), String> {
            let unready = self.0.lock().unwrap().ok_or("the service does not answer")?;
            unready.map_or(Ok(()), |why| Err(why.to_owned()))
        }
    }

    #[test]
    fn a_service_is_ready_while_it_can_do_what_it_is_asked() {
        let address = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let probe = Arc::new(TestService(SyncMutex::new(None)));
        start_metrics(address, probe.clone()).unwrap();
        let said = |state, path| {
            *probe.0.lock().unwrap() = state;
            request_page(address, path)
        };
        let is = |code: &str, body: &str| (format!("HTTP/1.1 {code}"), body.to_owned());
        let full = Some(Some("the log is full"));
        assert_eq!(said(Some(None), "/ready"), is("200 OK", "ready\n"));
        assert_eq!(said(full, "/ready"), is("503 Service Unavailable", "the log is full\n"));
        assert_eq!(said(full, "/health"), is("200 OK", "serving\n"), "it runs");
        assert_eq!(said(full, "/metrics"), is("200 OK", "# EOF\n"));
        assert_eq!(said(None, "/ready"), is("503 Service Unavailable", "the service does not answer\n"));
        assert_eq!(said(None, "/health").0, "HTTP/1.1 500 Internal Server Error");
        assert_eq!(said(Some(None), "/"), is("404 Not Found", "/metrics, /health, /ready\n"));
    }
}
