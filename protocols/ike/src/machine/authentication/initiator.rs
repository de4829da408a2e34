//! IKE_AUTH at an initiator.

use super::{
    AuthenticationState, EapConversation, InitiatorAuthentication, InitiatorWishes, PendingAuthJob,
    certificate_requests, find_auth_payload, find_configuration, find_eap_packet, is_safe_for_eap_only,
};
use crate::code::{CfgType, ConfigurationType, ExchangeType, NotifyType};
use crate::machine::base::IkeSaBase;
use crate::machine::child::{self, RequestedChildSa};
use crate::machine::config::{ChildlessPolicy, IpsecMode, LocalAuth, RemoteAuth};
use crate::machine::context::IkeEndpointContext;
use crate::machine::established::{EstablishedSa, EstablishedState, IkeSaTask, KeyExchangeSecrets, SaEffect};
use crate::machine::event::{CertificateName, EndReason, IkeEvent};
use crate::machine::ticket_requests::store_ticket;
use crate::message::{find_error_notify, find_payload, has_notify};
use crate::payload::{ConfigurationAttribute, ConfigurationPayload, NotifyPayload, Payload, Proposal};
use alloc::boxed::Box;
use alloc::vec::Vec;
use usher_core::address::is_host_address;
use usher_core::{CommandError, Duration, Instant, SecureRng, WallTime};
use usher_crypto::SecretValue;
use usher_eap::peer::{EapPeer, EapPeerConfig, EapPeerEvent};

/// The longest silence of an EAP server between two requests. Retransmission ends sooner.
const EAP_TIMEOUT: Duration = Duration::from_secs(600);

/// The next step of an initiator that authenticates.
#[derive(Debug)]
pub(in crate::machine) enum InitiatorStep {
    /// Send a request.
    Request(ExchangeType, Vec<Payload>),
    /// Await the result of a job.
    Wait,
    /// Both sides have authenticated. The last response has these payloads.
    Establish(Vec<Payload>),
}

/// The reason why an initiator's IKE_SA ends.
#[derive(Clone, Copy, Debug)]
pub(in crate::machine) enum InitiatorFailure {
    /// It ends without a message.
    End(EndReason),
    /// The responder failed to authenticate. This is reported to it once (RFC 7296 §2.21.2).
    Responder(EndReason),
}

pub(in crate::machine) type InitiatorResult = Result<InitiatorStep, InitiatorFailure>;

use InitiatorFailure::{End, Responder};

/// A state that the steps before rule out: no keys, or no EAP conversation.
const NO_CONVERSATION: InitiatorFailure = End(EndReason::Protocol);

impl InitiatorAuthentication {
    pub(in crate::machine) fn new(common: AuthenticationState, wishes: InitiatorWishes) -> Self {
        Self {
            common,
            wishes,
            childless: false,
            eap: EapConversation::None,
            key_exchange: None,
            child_spi: 0,
            response: Vec::new(),
        }
    }
    /// Returns the time at which the EAP server has been silent for too long.
    pub(in crate::machine) fn eap_timeout(&self) -> Option<Instant> {
        match &self.eap {
            EapConversation::Running(peer) => peer.poll_timeout(),
            _ => None,
        }
    }

    /// Begins authentication: all keys are there.
    pub(in crate::machine) fn start_authentication(
        &mut self,
        sa: &IkeSaBase,
        cx: &mut IkeEndpointContext,
    ) -> InitiatorResult {
        if !self.common.create_own_proof(sa, cx) {
            return Err(End(EndReason::Unsupported));
        }
        match self.common.waits {
            PendingAuthJob::Idle => self.build_first_request(sa, cx),
            _ => Ok(InitiatorStep::Wait),
        }
    }

    /// Returns the first IKE_AUTH request, with the proof, or without one for EAP.
    fn build_first_request(&mut self, sa: &IkeSaBase, cx: &mut IkeEndpointContext) -> InitiatorResult {
        let connection = &sa.connection;
        let without_child = match (connection.childless, self.childless) {
            (ChildlessPolicy::Force, false) => return Err(End(EndReason::Unsupported)),
            (ChildlessPolicy::Force, true) => true,
            _ => connection.children.is_empty(),
        };
        // RFC 6023, 3: a childless IKE_SA only if the responder supports it.
        if without_child && !self.childless {
            return Err(End(EndReason::Unsupported));
        }
        let resumed = self.common.resumed.is_some();
        let mut payloads = alloc::vec![sa.own_identification()];
        // A ticket replaces the certificates (RFC 5723 §4.3.3).
        payloads.extend(self.common.certificate_payloads(sa).into_iter().filter(|_| !resumed));
        if self.wishes.initial_contact {
            payloads.push(Payload::Notify(NotifyPayload::new(NotifyType::INITIAL_CONTACT)));
        }
        if matches!(connection.remote_auth, RemoteAuth::Certificate { .. }) && !resumed {
            payloads.extend(certificate_requests(&cx.config, connection));
        }
        payloads.extend(connection.remote.clone().map(Payload::IdentificationResponder));
        payloads.extend(self.common.proof.take());
        if matches!(connection.remote_auth, RemoteAuth::EapOnly) && !resumed {
            payloads.push(Payload::Notify(NotifyPayload::new(NotifyType::EAP_ONLY_AUTHENTICATION)));
        }
        if connection.address {
            payloads.push(self.address_request());
        }
        if connection.mobike {
            payloads.push(Payload::Notify(NotifyPayload::new(NotifyType::MOBIKE_SUPPORTED)));
        }
        if cx.config.tickets.is_some() {
            payloads.push(Payload::Notify(NotifyPayload::new(NotifyType::TICKET_REQUEST)));
        }
        if let (false, Some(first)) = (without_child, connection.children.first()) {
            self.child_spi = child::new_spi(cx, None);
            if first.mode == IpsecMode::Transport {
                payloads.push(Payload::Notify(NotifyPayload::new(NotifyType::USE_TRANSPORT_MODE)));
            }
            let proposals: Vec<_> = first.proposals.iter().map(Proposal::without_key_exchange).collect();
            payloads.extend(child::build_child_offer(sa, &[], first, &proposals, self.child_spi));
        }
        Ok(InitiatorStep::Request(ExchangeType::IKE_AUTH, payloads))
    }

    /// Returns the request for addresses and other attributes.
    fn address_request(&self) -> Payload {
        let wishes = [
            ConfigurationType::INTERNAL_IP4_ADDRESS,
            ConfigurationType::INTERNAL_IP6_ADDRESS,
            ConfigurationType::INTERNAL_IP4_DNS,
            ConfigurationType::INTERNAL_IP6_DNS,
            ConfigurationType::INTERNAL_DNS_DOMAIN,
        ];
        let before = self.wishes.addresses.iter().map(|address| {
            ConfigurationAttribute::from_address(*address, if address.is_ipv4() { 32 } else { 128 })
        });
        let before: Vec<_> = before.collect();
        let wish = |kind| {
            let same = before.iter().find(|one| one.kind == kind);
            same.cloned().unwrap_or(ConfigurationAttribute::requested_attribute(kind))
        };
        let attributes = wishes.map(wish).into();
        Payload::Configuration(ConfigurationPayload { kind: CfgType::CFG_REQUEST, attributes })
    }

    /// Handles the response to an IKE_AUTH request.
    pub(in crate::machine) fn handle_auth_response(
        &mut self,
        sa: &mut IkeSaBase,
        cx: &mut IkeEndpointContext,
        payloads: Vec<Payload>,
    ) -> InitiatorResult {
        let proof = find_auth_payload(&payloads);
        if let Some(notify) = find_error_notify(&payloads).filter(|_| proof.is_none()) {
            return Err(End(match notify.kind {
                NotifyType::NO_PROPOSAL_CHOSEN => EndReason::NoProposal,
                _ => EndReason::Refused,
            }));
        }
        match &self.eap {
            EapConversation::None => self.handle_first_response(sa, cx, payloads),
            EapConversation::Running(_) => match find_eap_packet(&payloads) {
                Some(packet) => self.continue_eap(sa, cx, packet),
                None => Err(Responder(EndReason::Protocol)),
            },
            EapConversation::Done(msk) => match proof {
                Some(proof) if self.common.is_eap_proof_valid(sa, proof, msk.as_ref()) => {
                    Ok(InitiatorStep::Establish(payloads))
                }
                _ => Err(Responder(EndReason::AuthenticationFailed)),
            },
        }
    }

    fn handle_first_response(
        &mut self,
        sa: &mut IkeSaBase,
        cx: &mut IkeEndpointContext,
        payloads: Vec<Payload>,
    ) -> InitiatorResult {
        let id = find_payload(&payloads, |payload| match payload {
            Payload::IdentificationResponder(id) => Some(id.clone()),
            _ => None,
        });
        let id = id.ok_or(Responder(EndReason::Protocol))?;
        let is_other = self.common.resumed.as_ref().is_some_and(|both| both.1 != id)
            || sa.connection.remote.as_ref().is_some_and(|wanted| *wanted != id);
        if is_other {
            return Err(Responder(EndReason::AuthenticationFailed));
        }
        sa.remote = Some(id);
        let Some(proof) = find_auth_payload(&payloads) else {
            if !matches!(
                (&sa.connection.local_auth, &sa.connection.remote_auth),
                (LocalAuth::Eap { .. }, RemoteAuth::EapOnly)
            ) {
                return Err(Responder(EndReason::AuthenticationFailed));
            }
            self.common.eap_only = true;
            return self.go_on(sa, cx, payloads);
        };
        match self.common.verify_peer_proof(sa, cx, &payloads, proof) {
            Some(true) => self.go_on(sa, cx, payloads),
            Some(false) => Err(Responder(EndReason::AuthenticationFailed)),
            None => {
                self.response = payloads;
                Ok(InitiatorStep::Wait)
            }
        }
    }

    /// Applies the result of a signature job.
    ///
    /// # Errors
    /// No signature is pending.
    pub(in crate::machine) fn apply_signature(
        &mut self,
        sa: &IkeSaBase,
        cx: &mut IkeEndpointContext,
        signature: Option<Vec<u8>>,
        ocsp: Option<Vec<u8>>,
    ) -> Result<InitiatorResult, CommandError> {
        let signed = self.common.apply_signature(signature, ocsp)?;
        Ok(if signed { self.build_first_request(sa, cx) } else { Err(End(EndReason::Helper)) })
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
    ) -> Result<InitiatorResult, CommandError> {
        self.common.take_verification()?;
        let holds = until.is_some();
        (sa.proof_until, sa.certificates) = (until, certificates.into());
        if !holds {
            return Ok(Err(Responder(EndReason::AuthenticationFailed)));
        }
        let payloads = core::mem::take(&mut self.response);
        Ok(self.go_on(sa, cx, payloads))
    }

    /// Continues after the responder's proof: by EAP, if this side authenticates by it.
    fn go_on(
        &mut self,
        sa: &IkeSaBase,
        cx: &mut IkeEndpointContext,
        payloads: Vec<Payload>,
    ) -> InitiatorResult {
        let (LocalAuth::Eap { identity, methods }, None) = (&sa.connection.local_auth, &self.common.resumed)
        else {
            return Ok(InitiatorStep::Establish(payloads));
        };
        let packet = find_eap_packet(&payloads).ok_or(Responder(EndReason::Protocol))?;
        let config = EapPeerConfig {
            identity: identity.clone(),
            methods: methods.clone(),
            timeout: EAP_TIMEOUT,
            wall: cx.wall_time(),
        };
        let rng = SecureRng::from_seed(cx.random_octets());
        self.eap = EapConversation::Running(Box::new(EapPeer::new(config, rng, cx.now)));
        self.continue_eap(sa, cx, packet)
    }

    fn continue_eap(
        &mut self,
        sa: &IkeSaBase,
        cx: &mut IkeEndpointContext,
        packet: &[u8],
    ) -> InitiatorResult {
        let eap_only = self.common.eap_only;
        if eap_only && !is_safe_for_eap_only(packet) {
            // The responder has not authenticated yet. With this method, a man in the middle would learn data for a
            // dictionary attack (RFC 5998 §3).
            return Err(Responder(EndReason::AuthenticationFailed));
        }
        let EapConversation::Running(peer) = &mut self.eap else { return Err(NO_CONVERSATION) };
        peer.handle_packet(cx.now, packet);
        while let Some(done) = peer.poll_work() {
            cx.outputs.push_work(done);
        }
        let mut out = Vec::new();
        if peer.poll_transmit(&mut out) {
            return Ok(InitiatorStep::Request(ExchangeType::IKE_AUTH, Vec::from([Payload::Eap(out)])));
        }
        match peer.poll_event() {
            Some(EapPeerEvent::Success { keys }) => {
                if keys.is_none() && eap_only {
                    // Without a key from EAP, nothing authenticates the responder (RFC 5998 §3).
                    return Err(Responder(EndReason::AuthenticationFailed));
                }
                let msk = keys.map(|keys| SecretValue::from(&keys.msk[..]));
                let proof = self.common.eap_auth_payload(sa, msk.as_ref()).ok_or(NO_CONVERSATION)?;
                self.eap = EapConversation::Done(msk);
                Ok(InitiatorStep::Request(ExchangeType::IKE_AUTH, Vec::from([proof])))
            }
            Some(_) => Err(End(EndReason::Refused)),
            // This side's EAP has discarded the packet and has no response, so the conversation cannot continue.
            None => Err(Responder(EndReason::Protocol)),
        }
    }

    /// Establishes the IKE_SA: both sides have authenticated.
    pub(in crate::machine) fn establish(
        self,
        sa: &mut IkeSaBase,
        cx: &mut IkeEndpointContext,
        effects: &mut Vec<SaEffect>,
        payloads: &[Payload],
    ) -> EstablishedState {
        let initial_contact = self.wishes.initial_contact;
        effects.push(SaEffect::Established { initial_contact, resumes: None });
        let mut state = EstablishedState::new(sa, cx);
        cx.counters.resumed += u64::from(self.common.resumed.is_some());
        store_ticket(sa, cx, payloads);
        state.mobike = sa.connection.mobike && has_notify(payloads, NotifyType::MOBIKE_SUPPORTED);
        cx.outputs.push_event(IkeEvent::Established {
            sa: sa.id,
            connection: sa.connection.name.clone(),
            remote: sa.peer_identity(),
            spis: sa.spis,
            path: sa.path,
        });
        let given = find_configuration(payloads).filter(|c| c.kind == CfgType::CFG_REPLY);
        let given = given.map(|given| {
            let of_hosts = given.attributes.iter().filter(|given| is_of_a_host(given));
            of_hosts.cloned().collect::<Vec<_>>()
        });
        let attributes = given.iter().flatten();
        let addresses = attributes.filter_map(ConfigurationAttribute::internal_address).collect();
        if let Some(attributes) = given {
            cx.outputs.push_event(IkeEvent::Configured { sa: sa.id, attributes });
        }
        if self.child_spi != 0 {
            let (secrets, nonces) = (&KeyExchangeSecrets::default(), &self.common.nonces);
            let made = RequestedChildSa {
                config: 0,
                spi: self.child_spi,
                secrets,
                nonces,
                replaces: None,
                first: true,
            };
            let established = &mut EstablishedSa { base: sa, state: &mut state, effects };
            child::install_child_from_response(established, cx, &made, payloads);
            // From now on, this side's traffic selectors use its assigned address.
            state.assigned_addresses = addresses;
        } else if sa.connection.childless == ChildlessPolicy::Force && !sa.connection.children.is_empty() {
            // If the connection forces IKE_AUTH without a CHILD_SA, the first one is requested now. The others follow
            // once the IKE_SA is established.
            state.plan_task(IkeSaTask::CreateChild(0));
        }
        state
    }
}

/// True unless the responder assigns an address that no host can have. Such an address is ignored.
fn is_of_a_host(given: &ConfigurationAttribute) -> bool {
    given.internal_address().is_none_or(is_host_address)
}
