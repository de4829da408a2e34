//! Proofs of the shared secret: Request and Response Authenticators (RFC 2865 §3, RFC 2866 §3) and the
//! Message-Authenticator (RFC 3579 §3.2, RFC 5080 §2.2.2, RFC 5176 §3.4, RFC 5997 §3).

use crate::attribute::kind::MESSAGE_AUTHENTICATOR;
use crate::packet::{HEADER_LEN, PacketCode, RadiusPacket};
use alloc::sync::Arc;
use core::fmt;
use usher_crypto::SecretValue;
use usher_crypto::digest::{HmacMd5Key, constant_time_eq, md5_with_overlays};

/// The length of a Message-Authenticator attribute.
pub const MESSAGE_AUTHENTICATOR_LEN: usize = 18;

/// The offset of the authenticator: after code, identifier and length.
const AUTHENTICATOR_AT: usize = 4;

/// A shared secret with its prepared HMAC key. Clones share one copy. It is never printed.
#[derive(Clone)]
pub struct SharedSecret(Arc<SecretWithHmacKey>);

struct SecretWithHmacKey {
    bytes: SecretValue,
    hmac: HmacMd5Key,
}

impl SharedSecret {
    /// A secret of these octets. RFC 2865 §3 wants at least 16 unpredictable octets. A server rejects an empty secret.
    #[must_use]
    pub fn new(bytes: &[u8]) -> Self {
        Self(Arc::new(SecretWithHmacKey { bytes: bytes.into(), hmac: HmacMd5Key::new(bytes) }))
    }
    /// The octets.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        &self.0.bytes
    }
}

impl fmt::Debug for SharedSecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(..)")
    }
}
impl PartialEq for SharedSecret {
    fn eq(&self, other: &Self) -> bool {
        constant_time_eq(self.as_bytes(), other.as_bytes())
    }
}
impl Eq for SharedSecret {}

/// The state of a packet's Message-Authenticator.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum MessageAuthenticator {
    /// Absent.
    Absent,
    /// Present and valid.
    Good,
    /// Wrong, of a wrong length, or present several times.
    Bad,
}

/// Returns the authenticator field that the Message-Authenticator covers (RFC 3579 §3.2, RFC 5176 §3.4).
///
/// - Access-Request and Status-Server: their own authenticator.
/// - Accounting-, CoA- and Disconnect-Request: zeros, since their Request Authenticator is computed afterwards.
/// - Replies: the authenticator of the request.
#[must_use]
pub fn covered_authenticator(code: PacketCode, own: &[u8; 16], request: Option<&[u8; 16]>) -> [u8; 16] {
    match (code, request) {
        (PacketCode::ACCESS_REQUEST | PacketCode::STATUS_SERVER, _) => *own,
        (_, Some(request)) if !code.is_request() => *request,
        _ => [0; 16],
    }
}

/// Computes the Message-Authenticator of a packet whose 16 octets for it are at `at`.
fn compute_mac(bytes: &[u8], at: usize, covered: &[u8; 16], secret: &SharedSecret) -> [u8; 16] {
    secret.0.hmac.hmac_md5_with_overlays(&[bytes], &[(AUTHENTICATOR_AT, covered), (at, &[0; 16])])
}

/// Checks the Message-Authenticator of a packet in constant time. `covered` comes from [`covered_authenticator`].
#[must_use]
pub fn check_message_authenticator(
    packet: &RadiusPacket<'_>,
    covered: &[u8; 16],
    secret: &SharedSecret,
) -> MessageAuthenticator {
    let bytes = packet.as_bytes();
    match locate_authenticator(packet) {
        AuthenticatorPosition::Nowhere => MessageAuthenticator::Absent,
        AuthenticatorPosition::Wrong => MessageAuthenticator::Bad,
        AuthenticatorPosition::Offset(at) => {
            compare_message_authenticator(&compute_mac(bytes, at, covered, secret), bytes, at)
        }
    }
}

/// The position of a packet's Message-Authenticator value.
enum AuthenticatorPosition {
    Nowhere,
    Offset(usize),
    /// Several, or one of a wrong length.
    Wrong,
}

fn locate_authenticator(packet: &RadiusPacket<'_>) -> AuthenticatorPosition {
    let (mut at, mut place) = (HEADER_LEN, AuthenticatorPosition::Nowhere);
    if !packet.attribute_types().may_have_attribute_type(MESSAGE_AUTHENTICATOR) {
        return place;
    }
    for a in packet.attributes() {
        if a.kind == MESSAGE_AUTHENTICATOR {
            if !matches!(place, AuthenticatorPosition::Nowhere) || a.value.len() != 16 {
                return AuthenticatorPosition::Wrong;
            }
            place = AuthenticatorPosition::Offset(at + 2);
        }
        at += a.value.len() + 2;
    }
    place
}

fn compare_message_authenticator(right: &[u8; 16], bytes: &[u8], at: usize) -> MessageAuthenticator {
    if constant_time_eq(right, &bytes[at..at + 16]) {
        MessageAuthenticator::Good
    } else {
        MessageAuthenticator::Bad
    }
}

/// Checks Response Authenticator and Message-Authenticator of a reply side by side, in constant time. Returns true for
/// a valid Response Authenticator, and the state of the Message-Authenticator.
#[must_use]
pub fn check_reply(
    reply: &RadiusPacket<'_>,
    request_authenticator: &[u8; 16],
    secret: &SharedSecret,
) -> (bool, MessageAuthenticator) {
    let bytes = reply.as_bytes();
    let at = match locate_authenticator(reply) {
        AuthenticatorPosition::Nowhere => {
            return (check_response(reply, request_authenticator, secret), MessageAuthenticator::Absent);
        }
        AuthenticatorPosition::Wrong => {
            return (check_response(reply, request_authenticator, secret), MessageAuthenticator::Bad);
        }
        AuthenticatorPosition::Offset(at) => at,
    };
    let covered = covered_authenticator(reply.code(), reply.authenticator(), Some(request_authenticator));
    let (mac, response) = secret.0.hmac.mac_with_md5(
        (&[bytes], &[(AUTHENTICATOR_AT, &covered), (at, &[0; 16])]),
        (&[bytes, secret.as_bytes()], &[(AUTHENTICATOR_AT, request_authenticator)]),
    );
    (constant_time_eq(&response, reply.authenticator()), compare_message_authenticator(&mac, bytes, at))
}

/// Computes the Response Authenticator of a reply (RFC 2865 §3). `reply` has its final length; its authenticator field
/// is ignored.
#[must_use]
pub fn response_authenticator(
    reply: &[u8],
    request_authenticator: &[u8; 16],
    secret: &SharedSecret,
) -> [u8; 16] {
    // RFC 2866, 3; RFC 5997, 3: the digest of accounting and of Status-Server is the same.
    md5_with_overlays(&[reply, secret.as_bytes()], &[(AUTHENTICATOR_AT, request_authenticator)])
}

/// Computes the Request Authenticator of an Accounting-, CoA- or Disconnect-Request (RFC 2866 §3, RFC 5176 §2.3).
#[must_use]
pub fn accounting_request_authenticator(request: &[u8], secret: &SharedSecret) -> [u8; 16] {
    response_authenticator(request, &[0; 16], secret)
}

/// True if the Response Authenticator of a reply is valid. Runs in constant time.
#[must_use]
pub fn check_response(
    reply: &RadiusPacket<'_>,
    request_authenticator: &[u8; 16],
    secret: &SharedSecret,
) -> bool {
    constant_time_eq(
        &response_authenticator(reply.as_bytes(), request_authenticator, secret),
        reply.authenticator(),
    )
}

/// True if the Request Authenticator of an Accounting-, CoA- or Disconnect-Request is valid. Runs in constant time.
#[must_use]
pub fn check_accounting_request(request: &RadiusPacket<'_>, secret: &SharedSecret) -> bool {
    check_response(request, &[0; 16], secret)
}

/// Reserves a Message-Authenticator as the first attribute of a packet that consists of a header only. Its place in
/// front keeps an attacker from putting a chosen prefix before it.
pub(crate) fn reserve_authenticator(out: &mut alloc::vec::Vec<u8>) {
    let mut attribute = [0; MESSAGE_AUTHENTICATOR_LEN];
    (attribute[0], attribute[1]) = (MESSAGE_AUTHENTICATOR, MESSAGE_AUTHENTICATOR_LEN as u8);
    out.extend_from_slice(&attribute);
}

/// Signs a request in place: sets a Message-Authenticator reserved in front, then the Request Authenticator if the code
/// has a computed one.
pub(crate) fn sign_request(bytes: &mut [u8], message_authenticator: bool, secret: &SharedSecret) {
    let code = PacketCode(bytes[0]);
    let random = matches!(code, PacketCode::ACCESS_REQUEST | PacketCode::STATUS_SERVER);
    if message_authenticator {
        let mut covered = [0; 16];
        if random {
            covered.copy_from_slice(&bytes[4..HEADER_LEN]);
        }
        write_leading_message_authenticator(bytes, &covered, secret);
    }
    if !random {
        let authenticator = accounting_request_authenticator(bytes, secret);
        bytes[4..HEADER_LEN].copy_from_slice(&authenticator);
    }
}

/// Signs a reply in place: sets a Message-Authenticator reserved in front, then the Response Authenticator.
pub(crate) fn sign_response(
    bytes: &mut [u8],
    message_authenticator: bool,
    request_authenticator: &[u8; 16],
    secret: &SharedSecret,
) {
    if message_authenticator {
        write_leading_message_authenticator(bytes, request_authenticator, secret);
    }
    let authenticator = response_authenticator(bytes, request_authenticator, secret);
    bytes[4..HEADER_LEN].copy_from_slice(&authenticator);
}

fn write_leading_message_authenticator(bytes: &mut [u8], covered: &[u8; 16], secret: &SharedSecret) {
    let at = HEADER_LEN + 2;
    let mac = compute_mac(bytes, at, covered, secret);
    bytes[at..at + 16].copy_from_slice(&mac);
}
