//! The watchdog of RFC 3539 §3.4 as the state table of its appendix A.

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
    Initial ReceiveDwa     Always:             Keep         [Throwaway]                             Initial;
    Initial ReceiveOther   Always:             Keep         [Throwaway]                             Initial;
    Down    ReceiveDwa     Always:             Keep         [Throwaway]                             Down;
    Down    ReceiveOther   Always:             Keep         [Throwaway]                             Down;
    Okay    TimerExpires   NotPending:         SetPending   [SendWatchdog SetWatchdog]              Okay;
    Okay    TimerExpires   Pending:            Keep         [Failover SetWatchdog]                  Suspect;
    Suspect TimerExpires   Always:             Keep         [CloseConnection SetWatchdog]           Down;
    Initial TimerExpires   Always:             Keep         [AttemptOpen SetWatchdog]               Initial;
    Down    TimerExpires   Always:             Keep         [AttemptOpen SetWatchdog]               Down;
    Reopen  TimerExpires   NotPending:         SetPending   [SendWatchdog SetWatchdog]              Reopen;
    Reopen  TimerExpires   PendingNegative:    Keep         [CloseConnection SetWatchdog]           Down;
    Reopen  TimerExpires   PendingNotNegative: MissDwa      [SetWatchdog]                           Reopen;
    Initial ConnectionUp   Always:             ClearPending [SetWatchdog]                           Okay;
    Down    ConnectionUp   Always:             StartCount   [SendWatchdog SetWatchdog]              Reopen;
    Okay    ConnectionDown Always:             Keep         [CloseConnection Failover SetWatchdog]  Down;
    Suspect ConnectionDown Always:             Keep         [CloseConnection SetWatchdog]           Down;
    Reopen  ConnectionDown Always:             Keep         [CloseConnection SetWatchdog]           Down;
};

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
