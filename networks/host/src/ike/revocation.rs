//! Revocation of peer certificates: lists that are read and fetched while the gateway runs, and OCSP queries to
//! issuers.

use super::learned::{self, LearnedListCache};
use crate::CommandSender;
use crate::setup::wall_time;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use usher_config::hosts::is_of;
use usher_core::{JobRequest, WallTime};
use usher_crypto::x509::{CertificateInfo, RevocationList};
use usher_gateway::GatewayCommand;
use usher_gateway::config::{LoadedGatewayConfig, OcspPolicy, RevocationTable};
use usher_ike::credentials::{IkeCredentials, certificate_names, valid_until};
use usher_ike::machine::{IkeCommand, IkeJob, LocalAuth};
use usher_pki::ocsp::{NONCE_LEN, OcspClient, OcspStatus, StatusQuery};
use usher_pki::{ListPublisher, is_namesake, renew_list, stored_list_path};

/// The timeout and the size limit in octets for a configured list.
const PUBLISHER: (Duration, u64) = (Duration::from_secs(10), 32 << 20);
/// The same for a list that a peer's certificate names, for which a login waits.
const PUBLISHER_OF_PEERS: (Duration, u64) = (Duration::from_secs(3), 4 << 20);
/// The timeout of an OCSP query.
const RESPONDER: Duration = Duration::from_secs(3);
/// The interval at which due tasks are checked.
const TICK: Duration = Duration::from_secs(1);
/// The delay after a failure before the next attempt, unless the usual interval is shorter.
const RETRY: Duration = Duration::from_secs(30);
/// The number of concurrent OCSP queries. The pool has this many workers in addition.
pub(super) const MAX_CONCURRENT_QUERIES: usize = 12;

fn lock_mutex<T>(of: &Mutex<T>) -> MutexGuard<'_, T> {
    of.lock().unwrap_or_else(PoisonError::into_inner)
}

fn ocsp_nonce() -> std::io::Result<[u8; NONCE_LEN]> {
    let mut octets = [0; NONCE_LEN];
    rustix::rand::getrandom(&mut octets, rustix::rand::GetRandomFlags::empty())?;
    Ok(octets)
}

/// The parts of a configuration that concern revocation.
#[derive(Debug)]
struct RevocationSources {
    table: RevocationTable,
    /// The credentials without lists.
    credentials: Arc<IkeCredentials>,
    authorities: Vec<Vec<u8>>,
    /// This side's certificate chains, DER, by connection.
    own: BTreeMap<String, Vec<Vec<u8>>>,
}

impl RevocationSources {
    fn new(loaded: &LoadedGatewayConfig) -> Self {
        let credentials = loaded.credentials.clone();
        let authorities: Vec<Vec<u8>> = credentials.trusted_authorities().map(<[u8]>::to_vec).collect();
        let own = loaded.config.peers.iter().filter_map(|peer| {
            let LocalAuth::Certificate { chain, .. } = &peer.connection.local_auth else { return None };
            Some((peer.connection.name.clone(), with_issuer(chain, &authorities)))
        });
        let own = own.collect();
        Self { table: loaded.file.revocation.clone(), credentials, authorities, own }
    }
    fn list_urls(&self) -> Vec<String> {
        let mut urls = self.table.crl_url.clone();
        if self.table.crl_distribution_points {
            let named = self.authorities.iter().filter_map(|der| CertificateInfo::of_der(der).ok());
            let named = named.flat_map(|said| said.crl).filter(|url| url.starts_with("http://"));
            for url in named {
                if !urls.contains(&url) {
                    urls.push(url);
                }
            }
        }
        urls
    }
    fn is_signed(&self, list: &RevocationList) -> bool {
        list.is_signed_by(self.authorities.iter().map(Vec::as_slice))
    }
    /// Loads the configured and the fetched lists. Of lists about the same certificates, keeps the latest.
    fn load_lists(&self) -> Result<Vec<RevocationList>, String> {
        let mut all: Vec<RevocationList> = Vec::new();
        let mut add = |list: RevocationList| match all.iter_mut().find(|other| other.is_about_those_of(&list))
        {
            None => all.push(list),
            Some(other) if list.is_later_than(other) => *other = list,
            Some(_) => {}
        };
        for path in &self.table.crl {
            let octets = fs::read(path).map_err(|error| format!("{}: {error}", path.display()))?;
            let lists = RevocationList::read_lists(&octets)
                .map_err(|error| format!("{}: {error}", path.display()))?;
            lists.into_iter().for_each(&mut add);
        }
        for url in self.list_urls() {
            // A list that is missing, or of a former authority, is fetched later.
            let Ok(octets) = fs::read(stored_list_path(&self.table.state_dir, &url)) else { continue };
            let lists = RevocationList::read_lists(&octets).unwrap_or_default();
            lists.into_iter().filter(|list| self.is_signed(list)).for_each(&mut add);
        }
        Ok(all)
    }
    /// Fetches a list. True if it is new.
    fn fetch_list(&self, url: &str, now: WallTime) -> Result<bool, String> {
        let publisher = ListPublisher { url, timeout: PUBLISHER.0, longest: PUBLISHER.1 };
        let signed = |list: &RevocationList| self.is_signed(list);
        let path = stored_list_path(&self.table.state_dir, url);
        renew_list(&path, &publisher, (&signed, "no authority of ca has signed"), now)
    }
}

/// Returns a chain. If it has one certificate, appends the issuer from the known authorities.
fn with_issuer(chain: &[Vec<u8>], authorities: &[Vec<u8>]) -> Vec<Vec<u8>> {
    let mut chain = chain.to_vec();
    let issuer = match &chain[..] {
        [leaf] => CertificateInfo::of_der(leaf).ok().and_then(|leaf| {
            let issued =
                |der: &&Vec<u8>| CertificateInfo::of_der(der).is_ok_and(|ca| ca.subject == leaf.issuer);
            authorities.iter().find(issued).cloned()
        }),
        _ => None,
    };
    chain.extend(issuer);
    chain
}

/// A shared handle of the state that verifies certificates.
#[derive(Clone, Debug)]
pub(super) struct RevocationChecker {
    sources: Arc<Mutex<Arc<RevocationSources>>>,
    newest: Arc<Mutex<Arc<IkeCredentials>>>,
    /// The lists in use.
    used: Arc<Mutex<Vec<RevocationList>>>,
    /// The lists that peer certificates named.
    learned: Arc<Mutex<LearnedListCache>>,
    update: Arc<Mutex<UpdateLock>>,
    /// Held during an OCSP query about this side's own certificate.
    showing: Arc<Mutex<()>>,
    ocsp_client: OcspClient,
    active_queries: Arc<AtomicUsize>,
    command_sender: CommandSender<GatewayCommand>,
}

/// A lock for updating lists, held until the consequences are sent. Otherwise an older reading could overwrite a
/// newer one.
#[derive(Debug, Default)]
struct UpdateLock;

/// The state between two checks.
#[derive(Default)]
struct ListRefreshState {
    /// When each source is due.
    due: BTreeMap<String, Instant>,
    /// The last logged error of each source.
    last_errors: BTreeMap<String, String>,
}

impl ListRefreshState {
    /// Logs an error once, while it stays the same.
    fn report_error(&mut self, from: &str, error: String) {
        if self.last_errors.get(from) != Some(&error) {
            tracing::error!(from, error, "no new revocation list");
            self.last_errors.insert(from.to_owned(), error);
        }
    }
}

impl RevocationChecker {
    /// Creates the state of a configuration. Fetches the lists that were never fetched.
    ///
    /// # Errors
    /// A file is not a valid list.
    pub(super) fn new(
        loaded: &LoadedGatewayConfig,
        telling: &CommandSender<GatewayCommand>,
    ) -> Result<Self, String> {
        let of = Arc::new(RevocationSources::new(loaded));
        let this = Self {
            newest: Arc::new(Mutex::new(of.credentials.clone())),
            sources: Arc::new(Mutex::new(of)),
            used: Arc::default(),
            learned: Arc::default(),
            update: Arc::default(),
            showing: Arc::default(),
            ocsp_client: OcspClient::default(),
            active_queries: Arc::default(),
            command_sender: telling.clone(),
        };
        this.reload_lists(&lock_mutex(&this.update))?;
        Ok(this)
    }
    /// Applies another configuration.
    pub(super) fn apply_config(&self, loaded: &LoadedGatewayConfig) {
        let of = Arc::new(RevocationSources::new(loaded));
        let update = lock_mutex(&self.update);
        *lock_mutex(&self.sources) = of.clone();
        let taken = of.load_lists().and_then(|lists| self.use_lists(&update, &of, lists));
        if taken.is_ok() {
            self.send_revoked_certificates(&update);
        }
        if let Err(error) = taken {
            tracing::error!(error, "the revocation lists are not taken up; those of before are used");
            let before = lock_mutex(&self.used).clone();
            if let Err(error) = self.use_lists(&update, &of, before) {
                tracing::error!(error, "nor these");
            }
        }
    }

    /// Tells the gateway which certificates the lists in use revoke, so that it deletes their SAs. Lists that peer
    /// certificates name are excluded: they count only for the peers that present such a certificate.
    fn send_revoked_certificates(&self, _: &UpdateLock) {
        let revoked: BTreeSet<_> =
            lock_mutex(&self.used).iter().flat_map(RevocationList::revoked_certificates).collect();
        self.command_sender.send_command(GatewayCommand::Revoked(Arc::new(revoked)));
    }

    /// Reloads the lists. True if they have changed.
    fn reload_lists(&self, update: &UpdateLock) -> Result<bool, String> {
        let of = lock_mutex(&self.sources).clone();
        let lists = of.load_lists()?;
        if lists == *lock_mutex(&self.used) {
            return Ok(false);
        }
        self.use_lists(update, &of, lists).map(|()| true)
    }

    fn use_lists(
        &self,
        _: &UpdateLock,
        of: &RevocationSources,
        lists: Vec<RevocationList>,
    ) -> Result<(), String> {
        let learned = lock_mutex(&self.learned).current_lists(wall_time());
        let octets: Vec<Vec<u8>> = lists.iter().chain(&learned).map(|list| list.der().to_vec()).collect();
        let credentials = of.credentials.with_revocation_lists(&octets).map_err(|error| error.to_string())?;
        *lock_mutex(&self.newest) = Arc::new(credentials);
        *lock_mutex(&self.used) = lists;
        Ok(())
    }

    /// Starts the thread that refreshes lists. Before it returns, it fetches the lists that were never fetched.
    pub(super) fn start_refreshing(&self) -> std::io::Result<()> {
        let this = self.clone();
        let mut watch = ListRefreshState::default();
        this.refresh_due(&mut watch);
        let body = move || {
            loop {
                std::thread::sleep(TICK);
                this.refresh_due(&mut watch);
            }
        };
        std::thread::Builder::new().name("usher-ike-lists".to_owned()).spawn(body).map(drop)
    }

    fn refresh_due(&self, watch: &mut ListRefreshState) {
        let of = lock_mutex(&self.sources).clone();
        let every = Duration::from_nanos(of.table.crl_interval.get().as_nanos());
        let urls = of.list_urls();
        if urls.is_empty() && of.table.crl.is_empty() {
            return;
        }
        let (now, files) = (Instant::now(), String::new());
        let mut sources = urls;
        sources.push(files.clone());
        watch.due.retain(|source, _| sources.contains(source));
        let is_due = |due: Option<&Instant>| due.is_none_or(|due| *due <= now);
        let due: Vec<String> = sources.into_iter().filter(|source| is_due(watch.due.get(source))).collect();
        if due.is_empty() {
            return;
        }
        for url in due.iter().filter(|source| **source != files) {
            let fetched = of.fetch_list(url, wall_time());
            let wait = if fetched.is_ok() { every } else { RETRY.min(every) };
            watch.due.insert(url.clone(), now + wait);
            match fetched {
                Ok(_) => drop(watch.last_errors.remove(url)),
                Err(error) => watch.report_error(url, error),
            }
        }
        watch.due.insert(files.clone(), now + every);
        let update = lock_mutex(&self.update);
        match self.reload_lists(&update) {
            Ok(true) => {
                self.command_sender.send_command(GatewayCommand::VoidTickets);
                self.send_revoked_certificates(&update);
                for list in lock_mutex(&self.used).iter() {
                    let (issuer, revoked) = (&list.issuer, list.revoked);
                    tracing::info!(issuer, revoked, number = list.crl_number(), "revocation list");
                }
                watch.last_errors.remove(&files);
            }
            Ok(false) => drop(watch.last_errors.remove(&files)),
            Err(error) => watch.report_error(&files, error),
        }
        drop(update);
        let over = |list: &&RevocationList| !list.is_of_now(wall_time());
        let over: Vec<String> =
            lock_mutex(&self.used).iter().filter(over).map(|list| list.issuer.clone()).collect();
        for issuer in over {
            watch.report_error(
                &issuer,
                "it is out of date: nobody with a certificate of it is let in".to_owned(),
            );
        }
    }

    /// Does a job of IKE. Logs why a certificate is rejected.
    pub(super) fn run_job(&self, job: &JobRequest<IkeJob>) -> IkeCommand {
        let token = job.token;
        let (connection, identity, shown) = match &job.job {
            IkeJob::Verify { connection, identity, ocsp, .. } => (connection, identity, ocsp),
            IkeJob::Sign { connection, ocsp, .. } => {
                let credentials = lock_mutex(&self.newest).clone();
                return match credentials.answer_job(job) {
                    IkeCommand::Signed { token, signature, .. } if *ocsp => {
                        IkeCommand::Signed { token, signature, ocsp: self.to_show(connection) }
                    }
                    answer => answer,
                };
            }
        };
        // An expired list would reject all certificates of its issuer.
        if lock_mutex(&self.learned).has_ended(wall_time()) {
            self.rebuild_credentials();
        }
        let verified = || -> Result<_, String> {
            let credentials = lock_mutex(&self.newest).clone();
            let path = credentials.verify_proof(&job.job).map_err(|why| why.to_string())?;
            Ok((credentials, path))
        };
        let listed = verified().and_then(|(credentials, path)| match self.learn_lists(&path)? {
            true => verified(),
            false => Ok((credentials, path)),
        });
        let taken = listed.and_then(|(credentials, path)| {
            let said = self.check_ocsp(&credentials, connection, &path, shown)?;
            let ends = said.into_iter().chain(self.lists_end(&path));
            Ok((ends.fold(valid_until(&path), WallTime::min), certificate_names(&path)))
        });
        if let Err(cause) = &taken {
            tracing::warn!(connection, %identity, cause, "a certificate is not taken");
        }
        let (until, certificates) = taken.ok().unzip();
        IkeCommand::Verified { token, until, certificates: certificates.unwrap_or_default() }
    }

    /// Returns when the lists of a path's issuers expire, if they say so.
    fn lists_end(&self, path: &[Vec<u8>]) -> Vec<WallTime> {
        let issuers: Vec<String> =
            path.iter().filter_map(|der| CertificateInfo::of_der(der).ok()).map(|said| said.issuer).collect();
        let learned = lock_mutex(&self.learned).current_lists(wall_time());
        let used = lock_mutex(&self.used);
        used.iter()
            .chain(&learned)
            .filter(|list| issuers.contains(&list.issuer))
            .filter_map(|list| list.next_update)
            .collect()
    }

    /// Checks by OCSP that a certificate is good. Returns how long the result is valid.
    fn check_ocsp(
        &self,
        credentials: &IkeCredentials,
        connection: &str,
        path: &[Vec<u8>],
        shown: &[Vec<u8>],
    ) -> Result<Option<WallTime>, String> {
        let of = lock_mutex(&self.sources).clone();
        if of.table.ocsp == OcspPolicy::Off {
            return Ok(None);
        }
        // Without an OCSP response the result is valid for this moment only.
        let unsaid = |why: &str| match of.table.ocsp {
            OcspPolicy::Hard => Err(format!("its status is not known: {why}")),
            _ => {
                tracing::warn!(connection, why, "a certificate's status is not known: it is taken");
                Ok(Some(wall_time()))
            }
        };
        let asked = StatusQuery {
            path,
            url: of.table.ocsp_url.as_deref(),
            timeout: RESPONDER,
            now: wall_time(),
            nonce: &ocsp_nonce,
            appointed: &|chain| credentials.is_chain_trusted(connection, chain),
        };
        // RFC 4806 3.2: a valid response in the message saves a query. An invalid one counts as absent.
        let shown = shown.iter().map(|response| self.ocsp_client.check_stapled_response(&asked, response));
        let mut shown: Vec<_> = shown
            .filter_map(|said| {
                said.map_err(|why| tracing::debug!(connection, why, "a response of OCSP is not believed"))
                    .ok()
            })
            .collect();
        shown.sort_by_key(|said| said.status != OcspStatus::Revoked);
        match shown.first() {
            Some(said) if said.status == OcspStatus::Revoked => {
                return Err("its authority has revoked it (OCSP)".to_owned());
            }
            Some(said) if said.status == OcspStatus::Good => {
                return Ok(Some(said.next_update.unwrap_or_else(wall_time)));
            }
            _ => {}
        }
        // A slow responder occupies a bounded number of workers: the others still do signatures.
        if self.active_queries.fetch_add(1, Ordering::AcqRel) >= MAX_CONCURRENT_QUERIES {
            self.active_queries.fetch_sub(1, Ordering::AcqRel);
            return unsaid("too many are asked about at this moment");
        }
        let said = self.ocsp_client.query_status(&asked);
        self.active_queries.fetch_sub(1, Ordering::AcqRel);
        let said = match said {
            Ok(said) => said,
            Err(why) => return unsaid(&why.why),
        };
        match said.status {
            OcspStatus::Good => Ok(Some(said.next_update.unwrap_or_else(wall_time))),
            OcspStatus::Revoked => Err("its authority has revoked it (OCSP)".to_owned()),
            OcspStatus::Unknown => unsaid("the responder does not know it"),
        }
    }

    /// Returns an OCSP response about a connection's own certificate. Queries run one at a time, so that a slow
    /// responder occupies one worker.
    fn to_show(&self, connection: &str) -> Option<Vec<u8>> {
        let of = lock_mutex(&self.sources).clone();
        let path = of.own.get(connection).filter(|_| of.table.ocsp_response)?;
        let _one = self.showing.try_lock().ok()?;
        let asked = StatusQuery {
            path,
            url: of.table.ocsp_url.as_deref(),
            timeout: RESPONDER,
            now: wall_time(),
            nonce: &ocsp_nonce,
            // The peer checks this itself.
            appointed: &|_| true,
        };
        let shown = self.ocsp_client.to_show(&asked);
        shown.map_err(|why| tracing::debug!(connection, why = why.why, "no response of OCSP to show")).ok()
    }

    /// Applies the current lists to the credentials.
    fn rebuild_credentials(&self) {
        let update = lock_mutex(&self.update);
        let (of, lists) = (lock_mutex(&self.sources).clone(), lock_mutex(&self.used).clone());
        if let Err(error) = self.use_lists(&update, &of, lists) {
            tracing::error!(error, "the revocation lists are not taken up");
        }
        self.command_sender.send_command(GatewayCommand::VoidTickets);
    }

    /// Fetches missing lists that the certificates of a path name, if the configuration wants them. True if there are
    /// new lists.
    fn learn_lists(&self, path: &[Vec<u8>]) -> Result<bool, String> {
        let of = lock_mutex(&self.sources).clone();
        let (hosts, required) = (&of.table.crl_from_peers, of.table.crl_required);
        if hosts.is_empty() && !required {
            return Ok(false);
        }
        let every = Duration::from_nanos(of.table.crl_interval.get().as_nanos());
        let mut changed = false;
        for pair in path.windows(2) {
            let [certificate, issuer] = pair else { continue };
            let signed = |list: &RevocationList| list.is_signed_by([issuer.as_slice()]);
            if lock_mutex(&self.used).iter().any(|list| list.is_of_now(wall_time()) && signed(list)) {
                continue;
            }
            let mut named = CertificateInfo::of_der(certificate).map_or_else(|_| Vec::new(), |said| said.crl);
            named.retain(|url| is_of(url, hosts));
            let said = if named.is_empty() {
                Err("it names none at a host of crl_from_peers".to_owned())
            } else if is_namesake(issuer, &of.authorities) {
                // Its list would reject every certificate of the authority with this name.
                Err("its issuer is called as an authority of ca is, and is none".to_owned())
            } else if self.active_queries.fetch_add(1, Ordering::AcqRel) >= MAX_CONCURRENT_QUERIES {
                self.active_queries.fetch_sub(1, Ordering::AcqRel);
                Err("too many are asked about at this moment".to_owned())
            } else {
                let places = (&named[..], PUBLISHER_OF_PEERS);
                let fetched = learned::fetch_lists(&self.learned, places, (&signed, every), wall_time());
                self.active_queries.fetch_sub(1, Ordering::AcqRel);
                fetched
            };
            match said {
                Ok(other) => changed |= other,
                Err(why) if required => {
                    return Err(format!("no revocation list of its issuer is known: {why}"));
                }
                Err(why) if named.is_empty() => {
                    tracing::debug!(why, "a certificate is on no list that is known")
                }
                Err(why) => {
                    tracing::warn!(why, "a certificate's revocation list is not to be had: it is taken")
                }
            }
        }
        if changed {
            self.rebuild_credentials();
        }
        Ok(changed)
    }
}
