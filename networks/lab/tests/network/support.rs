//! Small networks for tests.

use std::net::{IpAddr, Ipv4Addr, UdpSocket};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration as Elapsed;
use usher_core::Seed;
use usher_core::impair::ChannelConfig;
use usher_lab::{End, HostSpec, Lab, LinkSpec, Registry, Topology};
use usher_sim::{Framing, LinkConfig};

/// The IPv4 address of a host.
pub(crate) fn v4(n: usize) -> IpAddr {
    Ipv4Addr::from_bits(0x0a00_0001 + n as u32).into()
}

pub(crate) fn host(n: usize, address: IpAddr) -> HostSpec {
    HostSpec { name: format!("h{n}"), addresses: vec![address], settings: Vec::new() }
}

/// A link with the same channel in both directions.
pub(crate) fn link(a: usize, b: usize, channel: ChannelConfig) -> LinkSpec {
    let config = LinkConfig { up: channel.clone(), down: channel, mtu: 1500, framing: Framing::Ethernet };
    LinkSpec { name: format!("{a}-{b}"), ends: [End::of(a), End::of(b)], config, capture: [None; 2] }
}

pub(crate) fn network(addresses: &[IpAddr], links: Vec<LinkSpec>) -> Topology {
    let hosts = addresses.iter().enumerate().map(|(n, address)| host(n, *address)).collect();
    Topology { name: "test".to_owned(), seed: Seed::new(7), hosts, links }
}

/// A list of labs that is this test's alone, and gone with it.
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

pub(crate) fn build(topology: Topology) -> (Lab, Scratch) {
    let scratch = Scratch::new();
    (Lab::build(topology, &scratch.0).unwrap(), scratch)
}

/// A socket of UDP on a host, at its address.
pub(crate) fn udp(lab: &Lab, host: usize, port: u16) -> UdpSocket {
    let address = lab.topology().hosts[host].addresses[0];
    let socket = lab.namespace(host).run(|| UdpSocket::bind((address, port)).unwrap()).unwrap();
    socket.set_read_timeout(Some(Elapsed::from_secs(5))).unwrap();
    socket
}
