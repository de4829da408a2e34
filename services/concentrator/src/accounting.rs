//! Accounting records (RFC 2866), and the dynamic authorization of AAA servers (RFC 5176, RFC 6733 §8).

use crate::login::nonzero_limit;
use crate::service::{AccessConcentrator, AccessConcentratorEvent, ConcentratorTimer, UnacknowledgedRecord};
use crate::session::{UserSession, fallback_session_user_name};
use crate::track::{AccountingStop, SessionEnd, SessionLogRecord, SessionLostByRestart, UnacknowledgedStop};
use alloc::boxed::Box;
use alloc::string::String;
use alloc::vec::Vec;
use usher_access::{
    AccountingRecord, AccountingRecordKind, DynamicRequest, DynamicRequestKind, ErrorCause, NasPort,
    SessionIdentity, SessionTraffic, TerminateCause, ipv6_prefix,
};
use usher_core::{Duration, Instant, Machine, WallTime};
use usher_radius::attribute::{AttributeList, kind};

/// The attributes of a session that an AAA server may change. Vendors' rates are in number 26.
const CHANGES: [u8; 5] = [
    kind::SESSION_TIMEOUT,
    kind::IDLE_TIMEOUT,
    kind::ACCT_INTERIM_INTERVAL,
    kind::FILTER_ID,
    kind::VENDOR_SPECIFIC,
];

impl AccessConcentrator {
    pub(crate) fn is_accounting_enabled(&self) -> bool {
        self.config.aaa.as_ref().is_some_and(|aaa| aaa.accounting)
    }

    /// Sends an accounting record of a session.
    pub(crate) fn account_session(&mut self, now: Instant, id: u64, what: AccountingRecordKind) {
        let Some(session) = self.sessions.remove(&id) else { return };
        let session = self.account_detached_session(now, session, what);
        self.sessions.insert(id, session);
    }

    /// Sends an accounting record of a session that is in no table.
    pub(crate) fn account_detached_session(
        &mut self,
        now: Instant,
        mut session: UserSession,
        what: AccountingRecordKind,
    ) -> UserSession {
        if !self.is_accounting_enabled() {
            return session;
        }
        let mut place = self.nas_port_info(&session.subscriber);
        if let Some((prefix, bits)) = session
            .assignment
            .ipv6
            .as_ref()
            .and_then(|ipv6| ipv6.delegated)
            .map(|p| (p.address(), p.prefix_length()))
        {
            // A prefix always fits an attribute.
            let _ = place.attributes.push_bytes(kind::DELEGATED_IPV6_PREFIX, &ipv6_prefix(prefix, bits));
        }
        let classes: Vec<&[u8]> = session.granted.classes.iter().map(|class| &class[..]).collect();
        let link = session.assignment.ipv6.as_ref().and_then(|ipv6| ipv6.prefix);
        let usage = session.usage;
        let record = AccountingRecord {
            name: session.granted.accounting_name(),
            port: place.nas_port(),
            lasted: session.duration(now),
            traffic: self.config.metered.then_some(SessionTraffic {
                input_octets: usage.octets_in,
                output_octets: usage.octets_out,
                input_packets: usage.packets_in,
                output_packets: usage.packets_out,
            }),
            cause: session.cause.unwrap_or_default(),
            classes: &classes,
            framed_ip: session.ipv4_address(),
            framed_ipv6_prefix: link.map(|prefix| (prefix.address(), prefix.prefix_length())),
            attributes: Some(&place.attributes),
            start: Some(self.start),
            ..AccountingRecord::new(what, &session.acct, session.records)
        };
        if self.send_record(now, &record, self.config.logged && what == AccountingRecordKind::Stop) {
            session.records += 1;
        }
        session
    }

    /// Sends a record; false if it cannot be sent. `logged` records are marked as unacknowledged in the session log.
    fn send_record(&mut self, now: Instant, record: &AccountingRecord<'_>, logged: bool) -> bool {
        let token = self.allocate_token();
        let Some(aaa) = &mut self.aaa else { return false };
        self.counters.records += 1;
        let session: String = record.session.into();
        let sent = aaa.send_record(now, token, record).is_ok();
        if sent {
            self.records.insert(token, UnacknowledgedRecord { session, logged });
        } else {
            self.counters.records_lost += 1;
            self.outputs.push_event(AccessConcentratorEvent::Unaccounted { session, logged: false });
        }
        sent
    }

    /// Sends Accounting-On or -Off of this concentrator, which ends all sessions that the AAA server knows.
    pub(crate) fn send_server_accounting(&mut self, now: Instant, what: AccountingRecordKind) {
        // Diameter has no equivalent of Accounting-On and Accounting-Off.
        let radius = self.aaa.as_ref().is_some_and(|aaa| aaa.radius_counters().is_some());
        if self.is_accounting_enabled() && radius {
            let name = usher_access::session_id(self.start, 0);
            self.send_record(now, &AccountingRecord::new(what, &name, 0), false);
        }
    }

    /// Ends a session that an earlier start left open. Returns its Stop.
    pub(crate) fn end_lost_session(
        &mut self,
        now: Instant,
        lost: SessionLostByRestart,
    ) -> UnacknowledgedStop {
        self.counters.sessions_lost += 1;
        // The last Accounting-Record-Number of the session is unknown. The highest number is surely new for it (RFC
        // 6733 §9.8.3).
        let stop =
            AccountingStop { cause: TerminateCause::NasError.radius_code(), record: u32::MAX, packets: None };
        let end = SessionEnd {
            ended_at: now.to_wall_time(self.epoch),
            session: lost.begin.session.clone(),
            reason: "concentrator-ended".into(),
            octets_in: 0,
            octets_out: 0,
            stop: self.is_accounting_enabled().then_some(stop),
        };
        if self.config.logged {
            self.outputs.push_event(AccessConcentratorEvent::Log(Box::new(SessionLogRecord::session_ended(
                end.clone(),
            ))));
        }
        UnacknowledgedStop { begin: lost.begin, end }
    }

    /// Sends the Stop of a session of an earlier start.
    pub(crate) fn account_unacknowledged_stop(&mut self, now: Instant, owed: &UnacknowledgedStop) {
        let UnacknowledgedStop { begin, end } = owed;
        let Some(stop) = end.stop.filter(|_| self.is_accounting_enabled()) else { return };
        let classes: Vec<&[u8]> = begin.classes.iter().map(|class| &class[..]).collect();
        let mut attributes = AttributeList::new();
        attributes.push_u32(kind::FRAMED_PROTOCOL, 1);
        let between = |from: WallTime, to: WallTime| {
            Duration::from_secs(to.unix_secs().saturating_sub(from.unix_secs()))
        };
        let suffix = usher_access::fallback_user_name(b"", &fallback_session_user_name(&begin.session));
        let station = begin.station.to_uppercase().replace(':', "-");
        let record = AccountingRecord {
            name: begin.user.as_bytes().strip_suffix(&suffix[..]).unwrap_or(begin.user.as_bytes()),
            port: NasPort {
                number: Some(begin.number.into()),
                id: Some(&begin.port),
                calling_station: Some(&station),
                ..NasPort::default()
            },
            lasted: between(begin.started_at, end.ended_at),
            ago: between(end.ended_at, now.to_wall_time(self.epoch)),
            traffic: stop.packets.map(|(input_packets, output_packets)| SessionTraffic {
                input_octets: end.octets_in,
                output_octets: end.octets_out,
                input_packets,
                output_packets,
            }),
            cause: TerminateCause::from_radius_code(stop.cause).unwrap_or(TerminateCause::NasError),
            classes: &classes,
            framed_ip: begin.ipv4,
            framed_ipv6_prefix: begin.ipv6.first().copied(),
            attributes: Some(&attributes),
            start: usher_access::start_in_session_id(&begin.session),
            ..AccountingRecord::new(AccountingRecordKind::Stop, &begin.session, stop.record)
        };
        self.send_record(now, &record, self.config.logged);
    }

    /// Sends an Interim-Update of a session.
    pub(crate) fn send_interim(&mut self, now: Instant, id: u64) {
        let Some(session) = self.sessions.get_mut(&id) else { return };
        if let Some((every, at)) = &mut session.interim {
            *at = now + *every;
            self.timers.insert(*at, ConcentratorTimer::Interim(id));
        }
        if session.has_sent_start {
            self.account_session(now, id, AccountingRecordKind::Interim);
        }
    }

    fn sessions_matching_request(&self, request: &DynamicRequest) -> Vec<u64> {
        let is_meant = |(id, session): (&u64, &UserSession)| {
            let place = self.nas_port_info(&session.subscriber);
            let link = session.assignment.ipv6.as_ref().and_then(|ipv6| ipv6.prefix);
            let said = SessionIdentity {
                token: session.granted.token,
                names: [&session.granted.login, &session.granted.user],
                port: place.nas_port(),
                session: Some(&session.acct),
                multi_session: None,
                framed_ip: session.ipv4_address(),
                framed_interface_id: None,
                framed_ipv6_prefix: link.map(|link| (link.address(), link.prefix_length())),
            };
            request.is_about(&said).then_some(*id)
        };
        self.sessions.iter().filter_map(is_meant).collect()
    }

    /// Handles a dynamic authorization request. It applies to all selected sessions or to none.
    pub(crate) fn handle_dynamic_request(&mut self, now: Instant, request: &DynamicRequest) {
        let meant = self.sessions_matching_request(request);
        let unknown = || {
            let all = request.content.filter_ids();
            let known = |name: &str| self.config.rates.iter().any(|rate| rate.name == name);
            all.into_iter().any(|name| !known(name))
        };
        let of_vendors = request.content.bandwidth() != (None, None);
        let answer = match request.kind {
            // RFC 5176, 3: a request about no session is refused.
            _ if meant.is_empty() => Err(ErrorCause::SessionContextNotFound),
            DynamicRequestKind::Disconnect => Ok(()),
            DynamicRequestKind::Change
                if request.changed_attribute_numbers().any(|kind| !CHANGES.contains(&kind)) =>
            {
                Err(ErrorCause::UnsupportedAttribute)
            }
            DynamicRequestKind::Change
                if request.changed_attribute_numbers().any(|n| n == kind::VENDOR_SPECIFIC) && !of_vendors =>
            {
                Err(ErrorCause::UnsupportedAttribute)
            }
            DynamicRequestKind::Change if unknown() => Err(ErrorCause::InvalidAttributeValue),
            DynamicRequestKind::Change => Ok(()),
            // A host reauthenticates when it renegotiates its link, which a concentrator cannot force.
            DynamicRequestKind::Reauthenticate => Err(ErrorCause::AdministrativelyProhibited),
        };
        self.counters.dynamic_refused += u64::from(answer.is_err());
        if let Some(aaa) = &mut self.aaa {
            // The request is still pending in the client, so the answer does not fail.
            let _ = aaa.handle_command(
                now,
                usher_access::AccessClientCommand::AnswerDynamic { token: request.token, answer },
            );
        }
        for id in meant {
            match (request.kind, answer) {
                (DynamicRequestKind::Disconnect, _) | (DynamicRequestKind::Reauthenticate, Err(_)) => {
                    self.counters.sessions_disconnected += 1;
                    self.outputs.push_event(AccessConcentratorEvent::Dynamic { id, end: true });
                    if let Some(session) = self.sessions.get(&id) {
                        self.grace.revoke_user(&session.granted.login);
                    }
                    self.terminate_session(now, id, TerminateCause::AdminReset, "disconnected-by-aaa");
                }
                (DynamicRequestKind::Change, Ok(())) => self.change_authorization(now, id, request),
                _ => {}
            }
        }
    }

    fn change_authorization(&mut self, now: Instant, id: u64, request: &DynamicRequest) {
        let content = &request.content;
        let filters: Vec<String> = content.filter_ids().map(Into::into).collect();
        let (up, down) = content.bandwidth();
        let said = (up.map(u64::from), down.map(u64::from));
        let rates = (!filters.is_empty() || said != (None, None)).then(|| self.select_rates(&filters, said));
        let Some(session) = self.sessions.get_mut(&id) else { return };
        if let Some(lasts) = content.session_timeout() {
            if let Some(before) = session.ends {
                self.timers.remove(before, ConcentratorTimer::SessionEnd(id));
            }
            // RFC 2865, 5.27: Session-Timeout counts from the begin of the session.
            let lasts = nonzero_limit(Some(lasts)).or(self.config.limits.session_timeout);
            session.ends = lasts.map(|lasts| (session.since + lasts).max(now));
            if let Some(end) = session.ends {
                self.timers.insert(end, ConcentratorTimer::SessionEnd(id));
            }
            // The session may have been overdue, in its grace time. It has a new end now, so the old cause no longer
            // applies.
            session.cause = None;
        }
        if let Some(idle) = content.idle_timeout().filter(|_| self.config.metered) {
            if let Some(before) = session.idle {
                self.timers.remove(session.busy + before, ConcentratorTimer::Idle(id));
            }
            session.idle = nonzero_limit(Some(idle)).or(self.config.limits.idle_timeout);
            if let Some(idle) = session.idle {
                self.timers.insert(session.busy + idle, ConcentratorTimer::Idle(id));
            }
        }
        if let Some(every) = content.interim_interval().filter(|every| !every.is_zero()) {
            if let Some((_, before)) = session.interim {
                self.timers.remove(before, ConcentratorTimer::Interim(id));
            }
            session.interim = Some((every, now + every));
            self.timers.insert(now + every, ConcentratorTimer::Interim(id));
        }
        if let Some(rates) = rates {
            session.rates = rates;
            self.update_data_plane(id);
        }
        self.counters.sessions_changed += 1;
        self.outputs.push_event(AccessConcentratorEvent::Dynamic { id, end: false });
    }
}
