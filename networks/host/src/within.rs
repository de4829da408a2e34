//! An AAA server within the same program as the access server that asks it. Whoever puts the program together says how one is started
//! ([`StartAaa`]), since this crate knows no such server.

use std::fmt;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};
use usher_access::AaaClientConfig;
use usher_access_config::{AaaTable, EmbeddedServer};
use usher_crypto::SecretValue;

/// An AAA server that runs beside the access server.
pub trait AaaServer: Send + Sync {
    /// Where it is asked.
    fn server_endpoints(&self) -> &EmbeddedServer;
    /// Has it read its configuration again; what comes of that is in the log.
    fn reload_config(&self);
    /// Has it end, once it has answered and written what it was told.
    fn stop_server(&self);
}

/// Starts an AAA server by a configuration; what is given is called where it ends by itself. `Err` is a sentence that says why there
/// is none.
pub type StartAaa = fn(&Path, Box<dyn FnOnce() + Send>) -> Result<Box<dyn AaaServer>, String>;

/// Checks the configuration of an AAA server as one that starts would: its warnings, or a sentence that says why it would not serve.
pub type CheckAaa = fn(&Path) -> Result<Vec<String>, String>;

/// Checks the file of the server that a table wants within the program, if it wants one.
pub(crate) fn check_embedded(
    table: Option<&AaaTable>,
    base: &Path,
    check: CheckAaa,
) -> Result<Vec<String>, String> {
    config_path(table, base).map_or_else(|| Ok(Vec::new()), |file| check(&file))
}

/// Has an access server be made though its AAA server within the program has not been started, whose place is not known before.
pub(crate) fn stand_in(table: Option<&AaaTable>, aaa: Option<&mut AaaClientConfig>) {
    if let (Some(_), Some(aaa)) = (table.and_then(|table| table.server.as_ref()), aaa) {
        let at = |port| SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        EmbeddedServer { auth: at(1812), acct: at(1813), secret: SecretValue::from(&b"stand-in"[..]) }
            .apply_to(aaa);
    }
}

/// One that was started; it ends with this.
#[derive(Clone)]
pub(crate) struct RunningAaaServer(Arc<RunningAaaState>);

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
    /// Starts the server that a file names, and has it be asked; `base` is the file's folder, `over` is called where it ends by itself.
    pub(crate) fn start(
        table: Option<&AaaTable>,
        aaa: Option<&mut AaaClientConfig>,
        base: &Path,
        start: StartAaa,
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

    /// Has it read its configuration again.
    pub(crate) fn reload_config(&self) {
        self.0.server.reload_config();
    }

    /// Whether it has ended by itself.
    pub(crate) fn has_failed(&self) -> bool {
        self.0.failed.get().is_some()
    }
}

impl Drop for RunningAaaState {
    fn drop(&mut self) {
        self.server.stop_server();
    }
}

/// The file of the AAA server that a table wants within the program; `base` is the folder from which its path goes.
fn config_path(table: Option<&AaaTable>, base: &Path) -> Option<PathBuf> {
    Some(base.join(table?.server.as_ref()?))
}
