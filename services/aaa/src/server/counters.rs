//! Counters of the AAA server.

use super::reason::{OcspStatusFault, RejectCause};
use crate::ledger::AdmissionRefusal;
use crate::users::AuthMethod;
use usher_crypto::fault::TlsFault;

usher_core::counters! {
    /// Counters of a server, beside the counters of its RADIUS server and Diameter node.
    pub struct AaaServerCounters {
        /// Logins begun.
        sessions,
        /// Challenges sent.
        challenges,
        /// Accepted by PAP.
        accepted_pap,
        /// Accepted by CHAP.
        accepted_chap,
        /// Accepted by MS-CHAP.
        accepted_ms_chap,
        /// Accepted by MS-CHAPv2.
        accepted_ms_chap_v2,
        /// Accepted by EAP-MD5.
        accepted_eap_md5,
        /// Accepted by EAP-GTC.
        accepted_eap_gtc,
        /// Accepted by EAP-MSCHAPv2.
        accepted_eap_ms_chap_v2,
        /// Accepted by EAP-TLS.
        accepted_eap_tls,
        /// Accepted by PEAP.
        accepted_peap,
        /// Accepted by EAP-TTLS.
        accepted_ttls,
        /// Accepted by MAC address.
        accepted_mab,
        /// Rejected: unknown user.
        rejected_unknown_user,
        /// Rejected: wrong password.
        rejected_wrong_password,
        /// Rejected: no password stored.
        rejected_no_password,
        /// Rejected: the method cannot use the stored password's form.
        rejected_password_form,
        /// Rejected: the user's rows forbid the method.
        rejected_method_forbidden,
        /// Rejected: no method in common inside the tunnel.
        rejected_no_inner_method,
        /// Rejected: the peer broke its method's rules.
        rejected_method_rules,
        /// Rejected: different keys at the tunnel's ends.
        rejected_cryptobinding,
        /// Rejected: fault of the peer's certificate or TLS handshake.
        rejected_tls,
        /// Rejected: the peer ended the TLS handshake by an alert.
        rejected_alert,
        /// Rejected: no method in common.
        rejected_no_method,
        /// Rejected: User-Name differs from the EAP identity.
        rejected_name_mismatch,
        /// Rejected: the user is locked (`Auth-Type := Reject`).
        rejected_locked,
        /// Rejected: the name is invalid, or the store cannot hold it.
        rejected_unstorable_name,
        /// Rejected: the user's rows cannot be parsed.
        rejected_bad_rows,
        /// Rejected: past the user's `Expiration`.
        rejected_expired,
        /// Rejected: the request does not meet a check item.
        rejected_checks,
        /// Rejected: certificate revoked (OCSP).
        rejected_revoked,
        /// Rejected: no usable OCSP response.
        rejected_no_status,
        /// Rejected: certificate of another name.
        rejected_certificate_name,
        /// Rejected: TLS session older than the user's last change.
        rejected_stale_session,
        /// Rejected: reply exceeds a RADIUS packet.
        rejected_reply_too_long,
        /// Rejected: the user has the maximum number of sessions (`Simultaneous-Use`).
        rejected_simultaneous,
        /// Rejected: address pool exhausted or unknown.
        rejected_no_address,
        /// Rejected: lockout after failed logins.
        rejected_failures,
        /// Rejected: the ledger has its maximum number of sessions.
        rejected_full,
        /// Rejected by the home server.
        rejected_elsewhere,
        /// Rejected: no home server answers.
        rejected_home_silent,
        /// Accepted by the home server.
        accepted_elsewhere,
        /// Requests passed to another shard, which has their login or the connections to Diameter servers.
        handed_over,
        /// Requests sent to home servers.
        proxied,
        /// Answers of home servers.
        proxy_answered,
        /// Requests that no home server answered.
        proxy_unanswered,
        /// Dropped: requests that passed too many proxies.
        proxy_loops,
        /// Dropped: too many requests wait for home servers.
        proxy_overload,
        /// Dropped: requests or answers whose hidden values cannot be decrypted.
        proxy_unreadable,
        /// Not acknowledged: accounting that the home server does not keep (Error-Cause).
        proxy_unwanted,
        /// Rejected: the realm is refused or unknown.
        proxy_refused,
        /// Rejected: Diameter requests that the realm's servers cannot take.
        proxy_undeliverable,
        /// Attributes that a realm's filter removed from answers.
        filtered_answers,
        /// Attributes that a realm's filter removed from requests.
        filtered_requests,
        /// Unfinished logins ended for inactivity.
        expired,
        /// Unfinished logins that exceeded their time limit.
        overdue,
        /// Unfinished logins evicted for new ones.
        evicted,
        /// Dropped: login steps, because too many public-key operations waited.
        steps_dropped,
        /// Delayed rejects sent before `reject_delay` was over, to make room.
        unheld,
        /// Users looked up in the store.
        lookups,
        /// Users found in the cache.
        lookups_saved,
        /// Users from an earlier lookup, used while the store was unavailable.
        remembered,
        /// Requests without a verdict: store unavailable, or server busy.
        unavailable,
        /// Accounting requests.
        accounting,
        /// Accounting requests answered: their records are durable.
        accounted,
        /// Accounting for an access server that is not the client's: kept under the client's own address.
        foreign_nas,
        /// Accounting-On and -Off for an access server that is not the client's: no effect.
        foreign_restarts,
        /// Acknowledged: accounting requests of an Acct-Status-Type that is not kept.
        other_accounting,
        /// Dropped: malformed accounting requests.
        bad_accounting,
        /// Rejected: the State or Session-Id belongs to no login, or to another client.
        unknown_session,
        /// Rejected: the request has no password, response or EAP message.
        no_proof,
        /// Rejected: EAP packets that begin no conversation. Dropped: those that answer no request.
        bad_eap,
        /// Rejected: malformed password or response, or more than one.
        bad_password,
        /// Dropped: requests that came while the previous request of the login was in progress.
        busy,
        /// Requests of an unsupported kind: dropped, or refused by Diameter.
        unsupported,
        /// Dropped: input for an unconfigured protocol, or for home servers that a reload removed.
        no_front,
    }
}

impl AaaServerCounters {
    pub(super) fn count_accepted(&mut self, method: AuthMethod) {
        *match method {
            AuthMethod::Pap => &mut self.accepted_pap,
            AuthMethod::Chap => &mut self.accepted_chap,
            AuthMethod::MsChap => &mut self.accepted_ms_chap,
            AuthMethod::MsChapV2 => &mut self.accepted_ms_chap_v2,
            AuthMethod::EapMd5 => &mut self.accepted_eap_md5,
            AuthMethod::EapGtc => &mut self.accepted_eap_gtc,
            AuthMethod::EapMsChapV2 => &mut self.accepted_eap_ms_chap_v2,
            AuthMethod::EapTls => &mut self.accepted_eap_tls,
            AuthMethod::Peap => &mut self.accepted_peap,
            AuthMethod::Ttls => &mut self.accepted_ttls,
            AuthMethod::Mab => &mut self.accepted_mab,
        } += 1;
    }
    pub(super) fn count_rejected(&mut self, reason: RejectCause) {
        *match reason {
            RejectCause::UnknownUser => &mut self.rejected_unknown_user,
            RejectCause::WrongPassword => &mut self.rejected_wrong_password,
            RejectCause::NoPassword => &mut self.rejected_no_password,
            RejectCause::PasswordForm => &mut self.rejected_password_form,
            RejectCause::NoMethod => &mut self.rejected_no_method,
            RejectCause::NoInnerMethod => &mut self.rejected_no_inner_method,
            RejectCause::MethodForbidden => &mut self.rejected_method_forbidden,
            RejectCause::Rules => &mut self.rejected_method_rules,
            RejectCause::Binding => &mut self.rejected_cryptobinding,
            RejectCause::Tls(TlsFault::Alert(_)) => &mut self.rejected_alert,
            RejectCause::Tls(_) | RejectCause::Distrusted(_) => &mut self.rejected_tls,
            RejectCause::NameMismatch => &mut self.rejected_name_mismatch,
            RejectCause::Locked => &mut self.rejected_locked,
            RejectCause::UnstorableName => &mut self.rejected_unstorable_name,
            RejectCause::BadRows => &mut self.rejected_bad_rows,
            RejectCause::Expired => &mut self.rejected_expired,
            RejectCause::Checks => &mut self.rejected_checks,
            RejectCause::Status(OcspStatusFault::Revoked) => &mut self.rejected_revoked,
            RejectCause::Status(_) => &mut self.rejected_no_status,
            RejectCause::CertificateName => &mut self.rejected_certificate_name,
            RejectCause::StaleSession => &mut self.rejected_stale_session,
            RejectCause::ReplyTooLong => &mut self.rejected_reply_too_long,
            RejectCause::HomeServer => &mut self.rejected_elsewhere,
            RejectCause::HomeSilent => &mut self.rejected_home_silent,
            RejectCause::NoRealm => &mut self.proxy_refused,
            RejectCause::ProxyLoop => &mut self.proxy_loops,
            RejectCause::Undeliverable => &mut self.proxy_undeliverable,
            RejectCause::NoProof => &mut self.no_proof,
            RejectCause::BadProof => &mut self.bad_password,
            RejectCause::BadEap => &mut self.bad_eap,
            RejectCause::UnknownSession => &mut self.unknown_session,
            RejectCause::StoreAway | RejectCause::Busy => &mut self.unavailable,
            RejectCause::GaveUp => &mut self.expired,
            RejectCause::TooSlow => &mut self.overdue,
            RejectCause::Limit(AdmissionRefusal::TooManySessions { .. }) => &mut self.rejected_simultaneous,
            RejectCause::Limit(AdmissionRefusal::PoolExhausted | AdmissionRefusal::UnknownPool) => {
                &mut self.rejected_no_address
            }
            RejectCause::Limit(AdmissionRefusal::TooManyFailures) => &mut self.rejected_failures,
            RejectCause::Limit(AdmissionRefusal::Full) => &mut self.rejected_full,
        } += 1;
    }
}
