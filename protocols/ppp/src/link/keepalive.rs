//! Echo-Requests: whether the peer still answers (RFC 2516 §7), and whether long packets pass (RFC 4638 §5.2).

use super::{EndReason, LinkConfig, LinkOutput, PppLink};
use crate::packet::{ControlCode, ControlPacket, HEADER, PppProtocol};
use alloc::vec::Vec;
use usher_core::timer::earliest_deadline;
use usher_core::{Duration, Instant, SecureRng};

/// Octets that pass each Ethernet: 1500 without the headers of PPPoE and PPP (RFC 2516 §7).
const ORDINARY: u16 = 1492;
/// How often a long packet is tried, and how long is waited for the reply.
const TRIES: u32 = 3;
const REPLY_TIMEOUT: Duration = Duration::from_secs(1);
/// How often it is asked whether a peer is there that somebody else seems to have taken the place of, and how long is waited each time.
const PROBES: u32 = 2;
const PROBE: Duration = Duration::from_secs(2);

/// What is out.
#[derive(Debug)]
pub(super) struct EchoKeepalive {
    interval: Duration,
    /// The share of the interval after which the first is sent, so that the requests of many links are spread.
    phase: f64,
    due: Option<Instant>,
    /// The identifier of the last request, and how many are without reply.
    identifier: u8,
    unanswered: u32,
    /// Whether the peer is there is asked now, and not when it is time.
    probing: bool,
    /// Requests can be sent.
    open: bool,
    /// The search for the longest packet that passes.
    trial: MtuProbe,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum MtuProbe {
    /// No longer packets than ordinary ones are wanted.
    None,
    /// An Echo-Request of this identifier and length is out, and may be sent so many times again.
    Out { identifier: u8, octets: u16, left: u32, due: Instant },
    /// Packets of this length pass.
    Passed(u16),
}

impl EchoKeepalive {
    pub(super) fn new(config: &LinkConfig, rng: &mut SecureRng) -> Self {
        Self {
            interval: config.echo_interval,
            phase: 0.5 + rng.sample_unit() / 2.0,
            due: None,
            identifier: 0,
            unanswered: 0,
            probing: false,
            open: false,
            trial: MtuProbe::None,
        }
    }
    pub(super) fn usable_mtu(&self, agreed: u16) -> u16 {
        match self.trial {
            MtuProbe::Passed(octets) => octets.min(agreed),
            _ => agreed.min(ORDINARY),
        }
    }
    pub(super) fn start(&mut self, now: Instant, agreed: u16) {
        (self.unanswered, self.probing, self.open) = (0, false, true);
        self.due = (!self.interval.is_zero()).then(|| now + self.interval.mul_f64(self.phase));
        self.trial = MtuProbe::None;
        if agreed > ORDINARY {
            self.trial = MtuProbe::Out { identifier: 0, octets: agreed, left: TRIES, due: now };
        }
    }
    pub(super) fn stop(&mut self) {
        (self.due, self.trial, self.open) = (None, MtuProbe::None, false);
    }
    pub(super) fn poll_timeout(&self) -> Option<Instant> {
        let trial = if let MtuProbe::Out { due, .. } = self.trial { Some(due) } else { None };
        earliest_deadline([self.due, trial])
    }
}

impl PppLink {
    /// The time for an Echo-Request has come.
    pub(super) fn handle_echo_timeout(&mut self, now: Instant) {
        if self.keepalive.due.is_some_and(|at| at <= now) {
            let (most, each) = match self.keepalive.probing {
                true => (PROBES, PROBE),
                false => (self.config.echo_failures, self.keepalive.interval),
            };
            if each.is_zero() {
                // A probe was answered, and nobody wants to know more.
                self.keepalive.due = None;
            } else if self.keepalive.unanswered >= most {
                return self.abort_link(EndReason::Unreachable);
            } else {
                self.keepalive.unanswered += 1;
                self.keepalive.identifier = self.send_echo(HEADER + 4);
                self.keepalive.due = Some(now + each);
            }
        }
        if let MtuProbe::Out { octets, left, due, .. } = self.keepalive.trial
            && due <= now
        {
            self.keepalive.trial = MtuProbe::None;
            if left > 0 {
                let identifier = self.send_echo(octets.into());
                let due = now + REPLY_TIMEOUT;
                self.keepalive.trial = MtuProbe::Out { identifier, octets, left: left - 1, due };
            }
        }
    }

    /// Whether the peer is still there is asked at once: somebody wants what it has.
    pub(crate) fn probe_peer(&mut self, now: Instant) {
        if self.keepalive.open && !self.keepalive.probing {
            (self.keepalive.probing, self.keepalive.unanswered) = (true, 0);
            self.keepalive.due = Some(now);
        }
    }

    /// An Echo-Request that is so long in all, with the magic number in front.
    fn send_echo(&mut self, octets: usize) -> u8 {
        let mut data = self.lcp.options.magic.unwrap_or(0).to_be_bytes().to_vec();
        data.resize(octets - HEADER, 0);
        let (code, identifier) = (ControlCode::ECHO_REQUEST, self.lcp.next_identifier());
        self.send_packet(PppProtocol::LCP, ControlPacket { code, identifier, data: &data }.to_vec());
        identifier
    }

    /// The reply to the peer's Echo-Request (RFC 1661 §5.8).
    pub(super) fn echo_reply(&mut self, identifier: u8, data: &[u8]) {
        let magic = self.lcp.options.magic.unwrap_or(0).to_be_bytes();
        let mut data: Vec<u8> = [&magic[..], data.get(4..).unwrap_or_default()].concat();
        // The other side may ask with more than it takes.
        data.truncate(usize::from(self.lcp.options.mtu()) - HEADER);
        let code = ControlCode::ECHO_REPLY;
        self.send_packet(PppProtocol::LCP, ControlPacket { code, identifier, data: &data }.to_vec());
    }

    /// An Echo-Reply has come; false: nothing asked for it.
    pub(super) fn handle_echo_reply(&mut self, packet: ControlPacket<'_>) -> bool {
        if let MtuProbe::Out { identifier, octets, .. } = self.keepalive.trial
            && identifier == packet.identifier
            && packet.data.len() + HEADER == usize::from(octets)
        {
            self.keepalive.trial = MtuProbe::Passed(octets);
            self.outputs.push(LinkOutput::Mtu(octets));
            return true;
        }
        let asked = self.keepalive.unanswered > 0 && self.keepalive.identifier == packet.identifier;
        if asked {
            (self.keepalive.unanswered, self.keepalive.probing) = (0, false);
        }
        asked
    }
}
