//! `usher aaa user import`, `client import`: FreeRADIUS's files into the store.

use super::args::{Import, UserImport};
use super::tell;
use super::user::store;
use crate::output::{Failure, Output};
use crate::service::read_foreign;
use serde_json::json;
use std::path::Path;
use usher_control::Request;
use usher_store::import::{Complaint, UsersImport, clients_conf};

/// What was not taken over, with its line.
fn told(output: &Output, import: &Import, left: &[Complaint]) {
    for complaint in left.iter().filter(|_| !output.json) {
        let file = complaint.file.as_deref().map_or_else(|| import.file.to_string_lossy(), Into::into);
        output.note(&format!("{file}:{}: {}", complaint.line, complaint.what));
    }
}

/// Nothing is taken over where without some line more would be let in.
fn stopped(output: &Output, import: &Import, what: &str, left: &[Complaint]) -> Result<(), Failure> {
    let stops = left.iter().filter(|complaint| complaint.stops).count();
    if stops == 0 {
        return Ok(());
    }
    told(output, import, left);
    if output.json {
        said_json(output, what, 0, left)?;
    }
    let file = import.file.display();
    Err(Failure::partly(format!(
        "{file}: nothing was taken over, since {stops} of its entries keep out others"
    )))
}

fn said_json(output: &Output, what: &str, taken: usize, left: &[Complaint]) -> Result<(), Failure> {
    let each = |c: &Complaint| json!({ "file": c.file.as_deref(), "line": c.line, "what": c.what, "stops": c.stops });
    let left: Vec<_> = left.iter().map(each).collect();
    output.value(&json!({ what: taken, "left": left }))
}

/// What was taken over, and what was not.
fn said(
    output: &Output,
    import: &Import,
    what: &str,
    taken: usize,
    left: &[Complaint],
) -> Result<(), Failure> {
    told(output, import, left);
    if output.json {
        said_json(output, what, taken, left)?;
    } else {
        output.text(&format!("{taken} {what} taken over, {} lines to look at\n", left.len()))?;
    }
    match left.len() {
        0 => Ok(()),
        n => Err(Failure::partly(format!("{n} of the lines of {} need your eye", import.file.display()))),
    }
}

pub(super) fn users(output: &Output, import: &UserImport) -> Result<(), Failure> {
    let UserImport { import, leave_out } = import;
    let whole = read_foreign(&import.file).map_err(Failure::failed)?;
    let (place, mut store) = store(&import.config)?;
    let mut open = |file: &Path| read_foreign(file);
    // By which name it is given must make no difference to the groups' names.
    let file = import.file.canonicalize().unwrap_or_else(|_| import.file.clone());
    let reader = UsersImport {
        file,
        leave_out: *leave_out,
        open: Some(&mut open),
        ..UsersImport::new(&place.loaded.dictionary)
    };
    let (file, left) = reader.read(&whole);
    stopped(output, import, "users", &left)?;
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
    let (list, left) = clients_conf(&read_foreign(&import.file).map_err(Failure::failed)?);
    stopped(output, import, "clients", &left)?;
    let (place, mut store) = store(&import.config)?;
    for client in &list {
        store.put_client(client).map_err(Failure::failed)?;
    }
    tell(output, &place, &Request::Reload);
    said(output, import, "clients", list.len(), &left)
}
