//! TLS servers with rejected certificates, and the reports of the cause.

use super::daemon::{DaemonProcess, ServerPorts, pap_login, write_private};
use super::others::{create_certificates, tls_section};
use crate::place::{TempDir, bound_command, own_address, own_port, own_socket, wait_until};
use std::fmt::Write as _;
use std::net::{SocketAddrV4, TcpStream};
use std::process::{Child, Stdio};

/// An OpenSSL server with a certificate of a folder's `pki`, which requests a client certificate.
struct TlsServer {
    child: Child,
    address: SocketAddrV4,
}

impl TlsServer {
    fn start(pki: &TempDir, certificate: &str) -> Self {
        let address = own_socket();
        let child = bound_command("openssl")
            .args(["s_server", "-accept", &address.to_string(), "-quiet", "-Verify", "1"])
            .args(["-cert", &format!("pki/issued/{certificate}.crt"), "-CAfile", "pki/ca.crt"])
            .args(["-key", "pki/issued/home.hotel.example.key"])
            .current_dir(pki.path(""))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("openssl is installed");
        wait_until("it listens", || TcpStream::connect(address).is_ok());
        Self { child, address }
    }
}

impl Drop for TlsServer {
    fn drop(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

/// Creates an authority with a valid and an expired server certificate.
fn with_expired() -> TempDir {
    let pki = create_certificates();
    let lines = "openssl req -new -key pki/issued/home.hotel.example.key -subj /CN=home.hotel.example -out expired.csr && \
                 printf 'subjectAltName=DNS:home.hotel.example\\nextendedKeyUsage=serverAuth\\n' > expired.cnf && \
                 openssl x509 -req -in expired.csr -CA pki/ca.crt -CAkey pki/ca.key -days -1 -extfile expired.cnf \
                 -out pki/issued/expired.crt";
    pki.run_shell(lines).with_code(0);
    pki
}

/// Creates an untrusted authority with a server of the same name.
fn untrusted_authority() -> TempDir {
    let place = TempDir::new();
    let words =
        ["aaa", "cert", "--dir", "pki", "init", "--name", "Strangers", "--server", "home.hotel.example"];
    place.run_usher(&words).with_code(0);
    place
}

#[test]
fn an_aaa_server_logs_why_it_refuses_a_server_certificate() {
    let (pki, other, place, ports) =
        (with_expired(), untrusted_authority(), TempDir::new(), ServerPorts::reserve_free());
    let good = "home.hotel.example";
    let servers = [
        ("stranger", TlsServer::start(&other, good), good, "is from an authority that is not trusted here ("),
        (
            "namesake",
            TlsServer::start(&pki, good),
            "another.example",
            "is for home.hotel.example and should be for another.example",
        ),
        ("elder", TlsServer::start(&pki, "expired"), good, "has expired ("),
    ];
    let peer = TlsServer::start(&other, good);
    let mut more =
        format!("{}[users]\nstore = \"memory\"\n", tls_section(&pki.path("pki"), "front.example.net"));
    for (name, server, expected, _) in &servers {
        write!(
            more,
            "[[home_server]]\nname = \"{name}\"\naddress = \"{}\"\ntransport = \"tls\"\ncertificate = \"{expected}\"\n\
             [[realm]]\nname = \"{name}.example\"\nservers = [\"{name}\"]\nunanswered = \"reject\"\n",
            server.address
        )
        .unwrap();
    }
    write!(
        more,
        "[diameter]\nidentity = \"front.example.net\"\nrealm = \"example.net\"\n\
         [[diameter.peer]]\nidentity = \"{good}\"\nconnect = \"{}\"\ntransport = \"tls\"\n",
        peer.address
    )
    .unwrap();
    // Two threads detect the same fault, which is reported once.
    let front = DaemonProcess::start(&place, &ports.server_config(2, &more));
    for (name, _, _, why) in &servers {
        pap_login(ports.auth, &format!("ann@{name}.example"), "right").with_code(1);
        front.wait_for_log(&format!(
            "a home server is dead: it gets no requests until it is back home_server=\"{name}\""
        ));
        let log = front.log();
        let lines: Vec<&str> = log.lines().filter(|line| line.contains(*why)).collect();
        let told = |what: &str| lines.iter().filter(|line| line.contains(what)).count();
        assert_eq!(told(&format!("TLS connection to a server failed server=\"{name}\"")), 1, "{log}");
        assert_eq!(told("cannot connect to it: the server's certificate"), 1, "{log}");
    }
    front.wait_for_log(&format!(
        "TLS connection to a server failed server=\"{good}\" address={}",
        peer.address
    ));
    let status = place.run_usher(&["aaa", "status", "--config", "aaa.toml"]).with_code(0).out;
    for (name, _, _, why) in &servers {
        let line = status.lines().find(|line| line.contains("not reached by TLS") && line.contains(name));
        assert!(line.is_some_and(|line| line.contains(why)), "{status}");
    }
    let status =
        place.run_usher(&["aaa", "status", "--json", "--config", "aaa.toml"]).with_code(0).stdout_json();
    assert_eq!(status["tls_faults"].as_array().unwrap().len(), 4, "{status}");
    assert_eq!(front.terminate(), Some(0));
}

/// The gateway and the load generator can only report it themselves: the AAA server is unreachable.
#[test]
fn gateway_and_load_generator_report_why_a_certificate_fails() {
    let (pki, other) = (create_certificates(), untrusted_authority());
    let server = TlsServer::start(&other, "home.hotel.example");
    let (host, port, nat_port) = (own_address(), own_port(), own_port());
    let own = "certificate = \"pki/issued/front.example.net.crt\"\nkey = \"pki/issued/front.example.net.key\"\nca = \"pki/ca.crt\"\n";
    let text = format!(
        "[listen]\naddresses = [\"{host}\"]\nport = {port}\nnat_port = {nat_port}\ncontrol = \"ike.sock\"\n[data]\nmode = \"none\"\n\
         [aaa.diameter]\nidentity = \"front.example.net\"\nrealm = \"example.net\"\n\
         [[aaa.diameter.peer]]\nidentity = \"home.hotel.example\"\naddress = \"{}\"\ntransport = \"tls\"\n[aaa.tls]\n{own}",
        server.address
    );
    write_private(&pki, "ike.toml", &text);
    let gateway =
        DaemonProcess::run_command(&mut pki.usher_command(&["ike", "serve", "--config", "ike.toml"]));
    gateway.wait_for_log("TLS connection to a server failed server=\"home.hotel.example\"");
    assert!(gateway.log().contains("is from an authority that is not trusted here ("), "{}", gateway.log());
    assert_eq!(gateway.terminate(), Some(0));
    let at = server.address.to_string();
    let files = [
        "--ca",
        "pki/ca.crt",
        "--certificate",
        "pki/issued/front.example.net.crt",
        "--key",
        "pki/issued/front.example.net.key",
    ];
    let login = [
        "load",
        "diameter",
        &at,
        "--tls",
        "--peer",
        "home.hotel.example",
        "--user",
        "ann",
        "--password",
        "right",
        "--duration",
        "1 s",
    ];
    let said = pki.run_usher(&[&login[..], &files].concat());
    assert!(
        said.code == Some(1) && said.err.contains("is from an authority that is not trusted here ("),
        "{said:?}"
    );
}
