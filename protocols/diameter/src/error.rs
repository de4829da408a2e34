//! Result codes (RFC 6733 §7.1) and errors of messages.

use crate::avp::Avp;
use core::fmt;

/// The value of a Result-Code AVP (RFC 6733 §7.1).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct ResultCode(pub u32);

macro_rules! codes {
    ($($name:ident = $value:literal, $text:literal;)*) => {
        impl ResultCode {
            $(#[doc = $text] pub const $name: Self = Self($value);)*
            /// The registered name, if the code is known.
            pub const fn name(self) -> Option<&'static str> {
                match self.0 { $($value => Some($text),)* _ => None }
            }
        }
    };
}
codes! {
    MULTI_ROUND_AUTH = 1001, "DIAMETER_MULTI_ROUND_AUTH";
    SUCCESS = 2001, "DIAMETER_SUCCESS";
    LIMITED_SUCCESS = 2002, "DIAMETER_LIMITED_SUCCESS";
    COMMAND_UNSUPPORTED = 3001, "DIAMETER_COMMAND_UNSUPPORTED";
    UNABLE_TO_DELIVER = 3002, "DIAMETER_UNABLE_TO_DELIVER";
    REALM_NOT_SERVED = 3003, "DIAMETER_REALM_NOT_SERVED";
    TOO_BUSY = 3004, "DIAMETER_TOO_BUSY";
    LOOP_DETECTED = 3005, "DIAMETER_LOOP_DETECTED";
    REDIRECT_INDICATION = 3006, "DIAMETER_REDIRECT_INDICATION";
    APPLICATION_UNSUPPORTED = 3007, "DIAMETER_APPLICATION_UNSUPPORTED";
    INVALID_HDR_BITS = 3008, "DIAMETER_INVALID_HDR_BITS";
    INVALID_AVP_BITS = 3009, "DIAMETER_INVALID_AVP_BITS";
    UNKNOWN_PEER = 3010, "DIAMETER_UNKNOWN_PEER";
    AUTHENTICATION_REJECTED = 4001, "DIAMETER_AUTHENTICATION_REJECTED";
    OUT_OF_SPACE = 4002, "DIAMETER_OUT_OF_SPACE";
    ELECTION_LOST = 4003, "DIAMETER_ELECTION_LOST";
    AVP_UNSUPPORTED = 5001, "DIAMETER_AVP_UNSUPPORTED";
    UNKNOWN_SESSION_ID = 5002, "DIAMETER_UNKNOWN_SESSION_ID";
    AUTHORIZATION_REJECTED = 5003, "DIAMETER_AUTHORIZATION_REJECTED";
    INVALID_AVP_VALUE = 5004, "DIAMETER_INVALID_AVP_VALUE";
    MISSING_AVP = 5005, "DIAMETER_MISSING_AVP";
    RESOURCES_EXCEEDED = 5006, "DIAMETER_RESOURCES_EXCEEDED";
    CONTRADICTING_AVPS = 5007, "DIAMETER_CONTRADICTING_AVPS";
    AVP_NOT_ALLOWED = 5008, "DIAMETER_AVP_NOT_ALLOWED";
    AVP_OCCURS_TOO_MANY_TIMES = 5009, "DIAMETER_AVP_OCCURS_TOO_MANY_TIMES";
    NO_COMMON_APPLICATION = 5010, "DIAMETER_NO_COMMON_APPLICATION";
    UNSUPPORTED_VERSION = 5011, "DIAMETER_UNSUPPORTED_VERSION";
    UNABLE_TO_COMPLY = 5012, "DIAMETER_UNABLE_TO_COMPLY";
    INVALID_BIT_IN_HEADER = 5013, "DIAMETER_INVALID_BIT_IN_HEADER";
    INVALID_AVP_LENGTH = 5014, "DIAMETER_INVALID_AVP_LENGTH";
    INVALID_MESSAGE_LENGTH = 5015, "DIAMETER_INVALID_MESSAGE_LENGTH";
    INVALID_AVP_BIT_COMBO = 5016, "DIAMETER_INVALID_AVP_BIT_COMBO";
    NO_COMMON_SECURITY = 5017, "DIAMETER_NO_COMMON_SECURITY";
}

impl ResultCode {
    /// True for 1xxx: a further round follows.
    pub const fn is_informational(self) -> bool {
        self.0 / 1000 == 1
    }
    /// True for 2xxx.
    pub const fn is_success(self) -> bool {
        self.0 / 1000 == 2
    }
    /// True for 3xxx: the answer carries the E flag.
    pub const fn is_protocol_error(self) -> bool {
        self.0 / 1000 == 3
    }
}

impl fmt::Display for ResultCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.name() {
            Some(name) => write!(f, "{name} ({})", self.0),
            None => write!(f, "{}", self.0),
        }
    }
}

/// An error of a received message, in the terms of its answer.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{code}: {description}")]
pub struct DiameterError {
    /// The Result-Code for the answer.
    pub code: ResultCode,
    /// The error, for Error-Message.
    pub description: &'static str,
    /// The AVP for Failed-AVP (RFC 6733 §7.5), if any.
    pub avp: Option<Avp>,
}

impl DiameterError {
    /// Returns an error without an AVP.
    pub const fn new(code: ResultCode, what: &'static str) -> Self {
        Self { code, description: what, avp: None }
    }
    /// Returns an error of this AVP.
    pub const fn with_avp(code: ResultCode, what: &'static str, avp: Avp) -> Self {
        Self { code, description: what, avp: Some(avp) }
    }
}
