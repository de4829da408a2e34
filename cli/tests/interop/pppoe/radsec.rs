//! An AAA server that the concentrator reaches by RadSec (RFC 6614) judges hosts and keeps their accounting.

use super::{Cable, SITE};
use crate::certificates::hosts;
use crate::place::USHER;

const AAA: &str = r#"
shards = 1
state_dir = "state"
[listen]
auth = ["127.0.0.1:1812"]
acct = ["127.0.0.1:1813"]
radsec = ["127.0.0.1:2083"]
[log]
level = "debug"
[tls]
certificate = "aaa.example.org.pem"
key = "aaa.example.org.key"
ca = "ca.pem"
[[client]]
name = "ac"
prefix = "127.0.0.1/32"
certificate = "ac.example.org"
[[user]]
name = "ann"
password = "a long password"
"#;

const ASKED: &str = r#"
[aaa]
nas_identifier = "campus.test"
accounting = true
[aaa.tls]
certificate = "ac.example.org.pem"
key = "ac.example.org.key"
ca = "ca.pem"
[[aaa.radius]]
address = "127.0.0.1:2083"
transport = "tls"
certificate = "aaa.example.org"
"#;

#[test]
fn an_aaa_server_behind_tls_judges_hosts_and_keeps_their_accounting() {
    let own = "[[user]]\nname = \"ann\"\npassword = \"a long password\"\n";
    assert!(SITE.contains(own));
    let cable = Cable::with(&format!("{}{ASKED}", SITE.replace(own, "")));
    hosts(&cable.place, &["aaa.example.org", "ac.example.org"]);
    cable.place.write("aaa.toml", AAA);
    let mut command = cable.ac.command(USHER);
    command.args(["aaa", "serve", "--config", "aaa.toml"]);
    let mut server = cable.place.start("aaa", &mut command, "started");
    let mut concentrator = cable.serve("ac");
    drop(cable.as_user("refused", "ann", "chap", "wrong", &[], "does not let this user in"));
    let client = cable.connect("client", "chap", "password", "connected");
    let session = cable.session();
    assert_eq!(session["user"], "ann", "{}\n{}", concentrator.log(), client.log());
    server.wait_for("accounting status=Start user=\"ann\"");
    assert_eq!(concentrator.terminate(), Some(0));
    server.wait_for("accounting status=Stop user=\"ann\"");
}
