//! Dictionaries of the configuration: FreeRADIUS's files and their includes.

use std::path::Path;
use usher_config::ConfigEnvironment;
use usher_radius::dictionary::{IncludedFile, RadiusDictionary};

/// Maximum octets of a file. FreeRADIUS's largest has about 100,000.
const LARGEST: u64 = 16 << 20;

/// Adds the definitions of a file. Its includes are relative to its own directory.
///
/// # Errors
/// File, line and cause of a syntax error, or a file that cannot be read.
pub(super) fn load_dictionary(
    dictionary: &mut RadiusDictionary,
    path: &Path,
    outside: &dyn ConfigEnvironment,
) -> Result<(), String> {
    let IncludedFile { file, text } = read_file(path, outside)?;
    let mut unread = None;
    let mut included = |from: &str, name: &str| {
        let beside = Path::new(from).parent().unwrap_or(Path::new("")).join(name);
        read_file(&beside, outside).map_err(|why| unread = Some(why)).ok()
    };
    dictionary.load_dictionary_text(&file, &text, &mut included).map_err(|fault| match &unread {
        // "no file" means that the file read last could not be read, so that file's own error is reported.
        Some(why) if fault.description.starts_with("no file") => {
            format!("{}:{}: {why}", fault.file, fault.line)
        }
        _ => fault.to_string(),
    })
}

/// Reads a file under its canonical path. Comments may have any encoding.
fn read_file(path: &Path, outside: &dyn ConfigEnvironment) -> Result<IncludedFile, String> {
    let name = outside.canonical_name(path)?;
    let octets = outside.read_octets(path, LARGEST + 1)?;
    if octets.len() as u64 > LARGEST {
        return Err(format!("{} has more than {} MiB", path.display(), LARGEST >> 20));
    }
    Ok(IncludedFile { file: name.display().to_string(), text: String::from_utf8_lossy(&octets).into_owned() })
}
