//! What is sent through a tunnel, and what of it arrives.

use crate::place::PATIENCE;
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use std::collections::BTreeSet;
use std::fs::File;
use std::io::{Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Does something in a namespace.
pub(super) fn within<T: Send + 'static>(space: &str, work: impl FnOnce() -> T + Send + 'static) -> T {
    let namespace = File::open(format!("/run/netns/{space}")).unwrap();
    let entered = move || {
        move_into_link_name_space(namespace.as_fd(), Some(LinkNameSpaceType::Network)).unwrap();
        work()
    };
    std::thread::spawn(entered).join().unwrap()
}

pub(super) fn udp(space: &str, address: &str, port: u16) -> UdpSocket {
    let address = SocketAddr::new(address.parse().unwrap(), port);
    within(space, move || {
        let socket = UdpSocket::bind(address).unwrap_or_else(|e| panic!("{address}: {e}"));
        socket.set_read_timeout(Some(PATIENCE)).unwrap();
        socket
    })
}

/// Sends so many octets by TCP from one address to another, and has them sent back; both times they must arrive as they were.
#[track_caller]
pub(super) fn stream((from, source): (&str, &str), (to, target): (&str, &str), octets: usize) {
    let target: IpAddr = target.parse().unwrap();
    let source: IpAddr = source.parse().unwrap();
    let listener = within(to, move || TcpListener::bind((target, 0)).unwrap());
    let to = listener.local_addr().unwrap();
    let echo = std::thread::spawn(move || {
        let (mut stream, peer) = listener.accept().unwrap();
        assert_eq!(peer.ip(), source, "it comes from the inner address");
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let mut all = vec![0; octets];
        stream.read_exact(&mut all).unwrap();
        stream.write_all(&all).unwrap();
    });
    let sent: Vec<u8> =
        (0..octets).map(|n| (n as u32).wrapping_mul(2_654_435_761).to_be_bytes()[0]).collect();
    let mut stream = within(from, move || TcpStream::connect_timeout(&to, PATIENCE).unwrap());
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    let mut came = vec![0; octets];
    stream.write_all(&sent).unwrap();
    stream.read_exact(&mut came).unwrap();
    assert!(came == sent, "they came as they were");
    echo.join().unwrap();
}

/// What became of datagrams that were sent and answered.
#[derive(Debug, Default)]
pub(super) struct Tally {
    pub(super) sent: usize,
    pub(super) lost: Vec<u32>,
}

/// Datagrams that go from one address to another every few milliseconds, with numbers, and are answered.
pub(super) struct Flow {
    ends: Arc<AtomicBool>,
    sender: JoinHandle<Tally>,
    echo: JoinHandle<()>,
}

impl Flow {
    pub(super) fn begin(from: (&str, &str), to: (&str, &str)) -> Self {
        let (ours, theirs) = (udp(from.0, from.1, 0), udp(to.0, to.1, 0));
        let target = theirs.local_addr().unwrap();
        theirs.set_read_timeout(Some(Duration::from_millis(100))).unwrap();
        ours.set_read_timeout(Some(Duration::from_millis(1))).unwrap();
        let ends = Arc::new(AtomicBool::new(false));
        let ended = ends.clone();
        let echo = std::thread::spawn(move || {
            let mut buf = [0; 2000];
            // Until the other one has had time for what is under way.
            let mut last = Instant::now();
            while !ended.load(Ordering::Relaxed) || last.elapsed() < Duration::from_secs(1) {
                if let Ok((length, from)) = theirs.recv_from(&mut buf) {
                    last = Instant::now();
                    let _ = theirs.send_to(&buf[..length], from);
                }
            }
        });
        let ended = ends.clone();
        let sender = std::thread::spawn(move || {
            let (mut buf, mut waits, mut sent) = ([0; 2000], BTreeSet::new(), 0u32);
            let mut take = |waits: &mut BTreeSet<u32>| {
                if let Ok(length) = ours.recv(&mut buf) {
                    assert_eq!(length, 600, "whole");
                    assert!(waits.remove(&u32::from_be_bytes(*buf.first_chunk().unwrap())), "not twice");
                }
            };
            while !ended.load(Ordering::Relaxed) {
                let mut datagram = [7; 600];
                datagram[..4].copy_from_slice(&sent.to_be_bytes());
                // Without a route for a moment it is lost, and counted.
                let _ = ours.send_to(&datagram, target);
                waits.insert(sent);
                sent += 1;
                let next = Instant::now() + Duration::from_millis(4);
                while Instant::now() < next {
                    take(&mut waits);
                }
            }
            let until = Instant::now() + Duration::from_secs(1);
            while !waits.is_empty() && Instant::now() < until {
                take(&mut waits);
            }
            Tally { sent: sent as usize, lost: waits.into_iter().collect() }
        });
        Self { ends, sender, echo }
    }
    pub(super) fn end(self) -> Tally {
        self.ends.store(true, Ordering::Relaxed);
        let tally = self.sender.join().unwrap();
        self.echo.join().unwrap();
        tally
    }
}
