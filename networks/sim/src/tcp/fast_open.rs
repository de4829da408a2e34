//! Fast Open of the client (RFC 7413): data on a SYN, for servers that gave a cookie before. There is no server
//! of it here: a simulated server ignores the option, and the data is retransmitted.

use std::fmt;

/// The contents of a Fast Open option: a cookie of 4 to 16 octets, an even number, or empty, to request one (RFC
/// 7413 §4.1.1).
#[derive(Clone, Copy, PartialEq, Eq, Default)]
pub struct FastOpenCookie {
    pub(super) len: u8,
    pub(super) bytes: [u8; 16],
}

impl FastOpenCookie {
    /// Returns the cookie of these octets, or the empty one; `None` for an invalid length.
    pub fn new(bytes: &[u8]) -> Option<Self> {
        let good = bytes.is_empty() || (4..=16).contains(&bytes.len()) && bytes.len().is_multiple_of(2);
        if !good {
            return None;
        }
        let mut cookie = Self { len: bytes.len() as u8, bytes: [0; 16] };
        cookie.bytes[..bytes.len()].copy_from_slice(bytes);
        Some(cookie)
    }
    /// Returns its octets.
    pub fn as_slice(&self) -> &[u8] {
        &self.bytes[..usize::from(self.len)]
    }
    /// True for a request.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }
}

impl fmt::Debug for FastOpenCookie {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.as_slice().iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

/// State of an opening by Fast Open.
#[derive(Debug)]
pub(super) struct FastOpenState {
    /// The cookie on its SYN.
    pub(super) offered: FastOpenCookie,
    /// Maximum data on its SYN, in octets, options included.
    pub(super) mss: u16,
    /// True if a SYN carried data.
    pub(super) sent: bool,
    /// The cookie of the peer's SYN-ACK.
    pub(super) received_cookie: Option<FastOpenCookie>,
    /// The peer's maximum segment size.
    pub(super) peer_mss: u16,
    /// True if data on the SYN was acknowledged.
    pub(super) is_data_acked: bool,
    /// True after a SYN-ACK.
    pub(super) answered: bool,
}

/// A client's cache of one server (RFC 7413 §4.1.3).
///
/// Some servers give no cookie, do not answer, or ignore the data without a new cookie. The client opens further
/// connections to them by ordinary SYNs (§4.1.3.1) while this entry exists.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct FastOpenCache {
    pub(super) cookie: FastOpenCookie,
    pub(super) mss: Option<u16>,
    pub(super) refused: bool,
}
