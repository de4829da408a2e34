//! A RADIUS server on the driver, with an independent client.

use std::io::Write;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::process::{Command, Stdio};
use usher_core::{Instant, JobRequest, Machine, NoJob, SecureRng};
use usher_live::{
    Driver, DriverRole, DriverSockets, SocketOptions, SystemClock, bind_udp, number_sockets, spawn_shard,
};
use usher_radius::attribute::{AttributeList, kind};
use usher_radius::auth::SharedSecret;
use usher_radius::packet::PacketCode;
use usher_radius::server::{self, ClientConfig, RadiusServer, RadiusServerConfig, RadiusServerEvent};

/// Accepts users with the right password.
struct RadiusServerRole {
    server: RadiusServer,
    stopped: bool,
}

impl DriverRole for RadiusServerRole {
    type Machine = RadiusServer;
    type Message = ();

    fn machine(&mut self) -> &mut RadiusServer {
        &mut self.server
    }

    fn on_event(&mut self, now: Instant, event: RadiusServerEvent) {
        let RadiusServerEvent::Request(request) = event;
        let right = matches!(request.user_password(), Ok(Some(password)) if *password == b"open sesame");
        let mut attributes = AttributeList::default();
        attributes
            .push_text(kind::REPLY_MESSAGE, if right { "come in" } else { "go away" })
            .expect("it is short");
        let code = match request.code {
            PacketCode::ACCOUNTING_REQUEST => PacketCode::ACCOUNTING_RESPONSE,
            _ if right => PacketCode::ACCESS_ACCEPT,
            _ => PacketCode::ACCESS_REJECT,
        };
        let answer = server::RadiusServerCommand::Respond { token: request.token, code, attributes };
        self.server.handle_command(now, answer).expect("the request waits");
    }

    fn on_job(&mut self, _: Instant, job: JobRequest<NoJob>) {
        match job.job {}
    }

    fn on_message(&mut self, _: Instant, (): ()) {
        self.stopped = true;
    }

    fn is_stopped(&self) -> bool {
        self.stopped
    }
}

/// Runs radclient with a request to `address`. Returns its output, and true if it got an Access-Accept.
fn run_radclient(address: &str, what: &str, request: &str, count: u32) -> (bool, String) {
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
    let secret = SharedSecret::new(b"shared secret");
    let clients = vec![
        ClientConfig::new(IpAddr::from([127, 0, 0, 0]), 8, secret.clone()),
        ClientConfig::new(Ipv6Addr::LOCALHOST.into(), 128, secret),
    ];
    let server = RadiusServer::new(RadiusServerConfig::new(clients), SecureRng::from_seed([7; 32]))
        .expect("the clients are two");
    let any: [IpAddr; 2] = [Ipv4Addr::UNSPECIFIED.into(), Ipv6Addr::UNSPECIFIED.into()];
    let options = SocketOptions { shared: false, ..SocketOptions::default() };
    let udp = any.map(|ip| bind_udp((ip, 0).into(), &options).expect("a port can be had"));
    let [port4, port6] = udp.each_ref().map(|socket| socket.local_addr().expect("it is bound").port());
    let node = RadiusServerRole { server, stopped: false };
    let (driver, mailbox) = Driver::new(
        node,
        DriverSockets { udp: number_sockets(udp), ..DriverSockets::default() },
        SystemClock::start(),
    );
    let counters = driver.counters();
    let shard = spawn_shard("radius", None, move || driver.run()).expect("a thread can be had");

    let login = |password: &str| {
        format!("User-Name = \"ali\", User-Password = \"{password}\", Message-Authenticator = 0x00\n")
    };
    let places = [format!("127.0.0.1:{port4}"), format!("127.0.0.5:{port4}"), format!("[::1]:{port6}")];
    for place in &places {
        let (success, text) = run_radclient(place, "auth", &login("open sesame"), 1);
        assert!(success && text.contains("come in"), "{place}: {text}");
        let (_, text) = run_radclient(place, "auth", &login("please"), 1);
        assert!(text.contains("Access-Reject") && text.contains("go away"), "{place}: {text}");
    }
    let start = "User-Name = \"ali\", Acct-Status-Type = Start, Acct-Session-Id = \"1\"\n";
    let (success, text) = run_radclient(&places[0], "acct", start, 1);
    assert!(success && text.contains("Accounting-Response"), "{text}");
    let (success, text) = run_radclient(&places[0], "auth", &login("open sesame"), 100);
    assert!(success, "{text}");
    assert_eq!(text.matches("Received Access-Accept").count(), 100, "{text}");

    assert!(counters.read().datagrams_in >= 107);
    assert!(mailbox.send(()));
    let node = shard.join().expect("no panic").expect("its sockets were taken");
    assert!(node.server.counters().requests >= 107);
}
