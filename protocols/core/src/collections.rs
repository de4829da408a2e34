//! Hash maps for machines: fast, usable without std, and keyed by a seed, so that a live host can keep
//! an attacker from choosing colliding keys while the simulator stays repeatable.
//!
//! Never let the iteration order of such a map reach a result or a packet: look up only, or sort first.

use crate::rng::SecureRng;

/// The seeded hasher behind [`HashMap`] and [`HashSet`].
pub type HashState = foldhash::fast::FixedState;
/// A hash map with a seeded hasher.
pub type HashMap<K, V> = hashbrown::HashMap<K, V, HashState>;
/// A hash set with a seeded hasher.
pub type HashSet<K> = hashbrown::HashSet<K, HashState>;

/// A table of values that hold their own keys: it is given each hash, and keeps nothing but the values. For many small
/// entries, such as the numbers of slots, where a map would store each key twice.
pub type HashTable<T> = hashbrown::HashTable<T>;

/// A hasher state drawn from the machine's own random stream.
pub fn hash_state(rng: &mut SecureRng) -> HashState {
    HashState::with_seed(rng.next_u64())
}
