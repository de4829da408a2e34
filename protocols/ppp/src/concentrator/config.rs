//! What a concentrator allows.

use crate::auth::AuthenticationProtocol;
use crate::link::LinkConfig;
use crate::pppoe::{MAX_PAYLOAD, MacAddress, OVERHEAD, RateLimit};
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use usher_core::PortId;

/// Octets of an ordinary Ethernet frame's payload.
pub(super) const ETHERNET: u16 = 1500;

/// A port at which hosts are served.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ConcentratorPort {
    /// Which.
    pub port: PortId,
    /// This side's address there.
    pub address: MacAddress,
    /// Octets of the longest payload of a frame there (the interface's MTU): from 1500 on, longer packets than ordinary ones can
    /// be agreed to (RFC 4638).
    pub mtu: u16,
}

impl ConcentratorPort {
    /// PPP_MRU_Max of a host that says it can take this much (RFC 4638 §5.1).
    pub(super) fn mru_limit(&self, max_payload: Option<u16>) -> u16 {
        let most = self.mtu.saturating_sub(OVERHEAD);
        match max_payload {
            Some(octets) if octets > MAX_PAYLOAD && most > MAX_PAYLOAD => octets.min(most),
            _ => most.min(MAX_PAYLOAD),
        }
    }
}

usher_core::named! {
    "what becomes of one session too many";
    /// What becomes of a station's request for one session more than it may have.
    #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
    pub enum ExcessSessionPolicy {
        /// Its oldest session ends: a host that has lost its power comes back at once.
        Replace = "replace",
        /// The request is refused.
        Refuse = "refuse",
    }
}

/// What a [`Concentrator`](super::PppoeConcentrator) is called, offers and allows.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ConcentratorConfig {
    /// AC-Name, and the name in its challenges.
    pub name: String,
    /// Where it serves.
    pub ports: Vec<ConcentratorPort>,
    /// Services by name. Hosts that name none get the first; with an empty list every name is accepted and none is told, which
    /// RFC 2516 §9 recommends.
    pub services: Vec<String>,
    /// How hosts may show who they are, by preference.
    pub authentication: Arc<[AuthenticationProtocol]>,
    /// How links are kept.
    pub link: LinkConfig,
    /// Whether tags of an intermediate agent (RFC 4679) are believed: only where a switch takes away those that hosts send.
    pub agent: bool,
    /// Sessions at a time.
    pub sessions: usize,
    /// Sessions at a time whose hosts are not let in yet.
    pub outside: usize,
    /// Sessions at a time of one station.
    pub sessions_per_station: usize,
    /// What becomes of one more.
    pub excess: ExcessSessionPolicy,
    /// PADI of one station.
    pub initiations_per_station: RateLimit,
    /// PADI of all stations of a port.
    pub initiations: RateLimit,
    /// PADI of all stations of a circuit of a port, where these are told apart ([`agent`](Self::agent)).
    pub initiations_per_circuit: RateLimit,
    /// PADR of one station, with a cookie that holds.
    pub requests_per_station: RateLimit,
    /// PADT that answer to packets of sessions that there are not, of a port.
    pub terminations: RateLimit,
}

impl Default for ConcentratorConfig {
    /// 16,384 sessions, of one station 4 of which the oldest is replaced; 2 PADI and PADR a second of one station after 10, 2000
    /// PADI a second of a port, 20 of a circuit; EAP, MS-CHAPv2 and CHAP, since PAP shows the password to everybody. Ports are to be named.
    fn default() -> Self {
        use AuthenticationProtocol::{Chap, Eap, MsChapV2};
        let station = RateLimit { per_second: 2, burst: 10 };
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
            initiations: RateLimit { per_second: 2000, burst: 4000 },
            initiations_per_circuit: RateLimit { per_second: 20, burst: 100 },
            requests_per_station: station,
            terminations: RateLimit { per_second: 200, burst: 2000 },
        }
    }
}

/// Why a configuration cannot be served by.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum ConfigError {
    /// There is no port.
    #[error("a concentrator needs a port at which it serves")]
    NoPort,
    /// A port's address is no station's.
    #[error("the address {0} of a port names no single station")]
    Address(MacAddress),
    /// A port's frames are too short.
    #[error("an MTU of {0} octets is too little for PPPoE: it takes at least 576")]
    Mtu(u16),
    /// Nobody would have to show who it is.
    #[error("a concentrator needs an authentication protocol: it lets nobody in unasked")]
    NoAuthentication,
    /// More sessions than there are numbers.
    #[error("{0} sessions are more than the 65,534 that PPPoE can tell apart")]
    Sessions(usize),
    /// A name is longer than a frame's tags leave room for.
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
