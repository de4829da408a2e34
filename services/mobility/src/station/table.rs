//! The station's handover controller.

use crate::step::Step;
use usher_core::automaton::AutomatonRow;
use usher_core::{automaton, names};

names! {
    /// Where a station stands.
    pub State {
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

names! {
    /// An event.
    pub On {
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
        /// The request was answered with success, or the indication was delivered.
        Granted,
        /// The request was answered with a failure.
        Refused,
        /// The message was lost: not acknowledged, or not sent at all.
        Failed,
        /// The request was not answered in time, although perhaps not lost.
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

names! {
    /// An action.
    pub Action {
        /// This step is over.
        Over(Step),
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
        /// Abandon the outstanding message.
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

automaton! {
    /// The controller. Other events do not change the state: a request is answered with status Rejected, anything
    /// else is counted.
    pub StationTable("mobility-station", "Usher's own, with the message order of IEEE 802.21-2008"):
        State from Resting, on On, do Action;
    Resting {
        LeavingStation => [Begin, Scan] Scanning;
        LeavingNetwork => [Begin, Report] Reporting;
        Asked => [Over(Step::Preparation), Begin, Scan] Surveying;
        Told => [Begin, Enter] Entering;
        Lost => [Begin, BreakOff, Scan] Searching;
        LostKnown => [Begin, BreakOff, Enter] Entering;
        ! ignored [Back, Found, NotFound, Up, Down, Granted, Refused, Failed, Unanswered, Bound, Unbound,
            Retry]: "no handover is in progress, and no request is outstanding";
    }
    Scanning {
        Found => [Over(Step::Scan), Query] Querying;
        NotFound => [BreakOff] Waiting;
        Lost => [Over(Step::Wait), BreakOff] Searching;
        LostKnown => [Over(Step::Wait), BreakOff] Searching;
        ! ignored [LeavingStation, LeavingNetwork, Back, Up, Down, Granted, Refused, Failed, Unanswered,
            Asked, Told, Bound, Unbound, Retry]: "the scan is running, and no request is outstanding";
    }
    Querying {
        Granted => [Over(Step::Resources), Commit] Committing;
        Refused => [BreakOff] Waiting;
        Failed => [BreakOff] Waiting;
        Unanswered => [BreakOff] Waiting;
        LostKnown => [Over(Step::Wait), Abandon, BreakOff, Enter] Entering;
        ! never [Lost]: "a scan has found the new network";
        ! ignored [LeavingStation, LeavingNetwork, Back, Found, NotFound, Up, Down, Asked, Told, Bound,
            Unbound, Retry]: "the answer is outstanding";
    }
    Committing {
        Granted => [Over(Step::Commit), Enter] Entering;
        Refused => [BreakOff] Waiting;
        Failed => [BreakOff] Waiting;
        Unanswered => [BreakOff] Waiting;
        LostKnown => [Over(Step::Wait), Abandon, BreakOff, Enter] Entering;
        ! never [Lost]: "a scan has found the new network";
        ! ignored [LeavingStation, LeavingNetwork, Back, Found, NotFound, Up, Down, Asked, Told, Bound,
            Unbound, Retry]: "the answer is outstanding";
    }
    Reporting {
        Granted => [] Reporting;
        Failed => [BreakOff] Waiting;
        Asked => [Over(Step::Preparation), Scan] Surveying;
        Told => [Over(Step::Decision), Enter] Entering;
        Lost => [Over(Step::Wait), Abandon, BreakOff, Scan] Searching;
        LostKnown => [Over(Step::Wait), Abandon, BreakOff, Enter] Entering;
        ! ignored [LeavingStation, LeavingNetwork, Back, Found, NotFound, Up, Down, Refused, Unanswered,
            Bound, Unbound, Retry]: "the network's query is outstanding";
    }
    Surveying {
        Granted => [] Surveying;
        Failed => [] Surveying;
        Found => [Over(Step::Scan), Answer] Answered;
        NotFound => [AnswerNone, BreakOff] Waiting;
        Told => [Over(Step::Decision), Enter] Entering;
        Lost => [Over(Step::Wait), BreakOff] Searching;
        LostKnown => [Over(Step::Wait), BreakOff] Searching;
        ! ignored [LeavingStation, LeavingNetwork, Back, Up, Down, Refused, Unanswered, Asked, Bound,
            Unbound, Retry]: "the scan is running";
    }
    Answered {
        Granted => [] Answered;
        Failed => [] Answered;
        Asked => [Answer] Answered;
        Told => [Over(Step::Decision), Enter] Entering;
        LostKnown => [Over(Step::Wait), BreakOff, Enter] Entering;
        ! never [Lost]: "a scan has found the new network";
        ! ignored [LeavingStation, LeavingNetwork, Back, Found, NotFound, Up, Down, Refused, Unanswered,
            Bound, Unbound, Retry]: "the network's decision is outstanding";
    }
    Waiting {
        Asked => [Over(Step::Preparation), Resume, Scan] Surveying;
        Told => [Over(Step::Decision), Resume, Enter] Entering;
        Lost => [Over(Step::Wait), Scan] Searching;
        LostKnown => [Over(Step::Wait), Enter] Entering;
        Back => [Cancel] Resting;
        ! ignored [LeavingStation, LeavingNetwork, Found, NotFound, Up, Down, Granted, Refused, Failed,
            Unanswered, Bound, Unbound, Retry]:
            "the exchange has failed; only the network or the loss of the link continues the handover";
    }
    Searching {
        Found => [Over(Step::Scan), Enter] Entering;
        NotFound => [Later] Searching;
        Retry => [Scan] Searching;
        Lost => [] Searching;
        LostKnown => [] Searching;
        ! ignored [LeavingStation, LeavingNetwork, Back, Up, Down, Granted, Refused, Failed, Unanswered,
            Asked, Told, Bound, Unbound]: "only the scan counts";
    }
    Entering {
        Up => [Over(Step::Entry), Redirect] Redirecting;
        Down => [Later] Entering;
        Retry => [Enter] Entering;
        Lost => [] Entering;
        LostKnown => [] Entering;
        ! ignored [LeavingStation, LeavingNetwork, Back, Found, NotFound, Granted, Refused, Failed,
            Unanswered, Asked, Told, Bound, Unbound]: "only the new link counts";
    }
    Redirecting {
        Bound => [Over(Step::Redirection), Finish, Complete] Completing;
        Unbound => [Later] Redirecting;
        Retry => [Redirect] Redirecting;
        Down => [Withdraw, Later] Entering;
        Lost => [] Redirecting;
        LostKnown => [] Redirecting;
        ! ignored [LeavingStation, LeavingNetwork, Back, Found, NotFound, Up, Granted, Refused, Failed,
            Unanswered, Asked, Told]: "only the redirection counts";
    }
    Completing {
        Granted => [Over(Step::Completion), Release] Moved;
        Refused => [Release] Moved;
        Failed => [Release] Moved;
        Unanswered => [Release] Moved;
        Down => [Abandon] Moved;
        Unbound => [Later] Completing;
        Retry => [Redirect] Completing;
        Lost => [] Completing;
        LostKnown => [] Completing;
        ! ignored [LeavingStation, LeavingNetwork, Back, Found, NotFound, Up, Asked, Told, Bound]:
            "the handover and its exchanges have ended";
    }
    Moved {
        Unbound => [Later] Moved;
        Retry => [Redirect] Moved;
        Lost => [] Moved;
        LostKnown => [] Moved;
        ! ignored [LeavingStation, LeavingNetwork, Back, Found, NotFound, Up, Down, Granted, Refused,
            Failed, Unanswered, Asked, Told, Bound]: "the handover and its exchanges have ended";
    }
}

/// A row of this controller.
pub type StationTransitionRow = AutomatonRow<StationTable>;

#[cfg(test)]
mod tests;
