//! The labelled work of an MIH function.

use usher_core::WorkRecord;

usher_core::work_labels! {
    /// A packet read: a message, or a fragment of one.
    DECODE = "mih.decode" per "packet";
    /// A message written, however many fragments it goes in.
    ENCODE = "mih.encode" per "message";
}

/// Messages encoded and decoded since the host last read these numbers.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct WorkMeter {
    pub(crate) encoded: u32,
    pub(crate) decoded: u32,
}

impl WorkMeter {
    pub(crate) fn poll(&mut self) -> Option<WorkRecord> {
        for (count, label) in [(&mut self.decoded, DECODE), (&mut self.encoded, ENCODE)] {
            if *count > 0 {
                return Some(WorkRecord { label, units: core::mem::take(count) });
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_is_told_once() {
        let mut meter = WorkMeter { encoded: 2, decoded: 3 };
        let told: Vec<WorkRecord> = core::iter::from_fn(|| meter.poll()).collect();
        assert_eq!(told, [WorkRecord { label: DECODE, units: 3 }, WorkRecord { label: ENCODE, units: 2 }]);
        meter.encoded = 1;
        assert_eq!(meter.poll(), Some(WorkRecord { label: ENCODE, units: 1 }));
        assert_eq!(meter.poll(), None);
    }
}
