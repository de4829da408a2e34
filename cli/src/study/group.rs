//! The folder of several studies that run together: a folder for each study, a common report and their claims.

use crate::args::StudyRunArgs;
use crate::output::{CommandFailure, ConsoleOutput};
use std::path::{Path, PathBuf};
use usher_claims::{ClaimJudgement, DEFAULT_VARIANT, RunResults};
use usher_experiment::statements::{self, OUT};
use usher_observe::ResultRow;
use usher_observe::manifest::RunManifest;
use usher_report::{HtmlReport, MessageFlow, ReportColumn, ReportSection, ReportTable, TableCell};

/// The results of a group's studies so far.
pub(crate) struct StudyGroup {
    path: PathBuf,
    title: String,
    rows: Vec<ResultRow>,
    studies: Vec<RunManifest>,
    sections: Vec<ReportSection>,
    ladders: Vec<MessageFlow>,
    notes: Vec<String>,
    warnings: Vec<String>,
    /// For each study: its title, its folder, and the verdicts of its claims.
    study_verdicts: Vec<[String; 3]>,
}

impl StudyGroup {
    /// Chooses the folder: the requested one, or `out/NAMES-MODE`.
    ///
    /// # Errors
    /// The folder holds something else.
    pub(crate) fn open(run: &StudyRunArgs, mode: &str) -> Result<Self, CommandFailure> {
        let stem = |name: &String| {
            let stem = Path::new(name).file_stem().map(|s| s.to_string_lossy().into_owned());
            stem.unwrap_or_else(|| name.clone())
        };
        let names = run.names.iter().map(stem).collect::<Vec<_>>().join("+");
        let path = run.out.clone().unwrap_or_else(|| Path::new(OUT).join(format!("{names}-{mode}")));
        let holds = |name: &str| path.join(name).exists();
        if holds("journal") || holds("report.html") && !holds(statements::FILE) {
            return Err(CommandFailure::usage_error(format!(
                "{} does not hold the runs of several studies; choose another folder with --out",
                path.display()
            )));
        }
        let title = format!("{} ({mode})", run.names.join(", "));
        Ok(Self {
            path,
            title,
            rows: Vec::new(),
            studies: Vec::new(),
            sections: Vec::new(),
            ladders: Vec::new(),
            notes: Vec::new(),
            warnings: Vec::new(),
            study_verdicts: Vec::new(),
        })
    }

    /// Returns the folder.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Adds the results of one study and the verdicts of its claims.
    pub(crate) fn add_study_results(
        &mut self,
        path: &Path,
        manifest: RunManifest,
        report: &HtmlReport,
        rows: &[ResultRow],
        judged: &[ClaimJudgement],
    ) {
        self.rows.extend_from_slice(rows);
        let mut drawn: Vec<ReportSection> =
            report.sections.iter().filter(|s| !s.figures.is_empty()).cloned().collect();
        for figure in drawn.iter_mut().flat_map(|s| &mut s.figures) {
            figure.name = format!("{}-{}", manifest.study, figure.name);
        }
        // The group's report shows tables folded. The study's own report shows them open.
        drawn.iter_mut().flat_map(|s| &mut s.tables).for_each(|table| table.folded = true);
        if let Some(first) = drawn.first_mut() {
            first.title = report.title.clone();
            first.text = format!("{}\n\n{}", report.question, first.text);
        }
        self.sections.extend(drawn);
        self.ladders.extend(report.ladders.iter().map(|ladder| MessageFlow {
            name: format!("{}-{}", manifest.study, ladder.name),
            title: format!("{}: {}", manifest.study, ladder.title),
            ..ladder.clone()
        }));
        let of = |warning: &String| format!("{}: {warning}", manifest.study);
        self.warnings.extend(report.warnings.iter().map(of));
        let own = path.strip_prefix(&self.path).unwrap_or(path);
        let folder = own.display().to_string();
        self.study_verdicts.push([report.title.clone(), folder, usher_claims::verdict_counts(judged)]);
        self.studies.push(manifest);
    }

    /// Writes the report and the list of claims. `whole` is false if a study did not finish.
    ///
    /// # Errors
    /// A file cannot be written.
    pub(crate) fn write_report(self, output: &ConsoleOutput, whole: bool) -> Result<(), CommandFailure> {
        if self.studies.is_empty() {
            return Ok(());
        }
        let mut results = RunResults::new(&self.rows);
        for manifest in &self.studies {
            statements::add_run_facts(&mut results, manifest);
        }
        let judged = usher_claims::evaluate_claims(&results, DEFAULT_VARIANT);
        let mut sections = self.sections;
        let mut held = statements::build_claim_sections(&judged, &results);
        for table in held.iter_mut().flat_map(|s| &mut s.tables) {
            table.title = "Published value, ours, verdict and reason".to_owned();
            table.folded = true;
        }
        sections.extend(held);
        let rows =
            self.studies.iter().zip(&self.study_verdicts).map(|(manifest, [title, folder, judged])| {
                let link =
                    TableCell::Link { text: manifest.study.clone(), to: format!("{folder}/report.html") };
                vec![link, TableCell::from(title.as_str()), TableCell::from(judged.as_str())]
            });
        let summary = ReportTable {
            title: "The studies with their reports, and the verdicts on published claims".to_owned(),
            columns: ["Study", "Title", "Claims"].map(|title| ReportColumn::new(title, "")).to_vec(),
            rows: rows.collect(),
            folded: false,
        };
        let names: Vec<&str> = self.studies.iter().map(|m| m.study.as_str()).collect();
        let report = HtmlReport {
            title: self.title,
            question: format!("Results of {}, compared with published claims.", names.join(", ")),
            partial: (!whole).then(|| "Some studies did not finish.".to_owned()),
            warnings: self.warnings,
            summary: Some(summary),
            sections,
            ladders: self.ladders,
            notes: self.notes,
            ..HtmlReport::default()
        };
        let written =
            statements::write_judgements(&self.path, &judged).and_then(|()| report.write_files(&self.path));
        let report = written.map_err(CommandFailure::runtime_error)?;
        if !output.json {
            output.print_text(&format!("report of all: {}\n", report.display()))?;
        }
        Ok(())
    }
}
