//! The AAA server as a daemon: configuration on disk, shards, stores, signals, metrics and control socket.
//!
//! ```text
//! shard threads, each: a live driver with one AAA machine and sockets of its own (SO_REUSEPORT)
//!    │ look-ups, slow hashes ──▶ store threads ──▶ mailbox
//!    │ admissions, records ────▶ ledger thread (group commit) ──▶ mailbox
//!    └ datagrams whose State names another shard ──▶ that shard's mailbox
//! main thread: signals, control socket, metrics
//! ```

pub mod admin;
pub mod advice;
mod assembly;
pub mod config;
pub mod control;
mod daemon;
mod drops;
mod embedded;
mod error;
mod fetched;
mod homes;
pub mod installation;
mod ledger;
pub mod lists;
mod log_lines;
mod mailbox;
mod memory;
mod metrics;
mod outage;
pub mod probe;
mod ready;
mod role;
mod running;
mod shards;
mod stats;
mod status;
mod workers;

pub use assembly::check_config;
pub use daemon::run_server;
pub use embedded::{check_embedded_config, start_embedded};
pub use error::ServeError;
pub use installation::{InstallationError, ServerControlPaths, ServerInstallation, StoreInspectionReport};
