//! IKE_AUTH (RFC 7296 §1.2, §2.15, §2.16): authentication of both sides by shared keys, certificates or EAP.

pub(super) mod initiator;
pub(super) mod responder;

use super::base::{IkeSaBase, NoncePair};
use super::child::ChildSaRequest;
use super::config::{IkeConnectionConfig, IkeEndpointConfig, LocalAuth, RemoteAuth};
use super::context::IkeEndpointContext;
use super::event::IkeJob;
use super::signature::{choose_signature_scheme, parse_auth_signature, signature_payload};
use super::spent_tickets::TicketId;
use crate::code::{AuthMethod, CertificateEncoding, HashAlgorithm, KeyExchangeMethod};
use crate::header::Spi;
use crate::keys::{self, shared_key_auth_data, signed_octets};
use crate::payload::{ConfigurationAttribute, ConfigurationPayload, Identification, Payload, Proposal};
use crate::work;
use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use core::net::IpAddr;
use usher_core::{CommandError, Instant, JobWaiter};
use usher_crypto::SecretValue;
use usher_crypto::digest::constant_time_eq;
use usher_crypto::exchange::KeyExchange;
use usher_crypto::signature::SignatureScheme;
use usher_eap::authenticator::EapAuthenticator;
use usher_eap::packet::{EapCode, EapPacket, EapType};
use usher_eap::peer::EapPeer;

/// Most certificates, and OCSP responses, that are read from a peer: a path has at most six besides the peer's own.
const CERTIFICATES: usize = 7;
const RESPONSES: usize = 4;
/// Most octets of an OCSP response that this side sends: it shares a message with the certificates.
const LONGEST_RESPONSE: usize = 8192;

const SHARED_KEY: AuthMethod = AuthMethod::SHARED_KEY_MESSAGE_INTEGRITY_CODE;

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

/// The EAP conversation of one side.
#[derive(Debug)]
pub(super) enum EapConversation<C> {
    /// There is none.
    None,
    Running(Box<C>),
    /// It has succeeded, with the method's key if it has one.
    Done(Option<SecretValue>),
}

/// The state of authentication that both sides have.
#[derive(Debug)]
pub(super) struct AuthenticationState {
    /// The first request and the first response, as sent.
    pub(super) first: (Vec<u8>, Vec<u8>),
    pub(super) nonces: NoncePair,
    /// The peer's hashes of digital signatures; empty if it does not support those.
    pub(super) hashes: Vec<HashAlgorithm>,
    pub(super) waits: PendingAuthJob,
    /// The waiter of its jobs.
    waiter: Option<JobWaiter>,
    /// This side's AUTH payload, once it is made.
    pub(super) proof: Option<Payload>,
    /// The peer requests an OCSP response about this side's certificate; and the response, once it is there.
    pub(super) ocsp_wanted: bool,
    pub(super) ocsp: Option<Vec<u8>>,
    /// Both sides have agreed on EAP-only authentication of the responder.
    pub(super) eap_only: bool,
    /// IDi and IDr of the resumed IKE_SA. SK_p alone authenticates both sides (RFC 5723 §4.3.3).
    pub(super) resumed: Option<Box<(Identification, Identification)>>,
    /// The remaining additional key exchanges (RFC 9370).
    pub(super) additional: VecDeque<KeyExchangeMethod>,
    /// The authenticated data of IKE_INTERMEDIATE (RFC 9242 §3.3.2): the initiator's and the responder's.
    pub(super) between: Option<(Vec<u8>, Vec<u8>)>,
    /// The message ID of the first IKE_AUTH request.
    pub(super) first_id: u32,
}

/// The requests of an initiator besides its CHILD_SA.
#[derive(Clone, Debug, Default)]
pub(super) struct InitiatorWishes {
    /// It has no other IKE_SA of this pair, and says so by INITIAL_CONTACT.
    pub(super) initial_contact: bool,
    /// The addresses that it has by another IKE_SA.
    pub(super) addresses: Vec<IpAddr>,
}

/// An initiator whose IKE_SA has keys: the sides authenticate.
#[derive(Debug)]
pub(super) struct InitiatorAuthentication {
    pub(super) common: AuthenticationState,
    pub(super) wishes: InitiatorWishes,
    /// The responder supports an IKE_SA without a CHILD_SA.
    pub(super) childless: bool,
    pub(super) eap: EapConversation<EapPeer>,
    /// The additional key exchange that this side has begun.
    pub(super) key_exchange: Option<Box<dyn KeyExchange>>,
    /// The inbound SPI of the first CHILD_SA; zero without one.
    pub(super) child_spi: u32,
    /// The responder's last response, while a worker verifies it.
    pub(super) response: Vec<Payload>,
}

/// The ticket of a resumed IKE_SA, at its responder.
#[derive(Clone, Copy, Debug)]
pub(super) struct PresentedTicket {
    pub(super) id: TicketId,
    /// Its expiry, in seconds since 1970.
    pub(super) expires: u64,
    /// This side's SPI of the IKE_SA that is resumed.
    pub(super) spi: Spi,
}

/// A responder whose IKE_SA has keys: the sides authenticate.
#[derive(Debug)]
pub(super) struct ResponderAuthentication {
    pub(super) common: AuthenticationState,
    /// Its number among the half-open IKE_SAs.
    pub(super) half_open: u64,
    /// The time at which it ends, unless the initiator has authenticated.
    pub(super) deadline: Instant,
    pub(super) eap: EapConversation<EapAuthenticator>,
    /// The initiator has authenticated, apart from EAP.
    pub(super) is_peer_verified: bool,
    /// This side has sent its AUTH payload.
    pub(super) has_sent_proof: bool,
    /// The chosen proposal of the IKE_SA; `None` if it resumes another.
    pub(super) chosen: Option<Proposal>,
    pub(super) ticket: Option<PresentedTicket>,
    /// The initiator's other requests.
    pub(super) child: Option<ChildSaRequest>,
    pub(super) configuration: Option<ConfigurationPayload>,
    pub(super) initial_contact: bool,
    pub(super) mobike: bool,
    pub(super) wants_ticket: bool,
    /// The attributes assigned to the initiator.
    pub(super) assigned_attributes: Option<Vec<ConfigurationAttribute>>,
    /// The key from the AAA server, and the identity that it has authenticated.
    pub(super) key: Option<SecretValue>,
    pub(super) identity: Option<Identification>,
}

impl AuthenticationState {
    pub(super) fn new(request: Vec<u8>, response: Vec<u8>, nonces: NoncePair) -> Self {
        Self {
            first: (request, response),
            nonces,
            hashes: Vec::new(),
            waits: PendingAuthJob::Idle,
            waiter: None,
            proof: None,
            ocsp_wanted: false,
            ocsp: None,
            eap_only: false,
            resumed: None,
            additional: VecDeque::new(),
            between: None,
            first_id: 1,
        }
    }
    /// Takes the use of a pending job's result if it is one of these.
    ///
    /// # Errors
    /// No such job is pending, as `missing` says.
    fn take_job(
        &mut self,
        of: impl FnOnce(PendingAuthJob) -> bool,
        missing: &'static str,
    ) -> Result<PendingAuthJob, CommandError> {
        if !of(self.waits) {
            return Err(CommandError::WrongState(missing));
        }
        Ok(core::mem::replace(&mut self.waits, PendingAuthJob::Idle))
    }
    /// Takes the pending signature job and stores its result. False if the job has failed.
    ///
    /// # Errors
    /// No signature is pending.
    fn apply_signature(
        &mut self,
        signature: Option<Vec<u8>>,
        ocsp: Option<Vec<u8>>,
    ) -> Result<bool, CommandError> {
        const MISSING: &str = "no signature is pending";
        let job = self.take_job(|job| matches!(job, PendingAuthJob::Signature(_)), MISSING)?;
        let PendingAuthJob::Signature(scheme) = job else { return Err(CommandError::WrongState(MISSING)) };
        self.proof = signature.map(|signature| signature_payload(scheme, &signature));
        self.ocsp = ocsp.filter(|response| response.len() <= LONGEST_RESPONSE);
        Ok(self.proof.is_some())
    }
    /// Takes the pending verification job.
    ///
    /// # Errors
    /// No verification is pending.
    fn take_verification(&mut self) -> Result<(), CommandError> {
        self.take_job(|job| job == PendingAuthJob::Verification, "no verification is pending").map(drop)
    }
    /// Takes the pending job, which cannot be done now.
    ///
    /// # Errors
    /// No job is pending.
    pub(super) fn take_failed_job(&mut self) -> Result<(), CommandError> {
        self.take_job(|job| job != PendingAuthJob::Idle, "no job is pending").map(drop)
    }

    /// Returns the octets that the initiator or the responder signs.
    fn build_signed_octets(&self, sa: &IkeSaBase, initiator: bool, id: &Identification) -> Option<Vec<u8>> {
        let session = sa.session.as_ref()?;
        let (prf, keys) = (session.algorithms.prf, &session.keys);
        let id = [&[id.kind.0, 0, 0, 0][..], &id.data].concat();
        let mut octets = if initiator {
            signed_octets(prf, &self.first.0, &self.nonces.1, &keys.sk_pi, &id)
        } else {
            signed_octets(prf, &self.first.1, &self.nonces.0, &keys.sk_pr, &id)
        };
        // RFC 9242, 3.3.2: AUTH covers IKE_INTERMEDIATE as well.
        if let Some((initiator, responder)) = &self.between {
            octets.extend_from_slice(initiator);
            octets.extend_from_slice(responder);
            octets.extend_from_slice(&self.first_id.to_be_bytes());
        }
        Some(octets)
    }
    /// Computes AUTH data by a shared key, for either side.
    fn compute_auth_data(
        &self,
        sa: &IkeSaBase,
        initiator: bool,
        id: &Identification,
        key: &[u8],
    ) -> Option<SecretValue> {
        let octets = self.build_signed_octets(sa, initiator, id)?;
        Some(shared_key_auth_data(sa.session.as_ref()?.algorithms.prf, key, &octets))
    }
    /// Computes AUTH data of a resumed IKE_SA (RFC 5723 §4.3.3).
    fn resumption_auth_data(
        &self,
        sa: &IkeSaBase,
        initiator: bool,
        id: &Identification,
    ) -> Option<SecretValue> {
        let octets = self.build_signed_octets(sa, initiator, id)?;
        let session = sa.session.as_ref()?;
        let key = if initiator { &session.keys.sk_pi } else { &session.keys.sk_pr };
        Some(keys::compute_prf(session.algorithms.prf, key, &[&octets]))
    }

    /// Returns this side's AUTH payload by a shared key.
    fn shared_key_auth_payload(&self, sa: &IkeSaBase, key: &[u8]) -> Option<Payload> {
        let data = self.compute_auth_data(sa, sa.initiator, &sa.connection.local, key)?.to_vec();
        Some(Payload::Authentication { method: SHARED_KEY, data })
    }
    /// Returns this side's AUTH payload after EAP.
    pub(super) fn eap_auth_payload(&self, sa: &IkeSaBase, msk: Option<&SecretValue>) -> Option<Payload> {
        self.shared_key_auth_payload(sa, eap_auth_key(sa, msk, sa.initiator)?)
    }
    /// True if the peer's AUTH payload is valid for this shared key.
    fn is_shared_proof_valid(&self, sa: &IkeSaBase, payload: &Payload, key: &[u8]) -> bool {
        let Payload::Authentication { method: SHARED_KEY, data } = payload else { return false };
        let Some(id) = &sa.remote else { return false };
        let expected = self.compute_auth_data(sa, !sa.initiator, id, key);
        expected.is_some_and(|code| constant_time_eq(&code, data))
    }
    /// True if the peer's AUTH payload after EAP is valid.
    pub(super) fn is_eap_proof_valid(
        &self,
        sa: &IkeSaBase,
        payload: &Payload,
        msk: Option<&SecretValue>,
    ) -> bool {
        eap_auth_key(sa, msk, !sa.initiator).is_some_and(|key| self.is_shared_proof_valid(sa, payload, key))
    }
    fn is_resumed_proof_valid(&self, sa: &IkeSaBase, proof: &Payload) -> bool {
        let Payload::Authentication { method: SHARED_KEY, data } = proof else { return false };
        let Some(id) = &sa.remote else { return false };
        let expected = self.resumption_auth_data(sa, !sa.initiator, id);
        expected.is_some_and(|code| constant_time_eq(&code, data))
    }

    /// Returns this side's certificates, with the requested OCSP response.
    pub(super) fn certificate_payloads(&mut self, sa: &IkeSaBase) -> Vec<Payload> {
        let mut payloads = chain_payloads(&sa.connection);
        let encoding = CertificateEncoding::OCSP_CONTENT;
        payloads.extend(self.ocsp.take().map(|data| Payload::Certificate { encoding, data }));
        payloads
    }

    /// Starts this side's proof: at once by a shared key, by a job with a certificate's key. False if it is impossible.
    pub(super) fn create_own_proof(&mut self, sa: &IkeSaBase, cx: &mut IkeEndpointContext) -> bool {
        let connection = &sa.connection;
        if self.resumed.is_some() {
            cx.count_work(work::DERIVE);
            let code = self.resumption_auth_data(sa, sa.initiator, &connection.local);
            self.proof = code.map(|code| Payload::Authentication { method: SHARED_KEY, data: code.to_vec() });
            return self.proof.is_some();
        }
        match &connection.local_auth {
            LocalAuth::Psk(key) => {
                cx.count_work(work::DERIVE);
                self.proof = self.shared_key_auth_payload(sa, key);
                self.proof.is_some()
            }
            LocalAuth::Certificate { kind, pss, .. } => {
                let octets = self.build_signed_octets(sa, sa.initiator, &connection.local);
                let Some(octets) = octets else { return false };
                let Some(scheme) = choose_signature_scheme(*kind, *pss, &self.hashes) else { return false };
                self.waits = PendingAuthJob::Signature(scheme);
                cx.count_work(work::SIGN);
                let (connection, ocsp) = (connection.name.clone(), self.ocsp_wanted);
                let waiter = self.waiter.get_or_insert_default();
                sa.queue_job(cx, waiter, IkeJob::Sign { connection, scheme, octets, ocsp });
                true
            }
            // A side that uses EAP sends no proof before EAP, and with EAP-only authentication none at all.
            LocalAuth::Eap { .. } | LocalAuth::EapOnly => true,
        }
    }

    /// Verifies the peer's proof: at once by a shared key, by a job with a certificate. `None` while a job runs.
    pub(super) fn verify_peer_proof(
        &mut self,
        sa: &IkeSaBase,
        cx: &mut IkeEndpointContext,
        payloads: &[Payload],
        proof: &Payload,
    ) -> Option<bool> {
        if self.resumed.is_some() {
            cx.count_work(work::DERIVE);
            return Some(self.is_resumed_proof_valid(sa, proof));
        }
        match &sa.connection.remote_auth {
            RemoteAuth::Psk(key) => {
                cx.count_work(work::DERIVE);
                Some(self.is_shared_proof_valid(sa, proof, key))
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
                let signed = parse_auth_signature(proof)
                    .filter(|(scheme, _)| self.hashes.is_empty() || *scheme != SignatureScheme::RsaPkcs1Sha1);
                let Some((scheme, signature)) = signed else { return Some(false) };
                let Some(identity) = sa.remote.clone() else { return Some(false) };
                let octets = self.build_signed_octets(sa, !sa.initiator, &identity);
                let Some(octets) = octets.filter(|_| !certificates.is_empty()) else { return Some(false) };
                self.waits = PendingAuthJob::Verification;
                cx.count_work(work::VERIFY);
                let (connection, signature) = (sa.connection.name.clone(), signature.to_vec());
                let verify =
                    IkeJob::Verify { connection, identity, certificates, ocsp, scheme, octets, signature };
                sa.queue_job(cx, self.waiter.get_or_insert_default(), verify);
                None
            }
            RemoteAuth::Eap { .. } | RemoteAuth::EapOnly => Some(false),
        }
    }
}

/// Returns the key of AUTH after EAP: the method's, or SK_p if it has none (§2.16).
fn eap_auth_key<'a>(
    sa: &'a IkeSaBase,
    msk: Option<&'a SecretValue>,
    initiator: bool,
) -> Option<&'a SecretValue> {
    let keys = &sa.session.as_ref()?.keys;
    Some(msk.unwrap_or(if initiator { &keys.sk_pi } else { &keys.sk_pr }))
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

fn chain_payloads(connection: &IkeConnectionConfig) -> Vec<Payload> {
    let LocalAuth::Certificate { chain, .. } = &connection.local_auth else { return Vec::new() };
    let payload = |der: &Vec<u8>| Payload::Certificate {
        encoding: CertificateEncoding::X509_SIGNATURE,
        data: der.clone(),
    };
    // RFC 7296, 3.6: the signing key's certificate comes first.
    chain.iter().map(payload).collect()
}

/// True if this EAP packet's method may authenticate a responder alone. The method must be mutual, give a key and
/// resist dictionary attacks. EAP-TLS and EAP-TTLS of the list in RFC 5998 §4 are supported.
pub(super) fn is_safe_for_eap_only(packet: &[u8]) -> bool {
    EapPacket::parse(packet).is_ok_and(|packet| {
        let safe = [EapType::IDENTITY, EapType::NOTIFICATION, EapType::TLS, EapType::TTLS];
        packet.code() != EapCode::Request || packet.kind().is_some_and(|kind| safe.contains(&kind))
    })
}

fn find_auth_payload(payloads: &[Payload]) -> Option<&Payload> {
    payloads.iter().find(|payload| matches!(payload, Payload::Authentication { .. }))
}
fn find_eap_packet(payloads: &[Payload]) -> Option<&[u8]> {
    payloads
        .iter()
        .find_map(|payload| if let Payload::Eap(packet) = payload { Some(&packet[..]) } else { None })
}
fn find_configuration(payloads: &[Payload]) -> Option<&ConfigurationPayload> {
    payloads.iter().find_map(|payload| if let Payload::Configuration(c) = payload { Some(c) } else { None })
}
