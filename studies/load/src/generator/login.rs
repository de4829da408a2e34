//! Outstanding logins, and the record of their ends.

use crate::tally::{LoginFailure, LoginStats, MethodStats, record_latency};
use usher_core::{Duration, Instant};

/// The start of a login.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LoginStart {
    /// The due time.
    pub(crate) intended: Instant,
    /// Index of the user.
    pub(crate) user: usize,
    /// True for a wrong password, which the server must reject.
    pub(crate) wrong: bool,
    /// The window of measurement; 0 for none.
    pub(crate) window: u32,
    /// Index of the method, if there are several.
    pub(crate) method: u16,
}

/// An outstanding login with its protocol's state.
#[derive(Debug)]
pub(crate) struct PendingLogin<S> {
    pub(crate) start: LoginStart,
    /// Time at which the client first got its current request.
    pub(crate) requested_at: Instant,
    pub(crate) rounds: u16,
    pub(crate) state: S,
}

/// Logins by token. Tokens are never reused: the upper half counts.
#[derive(Debug)]
pub(crate) struct LoginTable<S> {
    slots: Vec<(u32, Option<PendingLogin<S>>)>,
    free: Vec<u32>,
}

impl<S> Default for LoginTable<S> {
    fn default() -> Self {
        Self { slots: Vec::new(), free: Vec::new() }
    }
}

impl<S> LoginTable<S> {
    pub(crate) fn len(&self) -> usize {
        self.slots.len() - self.free.len()
    }
    /// Returns the token of the next login.
    pub(crate) fn next_token(&self) -> u64 {
        match self.free.last() {
            Some(&i) => make_login_token(self.slots[i as usize].0, i),
            None => make_login_token(0, self.slots.len() as u32),
        }
    }
    pub(crate) fn insert(&mut self, login: PendingLogin<S>) -> u64 {
        let token = self.next_token();
        match self.free.pop() {
            Some(i) => self.slots[i as usize].1 = Some(login),
            None => self.slots.push((0, Some(login))),
        }
        token
    }
    pub(crate) fn get_mut(&mut self, token: u64) -> Option<&mut PendingLogin<S>> {
        let (generation, login) = self.slots.get_mut(token as u32 as usize)?;
        if *generation == (token >> 32) as u32 { login.as_mut() } else { None }
    }
    pub(crate) fn remove(&mut self, token: u64) -> Option<PendingLogin<S>> {
        self.get_mut(token)?;
        let index = token as u32;
        let place = &mut self.slots[index as usize];
        // Generations use 30 bits only, because the AAA client uses the two highest bits of a token.
        place.0 = place.0.wrapping_add(1) & ((1 << 30) - 1);
        self.free.push(index);
        place.1.take()
    }
    pub(crate) fn iter(&self) -> impl Iterator<Item = (u64, &PendingLogin<S>)> {
        let places = self.slots.iter().enumerate();
        places.filter_map(|(i, (generation, login))| {
            Some((make_login_token(*generation, i as u32), login.as_ref()?))
        })
    }
}

const fn make_login_token(generation: u32, index: u32) -> u64 {
    (generation as u64) << 32 | index as u64
}

/// The kind of success of a login.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum LoginSuccess {
    Accepted,
    /// Rejected, as a wrong password must be.
    RejectedAsExpected,
}

/// Records the ends of logins.
#[derive(Debug, Default)]
pub(crate) struct LoginResultRecorder {
    pub(crate) tally: LoginStats,
    /// The current window of measurement; 0 for none.
    pub(crate) window: u32,
    /// Number of methods with statistics of their own; 0 if there is only one.
    pub(crate) methods: usize,
    /// Start of the window, and its end once known.
    pub(crate) from: Instant,
    pub(crate) to: Option<Instant>,
    /// Time of the last recorded end.
    pub(crate) last: Instant,
}

impl LoginResultRecorder {
    fn is_measuring(&self, now: Instant) -> bool {
        self.window != 0 && self.to.is_none_or(|to| now <= to)
    }
    pub(crate) const fn is_counted(&self, start: &LoginStart) -> bool {
        self.window != 0 && start.window == self.window
    }
    /// Returns the statistics of a method; `None` if there is only one.
    pub(crate) fn method_stats(&mut self, start: &LoginStart) -> Option<&mut MethodStats> {
        if self.tally.parts.len() < self.methods {
            self.tally.parts.resize_with(self.methods, MethodStats::default);
        }
        self.tally.parts.get_mut(usize::from(start.method))
    }
    /// Records the start of a login, which had capacity since `room`.
    pub(crate) fn record_login_start(&mut self, now: Instant, room: Instant, start: &LoginStart) {
        if self.is_counted(start) {
            self.tally.started += 1;
            record_latency(&mut self.tally.lag, now.duration_since(start.intended));
            record_latency(&mut self.tally.own_lag, now.duration_since(start.intended.max(room)));
            if let Some(part) = self.method_stats(start) {
                part.started += 1;
            }
        }
    }
    /// Records a login that did not end within its window and that the window does not wait for.
    pub(crate) fn record_unfinished_login(&mut self, start: &LoginStart, failure: Option<LoginFailure>) {
        if !self.is_counted(start) {
            return;
        }
        match failure {
            Some(failure) => self.tally.count_failures(failure, 1),
            None => self.tally.cut_off += 1,
        }
        if let Some(part) = self.method_stats(start) {
            if failure.is_some() { part.failed += 1 } else { part.cut_off += 1 }
        }
    }
    pub(crate) fn record_login_end(
        &mut self,
        now: Instant,
        start: &LoginStart,
        result: Result<LoginSuccess, LoginFailure>,
    ) {
        if result.is_ok() && self.is_measuring(now) {
            self.tally.completed += 1;
        }
        if !self.is_counted(start) {
            return;
        }
        self.last = now;
        let time = now.duration_since(start.intended);
        if let Some(part) = self.method_stats(start) {
            match result {
                Ok(success) => {
                    part.succeeded += 1;
                    if success == LoginSuccess::Accepted {
                        record_latency(&mut part.latency, time);
                    }
                }
                Err(_) => part.failed += 1,
            }
        }
        match result {
            Ok(success) => {
                self.tally.succeeded += 1;
                if success == LoginSuccess::Accepted {
                    record_latency(&mut self.tally.latency, time);
                } else {
                    self.tally.expected_rejects += 1;
                    record_latency(&mut self.tally.reject_latency, time);
                }
            }
            Err(failure) => self.tally.count_failures(failure, 1),
        }
    }
    /// Records an answered request.
    pub(crate) fn record_answered_request(&mut self, now: Instant, asked: Instant) {
        if self.is_measuring(now) {
            self.tally.exchanges += 1;
            record_latency(&mut self.tally.exchange_latency, now.duration_since(asked));
        }
    }
    /// Counts an acknowledged accounting record.
    pub(crate) fn count_record(&mut self, now: Instant) {
        if self.is_measuring(now) {
            self.tally.records += 1;
        }
    }
    /// Counts an echo that was sent.
    pub(crate) fn count_sent_echo(&mut self) {
        self.tally.echoes += u64::from(self.window != 0);
    }
    /// Records the reply to an echo of this window.
    pub(crate) fn record_echo_reply(&mut self, window: u32, time: Duration) {
        if window != 0 && window == self.window {
            self.tally.echoes_answered += 1;
            record_latency(&mut self.tally.echo_latency, time);
        }
    }
    pub(crate) fn record_fault(&mut self, now: Instant, code: u32) {
        if self.is_measuring(now) {
            *self.tally.results.entry(code).or_default() += 1;
        }
    }
}

/// Delay until a login without capacity is tried again.
pub(super) const RETRY: Duration = Duration::from_millis(5);

/// The reason why a login did not begin.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum LoginDeferral {
    /// No capacity: try later.
    Full,
}

/// Returns a different password of the same length.
pub(super) fn alter_password<'a>(password: &[u8], room: &'a mut [u8; 128]) -> &'a [u8] {
    let length = password.len().clamp(1, 128);
    room[0] = b'x';
    room[..password.len().min(128)].copy_from_slice(&password[..password.len().min(128)]);
    room[length - 1] ^= 1;
    &room[..length]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn test_login(user: usize) -> PendingLogin<()> {
        let start = LoginStart { intended: Instant::ZERO, user, wrong: false, window: 1, method: 0 };
        PendingLogin { start, requested_at: Instant::ZERO, rounds: 0, state: () }
    }

    #[test]
    fn a_token_names_one_login_only() {
        let mut logins = LoginTable::default();
        let a = logins.insert(test_login(1));
        let b = logins.insert(test_login(2));
        assert_eq!(logins.remove(a).unwrap().start.user, 1);
        let next = logins.next_token();
        let c = logins.insert(test_login(3));
        assert_eq!(next, c);
        assert!(logins.get_mut(a).is_none() && logins.remove(a).is_none());
        assert_eq!(logins.iter().map(|(t, l)| (t, l.start.user)).collect::<Vec<_>>(), [(c, 3), (b, 2)]);
        assert_eq!(logins.len(), 2);
    }
}
