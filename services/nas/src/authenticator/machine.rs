//! The authenticator's machine.

use super::admitted_stations::{AdmittedSession, match_stations};
use super::keyings::PkmKeyExchangeTable;
use super::lifetime::{AuthorizationChange, SessionLifetime};
use super::ports::{StationStatus, StationStatusTable};
use super::session::{EapSession, read_identity};
use super::{
    AuthenticationResult, AuthenticatorCommand, AuthenticatorConfig, AuthenticatorCounters,
    AuthenticatorEvent, ConfigError, FailReason, SessionEndCause,
};
use crate::frame::{self, AccessMedium, FrameDropReason, StationFrame};
use crate::record::StationAccountingRecord;
use crate::station_id::StationId;
use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use usher_access::{
    AaaRequestFailure, AccessClient, AccessReply, AccessRequest, AccountingRecordKind, DynamicRequest,
    DynamicRequestKind, ErrorCause, FramedAddress, LoginRoundState, TerminateCause, UserCredentials,
};
use usher_core::collections::hash_state;
use usher_core::table::SessionTable;
use usher_core::timer::TimerQueue;
use usher_core::{
    ChildMachine, CommandError, Duration, Instant, LinkLayerPortId, Machine, MachineInput, MachineOutputOf,
    NoJob, OutputQueue, SecureRng, Transmit, WallTime, WorkRecord,
};
use usher_crypto::SecretValue;
use usher_eap::authenticator::{AaaReply, EapAuthenticator, EapConversationOutcome};
use usher_pkm::eap::BaseStationEapSide;
use usher_pkm::keying;
use usher_pkm::keys::AuthorizationKey;

/// An authenticator; see the [module](super).
#[derive(Debug)]
pub struct NasAuthenticator {
    config: AuthenticatorConfig,
    aaa: ChildMachine<AccessClient>,
    ports: StationStatusTable,
    sessions: SessionTable<EapSession>,
    keyings: PkmKeyExchangeTable,
    /// Admitted stations that the AAA server may address.
    admitted: BTreeMap<StationId, AdmittedSession>,
    /// State to return to the AAA server at a station's reauthentication.
    reauth_continuations: BTreeMap<StationId, LoginRoundState>,
    /// Pending accounting records: the host's tokens by the AAA client's.
    records: BTreeMap<u64, u64>,
    next_record: u64,
    /// Retransmissions to stations, by session.
    resend: TimerQueue<u64>,
    outputs: OutputQueue<AuthenticatorEvent>,
    counters: AuthenticatorCounters,
    rng: SecureRng,
    /// Buffer for the EAP packet of a reply.
    eap: Vec<u8>,
}

impl NasAuthenticator {
    /// Creates an authenticator. `rng` draws EAP identifiers and the random values of the AAA client.
    ///
    /// # Errors
    /// The configuration is invalid.
    pub fn new(config: AuthenticatorConfig, mut rng: SecureRng) -> Result<Self, ConfigError> {
        if config.max_sessions == 0 {
            return Err(ConfigError::NoSessions);
        }
        let aaa = AccessClient::new(
            config.nas.clone(),
            config.aaa.clone(),
            SecureRng::from_seed(rng.random_array()),
        )?;
        Ok(Self {
            aaa: ChildMachine::without_slot(aaa),
            admitted: BTreeMap::new(),
            reauth_continuations: BTreeMap::new(),
            ports: StationStatusTable::new(hash_state(&mut rng)),
            sessions: SessionTable::new(),
            keyings: PkmKeyExchangeTable::default(),
            records: BTreeMap::new(),
            next_record: 0,
            resend: TimerQueue::new(),
            outputs: OutputQueue::default(),
            counters: AuthenticatorCounters::default(),
            eap: Vec::new(),
            config,
            rng,
        })
    }
    /// Returns the counters.
    #[must_use]
    pub const fn counters(&self) -> &AuthenticatorCounters {
        &self.counters
    }
    /// Returns the RADIUS client's counters, if RADIUS is configured.
    #[must_use]
    pub fn radius_counters(&self) -> Option<&usher_radius::client::RadiusClientCounters> {
        self.aaa.radius_counters()
    }
    /// Returns the sum of the Diameter nodes' counters, removed nodes included, if Diameter is configured.
    #[must_use]
    pub fn diameter_counters(&self) -> Option<usher_diameter::node::DiameterNodeCounters> {
        self.aaa.diameter_counters()
    }
    /// Returns the counters of key exchanges.
    #[must_use]
    pub fn keying_counters(&self) -> keying::KeyingCounters {
        self.keyings.counters()
    }
    /// Takes back the reply of [`AuthenticatorEvent::Authenticated`] to reuse its memory for the next request.
    pub fn recycle_reply(&mut self, reply: AccessReply) {
        self.aaa.recycle_reply(reply);
    }
    /// Returns the number of sessions in progress.
    #[must_use]
    pub fn active_session_count(&self) -> usize {
        self.sessions.len()
    }

    fn start_session(
        &mut self,
        now: Instant,
        station: StationId,
        pkm: BaseStationEapSide,
        identity: Option<Vec<u8>>,
    ) -> Result<(), CommandError> {
        // An admitted station stays admitted until the new decision, but not beyond the end of its session.
        let (mut until, mut unsaid) = (None, None);
        match self.ports.get(station) {
            Some(StationStatus::Running(token, before)) => {
                self.counters.restarted += 1;
                until = before;
                let session = self.drop_session(now, token);
                unsaid = session.filter(|s| s.rounds == 0).map(|s| s.next);
            }
            Some(StationStatus::In(before)) => until = before,
            Some(StationStatus::ReauthenticateAt(at)) => until = Some(at.max(now) + REAUTH_TIMEOUT),
            Some(StationStatus::Quiet(until)) if until > now => {
                self.counters.quiet += 1;
                return Err(CommandError::WrongState("the station was rejected a moment ago"));
            }
            _ => {}
        }
        if self.sessions.len() >= self.config.max_sessions {
            self.counters.full += 1;
            return Err(CommandError::Full("sessions in progress"));
        }
        self.counters.sessions += 1;
        self.keyings.remove(station);
        let next = self.reauth_continuations.remove(&station).or(unsaid).unwrap_or_default();
        let first = self.rng.next_u32() as u8;
        let policy = self.config.retransmission;
        // Even without retransmission EAP needs no timeout of its own, since sessions that are too old end.
        let patience = Duration::MAX;
        let session = match identity {
            None => {
                let eap = EapAuthenticator::new(first, policy, patience, now);
                EapSession::new(station, Vec::new(), pkm, next, eap)
            }
            Some(name) => {
                let eap = EapAuthenticator::with_identity(&name, first, policy, patience, now);
                EapSession::new(station, name, pkm, next, eap)
            }
        };
        let token = self.sessions.insert(now, session);
        self.ports.set_status(station, StationStatus::Running(token, until));
        self.drain_session(now, token);
        Ok(())
    }

    /// Removes a session without an event.
    fn drop_session(&mut self, now: Instant, token: u64) -> Option<EapSession> {
        let session = self.sessions.remove(token)?;
        if let Some(at) = session.resend_at {
            self.resend.remove(at, token);
        }
        // The client knows every pending request, so the command does not fail.
        let _ = self.aaa.handle_command(now, usher_access::AccessClientCommand::Cancel { token });
        Some(session)
    }

    /// Drains a session's state machine: sends its request or packet and arms its timer.
    fn drain_session(&mut self, now: Instant, token: u64) {
        let Some(session) = self.sessions.get_mut(token) else { return };
        let mut refused = false;
        if let Some(response) = session.eap.poll_aaa() {
            if session.rounds == 0 && session.name.is_empty() {
                session.name = read_identity(response);
            }
            let (name, proof, continues) =
                (&session.name, UserCredentials::Eap(response), Some(&session.next));
            session.is_request_pending = session.station.with_port(|port| {
                let request = AccessRequest { port, continues, ..AccessRequest::new(name, proof) };
                self.aaa.send_request(now, token, &request).is_ok()
            });
            session.rounds = session.rounds.saturating_add(1);
            refused = !session.is_request_pending;
        }
        if let Some(packet) = session.eap.poll_transmit() {
            let to = (session.station, session.pkm);
            send_packet(&mut self.outputs, &self.config, to, packet);
        }
        if self.config.retransmission.is_some() {
            let due = session.eap.poll_timeout();
            if due != session.resend_at {
                if let Some(at) = session.resend_at {
                    self.resend.remove(at, token);
                }
                if let Some(at) = due {
                    self.resend.insert(at, token);
                }
                session.resend_at = due;
            }
        }
        if refused {
            self.fail_session(now, token, FailReason::AaaUnavailable, true);
        }
    }

    fn handle_eap(
        &mut self,
        now: Instant,
        station: StationId,
        pkm: BaseStationEapSide,
        packet: &[u8],
    ) -> Result<(), CommandError> {
        let Some(StationStatus::Running(token, _)) = self.ports.get(station) else {
            self.counters.no_session += 1;
            return Err(CommandError::UnknownToken);
        };
        let Some(session) = self.sessions.get_mut(token) else { return Ok(()) };
        session.pkm = pkm;
        if session.eap.handle_packet(now, packet) {
            self.sessions.touch(now, token);
            self.drain_session(now, token);
        } else {
            self.counters.bad_eap += 1;
        }
        Ok(())
    }

    /// Handles events of the AAA client.
    fn drain_aaa(&mut self, now: Instant) {
        while let Some(event) = self.outputs.next_event(&mut self.aaa) {
            match event {
                usher_access::AccessClientEvent::Challenge { token, reply } => {
                    self.handle_challenge(now, token, reply)
                }
                usher_access::AccessClientEvent::Accept { token, reply } => {
                    self.handle_accept(now, token, reply)
                }
                usher_access::AccessClientEvent::Reject { token, reply } => {
                    self.handle_reject(now, token, reply)
                }
                usher_access::AccessClientEvent::Accounted { token, result: kept } => {
                    self.finish_accounting_record(token, kept.is_ok())
                }
                usher_access::AccessClientEvent::Peer { peer, up } => {
                    self.outputs.push_event(AuthenticatorEvent::DiameterPeer { peer, up })
                }
                usher_access::AccessClientEvent::Dynamic(request) => {
                    self.handle_dynamic_request(now, &request)
                }
                // The AAA client itself fails over to another server, so this event needs no action.
                usher_access::AccessClientEvent::Server { .. } => {}
                usher_access::AccessClientEvent::Failed { token, failure } => {
                    let reason = match failure {
                        AaaRequestFailure::Timeout => FailReason::AaaTimeout,
                        AaaRequestFailure::Unavailable
                        | AaaRequestFailure::ConnectionLost
                        | AaaRequestFailure::Fault(_) => FailReason::AaaUnavailable,
                        AaaRequestFailure::BadAnswer => FailReason::AaaProtocol,
                    };
                    // RFC 3579, 2.1: no EAP-Failure as the result of a timeout.
                    let last_word = reason == FailReason::AaaProtocol || self.config.canned_failure;
                    if let Some(session) = self.sessions.get_mut(token) {
                        session.is_request_pending = false;
                        self.fail_session(now, token, reason, last_word);
                    }
                }
            }
        }
    }

    /// Handles a dynamic authorization request (RFC 5176). It applies to all addressed stations or to none.
    fn handle_dynamic_request(&mut self, now: Instant, request: &DynamicRequest) {
        let stations = match_stations(&self.admitted, request);
        let planned = match AuthorizationChange::from_request(request) {
            _ if stations.is_empty() => Err(ErrorCause::SessionContextNotFound),
            Err(cause) => Err(cause),
            Ok(change) => {
                let plan = |&station| {
                    Ok((station, self.status_after_dynamic_request(now, request.kind, station, &change)?))
                };
                let all: Result<Vec<_>, _> = stations.iter().map(plan).collect();
                all.map(|all| (all, change.state))
            }
        };
        // RFC 6733, 8.1: answer an Abort-Session-Request before the Session-Termination-Request. The request is still
        // pending.
        let answer = planned.as_ref().map_or_else(|cause| Err(*cause), |_| Ok(()));
        let command = usher_access::AccessClientCommand::AnswerDynamic { token: request.token, answer };
        let _ = self.aaa.handle_command(now, command);
        let Ok((planned, state)) = planned else {
            // RFC 6733, 8.1: a station that cannot be reauthenticated on request loses its access.
            if request.kind == DynamicRequestKind::Reauthenticate {
                stations.into_iter().for_each(|station| self.disconnect_station(now, station));
            }
            return;
        };
        for (station, status) in planned {
            match request.kind {
                DynamicRequestKind::Disconnect => self.disconnect_station(now, station),
                DynamicRequestKind::Change => {
                    self.counters.changed += 1;
                    if let Some(status) = status {
                        self.ports.set_status(station, status);
                    }
                    match (status, &state) {
                        (Some(StationStatus::In(_)), _) => drop(self.reauth_continuations.remove(&station)),
                        (_, Some(next)) => drop(self.reauth_continuations.insert(station, next.clone())),
                        _ => {}
                    }
                    self.outputs.push_event(AuthenticatorEvent::Changed { station });
                }
                DynamicRequestKind::Reauthenticate => match status {
                    // A reauthentication is in progress already and satisfies the request.
                    Some(StationStatus::Running(token, until)) => {
                        let latest = now + REAUTH_TIMEOUT;
                        let until = until.map_or(latest, |until| until.min(latest));
                        self.ports.set_status(station, StationStatus::Running(token, Some(until)));
                    }
                    _ => drop(self.reauthenticate_station(now, station)),
                },
            }
        }
    }

    /// Ends a station's access on request of the AAA server.
    fn disconnect_station(&mut self, now: Instant, station: StationId) {
        self.counters.disconnected += 1;
        self.remove_station(now, station, TerminateCause::AdminReset);
        self.outputs.push_event(AuthenticatorEvent::Ended { station, cause: SessionEndCause::Disconnected });
    }

    /// Returns the status of a station after a dynamic request, or why the request fails.
    fn status_after_dynamic_request(
        &mut self,
        now: Instant,
        kind: DynamicRequestKind,
        station: StationId,
        change: &AuthorizationChange,
    ) -> Result<Option<StationStatus>, ErrorCause> {
        let status = self.ports.get(station);
        match (kind, status) {
            (DynamicRequestKind::Disconnect, _) => Ok(None),
            // This station has no status here: the host keeps the times of its own stations.
            (_, None) => Err(ErrorCause::AdministrativelyProhibited),
            (DynamicRequestKind::Change, Some(status)) => {
                change.apply_change_to_status(now, status).map(Some)
            }
            (DynamicRequestKind::Reauthenticate, Some(StationStatus::Running(..))) => Ok(status),
            (DynamicRequestKind::Reauthenticate, _) if self.sessions.len() >= self.config.max_sessions => {
                self.counters.full += 1;
                Err(ErrorCause::ResourcesUnavailable)
            }
            (DynamicRequestKind::Reauthenticate, _) => Ok(status),
        }
    }

    /// Starts a reauthentication. False if there is no room. The station stays admitted until its session's end, but
    /// not longer than the reauthentication may take.
    fn reauthenticate_station(&mut self, now: Instant, station: StationId) -> bool {
        self.counters.reauthentications += 1;
        let latest = now + REAUTH_TIMEOUT;
        match self.ports.get(station) {
            Some(StationStatus::In(Some(until))) if until < latest => {}
            _ => self.ports.set_status(station, StationStatus::ReauthenticateAt(now)),
        }
        self.start_session(now, station, BaseStationEapSide::new(), None).is_ok()
    }

    /// Records when a station's access ends and the action then. False if there is no room.
    fn set_lifetime(&mut self, now: Instant, station: StationId, stay: SessionLifetime) -> bool {
        self.reauth_continuations.remove(&station);
        let status = match &stay.reauthentication {
            Some((after, _)) => StationStatus::ReauthenticateAt(now + *after),
            None => StationStatus::In(stay.ends.map(|after| now + after)),
        };
        let remembered = self.store_status(station, status);
        if remembered && let Some((_, next)) = stay.reauthentication {
            self.reauth_continuations.insert(station, next);
        }
        remembered
    }

    fn send_record(
        &mut self,
        now: Instant,
        token: u64,
        record: &StationAccountingRecord,
    ) -> Result<(), CommandError> {
        let classes: Vec<&[u8]> = record.classes.iter().map(|class| &class[..]).collect();
        record.station.with_port(|port| {
            let record = usher_access::AccountingRecord {
                name: &record.name,
                port,
                lasted: record.lasted,
                traffic: record.traffic,
                cause: record.cause,
                classes: &classes,
                framed_ip: record.framed_ip,
                ..usher_access::AccountingRecord::new(record.kind, &record.session, record.number)
            };
            self.aaa.send_record(now, self.next_record, &record)
        })?;
        // A Stop record may belong to the station's previous session, so it does not set the current one.
        if record.kind != AccountingRecordKind::Stop
            && let Some(admitted) = self.admitted.get_mut(&record.station)
        {
            admitted.session = Some(record.session.clone());
        }
        self.records.insert(self.next_record, token);
        self.next_record += 1;
        self.counters.records += 1;
        Ok(())
    }

    fn finish_accounting_record(&mut self, ours: u64, kept: bool) {
        let Some(token) = self.records.remove(&ours) else { return };
        self.counters.kept += u64::from(kept);
        self.outputs.push_event(AuthenticatorEvent::Accounted { token, is_acknowledged: kept });
    }

    fn handle_challenge(&mut self, now: Instant, token: u64, reply: AccessReply) {
        let Some(session) = self.sessions.get_mut(token) else { return };
        session.is_request_pending = false;
        reply.read_eap(&mut self.eap);
        reply.fill_continuation(&mut session.next);
        self.aaa.recycle_reply(reply);
        if session.apply_challenge(now, &self.eap) {
            self.sessions.touch(now, token);
            self.drain_session(now, token);
        } else {
            self.fail_session(now, token, FailReason::AaaProtocol, true);
        }
    }

    /// Applies the AAA server's decision, emits its event, sends the final packet, and ends the session. The event
    /// precedes EAP-Success, so that the owner can open the port and install the key first.
    fn apply_aaa_decision(
        &mut self,
        now: Instant,
        token: u64,
        success: bool,
        say: impl FnOnce(&mut EapSession) -> AuthenticatorEvent,
    ) -> Option<EapSession> {
        let session = self.sessions.get_mut(token)?;
        session.is_request_pending = false;
        let verdict = if success { AaaReply::Success(&self.eap) } else { AaaReply::Failure(&self.eap) };
        session.eap.handle_aaa_reply(now, verdict);
        self.outputs.push_event(say(session));
        self.drain_session(now, token);
        self.sessions.remove(token)
    }

    fn handle_accept(&mut self, now: Instant, token: u64, reply: AccessReply) {
        let Some(session) = self.sessions.get_mut(token) else {
            return self.terminate_session(now, token, TerminateCause::NasError);
        };
        let (station, rounds) = (session.station, session.rounds);
        let Ok(msk) = reply.msk() else {
            session.is_request_pending = false;
            self.terminate_session(now, token, TerminateCause::NasError);
            return self.fail_session(now, token, FailReason::AaaProtocol, true);
        };
        let key = msk.as_ref().map(|msk| self.derive_key(station, msk));
        reply.read_eap(&mut self.eap);
        let (stay, admitted) = (SessionLifetime::from_reply(&reply), self.admitted_session(token, &reply));
        let say = |session: &mut EapSession| {
            let name = core::mem::take(&mut session.name);
            AuthenticatorEvent::Authenticated(Box::new(AuthenticationResult {
                station,
                name,
                msk,
                reply,
                rounds,
            }))
        };
        let Some(session) = self.apply_aaa_decision(now, token, true, say) else { return };
        self.counters.authenticated += 1;
        let before = self.remove_admitted_session(now, station, TerminateCause::NasRequest);
        let remembered = self.set_lifetime(now, station, stay);
        if let Some(admitted) = admitted {
            self.store_admitted_session(now, station, admitted.merge_previous_session(before), remembered);
        }
        if let (Some(config), StationId::Frame { .. }, AccessMedium::Wimax) =
            (self.config.keying, session.station, self.config.access)
        {
            match key.flatten() {
                Some(key) if self.keyings.len() < self.config.max_stations => {
                    self.outputs.push_work(WorkRecord { label: usher_pkm::work::DERIVE, units: 1 });
                    let base = keying::BaseStationKeying::new(config, key, &mut self.rng, now);
                    self.keyings.insert(session.station, base);
                    self.drain_station_keying(now, session.station);
                }
                _ => self.end_unkeyed_station(now, session.station),
            }
        }
    }

    /// Returns the identifiers of the session that this request admits; `None`: an AAA server cannot address it
    /// later.
    fn admitted_session(&self, token: u64, reply: &AccessReply) -> Option<AdmittedSession> {
        let session = self.sessions.get(token).filter(|_| self.aaa.accepts_dynamic_requests())?;
        let framed_ip = match reply.framed_ip_address() {
            Some(FramedAddress::Address(address)) => Some(address),
            _ => None,
        };
        let names = [session.name.clone(), reply.user_name().unwrap_or_default().to_vec()];
        Some(AdmittedSession { token, names, session: None, framed_ip })
    }

    /// Stores the identifiers of an admitted station, if there is room. Otherwise no server keeps its session.
    fn store_admitted_session(
        &mut self,
        now: Instant,
        station: StationId,
        admitted: AdmittedSession,
        mut remembered: bool,
    ) {
        if matches!(station, StationId::Host(_)) {
            remembered = self.admitted.len() < self.config.max_stations;
            self.counters.not_remembered += u64::from(!remembered);
        }
        if remembered {
            self.admitted.insert(station, admitted);
        } else {
            self.terminate_session(now, admitted.token, TerminateCause::NasError);
        }
    }

    /// Removes and returns the identifiers of a station's session that has ended.
    fn remove_admitted_session(
        &mut self,
        now: Instant,
        station: StationId,
        cause: TerminateCause,
    ) -> Option<AdmittedSession> {
        let admitted = self.admitted.remove(&station)?;
        self.terminate_session(now, admitted.token, cause);
        Some(admitted)
    }

    /// Handles the end of the session that this request admitted, or would have admitted.
    fn terminate_session(&mut self, now: Instant, token: u64, cause: TerminateCause) {
        // The client knows whether a server keeps the session, and does nothing otherwise.
        let _ = self.aaa.handle_command(now, usher_access::AccessClientCommand::Terminate { token, cause });
    }

    /// Derives the authorization key of an admitted station.
    fn derive_key(&self, station: StationId, msk: &SecretValue<[u8; 64]>) -> Option<AuthorizationKey> {
        self.config.keying?;
        Some(AuthorizationKey::new(msk, station.mac_address()?.0, self.config.mac.0, 0))
    }

    fn end_unkeyed_station(&mut self, now: Instant, station: StationId) {
        self.counters.unkeyed += 1;
        self.keyings.remove(station);
        self.ports.remove(station);
        self.remove_admitted_session(now, station, TerminateCause::NasError);
        self.outputs.push_event(AuthenticatorEvent::Ended { station, cause: SessionEndCause::Unkeyed });
    }

    /// Drains a station's key exchange.
    fn drain_station_keying(&mut self, now: Instant, station: StationId) {
        let StationId::Frame { port, mac } = station else { return };
        let Self { keyings, outputs, config, .. } = self;
        let carry =
            |buf: &mut Vec<u8>, message: &[u8]| frame::write_pkm_frame(buf, (mac, config.mac), message);
        match keyings.drain_key_exchange(station, outputs, port, carry) {
            Some(keying::KeyingEvent::Keyed(_)) => {
                self.counters.keyed += 1;
                self.outputs.push_event(AuthenticatorEvent::Keyed { station });
            }
            Some(keying::KeyingEvent::Failed(_)) => self.end_unkeyed_station(now, station),
            None => {}
        }
    }

    fn handle_reject(&mut self, now: Instant, token: u64, reply: AccessReply) {
        reply.read_eap(&mut self.eap);
        self.aaa.recycle_reply(reply);
        let say = |session: &mut EapSession| AuthenticatorEvent::Rejected {
            station: session.station,
            name: core::mem::take(&mut session.name),
        };
        let Some(session) = self.apply_aaa_decision(now, token, false, say) else { return };
        self.counters.rejected += 1;
        self.start_quiet_period(now, session.station);
    }

    fn fail_session(&mut self, now: Instant, token: u64, reason: FailReason, last_word: bool) {
        let Some(session) = self.sessions.get_mut(token) else { return };
        session.give_up(now, reason, last_word);
        self.outputs.push_event(AuthenticatorEvent::Failed { station: session.station, reason });
        self.drain_session(now, token);
        let Some(session) = self.drop_session(now, token) else { return };
        let count = match reason {
            FailReason::StationTimeout => &mut self.counters.station_timeouts,
            FailReason::AaaTimeout => &mut self.counters.aaa_timeouts,
            FailReason::AaaUnavailable => &mut self.counters.aaa_unavailable,
            FailReason::AaaProtocol => &mut self.counters.aaa_protocol,
        };
        *count += 1;
        self.start_quiet_period(now, session.station);
    }

    fn start_quiet_period(&mut self, now: Instant, station: StationId) {
        self.remove_admitted_session(now, station, TerminateCause::NasRequest);
        if self.config.quiet_period.is_zero() {
            self.ports.remove(station);
        } else {
            self.store_status(station, StationStatus::Quiet(now + self.config.quiet_period));
        }
    }

    /// Stores a station's status after its session, if there is room. The host itself remembers its own stations.
    fn store_status(&mut self, station: StationId, status: StationStatus) -> bool {
        self.ports.remove(station);
        if matches!(station, StationId::Host(_)) {
            return false;
        }
        let room = self.ports.remembered_station_count() < self.config.max_stations;
        if room {
            self.ports.set_status(station, status);
        } else {
            self.counters.not_remembered += 1;
        }
        room
    }

    /// Removes a station. True if it was admitted; `None`: it was unknown.
    fn remove_station(&mut self, now: Instant, station: StationId, cause: TerminateCause) -> Option<bool> {
        self.keyings.remove(station);
        self.reauth_continuations.remove(&station);
        let was_admitted = self.remove_admitted_session(now, station, cause).is_some();
        let status = self.ports.remove(station);
        if let Some(StationStatus::Running(token, _)) = status {
            self.drop_session(now, token);
        }
        let was_in = was_admitted || status.is_some_and(StationStatus::is_in);
        (was_in || status.is_some()).then_some(was_in)
    }

    fn handle_frame(&mut self, now: Instant, port: LinkLayerPortId, data: &[u8]) {
        let received = match self.config.access.parse_station_frame(data) {
            Ok(received) => received,
            Err(why) => {
                *match why {
                    FrameDropReason::NotForUs | FrameDropReason::StalePkm => &mut self.counters.not_for_us,
                    FrameDropReason::Malformed => &mut self.counters.malformed,
                    FrameDropReason::UnknownEapol => &mut self.counters.unknown_eapol,
                    FrameDropReason::UnknownPkm => &mut self.counters.unknown_pkm,
                } += 1;
                return;
            }
        };
        let for_us = received.destination == self.config.mac || received.destination == frame::PAE_GROUP;
        if !for_us || received.source.is_group() {
            self.counters.not_for_us += 1;
            return;
        }
        let station = StationId::Frame { port, mac: received.source };
        // The parser counts rejected frames.
        let (said, pkm) = received.body;
        let _ = match said {
            StationFrame::Keying(message) => {
                if self.keyings.handle_message(now, station, message) {
                    self.drain_station_keying(now, station);
                } else {
                    self.counters.unknown_pkm += 1;
                }
                Ok(())
            }
            StationFrame::Eap(packet) => self.handle_eap(now, station, pkm, packet),
            StationFrame::Start => self.start_session(now, station, pkm, None),
            StationFrame::Logoff => {
                if self.remove_station(now, station, TerminateCause::UserRequest) == Some(true) {
                    self.outputs
                        .push_event(AuthenticatorEvent::Ended { station, cause: SessionEndCause::LoggedOff });
                }
                Ok(())
            }
        };
    }

    fn expire_timers(&mut self, now: Instant) {
        while let Some((_, token)) = self.resend.pop_due(now) {
            let Some(session) = self.sessions.get_mut(token) else { continue };
            session.resend_at = None;
            let before = session.eap.retransmission_count();
            session.eap.handle_timeout(now);
            if session.eap.poll_end() == Some(EapConversationOutcome::PeerTimeout) {
                self.fail_session(now, token, FailReason::StationTimeout, false);
            } else {
                self.counters.retransmissions += u64::from(session.eap.retransmission_count() > before);
                self.drain_session(now, token);
            }
        }
        while let Some((token, since)) = self.sessions.oldest_entry() {
            if since + self.config.station_timeout > now {
                break;
            }
            // The AAA client keeps the timeout of its own requests.
            if self.sessions.get(token).is_some_and(|s| s.is_request_pending) {
                self.sessions.touch(now, token);
            } else {
                self.fail_session(now, token, FailReason::StationTimeout, false);
            }
        }
        while let Some(station) = self.keyings.run_next_due_timer(now) {
            self.drain_station_keying(now, station);
        }
        while let Some((station, status)) = self.ports.pop_due(now) {
            match status {
                StationStatus::ReauthenticateAt(_) if self.reauthenticate_station(now, station) => {}
                StationStatus::In(_) | StationStatus::ReauthenticateAt(_) | StationStatus::Running(..) => {
                    if let StationStatus::Running(token, _) = status {
                        self.drop_session(now, token);
                    }
                    self.remove_station(now, station, TerminateCause::SessionTimeout);
                    self.outputs.push_event(AuthenticatorEvent::Ended {
                        station,
                        cause: SessionEndCause::SessionTimeout,
                    });
                }
                StationStatus::Quiet(_) => self.keyings.remove(station),
            }
        }
    }
}

/// Maximum time that a station stays admitted during reauthentication without a proof, even if it restarts
/// repeatedly.
const REAUTH_TIMEOUT: Duration = Duration::from_secs(60);

/// Sends a packet to a station: in a frame, or through the host.
fn send_packet(
    outputs: &mut OutputQueue<AuthenticatorEvent>,
    config: &AuthenticatorConfig,
    (station, pkm): (StationId, BaseStationEapSide),
    packet: &[u8],
) {
    match station {
        StationId::Host(_) => {
            outputs.push_event(AuthenticatorEvent::EapToStation { station, packet: packet.to_vec() })
        }
        StationId::Frame { port, mac } => {
            let mut buf = outputs.take_buffer();
            config.access.write_frame_to_station(&mut buf, (mac, config.mac), pkm, packet);
            outputs.push_transmit(Transmit::Frame { port }, buf);
        }
    }
}

impl Machine for NasAuthenticator {
    type Command = AuthenticatorCommand;
    type Event = AuthenticatorEvent;
    type Job = NoJob;

    fn set_epoch(&mut self, now: Instant, epoch: WallTime) {
        self.aaa.set_epoch(now, epoch);
    }

    fn handle_input(&mut self, now: Instant, input: MachineInput<'_>) {
        match input {
            MachineInput::Frame { port, data } => self.handle_frame(now, port, data),
            MachineInput::Datagram { .. } | MachineInput::Stream { .. } | MachineInput::Message { .. } => {
                self.aaa.handle_input(now, input);
            }
            MachineInput::Timeout => {
                self.aaa.handle_input(now, input);
                self.expire_timers(now);
            }
        }
        self.drain_aaa(now);
    }

    fn handle_command(&mut self, now: Instant, command: AuthenticatorCommand) -> Result<(), CommandError> {
        let done = match command {
            AuthenticatorCommand::StartSession { station, identity } => {
                self.start_session(now, station, BaseStationEapSide::new(), identity)
            }
            AuthenticatorCommand::EapFromStation { station, packet } => {
                self.handle_eap(now, station, BaseStationEapSide::new(), &packet)
            }
            AuthenticatorCommand::RemoveStation { station } => {
                let known = self.remove_station(now, station, TerminateCause::LostCarrier);
                known.map(|_| ()).ok_or(CommandError::UnknownToken)
            }
            AuthenticatorCommand::Account { token, record } => self.send_record(now, token, &record),
            AuthenticatorCommand::Diameter(command) => {
                self.aaa.handle_command(now, usher_access::AccessClientCommand::Diameter(command))
            }
        };
        self.drain_aaa(now);
        done
    }

    fn poll_output(&mut self, buf: &mut Vec<u8>) -> Option<MachineOutputOf<Self>> {
        self.outputs.poll(buf)
    }

    fn poll_timeout(&mut self) -> Option<Instant> {
        let idle = self.sessions.oldest_entry().map(|(_, since)| since + self.config.station_timeout);
        [
            self.aaa.poll_timeout(),
            self.resend.next_deadline(),
            self.ports.next_timeout(),
            self.keyings.next_timeout(),
            idle,
        ]
        .into_iter()
        .flatten()
        .min()
    }
}
