//! One accounting record, whichever protocol brought it.

use alloc::string::String;
use alloc::vec::Vec;
use core::fmt::Write;
use core::net::{IpAddr, Ipv6Addr};
use usher_core::{Duration, WallTime};

/// What a record tells: Acct-Status-Type (RFC 2866 §5.1), Accounting-Record-Type (RFC 6733 §9.8.1).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Status {
    /// A session has begun.
    Start,
    /// It goes on (Interim-Update, INTERIM_RECORD).
    Interim,
    /// It has ended.
    Stop,
    /// The NAS begins anew: none of its earlier sessions is left (Accounting-On).
    On,
    /// The NAS goes down, and all its sessions with it (Accounting-Off).
    Off,
}

/// What names a session to people and to its NAS.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct SessionKey {
    /// The NAS: NAS-IPv6-Address, NAS-IP-Address or, without either, where the record came from.
    pub nas: IpAddr,
    /// Acct-Session-Id; in Diameter, where it is missing, the Session-Id. Empty with [`Status::On`] and [`Status::Off`].
    pub id: String,
    /// User-Name; empty without one.
    pub user: String,
}

/// What makes a session unique among all NASs (column acctuniqueid).
///
/// The digest is FreeRADIUS's: MD5 over User-Name, Acct-Session-Id, NAS address, NAS-Identifier, NAS-Port-Id and
/// NAS-Port, with commas between, what is missing left empty; so sessions that FreeRADIUS began go on here. Where a
/// NAS uses an Acct-Session-Id again, the digest's last four digits make room for the use's number: `-001`, `-002`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Unique {
    /// The digest.
    pub digest: [u8; 16],
    /// Which use of the Acct-Session-Id this is: 0 to 999.
    pub generation: u16,
}

/// One record (RFC 2866 §5, RFC 2869 §5, RFC 3162, RFC 6733 §9, RFC 7155 §4.6). Text that is not UTF-8, and control
/// characters, are written as `\xNN`, so that every store takes it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Record {
    /// What it tells.
    pub status: Status,
    /// Of which session.
    pub session: SessionKey,
    /// What makes that session unique, as the first of its name.
    pub unique: Unique,
    /// When it happened: Event-Timestamp, or when the record came less Acct-Delay-Time; never later than when it came.
    pub at: WallTime,
    /// The NAS said when it happened (by Event-Timestamp or Acct-Delay-Time); otherwise `at` is when the record came,
    /// and a retransmission seems later than it is.
    pub timed: bool,
    /// Acct-Delay-Time.
    pub delay: Duration,
    /// NAS-Identifier; empty without one.
    pub nas_identifier: String,
    /// NAS-Port-Id, or NAS-Port in decimal; empty without either.
    pub port: String,
    /// NAS-Port-Type by number.
    pub port_type: Option<u32>,
    /// Acct-Multi-Session-Id; empty without one.
    pub multi_session_id: String,
    /// Acct-Session-Time, seconds.
    pub session_time: Option<u64>,
    /// Octets from the user: Acct-Input-Octets with Acct-Input-Gigawords, or Accounting-Input-Octets.
    pub input_octets: Option<u64>,
    /// Octets to the user.
    pub output_octets: Option<u64>,
    /// Packets from the user.
    pub input_packets: Option<u64>,
    /// Packets to the user.
    pub output_packets: Option<u64>,
    /// Acct-Authentic by number.
    pub authentic: Option<u32>,
    /// Acct-Terminate-Cause by number (RFC 2866 §5.10); Diameter's Termination-Cause is translated.
    pub terminate_cause: Option<u32>,
    /// Service-Type by number.
    pub service_type: Option<u32>,
    /// Framed-Protocol by number.
    pub framed_protocol: Option<u32>,
    /// Called-Station-Id; empty without one.
    pub called_station_id: String,
    /// Calling-Station-Id; empty without one.
    pub calling_station_id: String,
    /// Framed-IP-Address, or Framed-IPv6-Address where there is no other.
    pub framed_address: Option<IpAddr>,
    /// Framed-IPv6-Prefix, or Delegated-IPv6-Prefix where there is no other, and its length.
    pub framed_prefix: Option<(Ipv6Addr, u8)>,
    /// Class, as the server gave it; empty without one.
    pub class: Vec<u8>,
    /// Connect-Info; empty without one.
    pub connect_info: String,
}

/// Octets from outside as text that every store takes: what is not UTF-8, and control characters, become `\xNN`.
#[must_use]
pub fn text(octets: &[u8]) -> String {
    let mut out = String::with_capacity(octets.len());
    for chunk in octets.utf8_chunks() {
        for c in chunk.valid().chars() {
            if c.is_control() {
                let mut utf8 = [0; 4];
                escape(&mut out, c.encode_utf8(&mut utf8).as_bytes());
            } else {
                out.push(c);
            }
        }
        escape(&mut out, chunk.invalid());
    }
    out
}

fn escape(out: &mut String, octets: &[u8]) {
    for b in octets {
        // Writing to a String does not fail.
        let _ = write!(out, "\\x{b:02x}");
    }
}

/// Why a message is not a record that can be kept.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, thiserror::Error)]
pub enum BadRecord {
    /// It does not say what it tells.
    #[error("no Acct-Status-Type")]
    NoStatus,
    /// It tells something that is not kept: a tunnel's or a link's beginning (RFC 2867).
    #[error("an Acct-Status-Type that is not served: {0}")]
    UnknownStatus(u32),
    /// It does not say of which session.
    #[error("no Acct-Session-Id")]
    NoSession,
    /// A value has not the form of its attribute.
    #[error("attribute {0} has not the form of its type")]
    BadValue(u8),
}
