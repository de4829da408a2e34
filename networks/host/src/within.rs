//! An AAA server within the same program as the access server that asks it. Whoever puts the program together says how one is started
//! ([`StartAaa`]), since this crate knows no such server.

use std::fmt;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};
use usher_access::Aaa;
use usher_access_config::{AaaTable, Within};
use usher_crypto::Key;

/// An AAA server that runs beside the access server.
pub trait AaaServer: Send + Sync {
    /// Where it is asked.
    fn asked(&self) -> &Within;
    /// Has it read its configuration again; what comes of that is in the log.
    fn reload(&self);
    /// Has it end, once it has answered and written what it was told.
    fn end(&self);
}

/// Starts an AAA server by a configuration; what is given is called where it ends by itself. `Err` is a sentence that says why there
/// is none.
pub type StartAaa = fn(&Path, Box<dyn FnOnce() + Send>) -> Result<Box<dyn AaaServer>, String>;

/// Checks the configuration of an AAA server as one that starts would: its warnings, or a sentence that says why it would not serve.
pub type CheckAaa = fn(&Path) -> Result<Vec<String>, String>;

/// Checks the file of the server that a table wants within the program, if it wants one.
pub(crate) fn check(table: Option<&AaaTable>, base: &Path, check: CheckAaa) -> Result<Vec<String>, String> {
    named(table, base).map_or_else(|| Ok(Vec::new()), |file| check(&file))
}

/// Has an access server be made though its AAA server within the program has not been started, whose place is not known before.
pub(crate) fn stand_in(table: Option<&AaaTable>, aaa: Option<&mut Aaa>) {
    if let (Some(_), Some(aaa)) = (table.and_then(|table| table.server.as_ref()), aaa) {
        let at = |port| SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        Within { auth: at(1812), acct: at(1813), secret: Key::from(&b"stand-in"[..]) }.put(aaa);
    }
}

/// One that was started; it ends with this.
#[derive(Clone)]
pub(crate) struct Running(Arc<Inside>);

struct Inside {
    server: Box<dyn AaaServer>,
    failed: Arc<OnceLock<()>>,
}

impl fmt::Debug for Running {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Running").finish_non_exhaustive()
    }
}

impl Running {
    /// Starts the server that a file names, and has it be asked; `base` is the file's folder, `over` is called where it ends by itself.
    pub(crate) fn start(
        table: Option<&AaaTable>,
        aaa: Option<&mut Aaa>,
        base: &Path,
        start: StartAaa,
        over: impl FnOnce() + Send + 'static,
    ) -> Result<Option<Self>, String> {
        let (Some(file), Some(aaa)) = (named(table, base), aaa) else { return Ok(None) };
        let failed = Arc::new(OnceLock::new());
        let tells = failed.clone();
        let ended = move || {
            let _ = tells.set(());
            over();
        };
        let server = start(&file, Box::new(ended))?;
        server.asked().put(aaa);
        Ok(Some(Self(Arc::new(Inside { server, failed }))))
    }

    /// Has it read its configuration again.
    pub(crate) fn reload(&self) {
        self.0.server.reload();
    }

    /// Whether it has ended by itself.
    pub(crate) fn failed(&self) -> bool {
        self.0.failed.get().is_some()
    }
}

impl Drop for Inside {
    fn drop(&mut self) {
        self.server.end();
    }
}

/// The file of the AAA server that a table wants within the program; `base` is the folder from which its path goes.
fn named(table: Option<&AaaTable>, base: &Path) -> Option<PathBuf> {
    Some(base.join(table?.server.as_ref()?))
}
