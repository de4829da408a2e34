//! Three namespaces: a host, whose end is a plane in user mode, the concentrator, and a server.

use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use std::fs::File;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::os::fd::AsFd;
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};
use usher_esp::ip::{fold_checksum, protocol, pseudo_header_sum, sum_octets, write_header};
use usher_pppoe::{
    AccessPortConfig, DataPlaneConfig, DataPlaneEvent, DataPlaneMode, DataPlaneSession, EbpfHook,
    PppoeDataPlane, StartError,
};

/// Longer than any test takes on a busy machine. Only a failing test waits this long.
pub(crate) const TEST_TIMEOUT: Duration = Duration::from_secs(120);

/// True if this kernel has PPPoE.
pub(crate) fn has_pppox() -> bool {
    socket2::Socket::new(socket2::Domain::from(24), socket2::Type::STREAM, None).is_ok()
}

/// Returns the modes to test. The slow guest tests only the mode that other machines may lack.
pub(crate) fn tested_modes() -> Vec<DataPlaneMode> {
    if std::env::var_os("USHER_GUEST").is_some() {
        return vec![DataPlaneMode::Kernel];
    }
    let ebpf = [EbpfHook::Xdp, EbpfHook::Tc].into_iter().filter(|_| cfg!(ebpf)).map(DataPlaneMode::Ebpf);
    [DataPlaneMode::User]
        .into_iter()
        .chain(ebpf)
        .chain(has_pppox().then_some(DataPlaneMode::Kernel))
        .collect()
}

/// The SESSION_ID, and the host's addresses and networks.
pub(crate) const NUMBER: u16 = 0x0102;
pub(crate) const HOST: &str = "10.0.0.1";
pub(crate) const HOST_IPV6: &str = "2001:db8:1::1";
/// The server's addresses.
pub(crate) const SERVER: &str = "203.0.113.2";
pub(crate) const SERVER_IPV6: &str = "2001:db8:ffff::2";

pub(crate) const HOST_END: usize = 0;
pub(crate) const CONCENTRATOR: usize = 1;
pub(crate) const SERVER_END: usize = 2;

pub(crate) struct NamespaceFixture {
    pub(crate) names: [String; 3],
}

#[track_caller]
pub(crate) fn run_command(command: &str) {
    let mut words = command.split(' ');
    let program = words.next().expect("a program");
    let done = Command::new(program).args(words).status();
    let done = done.unwrap_or_else(|e| panic!("{program}: {e}: scripts/setup test installs it"));
    assert!(done.success(), "{command}: this needs root");
}

/// Returns the output of `ip` about an interface.
fn show_link(name: &str, device: &str) -> String {
    let said = Command::new("ip").args(["-n", name, "link", "show", device]).output();
    String::from_utf8(said.expect("ip is there").stdout).expect("text")
}

/// Adds an IPv6 address to an interface and waits until the kernel uses it. Packets sent to it before would be lost.
#[track_caller]
pub(crate) fn add_ipv6_address(name: &str, device: &str, address: &str) {
    run_command(&format!("ip -n {name} addr add {address} dev {device} nodad"));
    let address = address.split('/').next().unwrap_or(address);
    wait_until("the address is in use", || {
        let said = Command::new("ip").args(["-n", name, "route", "get", address]).output();
        said.expect("ip is there").stdout.starts_with(b"local ")
    });
}

/// TCP's sent segments in a namespace.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TcpSent {
    /// Segments, with retransmissions.
    pub(crate) segments: u64,
    /// Retransmitted segments.
    pub(crate) retransmitted: u64,
}

impl TcpSent {
    /// Reads the counts of the calling thread's namespace.
    fn from_proc() -> Self {
        let text = std::fs::read_to_string("/proc/thread-self/net/snmp").expect("TCP counts");
        let mut lines = text.lines().filter_map(|line| line.strip_prefix("Tcp: "));
        let (names, values) = (lines.next().expect("names"), lines.next().expect("values"));
        let of = |name: &str| {
            let mut both = names.split(' ').zip(values.split(' '));
            let value = both.find(|(other, _)| *other == name).expect("the kernel counts it").1;
            value.parse::<u64>().expect("a number")
        };
        Self { segments: of("OutSegs") + of("RetransSegs"), retransmitted: of("RetransSegs") }
    }
}

/// True if no connection of the calling thread's namespace has anything to send.
fn connections_are_over() -> bool {
    ["tcp", "tcp6"].iter().all(|file| {
        let table = std::fs::read_to_string(format!("/proc/thread-self/net/{file}")).unwrap_or_default();
        // The state is the fourth word of each line after the first; 06 is TIME-WAIT.
        table.lines().skip(1).all(|line| line.split_whitespace().nth(3) == Some("06"))
    })
}

impl NamespaceFixture {
    /// Creates the namespaces. `access_mtu`: the MTU of the link between host and concentrator.
    #[track_caller]
    pub(crate) fn new(access_mtu: u16) -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let n = NEXT.fetch_add(1, Ordering::Relaxed);
        let names =
            ["host", "conc", "serv"].map(|end| format!("usher-pppoe-{}-{n}-{end}", std::process::id()));
        for name in &names {
            run_command(&format!("ip netns add {name}"));
            run_command(&format!("ip -n {name} link set lo up"));
        }
        let place = Self { names };
        let [h, c, s] = &place.names;
        run_command(&format!(
            "ip -n {h} link add eth0 mtu {access_mtu} type veth peer name acc0 mtu {access_mtu} netns {c}"
        ));
        run_command(&format!("ip -n {s} link add eth0 type veth peer name up0 netns {c}"));
        let devices = [(h, "eth0"), (c, "acc0"), (c, "up0"), (s, "eth0")];
        for (name, device) in devices {
            run_command(&format!("ip -n {name} link set {device} up"));
        }
        // The kernel drops packets until it has processed the carrier of an interface.
        for (name, device) in devices {
            wait_until("the cables are plugged in", || show_link(name, device).contains("state UP"));
        }
        for (name, device, n) in [(c, "up0", 1), (s, "eth0", 2)] {
            run_command(&format!("ip -n {name} addr add 203.0.113.{n}/24 dev {device}"));
            add_ipv6_address(name, device, &format!("2001:db8:ffff::{n}/64"));
        }
        run_command(&format!("ip -n {s} route add default via 203.0.113.1"));
        run_command(&format!("ip -n {s} route add default via 2001:db8:ffff::1"));
        place.run_in_namespace(CONCENTRATOR, || {
            for setting in ["ipv4/ip_forward", "ipv6/conf/all/forwarding"] {
                std::fs::write(format!("/proc/sys/net/{setting}"), "1")
                    .expect("root may switch forwarding on");
            }
        });
        place
    }

    /// Runs a function in a namespace.
    pub(crate) fn run_in_namespace<T: Send + 'static>(
        &self,
        end: usize,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> T {
        let namespace =
            File::open(format!("/run/netns/{}", self.names[end])).expect("the namespace is there");
        let entered = move || {
            move_into_link_name_space(namespace.as_fd(), Some(LinkNameSpaceType::Network))
                .expect("root may go there");
            work()
        };
        std::thread::spawn(entered).join().expect("it is done")
    }

    /// Returns TCP's sent segments at an end, once no end has anything more to send.
    #[track_caller]
    pub(crate) fn tcp_sent(&self, end: usize) -> TcpSent {
        for end in [HOST_END, SERVER_END] {
            wait_until("connections are over", || self.run_in_namespace(end, connections_are_over));
        }
        self.run_in_namespace(end, TcpSent::from_proc)
    }

    pub(crate) fn try_plane(
        &self,
        end: usize,
        config: DataPlaneConfig,
    ) -> Result<(PppoeDataPlane, Receiver<DataPlaneEvent>), StartError> {
        let (heard, events) = channel();
        let hear = Box::new(move |event| drop(heard.send(event)));
        Ok((self.run_in_namespace(end, move || PppoeDataPlane::start(&config, hear))?, events))
    }

    #[track_caller]
    pub(crate) fn start_plane(
        &self,
        end: usize,
        mode: DataPlaneMode,
        interface: &str,
    ) -> (PppoeDataPlane, Receiver<DataPlaneEvent>) {
        let ports = vec![AccessPortConfig { interface: interface.to_owned() }];
        let report = Some(Duration::from_millis(50));
        let config = DataPlaneConfig { ports, mode, device: "pppoe0".to_owned(), report, closed: false };
        let begun = Instant::now();
        loop {
            match self.try_plane(end, config.clone()) {
                // A process that another test spawns may still hold a copy of an earlier device.
                Err(StartError::Device { error, .. })
                    if error.kind() == std::io::ErrorKind::ResourceBusy && begun.elapsed() < TEST_TIMEOUT =>
                {
                    std::thread::sleep(Duration::from_millis(10));
                }
                made => return made.expect("a plane can be made"),
            }
        }
    }

    /// Starts the concentrator's plane in a mode, and the host's plane, with all addresses at the other end.
    #[track_caller]
    pub(crate) fn start_both_planes(&self, mode: DataPlaneMode) -> PlanePair {
        let (concentrator, events) = self.start_plane(CONCENTRATOR, mode, "acc0");
        let (host, host_events) = self.start_plane(HOST_END, DataPlaneMode::User, "eth0");
        let ends = PlanePair { concentrator, events, host, host_events };
        let other = DataPlaneSession {
            peer: ends.concentrator.ports()[0].mac,
            ipv4: None,
            gateway: Some(HOST.parse().expect("an address")),
            networks: vec![(Ipv4Addr::UNSPECIFIED, 0)],
            ipv6: vec![([0; 8].into(), 0)],
            ..ends.host_session()
        };
        ends.host.install_session(other).expect("it can be");
        add_ipv6_address(&self.names[HOST_END], "pppoe0", &format!("{HOST_IPV6}/128"));
        ends
    }

    pub(crate) fn bind_udp(&self, end: usize, address: &str) -> UdpSocket {
        let address: SocketAddr = address.parse().expect("an address");
        self.run_in_namespace(end, move || {
            let socket = UdpSocket::bind(address).expect("the address is there");
            socket.set_read_timeout(Some(TEST_TIMEOUT)).expect("a socket can wait");
            socket
        })
    }

    /// Opens a connection from one end to an address of another.
    pub(crate) fn connect_tcp(&self, from: usize, to: usize, address: &str) -> (TcpStream, TcpStream) {
        let address = SocketAddr::new(address.parse().expect("an address"), 0);
        let listener =
            self.run_in_namespace(to, move || TcpListener::bind(address).expect("the address is there"));
        let at = listener.local_addr().expect("it is bound");
        let accepted = std::thread::spawn(move || listener.accept().expect("somebody comes").0);
        let begun = self.run_in_namespace(from, move || TcpStream::connect(at).expect("it answers"));
        let accepted = accepted.join().expect("it is accepted");
        for stream in [&begun, &accepted] {
            stream.set_read_timeout(Some(TEST_TIMEOUT)).expect("a stream can wait");
            stream.set_write_timeout(Some(TEST_TIMEOUT)).expect("a stream can wait");
        }
        (begun, accepted)
    }
}

impl Drop for NamespaceFixture {
    fn drop(&mut self) {
        for name in &self.names {
            let _ = Command::new("ip").args(["netns", "del", name]).status();
        }
    }
}

pub(crate) struct PlanePair {
    pub(crate) concentrator: PppoeDataPlane,
    pub(crate) events: Receiver<DataPlaneEvent>,
    pub(crate) host: PppoeDataPlane,
    pub(crate) host_events: Receiver<DataPlaneEvent>,
}

impl PlanePair {
    /// Returns the host's session as the concentrator has it.
    pub(crate) fn host_session(&self) -> DataPlaneSession {
        DataPlaneSession {
            number: NUMBER,
            port: 0,
            peer: self.host.ports()[0].mac,
            mtu: self.host.ports()[0].mtu - 8,
            ipv4: Some(HOST.parse().expect("an address")),
            gateway: Some(Ipv4Addr::new(10, 0, 0, 254)),
            networks: Vec::new(),
            ipv6: vec![("2001:db8:1::".parse().expect("an address"), 64)],
            link_local: Some([2, 0, 0, 0, 0, 0, 0, 9]),
            rate_up: None,
            rate_down: None,
            clamp_mss: false,
        }
    }
    /// Waits until the concentrator has received a frame that the host sends after all others.
    #[track_caller]
    pub(crate) fn wait_for_frames(&self) {
        let padi = [&[0xff; 6][..], &self.host.ports()[0].mac, &[0x88, 0x63, 0x11, 9, 0, 0, 0, 0], &[0; 40]];
        self.host.send_frame(0, &padi.concat());
        let frame = |event| matches!(event, DataPlaneEvent::Frame { .. });
        while !frame(self.events.recv_timeout(TEST_TIMEOUT).expect("it is heard")) {}
    }
    #[track_caller]
    pub(crate) fn install_session(&self) {
        self.concentrator.install_session(self.host_session()).expect("the session can be");
    }
    /// Returns a datagram of the host in a frame with this SESSION_ID.
    pub(crate) fn session_frame(&self, number: u16, packet: &[u8]) -> Vec<u8> {
        let mut all = [&self.concentrator.ports()[0].mac[..], &self.host.ports()[0].mac].concat();
        all.extend([0x88, 0x64, 0x11, 0]);
        all.extend(number.to_be_bytes());
        all.extend((packet.len() as u16 + 2).to_be_bytes());
        all.extend([0, if packet[0] >> 4 == 4 { 0x21 } else { 0x57 }]);
        all.extend(packet);
        all
    }
}

/// Builds a UDP datagram in an IP packet.
pub(crate) fn udp_packet(source: &str, destination: &str, port: u16, data: &[u8]) -> Vec<u8> {
    let (source, destination): (IpAddr, IpAddr) =
        (source.parse().expect("an address"), destination.parse().expect("an address"));
    let mut own = 4000u16.to_be_bytes().to_vec();
    own.extend(port.to_be_bytes());
    own.extend((8 + data.len() as u16).to_be_bytes());
    own.extend([0, 0]);
    own.extend(data);
    let code =
        fold_checksum(sum_octets(&own, pseudo_header_sum(source, destination, protocol::UDP, own.len())));
    own[6..8].copy_from_slice(&code);
    let mut packet = Vec::new();
    write_header(&mut packet, source, destination, protocol::UDP, 0, own.len());
    packet.extend(own);
    packet
}

/// Waits for a condition.
#[track_caller]
pub(crate) fn wait_until(what: &str, mut until: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !until() {
        assert!(begun.elapsed() < TEST_TIMEOUT, "{what}: not so");
        std::thread::sleep(Duration::from_millis(5));
    }
}
