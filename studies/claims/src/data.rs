//! The statements as data: `claims.toml`.

use crate::judge::Verdict;
use serde::Deserialize;
use std::collections::BTreeMap;
use std::sync::OnceLock;

/// A published document.
#[derive(Clone, PartialEq, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PublishedDocument {
    /// Its short name; its claims' names begin with it.
    pub id: String,
    /// Its title.
    pub title: String,
    /// Who wrote it.
    pub authors: String,
    /// Other versions of it and what they add.
    #[serde(default)]
    pub also: String,
    /// The ways to read what all its statements rest on, where there are several; the first gives the verdicts.
    #[serde(default)]
    pub readings: Vec<ClaimReading>,
    /// Replications are summed up by their median with the interval of its order statistics, not by their mean with
    /// Student's: for results with heavy tails.
    #[serde(default)]
    pub robust: bool,
}

/// How a result is held against a statement.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ClaimKind {
    /// A number with a unit.
    Value,
    /// A number without one.
    Ratio,
    /// One thing is less than another, or alike, at every point.
    Order,
    /// A curve's form: a named test per claim.
    Shape,
    /// Limits that are not to be crossed.
    Bound,
    /// Equality.
    Exact,
    /// What was configured.
    Setup,
    /// What is to be studied.
    Scope,
}

/// What a document says.
#[derive(Clone, PartialEq, Debug, Deserialize)]
#[serde(untagged)]
pub enum PublishedValue {
    /// A number, in the claim's unit.
    Number(f64),
    /// Several, each with its name.
    Named(Vec<NamedValue>),
    /// A few words.
    Text(String),
}

/// A number with its name.
#[derive(Clone, PartialEq, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NamedValue {
    /// Its name.
    pub name: String,
    /// The number.
    pub value: f64,
}

/// One way to read a statement, or a document's.
#[derive(Clone, PartialEq, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ClaimReading {
    /// Its name.
    pub name: String,
    /// The number in this reading, where it is one.
    pub published: Option<f64>,
    /// Where it comes from and what it says.
    pub text: String,
}

/// One statement.
#[derive(Clone, PartialEq, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Claim {
    /// Its name, which begins with its document's.
    pub id: String,
    /// The document's name.
    pub document: String,
    /// The figure, table or section.
    #[serde(rename = "where")]
    pub place: String,
    /// How a result is held against it.
    pub kind: ClaimKind,
    /// The studies that the judgement reads; none where there is no such study yet.
    #[serde(default)]
    pub studies: Vec<String>,
    /// What it says.
    pub published: PublishedValue,
    /// The unit of its numbers; empty for none.
    #[serde(default)]
    pub unit: String,
    /// The statement in our own words.
    pub text: String,
    /// The ways to read it, where there are several of its own; the first gives the verdict.
    #[serde(default)]
    pub readings: Vec<ClaimReading>,
    /// The further numbers in the statement, which its function reads, or will read where nothing is measured for it yet.
    #[serde(default)]
    pub parts: Vec<NamedValue>,
    /// Explanations by the verdict that they belong to.
    #[serde(default)]
    pub causes: BTreeMap<Verdict, String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ClaimsFile {
    document: Vec<PublishedDocument>,
    claim: Vec<Claim>,
}

fn claims_file() -> &'static ClaimsFile {
    static DATA: OnceLock<ClaimsFile> = OnceLock::new();
    DATA.get_or_init(|| {
        toml::from_str(include_str!("../claims.toml")).expect("claims.toml is held by a test")
    })
}

/// The documents.
pub fn documents() -> &'static [PublishedDocument] {
    &claims_file().document
}

/// All statements, in the order of their documents.
pub fn claims() -> &'static [Claim] {
    &claims_file().claim
}

/// The statement of this name.
pub fn find_claim(id: &str) -> Option<&'static Claim> {
    claims().iter().find(|c| c.id == id)
}

impl Claim {
    /// The number of a statement that is one number; NaN where it is none.
    pub fn published_number(&self) -> f64 {
        match &self.published {
            PublishedValue::Number(value) => *value,
            PublishedValue::Named(_) | PublishedValue::Text(_) => f64::NAN,
        }
    }

    /// The number of this name; NaN where there is none.
    pub fn named_number(&self, name: &str) -> f64 {
        match &self.published {
            PublishedValue::Named(values) => {
                values.iter().find(|n| n.name == name).map_or(f64::NAN, |n| n.value)
            }
            PublishedValue::Number(_) | PublishedValue::Text(_) => f64::NAN,
        }
    }

    /// The further number of this name; NaN where there is none.
    pub fn part_number(&self, name: &str) -> f64 {
        self.parts.iter().find(|n| n.name == name).map_or(f64::NAN, |n| n.value)
    }

    /// The ways to read it: its own, or where it has none its document's.
    pub fn effective_readings(&self) -> &[ClaimReading] {
        let document = documents().iter().find(|d| d.id == self.document);
        match document {
            Some(document) if self.readings.is_empty() => &document.readings,
            _ => &self.readings,
        }
    }

    /// True where its document's replications are summed up by their median.
    pub fn is_robust(&self) -> bool {
        documents().iter().any(|d| d.id == self.document && d.robust)
    }
}
