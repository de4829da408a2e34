//! An accounting record of RADIUS or Diameter.

use crate::text::storable_text;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::fmt;
use core::net::{IpAddr, Ipv6Addr};
use usher_core::{Duration, WallTime};
use usher_crypto::digest::md5;
use usher_diameter::accounting::{AccountingRecordType, AccountingRequest};
use usher_radius::attribute::{AttributeDataType, AttributeList, AttributeValue, kind};

/// The kind of a record: Acct-Status-Type (RFC 2866 §5.1), Accounting-Record-Type (RFC 6733 §9.8.1).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum AccountingStatusType {
    /// A session starts.
    Start,
    /// A session continues (Interim-Update, INTERIM_RECORD).
    Interim,
    /// A session stops.
    Stop,
    /// The NAS restarts: its earlier sessions have ended (Accounting-On).
    On,
    /// The NAS shuts down with all its sessions (Accounting-Off).
    Off,
}

/// Identifies a session for people and its NAS.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct NasSessionKey {
    /// NAS-IPv6-Address, NAS-IP-Address, or without either the source of the record.
    pub nas: IpAddr,
    /// Acct-Session-Id. In Diameter, if it is missing, the Session-Id. Empty with [`AccountingStatusType::On`] and
    /// [`AccountingStatusType::Off`].
    pub id: String,
    /// User-Name. Empty: none.
    pub user: String,
}

/// Identifies a session among all NASs (column acctuniqueid).
///
/// The digest is FreeRADIUS's: MD5 over User-Name, Acct-Session-Id, NAS address, NAS-Identifier, NAS-Port-Id and
/// NAS-Port, separated by commas, missing parts empty. So sessions that FreeRADIUS started continue here. It is
/// computed from the session's first record. Later records that lack a part, or write the name in other case, are
/// matched without it.
///
/// If the NAS address does not identify the reporter, the reporter is part of the digest
/// ([`LedgerRecord::assign_to_client`], [`LedgerRecord::from_diameter`]). If a NAS reuses an Acct-Session-Id, the
/// generation replaces the last four digits: `-001`, `-002`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct UniqueSessionId {
    /// The digest.
    pub digest: [u8; 16],
    /// Generation of the Acct-Session-Id: 0 to 999.
    pub generation: u16,
}

impl UniqueSessionId {
    /// Computes the digest of FreeRADIUS's parts, in its order.
    pub(super) fn from_freeradius_parts(parts: [&[u8]; 6]) -> Self {
        let [user, id, nas, identifier, port_id, port] = parts;
        let comma = &b","[..];
        let digest = md5(&[user, comma, id, comma, nas, comma, identifier, comma, port_id, comma, port]);
        Self { digest, generation: 0 }
    }
    /// Parses column acctuniqueid. `None`: invalid. With a generation, the digest's last two octets are zero.
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

/// A record (RFC 2866 §5, RFC 2869 §5, RFC 3162, RFC 6733 §9, RFC 7155 §4.6). Octets that are not UTF-8, and
/// control characters, are written as `\xNN`, so that every store accepts the text.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LedgerRecord {
    /// Kind.
    pub status: AccountingStatusType,
    /// Session.
    pub session: NasSessionKey,
    /// Unique id of the session's first generation.
    pub unique: UniqueSessionId,
    /// The id without User-Name, for a record of a running session with User-Name: the session may have started
    /// without one.
    pub nameless: Option<UniqueSessionId>,
    /// Diameter: the origin, `Origin-Host/NAS address`. If the authenticated peer relays for another host,
    /// `authenticated!Origin-Host/NAS address`. At most 1024 octets. Empty for RADIUS.
    pub diameter_origin: String,
    /// Network of the reporting client with its prefix length. `None`: unknown.
    pub client: Option<(IpAddr, u8)>,
    /// Event time: Event-Timestamp, or the arrival less Acct-Delay-Time. The NAS's clock may be ahead by at most
    /// [`CLOCK_DIFFERENCE`]. Times of one NAS are from the same clock, so they are stored unchanged.
    pub occurred_at: WallTime,
    /// Time of arrival by the local clock.
    pub received_at: WallTime,
    /// True if the NAS sent the event time (Event-Timestamp or Acct-Delay-Time). Otherwise the event time is the
    /// arrival, and a retransmission seems later than it is.
    pub timed: bool,
    /// True if the NAS sent its clock (Event-Timestamp). Acct-Delay-Time gives the delay until sending, not the
    /// transit time.
    pub stamped: bool,
    /// Seconds by which the clock of the event time is ahead of the local one, as far as known; negative: behind.
    /// It is known if the record has Acct-Delay-Time and Event-Timestamp, or an event time in the future.
    pub ahead: i32,
    /// Acct-Delay-Time.
    pub delay: Duration,
    /// NAS-Identifier. Empty: none.
    pub nas_identifier: String,
    /// NAS-Port-Id, or NAS-Port in decimal. Empty: neither.
    pub port: String,
    /// NAS-Port-Type by number.
    pub port_type: Option<u32>,
    /// Acct-Multi-Session-Id. Empty: none.
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
    /// Acct-Terminate-Cause by number (RFC 2866 §5.10), translated from Diameter's Termination-Cause.
    pub terminate_cause: Option<u32>,
    /// Service-Type by number.
    pub service_type: Option<u32>,
    /// Framed-Protocol by number.
    pub framed_protocol: Option<u32>,
    /// Called-Station-Id. Empty: none.
    pub called_station_id: String,
    /// Calling-Station-Id. Empty: none.
    pub calling_station_id: String,
    /// Framed-IP-Address, or else Framed-IPv6-Address.
    pub framed_address: Option<IpAddr>,
    /// Framed-IPv6-Prefix, or else Delegated-IPv6-Prefix, with its length.
    pub framed_prefix: Option<(Ipv6Addr, u8)>,
    /// Class of the Access-Accept. Empty: none.
    pub class: Vec<u8>,
    /// Connect-Info. Empty: none.
    pub connect_info: String,
}

impl LedgerRecord {
    /// Creates a record with kind, session and time only. Its digest has NAS, name and id alone.
    #[must_use]
    pub fn new(status: AccountingStatusType, session: NasSessionKey, at: WallTime) -> Self {
        let nas = session.nas.to_string();
        let unique = UniqueSessionId::from_freeradius_parts([
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

    /// Parses an Accounting-Request from an address at a time.
    ///
    /// # Errors
    /// The request is invalid and must not be acknowledged.
    pub fn from_radius(
        attributes: &AttributeList,
        source: IpAddr,
        wall: WallTime,
    ) -> Result<Self, AccountingRecordError> {
        let a = TypedAttributeReader(attributes);
        let status = match a.integer_value(kind::ACCT_STATUS_TYPE)?.ok_or(AccountingRecordError::NoStatus)? {
            1 => AccountingStatusType::Start,
            2 => AccountingStatusType::Stop,
            3 => AccountingStatusType::Interim,
            7 => AccountingStatusType::On,
            8 => AccountingStatusType::Off,
            other => return Err(AccountingRecordError::UnknownStatus(other)),
        };
        let id = attributes.get(kind::ACCT_SESSION_ID).unwrap_or_default();
        let whole_nas = matches!(status, AccountingStatusType::On | AccountingStatusType::Off);
        if id.is_empty() && !whole_nas {
            // RFC 2866, 5.5: a record has an Acct-Session-Id.
            return Err(AccountingRecordError::NoSession);
        }
        let octets = |kind| attributes.get(kind).unwrap_or_default();
        let nas = nas_of(attributes, source);
        let port = a.integer_value(kind::NAS_PORT)?.map(|n| n.to_string()).unwrap_or_default();
        let user = octets(kind::USER_NAME);
        let address = nas.to_string();
        let (identifier, port_id) = (octets(kind::NAS_IDENTIFIER), octets(kind::NAS_PORT_ID));
        // RFC 2866, 5.5: the Acct-Session-Id is the same from Start to Stop.
        let unique_of = |user| {
            UniqueSessionId::from_freeradius_parts([
                user,
                id,
                address.as_bytes(),
                identifier,
                port_id,
                port.as_bytes(),
            ])
        };
        let unique = unique_of(user);
        let began_before = matches!(status, AccountingStatusType::Interim | AccountingStatusType::Stop);
        let nameless = (began_before && !user.is_empty()).then(|| unique_of(b""));
        let id = if whole_nas { String::new() } else { storable_text(id) };
        let session = NasSessionKey { nas, id, user: storable_text(user) };
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
        // Invalid descriptive attributes are left out; invalid counters are errors.
        let v4 = attributes.get_ipv4(kind::FRAMED_IP_ADDRESS).map(IpAddr::from);
        let v6 =
            a.read_typed_attribute(kind::FRAMED_IPV6_ADDRESS, AttributeDataType::Ipv6Addr).ok().flatten();
        record.framed_address = v4.or(match v6 {
            Some(AttributeValue::Ipv6Addr(address)) => Some(address.into()),
            _ => None,
        });
        for kind in [kind::FRAMED_IPV6_PREFIX, kind::DELEGATED_IPV6_PREFIX] {
            if let (None, Some(AttributeValue::Ipv6Prefix(prefix, length))) = (
                record.framed_prefix,
                a.read_typed_attribute(kind, AttributeDataType::Ipv6Prefix).ok().flatten(),
            ) {
                record.framed_prefix = Some((prefix, length));
            }
        }
        record.class = octets(kind::CLASS).to_vec();
        record.connect_info = storable_text(octets(CONNECT_INFO));
        Ok(record)
    }

    /// Reads an ACR (RFC 6733 §9.7.1) from an address at a time.
    ///
    /// The session id is Acct-Session-Id, or else Session-Id. An EVENT_RECORD is a session that ended as it
    /// started. A NAS without an address is identified by NAS-Identifier or Origin-Host. `origin` is the
    /// authenticated origin ([`usher_diameter::node::DiameterNodeEvent::Request`]): records of other origins belong
    /// to other sessions.
    #[must_use]
    pub fn from_diameter(acr: &AccountingRequest<'_>, origin: &str, source: IpAddr, wall: WallTime) -> Self {
        let status = match acr.record_type {
            AccountingRecordType::Start => AccountingStatusType::Start,
            AccountingRecordType::Interim => AccountingStatusType::Interim,
            AccountingRecordType::Event | AccountingRecordType::Stop => AccountingStatusType::Stop,
        };
        let nas = acr.nas.address.unwrap_or(source);
        let id = acr.acct_session_id.unwrap_or_else(|| acr.session_id.unwrap_or_default().as_bytes());
        let user = acr.user_name.unwrap_or_default().as_bytes();
        let identifier = acr.nas.identifier.or(acr.origin_host).unwrap_or_default();
        let port = acr.nas.port.map(|n| n.to_string()).unwrap_or_default();
        let port_id = acr.nas.port_id.unwrap_or_default();
        let said = acr.origin_host.unwrap_or_default();
        // A NAS may claim any address, so its name is part of the key. The name is authenticated, or is qualified by
        // the peer that relayed it.
        let whose = match said.eq_ignore_ascii_case(origin) {
            true => alloc::format!("{said}/{nas}"),
            false => alloc::format!("{origin}!{said}/{nas}"),
        };
        let unique_of = |user| {
            let parts = [whose.as_bytes(), identifier.as_bytes(), port_id.as_bytes(), port.as_bytes()];
            let [whose, identifier, port_id, port] = parts;
            UniqueSessionId::from_freeradius_parts([user, id, whose, identifier, port_id, port])
        };
        let unique = unique_of(user);
        let began_before = matches!(status, AccountingStatusType::Interim | AccountingStatusType::Stop);
        let nameless = (began_before && !user.is_empty()).then(|| unique_of(b""));
        let words = |words: Option<&str>| storable_text(words.unwrap_or_default().as_bytes());
        let session = NasSessionKey { nas, id: storable_text(id), user: storable_text(user) };
        // The store's tables hold this origin as text.
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
        record.framed_prefix = acr.framed_ipv6_prefix.and_then(|p| {
            match AttributeValue::decode(AttributeDataType::Ipv6Prefix, p) {
                Ok(AttributeValue::Ipv6Prefix(prefix, length)) => Some((prefix, length)),
                _ => None,
            }
        });
        record.class = acr.class.unwrap_or_default().to_vec();
        record.connect_info = words(acr.connect_info);
        record
    }

    /// Assigns the session to the client at this address, which named an access server without authority for it. So
    /// records and restarts of others cannot change the session.
    pub fn assign_to_client(&mut self, client: IpAddr) {
        self.session.nas = client;
        let client = client.to_string();
        for unique in core::iter::once(&mut self.unique).chain(&mut self.nameless) {
            unique.digest = md5(&[client.as_bytes(), b",", &unique.digest]);
        }
    }

    /// Sets the event time (RFC 2869 §5.3, RFC 2866 §5.2). A time too far in the future, or of a clock that was
    /// never set, is ignored.
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
            (None, Some(delay)) if delay > 0 => subtract_seconds(wall, delay.into()),
            _ => wall,
        };
        let sent = wall.unix_secs().saturating_sub(delay.unwrap_or(0).into());
        self.ahead = match stamp {
            Some(t) if delay.is_some() || t > sent => seconds_between(sent, t),
            _ => 0,
        };
    }
    /// Returns the event time by the local clock, as far as known.
    pub(super) fn local_event_time(&self) -> WallTime {
        shift_time(self.occurred_at, self.ahead.saturating_neg())
    }
}

/// Returns the difference of two times in seconds.
fn seconds_between(from: u64, to: u64) -> i32 {
    let seconds = i128::from(to) - i128::from(from);
    seconds.clamp(i32::MIN.into(), i32::MAX.into()) as i32
}

/// Adds seconds to a time. Negative: earlier.
pub(super) fn shift_time(at: WallTime, seconds: i32) -> WallTime {
    WallTime::from_unix_secs(at.unix_secs().saturating_add_signed(seconds.into()))
}

/// Maximum octets of [`LedgerRecord::diameter_origin`]: two DNS names, an address, and separators.
pub(super) const LONGEST_ORIGIN: usize = 1024;

/// Maximum lead of a NAS's clock for valid Event-Timestamps.
pub const CLOCK_DIFFERENCE: Duration = Duration::from_secs(300);

/// Older Event-Timestamps come from clocks that were never set.
const OLDEST: Duration = Duration::from_secs(366 * 86_400);

const ACCT_AUTHENTIC: u8 = 45;
const CONNECT_INFO: u8 = 77;

/// Typed values of attributes, with an error for a wrong type.
struct TypedAttributeReader<'a>(&'a AttributeList);

impl TypedAttributeReader<'_> {
    fn read_typed_attribute(
        &self,
        kind: u8,
        data_type: AttributeDataType,
    ) -> Result<Option<AttributeValue<'_>>, AccountingRecordError> {
        let value = self.0.get(kind).map(|v| AttributeValue::decode(data_type, v));
        value.transpose().map_err(|_| AccountingRecordError::BadValue(kind))
    }
    fn integer_value(&self, kind: u8) -> Result<Option<u32>, AccountingRecordError> {
        Ok(match self.read_typed_attribute(kind, AttributeDataType::Integer)? {
            Some(AttributeValue::Integer(n)) => Some(n),
            _ => None,
        })
    }
    /// Reads a counter whose upper half is another attribute (RFC 2869 §5.1).
    fn gigaword_value(&self, low: u8, high: u8) -> Result<Option<u64>, AccountingRecordError> {
        let (low, high) = (self.integer_value(low)?, self.integer_value(high)?.unwrap_or(0));
        Ok(low.map(|low| u64::from(high) << 32 | u64::from(low)))
    }
}

/// Returns the NAS of a request: NAS-IPv6-Address, NAS-IP-Address, or the source. The unspecified address (0.0.0.0,
/// ::) is ignored: Diameter's sessions without an address use it.
#[must_use]
pub fn nas_of(attributes: &AttributeList, source: IpAddr) -> IpAddr {
    let v6 = attributes.get(kind::NAS_IPV6_ADDRESS).and_then(|v| <[u8; 16]>::try_from(v).ok());
    let named = |address: &IpAddr| !address.to_canonical().is_unspecified();
    let v4 = attributes.get_ipv4(kind::NAS_IP_ADDRESS).map(IpAddr::from);
    v6.map(IpAddr::from).filter(named).or(v4.filter(named)).unwrap_or(source)
}

/// Returns the port of a request: NAS-Port-Id, or NAS-Port in decimal. Empty: neither.
#[must_use]
pub fn port_of(attributes: &AttributeList) -> String {
    match (attributes.get(kind::NAS_PORT_ID), attributes.get_u32(kind::NAS_PORT)) {
        (Some(id), _) => storable_text(id),
        (None, Some(number)) => number.to_string(),
        (None, None) => String::new(),
    }
}

/// Translates a Termination-Cause (RFC 6733 §8.15) to Acct-Terminate-Cause. From 11 on it is RADIUS's plus ten (RFC
/// 4005 §9.3.5); below that the nearest one is used.
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

/// Subtracts seconds from a time.
pub(super) fn subtract_seconds(at: WallTime, seconds: u64) -> WallTime {
    WallTime::from_unix_secs(at.unix_secs().saturating_sub(seconds))
}

/// An invalid accounting message.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, thiserror::Error)]
pub enum AccountingRecordError {
    /// The kind is missing.
    #[error("Acct-Status-Type is missing")]
    NoStatus,
    /// The kind is not recorded, such as the start of a tunnel or link (RFC 2867).
    #[error("Acct-Status-Type {0} is not supported")]
    UnknownStatus(u32),
    /// The session is missing.
    #[error("Acct-Session-Id is missing")]
    NoSession,
    /// A value does not have the type of its attribute.
    #[error("attribute {0} has an invalid value")]
    BadValue(u8),
}
