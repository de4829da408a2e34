//! How a study is set up, as far as claims ask.

mod access;
mod handover;
mod ike;
mod mih;

pub use access::Access;

use std::collections::BTreeMap;
use usher_observe::manifest::Fact;
use usher_scenario::{DEFAULT, Plan, VARIANT};

/// What a study configures, for the statement on its setting.
#[derive(Clone, PartialEq, Debug)]
pub enum Setup {
    /// Of authentications: the way from the stations to their AAA server.
    Access(Access),
    /// Of MIH messages and handovers: what is not as the document states.
    Listed(Vec<String>),
}

/// The fact that holds the list.
const LISTED: &str = "setup.otherwise";
/// Between the parts of the list.
const BETWEEN: &str = "; ";

impl Setup {
    /// Reads it from a plan; `None` where no statement is on a study of its kind.
    pub fn of(plan: &Plan) -> Option<Self> {
        let default = |p: &&usher_scenario::Point| p.setting(VARIANT).is_none_or(|s| s.text == DEFAULT);
        let scenarios = || plan.points.iter().filter(default).map(|p| &p.scenario);
        let access = scenarios().filter_map(Access::of).reduce(Access::with);
        let of_mih = || mih::otherwise(&plan.study, scenarios());
        let listed = || of_mih().or_else(|| ike::otherwise(&plan.study, scenarios()));
        access.map(Self::Access).or_else(|| listed().map(Self::Listed))
    }

    /// As facts for the manifest of a run.
    pub fn facts(&self) -> Vec<(String, Fact)> {
        match self {
            Self::Access(access) => access.facts().into(),
            Self::Listed(list) => vec![(LISTED.to_owned(), Fact::from(list.join(BETWEEN)))],
        }
    }

    /// Reads it from the facts of a manifest; `None` where they lack it.
    pub fn from_facts(facts: &BTreeMap<String, Fact>) -> Option<Self> {
        if let Some(Fact::Text(list)) = facts.get(LISTED) {
            let parts = list.split(BETWEEN).filter(|part| !part.is_empty());
            return Some(Self::Listed(parts.map(str::to_owned).collect()));
        }
        Access::from_facts(facts).map(Self::Access)
    }

    /// What is not as stated.
    pub(crate) fn deviations(&self) -> Vec<String> {
        match self {
            Self::Access(access) => access.deviations(),
            Self::Listed(list) => list.clone(),
        }
    }
}
