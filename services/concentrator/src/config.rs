//! The configuration file of an access concentrator.

#[cfg(feature = "tls")]
mod build;
mod model;
#[cfg(test)]
mod tests;

pub use model::{
    AaaOutagePolicyName, AuthenticationTable, ConcentratorConfigFile, DataTable, EapMethod, EbpfHookName,
    IdentTable, IpfixTable, LimitsTable, ListenTable, ModeWord, NatModeName, PortBlocksTable,
    PppoeServiceTable, RateLimitTable, SessionLogTable,
};

#[cfg(feature = "tls")]
use crate::api::AccessConcentratorConfig;
#[cfg(feature = "tls")]
use alloc::collections::BTreeMap;
use alloc::string::String;
#[cfg(feature = "tls")]
use alloc::vec::Vec;
#[cfg(feature = "tls")]
use core::net::SocketAddr;
#[cfg(feature = "tls")]
use std::path::Path;
#[cfg(feature = "tls")]
use usher_config::tree::TreeNode;
#[cfg(feature = "tls")]
use usher_config::{CheckedConfig, ConfigDiagnostic, ConfigEnvironment, ConfigErrors, DiagnosticCollector};
use usher_config::{ConfigFormat, RetiredKey};
#[cfg(feature = "tls")]
use usher_crypto::tls::{ClientConfig, SharedWallClock};

/// Default path of the configuration file.
pub const DEFAULT_PATH: &str = "/etc/usher/pppoe.toml";
/// Default path of the control socket.
pub const DEFAULT_CONTROL: &str = "/run/usher/pppoe.sock";
/// Default folder of the session log.
pub const DEFAULT_FOLDER: &str = "/var/lib/usher/pppoe";

/// The format of configuration files.
pub const FORMAT: ConfigFormat = ConfigFormat {
    description: "the PPPoE access concentrator's configuration",
    version: 1,
    retired: &[
        RetiredKey::renamed(&["authentication"], "failures_within", "failure_window"),
        RetiredKey::renamed(&["authentication"], "failures_hold", "lockout_time"),
        RetiredKey::renamed(&["authentication"], "when_away", "without_aaa"),
    ],
};

/// A checked configuration.
#[cfg(feature = "tls")]
#[derive(Clone, Debug)]
pub struct LoadedConcentratorConfig {
    /// The file's content.
    pub file: ConcentratorConfigFile,
    /// The machine's configuration. Its ports lack the addresses of their interfaces, which the host adds.
    pub config: AccessConcentratorConfig,
    /// TLS configurations of outgoing connections to AAA servers, by address.
    pub outgoing: BTreeMap<SocketAddr, ClientConfig>,
    /// Warnings about valid settings that should be written differently.
    pub warnings: Vec<ConfigDiagnostic>,
}

/// Parses and checks a file. `origin` is the file's path, or its name in faults. Relative paths start from its folder.
/// The machine's clock decides about the validity of certificates.
///
/// # Errors
/// All faults of the file.
#[cfg(feature = "tls")]
pub fn parse(
    origin: &str,
    text: &str,
    outside: &dyn ConfigEnvironment,
    clock: &SharedWallClock,
) -> Result<LoadedConcentratorConfig, ConfigErrors> {
    let check =
        |file: &mut ConcentratorConfigFile, base: &Path| build::build_config(file, base, outside, clock);
    usher_config::parse(&FORMAT, origin, text, outside, check).map(LoadedConcentratorConfig::from)
}

/// Parses and checks a configuration that is a table of another file, such as a study. Faults and warnings have the
/// lines of that file. Relative paths start from `base`. `None`: `faults` has the errors.
#[cfg(feature = "tls")]
pub fn read_tree(
    tree: TreeNode,
    base: &Path,
    outside: &dyn ConfigEnvironment,
    clock: &SharedWallClock,
    faults: &mut DiagnosticCollector,
) -> Option<LoadedConcentratorConfig> {
    let check =
        |file: &mut ConcentratorConfigFile, base: &Path| build::build_config(file, base, outside, clock);
    usher_config::read_tree(&FORMAT, tree, base, check, faults).map(LoadedConcentratorConfig::from)
}

#[cfg(feature = "tls")]
impl From<CheckedConfig<ConcentratorConfigFile, build::BuiltConfig>> for LoadedConcentratorConfig {
    fn from(
        CheckedConfig { file, built_config: (config, outgoing), warnings }: CheckedConfig<
            ConcentratorConfigFile,
            build::BuiltConfig,
        >,
    ) -> Self {
        Self { file, config, outgoing, warnings }
    }
}

/// Returns the JSON Schema of the file, as in `docs/pppoe.schema.json`: indented, with a final newline.
#[must_use]
pub fn json_schema() -> String {
    usher_config::json_schema::<ConcentratorConfigFile>(&FORMAT)
}
