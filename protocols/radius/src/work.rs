//! The labelled work of client and server.

use usher_core::Work;

/// Messages handled since the host last asked, requests and responses apart.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct WorkMeter {
    requests: u32,
    responses: u32,
}

impl WorkMeter {
    pub(crate) fn request(&mut self) {
        self.requests += 1;
    }
    pub(crate) fn response(&mut self) {
        self.responses += 1;
    }
    pub(crate) fn poll(&mut self) -> Option<Work> {
        for (count, label) in
            [(&mut self.requests, "radius.request"), (&mut self.responses, "radius.response")]
        {
            if *count > 0 {
                return Some(Work { label, units: core::mem::take(count) });
            }
        }
        None
    }
}
