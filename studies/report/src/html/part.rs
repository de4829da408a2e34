//! Figures and tables of the page.

use crate::figure::{ReportFigure, SeriesKind};
use crate::format::{escape_markup, format_significant, with_ends, with_half_width};
use crate::ladder::MessageFlow;
use crate::svg::{self, DrawingLayout, FigureScaleVariant};
use crate::table::{ReportTable, TableCell};
use std::collections::HashSet;
use std::fmt::Write as _;
use usher_observe::MeanEstimate;
use usher_observe::row::format_number;

/// A text with more characters counts as a sentence and gets more room.
const LONG: usize = 60;
/// A table with more columns uses the window's width instead of the text's.
const NARROW: usize = 4;
/// A table with even more columns scrolls on a telephone instead of being stacked.
const STACKED: usize = 8;

/// Returns the style class of a table with this number of columns.
const fn width_class(columns: usize) -> &'static str {
    if columns <= NARROW {
        ""
    } else if columns <= STACKED {
        " wide cards"
    } else {
        " wide"
    }
}

/// Names of figures on the page, so that identifiers are unique.
#[derive(Default)]
pub(super) struct HtmlElementIds(HashSet<String>);

impl HtmlElementIds {
    fn make_unique(&mut self, stem: String) -> String {
        let mut name = stem.clone();
        let mut n = 2;
        while !self.0.insert(name.clone()) {
            name = format!("{stem}-{n}");
            n += 1;
        }
        name
    }
}

/// Renders a figure with its controls and its data.
pub(super) fn render_figure(out: &mut String, figure: &ReportFigure, ids: &mut HtmlElementIds) {
    let name = ids.make_unique(figure.file_stem());
    let figure = &ReportFigure { name: name.clone(), ..figure.clone() };
    let _ = writeln!(
        out,
        "<figure id=\"figure-{name}\" data-name=\"{name}\">\n<div class=\"head\">\n<figcaption>{}</figcaption>\n\
         <div class=\"tools\">",
        escape_markup(&figure.title)
    );
    let shown = FigureScaleVariant::for_figure(figure);
    for (axis, suits, log) in
        [("x", svg::suits_log_x(figure), shown.log_x), ("y", svg::suits_log_y(figure), shown.log_y)]
    {
        if suits {
            let _ = writeln!(
                out,
                "<button type=\"button\" class=\"log\" data-axis=\"{axis}\" aria-pressed=\"{log}\">log {axis}</button>"
            );
        }
    }
    let _ = writeln!(
        out,
        "<button type=\"button\" class=\"save\" data-kind=\"csv\" data-csv=\"{}\">CSV</button>\n\
         <button type=\"button\" class=\"save\" data-kind=\"svg\">SVG</button>\n</div>\n</div>",
        escape_markup(&figure.to_csv())
    );
    for log_x in [false, true] {
        for log_y in [false, true] {
            let suits = (!log_x || svg::suits_log_x(figure)) && (!log_y || svg::suits_log_y(figure));
            if suits {
                let variant = FigureScaleVariant { log_x, log_y };
                let hidden = if variant == shown { "" } else { " hidden" };
                let _ = writeln!(out, "<div class=\"plot\" data-x=\"{log_x}\" data-y=\"{log_y}\"{hidden}>");
                out.push_str(&svg::draw_figure(figure, variant, DrawingLayout::Wide));
                // The narrow drawing, for telephones, exists only with the figure's default scales.
                if variant == shown {
                    out.push_str(&svg::draw_figure(figure, variant, DrawingLayout::Narrow));
                }
                out.push_str("</div>\n");
            }
        }
    }
    render_data(out, figure);
    out.push_str("</figure>\n");
}

/// Renders a message-flow figure, also as text.
pub(super) fn render_message_flow(
    out: &mut String,
    ladder: &MessageFlow,
    open: bool,
    ids: &mut HtmlElementIds,
) {
    let name = ids.make_unique(ladder.file_stem());
    let ladder = &MessageFlow { name: name.clone(), ..ladder.clone() };
    let _ = writeln!(
        out,
        "<details class=\"messages\"{}>\n<summary>{}</summary>\n<figure id=\"ladder-{name}\" data-name=\"{name}\">\n\
         <div class=\"scroll plot\">\n{}</div>\n<figcaption class=\"below\">{}</figcaption>\n</figure>\n</details>",
        if open { " open" } else { "" },
        escape_markup(&ladder.title),
        ladder.draw_svg(false),
        escape_markup(&ladder.caption)
    );
}

/// Renders a figure's data as a table: a row for each x with a marker, a column for each series.
fn render_data(out: &mut String, figure: &ReportFigure) {
    let mut xs: Vec<f64> =
        figure.finite_points().filter(|(s, _)| s.kind.has_markers()).map(|(_, p)| p.x).collect();
    xs.sort_by(f64::total_cmp);
    xs.dedup();
    if xs.is_empty() {
        return;
    }
    let class = width_class(figure.series.len() + 1);
    let _ = write!(
        out,
        "<details class=\"data\">\n<summary>Numbers</summary>\n<div class=\"scroll\">\n<table class=\"sortable{class}\">\n<thead><tr>",
    );
    render_heading(out, &figure.x.title, &figure.x.unit, true);
    for series in &figure.series {
        render_heading(out, &series.name, &figure.y.unit, true);
    }
    out.push_str("</tr></thead>\n<tbody>\n");
    for x in xs {
        let mut key = figure.format_x(x);
        let named = figure.series.iter().flat_map(|s| s.points.iter().map(move |p| (s, p)));
        for name in named.filter(|(_, p)| p.x == x).filter_map(|(s, p)| ReportFigure::name_of(s, p)) {
            key.push_str(&format!(" ({name})"));
        }
        out.push_str("<tr>");
        render_cell(out, &TableCell::Text(key), if class.is_empty() { "" } else { &figure.x.title });
        for series in &figure.series {
            let found = series.points.iter().find(|p| p.x == x && p.mean.is_finite());
            let value = found.map_or(TableCell::Empty, |p| match series.kind {
                SeriesKind::Analytic | SeriesKind::Fitted | SeriesKind::Trace => TableCell::Number(p.mean),
                SeriesKind::Median | SeriesKind::Reference | SeriesKind::Box | SeriesKind::Other
                    if p.interval().is_some() =>
                {
                    TableCell::Text(with_ends(p.mean, p.interval()))
                }
                SeriesKind::Median | SeriesKind::Reference | SeriesKind::Box | SeriesKind::Other => {
                    TableCell::Number(p.mean)
                }
                SeriesKind::Measured => {
                    // If one end of the interval is clipped at the metric's bound, the distance to the other end is the
                    // half-width.
                    let half_width =
                        p.interval().map_or(f64::INFINITY, |(low, high)| (high - p.mean).max(p.mean - low));
                    let estimate = MeanEstimate { mean: p.mean, half_width, n: p.n };
                    match p.median.filter(|_| p.moved.is_some()) {
                        Some(median) => TableCell::Moved(estimate, median),
                        None => TableCell::Estimate(estimate),
                    }
                }
            });
            render_cell(out, &value, if class.is_empty() { "" } else { &series.name });
        }
        out.push_str("</tr>\n");
    }
    out.push_str("</tbody>\n</table>\n</div>\n</details>\n");
}

/// Renders a table whose columns sort at a click on their heading. On a telephone, a table with sentences or many
/// columns is stacked: each cell has its heading.
pub(super) fn render_table(out: &mut String, table: &ReportTable) {
    if table.folded {
        let title = if table.title.is_empty() { "Table" } else { &table.title };
        let _ =
            writeln!(out, "<details>\n<summary>{} ({})</summary>", escape_markup(title), table.rows.len());
    }
    let long = |cell: &TableCell| matches!(cell, TableCell::Text(text) if text.chars().count() > LONG);
    let stacked = table.rows.iter().flatten().any(long);
    let class = width_class(table.columns.len());
    let headed = stacked || !class.is_empty();
    let _ = writeln!(
        out,
        "<div class=\"scroll\">\n<table class=\"sortable{}{class}\">",
        if stacked { " stacked" } else { "" }
    );
    if !table.title.is_empty() && !table.folded {
        let _ = writeln!(out, "<caption>{}</caption>", escape_markup(&table.title));
    }
    out.push_str("<thead><tr>");
    for (i, column) in table.columns.iter().enumerate() {
        let numeric = table.rows.iter().filter_map(|r| r.get(i)).all(is_number);
        render_heading(out, &column.title, &column.unit, numeric);
    }
    out.push_str("</tr></thead>\n<tbody>\n");
    for row in &table.rows {
        out.push_str("<tr>");
        for (i, column) in table.columns.iter().enumerate() {
            render_cell(
                out,
                row.get(i).unwrap_or(&TableCell::Empty),
                if headed { &column.title } else { "" },
            );
        }
        out.push_str("</tr>\n");
    }
    out.push_str("</tbody>\n</table>\n</div>\n");
    if table.folded {
        out.push_str("</details>\n");
    }
}

fn is_number(cell: &TableCell) -> bool {
    match cell {
        TableCell::Text(text) => text.parse::<f64>().is_ok(),
        TableCell::Link { .. } => false,
        TableCell::Number(_) | TableCell::Estimate(_) | TableCell::Moved(..) | TableCell::Empty => true,
    }
}

fn render_heading(out: &mut String, title: &str, unit: &str, numeric: bool) {
    let unit =
        if unit.is_empty() { String::new() } else { format!(" <small>{}</small>", escape_markup(unit)) };
    let class = if numeric { " class=\"number\"" } else { "" };
    let _ = write!(
        out,
        "<th scope=\"col\"{class}><button type=\"button\">{}{unit}</button></th>",
        escape_markup(title)
    );
}

/// Renders a cell, with its column's heading if the table may be stacked.
fn render_cell(out: &mut String, cell: &TableCell, heading: &str) {
    let heading = match heading {
        "" => String::new(),
        heading => format!(" data-heading=\"{}\"", escape_markup(heading)),
    };
    let _ = match cell {
        TableCell::Text(text) if is_number(cell) => {
            write!(out, "<td class=\"number\" data-key=\"{0}\"{heading}>{0}</td>", escape_markup(text))
        }
        TableCell::Text(text) if text.chars().count() > LONG => {
            write!(out, "<td class=\"long\"{heading}>{}</td>", escape_markup(text))
        }
        TableCell::Text(text) => write!(out, "<td{heading}>{}</td>", escape_markup(text)),
        TableCell::Number(value) => {
            write!(
                out,
                "<td class=\"number\" data-key=\"{}\"{heading}>{}</td>",
                format_number(*value),
                format_significant(*value, 5)
            )
        }
        TableCell::Estimate(e) => write!(
            out,
            "<td class=\"number\" data-key=\"{}\"{heading}>{} <small title=\"replications\">({})</small></td>",
            format_number(e.mean),
            estimate_text(e),
            e.n
        ),
        TableCell::Moved(e, median) => write!(
            out,
            "<td class=\"number moved\" data-key=\"{}\" title=\"one replication moves the mean\"{heading}>{} \
             <small title=\"replications\">({})</small><br><small>median {}</small></td>",
            format_number(e.mean),
            estimate_text(e),
            e.n,
            with_ends(median.median, median.interval())
        ),
        TableCell::Link { text, to } => {
            // A path that looks like a URL, or is absolute, would lead out of the folder.
            let within = !to.contains(':') && !to.starts_with('/');
            match within {
                true => write!(
                    out,
                    "<td{heading}><a href=\"{}\">{}</a></td>",
                    escape_markup(to),
                    escape_markup(text)
                ),
                false => write!(out, "<td{heading}>{}</td>", escape_markup(text)),
            }
        }
        TableCell::Empty => write!(out, "<td class=\"number empty\"{heading}>–</td>"),
    };
}

fn estimate_text(e: &MeanEstimate) -> String {
    // Several equal values have an interval of width zero, while a single value has none.
    if e.half_width == 0.0 && e.n > 1 && e.mean.is_finite() {
        return format!("{} ± 0", format_significant(e.mean, 5));
    }
    with_half_width(e.mean, e.half_width)
}
