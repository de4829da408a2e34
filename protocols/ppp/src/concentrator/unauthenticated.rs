//! The sessions whose hosts are not authenticated yet, by access line. A line's hosts do not evict those of another
//! line with fewer sessions.

use super::PppoeSessionId;
use alloc::collections::{BTreeMap, BTreeSet};
use usher_core::LinkLayerPortId;
use usher_crypto::digest::md5;

/// An access line: a port, and the digest of the circuit at it if a trusted switch names it (RFC 4679).
pub(super) type AccessLine = (LinkLayerPortId, Option<[u8; 16]>);

/// Returns the line of a circuit.
pub(super) fn circuit_line(port: LinkLayerPortId, circuit: Option<&[u8]>) -> AccessLine {
    (port, circuit.map(|circuit| md5(&[circuit])))
}

/// The sessions whose hosts are not authenticated yet, by SESSION_ID.
#[derive(Debug, Default)]
pub(super) struct UnauthenticatedSessions {
    /// The sessions of each line, in the order in which they began.
    lines: BTreeMap<AccessLine, BTreeMap<PppoeSessionId, u16>>,
    /// The number of sessions of each line.
    sizes: BTreeSet<(usize, AccessLine)>,
    all: usize,
}

impl UnauthenticatedSessions {
    pub(super) const fn len(&self) -> usize {
        self.all
    }
    /// Returns the number of sessions of a line.
    fn session_count(&self, line: AccessLine) -> usize {
        self.lines.get(&line).map_or(0, BTreeMap::len)
    }
    pub(super) fn insert(&mut self, line: AccessLine, name: PppoeSessionId, id: u16) {
        let of = self.lines.entry(line).or_default();
        let before = of.len();
        if of.insert(name, id).is_none() {
            self.sizes.remove(&(before, line));
            self.sizes.insert((before + 1, line));
            self.all += 1;
        }
    }
    pub(super) fn remove(&mut self, line: AccessLine, name: PppoeSessionId) {
        let Some(of) = self.lines.get_mut(&line) else { return };
        let before = of.len();
        if of.remove(&name).is_none() {
            return;
        }
        self.all -= 1;
        self.sizes.remove(&(before, line));
        if of.is_empty() {
            self.lines.remove(&line);
        } else {
            self.sizes.insert((before - 1, line));
        }
    }
    /// Returns the session to evict for a new session of `line` when the table is full.
    ///
    /// If another line has at least two sessions more than `line`, the largest line yields one, otherwise `line`
    /// itself. The candidate is the oldest session that has not been `heard`. Sessions that were heard yield only in
    /// the largest line, so that hosts that arrive together do not evict one another during setup.
    pub(super) fn eviction_candidate(&self, line: AccessLine, heard: impl Fn(u16) -> bool) -> Option<u16> {
        let &(most, largest) = self.sizes.last()?;
        let fair = self.session_count(line) + 1 < most;
        let from = if fair { largest } else { line };
        let of = self.lines.get(&from)?;
        let unheard = of.values().copied().find(|id| !heard(*id));
        unheard.or_else(|| of.values().copied().next().filter(|_| fair))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn port_line(port: u32) -> AccessLine {
        circuit_line(LinkLayerPortId(port), None)
    }

    #[test]
    fn room_is_made_by_the_line_that_has_the_most() {
        let mut outside = UnauthenticatedSessions::default();
        for n in 0..4_u16 {
            outside.insert(port_line(1), PppoeSessionId(n.into()), 100 + n);
        }
        outside.insert(port_line(2), PppoeSessionId(9), 200);
        assert_eq!(
            (outside.len(), outside.session_count(port_line(1)), outside.session_count(port_line(3))),
            (5, 4, 0)
        );
        assert_eq!(
            outside.eviction_candidate(port_line(3), |_| true),
            Some(100),
            "who has none goes before who has many"
        );
        assert_eq!(
            outside.eviction_candidate(port_line(3), |id| id == 100),
            Some(101),
            "the oldest that was not heard"
        );
        assert_eq!(
            outside.eviction_candidate(port_line(1), |_| true),
            None,
            "of one line nobody who is heard is thrown out"
        );
        assert_eq!(outside.eviction_candidate(port_line(1), |id| id < 102), Some(102));
        outside.remove(port_line(1), PppoeSessionId(2));
        outside.remove(port_line(1), PppoeSessionId(7));
        outside.remove(port_line(2), PppoeSessionId(9));
        assert_eq!((outside.len(), outside.session_count(port_line(2))), (3, 0));
        for n in [0, 1, 3] {
            outside.remove(port_line(1), PppoeSessionId(n));
        }
        assert_eq!((outside.len(), outside.eviction_candidate(port_line(1), |_| false)), (0, None));
        assert!(outside.sizes.is_empty() && outside.lines.is_empty());
    }
}
