//! Sessions of subscribers.

use super::config::SubscriberPlace;
use super::grant::SubscriberGrant;
use crate::pool::Lease;
use crate::{SessionTraffic, TerminateCause};
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::net::{Ipv4Addr, Ipv6Addr};
use usher_core::{Duration, Instant};

/// The addresses of a session in records and for requests of AAA servers.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct SubscriberAddresses {
    /// The IPv4 address.
    pub ipv4: Option<Ipv4Addr>,
    /// The IPv6 address as a prefix, or the prefix of the link, and its length.
    pub ipv6: Option<(Ipv6Addr, u8)>,
    /// The prefix for the network behind the host, and its length.
    pub delegated: Option<(Ipv6Addr, u8)>,
}

/// A new session of a subscriber.
#[derive(Debug)]
pub struct NewSubscriberSession<A> {
    /// The authorization.
    pub grant: SubscriberGrant,
    /// The place.
    pub place: Arc<SubscriberPlace>,
    /// The addresses.
    pub addresses: SubscriberAddresses,
    /// Its leases, which its end releases.
    pub leases: Vec<Lease>,
    /// True if the subscriber has opened it. AAA servers get no records of other sessions and cannot change them.
    pub is_accounted: bool,
    /// The service's own state.
    pub access: A,
}

/// A session of a subscriber.
#[derive(Debug)]
pub struct SubscriberSession<A> {
    /// The service's own state.
    pub access: A,
    /// The authorization.
    pub grant: SubscriberGrant,
    /// The addresses.
    pub addresses: SubscriberAddresses,
    /// Rates up and down, bit/s; `None`: unlimited.
    pub rates: (Option<u64>, Option<u64>),
    /// True if the end waits for the last traffic.
    pub awaits_traffic: bool,
    /// True if the end waits for the service's log.
    pub awaits_log: bool,
    pub(super) place: Arc<SubscriberPlace>,
    pub(super) leases: Vec<Lease>,
    /// Acct-Session-Id.
    pub(super) acct: String,
    pub(super) is_accounted: bool,
    pub(super) has_sent_start: bool,
    /// Number of records so far.
    pub(super) record_count: u32,
    pub(super) since: Instant,
    pub(super) traffic: SessionTraffic,
    /// The time of the last traffic.
    pub(super) last_traffic: Instant,
    pub(super) ends: Option<Instant>,
    /// The time without traffic that ends it, and the time of the next check.
    pub(super) idle: Option<(Duration, Instant)>,
    pub(super) interim: Option<(Duration, Instant)>,
    /// True if its time is over, and it continues until an AAA server answers.
    pub(super) is_overdue: bool,
    /// True if the service is ending it. Nothing else ends or changes it then.
    pub(super) is_ending: bool,
    /// The time and cause of the end.
    pub(super) end: Option<(Instant, TerminateCause)>,
}

impl<A> SubscriberSession<A> {
    /// Returns Acct-Session-Id.
    #[must_use]
    pub fn acct_session_id(&self) -> &str {
        &self.acct
    }
    /// Returns the place.
    #[must_use]
    pub fn place(&self) -> &SubscriberPlace {
        &self.place
    }
    /// Returns the start.
    #[must_use]
    pub const fn since(&self) -> Instant {
        self.since
    }
    /// Returns the duration so far, or until the end.
    #[must_use]
    pub fn duration(&self, now: Instant) -> Duration {
        self.end.map_or(now, |(at, _)| at).duration_since(self.since)
    }
    /// Returns the time of the end.
    #[must_use]
    pub fn ended_at(&self) -> Option<Instant> {
        self.end.map(|(at, _)| at)
    }
    /// Returns the cause of the end.
    #[must_use]
    pub fn cause(&self) -> TerminateCause {
        self.end.map_or_else(TerminateCause::default, |(_, cause)| cause)
    }
    /// True if an accounting Start was sent.
    #[must_use]
    pub const fn has_sent_start(&self) -> bool {
        self.has_sent_start
    }
    /// Returns the number of the next record.
    #[must_use]
    pub const fn next_record_number(&self) -> u32 {
        self.record_count
    }
    /// Returns the total traffic so far.
    #[must_use]
    pub const fn traffic(&self) -> SessionTraffic {
        self.traffic
    }
}
