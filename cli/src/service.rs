//! What commands of services have in common.

use crate::output::{Failure, Output};
use serde_json::{Value, json};
use std::fmt::Display;
use std::io::ErrorKind;
use std::path::Path;
use usher_config::Faults;
use usher_config::disk::LoadError;
use usher_daemon::{InstallationError, ServeError};
use usher_host::ident::IdentError;
use usher_host::ike::IkeError;
use usher_host::mih::MihError;
use usher_host::pppoe::PppoeError;

/// Why a service would not serve.
pub(crate) enum ServiceFault {
    /// Faults of its file, each with its place.
    Faults(Faults),
    /// Something else that it loads.
    Sentence(String),
}

impl From<LoadError> for ServiceFault {
    fn from(error: LoadError) -> Self {
        match error {
            LoadError::Faults(faults) => Self::Faults(faults),
            error => Self::Sentence(error.to_string()),
        }
    }
}

impl From<ServeError> for ServiceFault {
    fn from(error: ServeError) -> Self {
        match error {
            ServeError::Installation(InstallationError::Config(error)) => error.into(),
            error => Self::Sentence(error.to_string()),
        }
    }
}

/// Of the errors of services that have those of their files as `Config`.
macro_rules! service_faults {
    ($($error:ident),*) => {
        $(impl From<$error> for ServiceFault {
            fn from(error: $error) -> Self {
                match error {
                    $error::Config(error) => error.into(),
                    error => Self::Sentence(error.to_string()),
                }
            }
        })*
    };
}
service_faults!(IdentError, IkeError, MihError, PppoeError);

/// Tells why a service would not serve.
pub(crate) fn report_fault(output: &Output, file: &Path, fault: ServiceFault) -> Failure {
    match fault {
        ServiceFault::Faults(faults) if output.json => {
            let told = json!({ "file": faults.file, "faults": crate::output::faults(&faults) });
            output.value(&told).err().unwrap_or(Failure::usage(format!("{} is faulty", file.display())))
        }
        ServiceFault::Faults(faults) => Failure::usage(faults),
        ServiceFault::Sentence(sentence) => Failure::usage(sentence),
    }
}

/// Who this program runs for, for logs and audits.
pub(crate) fn asker() -> String {
    let user = std::env::var("SUDO_USER").or_else(|_| std::env::var("USER"));
    user.unwrap_or_else(|_| "unknown".to_owned())
}

/// Tells what is wrong with a configuration, or that nothing is. `checked` are its warnings, or why a service would not serve.
pub(crate) fn check(
    output: &Output,
    file: &Path,
    checked: Result<Vec<String>, impl Into<ServiceFault>>,
) -> Result<(), Failure> {
    let shown = file.display();
    match checked {
        Ok(warnings) => {
            if output.json {
                return output
                    .value(&json!({ "file": shown.to_string(), "faults": [], "warnings": warnings }));
            }
            warnings.iter().for_each(|warning| output.note(&format!("warning: {warning}")));
            output.text(&format!("{shown}: right\n"))
        }
        Err(error) => Err(report_fault(output, file, error.into())),
    }
}

/// What an importer makes of another program's file: a configuration, and lines that it could not take, each with its number (0 where it is
/// about the whole file, or names another).
pub(crate) struct ImportedFile {
    pub(crate) text: String,
    pub(crate) left: Vec<(usize, String)>,
    /// Those without which more would be let in: there is no configuration then.
    pub(crate) stops: Vec<(usize, String)>,
}

/// Prints a configuration that `import` makes of another program's file, and tells which lines it could not take.
pub(crate) fn import<E: Display>(
    output: &Output,
    file: &Path,
    import: impl FnOnce(&str) -> Result<ImportedFile, E>,
) -> Result<(), Failure> {
    let shown = file.display();
    let fault = |error: &dyn Display| Failure::usage(format!("{shown}: {error}"));
    let octets = std::fs::read(file).map_err(|error| fault(&error))?;
    let ImportedFile { text, left, stops } = import(&read_text(&octets)).map_err(|error| fault(&error))?;
    let stopped = !stops.is_empty();
    if output.json {
        let told = |all: &[(usize, String)]| -> Vec<Value> {
            all.iter().map(|(line, what)| json!({ "line": line, "what": what })).collect()
        };
        let text = (!stopped).then_some(text);
        output.value(&json!({ "text": text, "left": told(&left), "stops": told(&stops) }))?;
    } else {
        for (line, what) in left.iter().chain(&stops) {
            output.note(&if *line == 0 { what.clone() } else { format!("{shown}:{line}: {what}") });
        }
        if !stopped {
            output.text(&text)?;
        }
    }
    match (stopped, left.len()) {
        (true, _) => Err(Failure::partly(format!(
            "{shown} is not imported: {} would let in more if it were left out; change that there first",
            if stops.len() == 1 {
                "what is said last".to_owned()
            } else {
                format!("{} of its settings", stops.len())
            }
        ))),
        (false, 0) => Ok(()),
        (false, n) => {
            Err(Failure::partly(format!("{n} of the lines of {shown} need your eye: they are told above")))
        }
    }
}

/// A file of another program's as text: importers refuse what has the character that stands for other octets than UTF-8's.
pub(crate) fn read_text(octets: &[u8]) -> String {
    String::from_utf8_lossy(octets).into_owned()
}

/// The files that a file includes by a pattern, in their order, each with its name and text. Wildcards (`*`, `?`) stand in the last part.
pub(crate) fn included(file: &Path, pattern: &str) -> Result<Vec<(String, String)>, String> {
    let whole = file.parent().unwrap_or(Path::new("")).join(pattern);
    let last = whole.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    let folder = whole.parent().unwrap_or(Path::new(""));
    if folder.to_string_lossy().contains(['*', '?', '[']) || last.contains('[') {
        return Err(format!(
            "{pattern} cannot be included: wildcards are * and ?, in the last part of a path"
        ));
    }
    let mut names = vec![last.to_owned()];
    if last.contains(['*', '?']) {
        let entries = match std::fs::read_dir(folder) {
            Ok(entries) => entries,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => return Err(format!("{} is included: {error}", folder.display())),
        };
        let all = entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
        names = all.filter(|name| !name.starts_with('.') && fits(last.as_bytes(), name.as_bytes())).collect();
        names.sort();
    }
    let read = |name: String| {
        let path = folder.join(name);
        let octets =
            std::fs::read(&path).map_err(|error| format!("{} is included: {error}", path.display()))?;
        Ok((path.display().to_string(), read_text(&octets)))
    };
    names.into_iter().map(read).collect()
}

/// Whether a name fits a pattern with `*` and `?`.
fn fits(pattern: &[u8], name: &[u8]) -> bool {
    match (pattern.split_first(), name.split_first()) {
        (None, None) => true,
        (Some((b'*', rest)), _) => (0..=name.len()).any(|n| fits(rest, &name[n..])),
        (Some((b'?', rest)), Some((_, more))) => fits(rest, more),
        (Some((one, rest)), Some((other, more))) if one == other => fits(rest, more),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_fit_patterns() {
        for (pattern, name, fit) in [
            ("*.conf", "a.conf", true),
            ("*.conf", ".conf", true),
            ("*.conf", "a.conf~", false),
            ("a?c", "abc", true),
            ("a?c", "ac", false),
            ("*a*b", "xaab", true),
        ] {
            assert_eq!(fits(pattern.as_bytes(), name.as_bytes()), fit, "{pattern} {name}");
        }
    }
}
