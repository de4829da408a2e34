#![cfg(feature = "tls")]

use super::*;
use std::path::PathBuf;
use usher_config::EmptyConfigEnvironment;
use usher_core::{Duration, WallTime};
use usher_ike::machine::{ChildlessPolicy, LocalAuth, RemoteAuth};

fn read_config(text: &str) -> Result<LoadedGatewayConfig, ConfigErrors> {
    parse("etc/ike.toml", text, &EmptyConfigEnvironment, &SharedWallClock::from_time(WallTime::UNIX_EPOCH))
}

fn config_errors(text: &str) -> Vec<String> {
    let faults = read_config(text).expect_err(text).faults;
    faults.iter().map(|f| format!("{}:{}: {}", f.line, f.column, f.message)).collect()
}

const PSK: &str = "[[connection]]\nname = \"a\"\nlocal_id = \"gw.test\"\nlocal_auth = \"psk\"\nremote_auth = \"psk\"\nsecret = \"sixteen octets!!\"\n";

#[test]
fn without_settings_it_listens_everywhere_and_lets_nobody_in() {
    let loaded = read_config("").unwrap();
    assert_eq!((loaded.file.listen.port, loaded.file.listen.nat_port), (500, 4500));
    assert_eq!(loaded.file.listen.addresses.len(), 2);
    assert!(loaded.config.peers.is_empty() && loaded.config.subscribers.aaa.is_none());
    assert_eq!(loaded.config.endpoint, usher_ike::machine::IkeEndpointConfig::default());
}

#[test]
fn a_whole_file_is_read() {
    let text = format!(
        "key_log = \"keys\"\n[listen]\naddresses = [\"127.0.0.1\"]\nport = 1500\nnat_port = 14500\n{PSK}remote_id = \"ini.test\"\n\
         childless = \"force\"\nmobike = false\nrekey_after = \"2 h\"\nliveness = \"0 s\"\nunique = false\npools = [\"p\"]\n\
         dns = [\"10.0.0.1\"]\nproposals = [\"aes128-sha256-x25519\"]\nremote_address = \"192.0.2.9\"\nremote_port = 501\nretry = \"3 s\"\n\
         [[connection.child]]\nname = \"net\"\nlocal = [\"10.2.0.0/16\", \"2001:db8::/32\"]\nmode = \"transport\"\nrekey_after = \"0 s\"\n\
         rekey_bytes = \"20 kB\"\nrekey_packets = 5\n\
         [[pool]]\nname = \"p\"\nranges = [\"10.9.0.0/24\", \"10.9.1.0/24\"]\n\
         [aaa]\nnas_identifier = \"gw\"\naccounting = true\ninterim = \"5 min\"\n[[aaa.radius]]\naddress = \"192.0.2.2:1812\"\nsecret = \"s\"\n\
         [aaa.dynamic]\nlisten = \"127.0.0.1:3799\"\n[limits]\nsas = 9\nhalf_open = 8\ncookies_from = 0\nlogin = \"7 s\"\n\
         failed_proofs_per_minute = 7\nrequests_per_minute = 80\ncreates_per_minute = 0\n"
    );
    let LoadedGatewayConfig { file, config, .. } = read_config(&text).unwrap();
    assert_eq!(file.key_log, Some(PathBuf::from("keys")));
    let endpoint = config.endpoint;
    assert_eq!((endpoint.sas, endpoint.half_open, endpoint.cookies_from), (9, 8, 0));
    let rates =
        (endpoint.failed_proofs_per_minute, endpoint.requests_per_minute, endpoint.creates_per_minute);
    assert_eq!(rates, (7, 80, 0));
    assert!(endpoint.export_keys && endpoint.proof_timeout == Duration::from_secs(7));
    let peer = &config.peers[0];
    assert_eq!(peer.remote.map(|remote| remote.to_string()).as_deref(), Some("192.0.2.9:501"));
    assert_eq!((peer.local.to_string().as_str(), peer.retry), ("127.0.0.1:14500", Duration::from_secs(3)));
    let connection = &peer.connection;
    assert!(matches!(
        (&connection.local_auth, &connection.remote_auth),
        (LocalAuth::Psk(_), RemoteAuth::Psk(_))
    ));
    assert_eq!(
        (connection.childless, connection.mobike, connection.unique),
        (ChildlessPolicy::Force, false, false)
    );
    assert_eq!((connection.liveness, connection.address), (None, true));
    assert_eq!(connection.rekey_after, Some(Duration::from_secs(7200)));
    let child = &connection.children[0];
    assert_eq!((child.local.as_ref().unwrap().len(), &child.remote, child.rekey_after), (2, &None, None));
    let volume = file.connection[0].child[0].volume_lifetime();
    assert_eq!((volume.soft_octets, volume.hard_octets), (Some(20_000), Some(22_000)));
    assert_eq!((volume.soft_packets, volume.hard_packets), (Some(5), Some(6)));
    assert_eq!(config.subscribers.pools[0].ranges.len(), 2);
    let aaa = config.subscribers.aaa.unwrap();
    assert!(aaa.accounting && aaa.interim == Some(Duration::from_secs(300)));
    let usher_access::AaaConfig::Radius(radius) = aaa.servers else { panic!("it is RADIUS") };
    let ports: Vec<u16> = radius.client.servers.iter().map(|server| server.address.port()).collect();
    assert_eq!((ports, radius.dynamic.is_some()), (vec![1812, 1813], true));
}

#[test]
fn every_fault_has_its_place_and_says_what_to_do() {
    let psk = |more: &str| config_errors(&format!("{PSK}{more}\n"));
    assert!(
        psk("pools = [\"inn\"]\n[[pool]]\nname = \"inner\"\nranges = [\"10.0.0.0/24\"]")[0]
            .starts_with("7:10: there is no [[pool]] \"inn\"; did you mean \"inner\"?")
    );
    assert!(
        psk("proposals = [\"aes128-sha257-x25519\"]")[0]
            .starts_with("7:14: \"aes128-sha257-x25519\": \"sha257\" is not an algorithm")
    );
    assert!(psk("start = true")[0].starts_with("7:9: this side can initiate only with remote_address"));
    assert!(
        psk("remote_address = \"2001:db8::1\"\n[listen]\naddresses = [\"0.0.0.0\"]")[0]
            .contains("none of the family of 2001:db8::1")
    );
    assert!(psk("remote_id = \"C=DE, CN=x\"")[0].contains("looks like a distinguished name"));
    let lives = |more: &str| {
        let loaded = read_config(&format!("{PSK}{more}\n")).unwrap();
        loaded.config.peers[0].connection.rekey_after.map(Duration::as_secs)
    };
    assert_eq!(lives("lifetime = \"100 s\""), Some(90), "before it ends");
    assert_eq!((lives("lifetime = \"9 h\""), lives("")), (Some(4 * 3600), Some(4 * 3600)));
    assert_eq!(lives("rekey_after = \"0 s\"\nlifetime = \"100 s\""), None);
    assert!(psk("rekey_after = \"100 s\"\nlifetime = \"100 s\"")[0].contains("longer than rekey_after"));
    assert!(psk("from = []")[0].contains("the list is empty"));
    assert!(psk("childless = \"never\"")[0].contains("needs a [[connection.child]]"));
    assert!(psk("mobik = true")[0].contains("did you mean \"mobike\"?"));
    let replaced = |from: &str, to: &str| config_errors(&PSK.replace(from, to));
    assert!(replaced("secret = \"sixteen octets!!\"\n", "")[0].starts_with("1:1: \"secret\" is missing"));
    assert!(replaced("sixteen octets!!", "short")[0].contains("fewer than 6 characters"));
    assert!(read_config(&PSK.replace("sixteen octets!!", "sixsix")).is_ok(), "six are enough");
    assert!(replaced("remote_auth = \"psk\"", "remote_auth = \"eap\"")[0].contains("there is no [aaa]"));
    assert!(
        replaced("remote_auth = \"psk\"", "remote_auth = \"eap-local\"")[0].contains("there is no [eap]")
    );
    assert!(
        replaced("local_auth = \"psk\"", "local_auth = \"eap\"")
            .iter()
            .any(|f| f.contains("\"eap_identity\" is missing"))
    );
    assert!(
        replaced("local_auth = \"psk\"", "local_auth = \"certificate\"")[0]
            .contains("\"certificate\" is missing")
    );
    assert!(replaced("local_id = \"gw.test\"\n", "")[0].contains("\"local_id\" is missing"));
    assert!(config_errors(&[PSK, PSK].concat())[0].contains("there are two connections \"a\""));
    let pool = |ranges: &str| config_errors(&format!("[[pool]]\nname = \"p\"\nranges = [{ranges}]\n"));
    assert!(pool("\"10.0.0.0/24\", \"10.0.0.9-10.0.0.10\"")[0].contains("overlaps another range"));
    assert!(pool("\"2001:db8::/40/56\"")[0].contains("assigns prefixes"));
    assert!(pool("\"ten\"")[0].starts_with("3:11: \"ten\" is not a range"));
    let aaa = |text: &str| config_errors(&format!("[aaa]\n{text}\n"));
    assert!(aaa("nas_identifier = \"gw\"")[0].contains("no server"));
    assert!(
        aaa("[[aaa.radius]]\naddress = \"192.0.2.1:1812\"\nsecret = \"s\"")[0]
            .contains("\"nas_identifier\" is missing")
    );
    assert!(
        aaa("nas_identifier = \"gw\"\n[[aaa.radius]]\naddress = \"192.0.2.1:2083\"\ntransport = \"tls\"")[0]
            .contains("[aaa.tls] is missing")
    );
    assert!(
        config_errors("[limits]\npacket = 100\n")[0].starts_with("2:10: a packet needs at least 576 octets")
    );
    for few in [1, 59] {
        let text = format!("[limits]\nrequests_per_minute = {few}\n");
        assert!(config_errors(&text)[0].starts_with("2:23: fewer than 60 requests per minute"), "{few}");
    }
    assert!(read_config("[limits]\nrequests_per_minute = 60\n").is_ok());
    assert!(read_config("[limits]\nrequests_per_minute = 0\n").is_ok());
    let small = config_errors("[limits]\nfragments = 524287\n");
    assert!(
        small[0]
            .starts_with("2:13: fragments is too small for messages of 32768 octets; write at least 524288"),
        "{small:?}"
    );
    assert_eq!(read_config("[limits]\nfragments = 524288\n").unwrap().config.endpoint.fragments, 1 << 19);
    assert!(
        config_errors("[eap]\nmethods = [\"tls\"]\n")[0].contains("EAP-TLS needs certificate, key and ca")
    );
}

#[test]
fn diameter_servers_are_asked_by_their_realm() {
    let text = "[aaa]\naccounting = true\n[aaa.diameter]\nidentity = \"gw.example.org\"\nrealm = \"example.org\"\nstateful = true\n\
                [[aaa.diameter.peer]]\nidentity = \"aaa.example.org\"\naddress = \"192.0.2.2:3868\"\n";
    let aaa = read_config(text).unwrap().config.subscribers.aaa.unwrap();
    let usher_access::AaaConfig::Diameter(diameter) = aaa.servers else { panic!("it is Diameter") };
    assert_eq!(
        (diameter.realm.as_str(), diameter.node.peers.len(), diameter.stateful),
        ("example.org", 1, true)
    );
    assert_eq!(aaa.nas.identifier, "gw.example.org");
    assert!(config_errors(&format!("{text}[aaa.dynamic]\n"))[0].contains("[aaa.dynamic] is for RADIUS only"));
}

#[test]
fn what_carries_packets_is_checked() {
    let data = |text: &str| config_errors(&format!("[data]\n{text}\n"));
    assert!(data("mode = \"tap\"")[0].starts_with("2:8: "));
    assert!(data("mtu = 100")[0].starts_with("2:7: mtu must be from 576 to 65000 octets"));
    assert!(data("interface = \"a device of many letters\"")[0].contains("1 to 15 characters"));
    assert!(data("interface = \"a/b\"")[0].contains("without slash"));
    assert!(data("table = 254")[0].contains("except the system's 253 to 255"));
    assert!(
        data("[[data.policy]]\naction = \"discard\"\nport = 53")[0].contains("write protocol = 6 for TCP")
    );
    let child = "[[connection.child]]\nname = \"net\"\n";
    let transport = |carry: &str| format!("[data]\nmode = \"{carry}\"\n{PSK}{child}mode = \"transport\"\n");
    assert!(config_errors(&transport("kernel"))[0].contains("supports only tunnel mode"));
    assert!(read_config(&transport("tun")).is_ok());
    let demand = |more: &str| config_errors(&format!("{PSK}on_demand = true\n{more}"));
    assert!(demand(child)[0].contains("only with remote_address"));
    assert!(demand("remote_address = \"192.0.2.9\"\n")[0].contains("no packet can initiate it"));
    assert!(
        demand(&format!("remote_address = \"192.0.2.9\"\naddress = true\n{child}"))[0]
            .contains("write start = true")
    );
    let loaded = read_config("[data]\nudp_encapsulation = true\nqueued_packets = 3\n").unwrap();
    assert!(loaded.config.endpoint.encapsulate && !loaded.config.subscribers.is_metered);
}

#[test]
fn policies_are_what_is_said_and_then_what_connections_need() {
    let text = format!(
        "{PSK}on_demand = true\nremote_address = \"192.0.2.9\"\n[[connection.child]]\nname = \"net\"\nlocal = [\"10.1.0.0/16\"]\n\
         remote = [\"10.2.0.0/16\"]\n[[connection.child]]\nname = \"hosts\"\n\
         [[data.policy]]\naction = \"forward\"\nremote = [\"10.2.0.53\"]\nprotocol = 17\nport = 53\n\
         [[data.policy]]\naction = \"discard\"\nlocal = [\"10.1.9.0/24\"]\n"
    );
    let file = read_config(&text).unwrap().file;
    let all = build_policies(&file.data, &file.connection, &|name| {
        (name == "a").then(|| "192.0.2.1".parse().unwrap())
    });
    let shown: Vec<String> = all
        .iter()
        .map(|(policy, child)| {
            let list = |of: &[usher_esp::TrafficSelector]| {
                of.iter().map(ToString::to_string).collect::<Vec<_>>().join(" ")
            };
            let child = child.as_ref().map_or("", |(_, child)| child);
            format!("{:?} {} === {} {child}", policy.action, list(&policy.local), list(&policy.remote))
        })
        .collect();
    let want = [
        "Forward 0.0.0.0/0[17] ::/0[17] === 10.2.0.53[17/53] ",
        "Discard 10.1.9.0/24 === 0.0.0.0/0 ::/0 ",
        "Protect 10.1.0.0/16 === 10.2.0.0/16 net",
        "Protect 192.0.2.1 === 192.0.2.9 hosts",
    ];
    assert_eq!(shown, want);
}

#[test]
fn a_pool_of_both_families_is_refused() {
    let said = config_errors("[[pool]]\nname = \"p\"\nranges = [\"10.9.0.0/24\", \"2001:db8:9::/112\"]\n");
    assert!(said.iter().any(|fault| fault.contains("a pool has addresses of one family")), "{said:?}");
}

#[test]
fn the_published_schema_is_this_one() {
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/ike.schema.json");
    let schema = json_schema();
    if std::env::var_os("USHER_WRITE_SCHEMA").is_some() {
        std::fs::write(&path, &schema).unwrap();
    }
    assert!(
        std::fs::read_to_string(&path).unwrap_or_default() == schema,
        "docs/ike.schema.json is not what the types say; run this test with USHER_WRITE_SCHEMA=1"
    );
}

#[test]
fn what_one_thread_alone_knows_is_not_for_several() {
    let text = |shards: u8, more: &str| format!("[listen]\nshards = {shards}\n{PSK}{more}");
    assert_eq!(read_config(&text(4, "")).unwrap().file.listen.shards, 4);
    assert_eq!(read_config(&text(1, "[limits]\ntickets = \"1 h\"\n")).unwrap().file.listen.shards, 1);
    for shards in [0, 65] {
        let said = config_errors(&text(shards, ""));
        assert!(said.len() == 1 && said[0].starts_with("2:") && said[0].contains("1 to 64"), "{said:?}");
    }
    let aaa =
        "[aaa]\nnas_identifier = \"gw\"\n[[aaa.radius]]\naddress = \"192.0.2.2:1812\"\nsecret = \"s\"\n";
    for (more, what) in
        [("[limits]\ntickets = \"1 h\"\n".to_owned(), "ticket"), (format!("{aaa}[aaa.dynamic]\n"), "session")]
    {
        let said = config_errors(&text(2, &more));
        assert!(said.len() == 1 && said[0].contains(what) && said[0].contains("shards = 1"), "{said:?}");
    }
    assert_eq!(read_config(&text(2, aaa)).unwrap().file.listen.shards, 2);
}

#[test]
fn what_revocation_needs_is_said() {
    let said = config_errors(&format!(
        "{PSK}[revocation]\ncrl_url = [\"http://a/b\", \"https://a/b\"]\ncrl_interval = \"0 s\"\nocsp_url = \"http://a/\"\n"
    ));
    let expected = ["8:", "9:", "10:", "7:"];
    assert_eq!(said.len(), 4, "{said:?}");
    for line in expected {
        assert!(said.iter().any(|one| one.starts_with(line)), "{line} {said:?}");
    }
    assert!(
        said.iter().any(|one| one.contains("not an http:// URL") && one.contains("https://a/b")),
        "{said:?}"
    );
    assert!(said.iter().any(|one| one.contains("remote_auth = \"certificate\"")), "{said:?}");
    let table = read_config("").unwrap().file.revocation;
    assert!(!table.is_used() && table.crl_interval.get() == Duration::from_secs(3600));
}

/// With EAP-only authentication, only the certificate of the EAP server identifies the peer.
#[test]
fn with_eap_alone_the_server_has_a_name() {
    use super::super::tests::CertificateFiles;
    let read = |more: &str| {
        let text = format!(
            "[[connection]]\nname = \"a\"\nlocal_id = \"ann\"\nlocal_auth = \"eap\"\nremote_auth = \"eap-only\"\nca = \"ca.pem\"\n\
             certificate = \"user.pem\"\nkey = \"user.key\"\neap_identity = \"ann\"\nremote_address = \"192.0.2.9\"\n{more}\n"
        );
        let clock = SharedWallClock::from_time(WallTime::UNIX_EPOCH);
        parse("ike.toml", &text, &CertificateFiles, &clock).map(drop).map_err(|faults| faults.to_string())
    };
    let tls = "eap_methods = [\"tls\"]\n";
    for more in ["", "remote_id = \"192.0.2.9\"", "remote_id = \"ann@example.org\""] {
        let said = read(&format!("{tls}{more}")).unwrap_err();
        assert!(said.contains("\"eap_server_name\" is missing"), "{more}: {said}");
    }
    assert_eq!(read(&format!("{tls}remote_id = \"gw.test\"")), Ok(()));
    assert_eq!(read(&format!("{tls}eap_server_name = \"aaa.test\"")), Ok(()));
    let said = read("eap_methods = [\"mschapv2\"]\npassword = \"secret\"\neap_server_name = \"aaa.test\"")
        .unwrap_err();
    assert!(said.contains("no method of eap_methods uses a certificate"), "{said}");
}

#[test]
fn what_becomes_of_traffic_without_a_child_sa_is_said() {
    let word = |text: &str| read_config(text).unwrap().file.connection[0].without_child_sa;
    assert_eq!(word(PSK), PolicyActionName::Discard, "nothing leaves as it is unless somebody says so");
    assert_eq!(word(&format!("{PSK}without_child_sa = \"forward\"\n")), PolicyActionName::Forward);
    let said = config_errors(&format!(
        "{PSK}on_demand = true\nwithout_child_sa = \"forward\"\nremote_address = \"192.0.2.9\"\n[[connection.child]]\nname = \"n\"\n"
    ));
    assert!(said.len() == 1 && said[0].starts_with("8:20: with on_demand = true"), "{said:?}");
}

#[test]
fn users_whose_names_are_one_identity_are_a_fault() {
    let text = "[eap]\nmethods = [\"mschapv2\"]\n[[user]]\nname = \"ann@gw.test\"\npassword = \"a long password\"\n\
                [[user]]\nname = \"ann@GW.test\"\npassword = \"a long password\"\n";
    let said = config_errors(text);
    assert!(said.iter().any(|fault| fault.contains("\"ann@gw.test\" is the same identity")), "{said:?}");
}

#[test]
fn guesses_are_held_back_unless_somebody_says_otherwise() {
    let limit = |more: &str| {
        let text = format!("[eap]\nmethods = [\"mschapv2\"]\n{more}");
        read_config(&text)
            .unwrap()
            .config
            .subscribers
            .users
            .failures
            .map(|limit| (limit.count, limit.window, limit.lockout_time))
    };
    let minute = Duration::from_secs(60);
    assert_eq!(limit(""), Some((10, minute, minute)));
    assert_eq!(limit("failures = 0\n"), None);
    assert_eq!(limit("failures = 3\nlockout_time = \"5 min\"\n"), Some((3, minute, minute * 5)));
}

#[test]
fn what_no_message_holds_is_a_fault() {
    let list = |n: usize, one: &dyn Fn(usize) -> String| {
        let all: Vec<String> = (0..n).map(|n| format!("\"{}\"", one(n))).collect();
        format!("[{}]", all.join(", "))
    };
    let network = |n: usize| format!("10.{}.{}.0/24", n / 256, n % 256);
    let with = |key: &str, value: &str| {
        let (own, childs) = match key {
            "local" | "remote" => (String::new(), format!("{key} = {value}\n")),
            _ => (format!("{key} = {value}\n"), String::new()),
        };
        let text = format!(
            "[[connection]]\nname = \"a\"\nlocal_id = \"gw.test\"\nlocal_auth = \"psk\"\nremote_auth = \"psk\"\n\
             secret = \"sixteen octets!!\"\n{own}[[connection.child]]\nname = \"b\"\n{childs}"
        );
        read_config(&text).map_or_else(|faults| faults.to_string(), |_| String::new())
    };
    type ListCase<'a> = (&'a str, usize, &'a dyn Fn(usize) -> String);
    let cases: [ListCase<'_>; 5] = [
        ("local", 255, &network),
        ("remote", 255, &network),
        ("proposals", 255, &|_| "aes128-sha256-x25519".to_owned()),
        ("dns", 3000, &|n| format!("2001:db8::{n:x}")),
        ("domains", 240, &|n| format!("{n:03}{}.test", "x".repeat(238))),
    ];
    for (key, most, one) in cases {
        assert_eq!(with(key, &list(most, one)), "", "{key}");
        assert!(with(key, &list(most + 10, one)).contains("at most"), "{key}");
    }
}
