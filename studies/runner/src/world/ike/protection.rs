//! Security policies of initiators and gateways, and their CHILD_SAs, on simulated hosts.

use super::super::report::RoleReport;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use usher_esp::plane::EspDataPlaneConfig;
use usher_esp::{IpsecOperation, PolicyAction, SecurityPolicy, SecurityPolicyId, TrafficSelector};
use usher_ike::machine::IkeEvent;
use usher_scenario::model::MissingChildSaAction;
use usher_scenario::ports::{IKE, IKE_NAT};
use usher_sim::AppContext;

const UDP: u8 = 17;
/// The policy of an initiator for packets to its gateway.
const PROTECT: SecurityPolicyId = SecurityPolicyId(1);
/// The policy for packets that bypass IPsec.
const PASS: SecurityPolicyId = SecurityPolicyId(0);

/// The initial policies of a host, and the updates for CHILD_SAs.
#[derive(Clone, Debug)]
pub(in super::super) struct HostSecurityPolicies {
    policies: Vec<SecurityPolicy>,
    otherwise: PolicyAction,
    /// The policy that CHILD_SAs belong to.
    policy: Option<SecurityPolicyId>,
}

impl HostSecurityPolicies {
    /// Returns the policies of an initiator: without a CHILD_SA, packets to its gateway wait or are dropped.
    pub(super) fn of_initiator(gateway: IpAddr, without_sa: MissingChildSaAction) -> Self {
        match without_sa {
            MissingChildSaAction::Hold => {
                let to_gateway = SecurityPolicy {
                    id: PROTECT,
                    local: vec![any_address_selector(gateway)],
                    remote: vec![TrafficSelector::from_address(gateway)],
                    action: PolicyAction::Protect,
                };
                let policies = ike_policies(gateway).into_iter().chain([to_gateway]).collect();
                Self { policies, otherwise: PolicyAction::Forward, policy: Some(PROTECT) }
            }
            MissingChildSaAction::Discard => Self::protecting_peers_only(vec![gateway]),
        }
    }
    /// Returns the policies of a gateway: packets to an initiator without a CHILD_SA are dropped, as `usher ike serve`
    /// does.
    pub(super) fn of_gateway(initiators: Vec<IpAddr>) -> Self {
        Self::protecting_peers_only(initiators)
    }

    /// Protects packets to these peers, and bypasses IPsec for all others.
    fn protecting_peers_only(mut peers: Vec<IpAddr>) -> Self {
        peers.sort_unstable();
        let family = peers.first().copied().unwrap_or(IpAddr::V4(Ipv4Addr::UNSPECIFIED));
        let others = SecurityPolicy {
            id: PASS,
            local: vec![any_address_selector(family)],
            remote: selectors_except(&peers),
            action: PolicyAction::Forward,
        };
        let policies = ike_policies(family).into_iter().chain([others]).collect();
        Self { policies, otherwise: PolicyAction::Discard, policy: None }
    }

    /// Installs the policies at the start of its host.
    pub(in super::super) fn install_ipsec_policies(&self, ctx: &mut AppContext<'_, RoleReport>) {
        ctx.begin_protection(EspDataPlaneConfig {
            otherwise: self.otherwise,
            ..EspDataPlaneConfig::default()
        });
        ctx.update_protection(IpsecOperation::Policies(self.policies.clone()));
    }
    /// Installs or removes a CHILD_SA according to an event.
    pub(in super::super) fn apply_event(&self, ctx: &mut AppContext<'_, RoleReport>, event: &IkeEvent) {
        match event {
            IkeEvent::Install { child, .. } => {
                let mut pair = child.sa_pair();
                pair.policy = self.policy;
                ctx.update_protection(IpsecOperation::Install(pair.into()));
            }
            IkeEvent::Remove { inbound, .. } => {
                ctx.update_protection(IpsecOperation::Remove { inbound: *inbound })
            }
            _ => {}
        }
    }
    /// Drops the packets that wait: no CHILD_SA will come.
    pub(super) fn abandon_policy(&self, ctx: &mut AppContext<'_, RoleReport>) {
        if let Some(policy) = self.policy {
            ctx.update_protection(IpsecOperation::Abandon(policy));
        }
    }
}

/// Returns the selector of all addresses of a family.
fn any_address_selector(of: IpAddr) -> TrafficSelector {
    let (start, end) = address_family_range(of);
    TrafficSelector { protocol: 0, start_port: 0, end_port: u16::MAX, start, end }
}

fn address_family_range(of: IpAddr) -> (IpAddr, IpAddr) {
    match of {
        IpAddr::V4(_) => (Ipv4Addr::UNSPECIFIED.into(), Ipv4Addr::BROADCAST.into()),
        IpAddr::V6(_) => (Ipv6Addr::UNSPECIFIED.into(), Ipv6Addr::from([0xff; 16]).into()),
    }
}

/// Bypasses IPsec for IKE's own messages (RFC 7296 §2).
fn ike_policies(family: IpAddr) -> [SecurityPolicy; 2] {
    [IKE, IKE_NAT].map(|port| SecurityPolicy {
        id: PASS,
        local: vec![TrafficSelector {
            protocol: UDP,
            start_port: port,
            end_port: port,
            ..any_address_selector(family)
        }],
        remote: vec![any_address_selector(family)],
        action: PolicyAction::Forward,
    })
}

/// Returns selectors of all addresses of a family but these, which must ascend.
fn selectors_except(peers: &[IpAddr]) -> Vec<TrafficSelector> {
    let number = |address: IpAddr| match address {
        IpAddr::V4(v4) => u128::from(u32::from(v4)),
        IpAddr::V6(v6) => u128::from(v6),
    };
    let Some(&first) = peers.first() else {
        return vec![any_address_selector(IpAddr::V4(Ipv4Addr::UNSPECIFIED))];
    };
    let (start, end) = address_family_range(first);
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
    let range = |(from, to)| TrafficSelector::from_range(address(from), address(to));
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
            selectors_except(&peers).iter().map(|s| format!("{}-{}", s.start, s.end)).collect::<Vec<_>>()
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
