//! Proposals as text, and the choice among them.

use crate::code::*;
use crate::payload::*;
use crate::suite::*;
use std::slice::from_ref;
use usher_crypto::cipher::CipherAlgorithm;
use usher_crypto::exchange::KeyExchangeAlgorithm;
use usher_crypto::mac::MacAlgorithm;

fn ike_proposal(words: &str) -> Proposal {
    Proposal::parse_ike_proposal(words).unwrap()
}

/// IPv6 Ready: EN.I.1.1.6.1, EN.I.1.1.6.2, EN.R.1.1.6.1, EN.R.1.1.6.2.
#[test]
fn words_make_proposals() {
    assert_eq!(
        ike_proposal("aes256-aes128-sha256-x25519-modp2048").to_string(),
        "IKE:ENCR_AES_CBC-256/ENCR_AES_CBC-128/AUTH_HMAC_SHA2_256_128/CURVE25519/MODP_2048/PRF_HMAC_SHA2_256"
    );
    assert_eq!(
        ike_proposal("aes128gcm-prfsha384-ecp384").to_string(),
        "IKE:ENCR_AES_GCM_16-128/PRF_HMAC_SHA2_384/ECP_384"
    );
    assert_eq!(
        Proposal::parse_esp_proposal("3des-sha1").unwrap().to_string(),
        "ESP:ENCR_3DES/AUTH_HMAC_SHA1_96/NO_ESN"
    );
    let hybrid = ike_proposal("aes128-sha256-x25519-ke1_mlkem768-ke1_none");
    assert!(hybrid.to_string().contains("/KE1_ML_KEM_768/KE1_NONE"), "{hybrid}");
    assert_eq!(
        Proposal::parse_esp_proposal("null-aesxcbc-esn").unwrap().to_string(),
        "ESP:ENCR_NULL/AUTH_AES_XCBC_96/ESN"
    );
}

#[test]
fn words_that_make_none_say_what_is_wrong() {
    for (words, fault) in [
        ("aes128-sha256-modp768", ProposalError::Word("modp768".into())),
        ("aes128-sha256", ProposalError::Missing("key exchange")),
        ("aes128-modp2048", ProposalError::Missing("integrity")),
        ("sha256-modp2048", ProposalError::Missing("encryption")),
        ("aes128gcm16-modp2048", ProposalError::Missing("pseudorandom function")),
        ("aes128gcm16-aes128-sha256-x25519", ProposalError::Mixed),
        ("aes128gcm16-sha256-x25519", ProposalError::Mixed),
        ("aes128-sha256-x25519-esn", ProposalError::Misplaced("esn".into())),
        ("null-sha256-x25519", ProposalError::Misplaced("null".into())),
    ] {
        assert_eq!(Proposal::parse_ike_proposal(words), Err(fault), "{words}");
    }
    assert_eq!(
        Proposal::parse_esp_proposal("aes128-sha1-prfsha1"),
        Err(ProposalError::Misplaced("prfsha1".into()))
    );
}

/// IPv6 Ready: EN.I.1.1.6.3, EN.I.1.1.6.4, EN.I.1.1.6.5, EN.I.1.1.6.6, EN.I.1.2.3.4, EN.I.1.2.3.5,
/// EN.I.1.2.4.4, EN.I.1.2.4.5, EN.R.1.1.6.3, EN.R.1.1.6.4, EN.R.1.1.6.5, EN.R.1.1.6.6, EN.R.1.2.5.3,
/// EN.R.1.2.5.4, EN.R.1.2.6.5, EN.R.1.2.6.6.
#[test]
fn a_responder_chooses_by_its_own_preference() {
    let ours = [ike_proposal("aes256-sha256-x25519"), ike_proposal("aes128-sha256-sha1-ecp256-modp2048")];
    let theirs = number_proposals(
        [ike_proposal("aes128-aes256-sha1-modp2048-ecp256"), ike_proposal("aes256-sha256-modp2048-x25519")],
        &[],
    );
    let chosen = choose_proposal(&ours, &theirs).unwrap();
    assert_eq!(chosen.number, 2);
    assert_eq!(
        chosen.to_string(),
        "IKE:ENCR_AES_CBC-256/PRF_HMAC_SHA2_256/AUTH_HMAC_SHA2_256_128/CURVE25519"
    );
    assert!(is_offered(&theirs, &chosen));
    let chosen = choose_proposal(&ours[1..], &theirs[..1]).unwrap();
    assert_eq!(chosen.number, 1);
    assert_eq!(chosen.to_string(), "IKE:ENCR_AES_CBC-128/PRF_HMAC_SHA1/AUTH_HMAC_SHA1_96/ECP_256");
    assert_eq!(choose_proposal(&ours[..1], &theirs[..1]), None);
    assert_eq!(
        choose_proposal(&ours, &[Proposal::parse_esp_proposal("aes256-sha256-x25519").unwrap()]),
        None,
        "of another protocol"
    );
}

#[test]
fn a_transform_with_an_unknown_attribute_is_not_chosen() {
    let mut theirs = ike_proposal("aes128-sha256-x25519");
    assert!(choose_proposal(&[ike_proposal("aes128-sha256-x25519")], &[theirs.clone()]).is_some());
    theirs.transforms[0].attributes.push(TransformAttribute::Short { kind: 99, value: 1 });
    assert_eq!(choose_proposal(&[ike_proposal("aes128-sha256-x25519")], &[theirs]), None);
}

#[test]
fn a_kind_that_is_optional_may_be_left_out() {
    let mut esp = Proposal::parse_esp_proposal("aes128gcm16").unwrap();
    esp.transforms.push(Transform::new(TransformType::KE, 0));
    let without = Proposal::parse_esp_proposal("aes128gcm16").unwrap();
    let chosen = choose_proposal(from_ref(&without), from_ref(&esp)).unwrap();
    assert!(chosen.transforms.contains(&Transform::new(TransformType::KE, 0)));
    assert!(is_offered(from_ref(&esp), &chosen) && is_offered(from_ref(&esp), &without));
    assert_eq!(choose_proposal(&[esp], from_ref(&without)).unwrap().transforms, without.transforms);
    let wanted = Proposal::parse_esp_proposal("aes128gcm16-x25519").unwrap();
    assert_eq!(
        choose_proposal(from_ref(&wanted), from_ref(&without)),
        None,
        "forward secrecy is not given up"
    );
    assert!(!is_offered(&[wanted], &without));
}

/// IPv6 Ready: EN.I.1.1.6.9, EN.I.1.1.6.10.
#[test]
fn what_was_not_offered_is_not_taken() {
    let offered =
        number_proposals([ike_proposal("aes256-sha256-x25519"), ike_proposal("aes128-sha1-modp2048")], &[]);
    let right = Proposal { number: 2, ..ike_proposal("aes128-sha1-modp2048") };
    assert!(is_offered(&offered, &right));
    for wrong in [
        Proposal { number: 1, ..right.clone() },
        Proposal { number: 3, ..right.clone() },
        Proposal { number: 2, ..ike_proposal("aes128-sha1-sha256-modp2048") },
        Proposal { number: 2, ..ike_proposal("aes256-sha1-modp2048") },
        Proposal { number: 2, transforms: right.transforms[1..].to_vec(), ..right.clone() },
    ] {
        assert!(!is_offered(&offered, &wrong), "{wrong}");
    }
}

#[test]
fn a_chosen_proposal_means_algorithms() {
    let of = |words: &str| IkeAlgorithms::from_proposal(&ike_proposal(words)).unwrap();
    let gcm = of("aes256gcm16-prfsha384-ecp384");
    assert_eq!((gcm.packets.cipher, gcm.packets.cipher_key), (Some(CipherAlgorithm::AesGcm), 36));
    assert_eq!((gcm.packets.integrity_key(), gcm.prf), (0, MacAlgorithm::HmacSha384));
    assert_eq!(gcm.exchange, KeyExchangeAlgorithm::Ecp384);
    let old = of("3des-aesxcbc-modp1024");
    assert_eq!((old.packets.cipher_key, old.packets.integrity_key(), old.prf.output_len()), (24, 16, 16));
    // An AEAD cipher with an integrity algorithm, or a cipher with neither.
    let mut both = Proposal::parse_esp_proposal("aes128gcm16").unwrap();
    both.transforms.push(Transform::new(TransformType::INTEG, IntegrityId::AUTH_HMAC_SHA1_96.0));
    assert_eq!(PacketAlgorithms::from_proposal(&both), None);
    let mut neither = Proposal::parse_esp_proposal("aes128-sha1").unwrap();
    neither.transforms.retain(|t| t.kind != TransformType::INTEG);
    assert_eq!(PacketAlgorithms::from_proposal(&neither), None);
    let mut bits = Proposal::parse_esp_proposal("aes128-sha1").unwrap();
    bits.transforms[0] = Transform::with_key_length(TransformType::ENCR, 12, 100);
    assert_eq!(PacketAlgorithms::from_proposal(&bits), None, "no such key length");
    assert_eq!(exchange_algorithm(KeyExchangeMethod(99)), None);
}
