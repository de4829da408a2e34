//! The configuration file of an access concentrator.

#[cfg(feature = "tls")]
mod build;
mod model;
#[cfg(test)]
mod tests;

pub use model::{
    AuthenticationTable, ConcentratorFile, DataTable, EapMethod, HookWord, IdentTable, IpfixTable,
    LimitsTable, ListenTable, ModeWord, NatWord, PortsTable, RateTable, ServiceTable, TrackingTable,
    WhenAwayWord,
};

#[cfg(feature = "tls")]
use crate::service::AccessConcentratorConfig;
#[cfg(feature = "tls")]
use alloc::collections::BTreeMap;
use alloc::string::String;
#[cfg(feature = "tls")]
use alloc::vec::Vec;
#[cfg(feature = "tls")]
use core::net::SocketAddr;
#[cfg(feature = "tls")]
use std::path::Path;
use usher_config::ConfigFormat;
#[cfg(feature = "tls")]
use usher_config::tree::TreeNode;
#[cfg(feature = "tls")]
use usher_config::{CheckedConfig, ConfigDiagnostic, ConfigEnvironment, ConfigErrors, DiagnosticCollector};
#[cfg(feature = "tls")]
use usher_crypto::tls::{ClientConfig, WallClock};

/// Where the configuration is unless somebody says otherwise.
pub const DEFAULT_PATH: &str = "/etc/usher/pppoe.toml";
/// Where the control socket is unless the configuration says otherwise.
pub const DEFAULT_CONTROL: &str = "/run/usher/pppoe.sock";
/// The folder of the log of sessions unless the configuration says otherwise.
pub const DEFAULT_FOLDER: &str = "/var/lib/usher/pppoe";

/// What configuration files are.
pub const FORMAT: ConfigFormat =
    ConfigFormat { description: "the PPPoE access concentrator's configuration", version: 1, retired: &[] };

/// A checked configuration.
#[cfg(feature = "tls")]
#[derive(Clone, Debug)]
pub struct LoadedConcentratorConfig {
    /// As it was written.
    pub file: ConcentratorFile,
    /// What the machine takes. Its ports are without the addresses that their interfaces have: whoever hosts it knows these.
    pub config: AccessConcentratorConfig,
    /// What protects connections to AAA servers that it opens, by their addresses.
    pub outgoing: BTreeMap<SocketAddr, ClientConfig>,
    /// What is right and should be written otherwise.
    pub warnings: Vec<ConfigDiagnostic>,
}

/// Checks a text. `origin` is the file that it was read from, or what faults call it; the files that it names are sought from
/// its folder. Certificates are looked at by the clock, which the machine sets.
///
/// # Errors
/// Everything that is wrong with it.
#[cfg(feature = "tls")]
pub fn parse(
    origin: &str,
    text: &str,
    outside: &dyn ConfigEnvironment,
    clock: &WallClock,
) -> Result<LoadedConcentratorConfig, ConfigErrors> {
    let check = |file: &mut ConcentratorFile, base: &Path| build::build_config(file, base, outside, clock);
    usher_config::parse(&FORMAT, origin, text, outside, check).map(LoadedConcentratorConfig::from)
}

/// Reads and checks a table of another file that holds the keys of a configuration, such as a host's of a study; faults and
/// warnings have its lines. Relative paths go from `base`. `None`: something is wrong, as `faults` says.
#[cfg(feature = "tls")]
pub fn read_tree(
    tree: TreeNode,
    base: &Path,
    outside: &dyn ConfigEnvironment,
    clock: &WallClock,
    faults: &mut DiagnosticCollector,
) -> Option<LoadedConcentratorConfig> {
    let check = |file: &mut ConcentratorFile, base: &Path| build::build_config(file, base, outside, clock);
    usher_config::read_tree(&FORMAT, tree, base, check, faults).map(LoadedConcentratorConfig::from)
}

#[cfg(feature = "tls")]
impl From<CheckedConfig<ConcentratorFile, build::BuiltConfig>> for LoadedConcentratorConfig {
    fn from(
        CheckedConfig { file, built_config: (config, outgoing), warnings }: CheckedConfig<
            ConcentratorFile,
            build::BuiltConfig,
        >,
    ) -> Self {
        Self { file, config, outgoing, warnings }
    }
}

/// The JSON Schema of the file, as `docs/pppoe.schema.json` holds it: indented, with a final newline.
#[must_use]
pub fn json_schema() -> String {
    usher_config::json_schema::<ConcentratorFile>(&FORMAT)
}
