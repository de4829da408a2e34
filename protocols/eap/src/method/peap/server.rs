//! Phase 2 of PEAP's server: the identity, a method, the result.

use super::super::tunnel::{
    InnerPhaseResult, MAX_NAME, TunnelContext, TunnelServerPhase, inner_method_failure_reason, server_offers,
};
use super::super::{InnerMethod, ServerMethodFailure, TlsSessionUser, UserQuery, UserQueryAnswer};
use super::binding::{CryptobindingPolicy, CryptobindingSubtype, PeapCompoundKeys};
use super::tlv::{self, ParsedPeapTlvs};
use crate::EapKeys;
use crate::packet::{self, EapCode, EapPacket, EapType, HEADER};
use crate::server::{EapServer, EapServerEvent};
use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;
use usher_core::WorkRecord;
use usher_crypto::fault::TlsFault;

#[derive(Debug)]
enum PeapServerState {
    /// No request has been sent.
    Start,
    /// The identity request is open.
    Identity,
    /// The user query to the host is pending.
    User,
    /// The resumption query to the host is pending.
    Resume,
    /// The inner method runs.
    Method(Box<EapServer>),
    /// The result has been sent; a success includes the binding's keys, if any.
    Result(Result<Option<PeapCompoundKeys>, PeapRefusal>),
}

/// The result is a failure.
#[derive(Clone, Copy, Debug)]
struct PeapRefusal;

/// Phase 2 of a run.
#[derive(Debug)]
pub(crate) struct PeapServerPhase {
    kinds: Arc<[EapType]>,
    cryptobinding: CryptobindingPolicy,
    /// The keys to derive from, once both ends have proven them.
    bound: Option<PeapCompoundKeys>,
    state: PeapServerState,
    name: Option<Vec<u8>>,
    inner: Option<InnerMethod>,
    question: Option<UserQuery>,
    /// True if the run fails regardless of the peer's proof.
    refused: bool,
    /// The reason for the failure, once known.
    fault: ServerMethodFailure,
}

impl PeapServerPhase {
    pub(crate) fn new(kinds: Arc<[EapType]>, cryptobinding: CryptobindingPolicy) -> Self {
        Self {
            kinds,
            cryptobinding,
            bound: None,
            state: PeapServerState::Start,
            name: None,
            inner: None,
            question: None,
            refused: false,
            fault: ServerMethodFailure::Rules,
        }
    }

    fn request_identity(&mut self, out: &mut Vec<u8>) -> InnerPhaseResult {
        self.state = PeapServerState::Identity;
        out.push(EapType::IDENTITY.0);
        InnerPhaseResult::Send
    }

    fn query_user(&mut self, name: &[u8]) -> InnerPhaseResult {
        self.name = Some(name.to_vec());
        self.question = Some(UserQuery::User { name: name.to_vec() });
        self.state = PeapServerState::User;
        InnerPhaseResult::QueryPending
    }

    fn send_peap_failure_result(
        &mut self,
        fault: ServerMethodFailure,
        tunnel: &TunnelContext<'_>,
        out: &mut Vec<u8>,
    ) -> InnerPhaseResult {
        self.fault = fault;
        self.state = PeapServerState::Result(Err(PeapRefusal));
        tlv::emit_result_packet(out, EapCode::Request, tunnel.identifier.wrapping_add(1), false, None);
        InnerPhaseResult::Send
    }

    /// Sends the success of the inner method or of a resumption, with the cryptobinding.
    fn send_peap_success_result(
        &mut self,
        tunnel: &mut TunnelContext<'_>,
        compound: impl FnOnce(&EapKeys) -> PeapCompoundKeys,
        out: &mut Vec<u8>,
    ) -> InnerPhaseResult {
        let compound = match (self.cryptobinding, tunnel.conn.export_keys(EapType::PEAP)) {
            (CryptobindingPolicy::Off, _) => None,
            (_, Some(keys)) => Some(compound(&keys)),
            (_, None) => {
                return self.send_peap_failure_result(
                    ServerMethodFailure::Tls(TlsFault::Internal),
                    tunnel,
                    out,
                );
            }
        };
        let value = compound
            .as_ref()
            .map(|c| c.cryptobinding_tlv_value(CryptobindingSubtype::Request, &tunnel.rng.random_array()));
        let identifier = tunnel.identifier.wrapping_add(1);
        tlv::emit_result_packet(out, EapCode::Request, identifier, true, value.as_ref());
        self.state = PeapServerState::Result(Ok(compound));
        InnerPhaseResult::Send
    }

    /// Checks the peer's response to the result.
    fn check_result_response(&mut self, data: &[u8]) -> InnerPhaseResult {
        let PeapServerState::Result(Ok(compound)) = &mut self.state else { return InnerPhaseResult::Failure };
        let answer = tlv::parse_tlv_packet(data, EapCode::Response).and_then(|p| tlv::parse_tlvs(p.data()));
        let Some(ParsedPeapTlvs::Known { result: Some(true), binding }) = answer else {
            return InnerPhaseResult::Failure;
        };
        match (compound.take(), binding) {
            (Some(compound), Some(value)) => {
                match compound.verify_cryptobinding_tlv(CryptobindingSubtype::Response, &value) {
                    Some(_) => self.bound = Some(compound),
                    None => {
                        self.fault = ServerMethodFailure::Binding;
                        return InnerPhaseResult::Failure;
                    }
                }
            }
            (Some(_), None) if self.cryptobinding == CryptobindingPolicy::Required => {
                self.fault = ServerMethodFailure::Binding;
                return InnerPhaseResult::Failure;
            }
            // An optional binding may be missing, and a binding that the server did not request has no effect.
            (_, _) => {}
        }
        InnerPhaseResult::Success
    }

    /// Processes the inner method's event or packet.
    fn process_inner_method_output(
        &mut self,
        tunnel: &mut TunnelContext<'_>,
        out: &mut Vec<u8>,
    ) -> InnerPhaseResult {
        let PeapServerState::Method(server) = &mut self.state else { return InnerPhaseResult::Failure };
        self.inner = server.method_type().map(InnerMethod::Eap);
        match server.poll_event() {
            Some(EapServerEvent::Query(question)) => {
                self.question = Some(question);
                InnerPhaseResult::QueryPending
            }
            Some(EapServerEvent::Success { .. }) if self.refused => {
                self.send_peap_failure_result(ServerMethodFailure::Host, tunnel, out)
            }
            Some(EapServerEvent::Success { keys, .. }) => self.send_peap_success_result(
                tunnel,
                |outer| PeapCompoundKeys::new(outer, keys.as_ref()),
                out,
            ),
            Some(EapServerEvent::Failure { .. }) => {
                let fault = inner_method_failure_reason(server, &self.kinds);
                self.send_peap_failure_result(fault, tunnel, out)
            }
            None => {
                let mut request = Vec::new();
                if !server.poll_transmit(&mut request) {
                    return InnerPhaseResult::Ignore;
                }
                out.extend_from_slice(request.get(HEADER..).unwrap_or_default());
                InnerPhaseResult::Send
            }
        }
    }
}

impl TunnelServerPhase for PeapServerPhase {
    fn handle_established(
        &mut self,
        resumed: Option<TlsSessionUser>,
        tunnel: TunnelContext<'_>,
        out: &mut Vec<u8>,
    ) -> InnerPhaseResult {
        match resumed {
            Some(remembered) => {
                self.inner = remembered.inner;
                self.name = Some(remembered.name.clone());
                self.question = Some(UserQuery::Resume(remembered));
                self.state = PeapServerState::Resume;
                InnerPhaseResult::QueryPending
            }
            None if tunnel.conn.is_sending() => InnerPhaseResult::Wait,
            None => self.request_identity(out),
        }
    }

    fn handle_empty(&mut self, _: TunnelContext<'_>, out: &mut Vec<u8>) -> InnerPhaseResult {
        match self.state {
            PeapServerState::Start => self.request_identity(out),
            _ => InnerPhaseResult::Ignore,
        }
    }

    fn handle_data(
        &mut self,
        data: &[u8],
        mut tunnel: TunnelContext<'_>,
        out: &mut Vec<u8>,
    ) -> InnerPhaseResult {
        match &mut self.state {
            PeapServerState::Identity => match parse_identity(data) {
                Some(name) if name.len() <= MAX_NAME => {
                    let name = name.to_vec();
                    self.query_user(&name)
                }
                _ => self.send_peap_failure_result(ServerMethodFailure::Rules, &tunnel, out),
            },
            PeapServerState::Method(server) => {
                let Some((kind, data)) = data.split_first() else { return InnerPhaseResult::Ignore };
                let mut response = Vec::new();
                packet::emit_packet(
                    &mut response,
                    EapCode::Response,
                    tunnel.request_identifier,
                    EapType(*kind),
                    data,
                );
                server.set_request_identifier(tunnel.request_identifier);
                if !server.handle_packet(&response) {
                    return InnerPhaseResult::Ignore;
                }
                self.process_inner_method_output(&mut tunnel, out)
            }
            PeapServerState::Result(_) => self.check_result_response(data),
            PeapServerState::Start | PeapServerState::User | PeapServerState::Resume => {
                InnerPhaseResult::Failure
            }
        }
    }

    fn apply_answer(
        &mut self,
        answer: UserQueryAnswer,
        mut tunnel: TunnelContext<'_>,
        out: &mut Vec<u8>,
    ) -> InnerPhaseResult {
        self.refused = matches!(answer, UserQueryAnswer::Refused(..)) || self.refused;
        let answer = match answer {
            UserQueryAnswer::Refused(secret, Some(only)) => UserQueryAnswer::Restricted(secret, only),
            UserQueryAnswer::Refused(secret, None) => UserQueryAnswer::User(Some(secret)),
            answer => answer,
        };
        let answer = match answer {
            UserQueryAnswer::Restricted(secret, only) => {
                self.kinds =
                    self.kinds.iter().copied().filter(|k| only.contains(&InnerMethod::Eap(*k))).collect();
                UserQueryAnswer::User(Some(secret))
            }
            answer => answer,
        };
        match (&mut self.state, answer) {
            (PeapServerState::Resume, UserQueryAnswer::Resume(true)) => {
                self.send_peap_success_result(&mut tunnel, PeapCompoundKeys::from_resumed_tunnel, out)
            }
            (PeapServerState::User, UserQueryAnswer::User(Some(secret))) => {
                let offers = server_offers(&self.kinds, &secret);
                let identifier = tunnel.identifier;
                self.state = PeapServerState::Method(Box::new(EapServer::new(
                    offers,
                    identifier,
                    tunnel.inner_method_context(),
                )));
                self.process_inner_method_output(&mut tunnel, out)
            }
            (PeapServerState::Method(server), answer) => {
                server.apply_answer(answer);
                self.process_inner_method_output(&mut tunnel, out)
            }
            _ => self.send_peap_failure_result(ServerMethodFailure::Host, &tunnel, out),
        }
    }

    fn fault(&self) -> ServerMethodFailure {
        match &self.state {
            PeapServerState::Method(server) if server.is_refusing() => {
                inner_method_failure_reason(server, &self.kinds)
            }
            _ => self.fault,
        }
    }

    fn take_query(&mut self) -> Option<UserQuery> {
        self.question.take()
    }

    fn identity(&self) -> Option<&[u8]> {
        self.name.as_deref()
    }

    fn inner_method(&self) -> Option<InnerMethod> {
        self.inner
    }

    fn is_refusing(&self) -> bool {
        match &self.state {
            PeapServerState::Result(result) => result.is_err(),
            PeapServerState::Method(server) => server.is_refusing(),
            PeapServerState::Start
            | PeapServerState::Identity
            | PeapServerState::User
            | PeapServerState::Resume => false,
        }
    }

    fn derive_keys(&self, tunnel: EapKeys) -> EapKeys {
        match &self.bound {
            Some(compound) => compound.derive_keys(tunnel),
            None => tunnel,
        }
    }

    fn poll_work(&mut self) -> Option<WorkRecord> {
        match &mut self.state {
            PeapServerState::Method(server) => server.poll_work(),
            _ => None,
        }
    }
}

/// The name in a response to the Identity request, with or without a header.
fn parse_identity(data: &[u8]) -> Option<&[u8]> {
    if let [first, name @ ..] = data
        && EapType(*first) == EapType::IDENTITY
    {
        return Some(name);
    }
    let p = EapPacket::parse(data).ok()?;
    (p.code() == EapCode::Response && p.kind() == Some(EapType::IDENTITY)).then(|| p.data())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_comes_with_the_header_of_eap_or_without() {
        let packet = |code, kind| {
            let mut out = Vec::new();
            packet::emit_packet(&mut out, code, 7, kind, b"anna");
            out
        };
        assert_eq!(parse_identity(b"\x01anna"), Some(&b"anna"[..]));
        assert_eq!(parse_identity(&packet(EapCode::Response, EapType::IDENTITY)), Some(&b"anna"[..]));
        assert_eq!(parse_identity(&packet(EapCode::Response, EapType::NAK)), None);
        // Another type than Identity.
        assert_eq!(parse_identity(b"\x04anna"), None);
        assert_eq!(parse_identity(b""), None);
    }
}
