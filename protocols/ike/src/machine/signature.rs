//! Signatures in AUTH payloads (RFC 7296 §3.8, RFC 7427).

use crate::code::{AuthMethod, HashAlgorithm};
use crate::payload::Payload;
use usher_crypto::signature::{KeyKind, SignatureScheme};

/// The DER algorithm identifiers of RFC 7427, appendix A.
const IDENTIFIERS: [(SignatureScheme, HashAlgorithm, &[u8]); 9] = [
    (SignatureScheme::RsaPkcs1Sha256, HashAlgorithm::SHA2_256, &RSA_SHA256),
    (SignatureScheme::RsaPkcs1Sha384, HashAlgorithm::SHA2_384, &RSA_SHA384),
    (SignatureScheme::RsaPkcs1Sha512, HashAlgorithm::SHA2_512, &RSA_SHA512),
    (SignatureScheme::RsaPssSha256, HashAlgorithm::SHA2_256, &PSS_SHA256),
    (SignatureScheme::RsaPssSha384, HashAlgorithm::SHA2_384, &PSS_SHA384),
    (SignatureScheme::RsaPssSha512, HashAlgorithm::SHA2_512, &PSS_SHA512),
    (SignatureScheme::EcdsaP256Sha256, HashAlgorithm::SHA2_256, &ECDSA_SHA256),
    (SignatureScheme::EcdsaP384Sha384, HashAlgorithm::SHA2_384, &ECDSA_SHA384),
    (SignatureScheme::RsaPkcs1Sha1, HashAlgorithm::SHA1, &RSA_SHA1),
];

const fn rsa_identifier(last: u8) -> [u8; 15] {
    [0x30, 0x0d, 6, 9, 0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 1, 1, last, 5, 0]
}
const RSA_SHA1: [u8; 15] = rsa_identifier(5);
const RSA_SHA256: [u8; 15] = rsa_identifier(0x0b);
const RSA_SHA384: [u8; 15] = rsa_identifier(0x0c);
const RSA_SHA512: [u8; 15] = rsa_identifier(0x0d);
const fn ecdsa_identifier(last: u8) -> [u8; 12] {
    [0x30, 0x0a, 6, 8, 0x2a, 0x86, 0x48, 0xce, 0x3d, 4, 3, last]
}
const ECDSA_SHA256: [u8; 12] = ecdsa_identifier(2);
const ECDSA_SHA384: [u8; 12] = ecdsa_identifier(3);
/// Builds the RSASSA-PSS identifier of a digest (the last octet of its OID), also in MGF1, and a salt length.
const fn pss_identifier(digest: u8, salt: u8) -> [u8; 72] {
    [
        0x30, 0x46, 6, 9, 0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 1, 1, 0x0a, 0x30, 0x39, 0xa0, 0x0f, 0x30, 0x0d,
        6, 9, 0x60, 0x86, 0x48, 1, 0x65, 3, 4, 2, digest, 5, 0, 0xa1, 0x1c, 0x30, 0x1a, 6, 9, 0x2a, 0x86,
        0x48, 0x86, 0xf7, 0x0d, 1, 1, 8, 0x30, 0x0d, 6, 9, 0x60, 0x86, 0x48, 1, 0x65, 3, 4, 2, digest, 5, 0,
        0xa2, 3, 2, 1, salt, 0xa3, 3, 2, 1, 1,
    ]
}
const PSS_SHA256: [u8; 72] = pss_identifier(1, 32);
const PSS_SHA384: [u8; 72] = pss_identifier(2, 48);
const PSS_SHA512: [u8; 72] = pss_identifier(3, 64);

/// True if an identifier means this RSASSA-PSS scheme. The trailer field and a digest's NULL parameters may be
/// absent, as DER omits defaults (RFC 4055 §2.1).
fn is_pss(scheme: SignatureScheme, identifier: &[u8]) -> bool {
    let full = match scheme {
        SignatureScheme::RsaPssSha256 => PSS_SHA256,
        SignatureScheme::RsaPssSha384 => PSS_SHA384,
        SignatureScheme::RsaPssSha512 => PSS_SHA512,
        _ => return false,
    };
    // All elements have fewer than 128 octets.
    let element = |tag: u8, parts: &[&[u8]]| {
        let content = parts.concat();
        [&[tag, content.len() as u8], &content[..]].concat()
    };
    let (pss, digest, mask, salt, trailer) =
        (&full[2..13], &full[19..30], &full[36..47], &full[62..67], &full[67..]);
    let forms = [(&full[30..32], trailer), (&full[30..32], &[][..]), (&[], trailer), (&[], &[])];
    forms.into_iter().any(|(empty, trailer)| {
        let digest = element(0x30, &[digest, empty]);
        let mask = element(0xa1, &[&element(0x30, &[mask, &digest])]);
        let parameters = element(0x30, &[&element(0xa0, &[&digest]), &mask, salt, trailer]);
        element(0x30, &[pss, &parameters]) == identifier
    })
}

/// Chooses the signature scheme of a key for a peer that accepts these hashes. `None` if there is none.
pub(super) fn choose_signature_scheme(
    kind: KeyKind,
    pss: bool,
    hashes: &[HashAlgorithm],
) -> Option<SignatureScheme> {
    match (kind, hashes.is_empty()) {
        (KeyKind::EcdsaP256, true) => return Some(SignatureScheme::EcdsaP256Sha256Fixed),
        (KeyKind::EcdsaP384, true) => return Some(SignatureScheme::EcdsaP384Sha384Fixed),
        // For a peer without hash notifications, the RSA method of RFC 7296 would use SHA-1, which is not supported
        // here. That RFC has no method for Ed25519.
        (KeyKind::Rsa | KeyKind::Ed25519, true) => return None,
        _ => {}
    }
    // RFC 7427, 4; RFC 8247, 3.2: only hashes that the peer names, and never SHA-1.
    let fits = |(scheme, hash, _): &&(SignatureScheme, HashAlgorithm, &[u8])| {
        scheme.required_key_kind() == kind
            && hashes.contains(hash)
            && scheme.is_pss() == (pss && kind == KeyKind::Rsa)
    };
    IDENTIFIERS.iter().find(fits).map(|(scheme, ..)| *scheme)
}

/// Returns the AUTH payload of a signature.
pub(super) fn signature_payload(scheme: SignatureScheme, signature: &[u8]) -> Payload {
    let identifier = IDENTIFIERS.iter().find(|(known, ..)| *known == scheme).map(|(.., der)| *der);
    let (method, data) = match (scheme, identifier) {
        (SignatureScheme::EcdsaP256Sha256Fixed, _) => (AuthMethod::ECDSA_SHA256_P256, signature.to_vec()),
        (SignatureScheme::EcdsaP384Sha384Fixed, _) => (AuthMethod::ECDSA_SHA384_P384, signature.to_vec()),
        (_, identifier) => {
            let identifier = identifier.unwrap_or(&[]);
            // RFC 7427, 3: the algorithm in DER, at most 72 octets, before the signature.
            let data = [&[identifier.len() as u8], identifier, signature].concat();
            (AuthMethod::DIGITAL_SIGNATURE, data)
        }
    };
    Payload::Authentication { method, data }
}

/// Returns the scheme and the signature of an AUTH payload; `None` if the scheme is not supported.
pub(super) fn parse_auth_signature(payload: &Payload) -> Option<(SignatureScheme, &[u8])> {
    let Payload::Authentication { method, data } = payload else { return None };
    match *method {
        AuthMethod::RSA_DIGITAL_SIGNATURE => Some((SignatureScheme::RsaPkcs1Sha1, data)),
        AuthMethod::ECDSA_SHA256_P256 => Some((SignatureScheme::EcdsaP256Sha256Fixed, data)),
        AuthMethod::ECDSA_SHA384_P384 => Some((SignatureScheme::EcdsaP384Sha384Fixed, data)),
        AuthMethod::DIGITAL_SIGNATURE => {
            let (length, rest) = data.split_first()?;
            let (identifier, signature) = rest.split_at_checked(usize::from(*length))?;
            let of = |(scheme, hash, der): &&(SignatureScheme, HashAlgorithm, &[u8])| {
                *hash != HashAlgorithm::SHA1 && (*der == identifier || is_pss(*scheme, identifier))
            };
            Some((IDENTIFIERS.iter().find(of)?.0, signature))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_algorithms_of_signatures_are_those_of_rfc_7427() {
        use crate::tests::octets_from_hex;
        for (der, want) in [
            (&RSA_SHA256[..], "300d06092a864886f70d01010b0500"),
            (&ECDSA_SHA384, "300a06082a8648ce3d040303"),
            (
                &PSS_SHA256,
                "304606092a864886f70d01010a3039a00f300d06096086480165030402010500a11c301a06092a864886f70d010108300d\
                 06096086480165030402010500a203020120a303020101",
            ),
        ] {
            assert_eq!(der, octets_from_hex(want));
        }
    }

    /// The form of strongSwan 5.9, allowed to all.
    #[test]
    fn omitted_defaults_do_not_change_an_rsassa_pss_identifier() {
        use crate::tests::octets_from_hex;
        let forms = [
            "304106092a864886f70d01010a3034a00f300d06096086480165030402010500a11c301a06092a864886f70d010108300d\
             06096086480165030402010500a203020120",
            "303d06092a864886f70d01010a3030a00d300b0609608648016503040201a11a301806092a864886f70d010108300b\
             0609608648016503040201a203020120",
            "304206092a864886f70d01010a3035a00d300b0609608648016503040201a11a301806092a864886f70d010108300b\
             0609608648016503040201a203020120a303020101",
        ];
        for form in forms {
            let identifier = octets_from_hex(form);
            let data = [&[identifier.len() as u8], &identifier[..], b"signature"].concat();
            let payload = Payload::Authentication { method: AuthMethod::DIGITAL_SIGNATURE, data };
            let found = (SignatureScheme::RsaPssSha256, &b"signature"[..]);
            assert_eq!(parse_auth_signature(&payload), Some(found), "{form}");
        }
        // Another salt, and empty parameters, which mean SHA-1.
        let (salt, empty) =
            (forms[0].replace("020120", "020114"), "300d06092a864886f70d01010a3000".to_owned());
        for form in [salt, empty] {
            let data = [&[(form.len() / 2) as u8], &octets_from_hex(&form)[..]].concat();
            let payload = Payload::Authentication { method: AuthMethod::DIGITAL_SIGNATURE, data };
            assert_eq!(parse_auth_signature(&payload), None, "{form}");
        }
    }

    #[test]
    fn a_signature_is_found_again_as_it_was_made() {
        for kind in KeyKind::ALL {
            for hashes in [&[][..], &[HashAlgorithm::SHA2_256, HashAlgorithm::SHA2_384]] {
                for pss in [false, true] {
                    let Some(scheme) = choose_signature_scheme(kind, pss, hashes) else { continue };
                    let payload = signature_payload(scheme, b"signature");
                    assert_eq!(parse_auth_signature(&payload), Some((scheme, &b"signature"[..])), "{scheme}");
                }
            }
        }
        assert_eq!(choose_signature_scheme(KeyKind::Rsa, true, &[]), None);
        assert_eq!(choose_signature_scheme(KeyKind::EcdsaP384, false, &[HashAlgorithm::SHA2_256]), None);
        let of = |kind, pss| choose_signature_scheme(kind, pss, &[HashAlgorithm::SHA2_384]);
        assert_eq!(of(KeyKind::Rsa, false), Some(SignatureScheme::RsaPkcs1Sha384));
        assert_eq!(of(KeyKind::Rsa, true), Some(SignatureScheme::RsaPssSha384));
        assert_eq!(of(KeyKind::EcdsaP384, true), Some(SignatureScheme::EcdsaP384Sha384));
        let sha1 = signature_payload(SignatureScheme::RsaPkcs1Sha1, b"signature");
        assert_eq!(parse_auth_signature(&sha1), None, "a digital signature by SHA-1 is not taken");
        let cut = Payload::Authentication { method: AuthMethod::DIGITAL_SIGNATURE, data: [9, 1].into() };
        assert_eq!(parse_auth_signature(&cut), None);
    }
}
