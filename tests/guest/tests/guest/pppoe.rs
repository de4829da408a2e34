//! Debian's pppd logs in at our access concentrator, by the kernel's PPPoE and by rp-pppoe's program; our client logs in at rp-pppoe's
//! server.

use crate::esp::{eventually, within};
use std::net::TcpListener;
use usher_guest_tests::{Host, Impairment, Running, World, run, usher};

/// What pppd would read on this machine is out of its sight: it has a folder of a test's own.
struct Pppd<'a> {
    world: &'a World,
}

impl<'a> Pppd<'a> {
    #[track_caller]
    fn new(world: &'a World, secrets: &str) -> Self {
        let of = world.folder().join("ppp");
        std::fs::create_dir_all(&of).unwrap();
        for (name, text) in [("options", ""), ("chap-secrets", secrets), ("pap-secrets", secrets)] {
            world.write(&format!("ppp/{name}"), text);
        }
        run(world.folder(), &["mount", "--bind", &of.display().to_string(), "/etc/ppp"]);
        Self { world }
    }

    /// A client that comes by this, with these options besides.
    #[track_caller]
    fn start(&self, name: &str, by: &[&str], more: &[&str], ready: &str) -> Running {
        let own = ["nodetach", "noauth", "noipdefault", "nodefaultroute", "debug", "logfd", "2", "+ipv6"];
        self.world.start(Host::Nas, name, &[&["pppd"], by, &own[..], more].concat(), ready)
    }
}

impl Drop for Pppd<'_> {
    fn drop(&mut self) {
        let _ = std::process::Command::new("umount").args(["-l", "/etc/ppp"]).status();
    }
}

/// The kernel's PPPoE by pppd's own plug-in and by rp-pppoe's, and a program between Ethernet and a terminal.
const KERNEL: &[&str] = &["plugin", "pppoe.so", "nic-nas1"];
const KERNEL_RP: &[&str] = &["plugin", "rp-pppoe.so", "nic-nas1"];
const USER: &[&str] = &["pty", "pppoe -I nas1 -T 60"];

const PASSWORD: &str = "a long password";

fn site(data: &str) -> String {
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

/// The two hosts, and on the concentrator's an address of IPv6 that hosts can reach.
#[track_caller]
fn world() -> World {
    let world = World::new(Impairment { delay_ms: 1, loss: 0.0 });
    world.run(Host::Aaa, &["ip", "addr", "add", "2001:db8:ffff::1/128", "dev", "lo"]);
    world.run(Host::Aaa, &["sh", "-c", "echo 1 > /proc/sys/net/ipv6/conf/all/forwarding"]);
    // rp-pppoe's programs read frames as they are: checksums that are left to a card, which a virtual link has not, would stay undone.
    for (host, interface) in [(Host::Nas, "nas1"), (Host::Aaa, "aaa1")] {
        world.run(host, &["ethtool", "-K", interface, "tx", "off"]);
    }
    world
}

#[track_caller]
fn serve<'a>(world: &'a World, data: &str) -> (Running, impl Fn() -> serde_json::Value + 'a) {
    world.write("pppoe.toml", &site(data));
    let words = [&usher(), "pppoe", "serve", "--config", "pppoe.toml"];
    let running = world.start(Host::Aaa, "concentrator", &words, "started");
    let sessions = || {
        let words = [&usher(), "pppoe", "sessions", "--json", "--config", "pppoe.toml"];
        serde_json::from_str(&world.run(Host::Aaa, &words)).unwrap()
    };
    (running, sessions)
}

/// What a host reads of the concentrator by TCP.
fn read(world: &World, address: &str) -> String {
    let get = format!(
        "exec 3<>/dev/tcp/{address}/9100 && printf 'GET /health HTTP/1.0\\r\\n\\r\\n' >&3 && cat <&3 || echo unreachable"
    );
    world.run(Host::Nas, &["timeout", "10", "bash", "-c", &get])
}

/// A session by pppd carries IPv4, and ends for both when pppd ends.
#[track_caller]
fn carried(world: &World, client: &mut Running, concentrator: &mut Running, name: &str) {
    let said = read(world, "10.0.0.1");
    assert!(said.contains("serving"), "{name}: {said}\n{}\n{}", client.log(), concentrator.log());
    let ended = concentrator.log().matches("ended id=").count();
    client.terminate();
    concentrator.wait_until("that the session has ended", |log| log.matches("ended id=").count() > ended);
}

/// It carries IPv6: the kernel hears a router and its prefix, and makes itself an address.
#[track_caller]
fn carried_by_ipv6(world: &World, concentrator: &Running) {
    eventually("an address of IPv6", || {
        let shown = world.run(Host::Nas, &["ip", "-6", "addr", "show", "dev", "ppp0", "scope", "global"]);
        shown.contains("2001:db8:1:") && !shown.contains("tentative")
    });
    let said = read(world, "2001:db8:ffff::1");
    assert!(said.contains("serving"), "{said}\n{}", concentrator.log());
}

#[test]
fn pppd_shows_who_it_is_in_each_way_and_is_carried() {
    let world = world();
    let pppd = Pppd::new(&world, "");
    let (mut concentrator, sessions) = serve(&world, "");
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
        let mut client = pppd.start("pppd", by, &more, "remote IP address 10.0.0.1");
        client.wait_for("remote LL address");
        assert!(client.log().contains(proof), "{protocol}: {}", client.log());
        let now = sessions();
        assert_eq!(now["sessions"][0]["user"], "ann", "{protocol}: {now}");
        if protocol == "pap" {
            carried_by_ipv6(&world, &concentrator);
        }
        carried(&world, &mut client, &mut concentrator, protocol);
    }
    let mut refused =
        pppd.start("refused", KERNEL, &["user", "ann", "password", "another"], "Connection terminated");
    refused
        .wait_until("it is refused", |log| log.contains("authentication failed") || log.contains("Failure"));
    assert!(!refused.log().contains("remote IP address"), "{}", refused.log());
    drop(refused);
    assert_eq!(concentrator.terminate(), Some(0), "{}", concentrator.log());
}

/// The kernel carries packets on both sides; who is not let in, and who was killed, leaves nothing behind.
#[test]
fn the_kernels_own_pppoe_carries_packets_at_our_concentrator() {
    let world = world();
    let pppd = Pppd::new(&world, "");
    let data = "[data]\nmode = \"kernel\"\nreport = \"1 s\"\n";
    let interfaces = || world.run(Host::Aaa, &["ip", "-o", "link", "show", "type", "ppp"]);
    let (mut killed, _) = serve(&world, data);
    let mut refused = pppd.start("refused", KERNEL, &["user", "ann", "password", "another"], "Connect: ppp0");
    refused.wait_for("authentication failure");
    assert_eq!(interfaces(), "", "{}", killed.log());
    let who = ["user", "ann", "password", PASSWORD];
    let mut client = pppd.start("pppd", KERNEL, &who, "remote IP address 10.0.0.1");
    carried_by_ipv6(&world, &killed);
    assert!(interfaces().contains("pppoe0-"), "{}", killed.log());
    killed.kill();
    drop(killed);
    assert_eq!(interfaces(), "", "the interfaces are gone with the program");
    client.terminate();
    std::fs::remove_file(world.folder().join("pppoe.sock")).unwrap();
    let (mut concentrator, sessions) = serve(&world, data);
    let mut client = pppd.start("again", KERNEL_RP, &who, "remote IP address 10.0.0.1");
    let said = read(&world, "10.0.0.1");
    assert!(said.contains("serving"), "{said}\n{}", concentrator.log());
    eventually("octets are counted", || {
        let carried = sessions()["sessions"][0]["carried"].clone();
        carried["octets_in"].as_u64() > Some(200) && carried["octets_out"].as_u64() > Some(200)
    });
    carried(&world, &mut client, &mut concentrator, "again");
    eventually("its interface is gone", || interfaces().is_empty());
    assert_eq!(concentrator.terminate(), Some(0), "{}", concentrator.log());
    let rules = world.run(Host::Aaa, &["nft", "list", "tables"]);
    assert!(!rules.contains("usher"), "{rules}");
}

#[test]
fn our_client_is_let_in_by_rp_pppoes_server() {
    let world = world();
    let pppd = Pppd::new(&world, &format!("ann * \"{PASSWORD}\" *\n"));
    world.write("password", &format!("{PASSWORD}\n"));
    let log = world.folder().join("server-pppd.log").display().to_string();
    // What the host connects to.
    let _listener = within(Host::Aaa, || TcpListener::bind("0.0.0.0:9100").unwrap());
    // A session that ends has a PADT sent: no later one is to have its number.
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
        world.write(
            "ppp/server",
            &format!(
                "{require}\nlcp-echo-interval 5\nlcp-echo-failure 3\nnodefaultroute\ndebug\nlogfile {log}\n"
            ),
        );
        let mut words =
            vec!["pppoe-server", "-F", "-I", "aaa1", "-L", "10.0.0.1", "-R", "10.0.0.7", "-C", "campus"];
        words.extend(["-O", "/etc/ppp/server", "-o", &offset]);
        let server = world.start(Host::Aaa, "server", &words, "");
        let connect = [
            &usher(),
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
        let mut client = world.start(Host::Nas, "client", &connect, "started");
        client.wait_until("it is connected", |said| {
            let theirs = || std::fs::read_to_string(&log).unwrap_or_default();
            assert!(!said.contains("stopped"), "{protocol}: {said}\n{}", theirs());
            said.contains("connected address=10.0.0.7")
        });
        let open = world
            .run(Host::Nas, &["timeout", "10", "bash", "-c", "exec 3<>/dev/tcp/10.0.0.1/9100 && echo open"]);
        assert!(open.contains("open"), "{protocol}");
        assert_eq!(client.terminate(), Some(0), "{protocol}: {}", client.log());
        drop(server);
    }
    drop(pppd);
}
