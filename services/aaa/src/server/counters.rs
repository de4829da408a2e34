//! What is counted.

use super::reason::{Reason, StatusFault};
use crate::ledger::Refusal;
use crate::users::Method;
use usher_crypto::fault::TlsFault;

usher_core::counters! {
    /// What a server did and what it dropped, beside the counters of its RADIUS server and Diameter node.
    pub struct Counters {
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

impl Counters {
    pub(super) fn accepted(&mut self, method: Method) {
        *match method {
            Method::Pap => &mut self.accepted_pap,
            Method::Chap => &mut self.accepted_chap,
            Method::MsChap => &mut self.accepted_ms_chap,
            Method::MsChapV2 => &mut self.accepted_ms_chap_v2,
            Method::EapMd5 => &mut self.accepted_eap_md5,
            Method::EapGtc => &mut self.accepted_eap_gtc,
            Method::EapMsChapV2 => &mut self.accepted_eap_ms_chap_v2,
            Method::EapTls => &mut self.accepted_eap_tls,
            Method::Peap => &mut self.accepted_peap,
            Method::Ttls => &mut self.accepted_ttls,
            Method::Mab => &mut self.accepted_mab,
        } += 1;
    }
    pub(super) fn rejected(&mut self, reason: Reason) {
        *match reason {
            Reason::UnknownUser => &mut self.rejected_unknown_user,
            Reason::WrongPassword => &mut self.rejected_wrong_password,
            Reason::NoPassword => &mut self.rejected_no_password,
            Reason::PasswordForm => &mut self.rejected_password_form,
            Reason::NoMethod => &mut self.rejected_no_method,
            Reason::NoInnerMethod => &mut self.rejected_no_inner_method,
            Reason::MethodForbidden => &mut self.rejected_method_forbidden,
            Reason::Rules => &mut self.rejected_method_rules,
            Reason::Binding => &mut self.rejected_cryptobinding,
            Reason::Tls(TlsFault::Alert(_)) => &mut self.rejected_alert,
            Reason::Tls(_) | Reason::Distrusted(_) => &mut self.rejected_tls,
            Reason::NameMismatch => &mut self.rejected_name_mismatch,
            Reason::Locked => &mut self.rejected_locked,
            Reason::UnstorableName => &mut self.rejected_unstorable_name,
            Reason::BadRows => &mut self.rejected_bad_rows,
            Reason::Expired => &mut self.rejected_expired,
            Reason::Checks => &mut self.rejected_checks,
            Reason::Status(StatusFault::Revoked) => &mut self.rejected_revoked,
            Reason::Status(_) => &mut self.rejected_no_status,
            Reason::CertificateName => &mut self.rejected_certificate_name,
            Reason::StaleSession => &mut self.rejected_stale_session,
            Reason::ReplyTooLong => &mut self.rejected_reply_too_long,
            Reason::HomeServer => &mut self.rejected_elsewhere,
            Reason::HomeSilent => &mut self.rejected_home_silent,
            Reason::NoRealm => &mut self.proxy_refused,
            Reason::ProxyLoop => &mut self.proxy_loops,
            Reason::Undeliverable => &mut self.proxy_undeliverable,
            Reason::NoProof => &mut self.no_proof,
            Reason::BadProof => &mut self.bad_password,
            Reason::BadEap => &mut self.bad_eap,
            Reason::UnknownSession => &mut self.unknown_session,
            Reason::StoreAway | Reason::Busy => &mut self.unavailable,
            Reason::GaveUp => &mut self.expired,
            Reason::TooSlow => &mut self.overdue,
            Reason::Limit(Refusal::TooManySessions { .. }) => &mut self.rejected_simultaneous,
            Reason::Limit(Refusal::PoolExhausted | Refusal::UnknownPool) => &mut self.rejected_no_address,
            Reason::Limit(Refusal::TooManyFailures) => &mut self.rejected_failures,
            Reason::Limit(Refusal::Full) => &mut self.rejected_full,
        } += 1;
    }
}
