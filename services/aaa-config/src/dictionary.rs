//! Dictionaries that the configuration names: FreeRADIUS's files, and those that they include.

use std::path::Path;
use usher_config::Outside;
use usher_radius::dictionary::{Dictionary, Included};

/// Octets of one file at most: FreeRADIUS's largest has a tenth of a million.
const LARGEST: u64 = 16 << 20;

/// Adds what a file says. What it includes is sought from its own folder.
///
/// # Errors
/// The file and line that cannot be understood, and why; or a file that cannot be read.
pub(super) fn load(dictionary: &mut Dictionary, path: &Path, outside: &dyn Outside) -> Result<(), String> {
    let Included { file, text } = read(path, outside)?;
    let mut unread = None;
    let mut included = |from: &str, name: &str| {
        let beside = Path::new(from).parent().unwrap_or(Path::new("")).join(name);
        read(&beside, outside).map_err(|why| unread = Some(why)).ok()
    };
    dictionary.load(&file, &text, &mut included).map_err(|fault| match &unread {
        // The file that was asked for last is the one that the fault is about.
        Some(why) if fault.what.starts_with("no file") => format!("{}:{}: {why}", fault.file, fault.line),
        _ => fault.to_string(),
    })
}

/// A file by one name, whatever way led to it. Comments in it may be in any encoding.
fn read(path: &Path, outside: &dyn Outside) -> Result<Included, String> {
    let name = outside.name(path)?;
    let octets = outside.octets(path, LARGEST + 1)?;
    if octets.len() as u64 > LARGEST {
        return Err(format!("{} has more than {} MiB", path.display(), LARGEST >> 20));
    }
    Ok(Included { file: name.display().to_string(), text: String::from_utf8_lossy(&octets).into_owned() })
}
