//! Constants for applications, commands and AVPs. [`crate::dictionary`] has them as data.

use crate::avp::AvpId;

/// Applications (RFC 6733 §2.4, RFC 7155, RFC 4072).
pub mod application {
    /// Common messages: base protocol.
    pub const BASE: u32 = 0;
    /// NASREQ (RFC 7155).
    pub const NASREQ: u32 = 1;
    /// Base accounting.
    pub const ACCOUNTING: u32 = 3;
    /// Diameter EAP (RFC 4072).
    pub const EAP: u32 = 5;
    /// Relay: any application.
    pub const RELAY: u32 = 0xffff_ffff;
}

/// Command codes (RFC 6733 §3.1, RFC 7155, RFC 4072).
pub mod command {
    /// CER, CEA.
    pub const CAPABILITIES_EXCHANGE: u32 = 257;
    /// RAR, RAA.
    pub const RE_AUTH: u32 = 258;
    /// AAR, AAA.
    pub const AA: u32 = 265;
    /// DER, DEA.
    pub const DIAMETER_EAP: u32 = 268;
    /// ACR, ACA.
    pub const ACCOUNTING: u32 = 271;
    /// ASR, ASA.
    pub const ABORT_SESSION: u32 = 274;
    /// STR, STA.
    pub const SESSION_TERMINATION: u32 = 275;
    /// DWR, DWA.
    pub const DEVICE_WATCHDOG: u32 = 280;
    /// DPR, DPA.
    pub const DISCONNECT_PEER: u32 = 282;
}

macro_rules! avps {
    ($($name:ident = $how:ident $code:literal;)*) => {
        $(#[doc = stringify!(AVP $code.)] pub const $name: AvpId = AvpId::$how($code);)*
    };
}
avps! {
    USER_NAME = must 1;
    USER_PASSWORD = must 2;
    NAS_IP_ADDRESS = must 4;
    NAS_PORT = must 5;
    SERVICE_TYPE = must 6;
    FRAMED_PROTOCOL = must 7;
    FRAMED_IP_ADDRESS = must 8;
    FRAMED_MTU = must 12;
    REPLY_MESSAGE = must 18;
    STATE = must 24;
    CLASS = must 25;
    SESSION_TIMEOUT = must 27;
    IDLE_TIMEOUT = must 28;
    CALLED_STATION_ID = must 30;
    CALLING_STATION_ID = must 31;
    NAS_IDENTIFIER = must 32;
    PROXY_STATE = must 33;
    ACCT_DELAY_TIME = must 41;
    ACCT_SESSION_ID = must 44;
    ACCT_AUTHENTIC = must 45;
    ACCT_SESSION_TIME = must 46;
    ACCT_MULTI_SESSION_ID = must 50;
    EVENT_TIMESTAMP = must 55;
    CHAP_CHALLENGE = must 60;
    NAS_PORT_TYPE = must 61;
    CONNECT_INFO = must 77;
    NAS_PORT_ID = must 87;
    NAS_IPV6_ADDRESS = must 95;
    FRAMED_IPV6_PREFIX = must 97;
    EAP_KEY_NAME = may 102;
    HOST_IP_ADDRESS = must 257;
    AUTH_APPLICATION_ID = must 258;
    ACCT_APPLICATION_ID = must 259;
    VENDOR_SPECIFIC_APPLICATION_ID = must 260;
    SESSION_ID = must 263;
    ORIGIN_HOST = must 264;
    SUPPORTED_VENDOR_ID = must 265;
    VENDOR_ID = must 266;
    FIRMWARE_REVISION = may 267;
    RESULT_CODE = must 268;
    PRODUCT_NAME = may 269;
    MULTI_ROUND_TIME_OUT = must 272;
    DISCONNECT_CAUSE = must 273;
    AUTH_REQUEST_TYPE = must 274;
    AUTH_SESSION_STATE = must 277;
    ORIGIN_STATE_ID = must 278;
    FAILED_AVP = must 279;
    PROXY_HOST = must 280;
    ERROR_MESSAGE = may 281;
    ROUTE_RECORD = must 282;
    DESTINATION_REALM = must 283;
    PROXY_INFO = must 284;
    AUTHORIZATION_LIFETIME = must 291;
    DESTINATION_HOST = must 293;
    ERROR_REPORTING_HOST = may 294;
    TERMINATION_CAUSE = must 295;
    ORIGIN_REALM = must 296;
    EXPERIMENTAL_RESULT = must 297;
    EXPERIMENTAL_RESULT_CODE = must 298;
    INBAND_SECURITY_ID = must 299;
    ACCOUNTING_INPUT_OCTETS = must 363;
    ACCOUNTING_OUTPUT_OCTETS = must 364;
    ACCOUNTING_INPUT_PACKETS = must 365;
    ACCOUNTING_OUTPUT_PACKETS = must 366;
    TUNNELING = must 401;
    CHAP_AUTH = must 402;
    CHAP_ALGORITHM = must 403;
    CHAP_IDENT = must 404;
    CHAP_RESPONSE = must 405;
    EAP_PAYLOAD = must 462;
    EAP_REISSUED_PAYLOAD = must 463;
    EAP_MASTER_SESSION_KEY = may 464;
    ACCOUNTING_EAP_AUTH_METHOD = may 465;
    ACCOUNTING_RECORD_TYPE = must 480;
    ACCOUNTING_RECORD_NUMBER = must 485;
}

/// The AVP of a RADIUS attribute. It has the M flag if RFC 6733 or RFC 7155 sets it. A Diameter client need not know
/// other attributes.
#[must_use]
pub const fn radius_avp_id(kind: u8) -> AvpId {
    let defined = matches!(
        kind,
        1 | 2 | 4..=16 | 18..=20 | 22..=25 | 27 | 28 | 30..=39 | 41 | 44..=46 | 50 | 51 | 55 | 60..=78
            | 81..=88 | 90 | 91 | 94..=100
    );
    if defined { AvpId::must(kind as u32) } else { AvpId::may(kind as u32) }
}

/// The shortest valid data of this IETF AVP (RFC 6733 §4.2, §4.3.1), octets. 0 if it may be empty or is unknown here.
pub(crate) const fn minimum_avp_data_len(code: u32) -> usize {
    match code {
        // Unsigned32, Enumerated, Time
        5 | 6 | 7 | 10 | 12 | 13 | 15 | 16 | 23 | 27 | 28 | 37 | 38 | 41 | 45 | 46 | 51 | 55 | 61 | 62
        | 64 | 65 | 72 | 73 | 75 | 76 | 83 | 85 | 86 | 258 | 259 | 261 | 262 | 265 | 266 | 267 | 268
        | 270 | 271 | 272 | 273 | 274 | 276 | 277 | 278 | 285 | 291 | 295 | 298 | 299 | 403 | 406 | 408
        | 480 | 483 | 485 => 4,
        // Address: the family, and an IPv4 address
        257 => 6,
        // Unsigned64
        96 | 287 | 363 | 364 | 365 | 366 | 465 => 8,
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dictionary::{AvpDataFormat, AvpFlagRule, DiameterDictionary};

    #[test]
    fn an_attribute_has_the_m_flag_that_the_dictionary_gives_it() {
        let dictionary = DiameterDictionary::builtin();
        for kind in 1..=255 {
            let must =
                dictionary.avp_by_code(kind.into()).is_some_and(|def| def.mandatory == AvpFlagRule::Must);
            assert_eq!(radius_avp_id(kind).mandatory, must, "{kind}");
        }
    }

    #[test]
    fn the_shortest_value_is_that_of_the_dictionarys_type() {
        let dictionary = DiameterDictionary::builtin();
        for def in dictionary.avps() {
            let expected = match def.kind {
                AvpDataFormat::Integer32
                | AvpDataFormat::Unsigned32
                | AvpDataFormat::Float32
                | AvpDataFormat::Time
                | AvpDataFormat::Enumerated => 4,
                AvpDataFormat::Integer64 | AvpDataFormat::Unsigned64 | AvpDataFormat::Float64 => 8,
                AvpDataFormat::Address => 6,
                _ => 0,
            };
            assert_eq!(minimum_avp_data_len(def.code), expected, "{}", def.name);
        }
    }
}
