//! What the methods on TLS share: the type data that EAP-TLS defines (RFC 5216 §3), which PEAP and EAP-TTLS took over,
//! and the keys.
//!
//! Type data: flags (L: a length follows, M: more fragments follow, S: start; a version in the lowest bits, zero
//! for all that are spoken here), the length of the whole TLS message with the first of several fragments, TLS
//! records. A message is cut into fragments, each of which the other side acknowledges by a packet without data.

use super::{Context, Credential, Fault, Inner, Remembered};
use crate::Keys;
use crate::packet::{HEADER, Type};
use crate::work::PACKET;
use alloc::boxed::Box;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::{vec, vec::Vec};
use usher_core::{Reader, Work};
use usher_crypto::Key;
use usher_crypto::fault::TlsFault;
use usher_crypto::tls::{
    Client, ClientConfig, RecordedTls, Recording, Server as TlsServer, ServerConfig, SessionNote, TlsEngine,
    TlsError, TlsWork, Version,
};
use usher_crypto::work::{SIGN, VERIFY};

const LENGTH_INCLUDED: u8 = 0x80;
const MORE_FRAGMENTS: u8 = 0x40;
pub(crate) const START: u8 = 0x20;
/// Where PEAP and EAP-TTLS have their version; reserved with EAP-TLS.
pub(crate) const VERSION: u8 = 0x07;

/// The longest TLS message that is put together: RFC 5216 §3.2 wants room for chains of certificates, and
/// 64 KiB hold dozens.
const MAX_MESSAGE: usize = 65_536;
/// The shortest EAP packet that a fragment may be cut to.
pub(crate) const MIN_FRAGMENT: usize = 64;

/// Where a peer's TLS comes from.
#[derive(Clone, Debug)]
pub enum PeerTls {
    /// Cryptography. The number tells stations apart whose sessions may be resumed.
    Real(ClientConfig, u64),
    /// A recorded handshake: the same lengths, no cryptography.
    Recorded(Arc<Recording>),
}

/// Where a server's TLS comes from.
#[derive(Clone, Debug)]
pub enum ServerTls {
    /// Cryptography.
    Real(ServerConfig),
    /// A recorded handshake: the same lengths, no cryptography.
    Recorded(Arc<Recording>),
}

impl ServerTls {
    /// Ends the sessions of those users, as [`ServerMethod::remember`](super::ServerMethod::remember) named them.
    pub(crate) fn end_sessions(&self, whose: &dyn Fn(&[u8]) -> bool) {
        if let Self::Real(config) = self {
            config.end_sessions(whose);
        }
    }
}

/// What is kept of the method inside.
fn note_inner(inner: Inner) -> [u8; 2] {
    match inner {
        Inner::Pap => [0, 0],
        Inner::Chap => [1, 0],
        Inner::MsChap => [2, 0],
        Inner::MsChapV2 => [3, 0],
        Inner::Eap(kind) => [4, kind.0],
    }
}

/// Reads a [`note_inner`].
fn read_inner(note: &[u8]) -> Option<Inner> {
    let &[way, kind] = note else { return None };
    Some(match way {
        0 => Inner::Pap,
        1 => Inner::Chap,
        2 => Inner::MsChap,
        3 => Inner::MsChapV2,
        _ => Inner::Eap(Type(kind)),
    })
}

/// The longest packet that may be sent: as configured, or less where the link takes less.
fn cut(fragment: usize, context: &Context<'_>) -> usize {
    context.mtu.map_or(fragment, |mtu| mtu.min(fragment))
}

/// What both sides share: the engine, the message that is going out, and the one that is coming in.
#[derive(Debug)]
pub(crate) struct TlsConnection {
    pub(crate) engine: Box<dyn TlsEngine>,
    /// The engine is the client's.
    client: bool,
    fragment: usize,
    out: Vec<u8>,
    sent: usize,
    pub(crate) incoming: Vec<u8>,
    announced: Option<usize>,
    work: TlsWork,
    /// Packets read, of which nothing was told yet.
    packets: u32,
    /// The hellos, ours and the other side's.
    hellos: [Option<Hello>; 2],
    /// The other side's certificates, once the handshake is complete.
    pub(crate) certificates: Vec<Vec<u8>>,
}

/// Octets of a hello's random.
const RANDOM: usize = 32;

/// What a hello says that matters here.
#[derive(Clone, Debug)]
struct Hello {
    random: [u8; RANDOM],
}

impl Hello {
    /// The hello that a flight begins with: the record's header, the handshake message's, the version and random (RFC
    /// 5246 §7.4.1).
    fn read(flight: &[u8]) -> Option<Self> {
        const HANDSHAKE: u8 = 22;
        let mut r = Reader::new(flight);
        r.u8().ok().filter(|kind| *kind == HANDSHAKE)?;
        r.bytes(4 + 4 + 2).ok()?;
        Some(Self { random: r.array().ok()? })
    }
}

/// What a packet's data is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Piece {
    /// Not EAP-TLS, or against its rules.
    Bad,
    /// The start (from a server only).
    Start,
    /// An acknowledgement.
    Nothing,
    /// A fragment that others follow.
    More,
    /// The last fragment, or the only one: `incoming` is whole.
    Whole,
}

impl TlsConnection {
    /// A peer's; `None` if its configuration was refused.
    pub(crate) fn peer(tls: &PeerTls, fragment: usize, context: &Context<'_>) -> Option<Self> {
        let engine: Result<Box<dyn TlsEngine>, TlsError> = match tls {
            PeerTls::Real(config, holder) => {
                Client::for_holder(config, *holder).map(|c| Box::new(c) as Box<dyn TlsEngine>)
            }
            PeerTls::Recorded(recording) => Ok(Box::new(RecordedTls::client(recording.clone()))),
        };
        Some(Self::new(engine.ok()?, true, cut(fragment, context)))
    }

    /// A server's, for a method of this type; `None` if its configuration was refused.
    pub(crate) fn server(
        tls: &ServerTls,
        kind: Type,
        fragment: usize,
        context: &Context<'_>,
    ) -> Option<Self> {
        let engine: Result<Box<dyn TlsEngine>, TlsError> = match tls {
            ServerTls::Real(config) => {
                let lenient =
                    context.without_extended_master_secret.then(|| config.without_extended_master_secret());
                // A session is no other method's (RFC 9427).
                TlsServer::for_purpose(lenient.as_ref().unwrap_or(config), kind.0)
                    .map(|s| Box::new(s) as Box<dyn TlsEngine>)
            }
            ServerTls::Recorded(recording) => Ok(Box::new(RecordedTls::server(recording.clone()))),
        };
        Some(Self::new(engine.ok()?, false, cut(fragment, context)))
    }

    pub(crate) fn new(engine: Box<dyn TlsEngine>, client: bool, fragment: usize) -> Self {
        Self {
            engine,
            client,
            fragment: fragment.max(MIN_FRAGMENT),
            out: Vec::new(),
            sent: 0,
            incoming: Vec::new(),
            announced: None,
            work: TlsWork::default(),
            packets: 0,
            hellos: [None, None],
            certificates: Vec::new(),
        }
    }

    /// Parts of the outgoing message are still to be sent.
    pub(crate) fn sending(&self) -> bool {
        self.sent < self.out.len()
    }

    /// Appends the next fragment's type data; without anything to send, an acknowledgement.
    pub(crate) fn build(&mut self, data: &mut Vec<u8>) {
        let first = self.sent == 0;
        let left = self.out.len() - self.sent;
        let room = self.fragment - HEADER - 2;
        let cut = left > room;
        let length = first && cut;
        let take = if length { room - 4 } else { left.min(room) };
        let flag = |on, bit| if on { bit } else { 0 };
        data.push(flag(length, LENGTH_INCLUDED) | flag(cut, MORE_FRAGMENTS));
        if length {
            data.extend_from_slice(&(self.out.len() as u32).to_be_bytes());
        }
        data.extend_from_slice(&self.out[self.sent..self.sent + take]);
        self.sent += take;
    }

    /// Reads type data; fragments are put together.
    pub(crate) fn read(&mut self, data: &[u8]) -> Piece {
        self.packets += 1;
        let mut r = Reader::new(data);
        let Ok(flags) = r.u8() else { return Piece::Bad };
        if flags & START != 0 {
            return Piece::Start;
        }
        if flags & LENGTH_INCLUDED != 0 {
            let Ok(length) = r.u32() else { return Piece::Bad };
            if length as usize > MAX_MESSAGE || self.announced.is_some_and(|a| a != length as usize) {
                return Piece::Bad;
            }
            self.announced = Some(length as usize);
        }
        let bytes = r.take_rest();
        let more = flags & MORE_FRAGMENTS != 0;
        if bytes.is_empty() && !more && self.incoming.is_empty() {
            self.announced = None;
            return Piece::Nothing;
        }
        let total = self.incoming.len() + bytes.len();
        if bytes.is_empty() || total > self.announced.unwrap_or(MAX_MESSAGE) {
            return Piece::Bad;
        }
        self.incoming.extend_from_slice(bytes);
        if more {
            return Piece::More;
        }
        // Less than was announced never becomes whole.
        if self.announced.take().is_some_and(|a| a != total) { Piece::Bad } else { Piece::Whole }
    }

    /// Gives the engine the whole message, and takes what it has to say to it. False where TLS failed; an
    /// alert may then be waiting to be sent.
    pub(crate) fn digest(&mut self) -> bool {
        let handshaking = self.engine.is_handshaking();
        if self.hellos[1].is_none() {
            self.hellos[1] = Hello::read(&self.incoming);
        }
        let sound = self.engine.feed(&self.incoming).is_ok();
        if handshaking && !self.engine.is_handshaking() {
            self.certificates = self.engine.peer_chain().into_iter().map(<[u8]>::to_vec).collect();
        }
        self.incoming.clear();
        self.refill();
        sound
    }

    pub(crate) fn refill(&mut self) {
        self.rewind();
        self.engine.take(&mut self.out);
        self.work += self.engine.work();
        if self.hellos[0].is_none() {
            self.hellos[0] = Hello::read(&self.out);
        }
    }

    /// Why TLS came to its end, if it did, and what the engine says of that.
    pub(crate) fn fault(&self) -> Option<(TlsFault, String)> {
        let error = self.engine.error()?;
        let said = if let TlsError::Failed(_, said) = error { said.clone() } else { String::new() };
        Some((error.fault(), said))
    }

    pub(crate) fn is_13(&self) -> bool {
        self.engine.version() == Some(Version::Tls13)
    }

    /// The method's keys, once the handshake is over: RFC 5216 §2.3 (PEAP took its label over), RFC 5281 §8, and for
    /// TLS 1.3 RFC 9190 §2.3 and RFC 9427 §2.1, where the type is the context.
    pub(crate) fn keys(&self, kind: Type) -> Option<Keys> {
        let mut material = Key::new([0; 128]);
        let exported = if self.is_13() {
            self.engine.export("EXPORTER_EAP_TLS_Key_Material", Some(&[kind.0]), &mut *material)
        } else {
            let label = if kind == Type::TTLS { "ttls keying material" } else { "client EAP encryption" };
            self.engine.export(label, None, &mut *material)
        };
        exported.ok()?;
        let (msk, emsk) = material.split_at(64);
        let key = |half: &[u8]| <[u8; 64]>::try_from(half).ok().map(Key::new);
        Some(Keys { msk: key(msk)?, emsk: key(emsk)?, session_id: self.session_id(kind) })
    }

    /// The Session-Id: the type, and both hellos' randoms (RFC 5247 appendix A) or what the exporter gives (RFC 9190
    /// §2.3).
    fn session_id(&self, kind: Type) -> Option<Vec<u8>> {
        let mut id = vec![kind.0];
        if self.is_13() {
            let mut method_id = [0; 2 * RANDOM];
            self.engine.export("EXPORTER_EAP_TLS_Method-Id", Some(&[kind.0]), &mut method_id).ok()?;
            id.extend_from_slice(&method_id);
        } else {
            let [ours, theirs] = &self.hellos;
            let (client, server) = if self.client { (ours, theirs) } else { (theirs, ours) };
            id.extend_from_slice(&client.as_ref()?.random);
            id.extend_from_slice(&server.as_ref()?.random);
        }
        Some(id)
    }

    /// Whom the session has admitted that a server's client took up.
    pub(crate) fn remembered(&self) -> Option<Remembered> {
        let SessionNote { subject, credential, data } = self.engine.session_note()?;
        Some(Remembered { name: subject, credential, inner: read_inner(&data) })
    }

    /// Has the session admit somebody again who was admitted now.
    pub(crate) fn remember(&mut self, name: &[u8], credential: &Credential, inner: Option<Inner>) {
        let data = inner.map_or(Vec::new(), |inner| note_inner(inner).to_vec());
        self.engine.keep_session(SessionNote { subject: name.to_vec(), credential: *credential, data });
    }

    /// Encrypts data behind what is still to be sent. False where TLS refuses.
    pub(crate) fn write(&mut self, data: &[u8]) -> bool {
        let sound = self.engine.write_application(data).is_ok();
        self.engine.take(&mut self.out);
        sound
    }

    /// What is to be sent, all at once.
    pub(crate) fn take_out(&mut self) -> Vec<u8> {
        self.sent = 0;
        core::mem::take(&mut self.out)
    }

    /// Throws away what was sent, before something new is.
    pub(crate) fn rewind(&mut self) {
        self.out.clear();
        self.sent = 0;
    }

    /// Whether reading this type data would complete a message of the handshake, which costs public-key operations. What
    /// is against the rules costs nothing.
    pub(crate) fn is_costly(&self, data: &[u8]) -> bool {
        let Some((&flags, rest)) = data.split_first() else { return false };
        let acknowledges = rest.is_empty() && self.incoming.is_empty();
        let whole = flags & (MORE_FRAGMENTS | START) == 0 && !acknowledges;
        whole && !self.sending() && self.engine.is_handshaking()
    }

    /// About how many octets of memory this holds.
    pub(crate) fn memory(&self) -> usize {
        let shown: usize = self.certificates.iter().map(Vec::capacity).sum();
        self.out.capacity() + self.incoming.capacity() + shown + self.engine.memory()
    }

    pub(crate) fn poll_work(&mut self) -> Option<Work> {
        let Some(work) = self.work.labelled().next() else {
            let units = core::mem::take(&mut self.packets);
            return (units > 0).then_some(Work { label: PACKET, units });
        };
        match work.label {
            SIGN => self.work.sign = 0,
            VERIFY => self.work.verify = 0,
            _ => self.work.key_exchange = 0,
        }
        Some(work)
    }
}

/// Why a server's run on TLS failed: `otherwise` where not for TLS. Without an engine its configuration was refused.
pub(crate) fn server_fault(conn: Option<&TlsConnection>, otherwise: Fault) -> Fault {
    match conn {
        None => Fault::Tls(TlsFault::Internal),
        Some(conn) => conn.fault().map_or(otherwise, |(fault, _)| Fault::Tls(fault)),
    }
}

/// What the engine says of why TLS came to its end.
pub(crate) fn server_detail(conn: Option<&TlsConnection>) -> Option<String> {
    conn?.fault().map(|(_, said)| said).filter(|said| !said.is_empty())
}
