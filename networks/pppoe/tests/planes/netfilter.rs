//! Tests of netfilter's rules: translated addresses, and the redirect of port 113.

use super::place::{
    CONCENTRATOR, HOST, HOST_END, HOST_IPV6, NUMBER, NamespaceFixture, PlanePair, SERVER, SERVER_END,
    SERVER_IPV6, TEST_TIMEOUT, add_ipv6_address, run_command, tested_modes, wait_until,
};
use socket2::{Domain, Protocol, Type};
use std::io::Read;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::os::fd::AsFd;
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;
use usher_esp::ip::{fold_checksum, sum_octets, write_header};
use usher_pppoe::netfilter::conntrack::{self, ConntrackTuple};
use usher_pppoe::netfilter::{
    ConntrackEvent, ConntrackLimits, ConntrackMonitor, HostNetfilterRules, NetfilterConfig, NetfilterTable,
    NewConnectionDropCounts, SourceNatMode,
};

const IDENT: u16 = 11_300;
const EXTERNAL: &str = "203.0.113.1";

fn start_table(place: &NamespaceFixture, device: &str) -> NetfilterTable {
    start_limited_table(place, (device, &[]), ConntrackLimits::default())
}

fn start_limited_table(
    place: &NamespaceFixture,
    of: (&str, &[String]),
    bounds: ConntrackLimits,
) -> NetfilterTable {
    start_with_config(place, table_config(of, bounds))
}

fn table_config((device, incoming): (&str, &[String]), bounds: ConntrackLimits) -> NetfilterConfig {
    let (table, device, incoming) = ("usher-test".to_owned(), device.to_owned(), incoming.to_vec());
    NetfilterConfig { table, device, incoming, ident_port: IDENT, bounds, logged: false }
}

fn start_with_config(place: &NamespaceFixture, config: NetfilterConfig) -> NetfilterTable {
    place.run_in_namespace(CONCENTRATOR, move || {
        let table = NetfilterTable::start(&config).expect("root may make a table");
        // Raise the timeout of unanswered connections: a busy machine may take longer than the default half minute.
        for setting in ["udp_timeout", "udp_timeout_stream"] {
            let _ = std::fs::write(format!("/proc/sys/net/netfilter/nf_conntrack_{setting}"), "3600");
        }
        table
    })
}

/// Returns the device and the ingress interfaces of hosts' packets.
fn plane_interfaces(ends: &PlanePair) -> (&str, &[String]) {
    (ends.concentrator.device_name(), ends.concentrator.incoming_interfaces())
}

/// Applies changes in the concentrator's namespace.
fn apply_changes(
    place: &NamespaceFixture,
    table: NetfilterTable,
    changes: Vec<(IpAddr, u8, Option<HostNetfilterRules>)>,
) -> NetfilterTable {
    place.run_in_namespace(CONCENTRATOR, move || {
        table.apply_changes(&changes).expect("the rules can be");
        table
    })
}

fn drop_table(place: &NamespaceFixture, table: NetfilterTable) {
    place.run_in_namespace(CONCENTRATOR, move || drop(table));
}

fn parse_address(text: &str) -> IpAddr {
    text.parse().expect("an address")
}

#[test]
fn a_masqueraded_connection_is_found_with_its_host() {
    for mode in tested_modes() {
        let place = NamespaceFixture::new(1500);
        let ends = place.start_both_planes(mode);
        ends.install_session();
        let masquerade = HostNetfilterRules {
            translation: Some(SourceNatMode::Masquerade),
            ..HostNetfilterRules::default()
        };
        let table = apply_changes(
            &place,
            start_table(&place, ends.concentrator.device_name()),
            vec![(parse_address(HOST), 32, Some(masquerade.clone()))],
        );
        let (begun, accepted) = place.connect_tcp(HOST_END, SERVER_END, SERVER);
        let (seen, theirs) = (accepted.peer_addr().unwrap(), accepted.local_addr().unwrap());
        assert_eq!(seen.ip(), parse_address(EXTERNAL), "{mode}");
        let own = begun.local_addr().unwrap();
        let found = place.run_in_namespace(CONCENTRATOR, move || {
            conntrack::find_connection_by_reply(seen, theirs, conntrack::TCP)
        });
        let found = found.unwrap().expect("the connection is known");
        assert_eq!(found.original, ConntrackTuple { source: own, destination: theirs }, "{mode}");
        assert_eq!(found.reply, ConntrackTuple { source: theirs, destination: seen }, "{mode}");
        let original = found.original;
        let again = place.run_in_namespace(CONCENTRATOR, move || {
            conntrack::find_connection_by_original(original, conntrack::TCP)
        });
        assert_eq!(again.unwrap(), Some(found), "{mode}");
        let other = SocketAddr::new(seen.ip(), seen.port() ^ 1);
        let none = place.run_in_namespace(CONCENTRATOR, move || {
            conntrack::find_connection_by_reply(other, theirs, conntrack::TCP)
        });
        assert_eq!(none.unwrap(), None, "{mode}");
        // The kernel deletes the connections of a removed host, and no others.
        let forget = |who: &'static str| {
            place.run_in_namespace(CONCENTRATOR, move || {
                conntrack::delete_connections_by_source(|source| parse_address(who) == source)
            })
        };
        let known = || {
            let found = place.run_in_namespace(CONCENTRATOR, move || {
                conntrack::find_connection_by_reply(seen, theirs, conntrack::TCP)
            });
            found.unwrap().is_some()
        };
        assert!(forget("10.0.0.77").unwrap() == 0 && known(), "{mode}");
        assert!(forget(HOST).unwrap() >= 1 && !known(), "{mode}");
        assert_eq!(forget(HOST).unwrap(), 0, "{mode}");
        // Without rules a host keeps its own address.
        let table = apply_changes(&place, table, vec![(parse_address(HOST), 32, None)]);
        let (_begun, accepted) = place.connect_tcp(HOST_END, SERVER_END, SERVER);
        assert_eq!(accepted.peer_addr().unwrap().ip(), parse_address(HOST), "{mode}");
        // A network is masqueraded per host.
        let table = apply_changes(&place, table, vec![(parse_address("10.0.0.0"), 17, Some(masquerade))]);
        let (_begun, accepted) = place.connect_tcp(HOST_END, SERVER_END, SERVER);
        assert_eq!(accepted.peer_addr().unwrap().ip(), parse_address(EXTERNAL), "{mode}");
        drop_table(&place, table);
    }
}

/// Like the pool of a campus.
#[test]
fn thousands_of_addresses_have_their_rules() {
    let place = NamespaceFixture::new(1500);
    let external = EXTERNAL.parse().expect("an address");
    let each = (0..16_384_u32).map(|n| {
        let first = 1024 + (n % 64) as u16 * 16;
        let translation = Some(SourceNatMode::Block { external, ports: first..=first + 15 });
        (
            Ipv4Addr::from_bits(0x0a40_0000 + n).into(),
            32,
            Some(HostNetfilterRules { ident: true, translation, hosts: Some(32) }),
        )
    });
    let translation = Some(SourceNatMode::Masquerade);
    let network = (
        parse_address("10.0.0.0"),
        17,
        Some(HostNetfilterRules { ident: true, translation, hosts: Some(32) }),
    );
    let table = apply_changes(&place, start_table(&place, "carry0"), each.chain([network]).collect());
    // Remove one of them.
    let table = apply_changes(&place, table, vec![(parse_address("10.64.0.7"), 32, None)]);
    drop_table(&place, table);
}

#[test]
fn a_hosts_ports_are_of_its_block() {
    for mode in tested_modes() {
        let place = NamespaceFixture::new(1500);
        let ends = place.start_both_planes(mode);
        ends.install_session();
        let block = |first: u16| {
            let external = EXTERNAL.parse().expect("an address");
            let translation = Some(SourceNatMode::Block { external, ports: first..=first + 15 });
            (
                parse_address(HOST),
                32,
                Some(HostNetfilterRules { translation, ..HostNetfilterRules::default() }),
            )
        };
        let mut table =
            apply_changes(&place, start_table(&place, ends.concentrator.device_name()), vec![block(2048)]);
        for first in [2048, 4096] {
            table = apply_changes(&place, table, vec![block(first)]);
            let all: Vec<_> = (0..8).map(|_| place.connect_tcp(HOST_END, SERVER_END, SERVER)).collect();
            for (_, accepted) in &all {
                let seen = accepted.peer_addr().unwrap();
                assert_eq!(seen.ip(), parse_address(EXTERNAL), "{mode}");
                assert!((first..first + 16).contains(&seen.port()), "{mode}: {seen}");
            }
        }
        let server = place.bind_udp(SERVER_END, &format!("{SERVER}:7000"));
        let host = place.bind_udp(HOST_END, &format!("{HOST}:0"));
        host.send_to(b"whose", (SERVER, 7000)).unwrap();
        let (_, seen) = server.recv_from(&mut [0; 100]).unwrap();
        assert!(
            seen.ip() == parse_address(EXTERNAL) && (4096..4112).contains(&seen.port()),
            "{mode}: {seen}"
        );
        // ICMP passes with the block's address. A protocol whose ports could be in another block does not.
        let raw = raw_ipv4_socket(&place);
        // Packets of no connection would pass untranslated.
        for protocol in [6, 33, 132] {
            ends.host.send_frame(
                0,
                &ends.session_frame(NUMBER, &host_packet(protocol, &[8, 0, 8, 1, 0, 0, 0, 0, 0, 0, 0, 0])),
            );
        }
        ends.host.send_frame(0, &ends.session_frame(NUMBER, &host_packet(1, &echo_request(1))));
        let mut heard = Vec::new();
        while heard.last() != Some(&1) {
            let mut buf = [0; 2000];
            let length = (&raw).read(&mut buf).expect("the echo request arrives");
            let to_server = buf[16..20] == SERVER.parse::<Ipv4Addr>().expect("an address").octets();
            // Earlier connections end meanwhile, and have other ports.
            if length > 24 && to_server && (buf[9] == 1 || buf[22..24] == [8, 1]) {
                heard.push(buf[9]);
            }
        }
        assert_eq!(heard, [1], "{mode}");
        drop_table(&place, table);
    }
}

/// Returns a host's packet with its source.
fn host_packet(protocol: u8, data: &[u8]) -> Vec<u8> {
    let mut packet = Vec::new();
    write_header(&mut packet, parse_address(HOST), parse_address(SERVER), protocol, 0, data.len());
    [&packet, data].concat()
}

/// Opens a socket for all IPv4 packets that arrive at the server.
fn raw_ipv4_socket(place: &NamespaceFixture) -> socket2::Socket {
    place.run_in_namespace(SERVER_END, || {
        let all = socket2::Socket::new(Domain::PACKET, Type::DGRAM, Some(Protocol::from(0x0008_i32)));
        let all = all.expect("root may hear all of IPv4");
        all.set_read_timeout(Some(TEST_TIMEOUT)).expect("a socket can wait");
        all
    })
}

/// Returns an ICMP echo request with this identifier.
fn echo_request(identifier: u16) -> [u8; 8] {
    let [high, low] = identifier.to_be_bytes();
    let mut echo = [8, 0, 0, 0, high, low, 0, 1];
    let code = fold_checksum(sum_octets(&echo, 0));
    echo[2..4].copy_from_slice(&code);
    echo
}

/// SCTP, UDP-Lite, GRE, ESP and IP in IP would leave under a shared address without a record of their host. ICMP's
/// identifier is recorded as the port.
#[test]
fn what_the_log_of_translations_cannot_name_does_not_pass() {
    for mode in tested_modes() {
        let place = NamespaceFixture::new(1500);
        let ends = place.start_both_planes(mode);
        ends.install_session();
        let table = start_with_config(
            &place,
            NetfilterConfig {
                logged: true,
                ..table_config(plane_interfaces(&ends), ConntrackLimits::default())
            },
        );
        let rules = |translation| {
            Some(HostNetfilterRules { translation, hosts: Some(32), ..HostNetfilterRules::default() })
        };
        let masqueraded = rules(Some(SourceNatMode::Masquerade));
        let table = Arc::new(apply_changes(&place, table, vec![(parse_address(HOST), 32, masqueraded)]));
        let raw = raw_ipv4_socket(&place);
        let mut follower =
            place.run_in_namespace(CONCENTRATOR, || ConntrackMonitor::new().expect("root may follow"));
        // An SCTP INIT with a correct checksum, which the kernel verifies, and first packets of other protocols.
        let init = [
            0x9c, 0x56, 0x26, 0xab, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 20, 0, 0, 0, 1, 0, 0, 16, 0, 0, 1, 0, 1,
            0, 0, 0, 1,
        ];
        let udp_lite = [0x9c, 0x57, 0x23, 0x28, 0, 8, 0, 0];
        let gre = [0, 0, 8, 0, 0, 0, 0, 0];
        let esp = [0, 0, 16, 1, 0, 0, 0, 1, 0, 0, 0, 0];
        for (protocol, data) in
            [(132, &init[..]), (136, &udp_lite), (47, &gre), (50, &esp), (4, &host_packet(17, &[0; 8]))]
        {
            ends.host.send_frame(0, &ends.session_frame(NUMBER, &host_packet(protocol, data)));
        }
        ends.host.send_frame(0, &ends.session_frame(NUMBER, &host_packet(1, &echo_request(7))));
        let heard = loop {
            let mut buf = [0; 2000];
            let length = (&raw).read(&mut buf).expect("the echo request arrives");
            if length > 24 && buf[16..20] == SERVER.parse::<Ipv4Addr>().expect("an address").octets() {
                break (buf[9], IpAddr::from([buf[12], buf[13], buf[14], buf[15]]));
            }
        };
        assert_eq!(heard, (1, parse_address(EXTERNAL)), "{mode}");
        // Packets with a wrong checksum may have been dropped as part of no connection.
        let unnamed = drop_counts(&place, &table).unnamed;
        assert!((3..=5).contains(&unnamed), "{mode}: {unnamed}");
        let told = std::iter::from_fn(|| follower.next_event(TEST_TIMEOUT).expect("the kernel tells"));
        let begun = told.filter_map(|change| match change {
            ConntrackEvent::Started(connection, conntrack::ICMP) => Some(connection),
            _ => None,
        });
        let connection = begun.take(1).next().expect("the query is told of");
        assert_eq!(connection.original.source, SocketAddr::new(parse_address(HOST), 7), "{mode}");
        assert_eq!(connection.reply.destination.ip(), parse_address(EXTERNAL), "{mode}");
        drop_table(&place, Arc::into_inner(table).expect("nobody else has it"));
    }
}

/// Returns the table's counts of dropped packets.
fn drop_counts(place: &NamespaceFixture, table: &Arc<NetfilterTable>) -> NewConnectionDropCounts {
    let table = table.clone();
    place.run_in_namespace(CONCENTRATOR, move || table.drop_counts().expect("it is counted"))
}

/// Begins connections of the host from an address. No reply comes, but the connections that pass exist.
fn start_connections(place: &NamespaceFixture, from: &str, to: &str, many: usize) -> Vec<UdpSocket> {
    let begin = |_| {
        let socket = place.bind_udp(HOST_END, &SocketAddr::new(parse_address(from), 0).to_string());
        socket.send_to(b"begun", (to, 7000)).expect("the host may");
        socket
    };
    (0..many).map(begin).collect()
}

#[track_caller]
fn expect_datagrams(server: &UdpSocket, many: usize, text: &[u8]) {
    for n in 0..many {
        let mut buf = [0; 100];
        let length = server.recv(&mut buf).unwrap_or_else(|error| panic!("{n} of {many}: {error}"));
        assert_eq!(&buf[..length], text);
    }
}

#[test]
fn a_host_has_limited_connections_and_no_new_ones_while_held() {
    for mode in tested_modes() {
        let place = NamespaceFixture::new(1500);
        let ends = place.start_both_planes(mode);
        ends.install_session();
        let other = "2001:db8:1::2";
        add_ipv6_address(&place.names[HOST_END], "pppoe0", &format!("{other}/128"));
        let server = place.bind_udp(SERVER_END, "[::]:7000");
        let rules = |translation, bits| {
            Some(HostNetfilterRules { translation, hosts: Some(bits), ..HostNetfilterRules::default() })
        };
        // A host counts as one, with or without translation. All addresses of its prefix count together.
        for translation in [Some(SourceNatMode::Masquerade), None] {
            let bounds = ConntrackLimits { at_once: 3, per_second: 0 };
            let table = start_limited_table(&place, plane_interfaces(&ends), bounds);
            let all = vec![
                (parse_address(HOST), 32, rules(translation.clone(), 32)),
                (parse_address("2001:db8:1::"), 64, rules(None, 64)),
            ];
            let table = Arc::new(apply_changes(&place, table, all));
            let v4 = start_connections(&place, HOST, SERVER, 5);
            expect_datagrams(&server, 3, b"begun");
            wait_until("two are dropped", || drop_counts(&place, &table).limited == 2);
            let own = start_connections(&place, HOST_IPV6, SERVER_IPV6, 2);
            let others = start_connections(&place, other, SERVER_IPV6, 3);
            expect_datagrams(&server, 3, b"begun");
            wait_until("two more are dropped", || drop_counts(&place, &table).limited == 4);
            // Existing connections continue, answered or not.
            for socket in &v4 {
                socket.send_to(b"again", (SERVER, 7000)).expect("the host may");
            }
            for socket in own.iter().chain(&others) {
                socket.send_to(b"again", (SERVER_IPV6, 7000)).expect("the host may");
            }
            expect_datagrams(&server, 6, b"again");
            wait_until("four are dropped again", || drop_counts(&place, &table).limited == 8);
            // The next host with these addresses starts with no connections.
            flush_connections(&place);
            let _v4 = start_connections(&place, HOST, SERVER, 3);
            let _v6 = start_connections(&place, other, SERVER_IPV6, 3);
            expect_datagrams(&server, 6, b"begun");
            assert_eq!(drop_counts(&place, &table).limited, 8, "{mode}");
            drop_table(&place, Arc::into_inner(table).expect("nobody else has it"));
            flush_connections(&place);
            // The limit per second.
            let table = start_limited_table(
                &place,
                plane_interfaces(&ends),
                ConntrackLimits { at_once: 0, per_second: 1 },
            );
            let all = vec![(parse_address(HOST), 32, rules(Some(SourceNatMode::Masquerade), 32))];
            let table = Arc::new(apply_changes(&place, table, all));
            let _many = start_connections(&place, HOST, SERVER, 200);
            expect_datagrams(&server, 10, b"begun");
            // Each of the others arrives or is dropped.
            server.set_nonblocking(true).expect("a socket need not wait");
            let mut arrived = 10;
            wait_until("each is counted", || {
                arrived += std::iter::from_fn(|| server.recv(&mut [0; 100]).ok()).count() as u64;
                arrived + drop_counts(&place, &table).limited == 200
            });
            server.set_nonblocking(false).expect("a socket can wait");
            assert!(arrived <= 100, "{mode}: {arrived} of 200 pass");
            drop_table(&place, Arc::into_inner(table).expect("nobody else has it"));
            flush_connections(&place);
        }
        let table = start_table(&place, ends.concentrator.device_name());
        let all = vec![(parse_address(HOST), 32, rules(Some(SourceNatMode::Masquerade), 32))];
        let table = Arc::new(apply_changes(&place, table, all));
        let hold = |hold| {
            let table = table.clone();
            place.run_in_namespace(CONCENTRATOR, move || table.drop_new_connections(hold).expect("root may"));
        };
        let before = start_connections(&place, HOST, SERVER, 1);
        expect_datagrams(&server, 1, b"begun");
        for _ in 0..2 {
            hold(true);
            let held = drop_counts(&place, &table).held;
            let _held = start_connections(&place, HOST, SERVER, 2);
            wait_until("two are held back", || drop_counts(&place, &table).held == held + 2);
            before[0].send_to(b"goes on", (SERVER, 7000)).expect("the host may");
            expect_datagrams(&server, 1, b"goes on");
            // IPv6 is not translated, so it needs no log.
            let _v6 = start_connections(&place, HOST_IPV6, SERVER_IPV6, 1);
            expect_datagrams(&server, 1, b"begun");
            hold(false);
            let _passes = start_connections(&place, HOST, SERVER, 1);
            expect_datagrams(&server, 1, b"begun");
        }
        drop_table(&place, Arc::into_inner(table).expect("nobody else has it"));
    }
}

/// Packets that the kernel does not track, and packets from elsewhere with a host's source address.
#[test]
fn packets_of_no_connection_and_of_others_are_not_a_hosts() {
    for mode in tested_modes() {
        let place = NamespaceFixture::new(1500);
        let ends = place.start_both_planes(mode);
        ends.install_session();
        let [_, c, s] = &place.names;
        place.run_in_namespace(CONCENTRATOR, || {
            for interface in ["all", "up0"] {
                std::fs::write(format!("/proc/sys/net/ipv4/conf/{interface}/rp_filter"), "0")
                    .expect("root may");
            }
        });
        let table = start_limited_table(
            &place,
            plane_interfaces(&ends),
            ConntrackLimits { at_once: 3, per_second: 1 },
        );
        let all = vec![(
            parse_address(HOST),
            32,
            Some(HostNetfilterRules { hosts: Some(32), ..HostNetfilterRules::default() }),
        )];
        let table = Arc::new(apply_changes(&place, table, all));
        run_command(&format!("ip -n {s} addr add {HOST}/32 dev lo"));
        let here = place.bind_udp(CONCENTRATOR, "203.0.113.1:7000");
        let forged = place.bind_udp(SERVER_END, &format!("{HOST}:0"));
        for _ in 0..100 {
            forged.send_to(b"forged", "203.0.113.1:7000").expect("whoever is elsewhere may");
        }
        expect_datagrams(&here, 100, b"forged");
        assert_eq!(drop_counts(&place, &table).limited, 0, "{mode}");
        run_command(&format!("ip -n {s} addr del {HOST}/32 dev lo"));
        let rules =
            ["add table inet raw", "add chain inet raw first { type filter hook prerouting priority raw; }"];
        for rule in rules.into_iter().chain(["add rule inet raw first udp dport 7000 notrack"]) {
            run_command(&format!("ip netns exec {c} nft {rule}"));
        }
        let server = place.bind_udp(SERVER_END, &format!("{SERVER}:7000"));
        let host = place.bind_udp(HOST_END, &format!("{HOST}:0"));
        for _ in 0..100 {
            host.send_to(b"untracked", (SERVER, 7000)).expect("the host may");
        }
        expect_datagrams(&server, 100, b"untracked");
        assert_eq!(drop_counts(&place, &table).limited, 0, "{mode}");
        drop_table(&place, Arc::into_inner(table).expect("nobody else has it"));
    }
}

/// The follower is busy meanwhile.
#[test]
fn a_burst_of_connections_waits_until_it_is_read() {
    // The kernel may take two kilobytes per event. Without a larger buffer only some hundreds would fit.
    const MANY: u16 = 5000;
    let place = NamespaceFixture::new(1500);
    // The kernel tracks connections only if a rule needs it.
    let table = start_table(&place, "pppoe0");
    let (mut follower, mut begun) = place.run_in_namespace(CONCENTRATOR, || {
        let follower = ConntrackMonitor::new().expect("root may follow");
        let socket = UdpSocket::bind("127.0.0.1:0").expect("the address is there");
        for port in 0..MANY {
            socket.send_to(b"begun", ("127.0.0.1", 20_000 + port)).expect("anybody may");
        }
        (follower, 0)
    });
    while begun < MANY {
        match follower.next_event(TEST_TIMEOUT).expect("the kernel tells") {
            Some(ConntrackEvent::Started(..)) => begun += 1,
            Some(ConntrackEvent::Ended(..)) => {}
            other => panic!("{other:?} after {begun}"),
        }
    }
    assert_eq!(follower.next_event(Duration::ZERO).expect("the kernel tells"), None, "nothing more");
    drop_table(&place, table);
}

fn flush_connections(place: &NamespaceFixture) {
    place.run_in_namespace(CONCENTRATOR, || {
        conntrack::delete_connections_by_source(|_| true).expect("root may")
    });
}

#[test]
fn port_113_of_hosts_is_answered_by_us() {
    for mode in tested_modes() {
        let place = NamespaceFixture::new(1500);
        let ends = place.start_both_planes(mode);
        ends.install_session();
        let ident = || Some(HostNetfilterRules { ident: true, ..HostNetfilterRules::default() });
        let both = vec![(parse_address(HOST), 32, ident()), (parse_address("2001:db8:1::"), 64, ident())];
        let table = apply_changes(&place, start_table(&place, ends.concentrator.device_name()), both);
        let listener = place
            .run_in_namespace(CONCENTRATOR, || TcpListener::bind(("::", IDENT)).expect("the port is free"));
        let ask = |to: &'static str, port: u16| {
            let to = SocketAddr::new(parse_address(to), port);
            place.run_in_namespace(SERVER_END, move || TcpStream::connect_timeout(&to, TEST_TIMEOUT))
        };
        for (to, v4) in [(HOST, true), (HOST_IPV6, false)] {
            let asking = ask(to, 113).expect("it is answered");
            let (answering, from) = listener.accept().unwrap();
            let socket = socket2::SockRef::from(&answering.as_fd()).try_clone().unwrap();
            // The original destination is known, whatever the host itself runs.
            let asked = if v4 { socket.original_dst_v4() } else { socket.original_dst_v6() };
            let asked = asked.unwrap().as_socket().unwrap();
            assert_eq!(asked, SocketAddr::new(parse_address(to), 113), "{mode}");
            let server = parse_address(if v4 { SERVER } else { SERVER_IPV6 });
            assert_eq!(from.ip().to_canonical(), server, "{mode}");
            drop(asking);
            // Other ports reach the host.
            assert!(ask(to, 114).is_err(), "{mode}");
        }
        let table = apply_changes(&place, table, vec![(parse_address(HOST), 32, None)]);
        assert!(ask(HOST, 113).is_err(), "{mode}");
        drop_table(&place, table);
    }
}

#[test]
fn the_table_goes_with_its_program_or_is_replaced() {
    let place = NamespaceFixture::new(1500);
    let shown = || {
        let c = &place.names[CONCENTRATOR];
        let all = Command::new("ip").args(["netns", "exec", c, "nft", "list", "ruleset"]).output().unwrap();
        String::from_utf8(all.stdout).unwrap()
    };
    let translation = Some(SourceNatMode::Masquerade);
    let masquerade = HostNetfilterRules { ident: true, translation, ..HostNetfilterRules::default() };
    let left = apply_changes(
        &place,
        start_table(&place, "pppoe0"),
        vec![(parse_address(HOST), 32, Some(masquerade.clone()))],
    );
    assert!(shown().contains(HOST));
    // A killed process removes nothing.
    std::mem::forget(left);
    let next = start_table(&place, "pppoe0");
    assert!(shown().contains("usher-test") && !shown().contains(HOST));
    // A change is atomic.
    let next = place.run_in_namespace(CONCENTRATOR, move || {
        let unknown = (parse_address("10.0.0.9"), 32, None);
        assert!(next.apply_changes(&[(parse_address(HOST), 32, Some(masquerade)), unknown]).is_err());
        next
    });
    assert!(!shown().contains(HOST));
    drop_table(&place, next);
    assert_eq!(shown(), "");
}
