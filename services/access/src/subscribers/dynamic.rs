//! Dynamic authorization: requests of AAA servers about sessions (RFC 5176, RFC 6733 §8).

use super::session::SubscriberSession;
use super::{SubscriberEvent, SubscriberKey, SubscriberManager};
use crate::client::AccessClientCommand;
use crate::{DynamicRequest, DynamicRequestKind, ErrorCause, SessionIdentity};
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;
use usher_core::{Instant, Machine};
use usher_radius::attribute::kind;

/// The attributes of a session that an AAA server may change.
const TIMES: [u8; 2] = [kind::SESSION_TIMEOUT, kind::ACCT_INTERIM_INTERVAL];
/// Those of services that limit rates: names of rates, and rates of vendors.
const RATES: [u8; 2] = [kind::FILTER_ID, kind::VENDOR_SPECIFIC];

impl<K: SubscriberKey, A: fmt::Debug> SubscriberManager<K, A> {
    fn sessions_matching_request(&self, request: &DynamicRequest) -> Vec<u64> {
        let matches = |(id, session): (&u64, &SubscriberSession<A>)| {
            let identity = SessionIdentity {
                token: session.grant.token,
                names: [&session.grant.login, &session.grant.user],
                port: session.place.nas_port(),
                session: Some(&session.acct),
                framed_ip: session.addresses.ipv4,
                framed_ipv6_prefix: session.addresses.ipv6,
                ..SessionIdentity::default()
            };
            (session.is_accounted && request.is_about(&identity)).then_some(*id)
        };
        self.sessions.iter().filter_map(matches).collect()
    }

    /// Checks a change. It applies as a whole or not at all.
    fn check_change(&self, request: &DynamicRequest) -> Result<(), ErrorCause> {
        let changes_vendor = || request.changed_attribute_numbers().any(|kind| kind == kind::VENDOR_SPECIFIC);
        let is_known = |name: &str| self.config.rates.iter().flatten().any(|rate| rate.name == name);
        let can_change = |number: &u8| {
            TIMES.contains(number)
                || (self.config.is_metered && *number == kind::IDLE_TIMEOUT)
                || (self.config.rates.is_some() && RATES.contains(number))
        };
        if !request.changed_attribute_numbers().all(|kind| can_change(&kind)) {
            return Err(ErrorCause::UnsupportedAttribute);
        }
        if changes_vendor() && request.content.bandwidth() == (None, None) {
            return Err(ErrorCause::UnsupportedAttribute);
        }
        match request.content.filter_ids().all(is_known) {
            true => Ok(()),
            false => Err(ErrorCause::InvalidAttributeValue),
        }
    }

    /// Handles a request. It applies to all selected sessions or to none.
    pub(super) fn handle_dynamic_request(&mut self, now: Instant, request: &DynamicRequest) {
        let mut selected = self.sessions_matching_request(request);
        if request.kind == DynamicRequestKind::Change {
            selected.retain(|id| self.sessions.get(id).is_some_and(|session| !session.is_ending));
        }
        let answer = match request.kind {
            // RFC 5176, 3: a request about no session is refused.
            _ if selected.is_empty() => Err(ErrorCause::SessionContextNotFound),
            DynamicRequestKind::Disconnect => Ok(()),
            DynamicRequestKind::Change => self.check_change(request),
            // The access server cannot make a user authenticate again (over IKEv2: RFC 4478 is not supported).
            DynamicRequestKind::Reauthenticate => Err(ErrorCause::AdministrativelyProhibited),
        };
        self.counters.dynamic_refused += u64::from(answer.is_err());
        if let Some(client) = &mut self.client {
            // The request has just arrived, so the client knows its token and the answer does not fail.
            let command = AccessClientCommand::AnswerDynamic { token: request.token, answer };
            let _ = client.handle_command(now, command);
        }
        for id in selected {
            if self.sessions.get(&id).is_none_or(|session| session.is_ending) {
                continue;
            }
            match (request.kind, answer) {
                (DynamicRequestKind::Disconnect, _) | (DynamicRequestKind::Reauthenticate, Err(_)) => {
                    self.disconnect_session(id);
                }
                (DynamicRequestKind::Change, Ok(())) => self.change_session(now, id, request),
                _ => {}
            }
        }
    }

    fn disconnect_session(&mut self, id: u64) {
        self.counters.sessions_disconnected += 1;
        self.mark_ending(id);
        if let Some(session) = self.sessions.get(&id) {
            self.grace.revoke_user(&session.grant.login);
        }
        self.outputs.push_event(SubscriberEvent::Disconnect { id });
    }

    fn change_session(&mut self, now: Instant, id: u64, request: &DynamicRequest) {
        let content = &request.content;
        if let Some(lasts) = content.session_timeout() {
            self.set_session_timeout(now, id, lasts);
        }
        if let Some(idle) = content.idle_timeout() {
            self.set_idle_timeout(id, idle);
        }
        if let Some(every) = content.interim_interval().filter(|every| !every.is_zero()) {
            self.set_interim_interval(now, id, every);
        }
        let filters: Vec<String> = content.filter_ids().map(Into::into).collect();
        let (up, down) = content.bandwidth();
        let bandwidth = (up.map(u64::from), down.map(u64::from));
        let changes_rates = !filters.is_empty() || bandwidth != (None, None);
        if changes_rates {
            let rates = self.select_rates(&filters, bandwidth);
            if let Some(session) = self.sessions.get_mut(&id) {
                session.rates = rates;
            }
        }
        self.counters.sessions_changed += 1;
        self.outputs.push_event(SubscriberEvent::Change { id, changes_rates });
    }
}
