//! The security policy database (RFC 4301 §4.4.1): what becomes of which traffic, in an order.

use crate::ip::PacketFlow;
use crate::selector::TrafficSelector;
use alloc::vec::Vec;

/// A policy's name: the caller's.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct PolicyId(pub u32);

/// What becomes of a packet (RFC 4301 §4.4.1).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum PolicyAction {
    /// It is dropped.
    #[default]
    Discard,
    /// It goes on as it is: BYPASS.
    Forward,
    /// It is carried by an SA of the policy. Where there is none, one is asked for, and the packet waits.
    Protect,
}

/// What becomes of some traffic.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SecurityPolicy {
    /// Its name.
    pub id: PolicyId,
    /// Traffic of this side: of packets that go the source.
    pub local: Vec<TrafficSelector>,
    /// Traffic of the other side: of packets that go the destination.
    pub remote: Vec<TrafficSelector>,
    /// What becomes of it.
    pub action: PolicyAction,
}

/// Whether a packet that goes is of this traffic.
#[must_use]
pub fn selects_flow(local: &[TrafficSelector], remote: &[TrafficSelector], flow: &PacketFlow) -> bool {
    let ports = flow.ports;
    let is = |selectors: &[TrafficSelector], address, port| {
        selectors.iter().any(|selector| selector.matches(flow.protocol, address, port))
    };
    is(local, flow.source, ports.map(|ports| ports.0))
        && is(remote, flow.destination, ports.map(|ports| ports.1))
}

/// All policies in their order.
#[derive(Debug, Default)]
pub(crate) struct PolicyDatabase {
    policies: Vec<SecurityPolicy>,
}

impl PolicyDatabase {
    pub(crate) fn set_policies(&mut self, policies: Vec<SecurityPolicy>) {
        self.policies = policies;
    }
    /// The first that a packet that goes is of.
    pub(crate) fn first_match(&self, flow: &PacketFlow) -> Option<&SecurityPolicy> {
        self.policies.iter().find(|policy| selects_flow(&policy.local, &policy.remote, flow))
    }
    /// Whether a packet that goes is dropped by a policy.
    pub(crate) fn discards_flow(&self, flow: &PacketFlow) -> bool {
        self.first_match(flow).is_some_and(|policy| policy.action == PolicyAction::Discard)
    }
    pub(crate) fn has_policy(&self, id: PolicyId) -> bool {
        self.policies.iter().any(|policy| policy.id == id)
    }
}
