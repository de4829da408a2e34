//! Whom a certificate names, exactly.

use core::net::IpAddr;
use x509_parser::certificate::X509Certificate;
use x509_parser::extensions::GeneralName;
use x509_parser::prelude::FromDer;

/// A name of one kind, as a certificate may bear it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SubjectName<'a> {
    /// A domain name, among its alternative names. Letter case means nothing.
    Dns(&'a str),
    /// A mail address, among its alternative names. Letter case means nothing.
    Mail(&'a str),
    /// An address, among its alternative names.
    Address(IpAddr),
    /// Its subject, DER, octet for octet.
    Subject(&'a [u8]),
}

/// Whether a certificate (DER) bears this name: in its alternative names (RFC 5280 §4.2.1.6), or as its subject. A common name
/// is no domain name here, nor does a `*` stand for any. One that cannot be read bears none.
#[must_use]
pub fn bears(certificate: &[u8], name: SubjectName<'_>) -> bool {
    let Ok((_, certificate)) = X509Certificate::from_der(certificate) else { return false };
    if let SubjectName::Subject(der) = name {
        return certificate.subject().as_raw() == der;
    }
    let Ok(Some(alternative)) = certificate.subject_alternative_name() else { return false };
    alternative.value.general_names.iter().any(|general| match (general, name) {
        (GeneralName::DNSName(one), SubjectName::Dns(other))
        | (GeneralName::RFC822Name(one), SubjectName::Mail(other)) => one.eq_ignore_ascii_case(other),
        (GeneralName::IPAddress(octets), SubjectName::Address(address)) => match address {
            IpAddr::V4(v4) => *octets == v4.octets(),
            IpAddr::V6(v6) => *octets == v6.octets(),
        },
        _ => false,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use rcgen::{CertificateParams, DnType, KeyPair, SanType};

    #[test]
    fn a_certificate_bears_the_names_that_it_has_and_no_others() {
        let mut params = CertificateParams::new(vec!["gw.test".into()]).unwrap();
        params.distinguished_name.push(DnType::CommonName, "common.test");
        params.subject_alt_names.push(SanType::Rfc822Name("ann@gw.test".try_into().unwrap()));
        params.subject_alt_names.push(SanType::IpAddress("192.0.2.1".parse().unwrap()));
        let certificate = params.self_signed(&KeyPair::generate().unwrap()).unwrap();
        let der = certificate.der();
        let (_, parsed) = X509Certificate::from_der(der).unwrap();
        let subject = parsed.subject().as_raw().to_vec();
        for right in [
            SubjectName::Dns("GW.test"),
            SubjectName::Mail("ann@gw.test"),
            SubjectName::Address("192.0.2.1".parse().unwrap()),
            SubjectName::Subject(&subject),
        ] {
            assert!(bears(der, right), "{right:?}");
            assert!(!bears(&der[1..], right), "{right:?}");
        }
        for wrong in [
            SubjectName::Dns("common.test"),
            SubjectName::Dns("ann@gw.test"),
            SubjectName::Mail("gw.test"),
            SubjectName::Address("2001:db8::1".parse().unwrap()),
            SubjectName::Subject(&subject[1..]),
        ] {
            assert!(!bears(der, wrong), "{wrong:?}");
        }
    }
}
