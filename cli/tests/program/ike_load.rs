//! `usher load ike` at our gateway, by each way of showing who one is.

use crate::aaa::daemon::private;
use crate::ike::{Gateway, ports};
use crate::place::Folder;
use serde_json::Value;

const SECRET: &str = "a secret of RADIUS";
const USERS: usize = 4;

/// A gateway with a certificate, whose users an AAA server in its own program judges; beside them machines with certificates and
/// sites with a key.
fn gateway(place: &Folder) -> Gateway {
    let cert = |words: &[&str]| {
        place.usher(&[&["aaa", "cert", "--dir", "pki"][..], words].concat()).with_code(0);
    };
    cert(&["init", "--server", "gw.test"]);
    (0..USERS).for_each(|n| cert(&["issue", &format!("user{n}@usher.test")]));
    let [auth, acct] = ports();
    let files =
        "certificate = \"pki/issued/gw.test.crt\"\nkey = \"pki/issued/gw.test.key\"\nca = \"pki/ca.crt\"\n";
    let users =
        (0..USERS).map(|n| format!("[[user]]\nname = \"user{n}@usher.test\"\npassword = \"pw{n}\"\n"));
    private(
        place,
        "aaa.toml",
        &format!(
            "state_dir = \"state\"\nreject_delay = \"0 s\"\n[methods]\norder = [\"eap-tls\", \"peap\", \"ttls\", \"eap-mschapv2\", \"eap-md5\"]\n[listen]\nauth = [\"127.0.0.1:{auth}\"]\nacct = [\"127.0.0.1:{acct}\"]\n\
             [[client]]\nname = \"gateway\"\nprefix = \"127.0.0.0/8\"\nsecret = \"{SECRET}\"\n\
             [users]\nstore = \"memory\"\n[tls]\n{files}{}",
            users.collect::<String>()
        ),
    );
    Gateway::new(
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

fn load(place: &Folder, gateway: &Gateway, more: &[&str]) -> Value {
    let at = format!("127.0.0.1:{}", gateway.nat_port());
    let words = [
        &["load", "ike", &at, "--gateway-id", "gw.test", "--gateway-ca", "pki/ca.crt", "--json"][..],
        &["--user", "user{}@usher.test", "--password", "pw{}", "--users", "4", "--ca", "pki/ca.crt"],
        &["--certificate", "pki/issued/{name}.crt", "--key", "pki/issued/{name}.key"],
        more,
    ]
    .concat();
    place.usher(&words).with_code(0).json()
}

#[test]
fn initiators_prove_who_they_are_by_each_method() {
    let place = Folder::new();
    let gateway = gateway(&place);
    for method in ["certificate", "eap-md5", "eap-mschapv2", "eap-tls", "peap-mschapv2", "ttls-pap"] {
        let words = ["--method", method, "--count", "12", "--concurrency", "4", "--wrong-share", "30%"];
        let value = load(&place, &gateway, &words);
        assert_eq!((&value["succeeded"], &value["failed"]), (&12.into(), &0.into()), "{method}: {value:#}");
        assert_eq!(value["settings"]["gateway proves itself by"], "certificate", "{value:#}");
    }
    // All of them in one load, each counted by itself.
    let mix = ["--mix", "certificate=1,eap-md5=1,eap-tls=1", "--count", "60", "--concurrency", "8"];
    let value = load(&place, &gateway, &mix);
    assert_eq!((&value["succeeded"], &value["failed"]), (&60.into(), &0.into()), "{value:#}");
    let anonymous = ["--method", "peap-mschapv2", "--anonymous", "anonymous@usher.test", "--count", "4"];
    assert_eq!(load(&place, &gateway, &anonymous)["succeeded"], 4);
    assert_eq!(gateway.daemon.end(), Some(0));
}

#[test]
fn what_does_not_go_together_is_said_before_anything_is_sent() {
    let place = Folder::new();
    place.usher(&["aaa", "cert", "--dir", "pki", "init", "--server", "gw.test"]).with_code(0);
    private(&place, "psk", "a shared secret\n");
    let base = ["load", "ike", "127.0.0.1:9", "--gateway-id", "gw.test"];
    let refused = |more: &[&str], part: &str| {
        let said = place.usher(&[&base[..], more].concat());
        assert!(said.code == Some(2) && said.err.contains(part), "{more:?}: {said:?}");
    };
    refused(&[], "--secret-file");
    refused(&["--gateway-ca", "pki/ca.crt"], "psk needs --secret-file");
    refused(
        &["--secret-file", "psk", "--method", "eap-sim"],
        "no method is named \"eap-sim\"; there are psk",
    );
    refused(&["--secret-file", "psk", "--method", "eap-md5"], "who is to log in?");
    refused(&["--secret-file", "psk", "--user", "ann"], "--method has users");
    refused(
        &[
            "--secret-file",
            "psk",
            "--method",
            "eap-md5",
            "--user",
            "ann",
            "--calibrate",
            "x",
            "--server-pid",
            "1",
            "--server-config",
            "x",
        ],
        "by psk alone",
    );
    let certificate = ["--gateway-ca", "pki/ca.crt", "--method", "certificate", "--user", "ann"];
    refused(&certificate, "certificate needs --certificate and --key");
    let one = ["--certificate", "pki/issued/gw.test.crt", "--key", "pki/issued/gw.test.key", "--users", "2"];
    let two = [&certificate[..5], &["user{}"][..], &one[..]].concat();
    refused(&two, "one certificate bears one name");
}
