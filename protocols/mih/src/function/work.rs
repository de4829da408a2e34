//! The labelled work of an MIH function.

use usher_core::Work;

usher_core::work_labels! {
    /// A packet read: a message, or a fragment of one.
    DECODE = "mih.decode" per "packet";
    /// A message written, however many fragments it goes in.
    ENCODE = "mih.encode" per "message";
}

/// Messages written and read since the host last asked.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct WorkMeter {
    pub(crate) encoded: u32,
    pub(crate) decoded: u32,
}

impl WorkMeter {
    pub(crate) fn poll(&mut self) -> Option<Work> {
        for (count, label) in [(&mut self.decoded, DECODE), (&mut self.encoded, ENCODE)] {
            if *count > 0 {
                return Some(Work { label, units: core::mem::take(count) });
            }
        }
        None
    }
}
