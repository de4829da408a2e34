//! Counters of an MIH function.

usher_core::counters! {
    /// Counters of an MIH function.
    pub struct MihfCounters {
        /// Indications, requests and responses, each counted once.
        messages,
        /// Packets given to MIH_NET_SAP: messages, retransmissions and acknowledgements. Every fragment is a packet.
        packets,
        /// Octets of the packets.
        octets,
        /// Messages sent again: no acknowledgement or no response came.
        retransmissions,
        /// Responses sent again: their request came again.
        repeated_responses,
        /// Acknowledgements without payload.
        acks,
        /// Acknowledgements that a response carried.
        piggybacked,
        /// Messages sent over UDP without any acknowledgement.
        unreliable,
        /// Packets received, dropped ones included.
        received,
        /// Duplicates received: requests, indications and responses.
        duplicates,
        /// Dropped: responses to a request that had already failed.
        late_responses,
        /// Acknowledgements that came too late.
        late_acks,
        /// Dropped: responses and acknowledgements of an unknown or forgotten transaction.
        unknown_transaction,
        /// Dropped: messages with a reserved service or opcode.
        unknown_service,
        /// Messages with an unknown action: requests are answered with a failure, others dropped.
        unknown_message,
        /// Parameters of an unknown type, passed to the user unchanged.
        unknown_tlv,
        /// Malformed packets. Those with a readable request are answered with a failure.
        malformed,
        /// Dropped: packets for another MIH function.
        misaddressed,
        /// Dropped: fragmented messages that are too long.
        oversize,
        /// Dropped: fragments without room or without a match, and messages with a missing fragment.
        fragments_dropped,
        /// Connections closed: their octets are not MIH messages.
        broken_streams,
        /// Dropped: messages of peers while all transactions in memory are in progress.
        refused,
        /// Ended transactions evicted early to make room.
        forgotten_early,
        /// Own transactions ended: all 4096 identifiers for a peer were in use.
        displaced,
        /// Requests, responses and indications that failed: no acknowledgement.
        gave_up,
        /// Requests that failed: no response.
        unanswered,
        /// Requests of peers that the user did not answer within the transaction's lifetime.
        expired,
        /// Messages without a route to the peer.
        no_route,
        /// Dropped: messages while too many wait for a connection.
        queue_full,
        /// Dropped: messages whose connection failed.
        not_connected,
        /// Registrations refused: too many functions are registered.
        registrations_refused,
        /// Addresses proven by a round trip.
        addresses_proven,
        /// Addresses that failed their proof.
        addresses_unproven,
        /// Addresses replaced: the function no longer answered at the old one.
        addresses_replaced,
        /// Refused: messages under the identifier of another address.
        claims_refused,
    }
}
