//! The server within another program: an access server that asks it alone, by RADIUS at addresses of loopback that nobody has to name.

use crate::advice;
use crate::assembly::check;
use crate::daemon::{Begun, Listens};
use crate::error::ServeError;
use crate::installation::{Installation, random};
use std::net::{Ipv4Addr, UdpSocket};
use std::path::Path;
use std::sync::{Mutex, PoisonError};
use std::thread::JoinHandle;
use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};
use usher_aaa_config::model::{ExtendedMasterSecret, InnerName, MessageAuthenticator};
use usher_aaa_config::{ClientEntry, Loaded};
use usher_access_config::{WITHIN, Within as Asked};
use usher_config::Prefix;
use usher_config::secret::Hidden;
use usher_crypto::Key;
use usher_host::{AaaServer, Told};

/// Who asks a server within its program, and where.
#[derive(Clone, Debug)]
pub(crate) struct Within {
    asked: Asked,
    /// As the configuration has secrets.
    secret: Hidden,
}

impl Within {
    /// With ports that are free, and a secret that nobody can guess.
    fn new() -> Result<Self, ServeError> {
        let system = |what| move |error| ServeError::System { what, error };
        let free = || UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).map_err(system("a port of loopback"));
        // Both at a time, so that they are two.
        let (auth, acct) = (free()?, free()?);
        let address = |socket: UdpSocket| socket.local_addr().map_err(system("a port of loopback"));
        let secret =
            random::<32>().map_err(system("random numbers"))?.map(|octet| format!("{octet:02x}")).concat();
        Ok(Self {
            asked: Asked { auth: address(auth)?, acct: address(acct)?, secret: Key::from(secret.as_bytes()) },
            secret: Hidden(secret.into()),
        })
    }

    /// Adds to a configuration where this one is listened for, and who it is.
    pub(crate) fn join(&self, loaded: &mut Loaded) {
        loaded.file.listen.auth.push(self.asked.auth);
        loaded.file.listen.acct.push(self.asked.acct);
        loaded.clients.push(ClientEntry {
            name: "within".to_owned(),
            prefix: Prefix { network: WITHIN.into(), bits: 32 },
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
struct Server {
    asked: Asked,
    told: UnboundedSender<Told>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl AaaServer for Server {
    fn asked(&self) -> &Asked {
        &self.asked
    }
    fn reload(&self) {
        // One that has ended has said so.
        let _ = self.told.send(Told::Reload);
    }
    fn end(&self) {
        let _ = self.told.send(Told::End);
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
pub fn within(config: &Path, over: Box<dyn FnOnce() + Send>) -> Result<Box<dyn AaaServer>, String> {
    begin(config, over).map_err(|error| error.to_string())
}

/// Checks a configuration as [`within`] would: its warnings.
///
/// # Errors
/// A sentence that says why there would be no server.
pub fn check_within(config: &Path) -> Result<Vec<String>, String> {
    check(config).map(|place| advice::warnings(&place)).map_err(|error| error.to_string())
}

fn begin(config: &Path, over: Box<dyn FnOnce() + Send>) -> Result<Box<dyn AaaServer>, ServeError> {
    let system = |what| move |error| ServeError::System { what, error };
    let place = Installation::open(Some(config))?;
    place.prepare()?;
    place.loaded.warnings.iter().for_each(|warning| tracing::warn!("{warning}"));
    let within = Within::new()?;
    let asked = within.asked.clone();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(system("runtime"))?;
    let begun = Begun::begin(place, Some(config), Some(within))?;
    let (told, telling) = unbounded_channel();
    let body = move || {
        if let Err(error) = begun.serve(runtime, || Ok(Listens::Within(telling))) {
            tracing::error!(%error, "the AAA server within this program has ended");
            over();
        }
    };
    let thread = std::thread::Builder::new().name("usher-aaa".to_owned()).spawn(body);
    let thread = Mutex::new(Some(thread.map_err(system("thread"))?));
    Ok(Box::new(Server { asked, told, thread }))
}
