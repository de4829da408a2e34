//! Our AAA server: embedded in the concentrator's program, and over Diameter.

use super::{PppoeTestNetwork, SITE};
use crate::certificates::write_chain;
use crate::place::{TEST_TIMEOUT, USHER, run_program};
use rusqlite::{Connection, OpenFlags};
use serde_json::Value;
use std::time::Instant;

const AAA: &str = r#"
shards = 2
state_dir = "state"
[tls]
certificate = "server.pem"
key = "server.key"
ca = "root.pem"
[[user]]
name = "station@usher.test"
[[user]]
name = "ann"
password = "a long password"
"#;

/// Returns a test network whose concentrator has the tables `asked`; `more` extends the AAA server's file.
fn embedded_aaa_network(asked: &str, more: &str) -> PppoeTestNetwork {
    let own = "[[user]]\nname = \"ann\"\npassword = \"a long password\"\n";
    assert!(SITE.contains(own));
    // Our AAA server compares names with certificates.
    let names = "[authentication]\ntrust_certificate_names = true\n";
    let cable = PppoeTestNetwork::with_config(&format!("{}{names}{asked}", SITE.replace(own, "")));
    write_chain(&cable.temp_dir, "server", 2);
    write_chain(&cable.temp_dir, "client", 1);
    cable.temp_dir.write_private("aaa.toml", &format!("{AAA}{more}"));
    cable
}

/// Returns the output of an `usher aaa` command on the running server.
#[track_caller]
fn run_aaa_command(cable: &PppoeTestNetwork, words: &[&str]) -> String {
    let words = [&["aaa"], words, &["--config", "aaa.toml"]].concat();
    let (right, said) = run_program(&cable.temp_dir.path(""), USHER, &words, "");
    assert!(right, "{words:?}: {said}");
    said
}

/// Waits until the AAA server's only session is this user's, and returns it.
#[track_caller]
fn wait_for_accounting(cable: &PppoeTestNetwork, user: &str) -> Value {
    let begun = Instant::now();
    loop {
        let all: Value =
            serde_json::from_str(&run_aaa_command(cable, &["session", "list", "--json"])).unwrap();
        match all.as_array().unwrap().as_slice() {
            [one] if one["user"] == user => return one.clone(),
            other => assert!(begun.elapsed() < TEST_TIMEOUT, "{other:?}"),
        }
        std::thread::sleep(std::time::Duration::from_millis(50));
    }
}

/// Returns the number of sessions in the AAA server's store, and of those without an end.
fn count_stored_sessions(cable: &PppoeTestNetwork) -> (i64, i64) {
    let store =
        Connection::open_with_flags(cable.temp_dir.path("state/usher.db"), OpenFlags::SQLITE_OPEN_READ_ONLY);
    let sql = "SELECT count(*), count(*) - count(acctstoptime) FROM radacct WHERE acctstarttime IS NOT NULL";
    store.unwrap().query_row(sql, [], |row| Ok((row.get(0)?, row.get(1)?))).unwrap()
}

#[track_caller]
fn wait_until_stored(cable: &PppoeTestNetwork, sessions: (i64, i64)) {
    let begun = Instant::now();
    while count_stored_sessions(cable) != sessions {
        assert!(
            begun.elapsed() < TEST_TIMEOUT,
            "{:?} are kept, not {sessions:?}",
            count_stored_sessions(cable)
        );
        std::thread::sleep(std::time::Duration::from_millis(50));
    }
}

#[test]
fn an_embedded_aaa_server_decides_logins_and_ends_with_its_host() {
    let asked =
        "[aaa]\nnas_identifier = \"campus.test\"\naccounting = true\nserver = \"aaa.toml\"\n[aaa.dynamic]\n";
    let cable = embedded_aaa_network(asked, "");
    let mut concentrator = cable.start_concentrator("ac");
    drop(cable.as_user("refused", "ann", "mschapv2", "wrong", &[], "rejected this user name and password"));
    let tls = ["--ca", "root.pem", "--server-name", "aaa.usher.test"];
    let own = [&tls[..], &["--certificate", "client.pem", "--key", "client.key"]].concat();
    let mut client = cable.as_user("client", "station@usher.test", "eap", "password", &own, "connected");
    let session = cable.wait_for_session();
    assert_eq!(session["user"], "station@usher.test", "{}", concentrator.log());
    let known = wait_for_accounting(&cable, "station@usher.test");
    assert_eq!(known["id"], session["session"]);
    // The AAA server ends the session as one of any other access server: by dynamic authorization.
    run_aaa_command(&cable, &["session", "disconnect", known["unique"].as_str().unwrap()]);
    client.wait_for("ended");
    drop(client);
    // A reload of the concentrator reads the AAA server's file, too.
    cable.temp_dir.write_private(
        "aaa.toml",
        &format!("{AAA}[[user]]\nname = \"bob\"\npassword = \"a long password\"\n"),
    );
    concentrator.signal("HUP");
    concentrator.wait_for("reloaded");
    let client = cable.as_user("bob", "bob", "chap", "password", &["--keep"], "connected");
    wait_for_accounting(&cable, "bob");
    wait_until_stored(&cable, (2, 1));
    assert_eq!(concentrator.terminate(), Some(0), "{}", concentrator.log());
    // The concentrator reported the end of each session before it ended itself.
    assert_eq!(count_stored_sessions(&cable), (2, 0), "{}", concentrator.log());
    drop(client);
}

#[test]
fn a_diameter_aaa_server_decides_logins_and_keeps_accounting() {
    let asked = "[aaa]\nnas_identifier = \"campus.test\"\naccounting = true\n[aaa.diameter]\nidentity = \"ac.campus.test\"\n\
                 realm = \"campus.test\"\n[[aaa.diameter.peer]]\nidentity = \"aaa.campus.test\"\naddress = \"127.0.0.1:3868\"\n";
    let peer = "[listen]\ndiameter = [\"127.0.0.1:3868\"]\n[diameter]\nidentity = \"aaa.campus.test\"\nrealm = \"campus.test\"\n\
                [[diameter.peer]]\nidentity = \"ac.campus.test\"\n";
    let cable = embedded_aaa_network(asked, peer);
    let mut command = cable.ac.command(USHER);
    command.args(["aaa", "serve", "--config", "aaa.toml"]);
    let mut server = cable.temp_dir.start_program("aaa", &mut command, "started");
    let mut concentrator = cable.start_concentrator("ac");
    concentrator.wait_for("the AAA server answers");
    let tls = ["--ca", "root.pem", "--server-name", "aaa.usher.test"];
    let own = [&tls[..], &["--certificate", "client.pem", "--key", "client.key"]].concat();
    let mut ended = 0;
    for (user, protocol, more) in
        [("ann", "chap", &[][..]), ("ann", "eap", &tls), ("station@usher.test", "eap", &own)]
    {
        let name = format!("{user}-{protocol}-{}", more.len());
        let mut client = cable.as_user(&name, user, protocol, "password", more, "connected");
        // The concentrator learns the user of a tunnel only from the server, which sends no name by default.
        let nameless = (user, protocol) == ("ann", "eap");
        let shown = cable.wait_for_session()["user"].as_str().unwrap().to_owned();
        assert!(
            shown.starts_with(if nameless { "ann within EAP, session " } else { user }),
            "{name}: {shown}"
        );
        wait_for_accounting(&cable, user);
        assert_eq!(client.terminate(), Some(0), "{name}");
        ended += 1;
        wait_until_stored(&cable, (ended, 0));
    }
    drop(cable.as_user("refused", "ann", "chap", "wrong", &[], "rejected this user name and password"));
    assert_eq!((concentrator.terminate(), server.terminate()), (Some(0), Some(0)));
}
