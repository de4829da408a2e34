//! Counters of the AAA server.

use super::reason::{RejectCause, StatusFault};
use crate::ledger::AdmissionRefusal;
use crate::users::AuthMethod;
use usher_crypto::fault::TlsFault;

usher_core::counters! {
    /// What a server did and what it dropped, beside the counters of its RADIUS server and Diameter node.
    pub struct AaaServerCounters {
        /// Sessions begun.
        sessions,
        /// Challenges sent.
        challenges,
        /// Let in by their password itself.
        accepted_pap,
        /// Let in by CHAP.
        accepted_chap,
        /// Let in by MS-CHAP.
        accepted_ms_chap,
        /// Let in by MS-CHAPv2.
        accepted_ms_chap_v2,
        /// Let in by EAP-MD5.
        accepted_eap_md5,
        /// Let in by EAP-GTC.
        accepted_eap_gtc,
        /// Let in by EAP-MSCHAPv2.
        accepted_eap_ms_chap_v2,
        /// Let in by EAP-TLS.
        accepted_eap_tls,
        /// Let in by PEAP.
        accepted_peap,
        /// Let in by EAP-TTLS.
        accepted_ttls,
        /// Let in by their MAC address alone.
        accepted_mab,
        /// Turned away: nobody of that name.
        rejected_unknown_user,
        /// Turned away: wrong password.
        rejected_wrong_password,
        /// Turned away: the user has no password.
        rejected_no_password,
        /// Turned away: the password is kept in a form with which the method cannot work.
        rejected_password_form,
        /// Turned away: the user's rows do not allow the method.
        rejected_method_forbidden,
        /// Turned away: no method in common inside the tunnel.
        rejected_no_inner_method,
        /// Turned away: the peer broke the rules of its method.
        rejected_method_rules,
        /// Turned away: a tunnel's ends were not bound to the same keys.
        rejected_cryptobinding,
        /// Turned away: the peer's certificate, or its TLS.
        rejected_tls,
        /// Turned away: the peer ended TLS by an alert.
        rejected_alert,
        /// Turned away: no method in common.
        rejected_no_method,
        /// Turned away: the request's name is not the one that EAP gave.
        rejected_name_mismatch,
        /// Turned away: the user is locked.
        rejected_locked,
        /// Turned away: the name is no text, or one that the store cannot hold.
        rejected_unstorable_name,
        /// Turned away: the user's rows in the store cannot be understood.
        rejected_bad_rows,
        /// Turned away: the user's time is over.
        rejected_expired,
        /// Turned away: the request is not as the user's checks want it.
        rejected_checks,
        /// Turned away: the certificate is revoked, as its issuer says when asked.
        rejected_revoked,
        /// Turned away: nobody says that the certificate is not revoked.
        rejected_no_status,
        /// Turned away: the certificate is of another name.
        rejected_certificate_name,
        /// Turned away: a TLS session of before the user was changed.
        rejected_stale_session,
        /// Turned away: what the user's rows say fits no RADIUS packet.
        rejected_reply_too_long,
        /// Turned away: too many sessions at once.
        rejected_simultaneous,
        /// Turned away: no address left in the pool, or no such pool.
        rejected_no_address,
        /// Turned away: too many failures lately.
        rejected_failures,
        /// Turned away: the ledger holds as many sessions as it may.
        rejected_full,
        /// Turned away by their home server.
        rejected_elsewhere,
        /// Turned away: no home server answers.
        rejected_home_silent,
        /// Let in by their home server.
        accepted_elsewhere,
        /// Requests handed to another server of the same key, which has their login or knows the way.
        handed_over,
        /// Requests passed on to home servers.
        proxied,
        /// Answers of home servers.
        proxy_answered,
        /// Requests that no home server answered.
        proxy_unanswered,
        /// Dropped: a request that passed too many proxies.
        proxy_loops,
        /// Dropped: too many requests wait for home servers.
        proxy_overload,
        /// Dropped: a request or an answer with a hidden value that cannot be revealed.
        proxy_unreadable,
        /// Accounting that a home server says it does not keep (Error-Cause): not acknowledged.
        proxy_unwanted,
        /// Turned away: a realm that is known nowhere.
        proxy_refused,
        /// Diameter requests whose user's realm is not asked for them.
        proxy_undeliverable,
        /// Attributes of home servers' answers that their realm's filter left out.
        filtered_answers,
        /// Attributes of requests that a realm's filter kept from its home servers.
        filtered_requests,
        /// Unfinished sessions that idled too long.
        expired,
        /// Unfinished sessions that took too long in all.
        overdue,
        /// Unfinished sessions pushed out by new ones.
        evicted,
        /// Dropped: a step of a login that costs public-key operations, for which too many waited.
        steps_dropped,
        /// Rejects sent before their delay was over, to make room.
        unheld,
        /// Users asked of the host.
        lookups,
        /// Users that were still known.
        lookups_saved,
        /// Users that the host gave as it had found them earlier, since the store could not be asked.
        remembered,
        /// Requests that got no verdict: the store could not be asked.
        unavailable,
        /// Accounting requests.
        accounting,
        /// Accounting requests answered: their records are durable.
        accounted,
        /// Accounting requests that name an access server for which their client does not speak: kept as of the client's
        /// own address.
        foreign_nas,
        /// Accounting-On and -Off of an access server for which their client does not speak: they end nothing.
        foreign_restarts,
        /// Accounting-Requests of an Acct-Status-Type that is not kept (of tunnels, of failures, a vendor's):
        /// acknowledged.
        other_accounting,
        /// Dropped: an accounting request that is not one.
        bad_accounting,
        /// Dropped: a State or Session-Id that names no session, or one of another client.
        unknown_session,
        /// Turned away: a request without any proof that the server knows.
        no_proof,
        /// Not an EAP packet that begins a conversation: turned away. One that answers nothing that was asked: dropped.
        bad_eap,
        /// Turned away: a password or a response of an impossible length, or two kinds of proof.
        bad_password,
        /// Dropped: a further request while the session's user is being looked up.
        busy,
        /// Dropped: a request of a kind that is not served.
        unsupported,
        /// Dropped: input for a front that is not configured, or for home servers of an earlier configuration.
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
            RejectCause::Status(StatusFault::Revoked) => &mut self.rejected_revoked,
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
