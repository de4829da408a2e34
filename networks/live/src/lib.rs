//! Live drivers: machines on real sockets (UDP in batches, TCP, TLS, SCTP), a thread for each shard.
//!
//! A [`Driver`] hosts one [`DriverRole`], a machine with what surrounds it, on the sockets of one [`DriverSockets`]. It
//! holds no protocol: it feeds datagrams, streams, associations, messages of other threads and the time, and carries out
//! what the machine wants done. [`spawn_shard`] gives each driver a thread of its own, with a runtime that no other
//! thread shares; several drivers serve one address because their sockets are bound with `SO_REUSEPORT`.

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
pub use counters::{DriverCounters, DriverCounts};
pub use driver::Driver;
pub use mmsg::{FilterInstruction, steer_datagrams, thread_cpu_time};
pub use role::{DriverRole, Mailbox};
pub use shard::{Shard, ShardError, spawn_shard};
pub use sockets::{
    AssociationListener, DriverConfig, DriverListener, DriverSockets, OutgoingSecurity, SecuritySelector,
    SocketOptions, TlsClient, TlsObserver, TlsOutcome, TlsServer, bind_udp, listen_tcp, number_sockets,
};
