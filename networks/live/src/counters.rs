//! What a driver did, readable from other threads.

use std::sync::atomic::{AtomicU64, Ordering};

/// One number that the driver's thread counts and others read.
#[derive(Debug, Default)]
pub(crate) struct AtomicCount(AtomicU64);

impl AtomicCount {
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
            /// What a driver had done when [`DriverCounters::read`] was asked.
            pub struct DriverCounts { $($(#[doc = $about])+ $field,)* }
        }

        /// What a driver does, counted while it runs; any thread may [`read`](Self::read).
        #[derive(Debug, Default)]
        pub struct DriverCounters { $(pub(crate) $field: AtomicCount,)* }

        impl DriverCounters {
            /// The counters as they stand; each is right by itself, not all at one moment.
            #[must_use]
            pub fn read(&self) -> DriverCounts {
                DriverCounts { $($field: self.$field.get(),)* }
            }
        }
    };
}

driver_counters! {
    /// Datagrams received whole.
    datagrams_in,
    /// Octets in them.
    datagram_octets_in,
    /// Datagrams given to the system for sending.
    datagrams_out,
    /// Octets in them.
    datagram_octets_out,
    /// Calls that received at least one datagram.
    batches_in,
    /// Calls that sent at least one datagram.
    batches_out,
    /// Datagrams that the node handed to another shard.
    diverted,
    /// Dropped: datagrams longer than the driver's buffer.
    truncated,
    /// Dropped: datagrams from an address of a family that is not the Internet's.
    unknown_family,
    /// Errors that receiving showed, such as an ICMP port unreachable of something sent before.
    receive_errors,
    /// Dropped: datagrams that the system refused to send.
    send_errors,
    /// Times that the system refused several datagrams as one and was given each by itself.
    not_joined,
    /// Dropped: datagrams for a full queue, while the system took no more.
    send_full,
    /// Dropped: datagrams for a socket that could not be bound.
    no_socket,
    /// Dropped: frames, which a live host does not carry.
    unsupported,
    /// Messages from the mailbox.
    messages,
    /// Times that the machine was told that its time had come.
    timeouts,
    /// Connections that are open now, those under way included.
    connections_open,
    /// Connections accepted.
    accepted,
    /// Connections refused: the listener has as many as it may have.
    refused_listener,
    /// Connections refused: their address has as many as it may have.
    refused_address,
    /// Connections refused because they came from an address of nobody who is known.
    refused_stranger,
    /// Accepting failed, mostly for want of file descriptors.
    accept_errors,
    /// Connections that the machine asked for.
    connects,
    /// Connections asked for that did not come about.
    connect_failures,
    /// Octets received by streams, inside TLS where there is TLS, and by associations.
    stream_octets_in,
    /// Octets sent by streams, inside TLS where there is TLS, and by associations.
    stream_octets_out,
    /// Messages received by associations (SCTP).
    sctp_messages_in,
    /// Messages sent by associations.
    sctp_messages_out,
    /// Dropped: messages that the system refused to send, such as one by a stream that was not negotiated.
    sctp_messages_refused,
    /// Associations ended because the other side sent a message that is longer than is taken.
    sctp_messages_too_long,
    /// Operations on connections that are over.
    unknown_connection,
    /// Connections reset because the peer did not read what was sent.
    slow_peers,
    /// TLS handshakes completed.
    tls_handshakes,
    /// TLS handshakes completed by taking up an earlier session.
    tls_resumed,
    /// TLS handshakes given up for newer ones: as many as there may be were under way, and of this one's network the most.
    tls_displaced,
    /// Connections without TLS, and associations, reset for newer ones: nothing had been said to them yet, of as many as there may be, and of
    /// this one's network were the most.
    silent_displaced,
    /// TLS handshakes that took too long.
    tls_timeout,
    /// TLS handshakes that the peer left by closing the connection.
    tls_closed,
    /// TLS connections that the peer ended with an alert.
    tls_alert,
    /// TLS connections ended because the peer's certificate was refused or missing.
    tls_certificate,
    /// Open TLS connections reset because another configuration does not trust the peer's certificate.
    tls_distrusted,
    /// TLS connections whose octets were not TLS.
    tls_not_tls,
    /// TLS connections ended for another reason.
    tls_other,
}
