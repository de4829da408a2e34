//! The labelled work of an MIH function.

use usher_core::Work;

/// Messages written and read since the host last asked.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct WorkMeter {
    pub(crate) encoded: u32,
    pub(crate) decoded: u32,
}

impl WorkMeter {
    pub(crate) fn poll(&mut self) -> Option<Work> {
        for (count, label) in [(&mut self.decoded, "mih.decode"), (&mut self.encoded, "mih.encode")] {
            if *count > 0 {
                return Some(Work { label, units: core::mem::take(count) });
            }
        }
        None
    }
}
