//! Paths through networks: routers, interfaces, cables, and the kernel's own traffic.

use crate::support::{RunningLab, TEST_TIMEOUT, test_link, test_topology, v4_address, v6_address};
use std::io::{Read, Write};
use std::net::{IpAddr, TcpListener, TcpStream, UdpSocket};
use std::process::{Command, Stdio};
use std::time::{Duration as Elapsed, Instant as Moment};
use usher_core::Duration;
use usher_core::impair::{ChannelConfig, LossModel};
use usher_lab::{HostSpec, LinkEnd};

fn delayed_channel(milliseconds: u64) -> ChannelConfig {
    ChannelConfig { delay: Duration::from_millis(milliseconds), ..Default::default() }
}

/// Two hosts with two routers between them.
fn chain_lab(address: fn(usize) -> IpAddr, channel: &ChannelConfig) -> RunningLab {
    let addresses: Vec<IpAddr> = (0..4).map(address).collect();
    let mut links: Vec<_> = (0..3).map(|n| test_link(n, n + 1, channel.clone())).collect();
    links[1].capture = [Some(0), Some(1)];
    RunningLab::new(test_topology(&addresses, links))
}

#[test]
fn routers_forward_both_ip_versions_and_the_links_stay_quiet() {
    for address in [v4_address, v6_address] {
        let mut running = chain_lab(address, &delayed_channel(2));
        let (a, b) = (running.udp_socket(0, 9000), running.udp_socket(3, 9000));
        let mut buffer = [0; 2000];
        for n in 0..10 {
            let sent = Moment::now();
            a.send_to(&[n; 500], (address(3), 9000)).unwrap();
            let (length, from) = b.recv_from(&mut buffer).unwrap();
            assert_eq!((length, from.ip()), (500, address(0)));
            b.send_to(&buffer[..length], from).unwrap();
            a.recv(&mut buffer).unwrap();
            assert!(sent.elapsed() >= Elapsed::from_millis(12), "six links of 2 ms each");
        }
        let (outcome, crossed) = running.stop();
        for link in &outcome.links {
            assert_eq!([link[0].offered, link[1].offered], [10, 10], "{}", address(0));
        }
        // IPv4 has no traffic of its own. IPv6 reports its multicast groups, and these reports are dropped.
        assert!(address(0).is_ipv6() || outcome.relay.ignored == 0, "{:?}", outcome.relay);
        assert_eq!(crossed.len(), 40);
    }
}

#[test]
fn tcp_goes_in_real_segments_and_survives_loss() {
    const OCTETS: usize = 300_000;
    for address in [v4_address, v6_address] {
        let channel =
            ChannelConfig { rate: Some(50_000_000), loss: LossModel::Bernoulli(0.01), ..delayed_channel(2) };
        let mut running = chain_lab(address, &channel);
        let listen = || TcpListener::bind((address(3), 9000)).unwrap();
        let listener = running.lab.namespace(3).run_inside(listen).unwrap();
        let server = std::thread::spawn(move || {
            let mut text = Vec::new();
            listener.accept().unwrap().0.read_to_end(&mut text).unwrap();
            text
        });
        let connect = || TcpStream::connect((address(3), 9000)).unwrap();
        let mut client = running.lab.namespace(0).run_inside(connect).unwrap();
        let text: Vec<u8> = (0..OCTETS).map(|n| (n / 7) as u8).collect();
        client.write_all(&text).unwrap();
        drop(client);
        assert_eq!(server.join().unwrap(), text);
        let (outcome, crossed) = running.stop();
        let report = outcome.relay;
        assert_eq!((report.truncated, report.unsummed, report.overflowed), (0, 0, 0), "{report:?}");
        let longest = crossed.iter().map(|c| c.ip_packet().len()).max();
        assert_eq!(longest, Some(1500), "segments are of the link's MTU, not of what hardware would cut");
        assert!(outcome.links[1][0].lost > 0);
    }
}

#[test]
fn what_comes_from_an_interface_leaves_by_its_links() {
    // A host with two interfaces beside its own address, each with a link to one server that has two links.
    let mut net = test_topology(
        &[v4_address(0), v4_address(1)],
        vec![
            test_link(0, 1, delayed_channel(1)),
            test_link(0, 1, delayed_channel(1)),
            test_link(0, 1, delayed_channel(1)),
        ],
    );
    net.hosts[0].addresses.extend([v4_address(10), v4_address(11)]);
    for (n, link) in net.links.iter_mut().enumerate() {
        link.ends[0] = LinkEnd { host: 0, address: n };
    }
    let mut running = RunningLab::new(net);
    let server = running.udp_socket(1, 9000);
    let mut buffer = [0; 100];
    for address in 0..3 {
        let socket = running.udp_at(0, address, 9001);
        for _ in 0..=address {
            socket.send_to(b"question", (v4_address(1), 9000)).unwrap();
            let (length, from) = server.recv_from(&mut buffer).unwrap();
            assert_eq!(from.ip(), [v4_address(0), v4_address(10), v4_address(11)][address]);
            server.send_to(&buffer[..length], from).unwrap();
            socket.recv(&mut buffer).unwrap();
        }
    }
    let (outcome, _) = running.stop();
    let offered: Vec<_> = outcome.links.iter().map(|l| [l[0].offered, l[1].offered]).collect();
    assert_eq!(offered, [[1, 1], [2, 2], [3, 3]]);
}

#[test]
fn a_cable_is_pulled_out_and_plugged_in_again() {
    let running = RunningLab::new(test_topology(
        &[v4_address(0), v4_address(1)],
        vec![test_link(0, 1, delayed_channel(1))],
    ));
    let (a, b) = (running.udp_socket(0, 9000), running.udp_socket(1, 9000));
    let state = || {
        let mut ip = Command::new("ip");
        ip.args(["-br", "link", "show", "eth0"]).stdout(Stdio::piped());
        let out = running.lab.spawn_program(0, &mut ip).unwrap().wait_with_output().unwrap();
        String::from_utf8(out.stdout).unwrap()
    };
    // The kernel marks an interface as running some time after its carrier.
    let works = |wanted: bool| {
        let begun = Moment::now();
        while (state().split_whitespace().nth(1) == Some("UP")) != wanted {
            assert!(begun.elapsed() < TEST_TIMEOUT, "{}", state());
        }
    };
    assert_eq!(running.lab.interface_name(0, 0).as_deref(), Some("eth0"));
    works(true);
    running.lab.set_carrier(0, 0, false).unwrap();
    works(false);
    assert!(state().contains("NO-CARRIER"), "{}", state());
    // No packet leaves without a carrier.
    a.send_to(b"lost", (v4_address(1), 9000)).unwrap();
    running.lab.set_carrier(0, 0, true).unwrap();
    works(true);
    a.send_to(b"found", (v4_address(1), 9000)).unwrap();
    let mut buffer = [0; 100];
    let length = b.recv(&mut buffer).unwrap();
    assert_eq!(&buffer[..length], b"found");
    assert!(running.lab.set_carrier(1, 0, true).is_err());
}

/// Builds a host with links to `leaves` others. Returns the processor time of this process for it.
fn star_lab(leaves: usize) -> (RunningLab, Elapsed) {
    let addresses: Vec<IpAddr> = (0..=leaves).map(v4_address).collect();
    let links = (1..=leaves).map(|n| test_link(0, n, delayed_channel(5))).collect();
    let before = processor_time();
    let running = RunningLab::new(test_topology(&addresses, links));
    (running, processor_time() - before)
}

fn processor_time() -> Elapsed {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    Elapsed::new(time.tv_sec as u64, time.tv_nsec as u32)
}

#[test]
fn a_hundred_hosts_are_there_at_once_and_reach_each_other() {
    const LEAVES: usize = 100;
    const FEWER: usize = 4;
    let (_, took_few) = star_lab(LEAVES / FEWER);
    let (running, took) = star_lab(LEAVES);
    println!("{LEAVES} hosts in {took:?}, a part of {FEWER} in {took_few:?}");
    let sockets: Vec<UdpSocket> = (1..=LEAVES).map(|n| running.udp_socket(n, 9000)).collect();
    for (n, socket) in sockets.iter().enumerate() {
        let next = (n + 1) % LEAVES + 1;
        socket.send_to(&(n as u32).to_be_bytes(), (v4_address(next), 9000)).unwrap();
    }
    let mut buffer = [0; 10];
    for (n, socket) in sockets.iter().enumerate() {
        let (_, from) = socket.recv_from(&mut buffer).unwrap();
        let before = (n + LEAVES - 1) % LEAVES;
        assert_eq!((from.ip(), buffer[3]), (v4_address(before + 1), before as u8));
    }
    // Each host costs about the same. If each pair of hosts cost something, the ratio would be the square.
    let most = took_few * (FEWER * FEWER * 3 / 4) as u32;
    assert!(took < most, "{took:?}, of which {took_few:?} is for a part of {FEWER}");
}

#[test]
fn labs_that_run_are_listed_with_their_hosts() {
    let running = RunningLab::new(test_topology(
        &[v4_address(0), v4_address(1)],
        vec![test_link(0, 1, delayed_channel(1))],
    ));
    let listed = running.list.0.running_labs().unwrap();
    assert_eq!(listed.len(), 1);
    let lab = &listed[0];
    assert_eq!((lab.process, lab.name.as_str()), (std::process::id() as i32, "test"));
    assert_eq!(lab.links, [("0-1".to_owned(), ["h0".to_owned(), "h1".to_owned()])]);
    let descriptor = format!("/proc/{}/fd/{}", lab.process, lab.hosts[1].descriptor);
    let target = std::fs::read_link(descriptor).unwrap();
    let number = running.lab.namespace(1).inode().unwrap();
    assert_eq!(target.to_str(), Some(&*format!("net:[{number}]")));
}

#[test]
fn settings_of_a_host_are_its_own() {
    let mut net = test_topology(&[v4_address(0), v4_address(1)], vec![test_link(0, 1, delayed_channel(1))]);
    let set = ("ipv4/tcp_no_metrics_save".to_owned(), "1".to_owned());
    net.hosts[0] = HostSpec { settings: vec![set], ..net.hosts[0].clone() };
    let running = RunningLab::new(net);
    let read = |host: usize| {
        let read = || std::fs::read_to_string("/proc/sys/net/ipv4/tcp_no_metrics_save").unwrap();
        running.lab.namespace(host).run_inside(read).unwrap()
    };
    assert_eq!([read(0).trim(), read(1).trim()], ["1", "0"]);
}
