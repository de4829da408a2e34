//! freeDiameter as client and as server, over TCP and TLS: connections start, exchange watchdogs and end.

use crate::certificates::write_host_certificates;
use crate::namespace::{ADDRESS, NetworkNamespace};
use crate::place::{RunningProgram, TempDir, USHER, run_program};
use std::path::Path;

/// The Origin-Hosts of our server, freeDiameter and the load generator.
pub(crate) const HOSTS: [&str; 3] = ["aaa.example.org", "peer.example.org", "load.example.org"];
/// freeDiameter's ports. Ours are the next ones.
pub(crate) const PORTS: [u16; 2] = [3868, 5658];

/// The role of freeDiameter with the messages of `usher_peer`.
pub(crate) enum FreeDiameterRole<'a> {
    /// Connects to us and logs `user` in with this password.
    Client { password: &'a str },
    /// Waits for connections and knows this password.
    Server { password: &'a str },
}

pub(crate) struct DiameterTestNetwork {
    pub(crate) temp_dir: TempDir,
    pub(crate) space: NetworkNamespace,
    tls: bool,
}

impl DiameterTestNetwork {
    pub(crate) fn new(tls: bool) -> Self {
        let place = TempDir::new();
        write_host_certificates(&place, &HOSTS);
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/interop/peers/usher_peer.c");
        let libraries = ["-lfdcore", "-lfdproto", "-lgnutls"];
        let compiler = ["-shared", "-fPIC", "-O2", "-o", "usher_peer.so", source.to_str().unwrap()];
        let (right, said) = run_program(&place.path(""), "cc", &[&compiler[..], &libraries].concat(), "");
        assert!(right, "{said}");
        let parameters = ["genpkey", "-genparam", "-algorithm", "DH", "-pkeyopt", "group:ffdhe2048"];
        let (right, said) = run_program(&place.path(""), "openssl", &parameters, "");
        assert!(right, "{said}");
        place.write_private("dh.pem", &said);
        Self { temp_dir: place, space: NetworkNamespace::new(), tls }
    }

    /// Starts our server with this watchdog interval in seconds.
    #[track_caller]
    pub(crate) fn start_server(&self, watchdog: u32) -> RunningProgram {
        let (tcp, tls) = (PORTS[0] + 1, PORTS[1] + 1);
        let text = format!(
            r#"shards = 1
reject_delay = "0 s"
state_dir = "{state}"
[listen]
auth = []
acct = []
diameter = ["{ADDRESS}:{tcp}"]
diameter_tls = ["{ADDRESS}:{tls}"]
[tls]
certificate = "{own}.pem"
key = "{own}.key"
ca = "ca.pem"
[methods]
order = ["eap-md5", "peap", "pap"]
[diameter]
identity = "{own}"
realm = "example.org"
watchdog = "{watchdog} s"
[[diameter.peer]]
identity = "{peer}"
prefix = ["{ADDRESS}"]
[[diameter.peer]]
identity = "{load}"
prefix = ["{ADDRESS}"]
[log]
level = "debug"
[[user]]
name = "user"
password = "password"
"#,
            state = self.temp_dir.path_text("state"),
            own = HOSTS[0],
            peer = HOSTS[1],
            load = HOSTS[2],
        );
        self.space.start_server(&self.temp_dir, &text)
    }

    /// Starts freeDiameter with this watchdog interval in seconds.
    #[track_caller]
    pub(crate) fn start_freediameter(&self, role: &FreeDiameterRole<'_>, watchdog: u32) -> RunningProgram {
        let folder = self.temp_dir.path_text("");
        let (own, peer) = (HOSTS[0], HOSTS[1]);
        let (does, connects) = match role {
            FreeDiameterRole::Server { password } => (format!("server {password}"), String::new()),
            FreeDiameterRole::Client { password } => {
                let (port, plain) = if self.tls { (PORTS[1] + 1, "") } else { (PORTS[0] + 1, "No_TLS; ") };
                let connects = format!(
                    "ConnectPeer = \"{own}\" {{ ConnectTo = \"{ADDRESS}\"; Port = {port}; No_SCTP; {plain}}};"
                );
                (format!("client example.org user {password}"), connects)
            }
        };
        let text = format!(
            r#"Identity = "{peer}";
Realm = "example.org";
Port = {tcp};
SecPort = {tls};
No_SCTP;
No_IPv6;
TwTimer = {watchdog};
TcTimer = 5;
ListenOn = "{ADDRESS}";
TLS_Cred = "{folder}{peer}.pem", "{folder}{peer}.key";
TLS_CA = "{folder}ca.pem";
TLS_DH_File = "{folder}dh.pem";
LoadExtension = "dict_nasreq.fdx";
LoadExtension = "dict_eap.fdx";
LoadExtension = "dbg_msg_dumps.fdx" : "0x0888";
LoadExtension = "acl_wl.fdx" : "{folder}acl";
LoadExtension = "{folder}usher_peer.so" : "{does}";
{connects}
"#,
            tcp = PORTS[0],
            tls = PORTS[1],
        );
        self.temp_dir.write_private("acl", "ALLOW_IPSEC *.example.org\n");
        self.temp_dir.write_private("freediameter.conf", &text);
        let mut command = self.space.command("freeDiameterd");
        command.args(["-c", "freediameter.conf"]);
        self.temp_dir.start_program("freediameter", &mut command, "freeDiameterd daemon initialized")
    }

    /// Loads the server that calls itself `peer`, at this port or the next one, and returns the result.
    #[track_caller]
    pub(crate) fn load_peer(&self, peer: &str, next: u16, more: &[&str]) -> serde_json::Value {
        let at = format!("{ADDRESS}:{}", PORTS[usize::from(self.tls)] + next);
        let (certificate, key) = (format!("{}.pem", HOSTS[2]), format!("{}.key", HOSTS[2]));
        let mut words = vec!["load", "diameter", &at, "--yes", "--json", "--peer", peer];
        words.extend(["--identity", HOSTS[2], "--user", "user", "--password", "password"]);
        if self.tls {
            words.extend(["--tls", "--ca", "ca.pem", "--certificate", &certificate, "--key", &key]);
            words.extend(["--server-name", peer]);
        }
        words.extend(more);
        let (right, said) = self.space.run_program(&self.temp_dir, USHER, &words, "");
        assert!(right, "{words:?}: {said}");
        serde_json::from_str(&said).unwrap_or_else(|e| panic!("{e}: {said}"))
    }
}

/// Counts how often freeDiameter received (`RCV`) or sent (`SND`) this message.
fn count_messages(log: &str, way: &str, message: &str) -> usize {
    let lines: Vec<&str> = log.lines().collect();
    let heading = format!("NOTI   {way} ");
    let name = format!("'{message}'");
    lines.windows(2).filter(|pair| pair[0].contains(&heading) && pair[1].ends_with(&name)).count()
}

#[track_caller]
fn waits_for(running: &mut RunningProgram, way: &str, message: &str) {
    running.wait_until(&format!("{way} {message}"), |log| count_messages(log, way, message) > 0);
}

#[test]
fn freediameter_logs_in_by_eap_at_us() {
    for tls in [false, true] {
        for (password, end) in [("password", "RESULT 2001 EAP 3"), ("wrong", "RESULT 4001 EAP 4")] {
            let world = DiameterTestNetwork::new(tls);
            let mut usher = world.start_server(30);
            let mut peer = world.start_freediameter(&FreeDiameterRole::Client { password }, 30);
            peer.wait_for("usher_peer: RESULT");
            let log = peer.log();
            assert!(log.contains(end), "TLS {tls}, {password}: {log}");
            assert!(log.contains("'STATE_WAITCEA'\t-> 'STATE_OPEN'"), "{log}");
            assert_eq!(log.contains("No TLS protection negotiated"), !tls, "{log}");
            let verdict = if password == "password" { "accept" } else { "reject" };
            usher.wait_for(&format!("{verdict} user=\"user\" method=\"eap-md5\""));
        }
    }
}

#[test]
fn either_side_disconnects() {
    for tls in [false, true] {
        let world = DiameterTestNetwork::new(tls);
        let mut usher = world.start_server(30);
        let client = FreeDiameterRole::Client { password: "password" };
        let mut peer = world.start_freediameter(&client, 30);
        peer.wait_for("usher_peer: RESULT 2001");
        let code = peer.terminate();
        let log = peer.log();
        // On a busy machine it may abort in its own threads at the end.
        assert!(code == Some(0) || log.contains("fd_fifo_del: Assertion"), "{code:?}: {log}");
        assert!(count_messages(&log, "RCV", "Disconnect-Peer-Answer") > 0, "we answer before it goes: {log}");
        usher.wait_for("a Diameter peer has disconnected peer=\"peer.example.org\"");

        let mut peer = world.start_freediameter(&client, 30);
        peer.wait_for("usher_peer: RESULT 2001");
        assert_eq!(usher.terminate(), Some(0));
        peer.wait_for("sent a DPR with cause: REBOOTING");
        waits_for(&mut peer, "SND", "Disconnect-Peer-Answer");
    }
}

#[test]
fn each_watches_the_other() {
    /// The number of attempts if a program on a busy machine did not answer in time.
    const TRIES: u32 = 5;
    let asked_by = |ours: u32, theirs: u32, asked: &str, answered: &str| {
        let mut tries = 0;
        let (_world, mut usher, mut peer) = loop {
            tries += 1;
            let world = DiameterTestNetwork::new(false);
            let usher = world.start_server(ours);
            let mut peer =
                world.start_freediameter(&FreeDiameterRole::Client { password: "password" }, theirs);
            peer.wait_for("usher_peer: RESULT 2001");
            waits_for(&mut peer, asked, "Device-Watchdog-Request");
            waits_for(&mut peer, answered, "Device-Watchdog-Answer");
            // The connection is still up, so the answer was accepted.
            peer.wait_until("a second watchdog", |log| {
                count_messages(log, asked, "Device-Watchdog-Request") > 1
            });
            if !usher.log().contains("up=false") {
                break (world, usher, peer);
            }
            assert!(tries < TRIES, "{}", usher.log());
        };
        // A peer without answers closes the connection.
        if asked == "RCV" {
            peer.signal("STOP");
            usher.wait_for("a Diameter peer has disconnected peer=\"peer.example.org\"");
            peer.signal("CONT");
        } else {
            usher.signal("STOP");
            peer.wait_for("'STATE_OPEN'\t-> 'STATE_SUSPECT'");
            usher.signal("CONT");
            peer.wait_until("it is open again", |log| {
                log.rfind("-> 'STATE_OPEN'") > log.rfind("-> 'STATE_SUSPECT'")
            });
        }
    };
    std::thread::scope(|scope| {
        scope.spawn(|| asked_by(6, 600, "RCV", "SND"));
        asked_by(600, 6, "SND", "RCV");
    });
}

#[test]
fn freediameter_is_loaded() {
    for tls in [false, true] {
        let world = DiameterTestNetwork::new(tls);
        let mut peer = world.start_freediameter(&FreeDiameterRole::Server { password: "password" }, 30);
        for method in ["eap-md5", "pap"] {
            let value = world.load_peer(HOSTS[1], 0, &["--method", method, "--count", "200"]);
            assert_eq!((&value["succeeded"], &value["failed"]), (&200.into(), &0.into()), "{value:#}");
        }
        let wrong = ["--method", "eap-md5", "--count", "100", "--wrong-share", "50%"];
        let value = world.load_peer(HOSTS[1], 0, &wrong);
        assert_eq!((&value["succeeded"], &value["failed"]), (&100.into(), &0.into()), "{value:#}");
        assert!(value["expected_rejects"].as_u64() > Some(20), "{value:#}");
        // The end is announced.
        waits_for(&mut peer, "RCV", "Disconnect-Peer-Request");
    }
}

#[test]
fn we_are_loaded_over_diameter() {
    for tls in [false, true] {
        let world = DiameterTestNetwork::new(tls);
        let mut usher = world.start_server(30);
        for (more, records) in [
            (&["--method", "eap-md5"][..], 0_u32),
            (&["--method", "pap", "--wrong-share", "20%"], 0),
            (&["--method", "accounting", "--interims", "1"], 600),
            (&["--method", "pap", "--accounting"], 400),
            // With the keys of both sides compared; over TLS the authority is named already.
            (&["--method", "eap-peap-mschapv2", "--ca", "ca.pem"][..if tls { 2 } else { 4 }], 0),
        ] {
            let value = world.load_peer(HOSTS[0], 1, &[more, &["--count", "200"]].concat());
            assert_eq!((&value["succeeded"], &value["failed"]), (&200.into(), &0.into()), "{value:#}");
            assert_eq!(value["accounting_records"], records, "{value:#}");
        }
        assert_eq!(usher.terminate(), Some(0));
    }
}

#[test]
fn a_diameter_session_is_listed_and_cannot_be_disconnected() {
    let world = DiameterTestNetwork::new(false);
    let mut usher = world.start_server(30);
    let at = format!("{ADDRESS}:{}", PORTS[0] + 1);
    let mut command = world.space.command(USHER);
    command.args([
        "load",
        "diameter",
        &at,
        "--yes",
        "--no-check",
        "--peer",
        HOSTS[0],
        "--identity",
        HOSTS[2],
    ]);
    command.args(["--user", "user", "--password", "password", "--method", "accounting", "--count", "1"]);
    command.args(["--concurrency", "1", "--interims", "1", "--interim-every", "1h"]);
    let _load = world.temp_dir.start_program("load", &mut command, "");
    usher.wait_for("accounting status=Start user=\"user\"");
    let ask = |words: &[&str]| {
        run_program(
            &world.temp_dir.path(""),
            USHER,
            &[&["aaa", "session"], words, &["--config", "aaa.toml"]].concat(),
            "",
        )
    };
    let (right, said) = ask(&["list", "--json"]);
    let sessions: Vec<serde_json::Value> =
        serde_json::from_str(&said).unwrap_or_else(|e| panic!("{e}: {said}"));
    assert!(right && sessions.len() == 1 && sessions[0]["user"] == "user", "{said}");
    let (right, said) = ask(&["disconnect", sessions[0]["id"].as_str().unwrap()]);
    assert!(!right && said.contains("came by Diameter"), "{said}");
}
