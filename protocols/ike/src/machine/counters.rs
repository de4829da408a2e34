//! The counters of an endpoint.

usher_core::counters! {
    /// Counters of an [`IkeEndpoint`](super::IkeEndpoint).
    pub struct IkeCounters {
        /// Requests sent, without retransmissions.
        requests,
        /// Responses sent, without retransmissions.
        responses,
        /// Requests retransmitted.
        retransmissions,
        /// Responses sent again for retransmitted requests.
        duplicates,
        /// Retransmitted requests that came too soon for another response.
        duplicates_ignored,
        /// Retransmitted requests while a job was pending.
        duplicate_pending,
        /// IKE_SAs given up: a request got no response.
        given_up,
        /// Half-open IKE_SAs expired: the initiator did not continue.
        half_open_expired,
        /// Keepalives sent to a NAT.
        keepalives,
        /// Datagrams that are not IKE.
        not_ike,
        /// Datagrams that are not a valid message.
        malformed,
        /// Messages of another major version.
        version,
        /// Messages with an unknown SPI.
        unknown_spi,
        /// Unexpected messages: a message ID outside the window, an exchange that is not in progress, or the wrong
        /// direction.
        not_expected,
        /// Messages that failed the integrity check.
        integrity,
        /// Authentication requests from another address than the first request, without a NAT.
        elsewhere,
        /// Fragments refused.
        fragments,
        /// Fragments of incomplete messages dropped: all together exceeded the limit.
        fragments_dropped,
        /// Messages with invalid payloads.
        syntax,
        /// Messages with an unknown critical payload.
        critical,
        /// First requests without an acceptable proposal.
        no_proposal,
        /// Requests that needed another key exchange method (INVALID_KE_PAYLOAD).
        invalid_ke,
        /// First requests answered with a cookie.
        cookies,
        /// First requests with an invalid cookie.
        cookies_wrong,
        /// First requests dropped: too many IKE_SAs, and none to evict.
        full,
        /// Half-open IKE_SAs evicted for the first request of a network with fewer.
        half_open_evicted,
        /// First requests dropped under load: their host, site or network has too many half-open IKE_SAs.
        full_network,
        /// First requests dropped unread: their network floods.
        flood_dropped,
        /// IKE_SAs that peers initiated.
        begun,
        /// IKE_SAs with a failed authentication.
        authentication_failed,
        /// Proofs by a shared key rejected unchecked: too many had failed.
        proofs_locked_out,
        /// IKE_SAs established, without those that replaced another.
        established,
        /// IKE_SAs established by a ticket (resumption).
        resumed,
        /// Tickets issued.
        tickets,
        /// Tickets refused, by either side.
        tickets_refused,
        /// IKE_SAs that replaced another.
        rekeyed,
        /// CHILD_SAs installed.
        children,
        /// CHILD_SAs refused, by either side.
        children_refused,
        /// Requests answered with TEMPORARY_FAILURE.
        temporary_failures,
        /// Requests answered with TEMPORARY_FAILURE because their IKE_SA had requested too many SAs.
        creates_rate_limited,
        /// Requests of established IKE_SAs dropped: there were too many.
        requests_rate_limited,
        /// SAs that both sides rekeyed at the same time.
        collisions,
        /// IKE_SAs that moved to other addresses.
        moved,
        /// IKE_SAs ended: a certificate of the peer was revoked.
        revoked,
    }
}
