//! The TLS connection of the TLS-based methods: fragments, type data (RFC 5216 §3) and keys. PEAP and EAP-TTLS took
//! these over from EAP-TLS.
//!
//! Type data: flags, length, TLS records. The flags are L (length present), M (more fragments) and S (start); the
//! lowest bits hold a version, zero for all methods here. The length is that of the whole TLS message, in the first of
//! several fragments. Each fragment but the last is acknowledged by a packet without data.

use super::{CredentialDigest, EapMethodContext, InnerMethod, ServerMethodFailure, TlsSessionUser};
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
    ClientConfig, RecordedTls, ServerConfig, TlsClientEngine, TlsEngine, TlsError, TlsHandshakeRecording,
    TlsOperationCounts, TlsServerEngine as TlsServer, TlsSessionMetadata, TlsVersion,
};
use usher_crypto::work::{SIGN, VERIFY};

const LENGTH_INCLUDED: u8 = 0x80;
const MORE_FRAGMENTS: u8 = 0x40;
pub(crate) const START: u8 = 0x20;
/// The version bits of PEAP and EAP-TTLS, reserved in EAP-TLS.
pub(crate) const VERSION: u8 = 0x07;

/// The longest TLS message that is reassembled. RFC 5216 §3.2 asks for room for certificate chains, and 64 KiB hold
/// dozens of certificates.
const MAX_MESSAGE: usize = 65_536;
/// The lower limit of the longest EAP packet.
pub(crate) const MIN_FRAGMENT: usize = 64;

/// The source of a peer's TLS.
#[derive(Clone, Debug)]
pub enum PeerTlsBackend {
    /// Real TLS. The number identifies the station, so that its sessions resume only there.
    Real(ClientConfig, u64),
    /// A recorded handshake: the same lengths, no cryptography.
    Recorded(Arc<TlsHandshakeRecording>),
}

/// The source of a server's TLS.
#[derive(Clone, Debug)]
pub enum ServerTlsBackend {
    /// Real TLS.
    Real(ServerConfig),
    /// A recorded handshake: the same lengths, no cryptography.
    Recorded(Arc<TlsHandshakeRecording>),
}

impl ServerTlsBackend {
    /// Ends the sessions of these users, by the names in
    /// [`ServerMethod::allow_resumption`](super::ServerMethod::allow_resumption).
    pub(crate) fn end_sessions(&self, whose: &dyn Fn(&[u8]) -> bool) {
        if let Self::Real(config) = self {
            config.end_sessions(whose);
        }
    }
}

/// Encodes the inner method for a session.
fn encode_inner_method(inner: InnerMethod) -> [u8; 2] {
    match inner {
        InnerMethod::Pap => [0, 0],
        InnerMethod::Chap => [1, 0],
        InnerMethod::MsChap => [2, 0],
        InnerMethod::MsChapV2 => [3, 0],
        InnerMethod::Eap(kind) => [4, kind.0],
    }
}

/// Decodes the octets of [`encode_inner_method`].
fn decode_inner_method(note: &[u8]) -> Option<InnerMethod> {
    let &[way, kind] = note else { return None };
    Some(match way {
        0 => InnerMethod::Pap,
        1 => InnerMethod::Chap,
        2 => InnerMethod::MsChap,
        3 => InnerMethod::MsChapV2,
        _ => InnerMethod::Eap(EapType(kind)),
    })
}

/// The longest packet: the configured limit or the link's MTU, if shorter.
fn fragment_limit(fragment: usize, context: &EapMethodContext<'_>) -> usize {
    context.mtu.map_or(fragment, |mtu| mtu.min(fragment))
}

/// A TLS connection over EAP: the engine, the outgoing message and the incoming one.
#[derive(Debug)]
pub(crate) struct TlsConnection {
    pub(crate) engine: Box<dyn TlsEngine>,
    /// True for the client's engine.
    client: bool,
    fragment: usize,
    out: Vec<u8>,
    sent: usize,
    pub(crate) incoming: Vec<u8>,
    announced: Option<usize>,
    work: TlsOperationCounts,
    /// Packets read since the last poll of work.
    packets: u32,
    /// Our hello and the peer's.
    hellos: [Option<TlsHelloRandom>; 2],
    /// The peer's certificates, once the handshake is complete.
    pub(crate) certificates: Vec<Vec<u8>>,
}

/// Octets of a hello's random.
const RANDOM: usize = 32;

/// The random of a hello, for the Session-Id.
#[derive(Clone, Debug)]
struct TlsHelloRandom {
    random: [u8; RANDOM],
}

impl TlsHelloRandom {
    /// Reads the hello at the start of a flight: record header, handshake header, version and random (RFC 5246 §7.4.1).
    fn parse_hello_from_flight(flight: &[u8]) -> Option<Self> {
        const HANDSHAKE: u8 = 22;
        let mut r = OctetReader::new(flight);
        r.read_u8().ok().filter(|kind| *kind == HANDSHAKE)?;
        r.read_bytes(4 + 4 + 2).ok()?;
        Some(Self { random: r.read_array().ok()? })
    }
}

/// The kind of a packet's type data.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum EapFragmentKind {
    /// Malformed type data, or a violation of the rules.
    Bad,
    /// The start, from a server only.
    Start,
    /// An acknowledgement.
    Acknowledgement,
    /// A fragment before the last.
    More,
    /// The last or only fragment: `incoming` is complete.
    Complete,
}

impl TlsConnection {
    /// Returns a peer's connection. `None` if TLS refuses the configuration.
    pub(crate) fn for_peer(
        tls: &PeerTlsBackend,
        fragment: usize,
        context: &EapMethodContext<'_>,
    ) -> Option<Self> {
        let engine: Result<Box<dyn TlsEngine>, TlsError> = match tls {
            PeerTlsBackend::Real(config, holder) => TlsClientEngine::new_for_session_holder(config, *holder)
                .map(|c| Box::new(c) as Box<dyn TlsEngine>),
            PeerTlsBackend::Recorded(recording) => Ok(Box::new(RecordedTls::for_client(recording.clone()))),
        };
        Some(Self::new(engine.ok()?, true, fragment_limit(fragment, context)))
    }

    /// Returns a server's connection for a method of this type. `None` if TLS refuses the configuration.
    pub(crate) fn for_server(
        tls: &ServerTlsBackend,
        kind: EapType,
        fragment: usize,
        context: &EapMethodContext<'_>,
    ) -> Option<Self> {
        let engine: Result<Box<dyn TlsEngine>, TlsError> = match tls {
            ServerTlsBackend::Real(config) => {
                let lenient =
                    context.without_extended_master_secret.then(|| config.without_extended_master_secret());
                // RFC 9427, 4: a method does not resume a session of another method.
                TlsServer::new_for_session_purpose(lenient.as_ref().unwrap_or(config), kind.0)
                    .map(|s| Box::new(s) as Box<dyn TlsEngine>)
            }
            ServerTlsBackend::Recorded(recording) => Ok(Box::new(RecordedTls::for_server(recording.clone()))),
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
            work: TlsOperationCounts::default(),
            packets: 0,
            hellos: [None, None],
            certificates: Vec::new(),
        }
    }

    /// True while parts of the outgoing message are pending.
    pub(crate) fn is_sending(&self) -> bool {
        self.sent < self.out.len()
    }

    /// Appends the type data of the next fragment, or of an acknowledgement if none is pending.
    pub(crate) fn build_fragment(&mut self, data: &mut Vec<u8>) {
        let first = self.sent == 0;
        let left = self.out.len() - self.sent;
        let room = self.fragment - HEADER - 2;
        let cut = left > room;
        // RFC 5216, 2.1.5; RFC 5281, 9.2.2; RFC 9190, 2.1.9: the L bit stands in the first of several fragments only.
        let length = first && cut;
        let take = if length { room - 4 } else { left.min(room) };
        let flag = |on, bit| if on { bit } else { 0 };
        // RFC 5216, 3.1; RFC 5281, 9.2, 9.2.2: M except on the last fragment, no S bit, reserved bits zero.
        data.push(flag(length, LENGTH_INCLUDED) | flag(cut, MORE_FRAGMENTS));
        if length {
            data.extend_from_slice(&(self.out.len() as u32).to_be_bytes());
        }
        data.extend_from_slice(&self.out[self.sent..self.sent + take]);
        self.sent += take;
    }

    /// Reads type data and reassembles fragments.
    pub(crate) fn read_fragment(&mut self, data: &[u8]) -> EapFragmentKind {
        self.packets += 1;
        let mut r = OctetReader::new(data);
        let Ok(flags) = r.read_u8() else { return EapFragmentKind::Bad };
        if flags & START != 0 {
            return EapFragmentKind::Start;
        }
        // RFC 9190, 2.1.9: an unfragmented message may have the L bit and the length, too.
        if flags & LENGTH_INCLUDED != 0 {
            let Ok(length) = r.read_u32() else { return EapFragmentKind::Bad };
            if length as usize > MAX_MESSAGE || self.announced.is_some_and(|a| a != length as usize) {
                return EapFragmentKind::Bad;
            }
            self.announced = Some(length as usize);
        }
        let bytes = r.take_rest();
        let more = flags & MORE_FRAGMENTS != 0;
        if bytes.is_empty() && !more && self.incoming.is_empty() {
            self.announced = None;
            // RFC 5216, 2.1.5; RFC 5281, 9.2.3: an acknowledgement has no data.
            return EapFragmentKind::Acknowledgement;
        }
        let total = self.incoming.len() + bytes.len();
        if bytes.is_empty() || total > self.announced.unwrap_or(MAX_MESSAGE) {
            return EapFragmentKind::Bad;
        }
        // RFC 5216, 2.1.5; RFC 5281, 9.2.2: fragments are reassembled.
        self.incoming.extend_from_slice(bytes);
        if more {
            return EapFragmentKind::More;
        }
        // If the last fragment has arrived and the message is shorter than announced, it can never become complete.
        if self.announced.take().is_some_and(|a| a != total) {
            EapFragmentKind::Bad
        } else {
            EapFragmentKind::Complete
        }
    }

    /// Passes the complete message to the engine and collects its output. Returns false if TLS failed; the output may
    /// then be an alert.
    pub(crate) fn process_message(&mut self) -> bool {
        let handshaking = self.engine.is_handshaking();
        if self.hellos[1].is_none() {
            self.hellos[1] = TlsHelloRandom::parse_hello_from_flight(&self.incoming);
        }
        // RFC 5216, 2.1.3; RFC 9190, 2.1.4: after a fatal error the output is an alert.
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
            self.hellos[0] = TlsHelloRandom::parse_hello_from_flight(&self.out);
        }
    }

    /// The fault by which TLS ended early, if it did, and the engine's description.
    pub(crate) fn tls_fault(&self) -> Option<(TlsFault, String)> {
        let error = self.engine.error()?;
        let said = if let TlsError::Failed(_, said) = error { said.clone() } else { String::new() };
        Some((error.fault(), said))
    }

    pub(crate) fn is_tls13(&self) -> bool {
        self.engine.version() == Some(TlsVersion::Tls13)
    }

    /// The method's keys, once the handshake is complete. TLS 1.2: RFC 5216 §2.3 (EAP-TLS, PEAP) and RFC 5281 §8.
    /// TLS 1.3: RFC 9190 §2.3 and RFC 9427 §2.1, with the type as context.
    pub(crate) fn export_keys(&self, kind: EapType) -> Option<EapKeys> {
        let mut material = SecretValue::new([0; 128]);
        let exported = if self.is_tls13() {
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
        // RFC 3748, 7.10: MSK and EMSK have 64 octets each.
        let (msk, emsk) = material.split_at(64);
        let key = |half: &[u8]| <[u8; 64]>::try_from(half).ok().map(SecretValue::new);
        Some(EapKeys { msk: key(msk)?, emsk: key(emsk)?, session_id: self.session_id(kind) })
    }

    /// The Session-Id. TLS 1.2: the type and both hellos' randoms (RFC 5247 appendix A). TLS 1.3: the type and the
    /// exporter's output (RFC 9190 §2.3).
    fn session_id(&self, kind: EapType) -> Option<Vec<u8>> {
        let mut id = vec![kind.0];
        if self.is_tls13() {
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

    /// The user of the session that the client resumed.
    pub(crate) fn session_user(&self) -> Option<TlsSessionUser> {
        let TlsSessionMetadata { subject, credential, data } = self.engine.session_note()?;
        Some(TlsSessionUser { name: subject, credential, inner: decode_inner_method(&data) })
    }

    /// Lets the session admit the user of this login again.
    pub(crate) fn allow_resumption(
        &mut self,
        name: &[u8],
        credential: &CredentialDigest,
        inner: Option<InnerMethod>,
    ) {
        let data = inner.map_or(Vec::new(), |inner| encode_inner_method(inner).to_vec());
        self.engine.keep_session(TlsSessionMetadata {
            subject: name.to_vec(),
            credential: *credential,
            data,
        });
    }

    /// Encrypts data and appends it to the pending output. Returns false if TLS failed.
    pub(crate) fn write_data(&mut self, data: &[u8]) -> bool {
        let sound = self.engine.write_application(data).is_ok();
        self.engine.write_tls(&mut self.out);
        sound
    }

    /// Takes the whole pending output.
    pub(crate) fn take_pending_output(&mut self) -> Vec<u8> {
        self.sent = 0;
        core::mem::take(&mut self.out)
    }

    /// Clears the sent message before a new one.
    pub(crate) fn clear_output(&mut self) {
        self.out.clear();
        self.sent = 0;
    }

    /// True if this type data would complete a handshake message, which costs public-key operations. False for
    /// malformed data.
    pub(crate) fn is_costly(&self, data: &[u8]) -> bool {
        let Some((&flags, rest)) = data.split_first() else { return false };
        let acknowledges = rest.is_empty() && self.incoming.is_empty();
        let whole = flags & (MORE_FRAGMENTS | START) == 0 && !acknowledges;
        whole && !self.is_sending() && self.engine.is_handshaking()
    }

    /// The approximate memory of the connection, octets.
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

/// The reason for the failure of a server's run: TLS's fault, or `otherwise`. Without an engine TLS refused the
/// configuration.
pub(crate) fn server_fault(
    conn: Option<&TlsConnection>,
    otherwise: ServerMethodFailure,
) -> ServerMethodFailure {
    match conn {
        None => ServerMethodFailure::Tls(TlsFault::Internal),
        Some(conn) => conn.tls_fault().map_or(otherwise, |(fault, _)| ServerMethodFailure::Tls(fault)),
    }
}

/// The engine's description of TLS's fault.
pub(crate) fn tls_fault_description(conn: Option<&TlsConnection>) -> Option<String> {
    conn?.tls_fault().map(|(_, said)| said).filter(|said| !said.is_empty())
}
