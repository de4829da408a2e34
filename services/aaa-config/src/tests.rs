//! Errors of whole files.

use super::*;
use usher_config::EmptyConfigEnvironment;
use usher_crypto::tls::fixtures;

fn parse_faults(text: &str) -> Vec<String> {
    match parse("aaa.toml", text, None, &EmptyConfigEnvironment) {
        Ok(_) => Vec::new(),
        Err(faults) => faults.to_string().lines().map(str::to_owned).collect(),
    }
}

/// Checks that each expected line is a prefix of one error, and that there are no other errors.
#[track_caller]
fn assert_faults(text: &str, expected: &[&str]) {
    let found = parse_faults(text);
    assert_eq!(found.len(), expected.len(), "{found:#?}");
    for (found, expected) in found.iter().zip(expected) {
        assert!(found.starts_with(expected), "{found}\n{expected}");
    }
}

#[test]
fn an_empty_file_is_right() {
    let loaded = parse("aaa.toml", "", None, &EmptyConfigEnvironment).unwrap();
    assert_eq!(loaded.file.listen.auth.len(), 2);
    assert!(loaded.file.listen.auth.iter().all(|a| a.ip().is_loopback() && a.port() == 1812));
    assert!(loaded.file.listen.acct.iter().all(|a| a.ip().is_loopback() && a.port() == 1813));
}

#[test]
fn every_fault_is_said_with_its_line() {
    assert_faults(
        "shards = 0\nshrads = 2\n\n[[client]]\nname = \"a\"\nprefix = \"10.0.0.0/40\"\nsecret = \"0123456789\"\n\n\
         [listen]\nauth = [\"1.2.3.4\"]\n",
        &[
            "aaa.toml:2:1: unknown key \"shrads\" at the top; did you mean \"shards\"?",
            "aaa.toml:6:10: client[0].prefix: \"10.0.0.0/40\" is not a network",
            "aaa.toml:10:9: listen.auth[0]: expected an IP address and port, such as",
        ],
    );
    assert_faults(
        "shards = 0\n[[client]]\nname = \"a\"\nprefix = \"::1\"\n[[client]]\nname = \"a\"\nprefix = \"::1\"\nsecret = \"abc\"\n",
        &[
            "aaa.toml:1:10: shards is between 1 and 256",
            "aaa.toml:2:1: this client has no secret",
            "aaa.toml:6:8: client 1 of the file has this name, too",
            "aaa.toml:7:10: client 1 of the file has this prefix, too",
            "aaa.toml:8:10: a secret of fewer than 6 octets",
        ],
    );
    assert_faults("a = [\n", &["aaa.toml:"]);
}

#[test]
fn names_are_looked_up() {
    assert_faults(
        "[[user]]\nname = \"ann\"\ngroups = [\"staff\"]\nreply = [\"nonsense\"]\n[[realm]]\nname = \"x\"\nservers = [\"h\"]\n\
         [methods]\norder = [\"pap\", \"eap-tls\"]\n[users]\nstore = \"postgresql\"\n",
        &[
            "aaa.toml:3:11: there is no group \"staff\"",
            "aaa.toml:4:10: \"nonsense\" does not have the form ATTRIBUTE OPERATOR VALUE",
            "aaa.toml:7:12: there is no home server \"h\"",
            "aaa.toml:9:17: this method needs the server's certificate",
            "aaa.toml:11:9: the address of PostgreSQL is missing",
        ],
    );
}

#[test]
fn others_must_show_who_they_are() {
    let home = "[[home_server]]\nname = \"h\"\naddress = \"192.0.2.1:2083\"\n";
    assert_faults(
        &format!("{home}transport = \"tls\"\n"),
        &[
            "aaa.toml:1:1: TLS needs the certificate of this server",
            "aaa.toml:4:13: TLS needs the server's certificate",
        ],
    );
    assert_faults(
        &format!(
            "{home}secret = \"0123456789\"\ncertificate = \"a\"\nfingerprint = \"{}\"\n",
            "00".repeat(32)
        ),
        &[
            "aaa.toml:1:1: a certificate needs TLS",
            "aaa.toml:6:15: certificate and fingerprint both identify",
        ],
    );
    let diameter = "[listen]\ndiameter = [\"0.0.0.0:3868\"]\n[diameter]\nidentity = \"a\"\nrealm = \"b\"\n";
    assert_faults(diameter, &["aaa.toml:3:2: any host that reaches this server"]);
    assert_faults(
        &format!("{diameter}peers = [\"c\"]\n"),
        &["aaa.toml:6:9: without TLS only its address identifies a peer"],
    );
    let peer = |more| format!("{diameter}[[diameter.peer]]\nidentity = \"c\"\n{more}");
    assert_faults(&peer(""), &["aaa.toml:6:1: without TLS only its address identifies a peer"]);
    assert_faults(&peer("prefix = [\"192.0.2.0/24\"]\n"), &[]);
    assert_faults(&peer("connect = \"192.0.2.1:3868\"\n"), &[]);
    let pinned = format!("connect = \"192.0.2.1:3868\"\nfingerprint = \"{}\"\n", "00".repeat(32));
    for more in ["prefix = [\"192.0.2.0/24\"]\ncertificate = \"d\"\n", &pinned] {
        assert_faults(&peer(more), &["aaa.toml:6:1: a certificate needs TLS"]);
    }
    assert_faults(&peer("transport = \"tls\"\n"), &["aaa.toml:8:13: TLS needs the server's certificate"]);
}

/// RFC 3539 §3.4.1.
#[test]
fn a_watchdog_waits_for_six_seconds_at_least() {
    let diameter = |wait| {
        format!("[diameter]\nidentity = \"a\"\nrealm = \"b\"\npeers = [\"c\"]\nwatchdog = \"{wait}\"\n")
    };
    assert_faults(&diameter("6 s"), &[]);
    assert_faults(&diameter("5 s"), &["aaa.toml:5:12: RFC 3539 requires 6 s or more"]);
}

#[test]
fn a_realm_leads_one_way() {
    let diameter = "[diameter]\nidentity = \"a\"\nrealm = \"b\"\n[[diameter.peer]]\nidentity = \"c\"\nconnect = \"192.0.2.1:3868\"\n";
    let realm = |name: &str, more: &str| format!("{diameter}[[realm]]\nname = \"{name}\"\n{more}");
    assert_faults(&realm("x", "diameter = [\"c\"]\n"), &[]);
    assert_faults(
        &realm("x", "diameter = [\"d\"]\n"),
        &["aaa.toml:9:13: there is no Diameter peer to connect to \"d\"; known are c"],
    );
    assert_faults(
        &realm("x", "diameter = [\"c\"]\nrefuse = true\n"),
        &["aaa.toml:7:1: servers, diameter and refuse exclude"],
    );
    assert_faults(
        &realm("*", "diameter = [\"c\"]\n"),
        &["aaa.toml:9:12: Diameter needs the name of the realm"],
    );
}

#[test]
fn pools_have_ranges_of_addresses_and_of_prefixes() {
    let pool = |more: &str| format!("[[pool]]\nname = \"p\"\n{more}\n");
    let text = pool(
        "ranges = [\"192.0.2.0/24\", \"2001:db8::/40/56\"]\nfirst = \"198.51.100.1\"\nlast = \"198.51.100.9\"",
    );
    let loaded = parse("aaa.toml", &text, None, &EmptyConfigEnvironment).unwrap();
    let sizes: Vec<u64> = loaded.pools[0].ranges.iter().map(usher_aaa::ledger::PoolRange::size).collect();
    assert_eq!(sizes, [254, 65_536, 9]);
    assert_faults(
        &pool("ranges = [\"192.0.2.9-192.0.2.1\"]"),
        &["aaa.toml:3:11: \"192.0.2.9-192.0.2.1\" is not a range"],
    );
    assert_faults(&pool("first = \"192.0.2.9\""), &["aaa.toml:3:1: unknown key \"first\" in pool[0]"]);
    assert_faults(
        &pool("first = \"192.0.2.9\"\nlast = \"192.0.2.1\""),
        &["aaa.toml:3:9: \"192.0.2.9-192.0.2.1\" is not a range"],
    );
    assert_faults(&pool("ranges = [\"10.0.0.0/8\"]"), &["aaa.toml:1:1: a pool has at most 1,048,576"]);
    assert_faults(
        &pool("ranges = [\"192.0.2.0/24\", \"192.0.2.9-192.0.2.10\"]"),
        &["aaa.toml:1:3: the pool \"p\": the range"],
    );
    assert_faults(&pool(""), &["aaa.toml:1:3: the pool \"p\" has no ranges"]);
}

#[test]
fn passwords_that_prove_nothing_or_cost_too_much_are_refused() {
    let user = |line: &str| format!("[[user]]\nname = \"ann\"\n{line}\n");
    assert_faults(&user("password = \"\""), &["aaa.toml:3:12: the password is empty"]);
    assert_faults(
        &user("nt_hash = \"31d6cfe0d16ae931b73c59d7e0c089c0\""),
        &["aaa.toml:1:1: radcheck, `NT-Password := (hidden)`: the password is empty"],
    );
    let hash = "$argon2id$v=19$m=65536,t=1000,p=1$c29tZXNhbHQ$wWKIMhR9lyDFvRz9YTZweHKfbftvj+qf+YFY4NeBbtA";
    assert_faults(
        &user(&format!("argon2 = \"{hash}\"")),
        &["aaa.toml:1:1: radcheck, `Crypt-Password := (hidden)`: the Argon2 hash needs t=1000 passes over"],
    );
    assert_faults(
        "[[group]]\nname = \"g\"\ncheck = [\"Password-With-Header := {clear}\"]\n\
         [[user]]\nname = \"ann\"\ngroups = [\"g\"]\n",
        &["aaa.toml:4:1: radgroupcheck of g, `Password-With-Header := (hidden)`: the password is empty"],
    );
}

#[test]
fn times_and_sizes_are_written_as_everywhere() {
    let loaded = parse(
        "aaa.toml",
        "reject_delay = \"1.5 s\"\n[tls]\ncertificate = \"c\"\nkey = \"k\"\nsession_lifetime = \"7 days\"\n\
         [limits]\nhalf_open_memory = \"1.5 GiB\"\n[users]\ncache_ttl = \"5\"\n",
        None,
        &EmptyConfigEnvironment,
    );
    let faults: Vec<String> = loaded.unwrap_err().to_string().lines().map(str::to_owned).collect();
    assert_eq!(
        faults,
        [
            "aaa.toml:5:20: tls.session_lifetime: \"days\" is no unit of a time (ns, us, ms, s, min, h, d); did you mean \"7 d\"?",
            "aaa.toml:9:13: users.cache_ttl: \"5\" lacks its unit: a time is written like \"10 ms\"",
        ]
    );
    let loaded = parse(
        "aaa.toml",
        "reject_delay = \"1.5 s\"\n[limits]\nhalf_open_memory = \"1.5 GiB\"\n",
        None,
        &EmptyConfigEnvironment,
    );
    let file = loaded.unwrap().file;
    assert_eq!((file.reject_delay.0.as_millis(), file.limits.half_open_memory.bytes()), (1500, 3 << 29));
}

#[test]
fn deprecated_settings_are_read_with_a_warning_and_upgraded() {
    let old = "# Ours.\n[[pool]]\nname = \"p\"\nfirst = \"192.0.2.1\" # the first\nlast = \"192.0.2.9\"\nhold = \"5 min\"\n\
               [[pool]]\nname = \"q\"\nranges = [\"198.51.100.0/24\"] # all\nfirst = \"2001:db8::1\"\nlast = \"2001:db8::9\"\n";
    let new = "version = 2\n# Ours.\n[[pool]]\nname = \"p\"\nhold = \"5 min\"\n# the first\nranges = [\"192.0.2.1-192.0.2.9\"]\n\
               [[pool]]\nname = \"q\"\nranges = [\"198.51.100.0/24\", \"2001:db8::1-2001:db8::9\"] # all\n";
    assert_eq!(usher_config::upgrade_text("aaa.toml", old, &FORMAT).unwrap(), new);
    let read = |text| parse("aaa.toml", text, None, &EmptyConfigEnvironment).unwrap();
    assert_eq!(read(old).pools, read(new).pools);
    let warnings = read(old).warnings.iter().map(ToString::to_string).collect::<Vec<_>>();
    assert_eq!(warnings.len(), 2, "{warnings:?}");
    assert!(warnings[0].starts_with("aaa.toml:4:1: \"first\" is deprecated"), "{warnings:?}");
    assert!(read(new).warnings.is_empty());
    let renamed = "[limits]\nfailures_within = \"2 min\" # two\nfailures_hold = \"3 min\"\n";
    let limits = read(renamed).file.limits;
    assert_eq!((limits.failure_window.0.as_secs(), limits.lockout_time.0.as_secs()), (120, 180));
    let new = usher_config::upgrade_text("aaa.toml", renamed, &FORMAT).unwrap();
    assert!(new.contains("# two\nfailure_window = \"2 min\"\nlockout_time = \"3 min\"\n"), "{new}");
}

#[test]
fn the_published_schema_is_current() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/aaa-server.schema.json");
    if std::env::var_os("USHER_WRITE_SCHEMA").is_some() {
        std::fs::write(&path, json_schema()).unwrap();
    }
    let published = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(
        published == json_schema(),
        "docs/aaa-server.schema.json is not what the types say; run this test with USHER_WRITE_SCHEMA=1"
    );
}

#[test]
fn a_table_of_another_file_is_read_with_that_files_lines() {
    let read = |text: &str| {
        let mut faults = usher_config::DiagnosticCollector::new("study.toml", text);
        let mut tree = usher_config::tree::parse_source(0, &mut faults).unwrap();
        let server = tree.take_entry("hosts").unwrap().node.take_entry("server").unwrap().node;
        let loaded = read_tree(server, Path::new("there"), &EmptyConfigEnvironment, &mut faults);
        let warnings = faults.warnings().iter().map(ToString::to_string).collect::<Vec<_>>();
        (faults.finish(loaded).map_err(|faults| faults.to_string()), warnings)
    };
    let head = "name = \"x\"\n[hosts.server]\nshards = 1\n";
    let (loaded, warnings) = read(&format!(
        "{head}[[hosts.server.pool]]\nname = \"p\"\nfirst = \"192.0.2.1\"\nlast = \"192.0.2.9\"\n\
         [[hosts.server.user]]\nname = \"ann\"\npassword = \"secret\"\n"
    ));
    let loaded = loaded.unwrap();
    assert_eq!((loaded.pools[0].ranges[0].size(), loaded.users[0].0.as_str()), (9, "ann"));
    assert_eq!(
        (warnings.len(), warnings[0].starts_with("study.toml:6:1: \"first\"")),
        (1, true),
        "{warnings:?}"
    );
    let wrong = format!(
        "{head}[[hosts.server.client]]\nname = \"a\"\nprefix = \"::1\"\nsecret_file = \"s\"\nx = 1\n"
    );
    let said = read(&wrong).0.unwrap_err();
    assert!(said.starts_with("study.toml:8:1: unknown key \"x\" in client[0]; expected one of"), "{said}");
    let said = read(&wrong.replace("x = 1\n", "")).0.unwrap_err();
    assert!(said.starts_with("study.toml:7:15: ") && said.contains("there/s: "), "{said}");
}

/// Files by name.
struct MockFiles<'a>(&'a [(&'a str, &'a str)]);

impl ConfigEnvironment for MockFiles<'_> {
    fn read_text(&self, path: &Path) -> Result<String, String> {
        let found = self.0.iter().find(|(name, _)| Path::new(name) == path);
        found.map(|(_, text)| (*text).to_owned()).ok_or_else(|| format!("{}: not there", path.display()))
    }
    fn read_secret(&self, path: &Path) -> Result<String, String> {
        self.read_text(path)
    }
    fn variable(&self, _: &str) -> Option<String> {
        None
    }
}

#[test]
fn what_tls_needs_is_read_and_what_contradicts_itself_is_said() {
    let [certificate, key, ca] = fixtures::server_chain_pem_texts(1);
    let [_, others, _] = fixtures::client_chain_pem_texts(1);
    let encrypted = key.replace("PRIVATE KEY", "ENCRYPTED PRIVATE KEY");
    let folder = MockFiles(&[
        ("cert.pem", &certificate),
        ("key.pem", &key),
        ("ca.pem", &ca),
        ("others.pem", &others),
        ("encrypted.pem", &encrypted),
        ("none.pem", "nothing"),
    ]);
    let tls = |more: &str| {
        let text = format!("[tls]\ncertificate = \"cert.pem\"\nkey = \"key.pem\"\n{more}\n");
        parse("aaa.toml", &text, None, &folder).map_err(|faults| faults.to_string())
    };
    let files = tls("ca = \"ca.pem\"").unwrap().tls.expect("files");
    assert_eq!(
        (&files.certificate[..], files.key.0.as_str(), files.ca.as_deref()),
        (certificate.as_bytes(), key.trim_end(), Some(ca.as_bytes()))
    );
    assert_eq!(tls("").unwrap().tls.expect("files").ca, None);
    let fetches = "crl_url = [\"http://crl.example.org/ca.crl\"]";
    let loaded = tls(&format!("ca = \"ca.pem\"\n{fetches}")).unwrap();
    let (settings, files) = (loaded.file.tls.as_ref().unwrap(), loaded.tls.as_ref().unwrap());
    assert_eq!(
        lists::list_urls(settings, files).into_iter().collect::<Vec<_>>(),
        ["http://crl.example.org/ca.crl"]
    );
    for (more, said) in [
        ("ca = \"other.pem\"", "other.pem: not there"),
        (fetches, "crl and ocsp concern clients' certificates; add ca"),
        ("ocsp = \"hard\"", "crl and ocsp concern clients' certificates; add ca"),
        ("crl_distribution_points = true", "crl and ocsp concern clients' certificates; add ca"),
        ("ca = \"ca.pem\"\ncrl_url = [\"https://crl.example.org/\"]", "lists are fetched over http:// only"),
        ("min_version = \"1.3\"\nmax_version = \"1.2\"", "min_version is newer than max_version"),
        ("session_lifetime = \"8 d\"", "session_lifetime is between 1 s and 7 days"),
        ("ca = \"ca.pem\"\ncrl_interval = \"2 d\"", "crl_interval is between 1 s and one day"),
    ] {
        let faults = tls(more).unwrap_err();
        assert!(faults.contains(said) && faults.lines().count() == 1, "{faults}");
    }
    // The contents of files are checked. Each error is at the key that names the file.
    for (certificate, key, ca, said) in [
        (
            "cert.pem",
            "others.pem",
            "ca.pem",
            "aaa.toml:3:7: others.pem: TLS configuration: private key: it is not the key",
        ),
        (
            "cert.pem",
            "encrypted.pem",
            "ca.pem",
            "aaa.toml:3:7: encrypted.pem: TLS configuration: private key: it is encrypted",
        ),
        (
            "cert.pem",
            "none.pem",
            "ca.pem",
            "aaa.toml:3:7: none.pem: TLS configuration: private key: no private key",
        ),
        ("none.pem", "key.pem", "ca.pem", "aaa.toml:2:15: none.pem: TLS configuration: no certificate"),
        ("cert.pem", "key.pem", "none.pem", "aaa.toml:4:6: none.pem: TLS configuration: no certificate"),
    ] {
        let text = format!("[tls]\ncertificate = \"{certificate}\"\nkey = \"{key}\"\nca = \"{ca}\"\n");
        let faults = parse("aaa.toml", &text, None, &folder).unwrap_err().to_string();
        assert!(faults.starts_with(said) && faults.lines().count() == 1, "{faults}");
    }
}

#[test]
fn a_realm_is_named_and_no_pattern() {
    for name in ["~^(.*\\.)?example\\.org$", ".*", "*.example.org", "~[", "example|other"] {
        let text = format!("[[realm]]\nname = '{name}'\nrefuse = true\n");
        let faults = parse("aaa.toml", &text, None, &EmptyConfigEnvironment).unwrap_err().to_string();
        assert!(
            faults.starts_with("aaa.toml:2:8: ") && faults.contains("patterns are not supported"),
            "{faults}"
        );
    }
    for name in ["", "*", "example.org", "EXAMPLE"] {
        assert_faults(&format!("[[realm]]\nname = \"{name}\"\nrefuse = true\n"), &[]);
    }
    assert_faults(
        "[[realm]]\nname = \"a_b\"\nrefuse = true\n",
        &["aaa.toml:2:8: \"a_b\" is not a realm name"],
    );
}

#[test]
fn a_client_without_a_secret_says_whether_it_lacks_one() {
    // An invalid secret is not reported missing too, and a client with a certificate needs none.
    let client = |more: &str| format!("[[client]]\nname = \"a\"\nprefix = \"::1\"\n{more}\n");
    assert_faults(&client(""), &["aaa.toml:1:1: this client has no secret"]);
    assert_faults(&client("secret = \"abc\""), &["aaa.toml:4:10: a secret of fewer than 6 octets"]);
    let fingerprint = format!("fingerprint = \"{}\"", "ab".repeat(32));
    assert_faults(&client(&fingerprint), &[]);
}

#[test]
fn unreadable_reply_items_are_left_out_if_the_file_says_so() {
    let leaves_out = |text: &str| {
        build::row_reader(&parse("aaa.toml", text, None, &EmptyConfigEnvironment).unwrap()).leave_out
    };
    assert!(!leaves_out("") && leaves_out("[users]\nbad_reply = \"leave-out\"\n"));
}

#[test]
fn an_address_is_held_for_five_minutes_by_default() {
    let hold = |more: &str| {
        let text = format!("[[pool]]\nname = \"p\"\nranges = [\"192.0.2.0/24\"]\n{more}\n");
        parse("aaa.toml", &text, None, &EmptyConfigEnvironment).unwrap().file.pool[0].hold.0
    };
    assert_eq!(hold(""), usher_core::Duration::from_secs(300));
    assert_eq!(hold("hold = \"20 s\""), usher_core::Duration::from_secs(20));
}
