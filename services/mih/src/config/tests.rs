use super::*;
use crate::access::AccessRight;
use usher_config::EmptyConfigEnvironment;
use usher_core::Duration;
use usher_mih::{LinkType, PORT};

fn expect_faults(text: &str) -> Vec<String> {
    let faults = parse("mih.toml", text, &EmptyConfigEnvironment).expect_err(text).faults;
    faults.iter().map(|f| format!("{}:{}: {}", f.line, f.column, f.message)).collect()
}

#[test]
fn without_settings_loopback_alone_is_served_and_may_not_act() {
    let loaded = parse("mih.toml", "", &EmptyConfigEnvironment).unwrap();
    let config = loaded.service_config(MihfId::new("host").unwrap());
    let all = [&loaded.file.listen.udp, &loaded.file.listen.tcp];
    assert!(all.iter().all(|listen| listen.len() == 2));
    assert!(all.into_iter().flatten().all(|address| address.ip().is_loopback() && address.port() == PORT));
    for (address, heard) in [("127.0.0.2", true), ("::1", true), ("192.0.2.1", false)] {
        let rights = config.access.rights_of(address.parse().unwrap());
        assert_eq!(rights.is_some(), heard, "{address}");
        assert!(!rights.is_some_and(|rights| rights.contains(AccessRight::Actions)));
    }
    // RFC 5677, 6.3: two retransmissions, the first after 3 s; and 6, acknowledgements by what carries a message.
    let timing = config.mih.timing;
    assert_eq!((timing.retransmission, timing.retransmissions), (Duration::from_secs(3), 2));
    assert!(config.mih.by_transport && config.mih.user_answers_subscriptions);
    assert_eq!(config.refresh, Duration::from_secs(120), "6.4: once in two minutes");
}

#[test]
fn a_whole_file_is_read() {
    let text = "id = \"mn1@example.org\"\nevents = [\"link-up\"]\n\
        [listen]\nudp = [\"[::]:4551\", \"0.0.0.0:4551\"]\ntcp = [\"0.0.0.0:4551\"]\n\
        [[allow]]\nprefix = \"192.0.2.0/24\"\nrights = [\"events\", \"actions\"]\n\
        [[interface]]\nname = \"wlan0\"\nlink_type = \"802.11\"\naddress = \"02:00:00:00:00:01\"\npoa = \"02:00:00:00:00:fe\"\n\
        allow_actions = true\nwatch = { below = -75, within = \"2 s\" }\n\
        [[interface]]\nname = \"eth0\"\n\
        [[peer]]\nid = \"pos1.example.org\"\naddress = \"192.0.2.7\"\ntransport = \"tcp\"\nnetworks = [\"198.51.100.0/24\"]\nregister = true\nsubscribe = [\"link-down\"]\n\
        [[peer]]\nid = \"pos2.example.org\"\naddress = \"2001:db8::7\"\n\
        [timers]\nretransmission = \"0.2 s\"\nresponse = \"1 s\"\nunanswered = \"abort\"\n\
        [limits]\nconnections = 9\nmessage = \"1232 B\"\n[log]\nlevel = \"debug\"\n";
    let loaded = parse("mih.toml", text, &EmptyConfigEnvironment).unwrap();
    let id = loaded.id.clone().unwrap();
    let config = loaded.service_config(id.clone());
    assert_eq!((id.to_string().as_str(), config.events), ("mn1@example.org", EventList::LINK_UP));
    let rights = config.access.rights_of("192.0.2.200".parse().unwrap()).unwrap();
    assert!(rights.contains(AccessRight::Actions) && !rights.contains(AccessRight::Parameters));
    let wlan = &config.interfaces[0];
    assert_eq!(
        (wlan.technology, wlan.poa, wlan.allow_actions),
        (Some(LinkType::Ieee80211), Some([2, 0, 0, 0, 0, 0xfe]), true)
    );
    let watch = wlan.watch.as_ref().unwrap();
    assert_eq!((watch.below, watch.hysteresis, watch.time_to_loss), (-75.0, 3.0, Duration::from_secs(2)));
    assert_eq!(config.interfaces[1], InterfaceConfig::with_name("eth0"));
    // Sockets are in the order of listen.udp, and each peer is sent to from one of its family.
    assert_eq!(config.mih.locals, ["::", "0.0.0.0"].map(|ip| ip.parse::<IpAddr>().unwrap()));
    let [one, two] = &config.peers[..] else { panic!() };
    assert_eq!((one.peer.route.local, one.register, one.subscribe), (None, true, EventList::LINK_DOWN));
    assert_eq!(two.peer.route.local, Some("::".parse().unwrap()));
    assert_eq!(one.peer.route.remote, "192.0.2.7:4551".parse().unwrap());
    let proofs = config.mih.proofs.unwrap();
    assert!(
        proofs.is_allowed_address("198.51.100.9".parse().unwrap())
            && !proofs.is_allowed_address("192.0.2.7".parse().unwrap())
    );
    assert_eq!((proofs.claims, proofs.address_proofs_per_network), (1024, 16));
    assert_eq!(config.mih.timing.unanswered, usher_mih::ResponseTimeoutPolicy::Abort);
    assert_eq!((config.limits.connections, config.mih.max_message), (9, 1232));
}

#[test]
fn every_fault_has_its_place() {
    let peer = "[[peer]]\nid = \"pos1\"\naddress = \"192.0.2.7\"\n";
    let open = "[listen]\nudp = [\"0.0.0.0:4551\"]\n";
    assert!(expect_faults("id = \"a b\"\n")[0].starts_with("1:6: \"a b\" is not an MIHF identifier"));
    assert!(expect_faults("idd = \"a\"\n")[0].contains("did you mean \"id\""));
    assert!(
        expect_faults(peer)[0]
            .starts_with("3:11: [listen] has only loopback addresses, which cannot reach 192.0.2.7")
    );
    assert!(expect_faults(&format!("{open}{peer}{peer}"))[0].starts_with("7:6: pos1 is listed twice"));
    assert!(
        expect_faults(&format!("id = \"pos1\"\n{open}{peer}"))[0]
            .starts_with("5:6: pos1 is the id of this function itself")
    );
    let six = format!("{open}tcp = []\n[[peer]]\nid = \"x\"\naddress = \"2001:db8::1\"\n");
    assert!(expect_faults(&six)[0].starts_with("6:11: [listen] needs an address of the same family"));
    let interface = |rest: &str| format!("[[interface]]\nname = \"eth0\"\n{rest}");
    assert!(
        expect_faults(&interface("poa = \"02:00\"\n"))[0].starts_with("3:7: \"02:00\" is not a MAC address")
    );
    assert!(
        expect_faults(&interface("link_type = \"wifi\"\n"))[0]
            .starts_with("3:13: interface[0].link_type: \"wifi\" is not known")
    );
    assert!(
        expect_faults(&interface("watch = { below = 1, interval = \"1 ms\" }\n"))[0]
            .contains("give at least 10 ms")
    );
    assert!(expect_faults(&(interface("") + &interface("")))[0].starts_with("4:8: eth0 is listed twice"));
    assert!(expect_faults("[[interface]]\nname = \"a/b\"\n")[0].contains("not an interface name"));
    assert!(expect_faults("[limits]\nmessage = \"100 B\"\n")[0].starts_with("2:11: give 548 B to 65507 B"));
    assert!(expect_faults("[timers]\nretry = \"1 ms\"\n")[0].starts_with("2:9: give at least 100 ms"));
    assert!(
        expect_faults("events = [\"link-up\", \"link-dwn\"]\n")[0]
            .starts_with("1:22: events[1]: \"link-dwn\" is not known here; did you mean \"link-down\"")
    );
    let twice = "[[allow]]\nprefix = \"192.0.2.0/24\"\n[[allow]]\nprefix = \"192.0.2.9/24\"\n";
    assert!(expect_faults(twice)[0].starts_with("4:10: 192.0.2.9/24 is also the prefix of allow[0]"));
    assert!(
        expect_faults("[listen]\nudp = [\"127.0.0.1:4551\", \"127.0.0.1:4551\"]\n")[0].starts_with("2:26: ")
    );
}

#[test]
fn identifiers_are_names_of_hosts_or_of_users_there() {
    for right in ["pos1", "pos1.example.org", "mn-1@example.org", "a.b+c@x"] {
        assert!(parse_identifier(right).is_ok(), "{right}");
    }
    let long = "a.".repeat(127);
    for wrong in ["", "a b", "@x", "a@", "a..b", "-a", "a_b", "a@b@c d", "é", long.as_str()] {
        assert!(parse_identifier(wrong).is_err(), "{wrong}");
    }
}

#[test]
fn mac_addresses_are_six_pairs() {
    assert_eq!(parse_mac("02:00:00:aB:00:fe"), Some([2, 0, 0, 0xab, 0, 0xfe]));
    for wrong in
        ["", "02:00:00:00:00", "02:00:00:00:00:00:00", "2:0:0:0:0:0", "02:00:00:00:00:0g", "020000000000"]
    {
        assert_eq!(parse_mac(wrong), None, "{wrong}");
    }
}

#[test]
fn the_published_schema_is_this_one() {
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/mih.schema.json");
    let schema = json_schema();
    if std::env::var_os("USHER_WRITE_SCHEMA").is_some() {
        std::fs::write(&path, &schema).unwrap();
    }
    assert!(
        std::fs::read_to_string(&path).unwrap_or_default() == schema,
        "docs/mih.schema.json differs from the types; run this test with USHER_WRITE_SCHEMA=1"
    );
}

#[test]
fn a_point_of_service_needs_its_stations_and_neighbour_as_peers() {
    let file = |station: &str, neighbour: &str| {
        format!(
            "[listen]\nudp = [\"0.0.0.0:4551\"]\n\
             [[peer]]\nid = \"mn\"\naddress = \"192.0.2.7\"\n[[peer]]\nid = \"other\"\naddress = \"192.0.2.8\"\n\
             [point_of_service]\npoa = \"02:00:00:00:00:01\"\n\
             [[point_of_service.station]]\nid = \"{station}\"\naddress = \"02:00:00:00:00:09\"\nlink_type = \"802.11\"\n\
             [point_of_service.neighbour]\nid = \"{neighbour}\"\npoa = \"02:00:00:00:00:02\"\nlink_type = \"802.16\"\n"
        )
    };
    assert!(parse("mih.toml", &file("mn", "other"), &EmptyConfigEnvironment).is_ok());
    let nobody = |place: &str| alloc::vec![format!("{place}: there is no [[peer]] with id = \"nobody\"")];
    assert_eq!(expect_faults(&file("nobody", "other")), nobody("12:6"));
    assert_eq!(expect_faults(&file("mn", "nobody")), nobody("16:6"));
}
