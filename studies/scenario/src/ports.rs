//! Ports of a workload's own servers, which have no configuration.

/// The server of a dialogue: the echo service's (RFC 862).
pub const DIALOGUE: u16 = 7;
/// The chat server, which sends IDENT queries.
pub const CHAT: u16 = 6667;
/// RADIUS authentication (RFC 2865 §3).
pub const RADIUS: u16 = 1812;
/// RADIUS accounting (RFC 2866 §3).
pub const ACCOUNTING: u16 = 1813;
/// RADIUS over TLS (RFC 6614 §5).
pub const RADSEC: u16 = 2083;
/// Diameter over TCP and SCTP (RFC 6733 §11.4).
pub const DIAMETER: u16 = 3868;
/// Diameter over TLS (RFC 6733 §11.4).
pub const DIAMETER_TLS: u16 = 5658;
/// IKE (RFC 7296 §2).
pub const IKE: u16 = 500;
/// IKE and ESP behind a NAT (RFC 3948 §2).
pub const IKE_NAT: u16 = 4500;
