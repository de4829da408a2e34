//! The configuration file of an access concentrator.

#[cfg(feature = "tls")]
mod build;
mod model;
#[cfg(test)]
mod tests;

pub use model::{
    Authentication, DataTable, EapMethod, File, HookWord, IdentTable, IpfixTable, LimitsTable, Listen,
    ModeWord, NatWord, PortsTable, RateTable, Service, Tracking, WhenAwayWord,
};

#[cfg(feature = "tls")]
use crate::service::Config;
#[cfg(feature = "tls")]
use alloc::collections::BTreeMap;
use alloc::string::String;
#[cfg(feature = "tls")]
use alloc::vec::Vec;
#[cfg(feature = "tls")]
use core::net::SocketAddr;
#[cfg(feature = "tls")]
use std::path::Path;
use usher_config::Format;
#[cfg(feature = "tls")]
use usher_config::tree::TreeNode;
#[cfg(feature = "tls")]
use usher_config::{Checked, Collector, Fault, Faults, Outside};
#[cfg(feature = "tls")]
use usher_crypto::tls::{ClientConfig, WallClock};

/// Where the configuration is unless somebody says otherwise.
pub const DEFAULT_PATH: &str = "/etc/usher/pppoe.toml";
/// Where the control socket is unless the configuration says otherwise.
pub const DEFAULT_CONTROL: &str = "/run/usher/pppoe.sock";
/// The folder of the log of sessions unless the configuration says otherwise.
pub const DEFAULT_FOLDER: &str = "/var/lib/usher/pppoe";

/// What configuration files are.
pub const FORMAT: Format =
    Format { what: "the PPPoE access concentrator's configuration", version: 1, retired: &[] };

/// A checked configuration.
#[cfg(feature = "tls")]
#[derive(Clone, Debug)]
pub struct Loaded {
    /// As it was written.
    pub file: File,
    /// What the machine takes. Its ports are without the addresses that their interfaces have: whoever hosts it knows these.
    pub config: Config,
    /// What protects connections to AAA servers that it opens, by their addresses.
    pub outgoing: BTreeMap<SocketAddr, ClientConfig>,
    /// What is right and should be written otherwise.
    pub warnings: Vec<Fault>,
}

/// Checks a text. `origin` is the file that it was read from, or what faults call it; the files that it names are sought from
/// its folder. Certificates are looked at by the clock, which the machine sets.
///
/// # Errors
/// Everything that is wrong with it.
#[cfg(feature = "tls")]
pub fn parse(origin: &str, text: &str, outside: &dyn Outside, clock: &WallClock) -> Result<Loaded, Faults> {
    let check = |file: &mut File, base: &Path| build::made(file, base, outside, clock);
    usher_config::parse(&FORMAT, origin, text, outside, check).map(Loaded::from)
}

/// Reads and checks a table of another file that holds the keys of a configuration, such as a host's of a study; faults and
/// warnings have its lines. Relative paths go from `base`. `None`: something is wrong, as `faults` says.
#[cfg(feature = "tls")]
pub fn read_tree(
    tree: TreeNode,
    base: &Path,
    outside: &dyn Outside,
    clock: &WallClock,
    faults: &mut Collector,
) -> Option<Loaded> {
    let check = |file: &mut File, base: &Path| build::made(file, base, outside, clock);
    usher_config::read_tree(&FORMAT, tree, base, check, faults).map(Loaded::from)
}

#[cfg(feature = "tls")]
impl From<Checked<File, build::Made>> for Loaded {
    fn from(Checked { file, made: (config, outgoing), warnings }: Checked<File, build::Made>) -> Self {
        Self { file, config, outgoing, warnings }
    }
}

/// The JSON Schema of the file, as `docs/pppoe.schema.json` holds it: indented, with a final newline.
#[must_use]
pub fn json_schema() -> String {
    usher_config::json_schema::<File>(&FORMAT)
}
