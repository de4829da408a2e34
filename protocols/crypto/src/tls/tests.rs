//! Real and recorded handshakes against each other.

mod issued;
mod sessions;
mod stream;

use super::*;
use crate::fault::{CertificateFault, TlsFault};
use proptest::prelude::*;
use std::sync::Arc;

/// The number of real handshakes compared with the recording, for each configuration.
const HANDSHAKES: usize = 200;

struct HandshakeSetup {
    version: TlsVersion,
    client: Option<TlsCredentials>,
    client_roots: TrustRoots,
    chain: u8,
    resumption: Option<TlsResumptionConfig>,
    clock: SharedWallClock,
    client_log: Option<KeyLog>,
    server_log: Option<KeyLog>,
    server_name: Option<String>,
}

impl HandshakeSetup {
    fn new(version: TlsVersion, chain: u8) -> Self {
        Self {
            version,
            client: Some(fixtures::client_credentials(chain)),
            client_roots: TrustRoots::from_der([fixtures::root_certificate()]),
            chain,
            resumption: None,
            clock: SharedWallClock::from_time(fixtures::WALL_TIME),
            client_log: None,
            server_log: None,
            server_name: None,
        }
    }

    fn into_configs(self) -> (ClientConfig, ServerConfig) {
        let client = ClientConfig::new(TlsClientOptions {
            versions: self.version.into(),
            credentials: self.client,
            roots: TrustRoots::from_der([fixtures::root_certificate()]),
            server_name: self.server_name,
            resumption: self.resumption,
            clock: self.clock.clone(),
            key_log: self.client_log,
        });
        let server = ServerConfig::new(TlsServerOptions {
            versions: self.version.into(),
            credentials: fixtures::server_credentials(self.chain),
            client_roots: Some(self.client_roots),
            resumption: self.resumption,
            clock: self.clock,
            key_log: self.server_log,
        });
        (client.expect("client options"), server.expect("server options"))
    }
}

/// Returns flights as (sender, octets), until neither side sends more.
fn run_handshake(client: &mut dyn TlsEngine, server: &mut dyn TlsEngine) -> Vec<(TlsHandshakeSide, usize)> {
    let mut flights = Vec::new();
    loop {
        let mut quiet = true;
        for side in [TlsHandshakeSide::Client, TlsHandshakeSide::Server] {
            let (sender, receiver): (&mut dyn TlsEngine, &mut dyn TlsEngine) = match side {
                TlsHandshakeSide::Client => (client, server),
                TlsHandshakeSide::Server => (server, client),
            };
            let mut bytes = Vec::new();
            sender.write_tls(&mut bytes);
            if !bytes.is_empty() {
                flights.push((side, bytes.len()));
                let _ = receiver.read_tls(&bytes);
                quiet = false;
            }
        }
        if quiet {
            return flights;
        }
    }
}

fn flight_lengths(recording: &TlsHandshakeRecording) -> Vec<(TlsHandshakeSide, usize)> {
    recording.flights().iter().map(|flight| (flight.sender(), flight.octet_count())).collect()
}

fn exported_keys(engine: &dyn TlsEngine, context: Option<&[u8]>) -> [u8; 128] {
    let mut out = [0; 128];
    engine
        .export_keying_material("client EAP encryption", context, &mut out)
        .expect("the handshake is complete");
    out
}

fn real_engines(setup: HandshakeSetup) -> (TlsClientEngine, TlsServerEngine) {
    let (client, server) = setup.into_configs();
    (TlsClientEngine::new(&client).expect("client"), TlsServerEngine::new(&server).expect("server"))
}

fn version_chain_pairs() -> impl Iterator<Item = (TlsVersion, u8)> {
    [TlsVersion::Tls12, TlsVersion::Tls13].into_iter().flat_map(|v| (2..=4).map(move |chain| (v, chain)))
}

#[test]
fn both_sides_export_the_same_keys_and_know_each_other() {
    for (version, chain) in version_chain_pairs().chain([(TlsVersion::Tls12, 1), (TlsVersion::Tls13, 1)]) {
        let (mut client, mut server) = real_engines(HandshakeSetup::new(version, chain));
        let mut out = [0; 4];
        assert_eq!(client.export_keying_material("x", None, &mut out), Err(TlsError::Handshaking));
        assert_eq!(client.write_application(&[0]), Err(TlsError::Handshaking));
        run_handshake(&mut client, &mut server);
        for engine in [&client as &dyn TlsEngine, &server] {
            assert!(!engine.is_handshaking());
            assert_eq!(engine.version(), Some(version));
            assert!(!engine.is_resumed());
            assert_eq!(engine.error(), None);
        }
        assert_eq!(exported_keys(&client, None), exported_keys(&server, None));
        assert_eq!(exported_keys(&client, Some(&[13])), exported_keys(&server, Some(&[13])));
        assert_ne!(exported_keys(&client, Some(&[13])), exported_keys(&client, None));
        let (leaf_of_client, leaf_of_server) =
            (fixtures::client_credentials(chain), fixtures::server_credentials(chain));
        assert_eq!(server.peer_certificate(), Some(leaf_of_client.leaf_certificate()));
        assert_eq!(client.peer_certificate(), Some(leaf_of_server.leaf_certificate()));
        assert_eq!(server.peer_chain().len(), usize::from(chain));
        assert_eq!(server.peer_chain()[0], leaf_of_client.leaf_certificate());
        // A chain of n below the root: n signatures of authorities, and that of the handshake.
        let work = TlsOperationCounts { sign: 1, verify: u32::from(chain) + 1, key_exchange: 1 };
        assert_eq!((client.take_work(), server.take_work()), (work, work));
        assert_eq!(client.take_work(), TlsOperationCounts::default());
    }
}

#[test]
fn a_client_offers_one_suite_and_one_group() {
    for (version, wanted) in [
        // TLS 1.2 adds the signalling value for safe renegotiation (RFC 5746 section 3.3).
        (TlsVersion::Tls12, &[0xc0, 0x2f, 0x00, 0xff][..]),
        (TlsVersion::Tls13, &[0x13, 0x01][..]),
    ] {
        let (mut client, _) = real_engines(HandshakeSetup::new(version, 2));
        let mut hello = Vec::new();
        client.write_tls(&mut hello);
        // Record and handshake headers, legacy version, random, session identifier, suites.
        let at = 5 + 4 + 2 + 32;
        let at = at + 1 + usize::from(hello[at]);
        let length = usize::from(hello[at + 1]);
        assert_eq!(&hello[at + 2..at + 2 + length], wanted);
        // supported_groups with only X25519 (RFC 8446 section 4.2.7).
        let groups = [0, 10, 0, 4, 0, 2, 0, 29];
        assert!(hello.windows(groups.len()).any(|w| w == groups), "{hello:02x?}");
    }
}

#[test]
fn unread_data_waits_and_a_flood_ends_the_connection() {
    let (client, server) = HandshakeSetup::new(TlsVersion::Tls13, 1).into_configs();
    let recording = Arc::new(record_handshake(&client, &server).expect("a recording"));
    let pairs: [(Box<dyn TlsEngine>, Box<dyn TlsEngine>); 2] = [
        (
            Box::new(TlsClientEngine::new(&client).expect("client")),
            Box::new(TlsServerEngine::new(&server).expect("server")),
        ),
        (Box::new(RecordedTls::for_client(recording.clone())), Box::new(RecordedTls::for_server(recording))),
    ];
    for (mut client, mut server) in pairs {
        assert_eq!((client.version(), server.version()), (None, None));
        run_handshake(&mut *client, &mut *server);
        let mut bytes = Vec::new();
        client.write_application(&vec![1; MAX_APPLICATION]).expect("complete");
        client.write_tls(&mut bytes);
        server.read_tls(&bytes).expect("as much as may wait");
        bytes.clear();
        client.write_application(&[1]).expect("complete");
        client.write_tls(&mut bytes);
        assert!(matches!(server.read_tls(&bytes), Err(TlsError::Failed(..))));
        let mut data = Vec::new();
        server.take_application(&mut data);
        assert!(data.len() >= MAX_APPLICATION);
    }
}

#[test]
fn memory_grows_after_the_handshake_and_with_waiting_data() {
    let (client, server) = HandshakeSetup::new(TlsVersion::Tls13, 2).into_configs();
    let (mut client, mut server) =
        (TlsClientEngine::new(&client).unwrap(), TlsServerEngine::new(&server).unwrap());
    let before = server.memory_octets();
    run_handshake(&mut client, &mut server);
    let agreed = server.memory_octets();
    assert!(size_of_val(&server) < before && before < agreed, "{before}, {agreed}");
    client.write_application(&[7; 5000]).unwrap();
    let mut wire = Vec::new();
    client.write_tls(&mut wire);
    server.read_tls(&wire).unwrap();
    assert!(server.memory_octets() >= agreed + 5000, "{agreed}, {}", server.memory_octets());
}

#[test]
fn real_handshakes_match_the_recorded_lengths_and_work() {
    for (version, chain) in version_chain_pairs() {
        let (client, server) = HandshakeSetup::new(version, chain).into_configs();
        let recording = record_handshake(&client, &server).expect("a recording");
        assert!(recording.has_succeeded() && recording.version() == version && !recording.is_resumed());
        let recording = Arc::new(recording);
        let mut replayed_client = RecordedTls::for_client(recording.clone());
        let mut replayed_server = RecordedTls::for_server(recording.clone());
        assert_eq!(run_handshake(&mut replayed_client, &mut replayed_server), flight_lengths(&recording));
        let replayed = (replayed_client.take_work(), replayed_server.take_work());
        for _ in 0..HANDSHAKES {
            let mut client = TlsClientEngine::new(&client).expect("client");
            let mut server = TlsServerEngine::new(&server).expect("server");
            assert_eq!(
                run_handshake(&mut client, &mut server),
                flight_lengths(&recording),
                "{version:?} chain {chain}"
            );
            assert_eq!((client.take_work(), server.take_work()), replayed);
        }
    }
}

#[test]
fn a_recording_is_replayed_elsewhere_as_it_was() {
    for (version, chain) in version_chain_pairs() {
        let (client, server) = HandshakeSetup::new(version, chain).into_configs();
        let recording = record_handshake(&client, &server).expect("a recording");
        let bytes = recording.encode().expect("both sides completed it");
        assert_eq!(
            TlsHandshakeRecording::decode(&bytes).as_ref(),
            Some(&recording),
            "{version:?} chain {chain}"
        );
        for length in 0..bytes.len() {
            assert_eq!(TlsHandshakeRecording::decode(&bytes[..length]), None, "cut to {length}");
        }
        assert_eq!(TlsHandshakeRecording::decode(&[&bytes[..], &[0]].concat()), None);
    }
    let refused = HandshakeSetup {
        client: Some(fixtures::untrusted_client_credentials()),
        ..HandshakeSetup::new(TlsVersion::Tls13, 2)
    };
    let (client, server) = refused.into_configs();
    assert_eq!(record_handshake(&client, &server).expect("a recording").encode(), None);
}

#[test]
fn chains_make_flights_of_the_size_that_radius_has_to_split() {
    let of = |version, chain| {
        let (client, server) = HandshakeSetup::new(version, chain).into_configs();
        flight_lengths(&record_handshake(&client, &server).expect("a recording"))
    };
    for version in [TlsVersion::Tls12, TlsVersion::Tls13] {
        for chain in 2..4 {
            let (short, long) = (of(version, chain), of(version, chain + 1));
            for (flight, (a, b)) in short.iter().zip(&long).enumerate().skip(1).take(2) {
                assert!((870..=935).contains(&(b.1 - a.1)), "{version:?} flight {flight}: {a:?} {b:?}");
            }
        }
    }
}

#[test]
fn recorded_engines_agree_with_real_ones_in_every_query() {
    for (version, chain) in version_chain_pairs() {
        let (client, server) = HandshakeSetup::new(version, chain).into_configs();
        let recording = Arc::new(record_handshake(&client, &server).expect("a recording"));
        let mut pairs: [(Box<dyn TlsEngine>, Box<dyn TlsEngine>); 2] = [
            (
                Box::new(TlsClientEngine::new(&client).expect("client")),
                Box::new(TlsServerEngine::new(&server).expect("server")),
            ),
            (
                Box::new(RecordedTls::for_client(recording.clone())),
                Box::new(RecordedTls::for_server(recording.clone())),
            ),
        ];
        let mut seen = Vec::new();
        for (client, server) in &mut pairs {
            let mut steps = Vec::new();
            loop {
                let mut bytes = Vec::new();
                client.write_tls(&mut bytes);
                server.read_tls(&bytes).expect("the client's flight");
                let mut answer = Vec::new();
                server.write_tls(&mut answer);
                if bytes.is_empty() && answer.is_empty() {
                    break;
                }
                client.read_tls(&answer).expect("the server's flight");
                steps.push((
                    (bytes.len(), answer.len()),
                    (client.is_handshaking(), server.is_handshaking()),
                    (client.take_work(), server.take_work()),
                    (
                        client.peer_certificate().map(<[u8]>::to_vec),
                        server.peer_certificate().map(<[u8]>::to_vec),
                    ),
                ));
            }
            assert_eq!(exported_keys(&**client, Some(&[13])), exported_keys(&**server, Some(&[13])));
            assert_ne!(exported_keys(&**client, Some(&[13])), exported_keys(&**client, None));
            let mut commitment = Vec::new();
            server.write_application(&[0]).expect("complete");
            server.write_tls(&mut commitment);
            let (first, second) = commitment.split_at(7);
            let mut data = Vec::new();
            client.read_tls(first).expect("half a record");
            client.take_application(&mut data);
            assert_eq!(data, [] as [u8; 0]);
            client.read_tls(second).expect("the other half");
            client.take_application(&mut data);
            assert_eq!(data, [0]);
            client.write_application(&[7; 40_000]).expect("complete");
            let mut long = Vec::new();
            client.write_tls(&mut long);
            server.read_tls(&long).expect("application data");
            data.clear();
            server.take_application(&mut data);
            assert_eq!(data, [7; 40_000]);
            seen.push((steps, commitment.len(), long.len(), client.version(), server.is_resumed()));
        }
        assert_eq!(seen[0], seen[1], "{version:?} chain {chain}");
    }
}

#[test]
fn a_foreign_client_is_refused_with_an_alert_real_and_recorded() {
    for version in [TlsVersion::Tls12, TlsVersion::Tls13] {
        let setup = HandshakeSetup {
            client: Some(fixtures::untrusted_client_credentials()),
            ..HandshakeSetup::new(version, 2)
        };
        let (client, server) = setup.into_configs();
        let recording = Arc::new(record_handshake(&client, &server).expect("a recording"));
        assert!(!recording.has_succeeded());
        let mut pairs: [(Box<dyn TlsEngine>, Box<dyn TlsEngine>); 2] = [
            (
                Box::new(TlsClientEngine::new(&client).expect("client")),
                Box::new(TlsServerEngine::new(&server).expect("server")),
            ),
            (
                Box::new(RecordedTls::for_client(recording.clone())),
                Box::new(RecordedTls::for_server(recording.clone())),
            ),
        ];
        for (client, server) in &mut pairs {
            let flights = run_handshake(&mut **client, &mut **server);
            assert_eq!(flights, flight_lengths(&recording));
            assert_eq!(flights.len(), 4);
            // unknown_ca (RFC 8446 section 6.2)
            assert_eq!(client.error(), Some(&TlsError::AlertReceived(Alert(48))));
            let unknown = TlsFault::Certificate(CertificateFault::UnknownAuthority);
            assert_eq!(server.error().map(TlsError::fault), Some(unknown), "{server:?}");
            assert!(server.is_handshaking());
            assert_eq!(server.peer_certificate(), None);
            assert_eq!(server.read_tls(&[0]), Err(server.error().cloned().expect("refused")));
            let mut out = [0; 4];
            assert_eq!(server.export_keying_material("x", None, &mut out), Err(TlsError::Handshaking));
        }
        assert_eq!(pairs[0].0.take_work(), pairs[1].0.take_work());
        assert_eq!(pairs[0].1.take_work(), pairs[1].1.take_work());
    }
}

#[test]
fn a_client_without_credentials_is_refused() {
    for version in [TlsVersion::Tls12, TlsVersion::Tls13] {
        let (mut client, mut server) =
            real_engines(HandshakeSetup { client: None, ..HandshakeSetup::new(version, 2) });
        run_handshake(&mut client, &mut server);
        assert_eq!(server.error().map(TlsError::fault), Some(TlsFault::NoCertificate));
        assert!(matches!(client.error(), Some(TlsError::AlertReceived(_))));
    }
}

#[test]
fn a_server_is_trusted_by_its_chain_and_any_configured_name() {
    for (name, trusted) in [(fixtures::SERVER_NAME, true), ("other.usher.test", false)] {
        let setup =
            HandshakeSetup { server_name: Some(name.into()), ..HandshakeSetup::new(TlsVersion::Tls13, 2) };
        let (mut client, mut server) = real_engines(setup);
        run_handshake(&mut client, &mut server);
        let fault = (!trusted).then_some(TlsFault::Certificate(CertificateFault::Name));
        assert_eq!(client.error().map(TlsError::fault), fault, "{name}");
        assert_eq!(matches!(server.error(), Some(TlsError::AlertReceived(_))), !trusted);
    }
}

#[test]
fn certificates_are_judged_by_the_given_wall_time() {
    let clock = SharedWallClock::from_time(fixtures::WALL_TIME);
    let (client, server) =
        HandshakeSetup { clock: clock.clone(), ..HandshakeSetup::new(TlsVersion::Tls12, 2) }.into_configs();
    for (secs, valid) in [(1_782_864_000, true), (1_735_689_600, false), (2_461_449_600, false)] {
        clock.set(usher_core::WallTime::from_unix_secs(secs));
        let recording = record_handshake(&client, &server).expect("a recording");
        assert_eq!(recording.has_succeeded(), valid, "{secs}");
    }
}

#[test]
fn sessions_are_taken_up_again_where_configured() {
    for version in [TlsVersion::Tls12, TlsVersion::Tls13] {
        let setup = HandshakeSetup {
            resumption: Some(TlsResumptionConfig::default()),
            ..HandshakeSetup::new(version, 3)
        };
        let (client, server) = setup.into_configs();
        let full = record_handshake(&client, &server).expect("a recording");
        let resumed = record_handshake(&client, &server).expect("a recording");
        assert!(!full.is_resumed() && resumed.is_resumed() && resumed.has_succeeded());
        let octets =
            |recording: &TlsHandshakeRecording| flight_lengths(recording).iter().map(|f| f.1).sum::<usize>();
        assert!(octets(&resumed) * 4 < octets(&full), "{} of {}", octets(&resumed), octets(&full));
        let signatures: u32 =
            resumed.flights().iter().map(|f| f.receiver_work().sign + f.receiver_work().verify).sum();
        assert_eq!(signatures, 0);
        for recording in [full, resumed] {
            let recording = Arc::new(recording);
            let mut client = RecordedTls::for_client(recording.clone());
            let mut server = RecordedTls::for_server(recording.clone());
            assert_eq!(run_handshake(&mut client, &mut server), flight_lengths(&recording));
            assert_eq!(
                (client.is_resumed(), server.is_resumed()),
                (recording.is_resumed(), recording.is_resumed())
            );
            assert!(!client.is_handshaking() && !server.is_handshaking());
        }
        // Another holder has no session to resume.
        let mut other = TlsClientEngine::new_for_session_holder(&client, 1).expect("client");
        let mut at = TlsServerEngine::new_for_session_purpose(&server, 0).expect("server");
        run_handshake(&mut other, &mut at);
        assert!(!other.is_resumed() && !other.is_handshaking());
        at.keep_session(TlsSessionMetadata {
            subject: b"other".to_vec(),
            credential: [1; 32],
            data: Vec::new(),
        });
        let mut again = TlsClientEngine::new_for_session_holder(&client, 1).expect("client");
        let mut at = TlsServerEngine::new_for_session_purpose(&server, 0).expect("server");
        run_handshake(&mut again, &mut at);
        assert!(again.is_resumed() && at.is_resumed());
        assert_eq!(exported_keys(&again, None), exported_keys(&at, None));
        assert_eq!(at.peer_certificate(), Some(fixtures::client_credentials(3).leaf_certificate()));
    }
}

#[test]
fn tickets_are_as_many_as_configured() {
    let after_finished = |resumption| {
        let (client, server) =
            HandshakeSetup { resumption, ..HandshakeSetup::new(TlsVersion::Tls13, 2) }.into_configs();
        let recording = record_handshake(&client, &server).expect("a recording");
        recording.flights().get(3).map_or(0, TlsHandshakeFlight::octet_count)
    };
    let tickets =
        |tickets| Some(TlsResumptionConfig { sessions: 16, tickets, ..TlsResumptionConfig::default() });
    assert_eq!(after_finished(None), 0);
    assert_eq!(after_finished(tickets(0)), 0);
    let one = after_finished(tickets(1));
    assert!(one > 0);
    assert!(after_finished(tickets(3)) > 2 * one);
}

#[test]
fn the_key_log_has_each_secret_once_and_alike_on_both_sides() {
    for (version, labels) in [
        (TlsVersion::Tls12, &["CLIENT_RANDOM"][..]),
        (
            TlsVersion::Tls13,
            &[
                "CLIENT_HANDSHAKE_TRAFFIC_SECRET",
                "SERVER_HANDSHAKE_TRAFFIC_SECRET",
                "CLIENT_TRAFFIC_SECRET_0",
                "SERVER_TRAFFIC_SECRET_0",
                "EXPORTER_SECRET",
            ][..],
        ),
    ] {
        let (at_client, at_server) = (KeyLog::new(), KeyLog::new());
        let (mut client, mut server) = real_engines(HandshakeSetup {
            client_log: Some(at_client.clone()),
            server_log: Some(at_server.clone()),
            ..HandshakeSetup::new(version, 2)
        });
        run_handshake(&mut client, &mut server);
        let sorted = |log: &KeyLog| {
            let mut lines: Vec<String> = log.text().lines().map(str::to_owned).collect();
            lines.sort();
            lines
        };
        let lines = sorted(&at_client);
        assert_eq!(lines, sorted(&at_server));
        assert_eq!(lines.len(), labels.len());
        for label in labels {
            let line = lines.iter().find(|l| l.split(' ').next() == Some(label)).expect(label);
            let fields: Vec<&str> = line.split(' ').collect();
            let secret = if version == TlsVersion::Tls12 { 96 } else { 64 };
            assert_eq!((fields.len(), fields[1].len(), fields[2].len()), (3, 64, secret), "{line}");
            assert!(fields[1..].iter().all(|f| f.chars().all(|c| c.is_ascii_hexdigit())));
        }
        assert!(!at_client.take_text().is_empty());
        assert_eq!(at_client.text(), "");
    }
}

#[test]
fn octets_may_come_one_by_one() {
    for version in [TlsVersion::Tls12, TlsVersion::Tls13] {
        let (client, server) = HandshakeSetup::new(version, 2).into_configs();
        let recording = Arc::new(record_handshake(&client, &server).expect("a recording"));
        let mut pairs: [(Box<dyn TlsEngine>, Box<dyn TlsEngine>); 2] = [
            (
                Box::new(TlsClientEngine::new(&client).expect("client")),
                Box::new(TlsServerEngine::new(&server).expect("server")),
            ),
            (
                Box::new(RecordedTls::for_client(recording.clone())),
                Box::new(RecordedTls::for_server(recording)),
            ),
        ];
        for (client, server) in &mut pairs {
            for _ in 0..3 {
                let mut bytes = Vec::new();
                client.write_tls(&mut bytes);
                for byte in bytes.drain(..) {
                    server.read_tls(&[byte]).expect("one octet");
                }
                server.write_tls(&mut bytes);
                for byte in bytes {
                    client.read_tls(&[byte]).expect("one octet");
                }
            }
            assert!(!client.is_handshaking() && !server.is_handshaking());
        }
    }
}

#[test]
fn a_changed_octet_in_any_flight_fails_both_kinds_of_engine() {
    for version in [TlsVersion::Tls12, TlsVersion::Tls13] {
        let (client, server) = HandshakeSetup::new(version, 2).into_configs();
        let recording = Arc::new(record_handshake(&client, &server).expect("a recording"));
        for changed in 1..3 {
            let pairs: [(Box<dyn TlsEngine>, Box<dyn TlsEngine>); 2] = [
                (
                    Box::new(TlsClientEngine::new(&client).expect("client")),
                    Box::new(TlsServerEngine::new(&server).expect("server")),
                ),
                (
                    Box::new(RecordedTls::for_client(recording.clone())),
                    Box::new(RecordedTls::for_server(recording.clone())),
                ),
            ];
            for (client, server) in pairs {
                let (mut sender, mut receiver) = (client, server);
                for flight in 0..=changed {
                    let mut bytes = Vec::new();
                    sender.write_tls(&mut bytes);
                    if flight == changed {
                        let middle = bytes.len() / 2;
                        bytes[middle] ^= 1;
                        let error = receiver.read_tls(&bytes).expect_err("a changed octet");
                        assert!(matches!(error, TlsError::Failed(..)), "{error}");
                        let mut alert = Vec::new();
                        receiver.write_tls(&mut alert);
                        assert!(!alert.is_empty());
                        let _ = sender.read_tls(&alert);
                        assert!(matches!(sender.error(), Some(TlsError::AlertReceived(_))), "{sender:?}");
                    } else {
                        receiver.read_tls(&bytes).expect("an unchanged flight");
                    }
                    core::mem::swap(&mut sender, &mut receiver);
                }
            }
        }
    }
}

#[test]
fn pem_and_der_give_the_same() {
    let wrap = |kind: &str, der: &[u8]| {
        let base64 = encode_base64(der);
        format!("-----BEGIN {kind}-----\n{base64}\n-----END {kind}-----\n").into_bytes()
    };
    let (leaf, key) = (
        fixtures::client_credentials(1).leaf_certificate().to_vec(),
        fixtures::client_credentials(1).key_der().to_vec(),
    );
    let read =
        TlsCredentials::from_pem(&wrap("CERTIFICATE", &leaf), &wrap("PRIVATE KEY", &key)).expect("PEM");
    assert_eq!((read.leaf_certificate(), read.key_der(), read.chain_len()), (&leaf[..], &key[..], 1));
    assert!(TrustRoots::from_pem(&wrap("CERTIFICATE", fixtures::root_certificate())).is_ok());
    assert!(matches!(TrustRoots::from_pem(b"none here"), Err(TlsError::Config(_))));
    assert!(matches!(TlsCredentials::from_pem(b"", b""), Err(TlsError::Config(_))));
}

#[test]
fn a_key_that_cannot_be_used_is_told_from_its_certificate() {
    let [chain, key, _] = fixtures::server_chain_pem_texts(1);
    let of = |key: &str| match TlsCredentials::from_pem(chain.as_bytes(), key.as_bytes()) {
        Err(TlsError::Key(why)) => why,
        other => panic!("{other:?}"),
    };
    assert!(of(&fixtures::client_chain_pem_texts(1)[1]).contains("not the key of the certificate"));
    assert!(of(&chain).contains("no private key"));
    // RFC 7468 section 11, and RFC 1421 in OpenSSL's form.
    let pkcs8 = key.replace("PRIVATE KEY", "ENCRYPTED PRIVATE KEY");
    let header = "RSA PRIVATE KEY-----\nProc-Type: 4,ENCRYPTED\nDEK-Info: AES-256-CBC,00112233445566778899AABBCCDDEEFF\n\n";
    let older = key.replacen("PRIVATE KEY-----\n", header, 1).replace("END PRIVATE", "END RSA PRIVATE");
    for encrypted in [&pkcs8, &older, &older.replace('\n', "\r\n")] {
        let why = of(encrypted);
        assert!(why.contains("it is encrypted") && why.contains("openssl pkey"), "{why}: {encrypted}");
    }
    // A file may also hold the same key without a passphrase.
    assert!(TlsCredentials::from_pem(chain.as_bytes(), (pkcs8 + &key).as_bytes()).is_ok());
}

fn encode_base64(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::new();
    for (n, chunk) in bytes.chunks(3).enumerate() {
        let word = (0..3).fold(0_u32, |w, i| w << 8 | u32::from(chunk.get(i).copied().unwrap_or(0)));
        for i in 0..4 {
            let digit = DIGITS[(word >> (18 - 6 * i) & 63) as usize];
            text.push(if i <= chunk.len() { char::from(digit) } else { '=' });
        }
        if n % 16 == 15 {
            text.push('\n');
        }
    }
    text
}

#[test]
fn options_that_cannot_work_are_refused_with_the_part_named() {
    let options = |roots, credentials, server_name| TlsClientOptions {
        versions: TlsVersion::Tls13.into(),
        credentials,
        roots,
        server_name,
        resumption: None,
        clock: SharedWallClock::from_time(fixtures::WALL_TIME),
        key_log: None,
    };
    let roots = || TrustRoots::from_der([fixtures::root_certificate()]);
    let mixed = TlsCredentials::from_der(
        [fixtures::client_credentials(1).leaf_certificate()],
        fixtures::server_credentials(1).key_der(),
    );
    let nonsense = TlsCredentials::from_der([fixtures::client_credentials(1).leaf_certificate()], b"no key");
    for (options, part) in [
        (options(TrustRoots::default(), None, None), "root"),
        (options(TrustRoots::from_der([&b"no certificate"[..]]), None, None), "root"),
        (options(roots(), Some(mixed), None), "credentials"),
        (options(roots(), Some(nonsense), None), "private key"),
        (options(roots(), None, Some("no name!".into())), "server name"),
    ] {
        let error = ClientConfig::new(options).expect_err(part).to_string();
        assert!(error.contains(part), "{error}");
    }
}

#[test]
fn work_is_labelled_and_what_was_not_done_left_out() {
    let work = TlsOperationCounts { sign: 1, verify: 0, key_exchange: 2 };
    let labelled: Vec<(&str, u32)> = work.to_work_records().map(|w| (w.label.name(), w.units)).collect();
    assert_eq!(labelled, [("tls.sign", 1), ("tls.key_exchange", 2)]);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn arbitrary_octets_never_panic(
        tls13: bool,
        // The number of valid turns before the invalid data.
        turns in 0_usize..4,
        pieces in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..600), 1..6),
        header: bool,
    ) {
        let version = if tls13 { TlsVersion::Tls13 } else { TlsVersion::Tls12 };
        let (client, server) = HandshakeSetup::new(version, 1).into_configs();
        let recording = Arc::new(record_handshake(&client, &server).expect("a recording"));
        let mut pairs: [(Box<dyn TlsEngine>, Box<dyn TlsEngine>); 2] = [
            (Box::new(TlsClientEngine::new(&client).expect("client")), Box::new(TlsServerEngine::new(&server).expect("server"))),
            (Box::new(RecordedTls::for_client(recording.clone())), Box::new(RecordedTls::for_server(recording))),
        ];
        for (client, server) in &mut pairs {
            for turn in 0..turns {
                let mut bytes = Vec::new();
                if turn % 2 == 0 {
                    client.write_tls(&mut bytes);
                    server.read_tls(&bytes).expect("right so far");
                } else {
                    server.write_tls(&mut bytes);
                    client.read_tls(&bytes).expect("right so far");
                }
            }
            for engine in [client, server] {
                let mut out = Vec::new();
                for piece in &pieces {
                    let mut bytes = piece.clone();
                    if header && bytes.len() > 5 {
                        let length = (bytes.len() - 5) as u16;
                        bytes[0] = 20 + bytes[0] % 5;
                        bytes[1..3].copy_from_slice(&[3, 3]);
                        bytes[3..5].copy_from_slice(&length.to_be_bytes());
                    }
                    let error = engine.read_tls(&bytes).err();
                    prop_assert_eq!(error.as_ref(), engine.error());
                    engine.write_tls(&mut out);
                    engine.take_application(&mut out);
                }
            }
        }
    }
}
