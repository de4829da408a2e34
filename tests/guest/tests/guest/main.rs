//! The kernel's SCTP: bare sockets, drivers on them, our AAA server and load generator, and freeDiameter on either side; and its ESP,
//! told by `usher ike`. The tests have the guest for themselves, one after the other.

mod diameter;
mod driver;
mod esp;
mod freediameter;
mod pppoe;
mod sockets;
mod study;
