//! Figures, tables and the self-contained HTML report.
//!
//! A caller fills a [`HtmlReport`] with what rows and closed forms gave and writes it into a run's folder:
//! `report.html`, one file that opens offline and asks nothing of any network, and each figure as
//! `figures/NAME.svg`. The same report gives the same bytes.

mod figure;
mod format;
mod html;
mod ladder;
mod scale;
mod svg;
mod table;

pub use figure::{FigureAxis, FigurePanel, FigureSeries, ReportFigure, SeriesKind, SeriesPoint};
pub use ladder::{FlowMessage, MessageFlow};
pub use table::{ReportColumn, ReportTable, TableCell};

use std::path::{Path, PathBuf};
use usher_observe::manifest::RunManifest;
use usher_observe::{RunFileError, file};

/// A whole report. Texts are plain; a blank line divides paragraphs.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct HtmlReport {
    /// The study's title.
    pub title: String,
    /// What the study asks, in a sentence.
    pub question: String,
    /// The answer in a few sentences, each with its numbers; shown right under the question.
    pub findings: Vec<String>,
    /// What was set up and measured.
    pub description: String,
    /// Why the results are not all there ("interrupted after 12 of 40 points"); shown as a banner.
    pub partial: Option<String>,
    /// What must be known before any finding is believed, such as dialogues that failed; shown as banners.
    pub warnings: Vec<String>,
    /// The result in a table, before all details: what each of several studies gave.
    pub summary: Option<ReportTable>,
    /// Figures and tables, in reading order.
    pub sections: Vec<ReportSection>,
    /// Message-flow figures, after the sections.
    pub ladders: Vec<MessageFlow>,
    /// What the reader should know besides: assumptions, warnings, points that did not converge.
    pub notes: Vec<String>,
    /// How to run each point again alone.
    pub reruns: Vec<RerunCommand>,
    /// What was run, where and how long.
    pub manifest: Option<RunManifest>,
    /// What the report needs to run its own study; without it the file holds no module.
    pub live: Option<LiveStudy>,
}

/// A study that runs in its reader's browser: `usher-browser` is what runs it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LiveStudy {
    /// The study, its axes and what the run gave, JSON.
    pub data: String,
    /// The WebAssembly module, as gzip packs it (RFC 1952).
    pub module: Vec<u8>,
}

/// A part of a report.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct ReportSection {
    /// Its heading.
    pub title: String,
    /// What stands under the heading; may be empty.
    pub text: String,
    /// Its figures.
    pub figures: Vec<ReportFigure>,
    /// Its tables, after the figures.
    pub tables: Vec<ReportTable>,
}

/// The command that runs one point again.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RerunCommand {
    /// The point, such as "loss=0.05 transport=tcp".
    pub point: String,
    /// The whole command line.
    pub command: String,
}

impl HtmlReport {
    /// The text of `report.html`.
    pub fn to_html(&self) -> String {
        html::render_page(self)
    }

    /// Writes `report.html`, `figures/*.svg` and `ladders/*.svg` and `*.txt` into this folder and gives the report's path. Each file is
    /// whole or as it was before.
    ///
    /// # Errors
    /// [`RunFileError::Io`], with path and cause.
    pub fn write_files(&self, folder: &Path) -> Result<PathBuf, RunFileError> {
        for figure in self.sections.iter().flat_map(|s| &s.figures) {
            let path = folder.join("figures").join(format!("{}.svg", figure.file_stem()));
            file::write_file(&path, |out| out.write_all(figure.to_svg().as_bytes()))?;
        }
        for ladder in &self.ladders {
            for (kind, text) in [("svg", ladder.to_svg()), ("txt", ladder.to_text())] {
                let path = folder.join("ladders").join(format!("{}.{kind}", ladder.file_stem()));
                file::write_file(&path, |out| out.write_all(text.as_bytes()))?;
            }
        }
        let path = folder.join("report.html");
        file::write_file(&path, |out| out.write_all(self.to_html().as_bytes()))?;
        Ok(path)
    }
}
