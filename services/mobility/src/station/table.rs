//! The station's handover controller: `State: Event => (completed step) [actions] next state`.
//!
//! What has no row changes nothing: a link event is counted, a request is answered with the status Rejected.

use crate::step::Step;

/// Declares states and events, each with its documentation.
macro_rules! variants {
    ($(#[$meta:meta])* $name:ident { $($(#[$doc:meta])* $variant:ident,)* }) => {
        $(#[$meta])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
        pub enum $name { $($(#[$doc])* $variant,)* }
        impl $name {
            /// All of them, in the order of their declaration.
            pub const ALL: &'static [Self] = &[$(Self::$variant),*];
        }
    };
}
pub(crate) use variants;

/// Writes rows as `From: On => (Step) [Action Action] To;`, the step and its parentheses where one is completed.
macro_rules! rows {
    ($($from:ident: $on:ident => $(($step:ident))? [$($action:ident)*] $to:ident;)*) => {
        &[$(Row {
            from: State::$from,
            on: On::$on,
            step: rows!(@step $($step)?),
            actions: &[$(Action::$action),*],
            to: State::$to,
        }),*]
    };
    (@step $step:ident) => { Some(Step::$step) };
    (@step) => { None };
}
pub(crate) use rows;

variants! {
    /// Where a station stands.
    State {
        /// Attached to the old network; no handover.
        Resting,
        /// Led by the station: scanning.
        Scanning,
        /// MIH_MN_HO_Candidate_Query is out.
        Querying,
        /// MIH_MN_HO_Commit is out.
        Committing,
        /// Led by the network: the loss is foreseen, and told if anybody wants to know; nothing was asked yet.
        Reporting,
        /// The network asked for candidates: scanning.
        Surveying,
        /// The network has the answer; it has not decided.
        Answered,
        /// The exchange has failed; the old link is still there.
        Waiting,
        /// Alone: scanning.
        Searching,
        /// The new link is coming up.
        Entering,
        /// The Binding Update is out.
        Redirecting,
        /// MIH_MN_HO_Complete is out.
        Completing,
        /// Attached to the new network, for good: a way back is not this controller's.
        Moved,
    }
}

variants! {
    /// What can happen.
    On {
        /// The old link will be lost, and the station leads.
        LeavingStation,
        /// The old link will be lost, and the network leads.
        LeavingNetwork,
        /// The old link is down, or is given up after a failure; no scan has found the new network yet.
        Lost,
        /// The same, and a scan has found the new network.
        LostKnown,
        /// The old link is up again.
        Back,
        /// A scan found the new network.
        Found,
        /// A scan did not.
        NotFound,
        /// The new link is up.
        Up,
        /// The new link is down, or did not come up.
        Down,
        /// What was sent was answered with success, or an indication was delivered.
        Granted,
        /// It was answered otherwise.
        Refused,
        /// It was lost for good: not acknowledged, or not sent at all.
        Failed,
        /// It has not been answered in time, and nothing says that it was lost.
        Unanswered,
        /// MIH_Net_HO_Candidate_Query request, after its processing.
        Asked,
        /// MIH_Net_HO_Commit request, on its arrival.
        Told,
        /// The Binding Update was accepted.
        Bound,
        /// It was refused.
        Unbound,
        /// The time for another attempt has come.
        Retry,
    }
}

variants! {
    /// What is done.
    Action {
        /// The handover's time begins.
        Begin,
        /// Scan by the new interface.
        Scan,
        /// MIH_Link_Going_Down indication, if the point of service has subscribed to it.
        Report,
        /// MIH_MN_HO_Candidate_Query request.
        Query,
        /// MIH_MN_HO_Commit request.
        Commit,
        /// MIH_Net_HO_Candidate_Query response with the network that was found.
        Answer,
        /// The same without any.
        AnswerNone,
        /// Connect the new link.
        Enter,
        /// Binding Update.
        Redirect,
        /// No further Binding Updates.
        Withdraw,
        /// The handover is over: messages go by the new link.
        Finish,
        /// MIH_MN_HO_Complete request.
        Complete,
        /// Disconnect the old link, if it is not down.
        Release,
        /// What is out is given up.
        Abandon,
        /// The exchange has failed.
        BreakOff,
        /// The exchange goes on after all.
        Resume,
        /// There is no handover.
        Cancel,
        /// Try again after a while.
        Later,
    }
}

/// A row of this controller.
pub type Row = crate::row::Row<State, On, Action>;

/// The controller.
pub const ROWS: &[Row] = rows! {
    Resting: LeavingStation => [Begin Scan] Scanning;
    Resting: LeavingNetwork => [Begin Report] Reporting;
    Resting: Asked => (Preparation) [Begin Scan] Surveying;
    Resting: Told => [Begin Enter] Entering;
    Resting: Lost => [Begin BreakOff Scan] Searching;
    Resting: LostKnown => [Begin BreakOff Enter] Entering;

    Scanning: Found => (Scan) [Query] Querying;
    Scanning: NotFound => [BreakOff] Waiting;
    Scanning: Lost => (Wait) [BreakOff] Searching;
    Scanning: LostKnown => (Wait) [BreakOff] Searching;

    Querying: Granted => (Resources) [Commit] Committing;
    Querying: Refused => [BreakOff] Waiting;
    Querying: Failed => [BreakOff] Waiting;
    Querying: Unanswered => [BreakOff] Waiting;
    Querying: LostKnown => (Wait) [Abandon BreakOff Enter] Entering;

    Committing: Granted => (Commit) [Enter] Entering;
    Committing: Refused => [BreakOff] Waiting;
    Committing: Failed => [BreakOff] Waiting;
    Committing: Unanswered => [BreakOff] Waiting;
    Committing: LostKnown => (Wait) [Abandon BreakOff Enter] Entering;

    Reporting: Granted => [] Reporting;
    Reporting: Failed => [BreakOff] Waiting;
    Reporting: Asked => (Preparation) [Scan] Surveying;
    Reporting: Told => (Decision) [Enter] Entering;
    Reporting: Lost => (Wait) [Abandon BreakOff Scan] Searching;
    Reporting: LostKnown => (Wait) [Abandon BreakOff Enter] Entering;

    Surveying: Granted => [] Surveying;
    Surveying: Failed => [] Surveying;
    Surveying: Found => (Scan) [Answer] Answered;
    Surveying: NotFound => [AnswerNone BreakOff] Waiting;
    Surveying: Told => (Decision) [Enter] Entering;
    Surveying: Lost => (Wait) [BreakOff] Searching;
    Surveying: LostKnown => (Wait) [BreakOff] Searching;

    Answered: Granted => [] Answered;
    Answered: Failed => [] Answered;
    Answered: Asked => [Answer] Answered;
    Answered: Told => (Decision) [Enter] Entering;
    Answered: LostKnown => (Wait) [BreakOff Enter] Entering;

    Waiting: Asked => (Preparation) [Resume Scan] Surveying;
    Waiting: Told => (Decision) [Resume Enter] Entering;
    Waiting: Lost => (Wait) [Scan] Searching;
    Waiting: LostKnown => (Wait) [Enter] Entering;
    Waiting: Back => [Cancel] Resting;

    Searching: Found => (Scan) [Enter] Entering;
    Searching: NotFound => [Later] Searching;
    Searching: Retry => [Scan] Searching;
    Searching: Lost => [] Searching;
    Searching: LostKnown => [] Searching;

    Entering: Up => (Entry) [Redirect] Redirecting;
    Entering: Down => [Later] Entering;
    Entering: Retry => [Enter] Entering;
    Entering: Lost => [] Entering;
    Entering: LostKnown => [] Entering;

    Redirecting: Bound => (Redirection) [Finish Complete] Completing;
    Redirecting: Unbound => [Later] Redirecting;
    Redirecting: Retry => [Redirect] Redirecting;
    Redirecting: Down => [Withdraw Later] Entering;
    Redirecting: Lost => [] Redirecting;
    Redirecting: LostKnown => [] Redirecting;

    Completing: Granted => (Completion) [Release] Moved;
    Completing: Refused => [Release] Moved;
    Completing: Failed => [Release] Moved;
    Completing: Unanswered => [Release] Moved;
    Completing: Down => [Abandon] Moved;
    Completing: Unbound => [Later] Completing;
    Completing: Retry => [Redirect] Completing;
    Completing: Lost => [] Completing;
    Completing: LostKnown => [] Completing;

    Moved: Unbound => [Later] Moved;
    Moved: Retry => [Redirect] Moved;
    Moved: Lost => [] Moved;
    Moved: LostKnown => [] Moved;
};

#[cfg(test)]
mod tests;
