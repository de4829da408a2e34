//! Connections without TLS.

use crate::common::{
    LiveDriver, STRANGER, TEST_TIMEOUT, TestCommand, TestEvent, own_loopback, patient_settings,
};
use std::io::{Read, Write};
use std::net::{IpAddr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::time::Duration;
use usher_core::{CloseReason, ConnId, ListenerId};
use usher_live::{DriverConfig, DriverSockets, DriverTcpListener, SocketOptions, listen_tcp};

const OURS: ConnId = ConnId::nth_opened_connection(5);
const FIRST: ConnId = ConnId::nth_accepted_connection(0);

fn serving_driver(settings: DriverConfig) -> (LiveDriver, SocketAddr) {
    let address = (own_loopback(), 0).into();
    let socket = listen_tcp(address, &SocketOptions::default()).expect("a port can be had");
    let address = socket.local_addr().expect("it is bound");
    let listeners = vec![DriverTcpListener { id: ListenerId::from_number(0), socket, tls: None }];
    (LiveDriver::new(DriverSockets { listeners, settings, ..DriverSockets::default() }), address)
}

fn connect_to(address: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(address).expect("it listens");
    stream.set_read_timeout(Some(TEST_TIMEOUT)).expect("a timeout can be set");
    stream.set_write_timeout(Some(TEST_TIMEOUT)).expect("a timeout can be set");
    stream
}

fn dial_from(from: IpAddr, address: SocketAddr) -> TcpStream {
    let socket = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None);
    let socket = socket.expect("a socket can be had");
    socket.bind(&SocketAddr::from((from, 0)).into()).expect("all of 127/8 is ours");
    socket.connect(&address.into()).expect("it listens");
    socket.set_read_timeout(Some(TEST_TIMEOUT)).expect("a timeout can be set");
    TcpStream::from(socket)
}

fn close_reason(live: &LiveDriver, conn: ConnId) -> CloseReason {
    live.wait_for(|heard| match heard {
        TestEvent::Closed(of, reason) if *of == conn => Some(*reason),
        _ => None,
    })
}

/// A driver connected to the test's listener.
fn connected_driver() -> (LiveDriver, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port can be had");
    let remote = listener.local_addr().expect("it is bound");
    let live = LiveDriver::new(DriverSockets { settings: patient_settings(), ..DriverSockets::default() });
    live.send_command(TestCommand::Connect { conn: OURS, local: None, remote });
    let (stream, _) = listener.accept().expect("the driver calls");
    stream.set_read_timeout(Some(TEST_TIMEOUT)).expect("a timeout can be set");
    assert_eq!(live.next_event(), TestEvent::Connected(OURS, Some(remote.ip()), remote, None));
    (live, stream)
}

#[test]
fn an_accepted_connection_is_told_of_and_echoes_to_its_end() {
    let (live, address) = serving_driver(patient_settings());
    let mut stream = connect_to(address);
    let remote = stream.local_addr().expect("it is bound");
    assert_eq!(live.next_event(), TestEvent::Accepted(FIRST, ListenerId::from_number(0)));
    assert_eq!(live.next_event(), TestEvent::Connected(FIRST, Some(address.ip()), remote, None));
    stream.write_all(b"half ").expect("it takes a few octets");
    assert_eq!(live.read_octets(FIRST, 5), b"half ");
    stream.write_all(b"and half").expect("it takes a few octets");
    // The end follows the data at once: the machine's reply is still sent.
    stream.shutdown(Shutdown::Write).expect("it is open");
    let mut all = String::new();
    stream.read_to_string(&mut all).expect("it ends in good order");
    assert_eq!(all, "half and half");
    assert_eq!(close_reason(&live, FIRST), CloseReason::Closed);
    assert_eq!(live.counters.read().connections_open, 0);
    live.stop();
}

#[test]
fn who_sends_no_more_is_answered_where_the_machine_owes_it() {
    let (live, address) = serving_driver(DriverConfig { half_closed: true, ..patient_settings() });
    live.send_command(TestCommand::Echo(false));
    for n in 0..2 {
        let conn = ConnId::nth_accepted_connection(n);
        let mut stream = connect_to(address);
        stream.write_all(b"asked").expect("it takes a few octets");
        stream.shutdown(Shutdown::Write).expect("it is open");
        assert_eq!(live.read_octets(conn, 5), b"asked");
        live.wait_for(|heard| (*heard == TestEvent::Finished(conn)).then_some(()));
        // The driver has no pending events, and the connection is established.
        live.send_command(TestCommand::Write(conn, b"answered".to_vec()));
        let mut answer = [0; 8];
        stream.read_exact(&mut answer).expect("it is open still");
        assert_eq!(&answer, b"answered");
        if n == 0 {
            live.send_command(TestCommand::Write(conn, b", all".to_vec()));
            live.send_command(TestCommand::Shutdown(conn));
            let mut rest = String::new();
            stream.read_to_string(&mut rest).expect("it ends in good order");
            assert_eq!(rest, ", all");
            assert_eq!(close_reason(&live, conn), CloseReason::Closed);
        } else {
            live.send_command(TestCommand::Abort(conn));
            assert!(stream.read(&mut answer).is_err(), "it is reset");
        }
    }
    live.stop();
}

#[test]
fn megabytes_pass_both_ways_at_once() {
    let (live, address) = serving_driver(DriverConfig { stream_queue: 64 << 20, ..patient_settings() });
    let stream = connect_to(address);
    let sent: Vec<u8> = (0..8_000_000_u32).map(|i| (i / 7) as u8).collect();
    let writer = {
        let (mut stream, sent) = (stream.try_clone().expect("a handle can be had"), sent.clone());
        std::thread::spawn(move || {
            stream.write_all(&sent).expect("it is read");
            stream.shutdown(Shutdown::Write).expect("it is open");
        })
    };
    let mut back = Vec::new();
    (&stream).read_to_end(&mut back).expect("it ends in good order");
    writer.join().expect("it wrote");
    assert!(back == sent, "{} octets of {} came back", back.len(), sent.len());
    live.stop();
}

#[test]
fn a_peer_that_does_not_read_is_reset_and_counted() {
    let (live, address) = serving_driver(DriverConfig { stream_queue: 100_000, ..patient_settings() });
    let mut stream = connect_to(address);
    // It writes until the connection closes, and reads nothing.
    let chunk = [1; 10_000];
    while stream.write_all(&chunk).is_ok() {}
    assert_eq!(close_reason(&live, FIRST), CloseReason::Reset);
    let counters = live.counters.read();
    assert_eq!((counters.slow_peers, counters.connections_open), (1, 0));
    live.stop();
}

#[test]
fn who_is_told_to_wait_hears_when_all_is_sent() {
    let (live, mut stream) = connected_driver();
    let settings = DriverConfig::default();
    // More than half of the queue limit, and more than the sockets' buffers.
    let sent = vec![3; settings.stream_queue - 1];
    live.send_command(TestCommand::Write(OURS, sent.clone()));
    let mut back = vec![0; sent.len()];
    stream.read_exact(&mut back).expect("all is sent");
    assert_eq!(live.next_event(), TestEvent::Writable(OURS));
    drop(stream);
    live.stop();
}

#[test]
fn a_slow_reader_grants_credit() {
    let (live, mut stream) = connected_driver();
    live.send_command(TestCommand::Credit(OURS, 3));
    live.send_command(TestCommand::Echo(false));
    // When this arrives, the command has arrived.
    live.send_command(TestCommand::Write(OURS, vec![9]));
    stream.read_exact(&mut [0]).expect("an octet comes");
    stream.write_all(b"abcdef").expect("it takes a few octets");
    assert_eq!(live.next_event(), TestEvent::Data(OURS, b"abc".to_vec()));
    live.send_command(TestCommand::Credit(OURS, 2));
    assert_eq!(live.next_event(), TestEvent::Data(OURS, b"de".to_vec()));
    live.send_command(TestCommand::Credit(OURS, 100));
    assert_eq!(live.next_event(), TestEvent::Data(OURS, b"f".to_vec()));
    // The driver's close waits for the peer's.
    drop(stream);
    live.stop();
}

#[test]
fn closing_sends_what_is_queued_and_aborting_does_not_wait() {
    let (live, mut stream) = connected_driver();
    let sent = vec![5; 3_000_000];
    live.send_command(TestCommand::Write(OURS, sent.clone()));
    live.send_command(TestCommand::Shutdown(OURS));
    let mut all = Vec::new();
    stream.read_to_end(&mut all).expect("it ends in good order");
    assert_eq!(all.len(), sent.len());
    drop(stream);
    assert_eq!(close_reason(&live, OURS), CloseReason::Closed);
    live.stop();

    let (live, mut stream) = connected_driver();
    live.send_command(TestCommand::Abort(OURS));
    let error = stream.read(&mut [0]).expect_err("it is reset");
    assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset);
    assert_eq!(live.counters.read().connections_open, 0);
    live.stop();
}

#[test]
fn a_peer_that_never_ends_its_side_is_not_waited_for_long() {
    let (live, address) =
        serving_driver(DriverConfig { linger: Duration::from_millis(50), ..patient_settings() });
    let stream = connect_to(address);
    live.wait_for(|heard| matches!(heard, TestEvent::Connected(..)).then_some(()));
    live.send_command(TestCommand::Shutdown(FIRST));
    assert_eq!(close_reason(&live, FIRST), CloseReason::TimedOut);
    drop(stream);
    live.stop();
}

#[test]
fn the_drivers_end_closes_connections_in_good_order() {
    let (live, mut stream) = connected_driver();
    live.send_command(TestCommand::Write(OURS, b"last words".to_vec()));
    let reader = std::thread::spawn(move || {
        let mut all = String::new();
        stream.read_to_string(&mut all).map(|_| all)
    });
    live.stop();
    assert_eq!(reader.join().expect("it read").expect("it ended in good order"), "last words");
}

#[test]
fn a_port_without_listener_refuses() {
    // It is bound and does not listen, so that no other program gets the port.
    let bound = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None);
    let bound = bound.expect("a socket can be had");
    bound.bind(&SocketAddr::from(([127, 0, 0, 1], 0)).into()).expect("a port can be had");
    let remote = bound.local_addr().expect("it is bound").as_socket().expect("an address");
    let live = LiveDriver::new(DriverSockets { settings: patient_settings(), ..DriverSockets::default() });
    live.send_command(TestCommand::Connect { conn: OURS, local: None, remote });
    assert_eq!(live.next_event(), TestEvent::Closed(OURS, CloseReason::Refused));
    let counters = live.counters.read();
    assert_eq!((counters.connects, counters.connect_failures, counters.connections_open), (1, 1, 0));
    live.stop();
}

#[test]
fn a_connection_leaves_from_the_address_asked_for() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port can be had");
    let remote = listener.local_addr().expect("it is bound");
    let live = LiveDriver::new(DriverSockets { settings: patient_settings(), ..DriverSockets::default() });
    let local = "127.0.0.9".parse().ok();
    live.send_command(TestCommand::Connect { conn: OURS, local, remote });
    let (_, from) = listener.accept().expect("the driver calls");
    assert_eq!(Some(from.ip()), local);
    live.stop();
}

#[test]
fn a_peer_that_resets_is_told_so() {
    let (live, stream) = connected_driver();
    let stream = socket2::Socket::from(stream);
    stream.set_linger(Some(Duration::ZERO)).expect("it is a socket");
    drop(stream);
    assert_eq!(close_reason(&live, OURS), CloseReason::Reset);
    live.stop();
}

#[test]
fn who_may_not_connect_is_reset_before_anything_is_said() {
    let (live, address) = serving_driver(patient_settings());
    let mut refused = dial_from(STRANGER, address);
    assert!(refused.read(&mut [0]).is_err());
    let other = dial_from([127, 0, 66, 7].into(), address);
    assert_eq!(live.next_event(), TestEvent::Accepted(FIRST, ListenerId::from_number(0)));
    assert_eq!((live.counters.read().refused_stranger, live.counters.read().accepted), (1, 1));
    drop(other);
    live.stop();
}

/// A network of silent connections displaces its own: an answered one stays, and a new one is accepted.
#[test]
fn connections_that_say_nothing_leave_room_for_others() {
    const CAPACITY: usize = 64;
    let settings = DriverConfig { connections: 300, handshakes: CAPACITY, ..patient_settings() };
    let (live, address) = serving_driver(settings);
    let mut answered = dial_from([127, 0, 0, 8].into(), address);
    answered.write_all(b"first").expect("it takes a few octets");
    assert_eq!(live.read_octets(FIRST, 5), b"first");
    answered.read_exact(&mut [0; 5]).expect("it echoes");
    let silent: Vec<_> = (0..200).map(|_| dial_from([127, 0, 0, 9].into(), address)).collect();
    live.wait_for_counters(|counts| {
        counts.silent_displaced == 200 - CAPACITY as u64 && counts.connections_open == 1 + CAPACITY as u64
    });
    let mut other = dial_from([127, 0, 0, 9].into(), address);
    for stream in [&mut answered, &mut other] {
        stream.write_all(b"again").expect("it takes a few octets");
        let mut echo = [0; 5];
        stream.read_exact(&mut echo).expect("it echoes");
        assert_eq!(&echo, b"again");
    }
    // The machine gets the close of each connection that it knew.
    drop(silent);
    let (mut connected, mut ended, mut said) = (0, 0, 0);
    while said < 2 || ended + 2 < connected {
        match live.next_event() {
            TestEvent::Connected(..) => connected += 1,
            TestEvent::Closed(..) => ended += 1,
            TestEvent::Data(..) => said += 1,
            _ => {}
        }
    }
    assert!(connected >= CAPACITY, "{connected}");
    drop((answered, other));
    live.stop();
}

#[test]
fn connections_beyond_a_limit_are_refused_until_one_closes() {
    let settings = DriverConfig { connections: 3, connections_per_address: 2, ..patient_settings() };
    let (live, address) = serving_driver(settings);
    let up = || live.wait_for(|heard| matches!(heard, TestEvent::Connected(..)).then_some(()));
    let first = connect_to(address);
    up();
    let second = connect_to(address);
    up();
    let mut third = connect_to(address);
    assert!(third.read(&mut [0]).is_err(), "one address has two");
    assert_eq!(live.counters.read().refused_address, 1);

    let other = dial_from([127, 0, 0, 2].into(), address);
    up();
    let mut full = dial_from([127, 0, 0, 3].into(), address);
    assert!(full.read(&mut [0]).is_err(), "the listener has three");
    assert_eq!(live.counters.read().refused_listener, 1);

    drop(first);
    assert_eq!(close_reason(&live, FIRST), CloseReason::Closed);
    let again = connect_to(address);
    up();
    drop((second, other, again));
    live.stop();
}
