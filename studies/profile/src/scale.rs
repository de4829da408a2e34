//! Scales a profile from its machine to another.

use crate::{ReferenceCryptoRates, ServerProfile};

/// Durations relative to the profile's machine.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct MachineSpeedFactors {
    /// Factor of signatures.
    pub signatures: f64,
    /// Factor of all other work.
    pub rest: f64,
}

impl MachineSpeedFactors {
    /// Returns a scale with the same factor for all work.
    #[must_use]
    pub const fn with_uniform_factor(factor: f64) -> Self {
        Self { signatures: factor, rest: factor }
    }

    /// Returns the scale for a machine with these operations per second and core. The kind of the server's key is
    /// unknown, so the slower of both signature factors applies.
    #[must_use]
    pub fn for_machine(file: &ServerProfile, other: &ReferenceCryptoRates) -> Self {
        let ours = &file.machine.reference;
        let slower = |ours: usher_config::units::EventRate, other: usher_config::units::EventRate| {
            ours.per_second() / other.per_second()
        };
        Self {
            signatures: slower(ours.rsa_2048_sign, other.rsa_2048_sign)
                .max(slower(ours.ecdsa_p256_sign, other.ecdsa_p256_sign)),
            rest: slower(ours.md5, other.md5),
        }
    }

    /// Returns the factor of a kind of work. Public-key operations are those of TLS with such names.
    #[must_use]
    pub fn work_label_factor(self, label: &str) -> f64 {
        match label {
            "tls.sign" | "tls.verify" | "tls.key_exchange" => self.signatures,
            _ => self.rest,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use usher_config::units::EventRate;

    #[test]
    fn another_machine_is_slower_by_what_it_does_a_second() {
        let rate = |text: &str| EventRate::parse(text).unwrap();
        let file = crate::write::tests::test_profile();
        // The profile has 1,000, 30,000 and 2,000,000.
        let other = ReferenceCryptoRates {
            rsa_2048_sign: rate("500 /s"),
            ecdsa_p256_sign: rate("30000 /s"),
            md5: rate("4000000 /s"),
        };
        let scale = MachineSpeedFactors::for_machine(&file, &other);
        assert_eq!(
            (scale.work_label_factor("tls.sign"), scale.work_label_factor("radius.request")),
            (2.0, 0.5)
        );
        assert_eq!(
            MachineSpeedFactors::for_machine(&file, &file.machine.reference),
            MachineSpeedFactors::with_uniform_factor(1.0)
        );
    }
}
