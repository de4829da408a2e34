//! Checks this code against analytic formulas and published vectors.
//!
//! A [`VerificationOracle`] knows an expected value from a standard, hand arithmetic or theory, and compares the code's
//! result with it. [`oracles`] returns all of them, and [`run_oracle`] runs one. Random oracles have fixed seeds, so
//! their results never vary.

mod channels;
mod crypto;
mod diameter;
mod eap;
mod hol;
mod independent;
mod mih;
mod presets;
mod queues;
mod radius;
mod sctp;
mod sctp_presets;
mod statistics;
mod study;
mod sws;
mod tcp;
mod timing;
mod wire;

use std::fmt::Display;
use usher_core::automaton::AutomatonDiagram;

/// A check with an expected value.
#[derive(Clone, Copy, Debug)]
pub struct VerificationOracle {
    /// Its subject, in one word.
    pub group: &'static str,
    /// Its name within the group.
    pub name: &'static str,
    /// Its description.
    pub description: &'static str,
    /// The source of the expected value: a section of a standard, a book, or a calculation.
    pub source: &'static str,
    /// Runs the check. `Err` is the reason if there is no result.
    pub run: fn() -> Result<Vec<OracleFinding>, String>,
}

/// One comparison of an oracle.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct OracleFinding {
    /// The oracle's case; empty if there is only one.
    pub case: String,
    /// The expected value.
    pub expected: String,
    /// The obtained value.
    pub obtained: String,
    /// The tolerance; empty if the values have to be equal.
    pub tolerance: String,
    /// True if the values agree.
    pub agrees: bool,
}

impl OracleFinding {
    /// Compares two values, formatted by `Display`.
    pub fn expect_equal(case: impl Into<String>, expected: impl Display, obtained: impl Display) -> Self {
        let (expected, obtained) = (expected.to_string(), obtained.to_string());
        let holds = expected == obtained;
        Self { case: case.into(), expected, obtained, tolerance: String::new(), agrees: holds }
    }

    /// Compares two strings of octets, shown in hexadecimal.
    pub fn expect_octets(case: impl Into<String>, expected: &[u8], obtained: &[u8]) -> Self {
        Self::expect_equal(case, to_hex(expected), to_hex(obtained))
    }
}

/// Formats octets in hexadecimal.
pub fn to_hex(octets: &[u8]) -> String {
    octets.iter().map(|octet| format!("{octet:02x}")).collect()
}

/// The result of one case of an oracle.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct OracleCheck {
    /// The oracle's group.
    pub group: &'static str,
    /// The oracle's name.
    pub name: &'static str,
    /// The oracle's description.
    pub description: &'static str,
    /// The source of the expected value.
    pub source: &'static str,
    /// The comparison.
    pub finding: OracleFinding,
}

impl OracleCheck {
    /// Returns group, name and case as one label.
    pub fn label(&self) -> String {
        let case = &self.finding.case;
        let separator = if case.is_empty() { "" } else { ": " };
        format!("{}/{}{separator}{case}", self.group, self.name)
    }
}

impl VerificationOracle {
    /// Returns group and name as one label.
    pub fn label(&self) -> String {
        format!("{}/{}", self.group, self.name)
    }

    /// True if group and name contain the filter, ignoring case.
    pub fn matches_filter(&self, filter: &str) -> bool {
        self.label().to_lowercase().contains(&filter.to_lowercase())
    }
}

/// Runs an oracle and returns at least one check. An oracle without a comparison fails.
pub fn run_oracle(oracle: &VerificationOracle) -> Vec<OracleCheck> {
    let broken = |why: String| {
        let expected = "a result".to_owned();
        vec![OracleFinding {
            case: String::new(),
            expected,
            obtained: why,
            tolerance: String::new(),
            agrees: false,
        }]
    };
    let findings = match (oracle.run)() {
        Ok(findings) if findings.is_empty() => broken("the oracle compared no values".to_owned()),
        Ok(findings) => findings,
        Err(why) => broken(why),
    };
    let VerificationOracle { group, name, description: about, source, .. } = *oracle;
    findings
        .into_iter()
        .map(|finding| OracleCheck { group, name, description: about, source, finding })
        .collect()
}

/// Returns all oracles, by group.
pub fn oracles() -> Vec<VerificationOracle> {
    [
        radius::ORACLES,
        timing::ORACLES,
        crypto::ORACLES,
        eap::ORACLES,
        queues::ORACLES,
        channels::ORACLES,
        tcp::ORACLES,
        sws::ORACLES,
        presets::ORACLES,
        sctp::ORACLES,
        sctp_presets::ORACLES,
        hol::ORACLES,
        mih::ORACLES,
        diameter::ORACLES,
    ]
    .concat()
}

/// Returns all automata of the program, by protocol.
pub fn automata() -> Vec<AutomatonDiagram> {
    [
        &usher_eap::AUTOMATA[..],
        &usher_ike::AUTOMATA,
        &usher_ppp::AUTOMATA,
        &usher_diameter::peer::AUTOMATA,
        &usher_mih::AUTOMATA,
        &usher_pkm::keying::AUTOMATA,
        &usher_mobility::AUTOMATA,
    ]
    .concat()
}
