//! Labelled random streams from one seed.
//!
//! Each random decision of a run has its own stream, named by purpose and index. So a new host or an extra draw in one
//! place changes no other stream.
//!
//! - [`SimulationRng`] (xoshiro256++) serves models.
//! - [`SecureRng`] (ChaCha12) serves values that an adversary must not guess. A live host seeds it from the operating
//!   system, the simulator from the study's seed.
//!
//! Tests pin the output of both.

use crate::time::Duration;
use rand_core::{Rng as _, SeedableRng};

/// The seed of a run, from which every stream derives.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Seed(u64);

/// Performs a step of SplitMix64, the usual way to widen a seed.
fn step_splitmix(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut z = *state;
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

impl Seed {
    /// A run's seed.
    pub const fn new(seed: u64) -> Self {
        Self(seed)
    }
    /// Returns the number.
    pub const fn value(self) -> u64 {
        self.0
    }
    /// Derives the seed of a part, such as one replication of a point.
    pub fn derive_seed(self, label: &str, index: u64) -> Seed {
        let mut state = self.0;
        for &b in label.as_bytes() {
            state = step_splitmix(&mut state) ^ u64::from(b);
        }
        let mut state = step_splitmix(&mut state) ^ index;
        Seed(step_splitmix(&mut state))
    }
    fn derive_bytes(self, label: &str, index: u64) -> [u8; 32] {
        let mut state = self.derive_seed(label, index).0;
        let mut out = [0; 32];
        for chunk in out.chunks_exact_mut(8) {
            chunk.copy_from_slice(&step_splitmix(&mut state).to_le_bytes());
        }
        out
    }
    /// Derives the model stream of this label and index.
    pub fn derive_rng(self, label: &str, index: u64) -> SimulationRng {
        SimulationRng(rand_xoshiro::Xoshiro256PlusPlus::from_seed(self.derive_bytes(label, index)))
    }
    /// Derives the protocol stream of this label and index.
    pub fn derive_secure_rng(self, label: &str, index: u64) -> SecureRng {
        SecureRng::from_seed(self.derive_bytes(label, index))
    }
}

/// A stream of random numbers for models: fast, not secret.
#[derive(Clone, Debug)]
pub struct SimulationRng(rand_xoshiro::Xoshiro256PlusPlus);

impl SimulationRng {
    /// Returns 64 uniform bits.
    pub fn next_u64(&mut self) -> u64 {
        self.0.next_u64()
    }
    /// Returns a uniform number in [0, 1) with 53 bits.
    pub fn sample_unit(&mut self) -> f64 {
        (self.next_u64() >> 11) as f64 * (1.0 / (1u64 << 53) as f64)
    }
    /// Returns a uniform number in 0..n (0 for n = 0), with a bias of at most 2⁻⁶⁴.
    pub fn sample_below(&mut self, n: u64) -> u64 {
        ((u128::from(self.next_u64()) * u128::from(n)) >> 64) as u64
    }
    /// Returns true with probability `p`.
    pub fn sample_bool(&mut self, p: f64) -> bool {
        self.sample_unit() < p
    }
    /// Returns an exponentially distributed span with this mean.
    pub fn sample_exponential(&mut self, mean: Duration) -> Duration {
        mean.mul_f64(-libm::log(1.0 - self.sample_unit()))
    }
    /// Returns a uniform span between two spans, both included.
    pub fn sample_duration(&mut self, low: Duration, high: Duration) -> Duration {
        low + Duration::from_nanos(self.sample_below((high - low).as_nanos().saturating_add(1)))
    }
}

/// A stream of random numbers that cannot be guessed without its seed: for authenticators, challenges and session ids.
#[derive(Clone)]
pub struct SecureRng(rand_chacha::ChaCha12Rng);

impl core::fmt::Debug for SecureRng {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("SecureRng(..)")
    }
}

impl SecureRng {
    /// A stream from 256 bits of seed, which a live host takes from the operating system.
    pub fn from_seed(seed: [u8; 32]) -> Self {
        Self(rand_chacha::ChaCha12Rng::from_seed(seed))
    }
    /// Fills a buffer.
    pub fn fill_bytes(&mut self, buf: &mut [u8]) {
        self.0.fill_bytes(buf);
    }
    /// Returns an array of random bytes.
    pub fn random_array<const N: usize>(&mut self) -> [u8; N] {
        let mut out = [0; N];
        self.fill_bytes(&mut out);
        out
    }
    /// Returns 64 uniform bits.
    pub fn next_u64(&mut self) -> u64 {
        self.0.next_u64()
    }
    /// Returns 32 uniform bits.
    pub fn next_u32(&mut self) -> u32 {
        self.0.next_u32()
    }
    /// Returns a uniform number in [0, 1) with 53 bits.
    pub fn sample_unit(&mut self) -> f64 {
        (self.next_u64() >> 11) as f64 * (1.0 / (1u64 << 53) as f64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn streams_are_frozen() {
        let seed = Seed::new(1);
        let mut rng = seed.derive_rng("loss", 7);
        assert_eq!(
            [rng.next_u64(), rng.next_u64()],
            [14_221_636_872_462_166_569, 10_070_728_144_529_354_628]
        );
        let mut secure = seed.derive_secure_rng("radius.client", 0);
        assert_eq!(secure.random_array::<8>(), [3, 230, 58, 13, 64, 23, 182, 213]);
        assert_ne!(secure.next_u32(), secure.next_u32());
        assert_ne!(seed.derive_rng("loss", 8).next_u64(), seed.derive_rng("loss", 7).next_u64());
        assert_ne!(seed.derive_rng("los", 7).next_u64(), seed.derive_rng("loss", 7).next_u64());
    }

    #[test]
    fn the_exponential_has_its_mean() {
        let mut rng = Seed::new(3).derive_rng("arrivals", 0);
        let n = 200_000;
        let sum: f64 = (0..n).map(|_| rng.sample_exponential(Duration::from_secs(2)).as_secs_f64()).sum();
        assert!((sum / f64::from(n) - 2.0).abs() < 0.02, "{}", sum / f64::from(n));
    }
}
