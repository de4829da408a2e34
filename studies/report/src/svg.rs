//! Figures as SVG.

mod label;
mod mark;

use crate::figure::{Figure, Kind, Point, Series};
use crate::format::{escape, with_ends, with_half_width};
use crate::scale::Scale;
use label::{Label, text_width};
use std::fmt::Write as _;

/// Colours told apart with any kind of colour vision (after Okabe and Ito, without the pale ones), each
/// also with a marker of its own.
pub(crate) const COLOURS: usize = 7;

/// The style of a figure that stands alone; in a report the page's style sheet takes its place.
pub(crate) const STYLE: &str = include_str!("svg/figure.css");

const WIDTH: f64 = 800.0;
const PLOT_HEIGHT: f64 = 320.0;

/// How a figure is drawn.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Variant {
    /// A logarithmic horizontal axis.
    pub(crate) log_x: bool,
    /// A logarithmic vertical axis.
    pub(crate) log_y: bool,
}

impl Variant {
    /// As the figure asks.
    pub(crate) fn of(figure: &Figure) -> Self {
        Self { log_x: figure.x.log && suits_log_x(figure), log_y: figure.y.log && suits_log_y(figure) }
    }
}

/// True where the horizontal axis can be logarithmic.
pub(crate) fn suits_log_x(figure: &Figure) -> bool {
    figure.x.categories.is_empty() && suits(figure.finite().map(|(_, p)| p.x))
}

/// True where the vertical axis can be logarithmic.
pub(crate) fn suits_log_y(figure: &Figure) -> bool {
    suits(figure.finite().map(|(_, p)| p.mean))
}

fn suits(values: impl Iterator<Item = f64>) -> bool {
    let (low, high) = values.fold((f64::INFINITY, 0.0f64), |(l, h), v| (l.min(v), h.max(v)));
    low > 0.0 && high >= 2.0 * low
}

/// A figure as a file of its own.
pub(crate) fn file(figure: &Figure) -> String {
    let inner = drawing(figure, Variant::of(figure), true);
    format!("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n{inner}")
}

/// A figure as an `svg` element. With `alone` it has its title, a white ground and its style within.
pub(crate) fn drawing(figure: &Figure, variant: Variant, alone: bool) -> String {
    let plot = Plot::new(figure, variant, alone);
    let mut out = String::new();
    let id = format!("{}{}{}", figure.file_stem(), flag("-lx", variant.log_x), flag("-ly", variant.log_y));
    let _ = writeln!(
        out,
        "<svg xmlns=\"http://www.w3.org/2000/svg\" class=\"figure\" viewBox=\"0 0 {WIDTH} {h}\"{size} role=\"img\" \
         aria-labelledby=\"{id}-title {id}-desc\">\n<title id=\"{id}-title\">{title}</title>\n\
         <desc id=\"{id}-desc\">{desc}</desc>",
        h = px(plot.height),
        size =
            if alone { format!(" width=\"{WIDTH}\" height=\"{}\"", px(plot.height)) } else { String::new() },
        title = escape(&figure.title),
        desc = escape(&description(figure)),
    );
    if alone {
        let _ =
            writeln!(out, "<style>{STYLE}</style>\n<rect class=\"ground\" width=\"100%\" height=\"100%\"/>");
        let _ = writeln!(out, "<text class=\"title\" x=\"16\" y=\"28\">{}</text>", escape(&figure.title));
    }
    plot.axes(&mut out, figure);
    let (l, t, w, h) = (plot.left, plot.top, plot.right - plot.left, plot.bottom - plot.top);
    let _ = writeln!(
        out,
        "<clipPath id=\"{id}-clip\"><rect x=\"{}\" y=\"{}\" width=\"{}\" height=\"{}\"/></clipPath>",
        px(l - 8.0),
        px(t - 8.0),
        px(w + 16.0),
        px(h + 16.0)
    );
    // Closed forms lie under what was measured.
    for kind in [Kind::Analytic, Kind::Fitted, Kind::Reference, Kind::Median, Kind::Measured] {
        for (i, series) in figure.series.iter().enumerate().filter(|(_, s)| s.kind == kind) {
            plot.series(&mut out, figure, i, series, &id);
        }
    }
    plot.labels(&mut out, figure);
    out.push_str("</svg>\n");
    out
}

fn flag(text: &'static str, set: bool) -> &'static str {
    if set { text } else { "" }
}

/// What a screen reader says of a figure.
fn description(figure: &Figure) -> String {
    let names: Vec<&str> = figure.series.iter().map(|s| s.name.as_str()).collect();
    format!("{} over {}, for: {}.", figure.y.label(), figure.x.label(), names.join("; "))
}

/// What the pointer is told at a point.
fn tip(figure: &Figure, series: &Series, p: &Point) -> String {
    let unit = |unit: &str| if unit.is_empty() { String::new() } else { format!(" {unit}") };
    let x = format!("{}: {}{}", figure.x.title, figure.x_text(p.x), unit(&figure.x.unit));
    let half_width = p.interval().map_or(0.0, |(low, high)| (high - low) / 2.0);
    let mean = format!("{}{}", with_half_width(p.mean, half_width), unit(&figure.y.unit));
    let name = match Figure::name_of(series, p) {
        Some(point) => format!("{}\n{point}", series.name),
        None => series.name.clone(),
    };
    let ends = || format!("{}{}", with_ends(p.mean, p.interval()), unit(&figure.y.unit));
    let n = if p.n > 0 { format!("\nn = {}", p.n) } else { String::new() };
    match (series.kind, p.moved) {
        (Kind::Measured, Some(moved)) => {
            let median = p.median.map_or_else(String::new, |m| {
                format!("; median {}{}", with_ends(m.median, m.interval()), unit(&figure.y.unit))
            });
            let without = with_half_width(moved.without, 0.0);
            format!("{name}\n{x}\n{mean}{n}\none replication moves the mean: {without} without it{median}")
        }
        (Kind::Measured, None) => format!("{name}\n{x}\n{mean}\nn = {}", p.n),
        (Kind::Median, _) => format!("{name}\n{x}\nmedian {}{n}", ends()),
        (Kind::Reference, _) => format!("{name}\n{x}\n{}{n}", ends()),
        (Kind::Analytic, _) => format!("{name}\n{x}\n{mean}\nclosed form"),
        (Kind::Fitted, _) => format!("{name}\n{x}\n{mean}\nfitted line"),
    }
}

/// A coordinate, to a hundredth of a pixel.
fn px(value: f64) -> String {
    let text = format!("{:.2}", value + 0.0);
    let text = text.trim_end_matches('0').trim_end_matches('.');
    if text == "-0" { "0".to_owned() } else { text.to_owned() }
}

/// A figure's geometry.
struct Plot {
    left: f64,
    right: f64,
    top: f64,
    bottom: f64,
    height: f64,
    x: Scale,
    y: Scale,
    labels: Vec<Label>,
}

impl Plot {
    fn new(figure: &Figure, variant: Variant, alone: bool) -> Self {
        let top = if alone { 74.0 } else { 38.0 };
        let bottom = top + PLOT_HEIGHT;
        let (low, high) = y_range(figure, variant.log_y);
        let y = Scale::new(low, high, variant.log_y, bottom, top).nice();

        let tick_width = y.ticks().iter().map(|t| text_width(&t.label, 12.0)).fold(0.0, f64::max);
        let left = 26.0 + tick_width.max(14.0);
        let mut labels = label::wrapped(&figure.series);
        let widest = labels.iter().map(Label::width).fold(0.0, f64::max);
        let right = WIDTH - 46.0 - widest;

        let inset = if figure.x.categories.is_empty() {
            10.0
        } else {
            (right - left) / (2.0 * figure.x.categories.len() as f64)
        };
        let (low, high) = x_range(figure);
        let x = Scale::new(low, high, variant.log_x, left + inset, right - inset);
        for (i, label) in labels.iter_mut().enumerate() {
            let last = figure.series[i].points.iter().rfind(|p| p.x.is_finite() && p.mean.is_finite());
            label.anchor = last.map(|p| (x.at(p.x) + dodge(figure, i), y.at(p.mean)));
        }
        let lowest = label::spread(&mut labels, top, bottom);
        let height = (bottom + 56.0).max(lowest + 12.0);
        Self { left, right, top, bottom, height, x, y, labels }
    }

    fn axes(&self, out: &mut String, figure: &Figure) {
        let (l, r, t, b) = (px(self.left), px(self.right), px(self.top), px(self.bottom));
        out.push_str("<g class=\"axes\">\n");
        for tick in self.y.ticks() {
            let y = px(self.y.at(tick.value));
            let class = if tick.label.is_empty() { "grid minor" } else { "grid" };
            let _ = writeln!(out, "<path class=\"{class}\" d=\"M{l} {y}H{r}\"/>");
            if !tick.label.is_empty() {
                let (x, y) = (px(self.left - 9.0), px(self.y.at(tick.value) + 4.0));
                let _ = writeln!(
                    out,
                    "<text class=\"tick\" x=\"{x}\" y=\"{y}\" text-anchor=\"end\">{}</text>",
                    tick.label
                );
            }
        }
        let mut free_from = f64::NEG_INFINITY;
        for (value, label) in self.x_ticks(figure) {
            let at = self.x.at(value);
            let x = px(at);
            let half = text_width(&label, 12.0) / 2.0;
            let shown = !label.is_empty() && at - half > free_from;
            let length = if shown { 6.0 } else { 3.0 };
            let _ = writeln!(out, "<path class=\"axis\" d=\"M{x} {b}v{length}\"/>");
            if shown {
                free_from = at + half + 8.0;
                let y = px(self.bottom + 21.0);
                let _ = writeln!(
                    out,
                    "<text class=\"tick\" x=\"{x}\" y=\"{y}\" text-anchor=\"middle\">{}</text>",
                    escape(&label)
                );
            }
        }
        let _ = writeln!(out, "<path class=\"axis\" d=\"M{l} {b}H{r}\"/>");
        let (x, y) = (px(f64::midpoint(self.left, self.right)), px(self.bottom + 45.0));
        let label = escape(&figure.x.label());
        let _ =
            writeln!(out, "<text class=\"name\" x=\"{x}\" y=\"{y}\" text-anchor=\"middle\">{label}</text>");
        let y = px(self.top - 18.0);
        let _ = writeln!(out, "<text class=\"name\" x=\"16\" y=\"{y}\">{}</text>", escape(&figure.y.label()));
        let _ = writeln!(out, "</g>\n<path class=\"frame\" d=\"M{l} {t}V{b}\"/>");
    }

    fn x_ticks(&self, figure: &Figure) -> Vec<(f64, String)> {
        if figure.x.categories.is_empty() {
            return self.x.ticks().into_iter().map(|t| (t.value, t.label)).collect();
        }
        figure.x.categories.iter().enumerate().map(|(i, name)| (i as f64, name.clone())).collect()
    }

    fn series(&self, out: &mut String, figure: &Figure, i: usize, series: &Series, id: &str) {
        let finite: Vec<&Point> =
            series.points.iter().filter(|p| p.x.is_finite() && p.mean.is_finite()).collect();
        let at = |p: &Point| self.x.at(p.x) + dodge(figure, i);
        let kind = match series.kind {
            Kind::Analytic | Kind::Fitted => "analytic",
            Kind::Reference => "reference",
            Kind::Measured | Kind::Median => "measured",
        };
        let _ = writeln!(
            out,
            "<g class=\"series {kind} c{}\" data-series=\"{i}\" clip-path=\"url(#{id}-clip)\">",
            like(figure, i) % COLOURS
        );
        let fitted = figure.series.iter().any(|s| s.kind == Kind::Fitted);
        let joined = series.kind != Kind::Reference && (!fitted || !series.kind.marked());
        if figure.x.categories.is_empty() && finite.len() > 1 && joined {
            let mut d = String::new();
            for (n, p) in finite.iter().enumerate() {
                let _ = write!(
                    d,
                    "{}{} {}",
                    if n == 0 { 'M' } else { 'L' },
                    px(at(p)),
                    px(self.y.beyond(p.mean))
                );
            }
            let _ = writeln!(out, "<path class=\"line\" d=\"{d}\"/>");
        }
        for p in &finite {
            let Some((low, high)) = p.interval() else { continue };
            let (x, top, foot) = (at(p), self.y.at(high), self.y.at(low));
            let (left, top, foot) = (px(x - 4.0), px(top), px(foot));
            let _ = writeln!(
                out,
                "<path class=\"interval\" d=\"M{left} {top}h8M{left} {foot}h8M{} {top}V{foot}\"/>",
                px(x)
            );
        }
        for p in &finite {
            // Something for the pointer to find on a curve without markers.
            let shape = if series.kind.marked() { mark::path(like(figure, i)) } else { mark::HIT };
            let class = match series.kind {
                Kind::Analytic | Kind::Fitted => "hit",
                Kind::Reference => "mark hollow",
                Kind::Measured if p.moved.is_some() => "mark hollow",
                Kind::Measured | Kind::Median => "mark",
            };
            let (x, y) = (px(at(p)), px(self.y.at(p.mean)));
            let tip = escape(&tip(figure, series, p)).replace('\n', "&#10;");
            let _ = writeln!(
                out,
                "<path class=\"{class}\" transform=\"translate({x} {y})\" d=\"{shape}\" data-tip=\"{tip}\"/>"
            );
        }
        out.push_str("</g>\n");
    }

    fn labels(&self, out: &mut String, figure: &Figure) {
        for (i, label) in self.labels.iter().enumerate() {
            let colour = like(figure, i) % COLOURS;
            let _ = writeln!(out, "<g class=\"label c{colour}\" data-series=\"{i}\">");
            let x = self.right + 34.0;
            let middle = label.y + label.height() / 2.0;
            if let Some((from, y)) = label.anchor {
                let (from, to) = (px(from + 7.0), px(self.right + 8.0));
                let _ = writeln!(out, "<path class=\"leader\" d=\"M{from} {}L{to} {}\"/>", px(y), px(middle));
            }
            let (start, y) = (px(self.right + 10.0), px(middle));
            match label.kind {
                Kind::Analytic | Kind::Fitted => {
                    let _ = writeln!(out, "<path class=\"line dashed\" d=\"M{start} {y}h18\"/>");
                }
                kind => {
                    let hollow = kind == Kind::Reference;
                    if !hollow {
                        let _ = writeln!(out, "<path class=\"line\" d=\"M{start} {y}h18\"/>");
                    }
                    let centre = px(self.right + 19.0);
                    let shape = mark::path(like(figure, i));
                    let class = if hollow { "mark hollow" } else { "mark" };
                    let _ = writeln!(
                        out,
                        "<path class=\"{class}\" transform=\"translate({centre} {y})\" d=\"{shape}\"/>"
                    );
                }
            }
            for (n, line) in label.lines.iter().enumerate() {
                let y = px(label.y + 11.5 + label::LINE * n as f64);
                let _ = writeln!(out, "<text x=\"{}\" y=\"{y}\">{}</text>", px(x), escape(line));
            }
            out.push_str("</g>\n");
        }
    }
}

/// The series whose colour and marker this one has: its own, but of what others measured that of the curve whose name its own
/// begins with, before a parenthesis.
fn like(figure: &Figure, i: usize) -> usize {
    let same = |s: &Series| {
        figure.series[i].name.strip_prefix(s.name.as_str()).is_some_and(|rest| rest.starts_with(" ("))
    };
    match figure.series[i].kind {
        Kind::Reference | Kind::Fitted => {
            figure.series.iter().position(|s| s.kind.measured() && same(s)).unwrap_or(i)
        }
        _ => i,
    }
}

/// Side by side where points share a category, so that their intervals can be told apart.
fn dodge(figure: &Figure, series: usize) -> f64 {
    if figure.x.categories.is_empty() {
        return 0.0;
    }
    (series as f64 - (figure.series.len() as f64 - 1.0) / 2.0) * 14.0
}

fn x_range(figure: &Figure) -> (f64, f64) {
    if !figure.x.categories.is_empty() {
        return (0.0, (figure.x.categories.len() - 1) as f64);
    }
    let xs = || figure.finite().map(|(_, p)| p.x);
    let (low, high) = (xs().fold(f64::INFINITY, f64::min), xs().fold(f64::NEG_INFINITY, f64::max));
    if low > high { (0.0, 1.0) } else { (low, high) }
}

/// What the vertical axis spans: every interval, and closed forms as far as they stay near the
/// measurements; from zero, unless all lies far above it.
fn y_range(figure: &Figure, log: bool) -> (f64, f64) {
    let (mut low, mut high) = (f64::INFINITY, f64::NEG_INFINITY);
    let mut take = |v: f64| {
        if v.is_finite() && (!log || v > 0.0) {
            low = low.min(v);
            high = high.max(v);
        }
    };
    let measured = || figure.finite().filter(|(s, _)| s.kind.marked());
    for (_, p) in measured() {
        let (from, to) = p.interval().unwrap_or((p.mean, p.mean));
        // On a logarithmic axis an interval that comes near zero would push all else together.
        take(if log { from.max(p.mean / 4.0) } else { from });
        take(to);
        take(p.mean);
    }
    let most = measured().map(|(_, p)| p.mean).fold(f64::NEG_INFINITY, f64::max);
    for (_, p) in figure.finite().filter(|(s, _)| !s.kind.marked()) {
        take(if most.is_finite() && most > 0.0 { p.mean.min(1.3 * most) } else { p.mean });
    }
    match (low, high) {
        (low, high) if low > high => (0.0, 1.0),
        (low, high) if !log && low >= 0.0 && low < 0.7 * high => (0.0, high),
        range => range,
    }
}

#[cfg(test)]
mod tests;
