//! Recognizes the frames of installed sessions, which have a queue quota of their own toward the machine. A flood of
//! discovery frames, or of control frames with unknown SESSION_IDs, then drops no Echo-Reply of a session.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use usher_concentrator::SessionEntry;
use usher_core::LinkLayerPortId;
use usher_ppp::pppoe::{MacAddress, PppoeFrame, PppoeStage};
use usher_service::FrameKind;

/// The frames per second and session that use this quota. Further frames share the quota of all others.
const OF_A_SESSION: u32 = 32;
const SECOND: Duration = Duration::from_secs(1);

#[derive(Debug)]
struct CarriedSession {
    port: LinkLayerPortId,
    station: MacAddress,
    since: Instant,
    frames: u32,
}

/// The installed sessions by SESSION_ID, with their hosts.
#[derive(Clone, Debug, Default)]
pub(super) struct InstalledSessionMap(Arc<Mutex<BTreeMap<u16, CarriedSession>>>);

impl InstalledSessionMap {
    fn lock_sessions(&self) -> MutexGuard<'_, BTreeMap<u16, CarriedSession>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
    pub(super) fn insert(&self, entry: &SessionEntry) {
        let place =
            CarriedSession { port: entry.port, station: entry.peer, since: Instant::now(), frames: 0 };
        self.lock_sessions().insert(entry.number, place);
    }
    pub(super) fn remove(&self, number: u16) {
        self.lock_sessions().remove(&number);
    }
    /// Returns the quota of a frame.
    pub(super) fn frame_quota_kind(&self, port: LinkLayerPortId, frame: &[u8], now: Instant) -> FrameKind {
        let Ok(frame) = PppoeFrame::parse(frame) else { return FrameKind::Other };
        if frame.stage != PppoeStage::Session {
            return FrameKind::Other;
        }
        let mut all = self.lock_sessions();
        let of = all.get_mut(&frame.session);
        let Some(place) = of.filter(|of| (of.port, of.station) == (port, frame.source)) else {
            return FrameKind::Other;
        };
        if now.saturating_duration_since(place.since) >= SECOND {
            (place.since, place.frames) = (now, 0);
        }
        place.frames = place.frames.saturating_add(1);
        if place.frames <= OF_A_SESSION { FrameKind::Session } else { FrameKind::Other }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use usher_ppp::pppoe::PppoeCode;

    #[test]
    fn what_is_of_a_session_that_is_carried_has_room_of_its_own() {
        let station = |n| MacAddress([2, 0, 0, 0, 0, n]);
        let entry = SessionEntry {
            id: 1,
            number: 7,
            port: LinkLayerPortId(1),
            peer: station(1),
            mtu: 1492,
            ipv4: None,
            gateway: None,
            ipv6: Vec::new(),
            link_local: None,
            rate_up: None,
            rate_down: None,
            clamp_mss: true,
        };
        let known = InstalledSessionMap::default();
        known.insert(&entry);
        let now = Instant::now();
        let kind = |port, from, stage, session, at| {
            let mut octets = Vec::new();
            let destination = station(9);
            PppoeFrame {
                destination,
                source: station(from),
                stage,
                code: PppoeCode::SESSION,
                session,
                payload: &[0xc0, 0x21],
            }
            .emit(&mut octets);
            known.frame_quota_kind(LinkLayerPortId(port), &octets, at)
        };
        assert_eq!(kind(1, 1, PppoeStage::Session, 7, now), FrameKind::Session);
        for (port, from, stage, session) in [
            (0, 1, PppoeStage::Session, 7),
            (1, 2, PppoeStage::Session, 7),
            (1, 1, PppoeStage::Discovery, 7),
            (1, 1, PppoeStage::Session, 8),
        ] {
            assert_eq!(
                kind(port, from, stage, session, now),
                FrameKind::Other,
                "{port} {from} {stage:?} {session}"
            );
        }
        assert_eq!(known.frame_quota_kind(LinkLayerPortId(1), &[0; 5], now), FrameKind::Other);
        // A flooding host gets no more of the quota than others.
        let own = (0..100).filter(|_| kind(1, 1, PppoeStage::Session, 7, now) == FrameKind::Session).count();
        assert_eq!(own, OF_A_SESSION as usize - 1);
        assert_eq!(kind(1, 1, PppoeStage::Session, 7, now + SECOND), FrameKind::Session);
        known.remove(7);
        assert_eq!(kind(1, 1, PppoeStage::Session, 7, now + SECOND), FrameKind::Other);
    }
}
