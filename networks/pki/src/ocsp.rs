//! Asking an issuer whether a certificate still holds (OCSP, RFC 6960; nonces by RFC 8954).

mod answer;
mod asking;
#[cfg(test)]
mod tests;

pub use asking::{NonceSource, OcspClient, OcspFailure, OcspUnavailable, StatusQuery};

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
/// Octets of a nonce (RFC 8954 §2.1).
pub const NONCE_LEN: usize = 32;
/// The longest answer that is read.
const MAX_ANSWER: u64 = 64 * 1024;

/// What the issuer says.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum OcspStatus {
    /// It holds.
    Good,
    /// It was taken back.
    Revoked,
    /// The responder does not know it.
    Unknown,
}

/// A status, and how long it can be relied on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct StatusResponse {
    /// What the issuer says.
    pub status: OcspStatus,
    /// When it will say more (nextUpdate, RFC 6960 §4.2.2.1); `None`: at any time.
    pub next_update: Option<WallTime>,
}

/// Why there is no status.
#[derive(Debug, thiserror::Error)]
pub enum OcspError {
    /// Nothing that OCSP's transport over HTTP knows came from the responder in time (RFC 6960 appendix A): it would
    /// answer no other question either.
    #[error("OCSP responder {url}: {cause}")]
    Silent {
        /// Whom nothing came from.
        url: String,
        /// Why.
        cause: String,
    },
    /// An answer came that is no status, or that cannot be believed.
    #[error(transparent)]
    Unbelieved(#[from] PkiError),
}

/// A question about one certificate.
#[derive(Clone, Copy)]
pub struct OcspQuery<'a> {
    /// The certificate, DER.
    pub certificate: &'a [u8],
    /// Its issuer's, DER: of a path that was verified. Whose key signs here is believed, so that it must not be taken
    /// from whoever shows the certificate for its name alone.
    pub issuer: &'a [u8],
    /// Now.
    pub now: WallTime,
    /// What nobody can guess, made for this question (RFC 8954 §3.2). `None`: the answer is for others to see, too, or was made for
    /// somebody else, so that a nonce in it says nothing.
    pub nonce: Option<[u8; NONCE_LEN]>,
    /// Whether a responder's certificate, DER, that the issuer signed for this purpose is valid: of now, on no revocation
    /// list, with no critical extension that is not understood (RFC 5280 §6).
    pub appointed: &'a dyn Fn(&[u8]) -> bool,
}

impl std::fmt::Debug for OcspQuery<'_> {
    /// Without the nonce.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Question").field("now", &self.now).finish_non_exhaustive()
    }
}

impl OcspQuery<'_> {
    /// Asks the responder at `url`. Blocks for at most `timeout`.
    ///
    /// The answer is believed when the issuer signed it, or a certificate that the issuer gave for this purpose
    /// (id-kp-OCSPSigning) and that is `appointed`; when it is about this certificate; when it is of now; and when the
    /// nonce in it, if there is one, is that of the question (RFC 6960 §3.2).
    ///
    /// # Errors
    /// No answer that can be believed came; whether the certificate is then taken is the caller's policy.
    pub fn send_query(&self, url: &str, timeout: Duration) -> Result<StatusResponse, OcspError> {
        self.fetch_response(url, timeout).map(|(answer, _)| answer)
    }

    /// The same, with the answer as it came, DER, which can be shown to others.
    ///
    /// # Errors
    /// The same.
    pub fn fetch_response(
        &self,
        url: &str,
        timeout: Duration,
    ) -> Result<(StatusResponse, Vec<u8>), OcspError> {
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

    /// What an answer says, DER, that somebody else has asked for and shows.
    ///
    /// # Errors
    /// It is none that can be believed.
    pub fn read_response(&self, answer: &[u8]) -> Result<StatusResponse, PkiError> {
        answer::read_response(answer, self, &self.build_request()?)
    }

    /// What is sent, and what the answer has to repeat of it.
    fn build_request(&self) -> Result<SentRequest, PkiError> {
        let (_, subject) =
            X509Certificate::from_der(self.certificate).map_err(|e| format_error("certificate", e))?;
        let (_, issuer) =
            X509Certificate::from_der(self.issuer).map_err(|e| format_error("issuer's certificate", e))?;
        let fault = |e: der::Error| format_error("OCSP request", e);
        let digest = |octets: &[u8]| OctetString::new(Sha1::digest(octets).to_vec()).map_err(fault);
        // SHA-1 names an issuer here and proves nothing; responders know no other (RFC 5019 §2.1.1).
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

/// A question as it was sent.
struct SentRequest {
    request: Vec<u8>,
    /// Names the certificate.
    id: CertId,
    /// The nonce as an extension's value, an octet string, where there is one.
    nonce: Option<Vec<u8>>,
}

fn hash_algorithm<T>(oid: ObjectIdentifier) -> der::Result<T>
where
    T: for<'a> Decode<'a>,
{
    // SEQUENCE { OID, NULL }: the type's crate is not one of ours to name.
    let content = [oid.to_der()?, Any::from(Null).to_der()?].concat();
    T::from_der(&der_element(0x30, &content))
}

/// A DER INTEGER of these octets; a serial number has at most 20 of them (RFC 5280 §4.1.2.2).
fn der_integer(octets: &[u8]) -> Vec<u8> {
    der_element(2, &octets[..octets.len().min(127)])
}
