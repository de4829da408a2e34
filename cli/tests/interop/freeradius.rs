//! FreeRADIUS as the home server behind our proxy, and as the proxy in front of our server.

use crate::certificates::write_chain;
use crate::methods::{expect_accept, expect_reject};
use crate::place::{AaaServer, RunningProgram, SECRET, TempDir, find_program, udp_ports};
use crate::radius::run_radclient;
use std::process::Command;

/// A FreeRADIUS on loopback with one user. It proxies the realm `usher.test` to `next`, if given.
pub(crate) struct FreeRadius {
    _running: RunningProgram,
    pub(crate) port: u16,
}

impl FreeRadius {
    #[track_caller]
    pub(crate) fn start(place: &TempDir, next: Option<u16>) -> Self {
        Self::start_by(place, next, find_program("freeradius"))
    }

    /// The same, by a command that runs the program elsewhere.
    #[track_caller]
    pub(crate) fn start_by(place: &TempDir, next: Option<u16>, mut command: Command) -> Self {
        let port = udp_ports();
        let folder = place.path_text("freeradius");
        place.write_private(
            "freeradius/users",
            "user@example.org\tCleartext-Password := \"password\"\n\tSession-Timeout = 77\n",
        );
        let (proxy, realm) = match next {
            None => (String::new(), ""),
            Some(next) => (
                format!(
                    "proxy server {{\n\tretry_delay = 5\n}}\nhome_server usher {{\n\ttype = auth\n\tipaddr = 127.0.0.1\n\
                     \tport = {next}\n\tsecret = {SECRET}\n\trequire_message_authenticator = yes\n}}\n\
                     home_server_pool usher {{\n\thome_server = usher\n}}\nrealm usher.test {{\n\tauth_pool = usher\n\tnostrip\n}}\n"
                ),
                "suffix",
            ),
        };
        let text = format!(
            r#"
name = radiusd
libdir = /usr/lib/freeradius
raddbdir = {folder}
run_dir = {folder}
db_dir = {folder}
pidfile = {folder}/radiusd.pid
max_requests = 4096
proxy_requests = {proxies}
security {{
	max_attributes = 200
	reject_delay = 0
	status_server = yes
}}
thread pool {{
	start_servers = 1
	max_servers = 2
	min_spare_servers = 1
	max_spare_servers = 1
}}
client here {{
	ipaddr = 127.0.0.1
	secret = {SECRET}
	require_message_authenticator = no
}}
{proxy}
modules {{
	pap {{
	}}
	chap {{
	}}
	files {{
		usersfile = {folder}/users
	}}
	realm suffix {{
		format = suffix
		delimiter = "@"
	}}
	eap {{
		default_eap_type = md5
		md5 {{
		}}
		tls-config tls-common {{
			private_key_file = {key}
			certificate_file = {certificate}
			ca_file = {root}
			fragment_size = 1024
			tls_min_version = "1.2"
			tls_max_version = "1.2"
		}}
		ttls {{
			tls = tls-common
			default_eap_type = md5
			virtual_server = "default"
		}}
	}}
}}
server default {{
	listen {{
		type = auth
		ipaddr = 127.0.0.1
		port = {port}
	}}
	authorize {{
		{realm}
		files
		chap
		eap {{
			ok = return
		}}
		pap
	}}
	authenticate {{
		Auth-Type PAP {{
			pap
		}}
		Auth-Type CHAP {{
			chap
		}}
		eap
	}}
}}
"#,
            proxies = if next.is_some() { "yes" } else { "no" },
            key = place.path_text("server.key"),
            certificate = place.path_text("server.pem"),
            root = place.path_text("root.pem"),
        );
        place.write_private("freeradius/radiusd.conf", &text);
        command.args(["-d", &folder, "-f", "-l", "stdout"]);
        let running = place.start_program("freeradius", &mut command, "Ready to process requests");
        Self { _running: running, port }
    }
}

pub(crate) fn login_attributes(name: &str, attribute: &str, password: &str) -> String {
    format!(
        "User-Name = {name}\n{attribute} = \"{password}\"\nNAS-IP-Address = 127.0.0.1\nMessage-Authenticator = 0x00\n"
    )
}

#[test]
fn freeradius_is_the_home_server_behind_our_proxy() {
    let place = TempDir::new();
    write_chain(&place, "server", 2);
    let home = FreeRadius::start(&place, None);
    let server = AaaServer::start(
        &place,
        &format!(
            "reject_delay = \"0 s\"\n[[home_server]]\nname = \"home\"\naddress = \"127.0.0.1:{}\"\nsecret = \"{SECRET}\"\n\
             message_authenticator = false\n[[realm]]\nname = \"example.org\"\nservers = [\"home\"]\n",
            home.port
        ),
    );
    for attribute in ["User-Password", "CHAP-Password"] {
        let (right, said) = run_radclient(
            &place,
            server.port,
            "auth",
            &login_attributes("user@example.org", attribute, "password"),
        );
        assert!(right && said.contains("Session-Timeout = 77"), "{attribute}: {said}");
        let (right, said) = run_radclient(
            &place,
            server.port,
            "auth",
            &login_attributes("user@example.org", attribute, "wrong"),
        );
        assert!(!right && said.contains("Received Access-Reject"), "{attribute}: {said}");
    }
    let md5 = |password: &str| format!("eap=MD5\nidentity=\"user@example.org\"\npassword=\"{password}\"");
    expect_accept(&place, &server, "md5", &md5("password"), &["-n"]);
    expect_reject(&place, &server, "md5-wrong", &md5("wrong"));
    // Each hop encrypts the keys again. eapol_test compares them with its own.
    let ttls = "eap=TTLS\nidentity=\"user@example.org\"\nanonymous_identity=\"x@example.org\"\npassword=\"password\"\n\
                ca_cert=\"root.pem\"\nphase2=\"auth=PAP\"";
    expect_accept(&place, &server, "ttls", ttls, &[]);
}

#[test]
fn freeradius_is_the_proxy_in_front_of_us() {
    let place = TempDir::new();
    write_chain(&place, "server", 2);
    let users =
        "[[user]]\nname = \"ann@usher.test\"\npassword = \"password\"\nreply = [\"Session-Timeout = 88\"]\n";
    let tls = "[tls]\ncertificate = \"server.pem\"\nkey = \"server.key\"\nca = \"root.pem\"\n";
    let mut server = AaaServer::start(&place, &format!("reject_delay = \"0 s\"\n{tls}{users}"));
    let proxy = FreeRadius::start(&place, Some(server.port));
    let (right, said) = run_radclient(
        &place,
        proxy.port,
        "auth",
        &login_attributes("ann@usher.test", "User-Password", "password"),
    );
    assert!(right && said.contains("Session-Timeout = 88"), "{said}");
    let (right, said) = run_radclient(
        &place,
        proxy.port,
        "auth",
        &login_attributes("ann@usher.test", "User-Password", "wrong"),
    );
    assert!(!right && said.contains("Received Access-Reject"), "{said}");
    // Through the proxy, as eapol_test sees it.
    server.port = proxy.port;
    let peap = "eap=PEAP\nidentity=\"ann@usher.test\"\npassword=\"password\"\nca_cert=\"root.pem\"\nphase2=\"auth=MSCHAPV2\"";
    expect_accept(&place, &server, "peap", peap, &[]);
}
