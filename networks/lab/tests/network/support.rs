//! Small networks for tests.

use std::any::Any;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, UdpSocket};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration as Elapsed, Instant as Moment};
use usher_core::impair::{Channel, ChannelConfig, PacketOutcome};
use usher_core::{Instant, Seed};
use usher_lab::{HostSpec, Lab, LabRegistry, LabTopology, LinkEnd, LinkSpec, RelayOutcome};
use usher_live::SystemClock;
use usher_sim::{LinkConfig, LinkFraming, PacketTap};

pub(crate) const SEED: Seed = Seed::new(7);

/// Longer than any step on a busy machine. Only a failing test waits this long.
pub(crate) const TEST_TIMEOUT: Elapsed = Elapsed::from_secs(120);

/// The octets of an Ethernet header, which a captured frame has, and of Ethernet's overhead.
const ETHERNET: usize = 14;

pub(crate) fn v4_address(n: usize) -> IpAddr {
    Ipv4Addr::from_bits(0x0a00_0001 + n as u32).into()
}

pub(crate) fn v6_address(n: usize) -> IpAddr {
    Ipv6Addr::from_bits(0xfd00 << 112 | (n as u128 + 1)).into()
}

/// A link with the same channel in both directions.
pub(crate) fn test_link(a: usize, b: usize, channel: ChannelConfig) -> LinkSpec {
    let config = LinkConfig { up: channel.clone(), down: channel, mtu: 1500, framing: LinkFraming::Ethernet };
    LinkSpec {
        name: format!("{a}-{b}"),
        ends: [LinkEnd::for_host(a), LinkEnd::for_host(b)],
        config,
        capture: [None; 2],
    }
}

pub(crate) fn test_topology(addresses: &[IpAddr], links: Vec<LinkSpec>) -> LabTopology {
    let host = |(n, address): (usize, &IpAddr)| HostSpec {
        name: format!("h{n}"),
        addresses: vec![*address],
        settings: Vec::new(),
        initial_window: None,
        quick_ack: false,
    };
    let hosts = addresses.iter().enumerate().map(host).collect();
    LabTopology { name: "test".to_owned(), seed: SEED, hosts, links }
}

/// A list of labs for one test, removed on drop.
#[derive(Debug)]
pub(crate) struct TestRegistry(pub(crate) LabRegistry);

impl TestRegistry {
    pub(crate) fn new() -> Self {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let n = NUMBER.fetch_add(1, Ordering::Relaxed);
        let folder = std::env::temp_dir().join(format!("usher-lab-test-{}-{n}", std::process::id()));
        Self(LabRegistry::open_at(&folder).unwrap())
    }
}

impl Drop for TestRegistry {
    fn drop(&mut self) {
        std::fs::remove_dir_all(self.0.folder()).unwrap();
    }
}

/// A lab with a running relay and its own list of labs.
#[derive(Debug)]
pub(crate) struct RunningLab {
    pub(crate) lab: Lab,
    pub(crate) list: TestRegistry,
}

impl RunningLab {
    pub(crate) fn new(topology: LabTopology) -> Self {
        let list = TestRegistry::new();
        let mut lab = Lab::build(topology, &list.0).unwrap();
        lab.start_relay(SystemClock::start(), Some(Box::new(RecordingTap::default()))).unwrap();
        Self { lab, list }
    }

    /// Opens a UDP socket on a host, at one of its addresses.
    pub(crate) fn udp_at(&self, host: usize, address: usize, port: u16) -> UdpSocket {
        let address = self.lab.topology().hosts[host].addresses[address];
        let socket =
            self.lab.namespace(host).run_inside(|| UdpSocket::bind((address, port)).unwrap()).unwrap();
        socket.set_read_timeout(Some(TEST_TIMEOUT)).unwrap();
        // Tests read after they have sent, and the default buffer holds only 256 small datagrams.
        rustix::net::sockopt::set_socket_recv_buffer_size_force(&socket, 8 << 20).unwrap();
        socket
    }

    pub(crate) fn udp_socket(&self, host: usize, port: u16) -> UdpSocket {
        self.udp_at(host, 0, port)
    }

    /// Stops the relay and returns the captured packets. The hosts stay until this is dropped.
    pub(crate) fn stop(&mut self) -> (RelayOutcome, Vec<CapturedPacket>) {
        let mut outcome = self.lab.stop_relay().unwrap().unwrap();
        let seen: Box<RecordingTap> = outcome.tap.take().unwrap().into_any().downcast().unwrap();
        (outcome, seen.0)
    }

    /// Waits until the relay has taken this many frames, and each has arrived or was lost.
    pub(crate) fn wait_until_idle(&self, frames: usize) {
        let begun = Moment::now();
        loop {
            let now = self.lab.relay_report();
            if now.under_way == 0 && now.frames >= frames as u64 {
                return;
            }
            assert!(begun.elapsed() < TEST_TIMEOUT, "{frames} frames are not relayed: {now:?}");
            std::thread::sleep(Elapsed::from_millis(5));
        }
    }
}

/// A packet at a capture point.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct CapturedPacket {
    pub(crate) captured_at: Instant,
    pub(crate) point: u16,
    pub(crate) outward: bool,
    pub(crate) octets: Vec<u8>,
}

impl CapturedPacket {
    /// Returns its IP packet, on a link with Ethernet.
    pub(crate) fn ip_packet(&self) -> &[u8] {
        &self.octets[ETHERNET..]
    }
    /// Returns its length on such a link.
    pub(crate) fn link_bytes(&self) -> u32 {
        self.ip_packet().len() as u32 + LinkFraming::Ethernet.overhead()
    }
}

/// Keeps all captured packets.
#[derive(Debug, Default)]
struct RecordingTap(Vec<CapturedPacket>);

impl PacketTap for RecordingTap {
    fn capture_packet(&mut self, at: Instant, point: u16, outward: bool, bytes: &[u8]) {
        self.0.push(CapturedPacket { captured_at: at, point, outward, octets: bytes.to_vec() });
    }
    fn into_any(self: Box<Self>) -> Box<dyn Any> {
        self
    }
}

/// Returns the results of one direction's channel in virtual time, for the packets captured before it: each arrival
/// with its time and damage, in order.
pub(crate) fn in_virtual_time(
    config: &ChannelConfig,
    direction: u64,
    offered: &[&CapturedPacket],
) -> Vec<(Instant, Vec<u8>, bool)> {
    let mut channel = Channel::new(config.clone(), SEED.derive_rng("link", direction));
    let mut arrivals = Vec::new();
    for packet in offered {
        if let PacketOutcome::Delivered { arrives, corrupted, duplicate_arrives: again, .. } =
            channel.offer_packet(packet.captured_at, packet.link_bytes())
        {
            arrivals.push((arrives, packet.octets.clone(), corrupted));
            arrivals.extend(again.map(|again| (again, packet.octets.clone(), false)));
        }
    }
    arrivals.sort_by_key(|(at, ..)| *at);
    arrivals
}
