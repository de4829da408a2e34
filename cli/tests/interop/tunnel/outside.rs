//! IPv6 or a NAT that loses its mappings lies between the two networks. strongSwan's charon is the peer, in
//! both roles.

use super::charon::{SECRETS, route_to_charon, run_swanctl};
use super::traffic::{echo_stream, run_in_namespace};
use super::*;

/// Returns charon's configuration: a tunnel between two networks, to and from an address.
fn site_config(remote: &str, more: &str) -> String {
    let (own, other) = ("local { auth = psk\n id = gw.test }", "remote { auth = psk\n id = ini.test }");
    let child = "local_ts = 10.2.0.0/16\n remote_ts = 10.1.0.0/16\n esp_proposals = aes128gcm16-x25519\n rekey_time = 0";
    format!(
        "connections {{ site {{ version = 2\n proposals = aes128-sha256-x25519\n rekey_time = 0\n mobike = no\n {more}\n\
         local_addrs = %any\n remote_addrs = {remote}\n {own}\n {other}\n children {{ net {{ {child} }} }} }} }}\n{SECRETS}"
    )
}

/// Returns our configuration of the other end.
fn our_site_config(more: &str) -> String {
    format!(
        "{}mobike = false\nproposals = [\"aes128-sha256-x25519\"]\n{more}[[connection.child]]\nname = \"net\"\n\
         local = [\"10.1.0.0/16\"]\nremote = [\"10.2.0.0/16\"]\nproposals = [\"aes128gcm16-x25519\"]\n",
        psk_connection("ini.test", "gw.test")
    )
}

/// Checks that both ends carry traffic of the other.
#[track_caller]
fn check_both_directions(cable: &TunnelTestNetwork) {
    let (a, b) = (cable.a.as_str(), cable.b.as_str());
    echo_stream((a, "10.1.0.1"), (b, "10.2.0.1"), 200_000);
    echo_stream((b, "10.2.0.1"), (a, "10.1.0.1"), 200_000);
}

#[test]
fn ipv6_is_between_our_side_and_charon_in_both_roles() {
    let place = TempDir::new();
    let charon = CharonNamespace::new(&site_config("2001:db8::1", ""));
    let cable = TunnelTestNetwork::with_charon(&charon);
    run_ip(&format!("-n {} addr add 10.1.0.1/32 dev lo", cable.a));
    let text = our_site_config("remote_address = \"2001:db8::2\"\n");
    let mut side = cable.start_usher(&place, &cable.a, "side", &["serve"], &text);
    let begun_by = |role: &str| {
        let now = gateway_status(&place, "side");
        assert_eq!(now["sas"].as_array().unwrap().len(), 1, "{now}");
        let sa = &now["sas"][0];
        assert_eq!((&sa["role"], &sa["remote"]), (&role.into(), &"[2001:db8::2]:4500".into()), "{now}");
    };
    run_swanctl(&charon, &["--initiate", "--child", "net", "--ike", "site", "--timeout", "120"]);
    begun_by("responder");
    route_to_charon(&charon, "10.1.0.0/16", "10.2.0.1");
    check_both_directions(&cable);
    run_swanctl(&charon, &["--terminate", "--ike", "site", "--timeout", "120"]);
    wait_until("it has ended", || gateway_status(&place, "side")["sas"].as_array().unwrap().is_empty());
    query_gateway(&place, "side", &["connect", "site"]);
    wait_until("there is a CHILD_SA", || {
        gateway_status(&place, "side")["sas"][0]["children"].as_array().is_some_and(|all| all.len() == 1)
    });
    begun_by("initiator");
    check_both_directions(&cable);
    let now = gateway_status(&place, "side");
    for counter in ["esp_integrity", "esp_replayed", "esp_selectors", "tun_not_sent"] {
        assert_eq!(now["counters"][counter], 0, "{counter}: {now}");
    }
    assert_eq!(side.terminate(), Some(0));
}

/// A router between hosts at 10.50.0.2 and 192.0.2.2, which translates the first host's address to its own.
struct NatRouter(String);

impl NatRouter {
    #[track_caller]
    fn between_namespaces(inside: &str, outside: &str) -> Self {
        let router = add_namespace("nat");
        for (link, host, own, address) in
            [("in", inside, "10.50.0.1", "10.50.0.2"), ("out", outside, "192.0.2.9", "192.0.2.2")]
        {
            run_ip(&format!("-n {router} link add {link} type veth peer name eth0 netns {host}"));
            for (space, device, address) in [(router.as_str(), link, own), (host, "eth0", address)] {
                run_ip(&format!("-n {space} addr add {address}/24 dev {device}"));
                run_ip(&format!("-n {space} link set {device} up"));
            }
        }
        run_ip(&format!("-n {inside} route add default via 10.50.0.1"));
        run_in_namespace(&router, || std::fs::write("/proc/sys/net/ipv4/ip_forward", "1").unwrap());
        for rule in [
            "add table ip nat",
            "add chain ip nat out { type nat hook postrouting priority 100; }",
            "add rule ip nat out oifname out masquerade",
        ] {
            let done = find_program("ip").args(["netns", "exec", &router, "nft", rule]).status().unwrap();
            assert!(done.success(), "nft {rule}: this needs root");
        }
        Self(router)
    }
    /// Changes the router's own address; all mappings end with the old one.
    #[track_caller]
    fn change_address(&self, from: &str, to: &str) {
        run_ip(&format!("-n {} addr del {from}/24 dev out", self.0));
        run_ip(&format!("-n {} addr add {to}/24 dev out", self.0));
    }
}

/// RFC 7296 2.23, RFC 3948: all packets use port 4500, keepalives hold the mapping, and charon follows a new
/// mapping.
#[test]
fn charon_follows_the_nat_mapping_of_our_client() {
    let place = TempDir::new();
    let charon = CharonNamespace::new(&site_config("%any", ""));
    let a = add_namespace("a");
    let nat = NatRouter::between_namespaces(&a, charon.name());
    let cable = TunnelTestNetwork { own: vec![a.clone(), nat.0.clone()], a, b: charon.name().to_owned() };
    run_ip(&format!("-n {} addr add 10.1.0.1/32 dev lo", cable.a));
    let limits = "[limits]\nkeepalive = \"300 ms\"\n";
    let more = "remote_address = \"192.0.2.2\"\nstart = true\nliveness = \"1 s\"\n";
    let mut client = cable.start_usher(
        &place,
        &cable.a,
        "client",
        &["serve"],
        &format!("{}{limits}", our_site_config(more)),
    );
    client.wait_for("name=\"net\"");
    route_to_charon(&charon, "10.1.0.0/16", "10.2.0.1");
    check_both_directions(&cable);
    let seen_at = |address: &str| charon.run_swanctl(&["--list-sas"]).contains(&format!("@ {address}["));
    assert!(seen_at("192.0.2.9"), "{}", charon.run_swanctl(&["--list-sas"]));
    let first = gateway_status(&place, "client");
    let sa = &first["sas"][0];
    assert_eq!((&sa["local"], &sa["remote"]), (&"10.50.0.2:4500".into(), &"192.0.2.2:4500".into()));
    assert_eq!(sa["children"][0]["encapsulated"], true, "{first}");
    wait_until("the mapping is held", || {
        gateway_status(&place, "client")["counters"]["ike_keepalives"].as_u64() >= Some(2)
    });
    nat.change_address("192.0.2.9", "192.0.2.10");
    wait_until("charon has heard from there", || seen_at("192.0.2.10"));
    check_both_directions(&cable);
    let now = gateway_status(&place, "client");
    assert_eq!(now["sas"][0]["spis"], first["sas"][0]["spis"], "it is the same IKE_SA");
    assert_eq!(client.terminate(), Some(0));
}

/// The reverse: our gateway follows a new mapping, by ESP packets and by IKE.
#[test]
fn our_gateway_follows_the_nat_mapping_of_charon() {
    let place = TempDir::new();
    let charon = CharonNamespace::with_settings(&site_config("192.0.2.2", ""), &[], "keep_alive = 1");
    let a = add_namespace("a");
    let nat = NatRouter::between_namespaces(charon.name(), &a);
    let cable = TunnelTestNetwork { own: vec![a.clone(), nat.0.clone()], a, b: charon.name().to_owned() };
    run_ip(&format!("-n {} addr add 10.1.0.1/32 dev lo", cable.a));
    let mut gateway = cable.start_usher(&place, &cable.a, "gateway", &["serve"], &our_site_config(""));
    run_swanctl(&charon, &["--initiate", "--child", "net", "--ike", "site", "--timeout", "120"]);
    route_to_charon(&charon, "10.1.0.0/16", "10.2.0.1");
    check_both_directions(&cable);
    let first = gateway_status(&place, "gateway");
    let of = |now: &serde_json::Value| now["sas"][0]["remote"].as_str().unwrap_or_default().to_owned();
    assert!(of(&first).starts_with("192.0.2.9:"), "{first}");
    assert_eq!(first["sas"][0]["children"][0]["encapsulated"], true, "{first}");
    nat.change_address("192.0.2.9", "192.0.2.10");
    // The gateway follows ESP packets at once, before any IKE message.
    echo_stream((&cable.b, "10.2.0.1"), (&cable.a, "10.1.0.1"), 200_000);
    gateway.wait_for("packets of the peer arrive from a new address");
    charon.run_swanctl(&["--rekey", "--child", "net"]);
    wait_until("IKE has come from there, too", || {
        of(&gateway_status(&place, "gateway")).starts_with("192.0.2.10:")
    });
    check_both_directions(&cable);
    let now = gateway_status(&place, "gateway");
    assert_eq!(now["sas"][0]["spis"], first["sas"][0]["spis"], "it is the same IKE_SA");
    assert_eq!(gateway.terminate(), Some(0));
}
