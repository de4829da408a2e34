//! A running server: the state that its threads share.

mod reload;

use crate::embedded::EmbeddedServerClient;
use crate::installation::ServerInstallation;
use crate::ledger::LedgerHandle;
use crate::mailbox::ShardMailboxes;
use crate::ready::CachedStoreCheck;
use crate::shards::UpstreamServers;
use crate::stats::SharedHistogram;
use crate::status::CertificateCheckConfig;
use crate::workers::{SharedUserCache, WorkerPool};
use std::collections::BTreeMap;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::Instant as Monotonic;
use usher_aaa::service::{InlineUsers, UserRowReader};
use usher_aaa::store::{ClientRow, Store, UserRows};
use usher_aaa::{InterShardKey, User};
use usher_aaa_config::BuiltConfig;
use usher_aaa_config::tls::TlsConfigs;
use usher_core::{Duration, WallTime};
use usher_crypto::tls::SharedWallClock;
use usher_live::{SystemClock, TlsServer};
use usher_radius::attribute::AttributeList;

/// A change of the clock within a second that is no drift.
const SET: Duration = Duration::from_secs(1);

/// State that the threads of a running server share.
pub(crate) struct RunningServer {
    pub(crate) mailboxes: ShardMailboxes,
    pub(crate) ledger: LedgerHandle,
    pub(crate) workers: WorkerPool,
    pub(crate) tls: RwLock<Option<Arc<TlsConfigs>>>,
    /// Times of lookups in the store.
    pub(crate) lookups: Arc<SharedHistogram>,
    pub(crate) started_at: Monotonic,
    pub(crate) reloads: Mutex<(u64, u64)>,
    /// Attempts to update revocation lists, by source and result.
    pub(crate) lists: Mutex<BTreeMap<(String, &'static str), u64>>,
    pub(crate) shards: usize,
    pub(crate) clock: SystemClock,
    /// The current configuration.
    pub(crate) installation: RwLock<ServerInstallation>,
    pub(crate) admin: Mutex<Box<dyn Store>>,
    /// The store's last result for readiness checks.
    pub(crate) store_answer: CachedStoreCheck,
    pub(crate) inline: Arc<RwLock<InlineUsers>>,
    /// Cached users of the store.
    pub(crate) user_cache: Arc<SharedUserCache>,
    pub(crate) status: Arc<RwLock<CertificateCheckConfig>>,
    pub(crate) reading: Arc<RwLock<UserRowReader>>,
    pub(crate) listeners: Vec<TlsServer>,
    pub(crate) outgoing: Arc<RwLock<UpstreamServers>>,
    pub(crate) wall: SharedWallClock,
    pub(crate) config_path: Option<std::path::PathBuf>,
    /// Client of an embedded server.
    pub(crate) embedding_client: Option<EmbeddedServerClient>,
    /// The configuration of the start. Some settings change only at a restart.
    pub(crate) start: ServerInstallation,
    /// Path of the control socket. It does not change at a reload.
    pub(crate) control: std::path::PathBuf,
    pub(crate) key: InterShardKey,
    /// Locked during a reload.
    pub(crate) reloading: Mutex<()>,
    /// The configuration that the shards have. Locked during a reload.
    pub(crate) built: Mutex<BuiltConfig>,
    /// The store's clients at the last reload.
    pub(crate) rows: Mutex<Vec<ClientRow>>,
    /// Number of reloads.
    pub(crate) generation: AtomicU64,
}

impl RunningServer {
    /// Returns the current configuration.
    pub(crate) fn current_installation(&self) -> ServerInstallation {
        self.installation.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Checks that logins and accounting can be served.
    ///
    /// # Errors
    /// The cause in a line.
    pub(crate) fn check_ready(&self) -> Result<(), String> {
        self.store_answer.check_store(Monotonic::now(), &self.admin).map_err(|error| error.to_string())?;
        // A readable store may still refuse writes, so readiness also depends on the accounting outage.
        match &*self.ledger.stats.outage.lock().unwrap_or_else(PoisonError::into_inner) {
            Some(cause) => Err(format!("accounting is not written: {cause}")),
            None => Ok(()),
        }
    }

    /// Has certificates checked against the system's clock, and logs if it was set.
    pub(crate) fn update_certificate_clock(&self, epoch: &mut WallTime) {
        let before = std::mem::replace(epoch, self.clock.wall_epoch());
        if *epoch > before + SET || before > *epoch + SET {
            tracing::warn!("the system's clock was set: the server follows it");
        }
        self.wall.set(usher_service::setup::wall_time());
    }

    /// Appends the attribute of `ATTRIBUTE = VALUE`.
    ///
    /// # Errors
    /// The error in the text.
    pub(crate) fn push_attribute(&self, text: &str, attributes: &mut AttributeList) -> Result<(), String> {
        let row = usher_aaa_config::parse_row(text)
            .ok_or_else(|| format!("\"{text}\" does not have the form ATTRIBUTE = VALUE"))?;
        let rows = UserRows { reply: vec![row], ..UserRows::default() };
        let dictionary = self.current_installation().loaded.dictionary;
        let user = User::compile(&rows, &dictionary).map_err(|e| e.to_string())?;
        attributes.extend(&user.reply);
        Ok(())
    }
}
