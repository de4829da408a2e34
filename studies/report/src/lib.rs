//! Figures, tables and the self-contained HTML report.
//!
//! A caller fills an [`HtmlReport`] with results and closed forms and writes it to a run's folder. `report.html` is one
//! file that opens offline and needs no network. Each figure is also in `figures/NAME.svg`. The same report gives the
//! same bytes.

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

/// A whole report. Texts are plain; a blank line separates paragraphs.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct HtmlReport {
    /// The study's title.
    pub title: String,
    /// The study's question in a sentence.
    pub question: String,
    /// The answer in a few sentences with numbers, shown right below the question.
    pub findings: Vec<String>,
    /// The configuration and the measurements.
    pub description: String,
    /// The reason why the results are incomplete ("interrupted after 12 of 40 points"), shown as a banner.
    pub partial: Option<String>,
    /// Facts to know before any finding, such as failed dialogues, shown as banners.
    pub warnings: Vec<String>,
    /// The result in a table before all details: the result of each of several studies.
    pub summary: Option<ReportTable>,
    /// Figures and tables, in reading order.
    pub sections: Vec<ReportSection>,
    /// Message-flow figures, after the sections.
    pub ladders: Vec<MessageFlow>,
    /// Further notes: assumptions, warnings, points that did not converge.
    pub notes: Vec<String>,
    /// The commands to run single points again.
    pub reruns: Vec<RerunCommand>,
    /// The manifest of the run.
    pub manifest: Option<RunManifest>,
    /// The data for running the study in the report; without it the file contains no module.
    pub live: Option<BrowserStudy>,
}

/// A study that runs in its reader's browser by `usher-browser`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct BrowserStudy {
    /// The study, its axes and the run's results, as JSON.
    pub data: String,
    /// The WebAssembly module, compressed by gzip (RFC 1952).
    pub module: Vec<u8>,
}

/// A section of a report.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct ReportSection {
    /// Its heading.
    pub title: String,
    /// The text below the heading; may be empty.
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
    /// Returns the text of `report.html`.
    pub fn to_html(&self) -> String {
        html::render_page(self)
    }

    /// Writes `report.html`, `figures/*.svg` and `ladders/*.svg` and `*.txt` to this folder and returns the report's
    /// path. Each file is written atomically.
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
