//! The capabilities exchange (RFC 6733 §5.3): the content of CER and CEA, and the common applications of two nodes.

use crate::avp::{Avp, AvpBuf, AvpId, AvpSequence, AvpView};
use crate::codes::{self, application};
use crate::error::{DiameterError, ResultCode};
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::net::IpAddr;

/// An application that a node supports.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DiameterApplication {
    /// Application-Id.
    pub id: u32,
    /// True if announced by Acct-Application-Id, false if by Auth-Application-Id.
    pub accounting: bool,
    /// The vendor of Vendor-Specific-Application-Id, or 0 for an announcement without it.
    pub vendor: u32,
}

impl DiameterApplication {
    /// Returns an authentication or authorisation application of the IETF.
    pub const fn for_authentication(id: u32) -> Self {
        Self { id, accounting: false, vendor: 0 }
    }
    /// Returns an accounting application of the IETF.
    pub const fn for_accounting(id: u32) -> Self {
        Self { id, accounting: true, vendor: 0 }
    }
}

/// The capabilities that a node announces.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NodeCapabilities {
    /// Origin-Host.
    pub host: String,
    /// Origin-Realm.
    pub realm: String,
    /// Host-IP-Address. If empty, each connection announces its own address (§5.3.5).
    pub addresses: Vec<IpAddr>,
    /// Vendor-Id.
    pub vendor: u32,
    /// Product-Name.
    pub product: String,
    /// Firmware-Revision, if any.
    pub firmware: Option<u32>,
    /// Origin-State-Id, if any. It grows at each restart that lost sessions.
    pub origin_state: Option<u32>,
    /// The applications.
    pub applications: Vec<DiameterApplication>,
}

impl NodeCapabilities {
    /// Appends the AVPs of a CER, or of a CEA after its Result-Code, for sending from address `local`.
    pub fn append_to(&self, local: Option<IpAddr>, out: &mut AvpBuf) {
        out.push_str(codes::ORIGIN_HOST, &self.host).push_str(codes::ORIGIN_REALM, &self.realm);
        // RFC 6733, 5.3.5: a Host-IP-Address for each address in use.
        let own = if self.addresses.is_empty() { local } else { None };
        for &a in self.addresses.iter().chain(&own) {
            out.push_address(codes::HOST_IP_ADDRESS, a);
        }
        out.push_u32(codes::VENDOR_ID, self.vendor).push_str(codes::PRODUCT_NAME, &self.product);
        if let Some(id) = self.origin_state {
            out.push_u32(codes::ORIGIN_STATE_ID, id);
        }
        // RFC 6733, 5.3.6: no vendor is zero, and none is named twice.
        for (i, a) in self.applications.iter().enumerate().filter(|(_, a)| a.vendor != 0) {
            if self.applications[..i].iter().all(|before| before.vendor != a.vendor) {
                out.push_u32(codes::SUPPORTED_VENDOR_ID, a.vendor);
            }
        }
        // RFC 6733, 2.4: every application is announced.
        for a in &self.applications {
            let id = if a.accounting { codes::ACCT_APPLICATION_ID } else { codes::AUTH_APPLICATION_ID };
            if a.vendor == 0 {
                out.push_u32(id, a.id);
            } else {
                out.push_group(codes::VENDOR_SPECIFIC_APPLICATION_ID, |g| {
                    g.push_u32(codes::VENDOR_ID, a.vendor).push_u32(id, a.id);
                });
            }
        }
        if let Some(v) = self.firmware {
            out.push_u32(codes::FIRMWARE_REVISION, v);
        }
    }

    /// Parses the AVPs of a CER or CEA.
    ///
    /// # Errors
    /// A required AVP is missing (5005) or a value is invalid (5004, 5014).
    pub fn parse(avps: AvpSequence<'_>) -> Result<Self, DiameterError> {
        let mut c = Self {
            host: avps.require_avp(codes::ORIGIN_HOST)?.as_identity()?.to_string(),
            realm: avps.require_avp(codes::ORIGIN_REALM)?.as_identity()?.to_string(),
            addresses: Vec::new(),
            vendor: avps.require_avp(codes::VENDOR_ID)?.as_u32()?,
            product: avps.require_avp(codes::PRODUCT_NAME)?.as_utf8()?.to_string(),
            firmware: avps.get(codes::FIRMWARE_REVISION).map(|a| a.as_u32()).transpose()?,
            origin_state: avps.get(codes::ORIGIN_STATE_ID).map(|a| a.as_u32()).transpose()?,
            applications: Vec::new(),
        };
        avps.require_avp(codes::HOST_IP_ADDRESS)?;
        for a in avps.get_all(codes::HOST_IP_ADDRESS) {
            if let crate::data::AvpAddress::Ip(ip) = a.as_address()? {
                c.addresses.push(ip);
            }
        }
        c.read_applications(avps, 0)?;
        for group in avps.get_all(codes::VENDOR_SPECIFIC_APPLICATION_ID) {
            vendor_specific(group)?;
            let inner = group.as_group()?;
            let vendor = inner.require_avp(codes::VENDOR_ID)?.as_u32()?;
            c.read_applications(inner, vendor)?;
        }
        Ok(c)
    }

    fn read_applications(&mut self, avps: AvpSequence<'_>, vendor: u32) -> Result<(), DiameterError> {
        for a in avps {
            let accounting = a.has_id(codes::ACCT_APPLICATION_ID);
            if accounting || a.has_id(codes::AUTH_APPLICATION_ID) {
                self.applications.push(DiameterApplication { id: a.as_u32()?, accounting, vendor });
            }
        }
        Ok(())
    }

    /// True if the node supports this application or relays any.
    pub fn supports_application(&self, application: u32) -> bool {
        self.applications.iter().any(|a| a.id == application || a.id == application::RELAY)
    }

    /// Checks for a common application. Neither the announcing AVP nor the vendor matters (RFC 6733 §5.3).
    ///
    /// # Errors
    /// 5010 if there is no common application and neither node is a relay.
    pub fn check_common_application(&self, other: &Self) -> Result<(), DiameterError> {
        // RFC 6733, 2.4: a relay supports every application.
        let relays = |c: &Self| c.applications.iter().any(|a| a.id == application::RELAY);
        let common = self.applications.iter().any(|a| other.applications.iter().any(|b| a.id == b.id));
        if common || relays(self) || relays(other) {
            Ok(())
        } else {
            Err(DiameterError::new(ResultCode::NO_COMMON_APPLICATION, "no application in common"))
        }
    }
}

/// Checks that a Vendor-Specific-Application-Id has one application (RFC 6733 §6.11). Failed-AVP then has the group,
/// with the surplus AVPs or with examples of the missing ones.
pub(crate) fn vendor_specific(group: AvpView<'_>) -> Result<(), DiameterError> {
    const IDS: [AvpId; 2] = [codes::AUTH_APPLICATION_ID, codes::ACCT_APPLICATION_ID];
    let inner = group.as_group()?;
    match IDS.iter().flat_map(|id| inner.get_all(*id)).count() {
        1 => Ok(()),
        0 => {
            let mut examples = AvpBuf::new();
            for a in inner {
                examples.push_view(a);
            }
            for id in IDS {
                examples.push_u32(id, 0);
            }
            let avp = Avp { data: examples.as_bytes().to_vec(), ..group.to_owned() };
            Err(DiameterError::with_avp(ResultCode::MISSING_AVP, "the AVP names no application", avp))
        }
        _ => {
            let code = ResultCode::AVP_OCCURS_TOO_MANY_TIMES;
            Err(DiameterError::with_avp(code, "the AVP names more than one application", group.to_owned()))
        }
    }
}

/// Checks the security of a CER without TLS. TLS starts before any message or not at all (RFC 6733 §5.3). A missing
/// Inband-Security-Id means NO_INBAND_SECURITY (§6.10).
///
/// # Errors
/// 5017: the peer requires TLS after the exchange.
pub fn check_inband_security(avps: AvpSequence<'_>) -> Result<(), DiameterError> {
    const NO_INBAND_SECURITY: u32 = 0;
    let mut asked = avps.get_all(codes::INBAND_SECURITY_ID).peekable();
    if asked.peek().is_none() || asked.any(|a| a.as_u32() == Ok(NO_INBAND_SECURITY)) {
        return Ok(());
    }
    Err(DiameterError::new(ResultCode::NO_COMMON_SECURITY, "TLS cannot begin within a connection"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn test_capabilities() -> NodeCapabilities {
        NodeCapabilities {
            host: "a.example".into(),
            realm: "example".into(),
            addresses: vec!["192.0.2.1".parse().unwrap(), "2001:db8::1".parse().unwrap()],
            vendor: 0,
            product: "test".into(),
            firmware: Some(3),
            origin_state: Some(7),
            applications: vec![
                DiameterApplication::for_authentication(5),
                DiameterApplication::for_accounting(3),
                DiameterApplication { id: 16_777_251, accounting: false, vendor: 10_415 },
            ],
        }
    }

    #[test]
    fn capabilities_survive_the_wire() {
        let mut out = AvpBuf::new();
        test_capabilities().append_to(Some("192.0.2.9".parse().unwrap()), &mut out);
        assert_eq!(NodeCapabilities::parse(out.as_sequence()).unwrap(), test_capabilities());
    }

    /// RFC 6733 §5.3.6.
    #[test]
    fn a_vendor_is_named_once_and_the_ietf_is_none() {
        let mut capabilities = test_capabilities();
        for id in [1, 2] {
            capabilities.applications.push(DiameterApplication { id, accounting: false, vendor: 10_415 });
        }
        let mut out = AvpBuf::new();
        capabilities.append_to(None, &mut out);
        let vendors: Vec<_> =
            out.as_sequence().get_all(codes::SUPPORTED_VENDOR_ID).map(|a| a.as_u32()).collect();
        assert_eq!(vendors, [Ok(10_415)]);
    }

    #[test]
    fn common_applications() {
        let a = test_capabilities();
        let mut b = test_capabilities();
        b.applications = vec![DiameterApplication::for_authentication(1)];
        assert_eq!(a.check_common_application(&b).unwrap_err().code, ResultCode::NO_COMMON_APPLICATION);
        // Neither the announcing AVP nor the vendor matters.
        for common in [
            DiameterApplication::for_accounting(5),
            DiameterApplication { id: 5, accounting: false, vendor: 9 },
        ] {
            b.applications = vec![common];
            assert_eq!(a.check_common_application(&b), Ok(()));
        }
        b.applications = vec![DiameterApplication::for_authentication(application::RELAY)];
        assert!(a.check_common_application(&b).is_ok());
    }

    #[test]
    fn a_missing_avp_is_named() {
        let mut out = AvpBuf::new();
        out.push_str(codes::ORIGIN_HOST, "a.example");
        let fault = NodeCapabilities::parse(out.as_sequence()).unwrap_err();
        assert_eq!((fault.code, fault.avp.unwrap().code), (ResultCode::MISSING_AVP, 296));
    }
}
