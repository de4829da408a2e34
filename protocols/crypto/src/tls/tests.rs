//! Real and recorded handshakes against each other.

mod issued;
mod sessions;
mod stream;

use super::*;
use crate::fault::{CertificateFault, TlsFault};
use proptest::prelude::*;
use std::sync::Arc;

/// Real handshakes whose lengths are compared with the recording, for each configuration.
const HANDSHAKES: usize = 200;

struct Setup {
    version: Version,
    client: Option<Credentials>,
    client_roots: Roots,
    chain: u8,
    resumption: Option<Resumption>,
    clock: WallClock,
    client_log: Option<KeyLog>,
    server_log: Option<KeyLog>,
    server_name: Option<String>,
}

impl Setup {
    fn new(version: Version, chain: u8) -> Self {
        Self {
            version,
            client: Some(fixtures::client(chain)),
            client_roots: Roots::from_der([fixtures::root()]),
            chain,
            resumption: None,
            clock: WallClock::at(fixtures::WALL_TIME),
            client_log: None,
            server_log: None,
            server_name: None,
        }
    }

    fn configs(self) -> (ClientConfig, ServerConfig) {
        let client = ClientConfig::new(ClientOptions {
            versions: self.version.into(),
            credentials: self.client,
            roots: Roots::from_der([fixtures::root()]),
            server_name: self.server_name,
            resumption: self.resumption,
            clock: self.clock.clone(),
            key_log: self.client_log,
        });
        let server = ServerConfig::new(ServerOptions {
            versions: self.version.into(),
            credentials: fixtures::server(self.chain),
            client_roots: Some(self.client_roots),
            resumption: self.resumption,
            clock: self.clock,
            key_log: self.server_log,
        });
        (client.expect("client options"), server.expect("server options"))
    }
}

/// Flights as (sender, octets), until neither side has more to send.
fn run(client: &mut dyn TlsEngine, server: &mut dyn TlsEngine) -> Vec<(Side, usize)> {
    let mut flights = Vec::new();
    loop {
        let mut quiet = true;
        for side in [Side::Client, Side::Server] {
            let (sender, receiver): (&mut dyn TlsEngine, &mut dyn TlsEngine) = match side {
                Side::Client => (client, server),
                Side::Server => (server, client),
            };
            let mut bytes = Vec::new();
            sender.take(&mut bytes);
            if !bytes.is_empty() {
                flights.push((side, bytes.len()));
                let _ = receiver.feed(&bytes);
                quiet = false;
            }
        }
        if quiet {
            return flights;
        }
    }
}

fn lengths(recording: &Recording) -> Vec<(Side, usize)> {
    recording.flights().iter().map(|flight| (flight.from(), flight.octets())).collect()
}

fn exported(engine: &dyn TlsEngine, context: Option<&[u8]>) -> [u8; 128] {
    let mut out = [0; 128];
    engine.export("client EAP encryption", context, &mut out).expect("the handshake is complete");
    out
}

fn real(setup: Setup) -> (Client, Server) {
    let (client, server) = setup.configs();
    (Client::new(&client).expect("client"), Server::new(&server).expect("server"))
}

fn each() -> impl Iterator<Item = (Version, u8)> {
    [Version::Tls12, Version::Tls13].into_iter().flat_map(|v| (2..=4).map(move |chain| (v, chain)))
}

#[test]
fn both_sides_export_the_same_keys_and_know_each_other() {
    for (version, chain) in each().chain([(Version::Tls12, 1), (Version::Tls13, 1)]) {
        let (mut client, mut server) = real(Setup::new(version, chain));
        let mut out = [0; 4];
        assert_eq!(client.export("x", None, &mut out), Err(TlsError::Handshaking));
        assert_eq!(client.write_application(&[0]), Err(TlsError::Handshaking));
        run(&mut client, &mut server);
        for engine in [&client as &dyn TlsEngine, &server] {
            assert!(!engine.is_handshaking());
            assert_eq!(engine.version(), Some(version));
            assert!(!engine.resumed());
            assert_eq!(engine.error(), None);
        }
        assert_eq!(exported(&client, None), exported(&server, None));
        assert_eq!(exported(&client, Some(&[13])), exported(&server, Some(&[13])));
        assert_ne!(exported(&client, Some(&[13])), exported(&client, None));
        let (leaf_of_client, leaf_of_server) = (fixtures::client(chain), fixtures::server(chain));
        assert_eq!(server.peer_certificate(), Some(leaf_of_client.leaf()));
        assert_eq!(client.peer_certificate(), Some(leaf_of_server.leaf()));
        assert_eq!(server.peer_chain().len(), usize::from(chain));
        assert_eq!(server.peer_chain()[0], leaf_of_client.leaf());
        // Chain of n below the root: n signatures of authorities, and the handshake's own.
        let work = TlsWork { sign: 1, verify: u32::from(chain) + 1, key_exchange: 1 };
        assert_eq!((client.work(), server.work()), (work, work));
        assert_eq!(client.work(), TlsWork::default());
    }
}

#[test]
fn a_client_offers_one_suite_and_one_group() {
    for (version, wanted) in [
        // With TLS 1.2 goes the signalling value that it can renegotiate safely (RFC 5746 section 3.3).
        (Version::Tls12, &[0xc0, 0x2f, 0x00, 0xff][..]),
        (Version::Tls13, &[0x13, 0x01][..]),
    ] {
        let (mut client, _) = real(Setup::new(version, 2));
        let mut hello = Vec::new();
        client.take(&mut hello);
        // Headers of record and handshake, legacy version, random, session identifier, suites.
        let at = 5 + 4 + 2 + 32;
        let at = at + 1 + usize::from(hello[at]);
        let length = usize::from(hello[at + 1]);
        assert_eq!(&hello[at + 2..at + 2 + length], wanted);
        // supported_groups with X25519 alone (RFC 8446 section 4.2.7).
        let groups = [0, 10, 0, 4, 0, 2, 0, 29];
        assert!(hello.windows(groups.len()).any(|w| w == groups), "{hello:02x?}");
    }
}

#[test]
fn much_data_waits_until_it_is_taken_and_a_flood_ends_the_connection() {
    let (client, server) = Setup::new(Version::Tls13, 1).configs();
    let recording = Arc::new(record(&client, &server).expect("a recording"));
    let pairs: [(Box<dyn TlsEngine>, Box<dyn TlsEngine>); 2] = [
        (Box::new(Client::new(&client).expect("client")), Box::new(Server::new(&server).expect("server"))),
        (Box::new(RecordedTls::client(recording.clone())), Box::new(RecordedTls::server(recording))),
    ];
    for (mut client, mut server) in pairs {
        assert_eq!((client.version(), server.version()), (None, None));
        run(&mut *client, &mut *server);
        let mut bytes = Vec::new();
        client.write_application(&vec![1; MAX_APPLICATION]).expect("complete");
        client.take(&mut bytes);
        server.feed(&bytes).expect("as much as may wait");
        bytes.clear();
        client.write_application(&[1]).expect("complete");
        client.take(&mut bytes);
        assert!(matches!(server.feed(&bytes), Err(TlsError::Failed(..))));
        let mut data = Vec::new();
        server.take_application(&mut data);
        assert!(data.len() >= MAX_APPLICATION);
    }
}

#[test]
fn a_connection_holds_more_once_it_is_agreed_on_and_while_data_waits() {
    let (client, server) = Setup::new(Version::Tls13, 2).configs();
    let (mut client, mut server) = (Client::new(&client).unwrap(), Server::new(&server).unwrap());
    let before = server.memory();
    run(&mut client, &mut server);
    let agreed = server.memory();
    assert!(size_of_val(&server) < before && before < agreed, "{before}, {agreed}");
    client.write_application(&[7; 5000]).unwrap();
    let mut wire = Vec::new();
    client.take(&mut wire);
    server.feed(&wire).unwrap();
    assert!(server.memory() >= agreed + 5000, "{agreed}, {}", server.memory());
}

#[test]
fn hundreds_of_real_handshakes_have_the_recorded_lengths_and_work() {
    for (version, chain) in each() {
        let (client, server) = Setup::new(version, chain).configs();
        let recording = record(&client, &server).expect("a recording");
        assert!(recording.succeeded() && recording.version() == version && !recording.resumed());
        let recording = Arc::new(recording);
        let mut replayed_client = RecordedTls::client(recording.clone());
        let mut replayed_server = RecordedTls::server(recording.clone());
        assert_eq!(run(&mut replayed_client, &mut replayed_server), lengths(&recording));
        let replayed = (replayed_client.work(), replayed_server.work());
        for _ in 0..HANDSHAKES {
            let mut client = Client::new(&client).expect("client");
            let mut server = Server::new(&server).expect("server");
            assert_eq!(run(&mut client, &mut server), lengths(&recording), "{version:?} chain {chain}");
            assert_eq!((client.work(), server.work()), replayed);
        }
    }
}

#[test]
fn a_recording_is_replayed_elsewhere_as_it_was() {
    for (version, chain) in each() {
        let (client, server) = Setup::new(version, chain).configs();
        let recording = record(&client, &server).expect("a recording");
        let bytes = recording.encode().expect("both sides completed it");
        assert_eq!(Recording::decode(&bytes).as_ref(), Some(&recording), "{version:?} chain {chain}");
        for length in 0..bytes.len() {
            assert_eq!(Recording::decode(&bytes[..length]), None, "cut to {length}");
        }
        assert_eq!(Recording::decode(&[&bytes[..], &[0]].concat()), None);
    }
    let refused = Setup { client: Some(fixtures::foreign_client()), ..Setup::new(Version::Tls13, 2) };
    let (client, server) = refused.configs();
    assert_eq!(record(&client, &server).expect("a recording").encode(), None);
}

#[test]
fn chains_make_flights_of_the_size_that_radius_has_to_split() {
    let of = |version, chain| {
        let (client, server) = Setup::new(version, chain).configs();
        lengths(&record(&client, &server).expect("a recording"))
    };
    for version in [Version::Tls12, Version::Tls13] {
        for chain in 2..4 {
            let (short, long) = (of(version, chain), of(version, chain + 1));
            for (flight, (a, b)) in short.iter().zip(&long).enumerate().skip(1).take(2) {
                assert!((870..=935).contains(&(b.1 - a.1)), "{version:?} flight {flight}: {a:?} {b:?}");
            }
        }
    }
}

#[test]
fn recorded_engines_agree_with_real_ones_in_all_that_can_be_asked() {
    for (version, chain) in each() {
        let (client, server) = Setup::new(version, chain).configs();
        let recording = Arc::new(record(&client, &server).expect("a recording"));
        let mut pairs: [(Box<dyn TlsEngine>, Box<dyn TlsEngine>); 2] = [
            (
                Box::new(Client::new(&client).expect("client")),
                Box::new(Server::new(&server).expect("server")),
            ),
            (
                Box::new(RecordedTls::client(recording.clone())),
                Box::new(RecordedTls::server(recording.clone())),
            ),
        ];
        let mut seen = Vec::new();
        for (client, server) in &mut pairs {
            let mut steps = Vec::new();
            loop {
                let mut bytes = Vec::new();
                client.take(&mut bytes);
                server.feed(&bytes).expect("the client's flight");
                let mut answer = Vec::new();
                server.take(&mut answer);
                if bytes.is_empty() && answer.is_empty() {
                    break;
                }
                client.feed(&answer).expect("the server's flight");
                steps.push((
                    (bytes.len(), answer.len()),
                    (client.is_handshaking(), server.is_handshaking()),
                    (client.work(), server.work()),
                    (
                        client.peer_certificate().map(<[u8]>::to_vec),
                        server.peer_certificate().map(<[u8]>::to_vec),
                    ),
                ));
            }
            assert_eq!(exported(&**client, Some(&[13])), exported(&**server, Some(&[13])));
            assert_ne!(exported(&**client, Some(&[13])), exported(&**client, None));
            let mut commitment = Vec::new();
            server.write_application(&[0]).expect("complete");
            server.take(&mut commitment);
            let (first, second) = commitment.split_at(7);
            let mut data = Vec::new();
            client.feed(first).expect("half a record");
            client.take_application(&mut data);
            assert_eq!(data, [] as [u8; 0]);
            client.feed(second).expect("the other half");
            client.take_application(&mut data);
            assert_eq!(data, [0]);
            client.write_application(&[7; 40_000]).expect("complete");
            let mut long = Vec::new();
            client.take(&mut long);
            server.feed(&long).expect("application data");
            data.clear();
            server.take_application(&mut data);
            assert_eq!(data, [7; 40_000]);
            seen.push((steps, commitment.len(), long.len(), client.version(), server.resumed()));
        }
        assert_eq!(seen[0], seen[1], "{version:?} chain {chain}");
    }
}

#[test]
fn a_foreign_client_is_refused_with_an_alert_real_and_recorded() {
    for version in [Version::Tls12, Version::Tls13] {
        let setup = Setup { client: Some(fixtures::foreign_client()), ..Setup::new(version, 2) };
        let (client, server) = setup.configs();
        let recording = Arc::new(record(&client, &server).expect("a recording"));
        assert!(!recording.succeeded());
        let mut pairs: [(Box<dyn TlsEngine>, Box<dyn TlsEngine>); 2] = [
            (
                Box::new(Client::new(&client).expect("client")),
                Box::new(Server::new(&server).expect("server")),
            ),
            (
                Box::new(RecordedTls::client(recording.clone())),
                Box::new(RecordedTls::server(recording.clone())),
            ),
        ];
        for (client, server) in &mut pairs {
            let flights = run(&mut **client, &mut **server);
            assert_eq!(flights, lengths(&recording));
            assert_eq!(flights.len(), 4);
            // unknown_ca (RFC 8446 section 6.2)
            assert_eq!(client.error(), Some(&TlsError::AlertReceived(Alert(48))));
            let unknown = TlsFault::Certificate(CertificateFault::UnknownAuthority);
            assert_eq!(server.error().map(TlsError::fault), Some(unknown), "{server:?}");
            assert!(server.is_handshaking());
            assert_eq!(server.peer_certificate(), None);
            assert_eq!(server.feed(&[0]), Err(server.error().cloned().expect("refused")));
            let mut out = [0; 4];
            assert_eq!(server.export("x", None, &mut out), Err(TlsError::Handshaking));
        }
        assert_eq!(pairs[0].0.work(), pairs[1].0.work());
        assert_eq!(pairs[0].1.work(), pairs[1].1.work());
    }
}

#[test]
fn a_client_without_credentials_is_refused() {
    for version in [Version::Tls12, Version::Tls13] {
        let (mut client, mut server) = real(Setup { client: None, ..Setup::new(version, 2) });
        run(&mut client, &mut server);
        assert_eq!(server.error().map(TlsError::fault), Some(TlsFault::NoCertificate));
        assert!(matches!(client.error(), Some(TlsError::AlertReceived(_))));
    }
}

#[test]
fn a_server_is_trusted_by_its_chain_and_by_its_name_where_one_is_configured() {
    for (name, trusted) in [(fixtures::SERVER_NAME, true), ("other.usher.test", false)] {
        let setup = Setup { server_name: Some(name.into()), ..Setup::new(Version::Tls13, 2) };
        let (mut client, mut server) = real(setup);
        run(&mut client, &mut server);
        let fault = (!trusted).then_some(TlsFault::Certificate(CertificateFault::Name));
        assert_eq!(client.error().map(TlsError::fault), fault, "{name}");
        assert_eq!(matches!(server.error(), Some(TlsError::AlertReceived(_))), !trusted);
    }
}

#[test]
fn certificates_are_judged_by_the_given_wall_time() {
    let clock = WallClock::at(fixtures::WALL_TIME);
    let (client, server) = Setup { clock: clock.clone(), ..Setup::new(Version::Tls12, 2) }.configs();
    for (secs, valid) in [(1_782_864_000, true), (1_735_689_600, false), (2_461_449_600, false)] {
        clock.set(usher_core::WallTime::from_unix_secs(secs));
        let recording = record(&client, &server).expect("a recording");
        assert_eq!(recording.succeeded(), valid, "{secs}");
    }
}

#[test]
fn sessions_are_taken_up_again_where_configured() {
    for version in [Version::Tls12, Version::Tls13] {
        let setup = Setup { resumption: Some(Resumption::default()), ..Setup::new(version, 3) };
        let (client, server) = setup.configs();
        let full = record(&client, &server).expect("a recording");
        let resumed = record(&client, &server).expect("a recording");
        assert!(!full.resumed() && resumed.resumed() && resumed.succeeded());
        let octets = |recording: &Recording| lengths(recording).iter().map(|f| f.1).sum::<usize>();
        assert!(octets(&resumed) * 4 < octets(&full), "{} of {}", octets(&resumed), octets(&full));
        let signatures: u32 = resumed.flights().iter().map(|f| f.work().sign + f.work().verify).sum();
        assert_eq!(signatures, 0);
        for recording in [full, resumed] {
            let recording = Arc::new(recording);
            let mut client = RecordedTls::client(recording.clone());
            let mut server = RecordedTls::server(recording.clone());
            assert_eq!(run(&mut client, &mut server), lengths(&recording));
            assert_eq!((client.resumed(), server.resumed()), (recording.resumed(), recording.resumed()));
            assert!(!client.is_handshaking() && !server.is_handshaking());
        }
        // Another holder has no session to take up.
        let mut other = Client::for_holder(&client, 1).expect("client");
        let mut at = Server::for_purpose(&server, 0).expect("server");
        run(&mut other, &mut at);
        assert!(!other.resumed() && !other.is_handshaking());
        at.keep_session(SessionNote { subject: b"other".to_vec(), credential: [1; 32], data: Vec::new() });
        let mut again = Client::for_holder(&client, 1).expect("client");
        let mut at = Server::for_purpose(&server, 0).expect("server");
        run(&mut again, &mut at);
        assert!(again.resumed() && at.resumed());
        assert_eq!(exported(&again, None), exported(&at, None));
        assert_eq!(at.peer_certificate(), Some(fixtures::client(3).leaf()));
    }
}

#[test]
fn tickets_are_as_many_as_configured() {
    let after_finished = |resumption| {
        let (client, server) = Setup { resumption, ..Setup::new(Version::Tls13, 2) }.configs();
        let recording = record(&client, &server).expect("a recording");
        recording.flights().get(3).map_or(0, Flight::octets)
    };
    let tickets = |tickets| Some(Resumption { sessions: 16, tickets, ..Resumption::default() });
    assert_eq!(after_finished(None), 0);
    assert_eq!(after_finished(tickets(0)), 0);
    let one = after_finished(tickets(1));
    assert!(one > 0);
    assert!(after_finished(tickets(3)) > 2 * one);
}

#[test]
fn the_key_log_has_each_secret_once_and_alike_on_both_sides() {
    for (version, labels) in [
        (Version::Tls12, &["CLIENT_RANDOM"][..]),
        (
            Version::Tls13,
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
        let (mut client, mut server) = real(Setup {
            client_log: Some(at_client.clone()),
            server_log: Some(at_server.clone()),
            ..Setup::new(version, 2)
        });
        run(&mut client, &mut server);
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
            let secret = if version == Version::Tls12 { 96 } else { 64 };
            assert_eq!((fields.len(), fields[1].len(), fields[2].len()), (3, 64, secret), "{line}");
            assert!(fields[1..].iter().all(|f| f.chars().all(|c| c.is_ascii_hexdigit())));
        }
        assert!(!at_client.take().is_empty());
        assert_eq!(at_client.text(), "");
    }
}

#[test]
fn octets_may_come_one_by_one() {
    for version in [Version::Tls12, Version::Tls13] {
        let (client, server) = Setup::new(version, 2).configs();
        let recording = Arc::new(record(&client, &server).expect("a recording"));
        let mut pairs: [(Box<dyn TlsEngine>, Box<dyn TlsEngine>); 2] = [
            (
                Box::new(Client::new(&client).expect("client")),
                Box::new(Server::new(&server).expect("server")),
            ),
            (Box::new(RecordedTls::client(recording.clone())), Box::new(RecordedTls::server(recording))),
        ];
        for (client, server) in &mut pairs {
            for _ in 0..3 {
                let mut bytes = Vec::new();
                client.take(&mut bytes);
                for byte in bytes.drain(..) {
                    server.feed(&[byte]).expect("one octet");
                }
                server.take(&mut bytes);
                for byte in bytes {
                    client.feed(&[byte]).expect("one octet");
                }
            }
            assert!(!client.is_handshaking() && !server.is_handshaking());
        }
    }
}

#[test]
fn an_octet_changed_in_any_flight_ends_the_handshake_on_both_kinds() {
    for version in [Version::Tls12, Version::Tls13] {
        let (client, server) = Setup::new(version, 2).configs();
        let recording = Arc::new(record(&client, &server).expect("a recording"));
        for changed in 1..3 {
            let pairs: [(Box<dyn TlsEngine>, Box<dyn TlsEngine>); 2] = [
                (
                    Box::new(Client::new(&client).expect("client")),
                    Box::new(Server::new(&server).expect("server")),
                ),
                (
                    Box::new(RecordedTls::client(recording.clone())),
                    Box::new(RecordedTls::server(recording.clone())),
                ),
            ];
            for (client, server) in pairs {
                let (mut sender, mut receiver) = (client, server);
                for flight in 0..=changed {
                    let mut bytes = Vec::new();
                    sender.take(&mut bytes);
                    if flight == changed {
                        let middle = bytes.len() / 2;
                        bytes[middle] ^= 1;
                        let error = receiver.feed(&bytes).expect_err("a changed octet");
                        assert!(matches!(error, TlsError::Failed(..)), "{error}");
                        let mut alert = Vec::new();
                        receiver.take(&mut alert);
                        assert!(!alert.is_empty());
                        let _ = sender.feed(&alert);
                        assert!(matches!(sender.error(), Some(TlsError::AlertReceived(_))), "{sender:?}");
                    } else {
                        receiver.feed(&bytes).expect("an unchanged flight");
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
        let base64 = base64(der);
        format!("-----BEGIN {kind}-----\n{base64}\n-----END {kind}-----\n").into_bytes()
    };
    let (leaf, key) = (fixtures::client(1).leaf().to_vec(), fixtures::client(1).key_der().to_vec());
    let read = Credentials::from_pem(&wrap("CERTIFICATE", &leaf), &wrap("PRIVATE KEY", &key)).expect("PEM");
    assert_eq!((read.leaf(), read.key_der(), read.chain_len()), (&leaf[..], &key[..], 1));
    assert!(Roots::from_pem(&wrap("CERTIFICATE", fixtures::root())).is_ok());
    assert!(matches!(Roots::from_pem(b"none here"), Err(TlsError::Config(_))));
    assert!(matches!(Credentials::from_pem(b"", b""), Err(TlsError::Config(_))));
}

#[test]
fn a_key_that_cannot_be_used_is_told_from_its_certificate() {
    let [chain, key, _] = fixtures::server_as_pem(1);
    let of = |key: &str| match Credentials::from_pem(chain.as_bytes(), key.as_bytes()) {
        Err(TlsError::Key(why)) => why,
        other => panic!("{other:?}"),
    };
    assert!(of(&fixtures::client_as_pem(1)[1]).contains("not the key of the certificate"));
    assert!(of(&chain).contains("no private key"));
    // RFC 7468 section 11, and RFC 1421 as OpenSSL writes it.
    let pkcs8 = key.replace("PRIVATE KEY", "ENCRYPTED PRIVATE KEY");
    let header = "RSA PRIVATE KEY-----\nProc-Type: 4,ENCRYPTED\nDEK-Info: AES-256-CBC,00112233445566778899AABBCCDDEEFF\n\n";
    let older = key.replacen("PRIVATE KEY-----\n", header, 1).replace("END PRIVATE", "END RSA PRIVATE");
    for encrypted in [&pkcs8, &older, &older.replace('\n', "\r\n")] {
        let why = of(encrypted);
        assert!(why.contains("it is encrypted") && why.contains("openssl pkey"), "{why}: {encrypted}");
    }
    // A file may hold the same key without its passphrase, too.
    assert!(Credentials::from_pem(chain.as_bytes(), (pkcs8 + &key).as_bytes()).is_ok());
}

fn base64(bytes: &[u8]) -> String {
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
    let options = |roots, credentials, server_name| ClientOptions {
        versions: Version::Tls13.into(),
        credentials,
        roots,
        server_name,
        resumption: None,
        clock: WallClock::at(fixtures::WALL_TIME),
        key_log: None,
    };
    let roots = || Roots::from_der([fixtures::root()]);
    let mixed = Credentials::from_der([fixtures::client(1).leaf()], fixtures::server(1).key_der());
    let nonsense = Credentials::from_der([fixtures::client(1).leaf()], b"no key");
    for (options, part) in [
        (options(Roots::default(), None, None), "root"),
        (options(Roots::from_der([&b"no certificate"[..]]), None, None), "root"),
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
    let work = TlsWork { sign: 1, verify: 0, key_exchange: 2 };
    let labelled: Vec<(&str, u32)> = work.labelled().map(|w| (w.label.name(), w.units)).collect();
    assert_eq!(labelled, [("tls.sign", 1), ("tls.key_exchange", 2)]);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn arbitrary_octets_never_panic(
        tls13: bool,
        // How much of the handshake is right before the nonsense starts.
        turns in 0_usize..4,
        pieces in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..600), 1..6),
        header: bool,
    ) {
        let version = if tls13 { Version::Tls13 } else { Version::Tls12 };
        let (client, server) = Setup::new(version, 1).configs();
        let recording = Arc::new(record(&client, &server).expect("a recording"));
        let mut pairs: [(Box<dyn TlsEngine>, Box<dyn TlsEngine>); 2] = [
            (Box::new(Client::new(&client).expect("client")), Box::new(Server::new(&server).expect("server"))),
            (Box::new(RecordedTls::client(recording.clone())), Box::new(RecordedTls::server(recording))),
        ];
        for (client, server) in &mut pairs {
            for turn in 0..turns {
                let mut bytes = Vec::new();
                if turn % 2 == 0 {
                    client.take(&mut bytes);
                    server.feed(&bytes).expect("right so far");
                } else {
                    server.take(&mut bytes);
                    client.feed(&bytes).expect("right so far");
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
                    let error = engine.feed(&bytes).err();
                    prop_assert_eq!(error.as_ref(), engine.error());
                    engine.take(&mut out);
                    engine.take_application(&mut out);
                }
            }
        }
    }
}
