//! Guesses at shared keys. Whoever is at many addresses guesses at each as often as its network may, so that what fails is counted
//! by the key that it fails by, too: of a connection.
//!
//! Nobody is locked out by that who has the key: a network from which none has failed of late has its proof looked at whatever
//! others do, and so has who has been right at that host before, unless his own last one was wrong.

use super::config::{IkeConnection, IkeEndpointConfig};
use super::pressure::{LeakyBucket, host_prefix, network_prefix};
use crate::payload::Identification;
use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::sync::Arc;
use core::hash::BuildHasher;
use core::net::IpAddr;
use usher_core::collections::HashState;
use usher_core::recent::RecentKeys;
use usher_core::{Duration, Instant};

/// For so long a network is known by a proof that has failed, and nobody is told again that too many have.
const FAILED: Duration = Duration::from_secs(600);
/// For so long somebody at a host is known by one that was right.
const PROVED: Duration = Duration::from_secs(7 * 86_400);
/// So many networks are remembered, and as many who are known.
const CAPACITY: usize = 1 << 16;

#[derive(Clone, Copy, Debug, Default)]
struct FailedProofs {
    debt: LeakyBucket,
    last_reported_at: Option<Instant>,
}

/// Who makes a proof, and of which connection.
#[derive(Clone, Copy, Debug)]
pub(super) struct IdentityClaim<'a> {
    pub(super) connection: &'a str,
    /// Who it says it is.
    pub(super) identity: &'a Identification,
    /// Where it has been shown to receive.
    pub(super) from: IpAddr,
}

/// Proofs by shared keys that have failed, and from where.
#[derive(Debug)]
pub(super) struct ProofLockoutTable {
    hash: HashState,
    /// By connections of the configuration.
    failed: BTreeMap<String, FailedProofs>,
    networks: RecentKeys,
    /// Identities at hosts: others there, as behind a NAT, are none of their affair.
    proven_identities: RecentKeys,
}

impl ProofLockoutTable {
    pub(super) fn new(hash: &HashState) -> Self {
        let recent = || RecentKeys::new(CAPACITY, hash);
        Self { hash: hash.clone(), failed: BTreeMap::new(), networks: recent(), proven_identities: recent() }
    }
    /// The network that a claim comes from, and who makes it at which host, to a connection.
    fn claim_keys(&self, IdentityClaim { connection, identity, from }: IdentityClaim<'_>) -> [u64; 2] {
        let network = self.hash.hash_one((connection, network_prefix(from)));
        [network, self.hash.hash_one((connection, host_prefix(from), identity))]
    }

    /// Whether a proof is looked at.
    pub(super) fn admits_proof(
        &self,
        now: Instant,
        config: &IkeEndpointConfig,
        claim: IdentityClaim<'_>,
    ) -> bool {
        let debt = self.failed.get(claim.connection).map_or(LeakyBucket::default(), |failed| failed.debt);
        if !debt.is_of_a_minute(now, config.failed_proofs_per_minute) {
            return true;
        }
        let [network, who] = self.claim_keys(claim);
        self.proven_identities.is_recent(now, who, PROVED) || !self.networks.is_recent(now, network, FAILED)
    }
    /// One was wrong. True: from now on there are too many, which was not told of late.
    pub(super) fn record_failure(
        &mut self,
        now: Instant,
        config: &IkeEndpointConfig,
        claim: IdentityClaim<'_>,
    ) -> bool {
        let [network, who] = self.claim_keys(claim);
        self.networks.record_key(now, network);
        self.proven_identities.remove_key(who);
        let most = config.failed_proofs_per_minute;
        let failed = self.failed.entry(claim.connection.into()).or_default();
        // Those that are looked at all the same put off nobody's any further.
        if !failed.debt.is_of_a_minute(now, most) {
            failed.debt.add_of_a_minute(now, most);
        }
        let tells = failed.debt.is_of_a_minute(now, most)
            && failed.last_reported_at.is_none_or(|told| now.duration_since(told) >= FAILED);
        if tells {
            failed.last_reported_at = Some(now);
        }
        tells
    }
    /// One was right.
    pub(super) fn record_success(&mut self, now: Instant, claim: IdentityClaim<'_>) {
        let [_, who] = self.claim_keys(claim);
        self.proven_identities.record_key(now, who);
    }
    /// These are the connections that there are from now on.
    pub(super) fn retain_connections(&mut self, connections: &[Arc<IkeConnection>]) {
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
    /// Somebody at a host of a network, to a connection.
    fn at_host(connection: &'static str, network: u32, host: u32, identity: &str) -> IdentityClaim<'static> {
        static NAMES: std::sync::LazyLock<[Identification; 2]> =
            std::sync::LazyLock::new(|| ["ann.test", "bob.test"].map(Identification::from_fqdn));
        let identity = NAMES.iter().find(|name| name.as_text() == Some(identity)).unwrap();
        IdentityClaim {
            connection,
            identity,
            from: Ipv4Addr::from(0x0a00_0000 + (network << 8) + host).into(),
        }
    }
    fn claim_from(network: u32, host: u32) -> IdentityClaim<'static> {
        at_host("site", network, host, "ann.test")
    }

    #[test]
    fn who_guesses_is_held_back_and_nobody_else() {
        let mut guesses = ProofLockoutTable::new(&hash_state(&mut SecureRng::from_seed([3; 32])));
        let config = IkeEndpointConfig { failed_proofs_per_minute: 6, ..IkeEndpointConfig::default() };
        let weighs = |guesses: &ProofLockoutTable, secs, network, host| {
            guesses.admits_proof(instant_at(secs), &config, claim_from(network, host))
        };
        guesses.record_success(instant_at(0), claim_from(9, 1));
        guesses.record_success(instant_at(0), claim_from(8, 1));
        assert!(
            !guesses.record_failure(instant_at(0), &config, claim_from(9, 2)),
            "a neighbour of who is known"
        );
        for n in 1..5 {
            assert!(weighs(&guesses, 0, n, 1) && weighs(&guesses, 0, 9, 2));
            assert!(!guesses.record_failure(instant_at(0), &config, claim_from(n, 1)));
        }
        assert!(guesses.record_failure(instant_at(0), &config, claim_from(5, 1)), "the sixth is told");
        assert!(!weighs(&guesses, 1, 1, 1) && !weighs(&guesses, 1, 1, 7) && !weighs(&guesses, 1, 9, 2));
        assert!(weighs(&guesses, 1, 6, 1), "from elsewhere");
        assert!(weighs(&guesses, 1, 9, 1) && weighs(&guesses, 1, 8, 1), "who is known");
        assert!(
            guesses.admits_proof(instant_at(1), &config, at_host("other", 1, 1, "ann.test")),
            "of another key"
        );
        // One in ten seconds, of all, is looked at from wherever it comes.
        assert!(weighs(&guesses, 10, 1, 1));
        assert!(!guesses.record_failure(instant_at(10), &config, claim_from(1, 1)), "it is not told again");
        assert!(!weighs(&guesses, 11, 1, 1));
        // Who is known and fails is known no more.
        assert!(!guesses.record_failure(instant_at(11), &config, claim_from(8, 1)));
        assert!(!weighs(&guesses, 12, 8, 1));
        // A network is told apart for ten minutes.
        for n in 0..7 {
            guesses.record_failure(instant_at(610), &config, claim_from(n, 1));
        }
        assert!(weighs(&guesses, 611, 8, 1) && !weighs(&guesses, 611, 1, 1));
        guesses.retain_connections(&[]);
        assert!(weighs(&guesses, 611, 1, 1));
    }

    /// Behind a NAT many are one host: who guesses there, or has the key of before, is none of the others.
    #[test]
    fn who_is_known_at_a_host_is_not_held_back_by_who_fails_there() {
        let mut guesses = ProofLockoutTable::new(&hash_state(&mut SecureRng::from_seed([3; 32])));
        let config = IkeEndpointConfig { failed_proofs_per_minute: 1, ..IkeEndpointConfig::default() };
        let [ann, bob] = ["ann.test", "bob.test"].map(|name| at_host("site", 1, 1, name));
        guesses.record_success(instant_at(0), ann);
        guesses.record_success(instant_at(0), bob);
        assert!(guesses.record_failure(instant_at(1), &config, bob));
        assert!(
            guesses.admits_proof(instant_at(2), &config, ann)
                && !guesses.admits_proof(instant_at(2), &config, bob)
        );
        let elsewhere = at_host("site", 1, 2, "ann.test");
        assert!(
            !guesses.admits_proof(instant_at(2), &config, elsewhere),
            "nor is she known elsewhere by that"
        );
    }

    #[test]
    fn without_a_limit_nobody_is_held_back() {
        let mut guesses = ProofLockoutTable::new(&hash_state(&mut SecureRng::from_seed([3; 32])));
        let config = IkeEndpointConfig { failed_proofs_per_minute: 0, ..IkeEndpointConfig::default() };
        for _ in 0..1000 {
            assert!(!guesses.record_failure(instant_at(0), &config, claim_from(1, 1)));
        }
        assert!(guesses.admits_proof(instant_at(0), &config, claim_from(1, 1)));
    }
}
