//! Helpers: a peer and a server with a tunnel in memory, and a host that answers.

use super::super::connection::{PeerTlsBackend, ServerTlsBackend};
use super::super::{
    CredentialDigest, EapMethodContext, InnerMethod, PeerMethodFactory, ServerMethodFactory, UserQuery,
    UserQueryAnswer, UserSecret,
};
use crate::method::ttls::avp;
use crate::packet::EapPacket;
use crate::{EapKeys, peer, server};
use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;
use proptest::collection::vec;
use proptest::prelude::*;
use std::sync::LazyLock;
use usher_core::{Duration, Instant, Seed};
use usher_crypto::tls::{
    ClientConfig, ServerConfig, SharedWallClock, TlsClientOptions, TlsHandshakeRecording,
    TlsResumptionConfig, TlsServerOptions, TlsVersion, TrustRoots, fixtures, record_handshake,
};

pub(in super::super) const USER: &[u8] = b"alice@usher.test";
pub(in super::super) const PASSWORD: &[u8] = b"pencil";
pub(in super::super) const VERSIONS: [TlsVersion; 2] = [TlsVersion::Tls12, TlsVersion::Tls13];

/// TLS of a client and a server without client certificates, with a server chain of this length.
pub(in super::super) fn tls_configs(
    version: TlsVersion,
    chain: u8,
    resumption: Option<TlsResumptionConfig>,
) -> (ClientConfig, ServerConfig) {
    let clock = || SharedWallClock::from_time(fixtures::WALL_TIME);
    let client = ClientConfig::new(TlsClientOptions {
        versions: version.into(),
        credentials: None,
        roots: TrustRoots::from_der([fixtures::root_certificate()]),
        server_name: Some(fixtures::SERVER_NAME.into()),
        resumption,
        clock: clock(),
        key_log: None,
    });
    let server = ServerConfig::new(TlsServerOptions {
        versions: version.into(),
        credentials: fixtures::server_credentials(chain),
        client_roots: None,
        resumption,
        clock: clock(),
        key_log: None,
    });
    (client.unwrap(), server.unwrap())
}

pub(in super::super) fn real_tls(
    (client, server): (ClientConfig, ServerConfig),
) -> (PeerTlsBackend, ServerTlsBackend) {
    (PeerTlsBackend::Real(client, 0), ServerTlsBackend::Real(server))
}

pub(in super::super) fn recorded_tls(
    (client, server): (ClientConfig, ServerConfig),
) -> (PeerTlsBackend, ServerTlsBackend) {
    let recording = Arc::new(record_handshake(&client, &server).unwrap());
    (PeerTlsBackend::Recorded(recording.clone()), ServerTlsBackend::Recorded(recording))
}

#[test]
fn what_is_said_in_the_fuzzers_tunnel_is_heard() {
    let recording = crate::fuzz::fuzz_recording().unwrap();
    // PEAP: the acknowledgement, an identity, GTC's wrong password, the result.
    assert!(crate::fuzz::fuzz_tunnel(
        &recording,
        b"\0\x00\x06\x01alice\x04\x06abc\x0b\x02\x00\x00\x0b\x21\x80\x03\0\x02\0\x01"
    ));
    // TTLS: a name and a wrong password.
    let mut said = Vec::new();
    avp::emit_avp(&mut said, avp::TtlsAvpCode::USER_NAME, b"alice");
    avp::emit_avp(&mut said, avp::TtlsAvpCode::USER_PASSWORD, b"pencil");
    let length = said.len() as u8;
    assert!(crate::fuzz::fuzz_tunnel(&recording, &[&[1, length][..], &said].concat()));
}

proptest! {
    #[test]
    fn tunnel_garbage_upsets_neither_side_and_admits_no_user(
        choice: u8,
        messages in vec(
            prop_oneof![
                vec(any::<u8>(), 0..80),
                vec((0_u8..4, any::<u8>(), vec(any::<u8>(), 0..60)), 1..4).prop_map(|avps| avps_of(&avps)),
            ],
            0..6,
        ),
    ) {
        static RECORDING: LazyLock<Arc<TlsHandshakeRecording>> = LazyLock::new(|| crate::fuzz::fuzz_recording().unwrap());
        let mut bytes = alloc::vec![choice];
        for message in &messages {
            let message = &message[..message.len().min(255)];
            bytes.push(message.len() as u8);
            bytes.extend_from_slice(message);
        }
        prop_assert!(crate::fuzz::fuzz_tunnel(&RECORDING, &bytes));
    }
}

/// AVPs of known codes and codes next to them.
fn avps_of(avps: &[(u8, u8, Vec<u8>)]) -> Vec<u8> {
    let mut out = Vec::new();
    for (which, code, value) in avps {
        match which {
            0 => avp::emit_avp(&mut out, avp::TtlsAvpCode::USER_NAME, value),
            1 => avp::emit_avp(&mut out, avp::TtlsAvpCode::EAP_MESSAGE, value),
            2 => avp::emit_avp(&mut out, avp::TtlsAvpCode::MS_CHAP2_RESPONSE, value),
            _ => {
                avp::emit_avp(&mut out, avp::TtlsAvpCode::USER_PASSWORD, value);
                let at = out.len().saturating_sub(value.len().next_multiple_of(4) + 5);
                out[at] = *code;
            }
        }
    }
    out
}

/// The host's knowledge of the user.
#[derive(Debug)]
pub(in super::super) enum TestHost {
    /// The user's secret.
    HasSecret(UserSecret),
    /// The user is unknown.
    UnknownUser,
    /// The user is unknown, and the peer must still prove this secret.
    Refuses(UserSecret),
    /// The host cannot answer.
    Unavailable,
}

/// A user's credential, not digested.
fn test_credential(secret: &UserSecret) -> CredentialDigest {
    match secret {
        UserSecret::Clear(password) => {
            let mut credential = [0; 32];
            credential[..password.len()].copy_from_slice(password);
            credential
        }
        UserSecret::NtHash(_) => [1; 32],
        UserSecret::Hashed => [2; 32],
    }
}

impl TestHost {
    fn answer_query(&self, question: &UserQuery) -> UserQueryAnswer {
        match (self, question) {
            (Self::Unavailable, _) => UserQueryAnswer::Unavailable,
            (Self::HasSecret(secret), UserQuery::User { name }) if name == USER => {
                UserQueryAnswer::User(Some(secret.clone()))
            }
            (Self::Refuses(secret), UserQuery::User { .. }) => UserQueryAnswer::Refused(secret.clone(), None),
            (_, UserQuery::User { .. }) => UserQueryAnswer::User(None),
            (Self::HasSecret(secret), UserQuery::Resume(remembered)) => UserQueryAnswer::Resume(
                remembered.name == USER && remembered.credential == test_credential(secret),
            ),
            (Self::UnknownUser | Self::Refuses(_), UserQuery::Resume(_)) => UserQueryAnswer::Resume(false),
            (_, UserQuery::Password { password }) => UserQueryAnswer::Password(**password == PASSWORD),
        }
    }
}

pub(in super::super) struct TunnelTestRun {
    pub(in super::super) requests: Vec<Vec<u8>>,
    pub(in super::super) responses: Vec<Vec<u8>>,
    pub(in super::super) peer: peer::EapPeerEvent,
    pub(in super::super) server: server::EapServerEvent,
    pub(in super::super) identity: Option<Vec<u8>>,
    pub(in super::super) inner: Option<InnerMethod>,
    pub(in super::super) questions: usize,
    pub(in super::super) resumed: bool,
}

impl TunnelTestRun {
    /// Returns the keys, equal at both ends. Panics if an end failed.
    pub(in super::super) fn shared_keys(&self) -> EapKeys {
        match (&self.peer, &self.server) {
            (
                peer::EapPeerEvent::Success { keys: Some(a) },
                server::EapServerEvent::Success { keys: Some(b), .. },
            ) => {
                assert_eq!(a, b);
                a.clone()
            }
            other => panic!("{other:?}"),
        }
    }
    pub(in super::super) fn has_failed(&self) -> bool {
        self.peer == peer::EapPeerEvent::Failure
            && matches!(self.server, server::EapServerEvent::Failure { .. })
    }
    pub(in super::super) fn packet_lengths(&self) -> Vec<(usize, usize)> {
        let lengths = |packets: &[Vec<u8>]| packets.iter().map(Vec::len).collect::<Vec<_>>();
        lengths(&self.requests).into_iter().zip(lengths(&self.responses)).collect()
    }
}

/// With TLS sessions: a session becomes invalid with the password of its login. `run` is a login by a peer with this
/// password at a host, with the same TLS configuration each time.
pub(in super::super) fn a_session_ends_with_its_password(
    run: impl Fn(TestHost, &'static [u8]) -> TunnelTestRun,
) {
    let known = |password: &[u8]| TestHost::HasSecret(UserSecret::Clear(password.into()));
    run(known(PASSWORD), PASSWORD).shared_keys();
    let stale = run(known(b"other"), PASSWORD);
    assert!(stale.has_failed() && stale.resumed);
    let old = run(known(b"other"), PASSWORD);
    assert!(old.has_failed() && !old.resumed);
    let new = run(known(b"other"), b"other");
    new.shared_keys();
    assert!(!new.resumed);
}

/// Without TLS sessions: an unknown user fails like a wrong password.
pub(in super::super) fn the_unknown_fail_as_the_wrong_do(
    run: impl Fn(TestHost, &'static [u8]) -> TunnelTestRun,
) {
    let secret = |password: &[u8]| UserSecret::Clear(password.into());
    let wrong = run(TestHost::HasSecret(secret(PASSWORD)), b"wrong");
    let unknown = run(TestHost::Refuses(secret(b"other")), b"wrong");
    assert!(wrong.has_failed() && unknown.has_failed());
    assert_eq!((wrong.packet_lengths(), wrong.inner), (unknown.packet_lengths(), unknown.inner));
}

/// With TLS sessions: a refused user fails whatever the proof, and at once if a session is resumed. Returns the
/// successful login and the resumption that failed.
pub(in super::super) fn the_refused_stay_so(
    run: impl Fn(TestHost) -> TunnelTestRun,
    secret: &UserSecret,
) -> (TunnelTestRun, TunnelTestRun) {
    let refused = || run(TestHost::Refuses(secret.clone()));
    assert!(refused().has_failed());
    // A session of a failed login cannot be resumed.
    let right = run(TestHost::HasSecret(UserSecret::Clear(PASSWORD.into())));
    right.shared_keys();
    let resumed = refused();
    assert!(resumed.has_failed() && resumed.questions == 1);
    (right, resumed)
}

/// Runs a conversation; the server's fragments are at most `mtu`, if that is less than its own limit.
pub(in super::super) fn run_conversation(
    peer_offer: impl PeerMethodFactory + 'static,
    server_offer: impl ServerMethodFactory + 'static,
    host: &TestHost,
    mtu: Option<usize>,
) -> TunnelTestRun {
    let wall = fixtures::WALL_TIME;
    let seed = Seed::new(5);
    let config = peer::EapPeerConfig {
        identity: b"anonymous@usher.test".to_vec(),
        methods: [Box::new(peer_offer) as Box<dyn PeerMethodFactory>].into(),
        timeout: Duration::from_secs(60),
        wall,
    };
    let offers = [Box::new(server_offer) as Box<dyn ServerMethodFactory>];
    let mut peer = peer::EapPeer::new(config, seed.derive_secure_rng("peer", 0), Instant::ZERO);
    let context = EapMethodContext {
        rng: &mut seed.derive_secure_rng("server", 0),
        wall,
        mtu,
        without_extended_master_secret: false,
    };
    let mut server = server::EapServer::new(offers.into(), 250, context);
    let (mut requests, mut responses) = (Vec::new(), Vec::new());
    let mut buf = Vec::new();
    let mut questions = 0;
    let mut ended = None;
    for _ in 0..2000 {
        assert!(server.poll_transmit(&mut buf));
        assert!(mtu.is_none_or(|mtu| buf.len() <= mtu.max(64)), "{} octets", buf.len());
        let request = buf.clone();
        requests.push(request.clone());
        if !peer.handle_packet(Instant::ZERO, &request) {
            // RFC 4137 figure 3: a peer that has succeeded discards Failure and times out.
            assert_eq!(request[0], 4, "{:?}", EapPacket::parse(&request));
            break;
        }
        if !peer.poll_transmit(&mut buf) {
            break;
        }
        // A retransmitted request gets the same response.
        let response = buf.clone();
        responses.push(response.clone());
        assert!(
            peer.handle_packet(Instant::ZERO, &request) && peer.poll_transmit(&mut buf) && buf == response
        );
        assert!(server.handle_packet(&response), "{:?}", EapPacket::parse(&response));
        // The bound: some messages, some certificates and an engine.
        assert!((1000..200_000).contains(&server.memory_octets()), "{} octets", server.memory_octets());
        while let Some(event) = server.poll_event() {
            match event {
                server::EapServerEvent::Query(question) => {
                    questions += 1;
                    // The host answers late, after the peer's retransmission.
                    assert!(!server.handle_packet(&response) && !server.poll_transmit(&mut buf));
                    assert!(server.apply_answer(host.answer_query(&question)));
                }
                event => {
                    if let (server::EapServerEvent::Success { .. }, TestHost::HasSecret(secret)) =
                        (&event, host)
                    {
                        let name = server.identity().map(<[u8]>::to_vec).expect("somebody was let in");
                        server.allow_resumption(&name, &test_credential(secret));
                    }
                    ended = Some(event);
                }
            }
        }
    }
    TunnelTestRun {
        requests,
        responses,
        peer: peer.poll_event().unwrap_or(peer::EapPeerEvent::Failure),
        server: ended.expect("the server's conversation has ended"),
        identity: server.identity().map(<[u8]>::to_vec),
        inner: server.inner_method(),
        questions,
        resumed: server.is_resumed(),
    }
}
