//! IDENT: our client with oidentd, and our server with Net::Ident and PostgreSQL. Each test has its own network,
//! where port 113 is free.

use crate::namespace::{ADDRESS, NetworkNamespace};
use crate::place::{RunningProgram, TEST_TIMEOUT, TempDir, USHER, run_program};
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// Accepts connections and queries the user of each.
const SERVER: &str = r#"use IO::Socket::INET; use Net::Ident; $| = 1;
my $listener = IO::Socket::INET->new(LocalAddr => "10.99.0.1:7000", Listen => 5, ReuseAddr => 1) or die $!;
print "listening\n";
my @open;
while (my $stream = $listener->accept) {
    my ($user, $system, $error) = Net::Ident::lookup($stream, 100);
    printf "port %d: %s\n", $stream->peerport, defined $user ? "$user ($system)" : $error;
    push @open, $stream;
}
"#;
/// Connects there and stays connected.
const CLIENT: &str = r#"use IO::Socket::INET; $| = 1;
my $stream = IO::Socket::INET->new(PeerAddr => "10.99.0.1:7000") or die $!;
printf "from port %d\n", $stream->sockport;
<$stream>;
"#;

struct IdentTestNetwork {
    temp_dir: TempDir,
    space: NetworkNamespace,
}

impl IdentTestNetwork {
    fn new() -> Self {
        let (place, space) = (TempDir::new(), NetworkNamespace::new());
        for (name, text) in [("server.pl", SERVER), ("client.pl", CLIENT)] {
            let path = place.write_private(name, text);
            std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o644)).unwrap();
        }
        Self { temp_dir: place, space }
    }

    /// Starts our server at port 113.
    #[track_caller]
    fn start_server(&self, disclose: &str) -> RunningProgram {
        let text = format!(
            "listen = [\"{ADDRESS}:113\"]\n[[asker]]\nprefix = \"{ADDRESS}\"\ndisclose = \"{disclose}\"\n"
        );
        self.temp_dir.write_private("ident.toml", &text);
        let mut command = self.space.command(USHER);
        command.args(["ident", "serve", "--config", "ident.toml"]);
        self.temp_dir.start_program("ident", &mut command, "started")
    }

    /// Connects as the user nobody and returns the connection's port.
    #[track_caller]
    fn open_connection(&self, name: &str) -> (RunningProgram, u16) {
        let mut command = self.space.command("runuser");
        command.args(["-u", "nobody", "--", "perl", "client.pl"]);
        let client = self.temp_dir.start_program(name, &mut command, "from port");
        let log = client.log();
        let port = log.split_whitespace().last().and_then(|port| port.parse().ok());
        (client, port.unwrap_or_else(|| panic!("{log}")))
    }

    /// Queries the user of a connection from this port to port 7000.
    fn query_port(&self, port: u16) -> (bool, String) {
        let ports = format!("{port},7000");
        self.space.run_program(
            &self.temp_dir,
            USHER,
            &["ident", "ask", "--from", ADDRESS, ADDRESS, &ports],
            "",
        )
    }
}

#[test]
fn oidentd_tells_us_what_we_would_tell() {
    let world = IdentTestNetwork::new();
    let mut perl = world.space.command("perl");
    let mut server = world.temp_dir.start_program("server", perl.arg("server.pl"), "listening");
    let (_client, port) = world.open_connection("client");
    server.wait_for(&format!("port {port}: "));
    world.temp_dir.write_private("oidentd.conf", "default {\n    default {\n        deny spoof\n    }\n}\n");
    let mut oidentd = world.space.command("oidentd");
    oidentd.args(["-i", "-S", "-d", "-a", ADDRESS, "-C", "oidentd.conf"]);
    let theirs = world.temp_dir.start_program("oidentd", &mut oidentd, "");
    let begun = Instant::now();
    while world.query_port(port).1.contains("refused") {
        assert!(begun.elapsed() < TEST_TIMEOUT, "oidentd never listens");
        std::thread::sleep(Duration::from_millis(50));
    }
    let asked = || [port, 9].map(|port| world.query_port(port));
    let told = asked();
    assert_eq!(told[0], (true, "nobody (UNIX)\n".to_owned()), "{}", theirs.log());
    assert!(!told[1].0 && told[1].1.contains("NO-USER"), "{told:?}");
    drop(theirs);
    let _ours = world.start_server("user-name");
    assert_eq!(asked(), told);
}

#[test]
fn net_ident_hears_from_us_who_connects() {
    let world = IdentTestNetwork::new();
    let mut perl = world.space.command("perl");
    let mut server = world.temp_dir.start_program("server", perl.arg("server.pl"), "listening");
    for (disclose, told) in
        [("user-name", "nobody (UNIX)"), ("uid", "65534 (OTHER)"), ("hidden", "HIDDEN-USER")]
    {
        let mut ours = world.start_server(disclose);
        let (_client, port) = world.open_connection(disclose);
        server.wait_for(&format!("port {port}: {told}"));
        ours.wait_for(&format!("remote={ADDRESS}:7000 answer="));
        assert_eq!(ours.terminate(), Some(0));
    }
}

/// PostgreSQL in the test's network, with authentication by IDENT.
struct PostgresServer<'a> {
    world: &'a IdentTestNetwork,
    programs: PathBuf,
    _server: RunningProgram,
}

impl<'a> PostgresServer<'a> {
    #[track_caller]
    fn start(world: &'a IdentTestNetwork) -> Self {
        let versions = std::fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten();
        let programs = versions.map(|version| version.path().join("bin")).max();
        let programs = programs.expect("PostgreSQL is installed; `scripts/setup test` does it");
        let (folder, data) = (world.temp_dir.path(""), world.temp_dir.path_text("data"));
        let root = |name, words: &[&str]| {
            let (right, said) = run_program(&folder, name, words, "");
            assert!(right, "{name}: {said}");
        };
        // The server rejects root. Debian's package creates a user for it.
        root("install", &["-d", "-o", "postgres", &data]);
        let initdb = programs.join("initdb").display().to_string();
        root("runuser", &["-u", "postgres", "--", &initdb, "-A", "trust", "-D", &data]);
        let rules = format!("local all all trust\nhost all all {ADDRESS}/32 ident\n");
        std::fs::write(world.temp_dir.path("data/pg_hba.conf"), rules).unwrap();
        let mut command = world.space.command("runuser");
        command.args(["-u", "postgres", "--"]).arg(programs.join("postgres"));
        command.args(["-D", &data, "-k", &data, "-h", ADDRESS, "-p", "5432"]);
        let server = world.temp_dir.start_program("postgres", &mut command, "ready to accept connections");
        let postgres = Self { world, programs, _server: server };
        let (right, said) = postgres.run_psql("postgres", &data, "postgres", "CREATE ROLE nobody LOGIN");
        assert!(right, "{said}");
        postgres
    }

    /// Connects as a system user who requests a database role, and returns the output.
    fn run_psql(&self, user: &str, host: &str, role: &str, sql: &str) -> (bool, String) {
        let psql = self.programs.join("psql").display().to_string();
        let words = [
            "-u", user, "--", &psql, "-At", "-h", host, "-p", "5432", "-U", role, "-d", "postgres", "-c", sql,
        ];
        self.world.space.run_program(&self.world.temp_dir, "runuser", &words, "")
    }
}

#[test]
fn postgresql_admits_whom_we_name() {
    let world = IdentTestNetwork::new();
    let postgres = PostgresServer::start(&world);
    let login = |user, role| postgres.run_psql(user, ADDRESS, role, "SELECT current_user");
    let refused = |(right, said): (bool, String)| {
        assert!(!right && said.contains("Ident authentication failed"), "{said}");
    };
    refused(login("nobody", "nobody"));
    let mut ours = world.start_server("user-name");
    assert_eq!(login("nobody", "nobody"), (true, "nobody\n".to_owned()), "{}", ours.log());
    assert_eq!(login("postgres", "postgres"), (true, "postgres\n".to_owned()));
    refused(login("nobody", "postgres"));
    ours.wait_for(&format!("remote={ADDRESS}:5432 answer=nobody (UNIX)"));
    assert_eq!(ours.terminate(), Some(0));
    let _hidden = world.start_server("hidden");
    refused(login("nobody", "nobody"));
}
