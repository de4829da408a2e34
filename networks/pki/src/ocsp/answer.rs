//! Verifies a response: its signer, its certificate and its time (RFC 6960 §3.2).

use super::{NONCE, OcspQuery, OcspStatus, OcspStatusWithValidity, SentRequest};
use crate::{PkiError, format_error};
use der::asn1::ObjectIdentifier;
use der::{Decode, Encode, Header, Reader, SliceReader};
use sha1::{Digest, Sha1};
use std::fmt::Display;
use usher_core::WallTime;
use usher_crypto::x509::is_signature_valid;
use x509_ocsp::{
    BasicOcspResponse, CertId, CertStatus, OcspResponse, OcspResponseStatus, ResponderId, SingleResponse,
};
use x509_parser::certificate::X509Certificate;
use x509_parser::der_parser::asn1_rs;
use x509_parser::prelude::FromDer;
use x509_parser::x509::AlgorithmIdentifier;

/// id-pkix-ocsp-basic (RFC 6960 §4.2.1).
const BASIC: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.3.6.1.5.5.7.48.1.1");
/// The allowed difference of clocks, seconds.
const SKEW: u64 = 300;
/// The age limit of a response without nextUpdate, seconds. Newer information is always available (RFC 6960
/// §4.2.2.1), so an old response is a replay.
const MAX_AGE: u64 = 3600;
/// The certificates of a response that are tried as its signer.
const MAX_SIGNERS: usize = 8;

fn response_error(cause: impl Display) -> PkiError {
    format_error("invalid OCSP response", cause)
}

pub(super) fn read_response(
    octets: &[u8],
    question: &OcspQuery<'_>,
    asked: &SentRequest,
) -> Result<OcspStatusWithValidity, PkiError> {
    let response = OcspResponse::from_der(octets).map_err(response_error)?;
    if response.response_status != OcspResponseStatus::Successful {
        return Err(response_error(std::format!("the responder refused: {:?}", response.response_status)));
    }
    let bytes = response.response_bytes.ok_or_else(|| response_error("it is empty"))?;
    if bytes.response_type != BASIC {
        return Err(response_error("it is not a basic response"));
    }
    let basic = BasicOcspResponse::from_der(bytes.response.as_bytes()).map_err(response_error)?;
    if !is_signed(
        &basic,
        signed_response_octets(bytes.response.as_bytes()).map_err(response_error)?,
        question,
    )? {
        return Err(response_error("neither the issuer nor an appointed responder has signed it"));
    }
    let data = &basic.tbs_response_data;
    for extension in data.response_extensions.iter().flatten() {
        if extension.extn_id == NONCE {
            // A response without a nonce is accepted, because it may have been signed in advance (RFC 8954 §3.1).
            if asked.nonce.as_ref().is_some_and(|nonce| extension.extn_value.as_bytes() != nonce) {
                return Err(response_error("it answers another request: the nonce differs"));
            }
        } else if extension.critical {
            return Err(response_error(std::format!("unknown critical extension {}", extension.extn_id)));
        }
    }
    let now = question.now.unix_secs();
    if unix_seconds(&data.produced_at) > now.saturating_add(SKEW) {
        return Err(response_error("it was signed in the future"));
    }
    let mut answer = None;
    for single in data.responses.iter().filter(|single| is_about(&single.cert_id, &asked.id)) {
        let said = certificate_status(single, now)?;
        // If a response has two contradictory statuses, revoked wins: the certificate's holder must not be able to
        // choose.
        if answer.is_none() || said.status == OcspStatus::Revoked {
            answer = Some(said);
        }
    }
    answer.ok_or_else(|| response_error("it is about other certificates"))
}

/// True if a response is about the queried certificate. The hash parameters do not count, since some responders omit
/// them.
fn is_about(answered: &CertId, asked: &CertId) -> bool {
    answered.hash_algorithm.oid == asked.hash_algorithm.oid
        && answered.issuer_name_hash == asked.issuer_name_hash
        && answered.issuer_key_hash == asked.issuer_key_hash
        && answered.serial_number == asked.serial_number
}

fn certificate_status(single: &SingleResponse, now: u64) -> Result<OcspStatusWithValidity, PkiError> {
    if let Some(extension) = single.single_extensions.iter().flatten().find(|e| e.critical) {
        return Err(response_error(std::format!("unknown critical extension {}", extension.extn_id)));
    }
    let this_update = unix_seconds(&single.this_update);
    let next_update = single.next_update.as_ref().map(unix_seconds);
    let until = next_update.unwrap_or_else(|| this_update.saturating_add(MAX_AGE));
    if this_update > now.saturating_add(SKEW) || until < this_update || until.saturating_add(SKEW) < now {
        return Err(response_error("it has expired or is not valid yet"));
    }
    let status = match single.cert_status {
        CertStatus::Good(_) => OcspStatus::Good,
        CertStatus::Revoked(_) => OcspStatus::Revoked,
        CertStatus::Unknown(_) => OcspStatus::Unknown,
    };
    Ok(OcspStatusWithValidity { status, next_update: next_update.map(WallTime::from_unix_secs) })
}

fn unix_seconds(time: &x509_ocsp::OcspGeneralizedTime) -> u64 {
    time.0.to_unix_duration().as_secs()
}

/// Returns the signed octets as received: re-encoding could change them.
fn signed_response_octets(basic: &[u8]) -> der::Result<&[u8]> {
    let mut reader = SliceReader::new(basic)?;
    Header::decode(&mut reader)?;
    reader.tlv_bytes()
}

/// True if the issuer or its appointed responder signed the response, and the response names that signer (RFC 6960
/// §4.2.2.2, §4.2.2.3).
fn is_signed(basic: &BasicOcspResponse, octets: &[u8], question: &OcspQuery<'_>) -> Result<bool, PkiError> {
    let algorithm = basic.signature_algorithm.to_der().map_err(response_error)?;
    let (_, algorithm) = AlgorithmIdentifier::from_der(&algorithm).map_err(response_error)?;
    let signature = basic
        .signature
        .as_bytes()
        .ok_or_else(|| response_error("the signature is not a whole number of octets"))?;
    let signature = asn1_rs::BitString::new(0, signature);
    let (_, issuer) = X509Certificate::from_der(question.issuer)
        .map_err(|e| format_error("cannot parse the issuer's certificate", e))?;
    let signed_by = |signer: &X509Certificate<'_>| {
        is_named_responder(&basic.tbs_response_data.responder_id, signer)
            && is_signature_valid(signer.public_key(), &algorithm, &signature, octets)
    };
    if signed_by(&issuer) {
        return Ok(true);
    }
    let candidates = basic.certs.iter().flatten().take(MAX_SIGNERS).filter_map(|c| c.to_der().ok());
    Ok(candidates.into_iter().any(|der| {
        X509Certificate::from_der(&der).is_ok_and(|(_, signer)| {
            signed_by(&signer) && is_delegated_responder(&signer, &issuer) && (question.appointed)(&der)
        })
    }))
}

/// True if the issuer itself issued a responder's certificate, with the key that signed the queried certificate.
fn is_delegated_responder(signer: &X509Certificate<'_>, issuer: &X509Certificate<'_>) -> bool {
    let (key, octets) = (issuer.public_key(), signer.tbs_certificate.as_ref());
    signer.extended_key_usage().ok().flatten().is_some_and(|usage| usage.value.ocsp_signing)
        && signer.issuer().as_raw() == issuer.subject().as_raw()
        && is_signature_valid(key, &signer.signature_algorithm, &signer.signature_value, octets)
}

/// True if a certificate belongs to the responder that a response names.
fn is_named_responder(responder: &ResponderId, signer: &X509Certificate<'_>) -> bool {
    match responder {
        ResponderId::ByName(name) => name.to_der().is_ok_and(|name| name == signer.subject().as_raw()),
        ResponderId::ByKey(hash) => {
            hash.as_bytes() == &Sha1::digest(&signer.public_key().subject_public_key.data)[..]
        }
    }
}
