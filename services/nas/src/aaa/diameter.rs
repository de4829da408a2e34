//! EAP over Diameter (RFC 4072), the access server's side.

use super::{Answer, Ask, FRAMED, Facts, Failure, NasIdentity};
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use usher_core::{CommandError, Instant, Machine, SecureRng};
use usher_diameter::avp::AvpBuf;
use usher_diameter::codes;
use usher_diameter::eap::{Dea, Der};
use usher_diameter::nasreq::{AuthRequestType, NasInfo};
use usher_diameter::node::{self, Command, Event, FailReason, Node};
use usher_diameter::{Fault, ResultCode};

/// Auth-Session-State NO_STATE_MAINTAINED (RFC 6733 §8.11): no session is left to be terminated.
const NO_STATE_MAINTAINED: u32 = 1;

/// How a NAS asks over Diameter.
#[derive(Clone, Debug)]
pub struct DiameterConfig {
    /// Identity, peers, watchdog, failover. Its applications must include EAP.
    pub node: node::Config,
    /// Destination-Realm of every request.
    pub realm: String,
    /// Later rounds of a session go to the server that answered its first, and to no other (RFC 4072
    /// §2.2). Without it they may go to another server, which will not know the session.
    pub stay: bool,
    /// When connecting to the configured peers begins.
    pub connect_at: Instant,
}

impl DiameterConfig {
    /// Connects from the start, and stays with a session's first server.
    #[must_use]
    pub const fn new(node: node::Config, realm: String) -> Self {
        Self { node, realm, stay: true, connect_at: Instant::ZERO }
    }
}

#[derive(Debug)]
pub(crate) struct DiameterAaa {
    pub(crate) node: Node,
    realm: String,
    stay: bool,
    host: String,
    boot: u32,
}

impl DiameterAaa {
    pub(crate) fn new(config: DiameterConfig, mut rng: SecureRng) -> Self {
        Self {
            realm: config.realm,
            stay: config.stay,
            host: config.node.local.host.clone(),
            boot: rng.next_u32(),
            node: Node::new(config.node, config.connect_at, rng),
        }
    }

    pub(crate) fn ask(&mut self, now: Instant, nas: &NasIdentity, ask: &Ask<'_>) -> Result<(), CommandError> {
        let name = core::str::from_utf8(ask.name).map_err(|_| CommandError::Invalid("a name in UTF-8"))?;
        let (server, state) = split(ask.note);
        let calling = ask.calling.map(|mac| mac.dashed());
        let der = Der {
            request_type: AuthRequestType::AuthorizeAuthenticate,
            eap: ask.eap,
            user_name: Some(name),
            state: (!state.is_empty()).then_some(state),
            nas: NasInfo {
                identifier: (!nas.identifier.is_empty()).then_some(&nas.identifier),
                address: nas.address,
                port: Some(ask.port),
                port_type: Some(nas.port_type),
                calling_station: calling.as_ref().and_then(|c| core::str::from_utf8(c).ok()),
                framed_mtu: Some(nas.framed_mtu),
                service_type: Some(FRAMED),
                ..NasInfo::default()
            },
        };
        let (generation, slot) = (ask.token >> 32, ask.token as u32);
        let session = format!("{};{};{generation};{slot}", self.host, self.boot);
        let host = core::str::from_utf8(server).ok().filter(|h| self.stay && !h.is_empty());
        let mut request = der.request(ask.token, session, self.realm.clone(), host.map(ToString::to_string));
        request.avps.push_u32(codes::AUTH_SESSION_STATE, NO_STATE_MAINTAINED);
        self.node.command(now, Command::Request(request))
    }

    /// The next answer; its EAP packet and note replace what the buffers hold.
    pub(crate) fn poll(&mut self, now: Instant, eap: &mut Vec<u8>, note: &mut Vec<u8>) -> Option<Answer> {
        loop {
            match self.node.poll_event()? {
                Event::Answer { token, result, avps } => return Some(read(token, result, &avps, eap, note)),
                Event::Failed { token, reason } => {
                    let failure = match reason {
                        FailReason::TimedOut => Failure::Timeout,
                        FailReason::NoRoute | FailReason::ConnectionLost => Failure::Unavailable,
                        FailReason::BadAnswer => Failure::Protocol,
                    };
                    return Some(Answer::Failed { token, failure });
                }
                Event::PeerUp { peer } => return Some(Answer::Peer { peer, up: true }),
                Event::PeerDown { peer } => return Some(Answer::Peer { peer, up: false }),
                Event::Request { token, .. } => {
                    let fault = Fault::new(ResultCode::COMMAND_UNSUPPORTED, "nothing is asked of a NAS");
                    // The connection it came by may be gone: then nobody waits for the answer.
                    let _ = self.node.command(now, Command::Reject { token, fault });
                }
            }
        }
    }
}

/// A note is the server's name behind its length, and the State it gave.
fn split(note: &[u8]) -> (&[u8], &[u8]) {
    note.split_first().and_then(|(&n, rest)| rest.split_at_checked(n.into())).unwrap_or_default()
}

fn read(token: u64, result: ResultCode, avps: &AvpBuf, eap: &mut Vec<u8>, note: &mut Vec<u8>) -> Answer {
    eap.clear();
    note.clear();
    if result.is_protocol_error() {
        return Answer::Failed { token, failure: Failure::Unavailable };
    }
    // A refusal is one whatever else it says; an agreement must be readable.
    let dea = match Dea::parse(avps.view()) {
        Ok(dea) => dea,
        Err(_) if !result.is_success() && !result.is_informational() => return Answer::Reject { token },
        Err(_) => return Answer::Failed { token, failure: Failure::Protocol },
    };
    eap.extend_from_slice(dea.eap.unwrap_or_default());
    if result.is_informational() {
        let host = dea.origin_host.unwrap_or_default().as_bytes();
        if let Ok(length) = u8::try_from(host.len()) {
            note.push(length);
            note.extend_from_slice(host);
        } else {
            note.push(0);
        }
        note.extend_from_slice(dea.state.unwrap_or_default());
        Answer::Challenge { token }
    } else if result.is_success() {
        let msk = dea.msk.and_then(|k| k.try_into().ok());
        Answer::Accept { token, msk, facts: Facts::new(dea.session_timeout) }
    } else {
        Answer::Reject { token }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(result: ResultCode, fill: impl FnOnce(&mut AvpBuf)) -> (Answer, Vec<u8>, Vec<u8>) {
        let (mut avps, mut eap, mut note) = (AvpBuf::new(), vec![9], vec![9]);
        fill(&mut avps);
        let answer = read(1, result, &avps, &mut eap, &mut note);
        (answer, eap, note)
    }

    #[test]
    fn a_note_keeps_server_and_state() {
        let (said, eap, note) = answer(ResultCode::MULTI_ROUND_AUTH, |a| {
            a.push_u32(codes::AUTH_REQUEST_TYPE, 3).push_str(codes::ORIGIN_HOST, "aaa.example");
            a.push(codes::EAP_PAYLOAD, &[1, 7, 0, 5, 1]).push(codes::STATE, b"state");
        });
        assert!(matches!(said, Answer::Challenge { token: 1 }));
        assert_eq!(eap, [1, 7, 0, 5, 1]);
        assert_eq!(split(&note), (&b"aaa.example"[..], &b"state"[..]));
        assert_eq!((split(&[]), split(&[200, 1])), (Default::default(), Default::default()));
    }

    #[test]
    fn each_class_of_result_has_its_meaning() {
        let kind = |code| match answer(code, |_| {}).0 {
            Answer::Reject { .. } => "reject",
            Answer::Failed { failure: Failure::Unavailable, .. } => "unavailable",
            Answer::Failed { failure: Failure::Protocol, .. } => "protocol",
            _ => "other",
        };
        assert_eq!(kind(ResultCode::TOO_BUSY), "unavailable");
        assert_eq!(kind(ResultCode::AUTHENTICATION_REJECTED), "reject");
        assert_eq!(kind(ResultCode::UNKNOWN_SESSION_ID), "reject");
        assert_eq!(kind(ResultCode::SUCCESS), "protocol");
        let (said, ..) = answer(ResultCode::SUCCESS, |a| {
            a.push_u32(codes::AUTH_REQUEST_TYPE, 3).push(codes::EAP_MASTER_SESSION_KEY, &[5; 64]);
        });
        assert!(matches!(said, Answer::Accept { msk: Some([5, ..]), .. }));
    }
}
