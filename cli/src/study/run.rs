//! `usher study run`

use super::group::Group;
use super::{both, cluster, on};
use crate::args::{On, Run};
use crate::output::{Failure, INTERRUPTED, Output, columns, duration, quoted};
use crate::progress::Bar;
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::{Duration, Instant};
use usher_experiment::live;
use usher_experiment::statements::OUT;
use usher_experiment::{Experiment, Whole, wide};
use usher_observe::{Point, file};
use usher_report::Ladder;
use usher_runner::sweep::{
    self, Asked, Failing, Folder, FolderError, Options, Results, RunError, Runner, Samples, Sweep, Task,
    Untrusted, key,
};
use usher_runner::world::LabSettings;
use usher_runner::{LabRunner, SimRunner, capture, captured};
use usher_scenario::{Mode, Plan, Study, founding};

/// How long a dry run tries points for.
const TRIAL: Duration = Duration::from_secs(5);
/// The most ladders that a run draws.
const MOST_LADDERS: usize = 12;
/// Failures that are printed in full.
const SHOWN_FAILURES: usize = 5;
/// Points at their limit of replications that are named.
const SHOWN_WIDE: usize = 5;

/// One study to run.
struct Job<'a> {
    /// What the user called it, for lines that run it again.
    name: String,
    /// Its name, or its file.
    file: String,
    study: Study,
    plan: Plan,
    /// How it is asked to run.
    asked: Asked,
    /// Where it runs from the folder of an earlier run, that folder.
    again: Option<PathBuf>,
    run: &'a Run,
    /// Where it runs: on a lab, or else on the simulator.
    lab: Option<LabSettings>,
    /// The folder for its results, where it is not the command's.
    within: Option<PathBuf>,
}

/// Runs the studies, one after another.
pub(crate) fn run(output: &Output, run: &Run) -> Result<(), Failure> {
    let jobs = jobs(output, run)?;
    if let Some(engine) = run.backend {
        let sweeps: Vec<_> = jobs.iter().map(|job| job.elsewhere(jobs.len() > 1)).collect();
        return cluster::run(output, run, engine, &sweeps);
    }
    if run.point.is_some() {
        let [job] = &jobs[..] else { return Err(Failure::usage("--point is of one study: name one")) };
        return job.one(output);
    }
    if run.dry_run {
        return dry_run(output, &jobs);
    }
    if run.on == On::Both {
        return both_of(output, jobs);
    }
    let mut done = Vec::new();
    let mut group = (jobs.len() > 1).then(|| Group::open(run, jobs[0].plan.mode.name())).transpose()?;
    let mut ended = jobs.iter().try_for_each(|job| {
        done.push(job.sweep(output, group.as_mut())?);
        Ok(())
    });
    if let Some(group) = group {
        let written = group.write(output, ended.is_ok());
        ended = ended.and(written);
    }
    if output.json {
        output.value(&Value::Array(done))?;
    }
    ended
}

/// Runs each study on the simulator and on the lab, and holds what they gave against each other.
fn both_of(output: &Output, jobs: Vec<Job<'_>>) -> Result<(), Failure> {
    let mut done = Vec::new();
    let several = jobs.len() > 1;
    for mut job in jobs {
        let mut path = job.folder(None);
        if several && job.run.out.is_some() {
            path.push(&job.plan.study);
        }
        let lab = job.lab.take();
        job.within = Some(path.join(both::SIM));
        let sim = job.sweep(output, None)?;
        job.lab = lab;
        job.within = Some(path.join(both::LAB));
        let lab = job.sweep(output, None)?;
        let agreement = both::compare_both(output, &path, &job.study, &job.plan)?;
        done.push(json!({ "study": job.plan.study, "sim": sim, "lab": lab, "agreement": agreement }));
    }
    if output.json { output.value(&Value::Array(done)) } else { Ok(()) }
}

/// Loads all studies and makes their plans: if one is faulty, nothing is run.
fn jobs<'a>(output: &Output, run: &'a Run) -> Result<Vec<Job<'a>>, Failure> {
    if run.on == On::Sim && !run.kernel.is_empty() {
        return Err(Failure::usage("--kernel: the simulator has no kernel; it goes with --on lab or both"));
    }
    if run.on != On::Sim && run.ladder {
        return Err(Failure::usage(
            "--ladder: of a lab's packets --pcap makes captures, which Wireshark reads; it goes with --on sim",
        ));
    }
    if run.on == On::Sim && run.perf {
        return Err(Failure::usage(
            "--perf: in the simulator work takes what the study says; it goes with --on lab or both",
        ));
    }
    let lab = match run.on {
        On::Sim => None,
        On::Lab | On::Both => {
            let stop = interrupt().map_err(|e| Failure::failed(format!("cannot listen for Ctrl-C: {e}")))?;
            Some(on::settings(run, stop)?)
        }
    };
    let mut jobs: Vec<Job<'_>> = Vec::new();
    let mut faults = Vec::new();
    for name in &run.names {
        let group = founding::group(name);
        let alone = group.is_empty();
        let members = if alone { vec![name.as_str()] } else { group };
        for name in members {
            // Of several groups, or named twice.
            if jobs.iter().any(|job| job.name == name) {
                continue;
            }
            let (file, asked, again) = asked(run, name)?;
            let (mode, overrides) = asked.overrides().map_err(Failure::usage)?;
            let loaded = Study::open(&file).and_then(|study| Ok((study.plan(mode, &overrides)?, study)));
            match loaded {
                Err(error) => faults.push(error.to_string()),
                // A group's other studies have choices.
                Ok((_, study)) if mode == Mode::Sensitivity && study.file().choices.is_empty() => {
                    if alone {
                        faults.push(format!("{name}: has no [[choices]], which --sensitivity goes through"));
                    }
                }
                Ok((plan, study)) => {
                    if jobs.iter().any(|j| j.plan.study == plan.study) {
                        faults
                            .push(format!("{name}: another study here has the name \"{}\" too", plan.study));
                    }
                    if lab.is_some() {
                        faults.extend(on::unfit(&plan));
                    }
                    plan.warnings.iter().for_each(|warning| output.note(&format!("warning: {warning}")));
                    jobs.push(Job {
                        name: name.to_owned(),
                        file,
                        study,
                        plan,
                        asked,
                        again,
                        run,
                        lab: lab.clone(),
                        within: None,
                    });
                }
            }
        }
    }
    faults.extend(unknown_link(run, &jobs));
    if jobs.is_empty() && faults.is_empty() {
        faults.push(format!("{}: no study here has [[choices]]", run.names.join(", ")));
    }
    if faults.is_empty() { Ok(jobs) } else { Err(Failure::usage(faults.join("\n"))) }
}

/// The study that a name stands for, how it is asked to run, and where it is the folder of an earlier run, that: what was
/// asked then holds as far as nothing else is asked now.
fn asked(run: &Run, name: &str) -> Result<(String, Asked, Option<PathBuf>), Failure> {
    let mode = match run {
        Run { quick: true, .. } => Some(Mode::Quick),
        Run { full: true, .. } => Some(Mode::Full),
        Run { sensitivity: true, .. } => Some(Mode::Sensitivity),
        Run { lab: true, .. } | Run { on: On::Lab | On::Both, .. } => Some(Mode::Lab),
        _ => None,
    };
    let folder = Path::new(name);
    let kept = match founding::find(name).is_none() && folder.is_dir() {
        true => Asked::of_folder(folder).map_err(Failure::failed)?,
        false => None,
    };
    let again = kept.is_some().then(|| folder.to_owned());
    let (file, mut asked) = match kept {
        Some((file, asked)) => (file.display().to_string(), asked),
        None if folder.is_dir() && founding::find(name).is_none() => {
            return Err(Failure::usage(format!(
                "{name} is a folder, and none of a run that kept its study: give a study's name, its file, or such a folder"
            )));
        }
        None => (name.to_owned(), Asked { mode: Mode::Default.name().to_owned(), ..Asked::default() }),
    };
    if let Some(mode) = mode {
        asked.mode = mode.name().to_owned();
    }
    asked.set.extend(run.set.iter().cloned());
    asked.seed = run.seed.or(asked.seed);
    asked.replications = run.replications.map(u32::from).or(asked.replications);
    Ok((file, asked, again))
}

/// A link that is to be captured and that none of the studies has.
fn unknown_link(run: &Run, jobs: &[Job<'_>]) -> Option<String> {
    let first = jobs.first()?;
    let wrong = run.pcap.iter().find(|l| !l.is_empty() && !jobs.iter().any(|job| job.has_link(l)))?;
    let known: Vec<&str> = first.plan.points.first()?.scenario.link_names().collect();
    let others = if jobs.len() > 1 { ", and none of the others has one" } else { "" };
    let study = &first.plan.study;
    Some(format!("--pcap={wrong}: {study} has no such link; it has {}{others}", known.join(", ")))
}

fn dry_run(output: &Output, jobs: &[Job<'_>]) -> Result<(), Failure> {
    let mut values = Vec::new();
    let mut text = String::new();
    for job in jobs {
        let sweep = job.whole();
        let (fewest, most) = sweep.replications();
        let estimated = match &job.lab {
            Some(_) => on::estimate(&job.plan, job.cores()),
            None => sweep::estimate(&sweep, &*job.runner(None), job.cores(), TRIAL)
                .map_err(|e| Failure::failed(e.to_string()))?,
        };
        let replications = if fewest == most { fewest.to_string() } else { format!("{fewest} to {most}") };
        let (low, high) = (duration(estimated.low_s), duration(estimated.high_s));
        let time = if low == high { low } else { format!("{low} to {high}") };
        text.push_str(&format!(
            "{}: {} points, {replications} replications, about {time} with {} jobs ({} a replication, of {} tried)\n",
            job.plan.study,
            sweep.goals.len(),
            job.cores(),
            duration(estimated.per_replication_s),
            estimated.tried
        ));
        values.push(json!({
            "study": job.plan.study, "points": sweep.goals.len(), "replications": [fewest, most],
            "seconds": [estimated.low_s, estimated.high_s], "jobs": job.cores(), "tried": estimated.tried,
        }));
    }
    if output.json { output.value(&Value::Array(values)) } else { output.text(&text) }
}

impl Job<'_> {
    /// What runs its replications, and gives up those under way when `stop` is set. A lab has its own.
    fn runner(&self, stop: Option<Arc<AtomicBool>>) -> Box<dyn Runner + '_> {
        let links = self.links();
        match &self.lab {
            None => {
                let runner = SimRunner::new(&self.plan, links).threads(self.threads());
                Box::new(match stop {
                    Some(stop) => runner.until(stop),
                    None => runner,
                })
            }
            Some(lab) => Box::new(LabRunner::new(&self.plan, links, lab.clone())),
        }
    }

    /// The links that captures are asked of and that this study has, if certain ones are.
    fn links(&self) -> Vec<String> {
        self.run.pcap.iter().filter(|link| self.has_link(link)).cloned().collect()
    }

    fn has_link(&self, link: &str) -> bool {
        let first = self.plan.points.first();
        first.is_some_and(|point| point.scenario.link_names().any(|name| name == link))
    }

    /// Whether packets are captured. Of several studies, one that has no link that is asked for is run without.
    fn is_captured(&self) -> bool {
        let asked = &self.run.pcap;
        !asked.is_empty() && (asked.iter().all(String::is_empty) || !self.links().is_empty())
    }

    /// What is to be known of its captures.
    fn capture_remarks(&self) -> Vec<String> {
        let replays = self.plan.points.iter().any(|point| point.scenario.replays_handshakes());
        match (self.run.pcap.is_empty(), self.is_captured()) {
            (true, _) => Vec::new(),
            (_, true) => replays.then(|| capture::REPLAYED.to_owned()).into_iter().collect(),
            (_, false) => {
                vec![format!("{} has none of the links of --pcap, and no captures", self.plan.study)]
            }
        }
    }

    /// What is to be run; rows of a lab are not taken for the simulator's, nor for another kernel's.
    fn whole(&self) -> Sweep {
        let mut sweep = Sweep::of(&self.plan);
        if let Some(lab) = &self.lab {
            sweep.plan.push_str(&on::mark(&lab.kernel));
        }
        sweep
    }

    /// Threads that share one replication.
    fn threads(&self) -> usize {
        self.run.threads.map_or(1, usize::from)
    }

    /// How many replications run at once: threads that share one are not busy with others.
    fn cores(&self) -> usize {
        let available = || std::thread::available_parallelism().map_or(1, usize::from);
        let cores = || if self.lab.is_some() { on::jobs(available()) } else { available() };
        // Of those that share one two are busy.
        self.run.jobs.map_or_else(|| (cores() / self.threads().min(2)).max(1), usize::from)
    }

    /// The command that runs this study with these settings, and these further arguments.
    fn command(&self, more: &[&str]) -> String {
        let mut words = vec!["usher".to_owned(), "study".to_owned(), "run".to_owned(), quoted(&self.name)];
        match self.plan.mode {
            Mode::Default => {}
            Mode::Lab if self.run.on != On::Sim => {
                words.push(format!("--on {}", if self.run.on == On::Lab { "lab" } else { "both" }));
                words.extend(self.run.kernel.iter().map(|k| format!("--kernel {}", quoted(k))));
                if self.run.perf {
                    words.push("--perf".to_owned());
                }
            }
            mode => words.push(format!("--{}", mode.name())),
        }
        words.extend(self.run.seed.map(|s| format!("--seed {s}")));
        words.extend(self.run.set.iter().map(|s| format!("--set {}", quoted(s))));
        words.extend(more.iter().map(|w| quoted(w)));
        words.join(" ")
    }

    fn rerun(&self, point: &Point, replication: u32) -> String {
        self.command(&["--point", &key::of(point), "--replication", &replication.to_string()])
    }

    /// The command that goes on with a run that did not come to its end.
    fn resume(&self, folder: &Path) -> String {
        let mut more: Vec<String> = Vec::new();
        more.extend(self.run.replications.iter().flat_map(|n| ["--replications".to_owned(), n.to_string()]));
        more.extend(self.run.jobs.iter().flat_map(|n| ["--jobs".to_owned(), n.to_string()]));
        more.extend(self.run.threads.iter().flat_map(|n| ["--threads".to_owned(), n.to_string()]));
        more.extend(
            self.run.pcap.iter().map(|l| if l.is_empty() { "--pcap".into() } else { format!("--pcap={l}") }),
        );
        let whole = self.within.as_ref().and_then(|_| folder.parent()).unwrap_or(folder);
        more.extend(["--out".to_owned(), whole.display().to_string()]);
        self.command(&more.iter().map(String::as_str).collect::<Vec<_>>())
    }

    fn folder(&self, group: Option<&Group>) -> PathBuf {
        let how = match (self.run.on, self.plan.mode.name()) {
            (On::Both, _) => "both",
            (On::Sim, "lab") => "lab-simulated",
            (_, mode) => mode,
        };
        let own = format!("{}-{how}", self.plan.study);
        if let Some(within) = &self.within {
            return within.clone();
        }
        match (group, &self.run.out) {
            (Some(group), _) => group.path().join(own),
            (None, Some(folder)) => folder.clone(),
            (None, None) => match &self.again {
                Some(folder) => {
                    let mut name = folder.as_os_str().to_owned();
                    name.push("-again");
                    name.into()
                }
                None => Path::new(OUT).join(own),
            },
        }
    }

    /// What a cluster is asked, where it is one of several studies or the only one.
    fn elsewhere(&self, several: bool) -> cluster::Sweep {
        let mut folder = self.folder(None);
        if several && self.run.out.is_some() {
            folder.push(format!("{}-{}", self.plan.study, self.plan.mode.name()));
        }
        cluster::Sweep {
            name: self.name.clone(),
            study: self.file.clone(),
            asked: self.asked.clone(),
            folder,
        }
    }

    /// Runs one replication of one point and prints its metrics.
    fn one(&self, output: &Output) -> Result<(), Failure> {
        let sweep = self.whole();
        let asked = self.run.point.as_deref().unwrap_or_default();
        let index = key::find(sweep.goals.iter().map(|g| &g.point), asked)
            .map_err(|e| Failure::usage(format!("--point: {e}")))?;
        let replication = self.run.replication.unwrap_or(0);
        let point = &sweep.goals[index].point;
        self.capture_remarks().iter().for_each(|remark| output.note(remark));
        let capture = self.is_captured().then(|| {
            let folder = self.run.out.clone().unwrap_or_default();
            folder.join(format!("{}-{index:04}-{replication}.pcapng", self.plan.study))
        });
        let task = Task { index, point, replication, capture: capture.as_deref() };
        let outcome = sweep::attempt(&*self.runner(None), task).map_err(Failure::failed)?;
        let ladder = if self.run.ladder {
            self.ladder(index, replication, None).map_err(Failure::failed)?
        } else {
            None
        };
        let drawn = ladder.as_ref().map(|_| {
            let folder = self.run.out.clone().unwrap_or_default();
            folder.join(format!("{}-{index:04}-{replication}.svg", self.plan.study))
        });
        if let (Some(ladder), Some(path)) = (&ladder, &drawn) {
            file::write(path, |out| out.write_all(ladder.svg().as_bytes())).map_err(Failure::failed)?;
        }
        if output.json {
            let metrics: serde_json::Map<String, Value> =
                outcome.metrics.iter().map(|(name, value)| (name.clone(), json!(value))).collect();
            return output.value(&json!({
                "study": self.plan.study, "point": key::of(point), "replication": replication,
                "metrics": metrics, "packet_hops": outcome.facts.packet_hops, "wall_s": outcome.facts.wall_s,
                "capture": capture.map(|c| c.display().to_string()), "ladder": drawn.map(|d| d.display().to_string()),
            }));
        }
        let rows: Vec<Vec<String>> = outcome
            .metrics
            .iter()
            .map(|(name, value)| vec![name.clone(), usher_observe::row::number(*value)])
            .collect();
        let mut text = columns(&rows);
        if let Some(capture) = capture {
            text.push_str(&format!("capture: {}\n", capture.display()));
        }
        if let (Some(ladder), Some(path)) = (ladder, drawn) {
            text.push_str(&format!("\n{}\nladder: {}\n", ladder.text(), path.display()));
        }
        output.text(&text)
    }

    /// The messages of one dialogue of a replication, which is given up when `stop` is set.
    fn ladder(
        &self,
        index: usize,
        replication: u32,
        stop: Option<&Arc<AtomicBool>>,
    ) -> Result<Option<Ladder>, RunError> {
        let point = &self.plan.points[index];
        let drawn = usher_runner::ladder::ladder(point, replication, stop)?;
        let at = key::of(&self.whole().goals[index].point);
        Ok(drawn.map(|ladder| Ladder {
            name: format!("{index:04}-{at}").trim_end_matches('-').to_owned(),
            title: if at.is_empty() { self.study.file().title.clone() } else { at },
            ..ladder
        }))
    }

    /// The ladders that a run draws: of each combination of named cases, where axes of numbers have their first values. False where
    /// an interrupt left some out.
    fn ladders(&self, output: &Output, interrupt: &Arc<AtomicBool>) -> Result<(Vec<Ladder>, bool), Failure> {
        let first = |setting: &usher_scenario::Setting| {
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
            match self.ladder(point.index, 0, Some(interrupt)) {
                Ok(Some(ladder)) => ladders.push(ladder),
                Ok(None) => output.note(&format!("no dialogue ended at {}: no ladder of it", point.key)),
                Err(_) if interrupt.load(Ordering::Relaxed) => return Ok((ladders, false)),
                Err(error) => return Err(Failure::failed(error)),
            }
        }
        Ok((ladders, true))
    }

    /// Runs the whole grid, and writes the folder. After an interrupt nothing is begun.
    fn sweep(&self, output: &Output, group: Option<&mut Group>) -> Result<Value, Failure> {
        let live = self.run.live_report.then(|| live::module(&self.study)).transpose();
        let live = live.map_err(Failure::usage)?;
        let path = self.folder(group.as_deref());
        let interrupt = interrupt().map_err(|e| Failure::failed(format!("cannot listen for Ctrl-C: {e}")))?;
        if interrupt.load(Ordering::Relaxed) {
            let study = &self.plan.study;
            return Err(Failure::interrupted(format!(
                "{study}: not begun; run it with: {}",
                self.resume(&path)
            )));
        }
        let sweep = self.whole();
        let mut folder =
            Folder::open(&path, &sweep.plan, &sweep::build(), self.run.force).map_err(refused)?;
        folder.keep(&self.study, &self.asked).map_err(Failure::failed)?;
        let begun = Instant::now();
        let started = usher_experiment::now();
        if !output.progress && !output.json {
            let (fewest, _) = sweep.replications();
            let points = sweep.goals.len();
            output.note(&format!("{}: {points} points, at least {fewest} replications", self.plan.study));
        }
        if self.lab.is_some() {
            on::tell(output, &self.plan);
        }
        let runner = self.runner(Some(interrupt.clone()));
        let bar = Bar::new(&sweep, output.progress);
        let captures = self.is_captured().then_some(path.as_path());
        self.capture_remarks().iter().for_each(|remark| output.note(remark));
        if captures.is_some() {
            let links = self.links();
            let of_points = self.plan.points.iter().map(|point| captured(&links, &point.scenario));
            folder.capture(&sweep, of_points).map_err(Failure::failed)?;
        }
        let options = Options { jobs: self.cores(), interrupt: &interrupt, watch: &bar, captures };
        let tell = || {
            if !output.json {
                bar.aside(|| output.note("giving up the replications under way; Ctrl-C again ends now"));
            }
        };
        let results = heard(&interrupt, tell, || sweep::execute(&sweep, &*runner, folder.journal(), options));
        bar.end();

        let experiment = Experiment {
            study: &self.study,
            plan: &self.plan,
            asked: &self.asked,
            jobs: self.cores(),
            on_lab: self.lab.is_some(),
        };
        let of_lab = self.lab.iter().flat_map(|lab| on::facts(&self.plan, &lab.kernel, &results));
        let manifest = experiment.manifest(&results, started, begun.elapsed().as_secs_f64(), of_lab);
        let samples = match self.lab {
            None => sweep::samples(&self.plan, &interrupt).map_err(Failure::failed)?,
            Some(_) => Samples::default(),
        };
        let mut whole = experiment.conclude(results, &samples, manifest, |point| self.rerun(point, 0));
        if self.run.ladder {
            let (ladders, all) = self.ladders(output, &interrupt)?;
            whole.report.ladders = ladders;
            if !all {
                whole.cut_short = true;
                whole.report.partial.get_or_insert_with(|| sweep::CUT_SHORT.to_owned());
            }
        }
        if let Some(module) = live {
            whole.report.live = Some(live::live(&experiment, &whole, module).map_err(Failure::failed)?);
        }
        let written = whole.write(&folder);
        let Whole { results, cut_short, manifest, report, judged, .. } = whole;
        if let Some(group) = group {
            group.take(&path, manifest.clone(), &report, &results.rows, &judged);
        }
        let report = written.map_err(|e| match &results.broken {
            Some(broken) => Failure::failed(format!("{broken}\n{e}\n{}", self.go_on(&results, &path))),
            None => Failure::failed(format!("{e}\n{}", self.go_on(&results, &path))),
        })?;
        let failing = Failing::of(&self.plan, &results);
        let untrusted = Untrusted::of(&self.plan, &results);
        if !output.json {
            let warnings = failing.iter().map(ToString::to_string);
            let warnings = warnings.chain(on::disturbed(&results));
            let divided =
                if self.run.perf && self.lab.is_some() { on::libraries(&results) } else { Vec::new() };
            let warnings = warnings.chain(divided);
            let warnings = warnings.chain(untrusted.as_ref().map(ToString::to_string));
            let warnings = warnings.chain(self.division(&results));
            let warnings = warnings.chain(sweep::answers(self.study.file(), &self.plan, &results));
            output.text(&self.summary(&results, warnings, begun.elapsed().as_secs_f64(), &report))?;
        }
        if !results.complete {
            let why = self.why_partial(&results, &path);
            let stopped =
                interrupt.load(Ordering::Relaxed) && results.failures.is_empty() && results.broken.is_none();
            return Err(if stopped { Failure::interrupted(why) } else { Failure::failed(why) });
        }
        if cut_short {
            let why =
                format!("what is drawn of single dialogues is not complete\n{}", self.go_on(&results, &path));
            return Err(Failure::interrupted(why));
        }
        Ok(json!({
            "study": self.plan.study, "folder": path.display().to_string(), "report": report.display().to_string(),
            "points": results.points.len(), "replications": manifest.replications, "complete": results.complete,
            "seconds": manifest.elapsed_s,
            "answers": sweep::answers(self.study.file(), &self.plan, &results),
            "at_limit": wide(&results).into_iter().map(key::of).collect::<Vec<_>>(),
            "failing": failing.first().map(|f| json!({
                "points": f.points, "of": f.of, "worst": key::of(&f.worst), "share": f.share,
            })),
            "moved": untrusted.map(|u| json!({
                "points": u.points, "of": u.of, "worst": key::of(&u.worst), "metric": u.metric, "mean": u.mean,
                "without": u.moved.without, "replication": u.moved.replication, "median": u.median.median,
            })),
        }))
    }

    /// How many replications were divided between threads, where that was asked for.
    fn division(&self, results: &Results) -> Option<String> {
        let (halved, undecided) = (results.facts.halved, results.facts.undecided);
        let tried = match undecided {
            0 => String::new(),
            n => format!(
                "; {n} more had to be run again by one, since two could not tell which of two events is first"
            ),
        };
        (self.threads() > 1).then(|| format!("by two threads each: {halved} replications{tried}"))
    }

    fn summary(
        &self,
        results: &Results,
        warnings: impl Iterator<Item = String>,
        seconds: f64,
        report: &Path,
    ) -> String {
        let complete = results.points.iter().filter(|p| p.complete).count();
        let replications: u64 = results.points.iter().map(|p| u64::from(p.replications)).sum();
        let resumed = match results.resumed {
            0 => String::new(),
            n => format!(", {n} of them from before"),
        };
        let wide = wide(results);
        let mut named: Vec<String> =
            wide.iter().take(SHOWN_WIDE).map(|point| format!("  {}\n", key::of(point))).collect();
        if wide.len() > SHOWN_WIDE {
            named.push(format!("  and {} more, which manifest.json names\n", wide.len() - SHOWN_WIDE));
        }
        let wide = match wide.len() {
            0 => String::new(),
            n => format!(
                "{n} {} to the limit of replications before the precision asked for:\n{}",
                if n == 1 { "point came" } else { "points came" },
                named.concat()
            ),
        };
        let warnings: String = warnings.map(|warning| format!("{warning}\n")).collect();
        let of = if results.complete { String::new() } else { format!(" of {}", results.points.len()) };
        let points = if results.complete { results.points.len() } else { complete };
        format!(
            "{}: {points}{of} points, {replications} replications{resumed}, {}\n{warnings}{wide}report: {}\n",
            self.plan.study,
            duration(seconds),
            report.display()
        )
    }

    fn why_partial(&self, results: &Results, path: &Path) -> String {
        let mut lines: Vec<String> = Vec::new();
        for failure in results.failures.iter().take(SHOWN_FAILURES) {
            lines.push(format!(
                "failed: {}\n  run it again: {}",
                failure.error,
                self.rerun(&failure.point, failure.replication)
            ));
        }
        if results.failures.len() > SHOWN_FAILURES {
            lines.push(format!("and {} more", results.failures.len() - SHOWN_FAILURES));
        }
        lines.extend(results.broken.as_ref().map(ToString::to_string));
        lines.push(self.go_on(results, path));
        lines.join("\n")
    }

    fn go_on(&self, results: &Results, path: &Path) -> String {
        let complete = results.points.iter().filter(|p| p.complete).count();
        format!(
            "{}: {complete} of {} points are complete; go on with: {}",
            self.plan.study,
            results.points.len(),
            self.resume(path)
        )
    }
}

fn refused(error: FolderError) -> Failure {
    match error {
        FolderError::Observe(_) => Failure::failed(error),
        _ => Failure::usage(error),
    }
}

/// A flag that Ctrl-C (or a request to terminate) sets, for all studies of a run; a second one ends the program at once.
fn interrupt() -> std::io::Result<Arc<AtomicBool>> {
    use signal_hook::consts::{SIGINT, SIGTERM};
    use signal_hook::flag;
    static FLAG: std::sync::OnceLock<Arc<AtomicBool>> = std::sync::OnceLock::new();
    if let Some(known) = FLAG.get() {
        return Ok(known.clone());
    }
    let set = FLAG.get_or_init(Arc::default).clone();
    for signal in [SIGINT, SIGTERM] {
        // In this order: the first signal finds the flag down, and sets it.
        flag::register_conditional_shutdown(signal, INTERRUPTED.into(), set.clone())?;
        flag::register(signal, set.clone())?;
    }
    Ok(set)
}

/// How often is looked whether there was an interrupt.
const LOOK: Duration = Duration::from_millis(100);

/// Runs this, and tells at once that an interrupt was heard: what is under way may take its time to end.
fn heard<T>(interrupt: &AtomicBool, tell: impl Fn() + Sync, run: impl FnOnce() -> T) -> T {
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
        let done = heard(&interrupt, tell, || {
            interrupt.store(true, Ordering::Relaxed);
            told.recv_timeout(Duration::from_secs(60)).is_ok()
        });
        assert!(done);
        heard(&AtomicBool::new(false), tell, || ());
        assert!(told.try_recv().is_err(), "once, and not where there was none");
    }
}
