//! One accounting record, whichever protocol brought it.

use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::fmt::{self, Write};
use core::net::{IpAddr, Ipv6Addr};
use usher_core::{Duration, WallTime};
use usher_crypto::digest::md5;
use usher_diameter::accounting::{AccountingRequest, RecordType};
use usher_radius::attribute::{AttributeList, AttributeValue, DataType, kind};

/// What a record tells: Acct-Status-Type (RFC 2866 §5.1), Accounting-Record-Type (RFC 6733 §9.8.1).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum RecordStatus {
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
    /// Acct-Session-Id; in Diameter, where it is missing, the Session-Id. Empty with [`RecordStatus::On`] and [`RecordStatus::Off`].
    pub id: String,
    /// User-Name; empty without one.
    pub user: String,
}

/// What makes a session unique among all NASs (column acctuniqueid).
///
/// The digest is FreeRADIUS's: MD5 over User-Name, Acct-Session-Id, NAS address, NAS-Identifier, NAS-Port-Id and
/// NAS-Port, with commas between, what is missing left empty; so sessions that FreeRADIUS began go on here. It is that of
/// the session's first record: later ones that lack a part, or write the name in other capitals, are found without it.
/// Who reported
/// it counts too where the NAS address does not say that ([`LedgerRecord::report_by`], [`LedgerRecord::from_diameter`]). Where a
/// NAS uses an Acct-Session-Id again, the digest's last four digits make room for the use's number: `-001`, `-002`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct UniqueSessionId {
    /// The digest.
    pub digest: [u8; 16],
    /// Which use of the Acct-Session-Id this is: 0 to 999.
    pub generation: u16,
}

impl UniqueSessionId {
    /// Of FreeRADIUS's parts, in its order.
    pub(super) fn from_parts(parts: [&[u8]; 6]) -> Self {
        let [user, id, nas, identifier, port_id, port] = parts;
        let comma = &b","[..];
        let digest = md5(&[user, comma, id, comma, nas, comma, identifier, comma, port_id, comma, port]);
        Self { digest, generation: 0 }
    }
    /// From column acctuniqueid; `None` where the text is none. Of a later use, the digest's last two octets are zero.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let (digits, generation) = match text.split_once('-') {
            Some((digits, n)) if digits.len() == 28 && n.len() == 3 => {
                (digits, n.parse().ok().filter(|g| *g > 0)?)
            }
            None if text.len() == 32 => (text, 0),
            _ => return None,
        };
        let mut digest = [0; 16];
        let mut rest = digits.bytes();
        for octet in digest.iter_mut().take(digits.len() / 2) {
            let mut digit = || char::from(rest.next()?).to_digit(16);
            *octet = (digit()? << 4 | digit()?) as u8;
        }
        Some(Self { digest, generation })
    }
}

impl fmt::Display for UniqueSessionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let digits = if self.generation == 0 { 16 } else { 14 };
        self.digest.iter().take(digits).try_for_each(|b| write!(f, "{b:02x}"))?;
        if self.generation > 0 {
            write!(f, "-{:03}", self.generation)?;
        }
        Ok(())
    }
}

/// One record (RFC 2866 §5, RFC 2869 §5, RFC 3162, RFC 6733 §9, RFC 7155 §4.6). Text that is not UTF-8, and control
/// characters, are written as `\xNN`, so that every store takes it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LedgerRecord {
    /// What it tells.
    pub status: RecordStatus,
    /// Of which session.
    pub session: SessionKey,
    /// What makes that session unique, as the first of its name.
    pub unique: UniqueSessionId,
    /// The same without User-Name, where this record tells of a session that began before and has a User-Name: it may
    /// have begun without one.
    pub nameless: Option<UniqueSessionId>,
    /// By Diameter: whose the session is, beside its id: `Origin-Host/NAS address`, and where who is authenticated speaks
    /// for another, `authenticated!Origin-Host/NAS address`. At most 1024 octets. Empty by RADIUS.
    pub diameter_origin: String,
    /// The client that reports it, as its network with the leading bits that count; `None`: not told apart from others.
    pub client: Option<(IpAddr, u8)>,
    /// When it happened: Event-Timestamp, or when the record came less Acct-Delay-Time. The NAS's clock may be ahead of
    /// ours by [`CLOCK_DIFFERENCE`] at most; all that one NAS says is by the same clock, so its times are kept as they
    /// are.
    pub occurred_at: WallTime,
    /// When it came, by our clock.
    pub received_at: WallTime,
    /// The NAS said when it happened (by Event-Timestamp or Acct-Delay-Time); otherwise `at` is when the record came,
    /// and a retransmission seems later than it is.
    pub timed: bool,
    /// The NAS said so by its own clock (Event-Timestamp). An Acct-Delay-Time says how late it was sent, and not how long
    /// it then took.
    pub stamped: bool,
    /// By how many seconds the clock that `at` was told by is ahead of ours, as far as is known; negative: behind. That
    /// is known where Acct-Delay-Time stands beside Event-Timestamp, and where a time is told that has not come yet.
    pub ahead: i32,
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

impl LedgerRecord {
    /// A record that says nothing but what it tells, of whom and when. Its digest is made of NAS, name and id alone.
    #[must_use]
    pub fn new(status: RecordStatus, session: SessionKey, at: WallTime) -> Self {
        let nas = session.nas.to_string();
        let unique = UniqueSessionId::from_parts([
            session.user.as_bytes(),
            session.id.as_bytes(),
            nas.as_bytes(),
            b"",
            b"",
            b"",
        ]);
        Self {
            status,
            session,
            unique,
            nameless: None,
            diameter_origin: String::new(),
            client: None,
            occurred_at: at,
            received_at: at,
            timed: false,
            stamped: false,
            ahead: 0,
            delay: Duration::ZERO,
            nas_identifier: String::new(),
            port: String::new(),
            port_type: None,
            multi_session_id: String::new(),
            session_time: None,
            input_octets: None,
            output_octets: None,
            input_packets: None,
            output_packets: None,
            authentic: None,
            terminate_cause: None,
            service_type: None,
            framed_protocol: None,
            called_station_id: String::new(),
            calling_station_id: String::new(),
            framed_address: None,
            framed_prefix: None,
            class: Vec::new(),
            connect_info: String::new(),
        }
    }

    /// Reads an Accounting-Request that came from an address at a time.
    ///
    /// # Errors
    /// It cannot be kept, and is not to be acknowledged.
    pub fn from_radius(
        attributes: &AttributeList,
        source: IpAddr,
        wall: WallTime,
    ) -> Result<Self, BadRecord> {
        let a = TypedValues(attributes);
        let status = match a.integer_value(kind::ACCT_STATUS_TYPE)?.ok_or(BadRecord::NoStatus)? {
            1 => RecordStatus::Start,
            2 => RecordStatus::Stop,
            3 => RecordStatus::Interim,
            7 => RecordStatus::On,
            8 => RecordStatus::Off,
            other => return Err(BadRecord::UnknownStatus(other)),
        };
        let id = attributes.get(kind::ACCT_SESSION_ID).unwrap_or_default();
        let whole_nas = matches!(status, RecordStatus::On | RecordStatus::Off);
        if id.is_empty() && !whole_nas {
            return Err(BadRecord::NoSession);
        }
        let octets = |kind| attributes.get(kind).unwrap_or_default();
        let nas = nas_of(attributes, source);
        let port = a.integer_value(kind::NAS_PORT)?.map(|n| n.to_string()).unwrap_or_default();
        let user = octets(kind::USER_NAME);
        let address = nas.to_string();
        let (identifier, port_id) = (octets(kind::NAS_IDENTIFIER), octets(kind::NAS_PORT_ID));
        let unique_of = |user| {
            UniqueSessionId::from_parts([user, id, address.as_bytes(), identifier, port_id, port.as_bytes()])
        };
        let unique = unique_of(user);
        let began_before = matches!(status, RecordStatus::Interim | RecordStatus::Stop);
        let nameless = (began_before && !user.is_empty()).then(|| unique_of(b""));
        let id = if whole_nas { String::new() } else { storable_text(id) };
        let session = SessionKey { nas, id, user: storable_text(user) };
        let mut record = Self { unique, nameless, ..Self::new(status, session, wall) };
        let stamp = a.integer_value(kind::EVENT_TIMESTAMP)?.map(u64::from);
        record.set_event_time(stamp, a.integer_value(kind::ACCT_DELAY_TIME)?, wall);
        record.nas_identifier = storable_text(identifier);
        record.port = port_of(attributes);
        record.port_type = attributes.get_u32(kind::NAS_PORT_TYPE);
        record.multi_session_id = storable_text(octets(kind::ACCT_MULTI_SESSION_ID));
        record.session_time = a.integer_value(kind::ACCT_SESSION_TIME)?.map(u64::from);
        record.input_octets = a.gigaword_value(kind::ACCT_INPUT_OCTETS, kind::ACCT_INPUT_GIGAWORDS)?;
        record.output_octets = a.gigaword_value(kind::ACCT_OUTPUT_OCTETS, kind::ACCT_OUTPUT_GIGAWORDS)?;
        record.input_packets = a.integer_value(kind::ACCT_INPUT_PACKETS)?.map(u64::from);
        record.output_packets = a.integer_value(kind::ACCT_OUTPUT_PACKETS)?.map(u64::from);
        record.authentic = attributes.get_u32(ACCT_AUTHENTIC);
        record.terminate_cause = a.integer_value(kind::ACCT_TERMINATE_CAUSE)?;
        record.service_type = attributes.get_u32(kind::SERVICE_TYPE);
        record.framed_protocol = attributes.get_u32(kind::FRAMED_PROTOCOL);
        record.called_station_id = storable_text(octets(kind::CALLED_STATION_ID));
        record.calling_station_id = storable_text(octets(kind::CALLING_STATION_ID));
        // What describes a session is left out where it is not of its type; what counts is not.
        let v4 = attributes.get_ipv4(kind::FRAMED_IP_ADDRESS).map(IpAddr::from);
        let v6 = a.typed_value(kind::FRAMED_IPV6_ADDRESS, DataType::Ipv6Addr).ok().flatten();
        record.framed_address = v4.or(match v6 {
            Some(AttributeValue::Ipv6Addr(address)) => Some(address.into()),
            _ => None,
        });
        for kind in [kind::FRAMED_IPV6_PREFIX, kind::DELEGATED_IPV6_PREFIX] {
            if let (None, Some(AttributeValue::Ipv6Prefix(prefix, length))) =
                (record.framed_prefix, a.typed_value(kind, DataType::Ipv6Prefix).ok().flatten())
            {
                record.framed_prefix = Some((prefix, length));
            }
        }
        record.class = octets(kind::CLASS).to_vec();
        record.connect_info = storable_text(octets(CONNECT_INFO));
        Ok(record)
    }

    /// What an ACR (RFC 6733 §9.7.1) says that came from an address at a time. The session is named by Acct-Session-Id
    /// or, without it, by Session-Id; an EVENT_RECORD is a session that ended as it began. A NAS without an address is
    /// told from others by its NAS-Identifier or Origin-Host. `origin` is whose the request is as far as that is
    /// authenticated ([`usher_diameter::node::DiameterNodeEvent::Request`]): records of other origins are of other sessions, whatever
    /// they say.
    #[must_use]
    pub fn from_diameter(acr: &AccountingRequest<'_>, origin: &str, source: IpAddr, wall: WallTime) -> Self {
        let status = match acr.record_type {
            RecordType::Start => RecordStatus::Start,
            RecordType::Interim => RecordStatus::Interim,
            RecordType::Event | RecordType::Stop => RecordStatus::Stop,
        };
        let nas = acr.nas.address.unwrap_or(source);
        let id = acr.acct_session_id.unwrap_or_else(|| acr.session_id.unwrap_or_default().as_bytes());
        let user = acr.user_name.unwrap_or_default().as_bytes();
        let identifier = acr.nas.identifier.or(acr.origin_host).unwrap_or_default();
        let port = acr.nas.port.map(|n| n.to_string()).unwrap_or_default();
        let port_id = acr.nas.port_id.unwrap_or_default();
        let said = acr.origin_host.unwrap_or_default();
        // A NAS may name whichever address it likes; what it is called is authenticated, or belongs to who brought it.
        let whose = match said.eq_ignore_ascii_case(origin) {
            true => alloc::format!("{said}/{nas}"),
            false => alloc::format!("{origin}!{said}/{nas}"),
        };
        let unique_of = |user| {
            let parts = [whose.as_bytes(), identifier.as_bytes(), port_id.as_bytes(), port.as_bytes()];
            let [whose, identifier, port_id, port] = parts;
            UniqueSessionId::from_parts([user, id, whose, identifier, port_id, port])
        };
        let unique = unique_of(user);
        let began_before = matches!(status, RecordStatus::Interim | RecordStatus::Stop);
        let nameless = (began_before && !user.is_empty()).then(|| unique_of(b""));
        let words = |words: Option<&str>| storable_text(words.unwrap_or_default().as_bytes());
        let session = SessionKey { nas, id: storable_text(id), user: storable_text(user) };
        // It is kept in a table, as text.
        let mut diameter_origin = storable_text(whose.as_bytes());
        diameter_origin.truncate(diameter_origin.floor_char_boundary(LONGEST_ORIGIN));
        let mut record = Self { unique, nameless, diameter_origin, ..Self::new(status, session, wall) };
        record.set_event_time(acr.event_timestamp.map(|t| t.to_wall().unix_secs()), acr.delay, wall);
        record.nas_identifier = storable_text(identifier.as_bytes());
        record.port = if port_id.is_empty() { port } else { storable_text(port_id.as_bytes()) };
        record.port_type = acr.nas.port_type;
        record.multi_session_id = words(acr.multi_session_id);
        record.session_time = acr.session_time.map(u64::from);
        (record.input_octets, record.output_octets) = (acr.input_octets, acr.output_octets);
        (record.input_packets, record.output_packets) = (acr.input_packets, acr.output_packets);
        record.authentic = acr.authentic;
        record.terminate_cause = acr.termination_cause.map(terminate_cause);
        record.service_type = acr.nas.service_type;
        record.framed_protocol = acr.framed_protocol;
        record.called_station_id = words(acr.nas.called_station);
        record.calling_station_id = words(acr.nas.calling_station);
        record.framed_address = acr.framed_ip.map(IpAddr::from);
        record.framed_prefix =
            acr.framed_ipv6_prefix.and_then(|p| match AttributeValue::decode(DataType::Ipv6Prefix, p) {
                Ok(AttributeValue::Ipv6Prefix(prefix, length)) => Some((prefix, length)),
                _ => None,
            });
        record.class = acr.class.unwrap_or_default().to_vec();
        record.connect_info = words(acr.connect_info);
        record
    }

    /// Makes the session one of the client at this address, which named an access server that it does not speak for:
    /// no record of another has its acctuniqueid, and no restart of another ends it.
    pub fn report_by(&mut self, client: IpAddr) {
        self.session.nas = client;
        let client = client.to_string();
        for unique in core::iter::once(&mut self.unique).chain(&mut self.nameless) {
            unique.digest = md5(&[client.as_bytes(), b",", &unique.digest]);
        }
    }

    /// Sets when it happened (RFC 2869 §5.3, RFC 2866 §5.2). A time from a future that no clock explains, or one of a
    /// clock that was never set, is not believed.
    pub(super) fn set_event_time(&mut self, stamp: Option<u64>, delay: Option<u32>, wall: WallTime) {
        let stamp = stamp.filter(|t| {
            let now = wall.unix_secs();
            *t <= now.saturating_add(CLOCK_DIFFERENCE.as_secs()) && *t + OLDEST.as_secs() >= now
        });
        self.delay = Duration::from_secs(delay.unwrap_or(0).into());
        self.stamped = stamp.is_some();
        self.timed = self.stamped || delay.is_some();
        self.occurred_at = match (stamp, delay) {
            (Some(t), _) => WallTime::from_unix_secs(t),
            (None, Some(delay)) if delay > 0 => super::session::subtract_seconds(wall, delay.into()),
            _ => wall,
        };
        let sent = wall.unix_secs().saturating_sub(delay.unwrap_or(0).into());
        self.ahead = match stamp {
            Some(t) if delay.is_some() || t > sent => seconds_between(sent, t),
            _ => 0,
        };
    }
    /// When it happened by our clock, as far as is known.
    pub(super) fn local_event_time(&self) -> WallTime {
        shift_time(self.occurred_at, self.ahead.saturating_neg())
    }
}

/// How many seconds a time is after another; both in seconds.
fn seconds_between(from: u64, to: u64) -> i32 {
    let seconds = i128::from(to) - i128::from(from);
    seconds.clamp(i32::MIN.into(), i32::MAX.into()) as i32
}

/// A time so many seconds later; negative: earlier.
pub(super) fn shift_time(at: WallTime, seconds: i32) -> WallTime {
    WallTime::from_unix_secs(at.unix_secs().saturating_add_signed(seconds.into()))
}

/// How long [`LedgerRecord::diameter_origin`] may be: two names of the DNS, an address, and what stands between.
pub(super) const LONGEST_ORIGIN: usize = 1024;

/// How far a NAS's clock may be ahead of ours for its Event-Timestamps to be believed.
pub const CLOCK_DIFFERENCE: Duration = Duration::from_secs(300);

/// Event-Timestamps that are older come from clocks that were never set.
const OLDEST: Duration = Duration::from_secs(366 * 86_400);

const ACCT_AUTHENTIC: u8 = 45;
const CONNECT_INFO: u8 = 77;

/// The values of attributes, with a fault for those that are not of their type.
struct TypedValues<'a>(&'a AttributeList);

impl TypedValues<'_> {
    fn typed_value(&self, kind: u8, data_type: DataType) -> Result<Option<AttributeValue<'_>>, BadRecord> {
        let value = self.0.get(kind).map(|v| AttributeValue::decode(data_type, v));
        value.transpose().map_err(|_| BadRecord::BadValue(kind))
    }
    fn integer_value(&self, kind: u8) -> Result<Option<u32>, BadRecord> {
        Ok(match self.typed_value(kind, DataType::Integer)? {
            Some(AttributeValue::Integer(n)) => Some(n),
            _ => None,
        })
    }
    /// A count whose upper half is another attribute (RFC 2869 §5.1).
    fn gigaword_value(&self, low: u8, high: u8) -> Result<Option<u64>, BadRecord> {
        let (low, high) = (self.integer_value(low)?, self.integer_value(high)?.unwrap_or(0));
        Ok(low.map(|low| u64::from(high) << 32 | u64::from(low)))
    }
}

/// The NAS that a request is of: its NAS-IPv6-Address, its NAS-IP-Address, or where it came from. The unspecified address
/// (0.0.0.0, ::) is nobody's, and names none: Diameter's sessions without an address are kept with it.
#[must_use]
pub fn nas_of(attributes: &AttributeList, source: IpAddr) -> IpAddr {
    let v6 = attributes.get(kind::NAS_IPV6_ADDRESS).and_then(|v| <[u8; 16]>::try_from(v).ok());
    let named = |address: &IpAddr| !address.to_canonical().is_unspecified();
    let v4 = attributes.get_ipv4(kind::NAS_IP_ADDRESS).map(IpAddr::from);
    v6.map(IpAddr::from).filter(named).or(v4.filter(named)).unwrap_or(source)
}

/// The port that a request is of: its NAS-Port-Id, or its NAS-Port in decimal; empty without either.
#[must_use]
pub fn port_of(attributes: &AttributeList) -> String {
    match (attributes.get(kind::NAS_PORT_ID), attributes.get_u32(kind::NAS_PORT)) {
        (Some(id), _) => storable_text(id),
        (None, Some(number)) => number.to_string(),
        (None, None) => String::new(),
    }
}

/// A Termination-Cause (RFC 6733 §8.15) as Acct-Terminate-Cause: from 11 on they are RADIUS's, ten higher (RFC 4005
/// §9.3.5); those below are the nearest.
pub(super) const fn terminate_cause(cause: u32) -> u32 {
    match cause {
        // LOGOUT, USER_MOVED: User-Request.
        1 | 7 => 1,
        // SERVICE_NOT_PROVIDED, BAD_ANSWER: Service-Unavailable.
        2 | 3 => 15,
        // ADMINISTRATIVE: Admin-Reset.
        4 => 6,
        // LINK_BROKEN: Lost-Carrier.
        5 => 2,
        // AUTH_EXPIRED, SESSION_TIMEOUT: Session-Timeout.
        6 | 8 => 5,
        11.. => cause - 10,
        // NAS-Error.
        _ => 9,
    }
}

/// Octets from outside as text that every store takes: what is not UTF-8, and control characters, become `\xNN`.
#[must_use]
pub fn storable_text(octets: &[u8]) -> String {
    let mut out = String::with_capacity(octets.len());
    for chunk in octets.utf8_chunks() {
        for c in chunk.valid().chars() {
            if c.is_control() {
                let mut utf8 = [0; 4];
                escape_octets(&mut out, c.encode_utf8(&mut utf8).as_bytes());
            } else {
                out.push(c);
            }
        }
        escape_octets(&mut out, chunk.invalid());
    }
    out
}

fn escape_octets(out: &mut String, octets: &[u8]) {
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
