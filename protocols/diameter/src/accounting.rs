//! Accounting (RFC 6733 §9) of access sessions (RFC 7155 §4.6): Accounting-Request and -Answer.
//!
//! A NAS sends [`AccountingRequest::to_request`] and keeps the record until a successful answer. A server parses it by
//! [`AccountingRequest::parse`]. When the record is durable, it answers [`AccountingAnswer::to_avps`] with
//! [`ResultCode::SUCCESS`].

use crate::avp::{AvpBuf, AvpSequence};
use crate::codes::{self, application, command};
use crate::data::AvpTime;
use crate::error::{DiameterError, ResultCode};
use crate::nasreq::NasInfo;
use crate::node::DiameterRequest;
use alloc::string::String;
use core::net::Ipv4Addr;

/// Accounting-Record-Type (RFC 6733 §9.8.1).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum AccountingRecordType {
    /// A record of a service without a session.
    Event = 1,
    /// The session has started.
    Start = 2,
    /// The session continues. The counts are of the whole session so far.
    Interim = 3,
    /// The session has ended.
    Stop = 4,
}

impl AccountingRecordType {
    fn parse(avps: AvpSequence<'_>) -> Result<Self, DiameterError> {
        let avp = avps.require_avp(codes::ACCOUNTING_RECORD_TYPE)?;
        Ok(match avp.as_u32()? {
            1 => Self::Event,
            2 => Self::Start,
            3 => Self::Interim,
            4 => Self::Stop,
            _ => {
                let code = ResultCode::INVALID_AVP_VALUE;
                return Err(DiameterError::with_avp(code, "unknown Accounting-Record-Type", avp.to_owned()));
            }
        })
    }
}

/// A borrowed Accounting-Request (RFC 6733 §9.7.1) with the AVPs of an access session.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct AccountingRequest<'a> {
    /// Accounting-Record-Type.
    pub record_type: AccountingRecordType,
    /// Accounting-Record-Number. With the Session-Id it identifies the record.
    pub record_number: u32,
    /// User-Name.
    pub user_name: Option<&'a str>,
    /// Acct-Session-Id, if the session has a RADIUS identifier too.
    pub acct_session_id: Option<&'a [u8]>,
    /// Acct-Multi-Session-Id.
    pub multi_session_id: Option<&'a str>,
    /// Event-Timestamp.
    pub event_timestamp: Option<AvpTime>,
    /// Acct-Delay-Time, seconds.
    pub delay: Option<u32>,
    /// Acct-Session-Time, seconds.
    pub session_time: Option<u32>,
    /// Accounting-Input-Octets: from the user.
    pub input_octets: Option<u64>,
    /// Accounting-Output-Octets: to the user.
    pub output_octets: Option<u64>,
    /// Accounting-Input-Packets.
    pub input_packets: Option<u64>,
    /// Accounting-Output-Packets.
    pub output_packets: Option<u64>,
    /// Acct-Authentic.
    pub authentic: Option<u32>,
    /// Termination-Cause.
    pub termination_cause: Option<u32>,
    /// Framed-Protocol.
    pub framed_protocol: Option<u32>,
    /// Framed-IP-Address.
    pub framed_ip: Option<Ipv4Addr>,
    /// Framed-IPv6-Prefix in the format of RFC 3162 §2.3.
    pub framed_ipv6_prefix: Option<&'a [u8]>,
    /// Class from the answer that accepted the user.
    pub class: Option<&'a [u8]>,
    /// Connect-Info.
    pub connect_info: Option<&'a str>,
    /// Session-Id (read only; the node writes it).
    pub session_id: Option<&'a str>,
    /// Origin-Host (read only; the node writes it).
    pub origin_host: Option<&'a str>,
    /// The access server.
    pub nas: NasInfo<'a>,
}

impl<'a> AccountingRequest<'a> {
    /// Returns a record of this type and number without optional AVPs.
    #[must_use]
    pub fn new(record_type: AccountingRecordType, record_number: u32) -> Self {
        Self {
            record_type,
            record_number,
            user_name: None,
            acct_session_id: None,
            multi_session_id: None,
            event_timestamp: None,
            delay: None,
            session_time: None,
            input_octets: None,
            output_octets: None,
            input_packets: None,
            output_packets: None,
            authentic: None,
            termination_cause: None,
            framed_protocol: None,
            framed_ip: None,
            framed_ipv6_prefix: None,
            class: None,
            connect_info: None,
            session_id: None,
            origin_host: None,
            nas: NasInfo::default(),
        }
    }

    /// Returns the request for [`crate::node::DiameterNodeCommand::Request`], of the base accounting application.
    #[must_use]
    pub fn to_request(
        &self,
        token: u64,
        session_id: String,
        realm: String,
        host: Option<String>,
    ) -> DiameterRequest {
        let mut avps = AvpBuf::with_capacity(320);
        avps.push_u32(codes::ACCOUNTING_RECORD_TYPE, self.record_type as u32);
        avps.push_u32(codes::ACCOUNTING_RECORD_NUMBER, self.record_number);
        let texts = [
            (codes::USER_NAME, self.user_name),
            (codes::ACCT_MULTI_SESSION_ID, self.multi_session_id),
            (codes::CONNECT_INFO, self.connect_info),
        ];
        for (id, text) in texts {
            if let Some(text) = text {
                avps.push_str(id, text);
            }
        }
        let framed_ip = self.framed_ip.map(|a| a.octets());
        let opaque = [
            (codes::ACCT_SESSION_ID, self.acct_session_id),
            (codes::FRAMED_IP_ADDRESS, framed_ip.as_ref().map(|a| &a[..])),
            (codes::FRAMED_IPV6_PREFIX, self.framed_ipv6_prefix),
            (codes::CLASS, self.class),
        ];
        for (id, data) in opaque {
            if let Some(data) = data {
                avps.push(id, data);
            }
        }
        let numbers = [
            (codes::EVENT_TIMESTAMP, self.event_timestamp.map(|t| t.0)),
            (codes::ACCT_DELAY_TIME, self.delay),
            (codes::ACCT_SESSION_TIME, self.session_time),
            (codes::ACCT_AUTHENTIC, self.authentic),
            (codes::TERMINATION_CAUSE, self.termination_cause),
            (codes::FRAMED_PROTOCOL, self.framed_protocol),
        ];
        for (id, number) in numbers {
            if let Some(number) = number {
                avps.push_u32(id, number);
            }
        }
        let counts = [
            (codes::ACCOUNTING_INPUT_OCTETS, self.input_octets),
            (codes::ACCOUNTING_OUTPUT_OCTETS, self.output_octets),
            (codes::ACCOUNTING_INPUT_PACKETS, self.input_packets),
            (codes::ACCOUNTING_OUTPUT_PACKETS, self.output_packets),
        ];
        for (id, count) in counts {
            if let Some(count) = count {
                avps.push_u64(id, count);
            }
        }
        self.nas.append_to(&mut avps);
        DiameterRequest {
            token,
            application: application::ACCOUNTING,
            command: command::ACCOUNTING,
            destination_realm: realm,
            destination_host: host,
            session_id,
            avps,
        }
    }

    /// Parses a received request.
    ///
    /// # Errors
    /// A required AVP is missing (5005) or a value is invalid (5004, 5014).
    pub fn parse(avps: AvpSequence<'a>) -> Result<Self, DiameterError> {
        let number = avps.require_avp(codes::ACCOUNTING_RECORD_NUMBER)?.as_u32()?;
        let mut acr = Self::new(AccountingRecordType::parse(avps)?, number);
        acr.nas = NasInfo::parse(avps)?;
        for a in avps.filter(|a| a.vendor == 0) {
            match a.code {
                1 => acr.user_name = Some(a.as_utf8()?),
                7 => acr.framed_protocol = Some(a.as_u32()?),
                8 => acr.framed_ip = Some(Ipv4Addr::from_bits(a.as_u32()?)),
                25 => acr.class = Some(a.data),
                41 => acr.delay = Some(a.as_u32()?),
                44 => acr.acct_session_id = Some(a.data),
                45 => acr.authentic = Some(a.as_u32()?),
                46 => acr.session_time = Some(a.as_u32()?),
                50 => acr.multi_session_id = Some(a.as_utf8()?),
                55 => acr.event_timestamp = Some(a.as_time()?),
                77 => acr.connect_info = Some(a.as_utf8()?),
                97 => acr.framed_ipv6_prefix = Some(a.data),
                263 => acr.session_id = Some(a.as_utf8()?),
                264 => acr.origin_host = Some(a.as_identity()?),
                295 => acr.termination_cause = Some(a.as_u32()?),
                363 => acr.input_octets = Some(a.as_u64()?),
                364 => acr.output_octets = Some(a.as_u64()?),
                365 => acr.input_packets = Some(a.as_u64()?),
                366 => acr.output_packets = Some(a.as_u64()?),
                _ => {}
            }
        }
        Ok(acr)
    }
}

/// An Accounting-Answer (RFC 6733 §9.7.2) without its result code.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct AccountingAnswer {
    /// Accounting-Record-Type, as in the request.
    pub record_type: AccountingRecordType,
    /// Accounting-Record-Number, as in the request.
    pub record_number: u32,
}

impl AccountingAnswer {
    /// Returns the AVPs for [`crate::node::DiameterNodeCommand::Answer`].
    #[must_use]
    pub fn to_avps(&self) -> AvpBuf {
        let mut out = AvpBuf::with_capacity(24);
        out.push_u32(codes::ACCOUNTING_RECORD_TYPE, self.record_type as u32);
        out.push_u32(codes::ACCOUNTING_RECORD_NUMBER, self.record_number);
        out
    }
    /// Parses a received answer.
    ///
    /// # Errors
    /// A required AVP is missing (5005) or a value is invalid (5004, 5014).
    pub fn parse(avps: AvpSequence<'_>) -> Result<Self, DiameterError> {
        Ok(Self {
            record_type: AccountingRecordType::parse(avps)?,
            record_number: avps.require_avp(codes::ACCOUNTING_RECORD_NUMBER)?.as_u32()?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn arbitrary_record_type() -> impl Strategy<Value = AccountingRecordType> {
        prop_oneof![
            Just(AccountingRecordType::Event),
            Just(AccountingRecordType::Start),
            Just(AccountingRecordType::Interim),
            Just(AccountingRecordType::Stop)
        ]
    }

    proptest! {
        #[test]
        fn requests_and_answers_survive(
            record_type in arbitrary_record_type(),
            number in any::<u32>(),
            octets in any::<Option<u64>>(),
            seconds in any::<Option<u32>>(),
            id in proptest::collection::vec(any::<u8>(), 0..40),
            name in "[a-z@.]{0,20}",
        ) {
            let mut acr = AccountingRequest::new(record_type, number);
            (acr.input_octets, acr.output_packets) = (octets, octets);
            (acr.session_time, acr.delay, acr.termination_cause) = (seconds, seconds, seconds);
            acr.event_timestamp = seconds.map(AvpTime);
            acr.framed_ip = seconds.map(Ipv4Addr::from_bits);
            (acr.acct_session_id, acr.class) = (Some(&id[..]), Some(&id[..]));
            (acr.user_name, acr.connect_info) = (Some(&name[..]), Some(&name[..]));
            acr.nas.port = seconds;
            let r = acr.to_request(9, "s;1;2".into(), "example".into(), None);
            prop_assert_eq!((r.application, r.command), (application::ACCOUNTING, command::ACCOUNTING));
            prop_assert_eq!(AccountingRequest::parse(r.avps.as_sequence()).unwrap(), acr);
            let aca = AccountingAnswer { record_type, record_number: number };
            prop_assert_eq!(AccountingAnswer::parse(aca.to_avps().as_sequence()).unwrap(), aca);
        }
    }

    #[test]
    fn type_and_number_are_required() {
        let mut b = AvpBuf::new();
        b.push_u32(codes::ACCOUNTING_RECORD_NUMBER, 0);
        let fault = AccountingRequest::parse(b.as_sequence()).unwrap_err();
        assert_eq!((fault.code.0, fault.avp.unwrap().code), (5005, 480));
        b.push_u32(codes::ACCOUNTING_RECORD_TYPE, 5);
        assert_eq!(AccountingRequest::parse(b.as_sequence()).unwrap_err().code.0, 5004);
        b.clear();
        b.push_u32(codes::ACCOUNTING_RECORD_TYPE, 2);
        let fault = AccountingRequest::parse(b.as_sequence()).unwrap_err();
        assert_eq!((fault.code.0, fault.avp.unwrap().code), (5005, 485));
    }
}
