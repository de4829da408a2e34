//! `usher load ike` with our gateway, by each authentication method.

use crate::aaa::daemon::{DaemonProcess, write_private};
use crate::ike::GatewayProcess;
use crate::place::{TempDir, own_socket, wait_until};
use serde_json::Value;

const SECRET: &str = "a secret of RADIUS";
const USERS: usize = 4;

/// Starts a gateway with a certificate and an AAA server in its process, for users, machines with certificates, and
/// sites with a key.
fn start_gateway(place: &TempDir) -> GatewayProcess {
    let cert = |words: &[&str]| {
        place.run_usher(&[&["aaa", "cert", "--dir", "pki"][..], words].concat()).with_code(0);
    };
    cert(&["init", "--server", "gw.test"]);
    (0..USERS).for_each(|n| cert(&["issue", &format!("user{n}@usher.test")]));
    let (auth, acct) = (own_socket(), own_socket());
    let files =
        "certificate = \"pki/issued/gw.test.crt\"\nkey = \"pki/issued/gw.test.key\"\nca = \"pki/ca.crt\"\n";
    let users =
        (0..USERS).map(|n| format!("[[user]]\nname = \"user{n}@usher.test\"\npassword = \"pw{n}\"\n"));
    write_private(
        place,
        "aaa.toml",
        &format!(
            "state_dir = \"state\"\nreject_delay = \"0 s\"\n[methods]\norder = [\"eap-tls\", \"peap\", \"ttls\", \"eap-mschapv2\", \"eap-md5\"]\n[listen]\nauth = [\"{auth}\"]\nacct = [\"{acct}\"]\n\
             [[client]]\nname = \"gateway\"\nprefix = \"127.0.0.0/8\"\nsecret = \"{SECRET}\"\n\
             [users]\nstore = \"memory\"\n[tls]\n{files}{}",
            users.collect::<String>()
        ),
    );
    GatewayProcess::new(
        place,
        &format!(
            "[[connection]]\nname = \"users\"\nlocal_id = \"gw.test\"\nlocal_auth = \"certificate\"\nremote_auth = \"eap\"\n\
             childless = \"allow\"\n{files}\
             [[connection]]\nname = \"machines\"\nlocal_id = \"gw.test\"\nlocal_auth = \"certificate\"\n\
             remote_auth = \"certificate\"\nchildless = \"allow\"\n{files}\
             [aaa]\nnas_identifier = \"gw.test\"\nserver = \"aaa.toml\"\n"
        ),
    )
}

fn run_load(place: &TempDir, gateway: &GatewayProcess, more: &[&str]) -> Value {
    let at = gateway.nat_address().to_string();
    let words = [
        &["load", "ike", &at, "--gateway-id", "gw.test", "--gateway-ca", "pki/ca.crt", "--json"][..],
        &["--user", "user{}@usher.test", "--password", "pw{}", "--users", "4", "--ca", "pki/ca.crt"],
        &["--certificate", "pki/issued/{name}.crt", "--key", "pki/issued/{name}.key"],
        more,
    ]
    .concat();
    place.run_usher(&words).with_code(0).stdout_json()
}

#[test]
fn initiators_prove_who_they_are_by_each_method() {
    let place = TempDir::new();
    let gateway = start_gateway(&place);
    for method in ["certificate", "eap-md5", "eap-mschapv2", "eap-tls", "peap-mschapv2", "ttls-pap"] {
        let words = ["--method", method, "--count", "12", "--concurrency", "4", "--wrong-share", "30%"];
        let value = run_load(&place, &gateway, &words);
        assert_eq!((&value["succeeded"], &value["failed"]), (&12.into(), &0.into()), "{method}: {value:#}");
        assert_eq!(value["settings"]["gateway proves itself by"], "certificate", "{value:#}");
    }
    // All methods in one load, each counted separately.
    let mix = ["--mix", "certificate=1,eap-md5=1,eap-tls=1", "--count", "60", "--concurrency", "8"];
    let value = run_load(&place, &gateway, &mix);
    assert_eq!((&value["succeeded"], &value["failed"]), (&60.into(), &0.into()), "{value:#}");
    let anonymous = ["--method", "peap-mschapv2", "--anonymous", "anonymous@usher.test", "--count", "4"];
    assert_eq!(run_load(&place, &gateway, &anonymous)["succeeded"], 4);
    assert_eq!(gateway.daemon.terminate(), Some(0));
}

/// Starts a gateway with a shared key for all, and an AAA server in a separate process.
fn start_separate_aaa(place: &TempDir) -> (DaemonProcess, GatewayProcess) {
    let (auth, metrics) = (own_socket(), own_socket());
    let users: String = (0..USERS)
        .map(|n| format!("[[user]]\nname = \"user{n}@usher.test\"\npassword = \"pw{n}\"\n"))
        .collect();
    write_private(
        place,
        "aaa.toml",
        &format!(
            "state_dir = \"state\"\nreject_delay = \"0 s\"\n[methods]\norder = [\"eap-md5\", \"eap-mschapv2\"]\n\
             [listen]\nauth = [\"{auth}\"]\nacct = []\n\
             [[client]]\nname = \"gateway\"\nprefix = \"127.0.0.0/8\"\nsecret = \"{SECRET}\"\n\
             [users]\nstore = \"memory\"\n{users}"
        ),
    );
    let server =
        DaemonProcess::run_command(&mut place.usher_command(&["aaa", "serve", "--config", "aaa.toml"]));
    server.wait_for_log("started");
    let connection = |name: &str, remote: &str| {
        format!(
            "[[connection]]\nname = \"{name}\"\nlocal_id = \"gw.test\"\nlocal_auth = \"psk\"\nremote_auth = \"{remote}\"\n\
             secret_file = \"psk\"\nchildless = \"force\"\nunique = false\n"
        )
    };
    write_private(place, "psk", "a shared secret\n");
    let gateway = GatewayProcess::new(
        place,
        &format!(
            "metrics = \"{metrics}\"\n{}{}[limits]\ncookies_from_network = 100000\ncookies_from = 100000\n\
             [aaa]\nnas_identifier = \"gw.test\"\n[[aaa.radius]]\naddress = \"{auth}\"\nsecret = \"{SECRET}\"\n",
            connection("users", "eap"),
            connection("sites", "psk"),
        ),
    );
    (server, gateway)
}

const USERS_OF_THE_SERVER: [&str; 6] = ["--user", "user{}@usher.test", "--password", "pw{}", "--users", "4"];

/// Returns the arguments of `usher load` for initiators at this gateway.
fn initiator_arguments<'a>(at: &'a str, more: &[&'a str]) -> Vec<&'a str> {
    [
        &["load", "ike", at, "--gateway-id", "gw.test", "--secret-file", "psk", "--json"][..],
        // A slow gateway must not get retransmissions.
        &["--retransmission", "20s"],
        more,
    ]
    .concat()
}

/// A gateway's real work for an IKE_SA is the work that studies charge and profiles price.
#[test]
fn a_gateway_tells_the_work_of_its_ike_sas() {
    const LOGINS: u64 = 6;
    const KINDS: [&str; 7] = [
        "ike.message",
        "ike.sa",
        "ike.key_exchange",
        "ike.open",
        "ike.protect",
        "radius.request",
        "radius.response",
    ];
    let place = TempDir::new();
    let (server, gateway) = start_separate_aaa(&place);
    let at = gateway.nat_address().to_string();
    let done = || {
        let status = place
            .run_usher(&["ike", "status", "--json", "--config", "gateway.toml"])
            .with_code(0)
            .stdout_json();
        KINDS.map(|kind| status["work"][kind].as_u64().unwrap_or(0))
    };
    // IKE: IKE_SA_INIT, an IKE_AUTH for each EAP packet and one for the proof, and the deletion. All but the first
    // are protected. RADIUS: the identity, the Nak, and the method's own requests.
    for (method, exchanges, asked) in [("psk", 3, 0), ("eap-md5", 5, 2), ("eap-mschapv2", 7, 4)] {
        let before = done();
        // With a shared key, initiators are not users.
        let users = if method == "psk" { &[][..] } else { &USERS_OF_THE_SERVER[..] };
        let words = initiator_arguments(
            &at,
            &[&["--method", method, "--count", "6", "--no-check"][..], users].concat(),
        );
        let value = place.run_usher(&words).with_code(0).stdout_json();
        assert_eq!((&value["succeeded"], &value["failed"]), (&LOGINS.into(), &0.into()), "{value:#}");
        let protected = exchanges - 1;
        let expected = [2 * exchanges, 1, 2, protected, protected, asked, asked].map(|units| LOGINS * units);
        let mut last = [0; KINDS.len()];
        wait_until(method, || {
            let now = done();
            last = std::array::from_fn(|i| now[i] - before[i]);
            last[0] >= expected[0]
        });
        assert_eq!(last, expected, "{method}: {KINDS:?}");
    }
    assert_eq!((gateway.daemon.terminate(), server.terminate()), (Some(0), Some(0)));
}

#[test]
fn calibration_prices_an_ike_sa_by_several_methods_or_refuses() {
    let place = TempDir::new();
    let (_server, gateway) = start_separate_aaa(&place);
    let at = gateway.nat_address().to_string();
    let pid = gateway.daemon.process_id().to_string();
    let calibrate = ["--calibrate", "profile.toml", "--server-pid", &pid, "--server-config", "gateway.toml"];
    let words = initiator_arguments(
        &at,
        &[
            &["--mix", "psk=1,md5=1", "--calibrate-hold", "400ms", "--no-libraries"][..],
            &calibrate,
            &USERS_OF_THE_SERVER,
        ]
        .concat(),
    );
    let methods = ["ike-psk", "ike-eap-md5", "ike-psk-probed"];
    let mut measurement = None;
    // A message that is lost on a busy machine changes which kinds of work occur together, but not in each measurement.
    for _ in 0..3 {
        let said = place.run_usher(&words);
        // A debug build on a shared machine may measure badly. Then it must report that and write no profile.
        if said.code != Some(0) {
            assert!(said.err.contains("calibrate again") && !place.path("profile.toml").exists(), "{said:?}");
            let each = said.err.contains("  ike-psk at ") && said.err.contains("  ike-eap-md5 at ");
            assert!(each || said.err.contains("of the logins succeeded"), "{said:?}");
            return;
        }
        let profile = std::fs::read_to_string(place.path("profile.toml")).unwrap();
        std::fs::remove_file(place.path("profile.toml")).unwrap();
        let told = said.stdout_json();
        let messages = methods.map(|method| told["methods"][method]["received_messages"].as_f64().unwrap());
        let is_whole = messages == messages.map(f64::round);
        measurement = Some((told, profile, messages));
        if is_whole {
            break;
        }
    }
    let (told, profile, messages) = measurement.unwrap();
    // IKE has three and five requests. EAP adds two replies of the AAA server, and DPD eight.
    assert_eq!(messages.map(f64::round), [3.0, 7.0, 11.0], "{told}");
    // Kinds of work that always occur together have no separate price. The others state their uncertainty. EAP alone adds
    // requests to the AAA server and saves key derivations: exactly one of these two has a price. The measured cost of EAP
    // decides which (`usher_profile`: `eap_cheaper_than_its_messages_is_priced_by_derivations`).
    let together = |kind: &str| told["not_told_apart"].as_array().unwrap().contains(&kind.into());
    assert_eq!(["ike.open", "ike.protect"].map(together), [true; 2], "{told}");
    assert_ne!(together("ike.derive"), together("radius.request"), "{told}");
    let eap = if together("ike.derive") { "radius.request" } else { "ike.derive" };
    for kind in ["ike.message", "ike.sa", eap] {
        assert!(told["work"][kind]["within_us"].as_f64().is_some_and(|us| us > 0.0), "{kind}: {told}");
    }
    for label in ["ike.message", "ike.sa", eap, "ike.key_exchange"] {
        assert!(profile.contains(&format!("\"{label}\" = {{ user = ")), "{profile}");
    }
    assert!(!profile.contains("radius.response"), "{profile}");
}

#[test]
fn what_does_not_go_together_is_said_before_anything_is_sent() {
    let place = TempDir::new();
    place.run_usher(&["aaa", "cert", "--dir", "pki", "init", "--server", "gw.test"]).with_code(0);
    write_private(&place, "psk", "a shared secret\n");
    let base = ["load", "ike", "127.0.0.1:9", "--gateway-id", "gw.test"];
    let refused = |more: &[&str], part: &str| {
        let said = place.run_usher(&[&base[..], more].concat());
        assert!(said.code == Some(2) && said.err.contains(part), "{more:?}: {said:?}");
    };
    refused(&[], "--secret-file");
    refused(&["--gateway-ca", "pki/ca.crt"], "psk needs --secret-file");
    refused(
        &["--secret-file", "psk", "--method", "eap-sim"],
        "unknown method \"eap-sim\"; the methods are psk",
    );
    refused(&["--secret-file", "psk", "--method", "eap-md5"], "no user: give --user NAME");
    refused(&["--secret-file", "psk", "--user", "ann"], "--user does not apply to psk");
    // These gateways cannot be calibrated.
    let gateway = |name: &str, listen: &str, aaa: &str| {
        let text = format!(
            "[listen]\naddresses = [\"127.0.0.1\"]\n{listen}[[connection]]\nname = \"users\"\nlocal_id = \"gw.test\"\n\
             local_auth = \"psk\"\nremote_auth = \"eap\"\nsecret_file = \"psk\"\n[aaa]\nnas_identifier = \"gw.test\"\n{aaa}"
        );
        write_private(&place, name, &text);
    };
    let metrics = "metrics = \"127.0.0.1:9813\"\n";
    let other = "[[aaa.radius]]\naddress = \"127.0.0.1:1812\"\nsecret = \"a secret of RADIUS\"\n";
    gateway("silent.toml", "", other);
    gateway("both.toml", metrics, "server = \"aaa.toml\"\n");
    let users = ["--secret-file", "psk", "--method", "eap-md5", "--user", "ann", "--password", "a"];
    for (file, part) in [("silent.toml", "add metrics"), ("both.toml", "runs in the gateway's process")] {
        let calibrate = ["--calibrate", "x", "--server-pid", "1", "--server-config", file];
        refused(&[&users[..], &calibrate].concat(), part);
    }
    let certificate = ["--gateway-ca", "pki/ca.crt", "--method", "certificate", "--user", "ann"];
    refused(&certificate, "certificate needs --certificate and --key");
    let one = ["--certificate", "pki/issued/gw.test.crt", "--key", "pki/issued/gw.test.key", "--users", "2"];
    let two = [&certificate[..5], &["user{}"][..], &one[..]].concat();
    refused(&two, "one certificate has one name");
}
