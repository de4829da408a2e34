//! Reject causes: the log, `aaa test`, `aaa trace` and a metric name each cause.

mod packets;

use super::daemon::{DaemonProcess, ServerPorts, get_page, metric_value, run_radclient, write_private};
use super::ocsp::{OcspResponder, while_silent};
use crate::place::{
    ProgramOutput, TEST_TIMEOUT, TempDir, USHER, bound_command, own_address, own_socket, wait_or_fail,
};
use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Instant, SystemTime, UNIX_EPOCH};
use usher_aaa::RejectCause;
use usher_core::WallTime;
use usher_pki::{AuthorityInitOptions, CertificateAuthority, CertificateKind, CertificateRequest, KeyKind};

/// A running `usher aaa trace`.
pub(super) struct TraceProcess {
    child: Child,
    lines: Arc<Mutex<String>>,
}

impl TraceProcess {
    /// Traces all users, or one.
    #[track_caller]
    pub(super) fn start_trace(place: &TempDir, who: &[&str]) -> Self {
        let until = Instant::now() + TEST_TIMEOUT;
        loop {
            // A trace that ended frees its slot within half a second.
            match Self::try_begin(place, who) {
                Ok(trace) => return trace,
                Err(why) => assert!(Instant::now() < until, "{why}"),
            }
        }
    }

    fn try_begin(place: &TempDir, who: &[&str]) -> Result<Self, String> {
        let mut command = bound_command(USHER);
        command.args(["aaa", "trace", "--config", "aaa.toml"]).args(who).current_dir(place.path("."));
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let lines = Arc::new(Mutex::new(String::new()));
        let (out, kept) = (BufReader::new(child.stdout.take().unwrap()), lines.clone());
        std::thread::spawn(move || {
            for line in out.lines().map_while(Result::ok) {
                writeln!(kept.lock().unwrap(), "{line}").unwrap();
            }
        });
        // Its first line appears when it runs.
        let mut begun = BufReader::new(child.stderr.take().unwrap()).lines();
        let first = begun.next().unwrap().unwrap();
        let trace = Self { child, lines };
        if first.contains("tracing until interrupted") { Ok(trace) } else { Err(first) }
    }

    pub(super) fn traced_lines(&self) -> String {
        self.lines.lock().unwrap().clone()
    }

    /// Counts the lines with a text.
    fn count_lines(&self, text: &str) -> usize {
        self.traced_lines().matches(text).count()
    }

    #[track_caller]
    pub(super) fn wait_for_lines(&self, text: &str, times: usize) {
        wait_or_fail(
            || format!("{times} times {text:?} in: {}", self.traced_lines()),
            || self.count_lines(text) >= times,
        );
    }
}

impl Drop for TraceProcess {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A server with a trace of all users. The server ends before its folder is removed.
struct TraceFixture {
    trace: TraceProcess,
    daemon: DaemonProcess,
    ports: ServerPorts,
    temp_dir: TempDir,
}

impl TraceFixture {
    fn start(more: &str) -> Self {
        Self::start_with("", more)
    }

    /// The same with lines before all tables.
    fn start_with(first: &str, more: &str) -> Self {
        let (place, ports) = (TempDir::new(), ServerPorts::reserve_free());
        write_private(&place, "right", "right\n");
        write_private(&place, "wrong", "wrong\n");
        let daemon = DaemonProcess::start(&place, &(first.to_owned() + &ports.server_config(1, more)));
        let trace = TraceProcess::start_trace(&place, &[]);
        Self { trace, daemon, ports, temp_dir: place }
    }

    fn run_login_test(&self, user: &str, arguments: &[&str]) -> ProgramOutput {
        self.temp_dir.run_usher(&[&["aaa", "test", user, "--config", "aaa.toml"], arguments].concat())
    }

    /// Returns the number of logins with this result and cause.
    fn login_count(&self, result: &str, cause: &str) -> f64 {
        let page = get_page(self.ports.metrics, "/metrics");
        let ended = page.lines().filter(|line| line.starts_with("usher_aaa_logins_total{"));
        let of_cause = ended.filter(|line| line.contains(&format!("result=\"{result}\",reason=\"{cause}\"")));
        of_cause.map(|line| line.rsplit_once(' ').unwrap().1.parse::<f64>().unwrap()).sum()
    }

    /// Expects a reject for this cause, with this text.
    #[track_caller]
    fn expect_reject(&self, cause: &str, text: &str, user: &str, arguments: &[&str]) -> ProgramOutput {
        self.expect_login_end("reject", cause, text, user, arguments)
    }

    /// Expects a reject by a check item of the user. All outputs name the item.
    #[track_caller]
    fn refused_by_row(&self, user: &str, row: &str) {
        let text = "the request fails the user's checks";
        let said = self.expect_reject("checks", text, user, &RIGHT);
        let told = format!("rejected, checks: {text} {row}");
        assert!(said.out.contains(&told), "{said:?}");
        assert!(self.trace.count_lines(&told) > 0, "{}", self.trace.traced_lines());
        let log = self.daemon.log();
        let line = log.lines().find(|line| line.contains(&format!(" reject user=\"{user}\"")));
        let row = row.trim_matches(['(', ')']).trim_end_matches(" such");
        assert!(line.is_some_and(|line| line.contains(&format!("detail=\"{row}"))), "{log}");
    }

    #[track_caller]
    fn expect_login_end(
        &self,
        result: &str,
        cause: &str,
        text: &str,
        user: &str,
        arguments: &[&str],
    ) -> ProgramOutput {
        let told_by_server = format!("server: {}", trace_text(result, cause, text));
        let begun = Instant::now();
        // `aaa test` waits briefly for the server's trace. If the server was too slow, the login is repeated.
        let said = loop {
            let said = self.expect_cause(result, cause, text, || self.run_login_test(user, arguments));
            if said.out.contains(&told_by_server) || begun.elapsed() > TEST_TIMEOUT {
                break said;
            }
        };
        let context = format!("{cause}: {said:?}\n{}\n{}", self.daemon.log(), self.trace.traced_lines());
        assert_eq!(said.code, Some(1), "{context}");
        assert!(said.out.contains(&told_by_server), "{context}");
        assert!(said.out.trim_end().ends_with(&format!("\ncause: {cause}")), "{context}");
        said
    }

    /// Expects that `act` ends a login for this cause, in trace, log and metric.
    #[track_caller]
    fn expect_cause<T>(&self, result: &str, cause: &str, text: &str, act: impl FnOnce() -> T) -> T {
        let told = trace_text(result, cause, text);
        let logged = if result == "reject" { "reject" } else { "no verdict" };
        let wanted = format!("cause=\"{cause}\" reason={text}");
        let lines = || {
            let log = self.daemon.log();
            let of = |line: &&str| line.contains(&format!(" {logged} user=")) && line.contains(&wanted);
            log.lines().filter(of).count()
        };
        let (counted, traced, before) =
            (self.login_count(result, cause), self.trace.count_lines(&told), lines());
        let done = act();
        self.trace.wait_for_lines(&told, traced + 1);
        // Requests without a reply are retransmitted.
        let (after, once) = (self.login_count(result, cause), counted + 1.0);
        let context = || format!("{cause}: {after}\n{}\n{}", self.daemon.log(), self.trace.traced_lines());
        assert!(if result == "reject" { after == once } else { after >= once }, "{}", context());
        // A separate thread writes the log.
        wait_or_fail(context, || lines() > before);
        done
    }
}

/// The text of a trace.
fn trace_text(result: &str, cause: &str, text: &str) -> String {
    let verdict = if result == "reject" { "rejected" } else { "no verdict" };
    format!("{verdict}, {cause}: {text}")
}

const RIGHT: [&str; 2] = ["--password-file", "right"];
const WRONG: [&str; 2] = ["--password-file", "wrong"];

fn method_arguments<'a>(method: &'a str, password: [&'a str; 2]) -> Vec<&'a str> {
    [&["--method", method][..], &password].concat()
}

#[test]
fn causes_of_names_passwords_methods_and_limits_are_told_apart() {
    let hash = usher_crypto::password::argon2_hash(b"right", &[7; 16]);
    let user = |name: &str, rows: &str| {
        format!("[[user]]\nname = \"{name}\"\npassword = \"right\"\ncheck = [{rows}]\n")
    };
    let mut more = "[users]\nstore = \"sqlite\"\n[limits]\nfailures = 9\nlockout_time = \"1 h\"\n\
                    [methods]\norder = [\"eap-md5\", \"pap\", \"chap\"]\n\
                    [[realm]]\nname = \"gone.example\"\nrefuse = true\n\
                    [[pool]]\nname = \"one\"\nranges = [\"192.0.2.1-192.0.2.1\"]\n\
                    [[user]]\nname = \"none\"\n"
        .to_owned();
    write!(more, "[[user]]\nname = \"hashed\"\nargon2 = \"{hash}\"\n").unwrap();
    more += &user("ann", "");
    more += &user("held", "");
    more += &user("plain", "\"Auth-Type := PAP\"");
    more += &user("locked", "\"Auth-Type := Reject\"");
    more += &user("over", "\"Expiration := 31 Dec 2020 00:00:00\"");
    more += &user("wired", "\"NAS-Port-Type == Ethernet\"");
    more += &user("private", "\"SN-Tunnel-Password == 0x737769746368\"");
    more += &user("once", "\"Simultaneous-Use := 1\"");
    more += &user("first", "\"Pool-Name := one\"");
    more += &user("second", "\"Pool-Name := one\"");
    let s = TraceFixture::start(&more);
    s.run_login_test("ann", &RIGHT).with_code(0);
    s.expect_reject("unknown-user", "no user has this name", "nobody", &RIGHT);
    s.expect_reject("wrong-password", "wrong password", "ann", &WRONG);
    s.expect_reject("wrong-password", "wrong password", "ann", &method_arguments("eap-md5", WRONG));
    s.run_login_test("ann", &RIGHT).with_code(0);
    s.expect_reject("no-password", "the method needs a password", "none", &RIGHT);
    s.expect_reject(
        "password-form",
        "this method cannot use the stored form",
        "hashed",
        &method_arguments("chap", RIGHT),
    );
    s.expect_reject(
        "method-forbidden",
        "the user's rows do not allow",
        "plain",
        &method_arguments("chap", RIGHT),
    );
    s.expect_reject("no-method", "no method in common", "ann", &method_arguments("mschapv2", RIGHT));
    let said =
        s.expect_reject("no-method", "no method in common", "ann", &method_arguments("eap-gtc", RIGHT));
    assert!(said.out.contains("(the device wants GTC)"), "{said:?}");
    s.expect_reject("locked", "the user is locked", "locked", &RIGHT);
    s.expect_reject("expired", "the user has expired", "over", &RIGHT);
    s.refused_by_row(
        "wired",
        "(`NAS-Port-Type == Ethernet` does not hold: the request has no such attribute)",
    );
    // The log has only the name of a secret.
    s.refused_by_row("private", "(`SN-Tunnel-Password == (hidden)` does not hold: the request has no such");
    assert!(!s.daemon.log().contains("737769746368"), "{}", s.daemon.log());
    s.expect_reject("no-realm", "the realm is refused", "ann@gone.example", &RIGHT);
    for _ in 0..9 {
        s.run_login_test("held", &WRONG).with_code(1);
    }
    s.daemon.wait_for_log("too many failed logins under this name: locked out user=held");
    s.expect_reject("failures", "too many failed logins", "held", &RIGHT);
    s.run_login_test("first", &RIGHT).with_code(0);
    s.expect_reject("pool-empty", "the address pool is exhausted", "second", &RIGHT);
    let start =
        "User-Name=once,Acct-Status-Type=Start,Acct-Session-Id=a1,NAS-IP-Address=127.0.0.1,NAS-Port=1";
    run_radclient(s.ports.acct, "acct", start).with_code(0);
    s.expect_reject("sessions", "the user already has the maximum", "once", &RIGHT);
    // Writes to the database directly.
    let store = rusqlite::Connection::open(s.temp_dir.path("state/usher.db")).unwrap();
    let row = "INSERT INTO radcheck (username, attribute, op, value) VALUES (?1, ?2, ':=', ?3)";
    for (name, attribute, value) in [
        ("strange", "No-Such-Attribute", "1"),
        ("elsewhere", "Cleartext-Password", "right"),
        ("elsewhere", "Pool-Name", "none"),
        ("late", "Cleartext-Password", "right"),
    ] {
        store.execute(row, [name, attribute, value]).unwrap();
    }
    store.execute(row, ["talkative", "Cleartext-Password", "right"]).unwrap();
    let reply = "INSERT INTO radreply (username, attribute, op, value) VALUES ('talkative', 'Reply-Message', '+=', ?1)";
    for _ in 0..20 {
        store.execute(reply, ["x".repeat(240)]).unwrap();
    }
    let said = s.expect_reject(
        "reply-too-long",
        "the user's reply does not fit a RADIUS packet",
        "talkative",
        &RIGHT,
    );
    assert!(said.out.contains("octets of attributes, but only "), "{said:?}");
    // Another program left this value empty.
    let odd = "INSERT INTO radcheck (username, attribute, op, value) VALUES ('unsaid', 'Cleartext-Password', '', 'right')";
    store.execute(odd, []).unwrap();
    s.expect_reject("bad-rows", "the user's rows in the store", "unsaid", &RIGHT);
    s.expect_reject("bad-rows", "the user's rows in the store", "strange", &RIGHT);
    s.expect_reject("pool-unknown", "the user's address pool is not configured", "elsewhere", &RIGHT);
    store.execute("ALTER TABLE radcheck RENAME TO gone", []).unwrap();
    let said = s.expect_login_end("none", "store-away", "the store is not available", "late", &RIGHT);
    assert!(said.out.contains("No answer from"), "{said:?}");
    let names = s.trace.traced_lines();
    assert!(names.contains("Access-Request from 127.0.0.1, client tests"), "{names}");
    // A time of day, as in the log.
    let first = names.lines().next().unwrap();
    let year = |line: &str| line[..5].to_owned();
    assert_eq!(year(first), year(&s.daemon.log()), "{first}");
    assert!(first.as_bytes()[10] == b'T' && first.as_bytes()[26] == b'Z', "{first}");
    assert_eq!(s.daemon.terminate(), Some(0));
}

/// Authorities of a test and their certificates.
struct TestPki(TempDir);

const DAY: u64 = 86_400;

fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs()
}

impl TestPki {
    fn new() -> Self {
        Self(TempDir::new())
    }

    fn authority_folder(&self, authority: &str) -> PathBuf {
        self.0.path(authority)
    }

    /// Creates an authority with this name in a folder.
    fn create_authority(&self, folder: &str, name: &str) -> CertificateAuthority {
        let (key, now) = (KeyKind::EcdsaP256, WallTime::from_unix_secs(now() - 100 * DAY));
        CertificateAuthority::init(
            &self.authority_folder(folder),
            &AuthorityInitOptions { name: name.into(), key, days: 900, now },
        )
        .unwrap()
    }

    fn issue_certificate(
        authority: &mut CertificateAuthority,
        name: &str,
        kind: CertificateKind,
        at: u64,
        days: u32,
    ) {
        let (names, key) = (Vec::new(), KeyKind::EcdsaP256);
        let request = CertificateRequest { name: name.into(), kind, names, key, days, ocsp: None, crl: None };
        authority.issue(&request, WallTime::from_unix_secs(at)).unwrap();
    }

    /// Issues a certificate by OpenSSL in `pki`, with the issuer's certificate and key.
    fn issue_by(&self, name: &str, issuer: &str, digest: &str, extensions: &str) {
        let folder = self.authority_folder("pki");
        let extensions = format!("subjectAltName = DNS:{name}\n{extensions}");
        std::fs::write(folder.join("extensions"), extensions).unwrap();
        let of = |kind: &str| [issuer, name].map(|of| format!("{of}.{kind}"));
        let ([ca, certificate], [ca_key, key]) = (of("crt"), of("key"));
        let (subject, certificate, key) =
            (format!("/CN={name}"), format!("issued/{certificate}"), format!("issued/{key}"));
        let new = ["req", "-new", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"];
        let sign = ["x509", "-req", "-CA", &ca, "-CAkey", &ca_key, "-CAcreateserial", "-days", "5", digest];
        for arguments in [
            [&new[..], &["-subj", &subject, "-keyout", &key, "-out", "request"]].concat(),
            [&sign[..], &["-extfile", "extensions", "-in", "request", "-out", &certificate]].concat(),
        ] {
            let done = Command::new("openssl").args(arguments).current_dir(&folder).output();
            let done = done.expect("openssl is installed");
            assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
        }
        std::fs::set_permissions(folder.join(&key), std::fs::Permissions::from_mode(0o600)).unwrap();
    }

    /// Returns `[tls]` with a server certificate of the authority in `pki`.
    fn tls_section(&self, server: &str, more: &str) -> String {
        let folder = self.authority_folder("pki").display().to_string();
        format!(
            "[tls]\ncertificate = \"{folder}/issued/{server}.crt\"\nkey = \"{folder}/issued/{server}.key\"\n\
             ca = \"{folder}/ca.crt\"\n{more}\n[users]\nstore = \"memory\"\n"
        )
    }

    /// Returns the arguments of a login by a certificate, with the server's authority.
    fn certificate_arguments(&self, folder: &str, name: &str, ca: &str) -> Vec<String> {
        let file = |folder: &str, name: &str| self.authority_folder(folder).join(name).display().to_string();
        let of = |end: &str| file(folder, &format!("issued/{name}.{end}"));
        let all = ["--method", "eap-tls", "--certificate", &of("crt"), "--key", &of("key"), "--ca"];
        all.iter().map(|s| (*s).to_owned()).chain([file(ca, "ca.crt")]).collect()
    }
}

fn user_tables(names: &[&str]) -> String {
    names.iter().map(|name| format!("[[user]]\nname = \"{name}\"\npassword = \"right\"\n")).collect()
}

fn as_arguments(arguments: &[String]) -> Vec<&str> {
    arguments.iter().map(String::as_str).collect()
}

#[test]
fn causes_of_certificates_are_told_apart() {
    let pki = TestPki::new();
    let now = now();
    let mut ours = pki.create_authority("pki", "Ours");
    TestPki::issue_certificate(&mut ours, "server", CertificateKind::Server, now - DAY, 30);
    TestPki::issue_certificate(&mut ours, "ended", CertificateKind::Server, now - 20 * DAY, 10);
    TestPki::issue_certificate(&mut ours, "ann", CertificateKind::Client, now - DAY, 30);
    TestPki::issue_certificate(&mut ours, "old", CertificateKind::Client, now - 20 * DAY, 10);
    TestPki::issue_certificate(&mut ours, "young", CertificateKind::Client, now + 5 * DAY, 10);
    TestPki::issue_certificate(&mut ours, "thief", CertificateKind::Client, now - DAY, 30);
    pki.issue_by("www", "ca", "-sha256", "extendedKeyUsage = serverAuth\n");
    ours.revoke("thief", usher_pki::RevokeReason::KeyCompromise, WallTime::from_unix_secs(now)).unwrap();
    let mut foreign = pki.create_authority("foreign", "Foreign");
    TestPki::issue_certificate(&mut foreign, "ann", CertificateKind::Client, now - DAY, 30);
    let mut double = pki.create_authority("double", "Ours");
    TestPki::issue_certificate(&mut double, "ann", CertificateKind::Client, now - DAY, 30);
    let folder = pki.authority_folder("pki").display().to_string();
    let everybody = user_tables(&["ann", "bob", "old", "young", "thief", "www"]);
    let crl = format!("crl = [\"{folder}/ca.crl\"]");
    let s = TraceFixture::start(&(pki.tls_section("server", &crl) + &everybody));
    let by = |folder: &str, name: &str| pki.certificate_arguments(folder, name, "pki");
    s.run_login_test("ann", &as_arguments(&by("pki", "ann"))).with_code(0);
    for (cause, text, user, arguments) in [
        (
            "certificate-expired",
            "the device's certificate, or its authority's, has expired",
            "old",
            by("pki", "old"),
        ),
        ("certificate-not-yet-valid", "the device's certificate, or its", "young", by("pki", "young")),
        (
            "certificate-unknown-ca",
            "the device's certificate is from an authority",
            "ann",
            by("foreign", "ann"),
        ),
        ("certificate-signature", "a signature of the device's", "ann", by("double", "ann")),
        ("certificate-revoked", "the device's certificate is revoked: it is on", "thief", by("pki", "thief")),
        ("certificate-purpose", "the device's certificate is for another purpose", "www", by("pki", "www")),
        ("certificate-other-name", "the device's certificate has another name", "bob", by("pki", "ann")),
    ] {
        let said = s.expect_reject(cause, text, user, &as_arguments(&arguments));
        // For a handshake failure, an alert informs this side, too.
        let alert = "TLS fails: the server sent TLS alert ";
        assert_eq!(said.out.contains(alert), cause != "certificate-other-name", "{said:?}");
    }
    let said = s.expect_reject(
        "alert-unknown-ca",
        "the device sent TLS alert unknown_ca: it does not know the authority of our certificate",
        "ann",
        &as_arguments(&pki.certificate_arguments("pki", "ann", "foreign")),
    );
    let here = "TLS fails: the server's certificate is from an authority that is not trusted here";
    assert!(said.out.contains(here), "{said:?}");
    // The same within tunnels, whose users are looked up by the inner name.
    let ca = pki.authority_folder("pki").join("ca.crt").display().to_string();
    let inner = TraceProcess::start_trace(&s.temp_dir, &["ann"]);
    let outside = ["--outside", "anonymous", "--ca", &ca];
    let peap = [&outside[..], &["--method", "peap"], &WRONG].concat();
    s.expect_reject("wrong-password", "wrong password", "ann", &peap);
    inner.wait_for_lines("rejected, wrong-password: wrong password", 1);
    inner.wait_for_lines("User-Name = \"anonymous\"", 1);
    s.expect_reject("wrong-password", "wrong password", "bob", &peap);
    assert!(!inner.traced_lines().contains("\"bob\""), "{}", inner.traced_lines());
    drop(s);
    // Others have no list, or an expired one.
    ours.publish_list(WallTime::from_unix_secs(now - 60 * DAY)).unwrap();
    let s = TraceFixture::start(&(pki.tls_section("server", &crl) + &everybody));
    let outdated = "the revocation list for the device's certificate is out of date";
    s.expect_reject("crl-expired", outdated, "ann", &as_arguments(&by("pki", "ann")));
    drop(s);
    let s = TraceFixture::start(&(pki.tls_section("ended", "") + &everybody));
    let expired = "the device sent TLS alert certificate_expired";
    s.expect_reject("alert-certificate-expired", expired, "ann", &as_arguments(&by("pki", "ann")));
}

#[test]
fn causes_of_issuers_that_are_asked_are_told_apart() {
    let pki = super::others::create_certificates();
    let folder = pki.path("pki");
    let tls = super::others::tls_section(&folder, super::revoked::HOME);
    let file = |name: &str| folder.join(name).display().to_string();
    let [certificate, key] = ["crt", "key"].map(|end| file(&format!("issued/ann@hotel.example.{end}")));
    let ca = file("ca.crt");
    let arguments = ["--method", "eap-tls", "--certificate", &certificate, "--key", &key, "--ca", &ca];
    let with = |url: &str| {
        let more = "[users]\nstore = \"memory\"\n[[user]]\nname = \"ann@hotel.example\"\n";
        TraceFixture::start(&format!("{tls}ocsp = \"hard\"\n{url}{more}"))
    };
    let asking = |url: &str| format!("ocsp_url = \"{url}\"\n");
    let refused = |s: &TraceFixture, cause: &str, text: &str| {
        s.expect_reject(cause, text, "ann@hotel.example", &arguments);
    };
    refused(&with(""), "ocsp-no-responder", "no OCSP responder is known");
    let silent = with(&asking(&format!("http://{}", own_socket())));
    refused(&silent, "ocsp-silent", "the OCSP responder for the device's certificate does not answer");
    for (entry, cause, text) in [
        ("R", "ocsp-revoked", "the device's certificate is revoked (OCSP)"),
        ("", "ocsp-unknown", "the OCSP responder does not know the device's certificate"),
    ] {
        let responder = OcspResponder::start(&pki, entry);
        // The first login starts the OCSP request, which takes OpenSSL some time. The next login uses the response.
        let (scene, _) = while_silent(|| {
            let scene = with(&asking(&responder.url()));
            scene.run_login_test("ann@hotel.example", &arguments).with_code(1);
            let log = scene.daemon.log();
            (scene, log)
        });
        refused(&scene, cause, text);
    }
}

#[test]
fn causes_of_home_servers_are_told_apart() {
    let home_ports = ServerPorts::reserve_free();
    let home_place = TempDir::new();
    let home = DaemonProcess::start(&home_place, &home_ports.server_config(1, super::others::ANN));
    let secret = super::daemon::SECRET;
    let host = own_address();
    let server = |name: &str, port: u16| {
        format!("[[home_server]]\nname = \"{name}\"\naddress = \"{host}:{port}\"\nsecret = \"{secret}\"\n")
    };
    let realm =
        |name: &str, server: &str| format!("[[realm]]\nname = \"{name}\"\nservers = [\"{server}\"]\n");
    let more = [
        "[users]\nstore = \"memory\"\n".to_owned(),
        server("home", home_ports.auth),
        server("dead", ServerPorts::reserve_free().auth),
        realm("hotel.example", "home"),
        realm("dead.example", "dead"),
        realm("told.example", "dead") + "unanswered = \"reject\"\n",
    ];
    let s = TraceFixture::start(&more.concat());
    s.run_login_test("ann@hotel.example", &RIGHT).with_code(0);
    s.expect_reject("home-server", "the home server rejected the login", "ann@hotel.example", &WRONG);
    s.expect_login_end("none", "home-silent", "no home server answered", "ann@dead.example", &RIGHT);
    let said = s.expect_reject("home-silent", "no home server answered", "ann@told.example", &RIGHT);
    assert!(said.out.contains("Access-Reject: ann@told.example is rejected"), "{said:?}");
    assert_eq!((s.daemon.terminate(), home.terminate()), (Some(0), Some(0)));
}

#[test]
fn several_look_at_once_and_too_many_are_told() {
    let s = TraceFixture::start(super::daemon::ANN);
    let others: Vec<TraceProcess> =
        (0..6).map(|_| TraceProcess::start_trace(&s.temp_dir, &["ann"])).collect();
    // One slot is left, which the test takes.
    s.expect_reject("wrong-password", "wrong password", "ann", &WRONG);
    for trace in &others {
        trace.wait_for_lines("rejected, wrong-password: wrong password", 1);
    }
    let last = TraceProcess::start_trace(&s.temp_dir, &["bob"]);
    let said = s.temp_dir.run_usher(&["aaa", "trace", "--config", "aaa.toml"]).with_code(1);
    assert!(said.err.contains("8 traces run already; end one of them first"), "{said:?}");
    // Without a trace, `aaa test` says where to look.
    let said = s.run_login_test("ann", &WRONG).with_code(1);
    assert!(said.out.contains("run on its machine: usher aaa trace ann"), "{said:?}");
    // A trace that ends frees its slot.
    drop(last);
    wait_or_fail(
        || format!("there is no room: {}", s.daemon.log()),
        || s.run_login_test("ann", &WRONG).with_code(1).out.contains("cause: wrong-password"),
    );
    let wrong =
        "usher_aaa_logins_total{method=\"pap\",inner=\"\",result=\"reject\",reason=\"wrong-password\"}";
    assert!(metric_value(&get_page(s.ports.metrics, "/metrics"), wrong) >= 3.0);
}

/// The page lists every cause, and no others.
#[test]
fn the_page_has_every_cause() {
    let page = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/howto/why-refused.md");
    let page = std::fs::read_to_string(page).unwrap();
    let tables = page.split_once("\n## The name").unwrap().1;
    let first = tables.lines().filter_map(|line| line.strip_prefix("| `")?.split_once(" |"));
    let names: Vec<&str> =
        first.flat_map(|(names, _)| names.split(", ")).map(|n| n.trim_matches('`')).collect();
    let listed: BTreeSet<&str> = names.iter().copied().collect();
    assert_eq!(listed.len(), names.len(), "each once");
    let all = RejectCause::all_cause_names();
    assert_eq!(listed.difference(&all).collect::<Vec<_>>(), Vec::<&&str>::new(), "no reason has this name");
    assert_eq!(
        all.difference(&listed).collect::<Vec<_>>(),
        Vec::<&&str>::new(),
        "the page says nothing of it"
    );
}

/// Every cause is tested in these files, or is excused with a reason.
#[test]
fn every_cause_is_brought_about_or_has_a_reason() {
    let sources = concat!(include_str!("why.rs"), include_str!("why/packets.rs"));
    // As an argument or the first of a row.
    let tried = |cause: &str| {
        ["(\"", ", \"", " \""].iter().any(|before| sources.contains(&format!("{before}{cause}\"")))
    };
    let elsewhere: BTreeSet<&str> = packets::UNTRIGGERED_CAUSES.iter().map(|(cause, _)| *cause).collect();
    for cause in RejectCause::all_cause_names() {
        // Alerts are tested by number.
        let excused = cause.starts_with("alert-") || elsewhere.contains(cause);
        assert!(excused || tried(cause), "{cause} is neither tried nor excused");
    }
}

#[test]
fn a_login_is_explained_as_json_too() {
    let s = TraceFixture::start(super::daemon::ANN);
    let said = s.run_login_test("ann", &[&WRONG[..], &["--json"]].concat()).with_code(1).stdout_json();
    assert_eq!((&said["outcome"], &said["cause"]), (&"rejected".into(), &"wrong-password".into()));
}
