//! The reason why a TLS handshake or connection ended, as a value for logs, counters and people.

use core::fmt;

/// The reason, from the view of this side.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum TlsFault {
    /// The peer sent this alert.
    Alert(Alert),
    /// This side rejected the peer's certificate.
    Certificate(CertificateFault),
    /// The peer presented no certificate.
    NoCertificate,
    /// The sides have no TLS version in common.
    NoCommonVersion,
    /// The sides have no cipher suite, group or signature algorithm in common.
    NoCommonCipher,
    /// TLS 1.2 without the Extended Master Secret (RFC 7627).
    NoExtendedMasterSecret,
    /// The input is not TLS, or is damaged.
    Malformed,
    /// A record failed decryption or authentication.
    Undecipherable,
    /// The peer violated the protocol.
    Misbehaved,
    /// The peer sent more than the buffer limit.
    TooMuch,
    /// The engine failed, or rejected its caller's request.
    Internal,
}

/// The reason why a certificate is rejected.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum CertificateFault {
    /// Its chain ends below no trusted authority.
    UnknownAuthority,
    /// It, or a certificate above it, has expired.
    Expired,
    /// It, or a certificate above it, is not valid yet.
    NotYetValid,
    /// It is on the revocation list of its issuer.
    Revoked,
    /// The revocation list is past its nextUpdate, so its status is unknown (RFC 5280 §5.1.2.5).
    ListExpired,
    /// The revocation list is unusable: its signature is wrong, or its issuer may not sign lists.
    ListUnusable,
    /// Its purpose is another (RFC 5280 §4.2.1.12).
    Purpose,
    /// Its name is another.
    Name,
    /// A signature is wrong: it is by another key than that of the authority or the certificate.
    Signature,
    /// The algorithm of a signature is not accepted.
    Algorithm,
    /// An authority above it may not issue it: not an authority, path too long, or a name constraint (RFC 5280
    /// §4.2.1.9, §4.2.1.10).
    Constraint,
    /// It is unreadable, or has an unknown critical extension.
    Malformed,
    /// Any other reason.
    Other,
}

/// The description of an alert (RFC 8446 §6, RFC 5246 §7.2).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Alert(pub u8);

/// A fault as text.
#[derive(Clone, Copy, Debug)]
struct TlsFaultDisplay<'a> {
    fault: TlsFault,
    peer: &'a str,
}

impl TlsFault {
    /// Returns a description for people. `peer` names the other side: "the device", "the server".
    pub fn describe_with_peer_name(self, peer: &str) -> impl fmt::Display {
        TlsFaultDisplay { fault: self, peer }
    }
}

impl fmt::Display for TlsFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.describe_with_peer_name("the peer").fmt(f)
    }
}

/// The name and the text of every fault except alerts; `{}` stands for the peer.
macro_rules! faults {
    ($($fault:ident $(($of:ident))? => $name:literal, $text:literal;)+) => {
        impl TlsFault {
            /// Every fault except alerts.
            pub const KNOWN: &[Self] = &[$(Self::$fault $((CertificateFault::$of))?,)+];

            /// Returns a short stable name for counters and log lines: lower-case letters and hyphens, from a fixed
            /// set.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self {
                    Self::Alert(alert) => alert.label(),
                    $(Self::$fault $((CertificateFault::$of))? => $name,)+
                }
            }
        }

        impl fmt::Display for TlsFaultDisplay<'_> {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                let text = match self.fault {
                    TlsFault::Alert(alert) => {
                        return write!(f, "{} sent TLS alert {alert}{}", self.peer, alert.meaning());
                    }
                    $(TlsFault::$fault $((CertificateFault::$of))? => $text,)+
                };
                for (n, part) in text.split("{}").enumerate() {
                    f.write_str(if n > 0 { self.peer } else { "" })?;
                    f.write_str(part)?;
                }
                Ok(())
            }
        }
    };
}

faults! {
    Certificate(UnknownAuthority) => "certificate-unknown-ca",
        "{}'s certificate is from an authority that is not trusted here";
    Certificate(Expired) => "certificate-expired",
        "{}'s certificate, or its authority's, has expired";
    Certificate(NotYetValid) => "certificate-not-yet-valid",
        "{}'s certificate, or its authority's, is not valid yet";
    Certificate(Revoked) => "certificate-revoked",
        "{}'s certificate is revoked: it is on its authority's list";
    Certificate(ListExpired) => "crl-expired",
        "the revocation list for {}'s certificate is out of date";
    Certificate(ListUnusable) => "crl-unusable",
        "the revocation list for {}'s certificate cannot be used: its signature or its issuer is wrong";
    Certificate(Purpose) => "certificate-purpose",
        "{}'s certificate is for another purpose";
    Certificate(Name) => "certificate-name",
        "{}'s certificate is for another name";
    Certificate(Signature) => "certificate-signature",
        "a signature of {}'s certificates or handshake is wrong: another key made it";
    Certificate(Algorithm) => "certificate-algorithm",
        "{}'s certificate is signed with an algorithm that is not accepted";
    Certificate(Constraint) => "certificate-constraint",
        "an authority of {}'s certificate may not issue it";
    Certificate(Malformed) => "certificate-malformed",
        "{}'s certificate cannot be parsed, or has an unknown critical extension";
    Certificate(Other) => "certificate-other",
        "{}'s certificate is rejected";
    NoCertificate => "certificate-missing", "{} sent no certificate";
    NoCommonVersion => "tls-version", "no version of TLS in common";
    NoCommonCipher => "tls-cipher", "no cipher suite, group or signature algorithm of TLS in common";
    NoExtendedMasterSecret => "tls-extended-master-secret",
        "{}'s TLS 1.2 lacks the Extended Master Secret (RFC 7627)";
    Malformed => "tls-malformed", "the received data is not TLS, or is damaged";
    Undecipherable => "tls-undecipherable", "the received TLS records cannot be decrypted";
    Misbehaved => "tls-misbehaved", "{} violates the TLS protocol";
    TooMuch => "tls-too-much", "the received TLS data exceeds the limit";
    Internal => "tls-internal", "TLS failed on this side";
}

/// The alerts with names: RFC 8446 §6, RFC 5246 §7.2, RFC 6066 §9, RFC 7301 §3.2. Alerts of older versions are
/// included, since a peer may be old.
macro_rules! alerts {
    ($($number:literal, $name:literal, $label:literal, $meaning:literal;)+) => {
        impl Alert {
            /// Every alert with a name.
            pub const KNOWN: &[Self] = &[$(Self($number),)+];

            /// Returns the name in the standards; `None` if it has none.
            #[must_use]
            pub const fn name(self) -> Option<&'static str> {
                match self.0 {
                    $($number => Some($name),)+
                    _ => None,
                }
            }

            /// Returns the name in counters. All unnamed alerts share one.
            #[must_use]
            pub const fn label(self) -> &'static str {
                match self.0 {
                    $($number => $label,)+
                    _ => "alert-other",
                }
            }

            /// Returns the meaning of the alert, as text after its name; empty if the name is clear.
            #[must_use]
            pub const fn meaning(self) -> &'static str {
                match self.0 {
                    $($number => $meaning,)+
                    _ => "",
                }
            }
        }
    };
}

alerts! {
    0, "close_notify", "alert-close-notify", ": it closes the connection";
    10, "unexpected_message", "alert-unexpected-message", "";
    20, "bad_record_mac", "alert-bad-record-mac", "";
    21, "decryption_failed", "alert-decryption-failed", "";
    22, "record_overflow", "alert-record-overflow", "";
    30, "decompression_failure", "alert-decompression-failure", "";
    40, "handshake_failure", "alert-handshake-failure", ": it accepts none of the offered parameters";
    41, "no_certificate", "alert-no-certificate", ": it has no certificate";
    42, "bad_certificate", "alert-bad-certificate", ": it rejects our certificate";
    43, "unsupported_certificate", "alert-unsupported-certificate", ": it does not support our kind of certificate";
    44, "certificate_revoked", "alert-certificate-revoked", ": it considers our certificate revoked";
    45, "certificate_expired", "alert-certificate-expired", ": it considers our certificate expired; check its clock";
    46, "certificate_unknown", "alert-certificate-unknown", ": it rejects our certificate, for example its name";
    47, "illegal_parameter", "alert-illegal-parameter", "";
    48, "unknown_ca", "alert-unknown-ca", ": it does not know the authority of our certificate";
    49, "access_denied", "alert-access-denied", ": it denies access with our certificate";
    50, "decode_error", "alert-decode-error", "";
    51, "decrypt_error", "alert-decrypt-error", ": it considers a signature or digest of ours wrong";
    60, "export_restriction", "alert-export-restriction", "";
    70, "protocol_version", "alert-protocol-version", ": it does not support our versions of TLS";
    71, "insufficient_security", "alert-insufficient-security", ": it requires stronger ciphers than ours";
    80, "internal_error", "alert-internal-error", ": it has an internal fault";
    86, "inappropriate_fallback", "alert-inappropriate-fallback", "";
    90, "user_canceled", "alert-user-canceled", ": its user cancelled";
    100, "no_renegotiation", "alert-no-renegotiation", "";
    109, "missing_extension", "alert-missing-extension", "";
    110, "unsupported_extension", "alert-unsupported-extension", "";
    111, "certificate_unobtainable", "alert-certificate-unobtainable", "";
    112, "unrecognized_name", "alert-unrecognized-name", "";
    113, "bad_certificate_status_response", "alert-bad-certificate-status-response", "";
    114, "bad_certificate_hash_value", "alert-bad-certificate-hash-value", "";
    115, "unknown_psk_identity", "alert-unknown-psk-identity", "";
    116, "certificate_required", "alert-certificate-required", ": it requires a certificate";
    120, "no_application_protocol", "alert-no-application-protocol", "";
}

impl fmt::Display for Alert {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.name() {
            Some(name) => f.write_str(name),
            None => write!(f, "{}", self.0),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::collections::BTreeSet;
    use alloc::string::{String, ToString};

    #[test]
    fn an_alert_of_any_number_has_a_label_of_a_fixed_set() {
        let labels: BTreeSet<&str> = (0..=u8::MAX).map(|n| Alert(n).label()).collect();
        assert_eq!(labels.len(), Alert::KNOWN.len() + 1, "each known one has its own, all others one");
        for alert in Alert::KNOWN {
            let name = alert.name().unwrap();
            assert_eq!(alert.label(), String::from("alert-") + &name.replace('_', "-"));
            assert_eq!(alert.to_string(), name);
        }
        assert_eq!((Alert(200).to_string(), Alert(200).label()), ("200".into(), "alert-other"));
        let said = TlsFault::Alert(Alert(48)).describe_with_peer_name("the device").to_string();
        assert_eq!(
            said,
            "the device sent TLS alert unknown_ca: it does not know the authority of our certificate"
        );
    }

    #[test]
    fn names_are_told_apart() {
        let all = TlsFault::KNOWN;
        let names: BTreeSet<&str> = all.iter().map(|fault| fault.name()).collect();
        let texts: BTreeSet<String> = all.iter().map(ToString::to_string).collect();
        assert_eq!((names.len(), texts.len()), (all.len(), all.len()));
        let revoked = TlsFault::Certificate(CertificateFault::Revoked)
            .describe_with_peer_name("the server")
            .to_string();
        assert_eq!(revoked, "the server's certificate is revoked: it is on its authority's list");
        assert!(names.iter().all(|n| n.bytes().all(|b| b.is_ascii_lowercase() || b == b'-')), "{names:?}");
    }
}
