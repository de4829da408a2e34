//! What programs that serve have in common, beside their machines.
//!
//! ```text
//! main thread: signals ──▶ driver's thread: one machine on its sockets (usher-live)
//!                             │ jobs ──▶ helpers' threads ──▶ mailbox
//!                             └ log lines ──▶ log's thread
//! ```
//! [`serve`] hosts one [`Machine`](usher_core::Machine) until it is told to end: a service needs its sockets, a function that
//! does its jobs and one that hears what it says. What a larger daemon builds itself takes the parts: [`control`], [`log`],
//! [`notify`], [`SignalListener`]. Each small service has a module here that puts these together for it ([`ident`], [`ike`], [`mih`],
//! [`pppoe`]).

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
