//! `usher aaa serve`, `check`.

use super::args::Config;
use crate::output::{Failure, Output};
use serde_json::json;
use std::path::Path;
use usher_config::disk::LoadError;
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

pub(crate) fn check(output: &Output, file: Option<&Path>) -> Result<(), Failure> {
    let path = file.unwrap_or(Path::new(DEFAULT_PATH));
    // With the lists that were fetched for it, as a server would begin.
    match Installation::open(Some(path)) {
        Ok(place) => {
            let warnings = advice::warnings(&place);
            if output.json {
                let file = path.display().to_string();
                return output.value(&json!({ "file": file, "faults": [], "warnings": warnings }));
            }
            warnings.iter().for_each(|warning| output.note(&format!("warning: {warning}")));
            output.text(&format!("{}: right\n", path.display()))
        }
        Err(InstallationError::Config(LoadError::Faults(faults))) if output.json => {
            output.value(&json!({ "file": faults.file, "faults": crate::output::faults(&faults) }))?;
            Err(Failure::usage(format!("{} is faulty", path.display())))
        }
        Err(error) => Err(Failure::usage(error)),
    }
}
