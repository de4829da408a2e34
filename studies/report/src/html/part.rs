//! Figures and tables of the page.

use crate::figure::{Figure, Kind};
use crate::format::{escape, significant, with_ends, with_half_width};
use crate::svg::{self, Variant};
use crate::table::{Cell, Table};
use std::collections::HashSet;
use std::fmt::Write as _;
use usher_observe::Estimate;
use usher_observe::row::number;

/// A text of more characters is a sentence, and gets room.
const LONG: usize = 60;

/// Names of figures already on the page: two of one name must not share identifiers.
#[derive(Default)]
pub(super) struct Ids(HashSet<String>);

impl Ids {
    fn unique(&mut self, figure: &Figure) -> Figure {
        let mut figure = figure.clone();
        let stem = figure.file_stem();
        let mut name = stem.clone();
        let mut n = 2;
        while !self.0.insert(name.clone()) {
            name = format!("{stem}-{n}");
            n += 1;
        }
        figure.name = name;
        figure
    }
}

/// A figure with its controls and its data.
pub(super) fn figure(out: &mut String, figure: &Figure, ids: &mut Ids) {
    let figure = &ids.unique(figure);
    let name = figure.file_stem();
    let _ = writeln!(
        out,
        "<figure id=\"figure-{name}\" data-name=\"{name}\">\n<div class=\"head\">\n<figcaption>{}</figcaption>\n\
         <div class=\"tools\">",
        escape(&figure.title)
    );
    let shown = Variant::of(figure);
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
        escape(&figure.csv())
    );
    for log_x in [false, true] {
        for log_y in [false, true] {
            let suits = (!log_x || svg::suits_log_x(figure)) && (!log_y || svg::suits_log_y(figure));
            if suits {
                let variant = Variant { log_x, log_y };
                let hidden = if variant == shown { "" } else { " hidden" };
                let _ = writeln!(out, "<div class=\"plot\" data-x=\"{log_x}\" data-y=\"{log_y}\"{hidden}>");
                out.push_str(&svg::drawing(figure, variant, false));
                out.push_str("</div>\n");
            }
        }
    }
    data(out, figure);
    out.push_str("</figure>\n");
}

/// What a figure shows, as a table: a row for each x that has a marker, a column for each series.
fn data(out: &mut String, figure: &Figure) {
    let mut xs: Vec<f64> = figure.finite().filter(|(s, _)| s.kind.marked()).map(|(_, p)| p.x).collect();
    xs.sort_by(f64::total_cmp);
    xs.dedup();
    if xs.is_empty() {
        return;
    }
    out.push_str("<details class=\"data\">\n<summary>Numbers</summary>\n<div class=\"scroll\">\n<table class=\"sortable\">\n<thead><tr>");
    heading(out, &figure.x.title, &figure.x.unit, true);
    for series in &figure.series {
        heading(out, &series.name, &figure.y.unit, true);
    }
    out.push_str("</tr></thead>\n<tbody>\n");
    for x in xs {
        let mut key = if figure.x.categories.is_empty() { number(x) } else { figure.x_text(x) };
        let named = figure.series.iter().flat_map(|s| s.points.iter().map(move |p| (s, p)));
        for name in named.filter(|(_, p)| p.x == x).filter_map(|(s, p)| Figure::name_of(s, p)) {
            key.push_str(&format!(" ({name})"));
        }
        out.push_str("<tr>");
        cell(out, &Cell::Text(key));
        for series in &figure.series {
            let found = series.points.iter().find(|p| p.x == x && p.mean.is_finite());
            let value = found.map_or(Cell::Empty, |p| match series.kind {
                Kind::Analytic | Kind::Fitted => Cell::Number(p.mean),
                Kind::Median | Kind::Reference if p.interval().is_some() => {
                    Cell::Text(with_ends(p.mean, p.interval()))
                }
                Kind::Median | Kind::Reference => Cell::Number(p.mean),
                Kind::Measured => {
                    let half_width = p.interval().map_or(f64::INFINITY, |(low, high)| (high - low) / 2.0);
                    let estimate = Estimate { mean: p.mean, half_width, n: p.n };
                    match p.median.filter(|_| p.moved.is_some()) {
                        Some(median) => Cell::Moved(estimate, median),
                        None => Cell::Estimate(estimate),
                    }
                }
            });
            cell(out, &value);
        }
        out.push_str("</tr>\n");
    }
    out.push_str("</tbody>\n</table>\n</div>\n</details>\n");
}

/// A table whose columns sort at a click on their heading.
pub(super) fn table(out: &mut String, table: &Table) {
    out.push_str("<div class=\"scroll\">\n<table class=\"sortable\">\n");
    if !table.title.is_empty() {
        let _ = writeln!(out, "<caption>{}</caption>", escape(&table.title));
    }
    out.push_str("<thead><tr>");
    for (i, column) in table.columns.iter().enumerate() {
        let numeric = table.rows.iter().filter_map(|r| r.get(i)).all(is_number);
        heading(out, &column.title, &column.unit, numeric);
    }
    out.push_str("</tr></thead>\n<tbody>\n");
    for row in &table.rows {
        out.push_str("<tr>");
        for i in 0..table.columns.len() {
            cell(out, row.get(i).unwrap_or(&Cell::Empty));
        }
        out.push_str("</tr>\n");
    }
    out.push_str("</tbody>\n</table>\n</div>\n");
}

fn is_number(cell: &Cell) -> bool {
    match cell {
        Cell::Text(text) => text.parse::<f64>().is_ok(),
        Cell::Number(_) | Cell::Estimate(_) | Cell::Moved(..) | Cell::Empty => true,
    }
}

fn heading(out: &mut String, title: &str, unit: &str, numeric: bool) {
    let unit = if unit.is_empty() { String::new() } else { format!(" <small>{}</small>", escape(unit)) };
    let class = if numeric { " class=\"number\"" } else { "" };
    let _ =
        write!(out, "<th scope=\"col\"{class}><button type=\"button\">{}{unit}</button></th>", escape(title));
}

fn cell(out: &mut String, cell: &Cell) {
    let _ = match cell {
        Cell::Text(text) if is_number(cell) => {
            write!(out, "<td class=\"number\" data-key=\"{0}\">{0}</td>", escape(text))
        }
        Cell::Text(text) if text.chars().count() > LONG => {
            write!(out, "<td class=\"long\">{}</td>", escape(text))
        }
        Cell::Text(text) => write!(out, "<td>{}</td>", escape(text)),
        Cell::Number(value) => {
            write!(
                out,
                "<td class=\"number\" data-key=\"{}\">{}</td>",
                number(*value),
                significant(*value, 5)
            )
        }
        Cell::Estimate(e) => write!(
            out,
            "<td class=\"number\" data-key=\"{}\">{} <small title=\"replications\">({})</small></td>",
            number(e.mean),
            estimate(e),
            e.n
        ),
        Cell::Moved(e, median) => write!(
            out,
            "<td class=\"number moved\" data-key=\"{}\" title=\"one replication moves the mean\">{} \
             <small title=\"replications\">({})</small><br><small>median {}</small></td>",
            number(e.mean),
            estimate(e),
            e.n,
            with_ends(median.median, median.interval())
        ),
        Cell::Empty => write!(out, "<td class=\"number empty\">–</td>"),
    };
}

fn estimate(e: &Estimate) -> String {
    // Equal values have an interval without width; a single value has none to show.
    if e.half_width == 0.0 && e.n > 1 && e.mean.is_finite() {
        return format!("{} ± 0", significant(e.mean, 5));
    }
    with_half_width(e.mean, e.half_width)
}
