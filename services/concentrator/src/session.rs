//! Sessions of users: their limits, their networks, their usage, and their end.

use crate::addresses::assigned_prefixes;
use crate::login::accept_reply;
use crate::service::{AccessConcentrator, AccessConcentratorEvent, ConcentratorJob, PppoeSessionSelector};
use crate::track::{AccountingStop, SessionEnd, SessionLogRecord, SessionStart};
use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use usher_access::{
    LoginFailure, NewSubscriberSession, SessionTraffic, SubscriberAddresses, SubscriberGrant,
    SubscriberSession, TerminateCause,
};
use usher_core::{Instant, JobRequest, LinkLayerPortId};
use usher_ppp::concentrator::{
    AuthenticationReply, ConcentratorCommand, ExcessSessionPolicy, PppoeSessionId, SubscriberInfo,
};
use usher_ppp::pppoe::MacAddress;
use usher_ppp::{AddressAssignment, AddressFamily, EndReason, NegotiatedAddresses};

/// The limits of sessions.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SessionLimits {
    /// Maximum sessions of a user; zero: unlimited.
    pub sessions_per_user: usize,
    /// Policy for a session beyond the maximum.
    pub excess: ExcessSessionPolicy,
    /// True to clamp the TCP MSS of hosts to the session's MTU.
    pub clamp_mss: bool,
}

/// The usage of a session.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct SessionUsage {
    /// Octets of packets from the host.
    pub octets_in: u64,
    /// Octets of packets to the host.
    pub octets_out: u64,
    /// Packets from the host.
    pub packets_in: u64,
    /// Packets to the host.
    pub packets_out: u64,
    /// Packets of the host with a foreign source address, dropped.
    pub spoofed: u64,
    /// Packets beyond the session's rate, dropped.
    pub limited: u64,
}

impl SessionUsage {
    fn combine_counters(self, other: Self, with: impl Fn(u64, u64) -> u64) -> Self {
        Self {
            octets_in: with(self.octets_in, other.octets_in),
            octets_out: with(self.octets_out, other.octets_out),
            packets_in: with(self.packets_in, other.packets_in),
            packets_out: with(self.packets_out, other.packets_out),
            spoofed: with(self.spoofed, other.spoofed),
            limited: with(self.limited, other.limited),
        }
    }
}

/// A session's entry in the data plane.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SessionEntry {
    /// The session's number at this concentrator, never reused.
    pub id: u64,
    /// SESSION_ID.
    pub number: u16,
    /// The port.
    pub port: LinkLayerPortId,
    /// The host's address at the port.
    pub peer: MacAddress,
    /// Octets of the longest packet.
    pub mtu: u16,
    /// The host's IPv4 address.
    pub ipv4: Option<Ipv4Addr>,
    /// The IPv4 address of this side.
    pub gateway: Option<Ipv4Addr>,
    /// The host's prefixes: valid sources of its packets.
    pub ipv6: Vec<(Ipv6Addr, u8)>,
    /// The host's interface identifier, for its link-local address.
    pub link_local: Option<[u8; 8]>,
    /// Rate from the host, bit/s; `None`: unlimited.
    pub rate_up: Option<u64>,
    /// Rate to the host, bit/s; `None`: unlimited.
    pub rate_down: Option<u64>,
    /// True to clamp the TCP MSS.
    pub clamp_mss: bool,
}

/// The host of a user's session.
#[derive(Debug)]
pub(crate) struct HostSession {
    wire: PppoeSessionId,
    pub(crate) subscriber: SubscriberInfo,
    assignment: AddressAssignment,
    /// The reply that the host gets once the log has stored the session.
    reply: Option<AuthenticationReply>,
    networks: BTreeMap<AddressFamily, NegotiatedAddresses>,
    pub(crate) mtu: u16,
    is_installed: bool,
    pub(crate) usage: SessionUsage,
    /// The usage at the last installation. A data plane counts from zero.
    usage_before: SessionUsage,
    /// The reason of the end.
    end_reason: String,
}

impl HostSession {
    pub(crate) fn ipv4_address(&self) -> Option<Ipv4Addr> {
        self.assignment.ipv4.as_ref().map(|ipv4| ipv4.remote)
    }
    pub(crate) fn ipv6_prefixes(&self) -> Vec<(Ipv6Addr, u8)> {
        assigned_prefixes(&self.assignment).map(|prefix| (prefix.address(), prefix.prefix_length())).collect()
    }
    /// Returns the addresses in records.
    fn subscriber_addresses(assignment: &AddressAssignment) -> SubscriberAddresses {
        let ipv6 = assignment.ipv6.as_ref();
        let pair = |prefix: usher_ppp::Ipv6Prefix| (prefix.address(), prefix.prefix_length());
        SubscriberAddresses {
            ipv4: assignment.ipv4.as_ref().map(|ipv4| ipv4.remote),
            ipv6: ipv6.and_then(|ipv6| ipv6.prefix).map(pair),
            delegated: ipv6.and_then(|ipv6| ipv6.delegated).map(pair),
        }
    }
    fn to_data_plane_entry(
        &self,
        id: u64,
        (rate_up, rate_down): (Option<u64>, Option<u64>),
        clamp_mss: bool,
    ) -> SessionEntry {
        let (mut ipv4, mut gateway, mut ipv6, mut link_local) = (None, None, Vec::new(), None);
        for network in self.networks.values() {
            match network {
                NegotiatedAddresses::Ipv4 { local, remote, .. } => {
                    (ipv4, gateway) = (Some(*remote), Some(*local))
                }
                NegotiatedAddresses::Ipv6 { remote, prefixes, .. } => {
                    ipv6 = prefixes.iter().map(|prefix| (prefix.address(), prefix.prefix_length())).collect();
                    link_local = remote.octets().last_chunk::<8>().copied();
                }
            }
        }
        SessionEntry {
            id,
            number: self.subscriber.number,
            port: self.subscriber.port,
            peer: self.subscriber.address,
            mtu: self.mtu,
            ipv4,
            gateway,
            ipv6,
            link_local,
            rate_up,
            rate_down,
            clamp_mss,
        }
    }
}

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

/// Shows octets as text, with `\xNN` for invalid UTF-8, so that different octets never look the same.
pub(crate) fn display_octets(octets: &[u8]) -> String {
    core::str::from_utf8(octets).map_or_else(|_| octets.escape_ascii().to_string(), ToString::to_string)
}

/// Returns the port and address of a host.
const fn subscriber_station_key(of: &SubscriberInfo) -> (LinkLayerPortId, MacAddress) {
    (of.port, of.address)
}

/// Returns the fallback user name of a session whose AAA server names no user. It is unique to the session.
pub(crate) fn fallback_session_user_name(acct: &str) -> String {
    alloc::format!("session {acct}")
}

/// Returns the Acct-Terminate-Cause of an end (RFC 2866 §5.10).
pub(crate) const fn terminate_cause(reason: EndReason) -> TerminateCause {
    match reason {
        EndReason::Closed => TerminateCause::NasRequest,
        EndReason::PeerClosed | EndReason::Padt | EndReason::Replaced => TerminateCause::UserRequest,
        EndReason::Unreachable | EndReason::Looped => TerminateCause::LostCarrier,
        EndReason::NotConverging
        | EndReason::SetupTimeout
        | EndReason::NoAuthentication
        | EndReason::AuthenticationNotRequested
        | EndReason::AuthenticationFailed
        | EndReason::Refused
        | EndReason::TooLong
        | EndReason::Impostor
        | EndReason::NoNetwork
        | EndReason::Protocol
        | EndReason::Renegotiating
        | EndReason::NoConcentrator => TerminateCause::UserError,
        EndReason::CrowdedOut | EndReason::Unjudged => TerminateCause::NasError,
    }
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
}
