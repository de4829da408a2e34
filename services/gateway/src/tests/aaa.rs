//! Logins that an AAA server decides, and the sessions that it is told of: our own server, by RADIUS.

use super::local::{PSK_CLIENT, PSK_GATEWAY, eap_client};
use super::*;
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;
use usher_aaa::ledger::Status;
use usher_aaa::{
    AaaServer, Command as Aaa, DynamicResult, Job, Method, Record, User, UserSource, Users, radius_socket,
};
use usher_crypto::tls::{Roots, ServerConfig, ServerOptions, VersionRange};
use usher_eap::method::tls::{ServerMethodTls, ServerTls};
use usher_radius::attribute::{Attributes, kind};
use usher_radius::packet::Code;
use usher_radius::server::{ClientConfig, Config, Role};

const SECRET: &[u8] = b"the secret of RADIUS";

pub(super) const AAA_GATEWAY: &str = r#"
[[connection]]
name = "users"
local_id = "aaa.usher.test"
local_auth = "certificate"
remote_auth = "eap"
certificate = "gw.pem"
key = "gw.key"
pools = ["inner"]
[[connection.child]]
name = "net"
local = ["10.2.0.0/16"]
[[pool]]
name = "inner"
ranges = ["10.9.0.0/24"]
[[pool]]
name = "guests"
ranges = ["10.10.0.0/24"]
[aaa]
nas_identifier = "gw.usher.test"
accounting = true
[[aaa.radius]]
address = "203.0.113.1:1812"
secret = "the secret of RADIUS"
[aaa.dynamic]
"#;

/// A client of EAP that wants an address, and traffic to the site.
pub(super) fn client(method: &str, name: &str, password: &str) -> String {
    let more = "address = true\n[[connection.child]]\nname = \"net\"\nremote = [\"10.2.0.0/16\"]\n";
    format!("{}{more}", eap_client(method, name, password))
}

pub(super) type Told = Rc<RefCell<Vec<Record>>>;

/// A gateway that asks our AAA server, which acknowledges what it is told.
pub(super) struct Site {
    pub(super) world: World,
    pub(super) server: At<AaaServer>,
    /// The records of sessions that it was told.
    pub(super) told: Told,
    /// How often it was told that the gateway begins.
    pub(super) begun: Rc<Cell<usize>>,
}

impl Site {
    pub(super) fn new(text: &str, reply: impl FnOnce(&mut Attributes)) -> Self {
        Self::in_world(World::new(text), reply)
    }
    pub(super) fn in_world(mut world: World, reply: impl FnOnce(&mut Attributes)) -> Self {
        let seed = Seed::new(21);
        let mut users = Users::new(&mut seed.secure("users", 0));
        let mut ann = User::with_password(b"a long password");
        reply(&mut ann.reply);
        let mut bob = User::with_password(b"another password");
        bob.reply = ann.reply.clone();
        users.insert(b"ann", ann);
        users.insert(b"bob", bob);
        users.insert(b"station@usher.test", User::with_password(b"of no use"));
        let mut config = usher_aaa::Config::new(UserSource::Memory(Arc::new(users)));
        let gateway = ClientConfig::new(GATEWAY.parse().unwrap(), 32, usher_radius::Secret::new(SECRET));
        let mut radius = Config::new(vec![gateway]);
        radius.roles = vec![Role::Authentication, Role::Accounting];
        config.radius = Some(radius);
        config.methods = vec![Method::EapTls, Method::EapMsChapV2, Method::EapMd5];
        let tls = ServerConfig::new(ServerOptions {
            versions: VersionRange::default(),
            credentials: fixtures::server(2),
            client_roots: Some(Roots::from_der([fixtures::root()])),
            resumption: None,
            clock: WallClock::at(EPOCH),
            key_log: None,
        });
        config.tls = Some(Arc::new(ServerMethodTls { tls: ServerTls::Real(tls.unwrap()), fragment: 1000 }));
        let server =
            world.net.add(AaaServer::new(config, seed.secure("aaa", 0)).unwrap(), &[SERVER.parse().unwrap()]);
        world.net.bind(server, radius_socket(0), at(SERVER, 1812));
        world.net.bind(server, radius_socket(1), at(SERVER, 1813));
        let told = Told::default();
        let begun = Rc::new(Cell::new(0));
        let (notes, begins) = (told.clone(), begun.clone());
        world.net.on_job(server, move |job| match job.what {
            Job::Account { record } => {
                match record.status {
                    Status::On => begins.set(begins.get() + 1),
                    _ => notes.borrow_mut().push(*record),
                }
                Some((millis(1), Aaa::Accounted { token: job.token, durable: true }))
            }
            _ => None,
        });
        Self { world, server, told, begun }
    }
    pub(super) fn kinds(&self) -> Vec<String> {
        self.told.borrow().iter().map(|record| format!("{:?}", record.status)).collect()
    }
    /// What the server hears to a request of RFC 5176.
    pub(super) fn ask(&mut self, code: Code, write: impl FnOnce(&mut Attributes)) -> DynamicResult {
        let mut attributes = Attributes::new();
        write(&mut attributes);
        let command = Aaa::Dynamic { token: 7, to: at(GATEWAY, 3799), code, attributes };
        self.world.net.command(self.server, command).unwrap();
        self.world.run(secs(1));
        let result = self.world.net.take(self.server).into_iter().find_map(|(_, event)| match event {
            usher_aaa::Event::Dynamic { result, .. } => Some(result),
            _ => None,
        });
        result.expect("an answer")
    }
}

#[test]
fn a_name_that_fits_no_request_is_turned_away_as_that() {
    let mut site = Site::new(AAA_GATEWAY, |_| {});
    let client = site.world.client(CLIENT, &eap_client("mschapv2", &"x".repeat(254), "a long password"));
    site.world.connect(client, "home");
    site.world.run(secs(3));
    let events = site.world.net.events(site.world.gateway).iter();
    let why: Vec<_> = events
        .filter_map(|(_, event)| if let Event::LoginFailed { why, .. } = event { Some(*why) } else { None })
        .collect();
    assert_eq!(why, [LoginFailure::NoName]);
}

#[test]
fn one_slow_answer_of_the_aaa_server_delays_nobody_else() {
    let mut site = Site::new(AAA_GATEWAY, |_| {});
    // What the server is asked about one user takes three seconds each time.
    site.world.net.meddle(|_, sent| {
        let slow = sent.bytes.windows(7).any(|part| part == b"station");
        vec![if slow { secs(3) } else { Duration::ZERO }]
    });
    let slow = site.world.client("198.51.100.1", &client("mschapv2", "station@usher.test", "of no use"));
    let quick = site.world.client(CLIENT, &client("mschapv2", "ann", "a long password"));
    site.world.connect(slow, "home");
    site.world.run(millis(500));
    site.world.connect(quick, "home");
    site.world.run(millis(500));
    assert_eq!((site.world.status(quick).len(), site.world.status(slow).len()), (1, 0));
    site.world.run(secs(25));
    assert_eq!(site.world.status(slow).len(), 1, "{:?}", site.world.ended(slow));
}

#[test]
fn each_method_is_judged_by_the_aaa_server() {
    let mut site = Site::new(AAA_GATEWAY, |_| {});
    let all = [("md5", "ann"), ("mschapv2", "ann"), ("tls", "station@usher.test")];
    for (n, (method, name)) in all.into_iter().enumerate() {
        let host =
            site.world.client(&format!("198.51.100.{}", n + 1), &client(method, name, "a long password"));
        site.world.connect(host, "home");
        site.world.run(secs(3));
        let status = site.world.status(host);
        assert_eq!(status.len(), 1, "{method}: {:?}", site.world.ended(host));
        assert!(status[0].addresses[0].to_string().starts_with("10.9.0."), "{method}");
        assert_eq!(site.world.status(site.world.gateway).last().unwrap().identity, name);
    }
    assert_eq!(site.world.net[site.world.gateway].counters().0.logins_accepted, 3);
    assert_eq!(
        site.world.installed(site.world.gateway).len(),
        2,
        "those of ann are one user's: the last is left"
    );
    let wrong = site.world.client("198.51.100.9", &client("mschapv2", "ann", "a wrong password"));
    site.world.connect(wrong, "home");
    site.world.run(secs(3));
    assert_eq!(site.world.ended(wrong), [EndReason::Refused]);
    assert_eq!(site.world.failures(site.world.gateway), [LoginFailure::Rejected]);
}

#[test]
fn what_the_server_says_of_a_user_holds_and_it_is_told_of_the_session() {
    let mut site = Site::new(AAA_GATEWAY, |reply| {
        reply.push_u32(kind::SESSION_TIMEOUT, 100);
        reply.push_u32(kind::ACCT_INTERIM_INTERVAL, 40);
        reply.push_text(kind::FRAMED_POOL, "guests").unwrap();
        reply.push_bytes(kind::CLASS, b"gold").unwrap();
    });
    let host = site.world.client(CLIENT, &client("md5", "ann", "a long password"));
    site.world.connect(host, "home");
    site.world.run(secs(2));
    let status = site.world.status(site.world.gateway);
    assert!(status[0].addresses[0].to_string().starts_with("10.10.0."));
    assert_eq!(site.kinds(), ["Start"]);
    site.world.run(secs(90));
    assert_eq!(site.kinds(), ["Start", "Interim", "Interim"]);
    assert_eq!(site.world.status(host).len(), 1);
    site.world.run(secs(20));
    assert_eq!(site.world.status(host).len(), 0, "its time is over");
    assert_eq!(site.kinds(), ["Start", "Interim", "Interim", "Stop"]);
    let told = site.told.borrow();
    for record in told.iter() {
        assert_eq!((&record.session, record.class.as_slice()), (&told[0].session, &b"gold"[..]));
        assert_eq!(record.framed_address, Some(status[0].addresses[0]));
        assert_eq!(record.calling_station_id, format!("{CLIENT}[4500]"));
    }
    // Session-Timeout (RFC 2866 section 5.10).
    assert_eq!(told[3].terminate_cause, Some(5));
    assert_eq!(site.world.net[site.world.gateway].pools().nth(1), Some(("guests", 0, 254)));
}

/// The second user is given what the first one has, and a third what no host can have.
#[test]
fn an_address_of_the_servers_that_is_anothers_or_no_hosts_is_not_given() {
    for (given, why) in
        [([10, 200, 0, 1], LoginFailure::AddressInUse), ([127, 0, 0, 1], LoginFailure::BadAnswer)]
    {
        let mut site = Site::new(AAA_GATEWAY, move |reply| {
            reply.push_bytes(kind::FRAMED_IP_ADDRESS, &given).unwrap();
        });
        for (address, user) in [(CLIENT, "ann"), ("198.51.100.9", "bob")] {
            let password = if user == "ann" { "a long password" } else { "another password" };
            let host = site.world.client(address, &client("md5", user, password));
            site.world.connect(host, "home");
            site.world.run(secs(2));
        }
        let failures = site.world.failures(site.world.gateway);
        assert!(failures.iter().all(|one| *one == why) && !failures.is_empty(), "{given:?}: {failures:?}");
        let given = core::net::IpAddr::from(given);
        let all = site.world.status(site.world.gateway);
        let holders = all.iter().filter(|one| one.addresses.contains(&given)).count();
        assert_eq!(holders, usize::from(why == LoginFailure::AddressInUse), "{given:?}");
    }
}

#[test]
fn the_server_ends_a_session_and_changes_another() {
    let mut site = Site::new(AAA_GATEWAY, |_| {});
    let host = site.world.client(CLIENT, &client("md5", "ann", "a long password"));
    site.world.connect(host, "home");
    site.world.run(secs(2));
    let session = site.world.status(site.world.gateway)[0].session.clone();
    let of = |session: String| move |a: &mut Attributes| drop(a.push_text(kind::ACCT_SESSION_ID, &session));
    assert_eq!(site.ask(Code::DISCONNECT_REQUEST, of("another".into())), DynamicResult::Nak(Some(503)));
    let longer = |a: &mut Attributes| {
        a.push_text(kind::USER_NAME, "ann").unwrap();
        a.push_u32(kind::SESSION_TIMEOUT, 30);
    };
    assert_eq!(site.ask(Code::COA_REQUEST, longer), DynamicResult::Ack);
    let filtered = |a: &mut Attributes| {
        a.push_text(kind::USER_NAME, "ann").unwrap();
        a.push_text(kind::FILTER_ID, "students").unwrap();
    };
    assert_eq!(site.ask(Code::COA_REQUEST, filtered), DynamicResult::Nak(Some(401)));
    assert_eq!(site.ask(Code::DISCONNECT_REQUEST, of(session)), DynamicResult::Ack);
    assert_eq!((site.world.status(host).len(), site.world.status(site.world.gateway).len()), (0, 0));
    assert_eq!(site.world.ended(host), [EndReason::DeletedByPeer]);
    assert_eq!(site.kinds(), ["Start", "Stop"]);
    // The change holds for another session.
    site.world.connect(host, "home");
    site.world.run(secs(2));
    assert_eq!(site.ask(Code::COA_REQUEST, longer), DynamicResult::Ack);
    site.world.run(secs(20));
    assert_eq!(site.world.status(host).len(), 1);
    site.world.run(secs(10));
    assert_eq!(site.world.status(host).len(), 0);
    let counters = *site.world.net[site.world.gateway].counters().0;
    assert_eq!((counters.sessions_disconnected, counters.sessions_changed), (1, 2));
    assert_eq!((counters.sessions_timed_out, counters.dynamic_refused), (1, 2));
}

/// A Session-Timeout of nothing is no limit, then as at login (RFC 6733 section 8.13).
#[test]
fn a_session_timeout_of_nothing_takes_the_limit_away() {
    let mut site = Site::new(AAA_GATEWAY, |_| {});
    let host = site.world.client(CLIENT, &client("md5", "ann", "a long password"));
    site.world.connect(host, "home");
    site.world.run(secs(2));
    let timeout = |seconds| {
        move |a: &mut Attributes| {
            a.push_text(kind::USER_NAME, "ann").unwrap();
            a.push_u32(kind::SESSION_TIMEOUT, seconds);
        }
    };
    assert_eq!(site.ask(Code::COA_REQUEST, timeout(10)), DynamicResult::Ack);
    assert_eq!(site.ask(Code::COA_REQUEST, timeout(0)), DynamicResult::Ack);
    site.world.run(secs(300));
    assert_eq!(site.world.status(host).len(), 1);
}

#[test]
fn a_slow_aaa_server_delays_nobody_else() {
    let psk = PSK_GATEWAY.split("[[pool]]").next().unwrap();
    let mut site = Site::new(&[AAA_GATEWAY, psk].concat(), |_| {});
    site.world.net.silence(site.server, true);
    let slow = site.world.client(CLIENT, &client("md5", "ann", "a long password"));
    site.world.connect(slow, "home");
    site.world.run(millis(500));
    assert_eq!(site.world.status(slow).len(), 0);
    let quick = site.world.client("198.51.100.8", PSK_CLIENT);
    site.world.run(millis(200));
    assert_eq!(site.world.status(quick).len(), 1, "two round trips and a signature by nobody");
    // Nobody answers in the end, and the client hears so.
    site.world.run(secs(60));
    assert_eq!(site.world.failures(site.world.gateway), [LoginFailure::Unanswered]);
    assert_eq!(site.world.ended(slow).len(), 1);
    assert_eq!(site.world.net[site.world.gateway].half_open(), 0);
}

/// RFC 2866 §5.10: a session that the server ended was ended by it, whatever becomes of the message that says so.
#[test]
fn the_first_cause_of_a_sessions_end_is_told() {
    const LOST_CARRIER: u32 = 2;
    const ADMIN_RESET: u32 = 6;
    for (disconnected, cause) in [(false, LOST_CARRIER), (true, ADMIN_RESET)] {
        let mut site = Site::new(AAA_GATEWAY, |_| {});
        let host = site.world.client(CLIENT, &client("md5", "ann", "a long password"));
        site.world.connect(host, "home");
        site.world.run(secs(2));
        // The client is no more there, and does not say so.
        site.world.net.silence(host, true);
        if disconnected {
            let ann = |a: &mut Attributes| drop(a.push_text(kind::USER_NAME, "ann"));
            assert_eq!(site.ask(Code::DISCONNECT_REQUEST, ann), DynamicResult::Ack);
        }
        site.world.run(secs(1000));
        assert_eq!(site.kinds(), ["Start", "Stop"]);
        assert_eq!(site.told.borrow()[1].terminate_cause, Some(cause), "disconnected: {disconnected}");
    }
}
