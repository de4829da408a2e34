//! Contention for the medium.

use super::frame::{InterframeSpaces, WifiFrame};
use std::collections::VecDeque;
use usher_core::Instant;

/// The access point or a station as a contender for the medium.
#[derive(Debug, Default)]
pub(super) struct MediumContender {
    /// Its frames; the first is sent next, or is on the air.
    pub(super) queue: VecDeque<WifiFrame>,
    /// Number of packets in the queue.
    pub(super) packets: usize,
    /// True if its first frame is on the air.
    pub(super) sending: bool,
    /// Slots left to count, from `WirelessMedium::free` or from `from`, whichever is later. `None`: the count is
    /// over, and it may send when the medium has been idle for DIFS.
    pub(super) backoff: Option<u32>,
    /// When it sends without back-off if the medium stays idle.
    pub(super) from: Instant,
    /// True while it is on another channel.
    pub(super) silent: bool,
}

impl MediumContender {
    /// Inserts a frame before all packets and behind other such frames.
    pub(super) fn push_management_frame(&mut self, frame: WifiFrame) {
        let skip = usize::from(self.sending);
        let rest = self.queue.iter().skip(skip).take_while(|f| !f.kind.is_data()).count();
        self.queue.insert(skip + rest, frame);
    }
    /// Returns the end of its back-off if the medium stays idle.
    fn backoff_end(&self, medium: &WirelessMedium) -> Instant {
        medium.free.max(self.from) + medium.gaps.slot * u64::from(self.backoff.unwrap_or(0))
    }
    /// Returns when it sends if the medium stays idle.
    fn planned_transmission_start(&self, medium: &WirelessMedium) -> Option<Instant> {
        (!self.queue.is_empty() && !self.silent).then(|| self.backoff_end(medium))
    }
}

/// Frames on the air at the same time.
#[derive(Clone, Debug)]
pub(super) struct FramesOnAir {
    /// The sender, or several whose frames collide.
    pub(super) senders: Vec<u32>,
    /// End of the last frame.
    pub(super) end: Instant,
}

/// The shared medium.
#[derive(Debug)]
pub(super) struct WirelessMedium {
    pub(super) gaps: InterframeSpaces,
    pub(super) on_air: Option<FramesOnAir>,
    /// End of the last exchange, its acknowledgement included.
    pub(super) idle: Instant,
    /// When slots count again: DIFS or EIFS later.
    pub(super) free: Instant,
}

impl WirelessMedium {
    pub(super) const fn new(gaps: InterframeSpaces) -> Self {
        Self { gaps, on_air: None, idle: Instant::ZERO, free: Instant::ZERO }
    }

    fn is_busy(&self, now: Instant) -> bool {
        self.on_air.is_some() || now < self.idle
    }

    /// Returns the time of the next transmission, and its sender.
    pub(super) fn earliest_start(&self, contenders: &[MediumContender]) -> Option<Instant> {
        contenders.iter().filter_map(|c| c.planned_transmission_start(self)).min()
    }
    /// Returns all contenders that send at `first` or before they can detect its frame, which takes a slot; and the
    /// times.
    pub(super) fn senders(
        &self,
        contenders: &[MediumContender],
        first: Instant,
    ) -> impl Iterator<Item = (u32, Instant)> {
        let plans = contenders
            .iter()
            .enumerate()
            .filter_map(|(i, c)| Some((i as u32, c.planned_transmission_start(self)?)));
        plans.filter(move |(_, at)| *at < first + self.gaps.slot)
    }

    /// Returns the earliest transmission of a contender with a frame from `due` on.
    pub(super) fn earliest_send_time(&self, contender: &MediumContender, due: Instant) -> Instant {
        let (through, sensed) = (contender.backoff_end(self), due + self.gaps.difs);
        if through > due { through.min(sensed) } else { sensed }
    }

    /// Handles a contender that now has a frame to send; true if it must draw a back-off.
    pub(super) fn join_contention(&self, contender: &mut MediumContender, now: Instant) -> bool {
        if contender.backoff.is_some() {
            if self.is_busy(now) || contender.backoff_end(self) > now {
                return false;
            }
            contender.backoff = None;
        }
        if self.is_busy(now) {
            return true;
        }
        contender.from = now + self.gaps.difs;
        false
    }
    /// Handles a medium that becomes busy at `now`; true if the contender must draw a back-off.
    pub(super) fn freeze_backoff(&self, contender: &mut MediumContender, now: Instant) -> bool {
        let Some(slots) = contender.backoff else {
            return !contender.queue.is_empty() && !contender.silent;
        };
        let passed = now.duration_since(self.free.max(contender.from)).as_nanos() / self.gaps.slot.as_nanos();
        let left = u64::from(slots).saturating_sub(passed);
        contender.backoff = (left > 0).then_some(left as u32);
        false
    }
}

#[cfg(test)]
mod tests {
    use super::super::frame::FrameKind;
    use super::*;

    #[test]
    fn first_frames_queue_behind_a_transmission_and_each_other() {
        let data = |handle| WifiFrame::new(FrameKind::Data { handle, octets: 100 }, 0);
        for sending in [false, true] {
            let mut contender = MediumContender { sending, ..MediumContender::default() };
            contender.queue.extend([data(1), data(2)]);
            for kind in [FrameKind::Beacon, FrameKind::ProbeResponse, FrameKind::AssociationResponse] {
                contender.push_management_frame(WifiFrame::new(kind, 0));
            }
            let of = |frame: &WifiFrame| matches!(frame.kind, FrameKind::Data { .. });
            let order: Vec<bool> = contender.queue.iter().map(of).collect();
            let expected =
                if sending { [true, false, false, false, true] } else { [false, false, false, true, true] };
            assert_eq!(order, expected);
            let first = contender.queue.iter().position(|frame| !of(frame)).unwrap();
            let kinds = [0, 1, 2].map(|n| contender.queue[first + n].kind);
            assert!(matches!(
                kinds,
                [FrameKind::Beacon, FrameKind::ProbeResponse, FrameKind::AssociationResponse]
            ));
        }
    }
}
