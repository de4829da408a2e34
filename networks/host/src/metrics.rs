//! What was counted, over HTTP in Prometheus's form.

use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;
use std::collections::BTreeMap;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::time::Duration;

/// How long a reader may take.
const SCRAPE: Duration = Duration::from_secs(5);
/// Octets of a request, at most.
const HEAD: u64 = 1 << 14;

/// A text of metrics.
pub(crate) struct Exposition(Registry);

impl Exposition {
    /// Whose names begin with `prefix`.
    pub(crate) fn new(prefix: &str) -> Self {
        Self(Registry::with_prefix(prefix))
    }
    pub(crate) fn gauge(&mut self, name: &str, help: &str, value: u64) {
        let gauge: Gauge = Gauge::default();
        gauge.set(number(value));
        self.0.register(name, help, gauge);
    }
    /// What was counted, by names.
    pub(crate) fn counters(&mut self, counters: &BTreeMap<String, u64>, help: &str) {
        for (name, value) in counters {
            let counter: Counter = Counter::default();
            counter.inc_by(*value);
            self.0.register(name, help, counter);
        }
    }
    /// Units of work by kinds.
    pub(crate) fn work(&mut self, work: &BTreeMap<String, u64>) {
        let family = Family::<Vec<(String, String)>, Counter>::default();
        for (kind, units) in work {
            family.get_or_create(&vec![("kind".to_owned(), kind.clone())]).inc_by(*units);
        }
        self.0.register("work", "Units of work, of each kind that studies can charge", family);
    }
    /// The program's version.
    pub(crate) fn version(&mut self, version: &str) {
        self.gauges("build_info", "1, of the program's version", "version", [(version, 1)].into_iter());
    }
    /// A number of each pool.
    pub(crate) fn pools<'a>(&mut self, name: &str, help: &str, values: impl Iterator<Item = (&'a str, u64)>) {
        self.gauges(name, help, "pool", values);
    }
    fn gauges<'a>(
        &mut self,
        name: &str,
        help: &str,
        label: &str,
        values: impl Iterator<Item = (&'a str, u64)>,
    ) {
        let family = Family::<Vec<(String, String)>, Gauge>::default();
        for (of, value) in values {
            family.get_or_create(&vec![(label.to_owned(), of.to_owned())]).set(number(value));
        }
        self.0.register(name, help, family);
    }
    pub(crate) fn text(&self) -> String {
        let mut text = String::new();
        // Writing to a text does not fail.
        let _ = encode(&mut text, &self.0);
        text
    }
}

fn number(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}

/// What a service says of itself.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ServiceState {
    /// Its metrics.
    pub exposition: String,
    /// Why it cannot do what it is asked, if it cannot.
    pub unready: Option<String>,
}

/// Begins to answer at an address, on a thread of its own until the program ends: `/metrics` by what `state` gives, `/health` by
/// whether it gives anything, `/ready` by whether it can do what it is asked.
///
/// # Errors
/// The address is not to be had.
pub fn begin(
    address: SocketAddr,
    state: impl Fn() -> Option<ServiceState> + Send + 'static,
) -> io::Result<()> {
    let listener = TcpListener::bind(address)?;
    let serve = move || {
        for stream in listener.incoming().flatten() {
            // Who reads slowly, or not at all, is left.
            let _ = scrape(&stream, &state);
        }
    };
    std::thread::Builder::new().name("usher-metrics".to_owned()).spawn(serve)?;
    Ok(())
}

fn scrape(mut stream: &TcpStream, state: &dyn Fn() -> Option<ServiceState>) -> io::Result<()> {
    stream.set_read_timeout(Some(SCRAPE))?;
    stream.set_write_timeout(Some(SCRAPE))?;
    let mut lines = BufReader::new(stream.take(HEAD)).lines();
    let wanted = lines.next().transpose()?.unwrap_or_default();
    for line in lines {
        if line?.is_empty() {
            break;
        }
    }
    let plain = "text/plain";
    let (code, kind, body) = match (wanted.split(' ').nth(1), state()) {
        (Some("/metrics"), Some(state)) => {
            ("200 OK", "application/openmetrics-text; version=1.0.0; charset=utf-8", state.exposition)
        }
        (Some("/health"), Some(_)) => ("200 OK", plain, "serving\n".to_owned()),
        (Some("/ready"), Some(ServiceState { unready: None, .. })) => ("200 OK", plain, "ready\n".to_owned()),
        (Some("/ready"), Some(ServiceState { unready: Some(why), .. })) => {
            ("503 Service Unavailable", plain, why + "\n")
        }
        (Some("/ready"), None) => {
            ("503 Service Unavailable", plain, "the service does not answer\n".to_owned())
        }
        (_, Some(_)) => ("404 Not Found", plain, "/metrics, /health, /ready\n".to_owned()),
        _ => ("500 Internal Server Error", plain, String::new()),
    };
    write!(
        stream,
        "HTTP/1.1 {code}\r\nContent-Type: {kind}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{body}",
        body.len()
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::sync_channel;

    /// The status line and the body of an answer.
    fn ask(address: SocketAddr, path: &str) -> (String, String) {
        let mut stream = TcpStream::connect(address).unwrap();
        write!(stream, "GET {path} HTTP/1.1\r\nHost: x\r\n\r\n").unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        (head.lines().next().unwrap().to_owned(), body.to_owned())
    }

    #[test]
    fn a_service_is_ready_while_it_can_do_what_it_is_asked() {
        let (tell, told) = sync_channel::<Option<Option<&str>>>(1);
        let state = move || {
            let unready = told.recv().unwrap()?.map(str::to_owned);
            Some(ServiceState { exposition: "# EOF\n".to_owned(), unready })
        };
        let address = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        begin(address, state).unwrap();
        let said = |state, path| {
            tell.send(state).unwrap();
            ask(address, path)
        };
        let is = |code: &str, body: &str| (format!("HTTP/1.1 {code}"), body.to_owned());
        let full = Some(Some("the log is full"));
        assert_eq!(said(Some(None), "/ready"), is("200 OK", "ready\n"));
        assert_eq!(said(full, "/ready"), is("503 Service Unavailable", "the log is full\n"));
        assert_eq!(said(full, "/health"), is("200 OK", "serving\n"), "it runs");
        assert_eq!(said(full, "/metrics"), is("200 OK", "# EOF\n"));
        assert_eq!(said(None, "/ready"), is("503 Service Unavailable", "the service does not answer\n"));
        assert_eq!(said(Some(None), "/"), is("404 Not Found", "/metrics, /health, /ready\n"));
    }
}
