//! A server that runs: what its parts share, and what it is told while it does.

mod reload;

use crate::installation::Installation;
use crate::ledger::LedgerHandle;
use crate::mailbox::Mailboxes;
use crate::ready::StoreAnswer;
use crate::shards::Upstreams;
use crate::stats::Latency;
use crate::status::CertificateStatus;
use crate::within::Within;
use crate::workers::{KnownUsers, Workers};
use std::collections::BTreeMap;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::Instant as Monotonic;
use usher_aaa::service::{Inline, Reading};
use usher_aaa::store::{ClientRow, Store, UserRows};
use usher_aaa::{ShardKey, User};
use usher_aaa_config::Built;
use usher_aaa_config::tls::Tls;
use usher_core::{Duration, WallTime};
use usher_crypto::tls::WallClock;
use usher_live::{Clock, TlsServer};
use usher_radius::attribute::Attributes;

/// A difference that no drift makes within a second.
const SET: Duration = Duration::from_secs(1);

/// What the parts that look at a running server share.
pub(crate) struct Running {
    pub(crate) mailboxes: Mailboxes,
    pub(crate) ledger: LedgerHandle,
    pub(crate) workers: Workers,
    pub(crate) tls: RwLock<Option<Arc<Tls>>>,
    /// How long look-ups in the store took.
    pub(crate) lookups: Arc<Latency>,
    pub(crate) begun: Monotonic,
    pub(crate) reloads: Mutex<(u64, u64)>,
    /// Attempts to get new revocation lists, by where from and what came of it.
    pub(crate) lists: Mutex<BTreeMap<(String, &'static str), u64>>,
    pub(crate) shards: usize,
    pub(crate) clock: Clock,
    /// The configuration as it is now.
    pub(crate) place: RwLock<Installation>,
    pub(crate) admin: Mutex<Box<dyn Store>>,
    /// What it said last to those who look whether the server is ready.
    pub(crate) store_answer: StoreAnswer,
    pub(crate) inline: Arc<RwLock<Inline>>,
    /// Users as the store told of them.
    pub(crate) known: Arc<KnownUsers>,
    pub(crate) status: Arc<RwLock<CertificateStatus>>,
    pub(crate) reading: Arc<RwLock<Reading>>,
    pub(crate) listeners: Vec<TlsServer>,
    pub(crate) outgoing: Arc<RwLock<Upstreams>>,
    pub(crate) wall: WallClock,
    pub(crate) config_path: Option<std::path::PathBuf>,
    /// Who asks it within this program.
    pub(crate) within: Option<Within>,
    /// What the server was started with: some of it stays until it is started again.
    pub(crate) start: Installation,
    /// The control socket, which is where it was at the start whatever is configured by now.
    pub(crate) control: std::path::PathBuf,
    pub(crate) key: ShardKey,
    /// Held while a configuration is read and taken up.
    pub(crate) reloading: Mutex<()>,
    /// What the shards were made of, or took at the last reload; held during one.
    pub(crate) built: Mutex<Built>,
    /// The store's clients, as they were then.
    pub(crate) rows: Mutex<Vec<ClientRow>>,
    /// How many configurations were taken up after the first.
    pub(crate) generation: AtomicU64,
}

impl Running {
    /// The configuration as it is now.
    pub(crate) fn read_place(&self) -> Installation {
        self.place.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Whether logins and records of accounting can be served.
    ///
    /// # Errors
    /// Why not, in a line.
    pub(crate) fn ready(&self) -> Result<(), String> {
        self.store_answer.at(Monotonic::now(), &self.admin).map_err(|error| error.to_string())?;
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
        self.wall.set(crate::clock::wall());
    }

    /// Adds what `ATTRIBUTE = VALUE` says.
    ///
    /// # Errors
    /// What is wrong with it.
    pub(crate) fn attribute(&self, text: &str, attributes: &mut Attributes) -> Result<(), String> {
        let row =
            usher_aaa_config::row(text).ok_or_else(|| format!("\"{text}\" is not ATTRIBUTE = VALUE"))?;
        let rows = UserRows { reply: vec![row], ..UserRows::default() };
        let dictionary = self.read_place().loaded.dictionary;
        let user = User::compile(&rows, &dictionary).map_err(|e| e.to_string())?;
        attributes.extend(&user.reply);
        Ok(())
    }
}
