//! PEAP, peer against server in memory.

use super::super::tunnel::tests::{
    PASSWORD, TestHost, TunnelTestRun, USER, VERSIONS, a_session_ends_with_its_password, real_tls,
    recorded_tls, run_conversation as converse, the_refused_stay_so, the_unknown_fail_as_the_wrong_do,
    tls_configs,
};
use super::super::{InnerMethod, UserSecret, gtc, md5, mschapv2};
use super::*;
use usher_crypto::legacy::nt_hash;
use usher_crypto::tls::{TlsResumptionConfig, TlsVersion};

const KINDS: [EapType; 3] = [EapType::MSCHAPV2, EapType::GTC, EapType::MD5];

fn peer_offer(kind: EapType, user: &[u8], password: &[u8]) -> Box<dyn PeerMethodFactory> {
    match kind {
        EapType::MSCHAPV2 => Box::new(mschapv2::MsChapV2Account::new(user, password)),
        EapType::GTC => Box::new(gtc::GtcToken::new(password)),
        _ => Box::new(md5::EapMd5Password::new(password)),
    }
}

struct PeapTestCase {
    tls: (PeerTlsBackend, ServerTlsBackend),
    peer_kinds: Vec<EapType>,
    user: &'static [u8],
    password: &'static [u8],
    host: TestHost,
    mtu: Option<usize>,
    cryptobinding: CryptobindingPolicy,
}

impl PeapTestCase {
    fn new(tls: (PeerTlsBackend, ServerTlsBackend)) -> Self {
        Self {
            tls,
            peer_kinds: KINDS.to_vec(),
            user: USER,
            password: PASSWORD,
            host: TestHost::HasSecret(UserSecret::Clear(PASSWORD[..].into())),
            mtu: None,
            cryptobinding: CryptobindingPolicy::Required,
        }
    }
    fn run_case(self) -> TunnelTestRun {
        let (peer, server) = self.tls;
        let fragment = self.mtu.unwrap_or(1024);
        let inner = self.peer_kinds.iter().map(|k| peer_offer(*k, self.user, self.password)).collect();
        let peer = PeapPeerFactory { tls: peer, fragment, identity: self.user.to_vec(), inner };
        let cryptobinding = self.cryptobinding;
        let server = PeapServerFactory { tls: server, fragment: 1400, inner: KINDS.into(), cryptobinding };
        converse(peer, server, &self.host, self.mtu)
    }
}

#[test]
fn every_method_inside_whatever_the_version_chain_and_fragment() {
    for version in VERSIONS {
        for chain in 2..=4 {
            let configs = tls_configs(version, chain, None);
            for kind in KINDS {
                for mtu in [64, 100, 256, 1024, 65_000] {
                    let tls = real_tls(configs.clone());
                    let run =
                        PeapTestCase { peer_kinds: vec![kind], mtu: Some(mtu), ..PeapTestCase::new(tls) }
                            .run_case();
                    let keys = run.shared_keys();
                    assert_ne!(keys.msk, keys.emsk);
                    let id = keys.session_id.unwrap();
                    assert_eq!((id.len(), id[0]), (65, 25));
                    assert_eq!(run.identity.as_deref(), Some(USER));
                    assert_eq!(run.inner, Some(InnerMethod::Eap(kind)));
                }
            }
        }
    }
}

#[test]
fn a_secret_that_is_hashed_is_compared_by_the_host() {
    for (secret, kind, questions) in [
        (UserSecret::Hashed, EapType::GTC, 2),
        (UserSecret::NtHash(nt_hash(PASSWORD).into()), EapType::GTC, 1),
        (UserSecret::NtHash(nt_hash(PASSWORD).into()), EapType::MSCHAPV2, 1),
    ] {
        for password in [PASSWORD, b"pen"] {
            let tls = real_tls(tls_configs(TlsVersion::Tls13, 2, None));
            let host = TestHost::HasSecret(secret.clone());
            let run =
                PeapTestCase { host, password, peer_kinds: vec![kind], ..PeapTestCase::new(tls) }.run_case();
            assert_eq!(run.questions, questions);
            assert_eq!(run.has_failed(), password != PASSWORD, "{secret:?} {kind}");
        }
    }
    // The server proposes methods by the secret; the peer has no influence.
    let tls = real_tls(tls_configs(TlsVersion::Tls12, 2, None));
    let run =
        PeapTestCase { host: TestHost::HasSecret(UserSecret::Hashed), ..PeapTestCase::new(tls) }.run_case();
    assert_eq!(run.inner, Some(InnerMethod::Eap(EapType::GTC)));
    run.shared_keys();
}

#[test]
fn peers_wrong_unknown_or_without_a_common_method_are_refused() {
    for version in VERSIONS {
        let case = || PeapTestCase::new(real_tls(tls_configs(version, 2, None)));
        let hashed = || TestHost::HasSecret(UserSecret::Hashed);
        for (what, case) in [
            ("password", PeapTestCase { password: b"wrong", ..case() }),
            ("password", PeapTestCase { password: b"wrong", peer_kinds: vec![EapType::GTC], ..case() }),
            ("password", PeapTestCase { password: b"wrong", peer_kinds: vec![EapType::MD5], ..case() }),
            ("name", PeapTestCase { user: b"mallory", ..case() }),
            ("host", PeapTestCase { host: TestHost::UnknownUser, ..case() }),
            ("host", PeapTestCase { host: TestHost::Unavailable, ..case() }),
            ("method", PeapTestCase { peer_kinds: vec![], ..case() }),
            ("method", PeapTestCase { peer_kinds: vec![EapType::MSCHAPV2], host: hashed(), ..case() }),
        ] {
            assert!(case.run_case().has_failed(), "{what} {version:?}");
        }
    }
}

#[test]
fn a_name_longer_than_radius_has_is_refused() {
    let run = PeapTestCase {
        user: &[b'a'; 254],
        ..PeapTestCase::new(real_tls(tls_configs(TlsVersion::Tls13, 2, None)))
    }
    .run_case();
    assert!(run.has_failed() && run.questions == 0);
}

#[test]
fn a_recorded_tunnel_has_the_real_ones_packets() {
    for version in VERSIONS {
        for kind in KINDS {
            let case = |tls| PeapTestCase { peer_kinds: vec![kind], ..PeapTestCase::new(tls) };
            let real = case(real_tls(tls_configs(version, 3, None))).run_case();
            let replayed = case(recorded_tls(tls_configs(version, 3, None))).run_case();
            assert_eq!(real.packet_lengths(), replayed.packet_lengths());
            replayed.shared_keys();
        }
    }
}

#[test]
fn a_resumed_session_leaves_the_method_out_but_not_the_user() {
    for version in VERSIONS {
        let tls = real_tls(tls_configs(version, 2, Some(TlsResumptionConfig::default())));
        let case = || PeapTestCase::new(tls.clone());
        // Start, the server's flight, the result (with TLS 1.3 after a ticket), Success.
        let full = case().run_case();
        let resumed = case().run_case();
        assert_eq!(resumed.requests.len(), 4, "{:?}", resumed.packet_lengths());
        assert_ne!(full.shared_keys().msk, resumed.shared_keys().msk);
        assert_eq!(resumed.identity.as_deref(), Some(USER));
        assert_eq!(resumed.inner, Some(InnerMethod::Eap(EapType::MSCHAPV2)));
        assert_eq!(resumed.questions, 1);
        // A resumed session can be resumed again.
        assert_eq!(case().run_case().packet_lengths(), resumed.packet_lengths());
        // A user who may no longer log in.
        assert!(PeapTestCase { host: TestHost::UnknownUser, ..case() }.run_case().has_failed());
    }
}

#[test]
fn a_session_that_admitted_nobody_is_no_shortcut() {
    for version in VERSIONS {
        let tls = real_tls(tls_configs(version, 2, Some(TlsResumptionConfig::default())));
        assert!(
            PeapTestCase { password: b"wrong", ..PeapTestCase::new(tls.clone()) }.run_case().has_failed()
        );
        let wrong = PeapTestCase { password: b"wrong", ..PeapTestCase::new(tls.clone()) }.run_case();
        assert!(
            wrong.has_failed() && wrong.inner == Some(InnerMethod::Eap(EapType::MSCHAPV2)),
            "{version:?}"
        );
        let right = PeapTestCase::new(tls).run_case();
        right.shared_keys();
        assert_eq!(right.questions, 1);
    }
}

#[test]
fn an_unknown_user_fails_exactly_like_a_wrong_password() {
    for version in VERSIONS {
        for kind in KINDS {
            the_unknown_fail_as_the_wrong_do(|host, password| {
                let tls = real_tls(tls_configs(version, 2, None));
                PeapTestCase { peer_kinds: vec![kind], host, password, ..PeapTestCase::new(tls) }.run_case()
            });
        }
    }
}

#[test]
fn a_refused_user_fails_with_any_proof_and_at_once_if_resumed() {
    for version in VERSIONS {
        for secret in [UserSecret::Clear(PASSWORD.into()), UserSecret::Hashed] {
            for kind in KINDS {
                let tls = real_tls(tls_configs(version, 2, Some(TlsResumptionConfig::default())));
                let run = |host| {
                    PeapTestCase { peer_kinds: vec![kind], host, ..PeapTestCase::new(tls.clone()) }.run_case()
                };
                let (right, resumed) = the_refused_stay_so(run, &secret);
                assert_eq!(right.inner, Some(InnerMethod::Eap(kind)));
                assert_eq!(resumed.requests.len(), 4, "{:?}", resumed.packet_lengths());
            }
        }
    }
}

#[test]
fn a_session_ends_with_the_password_that_it_was_given_for() {
    for version in VERSIONS {
        let tls = real_tls(tls_configs(version, 2, Some(TlsResumptionConfig::default())));
        a_session_ends_with_its_password(|host, password| {
            PeapTestCase { host, password, ..PeapTestCase::new(tls.clone()) }.run_case()
        });
    }
}

#[test]
fn keys_are_bound_where_offered_and_in_resumed_sessions() {
    for version in VERSIONS {
        for kind in KINDS {
            for cryptobinding in
                [CryptobindingPolicy::Off, CryptobindingPolicy::Optional, CryptobindingPolicy::Required]
            {
                let tls = real_tls(tls_configs(version, 2, Some(TlsResumptionConfig::default())));
                let case = || PeapTestCase {
                    cryptobinding,
                    peer_kinds: vec![kind],
                    ..PeapTestCase::new(tls.clone())
                };
                // Both ends have the same keys.
                case().run_case().shared_keys();
                let resumed = case().run_case();
                resumed.shared_keys();
                assert!(resumed.resumed);
            }
        }
        // The result is longer by a TLV of 60 octets, and so is the answer.
        let lengths = |cryptobinding| {
            let run =
                PeapTestCase { cryptobinding, ..PeapTestCase::new(real_tls(tls_configs(version, 2, None))) }
                    .run_case();
            run.packet_lengths()
        };
        let (off, on) = (lengths(CryptobindingPolicy::Off), lengths(CryptobindingPolicy::Optional));
        let last = off.len() - 1;
        assert_eq!((off[last].0 + 60, off[last].1 + 60), on[last]);
    }
}

/// A peer without cryptobinding, or with other keys.
#[derive(Debug)]
struct TamperingPhase {
    phase: peer::PeapPeerPhase,
    /// Changes the answer to the result.
    change: fn(Vec<u8>) -> Vec<u8>,
}

impl crate::method::tunnel::TunnelPeerPhase for TamperingPhase {
    fn handle_empty(
        &mut self,
        conn: &crate::method::connection::TlsConnection,
        out: &mut Vec<u8>,
    ) -> crate::method::PeerMethodResult {
        self.phase.handle_empty(conn, out)
    }
    fn handle_data(
        &mut self,
        identifier: u8,
        data: &[u8],
        conn: &crate::method::connection::TlsConnection,
        out: &mut Vec<u8>,
    ) -> crate::method::PeerMethodResult {
        let verdict = self.phase.handle_data(identifier, data, conn, out);
        if tlv::parse_tlv_packet(out, crate::packet::EapCode::Response).is_some() {
            *out = (self.change)(core::mem::take(out));
        }
        verdict
    }
    fn handshake_verdict(
        &self,
        conn: &crate::method::connection::TlsConnection,
    ) -> crate::method::PeerMethodResult {
        self.phase.handshake_verdict(conn)
    }
    fn poll_work(&mut self) -> Option<usher_core::WorkRecord> {
        None
    }
}

#[derive(Debug)]
struct DeafOffer {
    tls: PeerTlsBackend,
    change: fn(Vec<u8>) -> Vec<u8>,
}

impl PeerMethodFactory for DeafOffer {
    fn kind(&self) -> EapType {
        EapType::PEAP
    }
    fn start_peer_method(&self, context: EapMethodContext<'_>) -> Box<dyn PeerMethod> {
        let rng = SecureRng::from_seed(context.rng.random_array());
        let inner = [peer_offer(EapType::MSCHAPV2, USER, PASSWORD)].into();
        let phase = peer::PeapPeerPhase::new(USER.to_vec(), inner, rng, context.wall);
        let phase = TamperingPhase { phase, change: self.change };
        Box::new(TunnelPeer::new(EapType::PEAP, &self.tls, 1024, phase, &context))
    }
}

#[test]
fn a_missing_binding_fails_if_required_and_a_wrong_one_always() {
    /// The first eleven octets are the result; the rest is the binding.
    fn strip_binding(mut answer: Vec<u8>) -> Vec<u8> {
        answer.truncate(11);
        answer[2..4].copy_from_slice(&[0, 11]);
        answer
    }
    fn corrupt_binding(mut answer: Vec<u8>) -> Vec<u8> {
        if let Some(last) = answer.last_mut() {
            *last ^= 1;
        }
        answer
    }
    for version in VERSIONS {
        for (change, cryptobinding, taken) in [
            (strip_binding as fn(Vec<u8>) -> Vec<u8>, CryptobindingPolicy::Optional, true),
            (strip_binding, CryptobindingPolicy::Required, false),
            (corrupt_binding, CryptobindingPolicy::Optional, false),
            (corrupt_binding, CryptobindingPolicy::Required, false),
        ] {
            let (tls, server) = real_tls(tls_configs(version, 2, None));
            let server =
                PeapServerFactory { tls: server, fragment: 1400, inner: KINDS.into(), cryptobinding };
            let host = TestHost::HasSecret(UserSecret::Clear(PASSWORD[..].into()));
            let run = converse(DeafOffer { tls, change }, server, &host, None);
            let let_in = matches!(run.server, crate::server::EapServerEvent::Success { .. });
            assert_eq!(let_in, taken, "{version:?} {cryptobinding:?}");
        }
    }
}
