//! Logins and accounting sessions over RADIUS.

use super::api::ConfigError;
use super::front::{AaaLoadClientSetup, LoginMethod};
use crate::eap::EapMethod;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Arc;
use usher_access::{AaaConfig, AccessClient, NasIdentity};
use usher_core::{Duration, SecureRng};
use usher_radius::attribute::AttributeList;
use usher_radius::client::{self, RequestTarget};

/// How a user logs in.
#[derive(Clone, Debug)]
pub enum RadiusLogin {
    /// User-Password (RFC 2865 §5.2).
    Pap,
    /// CHAP-Password (RFC 2865 §5.3).
    Chap,
    /// MS-CHAPv2 (RFC 2548 §2.3, RFC 2759), with checks of the server's proof and keys.
    MsChapV2,
    /// EAP (RFC 3579).
    Eap(EapMethod),
}

/// The accounting session after a login, or alone (RFC 2866).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LoginAccounting {
    /// Number of interim records between start and stop.
    pub interims: u32,
    /// Time from the acknowledgement of a record to the next record.
    pub every: Duration,
}

/// Access servers with one socket each, and so at most 256 outstanding requests each.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct GeneratorNasFleet {
    /// Number of access servers, at least one.
    pub count: usize,
    /// The number of the first, if other generators have access servers too.
    pub first: usize,
    /// The NAS-Identifier, to which each appends its number, from 1.
    pub identifier: String,
    /// The first one's address; each further address is one more. `None` lets the system choose for all.
    pub address: Option<IpAddr>,
}

impl GeneratorNasFleet {
    /// Returns the address of the `i`-th, from 0; `None` lets the system choose.
    #[must_use]
    pub fn nas_address(&self, i: usize) -> Option<IpAddr> {
        Some(match self.address? {
            IpAddr::V4(a) => Ipv4Addr::from_bits(a.to_bits().wrapping_add((self.first + i) as u32)).into(),
            IpAddr::V6(a) => Ipv6Addr::from_bits(a.to_bits().wrapping_add((self.first + i) as u128)).into(),
        })
    }
}

/// The configuration of a RADIUS generator.
#[derive(Clone, Debug)]
pub struct RadiusConfig {
    /// The client: its first server handles logins, and its second, if any, accounting.
    pub client: client::RadiusClientConfig,
    /// The access servers; `None` for one whose client opens as many sockets as it needs.
    pub fleet: Option<GeneratorNasFleet>,
    /// The login methods; empty for accounting only.
    pub logins: Vec<RadiusLogin>,
    /// Accounting after each accepted login.
    pub accounting: Option<LoginAccounting>,
    /// The identity outside an EAP tunnel; `None`: the user's name.
    pub anonymous: Option<Arc<[u8]>>,
    /// Further attributes of every request, such as NAS-Identifier without a fleet.
    pub common: AttributeList,
}

impl RadiusLogin {
    fn login_method(&self) -> LoginMethod {
        match self {
            Self::Pap => LoginMethod::Pap,
            Self::Chap => LoginMethod::Chap,
            Self::MsChapV2 => LoginMethod::MsChapV2,
            Self::Eap(method) => LoginMethod::Eap(method.clone()),
        }
    }
}

impl RadiusConfig {
    /// Builds its access servers and their clients.
    pub(super) fn build_setup(&self, rng: &mut SecureRng) -> Result<AaaLoadClientSetup, ConfigError> {
        if self.logins.is_empty() && self.accounting.is_none() {
            return Err(ConfigError::Invalid("choose a login method, accounting, or both"));
        }
        let count = self.fleet.as_ref().map_or(1, |f| f.count);
        if count == 0 {
            return Err(ConfigError::Invalid("the number of access servers is 0; give at least 1"));
        }
        if count > usize::from(u16::MAX) {
            return Err(ConfigError::Invalid("too many access servers; give at most 65535"));
        }
        let client = |i| {
            let (mut client, mut nas) = (self.client.clone(), NasIdentity::default());
            if let Some(of) = &self.fleet {
                client.max_sockets = 1;
                nas.identifier = format!("{}-{}", of.identifier, of.first + i + 1);
                if let Some(address) = of.nas_address(i) {
                    client.servers.iter_mut().for_each(|s| s.local = address);
                }
            }
            nas.attributes.clone_from(&self.common);
            // The second server, if any, handles accounting.
            let accounting = RequestTarget::Server(u16::from(client.servers.len() > 1));
            let radius = usher_access::RadiusConfig { accounting, ..usher_access::RadiusConfig::new(client) };
            Ok(AccessClient::new(nas, AaaConfig::Radius(radius), SecureRng::from_seed(rng.random_array()))?)
        };
        let sockets = if self.fleet.is_some() { 1 } else { self.client.max_sockets as usize };
        Ok(AaaLoadClientSetup {
            clients: (0..count).map(client).collect::<Result<_, ConfigError>>()?,
            diameter: false,
            login_capacity: sockets.saturating_mul(256),
            // With few sockets, identifiers of retransmitted requests stay reserved for a while, so the client waits
            // for a free one.
            scarce: self.fleet.is_some(),
            methods: self.logins.iter().map(RadiusLogin::login_method).collect(),
            accounting: self.accounting,
            anonymous: self.anonymous.clone(),
        })
    }
}
