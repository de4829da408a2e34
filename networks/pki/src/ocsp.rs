//! Queries of a certificate's status (OCSP, RFC 6960; nonces by RFC 8954).

mod answer;
mod asking;
#[cfg(test)]
mod tests;

pub use asking::{CertificateStatusQuery, OcspClient, OcspFailureKind, OcspNonceGenerator, OcspUnavailable};

use crate::PkiError;
use crate::authority::der_element;
use crate::format_error;
use crate::http;
use der::asn1::{Null, ObjectIdentifier, OctetString};
use der::{Any, Decode, Encode};
use sha1::{Digest, Sha1};
use std::time::Duration;
use usher_core::WallTime;
use x509_ocsp::{CertId, OcspRequest, Request, TbsRequest, Version};
use x509_parser::certificate::X509Certificate;
use x509_parser::prelude::FromDer;

const SHA1: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.3.14.3.2.26");
/// id-pkix-ocsp-nonce (RFC 8954 §2.1).
const NONCE: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.3.6.1.5.5.7.48.1.2");
/// The octets of a nonce (RFC 8954 §2.1).
pub const NONCE_LEN: usize = 32;
/// The longest response that is read, in octets.
const MAX_ANSWER: u64 = 64 * 1024;

/// The status of a certificate.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum OcspStatus {
    /// It is not revoked.
    Good,
    /// It is revoked.
    Revoked,
    /// The responder does not know it.
    Unknown,
}

/// A status with its validity.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct OcspStatusWithValidity {
    /// The status.
    pub status: OcspStatus,
    /// The time of the next update (nextUpdate, RFC 6960 §4.2.2.1). `None`: newer information is always available.
    pub next_update: Option<WallTime>,
}

/// Why there is no status.
#[derive(Debug, thiserror::Error)]
pub enum OcspError {
    /// No valid OCSP response over HTTP arrived in time (RFC 6960 appendix A). The responder would not answer another
    /// query either.
    #[error("OCSP responder {url}: {cause}")]
    Silent {
        /// The responder's URL.
        url: String,
        /// The cause.
        cause: String,
    },
    /// The response has no status, or failed verification.
    #[error(transparent)]
    Unbelieved(#[from] PkiError),
}

/// A query about one certificate.
#[derive(Clone, Copy)]
pub struct OcspQuery<'a> {
    /// The certificate, DER.
    pub certificate: &'a [u8],
    /// The issuer's certificate of a verified path, DER. Its key is trusted for the response, so a certificate of the
    /// peer with the same name is not enough.
    pub issuer: &'a [u8],
    /// The current time.
    pub now: WallTime,
    /// An unpredictable nonce, made for this query (RFC 8954 §3.2). `None`: the response is for stapling, or was
    /// requested by another party, so its nonce proves nothing.
    pub nonce: Option<[u8; NONCE_LEN]>,
    /// Verifies a responder's certificate, DER, that the issuer signed for this purpose. It must be current, on no
    /// revocation list, and without unknown critical extensions (RFC 5280 §6).
    pub appointed: &'a dyn Fn(&[u8]) -> bool,
}

impl std::fmt::Debug for OcspQuery<'_> {
    /// Leaves out the nonce.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Question").field("now", &self.now).finish_non_exhaustive()
    }
}

impl OcspQuery<'_> {
    /// Queries the responder at `url`. Blocks for at most `timeout`.
    ///
    /// RFC 6960 §3.2: a valid response meets these conditions.
    ///
    /// - The issuer signed it, or a certificate that the issuer made for this purpose (id-kp-OCSPSigning) and that is
    ///   `appointed`.
    /// - It is about this certificate, and current.
    /// - Its nonce, if any, is that of the query.
    ///
    /// # Errors
    /// No valid response. The caller's policy then decides on the certificate.
    pub fn send_query(&self, url: &str, timeout: Duration) -> Result<OcspStatusWithValidity, OcspError> {
        self.fetch_response(url, timeout).map(|(answer, _)| answer)
    }

    /// Like [`send_query`](Self::send_query), with the response in DER for stapling.
    ///
    /// # Errors
    /// As for [`send_query`](Self::send_query).
    pub fn fetch_response(
        &self,
        url: &str,
        timeout: Duration,
    ) -> Result<(OcspStatusWithValidity, Vec<u8>), OcspError> {
        let asked = self.build_request()?;
        let answer = http::http_agent(timeout)
            .post(url)
            .header("Content-Type", "application/ocsp-request")
            .header("Accept", "application/ocsp-response")
            .send(&asked.request[..]);
        let octets = http::body_octets(answer, MAX_ANSWER)
            .map_err(|cause| OcspError::Silent { url: url.to_owned(), cause })?;
        Ok((answer::read_response(&octets, self, &asked)?, octets))
    }

    /// Verifies a stapled response, DER.
    ///
    /// # Errors
    /// The response is not valid.
    pub fn read_response(&self, answer: &[u8]) -> Result<OcspStatusWithValidity, PkiError> {
        answer::read_response(answer, self, &self.build_request()?)
    }

    /// Builds the request, and the values that the response must repeat.
    fn build_request(&self) -> Result<SentRequest, PkiError> {
        let (_, subject) = X509Certificate::from_der(self.certificate)
            .map_err(|e| format_error("cannot parse the certificate", e))?;
        let (_, issuer) = X509Certificate::from_der(self.issuer)
            .map_err(|e| format_error("cannot parse the issuer's certificate", e))?;
        let fault = |e: der::Error| format_error("cannot build the OCSP request", e);
        let digest = |octets: &[u8]| OctetString::new(Sha1::digest(octets).to_vec()).map_err(fault);
        // SHA-1 is safe here, because it only identifies the issuer. Responders support no other hash here (RFC 5019
        // §2.1.1).
        let id = CertId {
            hash_algorithm: hash_algorithm(SHA1).map_err(fault)?,
            issuer_name_hash: digest(subject.issuer().as_raw())?,
            issuer_key_hash: digest(&issuer.public_key().subject_public_key.data)?,
            serial_number: Decode::from_der(&der_integer(subject.raw_serial())).map_err(fault)?,
        };
        let nonce = self.nonce.map(|nonce| der_element(0x04, &nonce));
        let identifier = NONCE.to_der().map_err(fault)?;
        let extensions = nonce.as_ref().map(|nonce| {
            der_element(0x30, &der_element(0x30, &[identifier, der_element(0x04, nonce)].concat()))
        });
        let extensions = extensions.map(|extensions| Decode::from_der(&extensions).map_err(fault));
        let single = Request { req_cert: id.clone(), single_request_extensions: None };
        let request = OcspRequest {
            tbs_request: TbsRequest {
                version: Version::V1,
                requestor_name: None,
                request_list: vec![single],
                request_extensions: extensions.transpose()?,
            },
            optional_signature: None,
        };
        Ok(SentRequest { request: request.to_der().map_err(fault)?, id, nonce })
    }
}

/// A sent request.
struct SentRequest {
    request: Vec<u8>,
    /// Identifies the certificate.
    id: CertId,
    /// The nonce as an extension value, an octet string, if there is one.
    nonce: Option<Vec<u8>>,
}

fn hash_algorithm<T>(oid: ObjectIdentifier) -> der::Result<T>
where
    T: for<'a> Decode<'a>,
{
    // Encode the SEQUENCE { OID, NULL } by hand, because the crate that has this type is not a dependency.
    let content = [oid.to_der()?, Any::from(Null).to_der()?].concat();
    T::from_der(&der_element(0x30, &content))
}

/// Encodes a DER INTEGER. A serial number has at most 20 octets (RFC 5280 §4.1.2.2).
fn der_integer(octets: &[u8]) -> Vec<u8> {
    der_element(2, &octets[..octets.len().min(127)])
}
