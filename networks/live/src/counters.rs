//! Counters of a driver, readable from other threads.

use std::sync::atomic::{AtomicU64, Ordering};

/// One number that the driver's thread counts and others read.
#[derive(Debug, Default)]
pub(crate) struct AtomicCounter(AtomicU64);

impl AtomicCounter {
    /// Counts `n` more. Only the driver's thread does: nothing comes between reading and writing.
    pub(crate) fn add(&self, n: u64) {
        self.0.store(self.0.load(Ordering::Relaxed).wrapping_add(n), Ordering::Relaxed);
    }
    /// Counts one more.
    pub(crate) fn increment(&self) {
        self.add(1);
    }
    /// Counts one less.
    pub(crate) fn decrement(&self) {
        self.add(u64::MAX);
    }
    fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

macro_rules! driver_counters {
    ($($(#[doc = $about:literal])+ $field:ident),* $(,)?) => {
        usher_core::counters! {
            /// The counters at the time of [`DriverCounters::read`].
            pub struct DriverCounterSnapshot { $($(#[doc = $about])+ $field,)* }
        }

        /// The counters of a running driver. Any thread may [`read`](Self::read) them.
        #[derive(Debug, Default)]
        pub struct DriverCounters { $(pub(crate) $field: AtomicCounter,)* }

        impl DriverCounters {
            /// The counters as they stand; each is right by itself, not all at one moment.
            #[must_use]
            pub fn read(&self) -> DriverCounterSnapshot {
                DriverCounterSnapshot { $($field: self.$field.get(),)* }
            }
        }
    };
}

driver_counters! {
    /// Datagrams received whole.
    datagrams_in,
    /// Octets in datagrams received whole.
    datagram_octets_in,
    /// Datagrams given to the kernel.
    datagrams_out,
    /// Octets in datagrams given to the kernel.
    datagram_octets_out,
    /// Calls that received at least one datagram.
    batches_in,
    /// Calls that sent at least one datagram.
    batches_out,
    /// Datagrams passed to another shard, or dropped during shutdown.
    diverted,
    /// Dropped: datagrams longer than the buffer.
    truncated,
    /// Dropped: datagrams from neither IPv4 nor IPv6.
    unknown_family,
    /// Errors while receiving, such as ICMP port unreachable.
    receive_errors,
    /// Dropped: datagrams that the kernel refused.
    send_errors,
    /// Failed attempts to send several datagrams by one call (GSO): they were sent one by one.
    not_joined,
    /// Dropped: datagrams for which the send queue had no room.
    send_full,
    /// Dropped: datagrams for an unbound socket.
    no_socket,
    /// Dropped: frames, which a live host cannot send.
    unsupported,
    /// Messages from other threads.
    messages,
    /// Expired timeouts of the protocol machine.
    timeouts,
    /// Open connections, with those in setup.
    connections_open,
    /// Connections accepted.
    accepted,
    /// Connections refused: the listener has its maximum number.
    refused_listener,
    /// Connections refused: the remote address has its maximum number.
    refused_address,
    /// Connections refused: unknown remote address.
    refused_stranger,
    /// Failed accepts, mostly for lack of file descriptors.
    accept_errors,
    /// Outgoing connections requested.
    connects,
    /// Outgoing connections that failed.
    connect_failures,
    /// Octets received by streams (inside TLS) and associations.
    stream_octets_in,
    /// Octets sent by streams (inside TLS) and associations.
    stream_octets_out,
    /// Messages received by associations (SCTP).
    sctp_messages_in,
    /// Messages sent by associations.
    sctp_messages_out,
    /// Dropped: messages that the kernel refused, such as on a missing stream.
    sctp_messages_refused,
    /// Associations ended: the peer's message was too long.
    sctp_messages_too_long,
    /// Operations on closed connections.
    unknown_connection,
    /// Connections reset: the peer did not read.
    slow_peers,
    /// TLS handshakes completed.
    tls_handshakes,
    /// TLS handshakes completed by session resumption.
    tls_resumed,
    /// TLS handshakes evicted for newer ones, from the host with the most.
    tls_displaced,
    /// Connections without TLS, and associations, evicted for newer ones before their first answer.
    silent_displaced,
    /// TLS handshakes that timed out.
    tls_timeout,
    /// TLS handshakes that the peer closed.
    tls_closed,
    /// TLS connections that the peer ended by an alert.
    tls_alert,
    /// TLS connections ended: the peer's certificate was rejected or missing.
    tls_certificate,
    /// Open TLS connections reset: a new configuration distrusts the peer's certificate.
    tls_distrusted,
    /// TLS connections whose octets were not TLS.
    tls_not_tls,
    /// TLS connections ended for another reason.
    tls_other,
}
