//! Causes of rejects and of logins without a verdict.

use crate::ledger::AdmissionRefusal;
use alloc::collections::BTreeSet;
use core::fmt;
use usher_crypto::fault::{Alert, CertificateFault, TlsFault};
use usher_eap::method::ServerMethodFailure;

/// Declares the causes and their properties. Those without a value are declared in one place.
macro_rules! reasons {
    (
        counted { $($(#[$counted_doc:meta])+ $counted:ident => $counted_name:literal, $counted_text:literal;)+ }
        uncounted { $($(#[$doc:meta])+ $reason:ident => $name:literal, $text:literal;)+ }
    ) => {
        /// The cause of a reject, or of a login without a verdict. Counters use its [`name`](Self::name).
        #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
        pub enum RejectCause {
            $($(#[$counted_doc])+ $counted,)+
            $($(#[$doc])+ $reason,)+
            /// TLS failed: the peer's certificate, a missing feature, or an alert.
            Tls(TlsFault),
            /// The certificate was verified in the handshake, but is not trusted any more: it expired, or a
            /// revocation list changed.
            Distrusted(TlsFault),
            /// The certificate is revoked, or its status is required and unknown.
            Status(OcspStatusFault),
            /// A limit of the ledger.
            Limit(AdmissionRefusal),
        }

        impl RejectCause {
            /// Causes without a value.
            const PLAIN: &[Self] = &[$(Self::$counted,)+ $(Self::$reason,)+];

            /// Returns a stable name for counters and log lines: lower-case letters and hyphens, from a fixed set.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$counted => $counted_name,)+
                    $(Self::$reason => $name,)+
                    Self::Tls(fault) | Self::Distrusted(fault) => fault.name(),
                    Self::Status(fault) => fault.name(),
                    Self::Limit(AdmissionRefusal::TooManySessions { .. }) => "sessions",
                    Self::Limit(AdmissionRefusal::TooManyFailures) => "failures",
                    Self::Limit(AdmissionRefusal::PoolExhausted) => "pool-empty",
                    Self::Limit(AdmissionRefusal::UnknownPool) => "pool-unknown",
                    Self::Limit(AdmissionRefusal::Full) => "sessions-full",
                }
            }

            /// True if a login with a proof and this cause counts as a failed attempt
            /// ([`FinishedLogin::failed_attempt_identity`](super::FinishedLogin::failed_attempt_identity)). A peer's alert is no proof, and an internal
            /// error is not the user's.
            pub(super) const fn counts(self) -> bool {
                match self {
                    $(Self::$counted)|+ => true,
                    Self::Tls(fault) => !matches!(
                        fault,
                        TlsFault::Alert(_)
                            | TlsFault::Internal
                            | TlsFault::Certificate(CertificateFault::ListExpired | CertificateFault::ListUnusable)
                    ),
                    $(Self::$reason)|+ | Self::Distrusted(_) | Self::Status(_) | Self::Limit(_) => false,
                }
            }
        }

        impl fmt::Display for RejectCause {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(match self {
                    $(Self::$counted => $counted_text,)+
                    $(Self::$reason => $text,)+
                    Self::Tls(fault) | Self::Distrusted(fault) => return fault.describe_with_peer_name("the device").fmt(f),
                    Self::Status(fault) => return fault.fmt(f),
                    Self::Limit(refusal) => return refusal.fmt(f),
                })
            }
        }
    };
}

reasons! {
    counted {
        /// Nobody of that name.
        UnknownUser => "unknown-user",
            "no user has this name";
        /// The name is no text, or one that the store cannot hold.
        UnstorableName => "unstorable-name",
            "the name is not UTF-8, or the store cannot hold it";
        /// The password is wrong.
        WrongPassword => "wrong-password",
            "wrong password";
        /// The user has no password, and the method takes one.
        NoPassword => "no-password",
            "the method needs a password, and the user has none";
        /// The user's password is kept in a form with which the method cannot work.
        PasswordForm => "password-form",
            "this method cannot use the stored form of the user's password";
        /// No method that server and peer have in common.
        NoMethod => "no-method",
            "no method in common";
        /// No method inside the tunnel that server, user and peer have in common.
        NoInnerMethod => "no-inner-method",
            "no method in common inside the tunnel";
        /// The user's rows do not let the user in by this method.
        MethodForbidden => "method-forbidden",
            "the user's rows do not allow this method";
        /// The peer breaks the rules of its method.
        Rules => "method-rules",
            "the device breaks the protocol of its method";
        /// The ends of a PEAP tunnel are not bound to the same keys.
        Binding => "cryptobinding",
            "the ends of the tunnel have different keys (cryptobinding)";
        /// The user may not log in at all.
        Locked => "locked",
            "the user is locked";
        /// The rows that the store has of the user cannot be understood.
        BadRows => "bad-rows",
            "the user's rows in the store cannot be parsed";
        /// The user's time is over.
        Expired => "expired",
            "the user has expired";
        /// The request is not as the user's checks want it.
        Checks => "checks",
            "the request fails the user's checks";
    }
    uncounted {
        /// The request's name is not the one that EAP gave (RFC 3579 §2.1).
        NameMismatch => "name-mismatch",
            "User-Name is not the EAP identity";
        /// The certificate is another's: it does not bear the name that the peer gave.
        CertificateName => "certificate-other-name",
            "the device's certificate has another name than the device gave";
        /// A TLS session was taken up that another password, method or name has let in.
        StaleSession => "stale-session",
            "the TLS session is older than the user's last change";
        /// Its home server says no.
        HomeServer => "home-server",
            "the home server rejected the login";
        /// No home server answers.
        HomeSilent => "home-silent",
            "no home server answered";
        /// Its realm is refused, or known nowhere.
        NoRealm => "no-realm",
            "the realm is refused or unknown";
        /// The request passed too many proxies.
        ProxyLoop => "proxy-loop",
            "the request passed too many proxies";
        /// Its realm's servers are not asked for a request of its kind.
        Undeliverable => "undeliverable",
            "the realm's servers do not take requests of this kind";
        /// The reply of the user's rows does not fit a RADIUS packet.
        ReplyTooLong => "reply-too-long",
            "the user's reply does not fit a RADIUS packet (4096 octets)";
        /// A request without any proof that the server knows.
        NoProof => "no-proof",
            "the request has no proof that this server supports";
        /// A password or a response of an impossible length, or two kinds of proof.
        BadProof => "bad-proof",
            "the request's password or response is malformed, or it has two of them";
        /// Not an EAP packet that begins a conversation.
        BadEap => "bad-eap",
            "the EAP packet does not begin a conversation";
        /// A State that names no login under way, or one of another client.
        UnknownSession => "unknown-session",
            "State names no login under way: the login ended, the server restarted, or it is another client's";
        /// The store, or what counts sessions, cannot be asked.
        StoreAway => "store-away",
            "the store is not available";
        /// Too much else waits.
        Busy => "busy",
            "the server is overloaded";
        /// The peer did not go on.
        GaveUp => "device-silent",
            "the device did not continue the login";
        /// The login took longer than one may.
        TooSlow => "too-slow",
            "the login took too long in total";
    }
}

/// The OCSP status of a certificate (RFC 6960), if it is not good.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum OcspStatusFault {
    /// The certificate is revoked.
    Revoked,
    /// The responder does not know the certificate.
    Unknown,
    /// The responder does not answer.
    Silent,
    /// The response is invalid.
    Unbelievable,
    /// No responder is known.
    NoResponder,
}

impl OcspStatusFault {
    /// All of them.
    pub const ALL: [Self; 5] =
        [Self::Revoked, Self::Unknown, Self::Silent, Self::Unbelievable, Self::NoResponder];

    /// Returns its name in counters.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Revoked => "ocsp-revoked",
            Self::Unknown => "ocsp-unknown",
            Self::Silent => "ocsp-silent",
            Self::Unbelievable => "ocsp-invalid",
            Self::NoResponder => "ocsp-no-responder",
        }
    }
}

impl fmt::Display for OcspStatusFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Revoked => "the device's certificate is revoked (OCSP)",
            Self::Unknown => "the OCSP responder does not know the device's certificate",
            Self::Silent => "the OCSP responder for the device's certificate does not answer",
            Self::Unbelievable => "the OCSP response about the device's certificate is invalid",
            Self::NoResponder => "no OCSP responder is known for the device's certificate",
        })
    }
}

impl RejectCause {
    /// Returns the names of all causes: the values of a counter's label.
    #[must_use]
    pub fn all_cause_names() -> BTreeSet<&'static str> {
        let limits = [
            AdmissionRefusal::TooManySessions { allowed: 1 },
            AdmissionRefusal::TooManyFailures,
            AdmissionRefusal::PoolExhausted,
            AdmissionRefusal::UnknownPool,
            AdmissionRefusal::Full,
        ];
        let alerts = Alert::KNOWN.iter().copied().chain([Alert(u8::MAX)]).map(TlsFault::Alert);
        let tls = TlsFault::KNOWN.iter().copied().chain(alerts);
        let all = Self::PLAIN.iter().copied().chain(limits.map(Self::Limit));
        let all = all.chain(OcspStatusFault::ALL.map(Self::Status)).chain(tls.map(Self::Tls));
        all.map(Self::name).collect()
    }

    /// True if the cause concerns the proof or the method. If the user may not log in at all, that cause takes
    /// precedence.
    pub(super) const fn concerns_proof_or_method(self) -> bool {
        matches!(
            self,
            Self::WrongPassword
                | Self::NoPassword
                | Self::PasswordForm
                | Self::NoMethod
                | Self::NoInnerMethod
                | Self::MethodForbidden
                | Self::Rules
        )
    }
}

impl From<ServerMethodFailure> for RejectCause {
    fn from(fault: ServerMethodFailure) -> Self {
        match fault {
            ServerMethodFailure::Proof => Self::WrongPassword,
            ServerMethodFailure::Secret => Self::PasswordForm,
            ServerMethodFailure::NoInner => Self::NoInnerMethod,
            // If the host refuses the login, it gives a cause of its own, which takes precedence over this one.
            ServerMethodFailure::Rules | ServerMethodFailure::Host => Self::Rules,
            ServerMethodFailure::Binding => Self::Binding,
            ServerMethodFailure::Tls(fault) => Self::Tls(fault),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_this_side_cannot_judge_counts_against_nobody() {
        let certificate = |fault| TlsFault::Certificate(fault);
        for fault in [CertificateFault::ListExpired, CertificateFault::ListUnusable] {
            assert!(!RejectCause::Tls(certificate(fault)).counts());
        }
        assert!(
            !RejectCause::Tls(TlsFault::Internal).counts()
                && !RejectCause::Tls(TlsFault::Alert(Alert(48))).counts()
        );
        let revoked = certificate(CertificateFault::Revoked);
        assert!(RejectCause::Tls(revoked).counts() && !RejectCause::Distrusted(revoked).counts());
        assert_eq!(RejectCause::Distrusted(revoked).name(), RejectCause::Tls(revoked).name());
    }

    #[test]
    fn every_reason_has_a_name_of_its_own() {
        let others = 5 + OcspStatusFault::ALL.len() + TlsFault::KNOWN.len() + Alert::KNOWN.len() + 1;
        let names = RejectCause::all_cause_names();
        assert_eq!(names.len(), RejectCause::PLAIN.len() + others, "{names:?}");
        assert!(names.iter().all(|n| n.bytes().all(|b| b.is_ascii_lowercase() || b == b'-')), "{names:?}");
    }
}
