//! The point of service's controller, with one instance for each station.

use crate::step::Step;
use usher_core::automaton::RowOf;
use usher_core::{automaton, names};

names! {
    /// Where the handover of a station stands.
    pub State {
        /// There is none.
        Idle,
        /// Led by the station: the target is asked for resources.
        Inquiring,
        /// The station has the answer.
        Offered,
        /// The target is asked to reserve.
        Booking,
        /// Reserved; the station is told.
        Booked,
        /// Led by the network: the target is asked for resources.
        Checking,
        /// The station is asked for candidates.
        Asking,
        /// The target is asked to reserve.
        Reserving,
        /// The station is told to go.
        Telling,
        /// It goes.
        Leaving,
    }
}

names! {
    /// What can happen.
    pub On {
        /// MIH_MN_HO_Candidate_Query request, after its processing.
        Query,
        /// MIH_MN_HO_Commit request, after its processing.
        Commit,
        /// The station's link is going down, and the network leads.
        Trigger,
        /// What was sent was answered with success.
        Granted,
        /// It was answered otherwise.
        Refused,
        /// It was lost for good, or not answered.
        Failed,
        /// The station has gone to the other network.
        Completed,
        /// Nothing was heard for long.
        Forgotten,
    }
}

names! {
    /// What is done.
    pub Action {
        /// This step is over.
        Over(Step),
        /// The handover's time begins.
        Begin,
        /// MIH_N2N_HO_Query_Resources request to the target.
        Inquire,
        /// MIH_Net_HO_Candidate_Query request to the station.
        Ask,
        /// MIH_N2N_HO_Commit request to the target.
        Book,
        /// MIH_Net_HO_Commit request to the station.
        Tell,
        /// MIH_MN_HO_Candidate_Query response with the target.
        Offer,
        /// MIH_MN_HO_Commit response with success.
        Grant,
        /// The response to the station's request, with the status Rejected.
        Deny,
        /// The same with the status Network Error.
        Regret,
        /// The handover that the network led has failed.
        BreakOff,
        /// What is out is given up.
        Abandon,
        /// Count that it was forgotten.
        Forget,
    }
}

automaton! {
    /// The controller. Other events do not change the state: a request is answered with status Rejected, anything
    /// else is counted.
    pub PointOfServiceTable("mobility-pos", "of our own: the order of messages is IEEE 802.21-2008's"):
        State from Idle, on On, do Action;
    Idle {
        Query => [Inquire] Inquiring;
        Commit => [Book] Booking;
        Trigger => [Begin, Inquire] Checking;
        Completed => [] Idle;
        ! ignored [Granted, Refused, Failed, Forgotten]: "nothing is out, and nothing to be forgotten";
    }
    Inquiring {
        Granted => [Offer] Offered;
        Refused => [Deny] Idle;
        Failed => [Regret] Idle;
        Completed => [Abandon, Deny] Idle;
        ! ignored [Query, Commit, Trigger, Forgotten]: "one request at a time, and an answer comes";
    }
    Offered {
        Query => [Inquire] Inquiring;
        Commit => [Book] Booking;
        Completed => [] Idle;
        Forgotten => [Forget] Idle;
        ! ignored [Trigger, Granted, Refused, Failed]: "nothing is out";
    }
    Booking {
        Granted => [Grant] Booked;
        Refused => [Deny] Idle;
        Failed => [Regret] Idle;
        Completed => [Abandon, Deny] Idle;
        ! ignored [Query, Commit, Trigger, Forgotten]: "one request at a time, and an answer comes";
    }
    Booked {
        Completed => [] Idle;
        Forgotten => [Forget] Idle;
        ! ignored [Query, Commit, Trigger, Granted, Refused, Failed]: "the station is on its way";
    }
    Checking {
        Granted => [Over(Step::Resources), Ask] Asking;
        Refused => [BreakOff] Idle;
        Failed => [BreakOff] Idle;
        Completed => [Abandon, BreakOff] Idle;
        ! ignored [Query, Commit, Trigger, Forgotten]: "the network leads, and an answer comes";
    }
    Asking {
        Granted => [Over(Step::Candidate), Book] Reserving;
        Refused => [BreakOff] Idle;
        Failed => [BreakOff] Idle;
        Completed => [Abandon, BreakOff] Idle;
        ! ignored [Query, Commit, Trigger, Forgotten]: "the network leads, and an answer comes";
    }
    Reserving {
        Granted => [Over(Step::Reservation), Tell] Telling;
        Refused => [BreakOff] Idle;
        Failed => [BreakOff] Idle;
        Completed => [Abandon, BreakOff] Idle;
        ! ignored [Query, Commit, Trigger, Forgotten]: "the network leads, and an answer comes";
    }
    Telling {
        Granted => [Over(Step::Commit)] Leaving;
        Refused => [BreakOff] Idle;
        Failed => [] Leaving;
        Completed => [Abandon] Idle;
        ! ignored [Query, Commit, Trigger, Forgotten]: "the network leads, and an answer comes";
    }
    Leaving {
        Completed => [] Idle;
        Forgotten => [Forget] Idle;
        ! ignored [Query, Commit, Trigger, Granted, Refused, Failed]: "the station is on its way";
    }
}

/// A row of this controller.
pub type PosRow = RowOf<PointOfServiceTable>;

#[cfg(test)]
mod tests;
