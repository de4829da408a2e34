//! Analytic formulas and published vectors, run against this code.
//!
//! An [`VerificationOracle`] knows what must come out, by a standard's own words or numbers, by hand arithmetic or by
//! theory, and asks the code for it. [`ORACLES`] are all of them; [`run_oracle`] runs one. Where chance is involved
//! the seed is fixed, so that an oracle that holds holds always.

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

/// One thing that is known beforehand.
#[derive(Clone, Copy, Debug)]
pub struct VerificationOracle {
    /// Its subject, one word.
    pub group: &'static str,
    /// Its name within the group.
    pub name: &'static str,
    /// What it is.
    pub description: &'static str,
    /// Where the expected value comes from: a standard's section, a book, an arithmetic that is shown.
    pub source: &'static str,
    /// Asks the code. `Err` says why there is no answer at all.
    pub run: fn() -> Result<Vec<OracleFinding>, String>,
}

/// One value that an oracle compared.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct OracleFinding {
    /// Which of the oracle's cases; empty where there is only one.
    pub case: String,
    /// What had to come out.
    pub expected: String,
    /// What came out.
    pub obtained: String,
    /// How far apart they may be; empty for not at all.
    pub tolerance: String,
    /// Whether they agree.
    pub agrees: bool,
}

impl OracleFinding {
    /// Two values that must be equal, shown as they print.
    pub fn expect_equal(case: impl Into<String>, expected: impl Display, obtained: impl Display) -> Self {
        let (expected, obtained) = (expected.to_string(), obtained.to_string());
        let holds = expected == obtained;
        Self { case: case.into(), expected, obtained, tolerance: String::new(), agrees: holds }
    }

    /// Two strings of octets that must be equal, shown in hexadecimal.
    pub fn expect_octets(case: impl Into<String>, expected: &[u8], obtained: &[u8]) -> Self {
        Self::expect_equal(case, to_hex(expected), to_hex(obtained))
    }
}

/// Octets in hexadecimal.
pub fn to_hex(octets: &[u8]) -> String {
    octets.iter().map(|octet| format!("{octet:02x}")).collect()
}

/// What became of one case of an oracle.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct OracleCheck {
    /// The oracle's group.
    pub group: &'static str,
    /// The oracle's name.
    pub name: &'static str,
    /// What the oracle is.
    pub description: &'static str,
    /// Where the expected value comes from.
    pub source: &'static str,
    /// What was compared.
    pub finding: OracleFinding,
}

impl OracleCheck {
    /// Group, name and case in one.
    pub fn label(&self) -> String {
        let case = &self.finding.case;
        let separator = if case.is_empty() { "" } else { ": " };
        format!("{}/{}{separator}{case}", self.group, self.name)
    }
}

impl VerificationOracle {
    /// Group and name in one.
    pub fn label(&self) -> String {
        format!("{}/{}", self.group, self.name)
    }

    /// Whether a filter means it: by a part of group and name, letter case ignored.
    pub fn is_meant_by(&self, filter: &str) -> bool {
        self.label().to_lowercase().contains(&filter.to_lowercase())
    }
}

/// Runs one oracle. There is at least one check in the answer: an oracle that finds nothing to compare, or
/// cannot, does not hold.
pub fn run_oracle(oracle: &VerificationOracle) -> Vec<OracleCheck> {
    let broken = |why: String| {
        let expected = "an answer".to_owned();
        vec![OracleFinding {
            case: String::new(),
            expected,
            obtained: why,
            tolerance: String::new(),
            agrees: false,
        }]
    };
    let findings = match (oracle.run)() {
        Ok(findings) if findings.is_empty() => broken("nothing was compared".to_owned()),
        Ok(findings) => findings,
        Err(why) => broken(why),
    };
    let VerificationOracle { group, name, description: about, source, .. } = *oracle;
    findings
        .into_iter()
        .map(|finding| OracleCheck { group, name, description: about, source, finding })
        .collect()
}

/// All oracles, by group.
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

/// All automata that the program runs, by protocol.
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
