//! From the machine of a profile to another.

use crate::{File, Reference};

/// How much longer than on the profile's machine work takes.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Scale {
    /// Signatures.
    pub signatures: f64,
    /// All else.
    pub rest: f64,
}

impl Scale {
    /// All takes so many times as long.
    #[must_use]
    pub const fn all(factor: f64) -> Self {
        Self { signatures: factor, rest: factor }
    }

    /// To a machine whose core does so much a second. Signatures are those of the server's key: of the two kinds the one by which
    /// the other machine is slower is taken.
    #[must_use]
    pub fn to(file: &File, other: &Reference) -> Self {
        let ours = &file.machine.reference;
        let slower = |ours: usher_config::units::Rate, other: usher_config::units::Rate| {
            ours.per_second() / other.per_second()
        };
        Self {
            signatures: slower(ours.rsa_2048_sign, other.rsa_2048_sign)
                .max(slower(ours.ecdsa_p256_sign, other.ecdsa_p256_sign)),
            rest: slower(ours.md5, other.md5),
        }
    }

    /// The factor of a kind of work: public-key operations are those of TLS that are named so.
    #[must_use]
    pub fn of(self, label: &str) -> f64 {
        match label {
            "tls.sign" | "tls.verify" | "tls.key_exchange" => self.signatures,
            _ => self.rest,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use usher_config::units::Rate;

    #[test]
    fn another_machine_is_slower_by_what_it_does_a_second() {
        let rate = |text: &str| Rate::parse(text).unwrap();
        let file = crate::write::tests::profile();
        // The profile's: 1,000, 30,000 and 2,000,000.
        let other = Reference {
            rsa_2048_sign: rate("500 /s"),
            ecdsa_p256_sign: rate("30000 /s"),
            md5: rate("4000000 /s"),
        };
        let scale = Scale::to(&file, &other);
        assert_eq!((scale.of("tls.sign"), scale.of("radius.request")), (2.0, 0.5));
        assert_eq!(Scale::to(&file, &file.machine.reference), Scale::all(1.0));
    }
}
