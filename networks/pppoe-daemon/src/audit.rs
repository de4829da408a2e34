//! The audit of address queries: the asker, the address and the result. Its files have lines, one file per day.

use super::daily::{DailyLogFiles, utc_day};
use serde::Serialize;
use std::io::{self, Write};
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use usher_concentrator::config::SessionLogTable;
use usher_ident::QueriedConnection;
use usher_service::setup::wall_time;

/// Appends queries and their results to the audit.
#[derive(Clone, Debug, Default)]
pub(super) struct AddressQueryAuditLog(Option<Arc<DailyLogFiles>>);

#[derive(Serialize)]
struct AddressQueryAuditLine<'a> {
    at: String,
    by: &'a str,
    question: String,
    answer: &'a str,
}

impl AddressQueryAuditLog {
    pub(super) fn from_tracking(base: &Path, table: &SessionLogTable) -> Self {
        let named = !table.audit.as_os_str().is_empty();
        Self(named.then(|| Arc::new(DailyLogFiles::from_path(&base.join(&table.folder).join(&table.audit)))))
    }
    /// Returns the files. `None`: there is no audit.
    pub(super) fn daily_files(&self) -> Option<&DailyLogFiles> {
        self.0.as_deref()
    }
    pub(super) fn write_audit_entry(&self, by: &str, question: String, answer: &str) -> io::Result<()> {
        let Some(files) = &self.0 else { return Ok(()) };
        let at = wall_time();
        let mut line =
            serde_json::to_vec(&AddressQueryAuditLine { at: at.to_string(), by, question, answer })?;
        line.push(b'\n');
        files.open_day(&utc_day(at))?.write_all(&line)
    }
    /// Records an IDENT query before its response is sent.
    pub(super) fn record_ident(&self, asker: SocketAddr, connection: &QueriedConnection, answer: &str) {
        let question = format!("IDENT {} {}", connection.local, connection.remote);
        if let Err(error) = self.write_audit_entry(&asker.ip().to_string(), question, answer) {
            tracing::error!(%error, "cannot write an IDENT query to the audit");
        }
    }
}
