//! Peers of an IKEv2 gateway with revoked certificates: by lists (from files or fetched) and by OCSP.

use crate::aaa::daemon::DaemonProcess;
use crate::aaa::lists::{counting_publisher, start_publisher};
use crate::aaa::ocsp::{OcspResponder, while_silent};
use crate::aaa::others::create_certificates;
use crate::ike::GatewayProcess;
use crate::place::{TempDir, own_socket, wait_until};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// Returns both identities, with certificates of the folder's authority.
fn certificate_identity(pki: &TempDir, own: &str) -> String {
    let pki = pki.path("pki");
    let pki = pki.display();
    format!(
        "local_id = \"{own}\"\nlocal_auth = \"certificate\"\nremote_auth = \"certificate\"\n\
         certificate = \"{pki}/issued/{own}.crt\"\nkey = \"{pki}/issued/{own}.key\"\nca = \"{pki}/ca.crt\"\n"
    )
}

/// Starts a gateway with this revocation policy.
fn start_gateway(place: &TempDir, pki: &TempDir, revocation: &str) -> GatewayProcess {
    let own = certificate_identity(pki, "home.hotel.example");
    GatewayProcess::new(place, &format!("[[connection]]\nname = \"site\"\n{own}[revocation]\n{revocation}"))
}

/// True if the gateway accepts ann, who then stays connected for a moment.
fn lets_in(gateway: &GatewayProcess, place: &TempDir, pki: &TempDir) -> bool {
    admits_ann_with(gateway, place, pki, "")
}

/// The same with further settings in her file.
fn admits_ann_with(gateway: &GatewayProcess, place: &TempDir, pki: &TempDir, more: &str) -> bool {
    lets_user_in(gateway, place, pki, ("ann@hotel.example", more))
}

/// The same for any user.
fn lets_user_in(
    gateway: &GatewayProcess,
    place: &TempDir,
    pki: &TempDir,
    (name, more): (&str, &str),
) -> bool {
    lets_in_by(gateway, place, (&certificate_identity(pki, name), more))
}

/// The same with these credentials.
fn lets_in_by(gateway: &GatewayProcess, place: &TempDir, (own, more): (&str, &str)) -> bool {
    gateway.write_client_config(place, "user.toml", own);
    let file = std::fs::read_to_string(place.path("user.toml")).unwrap();
    let file = file.replace("remote_id = \"gw.test\"", "remote_id = \"home.hotel.example\"");
    place.write("user.toml", &format!("{file}{more}"));
    let client = DaemonProcess::run_command(&mut place.usher_command(&[
        "ike",
        "connect",
        "home",
        "--config",
        "user.toml",
    ]));
    let (established, refused) = ("established", "rejected this side's identity or proof");
    wait_until("there is an end", || client.log().contains(established) || client.log().contains(refused));
    let is = client.log().contains(established);
    assert_eq!(client.terminate(), Some(i32::from(!is)));
    is
}

fn revoke_user(pki: &TempDir) {
    pki.run_usher(&["aaa", "cert", "--dir", "pki", "revoke", "ann@hotel.example"]).with_code(0);
}

#[test]
fn a_renewed_list_refuses_revoked_users_without_a_restart() {
    let (pki, place) = (create_certificates(), TempDir::new());
    let list = pki.path("pki/ca.crl");
    let gateway =
        start_gateway(&place, &pki, &format!("crl = [\"{}\"]\ncrl_interval = \"1 s\"\n", list.display()));
    assert!(lets_in(&gateway, &place, &pki), "{}", gateway.daemon.log());
    revoke_user(&pki);
    gateway.daemon.wait_for_log("revoked=1");
    assert!(!lets_in(&gateway, &place, &pki), "{}", gateway.daemon.log());
    let log = gateway.daemon.log();
    let line = log.lines().find(|line| line.contains("certificate rejected")).unwrap_or_default();
    assert!(line.contains("ann@hotel.example") && line.to_lowercase().contains("revoked"), "{log}");
    // An unreadable list is reported, and the last one stays in use.
    std::fs::write(&list, "no list").unwrap();
    gateway.daemon.wait_for_log("cannot refresh a revocation list");
    assert!(!lets_in(&gateway, &place, &pki), "{}", gateway.daemon.log());
    gateway.daemon.send_signal("HUP");
    gateway.daemon.wait_for_log("the earlier ones stay");
    assert!(!lets_in(&gateway, &place, &pki), "{}", gateway.daemon.log());
}

/// A new list that revokes a connected user ends her IKE_SA.
#[test]
fn who_is_put_on_a_list_while_she_is_there_is_put_out() {
    let (pki, place) = (create_certificates(), TempDir::new());
    let list = pki.path("pki/ca.crl");
    let gateway =
        start_gateway(&place, &pki, &format!("crl = [\"{}\"]\ncrl_interval = \"1 s\"\n", list.display()));
    gateway.write_client_config(&place, "ann.toml", &certificate_identity(&pki, "ann@hotel.example"));
    let file = std::fs::read_to_string(place.path("ann.toml")).unwrap();
    place.write("ann.toml", &file.replace("remote_id = \"gw.test\"", "remote_id = \"home.hotel.example\""));
    let client = DaemonProcess::run_command(
        &mut place.usher_command(&["ike", "connect", "home", "--config", "ann.toml"]),
    );
    client.wait_for_log("established");
    revoke_user(&pki);
    gateway.daemon.wait_for_log("a certificate of the peer has been revoked");
    client.wait_for_log("the peer ended it");
}

#[test]
fn a_list_is_fetched_kept_and_believed_of_the_authority_alone() {
    let (pki, place) = (create_certificates(), TempDir::new());
    let read = |name: &str| Some(std::fs::read(pki.path(name)).unwrap());
    // First, another authority's list.
    pki.run_usher(&["aaa", "cert", "--dir", "made", "init"]).with_code(0);
    let given = Arc::new(Mutex::new(read("made/ca.crl")));
    let url = start_publisher(&given, "ca.crl");
    let text = format!(
        "crl_url = [\"{url}\"]\ncrl_interval = \"1 s\"\nstate_dir = \"{}\"\n",
        place.path("state").display()
    );
    let first = start_gateway(&place, &pki, &text);
    first.daemon.wait_for_log("no authority of ca has signed");
    assert!(lets_in(&first, &place, &pki), "{}", first.daemon.log());
    revoke_user(&pki);
    *given.lock().unwrap() = read("pki/ca.crl");
    first.daemon.wait_for_log("revoked=1");
    assert!(!lets_in(&first, &place, &pki), "{}", first.daemon.log());
    assert_eq!(first.daemon.terminate(), Some(0));
    // The publisher goes down, and the gateway restarts.
    *given.lock().unwrap() = None;
    let again = start_gateway(&place, &pki, &text);
    assert!(!lets_in(&again, &place, &pki), "{}", again.daemon.log());
}

#[test]
fn an_authority_is_asked_whether_a_certificate_holds() {
    let (pki, place) = (create_certificates(), TempDir::new());
    // The responder's status, the policy, and whether ann is accepted.
    for (entry, policy, lets) in [
        ("V", "hard", true),
        ("R", "soft", false),
        ("R", "hard", false),
        ("", "soft", true),
        ("", "hard", false),
    ] {
        let responder = OcspResponder::start(&pki, entry);
        let text = format!("ocsp = \"{policy}\"\nocsp_url = \"{}\"\n", responder.url());
        let (is_in, log) = while_silent(|| {
            let gateway = start_gateway(&place, &pki, &text);
            (lets_in(&gateway, &place, &pki), gateway.daemon.log())
        });
        assert_eq!(is_in, lets, "{entry} {policy}: {log}");
        let said = match (entry, lets) {
            ("R", _) => "its authority has revoked it",
            ("", false) => "its revocation status is unknown",
            ("", true) => "accepted with unknown revocation status",
            _ => "established",
        };
        assert!(log.contains(said), "{entry} {policy}: {log}");
    }
}

/// The URL of a responder in a certificate of an unknown authority cannot be trusted.
#[test]
fn for_a_certificate_of_nobodys_no_responder_is_asked() {
    let (pki, stranger, place) = (create_certificates(), create_certificates(), TempDir::new());
    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    silent.set_nonblocking(true).unwrap();
    let url = format!("http://{}", silent.local_addr().unwrap());
    let gateway = start_gateway(&place, &pki, &format!("ocsp = \"soft\"\nocsp_url = \"{url}\"\n"));
    let issued = |pki: &TempDir| format!("{}/issued/ann@hotel.example", pki.path("pki").display());
    let strange = certificate_identity(&pki, "ann@hotel.example").replace(&issued(&pki), &issued(&stranger));
    assert!(!lets_in_by(&gateway, &place, (&strange, "")), "{}", gateway.daemon.log());
    assert!(gateway.daemon.log().contains("certificate rejected"), "{}", gateway.daemon.log());
    assert!(silent.accept().is_err(), "it was asked");
}

/// The responder accepts requests and does not answer. Clients that need no response are not delayed.
#[test]
fn a_silent_responder_keeps_nobody_waiting_who_needs_no_answer() {
    let (pki, place) = (create_certificates(), TempDir::new());
    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", silent.local_addr().unwrap());
    let questions = Arc::<AtomicU32>::default();
    let count = questions.clone();
    std::thread::spawn(move || {
        let mut held = Vec::new();
        for stream in silent.incoming() {
            held.push(stream);
            count.fetch_add(1, Ordering::Relaxed);
        }
    });
    let asked = || questions.load(Ordering::Relaxed);
    let gateway = start_gateway(&place, &pki, &format!("ocsp = \"soft\"\nocsp_url = \"{url}\"\n"));
    let begun = Instant::now();
    assert!(lets_in(&gateway, &place, &pki), "{}", gateway.daemon.log());
    assert!(begun.elapsed() >= Duration::from_secs(3) && asked() > 0, "somebody was waited for");
    // A silent responder is not asked again for ten seconds, so logins are not delayed then.
    wait_until("a login comes soon enough", || {
        let before = asked();
        assert!(lets_in(&gateway, &place, &pki), "{}", gateway.daemon.log());
        let is_known = gateway.daemon.log().contains("it did not answer a moment ago");
        assert!(!is_known || asked() == before, "it was asked: {}", gateway.daemon.log());
        is_known
    });
}

/// RFC 4806: a gateway that reaches no responder is shown an answer by whom it asks for one.
#[test]
fn an_answer_that_the_other_side_shows_spares_asking() {
    let (pki, place) = (create_certificates(), TempDir::new());
    let responder = OcspResponder::start(&pki, "V");
    let shows = format!("[revocation]\nocsp_url = \"{}\"\n", responder.url());
    let text = format!("ocsp = \"hard\"\nocsp_url = \"http://{}\"\n", own_socket());
    let gateway = start_gateway(&place, &pki, &text);
    // Each attempt uses a new client with a new OCSP request. OpenSSL may take longer than the client's timeout.
    wait_until("an answer is shown", || admits_ann_with(&gateway, &place, &pki, &shows));
    // Without a shown response, the status stays unknown.
    let silent = "[revocation]\nocsp_response = false\n";
    assert!(!admits_ann_with(&gateway, &place, &pki, silent), "{}", gateway.daemon.log());
    drop(responder);
    assert!(!admits_ann_with(&gateway, &place, &pki, &shows), "{}", gateway.daemon.log());
    assert!(gateway.daemon.log().contains("its revocation status is unknown"), "{}", gateway.daemon.log());
}

/// Creates a user's certificate with the URL of its issuer's list.
fn names_its_list(pki: &TempDir, (user, serial): (&str, &str), url: &str) {
    pki.write(
        "ext.cnf",
        &format!(
            "basicConstraints=CA:FALSE\nkeyUsage=digitalSignature\nextendedKeyUsage=clientAuth\n\
             subjectAltName=email:{user}@hotel.example\ncrlDistributionPoints=URI:ldap://127.0.0.1/cn=users,URI:{url}\n"
        ),
    );
    let script = format!(
        "set -e\n\
         openssl req -new -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -subj /CN={user} \
           -keyout pki/issued/{user}@hotel.example.key -out {user}.csr\n\
         openssl x509 -req -in {user}.csr -CA pki/ca.crt -CAkey pki/ca.key -set_serial 0x{serial} -days 30 -extfile ext.cnf \
           -out pki/issued/{user}@hotel.example.crt\n"
    );
    pki.run_shell(&script).with_code(0);
}

/// Creates that authority's list with this serial number.
fn revocation_list(pki: &TempDir, serial: &str, number: &str) -> Vec<u8> {
    pki.write("index.txt", &format!("R\t361231235959Z\t260101000000Z\t{serial}\tunknown\t/CN=x\n"));
    pki.write("number", &format!("{number}\n"));
    pki.write(
        "ca.cnf",
        "[ca]\ndefault_ca = d\n[d]\ndatabase = index.txt\ncrlnumber = number\ndefault_md = sha256\n\
         crl_extensions = e\n[e]\nauthorityKeyIdentifier = keyid\n",
    );
    let make =
        "openssl ca -gencrl -config ca.cnf -cert pki/ca.crt -keyfile pki/ca.key -crldays 1 -out named.crl";
    pki.run_shell(make).with_code(0);
    std::fs::read(pki.path("named.crl")).unwrap()
}

#[test]
fn a_list_that_a_peer_names_is_fetched_only_from_listed_hosts() {
    let (pki, place) = (create_certificates(), TempDir::new());
    let given: Arc<Mutex<Option<Vec<u8>>>> = Arc::default();
    let (url, answers) = counting_publisher(&given, "named.crl");
    let host = url.strip_prefix("http://").unwrap().strip_suffix("/named.crl").unwrap().to_owned();
    names_its_list(&pki, ("ann", "1001"), &url);
    names_its_list(&pki, ("bob", "1003"), &url);
    *given.lock().unwrap() = Some(revocation_list(&pki, "1001", "02"));
    // Lists are only fetched from configured hosts.
    {
        let elsewhere = start_gateway(&place, &pki, "crl_from_peers = [\"crl.example.org\"]\n");
        assert!(lets_in(&elsewhere, &place, &pki), "{}", elsewhere.daemon.log());
    }
    {
        let strict = start_gateway(&place, &pki, "crl_required = true\n");
        assert!(!lets_in(&strict, &place, &pki), "{}", strict.daemon.log());
        assert!(strict.daemon.log().contains("no revocation list of its issuer"), "{}", strict.daemon.log());
    }
    let text = format!("crl_from_peers = [\"{host}\"]\ncrl_interval = \"1 s\"\n");
    let first = revocation_list(&pki, "1002", "02");
    *given.lock().unwrap() = Some(first.clone());
    let named = start_gateway(&place, &pki, &text);
    let fetched = || answers.load(Ordering::Relaxed);
    wait_until("the list is fetched", || {
        assert!(lets_in(&named, &place, &pki), "{}", named.daemon.log());
        fetched() > 0
    });
    // A later list revokes her. An older list that is shown again is ignored.
    *given.lock().unwrap() = Some(revocation_list(&pki, "1001", "03"));
    wait_until("a later list is fetched", || !lets_in(&named, &place, &pki));
    assert!(named.daemon.log().to_lowercase().contains("revoked"), "{}", named.daemon.log());
    *given.lock().unwrap() = Some(first);
    // Bob, who is on no list, triggers a fetch. She no longer does.
    let before = fetched();
    wait_until("an older list is fetched", || {
        assert!(lets_user_in(&named, &place, &pki, ("bob@hotel.example", "")), "{}", named.daemon.log());
        fetched() > before
    });
    assert!(!lets_in(&named, &place, &pki), "{}", named.daemon.log());
}
