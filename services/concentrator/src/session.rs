//! Sessions of users: their limits, their networks, their usage, and their end.

use crate::api::{AccessConcentratorEvent, ConcentratorJob, PppoeSessionSelector};
use crate::host::{
    HostSession, SessionUsage, display_octets, fallback_session_user_name, subscriber_station_key,
};
use crate::login::accept_reply;
use crate::service::AccessConcentrator;
use crate::status::SessionStatus;
use crate::track::{AccountingStop, SessionEnd, SessionLogRecord, SessionStart};
use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::net::IpAddr;
use usher_access::{
    LoginFailure, NewSubscriberSession, SessionTraffic, SubscriberGrant, SubscriberSession, TerminateCause,
};
use usher_core::{Instant, JobRequest, LinkLayerPortId};
use usher_ppp::concentrator::{
    AuthenticationReply, ConcentratorCommand, ExcessSessionPolicy, PppoeSessionId, SubscriberInfo,
};
use usher_ppp::pppoe::MacAddress;
use usher_ppp::{AddressFamily, NegotiatedAddresses};

/// True if `name` is the session's user, station, Acct-Session-Id or address.
fn is_called(session: &SubscriberSession<HostSession>, name: &str) -> bool {
    let host = &session.access;
    let has = |address: IpAddr| match address {
        IpAddr::V4(v4) => host.ipv4_address() == Some(v4),
        IpAddr::V6(v6) => host.ipv6_prefixes().iter().any(|(prefix, bits)| {
            let shift = 128 - u32::from(*bits);
            (prefix.to_bits() ^ v6.to_bits()).checked_shr(shift).unwrap_or(0) == 0
        }),
    };
    session.grant.user == name.as_bytes()
        || session.acct_session_id() == name
        || host.subscriber.address.to_string().eq_ignore_ascii_case(name)
        || name.parse().is_ok_and(has)
}

impl AccessConcentrator {
    /// Opens a session of a user: assigns its addresses and logs it. Returns the grant if that fails.
    pub(crate) fn open_session(
        &mut self,
        now: Instant,
        wire: PppoeSessionId,
        mut grant: Box<SubscriberGrant>,
        message: Vec<u8>,
    ) -> Result<(), (LoginFailure, Box<SubscriberGrant>)> {
        let Some(host) = self.attached.get_mut(&wire) else { return Ok(()) };
        let (subscriber, place) = (host.subscriber.clone(), host.place.clone().unwrap_or_default());
        let (id, acct) = self.subscribers.allocate_session();
        if grant.is_nameless {
            grant.user = usher_access::fallback_user_name(&grant.login, &fallback_session_user_name(&acct));
        }
        if let Err(why) = self.enforce_session_limit(now, &subscriber, &grant.user) {
            return Err((why, grant));
        }
        self.take_back(now, &subscriber, &grant);
        let (assignment, leases) = match self.assign_addresses(id, &grant) {
            Ok(assigned) => assigned,
            Err(why) => return Err((why, grant)),
        };
        self.current.insert(wire, id);
        self.numbers.insert(subscriber.number, id);
        let reply = accept_reply(message, assignment.clone());
        let session = HostSession {
            wire,
            subscriber,
            reply: None,
            networks: BTreeMap::new(),
            mtu: 0,
            is_installed: false,
            usage: SessionUsage::default(),
            usage_before: SessionUsage::default(),
            end_reason: String::new(),
            assignment,
        };
        let addresses = HostSession::subscriber_addresses(&session.assignment);
        let new = NewSubscriberSession {
            grant: *grant,
            place,
            addresses,
            leases,
            is_accounted: true,
            access: session,
        };
        self.subscribers.open_session(now, id, new);
        if !self.config.logged {
            self.let_in(now, id, reply);
            return Ok(());
        }
        let token = self.allocate_token();
        self.writing.insert(token, id);
        if let Some(session) = self.subscribers.session_mut(id) {
            session.awaits_log = true;
            session.access.reply = Some(reply);
        }
        if let Some(session) = self.subscribers.session(id) {
            let record = SessionLogRecord::session_started(self.begin_record(session));
            self.outputs.push_job(JobRequest::new(token, ConcentratorJob::Log(Box::new(record))));
        }
        Ok(())
    }

    /// True if the user may open another session. Ends the oldest if the policy says so.
    fn enforce_session_limit(
        &mut self,
        now: Instant,
        subscriber: &SubscriberInfo,
        user: &[u8],
    ) -> Result<(), LoginFailure> {
        let limits = self.config.limits;
        if limits.sessions_per_user == 0 {
            return Ok(());
        }
        let station = subscriber_station_key(subscriber);
        loop {
            let ids = self.subscribers.sessions_of_user(user);
            if ids.len() < limits.sessions_per_user {
                return Ok(());
            }
            // After a power loss, a host returns before its dead session is detected. So its own session is replaced,
            // even if the policy is to refuse.
            match limits.excess {
                ExcessSessionPolicy::Replace => {
                    let Some(oldest) = ids.first().copied() else { return Ok(()) };
                    self.counters.users_replaced += 1;
                    self.terminate_session(now, oldest, TerminateCause::UserRequest, "replaced");
                }
                ExcessSessionPolicy::Refuse => {
                    let own = ids.into_iter().find(|id| self.station_of_session(*id) == Some(station));
                    let own = own.ok_or(LoginFailure::TooManySessions)?;
                    self.counters.hosts_replaced += 1;
                    self.terminate_session(now, own, TerminateCause::LostCarrier, "replaced");
                }
            }
        }
    }
    fn station_of_session(&self, id: u64) -> Option<(LinkLayerPortId, MacAddress)> {
        self.subscribers.session(id).map(|session| subscriber_station_key(&session.access.subscriber))
    }

    /// Ends the host's own old session if it has the addresses that the AAA server assigns. After a power loss a host
    /// returns before its dead session is detected.
    fn take_back(&mut self, now: Instant, subscriber: &SubscriberInfo, grant: &SubscriberGrant) {
        for id in self.conflicting_sessions(grant) {
            if self.station_of_session(id) == Some(subscriber_station_key(subscriber)) {
                self.counters.hosts_replaced += 1;
                self.terminate_session(now, id, TerminateCause::LostCarrier, "replaced");
            }
        }
    }

    fn begin_record(&self, session: &SubscriberSession<HostSession>) -> SessionStart {
        let host = &session.access;
        let ipv4 = host.ipv4_address();
        SessionStart {
            started_at: session.since().to_wall_time(self.epoch),
            session: session.acct_session_id().into(),
            user: display_octets(&session.grant.user),
            station: host.subscriber.address.to_string(),
            port: session.place().port.clone(),
            number: host.subscriber.number,
            circuit: host.subscriber.circuit_id.as_deref().map(display_octets),
            ipv4,
            block: ipv4.and_then(|inner| self.config.blocks.as_ref()?.port_block_of_host(inner)),
            ipv6: host.ipv6_prefixes(),
            classes: session.grant.classes.clone(),
        }
    }

    /// Handles the result of a session's log record.
    pub(crate) fn handle_session_log_result(&mut self, now: Instant, token: u64, kept: bool) {
        let Some(id) = self.writing.remove(&token) else { return };
        let Some(session) = self.subscribers.any_session_mut(id) else { return };
        session.awaits_log = false;
        if session.ended_at().is_some() {
            return self.close_session(now, id);
        }
        match session.access.reply.take().filter(|_| kept) {
            Some(reply) => self.let_in(now, id, reply),
            None => {
                let (session_id, subscriber) = (session.access.wire, session.access.subscriber.clone());
                let user = session.grant.user.clone();
                self.counters.not_logged += 1;
                self.finish_session(now, id, TerminateCause::NasError, "not-logged");
                let why = LoginFailure::NotLogged;
                self.outputs.push_event(AccessConcentratorEvent::LoginFailed { subscriber, user, why });
                let answer = AuthenticationReply::Unanswered;
                self.send_ppp_command(now, ConcentratorCommand::Answer { session: session_id, answer });
            }
        }
    }

    fn let_in(&mut self, now: Instant, id: u64, answer: AuthenticationReply) {
        let Some(session) = self.subscribers.session(id) else { return };
        let wire = session.access.wire;
        self.counters.logins_accepted += 1;
        let status = Box::new(self.session_status(now, id, session));
        self.outputs.push_event(AccessConcentratorEvent::LoginAccepted(status));
        self.send_ppp_command(now, ConcentratorCommand::Answer { session: wire, answer });
    }

    /// Returns the host of a PPPoE session's user, and its session's number.
    fn host_mut(&mut self, wire: PppoeSessionId) -> Option<(u64, &mut HostSession)> {
        let id = self.current.get(&wire).copied()?;
        self.subscribers.session_mut(id).map(|session| (id, &mut session.access))
    }

    /// Handles a network of a session that has come up.
    pub(crate) fn handle_network_up(
        &mut self,
        now: Instant,
        wire: PppoeSessionId,
        mtu: u16,
        network: NegotiatedAddresses,
    ) {
        let Some((id, host)) = self.host_mut(wire) else { return };
        host.networks.insert(network.family(), network);
        host.mtu = mtu;
        self.update_data_plane(id);
        self.subscribers.start_accounting(now, id);
    }

    /// Sends the session's entry to the data plane.
    pub(crate) fn update_data_plane(&mut self, id: u64) {
        let clamp = self.config.limits.clamp_mss;
        let Some(session) = self.subscribers.session_mut(id) else { return };
        let rates = session.rates;
        let host = &mut session.access;
        if host.networks.is_empty() {
            return;
        }
        host.is_installed = true;
        let entry = Box::new(host.to_data_plane_entry(id, rates, clamp));
        self.outputs.push_event(AccessConcentratorEvent::Install(entry));
    }

    /// Handles a network of a session that has gone down.
    pub(crate) fn remove_network(&mut self, wire: PppoeSessionId, family: AddressFamily) {
        let Some((id, host)) = self.host_mut(wire) else { return };
        host.networks.remove(&family);
        if host.networks.is_empty() {
            self.remove_from_data_plane(id);
        } else {
            self.update_data_plane(id);
        }
    }

    fn remove_from_data_plane(&mut self, id: u64) {
        let is_metered = self.subscribers.config().is_metered;
        let Some(session) = self.subscribers.session_mut(id) else { return };
        let host = &mut session.access;
        if !core::mem::replace(&mut host.is_installed, false) {
            return;
        }
        host.networks.clear();
        session.awaits_traffic = is_metered;
        let number = host.subscriber.number;
        self.outputs.push_event(AccessConcentratorEvent::Remove { id, number });
    }

    /// Raises the MTU after a long test packet has passed.
    pub(crate) fn raise_mtu(&mut self, wire: PppoeSessionId, mtu: u16) {
        let Some((id, host)) = self.host_mut(wire) else { return };
        host.mtu = mtu;
        self.update_data_plane(id);
    }

    /// Records the usage of a session since its installation.
    pub(crate) fn record_usage(&mut self, now: Instant, id: u64, usage: &SessionUsage) {
        let Some(session) = self.subscribers.any_session_mut(id) else { return };
        let host = &mut session.access;
        let usage = host.usage_before.combine_counters(*usage, u64::saturating_add);
        let new = usage.combine_counters(core::mem::replace(&mut host.usage, usage), u64::saturating_sub);
        let traffic = SessionTraffic {
            input_octets: new.octets_in,
            output_octets: new.octets_out,
            input_packets: new.packets_in,
            output_packets: new.packets_out,
        };
        self.subscribers.add_traffic(now, id, traffic);
        let counters = &mut self.counters;
        counters.octets_in += new.octets_in;
        counters.octets_out += new.octets_out;
        counters.packets_in += new.packets_in;
        counters.packets_out += new.packets_out;
        counters.spoofed += new.spoofed;
        counters.limited += new.limited;
    }

    /// Handles the removal of a session from the data plane, with its final usage.
    pub(crate) fn handle_data_plane_removal(&mut self, now: Instant, id: u64, usage: Option<&SessionUsage>) {
        if let Some(usage) = usage {
            self.record_usage(now, id, usage);
        }
        let Some(session) = self.subscribers.any_session_mut(id) else { return };
        session.access.usage_before = session.access.usage;
        session.awaits_traffic = false;
        self.close_session(now, id);
    }

    /// Handles a session that the data plane could not install.
    pub(crate) fn not_installed(&mut self, now: Instant, id: u64) {
        if self.subscribers.session(id).is_some() {
            self.counters.not_installed += 1;
            self.terminate_session(now, id, TerminateCause::NasError, "not-installed");
        }
    }

    /// Ends a session from this side.
    pub(crate) fn terminate_session(&mut self, now: Instant, id: u64, cause: TerminateCause, reason: &str) {
        let Some(session) = self.subscribers.session(id) else { return };
        let wire = session.access.wire;
        self.finish_session(now, id, cause, reason);
        self.send_ppp_command(now, ConcentratorCommand::Close(wire));
    }

    /// Ends the selected sessions. Returns their number.
    pub(crate) fn close_all(&mut self, now: Instant, which: &PppoeSessionSelector) -> usize {
        let meant = |(id, session): (&u64, &SubscriberSession<HostSession>)| match which {
            PppoeSessionSelector::All => Some(*id),
            PppoeSessionSelector::Session(n) => (id == n).then_some(*id),
            PppoeSessionSelector::Named(name) => is_called(session, name).then_some(*id),
        };
        let meant: Vec<u64> = self.subscribers.sessions().iter().filter_map(meant).collect();
        for id in &meant {
            self.terminate_session(now, *id, TerminateCause::AdminReset, "disconnected");
        }
        meant.len()
    }

    /// Finishes a session: removes it from the data plane and frees its addresses.
    pub(crate) fn finish_session(&mut self, now: Instant, id: u64, cause: TerminateCause, reason: &str) {
        self.remove_from_data_plane(id);
        let Some(session) = self.subscribers.session_mut(id) else { return };
        let host = &mut session.access;
        host.end_reason = reason.to_string();
        self.current.remove(&host.wire);
        if self.numbers.get(&host.subscriber.number) == Some(&id) {
            self.numbers.remove(&host.subscriber.number);
        }
        self.subscribers.end_session(now, id, cause);
        self.close_session(now, id);
    }

    /// Reports the end of a session, once its usage is known and its begin is logged.
    pub(crate) fn close_session(&mut self, now: Instant, id: u64) {
        let Some(mut session) = self.subscribers.take_closed_session(id) else { return };
        // The log marks the Stop as unacknowledged before it is sent. This is done even if the write of the begin
        // failed, since the begin may be on disk.
        if self.config.logged {
            let SessionUsage { octets_in, octets_out, packets_in, packets_out, .. } = session.access.usage;
            let packets = self.subscribers.config().is_metered.then_some((packets_in, packets_out));
            let (cause, record) = (session.cause().radius_code(), session.next_record_number());
            let stop = AccountingStop { cause, record, packets };
            let is_accounted = session.has_sent_start() && self.subscribers.is_accounting_enabled();
            self.log(SessionLogRecord::session_ended(SessionEnd {
                ended_at: session.ended_at().unwrap_or(now).to_wall_time(self.epoch),
                session: session.acct_session_id().into(),
                reason: session.access.end_reason.clone(),
                octets_in,
                octets_out,
                stop: is_accounted.then_some(stop),
            }));
        }
        self.subscribers.stop_accounting(now, &mut session);
        let status = Box::new(self.session_status(now, id, &session));
        let reason = session.access.end_reason;
        self.outputs.push_event(AccessConcentratorEvent::Ended { status, reason });
    }

    pub(crate) fn session_status(
        &self,
        now: Instant,
        id: u64,
        session: &SubscriberSession<HostSession>,
    ) -> SessionStatus {
        let host = &session.access;
        SessionStatus {
            id,
            user: display_octets(&session.grant.user),
            session: session.acct_session_id().into(),
            port: session.place().port.clone(),
            station: host.subscriber.address.to_string(),
            number: host.subscriber.number,
            lasted: session.duration(now),
            mtu: host.mtu,
            ipv4: host.ipv4_address(),
            ipv6: host.ipv6_prefixes(),
            rate_up: session.rates.0,
            rate_down: session.rates.1,
            usage: host.usage,
        }
    }
}
