//! Statistics of logins: counts by name, and histograms of latency.

use hdrhistogram::Histogram;
use std::collections::BTreeMap;
use usher_core::Duration;

/// The reason why a login failed.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum LoginFailure {
    /// No reply to any transmission.
    Timeout,
    /// Rejected with the right password.
    Rejected,
    /// Accepted with a wrong password.
    WronglyAccepted,
    /// A challenge after the end of the method.
    UnexpectedChallenge,
    /// A reply without its required EAP packet.
    NoEap,
    /// The peer discarded the server's EAP packet.
    EapDiscarded,
    /// The peer's method failed: it rejects the server's proof (its certificate, its response).
    EapFailed,
    /// Accepted before the end of the method.
    EarlySuccess,
    /// More rounds than a login may take.
    TooManyRounds,
    /// Accepted without the keys of the method.
    NoKeys,
    /// The keys of the reply differ from those that the method derived.
    WrongKeys,
    /// MS-CHAP2-Success is missing or is not the server's proof.
    WrongProof,
    /// The server failed: a result of 3xxx, 4xxx or 5xxx other than a reject.
    ServerFault,
    /// No connection to the server.
    Unreachable,
    /// The connection closed during a request.
    ConnectionLost,
    /// A reply that does not match the request or cannot be parsed.
    BadAnswer,
    /// It was due, but the limit of concurrent logins held until the end.
    NotBegun,
    /// Outstanding when the wait ended.
    Unfinished,
    /// Outstanding or not begun at the end of a ramp's step, and later than the ramp's limit.
    Overdue,
}

impl LoginFailure {
    /// All failures in the order of their declaration.
    pub const ALL: [Self; 19] = [
        Self::Timeout,
        Self::Rejected,
        Self::WronglyAccepted,
        Self::UnexpectedChallenge,
        Self::NoEap,
        Self::EapDiscarded,
        Self::EapFailed,
        Self::EarlySuccess,
        Self::TooManyRounds,
        Self::NoKeys,
        Self::WrongKeys,
        Self::WrongProof,
        Self::ServerFault,
        Self::Unreachable,
        Self::ConnectionLost,
        Self::BadAnswer,
        Self::NotBegun,
        Self::Unfinished,
        Self::Overdue,
    ];

    /// Returns its name in rows and JSON.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Timeout => "timeout",
            Self::Rejected => "rejected",
            Self::WronglyAccepted => "wrongly_accepted",
            Self::UnexpectedChallenge => "unexpected_challenge",
            Self::NoEap => "no_eap",
            Self::EapDiscarded => "eap_discarded",
            Self::EapFailed => "eap_failed",
            Self::EarlySuccess => "early_success",
            Self::TooManyRounds => "too_many_rounds",
            Self::NoKeys => "no_keys",
            Self::WrongKeys => "wrong_keys",
            Self::WrongProof => "wrong_proof",
            Self::ServerFault => "server_fault",
            Self::Unreachable => "unreachable",
            Self::ConnectionLost => "connection_lost",
            Self::BadAnswer => "bad_answer",
            Self::NotBegun => "not_begun",
            Self::Unfinished => "unfinished",
            Self::Overdue => "overdue",
        }
    }

    /// Returns its meaning and a hint for the user.
    #[must_use]
    pub const fn explanation(self) -> &'static str {
        match self {
            Self::Timeout => {
                "no reply: the server is unreachable or overloaded, does not know this host as a client, or has \
                 another shared secret"
            }
            Self::Rejected => {
                "rejected: the server does not know the user, or has another password or method"
            }
            Self::WronglyAccepted => "accepted with a wrong password",
            Self::UnexpectedChallenge => {
                "challenged although the method has one round: the server expects another method"
            }
            Self::NoEap => "a reply without an EAP packet: the server does not use EAP for this user",
            Self::EapDiscarded => "the server's EAP packet does not fit this method",
            Self::EapFailed => {
                "the server's authentication failed: its certificate is not from an authority in --ca, or it does \
                 not know the password"
            }
            Self::EarlySuccess => "accepted before the end of the EAP method",
            Self::TooManyRounds => "the login took too many rounds",
            Self::NoKeys => "accepted without MS-MPPE keys: the server does not send them",
            Self::WrongKeys => "the server's keys differ from those that the method derived",
            Self::WrongProof => "MS-CHAP2-Success is missing or wrong",
            Self::ServerFault => "the server answered with an error; its result codes are listed",
            Self::Unreachable => "no connection: the server is unreachable, or rejects this identity",
            Self::ConnectionLost => "the connection was lost",
            Self::BadAnswer => "the reply is malformed or does not match the request",
            Self::NotBegun => "not started: too many logins in progress (--outstanding)",
            Self::Unfinished => "still in progress at the end",
            Self::Overdue => {
                "still in progress at the end of the step, and later than the ramp allows (--ramp-p99)"
            }
        }
    }
}

/// Latencies from 1 µs to 10 min, to three digits, in nanoseconds.
pub type LatencyHistogram = Histogram<u64>;

fn new_histogram() -> LatencyHistogram {
    Histogram::new_with_bounds(1_000, 600_000_000_000, 3).expect("the bounds are constants that fit")
}

/// The statistics of one of several methods.
#[derive(Clone, Debug)]
pub struct MethodStats {
    /// Logins that began.
    pub started: u64,
    /// Logins with the right result.
    pub succeeded: u64,
    /// Logins that failed.
    pub failed: u64,
    /// Cut off; see [`LoginStats::cut_off`].
    pub cut_off: u64,
    /// Latency of accepted logins.
    pub latency: LatencyHistogram,
}

impl Default for MethodStats {
    fn default() -> Self {
        Self { started: 0, succeeded: 0, failed: 0, cut_off: 0, latency: new_histogram() }
    }
}

impl MethodStats {
    fn add(&mut self, other: &Self) {
        self.started += other.started;
        self.succeeded += other.succeeded;
        self.failed += other.failed;
        self.cut_off += other.cut_off;
        self.latency.add(&other.latency).expect("both have the same bounds");
    }
}

/// The statistics of logins. In complete statistics, each due login is in one of `succeeded`, the failures and
/// `cut_off`.
#[derive(Clone, Debug)]
pub struct LoginStats {
    /// Logins that began.
    pub started: u64,
    /// Logins with the right result: accepted with every check passed, or rejected with a wrong password.
    pub succeeded: u64,
    /// The rejected logins among these.
    pub expected_rejects: u64,
    /// Successes in the measured time, including logins that began earlier: the basis of throughput.
    pub completed: u64,
    /// Due logins that were outstanding at the end of the step or of an interrupted run; their result is unknown.
    pub cut_off: u64,
    /// Failures by kind.
    failures: [u64; LoginFailure::ALL.len()],
    /// Result codes of server faults.
    pub results: BTreeMap<u32, u64>,
    /// Answered requests.
    pub exchanges: u64,
    /// Acknowledged accounting records.
    pub records: u64,
    /// Time from a login's due time to its end, for accepted logins.
    pub latency: LatencyHistogram,
    /// The same for logins rejected as expected.
    pub reject_latency: LatencyHistogram,
    /// Time from a request's first transmission to its reply.
    pub exchange_latency: LatencyHistogram,
    /// Lateness of the starts of logins.
    pub lag: LatencyHistogram,
    /// The generator's own part of the lateness: the time in which there was capacity for the login.
    pub own_lag: LatencyHistogram,
    /// Echoes sent in sessions.
    pub echoes: u64,
    /// Echoes with a reply.
    pub echoes_answered: u64,
    /// Time from an echo to its reply.
    pub echo_latency: LatencyHistogram,
    /// Statistics by method, if there are several.
    pub parts: Vec<MethodStats>,
}

impl Default for LoginStats {
    fn default() -> Self {
        Self {
            started: 0,
            succeeded: 0,
            expected_rejects: 0,
            completed: 0,
            cut_off: 0,
            failures: [0; LoginFailure::ALL.len()],
            results: BTreeMap::new(),
            exchanges: 0,
            records: 0,
            latency: new_histogram(),
            reject_latency: new_histogram(),
            exchange_latency: new_histogram(),
            lag: new_histogram(),
            own_lag: new_histogram(),
            echoes: 0,
            echoes_answered: 0,
            echo_latency: new_histogram(),
            parts: Vec::new(),
        }
    }
}

impl LoginStats {
    /// Returns the count of a failure.
    #[must_use]
    pub const fn failure_count(&self, failure: LoginFailure) -> u64 {
        self.failures[failure as usize]
    }
    /// Returns each failure that occurred, with its count.
    pub fn failures(&self) -> impl Iterator<Item = (LoginFailure, u64)> {
        LoginFailure::ALL.into_iter().map(|f| (f, self.failure_count(f))).filter(|(_, n)| *n > 0)
    }
    /// Returns the number of failures.
    #[must_use]
    pub fn failed_total(&self) -> u64 {
        self.failures.iter().sum()
    }
    /// Returns the number of logins that ended.
    #[must_use]
    pub fn ended_total(&self) -> u64 {
        self.succeeded + self.failed_total()
    }
    /// Returns the share of right results among the logins that ended; 1 without any.
    #[must_use]
    pub fn success_ratio(&self) -> f64 {
        let ended = self.ended_total();
        if ended == 0 { 1.0 } else { self.succeeded as f64 / ended as f64 }
    }
    /// Returns the share of echoes without a reply; `None` without echoes.
    #[must_use]
    pub fn lost_echo_fraction(&self) -> Option<f64> {
        let lost = self.echoes.saturating_sub(self.echoes_answered);
        (self.echoes > 0).then(|| lost as f64 / self.echoes as f64)
    }
    /// Counts failures.
    pub(crate) const fn count_failures(&mut self, failure: LoginFailure, times: u64) {
        self.failures[failure as usize] += times;
    }
    /// Adds other statistics.
    pub fn add(&mut self, other: &Self) {
        self.started += other.started;
        self.succeeded += other.succeeded;
        self.expected_rejects += other.expected_rejects;
        self.completed += other.completed;
        self.cut_off += other.cut_off;
        self.exchanges += other.exchanges;
        self.records += other.records;
        self.echoes += other.echoes;
        self.echoes_answered += other.echoes_answered;
        for (sum, n) in self.failures.iter_mut().zip(other.failures) {
            *sum += n;
        }
        for (code, n) in &other.results {
            *self.results.entry(*code).or_default() += n;
        }
        let histograms = [
            (&mut self.latency, &other.latency),
            (&mut self.reject_latency, &other.reject_latency),
            (&mut self.exchange_latency, &other.exchange_latency),
            (&mut self.lag, &other.lag),
            (&mut self.own_lag, &other.own_lag),
            (&mut self.echo_latency, &other.echo_latency),
        ];
        for (sum, other) in histograms {
            sum.add(other).expect("both have the same bounds");
        }
        if self.parts.len() < other.parts.len() {
            self.parts.resize_with(other.parts.len(), MethodStats::default);
        }
        for (sum, other) in self.parts.iter_mut().zip(&other.parts) {
            sum.add(other);
        }
    }
}

/// Records a time.
pub(crate) fn record_latency(histogram: &mut LatencyHistogram, time: Duration) {
    histogram.saturating_record(time.as_nanos());
}

/// Returns a quantile in seconds; `None` for an empty histogram.
#[must_use]
pub fn quantile(histogram: &LatencyHistogram, q: f64) -> Option<f64> {
    (!histogram.is_empty()).then(|| histogram.value_at_quantile(q) as f64 * 1e-9)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tallies_add_up() {
        let (mut a, mut b) = (LoginStats::default(), LoginStats::default());
        a.succeeded = 3;
        a.count_failures(LoginFailure::Timeout, 1);
        record_latency(&mut a.latency, Duration::from_millis(1));
        b.count_failures(LoginFailure::Timeout, 1);
        b.count_failures(LoginFailure::WrongKeys, 2);
        record_latency(&mut b.latency, Duration::from_millis(3));
        b.results.insert(5003, 4);
        (a.cut_off, b.cut_off) = (1, 2);
        b.parts = vec![
            MethodStats { succeeded: 1, ..MethodStats::default() },
            MethodStats { failed: 2, ..MethodStats::default() },
        ];
        a.add(&b);
        a.add(&b.clone());
        assert_eq!((a.cut_off, a.parts[0].succeeded, a.parts[1].failed), (5, 2, 4));
        assert_eq!(
            a.failures().collect::<Vec<_>>(),
            [(LoginFailure::Timeout, 3), (LoginFailure::WrongKeys, 4)]
        );
        assert_eq!((a.failed_total(), a.results[&5003], a.latency.len()), (7, 8, 3));
        assert!((a.success_ratio() - 3.0 / 10.0).abs() < 1e-12);
        let p99 = quantile(&a.latency, 0.99).unwrap();
        assert!((p99 / 0.003 - 1.0).abs() < 1e-3, "{p99}");
        assert_eq!(quantile(&LoginStats::default().latency, 0.5), None);
    }

    #[test]
    fn every_failure_has_its_place_and_name() {
        for (i, f) in LoginFailure::ALL.into_iter().enumerate() {
            assert_eq!(f as usize, i);
            assert!(LoginFailure::ALL[..i].iter().all(|g| g.name() != f.name()));
        }
    }
}
