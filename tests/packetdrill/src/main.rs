//! Runs packetdrill scripts: files, or folders with all below them. One line of JSON for each, then a count to
//! standard error.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use usher_packetdrill::{Verdict, judge};

const USAGE: &str = "Usage: usher-packetdrill FILE_OR_FOLDER...

Runs packetdrill scripts against the simulator's TCP and SCTP in virtual time. Of a folder, all files *.pkt
below it. Prints for each script one line of JSON: {\"file\", \"result\", \"line\", \"why\"}, with result one of
pass, diverges, unsupported, suspect. Fails where a path cannot be read, whatever the results.";

fn main() -> ExitCode {
    let paths: Vec<String> = std::env::args().skip(1).collect();
    if paths.is_empty() || paths.iter().any(|p| p == "--help" || p == "-h") {
        println!("{USAGE}");
        return if paths.is_empty() { ExitCode::FAILURE } else { ExitCode::SUCCESS };
    }
    let mut files = Vec::new();
    let mut failed = false;
    for path in &paths {
        if let Err(why) = collect(Path::new(path), true, &mut files) {
            eprintln!("{why}");
            failed = true;
        }
    }
    files.sort();
    let mut counts: BTreeMap<&str, u32> = BTreeMap::new();
    for file in &files {
        let name = file.display().to_string();
        let text = match std::fs::read(file) {
            Ok(bytes) => String::from_utf8_lossy(&bytes).into_owned(),
            Err(why) => {
                eprintln!("{name}: cannot be read: {why}");
                failed = true;
                continue;
            }
        };
        let outcome = judge(&text);
        let word = outcome.verdict.word();
        *counts.entry(word).or_default() += 1;
        let line =
            serde_json::json!({ "file": name, "result": word, "line": outcome.line, "why": outcome.why });
        println!("{line}");
    }
    let passed = counts.get(Verdict::Pass.word()).copied().unwrap_or(0);
    let words: Vec<String> = counts.iter().map(|(word, n)| format!("{n} {word}")).collect();
    eprintln!("{passed} of {} pass: {}", files.len(), words.join(", "));
    if failed { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}

/// The scripts at a path: itself, or below it what is named *.pkt.
fn collect(path: &Path, named: bool, files: &mut Vec<PathBuf>) -> Result<(), String> {
    let told = |why: std::io::Error| format!("{}: cannot be read: {why}", path.display());
    if path.is_dir() {
        for entry in std::fs::read_dir(path).map_err(told)? {
            collect(&entry.map_err(told)?.path(), false, files)?;
        }
    } else if named || path.extension().is_some_and(|e| e == "pkt") {
        std::fs::metadata(path).map_err(told)?;
        files.push(path.to_owned());
    }
    Ok(())
}
