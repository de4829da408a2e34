//! Forwarding of a session's packets.

use super::place::{
    CONCENTRATOR, HOST, HOST_END, HOST_IPV6, NUMBER, NamespaceFixture, SERVER, SERVER_END, SERVER_IPV6,
    TEST_TIMEOUT, has_pppox, tested_modes, wait_until,
};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Instant;
#[cfg(ebpf)]
use usher_pppoe::EbpfHook;
use usher_pppoe::{DataPlaneEvent, DataPlaneMode, DataPlaneSession};

/// Sends octets; true if they arrive unchanged.
fn transfers_intact((mut from, mut to): (TcpStream, TcpStream), octets: usize) -> bool {
    let data: Vec<u8> =
        (0..octets).map(|n| (n as u32).wrapping_mul(2_654_435_761).to_be_bytes()[0]).collect();
    let sent = data.clone();
    let writer = std::thread::spawn(move || from.write_all(&sent).map(|()| from));
    let mut came = vec![0; octets];
    to.read_exact(&mut came).is_ok() && came == data && writer.join().expect("it is written").is_ok()
}

#[test]
fn streams_pass_both_ways_and_their_octets_are_counted() {
    const OCTETS: u64 = 3 << 20;
    for mode in tested_modes() {
        let place = NamespaceFixture::new(1500);
        let ends = place.start_both_planes(mode);
        ends.install_session();
        for (server, host) in [(SERVER, HOST), (SERVER_IPV6, HOST_IPV6)] {
            for (from, to, address) in [(HOST_END, SERVER_END, server), (SERVER_END, HOST_END, host)] {
                let counted = || {
                    let sent = place.tcp_sent(from);
                    let usage = ends.concentrator.session_usage(NUMBER).unwrap().unwrap();
                    let of = [(usage.octets_in, usage.packets_in), (usage.octets_out, usage.packets_out)];
                    (sent, of[usize::from(from == SERVER_END)], usage)
                };
                let (sent_before, before, _) = counted();
                assert!(
                    transfers_intact(place.connect_tcp(from, to, address), OCTETS as usize),
                    "{mode}: to {address}"
                );
                let (sent, after, usage) = counted();
                // At least the octets of the stream, and at most those that the sender's TCP reports with
                // retransmissions. The kernel may send a few IPv6 packets of its own.
                let own = 20;
                let segments = sent.segments - sent_before.segments + own;
                let most = OCTETS + (sent.retransmitted - sent_before.retransmitted) * 1460 + segments * 80;
                let (octets, packets) = (after.0 - before.0, after.1 - before.1);
                assert!(
                    (OCTETS..=most).contains(&octets) && (OCTETS / 1460..=segments).contains(&packets),
                    "{mode}: to {address}: {octets} octets in {packets} packets, {sent_before:?}, {sent:?}"
                );
                assert_eq!((usage.spoofed, usage.limited), (0, 0), "{mode}");
            }
        }
        // The last report equals the usage.
        let mut last = None;
        wait_until("the last report", || {
            for event in ends.events.try_iter() {
                match event {
                    DataPlaneEvent::UsageReport(all) => last = all.last().copied().or(last),
                    DataPlaneEvent::Frame { .. } => {}
                    DataPlaneEvent::Failed(why) => panic!("{mode}: {why}"),
                }
            }
            last == ends.concentrator.session_usage(NUMBER).unwrap().map(|usage| (NUMBER, usage))
        });
        let usage = ends.concentrator.session_usage(NUMBER).unwrap();
        assert_eq!(
            (
                ends.concentrator.remove_session(NUMBER).unwrap(),
                ends.concentrator.remove_session(NUMBER).unwrap()
            ),
            (usage, None)
        );
    }
}

#[test]
fn long_packets_learn_the_sessions_mtu() {
    // The server's MTU is 1500, the session's 1492, and the MSS is not clamped. The concentrator's kernel tells the
    // server by ICMP, as for any narrower link.
    for mode in tested_modes() {
        for access_mtu in [1500, 4000] {
            let place = NamespaceFixture::new(access_mtu);
            let ends = place.start_both_planes(mode);
            let mtu = (access_mtu - 8).min(1500);
            ends.concentrator.install_session(DataPlaneSession { mtu, ..ends.host_session() }).unwrap();
            assert!(transfers_intact(place.connect_tcp(SERVER_END, HOST_END, HOST), 1 << 20), "{mode} {mtu}");
            assert!(
                transfers_intact(place.connect_tcp(SERVER_END, HOST_END, HOST_IPV6), 1 << 20),
                "{mode} {mtu}"
            );
            assert_eq!(ends.concentrator.counters().unwrap().too_long, 0, "{mode} {mtu}");
        }
    }
}

#[test]
fn segment_sizes_are_lowered_both_ways() {
    use std::os::fd::AsFd;
    for mode in tested_modes() {
        let place = NamespaceFixture::new(1500);
        let ends = place.start_both_planes(mode);
        ends.concentrator
            .install_session(DataPlaneSession { mtu: 1300, clamp_mss: true, ..ends.host_session() })
            .unwrap();
        // Both announce the MSS of their own longer MTU. Each receives a clamped one.
        for (host, server, headers) in [(HOST, SERVER, 40), (HOST_IPV6, SERVER_IPV6, 60)] {
            for (from, to, address) in [(HOST_END, SERVER_END, server), (SERVER_END, HOST_END, host)] {
                let (begun, accepted) = place.connect_tcp(from, to, address);
                let timestamps = 12;
                for stream in [&begun, &accepted] {
                    let size = socket2::SockRef::from(&stream.as_fd()).tcp_mss().expect("the kernel knows");
                    assert_eq!(size, 1300 - headers - timestamps, "{mode} {address}");
                }
                assert!(transfers_intact((begun, accepted), 1 << 18), "{mode}");
            }
        }
    }
}

#[test]
fn limits_hold_both_ways() {
    const RATE: u64 = 20_000_000;
    for mode in tested_modes() {
        let place = NamespaceFixture::new(1500);
        let ends = place.start_both_planes(mode);
        let limited = DataPlaneSession { rate_up: Some(RATE), rate_down: Some(RATE), ..ends.host_session() };
        ends.concentrator.install_session(limited).unwrap();
        for (from, to, address) in [(HOST_END, SERVER_END, SERVER), (SERVER_END, HOST_END, HOST)] {
            let octets = 4 << 20;
            let once = || {
                let begun = Instant::now();
                assert!(transfers_intact(place.connect_tcp(from, to, address), octets), "{mode}");
                let rate = octets as f64 * 8.0 / begun.elapsed().as_secs_f64();
                // The burst is 100 ms of the rate.
                assert!(rate < RATE as f64 * 1.15, "{mode}: {rate}");
                rate > RATE as f64 * 0.4
            };
            // On a busy machine TCP may reach less after losses, but not in every attempt.
            let begun = Instant::now();
            while !once() {
                assert!(begun.elapsed() < TEST_TIMEOUT, "{mode}: the limit is less than it was set to");
            }
        }
        let usage = ends.concentrator.session_usage(NUMBER).unwrap().unwrap();
        assert!(usage.limited > 0, "{mode}");
        // An update without rates removes the limits.
        ends.install_session();
        assert!(transfers_intact(place.connect_tcp(SERVER_END, HOST_END, HOST), 4 << 20), "{mode}");
        assert_eq!(
            ends.concentrator.session_usage(NUMBER).unwrap().unwrap().limited,
            usage.limited,
            "{mode}"
        );
    }
}

#[test]
fn control_frames_go_up_and_are_sent() {
    for mode in tested_modes() {
        let place = NamespaceFixture::new(1500);
        let ends = place.start_both_planes(mode);
        let (ours, theirs) = (ends.concentrator.ports()[0].mac, ends.host.ports()[0].mac);
        let padi = |service: u8| {
            let rest = [0x88, 0x63, 0x11, 9, 0, 0, 0, 5, 1, 1, 0, 1, service];
            [&[0xff; 6][..], &theirs, &rest, &[0; 27]].concat()
        };
        let lcp = [&ours[..], &theirs, &[0x88, 0x64, 0x11, 0, 9, 9, 0, 6, 0xc0, 0x21, 9, 1, 0, 4], &[0; 26]]
            .concat();
        let pado = [&theirs[..], &ours, &[0x88, 0x63, 0x11, 7, 0, 0, 0, 0], &[0; 40]].concat();
        let next = |events: &std::sync::mpsc::Receiver<DataPlaneEvent>| loop {
            match events.recv_timeout(TEST_TIMEOUT).expect("something is heard") {
                DataPlaneEvent::Frame { port, data } => return (port, data),
                DataPlaneEvent::UsageReport(_) => {}
                DataPlaneEvent::Failed(why) => panic!("{why}"),
            }
        };
        for frame in [padi(b'a'), lcp] {
            ends.host.send_frame(0, &frame);
            assert_eq!(next(&ends.events), (0, frame), "{mode}");
        }
        // Frames for other stations are not received.
        let other =
            [&[2, 9, 9, 9, 9, 9][..], &theirs, &[0x88, 0x63, 0x11, 0xa7, 0, 1, 0, 0], &[0; 40]].concat();
        ends.host.send_frame(0, &other);
        ends.concentrator.send_frame(0, &pado);
        assert_eq!(next(&ends.host_events), (0, pado.clone()), "{mode}");
        // Port 7 does not exist. The next frame to arrive is the one sent after it.
        ends.concentrator.send_frame(7, &[0; 60]);
        ends.concentrator.send_frame(0, &pado);
        assert_eq!(next(&ends.host_events), (0, pado), "{mode}");
        ends.host.send_frame(0, &padi(b'b'));
        assert_eq!(next(&ends.events), (0, padi(b'b')), "{mode}");
    }
}

#[test]
fn what_was_changed_of_the_system_goes_with_the_plane() {
    let shown = |place: &NamespaceFixture| {
        let of = |command: &str| {
            let mut words = command.split(' ');
            let mut all = std::process::Command::new(words.next().unwrap());
            let said = String::from_utf8(all.args(words).output().unwrap().stdout).unwrap();
            // The kernel adds link-local addresses at any time.
            said.lines().filter(|line| !line.contains("fe80")).collect::<Vec<_>>().join("\n")
        };
        let c = &place.names[CONCENTRATOR];
        [
            of(&format!("ip -n {c} route")),
            of(&format!("ip -n {c} -6 route")),
            of(&format!("ip -n {c} -o addr")),
            of(&format!("tc -n {c} filter show dev acc0 ingress")),
        ]
    };
    for mode in tested_modes() {
        let place = NamespaceFixture::new(1500);
        let before = shown(&place);
        let (plane, _events) = place.start_plane(CONCENTRATOR, mode, "acc0");
        let own = |number, gateway: [u8; 4]| DataPlaneSession {
            number,
            peer: [2, 0, 0, 0, 0, 7],
            port: 0,
            mtu: 1400,
            ipv4: Some([10, 0, 0, number as u8].into()),
            gateway: Some(gateway.into()),
            networks: vec![([10, 1, number as u8, 0].into(), 24)],
            ipv6: Vec::new(),
            link_local: None,
            rate_up: None,
            rate_down: None,
            clamp_mss: true,
        };
        let none = shown(&place);
        plane.install_session(own(1, [10, 0, 0, 254])).unwrap();
        plane.install_session(own(2, [10, 0, 0, 254])).unwrap();
        let both = shown(&place);
        for expected in ["10.0.0.1 dev pppoe0", "10.1.2.0/24 dev pppoe0", "mtu 1400"] {
            assert!(both[0].contains(expected), "{mode}: {expected} in {}", both[0]);
        }
        assert!(both[2].contains("10.0.0.254/32"), "{mode}: {}", both[2]);
        // Another address and gateway. Networks that are no longer the session's are not routed to it.
        plane.install_session(DataPlaneSession { networks: Vec::new(), ..own(2, [10, 0, 0, 253]) }).unwrap();
        let changed = shown(&place);
        assert!(!changed[0].contains("10.1.2.0/24") && changed[2].contains("10.0.0.253/32"), "{mode}");
        plane.remove_session(1).unwrap();
        assert!(!shown(&place)[2].contains("10.0.0.254/32"), "{mode}");
        plane.remove_session(2).unwrap();
        assert_eq!(shown(&place), none, "{mode}");
        plane.install_session(own(1, [10, 0, 0, 254])).unwrap();
        drop(plane);
        // The device ends with its last descriptor. A process that another test spawns may hold a copy for a moment.
        wait_until("all is as before", || shown(&place) == before);
    }
}

#[test]
fn a_filter_that_was_left_behind_is_taken_over() {
    let place = NamespaceFixture::new(1500);
    let filters = || {
        let c = &place.names[CONCENTRATOR];
        let all = ["-n", c, "filter", "show", "dev", "acc0", "ingress"];
        String::from_utf8(std::process::Command::new("tc").args(all).output().unwrap().stdout).unwrap()
    };
    // A killed process restores nothing.
    let (left, _events) = place.start_plane(CONCENTRATOR, DataPlaneMode::User, "acc0");
    std::mem::forget(left);
    let alone = filters();
    assert!(alone.contains("direct-action"), "{alone}");
    let ports = vec![usher_pppoe::AccessPortConfig { interface: "acc0".to_owned() }];
    let config = usher_pppoe::DataPlaneConfig { ports, ..usher_pppoe::DataPlaneConfig::default() };
    let (next, _events) = place.try_plane(CONCENTRATOR, config).unwrap();
    assert_eq!(filters(), alone);
    drop(next);
    assert_eq!(filters(), "");
}

#[test]
fn what_cannot_be_is_said() {
    let place = NamespaceFixture::new(1500);
    let start = |mode, interfaces: &[&str]| {
        let ports =
            interfaces.iter().map(|name| usher_pppoe::AccessPortConfig { interface: (*name).to_owned() });
        let config = usher_pppoe::DataPlaneConfig {
            ports: ports.collect(),
            mode,
            ..usher_pppoe::DataPlaneConfig::default()
        };
        place.try_plane(CONCENTRATOR, config).map(drop).unwrap_err().to_string()
    };
    assert_eq!(start(DataPlaneMode::User, &[]), "no access interface: configure at least one");
    assert_eq!(start(DataPlaneMode::User, &["acc0", "acc0"]), "interface acc0 is configured twice");
    assert_eq!(start(DataPlaneMode::User, &["none0"]), "access interface none0: there is no such interface");
    assert_eq!(start(DataPlaneMode::User, &["lo"]), "access interface lo: it has no Ethernet address");
    if !has_pppox() {
        let said = start(DataPlaneMode::Kernel, &["acc0"]);
        assert!(
            said.starts_with("mode \"kernel\": cannot open a PPPoE socket")
                && said.contains("modprobe pppoe"),
            "{said}"
        );
    }
    super::place::run_command(&format!("ip -n {} link set acc0 down", place.names[CONCENTRATOR]));
    assert_eq!(
        start(DataPlaneMode::User, &["acc0"]),
        "access interface acc0: it is down: ip link set acc0 up"
    );
}

/// The driver of a veth pair would copy each packet for XDP.
#[cfg(ebpf)]
#[test]
fn ebpf_uses_tc_on_a_veth_end_unless_configured_otherwise() {
    let place = NamespaceFixture::new(1500);
    for (told, has) in
        [(EbpfHook::Auto, EbpfHook::Tc), (EbpfHook::Xdp, EbpfHook::Xdp), (EbpfHook::Tc, EbpfHook::Tc)]
    {
        let (plane, _events) = place.start_plane(CONCENTRATOR, DataPlaneMode::Ebpf(told), "acc0");
        assert_eq!(plane.ports()[0].hook, Some(has));
    }
    let (plane, _events) = place.start_plane(CONCENTRATOR, DataPlaneMode::User, "acc0");
    assert_eq!(plane.ports()[0].hook, None);
}

/// A session with too many networks for eBPF mode is refused with an error, and nothing of it is installed.
#[cfg(ebpf)]
#[test]
fn a_session_with_more_networks_than_fit_is_refused_whole() {
    let place = NamespaceFixture::new(1500);
    let ends = place.start_both_planes(DataPlaneMode::Ebpf(EbpfHook::Auto));
    let networks = |count: u8| (0..count).map(|n| ([10, 1, n, 0].into(), 24)).collect();
    // Its own address counts, too.
    let many = DataPlaneSession { networks: networks(8), ..ends.host_session() };
    let refused = ends.concentrator.install_session(many).unwrap_err();
    assert_eq!(refused.kind(), std::io::ErrorKind::InvalidInput);
    assert_eq!(refused.to_string(), "9 IPv4 networks: a session in eBPF mode has at most 8");
    assert_eq!(ends.concentrator.session_usage(NUMBER).unwrap(), None);
    ends.concentrator
        .install_session(DataPlaneSession { networks: networks(7), ..ends.host_session() })
        .unwrap();
    assert!(ends.concentrator.session_usage(NUMBER).unwrap().is_some());
}
