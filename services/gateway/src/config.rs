//! The configuration file of an IKEv2 gateway or client.

#[cfg(feature = "tls")]
mod build;
mod data;
mod model;
mod revocation;
#[cfg(test)]
mod tests;

pub use data::{ChildSaPolicy, DataPlaneKind, DataTable, PolicyActionName, PolicyTable, build_policies};
pub use model::{
    AuthMethod, ChildSaTable, ChildlessSaPolicy, ConnectionTable, GatewayConfigFile, GatewayEapTable,
    LimitsTable, ListenTable, LocalAuth, ModeWord, Reauthentication, RemoteAuth,
};

pub use revocation::{DEFAULT_STATE, OcspPolicy, RevocationTable};

#[cfg(feature = "tls")]
use crate::api::GatewayConfig;
use crate::service::{DYNAMIC_SOCKET, NAT_SOCKET, NAT_SOCKET_V6, SOCKET, SOCKET_V6};
use alloc::string::String;
use alloc::vec::Vec;
#[cfg(feature = "tls")]
use alloc::{collections::BTreeMap, sync::Arc};
use core::net::{IpAddr, SocketAddr};
#[cfg(feature = "tls")]
use std::path::Path;
#[cfg(feature = "tls")]
use usher_config::tree::TreeNode;
#[cfg(feature = "tls")]
use usher_config::{CheckedConfig, ConfigDiagnostic, ConfigEnvironment, ConfigErrors, DiagnosticCollector};
use usher_config::{ConfigFormat, RetiredKey};
use usher_core::SocketId;
#[cfg(feature = "tls")]
use usher_crypto::tls::{ClientConfig, SharedWallClock};
#[cfg(feature = "tls")]
use usher_ike::credentials::IkeCredentials;

/// The default path of the configuration.
pub const DEFAULT_PATH: &str = "/etc/usher/ike.toml";
/// The default path of the control socket.
pub const DEFAULT_CONTROL: &str = "/run/usher/ike.sock";

/// The format of configuration files.
pub const FORMAT: ConfigFormat = ConfigFormat {
    description: "the IKEv2 gateway's configuration",
    version: 1,
    retired: &[
        RetiredKey::renamed(&["eap"], "failures_within", "failure_window"),
        RetiredKey::renamed(&["eap"], "failures_hold", "lockout_time"),
        RetiredKey::renamed(&["limits"], "half_open_per_network", "half_open_per_host"),
        RetiredKey::renamed(&["data"], "carry", "mode"),
        RetiredKey::renamed(&["data"], "held_packets", "queued_packets"),
        RetiredKey::renamed(&["data"], "held_for", "queue_time"),
        RetiredKey::renamed(&["connection"], "unprotected", "without_child_sa"),
    ],
};

/// A checked configuration, with its keys and certificates.
#[cfg(feature = "tls")]
#[derive(Clone, Debug)]
pub struct LoadedGatewayConfig {
    /// The file as written.
    pub file: GatewayConfigFile,
    /// The configuration of the machine.
    pub config: GatewayConfig,
    /// The credentials that answer its jobs.
    pub credentials: Arc<IkeCredentials>,
    /// The TLS configuration of connections that it opens to AAA servers, by address.
    pub outgoing: BTreeMap<SocketAddr, ClientConfig>,
    /// Warnings: correct settings that should be written in another way.
    pub warnings: Vec<ConfigDiagnostic>,
}

/// Parses and checks a text. `origin` is its file name, or its name in diagnostics. Relative paths go from its
/// folder. Certificates are checked against the clock that the machine sets.
///
/// # Errors
/// All faults of the text.
#[cfg(feature = "tls")]
pub fn parse(
    origin: &str,
    text: &str,
    outside: &dyn ConfigEnvironment,
    clock: &SharedWallClock,
) -> Result<LoadedGatewayConfig, ConfigErrors> {
    let check = |file: &mut GatewayConfigFile, base: &Path| build::build_config(file, base, outside, clock);
    usher_config::parse(&FORMAT, origin, text, outside, check).map(LoadedGatewayConfig::from)
}

/// Reads and checks a table of another file with the same keys, for example of a host in a study. Diagnostics have
/// the lines of that file. Relative paths go from `base`. `None` if there are `faults`.
#[cfg(feature = "tls")]
pub fn read_tree(
    tree: TreeNode,
    base: &Path,
    outside: &dyn ConfigEnvironment,
    clock: &SharedWallClock,
    faults: &mut DiagnosticCollector,
) -> Option<LoadedGatewayConfig> {
    let check = |file: &mut GatewayConfigFile, base: &Path| build::build_config(file, base, outside, clock);
    usher_config::read_tree(&FORMAT, tree, base, check, faults).map(LoadedGatewayConfig::from)
}

#[cfg(feature = "tls")]
impl From<CheckedConfig<GatewayConfigFile, build::BuiltGatewayConfig>> for LoadedGatewayConfig {
    fn from(
        CheckedConfig { file, built_config: made, warnings }: CheckedConfig<
            GatewayConfigFile,
            build::BuiltGatewayConfig,
        >,
    ) -> Self {
        let build::BuiltGatewayConfig { config, credentials, outgoing } = made;
        Self { file, config, credentials: Arc::new(credentials), outgoing, warnings }
    }
}

/// Returns the sockets on which the gateway listens, with their addresses.
#[must_use]
pub fn listen_sockets(file: &GatewayConfigFile) -> Vec<(SocketId, SocketAddr)> {
    let listen = &file.listen;
    let of = |address: &IpAddr| {
        let ids = if address.is_ipv4() { [SOCKET, NAT_SOCKET] } else { [SOCKET_V6, NAT_SOCKET_V6] };
        let ports = [listen.port, listen.nat_port].map(|port| SocketAddr::new(*address, port));
        ids.into_iter().zip(ports)
    };
    let dynamic = file.aaa.as_ref().and_then(|aaa| aaa.dynamic.as_ref());
    let dynamic = dynamic.map(|dynamic| (DYNAMIC_SOCKET, dynamic.listen));
    listen.addresses.iter().flat_map(of).chain(dynamic).collect()
}

/// The JSON Schema of the file, as `docs/ike.schema.json` holds it: indented, with a final newline.
#[must_use]
pub fn json_schema() -> String {
    usher_config::json_schema::<GatewayConfigFile>(&FORMAT)
}
