//! Hosts one [`Machine`](usher_core::Machine) as a service: sockets, threads, signals, log, control socket and
//! metrics.
//!
//! ```text
//! main thread: signals ──▶ driver's thread: one machine on its sockets (usher-live)
//!                             │ jobs ──▶ helpers' threads ──▶ mailbox
//!                             └ log lines ──▶ log's thread
//! ```
//! [`serve`] runs one machine until a signal ends it. A service supplies its sockets, a function that does its jobs,
//! and a function that receives its events. A larger daemon uses the parts directly: [`control`], [`log`],
//! [`notify`], [`SignalListener`]. Each small service has a module here: [`ident`], [`ike`], [`mih`], [`pppoe`].

pub mod control;
mod door;
pub mod folder;
pub mod ident;
pub mod ike;
pub mod jobs;
mod line_budget;
pub mod log;
pub mod metrics;
pub mod mih;
pub mod netlink;
pub mod notify;
pub mod owner;
pub mod pppoe;
mod serve;
mod setup;
mod signals;
mod telling;
mod tls_peers;
mod within;
mod work;

pub use serve::{
    CommandSource, EthernetPorts, FrameHandler, FrameKind, FrameSender, HelperPool, HostedMachine,
    MachineJobs, SendCommand, ServeError, ShardRouter, StopCondition, bind_listener, protect_memory,
    run_until_event, serve_machine, serve_shards,
};
pub use signals::{SignalEvent, SignalListener};
pub(crate) use telling::{CommandSender, PendingRequests};
pub use tls_peers::{TlsPeer, TlsPeers};
pub use within::{AaaServer, CheckAaa, StartAaa};
pub use work::WorkDone;
