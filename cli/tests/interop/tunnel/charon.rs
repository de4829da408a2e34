//! strongSwan's charon at the other end, in both roles. It takes a NAT to be between the two, as it does whenever it protects
//! packets in user space, so that all packets are within UDP.

use super::traffic::{Flow, stream};
use super::*;

pub(super) const SECRETS: &str =
    "secrets { ike-1 { id-a = gw.test\n id-b = ini.test\n secret = \"a shared secret\" } }\n";

/// charon as a gateway: 10.2.0.1 is behind it.
fn waits() -> String {
    format!(
        "connections {{ in {{ version = 2\n proposals = aes128-sha256-x25519\n pools = v4\n mobike = yes\n rekey_time = 0\n\
         local {{ auth = psk\n id = gw.test }}\n remote {{ auth = psk\n id = ini.test }}\n\
         children {{ net {{ local_ts = 10.2.0.0/16\n esp_proposals = aes128gcm16-x25519\n rekey_time = 0 }} }} }} }}\n\
         pools {{ v4 {{ addrs = 10.9.0.0/24 }} }}\n{SECRETS}"
    )
}

/// charon as a client.
fn begins() -> String {
    format!(
        "connections {{ out {{ version = 2\n proposals = aes128-sha256-x25519\n vips = 0.0.0.0\n mobike = yes\n rekey_time = 0\n\
         local_addrs = %any\n remote_addrs = 192.0.2.1\n local {{ auth = psk\n id = ini.test }}\n remote {{ auth = psk\n id = gw.test }}\n\
         children {{ net {{ remote_ts = 10.1.0.0/16\n esp_proposals = aes128gcm16-x25519\n rekey_time = 0 }} }} }} }}\n{SECRETS}"
    )
}

/// Leads traffic to charon's device, which it makes itself.
#[track_caller]
pub(super) fn lead(charon: &Place, to: &str, source: &str) {
    let name = charon.name();
    eventually("it has a device", || try_ip(&format!("-n {name} link set ipsec0 up")));
    ip(&format!("-n {name} route replace {to} dev ipsec0 src {source}"));
}

#[track_caller]
pub(super) fn swanctl(charon: &Place, words: &[&str]) {
    let said = charon.swanctl(words);
    assert!(said.contains("completed successfully"), "{words:?}: {said}\n{}", charon.log());
}

/// A capture of what goes over the cable.
pub(super) fn capture(place: &Folder, cable: &Cable) -> Running {
    // Datagrams that went to the system as one are seen as one unless it has to cut them before the device.
    ip(&format!("-n {} link set eth0 gso_max_segs 1", cable.a));
    let mut command = cable.command(&cable.a, "dumpcap");
    // With room for what comes while it does not run.
    command.args(["-q", "-B", "32", "-i", "eth0", "-w", "capture.pcapng"]);
    place.start("dumpcap", &mut command, "File: ")
}

/// What tshark makes of the packets of ESP in a capture, by the keys of our log: how many there are, how many of them it has
/// found good, and how many bad.
fn opened(place: &Folder) -> (usize, usize, usize) {
    let keys = std::fs::read_to_string(place.path("client.esp_sa")).unwrap();
    let mut command = program("tshark");
    // What is inside is left alone: where a segment of TCP came twice, tshark's reassembly ends before it says what it thought of
    // the packet around it.
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
fn our_client_and_charons_gateway_carry_traffic_while_both_replace_sas_and_tshark_opens_it() {
    let place = Folder::new();
    let charon = Place::new(&waits());
    let cable = Cable::to(&charon);
    let (a, b) = (cable.a.as_str(), cable.b.as_str());
    let text = format!(
        "{}remote_address = \"192.0.2.2\"\naddress = true\nstart = true\nproposals = [\"aes128-sha256-x25519\"]\n\
         [[connection.child]]\nname = \"net\"\nremote = [\"10.2.0.0/16\"]\nproposals = [\"aes128gcm16-x25519\"]\n",
        psk("ini.test", "gw.test")
    );
    let mut dumpcap = capture(&place, &cable);
    let mut ours = cable.usher(&place, a, "client", &["serve"], &text);
    ours.wait_for("addresses=\"10.9.0.1");
    lead(&charon, "10.9.0.0/24", "10.2.0.1");
    stream((a, "10.9.0.1"), (b, "10.2.0.1"), 1 << 20);
    let flow = Flow::begin((a, "10.9.0.1"), (b, "10.2.0.1"));
    let children = |name| status(&place, name)["sas"][0]["children"][0]["inbound"].clone();
    let first = children("client");
    ask(&place, "client", &["rekey", "--children"]);
    eventually("we have replaced the CHILD_SA", || children("client") != first);
    flow.goes_on(50);
    let second = children("client");
    charon.swanctl(&["--rekey", "--child", "net"]);
    eventually("charon has replaced it", || children("client") != second);
    flow.goes_on(50);
    let spis = || status(&place, "client")["sas"][0]["spis"].clone();
    let third = spis();
    ask(&place, "client", &["rekey"]);
    eventually("we have replaced the IKE_SA", || spis() != third);
    let fourth = spis();
    charon.swanctl(&["--rekey", "--ike", "in"]);
    eventually("charon has replaced it", || spis() != fourth);
    flow.goes_on(50);
    let tally = flow.end();
    assert!(tally.sent > 100 && tally.lost.is_empty(), "{tally:?}\n{}", charon.log());
    stream((a, "10.9.0.1"), (b, "10.2.0.1"), 1 << 20);
    let now = status(&place, "client");
    assert_eq!(now["sas"][0]["children"][0]["encapsulated"], true);
    for counter in ["esp_integrity", "esp_replayed", "esp_selectors", "esp_padding", "tun_not_sent"] {
        assert_eq!(now["counters"][counter], 0, "{counter}");
    }
    assert_eq!(ours.terminate(), Some(0));
    dumpcap.terminate();
    let (all, good, bad) = opened(&place);
    assert!(all > 2000 && good == all && bad == 0, "{good} of {all} are good, {bad} bad");
}

/// IPv6 Ready: EN.I.1.1.1.3, EN.I.1.2.3.2, EN.I.1.2.3.8, EN.R.1.1.1.3, EN.R.1.2.5.2, EN.R.1.2.5.6.
#[test]
fn charons_client_and_our_gateway_carry_traffic_while_both_replace_sas() {
    let place = Folder::new();
    let charon = Place::new(&begins());
    let cable = Cable::to(&charon);
    let (a, b) = (cable.a.as_str(), cable.b.as_str());
    ip(&format!("-n {a} addr add 10.1.0.1/32 dev lo"));
    let text = format!(
        "{}pools = [\"inner\"]\nproposals = [\"aes128-sha256-x25519\"]\n[[connection.child]]\nname = \"net\"\nlocal = [\"10.1.0.0/16\"]\n\
         proposals = [\"aes128gcm16-x25519\"]\n[[pool]]\nname = \"inner\"\nranges = [\"10.9.0.0/24\"]\n",
        psk("gw.test", "ini.test")
    );
    let _ours = cable.usher(&place, a, "gateway", &["serve"], &text);
    swanctl(&charon, &["--initiate", "--child", "net", "--ike", "out", "--timeout", "120"]);
    let inner = status(&place, "gateway")["sas"][0]["addresses"][0].as_str().unwrap().to_owned();
    lead(&charon, "10.1.0.0/16", &inner);
    stream((b, &inner), (a, "10.1.0.1"), 1 << 20);
    let flow = Flow::begin((b, &inner), (a, "10.1.0.1"));
    let numbers = |what: &str| {
        let sa = status(&place, "gateway")["sas"][0].clone();
        if what == "child" { sa["children"][0]["inbound"].clone() } else { sa["spis"].clone() }
    };
    for n in 0..8 {
        let what = if n % 4 < 2 { "child" } else { "ike" };
        let before = numbers(what);
        match n % 4 {
            0 => drop(ask(&place, "gateway", &["rekey", "--children"])),
            1 => drop(charon.swanctl(&["--rekey", "--child", "net"])),
            2 => drop(ask(&place, "gateway", &["rekey"])),
            _ => drop(charon.swanctl(&["--rekey", "--ike", "out"])),
        }
        eventually("it is replaced", || numbers(what) != before);
        flow.goes_on(30);
    }
    let tally = flow.end();
    assert!(tally.sent > 200 && tally.lost.is_empty(), "{tally:?}\n{}", charon.log());
    let now = status(&place, "gateway");
    let counted = |name: &str| now["counters"][name].as_u64().unwrap();
    assert!(counted("ike_rekeyed") >= 4 && counted("ike_children") >= 5, "{now}");
    assert!(now["sas"][0]["carried"]["received_packets"].as_u64() > Some(tally.sent as u64), "{now}");
}

/// The client's address changes, and the traffic goes on.
#[test]
fn traffic_goes_on_after_either_client_has_moved() {
    let place = Folder::new();
    // Ours.
    let charon = Place::new(&waits());
    let cable = Cable::to(&charon);
    let (a, b) = (cable.a.as_str(), cable.b.as_str());
    let text = format!(
        "{}remote_address = \"192.0.2.2\"\naddress = true\nstart = true\nproposals = [\"aes128-sha256-x25519\"]\n\
         [[connection.child]]\nname = \"net\"\nremote = [\"10.2.0.0/16\"]\nproposals = [\"aes128gcm16-x25519\"]\n",
        psk("ini.test", "gw.test")
    );
    let mut ours = cable.usher(&place, a, "client", &["serve"], &text);
    ours.wait_for("addresses=\"10.9.0.1");
    lead(&charon, "10.9.0.0/24", "10.2.0.1");
    stream((a, "10.9.0.1"), (b, "10.2.0.1"), 100_000);
    let spis = status(&place, "client")["sas"][0]["spis"].clone();
    ip(&format!("-n {a} addr add 192.0.2.11/24 dev eth0"));
    ip(&format!("-n {a} addr del 192.0.2.1/24 dev eth0"));
    // The second address went with the first, of whose network it was.
    try_ip(&format!("-n {a} addr add 192.0.2.11/24 dev eth0"));
    ours.wait_for("moved");
    stream((a, "10.9.0.1"), (b, "10.2.0.1"), 1 << 20);
    let now = status(&place, "client");
    assert_eq!(now["sas"][0]["spis"], spis, "it is the same IKE_SA");
    assert!(now["sas"][0]["local"].as_str().unwrap().starts_with("192.0.2.11:"), "{now}");
    drop(ours);
    drop(cable);
    drop(charon);
    // charon.
    let charon = Place::new(&begins());
    let cable = Cable::to(&charon);
    let (a, b) = (cable.a.as_str(), cable.b.as_str());
    ip(&format!("-n {a} addr add 10.1.0.1/32 dev lo"));
    let text = format!(
        "{}pools = [\"inner\"]\nproposals = [\"aes128-sha256-x25519\"]\n[[connection.child]]\nname = \"net\"\nlocal = [\"10.1.0.0/16\"]\n\
         proposals = [\"aes128gcm16-x25519\"]\n[[pool]]\nname = \"inner\"\nranges = [\"10.9.0.0/24\"]\n",
        psk("gw.test", "ini.test")
    );
    let mut ours = cable.usher(&place, a, "gateway", &["serve"], &text);
    swanctl(&charon, &["--initiate", "--child", "net", "--ike", "out", "--timeout", "120"]);
    let inner = status(&place, "gateway")["sas"][0]["addresses"][0].as_str().unwrap().to_owned();
    lead(&charon, "10.1.0.0/16", &inner);
    stream((b, &inner), (a, "10.1.0.1"), 100_000);
    ip(&format!("-n {b} addr add 192.0.2.12/24 dev eth0"));
    ip(&format!("-n {b} addr del 192.0.2.2/24 dev eth0"));
    try_ip(&format!("-n {b} addr add 192.0.2.12/24 dev eth0"));
    ours.wait_for("moved");
    try_ip(&format!("-n {b} addr add {inner}/32 dev eth0"));
    lead(&charon, "10.1.0.0/16", &inner);
    stream((b, &inner), (a, "10.1.0.1"), 1 << 20);
    let now = status(&place, "gateway");
    assert!(now["sas"][0]["remote"].as_str().unwrap().starts_with("192.0.2.12:"), "{now}");
}

/// Both prove anew who they are, and traffic is not interrupted.
#[test]
fn traffic_goes_on_while_our_client_proves_anew_who_it_is() {
    let place = Folder::new();
    let sites = waits()
        .replace(" pools = v4\n", "")
        .replace("local_ts = 10.2", "remote_ts = 10.1.0.0/16\n local_ts = 10.2");
    let charon = Place::new(&sites);
    let cable = Cable::to(&charon);
    let (a, b) = (cable.a.as_str(), cable.b.as_str());
    ip(&format!("-n {a} addr add 10.1.0.1/32 dev lo"));
    let text = format!(
        "{}remote_address = \"192.0.2.2\"\nstart = true\nproposals = [\"aes128-sha256-x25519\"]\nreauth_after = \"4 s\"\n\
         [[connection.child]]\nname = \"net\"\nlocal = [\"10.1.0.0/16\"]\nremote = [\"10.2.0.0/16\"]\nproposals = [\"aes128gcm16-x25519\"]\n",
        psk("ini.test", "gw.test")
    );
    let mut ours = cable.usher(&place, a, "client", &["serve"], &text);
    ours.wait_for("established");
    lead(&charon, "10.1.0.0/16", "10.2.0.1");
    stream((a, "10.1.0.1"), (b, "10.2.0.1"), 100_000);
    let counted = || status(&place, "client")["counters"]["reauthentications"].as_u64().unwrap();
    // One may be on its way to the SA that has just been taken away, each time. On a busy machine more are on their way, and
    // not each time.
    let begun = Instant::now();
    loop {
        let before = counted();
        let flow = Flow::begin((a, "10.1.0.1"), (b, "10.2.0.1"));
        flow.goes_on(50);
        eventually("it has done so twice", || counted() >= before + 2);
        flow.goes_on(50);
        let tally = flow.end();
        if tally.lost.len() <= 2 {
            break;
        }
        assert!(begun.elapsed() < PATIENCE, "{tally:?}\n{}", charon.log());
    }
    let now = status(&place, "client");
    assert_eq!(now["sas"].as_array().unwrap().len(), 1, "{now}");
}

/// Three CHILD_SAs under one IKE_SA, which the one side and the other have asked for; each carries its own traffic.
/// IPv6 Ready: EN.I.1.2.5.1.
#[test]
fn several_children_of_one_ike_sa_are_made_by_both_sides_and_carry_their_traffic() {
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
    // charon begins, and asks for two, and we for the third when a packet needs it; then we begin and ask for all.
    for how in ["on_demand = true\n", "start = true\n"] {
        let place = Folder::new();
        let charon = Place::new(&theirs);
        let cable = Cable::to(&charon);
        let (a, b) = (cable.a.as_str(), cable.b.as_str());
        ip(&format!("-n {a} addr add 10.1.0.1/32 dev lo"));
        for address in ["10.3.0.1", "10.4.0.1"] {
            ip(&format!("-n {b} addr add {address}/32 dev lo"));
        }
        let text = format!(
            "{}remote_address = \"192.0.2.2\"\nproposals = [\"aes128-sha256-x25519\"]\n{how}{children}",
            psk("ini.test", "gw.test")
        );
        let mut ours = cable.usher(&place, a, "site", &["serve"], &text);
        let begun = how.starts_with("on_demand");
        if begun {
            swanctl(&charon, &["--initiate", "--child", "net", "--ike", "site", "--timeout", "120"]);
            swanctl(&charon, &["--initiate", "--child", "second", "--ike", "site", "--timeout", "120"]);
        } else {
            ours.wait_until("third", |log| log.contains("name=\"third\""));
        }
        lead(&charon, "10.1.0.0/16", "10.2.0.1");
        for to in ["10.2.0.1", "10.4.0.1", "10.3.0.1"] {
            stream((a, "10.1.0.1"), (b, to), 200_000);
        }
        let now = status(&place, "site");
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
