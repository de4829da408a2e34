//! `usher plan`: how many servers.

use crate::load::Part;
use crate::output::{Failure, INTERRUPTED, Output, columns};
use clap::Args;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use usher_config::disk::Disk;
use usher_config::units::{Count, Rate, Share, Time};
use usher_core::WallTime;
use usher_crypto::tls::{Credentials, Roots};
use usher_crypto::x509::Information;
use usher_plan::{Demand, Deployment, File, Method, Parts, PlanError, Settings, Target, TlsFor, Watch};
use usher_profile::Scale;

/// Replications and logins in a step where nothing is said; with TLS, whose handshakes are computed, and without.
const REPLICATIONS: u32 = 4;
const LOGINS: u32 = 4_000;
const TLS_LOGINS: u32 = 600;
/// A first look has so many times fewer.
const QUICK: u32 = 4;

#[derive(Args, Debug)]
pub(crate) struct Plan {
    /// The plan as a file, whose keys are the options'; options stand against it.
    #[arg(value_name = "FILE")]
    file: Option<PathBuf>,
    /// What a login costs, as `usher load --calibrate` wrote it.
    #[arg(long, value_name = "FILE")]
    profile: Option<PathBuf>,
    /// The configuration of the server that is to be deployed: its methods, store and limits [default: one of the plan's own].
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Methods by their shares, by the profile's names: eap-tls=60,peap-mschapv2=30,pap=10.
    #[arg(long, value_name = "METHOD=SHARE,...", value_delimiter = ',', help_heading = "Demand")]
    mix: Vec<Part>,
    /// How many users there are.
    #[arg(long, value_name = "N", help_heading = "Demand")]
    users: Option<u32>,
    /// All of them log in once within this time.
    #[arg(long, value_name = "TIME", value_parser = Time::parse, help_heading = "Demand", conflicts_with_all = ["reauthentication", "rate"])]
    within: Option<Time>,
    /// Each logs in again after this time.
    #[arg(long, value_name = "TIME", value_parser = Time::parse, help_heading = "Demand", conflicts_with = "rate")]
    reauthentication: Option<Time>,
    /// Logins a second.
    #[arg(long, value_name = "R", help_heading = "Demand")]
    rate: Option<f64>,
    /// At the peak so many times as many as on average [default: 1].
    #[arg(long, value_name = "FACTOR", help_heading = "Demand")]
    peak: Option<f64>,
    /// What is to be met: '99 % within 200 ms' [default: 99 % within 100 ms].
    #[arg(long, value_name = "SHARE within TIME", value_parser = target, help_heading = "Target")]
    target: Option<Target>,
    /// Cores of each server [default: 1].
    #[arg(long, value_name = "N", help_heading = "Servers")]
    cores: Option<u32>,
    /// So many times as long as on the profile's machine work takes [default: 1].
    #[arg(long, value_name = "FACTOR", help_heading = "Servers")]
    scale: Option<f64>,
    /// How far away the store is, there and back, beyond where it was when the profile was measured.
    #[arg(long, value_name = "TIME", value_parser = Time::parse, help_heading = "Servers")]
    store_distance: Option<Time>,
    /// How far away access servers are, there and back [default: 0 s].
    #[arg(long, value_name = "TIME", value_parser = Time::parse, help_heading = "Network")]
    round_trip: Option<Time>,
    /// Share of packets lost, each way [default: 0 %].
    #[arg(long, value_name = "SHARE", value_parser = Share::parse, help_heading = "Network")]
    loss: Option<Share>,
    /// PEM: the certificate of a test user whom the configuration knows, with those above it.
    #[arg(long, value_name = "FILE", help_heading = "TLS", requires = "key")]
    certificate: Option<PathBuf>,
    /// PEM: its key.
    #[arg(long, value_name = "FILE", help_heading = "TLS", requires = "certificate")]
    key: Option<PathBuf>,
    /// PEM: the authorities of the server's certificate.
    #[arg(long, value_name = "FILE", help_heading = "TLS")]
    ca: Option<PathBuf>,
    /// For a first look: fewer logins, two replications.
    #[arg(long, help_heading = "Run")]
    quick: bool,
    /// How often everything is simulated, with other chance [default: 4].
    #[arg(long, value_name = "N", help_heading = "Run", value_parser = clap::value_parser!(u32).range(2..=1000))]
    replications: Option<u32>,
    /// About how many logins one step has [default: 4000, with TLS 600].
    #[arg(long, value_name = "N", help_heading = "Run", value_parser = clap::value_parser!(u32).range(50..=10_000_000))]
    logins: Option<u32>,
    /// The seed of all chance.
    #[arg(long, value_name = "S", default_value = "1", help_heading = "Run")]
    seed: u64,
    /// Steps that are simulated at once [default: one per core].
    #[arg(long, value_name = "N", help_heading = "Run")]
    jobs: Option<std::num::NonZeroUsize>,
    /// Write report.html and plan.json here.
    #[arg(long, value_name = "DIR", help_heading = "Run")]
    out: Option<PathBuf>,
}

/// Reads `99 % within 200 ms`.
fn target(text: &str) -> Result<Target, String> {
    let wrong = || format!("\"{text}\" is no target, such as \"99 % within 200 ms\"");
    let (share, time) = text.split_once(" within ").ok_or_else(wrong)?;
    let share = Share::parse(share.trim())?;
    if !(share.get() > 0.0 && share.get() < 1.0) {
        return Err("a target's share is between 0 % and 100 %, both excluded".to_owned());
    }
    Ok(Target { share, within: Time::parse(time.trim())? })
}

/// A bar, and the user's interrupt.
struct Told {
    bar: indicatif::ProgressBar,
    interrupted: Arc<AtomicBool>,
}

impl Watch for Told {
    fn done(&self, steps: usize, of: usize) {
        self.bar.set_length(of as u64);
        self.bar.set_position(steps as u64);
    }
    fn interrupted(&self) -> bool {
        self.interrupted.load(Ordering::Relaxed)
    }
}

pub(crate) fn plan(output: &Output, options: &Plan) -> Result<(), Failure> {
    let file = merged(options)?;
    let (settings, deployment, profile, assumptions) = prepared(options, &file)?;
    let told = told(output)?;
    let answer = usher_plan::answer(&deployment, &profile, &settings, &told);
    told.bar.finish_and_clear();
    let answer = answer.map_err(|error| match error {
        PlanError::World(_) => Failure::usage(error),
        PlanError::Nobody(_) => Failure::failed(error),
        PlanError::Interrupted => Failure::interrupted(error),
    })?;
    let json = usher_plan::json(&answer, &settings);
    if let Some(folder) = &options.out {
        let about = format!(
            "Logins by {} at a server of {}, on a processor that the profile of {} charges ({}, {}).",
            deployment.methods.iter().map(|m| m.name.as_str()).collect::<Vec<_>>().join(", "),
            match file.config.as_ref() {
                Some(config) => config.display().to_string(),
                None => "the plan's own configuration".to_owned(),
            },
            profile.date,
            profile.machine.processor,
            profile.machine.kernel
        );
        let report = usher_plan::report(&answer, &settings, &about, assumptions);
        std::fs::create_dir_all(folder).map_err(|e| Failure::failed(format!("{}: {e}", folder.display())))?;
        let path = report.write(folder).map_err(Failure::failed)?;
        let text = serde_json::to_string_pretty(&json).map_err(Failure::failed)?;
        std::fs::write(folder.join("plan.json"), text + "\n")
            .map_err(|e| Failure::failed(format!("{}: {e}", folder.display())))?;
        output.note(&format!("the report is {}", path.display()));
    }
    if output.json {
        output.value(&json)
    } else {
        output.text(&usher_plan::text(&answer, &settings, &columns))
    }
}

fn told(output: &Output) -> Result<Told, Failure> {
    let interrupted = Arc::new(AtomicBool::new(false));
    for signal in [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM] {
        signal_hook::flag::register_conditional_shutdown(signal, INTERRUPTED.into(), interrupted.clone())
            .and_then(|_| signal_hook::flag::register(signal, interrupted.clone()))
            .map_err(|e| Failure::failed(format!("cannot listen for interrupts: {e}")))?;
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
    Ok(Told { bar, interrupted })
}

/// The file, with what the options say in its place.
fn merged(options: &Plan) -> Result<File, Failure> {
    let mut file = match &options.file {
        None => File::default(),
        Some(path) => {
            let text = usher_config::disk::text(path).map_err(Failure::usage)?;
            let mut file =
                usher_plan::parse(&path.display().to_string(), &text, &Disk).map_err(Failure::usage)?;
            let folder = path.parent().unwrap_or(Path::new(""));
            for named in
                [&mut file.profile, &mut file.config, &mut file.certificate, &mut file.key, &mut file.ca]
            {
                *named = named.take().map(|named| folder.join(named));
            }
            file
        }
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
        file.demand = Demand { users: file.demand.users, peak: file.demand.peak, ..Demand::default() };
    }
    let count = |n: u32, what: &str| match n {
        0 => Err(Failure::usage(format!("{what} 0: one or more are needed"))),
        n => Ok(Count::of(n)),
    };
    if let Some(users) = options.users {
        file.demand.users = Some(count(users, "--users")?);
    }
    if let Some(rate) = options.rate {
        let rate = Rate::parse(&format!("{rate} /s")).map_err(|e| Failure::usage(format!("--rate: {e}")))?;
        file.demand.rate = Some(rate);
    }
    file.demand.within = options.within.or(file.demand.within);
    file.demand.reauthentication = options.reauthentication.or(file.demand.reauthentication);
    file.demand.peak = options.peak.or(file.demand.peak);
    if !options.mix.is_empty() {
        file.mix = usher_config::Ordered::default();
        options.mix.iter().for_each(|part| file.mix.insert(part.method.clone(), part.share));
    }
    file.target = options.target.or(file.target);
    if let Some(cores) = options.cores {
        file.cores = Some(count(cores, "--cores")?);
    }
    if options.scale.is_some() {
        (file.scale, file.reference) = (options.scale, None);
    }
    file.store_distance = options.store_distance.or(file.store_distance);
    file.round_trip = options.round_trip.or(file.round_trip);
    file.loss = options.loss.or(file.loss);
    Ok(file)
}

fn prepared(
    options: &Plan,
    file: &File,
) -> Result<(Settings, Deployment, usher_profile::File, Vec<String>), Failure> {
    let demand = file.demand.rate().map_err(Failure::usage)?;
    let Some(path) = &file.profile else {
        return Err(Failure::usage(
            "what does a login cost? Give --profile FILE, which usher load --calibrate writes",
        ));
    };
    let text = usher_config::disk::text(path).map_err(Failure::usage)?;
    let names: Vec<&str> = usher_scenario::work::all().map(usher_core::WorkLabel::name).collect();
    let profile =
        usher_profile::parse(&path.display().to_string(), &text, &Disk, &names).map_err(Failure::usage)?;
    if file.mix.is_empty() {
        return Err(Failure::usage(format!(
            "by which methods do users log in? Give --mix METHOD=SHARE,...; the profile has {}",
            profile.methods.names().collect::<Vec<_>>().join(", ")
        )));
    }
    let methods: Vec<Method> =
        file.mix.iter().map(|(name, weight)| Method { name: name.to_owned(), weight: *weight }).collect();
    let config = match &file.config {
        Some(path) => Some(usher_daemon::config::load(path).map_err(Failure::usage)?),
        None => None,
    };
    let has_tls = methods.iter().any(Method::has_tls);
    let tls = match (&file.certificate, &file.key, &file.ca) {
        (None, None, None) if config.is_none() || !has_tls => None,
        (certificate, key, Some(ca)) => Some(tls(certificate.as_deref().zip(key.as_deref()), ca)?),
        (.., None) => {
            return Err(Failure::usage(
                "the methods have TLS: give --ca, the authorities of the server's certificate, and for EAP-TLS --certificate and \
                 --key of one user",
            ));
        }
    };
    let scale = match (file.scale, &file.reference) {
        (Some(_), Some(_)) => {
            return Err(Failure::usage("scale and reference say the same in two ways: leave one out"));
        }
        (Some(scale), None) if scale.is_finite() && scale > 0.0 => Scale::all(scale),
        (Some(_), None) => return Err(Failure::usage("the scale must be above 0")),
        (None, Some(reference)) => Scale::to(&profile, reference),
        (None, None) => Scale::all(1.0),
    };
    let cores = file.cores.unwrap_or(Count::ONE);
    let unix = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    let parts = Parts {
        config,
        profile: &profile,
        program: env!("CARGO_PKG_VERSION"),
        methods,
        users: file.demand.users.map_or(usize::MAX, |n| n.get() as usize),
        cores,
        scale,
        distance: file.store_distance.unwrap_or_default(),
        round_trip: file.round_trip.unwrap_or_default(),
        loss: file.loss.map_or(0.0, Share::get),
        tls,
        now: WallTime::from_unix_secs(unix.as_secs()),
    };
    let assumptions = assumptions(&parts);
    let deployment =
        Deployment::new(parts).map_err(|e| Failure::usage(format!("{}: {e}", path.display())))?;
    let usual = if has_tls { TLS_LOGINS } else { LOGINS };
    let logins = options.logins.unwrap_or(if options.quick { usual / QUICK } else { usual });
    let available = || std::thread::available_parallelism().map_or(1, usize::from);
    let target = file.target.unwrap_or_default();
    let settings = Settings {
        demand,
        share: target.share.get(),
        within: target.within.get().as_secs_f64(),
        replications: options.replications.unwrap_or(if options.quick { 2 } else { REPLICATIONS }),
        logins,
        seed: options.seed,
        jobs: options.jobs.map_or_else(available, usize::from),
    };
    Ok((settings, deployment, profile, assumptions))
}

/// What a plan takes for granted.
fn assumptions(parts: &Parts<'_>) -> Vec<String> {
    vec![
        "Logins come independently of each other (exponential gaps) and are spread evenly over the servers; an EAP login stays with \
         its server."
            .to_owned(),
        format!(
            "The cores of a server share one queue ({} of them); the shards of a real one each have their own, so that with several \
             the real delay is a little more.",
            parts.cores.get()
        ),
        "A server has this processor for itself; accounting, logs beyond those of the calibration and other programs are not in it."
            .to_owned(),
        format!(
            "The profile was measured on {} with {} on {}.",
            parts.profile.machine.processor, parts.profile.machine.kernel, parts.profile.date
        ),
    ]
}

fn tls(own: Option<(&Path, &Path)>, ca: &Path) -> Result<TlsFor, Failure> {
    let read =
        |path: &Path| std::fs::read(path).map_err(|e| Failure::usage(format!("{}: {e}", path.display())));
    let roots = Roots::from_pem(&read(ca)?).map_err(|e| Failure::usage(format!("{}: {e}", ca.display())))?;
    let Some((certificate, key)) = own else { return Ok(TlsFor { credentials: None, roots, name: None }) };
    let credentials = Credentials::from_pem(&read(certificate)?, &read(key)?)
        .map_err(|e| Failure::usage(format!("{}: {e}", certificate.display())))?;
    let names = Information::of_der(credentials.leaf()).map(|said| said.names).unwrap_or_default();
    let name = names.iter().find(|name| name.contains('@')).or(names.first()).cloned();
    Ok(TlsFor { credentials: Some(credentials), roots, name })
}
