//! The sockets of a shard.

use crate::error::ServeError;
use std::collections::BTreeMap;
use std::net::{SocketAddr, TcpListener, UdpSocket};
use std::sync::{Arc, PoisonError, RwLock};
use usher_aaa_config::model::ConfigFile;
use usher_aaa_config::tls::TlsConfigs;
use usher_aaa_config::{
    ListenBinding, ListenTransport, accepted_certificate_matches, listen_bindings, outgoing_addresses_and_tls,
};
use usher_core::{ListenerId, SocketId, TransportProtocol};
use usher_live::{
    ConnectionSecuritySelector, DriverConfig, DriverSctpListener, DriverSockets, DriverTcpListener,
    OutgoingConnectionSecurity, SocketOptions, TlsClient, TlsServer, bind_udp, listen_tcp,
};
use usher_radius::radsec::PeerCertificateCondition;
use usher_service::{TlsPeer, TlsServersByAddress};

/// Bound sockets with their ids in the server. Each shard has its own socket of each address.
pub(crate) struct BoundSockets {
    udp: Vec<(SocketId, UdpSocket)>,
    /// True: TLS.
    tcp: Vec<(ListenerId, TcpListener, bool)>,
    sctp: Vec<DriverSctpListener>,
    /// Options of associations that the server opens or accepts.
    associations: usher_sctp::SocketOptions,
}

/// Binds the configured addresses. Without `shared` they must be free.
pub(crate) fn bind_sockets(file: &ConfigFile, shared: bool) -> Result<BoundSockets, ServeError> {
    let options = SocketOptions { shared, ..SocketOptions::default() };
    let mut associations = usher_sctp::SocketOptions { shared, ..usher_sctp::SocketOptions::default() };
    if let Some(diameter) = &file.diameter {
        let streams = diameter.sctp.streams;
        (associations.streams_out, associations.streams_in) = (streams, streams);
        associations.nodelay = diameter.sctp.nodelay;
    }
    let mut bound = BoundSockets { udp: Vec::new(), tcp: Vec::new(), sctp: Vec::new(), associations };
    let mut endpoints: BTreeMap<u16, Vec<SocketAddr>> = BTreeMap::new();
    for ListenBinding { purpose: what, address, carrier } in listen_bindings(&file.listen) {
        let failed = |error| usher_service::ServeError::Listen { address, what, error };
        match carrier {
            ListenTransport::Udp(id) => bound.udp.push((id, bind_udp(address, &options).map_err(failed)?)),
            ListenTransport::Tcp(id) | ListenTransport::Tls(id) => {
                let socket = listen_tcp(address, &options).map_err(failed)?;
                bound.tcp.push((id, socket, matches!(carrier, ListenTransport::Tls(_))));
            }
            ListenTransport::Sctp(id) => {
                let endpoint = endpoints.entry(address.port()).or_default();
                endpoint.push(address);
                if endpoint.len()
                    == file.listen.diameter_sctp.iter().filter(|a| a.port() == address.port()).count()
                {
                    let socket = usher_sctp::SctpListener::bind(endpoint, &associations).map_err(failed)?;
                    bound.sctp.push(DriverSctpListener { id, socket });
                }
            }
        }
    }
    Ok(bound)
}

/// Returns the TLS of all listeners, which a reload can replace. None without certificate and authorities: each
/// client must have a certificate.
pub(crate) fn tls_servers(tls: Option<&TlsConfigs>) -> Vec<TlsServer> {
    tls.and_then(|tls| tls.clients.clone()).map(TlsServer::new).into_iter().collect()
}

/// Replaces the certificates of listeners, and closes connections of clients that are not trusted any more. Without
/// authorities the listeners keep the former ones, so that clients always need a certificate.
pub(crate) fn replace_tls(listeners: &[TlsServer], tls: &TlsConfigs) {
    for listener in listeners {
        match &tls.clients {
            Some(clients) => listener.replace(clients.clone()),
            None => tracing::warn!(
                "ca was removed from [tls]: TLS listeners keep the old certificates and authorities until a restart"
            ),
        }
    }
}

/// Returns the home servers and Diameter peers with TLS.
fn tls_peers(file: &ConfigFile) -> BTreeMap<SocketAddr, TlsPeer> {
    let tls = TransportProtocol::Tls;
    let homes = file.home_server.iter().filter(|home| home.transport == tls).map(|home| {
        let certificates = accepted_certificate_matches(home.certificate.as_ref(), home.fingerprint);
        (home.address, TlsPeer { name: home.name.clone(), certificates })
    });
    let peers = file.diameter.iter().flat_map(|diameter| &diameter.peer);
    let peers = peers.filter(|peer| peer.transport == tls).filter_map(|peer| {
        let mut certificates = accepted_certificate_matches(peer.certificate.as_ref(), peer.fingerprint);
        if certificates.is_empty() {
            // By default the peer's certificate must contain its identity.
            certificates.push(PeerCertificateCondition::Name(peer.identity.clone()));
        }
        Some((peer.connect?, TlsPeer { name: peer.identity.clone(), certificates }))
    });
    homes.chain(peers).collect()
}

/// The servers to which this one connects. A reload replaces them.
pub(crate) struct UpstreamServers {
    /// True: TLS.
    addresses: BTreeMap<SocketAddr, bool>,
    /// The same client since the first configuration with TLS, so that it applies each later one to open
    /// connections.
    tls: Option<TlsClient>,
    /// True if the configuration has authorities for home servers and peers.
    trusts: bool,
    /// TLS peers, and why one is unreachable.
    peers: TlsServersByAddress,
}

impl UpstreamServers {
    /// Creates it from a configuration.
    pub(crate) fn from_file(file: &ConfigFile, tls: Option<&TlsConfigs>) -> Self {
        Self::with_peers(TlsServersByAddress::default(), file, tls)
    }

    fn with_peers(peers: TlsServersByAddress, file: &ConfigFile, tls: Option<&TlsConfigs>) -> Self {
        peers.replace_peers(tls_peers(file));
        let outgoing = tls.and_then(|tls| tls.outgoing.clone());
        let trusts = outgoing.is_some();
        let tls = outgoing.map(|config| TlsClient::with_observer(config, peers.observer()));
        Self { addresses: outgoing_addresses_and_tls(file), trusts, tls, peers }
    }

    /// TLS peers.
    pub(crate) const fn peers(&self) -> &TlsServersByAddress {
        &self.peers
    }

    /// Returns it for another configuration. Connections to servers that this does not trust are closed. Without
    /// authorities they stay open.
    pub(crate) fn with_replaced_config(&self, file: &ConfigFile, tls: Option<&TlsConfigs>) -> Self {
        self.replace_tls(tls);
        let next = Self::with_peers(self.peers.clone(), file, tls);
        Self { tls: self.tls.clone().or(next.tls), ..next }
    }

    /// Restores the state before [`Self::with_replaced_config`].
    pub(crate) fn take_back(&self, file: &ConfigFile, tls: Option<&TlsConfigs>) {
        self.replace_tls(tls);
        self.peers.replace_peers(tls_peers(file));
    }

    /// Replaces certificates and authorities.
    fn replace_tls(&self, tls: Option<&TlsConfigs>) {
        if let (Some(client), Some(config)) = (&self.tls, tls.and_then(|tls| tls.outgoing.clone())) {
            client.replace(config);
        }
    }

    /// Returns the security of a connection to an address. Unknown addresses, and TLS addresses without a TLS
    /// configuration, are refused.
    pub(crate) fn carriage(&self, address: SocketAddr) -> OutgoingConnectionSecurity {
        match (self.addresses.get(&address), &self.tls) {
            (Some(false), _) => OutgoingConnectionSecurity::Plain,
            (Some(true), Some(tls)) if self.trusts => OutgoingConnectionSecurity::Tls(tls.clone()),
            (Some(true), _) | (None, _) => OutgoingConnectionSecurity::Refused,
        }
    }
}

impl BoundSockets {
    /// Returns the sockets for the driver.
    pub(crate) fn into_sockets(
        self,
        homes: &Arc<RwLock<UpstreamServers>>,
        server: Option<&TlsServer>,
    ) -> DriverSockets {
        // An address that requires TLS is not served if the server has no TLS configuration.
        let tcp = self.tcp.into_iter().filter(|(.., inside)| !inside || server.is_some());
        let tls = |inside: bool| server.filter(|_| inside).cloned();
        let listeners = tcp.map(|(id, socket, inside)| DriverTcpListener { id, socket, tls: tls(inside) });
        let homes = homes.clone();
        let outgoing: ConnectionSecuritySelector =
            Arc::new(move |address| homes.read().unwrap_or_else(PoisonError::into_inner).carriage(address));
        DriverSockets {
            udp: self.udp,
            listeners: listeners.collect(),
            associations: self.sctp,
            outgoing: Some(outgoing),
            settings: DriverConfig { associations: self.associations, ..DriverConfig::default() },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use usher_aaa_config::parse;
    use usher_config::disk::DiskEnvironment;

    #[test]
    fn what_is_to_be_inside_tls_is_never_connected_to_without() {
        let text = "[[home_server]]\nname = \"h\"\naddress = \"192.0.2.1:2083\"\ntransport = \"tls\"\ncertificate = \"h\"\n\
                    [diameter]\nidentity = \"a\"\nrealm = \"b\"\n\
                    [[diameter.peer]]\nidentity = \"c\"\nconnect = \"192.0.2.2:3868\"\n\
                    [[diameter.peer]]\nidentity = \"d\"\nconnect = \"192.0.2.3:5658\"\ntransport = \"tls\"\n";
        let file: ConfigFile = toml::from_str(text).unwrap();
        assert!(parse("aaa.toml", text, None, &DiskEnvironment).is_err(), "there is no [tls]");
        let homes = UpstreamServers::from_file(&file, None);
        let to = |address: &str| homes.carriage(address.parse().unwrap());
        assert!(matches!(to("192.0.2.1:2083"), OutgoingConnectionSecurity::Refused));
        assert!(matches!(to("192.0.2.2:3868"), OutgoingConnectionSecurity::Plain));
        assert!(matches!(to("192.0.2.3:5658"), OutgoingConnectionSecurity::Refused));
        assert!(matches!(to("192.0.2.4:3868"), OutgoingConnectionSecurity::Refused), "nobody is there");
    }

    #[test]
    fn listeners_never_cease_to_ask_for_certificates() {
        use usher_pki::{
            AuthorityInitOptions, CertificateAuthority, CertificateKind, CertificateRequest, KeyKind,
        };
        let folder = std::env::temp_dir().join(format!("usher-shards-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&folder);
        let (key, now) = (KeyKind::EcdsaP256, usher_service::setup::wall_time());
        let mut authority = CertificateAuthority::init(
            &folder,
            &AuthorityInitOptions { name: "Test".into(), key, days: 9, now },
        )
        .unwrap();
        let (kind, names) = (CertificateKind::Server, Vec::new());
        let request =
            CertificateRequest { name: "a".into(), kind, names, key, days: 9, ocsp: None, crl: None };
        let issued = authority.issue(&request, now).unwrap();
        let tls = |ca: &str| {
            let (certificate, key) = (issued.certificate.display(), issued.key.display());
            let text = format!("[tls]\ncertificate = \"{certificate}\"\nkey = \"{key}\"\n{ca}");
            let clock = usher_crypto::tls::SharedWallClock::from_time(now);
            usher_aaa_config::tls::load_tls(&parse("t", &text, None, &DiskEnvironment).unwrap(), &clock, None)
                .unwrap()
                .unwrap()
        };
        let asking = tls(&format!("ca = \"{}\"\n", authority.certificate_path().display()));
        let without = tls("");
        assert!(tls_servers(Some(&without)).is_empty(), "nobody is let in unasked");
        let listeners = tls_servers(Some(&asking));
        let asks = || Some(listeners[0].current()) == asking.clients;
        assert!(asks());
        replace_tls(&listeners, &without);
        replace_tls(&listeners, &without);
        assert!(asks());
        replace_tls(&listeners, &tls(&format!("ca = \"{}\"\n", authority.certificate_path().display())));
        assert!(!asks(), "other authorities are taken");
        std::fs::remove_dir_all(folder).unwrap();
    }
}
