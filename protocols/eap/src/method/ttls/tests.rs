//! EAP-TTLS, peer against server in memory.

use super::super::connection::EapFragmentKind;
use super::super::tunnel::tests::{
    PASSWORD, TestHost, TunnelTestRun, USER, VERSIONS, a_session_ends_with_its_password, real_tls,
    recorded_tls, run_conversation as converse, the_refused_stay_so, the_unknown_fail_as_the_wrong_do,
    tls_configs,
};
use super::super::{PeerMethodResult, ServerMethodResult, UserSecret, gtc, md5, mschapv2};
use super::*;
use usher_crypto::legacy::nt_hash;
use usher_crypto::tls::{TlsResumptionConfig, TlsVersion};

const ALL: [InnerMethod; 7] = [
    InnerMethod::Pap,
    InnerMethod::Chap,
    InnerMethod::MsChap,
    InnerMethod::MsChapV2,
    InnerMethod::Eap(EapType::MSCHAPV2),
    InnerMethod::Eap(EapType::GTC),
    InnerMethod::Eap(EapType::MD5),
];

fn test_proof(inner: InnerMethod, user: &[u8], password: &[u8]) -> TtlsInnerCredential {
    let eap = |offer: Box<dyn PeerMethodFactory>| TtlsInnerCredential::Eap([offer].into());
    match inner {
        InnerMethod::Pap => TtlsInnerCredential::Pap(password.into()),
        InnerMethod::Chap => TtlsInnerCredential::Chap(password.into()),
        InnerMethod::MsChap => TtlsInnerCredential::MsChap(password.into()),
        InnerMethod::MsChapV2 => TtlsInnerCredential::MsChapV2(password.into()),
        InnerMethod::Eap(EapType::MSCHAPV2) => eap(Box::new(mschapv2::MsChapV2Account::new(user, password))),
        InnerMethod::Eap(EapType::GTC) => eap(Box::new(gtc::GtcToken::new(password))),
        InnerMethod::Eap(_) => eap(Box::new(md5::EapMd5Password::new(password))),
    }
}

struct TtlsTestCase {
    tls: (PeerTlsBackend, ServerTlsBackend),
    inner: InnerMethod,
    accepted: Vec<InnerMethod>,
    user: &'static [u8],
    password: &'static [u8],
    host: TestHost,
    mtu: Option<usize>,
}

impl TtlsTestCase {
    fn new(tls: (PeerTlsBackend, ServerTlsBackend), inner: InnerMethod) -> Self {
        Self {
            tls,
            inner,
            accepted: ALL.to_vec(),
            user: USER,
            password: PASSWORD,
            host: TestHost::HasSecret(UserSecret::Clear(PASSWORD[..].into())),
            mtu: None,
        }
    }
    fn run_case(self) -> TunnelTestRun {
        let (peer, server) = self.tls;
        let fragment = self.mtu.unwrap_or(1024);
        let proof = test_proof(self.inner, self.user, self.password);
        let peer = TtlsPeerFactory { tls: peer, fragment, identity: self.user.to_vec(), proof };
        let server = TtlsServerFactory { tls: server, fragment: 1400, inner: self.accepted.into() };
        converse(peer, server, &self.host, self.mtu)
    }
}

#[test]
fn every_method_inside_whatever_the_version_chain_and_fragment() {
    for version in VERSIONS {
        for chain in 2..=4 {
            let configs = tls_configs(version, chain, None);
            for inner in ALL {
                for mtu in [64, 100, 256, 1024, 65_000] {
                    let tls = real_tls(configs.clone());
                    let run = TtlsTestCase { mtu: Some(mtu), ..TtlsTestCase::new(tls, inner) }.run_case();
                    let keys = run.shared_keys();
                    assert_ne!(keys.msk, keys.emsk);
                    let id = keys.session_id.unwrap();
                    assert_eq!((id.len(), id[0]), (65, 21));
                    assert_eq!(run.identity.as_deref(), Some(USER));
                    assert_eq!((run.inner, run.questions), (Some(inner), 1), "{version:?}");
                }
            }
        }
    }
}

#[test]
fn a_secret_does_for_the_methods_that_it_allows() {
    let nt = || UserSecret::NtHash(nt_hash(PASSWORD).into());
    for (secret, good, asked) in [
        (UserSecret::Hashed, &[InnerMethod::Pap, InnerMethod::Eap(EapType::GTC)][..], 2),
        (
            nt(),
            &[
                InnerMethod::Pap,
                InnerMethod::MsChap,
                InnerMethod::MsChapV2,
                InnerMethod::Eap(EapType::MSCHAPV2),
                InnerMethod::Eap(EapType::GTC),
            ][..],
            1,
        ),
    ] {
        for inner in ALL {
            for password in [PASSWORD, b"pen"] {
                let tls = real_tls(tls_configs(TlsVersion::Tls12, 2, None));
                let host = TestHost::HasSecret(secret.clone());
                let run = TtlsTestCase { host, password, ..TtlsTestCase::new(tls, inner) }.run_case();
                let should = good.contains(&inner) && password == PASSWORD;
                assert_eq!(run.has_failed(), !should, "{secret:?} {inner}");
                assert!(!should || run.questions == asked);
            }
        }
    }
}

#[test]
fn who_is_wrong_or_unknown_or_not_accepted_is_refused() {
    for version in VERSIONS {
        for inner in ALL {
            let case = || TtlsTestCase::new(real_tls(tls_configs(version, 2, None)), inner);
            let others = ALL.into_iter().filter(|i| *i != inner).collect();
            for (what, case) in [
                ("password", TtlsTestCase { password: b"wrong", ..case() }),
                ("name", TtlsTestCase { user: b"mallory", ..case() }),
                ("host", TtlsTestCase { host: TestHost::UnknownUser, ..case() }),
                ("host", TtlsTestCase { host: TestHost::Unavailable, ..case() }),
                ("method", TtlsTestCase { accepted: others, ..case() }),
                ("method", TtlsTestCase { accepted: vec![], ..case() }),
            ] {
                assert!(case.run_case().has_failed(), "{what} {inner} {version:?}");
            }
        }
    }
}

#[test]
fn a_name_that_no_user_name_attribute_holds_is_not_asked_for() {
    const NAME: &[u8] = &[b'a'; 254];
    for (user, asked) in [(&NAME[1..], true), (NAME, false)] {
        let run = TtlsTestCase {
            user,
            ..TtlsTestCase::new(real_tls(tls_configs(TlsVersion::Tls13, 2, None)), InnerMethod::Pap)
        }
        .run_case();
        assert_eq!((run.has_failed(), run.questions > 0), (true, asked));
    }
}

#[test]
fn a_recorded_tunnel_has_the_real_ones_packets() {
    for version in VERSIONS {
        for inner in ALL {
            let real = TtlsTestCase::new(real_tls(tls_configs(version, 3, None)), inner).run_case();
            let replayed = TtlsTestCase::new(recorded_tls(tls_configs(version, 3, None)), inner).run_case();
            assert_eq!(real.packet_lengths(), replayed.packet_lengths());
            replayed.shared_keys();
        }
    }
}

#[test]
fn passwords_of_any_length_go_through_their_padding() {
    for password in [&b""[..], b"fifteen octets.", b"sixteen octets..", b"seventeen octets."] {
        let tls = real_tls(tls_configs(TlsVersion::Tls13, 2, None));
        let host = TestHost::HasSecret(UserSecret::Clear(password[..].into()));
        TtlsTestCase { password, host, ..TtlsTestCase::new(tls, InnerMethod::Pap) }.run_case().shared_keys();
    }
}

#[test]
fn a_resumed_session_leaves_phase_2_out_but_not_the_user() {
    for version in VERSIONS {
        for inner in ALL {
            let tls = real_tls(tls_configs(version, 2, Some(TlsResumptionConfig::default())));
            let case = || TtlsTestCase::new(tls.clone(), inner);
            // Start, the server's flight, with TLS 1.3 a ticket and the zero octet, Success.
            let full = case().run_case();
            let resumed = case().run_case();
            let least = if version == TlsVersion::Tls12 { 3 } else { 4 };
            assert_eq!(resumed.requests.len(), least, "{:?}", resumed.packet_lengths());
            assert_ne!(full.shared_keys().msk, resumed.shared_keys().msk);
            assert_eq!((resumed.identity.as_deref(), resumed.inner), (Some(USER), Some(inner)));
            assert_eq!(resumed.questions, 1);
            assert_eq!(case().run_case().packet_lengths(), resumed.packet_lengths());
            assert!(TtlsTestCase { host: TestHost::UnknownUser, ..case() }.run_case().has_failed());
        }
    }
}

#[test]
fn a_session_that_admitted_nobody_is_no_shortcut() {
    for version in VERSIONS {
        for inner in ALL {
            let tls = real_tls(tls_configs(version, 2, Some(TlsResumptionConfig::default())));
            assert!(
                TtlsTestCase { password: b"wrong", ..TtlsTestCase::new(tls.clone(), inner) }
                    .run_case()
                    .has_failed()
            );
            let wrong =
                TtlsTestCase { password: b"wrong", ..TtlsTestCase::new(tls.clone(), inner) }.run_case();
            assert!(wrong.has_failed() && wrong.questions == 1, "{version:?}");
            let right = TtlsTestCase::new(tls, inner).run_case();
            right.shared_keys();
            assert_eq!(right.inner, Some(inner));
        }
    }
}

#[test]
fn an_unknown_user_fails_exactly_like_a_wrong_password() {
    for version in VERSIONS {
        for inner in ALL {
            the_unknown_fail_as_the_wrong_do(|host, password| {
                let tls = real_tls(tls_configs(version, 2, None));
                TtlsTestCase { host, password, ..TtlsTestCase::new(tls, inner) }.run_case()
            });
        }
    }
}

#[test]
fn a_refused_user_fails_with_any_proof_and_at_once_if_resumed() {
    for version in VERSIONS {
        for secret in [UserSecret::Clear(PASSWORD.into()), UserSecret::Hashed] {
            for inner in ALL {
                let tls = real_tls(tls_configs(version, 2, Some(TlsResumptionConfig::default())));
                let run = |host| TtlsTestCase { host, ..TtlsTestCase::new(tls.clone(), inner) }.run_case();
                the_refused_stay_so(run, &secret);
            }
        }
    }
}

/// Completes a handshake. Returns the client's connection and the server, which waits for AVPs.
fn established_tunnel() -> (TlsConnection, Box<dyn crate::method::ServerMethod>) {
    let (client, server) = tls_configs(TlsVersion::Tls12, 2, None);
    let inner: Vec<InnerMethod> = ALL.to_vec();
    let offer =
        TtlsServerFactory { tls: ServerTlsBackend::Real(server), fragment: 65_000, inner: inner.into() };
    let mut rng = usher_core::Seed::new(1).derive_secure_rng("server", 0);
    let wall = usher_crypto::tls::fixtures::WALL_TIME;
    let mut server = offer.start_server_method(EapMethodContext {
        rng: &mut rng,
        wall,
        mtu: None,
        without_extended_master_secret: false,
    });
    let engine = usher_crypto::tls::TlsClientEngine::new_for_session_holder(&client, 0).unwrap();
    let mut conn = TlsConnection::new(Box::new(engine), true, 65_000);
    server.build_request(1, &mut Vec::new());
    conn.fill_output();
    for round in 1..=2 {
        let (mut said, mut request) = (Vec::new(), Vec::new());
        conn.build_fragment(&mut said);
        assert_eq!(server.handle_response(round, &said), ServerMethodResult::Continue);
        server.build_request(round + 1, &mut request);
        assert_eq!(request[0] & 0x20, 0, "only the first request is a start");
        assert_eq!(conn.read_fragment(&request), EapFragmentKind::Complete);
        assert!(conn.process_message());
    }
    assert!(!conn.engine.is_handshaking());
    (conn, server)
}

/// The server's verdict on AVPs.
fn send_avps(
    conn: &mut TlsConnection,
    server: &mut dyn crate::method::ServerMethod,
    avps: &[u8],
) -> ServerMethodResult {
    assert!(conn.write_data(avps));
    let mut said = Vec::new();
    conn.build_fragment(&mut said);
    server.handle_response(3, &said)
}

/// RFC 5281 §10.1: an unknown AVP with the M bit ends the run, and reserved bits are ignored.
#[test]
fn what_must_be_understood_inside_and_is_not_ends_the_run() {
    for (flags, verdict) in [
        (0x40, ServerMethodResult::Failure),
        (0x5f, ServerMethodResult::Failure),
        (0, ServerMethodResult::QueryPending),
        (0x1f, ServerMethodResult::QueryPending),
    ] {
        let (mut conn, mut server) = established_tunnel();
        let mut avps = Vec::new();
        avp::emit_avp(&mut avps, avp::TtlsAvpCode::USER_NAME, USER);
        avp::emit_avp(&mut avps, avp::TtlsAvpCode::USER_PASSWORD, PASSWORD);
        avps[4] |= 0x1f;
        avps.extend_from_slice(&[0, 0, 0x27, 0x0f, flags, 0, 0, 8]);
        assert_eq!(send_avps(&mut conn, &mut *server, &avps), verdict, "{flags:#x}");
    }
}

/// RFC 5281 §11.2.2 to §11.2.4: a challenge or identifier that is not the tunnel's is rejected, whatever the response.
#[test]
fn a_challenge_from_elsewhere_is_refused() {
    use avp::TtlsAvpCode;
    let kinds = [
        (TtlsAvpCode::CHAP_PASSWORD, TtlsAvpCode::CHAP_CHALLENGE, 17),
        (TtlsAvpCode::MS_CHAP_RESPONSE, TtlsAvpCode::MS_CHAP_CHALLENGE, 50),
        (TtlsAvpCode::MS_CHAP2_RESPONSE, TtlsAvpCode::MS_CHAP_CHALLENGE, 50),
    ];
    for (proof, challenge_code, length) in kinds {
        for (wrong_challenge, wrong_identifier) in [(false, false), (true, false), (false, true)] {
            let (mut conn, mut server) = established_tunnel();
            let (mut own, identifier) = if proof == TtlsAvpCode::MS_CHAP_RESPONSE {
                tunnel_challenge::<SHORT_CHALLENGE>(&conn).map(|(c, i)| (c.to_vec(), i)).unwrap()
            } else {
                tunnel_challenge::<CHALLENGE>(&conn).map(|(c, i)| (c.to_vec(), i)).unwrap()
            };
            own[0] ^= u8::from(wrong_challenge);
            let mut response = vec![0; length];
            response[0] = identifier ^ u8::from(wrong_identifier);
            response[1] = 1;
            let mut avps = Vec::new();
            avp::emit_avp(&mut avps, TtlsAvpCode::USER_NAME, USER);
            avp::emit_avp(&mut avps, challenge_code, &own);
            avp::emit_avp(&mut avps, proof, &response);
            let right = !wrong_challenge && !wrong_identifier;
            let verdict = if right { ServerMethodResult::QueryPending } else { ServerMethodResult::Failure };
            assert_eq!(send_avps(&mut conn, &mut *server, &avps), verdict, "{proof:?}");
        }
    }
}

/// An inner method that answers with a malformed response.
#[derive(Debug)]
struct MalformedMethod;
impl PeerMethodFactory for MalformedMethod {
    fn kind(&self) -> EapType {
        EapType::MD5
    }
    fn start_peer_method(&self, _: EapMethodContext<'_>) -> Box<dyn PeerMethod> {
        Box::new(MalformedMethod)
    }
}
impl PeerMethod for MalformedMethod {
    fn handle_request(&mut self, _: u8, _: &[u8], out: &mut Vec<u8>) -> PeerMethodResult {
        out.push(0);
        PeerMethodResult::MayEnd
    }
}

/// RFC 5281 §11.2.1: EAP outside a tunnel discards such a packet, and the peer would wait for an answer.
#[test]
fn what_would_be_discarded_outside_ends_a_run_inside() {
    let (peer, server) = real_tls(tls_configs(TlsVersion::Tls13, 2, None));
    let proof = TtlsInnerCredential::Eap([Box::new(MalformedMethod) as Box<dyn PeerMethodFactory>].into());
    let peer = TtlsPeerFactory { tls: peer, fragment: 1024, identity: USER.to_vec(), proof };
    let inner = [InnerMethod::Eap(EapType::MD5)].into();
    let server = TtlsServerFactory { tls: server, fragment: 1400, inner };
    let run = converse(peer, server, &TestHost::HasSecret(UserSecret::Clear(PASSWORD[..].into())), None);
    assert!(run.has_failed());
}

/// RFC 5281 §9.2.1: the server offers version 0 and rejects a client with another.
#[test]
fn another_version_is_refused() {
    let (_, tls) = real_tls(tls_configs(TlsVersion::Tls13, 2, None));
    let offer = TtlsServerFactory { tls, fragment: 1400, inner: [InnerMethod::Pap].into() };
    for (flags, verdict) in
        [(1, ServerMethodResult::Failure), (7, ServerMethodResult::Failure), (0, ServerMethodResult::Ignore)]
    {
        let mut rng = usher_core::Seed::new(1).derive_secure_rng("server", 0);
        let wall = usher_crypto::tls::fixtures::WALL_TIME;
        let mut server = offer.start_server_method(EapMethodContext {
            rng: &mut rng,
            wall,
            mtu: None,
            without_extended_master_secret: false,
        });
        let mut start = Vec::new();
        server.build_request(1, &mut start);
        assert_eq!(start, [0x20]);
        assert_eq!(server.handle_response(1, &[flags]), verdict);
    }
}

#[test]
fn a_session_ends_with_the_password_that_it_was_given_for() {
    for version in VERSIONS {
        let tls = real_tls(tls_configs(version, 2, Some(TlsResumptionConfig::default())));
        a_session_ends_with_its_password(|host, password| {
            TtlsTestCase { host, password, ..TtlsTestCase::new(tls.clone(), InnerMethod::Pap) }.run_case()
        });
    }
}
