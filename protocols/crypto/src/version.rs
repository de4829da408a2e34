//! Versions of TLS.

usher_core::named! {
    "a version of TLS";
    /// A version of TLS, with the cipher suite that a client offers for it alone.
    #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
    pub enum TlsVersion {
        /// TLS 1.2 (RFC 5246; EAP-TLS by RFC 5216) with `TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256`.
        Tls12 = "1.2",
        /// TLS 1.3 (RFC 8446; EAP-TLS by RFC 9190) with `TLS_AES_128_GCM_SHA256`.
        Tls13 = "1.3",
    }
}
