//! Attacks by hosts without a session, and by hosts beyond their session's rights.

use super::place::{
    CONCENTRATOR, HOST, HOST_END, HOST_IPV6, NUMBER, NamespaceFixture, PlanePair, SERVER, SERVER_END,
    SERVER_IPV6, TEST_TIMEOUT, run_command, tested_modes, udp_packet, wait_until,
};
use std::io::{BufRead, BufReader};
use std::net::UdpSocket;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use usher_pppoe::{
    AccessPortConfig, DataPlaneConfig, DataPlaneEvent, DataPlaneMode, DataPlaneSession, PppoeDataPlane,
    StartError,
};

const PORT: u16 = 7000;

/// Sends packets that must be dropped, and then a valid one. Packets keep their order, so the arrival of the last alone
/// proves that the others were dropped.
#[track_caller]
fn only_the_last_arrives(ends: &PlanePair, socket: &UdpSocket, tried: &[(&str, Vec<u8>)], last: &[u8]) {
    for (_, frame) in tried {
        ends.host.send_frame(0, frame);
    }
    ends.host.send_frame(0, last);
    let mut buf = [0; 2000];
    let length = socket.recv(&mut buf).expect("something arrives");
    let said = String::from_utf8_lossy(&buf[..length]);
    assert_eq!(said, "last", "tried: {:?}", tried.iter().map(|(what, _)| what).collect::<Vec<_>>());
}

/// A clean end leaves the interface closed until the next plane starts.
#[test]
fn what_a_plane_leaves_behind_stays_closed() {
    for mode in tested_modes() {
        let place = NamespaceFixture::new(1500);
        let ports = || vec![AccessPortConfig { interface: "acc0".to_owned() }];
        let config = DataPlaneConfig { ports: ports(), mode, closed: true, ..DataPlaneConfig::default() };
        let (plane, _events) = place.try_plane(CONCENTRATOR, config.clone()).unwrap();
        let (host, _host_events) = place.start_plane(HOST_END, DataPlaneMode::User, "eth0");
        let to = plane.ports()[0].mac;
        drop(plane);
        let socket = place.bind_udp(SERVER_END, &format!("0.0.0.0:{PORT}"));
        let send = |data: &[u8]| {
            let packet = udp_packet("203.0.113.77", SERVER, PORT, data);
            host.send_frame(0, &[&to[..], &host.ports()[0].mac, &[8, 0], &packet].concat());
        };
        send(b"closed");
        // Another plane takes it over, and leaves it closed.
        drop(place.try_plane(CONCENTRATOR, config).unwrap());
        send(b"closed again");
        // Without the filter the system routes the hosts.
        run_command(&format!("tc -n {} qdisc del dev acc0 clsact", place.names[CONCENTRATOR]));
        // A plane's programs and sockets end with their last descriptors. Another test that spawns a process holds
        // copies for a moment. Packets sent before that are lost.
        let arrives = |data: &[u8], earlier: &[u8]| {
            let begun = Instant::now();
            let mut buf = [0; 2000];
            loop {
                send(data);
                match socket.recv(&mut buf) {
                    Ok(length) if &buf[..length] == data => break,
                    Ok(length) => assert_eq!(&buf[..length], earlier, "{mode}"),
                    Err(_) => assert!(begun.elapsed() < TEST_TIMEOUT, "{mode}: nothing arrives"),
                }
            }
        };
        socket.set_read_timeout(Some(Duration::from_millis(200))).unwrap();
        arrives(b"last", b"");
        // A plane with `closed: false` leaves no filter.
        let config = DataPlaneConfig { ports: ports(), mode, ..DataPlaneConfig::default() };
        drop(place.try_plane(CONCENTRATOR, config).unwrap());
        arrives(b"open", b"last");
    }
}

/// Tells this program, when it spawns itself, to hold a plane of the mode with this number.
const TO_BE_KILLED: &str = "USHER_PLANE_TO_BE_KILLED";

/// Spawns a process that holds a plane of the mode with this number, at the concentrator.
#[track_caller]
fn to_be_killed(place: &NamespaceFixture, number: usize) -> Child {
    let mut child = Command::new("ip")
        .args(["netns", "exec", &place.names[CONCENTRATOR]])
        .arg(std::env::current_exe().unwrap())
        .args(["--exact", "attack::what_a_killed_plane_leaves_behind_stays_closed", "--nocapture"])
        .env(TO_BE_KILLED, number.to_string())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let said = BufReader::new(child.stdout.take().unwrap()).lines();
    let carries = said.map_while(Result::ok).any(|line| line.ends_with("carries"));
    assert!(carries, "{}: it could not begin", tested_modes()[number]);
    child
}

/// A killed plane leaves the interface closed, too: the kernel removes its descriptors, but not the filter.
#[test]
fn what_a_killed_plane_leaves_behind_stays_closed() {
    let ports = || vec![AccessPortConfig { interface: "acc0".to_owned() }];
    if let Some(number) = std::env::var_os(TO_BE_KILLED) {
        let number: usize = number.to_str().unwrap().parse().unwrap();
        let config = DataPlaneConfig {
            ports: ports(),
            mode: tested_modes()[number],
            closed: true,
            ..DataPlaneConfig::default()
        };
        let _plane = PppoeDataPlane::start(&config, Box::new(drop)).unwrap();
        println!("carries");
        loop {
            std::thread::park();
        }
    }
    for (number, mode) in tested_modes().into_iter().enumerate() {
        let place = NamespaceFixture::new(1500);
        let mut child = to_be_killed(&place, number);
        let (host, _events) = place.start_plane(HOST_END, DataPlaneMode::User, "eth0");
        let to = mac_address(&place, CONCENTRATOR, "acc0");
        let socket = place.bind_udp(SERVER_END, &format!("0.0.0.0:{PORT}"));
        let send = |data: &[u8]| {
            let packet = udp_packet("203.0.113.77", SERVER, PORT, data);
            host.send_frame(0, &[&to[..], &host.ports()[0].mac, &[8, 0], &packet].concat());
        };
        send(b"while it carries");
        child.kill().unwrap();
        child.wait().unwrap();
        send(b"when it is killed");
        run_command(&format!("tc -n {} qdisc del dev acc0 clsact", place.names[CONCENTRATOR]));
        // Without the filter the system routes. The kernel removes the killed plane's resources after some time.
        socket.set_nonblocking(true).unwrap();
        let mut buf = [0; 2000];
        let mut first = None;
        wait_until("the last arrives", || {
            send(b"last");
            first = socket.recv(&mut buf).ok();
            first.is_some()
        });
        let length = first.unwrap_or_default();
        assert_eq!(String::from_utf8_lossy(&buf[..length]), "last", "{mode}");
    }
}

/// Returns an interface's Ethernet address.
#[track_caller]
fn mac_address(place: &NamespaceFixture, end: usize, interface: &str) -> [u8; 6] {
    let said = Command::new("ip").args(["-n", &place.names[end], "link", "show", interface]).output();
    let said = String::from_utf8(said.unwrap().stdout).unwrap();
    let text = said.split("link/ether ").nth(1).and_then(|rest| rest.split(' ').next());
    let octets: Vec<u8> =
        text.unwrap().split(':').map(|octet| u8::from_str_radix(octet, 16).unwrap()).collect();
    octets.try_into().unwrap()
}

/// A session with a network that the system already routes is refused, and the foreign route stays.
#[test]
fn somebody_elses_route_stays_and_the_session_is_refused() {
    for mode in tested_modes() {
        let place = NamespaceFixture::new(1500);
        let ends = place.start_both_planes(mode);
        let name = &place.names[CONCENTRATOR];
        let routes = || {
            let of = |family: &str| {
                let said = Command::new("ip").args(["-n", name, family, "route", "show"]).output();
                String::from_utf8(said.unwrap().stdout).unwrap()
            };
            of("-4") + &of("-6")
        };
        for (family, network, via) in
            [("-4", "10.0.0.1", "203.0.113.2"), ("-6", "2001:db8:1::/64", "2001:db8:ffff::2")]
        {
            let theirs = format!("ip -n {name} {family} route add {network} via {via}");
            run_command(&theirs);
            let before = routes();
            let error = ends.concentrator.install_session(ends.host_session()).unwrap_err().to_string();
            assert!(error.contains("another program's route"), "{mode}: {error}");
            assert_eq!(routes(), before, "{mode}");
            assert_eq!(
                ends.concentrator.session_usage(NUMBER).unwrap(),
                None,
                "{mode}: nothing of it is carried"
            );
            run_command(&format!("ip -n {name} {family} route del {network} via {via}"));
            // A killed plane's route is replaced.
            run_command(&format!("{theirs} proto 113"));
            ends.install_session();
            assert!(!routes().contains(&format!("{network} via")), "{mode}: {}", routes());
            // An update changes the session with its routes.
            ends.concentrator.install_session(DataPlaneSession { mtu: 1400, ..ends.host_session() }).unwrap();
            assert!(routes().contains("mtu 1400"), "{mode}: {}", routes());
            ends.concentrator.remove_session(NUMBER).unwrap();
            assert!(!routes().contains(&format!("{network} ")), "{mode}: {}", routes());
        }
    }
}

/// Returns a plain IP frame to the concentrator's interface.
fn frame_without_pppoe(ends: &PlanePair, packet: &[u8]) -> Vec<u8> {
    let ethertype: [u8; 2] = if packet[0] >> 4 == 4 { [8, 0] } else { [0x86, 0xdd] };
    [&ends.concentrator.ports()[0].mac[..], &ends.host.ports()[0].mac, &ethertype, packet].concat()
}

#[test]
fn nothing_passes_for_a_host_without_a_session() {
    for mode in tested_modes() {
        let place = NamespaceFixture::new(1500);
        let ends = place.start_both_planes(mode);
        let socket = place.bind_udp(SERVER_END, &format!("0.0.0.0:{PORT}"));
        let own = |data: &[u8]| udp_packet(HOST, SERVER, PORT, data);
        let mut padded = ends.session_frame(NUMBER, &own(b"padded"));
        padded.extend([0; 30]);
        let tried = vec![
            ("not installed", ends.session_frame(NUMBER, &own(b"not installed"))),
            ("number 0", ends.session_frame(0, &own(b"number 0"))),
            ("number 0xffff", ends.session_frame(0xffff, &own(b"number 0xffff"))),
            ("padded", padded),
            ("plain", frame_without_pppoe(&ends, &own(b"plain"))),
            (
                "plain from an address that routes",
                frame_without_pppoe(&ends, &udp_packet("203.0.113.77", SERVER, PORT, b"plain")),
            ),
        ];
        for (_, frame) in &tried {
            ends.host.send_frame(0, frame);
        }
        // Wait until the frames were processed. The host's own system sends and is counted, too. The kernel's own PPPoE
        // does not count these.
        let dropped = |n| {
            ends.wait_for_frames();
            if !matches!(mode, DataPlaneMode::Kernel) {
                wait_until("dropped", || ends.concentrator.counters().unwrap().no_session >= n);
            }
        };
        dropped(4);
        ends.install_session();
        only_the_last_arrives(&ends, &socket, &[], &ends.session_frame(NUMBER, &own(b"last")));
        // Nor after the session's removal.
        ends.concentrator.remove_session(NUMBER).unwrap();
        ends.host.send_frame(0, &ends.session_frame(NUMBER, &own(b"removed")));
        dropped(5);
        ends.install_session();
        only_the_last_arrives(&ends, &socket, &[], &ends.session_frame(NUMBER, &own(b"last")));
    }
}

#[test]
fn a_session_may_send_from_its_own_addresses_alone() {
    for mode in tested_modes() {
        let place = NamespaceFixture::new(1500);
        let ends = place.start_both_planes(mode);
        ends.install_session();
        let other = DataPlaneSession {
            number: 0x0203,
            peer: [2, 0, 0, 0, 0, 9],
            ipv4: Some([10, 0, 0, 2].into()),
            ipv6: vec![("2001:db8:2::".parse().unwrap(), 64)],
            ..ends.host_session()
        };
        ends.concentrator.install_session(other).unwrap();
        let socket = place.bind_udp(SERVER_END, &format!("[::]:{PORT}"));
        let v4 = |source: &str, data: &[u8]| udp_packet(source, SERVER, PORT, data);
        let v6 = |source: &str, data: &[u8]| udp_packet(source, SERVER_IPV6, PORT, data);
        let mut another_station = ends.session_frame(NUMBER, &v4(HOST, b"another station"));
        another_station[11] ^= 1;
        let mut to_all = ends.session_frame(NUMBER, &v4(HOST, b"to all"));
        to_all[..6].fill(0xff);
        let mut wrong_protocol = ends.session_frame(NUMBER, &v4(HOST, b"wrong protocol"));
        wrong_protocol[21] = 0x57;
        let mut too_short = ends.session_frame(NUMBER, &v4(HOST, b"too short"));
        too_short[19] -= 1;
        let mut of_a_vlan = ends.session_frame(NUMBER, &v4(HOST, b"of a VLAN"));
        of_a_vlan.splice(12..12, [0x81, 0, 0, 5]);
        let mut of_another_vlan = ends.session_frame(NUMBER, &v4(HOST, b"of another VLAN"));
        of_another_vlan.splice(12..12, [0x88, 0xa8, 0xe0, 1]);
        let mut of_two = ends.session_frame(NUMBER, &v4(HOST, b"of a VLAN behind a priority"));
        of_two.splice(12..12, [0x81, 0, 0xe0, 0, 0x81, 0, 0, 5]);
        let mut version = ends.session_frame(NUMBER, &v4(HOST, b"version"));
        version[14] = 0x21;
        let mut code = ends.session_frame(NUMBER, &v4(HOST, b"code"));
        code[15] = 1;
        let tried = vec![
            ("another's address", ends.session_frame(NUMBER, &v4("10.0.0.2", b"another's address"))),
            ("anybody's address", ends.session_frame(NUMBER, &v4("203.0.113.99", b"anybody's address"))),
            ("another's prefix", ends.session_frame(NUMBER, &v6("2001:db8:2::1", b"another's prefix"))),
            ("another's session", ends.session_frame(0x0203, &v4("10.0.0.2", b"another's session"))),
            ("another station", another_station),
            ("to all", to_all),
            ("wrong protocol", wrong_protocol),
            ("too short", too_short),
            ("of a VLAN", of_a_vlan),
            ("of another VLAN", of_another_vlan),
            ("of a VLAN behind a priority", of_two),
            ("version", version),
            ("code", code),
            ("plain", frame_without_pppoe(&ends, &v4(HOST, b"plain"))),
            ("plain IPv6", frame_without_pppoe(&ends, &v6(HOST_IPV6, b"plain IPv6"))),
        ];
        only_the_last_arrives(&ends, &socket, &tried, &ends.session_frame(NUMBER, &v4(HOST, b"last")));
        only_the_last_arrives(&ends, &socket, &[], &ends.session_frame(NUMBER, &v6(HOST_IPV6, b"last")));
        let counters = ends.concentrator.counters().unwrap();
        // The kernel's own PPPoE does not count frames from another station.
        let stations = if mode == DataPlaneMode::Kernel { 1 } else { 3 };
        assert_eq!((counters.spoofed, counters.wrong_station), (3, stations), "{mode}: {counters:?}");
        assert_eq!(counters.malformed, 4, "{mode}: {counters:?}");
        assert_eq!(ends.concentrator.session_usage(NUMBER).unwrap().unwrap().spoofed, 3, "{mode}");
        wait_until("both are counted", || {
            ends.concentrator.session_usage(NUMBER).unwrap().unwrap().packets_in == 2
        });
    }
}

/// Sets or returns the access interface's `rp_filter`.
#[track_caller]
fn reverse_path(place: &NamespaceFixture, of: &'static str, set: Option<&'static str>) -> String {
    place.run_in_namespace(CONCENTRATOR, move || {
        let file = format!("/proc/sys/net/ipv4/conf/{of}/rp_filter");
        if let Some(value) = set {
            std::fs::write(&file, value).unwrap();
        }
        std::fs::read_to_string(&file).unwrap().trim().to_owned()
    })
}

/// Returns the number of notes at an interface.
#[track_caller]
fn note_count(place: &NamespaceFixture, at: &str) -> usize {
    let all = ["-n", &place.names[CONCENTRATOR], "filter", "show", "dev", at, "ingress"];
    let said = String::from_utf8(Command::new("tc").args(all).output().unwrap().stdout).unwrap();
    said.matches("chain 113 handle").count()
}

/// A second concentrator is started, the same one or another at its interface.
#[test]
fn an_accidental_second_start_leaves_the_data_plane_intact() {
    for mode in tested_modes() {
        if !matches!(mode, DataPlaneMode::Ebpf(_)) {
            continue;
        }
        let place = NamespaceFixture::new(1500);
        reverse_path(&place, "all", Some("0"));
        reverse_path(&place, "acc0", Some("1"));
        let (plane, _events) = place.start_plane(CONCENTRATOR, mode, "acc0");
        let ports = || vec![AccessPortConfig { interface: "acc0".to_owned() }];
        let config = |mode, device: &str| DataPlaneConfig {
            ports: ports(),
            mode,
            device: device.to_owned(),
            ..DataPlaneConfig::default()
        };
        let refused = place.try_plane(CONCENTRATOR, config(mode, plane.device_name()));
        assert!(matches!(refused, Err(StartError::Device { .. })), "{mode}: {refused:?}");
        assert_eq!((&*reverse_path(&place, "acc0", None), note_count(&place, "acc0")), ("2", 1), "{mode}");
        for other in tested_modes() {
            let other = place.try_plane(CONCENTRATOR, config(other, "other%d"));
            place.run_in_namespace(CONCENTRATOR, move || drop(other));
            assert_eq!(
                (&*reverse_path(&place, "acc0", None), note_count(&place, "acc0")),
                ("2", 1),
                "{mode}"
            );
        }
        // The plane restores its changes, even if the interface was renamed.
        for change in ["acc0 down", "acc0 name acc1", "acc1 up"] {
            run_command(&format!("ip -n {} link set {change}", place.names[CONCENTRATOR]));
        }
        place.run_in_namespace(CONCENTRATOR, move || drop(plane));
        assert_eq!((&*reverse_path(&place, "acc1", None), note_count(&place, "acc1")), ("1", 0), "{mode}");
    }
}

/// Tells this program, when it spawns itself, to start a plane of the mode with this number and print its warnings.
const PROTECTED: &str = "USHER_PLANE_PROTECTED";

/// The kernel's settings are read-only, as in a systemd service with ProtectKernelTunables.
#[test]
fn a_check_of_reverse_paths_that_cannot_be_changed_is_told() {
    if let Some(number) = std::env::var_os(PROTECTED) {
        let number: usize = number.to_str().unwrap().parse().unwrap();
        let ports = vec![AccessPortConfig { interface: "acc0".to_owned() }];
        let config = DataPlaneConfig { ports, mode: tested_modes()[number], ..DataPlaneConfig::default() };
        let plane = PppoeDataPlane::start(&config, Box::new(drop)).unwrap();
        println!("\nwarns: {}", plane.warnings().join("; "));
        return;
    }
    for (number, mode) in tested_modes().into_iter().enumerate() {
        if !matches!(mode, DataPlaneMode::Ebpf(_)) {
            continue;
        }
        let place = NamespaceFixture::new(1500);
        reverse_path(&place, "all", Some("0"));
        reverse_path(&place, "acc0", Some("1"));
        let told = |number: usize, hide: &str| {
            let protect = "mount --bind /proc/sys /proc/sys && mount -o remount,ro,bind /proc/sys";
            let done = Command::new("ip")
                .args(["netns", "exec", &place.names[CONCENTRATOR], "sh", "-c"])
                .arg(format!("{hide}{protect} && exec \"$0\" \"$@\""))
                .arg(std::env::current_exe().unwrap())
                .args([
                    "--exact",
                    "attack::a_check_of_reverse_paths_that_cannot_be_changed_is_told",
                    "--nocapture",
                ])
                .env(PROTECTED, number.to_string())
                .output()
                .unwrap();
            let said = String::from_utf8(done.stdout).unwrap();
            let warns = said.lines().find_map(|line| line.strip_prefix("warns: ")).map(str::to_owned);
            warns.unwrap_or_else(|| panic!("{said}{}", String::from_utf8_lossy(&done.stderr)))
        };
        let now = || (reverse_path(&place, "acc0", None), note_count(&place, "acc0"));
        let said = told(number, "");
        assert!(said.contains("net.ipv4.conf.acc0.rp_filter=2"), "{mode}: {said}");
        assert_eq!(now(), ("1".to_owned(), 0), "{mode}");
        // The note of a killed plane stays until its value can be restored.
        let mut child = to_be_killed(&place, number);
        child.kill().unwrap();
        child.wait().unwrap();
        let user = tested_modes().iter().position(|mode| *mode == DataPlaneMode::User).unwrap();
        for hide in ["", "mount -t tmpfs none /proc/sys/net/ipv4 && "] {
            let said = told(user, hide);
            assert!(said.contains("net.ipv4.conf.acc0.rp_filter=1"), "{mode}: {said}");
            assert_eq!(now(), ("2".to_owned(), 1), "{mode}");
        }
        let (plane, _events) = place.start_plane(CONCENTRATOR, DataPlaneMode::User, "acc0");
        assert!(
            plane.warnings().is_empty() && now() == ("1".to_owned(), 0),
            "{mode}: {:?}",
            plane.warnings()
        );
    }
}

/// eBPF mode loosens the reverse path check. A killed plane cannot restore it; the next plane does, in any mode.
#[test]
fn the_check_of_reverse_paths_is_put_back_after_a_kill() {
    for (number, mode) in tested_modes().into_iter().enumerate() {
        if !matches!(mode, DataPlaneMode::Ebpf(_)) {
            continue;
        }
        for (all, own) in [("0", "1"), ("1", "0")] {
            let place = NamespaceFixture::new(1500);
            reverse_path(&place, "all", Some(all));
            reverse_path(&place, "acc0", Some(own));
            let kill = || {
                let mut child = to_be_killed(&place, number);
                assert_eq!(reverse_path(&place, "acc0", None), "2", "{mode}");
                child.kill().unwrap();
                child.wait().unwrap();
                assert_eq!(reverse_path(&place, "acc0", None), "2", "{mode}");
            };
            let notes = || note_count(&place, "acc0");
            // The second plane takes over the first one's note, and is killed, too.
            kill();
            kill();
            assert_eq!(notes(), 1, "{mode}");
            let (plane, _events) = place.start_plane(CONCENTRATOR, mode, "acc0");
            assert_eq!(reverse_path(&place, "acc0", None), "2", "{mode}");
            place.run_in_namespace(CONCENTRATOR, move || drop(plane));
            assert_eq!((&*reverse_path(&place, "acc0", None), notes()), (own, 0), "{mode}");
            // User mode does not need it, and restores it at its start.
            kill();
            let (plane, _events) = place.start_plane(CONCENTRATOR, DataPlaneMode::User, "acc0");
            assert_eq!((&*reverse_path(&place, "acc0", None), notes()), (own, 0), "{mode}");
            drop(plane);
            // A value that the administrator sets meanwhile stays.
            kill();
            reverse_path(&place, "acc0", Some("0"));
            reverse_path(&place, "all", Some("0"));
            let (plane, _events) = place.start_plane(CONCENTRATOR, mode, "acc0");
            place.run_in_namespace(CONCENTRATOR, move || drop(plane));
            assert_eq!((&*reverse_path(&place, "acc0", None), notes()), ("0", 0), "{mode}");
        }
    }
}

/// A priority-tagged frame (VLAN 0) counts as untagged, wherever the kernel keeps the tag.
#[test]
fn a_priority_takes_nothing_from_a_frame() {
    for mode in tested_modes() {
        let place = NamespaceFixture::new(1500);
        let ends = place.start_both_planes(mode);
        ends.install_session();
        let socket = place.bind_udp(SERVER_END, &format!("[::]:{PORT}"));
        for tag in [[0x81, 0, 0xe0, 0], [0x88, 0xa8, 0x20, 0]] {
            for (source, server) in [(HOST, SERVER), (HOST_IPV6, SERVER_IPV6)] {
                let mut frame = ends.session_frame(NUMBER, &udp_packet(source, server, PORT, b"last"));
                frame.splice(12..12, tag);
                only_the_last_arrives(&ends, &socket, &[], &frame);
                let mut spoofed =
                    ends.session_frame(NUMBER, &udp_packet("10.0.0.9", SERVER, PORT, b"spoofed"));
                spoofed.splice(12..12, tag);
                only_the_last_arrives(&ends, &socket, &[("spoofed", spoofed)], &frame);
            }
            // Discovery is received, and frames shorter than PPPoE's headers are dropped.
            let [to, from] = [[0xff; 6], ends.host.ports()[0].mac];
            let padi = [&to[..], &from, &tag, &[0x88, 0x63, 0x11, 9, 0, 0, 0, 0], &[0; 40]].concat();
            ends.host.send_frame(0, &[&to[..], &from, &tag].concat());
            ends.host.send_frame(0, &padi);
            let heard = || match ends.events.recv_timeout(TEST_TIMEOUT).expect("it is heard") {
                DataPlaneEvent::Frame { data, .. } => Some(data),
                _ => None,
            };
            // Ignore the link-scope packets of the systems at both ends.
            let mut discovery = std::iter::repeat_with(heard).flatten();
            let frame = discovery.find(|frame| frame[12..14] == [0x88, 0x63]).unwrap();
            assert_eq!(frame[6..20], [&from[..], &[0x88, 0x63, 0x11, 9, 0, 0, 0, 0]].concat(), "{mode}");
        }
        let counters = ends.concentrator.counters().unwrap();
        assert_eq!(counters.spoofed, 4, "{mode}: {counters:?}");
    }
}

/// The data plane ignores PADT. The owner decides about it.
#[test]
fn a_padt_ends_nothing_by_itself() {
    for mode in tested_modes() {
        let place = NamespaceFixture::new(1500);
        let ends = place.start_both_planes(mode);
        ends.install_session();
        let socket = place.bind_udp(SERVER_END, &format!("0.0.0.0:{PORT}"));
        let [to, from] = [ends.concentrator.ports()[0].mac, ends.host.ports()[0].mac];
        let padt = |number: u16| {
            let rest = [0x88, 0x63, 0x11, 0xa7, (number >> 8) as u8, number as u8, 0, 0];
            [&to[..], &from, &rest, &[0; 40]].concat()
        };
        // One PADT of another session, and one of this.
        for number in [NUMBER ^ 1, NUMBER] {
            ends.host.send_frame(0, &padt(number));
            let heard = || match ends.events.recv_timeout(TEST_TIMEOUT).expect("it is heard") {
                DataPlaneEvent::Frame { data, .. } => Some(data),
                _ => None,
            };
            // Ignore the link-scope packets of the systems at both ends.
            let mut discovery = std::iter::repeat_with(heard).flatten();
            let frame = discovery.find(|frame| frame[12..14] == [0x88, 0x63]).unwrap();
            assert_eq!(frame[12..18], padt(number)[12..18], "{mode}");
            only_the_last_arrives(
                &ends,
                &socket,
                &[],
                &ends.session_frame(NUMBER, &udp_packet(HOST, SERVER, PORT, b"last")),
            );
        }
    }
}
