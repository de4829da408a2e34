//! RADIUS without EAP, by radclient.

use crate::place::{AaaServer, SECRET, TempDir, run_program};

/// Sends a request, retransmitted every five seconds until a busy server replies. Returns the reply.
#[track_caller]
pub(crate) fn run_radclient(place: &TempDir, port: u16, kind: &str, attributes: &str) -> (bool, String) {
    let to = format!("127.0.0.1:{port}");
    run_program(&place.path(""), "radclient", &["-x", "-r", "12", "-t", "5", &to, kind, SECRET], attributes)
}

#[test]
fn passwords_of_every_kind_are_proven_by_every_method_that_can() {
    let place = TempDir::new();
    let server = AaaServer::start(
        &place,
        r#"reject_delay = "0 s"
[[user]]
name = "clear"
password = "password"
reply = ["Session-Timeout = 600", "Reply-Message = \"welcome\""]
[[user]]
name = "nt"
nt_hash = "8846f7eaee8fb117ad06bdd830b7586c"
"#,
    );
    let login = |user: &str, attribute: &str, password: &str| {
        let text = format!("User-Name = {user}\n{attribute} = \"{password}\"\nNAS-IP-Address = 127.0.0.1\n");
        run_radclient(&place, server.port, "auth", &text).1
    };
    for (user, attribute, right) in [
        ("clear", "User-Password", true),
        ("clear", "CHAP-Password", true),
        ("clear", "MS-CHAP-Password", true),
        ("nt", "User-Password", true),
        ("nt", "CHAP-Password", false),
        ("nt", "MS-CHAP-Password", true),
    ] {
        let want = if right { "Received Access-Accept" } else { "Received Access-Reject" };
        let said = login(user, attribute, "password");
        assert!(said.contains(want), "{user} {attribute}: {said}");
        let said = login(user, attribute, "wrong");
        assert!(said.contains("Received Access-Reject"), "{user} {attribute}: {said}");
    }
    let said = login("clear", "User-Password", "password");
    assert!(said.contains("Session-Timeout = 600") && said.contains("Reply-Message = \"welcome\""), "{said}");
}

#[test]
fn accounting_is_acknowledged_and_status_answered() {
    let place = TempDir::new();
    let server = AaaServer::start(&place, "[users]\nstore = \"sqlite\"\n");
    let record = |status: &str| {
        let text = format!(
            "User-Name = ann\nAcct-Status-Type = {status}\nAcct-Session-Id = s1\nNAS-IP-Address = 127.0.0.1\n"
        );
        run_radclient(&place, server.port + 1, "acct", &text)
    };
    for status in ["Start", "Interim-Update", "Stop"] {
        let (right, said) = record(status);
        assert!(right && said.contains("Received Accounting-Response"), "{status}: {said}");
    }
    for port in [server.port, server.port + 1] {
        let (right, said) = run_radclient(&place, port, "status", "Message-Authenticator = 0x00\n");
        assert!(right, "{said}");
    }
}

#[test]
fn a_reject_that_is_held_back_is_sent_before_the_server_ends() {
    let place = TempDir::new();
    let user = "reject_delay = \"2 s\"\n[[user]]\nname = \"ann\"\npassword = \"password\"\n";
    let mut server = AaaServer::start(&place, user);
    let port = server.port;
    std::thread::scope(|scope| {
        let asked =
            scope.spawn(|| run_radclient(&place, port, "auth", "User-Name = ann\nUser-Password = wrong\n"));
        server.running.wait_for("reject user=\"ann\"");
        assert_eq!(server.running.terminate(), Some(0));
        let (_, said) = asked.join().unwrap();
        assert!(said.contains("Received Access-Reject"), "{said}");
    });
}
