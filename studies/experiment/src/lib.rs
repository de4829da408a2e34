//! A study run whole, whoever asks for it: the program `usher` and the Python package do.
//!
//! [`StudyExperiment`] makes of a sweep's rows what a run's folder holds: the manifest, the figures and the report, the published
//! statements with their verdicts. [`statements`] finds the runs that are on disk and judges by them.

pub mod live;
pub mod statements;

use std::collections::BTreeMap;
use std::time::{SystemTime, UNIX_EPOCH};
use usher_claims::ClaimJudgement;
use usher_core::WallTime;
use usher_observe::manifest::{MachineInfo, ManifestFact, RunManifest, format_rfc3339};
use usher_observe::{GridPoint, RowUnits, RunFileError, stats};
use usher_report::HtmlReport;
use usher_runner::sweep::{self, DialogueSamples, RunFolder, RunRequest, SweepResults, key};
use usher_scenario::{Study, StudyPlan};

/// One study that is run, and how.
#[derive(Clone, Copy, Debug)]
pub struct StudyExperiment<'a> {
    /// The study.
    pub study: &'a Study,
    /// Its plan.
    pub plan: &'a StudyPlan,
    /// How it was asked to run.
    pub request: &'a RunRequest,
    /// Replications that run at once.
    pub jobs: usize,
    /// True where it runs on a lab: what that measured is no result that statements are held against.
    pub on_lab: bool,
}

/// What a run gave, and all that is made of it.
#[derive(Debug)]
pub struct ExperimentResult {
    /// The rows and points.
    pub results: SweepResults,
    /// True where an interrupt has left points out of figures of single dialogues.
    pub cut_short: bool,
    /// What was run, where and how long.
    pub manifest: RunManifest,
    /// The report.
    pub report: HtmlReport,
    /// The published statements that rest on this study, judged.
    pub judged: Vec<ClaimJudgement>,
    /// The units of the rows' axes and metrics.
    pub units: RowUnits,
    /// The confidence level of intervals, such as 0.95.
    pub level: f64,
}

impl StudyExperiment<'_> {
    /// The manifest of what was run. `started` is as [`utc_timestamp`] gives it, `more` are facts beside the usual ones.
    pub fn build_manifest(
        &self,
        results: &SweepResults,
        started: String,
        elapsed_s: f64,
        more: impl IntoIterator<Item = (String, ManifestFact)>,
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
            host: MachineInfo::detect(),
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
        more: impl IntoIterator<Item = (String, ManifestFact)>,
    ) -> BTreeMap<String, ManifestFact> {
        let facts = &results.facts;
        let mut known = vec![
            ("packet_hops", ManifestFact::from(facts.packet_hops)),
            ("wall_s", ManifestFact::from(facts.wall_s)),
            ("packet_hops_per_s", ManifestFact::from(facts.packet_hops as f64 / facts.wall_s)),
            ("peak_rss_bytes", ManifestFact::from(facts.peak_rss_bytes)),
            ("jobs", ManifestFact::from(self.jobs as u64)),
        ];
        let divided = [("halved", facts.halved), ("undecided", facts.undecided)];
        known.extend(
            divided.into_iter().filter(|(_, n)| *n > 0).map(|(name, n)| (name, ManifestFact::from(n))),
        );
        let wide: Vec<String> = unconverged_points(results).into_iter().map(key::format_point).collect();
        if !wide.is_empty() {
            known.push(("at_limit_of_replications", ManifestFact::from(wide.join("\n"))));
        }
        if !self.on_lab {
            known.push((statements::STUDY_HASH, ManifestFact::from(self.study.digest())));
        }
        if results.points.len() == 1 {
            let delays = results.rows.iter().filter(|r| &*r.metric == "delay.mean").map(|r| r.value);
            known
                .push(("mean_delay_s", ManifestFact::from(stats::SampleMoments::from_values(delays).mean())));
        }
        let setup = usher_claims::StudySetup::from_plan(self.plan);
        let known = known.into_iter().map(|(name, fact)| (name.to_owned(), fact)).chain(more);
        known.chain(setup.iter().flat_map(usher_claims::StudySetup::to_facts)).collect()
    }

    /// Makes report, verdicts and units of what a sweep gave. `rerun` says how a point is run again alone.
    pub fn conclude_run(
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
        let judged = statements::add_claims(&mut report, self.plan, &held, statements::is_own(&manifest));
        let level = self.plan.points.first().map_or(0.95, |p| p.scenario.run.replications.confidence.get());
        let units = sweep::collect_units(self.study.file(), self.plan, &results.rows);
        ExperimentResult {
            results,
            cut_short: samples.is_cut_short(),
            manifest,
            report,
            judged,
            units,
            level,
        }
    }
}

impl ExperimentResult {
    /// Writes everything into the run's folder: rows, summaries, manifest, verdicts, figures and `report.html`, each file whole or
    /// not at all.
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

/// The points that came to their limit of replications before the precision asked for.
pub fn unconverged_points(results: &SweepResults) -> Vec<&GridPoint> {
    results.points.iter().filter(|p| p.complete && !p.converged).map(|p| &p.point).collect()
}

/// The time of this machine, UTC, as manifests write it (RFC 3339).
pub fn utc_timestamp() -> String {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    format_rfc3339(WallTime::from_unix_secs(since.as_secs()))
}
