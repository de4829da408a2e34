//! Accounting records: an access server's reports of sessions to the AAA server (RFC 2866, RFC 6733 §9).

use crate::NasPort;
use crate::prefix::ipv6_prefix;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use core::net::{Ipv4Addr, Ipv6Addr};
use usher_core::Duration;
use usher_diameter::accounting::AccountingRecordType;
use usher_radius::attribute::{AttributeList, ValueTooLong, kind};

/// The kind of an accounting record (RFC 2866 §5.1, RFC 6733 §9.8.1).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum AccountingRecordKind {
    /// A session has started.
    Start,
    /// The session continues.
    Interim,
    /// The session has ended.
    Stop,
    /// The access server has restarted, and all its earlier sessions have ended. RADIUS only (RFC 2866 §5.1).
    On,
    /// The access server stops, and all its sessions end. RADIUS only.
    Off,
}

impl AccountingRecordKind {
    /// True if it concerns the access server and no session.
    pub(crate) const fn is_server_record(self) -> bool {
        matches!(self, Self::On | Self::Off)
    }
}

/// The cause of a session's end: Acct-Terminate-Cause (RFC 2866 §5.10).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum TerminateCause {
    /// The user requested it.
    #[default]
    UserRequest = 1,
    /// The link went down.
    LostCarrier = 2,
    /// The service is no longer available, such as after the loss of the user's connection to a host.
    LostService = 3,
    /// The user was silent for the Idle-Timeout.
    IdleTimeout = 4,
    /// The Session-Timeout passed.
    SessionTimeout = 5,
    /// The administrator or the AAA server ended it.
    AdminReset = 6,
    /// The administrator ended service on the NAS.
    AdminReboot = 7,
    /// The NAS detected an error on the port.
    PortError = 8,
    /// The NAS detected an error other than on the port.
    NasError = 9,
    /// The NAS ended it for another reason.
    NasRequest = 10,
    /// The user's host ended it irregularly.
    UserError = 17,
}

impl TerminateCause {
    /// All causes.
    const ALL: [Self; 11] = [
        Self::UserRequest,
        Self::LostCarrier,
        Self::LostService,
        Self::IdleTimeout,
        Self::SessionTimeout,
        Self::AdminReset,
        Self::AdminReboot,
        Self::PortError,
        Self::NasError,
        Self::NasRequest,
        Self::UserError,
    ];
    /// The cause of this number (RFC 2866 §5.10). `None` if it is not used here.
    #[must_use]
    pub fn from_radius_code(number: u32) -> Option<Self> {
        Self::ALL.into_iter().find(|cause| *cause as u32 == number)
    }
    /// The number of the cause (RFC 2866 §5.10).
    #[must_use]
    pub const fn radius_code(self) -> u32 {
        self as u32
    }
    /// Termination-Cause: DIAMETER_LOGOUT (RFC 6733 §8.15), or the RADIUS cause (RFC 4005 §9.3.5).
    pub(crate) const fn diameter_code(self) -> u32 {
        match self {
            Self::UserRequest => 1,
            other => other.radius_code() + 10,
        }
    }
}

/// The traffic of a session so far.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct SessionTraffic {
    /// Octets from the user.
    pub input_octets: u64,
    /// Octets to the user.
    pub output_octets: u64,
    /// Packets from the user.
    pub input_packets: u64,
    /// Packets to the user.
    pub output_packets: u64,
}

/// A borrowed accounting record.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct AccountingRecord<'a> {
    /// The kind.
    pub kind: AccountingRecordKind,
    /// Acct-Session-Id, unique for this NAS. Over Diameter it is also the last part of the Session-Id.
    pub session: &'a str,
    /// The record's number within the session, from zero (Accounting-Record-Number).
    pub number: u32,
    /// The start of the access server in which the session began. The Session-Id over Diameter contains it, so a later
    /// start can identify the session again. `None` for this start.
    pub start: Option<u32>,
    /// User-Name: that of the accepting reply, if any, else that of the request (RFC 2865 §5.1). Empty omits it. UTF-8
    /// over Diameter.
    pub name: &'a [u8],
    /// The user's port.
    pub port: NasPort<'a>,
    /// The session's duration so far (Acct-Session-Time). Unused in a start.
    pub lasted: Duration,
    /// The age of the record at creation, for records of an earlier start of the access server (Acct-Delay-Time, RFC
    /// 2866 §5.2, RFC 7155 §4.6.8).
    pub ago: Duration,
    /// The traffic, or `None` if not counted. Unused in a start.
    pub traffic: Option<SessionTraffic>,
    /// The cause of the end, for a stop.
    pub cause: TerminateCause,
    /// Class of the accepting reply ([`AccessReply::classes`](crate::AccessReply::classes)), which the NAS returns
    /// unchanged (RFC 2865 §5.25).
    pub classes: &'a [&'a [u8]],
    /// The user's IPv4 address.
    pub framed_ip: Option<Ipv4Addr>,
    /// The user's IPv6 prefix and its length.
    pub framed_ipv6_prefix: Option<(Ipv6Addr, u8)>,
    /// Further attributes, such as Acct-Multi-Session-Id.
    pub attributes: Option<&'a AttributeList>,
}

impl<'a> AccountingRecord<'a> {
    /// Returns a record without optional parts.
    #[must_use]
    pub const fn new(kind: AccountingRecordKind, session: &'a str, number: u32) -> Self {
        Self {
            kind,
            session,
            number,
            start: None,
            name: &[],
            port: NasPort { number: None, id: None, calling_station: None, called_station: None, mtu: None },
            lasted: Duration::ZERO,
            ago: Duration::ZERO,
            traffic: None,
            cause: TerminateCause::UserRequest,
            classes: &[],
            framed_ip: None,
            framed_ipv6_prefix: None,
            attributes: None,
        }
    }
    /// Acct-Session-Time, seconds.
    pub(crate) fn session_seconds(&self) -> Option<u32> {
        let seconds = || u32::try_from(self.lasted.as_secs()).unwrap_or(u32::MAX);
        matches!(self.kind, AccountingRecordKind::Interim | AccountingRecordKind::Stop).then(seconds)
    }
    /// The traffic, if counted and not a start.
    pub(crate) fn reported_traffic(&self) -> Option<SessionTraffic> {
        self.traffic
            .filter(|_| matches!(self.kind, AccountingRecordKind::Interim | AccountingRecordKind::Stop))
    }
    /// Acct-Status-Type (RFC 2866 §5.1).
    pub(crate) const fn status_type(&self) -> u32 {
        match self.kind {
            AccountingRecordKind::Start => 1,
            AccountingRecordKind::Stop => 2,
            AccountingRecordKind::Interim => 3,
            AccountingRecordKind::On => 7,
            AccountingRecordKind::Off => 8,
        }
    }
    /// Accounting-Record-Type (RFC 6733 §9.8.1). `None` if Diameter has no such record.
    pub(crate) const fn record_type(&self) -> Option<AccountingRecordType> {
        match self.kind {
            AccountingRecordKind::Start => Some(AccountingRecordType::Start),
            AccountingRecordKind::Interim => Some(AccountingRecordType::Interim),
            AccountingRecordKind::Stop => Some(AccountingRecordType::Stop),
            AccountingRecordKind::On | AccountingRecordKind::Off => None,
        }
    }
    /// Appends duration, cause of the end, traffic and assigned addresses.
    pub(crate) fn append_usage(&self, a: &mut AttributeList) -> Result<(), ValueTooLong> {
        if let Some(seconds) = self.session_seconds() {
            a.push_u32(kind::ACCT_SESSION_TIME, seconds);
        }
        if self.kind == AccountingRecordKind::Stop {
            a.push_u32(kind::ACCT_TERMINATE_CAUSE, self.cause.radius_code());
        }
        if let Some(traffic) = self.reported_traffic() {
            let octets = [
                (kind::ACCT_INPUT_OCTETS, kind::ACCT_INPUT_GIGAWORDS, traffic.input_octets),
                (kind::ACCT_OUTPUT_OCTETS, kind::ACCT_OUTPUT_GIGAWORDS, traffic.output_octets),
            ];
            for (low, high, octets) in octets {
                a.push_u32(low, octets as u32);
                if octets >> 32 != 0 {
                    a.push_u32(high, (octets >> 32) as u32);
                }
            }
            a.push_u32(kind::ACCT_INPUT_PACKETS, traffic.input_packets as u32);
            a.push_u32(kind::ACCT_OUTPUT_PACKETS, traffic.output_packets as u32);
        }
        for class in self.classes {
            a.push_bytes(kind::CLASS, class)?;
        }
        if let Some(address) = self.framed_ip {
            a.push_ipv4(kind::FRAMED_IP_ADDRESS, address);
        }
        if let Some(prefix) = self.framed_prefix() {
            a.push_bytes(kind::FRAMED_IPV6_PREFIX, &prefix)?;
        }
        Ok(())
    }
    /// Framed-IPv6-Prefix.
    pub(crate) fn framed_prefix(&self) -> Option<Vec<u8>> {
        self.framed_ipv6_prefix.map(|(prefix, bits)| ipv6_prefix(prefix, bits))
    }
}

/// The Acct-Session-Id of the `number`-th session since a start; 0 is for records of the start itself. Its first digits
/// differ between sessions, so that a short prefix identifies one.
#[must_use]
pub fn session_id(start: u32, number: u32) -> String {
    format!("{:08x}{start:08x}", number.wrapping_mul(SPREAD))
}

/// The start in an Acct-Session-Id. Version 0.2.0 wrote the start first and a plain number after it. The reading with
/// the smaller number is right.
#[must_use]
pub fn start_in_session_id(session: &str) -> Option<u32> {
    let half = |range| u32::from_str_radix(session.get(range)?, 16).ok();
    let (first, last) = (half(0..8)?, half(8..16)?);
    Some(if first.wrapping_mul(GATHER) <= last { last } else { first })
}

/// The golden ratio of 32 bits. It is odd, so the product is unique, and neighbours are far apart.
const SPREAD: u32 = 0x9e37_79b1;
/// The inverse of [`SPREAD`].
const GATHER: u32 = 0x0e8b_2f51;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sessions_of_a_start_are_told_apart_by_their_first_digits() {
        let start = 0xc0ff_ee00;
        let ids: Vec<String> = (0..1000).map(|number| session_id(start, number)).collect();
        assert_eq!(ids[0], "00000000c0ffee00");
        for id in &ids {
            assert_eq!((id.len(), start_in_session_id(id)), (16, Some(start)), "{id}");
        }
        let mut short: Vec<&str> = ids.iter().map(|id| &id[..6]).collect();
        short.sort_unstable();
        short.dedup();
        assert_eq!(short.len(), ids.len());
        assert_eq!(start_in_session_id("c0ffee0000000007"), Some(start), "as 0.2.0 wrote it");
        assert_eq!((start_in_session_id("c0ffee"), start_in_session_id("strange-session1")), (None, None));
    }
}
