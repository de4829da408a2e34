//! Names of enumerated values in a store's columns, as in FreeRADIUS's dictionary.

use alloc::string::{String, ToString};

type AttributeValueNames = &'static [(u32, &'static str)];

/// NAS-Port-Type (RFC 2865 §5.41).
pub(super) const PORT_TYPE: AttributeValueNames = &[
    (0, "Async"),
    (1, "Sync"),
    (2, "ISDN"),
    (3, "ISDN-V120"),
    (4, "ISDN-V110"),
    (5, "Virtual"),
    (6, "PIAFS"),
    (7, "HDLC-Clear-Channel"),
    (8, "X.25"),
    (9, "X.75"),
    (10, "G.3-Fax"),
    (11, "SDSL"),
    (12, "ADSL-CAP"),
    (13, "ADSL-DMT"),
    (14, "IDSL"),
    (15, "Ethernet"),
    (16, "xDSL"),
    (17, "Cable"),
    (18, "Wireless-Other"),
    (19, "Wireless-802.11"),
    (27, "Wireless-802.16"),
];
/// Service-Type (RFC 2865 §5.6).
pub(super) const SERVICE_TYPE: AttributeValueNames = &[
    (1, "Login-User"),
    (2, "Framed-User"),
    (3, "Callback-Login-User"),
    (4, "Callback-Framed-User"),
    (5, "Outbound-User"),
    (6, "Administrative-User"),
    (7, "NAS-Prompt-User"),
    (8, "Authenticate-Only"),
    (9, "Callback-NAS-Prompt"),
    (10, "Call-Check"),
    (11, "Callback-Administrative"),
    (17, "Authorize-Only"),
];
/// Framed-Protocol (RFC 2865 §5.7).
pub(super) const FRAMED_PROTOCOL: AttributeValueNames = &[
    (1, "PPP"),
    (2, "SLIP"),
    (3, "ARAP"),
    (4, "Gandalf-SLML"),
    (5, "Xylogics-IPX-SLIP"),
    (6, "X.75-Synchronous"),
];
/// Acct-Authentic (RFC 2866 §5.6).
pub(super) const AUTHENTIC: AttributeValueNames =
    &[(1, "RADIUS"), (2, "Local"), (3, "Remote"), (4, "Diameter")];
/// Acct-Terminate-Cause (RFC 2866 §5.10).
pub(super) const TERMINATE_CAUSE: AttributeValueNames = &[
    (1, "User-Request"),
    (2, "Lost-Carrier"),
    (3, "Lost-Service"),
    (4, "Idle-Timeout"),
    (5, "Session-Timeout"),
    (6, "Admin-Reset"),
    (7, "Admin-Reboot"),
    (8, "Port-Error"),
    (9, "NAS-Error"),
    (10, "NAS-Request"),
    (11, "NAS-Reboot"),
    (12, "Port-Unneeded"),
    (13, "Port-Preempted"),
    (14, "Port-Suspended"),
    (15, "Service-Unavailable"),
    (16, "Callback"),
    (17, "User-Error"),
    (18, "Host-Request"),
];

/// An unknown number.
pub(super) const UNKNOWN: u32 = u32::MAX;

/// Returns the name, or the number in decimal. Empty for [`UNKNOWN`].
pub(super) fn enum_name_or_decimal(names: AttributeValueNames, number: u32) -> String {
    match names.iter().find(|(n, _)| *n == number) {
        Some((_, name)) => (*name).into(),
        None if number == UNKNOWN => String::new(),
        None => number.to_string(),
    }
}

/// Returns the number of a name, or the number in the text.
pub(super) fn parse_enum_name_or_number(names: AttributeValueNames, text: &str) -> u32 {
    match names.iter().find(|(_, name)| *name == text) {
        Some((n, _)) => *n,
        None => text.parse().unwrap_or(UNKNOWN),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use usher_radius::attribute::kind;
    use usher_radius::dictionary::{AttributeOid, RadiusDictionary};

    #[test]
    fn the_names_are_the_dictionarys() {
        let dictionary = RadiusDictionary::standard();
        for (attribute, names) in [
            (kind::NAS_PORT_TYPE, PORT_TYPE),
            (kind::SERVICE_TYPE, SERVICE_TYPE),
            (7, FRAMED_PROTOCOL),
            (45, AUTHENTIC),
            (kind::ACCT_TERMINATE_CAUSE, TERMINATE_CAUSE),
        ] {
            for &(n, text) in names {
                assert_eq!(
                    dictionary.value_name(AttributeOid::from_standard_attribute(attribute), n.into()),
                    Some(text)
                );
                assert_eq!(parse_enum_name_or_number(names, &enum_name_or_decimal(names, n)), n);
            }
        }
    }

    #[test]
    fn numbers_without_a_name_stand_for_themselves() {
        assert_eq!(
            (enum_name_or_decimal(PORT_TYPE, 99).as_str(), parse_enum_name_or_number(PORT_TYPE, "99")),
            ("99", 99)
        );
        assert_eq!(
            (enum_name_or_decimal(PORT_TYPE, UNKNOWN).as_str(), parse_enum_name_or_number(PORT_TYPE, "")),
            ("", UNKNOWN)
        );
    }
}
