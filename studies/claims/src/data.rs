//! The statements as data: `claims.toml`.

use crate::judge::Verdict;
use serde::Deserialize;
use std::collections::BTreeMap;
use std::sync::OnceLock;

/// A published document.
#[derive(Clone, PartialEq, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PublishedDocument {
    /// Its short name, the prefix of its claims' names.
    pub id: String,
    /// Its title.
    pub title: String,
    /// Its authors.
    pub authors: String,
    /// Other versions of it, and their additions.
    #[serde(default)]
    pub also: String,
    /// The readings of all its statements, if there are several; the first gives the verdicts.
    #[serde(default)]
    pub readings: Vec<ClaimInterpretation>,
    /// True to sum up replications by their median with the interval of its order statistics, instead of the mean with
    /// Student's: for results with heavy tails.
    #[serde(default)]
    pub robust: bool,
}

/// The kind of comparison of a result with a statement.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ClaimKind {
    /// A number with a unit.
    Value,
    /// A number without a unit.
    Ratio,
    /// One quantity is less than another, or alike, at every point.
    Order,
    /// A curve's form: each claim has a named test.
    Shape,
    /// A limit that must not be crossed.
    Bound,
    /// Equality.
    Exact,
    /// A configuration.
    Setup,
    /// The scope of the study.
    Scope,
}

/// The content of a statement.
#[derive(Clone, PartialEq, Debug, Deserialize)]
#[serde(untagged)]
pub enum PublishedValue {
    /// A number, in the claim's unit.
    Number(f64),
    /// Several numbers with names.
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

/// One reading of a statement or of a document.
#[derive(Clone, PartialEq, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ClaimInterpretation {
    /// Its name.
    pub name: String,
    /// The number in this reading, if any.
    pub published: Option<f64>,
    /// Its source and meaning.
    pub text: String,
}

/// One statement.
#[derive(Clone, PartialEq, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Claim {
    /// Its name, with its document's name as prefix.
    pub id: String,
    /// The document's name.
    pub document: String,
    /// The figure, table or section.
    #[serde(rename = "where")]
    pub place: String,
    /// The kind of comparison.
    pub kind: ClaimKind,
    /// The studies that the evaluation reads; empty if there is no such study yet.
    #[serde(default)]
    pub studies: Vec<String>,
    /// The published value.
    pub published: PublishedValue,
    /// The unit of its numbers; empty for none.
    #[serde(default)]
    pub unit: String,
    /// The statement in our own words.
    pub text: String,
    /// Its own readings, if there are several; the first gives the verdict.
    #[serde(default)]
    pub readings: Vec<ClaimInterpretation>,
    /// Further numbers in the statement, which its function reads, or will read once measurements exist.
    #[serde(default)]
    pub parts: Vec<NamedValue>,
    /// Explanations by verdict.
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
        toml::from_str(include_str!("../claims.toml")).expect("a test checks that claims.toml is valid")
    })
}

/// Returns the documents.
pub fn documents() -> &'static [PublishedDocument] {
    &claims_file().document
}

/// Returns all statements, in the order of their documents.
pub fn claims() -> &'static [Claim] {
    &claims_file().claim
}

/// Returns the statement of this name.
pub fn find_claim(id: &str) -> Option<&'static Claim> {
    claims().iter().find(|c| c.id == id)
}

impl Claim {
    /// Returns the number of a statement with one number; NaN otherwise.
    pub fn published_number(&self) -> f64 {
        match &self.published {
            PublishedValue::Number(value) => *value,
            PublishedValue::Named(_) | PublishedValue::Text(_) => f64::NAN,
        }
    }

    /// Returns the number of this name; NaN if there is none.
    pub fn published_number_by_name(&self, name: &str) -> f64 {
        match &self.published {
            PublishedValue::Named(values) => {
                values.iter().find(|n| n.name == name).map_or(f64::NAN, |n| n.value)
            }
            PublishedValue::Number(_) | PublishedValue::Text(_) => f64::NAN,
        }
    }

    /// Returns the further number of this name; NaN if there is none.
    pub fn claim_parameter(&self, name: &str) -> f64 {
        self.parts.iter().find(|n| n.name == name).map_or(f64::NAN, |n| n.value)
    }

    /// Returns its own readings, or else its document's.
    pub fn own_or_document_readings(&self) -> &[ClaimInterpretation] {
        let document = documents().iter().find(|d| d.id == self.document);
        match document {
            Some(document) if self.readings.is_empty() => &document.readings,
            _ => &self.readings,
        }
    }

    /// True if its document's replications are summed up by their median.
    pub fn is_summarised_by_median(&self) -> bool {
        documents().iter().any(|d| d.id == self.document && d.robust)
    }
}
