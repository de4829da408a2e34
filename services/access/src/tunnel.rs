//! Names that are worth nothing: those outside of a tunnel.
//!
//! By PEAP, EAP-TTLS and their like a user proves within a tunnel who it is, to the AAA server alone, and may have called itself
//! anybody outside of it. Only that server's User-Name says then whom it has let in. By EAP-TLS it proves that it has a certificate, and
//! may have called itself somebody else whom that does not name, unless the AAA server compares the two, which not each does.

use alloc::vec::Vec;

/// EAP's code of a response (RFC 3748 §4.1).
const RESPONSE: u8 = 2;
/// EAP-TTLS (RFC 5281), PEAP, EAP-FAST (RFC 4851), TEAP (RFC 7170).
const TUNNELLED: [u8; 4] = [21, 25, 43, 55];
/// EAP-TLS (RFC 5216).
const TLS: u8 = 13;

/// The method of an EAP packet, where that is a response.
fn response_method(packet: &[u8]) -> Option<u8> {
    match *packet {
        // The same types, written as expanded ones of vendor 0 (RFC 3748 §5.7).
        [RESPONSE, _, _, _, 254, 0, 0, 0, 0, 0, 0, kind, ..] | [RESPONSE, _, _, _, kind, ..] => Some(kind),
        _ => None,
    }
}

/// Whether an EAP packet is a response of a method that has another within it, with a name of its own.
#[must_use]
pub fn is_tunnelled(packet: &[u8]) -> bool {
    response_method(packet).is_some_and(|kind| TUNNELLED.contains(&kind))
}

/// Whether an EAP packet is a response of EAP-TLS, whose name is the certificate's.
#[must_use]
pub fn is_by_certificate(packet: &[u8]) -> bool {
    response_method(packet) == Some(TLS)
}

/// How somebody is called of whom nobody has said who it is: by the name that it gave outside of a tunnel, and by what is its alone,
/// such as `"session 0a0b0c0d00000001"`, so that no other session, address or record is taken for its own.
#[must_use]
pub fn fallback_user_name(name: &[u8], what: &str) -> Vec<u8> {
    [name, b" within EAP, ", what.as_bytes()].concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_method_with_another_within_it_is_known_by_its_type() {
        for (kind, tunnelled) in
            [(1, false), (4, false), (13, false), (21, true), (25, true), (43, true), (55, true)]
        {
            assert_eq!(is_tunnelled(&[2, 7, 0, 6, kind, 0]), tunnelled, "{kind}");
            assert_eq!(
                is_tunnelled(&[2, 7, 0, 12, 254, 0, 0, 0, 0, 0, 0, kind]),
                tunnelled,
                "expanded {kind}"
            );
            assert!(!is_tunnelled(&[1, 7, 0, 6, kind, 0]), "a request of type {kind} is no response");
            assert_eq!(is_by_certificate(&[2, 7, 0, 6, kind, 0]), kind == 13, "{kind}");
            assert!(!is_by_certificate(&[1, 7, 0, 6, kind, 0]), "a request of type {kind} is no response");
        }
        assert!(!is_tunnelled(&[2, 7]));
    }
}
