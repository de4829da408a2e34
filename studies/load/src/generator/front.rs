//! The access servers that users log in by, each a client of its own, and the users behind them.

use super::login::{Login, Logins, Sink, Start, Success};
use super::{Accounting, NotNow, alter};
use crate::eap::{self, Conversation, EapMethod, Turn, Who};
use crate::tally::Failure;
use crate::users::Users;
use std::sync::Arc;
use usher_access::{
    AccessClient, ChapResponse, Command, Continuation, Event, Expected, MsChapV2Response, NasPort, Proof,
    ProofError, Record, RecordKind, Reply, Request, Traffic,
};
use usher_core::timer::{TimerQueue, earliest};
use usher_core::{Child, Duration, Input, Instant, Machine, Outputs, SecureRng, WallTime};
use usher_diameter::ResultCode;
use usher_diameter::node::{self, DisconnectCause, PeerId};
use usher_eap::peer;

/// How a user logs in.
#[derive(Clone, Debug)]
pub(super) enum Method {
    Pap,
    Chap,
    MsChapV2,
    Eap(EapMethod),
}

/// What a front is made of.
#[derive(Debug)]
pub(super) struct Setup {
    pub(super) clients: Vec<AccessClient>,
    /// Whether they ask by Diameter.
    pub(super) diameter: bool,
    /// Most logins that one takes at a time.
    pub(super) room: usize,
    /// Whether the identifiers of a client may be in use for a moment, so that a round waits for one.
    pub(super) scarce: bool,
    /// How users log in; empty: there is accounting only.
    pub(super) methods: Vec<Method>,
    pub(super) accounting: Option<Accounting>,
    /// The identity outside an EAP tunnel; `None`: the user's name.
    pub(super) anonymous: Option<Arc<[u8]>>,
}

/// What is asked at present.
#[derive(Debug)]
enum State {
    /// PAP, CHAP: the answer decides.
    Password,
    /// MS-CHAPv2: what its answer must hold.
    MsChapV2(Box<Expected>),
    /// EAP, with what its next round continues, and the packet that waits for an identifier.
    Eap(Box<Conversation>, Continuation, Option<Vec<u8>>),
    /// An accounting record of this number, from 0, is to be acknowledged; or the next one waits for its time.
    Accounting { record: u32, began: Instant },
}

/// What an answer says.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Verdict {
    Challenge,
    Accept,
    Reject,
}

/// An access server: a client, and the logins by it.
#[derive(Debug)]
struct Nas {
    access: Child<AccessClient>,
    logins: usize,
    /// Its server can be reached, as far as is known before asking.
    up: bool,
    /// It is on the list of those that may have something to send.
    listed: bool,
}

/// Access servers and the users behind them.
#[derive(Debug)]
pub(super) struct Front {
    setup: Setup,
    /// The wall time at [`Instant::ZERO`].
    epoch: WallTime,
    users: Arc<Users>,
    fleet: Vec<Nas>,
    /// When each has something to do.
    due: Vec<Instant>,
    /// Those that may have something to send, each once.
    busy: Vec<usize>,
    /// The next in turn.
    next: usize,
    rng: SecureRng,
    /// With the number of its access server.
    logins: Logins<(usize, State)>,
    /// Sessions that wait for their next record, logins for an identifier.
    timers: TimerQueue<u64>,
    /// In every Acct-Session-Id, so that those of another run differ.
    boot: u32,
    eap_in: Vec<u8>,
    eap_out: Vec<u8>,
}

impl Front {
    pub(super) fn new(mut setup: Setup, users: Arc<Users>, mut rng: SecureRng) -> Self {
        // Their number was checked: each has a slot.
        let clients = (0..u16::MAX).zip(std::mem::take(&mut setup.clients));
        let up = !setup.diameter;
        let nas = |(slot, client)| Nas { access: Child::new(slot, client), logins: 0, up, listed: false };
        let mut fleet: Vec<Nas> = clients.map(nas).collect();
        Self {
            due: fleet.iter_mut().map(|nas| due(&mut nas.access)).collect(),
            busy: Vec::new(),
            next: 0,
            fleet,
            users,
            boot: rng.next_u32(),
            rng,
            logins: Logins::default(),
            timers: TimerQueue::new(),
            eap_in: Vec::new(),
            eap_out: Vec::new(),
            epoch: WallTime::UNIX_EPOCH,
            setup,
        }
    }

    /// A client was given something to do.
    fn touched(&mut self, nas: usize) {
        if !core::mem::replace(&mut self.fleet[nas].listed, true) {
            self.busy.push(nas);
        }
    }

    /// The next access server that has room for a login.
    fn choose(&mut self) -> Option<usize> {
        let (count, room) = (self.fleet.len(), self.setup.room);
        let nas = (0..count).map(|i| (self.next + i) % count).find(|&i| self.fleet[i].logins < room)?;
        self.next = (nas + 1) % count;
        Some(nas)
    }

    /// The identity outside the tunnel of a login's method, where it has one.
    fn anonymous(&self, start: &Start) -> Option<Arc<[u8]>> {
        match self.setup.methods.get(usize::from(start.method)) {
            Some(Method::Eap(method)) if method.has_tunnel() => self.setup.anonymous.clone(),
            _ => None,
        }
    }

    /// Calling-Station-Id: a locally administered address for each user, which is said by RADIUS.
    fn station(&self, user: usize) -> Option<[u8; 17]> {
        if self.setup.diameter {
            return None;
        }
        let mut text = *b"02-00-00-00-00-00";
        for (i, byte) in (user as u32).to_be_bytes().into_iter().enumerate() {
            digits(&mut text[6 + 3 * i..8 + 3 * i], byte.into());
        }
        Some(text)
    }

    /// Asks for a user by its proof.
    fn ask(
        &mut self,
        now: Instant,
        (nas, token): (usize, u64),
        (user, name): (usize, &[u8]),
        proof: Proof<'_>,
        continues: Option<&Continuation>,
    ) -> Result<(), NotNow> {
        let station = self.station(user);
        let port = port(station.as_ref(), token);
        let request = Request { port, continues, ..Request::new(name, proof) };
        let asked = self.fleet[nas].access.ask(now, token, &request).map_err(|_| NotNow::Full);
        self.touched(nas);
        asked
    }

    /// Asks the first question of a login; `None` where there is no login, but accounting only.
    fn first(
        &mut self,
        now: Instant,
        nas: usize,
        start: &Start,
        token: u64,
    ) -> Option<Result<State, (State, NotNow)>> {
        let users = self.users.clone();
        let (name, right) = users.get(start.user);
        let mut altered = [0; 128];
        let password = if start.wrong { alter(right, &mut altered) } else { right };
        let anonymous = self.anonymous(start);
        let outer = anonymous.as_deref().unwrap_or(name);
        let (at, who) = ((nas, token), (start.user, outer));
        let (asked, state) = match self.setup.methods.get(usize::from(start.method))?.clone() {
            Method::Pap => (self.ask(now, at, who, Proof::Pap(password), None), State::Password),
            Method::Chap => {
                let (id, challenge) = (self.rng.next_u32() as u8, self.rng.array::<16>());
                let proof = Proof::Chap(ChapResponse::to(id, &challenge, password));
                (self.ask(now, at, who, proof, None), State::Password)
            }
            Method::MsChapV2 => {
                let (id, ours, peers) = (self.rng.next_u32() as u8, self.rng.array(), self.rng.array());
                let (response, expected) = MsChapV2Response::to(id, ours, peers, name, password);
                let asked = self.ask(now, at, who, Proof::MsChapV2(response), None);
                (asked, State::MsChapV2(Box::new(expected)))
            }
            Method::Eap(method) => {
                let rng = SecureRng::from_seed(self.rng.array());
                let wall = now.wall(self.epoch);
                let who = Who { number: start.user, outer, name, password, wrong: start.wrong };
                let mut packet = std::mem::take(&mut self.eap_out);
                let conversation = Conversation::begin(&method, who, wall, now, rng, &mut packet);
                let asked = self.ask(now, at, (start.user, outer), Proof::Eap(&packet), None);
                self.eap_out = packet;
                (asked, State::Eap(Box::new(conversation), Continuation::new(), None))
            }
        };
        Some(match asked {
            Ok(()) => Ok(state),
            Err(not_now) => Err((state, not_now)),
        })
    }

    fn end(&mut self, now: Instant, token: u64, result: Result<Success, Failure>, sink: &mut Sink) {
        if let Some(login) = self.logins.remove(token) {
            self.fleet[login.state.0].logins -= 1;
            sink.end(now, &login.start, result);
        }
    }

    fn answered(&mut self, now: Instant, token: u64, verdict: Verdict, reply: &Reply, sink: &mut Sink) {
        let Some(login) = self.logins.get_mut(token) else { return };
        sink.exchange(now, login.asked);
        login.rounds += 1;
        if let Some(code) = reply.result_code().filter(|_| verdict == Verdict::Reject)
            && code != ResultCode::AUTHENTICATION_REJECTED.0
            && code != ResultCode::AUTHORIZATION_REJECTED.0
        {
            sink.fault(now, code);
            return self.end(now, token, Err(Failure::ServerFault), sink);
        }
        let wrong = login.start.wrong;
        let method = usize::from(login.start.method);
        let result = match &mut login.state.1 {
            State::Accounting { .. } => return,
            State::Password => plain(verdict),
            State::MsChapV2(expected) => plain(verdict).and_then(|success| {
                if success == Success::LetIn && !wrong {
                    expected.check(reply).map_err(|error| match error {
                        ProofError::Response => Failure::WrongProof,
                        ProofError::Keys => Failure::WrongKeys,
                    })?;
                }
                Ok(success)
            }),
            State::Eap(conversation, next, _) => {
                let rounds = login.rounds;
                let Some(Method::Eap(method)) = self.setup.methods.get(method) else { return };
                let has_eap = reply.eap(&mut self.eap_in);
                match verdict {
                    // RFC 3579 §2.6.3: a reject need not hold a packet that the peer takes.
                    Verdict::Reject => Ok(Success::TurnedAway),
                    _ if !has_eap => Err(Failure::NoEap),
                    Verdict::Accept => match conversation.turn(now, &self.eap_in, &mut self.eap_out) {
                        Ok(Turn::Over(peer::Event::Success { keys })) => {
                            let sent = reply.keys().ok().flatten();
                            let sent = sent.as_ref().map(|k| (&k.recv[..], &k.send[..]));
                            eap::check_keys(method, keys.as_ref(), sent).map(|()| Success::LetIn)
                        }
                        // The method was not done, whatever the packet says.
                        Ok(_) | Err(_) => Err(Failure::EarlySuccess),
                    },
                    Verdict::Challenge if !eap::may_go_on(rounds) => Err(Failure::TooManyRounds),
                    Verdict::Challenge => match conversation.turn(now, &self.eap_in, &mut self.eap_out) {
                        Ok(Turn::Respond) => {
                            reply.continuation(next);
                            login.asked = now;
                            return self.respond(now, token, sink);
                        }
                        Ok(Turn::Over(_)) => Err(Failure::EapFailed),
                        Err(failure) => Err(failure),
                    },
                }
            }
        };
        let verdict = match result {
            Ok(Success::LetIn) if wrong => Err(Failure::WronglyAccepted),
            Ok(Success::TurnedAway) if !wrong => Err(Failure::Rejected),
            other => other,
        };
        if verdict == Ok(Success::LetIn) && self.setup.accounting.is_some() {
            return self.acknowledged(now, token, 0, now, sink);
        }
        self.end(now, token, verdict, sink);
    }

    /// Answers a challenge by the packet that waits for that: at once, or later where all identifiers are in use.
    fn respond(&mut self, now: Instant, token: u64, sink: &mut Sink) {
        let Some(login) = self.logins.get_mut(token) else { return };
        let (start, nas) = (login.start, login.state.0);
        let State::Eap(_, next, _) = &mut login.state.1 else { return };
        let (next, packet) = (std::mem::take(next), std::mem::take(&mut self.eap_out));
        let (users, outer) = (self.users.clone(), self.anonymous(&start));
        let name = outer.as_deref().unwrap_or(users.get(start.user).0);
        let asked = self.ask(now, (nas, token), (start.user, name), Proof::Eap(&packet), Some(&next));
        if let Some(State::Eap(_, continues, held)) = self.logins.get_mut(token).map(|l| &mut l.state.1) {
            *continues = next;
            if asked.is_err() && self.setup.scarce {
                *held = Some(packet);
                self.timers.insert(now + super::RETRY, token);
                return;
            }
        }
        self.eap_out = packet;
        if asked.is_err() {
            let failure = if self.setup.diameter { Failure::Unreachable } else { Failure::BadAnswer };
            self.end(now, token, Err(failure), sink);
        }
    }

    /// A session's record `next` is due, at once or later; behind the last there is none.
    fn acknowledged(&mut self, now: Instant, token: u64, next: u32, began: Instant, sink: &mut Sink) {
        let Some(accounting) = self.setup.accounting else { return };
        if next > accounting.interims + 1 {
            return self.end(now, token, Ok(Success::LetIn), sink);
        }
        let Some(login) = self.logins.get_mut(token) else { return };
        login.state.1 = State::Accounting { record: next, began };
        if next == 0 || accounting.every.is_zero() {
            self.send_record(now, token, sink);
        } else {
            self.timers.insert(now + accounting.every, token);
        }
    }

    fn send_record(&mut self, now: Instant, token: u64, sink: &mut Sink) {
        let Some(login) = self.logins.get_mut(token) else { return };
        let (nas, State::Accounting { record, began }) = login.state else { return };
        login.asked = now;
        let user = login.start.user;
        if self.record(now, (nas, token), user, record, began).is_ok() {
            return;
        }
        if self.setup.diameter {
            self.end(now, token, Err(Failure::Unreachable), sink);
        } else {
            // All identifiers are in use: some are free again soon.
            self.timers.insert(now + super::RETRY, token);
        }
    }

    /// Sends an accounting record.
    fn record(
        &mut self,
        now: Instant,
        (nas, token): (usize, u64),
        user: usize,
        number: u32,
        began: Instant,
    ) -> Result<(), NotNow> {
        let accounting = self.setup.accounting.unwrap_or(Accounting { interims: 0, every: Duration::ZERO });
        let kind = match number {
            0 => RecordKind::Start,
            n if n <= accounting.interims => RecordKind::Interim,
            _ => RecordKind::Stop,
        };
        let mut id = [b'-'; 25];
        digits(&mut id[..8], u64::from(self.boot));
        digits(&mut id[9..], token);
        let octets = u64::from(number) * 1_000_000;
        let station = self.station(user);
        let traffic = Traffic {
            input_octets: octets,
            output_octets: octets * 4,
            input_packets: octets / 1000,
            output_packets: octets / 250,
        };
        let record = Record {
            name: self.users.get(user).0,
            port: port(station.as_ref(), token),
            lasted: now.since(began),
            traffic: Some(traffic),
            ..Record::new(kind, core::str::from_utf8(&id).unwrap_or_default(), number)
        };
        let sent = self.fleet[nas].access.account(now, token, &record).map_err(|_| NotNow::Full);
        self.touched(nas);
        sent
    }

    /// A login's or session's time has come.
    fn wake(&mut self, now: Instant, token: u64, sink: &mut Sink) {
        let held = match self.logins.get_mut(token).map(|login| &mut login.state.1) {
            Some(State::Eap(_, _, held)) => held.take(),
            _ => None,
        };
        match held {
            Some(packet) => {
                self.eap_out = packet;
                self.respond(now, token, sink);
            }
            None => self.send_record(now, token, sink),
        }
    }

    /// Whether the server can be reached, as far as one can know before asking.
    pub(super) fn ready(&self) -> bool {
        self.fleet.iter().all(|nas| nas.up)
    }

    /// Begins a login.
    pub(super) fn begin(&mut self, now: Instant, start: Start, sink: &mut Sink) -> Result<(), NotNow> {
        let token = self.logins.next_token();
        let nas = self.choose().ok_or(NotNow::Full)?;
        let begun = self.first(now, nas, &start, token).unwrap_or_else(|| {
            let state = State::Accounting { record: 0, began: now };
            match self.record(now, (nas, token), start.user, 0, now) {
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
        self.logins.insert(Login { start, asked: now, rounds: 0, state: (nas, state) });
        if !asked {
            self.end(now, token, Err(Failure::Unreachable), sink);
        }
        Ok(())
    }

    /// Logins under way.
    pub(super) fn outstanding(&self) -> usize {
        self.logins.len()
    }

    /// Shows each of them.
    pub(super) fn each(&self, see: &mut dyn FnMut(&Start)) {
        self.logins.iter().for_each(|(_, login)| see(&login.start));
    }

    /// Forgets them.
    pub(super) fn abandon(&mut self, now: Instant) {
        let open: Vec<(u64, usize)> = self.logins.iter().map(|(token, l)| (token, l.state.0)).collect();
        for (token, nas) in open {
            self.logins.remove(token);
            self.fleet[nas].logins -= 1;
            for command in [Command::Cancel { token }, Command::CancelRecord { token }] {
                // A client knows what it asks.
                let _ = self.fleet[nas].access.command(now, command);
            }
            self.touched(nas);
        }
        self.timers = TimerQueue::new();
    }

    /// Says goodbye to the server, where its protocol has a word for that.
    pub(super) fn leave(&mut self, now: Instant) {
        if !self.setup.diameter {
            return;
        }
        for nas in 0..self.fleet.len() {
            // Each has this one peer.
            let (peer, cause) = (PeerId(0), DisconnectCause::DoNotWantToTalkToYou);
            let command = Command::Diameter(node::Command::Disconnect { peer, cause });
            let _ = self.fleet[nas].access.command(now, command);
            self.touched(nas);
        }
    }

    /// What was counted, by name.
    pub(super) fn counters(&self) -> Vec<(&'static str, u64)> {
        if self.setup.diameter {
            let mut sum = node::Counters::default();
            self.fleet.iter().filter_map(|n| n.access.diameter_counters()).for_each(|c| sum.add(&c));
            return sum.iter().collect();
        }
        let mut sum = usher_radius::client::Counters::default();
        self.fleet.iter().filter_map(|n| n.access.radius_counters()).for_each(|c| sum.add(c));
        sum.iter().collect()
    }

    pub(super) fn set_epoch(&mut self, now: Instant, epoch: WallTime) {
        self.epoch = epoch;
        self.fleet.iter_mut().for_each(|nas| nas.access.set_epoch(now, epoch));
    }

    pub(super) fn handle(&mut self, now: Instant, input: Input<'_>, sink: &mut Sink) {
        match input {
            Input::Timeout => {
                for nas in 0..self.fleet.len() {
                    if self.due[nas] <= now {
                        self.fleet[nas].access.handle(now, Input::Timeout);
                        self.touched(nas);
                    }
                }
            }
            _ => {
                let Some((slot, input)) = input.enter() else { return };
                let nas = usize::from(slot);
                if let Some(one) = self.fleet.get_mut(nas) {
                    one.access.handle(now, input);
                    self.touched(nas);
                }
            }
        }
        while let Some((_, token)) = self.timers.pop_due(now) {
            self.wake(now, token, sink);
        }
    }

    /// Does what the clients say, and hands on what they want done.
    pub(super) fn settle(&mut self, now: Instant, outputs: &mut Outputs<super::Event>, sink: &mut Sink) {
        while let Some(nas) = self.busy.pop() {
            self.fleet[nas].listed = false;
            while let Some(event) = outputs.next_event(&mut self.fleet[nas].access) {
                self.hear(now, nas, event, sink);
            }
            self.due[nas] = due(&mut self.fleet[nas].access);
        }
    }

    fn hear(&mut self, now: Instant, nas: usize, event: Event, sink: &mut Sink) {
        let (token, verdict, reply) = match event {
            Event::Challenge { token, reply } => (token, Verdict::Challenge, reply),
            Event::Accept { token, reply } => (token, Verdict::Accept, reply),
            Event::Reject { token, reply } => (token, Verdict::Reject, reply),
            Event::Failed { token, failure } => return self.failed(now, token, failure, sink),
            Event::Accounted { token, kept: Ok(()) } => {
                let Some(login) = self.logins.get_mut(token) else { return };
                let State::Accounting { record, began } = login.state.1 else { return };
                sink.exchange(now, login.asked);
                login.rounds += 1;
                sink.recorded(now);
                return self.acknowledged(now, token, record + 1, began, sink);
            }
            Event::Accounted { token, kept: Err(failure) } => return self.failed(now, token, failure, sink),
            Event::Peer { up, .. } => {
                self.fleet[nas].up = up;
                return;
            }
            // It asks for none and watches none.
            Event::Dynamic(_) | Event::Server { .. } => return,
        };
        self.answered(now, token, verdict, &reply, sink);
        self.fleet[nas].access.recycle(reply);
    }

    fn failed(&mut self, now: Instant, token: u64, failure: usher_access::Failure, sink: &mut Sink) {
        let failure = match failure {
            usher_access::Failure::Timeout => Failure::Timeout,
            usher_access::Failure::Unavailable => Failure::Unreachable,
            usher_access::Failure::ConnectionLost => Failure::ConnectionLost,
            usher_access::Failure::BadAnswer => {
                if let Some(login) = self.logins.get_mut(token) {
                    sink.exchange(now, login.asked);
                }
                Failure::BadAnswer
            }
            usher_access::Failure::Fault(code) => {
                if let Some(login) = self.logins.get_mut(token) {
                    sink.exchange(now, login.asked);
                    sink.fault(now, code);
                }
                Failure::ServerFault
            }
        };
        self.end(now, token, Err(failure), sink);
    }

    pub(super) fn poll_timeout(&self) -> Option<Instant> {
        let clients = self.due.iter().min().copied().filter(|at| *at < Instant::FAR_FUTURE);
        earliest([clients, self.timers.next()])
    }
}

fn due(access: &mut AccessClient) -> Instant {
    access.poll_timeout().unwrap_or(Instant::FAR_FUTURE)
}

/// What an answer to a password says.
const fn plain(verdict: Verdict) -> Result<Success, Failure> {
    match verdict {
        Verdict::Accept => Ok(Success::LetIn),
        Verdict::Reject => Ok(Success::TurnedAway),
        Verdict::Challenge => Err(Failure::UnexpectedChallenge),
    }
}

/// Where a login is: at the port of its token's lower half.
fn port(station: Option<&[u8; 17]>, token: u64) -> NasPort<'_> {
    let calling_station = station.and_then(|station| core::str::from_utf8(station).ok());
    NasPort { number: Some(token as u32), calling_station, ..NasPort::default() }
}

/// Writes the number's lowest digits, in hexadecimal, over the whole of `out`.
fn digits(out: &mut [u8], mut number: u64) {
    const DIGITS: &[u8; 16] = b"0123456789ABCDEF";
    for place in out.iter_mut().rev() {
        *place = DIGITS[(number & 15) as usize];
        number >>= 4;
    }
}
