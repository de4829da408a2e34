//! User names of EAP methods whose outer identity proves nothing.
//!
//! PEAP, EAP-TTLS and similar methods prove an identity inside a tunnel, and the outer identity may be anything. Only
//! the AAA server's User-Name then identifies the user. EAP-TLS proves a certificate. Unless the AAA server compares
//! the two, the outer identity may differ from the certificate's.

use alloc::vec::Vec;

/// EAP's code of a response (RFC 3748 §4.1).
const RESPONSE: u8 = 2;
/// EAP-TTLS (RFC 5281), PEAP, EAP-FAST (RFC 4851), TEAP (RFC 7170).
const TUNNELLED: [u8; 4] = [21, 25, 43, 55];
/// EAP-TLS (RFC 5216).
const TLS: u8 = 13;

/// The method of an EAP packet, if it is a response.
fn eap_response_method(packet: &[u8]) -> Option<u8> {
    match *packet {
        // RFC 3748, 5.7: the same types in expanded form, with vendor 0.
        [RESPONSE, _, _, _, 254, 0, 0, 0, 0, 0, 0, kind, ..] | [RESPONSE, _, _, _, kind, ..] => Some(kind),
        _ => None,
    }
}

/// True if an EAP packet is a response of a tunnelled method, which has an inner identity.
#[must_use]
pub fn is_tunnelled(packet: &[u8]) -> bool {
    eap_response_method(packet).is_some_and(|kind| TUNNELLED.contains(&kind))
}

/// True if an EAP packet is a response of EAP-TLS, whose identity is the certificate's.
#[must_use]
pub fn is_eap_tls_response(packet: &[u8]) -> bool {
    eap_response_method(packet) == Some(TLS)
}

/// The fallback user name when the AAA server sends none. It combines the outer identity with a unique text, such as
/// `"session 0a0b0c0d00000001"`. No other session or record has that name.
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
            assert_eq!(is_eap_tls_response(&[2, 7, 0, 6, kind, 0]), kind == 13, "{kind}");
            assert!(!is_eap_tls_response(&[1, 7, 0, 6, kind, 0]), "a request of type {kind} is no response");
        }
        assert!(!is_tunnelled(&[2, 7]));
    }
}
