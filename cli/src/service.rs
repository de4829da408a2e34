//! What commands of services have in common.

use crate::output::{Failure, Output};
use serde_json::{Value, json};
use std::fmt::Display;
use std::path::{Path, PathBuf};
use usher_config::Fault;
use usher_config::disk::LoadError;

/// Tells what is wrong with a configuration, or that nothing is. `loaded` is what was made of it, or why nothing was.
pub(crate) fn check(
    output: &Output,
    file: &Path,
    loaded: Result<Vec<Fault>, LoadError>,
) -> Result<(), Failure> {
    let shown = file.display();
    match loaded {
        Ok(warnings) => {
            let warnings: Vec<_> = warnings.iter().map(ToString::to_string).collect();
            if output.json {
                return output
                    .value(&json!({ "file": shown.to_string(), "faults": [], "warnings": warnings }));
            }
            warnings.iter().for_each(|warning| output.note(&format!("warning: {warning}")));
            output.text(&format!("{shown}: right\n"))
        }
        Err(LoadError::Faults(faults)) if output.json => {
            output.value(&json!({ "file": faults.file, "faults": crate::output::faults(&faults) }))?;
            Err(Failure::usage(format!("{shown} is faulty")))
        }
        Err(error) => Err(Failure::usage(error)),
    }
}

/// Checks the file of the AAA server that an access server has in its program, too: its warnings are added.
pub(crate) fn check_within(
    mut warnings: Vec<Fault>,
    within: Option<PathBuf>,
) -> Result<Vec<Fault>, LoadError> {
    if let Some(file) = within {
        warnings.extend(usher_daemon::config::load(&file)?.warnings);
    }
    Ok(warnings)
}

/// Prints a configuration that `import` makes of another program's file, and tells which lines it could not take: each with its
/// number, 0 where it is about the whole file.
pub(crate) fn import<E: Display>(
    output: &Output,
    file: &Path,
    import: impl FnOnce(&str) -> Result<(String, Vec<(usize, String)>), E>,
) -> Result<(), Failure> {
    let shown = file.display();
    let fault = |error: &dyn Display| Failure::usage(format!("{shown}: {error}"));
    let text = std::fs::read_to_string(file).map_err(|error| fault(&error))?;
    let (text, left) = import(&text).map_err(|error| fault(&error))?;
    if output.json {
        let left: Vec<Value> =
            left.iter().map(|(line, what)| json!({ "line": line, "what": what })).collect();
        return output.value(&json!({ "text": text, "left": left }));
    }
    for (line, what) in &left {
        output.note(&if *line == 0 { what.clone() } else { format!("{shown}:{line}: {what}") });
    }
    output.text(&text)
}
