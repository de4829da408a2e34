//! The report as one HTML file.

mod part;

use crate::format::{escape_markup, format_decimals, format_significant};
use crate::{HtmlReport, RerunCommand};
use base64::prelude::{BASE64_STANDARD, Engine as _};
use std::fmt::Write as _;
use usher_observe::manifest::{ManifestValue, RunManifest};

const STYLE: &str = include_str!("html/report.css");
const SCRIPT: &str = include_str!("html/report.js");
const LIVE: &str = include_str!("html/live.js");
const WORKER: &str = include_str!("html/live-worker.js");

/// The content security policy: inline code runs, and nothing is fetched.
const POLICY: &str = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; img-src data:; \
                      base-uri 'none'; form-action 'none'";
/// The policy of a report that runs its study: also the WebAssembly module in the file.
const LIVE_POLICY: &str = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline' 'wasm-unsafe-eval' blob:; \
                           worker-src blob:; img-src data:; base-uri 'none'; form-action 'none'";

/// Number of warnings that are always open at the top.
const FEW_WARNINGS: usize = 4;
/// Number of findings that are always open; the others are folded.
const FEW_FINDINGS: usize = 12;
/// Maximum number of sections without a table of contents.
const FEW_PARTS: usize = 3;

/// Renders the whole page.
pub(crate) fn render_page(report: &HtmlReport) -> String {
    let title = escape_markup(&report.title);
    let policy = if report.live.is_some() { LIVE_POLICY } else { POLICY };
    let mut out = format!(
        "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta http-equiv=\"Content-Security-Policy\" content=\"{policy}\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <meta name=\"color-scheme\" content=\"light dark\">\n<title>{title}</title>\n\
         <style>\n{STYLE}</style>\n</head>\n<body>\n<main>\n"
    );
    render_header(&mut out, report);
    let mut ids = part::HtmlElementIds::default();
    if let Some(summary) = &report.summary {
        out.push_str("<section>\n");
        part::render_table(&mut out, summary);
        out.push_str("</section>\n");
    }
    render_contents(&mut out, report);
    if report.live.is_some() {
        out.push_str(LIVE_PART);
    }
    for (i, section) in report.sections.iter().enumerate() {
        let _ = writeln!(out, "<section id=\"part-{i}\">");
        if !section.title.is_empty() {
            let _ = writeln!(out, "<h2>{}</h2>", escape_markup(&section.title));
        }
        render_paragraphs(&mut out, &section.text);
        for figure in &section.figures {
            part::render_figure(&mut out, figure, &mut ids);
        }
        for table in &section.tables {
            part::render_table(&mut out, table);
        }
        out.push_str("</section>\n");
    }
    if !report.ladders.is_empty() {
        out.push_str("<section id=\"messages\">\n<h2>Messages</h2>\n");
        for (i, ladder) in report.ladders.iter().enumerate() {
            part::render_message_flow(&mut out, ladder, i == 0, &mut ids);
        }
        out.push_str("</section>\n");
    }
    render_notes(&mut out, &report.notes);
    render_reruns(&mut out, &report.reruns);
    if let Some(manifest) = &report.manifest {
        manifest_table(&mut out, manifest);
    }
    let _ = write!(
        out,
        "</main>\n<div id=\"tip\" role=\"status\" hidden></div>\n\
         <script type=\"text/plain\" id=\"figure-style\">{}</script>\n<script>\n{SCRIPT}</script>\n",
        crate::svg::STYLE
    );
    if let Some(live) = &report.live {
        // Escape `<`, because a closing tag within the text would end the script element.
        let data = live.data.replace('<', "\\u003c");
        let module = BASE64_STANDARD.encode(&live.module);
        let _ = write!(
            out,
            "<script type=\"application/json\" id=\"live-data\">{data}</script>\n\
             <script type=\"text/plain\" id=\"live-module\">{module}</script>\n\
             <script type=\"text/plain\" id=\"live-worker\">{WORKER}</script>\n<script>\n{LIVE}</script>\n"
        );
    }
    out.push_str("</body>\n</html>\n");
    out
}

/// The section in which the reader runs a point and sees its replications.
const LIVE_PART: &str = "<section id=\"live\">\n<h2>Run it here</h2>\n\
    <p>This browser runs the same simulator: a point's replications have the same seeds and rows as in the program. \
    Hollow marks show the stored run, and the full mark this browser's result, each with its confidence interval.</p>\n\
    <div data-live=\"axes\"></div>\n\
    <div class=\"controls\"><button class=\"run\" data-live=\"run\">Run</button>\
    <label>at most <input type=\"number\" data-live=\"most\" value=\"20\" min=\"1\" max=\"10000\"> replications</label>\
    <select data-live=\"metric\" aria-label=\"Metric\"></select></div>\n\
    <p data-live=\"state\" role=\"status\"></p>\n<div data-live=\"plot\"></div>\n\
    <dl><dt>Here</dt><dd data-live=\"here\"></dd><dt>Stored</dt><dd data-live=\"stored\"></dd>\
    <dt>The last replication took</dt><dd data-live=\"time\"></dd></dl>\n\
    <details><summary>Rows</summary><pre data-live=\"rows\"></pre></details>\n</section>\n";

/// Renders the table of contents: links to the sections with a title.
fn render_contents(out: &mut String, report: &HtmlReport) {
    let titled = report.sections.iter().enumerate().filter(|(_, s)| !s.title.is_empty());
    let mut parts: Vec<(String, &str)> =
        titled.map(|(i, section)| (format!("part-{i}"), section.title.as_str())).collect();
    if !report.ladders.is_empty() {
        parts.push(("messages".to_owned(), "Messages"));
    }
    if parts.len() <= FEW_PARTS {
        return;
    }
    out.push_str("<nav aria-label=\"Contents\">\n<h2>Contents</h2>\n<ol>\n");
    for (id, title) in parts {
        let _ = writeln!(out, "<li><a href=\"#{id}\">{}</a></li>", escape_markup(title));
    }
    out.push_str("</ol>\n</nav>\n");
}

fn render_header(out: &mut String, report: &HtmlReport) {
    out.push_str("<header>\n");
    let _ = writeln!(out, "<h1>{}</h1>", escape_markup(&report.title));
    if !report.question.is_empty() {
        let _ = writeln!(out, "<p class=\"question\">{}</p>", escape_markup(&report.question));
    }
    if let Some(reason) = &report.partial {
        let _ = writeln!(
            out,
            "<p class=\"partial\" role=\"alert\"><strong>Partial results.</strong> {}</p>",
            escape_markup(reason)
        );
    }
    let many = report.warnings.len() > FEW_WARNINGS;
    if many {
        let _ = writeln!(
            out,
            "<details class=\"partial\">\n<summary>{} warnings about these results</summary>",
            report.warnings.len()
        );
    }
    for warning in &report.warnings {
        let class = if many { "" } else { " class=\"partial\" role=\"alert\"" };
        let _ = writeln!(out, "<p{class}>{}</p>", escape_markup(warning));
    }
    if many {
        out.push_str("</details>\n");
    }
    if !report.findings.is_empty() {
        let (first, further) = report.findings.split_at(report.findings.len().min(FEW_FINDINGS));
        render_findings(out, first);
        if !further.is_empty() {
            let _ = writeln!(out, "<details>\n<summary>{} more</summary>", further.len());
            render_findings(out, further);
            out.push_str("</details>\n");
        }
    }
    render_paragraphs(out, &report.description);
    if let Some(m) = &report.manifest {
        let facts = [
            escape_markup(&m.study),
            format!("{} mode", escape_markup(&m.mode)),
            format!("seed {}", m.seed),
            format!("{} points, {} replications", m.points, m.replications),
            format!("{} of computing", format_seconds(m.elapsed_s)),
            format!("usher {}", escape_markup(&m.usher_version)),
        ];
        let _ = writeln!(out, "<p class=\"meta\">{}</p>", facts.join(" · "));
    }
    out.push_str("</header>\n");
}

fn render_findings(out: &mut String, sentences: &[String]) {
    out.push_str("<ul class=\"findings\">\n");
    for sentence in sentences {
        let _ = writeln!(out, "<li>{}</li>", escape_markup(sentence));
    }
    out.push_str("</ul>\n");
}

fn format_seconds(s: f64) -> String {
    if s < 60.0 {
        return format!("{} s", format_significant(s, 2));
    }
    let minutes = libm::floor(s / 60.0);
    format!("{} min {} s", format_decimals(minutes, 0), format_decimals(libm::floor(s - minutes * 60.0), 0))
}

fn render_paragraphs(out: &mut String, text: &str) {
    for paragraph in text.split("\n\n").map(str::trim).filter(|p| !p.is_empty()) {
        let _ = writeln!(out, "<p>{}</p>", escape_markup(paragraph));
    }
}

fn render_notes(out: &mut String, notes: &[String]) {
    if notes.is_empty() {
        return;
    }
    out.push_str("<section>\n<h2>Notes</h2>\n<ul>\n");
    for note in notes {
        let _ = writeln!(out, "<li>{}</li>", escape_markup(note));
    }
    out.push_str("</ul>\n</section>\n");
}

fn render_reruns(out: &mut String, reruns: &[RerunCommand]) {
    if reruns.is_empty() {
        return;
    }
    out.push_str("<section>\n<h2>Rerun a point</h2>\n");
    let open = if reruns.len() <= 8 { " open" } else { "" };
    let _ = writeln!(out, "<details{open}>\n<summary>{} commands, one per point</summary>", reruns.len());
    out.push_str("<table class=\"reruns\">\n<tbody>\n");
    for rerun in reruns {
        let _ = writeln!(
            out,
            "<tr><th scope=\"row\">{}</th><td><code>{}</code></td>\
             <td><button type=\"button\" class=\"copy\">Copy</button></td></tr>",
            escape_markup(&rerun.point),
            escape_markup(&rerun.command)
        );
    }
    out.push_str("</tbody>\n</table>\n</details>\n</section>\n");
}

fn manifest_table(out: &mut String, m: &RunManifest) {
    let mut rows: Vec<(String, String)> = [
        ("Study", m.study.clone()),
        ("Mode", m.mode.clone()),
        ("Seed", m.seed.to_string()),
        ("Points", m.points.to_string()),
        ("Replications", m.replications.to_string()),
        ("Complete", if m.complete { "yes" } else { "no" }.to_owned()),
        ("Started", m.started.clone()),
        ("Wall time", format_seconds(m.elapsed_s)),
        ("Usher", m.usher_version.clone()),
        ("Plan", m.plan_hash.clone()),
        ("Processor", format!("{}, {} cores", m.host.cpu, m.host.cores)),
        ("System", m.host.kernel.clone()),
    ]
    .map(|(name, value)| (name.to_owned(), value))
    .into();
    rows.extend(m.parameters.clone());
    rows.extend(m.facts.iter().map(|(name, fact)| (name.clone(), fact_text(fact))));
    out.push_str("<section>\n<h2>How this report was made</h2>\n<table class=\"manifest\">\n<tbody>\n");
    for (name, value) in rows {
        let _ = writeln!(
            out,
            "<tr><th scope=\"row\">{}</th><td>{}</td></tr>",
            escape_markup(&name),
            escape_markup(&value)
        );
    }
    out.push_str("</tbody>\n</table>\n</section>\n");
}

fn fact_text(fact: &ManifestValue) -> String {
    match fact {
        ManifestValue::Count(n) => n.to_string(),
        ManifestValue::Number(x) => format_significant(*x, 6),
        ManifestValue::Flag(true) => "yes".to_owned(),
        ManifestValue::Flag(false) => "no".to_owned(),
        ManifestValue::Text(text) => text.clone(),
        ManifestValue::Unknown(()) => "unknown".to_owned(),
    }
}

#[cfg(test)]
mod tests;
