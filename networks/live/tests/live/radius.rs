//! A RADIUS server behind the driver, asked by a client that others wrote.

use std::io::Write;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::process::{Command, Stdio};
use usher_core::{Instant, Job, Machine, NoJob, SecureRng};
use usher_live::{Clock, Driver, Role, SocketOptions, Sockets, bind_udp, numbered, spawn};
use usher_radius::attribute::{Attributes, kind};
use usher_radius::auth::Secret;
use usher_radius::packet::Code;
use usher_radius::server::{self, ClientConfig, Config, Event, Server};

/// Lets in who has the password.
struct Door {
    server: Server,
    stopped: bool,
}

impl Role for Door {
    type Machine = Server;
    type Message = ();

    fn machine(&mut self) -> &mut Server {
        &mut self.server
    }

    fn event(&mut self, now: Instant, event: Event) {
        let Event::Request(request) = event;
        let right = matches!(request.user_password(), Ok(Some(password)) if *password == b"open sesame");
        let mut attributes = Attributes::default();
        attributes
            .push_text(kind::REPLY_MESSAGE, if right { "come in" } else { "go away" })
            .expect("it is short");
        let code = match request.code {
            Code::ACCOUNTING_REQUEST => Code::ACCOUNTING_RESPONSE,
            _ if right => Code::ACCESS_ACCEPT,
            _ => Code::ACCESS_REJECT,
        };
        let answer = server::Command::Respond { token: request.token, code, attributes };
        self.server.command(now, answer).expect("the request waits");
    }

    fn job(&mut self, _: Instant, job: Job<NoJob>) {
        match job.what {}
    }

    fn message(&mut self, _: Instant, (): ()) {
        self.stopped = true;
    }

    fn stopped(&self) -> bool {
        self.stopped
    }
}

/// What radclient says of one request to `address`; whether it took the answer for an Access-Accept is its
/// success.
fn radclient(address: &str, what: &str, request: &str, count: u32) -> (bool, String) {
    let mut child = Command::new("radclient")
        .args(["-x", "-c", &count.to_string(), "-r", "5", "-t", "30", address, what, "shared secret"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("radclient is installed (Debian: freeradius-utils)");
    child.stdin.take().expect("it is piped").write_all(request.as_bytes()).expect("radclient reads");
    let output = child.wait_with_output().expect("radclient ends");
    let text = [output.stdout, output.stderr].concat();
    (output.status.success(), String::from_utf8_lossy(&text).into_owned())
}

#[test]
fn radclient_is_let_in_or_not_at_every_address() {
    let secret = Secret::new(b"shared secret");
    let clients = vec![
        ClientConfig::new(IpAddr::from([127, 0, 0, 0]), 8, secret.clone()),
        ClientConfig::new(Ipv6Addr::LOCALHOST.into(), 128, secret),
    ];
    let server =
        Server::new(Config::new(clients), SecureRng::from_seed([7; 32])).expect("the clients are two");
    let any: [IpAddr; 2] = [Ipv4Addr::UNSPECIFIED.into(), Ipv6Addr::UNSPECIFIED.into()];
    let options = SocketOptions { shared: false, ..SocketOptions::default() };
    let udp = any.map(|ip| bind_udp((ip, 0).into(), &options).expect("a port can be had"));
    let [port4, port6] = udp.each_ref().map(|socket| socket.local_addr().expect("it is bound").port());
    let node = Door { server, stopped: false };
    let (driver, mailbox) =
        Driver::new(node, Sockets { udp: numbered(udp), ..Sockets::default() }, Clock::start());
    let counters = driver.counters();
    let shard = spawn("radius", None, move || driver.run()).expect("a thread can be had");

    let login = |password: &str| {
        format!("User-Name = \"ali\", User-Password = \"{password}\", Message-Authenticator = 0x00\n")
    };
    let places = [format!("127.0.0.1:{port4}"), format!("127.0.0.5:{port4}"), format!("[::1]:{port6}")];
    for place in &places {
        let (success, text) = radclient(place, "auth", &login("open sesame"), 1);
        assert!(success && text.contains("come in"), "{place}: {text}");
        let (_, text) = radclient(place, "auth", &login("please"), 1);
        assert!(text.contains("Access-Reject") && text.contains("go away"), "{place}: {text}");
    }
    let start = "User-Name = \"ali\", Acct-Status-Type = Start, Acct-Session-Id = \"1\"\n";
    let (success, text) = radclient(&places[0], "acct", start, 1);
    assert!(success && text.contains("Accounting-Response"), "{text}");
    let (success, text) = radclient(&places[0], "auth", &login("open sesame"), 100);
    assert!(success, "{text}");
    assert_eq!(text.matches("Received Access-Accept").count(), 100, "{text}");

    assert!(counters.read().datagrams_in >= 107);
    assert!(mailbox.send(()));
    let node = shard.join().expect("no panic").expect("its sockets were taken");
    assert!(node.server.counters().requests >= 107);
}
