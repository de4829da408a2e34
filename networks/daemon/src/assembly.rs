//! Assembles a server before it listens. `serve` continues from here, `check` stops here.

use crate::clock::wall_time;
use crate::error::ServeError;
use crate::installation::{self, OwnSecrets, ServerInstallation};
use std::path::Path;
use std::sync::Arc;
use usher_aaa::store::ClientRow;
use usher_aaa::{AaaServer, ShardConfig, ShardKey};
use usher_aaa_config::tls::{self, TlsConfigs};
use usher_aaa_config::{BuildInputs, BuiltConfig, DIALLER, NotServed, PassedOver, build_config, only_accept};
use usher_core::SecureRng;
use usher_crypto::tls::WallClock;

/// The parts of a server, for all shards.
pub(crate) struct ServerAssembly {
    pub(crate) tls: Option<Arc<TlsConfigs>>,
    pub(crate) built: BuiltConfig,
}

impl ServerAssembly {
    /// Assembles the parts for this number of shards: the configuration, the store's clients, and the server's own
    /// secrets. Logs the clients that are not served.
    ///
    /// # Errors
    /// A sentence with the error.
    pub(crate) fn from_installation(
        place: &ServerInstallation,
        (rows, own): (&[ClientRow], &OwnSecrets),
        shards: usize,
        clock: &WallClock,
        rng: &mut SecureRng,
    ) -> Result<Self, String> {
        let tls = tls::load_tls(&place.loaded, clock, None)?;
        let with = BuildInputs {
            identity_key: &own.identity_key,
            generated: own.generated.as_deref(),
            rows,
            tls: tls.as_deref(),
            shards,
        };
        let built = build_config(&place.loaded, with, rng)?;
        for PassedOver { client, why } in &built.passed_over {
            match why {
                NotServed::DuplicateAddress => {
                    tracing::warn!(client, "its addresses are another client's already; passed over");
                }
                NotServed::NoSecret => {
                    tracing::error!(client, "a client of the store without a secret is passed over");
                }
                NotServed::NoNetwork(error) => {
                    tracing::error!(client, error, "a client of the store is passed over");
                }
                NotServed::OtherVirtualServer(server) => {
                    tracing::error!(
                        client,
                        server,
                        "a client of the store is another virtual server's (column server) and is not served; write default there \
                         where this server is meant"
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
        key: &ShardKey,
        rng: &mut SecureRng,
    ) -> Result<AaaServer, ServeError> {
        let mut config = self.built.config.clone();
        config.shard = Some(ShardConfig { number, key: key.clone() });
        if number != DIALLER {
            only_accept(&mut config);
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
    let random = || {
        installation::random_octets().map_err(|error| ServeError::System { what: "random numbers", error })
    };
    let mut rng = SecureRng::from_seed(random()?);
    let clock = WallClock::from_time(wall_time());
    let assembly = ServerAssembly::from_installation(&place, (&[], &own), 1, &clock, &mut rng)
        .map_err(ServeError::Config)?;
    assembly.build_server(DIALLER, &ShardKey::new(&rng.random_array()), &mut rng)?;
    Ok(place)
}
