//! The watchdog of RFC 3539 §3.4 as the state table of its appendix A.

use super::Line;
use alloc::string::String;
use alloc::vec::Vec;
use usher_core::{Duration, SecureRng};

/// The states of a transport connection.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum State {
    /// Not yet up for the first time.
    Initial,
    /// Up.
    Okay,
    /// A watchdog went unanswered: no new requests.
    Suspect,
    /// Gone.
    Down,
    /// Up again, and to be proven by three answered watchdogs.
    Reopen,
}

impl State {
    /// As the RFC writes it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Initial => "INITIAL",
            Self::Okay => "OKAY",
            Self::Suspect => "SUSPECT",
            Self::Down => "DOWN",
            Self::Reopen => "REOPEN",
        }
    }
}

/// What happens to it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Event {
    /// A DWA came.
    ReceiveDwa,
    /// Any other message came.
    ReceiveOther,
    /// The timer Tw expired.
    TimerExpires,
    /// The connection came up (capabilities are exchanged).
    ConnectionUp,
    /// The connection went down.
    ConnectionDown,
}

impl Event {
    /// As the RFC writes it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::ReceiveDwa => "Receive DWA",
            Self::ReceiveOther => "Receive non-DWA",
            Self::TimerExpires => "Timer expires",
            Self::ConnectionUp => "Connection up",
            Self::ConnectionDown => "Connection down",
        }
    }
}

/// What is to be done.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Action {
    /// Start the timer anew.
    SetWatchdog,
    /// Send a DWR.
    SendWatchdog,
    /// Send requests to the alternate.
    Failover,
    /// Send requests here again.
    Failback,
    /// Close the connection at once.
    CloseConnection,
    /// Try to open the connection.
    AttemptOpen,
    /// The message does not count as a sign of life.
    Throwaway,
}

impl Action {
    /// As the RFC writes it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::SetWatchdog => "SetWatchdog()",
            Self::SendWatchdog => "SendWatchdog()",
            Self::Failover => "Failover()",
            Self::Failback => "Failback()",
            Self::CloseConnection => "CloseConnection()",
            Self::AttemptOpen => "AttemptOpen()",
            Self::Throwaway => "Throwaway()",
        }
    }
}

/// A condition of a line on `Pending` and `NumDWA`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Guard {
    /// None.
    Always,
    /// `Pending` is set.
    Pending,
    /// `Pending` is clear.
    NotPending,
    /// `NumDWA == 2`
    LastDwa,
    /// `NumDWA < 2`
    FewDwa,
    /// `Pending` and `NumDWA < 0`
    PendingNegative,
    /// `Pending` and `NumDWA >= 0`
    PendingNotNegative,
}

impl Guard {
    /// As the RFC writes it behind an event's `&`; empty for none.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Always => "",
            Self::Pending => "Pending",
            Self::NotPending => "!Pending",
            Self::LastDwa => "NumDWA == 2",
            Self::FewDwa => "NumDWA < 2",
            Self::PendingNegative => "Pending & NumDWA < 0",
            Self::PendingNotNegative => "Pending & NumDWA >= 0",
        }
    }
}

/// How a line changes `Pending` and `NumDWA`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Update {
    /// Not at all.
    Keep,
    /// `Pending = TRUE`
    SetPending,
    /// `Pending = FALSE`
    ClearPending,
    /// `Pending = FALSE, NumDWA++`
    CountDwa,
    /// `NumDWA = 0, Pending = TRUE`
    StartCount,
    /// `NumDWA = -1`
    MissDwa,
}

impl Update {
    /// As the RFC writes it: what stands before a line's actions, and what behind them.
    pub const fn names(self) -> (&'static [&'static str], &'static [&'static str]) {
        match self {
            Self::Keep => (&[], &[]),
            Self::SetPending => (&[], &["Pending = TRUE"]),
            Self::ClearPending => (&["Pending = FALSE"], &[]),
            Self::CountDwa => (&["Pending = FALSE", "NumDWA++"], &[]),
            Self::StartCount => (&["NumDWA = 0"], &["Pending = TRUE"]),
            Self::MissDwa => (&["NumDWA = -1"], &[]),
        }
    }
}

/// One line of the table.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Row {
    /// In this state,
    pub state: State,
    /// on this event,
    pub event: Event,
    /// if this holds,
    pub guard: Guard,
    /// change the variables so,
    pub update: Update,
    /// do this in order
    pub actions: &'static [Action],
    /// and go there.
    pub next: State,
}

macro_rules! table {
    ($($state:ident $event:ident $guard:ident: $update:ident [$($action:ident)*] $next:ident;)*) => {
        &[$(Row {
            state: State::$state, event: Event::$event, guard: Guard::$guard, update: Update::$update,
            actions: &[$(Action::$action),*], next: State::$next,
        }),*]
    };
}

/// The table of RFC 3539, appendix A.
#[rustfmt::skip]
pub const TABLE: &[Row] = table! {
    Okay    ReceiveDwa     Always:             ClearPending [SetWatchdog]                           Okay;
    Okay    ReceiveOther   Always:             Keep         [SetWatchdog]                           Okay;
    Suspect ReceiveDwa     Always:             ClearPending [Failback SetWatchdog]                  Okay;
    Suspect ReceiveOther   Always:             Keep         [Failback SetWatchdog]                  Okay;
    Reopen  ReceiveDwa     LastDwa:            CountDwa     [Failback]                              Okay;
    Reopen  ReceiveDwa     FewDwa:             CountDwa     []                                      Reopen;
    Reopen  ReceiveOther   Always:             Keep         [Throwaway]                             Reopen;
    Initial ReceiveDwa     Always:             ClearPending [Throwaway]                             Initial;
    Initial ReceiveOther   Always:             Keep         [Throwaway]                             Initial;
    Down    ReceiveDwa     Always:             ClearPending [Throwaway]                             Down;
    Down    ReceiveOther   Always:             Keep         [Throwaway]                             Down;
    Okay    TimerExpires   NotPending:         SetPending   [SendWatchdog SetWatchdog]              Okay;
    Okay    TimerExpires   Pending:            Keep         [Failover SetWatchdog]                  Suspect;
    Suspect TimerExpires   Always:             Keep         [CloseConnection SetWatchdog]           Down;
    Initial TimerExpires   Always:             Keep         [AttemptOpen SetWatchdog]               Initial;
    Down    TimerExpires   Always:             Keep         [AttemptOpen SetWatchdog]               Down;
    Reopen  TimerExpires   NotPending:         SetPending   [SendWatchdog SetWatchdog]              Reopen;
    Reopen  TimerExpires   PendingNegative:    Keep         [CloseConnection SetWatchdog]           Down;
    Reopen  TimerExpires   PendingNotNegative: MissDwa      [SetWatchdog]                           Reopen;
    Initial ConnectionUp   Always:             Keep         [SetWatchdog]                           Okay;
    Down    ConnectionUp   Always:             StartCount   [SendWatchdog SetWatchdog]              Reopen;
    Okay    ConnectionDown Always:             Keep         [CloseConnection Failover SetWatchdog]  Down;
    Suspect ConnectionDown Always:             Keep         [CloseConnection SetWatchdog]           Down;
    Reopen  ConnectionDown Always:             Keep         [CloseConnection SetWatchdog]           Down;
};

/// The table in the RFC's words, line by line in its order; changes of variables stand among the actions.
pub fn rows() -> impl Iterator<Item = Line> {
    TABLE.iter().map(|row| {
        let mut event = String::from(row.event.name());
        if row.guard != Guard::Always {
            event.push_str(" & ");
            event.push_str(row.guard.name());
        }
        let (before, after) = row.update.names();
        let actions: Vec<_> = row.actions.iter().map(|a| a.name()).collect();
        Line {
            state: row.state.name(),
            event,
            actions: [before, &actions, after].concat(),
            next: row.next.name(),
        }
    })
}

/// The watchdog of one peer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Watchdog {
    state: State,
    pending: bool,
    num_dwa: i8,
}

impl Default for Watchdog {
    fn default() -> Self {
        Self { state: State::Initial, pending: false, num_dwa: 0 }
    }
}

impl Watchdog {
    /// The state.
    pub const fn state(&self) -> State {
        self.state
    }

    fn holds(&self, guard: Guard) -> bool {
        match guard {
            Guard::Always => true,
            Guard::Pending => self.pending,
            Guard::NotPending => !self.pending,
            Guard::LastDwa => self.num_dwa == 2,
            Guard::FewDwa => self.num_dwa < 2,
            Guard::PendingNegative => self.pending && self.num_dwa < 0,
            Guard::PendingNotNegative => self.pending && self.num_dwa >= 0,
        }
    }

    /// Takes the step of the table and says what to do; an event without a line changes nothing.
    #[must_use]
    pub fn step(&mut self, event: Event) -> &'static [Action] {
        let row = TABLE.iter().find(|r| r.state == self.state && r.event == event && self.holds(r.guard));
        let Some(row) = row else { return &[] };
        match row.update {
            Update::Keep => {}
            Update::SetPending => self.pending = true,
            Update::ClearPending => self.pending = false,
            Update::CountDwa => {
                self.pending = false;
                self.num_dwa += 1;
            }
            Update::StartCount => {
                self.num_dwa = 0;
                self.pending = true;
            }
            Update::MissDwa => self.num_dwa = -1,
        }
        self.state = row.next;
        row.actions
    }
}

/// Tw with its jitter: uniform in `tw - jitter ..= tw + jitter` (RFC 3539 §3.4.1: 30 s, 2 s).
pub fn jittered(tw: Duration, jitter: Duration, rng: &mut SecureRng) -> Duration {
    let offset = (jitter * 2).mul_f64(rng.unit());
    (tw + offset).saturating_sub(jitter)
}

#[cfg(test)]
mod tests {
    use super::*;
    use usher_core::Seed;

    #[test]
    fn each_line_of_the_table() {
        for row in TABLE {
            let (pending, num_dwa) = match row.guard {
                Guard::Always | Guard::NotPending => (false, 0),
                Guard::Pending => (true, 0),
                Guard::LastDwa => (true, 2),
                Guard::FewDwa => (true, 1),
                Guard::PendingNegative => (true, -1),
                Guard::PendingNotNegative => (true, 0),
            };
            let mut w = Watchdog { state: row.state, pending, num_dwa };
            assert_eq!(w.step(row.event), row.actions, "{row:?}");
            let expected = match row.update {
                Update::Keep => (pending, num_dwa),
                Update::SetPending => (true, num_dwa),
                Update::ClearPending => (false, num_dwa),
                Update::CountDwa => (false, num_dwa + 1),
                Update::StartCount => (true, 0),
                Update::MissDwa => (pending, -1),
            };
            assert_eq!((w.state, w.pending, w.num_dwa), (row.next, expected.0, expected.1), "{row:?}");
        }
        assert_eq!(TABLE.len(), 24);
    }

    #[test]
    fn the_table_is_the_rfcs() {
        let ours: Vec<_> = rows().map(|line| line.to_string()).collect();
        assert_eq!(ours, crate::vectors::WATCHDOG.lines().collect::<Vec<_>>());
    }

    #[test]
    fn an_answer_to_a_closed_connection_still_ends_the_wait() {
        for state in [State::Initial, State::Down] {
            let mut w = Watchdog { state, pending: true, num_dwa: 0 };
            assert_eq!(w.step(Event::ReceiveDwa), [Action::Throwaway]);
            assert_eq!((w.state, w.pending), (state, false));
        }
    }

    #[test]
    fn a_first_connection_leaves_the_variables_alone() {
        let mut w = Watchdog { state: State::Initial, pending: true, num_dwa: 0 };
        assert_eq!(w.step(Event::ConnectionUp), [Action::SetWatchdog]);
        assert_eq!((w.state, w.pending), (State::Okay, true));
    }

    #[test]
    fn a_reopened_connection_that_misses_an_answer_needs_three_more() {
        let mut w = Watchdog { state: State::Reopen, pending: true, num_dwa: 2 };
        let _ = w.step(Event::TimerExpires);
        assert_eq!((w.state, w.num_dwa), (State::Reopen, -1));
        for _ in 0..3 {
            assert_eq!(w.step(Event::ReceiveDwa), []);
            assert_eq!(w.state, State::Reopen);
            let _ = w.step(Event::TimerExpires);
        }
        assert_eq!(w.step(Event::ReceiveDwa), [Action::Failback]);
        assert_eq!(w.state, State::Okay);
    }

    #[test]
    fn a_reopened_connection_proves_itself_by_three_answers() {
        let mut w = Watchdog { state: State::Down, pending: false, num_dwa: 0 };
        let _ = w.step(Event::ConnectionUp);
        for _ in 0..2 {
            let _ = w.step(Event::ReceiveDwa);
            assert_eq!(w.state(), State::Reopen);
            assert_eq!(w.step(Event::TimerExpires), [Action::SendWatchdog, Action::SetWatchdog]);
        }
        assert_eq!(w.step(Event::ReceiveDwa), [Action::Failback]);
        assert_eq!(w.state(), State::Okay);
    }

    #[test]
    fn jitter_stays_within_two_seconds() {
        let mut rng = Seed::new(1).secure("watchdog", 0);
        let (tw, j) = (Duration::from_secs(30), Duration::from_secs(2));
        let draws: Vec<_> = (0..1000).map(|_| jittered(tw, j, &mut rng)).collect();
        assert!(draws.iter().all(|d| (28..=32).contains(&d.as_secs())));
        assert!(draws.iter().any(|d| d.as_secs() == 28) && draws.iter().any(|d| d.as_secs() == 31));
    }
}
