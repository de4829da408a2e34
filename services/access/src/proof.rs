//! The proof of a user's identity in a login.

use crate::AccessReply;
use core::fmt;
use usher_crypto::digest::{constant_time_eq, md5};
use usher_crypto::legacy::{mschap, nt_hash};
use usher_diameter::avp::{AvpBuf, AvpId};
use usher_diameter::nasreq::ChapAuth;
use usher_radius::attribute::{AttributeList, ValueTooLong, kind, vendor};

/// The proof of a user's identity in a login.
#[derive(Clone, Copy)]
pub enum UserCredentials<'a> {
    /// An EAP packet from the peer, forwarded unchanged (RFC 3579, RFC 4072).
    Eap(&'a [u8]),
    /// A password (RFC 2865 §5.2) of at most 128 octets: hidden over RADIUS, clear over Diameter.
    Pap(&'a [u8]),
    /// A CHAP response (RFC 1994).
    Chap(ChapResponse<'a>),
    /// An MS-CHAP response (RFC 2433).
    MsChap(MsChapResponse),
    /// An MS-CHAPv2 response (RFC 2759).
    MsChapV2(MsChapV2Response),
}

impl fmt::Debug for UserCredentials<'_> {
    /// Prints the kind only.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Eap(_) => "Eap",
            Self::Pap(_) => "Pap",
            Self::Chap(_) => "Chap",
            Self::MsChap(_) => "MsChap",
            Self::MsChapV2(_) => "MsChapV2",
        })
    }
}

/// A response to a CHAP challenge, received or computed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ChapResponse<'a> {
    /// The Identifier of challenge and response.
    pub identifier: u8,
    /// The challenge, at most 253 octets.
    pub challenge: &'a [u8],
    /// The response's Value.
    pub response: [u8; 16],
}

impl<'a> ChapResponse<'a> {
    /// Computes the response to a challenge (RFC 1994 §4.1).
    #[must_use]
    pub fn from_password(identifier: u8, challenge: &'a [u8], password: &[u8]) -> Self {
        Self { identifier, challenge, response: md5(&[&[identifier], password, challenge]) }
    }
}

/// A response to an MS-CHAP challenge, received or computed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct MsChapResponse {
    /// The Identifier of challenge and response.
    pub identifier: u8,
    /// The challenge.
    pub challenge: [u8; 8],
    /// The LAN Manager response, or zeros.
    pub lm_response: [u8; 24],
    /// The NT response, or zeros.
    pub nt_response: [u8; 24],
    /// True if the NT response is preferred (RFC 2548 §2.1.3, Flags).
    pub use_nt: bool,
}

impl MsChapResponse {
    /// Computes the response to a challenge (RFC 2433 §A.5), without the LAN Manager response.
    #[must_use]
    pub fn from_password(identifier: u8, challenge: [u8; 8], password: &[u8]) -> Self {
        let nt_response = mschap::mschap_v1_response(&challenge, &nt_hash(password));
        Self { identifier, challenge, lm_response: [0; 24], nt_response, use_nt: true }
    }
}

/// A response to an MS-CHAPv2 challenge, received or computed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct MsChapV2Response {
    /// The Identifier of challenge and response.
    pub identifier: u8,
    /// The authenticator's challenge.
    pub challenge: [u8; 16],
    /// The peer's challenge.
    pub peer_challenge: [u8; 16],
    /// The response.
    pub response: [u8; 24],
}

impl MsChapV2Response {
    /// Computes the response to a challenge (RFC 2759 §8.1), and the expected proof of the server.
    #[must_use]
    pub fn from_password(
        identifier: u8,
        challenge: [u8; 16],
        peer_challenge: [u8; 16],
        name: &[u8],
        password: &[u8],
    ) -> (Self, ExpectedServerProof) {
        let hash = nt_hash(password);
        let response = mschap::nt_response(&challenge, &peer_challenge, name, &hash);
        let success = mschap::authenticator_response(&hash, &response, &peer_challenge, &challenge, name);
        let keys = mschap::mppe_keys(&hash, &response);
        (Self { identifier, challenge, peer_challenge, response }, ExpectedServerProof { success, keys })
    }
}

/// The expected proof of an accepting server for MS-CHAPv2.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ExpectedServerProof {
    success: [u8; mschap::AUTHENTICATOR_RESPONSE_LEN],
    keys: mschap::MppeKeys,
}

/// An accepting server does not prove that it knows the password.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, thiserror::Error)]
pub enum ServerProofError {
    /// Its authenticator response is missing or wrong (RFC 2759 §5).
    #[error("the server's authenticator response is missing or wrong")]
    Response,
    /// Its keys do not derive from the password (RFC 3079 §3).
    #[error("the server's keys do not derive from the password")]
    Keys,
}

impl ExpectedServerProof {
    /// Checks that the accepting server knows the password, as far as the reply proves it.
    ///
    /// # Errors
    /// The missing or wrong part.
    pub fn verify_reply(&self, reply: &AccessReply) -> Result<(), ServerProofError> {
        let proof = reply.ms_chap2_success().filter(|proof| constant_time_eq(proof, &self.success));
        proof.ok_or(ServerProofError::Response)?;
        match reply.mppe_keys() {
            Ok(None) => Ok(()),
            Ok(Some(k))
                if constant_time_eq(&k.recv, &self.keys.recv[..])
                    && constant_time_eq(&k.send, &self.keys.send[..]) =>
            {
                Ok(())
            }
            Ok(Some(_)) | Err(_) => Err(ServerProofError::Keys),
        }
    }
}

impl UserCredentials<'_> {
    /// Appends the RADIUS attributes.
    pub(crate) fn append_attributes(&self, a: &mut AttributeList) -> Result<(), ValueTooLong> {
        match self {
            Self::Eap(packet) => drop(a.push_eap(packet)),
            Self::Pap(password) => drop(a.push_user_password(password)?),
            Self::Chap(chap) => {
                let mut value = [chap.identifier; 17];
                value[1..].copy_from_slice(&chap.response);
                a.push_bytes(kind::CHAP_PASSWORD, &value)?
                    .push_bytes(kind::CHAP_CHALLENGE, chap.challenge)?;
            }
            Self::MsChap(_) | Self::MsChapV2(_) => {
                if let Some((challenge, kind, value)) = self.microsoft_response() {
                    a.push_vendor(vendor::MICROSOFT, vendor::MS_CHAP_CHALLENGE, challenge)?;
                    a.push_vendor(vendor::MICROSOFT, kind, &value)?;
                }
            }
        }
        Ok(())
    }
    /// The password for an AA-Request.
    pub(crate) const fn password(&self) -> Option<&[u8]> {
        match self {
            Self::Pap(password) => Some(password),
            _ => None,
        }
    }
    /// The CHAP response for an AA-Request.
    pub(crate) const fn chap_response(&self) -> Option<ChapAuth<'_>> {
        match self {
            Self::Chap(c) => {
                Some(ChapAuth { identifier: c.identifier, response: &c.response, challenge: c.challenge })
            }
            _ => None,
        }
    }
    /// Appends the proofs without an AVP of AA-Request: Microsoft's AVPs, with the numbers of its attributes.
    pub(crate) fn append_avps(&self, avps: &mut AvpBuf) {
        if let Some((challenge, kind, value)) = self.microsoft_response() {
            let id = |kind: u8| AvpId::new_vendor_avp_id(vendor::MICROSOFT, kind.into(), false);
            avps.push(id(vendor::MS_CHAP_CHALLENGE), challenge).push(id(kind), &value);
        }
    }
    /// MS-CHAP-Challenge (RFC 2548 §2.1.2), and the number and value of MS-CHAP-Response (§2.1.3) or MS-CHAP2-Response
    /// (§2.3.2).
    fn microsoft_response(&self) -> Option<(&[u8], u8, [u8; 50])> {
        let mut value = [0; 50];
        match self {
            Self::MsChap(m) => {
                value[..2].copy_from_slice(&[m.identifier, m.use_nt.into()]);
                value[2..26].copy_from_slice(&m.lm_response);
                value[26..].copy_from_slice(&m.nt_response);
                Some((&m.challenge, vendor::MS_CHAP_RESPONSE, value))
            }
            Self::MsChapV2(m) => {
                value[0] = m.identifier;
                value[2..18].copy_from_slice(&m.peer_challenge);
                value[26..].copy_from_slice(&m.response);
                Some((&m.challenge, vendor::MS_CHAP2_RESPONSE, value))
            }
            _ => None,
        }
    }
}
