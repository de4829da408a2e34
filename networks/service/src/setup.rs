//! Setup that services share.

use crate::ServeError;
use crate::{TlsPeer, TlsServersByAddress};
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, SystemTime};
use usher_access_config::AaaTable;
use usher_config::ConfigDiagnostic;
use usher_core::{SecureRng, TransportProtocol, WallTime};
use usher_crypto::certificate::PeerCertificateCondition;
use usher_crypto::tls::{ClientConfig, SharedWallClock};
use usher_live::{ConnectionSecuritySelector, OutgoingConnectionSecurity, TlsClient};

/// Returns a cryptographically secure random number generator.
///
/// # Errors
/// The system has no randomness.
pub fn secure_rng() -> Result<SecureRng, ServeError> {
    let mut seed = [0; 32];
    rustix::rand::getrandom(&mut seed, rustix::rand::GetRandomFlags::empty()).map_err(|error| {
        ServeError::System { what: "cannot get random numbers from the system", error: error.into() }
    })?;
    Ok(SecureRng::from_seed(seed))
}

/// Returns the current time of the system's clock.
pub fn wall_time() -> WallTime {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    WallTime::UNIX_EPOCH
        + usher_core::Duration::from_nanos(u64::try_from(since.as_nanos()).unwrap_or(u64::MAX))
}

/// Returns a clock that follows the system's to the second while this program runs. Certificate validity depends on
/// it.
///
/// # Errors
/// A thread is unavailable.
pub fn wall_clock() -> Result<SharedWallClock, ServeError> {
    let clock = SharedWallClock::from_time(wall_time());
    let moved = clock.clone();
    let follow = move || {
        loop {
            std::thread::sleep(Duration::from_secs(1));
            moved.set(wall_time());
        }
    };
    std::thread::Builder::new()
        .name("wall-clock".to_owned())
        .spawn(follow)
        .map_err(|error| ServeError::System { what: "cannot start a thread", error })?;
    Ok(clock)
}

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

/// Formats faults for people.
pub fn fault_texts(faults: &[ConfigDiagnostic]) -> Vec<String> {
    faults.iter().map(ToString::to_string).collect()
}

/// The notices after a reload: warnings, and the keys whose change needs a restart of `what`.
pub fn config_notices(warnings: &[ConfigDiagnostic], what: &str, later: &[(&str, bool)]) -> Vec<String> {
    let waits = later.iter().filter(|(_, changed)| *changed);
    let waits =
        waits.map(|(key, _)| format!("{key} has changed: restart the {what} to apply the change in full"));
    fault_texts(warnings).into_iter().chain(waits).collect()
}
