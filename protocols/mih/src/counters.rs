//! What an MIH function counts.

usher_core::counters! {
    /// What an MIH function has done and what it has dropped.
    pub struct MihfCounters {
        /// Messages that carry something, each once: indications, requests and responses.
        messages,
        /// Everything handed to MIH_NET_SAP: messages, their retransmissions, acknowledgements; every fragment
        /// is one.
        packets,
        /// Octets of the packets.
        octets,
        /// Messages sent again because no acknowledgement or no response came.
        retransmissions,
        /// Responses sent again because their request came again.
        repeated_responses,
        /// Acknowledgements without payload.
        acks,
        /// Acknowledgements that a response carried.
        piggybacked,
        /// Messages sent over UDP without any acknowledgement.
        unreliable,
        /// Packets that came, whatever became of them.
        received,
        /// Requests, indications and responses that came again and were recognised.
        duplicates,
        /// Responses to a request that had failed by then: dropped, not acknowledged.
        late_responses,
        /// Acknowledgements that nobody waited for any more.
        late_acks,
        /// Responses and acknowledgements of a transaction that is not known (any more): dropped.
        unknown_transaction,
        /// Messages of a service or with an opcode that is reserved: dropped.
        unknown_service,
        /// Messages of an unknown action: requests were answered with a failure, others dropped.
        unknown_message,
        /// Parameters of an unknown type: given to the user as they are.
        unknown_tlv,
        /// Packets that are no message; those that could be read as a request were answered with a failure.
        malformed,
        /// Packets for another MIH function: dropped.
        misaddressed,
        /// Messages in fragments that are longer than may be: dropped.
        oversize,
        /// Fragments dropped for want of room or because they do not fit together, and messages of which not all
        /// fragments came.
        fragments_dropped,
        /// Connections closed because what came on them cannot be cut into messages.
        broken_streams,
        /// Messages from others dropped because all transactions in memory are open.
        refused,
        /// Ended transactions forgotten before their time to make room.
        forgotten_early,
        /// Own transactions ended because all 4096 identifiers for a peer were open.
        displaced,
        /// Requests, responses and indications given up for want of an acknowledgement.
        gave_up,
        /// Requests given up for want of a response.
        unanswered,
        /// Requests of others that their user did not answer within the transaction's lifetime.
        expired,
        /// Messages for which there was no way to the peer.
        no_route,
        /// Messages dropped because too many wait for a connection.
        queue_full,
        /// Messages dropped because their connection did not come up.
        not_connected,
        /// Registrations refused because too many functions are registered.
        registrations_refused,
        /// Addresses that proved themselves by a round trip.
        addresses_proven,
        /// Addresses that were asked to prove themselves and did not.
        addresses_unproven,
        /// Functions whose address another one replaced, since it did not answer any more.
        addresses_replaced,
        /// Messages under an identifier that is another address's: refused.
        claims_refused,
    }
}
