//! The responses of a responder or an attacker.

use super::*;
use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    PKCS_ECDSA_P256_SHA256, SigningKey,
};
use x509_ocsp::{
    BasicOcspResponse, CertStatus, OcspGeneralizedTime, OcspResponse, OcspResponseStatus, ResponderId,
    ResponseBytes, ResponseData, RevokedInfo, SingleResponse,
};

const BASIC: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.3.6.1.5.5.7.48.1.1");
const ECDSA_SHA256: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.2.840.10045.4.3.2");
const UNKNOWN: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.3.6.1.4.1.99999.1");
const NOW: u64 = 1_800_000_000;
const HOUR: u64 = 3600;

/// A holder of a certificate and its key.
struct CertificateHolder {
    der: Vec<u8>,
    issuer: Issuer<'static, KeyPair>,
}

impl CertificateHolder {
    fn new(name: &str, usage: &[ExtendedKeyUsagePurpose], above: Option<&Self>) -> Self {
        let key = KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256).unwrap();
        let mut params = CertificateParams::default();
        params.distinguished_name = rcgen::DistinguishedName::new();
        params.distinguished_name.push(DnType::CommonName, name);
        params.extended_key_usages = usage.to_vec();
        if above.is_none() {
            params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        }
        let certificate = match above {
            Some(above) => params.signed_by(&key, &above.issuer).unwrap(),
            None => params.self_signed(&key).unwrap(),
        };
        Self { der: certificate.der().to_vec(), issuer: Issuer::new(params, key) }
    }

    fn key_hash(&self) -> OctetString {
        let (_, certificate) = X509Certificate::from_der(&self.der).unwrap();
        OctetString::new(Sha1::digest(&certificate.public_key().subject_public_key.data).to_vec()).unwrap()
    }
}

fn ocsp_time(seconds: u64) -> OcspGeneralizedTime {
    let since = Duration::from_secs(seconds);
    OcspGeneralizedTime(der::asn1::GeneralizedTime::from_unix_duration(since).unwrap())
}

fn der_extension(id: ObjectIdentifier, critical: bool, value: &[u8]) -> Vec<u8> {
    let critical: &[u8] = if critical { &[1, 1, 0xff] } else { &[] };
    der_element(0x30, &[&id.to_der().unwrap()[..], critical, &der_element(4, value)].concat())
}

fn revoked_status() -> CertStatus {
    CertStatus::Revoked(RevokedInfo { revocation_time: ocsp_time(NOW - HOUR), revocation_reason: None })
}

/// An authority, a user, and a query about the user.
struct OcspFixture {
    authority: CertificateHolder,
    user: CertificateHolder,
    nonce: [u8; NONCE_LEN],
}

impl OcspFixture {
    fn new() -> Self {
        let authority = CertificateHolder::new("Root", &[], None);
        let user = CertificateHolder::new("ann", &[ExtendedKeyUsagePurpose::ClientAuth], Some(&authority));
        Self { authority, user, nonce: [7; NONCE_LEN] }
    }

    fn build_query<'a>(&'a self, appointed: &'a dyn Fn(&[u8]) -> bool) -> OcspQuery<'a> {
        let (certificate, issuer) = (&self.user.der, &self.authority.der);
        OcspQuery {
            certificate,
            issuer,
            now: WallTime::from_unix_secs(NOW),
            nonce: Some(self.nonce),
            appointed,
        }
    }

    /// Makes a current response with status good, changes it by `change`, and signs it by `signer`.
    fn signed_response(
        &self,
        signer: &CertificateHolder,
        certificates: &[&CertificateHolder],
        change: impl FnOnce(&mut ResponseData),
    ) -> Vec<u8> {
        let single = SingleResponse {
            cert_id: self.build_query(&|_| true).build_request().unwrap().id,
            cert_status: CertStatus::good(),
            this_update: ocsp_time(NOW - 60),
            next_update: Some(ocsp_time(NOW + HOUR)),
            single_extensions: None,
        };
        let mut data = ResponseData {
            version: Version::V1,
            responder_id: ResponderId::ByKey(signer.key_hash()),
            produced_at: ocsp_time(NOW - 60),
            responses: vec![single],
            response_extensions: None,
        };
        change(&mut data);
        let signature = signer.issuer.key().sign(&data.to_der().unwrap()).unwrap();
        let algorithm = der_element(0x30, &ECDSA_SHA256.to_der().unwrap());
        let basic = BasicOcspResponse {
            tbs_response_data: data,
            signature_algorithm: Decode::from_der(&algorithm).unwrap(),
            signature: der::asn1::BitString::from_bytes(&signature).unwrap(),
            certs: (!certificates.is_empty())
                .then(|| certificates.iter().map(|c| Decode::from_der(&c.der).unwrap()).collect()),
        };
        encode_response(BASIC, &basic.to_der().unwrap())
    }

    fn read_response(
        &self,
        answer: &[u8],
        appointed: &dyn Fn(&[u8]) -> bool,
    ) -> Result<OcspStatusWithValidity, String> {
        let question = self.build_query(appointed);
        answer::read_response(answer, &question, &question.build_request().unwrap())
            .map_err(|e| e.to_string())
    }

    /// Returns the result of a changed response that the authority itself signed.
    fn status_from(&self, change: impl FnOnce(&mut ResponseData)) -> Result<OcspStatus, String> {
        self.read_response(&self.signed_response(&self.authority, &[], change), &|_| false)
            .map(|answer| answer.status)
    }
}

fn encode_response(kind: ObjectIdentifier, octets: &[u8]) -> Vec<u8> {
    let bytes = ResponseBytes { response_type: kind, response: OctetString::new(octets).unwrap() };
    let status = OcspResponseStatus::Successful;
    OcspResponse { response_status: status, response_bytes: Some(bytes) }.to_der().unwrap()
}

#[track_caller]
fn assert_refused(said: Result<OcspStatus, String>, why: &str) {
    assert!(said.as_ref().is_err_and(|e| e.contains(why)), "{said:?}, not {why:?}");
}

#[test]
fn an_answer_without_an_end_has_an_age() {
    let scene = OcspFixture::new();
    let from = |this: u64, next: Option<u64>| {
        scene.status_from(|data| {
            data.responses[0].this_update = ocsp_time(this);
            data.responses[0].next_update = next.map(ocsp_time);
        })
    };
    assert_eq!(from(NOW - 60, None), Ok(OcspStatus::Good));
    assert_eq!(from(NOW - HOUR, None), Ok(OcspStatus::Good));
    assert_refused(from(NOW - 2 * HOUR, None), "expired or is not valid yet");
    assert_eq!(from(NOW - 48 * HOUR, Some(NOW + 1)), Ok(OcspStatus::Good), "it says itself until when");
    assert_refused(from(NOW - 48 * HOUR, Some(NOW - HOUR)), "expired or is not valid yet");
    assert_refused(from(NOW + HOUR, Some(NOW + 2 * HOUR)), "expired or is not valid yet");
    assert_refused(from(NOW, Some(NOW - 1)), "expired or is not valid yet");
    assert_refused(scene.status_from(|data| data.produced_at = ocsp_time(NOW + HOUR)), "in the future");
    let answer = scene.signed_response(&scene.authority, &[], |data| data.responses[0].next_update = None);
    assert_eq!(scene.read_response(&answer, &|_| false).unwrap().next_update, None);
}

#[test]
fn the_nonce_is_the_one_that_was_sent_or_none() {
    let scene = OcspFixture::new();
    let asked = scene.build_query(&|_| true).build_request().unwrap();
    // Nonce ::= OCTET STRING of 32, within the extension's own (RFC 8954 §2.1).
    let sent = [&[4, 34, 4, 32][..], &scene.nonce].concat();
    assert!(asked.request.windows(sent.len()).any(|w| w == sent));
    let with = |extensions: &[Vec<u8>]| {
        let all = der_element(0x30, &extensions.concat());
        scene.status_from(|data| data.response_extensions = Some(Decode::from_der(&all).unwrap()))
    };
    let own = der_element(4, &scene.nonce);
    assert_eq!(scene.status_from(|_| ()), Ok(OcspStatus::Good), "answers made beforehand have none");
    assert_eq!(with(&[der_extension(NONCE, false, &own)]), Ok(OcspStatus::Good));
    assert_eq!(with(&[der_extension(NONCE, true, &own)]), Ok(OcspStatus::Good));
    assert_refused(with(&[der_extension(NONCE, false, &der_element(4, &[8; 32]))]), "nonce");
    assert_refused(with(&[der_extension(NONCE, false, &scene.nonce)]), "nonce");
    assert_refused(with(&[der_extension(NONCE, false, &own), der_extension(NONCE, false, &[4, 0])]), "nonce");
    assert_eq!(with(&[der_extension(UNKNOWN, false, &[5, 0])]), Ok(OcspStatus::Good));
    assert_refused(with(&[der_extension(UNKNOWN, true, &[5, 0])]), "critical");
    assert_refused(
        scene.status_from(|data| {
            let all = der_element(0x30, &der_extension(UNKNOWN, true, &[5, 0]));
            data.responses[0].single_extensions = Some(Decode::from_der(&all).unwrap());
        }),
        "critical",
    );
}

#[test]
fn an_answer_must_fit_the_certificate_and_the_worst_status_wins() {
    let scene = OcspFixture::new();
    let two = |first: CertStatus, second: CertStatus| {
        scene.status_from(|data| {
            let mut other = data.responses[0].clone();
            data.responses[0].cert_status = first;
            other.cert_status = second;
            data.responses.push(other);
        })
    };
    assert_eq!(two(CertStatus::good(), revoked_status()), Ok(OcspStatus::Revoked));
    assert_eq!(two(revoked_status(), CertStatus::good()), Ok(OcspStatus::Revoked));
    let unknown = CertStatus::Unknown(Null);
    assert_eq!(scene.status_from(|data| data.responses[0].cert_status = unknown), Ok(OcspStatus::Unknown));
    let octets = |n: u8| OctetString::new(vec![n; 20]).unwrap();
    assert_refused(
        scene.status_from(|data| data.responses[0].cert_id.issuer_key_hash = octets(1)),
        "other certificates",
    );
    assert_refused(
        scene.status_from(|data| data.responses[0].cert_id.issuer_name_hash = octets(1)),
        "other certificates",
    );
    assert_refused(
        scene.status_from(|data| data.responses[0].cert_id.hash_algorithm = hash_algorithm(BASIC).unwrap()),
        "other certificates",
    );
    assert_refused(scene.status_from(|data| data.responses.clear()), "other certificates");
    // The status of another certificate in the response does not count.
    let beside = scene.status_from(|data| {
        let mut other = data.responses[0].clone();
        other.cert_id.serial_number = Decode::from_der(&[2, 1, 1]).unwrap();
        other.cert_status = revoked_status();
        data.responses.insert(0, other);
    });
    assert_eq!(beside, Ok(OcspStatus::Good));
}

#[test]
fn who_signs_is_the_issuer_or_one_that_it_appointed_and_named() {
    let scene = OcspFixture::new();
    let signing = [ExtendedKeyUsagePurpose::OcspSigning];
    let delegate = CertificateHolder::new("responder", &signing, Some(&scene.authority));
    let by = |signer: &CertificateHolder, shown: &[&CertificateHolder], appointed: bool| {
        let answer = scene.signed_response(signer, shown, |_| ());
        scene.read_response(&answer, &|_| appointed).map(|answer| answer.status)
    };
    assert_eq!(by(&delegate, &[&delegate], true), Ok(OcspStatus::Good));
    assert_refused(by(&delegate, &[&delegate], false), "signed");
    assert_refused(by(&delegate, &[], true), "signed");
    // A user's certificate of the same authority, and one of another authority with the same name.
    assert_refused(by(&scene.user, &[&scene.user], true), "signed");
    let other = CertificateHolder::new("Root", &[], None);
    assert_refused(by(&other, &[&other], true), "signed");
    let forged = CertificateHolder::new("responder", &signing, Some(&other));
    assert_refused(by(&forged, &[&forged, &other], true), "signed");
    // A delegate of a delegate: RFC 6960 §4.2.2.2 requires the issuer itself.
    let deeper = CertificateHolder::new("deeper", &signing, Some(&delegate));
    assert_refused(by(&deeper, &[&deeper, &delegate], true), "signed");
    let many: Vec<&CertificateHolder> = vec![&scene.user; 8].into_iter().chain([&delegate]).collect();
    assert_refused(by(&delegate, &many, true), "signed");
    // The response names its signer by key or by name (RFC 6960 §4.2.2.3).
    let named = |responder: ResponderId| scene.status_from(|data| data.responder_id = responder);
    let name = |holder: &CertificateHolder| {
        let (_, certificate) = X509Certificate::from_der(&holder.der).unwrap();
        ResponderId::ByName(Decode::from_der(certificate.subject().as_raw()).unwrap())
    };
    assert_eq!(named(name(&scene.authority)), Ok(OcspStatus::Good));
    assert_refused(named(name(&delegate)), "signed");
    assert_refused(named(ResponderId::ByKey(delegate.key_hash())), "signed");
}

#[test]
fn what_is_no_signed_basic_answer_is_refused() {
    let scene = OcspFixture::new();
    let good = scene.signed_response(&scene.authority, &[], |_| ());
    let read = |octets: &[u8]| scene.read_response(octets, &|_| true).map(|answer| answer.status);
    assert_eq!(read(&good), Ok(OcspStatus::Good));
    let basic = OcspResponse::from_der(&good).unwrap().response_bytes.unwrap().response;
    assert_refused(read(&encode_response(UNKNOWN, basic.as_bytes())), "basic");
    assert_refused(read(&OcspResponse::try_later().to_der().unwrap()), "TryLater");
    let empty = OcspResponse { response_status: OcspResponseStatus::Successful, response_bytes: None };
    assert_refused(read(&empty.to_der().unwrap()), "empty");
    for at in 0..good.len() {
        // A change of any octet invalidates it.
        let mut changed = good.clone();
        changed[at] ^= 1;
        assert!(read(&changed).is_err(), "octet {at} changed");
        assert!(read(&good[..at]).is_err());
    }
}

proptest::proptest! {
    #[test]
    fn arbitrary_octets_are_no_answer(octets: Vec<u8>) {
        proptest::prop_assert!(OcspFixture::new().read_response(&octets, &|_| true).is_err());
    }
}
