//! Work labels of client and server.

use usher_core::WorkRecord;

usher_core::work_labels! {
    /// A request sent or received.
    REQUEST = "radius.request" per "message";
    /// A response sent or received.
    RESPONSE = "radius.response" per "message";
}

/// The messages handled since the last poll of the host, by requests and responses.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct WorkMeter {
    requests: u32,
    responses: u32,
}

impl WorkMeter {
    pub(crate) fn count_request(&mut self) {
        self.requests += 1;
    }
    pub(crate) fn count_reply_work(&mut self) {
        self.responses += 1;
    }
    pub(crate) fn take_work(&mut self) -> Option<WorkRecord> {
        for (count, label) in [(&mut self.requests, REQUEST), (&mut self.responses, RESPONSE)] {
            if *count > 0 {
                return Some(WorkRecord { label, units: core::mem::take(count) });
            }
        }
        None
    }
}
