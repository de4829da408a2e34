//! Proofs in a single request, without EAP: password, CHAP, MS-CHAP and MS-CHAPv2 (RFC 2865 §5.2 and §5.3, RFC 2548
//! §2), and MAC authentication bypass.

use crate::users::{AuthMethod, StoredPassword, User};
use alloc::boxed::Box;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;
use usher_core::SecureRng;
use usher_crypto::SecretValue;
use usher_crypto::digest::{constant_time_eq, md5};
use usher_crypto::legacy::mschap::{self, MsChapKeys};
use usher_crypto::legacy::nt_hash;
use usher_diameter::nasreq;
use usher_radius::attribute::{AttributeList, kind, vendor};

/// The proof of a login whose user is being looked up.
pub(super) enum RequestCredentials {
    /// An EAP-Response/Identity with this identifier.
    Eap(u8),
    /// The password.
    Pap(SecretValue),
    /// A CHAP response.
    Chap(Box<ChapCredentials>),
    /// An MS-CHAP response.
    MsChap(Box<MsChap>),
    /// The station's MAC address as twelve digits, and a password if the request has one.
    Mab([u8; 12], Option<SecretValue>),
}

pub(super) struct ChapCredentials {
    identifier: u8,
    response: [u8; 16],
    challenge: Vec<u8>,
}

pub(super) struct MsChap {
    identifier: u8,
    response: [u8; 24],
    kind: MsChapVersion,
}

enum MsChapVersion {
    V1 { challenge: [u8; 8] },
    V2 { challenge: [u8; 16], peer_challenge: [u8; 16] },
}

impl fmt::Debug for RequestCredentials {
    /// Shows the kind only.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.method().map_or("eap", AuthMethod::name))
    }
}

/// A malformed proof.
#[derive(Debug)]
pub(super) struct BadProof;

impl RequestCredentials {
    /// Returns the method, outside EAP.
    pub(super) fn method(&self) -> Option<AuthMethod> {
        Some(match self {
            Self::Eap(_) => return None,
            Self::Pap(_) => AuthMethod::Pap,
            Self::Chap(_) => AuthMethod::Chap,
            Self::MsChap(m) => match m.kind {
                MsChapVersion::V1 { .. } => AuthMethod::MsChap,
                MsChapVersion::V2 { .. } => AuthMethod::MsChapV2,
            },
            Self::Mab(..) => AuthMethod::Mab,
        })
    }
    /// Reads the CHAP response of an AA-Request.
    pub(super) fn from_chap(chap: &nasreq::ChapAuth<'_>) -> Self {
        let (identifier, response) = (chap.identifier, *chap.response);
        Self::Chap(Box::new(ChapCredentials { identifier, response, challenge: chap.challenge.to_vec() }))
    }
    /// Reads the MS-CHAP response of a request. `None`: there is none.
    pub(super) fn from_attributes(
        request: &AttributeList,
        authenticator: &[u8; 16],
    ) -> Result<Option<Self>, BadProof> {
        if let Some(value) = request.get(kind::CHAP_PASSWORD) {
            let (&identifier, response) = value.split_first().ok_or(BadProof)?;
            let response = response.try_into().map_err(|_| BadProof)?;
            // RFC 2865, 5.3: the challenge is in CHAP-Challenge, or it is the authenticator.
            let challenge = request.get(kind::CHAP_CHALLENGE).unwrap_or(authenticator).to_vec();
            return Ok(Some(Self::Chap(Box::new(ChapCredentials { identifier, response, challenge }))));
        }
        let microsoft = |kind| request.get_vendor(vendor::MICROSOFT, kind);
        let Some(challenge) = microsoft(vendor::MS_CHAP_CHALLENGE) else { return Ok(None) };
        if let Some(value) = microsoft(vendor::MS_CHAP2_RESPONSE) {
            // Identifier, flags, peer challenge, eight zeros, response.
            let value: &[u8; 50] = value.try_into().map_err(|_| BadProof)?;
            let challenge = challenge.try_into().map_err(|_| BadProof)?;
            let mut peer_challenge = [0; 16];
            peer_challenge.copy_from_slice(&value[2..18]);
            return Ok(Some(Self::ms_chap(value, MsChapVersion::V2 { challenge, peer_challenge })));
        }
        let Some(value) = microsoft(vendor::MS_CHAP_RESPONSE) else { return Ok(None) };
        // Identifier, flags, LM response, NT response. Without the flag there is no NT response.
        let value: &[u8; 50] = value.try_into().map_err(|_| BadProof)?;
        let challenge = challenge.try_into().map_err(|_| BadProof)?;
        if value[1] != 1 {
            return Err(BadProof);
        }
        Ok(Some(Self::ms_chap(value, MsChapVersion::V1 { challenge })))
    }
    fn ms_chap(value: &[u8; 50], kind: MsChapVersion) -> Self {
        let mut response = [0; 24];
        response.copy_from_slice(&value[26..]);
        Self::MsChap(Box::new(MsChap { identifier: value[0], response, kind }))
    }
}

/// The attributes of an Access-Reject for MS-CHAP, whatever the cause (RFC 2548 §2.1.5, RFC 2759 §6):
/// authentication failed, no retry.
#[derive(Clone, Copy, Debug)]
pub(super) struct MsChapRejectAttributes {
    identifier: u8,
    v2: bool,
}

impl MsChapRejectAttributes {
    pub(super) fn to_attributes(self, rng: &mut SecureRng) -> AttributeList {
        let text = if self.v2 {
            let challenge = u128::from_be_bytes(rng.random_array());
            format!("E=691 R=0 C={challenge:032X} V=3 M=Authentication failed")
        } else {
            "E=691 R=0".into()
        };
        let mut error = alloc::vec![self.identifier];
        error.extend_from_slice(text.as_bytes());
        let mut reply = AttributeList::new();
        let fits = reply.push_vendor(vendor::MICROSOFT, vendor::MS_CHAP_ERROR, &error).is_ok();
        debug_assert!(fits, "a short text fits every attribute");
        reply
    }
}

impl RequestCredentials {
    /// Returns the attributes of a reject of this proof.
    pub(super) fn ms_chap_denial(&self) -> Option<MsChapRejectAttributes> {
        let Self::MsChap(m) = self else { return None };
        Some(MsChapRejectAttributes {
            identifier: m.identifier,
            v2: matches!(m.kind, MsChapVersion::V2 { .. }),
        })
    }
}

/// The result of a proof.
pub(super) enum ProofVerdict {
    /// Right, with further attributes of the reply.
    Right(AttributeList),
    /// Wrong.
    Wrong,
    /// The host must compare the password with the hash.
    HostComparison(SecretValue<String>, SecretValue),
}

/// Checks a proof outside EAP. `name` is the request's User-Name.
pub(super) fn verify_proof(proof: RequestCredentials, user: &User, name: &[u8]) -> ProofVerdict {
    let plain = |right| if right { ProofVerdict::Right(AttributeList::new()) } else { ProofVerdict::Wrong };
    match proof {
        RequestCredentials::Eap(_) => plain(false),
        RequestCredentials::Mab(..) => plain(true),
        RequestCredentials::Pap(password) => match &user.password {
            None => plain(false),
            Some(StoredPassword::Clear(clear)) => plain(constant_time_eq(clear, &password)),
            Some(StoredPassword::NtHash(hash)) => plain(constant_time_eq(&**hash, &nt_hash(&password))),
            Some(StoredPassword::Argon2(hash)) => ProofVerdict::HostComparison(hash.clone(), password),
        },
        RequestCredentials::Chap(chap) => match &user.password {
            Some(StoredPassword::Clear(clear)) => {
                let right = md5(&[&[chap.identifier], clear, &chap.challenge]);
                plain(constant_time_eq(&right, &chap.response))
            }
            _ => plain(false),
        },
        RequestCredentials::MsChap(m) => {
            let right = user.nt_hash().filter(|hash| {
                let right = match &m.kind {
                    MsChapVersion::V1 { challenge } => mschap::mschap_v1_response(challenge, hash),
                    MsChapVersion::V2 { challenge, peer_challenge } => {
                        mschap::nt_response(challenge, peer_challenge, name, hash)
                    }
                };
                constant_time_eq(&right, &m.response)
            });
            match right {
                Some(hash) => ProofVerdict::Right(m.success_attributes(name, &hash, user)),
                None => ProofVerdict::Wrong,
            }
        }
    }
}

impl MsChap {
    /// Returns the keys for an Access-Accept, and for MS-CHAPv2 the server's own proof.
    fn success_attributes(&self, name: &[u8], hash: &[u8; 16], user: &User) -> AttributeList {
        let mut reply = AttributeList::new();
        let MsChapVersion::V2 { challenge, peer_challenge } = &self.kind else {
            let clear = match &user.password {
                Some(StoredPassword::Clear(clear)) => Some(&clear[..]),
                _ => None,
            };
            let keys = MsChapKeys::from_nt_hash(hash, clear);
            let keys = SecretValue::from([&keys.lm[..], &keys.nt[..], &[0; 8]].concat());
            let fits = reply.push_vendor_hidden(vendor::MICROSOFT, vendor::MS_CHAP_MPPE_KEYS, &keys).is_ok();
            debug_assert!(fits, "32 octets fit every attribute");
            return reply;
        };
        let proof = mschap::authenticator_response(hash, &self.response, peer_challenge, challenge, name);
        let mut success = alloc::vec![self.identifier];
        success.extend_from_slice(&proof);
        let keys = mschap::mppe_keys(hash, &self.response);
        let fits = reply
            .push_vendor(vendor::MICROSOFT, vendor::MS_CHAP2_SUCCESS, &success)
            .and_then(|r| r.push_vendor_salted(vendor::MICROSOFT, vendor::MS_MPPE_RECV_KEY, &*keys.recv))
            .and_then(|r| r.push_vendor_salted(vendor::MICROSOFT, vendor::MS_MPPE_SEND_KEY, &*keys.send))
            .is_ok();
        debug_assert!(fits, "43 and 16 octets fit every attribute");
        reply
    }
}
