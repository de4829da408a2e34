//! Axes and figures: `[[axes]]` and `[[figures]]`.

use crate::ClosedFormName;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::Deserialize;
use serde::de::{Deserializer, Error, SeqAccess, Visitor};
use std::borrow::Cow;
use std::fmt;
use usher_config::units::{Percentage, PositiveCount};
use usher_config::{ConfigValue, OrderedMap, named};

fn form<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<ClosedFormName>, D::Error> {
    named::read(deserializer).map(Some)
}

/// An axis: a setting with its values, or named bundles of settings.
#[derive(Clone, PartialEq, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct StudyAxis {
    /// Its name in figures, rows and `--set`.
    pub name: String,
    /// Its title in figures; without it, its name.
    pub title: Option<String>,
    /// The unit in which its values are drawn; without it, the first value's.
    pub unit: Option<String>,
    /// The path of the setting that takes the values, such as `"links.core.loss"`, or several paths.
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
    /// From a value on, a lower precision is enough.
    pub relax: Option<Relax>,
    /// Points that differ only in this axis share their random streams, so that the axis alone causes differences.
    /// `false`: each value has its own random streams.
    #[serde(default = "super::yes")]
    pub common_random_numbers: bool,
}

impl StudyAxis {
    /// Its title in figures.
    pub fn label(&self) -> &str {
        self.title.as_deref().unwrap_or(&self.name)
    }
}

/// The part of an axis for which a lower precision is enough.
#[derive(Clone, PartialEq, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Relax {
    /// At this value of the axis and those above it.
    pub from: ConfigValue,
    /// Replaces `run.replications.precision` if it is larger.
    pub precision: Percentage,
}

/// A setting that the study's source leaves open, with other possible values. `--sensitivity` runs the study with each
/// of them instead of the default.
#[derive(Clone, PartialEq, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct StudyChoice {
    /// A short name.
    pub name: String,
    /// Its title in tables.
    pub title: Option<String>,
    /// The default in words, with its reason.
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
        struct ScalarOrListVisitor;
        impl<'de> Visitor<'de> for ScalarOrListVisitor {
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
        deserializer.deserialize_any(ScalarOrListVisitor)
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

/// A table with the best value of one axis for each combination of the other axes' values.
#[derive(Clone, PartialEq, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct StudyRecommendation {
    /// Its heading.
    pub title: String,
    /// A caption of a sentence or two.
    #[serde(default)]
    pub caption: String,
    /// The axis with the values to compare, or several axes: then every combination of their values.
    pub choose: OneOrMore,
    /// Axes restricted to one value or several. Points with other values are not compared.
    #[serde(default, rename = "where")]
    pub filter: OrderedMap<ConfigValue>,
    /// The metric to minimise.
    pub metric: String,
    /// The limit that a recommended value must keep.
    pub limit: Option<MetricLimit>,
}

/// A limit of a metric's mean: `most`, `least`, or both.
#[derive(Clone, PartialEq, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct MetricLimit {
    /// The metric.
    pub metric: String,
    /// The largest value, with the metric's unit: `"5 s"`, for a share `"1 %"`, for a plain number a number.
    pub most: Option<ConfigValue>,
    /// The smallest value, written likewise.
    pub least: Option<ConfigValue>,
}

/// A drawing of one metric over an axis, or over another metric.
#[derive(Clone, PartialEq, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct StudyFigure {
    /// A short name, also of its file.
    pub name: String,
    /// Its heading.
    pub title: String,
    /// A caption of a sentence or two.
    #[serde(default)]
    pub caption: String,
    /// The kind of drawing.
    #[serde(default)]
    pub kind: FigureKind,
    /// The horizontal axis: an axis of the study, or a metric with `along`, to compare two metrics. The kinds `cdf` and
    /// `time` have none.
    #[serde(default)]
    pub x: String,
    /// The axis whose values, in their order, are the points of a curve if `x` is a metric.
    pub along: Option<String>,
    /// The metric on the vertical axis, or several of one unit, each with its own curves.
    pub y: OneOrMore,
    /// The title of the vertical axis; without it, the metric's description, or the names of several metrics.
    pub y_title: Option<String>,
    /// The axes whose values become curves, one for each combination.
    #[serde(default)]
    pub series: Vec<String>,
    /// Axes restricted to one value or several. Every axis with more than one value must be `x`, `along`, in `series`
    /// or here.
    #[serde(default, rename = "where")]
    pub filter: OrderedMap<ConfigValue>,
    /// The statistic of a point's replications.
    #[serde(default)]
    pub statistic: SweepPointStatistic,
    /// Measurements of others, drawn beside the results.
    #[serde(default)]
    pub reference: Vec<ReferenceSeries>,
    /// A logarithmic horizontal scale.
    #[serde(default)]
    pub log_x: bool,
    /// A logarithmic vertical scale.
    #[serde(default)]
    pub log_y: bool,
    /// The closed form drawn beside the results.
    #[serde(default, deserialize_with = "form")]
    #[schemars(schema_with = "named::schema::<ClosedFormName>")]
    pub analytic: Option<ClosedFormName>,
    /// The fit to each curve's points. Fitted points are not joined.
    pub fit: Option<CurveFit>,
    /// Identifiers of the claims that the figure checks.
    #[serde(default)]
    pub claims: Vec<String>,
}

/// The kind of a figure.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum FigureKind {
    /// The metric's mean or median over an axis.
    #[default]
    Curve,
    /// A box of the replications over an axis: quartiles, median, smallest and largest.
    Box,
    /// The distribution of a delay in the first replication: the share of dialogues done within a time. `y` is
    /// `"delay.mean"` or another metric of that family.
    Cdf,
    /// A delay over time in the first replication: its mean over the dialogues that began in each fiftieth of the
    /// counted time.
    Time,
}

impl FigureKind {
    /// Whether it is drawn from single dialogues.
    pub const fn of_dialogues(self) -> bool {
        matches!(self, Self::Cdf | Self::Time)
    }
}

/// The fit to the points of a curve.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum CurveFit {
    /// The line of least squares through their means.
    Line,
}

/// The statistic of a point's replications.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum SweepPointStatistic {
    /// Their mean, with Student's interval.
    #[default]
    Mean,
    /// Their median, with the interval of its order statistics, which assumes no distribution. At 95 % it needs six
    /// replications.
    Median,
}

/// A series of measurements of others.
#[derive(Clone, PartialEq, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ReferenceSeries {
    /// Its name in the legend, such as `"ns-2, Diameter/TCP"`.
    pub name: String,
    /// Its source, in a sentence below the figure.
    #[serde(default)]
    pub source: String,
    /// Its points.
    pub points: Vec<ReferencePoint>,
}

/// One point of such a series.
#[derive(Clone, PartialEq, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ReferencePoint {
    /// Its value on the figure's axis, such as `"5 %"`.
    pub x: ConfigValue,
    /// The measured value, such as `"0.31 s"`; a plain number if the metric has no unit.
    pub y: ConfigValue,
    /// The interval's lower end, written like `y`.
    pub low: Option<ConfigValue>,
    /// The interval's upper end.
    pub high: Option<ConfigValue>,
    /// The number of its replications.
    pub n: Option<PositiveCount>,
}
