//! How a study is set up, as far as claims ask.

mod access;
mod handover;
mod ike;
mod mih;

pub use access::AccessSetup;

use std::collections::BTreeMap;
use usher_observe::manifest::ManifestFact;
use usher_scenario::{DEFAULT, StudyPlan, VARIANT};

/// What a study configures, for the statement on its setting.
#[derive(Clone, PartialEq, Debug)]
pub enum StudySetup {
    /// Of authentications: the way from the stations to their AAA server.
    Access(AccessSetup),
    /// Of MIH messages and handovers: what is not as the document states.
    Listed(Vec<String>),
}

/// The fact that holds the list.
const LISTED: &str = "setup.otherwise";
/// Between the parts of the list.
const BETWEEN: &str = "; ";

impl StudySetup {
    /// Reads it from a plan; `None` where no statement is on a study of its kind.
    pub fn from_plan(plan: &StudyPlan) -> Option<Self> {
        let default =
            |p: &&usher_scenario::PlanPoint| p.axis_setting(VARIANT).is_none_or(|s| s.text == DEFAULT);
        let scenarios = || plan.points.iter().filter(default).map(|p| &p.scenario);
        let access = scenarios().filter_map(AccessSetup::from_scenario).reduce(AccessSetup::merge_with);
        let of_mih = || mih::list_deviations(&plan.study, scenarios());
        let listed = || of_mih().or_else(|| ike::list_deviations(&plan.study, scenarios()));
        access.map(Self::Access).or_else(|| listed().map(Self::Listed))
    }

    /// As facts for the manifest of a run.
    pub fn to_facts(&self) -> Vec<(String, ManifestFact)> {
        match self {
            Self::Access(access) => access.to_facts().into(),
            Self::Listed(list) => vec![(LISTED.to_owned(), ManifestFact::from(list.join(BETWEEN)))],
        }
    }

    /// Reads it from the facts of a manifest; `None` where they lack it.
    pub fn from_facts(facts: &BTreeMap<String, ManifestFact>) -> Option<Self> {
        if let Some(ManifestFact::Text(list)) = facts.get(LISTED) {
            let parts = list.split(BETWEEN).filter(|part| !part.is_empty());
            return Some(Self::Listed(parts.map(str::to_owned).collect()));
        }
        AccessSetup::from_facts(facts).map(Self::Access)
    }

    /// What is not as stated.
    pub(crate) fn deviations(&self) -> Vec<String> {
        match self {
            Self::Access(access) => access.deviations(),
            Self::Listed(list) => list.clone(),
        }
    }
}
