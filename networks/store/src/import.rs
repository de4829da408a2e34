//! FreeRADIUS's files, read into rows. What is taken over means the same as there, what cannot be is named with its line and what
//! to do, and where more would be let in without it, the import stops.

mod clients;
mod users;
mod words;

#[cfg(feature = "databases")]
pub(crate) use words::resolve_escapes;

pub use clients::clients_conf;
pub use users::{OpenInclude, UsersFile, UsersImport, users_file};

use std::fmt;
use std::sync::{Arc, LazyLock};
use usher_radius::dictionary::RadiusDictionary;

/// Something that was not taken over as it stands.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ImportIssue {
    /// The file, where the one that is imported includes it.
    pub file: Option<Arc<str>>,
    /// The line, from 1.
    pub line: usize,
    /// What it is, and what to do.
    pub message: String,
    /// Without it more would be let in: nothing is to be taken over then.
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

/// What a fuzzer runs: both readers over any text. False where a complaint names no line of it, or says nothing.
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
