//! Traffic through a tunnel, and checks of its arrival.

use crate::place::TEST_TIMEOUT;
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use std::collections::BTreeSet;
use std::fs::File;
use std::io::{Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Runs a closure in a namespace.
pub(super) fn run_in_namespace<T: Send + 'static>(
    space: &str,
    work: impl FnOnce() -> T + Send + 'static,
) -> T {
    let namespace = File::open(format!("/run/netns/{space}")).unwrap();
    let entered = move || {
        move_into_link_name_space(namespace.as_fd(), Some(LinkNameSpaceType::Network)).unwrap();
        work()
    };
    std::thread::spawn(entered).join().unwrap()
}

pub(super) fn bind_udp(space: &str, address: &str, port: u16) -> UdpSocket {
    let address = SocketAddr::new(address.parse().unwrap(), port);
    run_in_namespace(space, move || {
        let socket = UdpSocket::bind(address).unwrap_or_else(|e| panic!("{address}: {e}"));
        socket.set_read_timeout(Some(TEST_TIMEOUT)).unwrap();
        socket
    })
}

/// Sends this number of octets by TCP from one address to another and back; they must arrive unchanged both
/// times.
#[track_caller]
pub(super) fn echo_stream((from, source): (&str, &str), (to, target): (&str, &str), octets: usize) {
    let target: IpAddr = target.parse().unwrap();
    let source: IpAddr = source.parse().unwrap();
    let listener = run_in_namespace(to, move || TcpListener::bind((target, 0)).unwrap());
    let to = listener.local_addr().unwrap();
    let echo = std::thread::spawn(move || {
        let (mut stream, peer) = listener.accept().unwrap();
        assert_eq!(peer.ip(), source, "it comes from the inner address");
        stream.set_read_timeout(Some(TEST_TIMEOUT)).unwrap();
        let mut all = vec![0; octets];
        stream.read_exact(&mut all).unwrap();
        stream.write_all(&all).unwrap();
    });
    let sent: Vec<u8> =
        (0..octets).map(|n| (n as u32).wrapping_mul(2_654_435_761).to_be_bytes()[0]).collect();
    let mut stream = run_in_namespace(from, move || TcpStream::connect_timeout(&to, TEST_TIMEOUT).unwrap());
    stream.set_read_timeout(Some(TEST_TIMEOUT)).unwrap();
    let mut came = vec![0; octets];
    stream.write_all(&sent).unwrap();
    stream.read_exact(&mut came).unwrap();
    assert!(came == sent, "they came as they were");
    echo.join().unwrap();
}

/// Counts of sent and lost datagrams.
#[derive(Debug, Default)]
pub(super) struct FlowTally {
    pub(super) sent: usize,
    pub(super) lost: Vec<u32>,
}

/// Maximum datagrams in flight: below the capacity of any queue whose reader is not scheduled.
const MAX_IN_FLIGHT: usize = 32;

/// Numbered datagrams from one address to another every few milliseconds, which the receiver echoes.
pub(super) struct DatagramFlow {
    is_over: Arc<AtomicBool>,
    is_answered: Arc<AtomicBool>,
    answered: Arc<AtomicUsize>,
    sender: JoinHandle<FlowTally>,
    echo: JoinHandle<()>,
}

/// The sending end of a flow.
struct FlowSender {
    socket: UdpSocket,
    target: SocketAddr,
    sent: u32,
    /// Numbers of datagrams without an answer.
    unanswered: BTreeSet<u32>,
    answered: Arc<AtomicUsize>,
}

impl FlowSender {
    fn send_datagram(&mut self) {
        let mut datagram = [7; 600];
        datagram[..4].copy_from_slice(&self.sent.to_be_bytes());
        // Without a route, the datagram counts as lost.
        let _ = self.socket.send_to(&datagram, self.target);
        self.unanswered.insert(self.sent);
        self.sent += 1;
    }
    /// Receives answers for this time.
    fn receive_answers(&mut self, time: Duration) {
        let (mut buf, until) = ([0; 2000], Instant::now() + time);
        while Instant::now() < until {
            if let Ok(length) = self.socket.recv(&mut buf) {
                assert_eq!(length, 600, "whole");
                let number = u32::from_be_bytes(*buf.first_chunk().unwrap());
                assert!(self.unanswered.remove(&number), "not twice");
                self.answered.fetch_add(1, Ordering::Relaxed);
            }
        }
    }
    /// Sends until the flow is over, and then until a further datagram is answered. Datagrams take one path in
    /// order, so all unanswered ones before it are lost.
    fn run_sender(mut self, is_over: &AtomicBool) -> FlowTally {
        while !is_over.load(Ordering::Relaxed) {
            self.send_datagram();
            self.receive_answers(Duration::from_millis(4));
            // Waits only this long for answers; later ones are lost.
            let begun = Instant::now();
            while self.unanswered.len() >= MAX_IN_FLIGHT && begun.elapsed() < Duration::from_millis(50) {
                self.receive_answers(Duration::from_millis(4));
            }
        }
        let (last, begun) = (self.sent, Instant::now());
        while self.unanswered.range(last..).count() == (self.sent - last) as usize {
            assert!(begun.elapsed() < TEST_TIMEOUT, "nothing is answered any more");
            self.send_datagram();
            self.receive_answers(Duration::from_millis(100));
        }
        FlowTally { sent: last as usize, lost: self.unanswered.range(..last).copied().collect() }
    }
}

impl DatagramFlow {
    pub(super) fn start_flow(from: (&str, &str), to: (&str, &str)) -> Self {
        let (ours, theirs) = (bind_udp(from.0, from.1, 0), bind_udp(to.0, to.1, 0));
        let target = theirs.local_addr().unwrap();
        theirs.set_read_timeout(Some(Duration::from_millis(100))).unwrap();
        ours.set_read_timeout(Some(Duration::from_millis(1))).unwrap();
        let [is_over, is_answered] = [(); 2].map(|()| Arc::new(AtomicBool::new(false)));
        let answered = Arc::new(AtomicUsize::new(0));
        let ended = is_answered.clone();
        let echo = std::thread::spawn(move || {
            let mut buf = [0; 2000];
            while !ended.load(Ordering::Relaxed) {
                if let Ok((length, from)) = theirs.recv_from(&mut buf) {
                    let _ = theirs.send_to(&buf[..length], from);
                }
            }
        });
        let (ended, counted) = (is_over.clone(), answered.clone());
        let sender = std::thread::spawn(move || {
            let unanswered = BTreeSet::new();
            FlowSender { socket: ours, target, sent: 0, unanswered, answered: counted }.run_sender(&ended)
        });
        Self { is_over, is_answered, answered, sender, echo }
    }
    /// Waits until this number of further datagrams is answered.
    #[track_caller]
    pub(super) fn wait_for_answers(&self, count: usize) {
        let wanted = self.answered.load(Ordering::Relaxed) + count;
        let begun = Instant::now();
        while self.answered.load(Ordering::Relaxed) < wanted {
            assert!(begun.elapsed() < TEST_TIMEOUT, "the flow does not go on");
            std::thread::sleep(Duration::from_millis(5));
        }
    }
    pub(super) fn finish_flow(self) -> FlowTally {
        self.is_over.store(true, Ordering::Relaxed);
        let tally = self.sender.join().unwrap();
        self.is_answered.store(true, Ordering::Relaxed);
        self.echo.join().unwrap();
        tally
    }
}

/// Waits until no TCP connection in these namespaces has data to send.
#[track_caller]
pub(super) fn wait_for_silence(spaces: [&str; 2]) {
    let is_silent = || {
        ["tcp", "tcp6"].iter().all(|file| {
            let table = std::fs::read_to_string(format!("/proc/thread-self/net/{file}")).unwrap_or_default();
            // The fourth word of each line after the first is the state: 06 is TIME-WAIT, 0A is LISTEN.
            let states = table.lines().skip(1).map(|line| line.split_whitespace().nth(3).map(str::to_owned));
            states.flatten().all(|state| ["06", "0A"].contains(&&*state))
        })
    };
    super::wait_until("connections are over", || {
        spaces.iter().all(|space| run_in_namespace(space, is_silent))
    });
}
