//! Administration of users, clients and sessions of a store, with and without a server.

use super::daemon::{
    DaemonProcess, SECRET, ServerPorts, pap_login, pap_unanswered, run_radclient, write_private,
};
use crate::place::{TempDir, own_address};
use std::collections::BTreeSet;
use std::net::UdpSocket;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

const SQLITE: &str = "[users]\ncache_ttl = \"1 h\"\n";

#[test]
fn users_of_the_store_are_added_shown_and_gone_at_once() {
    let (place, ports) = (TempDir::new(), ServerPorts::reserve_free());
    let server = DaemonProcess::start(&place, &ports.server_config(1, SQLITE));
    pap_login(ports.auth, "ann", "right").with_code(1);
    let usher =
        |words: &str| place.run_shell(&format!("echo right | usher aaa user {words} --config aaa.toml"));
    usher("add ann --password-file -").with_code(0);
    pap_login(ports.auth, "ann", "right").with_code(0);
    usher("add bob --hash argon2 --password-file -").with_code(0);
    pap_login(ports.auth, "bob", "right").with_code(0);
    pap_login(ports.auth, "bob", "wrong").with_code(1);
    assert!(usher("add ann --password-file -").with_code(2).err.contains("usher aaa user set"));
    assert_eq!(usher("list").with_code(0).out, "ann\nbob\n");
    let shown = usher("show ann").with_code(0).out;
    assert!(shown.contains("Cleartext-Password") && !shown.contains("right"), "{shown}");
    // The cache holds users for an hour. A removed user is dropped from it.
    usher("del ann").with_code(0);
    pap_login(ports.auth, "ann", "right").with_code(1);
    assert_eq!(server.terminate(), Some(0));
}

#[test]
fn what_is_not_named_of_a_user_stays() {
    let (place, ports) = (TempDir::new(), ServerPorts::reserve_free());
    let server = DaemonProcess::start(&place, &ports.server_config(1, SQLITE));
    // Without input, a prompted password would be empty, which is rejected.
    let usher = |input: &str, words: &str| {
        place.run_shell(&format!("printf '{input}' | usher aaa user {words} --config aaa.toml"))
    };
    usher("right", "add ann --password-file - --reply 'Session-Timeout = 60' --reply 'Idle-Timeout = 9'")
        .with_code(0);
    usher("", "set ann --reply 'Session-Timeout = 3600' --check 'User-Name == ann' --group staff")
        .with_code(0);
    let said = pap_login(ports.auth, "ann", "right").with_code(0).out;
    assert!(said.contains("Session-Timeout = 3600") && said.contains("Idle-Timeout = 9"), "{said}");
    usher("", "set ann --remove idle-timeout").with_code(0);
    usher("other", "set ann --password-file - --hash nt").with_code(0);
    pap_login(ports.auth, "ann", "right").with_code(1);
    let said = pap_login(ports.auth, "ann", "other").with_code(0).out;
    assert!(said.contains("Session-Timeout = 3600") && !said.contains("Idle-Timeout"), "{said}");
    let shown = usher("", "show ann").with_code(0).out;
    assert!(
        shown.contains("staff") && shown.contains("User-Name ") && shown.contains("NT-Password"),
        "{shown}"
    );
    assert!(!shown.contains("Cleartext-Password"), "{shown}");
    assert!(usher("", "set ann --remove Class").with_code(2).err.contains("has no row of Class"));
    assert!(usher("", "set ann --hash nt").with_code(2).err.contains("--password"));
    assert!(usher("", "set bob --no-password").with_code(2).err.contains("usher aaa user add"));
    usher("", "set ann --no-password").with_code(0);
    pap_login(ports.auth, "ann", "other").with_code(1);
    assert_eq!(server.terminate(), Some(0));
}

#[test]
fn a_row_that_is_wrong_makes_no_store() {
    let (place, ports) = (TempDir::new(), ServerPorts::reserve_free());
    write_private(&place, "aaa.toml", &ports.server_config(1, SQLITE));
    for words in ["group set staff", "user add ann --no-password"] {
        for row in ["Nonsense = 1", "nonsense"] {
            let words = format!("usher aaa {words} --reply '{row}' --config aaa.toml");
            let said = place.run_shell(&words).with_code(2).err;
            assert!(said.to_lowercase().contains("nonsense"), "{said}");
        }
    }
    assert!(!place.path("state").exists());
    place
        .run_shell("usher aaa group set staff --reply 'Session-Timeout = 60' --config aaa.toml")
        .with_code(0);
    assert!(place.path("state/usher.db").exists());
}

#[test]
fn session_commands_create_no_store_if_no_server_has_run() {
    let (place, ports) = (TempDir::new(), ServerPorts::reserve_free());
    write_private(&place, "aaa.toml", &ports.server_config(1, SQLITE));
    for words in ["list", "show 5f2a"] {
        let words = format!("usher aaa session {words} --config aaa.toml");
        let said = place.run_shell(&words).with_code(1).err;
        assert!(said.contains("no server is running") && said.contains("usher aaa serve"), "{said}");
    }
    assert!(!place.run_shell("find . -name usher.db").with_code(0).out.contains("usher.db"));
}

#[test]
fn a_check_refuses_a_url_that_serving_refuses() {
    let (place, ports) = (TempDir::new(), ServerPorts::reserve_free());
    let store =
        "[users]\nstore = \"postgresql\"\nurl = \"postgresql://u:kiwi@127.0.0.1/db?sslmode=verify-full\"\n";
    write_private(&place, "aaa.toml", &ports.server_config(1, store));
    for words in [&["aaa", "check", "aaa.toml"][..], &["aaa", "serve", "--config", "aaa.toml"]] {
        let said = place.run_usher(words).with_code(2).err;
        assert!(said.contains("sslrootcert=FILE") && !said.contains("kiwi"), "{words:?}: {said}");
    }
}

#[test]
fn a_group_says_what_its_users_get_from_then_on() {
    let (place, ports) = (TempDir::new(), ServerPorts::reserve_free());
    let server = DaemonProcess::start(&place, &ports.server_config(1, SQLITE));
    let usher = |words: &str| place.run_shell(&format!("echo right | usher aaa {words} --config aaa.toml"));
    usher("user add ann --password-file - --group staff").with_code(0);
    let gets = |seconds: u32| {
        let said = pap_login(ports.auth, "ann", "right").with_code(0).out;
        assert!(said.contains(&format!("Session-Timeout = {seconds}")), "{said}");
    };
    usher("group set staff --reply 'Session-Timeout = 3600'").with_code(0);
    gets(3600);
    usher("group set staff --reply 'Session-Timeout = 60'").with_code(0);
    gets(60);
    assert!(
        usher("group set staff --reply 'Sesion-Timeout = 60'").with_code(2).err.contains("Sesion-Timeout")
    );
    gets(60);
    assert_eq!(server.terminate(), Some(0));
}

#[test]
fn the_tables_of_a_database_can_be_printed() {
    let place = TempDir::new();
    let script = place.run_usher(&["aaa", "schema"]).with_code(0).out;
    for table in ["radcheck", "radreply", "radusergroup", "radacct", "nas"] {
        assert!(script.contains(table), "{table}: {script}");
    }
}

#[test]
fn a_device_is_kept_in_one_spelling_and_let_in_by_any() {
    let (place, ports) = (TempDir::new(), ServerPorts::reserve_free());
    let server =
        DaemonProcess::start(&place, &ports.server_config(1, &format!("{SQLITE}[methods]\nmab = true\n")));
    let usher = |words: &str| place.run_shell(&format!("usher aaa user {words} --config aaa.toml"));
    let asks = |name: &str| {
        let station =
            "Calling-Station-Id=00:11:22:aa:bb:cc,Service-Type=Call-Check,Message-Authenticator=0x00";
        run_radclient(ports.auth, "auth", &format!("User-Name={name},{station}"))
    };
    asks("001122aabbcc").with_code(1);
    usher("add 00-11-22-AA-BB-CC --no-password").with_code(0);
    assert_eq!(usher("list").with_code(0).out, "001122aabbcc\n");
    assert!(usher("add 0011.22aa.bbcc --no-password").with_code(2).err.contains("already"));
    for name in ["001122aabbcc", "00-11-22-AA-BB-CC", "0011.22AA.BBCC"] {
        asks(name).with_code(0);
    }
    usher("show 00:11:22:AA:BB:CC").with_code(0);
    usher("del 001122AABBCC").with_code(0);
    asks("00-11-22-AA-BB-CC").with_code(1);
    assert_eq!(server.terminate(), Some(0));
}

#[test]
fn clients_of_the_store_are_served_without_a_restart() {
    let (place, ports) = (TempDir::new(), ServerPorts::reserve_free());
    let config = ports
        .server_config(1, "[users]\nstore = \"sqlite\"\n[[user]]\nname = \"ann\"\npassword = \"right\"\n");
    let without = config.replace("prefix = \"127.0.0.0/8\"", "prefix = \"192.0.2.1\"");
    let server = DaemonProcess::start(&place, &without);
    pap_unanswered(ports.auth, "ann", "right");
    write_private(&place, "secret", SECRET);
    let add = [
        "aaa",
        "client",
        "add",
        "127.0.0.1",
        "--name",
        "here",
        "--secret-file",
        "secret",
        "--config",
        "aaa.toml",
    ];
    place.run_usher(&add).with_code(0);
    pap_login(ports.auth, "ann", "right").with_code(0);
    let listed = place.run_usher(&["aaa", "client", "list", "--config", "aaa.toml"]).with_code(0).out;
    assert!(listed.contains("here") && !listed.contains(SECRET), "{listed}");
    assert_eq!(server.terminate(), Some(0));
}

#[test]
fn sessions_outlive_the_server() {
    let (place, ports) = (TempDir::new(), ServerPorts::reserve_free());
    let config = ports.server_config(1, SQLITE);
    let server = DaemonProcess::start(&place, &config);
    let start = "Acct-Status-Type=Start,Acct-Session-Id=5f2a,User-Name=ann,NAS-IP-Address=127.0.0.1,\
                 Calling-Station-Id=00-11-22-33-44-55,Framed-IP-Address=10.0.0.7";
    assert!(run_radclient(ports.acct, "acct", start).with_code(0).out.contains("Accounting-Response"));
    let list = || {
        place
            .run_usher(&["aaa", "session", "list", "--json", "--config", "aaa.toml"])
            .with_code(0)
            .stdout_json()
    };
    let is = |all: serde_json::Value| {
        assert_eq!(all.as_array().unwrap().len(), 1, "{all}");
        assert_eq!((&all[0]["user"], &all[0]["address"]), (&"ann".into(), &"10.0.0.7".into()), "{all}");
    };
    is(list());
    assert_eq!(server.terminate(), Some(0));
    // From the store, and by the next server.
    is(list());
    let shown = place.run_usher(&["aaa", "session", "show", "5f2a", "--config", "aaa.toml"]).with_code(0);
    assert!(shown.err.contains("no server is running"), "{}", shown.err);
    let started = shown.out.lines().find(|line| line.starts_with("started")).unwrap_or_default();
    assert!(started.contains("T") && started.trim_end().ends_with('Z'), "{}", shown.out);
    // FreeRADIUS also writes sessions without a start.
    let raw = rusqlite::Connection::open(place.path("state/usher.db")).unwrap();
    let set = |value: &str| raw.execute(&format!("UPDATE radacct SET acctstarttime = {value}"), []).unwrap();
    let began: i64 = raw.query_row("SELECT acctstarttime FROM radacct", [], |row| row.get(0)).unwrap();
    set("NULL");
    let shown = place.run_usher(&["aaa", "session", "show", "5f2a", "--config", "aaa.toml"]).with_code(0);
    assert!(shown.out.contains("unknown") && !shown.out.contains("1970"), "{}", shown.out);
    assert!(list()[0]["started"].is_null());
    set(&began.to_string());
    drop(raw);
    let server = DaemonProcess::start(&place, &config);
    is(list());
    let status =
        place.run_usher(&["aaa", "status", "--json", "--config", "aaa.toml"]).with_code(0).stdout_json();
    assert_eq!(status["sessions"], 1, "{status}");
    let stop = start.replace("Start", "Stop,Acct-Session-Time=9");
    run_radclient(ports.acct, "acct", &stop).with_code(0);
    assert_eq!(list().as_array().unwrap().len(), 0);
    assert_eq!(server.terminate(), Some(0));
}

/// An access server at the test's own address that answers every Disconnect-Request (RFC 5176).
struct DisconnectNas {
    is_stopped: Arc<AtomicBool>,
    thread: JoinHandle<usize>,
}

impl DisconnectNas {
    fn start(takes: bool) -> Self {
        let socket = UdpSocket::bind((own_address(), 3799)).unwrap();
        socket.set_read_timeout(Some(std::time::Duration::from_millis(10))).unwrap();
        let over = Arc::<AtomicBool>::default();
        let is_over = over.clone();
        let thread = std::thread::spawn(move || {
            let mut packet = [0; 4096];
            // A retransmission after a late reply is the same request.
            let mut heard = BTreeSet::new();
            while !is_over.load(Ordering::Relaxed) {
                let Ok((length, from)) = socket.recv_from(&mut packet) else { continue };
                assert_eq!(packet[0], 40, "{:?}", &packet[..length]);
                heard.insert(packet[..length].to_vec());
                // Disconnect-ACK or -NAK without attributes (RFC 5176 §2.3).
                let head = [if takes { 41 } else { 42 }, packet[1], 0, 20];
                let tag = usher_crypto::digest::md5(&[&head, &packet[4..20], SECRET.as_bytes()]);
                socket.send_to(&[&head[..], &tag].concat(), from).unwrap();
            }
            heard.len()
        });
        Self { is_stopped: over, thread }
    }

    /// Returns the number of requests received. The command that sends them has ended.
    fn request_count(self) -> usize {
        self.is_stopped.store(true, Ordering::Relaxed);
        self.thread.join().unwrap()
    }
}

#[test]
fn who_is_changed_stays_connected_unless_that_is_said() {
    let (place, ports) = (TempDir::new(), ServerPorts::reserve_free());
    let server = DaemonProcess::start(&place, &ports.server_config(2, SQLITE));
    let usher =
        |words: &str| place.run_shell(&format!("echo right | usher aaa user {words} --config aaa.toml"));
    usher("add ann --password-file -").with_code(0);
    let address = own_address().to_string();
    let begin = |session: &str, user: &str| {
        let attributes = format!(
            "Acct-Status-Type=Start,Acct-Session-Id={session},User-Name={user},NAS-IP-Address={address}"
        );
        run_radclient(ports.acct, "acct", &attributes).with_code(0);
    };
    begin("1", "ann");
    begin("2", "ann");
    begin("3", "bob");
    let said = usher("set ann --password-file -").with_code(0).out;
    assert_eq!(said, "ann changed\n");
    let asked = DisconnectNas::start(true);
    let said = usher("set ann --password-file - --disconnect").with_code(0).out;
    assert_eq!(said, "ann changed; sessions ended, as their NASs confirm: 2\n");
    assert_eq!(asked.request_count(), 2);
    // Sessions stay listed until their NAS reports the end. A command for one of them says so.
    let session = |words: &str| {
        place.run_shell(&format!("usher aaa session {words} --config aaa.toml")).with_code(0).out
    };
    assert_eq!(session("list").matches(&address).count(), 3);
    let asked = DisconnectNas::start(true);
    let said = session("disconnect 1");
    assert_eq!(
        said,
        "1 has ended, as its NAS confirms; it is listed until the NAS sends its Accounting-Stop\n"
    );
    assert_eq!(asked.request_count(), 1);
    let asked = DisconnectNas::start(true);
    assert!(session("disconnect 2 --json").contains("disconnect-acknowledged"));
    assert_eq!(asked.request_count(), 1);
    assert_eq!(session("list").matches(&address).count(), 3);
    // With a Disconnect-NAK, the user is still removed, and the command reports the failure.
    let asked = DisconnectNas::start(false);
    let said = usher("del ann --disconnect").with_code(1).err;
    assert!(said.contains("ann removed, but") && said.contains("refused"), "{said}");
    assert_eq!(asked.request_count(), 2);
    pap_login(ports.auth, "ann", "right").with_code(1);
    assert_eq!(server.terminate(), Some(0));
    // Without a server, no NAS can be asked.
    usher("add ann --password-file -").with_code(0);
    assert!(usher("del ann --disconnect").with_code(1).err.contains("no server is running"));
}

/// A dead NAS leaves its sessions, each with a slot of its user's session limit and an address of the pool.
#[test]
fn sessions_of_a_nas_that_died_are_forgotten() {
    let (place, ports) = (TempDir::new(), ServerPorts::reserve_free());
    let pool = "[[pool]]\nname = \"only\"\nranges = [\"10.9.0.1-10.9.0.1\"]\n";
    let config = ports.server_config(1, &format!("{SQLITE}{pool}"));
    let server = DaemonProcess::start(&place, &config);
    let add = "usher aaa user add ann --password-file - --check 'Pool-Name := only' --check 'Simultaneous-Use := 1'";
    place.run_shell(&format!("echo right | {add} --config aaa.toml")).with_code(0);
    let login = |port: u8, code| {
        let request = format!(
            "User-Name=ann,User-Password=right,NAS-Port={port},Calling-Station-Id=02-00-00-00-00-0{port},\
             Message-Authenticator=0x00"
        );
        run_radclient(ports.auth, "auth", &request).with_code(code)
    };
    let begin = |session: &str, user: &str, nas: &str, more: &str| {
        let what =
            format!("Acct-Status-Type=Start,Acct-Session-Id={session},User-Name={user},NAS-IP-Address={nas}");
        run_radclient(ports.acct, "acct", &format!("{what}{more}")).with_code(0);
    };
    assert!(login(1, 0).out.contains("Framed-IP-Address = 10.9.0.1"));
    begin("aaaa0001", "ann", "127.0.0.1", ",Calling-Station-Id=02-00-00-00-00-01,Framed-IP-Address=10.9.0.1");
    begin("aaaa0002", "bob", "127.0.0.1", "");
    begin("bbbb0001", "bob", "127.0.0.9", "");
    login(2, 1);
    let session = |words: &str| place.run_shell(&format!("usher aaa session {words} --config aaa.toml"));
    let said = session("forget aaaa00").with_code(1).err;
    assert!(
        said.contains("matches several sessions") && said.contains("ann") && said.contains("bob"),
        "{said}"
    );
    assert!(session("forget aaaa").with_code(1).err.contains("there is no open session aaaa"));
    assert!(session("forget --user eve").with_code(1).err.contains("no such session is open"));
    assert!(session("forget --nas elsewhere").with_code(1).err.contains("nor the name of a client"));
    session("forget").with_code(2);
    let all = session("list --json").with_code(0).stdout_json();
    let short = |n: usize| all[n]["short"].as_str().unwrap().to_owned();
    assert!((0..3).all(|n| short(n).len() == 6 && all[n]["unique"].as_str().unwrap().starts_with(&short(n))));
    assert!(session("list").with_code(0).out.contains(&short(0)));
    let dry = session("forget --nas 127.0.0.1 --dry-run --json").with_code(0).stdout_json();
    assert_eq!((dry["forgotten"].as_array().unwrap().len(), &dry["dry_run"]), (2, &true.into()));
    let said = session("forget --nas 127.0.0.1 --user ann").with_code(0).out;
    assert!(said.contains("ann") && said.contains("forgotten") && !said.contains("bob"), "{said}");
    server.wait_for_log("session forgotten");
    // The slot and the address are free.
    assert!(login(2, 0).out.contains("Framed-IP-Address = 10.9.0.1"));
    let raw = rusqlite::Connection::open(place.path("state/usher.db")).unwrap();
    let cause = |session: &str| -> (bool, Option<String>) {
        let row = "SELECT acctstoptime IS NOT NULL, acctterminatecause FROM radacct WHERE acctsessionid = ?1";
        raw.query_row(row, [session], |row| Ok((row.get(0)?, row.get(1)?))).unwrap()
    };
    assert_eq!(cause("aaaa0001"), (true, Some("Admin-Reset".to_owned())));
    assert!(!cause("aaaa0002").0);
    let said = session("forget --nas tests --json").with_code(0).stdout_json();
    assert_eq!(said["forgotten"].as_array().unwrap().len(), 2, "a client has networks: {said}");
    session("forget --nas tests").with_code(1);
    begin("cccc0001", "ann", "127.0.0.1", "");
    assert_eq!(server.terminate(), Some(0));
    // Works without a server, too.
    let said = session("forget cccc0001").with_code(0);
    assert!(said.err.contains("no server is running"), "{}", said.err);
    assert_eq!(cause("cccc0001"), (true, Some("Admin-Reset".to_owned())));
    session("forget cccc0001").with_code(1);
}
