//! The watchdog of RFC 3539 §3.4 as the state table of its appendix A.

use usher_core::{Duration, SecureRng, automaton, names};

names! {
    /// The states of a transport connection.
    pub State {
        /// Not yet up for the first time.
        Initial = "INITIAL",
        /// Up.
        Okay = "OKAY",
        /// A watchdog went unanswered: no new requests.
        Suspect = "SUSPECT",
        /// Gone.
        Down = "DOWN",
        /// Up again, and to be proven by three answered watchdogs.
        Reopen = "REOPEN",
    }
}

names! {
    /// An event of the connection.
    pub Event {
        /// A DWA came.
        ReceiveDwa = "Receive DWA",
        /// Any other message came.
        ReceiveOther = "Receive non-DWA",
        /// The timer Tw expired.
        TimerExpires = "Timer expires",
        /// The connection came up (capabilities are exchanged).
        ConnectionUp = "Connection up",
        /// The connection went down.
        ConnectionDown = "Connection down",
    }
}

names! {
    /// An action of the automaton.
    pub Action {
        /// An answer to a watchdog is outstanding.
        SetPending = "Pending = TRUE",
        /// No answer to a watchdog is outstanding.
        ClearPending = "Pending = FALSE",
        /// Start to prove the connection.
        ResetNumDwa = "NumDWA = 0",
        /// Count an answer of the proof.
        CountDwa = "NumDWA++",
        /// An answer of the proof is missing: start the proof again.
        MissDwa = "NumDWA = -1",
        /// Start the timer anew.
        SetWatchdog = "SetWatchdog()",
        /// Send a DWR.
        SendWatchdog = "SendWatchdog()",
        /// Send requests to the alternate.
        Failover = "Failover()",
        /// Send requests here again.
        Failback = "Failback()",
        /// Close the connection at once.
        CloseConnection = "CloseConnection()",
        /// Try to open the connection.
        AttemptOpen = "AttemptOpen()",
        /// The message does not count as a sign of life.
        Throwaway = "Throwaway()",
    }
}

names! {
    /// A condition of a line on `Pending` and `NumDWA`.
    pub Guard {
        /// `Pending` is set.
        Pending = "Pending",
        /// `Pending` is clear.
        NotPending = "!Pending",
        /// The third answer of a proof.
        LastDwa = "NumDWA == 2",
        /// An earlier answer of a proof.
        FewDwa = "NumDWA < 2",
        /// A second watchdog of a proof goes unanswered.
        PendingNegative = "Pending & NumDWA < 0",
        /// The first watchdog of a proof goes unanswered.
        PendingNotNegative = "Pending & NumDWA >= 0",
    }
}

automaton! {
    /// The table of RFC 3539, appendix A. The RFC's pseudo-code differs in OnConnectionDown: it sets DOWN before it
    /// tests the earlier state, and so never fails over. In INITIAL and DOWN the timer is Tc (RFC 6733 §2.1), if set.
    pub WatchdogAutomaton("diameter-watchdog", "RFC 3539, appendix A"):
        State from Initial, on Event if Guard, do Action;
    Okay {
        ReceiveDwa => [ClearPending, SetWatchdog] Okay;
        ReceiveOther => [SetWatchdog] Okay;
        TimerExpires if NotPending => [SendWatchdog, SetWatchdog, SetPending] Okay;
        TimerExpires if Pending => [Failover, SetWatchdog] Suspect;
        ConnectionDown => [CloseConnection, Failover, SetWatchdog] Down;
        ! never [TimerExpires]: "one of the two conditions holds";
        ! never [ConnectionUp]: "the connection is up";
    }
    Suspect {
        ReceiveDwa => [ClearPending, Failback, SetWatchdog] Okay;
        ReceiveOther => [Failback, SetWatchdog] Okay;
        TimerExpires => [CloseConnection, SetWatchdog] Down;
        ConnectionDown => [CloseConnection, SetWatchdog] Down;
        ! never [ConnectionUp]: "the connection is up";
    }
    Reopen {
        ReceiveDwa if LastDwa => [ClearPending, CountDwa, Failback] Okay;
        ReceiveDwa if FewDwa => [ClearPending, CountDwa] Reopen;
        ReceiveOther => [Throwaway] Reopen;
        TimerExpires if NotPending => [SendWatchdog, SetWatchdog, SetPending] Reopen;
        TimerExpires if PendingNegative => [CloseConnection, SetWatchdog] Down;
        TimerExpires if PendingNotNegative => [MissDwa, SetWatchdog] Reopen;
        ConnectionDown => [CloseConnection, SetWatchdog] Down;
        ! never [ReceiveDwa]: "the third answer leaves this state, and its re-entry sets NumDWA to 0";
        ! never [TimerExpires]: "one of the three conditions holds";
        ! never [ConnectionUp]: "the connection is up";
    }
    Initial {
        ReceiveDwa => [ClearPending, Throwaway] Initial;
        ReceiveOther => [Throwaway] Initial;
        TimerExpires => [AttemptOpen, SetWatchdog] Initial;
        ConnectionUp => [SetWatchdog] Okay;
        ! never [ConnectionDown]: "the connection was never up";
    }
    Down {
        ReceiveDwa => [ClearPending, Throwaway] Down;
        ReceiveOther => [Throwaway] Down;
        TimerExpires => [AttemptOpen, SetWatchdog] Down;
        ConnectionUp => [ResetNumDwa, SendWatchdog, SetWatchdog, SetPending] Reopen;
        ! ignored [ConnectionDown]: "CloseConnection() has already closed it";
    }
}

/// The watchdog of a peer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PeerWatchdog {
    state: State,
    pending: bool,
    num_dwa: i8,
}

impl Default for PeerWatchdog {
    fn default() -> Self {
        Self { state: State::Initial, pending: false, num_dwa: 0 }
    }
}

impl PeerWatchdog {
    /// The state.
    pub const fn state(&self) -> State {
        self.state
    }

    #[inline]
    fn evaluate_guard(&self, guard: Guard) -> bool {
        match guard {
            Guard::Pending => self.pending,
            Guard::NotPending => !self.pending,
            Guard::LastDwa => self.num_dwa == 2,
            Guard::FewDwa => self.num_dwa < 2,
            Guard::PendingNegative => self.pending && self.num_dwa < 0,
            Guard::PendingNotNegative => self.pending && self.num_dwa >= 0,
        }
    }

    /// Steps the table, updates `Pending` and `NumDWA`, and returns the actions. An event without a row changes
    /// nothing.
    #[must_use]
    pub fn apply_event(&mut self, event: Event) -> &'static [Action] {
        let Some(row) = WatchdogAutomaton::step(self.state, event, |guard| self.evaluate_guard(guard)) else {
            return &[];
        };
        for action in row.actions {
            match action {
                Action::SetPending => self.pending = true,
                Action::ClearPending => self.pending = false,
                Action::ResetNumDwa => self.num_dwa = 0,
                Action::CountDwa => self.num_dwa += 1,
                Action::MissDwa => self.num_dwa = -1,
                _ => {}
            }
        }
        self.state = row.to;
        row.actions
    }
}

/// Tw with jitter: uniform in `tw - jitter ..= tw + jitter` (RFC 3539 §3.4.1: 30 s, 2 s).
pub fn sample_interval(tw: Duration, jitter: Duration, rng: &mut SecureRng) -> Duration {
    let offset = (jitter * 2).mul_f64(rng.sample_unit());
    (tw + offset).saturating_sub(jitter)
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use usher_core::Seed;

    const PROVEN: [Action; 3] = [Action::ClearPending, Action::CountDwa, Action::Failback];

    /// Applies events and returns the state after each.
    fn run_events(watchdog: &mut PeerWatchdog, events: &[Event]) -> Vec<State> {
        let step = |event: &Event| {
            let _ = watchdog.apply_event(*event);
            watchdog.state
        };
        events.iter().map(step).collect()
    }

    /// Runs sequences that cover every row.
    pub(crate) fn run_all_watchdog_rows() {
        use Event::{
            ConnectionDown as Gone, ConnectionUp as Up, ReceiveDwa as Dwa, ReceiveOther as Other,
            TimerExpires as Tw,
        };
        use State::{Down, Initial, Okay, Reopen, Suspect};
        let mut w = PeerWatchdog::default();
        assert_eq!(run_events(&mut w, &[Dwa, Other, Tw, Up]), [Initial, Initial, Initial, Okay]);
        assert_eq!(run_events(&mut w, &[Other, Tw, Dwa, Tw, Tw]), [Okay, Okay, Okay, Okay, Suspect]);
        // Another message ends the suspicion, but the watchdog stays unanswered.
        assert_eq!(run_events(&mut w, &[Other, Tw, Dwa, Tw]), [Okay, Suspect, Okay, Okay]);
        assert_eq!(run_events(&mut w, &[Tw, Tw, Gone]), [Suspect, Down, Down]);
        assert_eq!(run_events(&mut w, &[Dwa, Other, Tw, Up]), [Down, Down, Down, Reopen]);
        assert_eq!(run_events(&mut w, &[Other, Tw, Tw]), [Reopen, Reopen, Down]);
        assert_eq!(run_events(&mut w, &[Up, Dwa, Tw, Dwa, Dwa]), [Reopen, Reopen, Reopen, Reopen, Okay]);
        assert_eq!(run_events(&mut w, &[Gone, Up, Gone]), [Down, Reopen, Down]);
        let mut w = PeerWatchdog::default();
        assert_eq!(run_events(&mut w, &[Up, Tw, Tw, Gone]), [Okay, Okay, Suspect, Down]);
    }

    #[test]
    fn every_line_is_taken() {
        WatchdogAutomaton::cover(run_all_watchdog_rows);
    }

    #[test]
    fn the_table_is_the_rfcs() {
        let mut ours: Vec<_> = WatchdogAutomaton::DIAGRAM.lines.iter().map(|line| line.to_string()).collect();
        let mut printed: Vec<_> = crate::vectors::WATCHDOG.lines().collect();
        // The RFC sorts by event, this table by state.
        ours.sort();
        printed.sort_unstable();
        assert_eq!(ours, printed);
    }

    #[test]
    fn an_answer_to_a_closed_connection_still_ends_the_wait() {
        for state in [State::Initial, State::Down] {
            let mut w = PeerWatchdog { state, pending: true, num_dwa: 0 };
            assert_eq!(w.apply_event(Event::ReceiveDwa), [Action::ClearPending, Action::Throwaway]);
            assert_eq!((w.state, w.pending), (state, false));
        }
    }

    #[test]
    fn a_first_connection_leaves_the_variables_alone() {
        let mut w = PeerWatchdog { state: State::Initial, pending: true, num_dwa: 0 };
        assert_eq!(w.apply_event(Event::ConnectionUp), [Action::SetWatchdog]);
        assert_eq!((w.state, w.pending), (State::Okay, true));
    }

    #[test]
    fn a_reopened_connection_that_misses_an_answer_needs_three_more() {
        let mut w = PeerWatchdog { state: State::Reopen, pending: true, num_dwa: 2 };
        let _ = w.apply_event(Event::TimerExpires);
        assert_eq!((w.state, w.num_dwa), (State::Reopen, -1));
        for _ in 0..3 {
            assert_eq!(w.apply_event(Event::ReceiveDwa), [Action::ClearPending, Action::CountDwa]);
            assert_eq!(w.state, State::Reopen);
            let _ = w.apply_event(Event::TimerExpires);
        }
        assert_eq!(w.apply_event(Event::ReceiveDwa), PROVEN);
        assert_eq!(w.state, State::Okay);
    }

    #[test]
    fn a_reopened_connection_proves_itself_by_three_answers() {
        let mut w = PeerWatchdog { state: State::Down, pending: false, num_dwa: 0 };
        let _ = w.apply_event(Event::ConnectionUp);
        for _ in 0..2 {
            let _ = w.apply_event(Event::ReceiveDwa);
            assert_eq!(w.state(), State::Reopen);
            assert_eq!(
                w.apply_event(Event::TimerExpires),
                [Action::SendWatchdog, Action::SetWatchdog, Action::SetPending]
            );
        }
        assert_eq!(w.apply_event(Event::ReceiveDwa), PROVEN);
        assert_eq!(w.state(), State::Okay);
    }

    #[test]
    fn jitter_stays_within_two_seconds() {
        let mut rng = Seed::new(1).derive_secure_rng("watchdog", 0);
        let (tw, j) = (Duration::from_secs(30), Duration::from_secs(2));
        let draws: Vec<_> = (0..1000).map(|_| sample_interval(tw, j, &mut rng)).collect();
        assert!(draws.iter().all(|d| (28..=32).contains(&d.as_secs())));
        assert!(draws.iter().any(|d| d.as_secs() == 28) && draws.iter().any(|d| d.as_secs() == 31));
    }
}
