//! What is between the two networks: IPv6, and a NAT that forgets what it had, with strongSwan's charon at the other end in both
//! roles.

use super::charon::{SECRETS, lead, swanctl};
use super::traffic::{stream, within};
use super::*;

/// charon with a network of each side, to an address and from it.
fn site(remote: &str, more: &str) -> String {
    let (own, other) = ("local { auth = psk\n id = gw.test }", "remote { auth = psk\n id = ini.test }");
    let child = "local_ts = 10.2.0.0/16\n remote_ts = 10.1.0.0/16\n esp_proposals = aes128gcm16-x25519\n rekey_time = 0";
    format!(
        "connections {{ site {{ version = 2\n proposals = aes128-sha256-x25519\n rekey_time = 0\n mobike = no\n {more}\n\
         local_addrs = %any\n remote_addrs = {remote}\n {own}\n {other}\n children {{ net {{ {child} }} }} }} }}\n{SECRETS}"
    )
}

/// Ours, which is at the other end of it.
fn ours(more: &str) -> String {
    format!(
        "{}mobike = false\nproposals = [\"aes128-sha256-x25519\"]\n{more}[[connection.child]]\nname = \"net\"\n\
         local = [\"10.1.0.0/16\"]\nremote = [\"10.2.0.0/16\"]\nproposals = [\"aes128gcm16-x25519\"]\n",
        psk("ini.test", "gw.test")
    )
}

/// Both carry what the other sends.
#[track_caller]
fn both_ways(cable: &Cable) {
    let (a, b) = (cable.a.as_str(), cable.b.as_str());
    stream((a, "10.1.0.1"), (b, "10.2.0.1"), 200_000);
    stream((b, "10.2.0.1"), (a, "10.1.0.1"), 200_000);
}

#[test]
fn ipv6_is_between_our_side_and_charon_in_both_roles() {
    let place = Folder::new();
    let charon = Place::new(&site("2001:db8::1", ""));
    let cable = Cable::to(&charon);
    ip(&format!("-n {} addr add 10.1.0.1/32 dev lo", cable.a));
    let text = ours("remote_address = \"2001:db8::2\"\n");
    let mut side = cable.usher(&place, &cable.a, "side", &["serve"], &text);
    let begun_by = |role: &str| {
        let now = status(&place, "side");
        assert_eq!(now["sas"].as_array().unwrap().len(), 1, "{now}");
        let sa = &now["sas"][0];
        assert_eq!((&sa["role"], &sa["remote"]), (&role.into(), &"[2001:db8::2]:4500".into()), "{now}");
    };
    swanctl(&charon, &["--initiate", "--child", "net", "--ike", "site", "--timeout", "120"]);
    begun_by("responder");
    lead(&charon, "10.1.0.0/16", "10.2.0.1");
    both_ways(&cable);
    swanctl(&charon, &["--terminate", "--ike", "site", "--timeout", "120"]);
    eventually("it has ended", || status(&place, "side")["sas"].as_array().unwrap().is_empty());
    ask(&place, "side", &["connect", "site"]);
    eventually("there is a CHILD_SA", || {
        status(&place, "side")["sas"][0]["children"].as_array().is_some_and(|all| all.len() == 1)
    });
    begun_by("initiator");
    both_ways(&cable);
    let now = status(&place, "side");
    for counter in ["esp_integrity", "esp_replayed", "esp_selectors", "tun_not_sent"] {
        assert_eq!(now["counters"][counter], 0, "{counter}: {now}");
    }
    assert_eq!(side.terminate(), Some(0));
}

/// A router between a host at 10.50.0.2 and one at 192.0.2.2, which gives what the first sends an address of its own.
struct Nat(String);

impl Nat {
    #[track_caller]
    fn between(inside: &str, outside: &str) -> Self {
        let router = namespace("nat");
        for (link, host, own, address) in
            [("in", inside, "10.50.0.1", "10.50.0.2"), ("out", outside, "192.0.2.9", "192.0.2.2")]
        {
            ip(&format!("-n {router} link add {link} type veth peer name eth0 netns {host}"));
            for (space, device, address) in [(router.as_str(), link, own), (host, "eth0", address)] {
                ip(&format!("-n {space} addr add {address}/24 dev {device}"));
                ip(&format!("-n {space} link set {device} up"));
            }
        }
        ip(&format!("-n {inside} route add default via 10.50.0.1"));
        within(&router, || std::fs::write("/proc/sys/net/ipv4/ip_forward", "1").unwrap());
        for rule in [
            "add table ip nat",
            "add chain ip nat out { type nat hook postrouting priority 100; }",
            "add rule ip nat out oifname out masquerade",
        ] {
            let done = program("ip").args(["netns", "exec", &router, "nft", rule]).status().unwrap();
            assert!(done.success(), "nft {rule}: this needs root");
        }
        Self(router)
    }
    /// Its own address becomes another, and with the old one goes every mapping.
    #[track_caller]
    fn becomes(&self, from: &str, to: &str) {
        ip(&format!("-n {} addr del {from}/24 dev out", self.0));
        ip(&format!("-n {} addr add {to}/24 dev out", self.0));
    }
}

/// RFC 7296 2.23, RFC 3948: all goes by port 4500, keepalives hold the mapping, and charon follows when that is another.
#[test]
fn our_client_behind_a_nat_carries_traffic_with_charon_which_follows_its_mapping() {
    let place = Folder::new();
    let charon = Place::new(&site("%any", ""));
    let a = namespace("a");
    let nat = Nat::between(&a, charon.name());
    let cable = Cable { own: vec![a.clone(), nat.0.clone()], a, b: charon.name().to_owned() };
    ip(&format!("-n {} addr add 10.1.0.1/32 dev lo", cable.a));
    let limits = "[limits]\nkeepalive = \"300 ms\"\n";
    let more = "remote_address = \"192.0.2.2\"\nstart = true\nliveness = \"1 s\"\n";
    let mut client = cable.usher(&place, &cable.a, "client", &["serve"], &format!("{}{limits}", ours(more)));
    client.wait_for("name=\"net\"");
    lead(&charon, "10.1.0.0/16", "10.2.0.1");
    both_ways(&cable);
    let seen_at = |address: &str| charon.swanctl(&["--list-sas"]).contains(&format!("@ {address}["));
    assert!(seen_at("192.0.2.9"), "{}", charon.swanctl(&["--list-sas"]));
    let first = status(&place, "client");
    let sa = &first["sas"][0];
    assert_eq!((&sa["local"], &sa["remote"]), (&"10.50.0.2:4500".into(), &"192.0.2.2:4500".into()));
    assert_eq!(sa["children"][0]["encapsulated"], true, "{first}");
    eventually("the mapping is held", || {
        status(&place, "client")["counters"]["ike_keepalives"].as_u64() >= Some(2)
    });
    nat.becomes("192.0.2.9", "192.0.2.10");
    eventually("charon has heard from there", || seen_at("192.0.2.10"));
    both_ways(&cable);
    let now = status(&place, "client");
    assert_eq!(now["sas"][0]["spis"], first["sas"][0]["spis"], "it is the same IKE_SA");
    assert_eq!(client.terminate(), Some(0));
}

/// The same the other way round: our gateway follows by packets of ESP, and by IKE.
#[test]
fn charons_client_behind_a_nat_carries_traffic_with_our_gateway_which_follows_its_mapping() {
    let place = Folder::new();
    let charon = Place::set(&site("192.0.2.2", ""), &[], "keep_alive = 1");
    let a = namespace("a");
    let nat = Nat::between(charon.name(), &a);
    let cable = Cable { own: vec![a.clone(), nat.0.clone()], a, b: charon.name().to_owned() };
    ip(&format!("-n {} addr add 10.1.0.1/32 dev lo", cable.a));
    let mut gateway = cable.usher(&place, &cable.a, "gateway", &["serve"], &ours(""));
    swanctl(&charon, &["--initiate", "--child", "net", "--ike", "site", "--timeout", "120"]);
    lead(&charon, "10.1.0.0/16", "10.2.0.1");
    both_ways(&cable);
    let first = status(&place, "gateway");
    let of = |now: &serde_json::Value| now["sas"][0]["remote"].as_str().unwrap_or_default().to_owned();
    assert!(of(&first).starts_with("192.0.2.9:"), "{first}");
    assert_eq!(first["sas"][0]["children"][0]["encapsulated"], true, "{first}");
    nat.becomes("192.0.2.9", "192.0.2.10");
    // Packets are believed at once, before IKE has said anything.
    stream((&cable.b, "10.2.0.1"), (&cable.a, "10.1.0.1"), 200_000);
    gateway.wait_for("packets come from another address");
    charon.swanctl(&["--rekey", "--child", "net"]);
    eventually("IKE has come from there, too", || of(&status(&place, "gateway")).starts_with("192.0.2.10:"));
    both_ways(&cable);
    let now = status(&place, "gateway");
    assert_eq!(now["sas"][0]["spis"], first["sas"][0]["spis"], "it is the same IKE_SA");
    assert_eq!(gateway.terminate(), Some(0));
}
