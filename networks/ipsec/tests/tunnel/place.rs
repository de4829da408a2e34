//! Two namespaces with a cable between them.

use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use std::fs::File;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::AsFd;
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};
use usher_core::SecureRng;
use usher_esp::plane::{IpsecMode, OuterAddresses};
use usher_esp::{EspKeys, EspTransform, SaLifetime, SaPair, TrafficSelector};
use usher_ipsec::{EspTunnel, TunnelConfig, TunnelEvent};

/// Longer than any step on a busy machine. Only a failing test waits this long.
pub(crate) const TEST_TIMEOUT: Duration = Duration::from_secs(120);

/// The two namespaces, 192.0.2.1 and 192.0.2.2, removed on drop.
pub(crate) struct NamespacePair {
    pub(crate) names: [String; 2],
}

#[track_caller]
pub(crate) fn run_ip(arguments: &str) {
    let done =
        Command::new("ip").args(arguments.split(' ')).status().expect("ip is installed: scripts/setup test");
    assert!(done.success(), "ip {arguments}: this needs root");
}

impl NamespacePair {
    #[track_caller]
    pub(crate) fn new() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let n = NEXT.fetch_add(1, Ordering::Relaxed);
        let names = ["a", "b"].map(|end| format!("usher-esp-{}-{n}-{end}", std::process::id()));
        for name in &names {
            run_ip(&format!("netns add {name}"));
            run_ip(&format!("-n {name} link set lo up"));
        }
        let [a, b] = &names;
        run_ip(&format!("-n {a} link add eth0 type veth peer name eth0 netns {b}"));
        for (n, name) in (1..).zip(&names) {
            run_ip(&format!("-n {name} addr add 192.0.2.{n}/24 dev eth0"));
            run_ip(&format!("-n {name} addr add 2001:db8::{n}/64 dev eth0 nodad"));
            run_ip(&format!("-n {name} link set eth0 up"));
        }
        // The kernel drops packets until some time after the carrier appears.
        let shown = |name: &str| {
            let said = Command::new("ip").args(["-n", name, "link", "show", "eth0"]).output();
            String::from_utf8(said.expect("ip is there").stdout).expect("text")
        };
        for (n, name) in (1..).zip(&names) {
            wait_until("the cable is plugged in", || shown(name).contains("state UP"));
            until_in_use(name, &format!("2001:db8::{n}"));
        }
        Self { names }
    }
    /// Runs a function in one of them.
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
    /// Starts a tunnel at one end, with addresses 10.N.0.1 and 2001:db8:N::1 and routes to those of the other end.
    #[track_caller]
    pub(crate) fn start_tunnel(
        &self,
        end: usize,
        config: TunnelConfig,
    ) -> (EspTunnel, Receiver<TunnelEvent>) {
        let (heard, said) = channel();
        let start = move || {
            let hear = Box::new(move |said| drop(heard.send(said)));
            EspTunnel::start(&config, SecureRng::from_seed([end as u8 + 1; 32]), hear)
                .expect("a tunnel can be made")
        };
        let tunnel = self.run_in_namespace(end, start);
        let (name, device, own, other) = (&self.names[end], tunnel.device_name(), end + 1, 2 - end);
        run_ip(&format!("-n {name} addr add 10.{own}.0.1/32 dev {device}"));
        run_ip(&format!("-n {name} addr add 2001:db8:{own}::1/128 dev {device} nodad"));
        until_in_use(name, &format!("2001:db8:{own}::1"));
        run_ip(&format!("-n {name} route add 10.{other}.0.0/16 dev {device} src 10.{own}.0.1"));
        run_ip(&format!("-n {name} route add 2001:db8:{other}::/48 dev {device} src 2001:db8:{own}::1"));
        (tunnel, said)
    }
}

impl Drop for NamespacePair {
    fn drop(&mut self) {
        for name in &self.names {
            let _ = Command::new("ip").args(["netns", "del", name]).status();
        }
    }
}

pub(crate) fn network_selector(text: &str) -> TrafficSelector {
    let (address, prefix) = text.split_once('/').expect("a prefix");
    let network = TrafficSelector::from_network(
        address.parse().expect("an address"),
        prefix.parse().expect("a length"),
    );
    network.expect("a network")
}

/// Returns the SA pair of one end, with keys of the transform's length.
pub(crate) fn test_pair(
    end: usize,
    transform: EspTransform,
    cipher_key: usize,
    encapsulated: bool,
) -> SaPair {
    let integrity = transform.integrity.map_or(0, |integrity| integrity.mac.output_len());
    let keys = |octet: u8| EspKeys {
        cipher: vec![octet; cipher_key].into(),
        integrity: vec![octet; integrity].into(),
    };
    let port = if encapsulated { 4500 } else { 0 };
    let address = |end: usize| SocketAddr::new(IpAddr::from([192, 0, 2, end as u8 + 1]), port);
    let traffic = |end: usize| {
        vec![
            network_selector(&format!("10.{}.0.0/16", end + 1)),
            network_selector(&format!("2001:db8:{}::/48", end + 1)),
        ]
    };
    let other = 1 - end;
    SaPair {
        inbound: 0x1000 + end as u32,
        outbound: 0x1000 + other as u32,
        transform,
        inbound_keys: keys(end as u8),
        outbound_keys: keys(other as u8),
        mode: IpsecMode::Tunnel,
        local: traffic(end),
        remote: traffic(other),
        outer: OuterAddresses { local: address(end), remote: address(other), encapsulated },
        policy: None,
        lifetime: SaLifetime::default(),
        window: SaPair::WINDOW,
        replaces: None,
        after_peer: false,
        follow: false,
    }
}

/// Waits until an IPv6 address is usable: packets to it are lost before.
#[track_caller]
fn until_in_use(name: &str, address: &str) {
    wait_until("the address is in use", || {
        let said = Command::new("ip").args(["-n", name, "route", "get", address]).output();
        said.expect("ip is there").stdout.starts_with(b"local ")
    });
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
