//! The sockets of one shard.

use crate::config::model::{File, Listen, Transport};
use crate::daemon::ServeError;
use crate::tls::Tls;
use std::net::{SocketAddr, TcpListener, UdpSocket};
use std::sync::{Arc, PoisonError, RwLock};
use usher_aaa::Front;
use usher_crypto::tls::ClientConfig;
use usher_live::{Listener, Outgoing, SocketOptions, Sockets, TlsServer, bind_udp, listen};

/// Sockets that are bound; each shard has its own of each address.
pub(crate) struct Bound {
    udp: Vec<UdpSocket>,
    /// With what is spoken, and whether inside TLS.
    tcp: Vec<(TcpListener, Front, bool)>,
}

/// Binds what is to be listened on: datagrams for authentication first, then those for accounting, as
/// [`crate::build`] gives their roles. Without `shared`, nobody else may have bound any of it.
pub(crate) fn bind(addresses: &Listen, shared: bool) -> Result<Bound, ServeError> {
    let options = SocketOptions { shared, ..SocketOptions::default() };
    let failed = |address, what| move |error| ServeError::Listen { address, what, error };
    let mut udp = Vec::new();
    for (what, all) in [("authentication", &addresses.auth), ("accounting", &addresses.acct)] {
        for address in all {
            udp.push(bind_udp(*address, &options).map_err(failed(*address, what))?);
        }
    }
    let mut tcp = Vec::new();
    for (what, all, front, tls) in [
        ("RadSec", &addresses.radsec, Front::RadSec, true),
        ("Diameter", &addresses.diameter, Front::Diameter, false),
        ("Diameter over TLS", &addresses.diameter_tls, Front::Diameter, true),
    ] {
        for address in all {
            tcp.push((listen(*address, &options).map_err(failed(*address, what))?, front, tls));
        }
    }
    Ok(Bound { udp, tcp })
}

/// The TLS of all listeners, replaceable while they listen; none without a certificate.
pub(crate) fn tls_servers(tls: Option<&Tls>) -> Vec<TlsServer> {
    let config = tls.map(|tls| tls.clients.clone().unwrap_or_else(|| tls.anonymous.clone()));
    config.map(TlsServer::new).into_iter().collect()
}

/// Home servers that are reached by TLS, and how; replaced at a reload.
pub(crate) struct Homes {
    addresses: Vec<SocketAddr>,
    config: Option<ClientConfig>,
}

impl Homes {
    /// As the configuration says.
    pub(crate) fn of(file: &File, tls: Option<&Tls>) -> Self {
        let by_tls = file.home_server.iter().filter(|h| h.transport == Transport::Tls);
        Self {
            addresses: by_tls.map(|h| h.address).collect(),
            config: tls.and_then(|tls| tls.outgoing.clone()),
        }
    }
}

impl Bound {
    /// For the driver, with what each listener speaks.
    pub(crate) fn sockets(
        self,
        homes: &Arc<RwLock<Homes>>,
        server: Option<&TlsServer>,
    ) -> (Sockets, Vec<Front>) {
        let fronts = self.tcp.iter().map(|(_, front, _)| *front).collect();
        let listeners = self
            .tcp
            .into_iter()
            .map(|(socket, _, inside)| Listener { socket, tls: if inside { server.cloned() } else { None } });
        let homes = homes.clone();
        let outgoing: Outgoing = Arc::new(move |address| {
            let homes = homes.read().unwrap_or_else(PoisonError::into_inner);
            if homes.addresses.contains(&address) { homes.config.clone() } else { None }
        });
        let sockets = Sockets {
            udp: self.udp,
            listeners: listeners.collect(),
            outgoing: Some(outgoing),
            ..Sockets::default()
        };
        (sockets, fronts)
    }
}
