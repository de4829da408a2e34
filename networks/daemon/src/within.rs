//! The server within another program: an access server that asks it alone, by RADIUS at addresses of loopback that nobody has to name.

use crate::advice;
use crate::assembly::check_config;
use crate::daemon::{ServerSignals, StartedServer};
use crate::error::ServeError;
use crate::installation::{ServerInstallation, random_octets};
use std::net::{Ipv4Addr, UdpSocket};
use std::path::Path;
use std::sync::{Mutex, PoisonError};
use std::thread::JoinHandle;
use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};
use usher_aaa_config::model::{ExtendedMasterSecret, InnerName, MessageAuthenticator};
use usher_aaa_config::{ClientEntry, LoadedConfig};
use usher_access_config::{EMBEDDED_CLIENT_ADDRESS, EmbeddedServer};
use usher_config::Prefix;
use usher_config::secret::SecretText;
use usher_crypto::SecretValue;
use usher_host::{AaaServer, SignalEvent};

/// Who asks a server within its program, and where.
#[derive(Clone, Debug)]
pub(crate) struct EmbeddingClient {
    server: EmbeddedServer,
    /// As the configuration has secrets.
    secret: SecretText,
}

impl EmbeddingClient {
    /// With ports that are free, and a secret that nobody can guess.
    fn new() -> Result<Self, ServeError> {
        let system = |what| move |error| ServeError::System { what, error };
        let free = || UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).map_err(system("a port of loopback"));
        // Both at a time, so that they are two.
        let (auth, acct) = (free()?, free()?);
        let address = |socket: UdpSocket| socket.local_addr().map_err(system("a port of loopback"));
        let secret = random_octets::<32>()
            .map_err(system("random numbers"))?
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

    /// Adds to a configuration where this one is listened for, and who it is.
    pub(crate) fn add_to_config(&self, loaded: &mut LoadedConfig) {
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
            // It is the same program.
            inner_name: InnerName::Send,
        });
    }
}

/// A server that runs on threads of this program.
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
        // One that has ended has said so.
        let _ = self.signal_sender.send(SignalEvent::Reload);
    }
    fn stop_server(&self) {
        let _ = self.signal_sender.send(SignalEvent::End);
        let thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner).take();
        if thread.is_some_and(|thread| thread.join().is_err()) {
            tracing::error!("the AAA server's thread failed");
        }
    }
}

/// Starts a server within this program, by the configuration that is named; its log is this program's. `over` is called where it ends
/// without being told to.
///
/// # Errors
/// A sentence that says why there is none.
pub fn start_embedded(config: &Path, over: Box<dyn FnOnce() + Send>) -> Result<Box<dyn AaaServer>, String> {
    start_server(config, over).map_err(|error| error.to_string())
}

/// Checks a configuration as [`start_embedded`] would: its warnings.
///
/// # Errors
/// A sentence that says why there would be no server.
pub fn check_embedded_config(config: &Path) -> Result<Vec<String>, String> {
    check_config(config).map(|place| advice::config_warnings(&place)).map_err(|error| error.to_string())
}

fn start_server(config: &Path, over: Box<dyn FnOnce() + Send>) -> Result<Box<dyn AaaServer>, ServeError> {
    let system = |what| move |error| ServeError::System { what, error };
    let place = ServerInstallation::from_config(Some(config))?;
    place.create_state_dir()?;
    place.loaded.warnings.iter().for_each(|warning| tracing::warn!("{warning}"));
    let within = EmbeddingClient::new()?;
    let asked = within.server.clone();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(system("runtime"))?;
    let begun = StartedServer::start_threads(place, Some(config), Some(within))?;
    let (told, telling) = unbounded_channel();
    let body = move || {
        if let Err(error) = begun.run_until_stopped(runtime, || Ok(ServerSignals::Embedded(telling))) {
            tracing::error!(%error, "the AAA server within this program has ended");
            over();
        }
    };
    let thread = std::thread::Builder::new().name("usher-aaa".to_owned()).spawn(body);
    let thread = Mutex::new(Some(thread.map_err(system("thread"))?));
    Ok(Box::new(EmbeddedAaaServer { server: asked, signal_sender: told, thread }))
}
