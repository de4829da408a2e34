//! strongSwan's charon as the peer, in both roles. charon protects packets in user space and therefore assumes
//! a NAT, so UDP encapsulates all packets.

use super::traffic::{DatagramFlow, echo_stream};
use super::*;

pub(super) const SECRETS: &str =
    "secrets { ike-1 { id-a = gw.test\n id-b = ini.test\n secret = \"a shared secret\" } }\n";

/// Returns the configuration of charon as a gateway, with 10.2.0.1 behind it.
fn charon_gateway_config() -> String {
    format!(
        "connections {{ in {{ version = 2\n proposals = aes128-sha256-x25519\n pools = v4\n mobike = yes\n rekey_time = 0\n\
         local {{ auth = psk\n id = gw.test }}\n remote {{ auth = psk\n id = ini.test }}\n\
         children {{ net {{ local_ts = 10.2.0.0/16\n esp_proposals = aes128gcm16-x25519\n rekey_time = 0 }} }} }} }}\n\
         pools {{ v4 {{ addrs = 10.9.0.0/24 }} }}\n{SECRETS}"
    )
}

/// Returns the configuration of charon as a client.
fn charon_client_config() -> String {
    format!(
        "connections {{ out {{ version = 2\n proposals = aes128-sha256-x25519\n vips = 0.0.0.0\n mobike = yes\n rekey_time = 0\n\
         local_addrs = %any\n remote_addrs = 192.0.2.1\n local {{ auth = psk\n id = ini.test }}\n remote {{ auth = psk\n id = gw.test }}\n\
         children {{ net {{ remote_ts = 10.1.0.0/16\n esp_proposals = aes128gcm16-x25519\n rekey_time = 0 }} }} }} }}\n{SECRETS}"
    )
}

/// Routes traffic to charon's device, which charon creates.
#[track_caller]
pub(super) fn route_to_charon(charon: &CharonNamespace, to: &str, source: &str) {
    let name = charon.name();
    wait_until("it has a device", || try_ip(&format!("-n {name} link set ipsec0 up")));
    run_ip(&format!("-n {name} route replace {to} dev ipsec0 src {source}"));
}

#[track_caller]
pub(super) fn run_swanctl(charon: &CharonNamespace, words: &[&str]) {
    let said = charon.run_swanctl(words);
    assert!(said.contains("completed successfully"), "{words:?}: {said}\n{}", charon.charon_log());
}

/// Starts a capture of the link.
pub(super) fn start_capture(place: &TempDir, cable: &TunnelTestNetwork) -> RunningProgram {
    // Without this limit, the capture shows datagrams that a single system call sent as one packet.
    run_ip(&format!("-n {} link set eth0 gso_max_segs 1", cable.a));
    let mut command = cable.program_in(&cable.a, "dumpcap");
    // The buffer holds packets that arrive while dumpcap is not scheduled.
    command.args(["-q", "-B", "32", "-i", "eth0", "-w", "capture.pcapng"]);
    place.start_program("dumpcap", &mut command, "File: ")
}

/// Returns the number of ESP packets in a capture, and how many of them tshark finds good and bad by the keys
/// of our log.
fn count_decrypted_packets(place: &TempDir) -> (usize, usize, usize) {
    let keys = std::fs::read_to_string(place.path("client.esp_sa")).unwrap();
    let mut command = find_program("tshark");
    // Does not dissect TCP: at a repeated segment tshark's reassembly ends before tshark prints the result for
    // the ESP packet.
    command.args(["--disable-protocol", "tcp"]);
    command.args(["-n", "-r", "capture.pcapng", "-Y", "esp", "-T", "fields", "-E", "occurrence=f"]);
    command.args(["-e", "esp.icv_good", "-e", "esp.icv_bad", "-o", "esp.enable_encryption_decode:TRUE"]);
    command.args(["-o", "esp.enable_authentication_check:TRUE"]);
    for line in keys.lines() {
        command.args(["-o", &format!("uat:esp_sa:{line}")]);
    }
    let done = command.current_dir(place.path("")).output().unwrap();
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    let said = String::from_utf8_lossy(&done.stdout).into_owned();
    let count = |what: &str| said.lines().filter(|line| line.trim_end() == what).count();
    (said.lines().count(), count("1\t0"), count("0\t1"))
}

/// IPv6 Ready: EN.I.1.1.1.3, EN.I.1.2.3.2, EN.I.1.2.3.8, EN.R.1.1.1.3, EN.R.1.2.5.2, EN.R.1.2.5.6.
#[test]
fn our_client_and_charon_rekey_under_load_and_tshark_decrypts() {
    let place = TempDir::new();
    let charon = CharonNamespace::new(&charon_gateway_config());
    let cable = TunnelTestNetwork::with_charon(&charon);
    let (a, b) = (cable.a.as_str(), cable.b.as_str());
    let text = format!(
        "{}remote_address = \"192.0.2.2\"\naddress = true\nstart = true\nproposals = [\"aes128-sha256-x25519\"]\n\
         [[connection.child]]\nname = \"net\"\nremote = [\"10.2.0.0/16\"]\nproposals = [\"aes128gcm16-x25519\"]\n",
        psk_connection("ini.test", "gw.test")
    );
    let mut dumpcap = start_capture(&place, &cable);
    let mut ours = cable.start_usher(&place, a, "client", &["serve"], &text);
    ours.wait_for("addresses=\"10.9.0.1");
    route_to_charon(&charon, "10.9.0.0/24", "10.2.0.1");
    echo_stream((a, "10.9.0.1"), (b, "10.2.0.1"), 1 << 20);
    let flow = DatagramFlow::start_flow((a, "10.9.0.1"), (b, "10.2.0.1"));
    let children = |name| gateway_status(&place, name)["sas"][0]["children"][0]["inbound"].clone();
    let first = children("client");
    query_gateway(&place, "client", &["rekey", "--children"]);
    wait_until("we have replaced the CHILD_SA", || children("client") != first);
    flow.wait_for_answers(50);
    let second = children("client");
    charon.run_swanctl(&["--rekey", "--child", "net"]);
    wait_until("charon has replaced it", || children("client") != second);
    flow.wait_for_answers(50);
    let spis = || gateway_status(&place, "client")["sas"][0]["spis"].clone();
    let third = spis();
    query_gateway(&place, "client", &["rekey"]);
    wait_until("we have replaced the IKE_SA", || spis() != third);
    let fourth = spis();
    charon.run_swanctl(&["--rekey", "--ike", "in"]);
    wait_until("charon has replaced it", || spis() != fourth);
    flow.wait_for_answers(50);
    let tally = flow.finish_flow();
    assert!(tally.sent > 100 && tally.lost.is_empty(), "{tally:?}\n{}", charon.charon_log());
    echo_stream((a, "10.9.0.1"), (b, "10.2.0.1"), 1 << 20);
    let now = gateway_status(&place, "client");
    assert_eq!(now["sas"][0]["children"][0]["encapsulated"], true);
    for counter in ["esp_integrity", "esp_replayed", "esp_selectors", "esp_padding", "tun_not_sent"] {
        assert_eq!(now["counters"][counter], 0, "{counter}");
    }
    assert_eq!(ours.terminate(), Some(0));
    dumpcap.terminate();
    let (all, good, bad) = count_decrypted_packets(&place);
    assert!(all > 2000 && good == all && bad == 0, "{good} of {all} are good, {bad} bad");
}

/// IPv6 Ready: EN.I.1.1.1.3, EN.I.1.2.3.2, EN.I.1.2.3.8, EN.R.1.1.1.3, EN.R.1.2.5.2, EN.R.1.2.5.6.
#[test]
fn charon_as_client_and_our_gateway_rekey_under_load() {
    let place = TempDir::new();
    let charon = CharonNamespace::new(&charon_client_config());
    let cable = TunnelTestNetwork::with_charon(&charon);
    let (a, b) = (cable.a.as_str(), cable.b.as_str());
    run_ip(&format!("-n {a} addr add 10.1.0.1/32 dev lo"));
    let text = format!(
        "{}pools = [\"inner\"]\nproposals = [\"aes128-sha256-x25519\"]\n[[connection.child]]\nname = \"net\"\nlocal = [\"10.1.0.0/16\"]\n\
         proposals = [\"aes128gcm16-x25519\"]\n[[pool]]\nname = \"inner\"\nranges = [\"10.9.0.0/24\"]\n",
        psk_connection("gw.test", "ini.test")
    );
    let _ours = cable.start_usher(&place, a, "gateway", &["serve"], &text);
    run_swanctl(&charon, &["--initiate", "--child", "net", "--ike", "out", "--timeout", "120"]);
    let inner = gateway_status(&place, "gateway")["sas"][0]["addresses"][0].as_str().unwrap().to_owned();
    route_to_charon(&charon, "10.1.0.0/16", &inner);
    echo_stream((b, &inner), (a, "10.1.0.1"), 1 << 20);
    let flow = DatagramFlow::start_flow((b, &inner), (a, "10.1.0.1"));
    let numbers = |what: &str| {
        let sa = gateway_status(&place, "gateway")["sas"][0].clone();
        if what == "child" { sa["children"][0]["inbound"].clone() } else { sa["spis"].clone() }
    };
    for n in 0..8 {
        let what = if n % 4 < 2 { "child" } else { "ike" };
        let before = numbers(what);
        match n % 4 {
            0 => drop(query_gateway(&place, "gateway", &["rekey", "--children"])),
            1 => drop(charon.run_swanctl(&["--rekey", "--child", "net"])),
            2 => drop(query_gateway(&place, "gateway", &["rekey"])),
            _ => drop(charon.run_swanctl(&["--rekey", "--ike", "out"])),
        }
        wait_until("it is replaced", || numbers(what) != before);
        flow.wait_for_answers(30);
    }
    let tally = flow.finish_flow();
    assert!(tally.sent > 200 && tally.lost.is_empty(), "{tally:?}\n{}", charon.charon_log());
    let now = gateway_status(&place, "gateway");
    let counted = |name: &str| now["counters"][name].as_u64().unwrap();
    assert!(counted("ike_rekeyed") >= 4 && counted("ike_children") >= 5, "{now}");
    assert!(now["sas"][0]["carried"]["received_packets"].as_u64() > Some(tally.sent as u64), "{now}");
}

/// Traffic goes on after the client's address has changed.
#[test]
fn traffic_goes_on_after_either_client_has_moved() {
    let place = TempDir::new();
    // Our client moves.
    let charon = CharonNamespace::new(&charon_gateway_config());
    let cable = TunnelTestNetwork::with_charon(&charon);
    let (a, b) = (cable.a.as_str(), cable.b.as_str());
    let text = format!(
        "{}remote_address = \"192.0.2.2\"\naddress = true\nstart = true\nproposals = [\"aes128-sha256-x25519\"]\n\
         [[connection.child]]\nname = \"net\"\nremote = [\"10.2.0.0/16\"]\nproposals = [\"aes128gcm16-x25519\"]\n",
        psk_connection("ini.test", "gw.test")
    );
    let mut ours = cable.start_usher(&place, a, "client", &["serve"], &text);
    ours.wait_for("addresses=\"10.9.0.1");
    route_to_charon(&charon, "10.9.0.0/24", "10.2.0.1");
    echo_stream((a, "10.9.0.1"), (b, "10.2.0.1"), 100_000);
    let spis = gateway_status(&place, "client")["sas"][0]["spis"].clone();
    run_ip(&format!("-n {a} addr add 192.0.2.11/24 dev eth0"));
    run_ip(&format!("-n {a} addr del 192.0.2.1/24 dev eth0"));
    // The kernel removed the second address with the first of the same network.
    try_ip(&format!("-n {a} addr add 192.0.2.11/24 dev eth0"));
    ours.wait_for("moved");
    echo_stream((a, "10.9.0.1"), (b, "10.2.0.1"), 1 << 20);
    let now = gateway_status(&place, "client");
    assert_eq!(now["sas"][0]["spis"], spis, "it is the same IKE_SA");
    assert!(now["sas"][0]["local"].as_str().unwrap().starts_with("192.0.2.11:"), "{now}");
    drop(ours);
    drop(cable);
    drop(charon);
    // charon moves.
    let charon = CharonNamespace::new(&charon_client_config());
    let cable = TunnelTestNetwork::with_charon(&charon);
    let (a, b) = (cable.a.as_str(), cable.b.as_str());
    run_ip(&format!("-n {a} addr add 10.1.0.1/32 dev lo"));
    let text = format!(
        "{}pools = [\"inner\"]\nproposals = [\"aes128-sha256-x25519\"]\n[[connection.child]]\nname = \"net\"\nlocal = [\"10.1.0.0/16\"]\n\
         proposals = [\"aes128gcm16-x25519\"]\n[[pool]]\nname = \"inner\"\nranges = [\"10.9.0.0/24\"]\n",
        psk_connection("gw.test", "ini.test")
    );
    let mut ours = cable.start_usher(&place, a, "gateway", &["serve"], &text);
    run_swanctl(&charon, &["--initiate", "--child", "net", "--ike", "out", "--timeout", "120"]);
    let inner = gateway_status(&place, "gateway")["sas"][0]["addresses"][0].as_str().unwrap().to_owned();
    route_to_charon(&charon, "10.1.0.0/16", &inner);
    echo_stream((b, &inner), (a, "10.1.0.1"), 100_000);
    run_ip(&format!("-n {b} addr add 192.0.2.12/24 dev eth0"));
    run_ip(&format!("-n {b} addr del 192.0.2.2/24 dev eth0"));
    try_ip(&format!("-n {b} addr add 192.0.2.12/24 dev eth0"));
    ours.wait_for("moved");
    try_ip(&format!("-n {b} addr add {inner}/32 dev eth0"));
    route_to_charon(&charon, "10.1.0.0/16", &inner);
    echo_stream((b, &inner), (a, "10.1.0.1"), 1 << 20);
    let now = gateway_status(&place, "gateway");
    assert!(now["sas"][0]["remote"].as_str().unwrap().starts_with("192.0.2.12:"), "{now}");
}

/// Reauthentication does not interrupt traffic.
#[test]
fn traffic_goes_on_while_our_client_proves_anew_who_it_is() {
    let place = TempDir::new();
    let sites = charon_gateway_config()
        .replace(" pools = v4\n", "")
        .replace("local_ts = 10.2", "remote_ts = 10.1.0.0/16\n local_ts = 10.2");
    let charon = CharonNamespace::new(&sites);
    let cable = TunnelTestNetwork::with_charon(&charon);
    let (a, b) = (cable.a.as_str(), cable.b.as_str());
    run_ip(&format!("-n {a} addr add 10.1.0.1/32 dev lo"));
    let text = format!(
        "{}remote_address = \"192.0.2.2\"\nstart = true\nproposals = [\"aes128-sha256-x25519\"]\nreauth_after = \"4 s\"\n\
         [[connection.child]]\nname = \"net\"\nlocal = [\"10.1.0.0/16\"]\nremote = [\"10.2.0.0/16\"]\nproposals = [\"aes128gcm16-x25519\"]\n",
        psk_connection("ini.test", "gw.test")
    );
    let mut ours = cable.start_usher(&place, a, "client", &["serve"], &text);
    ours.wait_for("established");
    route_to_charon(&charon, "10.1.0.0/16", "10.2.0.1");
    echo_stream((a, "10.1.0.1"), (b, "10.2.0.1"), 100_000);
    let counted = || gateway_status(&place, "client")["counters"]["reauthentications"].as_u64().unwrap();
    // At each reauthentication, one datagram may be in flight to the deleted SA. A busy machine may have more
    // in flight, but not every time.
    let begun = Instant::now();
    loop {
        let before = counted();
        let flow = DatagramFlow::start_flow((a, "10.1.0.1"), (b, "10.2.0.1"));
        flow.wait_for_answers(50);
        wait_until("it has done so twice", || counted() >= before + 2);
        flow.wait_for_answers(50);
        let tally = flow.finish_flow();
        if tally.lost.len() <= 2 {
            break;
        }
        assert!(begun.elapsed() < TEST_TIMEOUT, "{tally:?}\n{}", charon.charon_log());
    }
    let now = gateway_status(&place, "client");
    assert_eq!(now["sas"].as_array().unwrap().len(), 1, "{now}");
}

/// Three CHILD_SAs under one IKE_SA, requested by both sides; each carries its own traffic. IPv6 Ready:
/// EN.I.1.2.5.1.
#[test]
fn both_sides_add_child_sas_to_one_ike_sa_and_all_carry_traffic() {
    let child = |name: &str, local: &str, remote: &str| {
        format!(
            "{name} {{ local_ts = {local}\n remote_ts = {remote}\n esp_proposals = aes128gcm16-x25519\n rekey_time = 0 }}\n"
        )
    };
    let children = [
        child("net", "10.2.0.0/16", "10.1.0.0/16"),
        child("second", "10.4.0.0/16", "10.1.0.0/16"),
        child("third", "10.3.0.0/16", "10.1.0.0/16"),
    ]
    .concat();
    let theirs = format!(
        "connections {{ site {{ version = 2\n proposals = aes128-sha256-x25519\n rekey_time = 0\n\
         local_addrs = %any\n remote_addrs = 192.0.2.1\n local {{ auth = psk\n id = gw.test }}\n remote {{ auth = psk\n id = ini.test }}\n\
         children {{ {children} }} }} }}\n{SECRETS}"
    );
    let child = |name: &str, local: &str, remote: &str| {
        format!(
            "[[connection.child]]\nname = \"{name}\"\nlocal = [\"{local}\"]\nremote = [\"{remote}\"]\nproposals = [\"aes128gcm16-x25519\"]\n"
        )
    };
    let children = [
        child("net", "10.1.0.0/16", "10.2.0.0/16"),
        child("second", "10.1.0.0/16", "10.4.0.0/16"),
        child("third", "10.1.0.0/16", "10.3.0.0/16"),
    ]
    .concat();
    // First charon initiates with two CHILD_SAs, and we add the third when a packet needs it. Then we initiate
    // all three.
    for how in ["on_demand = true\n", "start = true\n"] {
        let place = TempDir::new();
        let charon = CharonNamespace::new(&theirs);
        let cable = TunnelTestNetwork::with_charon(&charon);
        let (a, b) = (cable.a.as_str(), cable.b.as_str());
        run_ip(&format!("-n {a} addr add 10.1.0.1/32 dev lo"));
        for address in ["10.3.0.1", "10.4.0.1"] {
            run_ip(&format!("-n {b} addr add {address}/32 dev lo"));
        }
        let text = format!(
            "{}remote_address = \"192.0.2.2\"\nproposals = [\"aes128-sha256-x25519\"]\n{how}{children}",
            psk_connection("ini.test", "gw.test")
        );
        let mut ours = cable.start_usher(&place, a, "site", &["serve"], &text);
        let begun = how.starts_with("on_demand");
        if begun {
            run_swanctl(&charon, &["--initiate", "--child", "net", "--ike", "site", "--timeout", "120"]);
            run_swanctl(&charon, &["--initiate", "--child", "second", "--ike", "site", "--timeout", "120"]);
        } else {
            ours.wait_until("third", |log| log.contains("name=\"third\""));
        }
        route_to_charon(&charon, "10.1.0.0/16", "10.2.0.1");
        for to in ["10.2.0.1", "10.4.0.1", "10.3.0.1"] {
            echo_stream((a, "10.1.0.1"), (b, to), 200_000);
        }
        let now = gateway_status(&place, "site");
        let children = now["sas"][0]["children"].as_array().unwrap();
        let mut names: Vec<&str> = children.iter().map(|child| child["name"].as_str().unwrap()).collect();
        names.sort_unstable();
        assert_eq!(names, ["net", "second", "third"], "{now}");
        assert!(
            children.iter().all(|child| child["carried"]["sent_octets"].as_u64() > Some(200_000)),
            "{now}"
        );
        assert_eq!(
            (now["sas"].as_array().unwrap().len(), &now["counters"]["ike_established"]),
            (1, &1.into())
        );
        assert_eq!(now["counters"]["acquired"], u64::from(begun), "{now}");
    }
}
