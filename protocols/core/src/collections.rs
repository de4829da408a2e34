//! Hash maps for machines: fast, without std, and keyed by a seed. So an attacker of a live host cannot choose
//! colliding keys, and the simulator stays repeatable.
//!
//! Never let the iteration order of such a map reach a result or a packet: look up only, or sort first.

use crate::rng::SecureRng;

/// The seeded hasher behind [`HashMap`] and [`HashSet`].
pub type SeededHashState = foldhash::fast::FixedState;
/// A hash map with a seeded hasher.
pub type HashMap<K, V> = hashbrown::HashMap<K, V, SeededHashState>;
/// A hash set with a seeded hasher.
pub type HashSet<K> = hashbrown::HashSet<K, SeededHashState>;

/// A table of values that hold their own keys. The caller passes each hash, and the table stores only the values. It
/// suits small entries, such as slot numbers: a map would store each key twice.
pub type HashTable<T> = hashbrown::HashTable<T>;

/// Draws a hasher state from the machine's random stream.
pub fn hash_state(rng: &mut SecureRng) -> SeededHashState {
    SeededHashState::with_seed(rng.next_u64())
}
