//! The point of service's controller, with one instance for each station.

use crate::step::Step;
use usher_core::automaton::AutomatonRow;
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
    /// An event.
    pub On {
        /// MIH_MN_HO_Candidate_Query request, after its processing.
        Query,
        /// MIH_MN_HO_Commit request, after its processing.
        Commit,
        /// The station's link is going down, and the network leads.
        Trigger,
        /// The request was answered with success.
        Granted,
        /// The request was answered with a failure.
        Refused,
        /// The request was lost, or not answered.
        Failed,
        /// The station has gone to the other network.
        Completed,
        /// Nothing was heard for long.
        Forgotten,
    }
}

names! {
    /// An action.
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
        /// Abandon the outstanding request.
        Abandon,
        /// Count that it was forgotten.
        Forget,
    }
}

automaton! {
    /// The controller. Other events do not change the state: a request is answered with status Rejected, anything
    /// else is counted.
    pub PointOfServiceTable("mobility-pos", "Usher's own, with the message order of IEEE 802.21-2008"):
        State from Idle, on On, do Action;
    Idle {
        Query => [Inquire] Inquiring;
        Commit => [Book] Booking;
        Trigger => [Begin, Inquire] Checking;
        Completed => [] Idle;
        ! ignored [Granted, Refused, Failed, Forgotten]: "no request is outstanding, and no handover can expire";
    }
    Inquiring {
        Granted => [Offer] Offered;
        Refused => [Deny] Idle;
        Failed => [Regret] Idle;
        Completed => [Abandon, Deny] Idle;
        ! ignored [Query, Commit, Trigger, Forgotten]: "only one request at a time, and its answer will come";
    }
    Offered {
        Query => [Inquire] Inquiring;
        Commit => [Book] Booking;
        Completed => [] Idle;
        Forgotten => [Forget] Idle;
        ! ignored [Trigger, Granted, Refused, Failed]: "no request is outstanding";
    }
    Booking {
        Granted => [Grant] Booked;
        Refused => [Deny] Idle;
        Failed => [Regret] Idle;
        Completed => [Abandon, Deny] Idle;
        ! ignored [Query, Commit, Trigger, Forgotten]: "only one request at a time, and its answer will come";
    }
    Booked {
        Completed => [] Idle;
        Forgotten => [Forget] Idle;
        ! ignored [Query, Commit, Trigger, Granted, Refused, Failed]: "the station is changing networks";
    }
    Checking {
        Granted => [Over(Step::Resources), Ask] Asking;
        Refused => [BreakOff] Idle;
        Failed => [BreakOff] Idle;
        Completed => [Abandon, BreakOff] Idle;
        ! ignored [Query, Commit, Trigger, Forgotten]: "the network leads, and an answer will come";
    }
    Asking {
        Granted => [Over(Step::Candidate), Book] Reserving;
        Refused => [BreakOff] Idle;
        Failed => [BreakOff] Idle;
        Completed => [Abandon, BreakOff] Idle;
        ! ignored [Query, Commit, Trigger, Forgotten]: "the network leads, and an answer will come";
    }
    Reserving {
        Granted => [Over(Step::Reservation), Tell] Telling;
        Refused => [BreakOff] Idle;
        Failed => [BreakOff] Idle;
        Completed => [Abandon, BreakOff] Idle;
        ! ignored [Query, Commit, Trigger, Forgotten]: "the network leads, and an answer will come";
    }
    Telling {
        Granted => [Over(Step::Commit)] Leaving;
        Refused => [BreakOff] Idle;
        Failed => [] Leaving;
        Completed => [Abandon] Idle;
        ! ignored [Query, Commit, Trigger, Forgotten]: "the network leads, and an answer will come";
    }
    Leaving {
        Completed => [] Idle;
        Forgotten => [Forget] Idle;
        ! ignored [Query, Commit, Trigger, Granted, Refused, Failed]: "the station is changing networks";
    }
}

/// A row of this controller.
pub type PosTransitionRow = AutomatonRow<PointOfServiceTable>;

#[cfg(test)]
mod tests;
