//! What a machine asks of whoever may be slow, and for whom it asks.

use alloc::sync::{Arc, Weak};
use core::net::IpAddr;

/// What a machine asks of somebody who may be slow: a store, a processor that signs or hashes, a name service. The answer
/// comes back as a command with the token.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct JobRequest<J> {
    /// Comes back with the answer.
    pub token: u64,
    /// What is to be done.
    pub job: J,
    /// For whom.
    pub origin: JobOrigin,
}

impl<J> JobRequest<J> {
    /// A job of the host itself, which is always awaited.
    pub const fn new(token: u64, what: J) -> Self {
        Self { token, job: what, origin: JobOrigin { host: None, waiter: None } }
    }
    /// The same for somebody else.
    #[must_use]
    pub fn with_origin(self, origin: JobOrigin) -> Self {
        Self { origin, ..self }
    }
    /// The same, called otherwise by whoever contains the machine that asks.
    pub fn map<T>(self, change: impl FnOnce(J) -> T) -> JobRequest<T> {
        JobRequest { token: self.token, job: change(self.job), origin: self.origin }
    }
}

/// What a machine without slow helpers asks of them: nothing.
pub type NoJob = core::convert::Infallible;

/// Held by whoever waits for answers, such as a login: its jobs need not be done once it is dropped.
///
/// ```
/// # use usher_core::{Job, JobOrigin, JobWaiter};
/// let waiter = JobWaiter::default();
/// let job = Job::new(1, "sign").of(JobOrigin::of("192.0.2.1".parse().unwrap()).awaited_by(&waiter));
/// assert!(job.origin.is_awaited());
/// drop(waiter);
/// assert!(!job.origin.is_awaited());
/// ```
#[derive(Debug, Default)]
pub struct JobWaiter(Arc<()>);

/// For whom a job is done.
#[derive(Clone, Debug, Default)]
pub struct JobOrigin {
    host: Option<IpAddr>,
    waiter: Option<Weak<()>>,
}

impl JobOrigin {
    /// Somebody at this address, with whom all share who could have it as well (see [`host_of`](crate::address::host_of)).
    #[must_use]
    pub fn from_address(address: IpAddr) -> Self {
        Self { host: Some(crate::address::host_of(address)), waiter: None }
    }
    /// The same, as long as somebody waits for the answer.
    #[must_use]
    pub fn awaited_by(self, waiter: &JobWaiter) -> Self {
        Self { waiter: Some(Arc::downgrade(&waiter.0)), ..self }
    }
    /// The host that it is for; `None`: it is not told apart.
    #[must_use]
    pub const fn host(&self) -> Option<IpAddr> {
        self.host
    }
    /// Whether somebody still waits for the answer.
    #[must_use]
    pub fn is_awaited(&self) -> bool {
        self.waiter.as_ref().is_none_or(|waiter| waiter.strong_count() > 0)
    }
}

impl PartialEq for JobOrigin {
    fn eq(&self, other: &Self) -> bool {
        let same = match (&self.waiter, &other.waiter) {
            (Some(one), Some(other)) => one.ptr_eq(other),
            (None, None) => true,
            _ => false,
        };
        same && self.host == other.host
    }
}

impl Eq for JobOrigin {}
