//! Live drivers: machines on real sockets (UDP in batches, TCP, TLS, SCTP), with a thread per shard.
//!
//! A [`Driver`] runs one [`DriverRole`], a machine and its owner, on the sockets of a [`DriverSockets`]. It
//! contains no protocol. It passes datagrams, streams, associations, messages of other threads and the time to
//! the machine, and applies the machine's outputs. [`spawn_shard`] gives a driver a thread and a runtime of its
//! own. Several drivers serve one address by sockets with `SO_REUSEPORT`.

mod association;
mod clock;
mod counters;
mod driver;
mod handshakes;
mod mmsg;
mod role;
mod shard;
mod sockets;
mod stream;
mod streams;
mod tls;
mod udp;
mod wake;

pub use clock::SystemClock;
pub use counters::{DriverCounterSnapshot, DriverCounters};
pub use driver::Driver;
pub use mmsg::{SocketFilterInstruction, steer_datagrams, thread_cpu_time};
pub use role::{DriverRole, Mailbox};
pub use shard::{Shard, ShardStartError, spawn_shard};
pub use sockets::{
    ConnectionSecuritySelector, DriverConfig, DriverSctpListener, DriverSockets, DriverTcpListener,
    OutgoingConnectionSecurity, SocketOptions, TlsClient, TlsConnectionOutcome, TlsObserver, TlsServer,
    bind_udp, listen_tcp, number_sockets,
};
