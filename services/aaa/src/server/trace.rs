//! Traces of users and stations: each decision as a line for people. Without a trace they cost a comparison per
//! request.
//!
//! Several traces run at one time, each with its own filter. The inner name of a tunnel is known late. So while a
//! trace of a user runs, lines of logins that may match are kept within bounds, and written to the trace once the
//! name matches.

use super::api::{LoginTraceFilter, TraceLine};
use crate::users::{canonical_name, mac_address};
use alloc::collections::{BTreeMap, VecDeque};
use alloc::format;
use alloc::string::{String, ToString};
use alloc::sync::Arc;
use alloc::vec::Vec;
use usher_core::Instant;
use usher_eap::packet::{EapCode, EapPacket};
use usher_radius::attribute::{AttributeList, kind, vendor};
use usher_radius::dictionary::{AttributeEncryption, AttributeOid, RadiusDictionary};

/// Maximum number of traces.
pub const TRACES: usize = 8;

/// Maximum octets of kept lines, of one login and of all.
const OF_ONE: usize = 64 << 10;
const OF_ALL: usize = 4 << 20;
/// Octets of a line besides its text.
const LINE: usize = size_of::<TraceLine>();

/// A set of traces: a bit for each slot.
pub(super) type LoginTraceSlots = u8;

/// The running traces, and a dictionary for attribute names.
#[derive(Debug, Default)]
pub(super) struct LoginTraceTable {
    filters: [Option<LoginTraceFilter>; TRACES],
    /// Slots in use.
    on: LoginTraceSlots,
    /// The server's dictionary, or one created with the first trace.
    dictionary: Option<Arc<RadiusDictionary>>,
    retained_lines: RetainedTraceLines,
}

impl LoginTraceTable {
    /// True if any trace runs.
    pub(super) const fn is_active(&self) -> bool {
        self.on != 0
    }
    /// Starts or ends a trace. False if the slot is invalid.
    pub(super) fn set_filter(
        &mut self,
        slot: u8,
        filter: Option<LoginTraceFilter>,
        dictionary: Option<&Arc<RadiusDictionary>>,
    ) -> bool {
        let Some(place) = self.filters.get_mut(usize::from(slot)) else { return false };
        self.on &= !(1 << slot);
        self.on |= u8::from(filter.is_some()) << slot;
        *place = filter;
        if self.is_active() {
            let standard = || Arc::new(RadiusDictionary::standard());
            self.dictionary = Some(dictionary.cloned().unwrap_or_else(standard));
        } else {
            *self = Self::default();
        }
        true
    }
    fn matching_slots(&self, wanted: impl Fn(&LoginTraceFilter) -> bool) -> LoginTraceSlots {
        let mut slots = 0;
        for (slot, filter) in self.filters.iter().enumerate() {
            slots |= LoginTraceSlots::from(filter.as_ref().is_some_and(&wanted)) << slot;
        }
        slots
    }
    /// Returns the traces of a request's user or station.
    pub(super) fn slots_for_request(&self, request: &AttributeList) -> LoginTraceSlots {
        if !self.is_active() {
            return 0;
        }
        self.matching_slots(|filter| match filter {
            LoginTraceFilter::All => true,
            LoginTraceFilter::User(name) => {
                request.get(kind::USER_NAME).is_some_and(|seen| is_same_name(seen, name))
            }
            LoginTraceFilter::Station(wanted) => request.get(kind::CALLING_STATION_ID).is_some_and(|seen| {
                let address = mac_address(wanted);
                seen == &wanted[..] || address.is_some() && mac_address(seen) == address
            }),
        })
    }
    /// Returns the traces of users.
    pub(super) fn user_trace_slots(&self) -> LoginTraceSlots {
        if self.is_active() {
            self.matching_slots(|filter| matches!(filter, LoginTraceFilter::User(_)))
        } else {
            0
        }
    }
    /// Returns the traces of the user with this name.
    pub(super) fn of_user(&self, seen: &[u8]) -> LoginTraceSlots {
        self.matching_slots(
            |filter| matches!(filter, LoginTraceFilter::User(name) if is_same_name(seen, name)),
        )
    }
    /// Keeps a line of a login that may match later.
    pub(super) fn retain_line(&mut self, line: TraceLine) {
        self.retained_lines.push(line);
    }
    /// Removes and returns the kept lines of a login, for traces that match now.
    pub(super) fn take_lines(&mut self, now: Instant, session: u64, to: LoginTraceSlots) -> Vec<TraceLine> {
        let Some(kept) = self.retained_lines.take_login_trace(session).filter(|_| to != 0) else {
            return Vec::new();
        };
        let mut lines = kept.lines;
        for line in &mut lines {
            line.to = to;
        }
        if kept.lost > 0 {
            let text = format!("({} lines before this were not kept)", kept.lost);
            lines.push(TraceLine { to, ..TraceLine::new(now, session, text) });
        }
        lines
    }
    /// Drops the lines of a login that has ended or does not match.
    pub(super) fn drop_lines(&mut self, session: u64) {
        if self.is_active() {
            self.retained_lines.take_login_trace(session);
        }
    }
    /// Formats attributes by name. Values of proofs and secrets are omitted.
    pub(super) fn describe_attributes(&self, list: &AttributeList) -> Vec<String> {
        let Some(dictionary) = &self.dictionary else { return Vec::new() };
        let mut lines = Vec::new();
        for attribute in dictionary.decode(list.as_bytes()) {
            if attribute.oid == AttributeOid::from_standard_attribute(kind::EAP_MESSAGE)
                || attribute.oid == AttributeOid::from_standard_attribute(kind::MESSAGE_AUTHENTICATOR)
            {
                continue;
            }
            let hidden = attribute.definition.is_some_and(|d| d.encryption != AttributeEncryption::None);
            lines.push(if is_shown_in_trace(attribute.oid) && !hidden {
                format!("  {attribute}")
            } else {
                let name =
                    attribute.definition.map_or_else(|| attribute.oid.to_string(), |d| d.name.to_string());
                format!("  {name} = (not shown)")
            });
        }
        lines
    }
}

fn is_same_name(seen: &[u8], wanted: &[u8]) -> bool {
    canonical_name(seen) == canonical_name(wanted)
}

/// Kept lines by login.
#[derive(Debug, Default)]
struct RetainedTraceLines {
    sessions: BTreeMap<u64, LoginTraceBuffer>,
    /// Logins by age. Some may have ended.
    order: VecDeque<u64>,
    octets: usize,
}

#[derive(Debug, Default)]
struct LoginTraceBuffer {
    lines: Vec<TraceLine>,
    octets: usize,
    /// Number of lines that were dropped.
    lost: usize,
}

impl RetainedTraceLines {
    fn push(&mut self, line: TraceLine) {
        let cost = LINE + line.text.len();
        let session = line.session;
        let lines = self.sessions.entry(session).or_insert_with(|| {
            self.order.push_back(session);
            LoginTraceBuffer::default()
        });
        if lines.octets + cost > OF_ONE {
            lines.lost += 1;
            return;
        }
        lines.octets += cost;
        lines.lines.push(line);
        self.octets += cost;
        // An entry in `order` takes memory too. It is counted, so that many logins with few lines are bounded as well.
        while self.octets + self.order.len() * LINE > OF_ALL
            && let Some(oldest) = self.order.pop_front()
        {
            self.take_login_trace(oldest);
        }
    }
    fn take_login_trace(&mut self, session: u64) -> Option<LoginTraceBuffer> {
        let lines = self.sessions.remove(&session)?;
        self.octets -= lines.octets;
        if self.sessions.is_empty() {
            self.order.clear();
        }
        Some(lines)
    }
}

fn is_shown_in_trace(oid: AttributeOid) -> bool {
    const PROOFS: [u8; 4] =
        [kind::USER_PASSWORD, kind::CHAP_PASSWORD, kind::CHAP_CHALLENGE, kind::TUNNEL_PASSWORD];
    match *oid.parts() {
        [number] => !PROOFS.iter().any(|p| u32::from(*p) == number),
        [26, vendor::MICROSOFT, _] => false,
        _ => true,
    }
}

/// Describes an EAP packet in a few words.
pub(super) fn describe_eap(packet: &[u8]) -> String {
    let Ok(p) = EapPacket::parse(packet) else { return "not an EAP packet".into() };
    let code = match p.code() {
        EapCode::Request => "EAP-Request",
        EapCode::Response => "EAP-Response",
        EapCode::Success => "EAP-Success",
        EapCode::Failure => "EAP-Failure",
    };
    match p.kind() {
        Some(kind) => format!("{code} {kind}, identifier {}, {} octets", p.identifier(), packet.len()),
        None => format!("{code}, identifier {}", p.identifier()),
    }
}

/// Quotes a name for people.
pub(super) fn quote_name(octets: &[u8]) -> String {
    format!("\"{}\"", octets.escape_ascii())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn test_line(session: u64, text: String) -> TraceLine {
        TraceLine::new(Instant::ZERO, session, text)
    }

    #[test]
    fn what_is_kept_of_logins_that_nobody_looks_for_has_a_bound() {
        let mut tracers = LoginTraceTable::default();
        assert!(tracers.set_filter(3, Some(LoginTraceFilter::User(b"ann".to_vec())), None));
        // Unlimited lines of one login, and unlimited logins.
        for n in 0..10_000 {
            tracers.retain_line(test_line(1, format!("line {n}")));
        }
        assert!(tracers.retained_lines.octets <= OF_ONE);
        for session in 2..200_000 {
            tracers.retain_line(test_line(session, "one line".into()));
            assert!(tracers.retained_lines.octets + tracers.retained_lines.order.len() * LINE <= OF_ALL);
        }
        assert!(tracers.retained_lines.sessions.len() > 10_000);
        let last = tracers.take_lines(Instant::ZERO, 199_999, 8);
        assert_eq!((last.len(), last[0].to, &*last[0].text), (1, 8, "one line"));
        assert!(tracers.take_lines(Instant::ZERO, 1, 8).is_empty(), "the oldest went first");
        assert!(tracers.set_filter(3, None, None));
        assert_eq!((tracers.retained_lines.octets, tracers.retained_lines.order.len()), (0, 0));
    }

    #[test]
    fn who_finds_a_user_late_is_told_how_much_is_missing() {
        let mut tracers = LoginTraceTable::default();
        tracers.set_filter(0, Some(LoginTraceFilter::User(b"ann".to_vec())), None);
        for n in 0..10_000 {
            tracers.retain_line(test_line(1, format!("line {n}")));
        }
        let told = tracers.take_lines(Instant::ZERO, 1, 1);
        assert_eq!(told[0].text, "line 0");
        let lost = 10_000 - (told.len() - 1);
        assert_eq!(told.last().unwrap().text, format!("({lost} lines before this were not kept)"));
        assert!(tracers.take_lines(Instant::ZERO, 1, 1).is_empty(), "once");
    }

    #[test]
    fn each_trace_has_its_filter() {
        let mut tracers = LoginTraceTable::default();
        let mut request = AttributeList::new();
        request.push_bytes(kind::USER_NAME, b"00-11-22-aa-bb-cc").unwrap();
        request.push_bytes(kind::CALLING_STATION_ID, b"0011.22aa.bbcc").unwrap();
        assert_eq!(tracers.slots_for_request(&request), 0);
        for (slot, filter) in [
            (0, LoginTraceFilter::User(b"ann".to_vec())),
            (1, LoginTraceFilter::All),
            (2, LoginTraceFilter::Station(b"00:11:22:AA:BB:CC".to_vec())),
            (7, LoginTraceFilter::User(b"001122aabbcc".to_vec())),
        ] {
            assert!(tracers.set_filter(slot, Some(filter), None));
        }
        assert!(!tracers.set_filter(8, Some(LoginTraceFilter::All), None));
        assert_eq!(tracers.slots_for_request(&request), 0b1000_0110);
        assert_eq!((tracers.user_trace_slots(), tracers.of_user(b"ann")), (0b1000_0001, 1));
        for slot in [0, 1, 2, 7] {
            tracers.set_filter(slot, None, None);
        }
        assert!(!tracers.is_active() && tracers.dictionary.is_none());
    }
}
