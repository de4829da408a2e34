//! Work labels of an endpoint.

usher_core::work_labels! {
    /// An IKE_SA begun, by a key exchange or a ticket, beside its messages: let in, its state and its timers kept until it has ended, and
    /// what its host has of it, such as a session and lines of a log. One that takes another's place by rekeying is none.
    SA = "ike.sa" per "IKE_SA";
    /// A message sent or received: its headers, the state that it finds and leaves.
    MESSAGE = "ike.message" per "message";
    /// A message enciphered and authenticated.
    PROTECT = "ike.protect" per "message";
    /// A message, or a fragment of one, checked and deciphered.
    OPEN = "ike.open" per "message";
    /// A part of a key exchange: a new pair of keys, or a secret from the other side's. Whoever answers does both at once.
    KEY_EXCHANGE = "ike.key_exchange" per "public-key operation";
    /// Keys derived, or a proof by a shared key computed.
    DERIVE = "ike.derive" per "derivation";
    /// A signature made, by a helper.
    SIGN = "ike.sign" per "public-key operation";
    /// A chain of certificates and the signature of its first verified, by a helper.
    VERIFY = "ike.verify" per "public-key operation";
}
