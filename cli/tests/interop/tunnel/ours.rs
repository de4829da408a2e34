//! Usher at both ends, without a NAT: ESP without UDP encapsulation.

use super::traffic::{DatagramFlow, bind_udp, echo_stream, wait_for_silence};
use super::*;
use crate::place::SECRET;

/// Returns the configuration of the gateway, `b`. 10.2.0.0/16 and 2001:db8:2::/48 are behind it; users get
/// addresses of 10.9.0.0/24 and 2001:db8:9::/112.
fn gateway_config(more: &str) -> String {
    format!(
        "{}pools = [\"inner\", \"inner6\"]\ndns = [\"10.2.0.53\"]\ndomains = [\"corp.test\"]\n[[connection.child]]\nname = \"net\"\n\
         local = [\"10.2.0.0/16\", \"2001:db8:2::/48\"]\n[[pool]]\nname = \"inner\"\nranges = [\"10.9.0.0/24\"]\n\
         [[pool]]\nname = \"inner6\"\nranges = [\"2001:db8:9::/112\"]\n{more}",
        psk_connection("gw.test", "ini.test")
    )
}

fn client_config(to: &str, more: &str) -> String {
    format!(
        "{}remote_address = \"{to}\"\naddress = true\nstart = true\nretry = \"1 s\"\n{more}[[connection.child]]\nname = \"net\"\n\
         remote = [\"10.2.0.0/16\", \"2001:db8:2::/48\"]\n",
        psk_connection("ini.test", "gw.test")
    )
}

impl TunnelTestNetwork {
    /// Adds networks behind both ends.
    fn add_inner_networks(&self) {
        for (n, name) in (1..).zip([&self.a, &self.b]) {
            run_ip(&format!("-n {name} addr add 10.{n}.0.1/32 dev lo"));
            run_ip(&format!("-n {name} addr add 2001:db8:{n}::1/128 dev lo nodad"));
            until_in_use(name, &format!("2001:db8:{n}::1"));
        }
    }
}

/// Returns the virtual addresses of the only IKE_SA.
fn inner_addresses(place: &TempDir, name: &str) -> [String; 2] {
    let mut found = Vec::new();
    wait_until("it has addresses", || {
        let status = gateway_status(place, name);
        let addresses = status["sas"][0]["addresses"].as_array().cloned().unwrap_or_default();
        found = addresses.iter().map(|one| one.as_str().unwrap().to_owned()).collect();
        found.len() == 2 && status["sas"][0]["children"].as_array().is_some_and(|all| all.len() == 1)
    });
    let v4 = found.iter().find(|one| !one.contains(':')).unwrap();
    let v6 = found.iter().find(|one| one.contains(':')).unwrap();
    [v4.clone(), v6.clone()]
}

/// IPv6 Ready: EN.I.2.1.1.1, EN.I.2.1.1.2, EN.R.2.1.1.1, EN.R.2.1.1.2.
#[test]
fn tunnels_carry_both_ip_versions_and_leave_nothing_behind() {
    for to in ["192.0.2.2", "2001:db8::2"] {
        let (place, cable) = (TempDir::new(), TunnelTestNetwork::new());
        cable.add_inner_networks();
        let (a, b) = (cable.a.as_str(), cable.b.as_str());
        let mut gateway = cable.start_usher(&place, b, "gateway", &["serve"], &gateway_config(""));
        let mut client = cable.start_usher(&place, a, "client", &["serve"], &client_config(to, ""));
        let [v4, v6] = inner_addresses(&place, "client");
        echo_stream((a, &v4), (b, "10.2.0.1"), 2 << 20);
        echo_stream((a, &v6), (b, "2001:db8:2::1"), 2 << 20);
        // The gateway also reaches its user.
        echo_stream((b, "10.2.0.1"), (a, &v4), 100_000);
        let flow = DatagramFlow::start_flow((a, &v4), (b, "10.2.0.1"));
        for words in [&["rekey", "--children"][..], &["rekey"]] {
            for name in ["client", "gateway"] {
                let numbers = || {
                    let sa = gateway_status(&place, name)["sas"][0].clone();
                    if words.len() == 2 { sa["children"][0]["inbound"].clone() } else { sa["spis"].clone() }
                };
                let before = numbers();
                query_gateway(&place, name, words);
                wait_until("it is replaced", || numbers() != before);
                flow.wait_for_answers(50);
            }
        }
        let tally = flow.finish_flow();
        wait_for_silence([a, b]);
        assert!(tally.sent > 100 && tally.lost.is_empty(), "{to}: {tally:?}");
        // Each side has received what the other sent, except drops at full sockets, which TCP has
        // retransmitted.
        let (here, there) = (gateway_status(&place, "client"), gateway_status(&place, "gateway"));
        let carried = |of: &serde_json::Value, what: &str| of["sas"][0]["carried"][what].as_u64().unwrap();
        assert!(carried(&there, "received_octets") > 4 << 20, "{there}");
        for what in ["octets", "packets"] {
            let (sent, received) = (format!("sent_{what}"), format!("received_{what}"));
            assert!(carried(&here, &sent) >= carried(&there, &received), "{here}\n{there}");
            assert!(carried(&there, &sent) >= carried(&here, &received), "{here}\n{there}");
        }
        let child = &here["sas"][0]["children"][0];
        assert_eq!(child["encapsulated"], false, "there is no NAT");
        assert_eq!(here["sas"][0]["dns"][0], "10.2.0.53");
        assert_eq!(here["sas"][0]["domains"][0], "corp.test");
        for counter in ["esp_integrity", "esp_replayed", "esp_selectors", "esp_unknown_spi", "tun_not_sent"] {
            assert_eq!(
                (&here["counters"][counter], &there["counters"][counter]),
                (&0.into(), &0.into()),
                "{counter}"
            );
        }
        assert_eq!((client.terminate(), gateway.terminate()), (Some(0), Some(0)));
        for space in [a, b] {
            for words in
                ["link show", "rule show", "-6 rule show", "route show table all", "-6 route show table all"]
            {
                let shown = find_program("ip").args(["-n", space]).args(words.split(' ')).output().unwrap();
                let shown = String::from_utf8_lossy(&shown.stdout).into_owned();
                let left = ["esp0", "lookup 4500", "table 4500"].iter().any(|left| shown.contains(left));
                assert!(!left, "{space}: ip {words}:\n{shown}");
            }
        }
    }
}

/// Packets that a connection protects never leave in the clear, neither before the first CHILD_SA nor after the
/// last, unless the configuration permits it.
#[test]
fn without_a_child_sa_nothing_leaves_as_it_is() {
    for (word, leaves) in [("", false), ("without_child_sa = \"forward\"\n", true)] {
        let (place, cable) = (TempDir::new(), TunnelTestNetwork::new());
        cable.add_inner_networks();
        let (a, b) = (cable.a.as_str(), cable.b.as_str());
        // Routes lead to the network behind the gateway and back, in the clear.
        run_ip(&format!("-n {a} route add 10.2.0.0/16 via 192.0.2.2"));
        let there = bind_udp(b, "10.2.0.1", 7000);
        there.set_nonblocking(true).unwrap();
        let sent = std::cell::Cell::new(0_u32);
        let send = || {
            sent.set(sent.get() + 1);
            // A new socket each time: a route to the device may select another source address.
            let here = bind_udp(a, "0.0.0.0", 0);
            let _ = here.send_to(&sent.get().to_be_bytes(), "10.2.0.1:7000");
        };
        let received = |number: u32| {
            let mut buf = [0; 4];
            let mut all = std::iter::from_fn(|| there.recv(&mut buf).ok().map(|_| u32::from_be_bytes(buf)));
            all.any(|other| other >= number)
        };
        let reaches = |what: &str| {
            let first = sent.get() + 1;
            wait_until(what, || {
                send();
                received(first)
            });
        };
        let discarded = || gateway_status(&place, "client")["counters"]["esp_discarded"].as_u64().unwrap();
        let is_dropped = |what: &str| {
            let before = discarded();
            send();
            wait_until(what, || discarded() > before);
            assert!(!received(sent.get()), "{what}");
        };
        let is_as_said = |what: &str| if leaves { reaches(what) } else { is_dropped(what) };
        reaches("this test shows nothing without a way");
        let _gateway = cable.start_usher(&place, b, "gateway", &["serve"], &gateway_config(""));
        let text = client_config("192.0.2.2", word).replace("start = true\n", "");
        let _client = cable.start_usher(&place, a, "client", &["serve"], &text);
        is_as_said("before there is a CHILD_SA");
        query_gateway(&place, "client", &["connect", "site"]);
        inner_addresses(&place, "client");
        reaches("by the CHILD_SA");
        query_gateway(&place, "client", &["down", "--all"]);
        wait_until("it has ended", || {
            gateway_status(&place, "client")["sas"].as_array().is_some_and(Vec::is_empty)
        });
        is_as_said("after the last CHILD_SA");
    }
}

/// A route past the device to the peer's address must not send a user's packets in the clear, if that address
/// is also a virtual address.
#[test]
fn no_route_leads_past_the_tunnel_to_an_address_of_a_pool() {
    let (place, cable) = (TempDir::new(), TunnelTestNetwork::new());
    cable.add_inner_networks();
    let (a, b) = (cable.a.clone(), cable.b.clone());
    // The client's own address is in the gateway's pool.
    run_ip(&format!("-n {a} addr add 10.9.0.77/32 dev lo"));
    run_ip(&format!("-n {b} route add 10.9.0.77/32 via 192.0.2.1"));
    let _gateway = cable.start_usher(&place, &b, "gateway", &["serve"], &gateway_config(""));
    let text = client_config("192.0.2.2", "local_address = \"10.9.0.77\"\n");
    let _client = cable.start_usher(&place, &a, "client", &["serve"], &text);
    inner_addresses(&place, "client");
    let sa = &gateway_status(&place, "gateway")["sas"][0];
    assert!(sa["remote"].as_str().unwrap().starts_with("10.9.0.77"), "{sa}");
    let shown = find_program("ip").args(["-n", &b, "route", "show", "table", "4500"]).output().unwrap();
    let shown = String::from_utf8_lossy(&shown.stdout).into_owned();
    assert!(!shown.contains("throw 10.9.0.77"), "{shown}");
    let mut get = find_program("ip");
    let get = get.args(["-n", &b, "route", "get", "10.9.0.77"]).output().unwrap();
    let get = String::from_utf8_lossy(&get.stdout).into_owned();
    assert!(get.contains("dev esp"), "{get}");
}

/// Transport mode between two hosts, with their own addresses (RFC 4301 3.3).
#[test]
fn transport_mode_protects_what_two_hosts_say_to_each_other() {
    let (place, cable) = (TempDir::new(), TunnelTestNetwork::new());
    let (a, b) = (cable.a.as_str(), cable.b.as_str());
    let child = "[[connection.child]]\nname = \"host\"\nmode = \"transport\"\n";
    let text = |own, other, more: &str| format!("{}{more}{child}", psk_connection(own, other));
    let _gateway = cable.start_usher(&place, b, "gateway", &["serve"], &text("gw.test", "ini.test", ""));
    for (to, own) in [("192.0.2.2", "192.0.2.1"), ("2001:db8::2", "2001:db8::1")] {
        let begins = format!("remote_address = \"{to}\"\nstart = true\n");
        let mut client =
            cable.start_usher(&place, a, "client", &["serve"], &text("ini.test", "gw.test", &begins));
        client.wait_for("name=\"host\"");
        echo_stream((a, own), (b, to), 1 << 20);
        echo_stream((b, to), (a, own), 1 << 20);
        for name in ["client", "gateway"] {
            let now = gateway_status(&place, name);
            let child = &now["sas"][0]["children"][0];
            assert_eq!(
                (&child["mode"], &child["encapsulated"]),
                (&"transport".into(), &false.into()),
                "{now}"
            );
            assert!(child["carried"]["received_octets"].as_u64() > Some(2 << 20), "{now}");
        }
        assert_eq!(client.terminate(), Some(0));
    }
}

/// The remains of a killed program do not hinder the next one.
#[test]
fn a_gateway_that_was_killed_begins_again_and_leaves_nothing() {
    let (place, cable) = (TempDir::new(), TunnelTestNetwork::new());
    let data = "[data]\ntable = 77\n";
    let b = cable.b.clone();
    let rules = || {
        let shown = find_program("ip").args(["-n", &b, "rule", "show"]).output().unwrap();
        String::from_utf8_lossy(&shown.stdout).matches("lookup 77").count()
    };
    let first = cable.start_usher(&place, &b, "gateway", &["serve"], &gateway_config(data));
    assert_eq!(rules(), 1);
    first.signal("KILL");
    drop(first);
    assert_eq!(rules(), 1, "nobody has taken it away");
    std::fs::remove_file(place.path("gateway.sock")).unwrap();
    let mut second = cable.start_usher(&place, &b, "gateway", &["serve"], &gateway_config(data));
    assert_eq!(rules(), 1);
    assert_eq!((second.terminate(), rules()), (Some(0), 0));
}

/// As the ping of the third founding study: the first packet triggers its CHILD_SA, and arrives.
#[test]
fn the_first_packet_begins_its_connection_and_arrives() {
    let (place, cable) = (TempDir::new(), TunnelTestNetwork::new());
    cable.add_inner_networks();
    let (a, b) = (cable.a.as_str(), cable.b.as_str());
    let child =
        "[[connection.child]]\nname = \"net\"\nlocal = [\"10.N.0.0/16\"]\nremote = [\"10.M.0.0/16\"]\n";
    let (here, there) =
        (child.replace('N', "1").replace('M', "2"), child.replace('N', "2").replace('M', "1"));
    let second =
        "[[connection.child]]\nname = \"other\"\nlocal = [\"10.N.0.0/16\"]\nremote = [\"10.M.0.0/16\"]\n";
    let (more, less) =
        (second.replace('N', "1").replace('M', "3"), second.replace('N', "3").replace('M', "1"));
    let gateway = format!("{}{there}{less}", psk_connection("gw.test", "ini.test"));
    let _gateway = cable.start_usher(&place, b, "gateway", &["serve"], &gateway);
    run_ip(&format!("-n {b} addr add 10.3.0.1/32 dev lo"));
    let policy = "[[data.policy]]\naction = \"discard\"\nremote = [\"10.2.9.0/24\"]\n";
    let text = format!(
        "{}remote_address = \"192.0.2.2\"\non_demand = true\nretry = \"1 s\"\n{here}{more}{policy}",
        psk_connection("ini.test", "gw.test")
    );
    let mut client = cable.start_usher(&place, a, "client", &["serve"], &text);
    assert_eq!(gateway_status(&place, "client")["sas"].as_array().unwrap().len(), 0, "nothing needs it yet");
    let (ours, theirs) = (bind_udp(a, "10.1.0.1", 0), bind_udp(b, "10.2.0.1", 7000));
    let mut buf = [0; 100];
    // A discarded packet triggers no exchange.
    ours.send_to(b"nobody hears", "10.2.9.1:7000").unwrap();
    wait_until("it is dropped", || {
        gateway_status(&place, "client")["counters"]["esp_discarded"].as_u64() >= Some(1)
    });
    assert_eq!(gateway_status(&place, "client")["sas"].as_array().unwrap().len(), 0);
    for word in [&b"first"[..], b"second"] {
        ours.send_to(word, "10.2.0.1:7000").unwrap();
    }
    for word in [&b"first"[..], b"second"] {
        let (length, from) = theirs.recv_from(&mut buf).unwrap();
        assert_eq!((&buf[..length], from), (word, ours.local_addr().unwrap()));
    }
    // A packet triggers the second CHILD_SA, too.
    let third = bind_udp(b, "10.3.0.1", 7000);
    ours.send_to(b"third", "10.3.0.1:7000").unwrap();
    assert_eq!(third.recv(&mut buf).unwrap(), 5);
    let now = gateway_status(&place, "client");
    assert_eq!(now["sas"].as_array().unwrap().len(), 1);
    assert_eq!(now["sas"][0]["children"].as_array().unwrap().len(), 2);
    assert_eq!((&now["counters"]["acquired"], &now["counters"]["esp_queue_dropped"]), (&2.into(), &0.into()));
    // The IKE_SA ends, and the next packet starts it again.
    query_gateway(&place, "gateway", &["down", "--all"]);
    wait_until("it has ended", || gateway_status(&place, "client")["sas"].as_array().unwrap().is_empty());
    ours.send_to(b"again", "10.2.0.1:7000").unwrap();
    assert_eq!(theirs.recv(&mut buf).unwrap(), 5);
    assert_eq!(client.terminate(), Some(0));
}

#[test]
fn packets_that_wait_in_vain_are_dropped_and_told() {
    let (place, cable) = (TempDir::new(), TunnelTestNetwork::new());
    cable.add_inner_networks();
    let (a, b) = (cable.a.as_str(), cable.b.as_str());
    let child =
        "[[connection.child]]\nname = \"net\"\nlocal = [\"10.1.0.0/16\"]\nremote = [\"10.2.0.0/16\"]\n";
    let wrong = format!("{}{child}", psk_connection("gw.test", "ini.test"))
        .replace("a shared secret", "another secret");
    let _gateway = cable.start_usher(&place, b, "gateway", &["serve"], &wrong);
    let more = "remote_address = \"192.0.2.2\"\non_demand = true\nretry = \"1 h\"\n";
    let text = format!("{}{more}{child}", psk_connection("ini.test", "gw.test"));
    let mut client = cable.start_usher(&place, a, "client", &["serve"], &text);
    let ours = bind_udp(a, "10.1.0.1", 0);
    ours.send_to(b"in vain", "10.2.0.1:7000").unwrap();
    client.wait_for("no CHILD_SA for queued packets");
    wait_until("it waits no more", || gateway_status(&place, "client")["counters"]["esp_queue_dropped"] == 1);
    // After a rejection, packets do not each start another attempt.
    for _ in 0..20 {
        ours.send_to(b"in vain", "10.2.0.1:7000").unwrap();
    }
    wait_until("they wait no more", || {
        gateway_status(&place, "client")["counters"]["esp_queue_dropped"] == 21
    });
    let now = gateway_status(&place, "client");
    assert_eq!(now["counters"]["initiated"], 1, "{now}");
}

/// Two programs cannot share port 4500 by accident, and the program reports a device that it cannot create.
#[test]
fn what_stands_in_the_way_is_said() {
    let (place, cable) = (TempDir::new(), TunnelTestNetwork::new());
    let _first = cable.start_usher(&place, &cable.b, "gateway", &["serve"], &gateway_config(""));
    let mut second = cable.program_in(&cable.b, USHER);
    place.write_private("second.toml", "[listen]\nport = 501\ncontrol = \"second.sock\"\n");
    second.args(["ike", "serve", "--config", "second.toml"]).current_dir(place.path(""));
    let said = second.output().unwrap();
    let text = [said.stdout, said.stderr].concat();
    let text = String::from_utf8_lossy(&text);
    assert!(said.status.code() == Some(1) && text.contains("cannot listen on 0.0.0.0:4500"), "{text}");
    place.write_private(
        "third.toml",
        "[listen]\nport = 501\nnat_port = 4501\ncontrol = \"third.sock\"\n[data]\ninterface = \"lo\"\n",
    );
    let mut third = cable.program_in(&cable.b, USHER);
    third.args(["ike", "serve", "--config", "third.toml"]).current_dir(place.path(""));
    let said = third.output().unwrap();
    let text = [said.stdout, said.stderr].concat();
    let text = String::from_utf8_lossy(&text);
    assert!(said.status.code() == Some(1) && text.contains("cannot create TUN device \"lo\""), "{text}");
}

#[test]
fn the_aaa_server_is_told_what_a_session_has_carried() {
    let (place, cable) = (TempDir::new(), TunnelTestNetwork::new());
    cable.add_inner_networks();
    let (a, b) = (cable.a.as_str(), cable.b.as_str());
    let aaa = format!(
        "state_dir = \"{}\"\n[listen]\nauth = [\"127.0.0.1:1812\"]\nacct = [\"127.0.0.1:1813\"]\n[methods]\norder = [\"eap-mschapv2\"]\n\
         [[client]]\nname = \"gateway\"\nprefix = \"127.0.0.0/8\"\nsecret = \"{SECRET}\"\n\
         [users]\nstore = \"sqlite\"\n[[user]]\nname = \"ann\"\npassword = \"a long password\"\n",
        place.path_text("state")
    );
    place.write_private("aaa.toml", &aaa);
    let mut command = cable.program_in(b, USHER);
    command.args(["aaa", "serve", "--config", "aaa.toml"]);
    let server = place.start_program("aaa", &mut command, "started");
    let asking = format!(
        "[aaa]\nnas_identifier = \"gw.test\"\naccounting = true\n[[aaa.radius]]\naddress = \"127.0.0.1:1812\"\nsecret = \"{SECRET}\"\n"
    );
    let text = gateway_config(&asking)
        .replace("remote_id = \"ini.test\"\n", "")
        .replace("remote_auth = \"psk\"", "remote_auth = \"eap\"");
    let mut gateway = cable.start_usher(&place, b, "gateway", &["serve"], &text);
    let eap = "eap_identity = \"ann\"\neap_methods = [\"mschapv2\"]\npassword = \"a long password\"\n";
    // The gateway sends the client's identity to the AAA server.
    let text = client_config("192.0.2.2", eap)
        .replace("local_auth = \"psk\"", "local_auth = \"eap\"")
        .replace("local_id = \"ini.test\"", "local_id = \"ann\"");
    let mut client = cable.start_usher(&place, a, "client", &["serve"], &text);
    let [v4, _] = inner_addresses(&place, "client");
    echo_stream((a, &v4), (b, "10.2.0.1"), 1 << 20);
    // Octets of a rekeyed CHILD_SA count, too.
    query_gateway(&place, "gateway", &["rekey", "--children"]);
    wait_until("it is replaced", || {
        let carried =
            &gateway_status(&place, "gateway")["sas"][0]["children"][0]["carried"]["received_packets"];
        *carried == 0
    });
    echo_stream((a, &v4), (b, "10.2.0.1"), 1 << 20);
    wait_for_silence([a, b]);
    let carried = gateway_status(&place, "gateway")["sas"][0]["carried"].clone();
    assert_eq!(client.terminate(), Some(0));
    gateway.wait_for("the peer ended it");
    let database = rusqlite::Connection::open(place.path("state/usher.db")).unwrap();
    let mut kept = (0, 0);
    wait_until("the record of its end is kept", || {
        let row = database.query_row(
            "SELECT acctinputoctets, acctoutputoctets FROM radacct WHERE acctstoptime IS NOT NULL",
            [],
            |row| Ok((row.get::<_, i64>(0)?, row.get::<_, i64>(1)?)),
        );
        row.map(|row| kept = row).is_ok()
    });
    let of = |what: &str| carried[what].as_i64().unwrap();
    assert_eq!(kept, (of("received_octets"), of("sent_octets")), "{carried}");
    assert!(kept.0 > 2 << 20);
    drop(server);
}
