//! What roles tell the measurement.

use usher_core::{Duration, Instant};
use usher_mobility::Step;

/// What a role tells the measurement.
#[derive(Clone, Copy, Debug)]
pub(super) enum RoleReport {
    /// A dialogue began.
    Started,
    /// A dialogue ended.
    Ended {
        /// When it had begun.
        started_at: Instant,
        /// How.
        end: DialogueEnd,
    },
    /// An authentication that began then was let in by EAP; traffic keys are to follow.
    Admitted(Instant),
    /// Its traffic keys are there, so long after that.
    Keyed(Instant, Duration),
    /// A record of accounting fell due.
    Record,
    /// A record that fell due then has its end.
    Recorded {
        /// When it fell due.
        due: Instant,
        /// Acknowledged, and late if so; `None`: it is lost.
        acknowledged_late: Option<bool>,
    },
    /// The application protocol sent so many requests again.
    Retransmissions(u64),
    /// A question of a dialogue that began then is answered, and whether by the right user.
    Identified(Instant, bool),
    /// An initiator that authenticated again, from then on, was without an IKE_SA for so long.
    Interrupted(Instant, Duration),
    /// A dialogue that began then is none after all.
    Withdrawn(Instant),
    /// Something happened to the mobile node of this number.
    Mobile(u32, HandoverMilestone),
}

/// How a dialogue ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum DialogueEnd {
    /// As it should.
    Completed,
    /// An authentication was refused by the AAA server.
    Rejected,
    /// Given up.
    Failed,
    /// Not as it should, but to an end: with a delay.
    Otherwise,
}

/// What happened to the mobile node of this number.
#[derive(Clone, Copy, Debug)]
pub(super) enum HandoverMilestone {
    /// Its handover began.
    Started,
    /// It will leave the cell that it is in at this time.
    Leaves {
        /// When.
        leave_time: Instant,
    },
    /// Its correspondent sends its flow to the other interface from now on.
    Redirected,
    /// A step of its handover is over.
    Step {
        /// Which.
        step: Step,
        /// How long it took.
        duration: Duration,
    },
    /// Its handover is over.
    Done {
        /// When it had begun.
        started_at: Instant,
        /// The exchange of messages led to the new network.
        success: bool,
    },
    /// A packet of its flow left.
    Sent {
        /// Its number.
        sequence: u32,
    },
    /// A packet of its flow arrived.
    Received {
        /// Its number.
        sequence: u32,
    },
}
