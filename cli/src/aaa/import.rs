//! `usher aaa user import`, `client import`: imports FreeRADIUS's files into the store.

use super::args::{ImportArgs, UserImport};
use super::notify_aaa_server;
use super::user::open_store;
use crate::output::{CommandFailure, ConsoleOutput};
use crate::service::read_foreign_config_text;
use serde_json::json;
use std::path::Path;
use usher_aaa_daemon::control::ControlRequest;
use usher_store::import::{ImportIssue, UsersImport, clients_conf};

/// Reports the lines that were not imported.
fn report_skipped_lines(output: &ConsoleOutput, import: &ImportArgs, left: &[ImportIssue]) {
    for complaint in left.iter().filter(|_| !output.json) {
        let file = complaint.file.as_deref().map_or_else(|| import.file.to_string_lossy(), Into::into);
        output.print_note(&format!("{file}:{}: {}", complaint.line, complaint.message));
    }
}

/// Rejects an import if an unsupported line would have restricted access.
fn reject_unsafe_import(
    output: &ConsoleOutput,
    import: &ImportArgs,
    what: &str,
    left: &[ImportIssue],
) -> Result<(), CommandFailure> {
    let stops = left.iter().filter(|complaint| complaint.stops).count();
    if stops == 0 {
        return Ok(());
    }
    report_skipped_lines(output, import, left);
    if output.json {
        print_import_json(output, what, 0, left)?;
    }
    let file = import.file.display();
    Err(CommandFailure::partial_import_failure(format!(
        "{file}: no entry was imported, since {stops} of its entries restrict access and cannot be imported"
    )))
}

fn print_import_json(
    output: &ConsoleOutput,
    what: &str,
    taken: usize,
    left: &[ImportIssue],
) -> Result<(), CommandFailure> {
    let each = |c: &ImportIssue| json!({ "file": c.file.as_deref(), "line": c.line, "what": c.message, "stops": c.stops });
    let left: Vec<_> = left.iter().map(each).collect();
    output.print_json(&json!({ what: taken, "left": left }))
}

/// Reports the imported and the skipped entries.
fn report_import(
    output: &ConsoleOutput,
    import: &ImportArgs,
    what: &str,
    taken: usize,
    left: &[ImportIssue],
) -> Result<(), CommandFailure> {
    report_skipped_lines(output, import, left);
    if output.json {
        print_import_json(output, what, taken, left)?;
    } else {
        output.print_text(&format!("{taken} {what} imported, {} lines to review\n", left.len()))?;
    }
    match left.len() {
        0 => Ok(()),
        n => Err(CommandFailure::partial_import_failure(format!(
            "{n} lines of {} need review",
            import.file.display()
        ))),
    }
}

pub(super) fn import_users(output: &ConsoleOutput, import: &UserImport) -> Result<(), CommandFailure> {
    let UserImport { import, leave_out } = import;
    let whole = read_foreign_config_text(&import.file).map_err(CommandFailure::runtime_error)?;
    let (place, mut store) = open_store(&import.config)?;
    let mut open = |file: &Path| read_foreign_config_text(file);
    // Use the canonical path, because group names derive from it and must not depend on its spelling.
    let file = import.file.canonicalize().unwrap_or_else(|_| import.file.clone());
    let reader = UsersImport {
        file,
        leave_out: *leave_out,
        open: Some(&mut open),
        ..UsersImport::new(&place.loaded.dictionary)
    };
    let (file, left) = reader.read_text(&whole);
    reject_unsafe_import(output, import, "users", &left)?;
    for group in &file.groups {
        store.put_group(group).map_err(CommandFailure::runtime_error)?;
    }
    let taken = file.users.len();
    let canonical = |name: String| usher_aaa::name_spellings(&name).into_iter().next().unwrap_or(name);
    let mut users = file.users.into_iter().map(|(name, rows)| (canonical(name), rows));
    store.put_users(&mut users).map_err(CommandFailure::runtime_error)?;
    notify_aaa_server(output, &place, &ControlRequest::Forget { user: None, disconnect: false });
    report_import(output, import, "users", taken, &left)
}

pub(super) fn import_clients(output: &ConsoleOutput, import: &ImportArgs) -> Result<(), CommandFailure> {
    let (list, left) =
        clients_conf(&read_foreign_config_text(&import.file).map_err(CommandFailure::runtime_error)?);
    reject_unsafe_import(output, import, "clients", &left)?;
    let (place, mut store) = open_store(&import.config)?;
    for client in &list {
        store.put_client(client).map_err(CommandFailure::runtime_error)?;
    }
    notify_aaa_server(output, &place, &ControlRequest::Reload);
    report_import(output, import, "clients", list.len(), &left)
}
