//! The station's registration: one entry of the Binding Update List (RFC 6275 §11.1), with its retransmissions
//! (§11.8).

use crate::message::{BindingAcknowledgement, BindingLifetime, BindingStatus, BindingUpdate};
use alloc::vec::Vec;
use usher_core::{Duration, Instant};

/// Timers of a registration.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RegistrationTimerConfig {
    /// Time to wait for the acknowledgement of a first update, without a valid binding. It doubles at each
    /// retransmission (`InitialBindackTimeoutFirstReg`).
    pub first: Duration,
    /// The same with a valid binding (`INITIAL_BINDACK_TIMEOUT`).
    pub initial: Duration,
    /// Maximum wait (`MAX_BINDACK_TIMEOUT`).
    pub longest: Duration,
    /// The requested lifetime, truncated to units of four seconds.
    pub lifetime: Duration,
}

impl Default for RegistrationTimerConfig {
    /// RFC 6275 §12 and §13: 1.5 s, 1 s, 32 s; and 420 s (`MAX_RR_BINDING_LIFETIME`).
    fn default() -> Self {
        Self {
            first: Duration::from_millis(1500),
            initial: Duration::from_secs(1),
            longest: Duration::from_secs(32),
            lifetime: Duration::from_secs(420),
        }
    }
}

/// The meaning of an acknowledgement.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum BindingAckOutcome {
    /// The binding is valid for this long. The registration refreshes it after three quarters of that.
    Bound(Duration),
    /// The update was refused; it is not repeated.
    Refused(BindingStatus),
    /// The sequence number was too low. It is now raised, and the next update is due at once.
    Raised,
    /// It does not answer a pending update.
    Stale,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum BindingRegistrationState {
    Idle,
    /// Updates from `first` to the latest one are pending.
    Waiting {
        first: u16,
        wait: Duration,
        due: Instant,
    },
    Bound {
        refresh: Instant,
    },
}

/// A station's registration, which returns the updates to send and their times.
#[derive(Clone, Debug)]
pub struct BindingRegistration {
    timing: RegistrationTimerConfig,
    /// The sequence number of the latest update.
    sequence: u16,
    /// End of the latest accepted binding.
    until: Option<Instant>,
    state: BindingRegistrationState,
}

impl BindingRegistration {
    /// Creates an idle registration. The first update has the sequence number after `sequence`.
    #[must_use]
    pub const fn new(timing: RegistrationTimerConfig, sequence: u16) -> Self {
        Self { timing, sequence, until: None, state: BindingRegistrationState::Idle }
    }
    /// Starts the registration and returns its first update.
    pub fn start_registration(&mut self, now: Instant) -> BindingUpdate {
        let holds = self.until.is_some_and(|until| until > now);
        self.next_update(now, None, if holds { self.timing.initial } else { self.timing.first })
    }
    /// Stops the registration. Later acknowledgements are stale.
    pub const fn stop(&mut self) {
        self.state = BindingRegistrationState::Idle;
    }
    /// Returns when [`Self::handle_timeout`] is due.
    #[must_use]
    pub const fn poll_timeout(&self) -> Option<Instant> {
        match self.state {
            BindingRegistrationState::Idle => None,
            BindingRegistrationState::Waiting { due, .. } => Some(due),
            BindingRegistrationState::Bound { refresh } => Some(refresh),
        }
    }
    /// Returns the update that is due: a retransmission with a new sequence number (§11.8), or a refresh.
    pub fn handle_timeout(&mut self, now: Instant) -> Option<BindingUpdate> {
        match self.state {
            BindingRegistrationState::Waiting { first, wait, due } if due <= now => {
                let wait = (wait + wait).min(self.timing.longest);
                Some(self.next_update(now, Some(first), wait))
            }
            BindingRegistrationState::Bound { refresh } if refresh <= now => {
                Some(self.start_registration(now))
            }
            _ => None,
        }
    }
    /// Handles an acknowledgement (§11.7.3). After [`BindingAckOutcome::Raised`], call [`Self::handle_timeout`].
    pub fn handle_acknowledgement(
        &mut self,
        now: Instant,
        ack: &BindingAcknowledgement,
    ) -> BindingAckOutcome {
        let BindingRegistrationState::Waiting { first, wait, .. } = self.state else {
            return BindingAckOutcome::Stale;
        };
        if ack.status == BindingStatus::SEQUENCE_OUT_OF_WINDOW {
            // If the acknowledgement names a number that this side has sent, an update arrived twice, and the refusal
            // is ignored.
            if (ack.sequence.wrapping_sub(first) as i16) >= 0
                && (self.sequence.wrapping_sub(ack.sequence) as i16) >= 0
            {
                return BindingAckOutcome::Stale;
            }
            self.sequence = ack.sequence;
            let first = ack.sequence.wrapping_add(1);
            self.state = BindingRegistrationState::Waiting { first, wait: halve_wait(wait), due: now };
            return BindingAckOutcome::Raised;
        }
        if ack.sequence.wrapping_sub(first) > self.sequence.wrapping_sub(first) {
            return BindingAckOutcome::Stale;
        }
        if !ack.status.is_accepted() {
            self.state = BindingRegistrationState::Idle;
            return BindingAckOutcome::Refused(ack.status);
        }
        let lifetime = ack.lifetime.to_duration();
        self.until = Some(now + lifetime);
        let quarter = lifetime.as_nanos() / 4;
        self.state = match quarter {
            0 => BindingRegistrationState::Idle,
            _ => BindingRegistrationState::Bound { refresh: now + Duration::from_nanos(3 * quarter) },
        };
        BindingAckOutcome::Bound(lifetime)
    }

    fn next_update(&mut self, now: Instant, first: Option<u16>, wait: Duration) -> BindingUpdate {
        self.sequence = self.sequence.wrapping_add(1);
        let first = first.unwrap_or(self.sequence);
        self.state = BindingRegistrationState::Waiting { first, wait, due: now + wait };
        BindingUpdate {
            sequence: self.sequence,
            acknowledge: true,
            home_registration: true,
            link_local: false,
            key_management: false,
            lifetime: BindingLifetime::from_duration(self.timing.lifetime),
            options: Vec::new(),
        }
    }
}

/// Halves the wait, so that the next doubling restores it.
const fn halve_wait(wait: Duration) -> Duration {
    Duration::from_nanos(wait.as_nanos() / 2)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn test_acknowledgement(status: BindingStatus, sequence: u16) -> BindingAcknowledgement {
        let lifetime = BindingLifetime(105);
        BindingAcknowledgement { status, key_management: false, sequence, lifetime, options: Vec::new() }
    }
    fn at_seconds(n: u64) -> Instant {
        Instant::ZERO + Duration::from_secs(n)
    }

    #[test]
    fn updates_are_resent_after_doubling_waits_with_rising_numbers() {
        let mut registration = BindingRegistration::new(RegistrationTimerConfig::default(), 65_530);
        let mut sent = vec![(0, registration.start_registration(Instant::ZERO).sequence)];
        while sent.len() < 8 {
            let at = registration.poll_timeout().unwrap();
            let early = at.as_nanos() - 1;
            assert_eq!(registration.handle_timeout(Instant::from_nanos(early)), None);
            let update = registration.handle_timeout(at).unwrap();
            sent.push((at.as_nanos() / 1_000_000, update.sequence));
        }
        let times = [0, 1500, 4500, 10_500, 22_500, 46_500, 78_500, 110_500];
        let numbers = [65_531, 65_532, 65_533, 65_534, 65_535, 0, 1, 2];
        assert_eq!(sent, times.into_iter().zip(numbers).collect::<Vec<_>>());
        // The acknowledgement of any of them suffices.
        assert_eq!(
            registration.handle_acknowledgement(
                at_seconds(95),
                &test_acknowledgement(BindingStatus::ACCEPTED, 65_530)
            ),
            BindingAckOutcome::Stale
        );
        assert_eq!(
            registration
                .handle_acknowledgement(at_seconds(95), &test_acknowledgement(BindingStatus::ACCEPTED, 3)),
            BindingAckOutcome::Stale
        );
        let bound = BindingAckOutcome::Bound(Duration::from_secs(420));
        assert_eq!(
            registration.handle_acknowledgement(
                at_seconds(95),
                &test_acknowledgement(BindingStatus::ACCEPTED, 65_533)
            ),
            bound
        );
        assert_eq!(
            registration.handle_acknowledgement(
                at_seconds(95),
                &test_acknowledgement(BindingStatus::ACCEPTED, 65_534)
            ),
            BindingAckOutcome::Stale
        );
    }

    #[test]
    fn a_binding_is_refreshed_before_it_ends() {
        let mut registration = BindingRegistration::new(RegistrationTimerConfig::default(), 0);
        registration.start_registration(Instant::ZERO);
        registration.handle_acknowledgement(Instant::ZERO, &test_acknowledgement(BindingStatus::ACCEPTED, 1));
        assert_eq!(registration.poll_timeout(), Some(at_seconds(315)));
        assert_eq!(registration.handle_timeout(at_seconds(315)).unwrap().sequence, 2);
        assert_eq!(registration.poll_timeout(), Some(at_seconds(316)));
        registration.stop();
        assert_eq!(registration.poll_timeout(), None);
        assert_eq!(registration.handle_timeout(at_seconds(999)), None);
    }

    #[test]
    fn a_first_registration_waits_longer_than_a_refreshment() {
        let mut registration = BindingRegistration::new(RegistrationTimerConfig::default(), 0);
        let wait = |registration: &mut BindingRegistration, at: u64| {
            registration.start_registration(at_seconds(at));
            registration.poll_timeout().unwrap().duration_since(at_seconds(at)).as_millis()
        };
        assert_eq!(wait(&mut registration, 0), 1500);
        registration.handle_acknowledgement(at_seconds(0), &test_acknowledgement(BindingStatus::ACCEPTED, 1));
        assert_eq!(wait(&mut registration, 419), 1000);
        // Once the binding has ended, the next update is a first one again.
        assert_eq!(wait(&mut registration, 420), 1500);
    }

    #[test]
    fn a_refusal_ends_it() {
        let mut registration = BindingRegistration::new(RegistrationTimerConfig::default(), 0);
        registration.start_registration(Instant::ZERO);
        let refused = BindingAckOutcome::Refused(BindingStatus::NOT_HOME_AGENT);
        assert_eq!(
            registration.handle_acknowledgement(
                Instant::ZERO,
                &test_acknowledgement(BindingStatus::NOT_HOME_AGENT, 1)
            ),
            refused
        );
        assert_eq!(registration.poll_timeout(), None);
    }

    #[test]
    fn a_number_that_is_too_low_is_raised() {
        let mut registration = BindingRegistration::new(RegistrationTimerConfig::default(), 0);
        registration.start_registration(Instant::ZERO);
        let late = test_acknowledgement(BindingStatus::SEQUENCE_OUT_OF_WINDOW, 500);
        assert_eq!(registration.handle_acknowledgement(at_seconds(0), &late), BindingAckOutcome::Raised);
        assert_eq!(registration.handle_timeout(at_seconds(0)).unwrap().sequence, 501);
        assert_eq!(registration.poll_timeout(), Some(Instant::from_nanos(1_500_000_000)));
        // An acknowledgement with our own number means that an update arrived twice.
        assert_eq!(
            registration.handle_acknowledgement(
                at_seconds(0),
                &test_acknowledgement(BindingStatus::SEQUENCE_OUT_OF_WINDOW, 501)
            ),
            BindingAckOutcome::Stale
        );
    }
}
