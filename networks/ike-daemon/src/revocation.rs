//! Revocation of peer certificates: lists that are read and fetched while the gateway runs, and OCSP queries to
//! issuers.

use super::peer_lists::{self, RevocationListCache};
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
use usher_pki::ocsp::{CertificateStatusQuery, NONCE_LEN, OcspClient, OcspStatus};
use usher_pki::{RevocationListPublisher, renew_list, shares_name_with_root, stored_list_path};
use usher_service::CommandSender;
use usher_service::setup::wall_time;

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
struct RevocationSettings {
    table: RevocationTable,
    /// The credentials without lists.
    credentials: Arc<IkeCredentials>,
    authorities: Vec<Vec<u8>>,
    /// This side's certificate chains, DER, by connection.
    own: BTreeMap<String, Vec<Vec<u8>>>,
}

impl RevocationSettings {
    fn new(loaded: &LoadedGatewayConfig) -> Self {
        let credentials = loaded.credentials.clone();
        let authorities: Vec<Vec<u8>> = credentials.trusted_authorities().map(<[u8]>::to_vec).collect();
        let own = loaded.config.peers.iter().filter_map(|peer| {
            let LocalAuth::Certificate { chain, .. } = &peer.connection.local_auth else { return None };
            Some((peer.connection.name.clone(), chain_with_issuer(chain, &authorities)))
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
    /// Loads the configured and the fetched lists. Keeps only the latest of several lists about the same certificates.
    fn load_revocation_lists(&self) -> Result<Vec<RevocationList>, String> {
        let mut all: Vec<RevocationList> = Vec::new();
        let mut add = |list: RevocationList| match all
            .iter_mut()
            .find(|other| other.has_same_issuer_and_scope(&list))
        {
            None => all.push(list),
            Some(other) if list.supersedes_list(other) => *other = list,
            Some(_) => {}
        };
        for path in &self.table.crl {
            let octets = fs::read(path).map_err(|error| format!("{}: {error}", path.display()))?;
            let lists = RevocationList::parse_revocation_lists(&octets)
                .map_err(|error| format!("{}: {error}", path.display()))?;
            lists.into_iter().for_each(&mut add);
        }
        for url in self.list_urls() {
            // A list that is missing, or comes from an earlier authority, is fetched later.
            let Ok(octets) = fs::read(stored_list_path(&self.table.state_dir, &url)) else { continue };
            let lists = RevocationList::parse_revocation_lists(&octets).unwrap_or_default();
            lists.into_iter().filter(|list| self.is_signed(list)).for_each(&mut add);
        }
        Ok(all)
    }
    /// Fetches a list. True if it is new.
    fn fetch_list(&self, url: &str, now: WallTime) -> Result<bool, String> {
        let publisher = RevocationListPublisher { url, timeout: PUBLISHER.0, longest: PUBLISHER.1 };
        let signed = |list: &RevocationList| self.is_signed(list);
        let path = stored_list_path(&self.table.state_dir, url);
        renew_list(&path, &publisher, (&signed, "no authority of ca has signed"), now)
    }
}

/// Returns a chain. If it has one certificate, appends the issuer from the known authorities.
fn chain_with_issuer(chain: &[Vec<u8>], authorities: &[Vec<u8>]) -> Vec<Vec<u8>> {
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
    sources: Arc<Mutex<Arc<RevocationSettings>>>,
    newest: Arc<Mutex<Arc<IkeCredentials>>>,
    /// The lists in use.
    used: Arc<Mutex<Vec<RevocationList>>>,
    /// The lists that peer certificates named.
    learned: Arc<Mutex<RevocationListCache>>,
    update: Arc<Mutex<RevocationUpdateLock>>,
    /// Held during an OCSP query about this side's own certificate.
    showing: Arc<Mutex<()>>,
    ocsp_client: OcspClient,
    active_queries: Arc<AtomicUsize>,
    command_sender: CommandSender<GatewayCommand>,
}

/// A lock for updating lists, held until the consequences are sent. Otherwise an older reading could overwrite a
/// newer one.
#[derive(Debug, Default)]
struct RevocationUpdateLock;

/// The state between two checks.
#[derive(Default)]
struct RevocationRefreshState {
    /// When each source is due.
    due: BTreeMap<String, Instant>,
    /// The last logged error of each source.
    last_errors: BTreeMap<String, String>,
}

impl RevocationRefreshState {
    /// Logs an error once, while it stays the same.
    fn report_error(&mut self, from: &str, error: String) {
        if self.last_errors.get(from) != Some(&error) {
            tracing::error!(from, error, "cannot refresh a revocation list");
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
        command_sender: &CommandSender<GatewayCommand>,
    ) -> Result<Self, String> {
        let of = Arc::new(RevocationSettings::new(loaded));
        let this = Self {
            newest: Arc::new(Mutex::new(of.credentials.clone())),
            sources: Arc::new(Mutex::new(of)),
            used: Arc::default(),
            learned: Arc::default(),
            update: Arc::default(),
            showing: Arc::default(),
            ocsp_client: OcspClient::default(),
            active_queries: Arc::default(),
            command_sender: command_sender.clone(),
        };
        this.reload_revocation_lists(&lock_mutex(&this.update))?;
        Ok(this)
    }
    /// Applies another configuration.
    pub(super) fn apply_config(&self, loaded: &LoadedGatewayConfig) {
        let of = Arc::new(RevocationSettings::new(loaded));
        let update = lock_mutex(&self.update);
        *lock_mutex(&self.sources) = of.clone();
        let taken =
            of.load_revocation_lists().and_then(|lists| self.apply_lists_to_credentials(&update, &of, lists));
        if taken.is_ok() {
            self.send_revoked_certificates(&update);
        }
        if let Err(error) = taken {
            tracing::error!(error, "cannot use the new revocation lists; the earlier ones stay");
            let before = lock_mutex(&self.used).clone();
            if let Err(error) = self.apply_lists_to_credentials(&update, &of, before) {
                tracing::error!(error, "cannot use the earlier revocation lists either");
            }
        }
    }

    /// Tells the gateway which certificates the lists in use revoke, so that it deletes their SAs. Lists that peer
    /// certificates name are excluded: they count only for the peers that present such a certificate.
    fn send_revoked_certificates(&self, _: &RevocationUpdateLock) {
        let revoked: BTreeSet<_> =
            lock_mutex(&self.used).iter().flat_map(RevocationList::revoked_certificates).collect();
        self.command_sender.send_command(GatewayCommand::Revoked(Arc::new(revoked)));
    }

    /// Reloads the lists. True if they have changed.
    fn reload_revocation_lists(&self, update: &RevocationUpdateLock) -> Result<bool, String> {
        let of = lock_mutex(&self.sources).clone();
        let lists = of.load_revocation_lists()?;
        if lists == *lock_mutex(&self.used) {
            return Ok(false);
        }
        self.apply_lists_to_credentials(update, &of, lists).map(|()| true)
    }

    fn apply_lists_to_credentials(
        &self,
        _: &RevocationUpdateLock,
        of: &RevocationSettings,
        lists: Vec<RevocationList>,
    ) -> Result<(), String> {
        let learned = lock_mutex(&self.learned).valid_learned_lists(wall_time());
        let octets: Vec<Vec<u8>> = lists.iter().chain(&learned).map(|list| list.der().to_vec()).collect();
        let credentials = of.credentials.with_revocation_lists(&octets).map_err(|error| error.to_string())?;
        *lock_mutex(&self.newest) = Arc::new(credentials);
        *lock_mutex(&self.used) = lists;
        Ok(())
    }

    /// Starts the thread that refreshes lists. Before it returns, it fetches the lists that were never fetched.
    pub(super) fn start_list_refresh_thread(&self) -> std::io::Result<()> {
        let this = self.clone();
        let mut watch = RevocationRefreshState::default();
        this.refresh_due_lists(&mut watch);
        let body = move || {
            loop {
                std::thread::sleep(TICK);
                this.refresh_due_lists(&mut watch);
            }
        };
        std::thread::Builder::new().name("usher-ike-lists".to_owned()).spawn(body).map(drop)
    }

    fn refresh_due_lists(&self, watch: &mut RevocationRefreshState) {
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
        match self.reload_revocation_lists(&update) {
            Ok(true) => {
                self.command_sender.send_command(GatewayCommand::VoidTickets);
                self.send_revoked_certificates(&update);
                for list in lock_mutex(&self.used).iter() {
                    let (issuer, revoked) = (&list.issuer, list.revoked);
                    tracing::info!(issuer, revoked, number = list.crl_number(), "revocation list loaded");
                }
                watch.last_errors.remove(&files);
            }
            Ok(false) => drop(watch.last_errors.remove(&files)),
            Err(error) => watch.report_error(&files, error),
        }
        drop(update);
        let over = |list: &&RevocationList| !list.is_list_current(wall_time());
        let over: Vec<String> =
            lock_mutex(&self.used).iter().filter(over).map(|list| list.issuer.clone()).collect();
        for issuer in over {
            watch.report_error(
                &issuer,
                "the list has expired: certificates of this issuer are rejected".to_owned(),
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
        let listed =
            verified().and_then(|(credentials, path)| match self.fetch_lists_named_in_path(&path)? {
                true => verified(),
                false => Ok((credentials, path)),
            });
        let taken = listed.and_then(|(credentials, path)| {
            let said = self.check_ocsp(&credentials, connection, &path, shown)?;
            let ends = said.into_iter().chain(self.list_expiry_times(&path));
            Ok((ends.fold(valid_until(&path), WallTime::min), certificate_names(&path)))
        });
        if let Err(cause) = &taken {
            tracing::warn!(connection, %identity, cause, "certificate rejected");
        }
        let (until, certificates) = taken.ok().unzip();
        IkeCommand::Verified { token, until, certificates: certificates.unwrap_or_default() }
    }

    /// Returns when the lists of a path's issuers expire, if they say so.
    fn list_expiry_times(&self, path: &[Vec<u8>]) -> Vec<WallTime> {
        let issuers: Vec<String> =
            path.iter().filter_map(|der| CertificateInfo::of_der(der).ok()).map(|said| said.issuer).collect();
        let learned = lock_mutex(&self.learned).valid_learned_lists(wall_time());
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
        // Without an OCSP response, the certificate is accepted only for this moment: its result is not kept.
        let unsaid = |why: &str| match of.table.ocsp {
            OcspPolicy::Hard => Err(format!("its revocation status is unknown: {why}")),
            _ => {
                tracing::warn!(connection, why, "certificate accepted with unknown revocation status");
                Ok(Some(wall_time()))
            }
        };
        let asked = CertificateStatusQuery {
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
                said.map_err(|why| tracing::debug!(connection, why, "OCSP response ignored: it is not valid"))
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
        // Bound the workers that slow responders can occupy, so that the others remain free for signatures.
        if self.active_queries.fetch_add(1, Ordering::AcqRel) >= MAX_CONCURRENT_QUERIES {
            self.active_queries.fetch_sub(1, Ordering::AcqRel);
            return unsaid("too many revocation queries are in progress");
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
            OcspStatus::Unknown => unsaid("the responder does not know the certificate"),
        }
    }

    /// Returns an OCSP response about a connection's own certificate. Queries run one at a time, so that a slow
    /// responder occupies one worker.
    fn to_show(&self, connection: &str) -> Option<Vec<u8>> {
        let of = lock_mutex(&self.sources).clone();
        let path = of.own.get(connection).filter(|_| of.table.ocsp_response)?;
        let _one = self.showing.try_lock().ok()?;
        let asked = CertificateStatusQuery {
            path,
            url: of.table.ocsp_url.as_deref(),
            timeout: RESPONDER,
            now: wall_time(),
            nonce: &ocsp_nonce,
            // Accept any responder here, because the peer itself checks whether the responder is authorized.
            appointed: &|_| true,
        };
        let shown = self.ocsp_client.to_show(&asked);
        shown.map_err(|why| tracing::debug!(connection, why = why.why, "no OCSP response to send")).ok()
    }

    /// Applies the current lists to the credentials.
    fn rebuild_credentials(&self) {
        let update = lock_mutex(&self.update);
        let (of, lists) = (lock_mutex(&self.sources).clone(), lock_mutex(&self.used).clone());
        if let Err(error) = self.apply_lists_to_credentials(&update, &of, lists) {
            tracing::error!(error, "cannot use the revocation lists");
        }
        self.command_sender.send_command(GatewayCommand::VoidTickets);
    }

    /// Fetches missing lists that the certificates of a path name, if the configuration wants them. True if there are
    /// new lists.
    fn fetch_lists_named_in_path(&self, path: &[Vec<u8>]) -> Result<bool, String> {
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
            if lock_mutex(&self.used).iter().any(|list| list.is_list_current(wall_time()) && signed(list)) {
                continue;
            }
            let mut named = CertificateInfo::of_der(certificate).map_or_else(|_| Vec::new(), |said| said.crl);
            named.retain(|url| is_of(url, hosts));
            let said = if named.is_empty() {
                Err("it names no list at a host of crl_from_peers".to_owned())
            } else if shares_name_with_root(issuer, &of.authorities) {
                // A list of this issuer would make all certificates of the configured authority of the same name
                // invalid.
                Err("its issuer has the name of an authority of ca, but another key".to_owned())
            } else if self.active_queries.fetch_add(1, Ordering::AcqRel) >= MAX_CONCURRENT_QUERIES {
                self.active_queries.fetch_sub(1, Ordering::AcqRel);
                Err("too many revocation queries are in progress".to_owned())
            } else {
                let places = (&named[..], PUBLISHER_OF_PEERS);
                let fetched = peer_lists::fetch_named_revocation_list(
                    &self.learned,
                    places,
                    (&signed, every),
                    wall_time(),
                );
                self.active_queries.fetch_sub(1, Ordering::AcqRel);
                fetched
            };
            match said {
                Ok(other) => changed |= other,
                Err(why) if required => {
                    return Err(format!("no revocation list of its issuer: {why}"));
                }
                Err(why) if named.is_empty() => {
                    tracing::debug!(why, "no revocation list for a certificate")
                }
                Err(why) => {
                    tracing::warn!(why, "certificate accepted without a revocation list")
                }
            }
        }
        if changed {
            self.rebuild_credentials();
        }
        Ok(changed)
    }
}
