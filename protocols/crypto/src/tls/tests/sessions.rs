//! Sessions that a server lets clients resume, and the Extended Master Secret.

use super::issued::short_lived_client;
use super::*;
use usher_core::{Duration, WallTime};

const HOUR: u64 = 60 * 60;

fn test_note(subject: &[u8]) -> TlsSessionMetadata {
    TlsSessionMetadata { subject: subject.to_vec(), credential: [7; 32], data: b"data".to_vec() }
}

/// Returns configurations with a clock and this number of tickets per login.
fn resuming_configs(
    version: TlsVersion,
    resumption: TlsResumptionConfig,
) -> (ClientConfig, ServerConfig, SharedWallClock) {
    let clock = SharedWallClock::from_time(fixtures::WALL_TIME);
    let setup = HandshakeSetup {
        resumption: Some(resumption),
        clock: clock.clone(),
        ..HandshakeSetup::new(version, 2)
    };
    let (client, server) = setup.into_configs();
    (client, server, clock)
}

fn advance_clock(clock: &SharedWallClock, seconds: u64) {
    clock.set(WallTime::from_unix_secs(fixtures::WALL_TIME.unix_secs() + seconds));
}

/// Connects for a purpose and returns both ends.
fn connect_pair(
    client: &ClientConfig,
    server: &ServerConfig,
    purpose: u8,
) -> (TlsClientEngine, TlsServerEngine) {
    let (mut client, mut server) = (
        TlsClientEngine::new(client).expect("client"),
        TlsServerEngine::new_for_session_purpose(server, purpose).expect("server"),
    );
    run_handshake(&mut client, &mut server);
    assert!(!client.is_handshaking() && !server.is_handshaking(), "{:?}", server.error());
    assert_eq!(client.is_resumed(), server.is_resumed());
    (client, server)
}

/// Connects and keeps the session. Returns true if it was resumed.
fn log_in(client: &ClientConfig, server: &ServerConfig, purpose: u8, subject: &[u8]) -> bool {
    let (_, mut at) = connect_pair(client, server, purpose);
    assert_eq!(at.session_note(), at.is_resumed().then(|| test_note(subject)));
    at.keep_session(test_note(subject));
    at.is_resumed()
}

const VERSIONS: [TlsVersion; 2] = TlsVersion::ALL;

#[test]
fn a_session_is_taken_up_once_its_host_has_let_somebody_in() {
    for version in VERSIONS {
        let (client, server, _) = resuming_configs(version, TlsResumptionConfig::default());
        assert!(!connect_pair(&client, &server, 1).1.is_resumed());
        assert!(!connect_pair(&client, &server, 1).1.is_resumed(), "nobody was let in");
        assert!(!log_in(&client, &server, 1, b"ann"));
        assert!(log_in(&client, &server, 1, b"ann"));
    }
}

#[test]
fn who_proves_nothing_pushes_out_nobodys_session() {
    for version in VERSIONS {
        let (client, server, _) =
            resuming_configs(version, TlsResumptionConfig { sessions: 2, ..TlsResumptionConfig::default() });
        log_in(&client, &server, 1, b"ann");
        let (others, ..) = resuming_configs(version, TlsResumptionConfig::default());
        for holder in 1..=5 {
            let mut other = TlsClientEngine::new_for_session_holder(&others, holder).expect("client");
            run_handshake(
                &mut other,
                &mut TlsServerEngine::new_for_session_purpose(&server, 1).expect("server"),
            );
            assert!(!other.is_handshaking());
        }
        assert!(log_in(&client, &server, 1, b"ann"));
    }
}

#[test]
fn a_session_is_for_one_purpose() {
    for version in VERSIONS {
        let (client, server, _) = resuming_configs(version, TlsResumptionConfig::default());
        log_in(&client, &server, 21, b"ann");
        assert!(!connect_pair(&client, &server, 25).1.is_resumed());
    }
}

#[test]
fn a_session_ends_a_fixed_time_after_the_full_handshake() {
    for version in VERSIONS {
        let lifetime = Duration::from_secs(3 * HOUR);
        let (client, server, clock) =
            resuming_configs(version, TlsResumptionConfig { lifetime, ..TlsResumptionConfig::default() });
        log_in(&client, &server, 1, b"ann");
        // Tickets derived from it live no longer.
        for hour in [1, 2] {
            advance_clock(&clock, hour * HOUR);
            assert!(log_in(&client, &server, 1, b"ann"));
        }
        advance_clock(&clock, 3 * HOUR - 1);
        assert!(log_in(&client, &server, 1, b"ann"));
        advance_clock(&clock, 3 * HOUR);
        assert!(!log_in(&client, &server, 1, b"ann"));
        // A clock that is set back does not extend its life either.
        advance_clock(&clock, 2 * HOUR);
        assert!(!log_in(&client, &server, 1, b"ann"));
    }
}

#[test]
fn a_session_ends_with_the_client_certificate() {
    let day = 24 * HOUR;
    for version in VERSIONS {
        let clock = SharedWallClock::from_time(fixtures::WALL_TIME);
        let lifetime = Duration::from_secs(7 * day);
        let resumption = Some(TlsResumptionConfig { lifetime, ..TlsResumptionConfig::default() });
        let (client, server) = short_lived_client(version, resumption, &clock);
        log_in(&client, &server, 1, b"ann");
        advance_clock(&clock, day - 1);
        assert!(log_in(&client, &server, 1, b"ann"));
        advance_clock(&clock, day + 1);
        let (mut client, mut server) = (
            TlsClientEngine::new(&client).expect("client"),
            TlsServerEngine::new_for_session_purpose(&server, 1).expect("server"),
        );
        run_handshake(&mut client, &mut server);
        let error = server.error().expect("the certificate has ended").to_string();
        assert!(error.contains("expired"), "{error}");
    }
}

#[test]
fn a_subjects_sessions_can_be_ended() {
    for version in VERSIONS {
        let (client, server, _) =
            resuming_configs(version, TlsResumptionConfig { tickets: 2, ..TlsResumptionConfig::default() });
        log_in(&client, &server, 1, b"ann");
        assert_eq!(server.end_sessions(|subject| subject == b"bob"), 0);
        let of_one_login = if version == TlsVersion::Tls13 { 2 } else { 1 };
        assert_eq!(server.clone().end_sessions(|subject| subject == b"ann"), of_one_login);
        assert!(!log_in(&client, &server, 1, b"ann"));
        // Ends it from the connection that resumed it, with all its tickets.
        let (_, mut at) = connect_pair(&client, &server, 1);
        assert!(at.is_resumed());
        at.end_session();
        assert!(!connect_pair(&client, &server, 1).1.is_resumed());
    }
}

#[test]
fn without_resumption_nothing_is_kept() {
    let (client, server) = HandshakeSetup::new(TlsVersion::Tls13, 1).into_configs();
    let (_, mut at) = connect_pair(&client, &server, 1);
    at.keep_session(test_note(b"ann"));
    at.end_session();
    assert_eq!((at.session_note(), server.end_sessions(|_| true)), (None, 0));
}

#[test]
fn a_note_does_not_print_its_credential() {
    assert_eq!(format!("{:?}", test_note(b"ann")), "TlsSessionMetadata(ann)");
}

/// Returns a TLS 1.2 ClientHello (RFC 5246 §7.4.1.2), with or without extended_master_secret (RFC 7627 §5.1).
fn client_hello(extended_master_secret: bool) -> Vec<u8> {
    let mut extensions = vec![
        0, 10, 0, 4, 0, 2, 0, 29, // supported_groups: x25519
        0, 11, 0, 2, 1, 0, // ec_point_formats: uncompressed
        0, 13, 0, 4, 0, 2, 8, 4, // signature_algorithms: rsa_pss_rsae_sha256
    ];
    if extended_master_secret {
        extensions.extend([0, 23, 0, 0]);
    }
    let mut body = vec![3, 3];
    body.extend([9; 32]);
    // No session; TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256; no compression.
    body.extend([0, 0, 2, 0xc0, 0x2f, 1, 0]);
    body.extend((extensions.len() as u16).to_be_bytes());
    body.extend(extensions);
    let message = [&[1, 0][..], &(body.len() as u16).to_be_bytes(), &body].concat();
    [&[22, 3, 1][..], &(message.len() as u16).to_be_bytes(), &message].concat()
}

#[test]
fn tls_1_2_without_extended_master_secret_needs_permission() {
    let (_, strict) = HandshakeSetup::new(TlsVersion::Tls12, 1).into_configs();
    let lenient = strict.without_extended_master_secret();
    for (config, extended, taken) in
        [(&strict, true, true), (&strict, false, false), (&lenient, false, true), (&lenient, true, true)]
    {
        let mut server = TlsServerEngine::new(config).expect("server");
        assert_eq!(
            server.read_tls(&client_hello(extended)).is_ok(),
            taken,
            "{extended}: {:?}",
            server.error()
        );
        let mut out = Vec::new();
        server.write_tls(&mut out);
        if taken {
            assert_eq!(&out[..1], [22], "a ServerHello");
        } else {
            // handshake_failure (RFC 7627 §5.3).
            assert_eq!(out, [21, 3, 3, 0, 2, 2, 40]);
        }
    }
}
