//! Subscribers of a PPPoE access concentrator, each a host of its own behind one interface.
//!
//! Each does discovery, LCP, authentication and IPCP. Then the session ends at once, stays for a while, or stays to the
//! end of the run. It may carry echoes meanwhile.

mod echo;

pub use echo::SessionEchoConfig;

use super::login::{LoginDeferral, LoginResultRecorder, LoginStart, LoginSuccess, LoginTable, PendingLogin};
use crate::tally::LoginFailure;
use crate::users::UserCredentialTable;
use echo::SessionEchoState;
use std::collections::VecDeque;
use std::net::Ipv4Addr;
use std::sync::Arc;
use usher_core::timer::{TimerQueue, earliest_deadline};
use usher_core::{
    Duration, Instant, LinkLayerPortId, Machine, MachineInput, OutputQueue, SecureRng, Transmit, WallTime,
};
use usher_crypto::SecretValue;
use usher_eap::method::{PeerMethodFactory, md5, mschapv2};
use usher_ppp::auth::{AuthenticationProtocol, PppCredentials};
use usher_ppp::client::{ClientCommand, ClientConfig, ClientCounters, ClientEvent, PppoeClient};
use usher_ppp::pppoe::{MacAddress, PppoeFrame, PppoeStage};
use usher_ppp::{AddressFamily, EndReason, LinkConfig, NegotiatedAddresses};

/// The port of all stations: one interface.
pub(crate) const PORT: LinkLayerPortId = LinkLayerPortId(0);
/// Number of sessions that end at a time at the end of a run, so that the concentrator receives every end.
const CLOSING: usize = 256;
/// Time before the end of a session without new echoes, so that the last ones get replies.
const QUIET: Duration = Duration::from_millis(250);

/// The authentication of a subscriber.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PppoeLogin {
    /// PAP.
    Pap,
    /// CHAP with MD5.
    Chap,
    /// MS-CHAPv2.
    MsChapV2,
    /// EAP-MD5.
    EapMd5,
    /// EAP-MSCHAPv2.
    EapMsChapV2,
}

impl PppoeLogin {
    fn to_credentials(self, name: &[u8], password: &[u8]) -> PppCredentials {
        let (protocol, offer): (_, Option<Box<dyn PeerMethodFactory>>) = match self {
            Self::Pap => (AuthenticationProtocol::Pap, None),
            Self::Chap => (AuthenticationProtocol::Chap, None),
            Self::MsChapV2 => (AuthenticationProtocol::MsChapV2, None),
            Self::EapMd5 => {
                let shows = md5::EapMd5Password::new(password).with_name(name);
                (AuthenticationProtocol::Eap, Some(Box::new(shows)))
            }
            Self::EapMsChapV2 => {
                (AuthenticationProtocol::Eap, Some(Box::new(mschapv2::MsChapV2Account::new(name, password))))
            }
        };
        PppCredentials {
            name: name.to_vec(),
            password: SecretValue::from(password),
            protocols: vec![protocol],
            eap_methods: offer.into_iter().collect(),
        }
    }
}

/// The duration of a session.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SessionHoldTime {
    /// It ends this long after its setup.
    For(Duration),
    /// It stays to the end of the run, and this long after the last setup.
    UntilRunEnd(Duration),
}

/// The configuration of a PPPoE generator.
#[derive(Clone, Debug)]
pub struct PppoeConfig {
    /// Number of stations, and so of concurrent sessions, at least one.
    pub stations: usize,
    /// The number of the first station, if other generators have stations too.
    pub first: usize,
    /// The Ethernet address of station 0; each further address is one more.
    pub address: MacAddress,
    /// Longest payload of a frame, in octets.
    pub mtu: u16,
    /// The authentication methods.
    pub logins: Vec<PppoeLogin>,
    /// The requested Service-Name; empty for any.
    pub service: String,
    /// The requested AC-Name; empty for any.
    pub concentrator: String,
    /// The first timeout of discovery; each further one is twice as long.
    pub discovery: Duration,
    /// Number of PADI for a session.
    pub attempts: u32,
    /// Interval of liveness checks (LCP Echo) of a station; zero for none.
    pub keepalive: Duration,
    /// Time limit from PADS until packets may pass.
    pub setup: Duration,
    /// The duration of sessions.
    pub session_hold: SessionHoldTime,
    /// True if sessions end silently, as in a power failure.
    pub power_cut: bool,
    /// The packets of sessions.
    pub echo: Option<SessionEchoConfig>,
}

/// Returns the address of the `n`-th station.
fn station_address(first: MacAddress, n: usize) -> MacAddress {
    let [_, _, octets @ ..] = (address_number(first).wrapping_add(n as u64)).to_be_bytes();
    MacAddress(octets)
}

fn address_number(address: MacAddress) -> u64 {
    let [a, b, c, d, e, f] = address.0;
    u64::from_be_bytes([0, 0, a, b, c, d, e, f])
}

/// Returns the station, of those from `first` on, that a frame is for, by its first octets.
#[must_use]
pub(crate) fn station_of(first: MacAddress, frame: &[u8]) -> Option<usize> {
    let destination = MacAddress(*frame.first_chunk()?);
    usize::try_from(address_number(destination).checked_sub(address_number(first))?).ok()
}

usher_core::counters! {
    /// Counters of the subscribers, beside those of their clients.
    pub(super) struct PppoeCounters {
        /// Sessions that ended after their set-up, by themselves or by the concentrator.
        sessions_flapped,
        /// Frames for the address of no station, or of a station without a session.
        frames_unknown_station,
        /// Packets of sessions that do not answer an echo of theirs.
        packets_unexpected,
    }
}

#[derive(Debug, Default)]
struct PppoeStation {
    client: Option<PppoeClient>,
    /// The current login, until it succeeds.
    login: Option<u64>,
    /// The established session, if any.
    up: Option<StationSession>,
    /// True if the client is closing its session.
    closing: bool,
    /// True if it is in the list of stations with possible outputs.
    listed: bool,
    /// Its armed timer.
    due: Option<Instant>,
}

#[derive(Debug)]
struct StationSession {
    concentrator: MacAddress,
    number: u16,
    until: Option<Instant>,
    echo: Option<SessionEchoState>,
}

impl StationSession {
    /// Returns the time of the next echo; `None` if it would be too close to the session's end.
    fn next_echo_time(&self, closing: bool) -> Option<Instant> {
        let due = self.echo.as_ref().filter(|_| !closing)?.next_echo_due_time();
        self.until.is_none_or(|until| due + QUIET <= until).then_some(due)
    }
}

/// The subscribers and their stations.
#[derive(Debug)]
pub(super) struct PppoeLoadClient {
    config: PppoeConfig,
    users: Arc<UserCredentialTable>,
    rng: SecureRng,
    epoch: Option<(Instant, WallTime)>,
    stations: Vec<PppoeStation>,
    free: VecDeque<usize>,
    busy: Vec<usize>,
    timers: TimerQueue<usize>,
    /// Logins with the index of their station.
    logins: LoginTable<usize>,
    /// When leaving begins, and the sessions that remain to be ended.
    leaving: Option<(Instant, VecDeque<usize>)>,
    closing: usize,
    clients: ClientCounters,
    counters: PppoeCounters,
}

impl PppoeLoadClient {
    pub(super) fn new(
        config: PppoeConfig,
        users: Arc<UserCredentialTable>,
        rng: SecureRng,
    ) -> Result<Self, super::api::ConfigError> {
        use super::api::ConfigError::Invalid;
        if config.stations == 0 {
            return Err(Invalid("the number of stations is 0; give at least 1"));
        }
        let last = station_address(config.address, config.first + config.stations - 1);
        if !config.address.is_unicast() || config.address.0[0] != last.0[0] {
            return Err(Invalid(
                "the MAC addresses of the stations must be unicast and begin with the same octet",
            ));
        }
        if config.mtu < 576 {
            return Err(Invalid("an MTU below 576 octets is too small for PPPoE"));
        }
        Ok(Self {
            stations: (0..config.stations).map(|_| PppoeStation::default()).collect(),
            free: (0..config.stations).collect(),
            busy: Vec::new(),
            timers: TimerQueue::new(),
            logins: LoginTable::default(),
            leaving: None,
            closing: 0,
            clients: ClientCounters::default(),
            counters: PppoeCounters::default(),
            epoch: None,
            users,
            rng,
            config,
        })
    }

    pub(super) fn set_epoch(&mut self, now: Instant, epoch: WallTime) {
        self.epoch = Some((now, epoch));
    }

    fn mark_busy(&mut self, n: usize) {
        if !core::mem::replace(&mut self.stations[n].listed, true) {
            self.busy.push(n);
        }
    }

    /// Begins a login.
    pub(super) fn begin_login(&mut self, now: Instant, start: LoginStart) -> Result<(), LoginDeferral> {
        if self.leaving.is_some() {
            return Err(LoginDeferral::Full);
        }
        let n = self.free.pop_front().ok_or(LoginDeferral::Full)?;
        let (name, password) = self.users.get(start.user);
        let mut room = [0; 128];
        let password = if start.wrong { super::login::alter_password(password, &mut room) } else { password };
        // If no methods are configured, logins use CHAP.
        let login = self.config.logins.get(usize::from(start.method)).copied().unwrap_or(PppoeLogin::Chap);
        let address = station_address(self.config.address, self.config.first + n);
        let config = ClientConfig {
            mtu: self.config.mtu,
            service: self.config.service.clone(),
            concentrator: self.config.concentrator.clone(),
            ipv6: None,
            initial_timeout: self.config.discovery,
            attempts: self.config.attempts,
            link: LinkConfig {
                echo_interval: self.config.keepalive,
                setup: self.config.setup,
                ..LinkConfig::default()
            },
            ..ClientConfig::new(PORT, address, login.to_credentials(name, password))
        };
        let mut client = PppoeClient::new(config, SecureRng::from_seed(self.rng.random_array()));
        if let Some((at, epoch)) = self.epoch {
            client.set_epoch(at, epoch);
        }
        // The result is ignored: there is no session yet, so the client accepts the command.
        let _ = client.handle_command(now, ClientCommand::Connect);
        let token = self.logins.insert(PendingLogin { start, requested_at: now, rounds: 0, state: n });
        let station = &mut self.stations[n];
        (station.client, station.login, station.closing) = (Some(client), Some(token), false);
        self.mark_busy(n);
        Ok(())
    }

    /// True if a station is free.
    pub(super) fn has_room(&self) -> bool {
        self.leaving.is_none() && !self.free.is_empty()
    }

    pub(super) fn outstanding_logins(&self) -> usize {
        self.logins.len()
    }

    pub(super) fn for_each_login(&self, see: &mut dyn FnMut(&LoginStart)) {
        self.logins.iter().for_each(|(_, login)| see(&login.start));
    }

    pub(super) fn abandon_logins(&mut self, now: Instant) {
        let open: Vec<(u64, usize)> = self.logins.iter().map(|(token, login)| (token, login.state)).collect();
        for (token, n) in open {
            self.logins.remove(token);
            self.stations[n].login = None;
            self.close_session(now, n);
        }
        if let Some((at, _)) = &mut self.leaving {
            *at = now;
        }
    }

    /// Closes a station's session.
    fn close_session(&mut self, now: Instant, n: usize) {
        let station = &mut self.stations[n];
        if let Some(client) = station.client.as_mut()
            && !core::mem::replace(&mut station.closing, true)
        {
            self.closing += 1;
            // An error is ignored: a session that has just ended emits its own event.
            let _ = client.handle_command(now, ClientCommand::Disconnect);
            self.mark_busy(n);
        }
    }

    /// Begins to end all sessions.
    pub(super) fn start_leaving(&mut self, now: Instant) {
        if self.leaving.is_some() {
            return;
        }
        let all: VecDeque<usize> = if self.config.power_cut {
            for n in 0..self.stations.len() {
                self.free_login_station(n);
            }
            VecDeque::new()
        } else {
            (0..self.stations.len()).filter(|n| self.stations[*n].client.is_some()).collect()
        };
        let dwell = match self.config.session_hold {
            SessionHoldTime::UntilRunEnd(dwell) if !self.config.power_cut => dwell,
            _ => Duration::ZERO,
        };
        let quiet = if self.config.echo.is_some() { QUIET } else { Duration::ZERO };
        let at = now + dwell + quiet;
        for n in &all {
            if let Some(up) = self.stations[*n].up.as_mut() {
                up.until = Some(at);
            }
        }
        self.leaving = Some((at, all));
    }

    /// True if sessions remain to be ended.
    pub(super) fn is_leaving(&self) -> bool {
        self.leaving.as_ref().is_some_and(|(_, left)| !left.is_empty() || self.closing > 0)
    }

    fn close_due_sessions(&mut self, now: Instant) {
        while self.closing < CLOSING
            && let Some((at, left)) = &mut self.leaving
            && *at <= now
            && let Some(n) = left.pop_front()
        {
            self.close_session(now, n);
        }
    }

    pub(super) fn counters(&self) -> Vec<(&'static str, u64)> {
        let mut sum = self.clients;
        self.stations
            .iter()
            .filter_map(|station| station.client.as_ref())
            .for_each(|client| sum.add(client.counters()));
        self.counters.iter().chain(sum.iter()).collect()
    }

    pub(super) fn handle_input(
        &mut self,
        now: Instant,
        input: MachineInput<'_>,
        sink: &mut LoginResultRecorder,
    ) {
        match input {
            MachineInput::Frame { port: PORT, data } => self.handle_frame(now, data, sink),
            MachineInput::Timeout => {
                while let Some((_, n)) = self.timers.pop_due(now) {
                    self.stations[n].due = None;
                    self.handle_timeout(now, n, sink);
                }
                self.close_due_sessions(now);
            }
            // PPPoE uses no sockets.
            _ => {}
        }
    }

    fn handle_frame(&mut self, now: Instant, data: &[u8], sink: &mut LoginResultRecorder) {
        let n = station_of(self.config.address, data).and_then(|n| n.checked_sub(self.config.first));
        let Some((n, station)) = n.and_then(|n| Some((n, self.stations.get_mut(n)?))) else {
            self.counters.frames_unknown_station += 1;
            return;
        };
        let Some(client) = station.client.as_mut() else {
            self.counters.frames_unknown_station += 1;
            return;
        };
        if let (Some(up), Ok(frame)) = (station.up.as_mut(), PppoeFrame::parse(data))
            && frame.stage == PppoeStage::Session
            && let Some(packet) = frame.payload.strip_prefix(&[0x00, 0x21])
        {
            // The generator itself is the data plane here, because its work is small enough to be done at once.
            let ours = frame.source == up.concentrator && frame.session == up.number;
            match up.echo.as_mut().filter(|_| ours).and_then(|echo| echo.parse_reply(now, packet)) {
                Some(answered) => sink.record_echo_reply(answered.window, answered.time),
                None => self.counters.packets_unexpected += 1,
            }
            return;
        }
        client.handle_input(now, MachineInput::Frame { port: PORT, data });
        self.mark_busy(n);
    }

    fn handle_timeout(&mut self, now: Instant, n: usize, sink: &mut LoginResultRecorder) {
        let station = &mut self.stations[n];
        let Some(client) = station.client.as_mut() else { return };
        client.handle_input(now, MachineInput::Timeout);
        let mut end = false;
        if let Some(up) = &mut station.up {
            end = up.until.is_some_and(|at| at <= now) && self.leaving.is_none();
            if up.next_echo_time(station.closing).is_some()
                && let Some(echo) = &mut up.echo
            {
                echo.prepare_echo(now, sink);
            }
        }
        if end {
            self.close_session(now, n);
        }
        self.mark_busy(n);
    }

    pub(super) fn drain_outputs(
        &mut self,
        now: Instant,
        outputs: &mut OutputQueue<super::api::GeneratorEvent>,
        sink: &mut LoginResultRecorder,
    ) {
        loop {
            self.close_due_sessions(now);
            let Some(n) = self.busy.pop() else { break };
            self.stations[n].listed = false;
            while let Some(client) = &mut self.stations[n].client
                && let Some(event) = client.next_event(outputs, |_| {})
            {
                self.handle_event(now, n, event, sink);
            }
            let address = station_address(self.config.address, self.config.first + n);
            if let Some(up) = &mut self.stations[n].up
                && let Some(echo) = &mut up.echo
            {
                while let Some(packet) = echo.take_packet() {
                    let mut frame = outputs.take_buffer();
                    let payload = [&[0x00, 0x21], &packet[..]].concat();
                    PppoeFrame {
                        destination: up.concentrator,
                        source: address,
                        stage: PppoeStage::Session,
                        code: usher_ppp::pppoe::PppoeCode::SESSION,
                        session: up.number,
                        payload: &payload,
                    }
                    .emit(&mut frame);
                    outputs.push_transmit(Transmit::Frame { port: PORT }, frame);
                }
            }
            self.arm_timer(n);
        }
    }

    fn arm_timer(&mut self, n: usize) {
        let station = &mut self.stations[n];
        let client = station.client.as_mut().and_then(Machine::poll_timeout);
        let up = station.up.as_ref();
        let until = up.and_then(|up| up.until).filter(|_| !station.closing && self.leaving.is_none());
        let echo = up.and_then(|up| up.next_echo_time(station.closing));
        let due = earliest_deadline([client, until, echo]);
        if due != station.due {
            if let Some(at) = station.due {
                self.timers.remove(at, n);
            }
            if let Some(at) = due {
                self.timers.insert(at, n);
            }
            station.due = due;
        }
    }

    fn handle_event(&mut self, now: Instant, n: usize, event: ClientEvent, sink: &mut LoginResultRecorder) {
        match event {
            ClientEvent::Install {
                concentrator,
                number,
                network: NegotiatedAddresses::Ipv4 { local, remote, .. },
                ..
            } => {
                self.start_session(now, n, (concentrator, number), (local, remote), sink);
            }
            ClientEvent::Remove { family: AddressFamily::Ipv4 } => self.stations[n].up = None,
            ClientEvent::Ended { reason, .. } => self.handle_session_end(now, n, reason, sink),
            _ => {}
        }
    }

    fn start_session(
        &mut self,
        now: Instant,
        n: usize,
        (concentrator, number): (MacAddress, u16),
        (local, remote): (Ipv4Addr, Ipv4Addr),
        sink: &mut LoginResultRecorder,
    ) {
        let hold = match self.config.session_hold {
            SessionHoldTime::For(time) => Some(now + time),
            SessionHoldTime::UntilRunEnd(_) => None,
        };
        let echo = self.config.echo.as_ref().map(|config| {
            let apart = config.echo_interval().mul_f64(self.rng.sample_unit());
            SessionEchoState::new(config, (local, remote), now + apart)
        });
        let station = &mut self.stations[n];
        station.up = Some(StationSession { concentrator, number, until: hold, echo });
        if let Some(login) = station.login.take().and_then(|token| self.logins.remove(token)) {
            let end = if login.start.wrong {
                Err(LoginFailure::WronglyAccepted)
            } else {
                Ok(LoginSuccess::Accepted)
            };
            sink.record_login_end(now, &login.start, end);
        }
        if hold == Some(now) {
            self.close_session(now, n);
        }
    }

    fn handle_session_end(
        &mut self,
        now: Instant,
        n: usize,
        reason: EndReason,
        sink: &mut LoginResultRecorder,
    ) {
        let station = &mut self.stations[n];
        let (token, asked) = (station.login.take(), station.closing);
        if let Some(login) = token.and_then(|token| self.logins.remove(token)) {
            let end = match reason {
                EndReason::Refused if login.start.wrong => Ok(LoginSuccess::RejectedAsExpected),
                EndReason::Refused | EndReason::NoAuthentication => Err(LoginFailure::Rejected),
                EndReason::Impostor => Err(LoginFailure::WrongProof),
                EndReason::NoConcentrator | EndReason::Unreachable | EndReason::SetupTimeout => {
                    Err(LoginFailure::Timeout)
                }
                EndReason::PeerClosed | EndReason::Padt | EndReason::Replaced => {
                    Err(LoginFailure::ServerFault)
                }
                _ => Err(LoginFailure::BadAnswer),
            };
            sink.record_login_end(now, &login.start, end);
        } else if !asked {
            self.counters.sessions_flapped += 1;
        }
        self.free_login_station(n);
    }

    /// Frees a station without a session for another login.
    fn free_login_station(&mut self, n: usize) {
        let station = &mut self.stations[n];
        let Some(client) = station.client.take() else { return };
        self.clients.add(client.counters());
        self.closing -= usize::from(core::mem::take(&mut station.closing));
        station.up = None;
        if let Some(at) = station.due.take() {
            self.timers.remove(at, n);
        }
        self.free.push_back(n);
    }

    pub(super) fn poll_timeout(&self) -> Option<Instant> {
        let leave = self.leaving.as_ref().filter(|(_, left)| !left.is_empty() && self.closing < CLOSING);
        earliest_deadline([self.timers.next_deadline(), leave.map(|(at, _)| *at)])
    }
}

#[cfg(test)]
mod tests;
