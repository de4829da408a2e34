//! What every Usher protocol is made of: [`time`], the [`machine`] shape, [`automaton`](mod@automaton) tables, [`timer`]s,
//! labelled random streams ([`rng`]), session [`table`]s, [`recent`] keys, [`fair`] queues, bounded [`codec`] readers and writers,
//! [`counter`]s and channel [`impair`]ments.
//!
//! Nothing here knows a clock, a socket or a thread: time and input are given in, output is polled.

#![cfg_attr(not(test), no_std)]

extern crate alloc;

pub mod address;
pub mod automaton;
#[cfg(feature = "testing")]
pub mod bench;
pub mod codec;
pub mod collections;
pub mod counter;
pub mod fair;
pub mod impair;
pub mod job;
pub mod machine;
mod named;
pub mod output;
pub mod recent;
pub mod rng;
pub mod table;
pub mod time;
pub mod timer;
mod transport;
pub mod work;

pub use codec::{Reader, Truncated, Writer};
pub use job::{Job, JobOrigin, JobWaiter, NoJob};
pub use machine::{
    AssocId, CloseReason, CommandError, ConnId, Input, ListenerId, Machine, MessageEvent, MessageOp, Output,
    OutputOf, Owner, Path, PortId, Side, SocketId, StreamEvent, StreamOp, Transmit, Work,
};
pub use named::Named;
pub use output::{Child, Host, Outputs};
pub use rng::{Rng, SecureRng, Seed};
pub use time::{Duration, Instant, WallTime};
pub use transport::TransportProtocol;
pub use work::WorkLabel;
