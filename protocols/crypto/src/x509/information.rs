//! The contents of a certificate.

use super::name::is_same_mailbox;
use super::{X509Error, x509_error};
use alloc::borrow::ToOwned;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use usher_core::WallTime;
use x509_parser::certificate::X509Certificate;
use x509_parser::extensions::{DistributionPointName, GeneralName, ParsedExtension};
use x509_parser::oid_registry::OID_PKIX_ACCESS_DESCRIPTOR_OCSP;
use x509_parser::pem::Pem;
use x509_parser::prelude::FromDer;

/// The user principal name (Microsoft), an otherName in the subjectAltName.
const UPN: &str = "1.3.6.1.4.1.311.20.2.3";

/// The parts of a certificate that a server or its operator needs.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CertificateInfo {
    /// The subject, in the form of RFC 4514.
    pub subject: String,
    /// The names of its subject: common names, then alternative names (DNS, mail, UPN).
    pub names: Vec<String>,
    /// The common names among them.
    pub common_names: Vec<String>,
    /// The DNS names among them.
    pub dns_names: Vec<String>,
    /// The issuer.
    pub issuer: String,
    /// The serial number, hexadecimal.
    pub serial: String,
    /// The start of its validity.
    pub not_before: WallTime,
    /// The end of its validity.
    pub not_after: WallTime,
    /// True if it may issue certificates.
    pub authority: bool,
    /// The addresses of its OCSP responders (authority information access, RFC 5280 §4.2.2.1).
    pub ocsp: Vec<String>,
    /// The addresses of its issuer's revocation list (distribution points, RFC 5280 §4.2.1.13).
    pub crl: Vec<String>,
}

impl CertificateInfo {
    /// Reads a DER certificate.
    ///
    /// # Errors
    /// If it is not a certificate.
    pub fn of_der(der: &[u8]) -> Result<Self, X509Error> {
        let (_, certificate) =
            X509Certificate::from_der(der).map_err(|e| x509_error("cannot read the certificate", e))?;
        Ok(Self::from_certificate(&certificate))
    }

    /// Reads the first certificate of a PEM text.
    ///
    /// # Errors
    /// If there is none.
    pub fn from_first_pem_certificate(pem: &[u8]) -> Result<Self, X509Error> {
        let pem = Pem::iter_from_buffer(pem)
            .filter_map(Result::ok)
            .find(|p| p.label == "CERTIFICATE")
            .ok_or_else(|| x509_error("cannot read the certificate", "no certificate in the PEM text"))?;
        Self::of_der(&pem.contents)
    }

    fn from_certificate(certificate: &X509Certificate<'_>) -> Self {
        let mut names: Vec<String> = certificate
            .subject()
            .iter_common_name()
            .filter_map(|n| n.as_str().ok())
            .map(String::from)
            .collect();
        let common_names = names.clone();
        let mut dns_names = Vec::new();
        if let Ok(Some(alternative)) = certificate.subject_alternative_name() {
            let all = &alternative.value.general_names;
            names.extend(all.iter().filter_map(general_name));
            dns_names.extend(all.iter().filter_map(|one| match one {
                GeneralName::DNSName(name) => Some((*name).to_owned()),
                _ => None,
            }));
        }
        let (mut ocsp, mut crl) = (Vec::new(), Vec::new());
        for extension in certificate.extensions() {
            if let ParsedExtension::CRLDistributionPoints(points) = extension.parsed_extension() {
                // RFC 5280, 4.2.1.13: a distribution point with a cRLIssuer has a list of another signer.
                for point in points.points.iter().filter(|point| point.crl_issuer.is_none()) {
                    if let Some(DistributionPointName::FullName(names)) = &point.distribution_point {
                        let uri = |name: &GeneralName<'_>| match name {
                            GeneralName::URI(uri) => Some((*uri).to_owned()),
                            _ => None,
                        };
                        crl.extend(names.iter().filter_map(uri));
                    }
                }
            }
            if let ParsedExtension::AuthorityInfoAccess(access) = extension.parsed_extension() {
                for description in &access.accessdescs {
                    if description.access_method == OID_PKIX_ACCESS_DESCRIPTOR_OCSP
                        && let GeneralName::URI(uri) = description.access_location
                    {
                        ocsp.push(uri.to_owned());
                    }
                }
            }
        }
        let seconds = |t: i64| WallTime::from_unix_secs(u64::try_from(t).unwrap_or(0));
        Self {
            subject: certificate.subject().to_string(),
            names,
            common_names,
            dns_names,
            issuer: certificate.issuer().to_string(),
            serial: certificate.raw_serial().iter().map(|b| alloc::format!("{b:02x}")).collect(),
            not_before: seconds(certificate.validity().not_before.timestamp()),
            not_after: seconds(certificate.validity().not_after.timestamp()),
            authority: certificate.is_ca(),
            ocsp,
            crl,
        }
    }

    /// Returns the user name of the certificate, for a peer that gave at most a realm (RFC 9190 §2.1.8). It is a name
    /// in that realm, else a common name, else the DNS name of a machine.
    #[must_use]
    pub fn user_name(&self, realm: Option<&str>) -> Option<String> {
        let of_realm = |name: &&String| {
            let own = name.rsplit_once('@').map(|(_, own)| own);
            own.zip(realm).is_some_and(|(own, realm)| own.eq_ignore_ascii_case(realm))
        };
        let named = self.names.iter().find(of_realm).or_else(|| self.common_names.first()).cloned();
        named.or_else(|| self.dns_names.first().map(|name| alloc::format!("host/{name}")))
    }

    /// True if the certificate belongs to this user: one of its names equals the user name, including the realm.
    ///
    /// Domains ignore case (RFC 4343, RFC 5280 §7.5); the part before `@` and common names do not. A machine that logs
    /// in as `host/NAME` matches only a DNS name.
    #[must_use]
    pub fn is_of(&self, user: &str) -> bool {
        let is_dns = |host: &str| self.dns_names.iter().any(|name| name.eq_ignore_ascii_case(host));
        match user.strip_prefix("host/") {
            Some(host) => is_dns(host),
            None => is_dns(user) || self.names.iter().any(|name| is_same_mailbox(name, user)),
        }
    }
}

fn general_name(general: &GeneralName<'_>) -> Option<String> {
    match general {
        GeneralName::DNSName(name) | GeneralName::RFC822Name(name) => Some((*name).to_owned()),
        GeneralName::OtherName(oid, value) if oid.to_id_string() == UPN => {
            // [0] EXPLICIT UTF8String: two headers of two octets, since these names are short.
            value.get(4..).and_then(|text| core::str::from_utf8(text).ok()).map(str::to_owned)
        }
        _ => None,
    }
}
