//! Exact names in a certificate.

use alloc::vec::Vec;
use core::net::IpAddr;
use x509_parser::certificate::X509Certificate;
use x509_parser::extensions::GeneralName;
use x509_parser::prelude::FromDer;

/// A name of one kind in a certificate.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CertificateSubjectName<'a> {
    /// A domain name in the subjectAltName. Case is ignored.
    Dns(&'a str),
    /// A mail address in the subjectAltName. Case is ignored in its domain (RFC 5280 §4.2.1.6, §7.5).
    Mail(&'a str),
    /// An IP address in the subjectAltName.
    Address(IpAddr),
    /// The subject in DER, compared octet by octet.
    Subject(&'a [u8]),
}

/// True if a DER certificate has this name in its subjectAltName (RFC 5280 §4.2.1.6) or as its subject. A common name
/// does not count as a domain name, and `*` has no special meaning. An unreadable certificate has no names.
#[must_use]
pub fn has_subject_name(certificate: &[u8], name: CertificateSubjectName<'_>) -> bool {
    let Ok((_, certificate)) = X509Certificate::from_der(certificate) else { return false };
    if let CertificateSubjectName::Subject(der) = name {
        return certificate.subject().as_raw() == der;
    }
    let Ok(Some(alternative)) = certificate.subject_alternative_name() else { return false };
    alternative.value.general_names.iter().any(|general| match (general, name) {
        (GeneralName::DNSName(one), CertificateSubjectName::Dns(other)) => one.eq_ignore_ascii_case(other),
        (GeneralName::RFC822Name(one), CertificateSubjectName::Mail(other)) => is_same_mailbox(one, other),
        (GeneralName::IPAddress(octets), CertificateSubjectName::Address(address)) => match address {
            IpAddr::V4(v4) => *octets == v4.octets(),
            IpAddr::V6(v6) => *octets == v6.octets(),
        },
        _ => false,
    })
}

/// True if two mail addresses are the same mailbox. Case is ignored in the domain and significant before it. Names
/// without a domain are compared octet by octet.
pub(super) fn is_same_mailbox(one: &str, other: &str) -> bool {
    match (one.rsplit_once('@'), other.rsplit_once('@')) {
        (Some((one, of)), Some((other, at))) => one == other && of.eq_ignore_ascii_case(at),
        _ => one == other,
    }
}

/// Returns the DER subject of a DER certificate, its name if it has no other. `None`: the certificate is unreadable.
#[must_use]
pub fn subject_der(certificate: &[u8]) -> Option<Vec<u8>> {
    let (_, certificate) = X509Certificate::from_der(certificate).ok()?;
    Some(certificate.subject().as_raw().to_vec())
}

/// Returns the SHA-1 hash of the SubjectPublicKeyInfo of a DER certificate, by which IKEv2 names authorities (RFC 7296
/// §3.7). `None`: the certificate is unreadable.
#[must_use]
pub fn public_key_hash(certificate: &[u8]) -> Option<[u8; 20]> {
    let (_, certificate) = X509Certificate::from_der(certificate).ok()?;
    Some(crate::digest::sha1(&[certificate.public_key().raw]))
}

/// IKE (RFC 4945 §5.1.3.12).
const IPSEC_IKE: &str = "1.3.6.1.5.5.7.3.17";

/// True if a DER certificate may prove its subject's identity in IKE. A key usage extension must allow signing. An
/// extended key usage extension must include IKE, TLS or any purpose. An unreadable certificate may prove nothing.
#[must_use]
pub fn key_usage_allows_ike_identity(certificate: &[u8]) -> bool {
    let Ok((_, certificate)) = X509Certificate::from_der(certificate) else { return false };
    let signs = certificate.key_usage().is_ok_and(|usage| {
        usage.is_none_or(|usage| usage.value.digital_signature() || usage.value.non_repudiation())
    });
    signs && extended_usage_allows_ike(&certificate)
}

/// True if a DER authority certificate may be an intermediate for IKE. An extended key usage extension must include
/// IKE, TLS or any purpose (RFC 5280 §4.2.1.12).
#[must_use]
pub fn may_issue_for_ike(certificate: &[u8]) -> bool {
    X509Certificate::from_der(certificate)
        .is_ok_and(|(_, certificate)| extended_usage_allows_ike(&certificate))
}

fn extended_usage_allows_ike(certificate: &X509Certificate<'_>) -> bool {
    certificate.extended_key_usage().is_ok_and(|usage| {
        usage.is_none_or(|usage| {
            let usage = usage.value;
            let ike = usage.other.iter().any(|oid| oid.to_id_string() == IPSEC_IKE);
            usage.any || usage.server_auth || usage.client_auth || ike
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use rcgen::{
        CertificateParams, DnType, ExtendedKeyUsagePurpose as Extended, KeyPair, KeyUsagePurpose as Usage,
        SanType,
    };

    #[test]
    fn a_certificate_proves_identity_only_by_a_suitable_key_usage() {
        let fits = |usages: &[Usage], extended: &[Extended]| {
            let mut params = CertificateParams::new(vec!["gw.test".into()]).unwrap();
            params.key_usages = usages.to_vec();
            params.extended_key_usages = extended.to_vec();
            key_usage_allows_ike_identity(params.self_signed(&KeyPair::generate().unwrap()).unwrap().der())
        };
        let ike = Extended::Other(vec![1, 3, 6, 1, 5, 5, 7, 3, 17]);
        assert!(fits(&[], &[]) && fits(&[Usage::DigitalSignature], &[ike, Extended::CodeSigning]));
        assert!(fits(&[Usage::ContentCommitment], &[Extended::ServerAuth]) && fits(&[], &[Extended::Any]));
        assert!(!fits(&[Usage::KeyEncipherment], &[]) && !fits(&[], &[Extended::CodeSigning]));
        assert!(!key_usage_allows_ike_identity(&[0x30, 0]) && !may_issue_for_ike(&[0x30, 0]));
    }

    #[test]
    fn an_authority_may_issue_for_ike_unless_it_says_for_whom_else() {
        let may = |extended: &[Extended]| {
            let mut params = CertificateParams::new(vec!["authority.test".into()]).unwrap();
            params.key_usages = vec![Usage::KeyCertSign];
            params.extended_key_usages = extended.to_vec();
            may_issue_for_ike(params.self_signed(&KeyPair::generate().unwrap()).unwrap().der())
        };
        assert!(may(&[]) && may(&[Extended::ClientAuth]) && may(&[Extended::EmailProtection, Extended::Any]));
        assert!(!may(&[Extended::EmailProtection]) && !may(&[Extended::OcspSigning]));
    }

    #[test]
    fn a_certificate_is_of_the_users_that_it_names_and_no_others() {
        let mut params = CertificateParams::new(vec!["pc1.test".into()]).unwrap();
        params.distinguished_name.push(DnType::CommonName, "bob");
        params.subject_alt_names.push(SanType::Rfc822Name("ann@gw.test".try_into().unwrap()));
        let said = params.self_signed(&KeyPair::generate().unwrap()).unwrap();
        let said = crate::x509::CertificateInfo::of_der(said.der()).unwrap();
        for right in ["bob", "ann@gw.test", "ann@GW.test", "PC1.test", "host/pc1.TEST"] {
            assert!(said.is_of(right), "{right}");
        }
        for wrong in ["BOB", "host/bob", "Ann@gw.test", "host/ann@gw.test", "ann", "host/", "", "pc1"] {
            assert!(!said.is_of(wrong), "{wrong}");
        }
        // The name for a peer that gave none.
        let user = |realm| said.user_name(realm).unwrap();
        assert_eq!(
            (user(Some("GW.test")), user(Some("other.test")), user(None)),
            ("ann@gw.test".into(), "bob".into(), "bob".into())
        );
    }

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
            CertificateSubjectName::Dns("GW.test"),
            CertificateSubjectName::Mail("ann@gw.test"),
            CertificateSubjectName::Mail("ann@GW.Test"),
            CertificateSubjectName::Address("192.0.2.1".parse().unwrap()),
            CertificateSubjectName::Subject(&subject),
        ] {
            assert!(has_subject_name(der, right), "{right:?}");
            assert!(!has_subject_name(&der[1..], right), "{right:?}");
        }
        for wrong in [
            CertificateSubjectName::Dns("common.test"),
            CertificateSubjectName::Dns("ann@gw.test"),
            CertificateSubjectName::Mail("gw.test"),
            CertificateSubjectName::Mail("Ann@gw.test"),
            CertificateSubjectName::Address("2001:db8::1".parse().unwrap()),
            CertificateSubjectName::Subject(&subject[1..]),
        ] {
            assert!(!has_subject_name(der, wrong), "{wrong:?}");
        }
    }
}
