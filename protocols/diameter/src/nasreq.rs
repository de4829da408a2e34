//! The NASREQ application (RFC 7155): the description of an access server and its port, AA-Request and AA-Answer.

use crate::avp::{AvpBuf, AvpSequence, AvpView};
use crate::codes::{self, application, command};
use crate::data::AvpAddress;
use crate::error::{DiameterError, ResultCode};
use crate::node::DiameterRequest;
use alloc::string::String;
use core::net::IpAddr;

/// Auth-Request-Type (RFC 6733 §8.7).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum AuthRequestType {
    /// Authentication alone.
    AuthenticateOnly = 1,
    /// Authorisation alone.
    AuthorizeOnly = 2,
    /// Both.
    AuthorizeAuthenticate = 3,
}

impl AuthRequestType {
    fn parse(avps: AvpSequence<'_>) -> Result<Self, DiameterError> {
        let avp = avps.require_avp(codes::AUTH_REQUEST_TYPE)?;
        match avp.as_u32()? {
            1 => Ok(Self::AuthenticateOnly),
            2 => Ok(Self::AuthorizeOnly),
            3 => Ok(Self::AuthorizeAuthenticate),
            // RFC 6733, 8.7: other types are refused.
            _ => Err(DiameterError::with_avp(
                ResultCode::INVALID_AVP_VALUE,
                "unknown Auth-Request-Type",
                avp.to_owned(),
            )),
        }
    }
    /// Parses the AVP of a request.
    ///
    /// # Errors
    /// The AVP is missing (5005) or has another value (5004).
    pub fn from_avps(avps: AvpSequence<'_>) -> Result<Self, DiameterError> {
        Self::parse(avps)
    }
}

/// The description of a NAS and the port in use (RFC 7155 §4.2). Borrowed, all optional.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct NasInfo<'a> {
    /// NAS-Identifier.
    pub identifier: Option<&'a str>,
    /// NAS-IP-Address or NAS-IPv6-Address.
    pub address: Option<IpAddr>,
    /// NAS-Port.
    pub port: Option<u32>,
    /// NAS-Port-Id.
    pub port_id: Option<&'a str>,
    /// NAS-Port-Type: 15 Ethernet, 19 IEEE 802.11, 27 IEEE 802.16.
    pub port_type: Option<u32>,
    /// Called-Station-Id.
    pub called_station: Option<&'a str>,
    /// Calling-Station-Id.
    pub calling_station: Option<&'a str>,
    /// Framed-MTU.
    pub framed_mtu: Option<u32>,
    /// Service-Type: 2 is Framed.
    pub service_type: Option<u32>,
}

impl<'a> NasInfo<'a> {
    /// Appends the AVPs.
    pub fn append_to(&self, out: &mut AvpBuf) {
        match self.address {
            Some(IpAddr::V4(a)) => {
                out.push(codes::NAS_IP_ADDRESS, &a.octets());
            }
            Some(IpAddr::V6(a)) => {
                out.push(codes::NAS_IPV6_ADDRESS, &a.octets());
            }
            None => {}
        }
        let texts = [
            (codes::NAS_IDENTIFIER, self.identifier),
            (codes::NAS_PORT_ID, self.port_id),
            (codes::CALLED_STATION_ID, self.called_station),
            (codes::CALLING_STATION_ID, self.calling_station),
        ];
        for (id, text) in texts {
            if let Some(text) = text {
                out.push_str(id, text);
            }
        }
        let numbers = [
            (codes::NAS_PORT, self.port),
            (codes::NAS_PORT_TYPE, self.port_type),
            (codes::FRAMED_MTU, self.framed_mtu),
            (codes::SERVICE_TYPE, self.service_type),
        ];
        for (id, n) in numbers {
            if let Some(n) = n {
                out.push_u32(id, n);
            }
        }
    }

    /// Parses the AVPs of a request.
    ///
    /// # Errors
    /// A value does not fit its AVP's type (5004, 5014).
    pub fn parse(avps: AvpSequence<'a>) -> Result<Self, DiameterError> {
        let mut nas = Self::default();
        for a in avps.filter(|a| a.vendor == 0) {
            match a.code {
                4 | 95 => {
                    let family: &[u8] = if a.code == 4 { &[0, 1] } else { &[0, 2] };
                    let mut bytes = [0; 18];
                    let end = 2 + a.data.len().min(16);
                    bytes[..2].copy_from_slice(family);
                    bytes[2..end].copy_from_slice(&a.data[..end - 2]);
                    match AvpAddress::parse(&bytes[..end]) {
                        Some(AvpAddress::Ip(ip)) if a.data.len() <= 16 => nas.address = Some(ip),
                        _ => {
                            let code = ResultCode::INVALID_AVP_LENGTH;
                            return Err(DiameterError::with_avp(code, "not an address", a.to_owned()));
                        }
                    }
                }
                32 => nas.identifier = Some(a.as_utf8()?),
                87 => nas.port_id = Some(a.as_utf8()?),
                30 => nas.called_station = Some(a.as_utf8()?),
                31 => nas.calling_station = Some(a.as_utf8()?),
                5 => nas.port = Some(a.as_u32()?),
                61 => nas.port_type = Some(a.as_u32()?),
                12 => nas.framed_mtu = Some(a.as_u32()?),
                6 => nas.service_type = Some(a.as_u32()?),
                _ => {}
            }
        }
        Ok(nas)
    }
}

/// A borrowed CHAP response (RFC 7155 §4.3.4 to §4.3.8).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ChapAuth<'a> {
    /// CHAP-Ident.
    pub identifier: u8,
    /// CHAP-Response: 16 octets.
    pub response: &'a [u8; 16],
    /// CHAP-Challenge, which is outside the group.
    pub challenge: &'a [u8],
}

/// CHAP with MD5, the only CHAP-Algorithm.
const CHAP_WITH_MD5: u32 = 5;

impl<'a> ChapAuth<'a> {
    /// Parses the AVPs. `None` if there is no CHAP-Auth.
    fn parse(avps: AvpSequence<'a>) -> Result<Option<Self>, DiameterError> {
        let Some(group) = avps.get(codes::CHAP_AUTH) else { return Ok(None) };
        let inner = group.as_group()?;
        let wrong = |avp: AvpView<'_>, what| {
            DiameterError::with_avp(ResultCode::INVALID_AVP_VALUE, what, avp.to_owned())
        };
        let algorithm = inner.require_avp(codes::CHAP_ALGORITHM)?;
        if algorithm.as_u32()? != CHAP_WITH_MD5 {
            return Err(wrong(algorithm, "the CHAP algorithm is not MD5"));
        }
        let ident = inner.require_avp(codes::CHAP_IDENT)?;
        let &[identifier] = ident.data else { return Err(wrong(ident, "not one octet")) };
        let response = inner.require_avp(codes::CHAP_RESPONSE)?;
        let sixteen = response.data.try_into().map_err(|_| wrong(response, "not 16 octets"))?;
        let challenge = avps.require_avp(codes::CHAP_CHALLENGE)?.data;
        Ok(Some(Self { identifier, response: sixteen, challenge }))
    }

    fn append_to(&self, out: &mut AvpBuf) {
        out.push_group(codes::CHAP_AUTH, |g| {
            g.push_u32(codes::CHAP_ALGORITHM, CHAP_WITH_MD5)
                .push(codes::CHAP_IDENT, &[self.identifier])
                .push(codes::CHAP_RESPONSE, self.response);
        });
        out.push(codes::CHAP_CHALLENGE, self.challenge);
    }
}

/// An AA-Request (RFC 7155 §3.1) with a PAP password or a CHAP response.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct AaRequest<'a> {
    /// Auth-Request-Type.
    pub request_type: AuthRequestType,
    /// User-Name.
    pub user_name: Option<&'a str>,
    /// User-Password in clear: the connection protects it.
    pub password: Option<&'a [u8]>,
    /// The response to a challenge.
    pub chap: Option<ChapAuth<'a>>,
    /// State of the previous answer.
    pub state: Option<&'a [u8]>,
    /// The access server.
    pub nas: NasInfo<'a>,
}

impl<'a> AaRequest<'a> {
    /// Returns the request for [`crate::node::DiameterNodeCommand::Request`].
    pub fn to_request(
        &self,
        token: u64,
        session_id: String,
        realm: String,
        host: Option<String>,
    ) -> DiameterRequest {
        let mut avps = AvpBuf::with_capacity(256);
        avps.push_u32(codes::AUTH_REQUEST_TYPE, self.request_type as u32);
        if let Some(name) = self.user_name {
            avps.push_str(codes::USER_NAME, name);
        }
        if let Some(password) = self.password {
            avps.push(codes::USER_PASSWORD, password);
        }
        if let Some(chap) = &self.chap {
            chap.append_to(&mut avps);
        }
        if let Some(state) = self.state {
            avps.push(codes::STATE, state);
        }
        self.nas.append_to(&mut avps);
        DiameterRequest {
            token,
            application: application::NASREQ,
            command: command::AA,
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
        Ok(Self {
            request_type: AuthRequestType::parse(avps)?,
            user_name: avps.get(codes::USER_NAME).map(|a| a.as_utf8()).transpose()?,
            password: avps.get(codes::USER_PASSWORD).map(|a| a.data),
            chap: ChapAuth::parse(avps)?,
            state: avps.get(codes::STATE).map(|a| a.data),
            nas: NasInfo::parse(avps)?,
        })
    }
}

/// An AA-Answer (RFC 7155 §3.2) without its result code.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct AaAnswer<'a> {
    /// Auth-Request-Type, as in the request.
    pub request_type: AuthRequestType,
    /// Reply-Message.
    pub reply: Option<&'a str>,
    /// State, for a further round.
    pub state: Option<&'a [u8]>,
    /// Session-Timeout in seconds.
    pub session_timeout: Option<u32>,
}

impl<'a> AaAnswer<'a> {
    /// Returns the AVPs for [`crate::node::DiameterNodeCommand::Answer`].
    pub fn to_avps(&self) -> AvpBuf {
        let mut out = AvpBuf::with_capacity(64);
        out.push_u32(codes::AUTH_REQUEST_TYPE, self.request_type as u32);
        if let Some(text) = self.reply {
            out.push_str(codes::REPLY_MESSAGE, text);
        }
        if let Some(state) = self.state {
            out.push(codes::STATE, state);
        }
        if let Some(secs) = self.session_timeout {
            out.push_u32(codes::SESSION_TIMEOUT, secs);
        }
        out
    }
    /// Parses a received answer.
    ///
    /// # Errors
    /// A required AVP is missing (5005) or a value is invalid (5004, 5014).
    pub fn parse(avps: AvpSequence<'a>) -> Result<Self, DiameterError> {
        Ok(Self {
            request_type: AuthRequestType::parse(avps)?,
            reply: avps.get(codes::REPLY_MESSAGE).map(|a| a.as_utf8()).transpose()?,
            state: avps.get(codes::STATE).map(|a| a.data),
            session_timeout: avps.get(codes::SESSION_TIMEOUT).map(|a| a.as_u32()).transpose()?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_and_answers_survive() {
        let aar = AaRequest {
            request_type: AuthRequestType::AuthorizeAuthenticate,
            user_name: Some("anna"),
            password: Some(b"geheim"),
            chap: Some(ChapAuth { identifier: 7, response: &[9; 16], challenge: b"who?" }),
            state: None,
            nas: NasInfo {
                identifier: Some("nas1"),
                address: Some("2001:db8::7".parse().unwrap()),
                port: Some(3),
                port_id: Some("ge-0/0/3"),
                port_type: Some(15),
                called_station: Some("02-00-00-00-00-01"),
                calling_station: Some("02-00-00-00-00-02"),
                framed_mtu: Some(1400),
                service_type: Some(2),
            },
        };
        let r = aar.to_request(1, "s".into(), "example".into(), None);
        assert_eq!(AaRequest::parse(r.avps.as_sequence()).unwrap(), aar);
        let aaa = AaAnswer {
            request_type: AuthRequestType::AuthenticateOnly,
            reply: Some("welcome"),
            state: Some(b"x"),
            session_timeout: Some(60),
        };
        assert_eq!(AaAnswer::parse(aaa.to_avps().as_sequence()).unwrap(), aaa);
    }

    #[test]
    fn wrong_addresses_and_types_are_faults() {
        let mut b = AvpBuf::new();
        b.push(codes::NAS_IP_ADDRESS, &[1, 2, 3]);
        assert_eq!(NasInfo::parse(b.as_sequence()).unwrap_err().code.0, 5014);
        b.clear();
        b.push(codes::NAS_IPV6_ADDRESS, &[0; 20]);
        assert_eq!(NasInfo::parse(b.as_sequence()).unwrap_err().code.0, 5014);
        b.clear();
        assert_eq!(AuthRequestType::from_avps(b.as_sequence()).unwrap_err().code.0, 5005);
        b.push_u32(codes::AUTH_REQUEST_TYPE, 9);
        assert_eq!(AuthRequestType::from_avps(b.as_sequence()).unwrap_err().code.0, 5004);
    }

    /// RFC 7155 §4.3.4, §4.3.5: the challenge is outside the group, and the group has a response of 16 octets.
    #[test]
    fn a_chap_response_is_whole_or_a_fault() {
        type ChapFields = (u32, &'static [u8], Option<&'static [u8]>, Option<&'static [u8]>);
        const WHOLE: ChapFields = (5, &[7], Some(&[9; 16]), Some(b"who?"));
        for ((algorithm, ident, response, challenge), expected) in [
            (WHOLE, None),
            ((4, WHOLE.1, WHOLE.2, WHOLE.3), Some((5004, 403))),
            ((5, &[], WHOLE.2, WHOLE.3), Some((5004, 404))),
            ((5, &[7], None, WHOLE.3), Some((5005, 405))),
            ((5, &[7], Some(&[9; 15]), WHOLE.3), Some((5004, 405))),
            ((5, &[7], WHOLE.2, None), Some((5005, 60))),
        ] {
            let mut avps = AvpBuf::new();
            avps.push_u32(codes::AUTH_REQUEST_TYPE, 1).push_group(codes::CHAP_AUTH, |g| {
                g.push_u32(codes::CHAP_ALGORITHM, algorithm).push(codes::CHAP_IDENT, ident);
                if let Some(response) = response {
                    g.push(codes::CHAP_RESPONSE, response);
                }
            });
            if let Some(challenge) = challenge {
                avps.push(codes::CHAP_CHALLENGE, challenge);
            }
            let fault = AaRequest::parse(avps.as_sequence()).err().map(|f| (f.code.0, f.avp.unwrap().code));
            assert_eq!(fault, expected);
        }
    }
}
