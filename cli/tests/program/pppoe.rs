//! `usher pppoe` and `usher who` without a network: files, the log, and the messages without a running concentrator.
//! Sessions are tested in `cli/tests/interop/pppoe.rs`, which needs namespaces.

use crate::aaa::daemon::write_private;
use crate::place::TempDir;
use std::os::unix::net::UnixListener;

const SITE: &str = "[listen]\ninterfaces = [\"no-such-port\"]\ncontrol = \"pppoe.sock\"\n[service]\naddress = \"10.0.0.1\"\n\
                    pools = [\"p\"]\n[[pool]]\nname = \"p\"\nranges = [\"10.0.0.0/24\"]\n[tracking]\nfolder = \"log\"\n";

#[test]
fn a_file_is_checked_with_the_place_of_each_fault() {
    let place = TempDir::new();
    place.write("pppoe.toml", SITE);
    assert!(place.run_usher(&["pppoe", "check", "pppoe.toml"]).with_code(0).out.contains("valid"));
    place.write("wrong.toml", &SITE.replace("pools = [\"p\"]", "pools = [\"q\"]"));
    let faults = place.run_usher(&["pppoe", "check", "wrong.toml", "--json"]).with_code(2).stdout_json();
    let message = faults["faults"][0]["message"].as_str().unwrap();
    assert!(message.contains("there is no [[pool]] \"q\""), "{faults}");
}

#[test]
fn the_file_of_the_aaa_server_within_is_checked_too() {
    let place = TempDir::new();
    place.write("pppoe.toml", &format!("{SITE}[aaa]\nnas_identifier = \"ac.test\"\nserver = \"aaa.toml\"\n"));
    place.write("aaa.toml", "[limits]\nhalf_open = 1000\n");
    assert!(place.run_usher(&["pppoe", "check", "pppoe.toml"]).with_code(0).out.contains("valid"));
    place.write("aaa.toml", "[limits]\nhalf_opened = 1000\n");
    for words in [["check", "pppoe.toml"].as_slice(), &["serve", "--config", "pppoe.toml"]] {
        let said = place.run_usher(&[&["pppoe"], words].concat()).with_code(2);
        assert!(
            said.err.contains("aaa.toml:2") && said.err.contains("half_opened"),
            "{words:?}: {}",
            said.err
        );
    }
    let both = "[[aaa.radius]]\naddress = \"127.0.0.1:1812\"\nsecret = \"a secret\"\n";
    let pppoe = std::fs::read_to_string(place.path("pppoe.toml")).unwrap();
    place.write("pppoe.toml", &format!("{pppoe}{both}"));
    let said = place.run_usher(&["pppoe", "check", "pppoe.toml"]).with_code(2);
    assert!(said.err.contains("keep one of them"), "{}", said.err);
}

#[test]
fn what_is_not_there_is_said() {
    let place = TempDir::new();
    place.write("pppoe.toml", SITE);
    let none = place.run_usher(&["pppoe", "sessions", "--config", "pppoe.toml"]).with_code(1);
    assert!(none.err.contains("start it with: usher pppoe serve"), "{}", none.err);
    let serve = place.run_usher(&["pppoe", "serve", "--config", "pppoe.toml"]).with_code(1);
    assert!(serve.err.contains("no-such-port"), "{}", serve.err);
    // A second start does not disturb a running concentrator. It fails before it reads the log.
    std::fs::remove_dir_all(place.path("log")).unwrap();
    let _runs = UnixListener::bind(place.path("pppoe.sock")).unwrap();
    let another = place.run_usher(&["pppoe", "serve", "--config", "pppoe.toml"]).with_code(1);
    assert!(another.err.contains("another server listens on pppoe.sock"), "{}", another.err);
    assert!(!place.path("log").exists());
    let address = place.run_usher(&["who", "10.0.0.999"]).with_code(2);
    assert!(address.err.contains("is not an address"), "{}", address.err);
}

/// A client with an authority for the server must not use a protocol without server authentication.
#[test]
fn an_authority_goes_with_eap_alone() {
    let place = TempDir::new();
    write_private(&place, "password", "ann-secret");
    let whole = ["pppoe", "connect", "no-such-port", "--user", "ann", "--password-file", "password"];
    for protocol in ["chap", "mschapv2", "pap"] {
        let own = ["--ca", "ca.pem", "--server-name", "aaa.test", "--protocols", protocol];
        let said = place.run_usher(&[&whole[..], &own[..]].concat()).with_code(2);
        assert!(said.err.contains("which needs EAP"), "{protocol}: {}", said.err);
    }
}

#[test]
fn lookups_work_without_a_concentrator_and_are_audited() {
    let place = TempDir::new();
    place.write("pppoe.toml", SITE);
    std::fs::create_dir_all(place.path("log")).unwrap();
    let begin = |session: &str, user: &str, at: &str, address: &str| {
        format!(
            "{{\"event\":\"begin\",\"at\":\"{at}\",\"session\":\"{session}\",\"user\":\"{user}\",\"station\":\"02:00:00:00:00:01\",\
             \"port\":\"eth1\",\"number\":7,\"ipv4\":\"{address}\"}}\n"
        )
    };
    let end = "{\"event\":\"end\",\"at\":\"2026-03-01T12:00:00.5Z\",\"session\":\"1\",\"reason\":\"padt\",\"octets_in\":1,\"octets_out\":2}\n";
    let lines = [
        begin("1", "ann", "2026-03-01T08:00:00Z", "10.0.0.2"),
        end.to_owned(),
        begin("2", "bob", "2026-03-01T12:00:00.9Z", "10.0.0.2"),
    ];
    place.write("log/sessions-2026-03-01.jsonl", &lines.concat());
    let who =
        |at: &str| place.run_usher(&["who", "10.0.0.2", "--at", at, "--json", "--config", "pppoe.toml"]);
    let users = |at: &str| {
        let said = who(at).with_code(0).stdout_json();
        let users =
            said["found"].as_array().unwrap().iter().map(|one| one["user"].as_str().unwrap().to_owned());
        users.collect::<Vec<_>>()
    };
    assert_eq!(users("2026-03-01T11:59:59Z"), ["ann"]);
    assert_eq!(
        users("2026-03-01T21:00:00+09:00"),
        ["ann", "bob"],
        "in a second in which it changed hands both"
    );
    assert_eq!(users("2026-03-01T12:00:01Z"), ["bob"]);
    let nobody = who("2026-03-01T07:00:00Z").with_code(1);
    assert!(nobody.err.contains("no subscriber had 10.0.0.2"), "{}", nobody.err);
    let forgotten = who("2026-02-28T07:00:00Z").with_code(1);
    assert!(forgotten.err.contains("it has no earlier sessions"), "{}", forgotten.err);
    assert!(who("yesterday").with_code(1).err.contains("is not a time"));
    let all = std::fs::read_dir(place.path("log")).unwrap().map(|entry| entry.unwrap().path());
    let audit = all.filter(|path| path.file_name().unwrap().to_str().unwrap().starts_with("audit-"));
    let audit = audit.map(|path| std::fs::read_to_string(path).unwrap()).collect::<String>();
    assert_eq!(audit.lines().count(), 4, "{audit}");
    assert!(audit.contains("\"answer\":\"ann bob\""), "{audit}");
    let text = place
        .run_usher(&["who", "10.0.0.2", "--at", "2026-03-01T12:00:01Z", "--config", "pppoe.toml"])
        .with_code(0);
    assert!(
        text.out.starts_with("bob") && text.err.contains("octets per subscriber and day"),
        "{} {}",
        text.out,
        text.err
    );
}

#[test]
fn files_of_other_concentrators_are_taken_as_far_as_they_go() {
    let place = TempDir::new();
    place.write("accel.conf", "[modules]\npppoe\nippool\nauth_chap_md5\n[pppoe]\ninterface=eth1\n[ip-pool]\ngw-ip-address=10.0.0.1\n10.0.0.2-99\n[cli]\ntelnet=127.0.0.1:2000\n");
    let imported = place.run_usher(&["pppoe", "import", "accel.conf"]).with_code(3);
    assert!(imported.err.contains("accel.conf:11: not imported: telnet of [cli]"), "{}", imported.err);
    place.write("pppoe.toml", &imported.out);
    place.run_usher(&["pppoe", "check", "pppoe.toml"]).with_code(0);
}
