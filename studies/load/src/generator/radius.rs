//! Logins and accounting sessions over RADIUS.

use super::ConfigError;
use super::front::{FrontSetup, LoginMethod};
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
    /// MS-CHAPv2 (RFC 2548 §2.3, RFC 2759); the server's proof is checked, and its keys.
    MsChapV2,
    /// EAP (RFC 3579).
    Eap(EapMethod),
}

/// The accounting session that follows a login, or stands alone (RFC 2866).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LoginAccounting {
    /// Interim records between start and stop.
    pub interims: u32,
    /// From the acknowledgement of one record to the next.
    pub every: Duration,
}

/// Access servers that each have one socket, and so at most 256 requests under way.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NasFleet {
    /// How many, at least one.
    pub count: usize,
    /// The number of the first, where other generators have some too.
    pub first: usize,
    /// The NAS-Identifier; each has its number, from 1, behind it.
    pub identifier: String,
    /// The first one's address; each has the address so many further. `None`: the system's choice for all.
    pub address: Option<IpAddr>,
}

impl NasFleet {
    /// The address of the `i`-th, from 0; `None`: the system's choice.
    #[must_use]
    pub fn nas_address(&self, i: usize) -> Option<IpAddr> {
        Some(match self.address? {
            IpAddr::V4(a) => Ipv4Addr::from_bits(a.to_bits().wrapping_add((self.first + i) as u32)).into(),
            IpAddr::V6(a) => Ipv6Addr::from_bits(a.to_bits().wrapping_add((self.first + i) as u128)).into(),
        })
    }
}

/// What a RADIUS generator is made of.
#[derive(Clone, Debug)]
pub struct RadiusConfig {
    /// The client: its first server takes logins, its second, where there is one, accounting.
    pub client: client::RadiusClientConfig,
    /// The access servers; `None`: one, whose client has as many sockets as it needs.
    pub fleet: Option<NasFleet>,
    /// How users log in; empty: they do not, there is accounting only.
    pub logins: Vec<RadiusLogin>,
    /// Accounting after each login that was let in.
    pub accounting: Option<LoginAccounting>,
    /// The identity outside an EAP tunnel; `None`: the user's name.
    pub anonymous: Option<Arc<[u8]>>,
    /// What every request has besides: NAS-Identifier, where there is no fleet, and the like.
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
    /// Its access servers and their clients.
    pub(super) fn build_setup(&self, rng: &mut SecureRng) -> Result<FrontSetup, ConfigError> {
        if self.logins.is_empty() && self.accounting.is_none() {
            return Err(ConfigError::Invalid("neither a login nor accounting is asked for"));
        }
        let count = self.fleet.as_ref().map_or(1, |f| f.count);
        if count == 0 {
            return Err(ConfigError::Invalid("there is no access server; at least one"));
        }
        if count > usize::from(u16::MAX) {
            return Err(ConfigError::Invalid("more access servers than one generator has; at most 65535"));
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
            // The second server, where there is one, takes accounting.
            let accounting = RequestTarget::Server(u16::from(client.servers.len() > 1));
            let radius = usher_access::RadiusConfig { accounting, ..usher_access::RadiusConfig::new(client) };
            Ok(AccessClient::new(nas, AaaConfig::Radius(radius), SecureRng::from_seed(rng.random_array()))?)
        };
        let sockets = if self.fleet.is_some() { 1 } else { self.client.max_sockets as usize };
        Ok(FrontSetup {
            clients: (0..count).map(client).collect::<Result<_, ConfigError>>()?,
            diameter: false,
            login_capacity: sockets.saturating_mul(256),
            // Where sockets are few, identifiers of requests that were sent again rest for a while: one is free soon.
            scarce: self.fleet.is_some(),
            methods: self.logins.iter().map(RadiusLogin::login_method).collect(),
            accounting: self.accounting,
            anonymous: self.anonymous.clone(),
        })
    }
}
