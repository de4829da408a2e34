//! Reports of roles to the measurement.

use usher_core::{Duration, Instant};
use usher_mobility::Step;

/// A report of a role.
#[derive(Clone, Copy, Debug)]
pub(super) enum RoleReport {
    /// A dialogue began.
    Started,
    /// A dialogue ended.
    Ended {
        /// Its start.
        started_at: Instant,
        end: DialogueEnd,
    },
    /// EAP success of an authentication that began then; traffic keys follow.
    Admitted(Instant),
    /// Traffic keys of an authentication that began then, and the time from its EAP success.
    Keyed(Instant, Duration),
    /// An accounting record fell due.
    Record,
    /// An accounting record ended.
    Recorded {
        due: Instant,
        /// True if acknowledged late, false if in time, `None` if lost.
        acknowledged_late: Option<bool>,
    },
    /// Number of retransmissions of the application protocol.
    Retransmissions(u64),
    /// An IDENT response in a dialogue that began then, and whether it names the right user.
    Identified(Instant, bool),
    /// A reauthentication that began then, and the time without an IKE_SA.
    Interrupted(Instant, Duration),
    /// A dialogue that began then does not count.
    Withdrawn(Instant),
    /// A milestone of the mobile node of this number.
    Mobile(u32, HandoverMilestone),
}

/// How a dialogue ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum DialogueEnd {
    /// It succeeded.
    Completed,
    /// The AAA server rejected an authentication.
    Rejected,
    /// It was given up.
    Failed,
    /// It ended in another way, with a delay.
    Otherwise,
}

/// A milestone of a mobile node.
#[derive(Clone, Copy, Debug)]
pub(super) enum HandoverMilestone {
    /// Its handover began.
    Started,
    /// The predicted time of leaving its cell.
    Leaves { leave_time: Instant },
    /// From now on its correspondent sends the flow to the other interface.
    Redirected,
    /// A step of its handover ended.
    Step { step: Step, duration: Duration },
    /// Its handover ended.
    Done {
        /// Its start.
        started_at: Instant,
        /// True if the exchange of messages led to the new network.
        success: bool,
    },
    /// A packet of its flow left.
    Sent { sequence: u32 },
    /// A packet of its flow arrived.
    Received { sequence: u32 },
}
