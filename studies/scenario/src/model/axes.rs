//! Axes and figures: `[[axes]]` and `[[figures]]`.

use crate::ClosedForm;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::Deserialize;
use serde::de::{Deserializer, Error, SeqAccess, Visitor};
use std::borrow::Cow;
use std::fmt;
use usher_config::units::{Percentage, PositiveCount};
use usher_config::{ConfigValue, OrderedMap, named};

fn form<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<ClosedForm>, D::Error> {
    named::read(deserializer).map(Some)
}

/// Something that is varied: a setting over values, or a named choice between bundles of settings.
#[derive(Clone, PartialEq, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct StudyAxis {
    /// The name by which figures, rows and `--set` know it.
    pub name: String,
    /// What figures call it; without it, its name.
    pub title: Option<String>,
    /// The unit in which its values are drawn; without it, the first value's.
    pub unit: Option<String>,
    /// The path of the setting that takes the values, such as `"links.core.loss"`, or several paths that all
    /// do.
    #[serde(default)]
    pub set: OneOrMore,
    /// The values.
    #[serde(default)]
    pub values: Vec<ConfigValue>,
    /// Instead of `set` and `values`: named bundles of settings by path.
    #[serde(default)]
    pub cases: OrderedMap<SettingBundle>,
    /// The values (or names of cases) of `--quick`; without them, all.
    pub quick: Option<Vec<ConfigValue>>,
    /// The values (or names of cases) of `--full`; without them, all.
    pub full: Option<Vec<ConfigValue>>,
    /// The values (or names of cases) of `--sensitivity`; without them, all.
    pub sensitivity: Option<Vec<ConfigValue>>,
    /// The values (or names of cases) of `--on lab`; without them, all.
    pub lab: Option<Vec<ConfigValue>>,
    /// From a value on, another precision is enough.
    pub relax: Option<Relax>,
    /// Points that differ only in this axis share their chance, so that what differs between them is due to
    /// the axis. Off gives each value chance of its own.
    #[serde(default = "super::yes")]
    pub common_random_numbers: bool,
}

impl StudyAxis {
    /// What figures call it.
    pub fn label(&self) -> &str {
        self.title.as_deref().unwrap_or(&self.name)
    }
}

/// Where on an axis another precision is enough.
#[derive(Clone, PartialEq, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Relax {
    /// At this value of the axis and those above it.
    pub from: ConfigValue,
    /// In place of `run.replications.precision`, where it is the larger one.
    pub precision: Percentage,
}

/// A setting that the study's source leaves open, with other values that it might have: `--sensitivity` runs the
/// study with each of them in place of its default.
#[derive(Clone, PartialEq, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct StudyChoice {
    /// A short name.
    pub name: String,
    /// What tables call it.
    pub title: Option<String>,
    /// The default in words, and why it is the default.
    #[serde(default)]
    pub default: String,
    /// The other values: named bundles of settings by path.
    pub cases: OrderedMap<SettingBundle>,
}

/// A named bundle of settings: paths and their values.
pub type SettingBundle = OrderedMap<ConfigValue>;

/// One name or path, or several.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct OneOrMore(pub Vec<String>);

impl<'de> Deserialize<'de> for OneOrMore {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct TextsVisitor;
        impl<'de> Visitor<'de> for TextsVisitor {
            type Value = OneOrMore;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a text, or an array of texts")
            }
            fn visit_str<E: Error>(self, one: &str) -> Result<Self::Value, E> {
                Ok(OneOrMore(vec![one.to_owned()]))
            }
            fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Self::Value, A::Error> {
                let mut several = Vec::new();
                while let Some(text) = seq.next_element()? {
                    several.push(text);
                }
                Ok(OneOrMore(several))
            }
        }
        deserializer.deserialize_any(TextsVisitor)
    }
}

impl JsonSchema for OneOrMore {
    fn schema_name() -> Cow<'static, str> {
        "OneOrMore".into()
    }
    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "anyOf": [{ "type": "string" }, { "type": "array", "items": { "type": "string" } }],
            "description": "One name or path, or several."
        })
    }
}

/// A table that says, for each combination of the other axes' values, which value of one axis does best.
#[derive(Clone, PartialEq, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct StudyRecommendation {
    /// Its heading.
    pub title: String,
    /// What it shows, in a sentence or two.
    #[serde(default)]
    pub caption: String,
    /// The axis whose values are compared, or several: then every combination of their values is.
    pub choose: OneOrMore,
    /// Axes held at one value or at several: what has another value is not compared.
    #[serde(default, rename = "where")]
    pub filter: OrderedMap<ConfigValue>,
    /// The metric that should be small.
    pub metric: String,
    /// What a value must keep to be recommended at all.
    pub limit: Option<MetricLimit>,
}

/// What a metric's mean must keep: `most`, `least`, or both.
#[derive(Clone, PartialEq, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct MetricLimit {
    /// The metric.
    pub metric: String,
    /// The most that it may be, with the metric's unit: `"5 s"`; of a share `"1 %"`, of a plain number a number.
    pub most: Option<ConfigValue>,
    /// The least that it may be, written likewise.
    pub least: Option<ConfigValue>,
}

/// A drawing of one metric over an axis, or over another metric.
#[derive(Clone, PartialEq, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct StudyFigure {
    /// A short name, also its file's.
    pub name: String,
    /// Its heading.
    pub title: String,
    /// What it shows, in a sentence or two.
    #[serde(default)]
    pub caption: String,
    /// What it draws.
    #[serde(default)]
    pub kind: FigureKind,
    /// The axis drawn to the right; or a metric, to weigh one against another, with `along`. A distribution and a course have
    /// none.
    #[serde(default)]
    pub x: String,
    /// The axis whose values, in their order, are the points of a curve where `x` is a metric.
    pub along: Option<String>,
    /// The metric drawn upwards, or several of one unit, each with curves of its own.
    pub y: OneOrMore,
    /// What the upward axis is called; without it, what its metric is, of several their names.
    pub y_title: Option<String>,
    /// The axes whose values become curves; every combination is one.
    #[serde(default)]
    pub series: Vec<String>,
    /// Axes held at one value or at several; of other axes every value is drawn, and each must be `x`, in
    /// `series` or here, unless it has one value.
    #[serde(default, rename = "where")]
    pub filter: OrderedMap<ConfigValue>,
    /// What stands for a point's replications.
    #[serde(default)]
    pub statistic: PointStatistic,
    /// What others measured of the same, drawn beside the results.
    #[serde(default)]
    pub reference: Vec<ReferenceSeries>,
    /// A logarithmic scale to the right.
    #[serde(default)]
    pub log_x: bool,
    /// A logarithmic scale upwards.
    #[serde(default)]
    pub log_y: bool,
    /// The closed form drawn beside the results.
    #[serde(default, deserialize_with = "form")]
    #[schemars(schema_with = "named::schema::<ClosedForm>")]
    pub analytic: Option<ClosedForm>,
    /// What is fitted to each curve's points, which are not joined then.
    pub fit: Option<CurveFit>,
    /// Identifiers of the published statements that the figure is held against.
    #[serde(default)]
    pub claims: Vec<String>,
}

/// What a figure draws of its metric.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum FigureKind {
    /// Its mean, or median, over an axis.
    #[default]
    Curve,
    /// Over an axis, a box of the replications: quartiles, median, smallest and largest.
    Box,
    /// Of a delay (`y = "delay.mean"`, whichever of that family), of the first replication: the share of dialogues that were
    /// done within a time.
    Cdf,
    /// Of a delay, of the first replication: its mean over the dialogues that began in each fiftieth of the counted time.
    Time,
}

impl FigureKind {
    /// Whether it is drawn from single dialogues.
    pub const fn of_dialogues(self) -> bool {
        matches!(self, Self::Cdf | Self::Time)
    }
}

/// What is fitted to the points of a curve.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum CurveFit {
    /// The line of least squares through their means.
    Line,
}

/// What stands for the replications of a point.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum PointStatistic {
    /// Their mean, with Student's interval.
    #[default]
    Mean,
    /// Their median, with the interval of its order statistics, which asks nothing of their distribution. At 95 % it takes
    /// six replications.
    Median,
}

/// A series that others measured.
#[derive(Clone, PartialEq, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ReferenceSeries {
    /// What the legend calls it, such as `"ns-2, Diameter/TCP"`.
    pub name: String,
    /// Where it comes from, in a sentence that stands under the figure.
    #[serde(default)]
    pub source: String,
    /// Its points.
    pub points: Vec<ReferencePoint>,
}

/// One point that others measured.
#[derive(Clone, PartialEq, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ReferencePoint {
    /// Its value of the figure's axis, such as `"5 %"`.
    pub x: ConfigValue,
    /// What was measured there, such as `"0.31 s"`; a plain number where the metric has no unit.
    pub y: ConfigValue,
    /// The interval's lower end, written like `y`.
    pub low: Option<ConfigValue>,
    /// The interval's upper end.
    pub high: Option<ConfigValue>,
    /// How many replications it rests on.
    pub n: Option<PositiveCount>,
}
