//! The folder of several studies that were run together: a folder each, a report of all, their claims.

use crate::args::Run;
use crate::output::{Failure, Output};
use std::path::{Path, PathBuf};
use usher_claims::{DEFAULT_VARIANT, Judgement, Results};
use usher_experiment::statements::{self, OUT};
use usher_observe::Row;
use usher_observe::manifest::Manifest;
use usher_report::{Cell, Column, Ladder, Report, Section, Table};

/// What the studies of a group have given so far.
pub(crate) struct Group {
    path: PathBuf,
    title: String,
    rows: Vec<Row>,
    studies: Vec<Manifest>,
    sections: Vec<Section>,
    ladders: Vec<Ladder>,
    notes: Vec<String>,
    warnings: Vec<String>,
    /// Of each study: its title, its folder, and how its statements were judged.
    taken: Vec<[String; 3]>,
}

impl Group {
    /// Chooses the folder: the one asked for, or `out/NAMES-MODE`.
    ///
    /// # Errors
    /// It holds something else.
    pub(crate) fn open(run: &Run, mode: &str) -> Result<Self, Failure> {
        let stem = |name: &String| {
            let stem = Path::new(name).file_stem().map(|s| s.to_string_lossy().into_owned());
            stem.unwrap_or_else(|| name.clone())
        };
        let names = run.names.iter().map(stem).collect::<Vec<_>>().join("+");
        let path = run.out.clone().unwrap_or_else(|| Path::new(OUT).join(format!("{names}-{mode}")));
        let holds = |name: &str| path.join(name).exists();
        if holds("journal") || holds("report.html") && !holds(statements::FILE) {
            return Err(Failure::usage(format!(
                "{} holds something else than runs of several studies: choose another folder with --out",
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
            taken: Vec::new(),
        })
    }

    /// Its folder.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Takes in what one study gave, and how its statements were judged.
    pub(crate) fn take(
        &mut self,
        path: &Path,
        manifest: Manifest,
        report: &Report,
        rows: &[Row],
        judged: &[Judgement],
    ) {
        self.rows.extend_from_slice(rows);
        let mut drawn: Vec<Section> =
            report.sections.iter().filter(|s| !s.figures.is_empty()).cloned().collect();
        for figure in drawn.iter_mut().flat_map(|s| &mut s.figures) {
            figure.name = format!("{}-{}", manifest.study, figure.name);
        }
        // Details are a click away here, and open in the study's own report.
        drawn.iter_mut().flat_map(|s| &mut s.tables).for_each(|table| table.folded = true);
        if let Some(first) = drawn.first_mut() {
            first.title = report.title.clone();
            first.text = format!("{}\n\n{}", report.question, first.text);
        }
        self.sections.extend(drawn);
        self.ladders.extend(report.ladders.iter().map(|ladder| Ladder {
            name: format!("{}-{}", manifest.study, ladder.name),
            title: format!("{}: {}", manifest.study, ladder.title),
            ..ladder.clone()
        }));
        let of = |warning: &String| format!("{}: {warning}", manifest.study);
        self.warnings.extend(report.warnings.iter().map(of));
        let own = path.strip_prefix(&self.path).unwrap_or(path);
        let folder = own.display().to_string();
        self.taken.push([report.title.clone(), folder, usher_claims::counts(judged)]);
        self.studies.push(manifest);
    }

    /// Writes the report and the list of claims. `whole` is false where a study did not come to its end.
    ///
    /// # Errors
    /// A file cannot be written.
    pub(crate) fn write(self, output: &Output, whole: bool) -> Result<(), Failure> {
        if self.studies.is_empty() {
            return Ok(());
        }
        let mut results = Results::new(&self.rows);
        for manifest in &self.studies {
            statements::about(&mut results, manifest);
        }
        let judged = usher_claims::evaluate(&results, DEFAULT_VARIANT);
        let mut sections = self.sections;
        let mut held = statements::sections(&judged, &results);
        for table in held.iter_mut().flat_map(|s| &mut s.tables) {
            table.title = "Theirs, ours, the verdict and why".to_owned();
            table.folded = true;
        }
        sections.extend(held);
        let rows = self.studies.iter().zip(&self.taken).map(|(manifest, [title, folder, judged])| {
            let link = Cell::Link { text: manifest.study.clone(), to: format!("{folder}/report.html") };
            vec![link, Cell::from(title.as_str()), Cell::from(judged.as_str())]
        });
        let summary = Table {
            title: "The studies, each with its own report, and how published statements were judged"
                .to_owned(),
            columns: ["Study", "Title", "Statements"].map(|title| Column::new(title, "")).to_vec(),
            rows: rows.collect(),
            folded: false,
        };
        let names: Vec<&str> = self.studies.iter().map(|m| m.study.as_str()).collect();
        let report = Report {
            title: self.title,
            question: format!("What {} gave, and what was published of it.", names.join(", ")),
            partial: (!whole).then(|| "Not every study came to its end.".to_owned()),
            warnings: self.warnings,
            summary: Some(summary),
            sections,
            ladders: self.ladders,
            notes: self.notes,
            ..Report::default()
        };
        let written = statements::write(&self.path, &judged).and_then(|()| report.write(&self.path));
        let report = written.map_err(Failure::failed)?;
        if !output.json {
            output.text(&format!("report of all: {}\n", report.display()))?;
        }
        Ok(())
    }
}
