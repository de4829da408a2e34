//! `usher pppoe serve` and `usher pppoe connect` with a cable between them. A host authenticates, gets an address and
//! reaches the concentrator. The log names its user as long as it is kept, also after the concentrator was killed.

mod askers;
mod capture;
mod crowd;
mod freeradius;
mod full;
mod radsec;
mod within;

use crate::namespace::NetworkNamespace;
use crate::place::{RunningProgram, TEST_TIMEOUT, TempDir, USHER, find_program};
use serde_json::Value;
use std::path::PathBuf;
use std::time::Instant;

/// The namespaces of a concentrator and a host, with a cable.
struct PppoeTestNetwork {
    ac: NetworkNamespace,
    host: NetworkNamespace,
    temp_dir: TempDir,
}

const SITE: &str = r#"
[listen]
interfaces = ["lan"]
control = "pppoe.sock"
metrics = "0.0.0.0:9100"
[service]
name = "campus"
address = "10.0.0.1"
pools = ["students"]
dns = ["10.0.0.53"]
[[pool]]
name = "students"
ranges = ["10.0.0.2-10.0.0.9"]
[[user]]
name = "ann"
password = "a long password"
[limits]
sessions_per_user = 1
keepalive = "1 s"
# A host on a busy machine may be late with its answers.
keepalive_failures = 100
[tracking]
folder = "log"
"#;

impl PppoeTestNetwork {
    fn new() -> Self {
        Self::with_config(SITE)
    }
    fn with_config(site: &str) -> Self {
        let (ac, host, place) = (NetworkNamespace::new(), NetworkNamespace::new(), TempDir::new());
        ac.run_ip(&["link", "add", "lan", "type", "veth", "peer", "name", "lan", "netns", host.name()]);
        for space in [&ac, &host] {
            space.run_ip(&["link", "set", "lan", "up"]);
        }
        place.write_private("pppoe.toml", site);
        place.write_private("password", "a long password\n");
        place.write_private("wrong", "another password\n");
        Self { ac, host, temp_dir: place }
    }
    fn start_concentrator(&self, name: &str) -> RunningProgram {
        let mut command = self.ac.command(USHER);
        command.args(["pppoe", "serve", "--config", "pppoe.toml"]);
        self.temp_dir.start_program(name, &mut command, "started")
    }
    fn connect_ann(&self, name: &str, protocol: &str, password: &str, ready: &str) -> RunningProgram {
        self.as_user(name, "ann", protocol, password, &["--keep"], ready)
    }
    /// Starts a client of this user with further options.
    #[track_caller]
    fn as_user(
        &self,
        name: &str,
        user: &str,
        protocol: &str,
        password: &str,
        more: &[&str],
        ready: &str,
    ) -> RunningProgram {
        let mut command = self.host.command(USHER);
        command.args(["pppoe", "connect", "lan", "--user", user, "--password-file", password]);
        command.args(["--protocols", protocol, "--network", "0.0.0.0/0"]).args(more);
        self.temp_dir.start_program(name, &mut command, ready)
    }
    /// Runs the program and returns its JSON.
    fn run_json_command(&self, words: &[&str]) -> Value {
        let mut command = find_program(USHER);
        command.args(words).args(["--json", "--config", "pppoe.toml"]).current_dir(self.temp_dir.path(""));
        let done = command.output().unwrap();
        assert!(done.status.success(), "{words:?}: {}", String::from_utf8_lossy(&done.stderr));
        serde_json::from_slice(&done.stdout).unwrap()
    }
    /// Reads the concentrator's health page by TCP, at its address of the link.
    fn read_health(&self) -> (bool, String) {
        let get =
            "exec 3<>/dev/tcp/10.0.0.1/9100 && printf 'GET /health HTTP/1.0\\r\\n\\r\\n' >&3 && cat <&3";
        self.host.run_program(&self.temp_dir, "timeout", &["60", "bash", "-c", get], "")
    }
    /// Adds a remote namespace, to which the concentrator routes the hosts' packets.
    fn add_remote_namespace(&self) -> NetworkNamespace {
        let world = NetworkNamespace::new();
        self.ac.run_ip(&["link", "add", "wan", "type", "veth", "peer", "name", "wan", "netns", world.name()]);
        for (space, address) in [(&self.ac, "198.51.100.1/24"), (&world, "198.51.100.2/24")] {
            space.run_ip(&["addr", "add", address, "dev", "wan"]);
            space.run_ip(&["link", "set", "wan", "up"]);
        }
        world.run_ip(&["route", "add", "10.0.0.0/24", "via", "198.51.100.1"]);
        let forward = "echo 1 > /proc/sys/net/ipv4/ip_forward";
        assert!(self.ac.run_program(&self.temp_dir, "sh", &["-c", forward], "").0);
        world
    }
    /// Opens a connection from the host to a remote server. Returns its translated port.
    #[track_caller]
    fn open_connection(&self, world: &NetworkNamespace) -> (RunningProgram, RunningProgram, u16) {
        let mut server = world.command(USHER);
        let any =
            "listen = [\"198.51.100.2:7000\"]\n[[asker]]\nprefix = \"0.0.0.0/0\"\ndisclose = \"hidden\"\n";
        self.temp_dir.write_private("server.toml", any);
        server.args(["ident", "serve", "--config", "server.toml"]);
        let server = self.temp_dir.start_program("server", &mut server, "started");
        let mut user = self.host.command("bash");
        user.args(["-c", "exec 3<>/dev/tcp/198.51.100.2/7000; echo open; exec sleep 3600"]);
        let user = self.temp_dir.start_program("user", &mut user, "open");
        // Local 198.51.100.2:7000, from 198.51.100.1, as the kernel writes it in hexadecimal.
        let (_, table) = world.run_program(&self.temp_dir, "cat", &["/proc/net/tcp"], "");
        let line = table.lines().find(|line| line.contains("026433C6:1B58 016433C6:"));
        let line = line.unwrap_or_else(|| panic!("no connection:\n{table}"));
        let port = line.split("016433C6:").nth(1).and_then(|rest| rest.get(..4)).unwrap();
        (server, user, u16::from_str_radix(port, 16).unwrap())
    }
    /// Returns the contents of the log's files of this kind.
    fn read_log(&self, kind: &str) -> String {
        let all = std::fs::read_dir(self.temp_dir.path("log")).unwrap().map(|entry| entry.unwrap().path());
        let of = |path: &PathBuf| path.file_name().unwrap().to_str().unwrap().starts_with(kind);
        all.filter(of).map(|path| std::fs::read_to_string(path).unwrap()).collect()
    }
    /// Waits for the only session and returns it.
    fn wait_for_session(&self) -> Value {
        let begun = Instant::now();
        loop {
            let status = self.run_json_command(&["pppoe", "sessions"]);
            match status["sessions"].as_array().unwrap().as_slice() {
                [one] if one["mtu"] != 0 => return one.clone(),
                other => assert!(begun.elapsed() < TEST_TIMEOUT, "{other:?}"),
            }
            std::thread::sleep(std::time::Duration::from_millis(50));
        }
    }
}

#[test]
fn an_authenticated_host_is_online_and_found_by_its_address() {
    let cable = PppoeTestNetwork::new();
    let mut concentrator = cable.start_concentrator("ac");
    assert!(!cable.read_health().0, "nothing passes before");
    let client = cable.connect_ann("client", "mschapv2", "password", "connected");
    let (answers, said) = cable.read_health();
    assert!(answers && said.contains("serving"), "{said}\n{}\n{}", client.log(), concentrator.log());
    let session = cable.wait_for_session();
    assert_eq!((session["user"].as_str(), session["port"].as_str()), (Some("ann"), Some("lan")));
    let address = session["ipv4"].as_str().unwrap().to_owned();
    let who = cable.run_json_command(&["who", &address]);
    assert_eq!((who["found"][0]["user"].as_str(), who["found"].as_array().unwrap().len()), (Some("ann"), 1));
    assert_eq!(who["found"][0]["until"], Value::Null, "it still has it");
    // After a disconnect, the client reconnects.
    assert_eq!(cable.run_json_command(&["pppoe", "disconnect", "ann"])["sessions"], 1);
    concentrator.wait_for("ended");
    let again = cable.wait_for_session();
    assert!(again["id"].as_u64() > session["id"].as_u64(), "{again}");
    assert_eq!(again["ipv4"].as_str(), Some(&*address), "and gets its address again");
    drop(client);
    assert_eq!(concentrator.terminate(), Some(0), "{}", concentrator.log());
    // Without a concentrator the files answer, and the audit has both queries.
    let began = who["found"][0]["since"].as_str().unwrap();
    let later = cable.run_json_command(&["who", &address, "--at", began]);
    assert_eq!(later["found"][0]["user"].as_str(), Some("ann"), "{later}");
    let audit = cable.read_log("audit-");
    assert_eq!(audit.lines().count(), 2, "{audit}");
}

/// The same with session packets that stay in the kernel.
#[test]
fn ebpf_carries_a_host_only_after_its_login() {
    let cable = PppoeTestNetwork::with_config(&format!("{SITE}[data]\nmode = \"ebpf\"\n"));
    let mut concentrator = cable.start_concentrator("ac");
    let refused = cable.connect_ann("refused", "chap", "wrong", "rejected this user name and password");
    assert!(!cable.read_health().0, "nothing passes for whoever has not: {}", concentrator.log());
    drop(refused);
    let client = cable.connect_ann("client", "chap", "password", "connected");
    let (answers, said) = cable.read_health();
    assert!(answers && said.contains("serving"), "{said}\n{}\n{}", client.log(), concentrator.log());
    assert_eq!(cable.wait_for_session()["user"].as_str(), Some("ann"));
    drop(client);
    assert_eq!(concentrator.terminate(), Some(0), "{}", concentrator.log());
    let (_, links) = cable.ac.run_program(&cable.temp_dir, "ip", &["-j", "link", "show", "dev", "lan"], "");
    assert!(!links.contains("prog"), "its program has left the access interface: {links}");
}

#[test]
fn who_does_not_know_the_password_reaches_nothing() {
    let cable = PppoeTestNetwork::new();
    let mut concentrator = cable.start_concentrator("ac");
    let client = cable.connect_ann("client", "chap", "wrong", "rejected this user name and password");
    concentrator.wait_for("login failed");
    assert!(!cable.read_health().0, "{}", client.log());
    assert!(cable.run_json_command(&["pppoe", "sessions"])["sessions"].as_array().unwrap().is_empty());
}

#[test]
fn after_a_kill_lost_sessions_are_closed_and_hosts_come_back() {
    let cable = PppoeTestNetwork::new();
    let concentrator = cable.start_concentrator("ac");
    let client = cable.connect_ann("client", "eap", "password", "connected");
    let before = cable.wait_for_session();
    concentrator.signal("KILL");
    drop(concentrator);
    let concentrator = cable.start_concentrator("again");
    let after = cable.wait_for_session();
    assert_ne!(before["session"], after["session"]);
    let (answers, said) = cable.read_health();
    assert!(answers && said.contains("serving"), "{said}\n{}", client.log());
    let status = cable.run_json_command(&["pppoe", "sessions"]);
    assert_eq!(status["counters"]["sessions_lost"], 1, "{}", concentrator.log());
    // Whether it has the same address again or another, nobody has it beside.
    let who = cable.run_json_command(&["who", after["ipv4"].as_str().unwrap()]);
    let found = who["found"].as_array().unwrap();
    assert_eq!((found.len(), &found[0]["session"]), (1, &after["session"]), "{who}");
}

/// Queries the user of a connection by IDENT, from a namespace.
#[track_caller]
fn query_ident(space: &NetworkNamespace, place: &TempDir, address: &str, ports: &str) -> String {
    space.run_program(place, USHER, &["ident", "ask", address, ports], "").1.trim().to_owned()
}

#[test]
fn an_asker_hears_the_sessions_user_whatever_the_host_says() {
    let ident_here = "[ident]\nlisten = [\"0.0.0.0:1113\"]\nothers = \"user-name\"\n";
    let cable = PppoeTestNetwork::with_config(&format!("{SITE}{ident_here}"));
    let mut concentrator = cable.start_concentrator("ac");
    let client = cable.connect_ann("client", "chap", "password", "connected");
    let address = cable.wait_for_session()["ipv4"].as_str().unwrap().to_owned();
    // The host's own IDENT server is not reached.
    assert_eq!(
        query_ident(&cable.ac, &cable.temp_dir, &address, "40000,25"),
        "ann (UNIX)",
        "{}",
        client.log()
    );
    drop(client);
    let audit = cable.read_log("audit-");
    assert!(audit.contains("ann (UNIX)"), "{audit}");
    assert_eq!(concentrator.terminate(), Some(0));
    let (_, rules) = cable.ac.run_program(&cable.temp_dir, "nft", &["list", "tables"], "");
    assert!(!rules.contains("usher_pppoe"), "the rules are gone: {rules}");
}

#[test]
fn ident_finds_the_user_of_a_connection_from_a_shared_address() {
    let nat = "translations = true\n[tracking.ipfix]\ncollectors = [\"198.51.100.2:4739\"]\n[data]\nnat = \"masquerade\"\n\
               [ident]\nothers = \"user-name\"\nmasquerade = [\"198.51.100.1\"]\n";
    let users = "[[user]]\nname = \"eve\"\npassword = \"a long password\"\n[[user]]\nname = \"ann\"";
    let one =
        SITE.replace("10.0.0.2-10.0.0.9", "10.0.0.2-10.0.0.2").replace("[[user]]\nname = \"ann\"", users);
    let cable = PppoeTestNetwork::with_config(&format!("{one}{nat}"));
    let world = cable.add_remote_namespace();
    let concentrator = cable.start_concentrator("ac");
    let mut client = cable.connect_ann("client", "chap", "password", "connected");
    cable.wait_for_session();
    let (_server, _user, port) = cable.open_connection(&world);
    let said = query_ident(&world, &cable.temp_dir, "198.51.100.1", &format!("{port},7000"));
    assert_eq!(said, "ann (UNIX)", "{}\n{}", concentrator.log(), client.log());
    let other = query_ident(&world, &cable.temp_dir, "198.51.100.1", &format!("{},7000", port ^ 1));
    assert!(other.contains("NO-USER"), "{other}\n{}", concentrator.log());
    // The log also names the user after the connection's end, some time later. Other ports have no user.
    let outside = format!("198.51.100.1:{port}");
    let begun = Instant::now();
    while !cable.read_log("translations-").contains(&format!("\"outside\":\"{outside}\"")) {
        assert!(begun.elapsed() < TEST_TIMEOUT, "{outside} is not logged:\n{}", concentrator.log());
        std::thread::sleep(std::time::Duration::from_millis(50));
    }
    let who = cable.run_json_command(&["who", &outside]);
    assert_eq!(who["found"][0]["user"], "ann", "{who}\n{}", concentrator.log());
    let counted =
        |name: &str| cable.run_json_command(&["pppoe", "sessions"])["counters"][name].as_u64().unwrap_or(0);
    let begun = Instant::now();
    while counted("translations_logged") == 0 || counted("ipfix_records") < 2 {
        assert!(begun.elapsed() < TEST_TIMEOUT, "{}", concentrator.log());
        std::thread::sleep(std::time::Duration::from_millis(50));
    }
    assert_eq!(counted("translations_missed"), 0, "{}", concentrator.log());
    // The address's next user must not be named for a connection that the other end still has.
    client.terminate();
    let _eve = cable.as_user("eve", "eve", "chap", "password", &["--keep"], "connected");
    assert_eq!(cable.wait_for_session()["user"], "eve");
    let said = query_ident(&world, &cable.temp_dir, "198.51.100.1", &format!("{port},7000"));
    assert!(said.contains("NO-USER"), "{said}\n{}", concentrator.log());
    let now = |begun: Instant| {
        let arguments = ["who", &outside, "--json", "--config", "pppoe.toml"];
        let done = find_program(USHER).args(arguments).current_dir(cable.temp_dir.path("")).output().unwrap();
        let said = String::from_utf8(done.stdout).unwrap();
        assert!(
            !said.contains("\"eve\"") && begun.elapsed() < TEST_TIMEOUT,
            "{said}\n{}",
            concentrator.log()
        );
        // In the second in which it ended, it was ann's.
        done.status.code() == Some(1)
    };
    let begun = Instant::now();
    while !now(begun) {
        std::thread::sleep(std::time::Duration::from_millis(100));
    }
}
