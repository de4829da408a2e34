//! A server embedded in another program. Its only client is an access server, by RADIUS at unused loopback ports.

use crate::advice;
use crate::assembly::check_config;
use crate::daemon::StartedServer;
use crate::error::{ServeError, system_error};
use crate::installation::{ServerInstallation, random_octets};
use std::net::{Ipv4Addr, UdpSocket};
use std::path::Path;
use std::sync::{Mutex, PoisonError};
use std::thread::JoinHandle;
use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};
use usher_aaa_config::model::{ExtendedMasterSecret, InnerIdentityDisclosure, MessageAuthenticator};
use usher_aaa_config::{ClientEntry, LoadedAaaConfig};
use usher_access_config::{EMBEDDED_CLIENT_ADDRESS, EmbeddedServer};
use usher_access_host::AaaServer;
use usher_config::Prefix;
use usher_config::secret::SecretText;
use usher_crypto::SecretValue;
use usher_service::{ServiceSignals, SignalEvent, start_runtime};

/// The client of an embedded server, and its addresses.
#[derive(Clone, Debug)]
pub(crate) struct EmbeddedServerClient {
    server: EmbeddedServer,
    /// Secret in the form of the configuration.
    secret: SecretText,
}

impl EmbeddedServerClient {
    /// Chooses free ports and a random secret.
    fn new() -> Result<Self, ServeError> {
        let free =
            || UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).map_err(system_error("cannot bind a loopback port"));
        // Both sockets are open at the same time, so that their ports differ.
        let (auth, acct) = (free()?, free()?);
        let address =
            |socket: UdpSocket| socket.local_addr().map_err(system_error("cannot bind a loopback port"));
        let secret = random_octets::<32>()
            .map_err(system_error("cannot get random numbers"))?
            .map(|octet| format!("{octet:02x}"))
            .concat();
        Ok(Self {
            server: EmbeddedServer {
                auth: address(auth)?,
                acct: address(acct)?,
                secret: SecretValue::from(secret.as_bytes()),
            },
            secret: SecretText(secret.into()),
        })
    }

    /// Adds its addresses and the client to a configuration.
    pub(crate) fn add_embedded_client(&self, loaded: &mut LoadedAaaConfig) {
        loaded.file.listen.auth.push(self.server.auth);
        loaded.file.listen.acct.push(self.server.acct);
        loaded.clients.push(ClientEntry {
            name: "within".to_owned(),
            prefix: Prefix { network: EMBEDDED_CLIENT_ADDRESS.into(), bits: 32 },
            secret: Some(self.secret.clone()),
            message_authenticator: MessageAuthenticator::Required,
            extended_master_secret: ExtendedMasterSecret::Required,
            certificates: Vec::new(),
            nas: Vec::new(),
            // The client is this same program, so it may receive the inner name.
            inner_name: InnerIdentityDisclosure::Send,
        });
    }
}

/// A server on threads of this program.
struct EmbeddedAaaServer {
    server: EmbeddedServer,
    signal_sender: UnboundedSender<SignalEvent>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl AaaServer for EmbeddedAaaServer {
    fn server_endpoints(&self) -> &EmbeddedServer {
        &self.server
    }
    fn reload_config(&self) {
        // A send error is ignored: if the server has ended, it has already reported this.
        let _ = self.signal_sender.send(SignalEvent::Reload);
    }
    fn stop_server(&self) {
        let _ = self.signal_sender.send(SignalEvent::End);
        let thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner).take();
        if thread.is_some_and(|thread| thread.join().is_err()) {
            tracing::error!("the embedded AAA server's thread failed");
        }
    }
}

/// Starts a server within this program, with the configuration at this path. It logs to the program's log. `over`
/// is called if it ends by itself.
///
/// # Errors
/// A sentence with the error.
pub fn start_embedded(config: &Path, over: Box<dyn FnOnce() + Send>) -> Result<Box<dyn AaaServer>, String> {
    start_server(config, over).map_err(|error| error.to_string())
}

/// Checks a configuration as [`start_embedded`] does, and returns its warnings.
///
/// # Errors
/// A sentence with the error.
pub fn check_embedded_config(config: &Path) -> Result<Vec<String>, String> {
    check_config(config).map(|place| advice::config_warnings(&place)).map_err(|error| error.to_string())
}

fn start_server(config: &Path, over: Box<dyn FnOnce() + Send>) -> Result<Box<dyn AaaServer>, ServeError> {
    let place = ServerInstallation::from_config(Some(config))?;
    place.create_state_dir()?;
    place.loaded.warnings.iter().for_each(|warning| tracing::warn!("{warning}"));
    let within = EmbeddedServerClient::new()?;
    let asked = within.server.clone();
    let runtime = start_runtime()?;
    let begun = StartedServer::start_threads(place, Some(config), Some(within))?;
    let (told, telling) = unbounded_channel();
    let body = move || {
        if let Err(error) = begun.run_until_stopped(runtime, || Ok(ServiceSignals::Embedded(telling))) {
            tracing::error!(%error, "the embedded AAA server has ended");
            over();
        }
    };
    let thread = std::thread::Builder::new().name("usher-aaa".to_owned()).spawn(body);
    let thread = Mutex::new(Some(thread.map_err(system_error("cannot start the AAA server's thread"))?));
    Ok(Box::new(EmbeddedAaaServer { server: asked, signal_sender: told, thread }))
}
