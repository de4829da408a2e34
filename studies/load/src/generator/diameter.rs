//! Logins and accounting sessions over Diameter, on one or several connections.
//!
//! RFC 6733 §2.1 allows one connection between two DiameterIdentities, so each connection is a node with its own
//! identity.

use super::api::ConfigError;
use super::front::{AaaLoadClientSetup, LoginMethod};
use super::radius::LoginAccounting;
use crate::eap::EapMethod;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use usher_access::{AaaConfig, AccessClient, NasIdentity};
use usher_core::{Duration, Instant, SecureRng};
use usher_diameter::codes::application;
use usher_diameter::node;
use usher_diameter::peer::capabilities::DiameterApplication;

/// Service-Type Framed (RFC 2865 §5.6).
const FRAMED: u32 = 2;
/// Delay until a lost connection is opened again.
const RECONNECT: Duration = Duration::from_secs(2);

/// How a user logs in over Diameter.
#[derive(Clone, Debug)]
pub enum DiameterLogin {
    /// AA-Request with a password (RFC 7155).
    Pap,
    /// Diameter-EAP-Request (RFC 4072).
    Eap(EapMethod),
}

/// The configuration of a Diameter generator.
#[derive(Clone, Debug)]
pub struct DiameterConfig {
    /// The server's address.
    pub address: SocketAddr,
    /// The transport of the messages.
    pub transport: node::PeerTransportConfig,
    /// Our address, for Host-IP-Address.
    pub local: IpAddr,
    /// The server's DiameterIdentity.
    pub server: String,
    /// The identity of the first connection; the `n`-th has its number after the first label.
    pub host: String,
    /// Our realm.
    pub realm: String,
    /// Destination-Realm of every request.
    pub destination: String,
    /// Number of connections, at least one.
    pub connections: usize,
    /// The number of the first connection, if other generators have connections too.
    pub first: usize,
    /// The login methods; empty for accounting only.
    pub logins: Vec<DiameterLogin>,
    /// Accounting after each accepted login.
    pub accounting: Option<LoginAccounting>,
    /// The identity outside an EAP tunnel; `None`: the user's name.
    pub anonymous: Option<Arc<[u8]>>,
    /// Timeout of an answer.
    pub timeout: Duration,
}

/// Returns the identity of the `n`-th connection, from 0.
fn numbered_host(host: &str, n: usize) -> String {
    match (n, host.split_once('.')) {
        (0, _) => host.to_owned(),
        (n, Some((label, rest))) => format!("{label}-{}.{rest}", n + 1),
        (n, None) => format!("{host}-{}", n + 1),
    }
}

impl DiameterLogin {
    fn login_method(&self) -> LoginMethod {
        match self {
            Self::Pap => LoginMethod::Pap,
            Self::Eap(method) => LoginMethod::Eap(method.clone()),
        }
    }
}

impl DiameterConfig {
    /// Builds its connections, each with a client of its own.
    pub(super) fn build_setup(
        &self,
        start: Instant,
        rng: &mut SecureRng,
    ) -> Result<AaaLoadClientSetup, ConfigError> {
        if self.connections == 0 {
            return Err(ConfigError::Invalid("the number of Diameter connections is 0; give at least 1"));
        }
        if self.connections > usize::from(u16::MAX) {
            return Err(ConfigError::Invalid("too many Diameter connections; give at most 65535"));
        }
        if self.logins.is_empty() && self.accounting.is_none() {
            return Err(ConfigError::Invalid("choose a login method, accounting, or both"));
        }
        let mut applications = Vec::new();
        let eap = |l: &DiameterLogin| matches!(l, DiameterLogin::Eap(_));
        if self.logins.iter().any(|l| !eap(l)) {
            applications.push(DiameterApplication::for_authentication(application::NASREQ));
        }
        if self.logins.iter().any(eap) {
            applications.push(DiameterApplication::for_authentication(application::EAP));
        }
        if self.accounting.is_some() {
            applications.push(DiameterApplication::for_accounting(application::ACCOUNTING));
        }
        let client = |n| {
            let host = numbered_host(&self.host, self.first + n);
            let mut node = node::DiameterNodeConfig::new(&host, &self.realm, &applications);
            node = node.connect_to(&self.server, self.address);
            for peer in &mut node.peers {
                peer.transport = self.transport;
            }
            node.local.addresses.push(self.local);
            node.reconnect = RECONNECT;
            node.request_timeout = Some(self.timeout);
            let mut diameter = usher_access::DiameterConfig::new(node, self.destination.clone());
            diameter.connect_at = start;
            let (framed_mtu, service_type) = (Some(1400), Some(FRAMED));
            let nas = NasIdentity { identifier: host, framed_mtu, service_type, ..NasIdentity::default() };
            let aaa = AaaConfig::Diameter(Box::new(diameter));
            Ok(AccessClient::new(nas, aaa, SecureRng::from_seed(rng.random_array()))?)
        };
        Ok(AaaLoadClientSetup {
            clients: (0..self.connections).map(client).collect::<Result<_, ConfigError>>()?,
            diameter: true,
            login_capacity: usize::MAX,
            scarce: false,
            methods: self.logins.iter().map(DiameterLogin::login_method).collect(),
            accounting: self.accounting,
            anonymous: self.anonymous.clone(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_connection_has_an_identity() {
        let names: Vec<_> = (0..3).map(|n| numbered_host("load.example.org", n)).collect();
        assert_eq!(names, ["load.example.org", "load-2.example.org", "load-3.example.org"]);
        assert_eq!(numbered_host("load", 1), "load-2");
    }
}
