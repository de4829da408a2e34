//! IKE_AUTH (RFC 7296 §1.2, §2.15, §2.16): authentication of both sides by shared keys, certificates or EAP.

pub(super) mod initiator;
pub(super) mod responder;

use super::config::{IkeConnectionConfig, IkeEndpointConfig, LocalAuth, RemoteAuth};
use super::event::{CertificateName, EndReason, IkeJob};
use super::sa::{IkeEndpointContext, IkeSa, SaPhase};
use crate::code::{AuthMethod, CertificateEncoding, HashAlgorithm, KeyExchangeMethod, NotifyType};
use crate::keys::{self, shared_key_auth_data, signed_octets};
use crate::message::notify_payloads;
use crate::payload::{
    ConfigurationPayload, Identification, NotifyPayload, Payload, Proposal, TrafficSelectors,
};
use crate::work;
use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use usher_core::{CommandError, Instant, JobRequest, JobRequester, WallTime};
use usher_crypto::SecretValue;
use usher_crypto::digest::constant_time_eq;
use usher_crypto::exchange::KeyExchange;
use usher_crypto::signature::{KeyKind, SignatureScheme};
use usher_eap::authenticator::EapAuthenticator;
use usher_eap::packet::{EapCode, EapPacket, EapType};
use usher_eap::peer::EapPeer;

/// Most certificates, and OCSP responses, that are read from a peer: a path has at most six besides the peer's own.
const CERTIFICATES: usize = 7;
const RESPONSES: usize = 4;
/// Most octets of an OCSP response that this side sends: it shares a message with the certificates.
const LONGEST_RESPONSE: usize = 8192;

/// Most octets of an EAP packet of an unauthenticated initiator. A fragmented message could hold far more.
const UNPROVED: usize = 4096;
/// Most octets of memory that an unauthenticated initiator's request may retain.
const MAX_RETAINED_OCTETS: usize = 8192;

/// The use of a pending job's result.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum PendingAuthJob {
    /// No job is pending.
    Idle,
    Signature(SignatureScheme),
    Verification,
    Eap,
    Address,
}

/// The EAP conversation.
#[derive(Debug)]
pub(super) enum EapConversation {
    /// There is none.
    None,
    Peer(Box<EapPeer>),
    Authenticator(Box<EapAuthenticator>),
    /// It has succeeded, with the method's key if it has one.
    Done(Option<SecretValue>),
}

/// The CHILD_SA that is requested with the IKE_SA.
#[derive(Debug)]
pub(super) struct InitialChildRequest {
    pub(super) proposals: Vec<Proposal>,
    pub(super) initiator: TrafficSelectors,
    pub(super) responder: TrafficSelectors,
    pub(super) transport: bool,
}

/// The state of an IKE_SA whose sides authenticate.
#[derive(Debug)]
pub(super) struct AuthenticationState {
    /// The first request and the first response, as sent.
    pub(super) first: (Vec<u8>, Vec<u8>),
    nonces: (Vec<u8>, Vec<u8>),
    /// The peer's hashes of digital signatures; empty if it does not support those.
    pub(super) hashes: Vec<HashAlgorithm>,
    /// The responder supports an IKE_SA without a CHILD_SA.
    pub(super) childless: bool,
    pub(super) waits: PendingAuthJob,
    pub(super) eap: EapConversation,
    /// The peer has authenticated, apart from EAP.
    pub(super) verified: bool,
    /// This side's AUTH payload, once it is made.
    pub(super) proof: Option<Payload>,
    /// The peer requests an OCSP response about this side's certificate; and the response, once it is there.
    pub(super) ocsp_wanted: bool,
    pub(super) ocsp: Option<Vec<u8>>,
    /// This side has sent its AUTH payload.
    pub(super) proved: bool,
    /// Both sides have agreed on EAP-only authentication of the responder.
    pub(super) eap_only: bool,
    /// The initiator's other requests.
    pub(super) child: Option<InitialChildRequest>,
    pub(super) configuration: Option<ConfigurationPayload>,
    /// The attributes assigned to the initiator.
    pub(super) assigned_attributes: Option<Vec<crate::payload::ConfigurationAttribute>>,
    pub(super) initial_contact: bool,
    pub(super) mobike: bool,
    pub(super) wants_ticket: bool,
    /// IDi and IDr of the resumed IKE_SA. SK_p alone authenticates both sides (RFC 5723 §4.3.3).
    pub(super) resumed: Option<Box<(Identification, Identification)>>,
    /// The remaining additional key exchanges (RFC 9370).
    pub(super) additional: VecDeque<KeyExchangeMethod>,
    /// The key exchange that this side has begun.
    pub(super) key_exchange: Option<Box<dyn KeyExchange>>,
    /// The authenticated data of IKE_INTERMEDIATE (RFC 9242 §3.3.2): the initiator's and the responder's.
    pub(super) between: Option<(Vec<u8>, Vec<u8>)>,
    /// The message ID of the first IKE_AUTH request.
    pub(super) first_id: u32,
    /// The chosen proposal of the IKE_SA, at a responder.
    pub(super) chosen: Option<Proposal>,
    /// The key from the AAA server, and the identity that it has authenticated.
    key: Option<SecretValue>,
    identity: Option<Identification>,
    /// The inbound SPI of the first CHILD_SA, at an initiator.
    pub(super) child_spi: u32,
    /// The responder's last response, while a worker verifies it.
    pub(super) response: Vec<Payload>,
}

impl AuthenticationState {
    pub(super) fn new(request: Vec<u8>, response: Vec<u8>, initiator: Vec<u8>, responder: Vec<u8>) -> Self {
        Self {
            first: (request, response),
            nonces: (initiator, responder),
            hashes: Vec::new(),
            childless: false,
            waits: PendingAuthJob::Idle,
            eap: EapConversation::None,
            verified: false,
            proof: None,
            ocsp_wanted: false,
            ocsp: None,
            proved: false,
            eap_only: false,
            child: None,
            configuration: None,
            assigned_attributes: None,
            initial_contact: false,
            mobike: false,
            wants_ticket: false,
            resumed: None,
            additional: VecDeque::new(),
            key_exchange: None,
            between: None,
            first_id: 1,
            chosen: None,
            key: None,
            identity: None,
            child_spi: 0,
            response: Vec::new(),
        }
    }
    pub(super) fn nonces(&self) -> (&[u8], &[u8]) {
        (&self.nonces.0, &self.nonces.1)
    }
    /// True for a retransmission of the first request.
    pub(super) fn is_first(&self, octets: &[u8]) -> bool {
        self.first.0 == octets
    }
    pub(super) fn eap_timeout(&self) -> Option<Instant> {
        match &self.eap {
            EapConversation::Peer(peer) => peer.poll_timeout(),
            _ => None,
        }
    }
}

/// Returns the authentication state; `None` after authentication.
pub(super) fn authentication_state(sa: &mut IkeSa) -> Option<&mut AuthenticationState> {
    match &mut sa.phase {
        SaPhase::Authenticating(state) => Some(state),
        _ => None,
    }
}

/// Returns the octets that the initiator or the responder signs.
fn build_signed_octets(sa: &mut IkeSa, initiator: bool, id: &Identification) -> Option<Vec<u8>> {
    let session = sa.session.as_ref()?;
    let (prf, keys) = (session.algorithms.prf, session.keys.clone());
    let state = authentication_state(sa)?;
    let id = [&[id.kind.0, 0, 0, 0][..], &id.data].concat();
    let mut octets = if initiator {
        signed_octets(prf, &state.first.0, &state.nonces.1, &keys.sk_pi, &id)
    } else {
        signed_octets(prf, &state.first.1, &state.nonces.0, &keys.sk_pr, &id)
    };
    // RFC 9242, 3.3.2: AUTH covers IKE_INTERMEDIATE as well.
    if let Some((initiator, responder)) = &state.between {
        octets.extend_from_slice(initiator);
        octets.extend_from_slice(responder);
        octets.extend_from_slice(&state.first_id.to_be_bytes());
    }
    Some(octets)
}

/// Computes AUTH data by a shared key, for either side.
fn compute_auth_data(
    sa: &mut IkeSa,
    initiator: bool,
    id: &Identification,
    key: &[u8],
) -> Option<SecretValue> {
    let octets = build_signed_octets(sa, initiator, id)?;
    let prf = sa.session.as_ref()?.algorithms.prf;
    Some(shared_key_auth_data(prf, key, &octets))
}

/// Returns the key of AUTH after EAP: the method's, or SK_p if it has none (§2.16).
fn eap_auth_key(sa: &mut IkeSa, initiator: bool) -> Option<SecretValue> {
    let keys = sa.session.as_ref()?.keys.clone();
    match &authentication_state(sa)?.eap {
        EapConversation::Done(Some(msk)) => Some(msk.clone()),
        EapConversation::Done(None) => Some(if initiator { keys.sk_pi } else { keys.sk_pr }),
        _ => None,
    }
}

/// Returns this side's AUTH payload by a shared key.
pub(super) fn shared_key_auth_payload(sa: &mut IkeSa, key: &[u8]) -> Option<Payload> {
    let (id, initiator) = (sa.connection.local.clone(), sa.initiator);
    let data = compute_auth_data(sa, initiator, &id, key)?.to_vec();
    Some(Payload::Authentication { method: AuthMethod::SHARED_KEY_MESSAGE_INTEGRITY_CODE, data })
}

/// Returns this side's AUTH payload after EAP.
pub(super) fn eap_auth_payload(sa: &mut IkeSa) -> Option<Payload> {
    let key = eap_auth_key(sa, sa.initiator)?;
    shared_key_auth_payload(sa, &key)
}

/// True if the peer's AUTH payload is valid for this shared key.
pub(super) fn is_shared_proof_valid(sa: &mut IkeSa, payload: &Payload, key: &[u8]) -> bool {
    let Payload::Authentication { method: AuthMethod::SHARED_KEY_MESSAGE_INTEGRITY_CODE, data } = payload
    else {
        return false;
    };
    let Some(id) = sa.remote.clone() else { return false };
    let initiator = !sa.initiator;
    compute_auth_data(sa, initiator, &id, key).is_some_and(|code| constant_time_eq(&code, data))
}

/// True if the peer's AUTH payload after EAP is valid.
pub(super) fn is_eap_proof_valid(sa: &mut IkeSa, payload: &Payload) -> bool {
    let initiator = !sa.initiator;
    eap_auth_key(sa, initiator).is_some_and(|key| is_shared_proof_valid(sa, payload, &key))
}

/// True if the IKE_SA resumes by a ticket.
pub(super) fn is_resumed(sa: &mut IkeSa) -> bool {
    authentication_state(sa).is_some_and(|state| state.resumed.is_some())
}

/// Computes AUTH data of a resumed IKE_SA (RFC 5723 §4.3.3).
fn resumption_auth_data(sa: &mut IkeSa, initiator: bool, id: &Identification) -> Option<SecretValue> {
    let octets = build_signed_octets(sa, initiator, id)?;
    let session = sa.session.as_ref()?;
    let key = if initiator { &session.keys.sk_pi } else { &session.keys.sk_pr };
    Some(keys::compute_prf(session.algorithms.prf, key, &[&octets]))
}

fn is_resumed_proof_valid(sa: &mut IkeSa, proof: &Payload) -> bool {
    let method = AuthMethod::SHARED_KEY_MESSAGE_INTEGRITY_CODE;
    let Payload::Authentication { method: theirs, data } = proof else { return false };
    let (Some(id), initiator) = (sa.remote.clone(), !sa.initiator) else { return false };
    *theirs == method
        && resumption_auth_data(sa, initiator, &id).is_some_and(|code| constant_time_eq(&code, data))
}

/// Returns the certificate requests (§3.7). The OCSP request has an empty list: any responder that the issuer trusts
/// (RFC 4806 §3.1).
pub(super) fn certificate_requests(
    config: &IkeEndpointConfig,
    connection: &IkeConnectionConfig,
) -> Vec<Payload> {
    let authorities = match &connection.remote_auth {
        RemoteAuth::Certificate { authorities } => authorities.concat(),
        _ => Vec::new(),
    };
    let request = |encoding, authorities| Payload::CertificateRequest { encoding, authorities };
    let ocsp = config.request_ocsp.then(|| request(CertificateEncoding::OCSP_CONTENT, Vec::new()));
    core::iter::once(request(CertificateEncoding::X509_SIGNATURE, authorities)).chain(ocsp).collect()
}

/// True if the peer requests an OCSP response.
pub(super) fn requests_ocsp(payloads: &[Payload]) -> bool {
    let asks = |payload: &Payload| {
        matches!(payload, Payload::CertificateRequest { encoding: CertificateEncoding::OCSP_CONTENT, .. })
    };
    payloads.iter().any(asks)
}

/// Returns this side's certificates, with the requested OCSP response.
pub(super) fn certificate_payloads(sa: &mut IkeSa) -> Vec<Payload> {
    let mut payloads = chain_payloads(&sa.connection);
    let ocsp = authentication_state(sa).and_then(|state| state.ocsp.take());
    let encoding = CertificateEncoding::OCSP_CONTENT;
    payloads.extend(ocsp.map(|data| Payload::Certificate { encoding, data }));
    payloads
}

fn chain_payloads(connection: &IkeConnectionConfig) -> Vec<Payload> {
    let LocalAuth::Certificate { chain, .. } = &connection.local_auth else { return Vec::new() };
    let payload = |der: &Vec<u8>| Payload::Certificate {
        encoding: CertificateEncoding::X509_SIGNATURE,
        data: der.clone(),
    };
    // RFC 7296, 3.6: the signing key's certificate comes first.
    chain.iter().map(payload).collect()
}

/// The DER algorithm identifiers of RFC 7427, appendix A.
const IDENTIFIERS: [(SignatureScheme, HashAlgorithm, &[u8]); 9] = [
    (SignatureScheme::RsaPkcs1Sha256, HashAlgorithm::SHA2_256, &RSA_SHA256),
    (SignatureScheme::RsaPkcs1Sha384, HashAlgorithm::SHA2_384, &RSA_SHA384),
    (SignatureScheme::RsaPkcs1Sha512, HashAlgorithm::SHA2_512, &RSA_SHA512),
    (SignatureScheme::RsaPssSha256, HashAlgorithm::SHA2_256, &PSS_SHA256),
    (SignatureScheme::RsaPssSha384, HashAlgorithm::SHA2_384, &PSS_SHA384),
    (SignatureScheme::RsaPssSha512, HashAlgorithm::SHA2_512, &PSS_SHA512),
    (SignatureScheme::EcdsaP256Sha256, HashAlgorithm::SHA2_256, &ECDSA_SHA256),
    (SignatureScheme::EcdsaP384Sha384, HashAlgorithm::SHA2_384, &ECDSA_SHA384),
    (SignatureScheme::RsaPkcs1Sha1, HashAlgorithm::SHA1, &RSA_SHA1),
];

const fn rsa_identifier(last: u8) -> [u8; 15] {
    [0x30, 0x0d, 6, 9, 0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 1, 1, last, 5, 0]
}
const RSA_SHA1: [u8; 15] = rsa_identifier(5);
const RSA_SHA256: [u8; 15] = rsa_identifier(0x0b);
const RSA_SHA384: [u8; 15] = rsa_identifier(0x0c);
const RSA_SHA512: [u8; 15] = rsa_identifier(0x0d);
const fn ecdsa_identifier(last: u8) -> [u8; 12] {
    [0x30, 0x0a, 6, 8, 0x2a, 0x86, 0x48, 0xce, 0x3d, 4, 3, last]
}
const ECDSA_SHA256: [u8; 12] = ecdsa_identifier(2);
const ECDSA_SHA384: [u8; 12] = ecdsa_identifier(3);
/// Builds the RSASSA-PSS identifier of a digest (the last octet of its OID), also in MGF1, and a salt length.
const fn pss_identifier(digest: u8, salt: u8) -> [u8; 72] {
    [
        0x30, 0x46, 6, 9, 0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 1, 1, 0x0a, 0x30, 0x39, 0xa0, 0x0f, 0x30, 0x0d,
        6, 9, 0x60, 0x86, 0x48, 1, 0x65, 3, 4, 2, digest, 5, 0, 0xa1, 0x1c, 0x30, 0x1a, 6, 9, 0x2a, 0x86,
        0x48, 0x86, 0xf7, 0x0d, 1, 1, 8, 0x30, 0x0d, 6, 9, 0x60, 0x86, 0x48, 1, 0x65, 3, 4, 2, digest, 5, 0,
        0xa2, 3, 2, 1, salt, 0xa3, 3, 2, 1, 1,
    ]
}
const PSS_SHA256: [u8; 72] = pss_identifier(1, 32);
const PSS_SHA384: [u8; 72] = pss_identifier(2, 48);
const PSS_SHA512: [u8; 72] = pss_identifier(3, 64);

/// True if an identifier means this RSASSA-PSS scheme. The trailer field and a digest's NULL parameters may be
/// absent, as DER omits defaults (RFC 4055 §2.1).
fn is_pss(scheme: SignatureScheme, identifier: &[u8]) -> bool {
    let full = match scheme {
        SignatureScheme::RsaPssSha256 => PSS_SHA256,
        SignatureScheme::RsaPssSha384 => PSS_SHA384,
        SignatureScheme::RsaPssSha512 => PSS_SHA512,
        _ => return false,
    };
    // All elements have fewer than 128 octets.
    let element = |tag: u8, parts: &[&[u8]]| {
        let content = parts.concat();
        [&[tag, content.len() as u8], &content[..]].concat()
    };
    let (pss, digest, mask, salt, trailer) =
        (&full[2..13], &full[19..30], &full[36..47], &full[62..67], &full[67..]);
    let forms = [(&full[30..32], trailer), (&full[30..32], &[][..]), (&[], trailer), (&[], &[])];
    forms.into_iter().any(|(empty, trailer)| {
        let digest = element(0x30, &[digest, empty]);
        let mask = element(0xa1, &[&element(0x30, &[mask, &digest])]);
        let parameters = element(0x30, &[&element(0xa0, &[&digest]), &mask, salt, trailer]);
        element(0x30, &[pss, &parameters]) == identifier
    })
}

/// Chooses the signature scheme of a key for a peer that accepts these hashes. `None` if there is none.
fn choose_signature_scheme(kind: KeyKind, pss: bool, hashes: &[HashAlgorithm]) -> Option<SignatureScheme> {
    match (kind, hashes.is_empty()) {
        (KeyKind::EcdsaP256, true) => return Some(SignatureScheme::EcdsaP256Sha256Fixed),
        (KeyKind::EcdsaP384, true) => return Some(SignatureScheme::EcdsaP384Sha384Fixed),
        // For a peer without hash notifications, the RSA method of RFC 7296 would use SHA-1, which is not supported
        // here. That RFC has no method for Ed25519.
        (KeyKind::Rsa | KeyKind::Ed25519, true) => return None,
        _ => {}
    }
    // RFC 7427, 4; RFC 8247, 3.2: only hashes that the peer names, and never SHA-1.
    let fits = |(scheme, hash, _): &&(SignatureScheme, HashAlgorithm, &[u8])| {
        scheme.required_key_kind() == kind
            && hashes.contains(hash)
            && scheme.is_pss() == (pss && kind == KeyKind::Rsa)
    };
    IDENTIFIERS.iter().find(fits).map(|(scheme, ..)| *scheme)
}

/// Returns the AUTH payload of a signature.
fn signature_payload(scheme: SignatureScheme, signature: &[u8]) -> Payload {
    let identifier = IDENTIFIERS.iter().find(|(known, ..)| *known == scheme).map(|(.., der)| *der);
    let (method, data) = match (scheme, identifier) {
        (SignatureScheme::EcdsaP256Sha256Fixed, _) => (AuthMethod::ECDSA_SHA256_P256, signature.to_vec()),
        (SignatureScheme::EcdsaP384Sha384Fixed, _) => (AuthMethod::ECDSA_SHA384_P384, signature.to_vec()),
        (_, identifier) => {
            let identifier = identifier.unwrap_or(&[]);
            // RFC 7427, 3: the algorithm in DER, at most 72 octets, before the signature.
            let data = [&[identifier.len() as u8], identifier, signature].concat();
            (AuthMethod::DIGITAL_SIGNATURE, data)
        }
    };
    Payload::Authentication { method, data }
}

/// Returns the scheme and the signature of an AUTH payload; `None` if the scheme is not supported.
fn parse_auth_signature(payload: &Payload) -> Option<(SignatureScheme, &[u8])> {
    let Payload::Authentication { method, data } = payload else { return None };
    match *method {
        AuthMethod::RSA_DIGITAL_SIGNATURE => Some((SignatureScheme::RsaPkcs1Sha1, data)),
        AuthMethod::ECDSA_SHA256_P256 => Some((SignatureScheme::EcdsaP256Sha256Fixed, data)),
        AuthMethod::ECDSA_SHA384_P384 => Some((SignatureScheme::EcdsaP384Sha384Fixed, data)),
        AuthMethod::DIGITAL_SIGNATURE => {
            let (length, rest) = data.split_first()?;
            let (identifier, signature) = rest.split_at_checked(usize::from(*length))?;
            let of = |(scheme, hash, der): &&(SignatureScheme, HashAlgorithm, &[u8])| {
                *hash != HashAlgorithm::SHA1 && (*der == identifier || is_pss(*scheme, identifier))
            };
            Some((IDENTIFIERS.iter().find(of)?.0, signature))
        }
        _ => None,
    }
}

/// Starts this side's proof: at once by a shared key, by a job with a certificate's key. False if it is impossible.
pub(super) fn create_own_proof(sa: &mut IkeSa, cx: &mut IkeEndpointContext<'_>) -> bool {
    let connection = sa.connection.clone();
    if is_resumed(sa) {
        cx.count_work(work::DERIVE);
        let initiator = sa.initiator;
        let Some(code) = resumption_auth_data(sa, initiator, &connection.local) else { return false };
        let Some(state) = authentication_state(sa) else { return false };
        let method = AuthMethod::SHARED_KEY_MESSAGE_INTEGRITY_CODE;
        state.proof = Some(Payload::Authentication { method, data: code.to_vec() });
        return true;
    }
    match &connection.local_auth {
        LocalAuth::Psk(key) => {
            cx.count_work(work::DERIVE);
            let proof = shared_key_auth_payload(sa, key);
            let Some(state) = authentication_state(sa) else { return false };
            state.proof = proof;
            state.proof.is_some()
        }
        LocalAuth::Certificate { kind, pss, .. } => {
            let initiator = sa.initiator;
            let Some(octets) = build_signed_octets(sa, initiator, &connection.local) else { return false };
            let Some(state) = authentication_state(sa) else { return false };
            let Some(scheme) = choose_signature_scheme(*kind, *pss, &state.hashes) else { return false };
            state.waits = PendingAuthJob::Signature(scheme);
            cx.count_work(work::SIGN);
            let ocsp = state.ocsp_wanted;
            queue_job(sa, cx, IkeJob::Sign { connection: connection.name.clone(), scheme, octets, ocsp });
            true
        }
        // A side that uses EAP sends no proof before EAP, and with EAP-only authentication none at all.
        LocalAuth::Eap { .. } | LocalAuth::EapOnly => true,
    }
}

/// Queues a job that lives as long as the IKE_SA.
fn queue_job(sa: &mut IkeSa, cx: &mut IkeEndpointContext<'_>, what: IkeJob) {
    let origin = JobRequester::from_address(sa.proved).with_waiter(sa.waiter.get_or_insert_default());
    cx.outputs.push_job(JobRequest::new(sa.id.0, what).with_origin(origin));
}

/// Verifies the peer's proof: at once by a shared key, by a job with a certificate. `None` while a job runs.
pub(super) fn verify_peer_proof(
    sa: &mut IkeSa,
    cx: &mut IkeEndpointContext<'_>,
    payloads: &[Payload],
    proof: &Payload,
) -> Option<bool> {
    let connection = sa.connection.clone();
    if is_resumed(sa) {
        cx.count_work(work::DERIVE);
        return Some(is_resumed_proof_valid(sa, proof));
    }
    match &connection.remote_auth {
        RemoteAuth::Psk(key) => {
            cx.count_work(work::DERIVE);
            Some(is_shared_proof_valid(sa, proof, key))
        }
        RemoteAuth::Certificate { .. } => {
            let all = |wanted: CertificateEncoding, most: usize| -> Vec<Vec<u8>> {
                let of = payloads.iter().filter_map(|payload| match payload {
                    Payload::Certificate { encoding, data } if *encoding == wanted => Some(data.clone()),
                    _ => None,
                });
                of.take(most).collect()
            };
            let certificates = all(CertificateEncoding::X509_SIGNATURE, CERTIFICATES);
            let ocsp = all(CertificateEncoding::OCSP_CONTENT, RESPONSES);
            // RFC 7427, 4; RFC 8247, 3.2: a peer that names hashes must sign by one of them. SHA-1 is not supported.
            let names_none = authentication_state(sa)?.hashes.is_empty();
            let signed = parse_auth_signature(proof)
                .filter(|(scheme, _)| names_none || *scheme != SignatureScheme::RsaPkcs1Sha1);
            let Some((scheme, signature)) = signed else { return Some(false) };
            let (signature, initiator) = (signature.to_vec(), !sa.initiator);
            let Some(identity) = sa.remote.clone() else { return Some(false) };
            let Some(octets) = build_signed_octets(sa, initiator, &identity) else { return Some(false) };
            if certificates.is_empty() {
                return Some(false);
            }
            authentication_state(sa)?.waits = PendingAuthJob::Verification;
            cx.count_work(work::VERIFY);
            let connection = connection.name.clone();
            let verify =
                IkeJob::Verify { connection, identity, certificates, ocsp, scheme, octets, signature };
            queue_job(sa, cx, verify);
            None
        }
        RemoteAuth::Eap { .. } | RemoteAuth::EapOnly => Some(false),
    }
}

/// Applies the result of a signature job.
pub(super) fn apply_signature_result(
    sa: &mut IkeSa,
    cx: &mut IkeEndpointContext<'_>,
    signature: Option<Vec<u8>>,
    ocsp: Option<Vec<u8>>,
) -> Result<(), CommandError> {
    let waiting =
        authentication_state(sa).filter(|state| matches!(state.waits, PendingAuthJob::Signature(_)));
    let state = waiting.ok_or(CommandError::WrongState("no signature is pending"))?;
    let PendingAuthJob::Signature(scheme) = state.waits else { return Ok(()) };
    state.waits = PendingAuthJob::Idle;
    state.proof = signature.map(|signature| signature_payload(scheme, &signature));
    state.ocsp = ocsp.filter(|response| response.len() <= LONGEST_RESPONSE);
    match (state.proof.is_some(), sa.initiator) {
        (true, true) => initiator::send_auth_request(sa, cx),
        (true, false) => responder::go_on(sa, cx),
        (false, _) => end_sa_for_failed_job(sa, cx),
    }
    Ok(())
}

/// Handles a job that cannot be done now.
pub(super) fn fail_pending_job(sa: &mut IkeSa, cx: &mut IkeEndpointContext<'_>) -> Result<(), CommandError> {
    let waiting = authentication_state(sa).filter(|state| state.waits != PendingAuthJob::Idle);
    let state = waiting.ok_or(CommandError::WrongState("no job is pending"))?;
    state.waits = PendingAuthJob::Idle;
    end_sa_for_failed_job(sa, cx);
    Ok(())
}

fn end_sa_for_failed_job(sa: &mut IkeSa, cx: &mut IkeEndpointContext<'_>) {
    match sa.initiator {
        true => sa.end_sa(cx, EndReason::Helper),
        false => responder::reject_authentication(sa, cx, EndReason::Helper),
    }
}

/// Applies the result of a verification job.
pub(super) fn apply_verification_result(
    sa: &mut IkeSa,
    cx: &mut IkeEndpointContext<'_>,
    until: Option<WallTime>,
    certificates: Vec<CertificateName>,
) -> Result<(), CommandError> {
    let waiting = authentication_state(sa).filter(|state| state.waits == PendingAuthJob::Verification);
    let state = waiting.ok_or(CommandError::WrongState("no verification is pending"))?;
    let holds = until.is_some();
    state.waits = PendingAuthJob::Idle;
    state.verified = holds;
    (sa.proof_until, sa.certificates) = (until, certificates.into());
    match (sa.initiator, holds) {
        (true, _) => initiator::continue_after_verification(sa, cx, holds),
        (false, true) => responder::go_on(sa, cx),
        (false, false) => responder::reject_authentication(sa, cx, EndReason::AuthenticationFailed),
    }
    Ok(())
}

/// True if this EAP packet's method may authenticate a responder alone. The method must be mutual, give a key and
/// resist dictionary attacks. EAP-TLS and EAP-TTLS of the list in RFC 5998 §4 are supported.
pub(super) fn is_safe_for_eap_only(packet: &[u8]) -> bool {
    EapPacket::parse(packet).is_ok_and(|packet| {
        let safe = [EapType::IDENTITY, EapType::NOTIFICATION, EapType::TLS, EapType::TTLS];
        packet.code() != EapCode::Request || packet.kind().is_some_and(|kind| safe.contains(&kind))
    })
}

/// Returns the payload of a type, if any.
pub(super) fn find_payload<'a, T>(
    payloads: &'a [Payload],
    of: impl FnMut(&'a Payload) -> Option<T>,
) -> Option<T> {
    payloads.iter().find_map(of)
}
pub(super) fn find_auth_payload(payloads: &[Payload]) -> Option<&Payload> {
    payloads.iter().find(|payload| matches!(payload, Payload::Authentication { .. }))
}
pub(super) fn find_eap_packet(payloads: &[Payload]) -> Option<&[u8]> {
    find_payload(
        payloads,
        |payload| if let Payload::Eap(packet) = payload { Some(&packet[..]) } else { None },
    )
}
pub(super) fn find_configuration(payloads: &[Payload]) -> Option<&ConfigurationPayload> {
    find_payload(payloads, |payload| if let Payload::Configuration(c) = payload { Some(c) } else { None })
}
pub(super) fn has_notify(payloads: &[Payload], kind: NotifyType) -> bool {
    notify_payloads(payloads).any(|notify| notify.kind == kind)
}
pub(super) fn find_error_notify(payloads: &[Payload]) -> Option<&NotifyPayload> {
    notify_payloads(payloads).find(|notify| notify.kind.is_error())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_algorithms_of_signatures_are_those_of_rfc_7427() {
        use crate::tests::octets_from_hex;
        for (der, want) in [
            (&RSA_SHA256[..], "300d06092a864886f70d01010b0500"),
            (&ECDSA_SHA384, "300a06082a8648ce3d040303"),
            (
                &PSS_SHA256,
                "304606092a864886f70d01010a3039a00f300d06096086480165030402010500a11c301a06092a864886f70d010108300d\
                 06096086480165030402010500a203020120a303020101",
            ),
        ] {
            assert_eq!(der, octets_from_hex(want));
        }
    }

    /// The form of strongSwan 5.9, allowed to all.
    #[test]
    fn omitted_defaults_do_not_change_an_rsassa_pss_identifier() {
        use crate::tests::octets_from_hex;
        let forms = [
            "304106092a864886f70d01010a3034a00f300d06096086480165030402010500a11c301a06092a864886f70d010108300d\
             06096086480165030402010500a203020120",
            "303d06092a864886f70d01010a3030a00d300b0609608648016503040201a11a301806092a864886f70d010108300b\
             0609608648016503040201a203020120",
            "304206092a864886f70d01010a3035a00d300b0609608648016503040201a11a301806092a864886f70d010108300b\
             0609608648016503040201a203020120a303020101",
        ];
        for form in forms {
            let identifier = octets_from_hex(form);
            let data = [&[identifier.len() as u8], &identifier[..], b"signature"].concat();
            let payload = Payload::Authentication { method: AuthMethod::DIGITAL_SIGNATURE, data };
            let found = (SignatureScheme::RsaPssSha256, &b"signature"[..]);
            assert_eq!(parse_auth_signature(&payload), Some(found), "{form}");
        }
        // Another salt, and empty parameters, which mean SHA-1.
        let (salt, empty) =
            (forms[0].replace("020120", "020114"), "300d06092a864886f70d01010a3000".to_owned());
        for form in [salt, empty] {
            let data = [&[(form.len() / 2) as u8], &octets_from_hex(&form)[..]].concat();
            let payload = Payload::Authentication { method: AuthMethod::DIGITAL_SIGNATURE, data };
            assert_eq!(parse_auth_signature(&payload), None, "{form}");
        }
    }

    #[test]
    fn a_signature_is_found_again_as_it_was_made() {
        for kind in KeyKind::ALL {
            for hashes in [&[][..], &[HashAlgorithm::SHA2_256, HashAlgorithm::SHA2_384]] {
                for pss in [false, true] {
                    let Some(scheme) = choose_signature_scheme(kind, pss, hashes) else { continue };
                    let payload = signature_payload(scheme, b"signature");
                    assert_eq!(parse_auth_signature(&payload), Some((scheme, &b"signature"[..])), "{scheme}");
                }
            }
        }
        assert_eq!(choose_signature_scheme(KeyKind::Rsa, true, &[]), None);
        assert_eq!(choose_signature_scheme(KeyKind::EcdsaP384, false, &[HashAlgorithm::SHA2_256]), None);
        let of = |kind, pss| choose_signature_scheme(kind, pss, &[HashAlgorithm::SHA2_384]);
        assert_eq!(of(KeyKind::Rsa, false), Some(SignatureScheme::RsaPkcs1Sha384));
        assert_eq!(of(KeyKind::Rsa, true), Some(SignatureScheme::RsaPssSha384));
        assert_eq!(of(KeyKind::EcdsaP384, true), Some(SignatureScheme::EcdsaP384Sha384));
        let sha1 = signature_payload(SignatureScheme::RsaPkcs1Sha1, b"signature");
        assert_eq!(parse_auth_signature(&sha1), None, "a digital signature by SHA-1 is not taken");
        let cut = Payload::Authentication { method: AuthMethod::DIGITAL_SIGNATURE, data: [9, 1].into() };
        assert_eq!(parse_auth_signature(&cut), None);
    }
}
