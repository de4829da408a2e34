//! The security policy database (RFC 4301 §4.4.1): an ordered list of policies.

use crate::ip::PacketFlow;
use crate::selector::TrafficSelector;
use alloc::vec::Vec;

/// A policy's id, chosen by the caller.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct SecurityPolicyId(pub u32);

/// The action for a packet (RFC 4301 §4.4.1).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum PolicyAction {
    /// Drop it.
    #[default]
    Discard,
    /// Send it in the clear: BYPASS.
    Forward,
    /// Protect it by an SA of the policy. Without one, an SA is requested and the packet waits.
    Protect,
}

/// A security policy.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SecurityPolicy {
    /// Its id.
    pub id: SecurityPolicyId,
    /// Local traffic selectors: the source of outbound packets.
    pub local: Vec<TrafficSelector>,
    /// The peer's traffic selectors: the destination of outbound packets.
    pub remote: Vec<TrafficSelector>,
    /// The action.
    pub action: PolicyAction,
}

/// True if an outbound packet matches.
#[must_use]
pub fn selects_flow(local: &[TrafficSelector], remote: &[TrafficSelector], flow: &PacketFlow) -> bool {
    let ports = flow.ports;
    let is = |selectors: &[TrafficSelector], address, port| {
        selectors.iter().any(|selector| selector.matches(flow.protocol, address, port))
    };
    is(local, flow.source, ports.map(|ports| ports.0))
        && is(remote, flow.destination, ports.map(|ports| ports.1))
}

/// All policies, in order.
#[derive(Debug, Default)]
pub(crate) struct PolicyDatabase {
    policies: Vec<SecurityPolicy>,
}

impl PolicyDatabase {
    pub(crate) fn set_policies(&mut self, policies: Vec<SecurityPolicy>) {
        self.policies = policies;
    }
    /// Returns the first policy that an outbound packet matches.
    pub(crate) fn first_matching_policy(&self, flow: &PacketFlow) -> Option<&SecurityPolicy> {
        // RFC 4301, 4.4.1: the first match decides.
        self.policies.iter().find(|policy| selects_flow(&policy.local, &policy.remote, flow))
    }
    /// True if a policy discards an outbound packet.
    pub(crate) fn discards_flow(&self, flow: &PacketFlow) -> bool {
        self.first_matching_policy(flow).is_some_and(|policy| policy.action == PolicyAction::Discard)
    }
    pub(crate) fn has_policy(&self, id: SecurityPolicyId) -> bool {
        self.policies.iter().any(|policy| policy.id == id)
    }
}
