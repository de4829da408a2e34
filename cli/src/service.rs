//! Code that the commands of all services share.

use crate::output::{CommandFailure, ConsoleOutput};
use serde_json::{Value, json};
use std::fmt::Display;
use std::io::{ErrorKind, Read};
use std::path::Path;
use usher_aaa_daemon::{InstallationError, ServeError};
use usher_config::ConfigErrors;
use usher_config::disk::LoadError;
use usher_ident_daemon::IdentError;
use usher_ike_daemon::IkeError;
use usher_mih_daemon::MihError;
use usher_pppoe_daemon::PppoeError;

/// Why a service cannot start.
pub(crate) enum ServiceStartError {
    /// The faults of its configuration, each with its place.
    Faults(ConfigErrors),
    /// A fault of another file that it loads.
    Sentence(String),
}

impl From<LoadError> for ServiceStartError {
    fn from(error: LoadError) -> Self {
        match error {
            LoadError::Faults(faults) => Self::Faults(faults),
            error => Self::Sentence(error.to_string()),
        }
    }
}

impl From<ServeError> for ServiceStartError {
    fn from(error: ServeError) -> Self {
        match error {
            ServeError::Installation(InstallationError::Config(error)) => error.into(),
            error => Self::Sentence(error.to_string()),
        }
    }
}

/// Implements conversions from errors of services whose variant `Config` has the faults of their files.
macro_rules! service_faults {
    ($($error:ident),*) => {
        $(impl From<$error> for ServiceStartError {
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

/// Reports why a service cannot start.
pub(crate) fn report_fault(output: &ConsoleOutput, file: &Path, fault: ServiceStartError) -> CommandFailure {
    match fault {
        ServiceStartError::Faults(faults) if output.json => {
            let told = json!({ "file": faults.file, "faults": crate::output::faults_json(&faults) });
            output
                .print_json(&told)
                .err()
                .unwrap_or(CommandFailure::usage_error(format!("{} is faulty", file.display())))
        }
        ServiceStartError::Faults(faults) => CommandFailure::usage_error(faults),
        ServiceStartError::Sentence(sentence) => CommandFailure::usage_error(sentence),
    }
}

/// Returns the user who runs this program, for logs and audits.
pub(crate) fn invoking_user() -> String {
    let user = std::env::var("SUDO_USER").or_else(|_| std::env::var("USER"));
    user.unwrap_or_else(|_| "unknown".to_owned())
}

/// Reports the faults of a configuration, or that there are none. `checked` has its warnings, or why the service
/// cannot start.
pub(crate) fn report_config_check(
    output: &ConsoleOutput,
    file: &Path,
    checked: Result<Vec<String>, impl Into<ServiceStartError>>,
) -> Result<(), CommandFailure> {
    let shown = file.display();
    match checked {
        Ok(warnings) => {
            if output.json {
                return output
                    .print_json(&json!({ "file": shown.to_string(), "faults": [], "warnings": warnings }));
            }
            warnings.iter().for_each(|warning| output.print_note(&format!("warning: {warning}")));
            output.print_text(&format!("{shown}: valid\n"))
        }
        Err(error) => Err(report_fault(output, file, error.into())),
    }
}

/// The result of importing another program's file: a configuration, and the skipped lines with their numbers. A
/// number is 0 if the remark is about the whole file or names another file.
pub(crate) struct ConfigImportResult {
    pub(crate) text: String,
    pub(crate) left: Vec<(usize, String)>,
    /// Skipped lines that would have restricted access. With any of them, there is no configuration.
    pub(crate) stops: Vec<(usize, String)>,
}

/// Prints the configuration that `import` derives from another program's file, and reports the skipped lines.
pub(crate) fn import_foreign_file<E: Display>(
    output: &ConsoleOutput,
    file: &Path,
    import: impl FnOnce(&str) -> Result<ConfigImportResult, E>,
) -> Result<(), CommandFailure> {
    let shown = file.display();
    let fault = |error: &dyn Display| CommandFailure::usage_error(format!("{shown}: {error}"));
    let whole = read_foreign_config_text(file).map_err(CommandFailure::usage_error)?;
    let ConfigImportResult { text, left, stops } = import(&whole).map_err(|error| fault(&error))?;
    let stopped = !stops.is_empty();
    if output.json {
        let told = |all: &[(usize, String)]| -> Vec<Value> {
            all.iter().map(|(line, what)| json!({ "line": line, "what": what })).collect()
        };
        let text = (!stopped).then_some(text);
        output.print_json(&json!({ "text": text, "left": told(&left), "stops": told(&stops) }))?;
    } else {
        for (line, what) in left.iter().chain(&stops) {
            output.print_note(&if *line == 0 { what.clone() } else { format!("{shown}:{line}: {what}") });
        }
        if !stopped {
            output.print_text(&text)?;
        }
    }
    match (stopped, left.len()) {
        (true, _) => Err(CommandFailure::partial_import_failure(format!(
            "{shown} is not imported: without {}, it would admit more users; change the file first",
            if stops.len() == 1 {
                "the setting reported last".to_owned()
            } else {
                format!("{} of its settings", stops.len())
            }
        ))),
        (false, 0) => Ok(()),
        (false, n) => Err(CommandFailure::partial_import_failure(format!(
            "{n} lines of {shown} need review; see above"
        ))),
    }
}

/// The maximum length of another program's file, in octets. Handwritten files are shorter, and an import holds
/// several copies in memory.
const LONGEST_FOREIGN: u64 = 64 << 20;

/// Reads another program's file as text. Octets that are not UTF-8 become U+FFFD, which importers reject.
///
/// # Errors
/// A sentence that names the file: it cannot be read, is not a regular file, or is longer than [`LONGEST_FOREIGN`].
pub(crate) fn read_foreign_config_text(file: &Path) -> Result<String, String> {
    let octets = read_size_limited_file(file, LONGEST_FOREIGN)?;
    Ok(String::from_utf8_lossy(&octets).into_owned())
}

/// Reads a regular file of at most `most` octets.
fn read_size_limited_file(file: &Path, most: u64) -> Result<Vec<u8>, String> {
    let named = |error: &dyn Display| format!("cannot read {}: {error}", file.display());
    let mut options = std::fs::OpenOptions::new();
    options.read(true);
    // Opening a pipe without a writer would block.
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::custom_flags(&mut options, NONBLOCKING);
    let opened = options.open(file).map_err(|error| named(&error))?;
    if !opened.metadata().map_err(|error| named(&error))?.is_file() {
        return Err(named(&"it is not a regular file; copy its content into one"));
    }
    let mut octets = Vec::new();
    opened.take(most + 1).read_to_end(&mut octets).map_err(|error| named(&error))?;
    match octets.len() as u64 > most {
        true => Err(named(&format!("it is longer than {} MiB; import it in parts", most >> 20))),
        false => Ok(octets),
    }
}

#[cfg(unix)]
const NONBLOCKING: i32 = rustix::fs::OFlags::NONBLOCK.bits().cast_signed();

/// The maximum number of files that one pattern may match.
const MOST_INCLUDED: usize = 4096;

/// Reads the files that a file includes by a pattern, in order, each with its name and text. Only the last component
/// may have wildcards (`*`, `?`).
pub(crate) fn read_included_files(file: &Path, pattern: &str) -> Result<Vec<(String, String)>, String> {
    let whole = file.parent().unwrap_or(Path::new("")).join(pattern);
    let last = whole.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    let folder = whole.parent().unwrap_or(Path::new(""));
    if folder.to_string_lossy().contains(['*', '?', '[']) || last.contains(['[', '\\']) {
        return Err(format!(
            "{pattern} cannot be included: the only wildcards are * and ?, in the last part of a path"
        ));
    }
    let mut names = vec![last.to_owned()];
    if last.contains(['*', '?']) {
        let fault = |error: &dyn Display| format!("cannot include {}: {error}", folder.display());
        let entries = match std::fs::read_dir(folder) {
            Ok(entries) => entries,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => return Err(fault(&error)),
        };
        names.clear();
        for entry in entries {
            let name = entry.map_err(|error| fault(&error))?.file_name();
            // As in a shell, only a pattern that begins with a dot matches hidden names.
            let is_hidden = name.as_encoded_bytes().starts_with(b".") && !last.starts_with('.');
            if is_hidden || !matches_filename_wildcards(last.as_bytes(), name.as_encoded_bytes()) {
                continue;
            }
            match name.into_string() {
                Ok(name) => names.push(name),
                Err(name) => {
                    let shown = folder.join(name);
                    return Err(format!("cannot include {}: its name is not UTF-8", shown.display()));
                }
            }
            if names.len() > MOST_INCLUDED {
                return Err(fault(&format_args!("more than {MOST_INCLUDED} files match {last}")));
            }
        }
        names.sort();
    }
    let mut room = LONGEST_FOREIGN;
    let read = |name: String| {
        let path = folder.join(name);
        let text =
            read_foreign_config_text(&path).map_err(|error| format!("cannot include a file: {error}"))?;
        room = room.checked_sub(text.len() as u64).ok_or_else(|| {
            format!("{pattern} includes more than {} MiB; import the files one by one", LONGEST_FOREIGN >> 20)
        })?;
        Ok((path.display().to_string(), text))
    };
    names.into_iter().map(read).collect()
}

/// True if a name matches a pattern with `*` and `?`.
fn matches_filename_wildcards(mut pattern: &[u8], mut name: &[u8]) -> bool {
    // The pattern after the last `*`, and the position in the name where that `*` ends so far.
    let mut last: Option<(&[u8], &[u8])> = None;
    loop {
        match (pattern, name) {
            ([b'*', rest @ ..], _) => {
                last = Some((rest, name));
                pattern = rest;
            }
            ([one, rest @ ..], [other, more @ ..]) if *one == b'?' || one == other => {
                (pattern, name) = (rest, more);
            }
            ([], []) => return true,
            _ => {
                let Some((rest, [_, more @ ..])) = last else { return false };
                last = Some((rest, more));
                (pattern, name) = (rest, more);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A device has no end, and a pipe may have no writer.
    #[test]
    fn only_regular_files_of_a_bounded_length_are_read() {
        let folder = std::env::temp_dir().join(format!("usher-foreign-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let (file, pipe) = (folder.join("file"), folder.join("pipe"));
        std::fs::write(&file, "12345").unwrap();
        assert!(std::process::Command::new("mkfifo").arg(&pipe).status().unwrap().success());
        assert_eq!(read_size_limited_file(&file, 5).unwrap(), b"12345");
        assert!(read_size_limited_file(&file, 4).unwrap_err().contains("import it in parts"));
        for other in [Path::new("/dev/zero"), &pipe, &folder] {
            let error = read_foreign_config_text(other).unwrap_err();
            assert!(
                error.contains("not a regular file") && error.contains(&other.display().to_string()),
                "{error}"
            );
        }
        for pattern in ["/dev/zero", "/dev/zer?"] {
            let error = read_included_files(&file, pattern).unwrap_err();
            assert!(error.contains("not a regular file"), "{error}");
        }
        std::fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn names_fit_patterns() {
        for (pattern, name, fit) in [
            ("*.conf", "a.conf", true),
            ("*.conf", ".conf", true),
            ("*.conf", "a.conf~", false),
            ("a?c", "abc", true),
            ("a?c", "ac", false),
            ("*a*b", "xaab", true),
            ("*a*b", "xaaba", false),
            ("**", "", true),
            ("?", "", false),
            ("", "", true),
            ("", "a", false),
            ("a*", "a", true),
            ("*ab?d*", "abxabcdx", true),
            ("*a*b", "xaabc", false),
            ("*", "", true),
            ("a**?", "ab", true),
            (&"*a".repeat(60), &"a".repeat(250), true),
            (&format!("{}b", "*a".repeat(60)), &"a".repeat(250), false),
        ] {
            assert_eq!(
                matches_filename_wildcards(pattern.as_bytes(), name.as_bytes()),
                fit,
                "{pattern} {name}"
            );
        }
    }

    /// A matching file whose name is not UTF-8 is an error, and is not ignored.
    #[cfg(unix)]
    #[test]
    fn a_file_whose_name_is_no_utf8_is_an_error() {
        use std::os::unix::ffi::OsStrExt;
        let folder = std::env::temp_dir().join(format!("usher-included-{}", std::process::id()));
        std::fs::create_dir_all(folder.join("conf.d")).unwrap();
        let write = |name: &[u8]| {
            let path = folder.join("conf.d").join(std::ffi::OsStr::from_bytes(name));
            std::fs::write(path, "a = b\n").unwrap();
        };
        [&b"b.conf"[..], b"a.conf", b".c.conf", b"d\xff.txt"].into_iter().for_each(write);
        let file = folder.join("swanctl.conf");
        let names = |pattern: &str| -> Result<Vec<String>, String> {
            let all = read_included_files(&file, pattern)?;
            Ok(all.into_iter().filter_map(|(name, _)| Some(name.rsplit('/').next()?.to_owned())).collect())
        };
        assert_eq!(names("conf.d/*.conf"), Ok(vec!["a.conf".to_owned(), "b.conf".to_owned()]));
        assert_eq!(names("conf.d/.*.conf"), Ok(vec![".c.conf".to_owned()]));
        assert_eq!(names("nowhere/*.conf"), Ok(vec![]));
        assert!(names("conf.d/a\\*.conf").unwrap_err().contains("only wildcards are"));
        write(b"e\xff.conf");
        let error = names("conf.d/*.conf").unwrap_err();
        assert!(error.ends_with("its name is not UTF-8"), "{error}");
        std::fs::remove_dir_all(&folder).unwrap();
    }
}
