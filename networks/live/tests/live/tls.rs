//! Connections with TLS.

use crate::common::{LiveDriver, TEST_TIMEOUT, TestCommand, TestEvent, own_loopback, patient_settings};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::Duration;
use usher_core::{CloseReason, ConnId, ListenerId};
use usher_crypto::tls::fixtures::{self, WALL_TIME};
use usher_crypto::tls::{
    ClientConfig, ServerConfig, SharedWallClock, TlsClientOptions, TlsCredentials, TlsServerOptions,
    TlsVersion, TrustRoots,
};
use usher_live::{
    ConnectionSecuritySelector, DriverConfig, DriverSockets, DriverTcpListener, OutgoingConnectionSecurity,
    SocketOptions, TlsClient, TlsConnectionOutcome, TlsObserver, TlsServer, listen_tcp,
};

const OURS: ConnId = ConnId::nth_opened_connection(0);
const THEIRS: ConnId = ConnId::nth_accepted_connection(0);

fn server_config(version: TlsVersion, chain: u8) -> ServerConfig {
    ServerConfig::new(TlsServerOptions {
        versions: version.into(),
        credentials: fixtures::server_credentials(chain),
        client_roots: Some(TrustRoots::from_der([fixtures::root_certificate()])),
        resumption: None,
        clock: SharedWallClock::from_time(WALL_TIME),
        key_log: None,
    })
    .expect("the fixtures are good")
}

fn client_config(version: TlsVersion, credentials: Option<TlsCredentials>, roots: &[u8]) -> ClientConfig {
    ClientConfig::new(TlsClientOptions {
        versions: version.into(),
        credentials,
        roots: TrustRoots::from_der([roots]),
        server_name: Some(fixtures::SERVER_NAME.into()),
        resumption: None,
        clock: SharedWallClock::from_time(WALL_TIME),
        key_log: None,
    })
    .expect("the fixtures are good")
}

fn serving_driver(tls: &TlsServer, settings: DriverConfig) -> (LiveDriver, SocketAddr) {
    let address = (own_loopback(), 0).into();
    let socket = listen_tcp(address, &SocketOptions::default()).expect("a port can be had");
    let address = socket.local_addr().expect("it is bound");
    let listeners =
        vec![DriverTcpListener { id: ListenerId::from_number(0), socket, tls: Some(tls.clone()) }];
    (LiveDriver::new(DriverSockets { listeners, settings, ..DriverSockets::default() }), address)
}

fn connecting_driver(config: ClientConfig, remote: SocketAddr) -> LiveDriver {
    let tls = TlsClient::new(config);
    calling_by(remote, move |to| {
        if to == remote {
            OutgoingConnectionSecurity::Tls(tls.clone())
        } else {
            OutgoingConnectionSecurity::Plain
        }
    })
}

fn calling_by(
    remote: SocketAddr,
    by: impl Fn(SocketAddr) -> OutgoingConnectionSecurity + Send + Sync + 'static,
) -> LiveDriver {
    let outgoing: ConnectionSecuritySelector = Arc::new(by);
    let settings = patient_settings();
    let live =
        LiveDriver::new(DriverSockets { outgoing: Some(outgoing), settings, ..DriverSockets::default() });
    live.send_command(TestCommand::Echo(false));
    live.send_command(TestCommand::Connect { conn: OURS, local: None, remote });
    live
}

#[test]
fn whoever_looks_hears_what_becomes_of_connections_by_tls() {
    let (server, address) =
        serving_driver(&TlsServer::new(server_config(TlsVersion::Tls13, 1)), patient_settings());
    let (tell, told) = std::sync::mpsc::channel();
    let tell = std::sync::Mutex::new(tell);
    let observer: TlsObserver = Arc::new(move |to, outcome| {
        let said = match outcome {
            TlsConnectionOutcome::Up(shown) => Ok(shown.map(<[u8]>::to_vec)),
            TlsConnectionOutcome::Failed(error) => Err(error.fault().name()),
        };
        // The test may have ended.
        let _ = tell.lock().unwrap().send((to, said));
    });
    for (roots, said) in [
        (fixtures::untrusted_client_credentials().leaf_certificate(), Err("certificate-unknown-ca")),
        (fixtures::root_certificate(), Ok(Some(fixtures::server_credentials(1).leaf_certificate().to_vec()))),
    ] {
        let config = client_config(TlsVersion::Tls13, Some(fixtures::client_credentials(1)), roots);
        let tls = TlsClient::with_observer(config, observer.clone());
        let client = calling_by(address, move |_| OutgoingConnectionSecurity::Tls(tls.clone()));
        assert_eq!(told.recv_timeout(TEST_TIMEOUT).expect("somebody is told"), (address, said));
        client.stop();
    }
    server.stop();
}

/// Opens connections from these addresses that send nothing, or only the start of a handshake.
fn unfinished_handshakes(address: SocketAddr, from: impl Iterator<Item = [u8; 4]>) -> Vec<TcpStream> {
    let open = |(n, ip): (usize, [u8; 4])| {
        let socket = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None)
            .expect("a socket can be had");
        socket.bind(&SocketAddr::from((ip, 0)).into()).expect("all of 127/8 is ours");
        socket.connect(&address.into()).expect("it listens");
        let mut stream = TcpStream::from(socket);
        if n % 2 == 0 {
            // It may be displaced already.
            let _ = stream.write_all(&[22, 3, 1, 2, 0, 1, 0]);
        }
        stream
    };
    from.enumerate().map(open).collect()
}

#[test]
fn unfinished_handshakes_leave_room_for_who_means_it() {
    const CAPACITY: usize = 64;
    // Without a limit of their own they would fill the listener for the whole test.
    let settings = DriverConfig {
        connections: 300,
        handshakes: CAPACITY,
        handshake_timeout: 10 * TEST_TIMEOUT,
        ..patient_settings()
    };
    let from_one: fn(u8) -> [u8; 4] = |_| [127, 0, 0, 1];
    let from_many: fn(u8) -> [u8; 4] = |n| [127, 0, 1, n];
    for from in [from_one, from_many] {
        let tls = TlsServer::new(server_config(TlsVersion::Tls13, 2));
        let (server, address) = serving_driver(&tls, settings);
        let waiting = unfinished_handshakes(address, (0..200).chain(0..200).map(from));
        server.wait_for_counters(|counts| {
            counts.tls_displaced == 400 - CAPACITY as u64 && counts.connections_open == CAPACITY as u64
        });
        assert_eq!(server.counters.read().refused_listener, 0);
        // Also from an address of the flood: a real handshake ends before it is the oldest.
        let config = client_config(
            TlsVersion::Tls13,
            Some(fixtures::client_credentials(2)),
            fixtures::root_certificate(),
        );
        let client = connecting_driver(config, address);
        client.wait_for(|heard| matches!(heard, TestEvent::Connected(..)).then_some(()));
        server.wait_for(|heard| matches!(heard, TestEvent::Connected(..)).then_some(()));
        // An established connection stays, however many arrive.
        let more = unfinished_handshakes(address, (0..200).map(from));
        server.wait_for_counters(|counts| counts.tls_displaced >= 600 - CAPACITY as u64);
        client.send_command(TestCommand::Write(OURS, b"still here".to_vec()));
        assert_eq!(client.read_octets(OURS, 10), b"still here");
        drop((waiting, more));
        server.wait_for_counters(|counts| counts.connections_open == 1);
        client.stop();
        server.stop();
    }
}

#[test]
fn a_forbidden_connection_is_refused_and_never_plain() {
    let tcp = std::net::TcpListener::bind("127.0.0.1:0").expect("a port can be had");
    let remote = tcp.local_addr().expect("it is bound");
    let client = calling_by(remote, |_| OutgoingConnectionSecurity::Refused);
    assert_eq!(client.next_event(), TestEvent::Closed(OURS, CloseReason::Refused));
    tcp.set_nonblocking(true).expect("a listener can be asked");
    assert!(tcp.accept().is_err(), "nobody has connected");
    assert_eq!(client.counters.read().connect_failures, 1);
}

#[test]
fn both_sides_hear_each_others_certificates_and_echo() {
    for version in [TlsVersion::Tls12, TlsVersion::Tls13] {
        let (server, address) =
            serving_driver(&TlsServer::new(server_config(version, 2)), patient_settings());
        let credentials = fixtures::client_credentials(1);
        let client = connecting_driver(
            client_config(version, Some(credentials), fixtures::root_certificate()),
            address,
        );
        let leaf = |credentials: TlsCredentials| Some(credentials.leaf_certificate().to_vec());
        assert_eq!(
            client.next_event(),
            TestEvent::Connected(
                OURS,
                Some([127, 0, 0, 1].into()),
                address,
                leaf(fixtures::server_credentials(2))
            )
        );
        assert_eq!(server.next_event(), TestEvent::Accepted(THEIRS, ListenerId::from_number(0)));
        let TestEvent::Connected(THEIRS, _, _, certificate) = server.next_event() else { panic!("it is up") };
        assert_eq!(certificate, leaf(fixtures::client_credentials(1)));

        let sent: Vec<u8> = (0..300_000_u32).map(|i| (i / 5) as u8).collect();
        client.send_command(TestCommand::Write(OURS, sent.clone()));
        assert!(client.read_octets(OURS, sent.len()) == sent, "what came back is what was sent");
        client.send_command(TestCommand::Shutdown(OURS));
        let end = |live: &LiveDriver| {
            live.wait_for(|heard| match heard {
                TestEvent::Closed(_, reason) => Some(*reason),
                _ => None,
            })
        };
        assert_eq!((end(&server), end(&client)), (CloseReason::Closed, CloseReason::Closed));
        let counters = server.counters.read();
        assert_eq!((counters.tls_handshakes, counters.connections_open), (1, 0));
        assert_eq!(counters.stream_octets_in, 300_000);
        client.stop();
        server.stop();
    }
}

#[test]
fn what_is_written_before_the_handshake_follows_it() {
    let (server, address) =
        serving_driver(&TlsServer::new(server_config(TlsVersion::Tls13, 1)), patient_settings());
    let config =
        client_config(TlsVersion::Tls13, Some(fixtures::client_credentials(1)), fixtures::root_certificate());
    let client = connecting_driver(config, address);
    client.send_command(TestCommand::Write(OURS, b"at once".to_vec()));
    assert_eq!(client.read_octets(OURS, 7), b"at once");
    client.stop();
    server.stop();
}

#[test]
fn a_client_of_another_authority_is_refused() {
    for version in [TlsVersion::Tls12, TlsVersion::Tls13] {
        let (server, address) =
            serving_driver(&TlsServer::new(server_config(version, 1)), patient_settings());
        let foreign = Some(fixtures::untrusted_client_credentials());
        let client =
            connecting_driver(client_config(version, foreign, fixtures::root_certificate()), address);
        // In TLS 1.3 the client is up before the server has verified its certificate.
        let reason = client.wait_for(|heard| match heard {
            TestEvent::Closed(OURS, reason) => Some(*reason),
            _ => None,
        });
        let expected = if version == TlsVersion::Tls12 { CloseReason::Refused } else { CloseReason::Reset };
        assert_eq!(reason, expected);
        server.wait_for_counters(|c| c.tls_certificate == 1 && c.connections_open == 0);
        assert_eq!(client.counters.read().tls_alert, 1);
        client.stop();
        server.stop();
    }
}

#[test]
fn a_client_without_certificate_is_refused() {
    let (server, address) =
        serving_driver(&TlsServer::new(server_config(TlsVersion::Tls12, 1)), patient_settings());
    let client =
        connecting_driver(client_config(TlsVersion::Tls12, None, fixtures::root_certificate()), address);
    assert_eq!(client.next_event(), TestEvent::Closed(OURS, CloseReason::Refused));
    server.wait_for_counters(|c| c.tls_certificate == 1);
    client.stop();
    server.stop();
}

#[test]
fn a_server_of_another_authority_is_refused() {
    let (server, address) =
        serving_driver(&TlsServer::new(server_config(TlsVersion::Tls13, 1)), patient_settings());
    // A certificate of no authority for the server's.
    let foreign = fixtures::untrusted_client_credentials();
    let client =
        connecting_driver(client_config(TlsVersion::Tls13, None, foreign.leaf_certificate()), address);
    assert_eq!(client.next_event(), TestEvent::Closed(OURS, CloseReason::Refused));
    assert_eq!(client.counters.read().tls_certificate, 1);
    server.wait_for_counters(|c| c.tls_alert == 1 && c.connections_open == 0);
    client.stop();
    server.stop();
}

#[test]
fn plain_text_to_a_tls_port_is_counted_and_answered_by_an_alert() {
    let (server, address) =
        serving_driver(&TlsServer::new(server_config(TlsVersion::Tls13, 1)), patient_settings());
    let mut stream = TcpStream::connect(address).expect("it listens");
    stream.set_read_timeout(Some(TEST_TIMEOUT)).expect("a timeout can be set");
    stream.write_all(b"GET / HTTP/1.0\r\n\r\n").expect("it takes a few octets");
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).expect("it ends in good order");
    // RFC 8446 section 5.1: content type 21 is an alert.
    assert_eq!(answer.first(), Some(&21));
    drop(stream);
    server.wait_for_counters(|c| c.tls_not_tls == 1 && c.connections_open == 0);
    server.stop();
}

#[test]
fn who_says_nothing_is_not_waited_for_and_who_leaves_is_counted() {
    let settings = DriverConfig { handshake_timeout: Duration::from_millis(30), ..patient_settings() };
    let (server, address) = serving_driver(&TlsServer::new(server_config(TlsVersion::Tls13, 1)), settings);
    let silent = TcpStream::connect(address).expect("it listens");
    server.wait_for_counters(|c| c.tls_timeout == 1 && c.connections_open == 0);
    drop(silent);
    server.stop();

    let (server, address) =
        serving_driver(&TlsServer::new(server_config(TlsVersion::Tls13, 1)), patient_settings());
    drop(TcpStream::connect(address).expect("it listens"));
    server.wait_for_counters(|c| c.tls_closed == 1 && c.connections_open == 0);
    server.stop();
}

#[test]
fn new_connections_get_a_replaced_certificate_and_old_ones_stay() {
    let tls = TlsServer::new(server_config(TlsVersion::Tls13, 1));
    let (server, address) = serving_driver(&tls, patient_settings());
    let config =
        client_config(TlsVersion::Tls13, Some(fixtures::client_credentials(1)), fixtures::root_certificate());
    let shown = |live: &LiveDriver| match live.next_event() {
        TestEvent::Connected(OURS, _, _, certificate) => certificate,
        other => panic!("it is up before {other:?}"),
    };
    let old = connecting_driver(config.clone(), address);
    assert_eq!(shown(&old).as_deref(), Some(fixtures::server_credentials(1).leaf_certificate()));
    tls.replace(server_config(TlsVersion::Tls13, 3));
    let new = connecting_driver(config, address);
    assert_eq!(shown(&new).as_deref(), Some(fixtures::server_credentials(3).leaf_certificate()));
    old.send_command(TestCommand::Write(OURS, b"still here".to_vec()));
    assert_eq!(old.read_octets(OURS, 10), b"still here");
    old.stop();
    new.stop();
    server.stop();
}

#[test]
fn connections_whose_peers_are_not_trusted_any_more_are_reset() {
    let accepting = |roots: &[u8]| {
        ServerConfig::new(TlsServerOptions {
            versions: TlsVersion::Tls13.into(),
            credentials: fixtures::server_credentials(1),
            client_roots: Some(TrustRoots::from_der([roots])),
            resumption: None,
            clock: SharedWallClock::from_time(WALL_TIME),
            key_log: None,
        })
        .expect("the fixtures are good")
    };
    let foreign = fixtures::untrusted_client_credentials();
    let up = |live: &LiveDriver| {
        live.wait_for(|heard| matches!(heard, TestEvent::Connected(..)).then_some(()));
    };
    let end = |live: &LiveDriver| {
        live.wait_for(|heard| match heard {
            TestEvent::Closed(_, reason) => Some(*reason),
            _ => None,
        })
    };
    let config =
        |roots: &[u8]| client_config(TlsVersion::Tls13, Some(fixtures::client_credentials(1)), roots);

    // Accepted connections.
    let server_tls = TlsServer::new(accepting(fixtures::root_certificate()));
    let (server, address) = serving_driver(&server_tls, patient_settings());
    let client = connecting_driver(config(fixtures::root_certificate()), address);
    up(&client);
    up(&server);
    server_tls.replace(accepting(fixtures::root_certificate()));
    client.send_command(TestCommand::Write(OURS, b"still here".to_vec()));
    assert_eq!(client.read_octets(OURS, 10), b"still here");
    server_tls.replace(accepting(foreign.leaf_certificate()));
    assert_eq!((end(&server), end(&client)), (CloseReason::Reset, CloseReason::Reset));
    server.wait_for_counters(|c| c.tls_distrusted == 1 && c.connections_open == 0);
    client.stop();
    server.stop();

    // Opened connections.
    let (server, address) =
        serving_driver(&TlsServer::new(server_config(TlsVersion::Tls13, 1)), patient_settings());
    let client_tls = TlsClient::new(config(fixtures::root_certificate()));
    let tls = client_tls.clone();
    let client = calling_by(address, move |_| OutgoingConnectionSecurity::Tls(tls.clone()));
    up(&client);
    client_tls.replace(config(fixtures::root_certificate()));
    client.send_command(TestCommand::Write(OURS, b"still here".to_vec()));
    assert_eq!(client.read_octets(OURS, 10), b"still here");
    client_tls.replace(config(foreign.leaf_certificate()));
    assert_eq!(end(&client), CloseReason::Reset);
    client.wait_for_counters(|c| c.tls_distrusted == 1 && c.connections_open == 0);
    client.stop();
    server.stop();
}
