//! The configuration of a study, as far as claims need it.

mod access;
mod handover;
mod ike;
mod mih;

pub use access::AuthenticationStudySetup;

use std::collections::BTreeMap;
use usher_observe::manifest::ManifestValue;
use usher_scenario::{DEFAULT, StudyPlan, VARIANT};

/// The configuration of a study, for the statement on its setting.
#[derive(Clone, PartialEq, Debug)]
pub enum ClaimStudySetup {
    /// Authentications: the path from the stations to their AAA server.
    Access(AuthenticationStudySetup),
    /// MIH messages and handovers: the deviations from the document.
    Listed(Vec<String>),
}

/// The manifest fact with the list.
const LISTED: &str = "setup.otherwise";
/// The separator of the list.
const BETWEEN: &str = "; ";

impl ClaimStudySetup {
    /// Returns the configuration from a plan; `None` if no statement covers this kind of study.
    pub fn from_plan(plan: &StudyPlan) -> Option<Self> {
        let default =
            |p: &&usher_scenario::PlanPoint| p.axis_setting(VARIANT).is_none_or(|s| s.text == DEFAULT);
        let scenarios = || plan.points.iter().filter(default).map(|p| &p.scenario);
        let access = scenarios()
            .filter_map(AuthenticationStudySetup::from_scenario)
            .reduce(AuthenticationStudySetup::merge_point_setups);
        let of_mih = || mih::list_deviations(&plan.study, scenarios());
        let listed = || of_mih().or_else(|| ike::list_deviations(&plan.study, scenarios()));
        access.map(Self::Access).or_else(|| listed().map(Self::Listed))
    }

    /// Returns facts for the manifest of a run.
    pub fn to_facts(&self) -> Vec<(String, ManifestValue)> {
        match self {
            Self::Access(access) => access.to_facts().into(),
            Self::Listed(list) => vec![(LISTED.to_owned(), ManifestValue::from(list.join(BETWEEN)))],
        }
    }

    /// Returns the configuration from a manifest's facts; `None` if they lack it.
    pub fn from_facts(facts: &BTreeMap<String, ManifestValue>) -> Option<Self> {
        if let Some(ManifestValue::Text(list)) = facts.get(LISTED) {
            let parts = list.split(BETWEEN).filter(|part| !part.is_empty());
            return Some(Self::Listed(parts.map(str::to_owned).collect()));
        }
        AuthenticationStudySetup::from_facts(facts).map(Self::Access)
    }

    /// Returns the deviations from the document.
    pub(crate) fn deviations(&self) -> Vec<String> {
        match self {
            Self::Access(access) => access.deviations(),
            Self::Listed(list) => list.clone(),
        }
    }
}
