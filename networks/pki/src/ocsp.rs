//! Asking an issuer whether a certificate still holds (OCSP, RFC 6960).

use crate::PkiError;
use crate::information::format;
use der::asn1::{Null, ObjectIdentifier, OctetString};
use der::{Any, Decode, Encode};
use sha1::{Digest, Sha1};
use std::time::Duration;
use usher_core::WallTime;
use x509_ocsp::{BasicOcspResponse, CertId, CertStatus, OcspRequest, OcspResponse, OcspResponseStatus};
use x509_ocsp::{Request, TbsRequest, Version};
use x509_parser::certificate::X509Certificate;
use x509_parser::der_parser::asn1_rs;
use x509_parser::prelude::FromDer;
use x509_parser::verify::verify_signature;
use x509_parser::x509::AlgorithmIdentifier;

const SHA1: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.3.14.3.2.26");
/// The longest answer that is read.
const MAX_ANSWER: u64 = 64 * 1024;
/// How far clocks may differ.
const SKEW: u64 = 300;

/// What the issuer says.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Status {
    /// It holds.
    Good,
    /// It was taken back.
    Revoked,
    /// The responder does not know it.
    Unknown,
}

/// A status, and how long it can be relied on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Answer {
    /// What the issuer says.
    pub status: Status,
    /// When it will say more (nextUpdate, RFC 6960 §4.2.2.1); `None`: at any time.
    pub next_update: Option<WallTime>,
}

/// Asks the responder at `url` about a certificate; both certificates in DER. Blocks for at most `timeout`.
///
/// The answer is believed when the issuer signed it, or a certificate that the issuer gave for this purpose
/// (id-kp-OCSPSigning), when it is about this certificate, and when it is of now.
///
/// # Errors
/// No answer that can be believed came; whether the certificate is then taken is the caller's policy.
pub fn check(
    certificate: &[u8],
    issuer: &[u8],
    url: &str,
    now: WallTime,
    timeout: Duration,
) -> Result<Answer, PkiError> {
    let (request, id) = request(certificate, issuer)?;
    let agent: ureq::Agent = ureq::Agent::config_builder()
        .timeout_global(Some(timeout))
        .max_redirects(0)
        .proxy(None)
        .build()
        .into();
    let answer = agent
        .post(url)
        .header("Content-Type", "application/ocsp-request")
        .header("Accept", "application/ocsp-response")
        .send(&request[..])
        .and_then(|mut answer| answer.body_mut().with_config().limit(MAX_ANSWER).read_to_vec())
        .map_err(|e| format(&std::format!("OCSP responder {url}"), e))?;
    read(&answer, issuer, &id, now)
}

/// A request about one certificate, in DER, and what names it.
fn request(certificate: &[u8], issuer: &[u8]) -> Result<(Vec<u8>, CertId), PkiError> {
    let (_, subject) = X509Certificate::from_der(certificate).map_err(|e| format("certificate", e))?;
    let (_, issuer) = X509Certificate::from_der(issuer).map_err(|e| format("issuer's certificate", e))?;
    let fault = |e: der::Error| format("OCSP request", e);
    let digest = |octets: &[u8]| OctetString::new(Sha1::digest(octets).to_vec()).map_err(fault);
    let id = CertId {
        hash_algorithm: x509_ocsp_algorithm(SHA1).map_err(fault)?,
        issuer_name_hash: digest(issuer.subject().as_raw())?,
        issuer_key_hash: digest(&issuer.public_key().subject_public_key.data)?,
        serial_number: Decode::from_der(&integer(subject.raw_serial())).map_err(fault)?,
    };
    let single = Request { req_cert: id.clone(), single_request_extensions: None };
    let request = OcspRequest {
        tbs_request: TbsRequest {
            version: Version::V1,
            requestor_name: None,
            request_list: vec![single],
            request_extensions: None,
        },
        optional_signature: None,
    };
    Ok((request.to_der().map_err(fault)?, id))
}

fn x509_ocsp_algorithm<T>(oid: ObjectIdentifier) -> der::Result<T>
where
    T: for<'a> Decode<'a>,
{
    // SEQUENCE { OID, NULL }: the type's crate is not one of ours to name.
    let content = [oid.to_der()?, Any::from(Null).to_der()?].concat();
    let mut sequence = vec![0x30, content.len() as u8];
    sequence.extend(content);
    T::from_der(&sequence)
}

/// A DER INTEGER of these octets; a serial number has at most 20 of them (RFC 5280 §4.1.2.2).
fn integer(octets: &[u8]) -> Vec<u8> {
    let mut element = vec![2, octets.len().min(127) as u8];
    element.extend_from_slice(&octets[..octets.len().min(127)]);
    element
}

/// Reads an answer: who signed it, what it is about, and of when it is.
fn read(answer: &[u8], issuer: &[u8], id: &CertId, now: WallTime) -> Result<Answer, PkiError> {
    let what = "OCSP answer";
    let fault = |e: der::Error| format(what, e);
    let response = OcspResponse::from_der(answer).map_err(fault)?;
    if response.response_status != OcspResponseStatus::Successful {
        return Err(format(what, std::format!("the responder refused: {:?}", response.response_status)));
    }
    let bytes = response.response_bytes.ok_or_else(|| format(what, "it is empty"))?;
    let basic = BasicOcspResponse::from_der(bytes.response.as_bytes()).map_err(fault)?;
    let signed = basic.tbs_response_data.to_der().map_err(fault)?;
    let algorithm = basic.signature_algorithm.to_der().map_err(fault)?;
    let (_, algorithm) = AlgorithmIdentifier::from_der(&algorithm).map_err(|e| format(what, e))?;
    let signature = basic.signature.as_bytes().ok_or_else(|| format(what, "the signature is no octets"))?;
    let signature = asn1_rs::BitString::new(0, signature);
    let (_, issuer) = X509Certificate::from_der(issuer).map_err(|e| format("issuer's certificate", e))?;
    let by_issuer = verify_signature(issuer.public_key(), &algorithm, &signature, &signed).is_ok();
    let by_delegate = || {
        basic.certs.iter().flatten().filter_map(|c| c.to_der().ok()).any(|der| {
            let Ok((_, delegate)) = X509Certificate::from_der(&der) else { return false };
            let purpose = delegate.extended_key_usage().ok().flatten().is_some_and(|e| e.value.ocsp_signing);
            let seconds = i64::try_from(now.unix_secs()).unwrap_or(i64::MAX);
            let holds = delegate.validity().not_before.timestamp() <= seconds
                && seconds <= delegate.validity().not_after.timestamp();
            purpose
                && holds
                && delegate.issuer() == issuer.subject()
                && delegate.verify_signature(Some(issuer.public_key())).is_ok()
                && verify_signature(delegate.public_key(), &algorithm, &signature, &signed).is_ok()
        })
    };
    if !by_issuer && !by_delegate() {
        return Err(format(what, "neither the issuer nor one it appointed signed it"));
    }
    let single = basic
        .tbs_response_data
        .responses
        .iter()
        .find(|r| {
            r.cert_id.serial_number == id.serial_number
                && r.cert_id.issuer_key_hash == id.issuer_key_hash
                && r.cert_id.issuer_name_hash == id.issuer_name_hash
        })
        .ok_or_else(|| format(what, "it is about other certificates"))?;
    let now = now.unix_secs();
    let early = single.this_update.0.to_unix_duration().as_secs() > now + SKEW;
    let next_update = single.next_update.as_ref().map(|t| t.0.to_unix_duration().as_secs());
    let late = next_update.is_some_and(|t| t.saturating_add(SKEW) < now);
    if early || late {
        return Err(format(what, "it is not of now"));
    }
    let status = match single.cert_status {
        CertStatus::Good(_) => Status::Good,
        CertStatus::Revoked(_) => Status::Revoked,
        CertStatus::Unknown(_) => Status::Unknown,
    };
    Ok(Answer { status, next_update: next_update.map(WallTime::from_unix_secs) })
}
