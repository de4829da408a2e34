//! What services set up alike.

use crate::ServeError;
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use usher_config::Fault;
use usher_core::SecureRng;
use usher_crypto::tls::ClientConfig;
use usher_live::{Carriage, Outgoing, TlsClient};

/// Chance that nobody can guess.
///
/// # Errors
/// The system has none.
pub(crate) fn secure_rng() -> Result<SecureRng, ServeError> {
    let mut seed = [0; 32];
    rustix::rand::getrandom(&mut seed, rustix::rand::GetRandomFlags::empty())
        .map_err(|error| ServeError::System { what: "the system's chance", error: error.into() })?;
    Ok(SecureRng::from_seed(seed))
}

/// Which connections that a machine opens are protected, by where they go.
pub(crate) fn outgoing(protected: &BTreeMap<SocketAddr, ClientConfig>) -> Outgoing {
    let protected: BTreeMap<SocketAddr, TlsClient> =
        protected.iter().map(|(address, config)| (*address, TlsClient::new(config.clone()))).collect();
    Arc::new(move |address| protected.get(&address).map_or(Carriage::Plain, |tls| Carriage::Tls(tls.clone())))
}

/// What to tell of a configuration that was read again: its warnings, and the keys whose change waits for the next start of `what`.
pub(crate) fn notices(warnings: &[Fault], what: &str, later: &[(&str, bool)]) -> Vec<String> {
    let waits = later.iter().filter(|(_, changed)| *changed);
    let waits = waits.map(|(key, _)| {
        format!("{key} has changed: that takes full effect when the {what} is started again")
    });
    warnings.iter().map(ToString::to_string).chain(waits).collect()
}
