//! freeDiameter as client and as server over SCTP: connections start, exchange watchdogs and end.

use crate::diameter::{PORT, SERVER, SLOW, run_load, start_server};
use usher_guest_tests::{GuestHost, GuestTestNetwork, RunningProgram, run_program};

/// freeDiameter's Origin-Host.
const PEER: &str = "peer.example.org";

/// Starts freeDiameter on a host, with the configuration of its test extension and its peer.
#[track_caller]
fn start_freediameter(
    world: &GuestTestNetwork,
    host: GuestHost,
    does: &str,
    connects: &str,
) -> RunningProgram {
    let extension =
        std::env::var("USHER_PEER_EXTENSION").expect("USHER_PEER_EXTENSION names it: ./x test guest does");
    world.write_certificates(PEER);
    let parameters = ["openssl", "genpkey", "-genparam", "-algorithm", "DH", "-pkeyopt", "group:ffdhe2048"];
    world.write_file("dh.pem", &run_program(world.directory(), &parameters));
    world.write_file("acl", "ALLOW_IPSEC *.example.org\n");
    let text = format!(
        r#"Identity = "{PEER}";
Realm = "example.org";
Port = {PORT};
SecPort = 0;
No_TCP;
No_IPv6;
SCTP_streams = 5;
TwTimer = 6;
TcTimer = 5;
ListenOn = "{own}";
TLS_Cred = "{folder}/{PEER}.pem", "{folder}/{PEER}.key";
TLS_CA = "{folder}/ca.pem";
TLS_DH_File = "{folder}/dh.pem";
LoadExtension = "dict_nasreq.fdx";
LoadExtension = "dict_eap.fdx";
LoadExtension = "dbg_msg_dumps.fdx" : "0x0888";
LoadExtension = "acl_wl.fdx" : "{folder}/acl";
LoadExtension = "{extension}" : "{does}";
{connects}
"#,
        own = host.address(1),
        folder = world.directory().display(),
    );
    world.write_file("freediameter.conf", &text);
    world.start_on(host, "freediameter", &["freeDiameterd", "-c", "freediameter.conf"], "daemon initialized")
}

/// Counts how often freeDiameter received (`RCV`) or sent (`SND`) this message.
fn count_messages(log: &str, way: &str, message: &str) -> usize {
    let lines: Vec<&str> = log.lines().collect();
    let (heading, name) = (format!("NOTI   {way} "), format!("'{message}'"));
    lines.windows(2).filter(|pair| pair[0].contains(&heading) && pair[1].ends_with(&name)).count()
}

/// RFC 6733 §5.3, §5.5 and §5.4 over SCTP, and a login by EAP (RFC 4072) between.
#[test]
fn freediameter_connects_logs_in_is_watched_and_leaves() {
    let world = GuestTestNetwork::new(SLOW);
    let mut usher = start_server(&world, "streams = 8", "");
    let connects = format!(
        "ConnectPeer = \"{SERVER}\" {{ ConnectTo = \"{}\"; Port = {PORT}; No_TLS; }};",
        GuestHost::Aaa.address(1)
    );
    let does = "client example.org user password";
    let mut peer = start_freediameter(&world, GuestHost::Nas, does, &connects);
    peer.wait_for("usher_peer: RESULT 2001 EAP 3");
    usher.wait_for("accept user=\"user\" method=\"eap-md5\"");
    let assocs = world.run_on(GuestHost::Aaa, &["cat", "/proc/net/sctp/assocs"]);
    assert!(assocs.contains(&GuestHost::Nas.address(1)), "{assocs}");
    peer.wait_until("watchdogs both ways", |log| {
        let each = [("SND", "Request"), ("RCV", "Answer"), ("RCV", "Request"), ("SND", "Answer")];
        each.iter()
            .filter(|(way, what)| count_messages(log, way, &format!("Device-Watchdog-{what}")) > 0)
            .count()
            >= 2
    });
    assert_eq!(peer.terminate(), Some(0));
    usher.wait_for("a Diameter peer has disconnected peer=\"peer.example.org\"");
    assert!(count_messages(&peer.log(), "SND", "Disconnect-Peer-Request") > 0, "{}", peer.log());
    assert_eq!(usher.terminate(), Some(0));
}

/// The reverse: our load generator is freeDiameter's client.
#[test]
fn freediameter_is_loaded_over_sctp() {
    let world = GuestTestNetwork::new(SLOW);
    let mut peer = start_freediameter(&world, GuestHost::Aaa, "server password", "");
    for method in ["eap-md5", "pap"] {
        let more = ["--method", method, "--count", "60", "--concurrency", "20", "--streams", "3"];
        let value = run_load(&world, GuestHost::Nas, GuestHost::Aaa, PEER, &more);
        assert_eq!((&value["succeeded"], &value["failed"]), (&60.into(), &0.into()), "{value:#}");
    }
    // Our Disconnect-Peer-Request arrives.
    peer.wait_until("our leaving", |log| count_messages(log, "RCV", "Disconnect-Peer-Request") > 0);
}
