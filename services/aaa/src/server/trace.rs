//! Traces of users and stations: each decision as a line for people. Without one it costs one comparison a request.
//!
//! Several look at one time, each with a filter of its own. Who is inside a tunnel is known late: while somebody looks for
//! a user, what is said of a login that may still turn out to be that user's is kept, within bounds, and told when the
//! name comes.

use super::api::{TraceFilter, TraceLine};
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

/// Most traces at one time.
pub const TRACES: usize = 8;

/// Octets of lines that are kept of one login, and of all.
const OF_ONE: usize = 64 << 10;
const OF_ALL: usize = 4 << 20;
/// What a line costs beside its text.
const LINE: usize = size_of::<TraceLine>();

/// Which traces: a bit for each number.
pub(super) type TraceSlots = u8;

/// What is traced, and the names to print attributes by.
#[derive(Debug, Default)]
pub(super) struct TraceTable {
    filters: [Option<TraceFilter>; TRACES],
    /// The numbers that are in use.
    on: TraceSlots,
    /// That of the server, or one made with the first trace.
    dictionary: Option<Arc<RadiusDictionary>>,
    retained_lines: RetainedLines,
}

impl TraceTable {
    /// Whether anybody looks.
    pub(super) const fn is_active(&self) -> bool {
        self.on != 0
    }
    /// Begins or ends the trace of a number; false where there is no such number.
    pub(super) fn set_filter(
        &mut self,
        slot: u8,
        filter: Option<TraceFilter>,
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
    fn matching_slots(&self, wanted: impl Fn(&TraceFilter) -> bool) -> TraceSlots {
        let mut slots = 0;
        for (slot, filter) in self.filters.iter().enumerate() {
            slots |= TraceSlots::from(filter.as_ref().is_some_and(&wanted)) << slot;
        }
        slots
    }
    /// Those who look for the user or the station of a request.
    pub(super) fn slots_for_request(&self, request: &AttributeList) -> TraceSlots {
        if !self.is_active() {
            return 0;
        }
        self.matching_slots(|filter| match filter {
            TraceFilter::All => true,
            TraceFilter::User(name) => {
                request.get(kind::USER_NAME).is_some_and(|seen| is_same_name(seen, name))
            }
            TraceFilter::Station(wanted) => request.get(kind::CALLING_STATION_ID).is_some_and(|seen| {
                let address = mac_address(wanted);
                seen == &wanted[..] || address.is_some() && mac_address(seen) == address
            }),
        })
    }
    /// Those who look for a user.
    pub(super) fn of_users(&self) -> TraceSlots {
        if self.is_active() {
            self.matching_slots(|filter| matches!(filter, TraceFilter::User(_)))
        } else {
            0
        }
    }
    /// Those who look for the user of this name.
    pub(super) fn of_user(&self, seen: &[u8]) -> TraceSlots {
        self.matching_slots(|filter| matches!(filter, TraceFilter::User(name) if is_same_name(seen, name)))
    }
    /// Keeps a line of a login whose user may turn out to be looked for.
    pub(super) fn retain_line(&mut self, line: TraceLine) {
        self.retained_lines.push(line);
    }
    /// What was kept of a login, for those who look for its user.
    pub(super) fn take_lines(&mut self, now: Instant, session: u64, to: TraceSlots) -> Vec<TraceLine> {
        let Some(kept) = self.retained_lines.take_login(session).filter(|_| to != 0) else {
            return Vec::new();
        };
        let mut lines = kept.lines;
        for line in &mut lines {
            line.to = to;
        }
        if kept.lost > 0 {
            let text = format!("({} lines before are not kept)", kept.lost);
            lines.push(TraceLine { to, ..TraceLine::new(now, session, text) });
        }
        lines
    }
    /// A login is over, or its user is nobody who is looked for.
    pub(super) fn drop_lines(&mut self, session: u64) {
        if self.is_active() {
            self.retained_lines.take_login(session);
        }
    }
    /// Each attribute by name. What proves or hides something is not shown.
    pub(super) fn describe_attributes(&self, list: &AttributeList) -> Vec<String> {
        let Some(dictionary) = &self.dictionary else { return Vec::new() };
        let mut lines = Vec::new();
        for attribute in dictionary.decode(list.as_bytes()) {
            if attribute.oid == AttributeOid::from_kind(kind::EAP_MESSAGE)
                || attribute.oid == AttributeOid::from_kind(kind::MESSAGE_AUTHENTICATOR)
            {
                continue;
            }
            let hidden = attribute.definition.is_some_and(|d| d.encryption != AttributeEncryption::None);
            lines.push(if is_shown(attribute.oid) && !hidden {
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

/// Lines that nobody has been told yet, by login.
#[derive(Debug, Default)]
struct RetainedLines {
    sessions: BTreeMap<u64, LoginLines>,
    /// Logins by age; some may be gone.
    order: VecDeque<u64>,
    octets: usize,
}

#[derive(Debug, Default)]
struct LoginLines {
    lines: Vec<TraceLine>,
    octets: usize,
    /// How many found no room.
    lost: usize,
}

impl RetainedLines {
    fn push(&mut self, line: TraceLine) {
        let cost = LINE + line.text.len();
        let session = line.session;
        let lines = self.sessions.entry(session).or_insert_with(|| {
            self.order.push_back(session);
            LoginLines::default()
        });
        if lines.octets + cost > OF_ONE {
            lines.lost += 1;
            return;
        }
        lines.octets += cost;
        lines.lines.push(line);
        self.octets += cost;
        // Each login in the order costs something, too: who begins many and says little has no more room.
        while self.octets + self.order.len() * LINE > OF_ALL
            && let Some(oldest) = self.order.pop_front()
        {
            self.take_login(oldest);
        }
    }
    fn take_login(&mut self, session: u64) -> Option<LoginLines> {
        let lines = self.sessions.remove(&session)?;
        self.octets -= lines.octets;
        if self.sessions.is_empty() {
            self.order.clear();
        }
        Some(lines)
    }
}

fn is_shown(oid: AttributeOid) -> bool {
    const PROOFS: [u8; 4] =
        [kind::USER_PASSWORD, kind::CHAP_PASSWORD, kind::CHAP_CHALLENGE, kind::TUNNEL_PASSWORD];
    match *oid.parts() {
        [number] => !PROOFS.iter().any(|p| u32::from(*p) == number),
        [26, vendor::MICROSOFT, _] => false,
        _ => true,
    }
}

/// An EAP packet in a few words.
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

/// A name for people.
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
        let mut tracers = TraceTable::default();
        assert!(tracers.set_filter(3, Some(TraceFilter::User(b"ann".to_vec())), None));
        // Endless lines of one login, and endless logins.
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
        let mut tracers = TraceTable::default();
        tracers.set_filter(0, Some(TraceFilter::User(b"ann".to_vec())), None);
        for n in 0..10_000 {
            tracers.retain_line(test_line(1, format!("line {n}")));
        }
        let told = tracers.take_lines(Instant::ZERO, 1, 1);
        assert_eq!(told[0].text, "line 0");
        let lost = 10_000 - (told.len() - 1);
        assert_eq!(told.last().unwrap().text, format!("({lost} lines before are not kept)"));
        assert!(tracers.take_lines(Instant::ZERO, 1, 1).is_empty(), "once");
    }

    #[test]
    fn each_trace_has_its_filter() {
        let mut tracers = TraceTable::default();
        let mut request = AttributeList::new();
        request.push_bytes(kind::USER_NAME, b"00-11-22-aa-bb-cc").unwrap();
        request.push_bytes(kind::CALLING_STATION_ID, b"0011.22aa.bbcc").unwrap();
        assert_eq!(tracers.slots_for_request(&request), 0);
        for (slot, filter) in [
            (0, TraceFilter::User(b"ann".to_vec())),
            (1, TraceFilter::All),
            (2, TraceFilter::Station(b"00:11:22:AA:BB:CC".to_vec())),
            (7, TraceFilter::User(b"001122aabbcc".to_vec())),
        ] {
            assert!(tracers.set_filter(slot, Some(filter), None));
        }
        assert!(!tracers.set_filter(8, Some(TraceFilter::All), None));
        assert_eq!(tracers.slots_for_request(&request), 0b1000_0110);
        assert_eq!((tracers.of_users(), tracers.of_user(b"ann")), (0b1000_0001, 1));
        for slot in [0, 1, 2, 7] {
            tracers.set_filter(slot, None, None);
        }
        assert!(!tracers.is_active() && tracers.dictionary.is_none());
    }
}
