//! Revocation lists (RFC 5280 §5): their contents, and the replacement of a list by a later one.

use super::{X509Error, is_signature_valid, x509_error};
use crate::hmac::hmac_sha256;
use alloc::collections::BTreeSet;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use usher_core::WallTime;
use x509_parser::certificate::X509Certificate;
use x509_parser::oid_registry::OID_X509_EXT_ISSUER_DISTRIBUTION_POINT;
use x509_parser::pem::Pem;
use x509_parser::prelude::FromDer;
use x509_parser::revocation_list::CertificateRevocationList;

/// A revocation list, with the parts that a server or its operator needs.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RevocationList {
    /// The issuer of the listed certificates, in the form of RFC 4514.
    pub issuer: String,
    /// The time of issue.
    pub this_update: WallTime,
    /// The latest time of the next list, after which this one is out of date. RFC 5280 §5.1.2.5 requires it.
    pub next_update: Option<WallTime>,
    /// The number of revoked certificates.
    pub revoked: usize,
    /// The significant octets of cRLNumber (RFC 5280 §5.2.3).
    number: Option<Vec<u8>>,
    /// The encoded issuer, which is compared with a certificate's issuer.
    issuer_der: Vec<u8>,
    /// issuingDistributionPoint (RFC 5280 §5.2.5), which limits the list to some certificates of the issuer.
    scope: Option<Vec<u8>>,
    der: Vec<u8>,
}

impl RevocationList {
    /// Reads the lists of a file: one in DER, or any number in PEM.
    ///
    /// # Errors
    /// If there is none, or one is unreadable.
    pub fn parse_revocation_lists(octets: &[u8]) -> Result<Vec<Self>, X509Error> {
        // DER begins with the tag of a SEQUENCE. Any other file is PEM.
        if octets.first() == Some(&0x30) {
            return Ok(alloc::vec![Self::of_der(octets)?]);
        }
        let mut lists = Vec::new();
        for pem in Pem::iter_from_buffer(octets) {
            let pem = pem.map_err(|e| x509_error("cannot read the revocation list", e))?;
            lists.push(Self::of_der(&pem.contents)?);
        }
        if lists.is_empty() {
            return Err(x509_error("cannot read the revocation list", "neither DER nor PEM"));
        }
        Ok(lists)
    }

    /// Reads a DER list.
    ///
    /// # Errors
    /// If it is not a list.
    pub fn of_der(der: &[u8]) -> Result<Self, X509Error> {
        let list = parse_list(der)?;
        let seconds = |t: i64| WallTime::from_unix_secs(u64::try_from(t).unwrap_or(0));
        let scope = list.extensions().iter().find(|e| e.oid == OID_X509_EXT_ISSUER_DISTRIBUTION_POINT);
        Ok(Self {
            issuer: list.issuer().to_string(),
            issuer_der: list.issuer().as_raw().to_vec(),
            scope: scope.map(|extension| extension.value.to_vec()),
            this_update: seconds(list.last_update().timestamp()),
            next_update: list.next_update().map(|t| seconds(t.timestamp())),
            revoked: list.iter_revoked_certificates().count(),
            number: list.crl_number().map(|n| n.to_bytes_be()),
            der: der.to_vec(),
        })
    }

    /// The list in DER.
    #[must_use]
    pub fn der(&self) -> &[u8] {
        &self.der
    }

    /// Returns the revoked certificates, as [`certificate_name`] names them.
    pub fn revoked_certificates(&self) -> impl Iterator<Item = CertificateName> {
        let list = parse_list(&self.der);
        let serials = list.iter().flat_map(CertificateRevocationList::iter_revoked_certificates);
        let names: Vec<_> =
            serials.map(|revoked| hash_certificate_name(&self.issuer_der, revoked.raw_serial())).collect();
        names.into_iter()
    }

    /// Returns the cRLNumber (RFC 5280 §5.2.3) in hexadecimal, or an empty text if it has none.
    #[must_use]
    pub fn crl_number(&self) -> String {
        self.number.iter().flatten().map(|octet| alloc::format!("{octet:02x}")).collect()
    }

    /// True if the list is valid now: neither out of date nor issued in the future.
    #[must_use]
    pub fn is_list_current(&self, now: WallTime) -> bool {
        // Allows for clock differences.
        self.this_update <= now + usher_core::Duration::from_secs(300)
            && self.next_update.is_none_or(|end| now < end)
    }

    /// True if one of these DER certificates is the issuer's, may sign lists (RFC 5280 §4.2.1.3) and has signed this
    /// list.
    #[must_use]
    pub fn is_signed_by<'a>(&self, authorities: impl IntoIterator<Item = &'a [u8]>) -> bool {
        let Ok(list) = parse_list(&self.der) else { return false };
        authorities.into_iter().any(|der| {
            let Ok((_, authority)) = X509Certificate::from_der(der) else { return false };
            let may = authority.key_usage().ok().flatten().is_none_or(|usage| usage.value.crl_sign());
            may && authority.subject().as_raw() == list.issuer().as_raw()
                && is_signature_valid(
                    authority.public_key(),
                    &list.signature_algorithm,
                    &list.signature_value,
                    list.tbs_cert_list.as_ref(),
                )
        })
    }

    /// True if both lists cover the same certificates, so that one replaces the other. They have the same issuer name
    /// and the same scope (RFC 5280 §5.2.5).
    #[must_use]
    pub fn has_same_issuer_and_scope(&self, other: &Self) -> bool {
        self.issuer_der == other.issuer_der && self.scope == other.scope
    }

    /// True if every certificate on this list is also on another list of the same issuer.
    #[must_use]
    pub fn revokes_only_certificates_of(&self, other: &Self) -> bool {
        let (Ok(mine), Ok(theirs)) = (parse_list(&self.der), parse_list(&other.der)) else { return false };
        let known: BTreeSet<&[u8]> = theirs.iter_revoked_certificates().map(|c| c.raw_serial()).collect();
        self.has_same_issuer_and_scope(other)
            && mine.iter_revoked_certificates().all(|c| known.contains(c.raw_serial()))
    }

    /// True if this is a later list than the other, for the same certificates: neither older nor with a lower number,
    /// and not equal.
    #[must_use]
    pub fn supersedes_list(&self, other: &Self) -> bool {
        // The numbers have no leading zeros, so the longer one is greater.
        let order = |list: &Self| list.number.as_ref().map(|n| (n.len(), n.clone()));
        self.has_same_issuer_and_scope(other)
            && self.der != other.der
            && self.this_update >= other.this_update
            && order(self).is_none_or(|mine| order(other).is_none_or(|theirs| mine >= theirs))
    }
}

/// A short name of a certificate: 16 octets of a digest of issuer name and serial number, which are unique together
/// (RFC 5280 §4.1.2.2). It saves memory in large sets.
pub type CertificateName = [u8; 16];

/// Returns the name of a DER certificate.
///
/// # Errors
/// If it is not a certificate.
pub fn certificate_name(der: &[u8]) -> Result<CertificateName, X509Error> {
    let (_, certificate) =
        X509Certificate::from_der(der).map_err(|e| x509_error("cannot read the certificate", e))?;
    Ok(hash_certificate_name(certificate.issuer().as_raw(), certificate.raw_serial()))
}

fn hash_certificate_name(issuer: &[u8], serial: &[u8]) -> CertificateName {
    // The DER of the issuer has its own length, so the concatenation is unambiguous.
    let whole = hmac_sha256(b"issuer and serial number", &[issuer, serial]);
    core::array::from_fn(|n| whole[n])
}

fn parse_list(der: &[u8]) -> Result<CertificateRevocationList<'_>, X509Error> {
    match CertificateRevocationList::from_der(der) {
        Ok(([], list)) => Ok(list),
        Ok(_) => Err(x509_error("cannot read the revocation list", "octets follow it")),
        Err(error) => Err(x509_error("cannot read the revocation list", error)),
    }
}
