//! Runs packetdrill scripts: files, or all below folders. Prints a line of JSON for each, and a count to standard
//! error.

use std::collections::BTreeMap;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc;
use usher_packetdrill::{ScriptOutcome, ScriptVerdict, judge_script};

const USAGE: &str = "Usage: usher-packetdrill [--jobs N] [--strict] FILE_OR_FOLDER...

Runs packetdrill scripts against the simulator's TCP and SCTP in virtual time. Of a folder, all files *.pkt below it.
Prints for each script one line of JSON, in the order of their names: {\"file\", \"result\", \"line\", \"why\"}, with result
one of pass, diverges, unsupported, suspect; line and why are null and empty where it passes. Counts go to standard
error.

  --jobs N   run N scripts at a time (as many as there are processors)
  --strict   fail where a script does not pass
  --help     show this

Exit status: 0; 1 where a path cannot be read, or with --strict a script does not pass; 2 for a wrong command line.";

struct CommandLine {
    jobs: usize,
    strict: bool,
    paths: Vec<String>,
}

/// Parses the command line. `None` for help.
fn parse_command_line(args: impl Iterator<Item = String>) -> Result<Option<CommandLine>, String> {
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    let mut asked = CommandLine { jobs: processors, strict: false, paths: Vec::new() };
    let mut args = args;
    while let Some(arg) = args.next() {
        match arg.as_str() {
            "--help" | "-h" => return Ok(None),
            "--strict" => asked.strict = true,
            "--jobs" => {
                let n = args.next().ok_or("--jobs: a number is missing")?;
                let good = n.parse().ok().filter(|n| (1..=256).contains(n));
                asked.jobs = good.ok_or(format!("--jobs: {n} is no number from 1 to 256"))?;
            }
            option if option.starts_with('-') => return Err(format!("{option}: no such option")),
            _ => asked.paths.push(arg),
        }
    }
    if asked.paths.is_empty() {
        return Err("no file or folder is given".to_owned());
    }
    Ok(Some(asked))
}

fn main() -> ExitCode {
    let asked = match parse_command_line(std::env::args().skip(1)) {
        Ok(Some(asked)) => asked,
        Ok(None) => {
            println!("{USAGE}");
            return ExitCode::SUCCESS;
        }
        Err(why) => {
            eprintln!("{why}; usher-packetdrill --help says how it is used");
            return ExitCode::from(2);
        }
    };
    let mut files = Vec::new();
    let mut failed = false;
    for path in &asked.paths {
        let before = files.len();
        let found = collect_scripts(Path::new(path), true, &mut files);
        if let Err(why) = found.and_then(|()| match files.len() == before {
            true => Err(format!("{path}: no file *.pkt is below it")),
            false => Ok(()),
        }) {
            eprintln!("{why}");
            failed = true;
        }
    }
    files.sort();
    files.dedup();
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    let judged = judge_files(&files, asked.jobs, |file, outcome| {
        let word = match outcome {
            Ok(outcome) => outcome.verdict.label(),
            Err(why) => {
                eprintln!("{why}");
                failed = true;
                return Ok(());
            }
        };
        *counts.entry(word).or_default() += 1;
        let Ok(ScriptOutcome { line, why, .. }) = outcome else { return Ok(()) };
        let text = serde_json::json!({ "file": file, "result": word, "line": line, "why": why });
        writeln!(std::io::stdout(), "{text}")
    });
    let passed = counts.get(ScriptVerdict::Pass.label()).copied().unwrap_or(0);
    let words: Vec<String> = counts.iter().map(|(word, n)| format!("{n} {word}")).collect();
    eprintln!("{passed} of {} pass: {}", files.len(), words.join(", "));
    if let Err(why) = judged {
        eprintln!("standard output takes no more: {why}");
        failed = true;
    }
    failed |= asked.strict && passed < files.len();
    if failed { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}

/// Judges every file, `jobs` at a time, and reports each in order. Stops if `tell` fails.
fn judge_files(
    files: &[PathBuf],
    jobs: usize,
    mut tell: impl FnMut(&str, &Result<ScriptOutcome, String>) -> std::io::Result<()>,
) -> std::io::Result<()> {
    let next = AtomicUsize::new(0);
    let (told, heard) = mpsc::channel();
    std::thread::scope(|scope| {
        for _ in 0..jobs.min(files.len()) {
            let (told, next) = (told.clone(), &next);
            scope.spawn(move || {
                while let Some((i, file)) = {
                    let i = next.fetch_add(1, Ordering::Relaxed);
                    files.get(i).map(|file| (i, file))
                } {
                    if told.send((i, judge_file(file))).is_err() {
                        return;
                    }
                }
            });
        }
        drop(told);
        let mut waiting = BTreeMap::new();
        let mut due = 0;
        for (i, outcome) in heard {
            waiting.insert(i, outcome);
            while let Some(outcome) = waiting.remove(&due) {
                tell(&files[due].display().to_string(), &outcome)?;
                due += 1;
            }
        }
        Ok(())
    })
}

fn judge_file(file: &Path) -> Result<ScriptOutcome, String> {
    let bytes = std::fs::read(file).map_err(|why| format!("{}: cannot be read: {why}", file.display()))?;
    let text = String::from_utf8_lossy(&bytes);
    // A panic of the simulator is reported for this script and does not stop the others.
    Ok(std::panic::catch_unwind(|| judge_script(&text)).unwrap_or_else(|_| ScriptOutcome {
        verdict: ScriptVerdict::Diverges,
        line: None,
        why: "the simulator panics; standard error says where".to_owned(),
    }))
}

/// Collects the scripts at a path: the file itself, or all *.pkt below a folder.
fn collect_scripts(path: &Path, named: bool, files: &mut Vec<PathBuf>) -> Result<(), String> {
    let told = |why: std::io::Error| format!("{}: cannot be read: {why}", path.display());
    if path.is_dir() {
        for entry in std::fs::read_dir(path).map_err(told)? {
            collect_scripts(&entry.map_err(told)?.path(), false, files)?;
        }
    } else if named || path.extension().is_some_and(|e| e == "pkt") {
        std::fs::metadata(path).map_err(told)?;
        files.push(path.to_owned());
    }
    Ok(())
}
