//! A listener for metrics scrapers. It bounds the connections, and the time and octets of each connection.

use axum::serve::Listener;
use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::oneshot;
use tokio::time::{Sleep, sleep};
use usher_core::fair::UnauthenticatedPeerTable;

/// The octets that a connection may send. A request has a few hundred.
const MAX_REQUEST_OCTETS: usize = 64 << 10;
/// The pause after a failed accept, mostly for lack of descriptors.
pub(crate) const REST: Duration = Duration::from_millis(50);

#[derive(Debug)]
pub(crate) struct BoundedListener {
    listener: TcpListener,
    connections: usize,
    lasts: Duration,
    visits: Arc<Mutex<OpenConnectionTable>>,
}

/// The open connections, each with a handle that ends it.
#[derive(Debug, Default)]
struct OpenConnectionTable {
    slots: UnauthenticatedPeerTable<u64>,
    open: BTreeMap<u64, oneshot::Sender<()>>,
    accepted_count: u64,
}

impl BoundedListener {
    /// Limits the number of connections and the lifetime of each. When a new connection exceeds the limit, the oldest
    /// connection of the network with the most connections ends.
    pub(crate) fn new(listener: TcpListener, connections: usize, lasts: Duration) -> Self {
        Self { listener, connections, lasts, visits: Arc::default() }
    }
    fn admit_connection(&self, stream: TcpStream, from: SocketAddr) -> BoundedConnection {
        let mut visits = lock_visits(&self.visits);
        visits.accepted_count += 1;
        let number = visits.accepted_count;
        let (end, displaced) = oneshot::channel();
        visits.open.insert(number, end);
        if let Some(oldest) = visits.slots.add_peer(number, from.ip(), self.connections) {
            // Removing the entry drops the sender, which ends the oldest connection.
            visits.open.remove(&oldest);
        }
        drop(visits);
        let over = Box::pin(sleep(self.lasts));
        BoundedConnection {
            stream,
            deadline: over,
            displaced,
            left: MAX_REQUEST_OCTETS,
            number,
            visits: self.visits.clone(),
        }
    }
}

fn lock_visits(visits: &Mutex<OpenConnectionTable>) -> MutexGuard<'_, OpenConnectionTable> {
    visits.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Listener for BoundedListener {
    type Io = BoundedConnection;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (BoundedConnection, SocketAddr) {
        loop {
            match self.listener.accept().await {
                Ok((stream, from)) => return (self.admit_connection(stream, from), from),
                Err(_) => sleep(REST).await,
            }
        }
    }
    fn local_addr(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }
}

#[derive(Debug)]
pub(crate) struct BoundedConnection {
    stream: TcpStream,
    deadline: Pin<Box<Sleep>>,
    /// Ready once a newer connection has evicted this one.
    displaced: oneshot::Receiver<()>,
    /// The octets that the peer may still send.
    left: usize,
    number: u64,
    visits: Arc<Mutex<OpenConnectionTable>>,
}

impl BoundedConnection {
    fn check_limits(&mut self, cx: &mut Context<'_>) -> io::Result<()> {
        let displaced = Pin::new(&mut self.displaced).poll(cx).is_ready();
        if self.left == 0 || displaced || self.deadline.as_mut().poll(cx).is_ready() {
            return Err(io::ErrorKind::TimedOut.into());
        }
        Ok(())
    }
}

impl Drop for BoundedConnection {
    fn drop(&mut self) {
        let mut visits = lock_visits(&self.visits);
        visits.slots.remove_peer(self.number);
        visits.open.remove(&self.number);
    }
}

impl AsyncRead for BoundedConnection {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        self.check_limits(cx)?;
        let before = buf.filled().len();
        let polled = Pin::new(&mut self.stream).poll_read(cx, buf);
        self.left = self.left.saturating_sub(buf.filled().len() - before);
        polled
    }
}

impl AsyncWrite for BoundedConnection {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, data: &[u8]) -> Poll<io::Result<usize>> {
        self.check_limits(cx)?;
        Pin::new(&mut self.stream).poll_write(cx, data)
    }
    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }
    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::Router;
    use axum::routing::get;
    use std::future::poll_fn;
    use std::io::{Read, Write};
    use std::net::TcpStream as Plain;

    /// A server for two connections, each with this lifetime.
    fn start_test_server(lasts: Duration) -> SocketAddr {
        let (told, address) = std::sync::mpsc::channel();
        std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(async {
                let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
                told.send(listener.local_addr().unwrap()).unwrap();
                let router = Router::new().route("/", get(async || "here\n"));
                axum::serve(BoundedListener::new(listener, 2, lasts), router).await
            })
        });
        address.recv().unwrap()
    }

    fn connect_test_client(address: SocketAddr) -> Plain {
        let stream = Plain::connect(address).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        stream
    }

    /// True if a read timed out.
    fn times_out(read: io::Result<usize>) -> bool {
        read.is_err_and(|error| error.kind() == io::ErrorKind::WouldBlock)
    }

    /// Requests the page. `None`: the connection was evicted.
    fn request_page(address: SocketAddr) -> Option<String> {
        let mut stream = connect_test_client(address);
        stream.write_all(b"GET / HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n").ok()?;
        let mut answer = String::new();
        assert!(!times_out(stream.read_to_string(&mut answer)), "there is no room");
        (!answer.is_empty()).then_some(answer)
    }

    /// True if the connection was closed or reset.
    fn is_ended(stream: &mut Plain) -> bool {
        let end = stream.read(&mut [0]);
        !matches!(end, Ok(1..)) && !times_out(end)
    }

    #[test]
    fn silent_connections_give_way_to_those_that_ask() {
        // The lifetime is long, so that only eviction ends a connection.
        let address = start_test_server(Duration::from_secs(600));
        let mut idle =
            [connect_test_client(address), connect_test_client(address), connect_test_client(address)];
        for _ in 0..3 {
            let answer = request_page(address).expect("an answer");
            assert!(answer.starts_with("HTTP/1.1 200") && answer.ends_with("here\n"), "{answer}");
        }
        assert!(idle[..2].iter_mut().all(is_ended), "the oldest gave way");
    }

    #[test]
    fn a_silent_connection_ends_with_its_time() {
        let address = start_test_server(Duration::from_millis(500));
        assert!(is_ended(&mut connect_test_client(address)));
    }

    #[test]
    fn a_request_that_comes_in_drops_ends_with_its_time() {
        let address = start_test_server(Duration::from_millis(500));
        let mut stream = connect_test_client(address);
        let mut writer = stream.try_clone().unwrap();
        let drip = std::thread::spawn(move || {
            let pause = Duration::from_millis(20);
            while writer.write_all(b"G").is_ok() {
                std::thread::sleep(pause);
            }
        });
        assert!(is_ended(&mut stream));
        drop(stream);
        drip.join().unwrap();
    }

    #[tokio::test]
    async fn who_says_too_much_is_not_heard_to_the_end() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let talks = std::thread::spawn(move || {
            let mut stream = connect_test_client(address);
            while stream.write_all(&[b'x'; 4096]).is_ok() {}
        });
        let mut door = BoundedListener::new(listener, 1, Duration::from_secs(600));
        let (mut heard, _) = door.accept().await;
        let (mut all, mut part) = (0, [0; 4096]);
        loop {
            let mut part = ReadBuf::new(&mut part);
            if poll_fn(|cx| Pin::new(&mut heard).poll_read(cx, &mut part)).await.is_err() {
                break;
            }
            all += part.filled().len();
        }
        assert!((MAX_REQUEST_OCTETS..MAX_REQUEST_OCTETS + 4096).contains(&all), "{all}");
        drop(heard);
        talks.join().unwrap();
    }
}
