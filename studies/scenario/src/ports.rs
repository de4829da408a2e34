//! Ports of the servers that are a workload's own, which nobody configures.

/// The server of a dialogue: the echo service's (RFC 862).
pub const DIALOGUE: u16 = 7;
/// The server that asks by IDENT: that of chat.
pub const CHAT: u16 = 6667;
/// RADIUS authentication (RFC 2865 §3) and accounting (RFC 2866 §3), and inside TLS (RFC 6614 §5).
pub const RADIUS: u16 = 1812;
/// See [`RADIUS`].
pub const ACCOUNTING: u16 = 1813;
/// See [`RADIUS`].
pub const RADSEC: u16 = 2083;
/// Diameter over TCP and SCTP, and inside TLS (RFC 6733 §11.4).
pub const DIAMETER: u16 = 3868;
/// See [`DIAMETER`].
pub const DIAMETER_TLS: u16 = 5658;
/// IKE (RFC 7296 §2), and behind a NAT with ESP (RFC 3948 §2).
pub const IKE: u16 = 500;
/// See [`IKE`].
pub const IKE_NAT: u16 = 4500;
