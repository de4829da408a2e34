//! The content of a figure.

use crate::format::format_significant;
use crate::svg;
use usher_observe::MeanEstimate;
use usher_observe::row::format_number;
use usher_observe::stats::robust::{InfluentialReplication, MedianEstimate};
use usher_observe::stats::sample_quantiles;

/// A figure: series of points over a common horizontal axis.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct ReportFigure {
    /// Its short name, the basis of the file's name.
    pub name: String,
    /// Its title: the metric and the axis.
    pub title: String,
    /// The horizontal axis.
    pub x: FigureAxis,
    /// The vertical axis.
    pub y: FigureAxis,
    /// The series in the order of their colours.
    pub series: Vec<FigureSeries>,
    /// The panels of a figure with too many curves for one picture; empty otherwise.
    pub panels: Vec<FigurePanel>,
}

/// A panel of a figure: some of its series, with the same comparison in every panel.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct FigurePanel {
    /// The common setting of its series.
    pub title: String,
    /// Its series by their indices in [`ReportFigure::series`]. The name is the same in every panel and determines the
    /// colour.
    pub series: Vec<(usize, String)>,
}

/// An axis of a figure.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct FigureAxis {
    /// The quantity: "Packet loss".
    pub title: String,
    /// The unit of the numbers: "%", "s"; empty for none.
    pub unit: String,
    /// True for a logarithmic scale; it is linear anyway if a value is not positive.
    pub log: bool,
    /// True for shares of a whole, which are between 0 and 1. For `y` only.
    pub shares: bool,
    /// Names of the values 0, 1, 2 ... of a categorical axis; empty otherwise. For `x` only.
    pub categories: Vec<String>,
}

impl FigureAxis {
    /// Creates a linear axis.
    pub fn new(title: impl Into<String>, unit: impl Into<String>) -> Self {
        Self { title: title.into(), unit: unit.into(), ..Self::default() }
    }

    /// Creates an axis of named values: a point's `x` is the name's index, from 0.
    pub fn with_categories<T: Into<String>>(
        title: impl Into<String>,
        names: impl IntoIterator<Item = T>,
    ) -> Self {
        let categories = names.into_iter().map(Into::into).collect();
        Self { title: title.into(), categories, ..Self::default() }
    }

    /// Returns the axis with a logarithmic scale.
    #[must_use]
    pub fn with_log_scale(mut self) -> Self {
        self.log = true;
        self
    }

    /// Sets whether the axis measures shares of a whole.
    #[must_use]
    pub fn with_shares(mut self, shares: bool) -> Self {
        self.shares = shares;
        self
    }

    /// Returns title and unit: "Packet loss (%)".
    pub(crate) fn label(&self) -> String {
        match (self.title.as_str(), self.unit.as_str()) {
            (title, "") => title.to_owned(),
            ("", unit) => unit.to_owned(),
            (title, unit) => format!("{title} ({unit})"),
        }
    }
}

/// The source of a series, which determines how it is drawn.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum SeriesKind {
    /// From runs: markers with intervals, joined by a line.
    #[default]
    Measured,
    /// From runs: medians with the intervals of their order statistics, drawn like means.
    Median,
    /// Published measurements: hollow markers with intervals, not joined.
    Reference,
    /// From a closed form: a dashed curve without markers.
    Analytic,
    /// A line fitted to measurements, dashed; the points around it are not joined.
    Fitted,
    /// Another run, overlaid on the first: hollow markers, joined by a dashed line.
    Other,
    /// From runs: a curve of many points, without markers.
    Trace,
    /// From runs: boxes between the quartiles, with the median and the extremes.
    Box,
}

impl SeriesKind {
    /// All kinds in the order of drawing.
    pub(crate) const FROM_BELOW: [Self; 8] = [
        Self::Analytic,
        Self::Fitted,
        Self::Reference,
        Self::Box,
        Self::Trace,
        Self::Other,
        Self::Median,
        Self::Measured,
    ];

    /// True for kinds with markers, which determine the vertical axis: all except closed forms, fitted lines and
    /// traces.
    pub(crate) const fn has_markers(self) -> bool {
        !matches!(self, Self::Analytic | Self::Fitted | Self::Trace)
    }

    /// True for measurements of our own runs.
    pub const fn is_measured(self) -> bool {
        matches!(self, Self::Measured | Self::Median)
    }
}

/// One series of a figure.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct FigureSeries {
    /// Its name in the legend.
    pub name: String,
    /// Its source.
    pub kind: SeriesKind,
    /// Its points in the order in which a line joins them.
    pub points: Vec<SeriesPoint>,
    /// The name of each point, if x does not identify it; empty otherwise.
    pub names: Vec<String>,
}

/// One point of a series.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct SeriesPoint {
    /// The position on the horizontal axis.
    pub x: f64,
    /// The mean, the median in a series of medians, or the closed form's value.
    pub mean: f64,
    /// The interval's lower end; not finite if unknown.
    pub low: f64,
    /// The interval's upper end; not finite if unknown.
    pub high: f64,
    /// Number of replications; 0 for a closed form, or if unknown.
    pub n: u32,
    /// The median of the same replications, beside a mean.
    pub median: Option<MedianEstimate>,
    /// The replication that moves the mean, which makes the mean unreliable.
    pub moved: Option<InfluentialReplication>,
    /// The quartiles of a box.
    pub quartiles: Option<(f64, f64)>,
}

impl SeriesPoint {
    /// Creates a measured point.
    pub fn from_estimate(x: f64, estimate: &MeanEstimate) -> Self {
        Self {
            x,
            mean: estimate.mean,
            low: estimate.low(),
            high: estimate.high(),
            n: estimate.n,
            median: None,
            moved: None,
            quartiles: None,
        }
    }

    /// Creates a box of these values: median, quartiles (type 7 of Hyndman and Fan) and extremes.
    pub fn from_box_values(x: f64, values: &[f64]) -> Self {
        let mut sorted = values.to_vec();
        let [low, lower, median, upper, high] = sample_quantiles(&mut sorted, [0.0, 0.25, 0.5, 0.75, 1.0]);
        let n = values.len() as u32;
        Self { x, mean: median, low, high, n, median: None, moved: None, quartiles: Some((lower, upper)) }
    }

    /// Creates a point of a series of medians.
    pub fn from_median(x: f64, of: &MedianEstimate) -> Self {
        Self {
            x,
            mean: of.median,
            low: of.low,
            high: of.high,
            n: of.n,
            median: None,
            moved: None,
            quartiles: None,
        }
    }

    /// Creates a point of a closed form.
    pub fn from_exact(x: f64, value: f64) -> Self {
        Self { x, mean: value, low: value, high: value, n: 0, median: None, moved: None, quartiles: None }
    }

    /// Clips the interval to the range of its metric: at least 0, and at most 1 for a share of a whole.
    #[must_use]
    pub fn clamp_interval(mut self, share: bool) -> Self {
        self.low = self.low.max(0.0);
        if share && self.high.is_finite() {
            self.high = self.high.min(1.0).max(self.mean);
        }
        self
    }

    /// Returns the interval's ends, if it is known and has a width.
    pub fn interval(&self) -> Option<(f64, f64)> {
        (self.low.is_finite() && self.high.is_finite() && self.low < self.high)
            .then_some((self.low, self.high))
    }

    /// Returns half the interval's width if the value is in its middle, which is not so for a clipped interval.
    pub fn half_width(&self) -> Option<f64> {
        let (low, high) = self.interval()?;
        let off = ((high - self.mean) - (self.mean - low)).abs();
        (off <= 1e-6 * (high - low) + 1e-12 * self.mean.abs()).then_some((high - low) / 2.0)
    }
}

impl ReportFigure {
    /// Returns the figure as a separate file: a static SVG on white, with title and legend.
    pub fn to_svg(&self) -> String {
        svg::svg_file(self)
    }

    /// Returns the name for a file: letters, digits, `-` and `_`, with `-` for all other characters.
    pub fn file_stem(&self) -> String {
        safe_file_stem(&self.name, "figure")
    }

    /// Returns the points as CSV: series, x, mean, low, high, n, and names if there are any. If there are medians
    /// beside means, it adds them with their intervals and, where one replication moves a mean, the mean of the others.
    pub fn to_csv(&self) -> String {
        let named = self.series.iter().any(|s| !s.names.is_empty());
        let medians = self.series.iter().flat_map(|s| &s.points).any(|p| p.median.is_some());
        let mut out = format!(
            "series,x,mean,low,high,n{}{}\n",
            if named { ",name" } else { "" },
            if medians { ",median,median_low,median_high,mean_without" } else { "" }
        );
        for series in &self.series {
            for (i, p) in series.points.iter().enumerate() {
                let x = self.x_text(p.x);
                let numbers = [p.mean, p.low, p.high].map(format_number).join(",");
                out.push_str(&format!("{},{},{numbers},{}", quote_csv(&series.name), quote_csv(&x), p.n));
                if named {
                    out.push_str(&format!(",{}", quote_csv(series.names.get(i).map_or("", String::as_str))));
                }
                if medians {
                    let of = |get: fn(&MedianEstimate) -> f64| p.median.as_ref().map(get);
                    let without = p.moved.map(|m| m.mean_without);
                    for value in [of(|m| m.median), of(|m| m.low), of(|m| m.high), without] {
                        out.push(',');
                        out.push_str(
                            &value.filter(|v| v.is_finite()).map_or_else(String::new, format_number),
                        );
                    }
                }
                out.push('\n');
            }
        }
        out
    }

    /// Returns a panel as a figure without title.
    pub(crate) fn extract_panel_figure(&self, panel: &FigurePanel) -> Self {
        let of = |(i, name): &(usize, String)| {
            self.series.get(*i).map(|series| FigureSeries { name: name.clone(), ..series.clone() })
        };
        let series = panel.series.iter().filter_map(of).collect();
        Self { series, panels: Vec::new(), ..self.clone() }
    }

    /// Returns the text of a position on the horizontal axis.
    pub(crate) fn x_text(&self, x: f64) -> String {
        match self.x.categories.get(x as usize) {
            Some(name) => name.clone(),
            None => format_number(x),
        }
    }

    /// Formats a position for people: measurements have too many digits, settings have few.
    pub(crate) fn format_x(&self, x: f64) -> String {
        let exact = self.x_text(x);
        let measured = self.x.categories.is_empty() && x.fract() != 0.0 && exact.len() > 8;
        if measured { format_significant(x, 5) } else { exact }
    }

    /// Returns the name of a point, if it has one.
    pub(crate) fn name_of<'a>(series: &'a FigureSeries, p: &SeriesPoint) -> Option<&'a str> {
        let at = series.points.iter().position(|q| std::ptr::eq(q, p))?;
        series.names.get(at).map(String::as_str)
    }

    /// Returns the finite points of each series, in its order.
    pub(crate) fn finite_points(&self) -> impl Iterator<Item = (&FigureSeries, &SeriesPoint)> {
        let points = self.series.iter().flat_map(|s| s.points.iter().map(move |p| (s, p)));
        points.filter(|(_, p)| p.x.is_finite() && p.mean.is_finite())
    }
}

/// Returns a name for a file, or `empty` for an empty name.
pub(crate) fn safe_file_stem(name: &str, empty: &str) -> String {
    let safe = |c: char| if c.is_ascii_alphanumeric() || c == '_' { c } else { '-' };
    if name.is_empty() { empty.to_owned() } else { name.chars().map(safe).collect() }
}

fn quote_csv(text: &str) -> String {
    if text.contains([',', '"', '\n', '\r']) {
        format!("\"{}\"", text.replace('"', "\"\""))
    } else {
        text.to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_figure_as_csv() {
        let figure = ReportFigure {
            x: FigureAxis::with_categories("Method", ["EAP-MD5", "EAP-TLS, 1.3"]),
            series: vec![FigureSeries {
                name: "a \"b\"".into(),
                kind: SeriesKind::Measured,
                points: vec![SeriesPoint::from_estimate(
                    1.0,
                    &MeanEstimate { mean: 2.0, half_width: 0.5, n: 9 },
                )],
                names: Vec::new(),
            }],
            ..ReportFigure::default()
        };
        let expected = "series,x,mean,low,high,n\n\"a \"\"b\"\"\",\"EAP-TLS, 1.3\",2,1.5,2.5,9\n";
        assert_eq!(figure.to_csv(), expected);
    }

    #[test]
    fn medians_stand_beside_means_and_say_what_moves_them() {
        let values = [1.0, 1.0, 2.0, 1.0, 2.0, 29.0];
        let mut moved = SeriesPoint::from_estimate(5.0, &MeanEstimate::from_values(&values, 0.95));
        (moved.low, moved.high) = (0.0, 18.0);
        moved.median = Some(MedianEstimate::from_values(&values, 0.95));
        moved.moved = Some(InfluentialReplication { replication: 5, mean_without: 1.25, share: 0.8 });
        let series = vec![FigureSeries {
            name: "a".into(),
            points: vec![moved, SeriesPoint::from_exact(9.0, 7.0)],
            ..FigureSeries::default()
        }];
        let figure = ReportFigure { series, ..ReportFigure::default() };
        let expected = "series,x,mean,low,high,n,median,median_low,median_high,mean_without\n\
                        a,5,6,0,18,6,1.5,1,29,1.25\na,9,7,7,7,0,,,,\n";
        assert_eq!(figure.to_csv(), expected);
    }

    #[test]
    fn points_of_a_trade_off_have_names() {
        let points = vec![SeriesPoint::from_exact(0.3, 0.9), SeriesPoint::from_exact(0.2, 0.8)];
        let names = vec!["0.1 s, twice".to_owned(), "1 s".to_owned()];
        let series = vec![FigureSeries { name: "a".into(), kind: SeriesKind::Measured, points, names }];
        let figure = ReportFigure { series, ..ReportFigure::default() };
        let expected =
            "series,x,mean,low,high,n,name\na,0.3,0.9,0.9,0.9,0,\"0.1 s, twice\"\na,0.2,0.8,0.8,0.8,0,1 s\n";
        assert_eq!(figure.to_csv(), expected);
        let second = &figure.series[0].points[1];
        assert_eq!(ReportFigure::name_of(&figure.series[0], second), Some("1 s"));
    }

    #[test]
    fn names_are_safe_as_files() {
        let stem = |name: &str| ReportFigure { name: name.into(), ..ReportFigure::default() }.file_stem();
        assert_eq!(stem("../../delay by loss"), "------delay-by-loss");
        assert_eq!(stem(""), "figure");
    }
}
