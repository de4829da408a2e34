//! Logins and sessions with an AAA server: our own, by RADIUS.

use super::local::{PSK_CLIENT, PSK_GATEWAY, eap_client};
use super::*;
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;
use usher_aaa::ledger::AccountingStatusType;
use usher_aaa::{
    AaaServer, AaaServerCommand, AaaServerJob, AuthMethod, DynamicAuthResult, LedgerRecord, User,
    UserDirectory, UserSource, radius_socket,
};
use usher_crypto::tls::{ServerConfig, TlsServerOptions, TlsVersionRange, TrustRoots};
use usher_eap::method::tls::{EapTlsServerFactory, ServerTlsBackend};
use usher_radius::attribute::{AttributeList, kind};
use usher_radius::packet::PacketCode;
use usher_radius::server::{ClientConfig, PortRole, RadiusServerConfig};

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

/// An EAP client that requests an address and has traffic to the site.
pub(super) fn site_client(method: &str, name: &str, password: &str) -> String {
    let more = "address = true\n[[connection.child]]\nname = \"net\"\nremote = [\"10.2.0.0/16\"]\n";
    format!("{}{more}", eap_client(method, name, password))
}

pub(super) type ReceivedRecords = Rc<RefCell<Vec<LedgerRecord>>>;

/// A gateway with our AAA server, which acknowledges all records.
pub(super) struct AaaTestNetwork {
    pub(super) world: GatewayTestNetwork,
    pub(super) server: NetworkHostHandle<AaaServer>,
    /// The accounting records that the server received.
    pub(super) received_records: ReceivedRecords,
    /// Number of received Accounting-On records.
    pub(super) accounting_on_count: Rc<Cell<usize>>,
}

impl AaaTestNetwork {
    pub(super) fn new(text: &str, reply: impl FnOnce(&mut AttributeList)) -> Self {
        Self::in_world(GatewayTestNetwork::new(text), reply)
    }
    pub(super) fn in_world(mut world: GatewayTestNetwork, reply: impl FnOnce(&mut AttributeList)) -> Self {
        let seed = Seed::new(21);
        let mut users = UserDirectory::new(&mut seed.derive_secure_rng("users", 0));
        let mut ann = User::with_password(b"a long password");
        reply(&mut ann.reply);
        let mut bob = User::with_password(b"another password");
        bob.reply = ann.reply.clone();
        users.insert(b"ann", ann);
        users.insert(b"bob", bob);
        users.insert(b"station@usher.test", User::with_password(b"of no use"));
        let mut config = usher_aaa::AaaServerConfig::new(UserSource::Memory(Arc::new(users)));
        let gateway =
            ClientConfig::new(GATEWAY.parse().unwrap(), 32, usher_radius::SharedSecret::new(SECRET));
        let mut radius = RadiusServerConfig::new(vec![gateway]);
        radius.roles = vec![PortRole::Authentication, PortRole::Accounting];
        config.radius = Some(radius);
        config.methods = vec![AuthMethod::EapTls, AuthMethod::EapMsChapV2, AuthMethod::EapMd5];
        let tls = ServerConfig::new(TlsServerOptions {
            versions: TlsVersionRange::default(),
            credentials: fixtures::server_credentials(2),
            client_roots: Some(TrustRoots::from_der([fixtures::root_certificate()])),
            resumption: None,
            clock: SharedWallClock::from_time(EPOCH),
            key_log: None,
        });
        config.tls =
            Some(Arc::new(EapTlsServerFactory { tls: ServerTlsBackend::Real(tls.unwrap()), fragment: 1000 }));
        let server = world.net.add_host(
            AaaServer::new(config, seed.derive_secure_rng("aaa", 0)).unwrap(),
            &[SERVER.parse().unwrap()],
        );
        world.net.bind_socket(server, radius_socket(0), socket_address(SERVER, 1812));
        world.net.bind_socket(server, radius_socket(1), socket_address(SERVER, 1813));
        let told = ReceivedRecords::default();
        let begun = Rc::new(Cell::new(0));
        let (notes, begins) = (told.clone(), begun.clone());
        world.net.on_job(server, move |job| match job.job {
            AaaServerJob::Account { record } => {
                match record.status {
                    AccountingStatusType::On => begins.set(begins.get() + 1),
                    _ => notes.borrow_mut().push(*record),
                }
                Some((millis(1), AaaServerCommand::Accounted { token: job.token, durable: true }))
            }
            _ => None,
        });
        Self { world, server, received_records: told, accounting_on_count: begun }
    }
    pub(super) fn record_kinds(&self) -> Vec<String> {
        self.received_records.borrow().iter().map(|record| format!("{:?}", record.status)).collect()
    }
    /// Sends a dynamic authorization request (RFC 5176) and returns the reply.
    pub(super) fn send_dynamic_request(
        &mut self,
        code: PacketCode,
        write: impl FnOnce(&mut AttributeList),
    ) -> DynamicAuthResult {
        let mut attributes = AttributeList::new();
        write(&mut attributes);
        let command =
            AaaServerCommand::Dynamic { token: 7, to: socket_address(GATEWAY, 3799), code, attributes };
        self.world.net.send_command(self.server, command).unwrap();
        self.world.run_for(secs(1));
        let result = self.world.net.take_events(self.server).into_iter().find_map(|(_, event)| match event {
            usher_aaa::AaaServerEvent::Dynamic { result, .. } => Some(result),
            _ => None,
        });
        result.expect("an answer")
    }
}

#[test]
fn a_name_that_fits_no_request_is_turned_away_as_that() {
    let mut site = AaaTestNetwork::new(AAA_GATEWAY, |_| {});
    let client = site.world.add_client(CLIENT, &eap_client("mschapv2", &"x".repeat(254), "a long password"));
    site.world.connect(client, "home");
    site.world.run_for(secs(3));
    let events = site.world.net.recorded_events(site.world.gateway).iter();
    let why: Vec<_> = events
        .filter_map(
            |(_, event)| if let GatewayEvent::LoginFailed { why, .. } = event { Some(*why) } else { None },
        )
        .collect();
    assert_eq!(why, [LoginFailure::NoName]);
}

#[test]
fn one_slow_answer_of_the_aaa_server_delays_nobody_else() {
    let mut site = AaaTestNetwork::new(AAA_GATEWAY, |_| {});
    // Each request about one user takes the server three seconds.
    site.world.net.intercept_transmits(|_, sent| {
        let slow = sent.bytes.windows(7).any(|part| part == b"station");
        vec![if slow { secs(3) } else { Duration::ZERO }]
    });
    let slow =
        site.world.add_client("198.51.100.1", &site_client("mschapv2", "station@usher.test", "of no use"));
    let quick = site.world.add_client(CLIENT, &site_client("mschapv2", "ann", "a long password"));
    site.world.connect(slow, "home");
    site.world.run_for(millis(500));
    site.world.connect(quick, "home");
    site.world.run_for(millis(500));
    assert_eq!((site.world.sa_statuses(quick).len(), site.world.sa_statuses(slow).len()), (1, 0));
    site.world.run_for(secs(25));
    assert_eq!(site.world.sa_statuses(slow).len(), 1, "{:?}", site.world.end_reasons(slow));
}

#[test]
fn each_method_is_judged_by_the_aaa_server() {
    let mut site = AaaTestNetwork::new(AAA_GATEWAY, |_| {});
    let all = [("md5", "ann"), ("mschapv2", "ann"), ("tls", "station@usher.test")];
    for (n, (method, name)) in all.into_iter().enumerate() {
        let host = site
            .world
            .add_client(&format!("198.51.100.{}", n + 1), &site_client(method, name, "a long password"));
        site.world.connect(host, "home");
        site.world.run_for(secs(3));
        let status = site.world.sa_statuses(host);
        assert_eq!(status.len(), 1, "{method}: {:?}", site.world.end_reasons(host));
        assert!(status[0].addresses[0].to_string().starts_with("10.9.0."), "{method}");
        assert_eq!(site.world.sa_statuses(site.world.gateway).last().unwrap().identity, name);
    }
    assert_eq!(site.world.net[site.world.gateway].counters().0.logins_accepted, 3);
    assert_eq!(
        site.world.installed_children(site.world.gateway).len(),
        2,
        "those of ann are one user's: the last is left"
    );
    let wrong = site.world.add_client("198.51.100.9", &site_client("mschapv2", "ann", "a wrong password"));
    site.world.connect(wrong, "home");
    site.world.run_for(secs(3));
    assert_eq!(site.world.end_reasons(wrong), [EndReason::Refused]);
    assert_eq!(site.world.login_failures(site.world.gateway), [LoginFailure::Rejected]);
}

#[test]
fn a_users_aaa_attributes_apply_and_its_session_is_accounted() {
    let mut site = AaaTestNetwork::new(AAA_GATEWAY, |reply| {
        reply.push_u32(kind::SESSION_TIMEOUT, 100);
        reply.push_u32(kind::ACCT_INTERIM_INTERVAL, 40);
        reply.push_text(kind::FRAMED_POOL, "guests").unwrap();
        reply.push_bytes(kind::CLASS, b"gold").unwrap();
    });
    let host = site.world.add_client(CLIENT, &site_client("md5", "ann", "a long password"));
    site.world.connect(host, "home");
    site.world.run_for(secs(2));
    let status = site.world.sa_statuses(site.world.gateway);
    assert!(status[0].addresses[0].to_string().starts_with("10.10.0."));
    assert_eq!(site.record_kinds(), ["Start"]);
    site.world.run_for(secs(90));
    assert_eq!(site.record_kinds(), ["Start", "Interim", "Interim"]);
    assert_eq!(site.world.sa_statuses(host).len(), 1);
    site.world.run_for(secs(20));
    assert_eq!(site.world.sa_statuses(host).len(), 0, "its time is over");
    assert_eq!(site.record_kinds(), ["Start", "Interim", "Interim", "Stop"]);
    let told = site.received_records.borrow();
    for record in told.iter() {
        assert_eq!((&record.session, record.class.as_slice()), (&told[0].session, &b"gold"[..]));
        assert_eq!(record.framed_address, Some(status[0].addresses[0]));
        assert_eq!(record.calling_station_id, format!("{CLIENT}[4500]"));
    }
    // Session-Timeout (RFC 2866 section 5.10).
    assert_eq!(told[3].terminate_cause, Some(5));
    assert_eq!(
        site.world.net[site.world.gateway].pool_usage().nth(1).map(|pool| (pool.name, pool.addresses)),
        Some(("guests", (0, 254)))
    );
}

/// The second user gets the address of the first, and a third one gets an address that no host can have.
#[test]
fn an_aaa_address_in_use_or_unusable_is_not_assigned() {
    for (given, why) in
        [([10, 200, 0, 1], LoginFailure::AddressInUse), ([127, 0, 0, 1], LoginFailure::BadAnswer)]
    {
        let mut site = AaaTestNetwork::new(AAA_GATEWAY, move |reply| {
            reply.push_bytes(kind::FRAMED_IP_ADDRESS, &given).unwrap();
        });
        for (address, user) in [(CLIENT, "ann"), ("198.51.100.9", "bob")] {
            let password = if user == "ann" { "a long password" } else { "another password" };
            let host = site.world.add_client(address, &site_client("md5", user, password));
            site.world.connect(host, "home");
            site.world.run_for(secs(2));
        }
        let failures = site.world.login_failures(site.world.gateway);
        assert!(failures.iter().all(|one| *one == why) && !failures.is_empty(), "{given:?}: {failures:?}");
        let given = core::net::IpAddr::from(given);
        let all = site.world.sa_statuses(site.world.gateway);
        let holders = all.iter().filter(|one| one.addresses.contains(&given)).count();
        assert_eq!(holders, usize::from(why == LoginFailure::AddressInUse), "{given:?}");
    }
}

#[test]
fn the_server_ends_a_session_and_changes_another() {
    let mut site = AaaTestNetwork::new(AAA_GATEWAY, |_| {});
    let host = site.world.add_client(CLIENT, &site_client("md5", "ann", "a long password"));
    site.world.connect(host, "home");
    site.world.run_for(secs(2));
    let session = site.world.sa_statuses(site.world.gateway)[0].session.clone();
    let of =
        |session: String| move |a: &mut AttributeList| drop(a.push_text(kind::ACCT_SESSION_ID, &session));
    assert_eq!(
        site.send_dynamic_request(PacketCode::DISCONNECT_REQUEST, of("another".into())),
        DynamicAuthResult::Nak(Some(503))
    );
    let longer = |a: &mut AttributeList| {
        a.push_text(kind::USER_NAME, "ann").unwrap();
        a.push_u32(kind::SESSION_TIMEOUT, 30);
    };
    assert_eq!(site.send_dynamic_request(PacketCode::COA_REQUEST, longer), DynamicAuthResult::Ack);
    let filtered = |a: &mut AttributeList| {
        a.push_text(kind::USER_NAME, "ann").unwrap();
        a.push_text(kind::FILTER_ID, "students").unwrap();
    };
    assert_eq!(
        site.send_dynamic_request(PacketCode::COA_REQUEST, filtered),
        DynamicAuthResult::Nak(Some(401))
    );
    assert_eq!(
        site.send_dynamic_request(PacketCode::DISCONNECT_REQUEST, of(session)),
        DynamicAuthResult::Ack
    );
    assert_eq!(
        (site.world.sa_statuses(host).len(), site.world.sa_statuses(site.world.gateway).len()),
        (0, 0)
    );
    assert_eq!(site.world.end_reasons(host), [EndReason::DeletedByPeer]);
    assert_eq!(site.record_kinds(), ["Start", "Stop"]);
    // The change applies to another session.
    site.world.connect(host, "home");
    site.world.run_for(secs(2));
    assert_eq!(site.send_dynamic_request(PacketCode::COA_REQUEST, longer), DynamicAuthResult::Ack);
    site.world.run_for(secs(20));
    assert_eq!(site.world.sa_statuses(host).len(), 1);
    site.world.run_for(secs(10));
    assert_eq!(site.world.sa_statuses(host).len(), 0);
    let counters = *site.world.net[site.world.gateway].counters().1;
    assert_eq!((counters.sessions_disconnected, counters.sessions_changed), (1, 2));
    assert_eq!((counters.sessions_timed_out, counters.dynamic_refused), (1, 2));
}

/// A Session-Timeout of zero means no limit, also in a change (RFC 6733 section 8.13).
#[test]
fn a_session_timeout_of_nothing_takes_the_limit_away() {
    let mut site = AaaTestNetwork::new(AAA_GATEWAY, |_| {});
    let host = site.world.add_client(CLIENT, &site_client("md5", "ann", "a long password"));
    site.world.connect(host, "home");
    site.world.run_for(secs(2));
    let timeout = |seconds| {
        move |a: &mut AttributeList| {
            a.push_text(kind::USER_NAME, "ann").unwrap();
            a.push_u32(kind::SESSION_TIMEOUT, seconds);
        }
    };
    assert_eq!(site.send_dynamic_request(PacketCode::COA_REQUEST, timeout(10)), DynamicAuthResult::Ack);
    assert_eq!(site.send_dynamic_request(PacketCode::COA_REQUEST, timeout(0)), DynamicAuthResult::Ack);
    site.world.run_for(secs(300));
    assert_eq!(site.world.sa_statuses(host).len(), 1);
}

#[test]
fn a_slow_aaa_server_delays_nobody_else() {
    let psk = PSK_GATEWAY.split("[[pool]]").next().unwrap();
    let mut site = AaaTestNetwork::new(&[AAA_GATEWAY, psk].concat(), |_| {});
    site.world.net.set_silent(site.server, true);
    let slow = site.world.add_client(CLIENT, &site_client("md5", "ann", "a long password"));
    site.world.connect(slow, "home");
    site.world.run_for(millis(500));
    assert_eq!(site.world.sa_statuses(slow).len(), 0);
    let quick = site.world.add_client("198.51.100.8", PSK_CLIENT);
    site.world.run_for(millis(200));
    assert_eq!(site.world.sa_statuses(quick).len(), 1, "two round trips and a signature by nobody");
    // No server replies, and the client is rejected in the end.
    site.world.run_for(secs(60));
    assert_eq!(site.world.login_failures(site.world.gateway), [LoginFailure::Unanswered]);
    assert_eq!(site.world.end_reasons(slow).len(), 1);
    assert_eq!(site.world.net[site.world.gateway].half_open(), 0);
}

/// RFC 2866 §5.10: the cause of a session that the server ended stays, whatever happens to the Delete.
#[test]
fn the_first_cause_of_a_sessions_end_is_told() {
    const LOST_CARRIER: u32 = 2;
    const ADMIN_RESET: u32 = 6;
    for (disconnected, cause) in [(false, LOST_CARRIER), (true, ADMIN_RESET)] {
        let mut site = AaaTestNetwork::new(AAA_GATEWAY, |_| {});
        let host = site.world.add_client(CLIENT, &site_client("md5", "ann", "a long password"));
        site.world.connect(host, "home");
        site.world.run_for(secs(2));
        // The client has gone silently.
        site.world.net.set_silent(host, true);
        if disconnected {
            let ann = |a: &mut AttributeList| drop(a.push_text(kind::USER_NAME, "ann"));
            assert_eq!(
                site.send_dynamic_request(PacketCode::DISCONNECT_REQUEST, ann),
                DynamicAuthResult::Ack
            );
        }
        site.world.run_for(secs(1000));
        assert_eq!(site.record_kinds(), ["Start", "Stop"]);
        assert_eq!(
            site.received_records.borrow()[1].terminate_cause,
            Some(cause),
            "disconnected: {disconnected}"
        );
    }
}
