//! Admission: session limits and addresses.

use super::Ledger;
use super::limits::{
    self, AdmissionRefusal, AdmissionVerdict, AdmitRequest, NewLockouts, PendingAdmission,
    address_and_prefix_leases,
};
use crate::users::{canonical_station_id, canonical_user_name, is_same_station_id};
use core::hash::BuildHasher;
use core::net::{IpAddr, Ipv6Addr};
use usher_access::pool::{Lease, PoolUse};
use usher_core::{Instant, WallTime};

/// An address and a prefix.
type LeasedAddresses = (Option<IpAddr>, Option<(Ipv6Addr, u8)>);

impl Ledger {
    /// Admits an authenticated user, or refuses. The leases are held for
    /// [`super::LedgerConfig::admission_timeout`]. A repeated request of the same user, NAS and station returns the
    /// same leases. Without Calling-Station-Id the port counts.
    ///
    /// Simultaneous-Use counts open sessions and pending admissions, except those of the same Calling-Station-Id.
    /// So reauthentication or roaming of a station keeps its session and address.
    pub fn admit_user(&mut self, now: Instant, wall: WallTime, request: &AdmitRequest) -> AdmissionVerdict {
        self.expire_sessions(now);
        let admission = self.decide_admission(now, wall, request);
        *match admission {
            AdmissionVerdict::Yes { .. } | AdmissionVerdict::Unavailable => &mut self.counters.admitted,
            AdmissionVerdict::No(AdmissionRefusal::TooManyFailures) => &mut self.counters.refused_failures,
            AdmissionVerdict::No(AdmissionRefusal::TooManySessions { .. } | AdmissionRefusal::Full) => {
                &mut self.counters.refused_sessions
            }
            AdmissionVerdict::No(AdmissionRefusal::PoolExhausted | AdmissionRefusal::UnknownPool) => {
                &mut self.counters.refused_pool
            }
        } += 1;
        admission
    }
    fn decide_admission(&mut self, now: Instant, wall: WallTime, request: &AdmitRequest) -> AdmissionVerdict {
        let keys = self.failure_keys(&request.user, &request.calling_station_id);
        if let Some(failures) = &mut self.failures {
            if keys.into_iter().flatten().any(|key| failures.is_locked_out(now, key)) {
                return AdmissionVerdict::No(AdmissionRefusal::TooManyFailures);
            }
            keys.into_iter().flatten().for_each(|key| failures.clear_failures(key));
        }
        let again = self.admitted.of_user(&request.user).find(|(_, held)| {
            let unnamed = held.calling.is_empty() && request.calling_station_id.is_empty();
            let port = unnamed && !request.port.is_empty() && *held.port == *request.port;
            held.nas == request.nas
                && (port || is_same_station_id(&held.calling, &request.calling_station_id))
        });
        if let Some((token, held)) = again {
            let admission = AdmissionVerdict::Yes { address: held.address, prefix: held.prefix };
            self.admitted.touch(now, token);
            return admission;
        }
        if let Some(refusal) = self.too_many(request) {
            return AdmissionVerdict::No(refusal);
        }
        let (address, prefix) = match self.lease_addresses(wall, request) {
            Ok(given) => given,
            Err(refusal) => return AdmissionVerdict::No(refusal),
        };
        if self.simultaneous_session_limit(request).is_some() || address.is_some() || prefix.is_some() {
            let held = PendingAdmission {
                user: (*request.user).into(),
                nas: request.nas,
                port: (*request.port).into(),
                calling: (*request.calling_station_id).into(),
                address,
                prefix,
            };
            self.admitted.insert(now, held);
        }
        AdmissionVerdict::Yes { address, prefix }
    }
    /// Returns the maximum number of sessions of the user.
    fn simultaneous_session_limit(&self, request: &AdmitRequest) -> Option<u32> {
        request.simultaneous.or(self.config.simultaneous)
    }
    fn too_many(&self, request: &AdmitRequest) -> Option<AdmissionRefusal> {
        if self.table.len() + self.admitted.len() >= self.config.max_sessions {
            return Some(AdmissionRefusal::Full);
        }
        let allowed = self.simultaneous_session_limit(request)?;
        let open = self.table.of_user(&request.user).map(|(_, s)| s.calling_station());
        let admitted = self.admitted.of_user(&request.user).map(|(_, held)| &*held.calling);
        let others =
            open.chain(admitted).filter(|station| !is_same_station_id(station, &request.calling_station_id));
        (others.take(allowed as usize).count() >= allowed as usize)
            .then_some(AdmissionRefusal::TooManySessions { allowed })
    }
    /// Leases addresses of the user's pool: those that the station has, or free ones.
    fn lease_addresses(
        &mut self,
        wall: WallTime,
        request: &AdmitRequest,
    ) -> Result<LeasedAddresses, AdmissionRefusal> {
        let Some(name) = &request.pool else { return Ok((None, None)) };
        let pool = self.pools.find_pool(name).ok_or(AdmissionRefusal::UnknownPool)?;
        let holder = self.lease_holder(&request.user, &request.calling_station_id);
        // Without Calling-Station-Id, two logins of a user may be two devices, so each gets its own lease.
        let again = !canonical_station_id(request.calling_station_id.as_bytes()).is_empty();
        let (mut address, mut prefix) = (None, None);
        let begin = self.hash.hash_one(wall.unix_secs());
        let (addresses, prefixes) = self.pools.leases_addresses_and_prefixes(pool);
        let mut exhausted = false;
        if addresses {
            match self.pools.take_lease(pool, false, holder, again, begin) {
                Some(Lease::Address(a)) => address = Some(a),
                _ => exhausted = true,
            }
        }
        if prefixes {
            match self.pools.take_lease(pool, true, holder, again, begin) {
                Some(Lease::Prefix(p, n)) => prefix = Some((p, n)),
                _ => exhausted = true,
            }
        }
        if exhausted {
            address_and_prefix_leases(address, prefix).for_each(|lease| self.pools.release(lease));
            return Err(AdmissionRefusal::PoolExhausted);
        }
        Ok((address, prefix))
    }
    /// Counts a failed attempt of a user and a station. Empty strings are not counted. Returns new lockouts.
    pub fn record_failure(&mut self, now: Instant, user: &str, calling_station_id: &str) -> NewLockouts {
        let keys = self.failure_keys(user, calling_station_id);
        let Some(failures) = &mut self.failures else { return NewLockouts::default() };
        // The failure counts for the user and for the station, whether or not it locks the user out.
        let [user, station] = keys.map(|key| key.is_some_and(|key| failures.record_failure(now, key)));
        NewLockouts { user, station }
    }
    /// True if a user or a station is locked out.
    #[must_use]
    pub fn is_locked_out(&self, now: Instant, user: &str, calling_station_id: &str) -> bool {
        let keys = self.failure_keys(user, calling_station_id);
        let held = |key| self.failures.as_ref().is_some_and(|f| f.is_locked_out(now, key));
        keys.into_iter().flatten().any(held)
    }
    /// Use of each pool, including pending admissions.
    pub fn pool_usage(&self) -> impl Iterator<Item = PoolUse<'_>> {
        self.pools.pool_usage()
    }
    /// Number of pending admissions.
    #[must_use]
    pub fn pending_admission_count(&self) -> usize {
        self.admitted.len()
    }

    fn failure_keys(&self, user: &str, station: &str) -> [Option<u64>; 2] {
        limits::failure_keys(&self.hash, user.as_bytes(), station.as_bytes())
    }
    /// Returns the holder of a lease: a user at a station.
    pub(super) fn lease_holder(&self, user: &str, station: &str) -> u64 {
        self.hash.hash_one((canonical_user_name(user), canonical_station_id(station.as_bytes())))
    }
}
