//! The configuration of a concentrator.

use crate::auth::AuthenticationProtocol;
use crate::link::LinkConfig;
use crate::pppoe::{MAX_PAYLOAD, MacAddress, OVERHEAD, TokenBucketRate};
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use usher_core::LinkLayerPortId;

/// Octets of an ordinary Ethernet frame's payload.
pub(super) const ETHERNET: u16 = 1500;

/// A port that serves hosts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ConcentratorPort {
    /// The port.
    pub port: LinkLayerPortId,
    /// The concentrator's address at this port.
    pub address: MacAddress,
    /// Octets of the longest payload of a frame at this port (the interface's MTU). Above 1500, hosts can agree on
    /// longer packets (RFC 4638).
    pub mtu: u16,
}

impl ConcentratorPort {
    /// Returns PPP_MRU_Max for a host with this PPP-Max-Payload (RFC 4638 §5.1).
    pub(super) fn mru_limit(&self, max_payload: Option<u16>) -> u16 {
        let most = self.mtu.saturating_sub(OVERHEAD);
        match max_payload {
            Some(octets) if octets > MAX_PAYLOAD && most > MAX_PAYLOAD => octets.min(most),
            _ => most.min(MAX_PAYLOAD),
        }
    }
}

usher_core::named! {
    "a policy for excess sessions";
    /// The policy for a station's request beyond its session limit.
    #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
    pub enum ExcessSessionPolicy {
        /// The oldest session of the station ends, so a host can return at once after a power loss.
        Replace = "replace",
        /// The concentrator refuses the request.
        Refuse = "refuse",
    }
}

/// The name, services and limits of a [`PppoeConcentrator`](super::PppoeConcentrator).
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ConcentratorConfig {
    /// AC-Name, also the name in CHAP challenges.
    pub name: String,
    /// The ports to serve.
    pub ports: Vec<ConcentratorPort>,
    /// Service names. Hosts that ask for any service get the first. If empty, every name is accepted and PADO lists
    /// none, as RFC 2516 §9 recommends.
    pub services: Vec<String>,
    /// Authentication protocols that hosts may use, by preference.
    pub authentication: Arc<[AuthenticationProtocol]>,
    /// Timers and limits of the links.
    pub link: LinkConfig,
    /// True to trust tags of an intermediate agent (RFC 4679). Safe only where a switch removes those that hosts send.
    pub agent: bool,
    /// Maximum sessions.
    pub sessions: usize,
    /// Maximum sessions whose hosts are not authenticated yet.
    pub outside: usize,
    /// Maximum sessions of a station.
    pub sessions_per_station: usize,
    /// Policy for a request beyond [`sessions_per_station`](Self::sessions_per_station).
    pub excess: ExcessSessionPolicy,
    /// Rate limit of PADI per station.
    pub initiations_per_station: TokenBucketRate,
    /// Rate limit of PADI per port.
    pub initiations: TokenBucketRate,
    /// Rate limit of PADI per circuit of a port, where circuits are trusted ([`agent`](Self::agent)).
    pub initiations_per_circuit: TokenBucketRate,
    /// Rate limit of PADR with a valid cookie, per station.
    pub requests_per_station: TokenBucketRate,
    /// Rate limit, per port, of PADT that answer packets of unknown sessions.
    pub terminations: TokenBucketRate,
}

impl Default for ConcentratorConfig {
    /// The defaults, without ports:
    ///
    /// - 16,384 sessions, 4 per station. A further session replaces the station's oldest.
    /// - PADI and PADR of a station: 2 per second, burst 10.
    /// - PADI: 2000 per second and port, 20 per second and circuit.
    /// - EAP, MS-CHAPv2 and CHAP. PAP is off, since it sends the password in the clear.
    fn default() -> Self {
        use AuthenticationProtocol::{Chap, Eap, MsChapV2};
        let station = TokenBucketRate { per_second: 2, burst: 10 };
        Self {
            name: String::from("usher"),
            ports: Vec::new(),
            services: Vec::new(),
            authentication: Arc::new([Eap, MsChapV2, Chap]),
            link: LinkConfig::default(),
            agent: false,
            sessions: 16_384,
            outside: 4096,
            sessions_per_station: 4,
            excess: ExcessSessionPolicy::Replace,
            initiations_per_station: station,
            initiations: TokenBucketRate { per_second: 2000, burst: 4000 },
            initiations_per_circuit: TokenBucketRate { per_second: 20, burst: 100 },
            requests_per_station: station,
            terminations: TokenBucketRate { per_second: 200, burst: 2000 },
        }
    }
}

/// The reason why a configuration is invalid.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum ConfigError {
    /// There is no port.
    #[error("a concentrator needs at least one port")]
    NoPort,
    /// A port's address is not unicast.
    #[error("the address {0} of a port is not unicast")]
    Address(MacAddress),
    /// A port's MTU is too small.
    #[error("an MTU of {0} octets is too small for PPPoE: the minimum is 576")]
    Mtu(u16),
    /// No authentication protocol is configured.
    #[error("a concentrator needs at least one authentication protocol")]
    NoAuthentication,
    /// The maximum of sessions exceeds the range of SESSION_ID.
    #[error("{0} sessions exceed the 65,534 of PPPoE")]
    Sessions(usize),
    /// A name does not fit the tags of a frame.
    #[error("the name {0:?} is longer than 64 octets")]
    Name(&'static str),
}

impl ConcentratorConfig {
    pub(super) fn validate(&self) -> Result<(), ConfigError> {
        if self.ports.is_empty() {
            return Err(ConfigError::NoPort);
        }
        if let Some(port) = self.ports.iter().find(|port| !port.address.is_unicast()) {
            return Err(ConfigError::Address(port.address));
        }
        if let Some(port) = self.ports.iter().find(|port| port.mtu < 576) {
            return Err(ConfigError::Mtu(port.mtu));
        }
        if self.authentication.is_empty() {
            return Err(ConfigError::NoAuthentication);
        }
        if self.sessions > 65_534 {
            return Err(ConfigError::Sessions(self.sessions));
        }
        if self.name.len() > 64 || self.services.iter().any(|name| name.len() > 64) {
            return Err(ConfigError::Name(if self.name.len() > 64 {
                "of the concentrator"
            } else {
                "of a service"
            }));
        }
        Ok(())
    }
}
