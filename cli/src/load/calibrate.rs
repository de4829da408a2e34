//! `usher load ... --calibrate FILE`: measures the cost of a login on our server and writes it as a profile.

use super::SilentLoadObserver;
use super::args::LoadArgs;
use super::build::PreparedLoad;
use crate::output::{CommandFailure, ConsoleOutput, format_columns};
use serde_json::json;
use std::io::IsTerminal;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use usher_aaa_config::model::StoreKind;
use usher_config::disk::LoadError;
use usher_config::units::PositiveCount;
use usher_core::WallTime;
use usher_crypto::signature::KeyKind;
use usher_crypto::tls::TlsCredentials;
use usher_ike::machine::LocalAuth;
use usher_load::calibrate::{
    CalibrateError, CalibratedServerKind, CalibrationConfig, calibrate_server, key_exchange,
};
use usher_load::{IkeConfig, LoadProtocolConfig, log_in_by_each_method};
use usher_profile::{ServerConfiguration, ServerProfile, StoreKind as ProfileStore};

/// Measures the costs and writes the profile.
pub(super) fn run_calibration(
    output: &ConsoleOutput,
    load: &LoadArgs,
    job: &PreparedLoad,
    to: &Path,
    interrupted: &Arc<AtomicBool>,
) -> Result<(), CommandFailure> {
    let calibration = build_calibration_config(load, job)?;
    if job.check {
        log_in_by_each_method(&job.plan, &mut SilentLoadObserver(interrupted))
            .map_err(|e| super::explain_run_error(&e))?;
    }
    let told = std::io::stderr().is_terminal() && output.progress;
    let mut progress = |what: &str| {
        if told {
            output.print_note(&format!("measuring {what}"));
        }
    };
    let measured =
        calibrate_server(&job.plan, &calibration, &mut SilentLoadObserver(interrupted), &mut progress);
    let file = measured.map_err(|error| match &error {
        CalibrateError::Run(error) => super::explain_run_error(error),
        _ => CommandFailure::runtime_error(error),
    })?;
    std::fs::write(to, usher_profile::format_profile(&file))
        .map_err(|e| CommandFailure::runtime_error(format!("cannot write {}: {e}", to.display())))?;
    if output.json {
        return output.print_json(&profile_to_json(&file, to));
    }
    output.print_text(&profile_to_text(&file, to))
}

fn build_calibration_config(
    load: &LoadArgs,
    job: &PreparedLoad,
) -> Result<CalibrationConfig, CommandFailure> {
    let Some(pid) = load.server_pid else {
        return Err(CommandFailure::usage_error("--calibrate needs --server-pid: the process to measure"));
    };
    let Some(path) = &load.server_config else {
        return Err(CommandFailure::usage_error(
            "--calibrate needs --server-config: the configuration file of the running server",
        ));
    };
    if job.addresses.iter().any(|a| !usher_load::is_own(a.ip())) {
        return Err(CommandFailure::usage_error(
            "--calibrate needs a server on this machine, to measure its CPU time",
        ));
    }
    let names = match job.methods.is_empty() {
        true => vec![job.method.clone()],
        false => job.methods.clone(),
    };
    let methods: Vec<String> = names.iter().map(|name| profile_name(job.command, name)).collect();
    if let LoadProtocolConfig::Ike(front) = &job.plan.load.front {
        return of_gateway(load, front, methods, (pid.get(), path));
    }
    let loaded = usher_aaa_daemon::config::load_config(path).map_err(CommandFailure::usage_error)?;
    let text =
        usher_config::disk::read_file_text(path).map_err(|e: LoadError| CommandFailure::usage_error(e))?;
    let Some(metrics) = loaded.file.metrics.listen else {
        return Err(CommandFailure::usage_error(format!(
            "{}: the server has no metrics, and --calibrate reads its work from them; add [metrics] with \
             listen = \"127.0.0.1:9812\", and restart the server",
            path.display()
        )));
    };
    if job.command == "mih" || names.iter().any(|name| name == "accounting") {
        return Err(CommandFailure::usage_error(
            "--calibrate measures only logins at an AAA server or an IKEv2 gateway",
        ));
    }
    let rsa = loaded.tls.as_ref().and_then(|tls| {
        let credentials = TlsCredentials::from_pem(&tls.certificate, tls.key.0.as_bytes()).ok()?;
        Some(credentials.is_rsa())
    });
    let users = &loaded.file.users;
    let (store, round_trips) = match users.store {
        StoreKind::Memory => (ProfileStore::Memory, None),
        StoreKind::Sqlite => (ProfileStore::Sqlite, None),
        StoreKind::Postgresql => {
            (ProfileStore::Postgresql, Some(PositiveCount::from_u32(usher_store::LOOKUP_ROUND_TRIPS)))
        }
    };
    Ok(CalibrationConfig {
        methods,
        pid: pid.get(),
        server: CalibratedServerKind::Aaa,
        metrics,
        configuration: ServerConfiguration {
            fingerprint: hex_fingerprint(&text),
            shards: PositiveCount::from_u32(loaded.file.shards.map_or_else(core_count, u32::from).max(1)),
            store,
            cached: users.cache_entries > 0 && users.cache_ttl.get() > usher_core::Duration::ZERO,
        },
        round_trips,
        rsa,
        key_exchange: None,
        measurement_time: load.calibrate_hold.0,
        libraries: !load.no_libraries,
        program: env!("CARGO_PKG_VERSION").to_owned(),
        date: today(),
    })
}

fn hex_fingerprint(text: &str) -> String {
    usher_crypto::fingerprint::sha256_fingerprint(text.as_bytes())
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect()
}

/// Today's date, as `2026-11-26`.
fn today() -> String {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    let date = usher_observe::manifest::format_rfc3339(WallTime::from_unix_secs(now.as_secs()));
    date.get(..10).unwrap_or(&date).to_owned()
}

/// Measures the cost of an IKE_SA on a gateway. The AAA server must be a separate process, which is not measured.
fn of_gateway(
    load: &LoadArgs,
    front: &IkeConfig,
    methods: Vec<String>,
    (pid, path): (u32, &Path),
) -> Result<CalibrationConfig, CommandFailure> {
    let loaded = usher_ike_daemon::load_config(Some(path)).map_err(CommandFailure::usage_error)?;
    let text =
        usher_config::disk::read_file_text(path).map_err(|e: LoadError| CommandFailure::usage_error(e))?;
    let Some(metrics) = loaded.file.listen.metrics else {
        return Err(CommandFailure::usage_error(format!(
            "{}: the gateway has no metrics, and --calibrate reads its work from them; add metrics = \
             \"127.0.0.1:9813\" to [listen], and restart the gateway",
            path.display()
        )));
    };
    if loaded.file.aaa.as_ref().is_some_and(|aaa| aaa.server.is_some()) {
        return Err(CommandFailure::usage_error(format!(
            "{}: [aaa] server runs in the gateway's process and adds to its CPU time; run usher aaa serve by \
             itself, and name it in [[aaa.radius]]",
            path.display()
        )));
    }
    let key = loaded.config.peers.iter().find_map(|peer| match peer.connection.local_auth {
        LocalAuth::Certificate { kind, .. } => Some(kind),
        _ => None,
    });
    Ok(CalibrationConfig {
        methods,
        pid,
        server: CalibratedServerKind::Gateway,
        metrics,
        configuration: ServerConfiguration {
            fingerprint: hex_fingerprint(&text),
            shards: PositiveCount::from_u32(u32::from(loaded.file.listen.shards)),
            store: ProfileStore::Memory,
            cached: false,
        },
        round_trips: None,
        rsa: key.map(|kind| kind == KeyKind::Rsa),
        key_exchange: key_exchange(&front.proposals),
        measurement_time: load.calibrate_hold.0,
        libraries: !load.no_libraries,
        program: env!("CARGO_PKG_VERSION").to_owned(),
        date: today(),
    })
}

/// The number of cores: a server's default number of shards.
fn core_count() -> u32 {
    std::thread::available_parallelism().map_or(1, |n| u32::try_from(n.get()).unwrap_or(1))
}

/// Returns the profile's name of a command's method: the name of `--mix` in `usher load eap`, with a prefix for
/// Diameter or IKEv2.
fn profile_name(command: &str, method: &str) -> String {
    match (command, method) {
        ("eap", "md5" | "gtc" | "mschapv2" | "tls") => format!("eap-{method}"),
        ("diameter", method) => format!("diameter-{method}"),
        ("ike", method) => {
            format!("ike-{}", profile_name("eap", method.strip_prefix("eap-").unwrap_or(method)))
        }
        (_, method) => method.to_owned(),
    }
}

fn profile_to_json(file: &ServerProfile, to: &Path) -> serde_json::Value {
    let methods: serde_json::Map<String, serde_json::Value> = file
        .methods
        .iter()
        .map(|(name, method)| {
            let value = json!({
                "server_us": method.server.total_seconds() * 1e6,
                "busy_us": file.busy_login_seconds(method) * 1e6,
                "accounted": method.accounted_cpu_fraction(),
                "received_messages": method.received.messages,
                "libraries_by": method.libraries.as_ref().map(|l| l.by.clone()),
            });
            (name.to_owned(), value)
        })
        .collect();
    let work: serde_json::Map<String, serde_json::Value> = file
        .work
        .iter()
        .map(|(label, cost)| {
            let within = file.within.get(label).map(|within| within.get().as_secs_f64() * 1e6);
            (label.to_owned(), json!({ "us": cost.total_seconds() * 1e6, "within_us": within }))
        })
        .collect();
    json!({
        "profile": to.display().to_string(),
        "program": file.program,
        "methods": methods,
        "work": work,
        "not_told_apart": file.uncosted_work_labels(),
    })
}

/// Formats the cost per unit of each kind of work, with its uncertainty.
fn format_work_costs(file: &ServerProfile) -> String {
    let us = |seconds: f64| format!("{:.2}", seconds * 1e6);
    let mut rows = vec![["work", "us a unit", "within us (95 %)"].map(str::to_owned).to_vec()];
    for (label, cost) in file.work.iter() {
        let within = file.within.get(label).map_or_else(String::new, |w| us(w.get().as_secs_f64()));
        rows.push(vec![label.to_owned(), us(cost.total_seconds()), within]);
    }
    let mut text = format_columns(&rows);
    let unpriced: Vec<&str> = file.uncosted_work_labels().into_iter().collect();
    if !unpriced.is_empty() {
        text += &format!(
            "\nwithout a cost of their own, since no load separates them from other work, which has their \
             cost: {}",
            unpriced.join(", ")
        );
    }
    let doubtful: Vec<&str> = file.work.names().filter(|label| file.is_work_cost_doubtful(label)).collect();
    if !doubtful.is_empty() {
        text += &format!(
            "\nunreliable: {}. The total cost of each measured method is right all the same. Do not predict \
             other methods from these costs",
            doubtful.join(", ")
        );
    }
    text
}

fn profile_to_text(file: &ServerProfile, to: &Path) -> String {
    let us = |seconds: f64| format!("{:.2}", seconds * 1e6);
    let mut rows = vec![
        ["method", "messages", "user us", "system us", "when busy us", "a core does at most", "accounted"]
            .map(str::to_owned)
            .to_vec(),
    ];
    for (name, method) in file.methods.iter() {
        rows.push(vec![
            name.to_owned(),
            format!("{:.1}", method.received.messages),
            us(method.server.user.get().as_secs_f64()),
            us(method.server.system.get().as_secs_f64()),
            us(file.busy_login_seconds(method)),
            format!("{:.0} /s", 1.0 / file.busy_login_seconds(method).max(1e-9)),
            method
                .accounted_cpu_fraction()
                .map_or_else(String::new, |share| format!("{:.0} %", share * 100.0)),
        ]);
    }
    let by = file.methods.iter().find_map(|(_, m)| m.libraries.as_ref()).map_or_else(
        || "The CPU time was not divided among libraries: perf is missing or not permitted.".to_owned(),
        |libraries| match libraries.by.as_str() {
            "cycles" => {
                "The CPU time was divided among libraries by samples of the processor's cycle counter."
                    .to_owned()
            }
            _ => "The CPU time was divided among libraries by samples of the kernel's clock: this machine \
                  has no hardware counter."
                .to_owned(),
        },
    );
    format!("{}\n{}\n{by}\nthe profile is {}\n", format_columns(&rows), format_work_costs(file), to.display())
}
