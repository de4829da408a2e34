//! The direction and the code of a message.

use crate::attribute::AttributeType;
use core::fmt;

/// The direction of a message, from its management message type.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Direction {
    /// PKM-REQ, type 9: from a station.
    Request,
    /// PKM-RSP, type 10: from a base station.
    Response,
}

impl Direction {
    /// Returns the direction of a management message type; `None`: another protocol.
    #[must_use]
    pub const fn from_octet(octet: u8) -> Option<Self> {
        match octet {
            9 => Some(Self::Request),
            10 => Some(Self::Response),
            _ => None,
        }
    }
    /// Returns the management message type.
    #[must_use]
    pub const fn message_type(self) -> u8 {
        match self {
            Self::Request => 9,
            Self::Response => 10,
        }
    }
}

impl fmt::Display for Direction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Request => "PKM-REQ",
            Self::Response => "PKM-RSP",
        })
    }
}

/// Declares the codes: number, printed name, direction, mandatory attributes.
macro_rules! codes {
    ($($(#[$doc:meta])* $name:ident = $octet:literal $print:literal $way:tt [$($must:ident)*],)*) => {
        /// The code of a PKM message. Codes from 13 on are PKMv2's.
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
        pub enum Code { $($(#[$doc])* $name,)* }
        impl Code {
            /// All codes, by number.
            pub const ALL: &'static [Self] = &[$(Self::$name),*];
            /// Returns the code of this number; `None` for a reserved one.
            #[must_use]
            pub const fn of(octet: u8) -> Option<Self> {
                match octet { $($octet => Some(Self::$name),)* _ => None }
            }
            /// Returns the number.
            #[must_use]
            pub const fn octet(self) -> u8 {
                match self { $(Self::$name => $octet,)* }
            }
            /// Returns the direction; `None`: both.
            #[must_use]
            pub const fn direction(self) -> Option<Direction> {
                match self { $(Self::$name => codes!(@way $way),)* }
            }
            /// Returns the mandatory attributes.
            #[must_use]
            pub const fn required(self) -> &'static [AttributeType] {
                match self { $(Self::$name => &[$(AttributeType::$must),*],)* }
            }
        }
        impl fmt::Display for Code {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(match self { $(Self::$name => $print,)* })
            }
        }
    };
    (@way req) => { Some(Direction::Request) };
    (@way rsp) => { Some(Direction::Response) };
    (@way both) => { None };
}

codes! {
    /// Another security association.
    SaAdd = 3 "SA-Add" rsp [],
    /// PKMv1: may I come in?
    AuthRequest = 4 "Auth-Request" req [],
    /// PKMv1: come in.
    AuthReply = 5 "Auth-Reply" rsp [],
    /// PKMv1: stay out.
    AuthReject = 6 "Auth-Reject" rsp [],
    /// PKMv1: a traffic key, please.
    KeyRequest = 7 "Key-Request" req [],
    /// PKMv1: a traffic key.
    KeyReply = 8 "Key-Reply" rsp [],
    /// PKMv1: no traffic key.
    KeyReject = 9 "Key-Reject" rsp [],
    /// PKMv1: ask to come in again.
    AuthInvalid = 10 "Auth-Invalid" rsp [],
    /// PKMv1: ask for traffic keys again.
    TekInvalid = 11 "TEK-Invalid" rsp [],
    /// PKMv1: the certificate of the station's maker.
    AuthInfo = 12 "Auth-Info" req [],
    /// RSA authorization: asked for.
    RsaRequest = 13 "RSA-Request" req [],
    /// RSA authorization: granted.
    RsaReply = 14 "RSA-Reply" rsp [],
    /// RSA authorization: refused.
    RsaReject = 15 "RSA-Reject" rsp [],
    /// RSA authorization: heard.
    RsaAcknowledgement = 16 "RSA-Acknowledgement" req [],
    /// A station asks for EAP.
    EapStart = 17 "EAP-Start" req [],
    /// An EAP packet.
    EapTransfer = 18 "EAP-Transfer" both [EAP_PAYLOAD],
    /// An EAP packet under the key of an earlier authentication.
    AuthenticatedEapTransfer = 19 "Authenticated-EAP-Transfer" both [EAP_PAYLOAD],
    /// First message of the SA-TEK handshake.
    SaTekChallenge = 20 "SA-TEK-Challenge" rsp [BS_RANDOM KEY_SEQUENCE_NUMBER AKID CMAC_DIGEST],
    /// Second message of the SA-TEK handshake.
    SaTekRequest = 21 "SA-TEK-Request" req [SS_RANDOM BS_RANDOM KEY_SEQUENCE_NUMBER AKID CMAC_DIGEST],
    /// Third message of the SA-TEK handshake.
    SaTekResponse = 22 "SA-TEK-Response" rsp [SS_RANDOM BS_RANDOM KEY_SEQUENCE_NUMBER AKID CMAC_DIGEST],
    /// A request for a traffic key.
    Pkm2KeyRequest = 23 "PKMv2 Key-Request" req [KEY_SEQUENCE_NUMBER SAID NONCE],
    /// A traffic key.
    Pkm2KeyReply = 24 "PKMv2 Key-Reply" rsp [KEY_SEQUENCE_NUMBER SAID TEK_PARAMETERS NONCE],
    /// No traffic key.
    Pkm2KeyReject = 25 "PKMv2 Key-Reject" rsp [KEY_SEQUENCE_NUMBER SAID ERROR_CODE NONCE],
    /// Another security association.
    SaAddition = 26 "SA-Addition" rsp [],
    /// Ask for traffic keys again.
    Pkm2TekInvalid = 27 "PKMv2 TEK-Invalid" rsp [],
    /// A new group key.
    GroupKeyUpdateCommand = 28 "Group-Key-Update-Command" rsp [],
    /// The first of two EAP rounds is over.
    EapComplete = 29 "EAP-Complete" rsp [],
    /// A station asks for EAP under the key of an earlier authentication.
    AuthenticatedEapStart = 30 "Authenticated-EAP-Start" req [],
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_are_numbered_without_a_gap() {
        let numbers: Vec<u8> = Code::ALL.iter().map(|c| c.octet()).collect();
        assert_eq!(numbers, (3..=30).collect::<Vec<_>>());
        for octet in 0..=255 {
            assert_eq!(Code::of(octet).map(Code::octet), (3..=30).contains(&octet).then_some(octet));
            assert_eq!(
                Direction::from_octet(octet).map(Direction::message_type),
                [9, 10].contains(&octet).then_some(octet)
            );
        }
    }

    #[test]
    fn only_eap_goes_both_ways() {
        let both: Vec<Code> = Code::ALL.iter().copied().filter(|c| c.direction().is_none()).collect();
        assert_eq!(both, [Code::EapTransfer, Code::AuthenticatedEapTransfer]);
    }
}
