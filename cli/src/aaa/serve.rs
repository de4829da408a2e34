//! `usher aaa serve`, `check`.

use super::args::Config;
use crate::output::{Failure, Output};
use crate::service::{ServiceFault, report_fault};
use serde_json::json;
use std::path::Path;
use usher_daemon::config::DEFAULT_PATH;
use usher_daemon::{Installation, InstallationError, ServeError, advice};

pub(crate) fn serve(output: &Output, config: &Config) -> Result<(), Failure> {
    let served = usher_daemon::serve(config.config.as_deref(), &mut |text| output.note(text));
    served.map_err(|error| match error {
        ServeError::Installation(InstallationError::Config(_)) | ServeError::Config(_) => {
            Failure::usage(error)
        }
        error => Failure::failed(error),
    })
}

/// Tells what is wrong with a configuration, or that nothing is; `connect`: of its database, too.
pub(crate) fn check(output: &Output, file: Option<&Path>, connect: bool) -> Result<(), Failure> {
    let path = file.unwrap_or(Path::new(DEFAULT_PATH));
    let shown = path.display();
    let place = match usher_daemon::check(path) {
        Ok(place) => place,
        Err(error) => return Err(report_fault(output, path, ServiceFault::from(error))),
    };
    let (store, missing) = examine(&place, connect)?;
    let warnings = advice::warnings(&place);
    let right = missing.is_empty();
    if output.json {
        output.value(&json!({
            "file": shown.to_string(), "faults": [], "warnings": warnings, "store": store, "missing": missing,
        }))?;
    } else {
        warnings.iter().for_each(|warning| output.note(&format!("warning: {warning}")));
        missing.iter().for_each(|what| output.note(&format!("database: {what}")));
        let store = store.map(|store| format!("; {store}")).unwrap_or_default();
        let judged = if right { "right" } else { "right, and its database is not" };
        output.text(&format!("{shown}: {judged}{store}\n"))?;
    }
    if right { Ok(()) } else { Err(Failure::failed("the database lacks what the server needs")) }
}

/// What is to be said of the database, and what it lacks.
fn examine(place: &Installation, connect: bool) -> Result<(Option<String>, Vec<String>), Failure> {
    if !connect {
        let not_asked = || "its database was not asked, --connect asks it".to_owned();
        return Ok((place.has_database().then(not_asked), Vec::new()));
    }
    match place.examine_store().map_err(Failure::failed)? {
        Some(report) => Ok((Some(report.to_string()), report.missing().to_vec())),
        None => Ok((None, Vec::new())),
    }
}
