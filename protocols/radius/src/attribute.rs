//! Attributes (RFC 2865 §5, RFC 2868, RFC 2869, RFC 6929) and their data types (RFC 8044).
//!
//! The module reads attributes in place, has the owned list for building packets, and hides secrets.

mod extended;
mod framing;
mod hide;
mod list;
mod place;
mod value;

pub use extended::{ExtendedAttribute, VendorAttribute, read_extended, read_vendor, read_vendors};
pub use framing::VendorAttributeFormat;
pub use hide::{
    HiddenValueError, SALT_LEN, hide_ascend, hide_password, hide_salted, reveal_password, reveal_salted,
};
pub use list::{AttributeList, TaggedValue, ValueTooLong};
pub use value::{AttributeDataType, AttributeValue, ValueError};

use core::fmt;

/// The maximum length of a value.
pub const MAX_VALUE: usize = 253;

/// Types of the standard attributes that this crate and its callers use by name.
pub mod kind {
    macro_rules! kinds {
        ($($(#[$meta:meta])* $name:ident = $number:literal),* $(,)?) => {
            $($(#[$meta])* pub const $name: u8 = $number;)*
        };
    }
    kinds! {
        /// RFC 2865 §5.1.
        USER_NAME = 1,
        /// RFC 2865 §5.2, hidden.
        USER_PASSWORD = 2,
        /// RFC 2865 §5.3.
        CHAP_PASSWORD = 3,
        /// RFC 2865 §5.4.
        NAS_IP_ADDRESS = 4,
        /// RFC 2865 §5.5.
        NAS_PORT = 5,
        /// RFC 2865 §5.6.
        SERVICE_TYPE = 6,
        /// RFC 2865 §5.7.
        FRAMED_PROTOCOL = 7,
        /// RFC 2865 §5.8.
        FRAMED_IP_ADDRESS = 8,
        /// RFC 2865 §5.9.
        FRAMED_IP_NETMASK = 9,
        /// RFC 2865 §5.11.
        FILTER_ID = 11,
        /// RFC 2865 §5.12.
        FRAMED_MTU = 12,
        /// RFC 2865 §5.18.
        REPLY_MESSAGE = 18,
        /// RFC 2865 §5.24.
        STATE = 24,
        /// RFC 2865 §5.25.
        CLASS = 25,
        /// RFC 2865 §5.26.
        VENDOR_SPECIFIC = 26,
        /// RFC 2865 §5.27.
        SESSION_TIMEOUT = 27,
        /// RFC 2865 §5.28.
        IDLE_TIMEOUT = 28,
        /// RFC 2865 §5.29.
        TERMINATION_ACTION = 29,
        /// RFC 2865 §5.30.
        CALLED_STATION_ID = 30,
        /// RFC 2865 §5.31.
        CALLING_STATION_ID = 31,
        /// RFC 2865 §5.32.
        NAS_IDENTIFIER = 32,
        /// RFC 2865 §5.33.
        PROXY_STATE = 33,
        /// RFC 2866 §5.1.
        ACCT_STATUS_TYPE = 40,
        /// RFC 2866 §5.2.
        ACCT_DELAY_TIME = 41,
        /// RFC 2866 §5.3.
        ACCT_INPUT_OCTETS = 42,
        /// RFC 2866 §5.4.
        ACCT_OUTPUT_OCTETS = 43,
        /// RFC 2866 §5.5.
        ACCT_SESSION_ID = 44,
        /// RFC 2866 §5.7.
        ACCT_SESSION_TIME = 46,
        /// RFC 2866 §5.8.
        ACCT_INPUT_PACKETS = 47,
        /// RFC 2866 §5.9.
        ACCT_OUTPUT_PACKETS = 48,
        /// RFC 2866 §5.10.
        ACCT_TERMINATE_CAUSE = 49,
        /// RFC 2866 §5.11.
        ACCT_MULTI_SESSION_ID = 50,
        /// RFC 2869 §5.1.
        ACCT_INPUT_GIGAWORDS = 52,
        /// RFC 2869 §5.2.
        ACCT_OUTPUT_GIGAWORDS = 53,
        /// RFC 2869 §5.3.
        EVENT_TIMESTAMP = 55,
        /// RFC 2865 §5.40.
        CHAP_CHALLENGE = 60,
        /// RFC 2865 §5.41.
        NAS_PORT_TYPE = 61,
        /// RFC 2868 §3.1, tagged.
        TUNNEL_TYPE = 64,
        /// RFC 2868 §3.2, tagged.
        TUNNEL_MEDIUM_TYPE = 65,
        /// RFC 2868 §3.5, tagged and hidden.
        TUNNEL_PASSWORD = 69,
        /// RFC 2869 §5.13, RFC 3579 §3.1.
        EAP_MESSAGE = 79,
        /// RFC 2869 §5.14, RFC 3579 §3.2.
        MESSAGE_AUTHENTICATOR = 80,
        /// RFC 2868 §3.6, tagged.
        TUNNEL_PRIVATE_GROUP_ID = 81,
        /// RFC 2869 §5.16.
        ACCT_INTERIM_INTERVAL = 85,
        /// RFC 2869 §5.17.
        NAS_PORT_ID = 87,
        /// RFC 2869 §5.18.
        FRAMED_POOL = 88,
        /// RFC 4372 §2.2.
        CHARGEABLE_USER_IDENTITY = 89,
        /// RFC 3162 §2.1.
        NAS_IPV6_ADDRESS = 95,
        /// RFC 3162 §2.2.
        FRAMED_INTERFACE_ID = 96,
        /// RFC 3162 §2.3.
        FRAMED_IPV6_PREFIX = 97,
        /// RFC 3162 §2.6.
        FRAMED_IPV6_POOL = 100,
        /// RFC 5176 §3.6.
        ERROR_CAUSE = 101,
        /// RFC 4072 §4.1.4, RFC 7268 §2.2.
        EAP_KEY_NAME = 102,
        /// RFC 4818 §3.
        DELEGATED_IPV6_PREFIX = 123,
        /// RFC 6911 §3.1.
        FRAMED_IPV6_ADDRESS = 168,
        /// RFC 6911 §3.2.
        DNS_SERVER_IPV6_ADDRESS = 169,
        /// RFC 6911 §3.4.
        DELEGATED_IPV6_PREFIX_POOL = 171,
        /// RFC 6911 §3.5.
        STATEFUL_IPV6_ADDRESS_POOL = 172,
        /// RFC 6929 §3.1, the first of the extended types.
        EXTENDED_1 = 241,
        /// RFC 6929 §3.4, the last of the short extended types.
        EXTENDED_4 = 244,
        /// RFC 6929 §3.5, the first long extended type.
        LONG_EXTENDED_1 = 245,
        /// RFC 6929 §3.6, the last long extended type.
        LONG_EXTENDED_2 = 246,
    }
}

/// Values of Error-Cause (RFC 5176 §3.5).
pub mod error_cause {
    /// An attribute that the NAS does not know.
    pub const UNSUPPORTED_ATTRIBUTE: u32 = 401;
    /// An attribute that identifies the session is missing.
    pub const MISSING_ATTRIBUTE: u32 = 402;
    /// NAS-Identifier or address is not that of the NAS.
    pub const NAS_IDENTIFICATION_MISMATCH: u32 = 403;
    /// The request is not well-formed.
    pub const INVALID_REQUEST: u32 = 404;
    /// The Service-Type is not supported.
    pub const UNSUPPORTED_SERVICE: u32 = 405;
    /// The request kind is not supported.
    pub const UNSUPPORTED_EXTENSION: u32 = 406;
    /// No such session.
    pub const SESSION_CONTEXT_NOT_FOUND: u32 = 503;
    /// The NAS lacks resources.
    pub const RESOURCES_UNAVAILABLE: u32 = 506;
}

/// Private enterprise numbers of vendors and the types they define.
pub mod vendor {
    /// Microsoft (RFC 2548).
    pub const MICROSOFT: u32 = 311;
    /// MS-CHAP-Response (RFC 2548 §2.1.3): identifier, flags, LM response, NT response.
    pub const MS_CHAP_RESPONSE: u8 = 1;
    /// MS-CHAP-Error (RFC 2548 §2.1.5): identifier, text.
    pub const MS_CHAP_ERROR: u8 = 2;
    /// MS-CHAP-Challenge (RFC 2548 §2.1.2).
    pub const MS_CHAP_CHALLENGE: u8 = 11;
    /// MS-CHAP-MPPE-Keys (RFC 2548 §2.4.1): LM-Key, NT-Key and eight zeros, hidden as User-Password is.
    pub const MS_CHAP_MPPE_KEYS: u8 = 12;
    /// MS-CHAP2-Response (RFC 2548 §2.3.2): identifier, flags, peer challenge, eight zeros, response.
    pub const MS_CHAP2_RESPONSE: u8 = 25;
    /// MS-CHAP2-Success (RFC 2548 §2.3.3): identifier, authenticator response.
    pub const MS_CHAP2_SUCCESS: u8 = 26;
    /// MS-MPPE-Send-Key (RFC 2548 §2.4.2), hidden.
    pub const MS_MPPE_SEND_KEY: u8 = 16;
    /// MS-MPPE-Recv-Key (RFC 2548 §2.4.3), hidden.
    pub const MS_MPPE_RECV_KEY: u8 = 17;
    /// MS-Primary-DNS-Server (RFC 2548 §2.7.1).
    pub const MS_PRIMARY_DNS_SERVER: u8 = 28;
    /// MS-Secondary-DNS-Server (RFC 2548 §2.7.2).
    pub const MS_SECONDARY_DNS_SERVER: u8 = 29;
    /// The ADSL Forum (RFC 4679 §3.2).
    pub const ADSL_FORUM: u32 = 3561;
    /// Agent-Circuit-Id (RFC 4679 §3.3.1): the access line of the user.
    pub const AGENT_CIRCUIT_ID: u8 = 1;
    /// Agent-Remote-Id (RFC 4679 §3.3.2): the subscriber of that line.
    pub const AGENT_REMOTE_ID: u8 = 2;
    /// The Wi-Fi Alliance's WISPr.
    pub const WISPR: u32 = 14_122;
    /// WISPr-Bandwidth-Max-Up, bit/s.
    pub const WISPR_BANDWIDTH_MAX_UP: u8 = 7;
    /// WISPr-Bandwidth-Max-Down, bit/s.
    pub const WISPR_BANDWIDTH_MAX_DOWN: u8 = 8;
}

/// An attribute as it is on the wire.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RawAttribute<'a> {
    /// Its type, the first octet.
    pub kind: u8,
    /// Its value, 0 to 253 octets.
    pub value: &'a [u8],
}

/// An iterator over attributes with checked lengths, from [`crate::RadiusPacket::attributes`] or
/// [`AttributeList::iter`]. It ends at an invalid length.
#[derive(Clone, Debug)]
pub struct RawAttributeIter<'a> {
    rest: &'a [u8],
}

impl<'a> RawAttributeIter<'a> {
    /// Iterates over `bytes`, a sequence of type, length, value.
    #[must_use]
    pub const fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes }
    }
    /// The octets not yet visited.
    #[must_use]
    pub const fn remaining_bytes(&self) -> &'a [u8] {
        self.rest
    }
}

impl<'a> Iterator for RawAttributeIter<'a> {
    type Item = RawAttribute<'a>;
    #[inline]
    fn next(&mut self) -> Option<RawAttribute<'a>> {
        let (&[kind, length], _) = self.rest.split_first_chunk::<2>()?;
        let value = self.rest.get(2..usize::from(length))?;
        self.rest = &self.rest[usize::from(length)..];
        Some(RawAttribute { kind, value })
    }
}

/// Octets that print as `0x0a1b`.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct HexOctets<'a>(pub &'a [u8]);

impl fmt::Display for HexOctets<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("0x")?;
        self.0.iter().try_for_each(|b| write!(f, "{b:02x}"))
    }
}
impl fmt::Debug for HexOctets<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}
