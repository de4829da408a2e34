//! SCTP as the Linux kernel has it: one-to-one sockets (RFC 6458 §4) that never block.
//!
//! An [`SctpAssociation`] carries whole messages, each with its stream and payload protocol identifier, and says when it has
//! risen and why it ended. A [`SctpListener`] accepts associations. Either may have several addresses (multi-homing). Both give
//! their descriptor ([`AsFd`](std::os::fd::AsFd)), so that any loop can wait for them; nothing here knows of one.
//!
//! ```no_run
//! # fn wait(_: &impl std::os::fd::AsFd) {}
//! # fn main() -> std::io::Result<()> {
//! use usher_sctp::{Association, Outgoing, Received, SocketOptions};
//! let to = ["192.0.2.1:3868".parse().unwrap()];
//! let mut association = Association::connect(&[], &to, &SocketOptions::default())?;
//! let mut message = Vec::new();
//! loop {
//!     match association.receive(&mut message) {
//!         Ok(Received::Up { streams, .. }) => {
//!             association.send(Outgoing { stream: streams - 1, ppid: 46, unordered: false }, b"hello")?;
//!         }
//!         Ok(Received::Message(about)) => println!("stream {}: {message:?}", about.stream),
//!         Ok(Received::End(why)) => break println!("over: {why:?}"),
//!         Ok(_) => {}
//!         Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => wait(&association),
//!         Err(error) => return Err(error),
//!     }
//! }
//! # Ok(())
//! # }
//! ```
//!
//! On a kernel without SCTP every call that makes a socket ends in [`NoSctp`], of the kind
//! [`Unsupported`](std::io::ErrorKind::Unsupported), which says what to do.

mod layout;
mod socket;
mod system;

pub use layout::{AddressState, ReceiveInfo, SendInfo};
pub use socket::{
    AssociationStatus, DelayedSack, NoSctp, RtoBounds, SctpAssociation, SctpEvent, SctpListener,
    SocketOptions, is_available,
};
