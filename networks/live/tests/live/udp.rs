//! Datagrams through real sockets.

use crate::common::{LiveDriver, TEST_TIMEOUT, TestCommand, TestEvent, own_loopback, patient_settings};
use std::net::{SocketAddr, UdpSocket};
use usher_live::{DriverSockets, SocketOptions, bind_udp, number_sockets};

/// Binds a socket to a port that no other test gets.
fn bind_socket(address: &str) -> (UdpSocket, u16) {
    let address = address.parse().expect("an address");
    let options = SocketOptions { shared: false, ..SocketOptions::default() };
    let socket = bind_udp(address, &options).expect("a port can be had");
    let port = socket.local_addr().expect("it is bound").port();
    (socket, port)
}

fn own_sockets(sockets: impl IntoIterator<Item = UdpSocket>) -> DriverSockets {
    DriverSockets { udp: number_sockets(sockets), settings: patient_settings(), ..DriverSockets::default() }
}

fn connect_client(address: &str) -> UdpSocket {
    let socket = UdpSocket::bind(address).expect("a port can be had");
    socket.set_read_timeout(Some(TEST_TIMEOUT)).expect("a timeout can be set");
    socket
}

fn receive_datagram(socket: &UdpSocket) -> (Vec<u8>, SocketAddr) {
    let mut buffer = vec![0; 65_536];
    let (n, from) = socket.recv_from(&mut buffer).expect("an answer comes");
    buffer.truncate(n);
    (buffer, from)
}

#[test]
fn a_reply_leaves_from_the_address_that_was_asked() {
    let (v4, port4) = bind_socket("0.0.0.0:0");
    let (v6, port6) = bind_socket("[::]:0");
    let live = LiveDriver::new(own_sockets([v4, v6]));
    let (here4, here6) = (connect_client("127.0.0.1:0"), connect_client("[::1]:0"));
    let asked = [
        (&here4, SocketAddr::from(([127, 0, 0, 1], port4)), 0),
        (&here4, SocketAddr::from(([127, 0, 0, 2], port4)), 0),
        (&here4, SocketAddr::from(([127, 3, 2, 1], port4)), 0),
        (&here6, SocketAddr::from(([0, 0, 0, 0, 0, 0, 0, 1], port6)), 1),
    ];
    for (here, to, socket) in asked {
        here.send_to(b"hello", to).expect("loopback takes it");
        assert_eq!(receive_datagram(here), (b"hello".to_vec(), to));
        let TestEvent::Datagram(path, data) = live.next_event() else { panic!("a datagram came") };
        assert_eq!((path.socket.n, path.local, data.as_slice()), (socket, to, b"hello".as_slice()));
        assert_eq!(path.remote, here.local_addr().expect("it is bound"));
    }
    live.stop();
}

#[test]
fn more_than_a_batch_comes_back_whole_and_in_order() {
    let (socket, port) = bind_socket("127.0.0.1:0");
    let here = connect_client("127.0.0.1:0");
    // They wait in the socket before the driver starts, so that its batches are full.
    for i in 0..200_u16 {
        here.send_to(&i.to_be_bytes(), ("127.0.0.1", port)).expect("loopback takes it");
    }
    let live = LiveDriver::new(own_sockets([socket]));
    for i in 0..200_u16 {
        assert_eq!(receive_datagram(&here).0, i.to_be_bytes());
    }
    let counters = live.counters.read();
    assert_eq!((counters.datagrams_in, counters.batches_in), (200, 4));
    live.stop();
}

#[test]
fn an_oversized_datagram_is_dropped_and_an_empty_one_delivered() {
    let (socket, port) = bind_socket("127.0.0.1:0");
    let live = LiveDriver::new(own_sockets([socket]));
    let here = connect_client("127.0.0.1:0");
    for length in [60_000, 4096, 0] {
        here.send_to(&vec![7; length], ("127.0.0.1", port)).expect("loopback takes it");
    }
    assert_eq!(receive_datagram(&here).0.len(), 4096);
    assert_eq!(receive_datagram(&here).0.len(), 0);
    let counters = live.counters.read();
    assert_eq!((counters.truncated, counters.datagrams_in), (1, 2));
    live.stop();
}

#[test]
fn an_unused_socket_gets_its_own_port_and_receives_replies() {
    let live = LiveDriver::new(DriverSockets::default());
    let server = connect_client("127.0.0.1:0");
    let remote = server.local_addr().expect("it is bound");
    let mut ports = Vec::new();
    for socket in [0, 7] {
        live.send_command(TestCommand::Send { socket, remote, data: vec![1] });
        let (_, from) = receive_datagram(&server);
        server.send_to(b"answer", from).expect("loopback takes it");
        let TestEvent::Datagram(path, data) = live.next_event() else { panic!("a datagram came") };
        assert_eq!((path.socket.n, path.local, data.as_slice()), (socket, from, b"answer".as_slice()));
        // The machine sends the reply.
        assert_eq!(receive_datagram(&server), (b"answer".to_vec(), from));
        ports.push(from.port());
    }
    assert_ne!(ports[0], ports[1]);
    live.stop();
}

#[test]
fn an_ephemeral_socket_is_of_the_family_of_its_peer() {
    let live = LiveDriver::new(DriverSockets::default());
    let server = connect_client("[::1]:0");
    let remote = server.local_addr().expect("it is bound");
    live.send_command(TestCommand::Send { socket: 3, remote, data: vec![9] });
    assert!(receive_datagram(&server).1.is_ipv6());
    live.stop();
}

#[test]
fn what_nobody_listens_for_ends_nothing() {
    let (socket, port) = bind_socket("127.0.0.1:0");
    let live = LiveDriver::new(own_sockets([socket]));
    // A connected socket receives only from its peer, and no other program gets its port.
    let deaf = connect_client("127.0.0.1:0");
    deaf.connect("127.0.0.9:9").expect("a peer can be named");
    let gone = deaf.local_addr().expect("it is bound");
    for _ in 0..3 {
        live.send_command(TestCommand::Send { socket: 0, remote: gone, data: vec![1] });
    }
    // No datagram can be sent to port 0.
    live.send_command(TestCommand::Send {
        socket: 0,
        remote: SocketAddr::from(([127, 0, 0, 1], 0)),
        data: vec![1],
    });
    let here = connect_client("127.0.0.1:0");
    here.send_to(b"still there", ("127.0.0.1", port)).expect("loopback takes it");
    assert_eq!(receive_datagram(&here).0, b"still there");
    assert_eq!(live.counters.read().send_errors, 1);
    live.stop();
}

#[test]
fn a_diverted_datagram_is_not_the_machines() {
    let (socket, port) = bind_socket("127.0.0.1:0");
    let live = LiveDriver::new(own_sockets([socket]));
    let here = connect_client("127.0.0.1:0");
    here.send_to(b"other shard's", ("127.0.0.1", port)).expect("loopback takes it");
    here.send_to(b"ours", ("127.0.0.1", port)).expect("loopback takes it");
    assert_eq!(receive_datagram(&here).0, b"ours");
    let TestEvent::Diverted(path, data) = live.next_event() else { panic!("the first is diverted") };
    assert_eq!((path.local.port(), data.as_slice()), (port, b"other shard's".as_slice()));
    assert!(matches!(live.next_event(), TestEvent::Datagram(..)));
    assert_eq!(live.counters.read().diverted, 1);
    live.stop();
}

#[test]
fn the_mailbox_wakes_a_driver_that_sleeps_and_so_does_its_timer() {
    let live = LiveDriver::new(DriverSockets::default());
    for millis in [5, 0, 1] {
        live.send_command(TestCommand::TimeoutAfter(millis));
        assert_eq!(live.next_event(), TestEvent::TimedOut { is_early: false });
    }
    // A later time replaces an earlier one, and the reverse.
    live.send_command(TestCommand::TimeoutAfter(3_600_000));
    live.send_command(TestCommand::TimeoutAfter(10));
    assert_eq!(live.next_event(), TestEvent::TimedOut { is_early: false });
    live.send_command(TestCommand::TimeoutAfter(1));
    live.send_command(TestCommand::TimeoutAfter(20));
    assert_eq!(live.wait_for(|heard| Some(heard.clone())), TestEvent::TimedOut { is_early: false });
    live.stop();
}

#[test]
fn what_is_sent_last_leaves_before_the_end() {
    let live = LiveDriver::new(own_sockets([]));
    let server = connect_client("127.0.0.1:0");
    let remote = server.local_addr().expect("it is bound");
    for i in 0..100 {
        live.send_command(TestCommand::Send { socket: 0, remote, data: vec![i] });
    }
    live.stop();
    for i in 0..100 {
        assert_eq!(receive_datagram(&server).0, [i]);
    }
}

#[test]
fn shards_share_one_address() {
    let shared = |port| bind_udp((own_loopback(), port).into(), &SocketOptions::default());
    let first = shared(0).expect("a port can be had");
    let port = first.local_addr().expect("it is bound").port();
    let second = shared(port).expect("it may be shared");
    let lives = [first, second].map(|socket| LiveDriver::new(own_sockets([socket])));
    for _ in 0..32 {
        let here = connect_client("127.0.0.1:0");
        here.send_to(b"whichever", (own_loopback(), port)).expect("loopback takes it");
        assert_eq!(receive_datagram(&here).0, b"whichever");
    }
    let counts = lives.each_ref().map(|live| live.counters.read().datagrams_in);
    assert_eq!(counts.iter().sum::<u64>(), 32);
    assert!(counts.iter().all(|count| *count > 0), "the system divides flows: {counts:?}");
    lives.into_iter().for_each(LiveDriver::stop);
}
