//! SCTP of the Linux kernel: nonblocking one-to-one sockets (RFC 6458 §4).
//!
//! - [`SctpAssociation`] sends and receives whole messages, each with its stream and payload protocol identifier.
//!   Events report when it is up and why it ended.
//! - [`SctpListener`] accepts associations.
//!
//! Both may have several addresses (multi-homing). Both give their descriptor ([`AsFd`](std::os::fd::AsFd)) to any
//! event loop.
//!
//! ```no_run
//! # fn wait(_: &impl std::os::fd::AsFd) {}
//! # fn main() -> std::io::Result<()> {
//! use usher_sctp::{SctpAssociation, SctpEvent, SendInfo, SocketOptions};
//! let to = ["192.0.2.1:3868".parse().unwrap()];
//! let mut association = SctpAssociation::connect(&[], &to, &SocketOptions::default())?;
//! let mut message = Vec::new();
//! loop {
//!     match association.receive_event(&mut message) {
//!         Ok(SctpEvent::Up { streams, .. }) => {
//!             association.send_message(SendInfo { stream: streams - 1, ppid: 46, unordered: false }, b"hello")?;
//!         }
//!         Ok(SctpEvent::Message(info)) => println!("stream {}: {message:?}", info.stream),
//!         Ok(SctpEvent::End(why)) => break println!("over: {why:?}"),
//!         Ok(_) => {}
//!         Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => wait(&association),
//!         Err(error) => return Err(error),
//!     }
//! }
//! # Ok(())
//! # }
//! ```
//!
//! On a kernel without SCTP, every call that opens a socket fails with [`SctpUnavailable`]. Its kind is
//! [`Unsupported`](std::io::ErrorKind::Unsupported), and its text tells how to load the module.

mod layout;
mod socket;
mod system;

pub use layout::{PeerAddressState, ReceiveInfo, SendInfo};
pub use socket::{
    AssociationStatus, DelayedSack, RtoBounds, SctpAssociation, SctpEvent, SctpListener, SctpUnavailable,
    SocketOptions, is_available,
};
