//! Our load generator at our server, over links with 50 ms of delay in each direction.

use serde_json::Value;
use usher_guest_tests::{GuestHost, GuestTestNetwork, LinkImpairment, RunningProgram, usher_program};

/// Links without loss.
pub(crate) const SLOW: LinkImpairment = LinkImpairment { delay_ms: 50, loss: 0.0 };
/// The server's Origin-Host.
pub(crate) const SERVER: &str = "aaa.example.org";
/// The server's port.
pub(crate) const PORT: u16 = 3868;

/// Starts our server. It listens by SCTP at both addresses of its host.
#[track_caller]
pub(crate) fn start_server(world: &GuestTestNetwork, sctp: &str, more: &str) -> RunningProgram {
    let (first, second) = (GuestHost::Aaa.address(1), GuestHost::Aaa.address(2));
    let text = format!(
        r#"shards = 2
reject_delay = "0 s"
state_dir = "{state}"
[listen]
auth = []
acct = []
diameter_sctp = ["{first}:{PORT}", "{second}:{PORT}"]
[methods]
order = ["eap-md5", "pap"]
[diameter]
identity = "{SERVER}"
realm = "example.org"
watchdog = "6 s"
[diameter.sctp]
{sctp}
[[diameter.peer]]
identity = "load.example.org"
prefix = ["10.99.0.0/16"]
[[diameter.peer]]
identity = "peer.example.org"
prefix = ["10.99.0.0/16"]
{more}
[log]
level = "debug"
[[user]]
name = "user"
password = "password"
"#,
        state = world.directory().join("state").display(),
    );
    world.write_file("aaa.toml", &text);
    world.start_on(
        GuestHost::Aaa,
        "usher",
        &[usher_program().as_str(), "aaa", "serve", "--config", "aaa.toml"],
        "started",
    )
}

/// Loads the server that calls itself `peer`, at its first address, and returns the result.
#[track_caller]
pub(crate) fn run_load(
    world: &GuestTestNetwork,
    from: GuestHost,
    to: GuestHost,
    peer: &str,
    more: &[&str],
) -> Value {
    let (program, at) = (usher_program(), format!("{}:{PORT}", to.address(1)));
    let asked = [program.as_str(), "load", "diameter", &at, "--transport", "sctp", "--peer", peer];
    let login =
        ["--yes", "--json", "--identity", "load.example.org", "--user", "user", "--password", "password"];
    let said = world.run_on(from, &[&asked[..], &login, more].concat());
    serde_json::from_str(&said).unwrap_or_else(|e| panic!("{e}: {said}"))
}

/// Loads our server and checks that all logins ended as expected.
#[track_caller]
fn load_own_server(world: &GuestTestNetwork, count: u32, more: &[&str]) -> Value {
    let counted = ["--count", &count.to_string()];
    let value = run_load(world, GuestHost::Nas, GuestHost::Aaa, SERVER, &[&counted[..], more].concat());
    assert_eq!((&value["succeeded"], &value["failed"]), (&count.into(), &0.into()), "{value:#}");
    value
}

/// RFC 6733 §2.1: over SCTP, with its methods, rejects and accounting.
#[test]
fn logins_and_accounting_go_over_associations() {
    let world = GuestTestNetwork::new(SLOW);
    let mut server = start_server(&world, "streams = 16", "");
    let concurrent = ["--concurrency", "20"];
    let value = load_own_server(
        &world,
        100,
        &[&["--method", "pap", "--wrong-share", "20%"], &concurrent[..]].concat(),
    );
    assert!(value["expected_rejects"].as_u64() > Some(5), "{value:#}");
    load_own_server(&world, 100, &[&["--method", "eap-md5"], &concurrent[..]].concat());
    let value = load_own_server(
        &world,
        40,
        &[&["--method", "accounting", "--interims", "1"], &concurrent[..]].concat(),
    );
    assert_eq!(value["accounting_records"], 120, "{value:#}");
    assert_eq!(server.terminate(), Some(0));
}

/// One login, explained step by step.
#[test]
fn a_test_login_goes_over_an_association() {
    let world = GuestTestNetwork::new(SLOW);
    let mut server = start_server(&world, "streams = 16", "");
    world.write_file("right", "password\n");
    world.write_file("wrong", "another\n");
    let (program, at) = (usher_program(), format!("{}:{PORT}", GuestHost::Aaa.address(1)));
    let asked = [program.as_str(), "aaa", "test", "user", "--server", &at, "--peer", SERVER, "--sctp"];
    let who = ["--identity", "load.example.org", "--method", "eap-md5", "--json", "--password-file"];
    let said = world.run_on(GuestHost::Nas, &[&asked[..], &who, &["right"]].concat());
    assert!(said.contains("\"outcome\": \"accepted\"") && said.contains("Diameter-EAP-Answer"), "{said}");
    let log = server.log();
    assert!(log.contains("accept user=\"user\""), "{log}");
    assert_eq!(server.terminate(), Some(0));
}

/// RFC 6733 §5.3.1: CER and CEA have all addresses of the SCTP association. RFC 9260 §5.1.1: it has as many
/// streams as both sides allow.
#[test]
fn an_association_has_both_sides_streams_and_all_addresses() {
    let world = GuestTestNetwork::new(SLOW);
    let _server = start_server(&world, "streams = 4", "");
    let (program, at) = (usher_program(), format!("{}:{PORT}", GuestHost::Aaa.address(1)));
    let asked = [program.as_str(), "load", "diameter", &at, "--transport", "sctp", "--peer", SERVER];
    let login = ["--yes", "--no-check", "--user", "user", "--password", "password", "--duration", "60s"];
    let mut load =
        world.start_on(GuestHost::Nas, "load", &[&asked[..], &login, &["--concurrency", "1"]].concat(), "");
    let begun = std::time::Instant::now();
    let line = loop {
        let said = world.run_on(GuestHost::Aaa, &["cat", "/proc/net/sctp/assocs"]);
        if let Some(line) = said.lines().find(|line| line.contains("<->") && line.contains("10.99")) {
            break line.to_owned();
        }
        let waits = begun.elapsed() < std::time::Duration::from_secs(60) && !load.log().contains("error");
        assert!(waits, "{said}\n{}", load.log());
        std::thread::sleep(std::time::Duration::from_millis(50));
    };
    let (own, theirs) = line.split_once("<->").unwrap();
    for link in [1, 2] {
        assert!(
            own.contains(&GuestHost::Aaa.address(link)) && theirs.contains(&GuestHost::Nas.address(link)),
            "{line}"
        );
    }
    // After the peer's addresses: the heartbeat interval, and the inbound and outbound streams.
    let numbers: Vec<&str> = theirs.split_ascii_whitespace().filter(|word| !word.contains('.')).collect();
    assert_eq!(numbers[1..3], ["4", "4"], "{line}");
    load.terminate();
}

/// A lost message delays only later messages of its stream. Without `nodelay`, small messages wait for
/// acknowledgements.
#[test]
fn streams_and_nodelay_show_in_the_delay_of_logins() {
    let world = GuestTestNetwork::new(SLOW);
    let measured = |sctp: &str, loss: f64, more: &[&str]| {
        world.impair_links(LinkImpairment { loss: 0.0, ..SLOW });
        let mut server = start_server(&world, sctp, "");
        let pace = ["--method", "eap-md5", "--rate", "60", "--duration", "5s", "--no-check"];
        let load = || run_load(&world, GuestHost::Nas, GuestHost::Aaa, SERVER, &[&pace[..], more].concat());
        let value = std::thread::scope(|scope| {
            let load = scope.spawn(load);
            // Messages are lost once the association is up: a lost INIT is repeated after 3 s, and again after 6 s.
            server.wait_for("a Diameter peer has connected");
            world.impair_links(LinkImpairment { loss, ..SLOW });
            load.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        });
        world.impair_links(LinkImpairment { loss: 0.0, ..SLOW });
        assert_eq!(server.terminate(), Some(0));
        assert!(value["succeeded"].as_u64() > Some(240), "{value:#}");
        let mean = value["latency"]["mean_s"].as_f64().unwrap_or_else(|| panic!("{value:#}"));
        println!("{sctp}, loss {loss} %, {more:?}: {:.1} ms", mean * 1e3);
        mean
    };
    let many = "streams = 64";
    let one = "streams = 1\norder = \"one\"";
    let (by_session, by_one) = (&["--streams", "64"][..], &["--streams", "1", "--order", "one"][..]);
    // A busy machine may pause the guest in one run, but not in each.
    let mut all = Vec::new();
    let is_seen = (0..3).any(|_| {
        let clean = measured(many, 0.0, by_session);
        let waiting = measured("streams = 64\nnodelay = false", 0.0, &[by_session, &["--nagle"]].concat());
        let (apart, together) = (measured(many, 5.0, by_session), measured(one, 5.0, by_one));
        all.push((clean, waiting, apart, together));
        // Two round trips of 100 ms, and processing.
        (0.2..0.23).contains(&clean)
            // Each request waits for the delayed acknowledgement of the one before it, for a large part of a round
            // trip.
            && waiting > clean + 0.05
            && apart > clean
            && together > 1.3 * apart
    });
    assert!(is_seen, "clean, waiting, apart and together: {all:?}");
}
