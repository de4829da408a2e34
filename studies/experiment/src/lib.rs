//! Runs whole studies, for the program `usher` and for the Python package.
//!
//! [`StudyExperiment`] turns the rows of a sweep into the contents of a run's folder: manifest, figures, report and
//! verdicts on the published statements. [`statements`] finds runs on disk and judges the statements by them.

pub mod live;
pub mod statements;

use std::collections::BTreeMap;
use std::time::{SystemTime, UNIX_EPOCH};
use usher_claims::ClaimJudgement;
use usher_core::WallTime;
use usher_observe::manifest::{ManifestValue, RunHostInfo, RunManifest, format_rfc3339};
use usher_observe::{GridPoint, ResultRowUnits, RunFileError, stats};
use usher_report::HtmlReport;
use usher_runner::sweep::{self, DialogueSamples, RunFolder, RunRequest, SweepResults, key};
use usher_scenario::{Study, StudyPlan};

/// A study to run, and the options of its run.
#[derive(Clone, Copy, Debug)]
pub struct StudyExperiment<'a> {
    /// The study.
    pub study: &'a Study,
    /// Its plan.
    pub plan: &'a StudyPlan,
    /// The options of the run.
    pub request: &'a RunRequest,
    /// Number of concurrent replications.
    pub jobs: usize,
    /// True on a lab. Such results are not compared with published statements.
    pub on_lab: bool,
}

/// The results of a run, and everything derived from them.
#[derive(Debug)]
pub struct ExperimentResult {
    /// The rows and points.
    pub results: SweepResults,
    /// True if an interrupt left points out of the figures of single dialogues.
    pub cut_short: bool,
    /// The manifest: the study, the machine and the duration.
    pub manifest: RunManifest,
    /// The report.
    pub report: HtmlReport,
    /// The verdicts on the published statements of this study.
    pub judged: Vec<ClaimJudgement>,
    /// The units of axes and metrics in rows.
    pub units: ResultRowUnits,
    /// The confidence level of intervals, such as 0.95.
    pub level: f64,
}

impl StudyExperiment<'_> {
    /// Builds the manifest of the run. `started` is a time of [`utc_timestamp`]; `more` are additional facts.
    pub fn build_manifest(
        &self,
        results: &SweepResults,
        started: String,
        elapsed_s: f64,
        more: impl IntoIterator<Item = (String, ManifestValue)>,
    ) -> RunManifest {
        let mut parameters: BTreeMap<String, String> = self
            .plan
            .axes
            .iter()
            .map(|a| {
                let values: Vec<&str> = a.values.iter().map(|v| v.text.as_str()).collect();
                (a.name.clone(), values.join("; "))
            })
            .collect();
        for set in &self.request.set {
            if let Some((name, value)) = set.split_once('=') {
                parameters.entry(name.trim().to_owned()).or_insert_with(|| value.trim().to_owned());
            }
        }
        RunManifest {
            usher_version: env!("CARGO_PKG_VERSION").to_owned(),
            study: self.plan.study.clone(),
            seed: self.plan.points.first().map_or(self.study.file().run.seed, |p| p.scenario.run.seed),
            mode: self.plan.mode.name().to_owned(),
            parameters,
            plan_hash: self.plan.hash.clone(),
            host: RunHostInfo::detect(),
            started,
            elapsed_s,
            points: results.points.iter().filter(|p| p.replications > 0).count() as u64,
            replications: results.points.iter().map(|p| u64::from(p.replications)).sum(),
            complete: results.complete,
            facts: self.manifest_facts(results, more),
        }
    }

    fn manifest_facts(
        &self,
        results: &SweepResults,
        more: impl IntoIterator<Item = (String, ManifestValue)>,
    ) -> BTreeMap<String, ManifestValue> {
        let facts = &results.facts;
        let mut known = vec![
            ("packet_hops", ManifestValue::from(facts.packet_hops)),
            ("wall_s", ManifestValue::from(facts.wall_s)),
            ("packet_hops_per_s", ManifestValue::from(facts.packet_hops as f64 / facts.wall_s)),
            ("peak_rss_bytes", ManifestValue::from(facts.peak_rss_bytes)),
            ("jobs", ManifestValue::from(self.jobs as u64)),
        ];
        let divided = [("halved", facts.halved), ("undecided", facts.undecided)];
        known.extend(
            divided.into_iter().filter(|(_, n)| *n > 0).map(|(name, n)| (name, ManifestValue::from(n))),
        );
        let wide: Vec<String> = unconverged_points(results).into_iter().map(key::format_point).collect();
        if !wide.is_empty() {
            known.push(("at_limit_of_replications", ManifestValue::from(wide.join("\n"))));
        }
        if !self.on_lab {
            known.push((statements::STUDY_HASH, ManifestValue::from(self.study.digest())));
        }
        if results.points.len() == 1 {
            let delays = results.rows.iter().filter(|r| &*r.metric == "delay.mean").map(|r| r.value);
            known.push((
                "mean_delay_s",
                ManifestValue::from(stats::SampleMoments::from_values(delays).mean()),
            ));
        }
        let setup = usher_claims::ClaimStudySetup::from_plan(self.plan);
        let known = known.into_iter().map(|(name, fact)| (name.to_owned(), fact)).chain(more);
        known.chain(setup.iter().flat_map(usher_claims::ClaimStudySetup::to_facts)).collect()
    }

    /// Builds report, verdicts and units from the results of a sweep. `rerun` returns the command that runs a point
    /// alone.
    pub fn build_run_conclusion(
        &self,
        results: SweepResults,
        samples: &DialogueSamples,
        manifest: RunManifest,
        rerun: impl Fn(&GridPoint) -> String,
    ) -> ExperimentResult {
        let mut report =
            sweep::build_report(self.study.file(), self.plan, &results, samples, manifest.clone(), rerun);
        let mut held = usher_claims::RunResults::new(&results.rows);
        statements::add_run_facts(&mut held, &manifest);
        let judged =
            statements::add_claim_judgements(&mut report, self.plan, &held, statements::is_own(&manifest));
        let level = self.plan.points.first().map_or(0.95, |p| p.scenario.run.replications.confidence.get());
        let units = sweep::collect_units(self.study.file(), self.plan, &results.rows);
        ExperimentResult {
            results,
            cut_short: samples.was_sampling_interrupted(),
            manifest,
            report,
            judged,
            units,
            level,
        }
    }
}

impl ExperimentResult {
    /// Writes all files into the run's folder: rows, summaries, manifest, verdicts, figures and `report.html`. Each
    /// file is written whole or not at all.
    ///
    /// # Errors
    /// The first file that cannot be written.
    pub fn write_files(&self, folder: &RunFolder) -> Result<std::path::PathBuf, RunFileError> {
        folder
            .write_results(&self.results, self.level, &self.manifest, &self.units)
            .and_then(|()| statements::write_judgements(folder.path(), &self.judged))
            .and_then(|()| self.report.write_files(folder.path()))
    }
}

/// Returns the points that reached their limit of replications before the requested precision.
pub fn unconverged_points(results: &SweepResults) -> Vec<&GridPoint> {
    results.points.iter().filter(|p| p.complete && !p.converged).map(|p| &p.point).collect()
}

/// Returns the current UTC time in the format of manifests (RFC 3339).
pub fn utc_timestamp() -> String {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    format_rfc3339(WallTime::from_unix_secs(since.as_secs()))
}
