//! The Diameter EAP application (RFC 4072): Diameter-EAP-Request and -Answer.
//!
//! An authenticator sends each EAP response by [`DiameterEapRequest::to_request`] and parses the answer by
//! [`DiameterEapAnswer::parse`]. A server parses by [`DiameterEapRequest::parse`] and answers with
//! [`DiameterEapAnswer::to_avps`]. Its result code is
//! [`ResultCode::MULTI_ROUND_AUTH`](crate::ResultCode::MULTI_ROUND_AUTH) while the method continues, then `SUCCESS` or
//! `AUTHENTICATION_REJECTED`.

use crate::avp::{AvpBuf, AvpSequence};
use crate::codes::{self, application, command};
use crate::error::DiameterError;
use crate::nasreq::{AuthRequestType, NasInfo};
use crate::node::DiameterRequest;
use alloc::string::String;
use alloc::vec::Vec;

/// A Diameter-EAP-Request (RFC 4072 §3.1).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DiameterEapRequest<'a> {
    /// Auth-Request-Type.
    pub request_type: AuthRequestType,
    /// EAP-Payload: the peer's EAP packet. Empty for EAP-Start, by which the server begins (RFC 4072 §2.2).
    pub eap: &'a [u8],
    /// User-Name: the identity in EAP-Response/Identity.
    pub user_name: Option<&'a str>,
    /// State of the previous answer, returned unchanged (RFC 7155 §4.3.4).
    pub state: Option<&'a [u8]>,
    /// The access server.
    pub nas: NasInfo<'a>,
}

impl<'a> DiameterEapRequest<'a> {
    /// Returns the request for [`crate::node::DiameterNodeCommand::Request`]. Every round of a login has the same
    /// Session-Id. `host` is the Origin-Host of the first answer, so that all rounds reach the same server.
    pub fn to_request(
        &self,
        token: u64,
        session_id: String,
        realm: String,
        host: Option<String>,
    ) -> DiameterRequest {
        let mut avps = AvpBuf::with_capacity(192 + self.eap.len());
        avps.push_u32(codes::AUTH_REQUEST_TYPE, self.request_type as u32);
        if let Some(name) = self.user_name {
            avps.push_str(codes::USER_NAME, name);
        }
        self.nas.append_to(&mut avps);
        avps.push(codes::EAP_PAYLOAD, self.eap);
        if let Some(state) = self.state {
            avps.push(codes::STATE, state);
        }
        DiameterRequest {
            token,
            application: application::EAP,
            command: command::DIAMETER_EAP,
            destination_realm: realm,
            destination_host: host,
            session_id,
            avps,
        }
    }

    /// Parses a received request.
    ///
    /// # Errors
    /// A required AVP is missing (5005) or a value is invalid (5004, 5014). The error is for
    /// [`crate::node::DiameterNodeCommand::Reject`].
    pub fn parse(avps: AvpSequence<'a>) -> Result<Self, DiameterError> {
        Ok(Self {
            request_type: AuthRequestType::from_avps(avps)?,
            eap: avps.require_avp(codes::EAP_PAYLOAD)?.data,
            user_name: avps.get(codes::USER_NAME).map(|a| a.as_utf8()).transpose()?,
            state: avps.get(codes::STATE).map(|a| a.data),
            nas: NasInfo::parse(avps)?,
        })
    }
}

/// A Diameter-EAP-Answer (RFC 4072 §3.2) without its result code.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DiameterEapAnswer<'a> {
    /// Auth-Request-Type, as in the request.
    pub request_type: AuthRequestType,
    /// EAP-Payload: the EAP packet for the peer.
    pub eap: Option<&'a [u8]>,
    /// EAP-Reissued-Payload: the last valid request, if the peer's packet was unusable.
    pub reissued: Option<&'a [u8]>,
    /// EAP-Master-Session-Key, on success.
    pub msk: Option<&'a [u8]>,
    /// EAP-Key-Name, on success.
    pub key_name: Option<&'a [u8]>,
    /// Accounting-EAP-Auth-Method, one for each method used.
    pub methods: Vec<u64>,
    /// User-Name in the server's spelling.
    pub user_name: Option<&'a str>,
    /// State, for a further round.
    pub state: Option<&'a [u8]>,
    /// Session-Timeout in seconds, on success.
    pub session_timeout: Option<u32>,
    /// Multi-Round-Time-Out, for a further round: the user's time to answer, seconds.
    pub multi_round_timeout: Option<u32>,
    /// Origin-Host of the answer (read only; the node writes it).
    pub origin_host: Option<&'a str>,
}

impl<'a> DiameterEapAnswer<'a> {
    /// Returns an answer with this EAP packet only.
    pub const fn new(request_type: AuthRequestType, eap: &'a [u8]) -> Self {
        Self {
            request_type,
            eap: Some(eap),
            reissued: None,
            msk: None,
            key_name: None,
            methods: Vec::new(),
            user_name: None,
            state: None,
            session_timeout: None,
            multi_round_timeout: None,
            origin_host: None,
        }
    }

    /// Returns the AVPs for [`crate::node::DiameterNodeCommand::Answer`].
    pub fn to_avps(&self) -> AvpBuf {
        let bytes = [self.eap, self.reissued, self.msk, self.key_name].into_iter().flatten().map(<[u8]>::len);
        let mut out = AvpBuf::with_capacity(128 + bytes.sum::<usize>());
        out.push_u32(codes::AUTH_REQUEST_TYPE, self.request_type as u32);
        if let Some(name) = self.user_name {
            out.push_str(codes::USER_NAME, name);
        }
        let opaque = [
            (codes::EAP_PAYLOAD, self.eap),
            (codes::EAP_REISSUED_PAYLOAD, self.reissued),
            (codes::EAP_MASTER_SESSION_KEY, self.msk),
            (codes::EAP_KEY_NAME, self.key_name),
            (codes::STATE, self.state),
        ];
        for (id, data) in opaque {
            if let Some(data) = data {
                out.push(id, data);
            }
        }
        for &method in &self.methods {
            out.push_u64(codes::ACCOUNTING_EAP_AUTH_METHOD, method);
        }
        let seconds = [
            (codes::SESSION_TIMEOUT, self.session_timeout),
            (codes::MULTI_ROUND_TIME_OUT, self.multi_round_timeout),
        ];
        for (id, seconds) in seconds {
            if let Some(seconds) = seconds {
                out.push_u32(id, seconds);
            }
        }
        out
    }

    /// Parses a received answer.
    ///
    /// # Errors
    /// Auth-Request-Type is missing (5005) or a value is invalid (5004, 5014).
    pub fn parse(avps: AvpSequence<'a>) -> Result<Self, DiameterError> {
        let mut dea = Self { eap: None, ..Self::new(AuthRequestType::from_avps(avps)?, &[]) };
        for a in avps.filter(|a| a.vendor == 0) {
            match a.code {
                462 => dea.eap = Some(a.data),
                463 => dea.reissued = Some(a.data),
                464 => dea.msk = Some(a.data),
                102 => dea.key_name = Some(a.data),
                465 => dea.methods.push(a.as_u64()?),
                1 => dea.user_name = Some(a.as_utf8()?),
                24 => dea.state = Some(a.data),
                27 => dea.session_timeout = Some(a.as_u32()?),
                272 => dea.multi_round_timeout = Some(a.as_u32()?),
                264 => dea.origin_host = Some(a.as_identity()?),
                _ => {}
            }
        }
        Ok(dea)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn requests_survive(eap in proptest::collection::vec(any::<u8>(), 0..300), name in "[a-z@.]{0,20}", state in any::<Option<[u8; 8]>>()) {
            let der = DiameterEapRequest {
                request_type: AuthRequestType::AuthenticateOnly,
                eap: &eap,
                user_name: Some(&name),
                state: state.as_ref().map(|s| &s[..]),
                nas: NasInfo { address: Some([192, 0, 2, 1].into()), port: Some(7), ..NasInfo::default() },
            };
            let r = der.to_request(9, "s;1;2".into(), "example".into(), None);
            prop_assert_eq!(DiameterEapRequest::parse(r.avps.as_sequence()).unwrap(), der);
        }

        #[test]
        fn answers_survive(eap in proptest::collection::vec(any::<u8>(), 0..300), msk in any::<Option<[u8; 32]>>(), methods in any::<Vec<u64>>()) {
            let mut dea = DiameterEapAnswer::new(AuthRequestType::AuthorizeAuthenticate, &eap);
            dea.msk = msk.as_ref().map(|m| &m[..]);
            dea.methods = methods;
            (dea.session_timeout, dea.multi_round_timeout) = (Some(5), Some(6));
            let avps = dea.to_avps();
            prop_assert_eq!(DiameterEapAnswer::parse(avps.as_sequence()).unwrap(), dea);
        }
    }

    #[test]
    fn an_answer_may_have_no_eap_payload() {
        let mut avps = AvpBuf::new();
        avps.push_u32(codes::AUTH_REQUEST_TYPE, 1);
        assert_eq!(DiameterEapAnswer::parse(avps.as_sequence()).unwrap().eap, None);
    }

    #[test]
    fn an_eap_payload_is_required() {
        let mut b = AvpBuf::new();
        b.push_u32(codes::AUTH_REQUEST_TYPE, 1);
        let fault = DiameterEapRequest::parse(b.as_sequence()).unwrap_err();
        assert_eq!((fault.code.0, fault.avp.unwrap().code), (5005, 462));
    }
}
