//! Where a process's CPU time goes, by library: samples of its stacks' tops by Linux's perf.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use usher_config::Ordered;
use usher_config::units::Share;
use usher_profile::Library;

/// Samples a second of CPU time; no multiple of a timer's rate.
const FREQUENCY: &str = "997";

/// Runs something while the process is sampled. `None` where perf is not there, may not look, or saw nothing.
///
/// # Errors
/// Those of what is run.
pub(super) fn sampled<T, E>(pid: u32, run: impl FnOnce() -> Result<T, E>) -> Result<Option<Library>, E> {
    let Some(event) = event() else { return run().map(|_| None) };
    let folder = std::env::temp_dir().join(format!("usher-calibrate-{}", std::process::id()));
    if std::fs::create_dir_all(&folder).is_err() {
        return run().map(|_| None);
    }
    let data = folder.join("perf.data");
    let recorder = record(event, pid, &data);
    let result = run();
    let library = recorder.and_then(|recorder| {
        stop(recorder);
        report(&data, event)
    });
    // What is left of it is the system's to clean up.
    let _ = std::fs::remove_dir_all(&folder);
    result.map(|_| library)
}

/// What can be sampled: a counter of the processor, or else the time of the kernel's clock.
fn event() -> Option<&'static str> {
    ["cycles", "cpu-clock"].into_iter().find(|event| {
        let tried = Command::new("perf").args(["stat", "-x,", "-e", event, "true"]).output();
        tried.is_ok_and(|out| out.status.success() && !String::from_utf8_lossy(&out.stderr).contains("<not "))
    })
}

fn record(event: &str, pid: u32, data: &Path) -> Option<Child> {
    Command::new("perf")
        .args(["record", "-q", "-e", event, "-F", FREQUENCY, "-p", &pid.to_string(), "-o"])
        .arg(data)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .ok()
}

/// perf writes its file when it is interrupted.
fn stop(mut recorder: Child) {
    let interrupted = Command::new("kill").args(["-INT", &recorder.id().to_string()]).status();
    if !interrupted.is_ok_and(|status| status.success()) {
        // It has ended by itself, or nothing can end it softly.
        let _ = recorder.kill();
    }
    let _ = recorder.wait();
}

fn report(data: &Path, event: &str) -> Option<Library> {
    let said = Command::new("perf")
        .args([
            "report",
            "--stdio",
            "-q",
            "-n",
            "--sort",
            "dso,symbol",
            "-F",
            "sample,dso,symbol",
            "-t",
            "|",
            "-i",
        ])
        .arg(data)
        .stdin(Stdio::null())
        .stderr(Stdio::null())
        .output()
        .ok()?;
    parse(&String::from_utf8_lossy(&said.stdout), event)
}

/// Lines `SAMPLES|LIBRARY|SYMBOL`.
fn parse(text: &str, event: &str) -> Option<Library> {
    let mut all: BTreeMap<&str, u64> = BTreeMap::new();
    for line in text.lines().filter(|line| !line.starts_with('#')) {
        let mut fields = line.split('|').map(str::trim);
        let (Some(Ok(n)), Some(object), Some(symbol)) =
            (fields.next().map(str::parse::<u64>), fields.next(), fields.next())
        else {
            continue;
        };
        *all.entry(library(object, symbol)).or_default() += n;
    }
    let samples: u64 = all.values().sum();
    let mut shares = Ordered::default();
    let mut sorted: Vec<(&str, u64)> = all.into_iter().collect();
    sorted.sort_by_key(|(name, n)| (std::cmp::Reverse(*n), *name));
    for (name, n) in sorted {
        let share = Share::parse(&format!("{:.4} %", n as f64 * 100.0 / samples as f64)).ok()?;
        shares.insert(name.to_owned(), share);
    }
    (samples > 0).then(|| Library { by: event.to_owned(), samples, shares })
}

/// The library of a symbol: the program is linked from all of them into one file.
fn library(object: &str, symbol: &str) -> &'static str {
    let symbol = symbol.trim_start_matches("[k] ").trim_start_matches("[.] ").trim_start_matches('<');
    let begins = |names: &[&str]| names.iter().any(|name| symbol.starts_with(name));
    if object.contains("kernel") || object.contains("vmlinux") || object.ends_with(".ko") {
        "kernel"
    } else if symbol.starts_with("aws_lc") || symbol.contains("aws_lc_") {
        "AWS-LC"
    } else if begins(&["rustls", "webpki", "x509_parser", "asn1"]) {
        "TLS and certificates"
    } else if begins(&["mi_", "_mi_"]) {
        "mimalloc"
    } else if begins(&["tokio", "mio"]) {
        "tokio"
    } else if begins(&["md5", "md4", "sha1", "des", "hmac", "digest", "argon2", "blake2"]) {
        "RustCrypto"
    } else if begins(&["sqlite3", "rusqlite", "tokio_postgres", "postgres", "usher_store"]) {
        "store"
    } else if begins(&["usher"]) || symbol.contains("usher_") {
        "usher"
    } else if object.starts_with("libc") || object.starts_with("ld-") {
        "libc"
    } else {
        "other"
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samples_are_divided_by_library() {
        let text = "  500|[kernel.kallsyms]|[k] do_syscall_64\n  250|usher|[.] aws_lc_0_29_0_bn_mul4x_mont\n\
            # a comment\n  200|usher|[.] <usher_aaa::server::AaaServer as usher_core::Machine>::handle\n   50|libc.so.6|[.] memcpy\n";
        let library = parse(text, "cpu-clock").unwrap();
        let shares: Vec<(&str, f64)> =
            library.shares.iter().map(|(name, share)| (name, share.get())).collect();
        assert_eq!(shares, [("kernel", 0.5), ("AWS-LC", 0.25), ("usher", 0.2), ("libc", 0.05)]);
        assert_eq!((library.samples, library.by.as_str()), (1000, "cpu-clock"));
        assert_eq!(parse("", "cycles"), None);
    }
}
