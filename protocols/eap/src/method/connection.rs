//! What the methods on TLS share: the type data that EAP-TLS defines (RFC 5216 §3), which PEAP and EAP-TTLS took over,
//! and the keys.
//!
//! Type data: flags (L: a length follows, M: more fragments follow, S: start; a version in the lowest bits, zero
//! for all that are spoken here), the length of the whole TLS message with the first of several fragments, TLS
//! records. A message is cut into fragments, each of which the other side acknowledges by a packet without data.

use super::{CredentialDigest, InnerMethod, MethodContext, MethodFault, SessionUser};
use crate::EapKeys;
use crate::packet::{EapType, HEADER};
use crate::work::PACKET;
use alloc::boxed::Box;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::{vec, vec::Vec};
use usher_core::{OctetReader, WorkRecord};
use usher_crypto::SecretValue;
use usher_crypto::fault::TlsFault;
use usher_crypto::tls::{
    ClientConfig, HandshakeRecording, RecordedTls, ServerConfig, SessionNote, TlsClientEngine, TlsEngine,
    TlsError, TlsServerEngine as TlsServer, TlsVersion, TlsWork,
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
    Recorded(Arc<HandshakeRecording>),
}

/// Where a server's TLS comes from.
#[derive(Clone, Debug)]
pub enum ServerTls {
    /// Cryptography.
    Real(ServerConfig),
    /// A recorded handshake: the same lengths, no cryptography.
    Recorded(Arc<HandshakeRecording>),
}

impl ServerTls {
    /// Ends the sessions of those users, as [`ServerMethod::allow_resumption`](super::ServerMethod::remember_user) named them.
    pub(crate) fn end_sessions(&self, whose: &dyn Fn(&[u8]) -> bool) {
        if let Self::Real(config) = self {
            config.end_sessions(whose);
        }
    }
}

/// What is kept of the method inside.
fn note_inner(inner: InnerMethod) -> [u8; 2] {
    match inner {
        InnerMethod::Pap => [0, 0],
        InnerMethod::Chap => [1, 0],
        InnerMethod::MsChap => [2, 0],
        InnerMethod::MsChapV2 => [3, 0],
        InnerMethod::Eap(kind) => [4, kind.0],
    }
}

/// Reads a [`note_inner`].
fn read_inner(note: &[u8]) -> Option<InnerMethod> {
    let &[way, kind] = note else { return None };
    Some(match way {
        0 => InnerMethod::Pap,
        1 => InnerMethod::Chap,
        2 => InnerMethod::MsChap,
        3 => InnerMethod::MsChapV2,
        _ => InnerMethod::Eap(EapType(kind)),
    })
}

/// The longest packet that may be sent: as configured, or less where the link takes less.
fn fragment_limit(fragment: usize, context: &MethodContext<'_>) -> usize {
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
    hellos: [Option<TlsHello>; 2],
    /// The other side's certificates, once the handshake is complete.
    pub(crate) certificates: Vec<Vec<u8>>,
}

/// Octets of a hello's random.
const RANDOM: usize = 32;

/// What a hello says that matters here.
#[derive(Clone, Debug)]
struct TlsHello {
    random: [u8; RANDOM],
}

impl TlsHello {
    /// The hello that a flight begins with: the record's header, the handshake message's, the version and random (RFC
    /// 5246 §7.4.1).
    fn from_flight(flight: &[u8]) -> Option<Self> {
        const HANDSHAKE: u8 = 22;
        let mut r = OctetReader::new(flight);
        r.read_u8().ok().filter(|kind| *kind == HANDSHAKE)?;
        r.read_bytes(4 + 4 + 2).ok()?;
        Some(Self { random: r.read_array().ok()? })
    }
}

/// What a packet's data is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum FragmentKind {
    /// Not EAP-TLS, or against its rules.
    Bad,
    /// The start (from a server only).
    Start,
    /// An acknowledgement.
    Acknowledgement,
    /// A fragment that others follow.
    More,
    /// The last fragment, or the only one: `incoming` is whole.
    Complete,
}

impl TlsConnection {
    /// A peer's; `None` if its configuration was refused.
    pub(crate) fn for_peer(tls: &PeerTls, fragment: usize, context: &MethodContext<'_>) -> Option<Self> {
        let engine: Result<Box<dyn TlsEngine>, TlsError> = match tls {
            PeerTls::Real(config, holder) => {
                TlsClientEngine::for_holder(config, *holder).map(|c| Box::new(c) as Box<dyn TlsEngine>)
            }
            PeerTls::Recorded(recording) => Ok(Box::new(RecordedTls::for_client(recording.clone()))),
        };
        Some(Self::new(engine.ok()?, true, fragment_limit(fragment, context)))
    }

    /// A server's, for a method of this type; `None` if its configuration was refused.
    pub(crate) fn for_server(
        tls: &ServerTls,
        kind: EapType,
        fragment: usize,
        context: &MethodContext<'_>,
    ) -> Option<Self> {
        let engine: Result<Box<dyn TlsEngine>, TlsError> = match tls {
            ServerTls::Real(config) => {
                let lenient =
                    context.without_extended_master_secret.then(|| config.without_extended_master_secret());
                // A session is no other method's (RFC 9427).
                TlsServer::for_purpose(lenient.as_ref().unwrap_or(config), kind.0)
                    .map(|s| Box::new(s) as Box<dyn TlsEngine>)
            }
            ServerTls::Recorded(recording) => Ok(Box::new(RecordedTls::for_server(recording.clone()))),
        };
        Some(Self::new(engine.ok()?, false, fragment_limit(fragment, context)))
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
    pub(crate) fn is_sending(&self) -> bool {
        self.sent < self.out.len()
    }

    /// Appends the next fragment's type data; without anything to send, an acknowledgement.
    pub(crate) fn build_fragment(&mut self, data: &mut Vec<u8>) {
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
    pub(crate) fn read_fragment(&mut self, data: &[u8]) -> FragmentKind {
        self.packets += 1;
        let mut r = OctetReader::new(data);
        let Ok(flags) = r.read_u8() else { return FragmentKind::Bad };
        if flags & START != 0 {
            return FragmentKind::Start;
        }
        if flags & LENGTH_INCLUDED != 0 {
            let Ok(length) = r.read_u32() else { return FragmentKind::Bad };
            if length as usize > MAX_MESSAGE || self.announced.is_some_and(|a| a != length as usize) {
                return FragmentKind::Bad;
            }
            self.announced = Some(length as usize);
        }
        let bytes = r.take_rest();
        let more = flags & MORE_FRAGMENTS != 0;
        if bytes.is_empty() && !more && self.incoming.is_empty() {
            self.announced = None;
            return FragmentKind::Acknowledgement;
        }
        let total = self.incoming.len() + bytes.len();
        if bytes.is_empty() || total > self.announced.unwrap_or(MAX_MESSAGE) {
            return FragmentKind::Bad;
        }
        self.incoming.extend_from_slice(bytes);
        if more {
            return FragmentKind::More;
        }
        // Less than was announced never becomes whole.
        if self.announced.take().is_some_and(|a| a != total) {
            FragmentKind::Bad
        } else {
            FragmentKind::Complete
        }
    }

    /// Gives the engine the whole message, and takes what it has to say to it. False where TLS failed; an
    /// alert may then be waiting to be sent.
    pub(crate) fn process_message(&mut self) -> bool {
        let handshaking = self.engine.is_handshaking();
        if self.hellos[1].is_none() {
            self.hellos[1] = TlsHello::from_flight(&self.incoming);
        }
        let sound = self.engine.read_tls(&self.incoming).is_ok();
        if handshaking && !self.engine.is_handshaking() {
            self.certificates = self.engine.peer_chain().into_iter().map(<[u8]>::to_vec).collect();
        }
        self.incoming.clear();
        self.fill_output();
        sound
    }

    pub(crate) fn fill_output(&mut self) {
        self.clear_output();
        self.engine.write_tls(&mut self.out);
        self.work += self.engine.take_work();
        if self.hellos[0].is_none() {
            self.hellos[0] = TlsHello::from_flight(&self.out);
        }
    }

    /// Why TLS came to its end, if it did, and what the engine says of that.
    pub(crate) fn tls_fault(&self) -> Option<(TlsFault, String)> {
        let error = self.engine.error()?;
        let said = if let TlsError::Failed(_, said) = error { said.clone() } else { String::new() };
        Some((error.fault(), said))
    }

    pub(crate) fn is_13(&self) -> bool {
        self.engine.version() == Some(TlsVersion::Tls13)
    }

    /// The method's keys, once the handshake is over: RFC 5216 §2.3 (PEAP took its label over), RFC 5281 §8, and for
    /// TLS 1.3 RFC 9190 §2.3 and RFC 9427 §2.1, where the type is the context.
    pub(crate) fn export_keys(&self, kind: EapType) -> Option<EapKeys> {
        let mut material = SecretValue::new([0; 128]);
        let exported = if self.is_13() {
            self.engine.export_keying_material(
                "EXPORTER_EAP_TLS_Key_Material",
                Some(&[kind.0]),
                &mut *material,
            )
        } else {
            let label = if kind == EapType::TTLS { "ttls keying material" } else { "client EAP encryption" };
            self.engine.export_keying_material(label, None, &mut *material)
        };
        exported.ok()?;
        let (msk, emsk) = material.split_at(64);
        let key = |half: &[u8]| <[u8; 64]>::try_from(half).ok().map(SecretValue::new);
        Some(EapKeys { msk: key(msk)?, emsk: key(emsk)?, session_id: self.session_id(kind) })
    }

    /// The Session-Id: the type, and both hellos' randoms (RFC 5247 appendix A) or what the exporter gives (RFC 9190
    /// §2.3).
    fn session_id(&self, kind: EapType) -> Option<Vec<u8>> {
        let mut id = vec![kind.0];
        if self.is_13() {
            let mut method_id = [0; 2 * RANDOM];
            self.engine
                .export_keying_material("EXPORTER_EAP_TLS_Method-Id", Some(&[kind.0]), &mut method_id)
                .ok()?;
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
    pub(crate) fn session_user(&self) -> Option<SessionUser> {
        let SessionNote { subject, credential, data } = self.engine.session_note()?;
        Some(SessionUser { name: subject, credential, inner: read_inner(&data) })
    }

    /// Has the session admit somebody again who was admitted now.
    pub(crate) fn allow_resumption(
        &mut self,
        name: &[u8],
        credential: &CredentialDigest,
        inner: Option<InnerMethod>,
    ) {
        let data = inner.map_or(Vec::new(), |inner| note_inner(inner).to_vec());
        self.engine.keep_session(SessionNote { subject: name.to_vec(), credential: *credential, data });
    }

    /// Encrypts data behind what is still to be sent. False where TLS refuses.
    pub(crate) fn write_data(&mut self, data: &[u8]) -> bool {
        let sound = self.engine.write_application(data).is_ok();
        self.engine.write_tls(&mut self.out);
        sound
    }

    /// What is to be sent, all at once.
    pub(crate) fn take_out(&mut self) -> Vec<u8> {
        self.sent = 0;
        core::mem::take(&mut self.out)
    }

    /// Throws away what was sent, before something new is.
    pub(crate) fn clear_output(&mut self) {
        self.out.clear();
        self.sent = 0;
    }

    /// Whether reading this type data would complete a message of the handshake, which costs public-key operations. What
    /// is against the rules costs nothing.
    pub(crate) fn is_costly(&self, data: &[u8]) -> bool {
        let Some((&flags, rest)) = data.split_first() else { return false };
        let acknowledges = rest.is_empty() && self.incoming.is_empty();
        let whole = flags & (MORE_FRAGMENTS | START) == 0 && !acknowledges;
        whole && !self.is_sending() && self.engine.is_handshaking()
    }

    /// About how many octets of memory this holds.
    pub(crate) fn memory_octets(&self) -> usize {
        let shown: usize = self.certificates.iter().map(Vec::capacity).sum();
        self.out.capacity() + self.incoming.capacity() + shown + self.engine.memory_octets()
    }

    pub(crate) fn poll_work(&mut self) -> Option<WorkRecord> {
        let Some(work) = self.work.to_work_records().next() else {
            let units = core::mem::take(&mut self.packets);
            return (units > 0).then_some(WorkRecord { label: PACKET, units });
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
pub(crate) fn server_fault(conn: Option<&TlsConnection>, otherwise: MethodFault) -> MethodFault {
    match conn {
        None => MethodFault::Tls(TlsFault::Internal),
        Some(conn) => conn.tls_fault().map_or(otherwise, |(fault, _)| MethodFault::Tls(fault)),
    }
}

/// What the engine says of why TLS came to its end.
pub(crate) fn server_detail(conn: Option<&TlsConnection>) -> Option<String> {
    conn?.tls_fault().map(|(_, said)| said).filter(|said| !said.is_empty())
}
