//! The configuration file of an IKEv2 gateway or client.

#[cfg(feature = "tls")]
mod build;
mod data;
mod model;
mod revocation;
#[cfg(test)]
mod tests;

pub use data::{Carry, DataTable, NamedPolicy, PolicyTable, PolicyWord, policies};
pub use model::{
    AuthMethod, ChildTable, ChildlessWord, ConnectionTable, EapTable, File, Limits, Listen, LocalAuth,
    ModeWord, Reauthentication, RemoteAuth,
};

pub use revocation::{DEFAULT_STATE, OcspPolicy, RevocationTable};

#[cfg(feature = "tls")]
use crate::service::Config;
use crate::service::{DYNAMIC_SOCKET, NAT_SOCKET, NAT_SOCKET_V6, SOCKET, SOCKET_V6};
use alloc::string::String;
use alloc::vec::Vec;
#[cfg(feature = "tls")]
use alloc::{collections::BTreeMap, sync::Arc};
use core::net::{IpAddr, SocketAddr};
#[cfg(feature = "tls")]
use std::path::Path;
use usher_config::Format;
#[cfg(feature = "tls")]
use usher_config::tree::TreeNode;
#[cfg(feature = "tls")]
use usher_config::{Checked, Collector, Fault, Faults, Outside};
use usher_core::SocketId;
#[cfg(feature = "tls")]
use usher_crypto::tls::{ClientConfig, WallClock};
#[cfg(feature = "tls")]
use usher_ike::credentials::Credentials;

/// Where the configuration is unless somebody says otherwise.
pub const DEFAULT_PATH: &str = "/etc/usher/ike.toml";
/// Where the control socket is unless the configuration says otherwise.
pub const DEFAULT_CONTROL: &str = "/run/usher/ike.sock";

/// What configuration files are.
pub const FORMAT: Format = Format { what: "the IKEv2 gateway's configuration", version: 1, retired: &[] };

/// A checked configuration, with its keys and certificates.
#[cfg(feature = "tls")]
#[derive(Clone, Debug)]
pub struct Loaded {
    /// As it was written.
    pub file: File,
    /// What the machine takes.
    pub config: Config,
    /// Who does its jobs.
    pub credentials: Arc<Credentials>,
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
    fn from(Checked { file, made, warnings }: Checked<File, build::Made>) -> Self {
        let build::Made { config, credentials, outgoing } = made;
        Self { file, config, credentials: Arc::new(credentials), outgoing, warnings }
    }
}

/// What a file has the gateway listen on: each socket with its address.
#[must_use]
pub fn listening(file: &File) -> Vec<(SocketId, SocketAddr)> {
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
    usher_config::json_schema::<File>(&FORMAT)
}
