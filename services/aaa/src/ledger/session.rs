//! A session in compact form.

use super::names::{self, UNKNOWN};
use super::record::{LONGEST_ORIGIN, LedgerRecord, UniqueSessionId, subtract_seconds};
use super::shares::UNKNOWN_CLIENT;
use crate::store::SessionRow;
use crate::users::{canonical_user_name, is_same_station_id};
use alloc::boxed::Box;
use alloc::format;
use alloc::string::{String, ToString};
use core::fmt::Write;
use core::net::{IpAddr, Ipv6Addr};
use usher_core::WallTime;

/// Identifies a session in memory: the part of the digest that all generations of its Acct-Session-Id share.
pub(super) type SessionDigest = [u8; 14];

impl UniqueSessionId {
    pub(super) fn session_digest(&self) -> SessionDigest {
        let mut key = [0; 14];
        key.copy_from_slice(&self.digest[..14]);
        key
    }
    /// Returns the next generation. The last one is reused.
    pub(super) fn next_generation(self) -> Self {
        Self { generation: (self.generation + 1).min(999), ..self }
    }
}

/// The state of a session.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum SessionState {
    /// Open.
    Open,
    /// Ended by its NAS, with this Acct-Terminate-Cause.
    Stopped(u32),
    /// Ended by a restart of its NAS.
    Restarted,
    /// Ended by a shutdown of its NAS.
    NasDown,
    /// Ended for lack of records.
    Stale,
    /// Ended by an operator, since its NAS cannot.
    Forgotten,
}

/// Value of column acctterminatecause if the ledger ended a session.
const STALE: &str = "Stale-Session";
pub(super) const NAS_REBOOT: &str = "NAS-Reboot";
pub(super) const ADMIN_REBOOT: &str = "Admin-Reboot";
const ADMIN_RESET: &str = "Admin-Reset";

impl SessionState {
    /// True if the session's own NAS ended it.
    pub(super) const fn is_stopped(self) -> bool {
        matches!(self, Self::Stopped(_))
    }
    fn cause_name(self) -> String {
        match self {
            Self::Open => String::new(),
            Self::Stopped(cause) => names::enum_name_or_decimal(names::TERMINATE_CAUSE, cause),
            Self::Restarted => NAS_REBOOT.into(),
            Self::NasDown => ADMIN_REBOOT.into(),
            Self::Stale => STALE.into(),
            Self::Forgotten => ADMIN_RESET.into(),
        }
    }
    /// Reads a row's state. A row has only the cause. If a NAS sent one of the ledger's own causes, its Stop counts
    /// the same.
    pub(super) fn of_row(row: &SessionRow) -> Self {
        match (row.acctstoptime, row.acctterminatecause.as_str()) {
            (None, _) => Self::Open,
            (_, NAS_REBOOT) => Self::Restarted,
            (_, ADMIN_REBOOT) => Self::NasDown,
            (_, STALE) => Self::Stale,
            (_, ADMIN_RESET) => Self::Forgotten,
            (_, cause) => Self::Stopped(names::parse_enum_name_or_number(names::TERMINATE_CAUSE, cause)),
        }
    }
}

/// Five texts in one allocation.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct PackedTexts {
    all: Box<str>,
    ends: [u16; 4],
}

impl PackedTexts {
    fn new(texts: [&str; 5]) -> Self {
        let mut all = String::with_capacity(texts.iter().map(|t| t.len()).sum());
        let mut ends = [0; 4];
        for (i, text) in texts.into_iter().enumerate() {
            // The last text consists of several parts, which were truncated before.
            all.push_str(if i == 4 { text } else { truncate_text(text) });
            if let Some(end) = ends.get_mut(i) {
                *end = all.len() as u16;
            }
        }
        Self { all: all.into(), ends }
    }
    fn get(&self, i: usize) -> &str {
        let from = if i == 0 { 0 } else { usize::from(self.ends[i - 1]) };
        let to = self.ends.get(i).map_or(self.all.len(), |e| usize::from(*e));
        self.all.get(from..to).unwrap_or_default()
    }
}

/// Truncates a text. Attributes have at most 253 octets, each of which becomes at most four.
fn truncate_text(text: &str) -> &str {
    &text[..text.floor_char_boundary(4 * 253)]
}

/// Joins the parts of the last text of [`PackedTexts`], a line each. The last line is missing for RADIUS.
fn join_last_packed_text(calling: &str, class: &str, origin: &str) -> String {
    let origin = &origin[..origin.floor_char_boundary(LONGEST_ORIGIN)];
    let between = if origin.is_empty() { "" } else { "\n" };
    // Other programs write to this table, so a text may contain line feeds. Only its first line is used.
    let line = |text| truncate_text(text).split('\n').next().unwrap_or_default();
    format!("{}\n{}{between}{origin}", line(calling), line(class))
}

/// Flag in the identifier of a Diameter session.
pub(super) const BY_DIAMETER: u32 = 1 << 31;

/// A session, open or ended.
#[derive(Clone, Debug)]
pub(super) struct LedgerSession {
    texts: PackedTexts,
    pub(super) start: WallTime,
    /// Time of its last record, or its end.
    pub(super) last: WallTime,
    pub(super) input: u64,
    pub(super) output: u64,
    /// Number of the change that makes it durable. 0: it is durable.
    pub(super) wait: u64,
    pub(super) end_state: SessionState,
    pub(super) seconds: u32,
    pub(super) interims: u32,
    port_type: u32,
    service_type: u32,
    framed_protocol: u32,
    authentic: u32,
    /// Seconds by which the clock of `start` is ahead ([`LedgerRecord::ahead`]). 0 also if unknown.
    pub(super) ahead: i32,
    /// Digest of its NAS-Identifier, or of its Diameter origin. 0: none, or unknown.
    identifier: u32,
    /// Number of queued writes or writes under way.
    pub(super) pending: u16,
    pub(super) unique: UniqueSessionId,
    /// Number of the client that reports it.
    pub(super) client: u32,
    pub(super) nas: IpAddr,
    pub(super) address: Option<IpAddr>,
    pub(super) prefix: Option<(Ipv6Addr, u8)>,
    /// True if its Start was received.
    pub(super) started: bool,
    /// True if the write of `wait` is still queued.
    pub(super) queued: bool,
}

impl LedgerSession {
    /// Creates a session from its first record, with the digest of its NAS-Identifier.
    pub(super) fn new(unique: UniqueSessionId, record: &LedgerRecord, identifier: u32) -> Self {
        let class = encode_hex(&record.class);
        let texts = [
            record.session.id.as_str(),
            &record.session.user,
            &record.port,
            &record.called_station_id,
            &join_last_packed_text(&record.calling_station_id, &class, &record.diameter_origin),
        ];
        let mut session = Self {
            texts: PackedTexts::new(texts),
            start: subtract_seconds(record.occurred_at, record.session_time.unwrap_or(0)),
            last: record.occurred_at,
            input: 0,
            output: 0,
            wait: 0,
            end_state: SessionState::Open,
            seconds: 0,
            interims: 0,
            port_type: record.port_type.unwrap_or(UNKNOWN),
            service_type: record.service_type.unwrap_or(UNKNOWN),
            framed_protocol: record.framed_protocol.unwrap_or(UNKNOWN),
            authentic: record.authentic.unwrap_or(UNKNOWN),
            ahead: record.ahead,
            identifier,
            pending: 0,
            unique,
            client: UNKNOWN_CLIENT,
            nas: record.session.nas,
            address: None,
            prefix: None,
            started: false,
            queued: false,
        };
        session.merge_record_counters(record);
        session
    }
    /// Updates the counters, which are totals since the start. A smaller value is an error of the NAS or from an
    /// older record, and is ignored.
    pub(super) fn merge_record_counters(&mut self, record: &LedgerRecord) {
        let seconds = record.session_time.map_or(0, |t| t.min(u32::MAX.into()) as u32);
        self.seconds = self.seconds.max(seconds);
        self.input = self.input.max(record.input_octets.unwrap_or(0));
        self.output = self.output.max(record.output_octets.unwrap_or(0));
        self.last = self.last.max(record.occurred_at);
    }
    /// True if a record of the same NAS and Acct-Session-Id may belong to this session. One of the two may lack a
    /// part, or have the name in other case. `identifier` is the digest of the record's NAS-Identifier.
    ///
    /// Diameter's Session-Id alone is unique (RFC 6733 §8.8), but any peer can write it. So the origin must match
    /// too.
    pub(super) fn may_match_record(&self, record: &LedgerRecord, identifier: u32) -> bool {
        if !record.diameter_origin.is_empty() {
            return self.identifier == identifier;
        }
        if self.is_diameter_session() {
            return false;
        }
        let (a, b) = (self.user(), record.session.user.as_str());
        let user = a.is_empty()
            || b.is_empty()
            || canonical_user_name(a).eq_ignore_ascii_case(&canonical_user_name(b));
        let (a, b) = (self.port(), record.port.as_str());
        let port = a.is_empty() || b.is_empty() || a == b;
        let (a, b) = (self.calling_station(), record.calling_station_id.as_str());
        let station = a.is_empty() || b.is_empty() || is_same_station_id(a, b);
        user && port && station && self.may_match_nas_identifier(identifier)
    }
    /// True if it may be a session of the NAS with this digest of a NAS-Identifier, as far as both are known.
    pub(super) const fn may_match_nas_identifier(&self, identifier: u32) -> bool {
        self.identifier == 0 || identifier == 0 || self.identifier == identifier
    }
    /// True if it is a Diameter session, as far as known. Sessions written by version 0.2.0 or earlier show it at
    /// their next record.
    pub(super) const fn is_diameter_session(&self) -> bool {
        self.identifier & BY_DIAMETER != 0
    }
    /// Sets the reporting NAS if it was unknown, as for a session of an earlier ledger. `identifier` as in
    /// [`Self::may_match_record`].
    pub(super) fn update_origin_digest(&mut self, record: &LedgerRecord, identifier: u32) {
        if self.identifier == 0 || !record.diameter_origin.is_empty() {
            self.identifier = identifier;
        }
    }
    /// Sets the user name.
    pub(super) fn set_user(&mut self, user: &str) {
        self.texts =
            PackedTexts::new([self.id(), user, self.port(), self.called_station(), self.texts.get(4)]);
    }
    /// Updates everything but the counters.
    pub(super) fn update_details(&mut self, record: &LedgerRecord) {
        let newer = |new: &str, old: &str| -> String { if new.is_empty() { old.into() } else { new.into() } };
        let class = if record.class.is_empty() { self.class().into() } else { encode_hex(&record.class) };
        let calling = newer(&record.calling_station_id, self.calling_station());
        let origin = match record.diameter_origin.as_str() {
            "" => self.diameter_origin(),
            origin => origin,
        };
        let texts = [
            self.id(),
            self.user(),
            &newer(&record.port, self.port()),
            &newer(&record.called_station_id, self.called_station()),
            &join_last_packed_text(&calling, &class, origin),
        ];
        let texts = PackedTexts::new(texts);
        if texts != self.texts {
            self.texts = texts;
        }
        self.port_type = record.port_type.unwrap_or(self.port_type);
        self.service_type = record.service_type.unwrap_or(self.service_type);
        self.framed_protocol = record.framed_protocol.unwrap_or(self.framed_protocol);
        self.authentic = record.authentic.unwrap_or(self.authentic);
    }
    /// Ends the session. Its length is `seconds` or the elapsed time, but never less than before.
    pub(super) fn mark_ended(&mut self, at: WallTime, ending: SessionState, seconds: Option<u64>) {
        let passed = at.unix_secs().saturating_sub(self.start.unix_secs());
        self.seconds = self.seconds.max(seconds.unwrap_or(passed).min(u32::MAX.into()) as u32);
        self.last = at;
        self.end_state = ending;
    }

    pub(super) fn id(&self) -> &str {
        self.texts.get(0)
    }
    pub(super) fn user(&self) -> &str {
        self.texts.get(1)
    }
    pub(super) fn port(&self) -> &str {
        self.texts.get(2)
    }
    fn called_station(&self) -> &str {
        self.texts.get(3)
    }
    pub(super) fn calling_station(&self) -> &str {
        self.last_packed_text_line(0)
    }
    fn class(&self) -> &str {
        self.last_packed_text_line(1)
    }
    fn diameter_origin(&self) -> &str {
        self.last_packed_text_line(2)
    }
    fn last_packed_text_line(&self, n: usize) -> &str {
        self.texts.get(4).split('\n').nth(n).unwrap_or_default()
    }

    /// Returns its row for the store.
    pub(super) fn to_row(&self) -> SessionRow {
        SessionRow {
            acctsessionid: self.id().into(),
            acctuniqueid: self.unique.to_string(),
            username: self.user().into(),
            realm: self.user().rsplit_once('@').map_or_else(String::new, |(_, realm)| realm.into()),
            nasipaddress: self.nas,
            nasportid: self.port().into(),
            nasporttype: names::enum_name_or_decimal(names::PORT_TYPE, self.port_type),
            acctstarttime: Some(self.start),
            acctupdatetime: Some(self.last),
            acctstoptime: (self.end_state != SessionState::Open).then_some(self.last),
            acctsessiontime: self.seconds.into(),
            acctauthentic: names::enum_name_or_decimal(names::AUTHENTIC, self.authentic),
            acctinputoctets: self.input,
            acctoutputoctets: self.output,
            calledstationid: self.called_station().into(),
            callingstationid: self.calling_station().into(),
            acctterminatecause: self.end_state.cause_name(),
            servicetype: names::enum_name_or_decimal(names::SERVICE_TYPE, self.service_type),
            framedprotocol: names::enum_name_or_decimal(names::FRAMED_PROTOCOL, self.framed_protocol),
            framedipaddress: self.address,
            framedipv6prefix: self
                .prefix
                .map_or_else(String::new, |(prefix, length)| format!("{prefix}/{length}")),
            class: self.class().into(),
            interims: self.interims,
            diameter_origin: self.diameter_origin().into(),
        }
    }
    /// Reads a row as an open session. `None`: its acctuniqueid is invalid. `identifier` is the digest of its
    /// Diameter origin.
    pub(super) fn of_row(row: &SessionRow, identifier: u32) -> Option<Self> {
        let last = row.acctupdatetime.or(row.acctstarttime).unwrap_or(WallTime::from_unix_secs(0));
        let texts = [
            row.acctsessionid.as_str(),
            &row.username,
            &row.nasportid,
            &row.calledstationid,
            &join_last_packed_text(&row.callingstationid, &row.class, &row.diameter_origin),
        ];
        Some(Self {
            texts: PackedTexts::new(texts),
            start: row.acctstarttime.unwrap_or(last),
            last,
            input: row.acctinputoctets,
            output: row.acctoutputoctets,
            wait: 0,
            end_state: SessionState::Open,
            seconds: row.acctsessiontime.min(u32::MAX.into()) as u32,
            interims: row.interims,
            port_type: names::parse_enum_name_or_number(names::PORT_TYPE, &row.nasporttype),
            service_type: names::parse_enum_name_or_number(names::SERVICE_TYPE, &row.servicetype),
            framed_protocol: names::parse_enum_name_or_number(names::FRAMED_PROTOCOL, &row.framedprotocol),
            authentic: names::parse_enum_name_or_number(names::AUTHENTIC, &row.acctauthentic),
            ahead: 0,
            identifier,
            pending: 0,
            unique: UniqueSessionId::parse(&row.acctuniqueid)?,
            client: UNKNOWN_CLIENT,
            nas: row.nasipaddress,
            address: row.framedipaddress,
            prefix: row
                .framedipv6prefix
                .split_once('/')
                .and_then(|(prefix, length)| Some((prefix.parse().ok()?, length.parse().ok()?))),
            started: true,
            queued: false,
        })
    }
}

fn encode_hex(octets: &[u8]) -> String {
    let mut out = String::with_capacity(2 * octets.len());
    for b in octets {
        // Writing to a String does not fail.
        let _ = write!(out, "{b:02x}");
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_keep_their_bounds() {
        let texts = PackedTexts::new(["a", "", "bcd", "é", "z\nff"]);
        let all: alloc::vec::Vec<_> = (0..5).map(|i| texts.get(i)).collect();
        assert_eq!(all, ["a", "", "bcd", "é", "z\nff"]);
        let long = format!("{}é", "a".repeat(4 * 253 - 1));
        assert_eq!(truncate_text(&long), &long[..4 * 253 - 1]);
        assert_eq!(join_last_packed_text("z", "ff", ""), "z\nff");
        assert_eq!(join_last_packed_text("z\nx", "ff", "nas"), "z\nff\nnas");
        let last = join_last_packed_text(&long, &long, &long.repeat(2));
        assert_eq!(last.split('\n').map(str::len).collect::<alloc::vec::Vec<_>>(), [1011, 1011, 1024]);
    }

    #[test]
    fn a_session_is_small() {
        assert!(size_of::<LedgerSession>() <= 200, "{}", size_of::<LedgerSession>());
    }
}
