//! `usher plan`: how many servers.

use crate::load::MethodShareArg;
use crate::output::{CommandFailure, ConsoleOutput, INTERRUPTED, format_columns};
use clap::Args;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use usher_config::units::{EventRate, Percentage, PositiveCount, TimeSpan};
use usher_plan::{
    LoginDemand, LoginTimeTarget, PlanError, PlanFile, PlanObserver, PlanSimulationSettings, PreparedPlan,
};

#[derive(Args, Debug)]
pub(crate) struct PlanArgs {
    /// A plan file. Its keys are named like the options, and options override them.
    #[arg(value_name = "FILE")]
    file: Option<PathBuf>,
    /// The processor profile with the cost of a login, as written by `usher load ... --calibrate`.
    #[arg(long, value_name = "FILE")]
    profile: Option<PathBuf>,
    /// Accepts a profile that another version of usher measured. The answer says so.
    #[arg(long)]
    any_version: bool,
    /// The configuration of the planned server, with its methods, store and limits [default: a built-in one].
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Methods with their shares, by their names in the profile, such as eap-tls=60,peap-mschapv2=30,pap=10.
    #[arg(long, value_name = "METHOD=SHARE,...", value_delimiter = ',', help_heading = "Demand")]
    mix: Vec<MethodShareArg>,
    /// The number of users.
    #[arg(long, value_name = "N", help_heading = "Demand")]
    users: Option<u32>,
    /// All users log in once within this time.
    #[arg(long, value_name = "TIME", value_parser = TimeSpan::parse, help_heading = "Demand", conflicts_with_all = ["reauthentication", "rate"])]
    within: Option<TimeSpan>,
    /// Each user logs in again after this time.
    #[arg(long, value_name = "TIME", value_parser = TimeSpan::parse, help_heading = "Demand", conflicts_with = "rate")]
    reauthentication: Option<TimeSpan>,
    /// Logins per second.
    #[arg(long, value_name = "R", help_heading = "Demand")]
    rate: Option<f64>,
    /// The peak rate as a multiple of the average rate [default: 1].
    #[arg(long, value_name = "FACTOR", help_heading = "Demand")]
    peak: Option<f64>,
    /// The target for logins, such as '99 % within 200 ms' [default: 99 % within 100 ms].
    #[arg(long, value_name = "SHARE within TIME", value_parser = parse_login_target, help_heading = "Target")]
    target: Option<LoginTimeTarget>,
    /// Cores of each server [default: 1].
    #[arg(long, value_name = "N", help_heading = "Servers")]
    cores: Option<u32>,
    /// The time of work as a multiple of its time on the profile's machine [default: 1].
    #[arg(long, value_name = "FACTOR", help_heading = "Servers")]
    scale: Option<f64>,
    /// The additional round-trip time to the store, beyond the one in the profile's measurement.
    #[arg(long, value_name = "TIME", value_parser = TimeSpan::parse, help_heading = "Servers")]
    store_distance: Option<TimeSpan>,
    /// The round-trip time to the access servers [default: 0 s].
    #[arg(long, value_name = "TIME", value_parser = TimeSpan::parse, help_heading = "Network")]
    round_trip: Option<TimeSpan>,
    /// The share of lost packets, in each direction [default: 0 %].
    #[arg(long, value_name = "SHARE", value_parser = Percentage::parse, help_heading = "Network")]
    loss: Option<Percentage>,
    /// PEM file: the certificate and chain of a test user of the configuration.
    #[arg(long, value_name = "FILE", help_heading = "TLS", requires = "key")]
    certificate: Option<PathBuf>,
    /// PEM file: the private key of --certificate.
    #[arg(long, value_name = "FILE", help_heading = "TLS", requires = "certificate")]
    key: Option<PathBuf>,
    /// PEM file: the authorities of the server's certificate.
    #[arg(long, value_name = "FILE", help_heading = "TLS")]
    ca: Option<PathBuf>,
    /// For a first look: fewer logins and two replications.
    #[arg(long, help_heading = "Run")]
    quick: bool,
    /// Replications of the simulation, each with other random numbers [default: 4].
    #[arg(long, value_name = "N", help_heading = "Run", value_parser = clap::value_parser!(u32).range(2..=1000))]
    replications: Option<u32>,
    /// The approximate number of logins in a step [default: 4000; with TLS 600].
    #[arg(long, value_name = "N", help_heading = "Run", value_parser = clap::value_parser!(u32).range(50..=10_000_000))]
    logins: Option<u32>,
    /// The seed of all random streams.
    #[arg(long, value_name = "S", default_value = "1", help_heading = "Run")]
    seed: u64,
    /// Steps to simulate at once [default: one per core].
    #[arg(long, value_name = "N", help_heading = "Run")]
    jobs: Option<std::num::NonZeroUsize>,
    /// The folder for report.html and plan.json.
    #[arg(long, value_name = "DIR", help_heading = "Run")]
    out: Option<PathBuf>,
}

/// Reads `99 % within 200 ms`.
fn parse_login_target(text: &str) -> Result<LoginTimeTarget, String> {
    let wrong = || format!("\"{text}\" is not a target such as \"99 % within 200 ms\"");
    let (share, time) = text.split_once(" within ").ok_or_else(wrong)?;
    let share = Percentage::parse(share.trim())?;
    if !(share.get() > 0.0 && share.get() < 1.0) {
        return Err("the share of a target must be above 0 % and below 100 %".to_owned());
    }
    Ok(LoginTimeTarget { share, within: TimeSpan::parse(time.trim())? })
}

/// A bar, and the user's interrupt.
struct PlanProgress {
    bar: indicatif::ProgressBar,
    interrupted: Arc<AtomicBool>,
}

impl PlanObserver for PlanProgress {
    fn on_progress(&self, steps: usize, of: usize) {
        self.bar.set_length(of as u64);
        self.bar.set_position(steps as u64);
    }
    fn is_interrupted(&self) -> bool {
        self.interrupted.load(Ordering::Relaxed)
    }
}

pub(crate) fn run_plan(output: &ConsoleOutput, options: &PlanArgs) -> Result<(), CommandFailure> {
    let file = merge_options(options)?;
    let available = || std::thread::available_parallelism().map_or(1, usize::from);
    let effort = PlanSimulationSettings {
        quick: options.quick,
        replications: options.replications,
        logins: options.logins,
        seed: options.seed,
        jobs: options.jobs.map_or_else(available, usize::from),
    };
    let prepared =
        file.prepare_plan(&effort, env!("CARGO_PKG_VERSION")).map_err(CommandFailure::usage_error)?;
    let PreparedPlan { settings, deployment, profile, summary: about, assumptions, version_note } = prepared;
    if let Some(note) = &version_note {
        output.print_note(note);
    }
    let told = start_progress(output)?;
    let answer = usher_plan::plan_deployment(&deployment, &profile, &settings, &told);
    told.bar.finish_and_clear();
    let answer = answer.map_err(|error| match error {
        PlanError::World(_) => CommandFailure::usage_error(error),
        PlanError::NoLoginAccepted(_) | PlanError::Failing { .. } => CommandFailure::runtime_error(error),
        PlanError::Interrupted => CommandFailure::interrupted(error),
    })?;
    let json = usher_plan::answer_json(&answer, &settings, &assumptions);
    if let Some(folder) = &options.out {
        let report = usher_plan::build_report(&answer, &settings, &about, assumptions);
        std::fs::create_dir_all(folder)
            .map_err(|e| CommandFailure::runtime_error(format!("cannot write {}: {e}", folder.display())))?;
        let path = report.write_files(folder).map_err(CommandFailure::runtime_error)?;
        let text = serde_json::to_string_pretty(&json).map_err(CommandFailure::runtime_error)?;
        std::fs::write(folder.join("plan.json"), text + "\n")
            .map_err(|e| CommandFailure::runtime_error(format!("cannot write {}: {e}", folder.display())))?;
        output.print_note(&format!("the report is {}", path.display()));
    }
    if output.json {
        output.print_json(&json)
    } else {
        output.print_text(&usher_plan::answer_text(&answer, &settings, &format_columns))
    }
}

fn start_progress(output: &ConsoleOutput) -> Result<PlanProgress, CommandFailure> {
    let interrupted = Arc::new(AtomicBool::new(false));
    for signal in [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM] {
        signal_hook::flag::register_conditional_shutdown(signal, INTERRUPTED.into(), interrupted.clone())
            .and_then(|_| signal_hook::flag::register(signal, interrupted.clone()))
            .map_err(|e| CommandFailure::runtime_error(format!("cannot handle interrupts: {e}")))?;
    }
    let bar = indicatif::ProgressBar::new(1);
    bar.set_draw_target(match output.progress {
        true => indicatif::ProgressDrawTarget::stderr(),
        false => indicatif::ProgressDrawTarget::hidden(),
    });
    if let Ok(style) = indicatif::ProgressStyle::with_template("{elapsed_precise} {bar:40} {pos}/{len} steps")
    {
        bar.set_style(style);
    }
    Ok(PlanProgress { bar, interrupted })
}

/// The file, with what the options say in its place.
fn merge_options(options: &PlanArgs) -> Result<PlanFile, CommandFailure> {
    let mut file = match &options.file {
        None => PlanFile::default(),
        Some(path) => PlanFile::read_file(path).map_err(CommandFailure::usage_error)?,
    };
    let take = |to: &mut Option<PathBuf>, from: &Option<PathBuf>| {
        if let Some(from) = from {
            *to = Some(from.clone());
        }
    };
    take(&mut file.profile, &options.profile);
    take(&mut file.config, &options.config);
    take(&mut file.certificate, &options.certificate);
    take(&mut file.key, &options.key);
    take(&mut file.ca, &options.ca);
    if options.rate.is_some() || options.within.is_some() || options.reauthentication.is_some() {
        file.demand =
            LoginDemand { users: file.demand.users, peak: file.demand.peak, ..LoginDemand::default() };
    }
    let count = |n: u32, what: &str| match n {
        0 => Err(CommandFailure::usage_error(format!("{what} 0: the least number is 1"))),
        n => Ok(PositiveCount::from_u32(n)),
    };
    if let Some(users) = options.users {
        file.demand.users = Some(count(users, "--users")?);
    }
    if let Some(rate) = options.rate {
        let rate = EventRate::parse(&format!("{rate} /s"))
            .map_err(|e| CommandFailure::usage_error(format!("--rate: {e}")))?;
        file.demand.rate = Some(rate);
    }
    file.demand.within = options.within.or(file.demand.within);
    file.demand.reauthentication = options.reauthentication.or(file.demand.reauthentication);
    file.demand.peak = options.peak.or(file.demand.peak);
    if !options.mix.is_empty() {
        file.mix = usher_config::OrderedMap::default();
        options.mix.iter().for_each(|part| file.mix.insert(part.method.clone(), part.share));
    }
    file.target = options.target.or(file.target);
    if let Some(cores) = options.cores {
        file.cores = Some(count(cores, "--cores")?);
    }
    if options.scale.is_some() {
        (file.scale, file.reference) = (options.scale, None);
    }
    file.any_version |= options.any_version;
    file.store_distance = options.store_distance.or(file.store_distance);
    file.round_trip = options.round_trip.or(file.round_trip);
    file.loss = options.loss.or(file.loss);
    Ok(file)
}
