//! Figures as SVG.

mod label;
mod mark;

use crate::figure::{FigureAxis, FigureSeries, ReportFigure, SeriesKind, SeriesPoint};
use crate::format::{escape_markup, format_significant, with_ends, with_half_width};
use crate::scale::AxisScale;
use label::SeriesLabel;
pub(crate) use label::text_width;
use std::fmt::Write as _;

/// Number of colours. They suit any kind of colour vision (after Okabe and Ito, without the pale ones), and each also
/// has its own marker.
pub(crate) const COLOURS: usize = 7;

/// The style of a separate figure; in a report the page's style sheet replaces it.
pub(crate) const STYLE: &str = include_str!("svg/figure.css");

const WIDTH: f64 = 800.0;
/// The width of a drawing on a telephone.
const NARROW: f64 = 380.0;
const PLOT_HEIGHT: f64 = 320.0;

/// The scales of a drawing.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct FigureScaleVariant {
    /// True for a logarithmic horizontal axis.
    pub(crate) log_x: bool,
    /// True for a logarithmic vertical axis.
    pub(crate) log_y: bool,
}

impl FigureScaleVariant {
    /// Returns the figure's own scales.
    pub(crate) fn for_figure(figure: &ReportFigure) -> Self {
        Self { log_x: figure.x.log && suits_log_x(figure), log_y: figure.y.log && suits_log_y(figure) }
    }
}

/// True if the horizontal axis can be logarithmic.
pub(crate) fn suits_log_x(figure: &ReportFigure) -> bool {
    figure.x.categories.is_empty() && suits_log_scale(figure.finite_points().map(|(_, p)| p.x))
}

/// True if the vertical axis can be logarithmic.
pub(crate) fn suits_log_y(figure: &ReportFigure) -> bool {
    suits_log_scale(figure.finite_points().map(|(_, p)| p.mean))
}

fn suits_log_scale(values: impl Iterator<Item = f64>) -> bool {
    let (low, high) = values.fold((f64::INFINITY, 0.0f64), |(l, h), v| (l.min(v), h.max(v)));
    low > 0.0 && high >= 2.0 * low
}

/// The size of a drawing, and the position of its series' names.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum DrawingLayout {
    /// A separate file with title, background and style.
    Standalone,
    /// For a page.
    Wide,
    /// For a page on a telephone: names below the plot, panels one below the other.
    Narrow,
}

/// Returns a figure as a separate file.
pub(crate) fn svg_file(figure: &ReportFigure) -> String {
    let inner = draw_figure(figure, FigureScaleVariant::for_figure(figure), DrawingLayout::Standalone);
    format!("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n{inner}")
}

/// Draws a figure as an `svg` element.
pub(crate) fn draw_figure(figure: &ReportFigure, variant: FigureScaleVariant, size: DrawingLayout) -> String {
    let narrow = text_or_empty("-n", size == DrawingLayout::Narrow);
    let id = format!(
        "{}{}{}{narrow}",
        figure.file_stem(),
        text_or_empty("-lx", variant.log_x),
        text_or_empty("-ly", variant.log_y)
    );
    let title = if size == DrawingLayout::Standalone { 36.0 } else { 0.0 };
    let (body, width, height) = match figure.panels.is_empty() {
        true => draw_single(figure, variant, size, title, &id),
        false => draw_panels(figure, variant, size, title, &id),
    };
    let alone = size == DrawingLayout::Standalone;
    let mut out = String::new();
    let _ = writeln!(
        out,
        "<svg xmlns=\"http://www.w3.org/2000/svg\" class=\"figure\" viewBox=\"0 0 {width} {h}\"{size} role=\"img\" \
         aria-labelledby=\"{id}-title {id}-desc\">\n<title id=\"{id}-title\">{title}</title>\n\
         <desc id=\"{id}-desc\">{desc}</desc>",
        h = format_px(height),
        size = if alone {
            format!(" width=\"{width}\" height=\"{}\"", format_px(height))
        } else {
            String::new()
        },
        title = escape_markup(&figure.title),
        desc = escape_markup(&figure_description(figure)),
    );
    if alone {
        let _ =
            writeln!(out, "<style>{STYLE}</style>\n<rect class=\"ground\" width=\"100%\" height=\"100%\"/>");
        let _ =
            writeln!(out, "<text class=\"title\" x=\"16\" y=\"28\">{}</text>", escape_markup(&figure.title));
    }
    out.push_str(&body);
    out.push_str("</svg>\n");
    out
}

/// Draws a figure without panels; returns the drawing, its width and its height.
fn draw_single(
    figure: &ReportFigure,
    variant: FigureScaleVariant,
    size: DrawingLayout,
    top: f64,
    id: &str,
) -> (String, f64, f64) {
    let narrow = size == DrawingLayout::Narrow;
    let width = if narrow { NARROW } else { WIDTH };
    let looks: Vec<SeriesStyle> = (0..figure.series.len())
        .map(|i| SeriesStyle { legend_index: i, colour: style_series_index(figure, i) })
        .collect();
    let frame = PlotFrame {
        width,
        top: top + 38.0 + extra_height(&lines_of(&figure.y, width - 32.0)),
        plot_height: if narrow { 250.0 } else { PLOT_HEIGHT },
        has_side_labels: !narrow,
        names: [true, true],
        ranges: [x_range(figure), y_range(figure, variant.log_y)],
        looks: &looks,
    };
    let plot = FigurePlot::new(figure, variant, &frame);
    let mut out = String::new();
    plot.draw_plot(&mut out, figure, id);
    let mut height = plot.height;
    if narrow {
        let names: Vec<_> =
            figure.series.iter().zip(&looks).map(|(s, look)| (*look, s.kind, s.name.as_str())).collect();
        height = draw_legend(&mut out, &names, height, frame.width);
    } else {
        plot.draw_labels(&mut out, figure);
    }
    (out, frame.width, height)
}

/// Draws a figure in panels with common scales; returns the drawing, its width and its height.
fn draw_panels(
    figure: &ReportFigure,
    variant: FigureScaleVariant,
    size: DrawingLayout,
    top: f64,
    id: &str,
) -> (String, f64, f64) {
    let across = if size == DrawingLayout::Narrow { 1 } else { 2 };
    let each = if across == 1 { NARROW } else { WIDTH / 2.0 };
    let mut names: Vec<(SeriesStyle, SeriesKind, &str)> = Vec::new();
    let mut out = String::new();
    let name = lines_of(&figure.y, each * across as f64 - 32.0);
    draw_axis_name(&mut out, &name, 16.0, top + 14.0, "");
    let mut y = top + 18.0 + extra_height(&name);
    let ranges = [x_range(figure), y_range(figure, variant.log_y)];
    let rows = figure.panels.len().div_ceil(across);
    for (row, panels) in figure.panels.chunks(across).enumerate() {
        let mut tallest = 0.0f64;
        for (column, panel) in panels.iter().enumerate() {
            let within = figure.extract_panel_figure(panel);
            let mut looks = Vec::new();
            for (series, (_, name)) in within.series.iter().zip(&panel.series) {
                let known = names.iter().find(|(.., known)| known == name).map(|(look, ..)| *look);
                looks.push(known.unwrap_or_else(|| {
                    // A series that belongs to a curve, such as "A (theory)" to "A", has the curve's colour.
                    let beside =
                        |known: &str| name.strip_prefix(known).is_some_and(|rest| rest.starts_with(" ("));
                    let same = names.iter().find(|(.., known)| beside(known)).map(|(look, ..)| look.colour);
                    let next = names.iter().map(|(look, ..)| look.colour + 1).max().unwrap_or_default();
                    let look = SeriesStyle { legend_index: names.len(), colour: same.unwrap_or(next) };
                    names.push((look, series.kind, name));
                    look
                }));
            }
            let frame = PlotFrame {
                width: each,
                top: 30.0,
                plot_height: 190.0,
                has_side_labels: false,
                names: [row + 1 == rows || across == 1, false],
                ranges,
                looks: &looks,
            };
            let plot = FigurePlot::new(&within, variant, &frame);
            let _ = writeln!(
                out,
                "<g transform=\"translate({} {})\">\n<text class=\"panel\" x=\"{}\" y=\"18\">{}</text>",
                format_px(each * column as f64),
                format_px(y),
                format_px(plot.left),
                escape_markup(&panel.title)
            );
            plot.draw_plot(&mut out, &within, &format!("{id}-{row}-{column}"));
            out.push_str("</g>\n");
            tallest = tallest.max(plot.height);
        }
        y += tallest;
    }
    let width = each * across as f64;
    let height = draw_legend(&mut out, &names, y + 6.0, width);
    (out, width, height)
}

/// Breaks the name of an axis into lines up to this length; none for an empty name.
fn lines_of(axis: &FigureAxis, longest: f64) -> Vec<String> {
    let name = axis.label();
    if name.trim().is_empty() { Vec::new() } else { label::wrap_lines(&name, longest) }
}

/// Returns the additional height of these lines compared with one.
fn extra_height(lines: &[String]) -> f64 {
    label::LINE * lines.len().saturating_sub(1) as f64
}

/// Draws the name of an axis with its first line at this height.
fn draw_axis_name(out: &mut String, lines: &[String], x: f64, y: f64, anchor: &str) {
    for (n, line) in lines.iter().enumerate() {
        let (x, y) = (format_px(x), format_px(y + label::LINE * n as f64));
        let _ =
            writeln!(out, "<text class=\"name\" x=\"{x}\" y=\"{y}\"{anchor}>{}</text>", escape_markup(line));
    }
}

/// Draws the names of series below a plot from this height on. Returns the lower edge.
fn draw_legend(out: &mut String, names: &[(SeriesStyle, SeriesKind, &str)], from: f64, width: f64) -> f64 {
    let (mut x, mut y) = (16.0, from + 12.0);
    for (SeriesStyle { legend_index: place, colour }, kind, name) in names {
        let mut lines = label::wrap_lines(name, width - 70.0);
        let wide = lines.iter().map(|line| text_width(line, 12.5)).fold(0.0, f64::max) + 46.0;
        if x > 16.0 && x + wide > width {
            (x, y) = (16.0, y + 22.0);
        }
        let _ = writeln!(out, "<g class=\"label c{}\" data-series=\"{place}\">", colour % COLOURS);
        draw_legend_marker(out, *kind, *colour, x, y - 4.0);
        let more = lines.split_off(1);
        let _ = writeln!(
            out,
            "<text x=\"{}\" y=\"{}\">{}</text>",
            format_px(x + 24.0),
            format_px(y),
            escape_markup(&lines.concat())
        );
        for line in more {
            y += label::LINE;
            let _ = writeln!(
                out,
                "<text x=\"{}\" y=\"{}\">{}</text>",
                format_px(x + 24.0),
                format_px(y),
                escape_markup(&line)
            );
        }
        out.push_str("</g>\n");
        x += wide;
    }
    y + 14.0
}

/// Draws a piece of a curve with its marker in front of a name.
fn draw_legend_marker(out: &mut String, kind: SeriesKind, colour: usize, x: f64, y: f64) {
    let (start, y) = (format_px(x), format_px(y));
    if !kind.has_markers() {
        let dashed = if kind == SeriesKind::Trace { "" } else { " dashed" };
        let _ = writeln!(out, "<path class=\"line{dashed}\" d=\"M{start} {y}h18\"/>");
        return;
    }
    let hollow = kind == SeriesKind::Reference || kind == SeriesKind::Other;
    if kind != SeriesKind::Reference && kind != SeriesKind::Box {
        let dashed = if hollow { " dashed" } else { "" };
        let _ = writeln!(out, "<path class=\"line{dashed}\" d=\"M{start} {y}h18\"/>");
    }
    let (centre, shape) = (format_px(x + 9.0), mark::marker_path(colour));
    let class = if hollow { "mark hollow" } else { "mark" };
    let _ = writeln!(out, "<path class=\"{class}\" transform=\"translate({centre} {y})\" d=\"{shape}\"/>");
}

fn text_or_empty(text: &'static str, set: bool) -> &'static str {
    if set { text } else { "" }
}

/// Returns the description of a figure for screen readers.
fn figure_description(figure: &ReportFigure) -> String {
    let names: Vec<&str> = figure.series.iter().map(|s| s.name.as_str()).collect();
    format!("{} over {}, for: {}.", figure.y.label(), figure.x.label(), names.join("; "))
}

/// Returns the tooltip of a point.
fn point_tooltip_text(figure: &ReportFigure, series: &FigureSeries, p: &SeriesPoint) -> String {
    let unit = |unit: &str| if unit.is_empty() { String::new() } else { format!(" {unit}") };
    let x = format!("{}: {}{}", figure.x.title, figure.format_x(p.x), unit(&figure.x.unit));
    let mean = match (p.interval(), p.half_width()) {
        (Some(ends), None) => with_ends(p.mean, Some(ends)),
        (_, half_width) => with_half_width(p.mean, half_width.unwrap_or_default()),
    };
    let mean = format!("{mean}{}", unit(&figure.y.unit));
    let name = match ReportFigure::name_of(series, p) {
        Some(point) => format!("{}\n{point}", series.name),
        None => series.name.clone(),
    };
    let ends = || format!("{}{}", with_ends(p.mean, p.interval()), unit(&figure.y.unit));
    let n = if p.n > 0 { format!("\nn = {}", p.n) } else { String::new() };
    match (series.kind, p.moved) {
        (SeriesKind::Measured, Some(moved)) => {
            let median = p.median.map_or_else(String::new, |m| {
                format!("; median {}{}", with_ends(m.median, m.interval()), unit(&figure.y.unit))
            });
            let without = with_half_width(moved.mean_without, 0.0);
            format!("{name}\n{x}\n{mean}{n}\none replication moves the mean: {without} without it{median}")
        }
        (SeriesKind::Measured, None) => format!("{name}\n{x}\n{mean}\nn = {}", p.n),
        (SeriesKind::Median, _) => format!("{name}\n{x}\nmedian {}{n}", ends()),
        (SeriesKind::Reference, _) => format!("{name}\n{x}\n{}{n}", ends()),
        (SeriesKind::Analytic, _) => format!("{name}\n{x}\n{mean}\nclosed form"),
        (SeriesKind::Fitted, _) => format!("{name}\n{x}\n{mean}\nfitted line"),
        (SeriesKind::Other, _) => format!("{name}\n{x}\n{mean}{n}"),
        (SeriesKind::Trace, _) => format!("{name}\n{x}\n{mean}"),
        (SeriesKind::Box, _) => {
            let quartiles = p.quartiles.map_or_else(String::new, |(low, high)| {
                format!("\nquartiles {} and {}", format_significant(low, 4), format_significant(high, 4))
            });
            let ends = format!("{} to {}", format_significant(p.low, 4), format_significant(p.high, 4));
            format!(
                "{name}\n{x}\nmedian {}{}{quartiles}, all {ends}{n}",
                format_significant(p.mean, 4),
                unit(&figure.y.unit)
            )
        }
    }
}

/// Formats a coordinate to a hundredth of a pixel.
pub(crate) fn format_px(value: f64) -> String {
    let text = format!("{:.2}", value + 0.0);
    let text = text.trim_end_matches('0').trim_end_matches('.');
    if text == "-0" { "0".to_owned() } else { text.to_owned() }
}

/// The shared parts of a plot, and the given parts of its geometry.
struct PlotFrame<'a> {
    width: f64,
    /// The upper edge of the plot.
    top: f64,
    plot_height: f64,
    /// True if the series' names stand beside the ends of their curves.
    has_side_labels: bool,
    /// True for each axis, horizontal and vertical, with its name drawn.
    names: [bool; 2],
    ranges: [(f64, f64); 2],
    /// The style of each series.
    looks: &'a [SeriesStyle],
}

/// The style of a series.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct SeriesStyle {
    /// Its name's index in the legend, which hides and shows it.
    legend_index: usize,
    /// Its colour and its marker.
    colour: usize,
}

/// A figure's geometry.
struct FigurePlot<'a> {
    left: f64,
    right: f64,
    top: f64,
    bottom: f64,
    height: f64,
    x: AxisScale,
    y: AxisScale,
    labels: Vec<SeriesLabel>,
    /// The name of the horizontal axis.
    name: Vec<String>,
    /// True if the names of categories are rotated because they do not fit side by side.
    rotates_labels: bool,
    frame: &'a PlotFrame<'a>,
}

/// The extent of a rotated name down and to the left, as shares of its length.
const TURNED: (f64, f64) = (0.574, 0.819);
/// The maximum length of a category's name, in pixels.
const LONGEST: f64 = 150.0;

impl<'a> FigurePlot<'a> {
    fn new(figure: &ReportFigure, variant: FigureScaleVariant, frame: &'a PlotFrame<'a>) -> Self {
        let (top, bottom) = (frame.top, frame.top + frame.plot_height);
        let [x_range, (low, high)] = frame.ranges;
        let y = AxisScale::new(low, high, variant.log_y, bottom, top).round_ends();

        let tick_width = y.ticks().iter().map(|t| text_width(&t.label, 12.0)).fold(0.0, f64::max);
        let left = 26.0 + tick_width.max(14.0);
        let mut labels = if frame.has_side_labels { label::wrap_labels(&figure.series) } else { Vec::new() };
        let widest = labels.iter().map(SeriesLabel::width).fold(0.0, f64::max);
        let right = if frame.has_side_labels { frame.width - 46.0 - widest } else { frame.width - 14.0 };

        let categories = &figure.x.categories;
        let room = (right - left) / categories.len().max(1) as f64;
        let inset = if categories.is_empty() { 10.0 } else { room / 2.0 };
        let turned = categories.iter().any(|name| text_width(name, 12.0) + 8.0 > room);
        let longest = categories.iter().map(|name| text_width(name, 12.0).min(LONGEST)).fold(0.0, f64::max);
        let below = if turned { longest * TURNED.0 } else { 0.0 };
        let x = AxisScale::new(x_range.0, x_range.1, variant.log_x, left + inset, right - inset);
        for (i, label) in labels.iter_mut().enumerate() {
            let last = figure.series[i].points.iter().rfind(|p| p.x.is_finite() && p.mean.is_finite());
            label.anchor = last.map(|p| {
                (x.pixel_at(p.x) + category_point_offset(figure, i, right - left), y.pixel_at(p.mean))
            });
        }
        let lowest = label::place_labels_without_overlap(&mut labels, top, bottom);
        // Center the axis title on the plot, not on the whole drawing.
        let middle = f64::midpoint(left, right);
        let name = lines_of(&figure.x, 2.0 * middle.min(frame.width - middle) - 8.0);
        let height = bottom + below + if frame.names[0] { 56.0 + extra_height(&name) } else { 32.0 };
        let height = if frame.has_side_labels { height.max(lowest + 12.0) } else { height };
        Self { left, right, top, bottom, height, x, y, labels, name, rotates_labels: turned, frame }
    }

    fn series_style(&self, series: usize) -> SeriesStyle {
        self.frame.looks.get(series).copied().unwrap_or(SeriesStyle { legend_index: series, colour: series })
    }

    /// Draws axes and series.
    fn draw_plot(&self, out: &mut String, figure: &ReportFigure, id: &str) {
        self.draw_axes(out, figure);
        let (l, t, w, h) = (self.left, self.top, self.right - self.left, self.bottom - self.top);
        let _ = writeln!(
            out,
            "<clipPath id=\"{id}-clip\"><rect x=\"{}\" y=\"{}\" width=\"{}\" height=\"{}\"/></clipPath>",
            format_px(l - 8.0),
            format_px(t - 8.0),
            format_px(w + 16.0),
            format_px(h + 16.0)
        );
        // Draw the closed forms first, so that measurements lie above them.
        for kind in SeriesKind::FROM_BELOW {
            for (i, series) in figure.series.iter().enumerate().filter(|(_, s)| s.kind == kind) {
                self.draw_series(out, figure, i, series, id);
            }
        }
    }

    fn draw_axes(&self, out: &mut String, figure: &ReportFigure) {
        let (l, r, t, b) =
            (format_px(self.left), format_px(self.right), format_px(self.top), format_px(self.bottom));
        out.push_str("<g class=\"axes\">\n");
        for tick in self.y.ticks() {
            let y = format_px(self.y.pixel_at(tick.value));
            let class = if tick.label.is_empty() { "grid minor" } else { "grid" };
            let _ = writeln!(out, "<path class=\"{class}\" d=\"M{l} {y}H{r}\"/>");
            if !tick.label.is_empty() {
                let (x, y) = (format_px(self.left - 9.0), format_px(self.y.pixel_at(tick.value) + 4.0));
                let _ = writeln!(
                    out,
                    "<text class=\"tick\" x=\"{x}\" y=\"{y}\" text-anchor=\"end\">{}</text>",
                    tick.label
                );
            }
        }
        let mut free_from = f64::NEG_INFINITY;
        let mut below = 0.0f64;
        for (value, label) in self.x_ticks(figure) {
            let at = self.x.pixel_at(value);
            let x = format_px(at);
            if self.rotates_labels {
                let label = label::wrap_lines(&label, LONGEST).into_iter().next().unwrap_or_default();
                below = below.max(text_width(&label, 12.0) * TURNED.0);
                let y = format_px(self.bottom + 15.0);
                let _ = writeln!(
                    out,
                    "<path class=\"axis\" d=\"M{x} {b}v6\"/>\n<text class=\"tick\" transform=\"translate({} {y}) rotate(-35)\" \
                     text-anchor=\"end\">{}</text>",
                    format_px(at + 4.0),
                    escape_markup(&label)
                );
                continue;
            }
            let half = text_width(&label, 12.0) / 2.0;
            let shown = !label.is_empty() && at - half > free_from;
            let length = if shown { 6.0 } else { 3.0 };
            let _ = writeln!(out, "<path class=\"axis\" d=\"M{x} {b}v{length}\"/>");
            if shown {
                free_from = at + half + 8.0;
                let y = format_px(self.bottom + 21.0);
                let _ = writeln!(
                    out,
                    "<text class=\"tick\" x=\"{x}\" y=\"{y}\" text-anchor=\"middle\">{}</text>",
                    escape_markup(&label)
                );
            }
        }
        let _ = writeln!(out, "<path class=\"axis\" d=\"M{l} {b}H{r}\"/>");
        if self.frame.names[0] {
            let middle = f64::midpoint(self.left, self.right);
            draw_axis_name(out, &self.name, middle, self.bottom + below + 45.0, " text-anchor=\"middle\"");
        }
        if self.frame.names[1] {
            let name = lines_of(&figure.y, self.frame.width - 32.0);
            draw_axis_name(out, &name, 16.0, self.top - 18.0 - extra_height(&name), "");
        }
        let _ = writeln!(out, "</g>\n<path class=\"frame\" d=\"M{l} {t}V{b}\"/>");
    }

    fn x_ticks(&self, figure: &ReportFigure) -> Vec<(f64, String)> {
        if figure.x.categories.is_empty() {
            let ticks: Vec<(f64, String)> = self.x.ticks().into_iter().map(|t| (t.value, t.label)).collect();
            // An axis of an integer quantity, such as the number of clients, has no ticks between integers.
            let whole = |value: f64| value.fract() == 0.0;
            let fewer = ticks.iter().filter(|(value, _)| whole(*value));
            let fewer: Vec<_> = fewer.map(|(value, _)| (*value, format!("{value:.0}"))).collect();
            let counted = figure.series.iter().flat_map(|s| &s.points).all(|p| whole(p.x));
            return if counted && (3..ticks.len()).contains(&fewer.len()) { fewer } else { ticks };
        }
        figure.x.categories.iter().enumerate().map(|(i, name)| (i as f64, name.clone())).collect()
    }

    fn draw_series(
        &self,
        out: &mut String,
        figure: &ReportFigure,
        i: usize,
        series: &FigureSeries,
        id: &str,
    ) {
        let finite: Vec<&SeriesPoint> =
            series.points.iter().filter(|p| p.x.is_finite() && p.mean.is_finite()).collect();
        let shift = category_point_offset(figure, i, self.right - self.left);
        let at = |p: &SeriesPoint| self.x.pixel_at(p.x) + shift;
        let kind = match series.kind {
            SeriesKind::Analytic | SeriesKind::Fitted => "analytic",
            SeriesKind::Reference => "reference",
            SeriesKind::Other => "other",
            SeriesKind::Measured | SeriesKind::Median | SeriesKind::Box | SeriesKind::Trace => "measured",
        };
        let SeriesStyle { legend_index: place, colour } = self.series_style(i);
        let _ = writeln!(
            out,
            "<g class=\"series {kind} c{}\" data-series=\"{place}\" clip-path=\"url(#{id}-clip)\">",
            colour % COLOURS
        );
        let fitted = figure.series.iter().any(|s| s.kind == SeriesKind::Fitted);
        let joined = !matches!(series.kind, SeriesKind::Reference | SeriesKind::Box)
            && (!fitted || !series.kind.has_markers());
        if figure.x.categories.is_empty() && finite.len() > 1 && joined {
            let mut d = String::new();
            for (n, p) in finite.iter().enumerate() {
                let _ = write!(
                    d,
                    "{}{} {}",
                    if n == 0 { 'M' } else { 'L' },
                    format_px(at(p)),
                    format_px(self.y.pixel_beyond_axis(p.mean))
                );
            }
            let _ = writeln!(out, "<path class=\"line\" d=\"{d}\"/>");
        }
        for p in &finite {
            let Some((low, high)) = p.interval() else { continue };
            let (x, top, foot) = (at(p), self.y.pixel_at(high), self.y.pixel_at(low));
            let (left, top, foot) = (format_px(x - 4.0), format_px(top), format_px(foot));
            let _ = writeln!(
                out,
                "<path class=\"interval\" d=\"M{left} {top}h8M{left} {foot}h8M{} {top}V{foot}\"/>",
                format_px(x)
            );
        }
        for p in finite.iter().filter(|_| series.kind == SeriesKind::Box) {
            let Some((lower, upper)) = p.quartiles else { continue };
            let (x, top, middle, foot) =
                (at(p), self.y.pixel_at(upper), self.y.pixel_at(p.mean), self.y.pixel_at(lower));
            let _ = writeln!(
                out,
                "<rect class=\"box\" x=\"{}\" y=\"{}\" width=\"12\" height=\"{}\"/><path class=\"line\" d=\"M{} {}h12\"/>",
                format_px(x - 6.0),
                format_px(top),
                format_px((foot - top).max(1.0)),
                format_px(x - 6.0),
                format_px(middle)
            );
        }
        for p in finite.iter().filter(|_| series.kind != SeriesKind::Trace) {
            // Invisible marks give the pointer a target on a curve without markers.
            let shape = if series.kind.has_markers() && series.kind != SeriesKind::Box {
                mark::marker_path(colour)
            } else {
                mark::HIT
            };
            let class = match series.kind {
                SeriesKind::Analytic | SeriesKind::Fitted | SeriesKind::Box | SeriesKind::Trace => "hit",
                SeriesKind::Reference | SeriesKind::Other => "mark hollow",
                SeriesKind::Measured if p.moved.is_some() => "mark hollow",
                SeriesKind::Measured | SeriesKind::Median => "mark",
            };
            let (x, y) = (format_px(at(p)), format_px(self.y.pixel_at(p.mean)));
            let tip = escape_markup(&point_tooltip_text(figure, series, p)).replace('\n', "&#10;");
            let _ = writeln!(
                out,
                "<path class=\"{class}\" transform=\"translate({x} {y})\" d=\"{shape}\" data-tip=\"{tip}\"/>"
            );
        }
        out.push_str("</g>\n");
    }

    /// Draws the series' names beside the ends of their curves.
    fn draw_labels(&self, out: &mut String, figure: &ReportFigure) {
        for (i, label) in self.labels.iter().enumerate() {
            let colour = self.series_style(i).colour;
            let _ = writeln!(out, "<g class=\"label c{}\" data-series=\"{i}\">", colour % COLOURS);
            let x = self.right + 34.0;
            let middle = label.y + label.height() / 2.0;
            if let Some((from, y)) = label.anchor {
                let (from, to) = (format_px(from + 7.0), format_px(self.right + 8.0));
                let _ = writeln!(
                    out,
                    "<path class=\"leader\" d=\"M{from} {}L{to} {}\"/>",
                    format_px(y),
                    format_px(middle)
                );
            }
            draw_legend_marker(out, figure.series[i].kind, colour, self.right + 10.0, middle);
            for (n, line) in label.lines.iter().enumerate() {
                let y = format_px(label.y + 11.5 + label::LINE * n as f64);
                let _ =
                    writeln!(out, "<text x=\"{}\" y=\"{y}\">{}</text>", format_px(x), escape_markup(line));
            }
            out.push_str("</g>\n");
        }
    }
}

/// Returns the index of the series that determines colour and marker. It is the series itself or, for published
/// measurements, fitted lines and other runs, the curve whose name theirs begins with, before a parenthesis.
fn style_series_index(figure: &ReportFigure, i: usize) -> usize {
    let same = |s: &FigureSeries| {
        figure.series[i].name.strip_prefix(s.name.as_str()).is_some_and(|rest| rest.starts_with(" ("))
    };
    match figure.series[i].kind {
        SeriesKind::Reference | SeriesKind::Fitted | SeriesKind::Other => {
            figure.series.iter().position(|s| s.kind.is_measured() && same(s)).unwrap_or(i)
        }
        _ => i,
    }
}

/// Returns the offset of points that share a category, so that their intervals stand side by side within the width of a
/// plot.
fn category_point_offset(figure: &ReportFigure, series: usize, width: f64) -> f64 {
    if figure.x.categories.is_empty() {
        return 0.0;
    }
    let room = 0.8 * width / (figure.x.categories.len() * figure.series.len().max(1)) as f64;
    (series as f64 - (figure.series.len() as f64 - 1.0) / 2.0) * room.min(14.0)
}

fn x_range(figure: &ReportFigure) -> (f64, f64) {
    if !figure.x.categories.is_empty() {
        return (0.0, (figure.x.categories.len() - 1) as f64);
    }
    let xs = || figure.finite_points().map(|(_, p)| p.x);
    let (low, high) = (xs().fold(f64::INFINITY, f64::min), xs().fold(f64::NEG_INFINITY, f64::max));
    if low > high { (0.0, 1.0) } else { (low, high) }
}

/// Returns the range of the vertical axis. It includes every interval, and closed forms near the measurements. It
/// starts at zero unless all values lie far above it. Shares stay within 0 and 1.
fn y_range(figure: &ReportFigure, log: bool) -> (f64, f64) {
    let (mut low, mut high) = (f64::INFINITY, f64::NEG_INFINITY);
    let mut take = |v: f64| {
        let v = if figure.y.shares { v.clamp(0.0, 1.0) } else { v };
        if v.is_finite() && (!log || v > 0.0) {
            low = low.min(v);
            high = high.max(v);
        }
    };
    let measured = || figure.finite_points().filter(|(s, _)| s.kind.has_markers());
    for (_, p) in measured() {
        let (from, to) = p.interval().unwrap_or((p.mean, p.mean));
        // On a logarithmic axis, clip an interval that reaches close to zero: otherwise it would compress all other
        // values.
        take(if log { from.max(p.mean / 4.0) } else { from });
        take(to);
        take(p.mean);
    }
    let most = measured().map(|(_, p)| p.mean).fold(f64::NEG_INFINITY, f64::max);
    for (_, p) in figure.finite_points().filter(|(s, _)| !s.kind.has_markers()) {
        take(if most.is_finite() && most > 0.0 { p.mean.min(1.3 * most) } else { p.mean });
    }
    match (low, high) {
        (low, high) if low > high => (0.0, 1.0),
        // If all values of a share are equal, the range ends at 1, because a wider one would exceed 1.
        (low, high) if figure.y.shares && low >= high => (low / 2.0, 1.0),
        (low, high) if !log && low >= 0.0 && low < 0.7 * high => (0.0, high),
        range => range,
    }
}

#[cfg(test)]
mod tests;
