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

mod bounded_listener;
mod command_sender;
pub mod control;
mod embedded;
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
mod tls_peers;
mod work;

pub(crate) use command_sender::{CommandSender, PendingControlRequests};
pub use embedded::{AaaConfigChecker, AaaServer, AaaServerStarter};
pub use serve::{
    CommandSource, EthernetPorts, FrameHandler, FrameKind, FrameSender, HostedMachine, MachineJobQueue,
    MachineWorkerPool, SendCommand, ServeError, ShardRouter, StopCondition, bind_listener, protect_memory,
    run_until_event, serve_machine, serve_sharded_machines,
};
pub use signals::{SignalEvent, SignalListener};
pub use tls_peers::{TlsPeer, TlsServersByAddress};
pub use work::WorkUnitCounters;
