//! Dynamic authorization (RFC 5176) by the AAA server, and the access server's reaction.

use crate::build::{
    PASSWORD, aaa_config, diameter_config, diameter_server, radius_nas, shared_secret, station_mac,
    test_users, user_name, with_diameter,
};
use crate::world::{DIAMETER_PORT, RADIUS_PORT, nas_address, server_address};
use std::net::SocketAddr;
use std::sync::Arc;
use usher_aaa::{AaaServer, DynamicAuthResult, User, UserDirectory, radius_socket};
use usher_core::bench::{MachineNetwork, NetworkHostHandle};
use usher_core::impair::ChannelConfig;
use usher_core::{Duration, LinkLayerPortId, ListenerId, MachineInput, Seed};
use usher_diameter::ResultCode;
use usher_diameter::avp::AvpBuf;
use usher_diameter::codes::{self, application, command};
use usher_diameter::node::{self, DiameterNode};
use usher_nas::authenticator::{self, AuthenticatorCommand, AuthenticatorEvent, SessionEndCause};
use usher_nas::station::{self, EapCredentials};
use usher_nas::{
    AaaConfig, AccessStation, AccountingRecordKind, DYNAMIC_SOCKET, DynamicAuthConfig, NasAuthenticator,
    StationAccountingRecord, StationId,
};
use usher_radius::attribute::{AttributeList, error_cause, kind};
use usher_radius::server::ClientConfig;
use usher_radius::{EventTimestampPolicy, PacketCode};

/// RFC 5176 §2.3.
const DYNAMIC_PORT: u16 = 3799;
const STATION: StationId =
    StationId::Frame { port: LinkLayerPortId(0), mac: usher_nas::MacAddress([2, 0, 0, 0, 0, 0]) };

struct DynamicTestNetwork {
    net: MachineNetwork,
    station: NetworkHostHandle<AccessStation>,
    nas: NetworkHostHandle<NasAuthenticator>,
    server: NetworkHostHandle<AaaServer>,
    last_token: u64,
}

impl DynamicTestNetwork {
    /// Creates a network with an accepted station.
    fn new(users: Arc<UserDirectory>) -> Self {
        let seed = Seed::new(11);
        let mut config = radius_nas(1);
        let server = aaa_config(users);
        if let AaaConfig::Radius(radius) = &mut config.aaa {
            let clients = vec![ClientConfig::new(server_address(0), 32, shared_secret())];
            let freshness = Some(EventTimestampPolicy::default());
            radius.dynamic = Some(Box::new(DynamicAuthConfig { clients, freshness }));
        }
        let delay = Duration::from_millis(1);
        let mut net = MachineNetwork::new(ChannelConfig { delay, ..ChannelConfig::default() });
        let station = AccessStation::new(
            station::StationConfig::new(station_mac(0)),
            seed.derive_secure_rng("station", 0),
        );
        let station = net.add_host(station, &[]);
        let nas = net.add_host(
            NasAuthenticator::new(config, seed.derive_secure_rng("nas", 0)).unwrap(),
            &[nas_address(0)],
        );
        let server = AaaServer::new(server, seed.derive_secure_rng("aaa", 0)).unwrap();
        let server = net.add_host(server, &[server_address(0)]);
        // No accounting record is acknowledged.
        net.on_job(server, |_| None);
        net.join_ports_in_segment(&[(station.number, LinkLayerPortId(0)), (nas.number, LinkLayerPortId(0))]);
        net.bind_socket(nas, DYNAMIC_SOCKET, SocketAddr::new(nas_address(0), DYNAMIC_PORT));
        net.bind_socket(server, radius_socket(0), SocketAddr::new(server_address(0), RADIUS_PORT));
        let mut site = Self { net, station, nas, server, last_token: 0 };
        site.log_in();
        assert!(matches!(&site.take_events()[..], [AuthenticatorEvent::Authenticated(_)]));
        site
    }
    fn with_one_user() -> Self {
        Self::new(test_users(Seed::new(1), 1))
    }
    fn log_in(&mut self) {
        let (identity, credentials) = (user_name(0), EapCredentials::from_password(PASSWORD));
        self.net
            .send_command(self.station, station::StationCommand::Authenticate { identity, credentials })
            .unwrap();
        self.run_seconds(1);
    }
    fn run_seconds(&mut self, seconds: u64) {
        self.net.run_for(Duration::from_secs(seconds));
    }
    /// Returns the access server's events since the last call.
    fn take_events(&mut self) -> Vec<AuthenticatorEvent> {
        self.net.take_events(self.nas).into_iter().map(|(_, event)| event).collect()
    }
    /// Sends a request of the server and returns its result.
    fn send_request(
        &mut self,
        code: PacketCode,
        write: impl FnOnce(&mut AttributeList),
    ) -> DynamicAuthResult {
        let mut attributes = AttributeList::new();
        write(&mut attributes);
        self.last_token += 1;
        let (token, to) = (self.last_token, SocketAddr::new(nas_address(0), DYNAMIC_PORT));
        let command = usher_aaa::AaaServerCommand::Dynamic { token, to, code, attributes };
        self.net.send_command(self.server, command).unwrap();
        self.run_seconds(1);
        let mut events = self.net.take_events(self.server).into_iter();
        let result = events.find_map(|(_, event)| match event {
            usher_aaa::AaaServerEvent::Dynamic { token: t, result } if t == token => Some(result),
            _ => None,
        });
        result.expect("an answer")
    }
    /// Has the station start again.
    fn send_eapol_start(&mut self) {
        let frame = [&[1, 0x80, 0xc2, 0, 0, 3][..], &station_mac(0).0, &[0x88, 0x8e, 1, 1, 0, 0]].concat();
        self.net.inject_input(self.nas, MachineInput::Frame { port: LinkLayerPortId(0), data: &frame });
    }
    /// Number of identity requests to the station.
    fn identity_requests(&self) -> usize {
        // After the headers of Ethernet and EAPOL, an EAP-Request/Identity.
        let asks = |bytes: &[u8]| bytes.get(18) == Some(&1) && bytes.get(22) == Some(&1);
        self.net
            .sent_transmits()
            .iter()
            .filter(|sent| sent.from == self.nas.number && asks(&sent.bytes))
            .count()
    }
}

fn ended_event(cause: SessionEndCause) -> AuthenticatorEvent {
    AuthenticatorEvent::Ended { station: STATION, cause }
}
fn push_user_name(a: &mut AttributeList) {
    a.push_bytes(kind::USER_NAME, &user_name(0)).unwrap();
}

#[test]
fn a_disconnect_request_ends_the_session() {
    let mut site = DynamicTestNetwork::with_one_user();
    assert_eq!(site.send_request(PacketCode::DISCONNECT_REQUEST, push_user_name), DynamicAuthResult::Ack);
    assert_eq!(site.take_events(), [ended_event(SessionEndCause::Disconnected)]);
    assert_eq!(site.net[site.nas].counters().disconnected, 1);
    // The session has ended, so another request finds none.
    let nothing = DynamicAuthResult::Nak(Some(error_cause::SESSION_CONTEXT_NOT_FOUND));
    assert_eq!(site.send_request(PacketCode::DISCONNECT_REQUEST, push_user_name), nothing);
    // The station may log in again.
    site.log_in();
    assert!(matches!(&site.take_events()[..], [AuthenticatorEvent::Authenticated(_)]));
}

#[test]
fn a_session_is_known_by_what_was_said_of_it() {
    let mut site = DynamicTestNetwork::with_one_user();
    let record = StationAccountingRecord::new(AccountingRecordKind::Start, STATION, "00c0ffee".into(), 0);
    site.net.send_command(site.nas, AuthenticatorCommand::Account { token: 1, record }).unwrap();
    let other = DynamicAuthResult::Nak(Some(error_cause::SESSION_CONTEXT_NOT_FOUND));
    let said: [(u8, &[u8], bool); 6] = [
        (kind::ACCT_SESSION_ID, b"another", false),
        (kind::CALLING_STATION_ID, b"02-00-00-00-00-01", false),
        (kind::NAS_PORT, &[0, 0, 0, 1], false),
        (kind::FRAMED_IP_ADDRESS, &[192, 0, 2, 1], false),
        (kind::CALLING_STATION_ID, b"02-00-00-00-00-00", true),
        (kind::ACCT_SESSION_ID, b"00c0ffee", true),
    ];
    for (kind, value, meant) in said {
        let right = if meant { DynamicAuthResult::Ack } else { other };
        let write = |a: &mut AttributeList| {
            a.push_bytes(kind, value).unwrap();
        };
        assert_eq!(site.send_request(PacketCode::COA_REQUEST, write), right, "{kind}");
    }
    assert_eq!(
        site.take_events(),
        [AuthenticatorEvent::Changed { station: STATION }, AuthenticatorEvent::Changed { station: STATION }]
    );
}

#[test]
fn a_change_of_the_session_timeout_ends_the_session_then() {
    let mut site = DynamicTestNetwork::with_one_user();
    let five = |a: &mut AttributeList| {
        push_user_name(a);
        a.push_u32(kind::SESSION_TIMEOUT, 5);
    };
    assert_eq!(site.send_request(PacketCode::COA_REQUEST, five), DynamicAuthResult::Ack);
    assert_eq!(site.take_events(), [AuthenticatorEvent::Changed { station: STATION }]);
    site.run_seconds(3);
    assert_eq!(site.take_events(), []);
    site.run_seconds(2);
    assert_eq!(site.take_events(), [ended_event(SessionEndCause::SessionTimeout)]);
    let nothing = DynamicAuthResult::Nak(Some(error_cause::SESSION_CONTEXT_NOT_FOUND));
    assert_eq!(site.send_request(PacketCode::COA_REQUEST, five), nothing);
}

#[test]
fn repeated_eapol_starts_do_not_extend_the_session_timeout() {
    let mut site = DynamicTestNetwork::with_one_user();
    let twenty = |a: &mut AttributeList| {
        push_user_name(a);
        a.push_u32(kind::SESSION_TIMEOUT, 20);
    };
    assert_eq!(site.send_request(PacketCode::COA_REQUEST, twenty), DynamicAuthResult::Ack);
    for _ in 0..2 {
        site.send_eapol_start();
        site.run_seconds(5);
    }
    assert_eq!(site.take_events(), [AuthenticatorEvent::Changed { station: STATION }]);
    site.send_eapol_start();
    site.run_seconds(15);
    assert_eq!(site.take_events(), [ended_event(SessionEndCause::SessionTimeout)]);
    assert_eq!(site.net[site.nas].active_session_count(), 0);
    site.log_in();
    assert!(matches!(&site.take_events()[..], [AuthenticatorEvent::Authenticated(_)]));
    site.send_eapol_start();
    site.send_eapol_start();
    assert_eq!(site.send_request(PacketCode::DISCONNECT_REQUEST, push_user_name), DynamicAuthResult::Ack);
    assert_eq!(site.take_events(), [ended_event(SessionEndCause::Disconnected)]);
}

#[test]
fn a_change_that_is_not_possible_changes_nothing() {
    let mut site = DynamicTestNetwork::with_one_user();
    let also_a_filter = |a: &mut AttributeList| {
        push_user_name(a);
        a.push_u32(kind::SESSION_TIMEOUT, 5).push_text(kind::FILTER_ID, "guests").unwrap();
    };
    let refused = DynamicAuthResult::Nak(Some(error_cause::UNSUPPORTED_ATTRIBUTE));
    assert_eq!(site.send_request(PacketCode::COA_REQUEST, also_a_filter), refused);
    site.run_seconds(60);
    assert_eq!(site.take_events(), []);
}

#[test]
fn a_station_is_authenticated_again_when_that_is_wanted() {
    let mut site = DynamicTestNetwork::with_one_user();
    let before = site.identity_requests();
    let again = |a: &mut AttributeList| {
        push_user_name(a);
        a.push_u32(kind::SESSION_TIMEOUT, 2).push_u32(kind::TERMINATION_ACTION, 1);
    };
    assert_eq!(site.send_request(PacketCode::COA_REQUEST, again), DynamicAuthResult::Ack);
    site.run_seconds(2);
    // The station stays authorized meanwhile.
    assert_eq!(site.take_events(), [AuthenticatorEvent::Changed { station: STATION }]);
    assert_eq!(site.identity_requests(), before + 1);
    site.log_in();
    assert!(matches!(&site.take_events()[..], [AuthenticatorEvent::Authenticated(_)]));
    assert_eq!(site.send_request(PacketCode::DISCONNECT_REQUEST, push_user_name), DynamicAuthResult::Ack);
}

#[test]
fn a_station_that_does_not_prove_itself_again_is_out() {
    let mut all = UserDirectory::new(&mut Seed::new(1).derive_secure_rng("users", 0));
    let mut user = User::with_password(PASSWORD);
    user.reply.push_u32(kind::SESSION_TIMEOUT, 10).push_u32(kind::TERMINATION_ACTION, 1);
    user.reply.push_bytes(kind::STATE, b"as before").unwrap();
    all.insert(&user_name(0), user);
    let mut site = DynamicTestNetwork::new(Arc::new(all));
    site.run_seconds(10);
    assert_eq!(site.net[site.nas].counters().reauthentications, 1);
    site.run_seconds(60);
    let reason = authenticator::FailReason::StationTimeout;
    assert_eq!(site.take_events(), [AuthenticatorEvent::Failed { station: STATION, reason }]);
    let nothing = DynamicAuthResult::Nak(Some(error_cause::SESSION_CONTEXT_NOT_FOUND));
    assert_eq!(site.send_request(PacketCode::DISCONNECT_REQUEST, push_user_name), nothing);
}

#[test]
fn a_station_that_must_prove_itself_again_cannot_put_that_off() {
    let again = |site: &mut DynamicTestNetwork| {
        let due = |a: &mut AttributeList| {
            push_user_name(a);
            a.push_u32(kind::SESSION_TIMEOUT, 10).push_u32(kind::TERMINATION_ACTION, 1);
        };
        assert_eq!(site.send_request(PacketCode::COA_REQUEST, due), DynamicAuthResult::Ack);
        assert_eq!(site.take_events(), [AuthenticatorEvent::Changed { station: STATION }]);
    };
    // A restart before the session's time, and the time from then on.
    for first in [2, 12] {
        let mut site = DynamicTestNetwork::with_one_user();
        again(&mut site);
        site.run_seconds(first);
        for _ in first / 5..13 {
            site.send_eapol_start();
            site.run_seconds(5);
            assert_eq!(site.take_events(), []);
        }
        site.send_eapol_start();
        site.run_seconds(8);
        assert_eq!(site.take_events(), [ended_event(SessionEndCause::SessionTimeout)]);
    }
}

/// RFC 5176 §3.6, note 3.
#[test]
fn what_a_change_leaves_out_remains() {
    let mut site = DynamicTestNetwork::with_one_user();
    let mut change = |timeout: Option<u32>, action: Option<u32>, seconds| {
        let answer = site.send_request(PacketCode::COA_REQUEST, |a| {
            push_user_name(a);
            for (kind, value) in [(kind::SESSION_TIMEOUT, timeout), (kind::TERMINATION_ACTION, action)] {
                if let Some(value) = value {
                    a.push_u32(kind, value);
                }
            }
        });
        assert_eq!(answer, DynamicAuthResult::Ack);
        assert_eq!(site.take_events(), [AuthenticatorEvent::Changed { station: STATION }]);
        site.run_seconds(seconds);
        (site.take_events(), site.net[site.nas].counters().reauthentications)
    };
    // The action without the time, the time without the action, and the way back.
    assert_eq!(change(Some(20), None, 5), (vec![], 0));
    assert_eq!(change(None, Some(1), 5), (vec![], 0));
    assert_eq!(change(Some(30), None, 15), (vec![], 0));
    assert_eq!(change(None, Some(0), 15), (vec![ended_event(SessionEndCause::SessionTimeout)], 0));
    site.log_in();
    assert!(matches!(&site.take_events()[..], [AuthenticatorEvent::Authenticated(_)]));
    let cause = |site: &mut DynamicTestNetwork, write: fn(&mut AttributeList)| {
        let both = |a: &mut AttributeList| {
            push_user_name(a);
            write(a);
        };
        match site.send_request(PacketCode::COA_REQUEST, both) {
            DynamicAuthResult::Nak(cause) => cause,
            other => panic!("{other:?}"),
        }
    };
    let state_alone = |a: &mut AttributeList| {
        a.push_bytes(kind::STATE, b"x").unwrap();
    };
    assert_eq!(cause(&mut site, state_alone), Some(error_cause::INVALID_REQUEST));
    let no_action = |a: &mut AttributeList| {
        a.push_u32(kind::TERMINATION_ACTION, 2);
    };
    assert_eq!(cause(&mut site, no_action), Some(407));
    // A station whose verdict is pending gets all of it again.
    site.send_eapol_start();
    let timeout = |a: &mut AttributeList| {
        a.push_u32(kind::SESSION_TIMEOUT, 5);
    };
    assert_eq!(cause(&mut site, timeout), Some(error_cause::RESOURCES_UNAVAILABLE));
}

#[test]
fn a_session_keeps_its_id_when_its_station_reauthenticates() {
    let mut site = DynamicTestNetwork::with_one_user();
    let told = |site: &mut DynamicTestNetwork, kind, session: &str| {
        let record = StationAccountingRecord::new(kind, STATION, session.into(), 0);
        site.net.send_command(site.nas, AuthenticatorCommand::Account { token: 1, record }).unwrap();
    };
    told(&mut site, AccountingRecordKind::Start, "00c0ffee");
    site.log_in();
    // The end of the former session is reported late.
    told(&mut site, AccountingRecordKind::Stop, "00c0ffed");
    site.take_events();
    let by_name = |a: &mut AttributeList| {
        a.push_text(kind::ACCT_SESSION_ID, "00c0ffee").unwrap();
    };
    assert_eq!(site.send_request(PacketCode::DISCONNECT_REQUEST, by_name), DynamicAuthResult::Ack);
}

/// A Diameter server with sessions that accepts every user.
struct StatefulServerFixture {
    net: MachineNetwork,
    station: NetworkHostHandle<AccessStation>,
    nas: NetworkHostHandle<NasAuthenticator>,
    node: NetworkHostHandle<DiameterNode>,
    session_id: String,
}

const SUCCESS: (u32, String) = (2001, String::new());

impl StatefulServerFixture {
    /// Creates a network with an accepted station.
    fn new(change: fn(&mut authenticator::AuthenticatorConfig), say: fn(&mut AvpBuf)) -> Self {
        let (seed, delay) = (Seed::new(11), Duration::from_millis(1));
        let mut net = MachineNetwork::new(ChannelConfig { delay, ..ChannelConfig::default() });
        let station = AccessStation::new(
            station::StationConfig::new(station_mac(0)),
            seed.derive_secure_rng("station", 0),
        );
        let station = net.add_host(station, &[]);
        let mut config = diameter_config(1);
        config.stateful = true;
        let mut config = with_diameter(config);
        change(&mut config);
        let nas = NasAuthenticator::new(config, seed.derive_secure_rng("nas", 0)).unwrap();
        let nas = net.add_host(nas, &[nas_address(0)]);
        let node = diameter_server(0, test_users(seed, 1)).diameter.unwrap();
        let node = net.add_host(
            DiameterNode::new(node, net.now(), seed.derive_secure_rng("aaa", 0)),
            &[server_address(0)],
        );
        net.add_listener(node, ListenerId::from_number(0), SocketAddr::new(server_address(0), DIAMETER_PORT));
        net.join_ports_in_segment(&[(station.number, LinkLayerPortId(0)), (nas.number, LinkLayerPortId(0))]);
        net.on_event(node, move |event| {
            let node::DiameterNodeEvent::Request { token, message, .. } = event else { return None };
            let mut avps = AvpBuf::new();
            if message.header.command == command::DIAMETER_EAP {
                avps.push_u32(codes::AUTH_REQUEST_TYPE, 3);
                say(&mut avps);
            }
            let result = ResultCode::SUCCESS;
            Some((Duration::ZERO, node::DiameterNodeCommand::Answer { token: *token, result, avps }))
        });
        net.run_for(Duration::from_secs(1));
        let mut all = Self { net, station, nas, node, session_id: String::new() };
        all.log_in();
        let said = all.take_events();
        assert!(matches!(said.last(), Some(AuthenticatorEvent::Authenticated(_))), "{said:?}");
        all.session_id = all.take_server_events().remove(0).1;
        all
    }
    fn log_in(&mut self) {
        let (identity, credentials) = (user_name(0), EapCredentials::from_password(PASSWORD));
        self.net
            .send_command(self.station, station::StationCommand::Authenticate { identity, credentials })
            .unwrap();
        self.net.run_for(Duration::from_secs(1));
    }
    fn take_events(&mut self) -> Vec<AuthenticatorEvent> {
        self.net.take_events(self.nas).into_iter().map(|(_, event)| event).collect()
    }
    /// Returns the commands and results that the server received.
    fn take_server_events(&mut self) -> Vec<(u32, String)> {
        let heard = self.net.take_events(self.node).into_iter().filter_map(|(_, event)| match event {
            node::DiameterNodeEvent::Request { message, .. } => {
                let session = message.avps.as_sequence().get(codes::SESSION_ID)?.as_utf8().ok()?.to_owned();
                Some((message.header.command, session))
            }
            node::DiameterNodeEvent::Answer { result, .. } => Some((result.0, String::new())),
            _ => None,
        });
        heard.collect()
    }
    /// Sends a request of the server. Returns the messages that the server receives, the access server's events,
    /// and the number of reauthentications.
    fn send_request(&mut self, command: u32) -> (Vec<(u32, String)>, Vec<AuthenticatorEvent>, u64) {
        let request = node::DiameterRequest {
            token: 1,
            application: application::EAP,
            command,
            destination_realm: "example.org".into(),
            destination_host: Some("switch.example.org".into()),
            session_id: self.session_id.clone(),
            avps: AvpBuf::new(),
        };
        self.net.send_command(self.node, node::DiameterNodeCommand::Request(request)).unwrap();
        self.net.run_for(Duration::from_secs(1));
        let again = self.net[self.nas].counters().reauthentications;
        (self.take_server_events(), self.take_events(), again)
    }
}

/// RFC 6733 §8.3, §8.5: a stateful server sends Re-Auth-Request and Abort-Session-Request for its sessions, and gets a
/// Session-Termination-Request at their end.
#[test]
fn a_diameter_server_reauthenticates_and_aborts_a_session() {
    let mut k = StatefulServerFixture::new(|_| {}, |_| {});
    // The station is asked for its identity and stays authorized meanwhile.
    assert_eq!(k.send_request(command::RE_AUTH), (vec![SUCCESS], vec![], 1));
    let (heard, said, _) = k.send_request(command::ABORT_SESSION);
    assert_eq!(said, [ended_event(SessionEndCause::Disconnected)]);
    // In this order (RFC 6733 §8.1).
    assert_eq!(heard, [SUCCESS, (command::SESSION_TERMINATION, k.session_id.clone())]);
    let (heard, said, _) = k.send_request(command::ABORT_SESSION);
    assert_eq!((heard, said), (vec![(ResultCode::UNKNOWN_SESSION_ID.0, String::new())], vec![]));
}

#[test]
fn where_there_is_no_room_nobody_is_authenticated_again() {
    let mut k = StatefulServerFixture::new(|config| config.max_sessions = 1, |_| {});
    let frame = [&[1, 0x80, 0xc2, 0, 0, 3][..], &station_mac(1).0, &[0x88, 0x8e, 1, 1, 0, 0]].concat();
    k.net.inject_input(k.nas, MachineInput::Frame { port: LinkLayerPortId(0), data: &frame });
    let full = (ResultCode::RESOURCES_EXCEEDED.0, String::new());
    // RFC 6733 §8.1: a station that does not reauthenticate is removed, and the answer tells the server.
    assert_eq!(
        k.send_request(command::RE_AUTH),
        (vec![full], vec![ended_event(SessionEndCause::Disconnected)], 0)
    );
    assert_eq!(k.send_request(command::RE_AUTH).0, [(ResultCode::UNKNOWN_SESSION_ID.0, String::new())]);
}

/// RFC 6733 §8.1: a refusal ends the session that was authenticated before.
#[test]
fn a_reject_at_reauthentication_ends_the_session() {
    let mut k = StatefulServerFixture::new(|_| {}, |_| {});
    assert_eq!(k.send_request(command::RE_AUTH), (vec![SUCCESS], vec![], 1));
    k.net.on_event(k.node, |event| {
        let node::DiameterNodeEvent::Request { token, message, .. } = event else { return None };
        let result = match message.header.command {
            command::DIAMETER_EAP => ResultCode::AUTHENTICATION_REJECTED,
            _ => ResultCode::SUCCESS,
        };
        Some((
            Duration::ZERO,
            node::DiameterNodeCommand::Answer { token: *token, result, avps: AvpBuf::new() },
        ))
    });
    k.log_in();
    assert_eq!(k.take_events(), [AuthenticatorEvent::Rejected { station: STATION, name: user_name(0) }]);
    // That request has its own User-Name.
    let heard: Vec<u32> = k.take_server_events().into_iter().map(|(command, _)| command).collect();
    assert_eq!(heard, [command::DIAMETER_EAP, command::SESSION_TERMINATION]);
    assert_eq!(k.send_request(command::ABORT_SESSION).0, [(ResultCode::UNKNOWN_SESSION_ID.0, String::new())]);
}

#[test]
fn of_whom_nothing_is_remembered_no_server_keeps_a_session() {
    let mut k = StatefulServerFixture::new(|config| config.max_stations = 0, |_| {});
    let unknown = (ResultCode::UNKNOWN_SESSION_ID.0, String::new());
    assert_eq!(k.send_request(command::ABORT_SESSION), (vec![unknown], vec![], 0));
    assert_eq!(k.net[k.nas].counters().not_remembered, 1);
}

#[test]
fn the_server_gets_a_termination_for_a_forgotten_host_station() {
    let mut k = StatefulServerFixture::new(|_| {}, |_| {});
    let station = StationId::Host(7);
    k.net
        .send_command(k.nas, AuthenticatorCommand::StartSession { station, identity: Some(user_name(1)) })
        .unwrap();
    k.net.run_for(Duration::from_secs(1));
    assert!(k.take_events().iter().any(|event| matches!(event, AuthenticatorEvent::Authenticated(_))));
    k.session_id = k.take_server_events().remove(0).1;
    k.net.send_command(k.nas, AuthenticatorCommand::RemoveStation { station }).unwrap();
    k.net.run_for(Duration::from_secs(1));
    assert_eq!(k.take_server_events(), [(command::SESSION_TERMINATION, k.session_id.clone())]);
    assert!(k.net.send_command(k.nas, AuthenticatorCommand::RemoveStation { station }).is_err());
    // The host decides when to reauthenticate. If the server requests it, the session ends.
    k.net
        .send_command(k.nas, AuthenticatorCommand::StartSession { station, identity: Some(user_name(1)) })
        .unwrap();
    k.net.run_for(Duration::from_secs(1));
    k.take_events();
    k.session_id = k.take_server_events().remove(0).1;
    let refused = (ResultCode::AUTHORIZATION_REJECTED.0, String::new());
    let out = AuthenticatorEvent::Ended { station, cause: SessionEndCause::Disconnected };
    assert_eq!(k.send_request(command::RE_AUTH), (vec![refused], vec![out], 0));
}

/// RFC 6733 §8.9.
#[test]
fn a_zero_lifetime_reauthenticates_a_station_after_a_pause() {
    let at_once = |avps: &mut AvpBuf| {
        avps.push_u32(codes::AUTHORIZATION_LIFETIME, 0);
    };
    let mut k = StatefulServerFixture::new(|_| {}, at_once);
    let again = |k: &mut StatefulServerFixture, seconds| {
        k.net.run_for(Duration::from_secs(seconds));
        k.net[k.nas].counters().reauthentications
    };
    assert_eq!((again(&mut k, 5), again(&mut k, 6)), (0, 1));
    k.log_in();
    assert_eq!((again(&mut k, 5), again(&mut k, 6)), (1, 2));
}
