//! `usher ident`: a server for this host's connections, queried by the program and by hand.

use crate::aaa::daemon::{DaemonProcess, write_private};
use crate::place::{ProgramOutput, TEST_TIMEOUT, TempDir, own_address, own_port, wait_or_fail};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{IpAddr, Ipv6Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::time::{Duration, Instant};
use usher_ident_service::config::LimitsTable;

/// A server with its own port, and a connection of this process for queries.
struct IdentFixture {
    server: DaemonProcess,
    address: SocketAddr,
    /// The connection's ends: the one at the server's address, and the other.
    ends: (TcpStream, TcpStream),
}

/// Opens a connection to this address. Returns the end there first.
fn open_connection(to: IpAddr) -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind((to, 0)).unwrap();
    let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    (listener.accept().unwrap().0, client)
}

impl IdentFixture {
    fn new(place: &TempDir, address: IpAddr, more: &str) -> Self {
        let at = SocketAddr::new(address, own_port());
        write_private(place, "ident.toml", &format!("listen = [\"{at}\"]\n{more}"));
        let server = DaemonProcess::run_command(&mut place.usher_command(&[
            "ident",
            "serve",
            "--config",
            "ident.toml",
        ]));
        server.wait_for_log("started");
        Self { server, address: at, ends: open_connection(address) }
    }

    /// Returns the connection's ports, the one at the server's address first.
    fn port_pair(&self) -> String {
        let port = |end: &TcpStream| end.local_addr().unwrap().port();
        format!("{},{}", port(&self.ends.0), port(&self.ends.1))
    }

    fn run_query(&self, place: &TempDir, ports: &str) -> ProgramOutput {
        let (host, port) = (self.address.ip().to_string(), self.address.port().to_string());
        place.run_usher(&["ident", "ask", &host, ports, "--port", &port, "--json"])
    }

    /// Sends a text to the server.
    fn send_text(&self, text: &str) -> (TcpStream, BufReader<TcpStream>) {
        let mut stream = TcpStream::connect(self.address).unwrap();
        stream.set_read_timeout(Some(TEST_TIMEOUT)).unwrap();
        // A rejected connection may be reset already. Reading shows that.
        let _ = stream.write_all(text.as_bytes());
        (stream.try_clone().unwrap(), BufReader::new(stream))
    }
}

/// Returns this process's user by name and number.
fn current_user(place: &TempDir) -> (String, String) {
    let id = |option| place.run_shell(&format!("id {option}")).with_code(0).out.trim().to_owned();
    (id("-un"), id("-u"))
}

fn asker_tables(disclose: &str) -> String {
    let table = |prefix| format!("[[asker]]\nprefix = \"{prefix}\"\ndisclose = \"{disclose}\"\n");
    table("127.0.0.0/8") + &table("::1")
}

#[test]
fn a_connections_owner_is_told_by_ipv4_and_ipv6() {
    let place = TempDir::new();
    let (name, _) = current_user(&place);
    for address in [own_address().into(), Ipv6Addr::LOCALHOST.into()] {
        let world = IdentFixture::new(&place, address, "");
        let said = world.run_query(&place, &world.port_pair()).with_code(0).stdout_json();
        assert_eq!((said["user"].as_str(), said["opsys"].as_str()), (Some(&name[..]), Some("UNIX")));
        let end = |end: &TcpStream| end.local_addr().unwrap().to_string();
        let connection = format!("{},{}", end(&world.ends.1), end(&world.ends.0));
        let port = world.address.port().to_string();
        let asked = ["ident", "ask", "--connection", &connection, "--port", &port];
        assert_eq!(place.run_usher(&asked).with_code(0).out, format!("{name} (UNIX)\n"));
        // The connection does not exist.
        let nobody = world.run_query(&place, "1,2");
        assert_eq!((nobody.code, nobody.stdout_json()["error"].as_str()), (Some(1), Some("NO-USER")));
        assert!(nobody.err.contains("NO-USER: the host has no such connection"), "{}", nobody.err);
        world.server.wait_for_log(&format!("answer={name} (UNIX)"));
        assert_eq!(world.server.terminate(), Some(0));
        // No server listens.
        let refused = place.run_usher(&asked);
        assert_eq!(refused.code, Some(1));
        assert!(refused.err.contains("no IDENT server listens there"), "{}", refused.err);
    }
}

#[test]
fn disclosure_follows_the_configuration_of_a_running_server() {
    let place = TempDir::new();
    let (name, uid) = current_user(&place);
    write_private(&place, "ident.key", "0123456789abcdef\n");
    let mut world = IdentFixture::new(&place, own_address().into(), &asker_tables("user-name"));
    let changed = |world: &IdentFixture, more: &str| {
        write_private(&place, "ident.toml", &format!("listen = [\"{}\"]\n{more}", world.address));
        let before = world.server.log().matches("read again").count();
        world.server.send_signal("HUP");
        wait_or_fail(|| world.server.log(), || world.server.log().matches("read again").count() > before);
    };
    let told = |world: &IdentFixture| world.run_query(&place, &world.port_pair());
    assert_eq!(told(&world).stdout_json()["user"], name);
    changed(&world, &asker_tables("uid"));
    assert_eq!(
        (told(&world).stdout_json()["user"].clone(), told(&world).stdout_json()["opsys"].clone()),
        (uid.into(), "OTHER".into())
    );
    changed(&world, &asker_tables("hidden"));
    assert_eq!(told(&world).stdout_json()["error"], "HIDDEN-USER");
    changed(&world, &format!("hide = [\"{name}\"]\n{}", asker_tables("user-name")));
    assert_eq!(told(&world).stdout_json()["error"], "HIDDEN-USER");
    changed(&world, &asker_tables("nothing"));
    assert_eq!(told(&world).stdout_json()["error"], "UNKNOWN-ERROR");
    changed(&world, &(asker_tables("token") + "[token]\nkey_file = \"ident.key\"\n"));
    let token = told(&world).stdout_json()["user"].as_str().unwrap().to_owned();
    let reveal = |file: &str| place.run_usher(&["ident", "reveal", &token, "--config", file, "--json"]);
    let revealed = reveal("ident.toml").with_code(0).stdout_json();
    assert_eq!(revealed["user"], name);
    assert_eq!(revealed["local"], world.ends.0.local_addr().unwrap().to_string());
    assert_eq!(revealed["remote"], world.ends.1.local_addr().unwrap().to_string());
    write_private(&place, "other.key", "fedcba9876543210\n");
    write_private(&place, "other.toml", "[token]\nkey_file = \"other.key\"\n");
    let dashed = place.run_usher(&["ident", "reveal", "-no-token", "--config", "ident.toml"]);
    assert!(dashed.code == Some(1) && dashed.err.contains("does not fit the key"), "{dashed:?}");
    let refused = reveal("other.toml");
    assert!(refused.code == Some(1) && refused.err.contains("does not fit the key"), "{refused:?}");
    changed(&world, "[[asker]]\nprefix = \"192.0.2.0/24\"\ndisclose = \"user-name\"\n");
    assert!(told(&world).err.contains("closed the connection without a reply"));
    // A faulty file changes nothing.
    write_private(&place, "ident.toml", "lisen = []\n");
    world.server.send_signal("HUP");
    world.server.wait_for_log("reload failed");
    assert!(told(&world).err.contains("closed the connection without a reply"));
    // A closed connection has no user.
    changed(&world, &asker_tables("user-name"));
    let ports = world.port_pair();
    world.ends = open_connection(own_address().into());
    assert_eq!(world.run_query(&place, &ports).stdout_json()["error"], "NO-USER");
}

#[test]
fn whoever_asks_badly_is_answered_or_closed_within_limits() {
    let place = TempDir::new();
    let (name, _) = current_user(&place);
    let limits = "[limits]\nconnections_per_network = 3\npipeline = 4\n";
    let world = IdentFixture::new(&place, own_address().into(), limits);
    let ports = world.port_pair();
    let (stream, mut replies) = world.send_text(&format!(" {ports} \n0,70000\r\n-1,x\r\n"));
    let mut line = String::new();
    for _ in 0..3 {
        replies.read_line(&mut line).unwrap();
    }
    assert_eq!(
        line,
        format!("{ports}:USERID:UNIX:{name}\r\n0,70000:ERROR:INVALID-PORT\r\n0,0:ERROR:INVALID-PORT\r\n")
    );
    stream.shutdown(Shutdown::Write).unwrap();
    assert_eq!(replies.read(&mut [0]).unwrap(), 0, "it is closed");
    // A line without an end.
    let (_stream, mut replies) = world.send_text(&"9".repeat(5000));
    assert!(!matches!(replies.read(&mut [0]), Ok(1..)));
    // More queries at once than may wait.
    let (_stream, mut replies) = world.send_text(&format!("{ports}\n").repeat(100));
    let mut all = String::new();
    replies.read_to_string(&mut all).unwrap();
    assert!((1..=100).contains(&all.lines().count()) && all.ends_with("\r\n"), "{all}");
    // More connections than allowed.
    let held: Vec<_> = (0..3).map(|_| world.send_text("")).collect();
    let (_stream, mut replies) = world.send_text(&format!("{ports}\n"));
    assert!(!matches!(replies.read(&mut [0]), Ok(1..)), "a fourth of the same address is refused");
    drop(held);
    world.server.send_signal("TERM");
    world.server.wait_for_log("stopped");
    let log = world.server.log();
    for counted in
        ["not_a_pair=1", "out_of_range=1", "line_too_long=1", "pipeline_full=1", "refused_network=1"]
    {
        assert!(log.contains(&format!(" {counted}")), "{counted}: {log}");
    }
}

#[test]
fn whoever_ends_its_side_behind_its_query_is_answered() {
    let place = TempDir::new();
    let (name, _) = current_user(&place);
    let world = IdentFixture::new(&place, own_address().into(), "");
    let ports = world.port_pair();
    for _ in 0..20 {
        let (stream, mut replies) = world.send_text(&format!("{ports}\r\n"));
        stream.shutdown(Shutdown::Write).unwrap();
        let mut all = String::new();
        replies.read_to_string(&mut all).unwrap();
        assert_eq!(all, format!("{ports}:USERID:UNIX:{name}\r\n"));
    }
}

#[test]
fn an_idle_connection_closes_after_the_configured_timeout() {
    let place = TempDir::new();
    let world = IdentFixture::new(&place, own_address().into(), "[limits]\nidle_timeout = \"1 s\"\n");
    let begun = Instant::now();
    let (stream, mut replies) = world.send_text(&format!("{}\n", world.port_pair()));
    // Half of the default timeout.
    let default = LimitsTable::default().idle_timeout.get().as_secs_f64();
    stream.set_read_timeout(Some(Duration::from_secs_f64(default / 2.0))).unwrap();
    replies.read_line(&mut String::new()).unwrap();
    assert_eq!(replies.read(&mut [0]).unwrap(), 0, "it is closed");
    assert!(begun.elapsed() >= Duration::from_secs(1), "{:?}", begun.elapsed());
    world.server.send_signal("TERM");
    world.server.wait_for_log("stopped");
    assert!(world.server.log().contains(" idle=1"), "{}", world.server.log());
}

#[test]
fn faults_are_told_with_their_place_and_wrong_usage_ends_with_2() {
    let place = TempDir::new();
    place.write("right.toml", &asker_tables("hidden"));
    assert_eq!(place.run_usher(&["ident", "check", "right.toml"]).with_code(0).out, "right.toml: valid\n");
    place.write("wrong.toml", "hiden = []\n[[asker]]\nprefix = \"::/0\"\ndisclose = \"token\"\n");
    let said = place.run_usher(&["ident", "check", "wrong.toml"]).with_code(2).err;
    assert!(
        said.contains("wrong.toml:1:1: unknown key \"hiden\" at the top; did you mean \"hide\"?"),
        "{said}"
    );
    let json = place.run_usher(&["--json", "ident", "check", "wrong.toml"]).with_code(2).stdout_json();
    assert_eq!(json["faults"][0]["line"], 1);
    for wrong in [
        &["ident", "serve", "--config", "wrong.toml"][..],
        &["ident", "serve", "--config", "none.toml"],
        &["ident", "check", "none.toml"],
        &["ident", "reveal", "x", "--config", "right.toml"],
        &["ident", "ask", "127.0.0.1"],
        &["ident", "ask", "127.0.0.1", "0,1"],
        &["ident", "ask", "127.0.0.1", "1"],
        &["ident", "ask", "--connection", "127.0.0.1:1"],
        &["ident", "ask", "127.0.0.1", "1,2", "--timeout", "3"],
        &["ident", "ask"],
    ] {
        let said = place.run_usher(wrong);
        assert!(said.code == Some(2) && !said.err.is_empty(), "{wrong:?}: {said:?}");
    }
    place.write("nowhere.toml", "listen = []\n");
    let nowhere = place.run_usher(&["ident", "serve", "--config", "nowhere.toml"]).with_code(2);
    assert!(nowhere.err.contains("no address to listen on"), "{}", nowhere.err);
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let refused = place.run_usher(&["ident", "serve", "--config", "right.toml", "--listen", &address]);
    assert!(refused.code == Some(1) && refused.err.contains("cannot listen on"), "{refused:?}");
}
