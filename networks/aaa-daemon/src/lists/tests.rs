use super::*;
use crate::fetched::{LONGEST, kept};
use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Mutex;
use usher_aaa_config::lists::revokes_no_new_certificates;
use usher_aaa_config::model::TlsTable;
use usher_aaa_config::{TlsFiles, parse};
use usher_config::disk::DiskEnvironment;
use usher_pki::{AuthorityInitOptions, CertificateKind, CertificateRequest, KeyKind, RevokeReason};

fn wall_at(seconds: u64) -> WallTime {
    WallTime::from_unix_secs(1_800_000_000 + seconds)
}

/// An authority, a configuration below it, and a publisher of lists.
struct ListFixture {
    folder: PathBuf,
    authority: CertificateAuthority,
    files: TlsFiles,
    body: Arc<Mutex<Vec<u8>>>,
    url: String,
}

fn init_authority(folder: &Path, name: &str) -> CertificateAuthority {
    let options =
        AuthorityInitOptions { name: name.into(), key: KeyKind::EcdsaP256, days: 90, now: wall_at(0) };
    CertificateAuthority::init(folder, &options).unwrap()
}

impl ListFixture {
    fn new(name: &str) -> Self {
        let folder = std::env::temp_dir().join(format!("usher-lists-{}-{name}", std::process::id()));
        let _ = fs::remove_dir_all(&folder);
        let authority = init_authority(&folder.join("pki"), "Ours");
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}/ours.crl", listener.local_addr().unwrap());
        let body = Arc::new(Mutex::new(Vec::new()));
        let given = body.clone();
        std::thread::spawn(move || {
            for mut stream in listener.incoming().flatten() {
                let mut lines = BufReader::new(stream.try_clone().unwrap()).lines();
                while lines.next().is_some_and(|line| line.is_ok_and(|line| !line.is_empty())) {}
                let body = given.lock().unwrap().clone();
                let head =
                    format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\nConnection: close\r\n\r\n", body.len());
                let _ = stream.write_all(&[head.as_bytes(), &body].concat());
            }
        });
        let ca = fs::read(folder.join("pki/ca.crt")).unwrap();
        let files = TlsFiles {
            certificate: ca.clone(),
            key: usher_aaa_config::model::SecretText(String::new().into()),
            ca: Some(ca),
            crls: Vec::new(),
            fetched: Vec::new(),
            learnt: Vec::new(),
        };
        Self { folder, authority, files, body, url }
    }
    fn publish_list(&mut self, now: WallTime, lifetime: u64) {
        self.authority.publish_list_with_lifetime(now, Duration::from_secs(lifetime)).unwrap();
        *self.body.lock().unwrap() = fs::read(self.folder.join("pki/ca.crl")).unwrap();
    }
    fn fetch_published(&self, now: WallTime) -> Result<bool, String> {
        fetch_list(&self.folder, &parse_certificates(self.files.ca.as_deref().unwrap()), &self.url, now)
    }
    fn stored_list(&self) -> Option<RevocationList> {
        let octets = fs::read(kept(&self.folder, &self.url)).ok()?;
        RevocationList::parse_revocation_lists(&octets).unwrap().pop()
    }
}

impl Drop for ListFixture {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.folder);
    }
}

#[test]
fn a_fetched_list_replaces_only_an_older_list_of_its_authority() {
    let mut s = ListFixture::new("fetch");
    assert!(s.fetch_published(wall_at(0)).is_err(), "nothing is published");
    s.publish_list(wall_at(0), 1000);
    assert_eq!(s.fetch_published(wall_at(1)), Ok(true));
    let first = s.stored_list().unwrap();
    assert_eq!(s.fetch_published(wall_at(2)), Ok(false));
    let earlier = s.body.lock().unwrap().clone();
    s.authority.issue(&certificate_request("ann"), wall_at(10)).unwrap();
    s.authority.revoke("ann", RevokeReason::KeyCompromise, wall_at(10)).unwrap();
    s.publish_list(wall_at(11), 1000);
    assert_eq!(s.fetch_published(wall_at(12)), Ok(true));
    let second = s.stored_list().unwrap();
    assert_eq!((first.revoked, second.revoked), (0, 1));
    // An older list does not reinstate a certificate.
    *s.body.lock().unwrap() = earlier;
    assert!(s.fetch_published(wall_at(13)).unwrap_err().contains("is older than the saved one"));
    // A list of another authority, a truncated list, and no list.
    let other = s.folder.join("other");
    init_authority(&other, "Ours");
    let forged = fs::read(other.join("ca.crl")).unwrap();
    for (wrong, why) in [
        (forged, "no authority of ca has signed"),
        (second.der()[..100].to_vec(), "revocation list"),
        (b"<html>".to_vec(), "revocation list"),
    ] {
        *s.body.lock().unwrap() = wrong;
        let said = s.fetch_published(wall_at(14)).unwrap_err();
        assert!(said.contains(why), "{said}");
    }
    // An expired list, and one that is too long.
    s.publish_list(wall_at(20), 10);
    assert!(s.fetch_published(wall_at(31)).unwrap_err().contains("has expired"));
    *s.body.lock().unwrap() = vec![0x30; LONGEST as usize + 1];
    assert!(s.fetch_published(wall_at(32)).is_err());
    assert_eq!(s.stored_list(), Some(second), "the last good one is kept");
}

fn certificate_request(name: &str) -> CertificateRequest {
    let key = KeyKind::EcdsaP256;
    CertificateRequest {
        name: name.into(),
        kind: CertificateKind::Client,
        names: Vec::new(),
        key,
        days: 9,
        ocsp: None,
        crl: None,
    }
}

#[test]
fn the_own_authoritys_list_is_renewed_in_its_last_third() {
    let mut s = ListFixture::new("renew");
    s.publish_list(wall_at(0), 900);
    let folder = s.folder.join("pki");
    assert_eq!(
        (renew_authority_list(&folder, wall_at(599)), renew_authority_list(&folder, wall_at(600))),
        (Ok(false), Ok(true))
    );
    let list = |s: &ListFixture| {
        RevocationList::parse_revocation_lists(&fs::read(s.folder.join("pki/ca.crl")).unwrap())
            .unwrap()
            .remove(0)
    };
    assert_eq!(list(&s).next_update, Some(wall_at(600 + 30 * 86_400)));
    // A certificate revoked meanwhile by another program stays revoked.
    s.authority.issue(&certificate_request("ann"), wall_at(610)).unwrap();
    s.authority.revoke("ann", RevokeReason::Superseded, wall_at(610)).unwrap();
    s.publish_list(wall_at(611), 900);
    assert_eq!((renew_authority_list(&folder, wall_at(1400)), list(&s).revoked), (Ok(true), 1));
    assert!(renew_authority_list(&s.folder, wall_at(0)).unwrap_err().contains("ca.crl"));
}

#[test]
fn lists_are_fetched_from_where_the_certificates_say() {
    let mut s = ListFixture::new("points");
    let point = Some("http://crl.example.org/a.crl".to_owned());
    let issued = s
        .authority
        .issue(&CertificateRequest { crl: point, ..certificate_request("radius.example.org") }, wall_at(0))
        .unwrap();
    s.files.certificate = fs::read(issued.certificate).unwrap();
    let settings = |more: &str| -> TlsTable {
        toml::from_str(&format!("certificate = \"c\"\nkey = \"k\"\nca = \"a\"\n{more}")).unwrap()
    };
    assert!(list_urls(&settings(""), &s.files).is_empty());
    let all = list_urls(&settings("crl_distribution_points = true\ncrl_url = [\"http://b/\"]"), &s.files);
    assert_eq!(all.into_iter().collect::<Vec<_>>(), ["http://b/", "http://crl.example.org/a.crl"]);
    assert_ne!(kept(Path::new("s"), "http://b/a"), kept(Path::new("s"), "http://b.a"));
}

#[test]
fn settings_that_would_fetch_nothing_are_refused() {
    let said = |more: &str| {
        let text = format!("[tls]\ncertificate = \"c\"\nkey = \"k\"\nca = \"a\"\n{more}\n");
        parse("t", &text, None, &DiskEnvironment).unwrap_err().to_string()
    };
    assert!(said("crl_url = [\"https://crl.example.org/a.crl\"]").contains("http://"));
    for interval in ["500 ms", "25 h"] {
        assert!(
            said(&format!("crl_interval = \"{interval}\"")).contains("crl_interval is between"),
            "{interval}"
        );
    }
    assert!(!said("crl_url = [\"http://crl.example.org/a.crl\"]").contains("http://"));
}

/// Returns the lists in use of a file and of fetched ones, in that order: source and number of entries.
fn in_use(s: &ListFixture, file: &[u8], fetched: &[(&str, &[u8])]) -> Vec<(String, usize)> {
    let settings: TlsTable =
        toml::from_str("certificate = \"c\"\nkey = \"k\"\nca = \"a\"\ncrl = [\"ca.crl\"]\n").unwrap();
    let fetched = fetched.iter().map(|(url, octets)| ((*url).to_owned(), octets.to_vec())).collect();
    let files = TlsFiles { crls: vec![file.to_vec()], fetched, ..s.files.clone() };
    let all = effective_revocation_lists(&settings, &files).unwrap();
    all.iter().map(|(used, der)| (used.from.clone(), RevocationList::of_der(der).unwrap().revoked)).collect()
}

#[test]
fn the_latest_of_several_lists_of_an_authority_is_used() {
    let mut s = ListFixture::new("latest");
    let now = |s: &ListFixture| s.body.lock().unwrap().clone();
    s.publish_list(wall_at(0), 1000);
    let first = now(&s);
    s.authority.issue(&certificate_request("ann"), wall_at(10)).unwrap();
    s.authority.revoke("ann", RevokeReason::KeyCompromise, wall_at(10)).unwrap();
    s.publish_list(wall_at(11), 1000);
    let second = now(&s);
    let one = |from: &str, revoked| vec![(from.to_owned(), revoked)];
    assert_eq!(in_use(&s, &first, &[("http://a/", &second)]), one("http://a/", 1));
    assert_eq!(in_use(&s, &second, &[("http://a/", &first)]), one("ca.crl", 1));
    // Two mirrors, the first outdated; and all in one file.
    let mirrors = [("http://a/", &first[..]), ("http://b/", &second[..])];
    assert_eq!(in_use(&s, &first, &mirrors), one("http://b/", 1));
    assert_eq!(in_use(&s, &[&first[..], &second].concat(), &[]), one("ca.crl", 1));
    // A list of a former authority with this name, whose numbers were higher. Another authority's list stays.
    let earlier = s.folder.join("earlier");
    let mut made = init_authority(&earlier, "Ours");
    (0..5)
        .for_each(|n| made.publish_list_with_lifetime(wall_at(100 + n), Duration::from_secs(1000)).unwrap());
    let earlier = fs::read(earlier.join("ca.crl")).unwrap();
    init_authority(&s.folder.join("beside"), "Beside");
    let beside = fs::read(s.folder.join("beside/ca.crl")).unwrap();
    let all = in_use(&s, &earlier, &[("http://a/", &second), ("http://b/", &beside)]);
    assert_eq!(all, [("http://a/".to_owned(), 1), ("http://b/".to_owned(), 0)]);
}

#[test]
fn a_recreated_authoritys_first_list_is_taken_at_a_low_number() {
    let mut s = ListFixture::new("anew");
    (0..5).for_each(|n| s.publish_list(wall_at(n), 1000));
    assert_eq!(s.fetch_published(wall_at(5)), Ok(true));
    let before = s.stored_list().unwrap();
    // An authority of the same name with another key, whose list numbers start at one again.
    fs::remove_dir_all(s.folder.join("pki")).unwrap();
    s.authority = init_authority(&s.folder.join("pki"), "Ours");
    s.files.ca = Some(fs::read(s.folder.join("pki/ca.crt")).unwrap());
    let text = format!("[tls]\ncertificate = \"c\"\nkey = \"k\"\nca = \"a\"\ncrl_url = [\"{}\"]\n", s.url);
    let place = |s: &ListFixture| {
        let mut loaded = parse("none", "", None, &DiskEnvironment).unwrap();
        loaded.file = toml::from_str(&text).unwrap();
        loaded.tls = Some(s.files.clone());
        let mut place = ServerInstallation { loaded, state_dir: s.folder.clone(), first: false };
        crate::fetched::load_fetched_revocation_lists(&mut place.loaded, &place.state_dir);
        place.loaded.tls.unwrap().fetched.len()
    };
    assert_eq!(place(&s), 0, "with that of before nobody would get in");
    s.publish_list(wall_at(5), 1000);
    assert_eq!(s.fetch_published(wall_at(6)), Ok(true));
    let after = s.stored_list().unwrap();
    assert!(after.has_same_issuer_and_scope(&before) && !after.supersedes_list(&before));
    assert_eq!((place(&s), s.fetch_published(wall_at(7))), (1, Ok(false)));
}

#[test]
fn what_failed_is_tried_again_soon_and_less_and_less_often() {
    let hour = Duration::from_secs(3600);
    let waits = |interval: Duration| {
        let mut attempts = RevocationUpdateAttempts::default();
        let mut now = wall_at(0);
        let mut waits = Vec::new();
        assert!(attempts.is_due(interval, now));
        for _ in 0..12 {
            attempts.record_attempt(false, interval, now);
            let due = attempts.due.unwrap();
            assert!(!attempts.is_due(interval, now) && attempts.is_due(interval, due));
            waits.push(seconds_between(now, due));
            now = due;
        }
        attempts.record_attempt(true, interval, now);
        (waits, seconds_between(now, attempts.due.unwrap()))
    };
    let (long, after) = waits(hour);
    assert_eq!((&long[..7], after), (&[10, 20, 40, 80, 160, 300, 300][..], 3600));
    assert_eq!(long[11], 300);
    assert_eq!(waits(Duration::from_secs(30)).0[..3], [10, 20, 30]);
    let mut attempts = RevocationUpdateAttempts::default();
    attempts.record_attempt(true, hour, wall_at(10_000));
    assert!(attempts.is_due(hour, wall_at(0)), "the clock was set back");
}

/// True if the client of this connection still waits.
fn waits_for_an_answer(stream: &TcpStream) -> bool {
    let mut reader = BufReader::new(stream);
    let mut line = String::new();
    while reader.read_line(&mut line).is_ok_and(|length| length > 2) {
        line.clear();
    }
    stream.set_nonblocking(true).unwrap();
    matches!(stream.peek(&mut [0]), Err(error) if error.kind() == std::io::ErrorKind::WouldBlock)
}

#[test]
fn sources_are_asked_at_once_and_without_a_list_it_is_said() {
    // They accept a connection and send nothing. Each would take the whole timeout of a publisher.
    let silent: Vec<TcpListener> = (0..3).map(|_| TcpListener::bind("127.0.0.1:0").unwrap()).collect();
    let mut s = ListFixture::new("at-once");
    s.publish_list(wall_at(0), 1000);
    let file = s.folder.join("pki/ca.crl");
    let mut all = vec![
        RevocationListSource::File(file.clone(), fs::read(&file).unwrap()),
        RevocationListSource::Url(s.url.clone(), false),
    ];
    all.extend(
        silent
            .iter()
            .map(|l| RevocationListSource::Url(format!("http://{}/", l.local_addr().unwrap()), false)),
    );
    assert!(!all[0].is_list_unused() && all[1].is_list_unused());
    let sources = RevocationListSources {
        generation: 0,
        all,
        interval: Duration::from_secs(3600),
        authorities: parse_certificates(s.files.ca.as_deref().unwrap()),
        state_dir: s.folder.clone(),
    };
    let mut watch = RevocationListWatcher::default();
    let done = std::thread::scope(|scope| {
        let attempt = scope.spawn(|| watch.check_due_list_sources(&sources, wall_at(1)));
        // All three are contacted before the first times out. Then they close the connections.
        let asked: Vec<TcpStream> = silent.iter().map(|l| l.accept().unwrap().0).collect();
        assert!(asked.iter().all(waits_for_an_answer), "one was given up before another was asked");
        drop(asked);
        attempt.join().unwrap()
    });
    let results: Vec<_> = done.iter().map(|(_, result)| *result).collect();
    assert_eq!(results, ["same", "new", "failed", "failed", "failed"]);
    assert_eq!(watch.new, Some(wall_at(1)));
    // Failed sources are due again, and a changed file at its next check.
    drop(silent);
    s.publish_list(wall_at(2), 1000);
    let done = watch.check_due_list_sources(&sources, wall_at(11));
    assert_eq!(done.iter().map(|(_, result)| *result).collect::<Vec<_>>(), ["failed"; 3]);
    let of_file = |watch: &mut RevocationListWatcher, now| {
        let done = watch.check_due_list_sources(&sources, now);
        done.into_iter().find(|(from, _)| *from == file.display().to_string()).map(|(_, result)| result)
    };
    assert_eq!(of_file(&mut watch, wall_at(3600)), None);
    fs::write(&file, "half a li").unwrap();
    assert_eq!(of_file(&mut watch, wall_at(3601)), Some("failed"), "it is being written");
    s.publish_list(wall_at(3), 1000);
    assert_eq!(of_file(&mut watch, wall_at(3611)), Some("new"));
}

#[test]
fn a_file_that_holds_no_list_is_a_fault_where_it_is_named() {
    let s = ListFixture::new("fault");
    let pki = s.folder.join("pki");
    let wrong = s.folder.join("wrong.crl");
    fs::write(&wrong, "no list").unwrap();
    let text = format!(
        "[tls]\ncertificate = \"{0}/ca.crt\"\nkey = \"{0}/ca.key\"\nca = \"{0}/ca.crt\"\n\
         crl = [\n\"{0}/ca.crl\",\n\"{1}\",\n]\n",
        pki.display(),
        wrong.display()
    );
    let faults = parse("t", &text, None, &DiskEnvironment).unwrap_err().faults;
    assert_eq!(faults.iter().map(|f| f.line).collect::<Vec<_>>(), [7], "{faults:?}");
    assert!(faults[0].message.contains("wrong.crl"), "{faults:?}");
    fs::copy(pki.join("ca.crl"), &wrong).unwrap();
    assert!(parse("t", &text, None, &DiskEnvironment).is_ok());
}

#[test]
fn lists_of_the_same_entries_add_nothing_and_others_do() {
    let mut s = ListFixture::new("entries");
    let loaded = |s: &ListFixture| {
        let mut loaded = parse("none", "", None, &DiskEnvironment).unwrap();
        let text = "[tls]\ncertificate = \"c\"\nkey = \"k\"\nca = \"a\"\ncrl = [\"a.crl\"]\n";
        loaded.file = toml::from_str(text).unwrap();
        loaded.tls = Some(TlsFiles { crls: vec![s.body.lock().unwrap().clone()], ..s.files.clone() });
        loaded
    };
    s.publish_list(wall_at(0), 1000);
    let none = loaded(&s);
    for name in ["ann", "bob"] {
        s.authority.issue(&certificate_request(name), wall_at(10)).unwrap();
        s.authority.revoke(name, RevokeReason::KeyCompromise, wall_at(10)).unwrap();
    }
    s.publish_list(wall_at(11), 1000);
    let two = loaded(&s);
    s.publish_list(wall_at(12), 1000);
    let same = loaded(&s);
    let without = parse("none", "", None, &DiskEnvironment).unwrap();
    assert!(
        revokes_no_new_certificates(&two, &same)
            && revokes_no_new_certificates(&none, &none)
            && revokes_no_new_certificates(&two, &none)
    );
    assert!(
        !revokes_no_new_certificates(&none, &two) && !revokes_no_new_certificates(&without, &none),
        "whose list was not there before"
    );
}

#[test]
fn a_learnt_list_replaces_only_a_list_of_the_same_issuer() {
    let mut s = ListFixture::new("learnt");
    s.publish_list(wall_at(0), 1000);
    let first = s.body.lock().unwrap().clone();
    s.publish_list(wall_at(5), 1000);
    let later = s.body.lock().unwrap().clone();
    let certificate =
        |folder: PathBuf| parse_certificates(&fs::read(folder.join("ca.crt")).unwrap()).remove(0);
    let ours = certificate(s.folder.join("pki"));
    // An authority below `ca` has the same name as ours.
    let folder = s.folder.join("namesake");
    init_authority(&folder, "Ours")
        .publish_list_with_lifetime(wall_at(50), Duration::from_secs(1000))
        .unwrap();
    let (theirs, namesake) = (fs::read(folder.join("ca.crl")).unwrap(), certificate(folder));
    let roots = parse_certificates(s.files.ca.as_deref().unwrap());
    assert!(
        usher_pki::shares_name_with_root(&namesake, &roots)
            && !usher_pki::shares_name_with_root(&ours, &roots)
    );
    let learnt = |url: &str, issuer: &[u8], octets: &[u8]| DistributionPointCrl {
        url: url.to_owned(),
        issuer: issuer.to_vec(),
        octets: octets.to_vec(),
    };
    let (n, o) = (learnt("http://n/", &namesake, &theirs), learnt("http://o/", &ours, &later));
    let of = |crls: Vec<Vec<u8>>, learnt: &[&DistributionPointCrl]| -> Vec<String> {
        let text = "certificate = \"c\"\nkey = \"k\"\nca = \"a\"\ncrl = [\"ca.crl\"]\n";
        let learnt = learnt.iter().map(|list| (*list).clone()).collect();
        let files = TlsFiles { crls, learnt, ..s.files.clone() };
        let used = effective_revocation_lists(&toml::from_str(text).unwrap(), &files).unwrap();
        used.into_iter().map(|(used, _)| used.from).collect()
    };
    assert_eq!(of(vec![first.clone()], &[&n]), ["ca.crl"]);
    assert_eq!(of(vec![first.clone()], &[&n, &o]), ["http://o/"]);
    assert_eq!(of(vec![later], &[&learnt("http://o/", &ours, &first)]), ["ca.crl"]);
    // Without configured URLs, the first that was learnt.
    assert_eq!(of(Vec::new(), &[&n, &o]), ["http://n/"]);
    assert_eq!(of(Vec::new(), &[&o, &n]), ["http://o/"]);
}
