//! Who asked who had an address, and what the answer was: lines of files for each day.

use super::daily::{DailyFiles, utc_day};
use crate::setup::wall_time;
use serde::Serialize;
use std::io::{self, Write};
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use usher_concentrator::config::TrackingTable;
use usher_ident::QueriedConnection;

/// Who asked for whom.
#[derive(Clone, Debug, Default)]
pub(super) struct QueryAudit(Option<Arc<DailyFiles>>);

#[derive(Serialize)]
struct AuditLine<'a> {
    at: String,
    by: &'a str,
    question: String,
    answer: &'a str,
}

impl QueryAudit {
    pub(super) fn from_tracking(base: &Path, table: &TrackingTable) -> Self {
        let named = !table.audit.as_os_str().is_empty();
        Self(named.then(|| Arc::new(DailyFiles::from_path(&base.join(&table.folder).join(&table.audit)))))
    }
    /// Its files; `None`: there is none.
    pub(super) fn daily_files(&self) -> Option<&DailyFiles> {
        self.0.as_deref()
    }
    pub(super) fn write_entry(&self, by: &str, question: String, answer: &str) -> io::Result<()> {
        let Some(files) = &self.0 else { return Ok(()) };
        let at = wall_time();
        let mut line = serde_json::to_vec(&AuditLine { at: at.to_string(), by, question, answer })?;
        line.push(b'\n');
        files.open_day(&utc_day(at))?.write_all(&line)
    }
    /// IDENT is about to answer somebody.
    pub(super) fn record_ident(&self, asker: SocketAddr, connection: &QueriedConnection, answer: &str) {
        let question = format!("IDENT {} {}", connection.local, connection.remote);
        if let Err(error) = self.write_entry(&asker.ip().to_string(), question, answer) {
            tracing::error!(%error, "who asked is not in the audit");
        }
    }
}
