//! The router's end of a link: advertises the link's prefix (RFC 4861 §6.2) and delegates another (RFC 8415 §18.3).

use super::dhcp::{Dhcpv6Message, Dhcpv6MessageType, Dhcpv6Status, IaPd, IaPrefix};
use super::neighbor::{PrefixInformation, RouterAdvertisement, SOLICITATION, is_solicitation};
use super::{
    ALL_NODES, Ipv6Prefix, LinkLocalPacket, LinkLocalPayload, dhcp_packet, icmp_packet, is_link_local,
};
use alloc::vec::Vec;
use core::net::Ipv6Addr;
use usher_core::{Duration, Instant, SecureRng};

/// MaxRtrAdvInterval's and MinRtrAdvInterval's defaults (RFC 4861 §6.2.1).
const MAX_INTERVAL: Duration = Duration::from_secs(600);
const MIN_INTERVAL: Duration = Duration::from_secs(200);
/// RFC 4861 §10.
const MAX_INITIAL_INTERVAL: Duration = Duration::from_secs(16);
const MAX_INITIAL: u32 = 3;
const MIN_DELAY_BETWEEN: Duration = Duration::from_secs(3);
const MAX_DELAY: Duration = Duration::from_millis(500);
/// AdvDefaultLifetime: three times the maximum interval.
const ROUTER_LIFETIME: u16 = 1800;
/// Preferred and valid lifetimes of prefixes, in seconds. They are short because a prefix ends with its session. Each
/// advertisement and each Renew restarts them.
const PREFERRED: u32 = 3600;
const VALID: u32 = 7200;

/// The prefixes and name servers that a router gives.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct RouterConfig {
    /// The link's prefix, for address autoconfiguration.
    pub(crate) prefix: Option<Ipv6Prefix>,
    /// The prefix for the host's network, delegated by DHCPv6.
    pub(crate) delegated: Option<Ipv6Prefix>,
    pub(crate) dns: Vec<Ipv6Addr>,
    pub(crate) duid: Vec<u8>,
    pub(crate) mtu: u16,
}

/// The router's end of the link.
#[derive(Debug)]
pub(crate) struct Ipv6Router {
    offer: RouterConfig,
    own: Ipv6Addr,
    due: Instant,
    last: Option<Instant>,
    sent: u32,
}

impl Ipv6Router {
    /// Starts to advertise.
    pub(crate) fn new(offer: RouterConfig, own: Ipv6Addr, now: Instant) -> Self {
        Self { offer, own, due: now, last: None, sent: 0 }
    }
    pub(crate) const fn poll_timeout(&self) -> Option<Instant> {
        Some(self.due)
    }

    /// Sends the advertisement that is due.
    pub(crate) fn handle_timeout(&mut self, now: Instant, rng: &mut SecureRng, out: &mut Vec<Vec<u8>>) {
        if self.due > now {
            return;
        }
        let RouterConfig { prefix, delegated, dns, mtu, .. } = &self.offer;
        let information = |prefix| PrefixInformation {
            prefix,
            // The link has only two ends. Packets to other addresses of the prefix go to the router.
            on_link: false,
            autonomous: true,
            valid: VALID,
            preferred: PREFERRED,
        };
        let advertisement = RouterAdvertisement {
            hop_limit: 64,
            managed: false,
            other: delegated.is_some() || !dns.is_empty(),
            lifetime: ROUTER_LIFETIME,
            mtu: Some(u32::from(*mtu)),
            prefixes: prefix.map(information).into_iter().collect(),
            ..RouterAdvertisement::default()
        };
        out.push(icmp_packet(self.own, ALL_NODES, advertisement.to_vec()));
        self.last = Some(now);
        self.sent = self.sent.saturating_add(1);
        let interval = MIN_INTERVAL + (MAX_INTERVAL - MIN_INTERVAL).mul_f64(rng.sample_unit());
        self.due = now + if self.sent < MAX_INITIAL { interval.min(MAX_INITIAL_INTERVAL) } else { interval };
    }

    /// Handles a packet; false if it is not for a router or breaks a rule.
    pub(crate) fn receive_packet(
        &mut self,
        now: Instant,
        packet: LinkLocalPacket<'_>,
        rng: &mut SecureRng,
        out: &mut Vec<Vec<u8>>,
    ) -> bool {
        match packet.payload {
            // RFC 4861, 6.1.1: a hop limit other than 255 drops the solicitation.
            LinkLocalPayload::Icmp { kind: SOLICITATION, code: 0, body } if packet.hop_limit == 255 => {
                if !is_solicitation(body) {
                    return false;
                }
                // RFC 4861, 6.2.6: the advertisement waits for a random delay, and for the minimum interval since the
                // last one.
                let soon = now + MAX_DELAY.mul_f64(rng.sample_unit());
                let earliest = self.last.map_or(soon, |last| (last + MIN_DELAY_BETWEEN).max(soon));
                self.due = self.due.min(earliest);
                true
            }
            LinkLocalPayload::Dhcp { for_server: true, message } if is_link_local(packet.source) => {
                let answer =
                    Dhcpv6Message::parse(message).and_then(|message| self.answer_dhcpv6_message(&message));
                let taken = answer.is_some();
                out.extend(answer.map(|answer| dhcp_packet(self.own, packet.source, false, &answer)));
                taken
            }
            _ => false,
        }
    }

    /// Returns the answer to a client's message; `None`: the message is discarded (RFC 8415 §16).
    fn answer_dhcpv6_message(&self, message: &Dhcpv6Message<'_>) -> Option<Vec<u8>> {
        let ours = message.server == Some(&self.offer.duid[..]);
        let valid = match message.kind {
            Dhcpv6MessageType::SOLICIT | Dhcpv6MessageType::REBIND => {
                message.client.is_some() && message.server.is_none()
            }
            Dhcpv6MessageType::REQUEST | Dhcpv6MessageType::RENEW | Dhcpv6MessageType::RELEASE => {
                message.client.is_some() && ours
            }
            Dhcpv6MessageType::INFORMATION_REQUEST => {
                (message.server.is_none() || ours)
                    && message.delegations.is_empty()
                    && message.addresses.is_empty()
            }
            _ => false,
        };
        if !valid {
            return None;
        }
        let advertises = message.kind == Dhcpv6MessageType::SOLICIT;
        let kind = if advertises { Dhcpv6MessageType::ADVERTISE } else { Dhcpv6MessageType::REPLY };
        let releases = message.kind == Dhcpv6MessageType::RELEASE;
        // Only the first association gets the session's prefix. The prefix is bound to the session, so it is the same
        // for every client DUID.
        let delegations = message.delegations.iter().enumerate().map(|(n, wish)| {
            match self.offer.delegated.filter(|_| n == 0) {
                Some(prefix) => delegate_prefix(wish, prefix),
                None => {
                    // RFC 8415, 18.3.2, 18.3.4, 18.3.9: NoPrefixAvail, or NoBinding for an unknown association.
                    let again = matches!(message.kind, Dhcpv6MessageType::RENEW | Dhcpv6MessageType::REBIND);
                    let status =
                        Some(if again { Dhcpv6Status::NO_BINDING } else { Dhcpv6Status::NO_PREFIXES });
                    IaPd { iaid: wish.iaid, status, ..IaPd::default() }
                }
            }
        });
        let answer = Dhcpv6Message {
            client: message.client,
            server: Some(&self.offer.duid),
            preference: advertises.then_some(u8::MAX),
            addresses: message.addresses.clone(),
            delegations: if releases { Vec::new() } else { delegations.collect() },
            status: releases.then_some(Dhcpv6Status::SUCCESS),
            dns: if message.wants_dns { self.offer.dns.clone() } else { Vec::new() },
            ..Dhcpv6Message::new(kind, message.transaction)
        };
        Some(answer.to_vec())
    }
}

/// Grants the prefix to an association, and ends other prefixes of the client by zero lifetimes (RFC 8415 §18.3.4).
fn delegate_prefix(wish: &IaPd, prefix: Ipv6Prefix) -> IaPd {
    let strays = wish.prefixes.iter().filter(|one| one.prefix != prefix && one.valid > 0);
    let strays = strays.map(|one| IaPrefix { preferred: 0, valid: 0, ..*one });
    let granted = IaPrefix { prefix, preferred: PREFERRED, valid: VALID };
    IaPd {
        iaid: wish.iaid,
        // RFC 8415, 21.21: T1 and T2 are 0.5 and 0.8 of the preferred lifetime.
        t1: PREFERRED / 2,
        t2: PREFERRED / 10 * 8,
        prefixes: core::iter::once(granted).chain(strays).collect(),
        status: None,
    }
}
