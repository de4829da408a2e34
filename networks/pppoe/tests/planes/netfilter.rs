//! What elsewhere sees of hosts: addresses that are translated, and who answers at port 113.

use super::place::{
    CONCENTRATOR, HOST, HOST_END, HOST_IPV6, NUMBER, Place, SERVER, SERVER_END, SERVER_IPV6, modes,
};
use socket2::{Domain, Protocol, Type};
use std::io::Read;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::process::Command;
use std::time::Duration;
use usher_esp::ip::{checksum, sum, write_header};
use usher_pppoe::netfilter::conntrack::{self, Direction};
use usher_pppoe::netfilter::{Config, Netfilter, Rules, Translation};

const IDENT: u16 = 11_300;
const EXTERNAL: &str = "203.0.113.1";

fn table(place: &Place, device: &str) -> Netfilter {
    let config = Config { table: "usher-test".to_owned(), device: device.to_owned(), ident_port: IDENT };
    place.within(CONCENTRATOR, move || Netfilter::start(&config).expect("root may make a table"))
}

/// Rules are written in the namespace of who asks.
fn apply(place: &Place, table: Netfilter, changes: Vec<(IpAddr, u8, Option<Rules>)>) -> Netfilter {
    place.within(CONCENTRATOR, move || {
        table.apply(&changes).expect("the rules can be");
        table
    })
}

fn end(place: &Place, table: Netfilter) {
    place.within(CONCENTRATOR, move || drop(table));
}

fn address(text: &str) -> IpAddr {
    text.parse().expect("an address")
}

#[test]
fn a_masqueraded_connection_is_found_with_its_host() {
    for mode in modes() {
        let place = Place::new(1500);
        let ends = place.ends(mode);
        ends.install();
        let masquerade = Rules { ident: false, translation: Some(Translation::Masquerade) };
        let table = apply(
            &place,
            table(&place, ends.concentrator.device()),
            vec![(address(HOST), 32, Some(masquerade.clone()))],
        );
        let (begun, accepted) = place.connection(HOST_END, SERVER_END, SERVER);
        let (seen, theirs) = (accepted.peer_addr().unwrap(), accepted.local_addr().unwrap());
        assert_eq!(seen.ip(), address(EXTERNAL), "{mode}");
        let own = begun.local_addr().unwrap();
        let found = place.within(CONCENTRATOR, move || conntrack::seen_from(seen, theirs, conntrack::TCP));
        let found = found.unwrap().expect("the connection is known");
        assert_eq!(found.original, Direction { source: own, destination: theirs }, "{mode}");
        assert_eq!(found.reply, Direction { source: theirs, destination: seen }, "{mode}");
        let original = found.original;
        let again = place.within(CONCENTRATOR, move || conntrack::begun_as(original, conntrack::TCP));
        assert_eq!(again.unwrap(), Some(found), "{mode}");
        let other = SocketAddr::new(seen.ip(), seen.port() ^ 1);
        let none = place.within(CONCENTRATOR, move || conntrack::seen_from(other, theirs, conntrack::TCP));
        assert_eq!(none.unwrap(), None, "{mode}");
        // The kernel forgets what a host has begun that is gone, and nothing of others.
        let forget = |who: &'static str| {
            place.within(CONCENTRATOR, move || conntrack::forget(|source| address(who) == IpAddr::V4(source)))
        };
        let known = || {
            let found =
                place.within(CONCENTRATOR, move || conntrack::seen_from(seen, theirs, conntrack::TCP));
            found.unwrap().is_some()
        };
        assert!(forget("10.0.0.77").unwrap() == 0 && known(), "{mode}");
        assert!(forget(HOST).unwrap() >= 1 && !known(), "{mode}");
        assert_eq!(forget(HOST).unwrap(), 0, "{mode}");
        // Without its rules a host has its own address again.
        let table = apply(&place, table, vec![(address(HOST), 32, None)]);
        let (_begun, accepted) = place.connection(HOST_END, SERVER_END, SERVER);
        assert_eq!(accepted.peer_addr().unwrap().ip(), address(HOST), "{mode}");
        // A network's hosts are each masqueraded.
        let table = apply(&place, table, vec![(address("10.0.0.0"), 17, Some(masquerade))]);
        let (_begun, accepted) = place.connection(HOST_END, SERVER_END, SERVER);
        assert_eq!(accepted.peer_addr().unwrap().ip(), address(EXTERNAL), "{mode}");
        end(&place, table);
    }
}

/// As a pool of a campus has them.
#[test]
fn thousands_of_addresses_have_their_rules() {
    let place = Place::new(1500);
    let external = EXTERNAL.parse().expect("an address");
    let each = (0..16_384_u32).map(|n| {
        let first = 1024 + (n % 64) as u16 * 16;
        let translation = Some(Translation::Block { external, ports: first..=first + 15 });
        (Ipv4Addr::from_bits(0x0a40_0000 + n).into(), 32, Some(Rules { ident: true, translation }))
    });
    let translation = Some(Translation::Masquerade);
    let network = (address("10.0.0.0"), 17, Some(Rules { ident: true, translation }));
    let table = apply(&place, table(&place, "carry0"), each.chain([network]).collect());
    // One of them goes.
    let table = apply(&place, table, vec![(address("10.64.0.7"), 32, None)]);
    end(&place, table);
}

#[test]
fn a_hosts_ports_are_of_its_block() {
    for mode in modes() {
        let place = Place::new(1500);
        let ends = place.ends(mode);
        ends.install();
        let block = |first: u16| {
            let external = EXTERNAL.parse().expect("an address");
            let translation = Some(Translation::Block { external, ports: first..=first + 15 });
            (address(HOST), 32, Some(Rules { ident: false, translation }))
        };
        let mut table = apply(&place, table(&place, ends.concentrator.device()), vec![block(2048)]);
        for first in [2048, 4096] {
            table = apply(&place, table, vec![block(first)]);
            let all: Vec<_> = (0..8).map(|_| place.connection(HOST_END, SERVER_END, SERVER)).collect();
            for (_, accepted) in &all {
                let seen = accepted.peer_addr().unwrap();
                assert_eq!(seen.ip(), address(EXTERNAL), "{mode}");
                assert!((first..first + 16).contains(&seen.port()), "{mode}: {seen}");
            }
        }
        let server = place.udp(SERVER_END, &format!("{SERVER}:7000"));
        let host = place.udp(HOST_END, &format!("{HOST}:0"));
        host.send_to(b"whose", (SERVER, 7000)).unwrap();
        let (_, seen) = server.recv_from(&mut [0; 100]).unwrap();
        assert!(seen.ip() == address(EXTERNAL) && (4096..4112).contains(&seen.port()), "{mode}: {seen}");
        // What has no ports goes out too, by the address; a protocol whose ports would be somebody else's does not.
        let raw = place.within(SERVER_END, || {
            let all = socket2::Socket::new(Domain::PACKET, Type::DGRAM, Some(Protocol::from(0x0008_i32)));
            let all = all.expect("root may hear all of IPv4");
            all.set_read_timeout(Some(Duration::from_secs(5))).expect("a socket can wait");
            all
        });
        let packet = |protocol: u8, data: &[u8]| {
            let mut packet = Vec::new();
            let (from, to) = (address(HOST), address(SERVER));
            write_header(&mut packet, from, to, protocol, 0, data.len());
            [&packet, data].concat()
        };
        // What is part of no connection would go out as it is. An echo request is 8, 0 and its checksum.
        let mut echo = [8, 0, 0, 0, 0, 1, 0, 1];
        let code = checksum(sum(&echo, 0));
        echo[2..4].copy_from_slice(&code);
        for protocol in [6, 33, 132] {
            ends.host.send(0, &ends.frame(NUMBER, &packet(protocol, &[8, 0, 8, 1, 0, 0, 0, 0, 0, 0, 0, 0])));
        }
        ends.host.send(0, &ends.frame(NUMBER, &packet(1, &echo)));
        let mut heard = Vec::new();
        while heard.last() != Some(&1) {
            let mut buf = [0; 2000];
            let length = (&raw).read(&mut buf).expect("the echo request arrives");
            let to_server = buf[16..20] == SERVER.parse::<Ipv4Addr>().expect("an address").octets();
            // The connections of before end meanwhile, and are to other ports.
            if length > 24 && to_server && (buf[9] == 1 || buf[22..24] == [8, 1]) {
                heard.push(buf[9]);
            }
        }
        assert_eq!(heard, [1], "{mode}");
        end(&place, table);
    }
}

#[test]
fn port_113_of_hosts_is_answered_by_us() {
    for mode in modes() {
        let place = Place::new(1500);
        let ends = place.ends(mode);
        ends.install();
        let ident = || Some(Rules { ident: true, translation: None });
        let both = vec![(address(HOST), 32, ident()), (address("2001:db8:1::"), 64, ident())];
        let table = apply(&place, table(&place, ends.concentrator.device()), both);
        let listener =
            place.within(CONCENTRATOR, || TcpListener::bind(("::", IDENT)).expect("the port is free"));
        let ask = |to: &'static str, port: u16| {
            let to = SocketAddr::new(address(to), port);
            place.within(SERVER_END, move || TcpStream::connect_timeout(&to, Duration::from_secs(5)))
        };
        for (to, v4) in [(HOST, true), (HOST_IPV6, false)] {
            let asking = ask(to, 113).expect("it is answered");
            let (answering, from) = listener.accept().unwrap();
            let socket = socket2::SockRef::from(&answering.as_fd()).try_clone().unwrap();
            // Whom it was for is known, whatever the host itself runs.
            let asked = if v4 { socket.original_dst_v4() } else { socket.original_dst_v6() };
            let asked = asked.unwrap().as_socket().unwrap();
            assert_eq!(asked, SocketAddr::new(address(to), 113), "{mode}");
            let server = address(if v4 { SERVER } else { SERVER_IPV6 });
            assert_eq!(from.ip().to_canonical(), server, "{mode}");
            drop(asking);
            // Other ports are the host's.
            assert!(ask(to, 114).is_err(), "{mode}");
        }
        let table = apply(&place, table, vec![(address(HOST), 32, None)]);
        assert!(ask(HOST, 113).is_err(), "{mode}");
        end(&place, table);
    }
}

#[test]
fn the_table_goes_with_its_program_or_is_replaced() {
    let place = Place::new(1500);
    let shown = || {
        let c = &place.names[CONCENTRATOR];
        let all = Command::new("ip").args(["netns", "exec", c, "nft", "list", "ruleset"]).output().unwrap();
        String::from_utf8(all.stdout).unwrap()
    };
    let masquerade = Rules { ident: true, translation: Some(Translation::Masquerade) };
    let left = apply(&place, table(&place, "pppoe0"), vec![(address(HOST), 32, Some(masquerade.clone()))]);
    assert!(shown().contains(HOST));
    // A killed program takes nothing away.
    std::mem::forget(left);
    let next = table(&place, "pppoe0");
    assert!(shown().contains("usher-test") && !shown().contains(HOST));
    // A change is made whole or not at all.
    let next = place.within(CONCENTRATOR, move || {
        let unknown = (address("10.0.0.9"), 32, None);
        assert!(next.apply(&[(address(HOST), 32, Some(masquerade)), unknown]).is_err());
        next
    });
    assert!(!shown().contains(HOST));
    end(&place, next);
    assert_eq!(shown(), "");
}
