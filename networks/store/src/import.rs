//! Reads FreeRADIUS's files into rows. Imported entries mean the same as in FreeRADIUS. Each entry that cannot be
//! imported is reported with its line and a remedy. If its absence would admit more users, the import stops.

mod clients;
mod users;
mod words;

#[cfg(feature = "databases")]
pub(crate) use words::resolve_escapes;

pub use clients::clients_conf;
pub use users::{IncludeFileReader, UsersFile, UsersImport, users_file};

use std::fmt;
use std::sync::{Arc, LazyLock};
use usher_radius::dictionary::RadiusDictionary;

/// A part of a file that was not imported as it stands.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ImportIssue {
    /// The file, if it is an included one.
    pub file: Option<Arc<str>>,
    /// The line, from 1.
    pub line: usize,
    /// The problem and the remedy.
    pub message: String,
    /// True if more users would be admitted without this part: do not import the file then.
    pub stops: bool,
}

impl fmt::Display for ImportIssue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.file {
            Some(file) => write!(f, "{file}, line {}: {}", self.line, self.message),
            None => write!(f, "line {}: {}", self.line, self.message),
        }
    }
}

/// Runs both readers over any text, for a fuzzer. False if an issue has no message, or a line outside the text.
#[must_use]
pub fn fuzz_import(text: &str) -> bool {
    static DICTIONARY: LazyLock<RadiusDictionary> = LazyLock::new(RadiusDictionary::builtin);
    let lines = text.lines().count();
    let sound = |c: &ImportIssue| (1..=lines).contains(&c.line) && !c.message.is_empty();
    let (file, users) = users_file(text, &DICTIONARY);
    let (list, clients) = clients_conf(text);
    let named = file.users.iter().all(|(name, _)| !name.is_empty());
    let whole = list.iter().all(|c| !c.nasname.is_empty() && !c.secret.is_empty());
    users.iter().chain(&clients).all(sound) && named && whole
}
