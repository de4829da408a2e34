//! Octets that come out of a tunnel: the AVPs of EAP-TTLS, the packets of PEAP and their TLVs.

use crate::method::connection::{PeerTls, ServerTls, TlsConnection};
use crate::method::tunnel::{PeerPhase, ServerPhase, Step, Tunnel};
use crate::method::{
    Answer, Context, Inner, PeerOffer, PeerVerdict, Question, UserSecret, gtc, md5, mschapv2, peap, ttls,
};
use crate::packet::Type;
use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;
use usher_core::SecureRng;
use usher_crypto::tls::{
    ClientConfig, ClientOptions, Recording, Roots, ServerConfig, ServerOptions, TlsError, Version, WallClock,
    fixtures, record,
};

const KINDS: [Type; 3] = [Type::MSCHAPV2, Type::GTC, Type::MD5];

/// The handshake that [`tunnel`] runs on.
///
/// # Errors
/// The system gives no random numbers.
pub fn recording() -> Result<Arc<Recording>, TlsError> {
    let clock = || WallClock::at(fixtures::WALL_TIME);
    let client = ClientConfig::new(ClientOptions {
        versions: Version::Tls13.into(),
        credentials: None,
        roots: Roots::from_der([fixtures::root()]),
        server_name: None,
        resumption: None,
        clock: clock(),
        key_log: None,
    })?;
    let server = ServerConfig::new(ServerOptions {
        versions: Version::Tls13.into(),
        credentials: fixtures::server(1),
        client_roots: None,
        resumption: None,
        clock: clock(),
        key_log: None,
    })?;
    Ok(Arc::new(record(&client, &server)?))
}

/// Says octets inside a tunnel: the first one chooses the method and the side that hears the rest, which is cut into
/// messages whose lengths are said before them. A server whose host says that every password is wrong must let nobody
/// in.
pub fn tunnel(recording: &Arc<Recording>, bytes: &[u8]) -> bool {
    let Some((choice, mut rest)) = bytes.split_first() else { return true };
    let messages = core::iter::from_fn(|| {
        let (length, after) = rest.split_first()?;
        let (message, after) = after.split_at(after.len().min(usize::from(*length)));
        rest = after;
        Some(message)
    });
    let mut rng = SecureRng::from_seed([1; 32]);
    let Some((client, server)) = handshake(recording, &mut rng) else { return false };
    let secure = SecureRng::from_seed([2; 32]);
    let inner = [Inner::Pap, Inner::Chap, Inner::MsChap, Inner::MsChapV2].into_iter();
    let inner: Arc<[Inner]> = inner.chain(KINDS.map(Inner::Eap)).collect();
    let methods: Arc<[Box<dyn PeerOffer>]> = [
        Box::new(mschapv2::Account::new(b"alice", b"pencil")) as Box<dyn PeerOffer>,
        Box::new(gtc::Token::new(b"pencil")),
        Box::new(md5::Password::new(b"pencil")),
    ]
    .into();
    let name = || b"alice".to_vec();
    match choice % 5 {
        0 => serve(
            peap::server::Phase::new(KINDS.into(), peap::Cryptobinding::Optional),
            &server,
            &mut rng,
            messages,
        ),
        1 => serve(ttls::server::Phase::new(inner), &server, &mut rng, messages),
        2 => hear(peap::peer::Phase::new(name(), methods, secure, fixtures::WALL_TIME), &client, messages),
        kind => {
            let proof =
                if kind == 3 { ttls::Proof::Eap(methods) } else { ttls::Proof::MsChapV2(name().into()) };
            hear(ttls::peer::Phase::new(name(), &proof, secure, fixtures::WALL_TIME), &client, messages)
        }
    }
}

/// Both ends of a tunnel.
fn handshake(recording: &Arc<Recording>, rng: &mut SecureRng) -> Option<(TlsConnection, TlsConnection)> {
    const FRAGMENT: usize = 65_000;
    let context =
        Context { rng, wall: fixtures::WALL_TIME, mtu: None, without_extended_master_secret: false };
    let mut client = TlsConnection::peer(&PeerTls::Recorded(recording.clone()), FRAGMENT, &context)?;
    let mut server =
        TlsConnection::server(&ServerTls::Recorded(recording.clone()), Type::PEAP, FRAGMENT, &context)?;
    client.refill();
    let say = |from: &mut TlsConnection, to: &mut TlsConnection| {
        to.incoming.extend_from_slice(&from.take_out());
        to.digest().then_some(())
    };
    while client.engine.is_handshaking() || server.engine.is_handshaking() {
        say(&mut client, &mut server)?;
        say(&mut server, &mut client)?;
    }
    Some((client, server))
}

fn serve<'a>(
    mut phase: impl ServerPhase,
    conn: &TlsConnection,
    rng: &mut SecureRng,
    messages: impl Iterator<Item = &'a [u8]>,
) -> bool {
    let mut tunnel = |id: u8| Tunnel {
        conn,
        rng: SecureRng::from_seed(rng.array()),
        wall: fixtures::WALL_TIME,
        identifier: id,
        asked: id,
    };
    let mut out = Vec::new();
    let mut step = phase.established(None, tunnel(0), &mut out);
    for (id, message) in (1..=u8::MAX).zip(messages) {
        out.clear();
        while step == Step::Ask {
            let answer = match phase.question() {
                Some(Question::User { .. }) => Answer::User(Some(UserSecret::Hashed)),
                Some(Question::Password { .. }) => Answer::Password(false),
                Some(Question::Resume(_)) => Answer::Resume(false),
                None => Answer::Unavailable,
            };
            step = phase.answer(answer, tunnel(id), &mut out);
        }
        match step {
            Step::Success => return false,
            Step::Failure => return true,
            _ => {}
        }
        step = if message.is_empty() {
            phase.nothing(tunnel(id), &mut out)
        } else {
            phase.data(message, tunnel(id), &mut out)
        };
    }
    step != Step::Success
}

fn hear<'a>(
    mut phase: impl PeerPhase,
    conn: &TlsConnection,
    messages: impl Iterator<Item = &'a [u8]>,
) -> bool {
    let mut out = Vec::new();
    for (id, message) in (1..=u8::MAX).zip(messages) {
        out.clear();
        let verdict = if message.is_empty() {
            phase.nothing(conn, &mut out)
        } else {
            phase.data(id, message, conn, &mut out)
        };
        if matches!(verdict, PeerVerdict::Failed | PeerVerdict::Done) {
            break;
        }
    }
    true
}
