//! Configuration that all access servers share: AAA servers (`[aaa]`), address pools (`[[pool]]`) and local users
//! (`[[user]]`). Holds the types of the tables, their checks, and the builders of the machines' configurations.

extern crate alloc;

#[cfg(feature = "tls")]
mod aaa;
#[cfg(feature = "tls")]
mod builder;
mod model;

#[cfg(feature = "tls")]
pub use aaa::{EMBEDDED_CLIENT_ADDRESS, EmbeddedServer, NasKind};
#[cfg(feature = "tls")]
pub use builder::{AccessConfigBuilder, SecretSources};
pub use model::{
    AaaTable, DiameterPeerTable, DiameterTable, DynamicAuthTable, PoolTable, RadiusTable, TlsTable, UserTable,
};
