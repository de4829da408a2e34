//! Transport protocols.

crate::named! {
    "a transport protocol";
    /// A transport protocol, which carries messages from host to host. Each protocol and each setting accepts those of
    /// its standard.
    #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
    pub enum TransportProtocol {
        /// UDP.
        Udp = "udp",
        /// TCP.
        Tcp = "tcp",
        /// TLS over TCP.
        Tls = "tls",
        /// SCTP.
        Sctp = "sctp",
    }
}
