//! Session-Id generation (RFC 6733 §8.8).

use alloc::format;
use alloc::string::{String, ToString};
use usher_core::SecureRng;

/// Makes Session-Ids of the recommended form `identity;high 32 bits;low 32 bits`.
#[derive(Clone, Debug)]
pub struct SessionIdGenerator {
    identity: String,
    next: u64,
}

impl SessionIdGenerator {
    /// Returns a generator for this DiameterIdentity. The high 32 bits start at `boot`, a boot counter or the boot
    /// time, which restarts must not repeat.
    pub fn with_boot_counter(identity: &str, boot: u32) -> Self {
        Self { identity: identity.to_string(), next: u64::from(boot) << 32 }
    }
    /// Returns a generator for this DiameterIdentity that starts at a random value.
    pub fn with_random_start(identity: &str, rng: &mut SecureRng) -> Self {
        Self::with_boot_counter(identity, rng.next_u32())
    }
    /// Returns the next unique identifier. Appends `optional` unless empty.
    pub fn next_session_id(&mut self, optional: &str) -> String {
        let n = self.next;
        self.next = n.wrapping_add(1);
        let (high, low, id) = ((n >> 32) as u32, n as u32, &self.identity);
        if optional.is_empty() {
            format!("{id};{high};{low}")
        } else {
            format!("{id};{high};{low};{optional}")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rfc_form() {
        let mut ids = SessionIdGenerator::with_boot_counter("accesspoint7.example.com", 1_876_543_210);
        assert_eq!(ids.next_session_id(""), "accesspoint7.example.com;1876543210;0");
        assert_eq!(
            ids.next_session_id("mobile@200.1.1.88"),
            "accesspoint7.example.com;1876543210;1;mobile@200.1.1.88"
        );
    }
}
