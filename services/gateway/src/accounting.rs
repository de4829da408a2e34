//! Accounting of sessions (RFC 2866), and dynamic authorization (RFC 5176, RFC 6733 §8).

use crate::service::{GatewayEvent, GatewayTimer, IkeGateway};
use crate::session::IkeSession;
use alloc::string::String;
use alloc::vec::Vec;
use core::net::IpAddr;
use usher_access::{
    AccountingRecord, AccountingRecordKind, DynamicRequest, DynamicRequestKind, ErrorCause, NasPort,
    SessionIdentity, SessionTraffic, TerminateCause,
};
use usher_core::{Instant, Machine};
use usher_ike::machine::{self as ike, IkeSaId};
use usher_radius::attribute::kind;

impl IkeGateway {
    /// Sends an accounting record of a session that a peer initiated.
    pub(crate) fn account_session(&mut self, now: Instant, sa: IkeSaId, what: AccountingRecordKind) {
        let Some(session) = self.sessions.remove(&sa) else { return };
        let session = self.send_record(now, session, what);
        self.sessions.insert(sa, session);
    }

    /// Sends an accounting record of a session that is not in the table.
    pub(crate) fn send_record(
        &mut self,
        now: Instant,
        mut session: IkeSession,
        what: AccountingRecordKind,
    ) -> IkeSession {
        if session.initiator || !self.config.aaa.as_ref().is_some_and(|aaa| aaa.accounting) {
            return session;
        }
        let token = self.next_token();
        let Some(aaa) = &mut self.aaa else { return session };
        // RFC 2865, 5.25: each record carries Class unchanged.
        let classes: Vec<&[u8]> = session.granted.classes.iter().map(|class| &class[..]).collect();
        let mut v4 = session.addresses.iter().filter_map(|address| match address {
            IpAddr::V4(v4) => Some(*v4),
            IpAddr::V6(_) => None,
        });
        let mut v6 = session.addresses.iter().filter_map(|address| match address {
            IpAddr::V6(v6) => Some((*v6, 128)),
            IpAddr::V4(_) => None,
        });
        let total = session.total_usage();
        let record = AccountingRecord {
            name: &session.granted.user,
            port: NasPort {
                calling_station: Some(&session.station),
                id: Some(&session.connection),
                ..NasPort::default()
            },
            lasted: session.lasted.unwrap_or(now.duration_since(session.since)),
            traffic: self.config.metered.then_some(SessionTraffic {
                input_octets: total.received.octets,
                output_octets: total.sent.octets,
                input_packets: total.received.packets,
                output_packets: total.sent.packets,
            }),
            cause: session.cause,
            classes: &classes,
            framed_ip: v4.next(),
            framed_ipv6_prefix: v6.next(),
            ..AccountingRecord::new(what, &session.id, session.records)
        };
        let sent = aaa.send_record(now, token, &record).is_ok();
        self.count_record(token, session.id.clone(), sent);
        session.records += u32::from(sent);
        session
    }

    /// Sends Accounting-On: it ends all sessions of an earlier start (RFC 2866 §5.1). Only the first shard sends it.
    /// Diameter has no such message.
    pub(crate) fn send_accounting_on(&mut self, now: Instant) {
        let accounts = self.config.aaa.as_ref().is_some_and(|aaa| aaa.accounting);
        let token = self.next_token();
        let Some(aaa) = self.aaa.as_mut().filter(|aaa| aaa.radius_counters().is_some()) else { return };
        if accounts && self.config.endpoint.shard.number == 0 {
            let name = usher_access::session_id(self.start, 0);
            let sent = aaa
                .send_record(now, token, &AccountingRecord::new(AccountingRecordKind::On, &name, 0))
                .is_ok();
            self.count_record(token, name, sent);
        }
    }

    /// Counts a record that was sent, or that failed.
    fn count_record(&mut self, token: u64, session: String, sent: bool) {
        self.counters.records += 1;
        if sent {
            self.records.insert(token, session);
        } else {
            self.counters.records_lost += 1;
            self.outputs.push_event(GatewayEvent::Unaccounted { session });
        }
    }

    /// Sends an interim record.
    pub(crate) fn send_interim(&mut self, now: Instant, sa: IkeSaId) {
        let Some(session) = self.sessions.get_mut(&sa) else { return };
        if let Some((every, at)) = &mut session.interim {
            *at = now + *every;
            self.timers.insert(*at, GatewayTimer::Interim(sa));
        }
        self.account_session(now, sa, AccountingRecordKind::Interim);
    }

    /// Handles a dynamic authorization request. It applies to all matching sessions or to none.
    pub(crate) fn handle_dynamic_request(&mut self, now: Instant, request: &DynamicRequest) {
        let meant: Vec<IkeSaId> = self
            .sessions
            .iter()
            .filter_map(|(sa, session)| {
                let v6 = session.addresses.iter().find_map(|address| match address {
                    IpAddr::V6(v6) => Some(*v6),
                    IpAddr::V4(_) => None,
                });
                let said = SessionIdentity {
                    token: session.granted.token,
                    names: [&session.granted.user, session.granted.user.as_slice()],
                    port: NasPort {
                        calling_station: Some(&session.station),
                        id: Some(&session.connection),
                        ..NasPort::default()
                    },
                    session: Some(&session.id),
                    framed_ip: session.addresses.iter().find_map(|address| match address {
                        IpAddr::V4(v4) => Some(*v4),
                        IpAddr::V6(_) => None,
                    }),
                    framed_ipv6_prefix: v6.map(|v6| (v6, 128)),
                    ..SessionIdentity::default()
                };
                (!session.initiator && request.is_about(&said)).then_some(*sa)
            })
            .collect();
        let times = [kind::SESSION_TIMEOUT, kind::ACCT_INTERIM_INTERVAL];
        let answer = match request.kind {
            _ if meant.is_empty() => Err(ErrorCause::SessionContextNotFound),
            DynamicRequestKind::Disconnect => Ok(()),
            DynamicRequestKind::Change
                if request.changed_attribute_numbers().any(|kind| !times.contains(&kind)) =>
            {
                Err(ErrorCause::UnsupportedAttribute)
            }
            DynamicRequestKind::Change => Ok(()),
            // A gateway cannot make an initiator reauthenticate (RFC 4478 is not supported).
            DynamicRequestKind::Reauthenticate => Err(ErrorCause::AdministrativelyProhibited),
        };
        self.counters.dynamic_refused += u64::from(answer.is_err());
        if let Some(aaa) = &mut self.aaa {
            // The request has just arrived, so the client knows its token and the answer does not fail.
            let _ = aaa.handle_command(
                now,
                usher_access::AccessClientCommand::AnswerDynamic { token: request.token, answer },
            );
        }
        for sa in meant {
            match (request.kind, answer) {
                (DynamicRequestKind::Disconnect, _) | (DynamicRequestKind::Reauthenticate, Err(_)) => {
                    self.disconnect_session(now, sa)
                }
                (DynamicRequestKind::Change, Ok(())) => self.change_session(now, sa, request),
                _ => {}
            }
        }
    }

    fn disconnect_session(&mut self, now: Instant, sa: IkeSaId) {
        let Some(session) = self.sessions.get_mut(&sa) else { return };
        session.cause = TerminateCause::AdminReset;
        self.counters.sessions_disconnected += 1;
        self.outputs.push_event(GatewayEvent::Dynamic { sa, end: true });
        self.send_ike_command(now, ike::IkeCommand::Delete(sa));
    }

    fn change_session(&mut self, now: Instant, sa: IkeSaId, request: &DynamicRequest) {
        let Some(session) = self.sessions.get_mut(&sa) else { return };
        if let Some(lasts) = request.content.session_timeout() {
            if let Some(before) = session.ends {
                self.timers.remove(before, GatewayTimer::SessionEnd(sa));
            }
            // The timeout counts from the start of the session (RFC 2865 §5.27). Zero means no limit, as at login.
            session.ends = (!lasts.is_zero()).then(|| (session.since + lasts).max(now));
            if let Some(end) = session.ends {
                self.timers.insert(end, GatewayTimer::SessionEnd(sa));
            }
        }
        if let Some(every) = request.content.interim_interval().filter(|every| !every.is_zero()) {
            if let Some((_, before)) = session.interim {
                self.timers.remove(before, GatewayTimer::Interim(sa));
            }
            session.interim = Some((every, now + every));
            self.timers.insert(now + every, GatewayTimer::Interim(sa));
        }
        self.counters.sessions_changed += 1;
        self.outputs.push_event(GatewayEvent::Dynamic { sa, end: false });
    }
}
