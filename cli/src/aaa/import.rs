//! `usher aaa user import`, `client import`: FreeRADIUS's files into the store.

use super::args::Import;
use super::tell;
use super::user::store;
use crate::output::{Failure, Output};
use serde_json::json;
use std::path::Path;
use usher_control::Request;
use usher_store::import::{Complaint, clients_conf, users_file};

fn text(file: &Path) -> Result<String, Failure> {
    std::fs::read_to_string(file).map_err(|e| Failure::failed(format!("{}: {e}", file.display())))
}

/// What was taken over, and what was not, with its line.
fn said(
    output: &Output,
    import: &Import,
    what: &str,
    taken: usize,
    left: &[Complaint],
) -> Result<(), Failure> {
    if output.json {
        let each = |c: &Complaint| json!({ "line": c.line, "what": c.what });
        let left: Vec<_> = left.iter().map(each).collect();
        return output.value(&json!({ what: taken, "left": left }));
    }
    for complaint in left {
        output.note(&format!("{}:{}: {}", import.file.display(), complaint.line, complaint.what));
    }
    output.text(&format!("{taken} {what} taken over, {} lines to look at\n", left.len()))
}

pub(super) fn users(output: &Output, import: &Import) -> Result<(), Failure> {
    let text = text(&import.file)?;
    let (place, mut store) = store(&import.config)?;
    let (file, left) = users_file(&text, &place.loaded.dictionary);
    for group in &file.groups {
        store.put_group(group).map_err(Failure::failed)?;
    }
    let taken = file.users.len();
    let canonical = |name: String| usher_aaa::spellings(&name).into_iter().next().unwrap_or(name);
    let mut users = file.users.into_iter().map(|(name, rows)| (canonical(name), rows));
    store.put_users(&mut users).map_err(Failure::failed)?;
    tell(output, &place, &Request::Forget { user: None, disconnect: false });
    said(output, import, "users", taken, &left)
}

pub(super) fn clients(output: &Output, import: &Import) -> Result<(), Failure> {
    let (list, left) = clients_conf(&text(&import.file)?);
    let (place, mut store) = store(&import.config)?;
    for client in &list {
        store.put_client(client).map_err(Failure::failed)?;
    }
    tell(output, &place, &Request::Reload);
    said(output, import, "clients", list.len(), &left)
}
