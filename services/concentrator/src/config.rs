//! The configuration file of an access concentrator.

#[cfg(feature = "tls")]
mod build;
mod model;
#[cfg(test)]
mod tests;

pub use model::{
    Authentication, DataTable, EapMethod, File, IdentTable, LimitsTable, Listen, ModeWord, NatWord,
    PortsTable, RateTable, Service, Tracking, WhenAwayWord,
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
use usher_config::{Collector, Fault, Faults, Outside};
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
    let mut faults = Collector::new(origin, text);
    let folder = Path::new(origin).parent().unwrap_or(Path::new(""));
    let loaded = usher_config::document(&FORMAT, outside, &mut faults)
        .and_then(|tree| checked(tree, folder, outside, clock, &mut faults));
    faults.finish(loaded)
}

/// Reads and checks a table of another file that holds the keys of a configuration, such as a host's of a study; faults and
/// warnings have its lines. Relative paths go from `base`. `None`: something is wrong, as `faults` says.
#[cfg(feature = "tls")]
pub fn read_tree(
    mut tree: TreeNode,
    base: &Path,
    outside: &dyn Outside,
    clock: &WallClock,
    faults: &mut Collector,
) -> Option<Loaded> {
    usher_config::renew(&mut tree, &FORMAT, faults);
    checked(tree, base, outside, clock, faults)
}

#[cfg(feature = "tls")]
fn checked(
    mut tree: TreeNode,
    base: &Path,
    outside: &dyn Outside,
    clock: &WallClock,
    faults: &mut Collector,
) -> Option<Loaded> {
    let read = usher_config::read::<File>(&mut tree, |_| false, faults);
    let file = read.value.filter(|_| read.whole)?;
    let (config, found, outgoing) = build::made(&file, base, outside, clock);
    let whole = found.is_empty();
    for (keys, message) in found {
        faults.add(tree.place(&tree.steps(&keys)), message);
    }
    let config = config.filter(|_| whole)?;
    Some(Loaded { file, config, outgoing, warnings: faults.warnings() })
}

/// The JSON Schema of the file, as `docs/pppoe.schema.json` holds it: indented, with a final newline.
#[must_use]
pub fn json_schema() -> String {
    usher_config::json_schema::<File>(&FORMAT)
}
