//! Phase 2 of EAP-TTLS's server.

use super::super::tunnel::{
    InnerPhaseResult, MAX_NAME, TunnelContext, TunnelServerPhase, inner_method_failure_reason, server_offers,
};
use super::super::{
    InnerMethod, ServerMethodFailure, TlsSessionUser, UserQuery, UserQueryAnswer, UserSecret,
};
use super::avp::{self, TtlsAvp, TtlsAvpCode};
use super::{CHALLENGE, SHORT_CHALLENGE, tunnel_challenge};
use crate::packet::{self, EapPacket, EapType};
use crate::server::{EapServer, EapServerEvent};
use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::fmt;
use usher_core::WorkRecord;
use usher_crypto::SecretValue;
use usher_crypto::digest::{constant_time_eq, md5};
use usher_crypto::legacy::mschap;

/// The proof that the peer sent.
enum ReceivedInnerCredential {
    Pap(SecretValue),
    Chap {
        identifier: u8,
        challenge: [u8; CHALLENGE],
        response: [u8; 16],
    },
    MsChap {
        challenge: [u8; SHORT_CHALLENGE],
        response: [u8; 24],
    },
    MsChapV2 {
        identifier: u8,
        challenge: [u8; CHALLENGE],
        peer: [u8; CHALLENGE],
        response: [u8; 24],
    },
    /// EAP's identity, in a response of this identifier.
    Eap(u8),
}

impl ReceivedInnerCredential {
    const fn matches_method(&self, inner: InnerMethod) -> bool {
        matches!(
            (self, inner),
            (Self::Pap(_), InnerMethod::Pap)
                | (Self::Chap { .. }, InnerMethod::Chap)
                | (Self::MsChap { .. }, InnerMethod::MsChap)
                | (Self::MsChapV2 { .. }, InnerMethod::MsChapV2)
                | (Self::Eap(_), InnerMethod::Eap(_))
        )
    }
}

impl fmt::Debug for ReceivedInnerCredential {
    /// Omits the password.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Proof(..)")
    }
}

#[derive(Debug)]
enum TtlsServerState {
    /// The peer's AVPs are pending. The server answers an empty packet with an empty packet once.
    Start { nudged: bool },
    /// The user query to the host is pending.
    User(ReceivedInnerCredential),
    /// The password query to the host is pending.
    Password,
    /// EAP runs.
    Eap(Box<EapServer>),
    /// The server has sent MS-CHAP-V2's success or error, or the zero octet of a resumed session.
    ResultSent(bool),
    /// The resumption query to the host is pending.
    Resume,
}

/// Phase 2 of a run.
#[derive(Debug)]
pub(crate) struct TtlsServerPhase {
    accepted: Arc<[InnerMethod]>,
    state: TtlsServerState,
    name: Option<Vec<u8>>,
    inner: Option<InnerMethod>,
    question: Option<UserQuery>,
    /// True if the run fails regardless of the peer's proof.
    refused: bool,
    /// The reason for the failure, once known.
    fault: ServerMethodFailure,
}

impl TtlsServerPhase {
    pub(crate) fn new(accepted: Arc<[InnerMethod]>) -> Self {
        let state = TtlsServerState::Start { nudged: false };
        Self {
            accepted,
            state,
            name: None,
            inner: None,
            question: None,
            refused: false,
            fault: ServerMethodFailure::Rules,
        }
    }

    fn query_user(&mut self, name: &[u8]) -> InnerPhaseResult {
        self.name = Some(name.to_vec());
        self.question = Some(UserQuery::User { name: name.to_vec() });
        InnerPhaseResult::QueryPending
    }

    fn fail_inner_phase(&mut self, fault: ServerMethodFailure) -> InnerPhaseResult {
        self.fault = fault;
        InnerPhaseResult::Failure
    }

    /// Handles the peer's first AVPs.
    fn handle_first_avps(&mut self, avps: &[TtlsAvp<'_>], tunnel: &TunnelContext<'_>) -> InnerPhaseResult {
        let Some((name, proof)) = parse_proof(avps, tunnel) else { return InnerPhaseResult::Failure };
        let Some(inner) = self.accepted.iter().find(|i| proof.matches_method(**i)) else {
            return self.fail_inner_phase(ServerMethodFailure::NoInner);
        };
        if name.len() > MAX_NAME {
            return InnerPhaseResult::Failure;
        }
        self.inner = Some(*inner).filter(|i| !matches!(i, InnerMethod::Eap(_)));
        self.state = TtlsServerState::User(proof);
        self.query_user(&name)
    }

    /// Verifies the proof against the user's secret.
    fn check_proof(
        &mut self,
        secret: &UserSecret,
        mut tunnel: TunnelContext<'_>,
        out: &mut Vec<u8>,
    ) -> InnerPhaseResult {
        let TtlsServerState::User(proof) =
            core::mem::replace(&mut self.state, TtlsServerState::ResultSent(false))
        else {
            return InnerPhaseResult::Failure;
        };
        let name = self.name.as_deref().unwrap_or_default();
        let right = match (proof, secret, secret.nt_hash()) {
            (ReceivedInnerCredential::Pap(password), ..) => match secret.matches_password(&password) {
                Some(right) => right,
                None => {
                    self.state = TtlsServerState::Password;
                    self.question = Some(UserQuery::Password { password });
                    return InnerPhaseResult::QueryPending;
                }
            },
            (
                ReceivedInnerCredential::Chap { identifier, challenge, response },
                UserSecret::Clear(known),
                _,
            ) => constant_time_eq(&response, &md5(&[&[identifier], known, &challenge])),
            (ReceivedInnerCredential::MsChap { challenge, response }, _, Some(hash)) => {
                constant_time_eq(&response, &mschap::mschap_v1_response(&challenge, &hash))
            }
            (ReceivedInnerCredential::MsChapV2 { identifier, challenge, peer, response }, _, Some(hash)) => {
                let right = constant_time_eq(&response, &mschap::nt_response(&challenge, &peer, name, &hash));
                self.fault = if right { ServerMethodFailure::Host } else { ServerMethodFailure::Proof };
                let right = right && !self.refused;
                self.state = TtlsServerState::ResultSent(right);
                if right {
                    let text = mschap::authenticator_response(&hash, &response, &peer, &challenge, name);
                    // RFC 5281, 11.2.4: the success goes through the tunnel, and the peer answers it.
                    avp::emit_avp(out, TtlsAvpCode::MS_CHAP2_SUCCESS, &[&[identifier][..], &text].concat());
                } else {
                    // RFC 2548, 2.1.5: the identifier, then the text of RFC 2759 §6, without a retry.
                    avp::emit_avp(
                        out,
                        TtlsAvpCode::MS_CHAP_ERROR,
                        &[&[identifier][..], b"E=691 R=0 V=3"].concat(),
                    );
                }
                return InnerPhaseResult::Send;
            }
            (ReceivedInnerCredential::Eap(identifier), ..) => {
                let kinds = eap_types(&self.accepted);
                let offers = server_offers(&kinds, secret);
                self.state = TtlsServerState::Eap(Box::new(EapServer::new(
                    offers,
                    identifier,
                    tunnel.inner_method_context(),
                )));
                return self.drain_eap(out);
            }
            // The stored form of the user's password cannot verify a proof of this kind.
            (
                ReceivedInnerCredential::Chap { .. }
                | ReceivedInnerCredential::MsChap { .. }
                | ReceivedInnerCredential::MsChapV2 { .. },
                ..,
            ) => {
                return self.fail_inner_phase(ServerMethodFailure::Secret);
            }
        };
        match right {
            true if self.refused => self.fail_inner_phase(ServerMethodFailure::Host),
            true => InnerPhaseResult::Success,
            false => self.fail_inner_phase(ServerMethodFailure::Proof),
        }
    }

    /// Processes EAP's event or packet.
    fn drain_eap(&mut self, out: &mut Vec<u8>) -> InnerPhaseResult {
        let TtlsServerState::Eap(server) = &mut self.state else { return InnerPhaseResult::Failure };
        self.inner = server.method_type().map(InnerMethod::Eap);
        match server.poll_event() {
            Some(EapServerEvent::Query(question)) => {
                self.question = Some(question);
                InnerPhaseResult::QueryPending
            }
            // RFC 5281, 11.2.1: the result is sent outside the tunnel.
            Some(EapServerEvent::Success { .. }) if !self.refused => InnerPhaseResult::Success,
            Some(EapServerEvent::Success { .. }) => self.fail_inner_phase(ServerMethodFailure::Host),
            Some(EapServerEvent::Failure { .. }) => {
                let kinds = eap_types(&self.accepted);
                self.fault = inner_method_failure_reason(server, &kinds);
                InnerPhaseResult::Failure
            }
            None => {
                let mut request = Vec::new();
                if !server.poll_transmit(&mut request) {
                    return InnerPhaseResult::Ignore;
                }
                // RFC 5281, 11.2.1: one EAP packet in one AVP.
                avp::emit_avp(out, TtlsAvpCode::EAP_MESSAGE, &request);
                InnerPhaseResult::Send
            }
        }
    }
}

impl TunnelServerPhase for TtlsServerPhase {
    fn handle_established(
        &mut self,
        resumed: Option<TlsSessionUser>,
        tunnel: TunnelContext<'_>,
        _: &mut Vec<u8>,
    ) -> InnerPhaseResult {
        let Some(remembered) = resumed else {
            // The TLS engine may resume a session for which the server knows no user. A peer that then sends no AVPs
            // expects no phase 2, and fails.
            self.state = TtlsServerState::Start { nudged: tunnel.conn.engine.is_resumed() };
            return InnerPhaseResult::Wait;
        };
        self.inner = remembered.inner;
        self.name = Some(remembered.name.clone());
        // RFC 5281, 7.5: the session keeps its user.
        self.question = Some(UserQuery::Resume(remembered));
        self.state = TtlsServerState::Resume;
        InnerPhaseResult::QueryPending
    }

    fn handle_empty(&mut self, _: TunnelContext<'_>, _: &mut Vec<u8>) -> InnerPhaseResult {
        match &mut self.state {
            TtlsServerState::Start { nudged: nudged @ false } => {
                *nudged = true;
                InnerPhaseResult::Wait
            }
            TtlsServerState::ResultSent(true) => InnerPhaseResult::Success,
            TtlsServerState::Start { .. } | TtlsServerState::ResultSent(false) => InnerPhaseResult::Failure,
            TtlsServerState::User(_)
            | TtlsServerState::Password
            | TtlsServerState::Eap(_)
            | TtlsServerState::Resume => InnerPhaseResult::Ignore,
        }
    }

    fn handle_data(&mut self, data: &[u8], tunnel: TunnelContext<'_>, out: &mut Vec<u8>) -> InnerPhaseResult {
        let Some(avps) = avp::parse_avps(data).filter(|a| a.iter().all(is_known)) else {
            return InnerPhaseResult::Failure;
        };
        match &mut self.state {
            TtlsServerState::Start { .. } => self.handle_first_avps(&avps, &tunnel),
            TtlsServerState::Eap(server) => match avp::join_eap_message(&avps) {
                Some(packet) if server.handle_packet(&packet) => self.drain_eap(out),
                // RFC 5281, 11.2.1: a packet that EAP discards is an error inside a tunnel, where packets are neither
                // lost nor forged.
                _ => InnerPhaseResult::Failure,
            },
            TtlsServerState::User(_)
            | TtlsServerState::Password
            | TtlsServerState::ResultSent(_)
            | TtlsServerState::Resume => InnerPhaseResult::Failure,
        }
    }

    fn apply_answer(
        &mut self,
        answer: UserQueryAnswer,
        tunnel: TunnelContext<'_>,
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
                self.accepted = self.accepted.iter().copied().filter(|i| only.contains(i)).collect();
                let may = matches!(&self.state, TtlsServerState::User(proof) if self.accepted.iter().any(|i| proof.matches_method(*i)));
                if !may {
                    return self.fail_inner_phase(ServerMethodFailure::NoInner);
                }
                UserQueryAnswer::User(Some(secret))
            }
            answer => answer,
        };
        match (&mut self.state, answer) {
            (TtlsServerState::User(_), UserQueryAnswer::User(Some(secret))) => {
                self.check_proof(&secret, tunnel, out)
            }
            (TtlsServerState::Password, UserQueryAnswer::Password(true)) if !self.refused => {
                InnerPhaseResult::Success
            }
            (TtlsServerState::Password, UserQueryAnswer::Password(false)) => {
                self.fail_inner_phase(ServerMethodFailure::Proof)
            }
            (TtlsServerState::Eap(server), answer) => {
                server.apply_answer(answer);
                self.drain_eap(out)
            }
            (TtlsServerState::Resume, UserQueryAnswer::Resume(true)) if tunnel.conn.is_tls13() => {
                self.state = TtlsServerState::ResultSent(true);
                out.push(0);
                InnerPhaseResult::Send
            }
            (TtlsServerState::Resume, UserQueryAnswer::Resume(true)) => InnerPhaseResult::Success,
            _ => self.fail_inner_phase(ServerMethodFailure::Host),
        }
    }

    fn fault(&self) -> ServerMethodFailure {
        match &self.state {
            TtlsServerState::Eap(server) if server.is_refusing() => {
                inner_method_failure_reason(server, &eap_types(&self.accepted))
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
            TtlsServerState::ResultSent(right) => !right,
            TtlsServerState::Eap(server) => server.is_refusing(),
            TtlsServerState::Start { .. }
            | TtlsServerState::User(_)
            | TtlsServerState::Password
            | TtlsServerState::Resume => false,
        }
    }

    fn poll_work(&mut self) -> Option<WorkRecord> {
        match &mut self.state {
            TtlsServerState::Eap(server) => server.poll_work(),
            _ => None,
        }
    }
}

/// The EAP methods among the accepted ones.
fn eap_types(accepted: &[InnerMethod]) -> Vec<EapType> {
    let eap = |inner: &InnerMethod| if let InnerMethod::Eap(kind) = inner { Some(*kind) } else { None };
    accepted.iter().filter_map(eap).collect()
}

/// True if the AVP is known or not mandatory (RFC 5281 §10.1).
fn is_known(avp: &TtlsAvp<'_>) -> bool {
    const KNOWN_AVPS: [TtlsAvpCode; 8] = [
        TtlsAvpCode::USER_NAME,
        TtlsAvpCode::USER_PASSWORD,
        TtlsAvpCode::CHAP_PASSWORD,
        TtlsAvpCode::CHAP_CHALLENGE,
        TtlsAvpCode::EAP_MESSAGE,
        TtlsAvpCode::MS_CHAP_RESPONSE,
        TtlsAvpCode::MS_CHAP_CHALLENGE,
        TtlsAvpCode::MS_CHAP2_RESPONSE,
    ];
    !avp.mandatory || KNOWN_AVPS.contains(&avp.code)
}

/// Returns the name and the proof in the AVPs. `None` if a part is missing or has a wrong length, or if a challenge is
/// not this tunnel's.
fn parse_proof(
    avps: &[TtlsAvp<'_>],
    tunnel: &TunnelContext<'_>,
) -> Option<(Vec<u8>, ReceivedInnerCredential)> {
    let name = || avp::find_avp(avps, TtlsAvpCode::USER_NAME).map(<[u8]>::to_vec);
    if let Some(packet) = avp::join_eap_message(avps) {
        let p = EapPacket::parse(&packet).ok()?;
        let identity = p.code() == packet::EapCode::Response && p.kind() == Some(EapType::IDENTITY);
        return identity.then(|| (p.data().to_vec(), ReceivedInnerCredential::Eap(p.identifier())));
    }
    let proof = if let Some(password) = avp::find_avp(avps, TtlsAvpCode::USER_PASSWORD) {
        // RFC 5281, 11.2.5: zeros pad the password, to hide its length.
        let end = password.iter().rposition(|octet| *octet != 0).map_or(0, |last| last + 1);
        ReceivedInnerCredential::Pap(password[..end].into())
    } else if let Some(value) = avp::find_avp(avps, TtlsAvpCode::CHAP_PASSWORD) {
        let (ours, identifier) = tunnel_challenge::<CHALLENGE>(tunnel.conn)?;
        let (first, response) = value.split_first()?;
        check_tunnel_challenge(avps, TtlsAvpCode::CHAP_CHALLENGE, &ours, *first == identifier)?;
        ReceivedInnerCredential::Chap { identifier, challenge: ours, response: response.try_into().ok()? }
    } else if let Some(value) = avp::find_avp(avps, TtlsAvpCode::MS_CHAP_RESPONSE) {
        // RFC 2548, 2.1.3: Ident, flags, LAN Manager response (ignored), NT response.
        let (ours, identifier) = tunnel_challenge::<SHORT_CHALLENGE>(tunnel.conn)?;
        let [first, 1, rest @ ..] = value else { return None };
        check_tunnel_challenge(avps, TtlsAvpCode::MS_CHAP_CHALLENGE, &ours, *first == identifier)?;
        let (_, response) = rest.split_first_chunk::<24>()?;
        ReceivedInnerCredential::MsChap { challenge: ours, response: response.try_into().ok()? }
    } else {
        // RFC 2548, 2.3.2: Ident, flags, the peer's challenge, eight octets of zero, the response.
        let value = avp::find_avp(avps, TtlsAvpCode::MS_CHAP2_RESPONSE)?;
        let (ours, identifier) = tunnel_challenge::<CHALLENGE>(tunnel.conn)?;
        let [first, _, rest @ ..] = value else { return None };
        check_tunnel_challenge(avps, TtlsAvpCode::MS_CHAP_CHALLENGE, &ours, *first == identifier)?;
        let (peer, rest) = rest.split_first_chunk::<CHALLENGE>()?;
        let (_, response) = rest.split_first_chunk::<8>()?;
        ReceivedInnerCredential::MsChapV2 {
            identifier,
            challenge: ours,
            peer: *peer,
            response: response.try_into().ok()?,
        }
    };
    Some((name()?, proof))
}

/// RFC 5281 §11.2.2 to 11.2.4: challenge and identifier must be the tunnel's.
fn check_tunnel_challenge(
    avps: &[TtlsAvp<'_>],
    code: TtlsAvpCode,
    ours: &[u8],
    identified: bool,
) -> Option<()> {
    let same = avp::find_avp(avps, code).is_some_and(|theirs| constant_time_eq(theirs, ours));
    (same && identified).then_some(())
}
