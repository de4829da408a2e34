//! Small networks for tests.

use std::any::Any;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, UdpSocket};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration as Elapsed, Instant as Moment};
use usher_core::impair::{Channel, ChannelConfig, Fate};
use usher_core::{Instant, Seed};
use usher_lab::{End, HostSpec, Lab, LinkSpec, Outcome, Registry, Topology};
use usher_live::Clock;
use usher_sim::{Framing, LinkConfig, Tap};

pub(crate) const SEED: Seed = Seed::new(7);

/// Longer than anything here takes on a busy machine. Only a failing test waits so long.
pub(crate) const PATIENCE: Elapsed = Elapsed::from_secs(120);

/// Octets of an Ethernet header, which a captured frame has, and of what Ethernet costs.
const ETHERNET: usize = 14;

pub(crate) fn v4(n: usize) -> IpAddr {
    Ipv4Addr::from_bits(0x0a00_0001 + n as u32).into()
}

pub(crate) fn v6(n: usize) -> IpAddr {
    Ipv6Addr::from_bits(0xfd00 << 112 | (n as u128 + 1)).into()
}

/// A link with the same channel in both directions.
pub(crate) fn link(a: usize, b: usize, channel: ChannelConfig) -> LinkSpec {
    let config = LinkConfig { up: channel.clone(), down: channel, mtu: 1500, framing: Framing::Ethernet };
    LinkSpec { name: format!("{a}-{b}"), ends: [End::of(a), End::of(b)], config, capture: [None; 2] }
}

pub(crate) fn network(addresses: &[IpAddr], links: Vec<LinkSpec>) -> Topology {
    let host = |(n, address): (usize, &IpAddr)| HostSpec {
        name: format!("h{n}"),
        addresses: vec![*address],
        settings: Vec::new(),
        initial_window: None,
        quick_ack: false,
    };
    let hosts = addresses.iter().enumerate().map(host).collect();
    Topology { name: "test".to_owned(), seed: SEED, hosts, links }
}

/// A list of labs that is one test's alone, and gone with it.
#[derive(Debug)]
pub(crate) struct Scratch(pub(crate) Registry);

impl Scratch {
    pub(crate) fn new() -> Self {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let n = NUMBER.fetch_add(1, Ordering::Relaxed);
        let folder = std::env::temp_dir().join(format!("usher-lab-test-{}-{n}", std::process::id()));
        Self(Registry::at(&folder).unwrap())
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        std::fs::remove_dir_all(self.0.folder()).unwrap();
    }
}

/// A lab that relays, with a list of labs that is its alone.
#[derive(Debug)]
pub(crate) struct Running {
    pub(crate) lab: Lab,
    pub(crate) list: Scratch,
}

impl Running {
    pub(crate) fn new(topology: Topology) -> Self {
        let list = Scratch::new();
        let mut lab = Lab::build(topology, &list.0).unwrap();
        lab.start(Clock::start(), Some(Box::new(Seen::default()))).unwrap();
        Self { lab, list }
    }

    /// A socket of UDP on a host, at one of its addresses.
    pub(crate) fn udp_at(&self, host: usize, address: usize, port: u16) -> UdpSocket {
        let address = self.lab.topology().hosts[host].addresses[address];
        let socket = self.lab.namespace(host).run(|| UdpSocket::bind((address, port)).unwrap()).unwrap();
        socket.set_read_timeout(Some(PATIENCE)).unwrap();
        // Tests read after they have sent, and what a socket holds by itself is 256 small datagrams.
        rustix::net::sockopt::set_socket_recv_buffer_size_force(&socket, 8 << 20).unwrap();
        socket
    }

    pub(crate) fn udp(&self, host: usize, port: u16) -> UdpSocket {
        self.udp_at(host, 0, port)
    }

    /// Ends relaying, and gives what was captured. The hosts stay until this is dropped.
    pub(crate) fn stop(&mut self) -> (Outcome, Vec<Crossed>) {
        let mut outcome = self.lab.stop().unwrap().unwrap();
        let seen: Box<Seen> = outcome.tap.take().unwrap().into_any().downcast().unwrap();
        (outcome, seen.0)
    }

    /// Waits until the relay has taken so many frames, and each has arrived or was lost.
    pub(crate) fn settle(&self, frames: usize) {
        let begun = Moment::now();
        loop {
            let now = self.lab.report();
            if now.under_way == 0 && now.frames >= frames as u64 {
                return;
            }
            assert!(begun.elapsed() < PATIENCE, "{frames} frames are not relayed: {now:?}");
            std::thread::sleep(Elapsed::from_millis(5));
        }
    }
}

/// A packet that crossed a capture point.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Crossed {
    pub(crate) at: Instant,
    pub(crate) point: u16,
    pub(crate) outward: bool,
    pub(crate) octets: Vec<u8>,
}

impl Crossed {
    /// Its IP packet, on a link with Ethernet.
    pub(crate) fn ip(&self) -> &[u8] {
        &self.octets[ETHERNET..]
    }
    /// What it costs on such a link.
    pub(crate) fn bytes(&self) -> u32 {
        self.ip().len() as u32 + Framing::Ethernet.overhead()
    }
}

/// Keeps all that is captured.
#[derive(Debug, Default)]
struct Seen(Vec<Crossed>);

impl Tap for Seen {
    fn packet(&mut self, at: Instant, point: u16, outward: bool, bytes: &[u8]) {
        self.0.push(Crossed { at, point, outward, octets: bytes.to_vec() });
    }
    fn into_any(self: Box<Self>) -> Box<dyn Any> {
        self
    }
}

/// What the channel of one direction does, in virtual time, with the packets that were captured before it: each arrival with
/// its time, in the order of arrival, and whether it is damaged.
pub(crate) fn in_virtual_time(
    config: &ChannelConfig,
    direction: u64,
    offered: &[&Crossed],
) -> Vec<(Instant, Vec<u8>, bool)> {
    let mut channel = Channel::new(config.clone(), SEED.stream("link", direction));
    let mut arrivals = Vec::new();
    for packet in offered {
        if let Fate::Delivered { arrives, corrupted, again, .. } = channel.offer(packet.at, packet.bytes()) {
            arrivals.push((arrives, packet.octets.clone(), corrupted));
            arrivals.extend(again.map(|again| (again, packet.octets.clone(), false)));
        }
    }
    arrivals.sort_by_key(|(at, ..)| *at);
    arrivals
}
