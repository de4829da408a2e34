//! Phase 2 of EAP-TTLS's server.

use super::super::tunnel::{MAX_NAME, PhaseVerdict, ServerPhase, TunnelContext, inner_fault, server_offers};
use super::super::{InnerMethod, MethodFault, SessionUser, UserAnswer, UserQuery, UserSecret};
use super::avp::{self, AvpCode, TtlsAvp};
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
enum ReceivedProof {
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

impl ReceivedProof {
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

impl fmt::Debug for ReceivedProof {
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
    User(ReceivedProof),
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
    fault: MethodFault,
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
            fault: MethodFault::Rules,
        }
    }

    fn query_user(&mut self, name: &[u8]) -> PhaseVerdict {
        self.name = Some(name.to_vec());
        self.question = Some(UserQuery::User { name: name.to_vec() });
        PhaseVerdict::QueryPending
    }

    fn fail_with(&mut self, fault: MethodFault) -> PhaseVerdict {
        self.fault = fault;
        PhaseVerdict::Failure
    }

    /// Handles the peer's first AVPs.
    fn handle_first_avps(&mut self, avps: &[TtlsAvp<'_>], tunnel: &TunnelContext<'_>) -> PhaseVerdict {
        let Some((name, proof)) = parse_proof(avps, tunnel) else { return PhaseVerdict::Failure };
        let Some(inner) = self.accepted.iter().find(|i| proof.matches_method(**i)) else {
            return self.fail_with(MethodFault::NoInner);
        };
        if name.len() > MAX_NAME {
            return PhaseVerdict::Failure;
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
    ) -> PhaseVerdict {
        let TtlsServerState::User(proof) =
            core::mem::replace(&mut self.state, TtlsServerState::ResultSent(false))
        else {
            return PhaseVerdict::Failure;
        };
        let name = self.name.as_deref().unwrap_or_default();
        let right = match (proof, secret, secret.nt_hash()) {
            (ReceivedProof::Pap(password), ..) => match secret.matches_password(&password) {
                Some(right) => right,
                None => {
                    self.state = TtlsServerState::Password;
                    self.question = Some(UserQuery::Password { password });
                    return PhaseVerdict::QueryPending;
                }
            },
            (ReceivedProof::Chap { identifier, challenge, response }, UserSecret::Clear(known), _) => {
                constant_time_eq(&response, &md5(&[&[identifier], known, &challenge]))
            }
            (ReceivedProof::MsChap { challenge, response }, _, Some(hash)) => {
                constant_time_eq(&response, &mschap::v1_response(&challenge, &hash))
            }
            (ReceivedProof::MsChapV2 { identifier, challenge, peer, response }, _, Some(hash)) => {
                let right = constant_time_eq(&response, &mschap::nt_response(&challenge, &peer, name, &hash));
                self.fault = if right { MethodFault::Host } else { MethodFault::Proof };
                let right = right && !self.refused;
                self.state = TtlsServerState::ResultSent(right);
                if right {
                    let text = mschap::authenticator_response(&hash, &response, &peer, &challenge, name);
                    avp::emit_avp(out, AvpCode::MS_CHAP2_SUCCESS, &[&[identifier][..], &text].concat());
                } else {
                    // RFC 2548 §2.1.5: the identifier, then the text of RFC 2759 §6, without a retry.
                    avp::emit_avp(
                        out,
                        AvpCode::MS_CHAP_ERROR,
                        &[&[identifier][..], b"E=691 R=0 V=3"].concat(),
                    );
                }
                return PhaseVerdict::Send;
            }
            (ReceivedProof::Eap(identifier), ..) => {
                let kinds = eap_types(&self.accepted);
                let offers = server_offers(&kinds, secret);
                self.state = TtlsServerState::Eap(Box::new(EapServer::new(
                    offers,
                    identifier,
                    tunnel.inner_context(),
                )));
                return self.drain_eap(out);
            }
            // The form of the secret does not suit this proof.
            (
                ReceivedProof::Chap { .. } | ReceivedProof::MsChap { .. } | ReceivedProof::MsChapV2 { .. },
                ..,
            ) => {
                return self.fail_with(MethodFault::Secret);
            }
        };
        match right {
            true if self.refused => self.fail_with(MethodFault::Host),
            true => PhaseVerdict::Success,
            false => self.fail_with(MethodFault::Proof),
        }
    }

    /// Processes EAP's event or packet.
    fn drain_eap(&mut self, out: &mut Vec<u8>) -> PhaseVerdict {
        let TtlsServerState::Eap(server) = &mut self.state else { return PhaseVerdict::Failure };
        self.inner = server.method_type().map(InnerMethod::Eap);
        match server.poll_event() {
            Some(EapServerEvent::Query(question)) => {
                self.question = Some(question);
                PhaseVerdict::QueryPending
            }
            // RFC 5281 §11.2.1: the result is sent outside the tunnel.
            Some(EapServerEvent::Success { .. }) if !self.refused => PhaseVerdict::Success,
            Some(EapServerEvent::Success { .. }) => self.fail_with(MethodFault::Host),
            Some(EapServerEvent::Failure { .. }) => {
                let kinds = eap_types(&self.accepted);
                self.fault = inner_fault(server, &kinds);
                PhaseVerdict::Failure
            }
            None => {
                let mut request = Vec::new();
                if !server.poll_transmit(&mut request) {
                    return PhaseVerdict::Ignore;
                }
                avp::emit_avp(out, AvpCode::EAP_MESSAGE, &request);
                PhaseVerdict::Send
            }
        }
    }
}

impl ServerPhase for TtlsServerPhase {
    fn handle_established(
        &mut self,
        resumed: Option<SessionUser>,
        tunnel: TunnelContext<'_>,
        _: &mut Vec<u8>,
    ) -> PhaseVerdict {
        let Some(remembered) = resumed else {
            // The engine may resume a session without a user. A peer without AVPs then expects no phase 2, and fails.
            self.state = TtlsServerState::Start { nudged: tunnel.conn.engine.is_resumed() };
            return PhaseVerdict::Wait;
        };
        self.inner = remembered.inner;
        self.name = Some(remembered.name.clone());
        self.question = Some(UserQuery::Resume(remembered));
        self.state = TtlsServerState::Resume;
        PhaseVerdict::QueryPending
    }

    fn handle_empty(&mut self, _: TunnelContext<'_>, _: &mut Vec<u8>) -> PhaseVerdict {
        match &mut self.state {
            TtlsServerState::Start { nudged: nudged @ false } => {
                *nudged = true;
                PhaseVerdict::Wait
            }
            TtlsServerState::ResultSent(true) => PhaseVerdict::Success,
            TtlsServerState::Start { .. } | TtlsServerState::ResultSent(false) => PhaseVerdict::Failure,
            TtlsServerState::User(_)
            | TtlsServerState::Password
            | TtlsServerState::Eap(_)
            | TtlsServerState::Resume => PhaseVerdict::Ignore,
        }
    }

    fn handle_data(&mut self, data: &[u8], tunnel: TunnelContext<'_>, out: &mut Vec<u8>) -> PhaseVerdict {
        let Some(avps) = avp::parse_avps(data).filter(|a| a.iter().all(is_known)) else {
            return PhaseVerdict::Failure;
        };
        match &mut self.state {
            TtlsServerState::Start { .. } => self.handle_first_avps(&avps, &tunnel),
            TtlsServerState::Eap(server) => match avp::join_eap_message(&avps) {
                Some(packet) if server.handle_packet(&packet) => self.drain_eap(out),
                // RFC 5281 §11.2.1: a packet that EAP discards is an error inside a tunnel, where packets are neither
                // lost nor forged.
                _ => PhaseVerdict::Failure,
            },
            TtlsServerState::User(_)
            | TtlsServerState::Password
            | TtlsServerState::ResultSent(_)
            | TtlsServerState::Resume => PhaseVerdict::Failure,
        }
    }

    fn apply_answer(
        &mut self,
        answer: UserAnswer,
        tunnel: TunnelContext<'_>,
        out: &mut Vec<u8>,
    ) -> PhaseVerdict {
        self.refused = matches!(answer, UserAnswer::Refused(..)) || self.refused;
        let answer = match answer {
            UserAnswer::Refused(secret, Some(only)) => UserAnswer::Restricted(secret, only),
            UserAnswer::Refused(secret, None) => UserAnswer::User(Some(secret)),
            answer => answer,
        };
        let answer = match answer {
            UserAnswer::Restricted(secret, only) => {
                self.accepted = self.accepted.iter().copied().filter(|i| only.contains(i)).collect();
                let may = matches!(&self.state, TtlsServerState::User(proof) if self.accepted.iter().any(|i| proof.matches_method(*i)));
                if !may {
                    return self.fail_with(MethodFault::NoInner);
                }
                UserAnswer::User(Some(secret))
            }
            answer => answer,
        };
        match (&mut self.state, answer) {
            (TtlsServerState::User(_), UserAnswer::User(Some(secret))) => {
                self.check_proof(&secret, tunnel, out)
            }
            (TtlsServerState::Password, UserAnswer::Password(true)) if !self.refused => PhaseVerdict::Success,
            (TtlsServerState::Password, UserAnswer::Password(false)) => self.fail_with(MethodFault::Proof),
            (TtlsServerState::Eap(server), answer) => {
                server.apply_answer(answer);
                self.drain_eap(out)
            }
            (TtlsServerState::Resume, UserAnswer::Resume(true)) if tunnel.conn.is_13() => {
                self.state = TtlsServerState::ResultSent(true);
                out.push(0);
                PhaseVerdict::Send
            }
            (TtlsServerState::Resume, UserAnswer::Resume(true)) => PhaseVerdict::Success,
            _ => self.fail_with(MethodFault::Host),
        }
    }

    fn fault(&self) -> MethodFault {
        match &self.state {
            TtlsServerState::Eap(server) if server.is_refusing() => {
                inner_fault(server, &eap_types(&self.accepted))
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
    const KNOWN_AVPS: [AvpCode; 8] = [
        AvpCode::USER_NAME,
        AvpCode::USER_PASSWORD,
        AvpCode::CHAP_PASSWORD,
        AvpCode::CHAP_CHALLENGE,
        AvpCode::EAP_MESSAGE,
        AvpCode::MS_CHAP_RESPONSE,
        AvpCode::MS_CHAP_CHALLENGE,
        AvpCode::MS_CHAP2_RESPONSE,
    ];
    !avp.mandatory || KNOWN_AVPS.contains(&avp.code)
}

/// Returns the name and the proof in the AVPs. `None` if a part is missing or has a wrong length, or if a challenge is
/// not this tunnel's.
fn parse_proof(avps: &[TtlsAvp<'_>], tunnel: &TunnelContext<'_>) -> Option<(Vec<u8>, ReceivedProof)> {
    let name = || avp::find_avp(avps, AvpCode::USER_NAME).map(<[u8]>::to_vec);
    if let Some(packet) = avp::join_eap_message(avps) {
        let p = EapPacket::parse(&packet).ok()?;
        let identity = p.code() == packet::EapCode::Response && p.kind() == Some(EapType::IDENTITY);
        return identity.then(|| (p.data().to_vec(), ReceivedProof::Eap(p.identifier())));
    }
    let proof = if let Some(password) = avp::find_avp(avps, AvpCode::USER_PASSWORD) {
        // RFC 5281 §11.2.5: zeros pad the password, to hide its length.
        let end = password.iter().rposition(|octet| *octet != 0).map_or(0, |last| last + 1);
        ReceivedProof::Pap(password[..end].into())
    } else if let Some(value) = avp::find_avp(avps, AvpCode::CHAP_PASSWORD) {
        let (ours, identifier) = tunnel_challenge::<CHALLENGE>(tunnel.conn)?;
        let (first, response) = value.split_first()?;
        check_challenge(avps, AvpCode::CHAP_CHALLENGE, &ours, *first == identifier)?;
        ReceivedProof::Chap { identifier, challenge: ours, response: response.try_into().ok()? }
    } else if let Some(value) = avp::find_avp(avps, AvpCode::MS_CHAP_RESPONSE) {
        // RFC 2548 §2.1.3: Ident, flags, LAN Manager response (ignored), NT response.
        let (ours, identifier) = tunnel_challenge::<SHORT_CHALLENGE>(tunnel.conn)?;
        let [first, 1, rest @ ..] = value else { return None };
        check_challenge(avps, AvpCode::MS_CHAP_CHALLENGE, &ours, *first == identifier)?;
        let (_, response) = rest.split_first_chunk::<24>()?;
        ReceivedProof::MsChap { challenge: ours, response: response.try_into().ok()? }
    } else {
        // RFC 2548 §2.3.2: Ident, flags, the peer's challenge, eight octets of zero, the response.
        let value = avp::find_avp(avps, AvpCode::MS_CHAP2_RESPONSE)?;
        let (ours, identifier) = tunnel_challenge::<CHALLENGE>(tunnel.conn)?;
        let [first, _, rest @ ..] = value else { return None };
        check_challenge(avps, AvpCode::MS_CHAP_CHALLENGE, &ours, *first == identifier)?;
        let (peer, rest) = rest.split_first_chunk::<CHALLENGE>()?;
        let (_, response) = rest.split_first_chunk::<8>()?;
        ReceivedProof::MsChapV2 {
            identifier,
            challenge: ours,
            peer: *peer,
            response: response.try_into().ok()?,
        }
    };
    Some((name()?, proof))
}

/// RFC 5281 §11.2.2 to 11.2.4: challenge and identifier must be the tunnel's.
fn check_challenge(avps: &[TtlsAvp<'_>], code: AvpCode, ours: &[u8], identified: bool) -> Option<()> {
    let same = avp::find_avp(avps, code).is_some_and(|theirs| constant_time_eq(theirs, ours));
    (same && identified).then_some(())
}
