//! The station's machine.

use super::{EapCredentials, StationCommand, StationConfig, StationCounters, StationEvent};
use crate::frame::{self, AccessMedium, AuthenticatorFrame, FrameDropReason, StationFrame};
use crate::station_id::MacAddress;
use alloc::boxed::Box;
use alloc::vec::Vec;
use usher_core::{
    CommandError, Duration, Instant, Machine, MachineInput, MachineOutputOf, NoJob, OutputQueue, SecureRng,
    Transmit, WallTime, WorkRecord,
};
use usher_crypto::SecretValue;
use usher_eap::peer::{self, EapPeer};
use usher_pkm::eap::StationEapSide;
use usher_pkm::keying;
use usher_pkm::keys::AuthorizationKey;

/// The state of an attempt.
#[derive(Debug)]
enum StationState {
    /// No attempt.
    Idle,
    /// `start_count` EAPOL-Starts or EAP-Starts were sent, without an answer.
    Connecting { start_count: u32, peer: Box<EapPeer> },
    /// The EAP conversation.
    Talking(Box<EapPeer>),
    /// Admitted, and waiting for traffic keys.
    Keying(Box<keying::StationKeying>, SecretValue<[u8; 64]>),
}

/// A station; see the [module](super).
#[derive(Debug)]
pub struct AccessStation {
    config: StationConfig,
    state: StationState,
    /// The station's side of PKM, if PKM carries EAP.
    pkm: StationEapSide,
    deadline: Option<Instant>,
    /// The wall time at [`Instant::ZERO`].
    epoch: WallTime,
    outputs: OutputQueue<StationEvent>,
    counters: StationCounters,
    /// Counters of finished key exchanges.
    keying: keying::KeyingCounters,
    rng: SecureRng,
    out: Vec<u8>,
}

impl AccessStation {
    /// Creates a station.
    #[must_use]
    pub fn new(config: StationConfig, rng: SecureRng) -> Self {
        Self {
            config,
            state: StationState::Idle,
            pkm: StationEapSide::new(),
            deadline: None,
            epoch: WallTime::UNIX_EPOCH,
            outputs: OutputQueue::default(),
            counters: StationCounters::default(),
            keying: keying::KeyingCounters::default(),
            rng,
            out: Vec::new(),
        }
    }
    /// Returns the counters.
    #[must_use]
    pub const fn counters(&self) -> &StationCounters {
        &self.counters
    }
    /// Returns the counters of key exchanges.
    #[must_use]
    pub fn keying_counters(&self) -> keying::KeyingCounters {
        let mut sum = self.keying;
        if let StationState::Keying(keying, _) = &self.state {
            sum.add(keying.counters());
        }
        sum
    }

    fn send_frame(&mut self, said: StationFrame<'_>, again: bool) {
        let octets = if let StationFrame::Eap(packet) | StationFrame::Keying(packet) = said {
            packet.len()
        } else {
            0
        };
        let mut buf = self.outputs.take_buffer();
        buf.reserve(frame::OVERHEAD + octets);
        let ways = (self.config.authenticator, self.config.mac);
        if self.config.access.write_frame_to_authenticator(&mut buf, ways, &mut self.pkm, said, again) {
            self.outputs.push_transmit(Transmit::Frame { port: self.config.port }, buf);
        } else {
            self.outputs.recycle_buffer(buf);
        }
    }
    fn set_deadline(&mut self, now: Instant, span: Duration) {
        self.deadline = Some(now + span);
    }

    fn start_authentication(&mut self, now: Instant, identity: Vec<u8>, credentials: EapCredentials) {
        let config = peer::EapPeerConfig {
            identity,
            methods: credentials.0,
            // The station has its own timeout, so EAP needs none.
            timeout: Duration::MAX,
            wall: now.to_wall_time(self.epoch),
        };
        let peer = Box::new(EapPeer::new(config, SecureRng::from_seed(self.rng.random_array()), now));
        self.counters.attempts += 1;
        self.abort_attempt();
        self.state = StationState::Connecting { start_count: 1, peer };
        self.send_frame(StationFrame::Start, false);
        self.set_deadline(now, self.config.start_period);
    }

    /// Ends the pending attempt without an event.
    fn abort_attempt(&mut self) {
        if let StationState::Keying(keying, _) = core::mem::replace(&mut self.state, StationState::Idle) {
            self.keying.add(keying.counters());
            self.pkm.resume_after_identifier(keying.identifier());
        }
        self.deadline = None;
    }

    fn finish_attempt(&mut self, event: StationEvent) {
        self.abort_attempt();
        *match event {
            StationEvent::Success { .. } => &mut self.counters.successes,
            StationEvent::Failure => &mut self.counters.failures,
            StationEvent::Timeout => &mut self.counters.timeouts,
            StationEvent::Unkeyed => &mut self.counters.unkeyed,
            // This event does not end an attempt.
            StationEvent::Admitted => return,
        } += 1;
        self.outputs.push_event(event);
    }

    fn handle_frame(&mut self, now: Instant, data: &[u8]) {
        let received = match self.config.access.parse_authenticator_frame(data, &self.pkm) {
            Ok(received) => received,
            Err(why) => {
                *match why {
                    FrameDropReason::NotForUs => &mut self.counters.not_for_us,
                    FrameDropReason::Malformed => &mut self.counters.malformed,
                    FrameDropReason::UnknownEapol => &mut self.counters.unknown_eapol,
                    FrameDropReason::UnknownPkm => &mut self.counters.unknown_pkm,
                    FrameDropReason::StalePkm => &mut self.counters.stale_pkm,
                } += 1;
                return;
            }
        };
        if received.destination != self.config.mac && received.destination != frame::PAE_GROUP {
            self.counters.not_for_us += 1;
            return;
        }
        match received.body {
            AuthenticatorFrame::Eap(packet) => self.handle_eap(now, packet, received.source),
            AuthenticatorFrame::Keying(message) => {
                let StationState::Keying(keying, _) = &mut self.state else {
                    self.counters.unknown_pkm += 1;
                    return;
                };
                keying.handle_message(now, message);
                self.drain_keying();
            }
        }
    }

    /// Drains the key exchange.
    fn drain_keying(&mut self) {
        let StationState::Keying(keying, msk) = &mut self.state else { return };
        while let Some(work) = keying.poll_work() {
            self.outputs.push_work(work);
        }
        let mut out = core::mem::take(&mut self.out);
        let speaks = keying.poll_transmit(&mut out);
        let end = keying.poll_event().map(|event| match event {
            keying::KeyingEvent::Keyed(_) => StationEvent::Success { msk: Some(msk.clone()) },
            keying::KeyingEvent::Failed(_) => StationEvent::Unkeyed,
        });
        self.deadline = keying.poll_timeout();
        if speaks {
            self.send_frame(StationFrame::Keying(&out), false);
        }
        self.out = out;
        if let Some(end) = end {
            self.finish_attempt(end);
        }
    }

    /// Handles the success of EAP.
    fn handle_eap_success(&mut self, now: Instant, msk: Option<SecretValue<[u8; 64]>>, base: MacAddress) {
        let config = self.config.keying.filter(|_| self.config.access == AccessMedium::Wimax);
        match (config, msk) {
            (None, msk) => self.finish_attempt(StationEvent::Success { msk }),
            (Some(_), None) => self.finish_attempt(StationEvent::Unkeyed),
            (Some(config), Some(msk)) => {
                let key = AuthorizationKey::new(&msk, self.config.mac.0, base.0, 0);
                self.outputs.push_work(WorkRecord { label: usher_pkm::work::DERIVE, units: 1 });
                let identifier = self.pkm.identifier();
                let keying = keying::StationKeying::new(config, key, identifier, &mut self.rng, now);
                self.state = StationState::Keying(Box::new(keying), msk);
                self.outputs.push_event(StationEvent::Admitted);
                self.drain_keying();
            }
        }
    }

    fn handle_eap(&mut self, now: Instant, packet: &[u8], from: MacAddress) {
        let (StationState::Talking(peer) | StationState::Connecting { peer, .. }) = &mut self.state else {
            self.counters.bad_eap += 1;
            return;
        };
        if !peer.handle_packet(now, packet) {
            self.counters.bad_eap += 1;
            return;
        }
        while let Some(work) = peer.poll_work() {
            self.outputs.push_work(work);
        }
        let mut out = core::mem::take(&mut self.out);
        let responds = peer.poll_transmit(&mut out);
        let end = peer.poll_event();
        if responds {
            self.state = match core::mem::replace(&mut self.state, StationState::Idle) {
                StationState::Connecting { peer, .. } => StationState::Talking(peer),
                other => other,
            };
            self.send_frame(StationFrame::Eap(&out), false);
            self.set_deadline(now, self.config.auth_timeout);
        }
        self.out = out;
        match end {
            None => {}
            Some(peer::EapPeerEvent::Success { keys }) => {
                self.handle_eap_success(now, keys.map(|k| k.msk), from);
            }
            Some(peer::EapPeerEvent::Failure) => self.finish_attempt(StationEvent::Failure),
            Some(peer::EapPeerEvent::Timeout) => self.finish_attempt(StationEvent::Timeout),
        }
    }

    fn handle_timeout(&mut self, now: Instant) {
        if self.deadline.is_none_or(|at| at > now) {
            return;
        }
        match &mut self.state {
            StationState::Connecting { start_count: said, .. } if *said < self.config.max_start => {
                *said += 1;
                self.counters.starts_repeated += 1;
                self.send_frame(StationFrame::Start, true);
                self.set_deadline(now, self.config.start_period);
            }
            StationState::Connecting { .. } | StationState::Talking(_) => {
                self.finish_attempt(StationEvent::Timeout)
            }
            StationState::Keying(keying, _) => {
                keying.handle_timeout(now);
                self.drain_keying();
            }
            StationState::Idle => self.deadline = None,
        }
    }
}

impl Machine for AccessStation {
    type Command = StationCommand;
    type Event = StationEvent;
    type Job = NoJob;

    fn set_epoch(&mut self, _: Instant, epoch: WallTime) {
        self.epoch = epoch;
    }

    fn handle_input(&mut self, now: Instant, input: MachineInput<'_>) {
        match input {
            MachineInput::Frame { port, data } if port == self.config.port => self.handle_frame(now, data),
            MachineInput::Timeout => self.handle_timeout(now),
            MachineInput::Frame { .. } => self.counters.not_for_us += 1,
            MachineInput::Datagram { .. } | MachineInput::Stream { .. } | MachineInput::Message { .. } => {
                self.counters.not_a_frame += 1;
            }
        }
    }

    fn handle_command(&mut self, now: Instant, command: StationCommand) -> Result<(), CommandError> {
        match command {
            StationCommand::Authenticate { identity, credentials } => {
                self.start_authentication(now, identity, credentials);
            }
            StationCommand::LogOff => {
                self.abort_attempt();
                self.send_frame(StationFrame::Logoff, false);
            }
        }
        Ok(())
    }

    fn poll_output(&mut self, buf: &mut Vec<u8>) -> Option<MachineOutputOf<Self>> {
        self.outputs.poll(buf)
    }

    fn poll_timeout(&mut self) -> Option<Instant> {
        self.deadline
    }
}
