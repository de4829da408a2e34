//! Ethernet frames between a data plane and a machine.

use std::fmt;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use usher_core::LinkLayerPortId;

/// The limit of pending frames of each kind.
const FRAMES: usize = 16_384;

/// The queue quota of a frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FrameKind {
    /// The quota of installed sessions.
    Session,
    /// The quota of all other frames.
    Other,
}

/// Sends a frame by a port. The frame begins with the destination address.
pub type FrameSender = Box<dyn FnMut(LinkLayerPortId, &[u8]) + Send>;

/// Ethernet ports, which a data plane supplies instead of the driver.
pub struct EthernetPorts {
    /// Sends frames.
    pub send: FrameSender,
    /// Takes the received frames.
    pub input: FrameInput,
}

impl fmt::Debug for EthernetPorts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EthernetPorts").field("input", &self.input).finish_non_exhaustive()
    }
}

/// Passes a frame to the machine. False: the machine has ended.
pub(crate) type FrameTarget = Box<dyn Fn(LinkLayerPortId, FrameKind, Vec<u8>) -> bool + Send + Sync>;

/// The queue of received frames to a machine. Clones share it. Frames are dropped until the machine is hosted.
#[derive(Clone, Default)]
pub struct FrameInput(Arc<FrameQueueState>);

#[derive(Default)]
struct FrameQueueState {
    target: OnceLock<FrameTarget>,
    /// The pending frames of each kind.
    waiting: [AtomicUsize; 2],
    lost: [AtomicU64; 2],
}

impl fmt::Debug for FrameInput {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FrameInput").field("waiting", &self.0.waiting).field("lost", &self.0.lost).finish()
    }
}

impl FrameInput {
    /// Passes a frame on. It is lost if the quota of its kind is used up, or if the machine has ended, as on any
    /// overloaded network.
    pub fn push_frame(&self, port: LinkLayerPortId, kind: FrameKind, data: Vec<u8>) {
        let Some(target) = self.0.target.get() else { return };
        if self.0.waiting[kind as usize].fetch_add(1, Ordering::Relaxed) >= FRAMES
            || !target(port, kind, data)
        {
            self.release_frame_room(kind);
            self.0.lost[kind as usize].fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Returns the number of lost frames of a kind.
    #[must_use]
    pub fn lost_frames(&self, kind: FrameKind) -> u64 {
        self.0.lost[kind as usize].load(Ordering::Relaxed)
    }

    /// Has the frames taken by a machine, which is hosted now.
    pub(crate) fn set_target(&self, target: FrameTarget) {
        // Only the first machine takes frames.
        let _ = self.0.target.set(target);
    }

    /// Counts a frame as handled.
    pub(crate) fn release_frame_room(&self, kind: FrameKind) {
        self.0.waiting[kind as usize].fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flood_of_frames_leaves_sessions_that_are_there_their_room() {
        let (input, taken) = (FrameInput::default(), Arc::new(AtomicUsize::new(0)));
        let push = |kind, n: usize| {
            let before = taken.load(Ordering::Relaxed);
            (0..n).for_each(|_| input.push_frame(LinkLayerPortId(0), kind, Vec::new()));
            taken.load(Ordering::Relaxed) - before
        };
        assert_eq!(push(FrameKind::Other, 1), 0, "there is no machine yet");
        let counted = taken.clone();
        input.set_target(Box::new(move |_, _, _| {
            counted.fetch_add(1, Ordering::Relaxed);
            true
        }));
        assert_eq!(push(FrameKind::Other, 100_000), FRAMES);
        assert_eq!(push(FrameKind::Session, FRAMES + 10), FRAMES);
        let lost = [FrameKind::Session, FrameKind::Other].map(|kind| input.lost_frames(kind));
        assert_eq!(lost, [10, 100_000 - FRAMES as u64]);
        input.release_frame_room(FrameKind::Other);
        assert_eq!((push(FrameKind::Session, 5), push(FrameKind::Other, 5)), (0, 1));
    }

    #[test]
    fn frames_to_a_machine_that_has_ended_are_lost_and_hold_no_room() {
        let input = FrameInput::default();
        input.set_target(Box::new(|_, _, _| false));
        (0..3).for_each(|_| input.push_frame(LinkLayerPortId(0), FrameKind::Other, Vec::new()));
        assert_eq!(input.lost_frames(FrameKind::Other), 3);
        assert_eq!(input.0.waiting[FrameKind::Other as usize].load(Ordering::Relaxed), 0);
    }
}
