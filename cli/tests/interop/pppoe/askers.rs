//! Servers that query IDENT learn the PPPoE session's user, by both methods of the paper, whatever the host's
//! own identd answers. The servers are an IRC server, a proxy and a mail server. Other tests cover oidentd as a
//! forwarder, and active FTP.

use super::{PppoeTestNetwork, SITE, query_ident};
use crate::namespace::NetworkNamespace;
use crate::place::{RunningProgram, TEST_TIMEOUT, TempDir};
use std::os::unix::fs::PermissionsExt;
use std::time::Instant;

/// Address of the servers.
const SERVER: &str = "198.51.100.2";

/// Writes to a TCP port of the servers from a host, and returns the first matching line of the answer.
#[track_caller]
fn exchange_line(host: &NetworkNamespace, place: &TempDir, port: u16, says: &str, until: &str) -> String {
    let script = format!("exec 3<>/dev/tcp/{SERVER}/{port}; printf '{says}' >&3; grep -m1 '{until}' <&3");
    host.run_program(place, "timeout", &["100", "bash", "-c", &script], "").1
}

/// Starts an identd on a host, which answers every query with the user `liar`.
#[track_caller]
fn start_lying_identd(host: &NetworkNamespace, place: &TempDir, port: &str) -> RunningProgram {
    let mut command = host.command("oidentd");
    command.args(["-i", "-S", "-R", "liar", "-p", port]);
    let running = place.start_program(&format!("liar-{port}"), &mut command, "");
    // It says nothing when it listens.
    let begun = Instant::now();
    let open = format!("exec 3<>/dev/tcp/127.0.0.1/{port}");
    while !host.run_program(place, "timeout", &["5", "bash", "-c", &open], "").0 {
        assert!(begun.elapsed() < TEST_TIMEOUT, "{}", running.log());
    }
    running
}

/// A test network: a concentrator, a host with a lying identd, and remote servers.
struct CampusTestNetwork {
    cable: PppoeTestNetwork,
    world: NetworkNamespace,
    address: String,
    running: Vec<RunningProgram>,
}

impl CampusTestNetwork {
    #[track_caller]
    fn new(data: &str) -> Self {
        let ident = "[ident]\nothers = \"user-name\"\nmasquerade = [\"198.51.100.1\"]\n";
        let cable = PppoeTestNetwork::with_config(&format!("{SITE}{data}{ident}"));
        let world = cable.add_remote_namespace();
        let concentrator = cable.start_concentrator("ac");
        let client = cable.connect_ann("client", "chap", "password", "connected");
        let address = cable.wait_for_session()["ipv4"].as_str().unwrap().to_owned();
        let liar = start_lying_identd(&cable.host, &cable.temp_dir, "113");
        Self { cable, world, address, running: vec![liar, client, concentrator] }
    }

    fn log(&self) -> String {
        self.running.iter().map(RunningProgram::log).collect()
    }

    /// Returns the user that an IRC server shows for a client that claims another name.
    #[track_caller]
    fn query_irc(&self) -> String {
        let place = &self.cable.temp_dir;
        let text = format!(
            "[Global]\nName = irc.test\nInfo = test\nListen = {SERVER}\nPorts = 6667\nMotdPhrase = hi\nServerUID = root\nServerGID = root\n\
             [Options]\nIdent = yes\nDNS = yes\nPAM = no\n"
        );
        place.write_private("ngircd.conf", &text);
        let mut command = self.world.command("ngircd");
        command.args(["-n", "-f", &place.path_text("ngircd.conf")]);
        let server = place.start_program("ngircd", &mut command, "ready");
        let says = "NICK liar\\r\\nUSER liar 0 * :x\\r\\nWHOIS liar\\r\\n";
        let said = exchange_line(&self.cable.host, place, 6667, says, " 311 ");
        assert!(said.contains(" 311 liar liar "), "{said}\n{}\n{}", server.log(), self.log());
        said.split(' ').nth(4).unwrap_or_default().to_owned()
    }

    /// Returns the answer and the log of a proxy that permits one user.
    #[track_caller]
    fn query_squid(&self, allowed: &str) -> (String, String) {
        let (place, folder) = (&self.cable.temp_dir, self.cable.temp_dir.path_text("squid"));
        std::fs::create_dir_all(&folder).unwrap();
        // squid does not run as root.
        std::fs::set_permissions(&folder, std::fs::Permissions::from_mode(0o777)).unwrap();
        place.write_private(
            "squid.conf",
            &format!(
                "http_port {SERVER}:3128\npid_filename {folder}/pid\ncache_log {folder}/cache\naccess_log stdio:{folder}/access\n\
                 cache deny all\ncoredump_dir {folder}\npinger_enable off\nvisible_hostname proxy.test\n\
                 shutdown_lifetime 1 seconds\nacl user ident {allowed}\nident_lookup_access allow all\nhttp_access allow user\n\
                 http_access deny all\n"
            ),
        );
        let mut command = self.world.command("squid");
        // squid's shared memory has its name, so the name is unique on the machine.
        let name = format!("usher{}{allowed}", std::process::id());
        command.args(["-N", "-n", &name, "-d", "1", "-f", &place.path_text("squid.conf")]);
        let mut server = place.start_program("squid", &mut command, "Accepting HTTP Socket connections");
        let get = "GET http://198.51.100.1:9100/health HTTP/1.0\\r\\n\\r\\n";
        let said = exchange_line(&self.cable.host, place, 3128, get, "HTTP");
        let begun = Instant::now();
        loop {
            let log = std::fs::read_to_string(place.path("squid/access")).unwrap_or_default();
            if !log.is_empty() {
                server.terminate();
                return (said.trim().to_owned(), log);
            }
            assert!(begun.elapsed() < TEST_TIMEOUT, "{}\n{}", server.log(), self.log());
        }
    }

    /// Returns the user that a mail server shows for a client.
    #[track_caller]
    fn query_exim(&self) -> String {
        let (place, folder) = (&self.cable.temp_dir, self.cable.temp_dir.path_text("exim"));
        std::fs::create_dir_all(&folder).unwrap();
        // exim does not stay root.
        std::fs::set_permissions(&folder, std::fs::Permissions::from_mode(0o777)).unwrap();
        let text = format!(
            "primary_hostname = mail.test\nlocal_interfaces = {SERVER}\ndaemon_smtp_ports = 2525\nspool_directory = {folder}\n\
             log_file_path = {folder}/%slog\npid_file_path = {folder}/pid\nhost_lookup =\nkeep_environment =\n\
             tls_advertise_hosts =\nrfc1413_hosts = *\nrfc1413_query_timeout = 60s\nacl_smtp_connect = who\n\
             begin acl\nwho:\n  deny message = you are $sender_ident\n"
        );
        place.write_private("exim.conf", &text);
        let mut command = self.world.command("exim4");
        command.args(["-bdf", "-C", &place.path_text("exim.conf")]);
        let mut server = place.start_program("exim", &mut command, "");
        let begun = Instant::now();
        loop {
            let said = exchange_line(&self.cable.host, place, 2525, "", "550");
            if let Some(user) = said.trim().strip_prefix("550 you are ") {
                server.terminate();
                return user.to_owned();
            }
            // It says nothing when it listens.
            assert!(begun.elapsed() < TEST_TIMEOUT, "{said}\n{}\n{}", server.log(), self.log());
        }
    }

    /// Returns whether a host fetches a file by active FTP within this time, and curl's output.
    fn fetch_by_ftp(&self, folder: &str, seconds: &str) -> (bool, String) {
        let place = &self.cable.temp_dir;
        std::fs::create_dir_all(folder).unwrap();
        std::fs::write(format!("{folder}/file"), "what is wanted\n").unwrap();
        let text = format!(
            "listen=YES\nlisten_address={SERVER}\nanonymous_enable=YES\nno_anon_password=YES\nlocal_enable=NO\nanon_root={folder}\n\
             secure_chroot_dir={folder}\nport_enable=YES\nconnect_from_port_20=YES\nbackground=NO\nseccomp_sandbox=NO\n"
        );
        place.write_private("vsftpd.conf", &text);
        let mut command = self.world.command("vsftpd");
        command.arg(place.path("vsftpd.conf"));
        let mut server = place.start_program("vsftpd", &mut command, "");
        let begun = Instant::now();
        let passive = ["-sS", "-m", "60", "ftp://198.51.100.2/file"];
        let mut said = self.cable.host.run_program(place, "curl", &passive, "");
        while !said.0 && begun.elapsed() < TEST_TIMEOUT {
            said = self.cable.host.run_program(place, "curl", &passive, "");
        }
        assert!(said.1.contains("what is wanted"), "passive FTP: {}\n{}", said.1, server.log());
        let active = ["-sS", "-m", seconds, "--disable-eprt", "-P", &self.address, "ftp://198.51.100.2/file"];
        let said = self.cable.host.run_program(place, "curl", &active, "");
        server.terminate();
        said
    }
}

#[test]
fn with_nat_servers_learn_the_user_and_active_ftp_works() {
    let campus = CampusTestNetwork::new("");
    assert_eq!(
        (campus.query_irc().as_str(), campus.query_exim().as_str()),
        ("ann", "ann"),
        "{}",
        campus.log()
    );
    let (said, log) = campus.query_squid("ann");
    assert!(said.contains("200") && log.contains(&campus.address) && log.contains(" ann "), "{said} {log}");
    let ftp = campus.fetch_by_ftp(&campus.cable.temp_dir.path_text("ftp"), "60");
    assert!(ftp.0 && ftp.1.contains("what is wanted"), "{}", ftp.1);
}

#[test]
fn by_masquerade_servers_learn_the_user_and_ftp_needs_a_helper() {
    let campus = CampusTestNetwork::new("[data]\nnat = \"masquerade\"\n");
    assert_eq!(
        (campus.query_irc().as_str(), campus.query_exim().as_str()),
        ("ann", "ann"),
        "{}",
        campus.log()
    );
    let (said, log) = campus.query_squid("bob");
    assert!(said.contains("403") && log.contains("198.51.100.1") && log.contains(" ann "), "{said} {log}");
    let folder = campus.cable.temp_dir.path_text("ftp");
    let alone = campus.fetch_by_ftp(&folder, "8");
    assert!(!alone.0, "the host's own address is nothing to a server elsewhere: {}", alone.1);
    let helper = "table ip ftp {\n  ct helper ftp { type \"ftp\" protocol tcp; l3proto ip; }\n  chain hosts { type filter hook prerouting \
                  priority 0; iifname \"pppoe*\" tcp dport 21 ct helper set \"ftp\"; }\n}\n";
    let (made, said) = campus.cable.ac.run_program(&campus.cable.temp_dir, "nft", &["-f", "-"], helper);
    // A kernel may lack the helper.
    if made {
        let helped = campus.fetch_by_ftp(&folder, "60");
        assert!(helped.0 && helped.1.contains("what is wanted"), "{}", helped.1);
    } else {
        assert!(said.contains("No such file or directory"), "{said}");
    }
}

/// oidentd on the concentrator forwards a query to the host behind the NAT, and trusts the answer.
#[test]
fn oidentd_beside_ours_passes_on_the_hosts_lie() {
    let campus = CampusTestNetwork::new("[data]\nnat = \"masquerade\"\n");
    let (cable, place) = (&campus.cable, &campus.cable.temp_dir);
    let _liar = start_lying_identd(&cable.host, place, "1130");
    let mut command = cable.ac.command("oidentd");
    command.args(["-d", "-i", "-S", "-m", "--forward=1130", "-p", "1131"]);
    let theirs = place.start_program("oidentd", &mut command, "");
    let (_server, _user, port) = campus.cable.open_connection(&campus.world);
    let query = format!("{port},7000");
    let ask = format!("exec 3<>/dev/tcp/198.51.100.1/1131; printf '{query}\\r\\n' >&3; head -1 <&3");
    let said = campus.world.run_program(place, "timeout", &["100", "bash", "-c", &ask], "").1;
    assert!(said.trim().ends_with(":liar"), "{said}\n{}", theirs.log());
    assert_eq!(query_ident(&campus.world, place, "198.51.100.1", &query), "ann (UNIX)", "{}", campus.log());
}
