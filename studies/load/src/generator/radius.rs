//! Logins and accounting sessions over RADIUS.

use super::login::{Login, Logins, Sink, Start, Success};
use super::{ConfigError, Front, NotNow};
use crate::eap::{self, Conversation, EapMethod, Turn, Who};
use crate::tally::Failure;
use crate::users::Users;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Arc;
use usher_core::timer::TimerQueue;
use usher_core::{Child, Duration, Input, Instant, Machine, Outputs, SecureRng, WallTime};
use usher_crypto::digest::md5;
use usher_crypto::legacy::{mschap, nt_hash};
use usher_eap::peer;
use usher_radius::attribute::{Attributes, kind, vendor};
use usher_radius::client::{self, Client, Event, Response, Target};
use usher_radius::packet::Code;

/// Microsoft's attributes (RFC 2548 §2.1.2, §2.3.2, §2.3.3).
const MS_CHAP_CHALLENGE: u8 = 11;
const MS_CHAP2_RESPONSE: u8 = 25;
const MS_CHAP2_SUCCESS: u8 = 26;

/// The server of the client that takes accounting, where it is another than the first.
const ACCOUNTING: usize = 1;

/// How a user logs in.
#[derive(Clone, Debug)]
pub enum RadiusLogin {
    /// User-Password (RFC 2865 §5.2).
    Pap,
    /// CHAP-Password (RFC 2865 §5.3).
    Chap,
    /// MS-CHAPv2 (RFC 2548 §2.3, RFC 2759); the server's proof is checked, and its keys.
    MsChapV2,
    /// EAP (RFC 3579).
    Eap(EapMethod),
}

/// The accounting session that follows a login, or stands alone (RFC 2866).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Accounting {
    /// Interim records between start and stop.
    pub interims: u32,
    /// From the acknowledgement of one record to the next.
    pub every: Duration,
}

/// Access servers that each have one socket, and so at most 256 requests under way.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Fleet {
    /// How many, at least one.
    pub count: usize,
    /// The number of the first, where other generators have some too.
    pub first: usize,
    /// The NAS-Identifier; each has its number, from 1, behind it.
    pub identifier: String,
    /// The first one's address; each has the address so many further. `None`: the system's choice for all.
    pub address: Option<IpAddr>,
}

impl Fleet {
    /// The address of the `i`-th, from 0; `None`: the system's choice.
    #[must_use]
    pub fn address(&self, i: usize) -> Option<IpAddr> {
        Some(match self.address? {
            IpAddr::V4(a) => Ipv4Addr::from_bits(a.to_bits().wrapping_add((self.first + i) as u32)).into(),
            IpAddr::V6(a) => Ipv6Addr::from_bits(a.to_bits().wrapping_add((self.first + i) as u128)).into(),
        })
    }
}

/// What a RADIUS generator is made of.
#[derive(Clone, Debug)]
pub struct RadiusConfig {
    /// The client: its first server takes logins, its second, where there is one, accounting.
    pub client: client::Config,
    /// The access servers; `None`: one, whose client has as many sockets as it needs.
    pub fleet: Option<Fleet>,
    /// How users log in; empty: they do not, there is accounting only.
    pub logins: Vec<RadiusLogin>,
    /// Accounting after each login that was let in.
    pub accounting: Option<Accounting>,
    /// The identity outside an EAP tunnel; `None`: the user's name.
    pub anonymous: Option<Arc<[u8]>>,
    /// What every request has besides: NAS-Identifier, where there is no fleet, and the like.
    pub common: Attributes,
    /// The time of day at [`Instant::ZERO`], for certificates and Event-Timestamp.
    pub epoch: WallTime,
}

/// What is asked at present.
#[derive(Debug)]
enum State {
    /// PAP, CHAP: the answer decides.
    Password,
    /// MS-CHAPv2: what its answer must hold.
    MsChapV2(Box<Proof>),
    /// EAP, with the request that waits for an identifier.
    Eap(Box<Conversation>, Option<Attributes>),
    /// An accounting record of this number, from 0, is to be acknowledged; or the next one waits for its time.
    Accounting { record: u32, began: Instant },
}

#[derive(Debug)]
struct Proof {
    success: [u8; 42],
    keys: mschap::MppeKeys,
}

/// An access server: a client, and the logins by it.
#[derive(Debug)]
struct Nas {
    client: Child<Client>,
    /// NAS-Identifier; empty where all requests have it already.
    name: Vec<u8>,
    logins: usize,
    /// It is on the list of those that may have something to send.
    listed: bool,
}

/// RADIUS clients and the users behind them.
#[derive(Debug)]
pub(super) struct Radius {
    config: RadiusConfig,
    users: Arc<Users>,
    fleet: Vec<Nas>,
    /// When each has something to do.
    due: Vec<Instant>,
    /// Those that may have something to send, each once.
    busy: Vec<usize>,
    /// The next in turn.
    next: usize,
    /// Most logins that one takes at a time.
    room: usize,
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

impl Radius {
    pub(super) fn new(
        config: RadiusConfig,
        users: Arc<Users>,
        mut rng: SecureRng,
    ) -> Result<Self, ConfigError> {
        if config.logins.is_empty() && config.accounting.is_none() {
            return Err(ConfigError::Invalid("neither a login nor accounting is asked for"));
        }
        let count = config.fleet.as_ref().map_or(1, |f| f.count);
        if count == 0 {
            return Err(ConfigError::Invalid("there is no access server; at least one"));
        }
        let mut fleet = Vec::with_capacity(count);
        for i in 0..count {
            let (mut client, mut name) = (config.client.clone(), Vec::new());
            if let Some(of) = &config.fleet {
                client.max_sockets = 1;
                name = format!("{}-{}", of.identifier, of.first + i + 1).into_bytes();
                if let Some(address) = of.address(i) {
                    client.servers.iter_mut().for_each(|s| s.local = address);
                }
            }
            let client = Client::new(client, SecureRng::from_seed(rng.array()))?;
            let slot = u16::try_from(i).ok().filter(|slot| *slot < u16::MAX);
            let slot = slot
                .ok_or(ConfigError::Invalid("more access servers than one generator has; at most 65535"))?;
            let client = Child::new(slot, client);
            fleet.push(Nas { client, name, logins: 0, listed: false });
        }
        let sockets = if config.fleet.is_some() { 1 } else { config.client.max_sockets as usize };
        Ok(Self {
            due: vec![Instant::FAR_FUTURE; count],
            busy: Vec::new(),
            next: 0,
            room: sockets.saturating_mul(256),
            fleet,
            users,
            boot: rng.next_u32(),
            rng,
            logins: Logins::default(),
            timers: TimerQueue::new(),
            eap_in: Vec::new(),
            eap_out: Vec::new(),
            config,
        })
    }

    /// A client was given something to do.
    fn touched(&mut self, nas: usize) {
        if !core::mem::replace(&mut self.fleet[nas].listed, true) {
            self.busy.push(nas);
        }
    }

    /// The next access server that has room for a login.
    fn choose(&mut self) -> Option<usize> {
        let count = self.fleet.len();
        let nas = (0..count).map(|i| (self.next + i) % count).find(|&i| self.fleet[i].logins < self.room)?;
        self.next = (nas + 1) % count;
        Some(nas)
    }

    /// Calling-Station-Id: a locally administered address for each user.
    fn station(user: usize) -> [u8; 17] {
        let mut text = *b"02-00-00-00-00-00";
        for (i, byte) in (user as u32).to_be_bytes().into_iter().enumerate() {
            let at = 6 + 3 * i;
            text[at] = hex(byte >> 4);
            text[at + 1] = hex(byte & 15);
        }
        text
    }

    /// The attributes that a request of this user begins with.
    fn request(&mut self, nas: usize, user: usize, name: &[u8], port: u64) -> Attributes {
        let nas = &mut self.fleet[nas];
        let mut list = nas.client.attributes();
        // A name has at most 253 octets, as Users sees to.
        let _ = list.push_bytes(kind::USER_NAME, name);
        let _ = list.push_bytes(kind::CALLING_STATION_ID, &Self::station(user));
        list.push_u32(kind::NAS_PORT, port as u32);
        if !nas.name.is_empty() {
            let _ = list.push_bytes(kind::NAS_IDENTIFIER, &nas.name);
        }
        list.extend(&self.config.common);
        list
    }

    /// The attributes and the state of a login's first request.
    fn first(&mut self, now: Instant, nas: usize, start: &Start, token: u64) -> Option<(Attributes, State)> {
        let users = self.users.clone();
        let (name, right) = users.get(start.user);
        let mut altered = [0; 128];
        let password = if start.wrong { super::alter(right, &mut altered) } else { right };
        let login = self.config.logins.get(usize::from(start.method))?.clone();
        let anonymous = self.anonymous(start);
        let outer = anonymous.as_deref().unwrap_or(name);
        let mut list = self.request(nas, start.user, outer, token & 0xffff_ffff);
        let state = match &login {
            RadiusLogin::Pap => {
                let _ = list.push_user_password(password);
                State::Password
            }
            RadiusLogin::Chap => {
                let (id, challenge) = (self.rng.next_u32() as u8, self.rng.array::<16>());
                let mut value = [id; 17];
                value[1..].copy_from_slice(&md5(&[&[id], password, &challenge]));
                let _ = list.push_bytes(kind::CHAP_PASSWORD, &value);
                let _ = list.push_bytes(kind::CHAP_CHALLENGE, &challenge);
                State::Password
            }
            RadiusLogin::MsChapV2 => {
                let (id, ours, peers) =
                    (self.rng.next_u32() as u8, self.rng.array::<16>(), self.rng.array::<16>());
                let hash = nt_hash(password);
                let response = mschap::nt_response(&ours, &peers, name, &hash);
                let mut value = [0; 50];
                value[0] = id;
                value[2..18].copy_from_slice(&peers);
                value[26..].copy_from_slice(&response);
                let _ = list.push_vendor(vendor::MICROSOFT, MS_CHAP_CHALLENGE, &ours);
                let _ = list.push_vendor(vendor::MICROSOFT, MS_CHAP2_RESPONSE, &value);
                let success = mschap::authenticator_response(&hash, &response, &peers, &ours, name);
                State::MsChapV2(Box::new(Proof { success, keys: mschap::mppe_keys(&hash, &response) }))
            }
            RadiusLogin::Eap(method) => {
                let rng = SecureRng::from_seed(self.rng.array());
                let wall = self.wall(now);
                let who = Who { number: start.user, outer, name, password, wrong: start.wrong };
                let conversation = Conversation::begin(method, who, wall, now, rng, &mut self.eap_out);
                list.push_eap(&self.eap_out);
                State::Eap(Box::new(conversation), None)
            }
        };
        Some((list, state))
    }

    /// The identity outside the tunnel of a login's method, where it has one.
    fn anonymous(&self, start: &Start) -> Option<Arc<[u8]>> {
        match self.config.logins.get(usize::from(start.method)) {
            Some(RadiusLogin::Eap(method)) if method.has_tunnel() => self.config.anonymous.clone(),
            _ => None,
        }
    }

    fn wall(&self, now: Instant) -> WallTime {
        WallTime::from_unix_secs(self.config.epoch.unix_secs() + now.as_nanos() / 1_000_000_000)
    }

    /// The attributes of an accounting record.
    fn record(
        &mut self,
        now: Instant,
        (nas, token): (usize, u64),
        user: usize,
        record: u32,
        began: Instant,
    ) -> Attributes {
        let accounting = self.config.accounting.unwrap_or(Accounting { interims: 0, every: Duration::ZERO });
        let users = self.users.clone();
        let mut list = self.request(nas, user, users.get(user).0, token & 0xffff_ffff);
        let status = match record {
            0 => 1,
            n if n <= accounting.interims => 3,
            _ => 2,
        };
        let mut id = [b'-'; 25];
        digits(&mut id[..8], u64::from(self.boot));
        digits(&mut id[9..], token);
        list.push_u32(kind::ACCT_STATUS_TYPE, status);
        let _ = list.push_bytes(kind::ACCT_SESSION_ID, &id);
        list.push_u32(kind::ACCT_DELAY_TIME, 0);
        if status != 1 {
            let age = now.since(began).as_secs() as u32;
            list.push_u32(kind::ACCT_SESSION_TIME, age);
            list.push_u32(kind::ACCT_INPUT_OCTETS, record.wrapping_mul(1_000_000));
            list.push_u32(kind::ACCT_OUTPUT_OCTETS, record.wrapping_mul(4_000_000));
        }
        if status == 2 {
            list.push_u32(kind::ACCT_TERMINATE_CAUSE, 1);
        }
        list
    }

    fn ask(
        &mut self,
        now: Instant,
        (nas, token): (usize, u64),
        attributes: Attributes,
        accounting: bool,
    ) -> Result<(), NotNow> {
        let server = if accounting && self.config.client.servers.len() > ACCOUNTING { ACCOUNTING } else { 0 };
        let code = if accounting { Code::ACCOUNTING_REQUEST } else { Code::ACCESS_REQUEST };
        let target = Target::Server(server as u16);
        let command = client::Command::Request { token, target, code, attributes };
        let asked = self.fleet[nas].client.command(now, command).map_err(|_| NotNow::Full);
        self.touched(nas);
        asked
    }

    fn end(&mut self, now: Instant, token: u64, result: Result<Success, Failure>, sink: &mut Sink) {
        if let Some(login) = self.logins.remove(token) {
            self.fleet[login.state.0].logins -= 1;
            sink.end(now, &login.start, result);
        }
    }

    fn answered(&mut self, now: Instant, response: Response, sink: &mut Sink) {
        let token = response.token;
        let Some(login) = self.logins.get_mut(token) else { return };
        sink.exchange(now, login.asked);
        login.rounds += 1;
        let wrong = login.start.wrong;
        let method = usize::from(login.start.method);
        let result = match &mut login.state.1 {
            State::Accounting { record, began } => {
                sink.recorded(now);
                let (next, began) = (*record + 1, *began);
                return self.acknowledged(now, token, next, began, sink);
            }
            State::Password => plain(response.code),
            State::MsChapV2(proof) => plain(response.code).and_then(|success| {
                if success == Success::LetIn && !wrong {
                    check_mschap(proof, &response)?;
                }
                Ok(success)
            }),
            State::Eap(conversation, _) => {
                let rounds = login.rounds;
                let Some(RadiusLogin::Eap(method)) = self.config.logins.get(method) else { return };
                self.eap_in.clear();
                let has_eap = response.attributes.eap(&mut self.eap_in);
                match response.code {
                    // RFC 3579 §2.6.3: a reject need not hold a packet that the peer takes.
                    Code::ACCESS_REJECT => Ok(Success::TurnedAway),
                    Code::ACCESS_ACCEPT | Code::ACCESS_CHALLENGE if !has_eap => Err(Failure::NoEap),
                    Code::ACCESS_ACCEPT => match conversation.turn(now, &self.eap_in, &mut self.eap_out) {
                        Ok(Turn::Over(peer::Event::Success { keys })) => {
                            let sent = response.mppe_keys().ok().flatten();
                            let sent = sent.as_ref().map(|k| (&k.recv[..], &k.send[..]));
                            eap::check_keys(method, keys.as_ref(), sent).map(|()| Success::LetIn)
                        }
                        // The method was not done, whatever the packet says.
                        Ok(_) | Err(_) => Err(Failure::EarlySuccess),
                    },
                    Code::ACCESS_CHALLENGE if !eap::may_go_on(rounds) => Err(Failure::TooManyRounds),
                    Code::ACCESS_CHALLENGE => match conversation.turn(now, &self.eap_in, &mut self.eap_out) {
                        Ok(Turn::Respond) => return self.respond(now, token, &response, sink),
                        Ok(Turn::Over(_)) => Err(Failure::EapFailed),
                        Err(failure) => Err(failure),
                    },
                    _ => Err(Failure::BadAnswer),
                }
            }
        };
        let verdict = match result {
            Ok(Success::LetIn) if wrong => Err(Failure::WronglyAccepted),
            Ok(Success::TurnedAway) if !wrong => Err(Failure::Rejected),
            other => other,
        };
        if verdict == Ok(Success::LetIn) && self.config.accounting.is_some() {
            return self.acknowledged(now, token, 0, now, sink);
        }
        self.end(now, token, verdict, sink);
    }

    /// Answers a challenge: the same user, the State as it came (RFC 2865 §5.24).
    fn respond(&mut self, now: Instant, token: u64, response: &Response, sink: &mut Sink) {
        let Some(login) = self.logins.get_mut(token) else { return };
        login.asked = now;
        let (start, nas) = (login.start, login.state.0);
        let users = self.users.clone();
        let outer = self.anonymous(&start);
        let name = outer.as_deref().unwrap_or(users.get(start.user).0);
        let mut list = self.request(nas, start.user, name, token & 0xffff_ffff);
        for state in response.attributes.get_all(kind::STATE) {
            let _ = list.push_bytes(kind::STATE, state);
        }
        list.push_eap(&self.eap_out);
        self.ask_eap(now, token, list, sink);
    }

    /// Sends a round of EAP, later where all identifiers are in use.
    fn ask_eap(&mut self, now: Instant, token: u64, list: Attributes, sink: &mut Sink) {
        let Some(login) = self.logins.get_mut(token) else { return };
        let nas = login.state.0;
        // Where sockets are few, identifiers of requests that were sent again rest for a while: one is free soon.
        let spare = self.config.fleet.is_some().then(|| list.clone());
        if self.ask(now, (nas, token), list, false).is_ok() {
            return;
        }
        let Some(list) = spare else { return self.end(now, token, Err(Failure::BadAnswer), sink) };
        match self.logins.get_mut(token).map(|login| &mut login.state.1) {
            Some(State::Eap(_, held)) => {
                *held = Some(list);
                self.timers.insert(now + super::RETRY, token);
            }
            _ => self.end(now, token, Err(Failure::BadAnswer), sink),
        }
    }

    /// A session's record `next` is due, at once or later; behind the last there is none.
    fn acknowledged(&mut self, now: Instant, token: u64, next: u32, began: Instant, sink: &mut Sink) {
        let Some(accounting) = self.config.accounting else { return };
        if next > accounting.interims + 1 {
            return self.end(now, token, Ok(Success::LetIn), sink);
        }
        let Some(login) = self.logins.get_mut(token) else { return };
        login.state.1 = State::Accounting { record: next, began };
        if next == 0 || accounting.every.is_zero() {
            self.send_record(now, token);
        } else {
            self.timers.insert(now + accounting.every, token);
        }
    }

    fn send_record(&mut self, now: Instant, token: u64) {
        let Some(login) = self.logins.get_mut(token) else { return };
        let (nas, State::Accounting { record, began }) = login.state else { return };
        login.asked = now;
        let user = login.start.user;
        let list = self.record(now, (nas, token), user, record, began);
        if self.ask(now, (nas, token), list, true).is_err() {
            // All identifiers are in use: some are free again soon.
            self.timers.insert(now + super::RETRY, token);
        }
    }

    /// A login's or session's time has come.
    fn wake(&mut self, now: Instant, token: u64, sink: &mut Sink) {
        let held = match self.logins.get_mut(token).map(|login| &mut login.state.1) {
            Some(State::Eap(_, held)) => held.take(),
            _ => None,
        };
        match held {
            Some(list) => self.ask_eap(now, token, list, sink),
            None => self.send_record(now, token),
        }
    }
}

impl Front for Radius {
    fn ready(&self) -> bool {
        true
    }

    fn begin(&mut self, now: Instant, start: Start, _: &mut Sink) -> Result<(), NotNow> {
        let token = self.logins.next_token();
        let nas = self.choose().ok_or(NotNow::Full)?;
        let (list, state, accounting) = match self.first(now, nas, &start, token) {
            Some((list, state)) => (list, state, false),
            None => {
                let list = self.record(now, (nas, token), start.user, 0, now);
                (list, State::Accounting { record: 0, began: now }, true)
            }
        };
        self.ask(now, (nas, token), list, accounting)?;
        self.fleet[nas].logins += 1;
        self.logins.insert(Login { start, asked: now, rounds: 0, state: (nas, state) });
        Ok(())
    }

    fn outstanding(&self) -> usize {
        self.logins.len()
    }

    fn each(&self, see: &mut dyn FnMut(&Start)) {
        self.logins.iter().for_each(|(_, login)| see(&login.start));
    }

    fn abandon(&mut self, now: Instant) {
        let open: Vec<(u64, usize)> = self.logins.iter().map(|(token, l)| (token, l.state.0)).collect();
        for (token, nas) in open {
            self.logins.remove(token);
            self.fleet[nas].logins -= 1;
            // A session between two records has no request to cancel.
            let _ = self.fleet[nas].client.command(now, client::Command::Cancel { token });
            self.touched(nas);
        }
        self.timers = TimerQueue::new();
    }

    fn leave(&mut self, _now: Instant) {}

    fn counters(&self) -> Vec<(&'static str, u64)> {
        let mut sum = client::Counters::default();
        self.fleet.iter().for_each(|n| sum.add(n.client.counters()));
        sum.iter().collect()
    }

    fn handle(&mut self, now: Instant, input: Input<'_>, sink: &mut Sink) {
        match input {
            Input::Timeout => {
                for nas in 0..self.fleet.len() {
                    if self.due[nas] <= now {
                        self.fleet[nas].client.handle(now, Input::Timeout);
                        self.touched(nas);
                    }
                }
            }
            _ => {
                let Some((slot, input)) = input.enter() else { return };
                let nas = usize::from(slot);
                if let Some(one) = self.fleet.get_mut(nas) {
                    one.client.handle(now, input);
                    self.touched(nas);
                }
            }
        }
        while let Some((_, token)) = self.timers.pop_due(now) {
            self.wake(now, token, sink);
        }
    }

    fn settle(&mut self, now: Instant, outputs: &mut Outputs<super::Event>, sink: &mut Sink) {
        while let Some(nas) = self.busy.pop() {
            self.fleet[nas].listed = false;
            while let Some(event) = outputs.next_event(&mut self.fleet[nas].client) {
                match event {
                    Event::Response(response) => self.answered(now, response, sink),
                    Event::TimedOut { token } => self.end(now, token, Err(Failure::Timeout), sink),
                    Event::Server { .. } => {}
                }
            }
            self.due[nas] = self.fleet[nas].client.poll_timeout().unwrap_or(Instant::FAR_FUTURE);
        }
    }

    fn poll_timeout(&mut self) -> Option<Instant> {
        let clients = self.due.iter().min().copied().filter(|at| *at < Instant::FAR_FUTURE);
        [clients, self.timers.next()].into_iter().flatten().min()
    }
}

/// What an answer to a password says.
fn plain(code: Code) -> Result<Success, Failure> {
    match code {
        Code::ACCESS_ACCEPT => Ok(Success::LetIn),
        Code::ACCESS_REJECT => Ok(Success::TurnedAway),
        Code::ACCESS_CHALLENGE => Err(Failure::UnexpectedChallenge),
        _ => Err(Failure::BadAnswer),
    }
}

/// The server's proof (RFC 2759 §5), and its keys where it sends some (RFC 3079).
fn check_mschap(proof: &Proof, response: &Response) -> Result<(), Failure> {
    let success = response.attributes.get_vendor(vendor::MICROSOFT, MS_CHAP2_SUCCESS);
    if success.and_then(|s| s.get(1..43)) != Some(&proof.success[..]) {
        return Err(Failure::WrongProof);
    }
    match response.mppe_keys() {
        Ok(None) => Ok(()),
        Ok(Some(keys)) if keys.recv[..] == proof.keys.recv[..] && keys.send[..] == proof.keys.send[..] => {
            Ok(())
        }
        Ok(Some(_)) | Err(_) => Err(Failure::WrongKeys),
    }
}

const fn hex(digit: u8) -> u8 {
    if digit < 10 { b'0' + digit } else { b'A' + digit - 10 }
}

/// Writes the number's lowest digits, in hexadecimal, over the whole of `out`.
fn digits(out: &mut [u8], mut number: u64) {
    for place in out.iter_mut().rev() {
        *place = hex((number & 15) as u8);
        number >>= 4;
    }
}
