//! What the files of access servers have in common, whatever they give access to: AAA servers (`[aaa]`), address pools
//! (`[[pool]]`) and users that an access server knows itself (`[[user]]`), as types with their checks, and what they make.

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
    AaaTable, DiameterPeerTable, DiameterTable, DynamicTable, PoolTable, RadiusTable, TlsTable, UserTable,
};
