//! Logins and accounting sessions over RADIUS.

use super::login::{Login, Logins, Sink, Start, Success};
use super::{ConfigError, Front, NotNow};
use crate::eap::{self, Conversation, EapMethod, Turn, Who};
use crate::tally::Failure;
use crate::users::Users;
use std::sync::Arc;
use usher_core::timer::TimerQueue;
use usher_core::{Duration, Input, Instant, Machine, SecureRng, Transmit, WallTime};
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

/// What a RADIUS generator is made of.
#[derive(Clone, Debug)]
pub struct RadiusConfig {
    /// The client: its first server takes logins, its second, where there is one, accounting.
    pub client: client::Config,
    /// How users log in; `None`: they do not, there is accounting only.
    pub login: Option<RadiusLogin>,
    /// Accounting after each login that was let in.
    pub accounting: Option<Accounting>,
    /// The identity outside an EAP tunnel; `None`: the user's name.
    pub anonymous: Option<Arc<[u8]>>,
    /// What every request has besides: NAS-Identifier and the like.
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
    /// EAP, with the State of the last challenge.
    Eap(Box<Conversation>),
    /// An accounting record of this number, from 0, is to be acknowledged; or the next one waits for its time.
    Accounting { record: u32, began: Instant },
}

#[derive(Debug)]
struct Proof {
    success: [u8; 42],
    keys: mschap::MppeKeys,
}

/// A RADIUS client and the users behind it.
#[derive(Debug)]
pub(super) struct Radius {
    config: RadiusConfig,
    users: Arc<Users>,
    client: Client,
    rng: SecureRng,
    logins: Logins<State>,
    /// Sessions that wait for their next record.
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
        if config.login.is_none() && config.accounting.is_none() {
            return Err(ConfigError::Invalid("neither a login nor accounting is asked for"));
        }
        let client = Client::new(config.client.clone(), SecureRng::from_seed(rng.array()))?;
        let boot = rng.next_u32();
        Ok(Self {
            client,
            users,
            rng,
            logins: Logins::default(),
            timers: TimerQueue::new(),
            boot,
            eap_in: Vec::new(),
            eap_out: Vec::new(),
            config,
        })
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
    fn request(&mut self, user: usize, name: &[u8], port: u64) -> Attributes {
        let mut list = self.client.attributes();
        // A name has at most 253 octets, as Users sees to.
        let _ = list.push_bytes(kind::USER_NAME, name);
        let _ = list.push_bytes(kind::CALLING_STATION_ID, &Self::station(user));
        list.push_u32(kind::NAS_PORT, port as u32);
        list.extend(&self.config.common);
        list
    }

    /// The attributes and the state of a login's first request.
    fn first(&mut self, now: Instant, start: &Start, token: u64) -> Option<(Attributes, State)> {
        let users = self.users.clone();
        let (name, right) = users.get(start.user);
        let mut altered = [0; 128];
        let password = if start.wrong { super::alter(right, &mut altered) } else { right };
        let login = self.config.login.clone()?;
        let anonymous = self.config.anonymous.clone();
        let outer = anonymous.as_deref().unwrap_or(name);
        let mut list = self.request(start.user, outer, token & 0xffff_ffff);
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
                let who = Who { number: start.user, outer, name, password };
                let conversation = Conversation::begin(method, who, wall, now, rng, &mut self.eap_out);
                list.push_eap(&self.eap_out);
                State::Eap(Box::new(conversation))
            }
        };
        Some((list, state))
    }

    fn wall(&self, now: Instant) -> WallTime {
        WallTime::from_unix_secs(self.config.epoch.unix_secs() + now.as_nanos() / 1_000_000_000)
    }

    /// The attributes of an accounting record.
    fn record(&mut self, now: Instant, token: u64, user: usize, record: u32, began: Instant) -> Attributes {
        let accounting = self.config.accounting.unwrap_or(Accounting { interims: 0, every: Duration::ZERO });
        let users = self.users.clone();
        let mut list = self.request(user, users.get(user).0, token & 0xffff_ffff);
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
        token: u64,
        attributes: Attributes,
        accounting: bool,
    ) -> Result<(), NotNow> {
        let server = if accounting && self.config.client.servers.len() > ACCOUNTING { ACCOUNTING } else { 0 };
        let code = if accounting { Code::ACCOUNTING_REQUEST } else { Code::ACCESS_REQUEST };
        let target = Target::Server(server as u16);
        let command = client::Command::Request { token, target, code, attributes };
        self.client.command(now, command).map_err(|_| NotNow::Full)
    }

    fn end(&mut self, now: Instant, token: u64, result: Result<Success, Failure>, sink: &mut Sink) {
        if let Some(login) = self.logins.remove(token) {
            sink.end(now, &login.start, result);
        }
    }

    fn answered(&mut self, now: Instant, response: Response, sink: &mut Sink) {
        let token = response.token;
        let Some(login) = self.logins.get_mut(token) else { return };
        sink.exchange(now, login.asked);
        login.rounds += 1;
        let wrong = login.start.wrong;
        let result = match &mut login.state {
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
            State::Eap(conversation) => {
                let rounds = login.rounds;
                let Some(RadiusLogin::Eap(method)) = &self.config.login else { return };
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
        let user = login.start.user;
        let users = self.users.clone();
        let outer = self.config.anonymous.clone();
        let name = outer.as_deref().unwrap_or(users.get(user).0);
        let mut list = self.request(user, name, token & 0xffff_ffff);
        for state in response.attributes.get_all(kind::STATE) {
            let _ = list.push_bytes(kind::STATE, state);
        }
        list.push_eap(&self.eap_out);
        if self.ask(now, token, list, false).is_err() {
            self.end(now, token, Err(Failure::BadAnswer), sink);
        }
    }

    /// A session's record `next` is due, at once or later; behind the last there is none.
    fn acknowledged(&mut self, now: Instant, token: u64, next: u32, began: Instant, sink: &mut Sink) {
        let Some(accounting) = self.config.accounting else { return };
        if next > accounting.interims + 1 {
            return self.end(now, token, Ok(Success::LetIn), sink);
        }
        let Some(login) = self.logins.get_mut(token) else { return };
        login.state = State::Accounting { record: next, began };
        if next == 0 || accounting.every.is_zero() {
            self.send_record(now, token);
        } else {
            self.timers.insert(now + accounting.every, token);
        }
    }

    fn send_record(&mut self, now: Instant, token: u64) {
        let Some(login) = self.logins.get_mut(token) else { return };
        let State::Accounting { record, began } = login.state else { return };
        login.asked = now;
        let user = login.start.user;
        let list = self.record(now, token, user, record, began);
        if self.ask(now, token, list, true).is_err() {
            // All identifiers are in use: some are free again soon.
            self.timers.insert(now + super::RETRY, token);
        }
    }

    fn drain(&mut self, now: Instant, sink: &mut Sink) {
        while let Some(event) = self.client.poll_event() {
            match event {
                Event::Response(response) => self.answered(now, response, sink),
                Event::TimedOut { token } => self.end(now, token, Err(Failure::Timeout), sink),
                Event::Server { .. } => {}
            }
        }
    }
}

impl Front for Radius {
    fn ready(&self) -> bool {
        true
    }

    fn begin(&mut self, now: Instant, start: Start, _: &mut Sink) -> Result<(), NotNow> {
        let token = self.logins.next_token();
        let (list, state, accounting) = match self.first(now, &start, token) {
            Some((list, state)) => (list, state, false),
            None => {
                let list = self.record(now, token, start.user, 0, now);
                (list, State::Accounting { record: 0, began: now }, true)
            }
        };
        self.ask(now, token, list, accounting)?;
        self.logins.insert(Login { start, asked: now, rounds: 0, state });
        Ok(())
    }

    fn outstanding(&self) -> usize {
        self.logins.len()
    }

    fn each(&self, see: &mut dyn FnMut(&Start)) {
        self.logins.iter().for_each(|(_, login)| see(&login.start));
    }

    fn abandon(&mut self, now: Instant) {
        let tokens: Vec<u64> = self.logins.iter().map(|(token, _)| token).collect();
        for token in tokens {
            self.logins.remove(token);
            // A session between two records has no request to cancel.
            let _ = self.client.command(now, client::Command::Cancel { token });
        }
        self.timers = TimerQueue::new();
    }

    fn leave(&mut self, _now: Instant) {}

    fn counters(&self) -> Vec<(&'static str, u64)> {
        self.client.counters().iter().collect()
    }

    fn handle(&mut self, now: Instant, input: Input<'_>, sink: &mut Sink) {
        self.client.handle(now, input);
        self.drain(now, sink);
        while let Some((_, token)) = self.timers.pop_due(now) {
            self.send_record(now, token);
        }
    }

    fn poll_transmit(&mut self, now: Instant, buf: &mut Vec<u8>) -> Option<Transmit> {
        while self.client.poll_work().is_some() {}
        self.client.poll_transmit(now, buf)
    }

    fn poll_timeout(&mut self) -> Option<Instant> {
        [self.client.poll_timeout(), self.timers.next()].into_iter().flatten().min()
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
