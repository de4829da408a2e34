//! Vendor attributes: built-in ones, those of an operator's dictionaries, and unknown rows.

use super::daemon::{
    DaemonProcess, ServerPorts, get_page, metric_value, pap_login, run_radclient, write_private,
};
use super::why::TraceProcess;
use crate::place::TempDir;

/// Returns a user in memory with these rows.
fn user_table(name: &str, check: &[&str], reply: &[&str]) -> String {
    format!("[[user]]\nname = \"{name}\"\npassword = \"right\"\ncheck = {check:?}\nreply = {reply:?}\n")
}

const MEMORY: &str = "[users]\nstore = \"memory\"\n";
const SQLITE: &str = "[users]\nstore = \"sqlite\"\n";

#[track_caller]
fn expect_lines(said: &str, all: &[&str]) {
    for line in all {
        assert!(said.lines().any(|l| l.trim() == *line), "{line} in {said}");
    }
}

#[test]
fn freeradius_reads_vendors_attributes_by_their_names() {
    let (place, ports) = (TempDir::new(), ServerPorts::reserve_free());
    let ann = user_table(
        "ann",
        &[],
        &[
            "Cisco-AVPair = \"shell:priv-lvl=15\"",
            "Cisco-AVPair += \"ip:inacl#1=permit ip any any\"",
            "Aruba-User-Vlan = 20",
            "Aruba-User-Role := staff",
            "Mikrotik-Rate-Limit = 10M/20M",
            "WISPr-Bandwidth-Max-Down = 1000000",
            "Juniper-Local-User-Name = SU",
            "Fortinet-Group-Name = vpn",
            "HP-Privilege-Level = 15",
            "Attr-26.14988.3 = 0x61646d696e",
            "SN-VPN-Name = context",
        ],
    );
    let bob = user_table("bob", &["Cisco-AVPair == wanted"], &["Aruba-User-Vlan = 30"]);
    let server = DaemonProcess::start(&place, &ports.server_config(1, &format!("{MEMORY}{ann}{bob}")));
    expect_lines(
        &pap_login(ports.auth, "ann", "right").with_code(0).out,
        &[
            "Cisco-AVPair = \"shell:priv-lvl=15\"",
            "Cisco-AVPair = \"ip:inacl#1=permit ip any any\"",
            "Aruba-User-Vlan = 20",
            "Aruba-User-Role = \"staff\"",
            "Mikrotik-Rate-Limit = \"10M/20M\"",
            "WISPr-Bandwidth-Max-Down = 1000000",
            "Juniper-Local-User-Name = \"SU\"",
            "Fortinet-Group-Name = \"vpn\"",
            "HP-Privilege-Level = 15",
            "Mikrotik-Group = \"admin\"",
            "SN-VPN-Name = \"context\"",
        ],
    );
    // A check item compares a vendor attribute of the request.
    let asks = |more: &str| {
        let text = format!("User-Name=bob,User-Password=right,Message-Authenticator=0x00{more}");
        run_radclient(ports.auth, "auth", &text)
    };
    expect_lines(&asks(",Cisco-AVPair=wanted").with_code(0).out, &["Aruba-User-Vlan = 30"]);
    asks(",Cisco-AVPair=other").with_code(1);
    asks("").with_code(1);
    assert_eq!(server.terminate(), Some(0));
}

/// An operator's dictionary in two files.
const OWN: &str = "VENDOR\tNorthwind\t64999\tformat=2,1\n$INCLUDE sub/more\n";
const MORE: &str = "# More.\nBEGIN-VENDOR Northwind\nATTRIBUTE Northwind-Tier 300 integer\n\
                    VALUE Northwind-Tier Gold 3\nATTRIBUTE Northwind-Note 301 string\nEND-VENDOR Northwind\n";

#[test]
fn an_operator_adds_dictionaries_and_a_reload_takes_them() {
    let (place, ports) = (TempDir::new(), ServerPorts::reserve_free());
    std::fs::create_dir_all(place.path("dictionaries/sub")).unwrap();
    place.write("dictionaries/own", OWN);
    place.write("dictionaries/sub/more", MORE);
    let ann = user_table("ann", &[], &["Northwind-Tier = Gold", "Northwind-Note = hello"]);
    let config = ports.server_config(1, &format!("{MEMORY}{ann}"));
    write_private(&place, "aaa.toml", &config);
    let said = place.run_usher(&["aaa", "check", "aaa.toml"]).with_code(2).err;
    assert!(said.contains("Northwind-Tier = (hidden)`: no such attribute"), "{said}");

    let with = format!("dictionary = [\"dictionaries/own\"]\n{config}");
    let plain = config.replace(&ann, "");
    let server = DaemonProcess::start(&place, &plain);
    write_private(&place, "aaa.toml", &with);
    place.run_usher(&["aaa", "check", "aaa.toml"]).with_code(0);
    place.run_usher(&["aaa", "reload", "--config", "aaa.toml"]).with_code(0);
    // Vendor 64999, two octets of type, one of length.
    let said = pap_login(ports.auth, "ann", "right").with_code(0).out;
    let octets = said.to_ascii_lowercase();
    assert!(
        octets.contains("0000fde7012c0700000003") && octets.contains("0000fde7012d0868656c6c6f"),
        "{said}"
    );

    // Faults have their file and line. At a reload, they keep the previous configuration.
    place.write("dictionaries/sub/more", &MORE.replace("integer", "intger"));
    let said = place.run_usher(&["aaa", "check", "aaa.toml"]).with_code(2).err;
    assert!(said.contains("aaa.toml:1:") && said.contains("sub/more:3: unknown type `intger`"), "{said}");
    place.write("dictionaries/sub/more", "$INCLUDE ../own\n");
    server.send_signal("HUP");
    server.wait_for_log("not reloaded");
    let log = server.log();
    assert!(log.contains("sub/more:1: `") && log.contains("own` includes itself"), "{log}");
    pap_login(ports.auth, "ann", "right").with_code(0);
    std::fs::remove_file(place.path("dictionaries/sub/more")).unwrap();
    let said = place.run_usher(&["aaa", "check", "aaa.toml"]).with_code(2).err;
    assert!(said.contains("own:2: ") && said.contains("No such file"), "{said}");
    assert_eq!(server.terminate(), Some(0));
}

#[test]
fn dictionaries_apply_to_the_store_its_commands_and_its_import() {
    let (place, ports) = (TempDir::new(), ServerPorts::reserve_free());
    place.write("own", &format!("{}{MORE}", OWN.lines().next().unwrap().to_owned() + "\n"));
    let server =
        DaemonProcess::start(&place, &format!("dictionary = [\"own\"]\n{}", ports.server_config(1, SQLITE)));
    let usher = |words: &str| place.run_shell(&format!("echo right | usher aaa {words} --config aaa.toml"));
    usher("user add ann --password-file - --reply 'Northwind-Tier = Gold' --reply 'Cisco-AVPair += a=b'")
        .with_code(0);
    expect_lines(&pap_login(ports.auth, "ann", "right").with_code(0).out, &["Cisco-AVPair = \"a=b\""]);
    let said = usher("user add bob --password-file - --reply 'Northwind-Tier = Silver'").with_code(2).err;
    assert!(said.contains("neither a number nor a name"), "{said}");
    place.write(
        "users",
        "eve\tCleartext-Password := \"right\"\n\tAruba-User-Vlan = 20,\n\tMikrotik-Rate-Limit := \"1M/2M\",\n\
         \tCisco-AVPair += \"a=1\",\n\tCisco-AVPair += \"b=2\",\n\tAttr-26.64999.300 = 0x00000003,\n\tNorthwind-Note = \"x\"\n",
    );
    assert!(usher("user import users").with_code(0).out.contains("1 users imported, 0 lines"));
    let said = pap_login(ports.auth, "eve", "right").with_code(0).out;
    expect_lines(
        &said,
        &[
            "Aruba-User-Vlan = 20",
            "Mikrotik-Rate-Limit = \"1M/2M\"",
            "Cisco-AVPair = \"a=1\"",
            "Cisco-AVPair = \"b=2\"",
        ],
    );
    assert!(said.to_ascii_lowercase().contains("0000fde7012c0700000003"), "{said}");
    // Commands do not show secret attributes.
    usher("user add dan --password-file - --reply 'Aruba-MPSK-Passphrase = hunter22'").with_code(0);
    assert!(!usher("user show dan").with_code(0).out.contains("hunter22"));
    assert_eq!(server.terminate(), Some(0));
}

/// An import is rejected if an unsupported entry would have restricted access.
#[test]
fn an_import_that_would_let_in_more_takes_nothing() {
    let (place, ports) = (TempDir::new(), ServerPorts::reserve_free());
    write_private(&place, "aaa.toml", &ports.server_config(1, SQLITE));
    let usher = |words: &str| {
        place.run_usher(
            &[&["aaa", "user"], &words.split(' ').collect::<Vec<_>>()[..], &["--config", "aaa.toml"]]
                .concat(),
        )
    };
    place.write(
        "more",
        "DEFAULT NAS-Port == 7\n\tReply-Message = closed\nkai\tCleartext-Password := \"right\"\n",
    );
    place.write("users", "eve\tCleartext-Password := \"right\"\n$INCLUDE more\n");
    let said = usher("import users").with_code(3).err;
    assert!(
        said.contains("more:1: this DEFAULT stands above") && said.contains("no entry was imported"),
        "{said}"
    );
    let said = usher("import users --json").with_code(3).out;
    assert!(said.contains("\"stops\": true") && said.contains("/more\""), "{said}");
    assert!(!usher("list").with_code(0).out.contains("eve"));

    place.write("more", "kai\tCleartext-Password := \"right\"\n\tFilter-Id = \"%{User-Name}\"\n");
    assert!(usher("import users").with_code(3).err.contains("use --leave-out"));
    let said = usher("import users --leave-out").with_code(3);
    assert!(said.out.contains("2 users imported, 1 lines"), "{} {}", said.out, said.err);
    let said = usher("list").with_code(0).out;
    assert!(said.contains("eve") && said.contains("kai"), "{said}");
}

#[test]
fn an_unreadable_reply_item_has_its_cause_and_may_be_left_out() {
    let (place, ports) = (TempDir::new(), ServerPorts::reserve_free());
    let config = ports.server_config(1, &format!("{SQLITE}cache_ttl = \"0 s\"\n"));
    let server = DaemonProcess::start(&place, &config);
    let usher = |words: &str| place.run_shell(&format!("echo right | usher aaa {words} --config aaa.toml"));
    usher("user add ann --password-file - --reply 'Session-Timeout = 600'").with_code(0);
    usher("user add bob --password-file -").with_code(0);
    // As another program writes the tables.
    let store = rusqlite::Connection::open(place.path("state/usher.db")).unwrap();
    let row =
        "insert into radreply (username, attribute, op, value) values ('ann', 'Nortwind-Tier', '=', 'Gold')";
    store.execute(row, []).unwrap();
    let row =
        "insert into radcheck (username, attribute, op, value) values ('bob', 'Nortwind-Tier', '==', 'Gold')";
    store.execute(row, []).unwrap();

    let trace = TraceProcess::start_trace(&place, &["ann"]);
    let why = "radreply, `Nortwind-Tier = (hidden)`: no such attribute in the dictionaries";
    pap_login(ports.auth, "ann", "right").with_code(1);
    trace.wait_for_lines(why, 1);
    server.wait_for_log("reject user=\"ann\"");
    let log = server.log();
    let line = log.lines().find(|l| l.contains("reject user=\"ann\"")).unwrap();
    assert!(line.contains("bad-rows") && line.contains(why), "{line}");
    let rejected = "usher_aaa_logins_total{method=\"pap\",inner=\"\",result=\"reject\",reason=\"bad-rows\"}";
    assert_eq!(metric_value(&get_page(ports.metrics, "/metrics"), rejected), 1.0);

    let lenient = config.replace(SQLITE, &format!("{SQLITE}bad_reply = \"leave-out\"\n"));
    write_private(&place, "aaa.toml", &lenient);
    place.run_usher(&["aaa", "reload", "--config", "aaa.toml"]).with_code(0);
    expect_lines(&pap_login(ports.auth, "ann", "right").with_code(0).out, &["Session-Timeout = 600"]);
    trace.wait_for_lines("left out, since it cannot be parsed: radreply, `Nortwind-Tier = (hidden)`", 1);
    server.wait_for_log("cannot parse a reply row in the store: it is left out");
    assert!(metric_value(&get_page(ports.metrics, "/metrics"), "usher_aaa_reply_rows_left_out_total") >= 1.0);
    // An unknown check item rejects the user, whatever the setting for replies.
    pap_login(ports.auth, "bob", "right").with_code(1);
    assert_eq!(metric_value(&get_page(ports.metrics, "/metrics"), rejected), 2.0);
    drop(trace);
    assert_eq!(server.terminate(), Some(0));
}

#[test]
fn a_trace_names_vendors_attributes_and_hides_their_secrets() {
    let (place, ports) = (TempDir::new(), ServerPorts::reserve_free());
    let reply = ["Cisco-AVPair = a=b", "Aruba-MPSK-Passphrase = hunter22", "SN-VPN-Name = context"];
    let server = DaemonProcess::start(
        &place,
        &ports.server_config(1, &format!("{MEMORY}{}", user_table("ann", &[], &reply))),
    );
    let trace = TraceProcess::start_trace(&place, &["ann"]);
    pap_login(ports.auth, "ann", "right").with_code(0);
    trace.wait_for_lines("SN-VPN-Name = \"context\"", 1);
    let said = trace.traced_lines();
    assert!(said.contains("Cisco-AVPair = \"a=b\""), "{said}");
    assert!(said.contains("Aruba-MPSK-Passphrase = (not shown)"), "{said}");
    drop(trace);
    assert_eq!(server.terminate(), Some(0));
}
