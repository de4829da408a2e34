//! Logins and accounting by Usher's AAA server, over RADIUS.

use super::*;
use crate::{DYNAMIC_SOCKET, SessionUsage};
use usher_aaa::{
    AaaServer, AaaServerCommand, AaaServerJob, AuthMethod, DynamicAuthResult, LedgerRecord, User,
    UserDirectory, UserSource, radius_socket,
};
use usher_core::Seed;
use usher_crypto::tls;
use usher_eap::method::tls::{EapTlsPeerFactory, EapTlsServerFactory, PeerTlsBackend, ServerTlsBackend};
use usher_eap::method::ttls::{TtlsInnerCredential, TtlsPeerFactory, TtlsServerFactory};
use usher_eap::method::{InnerMethod, PeerMethodFactory};
use usher_radius::attribute::{AttributeList, AttributeValue, kind, vendor};
use usher_radius::packet::PacketCode;
use usher_radius::server::{ClientConfig as ServerClientConfig, PortRole, RadiusServerConfig};

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
without_aaa = "grace"
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

struct RadiusFixture {
    world: ConcentratorTestNetwork,
    server: NetworkHostHandle<AaaServer>,
    received_records: Rc<RefCell<Vec<LedgerRecord>>>,
    /// The server's configuration.
    config: usher_aaa::AaaServerConfig,
}

impl RadiusFixture {
    fn new(clients: Vec<ClientConfig>, reply: impl FnOnce(&mut AttributeList)) -> Self {
        let mut loaded = load_config(AAA);
        loaded.config.subscribers.is_metered = true;
        Self::from_loaded(loaded, clients, reply)
    }
    fn from_loaded(
        loaded: LoadedConcentratorConfig,
        clients: Vec<ClientConfig>,
        reply: impl FnOnce(&mut AttributeList),
    ) -> Self {
        Self::with_config_change(loaded, clients, reply, |_| {})
    }
    fn with_config_change(
        loaded: LoadedConcentratorConfig,
        clients: Vec<ClientConfig>,
        reply: impl FnOnce(&mut AttributeList),
        change: impl FnOnce(&mut usher_aaa::AaaServerConfig),
    ) -> Self {
        let mut world = ConcentratorTestNetwork::on_one_ethernet(loaded, clients);
        world.net.bind_socket(world.ac, DYNAMIC_SOCKET, socket_address(CONCENTRATOR, 3799));
        let seed = Seed::new(21);
        let mut users = UserDirectory::new(&mut seed.derive_secure_rng("users", 0));
        let mut ann = User::with_password(b"a long password");
        reply(&mut ann.reply);
        users.insert(b"ann", ann);
        users.insert(b"bob", User::with_password(b"another password"));
        let mut config = usher_aaa::AaaServerConfig::new(UserSource::Memory(Arc::new(users)));
        let known = ServerClientConfig::new(
            CONCENTRATOR.parse().unwrap(),
            32,
            usher_radius::SharedSecret::new(SECRET),
        );
        let mut radius = RadiusServerConfig::new(vec![known]);
        radius.roles = vec![PortRole::Authentication, PortRole::Accounting];
        config.radius = Some(radius);
        config.methods = vec![AuthMethod::MsChapV2, AuthMethod::EapMd5, AuthMethod::Chap, AuthMethod::Pap];
        change(&mut config);
        let server = AaaServer::new(config.clone(), seed.derive_secure_rng("aaa", 0)).unwrap();
        let server = world.net.add_host(server, &[SERVER.parse().unwrap()]);
        world.net.bind_socket(server, radius_socket(0), socket_address(SERVER, 1812));
        world.net.bind_socket(server, radius_socket(1), socket_address(SERVER, 1813));
        let told = Rc::new(RefCell::new(Vec::new()));
        let notes = told.clone();
        world.net.on_job(server, move |job| match job.job {
            AaaServerJob::Account { record } => {
                notes.borrow_mut().push(*record);
                Some((millis(1), AaaServerCommand::Accounted { token: job.token, durable: true }))
            }
            _ => None,
        });
        Self { world, server, received_records: told, config }
    }
    fn record_kinds(&self) -> Vec<String> {
        self.received_records.borrow().iter().map(|record| format!("{:?}", record.status)).collect()
    }
    fn send_dynamic_request(
        &mut self,
        code: PacketCode,
        write: impl FnOnce(&mut AttributeList),
    ) -> DynamicAuthResult {
        let mut attributes = AttributeList::new();
        write(&mut attributes);
        let command =
            AaaServerCommand::Dynamic { token: 7, to: socket_address(CONCENTRATOR, 3799), code, attributes };
        self.world.net.send_command(self.server, command).unwrap();
        self.world.net.run_for(secs(1));
        let result = self.world.net.take_events(self.server).into_iter().find_map(|(_, event)| match event {
            usher_aaa::AaaServerEvent::Dynamic { result, .. } => Some(result),
            _ => None,
        });
        result.expect("an answer")
    }
}

#[test]
fn the_server_judges_each_protocol_and_says_what_a_user_gets() {
    for protocol in AuthenticationProtocol::ALL {
        let mut site =
            RadiusFixture::new(vec![client_config(1, protocol, "ann", "a long password")], |reply| {
                reply.push_u32(kind::FRAMED_IP_ADDRESS, Ipv4Addr::new(10, 0, 0, 9).to_bits());
                reply.push_text(kind::FILTER_ID, "gold").unwrap();
                reply
                    .push_vendor(vendor::WISPR, vendor::WISPR_BANDWIDTH_MAX_UP, &1_000_000_u32.to_be_bytes())
                    .unwrap();
                reply.push_text(kind::REPLY_MESSAGE, "hello").unwrap();
            });
        site.world.connect_and_wait(0);
        let installed = site.world.installed_sessions();
        assert_eq!(
            installed.len(),
            1,
            "{protocol}: {:?} {:?}",
            site.world.login_failures(),
            site.world.client_end_reasons(0)
        );
        let entry = installed.values().next().unwrap();
        assert_eq!(entry.ipv4, Some(Ipv4Addr::new(10, 0, 0, 9)));
        assert_eq!((entry.rate_up, entry.rate_down), (Some(1_000_000), Some(200_000_000)));
        assert_eq!(entry.ipv6.len(), 1, "of the pool, since the server says nothing of it");
        let mut other = RadiusFixture::new(vec![client_config(1, protocol, "ann", "wrong")], |_| {});
        other.world.connect_and_wait(0);
        assert_eq!(
            (other.world.login_failures()[0], other.world.installed_sessions().len()),
            (LoginFailure::Rejected, 0)
        );
        assert_eq!(other.record_kinds(), ["On"], "a server hears of the start, and of no session");
    }
}

#[test]
fn the_server_is_told_of_a_session_with_its_octets() {
    let mut site = RadiusFixture::new(
        vec![client_config(1, AuthenticationProtocol::Chap, "ann", "a long password")],
        |reply| {
            reply.push_bytes(kind::CLASS, b"a class").unwrap();
        },
    );
    site.world.connect_and_wait(0);
    let (id, number) = (site.world.session_statuses()[0].id, site.world.session_statuses()[0].number);
    let usage = |octets: u64| SessionUsage {
        octets_in: octets,
        octets_out: 6_000_000_000,
        packets_in: 3,
        packets_out: 4,
        ..SessionUsage::default()
    };
    site.world
        .net
        .send_command(site.world.ac, AccessConcentratorCommand::UsageReport(vec![(number, usage(1000))]))
        .unwrap();
    site.world.net.run_for(secs(62));
    site.world.close_sessions(PppoeSessionSelector::All);
    site.world
        .net
        .send_command(site.world.ac, AccessConcentratorCommand::Removed { id, usage: Some(usage(2000)) })
        .unwrap();
    site.world.net.run_for(secs(1));
    assert_eq!(site.record_kinds(), ["On", "Start", "Interim", "Stop"]);
    let told = site.received_records.borrow();
    let stop = format!("{:?}", told.last().unwrap());
    for part in ["2000", "6000000000", "ann"] {
        assert!(stop.contains(part), "{part} in {stop}");
    }
}

#[test]
fn pools_are_named_by_the_server() {
    let mut site = RadiusFixture::new(
        vec![client_config(1, AuthenticationProtocol::Pap, "ann", "a long password")],
        |reply| {
            reply.push_text(kind::FRAMED_POOL, "guests").unwrap();
            reply.push_u32(kind::SESSION_TIMEOUT, 30);
        },
    );
    site.world.connect_and_wait(0);
    assert_eq!(site.world.session_statuses()[0].ipv4.unwrap().octets()[..2], [10, 1]);
    site.world.net.run_for(secs(40));
    assert_eq!(site.world.end_reasons(), ["session-timeout"]);
}

#[test]
fn an_address_that_somebody_has_is_not_given_to_another() {
    let both = vec![
        client_config(1, AuthenticationProtocol::Pap, "ann", "a long password"),
        client_config(2, AuthenticationProtocol::Pap, "ann", "a long password"),
    ];
    let mut site = RadiusFixture::new(both, |reply| {
        reply.push_u32(kind::FRAMED_IP_ADDRESS, Ipv4Addr::new(10, 0, 0, 9).to_bits());
    });
    site.world.connect_and_wait(0);
    site.world.connect_and_wait(1);
    assert_eq!(
        (site.world.session_statuses().len(), site.world.login_failures()[0]),
        (1, LoginFailure::AddressInUse)
    );
}

#[test]
fn the_server_ends_and_changes_sessions() {
    let mut site = RadiusFixture::new(
        vec![client_config(1, AuthenticationProtocol::Chap, "ann", "a long password")],
        |_| {},
    );
    site.world.connect_and_wait(0);
    let ack = |result: &DynamicAuthResult| {
        format!("{result:?}").contains("Acknowledged") || format!("{result:?}").contains("Ack")
    };
    let result = site.send_dynamic_request(PacketCode::COA_REQUEST, |a| {
        a.push_text(kind::USER_NAME, "ann").unwrap().push_text(kind::FILTER_ID, "gold").unwrap();
    });
    assert!(ack(&result), "{result:?}");
    assert_eq!(
        site.world.installed_sessions().into_values().next().unwrap().rate_up,
        Some(50_000_000),
        "at once"
    );
    let refused = site.send_dynamic_request(PacketCode::COA_REQUEST, |a| {
        a.push_text(kind::USER_NAME, "ann").unwrap().push_text(kind::FILTER_ID, "unknown").unwrap();
    });
    assert!(!ack(&refused), "{refused:?}");
    let nobody = site
        .send_dynamic_request(PacketCode::DISCONNECT_REQUEST, |a| drop(a.push_text(kind::USER_NAME, "bob")));
    assert!(!ack(&nobody) && site.world.session_statuses().len() == 1, "{nobody:?}");
    let gone = site
        .send_dynamic_request(PacketCode::DISCONNECT_REQUEST, |a| drop(a.push_text(kind::USER_NAME, "ann")));
    assert!(ack(&gone) && site.world.session_statuses().is_empty(), "{gone:?}");
    site.world.net.run_for(secs(6));
    assert_eq!(site.record_kinds().last().unwrap(), "Stop");
}

#[test]
fn while_the_server_is_away_recent_password_logins_come_back() {
    let clients = vec![
        client_config(1, AuthenticationProtocol::Pap, "ann", "a long password"),
        client_config(2, AuthenticationProtocol::Pap, "ann", "a long password"),
        client_config(3, AuthenticationProtocol::MsChapV2, "bob", "another password"),
    ];
    let mut site = RadiusFixture::new(clients, |reply| {
        reply.push_u32(kind::SESSION_TIMEOUT, 100);
    });
    site.world.connect_and_wait(0);
    site.world.connect_and_wait(2);
    let address = site.world.session_statuses()[0].ipv4;
    site.world.net.set_silent(site.server, true);
    site.world.net.run_for(secs(1));
    site.world.net.send_command(site.world.clients[0], ClientCommand::Disconnect).unwrap();
    site.world.net.run_for(secs(10));
    // Another station of the same user is not in the cache and is rejected.
    site.world.connect_client(1);
    site.world.net.run_for(secs(70));
    assert!(
        site.world.login_failures().contains(&LoginFailure::Unanswered)
            && site.world.client_networks(1).is_empty()
    );
    site.world.connect_client(0);
    site.world.net.run_for(secs(60));
    assert_eq!(site.world.counter_value("logins_in_grace"), 1);
    let status = site.world.session_statuses();
    let again = status.iter().find(|one| one.station.ends_with(":01")).expect("it is back");
    assert_eq!(again.ipv4, address, "with its address");
    // The session's hundred seconds pass. Without a server the user could not log in again, so the session stays.
    site.world.net.run_for(secs(100));
    assert!(site.world.counter_value("sessions_in_grace") > 0 && !site.world.session_statuses().is_empty());
    // Bob used MS-CHAPv2, so he cannot log in before the server returns.
    site.world.net.send_command(site.world.clients[2], ClientCommand::Disconnect).unwrap();
    site.world.net.run_for(secs(20));
    site.world.connect_client(2);
    site.world.net.run_for(secs(50));
    assert!(!site.world.session_statuses().iter().any(|one| one.user == "bob"));
    site.world.net.set_silent(site.server, false);
    site.world.net.run_for(secs(60));
    site.world.connect_and_wait(2);
    assert!(site.world.session_statuses().iter().any(|one| one.user == "bob"));
    site.world.net.run_for(secs(5));
    assert!(
        site.world.end_reasons().contains(&"session-timeout".to_owned()),
        "what was over ends: {:?}",
        site.world.end_reasons()
    );
}

#[test]
fn sessions_of_a_killed_start_get_their_accounting_stop() {
    let mut site = RadiusFixture::new(
        vec![client_config(1, AuthenticationProtocol::Chap, "ann", "a long password")],
        |reply| {
            reply.push_bytes(kind::CLASS, b"a class").unwrap();
        },
    );
    site.world.connect_and_wait(0);
    let mut index = crate::track::SessionLogIndex::default();
    site.world.disk.borrow().lines.iter().for_each(|line| index.read_lines(line));
    let mut again = load_config(AAA);
    again.config.lost = index.open_sessions().collect();
    let session = again.config.lost[0].begin.session.clone();
    assert_eq!(again.config.lost[0].begin.classes, [b"a class".to_vec()]);
    let mut site = RadiusFixture::from_loaded(again, Vec::new(), |_| {});
    site.world.net.run_for(secs(2));
    assert_eq!(site.record_kinds(), ["On", "Stop"]);
    assert!(format!("{:?}", site.received_records.borrow().last()).contains(&session));
    // A shutdown is reported, too.
    site.world.net.send_command(site.world.ac, AccessConcentratorCommand::Leave).unwrap();
    site.world.net.run_for(secs(2));
    assert_eq!(site.record_kinds().last().unwrap(), "Off");
    assert_eq!(site.world.net[site.world.ac].radius_counters().map(|_| AAA_SLOT), Some(1));
}

/// Returns a user of EAP-TTLS with a different outer identity.
fn tunnelled_client(n: u16, outside: &str, inside: &str, password: &str) -> ClientConfig {
    let tls = tls::ClientConfig::new(tls::TlsClientOptions {
        versions: tls::TlsVersion::Tls13.into(),
        credentials: None,
        roots: tls::TrustRoots::from_der([tls::fixtures::root_certificate()]),
        server_name: Some(tls::fixtures::SERVER_NAME.into()),
        resumption: None,
        clock: SharedWallClock::from_time(tls::fixtures::WALL_TIME),
        key_log: None,
    });
    let tls = PeerTlsBackend::Real(tls.unwrap(), 0);
    let proof = TtlsInnerCredential::Pap(password.as_bytes().into());
    let offer: Box<dyn PeerMethodFactory> =
        Box::new(TtlsPeerFactory { tls, fragment: 1024, identity: inside.as_bytes().to_vec(), proof });
    let credentials = PppCredentials {
        name: outside.as_bytes().to_vec(),
        password: password.as_bytes().into(),
        protocols: vec![AuthenticationProtocol::Eap],
        eap_methods: Arc::new([offer]),
    };
    ClientConfig::new(PORT, host_mac(n), credentials)
}

/// Configures an AAA server of tunnels, which sends the inner identity if `says`.
fn configure_tunnels(config: &mut usher_aaa::AaaServerConfig, says: bool) {
    let tls = tls::ServerConfig::new(tls::TlsServerOptions {
        versions: tls::TlsVersion::Tls13.into(),
        credentials: tls::fixtures::server_credentials(3),
        client_roots: None,
        resumption: None,
        clock: SharedWallClock::from_time(tls::fixtures::WALL_TIME),
        key_log: None,
    });
    config.methods = vec![AuthMethod::Ttls, AuthMethod::EapMd5, AuthMethod::Pap];
    let inner = [InnerMethod::Pap].into();
    config.ttls = Some(Arc::new(TtlsServerFactory {
        tls: ServerTlsBackend::Real(tls.unwrap()),
        fragment: 1024,
        inner,
    }));
    if says {
        config.inner_names = vec![0];
    }
}

#[test]
fn a_false_outer_identity_is_not_taken_for_the_user() {
    let text = AAA.replace("[tracking]", "[limits]\nsessions_per_user = 1\n[tracking]");
    let clients = || {
        let bob = client_config(1, AuthenticationProtocol::Eap, "bob", "another password");
        vec![bob, tunnelled_client(2, "bob", "ann", "a long password")]
    };
    let mut site = RadiusFixture::with_config_change(
        load_config(&text),
        clients(),
        |_| {},
        |config| configure_tunnels(config, false),
    );
    site.world.connect_and_wait(0);
    site.world.connect_and_wait(1);
    let status = site.world.session_statuses();
    assert_eq!(
        status.len(),
        2,
        "bob's session stays: {:?} {:?}",
        site.world.end_reasons(),
        site.world.login_failures()
    );
    assert_eq!(status[0].user, "bob");
    let expected = format!("bob within EAP, session {}", status[1].session);
    assert_eq!(status[1].user, expected);
    let names: Vec<String> = site
        .world
        .log_records()
        .iter()
        .filter_map(|record| match record {
            SessionLogRecord::Begin(begin) => Some(begin.user.clone()),
            _ => None,
        })
        .collect();
    assert_eq!(names, ["bob", &expected]);
    // IDENT discloses only bob.
    let named = |site: &RadiusFixture, at: Option<Ipv4Addr>| {
        site.world.net[site.world.ac].user_at(at.unwrap().into()).unwrap().name
    };
    assert_eq!(named(&site, status[0].ipv4), Some(b"bob".to_vec()));
    assert_eq!(named(&site, status[1].ipv4), None);
    // The selection "bob" does not match the tunnelled user.
    assert_eq!(site.world.close_sessions(PppoeSessionSelector::Named("bob".into())), 1);
    assert_eq!(site.world.session_statuses()[0].user, expected);
    // If the server sends the inner identity, the session is that user's.
    let mut site = RadiusFixture::with_config_change(
        load_config(&text),
        clients(),
        |_| {},
        |config| configure_tunnels(config, true),
    );
    site.world.connect_and_wait(0);
    site.world.connect_and_wait(1);
    let users: Vec<_> = site.world.session_statuses().into_iter().map(|one| one.user).collect();
    assert_eq!(users, ["bob", "ann"]);
}

/// Returns a user of EAP-TLS with a certificate of this name.
fn station_client(n: u16) -> ClientConfig {
    station_of(n, 1024)
}

/// Returns the same with a maximum length of EAP packets.
fn station_of(n: u16, fragment: usize) -> ClientConfig {
    let tls = tls::ClientConfig::new(tls::TlsClientOptions {
        versions: tls::TlsVersion::Tls13.into(),
        credentials: Some(tls::fixtures::client_credentials(1)),
        roots: tls::TrustRoots::from_der([tls::fixtures::root_certificate()]),
        server_name: Some(tls::fixtures::SERVER_NAME.into()),
        resumption: None,
        clock: SharedWallClock::from_time(tls::fixtures::WALL_TIME),
        key_log: None,
    });
    let offer: Box<dyn PeerMethodFactory> =
        Box::new(EapTlsPeerFactory { tls: PeerTlsBackend::Real(tls.unwrap(), 0), fragment });
    let credentials = PppCredentials {
        name: b"station@usher.test".to_vec(),
        password: b""[..].into(),
        protocols: vec![AuthenticationProtocol::Eap],
        eap_methods: Arc::new([offer]),
    };
    ClientConfig::new(PORT, host_mac(n), credentials)
}

/// Configures an AAA server that accepts certificates.
fn configure_certificates(config: &mut usher_aaa::AaaServerConfig) {
    let tls = tls::ServerConfig::new(tls::TlsServerOptions {
        versions: tls::TlsVersion::Tls13.into(),
        credentials: tls::fixtures::server_credentials(3),
        client_roots: Some(tls::TrustRoots::from_der([tls::fixtures::root_certificate()])),
        resumption: None,
        clock: SharedWallClock::from_time(tls::fixtures::WALL_TIME),
        key_log: None,
    });
    let mut users = UserDirectory::new(&mut Seed::new(21).derive_secure_rng("users", 0));
    users.insert(b"station@usher.test", User::with_password(b"of no use"));
    config.users = UserSource::Memory(Arc::new(users));
    config.methods = vec![AuthMethod::EapTls];
    config.tls =
        Some(Arc::new(EapTlsServerFactory { tls: ServerTlsBackend::Real(tls.unwrap()), fragment: 1024 }));
}

#[test]
fn a_server_cuts_its_packets_to_what_the_host_takes() {
    let host = ClientConfig { mtu: 600, ..station_of(1, 500) };
    let mut site =
        RadiusFixture::with_config_change(load_config(AAA), vec![host], |_| {}, configure_certificates);
    site.world.connect_and_wait(0);
    assert_eq!(site.world.session_statuses().len(), 1, "{:?}", site.world.client_end_reasons(0));
}

#[test]
fn a_certificate_gives_a_name_only_if_the_server_compares_it() {
    for trusted in [false, true] {
        let text = AAA.replace("without_aaa", &format!("trust_certificate_names = {trusted}\nwithout_aaa"));
        let mut site = RadiusFixture::with_config_change(
            load_config(&text),
            vec![station_client(1)],
            |_| {},
            configure_certificates,
        );
        site.world.connect_and_wait(0);
        let status = site.world.session_statuses();
        assert_eq!(
            status.len(),
            1,
            "{:?} {:?}",
            site.world.login_failures(),
            site.world.client_end_reasons(0)
        );
        let named = site.world.net[site.world.ac].user_at(status[0].ipv4.unwrap().into()).unwrap().name;
        // Another server would accept any name with this certificate.
        let unnamed = format!("station@usher.test within EAP, session {}", status[0].session);
        let expected = if trusted { "station@usher.test".to_owned() } else { unnamed };
        assert_eq!((&status[0].user, named.is_some()), (&expected, trusted));
        let told = format!("{:?}", site.received_records.borrow().last());
        assert!(
            told.contains("\"station@usher.test\""),
            "accounting has the name that was asked with: {told}"
        );
    }
}

#[test]
fn a_prefix_that_would_divert_other_packets_is_a_bad_answer() {
    for (prefix, bits) in [("::", 0), ("2001:d00::", 24), ("2001:db8::", 31), ("ff05::", 64), ("fe80::", 64)]
    {
        let mut value = Vec::new();
        AttributeValue::Ipv6Prefix(prefix.parse().unwrap(), bits).encode(&mut value);
        for attribute in [kind::FRAMED_IPV6_PREFIX, kind::DELEGATED_IPV6_PREFIX] {
            let mut site = RadiusFixture::new(
                vec![client_config(1, AuthenticationProtocol::Pap, "ann", "a long password")],
                |reply| {
                    reply.push_bytes(attribute, &value).unwrap();
                },
            );
            site.world.connect_and_wait(0);
            assert_eq!(site.world.login_failures(), [LoginFailure::BadAnswer], "{prefix}/{bits}");
            assert!(site.world.installed_sessions().is_empty() && site.world.session_statuses().is_empty());
        }
    }
}

#[test]
fn an_address_that_no_host_can_have_is_no_answer() {
    for address in [[127, 0, 0, 1], [0, 0, 0, 0], [224, 0, 0, 1], [169, 254, 1, 1], [240, 0, 0, 1]] {
        let mut site = RadiusFixture::new(
            vec![client_config(1, AuthenticationProtocol::Pap, "ann", "a long password")],
            move |reply| {
                reply.push_bytes(kind::FRAMED_IP_ADDRESS, &address).unwrap();
            },
        );
        site.world.connect_and_wait(0);
        assert_eq!(site.world.login_failures(), [LoginFailure::BadAnswer], "{address:?}");
    }
}

#[test]
fn a_session_extended_during_grace_survives_the_next_login() {
    let clients = vec![
        client_config(1, AuthenticationProtocol::Pap, "ann", "a long password"),
        client_config(2, AuthenticationProtocol::Pap, "bob", "another password"),
    ];
    let mut site = RadiusFixture::new(clients, |reply| {
        reply.push_u32(kind::SESSION_TIMEOUT, 100);
    });
    site.world.connect_and_wait(0);
    site.world.net.set_silent(site.server, true);
    // A login shows that no server answers. Then ann's session timeout passes.
    site.world.connect_client(1);
    site.world.net.run_for(secs(110));
    assert_eq!(site.world.counter_value("sessions_in_grace"), 1);
    site.world.net.set_silent(site.server, false);
    let result = site.send_dynamic_request(PacketCode::COA_REQUEST, |a| {
        a.push_text(kind::USER_NAME, "ann").unwrap().push_u32(kind::SESSION_TIMEOUT, 1000);
    });
    assert!(format!("{result:?}").contains("Ack"), "{result:?}");
    site.world.net.run_for(secs(60));
    site.world.connect_and_wait(1);
    let users: Vec<_> = site.world.session_statuses().into_iter().map(|one| one.user).collect();
    assert_eq!(users, ["ann", "bob"], "{:?}", site.world.end_reasons());
    site.world.net.run_for(secs(1000));
    assert_eq!(site.world.end_reasons(), ["session-timeout"]);
}

#[test]
fn a_name_of_the_servers_that_would_forge_lines_is_no_answer() {
    let mut site = RadiusFixture::new(
        vec![client_config(1, AuthenticationProtocol::Pap, "ann", "a long password")],
        |reply| {
            reply.push_bytes(kind::USER_NAME, b"ann\nbob  from").unwrap();
        },
    );
    site.world.connect_and_wait(0);
    assert_eq!(site.world.login_failures(), [LoginFailure::BadAnswer]);
}

#[test]
fn switching_between_server_and_users_waits_for_a_restart() {
    let clients = || vec![client_config(1, AuthenticationProtocol::Chap, "ann", "a long password")];
    let mut site = RadiusFixture::new(clients(), |_| {});
    // Now with existing pools.
    let again = load_config(&LOCAL.replace("delegated_pool = \"sites\"\n", ""));
    site.world
        .net
        .send_command(site.world.ac, AccessConcentratorCommand::Configure(Box::new(again.config)))
        .unwrap();
    site.world.connect_and_wait(0);
    assert_eq!(
        site.world.session_statuses().len(),
        1,
        "the server still judges: {:?}",
        site.world.login_failures()
    );
    // After a reload, a file without local users keeps the earlier ones.
    let mut world = ConcentratorTestNetwork::new(LOCAL, clients());
    world
        .net
        .send_command(world.ac, AccessConcentratorCommand::Configure(Box::new(load_config(AAA).config)))
        .unwrap();
    world.connect_and_wait(0);
    assert_eq!(world.session_statuses().len(), 1, "{:?}", world.login_failures());
}

#[test]
fn a_user_rejected_or_disconnected_meanwhile_gets_no_grace() {
    for disconnected in [false, true] {
        let clients = vec![
            client_config(1, AuthenticationProtocol::Pap, "ann", "a long password"),
            client_config(2, AuthenticationProtocol::Pap, "ann", "a long password"),
        ];
        let mut site = RadiusFixture::new(clients, |_| {});
        site.world.connect_and_wait(0);
        if disconnected {
            site.send_dynamic_request(PacketCode::DISCONNECT_REQUEST, |a| {
                drop(a.push_text(kind::USER_NAME, "ann"))
            });
        } else {
            // The same name and password at another station, which the server now rejects.
            let users = UserDirectory::new(&mut Seed::new(21).derive_secure_rng("users", 0));
            let config = usher_aaa::AaaServerConfig {
                users: UserSource::Memory(Arc::new(users)),
                ..site.config.clone()
            };
            site.world.net.send_command(site.server, AaaServerCommand::Reload(Box::new(config))).unwrap();
            site.world.connect_and_wait(1);
            assert_eq!(site.world.login_failures(), [LoginFailure::Rejected]);
            site.world.net.send_command(site.world.clients[0], ClientCommand::Disconnect).unwrap();
        }
        site.world.net.run_for(secs(10));
        site.world.net.set_silent(site.server, true);
        site.world.connect_client(0);
        site.world.net.run_for(secs(60));
        assert_eq!(site.world.counter_value("logins_in_grace"), 0, "disconnected: {disconnected}");
        assert!(site.world.session_statuses().is_empty());
    }
}

#[test]
fn a_pool_skips_prefixes_that_overlap_one_the_server_gave() {
    // Ann has two of the pool's four prefixes, as a single shorter prefix from the server.
    let text = AAA.replace("2001:db8:1::/48/64", "2001:db8:1::/62/64");
    let clients = vec![
        client_config(1, AuthenticationProtocol::Pap, "ann", "a long password"),
        client_config(2, AuthenticationProtocol::Pap, "bob", "another password"),
    ];
    let mut value = Vec::new();
    AttributeValue::Ipv6Prefix("2001:db8:1::".parse().unwrap(), 63).encode(&mut value);
    let mut site = RadiusFixture::from_loaded(load_config(&text), clients, |reply| {
        reply.push_bytes(kind::FRAMED_IPV6_PREFIX, &value).unwrap();
    });
    site.world.connect_and_wait(0);
    for _ in 0..4 {
        site.world.connect_and_wait(1);
        let status = site.world.session_statuses();
        let bob = status.iter().find(|one| one.user == "bob");
        let bob = bob.unwrap_or_else(|| panic!("{:?}", site.world.login_failures()));
        assert!(bob.ipv6[0].0.segments()[3] >= 2, "{:?}", bob.ipv6);
        site.world.close_sessions(PppoeSessionSelector::Named("bob".into()));
        site.world.net.run_for(secs(5));
    }
}

#[test]
fn a_limit_of_zero_is_none() {
    let mut site = RadiusFixture::new(
        vec![client_config(1, AuthenticationProtocol::Pap, "ann", "a long password")],
        |reply| {
            reply.push_u32(kind::SESSION_TIMEOUT, 0).push_u32(kind::IDLE_TIMEOUT, 0);
        },
    );
    site.world.connect_and_wait(0);
    site.world.net.run_for(secs(100));
    assert_eq!((site.world.session_statuses().len(), site.world.end_reasons()), (1, Vec::new()));
    // In a CoA, zero removes a limit, too.
    for (lasts, left) in [(3600, 1), (0, 1), (1, 0)] {
        site.send_dynamic_request(PacketCode::COA_REQUEST, |a| {
            a.push_text(kind::USER_NAME, "ann").unwrap().push_u32(kind::SESSION_TIMEOUT, lasts);
        });
        assert_eq!(site.world.session_statuses().len(), left, "{lasts} s");
    }
}

#[test]
fn a_power_cycled_host_gets_its_own_address_back_at_once() {
    let ann = || client_config(1, AuthenticationProtocol::Pap, "ann", "a long password");
    let mut site = RadiusFixture::from_loaded(load_config(AAA), vec![ann(), ann()], |reply| {
        reply.push_u32(kind::FRAMED_IP_ADDRESS, Ipv4Addr::new(10, 0, 0, 9).to_bits());
    });
    site.world.connect_and_wait(0);
    site.world.net.set_silent(site.world.clients[0], true);
    site.world.connect_and_wait(1);
    let status = site.world.session_statuses();
    assert_eq!((status.len(), status[0].ipv4), (1, Some(Ipv4Addr::new(10, 0, 0, 9))));
    assert_eq!(
        (site.world.end_reasons(), site.world.counter_value("hosts_replaced")),
        (vec!["replaced".to_owned()], 1)
    );
    assert!(site.world.login_failures().is_empty());
}

#[test]
fn a_session_is_found_by_the_name_that_its_user_gave() {
    let mut site = RadiusFixture::new(
        vec![client_config(1, AuthenticationProtocol::Pap, "ann", "a long password")],
        |reply| {
            reply.push_text(kind::USER_NAME, "ann.smith@example.org").unwrap();
        },
    );
    for name in ["ann", "ann.smith@example.org"] {
        site.world.connect_and_wait(0);
        assert_eq!(site.world.session_statuses()[0].user, "ann.smith@example.org");
        site.send_dynamic_request(PacketCode::DISCONNECT_REQUEST, |a| {
            drop(a.push_text(kind::USER_NAME, name))
        });
        assert!(site.world.session_statuses().is_empty(), "{name}");
        site.world.net.run_for(secs(5));
    }
}

#[test]
fn records_wait_for_a_server_that_is_away() {
    let clients = vec![
        client_config(1, AuthenticationProtocol::Pap, "ann", "a long password"),
        client_config(2, AuthenticationProtocol::Pap, "bob", "another password"),
    ];
    let mut site = RadiusFixture::from_loaded(load_config(AAA), clients, |_| {});
    site.world.connect_and_wait(0);
    site.world.connect_and_wait(1);
    site.world.net.set_silent(site.server, true);
    site.world.close_sessions(PppoeSessionSelector::All);
    site.world.net.run_for(secs(300));
    assert_eq!(site.record_kinds(), ["On", "Start", "Start"]);
    site.world.net.set_silent(site.server, false);
    site.world.net.run_for(secs(90));
    assert_eq!(site.record_kinds(), ["On", "Start", "Start", "Stop", "Stop"]);
    assert_eq!(site.world.counter_value("records_lost"), 0);
    let told = site.received_records.borrow();
    let stop = told.last().unwrap();
    let delay = stop.delay.as_secs();
    assert!((300..400).contains(&delay), "it says how long it has waited: {delay} s");
}

/// Returns the leftovers of a killed concentrator, from its log.
fn log_leftovers(
    site: &RadiusFixture,
) -> (Vec<crate::track::SessionLostByRestart>, Vec<crate::track::UnacknowledgedStop>) {
    let mut index = crate::track::SessionLogIndex::default();
    site.world.disk.borrow().lines.iter().for_each(|line| index.read_lines(line));
    (index.open_sessions().collect(), index.unacknowledged_stops().collect())
}

#[test]
fn the_next_start_resends_an_unacknowledged_stop_unchanged() {
    let clients = || {
        vec![
            client_config(1, AuthenticationProtocol::Pap, "ann", "a long password"),
            client_config(2, AuthenticationProtocol::Pap, "bob", "another password"),
        ]
    };
    let mut site = RadiusFixture::new(clients(), |reply| {
        reply.push_bytes(kind::CLASS, b"a class").unwrap();
    });
    site.world.connect_and_wait(0);
    site.world.connect_and_wait(1);
    site.world.net.run_for(secs(100));
    site.world.net.set_silent(site.server, true);
    let (number, id) = (site.world.session_statuses()[0].number, site.world.session_statuses()[0].id);
    let usage = SessionUsage {
        octets_in: 7,
        octets_out: 1 << 33,
        packets_in: 1,
        packets_out: 2,
        ..SessionUsage::default()
    };
    site.world
        .net
        .send_command(site.world.ac, AccessConcentratorCommand::UsageReport(vec![(number, usage)]))
        .unwrap();
    site.world.close_sessions(PppoeSessionSelector::Named("ann".into()));
    site.world
        .net
        .send_command(site.world.ac, AccessConcentratorCommand::Removed { id, usage: None })
        .unwrap();
    site.world.net.run_for(secs(40));
    // The concentrator is killed: ann's Stop is unacknowledged, and bob's session is open.
    let (lost, owed) = log_leftovers(&site);
    assert_eq!((lost.len(), owed.len()), (1, 1));
    let mut again = load_config(AAA);
    (again.config.lost, again.config.unacknowledged_stops) = (lost, owed);
    // The next start is ten minutes later.
    let earlier = |at: &mut WallTime| *at = WallTime::from_unix_secs(at.unix_secs() - 600);
    let owed = &mut again.config.unacknowledged_stops[0];
    earlier(&mut owed.begin.started_at);
    earlier(&mut owed.end.ended_at);
    earlier(&mut again.config.lost[0].begin.started_at);
    let mut next = RadiusFixture::from_loaded(again, Vec::new(), |_| {});
    next.world.disk.borrow_mut().lines = site.world.disk.borrow().lines.clone();
    next.world.net.run_for(secs(3));
    assert_eq!(next.record_kinds(), ["On", "Stop", "Stop"]);
    let told = next.received_records.borrow();
    let (ann, bob) = (&told[1], &told[2]);
    assert_eq!((ann.session.user.as_str(), bob.session.user.as_str()), ("ann", "bob"));
    assert_eq!((ann.input_octets, ann.output_octets), (Some(7), Some(1 << 33)));
    assert_eq!((bob.input_octets, bob.output_octets), (None, None), "nobody knows");
    let (lasted, ago) = (ann.session_time.unwrap(), ann.delay.as_secs());
    assert!((100..120).contains(&lasted) && (480..500).contains(&ago), "{lasted} s, {ago} s ago");
    drop(told);
    assert_eq!((next.world.counter_value("stops_resent"), next.world.counter_value("sessions_lost")), (1, 1));
    assert_eq!(log_leftovers(&next), (vec![], vec![]), "both were acknowledged, and the log says so");
}

#[test]
fn who_leaves_waits_until_its_last_records_are_acknowledged() {
    for silent in [5_u64, 0, 60] {
        let mut site = RadiusFixture::from_loaded(
            load_config(AAA),
            vec![client_config(1, AuthenticationProtocol::Pap, "ann", "a long password")],
            |_| {},
        );
        site.world.connect_and_wait(0);
        site.world.net.set_silent(site.server, silent > 0);
        site.world.net.send_command(site.world.ac, AccessConcentratorCommand::Leave).unwrap();
        let left =
            |site: &RadiusFixture| site.world.events().any(|event| *event == AccessConcentratorEvent::Left);
        if silent == 5 {
            site.world.net.run_for(secs(1));
            assert!(!left(&site));
            site.world.net.set_silent(site.server, false);
        }
        site.world.net.run_for(secs(if silent == 60 { 11 } else { 3 }));
        assert!(left(&site), "{silent}");
        match silent {
            60 => {
                assert_eq!(site.record_kinds(), ["On", "Start"]);
                // The log keeps the session's record for the next start, but not the concentrator's own.
                assert_eq!(
                    (site.world.counter_value("records_lost"), site.world.counter_value("stops_left")),
                    (1, 1)
                );
            }
            _ => assert_eq!(site.record_kinds(), ["On", "Start", "Stop", "Off"], "{silent}"),
        }
    }
}

#[test]
fn an_unsendable_name_does_not_mark_the_server_as_away() {
    let clients = vec![
        client_config(1, AuthenticationProtocol::Pap, "ann", "a long password"),
        client_config(2, AuthenticationProtocol::Pap, &"x".repeat(254), "a long password"),
    ];
    let mut site = RadiusFixture::from_loaded(load_config(AAA), clients, |reply| {
        reply.push_u32(kind::SESSION_TIMEOUT, 30);
    });
    site.world.connect_and_wait(0);
    site.world.connect_and_wait(1);
    assert_eq!(site.world.login_failures(), [LoginFailure::NoName]);
    site.world.net.run_for(secs(40));
    // The grace time would keep it.
    assert_eq!(site.world.end_reasons(), ["session-timeout"]);
    assert_eq!(site.world.counter_value("sessions_in_grace"), 0);
}
