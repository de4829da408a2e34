//! CHILD_SAs in the kernel (XFRM) between two of our gateways. Both use the kernel, or one runs ESP in user space.

use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::os::fd::AsFd;
use std::time::{Duration, Instant};
use usher_guest_tests::{GuestHost, GuestTestNetwork, LinkImpairment, usher_program};

/// A timeout with room for pauses of the machine.
const TIMEOUT: Duration = Duration::from_secs(100);

/// Runs `what` in a host's network namespace.
pub(crate) fn run_in_namespace<T: Send>(host: GuestHost, what: impl FnOnce() -> T + Send) -> T {
    let name = if host == GuestHost::Nas { "nas" } else { "aaa" };
    let enter = || {
        let space = std::fs::File::open(format!("/run/netns/{name}")).unwrap();
        move_into_link_name_space(space.as_fd(), Some(LinkNameSpaceType::Network)).unwrap();
        what()
    };
    std::thread::scope(|scope| scope.spawn(enter).join().unwrap())
}

/// Sends `octets` from one host to the other and back.
#[track_caller]
fn echo_octets(from: &str, to: &str, octets: usize) {
    let listener = run_in_namespace(GuestHost::Aaa, || TcpListener::bind((to, 0)).unwrap());
    let port = listener.local_addr().unwrap().port();
    let patience = Some(TIMEOUT);
    let answers = std::thread::spawn(move || {
        let (mut stream, peer) = listener.accept().unwrap();
        stream.set_read_timeout(patience).and_then(|()| stream.set_write_timeout(patience)).unwrap();
        let mut all = vec![0; octets];
        stream.read_exact(&mut all).unwrap();
        stream.write_all(&all).unwrap();
        peer
    });
    let said: Vec<u8> = (0..octets).map(|n| (n % 251) as u8).collect();
    let mut heard = vec![0; octets];
    run_in_namespace(GuestHost::Nas, || {
        let address = SocketAddr::new(to.parse().unwrap(), port);
        let mut stream = TcpStream::connect_timeout(&address, TIMEOUT).unwrap();
        stream.set_read_timeout(patience).and_then(|()| stream.set_write_timeout(patience)).unwrap();
        stream.write_all(&said).unwrap();
        stream.read_exact(&mut heard).unwrap();
    });
    assert_eq!(heard, said);
    assert_eq!(answers.join().unwrap().ip().to_string(), from);
}

/// Runs a command of `usher ike` with one of its files.
#[track_caller]
fn run_ike_command(world: &GuestTestNetwork, host: GuestHost, name: &str, words: &[&str]) -> String {
    let file = format!("{name}.toml");
    world.run_on(host, &[&[usher_program().as_str(), "ike"], words, &["--config", &file]].concat())
}

#[track_caller]
fn ike_status(world: &GuestTestNetwork, host: GuestHost, name: &str) -> serde_json::Value {
    serde_json::from_str(&run_ike_command(world, host, name, &["status", "--json"])).unwrap()
}

#[track_caller]
pub(crate) fn wait_until(what: &str, mut holds: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !holds() {
        assert!(begun.elapsed() < TIMEOUT, "{what}");
        std::thread::sleep(Duration::from_millis(100));
    }
}

/// Waits until both sides have the CHILD_SA.
#[track_caller]
fn has_a_child(world: &GuestTestNetwork) {
    wait_until("there is a CHILD_SA", || {
        [(GuestHost::Nas, "client"), (GuestHost::Aaa, "gateway")].iter().all(|(host, name)| {
            let now = ike_status(world, *host, name);
            now["sas"][0]["children"].as_array().is_some_and(|children| children.len() == 1)
        })
    });
}

/// Returns the SPIs of a host's kernel SAs. A missing SA leaves an acquire state in the kernel for minutes: TCP's
/// last segments create one after an SA has ended.
#[track_caller]
fn kernel_spis(world: &GuestTestNetwork, host: GuestHost) -> Vec<String> {
    let states = world.run_on(host, &["ip", "xfrm", "state"]);
    let spis = states.split("proto esp spi ").skip(1).filter_map(|rest| rest.split_whitespace().next());
    spis.filter(|spi| *spi != "0x00000000").map(str::to_owned).collect()
}

/// The configuration of one side: both identities, the last numbers of both networks, and further settings.
fn side_config(
    name: &str,
    (own, other): (&str, &str),
    (here, there): (u8, u8),
    more: &str,
    data: &str,
) -> String {
    format!(
        "[listen]\naddresses = [\"0.0.0.0\"]\ncontrol = \"{name}.sock\"\n[data]\n{data}\n[[connection]]\nname = \"site\"\n\
         local_id = \"{own}\"\nremote_id = \"{other}\"\nlocal_auth = \"psk\"\nremote_auth = \"psk\"\nsecret = \"a shared secret\"\n{more}\n\
         [[connection.child]]\nname = \"net\"\nlocal = [\"10.{here}.0.0/16\"]\nremote = [\"10.{there}.0.0/16\"]\n"
    )
}

#[test]
fn the_kernel_carries_negotiated_sas_to_a_user_space_peer() {
    let world = GuestTestNetwork::new(LinkImpairment { delay_ms: 1, loss: 0.0 });
    for (host, address) in [(GuestHost::Nas, "10.1.0.1/32"), (GuestHost::Aaa, "10.2.0.1/32")] {
        world.run_on(host, &["ip", "addr", "add", address, "dev", "lo"]);
    }
    if !std::path::Path::new("/dev/net/tun").exists() {
        // The kernel loads the driver when a program opens this device file, which the guest does not create by
        // itself.
        world.run_on(GuestHost::Nas, &["mkdir", "-p", "/dev/net"]);
        world.run_on(GuestHost::Nas, &["mknod", "/dev/net/tun", "c", "10", "200"]);
    }
    let start = |host, name: &str| {
        let file = format!("{name}.toml");
        world.start_on(host, name, &[&usher_program(), "ike", "serve", "--config", &file], "started")
    };
    let remote = format!("remote_address = \"{}\"\non_demand = true\n", GuestHost::Aaa.address(1));
    let kernel = "mode = \"kernel\"";
    // Proposals of the CHILD_SA, the client's data plane, and the side that rekeys.
    for (proposal, data, replaces) in [
        ("aes128gcm16-esn", kernel, (GuestHost::Aaa, "gateway")),
        ("aes256-sha256-esn", "mode = \"tun\"\nudp_encapsulation = true", (GuestHost::Nas, "client")),
    ] {
        let proposals = format!("proposals = [\"{proposal}\"]\n");
        world.write_file(
            "gateway.toml",
            &(side_config("gateway", ("gw.test", "ini.test"), (2, 1), "", kernel) + &proposals),
        );
        world.write_file(
            "client.toml",
            &(side_config("client", ("ini.test", "gw.test"), (1, 2), &remote, data) + &proposals),
        );
        let mut gateway = start(GuestHost::Aaa, "gateway");
        let mut client = start(GuestHost::Nas, "client");
        // The first packet triggers the CHILD_SA. The kernel's data plane cannot queue it, and reports an unreachable
        // host.
        run_in_namespace(GuestHost::Nas, || {
            UdpSocket::bind("10.1.0.1:0").and_then(|udp| udp.send_to(b"first", "10.2.0.1:9")).unwrap()
        });
        has_a_child(&world);
        echo_octets("10.1.0.1", "10.2.0.1", 50_000);
        let now = ike_status(&world, GuestHost::Nas, "client");
        assert_eq!(now["counters"]["acquired"], 1, "{proposal}: {now}");
        let first = now["sas"][0]["children"][0]["inbound"].clone();
        run_ike_command(&world, replaces.0, replaces.1, &["rekey", "--children"]);
        wait_until("the CHILD_SA is replaced", || {
            let children = ike_status(&world, GuestHost::Nas, "client")["sas"][0]["children"].clone();
            children[0]["inbound"] != first && children.as_array().unwrap().len() == 1
        });
        echo_octets("10.1.0.1", "10.2.0.1", 50_000);
        // The status shows the kernel's counters.
        wait_until("what was carried is told", || {
            let told = ike_status(&world, GuestHost::Aaa, "gateway");
            let carried = &told["sas"][0]["carried"];
            carried["received_octets"].as_u64() > Some(100_000)
                && carried["sent_octets"].as_u64() > Some(100_000)
        });
        let states = world.run_on(GuestHost::Aaa, &["ip", "xfrm", "state"]);
        let last = kernel_spis(&world, GuestHost::Aaa);
        assert_eq!(last.len(), 2, "{states}");
        assert_eq!(states.contains("espinudp"), data.contains("udp_encapsulation"), "{states}");
        // Ending the connection removes all its state.
        run_ike_command(&world, GuestHost::Nas, "client", &["down", "--all"]);
        wait_until("the SAs are gone", || {
            kernel_spis(&world, GuestHost::Aaa).iter().all(|spi| !last.contains(spi))
        });
        assert_eq!((client.terminate(), gateway.terminate()), (Some(0), Some(0)));
        for host in [GuestHost::Nas, GuestHost::Aaa] {
            assert_eq!(world.run_on(host, &["ip", "xfrm", "policy"]), "");
            assert_eq!(kernel_spis(&world, host), [""; 0]);
            assert!(!world.run_on(host, &["ip", "link", "show"]).contains("esp0"));
        }
    }
}

/// The client changes its address, and a program is killed. SAs keep their sequence numbers, and old SAs do not
/// hinder new ones.
#[test]
fn kernel_sas_move_and_those_of_a_killed_program_are_removed() {
    let world = GuestTestNetwork::new(LinkImpairment { delay_ms: 1, loss: 0.0 });
    for (host, address) in [(GuestHost::Nas, "10.1.0.1/32"), (GuestHost::Aaa, "10.2.0.1/32")] {
        world.run_on(host, &["ip", "addr", "add", address, "dev", "lo"]);
    }
    let start = |host, name: &str| {
        let file = format!("{name}.toml");
        world.start_on(host, name, &[&usher_program(), "ike", "serve", "--config", &file], "started")
    };
    let remote =
        format!("remote_address = \"{}\"\nstart = true\nretry = \"1 s\"\n", GuestHost::Aaa.address(1));
    let proposals = "proposals = [\"chacha20poly1305\"]\n";
    let kernel = "mode = \"kernel\"\nudp_encapsulation = true";
    world.write_file(
        "gateway.toml",
        &(side_config("gateway", ("gw.test", "ini.test"), (2, 1), "", kernel) + proposals),
    );
    world.write_file(
        "client.toml",
        &(side_config("client", ("ini.test", "gw.test"), (1, 2), &remote, kernel) + proposals),
    );
    let mut gateway = start(GuestHost::Aaa, "gateway");
    let mut client = start(GuestHost::Nas, "client");
    has_a_child(&world);
    echo_octets("10.1.0.1", "10.2.0.1", 20_000);
    world.run_on(GuestHost::Nas, &["ip", "addr", "add", "10.99.1.77/24", "dev", "nas1"]);
    world.run_on(GuestHost::Nas, &["ip", "addr", "del", "10.99.1.1/24", "dev", "nas1"]);
    let there = world.run_on(GuestHost::Nas, &["ip", "addr", "show", "dev", "nas1"]);
    if !there.contains("10.99.1.77") {
        // The second address was removed with the first, whose network it shared.
        world.run_on(GuestHost::Nas, &["ip", "addr", "add", "10.99.1.77/24", "dev", "nas1"]);
    }
    gateway.wait_for("moved");
    echo_octets("10.1.0.1", "10.2.0.1", 20_000);
    let states = world.run_on(GuestHost::Aaa, &["ip", "xfrm", "state"]);
    assert_eq!(states.matches("10.99.1.77").count(), 2, "{states}");
    client.kill();
    drop(client);
    assert!(!kernel_spis(&world, GuestHost::Nas).is_empty(), "nobody has taken it away");
    std::fs::remove_file(world.directory().join("client.sock")).unwrap();
    let mut client = start(GuestHost::Nas, "client");
    has_a_child(&world);
    echo_octets("10.1.0.1", "10.2.0.1", 20_000);
    assert_eq!((client.terminate(), gateway.terminate()), (Some(0), Some(0)));
    for host in [GuestHost::Nas, GuestHost::Aaa] {
        assert_eq!(kernel_spis(&world, host), [""; 0]);
    }
}

/// IPv6 within IPv6, with and without UDP. The kernel reports an SA that reaches its packet limit, and it is rekeyed.
#[test]
fn the_kernel_carries_ipv6_and_reports_an_exhausted_sa() {
    let world = GuestTestNetwork::new(LinkImpairment { delay_ms: 1, loss: 0.0 });
    for (host, device, outer, inner) in [
        (GuestHost::Nas, "nas1", "fd99::1/64", "fd01::1/128"),
        (GuestHost::Aaa, "aaa1", "fd99::2/64", "fd02::1/128"),
    ] {
        world.run_on(host, &["ip", "addr", "add", outer, "dev", device, "nodad"]);
        world.run_on(host, &["ip", "addr", "add", inner, "dev", "lo", "nodad"]);
    }
    let start = |host, name: &str| {
        let file = format!("{name}.toml");
        world.start_on(host, name, &[&usher_program(), "ike", "serve", "--config", &file], "started")
    };
    let send = |packets: u32| {
        run_in_namespace(GuestHost::Nas, || {
            let udp = UdpSocket::bind("[fd01::1]:0").unwrap();
            for _ in 0..packets {
                udp.send_to(b"one packet", "[fd02::1]:9").unwrap();
            }
        });
    };
    for encapsulated in [false, true] {
        let data = format!("mode = \"kernel\"\nudp_encapsulation = {encapsulated}");
        let file = |name: &str,
                    (own, other): (&str, &str),
                    (here, there): (u8, u8),
                    more: &str,
                    last: &str| {
            let text = format!(
                "[listen]\naddresses = [\"::\"]\ncontrol = \"{name}.sock\"\n[data]\n{data}\n[[connection]]\nname = \"site\"\n\
                 local_id = \"{own}\"\nremote_id = \"{other}\"\nlocal_auth = \"psk\"\nremote_auth = \"psk\"\n\
                 secret = \"a shared secret\"\n{more}\n[[connection.child]]\nname = \"net\"\nlocal = [\"fd0{here}::/16\"]\n\
                 remote = [\"fd0{there}::/16\"]\nproposals = [\"aes128gcm16\"]\n{last}\n"
            );
            world.write_file(&format!("{name}.toml"), &text);
        };
        file("gateway", ("gw.test", "ini.test"), (2, 1), "", "rekey_after = \"0 s\"");
        let remote = "remote_address = \"fd99::2\"\non_demand = true";
        file("client", ("ini.test", "gw.test"), (1, 2), remote, "rekey_packets = 20");
        let mut gateway = start(GuestHost::Aaa, "gateway");
        let mut client = start(GuestHost::Nas, "client");
        send(1);
        has_a_child(&world);
        let inbound = || {
            ike_status(&world, GuestHost::Nas, "client")["sas"][0]["children"][0]["inbound"]
                .as_str()
                .map(str::to_owned)
        };
        let first = inbound().expect("a CHILD_SA");
        let states = world.run_on(GuestHost::Aaa, &["ip", "xfrm", "state"]);
        assert!(states.contains("src fd99::1 dst fd99::2"), "{states}");
        assert_eq!(states.contains("espinudp"), encapsulated, "{states}");
        // As many packets as the soft limit. With the next one, the kernel asks for rekeying.
        send(21);
        wait_until("the CHILD_SA is replaced", || inbound().is_some_and(|now| now != first));
        echo_octets("fd01::1", "fd02::1", 20_000);
        let last = kernel_spis(&world, GuestHost::Aaa);
        run_ike_command(&world, GuestHost::Nas, "client", &["down", "--all"]);
        // TCP's last segments may trigger another SA.
        wait_until("the SAs are gone", || {
            kernel_spis(&world, GuestHost::Aaa).iter().all(|spi| !last.contains(spi))
        });
        assert_eq!((client.terminate(), gateway.terminate()), (Some(0), Some(0)));
    }
}
