//! The host's end of a link: solicits advertisements (RFC 4861 §6.3) and requests a prefix (RFC 8415 §18.2).

use super::dhcp::{Dhcpv6Message, Dhcpv6MessageType, Dhcpv6Status, IaPd, IaPrefix};
use super::neighbor::{ADVERTISEMENT, RouterAdvertisement, router_solicitation};
use super::{
    ALL_DHCP_SERVERS, ALL_ROUTERS, Ipv6Prefix, LinkLocalPacket, LinkLocalPayload, dhcp_packet, icmp_packet,
    is_link_local,
};
use alloc::vec::Vec;
use core::net::Ipv6Addr;
use usher_core::timer::earliest_deadline;
use usher_core::{Duration, Instant, SecureRng};

/// RFC 4861 §10.
const MAX_SOLICITATIONS: u32 = 3;
const SOLICITATION_INTERVAL: Duration = Duration::from_secs(4);
/// The IAID of the only association.
const IAID: u32 = 1;

/// A prefix that was delegated to a host for its own network.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DelegatedPrefix {
    /// The prefix.
    pub prefix: Ipv6Prefix,
    /// Preferred lifetime in seconds; `u32::MAX`: infinite.
    pub preferred: u32,
    /// Valid lifetime in seconds; `u32::MAX`: infinite.
    pub valid: u32,
    /// Name servers.
    pub dns: Vec<Ipv6Addr>,
}

/// An output of the host's end.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Ipv6HostOutput {
    Send(Vec<u8>),
    Advertised(RouterAdvertisement),
    /// The delegated prefix; `None`: it is withdrawn.
    Delegated(Option<DelegatedPrefix>),
}

/// The state of a message exchange with its retransmissions (RFC 8415 §15).
#[derive(Clone, Debug)]
struct Dhcpv6Exchange {
    kind: Dhcpv6MessageType,
    transaction: [u8; 3],
    started_at: Instant,
    timeout: Duration,
    sent: u32,
    due: Instant,
}

/// Returns IRT, MRT and MRC of a message (RFC 8415 §7.6).
const fn retransmission_times(kind: Dhcpv6MessageType) -> (Duration, Duration, u32) {
    let (first, most, count) = match kind {
        Dhcpv6MessageType::SOLICIT => (1, 3600, 0),
        Dhcpv6MessageType::REQUEST => (1, 30, 10),
        _ => (10, 600, 0),
    };
    (Duration::from_secs(first), Duration::from_secs(most), count)
}

/// The delegated prefix and its deadlines.
#[derive(Clone, Debug)]
struct BoundPrefix {
    prefix: Ipv6Prefix,
    renew: Instant,
    rebind: Instant,
    expires: Instant,
}

#[derive(Debug)]
struct Dhcpv6Client {
    duid: Vec<u8>,
    exchange: Option<Dhcpv6Exchange>,
    server: Vec<u8>,
    bound: Option<BoundPrefix>,
}

/// The host's end of the link.
#[derive(Debug)]
pub(crate) struct Ipv6Host {
    own: Ipv6Addr,
    /// Router Solicitations sent, and the time of the next.
    solicited: u32,
    solicit: Option<Instant>,
    requester: Option<Dhcpv6Client>,
}

fn lifetime_deadline(now: Instant, seconds: u32) -> Instant {
    if seconds == u32::MAX { Instant::FAR_FUTURE } else { now + Duration::from_secs(seconds.into()) }
}

impl Ipv6Host {
    /// Starts to solicit. With a `duid`, it also requests a prefix.
    pub(crate) fn new(own: Ipv6Addr, duid: Option<Vec<u8>>, now: Instant, rng: &mut SecureRng) -> Self {
        let begin = |duid| {
            let mut one = Dhcpv6Client { duid, exchange: None, server: Vec::new(), bound: None };
            // RFC 8415, 18.2.1: the first Solicit waits for a random delay up to SOL_MAX_DELAY.
            one.start_exchange(
                now + Duration::from_secs(1).mul_f64(rng.sample_unit()),
                Dhcpv6MessageType::SOLICIT,
                rng,
            );
            one
        };
        Self { own, solicited: 0, solicit: Some(now), requester: duid.map(begin) }
    }
    pub(crate) fn poll_timeout(&self) -> Option<Instant> {
        let requester = self.requester.as_ref();
        earliest_deadline([self.solicit, requester.and_then(Dhcpv6Client::poll_timeout)])
    }
    pub(crate) fn handle_timeout(
        &mut self,
        now: Instant,
        rng: &mut SecureRng,
        out: &mut Vec<Ipv6HostOutput>,
    ) {
        if self.solicit.is_some_and(|at| at <= now) {
            out.push(Ipv6HostOutput::Send(icmp_packet(self.own, ALL_ROUTERS, router_solicitation())));
            self.solicited += 1;
            let more = self.solicited < MAX_SOLICITATIONS;
            self.solicit = more.then(|| now + SOLICITATION_INTERVAL);
        }
        if let Some(requester) = &mut self.requester {
            requester.handle_timeout(self.own, now, rng, out);
        }
    }
    /// Handles a packet; false if it is not for a host or breaks a rule.
    pub(crate) fn receive_packet(
        &mut self,
        now: Instant,
        packet: LinkLocalPacket<'_>,
        rng: &mut SecureRng,
        out: &mut Vec<Ipv6HostOutput>,
    ) -> bool {
        match packet.payload {
            // RFC 4861, 6.1.2: from a link-local source, with a hop limit of 255.
            LinkLocalPayload::Icmp { kind: ADVERTISEMENT, code: 0, body }
                if packet.hop_limit == 255 && is_link_local(packet.source) =>
            {
                let Some(advertisement) = RouterAdvertisement::parse(body) else { return false };
                self.solicit = None;
                out.push(Ipv6HostOutput::Advertised(advertisement));
                true
            }
            LinkLocalPayload::Dhcp { for_server: false, message } => {
                let (Some(requester), Some(message)) = (&mut self.requester, Dhcpv6Message::parse(message))
                else {
                    return false;
                };
                requester.receive_message(self.own, now, &message, rng, out)
            }
            _ => false,
        }
    }
}

impl Dhcpv6Client {
    fn start_exchange(&mut self, due: Instant, kind: Dhcpv6MessageType, rng: &mut SecureRng) {
        let transaction = rng.random_array();
        let exchange =
            Dhcpv6Exchange { kind, transaction, started_at: due, timeout: Duration::ZERO, sent: 0, due };
        self.exchange = Some(exchange);
    }

    fn poll_timeout(&self) -> Option<Instant> {
        let bound = self.bound.as_ref();
        let next = bound.map(|bound| match self.exchange.as_ref().map(|exchange| exchange.kind) {
            None => bound.renew.min(bound.expires),
            Some(Dhcpv6MessageType::RENEW) => bound.rebind.min(bound.expires),
            Some(_) => bound.expires,
        });
        earliest_deadline([self.exchange.as_ref().map(|exchange| exchange.due), next])
    }

    fn handle_timeout(
        &mut self,
        own: Ipv6Addr,
        now: Instant,
        rng: &mut SecureRng,
        out: &mut Vec<Ipv6HostOutput>,
    ) {
        if let Some(bound) = &self.bound {
            let kind = self.exchange.as_ref().map(|exchange| exchange.kind);
            if bound.expires <= now {
                self.bound = None;
                out.push(Ipv6HostOutput::Delegated(None));
                self.start_exchange(now, Dhcpv6MessageType::SOLICIT, rng);
            } else if bound.rebind <= now && matches!(kind, None | Some(Dhcpv6MessageType::RENEW)) {
                self.start_exchange(now, Dhcpv6MessageType::REBIND, rng);
            } else if bound.renew <= now && kind.is_none() {
                // RFC 8415, 18.2.4: the prefix is renewed at T1.
                self.start_exchange(now, Dhcpv6MessageType::RENEW, rng);
            }
        }
        let Some(exchange) = self.exchange.as_mut().filter(|exchange| exchange.due <= now) else { return };
        let (first, most, count) = retransmission_times(exchange.kind);
        if count > 0 && exchange.sent >= count {
            return self.start_exchange(now, Dhcpv6MessageType::SOLICIT, rng);
        }
        // RFC 8415, 18.2.1: the random part of the first Solicit's timeout is above zero.
        let solicits = exchange.kind == Dhcpv6MessageType::SOLICIT;
        let random = if solicits && exchange.sent == 0 {
            rng.sample_unit() / 10.0
        } else {
            rng.sample_unit() / 5.0 - 0.1
        };
        let next = if exchange.sent == 0 {
            first.mul_f64(1.0 + random)
        } else {
            // RFC 8415, 15: each timeout is twice the last, with a random part.
            exchange.timeout.mul_f64(2.0 + random)
        };
        exchange.timeout = if next > most { most.mul_f64(1.0 + random) } else { next };
        exchange.sent += 1;
        exchange.due = now + exchange.timeout;
        let hundredths = now.duration_since(exchange.started_at).as_millis() / 10;
        let asks_its_server = matches!(exchange.kind, Dhcpv6MessageType::REQUEST | Dhcpv6MessageType::RENEW);
        let had = self.bound.as_ref().map(|bound| IaPrefix { prefix: bound.prefix, preferred: 0, valid: 0 });
        let wish = IaPd { iaid: IAID, prefixes: had.into_iter().collect(), ..IaPd::default() };
        let message = Dhcpv6Message {
            client: Some(&self.duid),
            server: asks_its_server.then_some(&self.server[..]),
            elapsed: Some(u16::try_from(hundredths).unwrap_or(u16::MAX)),
            delegations: [wish].into(),
            wants_dns: true,
            ..Dhcpv6Message::new(exchange.kind, exchange.transaction)
        };
        out.push(Ipv6HostOutput::Send(dhcp_packet(own, ALL_DHCP_SERVERS, true, &message.to_vec())));
    }

    /// Handles an Advertise or Reply (RFC 8415 §16.3, §16.10).
    fn receive_message(
        &mut self,
        own: Ipv6Addr,
        now: Instant,
        message: &Dhcpv6Message<'_>,
        rng: &mut SecureRng,
        out: &mut Vec<Ipv6HostOutput>,
    ) -> bool {
        let Some(exchange) = &self.exchange else { return false };
        let (asked, kind) = (exchange.transaction, exchange.kind);
        let wanted = if kind == Dhcpv6MessageType::SOLICIT {
            Dhcpv6MessageType::ADVERTISE
        } else {
            Dhcpv6MessageType::REPLY
        };
        let Some(server) = message.server else { return false };
        // RFC 8415, 16.3, 16.10: a message without our DUID, a server's, or the transaction is dropped.
        if message.kind != wanted || message.transaction != asked || message.client != Some(&self.duid[..]) {
            return false;
        }
        let association = message.delegations.iter().find(|one| one.iaid == IAID);
        // RFC 8415, 21.21: an association with T1 above T2 is ignored.
        let association = association.filter(|one| one.t1 == 0 || one.t2 == 0 || one.t1 <= one.t2);
        let usable = |one: &&IaPrefix| one.valid > 0;
        let granted = association.and_then(|one| one.prefixes.iter().find(usable));
        if kind == Dhcpv6MessageType::SOLICIT {
            // A link has only one server, so the host waits for no other Advertise. If this one has no prefix, Solicit
            // messages continue.
            if granted.is_none() {
                return true;
            }
            self.server = server.into();
            self.start_exchange(now, Dhcpv6MessageType::REQUEST, rng);
            self.handle_timeout(own, now, rng, out);
            return true;
        }
        match (association, granted) {
            (Some(association), Some(granted)) => {
                self.server = server.into();
                self.exchange = None;
                let IaPrefix { prefix, preferred, valid } = *granted;
                // RFC 8415, 21.21: 0 leaves the choice to the client: 0.5 and 0.8 of the preferred lifetime.
                let share = |told: u32, part: u64| match (told, preferred) {
                    (0, u32::MAX) | (u32::MAX, _) => Instant::FAR_FUTURE,
                    (0, _) => now + Duration::from_secs(u64::from(preferred) * part / 10),
                    _ => lifetime_deadline(now, told),
                };
                let (renew, rebind) = (share(association.t1, 5), share(association.t2, 8));
                let bound = BoundPrefix { prefix, renew, rebind, expires: lifetime_deadline(now, valid) };
                self.bound = Some(bound);
                let dns = message.dns.clone();
                out.push(Ipv6HostOutput::Delegated(Some(DelegatedPrefix { prefix, preferred, valid, dns })));
            }
            (Some(association), None) if association.status == Some(Dhcpv6Status::NO_BINDING) => {
                // RFC 8415, 18.2.10.1: on NoBinding, send a Request for the same prefix.
                self.server = server.into();
                self.start_exchange(now, Dhcpv6MessageType::REQUEST, rng);
            }
            _ => {
                if self.bound.take().is_some() {
                    out.push(Ipv6HostOutput::Delegated(None));
                }
                // The server has just declined, so the next Solicit waits first.
                let (_, pause, _) = retransmission_times(Dhcpv6MessageType::REQUEST);
                self.start_exchange(now + pause, Dhcpv6MessageType::SOLICIT, rng);
            }
        }
        true
    }
}
