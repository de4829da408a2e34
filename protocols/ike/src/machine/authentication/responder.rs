//! IKE_AUTH at a responder.

use super::{
    AuthenticationState, EapConversation, PendingAuthJob, PresentedTicket, ResponderAuthentication,
    find_auth_payload, find_configuration, find_eap_packet, is_safe_for_eap_only, requests_ocsp,
};
use crate::code::{AuthMethod, CfgType, IdType, NotifyType};
use crate::machine::base::IkeSaBase;
use crate::machine::child::{self, ChildSaRequest};
use crate::machine::config::{ChildlessPolicy, IkeConnectionConfig, LocalAuth, RemoteAuth};
use crate::machine::context::IkeEndpointContext;
use crate::machine::established::{EstablishedSa, EstablishedState, IkeSaTask, KeyExchangeSecrets, SaEffect};
use crate::machine::event::{CertificateName, EapAnswer, EndReason, IkeEvent};
use crate::machine::guesses::IdentityClaim;
use crate::machine::ticket_requests::answer_ticket_request;
use crate::message::{find_payload, has_notify};
use crate::payload::{
    ConfigurationAttribute, ConfigurationPayload, Identification, NotifyPayload, Payload, Proposal,
};
use crate::suite::choose_proposal;
use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;
use usher_core::{CommandError, DatagramPath, Duration, WallTime};
use usher_eap::authenticator::{AaaReply, EapAuthenticator, EapConversationOutcome};

/// Most octets of an EAP packet of an unauthenticated initiator. A fragmented message could hold far more.
const MAX_EAP_OCTETS: usize = 4096;
/// Most octets of memory that an unauthenticated initiator's request may retain.
const MAX_RETAINED_OCTETS: usize = 8192;

/// The next step of a responder that authenticates.
#[derive(Debug)]
pub(in crate::machine) enum ResponderStep {
    /// Respond to the IKE_AUTH request.
    Respond(Vec<Payload>),
    /// The response waits for a job, an AAA server or an address.
    Wait,
    /// Both sides have authenticated.
    Establish,
}

/// The reason why a responder's IKE_SA ends.
#[derive(Debug)]
pub(in crate::machine) enum ResponderFailure {
    /// The request violates the protocol.
    InvalidSyntax,
    /// The initiator failed to authenticate, or this side cannot authenticate.
    Rejected(EndReason),
    /// EAP has rejected the initiator. EAP-Failure is among these last payloads.
    EapRejected(Vec<Payload>),
}

pub(in crate::machine) type ResponderResult = Result<ResponderStep, ResponderFailure>;

use ResponderFailure::{EapRejected, InvalidSyntax, Rejected};

const NO_EAP_PACKET: &str = "no EAP packet is pending";
const UNAUTHENTICATED: ResponderFailure = Rejected(EndReason::AuthenticationFailed);

impl ResponderAuthentication {
    /// Returns the state after the first request, by this proposal or this ticket.
    pub(in crate::machine) fn new(
        common: AuthenticationState,
        cx: &IkeEndpointContext,
        chosen: Option<Proposal>,
        ticket: Option<PresentedTicket>,
    ) -> Self {
        Self {
            common,
            half_open: 0,
            deadline: cx.now + cx.config.proof_timeout,
            eap: EapConversation::None,
            is_peer_verified: false,
            has_sent_proof: false,
            chosen,
            ticket,
            child: None,
            configuration: None,
            initial_contact: false,
            mobike: false,
            wants_ticket: false,
            assigned_attributes: None,
            key: None,
            identity: None,
        }
    }

    /// Handles an IKE_AUTH request.
    pub(in crate::machine) fn handle_auth_request(
        &mut self,
        sa: &mut IkeSaBase,
        cx: &mut IkeEndpointContext,
        payloads: &[Payload],
    ) -> ResponderResult {
        if !self.common.additional.is_empty() {
            // RFC 9370, 2.2.2: agreed key exchanges may not be left out.
            return Err(InvalidSyntax);
        }
        match &mut self.eap {
            EapConversation::None if sa.remote.is_none() => self.handle_first_request(sa, cx, payloads),
            EapConversation::None => Err(InvalidSyntax),
            EapConversation::Running(authenticator) => {
                let packet = find_eap_packet(payloads).filter(|packet| packet.len() <= MAX_EAP_OCTETS);
                // EAP discards an invalid packet silently, but IKE has to respond to every request.
                if !authenticator.handle_packet(cx.now, packet.ok_or(InvalidSyntax)?) {
                    return Err(InvalidSyntax);
                }
                self.go_on(sa, cx)
            }
            EapConversation::Done(msk) => {
                let proof = find_auth_payload(payloads).ok_or(InvalidSyntax)?;
                if !self.common.is_eap_proof_valid(sa, proof, msk.as_ref()) {
                    return Err(UNAUTHENTICATED);
                }
                self.common.proof = self.common.eap_auth_payload(sa, msk.as_ref());
                (self.is_peer_verified, self.has_sent_proof) = (true, false);
                self.go_on(sa, cx)
            }
        }
    }

    fn handle_first_request(
        &mut self,
        sa: &mut IkeSaBase,
        cx: &mut IkeEndpointContext,
        payloads: &[Payload],
    ) -> ResponderResult {
        let id = find_payload(payloads, |payload| match payload {
            Payload::IdentificationInitiator(id) => Some(id.clone()),
            _ => None,
        });
        let wanted = find_payload(payloads, |payload| match payload {
            Payload::IdentificationResponder(id) => Some(id),
            _ => None,
        });
        let id = id.ok_or(InvalidSyntax)?;
        if is_too_much(payloads) {
            return Err(InvalidSyntax);
        }
        let proof = find_auth_payload(payloads);
        sa.remote = Some(id.clone());
        let connection = match &self.common.resumed {
            // The peer's identities must be those of the ticket (RFC 5723 §4.3.3).
            Some(both) => {
                let same = both.0 == id && wanted.is_none_or(|wanted| *wanted == both.1) && proof.is_some();
                (same && sa.connection.is_for(sa.proven_peer_address().ip())).then(|| sa.connection.clone())
            }
            None => {
                let eap_only = has_notify(payloads, NotifyType::EAP_ONLY_AUTHENTICATION);
                self.find_matching_connection(sa, cx, &id, wanted, proof, eap_only)
            }
        };
        let connection = connection.ok_or(UNAUTHENTICATED)?;
        sa.connection = connection.clone();
        self.child = ChildSaRequest::from_payloads(payloads).map_err(|_| InvalidSyntax)?;
        // RFC 6023, 3: a childless IKE_SA only if the responder supports it.
        if self.child.is_none() && connection.childless == ChildlessPolicy::Never {
            return Err(InvalidSyntax);
        }
        self.common.ocsp_wanted = requests_ocsp(payloads);
        self.configuration = find_configuration(payloads).filter(|c| c.kind == CfgType::CFG_REQUEST).cloned();
        self.initial_contact = has_notify(payloads, NotifyType::INITIAL_CONTACT);
        self.mobike = has_notify(payloads, NotifyType::MOBIKE_SUPPORTED);
        self.wants_ticket = has_notify(payloads, NotifyType::TICKET_REQUEST);
        match proof {
            Some(proof) => self.handle_first_proof(sa, cx, &id, payloads, proof),
            None => {
                self.common.eap_only = matches!(connection.local_auth, LocalAuth::EapOnly);
                self.eap = EapConversation::Running(start_eap(&connection, cx, &id));
                self.go_on(sa, cx)
            }
        }
    }

    /// Verifies the proof of an initiator that does not use EAP.
    fn handle_first_proof(
        &mut self,
        sa: &mut IkeSaBase,
        cx: &mut IkeEndpointContext,
        id: &Identification,
        payloads: &[Payload],
        proof: &Payload,
    ) -> ResponderResult {
        let connection = sa.connection.clone();
        let resumed = self.common.resumed.is_some();
        // A shared key can be guessed, so failures count toward a lockout.
        let guess = matches!(connection.remote_auth, RemoteAuth::Psk(_)) && !resumed;
        // The source of this request is not used: an attacker may claim a NAT and forge another host's address.
        let claim = IdentityClaim { connection: &connection.name, identity: id, from: sa.proved_address };
        if guess && !cx.proof_lockouts.allows_proof_check(cx.now, &cx.config, claim) {
            cx.counters.proofs_locked_out += 1;
            return Err(UNAUTHENTICATED);
        }
        let verified = self.common.verify_peer_proof(sa, cx, payloads, proof);
        match verified.filter(|_| guess) {
            Some(true) => cx.proof_lockouts.record_success(cx.now, claim),
            Some(false) if cx.proof_lockouts.record_failure(cx.now, &cx.config, claim) => {
                cx.outputs.push_event(IkeEvent::TooManyFailedProofs { connection: connection.name.clone() });
            }
            _ => {}
        }
        match verified {
            Some(true) if resumed && !self.redeem_ticket(sa, cx) => Err(UNAUTHENTICATED),
            Some(true) => {
                self.is_peer_verified = true;
                self.go_on(sa, cx)
            }
            Some(false) => Err(UNAUTHENTICATED),
            None => Ok(ResponderStep::Wait),
        }
    }

    /// Redeems the ticket of a resumed IKE_SA (RFC 5723 §4.3.1). False if it has expired, was used by another, or its
    /// state has changed since the first message.
    fn redeem_ticket(&self, sa: &IkeSaBase, cx: &mut IkeEndpointContext) -> bool {
        let Some(ticket) = self.ticket else { return false };
        let redeemed = cx.tickets.redeem(cx.wall_time(), &cx.config, (sa.era, ticket.id, ticket.expires));
        cx.counters.tickets_refused += u64::from(!redeemed);
        redeemed
    }

    /// Returns the first connection that matches the initiator's identity, address, requested responder,
    /// authentication method and chosen proposal.
    fn find_matching_connection(
        &self,
        sa: &IkeSaBase,
        cx: &IkeEndpointContext,
        id: &Identification,
        wanted: Option<&Identification>,
        proof: Option<&Payload>,
        eap_only: bool,
    ) -> Option<Arc<IkeConnectionConfig>> {
        let chosen = self.chosen.as_ref()?;
        let place = sa.proven_peer_address().ip();
        let shared = matches!(
            proof,
            Some(Payload::Authentication { method: AuthMethod::SHARED_KEY_MESSAGE_INTEGRITY_CODE, .. })
        );
        let fits = |connection: &&Arc<IkeConnectionConfig>| {
            let how = match (&connection.remote_auth, proof.is_some()) {
                (RemoteAuth::Psk(_), true) => shared,
                (RemoteAuth::Certificate { .. }, true) => !shared,
                (RemoteAuth::Eap { .. }, false) => {
                    eap_only || !matches!(connection.local_auth, LocalAuth::EapOnly)
                }
                _ => false,
            };
            how && connection.remote.as_ref().is_none_or(|remote| remote == id)
                && connection.is_for(place)
                && wanted.is_none_or(|wanted| *wanted == connection.local)
                && choose_proposal(&connection.proposals, core::slice::from_ref(chosen)).is_some()
        };
        cx.connections.iter().find(fits).cloned()
    }

    /// Does the next step: this side's proof, the AAA server's reply, an address, the response.
    fn go_on(&mut self, sa: &mut IkeSaBase, cx: &mut IkeEndpointContext) -> ResponderResult {
        let needs_proof = self.common.proof.is_none() && !self.has_sent_proof && !self.common.eap_only;
        if needs_proof && !matches!(self.eap, EapConversation::Done(_)) {
            if !self.common.create_own_proof(sa, cx) {
                return Err(Rejected(EndReason::Unsupported));
            }
            if self.common.waits != PendingAuthJob::Idle {
                return Ok(ResponderStep::Wait);
            }
        }
        if let EapConversation::Running(authenticator) = &mut self.eap {
            let Some(packet) = authenticator.poll_aaa().map(<[u8]>::to_vec) else {
                return self.send_eap_packet(sa);
            };
            self.common.waits = PendingAuthJob::Eap;
            let identity = sa.remote.clone().unwrap_or_else(|| sa.connection.local.clone());
            let (connection, remote) = (sa.connection.name.clone(), sa.proven_peer_address());
            cx.outputs.push_event(IkeEvent::Eap { sa: sa.id, identity, connection, remote, packet });
            return Ok(ResponderStep::Wait);
        }
        if !self.is_peer_verified {
            return Err(UNAUTHENTICATED);
        }
        if let (true, Some(asked), None) =
            (sa.connection.address, &self.configuration, &self.assigned_attributes)
        {
            let attributes = asked.attributes.clone();
            self.common.waits = PendingAuthJob::Address;
            let identity = sa.peer_identity();
            let (connection, remote) = (sa.connection.name.clone(), sa.proven_peer_address());
            cx.outputs.push_event(IkeEvent::AddressRequested {
                sa: sa.id,
                identity,
                connection,
                remote,
                attributes,
            });
            return Ok(ResponderStep::Wait);
        }
        Ok(ResponderStep::Establish)
    }

    /// Sends an EAP packet, the first with this side's proof.
    fn send_eap_packet(&mut self, sa: &mut IkeSaBase) -> ResponderResult {
        let EapConversation::Running(authenticator) = &mut self.eap else {
            return Err(Rejected(EndReason::Helper));
        };
        let packet = authenticator.poll_transmit().map(<[u8]>::to_vec);
        let end = authenticator.poll_end();
        let mut payloads = Vec::new();
        if !core::mem::replace(&mut self.has_sent_proof, true) {
            payloads.push(sa.own_identification());
            if let Some(proof) = self.common.proof.take() {
                payloads.extend(self.common.certificate_payloads(sa));
                payloads.push(proof);
            }
        }
        let eap_only = self.common.eap_only;
        match (packet, end) {
            (Some(packet), None) if eap_only && !is_safe_for_eap_only(&packet) => Err(UNAUTHENTICATED),
            (Some(packet), None) => {
                payloads.push(Payload::Eap(packet));
                Ok(ResponderStep::Respond(payloads))
            }
            (Some(packet), Some(EapConversationOutcome::Success)) => {
                payloads.push(Payload::Eap(packet));
                let (key, identity) = (self.key.take(), self.identity.take());
                // RFC 5998, 3: EAP alone only by a method that yields a key.
                if key.is_none() && eap_only {
                    return Err(UNAUTHENTICATED);
                }
                self.eap = EapConversation::Done(key);
                // From now on, the EAP identity counts, not the claimed one (RFC 7296 §2.16). The connection has to
                // match it.
                if sa.connection.remote.is_some() && sa.connection.remote != identity {
                    return Err(UNAUTHENTICATED);
                }
                sa.authenticated = identity;
                Ok(ResponderStep::Respond(payloads))
            }
            (packet, Some(EapConversationOutcome::Failure)) => {
                // RFC 7296, 2.16: EAP-Failure is sent before the IKE_SA ends.
                payloads.extend(packet.map(Payload::Eap));
                Err(EapRejected(payloads))
            }
            _ => Err(Rejected(EndReason::Helper)),
        }
    }

    /// Applies the reply to [`IkeEvent::Eap`].
    ///
    /// # Errors
    /// No EAP packet is pending.
    pub(in crate::machine) fn apply_eap_answer(
        &mut self,
        sa: &mut IkeSaBase,
        cx: &IkeEndpointContext,
        answer: EapAnswer,
    ) -> Result<ResponderResult, CommandError> {
        self.common.take_job(|job| job == PendingAuthJob::Eap, NO_EAP_PACKET)?;
        let EapConversation::Running(authenticator) = &mut self.eap else {
            return Err(CommandError::WrongState(NO_EAP_PACKET));
        };
        let answer = match &answer {
            EapAnswer::Continue(packet) => AaaReply::Request(packet),
            EapAnswer::Accept { packet, msk, identity } => {
                self.key.clone_from(msk);
                self.identity = Some(identity.clone());
                AaaReply::Success(packet)
            }
            EapAnswer::Reject { packet } => AaaReply::Failure(packet),
            EapAnswer::Unanswered => AaaReply::Timeout,
        };
        authenticator.handle_aaa_reply(cx.now, answer);
        Ok(self.send_eap_packet(sa))
    }

    /// Applies the reply to [`IkeEvent::AddressRequested`].
    ///
    /// # Errors
    /// No address request is pending.
    pub(in crate::machine) fn apply_address(
        &mut self,
        sa: &mut IkeSaBase,
        cx: &mut IkeEndpointContext,
        attributes: Vec<ConfigurationAttribute>,
    ) -> Result<ResponderResult, CommandError> {
        self.common.take_job(|job| job == PendingAuthJob::Address, "no address request is pending")?;
        self.assigned_attributes = Some(attributes);
        Ok(self.go_on(sa, cx))
    }

    /// Applies the result of a signature job.
    ///
    /// # Errors
    /// No signature is pending.
    pub(in crate::machine) fn apply_signature(
        &mut self,
        sa: &mut IkeSaBase,
        cx: &mut IkeEndpointContext,
        signature: Option<Vec<u8>>,
        ocsp: Option<Vec<u8>>,
    ) -> Result<ResponderResult, CommandError> {
        let signed = self.common.apply_signature(signature, ocsp)?;
        Ok(if signed { self.go_on(sa, cx) } else { Err(Rejected(EndReason::Helper)) })
    }

    /// Applies the result of a verification job.
    ///
    /// # Errors
    /// No verification is pending.
    pub(in crate::machine) fn apply_verification(
        &mut self,
        sa: &mut IkeSaBase,
        cx: &mut IkeEndpointContext,
        until: Option<WallTime>,
        certificates: Vec<CertificateName>,
    ) -> Result<ResponderResult, CommandError> {
        self.common.take_verification()?;
        self.is_peer_verified = until.is_some();
        (sa.proof_until, sa.certificates) = (until, certificates.into());
        Ok(if self.is_peer_verified { self.go_on(sa, cx) } else { Err(UNAUTHENTICATED) })
    }

    /// Establishes the IKE_SA and installs its CHILD_SA. Returns the payloads of the last response.
    pub(in crate::machine) fn establish(
        mut self,
        sa: &mut IkeSaBase,
        cx: &mut IkeEndpointContext,
        effects: &mut Vec<SaEffect>,
    ) -> (EstablishedState, Vec<Payload>) {
        effects.push(SaEffect::NotHalfOpen { number: self.half_open, unproved: false });
        effects.push(SaEffect::Established {
            initial_contact: self.initial_contact,
            resumes: self.ticket.map(|ticket| ticket.spi),
        });
        let mut payloads = Vec::new();
        if matches!(self.eap, EapConversation::None) {
            let resumed = self.common.resumed.is_some();
            payloads.push(sa.own_identification());
            payloads.extend(self.common.certificate_payloads(sa).into_iter().filter(|_| !resumed));
        }
        payloads.extend(self.common.proof.take());
        let mut state = EstablishedState::new(sa, cx);
        state.mobike = self.mobike && sa.connection.mobike;
        if sa.path.remote.ip() != sa.proved_address {
            // A NAT has changed the initiator's address since the IKE_SA began. The check ends the IKE_SA if the
            // initiator does not answer at the new address.
            state.plan_task(if state.mobike { IkeSaTask::Check } else { IkeSaTask::Probe });
        }
        cx.outputs.push_event(IkeEvent::Established {
            sa: sa.id,
            connection: sa.connection.name.clone(),
            remote: sa.peer_identity(),
            spis: sa.spis,
            path: DatagramPath { remote: sa.proven_peer_address(), ..sa.path },
        });
        let given = self.assigned_attributes.take();
        let addresses = given.iter().flatten().filter_map(ConfigurationAttribute::internal_address);
        state.assigned_addresses = addresses.collect();
        let mut established = EstablishedSa { base: sa, state: &mut state, effects };
        match given {
            // RFC 7296, 2.19, 3.15.4: without an assigned address, the requested CHILD_SA is useless.
            Some(_) if established.state.assigned_addresses.is_empty() => {
                payloads.push(Payload::Notify(NotifyPayload::new(NotifyType::INTERNAL_ADDRESS_FAILURE)));
            }
            given => {
                // RFC 7296, 2.19: the assigned addresses come before the SA payload.
                payloads.extend(given.map(|attributes| {
                    Payload::Configuration(ConfigurationPayload { kind: CfgType::CFG_REPLY, attributes })
                }));
                if let Some(child) = self.child.take() {
                    // RFC 7296, 2.21.2: a failed CHILD_SA leaves the IKE_SA.
                    let granted = self.grant_first_child(&mut established, cx, child);
                    payloads.extend(
                        granted.unwrap_or_else(|kind| alloc::vec![Payload::Notify(NotifyPayload::new(kind))]),
                    );
                }
            }
        }
        if established.state.mobike {
            payloads.push(Payload::Notify(NotifyPayload::new(NotifyType::MOBIKE_SUPPORTED)));
        }
        if self.wants_ticket {
            // RFC 5723, 4.1: the last response has the ticket or TICKET_NACK.
            payloads.extend(answer_ticket_request(&mut established, cx));
        }
        (state, payloads)
    }

    fn grant_first_child(
        &self,
        sa: &mut EstablishedSa<'_>,
        cx: &mut IkeEndpointContext,
        child: ChildSaRequest,
    ) -> Result<Vec<Payload>, NotifyType> {
        let proposals = child.proposals.iter().map(Proposal::without_key_exchange).collect();
        let asked = ChildSaRequest { proposals, ..child };
        let selected = child::select_child(sa, cx, &asked, true)?;
        let (secrets, nonces) = (&KeyExchangeSecrets::default(), &self.common.nonces);
        child::grant_child(sa, cx, selected, asked.transport, secrets, nonces, None)
    }
}

/// Starts the EAP conversation with an initiator of this identity.
fn start_eap(
    connection: &IkeConnectionConfig,
    cx: &IkeEndpointContext,
    id: &Identification,
) -> Box<EapAuthenticator> {
    let patience = Duration::from_secs(3600);
    // As its IKE identity, Windows sends an address or a subject name, which an AAA server cannot use. So EAP asks for
    // the identity.
    let ask = id.as_text().is_none() && id.kind != IdType::ID_KEY_ID
        || matches!(connection.remote_auth, RemoteAuth::Eap { request_identity: true });
    // IKE retransmits these messages, so EAP does not.
    Box::new(if ask {
        EapAuthenticator::new(1, None, patience, cx.now)
    } else {
        EapAuthenticator::with_identity(&id.data, 1, None, patience, cx.now)
    })
}

/// True if an initiator's request needs more memory than an unauthenticated peer may use. Certificates do not count:
/// they are not retained.
fn is_too_much(payloads: &[Payload]) -> bool {
    let is_kept = |payload: &&Payload| {
        matches!(
            payload,
            Payload::IdentificationInitiator(_)
                | Payload::SecurityAssociation(_)
                | Payload::TrafficSelectorsInitiator(_)
                | Payload::TrafficSelectorsResponder(_)
                | Payload::Configuration(_)
        )
    };
    payloads.iter().filter(is_kept).map(Payload::memory_octets).sum::<usize>() > MAX_RETAINED_OCTETS
}
