//! What a certificate says.

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

/// The user principal name (Microsoft), an otherName of the subject's alternative names.
const UPN: &str = "1.3.6.1.4.1.311.20.2.3";

/// What a certificate says, as far as a server or its operator asks.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CertificateInfo {
    /// The subject, in the form of RFC 4514.
    pub subject: String,
    /// Whom it may be taken for: common names, then alternative names (DNS, mail, UPN).
    pub names: Vec<String>,
    /// Those of them that are common names.
    pub common_names: Vec<String>,
    /// Those of them that are DNS names.
    pub dns_names: Vec<String>,
    /// Who issued it.
    pub issuer: String,
    /// Its number, hexadecimal.
    pub serial: String,
    /// From when on it holds.
    pub not_before: WallTime,
    /// Until when it holds.
    pub not_after: WallTime,
    /// It may issue others.
    pub authority: bool,
    /// Where its status can be asked (authority information access, RFC 5280 §4.2.2.1).
    pub ocsp: Vec<String>,
    /// Where its issuer's revocation list can be fetched (distribution points, RFC 5280 §4.2.1.13).
    pub crl: Vec<String>,
}

impl CertificateInfo {
    /// Reads a certificate in DER.
    ///
    /// # Errors
    /// It is none.
    pub fn of_der(der: &[u8]) -> Result<Self, X509Error> {
        let (_, certificate) = X509Certificate::from_der(der).map_err(|e| x509_error("certificate", e))?;
        Ok(Self::from_certificate(&certificate))
    }

    /// Reads the first certificate of a PEM text.
    ///
    /// # Errors
    /// There is none.
    pub fn of_pem(pem: &[u8]) -> Result<Self, X509Error> {
        let pem = Pem::iter_from_buffer(pem)
            .filter_map(Result::ok)
            .find(|p| p.label == "CERTIFICATE")
            .ok_or_else(|| x509_error("certificate", "no certificate in the PEM text"))?;
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
                // A list that another than the issuer signs is named with who that is.
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

    /// The user whom the certificate names where the peer has said no name, but perhaps a realm (RFC 9190 §2.1.8): a name of that realm,
    /// or else a common name, or else a machine by its DNS name.
    #[must_use]
    pub fn user_name(&self, realm: Option<&str>) -> Option<String> {
        let of_realm = |name: &&String| {
            let own = name.rsplit_once('@').map(|(_, own)| own);
            own.zip(realm).is_some_and(|(own, realm)| own.eq_ignore_ascii_case(realm))
        };
        let named = self.names.iter().find(of_realm).or_else(|| self.common_names.first()).cloned();
        named.or_else(|| self.dns_names.first().map(|name| alloc::format!("host/{name}")))
    }

    /// Whether the certificate is of this user: one of its names is the user's, realm included. Letter case means nothing in a domain
    /// (RFC 4343, RFC 5280 §7.5), and something before its `@` and in a common name. A machine that calls itself `host/NAME` is known
    /// by its DNS name alone.
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
            // [0] EXPLICIT UTF8String: two headers of two octets, since such names are short.
            value.get(4..).and_then(|text| core::str::from_utf8(text).ok()).map(str::to_owned)
        }
        _ => None,
    }
}
