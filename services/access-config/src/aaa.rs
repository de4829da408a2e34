//! Builds the configuration of the AAA client from `[aaa]`.

use crate::builder::{AccessConfigBuilder, SecretSources};
use crate::model::{AaaTable, DiameterTable, RadiusTable};
use alloc::boxed::Box;
use alloc::string::ToString;
use alloc::vec::Vec;
use core::net::{Ipv4Addr, SocketAddr};
use usher_access::{
    AaaClientConfig, AaaConfig, AccountingRetryConfig, DiameterConfig, DynamicAuthConfig, NasIdentity,
    RadiusConfig,
};
use usher_core::{Duration, TransportProtocol};
use usher_crypto::SecretValue;
use usher_crypto::certificate::PeerCertificateCondition;
use usher_diameter::codes::application;
use usher_diameter::node;
use usher_diameter::peer::capabilities::DiameterApplication;
use usher_radius::client::{
    self, FailoverPolicy, RequestTarget, RetransmissionPolicy, ServerConfig, ServerLivenessConfig,
};
use usher_radius::server::ClientConfig;
use usher_radius::{EventTimestampPolicy, SharedSecret};

/// The kind of an access server.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NasKind {
    /// Its name in messages: `"gateway"`.
    pub called: &'static str,
    /// NAS-Port-Type (RFC 2865 §5.41).
    pub port_type: u32,
    /// Framed-MTU: octets of the longest EAP packet on its links. The AAA server fragments EAP by it (RFC 3579 §2.4).
    pub framed_mtu: u32,
}

const APPLICATIONS: [DiameterApplication; 3] = [
    DiameterApplication::for_authentication(application::EAP),
    DiameterApplication::for_authentication(application::NASREQ),
    DiameterApplication::for_accounting(application::ACCOUNTING),
];

impl AccessConfigBuilder<'_> {
    /// Builds the AAA client's configuration. `login` is the time limit of a user's login.
    pub fn build_aaa(
        &mut self,
        table: &AaaTable,
        kind: &NasKind,
        login: Duration,
    ) -> Option<AaaClientConfig> {
        build_aaa_config(self, table, kind, login)
    }
}

fn build_aaa_config(
    builder: &mut AccessConfigBuilder<'_>,
    table: &AaaTable,
    kind: &NasKind,
    login: Duration,
) -> Option<AaaClientConfig> {
    let identifier = table.nas_identifier.clone().or_else(|| {
        let identity = table.diameter.as_ref().map(|diameter| diameter.identity.clone());
        if identity.is_none() && table.nas_address.is_none() {
            let message = format!(
                "\"nas_identifier\" is missing: set the name of this {} in requests, such as \"gw.example.org\"",
                kind.called
            );
            builder.report_fault(&["aaa"], message);
        }
        identity
    });
    let nas = NasIdentity {
        address: table.nas_address,
        port_type: Some(kind.port_type),
        framed_mtu: Some(kind.framed_mtu),
        ..NasIdentity::for_ethernet(&identifier.unwrap_or_default())
    };
    let servers = match (&table.server, &table.radius[..], &table.diameter) {
        (None, [], None) => {
            builder.report_fault(
                &["aaa"],
                "no server: write [[aaa.radius]] or [aaa.diameter], or set \"server\"",
            );
            None
        }
        (Some(_), [], None) => Some(EmbeddedServer::unspecified().build_servers(table, login)),
        (None, [], Some(diameter)) => diameter_servers(builder, table, diameter),
        (None, _, None) => radius_servers(builder, table, login),
        (None, _, Some(_)) => {
            builder.report_fault(&["aaa", "diameter"], "[[aaa.radius]] is set, too; keep one of both");
            None
        }
        (Some(_), ..) => {
            builder.report_fault(
                &["aaa", "server"],
                "[[aaa.radius]] or [aaa.diameter] is set, too; keep one of them",
            );
            None
        }
    };
    Some(AaaClientConfig {
        nas,
        servers: servers?,
        accounting: table.accounting,
        interim: table.interim.map(usher_config::units::TimeSpan::get),
        record_retry: AccountingRetryConfig {
            lasts: table.accounting_retry.get(),
            most: usize::try_from(table.accounting_queue.get()).unwrap_or(usize::MAX),
        },
    })
}

/// Adds the TLS configuration of the connection to a server.
fn add_outgoing_tls(
    builder: &mut AccessConfigBuilder<'_>,
    table: &AaaTable,
    address: SocketAddr,
    at: &[&str],
) {
    match &table.tls {
        None => builder.report_fault(
            at,
            "[aaa.tls] is missing: servers over TLS need \"certificate\", \"key\" and \"ca\" there",
        ),
        // The AAA client checks the name of the server itself, so TLS gets none.
        Some(tls) => {
            if let Some(config) = builder.build_tls_client_from_table(&["aaa", "tls"], tls, None) {
                builder.outgoing.insert(address, config);
            }
        }
    }
}

fn radius_servers(
    builder: &mut AccessConfigBuilder<'_>,
    table: &AaaTable,
    login: Duration,
) -> Option<AaaConfig> {
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
        let with = |config: ServerConfig| ServerConfig {
            liveness: watched.then(ServerLivenessConfig::default),
            ..config
        };
        if *transport == TransportProtocol::Tls {
            add_outgoing_tls(builder, table, *address, &at);
            let certificates: Vec<_> =
                certificate.iter().cloned().map(PeerCertificateCondition::Name).collect();
            asked.push(next(&servers));
            told.push(next(&servers));
            servers.push(with(ServerConfig {
                certificates: certificates.clone(),
                ..ServerConfig::for_radsec(*address)
            }));
            clients.push(ClientConfig::for_radsec(address.ip(), address_bits(*address), certificates));
            continue;
        }
        if certificate.is_some() {
            builder.report_fault(
                &[&at[..], &["certificate"]].concat(),
                "\"certificate\" needs transport = \"tls\"",
            );
        }
        let places = SecretSources {
            key: "secret",
            inline: secret.as_ref(),
            file: secret_file.as_deref(),
            env: secret_env.as_deref(),
        };
        let Some(secret) = builder.read_secret(&at, &places) else { continue };
        let secret = SharedSecret::new(&secret);
        asked.push(next(&servers));
        servers.push(with(ServerConfig {
            require_message_authenticator: *message_authenticator,
            ..ServerConfig::new(*address, secret.clone())
        }));
        told.push(next(&servers));
        let accounting =
            acct_address.unwrap_or(SocketAddr::new(address.ip(), address.port().saturating_add(1)));
        servers.push(ServerConfig::new(accounting, secret.clone()));
        clients.push(ClientConfig::new(address.ip(), address_bits(*address), secret));
    }
    let mut client = client::RadiusClientConfig::for_server(servers.first()?.clone());
    client.servers = servers;
    client.groups = alloc::vec![asked, told];
    client.failover = (table.radius.len() > 1).then(FailoverPolicy::default);
    Some(radius_config(client, clients, table, login))
}

/// Builds a RADIUS configuration. Server group 0 gets authentication, group 1 accounting. `clients` may send dynamic
/// authorization requests.
fn radius_config(
    mut client: client::RadiusClientConfig,
    clients: Vec<ClientConfig>,
    table: &AaaTable,
    login: Duration,
) -> AaaConfig {
    if let RetransmissionPolicy::Backoff { max_duration, .. } = &mut client.retransmission {
        // The access server must give up before the user does, so that the user still gets the reject.
        *max_duration = (*max_duration).min(login * 3 / 4);
    }
    let dynamic = table.dynamic.as_ref().map(|dynamic| {
        let freshness = EventTimestampPolicy {
            required: dynamic.require_event_timestamp,
            ..EventTimestampPolicy::default()
        };
        Box::new(DynamicAuthConfig { clients, freshness: Some(freshness) })
    });
    let (target, accounting) = (RequestTarget::Group(0), RequestTarget::Group(1));
    AaaConfig::Radius(RadiusConfig { target, accounting, dynamic, ..RadiusConfig::new(client) })
}

/// The client address of an access server towards an AAA server in the same program. No other client uses this loopback
/// address, so the pair has its own secret.
pub const EMBEDDED_CLIENT_ADDRESS: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 85);

/// Addresses and secret of an AAA server in the same program ([`AaaTable::server`]), reached by RADIUS.
#[derive(Clone, Debug)]
pub struct EmbeddedServer {
    /// Address for authentication.
    pub auth: SocketAddr,
    /// Address for accounting.
    pub acct: SocketAddr,
    /// Shared secret.
    pub secret: SecretValue,
}

impl EmbeddedServer {
    /// Returns the placeholder that a configuration has until the server runs.
    fn unspecified() -> Self {
        let nowhere = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        Self { auth: nowhere, acct: nowhere, secret: SecretValue::from(&[][..]) }
    }

    /// Sets the server's addresses and secret in a configuration that was built before they were known.
    pub fn apply_to(&self, aaa: &mut AaaClientConfig) {
        let AaaConfig::Radius(radius) = &mut aaa.servers else { return };
        radius.client.servers = self.server_configs();
        if let Some(dynamic) = &mut radius.dynamic {
            dynamic.clients = self.client_configs();
        }
    }

    fn build_servers(&self, table: &AaaTable, login: Duration) -> AaaConfig {
        let mut client = client::RadiusClientConfig::for_server(ServerConfig::new(
            self.auth,
            SharedSecret::new(&self.secret),
        ));
        client.servers = self.server_configs();
        client.groups = alloc::vec![alloc::vec![0], alloc::vec![1]];
        radius_config(client, self.client_configs(), table, login)
    }

    fn server_configs(&self) -> Vec<ServerConfig> {
        let at = |address| ServerConfig {
            local: EMBEDDED_CLIENT_ADDRESS.into(),
            ..ServerConfig::new(address, SharedSecret::new(&self.secret))
        };
        [self.auth, self.acct].map(at).into()
    }

    fn client_configs(&self) -> Vec<ClientConfig> {
        alloc::vec![ClientConfig::new(
            self.auth.ip(),
            address_bits(self.auth),
            SharedSecret::new(&self.secret)
        )]
    }
}

const fn address_bits(address: SocketAddr) -> u8 {
    if address.is_ipv4() { 32 } else { 128 }
}

fn diameter_servers(
    builder: &mut AccessConfigBuilder<'_>,
    table: &AaaTable,
    diameter: &DiameterTable,
) -> Option<AaaConfig> {
    if table.dynamic.is_some() {
        builder.report_fault(
            &["aaa", "dynamic"],
            "[aaa.dynamic] is for RADIUS only; with stateful = true a Diameter server ends sessions by its own \
             connection",
        );
    }
    if diameter.peer.is_empty() {
        builder.report_fault(
            &["aaa", "diameter"],
            "\"peer\" is missing: write [[aaa.diameter.peer]] with \"identity\" and \"address\"",
        );
        return None;
    }
    let mut node = node::DiameterNodeConfig::new(&diameter.identity, &diameter.realm, &APPLICATIONS);
    node.local.addresses.extend(table.nas_address);
    for (i, peer) in diameter.peer.iter().enumerate() {
        let number = i.to_string();
        let at = ["aaa", "diameter", "peer", &number];
        if peer.transport == TransportProtocol::Tls {
            add_outgoing_tls(builder, table, peer.address, &at);
        }
        node = node.connect_to(&peer.identity, peer.address);
    }
    let realm = diameter.destination_realm.clone().unwrap_or_else(|| diameter.realm.clone());
    let config = DiameterConfig { stateful: diameter.stateful, ..DiameterConfig::new(node, realm) };
    Some(AaaConfig::Diameter(Box::new(config)))
}
