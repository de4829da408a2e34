//! Associations between two sockets.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::process::Command;
use std::time::{Duration, Instant};
use usher_core::CloseReason;
use usher_sctp::{
    DelayedSack, ReceiveInfo, RtoBounds, SctpAssociation, SctpEvent, SctpListener, SendInfo, SocketOptions,
};

const LOOPBACK: &str = "127.0.0.1:0";

/// Repeats `ask` while it would block.
#[track_caller]
fn wait_unblocked<T>(mut ask: impl FnMut() -> io::Result<T>) -> io::Result<T> {
    let end = Instant::now() + Duration::from_secs(100);
    loop {
        match ask() {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock && Instant::now() < end => {
                std::thread::sleep(Duration::from_millis(1));
            }
            other => return other,
        }
    }
}

/// Configures the guest's network.
#[track_caller]
fn run_ip(words: &str) {
    assert!(Command::new("ip").args(words.split(' ')).status().unwrap().success(), "ip {words}");
}

/// Returns the next event that is not about addresses.
#[track_caller]
fn next_received(association: &mut SctpAssociation, message: &mut Vec<u8>) -> SctpEvent {
    loop {
        match wait_unblocked(|| association.receive_event(message)).unwrap() {
            SctpEvent::Address { .. } | SctpEvent::Other => {}
            said => return said,
        }
    }
}

/// Returns both sides of an association, and their negotiated streams.
#[track_caller]
fn association_pair(
    at: &[SocketAddr],
    ours: &SocketOptions,
    theirs: &SocketOptions,
) -> [(SctpAssociation, u16); 2] {
    let listener = SctpListener::bind(at, theirs).unwrap();
    let port = listener.local_address().unwrap().port();
    let to: Vec<SocketAddr> = at.iter().map(|at| SocketAddr::new(at.ip(), port)).collect();
    let mut client = SctpAssociation::connect(&[], &to, ours).unwrap();
    let (mut server, remote) = wait_unblocked(|| listener.accept()).unwrap();
    assert_eq!(remote.port(), client.local_address().unwrap().port());
    let mut message = Vec::new();
    let mut streams = |association: &mut SctpAssociation| match next_received(association, &mut message) {
        SctpEvent::Up { streams, .. } => streams,
        other => panic!("not up: {other:?}"),
    };
    let (out, back) = (streams(&mut client), streams(&mut server));
    [(client, out), (server, back)]
}

fn socket_addresses(text: &str) -> Vec<SocketAddr> {
    vec![text.parse().unwrap()]
}

#[test]
fn messages_come_whole_with_their_stream_and_protocol() {
    for address in [LOOPBACK, "[::1]:0"] {
        let options = SocketOptions { streams_out: 300, ..SocketOptions::default() };
        let [(client, streams), (mut server, back)] = association_pair(
            &socket_addresses(address),
            &options,
            &SocketOptions { streams_in: 20, ..options },
        );
        assert_eq!((streams, back), (20, 300), "each has as many as the other allows");
        let long: Vec<u8> = (0..200_000_u32).map(|n| n as u8).collect();
        let sent = [
            (SendInfo { stream: 0, ppid: 46, unordered: false }, &b"one"[..]),
            (SendInfo { stream: 19, ppid: 0, unordered: true }, &b"two"[..]),
            (SendInfo { stream: 7, ppid: u32::MAX, unordered: false }, &long[..]),
        ];
        for (how, data) in sent {
            wait_unblocked(|| client.send_message(how, data)).unwrap();
            let mut message = Vec::new();
            let SendInfo { stream, ppid, unordered } = how;
            let said = next_received(&mut server, &mut message);
            assert_eq!(said, SctpEvent::Message(ReceiveInfo { stream, ppid, unordered }));
            assert!(message == data, "{} octets of {}", message.len(), data.len());
        }
        let beyond = client.send_message(SendInfo { stream: 20, ..SendInfo::default() }, b"x").unwrap_err();
        assert_eq!(beyond.kind(), io::ErrorKind::InvalidInput, "{beyond}");
        let status = client.status().unwrap();
        assert_eq!((status.streams, status.inbound), (20, 300));
        assert!(status.mtu > 1000 && status.cwnd > 1000 && status.rto > Duration::ZERO, "{status:?}");
    }
}

#[test]
fn an_association_that_is_accepted_has_the_listeners_options() {
    let slow = SocketOptions {
        nodelay: false,
        rto: Some(RtoBounds {
            initial: Duration::from_millis(700),
            min: Duration::from_millis(600),
            max: Duration::from_secs(5),
        }),
        delayed_sack: Some(DelayedSack { delay: Duration::from_millis(40), packets: 2 }),
        max_retransmissions: Some(4),
        init: Some((2, Duration::from_secs(1))),
        ..SocketOptions::default()
    };
    let [(client, _), (server, _)] =
        association_pair(&socket_addresses(LOOPBACK), &SocketOptions::default(), &slow);
    assert_eq!((client.is_nodelay().unwrap(), server.is_nodelay().unwrap()), (true, false));
    let rto = server.status().unwrap().rto;
    assert!((600..=700).contains(&rto.as_millis()), "{rto:?}");
    assert!(client.status().unwrap().rto >= Duration::from_secs(1), "the system's own bound");
}

#[test]
fn either_side_ends_it_in_order_or_at_once() {
    let options = SocketOptions::default();
    let mut message = Vec::new();
    let [(mut client, _), (mut server, _)] =
        association_pair(&socket_addresses(LOOPBACK), &options, &options);
    wait_unblocked(|| client.send_message(SendInfo::default(), b"the last")).unwrap();
    client.shutdown().unwrap();
    assert!(matches!(next_received(&mut server, &mut message), SctpEvent::Message(_)));
    assert_eq!(message, b"the last");
    let mut said = next_received(&mut server, &mut message);
    if said == SctpEvent::Finished {
        said = next_received(&mut server, &mut message);
    }
    assert_eq!(said, SctpEvent::End(CloseReason::Closed));
    assert_eq!(next_received(&mut client, &mut message), SctpEvent::End(CloseReason::Closed));
    assert_eq!(
        next_received(&mut client, &mut message),
        SctpEvent::End(CloseReason::Closed),
        "it says so again"
    );

    let [(client, _), (mut server, _)] = association_pair(&socket_addresses(LOOPBACK), &options, &options);
    client.abort();
    assert_eq!(next_received(&mut server, &mut message), SctpEvent::End(CloseReason::Reset));

    let closed = SctpListener::bind(&socket_addresses(LOOPBACK), &options).unwrap().local_address().unwrap();
    let mut refused = SctpAssociation::connect(&[], &[closed], &options).unwrap();
    assert_eq!(next_received(&mut refused, &mut message), SctpEvent::End(CloseReason::Refused));
}

#[test]
fn nobody_who_answers_is_noticed_in_the_time_that_was_given() {
    let options = SocketOptions {
        init: Some((1, Duration::from_millis(300))),
        rto: Some(RtoBounds {
            initial: Duration::from_millis(300),
            min: Duration::from_millis(300),
            max: Duration::from_millis(300),
        }),
        ..SocketOptions::default()
    };
    // A link without a peer: its other end has no address.
    run_ip("link add nobody type veth peer name nothing");
    run_ip("address add 192.0.2.1/24 dev nobody");
    run_ip("link set nobody up");
    run_ip("link set nothing up");
    let to = ["192.0.2.9:3868".parse().unwrap()];
    let mut association = SctpAssociation::connect(&[], &to, &options).unwrap();
    assert_eq!(next_received(&mut association, &mut Vec::new()), SctpEvent::End(CloseReason::TimedOut));
}

#[test]
fn an_association_has_several_addresses_on_each_side() {
    // Loopback addresses are not announced to the peer.
    run_ip("link add several type dummy");
    run_ip("address add 198.51.100.1/24 dev several");
    run_ip("address add 203.0.113.1/24 dev several");
    run_ip("link set several up");
    let both: Vec<SocketAddr> = ["198.51.100.1:0", "203.0.113.1:0"].map(|at| at.parse().unwrap()).into();
    let options = SocketOptions::default();
    let [(client, _), (server, _)] = association_pair(&both, &options, &options);
    let ips = |addresses: Vec<SocketAddr>| {
        let mut ips: Vec<IpAddr> = addresses.iter().map(SocketAddr::ip).collect();
        ips.sort();
        ips
    };
    let own: Vec<IpAddr> = both.iter().map(SocketAddr::ip).collect();
    assert_eq!(ips(client.peer_addresses().unwrap()), own);
    assert_eq!(ips(server.local_addresses().unwrap()), own);

    let listener = SctpListener::bind(&both[..1], &options).unwrap();
    let to = [listener.local_address().unwrap()];
    let client = SctpAssociation::connect(&own, &to, &options).unwrap();
    let (server, _) = wait_unblocked(|| listener.accept()).unwrap();
    assert_eq!(ips(server.peer_addresses().unwrap()), own);
    assert_eq!(ips(client.local_addresses().unwrap()), own);
}

#[test]
fn a_message_that_is_too_long_ends_the_association() {
    let short = SocketOptions { longest: 50_000, ..SocketOptions::default() };
    let [(mut client, _), (mut server, _)] =
        association_pair(&socket_addresses(LOOPBACK), &SocketOptions::default(), &short);
    let mut message = Vec::new();
    wait_unblocked(|| client.send_message(SendInfo::default(), &[7; 50_000])).unwrap();
    assert!(matches!(next_received(&mut server, &mut message), SctpEvent::Message(_)));
    wait_unblocked(|| client.send_message(SendInfo::default(), &[7; 50_001])).unwrap();
    let error = wait_unblocked(|| server.receive_event(&mut message)).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::InvalidData, "{error}");
    drop(server);
    assert_eq!(next_received(&mut client, &mut message), SctpEvent::End(CloseReason::Reset));
}

#[test]
fn a_reader_that_is_slow_is_waited_for() {
    let small =
        SocketOptions { send_buffer: Some(40_000), receive_buffer: Some(40_000), ..SocketOptions::default() };
    let [(client, _), (mut server, _)] = association_pair(&socket_addresses(LOOPBACK), &small, &small);
    let mut sent = 0_u32;
    let error = loop {
        match client.send_message(SendInfo::default(), &[&sent.to_be_bytes()[..], &[0; 1000]].concat()) {
            Ok(()) => sent += 1,
            Err(error) => break error,
        }
    };
    assert_eq!(error.kind(), io::ErrorKind::WouldBlock, "{error}");
    assert!(sent > 10, "{sent}");
    let mut message = Vec::new();
    for n in 0..sent {
        assert!(matches!(next_received(&mut server, &mut message), SctpEvent::Message(_)));
        assert_eq!(message[..4], n.to_be_bytes());
    }
    wait_unblocked(|| client.send_message(SendInfo::default(), b"more")).unwrap();
}
