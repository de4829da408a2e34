//! Entry points for fuzzers. Each returns false on a defect.

use crate::import::import_config;
use crate::track::{AddressSearch, SessionLogIndex, SessionLogRecord};
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Parses octets as lines of the session log. Each record is written again and must parse to the same, but for
/// fractions of a microsecond. A search for its addresses must not fail.
pub fn check_session_log_roundtrip(octets: &[u8]) -> bool {
    let Ok(text) = core::str::from_utf8(octets) else { return true };
    let mut index = SessionLogIndex::default();
    index.read_lines(text);
    let (mut records, mut last) = (0_u64, None);
    for line in text.lines() {
        let Ok(record) = SessionLogRecord::parse(line) else { continue };
        let again = SessionLogRecord::parse(&record.to_line());
        if again.as_ref().map(SessionLogRecord::to_line) != Ok(record.to_line()) {
            return false;
        }
        records += 1;
        last = Some(record);
    }
    let lines = text.lines().filter(|line| !line.trim().is_empty()).count() as u64;
    if index.unreadable_count() + records != lines {
        return false;
    }
    let Some(record) = last else { return true };
    let mut asked = [IpAddr::from(Ipv4Addr::LOCALHOST), IpAddr::from(Ipv6Addr::LOCALHOST)].to_vec();
    if let SessionLogRecord::Begin(begin) = &record {
        asked.extend(begin.ipv4.map(IpAddr::from));
        asked.extend(begin.ipv6.iter().map(|(prefix, _)| IpAddr::from(*prefix)));
    }
    // A search must find each session at most once.
    asked.into_iter().all(|address| {
        let mut search = AddressSearch::new(record.time(), [(address, Some(40_000))]);
        search.read_lines(text);
        search.unreadable_count() == index.unreadable_count()
            && search.holders().len() <= search.session_count()
            && search.session_count() as u64 <= records
            && search.log_volume().octets_per_subscriber_day().is_finite()
    }) && index.open_sessions().count() as u64 <= records
        && index.unacknowledged_stops().count() as u64 <= records
}

/// Imports octets as another concentrator's file. Each unsupported setting must name a valid line.
pub fn check_foreign_config_import(octets: &[u8]) -> bool {
    let Ok(text) = core::str::from_utf8(octets) else { return true };
    let made = import_config(text);
    let lines = text.lines().count();
    made.left.iter().all(|(line, what)| *line <= lines && !what.is_empty())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn whatever_octets_a_log_or_a_file_has_nothing_is_wrong(octets: Vec<u8>, text: String) {
            for octets in [&octets[..], text.as_bytes()] {
                prop_assert!(super::check_session_log_roundtrip(octets) && super::check_foreign_config_import(octets));
            }
        }
    }
}
