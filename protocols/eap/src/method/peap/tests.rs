//! PEAP, peer against server in memory.

use super::super::tunnel::tests::{
    Host, PASSWORD, Run, USER, VERSIONS, a_session_ends_with_its_password, configs, real, recorded,
    run as converse, the_refused_stay_so, the_unknown_fail_as_the_wrong_do,
};
use super::super::{Inner, UserSecret, gtc, md5, mschapv2};
use super::*;
use usher_crypto::legacy::nt_hash;
use usher_crypto::tls::{Resumption, Version};

const KINDS: [Type; 3] = [Type::MSCHAPV2, Type::GTC, Type::MD5];

fn offer(kind: Type, user: &[u8], password: &[u8]) -> Box<dyn PeerOffer> {
    match kind {
        Type::MSCHAPV2 => Box::new(mschapv2::Account::new(user, password)),
        Type::GTC => Box::new(gtc::Token::new(password)),
        _ => Box::new(md5::Password::new(password)),
    }
}

struct Case {
    tls: (PeerTls, ServerTls),
    peer_kinds: Vec<Type>,
    user: &'static [u8],
    password: &'static [u8],
    host: Host,
    mtu: Option<usize>,
    cryptobinding: Cryptobinding,
}

impl Case {
    fn new(tls: (PeerTls, ServerTls)) -> Self {
        Self {
            tls,
            peer_kinds: KINDS.to_vec(),
            user: USER,
            password: PASSWORD,
            host: Host::Knows(UserSecret::Clear(PASSWORD[..].into())),
            mtu: None,
            cryptobinding: Cryptobinding::Required,
        }
    }
    fn run(self) -> Run {
        let (peer, server) = self.tls;
        let fragment = self.mtu.unwrap_or(1024);
        let inner = self.peer_kinds.iter().map(|k| offer(*k, self.user, self.password)).collect();
        let peer = PeerMethodPeap { tls: peer, fragment, identity: self.user.to_vec(), inner };
        let cryptobinding = self.cryptobinding;
        let server = ServerMethodPeap { tls: server, fragment: 1400, inner: KINDS.into(), cryptobinding };
        converse(peer, server, &self.host, self.mtu)
    }
}

#[test]
fn every_method_inside_whatever_the_version_chain_and_fragment() {
    for version in VERSIONS {
        for chain in 2..=4 {
            let configs = configs(version, chain, None);
            for kind in KINDS {
                for mtu in [64, 100, 256, 1024, 65_000] {
                    let tls = real(configs.clone());
                    let run = Case { peer_kinds: vec![kind], mtu: Some(mtu), ..Case::new(tls) }.run();
                    let keys = run.keys();
                    assert_ne!(keys.msk, keys.emsk);
                    let id = keys.session_id.unwrap();
                    assert_eq!((id.len(), id[0]), (65, 25));
                    assert_eq!(run.identity.as_deref(), Some(USER));
                    assert_eq!(run.inner, Some(Inner::Eap(kind)));
                }
            }
        }
    }
}

#[test]
fn a_secret_that_is_hashed_is_compared_by_the_host() {
    for (secret, kind, questions) in [
        (UserSecret::Hashed, Type::GTC, 2),
        (UserSecret::NtHash(nt_hash(PASSWORD).into()), Type::GTC, 1),
        (UserSecret::NtHash(nt_hash(PASSWORD).into()), Type::MSCHAPV2, 1),
    ] {
        for password in [PASSWORD, b"pen"] {
            let tls = real(configs(Version::Tls13, 2, None));
            let host = Host::Knows(secret.clone());
            let run = Case { host, password, peer_kinds: vec![kind], ..Case::new(tls) }.run();
            assert_eq!(run.questions, questions);
            assert_eq!(run.failed(), password != PASSWORD, "{secret:?} {kind}");
        }
    }
    // The server proposes what the secret allows: the peer has no say.
    let tls = real(configs(Version::Tls12, 2, None));
    let run = Case { host: Host::Knows(UserSecret::Hashed), ..Case::new(tls) }.run();
    assert_eq!(run.inner, Some(Inner::Eap(Type::GTC)));
    run.keys();
}

#[test]
fn who_is_wrong_unknown_or_without_a_method_in_common_is_told_inside_and_refused() {
    for version in VERSIONS {
        let case = || Case::new(real(configs(version, 2, None)));
        let hashed = || Host::Knows(UserSecret::Hashed);
        for (what, case) in [
            ("password", Case { password: b"wrong", ..case() }),
            ("password", Case { password: b"wrong", peer_kinds: vec![Type::GTC], ..case() }),
            ("password", Case { password: b"wrong", peer_kinds: vec![Type::MD5], ..case() }),
            ("name", Case { user: b"mallory", ..case() }),
            ("host", Case { host: Host::KnowsNobody, ..case() }),
            ("host", Case { host: Host::Unavailable, ..case() }),
            ("method", Case { peer_kinds: vec![], ..case() }),
            ("method", Case { peer_kinds: vec![Type::MSCHAPV2], host: hashed(), ..case() }),
        ] {
            assert!(case.run().failed(), "{what} {version:?}");
        }
    }
}

#[test]
fn a_name_longer_than_radius_has_is_refused() {
    let run = Case { user: &[b'a'; 254], ..Case::new(real(configs(Version::Tls13, 2, None))) }.run();
    assert!(run.failed() && run.questions == 0);
}

#[test]
fn a_recorded_tunnel_has_the_real_ones_packets() {
    for version in VERSIONS {
        for kind in KINDS {
            let case = |tls| Case { peer_kinds: vec![kind], ..Case::new(tls) };
            let real = case(real(configs(version, 3, None))).run();
            let replayed = case(recorded(configs(version, 3, None))).run();
            assert_eq!(real.lengths(), replayed.lengths());
            replayed.keys();
        }
    }
}

#[test]
fn a_resumed_session_leaves_the_method_out_but_not_the_user() {
    for version in VERSIONS {
        let tls = real(configs(version, 2, Some(Resumption::default())));
        let case = || Case::new(tls.clone());
        // The start, the server's flight, the result (with TLS 1.3 behind a ticket), Success.
        let full = case().run();
        let resumed = case().run();
        assert_eq!(resumed.requests.len(), 4, "{:?}", resumed.lengths());
        assert_ne!(full.keys().msk, resumed.keys().msk);
        assert_eq!(resumed.identity.as_deref(), Some(USER));
        assert_eq!(resumed.inner, Some(Inner::Eap(Type::MSCHAPV2)));
        assert_eq!(resumed.questions, 1);
        // Again: what was resumed is known as well as what was proven.
        assert_eq!(case().run().lengths(), resumed.lengths());
        // Somebody who may no longer log in.
        assert!(Case { host: Host::KnowsNobody, ..case() }.run().failed());
    }
}

#[test]
fn a_session_that_admitted_nobody_is_no_shortcut() {
    for version in VERSIONS {
        let tls = real(configs(version, 2, Some(Resumption::default())));
        assert!(Case { password: b"wrong", ..Case::new(tls.clone()) }.run().failed());
        let wrong = Case { password: b"wrong", ..Case::new(tls.clone()) }.run();
        assert!(wrong.failed() && wrong.inner == Some(Inner::Eap(Type::MSCHAPV2)), "{version:?}");
        let right = Case::new(tls).run();
        right.keys();
        assert_eq!(right.questions, 1);
    }
}

#[test]
fn somebody_unknown_cannot_be_told_from_somebody_with_another_password() {
    for version in VERSIONS {
        for kind in KINDS {
            the_unknown_fail_as_the_wrong_do(|host, password| {
                let tls = real(configs(version, 2, None));
                Case { peer_kinds: vec![kind], host, password, ..Case::new(tls) }.run()
            });
        }
    }
}

#[test]
fn whoever_is_refused_is_so_whatever_is_proven_and_at_once_where_a_session_is_resumed() {
    for version in VERSIONS {
        for secret in [UserSecret::Clear(PASSWORD.into()), UserSecret::Hashed] {
            for kind in KINDS {
                let tls = real(configs(version, 2, Some(Resumption::default())));
                let run = |host| Case { peer_kinds: vec![kind], host, ..Case::new(tls.clone()) }.run();
                let (right, resumed) = the_refused_stay_so(run, &secret);
                assert_eq!(right.inner, Some(Inner::Eap(kind)));
                assert_eq!(resumed.requests.len(), 4, "{:?}", resumed.lengths());
            }
        }
    }
}

#[test]
fn a_session_ends_with_the_password_that_it_was_given_for() {
    for version in VERSIONS {
        let tls = real(configs(version, 2, Some(Resumption::default())));
        a_session_ends_with_its_password(|host, password| {
            Case { host, password, ..Case::new(tls.clone()) }.run()
        });
    }
}

#[test]
fn keys_are_bound_where_that_is_offered_and_sessions_resumed_are_too() {
    for version in VERSIONS {
        for kind in KINDS {
            for cryptobinding in [Cryptobinding::Off, Cryptobinding::Optional, Cryptobinding::Required] {
                let tls = real(configs(version, 2, Some(Resumption::default())));
                let case = || Case { cryptobinding, peer_kinds: vec![kind], ..Case::new(tls.clone()) };
                // Both ends have the same keys.
                case().run().keys();
                let resumed = case().run();
                resumed.keys();
                assert!(resumed.resumed);
            }
        }
        // The result is longer by a TLV of 60 octets, and so is the answer.
        let lengths = |cryptobinding| {
            let run = Case { cryptobinding, ..Case::new(real(configs(version, 2, None))) }.run();
            run.lengths()
        };
        let (off, on) = (lengths(Cryptobinding::Off), lengths(Cryptobinding::Optional));
        let last = off.len() - 1;
        assert_eq!((off[last].0 + 60, off[last].1 + 60), on[last]);
    }
}

/// A peer that knows nothing of cryptobinding, or knows other keys.
#[derive(Debug)]
struct Deaf {
    phase: peer::Phase,
    /// What becomes of the answer to the result.
    change: fn(Vec<u8>) -> Vec<u8>,
}

impl crate::method::tunnel::PeerPhase for Deaf {
    fn nothing(
        &mut self,
        conn: &crate::method::connection::TlsConnection,
        out: &mut Vec<u8>,
    ) -> crate::method::PeerVerdict {
        self.phase.nothing(conn, out)
    }
    fn data(
        &mut self,
        identifier: u8,
        data: &[u8],
        conn: &crate::method::connection::TlsConnection,
        out: &mut Vec<u8>,
    ) -> crate::method::PeerVerdict {
        let verdict = self.phase.data(identifier, data, conn, out);
        if tlv::packet(out, crate::packet::Code::Response).is_some() {
            *out = (self.change)(core::mem::take(out));
        }
        verdict
    }
    fn established(&self, conn: &crate::method::connection::TlsConnection) -> crate::method::PeerVerdict {
        self.phase.established(conn)
    }
    fn poll_work(&mut self) -> Option<usher_core::Work> {
        None
    }
}

#[derive(Debug)]
struct DeafOffer {
    tls: PeerTls,
    change: fn(Vec<u8>) -> Vec<u8>,
}

impl PeerOffer for DeafOffer {
    fn kind(&self) -> Type {
        Type::PEAP
    }
    fn begin(&self, context: Context<'_>) -> Box<dyn PeerMethod> {
        let rng = SecureRng::from_seed(context.rng.array());
        let inner = [offer(Type::MSCHAPV2, USER, PASSWORD)].into();
        let phase = peer::Phase::new(USER.to_vec(), inner, rng, context.wall);
        let phase = Deaf { phase, change: self.change };
        Box::new(TunnelPeer::new(Type::PEAP, &self.tls, 1024, phase, &context))
    }
}

#[test]
fn a_peer_that_does_not_bind_is_refused_where_that_is_required_and_one_that_cannot_always() {
    /// Eleven octets are the result alone; those behind it are the binding.
    fn silent(mut answer: Vec<u8>) -> Vec<u8> {
        answer.truncate(11);
        answer[2..4].copy_from_slice(&[0, 11]);
        answer
    }
    fn wrong(mut answer: Vec<u8>) -> Vec<u8> {
        if let Some(last) = answer.last_mut() {
            *last ^= 1;
        }
        answer
    }
    for version in VERSIONS {
        for (change, cryptobinding, taken) in [
            (silent as fn(Vec<u8>) -> Vec<u8>, Cryptobinding::Optional, true),
            (silent, Cryptobinding::Required, false),
            (wrong, Cryptobinding::Optional, false),
            (wrong, Cryptobinding::Required, false),
        ] {
            let (tls, server) = real(configs(version, 2, None));
            let server = ServerMethodPeap { tls: server, fragment: 1400, inner: KINDS.into(), cryptobinding };
            let host = Host::Knows(UserSecret::Clear(PASSWORD[..].into()));
            let run = converse(DeafOffer { tls, change }, server, &host, None);
            let let_in = matches!(run.server, crate::server::Event::Success { .. });
            assert_eq!(let_in, taken, "{version:?} {cryptobinding:?}");
        }
    }
}
