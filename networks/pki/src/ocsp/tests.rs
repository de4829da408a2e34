//! Answers that a responder, or somebody in its place, may give.

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

/// Somebody with a certificate and its key.
struct Holder {
    der: Vec<u8>,
    issuer: Issuer<'static, KeyPair>,
}

impl Holder {
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

fn time(seconds: u64) -> OcspGeneralizedTime {
    let since = Duration::from_secs(seconds);
    OcspGeneralizedTime(der::asn1::GeneralizedTime::from_unix_duration(since).unwrap())
}

fn extension(id: ObjectIdentifier, critical: bool, value: &[u8]) -> Vec<u8> {
    let critical: &[u8] = if critical { &[1, 1, 0xff] } else { &[] };
    tagged(0x30, &[&id.to_der().unwrap()[..], critical, &tagged(4, value)].concat())
}

fn revoked() -> CertStatus {
    CertStatus::Revoked(RevokedInfo { revocation_time: time(NOW - HOUR), revocation_reason: None })
}

/// An authority, a user, and what was asked about the user.
struct Scene {
    authority: Holder,
    user: Holder,
    nonce: [u8; NONCE_LEN],
}

impl Scene {
    fn new() -> Self {
        let authority = Holder::new("Root", &[], None);
        let user = Holder::new("ann", &[ExtendedKeyUsagePurpose::ClientAuth], Some(&authority));
        Self { authority, user, nonce: [7; NONCE_LEN] }
    }

    fn question<'a>(&'a self, appointed: &'a dyn Fn(&[u8]) -> bool) -> Question<'a> {
        let (certificate, issuer) = (&self.user.der, &self.authority.der);
        Question {
            certificate,
            issuer,
            now: WallTime::from_unix_secs(NOW),
            nonce: Some(self.nonce),
            appointed,
        }
    }

    /// A good answer of now by `signer`, after `change`, signed.
    fn answer(
        &self,
        signer: &Holder,
        certificates: &[&Holder],
        change: impl FnOnce(&mut ResponseData),
    ) -> Vec<u8> {
        let single = SingleResponse {
            cert_id: self.question(&|_| true).asked().unwrap().id,
            cert_status: CertStatus::good(),
            this_update: time(NOW - 60),
            next_update: Some(time(NOW + HOUR)),
            single_extensions: None,
        };
        let mut data = ResponseData {
            version: Version::V1,
            responder_id: ResponderId::ByKey(signer.key_hash()),
            produced_at: time(NOW - 60),
            responses: vec![single],
            response_extensions: None,
        };
        change(&mut data);
        let signature = signer.issuer.key().sign(&data.to_der().unwrap()).unwrap();
        let algorithm = tagged(0x30, &ECDSA_SHA256.to_der().unwrap());
        let basic = BasicOcspResponse {
            tbs_response_data: data,
            signature_algorithm: Decode::from_der(&algorithm).unwrap(),
            signature: der::asn1::BitString::from_bytes(&signature).unwrap(),
            certs: (!certificates.is_empty())
                .then(|| certificates.iter().map(|c| Decode::from_der(&c.der).unwrap()).collect()),
        };
        response(BASIC, &basic.to_der().unwrap())
    }

    fn read(&self, answer: &[u8], appointed: &dyn Fn(&[u8]) -> bool) -> Result<Answer, String> {
        let question = self.question(appointed);
        answer::read(answer, &question, &question.asked().unwrap()).map_err(|e| e.to_string())
    }

    /// What is made of an answer that the authority itself signed.
    fn said(&self, change: impl FnOnce(&mut ResponseData)) -> Result<Status, String> {
        self.read(&self.answer(&self.authority, &[], change), &|_| false).map(|answer| answer.status)
    }
}

fn response(kind: ObjectIdentifier, octets: &[u8]) -> Vec<u8> {
    let bytes = ResponseBytes { response_type: kind, response: OctetString::new(octets).unwrap() };
    let status = OcspResponseStatus::Successful;
    OcspResponse { response_status: status, response_bytes: Some(bytes) }.to_der().unwrap()
}

#[track_caller]
fn refused(said: Result<Status, String>, why: &str) {
    assert!(said.as_ref().is_err_and(|e| e.contains(why)), "{said:?}, not {why:?}");
}

#[test]
fn an_answer_without_an_end_has_an_age() {
    let scene = Scene::new();
    let from = |this: u64, next: Option<u64>| {
        scene.said(|data| {
            data.responses[0].this_update = time(this);
            data.responses[0].next_update = next.map(time);
        })
    };
    assert_eq!(from(NOW - 60, None), Ok(Status::Good));
    assert_eq!(from(NOW - HOUR, None), Ok(Status::Good));
    refused(from(NOW - 2 * HOUR, None), "not of now");
    assert_eq!(from(NOW - 48 * HOUR, Some(NOW + 1)), Ok(Status::Good), "it says itself until when");
    refused(from(NOW - 48 * HOUR, Some(NOW - HOUR)), "not of now");
    refused(from(NOW + HOUR, Some(NOW + 2 * HOUR)), "not of now");
    refused(from(NOW, Some(NOW - 1)), "not of now");
    refused(scene.said(|data| data.produced_at = time(NOW + HOUR)), "in the future");
    let answer = scene.answer(&scene.authority, &[], |data| data.responses[0].next_update = None);
    assert_eq!(scene.read(&answer, &|_| false).unwrap().next_update, None);
}

#[test]
fn the_nonce_is_the_one_that_was_sent_or_none() {
    let scene = Scene::new();
    let asked = scene.question(&|_| true).asked().unwrap();
    // Nonce ::= OCTET STRING of 32, within the extension's own (RFC 8954 §2.1).
    let sent = [&[4, 34, 4, 32][..], &scene.nonce].concat();
    assert!(asked.request.windows(sent.len()).any(|w| w == sent));
    let with = |extensions: &[Vec<u8>]| {
        let all = tagged(0x30, &extensions.concat());
        scene.said(|data| data.response_extensions = Some(Decode::from_der(&all).unwrap()))
    };
    let own = tagged(4, &scene.nonce);
    assert_eq!(scene.said(|_| ()), Ok(Status::Good), "answers made beforehand have none");
    assert_eq!(with(&[extension(NONCE, false, &own)]), Ok(Status::Good));
    assert_eq!(with(&[extension(NONCE, true, &own)]), Ok(Status::Good));
    refused(with(&[extension(NONCE, false, &tagged(4, &[8; 32]))]), "nonce");
    refused(with(&[extension(NONCE, false, &scene.nonce)]), "nonce");
    refused(with(&[extension(NONCE, false, &own), extension(NONCE, false, &[4, 0])]), "nonce");
    assert_eq!(with(&[extension(UNKNOWN, false, &[5, 0])]), Ok(Status::Good));
    refused(with(&[extension(UNKNOWN, true, &[5, 0])]), "critical");
    refused(
        scene.said(|data| {
            let all = tagged(0x30, &extension(UNKNOWN, true, &[5, 0]));
            data.responses[0].single_extensions = Some(Decode::from_der(&all).unwrap());
        }),
        "critical",
    );
}

#[test]
fn an_answer_is_about_the_certificate_and_the_worst_that_is_said_holds() {
    let scene = Scene::new();
    let two = |first: CertStatus, second: CertStatus| {
        scene.said(|data| {
            let mut other = data.responses[0].clone();
            data.responses[0].cert_status = first;
            other.cert_status = second;
            data.responses.push(other);
        })
    };
    assert_eq!(two(CertStatus::good(), revoked()), Ok(Status::Revoked));
    assert_eq!(two(revoked(), CertStatus::good()), Ok(Status::Revoked));
    let unknown = CertStatus::Unknown(Null);
    assert_eq!(scene.said(|data| data.responses[0].cert_status = unknown), Ok(Status::Unknown));
    let octets = |n: u8| OctetString::new(vec![n; 20]).unwrap();
    refused(scene.said(|data| data.responses[0].cert_id.issuer_key_hash = octets(1)), "other certificates");
    refused(scene.said(|data| data.responses[0].cert_id.issuer_name_hash = octets(1)), "other certificates");
    refused(
        scene.said(|data| data.responses[0].cert_id.hash_algorithm = algorithm(BASIC).unwrap()),
        "other certificates",
    );
    refused(scene.said(|data| data.responses.clear()), "other certificates");
    // Another certificate's status beside it says nothing.
    let beside = scene.said(|data| {
        let mut other = data.responses[0].clone();
        other.cert_id.serial_number = Decode::from_der(&[2, 1, 1]).unwrap();
        other.cert_status = revoked();
        data.responses.insert(0, other);
    });
    assert_eq!(beside, Ok(Status::Good));
}

#[test]
fn who_signs_is_the_issuer_or_one_that_it_appointed_and_named() {
    let scene = Scene::new();
    let signing = [ExtendedKeyUsagePurpose::OcspSigning];
    let delegate = Holder::new("responder", &signing, Some(&scene.authority));
    let by = |signer: &Holder, shown: &[&Holder], appointed: bool| {
        let answer = scene.answer(signer, shown, |_| ());
        scene.read(&answer, &|_| appointed).map(|answer| answer.status)
    };
    assert_eq!(by(&delegate, &[&delegate], true), Ok(Status::Good));
    refused(by(&delegate, &[&delegate], false), "signed");
    refused(by(&delegate, &[], true), "signed");
    // A user's certificate of the same authority, and one that another authority of the same name gave.
    refused(by(&scene.user, &[&scene.user], true), "signed");
    let other = Holder::new("Root", &[], None);
    refused(by(&other, &[&other], true), "signed");
    let forged = Holder::new("responder", &signing, Some(&other));
    refused(by(&forged, &[&forged, &other], true), "signed");
    // One that an appointed one appointed: RFC 6960 §4.2.2.2 wants the issuer itself to do so.
    let deeper = Holder::new("deeper", &signing, Some(&delegate));
    refused(by(&deeper, &[&deeper, &delegate], true), "signed");
    let many: Vec<&Holder> = vec![&scene.user; 8].into_iter().chain([&delegate]).collect();
    refused(by(&delegate, &many, true), "signed");
    // The answer names its signer, by key or by name (RFC 6960 §4.2.2.3).
    let named = |responder: ResponderId| scene.said(|data| data.responder_id = responder);
    let name = |holder: &Holder| {
        let (_, certificate) = X509Certificate::from_der(&holder.der).unwrap();
        ResponderId::ByName(Decode::from_der(certificate.subject().as_raw()).unwrap())
    };
    assert_eq!(named(name(&scene.authority)), Ok(Status::Good));
    refused(named(name(&delegate)), "signed");
    refused(named(ResponderId::ByKey(delegate.key_hash())), "signed");
}

#[test]
fn what_is_no_signed_basic_answer_is_refused() {
    let scene = Scene::new();
    let good = scene.answer(&scene.authority, &[], |_| ());
    let read = |octets: &[u8]| scene.read(octets, &|_| true).map(|answer| answer.status);
    assert_eq!(read(&good), Ok(Status::Good));
    let basic = OcspResponse::from_der(&good).unwrap().response_bytes.unwrap().response;
    refused(read(&response(UNKNOWN, basic.as_bytes())), "basic");
    refused(read(&OcspResponse::try_later().to_der().unwrap()), "TryLater");
    let empty = OcspResponse { response_status: OcspResponseStatus::Successful, response_bytes: None };
    refused(read(&empty.to_der().unwrap()), "empty");
    for at in 0..good.len() {
        // No octet of it is of no account.
        let mut changed = good.clone();
        changed[at] ^= 1;
        assert!(read(&changed).is_err(), "octet {at} changed");
        assert!(read(&good[..at]).is_err());
    }
}

proptest::proptest! {
    #[test]
    fn arbitrary_octets_are_no_answer(octets: Vec<u8>) {
        proptest::prop_assert!(Scene::new().read(&octets, &|_| true).is_err());
    }
}
