//! Building blocks of every Usher protocol.
//!
//! - The [`machine`] shape and its [`output`]s, [`job`]s and [`work`] labels.
//! - Protocol state: [`automaton`](mod@automaton) tables, session [`table`]s, [`timer`]s, [`recent`] keys, [`fair`]
//!   queues.
//! - Basics: [`time`], random streams ([`rng`]), bounded [`codec`] readers and writers, [`counter`]s, [`address`]es.
//! - Channel models ([`impair`]).
//!
//! The crate uses no clock, socket or thread. The caller passes in time and input, and polls for output.

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

pub use codec::{OctetReader, OctetWriter, TruncatedInputError};
pub use job::{JobRequest, JobRequester, JobWaiter, NoJob};
pub use machine::{
    AssocId, CloseReason, CommandError, ConnId, ConnOrigin, DatagramPath, LinkLayerPortId, ListenerId,
    Machine, MachineInput, MachineOutput, MachineOutputOf, MachineOwnerPath, MessageAssociationEvent,
    MessageAssociationOp, SocketId, StreamEvent, StreamOp, Transmit, WorkRecord,
};
pub use named::NamedValue;
pub use output::{ChildMachine, ChildOutput, MachineHost, OutputQueue};
pub use rng::{SecureRng, Seed, SimulationRng};
pub use time::{Duration, Instant, WallTime};
pub use transport::TransportProtocol;
pub use work::WorkLabel;
