//! Echo-Requests: liveness of the peer (RFC 2516 §7), and a test whether long packets pass (RFC 4638 §5.2).

use super::{EndReason, LinkConfig, PppLink, PppLinkOutput};
use crate::packet::{ControlCode, ControlPacket, HEADER, PppProtocol};
use alloc::vec::Vec;
use usher_core::timer::earliest_deadline;
use usher_core::{Duration, Instant, SecureRng};

/// Octets of a PPP packet that every Ethernet carries: 1500 without the headers of PPPoE and PPP (RFC 2516 §7).
const ORDINARY: u16 = 1492;
/// Attempts of the test with a long packet, and the wait for each reply.
const TRIES: u32 = 3;
const REPLY_TIMEOUT: Duration = Duration::from_secs(1);
/// Probes of a peer whose place another session wants, and the wait for each reply.
const PROBES: u32 = 2;
const PROBE: Duration = Duration::from_secs(2);

/// The Echo-Requests of a link.
#[derive(Debug)]
pub(super) struct EchoKeepalive {
    interval: Duration,
    /// The first interval, as a fraction of the interval. It is random, to spread the requests of many links.
    phase: f64,
    due: Option<Instant>,
    /// The identifier of the last request, and the number of requests without a reply.
    identifier: u8,
    unanswered: u32,
    /// True during a probe outside the interval.
    probing: bool,
    /// True if LCP is open and requests can be sent.
    open: bool,
    /// The test with a long packet.
    trial: MtuProbe,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum MtuProbe {
    /// No packets longer than 1492 octets are wanted.
    None,
    /// An Echo-Request of this length is unanswered; `left` retransmissions remain.
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
            // RFC 4638, 5.2: no packet is longer than usual before a test packet of that size has passed.
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
    /// Sends the Echo-Request that is due.
    pub(super) fn handle_echo_timeout(&mut self, now: Instant) {
        if self.keepalive.due.is_some_and(|at| at <= now) {
            let (most, each) = match self.keepalive.probing {
                true => (PROBES, PROBE),
                false => (self.config.echo_failures, self.keepalive.interval),
            };
            if each.is_zero() {
                // Periodic requests are off and the peer has answered the probe, so none is due.
                self.keepalive.due = None;
            } else if self.keepalive.unanswered >= most {
                return self.end_link_without_lcp(EndReason::Unreachable);
            } else {
                self.keepalive.unanswered += 1;
                self.keepalive.identifier = self.send_lcp_echo_request(HEADER + 4);
                self.keepalive.due = Some(now + each);
            }
        }
        if let MtuProbe::Out { octets, left, due, .. } = self.keepalive.trial
            && due <= now
        {
            self.keepalive.trial = MtuProbe::None;
            if left > 0 {
                let identifier = self.send_lcp_echo_request(octets.into());
                let due = now + REPLY_TIMEOUT;
                self.keepalive.trial = MtuProbe::Out { identifier, octets, left: left - 1, due };
            }
        }
    }

    /// Probes the peer at once, because another session wants its place.
    pub(crate) fn probe_link_peer(&mut self, now: Instant) {
        if self.keepalive.open && !self.keepalive.probing {
            (self.keepalive.probing, self.keepalive.unanswered) = (true, 0);
            self.keepalive.due = Some(now);
        }
    }

    /// Sends an Echo-Request of `octets` in all, with the magic number in front.
    fn send_lcp_echo_request(&mut self, octets: usize) -> u8 {
        let mut data = self.lcp.options.magic.unwrap_or(0).to_be_bytes().to_vec();
        data.resize(octets - HEADER, 0);
        let (code, identifier) = (ControlCode::ECHO_REQUEST, self.lcp.next_identifier());
        self.send_packet(PppProtocol::LCP, ControlPacket { code, identifier, data: &data }.to_vec());
        identifier
    }

    /// Answers the peer's Echo-Request (RFC 1661 §5.8).
    pub(super) fn echo_reply(&mut self, identifier: u8, data: &[u8]) {
        let magic = self.lcp.options.magic.unwrap_or(0).to_be_bytes();
        let mut data: Vec<u8> = [&magic[..], data.get(4..).unwrap_or_default()].concat();
        // The peer may send a longer request than its own MRU lets it receive, so the reply is truncated.
        data.truncate(usize::from(self.lcp.options.mtu()) - HEADER);
        let code = ControlCode::ECHO_REPLY;
        self.send_packet(PppProtocol::LCP, ControlPacket { code, identifier, data: &data }.to_vec());
    }

    /// Handles an Echo-Reply; false if it matches no request.
    pub(super) fn handle_echo_reply(&mut self, packet: ControlPacket<'_>) -> bool {
        if let MtuProbe::Out { identifier, octets, .. } = self.keepalive.trial
            && identifier == packet.identifier
            && packet.data.len() + HEADER == usize::from(octets)
        {
            self.keepalive.trial = MtuProbe::Passed(octets);
            self.outputs.push(PppLinkOutput::Mtu(octets));
            return true;
        }
        let asked = self.keepalive.unanswered > 0 && self.keepalive.identifier == packet.identifier;
        if asked {
            (self.keepalive.unanswered, self.keepalive.probing) = (0, false);
        }
        asked
    }
}
