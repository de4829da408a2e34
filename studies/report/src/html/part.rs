//! Figures and tables of the page.

use crate::figure::{Figure, Kind};
use crate::format::{escape, significant, with_ends, with_half_width};
use crate::ladder::Ladder;
use crate::svg::{self, Size, Variant};
use crate::table::{Cell, Table};
use std::collections::HashSet;
use std::fmt::Write as _;
use usher_observe::Estimate;
use usher_observe::row::number;

/// A text of more characters is a sentence, and gets room.
const LONG: usize = 60;
/// A table of more columns takes the window's width, and not the text's.
const NARROW: usize = 4;
/// One of more columns yet is scrolled on a telephone, and not stacked.
const STACKED: usize = 8;

/// What the style knows a table by that has so many columns.
const fn width_class(columns: usize) -> &'static str {
    if columns <= NARROW {
        ""
    } else if columns <= STACKED {
        " wide cards"
    } else {
        " wide"
    }
}

/// Names of figures already on the page: two of one name must not share identifiers.
#[derive(Default)]
pub(super) struct Ids(HashSet<String>);

impl Ids {
    fn unique(&mut self, stem: String) -> String {
        let mut name = stem.clone();
        let mut n = 2;
        while !self.0.insert(name.clone()) {
            name = format!("{stem}-{n}");
            n += 1;
        }
        name
    }
}

/// A figure with its controls and its data.
pub(super) fn figure(out: &mut String, figure: &Figure, ids: &mut Ids) {
    let name = ids.unique(figure.file_stem());
    let figure = &Figure { name: name.clone(), ..figure.clone() };
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
                out.push_str(&svg::drawing(figure, variant, Size::Wide));
                // On a telephone the scales are those that the figure asks for.
                if variant == shown {
                    out.push_str(&svg::drawing(figure, variant, Size::Narrow));
                }
                out.push_str("</div>\n");
            }
        }
    }
    data(out, figure);
    out.push_str("</figure>\n");
}

/// A message-flow figure, and the same in letters.
pub(super) fn ladder(out: &mut String, ladder: &Ladder, open: bool, ids: &mut Ids) {
    let name = ids.unique(ladder.file_stem());
    let ladder = &Ladder { name: name.clone(), ..ladder.clone() };
    let _ = writeln!(
        out,
        "<details class=\"messages\"{}>\n<summary>{}</summary>\n<figure id=\"ladder-{name}\" data-name=\"{name}\">\n\
         <div class=\"scroll plot\">\n{}</div>\n<figcaption class=\"below\">{}</figcaption>\n</figure>\n</details>",
        if open { " open" } else { "" },
        escape(&ladder.title),
        ladder.drawing(false),
        escape(&ladder.caption)
    );
}

/// What a figure shows, as a table: a row for each x that has a marker, a column for each series.
fn data(out: &mut String, figure: &Figure) {
    let mut xs: Vec<f64> = figure.finite().filter(|(s, _)| s.kind.marked()).map(|(_, p)| p.x).collect();
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
    heading(out, &figure.x.title, &figure.x.unit, true);
    for series in &figure.series {
        heading(out, &series.name, &figure.y.unit, true);
    }
    out.push_str("</tr></thead>\n<tbody>\n");
    for x in xs {
        let mut key = figure.x_told(x);
        let named = figure.series.iter().flat_map(|s| s.points.iter().map(move |p| (s, p)));
        for name in named.filter(|(_, p)| p.x == x).filter_map(|(s, p)| Figure::name_of(s, p)) {
            key.push_str(&format!(" ({name})"));
        }
        out.push_str("<tr>");
        cell(out, &Cell::Text(key), if class.is_empty() { "" } else { &figure.x.title });
        for series in &figure.series {
            let found = series.points.iter().find(|p| p.x == x && p.mean.is_finite());
            let value = found.map_or(Cell::Empty, |p| match series.kind {
                Kind::Analytic | Kind::Fitted | Kind::Trace => Cell::Number(p.mean),
                Kind::Median | Kind::Reference | Kind::Box | Kind::Other if p.interval().is_some() => {
                    Cell::Text(with_ends(p.mean, p.interval()))
                }
                Kind::Median | Kind::Reference | Kind::Box | Kind::Other => Cell::Number(p.mean),
                Kind::Measured => {
                    // Where one end is at what the metric cannot pass, the other tells.
                    let half_width =
                        p.interval().map_or(f64::INFINITY, |(low, high)| (high - p.mean).max(p.mean - low));
                    let estimate = Estimate { mean: p.mean, half_width, n: p.n };
                    match p.median.filter(|_| p.moved.is_some()) {
                        Some(median) => Cell::Moved(estimate, median),
                        None => Cell::Estimate(estimate),
                    }
                }
            });
            cell(out, &value, if class.is_empty() { "" } else { &series.name });
        }
        out.push_str("</tr>\n");
    }
    out.push_str("</tbody>\n</table>\n</div>\n</details>\n");
}

/// A table whose columns sort at a click on their heading. One with sentences in it or with more than a few columns is
/// stacked on a telephone: each cell with its heading.
pub(super) fn table(out: &mut String, table: &Table) {
    if table.folded {
        let title = if table.title.is_empty() { "Table" } else { &table.title };
        let _ = writeln!(out, "<details>\n<summary>{} ({})</summary>", escape(title), table.rows.len());
    }
    let long = |cell: &Cell| matches!(cell, Cell::Text(text) if text.chars().count() > LONG);
    let stacked = table.rows.iter().flatten().any(long);
    let class = width_class(table.columns.len());
    let headed = stacked || !class.is_empty();
    let _ = writeln!(
        out,
        "<div class=\"scroll\">\n<table class=\"sortable{}{class}\">",
        if stacked { " stacked" } else { "" }
    );
    if !table.title.is_empty() && !table.folded {
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
        for (i, column) in table.columns.iter().enumerate() {
            cell(out, row.get(i).unwrap_or(&Cell::Empty), if headed { &column.title } else { "" });
        }
        out.push_str("</tr>\n");
    }
    out.push_str("</tbody>\n</table>\n</div>\n");
    if table.folded {
        out.push_str("</details>\n");
    }
}

fn is_number(cell: &Cell) -> bool {
    match cell {
        Cell::Text(text) => text.parse::<f64>().is_ok(),
        Cell::Link { .. } => false,
        Cell::Number(_) | Cell::Estimate(_) | Cell::Moved(..) | Cell::Empty => true,
    }
}

fn heading(out: &mut String, title: &str, unit: &str, numeric: bool) {
    let unit = if unit.is_empty() { String::new() } else { format!(" <small>{}</small>", escape(unit)) };
    let class = if numeric { " class=\"number\"" } else { "" };
    let _ =
        write!(out, "<th scope=\"col\"{class}><button type=\"button\">{}{unit}</button></th>", escape(title));
}

/// A cell, with its column's heading where it may stand without it.
fn cell(out: &mut String, cell: &Cell, heading: &str) {
    let heading = match heading {
        "" => String::new(),
        heading => format!(" data-heading=\"{}\"", escape(heading)),
    };
    let _ = match cell {
        Cell::Text(text) if is_number(cell) => {
            write!(out, "<td class=\"number\" data-key=\"{0}\"{heading}>{0}</td>", escape(text))
        }
        Cell::Text(text) if text.chars().count() > LONG => {
            write!(out, "<td class=\"long\"{heading}>{}</td>", escape(text))
        }
        Cell::Text(text) => write!(out, "<td{heading}>{}</td>", escape(text)),
        Cell::Number(value) => {
            write!(
                out,
                "<td class=\"number\" data-key=\"{}\"{heading}>{}</td>",
                number(*value),
                significant(*value, 5)
            )
        }
        Cell::Estimate(e) => write!(
            out,
            "<td class=\"number\" data-key=\"{}\"{heading}>{} <small title=\"replications\">({})</small></td>",
            number(e.mean),
            estimate(e),
            e.n
        ),
        Cell::Moved(e, median) => write!(
            out,
            "<td class=\"number moved\" data-key=\"{}\" title=\"one replication moves the mean\"{heading}>{} \
             <small title=\"replications\">({})</small><br><small>median {}</small></td>",
            number(e.mean),
            estimate(e),
            e.n,
            with_ends(median.median, median.interval())
        ),
        Cell::Link { text, to } => {
            // A path that begins like an address would lead out of the folder.
            let within = !to.contains(':') && !to.starts_with('/');
            match within {
                true => write!(out, "<td{heading}><a href=\"{}\">{}</a></td>", escape(to), escape(text)),
                false => write!(out, "<td{heading}>{}</td>", escape(text)),
            }
        }
        Cell::Empty => write!(out, "<td class=\"number empty\"{heading}>–</td>"),
    };
}

fn estimate(e: &Estimate) -> String {
    // Equal values have an interval without width; a single value has none to show.
    if e.half_width == 0.0 && e.n > 1 && e.mean.is_finite() {
        return format!("{} ± 0", significant(e.mean, 5));
    }
    with_half_width(e.mean, e.half_width)
}
