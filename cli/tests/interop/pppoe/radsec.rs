//! An AAA server over RadSec (RFC 6614) decides logins of hosts and keeps their accounting.

use super::{PppoeTestNetwork, SITE};
use crate::certificates::write_host_certificates;
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

const CONCENTRATOR_CONFIG: &str = r#"
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
fn a_radsec_aaa_server_decides_logins_and_keeps_accounting() {
    let own = "[[user]]\nname = \"ann\"\npassword = \"a long password\"\n";
    assert!(SITE.contains(own));
    let cable = PppoeTestNetwork::with_config(&format!("{}{CONCENTRATOR_CONFIG}", SITE.replace(own, "")));
    write_host_certificates(&cable.temp_dir, &["aaa.example.org", "ac.example.org"]);
    cable.temp_dir.write_private("aaa.toml", AAA);
    let mut command = cable.ac.command(USHER);
    command.args(["aaa", "serve", "--config", "aaa.toml"]);
    let mut server = cable.temp_dir.start_program("aaa", &mut command, "started");
    let mut concentrator = cable.start_concentrator("ac");
    drop(cable.as_user("refused", "ann", "chap", "wrong", &[], "rejected this user name and password"));
    let client = cable.connect_ann("client", "chap", "password", "connected");
    let session = cable.wait_for_session();
    assert_eq!(session["user"], "ann", "{}\n{}", concentrator.log(), client.log());
    server.wait_for("accounting status=Start user=\"ann\"");
    assert_eq!(concentrator.terminate(), Some(0));
    server.wait_for("accounting status=Stop user=\"ann\"");
}
