//! Tests of the kernel's SCTP and ESP. SCTP: bare sockets, drivers, our AAA server and load generator, and
//! freeDiameter in both roles. ESP: `usher ike`.
//!
//! The tests run one after another, alone in the guest.

mod diameter;
mod driver;
mod esp;
mod freediameter;
mod pppoe;
mod sockets;
mod study;
