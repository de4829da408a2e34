//! Peer and server in memory: versions, chains, fragments, failures, recordings.

use super::*;
use crate::EapKeys;
use crate::method::connection::{EapFragmentKind, MIN_FRAGMENT};
use crate::method::{CredentialDigest, PeerMethodResult, ServerMethodResult, UserQuery, UserQueryAnswer};
use crate::packet::EapPacket;
use crate::{peer, server};
use alloc::sync::Arc;
use usher_core::{Duration, Instant, Seed};
use usher_crypto::tls::{
    ClientConfig, ServerConfig, SharedWallClock, TlsClientEngine, TlsClientOptions, TlsCredentials,
    TlsResumptionConfig, TlsServerEngine as TlsServer, TlsServerOptions, TlsVersion, TrustRoots, fixtures,
    record_handshake,
};

fn client_config(version: TlsVersion, credentials: TlsCredentials, resumption: bool) -> ClientConfig {
    ClientConfig::new(TlsClientOptions {
        versions: version.into(),
        credentials: Some(credentials),
        roots: TrustRoots::from_der([fixtures::root_certificate()]),
        server_name: None,
        resumption: resumption.then(TlsResumptionConfig::default),
        clock: SharedWallClock::from_time(fixtures::WALL_TIME),
        key_log: None,
    })
    .unwrap()
}

fn server_config(version: TlsVersion, chain: u8, resumption: bool) -> ServerConfig {
    ServerConfig::new(TlsServerOptions {
        versions: version.into(),
        credentials: fixtures::server_credentials(chain),
        client_roots: Some(TrustRoots::from_der([fixtures::root_certificate()])),
        resumption: resumption.then(TlsResumptionConfig::default),
        clock: SharedWallClock::from_time(fixtures::WALL_TIME),
        key_log: None,
    })
    .unwrap()
}

struct TlsTestRun {
    /// Lengths of the packets: requests positive, responses negative.
    lengths: Vec<i64>,
    peer: peer::EapPeerEvent,
    server: server::EapServerEvent,
    signatures: u32,
}

/// Runs a conversation in memory.
fn run_conversation(peer_tls: PeerTlsBackend, server_tls: ServerTlsBackend, fragment: usize) -> TlsTestRun {
    run_with(peer_tls, server_tls, fragment, &[1; 32])
}

/// Runs a conversation of a user with this credential.
fn run_with(
    peer_tls: PeerTlsBackend,
    server_tls: ServerTlsBackend,
    fragment: usize,
    credential: &CredentialDigest,
) -> TlsTestRun {
    let wall = fixtures::WALL_TIME;
    let seed = Seed::new(5);
    let config = peer::EapPeerConfig {
        identity: b"bob".to_vec(),
        methods: [Box::new(EapTlsPeerFactory { tls: peer_tls, fragment }) as Box<dyn PeerMethodFactory>]
            .into(),
        timeout: Duration::from_secs(60),
        wall,
    };
    let offers =
        [Box::new(EapTlsServerFactory { tls: server_tls, fragment }) as Box<dyn ServerMethodFactory>];
    let mut peer = peer::EapPeer::new(config, seed.derive_secure_rng("peer", 0), Instant::ZERO);
    let mut server = server::EapServer::new(
        offers.into(),
        1,
        EapMethodContext {
            rng: &mut seed.derive_secure_rng("server", 0),
            wall,
            mtu: None,
            without_extended_master_secret: false,
        },
    );
    let (mut lengths, mut signatures) = (Vec::new(), 0);
    let mut buf = Vec::new();
    let (mut last, mut ended) = (Vec::new(), None);
    loop {
        assert!(server.poll_transmit(&mut buf));
        assert!(buf.len() <= fragment.max(MIN_FRAGMENT), "{} octets", buf.len());
        lengths.push(buf.len() as i64);
        let request = buf.clone();
        if !peer.handle_packet(Instant::ZERO, &request) {
            // RFC 4137 figure 3: a peer that has succeeded discards Failure and times out.
            assert_eq!(request[0], 4, "{:?}", EapPacket::parse(&request));
            break;
        }
        while let Some(work) = server.poll_work().or_else(|| peer.poll_work()) {
            signatures += if work.label == usher_crypto::work::SIGN { work.units } else { 0 };
        }
        if !peer.poll_transmit(&mut buf) {
            break;
        }
        lengths.push(-(buf.len() as i64));
        // A retransmitted request gets the same response, and an old response changes nothing.
        let response = buf.clone();
        assert!(
            peer.handle_packet(Instant::ZERO, &request) && peer.poll_transmit(&mut buf) && buf == response
        );
        assert!(!server.handle_packet(&last));
        assert!(server.handle_packet(&response));
        last = response;
        match server.poll_event() {
            Some(server::EapServerEvent::Query(UserQuery::Resume(remembered))) => {
                assert_eq!((&remembered.name[..], remembered.inner), (&b"bob"[..], None));
                assert!(server.apply_answer(UserQueryAnswer::Resume(remembered.credential == *credential)));
                ended = server.poll_event();
            }
            event => ended = ended.or(event),
        }
        if matches!(ended, Some(server::EapServerEvent::Success { .. })) {
            server.allow_resumption(b"bob", credential);
        }
    }
    TlsTestRun {
        lengths,
        peer: peer.poll_event().unwrap_or(peer::EapPeerEvent::Failure),
        server: ended.unwrap(),
        signatures,
    }
}

fn shared_keys(run: &TlsTestRun) -> EapKeys {
    match (&run.peer, &run.server) {
        (
            peer::EapPeerEvent::Success { keys: Some(a) },
            server::EapServerEvent::Success { keys: Some(b), method },
        ) => {
            assert_eq!((a, *method), (b, EapType::TLS));
            a.clone()
        }
        other => panic!("{other:?}"),
    }
}

const VERSIONS: [TlsVersion; 2] = [TlsVersion::Tls12, TlsVersion::Tls13];

#[test]
fn both_ends_derive_the_same_keys_for_any_chain_and_fragment() {
    for version in VERSIONS {
        for (chain, fragment) in [(2, 1024), (3, 1400), (4, 1024), (2, 256), (2, 65_000), (4, 100)] {
            let peer =
                PeerTlsBackend::Real(client_config(version, fixtures::client_credentials(chain), false), 0);
            let server = ServerTlsBackend::Real(server_config(version, chain, false));
            let done = run_conversation(peer, server, fragment);
            let EapKeys { msk, emsk, session_id } = shared_keys(&done);
            let id = session_id.unwrap();
            assert_ne!(msk, emsk);
            assert_eq!((id.len(), id[0]), (65, 13));
            assert_eq!(done.signatures, 2);
        }
    }
}

#[test]
fn rounds_are_as_many_as_the_flights_need() {
    // TLS 1.2, chains of 2: flights of 114, 2275, 2193 and 51 octets. In packets of 1024 (of which 10 octets
    // of header with the first fragment, 6 with the others) the long ones need three fragments each.
    let tls = |version| {
        let peer = PeerTlsBackend::Real(client_config(version, fixtures::client_credentials(2), false), 0);
        run_conversation(peer, ServerTlsBackend::Real(server_config(version, 2, false)), 1024).lengths
    };
    let first = 2275 - 1014 - 1018 + 6;
    let second = 2193 - 1014 - 1018 + 6;
    let expected = [6, -(114 + 6), 1024, -6, 1024, -6, first, -1024, 6, -1024, 6, -second, 51 + 6, -6, 4];
    assert_eq!(tls(TlsVersion::Tls12), expected);
    // TLS 1.3: 198, 2393 and 2159 octets, then the commitment message: an octet, its type and
    // 21 of record header and tag (RFC 9190 figure 1).
    let first = 2393 - 1014 - 1018 + 6;
    let second = 2159 - 1014 - 1018 + 6;
    let expected = [6, -(198 + 6), 1024, -6, 1024, -6, first, -1024, 6, -1024, 6, -second, 23 + 6, -6, 4];
    assert_eq!(tls(TlsVersion::Tls13), expected);
}

#[test]
fn a_recorded_handshake_has_the_real_ones_packets() {
    for version in VERSIONS {
        for chain in [2, 3, 4] {
            let client = client_config(version, fixtures::client_credentials(chain), false);
            let server = server_config(version, chain, false);
            let recording = Arc::new(record_handshake(&client, &server).unwrap());
            let real =
                run_conversation(PeerTlsBackend::Real(client, 0), ServerTlsBackend::Real(server), 1024);
            let replayed = run_conversation(
                PeerTlsBackend::Recorded(recording.clone()),
                ServerTlsBackend::Recorded(recording),
                1024,
            );
            assert_eq!(real.lengths, replayed.lengths);
            assert_eq!(real.signatures, replayed.signatures);
            shared_keys(&replayed);
        }
    }
}

#[test]
fn a_client_of_another_authority_is_refused_by_alert() {
    for version in VERSIONS {
        let client = client_config(version, fixtures::untrusted_client_credentials(), false);
        let server = server_config(version, 2, false);
        let recording = Arc::new(record_handshake(&client, &server).unwrap());
        let real = run_conversation(PeerTlsBackend::Real(client, 0), ServerTlsBackend::Real(server), 1024);
        let replayed = run_conversation(
            PeerTlsBackend::Recorded(recording.clone()),
            ServerTlsBackend::Recorded(recording),
            1024,
        );
        assert_eq!(real.lengths, replayed.lengths);
        for done in [real, replayed] {
            assert_eq!(done.peer, peer::EapPeerEvent::Failure);
            assert_eq!(done.server, server::EapServerEvent::Failure { method: Some(EapType::TLS) });
        }
    }
}

#[test]
fn a_resumed_session_is_shorter_and_has_new_keys() {
    for version in VERSIONS {
        let client = client_config(version, fixtures::client_credentials(2), true);
        let server = server_config(version, 2, true);
        let full = run_conversation(
            PeerTlsBackend::Real(client.clone(), 7),
            ServerTlsBackend::Real(server.clone()),
            1024,
        );
        let resumed = run_conversation(
            PeerTlsBackend::Real(client.clone(), 7),
            ServerTlsBackend::Real(server.clone()),
            1024,
        );
        let other = run_conversation(PeerTlsBackend::Real(client, 8), ServerTlsBackend::Real(server), 1024);
        assert!(resumed.lengths.len() < full.lengths.len(), "{:?}", resumed.lengths);
        assert_eq!((full.signatures, resumed.signatures, other.signatures), (2, 0, 2));
        assert_ne!(shared_keys(&full).msk, shared_keys(&resumed).msk);
    }
}

#[test]
fn a_session_that_its_host_refuses_is_ended() {
    for version in VERSIONS {
        let client = client_config(version, fixtures::client_credentials(2), true);
        let server = server_config(version, 2, true);
        let tls = || (PeerTlsBackend::Real(client.clone(), 7), ServerTlsBackend::Real(server.clone()));
        let with = |credential| {
            let (peer, server) = tls();
            run_with(peer, server, 1024, &[credential; 32])
        };
        shared_keys(&with(1));
        let stale = with(2);
        assert_eq!(stale.signatures, 0, "the session was taken up");
        assert_eq!(stale.server, server::EapServerEvent::Failure { method: Some(EapType::TLS) });
        assert_eq!(stale.peer, peer::EapPeerEvent::Failure);
        let full = with(2);
        shared_keys(&full);
        assert_eq!(full.signatures, 2);
    }
}

#[test]
fn tls_13_ends_with_one_octet_of_zero_and_nothing_else() {
    // RFC 9190 §2.1.1: an acknowledgement or another octet instead of the commitment is a failure.
    for (last, expected) in [
        (None, PeerMethodResult::Ignore),
        (Some(0), PeerMethodResult::Done),
        (Some(1), PeerMethodResult::Failed),
    ] {
        let client = TlsClientEngine::new_for_session_holder(
            &client_config(TlsVersion::Tls13, fixtures::client_credentials(2), false),
            0,
        )
        .unwrap();
        let mut peer = EapTlsPeer::new(Some(TlsConnection::new(Box::new(client), true, 65_000)));
        let server = TlsServer::new(&server_config(TlsVersion::Tls13, 2, false)).unwrap();
        let mut conn = TlsConnection::new(Box::new(server), false, 65_000);
        let mut request = vec![0x20];
        for _ in 0..2 {
            let mut response = Vec::new();
            assert_eq!(peer.handle_request(1, &request, &mut response), PeerMethodResult::Continue);
            assert_eq!(conn.read_fragment(&response), EapFragmentKind::Complete);
            assert!(conn.process_message());
            request.clear();
            if conn.engine.is_handshaking() {
                conn.build_fragment(&mut request);
            }
        }
        if let Some(last) = last {
            assert!(conn.write_data(&[last]));
        }
        conn.build_fragment(&mut request);
        assert_eq!(peer.handle_request(1, &request, &mut Vec::new()), expected);
    }
}

#[test]
fn a_server_cuts_to_what_the_link_takes() {
    let tls = ServerTlsBackend::Real(server_config(TlsVersion::Tls12, 4, false));
    let offer = EapTlsServerFactory { tls, fragment: 1400 };
    for (mtu, longest) in [(None, 1400), (Some(300), 300), (Some(9000), 1400), (Some(1), MIN_FRAGMENT)] {
        let context = EapMethodContext {
            rng: &mut Seed::new(1).derive_secure_rng("server", 0),
            wall: fixtures::WALL_TIME,
            mtu,
            without_extended_master_secret: false,
        };
        let mut server = offer.start_server_method(context);
        server.build_request(1, &mut Vec::new());
        let client = client_config(TlsVersion::Tls12, fixtures::client_credentials(2), false);
        let mut conn = TlsConnection::new(
            Box::new(TlsClientEngine::new_for_session_holder(&client, 0).unwrap()),
            true,
            1400,
        );
        conn.fill_output();
        let mut hello = Vec::new();
        conn.build_fragment(&mut hello);
        assert_eq!(server.handle_response(1, &hello), ServerMethodResult::Continue);
        let mut data = Vec::new();
        server.build_request(2, &mut data);
        // The header and the type are not part of the data.
        assert_eq!(data.len() + 5, longest, "{mtu:?}");
    }
}

#[test]
fn noise_never_panics_and_never_succeeds() {
    let mut rng = Seed::new(3).derive_rng("noise", 0);
    let client = client_config(TlsVersion::Tls13, fixtures::client_credentials(2), false);
    let server = server_config(TlsVersion::Tls13, 2, false);
    for _ in 0..200 {
        let mut peer = EapTlsPeer::new(Some(TlsConnection::new(
            Box::new(TlsClientEngine::new_for_session_holder(&client, 0).unwrap()),
            true,
            1024,
        )));
        let mut server = EapTlsServer::new(Some(TlsConnection::new(
            Box::new(TlsServer::new(&server).unwrap()),
            false,
            1024,
        )));
        for _ in 0..20 {
            let bytes: Vec<u8> = (0..rng.sample_below(40)).map(|_| rng.next_u64() as u8).collect();
            let mut out = Vec::new();
            assert_ne!(peer.handle_request(1, &bytes, &mut out), PeerMethodResult::Done);
            server.build_request(1, &mut Vec::new());
            assert_ne!(server.handle_response(1, &bytes), ServerMethodResult::Success);
        }
    }
}

#[test]
fn lengths_that_lie_end_the_run() {
    let mut conn = TlsConnection::new(
        Box::new(TlsServer::new(&server_config(TlsVersion::Tls12, 2, false)).unwrap()),
        false,
        1024,
    );
    // Longer than the limit; another length amid fragments; more than announced; less than announced.
    assert_eq!(conn.read_fragment(&[0x80, 0, 1, 0, 1, 9]), EapFragmentKind::Bad);
    assert_eq!(conn.read_fragment(&[0xc0, 0, 0, 0, 9, 1, 2]), EapFragmentKind::More);
    assert_eq!(conn.read_fragment(&[0xc0, 0, 0, 0, 8, 1, 2]), EapFragmentKind::Bad);
    assert_eq!(conn.read_fragment(&[0x40, 1, 2, 3, 4, 5, 6, 7, 8]), EapFragmentKind::Bad);
    assert_eq!(conn.read_fragment(&[0, 1]), EapFragmentKind::Bad);
    assert_eq!(conn.read_fragment(&[]), EapFragmentKind::Bad);
    assert_eq!(conn.read_fragment(&[0x80, 0, 0]), EapFragmentKind::Bad);
}

/// RFC 5216 §3.1, RFC 9190 §2.1.9: the start has no data and no other flag. Reserved bits are ignored. An unfragmented
/// message may have its length or not.
#[test]
fn a_hello_may_set_reserved_bits_and_omit_its_length() {
    for version in VERSIONS {
        for (flags, with_length) in [(0, false), (0x1f, false), (0x80, true), (0x9f, true)] {
            let tls = ServerTlsBackend::Real(server_config(version, 2, false));
            let mut rng = Seed::new(1).derive_secure_rng("server", 0);
            let context = EapMethodContext {
                rng: &mut rng,
                wall: fixtures::WALL_TIME,
                mtu: None,
                without_extended_master_secret: false,
            };
            let mut server = EapTlsServerFactory { tls, fragment: 1400 }.start_server_method(context);
            let mut start = Vec::new();
            server.build_request(1, &mut start);
            assert_eq!(start, [0x20]);
            let client = client_config(version, fixtures::client_credentials(2), false);
            let mut conn = TlsConnection::new(
                Box::new(TlsClientEngine::new_for_session_holder(&client, 0).unwrap()),
                true,
                1400,
            );
            conn.fill_output();
            let mut hello = Vec::new();
            conn.build_fragment(&mut hello);
            assert_eq!(hello[0], 0, "a message that is not cut says no length");
            let mut said = vec![flags];
            if with_length {
                said.extend_from_slice(&(hello.len() as u32 - 1).to_be_bytes());
            }
            said.extend_from_slice(&hello[1..]);
            assert_eq!(server.handle_response(1, &said), ServerMethodResult::Continue, "{flags:#x}");
        }
    }
}

#[test]
fn memory_is_the_engines_and_that_of_messages_and_certificates() {
    let engine = TlsServer::new(&server_config(TlsVersion::Tls12, 2, false)).unwrap();
    let mut conn = TlsConnection::new(Box::new(engine), false, 1024);
    let engine = conn.engine.memory_octets();
    assert_eq!(conn.memory_octets(), engine);
    // The first thousand octets of a message of five thousand.
    let mut fragment = vec![0xc0, 0, 0, 0x13, 0x88];
    fragment.resize(5 + 1000, 0);
    assert_eq!(conn.read_fragment(&fragment), EapFragmentKind::More);
    let whole = engine + 1000..engine + 2100;
    assert!(
        whole.contains(&conn.memory_octets()),
        "{} octets, of them {engine} of the engine",
        conn.memory_octets()
    );
    conn.certificates = vec![Vec::with_capacity(500), Vec::with_capacity(700)];
    let whole = whole.start + 1200..whole.end + 1200;
    assert!(
        whole.contains(&conn.memory_octets()),
        "{} octets, of them {engine} of the engine",
        conn.memory_octets()
    );
}
