//! Access servers, each with a client of its own, and their users.

use super::login::{
    LoginDeferral, LoginResultRecorder, LoginStart, LoginSuccess, LoginTable, PendingLogin, alter_password,
};
use super::radius::LoginAccounting;
use crate::eap::{self, EapConversation, EapConversationStep, EapMethod, LoginCredentials};
use crate::tally::LoginFailure;
use crate::users::UserCredentialTable;
use std::sync::Arc;
use usher_access::{
    AccessClient, AccessClientCommand, AccessClientEvent, AccessReply, AccessRequest, AccountingRecord,
    AccountingRecordKind, ChapResponse, ExpectedServerProof, LoginRoundState, MsChapV2Response, NasPort,
    ServerProofError, SessionTraffic, UserCredentials,
};
use usher_core::timer::{TimerQueue, earliest_deadline};
use usher_core::{ChildMachine, Duration, Instant, Machine, MachineInput, OutputQueue, SecureRng, WallTime};
use usher_diameter::ResultCode;
use usher_diameter::node::{self, DisconnectCause, PeerId};
use usher_eap::peer;

/// The login method of a user.
#[derive(Clone, Debug)]
pub(super) enum LoginMethod {
    Pap,
    Chap,
    MsChapV2,
    Eap(EapMethod),
}

/// The setup of a front.
#[derive(Debug)]
pub(super) struct AaaLoadClientSetup {
    pub(super) clients: Vec<AccessClient>,
    /// True for Diameter clients.
    pub(super) diameter: bool,
    /// Maximum number of concurrent logins of a client.
    pub(super) login_capacity: usize,
    /// True if a client's identifiers may run out for a moment, so that a round waits for one.
    pub(super) scarce: bool,
    /// The login methods; empty for accounting only.
    pub(super) methods: Vec<LoginMethod>,
    pub(super) accounting: Option<LoginAccounting>,
    /// The identity outside an EAP tunnel; `None`: the user's name.
    pub(super) anonymous: Option<Arc<[u8]>>,
}

/// The pending request of a login.
#[derive(Debug)]
enum LoginState {
    /// PAP, CHAP: the reply decides.
    Password,
    /// MS-CHAPv2: the proof that the reply must contain.
    MsChapV2(Box<ExpectedServerProof>),
    /// EAP: the conversation, its continuation, and the packet that waits for an identifier.
    Eap(Box<EapConversation>, LoginRoundState, Option<Vec<u8>>),
    /// Accounting: the number of the pending record, from 0, or of the next record that waits for its time.
    Accounting { record: u32, started_at: Instant },
}

/// The verdict of a reply.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum ReplyVerdict {
    Challenge,
    Accept,
    Reject,
}

/// An access server: a client and its logins.
#[derive(Debug)]
struct AccessServer {
    access: ChildMachine<AccessClient>,
    logins: usize,
    /// True if its server seems reachable.
    up: bool,
    /// True if it is in the list of access servers with possible outputs.
    listed: bool,
}

/// Access servers and their users.
#[derive(Debug)]
pub(super) struct AaaLoadClient {
    setup: AaaLoadClientSetup,
    /// The wall time at [`Instant::ZERO`].
    epoch: WallTime,
    users: Arc<UserCredentialTable>,
    fleet: Vec<AccessServer>,
    /// The next timeout of each access server.
    due: Vec<Instant>,
    /// Access servers with possible outputs, each once.
    busy: Vec<usize>,
    /// The next access server in turn.
    next: usize,
    rng: SecureRng,
    /// Logins with the index of their access server.
    logins: LoginTable<(usize, LoginState)>,
    /// Sessions that wait for their next record, and logins that wait for an identifier.
    timers: TimerQueue<u64>,
    /// Part of every Acct-Session-Id, so that runs differ.
    boot: u32,
    eap_in: Vec<u8>,
    eap_out: Vec<u8>,
}

impl AaaLoadClient {
    pub(super) fn new(
        mut setup: AaaLoadClientSetup,
        users: Arc<UserCredentialTable>,
        mut rng: SecureRng,
    ) -> Self {
        // Each client has a slot, because the number of clients was checked.
        let clients = (0..u16::MAX).zip(std::mem::take(&mut setup.clients));
        let up = !setup.diameter;
        let nas = |(slot, client)| AccessServer {
            access: ChildMachine::new(slot, client),
            logins: 0,
            up,
            listed: false,
        };
        let mut fleet: Vec<AccessServer> = clients.map(nas).collect();
        Self {
            due: fleet.iter_mut().map(|nas| next_timeout(&mut nas.access)).collect(),
            busy: Vec::new(),
            next: 0,
            fleet,
            users,
            boot: rng.next_u32(),
            rng,
            logins: LoginTable::default(),
            timers: TimerQueue::new(),
            eap_in: Vec::new(),
            eap_out: Vec::new(),
            epoch: WallTime::UNIX_EPOCH,
            setup,
        }
    }

    /// Marks a client as having possible outputs.
    fn mark_busy(&mut self, nas: usize) {
        if !core::mem::replace(&mut self.fleet[nas].listed, true) {
            self.busy.push(nas);
        }
    }

    /// Returns the next access server with capacity for a login.
    fn choose_access_server(&mut self) -> Option<usize> {
        let (count, room) = (self.fleet.len(), self.setup.login_capacity);
        let nas = (0..count).map(|i| (self.next + i) % count).find(|&i| self.fleet[i].logins < room)?;
        self.next = (nas + 1) % count;
        Some(nas)
    }

    /// Returns the outer identity of a login's method, if it has a tunnel.
    fn anonymous_identity(&self, start: &LoginStart) -> Option<Arc<[u8]>> {
        match self.setup.methods.get(usize::from(start.method)) {
            Some(LoginMethod::Eap(method)) if method.has_tunnel() => self.setup.anonymous.clone(),
            _ => None,
        }
    }

    /// Returns the Calling-Station-Id: a locally administered address for each user, sent over RADIUS only.
    fn calling_station(&self, user: usize) -> Option<[u8; 17]> {
        if self.setup.diameter {
            return None;
        }
        let mut text = *b"02-00-00-00-00-00";
        for (i, byte) in (user as u32).to_be_bytes().into_iter().enumerate() {
            write_hex_digits(&mut text[6 + 3 * i..8 + 3 * i], byte.into());
        }
        Some(text)
    }

    /// Sends the request with a user's proof.
    fn send_request(
        &mut self,
        now: Instant,
        (nas, token): (usize, u64),
        (user, name): (usize, &[u8]),
        proof: UserCredentials<'_>,
        continues: Option<&LoginRoundState>,
    ) -> Result<(), LoginDeferral> {
        let station = self.calling_station(user);
        let port = nas_port(station.as_ref(), token);
        let request = AccessRequest { port, continues, ..AccessRequest::new(name, proof) };
        let asked =
            self.fleet[nas].access.send_request(now, token, &request).map_err(|_| LoginDeferral::Full);
        self.mark_busy(nas);
        asked
    }

    /// Sends the first request of a login; `None` for accounting only.
    fn send_first_request(
        &mut self,
        now: Instant,
        nas: usize,
        start: &LoginStart,
        token: u64,
    ) -> Option<Result<LoginState, (LoginState, LoginDeferral)>> {
        let users = self.users.clone();
        let (name, right) = users.get(start.user);
        let mut altered = [0; 128];
        let password = if start.wrong { alter_password(right, &mut altered) } else { right };
        let anonymous = self.anonymous_identity(start);
        let outer = anonymous.as_deref().unwrap_or(name);
        let (at, who) = ((nas, token), (start.user, outer));
        let (asked, state) = match self.setup.methods.get(usize::from(start.method))?.clone() {
            LoginMethod::Pap => {
                (self.send_request(now, at, who, UserCredentials::Pap(password), None), LoginState::Password)
            }
            LoginMethod::Chap => {
                let (id, challenge) = (self.rng.next_u32() as u8, self.rng.random_array::<16>());
                let proof = UserCredentials::Chap(ChapResponse::from_password(id, &challenge, password));
                (self.send_request(now, at, who, proof, None), LoginState::Password)
            }
            LoginMethod::MsChapV2 => {
                let (id, ours, peers) =
                    (self.rng.next_u32() as u8, self.rng.random_array(), self.rng.random_array());
                let (response, expected) = MsChapV2Response::from_password(id, ours, peers, name, password);
                let asked = self.send_request(now, at, who, UserCredentials::MsChapV2(response), None);
                (asked, LoginState::MsChapV2(Box::new(expected)))
            }
            LoginMethod::Eap(method) => {
                let rng = SecureRng::from_seed(self.rng.random_array());
                let wall = now.to_wall_time(self.epoch);
                let who = LoginCredentials { number: start.user, outer, name, password, wrong: start.wrong };
                let mut packet = std::mem::take(&mut self.eap_out);
                let conversation = EapConversation::start(&method, who, wall, now, rng, &mut packet);
                let asked =
                    self.send_request(now, at, (start.user, outer), UserCredentials::Eap(&packet), None);
                self.eap_out = packet;
                (asked, LoginState::Eap(Box::new(conversation), LoginRoundState::new(), None))
            }
        };
        Some(match asked {
            Ok(()) => Ok(state),
            Err(not_now) => Err((state, not_now)),
        })
    }

    fn end_pending_login(
        &mut self,
        now: Instant,
        token: u64,
        result: Result<LoginSuccess, LoginFailure>,
        sink: &mut LoginResultRecorder,
    ) {
        if let Some(login) = self.logins.remove(token) {
            self.fleet[login.state.0].logins -= 1;
            sink.record_login_end(now, &login.start, result);
        }
    }

    fn handle_reply(
        &mut self,
        now: Instant,
        token: u64,
        verdict: ReplyVerdict,
        reply: &AccessReply,
        sink: &mut LoginResultRecorder,
    ) {
        let Some(login) = self.logins.get_mut(token) else { return };
        sink.record_answered_request(now, login.requested_at);
        login.rounds += 1;
        if let Some(code) = reply.result_code().filter(|_| verdict == ReplyVerdict::Reject)
            && code != ResultCode::AUTHENTICATION_REJECTED.0
            && code != ResultCode::AUTHORIZATION_REJECTED.0
        {
            sink.record_fault(now, code);
            return self.end_pending_login(now, token, Err(LoginFailure::ServerFault), sink);
        }
        let wrong = login.start.wrong;
        let method = usize::from(login.start.method);
        let result = match &mut login.state.1 {
            LoginState::Accounting { .. } => return,
            LoginState::Password => password_result(verdict),
            LoginState::MsChapV2(expected) => password_result(verdict).and_then(|success| {
                if success == LoginSuccess::Accepted && !wrong {
                    expected.verify_reply(reply).map_err(|error| match error {
                        ServerProofError::Response => LoginFailure::WrongProof,
                        ServerProofError::Keys => LoginFailure::WrongKeys,
                    })?;
                }
                Ok(success)
            }),
            LoginState::Eap(conversation, next, _) => {
                let rounds = login.rounds;
                let Some(LoginMethod::Eap(method)) = self.setup.methods.get(method) else { return };
                let has_eap = reply.read_eap(&mut self.eap_in);
                match verdict {
                    // RFC 3579 §2.6.3: a reject need not contain a packet that the peer accepts.
                    ReplyVerdict::Reject => Ok(LoginSuccess::RejectedAsExpected),
                    _ if !has_eap => Err(LoginFailure::NoEap),
                    ReplyVerdict::Accept => {
                        match conversation.handle_packet(now, &self.eap_in, &mut self.eap_out) {
                            Ok(EapConversationStep::MethodEnded(peer::EapPeerEvent::Success { keys })) => {
                                let sent = reply.mppe_keys().ok().flatten();
                                let sent = sent.as_ref().map(|k| (&k.recv[..], &k.send[..]));
                                eap::compare_session_keys(method, keys.as_ref(), sent)
                                    .map(|()| LoginSuccess::Accepted)
                            }
                            // A success is too early if the EAP method has not ended, whatever else the packet
                            // contains.
                            Ok(_) | Err(_) => Err(LoginFailure::EarlySuccess),
                        }
                    }
                    ReplyVerdict::Challenge if !eap::allows_another_eap_round(rounds) => {
                        Err(LoginFailure::TooManyRounds)
                    }
                    ReplyVerdict::Challenge => {
                        match conversation.handle_packet(now, &self.eap_in, &mut self.eap_out) {
                            Ok(EapConversationStep::Respond) => {
                                reply.fill_continuation(next);
                                login.requested_at = now;
                                return self.respond_to_challenge(now, token, sink);
                            }
                            Ok(EapConversationStep::MethodEnded(_)) => Err(LoginFailure::EapFailed),
                            Err(failure) => Err(failure),
                        }
                    }
                }
            }
        };
        let verdict = match result {
            Ok(LoginSuccess::Accepted) if wrong => Err(LoginFailure::WronglyAccepted),
            Ok(LoginSuccess::RejectedAsExpected) if !wrong => Err(LoginFailure::Rejected),
            other => other,
        };
        if verdict == Ok(LoginSuccess::Accepted) && self.setup.accounting.is_some() {
            return self.schedule_accounting_record(now, token, 0, now, sink);
        }
        self.end_pending_login(now, token, verdict, sink);
    }

    /// Replies to a challenge with the waiting packet, now or after an identifier becomes free.
    fn respond_to_challenge(&mut self, now: Instant, token: u64, sink: &mut LoginResultRecorder) {
        let Some(login) = self.logins.get_mut(token) else { return };
        let (start, nas) = (login.start, login.state.0);
        let LoginState::Eap(_, next, _) = &mut login.state.1 else { return };
        let (next, packet) = (std::mem::take(next), std::mem::take(&mut self.eap_out));
        let (users, outer) = (self.users.clone(), self.anonymous_identity(&start));
        let name = outer.as_deref().unwrap_or(users.get(start.user).0);
        let asked = self.send_request(
            now,
            (nas, token),
            (start.user, name),
            UserCredentials::Eap(&packet),
            Some(&next),
        );
        if let Some(LoginState::Eap(_, continues, held)) = self.logins.get_mut(token).map(|l| &mut l.state.1)
        {
            *continues = next;
            if asked.is_err() && self.setup.scarce {
                *held = Some(packet);
                self.timers.insert(now + super::login::RETRY, token);
                return;
            }
        }
        self.eap_out = packet;
        if asked.is_err() {
            let failure =
                if self.setup.diameter { LoginFailure::Unreachable } else { LoginFailure::BadAnswer };
            self.end_pending_login(now, token, Err(failure), sink);
        }
    }

    /// Schedules record `next` of a session; after the last record the session ends.
    fn schedule_accounting_record(
        &mut self,
        now: Instant,
        token: u64,
        next: u32,
        began: Instant,
        sink: &mut LoginResultRecorder,
    ) {
        let Some(accounting) = self.setup.accounting else { return };
        if next > accounting.interims + 1 {
            return self.end_pending_login(now, token, Ok(LoginSuccess::Accepted), sink);
        }
        let Some(login) = self.logins.get_mut(token) else { return };
        login.state.1 = LoginState::Accounting { record: next, started_at: began };
        if next == 0 || accounting.every.is_zero() {
            self.send_record(now, token, sink);
        } else {
            self.timers.insert(now + accounting.every, token);
        }
    }

    fn send_record(&mut self, now: Instant, token: u64, sink: &mut LoginResultRecorder) {
        let Some(login) = self.logins.get_mut(token) else { return };
        let (nas, LoginState::Accounting { record, started_at: began }) = login.state else { return };
        login.requested_at = now;
        let user = login.start.user;
        if self.transmit_record(now, (nas, token), user, record, began).is_ok() {
            return;
        }
        if self.setup.diameter {
            self.end_pending_login(now, token, Err(LoginFailure::Unreachable), sink);
        } else {
            // All identifiers are in use. Retry after a while, because some become free soon.
            self.timers.insert(now + super::login::RETRY, token);
        }
    }

    /// Sends an accounting record.
    fn transmit_record(
        &mut self,
        now: Instant,
        (nas, token): (usize, u64),
        user: usize,
        number: u32,
        began: Instant,
    ) -> Result<(), LoginDeferral> {
        let accounting =
            self.setup.accounting.unwrap_or(LoginAccounting { interims: 0, every: Duration::ZERO });
        let kind = match number {
            0 => AccountingRecordKind::Start,
            n if n <= accounting.interims => AccountingRecordKind::Interim,
            _ => AccountingRecordKind::Stop,
        };
        let mut id = [b'-'; 25];
        write_hex_digits(&mut id[..8], u64::from(self.boot));
        write_hex_digits(&mut id[9..], token);
        let octets = u64::from(number) * 1_000_000;
        let station = self.calling_station(user);
        let traffic = SessionTraffic {
            input_octets: octets,
            output_octets: octets * 4,
            input_packets: octets / 1000,
            output_packets: octets / 250,
        };
        let record = AccountingRecord {
            name: self.users.get(user).0,
            port: nas_port(station.as_ref(), token),
            lasted: now.duration_since(began),
            traffic: Some(traffic),
            ..AccountingRecord::new(kind, core::str::from_utf8(&id).unwrap_or_default(), number)
        };
        let sent = self.fleet[nas].access.send_record(now, token, &record).map_err(|_| LoginDeferral::Full);
        self.mark_busy(nas);
        sent
    }

    /// Handles the due time of a login or session.
    fn handle_timer(&mut self, now: Instant, token: u64, sink: &mut LoginResultRecorder) {
        let held = match self.logins.get_mut(token).map(|login| &mut login.state.1) {
            Some(LoginState::Eap(_, _, held)) => held.take(),
            _ => None,
        };
        match held {
            Some(packet) => {
                self.eap_out = packet;
                self.respond_to_challenge(now, token, sink);
            }
            None => self.send_record(now, token, sink),
        }
    }

    /// True if the server seems reachable.
    pub(super) fn is_ready(&self) -> bool {
        self.fleet.iter().all(|nas| nas.up)
    }

    /// Begins a login.
    pub(super) fn begin_login(
        &mut self,
        now: Instant,
        start: LoginStart,
        sink: &mut LoginResultRecorder,
    ) -> Result<(), LoginDeferral> {
        let token = self.logins.next_token();
        let nas = self.choose_access_server().ok_or(LoginDeferral::Full)?;
        let begun = self.send_first_request(now, nas, &start, token).unwrap_or_else(|| {
            let state = LoginState::Accounting { record: 0, started_at: now };
            match self.transmit_record(now, (nas, token), start.user, 0, now) {
                Ok(()) => Ok(state),
                Err(not_now) => Err((state, not_now)),
            }
        });
        let (state, asked) = match begun {
            Ok(state) => (state, true),
            Err((state, _)) if self.setup.diameter => (state, false),
            Err((_, not_now)) => return Err(not_now),
        };
        self.fleet[nas].logins += 1;
        self.logins.insert(PendingLogin { start, requested_at: now, rounds: 0, state: (nas, state) });
        if !asked {
            self.end_pending_login(now, token, Err(LoginFailure::Unreachable), sink);
        }
        Ok(())
    }

    /// Returns the number of outstanding logins.
    pub(super) fn outstanding_logins(&self) -> usize {
        self.logins.len()
    }

    /// Calls `see` for each outstanding login.
    pub(super) fn for_each_login(&self, see: &mut dyn FnMut(&LoginStart)) {
        self.logins.iter().for_each(|(_, login)| see(&login.start));
    }

    /// Drops all outstanding logins.
    pub(super) fn abandon_logins(&mut self, now: Instant) {
        let open: Vec<(u64, usize)> = self.logins.iter().map(|(token, l)| (token, l.state.0)).collect();
        for (token, nas) in open {
            self.logins.remove(token);
            self.fleet[nas].logins -= 1;
            for command in
                [AccessClientCommand::Cancel { token }, AccessClientCommand::CancelRecord { token }]
            {
                // The result is ignored: the client knows its own requests.
                let _ = self.fleet[nas].access.handle_command(now, command);
            }
            self.mark_busy(nas);
        }
        self.timers = TimerQueue::new();
    }

    /// Disconnects from the server, if the protocol has a message for it.
    pub(super) fn start_leaving(&mut self, now: Instant) {
        if !self.setup.diameter {
            return;
        }
        for nas in 0..self.fleet.len() {
            // Each Diameter node has a single peer, with number 0.
            let (peer, cause) = (PeerId(0), DisconnectCause::DoNotWantToTalkToYou);
            let command =
                AccessClientCommand::Diameter(node::DiameterNodeCommand::Disconnect { peer, cause });
            let _ = self.fleet[nas].access.handle_command(now, command);
            self.mark_busy(nas);
        }
    }

    /// Returns the counters by name.
    pub(super) fn counters(&self) -> Vec<(&'static str, u64)> {
        if self.setup.diameter {
            let mut sum = node::DiameterNodeCounters::default();
            self.fleet.iter().filter_map(|n| n.access.diameter_counters()).for_each(|c| sum.add(&c));
            return sum.iter().collect();
        }
        let mut sum = usher_radius::client::RadiusClientCounters::default();
        self.fleet.iter().filter_map(|n| n.access.radius_counters()).for_each(|c| sum.add(c));
        sum.iter().collect()
    }

    pub(super) fn set_epoch(&mut self, now: Instant, epoch: WallTime) {
        self.epoch = epoch;
        self.fleet.iter_mut().for_each(|nas| nas.access.set_epoch(now, epoch));
    }

    pub(super) fn handle_input(
        &mut self,
        now: Instant,
        input: MachineInput<'_>,
        sink: &mut LoginResultRecorder,
    ) {
        match input {
            MachineInput::Timeout => {
                for nas in 0..self.fleet.len() {
                    if self.due[nas] <= now {
                        self.fleet[nas].access.handle_input(now, MachineInput::Timeout);
                        self.mark_busy(nas);
                    }
                }
            }
            _ => {
                let Some((slot, input)) = input.split_outer_slot() else { return };
                let nas = usize::from(slot);
                if let Some(one) = self.fleet.get_mut(nas) {
                    one.access.handle_input(now, input);
                    self.mark_busy(nas);
                }
            }
        }
        while let Some((_, token)) = self.timers.pop_due(now) {
            self.handle_timer(now, token, sink);
        }
    }

    /// Handles the clients' events and passes on their outputs.
    pub(super) fn drain_outputs(
        &mut self,
        now: Instant,
        outputs: &mut OutputQueue<super::api::GeneratorEvent>,
        sink: &mut LoginResultRecorder,
    ) {
        while let Some(nas) = self.busy.pop() {
            self.fleet[nas].listed = false;
            while let Some(event) = outputs.next_event(&mut self.fleet[nas].access) {
                self.handle_event(now, nas, event, sink);
            }
            self.due[nas] = next_timeout(&mut self.fleet[nas].access);
        }
    }

    fn handle_event(
        &mut self,
        now: Instant,
        nas: usize,
        event: AccessClientEvent,
        sink: &mut LoginResultRecorder,
    ) {
        let (token, verdict, reply) = match event {
            AccessClientEvent::Challenge { token, reply } => (token, ReplyVerdict::Challenge, reply),
            AccessClientEvent::Accept { token, reply } => (token, ReplyVerdict::Accept, reply),
            AccessClientEvent::Reject { token, reply } => (token, ReplyVerdict::Reject, reply),
            AccessClientEvent::Failed { token, failure } => {
                return self.handle_failure(now, token, failure, sink);
            }
            AccessClientEvent::Accounted { token, result: Ok(()) } => {
                let Some(login) = self.logins.get_mut(token) else { return };
                let LoginState::Accounting { record, started_at: began } = login.state.1 else { return };
                sink.record_answered_request(now, login.requested_at);
                login.rounds += 1;
                sink.count_record(now);
                return self.schedule_accounting_record(now, token, record + 1, began, sink);
            }
            AccessClientEvent::Accounted { token, result: Err(failure) } => {
                return self.handle_failure(now, token, failure, sink);
            }
            AccessClientEvent::Peer { up, .. } => {
                self.fleet[nas].up = up;
                return;
            }
            // The generator sends no dynamic requests and monitors no servers, so these events need no action.
            AccessClientEvent::Dynamic(_) | AccessClientEvent::Server { .. } => return,
        };
        self.handle_reply(now, token, verdict, &reply, sink);
        self.fleet[nas].access.recycle_reply(reply);
    }

    fn handle_failure(
        &mut self,
        now: Instant,
        token: u64,
        failure: usher_access::AaaRequestFailure,
        sink: &mut LoginResultRecorder,
    ) {
        let failure = match failure {
            usher_access::AaaRequestFailure::Timeout => LoginFailure::Timeout,
            usher_access::AaaRequestFailure::Unavailable => LoginFailure::Unreachable,
            usher_access::AaaRequestFailure::ConnectionLost => LoginFailure::ConnectionLost,
            usher_access::AaaRequestFailure::BadAnswer => {
                if let Some(login) = self.logins.get_mut(token) {
                    sink.record_answered_request(now, login.requested_at);
                }
                LoginFailure::BadAnswer
            }
            usher_access::AaaRequestFailure::Fault(code) => {
                if let Some(login) = self.logins.get_mut(token) {
                    sink.record_answered_request(now, login.requested_at);
                    sink.record_fault(now, code);
                }
                LoginFailure::ServerFault
            }
        };
        self.end_pending_login(now, token, Err(failure), sink);
    }

    pub(super) fn poll_timeout(&self) -> Option<Instant> {
        let clients = self.due.iter().min().copied().filter(|at| *at < Instant::FAR_FUTURE);
        earliest_deadline([clients, self.timers.next_deadline()])
    }
}

fn next_timeout(access: &mut AccessClient) -> Instant {
    access.poll_timeout().unwrap_or(Instant::FAR_FUTURE)
}

/// Returns the result of a reply to a password.
const fn password_result(verdict: ReplyVerdict) -> Result<LoginSuccess, LoginFailure> {
    match verdict {
        ReplyVerdict::Accept => Ok(LoginSuccess::Accepted),
        ReplyVerdict::Reject => Ok(LoginSuccess::RejectedAsExpected),
        ReplyVerdict::Challenge => Err(LoginFailure::UnexpectedChallenge),
    }
}

/// Returns the port of a login: the lower half of its token.
fn nas_port(station: Option<&[u8; 17]>, token: u64) -> NasPort<'_> {
    let calling_station = station.and_then(|station| core::str::from_utf8(station).ok());
    NasPort { number: Some(token as u32), calling_station, ..NasPort::default() }
}

/// Writes the number's lowest hexadecimal digits over the whole of `out`.
fn write_hex_digits(out: &mut [u8], mut number: u64) {
    const DIGITS: &[u8; 16] = b"0123456789ABCDEF";
    for place in out.iter_mut().rev() {
        *place = DIGITS[(number & 15) as usize];
        number >>= 4;
    }
}
