//! EAP over RADIUS (RFC 3579), the access server's side.

use super::{Answer, Ask, FRAMED, Facts, Failure, NasIdentity, Record, RecordKind, USER_REQUEST, seconds};
use alloc::vec::Vec;
use core::net::IpAddr;
use usher_core::{Child, CommandError, Instant, Machine, Outputs, SecureRng};
use usher_radius::attribute::{Attributes, ValueTooLong, kind};
use usher_radius::client::{self, Client, Command, ConfigError, Event, Response, Target};
use usher_radius::packet::Code;

/// How a NAS asks over RADIUS.
#[derive(Clone, Debug)]
pub struct RadiusConfig {
    /// Servers, secrets, retransmission.
    pub client: client::Config,
    /// Which of them is asked.
    pub target: Target,
    /// Which of them is told of sessions.
    pub accounting: Target,
}

impl RadiusConfig {
    /// The first of the client's servers, and no other.
    #[must_use]
    pub const fn new(client: client::Config) -> Self {
        Self { client, target: Target::Server(0), accounting: Target::Server(0) }
    }
}

#[derive(Debug)]
pub(crate) struct RadiusAaa {
    pub(crate) client: Child<Client>,
    target: Target,
    accounting: Target,
    /// The last answer's list: its memory serves the next request.
    spare: Attributes,
}

impl RadiusAaa {
    pub(crate) fn new(config: RadiusConfig, rng: SecureRng) -> Result<Self, ConfigError> {
        let client = Child::only(Client::new(config.client, rng)?);
        Ok(Self { client, target: config.target, accounting: config.accounting, spare: Attributes::new() })
    }

    pub(crate) fn ask(&mut self, now: Instant, nas: &NasIdentity, ask: &Ask<'_>) -> Result<(), CommandError> {
        if ask.name.is_empty() {
            return Err(CommandError::Invalid("a User-Name has at least one octet"));
        }
        let mut attributes = core::mem::take(&mut self.spare);
        attributes.clear();
        let filled = fill(&mut attributes, nas, ask);
        if filled.is_err() {
            self.spare = attributes;
            return Err(CommandError::Invalid("a value does not fit its RADIUS attribute"));
        }
        let (token, target) = (ask.token, self.target);
        self.client.command(now, Command::Request { token, target, code: Code::ACCESS_REQUEST, attributes })
    }

    pub(crate) fn account(
        &mut self,
        now: Instant,
        nas: &NasIdentity,
        token: u64,
        record: &Record,
    ) -> Result<(), CommandError> {
        let mut attributes = Attributes::new();
        describe(&mut attributes, nas, record)
            .map_err(|_| CommandError::Invalid("a value does not fit its RADIUS attribute"))?;
        let (target, code) = (self.accounting, Code::ACCOUNTING_REQUEST);
        self.client.command(now, Command::Request { token, target, code, attributes })
    }

    pub(crate) fn cancel(&mut self, now: Instant, token: u64) {
        // The answer may have come already and wait as an event: nothing is outstanding then.
        let _ = self.client.command(now, Command::Cancel { token });
    }

    /// The next answer; its EAP packet and State replace what the buffers hold.
    pub(crate) fn poll<E>(
        &mut self,
        outputs: &mut Outputs<E>,
        eap: &mut Vec<u8>,
        state: &mut Vec<u8>,
    ) -> Option<Answer> {
        loop {
            match outputs.next_event(&mut self.client)? {
                Event::TimedOut { token } => {
                    return Some(Answer::Failed { token, failure: Failure::Timeout });
                }
                Event::Response(response) => {
                    let answer = read(&response, eap, state);
                    self.spare = response.attributes;
                    return Some(answer);
                }
                // The client itself turns to another server.
                Event::Server { .. } => {}
            }
        }
    }
}

fn fill(a: &mut Attributes, nas: &NasIdentity, ask: &Ask<'_>) -> Result<(), ValueTooLong> {
    a.push_bytes(kind::USER_NAME, ask.name)?;
    introduce(a, nas, ask.port)?;
    a.push_u32(kind::SERVICE_TYPE, FRAMED);
    a.push_u32(kind::FRAMED_MTU, nas.framed_mtu);
    if let Some(mac) = ask.calling {
        a.push_bytes(kind::CALLING_STATION_ID, &mac.dashed())?;
    }
    if !ask.note.is_empty() {
        a.push_bytes(kind::STATE, ask.note)?;
    }
    a.push_eap(ask.eap);
    Ok(())
}

/// A record of accounting (RFC 2866 §5). It says that it is told at once, which the client brings up to date.
fn describe(a: &mut Attributes, nas: &NasIdentity, record: &Record) -> Result<(), ValueTooLong> {
    let status = match record.kind {
        RecordKind::Start => 1,
        RecordKind::Stop => 2,
        RecordKind::Interim => 3,
    };
    a.push_u32(kind::ACCT_STATUS_TYPE, status);
    a.push_text(kind::ACCT_SESSION_ID, &record.session)?;
    if !record.name.is_empty() {
        a.push_bytes(kind::USER_NAME, &record.name)?;
    }
    introduce(a, nas, record.station.nas_port())?;
    a.push_u32(kind::SERVICE_TYPE, FRAMED);
    if let Some(mac) = record.station.mac() {
        a.push_bytes(kind::CALLING_STATION_ID, &mac.dashed())?;
    }
    a.push_u32(kind::ACCT_DELAY_TIME, 0);
    if record.kind != RecordKind::Start {
        a.push_u32(kind::ACCT_SESSION_TIME, seconds(record.lasted));
    }
    if record.kind == RecordKind::Stop {
        a.push_u32(kind::ACCT_TERMINATE_CAUSE, USER_REQUEST);
    }
    Ok(())
}

fn introduce(a: &mut Attributes, nas: &NasIdentity, port: u32) -> Result<(), ValueTooLong> {
    match nas.address {
        Some(IpAddr::V4(address)) => {
            a.push_ipv4(kind::NAS_IP_ADDRESS, address);
        }
        Some(IpAddr::V6(address)) => {
            a.push_ipv6(kind::NAS_IPV6_ADDRESS, address);
        }
        None => {}
    }
    if !nas.identifier.is_empty() {
        a.push_text(kind::NAS_IDENTIFIER, &nas.identifier)?;
    }
    a.push_u32(kind::NAS_PORT, port);
    a.push_u32(kind::NAS_PORT_TYPE, nas.port_type);
    Ok(())
}

fn read(response: &Response, eap: &mut Vec<u8>, state: &mut Vec<u8>) -> Answer {
    let token = response.token;
    let attributes = &response.attributes;
    eap.clear();
    attributes.eap(eap);
    state.clear();
    match response.code {
        Code::ACCESS_CHALLENGE => {
            state.extend_from_slice(attributes.get(kind::STATE).unwrap_or_default());
            Answer::Challenge { token }
        }
        Code::ACCESS_ACCEPT => match response.mppe_keys() {
            Ok(keys) => {
                let msk = keys.and_then(|k| k.msk());
                let seconds = attributes.get_u32(kind::SESSION_TIMEOUT);
                Answer::Accept { token, msk, facts: Facts::new(seconds) }
            }
            Err(_) => Answer::Failed { token, failure: Failure::BadKey },
        },
        Code::ACCESS_REJECT => Answer::Reject { token },
        Code::ACCOUNTING_RESPONSE => Answer::Kept { token },
        _ => Answer::Failed { token, failure: Failure::Protocol },
    }
}
