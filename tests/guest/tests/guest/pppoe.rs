//! Debian's pppd logs in at our access concentrator, by the kernel's PPPoE and by rp-pppoe's program. Our client logs
//! in at rp-pppoe's server.

use crate::esp::{run_in_namespace, wait_until};
use std::net::TcpListener;
use usher_guest_tests::{
    GuestHost, GuestTestNetwork, LinkImpairment, RunningProgram, run_program, usher_program,
};

/// pppd with an empty configuration folder, so that it ignores the machine's files.
struct PppdFixture<'a> {
    world: &'a GuestTestNetwork,
}

impl<'a> PppdFixture<'a> {
    #[track_caller]
    fn new(world: &'a GuestTestNetwork, secrets: &str) -> Self {
        let of = world.directory().join("ppp");
        std::fs::create_dir_all(&of).unwrap();
        for (name, text) in [("options", ""), ("chap-secrets", secrets), ("pap-secrets", secrets)] {
            world.write_file(&format!("ppp/{name}"), text);
        }
        run_program(world.directory(), &["mount", "--bind", &of.display().to_string(), "/etc/ppp"]);
        Self { world }
    }

    /// Starts a client with this PPPoE implementation and further options.
    #[track_caller]
    fn start_client(&self, name: &str, by: &[&str], more: &[&str], ready: &str) -> RunningProgram {
        let own = ["nodetach", "noauth", "noipdefault", "nodefaultroute", "debug", "logfd", "2", "+ipv6"];
        self.world.start_on(GuestHost::Nas, name, &[&["pppd"], by, &own[..], more].concat(), ready)
    }
}

impl Drop for PppdFixture<'_> {
    fn drop(&mut self) {
        let _ = std::process::Command::new("umount").args(["-l", "/etc/ppp"]).status();
    }
}

/// PPPoE in the kernel by pppd's plugin and by rp-pppoe's, and a program between Ethernet and a terminal.
const KERNEL: &[&str] = &["plugin", "pppoe.so", "nic-nas1"];
const KERNEL_RP: &[&str] = &["plugin", "rp-pppoe.so", "nic-nas1"];
const USER: &[&str] = &["pty", "pppoe -I nas1 -T 60"];

const PASSWORD: &str = "a long password";

fn site_config(data: &str) -> String {
    format!(
        r#"
[listen]
interfaces = ["aaa1"]
control = "pppoe.sock"
metrics = "[::]:9100"
[service]
name = "campus"
address = "10.0.0.1"
pools = ["students"]
prefix_pool = "links"
dns = ["10.0.0.53"]
[authentication]
protocols = ["eap", "mschapv2", "chap", "pap"]
eap_methods = ["md5"]
[[pool]]
name = "students"
ranges = ["10.0.0.2-10.0.0.9"]
[[pool]]
name = "links"
ranges = ["2001:db8:1::/48/64"]
[[user]]
name = "ann"
password = "{PASSWORD}"
[limits]
keepalive = "1 s"
[tracking]
folder = "log"
{data}
"#
    )
}

/// Creates the hosts, with an IPv6 address on the concentrator's side.
#[track_caller]
fn pppoe_network() -> GuestTestNetwork {
    let world = GuestTestNetwork::new(LinkImpairment { delay_ms: 1, loss: 0.0 });
    world.run_on(GuestHost::Aaa, &["ip", "addr", "add", "2001:db8:ffff::1/128", "dev", "lo"]);
    world.run_on(GuestHost::Aaa, &["sh", "-c", "echo 1 > /proc/sys/net/ipv6/conf/all/forwarding"]);
    // rp-pppoe reads raw frames. A virtual link would leave offloaded checksums incomplete.
    for (host, interface) in [(GuestHost::Nas, "nas1"), (GuestHost::Aaa, "aaa1")] {
        world.run_on(host, &["ethtool", "-K", interface, "tx", "off"]);
    }
    world
}

#[track_caller]
fn start_concentrator<'a>(
    world: &'a GuestTestNetwork,
    data: &str,
) -> (RunningProgram, impl Fn() -> serde_json::Value + 'a) {
    world.write_file("pppoe.toml", &site_config(data));
    let words = [&usher_program(), "pppoe", "serve", "--config", "pppoe.toml"];
    let running = world.start_on(GuestHost::Aaa, "concentrator", &words, "started");
    let sessions = || {
        let words = [&usher_program(), "pppoe", "sessions", "--json", "--config", "pppoe.toml"];
        serde_json::from_str(&world.run_on(GuestHost::Aaa, &words)).unwrap()
    };
    (running, sessions)
}

/// Reads the concentrator's health page by TCP.
fn read_health(world: &GuestTestNetwork, address: &str) -> String {
    let get = format!(
        "exec 3<>/dev/tcp/{address}/9100 && printf 'GET /health HTTP/1.0\\r\\n\\r\\n' >&3 && cat <&3 || echo unreachable"
    );
    world.run_on(GuestHost::Nas, &["timeout", "10", "bash", "-c", &get])
}

/// Checks that pppd's session carries IPv4, and that it ends on both sides when pppd ends.
#[track_caller]
fn check_carried_session(
    world: &GuestTestNetwork,
    client: &mut RunningProgram,
    concentrator: &mut RunningProgram,
    name: &str,
) {
    let said = read_health(world, "10.0.0.1");
    assert!(said.contains("serving"), "{name}: {said}\n{}\n{}", client.log(), concentrator.log());
    let ended = concentrator.log().matches("ended id=").count();
    client.terminate();
    concentrator.wait_until("that the session has ended", |log| log.matches("ended id=").count() > ended);
}

/// Checks that the session carries IPv6: the kernel receives a Router Advertisement and configures an address.
#[track_caller]
fn carried_by_ipv6(world: &GuestTestNetwork, concentrator: &RunningProgram) {
    wait_until("an address of IPv6", || {
        let shown =
            world.run_on(GuestHost::Nas, &["ip", "-6", "addr", "show", "dev", "ppp0", "scope", "global"]);
        shown.contains("2001:db8:1:") && !shown.contains("tentative")
    });
    let said = read_health(world, "2001:db8:ffff::1");
    assert!(said.contains("serving"), "{said}\n{}", concentrator.log());
}

#[test]
fn pppd_shows_who_it_is_in_each_way_and_is_carried() {
    let world = pppoe_network();
    let pppd = PppdFixture::new(&world, "");
    let (mut concentrator, sessions) = start_concentrator(&world, "");
    let refuse = |kept: &str| {
        let all = ["eap", "mschap-v2", "chap", "pap"].into_iter().filter(|one| *one != kept);
        all.map(|one| format!("refuse-{one}")).collect::<Vec<_>>()
    };
    for (protocol, by, proof) in [
        ("pap", KERNEL, "PAP authentication succeeded"),
        ("chap", KERNEL_RP, "CHAP authentication succeeded"),
        ("mschap-v2", USER, "CHAP authentication succeeded"),
        ("eap", KERNEL, "EAP authentication succeeded"),
    ] {
        let refused = refuse(protocol);
        let more: Vec<&str> = ["user", "ann", "password", PASSWORD]
            .into_iter()
            .chain(refused.iter().map(String::as_str))
            .collect();
        let mut client = pppd.start_client("pppd", by, &more, "remote IP address 10.0.0.1");
        client.wait_for("remote LL address");
        assert!(client.log().contains(proof), "{protocol}: {}", client.log());
        let now = sessions();
        assert_eq!(now["sessions"][0]["user"], "ann", "{protocol}: {now}");
        if protocol == "pap" {
            carried_by_ipv6(&world, &concentrator);
        }
        check_carried_session(&world, &mut client, &mut concentrator, protocol);
    }
    let mut refused = pppd.start_client(
        "refused",
        KERNEL,
        &["user", "ann", "password", "another"],
        "Connection terminated",
    );
    refused
        .wait_until("it is refused", |log| log.contains("authentication failed") || log.contains("Failure"));
    assert!(!refused.log().contains("remote IP address"), "{}", refused.log());
    drop(refused);
    assert_eq!(concentrator.terminate(), Some(0), "{}", concentrator.log());
}

/// The kernel carries packets on both sides. Rejected and killed clients leave nothing behind.
#[test]
fn the_kernels_own_pppoe_carries_packets_at_our_concentrator() {
    let world = pppoe_network();
    let pppd = PppdFixture::new(&world, "");
    let data = "[data]\nmode = \"kernel\"\nreport = \"1 s\"\n";
    let interfaces = || world.run_on(GuestHost::Aaa, &["ip", "-o", "link", "show", "type", "ppp"]);
    let (mut killed, _) = start_concentrator(&world, data);
    let mut refused =
        pppd.start_client("refused", KERNEL, &["user", "ann", "password", "another"], "Connect: ppp0");
    refused.wait_for("authentication failure");
    assert_eq!(interfaces(), "", "{}", killed.log());
    let who = ["user", "ann", "password", PASSWORD];
    let mut client = pppd.start_client("pppd", KERNEL, &who, "remote IP address 10.0.0.1");
    carried_by_ipv6(&world, &killed);
    assert!(interfaces().contains("pppoe0-"), "{}", killed.log());
    killed.kill();
    drop(killed);
    assert_eq!(interfaces(), "", "the interfaces are gone with the program");
    client.terminate();
    std::fs::remove_file(world.directory().join("pppoe.sock")).unwrap();
    let (mut concentrator, sessions) = start_concentrator(&world, data);
    let mut client = pppd.start_client("again", KERNEL_RP, &who, "remote IP address 10.0.0.1");
    let said = read_health(&world, "10.0.0.1");
    assert!(said.contains("serving"), "{said}\n{}", concentrator.log());
    wait_until("octets are counted", || {
        let carried = sessions()["sessions"][0]["carried"].clone();
        carried["octets_in"].as_u64() > Some(200) && carried["octets_out"].as_u64() > Some(200)
    });
    check_carried_session(&world, &mut client, &mut concentrator, "again");
    wait_until("its interface is gone", || interfaces().is_empty());
    assert_eq!(concentrator.terminate(), Some(0), "{}", concentrator.log());
    let rules = world.run_on(GuestHost::Aaa, &["nft", "list", "tables"]);
    assert!(!rules.contains("usher"), "{rules}");
}

#[test]
fn our_client_is_let_in_by_rp_pppoes_server() {
    let world = pppoe_network();
    let pppd = PppdFixture::new(&world, &format!("ann * \"{PASSWORD}\" *\n"));
    world.write_file("password", &format!("{PASSWORD}\n"));
    let log = world.directory().join("server-pppd.log").display().to_string();
    // The service to which the host connects.
    let _listener = run_in_namespace(GuestHost::Aaa, || TcpListener::bind("0.0.0.0:9100").unwrap());
    // An ended session sends a PADT. No later session may have its number.
    for (offset, (require, protocol)) in [
        ("require-chap", "chap"),
        ("require-mschap-v2", "mschapv2"),
        ("require-pap", "pap"),
        ("require-eap", "eap"),
    ]
    .into_iter()
    .enumerate()
    {
        let offset = (offset * 10).to_string();
        world.write_file(
            "ppp/server",
            &format!(
                "{require}\nlcp-echo-interval 5\nlcp-echo-failure 3\nnodefaultroute\ndebug\nlogfile {log}\n"
            ),
        );
        let mut words =
            vec!["pppoe-server", "-F", "-I", "aaa1", "-L", "10.0.0.1", "-R", "10.0.0.7", "-C", "campus"];
        words.extend(["-O", "/etc/ppp/server", "-o", &offset]);
        let server = world.start_on(GuestHost::Aaa, "server", &words, "");
        let connect = [
            &usher_program(),
            "pppoe",
            "connect",
            "nas1",
            "--user",
            "ann",
            "--password-file",
            "password",
            "--protocols",
            protocol,
            "--network",
            "0.0.0.0/0",
            "--concentrator",
            "campus",
        ];
        let mut client = world.start_on(GuestHost::Nas, "client", &connect, "started");
        client.wait_until("it is connected", |said| {
            let theirs = || std::fs::read_to_string(&log).unwrap_or_default();
            assert!(!said.contains("stopped"), "{protocol}: {said}\n{}", theirs());
            said.contains("connected address=10.0.0.7")
        });
        let open = world.run_on(
            GuestHost::Nas,
            &["timeout", "10", "bash", "-c", "exec 3<>/dev/tcp/10.0.0.1/9100 && echo open"],
        );
        assert!(open.contains("open"), "{protocol}");
        assert_eq!(client.terminate(), Some(0), "{protocol}: {}", client.log());
        drop(server);
    }
    drop(pppd);
}
