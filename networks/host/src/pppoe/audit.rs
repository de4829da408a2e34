//! Who asked who had an address, and what the answer was: lines of files for each day.

use super::daily::{Daily, day};
use crate::setup::wall;
use serde::Serialize;
use std::io::{self, Write};
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use usher_concentrator::config::Tracking;
use usher_ident::Connection;

/// Who asked for whom.
#[derive(Clone, Debug, Default)]
pub(super) struct Audit(Option<Arc<Daily>>);

#[derive(Serialize)]
struct AuditLine<'a> {
    at: String,
    by: &'a str,
    question: String,
    answer: &'a str,
}

impl Audit {
    pub(super) fn of(base: &Path, table: &Tracking) -> Self {
        let named = !table.audit.as_os_str().is_empty();
        Self(named.then(|| Arc::new(Daily::called(&base.join(&table.folder).join(&table.audit)))))
    }
    /// Its files; `None`: there is none.
    pub(super) fn files(&self) -> Option<&Daily> {
        self.0.as_deref()
    }
    pub(super) fn write(&self, by: &str, question: String, answer: &str) -> io::Result<()> {
        let Some(files) = &self.0 else { return Ok(()) };
        let at = wall();
        let mut line = serde_json::to_vec(&AuditLine { at: at.to_string(), by, question, answer })?;
        line.push(b'\n');
        files.append(&day(at))?.write_all(&line)
    }
    /// IDENT is about to answer somebody.
    pub(super) fn ident(&self, asker: SocketAddr, connection: &Connection, answer: &str) {
        let question = format!("IDENT {} {}", connection.local, connection.remote);
        if let Err(error) = self.write(&asker.ip().to_string(), question, answer) {
            tracing::error!(%error, "who asked is not in the audit");
        }
    }
}
