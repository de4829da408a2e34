//! The contents of a burst: whole packets or fragments, each in a PDU.

use super::config::Modulation;
use std::collections::VecDeque;

/// Generic MAC header and CRC.
pub(crate) const PDU: u32 = 6 + 4;
/// Fragmentation subheader.
pub(super) const FRAGMENT: u32 = 2;
/// Grant management subheader: a request on a burst.
pub(super) const GRANT_MANAGEMENT: u32 = 2;
/// Maximum octets of a PDU: its length has 11 bits.
const LONGEST: u32 = 2047;

/// Returns the minimum slots of a burst: one octet of a packet, with a request.
pub(super) const fn minimum_slots(modulation: Modulation) -> u32 {
    (PDU + FRAGMENT + GRANT_MANAGEMENT + 1).div_ceil(modulation.octets_per_slot())
}

#[derive(Clone, Copy, Debug)]
struct WimaxQueuedPacket {
    handle: u32,
    /// Octets not sent yet.
    left: u32,
    /// True if a part is sent.
    is_started: bool,
}

/// Packets of one station and direction, first in, first out.
#[derive(Debug, Default)]
pub(super) struct WimaxPacketQueue {
    packets: VecDeque<WimaxQueuedPacket>,
    /// Octets not sent yet, over all packets.
    left: u64,
}

impl WimaxPacketQueue {
    pub(super) fn len(&self) -> usize {
        self.packets.len()
    }
    pub(super) fn is_empty(&self) -> bool {
        self.packets.is_empty()
    }
    pub(super) fn push(&mut self, handle: u32, octets: u32) {
        self.packets.push_back(WimaxQueuedPacket { handle, left: octets, is_started: false });
        self.left += u64::from(octets);
    }
    /// Returns the octets of the PDUs for the whole queue.
    pub(super) fn octets_needed(&self) -> u64 {
        let begun = self.packets.front().is_some_and(|p| p.is_started);
        self.left + u64::from(PDU) * self.packets.len() as u64 + u64::from(FRAGMENT * u32::from(begun))
    }
    /// Removes all packets.
    pub(super) fn drain(&mut self) -> impl Iterator<Item = u32> {
        self.left = 0;
        std::mem::take(&mut self.packets).into_iter().map(|p| p.handle)
    }

    /// Fills a burst of `room` octets, with `used` taken already. Calls `done` for each packet that ends in it, with
    /// the octet after its last. Returns the octets used.
    pub(super) fn fill_burst(&mut self, room: u32, mut used: u32, mut done: impl FnMut(u32, u32)) -> u32 {
        while let Some(p) = self.packets.front_mut() {
            let header = PDU + FRAGMENT * u32::from(p.is_started);
            let free = room - used;
            if p.left <= (LONGEST - header).min(free.saturating_sub(header)) && header <= free {
                used += header + p.left;
                self.left -= u64::from(p.left);
                done(p.handle, used);
                self.packets.pop_front();
                continue;
            }
            let piece = free.min(LONGEST).saturating_sub(PDU + FRAGMENT).min(p.left.saturating_sub(1));
            if piece == 0 {
                break;
            }
            p.is_started = true;
            p.left -= piece;
            self.left -= u64::from(piece);
            used += PDU + FRAGMENT + piece;
        }
        used
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn fill_and_record(queue: &mut WimaxPacketQueue, room: u32) -> (u32, Vec<(u32, u32)>) {
        let mut done = Vec::new();
        let used = queue.fill_burst(room, 0, |handle, end| done.push((handle, end)));
        (used, done)
    }

    #[test]
    fn a_packet_that_does_not_fit_goes_in_pieces() {
        let mut queue = WimaxPacketQueue::default();
        queue.push(7, 100);
        queue.push(8, 20);
        assert_eq!(queue.octets_needed(), 140);
        assert_eq!(fill_and_record(&mut queue, 62), (62, vec![]));
        assert_eq!(queue.octets_needed(), 50 + 10 + 2 + 20 + 10);
        assert_eq!(fill_and_record(&mut queue, 92), (92, vec![(7, 62), (8, 92)]));
        assert!(queue.is_empty() && queue.octets_needed() == 0);
    }

    #[test]
    fn what_cannot_hold_an_octet_stays_empty() {
        let mut queue = WimaxPacketQueue::default();
        queue.push(1, 40);
        assert_eq!(fill_and_record(&mut queue, 12), (0, vec![]));
        assert_eq!(fill_and_record(&mut queue, 13).0, 13);
    }

    #[test]
    fn a_pdu_has_2047_octets_at_most() {
        let mut queue = WimaxPacketQueue::default();
        queue.push(1, 5000);
        // 2035 octets twice, then the rest of 930.
        assert_eq!(fill_and_record(&mut queue, 6000), (5000 + 3 * 12, vec![(1, 5036)]));
    }

    proptest! {
        #[test]
        fn every_packet_ends_once_and_in_order(
            packets in prop::collection::vec(1u32..4000, 1..30), rooms in prop::collection::vec(0u32..3000, 1..10),
        ) {
            let mut queue = WimaxPacketQueue::default();
            for (i, octets) in packets.iter().enumerate() {
                queue.push(i as u32, *octets);
            }
            let mut ended = Vec::new();
            for room in rooms.iter().cycle().take(100_000) {
                // The requested size is enough, unless a packet exceeds a PDU.
                let enough = u64::from(*room) >= queue.octets_needed() && packets.iter().all(|p| *p < 2000);
                let (used, done) = fill_and_record(&mut queue, (*room).max(40));
                prop_assert!(used <= (*room).max(40));
                prop_assert!(!enough || queue.is_empty());
                ended.extend(done.into_iter().map(|(handle, _)| handle));
                if queue.is_empty() {
                    break;
                }
            }
            prop_assert_eq!(ended, (0..packets.len() as u32).collect::<Vec<_>>());
        }
    }
}
