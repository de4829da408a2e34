//! TLS to the AAA servers of an access server.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use usher_access_config::AaaTable;
use usher_core::TransportProtocol;
use usher_crypto::certificate::PeerCertificateCondition;
use usher_crypto::tls::ClientConfig;
use usher_live::{ConnectionSecuritySelector, OutgoingConnectionSecurity, TlsClient};
use usher_service::{TlsPeer, TlsServersByAddress};

/// Returns the TLS settings of outgoing connections by destination. The log says why a connection to a configured
/// server fails.
pub fn select_outgoing_tls(
    protected: &BTreeMap<SocketAddr, ClientConfig>,
    table: Option<&AaaTable>,
) -> ConnectionSecuritySelector {
    let peers = TlsServersByAddress::default();
    peers.replace_peers(table.map(tls_peers).unwrap_or_default());
    let client = |config: &ClientConfig| TlsClient::with_observer(config.clone(), peers.observer());
    let protected: BTreeMap<SocketAddr, TlsClient> =
        protected.iter().map(|(address, config)| (*address, client(config))).collect();
    Arc::new(move |address| {
        protected
            .get(&address)
            .map_or(OutgoingConnectionSecurity::Plain, |tls| OutgoingConnectionSecurity::Tls(tls.clone()))
    })
}

/// The AAA servers that use TLS.
fn tls_peers(table: &AaaTable) -> BTreeMap<SocketAddr, TlsPeer> {
    let peer = |name: &str, may: Option<&String>| TlsPeer {
        name: name.to_owned(),
        certificates: may.cloned().map(PeerCertificateCondition::Name).into_iter().collect(),
    };
    let radius = table.radius.iter().filter(|server| server.transport == TransportProtocol::Tls);
    let radius = radius.map(|server| {
        let name = server.certificate.clone().unwrap_or_else(|| server.address.to_string());
        (server.address, peer(&name, server.certificate.as_ref()))
    });
    let diameter = table.diameter.iter().flat_map(|diameter| &diameter.peer);
    let diameter = diameter.filter(|server| server.transport == TransportProtocol::Tls);
    // The certificate of a Diameter peer must contain its Diameter identity.
    let diameter = diameter.map(|server| (server.address, peer(&server.identity, Some(&server.identity))));
    radius.chain(diameter).collect()
}
