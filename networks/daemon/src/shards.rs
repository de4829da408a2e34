//! The sockets of one shard.

use crate::error::ServeError;
use std::collections::BTreeMap;
use std::net::{SocketAddr, TcpListener, UdpSocket};
use std::sync::{Arc, PoisonError, RwLock};
use usher_aaa::{DIAMETER_LISTENER, RADSEC_LISTENER, radius_socket};
use usher_aaa_config::model::{File, Listen, Stream, Transport};
use usher_aaa_config::tls::Tls;
use usher_core::ListenerId;
use usher_live::{
    Carriage, Listener, Outgoing, SocketOptions, Sockets, TlsClient, TlsServer, bind_udp, listen,
};

/// Sockets that are bound; each shard has its own of each address.
pub(crate) struct Bound {
    udp: Vec<UdpSocket>,
    /// With what the server calls it, and whether inside TLS.
    tcp: Vec<(TcpListener, ListenerId, bool)>,
}

/// Binds what is to be listened on: datagrams for authentication first, then those for accounting, as
/// [`usher_aaa_config::build()`] gives their roles. Without `shared`, nobody else may have bound any of it.
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
    for (what, all, id, tls) in [
        ("RadSec", &addresses.radsec, RADSEC_LISTENER, true),
        ("Diameter", &addresses.diameter, DIAMETER_LISTENER, false),
        ("Diameter over TLS", &addresses.diameter_tls, DIAMETER_LISTENER, true),
    ] {
        for address in all {
            tcp.push((listen(*address, &options).map_err(failed(*address, what))?, id, tls));
        }
    }
    Ok(Bound { udp, tcp })
}

/// The TLS of all listeners, replaceable while they listen; none without a certificate and authorities: whoever connects
/// shows a certificate.
pub(crate) fn tls_servers(tls: Option<&Tls>) -> Vec<TlsServer> {
    tls.and_then(|tls| tls.clients.clone()).map(TlsServer::new).into_iter().collect()
}

/// Has listeners take other certificates; connections that are open to those who are not trusted any more are closed.
/// Without authorities they keep what they have: they never cease to ask who connects.
pub(crate) fn replace_tls(listeners: &[TlsServer], tls: &Tls) {
    for listener in listeners {
        match &tls.clients {
            Some(clients) => listener.replace(clients.clone()),
            None => tracing::warn!(
                "ca is not in [tls] any more; where TLS is listened on, the old certificates and authorities stay until the server is started again"
            ),
        }
    }
}

/// Servers that this one connects to, and how; replaced at a reload.
pub(crate) struct Upstreams {
    /// Whether inside TLS.
    addresses: BTreeMap<SocketAddr, bool>,
    /// One from the first configuration with TLS on, so that connections that are open hear of each that follows.
    tls: Option<TlsClient>,
    /// Whether this configuration has authorities that home servers and peers must end below.
    trusts: bool,
}

impl Upstreams {
    /// As the configuration says.
    pub(crate) fn of(file: &File, tls: Option<&Tls>) -> Self {
        let homes = file.home_server.iter().filter(|h| h.transport == Transport::Tls);
        let homes = homes.map(|h| (h.address, true));
        let peers = file.diameter.iter().flat_map(|d| &d.peer);
        let peers = peers.filter_map(|p| Some((p.connect?, p.transport == Stream::Tls)));
        let outgoing = tls.and_then(|tls| tls.outgoing.clone());
        Self {
            addresses: peers.chain(homes).collect(),
            trusts: outgoing.is_some(),
            tls: outgoing.map(TlsClient::new),
        }
    }

    /// As another configuration says, in place of this one. Connections that are open to servers that it does not trust
    /// are closed; where it has no authorities, they stay as they are.
    pub(crate) fn next(&self, file: &File, tls: Option<&Tls>) -> Self {
        self.replace_tls(tls);
        let next = Self::of(file, tls);
        Self { tls: self.tls.clone().or(next.tls), ..next }
    }

    /// Takes other certificates and authorities.
    pub(crate) fn replace_tls(&self, tls: Option<&Tls>) {
        if let (Some(client), Some(config)) = (&self.tls, tls.and_then(|tls| tls.outgoing.clone())) {
            client.replace(config);
        }
    }

    /// What protects a connection to an address. What is nobody's, and what is to be inside TLS while there is none, is
    /// not connected to.
    pub(crate) fn carriage(&self, address: SocketAddr) -> Carriage {
        match (self.addresses.get(&address), &self.tls) {
            (Some(false), _) => Carriage::Plain,
            (Some(true), Some(tls)) if self.trusts => Carriage::Tls(tls.clone()),
            (Some(true), _) | (None, _) => Carriage::Refused,
        }
    }
}

impl Bound {
    /// For the driver.
    pub(crate) fn sockets(self, homes: &Arc<RwLock<Upstreams>>, server: Option<&TlsServer>) -> Sockets {
        // What is to be inside TLS is not listened on without.
        let tcp = self.tcp.into_iter().filter(|(_, _, inside)| !inside || server.is_some());
        let tls = |inside: bool| server.filter(|_| inside).cloned();
        let listeners = tcp.map(|(socket, id, inside)| Listener { id, socket, tls: tls(inside) });
        let homes = homes.clone();
        let outgoing: Outgoing =
            Arc::new(move |address| homes.read().unwrap_or_else(PoisonError::into_inner).carriage(address));
        Sockets {
            udp: (0..).map(radius_socket).zip(self.udp).collect(),
            listeners: listeners.collect(),
            outgoing: Some(outgoing),
            ..Sockets::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use usher_aaa_config::parse;
    use usher_host::disk::Disk;

    #[test]
    fn what_is_to_be_inside_tls_is_never_connected_to_without() {
        let text = "[[home_server]]\nname = \"h\"\naddress = \"192.0.2.1:2083\"\ntransport = \"tls\"\ncertificate = \"h\"\n\
                    [diameter]\nidentity = \"a\"\nrealm = \"b\"\n\
                    [[diameter.peer]]\nidentity = \"c\"\nconnect = \"192.0.2.2:3868\"\n\
                    [[diameter.peer]]\nidentity = \"d\"\nconnect = \"192.0.2.3:5658\"\ntransport = \"tls\"\n";
        let file: File = toml::from_str(text).unwrap();
        assert!(parse("aaa.toml", text, None, &Disk).is_err(), "there is no [tls]");
        let homes = Upstreams::of(&file, None);
        let to = |address: &str| homes.carriage(address.parse().unwrap());
        assert!(matches!(to("192.0.2.1:2083"), Carriage::Refused));
        assert!(matches!(to("192.0.2.2:3868"), Carriage::Plain));
        assert!(matches!(to("192.0.2.3:5658"), Carriage::Refused));
        assert!(matches!(to("192.0.2.4:3868"), Carriage::Refused), "nobody is there");
    }

    #[test]
    fn listeners_never_cease_to_ask_for_certificates() {
        use usher_pki::{Authority, InitOptions, KeyKind, Kind, Request};
        let folder = std::env::temp_dir().join(format!("usher-shards-{}", std::process::id()));
        let (key, now) = (KeyKind::EcdsaP256, crate::clock::wall());
        let mut authority =
            Authority::init(&folder, &InitOptions { name: "Test".into(), key, days: 9, now }).unwrap();
        let (kind, names) = (Kind::Server, Vec::new());
        let request = Request { name: "a".into(), kind, names, key, days: 9, ocsp: None, crl: None };
        let issued = authority.issue(&request, now).unwrap();
        let tls = |ca: &str| {
            let (certificate, key) = (issued.certificate.display(), issued.key.display());
            let text = format!("[tls]\ncertificate = \"{certificate}\"\nkey = \"{key}\"\n{ca}");
            let clock = usher_crypto::tls::WallClock::at(now);
            usher_aaa_config::tls::make(&parse("t", &text, None, &Disk).unwrap(), &clock).unwrap().unwrap()
        };
        let asking = tls(&format!("ca = \"{}\"\n", authority.certificate().display()));
        let without = tls("");
        assert!(tls_servers(Some(&without)).is_empty(), "nobody is let in unasked");
        let listeners = tls_servers(Some(&asking));
        let asks = || Some(listeners[0].current()) == asking.clients;
        assert!(asks());
        replace_tls(&listeners, &without);
        replace_tls(&listeners, &without);
        assert!(asks());
        replace_tls(&listeners, &tls(&format!("ca = \"{}\"\n", authority.certificate().display())));
        assert!(!asks(), "other authorities are taken");
        std::fs::remove_dir_all(folder).unwrap();
    }
}
