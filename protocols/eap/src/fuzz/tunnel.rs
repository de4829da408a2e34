//! Fuzzing of the data inside a tunnel: the AVPs of EAP-TTLS, the packets of PEAP and their TLVs.

use crate::method::connection::{PeerTlsBackend, ServerTlsBackend, TlsConnection};
use crate::method::tunnel::{InnerPhaseResult, TunnelContext, TunnelPeerPhase, TunnelServerPhase};
use crate::method::{
    EapMethodContext, InnerMethod, PeerMethodFactory, PeerMethodResult, UserQuery, UserQueryAnswer,
    UserSecret, gtc, md5, mschapv2, peap, ttls,
};
use crate::packet::EapType;
use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;
use usher_core::SecureRng;
use usher_crypto::tls::{
    ClientConfig, ServerConfig, SharedWallClock, TlsClientOptions, TlsError, TlsHandshakeRecording,
    TlsServerOptions, TlsVersion, TrustRoots, fixtures, record_handshake,
};

const KINDS: [EapType; 3] = [EapType::MSCHAPV2, EapType::GTC, EapType::MD5];

/// The handshake that [`fuzz_tunnel`] runs on.
///
/// # Errors
/// The system gives no random numbers.
pub fn fuzz_recording() -> Result<Arc<TlsHandshakeRecording>, TlsError> {
    let clock = || SharedWallClock::from_time(fixtures::WALL_TIME);
    let client = ClientConfig::new(TlsClientOptions {
        versions: TlsVersion::Tls13.into(),
        credentials: None,
        roots: TrustRoots::from_der([fixtures::root_certificate()]),
        server_name: None,
        resumption: None,
        clock: clock(),
        key_log: None,
    })?;
    let server = ServerConfig::new(TlsServerOptions {
        versions: TlsVersion::Tls13.into(),
        credentials: fixtures::server_credentials(1),
        client_roots: None,
        resumption: None,
        clock: clock(),
        key_log: None,
    })?;
    Ok(Arc::new(record_handshake(&client, &server)?))
}

/// Sends octets inside a tunnel. The first octet chooses the method and the side that receives the rest. The rest is a
/// sequence of messages, each after its length. The host rejects every password, so a server must admit no peer.
pub fn fuzz_tunnel(recording: &Arc<TlsHandshakeRecording>, bytes: &[u8]) -> bool {
    let Some((choice, mut rest)) = bytes.split_first() else { return true };
    let messages = core::iter::from_fn(|| {
        let (length, after) = rest.split_first()?;
        let (message, after) = after.split_at(after.len().min(usize::from(*length)));
        rest = after;
        Some(message)
    });
    let mut rng = SecureRng::from_seed([1; 32]);
    let Some((client, server)) = complete_handshake(recording, &mut rng) else { return false };
    let secure = SecureRng::from_seed([2; 32]);
    let inner = [InnerMethod::Pap, InnerMethod::Chap, InnerMethod::MsChap, InnerMethod::MsChapV2].into_iter();
    let inner: Arc<[InnerMethod]> = inner.chain(KINDS.map(InnerMethod::Eap)).collect();
    let methods: Arc<[Box<dyn PeerMethodFactory>]> = [
        Box::new(mschapv2::MsChapV2Account::new(b"alice", b"pencil")) as Box<dyn PeerMethodFactory>,
        Box::new(gtc::GtcToken::new(b"pencil")),
        Box::new(md5::EapMd5Password::new(b"pencil")),
    ]
    .into();
    let name = || b"alice".to_vec();
    match choice % 5 {
        0 => run_server_phase(
            peap::server::PeapServerPhase::new(KINDS.into(), peap::CryptobindingPolicy::Optional),
            &server,
            &mut rng,
            messages,
        ),
        1 => run_server_phase(ttls::server::TtlsServerPhase::new(inner), &server, &mut rng, messages),
        2 => run_peer_phase(
            peap::peer::PeapPeerPhase::new(name(), methods, secure, fixtures::WALL_TIME),
            &client,
            messages,
        ),
        kind => {
            let proof = if kind == 3 {
                ttls::TtlsInnerCredential::Eap(methods)
            } else {
                ttls::TtlsInnerCredential::MsChapV2(name().into())
            };
            run_peer_phase(
                ttls::peer::TtlsPeerPhase::new(name(), &proof, secure, fixtures::WALL_TIME),
                &client,
                messages,
            )
        }
    }
}

/// Completes a handshake and returns both ends of the tunnel.
fn complete_handshake(
    recording: &Arc<TlsHandshakeRecording>,
    rng: &mut SecureRng,
) -> Option<(TlsConnection, TlsConnection)> {
    const FRAGMENT: usize = 65_000;
    let context =
        EapMethodContext { rng, wall: fixtures::WALL_TIME, mtu: None, without_extended_master_secret: false };
    let mut client =
        TlsConnection::for_peer(&PeerTlsBackend::Recorded(recording.clone()), FRAGMENT, &context)?;
    let mut server = TlsConnection::for_server(
        &ServerTlsBackend::Recorded(recording.clone()),
        EapType::PEAP,
        FRAGMENT,
        &context,
    )?;
    client.fill_output();
    let say = |from: &mut TlsConnection, to: &mut TlsConnection| {
        to.incoming.extend_from_slice(&from.take_pending_output());
        to.process_message().then_some(())
    };
    while client.engine.is_handshaking() || server.engine.is_handshaking() {
        say(&mut client, &mut server)?;
        say(&mut server, &mut client)?;
    }
    Some((client, server))
}

fn run_server_phase<'a>(
    mut phase: impl TunnelServerPhase,
    conn: &TlsConnection,
    rng: &mut SecureRng,
    messages: impl Iterator<Item = &'a [u8]>,
) -> bool {
    let mut tunnel = |id: u8| TunnelContext {
        conn,
        rng: SecureRng::from_seed(rng.random_array()),
        wall: fixtures::WALL_TIME,
        identifier: id,
        request_identifier: id,
    };
    let mut out = Vec::new();
    let mut step = phase.handle_established(None, tunnel(0), &mut out);
    for (id, message) in (1..=u8::MAX).zip(messages) {
        out.clear();
        while step == InnerPhaseResult::QueryPending {
            let answer = match phase.take_query() {
                Some(UserQuery::User { .. }) => UserQueryAnswer::User(Some(UserSecret::Hashed)),
                Some(UserQuery::Password { .. }) => UserQueryAnswer::Password(false),
                Some(UserQuery::Resume(_)) => UserQueryAnswer::Resume(false),
                None => UserQueryAnswer::Unavailable,
            };
            step = phase.apply_answer(answer, tunnel(id), &mut out);
        }
        match step {
            InnerPhaseResult::Success => return false,
            InnerPhaseResult::Failure => return true,
            _ => {}
        }
        step = if message.is_empty() {
            phase.handle_empty(tunnel(id), &mut out)
        } else {
            phase.handle_data(message, tunnel(id), &mut out)
        };
    }
    step != InnerPhaseResult::Success
}

fn run_peer_phase<'a>(
    mut phase: impl TunnelPeerPhase,
    conn: &TlsConnection,
    messages: impl Iterator<Item = &'a [u8]>,
) -> bool {
    let mut out = Vec::new();
    for (id, message) in (1..=u8::MAX).zip(messages) {
        out.clear();
        let verdict = if message.is_empty() {
            phase.handle_empty(conn, &mut out)
        } else {
            phase.handle_data(id, message, conn, &mut out)
        };
        if matches!(verdict, PeerMethodResult::Failed | PeerMethodResult::Done) {
            break;
        }
    }
    true
}
