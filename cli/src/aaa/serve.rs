//! `usher aaa serve`, `check`.

use super::args::AaaConfigArgs;
use crate::output::{CommandFailure, ConsoleOutput};
use crate::service::{ServiceStartError, report_fault};
use serde_json::json;
use std::path::Path;
use usher_aaa_daemon::config::DEFAULT_PATH;
use usher_aaa_daemon::{InstallationError, ServeError, ServerInstallation, advice};

pub(crate) fn serve_aaa(output: &ConsoleOutput, config: &AaaConfigArgs) -> Result<(), CommandFailure> {
    let served = usher_aaa_daemon::run_server(config.config.as_deref(), &mut |text| output.print_note(text));
    served.map_err(|error| match error {
        ServeError::Installation(InstallationError::Config(_)) | ServeError::Config(_) => {
            CommandFailure::usage_error(error)
        }
        error => CommandFailure::runtime_error(error),
    })
}

/// Reports the faults of a configuration, or that there are none. With `connect`, also those of its database.
pub(crate) fn check_aaa_config(
    output: &ConsoleOutput,
    file: Option<&Path>,
    connect: bool,
) -> Result<(), CommandFailure> {
    let path = file.unwrap_or(Path::new(DEFAULT_PATH));
    let shown = path.display();
    let place = match usher_aaa_daemon::check_config(path) {
        Ok(place) => place,
        Err(error) => return Err(report_fault(output, path, ServiceStartError::from(error))),
    };
    let (store, missing) = check_server_database(&place, connect)?;
    let warnings = advice::config_warnings(&place);
    let right = missing.is_empty();
    if output.json {
        output.print_json(&json!({
            "file": shown.to_string(), "faults": [], "warnings": warnings, "store": store, "missing": missing,
        }))?;
    } else {
        warnings.iter().for_each(|warning| output.print_note(&format!("warning: {warning}")));
        missing.iter().for_each(|what| output.print_note(&format!("database: {what}")));
        let store = store.map(|store| format!("; {store}")).unwrap_or_default();
        let judged = if right { "valid" } else { "valid, but its database is not" };
        output.print_text(&format!("{shown}: {judged}{store}\n"))?;
    }
    if right {
        Ok(())
    } else {
        Err(CommandFailure::runtime_error("the database lacks parts that the server needs"))
    }
}

/// Returns remarks about the database, and its faults.
fn check_server_database(
    place: &ServerInstallation,
    connect: bool,
) -> Result<(Option<String>, Vec<String>), CommandFailure> {
    if !connect {
        let not_asked = || "database not checked; --connect checks it".to_owned();
        return Ok((place.has_database().then(not_asked), Vec::new()));
    }
    match place.examine_store().map_err(CommandFailure::runtime_error)? {
        Some(report) => Ok((Some(report.to_string()), report.missing_schema_parts().to_vec())),
        None => Ok((None, Vec::new())),
    }
}
