//! AAA servers of a file.

use crate::builder::{Builder, Places};
use crate::model::{AaaTable, DiameterTable, RadiusTable};
use alloc::boxed::Box;
use alloc::string::ToString;
use alloc::vec::Vec;
use core::net::{Ipv4Addr, SocketAddr};
use usher_access::{Aaa, AaaConfig, DiameterConfig, DynamicConfig, NasIdentity, Patience, RadiusConfig};
use usher_core::{Duration, TransportProtocol};
use usher_crypto::Key;
use usher_crypto::certificate::CertificateMatch;
use usher_diameter::codes::application;
use usher_diameter::node;
use usher_diameter::peer::capabilities::Application;
use usher_radius::client::{self, Failover, Liveness, Retransmission, ServerConfig, Target};
use usher_radius::server::ClientConfig;
use usher_radius::{Freshness, Secret};

/// What kind of access server asks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NasKind {
    /// What it is called, for faults: `"gateway"`.
    pub called: &'static str,
    /// NAS-Port-Type (RFC 2865 §5.41).
    pub port_type: u32,
    /// Framed-MTU: octets of the longest EAP packet that its links carry, by which the server cuts (RFC 3579 §2.4).
    pub framed_mtu: u32,
}

const APPLICATIONS: [Application; 3] = [
    Application::auth(application::EAP),
    Application::auth(application::NASREQ),
    Application::acct(application::ACCOUNTING),
];

impl Builder<'_> {
    /// The AAA servers of a table; `login`: how long a user may take to show who it is.
    pub fn aaa(&mut self, table: &AaaTable, kind: &NasKind, login: Duration) -> Option<Aaa> {
        aaa(self, table, kind, login)
    }
}

fn aaa(builder: &mut Builder<'_>, table: &AaaTable, kind: &NasKind, login: Duration) -> Option<Aaa> {
    let identifier = table.nas_identifier.clone().or_else(|| {
        let identity = table.diameter.as_ref().map(|diameter| diameter.identity.clone());
        if identity.is_none() && table.nas_address.is_none() {
            let message = format!(
                "\"nas_identifier\" is missing: as what this {} asks, such as \"gw.example.org\"",
                kind.called
            );
            builder.fault(&["aaa"], message);
        }
        identity
    });
    let nas = NasIdentity {
        address: table.nas_address,
        port_type: Some(kind.port_type),
        framed_mtu: Some(kind.framed_mtu),
        ..NasIdentity::ethernet(&identifier.unwrap_or_default())
    };
    let servers = match (&table.server, &table.radius[..], &table.diameter) {
        (None, [], None) => {
            builder.fault(
                &["aaa"],
                "no server: write [[aaa.radius]] or [aaa.diameter], or name the file of a server",
            );
            None
        }
        (Some(_), [], None) => Some(Within::nowhere().servers(table, login)),
        (None, [], Some(diameter)) => diameter_servers(builder, table, diameter),
        (None, _, None) => radius_servers(builder, table, login),
        (None, _, Some(_)) => {
            builder.fault(&["aaa", "diameter"], "there is [[aaa.radius]] too; keep one of both");
            None
        }
        (Some(_), ..) => {
            builder.fault(
                &["aaa", "server"],
                "there are other servers too, by [[aaa.radius]] or [aaa.diameter]; keep one of these",
            );
            None
        }
    };
    Some(Aaa {
        nas,
        servers: servers?,
        accounting: table.accounting,
        interim: table.interim.map(usher_config::units::Time::get),
        patience: Patience {
            lasts: table.accounting_retry.get(),
            most: usize::try_from(table.accounting_queue.get()).unwrap_or(usize::MAX),
        },
    })
}

/// TLS to a server.
fn outgoing(builder: &mut Builder<'_>, table: &AaaTable, address: SocketAddr, at: &[&str]) {
    match &table.tls {
        None => builder
            .fault(at, "[aaa.tls] is missing: certificate, key and ca for servers that are reached by TLS"),
        // The protocol looks at the name itself.
        Some(tls) => {
            if let Some(config) = builder.client(&["aaa", "tls"], tls, None) {
                builder.outgoing.insert(address, config);
            }
        }
    }
}

fn radius_servers(builder: &mut Builder<'_>, table: &AaaTable, login: Duration) -> Option<AaaConfig> {
    let (mut servers, mut clients) = (Vec::new(), Vec::new());
    let (mut asked, mut told) = (Vec::new(), Vec::new());
    for (i, server) in table.radius.iter().enumerate() {
        let number = i.to_string();
        let at = ["aaa", "radius", &number];
        let watched = table.radius.len() > 1;
        let RadiusTable {
            address,
            acct_address,
            transport,
            certificate,
            secret,
            secret_file,
            secret_env,
            message_authenticator,
        } = server;
        let next = |servers: &Vec<ServerConfig>| u16::try_from(servers.len()).unwrap_or(u16::MAX);
        let with =
            |config: ServerConfig| ServerConfig { liveness: watched.then(Liveness::default), ..config };
        if *transport == TransportProtocol::Tls {
            outgoing(builder, table, *address, &at);
            let certificates: Vec<_> = certificate.iter().cloned().map(CertificateMatch::Name).collect();
            asked.push(next(&servers));
            told.push(next(&servers));
            servers.push(with(ServerConfig {
                certificates: certificates.clone(),
                ..ServerConfig::radsec(*address)
            }));
            clients.push(ClientConfig::radsec(address.ip(), bits(*address), certificates));
            continue;
        }
        if certificate.is_some() {
            builder.fault(
                &[&at[..], &["certificate"]].concat(),
                "without transport = \"tls\" no certificate is shown",
            );
        }
        let places = Places {
            key: "secret",
            inline: secret.as_ref(),
            file: secret_file.as_deref(),
            env: secret_env.as_deref(),
        };
        let Some(secret) = builder.secret(&at, &places) else { continue };
        let secret = Secret::new(&secret);
        asked.push(next(&servers));
        servers.push(with(ServerConfig {
            require_message_authenticator: *message_authenticator,
            ..ServerConfig::new(*address, secret.clone())
        }));
        told.push(next(&servers));
        let accounting =
            acct_address.unwrap_or(SocketAddr::new(address.ip(), address.port().saturating_add(1)));
        servers.push(ServerConfig::new(accounting, secret.clone()));
        clients.push(ClientConfig::new(address.ip(), bits(*address), secret));
    }
    let mut client = client::Config::single(servers.first()?.clone());
    client.servers = servers;
    client.groups = alloc::vec![asked, told];
    client.failover = (table.radius.len() > 1).then(Failover::default);
    Some(radius(client, clients, table, login))
}

/// The first group of servers is asked, the second told of sessions; `clients` may end and change these.
fn radius(
    mut client: client::Config,
    clients: Vec<ClientConfig>,
    table: &AaaTable,
    login: Duration,
) -> AaaConfig {
    if let Retransmission::Backoff { max_duration, .. } = &mut client.retransmission {
        // The user is to hear that nobody answers while it still waits.
        *max_duration = (*max_duration).min(login * 3 / 4);
    }
    let dynamic = table.dynamic.as_ref().map(|dynamic| {
        let freshness = Freshness { required: dynamic.require_event_timestamp, ..Freshness::default() };
        Box::new(DynamicConfig { clients, freshness: Some(freshness) })
    });
    let (target, accounting) = (Target::Group(0), Target::Group(1));
    AaaConfig::Radius(RadiusConfig { target, accounting, dynamic, ..RadiusConfig::new(client) })
}

/// The address from which an access server asks an AAA server within the same program: one of loopback that no other client has, so
/// that its secret is its own.
pub const WITHIN: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 85);

/// Where an AAA server within the same program is asked ([`AaaTable::server`]), by RADIUS.
#[derive(Clone, Debug)]
pub struct Within {
    /// Authentication.
    pub auth: SocketAddr,
    /// Accounting.
    pub acct: SocketAddr,
    /// The secret shared with it.
    pub secret: Key,
}

impl Within {
    /// What a file has before anybody has started that server.
    fn nowhere() -> Self {
        let nowhere = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        Self { auth: nowhere, acct: nowhere, secret: Key::from(&[][..]) }
    }

    /// Has an access server ask there, whose file was built before it was known where.
    pub fn put(&self, aaa: &mut Aaa) {
        let AaaConfig::Radius(radius) = &mut aaa.servers else { return };
        radius.client.servers = self.places();
        if let Some(dynamic) = &mut radius.dynamic {
            dynamic.clients = self.clients();
        }
    }

    fn servers(&self, table: &AaaTable, login: Duration) -> AaaConfig {
        let mut client = client::Config::single(ServerConfig::new(self.auth, Secret::new(&self.secret)));
        client.servers = self.places();
        client.groups = alloc::vec![alloc::vec![0], alloc::vec![1]];
        radius(client, self.clients(), table, login)
    }

    fn places(&self) -> Vec<ServerConfig> {
        let at = |address| ServerConfig {
            local: WITHIN.into(),
            ..ServerConfig::new(address, Secret::new(&self.secret))
        };
        [self.auth, self.acct].map(at).into()
    }

    fn clients(&self) -> Vec<ClientConfig> {
        alloc::vec![ClientConfig::new(self.auth.ip(), bits(self.auth), Secret::new(&self.secret))]
    }
}

const fn bits(address: SocketAddr) -> u8 {
    if address.is_ipv4() { 32 } else { 128 }
}

fn diameter_servers(
    builder: &mut Builder<'_>,
    table: &AaaTable,
    diameter: &DiameterTable,
) -> Option<AaaConfig> {
    if table.dynamic.is_some() {
        builder.fault(
            &["aaa", "dynamic"],
            "RFC 5176 is of RADIUS; a Diameter server asks by its own connection, where stateful = true",
        );
    }
    if diameter.peer.is_empty() {
        builder.fault(
            &["aaa", "diameter"],
            "\"peer\" is missing: write [[aaa.diameter.peer]] with identity and address",
        );
        return None;
    }
    let mut node = node::Config::new(&diameter.identity, &diameter.realm, &APPLICATIONS);
    node.local.addresses.extend(table.nas_address);
    for (i, peer) in diameter.peer.iter().enumerate() {
        let number = i.to_string();
        let at = ["aaa", "diameter", "peer", &number];
        if peer.transport == TransportProtocol::Tls {
            outgoing(builder, table, peer.address, &at);
        }
        node = node.connect_to(&peer.identity, peer.address);
    }
    let realm = diameter.destination_realm.clone().unwrap_or_else(|| diameter.realm.clone());
    let config = DiameterConfig { stateful: diameter.stateful, ..DiameterConfig::new(node, realm) };
    Some(AaaConfig::Diameter(Box::new(config)))
}
