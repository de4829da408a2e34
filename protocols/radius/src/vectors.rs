//! Published examples, whole packets with their secrets: RFC 2865 §7.1 and §7.2, RFC 5997 §6.

use crate::auth::{
    MessageAuthenticator, Secret, check_accounting_request, check_message_authenticator, check_response,
    covered_authenticator,
};
use crate::packet::{Code, Packet};

/// A request and its reply.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Exchange {
    /// Where it is printed.
    pub source: &'static str,
    /// The shared secret.
    pub secret: &'static [u8],
    /// The request's octets.
    pub request: &'static [u8],
    /// The reply's octets.
    pub reply: &'static [u8],
    /// The password hidden in the request.
    pub password: Option<&'static [u8]>,
}

/// What [`Exchange::check`] found.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Checked {
    /// The request proves the secret, where its code lets it: by its Message-Authenticator or by a
    /// computed Request Authenticator.
    pub request: bool,
    /// The reply's Response Authenticator is right.
    pub reply: bool,
    /// The hidden password is the printed one, where there is one.
    pub password: bool,
}

impl Checked {
    /// Whether everything is right.
    #[must_use]
    pub const fn passed(self) -> bool {
        self.request && self.reply && self.password
    }
}

impl Exchange {
    /// Verifies both packets with this crate's code.
    #[must_use]
    pub fn check(&self) -> Checked {
        let secret = Secret::new(self.secret);
        let (Ok(request), Ok(reply)) = (Packet::parse(self.request), Packet::parse(self.reply)) else {
            return Checked { request: false, reply: false, password: false };
        };
        let authenticator = request.authenticator();
        let covered = covered_authenticator(request.code(), authenticator, None);
        let signed = check_message_authenticator(&request, &covered, &secret);
        let password = request
            .get(crate::attribute::kind::USER_PASSWORD)
            .map(|hidden| crate::attribute::reveal_password(self.secret, authenticator, hidden));
        Checked {
            request: signed != MessageAuthenticator::Bad
                && (request.code() != Code::ACCOUNTING_REQUEST
                    || check_accounting_request(&request, &secret))
                && (request.code() != Code::STATUS_SERVER || signed == MessageAuthenticator::Good),
            reply: reply.code().answers(request.code()) && check_response(&reply, authenticator, &secret),
            password: match (password, self.password) {
                (None, None) => true,
                (Some(Ok(got)), Some(want)) => got == want,
                _ => false,
            },
        }
    }
}

/// The examples. The reply in RFC 5997 §6.2 is printed with code 2; its authenticator holds with code 5
/// (Accounting-Response), which is what stands here.
pub const EXCHANGES: &[Exchange] = &[
    Exchange {
        source: "RFC 2865 section 7.1",
        secret: b"xyzzy5461",
        request: &[
            0x01, 0x00, 0x00, 0x38, 0x0f, 0x40, 0x3f, 0x94, 0x73, 0x97, 0x80, 0x57, 0xbd, 0x83, 0xd5, 0xcb,
            0x98, 0xf4, 0x22, 0x7a, 0x01, 0x06, 0x6e, 0x65, 0x6d, 0x6f, 0x02, 0x12, 0x0d, 0xbe, 0x70, 0x8d,
            0x93, 0xd4, 0x13, 0xce, 0x31, 0x96, 0xe4, 0x3f, 0x78, 0x2a, 0x0a, 0xee, 0x04, 0x06, 0xc0, 0xa8,
            0x01, 0x10, 0x05, 0x06, 0x00, 0x00, 0x00, 0x03,
        ],
        reply: &[
            0x02, 0x00, 0x00, 0x26, 0x86, 0xfe, 0x22, 0x0e, 0x76, 0x24, 0xba, 0x2a, 0x10, 0x05, 0xf6, 0xbf,
            0x9b, 0x55, 0xe0, 0xb2, 0x06, 0x06, 0x00, 0x00, 0x00, 0x01, 0x0f, 0x06, 0x00, 0x00, 0x00, 0x00,
            0x0e, 0x06, 0xc0, 0xa8, 0x01, 0x03,
        ],
        password: Some(b"arctangent"),
    },
    Exchange {
        source: "RFC 2865 section 7.2",
        secret: b"xyzzy5461",
        request: &[
            0x01, 0x01, 0x00, 0x47, 0x2a, 0xee, 0x86, 0xf0, 0x8d, 0x0d, 0x55, 0x96, 0x9c, 0xa5, 0x97, 0x8e,
            0x0d, 0x33, 0x67, 0xa2, 0x01, 0x08, 0x66, 0x6c, 0x6f, 0x70, 0x73, 0x79, 0x03, 0x13, 0x16, 0xe9,
            0x75, 0x57, 0xc3, 0x16, 0x18, 0x58, 0x95, 0xf2, 0x93, 0xff, 0x63, 0x44, 0x07, 0x72, 0x75, 0x04,
            0x06, 0xc0, 0xa8, 0x01, 0x10, 0x05, 0x06, 0x00, 0x00, 0x00, 0x14, 0x06, 0x06, 0x00, 0x00, 0x00,
            0x02, 0x07, 0x06, 0x00, 0x00, 0x00, 0x01,
        ],
        reply: &[
            0x02, 0x01, 0x00, 0x38, 0x15, 0xef, 0xbc, 0x7d, 0xab, 0x26, 0xcf, 0xa3, 0xdc, 0x34, 0xd9, 0xc0,
            0x3c, 0x86, 0x01, 0xa4, 0x06, 0x06, 0x00, 0x00, 0x00, 0x02, 0x07, 0x06, 0x00, 0x00, 0x00, 0x01,
            0x08, 0x06, 0xff, 0xff, 0xff, 0xfe, 0x0a, 0x06, 0x00, 0x00, 0x00, 0x02, 0x0d, 0x06, 0x00, 0x00,
            0x00, 0x01, 0x0c, 0x06, 0x00, 0x00, 0x05, 0xdc,
        ],
        password: None,
    },
    Exchange {
        source: "RFC 5997 section 6.1",
        secret: b"xyzzy5461",
        request: &[
            0x0c, 0xda, 0x00, 0x26, 0x8a, 0x54, 0xf4, 0x68, 0x6f, 0xb3, 0x94, 0xc5, 0x28, 0x66, 0xe3, 0x02,
            0x18, 0x5d, 0x06, 0x23, 0x50, 0x12, 0x5a, 0x66, 0x5e, 0x2e, 0x1e, 0x84, 0x11, 0xf3, 0xe2, 0x43,
            0x82, 0x20, 0x97, 0xc8, 0x4f, 0xa3,
        ],
        reply: &[
            0x02, 0xda, 0x00, 0x14, 0xef, 0x0d, 0x55, 0x2a, 0x4b, 0xf2, 0xd6, 0x93, 0xec, 0x2b, 0x6f, 0xe8,
            0xb5, 0x41, 0x1d, 0x66,
        ],
        password: None,
    },
    Exchange {
        source: "RFC 5997 section 6.2",
        secret: b"xyzzy5461",
        request: &[
            0x0c, 0xb3, 0x00, 0x26, 0x92, 0x5f, 0x6b, 0x66, 0xdd, 0x5f, 0xed, 0x57, 0x1f, 0xcb, 0x1d, 0xb7,
            0xad, 0x38, 0x82, 0x60, 0x50, 0x12, 0xe8, 0xd6, 0xea, 0xbd, 0xa9, 0x10, 0x87, 0x5c, 0xd9, 0x1f,
            0xda, 0xde, 0x26, 0x36, 0x78, 0x58,
        ],
        reply: &[
            0x05, 0xb3, 0x00, 0x14, 0x0f, 0x6f, 0x92, 0x14, 0x5f, 0x10, 0x7e, 0x2f, 0x50, 0x4e, 0x86, 0x0a,
            0x48, 0x60, 0x66, 0x9c,
        ],
        password: None,
    },
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_published_examples_verify() {
        for exchange in EXCHANGES {
            assert!(exchange.check().passed(), "{}: {:?}", exchange.source, exchange.check());
        }
    }

    #[test]
    fn another_secret_fails_them() {
        for exchange in EXCHANGES {
            let checked = Exchange { secret: b"other", ..*exchange }.check();
            assert!(!checked.reply && !checked.passed(), "{}", exchange.source);
        }
    }

    #[test]
    fn the_reply_of_rfc_5997_section_6_2_fails_with_the_printed_code() {
        let mut reply = EXCHANGES[3].reply.to_vec();
        reply[0] = 2;
        let mut authenticator = [0; 16];
        authenticator.copy_from_slice(&EXCHANGES[3].request[4..20]);
        let secret = Secret::new(EXCHANGES[3].secret);
        assert!(!check_response(&Packet::parse(&reply).unwrap(), &authenticator, &secret));
    }
}
