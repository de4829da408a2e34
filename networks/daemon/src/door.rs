//! A listener for those who only look: few connections at a time, each of which lasts for a bounded time and says little.

use axum::serve::Listener;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Sleep, sleep};

/// Octets that a connection may say: the requests that fit its time are some hundred each.
const SAYS: usize = 64 << 10;
/// How long the listener rests where the system gives no connection, mostly for want of descriptors.
const REST: Duration = Duration::from_millis(50);

/// The listener.
#[derive(Debug)]
pub(crate) struct Door {
    listener: TcpListener,
    room: Arc<Semaphore>,
    lasts: Duration,
}

impl Door {
    /// At most so many connections at a time, each for at most so long.
    pub(crate) fn new(listener: TcpListener, connections: usize, lasts: Duration) -> Self {
        Self { listener, room: Arc::new(Semaphore::new(connections)), lasts }
    }
}

impl Listener for Door {
    type Io = Visit;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (Visit, SocketAddr) {
        // It is never closed.
        let place = self.room.clone().acquire_owned().await.ok();
        loop {
            match self.listener.accept().await {
                Ok((stream, from)) => {
                    let end = Box::pin(sleep(self.lasts));
                    return (Visit { stream, end, left: SAYS, _place: place }, from);
                }
                Err(_) => sleep(REST).await,
            }
        }
    }
    fn local_addr(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }
}

/// A connection.
#[derive(Debug)]
pub(crate) struct Visit {
    stream: TcpStream,
    end: Pin<Box<Sleep>>,
    /// Octets that may still come.
    left: usize,
    _place: Option<OwnedSemaphorePermit>,
}

impl Visit {
    fn over(&mut self, cx: &mut Context<'_>) -> io::Result<()> {
        if self.left == 0 || self.end.as_mut().poll(cx).is_ready() {
            return Err(io::ErrorKind::TimedOut.into());
        }
        Ok(())
    }
}

impl AsyncRead for Visit {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        self.over(cx)?;
        let before = buf.filled().len();
        let polled = Pin::new(&mut self.stream).poll_read(cx, buf);
        self.left = self.left.saturating_sub(buf.filled().len() - before);
        polled
    }
}

impl AsyncWrite for Visit {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, data: &[u8]) -> Poll<io::Result<usize>> {
        self.over(cx)?;
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

    /// A server for two visitors of half a second each.
    fn served() -> SocketAddr {
        let (told, address) = std::sync::mpsc::channel();
        std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(async {
                let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
                told.send(listener.local_addr().unwrap()).unwrap();
                let router = Router::new().route("/", get(async || "here\n"));
                axum::serve(Door::new(listener, 2, Duration::from_millis(500)), router).await
            })
        });
        address.recv().unwrap()
    }

    fn visit(address: SocketAddr) -> Plain {
        let stream = Plain::connect(address).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        stream
    }

    /// Whether a read has waited in vain.
    fn times_out(read: io::Result<usize>) -> bool {
        read.is_err_and(|error| error.kind() == io::ErrorKind::WouldBlock)
    }

    /// Asks for the page; `None`: the server stood still for the half second that this visitor had.
    fn ask(address: SocketAddr) -> Option<String> {
        let mut stream = visit(address);
        stream.write_all(b"GET / HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n").ok()?;
        let mut answer = String::new();
        assert!(!times_out(stream.read_to_string(&mut answer)), "there is no room");
        (!answer.is_empty()).then_some(answer)
    }

    #[test]
    fn whoever_says_nothing_is_sent_away_and_makes_room_for_who_asks() {
        let address = served();
        let mut idle = [visit(address), visit(address)];
        let answer = (0..20).find_map(|_| ask(address)).expect("an answer");
        assert!(answer.starts_with("HTTP/1.1 200") && answer.ends_with("here\n"), "{answer}");
        for stream in &mut idle {
            // Ended or reset.
            let end = stream.read(&mut [0]);
            assert!(!matches!(end, Ok(1..)) && !times_out(end), "it was sent away");
        }
    }

    #[tokio::test]
    async fn who_says_too_much_is_not_heard_to_the_end() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let talks = std::thread::spawn(move || {
            let mut stream = visit(address);
            while stream.write_all(&[b'x'; 4096]).is_ok() {}
        });
        let mut door = Door::new(listener, 1, Duration::from_secs(600));
        let (mut heard, _) = door.accept().await;
        let (mut all, mut part) = (0, [0; 4096]);
        loop {
            let mut part = ReadBuf::new(&mut part);
            if poll_fn(|cx| Pin::new(&mut heard).poll_read(cx, &mut part)).await.is_err() {
                break;
            }
            all += part.filled().len();
        }
        assert!((SAYS..SAYS + 4096).contains(&all), "{all}");
        drop(heard);
        talks.join().unwrap();
    }
}
