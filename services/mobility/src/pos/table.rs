//! The point of service's controller, one for each station: `State: Event => (completed step) [actions] next state`.
//!
//! What has no row changes nothing: a request is answered with the status Rejected, anything else is counted.

use crate::station::rows;
use crate::station::variants;
use crate::step::Step;

variants! {
    /// Where the handover of a station stands.
    State {
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

variants! {
    /// What can happen.
    On {
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

variants! {
    /// What is done.
    Action {
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

/// A row of this controller.
pub type Row = crate::row::Row<State, On, Action>;

/// The controller.
pub const ROWS: &[Row] = rows! {
    Idle: Query => [Inquire] Inquiring;
    Idle: Commit => [Book] Booking;
    Idle: Trigger => [Begin Inquire] Checking;
    Idle: Completed => [] Idle;

    Inquiring: Granted => [Offer] Offered;
    Inquiring: Refused => [Deny] Idle;
    Inquiring: Failed => [Regret] Idle;
    Inquiring: Completed => [Abandon Deny] Idle;

    Offered: Query => [Inquire] Inquiring;
    Offered: Commit => [Book] Booking;
    Offered: Completed => [] Idle;
    Offered: Forgotten => [Forget] Idle;

    Booking: Granted => [Grant] Booked;
    Booking: Refused => [Deny] Idle;
    Booking: Failed => [Regret] Idle;
    Booking: Completed => [Abandon Deny] Idle;

    Booked: Completed => [] Idle;
    Booked: Forgotten => [Forget] Idle;

    Checking: Granted => (Resources) [Ask] Asking;
    Checking: Refused => [BreakOff] Idle;
    Checking: Failed => [BreakOff] Idle;
    Checking: Completed => [Abandon BreakOff] Idle;

    Asking: Granted => (Candidate) [Book] Reserving;
    Asking: Refused => [BreakOff] Idle;
    Asking: Failed => [BreakOff] Idle;
    Asking: Completed => [Abandon BreakOff] Idle;

    Reserving: Granted => (Reservation) [Tell] Telling;
    Reserving: Refused => [BreakOff] Idle;
    Reserving: Failed => [BreakOff] Idle;
    Reserving: Completed => [Abandon BreakOff] Idle;

    Telling: Granted => (Commit) [] Leaving;
    Telling: Refused => [BreakOff] Idle;
    Telling: Failed => [] Leaving;
    Telling: Completed => [Abandon] Idle;

    Leaving: Completed => [] Idle;
    Leaving: Forgotten => [Forget] Idle;
};

#[cfg(test)]
mod tests;
