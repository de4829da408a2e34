//! `usher study run`

use super::group::StudyGroup;
use super::{cluster, comparison, lab_steps};
use crate::args::{StudyRunArgs, StudyRunTarget};
use crate::output::{
    CommandFailure, ConsoleOutput, INTERRUPTED, format_columns, format_duration, shell_quote,
};
use crate::progress::SweepProgressBar;
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::{Duration, Instant};
use usher_experiment::live;
use usher_experiment::statements::OUT;
use usher_experiment::{ExperimentResult, StudyExperiment, unconverged_points};
use usher_observe::{GridPoint, file};
use usher_report::MessageFlow;
use usher_runner::sweep::{
    self, DialogueFailureSummary, DialogueSamples, FolderError, ReplicationRunner, ReplicationTask, RunError,
    RunFolder, RunRequest, SweepOptions, SweepPlan, SweepResults, UnstableMeanSummary, key,
};
use usher_runner::world::LabRunSettings;
use usher_runner::{LabRunner, SimRunner, capture, captured_links};
use usher_scenario::{Study, StudyMode, StudyPlan, founding};

/// The duration for which a dry run tries points.
const TRIAL: Duration = Duration::from_secs(5);
/// The maximum number of message flows that a run draws.
const MOST_LADDERS: usize = 12;
/// The maximum number of failures printed in full.
const MAX_SHOWN_FAILURES: usize = 5;
/// The maximum number of listed points that reached their limit of replications.
const MAX_SHOWN_POINTS: usize = 5;

/// One study to run.
struct PlannedStudyRun<'a> {
    /// The user's name for it, for commands that run it again.
    name: String,
    /// The study's name or file.
    file: String,
    study: Study,
    plan: StudyPlan,
    /// The settings of the run.
    request: RunRequest,
    /// The folder of the earlier run, if the study is taken from one.
    earlier_run: Option<PathBuf>,
    run: &'a StudyRunArgs,
    /// The lab on which it runs. `None`: the simulator.
    lab: Option<LabRunSettings>,
    /// The folder for its results, if not the command's.
    results_folder: Option<PathBuf>,
}

/// Runs the studies, one after another.
pub(crate) fn run_studies(output: &ConsoleOutput, run: &StudyRunArgs) -> Result<(), CommandFailure> {
    let jobs = plan_jobs(output, run)?;
    if let Some(engine) = run.backend {
        let sweeps: Vec<_> = jobs.iter().map(|job| job.cluster_sweep(jobs.len() > 1)).collect();
        return cluster::run_sweeps(output, run, engine, &sweeps);
    }
    if run.point.is_some() {
        let [job] = &jobs[..] else {
            return Err(CommandFailure::usage_error("--point needs exactly one study"));
        };
        return job.run_replication(output);
    }
    if run.dry_run {
        return dry_run(output, &jobs);
    }
    if run.on == StudyRunTarget::Both {
        return run_on_simulator_and_lab(output, jobs);
    }
    let mut done = Vec::new();
    let mut group = (jobs.len() > 1).then(|| StudyGroup::open(run, jobs[0].plan.mode.name())).transpose()?;
    let mut ended = jobs.iter().try_for_each(|job| {
        done.push(job.run_sweep(output, group.as_mut())?);
        Ok(())
    });
    if let Some(group) = group {
        let written = group.write_report(output, ended.is_ok());
        ended = ended.and(written);
    }
    if output.json {
        output.print_json(&Value::Array(done))?;
    }
    ended
}

/// Runs each study on the simulator and on the lab, and compares the results.
fn run_on_simulator_and_lab(
    output: &ConsoleOutput,
    jobs: Vec<PlannedStudyRun<'_>>,
) -> Result<(), CommandFailure> {
    let mut done = Vec::new();
    let several = jobs.len() > 1;
    for mut job in jobs {
        let mut path = job.result_folder(None);
        if several && job.run.out.is_some() {
            path.push(&job.plan.study);
        }
        let lab = job.lab.take();
        job.results_folder = Some(path.join(comparison::SIM));
        let sim = job.run_sweep(output, None)?;
        job.lab = lab;
        job.results_folder = Some(path.join(comparison::LAB));
        let lab = job.run_sweep(output, None)?;
        let agreement = comparison::compare_backends(output, &path, &job.study, &job.plan)?;
        done.push(json!({ "study": job.plan.study, "sim": sim, "lab": lab, "agreement": agreement }));
    }
    if output.json { output.print_json(&Value::Array(done)) } else { Ok(()) }
}

/// Loads all studies and plans them. If one is faulty, none is run.
fn plan_jobs<'a>(
    output: &ConsoleOutput,
    run: &'a StudyRunArgs,
) -> Result<Vec<PlannedStudyRun<'a>>, CommandFailure> {
    if run.on == StudyRunTarget::Sim && !run.kernel.is_empty() {
        return Err(CommandFailure::usage_error(
            "--kernel needs --on lab or --on both: the simulator has no kernel",
        ));
    }
    if run.on != StudyRunTarget::Sim && run.ladder {
        return Err(CommandFailure::usage_error(
            "--ladder needs --on sim; on the lab, --pcap writes captures for Wireshark",
        ));
    }
    if run.on == StudyRunTarget::Sim && run.perf {
        return Err(CommandFailure::usage_error(
            "--perf needs --on lab or --on both: in the simulator, the study sets the time of work",
        ));
    }
    let lab = match run.on {
        StudyRunTarget::Sim => None,
        StudyRunTarget::Lab | StudyRunTarget::Both => {
            let stop = interrupt_flag()
                .map_err(|e| CommandFailure::runtime_error(format!("cannot handle Ctrl-C: {e}")))?;
            Some(lab_steps::lab_settings(run, stop)?)
        }
    };
    let mut jobs: Vec<PlannedStudyRun<'_>> = Vec::new();
    let mut faults = Vec::new();
    for name in &run.names {
        let group = founding::group_members(name);
        let alone = group.is_empty();
        let members = if alone { vec![name.as_str()] } else { group };
        for name in members {
            // The study is already in the list: it belongs to several groups, or was named twice.
            if jobs.iter().any(|job| job.name == name) {
                continue;
            }
            let (file, asked, again) = resolve_study_request(run, name)?;
            let (mode, overrides) = asked.mode_and_overrides().map_err(CommandFailure::usage_error)?;
            let loaded =
                Study::open(&file).and_then(|study| Ok((study.build_plan(mode, &overrides)?, study)));
            match loaded {
                Err(error) => faults.push(error.to_string()),
                // Other studies of the group have choices.
                Ok((_, study)) if mode == StudyMode::Sensitivity && study.file().choices.is_empty() => {
                    if alone {
                        faults
                            .push(format!("{name}: the study has no [[choices]] for --sensitivity to vary"));
                    }
                }
                Ok((plan, study)) => {
                    if jobs.iter().any(|j| j.plan.study == plan.study) {
                        faults.push(format!(
                            "{name}: another study of this command also has the name \"{}\"",
                            plan.study
                        ));
                    }
                    if lab.is_some() {
                        faults.extend(lab_steps::lab_incompatibility_reason(&plan));
                    }
                    plan.warnings
                        .iter()
                        .for_each(|warning| output.print_note(&format!("warning: {warning}")));
                    jobs.push(PlannedStudyRun {
                        name: name.to_owned(),
                        file,
                        study,
                        plan,
                        request: asked,
                        earlier_run: again,
                        run,
                        lab: lab.clone(),
                        results_folder: None,
                    });
                }
            }
        }
    }
    faults.extend(describe_unknown_capture_link(run, &jobs));
    if jobs.is_empty() && faults.is_empty() {
        faults.push(format!("{}: none of these studies has [[choices]]", run.names.join(", ")));
    }
    if faults.is_empty() { Ok(jobs) } else { Err(CommandFailure::usage_error(faults.join("\n"))) }
}

/// Resolves a name to a study and its settings. If the name is the folder of an earlier run, its settings apply
/// unless the command line overrides them.
fn resolve_study_request(
    run: &StudyRunArgs,
    name: &str,
) -> Result<(String, RunRequest, Option<PathBuf>), CommandFailure> {
    let mode = match run {
        StudyRunArgs { quick: true, .. } => Some(StudyMode::Quick),
        StudyRunArgs { full: true, .. } => Some(StudyMode::Full),
        StudyRunArgs { sensitivity: true, .. } => Some(StudyMode::Sensitivity),
        StudyRunArgs { lab: true, .. }
        | StudyRunArgs { on: StudyRunTarget::Lab | StudyRunTarget::Both, .. } => Some(StudyMode::Lab),
        _ => None,
    };
    let folder = Path::new(name);
    let kept = match founding::find_founding_study(name).is_none() && folder.is_dir() {
        true => RunRequest::of_folder(folder).map_err(CommandFailure::runtime_error)?,
        false => None,
    };
    let again = kept.is_some().then(|| folder.to_owned());
    let (file, mut asked) = match kept {
        Some((file, asked)) => (file.display().to_string(), asked),
        None if folder.is_dir() && founding::find_founding_study(name).is_none() => {
            return Err(CommandFailure::usage_error(format!(
                "{name} is a folder without a copy of a study; give a study's name or file, or the folder of \
                 a run"
            )));
        }
        None => (
            name.to_owned(),
            RunRequest { mode: StudyMode::Default.name().to_owned(), ..RunRequest::default() },
        ),
    };
    if let Some(mode) = mode {
        asked.mode = mode.name().to_owned();
    }
    asked.set.extend(run.set.iter().cloned());
    asked.seed = run.seed.or(asked.seed);
    asked.replications = run.replications.map(u32::from).or(asked.replications);
    Ok((file, asked, again))
}

/// Returns the first link to capture that none of the studies has.
fn describe_unknown_capture_link(run: &StudyRunArgs, jobs: &[PlannedStudyRun<'_>]) -> Option<String> {
    let first = jobs.first()?;
    let wrong =
        run.pcap.iter().find(|l| !l.is_empty() && !jobs.iter().any(|job| job.has_scenario_link(l)))?;
    let known: Vec<&str> = first.plan.points.first()?.scenario.link_names().collect();
    let others = if jobs.len() > 1 { ", and no other study has it" } else { "" };
    let study = &first.plan.study;
    Some(format!("--pcap={wrong}: {study} has no such link; its links are {}{others}", known.join(", ")))
}

fn dry_run(output: &ConsoleOutput, jobs: &[PlannedStudyRun<'_>]) -> Result<(), CommandFailure> {
    let mut values = Vec::new();
    let mut text = String::new();
    for job in jobs {
        let sweep = job.build_sweep_plan();
        let (fewest, most) = sweep.replication_range();
        let estimated = match &job.lab {
            Some(_) => lab_steps::estimate_time(&job.plan, job.parallel_replication_count()),
            None => sweep::estimate_sweep(
                &sweep,
                &*job.create_runner(None),
                job.parallel_replication_count(),
                TRIAL,
            )
            .map_err(|e| CommandFailure::runtime_error(e.to_string()))?,
        };
        let replications = if fewest == most { fewest.to_string() } else { format!("{fewest} to {most}") };
        let (low, high) = (format_duration(estimated.low_s), format_duration(estimated.high_s));
        let time = if low == high { low } else { format!("{low} to {high}") };
        text.push_str(&format!(
            "{}: {} points, {replications} replications, about {time} with {} jobs ({} a replication, of {} tried)\n",
            job.plan.study,
            sweep.goals.len(),
            job.parallel_replication_count(),
            format_duration(estimated.per_replication_s),
            estimated.tried
        ));
        values.push(json!({
            "study": job.plan.study, "points": sweep.goals.len(), "replications": [fewest, most],
            "seconds": [estimated.low_s, estimated.high_s], "jobs": job.parallel_replication_count(), "tried": estimated.tried,
        }));
    }
    if output.json { output.print_json(&Value::Array(values)) } else { output.print_text(&text) }
}

impl PlannedStudyRun<'_> {
    /// Creates the runner of the study's replications. It abandons replications in progress when `stop` is set. A lab
    /// has its own runner.
    fn create_runner(&self, stop: Option<Arc<AtomicBool>>) -> Box<dyn ReplicationRunner + '_> {
        let links = self.captured_links();
        match &self.lab {
            None => {
                let runner = SimRunner::new(&self.plan, links).with_threads(self.thread_count());
                Box::new(match stop {
                    Some(stop) => runner.with_stop_flag(stop),
                    None => runner,
                })
            }
            Some(lab) => Box::new(LabRunner::new(&self.plan, links, lab.clone())),
        }
    }

    /// Returns the links to capture that this study has, if the command names links.
    fn captured_links(&self) -> Vec<String> {
        self.run.pcap.iter().filter(|link| self.has_scenario_link(link)).cloned().collect()
    }

    fn has_scenario_link(&self, link: &str) -> bool {
        let first = self.plan.points.first();
        first.is_some_and(|point| point.scenario.link_names().any(|name| name == link))
    }

    /// True if packets are captured. A study without the named link runs without a capture.
    fn has_packet_capture(&self) -> bool {
        let asked = &self.run.pcap;
        !asked.is_empty() && (asked.iter().all(String::is_empty) || !self.captured_links().is_empty())
    }

    /// Returns remarks about the captures.
    fn capture_remarks(&self) -> Vec<String> {
        let replays = self.plan.points.iter().any(|point| point.scenario.replays_handshakes());
        match (self.run.pcap.is_empty(), self.has_packet_capture()) {
            (true, _) => Vec::new(),
            (_, true) => replays.then(|| capture::REPLAYED.to_owned()).into_iter().collect(),
            (_, false) => {
                vec![format!("{} has none of the links of --pcap, and gets no captures", self.plan.study)]
            }
        }
    }

    /// Returns the sweep to run. Its journal keeps rows of the simulator and of each kernel apart.
    fn build_sweep_plan(&self) -> SweepPlan {
        let mut sweep = SweepPlan::from_plan(&self.plan);
        if let Some(lab) = &self.lab {
            sweep.plan.push_str(&lab_steps::journal_source_suffix(&lab.kernel));
        }
        sweep
    }

    /// The number of threads that share one replication.
    fn thread_count(&self) -> usize {
        self.run.threads.map_or(1, usize::from)
    }

    /// The number of replications that run at once. Threads that share a replication take no other.
    fn parallel_replication_count(&self) -> usize {
        let available = || std::thread::available_parallelism().map_or(1, usize::from);
        let cores =
            || if self.lab.is_some() { lab_steps::default_job_count(available()) } else { available() };
        // Of the threads that share a replication, about two are busy at a time.
        self.run.jobs.map_or_else(|| (cores() / self.thread_count().min(2)).max(1), usize::from)
    }

    /// Returns the command that runs this study with these settings and further arguments.
    fn command_line(&self, more: &[&str]) -> String {
        let mut words =
            vec!["usher".to_owned(), "study".to_owned(), "run".to_owned(), shell_quote(&self.name)];
        match self.plan.mode {
            StudyMode::Default => {}
            StudyMode::Lab if self.run.on != StudyRunTarget::Sim => {
                words.push(format!(
                    "--on {}",
                    if self.run.on == StudyRunTarget::Lab { "lab" } else { "both" }
                ));
                words.extend(self.run.kernel.iter().map(|k| format!("--kernel {}", shell_quote(k))));
                if self.run.perf {
                    words.push("--perf".to_owned());
                }
            }
            mode => words.push(format!("--{}", mode.name())),
        }
        words.extend(self.run.seed.map(|s| format!("--seed {s}")));
        words.extend(self.run.set.iter().map(|s| format!("--set {}", shell_quote(s))));
        words.extend(more.iter().map(|w| shell_quote(w)));
        words.join(" ")
    }

    fn rerun_command(&self, point: &GridPoint, replication: u32) -> String {
        self.command_line(&["--point", &key::format_point(point), "--replication", &replication.to_string()])
    }

    /// Returns the command that resumes an unfinished run.
    fn resume_command(&self, folder: &Path) -> String {
        let mut more: Vec<String> = Vec::new();
        more.extend(self.run.replications.iter().flat_map(|n| ["--replications".to_owned(), n.to_string()]));
        more.extend(self.run.jobs.iter().flat_map(|n| ["--jobs".to_owned(), n.to_string()]));
        more.extend(self.run.threads.iter().flat_map(|n| ["--threads".to_owned(), n.to_string()]));
        more.extend(
            self.run.pcap.iter().map(|l| if l.is_empty() { "--pcap".into() } else { format!("--pcap={l}") }),
        );
        let whole = self.results_folder.as_ref().and_then(|_| folder.parent()).unwrap_or(folder);
        more.extend(["--out".to_owned(), whole.display().to_string()]);
        self.command_line(&more.iter().map(String::as_str).collect::<Vec<_>>())
    }

    fn result_folder(&self, group: Option<&StudyGroup>) -> PathBuf {
        let how = match (self.run.on, self.plan.mode.name()) {
            (StudyRunTarget::Both, _) => "both",
            (StudyRunTarget::Sim, "lab") => "lab-simulated",
            (_, mode) => mode,
        };
        let own = format!("{}-{how}", self.plan.study);
        if let Some(within) = &self.results_folder {
            return within.clone();
        }
        match (group, &self.run.out) {
            (Some(group), _) => group.path().join(own),
            (None, Some(folder)) => folder.clone(),
            (None, None) => match &self.earlier_run {
                Some(folder) => {
                    let mut name = folder.as_os_str().to_owned();
                    name.push("-again");
                    name.into()
                }
                None => Path::new(OUT).join(own),
            },
        }
    }

    /// Returns the sweep for a cluster. `several`: it is one of several studies.
    fn cluster_sweep(&self, several: bool) -> cluster::ClusterSweep {
        let mut folder = self.result_folder(None);
        if several && self.run.out.is_some() {
            folder.push(format!("{}-{}", self.plan.study, self.plan.mode.name()));
        }
        cluster::ClusterSweep {
            name: self.name.clone(),
            study: self.file.clone(),
            request: self.request.clone(),
            folder,
        }
    }

    /// Runs one replication of one point and prints its metrics.
    fn run_replication(&self, output: &ConsoleOutput) -> Result<(), CommandFailure> {
        let sweep = self.build_sweep_plan();
        let asked = self.run.point.as_deref().unwrap_or_default();
        let index = key::find_point(sweep.goals.iter().map(|g| &g.point), asked)
            .map_err(|e| CommandFailure::usage_error(format!("--point: {e}")))?;
        let replication = self.run.replication.unwrap_or(0);
        let point = &sweep.goals[index].point;
        self.capture_remarks().iter().for_each(|remark| output.print_note(remark));
        let capture = self.has_packet_capture().then(|| {
            let folder = self.run.out.clone().unwrap_or_default();
            folder.join(format!("{}-{index:04}-{replication}.pcapng", self.plan.study))
        });
        let task = ReplicationTask { index, point, replication, capture: capture.as_deref() };
        let outcome = sweep::run_catching_panic(&*self.create_runner(None), task)
            .map_err(CommandFailure::runtime_error)?;
        let ladder = if self.run.ladder {
            self.draw_message_flow(index, replication, None).map_err(CommandFailure::runtime_error)?
        } else {
            None
        };
        let drawn = ladder.as_ref().map(|_| {
            let folder = self.run.out.clone().unwrap_or_default();
            folder.join(format!("{}-{index:04}-{replication}.svg", self.plan.study))
        });
        if let (Some(ladder), Some(path)) = (&ladder, &drawn) {
            file::write_file(path, |out| out.write_all(ladder.to_svg().as_bytes()))
                .map_err(CommandFailure::runtime_error)?;
        }
        if output.json {
            let metrics: serde_json::Map<String, Value> =
                outcome.metrics.iter().map(|(name, value)| (name.clone(), json!(value))).collect();
            return output.print_json(&json!({
                "study": self.plan.study, "point": key::format_point(point), "replication": replication,
                "metrics": metrics, "packet_hops": outcome.facts.packet_hops, "wall_s": outcome.facts.wall_s,
                "capture": capture.map(|c| c.display().to_string()), "ladder": drawn.map(|d| d.display().to_string()),
            }));
        }
        let rows: Vec<Vec<String>> = outcome
            .metrics
            .iter()
            .map(|(name, value)| vec![name.clone(), usher_observe::row::format_number(*value)])
            .collect();
        let mut text = format_columns(&rows);
        if let Some(capture) = capture {
            text.push_str(&format!("capture: {}\n", capture.display()));
        }
        if let (Some(ladder), Some(path)) = (ladder, drawn) {
            text.push_str(&format!("\n{}\nladder: {}\n", ladder.to_text(), path.display()));
        }
        output.print_text(&text)
    }

    /// Draws the messages of one dialogue of a replication. Abandons it when `stop` is set.
    fn draw_message_flow(
        &self,
        index: usize,
        replication: u32,
        stop: Option<&Arc<AtomicBool>>,
    ) -> Result<Option<MessageFlow>, RunError> {
        let point = &self.plan.points[index];
        let drawn = usher_runner::ladder::record_message_flow(point, replication, stop)?;
        let at = key::format_point(&self.build_sweep_plan().goals[index].point);
        Ok(drawn.map(|ladder| MessageFlow {
            name: format!("{index:04}-{at}").trim_end_matches('-').to_owned(),
            title: if at.is_empty() { self.study.file().title.clone() } else { at },
            ..ladder
        }))
    }

    /// Draws the message flows of a run: one for each combination of named values, at the first value of each numeric
    /// axis. Returns false if an interrupt left some out.
    fn draw_message_flows(
        &self,
        output: &ConsoleOutput,
        interrupt: &Arc<AtomicBool>,
    ) -> Result<(Vec<MessageFlow>, bool), CommandFailure> {
        let first = |setting: &usher_scenario::AxisSetting| {
            let axis = self.plan.axes.iter().find(|axis| axis.name == setting.axis);
            axis.is_none_or(|axis| {
                let named = axis.values.iter().any(|value| value.number.is_none());
                named && axis.name != usher_scenario::VARIANT || axis.values.first() == Some(setting)
            })
        };
        let points = self.plan.points.iter().filter(|point| point.settings.iter().all(first));
        let mut ladders = Vec::new();
        for point in points.take(MOST_LADDERS) {
            if interrupt.load(Ordering::Relaxed) {
                return Ok((ladders, false));
            }
            match self.draw_message_flow(point.index, 0, Some(interrupt)) {
                Ok(Some(ladder)) => ladders.push(ladder),
                Ok(None) => output.print_note(&format!(
                    "no dialogue ended at {}, so there is no message flow of it",
                    point.key
                )),
                Err(_) if interrupt.load(Ordering::Relaxed) => return Ok((ladders, false)),
                Err(error) => return Err(CommandFailure::runtime_error(error)),
            }
        }
        Ok((ladders, true))
    }

    /// Runs the whole sweep and writes the folder. Starts no replication after an interrupt.
    fn run_sweep(
        &self,
        output: &ConsoleOutput,
        group: Option<&mut StudyGroup>,
    ) -> Result<Value, CommandFailure> {
        let live = self.run.live_report.then(|| live::read_module(&self.study)).transpose();
        let live = live.map_err(CommandFailure::usage_error)?;
        let path = self.result_folder(group.as_deref());
        let interrupt = interrupt_flag()
            .map_err(|e| CommandFailure::runtime_error(format!("cannot handle Ctrl-C: {e}")))?;
        if interrupt.load(Ordering::Relaxed) {
            let study = &self.plan.study;
            return Err(CommandFailure::interrupted(format!(
                "{study}: not started; run it with: {}",
                self.resume_command(&path)
            )));
        }
        let sweep = self.build_sweep_plan();
        let mut folder = RunFolder::open(&path, &sweep.plan, &sweep::build_id(), self.run.force)
            .map_err(map_folder_error)?;
        folder.store_study(&self.study, &self.request).map_err(CommandFailure::runtime_error)?;
        let begun = Instant::now();
        let started = usher_experiment::utc_timestamp();
        if !output.progress && !output.json {
            let (fewest, _) = sweep.replication_range();
            let points = sweep.goals.len();
            output
                .print_note(&format!("{}: {points} points, at least {fewest} replications", self.plan.study));
        }
        if self.lab.is_some() {
            lab_steps::report_kernel_differences(output, &self.plan);
        }
        let runner = self.create_runner(Some(interrupt.clone()));
        let bar = SweepProgressBar::new(&sweep, output.progress);
        let captures = self.has_packet_capture().then_some(path.as_path());
        self.capture_remarks().iter().for_each(|remark| output.print_note(remark));
        if captures.is_some() {
            let links = self.captured_links();
            let of_points = self.plan.points.iter().map(|point| captured_links(&links, &point.scenario));
            folder.update_captured_links(&sweep, of_points).map_err(CommandFailure::runtime_error)?;
        }
        let options = SweepOptions {
            jobs: self.parallel_replication_count(),
            interrupt: &interrupt,
            watch: &bar,
            captures,
        };
        let tell = || {
            if !output.json {
                bar.run_with_hidden_bar(|| {
                    output.print_note(
                        "abandoning the replications in progress; press Ctrl-C again to stop at once",
                    )
                });
            }
        };
        let results = notify_on_interrupt(&interrupt, tell, || {
            sweep::execute_sweep(&sweep, &*runner, folder.journal(), options)
        });
        bar.remove_progress_bar();

        let experiment = StudyExperiment {
            study: &self.study,
            plan: &self.plan,
            request: &self.request,
            jobs: self.parallel_replication_count(),
            on_lab: self.lab.is_some(),
        };
        let of_lab = self.lab.iter().flat_map(|lab| lab_steps::lab_facts(&self.plan, &lab.kernel, &results));
        let manifest = experiment.build_manifest(&results, started, begun.elapsed().as_secs_f64(), of_lab);
        let samples = match self.lab {
            None => sweep::sample_dialogues(&self.plan, &interrupt).map_err(CommandFailure::runtime_error)?,
            Some(_) => DialogueSamples::default(),
        };
        let mut whole = experiment
            .build_run_conclusion(results, &samples, manifest, |point| self.rerun_command(point, 0));
        if self.run.ladder {
            let (ladders, all) = self.draw_message_flows(output, &interrupt)?;
            whole.report.ladders = ladders;
            if !all {
                whole.cut_short = true;
                whole.report.partial.get_or_insert_with(|| sweep::CUT_SHORT.to_owned());
            }
        }
        if let Some(module) = live {
            whole.report.live = Some(
                live::make_live_report(&experiment, &whole, module).map_err(CommandFailure::runtime_error)?,
            );
        }
        let written = whole.write_files(&folder);
        let ExperimentResult { results, cut_short, manifest, report, judged, .. } = whole;
        if let Some(group) = group {
            group.add_study_results(&path, manifest.clone(), &report, &results.rows, &judged);
        }
        let report = written.map_err(|e| match &results.broken {
            Some(broken) => {
                CommandFailure::runtime_error(format!("{broken}\n{e}\n{}", self.go_on(&results, &path)))
            }
            None => CommandFailure::runtime_error(format!("{e}\n{}", self.go_on(&results, &path))),
        })?;
        let failing = DialogueFailureSummary::from_results(&self.plan, &results);
        let untrusted = UnstableMeanSummary::from_results(&self.plan, &results);
        if !output.json {
            let warnings = failing.iter().map(ToString::to_string);
            let warnings = warnings.chain(lab_steps::disturbance_warnings(&results));
            let divided = if self.run.perf && self.lab.is_some() {
                lab_steps::describe_library_cpu_times(&results)
            } else {
                Vec::new()
            };
            let warnings = warnings.chain(divided);
            let warnings = warnings.chain(untrusted.as_ref().map(ToString::to_string));
            let warnings = warnings.chain(self.describe_divided_replications(&results));
            let warnings =
                warnings.chain(sweep::describe_recommendations(self.study.file(), &self.plan, &results));
            output.print_text(&self.format_summary(
                &results,
                warnings,
                begun.elapsed().as_secs_f64(),
                &report,
            ))?;
        }
        if !results.complete {
            let why = self.describe_partial_results(&results, &path);
            let stopped =
                interrupt.load(Ordering::Relaxed) && results.failures.is_empty() && results.broken.is_none();
            return Err(if stopped {
                CommandFailure::interrupted(why)
            } else {
                CommandFailure::runtime_error(why)
            });
        }
        if cut_short {
            let why = format!(
                "the figures and message flows of single dialogues are incomplete\n{}",
                self.go_on(&results, &path)
            );
            return Err(CommandFailure::interrupted(why));
        }
        Ok(json!({
            "study": self.plan.study, "folder": path.display().to_string(), "report": report.display().to_string(),
            "points": results.points.len(), "replications": manifest.replications, "complete": results.complete,
            "seconds": manifest.elapsed_s,
            "answers": sweep::describe_recommendations(self.study.file(), &self.plan, &results),
            "at_limit": unconverged_points(&results).into_iter().map(key::format_point).collect::<Vec<_>>(),
            "failing": failing.first().map(|f| json!({
                "points": f.points, "of": f.total_points, "worst": key::format_point(&f.worst), "share": f.share,
            })),
            "moved": untrusted.map(|u| json!({
                "points": u.points, "of": u.total_points, "worst": key::format_point(&u.worst), "metric": u.metric, "mean": u.mean,
                "without": u.moved.mean_without, "replication": u.moved.replication, "median": u.median.median,
            })),
        }))
    }

    /// Returns how many replications were divided among threads, if requested.
    fn describe_divided_replications(&self, results: &SweepResults) -> Option<String> {
        let (halved, undecided) = (results.facts.halved, results.facts.undecided);
        let tried = match undecided {
            0 => String::new(),
            n => format!(
                "; {n} more ran again on one thread, since two threads could not decide the order of two \
                 events"
            ),
        };
        (self.thread_count() > 1)
            .then(|| format!("replications divided between two threads: {halved}{tried}"))
    }

    fn format_summary(
        &self,
        results: &SweepResults,
        warnings: impl Iterator<Item = String>,
        seconds: f64,
        report: &Path,
    ) -> String {
        let complete = results.points.iter().filter(|p| p.complete).count();
        let replications: u64 = results.points.iter().map(|p| u64::from(p.replications)).sum();
        let resumed = match results.resumed {
            0 => String::new(),
            n => format!(", {n} of them from an earlier run"),
        };
        let wide = unconverged_points(results);
        let mut named: Vec<String> = wide
            .iter()
            .take(MAX_SHOWN_POINTS)
            .map(|point| format!("  {}\n", key::format_point(point)))
            .collect();
        if wide.len() > MAX_SHOWN_POINTS {
            named.push(format!("  and {} more, listed in manifest.json\n", wide.len() - MAX_SHOWN_POINTS));
        }
        let wide = match wide.len() {
            0 => String::new(),
            n => format!(
                "{n} {} the limit of replications before the requested precision:\n{}",
                if n == 1 { "point reached" } else { "points reached" },
                named.concat()
            ),
        };
        let warnings: String = warnings.map(|warning| format!("{warning}\n")).collect();
        let of = if results.complete { String::new() } else { format!(" of {}", results.points.len()) };
        let points = if results.complete { results.points.len() } else { complete };
        format!(
            "{}: {points}{of} points, {replications} replications{resumed}, {}\n{warnings}{wide}report: {}\n",
            self.plan.study,
            format_duration(seconds),
            report.display()
        )
    }

    fn describe_partial_results(&self, results: &SweepResults, path: &Path) -> String {
        let mut lines: Vec<String> = Vec::new();
        for failure in results.failures.iter().take(MAX_SHOWN_FAILURES) {
            lines.push(format!(
                "failed: {}\n  run it again: {}",
                failure.error,
                self.rerun_command(&failure.point, failure.replication)
            ));
        }
        if results.failures.len() > MAX_SHOWN_FAILURES {
            lines.push(format!("and {} more", results.failures.len() - MAX_SHOWN_FAILURES));
        }
        lines.extend(results.broken.as_ref().map(ToString::to_string));
        lines.push(self.go_on(results, path));
        lines.join("\n")
    }

    fn go_on(&self, results: &SweepResults, path: &Path) -> String {
        let complete = results.points.iter().filter(|p| p.complete).count();
        format!(
            "{}: {complete} of {} points are complete; resume with: {}",
            self.plan.study,
            results.points.len(),
            self.resume_command(path)
        )
    }
}

fn map_folder_error(error: FolderError) -> CommandFailure {
    match error {
        FolderError::Observe(_) => CommandFailure::runtime_error(error),
        _ => CommandFailure::usage_error(error),
    }
}

/// Returns a flag that SIGINT and SIGTERM set, for all studies of a run. A second signal ends the program at once.
fn interrupt_flag() -> std::io::Result<Arc<AtomicBool>> {
    use signal_hook::consts::{SIGINT, SIGTERM};
    use signal_hook::flag;
    static FLAG: std::sync::OnceLock<Arc<AtomicBool>> = std::sync::OnceLock::new();
    if let Some(known) = FLAG.get() {
        return Ok(known.clone());
    }
    let set = FLAG.get_or_init(Arc::default).clone();
    for signal in [SIGINT, SIGTERM] {
        // Register the shutdown first: at the first signal the flag is still clear, so only a second signal ends the
        // process.
        flag::register_conditional_shutdown(signal, INTERRUPTED.into(), set.clone())?;
        flag::register(signal, set.clone())?;
    }
    Ok(set)
}

/// The interval of checks for an interrupt.
const LOOK: Duration = Duration::from_millis(100);

/// Runs `run`, and reports an interrupt at once. Replications in progress may take time to end.
fn notify_on_interrupt<T>(interrupt: &AtomicBool, tell: impl Fn() + Sync, run: impl FnOnce() -> T) -> T {
    let (running, ended) = mpsc::channel::<()>();
    let tell = &tell;
    std::thread::scope(|threads| {
        threads.spawn(move || {
            while ended.recv_timeout(LOOK) == Err(RecvTimeoutError::Timeout) {
                if interrupt.load(Ordering::Relaxed) {
                    return tell();
                }
            }
        });
        let done = run();
        drop(running);
        done
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_interrupt_is_told_while_what_is_under_way_goes_on() {
        let interrupt = AtomicBool::new(false);
        let (said, told) = mpsc::channel();
        let tell = || said.send(()).unwrap();
        let done = notify_on_interrupt(&interrupt, tell, || {
            interrupt.store(true, Ordering::Relaxed);
            told.recv_timeout(Duration::from_secs(60)).is_ok()
        });
        assert!(done);
        notify_on_interrupt(&AtomicBool::new(false), tell, || ());
        assert!(told.try_recv().is_err(), "once, and not where there was none");
    }
}
