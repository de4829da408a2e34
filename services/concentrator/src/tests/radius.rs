//! Logins that an AAA server decides, and the sessions that it is told of: our own server, by RADIUS.

use super::*;
use crate::{DYNAMIC_SOCKET, Usage};
use AuthenticationProtocol as P;
use usher_aaa::{
    AaaServer, Command as Aaa, DynamicResult, Job as Asked, Method, Record as Told, User, UserSource, Users,
    radius_socket,
};
use usher_core::Seed;
use usher_crypto::tls;
use usher_eap::method::tls::{PeerMethodTls, PeerTls, ServerMethodTls, ServerTls};
use usher_eap::method::ttls::{PeerMethodTtls, Proof, ServerMethodTtls};
use usher_eap::method::{Inner, PeerOffer};
use usher_radius::attribute::{Attributes, Value, kind, vendor};
use usher_radius::packet::Code;
use usher_radius::server::{ClientConfig as Known, Config, Role};

const SECRET: &[u8] = b"the secret of RADIUS";

const AAA: &str = r#"
[listen]
interfaces = ["eth1"]
[service]
address = "10.0.0.1"
pools = ["students"]
prefix_pool = "links"
[authentication]
protocols = ["mschapv2", "eap", "chap", "pap"]
when_away = "grace"
grace_time = "10 min"
[[pool]]
name = "students"
ranges = ["10.0.0.0/28"]
[[pool]]
name = "guests"
ranges = ["10.1.0.0/28"]
[[pool]]
name = "links"
ranges = ["2001:db8:1::/48/64"]
[[rate]]
name = "gold"
up = "50 Mb/s"
down = "200 Mb/s"
[aaa]
nas_identifier = "campus.usher.test"
accounting = true
interim = "60 s"
[[aaa.radius]]
address = "203.0.113.1:1812"
secret = "the secret of RADIUS"
[aaa.dynamic]
[tracking]
"#;

struct Site {
    world: World,
    server: At<AaaServer>,
    told: Rc<RefCell<Vec<Told>>>,
    /// The server's.
    config: usher_aaa::Config,
}

impl Site {
    fn new(clients: Vec<ClientConfig>, reply: impl FnOnce(&mut Attributes)) -> Self {
        let mut loaded = loaded(AAA);
        loaded.config.metered = true;
        Self::of(loaded, clients, reply)
    }
    fn of(loaded: Loaded, clients: Vec<ClientConfig>, reply: impl FnOnce(&mut Attributes)) -> Self {
        Self::with(loaded, clients, reply, |_| {})
    }
    fn with(
        loaded: Loaded,
        clients: Vec<ClientConfig>,
        reply: impl FnOnce(&mut Attributes),
        change: impl FnOnce(&mut usher_aaa::Config),
    ) -> Self {
        let mut world = World::of(loaded, clients);
        world.net.bind(world.ac, DYNAMIC_SOCKET, at(CONCENTRATOR, 3799));
        let seed = Seed::new(21);
        let mut users = Users::new(&mut seed.secure("users", 0));
        let mut ann = User::with_password(b"a long password");
        reply(&mut ann.reply);
        users.insert(b"ann", ann);
        users.insert(b"bob", User::with_password(b"another password"));
        let mut config = usher_aaa::Config::new(UserSource::Memory(Arc::new(users)));
        let known = Known::new(CONCENTRATOR.parse().unwrap(), 32, usher_radius::Secret::new(SECRET));
        let mut radius = Config::new(vec![known]);
        radius.roles = vec![Role::Authentication, Role::Accounting];
        config.radius = Some(radius);
        config.methods = vec![Method::MsChapV2, Method::EapMd5, Method::Chap, Method::Pap];
        change(&mut config);
        let server = AaaServer::new(config.clone(), seed.secure("aaa", 0)).unwrap();
        let server = world.net.add(server, &[SERVER.parse().unwrap()]);
        world.net.bind(server, radius_socket(0), at(SERVER, 1812));
        world.net.bind(server, radius_socket(1), at(SERVER, 1813));
        let told = Rc::new(RefCell::new(Vec::new()));
        let notes = told.clone();
        world.net.on_job(server, move |job| match job.what {
            Asked::Account { record } => {
                notes.borrow_mut().push(*record);
                Some((millis(1), Aaa::Accounted { token: job.token, durable: true }))
            }
            _ => None,
        });
        Self { world, server, told, config }
    }
    fn kinds(&self) -> Vec<String> {
        self.told.borrow().iter().map(|record| format!("{:?}", record.status)).collect()
    }
    fn ask(&mut self, code: Code, write: impl FnOnce(&mut Attributes)) -> DynamicResult {
        let mut attributes = Attributes::new();
        write(&mut attributes);
        let command = Aaa::Dynamic { token: 7, to: at(CONCENTRATOR, 3799), code, attributes };
        self.world.net.command(self.server, command).unwrap();
        self.world.net.run(secs(1));
        let result = self.world.net.take(self.server).into_iter().find_map(|(_, event)| match event {
            usher_aaa::Event::Dynamic { result, .. } => Some(result),
            _ => None,
        });
        result.expect("an answer")
    }
}

#[test]
fn the_server_judges_each_protocol_and_says_what_a_user_gets() {
    for protocol in P::ALL {
        let mut site = Site::new(vec![client(1, protocol, "ann", "a long password")], |reply| {
            reply.push_u32(kind::FRAMED_IP_ADDRESS, Ipv4Addr::new(10, 0, 0, 9).to_bits());
            reply.push_text(kind::FILTER_ID, "gold").unwrap();
            reply
                .push_vendor(vendor::WISPR, vendor::WISPR_BANDWIDTH_MAX_UP, &1_000_000_u32.to_be_bytes())
                .unwrap();
            reply.push_text(kind::REPLY_MESSAGE, "hello").unwrap();
        });
        site.world.up(0);
        let installed = site.world.installed();
        assert_eq!(
            installed.len(),
            1,
            "{protocol}: {:?} {:?}",
            site.world.failures(),
            site.world.client_ended(0)
        );
        let entry = installed.values().next().unwrap();
        assert_eq!(entry.ipv4, Some(Ipv4Addr::new(10, 0, 0, 9)));
        assert_eq!((entry.rate_up, entry.rate_down), (Some(1_000_000), Some(200_000_000)));
        assert_eq!(entry.ipv6.len(), 1, "of the pool, since the server says nothing of it");
        let mut other = Site::new(vec![client(1, protocol, "ann", "wrong")], |_| {});
        other.world.up(0);
        assert_eq!((other.world.failures()[0], other.world.installed().len()), (LoginFailure::Rejected, 0));
        assert_eq!(other.kinds(), ["On"], "a server hears of the start, and of no session");
    }
}

#[test]
fn the_server_is_told_of_a_session_with_its_octets() {
    let mut site = Site::new(vec![client(1, P::Chap, "ann", "a long password")], |reply| {
        reply.push_bytes(kind::CLASS, b"a class").unwrap();
    });
    site.world.up(0);
    let (id, number) = (site.world.status()[0].id, site.world.status()[0].number);
    let usage = |octets: u64| Usage {
        octets_in: octets,
        octets_out: 6_000_000_000,
        packets_in: 3,
        packets_out: 4,
        ..Usage::default()
    };
    site.world.net.command(site.world.ac, Command::Carried(vec![(number, usage(1000))])).unwrap();
    site.world.net.run(secs(62));
    site.world.close(Which::All);
    site.world.net.command(site.world.ac, Command::Removed { id, usage: Some(usage(2000)) }).unwrap();
    site.world.net.run(secs(1));
    assert_eq!(site.kinds(), ["On", "Start", "Interim", "Stop"]);
    let told = site.told.borrow();
    let stop = format!("{:?}", told.last().unwrap());
    for part in ["2000", "6000000000", "ann"] {
        assert!(stop.contains(part), "{part} in {stop}");
    }
}

#[test]
fn pools_are_named_by_the_server() {
    let mut site = Site::new(vec![client(1, P::Pap, "ann", "a long password")], |reply| {
        reply.push_text(kind::FRAMED_POOL, "guests").unwrap();
        reply.push_u32(kind::SESSION_TIMEOUT, 30);
    });
    site.world.up(0);
    assert_eq!(site.world.status()[0].ipv4.unwrap().octets()[..2], [10, 1]);
    site.world.net.run(secs(40));
    assert_eq!(site.world.ended(), ["session-timeout"]);
}

#[test]
fn an_address_that_somebody_has_is_not_given_to_another() {
    let both = vec![client(1, P::Pap, "ann", "a long password"), client(2, P::Pap, "ann", "a long password")];
    let mut site = Site::new(both, |reply| {
        reply.push_u32(kind::FRAMED_IP_ADDRESS, Ipv4Addr::new(10, 0, 0, 9).to_bits());
    });
    site.world.up(0);
    site.world.up(1);
    assert_eq!((site.world.status().len(), site.world.failures()[0]), (1, LoginFailure::AddressInUse));
}

#[test]
fn the_server_ends_and_changes_sessions() {
    let mut site = Site::new(vec![client(1, P::Chap, "ann", "a long password")], |_| {});
    site.world.up(0);
    let ack = |result: &DynamicResult| {
        format!("{result:?}").contains("Acknowledged") || format!("{result:?}").contains("Ack")
    };
    let result = site.ask(Code::COA_REQUEST, |a| {
        a.push_text(kind::USER_NAME, "ann").unwrap().push_text(kind::FILTER_ID, "gold").unwrap();
    });
    assert!(ack(&result), "{result:?}");
    assert_eq!(site.world.installed().into_values().next().unwrap().rate_up, Some(50_000_000), "at once");
    let refused = site.ask(Code::COA_REQUEST, |a| {
        a.push_text(kind::USER_NAME, "ann").unwrap().push_text(kind::FILTER_ID, "unknown").unwrap();
    });
    assert!(!ack(&refused), "{refused:?}");
    let nobody = site.ask(Code::DISCONNECT_REQUEST, |a| drop(a.push_text(kind::USER_NAME, "bob")));
    assert!(!ack(&nobody) && site.world.status().len() == 1, "{nobody:?}");
    let gone = site.ask(Code::DISCONNECT_REQUEST, |a| drop(a.push_text(kind::USER_NAME, "ann")));
    assert!(ack(&gone) && site.world.status().is_empty(), "{gone:?}");
    site.world.net.run(secs(6));
    assert_eq!(site.kinds().last().unwrap(), "Stop");
}

#[test]
fn while_the_server_is_away_who_was_let_in_lately_by_a_password_comes_in_again() {
    let clients = vec![
        client(1, P::Pap, "ann", "a long password"),
        client(2, P::Pap, "ann", "a long password"),
        client(3, P::MsChapV2, "bob", "another password"),
    ];
    let mut site = Site::new(clients, |reply| {
        reply.push_u32(kind::SESSION_TIMEOUT, 100);
    });
    site.world.up(0);
    site.world.up(2);
    let address = site.world.status()[0].ipv4;
    site.world.net.silence(site.server, true);
    site.world.net.run(secs(1));
    site.world.net.command(site.world.clients[0], ClientCommand::Disconnect).unwrap();
    site.world.net.run(secs(10));
    // Another station of the same user has not been seen, and is refused.
    site.world.connect(1);
    site.world.net.run(secs(70));
    assert!(site.world.failures().contains(&LoginFailure::Unanswered) && site.world.networks(1).is_empty());
    site.world.connect(0);
    site.world.net.run(secs(60));
    assert_eq!(site.world.counted("logins_in_grace"), 1);
    let status = site.world.status();
    let again = status.iter().find(|one| one.station.ends_with(":01")).expect("it is back");
    assert_eq!(again.ipv4, address, "with its address");
    // Its hundred seconds pass, and nobody could let it in again: it stays until the server is back.
    site.world.net.run(secs(100));
    assert!(site.world.counted("sessions_in_grace") > 0 && !site.world.status().is_empty());
    // Bob, who showed MS-CHAPv2, cannot come again before that.
    site.world.net.command(site.world.clients[2], ClientCommand::Disconnect).unwrap();
    site.world.net.run(secs(20));
    site.world.connect(2);
    site.world.net.run(secs(50));
    assert!(!site.world.status().iter().any(|one| one.user == "bob"));
    site.world.net.silence(site.server, false);
    site.world.net.run(secs(60));
    site.world.up(2);
    assert!(site.world.status().iter().any(|one| one.user == "bob"));
    site.world.net.run(secs(5));
    assert!(
        site.world.ended().contains(&"session-timeout".to_owned()),
        "what was over ends: {:?}",
        site.world.ended()
    );
}

#[test]
fn sessions_of_a_start_that_was_killed_are_stopped_in_accounting() {
    let mut site = Site::new(vec![client(1, P::Chap, "ann", "a long password")], |reply| {
        reply.push_bytes(kind::CLASS, b"a class").unwrap();
    });
    site.world.up(0);
    let mut index = crate::track::Index::default();
    site.world.disk.borrow().lines.iter().for_each(|line| index.read(line));
    let mut again = loaded(AAA);
    again.config.lost = index.open().collect();
    let session = again.config.lost[0].begin.session.clone();
    assert_eq!(again.config.lost[0].begin.classes, [b"a class".to_vec()]);
    let mut site = Site::of(again, Vec::new(), |_| {});
    site.world.net.run(secs(2));
    assert_eq!(site.kinds(), ["On", "Stop"]);
    assert!(format!("{:?}", site.told.borrow().last()).contains(&session));
    // And a leave is told, too.
    site.world.net.command(site.world.ac, Command::Leave).unwrap();
    site.world.net.run(secs(2));
    assert_eq!(site.kinds().last().unwrap(), "Off");
    assert_eq!(site.world.net[site.world.ac].radius_counters().map(|_| AAA_SLOT), Some(1));
}

/// A user within EAP-TTLS that calls itself something outside.
fn within(n: u16, outside: &str, inside: &str, password: &str) -> ClientConfig {
    let tls = tls::ClientConfig::new(tls::ClientOptions {
        versions: tls::Version::Tls13.into(),
        credentials: None,
        roots: tls::Roots::from_der([tls::fixtures::root()]),
        server_name: Some(tls::fixtures::SERVER_NAME.into()),
        resumption: None,
        clock: WallClock::at(tls::fixtures::WALL_TIME),
        key_log: None,
    });
    let tls = PeerTls::Real(tls.unwrap(), 0);
    let proof = Proof::Pap(password.as_bytes().into());
    let offer: Box<dyn PeerOffer> =
        Box::new(PeerMethodTtls { tls, fragment: 1024, identity: inside.as_bytes().to_vec(), proof });
    let credentials = Credentials {
        name: outside.as_bytes().to_vec(),
        password: password.as_bytes().into(),
        protocols: vec![P::Eap],
        eap_methods: Arc::new([offer]),
    };
    ClientConfig::new(PORT, host(n), credentials)
}

/// An AAA server of tunnels, which says who is within one where `says`.
fn tunnels(config: &mut usher_aaa::Config, says: bool) {
    let tls = tls::ServerConfig::new(tls::ServerOptions {
        versions: tls::Version::Tls13.into(),
        credentials: tls::fixtures::server(3),
        client_roots: None,
        resumption: None,
        clock: WallClock::at(tls::fixtures::WALL_TIME),
        key_log: None,
    });
    config.methods = vec![Method::Ttls, Method::EapMd5, Method::Pap];
    let inner = [Inner::Pap].into();
    config.ttls =
        Some(Arc::new(ServerMethodTtls { tls: ServerTls::Real(tls.unwrap()), fragment: 1024, inner }));
    if says {
        config.inner_names = vec![0];
    }
}

#[test]
fn who_calls_itself_somebody_else_outside_a_tunnel_is_not_taken_for_it() {
    let text = AAA.replace("[tracking]", "[limits]\nsessions_per_user = 1\n[tracking]");
    let clients = || {
        let bob = client(1, P::Eap, "bob", "another password");
        vec![bob, within(2, "bob", "ann", "a long password")]
    };
    let mut site = Site::with(loaded(&text), clients(), |_| {}, |config| tunnels(config, false));
    site.world.up(0);
    site.world.up(1);
    let status = site.world.status();
    assert_eq!(status.len(), 2, "bob's session stays: {:?} {:?}", site.world.ended(), site.world.failures());
    assert_eq!(status[0].user, "bob");
    let expected = format!("bob within EAP, session {}", status[1].session);
    assert_eq!(status[1].user, expected);
    let names: Vec<String> = site
        .world
        .log()
        .iter()
        .filter_map(|record| match record {
            Record::Begin(begin) => Some(begin.user.clone()),
            _ => None,
        })
        .collect();
    assert_eq!(names, ["bob", &expected]);
    // IDENT names bob alone.
    let named = |site: &Site, at: Option<Ipv4Addr>| {
        site.world.net[site.world.ac].user_at(at.unwrap().into()).unwrap().name
    };
    assert_eq!(named(&site, status[0].ipv4), Some(b"bob".to_vec()));
    assert_eq!(named(&site, status[1].ipv4), None);
    // Disconnected by name it is not bob either.
    assert_eq!(site.world.close(Which::Named("bob".into())), 1);
    assert_eq!(site.world.status()[0].user, expected);
    // Where the server says who it is, it is that user.
    let mut site = Site::with(loaded(&text), clients(), |_| {}, |config| tunnels(config, true));
    site.world.up(0);
    site.world.up(1);
    let users: Vec<_> = site.world.status().into_iter().map(|one| one.user).collect();
    assert_eq!(users, ["bob", "ann"]);
}

/// A user by EAP-TLS, whose certificate bears this name.
fn station(n: u16) -> ClientConfig {
    station_of(n, 1024)
}

/// The same, whose packets of EAP are no longer than this.
fn station_of(n: u16, fragment: usize) -> ClientConfig {
    let tls = tls::ClientConfig::new(tls::ClientOptions {
        versions: tls::Version::Tls13.into(),
        credentials: Some(tls::fixtures::client(1)),
        roots: tls::Roots::from_der([tls::fixtures::root()]),
        server_name: Some(tls::fixtures::SERVER_NAME.into()),
        resumption: None,
        clock: WallClock::at(tls::fixtures::WALL_TIME),
        key_log: None,
    });
    let offer: Box<dyn PeerOffer> = Box::new(PeerMethodTls { tls: PeerTls::Real(tls.unwrap(), 0), fragment });
    let credentials = Credentials {
        name: b"station@usher.test".to_vec(),
        password: b""[..].into(),
        protocols: vec![P::Eap],
        eap_methods: Arc::new([offer]),
    };
    ClientConfig::new(PORT, host(n), credentials)
}

/// An AAA server that lets in by certificates.
fn certificates(config: &mut usher_aaa::Config) {
    let tls = tls::ServerConfig::new(tls::ServerOptions {
        versions: tls::Version::Tls13.into(),
        credentials: tls::fixtures::server(3),
        client_roots: Some(tls::Roots::from_der([tls::fixtures::root()])),
        resumption: None,
        clock: WallClock::at(tls::fixtures::WALL_TIME),
        key_log: None,
    });
    let mut users = Users::new(&mut Seed::new(21).secure("users", 0));
    users.insert(b"station@usher.test", User::with_password(b"of no use"));
    config.users = UserSource::Memory(Arc::new(users));
    config.methods = vec![Method::EapTls];
    config.tls = Some(Arc::new(ServerMethodTls { tls: ServerTls::Real(tls.unwrap()), fragment: 1024 }));
}

#[test]
fn a_server_cuts_its_packets_to_what_the_host_takes() {
    let host = ClientConfig { mtu: 600, ..station_of(1, 500) };
    let mut site = Site::with(loaded(AAA), vec![host], |_| {}, certificates);
    site.world.up(0);
    assert_eq!(site.world.status().len(), 1, "{:?}", site.world.client_ended(0));
}

#[test]
fn who_shows_a_certificate_has_a_name_where_the_server_compares_it() {
    for trusted in [false, true] {
        let text = AAA.replace("when_away", &format!("trust_certificate_names = {trusted}\nwhen_away"));
        let mut site = Site::with(loaded(&text), vec![station(1)], |_| {}, certificates);
        site.world.up(0);
        let status = site.world.status();
        assert_eq!(status.len(), 1, "{:?} {:?}", site.world.failures(), site.world.client_ended(0));
        let named = site.world.net[site.world.ac].user_at(status[0].ipv4.unwrap().into()).unwrap().name;
        // Another server would have let it in under any name.
        let unnamed = format!("station@usher.test within EAP, session {}", status[0].session);
        let expected = if trusted { "station@usher.test".to_owned() } else { unnamed };
        assert_eq!((&status[0].user, named.is_some()), (&expected, trusted));
        let told = format!("{:?}", site.told.borrow().last());
        assert!(
            told.contains("\"station@usher.test\""),
            "accounting has the name that was asked with: {told}"
        );
    }
}

#[test]
fn a_prefix_that_would_lead_others_packets_to_a_host_is_no_answer() {
    for (prefix, bits) in [("::", 0), ("2001:d00::", 24), ("2001:db8::", 31), ("ff05::", 64), ("fe80::", 64)]
    {
        let mut value = Vec::new();
        Value::Ipv6Prefix(prefix.parse().unwrap(), bits).encode(&mut value);
        for attribute in [kind::FRAMED_IPV6_PREFIX, kind::DELEGATED_IPV6_PREFIX] {
            let mut site = Site::new(vec![client(1, P::Pap, "ann", "a long password")], |reply| {
                reply.push_bytes(attribute, &value).unwrap();
            });
            site.world.up(0);
            assert_eq!(site.world.failures(), [LoginFailure::BadAnswer], "{prefix}/{bits}");
            assert!(site.world.installed().is_empty() && site.world.status().is_empty());
        }
    }
}

#[test]
fn an_address_that_no_host_can_have_is_no_answer() {
    for address in [[127, 0, 0, 1], [0, 0, 0, 0], [224, 0, 0, 1], [169, 254, 1, 1], [240, 0, 0, 1]] {
        let mut site = Site::new(vec![client(1, P::Pap, "ann", "a long password")], move |reply| {
            reply.push_bytes(kind::FRAMED_IP_ADDRESS, &address).unwrap();
        });
        site.world.up(0);
        assert_eq!(site.world.failures(), [LoginFailure::BadAnswer], "{address:?}");
    }
}

#[test]
fn a_session_that_is_prolonged_while_its_time_is_over_does_not_end_with_the_next_login() {
    let clients =
        vec![client(1, P::Pap, "ann", "a long password"), client(2, P::Pap, "bob", "another password")];
    let mut site = Site::new(clients, |reply| {
        reply.push_u32(kind::SESSION_TIMEOUT, 100);
    });
    site.world.up(0);
    site.world.net.silence(site.server, true);
    // Somebody finds out that no server answers; and then ann's time is over.
    site.world.connect(1);
    site.world.net.run(secs(110));
    assert_eq!(site.world.counted("sessions_in_grace"), 1);
    site.world.net.silence(site.server, false);
    let result = site.ask(Code::COA_REQUEST, |a| {
        a.push_text(kind::USER_NAME, "ann").unwrap().push_u32(kind::SESSION_TIMEOUT, 1000);
    });
    assert!(format!("{result:?}").contains("Ack"), "{result:?}");
    site.world.net.run(secs(60));
    site.world.up(1);
    let users: Vec<_> = site.world.status().into_iter().map(|one| one.user).collect();
    assert_eq!(users, ["ann", "bob"], "{:?}", site.world.ended());
    site.world.net.run(secs(1000));
    assert_eq!(site.world.ended(), ["session-timeout"]);
}

#[test]
fn a_name_of_the_servers_that_would_forge_lines_is_no_answer() {
    let mut site = Site::new(vec![client(1, P::Pap, "ann", "a long password")], |reply| {
        reply.push_bytes(kind::USER_NAME, b"ann\nbob  from").unwrap();
    });
    site.world.up(0);
    assert_eq!(site.world.failures(), [LoginFailure::BadAnswer]);
}

#[test]
fn a_file_with_users_instead_of_a_server_waits_for_the_next_start_as_a_whole() {
    let clients = || vec![client(1, P::Chap, "ann", "a long password")];
    let mut site = Site::new(clients(), |_| {});
    // With pools that there are.
    let again = loaded(&LOCAL.replace("delegated_pool = \"sites\"\n", ""));
    site.world.net.command(site.world.ac, Command::Configure(Box::new(again.config))).unwrap();
    site.world.up(0);
    assert_eq!(site.world.status().len(), 1, "the server still judges: {:?}", site.world.failures());
    // Nor do the concentrator's own users go with a file that has none.
    let mut world = World::new(LOCAL, clients());
    world.net.command(world.ac, Command::Configure(Box::new(loaded(AAA).config))).unwrap();
    world.up(0);
    assert_eq!(world.status().len(), 1, "{:?}", world.failures());
}

#[test]
fn whom_the_server_has_turned_away_or_disconnected_meanwhile_has_no_grace() {
    for disconnected in [false, true] {
        let clients =
            vec![client(1, P::Pap, "ann", "a long password"), client(2, P::Pap, "ann", "a long password")];
        let mut site = Site::new(clients, |_| {});
        site.world.up(0);
        if disconnected {
            site.ask(Code::DISCONNECT_REQUEST, |a| drop(a.push_text(kind::USER_NAME, "ann")));
        } else {
            // The same name and password at another station, which the server does not let in any more.
            let users = Users::new(&mut Seed::new(21).secure("users", 0));
            let config =
                usher_aaa::Config { users: UserSource::Memory(Arc::new(users)), ..site.config.clone() };
            site.world.net.command(site.server, Aaa::Reload(Box::new(config))).unwrap();
            site.world.up(1);
            assert_eq!(site.world.failures(), [LoginFailure::Rejected]);
            site.world.net.command(site.world.clients[0], ClientCommand::Disconnect).unwrap();
        }
        site.world.net.run(secs(10));
        site.world.net.silence(site.server, true);
        site.world.connect(0);
        site.world.net.run(secs(60));
        assert_eq!(site.world.counted("logins_in_grace"), 0, "disconnected: {disconnected}");
        assert!(site.world.status().is_empty());
    }
}

#[test]
fn a_prefix_of_a_pool_that_overlaps_what_the_server_gave_another_is_passed_over() {
    // Of the pool's four prefixes ann has two by the server's word, in one.
    let text = AAA.replace("2001:db8:1::/48/64", "2001:db8:1::/62/64");
    let clients =
        vec![client(1, P::Pap, "ann", "a long password"), client(2, P::Pap, "bob", "another password")];
    let mut value = Vec::new();
    Value::Ipv6Prefix("2001:db8:1::".parse().unwrap(), 63).encode(&mut value);
    let mut site = Site::of(loaded(&text), clients, |reply| {
        reply.push_bytes(kind::FRAMED_IPV6_PREFIX, &value).unwrap();
    });
    site.world.up(0);
    for _ in 0..4 {
        site.world.up(1);
        let status = site.world.status();
        let bob = status.iter().find(|one| one.user == "bob");
        let bob = bob.unwrap_or_else(|| panic!("{:?}", site.world.failures()));
        assert!(bob.ipv6[0].0.segments()[3] >= 2, "{:?}", bob.ipv6);
        site.world.close(Which::Named("bob".into()));
        site.world.net.run(secs(5));
    }
}

#[test]
fn a_limit_of_zero_is_none() {
    let mut site = Site::new(vec![client(1, P::Pap, "ann", "a long password")], |reply| {
        reply.push_u32(kind::SESSION_TIMEOUT, 0).push_u32(kind::IDLE_TIMEOUT, 0);
    });
    site.world.up(0);
    site.world.net.run(secs(100));
    assert_eq!((site.world.status().len(), site.world.ended()), (1, Vec::new()));
    // A CoA takes a limit away by the same word.
    for (lasts, left) in [(3600, 1), (0, 1), (1, 0)] {
        site.ask(Code::COA_REQUEST, |a| {
            a.push_text(kind::USER_NAME, "ann").unwrap().push_u32(kind::SESSION_TIMEOUT, lasts);
        });
        assert_eq!(site.world.status().len(), left, "{lasts} s");
    }
}

#[test]
fn a_host_that_lost_its_power_comes_back_to_its_own_address_at_once() {
    let ann = || client(1, P::Pap, "ann", "a long password");
    let mut site = Site::of(loaded(AAA), vec![ann(), ann()], |reply| {
        reply.push_u32(kind::FRAMED_IP_ADDRESS, Ipv4Addr::new(10, 0, 0, 9).to_bits());
    });
    site.world.up(0);
    site.world.net.silence(site.world.clients[0], true);
    site.world.up(1);
    let status = site.world.status();
    assert_eq!((status.len(), status[0].ipv4), (1, Some(Ipv4Addr::new(10, 0, 0, 9))));
    assert_eq!((site.world.ended(), site.world.counted("hosts_replaced")), (vec!["replaced".to_owned()], 1));
    assert!(site.world.failures().is_empty());
}

#[test]
fn a_session_is_found_by_the_name_that_its_user_gave() {
    let mut site = Site::new(vec![client(1, P::Pap, "ann", "a long password")], |reply| {
        reply.push_text(kind::USER_NAME, "ann.smith@example.org").unwrap();
    });
    for name in ["ann", "ann.smith@example.org"] {
        site.world.up(0);
        assert_eq!(site.world.status()[0].user, "ann.smith@example.org");
        site.ask(Code::DISCONNECT_REQUEST, |a| drop(a.push_text(kind::USER_NAME, name)));
        assert!(site.world.status().is_empty(), "{name}");
        site.world.net.run(secs(5));
    }
}

#[test]
fn records_wait_for_a_server_that_is_away() {
    let clients =
        vec![client(1, P::Pap, "ann", "a long password"), client(2, P::Pap, "bob", "another password")];
    let mut site = Site::of(loaded(AAA), clients, |_| {});
    site.world.up(0);
    site.world.up(1);
    site.world.net.silence(site.server, true);
    site.world.close(Which::All);
    site.world.net.run(secs(300));
    assert_eq!(site.kinds(), ["On", "Start", "Start"]);
    site.world.net.silence(site.server, false);
    site.world.net.run(secs(90));
    assert_eq!(site.kinds(), ["On", "Start", "Start", "Stop", "Stop"]);
    assert_eq!(site.world.counted("records_lost"), 0);
    let told = site.told.borrow();
    let stop = told.last().unwrap();
    let delay = stop.delay.as_secs();
    assert!((300..400).contains(&delay), "it says how long it has waited: {delay} s");
}

/// What the log says is left by a concentrator that was killed.
fn left(site: &Site) -> (Vec<crate::track::Lost>, Vec<crate::track::Owed>) {
    let mut index = crate::track::Index::default();
    site.world.disk.borrow().lines.iter().for_each(|line| index.read(line));
    (index.open().collect(), index.owed().collect())
}

#[test]
fn a_stop_that_was_not_acknowledged_is_told_by_the_next_start_as_it_was() {
    let clients =
        || vec![client(1, P::Pap, "ann", "a long password"), client(2, P::Pap, "bob", "another password")];
    let mut site = Site::new(clients(), |reply| {
        reply.push_bytes(kind::CLASS, b"a class").unwrap();
    });
    site.world.up(0);
    site.world.up(1);
    site.world.net.run(secs(100));
    site.world.net.silence(site.server, true);
    let (number, id) = (site.world.status()[0].number, site.world.status()[0].id);
    let usage =
        Usage { octets_in: 7, octets_out: 1 << 33, packets_in: 1, packets_out: 2, ..Usage::default() };
    site.world.net.command(site.world.ac, Command::Carried(vec![(number, usage)])).unwrap();
    site.world.close(Which::Named("ann".into()));
    site.world.net.command(site.world.ac, Command::Removed { id, usage: None }).unwrap();
    site.world.net.run(secs(40));
    // It is killed: ann's Stop waits, bob's session is open.
    let (lost, owed) = left(&site);
    assert_eq!((lost.len(), owed.len()), (1, 1));
    let mut again = loaded(AAA);
    (again.config.lost, again.config.owed) = (lost, owed);
    // The next start is ten minutes later.
    let earlier = |at: &mut WallTime| *at = WallTime::from_unix_secs(at.unix_secs() - 600);
    let owed = &mut again.config.owed[0];
    earlier(&mut owed.begin.at);
    earlier(&mut owed.end.at);
    earlier(&mut again.config.lost[0].begin.at);
    let mut next = Site::of(again, Vec::new(), |_| {});
    next.world.disk.borrow_mut().lines = site.world.disk.borrow().lines.clone();
    next.world.net.run(secs(3));
    assert_eq!(next.kinds(), ["On", "Stop", "Stop"]);
    let told = next.told.borrow();
    let (ann, bob) = (&told[1], &told[2]);
    assert_eq!((ann.session.user.as_str(), bob.session.user.as_str()), ("ann", "bob"));
    assert_eq!((ann.input_octets, ann.output_octets), (Some(7), Some(1 << 33)));
    assert_eq!((bob.input_octets, bob.output_octets), (None, None), "nobody knows");
    let (lasted, ago) = (ann.session_time.unwrap(), ann.delay.as_secs());
    assert!((100..120).contains(&lasted) && (480..500).contains(&ago), "{lasted} s, {ago} s ago");
    drop(told);
    assert_eq!((next.world.counted("stops_owed"), next.world.counted("sessions_lost")), (1, 1));
    assert_eq!(left(&next), (vec![], vec![]), "both were acknowledged, and the log says so");
}

#[test]
fn who_leaves_waits_until_its_last_records_are_acknowledged() {
    for silent in [5_u64, 0, 60] {
        let mut site = Site::of(loaded(AAA), vec![client(1, P::Pap, "ann", "a long password")], |_| {});
        site.world.up(0);
        site.world.net.silence(site.server, silent > 0);
        site.world.net.command(site.world.ac, Command::Leave).unwrap();
        let left = |site: &Site| site.world.events().any(|event| *event == Event::Left);
        if silent == 5 {
            site.world.net.run(secs(1));
            assert!(!left(&site));
            site.world.net.silence(site.server, false);
        }
        site.world.net.run(secs(if silent == 60 { 11 } else { 3 }));
        assert!(left(&site), "{silent}");
        match silent {
            60 => {
                assert_eq!(site.kinds(), ["On", "Start"]);
                // The session's is in the log for the next start, the concentrator's own is not.
                assert_eq!((site.world.counted("records_lost"), site.world.counted("stops_left")), (1, 1));
            }
            _ => assert_eq!(site.kinds(), ["On", "Start", "Stop", "Off"], "{silent}"),
        }
    }
}

#[test]
fn a_name_that_fits_no_request_is_no_reason_to_take_the_server_for_away() {
    let clients = vec![
        client(1, P::Pap, "ann", "a long password"),
        client(2, P::Pap, &"x".repeat(254), "a long password"),
    ];
    let mut site = Site::of(loaded(AAA), clients, |reply| {
        reply.push_u32(kind::SESSION_TIMEOUT, 30);
    });
    site.world.up(0);
    site.world.up(1);
    assert_eq!(site.world.failures(), [LoginFailure::NoName]);
    site.world.net.run(secs(40));
    // By grace it would go on.
    assert_eq!(
        (site.world.ended(), site.world.counted("sessions_in_grace")),
        (vec!["session-timeout".to_owned()], 0)
    );
}
