//! Work labels of the TLS engine.

usher_core::work_labels! {
    /// A signature of TLS made.
    SIGN = "tls.sign" per "public-key operation";
    /// A signature of TLS checked: a certificate's or the handshake's.
    VERIFY = "tls.verify" per "public-key operation";
    /// A Diffie-Hellman exchange of TLS completed: a new key pair and a shared secret.
    KEY_EXCHANGE = "tls.key_exchange" per "public-key operation";
}
