//! Servers reached by TLS, and why one of them is refused or refuses this side: for the log and for status queries.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use usher_crypto::certificate::PeerCertificateCondition;
use usher_crypto::tls::TlsError;
use usher_crypto::x509::CertificateInfo;
use usher_live::{TlsConnectionOutcome, TlsObserver};

/// A fault is logged again after this time without it. An unreachable server is tried at least each minute.
const FORGOTTEN: Duration = Duration::from_secs(600);

/// A server that is reached by TLS.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TlsPeer {
    /// The name for people.
    pub name: String,
    /// The accepted certificates. Empty: any that its authority has issued.
    pub certificates: Vec<PeerCertificateCondition>,
}

/// Why a server is unreachable.
#[derive(Clone, PartialEq, Eq, Debug)]
struct TlsPeerError {
    why: String,
    /// True while the fault is current.
    lasts: bool,
    observed_at: Instant,
}

#[derive(Debug, Default)]
struct PeerTable {
    peers: BTreeMap<SocketAddr, TlsPeer>,
    faults: BTreeMap<SocketAddr, TlsPeerError>,
}

/// Servers by address. Clones share them.
#[derive(Clone, Debug, Default)]
pub struct TlsServersByAddress(Arc<Mutex<PeerTable>>);

impl TlsServersByAddress {
    fn lock_table(&self) -> MutexGuard<'_, PeerTable> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Replaces the servers.
    pub fn replace_peers(&self, peers: BTreeMap<SocketAddr, TlsPeer>) {
        let mut state = self.lock_table();
        state.faults.retain(|address, _| peers.contains_key(address));
        state.peers = peers;
    }

    /// Returns an observer of connections. It logs why one is refused, once while the reason stays the same, for all
    /// threads.
    #[must_use]
    pub fn observer(&self) -> TlsObserver {
        let peers = self.clone();
        Arc::new(move |address, outcome| {
            if let Some((server, why)) = peers.record_outcome(address, outcome, Instant::now()) {
                tracing::warn!(server, %address, why, "TLS connection to a server failed");
            }
        })
    }

    /// Returns why a server is unreachable now, if TLS or its certificate is the cause.
    #[must_use]
    pub fn tls_peer_fault(&self, address: SocketAddr) -> Option<String> {
        let state = self.lock_table();
        state.faults.get(&address).filter(|fault| fault.lasts).map(|fault| fault.why.clone())
    }

    /// Lists all servers that are unreachable for such a cause, by name.
    #[must_use]
    pub fn tls_peer_faults(&self) -> Vec<(String, String)> {
        let state = self.lock_table();
        let lasting = state.faults.iter().filter(|(_, fault)| fault.lasts);
        lasting.map(|(address, fault)| (state.peer_name(*address), fault.why.clone())).collect()
    }

    /// Records the outcome of a connection. Returns the server's name and the fault, if it is new.
    fn record_outcome(
        &self,
        address: SocketAddr,
        outcome: &TlsConnectionOutcome<'_>,
        now: Instant,
    ) -> Option<(String, String)> {
        let mut state = self.lock_table();
        let Some(why) = state.tls_refusal_reason(address, outcome) else {
            // The connection has no fault yet, but keep the earlier one: a TLS 1.3 server reports only later that it
            // rejects this side's certificate.
            if let Some(fault) = state.faults.get_mut(&address) {
                fault.lasts = false;
            }
            return None;
        };
        let fault = TlsPeerError { why: why.clone(), lasts: true, observed_at: now };
        let before = state.faults.insert(address, fault);
        let is_known = before.is_some_and(|before| {
            before.why == why && now.saturating_duration_since(before.observed_at) < FORGOTTEN
        });
        (!is_known).then(|| (state.peer_name(address), why))
    }
}

impl PeerTable {
    fn peer_name(&self, address: SocketAddr) -> String {
        self.peers.get(&address).map_or_else(|| address.to_string(), |peer| peer.name.clone())
    }

    /// Returns why a connection is refused, if it is.
    fn tls_refusal_reason(&self, address: SocketAddr, outcome: &TlsConnectionOutcome<'_>) -> Option<String> {
        let shown = match outcome {
            TlsConnectionOutcome::Failed(TlsError::Failed(fault, said)) => {
                return Some(format!("{} ({said})", fault.describe_with_peer_name("the server")));
            }
            TlsConnectionOutcome::Failed(error) => {
                return Some(error.fault().describe_with_peer_name("the server").to_string());
            }
            TlsConnectionOutcome::Up(shown) => *shown,
        };
        let may = self.peers.get(&address).map(|peer| &*peer.certificates).filter(|may| !may.is_empty())?;
        let Some(shown) = shown else { return Some("the server sends no certificate".to_owned()) };
        if may.iter().any(|may| may.matches_certificate(shown)) {
            return None;
        }
        let wanted: Vec<_> = may.iter().map(describe_certificate).collect();
        let mut names = CertificateInfo::of_der(shown).map(|said| said.names).unwrap_or_default();
        // The certificate's subject may repeat one of its alternative names, so remove duplicates.
        names.sort_unstable();
        names.dedup();
        let names = if names.is_empty() { "no name".to_owned() } else { names.join(", ") };
        Some(format!("the server's certificate is for {names} and should be for {}", wanted.join(" or ")))
    }
}

/// Describes the configured certificate.
fn describe_certificate(may: &PeerCertificateCondition) -> String {
    match may {
        PeerCertificateCondition::Name(name) => name.clone(),
        PeerCertificateCondition::Fingerprint(print) => {
            let octets: String = print.iter().map(|octet| format!("{octet:02x}")).collect();
            format!("the fingerprint {octets}")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use usher_crypto::fault::{CertificateFault, TlsFault};
    use usher_crypto::tls::fixtures;

    #[test]
    fn a_fault_is_reported_once_and_again_on_a_change_or_return() {
        let address: SocketAddr = "192.0.2.1:2083".parse().unwrap();
        let of = |name: &str| TlsPeer {
            name: "home".to_owned(),
            certificates: vec![PeerCertificateCondition::Name(name.to_owned())],
        };
        let peers = TlsServersByAddress::default();
        peers.replace_peers([(address, of("other.example"))].into());
        let server = fixtures::server_credentials(1);
        let (begun, leaf) = (Instant::now(), TlsConnectionOutcome::Up(Some(server.leaf_certificate())));
        let expired = TlsError::Failed(
            TlsFault::Certificate(CertificateFault::Expired),
            "it ended yesterday".to_owned(),
        );
        let take = |outcome: &TlsConnectionOutcome<'_>, seconds| {
            peers.record_outcome(address, outcome, begun + Duration::from_secs(seconds)).map(|(_, why)| why)
        };
        let name = take(&leaf, 0).unwrap();
        assert!(
            name.contains(fixtures::SERVER_NAME) && name.ends_with("should be for other.example"),
            "{name}"
        );
        assert_eq!((take(&leaf, 60), peers.tls_peer_fault(address)), (None, Some(name.clone())));
        let expired = TlsConnectionOutcome::Failed(&expired);
        let why = take(&expired, 120).unwrap();
        assert!(why.ends_with("has expired (it ended yesterday)"), "{why}");
        assert_eq!(
            (take(&expired, 180), peers.tls_peer_faults()),
            (None, vec![("home".to_owned(), why.clone())])
        );
        // The server is reached, and then is not: the same fault is not logged again so soon.
        peers.replace_peers([(address, of(fixtures::SERVER_NAME))].into());
        assert_eq!((take(&leaf, 200), peers.tls_peer_fault(address)), (None, None));
        assert_eq!((take(&expired, 210), peers.tls_peer_fault(address)), (None, Some(why.clone())));
        assert_eq!(take(&expired, 210 + FORGOTTEN.as_secs()), Some(why));
        assert!(
            take(&TlsConnectionOutcome::Up(None), 1000).is_some_and(|why| why.contains("no certificate"))
        );
        peers.replace_peers(BTreeMap::new());
        assert!(peers.tls_peer_faults().is_empty(), "it is nobody's any more");
    }
}
