//! Lockout after failed proofs by shared keys. An attacker with many addresses has a budget in each network, so
//! failures are also counted by connection.
//!
//! A lockout does not affect honest users. A proof is checked if its network has no recent failure. It is also
//! checked if the same identity has recently authenticated from that host and has not failed since.

use super::config::{IkeConnectionConfig, IkeEndpointConfig};
use super::pressure::{LeakyBucket, host_prefix, network_prefix};
use crate::payload::Identification;
use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::sync::Arc;
use core::hash::BuildHasher;
use core::net::IpAddr;
use usher_core::collections::SeededHashState;
use usher_core::recent::RecentKeyTable;
use usher_core::{Duration, Instant};

/// How long a failed proof marks its network, and the shortest interval between two reports.
const FAILED: Duration = Duration::from_secs(600);
/// How long a successful proof exempts an identity at a host.
const PROVED: Duration = Duration::from_secs(7 * 86_400);
/// Most networks, and most exempt identities.
const CAPACITY: usize = 1 << 16;

#[derive(Clone, Copy, Debug, Default)]
struct FailedAttemptCounter {
    debt: LeakyBucket,
    last_reported_at: Option<Instant>,
}

/// The sender of a proof and its connection.
#[derive(Clone, Copy, Debug)]
pub(super) struct IdentityClaim<'a> {
    pub(super) connection: &'a str,
    /// The claimed identity.
    pub(super) identity: &'a Identification,
    /// The proven address.
    pub(super) from: IpAddr,
}

/// Networks with failed proofs by shared keys, and identities that have authenticated.
#[derive(Debug)]
pub(super) struct IkeLockoutTable {
    hash: SeededHashState,
    /// By connection.
    failed: BTreeMap<String, FailedAttemptCounter>,
    networks: RecentKeyTable,
    /// Identities by host. Others at the same host, as behind a NAT, are separate.
    proven_identities: RecentKeyTable,
}

impl IkeLockoutTable {
    pub(super) fn new(hash: &SeededHashState) -> Self {
        let recent = || RecentKeyTable::new(CAPACITY, hash);
        Self { hash: hash.clone(), failed: BTreeMap::new(), networks: recent(), proven_identities: recent() }
    }
    /// Returns the keys of a claim: its network, and its identity and host; each with the connection.
    fn hash_claim_keys(&self, IdentityClaim { connection, identity, from }: IdentityClaim<'_>) -> [u64; 2] {
        let network = self.hash.hash_one((connection, network_prefix(from)));
        [network, self.hash.hash_one((connection, host_prefix(from), identity))]
    }

    /// True if the proof is to be checked.
    pub(super) fn allows_proof_check(
        &self,
        now: Instant,
        config: &IkeEndpointConfig,
        claim: IdentityClaim<'_>,
    ) -> bool {
        let debt = self.failed.get(claim.connection).map_or(LeakyBucket::default(), |failed| failed.debt);
        if !debt.is_minute_limit_reached(now, config.failed_proofs_per_minute) {
            return true;
        }
        let [network, who] = self.hash_claim_keys(claim);
        self.proven_identities.is_recent(now, who, PROVED) || !self.networks.is_recent(now, network, FAILED)
    }
    /// Records a failed proof. True if the limit is reached and was not reported recently.
    pub(super) fn record_failure(
        &mut self,
        now: Instant,
        config: &IkeEndpointConfig,
        claim: IdentityClaim<'_>,
    ) -> bool {
        let [network, who] = self.hash_claim_keys(claim);
        self.networks.record_recent_key(now, network);
        self.proven_identities.remove_key(who);
        let most = config.failed_proofs_per_minute;
        let failed = self.failed.entry(claim.connection.into()).or_default();
        // While the connection is locked out, only exempt peers are still admitted. Their failures are not counted, so
        // that they do not prolong the lockout of others.
        if !failed.debt.is_minute_limit_reached(now, most) {
            failed.debt.charge_minute_share(now, most);
        }
        let tells = failed.debt.is_minute_limit_reached(now, most)
            && failed.last_reported_at.is_none_or(|told| now.duration_since(told) >= FAILED);
        if tells {
            failed.last_reported_at = Some(now);
        }
        tells
    }
    /// Records a successful proof.
    pub(super) fn record_success(&mut self, now: Instant, claim: IdentityClaim<'_>) {
        let [_, who] = self.hash_claim_keys(claim);
        self.proven_identities.record_recent_key(now, who);
    }
    /// Keeps the state of these connections and drops all others.
    pub(super) fn retain_connections(&mut self, connections: &[Arc<IkeConnectionConfig>]) {
        self.failed.retain(|name, _| connections.iter().any(|connection| connection.name == *name));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::net::Ipv4Addr;
    use usher_core::SecureRng;
    use usher_core::collections::hash_state;

    fn instant_at(secs: u64) -> Instant {
        Instant::ZERO + Duration::from_secs(secs)
    }
    /// Returns a claim from a host of a network, to a connection.
    fn claim_from_host(
        connection: &'static str,
        network: u32,
        host: u32,
        identity: &str,
    ) -> IdentityClaim<'static> {
        static NAMES: std::sync::LazyLock<[Identification; 2]> =
            std::sync::LazyLock::new(|| ["ann.test", "bob.test"].map(Identification::from_fqdn));
        let identity = NAMES.iter().find(|name| name.as_text() == Some(identity)).unwrap();
        IdentityClaim {
            connection,
            identity,
            from: Ipv4Addr::from(0x0a00_0000 + (network << 8) + host).into(),
        }
    }
    fn site_claim_from(network: u32, host: u32) -> IdentityClaim<'static> {
        claim_from_host("site", network, host, "ann.test")
    }

    #[test]
    fn who_guesses_is_held_back_and_nobody_else() {
        let mut guesses = IkeLockoutTable::new(&hash_state(&mut SecureRng::from_seed([3; 32])));
        let config = IkeEndpointConfig { failed_proofs_per_minute: 6, ..IkeEndpointConfig::default() };
        let weighs = |guesses: &IkeLockoutTable, secs, network, host| {
            guesses.allows_proof_check(instant_at(secs), &config, site_claim_from(network, host))
        };
        guesses.record_success(instant_at(0), site_claim_from(9, 1));
        guesses.record_success(instant_at(0), site_claim_from(8, 1));
        assert!(
            !guesses.record_failure(instant_at(0), &config, site_claim_from(9, 2)),
            "a neighbour of who is known"
        );
        for n in 1..5 {
            assert!(weighs(&guesses, 0, n, 1) && weighs(&guesses, 0, 9, 2));
            assert!(!guesses.record_failure(instant_at(0), &config, site_claim_from(n, 1)));
        }
        assert!(guesses.record_failure(instant_at(0), &config, site_claim_from(5, 1)), "the sixth is told");
        assert!(!weighs(&guesses, 1, 1, 1) && !weighs(&guesses, 1, 1, 7) && !weighs(&guesses, 1, 9, 2));
        assert!(weighs(&guesses, 1, 6, 1), "from elsewhere");
        assert!(weighs(&guesses, 1, 9, 1) && weighs(&guesses, 1, 8, 1), "who is known");
        assert!(
            guesses.allows_proof_check(instant_at(1), &config, claim_from_host("other", 1, 1, "ann.test")),
            "of another key"
        );
        // In all, one proof in ten seconds is checked, from any source.
        assert!(weighs(&guesses, 10, 1, 1));
        assert!(
            !guesses.record_failure(instant_at(10), &config, site_claim_from(1, 1)),
            "it is not told again"
        );
        assert!(!weighs(&guesses, 11, 1, 1));
        // An exempt identity that fails is no longer exempt.
        assert!(!guesses.record_failure(instant_at(11), &config, site_claim_from(8, 1)));
        assert!(!weighs(&guesses, 12, 8, 1));
        // A network is marked for ten minutes.
        for n in 0..7 {
            guesses.record_failure(instant_at(610), &config, site_claim_from(n, 1));
        }
        assert!(weighs(&guesses, 611, 8, 1) && !weighs(&guesses, 611, 1, 1));
        guesses.retain_connections(&[]);
        assert!(weighs(&guesses, 611, 1, 1));
    }

    /// Many users share a host behind a NAT. A failure there, or an earlier success, concerns its own identity alone.
    #[test]
    fn who_is_known_at_a_host_is_not_held_back_by_who_fails_there() {
        let mut guesses = IkeLockoutTable::new(&hash_state(&mut SecureRng::from_seed([3; 32])));
        let config = IkeEndpointConfig { failed_proofs_per_minute: 1, ..IkeEndpointConfig::default() };
        let [ann, bob] = ["ann.test", "bob.test"].map(|name| claim_from_host("site", 1, 1, name));
        guesses.record_success(instant_at(0), ann);
        guesses.record_success(instant_at(0), bob);
        assert!(guesses.record_failure(instant_at(1), &config, bob));
        assert!(
            guesses.allows_proof_check(instant_at(2), &config, ann)
                && !guesses.allows_proof_check(instant_at(2), &config, bob)
        );
        let elsewhere = claim_from_host("site", 1, 2, "ann.test");
        assert!(
            !guesses.allows_proof_check(instant_at(2), &config, elsewhere),
            "nor is she known elsewhere by that"
        );
    }

    #[test]
    fn without_a_limit_nobody_is_held_back() {
        let mut guesses = IkeLockoutTable::new(&hash_state(&mut SecureRng::from_seed([3; 32])));
        let config = IkeEndpointConfig { failed_proofs_per_minute: 0, ..IkeEndpointConfig::default() };
        for _ in 0..1000 {
            assert!(!guesses.record_failure(instant_at(0), &config, site_claim_from(1, 1)));
        }
        assert!(guesses.allows_proof_check(instant_at(0), &config, site_claim_from(1, 1)));
    }
}
