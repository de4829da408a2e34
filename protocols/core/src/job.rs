//! Jobs: slow work that leaves a machine, and the origin of each.

use alloc::sync::{Arc, Weak};
use core::net::IpAddr;

/// Slow work that a machine requests: a store lookup, a signature, a password hash, a name lookup. The result returns
/// as a command with the token.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct JobRequest<J> {
    /// Returns with the result.
    pub token: u64,
    /// The work.
    pub job: J,
    /// The host and login that the job is for.
    pub origin: JobRequester,
}

impl<J> JobRequest<J> {
    /// A job of the host itself, which is never abandoned.
    pub const fn new(token: u64, what: J) -> Self {
        Self { token, job: what, origin: JobRequester { host: None, waiter: None } }
    }
    /// Returns the job with another origin.
    #[must_use]
    pub fn with_origin(self, origin: JobRequester) -> Self {
        Self { origin, ..self }
    }
    /// Returns the job as the container of the machine names it.
    pub fn map<T>(self, change: impl FnOnce(J) -> T) -> JobRequest<T> {
        JobRequest { token: self.token, job: change(self.job), origin: self.origin }
    }
}

/// The job type of a machine without jobs.
pub type NoJob = core::convert::Infallible;

/// A handle of the login or other entry that waits for results. Its jobs may be skipped once it is dropped.
///
/// ```
/// # use usher_core::{JobRequester, JobRequest, JobWaiter};
/// let waiter = JobWaiter::default();
/// let job = JobRequest::new(1, "sign").with_origin(JobRequester::from_address("192.0.2.1".parse().unwrap()).with_waiter(&waiter));
/// assert!(job.origin.is_result_needed());
/// drop(waiter);
/// assert!(!job.origin.is_result_needed());
/// ```
#[derive(Debug, Default)]
pub struct JobWaiter(Arc<()>);

/// The host that a job is for, and the entry that waits for it.
#[derive(Clone, Debug, Default)]
pub struct JobRequester {
    host: Option<IpAddr>,
    waiter: Option<Weak<()>>,
}

impl JobRequester {
    /// A host at this address. Addresses that one subscriber can choose freely share an origin (see
    /// [`host_of`](crate::address::host_of)).
    #[must_use]
    pub fn from_address(address: IpAddr) -> Self {
        Self { host: Some(crate::address::host_of(address)), waiter: None }
    }
    /// Returns the origin with a waiter: the job may be skipped once the waiter is dropped.
    #[must_use]
    pub fn with_waiter(self, waiter: &JobWaiter) -> Self {
        Self { waiter: Some(Arc::downgrade(&waiter.0)), ..self }
    }
    /// Returns the host; `None`: unknown.
    #[must_use]
    pub const fn host(&self) -> Option<IpAddr> {
        self.host
    }
    /// True if the result is still needed.
    #[must_use]
    pub fn is_result_needed(&self) -> bool {
        self.waiter.as_ref().is_none_or(|waiter| waiter.strong_count() > 0)
    }
}

impl PartialEq for JobRequester {
    fn eq(&self, other: &Self) -> bool {
        let same = match (&self.waiter, &other.waiter) {
            (Some(one), Some(other)) => one.ptr_eq(other),
            (None, None) => true,
            _ => false,
        };
        same && self.host == other.host
    }
}

impl Eq for JobRequester {}
