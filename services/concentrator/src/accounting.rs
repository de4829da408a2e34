//! The accounting of sessions of an earlier start.

use crate::host::fallback_session_user_name;
use crate::login::PPP;
use crate::service::AccessConcentrator;
use crate::track::{AccountingStop, SessionEnd, SessionLogRecord, SessionLostByRestart, UnacknowledgedStop};
use alloc::vec::Vec;
use usher_access::{AccountingRecord, AccountingRecordKind, NasPort, SessionTraffic, TerminateCause};
use usher_core::{Duration, Instant, WallTime};
use usher_radius::attribute::{AttributeList, kind};

impl AccessConcentrator {
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
            stop: self.subscribers.is_accounting_enabled().then_some(stop),
        };
        if self.config.logged {
            self.log(SessionLogRecord::session_ended(end.clone()));
        }
        UnacknowledgedStop { begin: lost.begin, end }
    }

    /// Sends the Stop of a session of an earlier start.
    pub(crate) fn account_unacknowledged_stop(&mut self, now: Instant, owed: &UnacknowledgedStop) {
        let UnacknowledgedStop { begin, end } = owed;
        let Some(stop) = end.stop.filter(|_| self.subscribers.is_accounting_enabled()) else { return };
        let classes: Vec<&[u8]> = begin.classes.iter().map(|class| &class[..]).collect();
        let mut attributes = AttributeList::new();
        attributes.push_u32(kind::FRAMED_PROTOCOL, PPP);
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
        self.subscribers.account_earlier_stop(now, &record);
    }
}
