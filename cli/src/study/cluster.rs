//! `usher study run NAME --backend`: replications by a cluster of Ray's or Dask's, which the Python package `usher` asks.

use crate::args::{Engine, Run};
use crate::output::{Failure, Output};
use serde_json::Value;
use std::process::{Command, Stdio};
use usher_scenario::founding;

/// The program that has the package.
const PYTHON: &str = "python3";
/// The version that has to be there: replications are computed by the package, and it is to be this program's own.
const VERSION: &str = env!("CARGO_PKG_VERSION");

/// Has each study run by the package, one after another.
pub(super) fn run(output: &Output, run: &Run, engine: Engine) -> Result<(), Failure> {
    find(engine)?;
    let groups = run.names.iter().map(|name| (name, founding::group(name)));
    let names: Vec<&str> =
        groups.flat_map(|(name, group)| if group.is_empty() { vec![name.as_str()] } else { group }).collect();
    let mut done = Vec::new();
    for name in &names {
        let arguments = arguments(output, run, engine, name, names.len() > 1);
        let mut command = Command::new(PYTHON);
        command.args(arguments).stderr(Stdio::inherit());
        if !output.json {
            command.stdout(Stdio::inherit());
        }
        let ended = command.output().map_err(|e| Failure::failed(format!("{PYTHON}: {e}")))?;
        match ended.status.code() {
            Some(0) => {}
            // The package has said why.
            code => {
                let code = code.and_then(|code| u8::try_from(code).ok()).unwrap_or(1);
                return Err(Failure { code, message: format!("{name}: the sweep was not done") });
            }
        }
        if output.json {
            let told: Value = serde_json::from_slice(&ended.stdout)
                .map_err(|e| Failure::failed(format!("{PYTHON} -m usher gave no JSON: {e}")))?;
            done.extend(told.as_array().cloned().unwrap_or_default());
        }
    }
    if output.json { output.value(&Value::Array(done)) } else { Ok(()) }
}

/// Looks for the package.
fn find(engine: Engine) -> Result<(), Failure> {
    let install = format!(
        "--backend needs the Python package usher {VERSION} with {0}: pip install '.[{0}]' from this program's source, or its \
         wheel, where {PYTHON} finds it (docs/python.md)",
        engine.name()
    );
    let asked = Command::new(PYTHON).args(["-c", "import usher; print(usher.__version__)"]).output();
    let found = asked.ok().filter(|asked| asked.status.success());
    let Some(found) = found else { return Err(Failure::failed(install)) };
    let found = String::from_utf8_lossy(&found.stdout);
    match found.trim() {
        VERSION => Ok(()),
        other => Err(Failure::failed(format!("{PYTHON} has usher {other}. {install}"))),
    }
}

/// What the package is asked.
fn arguments(output: &Output, run: &Run, engine: Engine, name: &str, several: bool) -> Vec<String> {
    let mut words = vec!["-m".to_owned(), "usher".to_owned(), "sweep".to_owned(), name.to_owned()];
    let mut option = |name: &str, value: String| words.extend([format!("--{name}"), value]);
    option("backend", engine.name().to_owned());
    run.address.iter().for_each(|address| option("address", address.clone()));
    run.set.iter().for_each(|set| option("set", set.clone()));
    run.seed.iter().for_each(|seed| option("seed", seed.to_string()));
    run.replications.iter().for_each(|n| option("replications", n.to_string()));
    run.jobs.iter().for_each(|n| option("jobs", n.to_string()));
    if let Some(folder) = &run.out {
        let own = if several { folder.join(name) } else { folder.clone() };
        option("out", own.display().to_string());
    }
    let flags = [
        ("quick", run.quick),
        ("full", run.full),
        ("sensitivity", run.sensitivity),
        ("force", run.force),
        ("json", output.json),
        ("plain", !output.progress),
    ];
    words.extend(flags.iter().filter(|(_, set)| *set).map(|(name, _)| format!("--{name}")));
    words
}
