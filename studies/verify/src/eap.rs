//! EAP and TLS: digests and key derivations. The expected values are published vectors, or the standards' formulas,
//! computed by other libraries from the secrets in the key log.

use crate::independent::{self, expand_label, hkdf_expand, hmac_sha256, parse_hex, sha256, tls12_prf};
use crate::{OracleFinding, VerificationOracle};
use usher_core::{Duration, Instant, SecureRng, Seed};
use usher_crypto::tls::{
    ClientConfig, KeyLog, ServerConfig, SharedWallClock, TlsClientOptions, TlsServerOptions, TlsVersion,
    TrustRoots, fixtures,
};
use usher_eap::method::md5::EapMd5Password;
use usher_eap::method::tls::{EapTlsPeerFactory, EapTlsServerFactory, PeerTlsBackend, ServerTlsBackend};
use usher_eap::method::{EapMethodContext, PeerMethodFactory, ServerMethodFactory};
use usher_eap::{EapKeys, peer, server};

pub(crate) const ORACLES: &[VerificationOracle] = &[
    VerificationOracle {
        group: "eap",
        name: "md5",
        description: "an EAP-MD5 response: MD5 of identifier, password and challenge",
        source: "RFC 3748 section 5.4, RFC 1994 section 4.1; printf '\\x07pencilABCDEFGHIJKLMNOP' | md5sum",
        run: eap_md5,
    },
    VerificationOracle {
        group: "eap",
        name: "hkdf",
        description: "the HKDF that these checks use: its first published case",
        source: "RFC 5869 appendix A.1",
        run: check_hkdf,
    },
    VerificationOracle {
        group: "eap",
        name: "prf",
        description: "the TLS 1.2 PRF with SHA-256 that these checks use: the case published on the TLS \
                      working group's list",
        source: "RFC 5246 section 5; mail of 2009-08-12 to tls@ietf.org, \"Test vectors for TLS 1.2 PRF\"",
        run: check_tls12_prf_vector,
    },
    VerificationOracle {
        group: "eap",
        name: "tls12-keys",
        description: "EAP-TLS with TLS 1.2: both ends' MSK and EMSK are PRF(master secret, \"client EAP encryption\", \
                client random + server random), from the key log's master secret and the hellos on the wire",
        source: "RFC 5216 section 2.3, RFC 5246 section 5",
        run: check_tls12,
    },
    VerificationOracle {
        group: "eap",
        name: "tls13-keys",
        description: "EAP-TLS with TLS 1.3: both ends' MSK and EMSK are TLS-Exporter(\"EXPORTER_EAP_TLS_Key_Material\", \
                0x0d, 128), from the key log's exporter secret",
        source: "RFC 9190 section 2.3, RFC 8446 section 7.5",
        run: check_tls13,
    },
];

fn eap_md5() -> Result<Vec<OracleFinding>, String> {
    let mut rng = Seed::new(1).derive_secure_rng("md5", 0);
    let context = EapMethodContext {
        rng: &mut rng,
        wall: fixtures::WALL_TIME,
        mtu: None,
        without_extended_master_secret: false,
    };
    let mut method = PeerMethodFactory::start_peer_method(&EapMd5Password::new(b"pencil"), context);
    let challenge = b"ABCDEFGHIJKLMNOP";
    let mut response = Vec::new();
    method.handle_request(7, &[&[16][..], challenge, b"a name"].concat(), &mut response);
    let digest = independent::md5(&[&[7], b"pencil", challenge]);
    let printed = parse_hex("b3d47876a817061449eb82d57b7ea9d8")?;
    Ok(vec![
        OracleFinding::expect_octets("by md5sum", &[&[16][..], &printed].concat(), &response),
        OracleFinding::expect_octets("by another library", &[&[16][..], &digest].concat(), &response),
    ])
}

fn check_hkdf() -> Result<Vec<OracleFinding>, String> {
    let (salt, info) = (parse_hex("000102030405060708090a0b0c")?, parse_hex("f0f1f2f3f4f5f6f7f8f9")?);
    let prk = hmac_sha256(&salt, &[&[0x0b; 22]])?;
    let okm = hkdf_expand(&prk, &info, 42)?;
    Ok(vec![
        OracleFinding::expect_equal(
            "PRK",
            "077709362c2e32df0ddc3f0dc47bba6390b6c73bb50f9c3122ec844ad7c2b3e5",
            crate::to_hex(&prk),
        ),
        OracleFinding::expect_equal(
            "OKM",
            "3cb25f25faacd57a90434f64d0362f2a2d2d0a90cf1a5a4c5db02d56ecc4c5bf34007208d5b887185865",
            crate::to_hex(&okm),
        ),
    ])
}

fn check_tls12_prf_vector() -> Result<Vec<OracleFinding>, String> {
    let secret = parse_hex("9bbe436ba940f017b17652849a71db35")?;
    let seed = parse_hex("a0ba9f936cda311827a6f796ffd5198c")?;
    let expected = "e3f229ba727be17b8d122620557cd453c2aab21d07c3d495329b52d4e61edb5a6b301791e90d35c9c9a46b4e14baf9af\
                    0fa022f7077def17abfd3797c0564bab4fbc91666e9def9b97fce34f796789baa48082d122ee42c5a72e5a5110fff701\
                    87347b66";
    Ok(vec![OracleFinding::expect_equal(
        "",
        expected,
        crate::to_hex(&tls12_prf(&secret, "test label", &seed, 100)?),
    )])
}

/// One EAP-TLS conversation in memory.
struct EapTlsConversation {
    keys: [EapKeys; 2],
    /// TLS records of the server's first flight.
    flight: Vec<u8>,
    log: KeyLog,
}

/// Octets of an unfragmented EAP packet before the TLS records: code, identifier, length, type, flags.
const BEFORE_RECORDS: usize = 6;
/// Longer than any flight, so that there is no fragmentation.
const FRAGMENT: usize = 65_000;

fn run_eap_tls_conversation(version: TlsVersion) -> Result<EapTlsConversation, String> {
    let roots = || TrustRoots::from_der([fixtures::root_certificate()]);
    let clock = || SharedWallClock::from_time(fixtures::WALL_TIME);
    let log = KeyLog::new();
    let client = ClientConfig::new(TlsClientOptions {
        versions: version.into(),
        credentials: Some(fixtures::client_credentials(2)),
        roots: roots(),
        server_name: None,
        resumption: None,
        clock: clock(),
        key_log: None,
    });
    let server = ServerConfig::new(TlsServerOptions {
        versions: version.into(),
        credentials: fixtures::server_credentials(2),
        client_roots: Some(roots()),
        resumption: None,
        clock: clock(),
        key_log: Some(log.clone()),
    });
    let client = PeerTlsBackend::Real(client.map_err(|e| e.to_string())?, 0);
    let server = ServerTlsBackend::Real(server.map_err(|e| e.to_string())?);
    let rng = |label| -> SecureRng { Seed::new(1).derive_secure_rng(label, 0) };
    let method = EapTlsPeerFactory { tls: client, fragment: FRAGMENT };
    let config = peer::EapPeerConfig {
        identity: b"bob".to_vec(),
        methods: [Box::new(method) as Box<dyn PeerMethodFactory>].into(),
        timeout: Duration::from_secs(60),
        wall: fixtures::WALL_TIME,
    };
    let offers = vec![
        Box::new(EapTlsServerFactory { tls: server, fragment: FRAGMENT }) as Box<dyn ServerMethodFactory>
    ];
    let mut peer = peer::EapPeer::new(config, rng("peer"), Instant::ZERO);
    let context = EapMethodContext {
        rng: &mut rng("server"),
        wall: fixtures::WALL_TIME,
        mtu: None,
        without_extended_master_secret: false,
    };
    let mut server = server::EapServer::new(offers, 1, context);
    let (mut buf, mut flight) = (Vec::new(), Vec::new());
    while server.poll_transmit(&mut buf) {
        // The first request is the start, without TLS records.
        if flight.is_empty() && buf.len() > BEFORE_RECORDS {
            flight = buf[BEFORE_RECORDS..].to_vec();
        }
        if !peer.handle_packet(Instant::ZERO, &buf) || !peer.poll_transmit(&mut buf) {
            break;
        }
        if !server.handle_packet(&buf) {
            return Err("the server discarded a response".to_owned());
        }
    }
    match (peer.poll_event(), server.poll_event()) {
        (
            Some(peer::EapPeerEvent::Success { keys: Some(a) }),
            Some(server::EapServerEvent::Success { keys: Some(b), .. }),
        ) => Ok(EapTlsConversation { keys: [a, b], flight, log }),
        other => Err(format!("expected success with keys, not {other:?}")),
    }
}

/// Returns the client random and the secret of a label in the key log.
fn logged_secret(log: &KeyLog, label: &str) -> Result<(Vec<u8>, Vec<u8>), String> {
    let text = log.text();
    let line = text.lines().find(|line| line.split(' ').next() == Some(label));
    let mut words = line.unwrap_or_default().split(' ').skip(1);
    match (words.next(), words.next()) {
        (Some(random), Some(secret)) => Ok((parse_hex(random)?, parse_hex(secret)?)),
        _ => Err(format!("the key log has no {label}")),
    }
}

fn compare_eap_keys(material: &[u8], [peer, server]: &[EapKeys; 2]) -> Result<Vec<OracleFinding>, String> {
    let (msk, emsk) = material.split_at_checked(64).ok_or("too little key material")?;
    Ok(vec![
        OracleFinding::expect_octets("MSK of the peer", msk, &*peer.msk),
        OracleFinding::expect_octets("MSK of the server", msk, &*server.msk),
        OracleFinding::expect_octets("EMSK of the peer", emsk, &*peer.emsk),
        OracleFinding::expect_octets("EMSK of the server", emsk, &*server.emsk),
    ])
}

fn check_tls12() -> Result<Vec<OracleFinding>, String> {
    let EapTlsConversation { keys, flight, log } = run_eap_tls_conversation(TlsVersion::Tls12)?;
    let (client_random, master) = logged_secret(&log, "CLIENT_RANDOM")?;
    // Record header (5), handshake header (4, type 2 for ServerHello), version (2), random (32).
    let (Some([22, ..]), Some(2), Some(server_random)) = (flight.get(..5), flight.get(5), flight.get(11..43))
    else {
        return Err("the server's first flight does not begin with its hello".to_owned());
    };
    let seed = [&client_random[..], server_random].concat();
    compare_eap_keys(&tls12_prf(&master, "client EAP encryption", &seed, 128)?, &keys)
}

fn check_tls13() -> Result<Vec<OracleFinding>, String> {
    let EapTlsConversation { keys, log, .. } = run_eap_tls_conversation(TlsVersion::Tls13)?;
    let (_, exporter) = logged_secret(&log, "EXPORTER_SECRET")?;
    let derived = expand_label(&exporter, "EXPORTER_EAP_TLS_Key_Material", &sha256(&[]), 32)?;
    compare_eap_keys(&expand_label(&derived, "exporter", &sha256(&[&[0x0d]]), 128)?, &keys)
}
