//! The capabilities exchange (RFC 6733 §5.3): what CER and CEA say, and what two nodes have in common.

use crate::avp::{Avp, AvpBuf, AvpId, AvpView, Avps};
use crate::codes::{self, application};
use crate::error::{Fault, ResultCode};
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::net::IpAddr;

/// An application that a node speaks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Application {
    /// Application-Id.
    pub id: u32,
    /// Announced by Acct-Application-Id instead of Auth-Application-Id.
    pub accounting: bool,
    /// Announced within Vendor-Specific-Application-Id of this vendor, unless 0.
    pub vendor: u32,
}

impl Application {
    /// An authentication or authorisation application of the IETF.
    pub const fn auth(id: u32) -> Self {
        Self { id, accounting: false, vendor: 0 }
    }
    /// An accounting application of the IETF.
    pub const fn acct(id: u32) -> Self {
        Self { id, accounting: true, vendor: 0 }
    }
}

/// What a node says of itself.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Capabilities {
    /// Origin-Host.
    pub host: String,
    /// Origin-Realm.
    pub realm: String,
    /// Host-IP-Address; where there is none, each connection has its own address (§5.3.5).
    pub addresses: Vec<IpAddr>,
    /// Vendor-Id.
    pub vendor: u32,
    /// Product-Name.
    pub product: String,
    /// Firmware-Revision, if any.
    pub firmware: Option<u32>,
    /// Origin-State-Id, if any: grows at each restart that lost sessions.
    pub origin_state: Option<u32>,
    /// The applications.
    pub applications: Vec<Application>,
}

impl Capabilities {
    /// Appends the AVPs of a CER, or of a CEA behind its Result-Code, to be sent from address `local`.
    pub fn emit(&self, local: Option<IpAddr>, out: &mut AvpBuf) {
        out.push_str(codes::ORIGIN_HOST, &self.host).push_str(codes::ORIGIN_REALM, &self.realm);
        let own = if self.addresses.is_empty() { local } else { None };
        for &a in self.addresses.iter().chain(&own) {
            out.push_address(codes::HOST_IP_ADDRESS, a);
        }
        out.push_u32(codes::VENDOR_ID, self.vendor).push_str(codes::PRODUCT_NAME, &self.product);
        if let Some(id) = self.origin_state {
            out.push_u32(codes::ORIGIN_STATE_ID, id);
        }
        for (i, a) in self.applications.iter().enumerate().filter(|(_, a)| a.vendor != 0) {
            if self.applications[..i].iter().all(|before| before.vendor != a.vendor) {
                out.push_u32(codes::SUPPORTED_VENDOR_ID, a.vendor);
            }
        }
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

    /// Reads the AVPs of a CER or CEA.
    ///
    /// # Errors
    /// A required AVP is missing (5005) or a value cannot be (5004, 5014).
    pub fn parse(avps: Avps<'_>) -> Result<Self, Fault> {
        let mut c = Self {
            host: avps.require(codes::ORIGIN_HOST)?.identity()?.to_string(),
            realm: avps.require(codes::ORIGIN_REALM)?.identity()?.to_string(),
            addresses: Vec::new(),
            vendor: avps.require(codes::VENDOR_ID)?.u32()?,
            product: avps.require(codes::PRODUCT_NAME)?.utf8()?.to_string(),
            firmware: avps.get(codes::FIRMWARE_REVISION).map(|a| a.u32()).transpose()?,
            origin_state: avps.get(codes::ORIGIN_STATE_ID).map(|a| a.u32()).transpose()?,
            applications: Vec::new(),
        };
        avps.require(codes::HOST_IP_ADDRESS)?;
        for a in avps.all(codes::HOST_IP_ADDRESS) {
            if let crate::data::AvpAddress::Ip(ip) = a.address()? {
                c.addresses.push(ip);
            }
        }
        c.read_applications(avps, 0)?;
        for group in avps.all(codes::VENDOR_SPECIFIC_APPLICATION_ID) {
            vendor_specific(group)?;
            let inner = group.grouped()?;
            let vendor = inner.require(codes::VENDOR_ID)?.u32()?;
            c.read_applications(inner, vendor)?;
        }
        Ok(c)
    }

    fn read_applications(&mut self, avps: Avps<'_>, vendor: u32) -> Result<(), Fault> {
        for a in avps {
            let accounting = a.is(codes::ACCT_APPLICATION_ID);
            if accounting || a.is(codes::AUTH_APPLICATION_ID) {
                self.applications.push(Application { id: a.u32()?, accounting, vendor });
            }
        }
        Ok(())
    }

    /// True when both speak this application, or one relays any.
    pub fn speaks(&self, application: u32) -> bool {
        self.applications.iter().any(|a| a.id == application || a.id == application::RELAY)
    }

    /// Whether a connection makes sense. Which of the three AVPs names an application does not matter, nor does the
    /// vendor (RFC 6733 §5.3).
    ///
    /// # Errors
    /// 5010 when no application is common and neither side is a relay.
    pub fn check_common(&self, other: &Self) -> Result<(), Fault> {
        let relays = |c: &Self| c.applications.iter().any(|a| a.id == application::RELAY);
        let common = self.applications.iter().any(|a| other.applications.iter().any(|b| a.id == b.id));
        if common || relays(self) || relays(other) {
            Ok(())
        } else {
            Err(Fault::new(ResultCode::NO_COMMON_APPLICATION, "no application in common"))
        }
    }
}

/// Whether a Vendor-Specific-Application-Id names one application (RFC 6733 §6.11). The group itself goes back in
/// Failed-AVP, with what should not be there or with examples of what should.
pub(crate) fn vendor_specific(group: AvpView<'_>) -> Result<(), Fault> {
    const IDS: [AvpId; 2] = [codes::AUTH_APPLICATION_ID, codes::ACCT_APPLICATION_ID];
    let inner = group.grouped()?;
    match IDS.iter().flat_map(|id| inner.all(*id)).count() {
        1 => Ok(()),
        0 => {
            let mut examples = AvpBuf::new();
            for a in inner {
                examples.push_view(a);
            }
            for id in IDS {
                examples.push_u32(id, 0);
            }
            let avp = Avp { data: examples.bytes().to_vec(), ..group.to_owned() };
            Err(Fault::of(ResultCode::MISSING_AVP, "no application is named", avp))
        }
        _ => {
            let code = ResultCode::AVP_OCCURS_TOO_MANY_TIMES;
            Err(Fault::of(code, "more than one application is named", group.to_owned()))
        }
    }
}

/// Whether a CER that came in clear offers what we speak, which is TLS before any message or none (RFC 6733 §5.3,
/// §6.10: no Inband-Security-Id is NO_INBAND_SECURITY).
///
/// # Errors
/// 5017: it wants TLS to begin after the exchange.
pub fn check_inband_security(avps: Avps<'_>) -> Result<(), Fault> {
    const NO_INBAND_SECURITY: u32 = 0;
    let mut asked = avps.all(codes::INBAND_SECURITY_ID).peekable();
    if asked.peek().is_none() || asked.any(|a| a.u32() == Ok(NO_INBAND_SECURITY)) {
        return Ok(());
    }
    Err(Fault::new(ResultCode::NO_COMMON_SECURITY, "no TLS begins within a connection"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node() -> Capabilities {
        Capabilities {
            host: "a.example".into(),
            realm: "example".into(),
            addresses: vec!["192.0.2.1".parse().unwrap(), "2001:db8::1".parse().unwrap()],
            vendor: 0,
            product: "test".into(),
            firmware: Some(3),
            origin_state: Some(7),
            applications: vec![
                Application::auth(5),
                Application::acct(3),
                Application { id: 16_777_251, accounting: false, vendor: 10_415 },
            ],
        }
    }

    #[test]
    fn capabilities_survive_the_wire() {
        let mut out = AvpBuf::new();
        node().emit(Some("192.0.2.9".parse().unwrap()), &mut out);
        assert_eq!(Capabilities::parse(out.view()).unwrap(), node());
    }

    /// RFC 6733 §5.3.6.
    #[test]
    fn a_vendor_is_named_once_and_the_ietf_is_none() {
        let mut capabilities = node();
        for id in [1, 2] {
            capabilities.applications.push(Application { id, accounting: false, vendor: 10_415 });
        }
        let mut out = AvpBuf::new();
        capabilities.emit(None, &mut out);
        let vendors: Vec<_> = out.view().all(codes::SUPPORTED_VENDOR_ID).map(|a| a.u32()).collect();
        assert_eq!(vendors, [Ok(10_415)]);
    }

    #[test]
    fn common_applications() {
        let a = node();
        let mut b = node();
        b.applications = vec![Application::auth(1)];
        assert_eq!(a.check_common(&b).unwrap_err().code, ResultCode::NO_COMMON_APPLICATION);
        // Neither the AVP that names it nor the vendor matters.
        for common in [Application::acct(5), Application { id: 5, accounting: false, vendor: 9 }] {
            b.applications = vec![common];
            assert_eq!(a.check_common(&b), Ok(()));
        }
        b.applications = vec![Application::auth(application::RELAY)];
        assert!(a.check_common(&b).is_ok());
    }

    #[test]
    fn a_missing_avp_is_named() {
        let mut out = AvpBuf::new();
        out.push_str(codes::ORIGIN_HOST, "a.example");
        let fault = Capabilities::parse(out.view()).unwrap_err();
        assert_eq!((fault.code, fault.avp.unwrap().code), (ResultCode::MISSING_AVP, 296));
    }
}
