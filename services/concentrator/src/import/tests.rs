//! Imported settings, reported settings, and settings that stop the import.

use super::*;
use proptest::prelude::*;
use usher_config::EmptyConfigEnvironment;
use usher_core::WallTime;
use usher_crypto::tls::SharedWallClock;

const ACCEL: &str = "[modules]\npppoe\nauth_mschap_v2\nauth_chap_md5\nradius\nippool\nl2tp\nipv6pool\nipv6_nd\nipv6_dhcp\n\
    [ppp]\nlcp-echo-interval=20\nmtu=1400\nipv6=allow\n[pppoe]\nac-name=campus\ninterface=eth1\ninterface=eth2,padi-limit=10\n\
    [dns]\ndns1=172.16.0.1\n[radius]\nnas-identifier=accel\ngw-ip-address=192.168.100.1\n\
    server=192.0.2.5,a \"secret\",auth-port=1812,acct-port=1813,weight=1\ndae-server=127.0.0.1:3799,testing123\n\
    [common]\nsingle-session=replace\n# a remark\n\
    [ip-pool]\nattr=Framed-Pool\n192.168.0.2-255\n192.168.1.1-255,name=guests\n192.168.4.0/24,name=more,next=guests\n\
    [ipv6-pool]\nfc00:0:1::/48,64\ndelegate=fc00:1::/36,48\n";

fn read_config(text: &str) -> crate::config::LoadedConcentratorConfig {
    let clock = SharedWallClock::from_time(WallTime::UNIX_EPOCH);
    crate::config::parse("pppoe.toml", text, &EmptyConfigEnvironment, &clock)
        .unwrap_or_else(|faults| panic!("{faults}\n{text}"))
}

#[test]
fn an_accel_ppp_file_is_imported_and_its_leftovers_are_named() {
    let imported = import_config(ACCEL);
    let loaded = read_config(&imported.text);
    assert_eq!(loaded.config.ports, ["eth1", "eth2"]);
    assert_eq!(loaded.config.ppp.name, "campus");
    assert_eq!(loaded.config.subscribers.pools.len(), 5);
    assert_eq!(loaded.config.limits.sessions_per_user, 1);
    assert_eq!(loaded.file.authentication.protocols.len(), 2);
    assert!(loaded.config.subscribers.aaa.is_some_and(|aaa| aaa.accounting && aaa.nas.identifier == "accel"));
    let left: Vec<usize> = imported.left.iter().map(|(line, _)| *line).collect();
    assert_eq!(left, [7, 13, 18, 24, 25, 33], "{:?}", imported.left);
    assert_eq!(imported.left[0].1, "not imported: l2tp of [modules]");
    assert_eq!(imported.left[2].1, "not imported: the text after the name in interface of [pppoe]");
    assert_eq!(loaded.config.addressing.pools, ["default"], "others are for whom an AAA server names them");
    assert!(
        !imported.left.iter().any(|(_, what)| what.contains("testing123") || what.contains("a \"secret")),
        "{:?}",
        imported.left
    );
}

#[test]
fn a_named_pool_comes_first_and_a_filter_is_not_imported() {
    let pools = "[modules]\nippool\npppoe\n[ip-pool]\ngw-ip-address=10.0.0.1\n10.9.0.0/24,name=blocked\n10.1.0.0/24,name=users\n";
    let pool = |text: &str| read_config(&format!("{}\n", import_config(text).text)).config.addressing.pools;
    assert_eq!(pool(&format!("[pppoe]\ninterface=eth1\nip-pool=users\n{pools}")), ["users"]);
    let two = import_config(&format!("{pools}gw-ip-address=10.0.0.2\n[pppoe]\ninterface=re:eth.*\n"));
    assert!(
        two.text.contains("address = \"10.0.0.1\"") && two.text.contains("interfaces = []"),
        "{}",
        two.text
    );
    assert!(two.left.iter().any(|(line, what)| *line == 8 && what.contains("a second, different address")));
}

#[test]
fn options_of_pppd_become_what_they_can() {
    let text = "# PPP options\nrequire-chap\nlcp-echo-interval 10\nlcp-echo-failure 2\nms-dns 10.0.0.53\nproxyarp\nnoauth\n";
    let imported = import_config(text);
    assert!(
        imported.text.contains("protocols = [\"chap\"]") && imported.text.contains("keepalive = \"10 s\"")
    );
    let left: Vec<usize> = imported.left.iter().map(|(line, _)| *line).filter(|line| *line > 0).collect();
    assert_eq!(left, [6, 7], "{:?}", imported.left);
    let whole = imported
        .text
        .replace("interfaces = []", "interfaces = [\"eth1\"]")
        .replace("[service]\n", "[service]\naddress = \"10.0.0.1\"\npools = [\"p\"]\n")
        + "[[pool]]\nname = \"p\"\nranges = [\"10.0.0.0/24\"]\n";
    assert_eq!(read_config(&whole).config.addressing.dns.len(), 1);
}

#[test]
fn any_text_is_borne() {
    for text in [
        "",
        "[",
        "[pppoe\ninterface",
        "[ip-pool]\n1-2\n1.2.3.4-\n=\n,name=\n",
        "[radius]\nserver=\nserver=a,b\n",
        "\u{0}\"\\\n",
    ] {
        let _ = import_config(text);
    }
}

/// A file and its expected import.
struct ImportCase {
    text: &'static str,
    /// Texts that the configuration contains, and texts that it does not.
    has: &'static [&'static str],
    lacks: &'static [&'static str],
    /// Reported lines, with a part of each sentence.
    left: &'static [(usize, &'static str)],
    stops: &'static [usize],
}

fn assert_imports(table: &[ImportCase]) {
    for ImportCase { text, has, lacks, left, stops } in table {
        let made = import_config(text);
        for part in *has {
            assert!(made.text.contains(part), "{part} is not in what is made of\n{text}\n{}", made.text);
        }
        for part in *lacks {
            assert!(!made.text.contains(part), "{part} is in what is made of\n{text}\n{}", made.text);
        }
        for (line, what) in *left {
            let is_named = made.left.iter().any(|(at, said)| at == line && said.contains(what));
            assert!(is_named, "{line}: {what} is not named of\n{text}\n{:?}", made.left);
        }
        let lines: Vec<usize> = made.stops.iter().map(|(line, _)| *line).collect();
        assert_eq!(lines, *stops, "{text}\n{:?}", made.stops);
    }
}

/// Compares with `getword` of pppd's options.c.
#[test]
fn options_of_pppd_are_read_word_by_word() {
    assert_imports(&[
        ImportCase {
            text: "auth require-mschap-v2 require-pap\nlock idle 300 maxconnect 3600\n",
            has: &[
                "protocols = [\"mschapv2\", \"pap\"]",
                "idle_timeout = \"300 s\"",
                "session_timeout = \"3600 s\"",
            ],
            lacks: &[],
            left: &[],
            stops: &[],
        },
        ImportCase {
            text: "idle # a comment\n  0x10\nmaxconnect \\\n 010\nidle 0x20\n",
            has: &["idle_timeout = \"32 s\"", "session_timeout = \"8 s\""],
            lacks: &["16 s"],
            left: &[],
            stops: &[],
        },
        ImportCase {
            text: "name 'a # \\\nb' require-chap#require-pap\nfoo bar\npassword \"my secret\"",
            has: &["protocols = [\"chap\"]"],
            lacks: &["pap"],
            left: &[(1, "not imported: name"), (4, "not imported: password")],
            stops: &[3, 3],
        },
        ImportCase {
            text: "ipv6 ::1,::2 +ipv6\nms-dns 10.0.0.1 ms-dns 10.0.0.2 ms-dns 10.0.0.3",
            has: &["ipv6 = true", "dns = [\"10.0.0.2\", \"10.0.0.3\"]"],
            lacks: &["10.0.0.1\""],
            left: &[(1, "not imported: ipv6"), (0, "the last two ms-dns count")],
            stops: &[],
        },
        ImportCase { text: "lcp-echo-interval", has: &[], lacks: &["keepalive"], left: &[], stops: &[1] },
        ImportCase {
            // Text after a number is ignored. An option without a number makes pppd reject the file.
            text: "idle 300s maxconnect 0x10h lcp-echo-interval +20\nlcp-echo-failure many idle \"\"\nmaxconnect -1 4294967297\n",
            has: &["idle_timeout = \"300 s\"", "session_timeout = \"16 s\"", "keepalive = \"20 s\""],
            lacks: &["keepalive_failures"],
            left: &[(3, "not imported: 4294967297")],
            stops: &[2, 2, 3],
        },
        ImportCase {
            // -am has no argument, and pppd rejects unknown options.
            text: "-am require-mppe\nrequire_chap\n10.0.0.1:10.0.0.2 nic-eth1 /dev/ppp persist\n",
            has: &[],
            lacks: &[],
            left: &[(3, "not imported: 10.0.0.1:10.0.0.2"), (3, "not imported: persist")],
            stops: &[1, 2],
        },
        ImportCase {
            text: "require-mppe nodefaultroute\nlogin file /etc/ppp/more call isp\n+mppe-128 plugin pam.so plugin rp-pppoe.so",
            has: &[],
            lacks: &[],
            left: &[],
            stops: &[1, 2, 2, 2, 3, 3],
        },
        ImportCase {
            // Addresses without authentication: leaving them out admits no host.
            text: "allow-ip 10.0.0.7 allow-number 00:* pass-filter 'tcp port 80' re\\161uire-pap",
            has: &["protocols = [\"pap\"]"],
            lacks: &[],
            left: &[(1, "not imported: allow-ip")],
            stops: &[1, 1],
        },
    ]);
    let secret = import_config("password geheim");
    assert!(!secret.left.iter().any(|(_, what)| what.contains("geheim")), "{:?}", secret.left);
}

#[test]
fn sections_of_accel_ppp_count_where_their_module_is_loaded() {
    const RADIUS: &str = "[radius]\nserver=192.0.2.5,testing123\ndae-server=127.0.0.1:3799,testing123\n";
    for (modules, is_asked) in [("radius\n", true), ("#radius\n", false), ("", false)] {
        let made = import_config(&format!("[modules]\n{modules}{RADIUS}"));
        assert_eq!(made.text.contains("testing123"), is_asked, "{}", made.text);
        assert_eq!(made.text.contains("[aaa.dynamic]"), is_asked);
        let unloaded =
            made.left.iter().filter(|(_, what)| what.contains("whose module radius is not")).count();
        assert_eq!(unloaded, if is_asked { 0 } else { 2 }, "{:?}", made.left);
    }
    const POOLS: &str = "ippool\npppoe\n[ip-pool]\ngw-ip-address=10.0.0.1\n10.0.0.0/24\n";
    for (modules, ipv6, prefixes, delegated) in [
        ("ipv6pool\nipv6_nd\nipv6_dhcp\n", "ipv6=allow", true, true),
        ("ipv6pool\nipv6_nd\nipv6_dhcp\n", "ipv6=2", true, true),
        ("ipv6pool\nipv6_nd\n", "ipv6=allow", true, false),
        ("ipv6_nd\nipv6_dhcp\n", "ipv6=allow", false, false),
        ("ipv6pool\nipv6_nd\nipv6_dhcp\n", "ipv6=0", false, false),
        ("ipv6pool\nipv6_nd\nipv6_dhcp\n", "ipv6=deny", false, false),
        ("ipv6pool\nipv6_nd\nipv6_dhcp\n", "", false, false),
    ] {
        let text = format!(
            "[modules]\n{modules}{POOLS}[ppp]\n{ipv6}\n[ipv6-pool]\nfc00:0:1::/48,64\ndelegate=fc00:1::/36,48\n[pppoe]\ninterface=eth1\n"
        );
        let made = import_config(&text);
        assert_eq!(made.text.contains("prefix_pool ="), prefixes, "{text}\n{}", made.text);
        assert_eq!(made.text.contains("delegated_pool ="), delegated, "{text}\n{}", made.text);
        assert_eq!(
            made.text.contains("ipv6 = true"),
            matches!(ipv6, "ipv6=allow" | "ipv6=2"),
            "{}",
            made.text
        );
        read_config(&made.text);
    }
}

/// Compares with triton/conf_file.c of accel-ppp.
#[test]
fn accel_ppp_files_are_read_as_accel_ppp_reads_them() {
    assert_imports(&[
        ImportCase {
            text: "[modules]\npppoe\n[pppoe]   # access\ninterface=eth1\nac-name=first\nac-name=second\n",
            has: &["interfaces = [\"eth1\"]", "name = \"first\""],
            lacks: &["second"],
            left: &[(6, "uses only the first one")],
            stops: &[],
        },
        ImportCase {
            text: "[modules]\npppoe\n[pppoe]\ninterface=eth1\n[ppp]\n[pppoe]\ninterface=eth2\nmac-filter=/x,deny\n",
            has: &["interfaces = [\"eth1\"]"],
            lacks: &["eth2"],
            left: &[(7, "accel-ppp 1.12 reads it and later releases do not")],
            stops: &[8],
        },
        ImportCase {
            text: "[modules]\npppoe\n$include /etc/more\n[pppoe\n[ppp]\nmppe=require\n[pppoe]\nmppe = require\nmac-filter=/x,deny\n",
            has: &[],
            lacks: &[],
            left: &[],
            stops: &[3, 4, 6, 8, 9],
        },
        ImportCase { text: "$include /etc/more\n", has: &[], lacks: &[], left: &[], stops: &[1] },
        ImportCase {
            text: "[modules]\npppoe\n[pppoe]\nservice-name=isp,,tv\n",
            has: &["services = [\"isp\", \"tv\"]"],
            lacks: &[],
            left: &[],
            stops: &[4],
        },
        ImportCase {
            text: "[modules]\npppoe\n[pppoe]\nservice-name=isp\naccept-blank-service=1x\naccept-any-service=0\n",
            has: &["services = [\"isp\"]"],
            lacks: &[],
            left: &[],
            stops: &[],
        },
        ImportCase {
            text: "[modules]\npppoe\n[pppoe]\nservice-name=,\n",
            has: &[],
            lacks: &["services ="],
            left: &[],
            stops: &[],
        },
        ImportCase {
            // The tab is part of the name, so no setting is recognized.
            text: "[modules]\npppoe\n[pppoe]\nservice-name=isp\naccept-any-service\t=1\nac-name\t=a\nac-name \t=b\nmac-filter\t\t=x\n",
            has: &["services = [\"isp\"]", "name = \"b\""],
            lacks: &["\"a\""],
            left: &[(5, "since a tab after a name"), (6, "since a tab"), (8, "since a tab")],
            stops: &[4],
        },
        ImportCase {
            text: "[modules]\npppoe\n[ppp]\nipv4=require\nipv6=3\n[pppoe]\npado-delay=0, 100:10,-1:500\n",
            has: &[],
            lacks: &[],
            left: &[],
            stops: &[4, 5, 7],
        },
        ImportCase {
            text: "[modules]\npppoe\n[ppp]\nipv4=prefer\nipv6=03x\n[pppoe]\npado-delay=0,100:10,-10:500\nPADO-Delay=4294967295\n",
            has: &[],
            lacks: &[],
            left: &[(7, "not imported: pado-delay of [pppoe]")],
            stops: &[5, 8],
        },
        ImportCase {
            text: "[modules]\npppoe\n[pppoe]\n[common]\n[ppp]\n[ppp]\nipv6=require\nmtu=1400\n[common]\nmax-sessions=5\nsingle-session=deny\n\
                   [pppoe]\nservice-name=x\npado-delay=-1\ntr101=1\n",
            has: &[],
            lacks: &["sessions ="],
            left: &[(8, "accel-ppp 1.12 reads"), (15, "accel-ppp 1.12 reads")],
            stops: &[7, 10, 11, 13, 14],
        },
        ImportCase {
            text: "idle=1\n[modules]\npppoe\n[pppoe]\nac-name=x\nifname=${ac-name}\ncalled-sid=${nothing}\n",
            has: &["name = \"x\""],
            lacks: &[],
            left: &[(6, "ifname of [pppoe]")],
            stops: &[1, 7],
        },
        ImportCase {
            // Nested settings: only a value that ends in `{` begins a block.
            text: "[modules]\npppoe\n[pppoe]\nblock=1 {\n more={\n ac-name=x\n }\n foo {\n } and\nac-name=y\nother={\n[ppp]\n}\n",
            has: &["name = \"y\""],
            lacks: &["\"x\""],
            left: &[(4, "block of block"), (11, "block of other")],
            stops: &[12],
        },
        ImportCase {
            text: "[modules]\npppoe\n[pppoe]\nservice-name=isp\naccept-any-service=1\n",
            has: &[],
            lacks: &["services ="],
            left: &[(4, "every name is accepted")],
            stops: &[],
        },
        ImportCase {
            text: "[modules]\nippool\npppoe\n[ppp]\nipv4=prefer\nlcp-echo-interval=+20\n[ip-pool]\n10.9.0.5/24\n10.8.0.0/24\n10.7.0.0/0\n10.6.0.0/24,allocator=net30\n[common]\nsingle-session=deny\nsingle-session=replace\nblock={\n mac-filter=x\n}\n[shaper]\ny=1\nx=${y}\n",
            has: &["\"10.9.0.5-10.9.0.255\", \"10.8.0.0/24\"", "excess = \"refuse\""],
            lacks: &["10.7", "10.6", "replace"],
            left: &[
                (10, "10.7.0.0/0"),
                (11, "10.6.0.0/24"),
                (14, "only the first one"),
                (15, "block of block"),
            ],
            stops: &[],
        },
        ImportCase {
            text: "[modules]\nippool\nradius\npppoe\n[ppp]\nipv4=deny\n[radius]\nserver=192.0.2.5,key,1645,1646\nserver=192.0.2.6,key,0\nacct-interim-interval=0\ndae-server=127.0.0.1:3799,other\n[ip-pool]\ngw-ip-address=10.0.0.1\n10.0.0.0/24\n",
            has: &[
                "address = \"192.0.2.5:1645\"",
                "acct_address = \"192.0.2.5:1646\"",
                "listen = \"127.0.0.1:3799\"",
            ],
            lacks: &["address = \"10.0.0.1\"", "192.0.2.6", "other", "interim"],
            left: &[(9, "server of [radius]"), (11, "the secret")],
            stops: &[],
        },
    ]);
}

/// The import reports faults that the configuration's own parser finds.
#[test]
fn what_is_made_is_right_or_its_faults_are_told() {
    let long = "x".repeat(70);
    let right =
        "[modules]\npppoe\nippool\n[ip-pool]\ngw-ip-address=10.0.0.1\n10.0.0.2-99\n[pppoe]\ninterface=eth1\n";
    for (text, fault) in [
        (right.to_owned(), None),
        ("idle 0\nmaxconnect 0\nlcp-echo-interval 0\nrequire-chap\n".to_owned(), None),
        (format!("{right}ac-name={long}\n"), Some("a concentrator's name has 1 to 64 octets")),
        (format!("{right}interface=eth1\n"), Some("\"eth1\" is listed twice")),
        (format!("{right}interface=an-interface-of-many-letters\n"), Some("is not an interface name")),
    ] {
        let made = import_config(&text);
        let told: Vec<&str> = made
            .left
            .iter()
            .map(|(_, what)| what.as_str())
            .filter(|what| what.contains("has a fault"))
            .collect();
        match fault {
            None => assert_eq!(told, [""; 0], "{text}"),
            Some(fault) => assert!(told.len() == 1 && told[0].contains(fault), "{told:?}"),
        }
    }
}

#[test]
fn a_server_without_accounting_is_named() {
    let of = |port: &str| {
        let server = format!("server=192.0.2.5,a secret,auth-port=1812,acct-port={port}\n");
        import_config(&format!("[modules]\nradius\n[pppoe]\ninterface=eth1\n[radius]\n{server}"))
    };
    let named = |imported: &ImportedConfig| imported.left.iter().any(|(line, _)| *line == 6);
    assert!(!named(&of("1813")) && named(&of("0")) && !of("0").text.contains(":0"), "{}", of("0").text);
}

/// Like `parse_server1` and then `parse_server2` of accel-ppp's serv.c. Blanks are significant.
#[test]
fn servers_are_read_as_accel_ppp_reads_them() {
    for (server, auth, acct, secret, is_whole) in [
        ("10.0.0.1,key", "1812", "1813", "key", true),
        ("10.0.0.1, key", "1812", "1813", " key", true),
        ("10.0.0.1, testing123, auth-port=1645", "1812", "1813", " testing123", false),
        ("10.0.0.1,key,1645", "1645", "1813", "key", true),
        ("10.0.0.1,key, 1645,+1646", "1645", "1646", "key", true),
        ("10.0.0.1,key,1645,1646,req-limit=50", "1812", "1813", "key", false),
        ("10.0.0.1,key,1645,acct-port=1700", "1812", "1700", "key", false),
        ("10.0.0.1,key,auth-port=1645,auth-port=1700,acct-port=1646", "1645", "1646", "key", true),
        ("10.0.0.1,key,weight=x,backup", "1812", "1813", "key", false),
        ("10.0.0.1,key,1645,", "1645", "1813", "key", false),
    ] {
        let made = import_config(&format!("[modules]\nradius\n[radius]\nserver={server}\n"));
        let written = format!(
            "address = \"10.0.0.1:{auth}\"\nacct_address = \"10.0.0.1:{acct}\"\nsecret = \"{secret}\"\n"
        );
        assert!(made.text.contains(&written), "{server}\n{}", made.text);
        assert_eq!(!made.left.iter().any(|(line, _)| *line == 4), is_whole, "{server}: {:?}", made.left);
    }
    for server in [
        "10.0.0.1",
        " ,key",
        "10.0.0.1 ,key",
        "host,key",
        "10.0.0.1,key,auth-port=1645x",
        "10.0.0.1,key,auth-port=0",
        "10.0.0.1,key,",
        "10.0.0.1,key,0",
        "10.0.0.1,key,x,req-limit=many",
        "10.0.0.1,key,auth-port=70000",
        "10.0.0.1,key,max-fail=5 ,weight=1",
    ] {
        let made = import_config(&format!("[modules]\nradius\n[radius]\nserver={server}\n"));
        assert!(!made.text.contains("[[aaa.radius]]"), "{server}\n{}", made.text);
        assert!(
            made.left.iter().any(|(line, what)| *line == 4 && what == "not imported: server of [radius]"),
            "{server}"
        );
    }
}

/// A line that accel-ppp splits stops the import. Lookups take constant time, otherwise this would take minutes.
#[test]
fn long_lines_stop_and_long_files_are_read_soon() {
    let long = format!("[modules]\npppoe\n[pppoe]\nac-name={}\n", "x".repeat(1015));
    assert_eq!(import_config(&long).stops.len(), 1);
    assert_eq!(import_config(&"x".repeat(1024)).stops.len(), 1);
    assert_eq!(import_config(&format!("name {} require-pap", "x".repeat(1024))).stops.len(), 1);
    let pools: String = (0..50_000).map(|n| format!("10.0.0.2-9,name=p{n}\nz{n}=${{z0}}\n")).collect();
    let made = import_config(&format!("[modules]\nippool\n[ip-pool]\nz0=1\n{pools}"));
    assert!(made.text.contains("p49999"), "each is taken");
}

#[test]
fn ipv6_of_pppds_options_is_asked_for_or_named() {
    let named = |text: &str| -> Vec<usize> {
        let left = import_config(text).left.into_iter();
        left.filter(|(line, what)| *line > 0 || what.contains("IPv6")).map(|(line, _)| line).collect()
    };
    assert_eq!(named("require-chap\nipv6 ::1,::2\n"), [2, 0]);
    assert_eq!((named("+ipv6\n"), named("noipv6\n"), named("")), (vec![0], vec![], vec![]));
    // If an AAA server can give prefixes, no pool is missing.
    let radius = "[modules]\nradius\n[ppp]\nipv6=allow\n[radius]\nserver=192.0.2.5,a secret\n";
    let without = radius.replace("server=192.0.2.5,a secret", "");
    assert_eq!((named(radius), named(&without)), (vec![], vec![0]));
}

proptest! {
    /// Each import either loads or reports a problem.
    #[test]
    fn no_file_becomes_a_faulty_one_unsaid(text in "(\\[(modules|pppoe|ip-pool|ppp|radius|common)\\]\n|(pppoe|ippool|radius|interface=eth[12],?|ac-name=.{0,3}|10\\.0\\.0\\.[0-9]{1,2}[-/][0-9]{1,2}|gw-ip-address=10\\.0\\.0\\.1|lcp-echo-interval=[0-9]{1,4}|server=192\\.0\\.2\\.1,.{0,4}|acct-interim-interval=[0-9]{1,6}|max-sessions=[0-9]{1,5})\n|idle [0-9]{0,12} |'|\"|\\\\|#){0,30}") {
        let made = import_config(&text);
        let clock = SharedWallClock::from_time(WallTime::UNIX_EPOCH);
        if made.left.is_empty() && made.stops.is_empty() {
            prop_assert!(crate::config::parse("pppoe.toml", &made.text, &EmptyConfigEnvironment, &clock).is_ok(), "{}", made.text);
        }
    }
}
