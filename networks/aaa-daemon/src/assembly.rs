//! Assembles a server before it listens. `serve` continues from here, `check` stops here.

use crate::error::ServeError;
use crate::installation::{GeneratedServerSecrets, ServerInstallation};
use std::path::Path;
use std::sync::Arc;
use usher_aaa::store::ClientRow;
use usher_aaa::{AaaServer, InterShardKey, ShardConfig};
use usher_aaa_config::tls::{self, TlsConfigs};
use usher_aaa_config::{
    AaaConfigBuildInputs, BuiltConfig, DIALLER, SkippedClient, SkippedClientReason, build_config,
    disable_outgoing_peers,
};
use usher_core::SecureRng;
use usher_crypto::tls::SharedWallClock;
use usher_service::setup::{secure_rng, wall_time};

/// The parts of a server, for all shards.
pub(crate) struct AssembledServerParts {
    pub(crate) tls: Option<Arc<TlsConfigs>>,
    pub(crate) built: BuiltConfig,
}

impl AssembledServerParts {
    /// Assembles the parts for this number of shards: the configuration, the store's clients, and the server's own
    /// secrets. Logs the clients that are not served.
    ///
    /// # Errors
    /// A sentence with the error.
    pub(crate) fn from_installation(
        place: &ServerInstallation,
        (rows, own): (&[ClientRow], &GeneratedServerSecrets),
        shards: usize,
        clock: &SharedWallClock,
        rng: &mut SecureRng,
    ) -> Result<Self, String> {
        let tls = tls::load_tls(&place.loaded, clock, None)?;
        let with = AaaConfigBuildInputs {
            identity_key: &own.identity_key,
            generated: own.generated.as_deref(),
            rows,
            tls: tls.as_deref(),
            shards,
        };
        let built = build_config(&place.loaded, with, rng)?;
        for SkippedClient { client, why } in &built.passed_over {
            match why {
                SkippedClientReason::DuplicateAddress => {
                    tracing::warn!(
                        client,
                        "client of the store ignored: another client has the same addresses"
                    );
                }
                SkippedClientReason::NoSecret => {
                    tracing::error!(client, "client of the store ignored: it has no secret");
                }
                SkippedClientReason::NoNetwork(error) => {
                    tracing::error!(client, error, "client of the store ignored: its network is invalid");
                }
                SkippedClientReason::OtherVirtualServer(server) => {
                    tracing::error!(
                        client,
                        server,
                        "client of the store ignored: its column `server` names another virtual server; write \
                         `default` for this server"
                    );
                }
            }
        }
        Ok(Self { tls, built })
    }

    /// Creates a shard's server.
    ///
    /// # Errors
    /// The configuration contradicts itself.
    pub(crate) fn build_server(
        &self,
        number: u16,
        key: &InterShardKey,
        rng: &mut SecureRng,
    ) -> Result<AaaServer, ServeError> {
        let mut config = self.built.config.clone();
        config.shard = Some(ShardConfig { number, key: key.clone() });
        if number != DIALLER {
            disable_outgoing_peers(&mut config);
        }
        let seed = SecureRng::from_seed(rng.random_array());
        AaaServer::new(config, seed).map_err(|error| ServeError::Config(error.to_string()))
    }
}

/// Loads all that a server with this configuration loads before it connects to its store and listens. Changes
/// nothing: the server's own secrets are generated and discarded.
///
/// # Errors
/// The error with which the server would not start.
pub fn check_config(config: &Path) -> Result<ServerInstallation, ServeError> {
    let place = ServerInstallation::from_config(Some(config))?;
    place.check_state_dir()?;
    let own = place.own_secrets(false)?;
    let mut rng = secure_rng()?;
    let clock = SharedWallClock::from_time(wall_time());
    let assembly = AssembledServerParts::from_installation(&place, (&[], &own), 1, &clock, &mut rng)
        .map_err(ServeError::Config)?;
    assembly.build_server(DIALLER, &InterShardKey::new(&rng.random_array()), &mut rng)?;
    Ok(place)
}
