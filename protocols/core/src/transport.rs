//! Transport protocols.

crate::named! {
    "a transport protocol";
    /// What carries a protocol's messages from host to host. Each protocol, and each setting, takes those that its standard
    /// has.
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
