//! Whether certificates of the other sides still hold: revocation lists, which are read and fetched anew while the gateway runs, and
//! issuers that are asked by OCSP.

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

/// How long a list's publisher may take, and what it may send.
const PUBLISHER: (Duration, u64) = (Duration::from_secs(10), 32 << 20);
/// The same of one that a certificate of the other side names, for which somebody waits.
const PUBLISHER_OF_PEERS: (Duration, u64) = (Duration::from_secs(3), 4 << 20);
/// How long a responder of OCSP may take.
const RESPONDER: Duration = Duration::from_secs(3);
/// How often it is looked whether something is due.
const TICK: Duration = Duration::from_secs(1);
/// After a failure the next attempt is made so much later, or after the usual time where that is shorter.
const RETRY: Duration = Duration::from_secs(30);
/// Certificates that are asked about at a time: so many helpers there are for that.
pub(super) const MAX_CONCURRENT_QUERIES: usize = 12;

fn lock_mutex<T>(of: &Mutex<T>) -> MutexGuard<'_, T> {
    of.lock().unwrap_or_else(PoisonError::into_inner)
}

fn ocsp_nonce() -> std::io::Result<[u8; NONCE_LEN]> {
    let mut octets = [0; NONCE_LEN];
    rustix::rand::getrandom(&mut octets, rustix::rand::GetRandomFlags::empty())?;
    Ok(octets)
}

/// Of a configuration.
#[derive(Debug)]
struct RevocationSources {
    table: RevocationTable,
    /// Without lists.
    credentials: Arc<IkeCredentials>,
    authorities: Vec<Vec<u8>>,
    /// This side's own certificates with those above them, DER, by connection.
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
    /// The lists of its files, and those that were fetched: of those about the same certificates the latest.
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
            // One that is not there yet, or not of these authorities any more, is fetched.
            let Ok(octets) = fs::read(stored_list_path(&self.table.state_dir, &url)) else { continue };
            let lists = RevocationList::read_lists(&octets).unwrap_or_default();
            lists.into_iter().filter(|list| self.is_signed(list)).for_each(&mut add);
        }
        Ok(all)
    }
    /// Fetches a list; whether it is another than before.
    fn fetch_list(&self, url: &str, now: WallTime) -> Result<bool, String> {
        let publisher = ListPublisher { url, timeout: PUBLISHER.0, longest: PUBLISHER.1 };
        let signed = |list: &RevocationList| self.is_signed(list);
        let path = stored_list_path(&self.table.state_dir, url);
        renew_list(&path, &publisher, (&signed, "no authority of ca has signed"), now)
    }
}

/// A chain with the issuer of its only certificate, where that is an authority that is known.
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

/// What certificates are verified by, for all who have to do with it.
#[derive(Clone, Debug)]
pub(super) struct RevocationChecker {
    sources: Arc<Mutex<Arc<RevocationSources>>>,
    newest: Arc<Mutex<Arc<IkeCredentials>>>,
    /// Lists in use.
    used: Arc<Mutex<Vec<RevocationList>>>,
    /// Those that certificates of others have named.
    learned: Arc<Mutex<LearnedListCache>>,
    update: Arc<Mutex<UpdateLock>>,
    /// Held by who asks about this side's own certificate.
    showing: Arc<Mutex<()>>,
    ocsp_client: OcspClient,
    active_queries: Arc<AtomicUsize>,
    command_sender: CommandSender<GatewayCommand>,
}

/// Had by who takes up lists, alone, until it has told what follows: otherwise what was read before another began could take the place of
/// what that has read since.
#[derive(Debug, Default)]
struct UpdateLock;

/// What is remembered between two looks.
#[derive(Default)]
struct ListRefreshState {
    /// When each source is due.
    due: BTreeMap<String, Instant>,
    /// What was complained of last.
    last_errors: BTreeMap<String, String>,
}

impl ListRefreshState {
    /// Tells of what fails, once while it is the same.
    fn report_error(&mut self, from: &str, error: String) {
        if self.last_errors.get(from) != Some(&error) {
            tracing::error!(from, error, "no new revocation list");
            self.last_errors.insert(from.to_owned(), error);
        }
    }
}

impl RevocationChecker {
    /// As the configuration says, with the lists that there are. Those that were never fetched are fetched first.
    ///
    /// # Errors
    /// A file that is no list.
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
    /// As another configuration says, from now on.
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

    /// Has those put out who are on the lists in use. Those that others' certificates have named are not among them: they are believed
    /// of whoever shows such a certificate alone.
    fn send_revoked_certificates(&self, _: &UpdateLock) {
        let revoked: BTreeSet<_> =
            lock_mutex(&self.used).iter().flat_map(RevocationList::revoked_certificates).collect();
        self.command_sender.send_command(GatewayCommand::Revoked(Arc::new(revoked)));
    }

    /// Takes up the lists that there are; whether they are others than before.
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

    /// Looks after lists, for as long as the program runs; what was never fetched is fetched before this returns.
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

    /// Does a job of IKE; why a certificate is not taken is told in the log.
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
        // A list that was learned and is out of date would refuse everybody of its issuer.
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

    /// When the lists of a path's issuers are out of date, as far as they say.
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

    /// Whether the issuer says that a certificate holds, and until when that can be relied on.
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
        // What nobody has said can be relied on for this moment alone.
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
        // What it shows spares asking; what cannot be believed of that is as if it were not there (RFC 4806 §3.2).
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
        // A responder that is slow keeps so many helpers and no more: signatures of others are made meanwhile.
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

    /// A response of OCSP about a connection's own certificate. One is asked for at a time, so that a slow responder keeps one helper.
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
            // Whom it is shown to looks at that.
            appointed: &|_| true,
        };
        let shown = self.ocsp_client.to_show(&asked);
        shown.map_err(|why| tracing::debug!(connection, why = why.why, "no response of OCSP to show")).ok()
    }

    /// Takes up the lists that are there now.
    fn rebuild_credentials(&self) {
        let update = lock_mutex(&self.update);
        let (of, lists) = (lock_mutex(&self.sources).clone(), lock_mutex(&self.used).clone());
        if let Err(error) = self.use_lists(&update, &of, lists) {
            tracing::error!(error, "the revocation lists are not taken up");
        }
        self.command_sender.send_command(GatewayCommand::VoidTickets);
    }

    /// Fetches the lists that the certificates of a path name, where they are wanted and not there; whether there are others than before.
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
                // Nobody of the true one would get in by its list.
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
