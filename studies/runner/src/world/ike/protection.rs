//! The security policies of initiators and gateways, and their CHILD_SAs, as their simulated hosts carry packets by them.

use super::super::report::Report;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use usher_esp::plane::Config;
use usher_esp::{Action, Operation, Policy, PolicyId, TrafficSelector};
use usher_ike::machine::Event;
use usher_scenario::model::Unprotected;
use usher_scenario::ports::{IKE, IKE_NAT};
use usher_sim::Context;

const UDP: u8 = 17;
/// The policy of an initiator for what its gateway gets.
const PROTECT: PolicyId = PolicyId(1);
/// The policy for what goes as it is.
const PASS: PolicyId = PolicyId(0);

/// What a host's databases begin with, and what they are told of CHILD_SAs.
#[derive(Clone, Debug)]
pub(in super::super) struct Protection {
    policies: Vec<Policy>,
    otherwise: Action,
    /// The policy that CHILD_SAs are for.
    policy: Option<PolicyId>,
}

impl Protection {
    /// That of an initiator: packets to its gateway wait for a CHILD_SA, or are dropped where there is none.
    pub(super) fn of_initiator(gateway: IpAddr, without_sa: Unprotected) -> Self {
        match without_sa {
            Unprotected::Hold => {
                let to_gateway = Policy {
                    id: PROTECT,
                    local: vec![all(gateway)],
                    remote: vec![TrafficSelector::address(gateway)],
                    action: Action::Protect,
                };
                let policies = ike(gateway).into_iter().chain([to_gateway]).collect();
                Self { policies, otherwise: Action::Forward, policy: Some(PROTECT) }
            }
            Unprotected::Discard => Self::only_by_sas(vec![gateway]),
        }
    }
    /// That of a gateway: packets to an initiator that has no CHILD_SA are dropped, as `usher ike serve` does.
    pub(super) fn of_gateway(initiators: Vec<IpAddr>) -> Self {
        Self::only_by_sas(initiators)
    }

    /// Packets to these go by SAs alone, those to others as they are.
    fn only_by_sas(mut peers: Vec<IpAddr>) -> Self {
        peers.sort_unstable();
        let family = peers.first().copied().unwrap_or(IpAddr::V4(Ipv4Addr::UNSPECIFIED));
        let others =
            Policy { id: PASS, local: vec![all(family)], remote: all_but(&peers), action: Action::Forward };
        let policies = ike(family).into_iter().chain([others]).collect();
        Self { policies, otherwise: Action::Discard, policy: None }
    }

    /// At the start of its host.
    pub(in super::super) fn begin(&self, ctx: &mut Context<'_, Report>) {
        ctx.begin_protection(Config { otherwise: self.otherwise, ..Config::default() });
        ctx.protect(Operation::Policies(self.policies.clone()));
    }
    /// Takes a CHILD_SA up, or out, where an event says so.
    pub(in super::super) fn follow(&self, ctx: &mut Context<'_, Report>, event: &Event) {
        match event {
            Event::Install { child, .. } => {
                let mut pair = child.pair();
                pair.policy = self.policy;
                ctx.protect(Operation::Install(pair.into()));
            }
            Event::Remove { inbound, .. } => ctx.protect(Operation::Remove { inbound: *inbound }),
            _ => {}
        }
    }
    /// There will be no CHILD_SA for what waits.
    pub(super) fn abandon(&self, ctx: &mut Context<'_, Report>) {
        if let Some(policy) = self.policy {
            ctx.protect(Operation::Abandon(policy));
        }
    }
}

/// All addresses of a family.
fn all(of: IpAddr) -> TrafficSelector {
    let (start, end) = ends(of);
    TrafficSelector { protocol: 0, start_port: 0, end_port: u16::MAX, start, end }
}

fn ends(of: IpAddr) -> (IpAddr, IpAddr) {
    match of {
        IpAddr::V4(_) => (Ipv4Addr::UNSPECIFIED.into(), Ipv4Addr::BROADCAST.into()),
        IpAddr::V6(_) => (Ipv6Addr::UNSPECIFIED.into(), Ipv6Addr::from([0xff; 16]).into()),
    }
}

/// IKE's own messages go as they are (RFC 7296 §2).
fn ike(family: IpAddr) -> [Policy; 2] {
    [IKE, IKE_NAT].map(|port| Policy {
        id: PASS,
        local: vec![TrafficSelector { protocol: UDP, start_port: port, end_port: port, ..all(family) }],
        remote: vec![all(family)],
        action: Action::Forward,
    })
}

/// The addresses of a family without these, which ascend.
fn all_but(peers: &[IpAddr]) -> Vec<TrafficSelector> {
    let number = |address: IpAddr| match address {
        IpAddr::V4(v4) => u128::from(u32::from(v4)),
        IpAddr::V6(v6) => u128::from(v6),
    };
    let Some(&first) = peers.first() else { return vec![all(IpAddr::V4(Ipv4Addr::UNSPECIFIED))] };
    let (start, end) = ends(first);
    let address = |n: u128| match first {
        IpAddr::V4(_) => IpAddr::from(Ipv4Addr::from(n as u32)),
        IpAddr::V6(_) => IpAddr::from(Ipv6Addr::from(n)),
    };
    let mut ranges = Vec::new();
    let mut next = Some(number(start));
    for peer in peers.iter().copied().map(number) {
        let Some(from) = next else { break };
        if peer > from {
            ranges.push((from, peer - 1));
        }
        next = peer.checked_add(1).filter(|next| *next <= number(end));
    }
    ranges.extend(next.map(|from| (from, number(end))));
    let range = |(from, to)| TrafficSelector::range(address(from), address(to));
    ranges.into_iter().filter_map(range).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn everybody_else_is_between_the_peers_and_beside_them() {
        let v4 = |text: &str| text.parse::<IpAddr>().unwrap();
        let ranges = |peers: &[&str]| {
            let peers: Vec<IpAddr> = peers.iter().map(|peer| v4(peer)).collect();
            all_but(&peers).iter().map(|s| format!("{}-{}", s.start, s.end)).collect::<Vec<_>>()
        };
        assert_eq!(
            ranges(&["10.0.0.1", "10.0.0.2", "10.0.0.9"]),
            ["0.0.0.0-10.0.0.0", "10.0.0.3-10.0.0.8", "10.0.0.10-255.255.255.255"]
        );
        assert_eq!(ranges(&["0.0.0.0"]), ["0.0.0.1-255.255.255.255"]);
        assert_eq!(ranges(&["255.255.255.255"]), ["0.0.0.0-255.255.255.254"]);
        let last = format!("::-{}", Ipv6Addr::from(u128::MAX - 1));
        assert_eq!(ranges(&[&Ipv6Addr::from(u128::MAX).to_string()]), [last]);
    }
}
