//! A server that runs: what its parts share, and what it is told while it does.

mod reload;

use crate::installation::ServerInstallation;
use crate::ledger::LedgerHandle;
use crate::mailbox::ShardMailboxes;
use crate::ready::StoreAnswer;
use crate::shards::UpstreamServers;
use crate::stats::SharedHistogram;
use crate::status::CertificateStatus;
use crate::within::EmbeddingClient;
use crate::workers::{SharedUserCache, WorkerPool};
use std::collections::BTreeMap;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::Instant as Monotonic;
use usher_aaa::service::{InlineUsers, RowReader};
use usher_aaa::store::{ClientRow, Store, UserRows};
use usher_aaa::{ShardKey, User};
use usher_aaa_config::BuiltConfig;
use usher_aaa_config::tls::TlsConfigs;
use usher_core::{Duration, WallTime};
use usher_crypto::tls::WallClock;
use usher_live::{SystemClock, TlsServer};
use usher_radius::attribute::AttributeList;

/// A difference that no drift makes within a second.
const SET: Duration = Duration::from_secs(1);

/// What the parts that look at a running server share.
pub(crate) struct RunningServer {
    pub(crate) mailboxes: ShardMailboxes,
    pub(crate) ledger: LedgerHandle,
    pub(crate) workers: WorkerPool,
    pub(crate) tls: RwLock<Option<Arc<TlsConfigs>>>,
    /// How long look-ups in the store took.
    pub(crate) lookups: Arc<SharedHistogram>,
    pub(crate) started_at: Monotonic,
    pub(crate) reloads: Mutex<(u64, u64)>,
    /// Attempts to get new revocation lists, by where from and what came of it.
    pub(crate) lists: Mutex<BTreeMap<(String, &'static str), u64>>,
    pub(crate) shards: usize,
    pub(crate) clock: SystemClock,
    /// The configuration as it is now.
    pub(crate) installation: RwLock<ServerInstallation>,
    pub(crate) admin: Mutex<Box<dyn Store>>,
    /// What it said last to those who look whether the server is ready.
    pub(crate) store_answer: StoreAnswer,
    pub(crate) inline: Arc<RwLock<InlineUsers>>,
    /// Users as the store told of them.
    pub(crate) user_cache: Arc<SharedUserCache>,
    pub(crate) status: Arc<RwLock<CertificateStatus>>,
    pub(crate) reading: Arc<RwLock<RowReader>>,
    pub(crate) listeners: Vec<TlsServer>,
    pub(crate) outgoing: Arc<RwLock<UpstreamServers>>,
    pub(crate) wall: WallClock,
    pub(crate) config_path: Option<std::path::PathBuf>,
    /// Who asks it within this program.
    pub(crate) embedding_client: Option<EmbeddingClient>,
    /// What the server was started with: some of it stays until it is started again.
    pub(crate) start: ServerInstallation,
    /// The control socket, which is where it was at the start whatever is configured by now.
    pub(crate) control: std::path::PathBuf,
    pub(crate) key: ShardKey,
    /// Held while a configuration is read and taken up.
    pub(crate) reloading: Mutex<()>,
    /// What the shards were made of, or took at the last reload; held during one.
    pub(crate) built: Mutex<BuiltConfig>,
    /// The store's clients, as they were then.
    pub(crate) rows: Mutex<Vec<ClientRow>>,
    /// How many configurations were taken up after the first.
    pub(crate) generation: AtomicU64,
}

impl RunningServer {
    /// The configuration as it is now.
    pub(crate) fn current_installation(&self) -> ServerInstallation {
        self.installation.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Whether logins and records of accounting can be served.
    ///
    /// # Errors
    /// Why not, in a line.
    pub(crate) fn check_ready(&self) -> Result<(), String> {
        self.store_answer.check_store(Monotonic::now(), &self.admin).map_err(|error| error.to_string())?;
        // It may answer, and take nothing.
        match &*self.ledger.stats.outage.lock().unwrap_or_else(PoisonError::into_inner) {
            Some(cause) => Err(format!("accounting is not written: {cause}")),
            None => Ok(()),
        }
    }

    /// Has the certificates judged by what the system's clock shows, and says where it was set since it was looked at last.
    pub(crate) fn follow_clock(&self, epoch: &mut WallTime) {
        let before = std::mem::replace(epoch, self.clock.wall_epoch());
        if *epoch > before + SET || before > *epoch + SET {
            tracing::warn!("the system's clock was set; times follow it");
        }
        self.wall.set(crate::clock::wall_time());
    }

    /// Adds what `ATTRIBUTE = VALUE` says.
    ///
    /// # Errors
    /// What is wrong with it.
    pub(crate) fn push_attribute(&self, text: &str, attributes: &mut AttributeList) -> Result<(), String> {
        let row = usher_aaa_config::parse_row(text)
            .ok_or_else(|| format!("\"{text}\" is not ATTRIBUTE = VALUE"))?;
        let rows = UserRows { reply: vec![row], ..UserRows::default() };
        let dictionary = self.current_installation().loaded.dictionary;
        let user = User::compile(&rows, &dictionary).map_err(|e| e.to_string())?;
        attributes.extend(&user.reply);
        Ok(())
    }
}
