//! Why somebody was turned away, or got no verdict.

use crate::ledger::Refusal;
use alloc::collections::BTreeSet;
use core::fmt;
use usher_crypto::fault::{Alert, TlsFault};
use usher_eap::method::Fault;

/// Why somebody was turned away, or got no verdict. [`name`](Self::name) tells them apart for counters.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Reason {
    /// Nobody of that name.
    UnknownUser,
    /// The password is wrong.
    WrongPassword,
    /// The user has no password, and the method takes one.
    NoPassword,
    /// The user's password is kept in a form with which the method cannot work.
    PasswordForm,
    /// No method that server and peer have in common.
    NoMethod,
    /// No method inside the tunnel that server, user and peer have in common.
    NoInnerMethod,
    /// The user's rows do not let the user in by this method.
    MethodForbidden,
    /// The peer breaks the rules of its method.
    Rules,
    /// The ends of a PEAP tunnel are not bound to the same keys.
    Binding,
    /// The request's name is not the one that EAP gave (RFC 3579 §2.1).
    NameMismatch,
    /// The user may not log in at all.
    Locked,
    /// The rows that the store has of the user cannot be understood.
    BadRows,
    /// The user's time is over.
    Expired,
    /// The request is not as the user's checks want it.
    Checks,
    /// TLS came to its end: the peer's certificate, what it lacks, or its alert.
    Tls(TlsFault),
    /// What the certificate's issuer says of it, or that nobody says where that is wanted.
    Status(StatusFault),
    /// The certificate is another's: it does not bear the name that the peer gave.
    CertificateName,
    /// A TLS session was taken up that another password, method or name has let in.
    StaleSession,
    /// Its home server says no.
    HomeServer,
    /// No home server answers.
    HomeSilent,
    /// Its realm is refused, or known nowhere.
    NoRealm,
    /// The request passed too many proxies.
    ProxyLoop,
    /// A limit that counts more than this login.
    Limit(Refusal),
    /// A request without any proof that the server knows.
    NoProof,
    /// A password or a response of an impossible length, or two kinds of proof.
    BadProof,
    /// Not an EAP packet that begins a conversation.
    BadEap,
    /// A State that names no login under way, or one of another client.
    UnknownSession,
    /// The store, or what counts sessions, cannot be asked.
    StoreAway,
    /// Too much else waits.
    Busy,
    /// The peer did not go on.
    GaveUp,
    /// The login took longer than one may.
    TooSlow,
}

/// What the issuer of a certificate says of it when asked (OCSP, RFC 6960), where that is not good.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum StatusFault {
    /// It is revoked.
    Revoked,
    /// The responder does not know it.
    Unknown,
    /// The responder does not answer.
    Silent,
    /// What the responder says cannot be believed.
    Unbelievable,
    /// Nobody knows whom to ask.
    NoResponder,
}

impl StatusFault {
    /// All.
    pub const ALL: [Self; 5] =
        [Self::Revoked, Self::Unknown, Self::Silent, Self::Unbelievable, Self::NoResponder];

    /// Its name in counters.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Revoked => "ocsp-revoked",
            Self::Unknown => "ocsp-unknown",
            Self::Silent => "ocsp-silent",
            Self::Unbelievable => "ocsp-unbelievable",
            Self::NoResponder => "ocsp-no-responder",
        }
    }
}

impl fmt::Display for StatusFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Revoked => "the device's certificate is revoked: its issuer's OCSP responder says so",
            Self::Unknown => "the OCSP responder does not know the device's certificate",
            Self::Silent => "the OCSP responder for the device's certificate does not answer",
            Self::Unbelievable => {
                "what the OCSP responder says of the device's certificate cannot be believed"
            }
            Self::NoResponder => "there is no OCSP responder to ask about the device's certificate",
        })
    }
}

impl Reason {
    /// Those without a value.
    const PLAIN: [Self; 28] = [
        Self::UnknownUser,
        Self::WrongPassword,
        Self::NoPassword,
        Self::PasswordForm,
        Self::NoMethod,
        Self::NoInnerMethod,
        Self::MethodForbidden,
        Self::Rules,
        Self::Binding,
        Self::NameMismatch,
        Self::Locked,
        Self::BadRows,
        Self::Expired,
        Self::Checks,
        Self::CertificateName,
        Self::StaleSession,
        Self::HomeServer,
        Self::HomeSilent,
        Self::NoRealm,
        Self::ProxyLoop,
        Self::NoProof,
        Self::BadProof,
        Self::BadEap,
        Self::UnknownSession,
        Self::StoreAway,
        Self::Busy,
        Self::GaveUp,
        Self::TooSlow,
    ];

    /// The names of all reasons: the values that a counter's label can have.
    #[must_use]
    pub fn names() -> BTreeSet<&'static str> {
        let limits = [
            Refusal::TooManySessions { allowed: 1 },
            Refusal::TooManyFailures,
            Refusal::PoolExhausted,
            Refusal::UnknownPool,
            Refusal::Full,
        ];
        let alerts = Alert::KNOWN.iter().copied().chain([Alert(u8::MAX)]).map(TlsFault::Alert);
        let tls = TlsFault::KNOWN.iter().copied().chain(alerts);
        let all = Self::PLAIN.into_iter().chain(limits.map(Self::Limit));
        let all = all.chain(StatusFault::ALL.map(Self::Status)).chain(tls.map(Self::Tls));
        all.map(Self::name).collect()
    }

    /// A short name that stays: for counters and log lines. Small letters and hyphens, of a fixed set.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::UnknownUser => "unknown-user",
            Self::WrongPassword => "wrong-password",
            Self::NoPassword => "no-password",
            Self::PasswordForm => "password-form",
            Self::NoMethod => "no-method",
            Self::NoInnerMethod => "no-inner-method",
            Self::MethodForbidden => "method-forbidden",
            Self::Rules => "method-rules",
            Self::Binding => "cryptobinding",
            Self::NameMismatch => "name-mismatch",
            Self::Locked => "locked",
            Self::BadRows => "bad-rows",
            Self::Expired => "expired",
            Self::Checks => "checks",
            Self::Tls(fault) => fault.name(),
            Self::Status(fault) => fault.name(),
            Self::CertificateName => "certificate-other-name",
            Self::StaleSession => "stale-session",
            Self::HomeServer => "home-server",
            Self::HomeSilent => "home-silent",
            Self::NoRealm => "no-realm",
            Self::ProxyLoop => "proxy-loop",
            Self::Limit(Refusal::TooManySessions { .. }) => "sessions",
            Self::Limit(Refusal::TooManyFailures) => "failures",
            Self::Limit(Refusal::PoolExhausted) => "pool-empty",
            Self::Limit(Refusal::UnknownPool) => "pool-unknown",
            Self::Limit(Refusal::Full) => "sessions-full",
            Self::NoProof => "no-proof",
            Self::BadProof => "bad-proof",
            Self::BadEap => "bad-eap",
            Self::UnknownSession => "unknown-session",
            Self::StoreAway => "store-away",
            Self::Busy => "busy",
            Self::GaveUp => "gave-up",
            Self::TooSlow => "too-slow",
        }
    }

    /// Whether a login that offered a proof and was turned away for this counts as failed
    /// ([`Login::failed_as`](super::Login::failed_as)).
    pub(super) const fn counts(self) -> bool {
        match self {
            Self::UnknownUser
            | Self::WrongPassword
            | Self::NoPassword
            | Self::PasswordForm
            | Self::NoMethod
            | Self::NoInnerMethod
            | Self::MethodForbidden
            | Self::Rules
            | Self::Binding
            | Self::Locked
            | Self::BadRows
            | Self::Expired
            | Self::Checks
            | Self::Tls(_) => true,
            Self::NameMismatch
            | Self::Status(_)
            | Self::CertificateName
            | Self::StaleSession
            | Self::HomeServer
            | Self::HomeSilent
            | Self::NoRealm
            | Self::ProxyLoop
            | Self::Limit(_)
            | Self::NoProof
            | Self::BadProof
            | Self::BadEap
            | Self::UnknownSession
            | Self::StoreAway
            | Self::Busy
            | Self::GaveUp
            | Self::TooSlow => false,
        }
    }

    /// Whether it is about what was proven, or by what: where the user could not log in at all, that is the reason.
    pub(super) const fn of_proof(self) -> bool {
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

impl From<Fault> for Reason {
    fn from(fault: Fault) -> Self {
        match fault {
            Fault::Proof => Self::WrongPassword,
            Fault::Secret => Self::PasswordForm,
            Fault::NoInner => Self::NoInnerMethod,
            // Where the host refuses it has its own reason, which goes before.
            Fault::Rules | Fault::Host => Self::Rules,
            Fault::Binding => Self::Binding,
            Fault::Tls(fault) => Self::Tls(fault),
        }
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::UnknownUser => "nobody of that name",
            Self::WrongPassword => "wrong password",
            Self::NoPassword => "the user has no password, and the method takes one",
            Self::PasswordForm => "the user's password is kept in a form that this method cannot use",
            Self::NoMethod => "no method in common",
            Self::NoInnerMethod => "no method in common inside the tunnel",
            Self::MethodForbidden => "the user's rows do not allow this method",
            Self::Rules => "the device breaks the rules of its method",
            Self::Binding => "the ends of the tunnel are not bound to the same keys (cryptobinding)",
            Self::NameMismatch => "User-Name is not the EAP identity",
            Self::Locked => "the user is locked",
            Self::BadRows => "the user's rows in the store cannot be understood",
            Self::Expired => "the user's time is over",
            Self::Checks => "the request is not as the user's checks want it",
            Self::Tls(fault) => return fault.told("the device").fmt(f),
            Self::Status(fault) => return fault.fmt(f),
            Self::CertificateName => "the device's certificate is of another name than the device gave",
            Self::StaleSession => "the TLS session is of before the user was changed",
            Self::HomeServer => "the home server says no",
            Self::HomeSilent => "no home server answers",
            Self::NoRealm => "the realm is refused, or known nowhere",
            Self::ProxyLoop => "the request passed too many proxies",
            Self::Limit(refusal) => return refusal.fmt(f),
            Self::NoProof => "the request has no proof that this server knows",
            Self::BadProof => "the request's password or response is malformed, or there are two of them",
            Self::BadEap => "the EAP packet begins no conversation",
            Self::UnknownSession => {
                "State names no login under way: it is over, or of another client or start"
            }
            Self::StoreAway => "the store cannot be asked",
            Self::Busy => "too much else waits",
            Self::GaveUp => "the device did not go on",
            Self::TooSlow => "the login took too long in all",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_reason_has_a_name_of_its_own() {
        let others = 5 + StatusFault::ALL.len() + TlsFault::KNOWN.len() + Alert::KNOWN.len() + 1;
        let names = Reason::names();
        assert_eq!(names.len(), Reason::PLAIN.len() + others, "{names:?}");
        assert!(names.iter().all(|n| n.bytes().all(|b| b.is_ascii_lowercase() || b == b'-')), "{names:?}");
    }
}
