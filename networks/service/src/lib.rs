//! The toolbox of daemons: what every program that serves is built with.
//!
//! ```text
//! main thread: signals ──▶ driver's thread: one machine on its sockets (usher-live)
//!                             │ jobs ──▶ helpers' threads ──▶ mailbox
//!                             └ log lines ──▶ log's thread
//! ```
//! [`serve_machine`] runs one machine until a signal ends it. A daemon supplies its sockets, a function that does its
//! jobs, and a function that receives its events. A larger daemon uses the parts directly: [`control`], [`jobs`],
//! [`log`], [`metrics`], [`notify`], [`SignalListener`]. Each daemon is a crate of its own: `networks/*-daemon`.

mod bounded_listener;
pub mod command_sender;
pub mod control;
pub mod folder;
mod frames;
pub mod jobs;
pub mod line_budget;
pub mod log;
mod mailboxes;
pub mod metrics;
pub mod notify;
mod run;
mod serve;
pub mod setup;
mod signals;
mod tls_peers;
mod work;

pub use command_sender::{CommandSender, PendingControlRequests};
pub use frames::{EthernetPorts, FrameInput, FrameKind, FrameSender};
pub use mailboxes::ShardMailboxes;
pub use run::{ServiceSignals, ServiceTasks, StopReason, run_until_stopped, start_runtime};
pub use serve::{
    CommandSource, HostedMachine, MachineJobQueue, MachineWorkerPool, SendCommand, ServeError, ShardRouter,
    StopCondition, bind_listener, protect_memory, run_until_event, serve_machine, serve_sharded_machines,
    system_error,
};
pub use signals::{SignalEvent, SignalListener};
pub use tls_peers::{TlsPeer, TlsServersByAddress};
pub use work::WorkUnitCounters;
