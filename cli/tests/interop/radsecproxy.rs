//! radsecproxy between RADIUS over UDP and RadSec (RFC 6614), in front of our server and behind it.

use crate::certificates::{write_chain, write_host_certificates};
use crate::freeradius::{FreeRadius, login_attributes};
use crate::methods::{expect_accept, expect_reject};
use crate::place::{AaaServer, RunningProgram, SECRET, TempDir, find_program, tcp_port, udp_ports};
use crate::radius::run_radclient;

/// The host names of our server and of radsecproxy.
const HOSTS: [&str; 2] = ["aaa.example.org", "proxy.example.org"];

const TLS: &str =
    "[tls]\ncertificate = \"aaa.example.org.pem\"\nkey = \"aaa.example.org.key\"\nca = \"ca.pem\"\n";

/// Starts radsecproxy with the clients and servers in `more`. `PEER` there is the required identity of its TLS peer.
#[track_caller]
fn start_radsecproxy(place: &TempDir, more: &str) -> RunningProgram {
    let own = HOSTS[1];
    let peer =
        "certificateNameCheck off\n    matchCertificateAttribute SubjectAltName:DNS:/^aaa\\.example\\.org$/";
    let text = format!(
        r#"tls default {{
    CACertificateFile {folder}ca.pem
    CertificateFile {folder}{own}.pem
    CertificateKeyFile {folder}{own}.key
}}
{more}
realm * {{
    server next
    accountingServer next
}}
"#,
        folder = place.path_text(""),
        more = more.replace("PEER", peer),
    );
    let file = place.write_private("radsecproxy.conf", &text);
    let mut command = find_program("radsecproxy");
    command.args(["-f", "-d", "5", "-c"]).arg(file);
    place.start_program("radsecproxy", &mut command, "listening for")
}

#[test]
fn it_brings_its_clients_to_us_by_radsec() {
    let place = TempDir::new();
    write_host_certificates(&place, &HOSTS);
    let tcp = tcp_port();
    let certificate =
        format!("[[client]]\nname = \"proxy\"\nprefix = \"127.0.0.1/32\"\ncertificate = \"{}\"\n", HOSTS[1]);
    let user = "[[user]]\nname = \"ann\"\npassword = \"password\"\nreply = [\"Session-Timeout = 66\"]\n";
    let mut server = AaaServer::start_listening(
        &place,
        &format!("radsec = [\"127.0.0.1:{tcp}\"]"),
        &format!("reject_delay = \"0 s\"\n{TLS}[log]\nlevel = \"debug\"\n{certificate}{user}"),
    );
    let (ours, port) = (server.port, udp_ports());
    let mut proxy = start_radsecproxy(
        &place,
        &format!(
            "ListenUDP 127.0.0.1:{port}\nclient here {{\n    type udp\n    host 127.0.0.1\n    secret {SECRET}\n}}\n\
             server next {{\n    type tls\n    host 127.0.0.1\n    port {tcp}\n    secret radsec\n    statusServer auto\n    PEER\n}}"
        ),
    );
    for attribute in ["User-Password", "CHAP-Password", "MS-CHAP-Password"] {
        let (right, said) =
            run_radclient(&place, port, "auth", &login_attributes("ann", attribute, "password"));
        assert!(right && said.contains("Session-Timeout = 66"), "{attribute}: {said}\n{}", proxy.log());
        let (right, said) = run_radclient(&place, port, "auth", &login_attributes("ann", attribute, "wrong"));
        assert!(!right && said.contains("Received Access-Reject"), "{attribute}: {said}");
    }
    // Through the proxy, as eapol_test sees it. Each hop encrypts the keys again, and eapol_test compares them.
    server.port = port;
    let peap = |password: &str| {
        format!(
            "eap=PEAP\nidentity=\"ann\"\npassword=\"{password}\"\nca_cert=\"ca.pem\"\nphase2=\"auth=MSCHAPV2\""
        )
    };
    expect_accept(&place, &server, "peap", &peap("password"), &[]);
    expect_reject(&place, &server, "peap-wrong", &peap("wrong"));
    for (status, told) in [("Start", "Start"), ("Interim-Update", "Interim"), ("Stop", "Stop")] {
        let record = format!(
            "User-Name = ann\nAcct-Status-Type = {status}\nAcct-Session-Id = s1\nNAS-IP-Address = 127.0.0.1\n"
        );
        let (right, said) = run_radclient(&place, port, "acct", &record);
        assert!(right && said.contains("Received Accounting-Response"), "{status}: {said}");
        server.running.wait_for(&format!("accounting status={told} user=\"ann\""));
    }
    // It sends Status-Server and gets our reply.
    proxy.wait_for("got status server response from next");
    // UDP is not served.
    let (right, said) = run_radclient(&place, ours, "status", "Message-Authenticator = 0x00\n");
    assert!(right, "{said}");
    assert_eq!(server.running.terminate(), Some(0));
}

#[test]
fn a_proxy_with_another_name_is_none_of_our_clients() {
    let place = TempDir::new();
    write_host_certificates(&place, &HOSTS);
    let (tcp, port) = (tcp_port(), udp_ports());
    let client =
        "[[client]]\nname = \"proxy\"\nprefix = \"127.0.0.1/32\"\ncertificate = \"other.example.org\"\n";
    let user = "[[user]]\nname = \"ann\"\npassword = \"password\"\n";
    let _server = AaaServer::start_listening(
        &place,
        &format!("radsec = [\"127.0.0.1:{tcp}\"]"),
        &format!("{TLS}{client}{user}"),
    );
    let _proxy = start_radsecproxy(
        &place,
        &format!(
            "ListenUDP 127.0.0.1:{port}\nclient here {{\n    type udp\n    host 127.0.0.1\n    secret {SECRET}\n}}\n\
             server next {{\n    type tls\n    host 127.0.0.1\n    port {tcp}\n    secret radsec\n    PEER\n}}"
        ),
    );
    let to = format!("127.0.0.1:{port}");
    let words = ["-x", "-r", "1", "-t", "3", &to, "auth", SECRET];
    let ask = login_attributes("ann", "User-Password", "password");
    let (right, said) = crate::place::run_program(&place.path(""), "radclient", &words, &ask);
    assert!(!right && said.contains("No reply from server"), "{said}");
}

#[test]
fn it_brings_what_we_pass_on_to_freeradius_and_to_another_of_us() {
    let (place, behind) = (TempDir::new(), TempDir::new());
    write_host_certificates(&place, &HOSTS);
    write_chain(&behind, "server", 2);
    let home = FreeRadius::start(&behind, None);
    let users =
        "[[user]]\nname = \"ann@usher.test\"\npassword = \"password\"\nreply = [\"Session-Timeout = 88\"]\n";
    let tls = "[tls]\ncertificate = \"server.pem\"\nkey = \"server.key\"\nca = \"root.pem\"\n";
    let order = "[methods]\norder = [\"ttls\", \"eap-md5\", \"pap\", \"chap\"]\n";
    let other = AaaServer::start(&behind, &format!("reject_delay = \"0 s\"\n{order}{tls}{users}"));
    for (next, acct, user, timeout) in
        [(home.port, None, "user@example.org", 77), (other.port, Some(other.port + 1), "ann@usher.test", 88)]
    {
        let (_, realm) = user.split_once('@').unwrap();
        let place = TempDir::new();
        write_host_certificates(&place, &HOSTS);
        write_chain(&place, "server", 2);
        let tcp = tcp_port();
        let acct = acct.unwrap_or(next + 1);
        let conf = format!(
            "ListenTLS 127.0.0.1:{tcp}\nclient us {{\n    type tls\n    host 127.0.0.1\n    secret radsec\n    PEER\n}}\n\
             server next {{\n    type udp\n    host 127.0.0.1\n    port {next}\n    secret {SECRET}\n}}\n\
             server records {{\n    type udp\n    host 127.0.0.1\n    port {acct}\n    secret {SECRET}\n}}\n\
             realm {realm} {{\n    server next\n    accountingServer records\n}}"
        );
        let mut proxy = start_radsecproxy(&place, &conf);
        let text = format!(
            "reject_delay = \"0 s\"\n{TLS}[[home_server]]\nname = \"home\"\naddress = \"127.0.0.1:{tcp}\"\ntransport = \"tls\"\ncertificate = \"{}\"\n\
             message_authenticator = false\n[[realm]]\nname = \"{realm}\"\nservers = [\"home\"]\n",
            HOSTS[1]
        );
        let server = AaaServer::start(&place, &text);
        for attribute in ["User-Password", "CHAP-Password"] {
            let ask = |password: &str| {
                run_radclient(&place, server.port, "auth", &login_attributes(user, attribute, password))
            };
            let (right, said) = ask("password");
            assert!(
                right && said.contains(&format!("Session-Timeout = {timeout}")),
                "{user} {attribute}: {said}"
            );
            let (right, said) = ask("wrong");
            assert!(!right && said.contains("Received Access-Reject"), "{user} {attribute}: {said}");
        }
        let eap = |method: &str, password: &str, more: &str| {
            format!("eap={method}\nidentity=\"{user}\"\npassword=\"{password}\"{more}")
        };
        expect_accept(&place, &server, "md5", &eap("MD5", "password", ""), &["-n"]);
        expect_reject(&place, &server, "md5-wrong", &eap("MD5", "wrong", ""));
        let ttls = "\nca_cert=\"root.pem\"\nphase2=\"auth=PAP\"";
        expect_accept(&place, &server, "ttls", &eap("TTLS", "password", ttls), &[]);
        if next == other.port {
            let record = format!(
                "User-Name = {user}\nAcct-Status-Type = Start\nAcct-Session-Id = s1\nNAS-IP-Address = 127.0.0.1\n"
            );
            let (right, said) = run_radclient(&place, server.port + 1, "acct", &record);
            assert!(right && said.contains("Received Accounting-Response"), "{said}");
        }
        // The proxy restarts, and the connection is opened again.
        proxy.terminate();
        let _proxy = start_radsecproxy(&place, &conf);
        let ask = login_attributes(user, "User-Password", "password");
        let (right, said) = run_radclient(&place, server.port, "auth", &ask);
        assert!(
            right || run_radclient(&place, server.port, "auth", &ask).0,
            "{said}\n{}",
            server.running.log()
        );
    }
}
