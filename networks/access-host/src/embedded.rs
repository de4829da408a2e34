//! An AAA server embedded in the program of an access server. The program supplies the function that starts one
//! ([`AaaServerStarter`]), since this crate does not depend on the AAA server.

use std::fmt;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};
use usher_access::AaaClientConfig;
use usher_access_config::{AaaTable, EmbeddedServer};
use usher_crypto::SecretValue;

/// An AAA server that runs beside the access server.
pub trait AaaServer: Send + Sync {
    /// Returns the addresses and the secret for requests.
    fn server_endpoints(&self) -> &EmbeddedServer;
    /// Reloads its configuration. The log has the outcome.
    fn reload_config(&self);
    /// Ends it, after it has sent its pending replies and written its records.
    fn stop_server(&self);
}

/// Starts an AAA server by a configuration file. It calls the given function if the server ends by itself. `Err` is a
/// sentence that says why it cannot start.
pub type AaaServerStarter = fn(&Path, Box<dyn FnOnce() + Send>) -> Result<Box<dyn AaaServer>, String>;

/// Checks the configuration of an AAA server. Returns its warnings, or a sentence that says why it would not start.
pub type AaaConfigChecker = fn(&Path) -> Result<Vec<String>, String>;

/// Checks the file of the embedded server, if the table has one.
pub fn check_embedded(
    table: Option<&AaaTable>,
    base: &Path,
    check: AaaConfigChecker,
) -> Result<Vec<String>, String> {
    config_path(table, base).map_or_else(|| Ok(Vec::new()), |file| check(&file))
}

/// Sets placeholder addresses for an embedded AAA server that is not started, so that the access server's
/// configuration can be checked.
pub fn stand_in(table: Option<&AaaTable>, aaa: Option<&mut AaaClientConfig>) {
    if let (Some(_), Some(aaa)) = (table.and_then(|table| table.server.as_ref()), aaa) {
        let at = |port| SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        EmbeddedServer { auth: at(1812), acct: at(1813), secret: SecretValue::from(&b"stand-in"[..]) }
            .apply_to(aaa);
    }
}

/// A running embedded server. Dropping the last clone ends it.
#[derive(Clone)]
pub struct RunningAaaServer(Arc<RunningAaaState>);

struct RunningAaaState {
    server: Box<dyn AaaServer>,
    failed: Arc<OnceLock<()>>,
}

impl fmt::Debug for RunningAaaServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Running").finish_non_exhaustive()
    }
}

impl RunningAaaServer {
    /// Starts the embedded server and directs requests to it. `base` is the folder of relative paths. `over` is
    /// called if the server ends by itself.
    pub fn start(
        table: Option<&AaaTable>,
        aaa: Option<&mut AaaClientConfig>,
        base: &Path,
        start: AaaServerStarter,
        over: impl FnOnce() + Send + 'static,
    ) -> Result<Option<Self>, String> {
        let (Some(file), Some(aaa)) = (config_path(table, base), aaa) else { return Ok(None) };
        let failed = Arc::new(OnceLock::new());
        let tells = failed.clone();
        let ended = move || {
            let _ = tells.set(());
            over();
        };
        let server = start(&file, Box::new(ended))?;
        server.server_endpoints().apply_to(aaa);
        Ok(Some(Self(Arc::new(RunningAaaState { server, failed }))))
    }

    /// Returns a function that reloads its configuration. It does not keep the server alive.
    pub fn reloader(&self) -> impl Fn() + Send + use<> {
        let server = Arc::downgrade(&self.0);
        move || {
            if let Some(running) = server.upgrade() {
                running.server.reload_config();
            }
        }
    }

    /// True if it has ended by itself.
    pub fn has_failed(&self) -> bool {
        self.0.failed.get().is_some()
    }
}

impl Drop for RunningAaaState {
    fn drop(&mut self) {
        self.server.stop_server();
    }
}

/// The file of the embedded AAA server. `base` is the folder of relative paths.
fn config_path(table: Option<&AaaTable>, base: &Path) -> Option<PathBuf> {
    Some(base.join(table?.server.as_ref()?))
}
