//! Work labels of an endpoint.

usher_core::work_labels! {
    /// A new IKE_SA, by a key exchange or a ticket, without its messages: admission, state and timers until its end.
    /// Includes its host's part, such as a session and log lines. Rekeying creates no new one.
    SA = "ike.sa" per "IKE_SA";
    /// A message sent or received: its headers, and the state that it reads and changes.
    MESSAGE = "ike.message" per "message";
    /// A message encrypted and authenticated.
    PROTECT = "ike.protect" per "message";
    /// A message, or a fragment of one, checked and decrypted.
    OPEN = "ike.open" per "message";
    /// A part of a key exchange: a new key pair, or the shared secret. The responder does both at once.
    KEY_EXCHANGE = "ike.key_exchange" per "public-key operation";
    /// Keys derived, or a proof by a shared key computed.
    DERIVE = "ike.derive" per "derivation";
    /// A signature made, by a worker.
    SIGN = "ike.sign" per "public-key operation";
    /// A certificate chain, and a signature by its first certificate, verified by a worker.
    VERIFY = "ike.verify" per "public-key operation";
}
