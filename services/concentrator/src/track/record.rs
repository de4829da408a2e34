//! The records of the log.

use super::PortBlock;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::net::{Ipv4Addr, Ipv6Addr};
use serde::{Deserialize, Serialize};
use usher_core::{Duration, WallTime};

/// The begin of a user's session.
#[derive(Clone, PartialEq, Debug)]
pub struct SessionStart {
    /// The time of the begin.
    pub started_at: WallTime,
    /// Acct-Session-Id, which its end repeats.
    pub session: String,
    /// The user's name.
    pub user: String,
    /// The host's address on the Ethernet.
    pub station: String,
    /// The port of the concentrator.
    pub port: String,
    /// SESSION_ID.
    pub number: u16,
    /// Agent-Circuit-Id, if the intermediate agent is trusted.
    pub circuit: Option<String>,
    /// The host's IPv4 address.
    pub ipv4: Option<Ipv4Addr>,
    /// The host's port block of a shared address.
    pub block: Option<PortBlock>,
    /// Its IPv6 prefixes.
    pub ipv6: Vec<(Ipv6Addr, u8)>,
    /// Class attributes, which the Stop record repeats, even after a crash.
    pub classes: Vec<Vec<u8>>,
}

/// The end of a user's session.
#[derive(Clone, PartialEq, Debug)]
pub struct SessionEnd {
    /// The time of the end.
    pub ended_at: WallTime,
    /// Acct-Session-Id.
    pub session: String,
    /// The reason.
    pub reason: String,
    /// Octets of packets from the host.
    pub octets_in: u64,
    /// Octets of packets to the host.
    pub octets_out: u64,
    /// A Stop that later starts send again until an AAA server acknowledges it
    /// ([`SessionLogRecord::StopAcknowledged`]).
    pub stop: Option<AccountingStop>,
}

/// The parts of a Stop record that the log does not have otherwise (RFC 2866 §5).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct AccountingStop {
    /// Acct-Terminate-Cause.
    pub cause: u32,
    /// The record's number within its session (Accounting-Record-Number, RFC 6733 §9.8.3).
    pub record: u32,
    /// Packets from the host and to it; `None`: unknown.
    pub packets: Option<(u64, u64)>,
}

/// A record of the log: one line.
#[derive(Clone, PartialEq, Debug)]
pub enum SessionLogRecord {
    /// A concentrator has started. All earlier sessions have ended.
    Started(WallTime),
    /// The concentrator has shut down.
    Stopped(WallTime),
    /// A session begins.
    Begin(SessionStart),
    /// A session has ended.
    End(SessionEnd),
    /// An AAA server has acknowledged the Stop of this session (RFC 2866 §2).
    StopAcknowledged {
        /// The time of the acknowledgement.
        acknowledged_at: WallTime,
        /// Acct-Session-Id.
        session: String,
    },
}

#[derive(Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "kebab-case")]
enum SessionLogLine {
    Started {
        at: String,
    },
    Stopped {
        at: String,
    },
    Begin {
        at: String,
        session: String,
        user: String,
        station: String,
        port: String,
        number: u16,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        circuit: Option<String>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        ipv4: Option<Ipv4Addr>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        ports: Option<PortBlockLine>,
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        ipv6: Vec<String>,
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        class: Vec<String>,
    },
    End {
        at: String,
        session: String,
        reason: String,
        octets_in: u64,
        octets_out: u64,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        stop: Option<AccountingStopLine>,
    },
    StopAcknowledged {
        at: String,
        session: String,
    },
}

#[derive(Serialize, Deserialize)]
struct AccountingStopLine {
    cause: u32,
    record: u32,
    /// In and out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    packets: Option<(u64, u64)>,
}

#[derive(Serialize, Deserialize)]
struct PortBlockLine {
    address: Ipv4Addr,
    first: u16,
    last: u16,
}

fn to_hex(octets: &[u8]) -> String {
    octets.iter().map(|octet| format!("{octet:02x}")).collect()
}

fn parse_hex(hex: &str) -> Option<Vec<u8>> {
    let pairs = hex.as_bytes().chunks(2).map(|pair| {
        let pair = core::str::from_utf8(pair).ok().filter(|pair| pair.len() == 2)?;
        u8::from_str_radix(pair, 16).ok()
    });
    pairs.collect()
}

fn parse_prefix(text: &str) -> Option<(Ipv6Addr, u8)> {
    let (address, bits) = text.split_once('/')?;
    Some((address.parse().ok()?, bits.parse().ok().filter(|bits| *bits <= 128)?))
}

impl SessionLogRecord {
    /// Creates the record of a start.
    #[must_use]
    pub const fn service_started(at: WallTime) -> Self {
        Self::Started(at)
    }
    /// Creates the record of a shutdown.
    #[must_use]
    pub const fn service_stopped(at: WallTime) -> Self {
        Self::Stopped(at)
    }
    /// Creates the record of a begin.
    #[must_use]
    pub const fn session_started(begin: SessionStart) -> Self {
        Self::Begin(begin)
    }
    /// Creates the record of an end.
    #[must_use]
    pub const fn session_ended(end: SessionEnd) -> Self {
        Self::End(end)
    }
    /// Returns the record's time.
    #[must_use]
    pub const fn time(&self) -> WallTime {
        match self {
            Self::Started(at) | Self::Stopped(at) | Self::StopAcknowledged { acknowledged_at: at, .. } => *at,
            Self::Begin(begin) => begin.started_at,
            Self::End(end) => end.ended_at,
        }
    }

    /// Returns the record as a line, with its line feed.
    #[must_use]
    pub fn to_line(&self) -> String {
        let line = match self.clone() {
            Self::Started(at) => SessionLogLine::Started { at: at.to_string() },
            Self::Stopped(at) => SessionLogLine::Stopped { at: at.to_string() },
            Self::Begin(begin) => SessionLogLine::Begin {
                at: begin.started_at.to_string(),
                session: begin.session,
                user: begin.user,
                station: begin.station,
                port: begin.port,
                number: begin.number,
                circuit: begin.circuit,
                ipv4: begin.ipv4,
                ports: begin.block.map(|PortBlock { address, first, last }| PortBlockLine {
                    address,
                    first,
                    last,
                }),
                ipv6: begin.ipv6.iter().map(|(prefix, bits)| format!("{prefix}/{bits}")).collect(),
                class: begin.classes.iter().map(|class| to_hex(class)).collect(),
            },
            Self::End(end) => SessionLogLine::End {
                at: end.ended_at.to_string(),
                session: end.session,
                reason: end.reason,
                octets_in: end.octets_in,
                octets_out: end.octets_out,
                stop: end.stop.map(|AccountingStop { cause, record, packets }| AccountingStopLine {
                    cause,
                    record,
                    packets,
                }),
            },
            Self::StopAcknowledged { acknowledged_at: at, session } => {
                SessionLogLine::StopAcknowledged { at: at.to_string(), session }
            }
        };
        // Strings and numbers always serialize.
        let mut text = serde_json::to_string(&line).unwrap_or_default();
        text.push('\n');
        text
    }

    /// Parses a line.
    ///
    /// # Errors
    /// The line is not a record. The text names the reason.
    pub fn parse(line: &str) -> Result<Self, String> {
        let line: SessionLogLine = serde_json::from_str(line).map_err(|error| error.to_string())?;
        let time = |at: &str| parse_time(at).ok_or_else(|| format!("\"{at}\" is not a time"));
        Ok(match line {
            SessionLogLine::Started { at } => Self::Started(time(&at)?),
            SessionLogLine::Stopped { at } => Self::Stopped(time(&at)?),
            SessionLogLine::Begin {
                at,
                session,
                user,
                station,
                port,
                number,
                circuit,
                ipv4,
                ports,
                ipv6,
                class,
            } => {
                let prefixes = ipv6
                    .iter()
                    .map(|one| parse_prefix(one).ok_or_else(|| format!("\"{one}\" is not a prefix")));
                let classes = class
                    .iter()
                    .map(|one| parse_hex(one).ok_or_else(|| format!("\"{one}\" is not hexadecimal")));
                Self::Begin(SessionStart {
                    started_at: time(&at)?,
                    session,
                    user,
                    station,
                    port,
                    number,
                    circuit,
                    ipv4,
                    block: ports.map(|PortBlockLine { address, first, last }| PortBlock {
                        address,
                        first,
                        last,
                    }),
                    ipv6: prefixes.collect::<Result<_, _>>()?,
                    classes: classes.collect::<Result<_, _>>()?,
                })
            }
            SessionLogLine::End { at, session, reason, octets_in, octets_out, stop } => {
                let stop = stop.map(|AccountingStopLine { cause, record, packets }| AccountingStop {
                    cause,
                    record,
                    packets,
                });
                Self::End(SessionEnd { ended_at: time(&at)?, session, reason, octets_in, octets_out, stop })
            }
            SessionLogLine::StopAcknowledged { at, session } => {
                Self::StopAcknowledged { acknowledged_at: time(&at)?, session }
            }
        })
    }
}

/// Parses a time: RFC 3339, or a date and time with a blank between them, in UTC. `None`: it is neither.
#[must_use]
pub fn parse_time(text: &str) -> Option<WallTime> {
    let (date, time) = text.trim().split_once(['T', 't', ' '])?;
    let number = |text: &str, digits: usize| {
        let right = text.len() == digits && text.bytes().all(|digit| digit.is_ascii_digit());
        right.then(|| text.parse::<i64>().ok()).flatten()
    };
    let [year, month, day] = *date.split('-').collect::<Vec<_>>() else { return None };
    let (year, month, day) = (number(year, 4)?, number(month, 2)?, number(day, 2)?);
    let (time, offset) = match time.find(['Z', 'z', '+', '-']) {
        None => (time, 0),
        Some(at) => {
            let (time, zone) = time.split_at_checked(at)?;
            let offset = match zone.split_at_checked(1)? {
                ("Z" | "z", "") => 0,
                (sign @ ("+" | "-"), zone) => {
                    let (hours, minutes) = zone.split_once(':')?;
                    let offset = number(hours, 2).filter(|n| *n < 24)? * 3600
                        + number(minutes, 2).filter(|n| *n < 60)? * 60;
                    if sign == "-" { -offset } else { offset }
                }
                _ => return None,
            };
            (time, offset)
        }
    };
    let (time, fraction) = time.split_once('.').map_or((time, ""), |(time, fraction)| (time, fraction));
    let [hour, minute, second] = *time.split(':').collect::<Vec<_>>() else { return None };
    // A leap second counts as the second after it.
    let (hour, minute, second) = (
        number(hour, 2).filter(|n| *n < 24)?,
        number(minute, 2).filter(|n| *n < 60)?,
        number(second, 2).filter(|n| *n <= 60)?,
    );
    let leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
    let lengths = [31, if leap { 29 } else { 28 }, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31];
    let longest = *lengths.get(usize::try_from(month.checked_sub(1)?).ok()?)?;
    if !(1..=longest).contains(&day) {
        return None;
    }
    // Count years from March, so that a leap day is the last day of its year.
    let (y, m) = if month > 2 { (year, month - 3) } else { (year - 1, month + 9) };
    let days = 365 * y + y.div_euclid(4) - y.div_euclid(100) + y.div_euclid(400) + (153 * m + 2) / 5 + day
        - 1
        - 719_468;
    let seconds = days * 86_400 + hour * 3600 + minute * 60 + second - offset;
    let mut nanos = 0_u64;
    if !fraction.is_empty() {
        if fraction.len() > 9 || !fraction.bytes().all(|digit| digit.is_ascii_digit()) {
            return None;
        }
        nanos = format!("{fraction:0<9}").parse().ok()?;
    }
    Some(WallTime::from_unix_secs(u64::try_from(seconds).ok()?) + Duration::from_nanos(nanos))
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use proptest::prelude::*;

    pub(crate) fn test_start(at: u64, session: &str, user: &str) -> SessionStart {
        SessionStart {
            started_at: WallTime::from_unix_secs(at),
            session: session.into(),
            user: user.into(),
            station: "02:00:00:00:01:01".into(),
            port: "eth1".into(),
            number: 7,
            circuit: None,
            ipv4: None,
            block: None,
            ipv6: Vec::new(),
            classes: Vec::new(),
        }
    }

    #[test]
    fn a_line_is_as_the_manual_has_it() {
        let mut one = test_start(1_790_000_000, "0102030400000001", "ann");
        one.ipv4 = Some(Ipv4Addr::new(100, 64, 0, 2));
        one.block = Some(PortBlock { address: Ipv4Addr::new(192, 0, 2, 1), first: 1024, last: 2047 });
        one.ipv6 = [("2001:db8:1::".parse().unwrap(), 64)].into();
        one.classes = [[0x0a, 0xff].into()].into();
        let line = SessionLogRecord::session_started(one).to_line();
        assert_eq!(
            line,
            "{\"event\":\"begin\",\"at\":\"2026-09-21T14:13:20.000000Z\",\"session\":\"0102030400000001\",\"user\":\"ann\",\
             \"station\":\"02:00:00:00:01:01\",\"port\":\"eth1\",\"number\":7,\"ipv4\":\"100.64.0.2\",\
             \"ports\":{\"address\":\"192.0.2.1\",\"first\":1024,\"last\":2047},\"ipv6\":[\"2001:db8:1::/64\"],\"class\":[\"0aff\"]}\n"
        );
    }

    #[test]
    fn times_are_read_as_they_are_written_and_as_people_write_them() {
        let secs = |text| parse_time(text).map(WallTime::unix_secs);
        assert_eq!(secs("1970-01-01T00:00:00Z"), Some(0));
        assert_eq!(secs("2024-02-29 23:59:59"), Some(1_709_251_199));
        assert_eq!(secs("2026-09-21T23:13:20+09:00"), Some(1_790_000_000));
        assert_eq!(secs("2026-09-21T10:13:20.5-04:00"), Some(1_790_000_000));
        for wrong in [
            "",
            "2026-09-21",
            "2025-02-29T00:00:00Z",
            "2026-13-01T00:00:00Z",
            "2026-01-00T00:00:00Z",
            "2026-01-01T24:00:00Z",
            "2026-01-01T00:00Z",
            "1969-12-31T23:59:59Z",
            "2026-01-01T00:00:00.Z0",
            "+026-01-01T00:00:00Z",
            "2026-01-01T00:00:00+25:00",
        ] {
            assert_eq!(parse_time(wrong), None, "{wrong}");
        }
    }

    proptest! {
        #[test]
        fn a_time_that_is_written_is_read(micros in 0_u64..1 << 52) {
            let at = WallTime::UNIX_EPOCH + Duration::from_micros(micros);
            prop_assert_eq!(parse_time(&at.to_string()), Some(at));
        }
        #[test]
        fn a_record_that_is_written_is_read(
            user in "\\PC{0,40}", classes: Vec<Vec<u8>>, ipv4: Option<u32>, bits in 0_u8..=128, address: u128, octets: u64,
            packets: Option<(u64, u64)>, owed: bool, record: u32,
        ) {
            let mut one = test_start(1_790_000_000, "a", &user);
            (one.classes, one.ipv4) = (classes, ipv4.map(Ipv4Addr::from_bits));
            one.ipv6 = [(Ipv6Addr::from_bits(address), bits)].into();
            let stop = owed.then_some(AccountingStop { cause: record, record, packets });
            let acknowledged = SessionLogRecord::StopAcknowledged { acknowledged_at: one.started_at, session: user.clone() };
            let end = SessionEnd { ended_at: one.started_at, session: user, reason: "closed".into(), octets_in: octets, octets_out: 0, stop };
            for record in [
                SessionLogRecord::Begin(one.clone()), SessionLogRecord::End(end), SessionLogRecord::Started(one.started_at), SessionLogRecord::Stopped(one.started_at), acknowledged,
            ] {
                let line = record.to_line();
                prop_assert!(line.ends_with('\n') && line.matches('\n').count() == 1);
                prop_assert_eq!(SessionLogRecord::parse(&line), Ok(record));
            }
        }
        #[test]
        fn what_is_no_record_is_refused(text in "\\PC{0,200}") {
            prop_assert!(SessionLogRecord::parse(&text).is_err());
            let _ = parse_time(&text);
        }
    }
}
