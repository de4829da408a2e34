//! What the AAA server asks of a session that it let in (RFC 5176), and what the access server does then.

use crate::build::{
    PASSWORD, aaa_config, diameter_config, diameter_server, mac, radius_nas, secret, user_name, users,
    with_diameter,
};
use crate::world::{DIAMETER_PORT, RADIUS_PORT, nas_address, server_address};
use std::net::SocketAddr;
use std::sync::Arc;
use usher_aaa::{AaaServer, DynamicResult, User, Users, radius_socket};
use usher_core::bench::{At, Network};
use usher_core::impair::ChannelConfig;
use usher_core::{Duration, Input, ListenerId, PortId, Seed};
use usher_diameter::ResultCode;
use usher_diameter::avp::AvpBuf;
use usher_diameter::codes::{self, application, command};
use usher_diameter::node::{self, Node};
use usher_nas::authenticator::{self, Command, EndCause, Event};
use usher_nas::station::{self, Credentials};
use usher_nas::{
    AaaConfig, Authenticator, DYNAMIC_SOCKET, DynamicConfig, Record, RecordKind, Station, StationId,
};
use usher_radius::attribute::{Attributes, error_cause, kind};
use usher_radius::server::ClientConfig;
use usher_radius::{Code, Freshness};

/// RFC 5176 §2.3.
const DYNAMIC_PORT: u16 = 3799;
const STATION: StationId =
    StationId::Frame { port: PortId(0), mac: usher_nas::MacAddress([2, 0, 0, 0, 0, 0]) };

struct Site {
    net: Network,
    station: At<Station>,
    nas: At<Authenticator>,
    server: At<AaaServer>,
    asked: u64,
}

impl Site {
    /// A station that has been let in.
    fn new(users: Arc<Users>) -> Self {
        let seed = Seed::new(11);
        let mut config = radius_nas(1);
        let server = aaa_config(users);
        if let AaaConfig::Radius(radius) = &mut config.aaa {
            let clients = vec![ClientConfig::new(server_address(0), 32, secret())];
            let freshness = Some(Freshness::default());
            radius.dynamic = Some(Box::new(DynamicConfig { clients, freshness }));
        }
        let delay = Duration::from_millis(1);
        let mut net = Network::new(ChannelConfig { delay, ..ChannelConfig::default() });
        let station = Station::new(station::Config::new(mac(0)), seed.secure("station", 0));
        let station = net.add(station, &[]);
        let nas = net.add(Authenticator::new(config, seed.secure("nas", 0)).unwrap(), &[nas_address(0)]);
        let server = AaaServer::new(server, seed.secure("aaa", 0)).unwrap();
        let server = net.add(server, &[server_address(0)]);
        // Nobody keeps records here, nor acknowledges them.
        net.on_job(server, |_| None);
        net.join(&[(station.number, PortId(0)), (nas.number, PortId(0))]);
        net.bind(nas, DYNAMIC_SOCKET, SocketAddr::new(nas_address(0), DYNAMIC_PORT));
        net.bind(server, radius_socket(0), SocketAddr::new(server_address(0), RADIUS_PORT));
        let mut site = Self { net, station, nas, server, asked: 0 };
        site.log_in();
        assert!(matches!(&site.said()[..], [Event::Authenticated(_)]));
        site
    }
    fn usual() -> Self {
        Self::new(users(Seed::new(1), 1))
    }
    fn log_in(&mut self) {
        let (identity, credentials) = (user_name(0), Credentials::password(PASSWORD));
        self.net.command(self.station, station::Command::Authenticate { identity, credentials }).unwrap();
        self.run(1);
    }
    fn run(&mut self, seconds: u64) {
        self.net.run(Duration::from_secs(seconds));
    }
    /// What the access server has said since it was last asked.
    fn said(&mut self) -> Vec<Event> {
        self.net.take(self.nas).into_iter().map(|(_, event)| event).collect()
    }
    /// What the server hears to a request.
    fn ask(&mut self, code: Code, write: impl FnOnce(&mut Attributes)) -> DynamicResult {
        let mut attributes = Attributes::new();
        write(&mut attributes);
        self.asked += 1;
        let (token, to) = (self.asked, SocketAddr::new(nas_address(0), DYNAMIC_PORT));
        let command = usher_aaa::Command::Dynamic { token, to, code, attributes };
        self.net.command(self.server, command).unwrap();
        self.run(1);
        let mut events = self.net.take(self.server).into_iter();
        let result = events.find_map(|(_, event)| match event {
            usher_aaa::Event::Dynamic { token: t, result } if t == token => Some(result),
            _ => None,
        });
        result.expect("an answer")
    }
    /// The station begins anew.
    fn start(&mut self) {
        let frame = [&[1, 0x80, 0xc2, 0, 0, 3][..], &mac(0).0, &[0x88, 0x8e, 1, 1, 0, 0]].concat();
        self.net.give(self.nas, Input::Frame { port: PortId(0), data: &frame });
    }
    /// How often the station was asked who it is.
    fn identity_requests(&self) -> usize {
        // After the Ethernet header that of EAPOL, then EAP's: a Request of type Identity.
        let asks = |bytes: &[u8]| bytes.get(18) == Some(&1) && bytes.get(22) == Some(&1);
        self.net.sent().iter().filter(|sent| sent.from == self.nas.number && asks(&sent.bytes)).count()
    }
}

fn ended(cause: EndCause) -> Event {
    Event::Ended { station: STATION, cause }
}
fn named(a: &mut Attributes) {
    a.push_bytes(kind::USER_NAME, &user_name(0)).unwrap();
}

#[test]
fn a_disconnect_request_ends_the_session() {
    let mut site = Site::usual();
    assert_eq!(site.ask(Code::DISCONNECT_REQUEST, named), DynamicResult::Ack);
    assert_eq!(site.said(), [ended(EndCause::Disconnected)]);
    assert_eq!(site.net[site.nas].counters().disconnected, 1);
    // It is over, and so another request finds nothing.
    let nothing = DynamicResult::Nak(Some(error_cause::SESSION_CONTEXT_NOT_FOUND));
    assert_eq!(site.ask(Code::DISCONNECT_REQUEST, named), nothing);
    // The station may come again.
    site.log_in();
    assert!(matches!(&site.said()[..], [Event::Authenticated(_)]));
}

#[test]
fn a_session_is_known_by_what_was_said_of_it() {
    let mut site = Site::usual();
    let record = Record::new(RecordKind::Start, STATION, "00c0ffee".into(), 0);
    site.net.command(site.nas, Command::Account { token: 1, record }).unwrap();
    let other = DynamicResult::Nak(Some(error_cause::SESSION_CONTEXT_NOT_FOUND));
    let said: [(u8, &[u8], bool); 6] = [
        (kind::ACCT_SESSION_ID, b"another", false),
        (kind::CALLING_STATION_ID, b"02-00-00-00-00-01", false),
        (kind::NAS_PORT, &[0, 0, 0, 1], false),
        (kind::FRAMED_IP_ADDRESS, &[192, 0, 2, 1], false),
        (kind::CALLING_STATION_ID, b"02-00-00-00-00-00", true),
        (kind::ACCT_SESSION_ID, b"00c0ffee", true),
    ];
    for (kind, value, meant) in said {
        let right = if meant { DynamicResult::Ack } else { other };
        let write = |a: &mut Attributes| {
            a.push_bytes(kind, value).unwrap();
        };
        assert_eq!(site.ask(Code::COA_REQUEST, write), right, "{kind}");
    }
    assert_eq!(site.said(), [Event::Changed { station: STATION }, Event::Changed { station: STATION }]);
}

#[test]
fn a_change_of_the_session_timeout_ends_the_session_then() {
    let mut site = Site::usual();
    let five = |a: &mut Attributes| {
        named(a);
        a.push_u32(kind::SESSION_TIMEOUT, 5);
    };
    assert_eq!(site.ask(Code::COA_REQUEST, five), DynamicResult::Ack);
    assert_eq!(site.said(), [Event::Changed { station: STATION }]);
    site.run(3);
    assert_eq!(site.said(), []);
    site.run(2);
    assert_eq!(site.said(), [ended(EndCause::SessionTimeout)]);
    let nothing = DynamicResult::Nak(Some(error_cause::SESSION_CONTEXT_NOT_FOUND));
    assert_eq!(site.ask(Code::COA_REQUEST, five), nothing);
}

#[test]
fn whoever_begins_anew_and_again_stays_in_for_as_long_as_was_said() {
    let mut site = Site::usual();
    let twenty = |a: &mut Attributes| {
        named(a);
        a.push_u32(kind::SESSION_TIMEOUT, 20);
    };
    assert_eq!(site.ask(Code::COA_REQUEST, twenty), DynamicResult::Ack);
    for _ in 0..2 {
        site.start();
        site.run(5);
    }
    assert_eq!(site.said(), [Event::Changed { station: STATION }]);
    site.start();
    site.run(15);
    assert_eq!(site.said(), [ended(EndCause::SessionTimeout)]);
    assert_eq!(site.net[site.nas].in_progress(), 0);
    site.log_in();
    assert!(matches!(&site.said()[..], [Event::Authenticated(_)]));
    site.start();
    site.start();
    assert_eq!(site.ask(Code::DISCONNECT_REQUEST, named), DynamicResult::Ack);
    assert_eq!(site.said(), [ended(EndCause::Disconnected)]);
}

#[test]
fn a_change_that_is_not_possible_changes_nothing() {
    let mut site = Site::usual();
    let also_a_filter = |a: &mut Attributes| {
        named(a);
        a.push_u32(kind::SESSION_TIMEOUT, 5).push_text(kind::FILTER_ID, "guests").unwrap();
    };
    let refused = DynamicResult::Nak(Some(error_cause::UNSUPPORTED_ATTRIBUTE));
    assert_eq!(site.ask(Code::COA_REQUEST, also_a_filter), refused);
    site.run(60);
    assert_eq!(site.said(), []);
}

#[test]
fn a_station_is_authenticated_again_when_that_is_wanted() {
    let mut site = Site::usual();
    let before = site.identity_requests();
    let again = |a: &mut Attributes| {
        named(a);
        a.push_u32(kind::SESSION_TIMEOUT, 2).push_u32(kind::TERMINATION_ACTION, 1);
    };
    assert_eq!(site.ask(Code::COA_REQUEST, again), DynamicResult::Ack);
    site.run(2);
    // It stays in meanwhile.
    assert_eq!(site.said(), [Event::Changed { station: STATION }]);
    assert_eq!(site.identity_requests(), before + 1);
    site.log_in();
    assert!(matches!(&site.said()[..], [Event::Authenticated(_)]));
    assert_eq!(site.ask(Code::DISCONNECT_REQUEST, named), DynamicResult::Ack);
}

#[test]
fn a_station_that_does_not_prove_itself_again_is_out() {
    let mut all = Users::new(&mut Seed::new(1).secure("users", 0));
    let mut user = User::with_password(PASSWORD);
    user.reply.push_u32(kind::SESSION_TIMEOUT, 10).push_u32(kind::TERMINATION_ACTION, 1);
    user.reply.push_bytes(kind::STATE, b"as before").unwrap();
    all.insert(&user_name(0), user);
    let mut site = Site::new(Arc::new(all));
    site.run(10);
    assert_eq!(site.net[site.nas].counters().reauthentications, 1);
    site.run(60);
    let reason = authenticator::FailReason::StationTimeout;
    assert_eq!(site.said(), [Event::Failed { station: STATION, reason }]);
    let nothing = DynamicResult::Nak(Some(error_cause::SESSION_CONTEXT_NOT_FOUND));
    assert_eq!(site.ask(Code::DISCONNECT_REQUEST, named), nothing);
}

#[test]
fn a_station_that_must_prove_itself_again_cannot_put_that_off() {
    let again = |site: &mut Site| {
        let due = |a: &mut Attributes| {
            named(a);
            a.push_u32(kind::SESSION_TIMEOUT, 10).push_u32(kind::TERMINATION_ACTION, 1);
        };
        assert_eq!(site.ask(Code::COA_REQUEST, due), DynamicResult::Ack);
        assert_eq!(site.said(), [Event::Changed { station: STATION }]);
    };
    // Beginning anew before its time, and from then on.
    for first in [2, 12] {
        let mut site = Site::usual();
        again(&mut site);
        site.run(first);
        for _ in first / 5..13 {
            site.start();
            site.run(5);
            assert_eq!(site.said(), []);
        }
        site.start();
        site.run(8);
        assert_eq!(site.said(), [ended(EndCause::SessionTimeout)]);
    }
}

/// RFC 5176 §3.6, note 3.
#[test]
fn what_a_change_leaves_out_remains() {
    let mut site = Site::usual();
    let mut change = |timeout: Option<u32>, action: Option<u32>, seconds| {
        let answer = site.ask(Code::COA_REQUEST, |a| {
            named(a);
            for (kind, value) in [(kind::SESSION_TIMEOUT, timeout), (kind::TERMINATION_ACTION, action)] {
                if let Some(value) = value {
                    a.push_u32(kind, value);
                }
            }
        });
        assert_eq!(answer, DynamicResult::Ack);
        assert_eq!(site.said(), [Event::Changed { station: STATION }]);
        site.run(seconds);
        (site.said(), site.net[site.nas].counters().reauthentications)
    };
    // What is then, and not when; when, and not what is then; and the way back.
    assert_eq!(change(Some(20), None, 5), (vec![], 0));
    assert_eq!(change(None, Some(1), 5), (vec![], 0));
    assert_eq!(change(Some(30), None, 15), (vec![], 0));
    assert_eq!(change(None, Some(0), 15), (vec![ended(EndCause::SessionTimeout)], 0));
    site.log_in();
    assert!(matches!(&site.said()[..], [Event::Authenticated(_)]));
    let cause = |site: &mut Site, write: fn(&mut Attributes)| {
        let both = |a: &mut Attributes| {
            named(a);
            write(a);
        };
        match site.ask(Code::COA_REQUEST, both) {
            DynamicResult::Nak(cause) => cause,
            other => panic!("{other:?}"),
        }
    };
    let state_alone = |a: &mut Attributes| {
        a.push_bytes(kind::STATE, b"x").unwrap();
    };
    assert_eq!(cause(&mut site, state_alone), Some(error_cause::INVALID_REQUEST));
    let no_action = |a: &mut Attributes| {
        a.push_u32(kind::TERMINATION_ACTION, 2);
    };
    assert_eq!(cause(&mut site, no_action), Some(407));
    // Whose verdict is awaited gets all that anew.
    site.start();
    let timeout = |a: &mut Attributes| {
        a.push_u32(kind::SESSION_TIMEOUT, 5);
    };
    assert_eq!(cause(&mut site, timeout), Some(error_cause::RESOURCES_UNAVAILABLE));
}

#[test]
fn a_session_keeps_its_name_when_its_station_is_authenticated_again() {
    let mut site = Site::usual();
    let told = |site: &mut Site, kind, session: &str| {
        let record = Record::new(kind, STATION, session.into(), 0);
        site.net.command(site.nas, Command::Account { token: 1, record }).unwrap();
    };
    told(&mut site, RecordKind::Start, "00c0ffee");
    site.log_in();
    // The end of the session before is told late.
    told(&mut site, RecordKind::Stop, "00c0ffed");
    site.said();
    let by_name = |a: &mut Attributes| {
        a.push_text(kind::ACCT_SESSION_ID, "00c0ffee").unwrap();
    };
    assert_eq!(site.ask(Code::DISCONNECT_REQUEST, by_name), DynamicResult::Ack);
}

/// A Diameter server that keeps the sessions that it lets in, and lets everybody in.
struct Keeping {
    net: Network,
    station: At<Station>,
    nas: At<Authenticator>,
    node: At<Node>,
    session_id: String,
}

const SUCCESS: (u32, String) = (2001, String::new());

impl Keeping {
    /// A station that has been let in.
    fn new(change: fn(&mut authenticator::Config), say: fn(&mut AvpBuf)) -> Self {
        let (seed, delay) = (Seed::new(11), Duration::from_millis(1));
        let mut net = Network::new(ChannelConfig { delay, ..ChannelConfig::default() });
        let station = Station::new(station::Config::new(mac(0)), seed.secure("station", 0));
        let station = net.add(station, &[]);
        let mut config = diameter_config(1);
        config.stateful = true;
        let mut config = with_diameter(config);
        change(&mut config);
        let nas = Authenticator::new(config, seed.secure("nas", 0)).unwrap();
        let nas = net.add(nas, &[nas_address(0)]);
        let node = diameter_server(0, users(seed, 1)).diameter.unwrap();
        let node = net.add(Node::new(node, net.now(), seed.secure("aaa", 0)), &[server_address(0)]);
        net.listen(node, ListenerId::own(0), SocketAddr::new(server_address(0), DIAMETER_PORT));
        net.join(&[(station.number, PortId(0)), (nas.number, PortId(0))]);
        net.on_event(node, move |event| {
            let node::Event::Request { token, message, .. } = event else { return None };
            let mut avps = AvpBuf::new();
            if message.header.command == command::DIAMETER_EAP {
                avps.push_u32(codes::AUTH_REQUEST_TYPE, 3);
                say(&mut avps);
            }
            let result = ResultCode::SUCCESS;
            Some((Duration::ZERO, node::Command::Answer { token: *token, result, avps }))
        });
        net.run(Duration::from_secs(1));
        let mut all = Self { net, station, nas, node, session_id: String::new() };
        all.log_in();
        let said = all.said();
        assert!(matches!(said.last(), Some(Event::Authenticated(_))), "{said:?}");
        all.session_id = all.heard().remove(0).1;
        all
    }
    fn log_in(&mut self) {
        let (identity, credentials) = (user_name(0), Credentials::password(PASSWORD));
        self.net.command(self.station, station::Command::Authenticate { identity, credentials }).unwrap();
        self.net.run(Duration::from_secs(1));
    }
    fn said(&mut self) -> Vec<Event> {
        self.net.take(self.nas).into_iter().map(|(_, event)| event).collect()
    }
    /// What the server has heard: commands of sessions, and results.
    fn heard(&mut self) -> Vec<(u32, String)> {
        let heard = self.net.take(self.node).into_iter().filter_map(|(_, event)| match event {
            node::Event::Request { message, .. } => {
                let session = message.avps.view().get(codes::SESSION_ID)?.utf8().ok()?.to_owned();
                Some((message.header.command, session))
            }
            node::Event::Answer { result, .. } => Some((result.0, String::new())),
            _ => None,
        });
        heard.collect()
    }
    /// What the server hears to a request, what the access server says, and how often it has authenticated again.
    fn ask(&mut self, command: u32) -> (Vec<(u32, String)>, Vec<Event>, u64) {
        let request = node::Request {
            token: 1,
            application: application::EAP,
            command,
            destination_realm: "example.org".into(),
            destination_host: Some("switch.example.org".into()),
            session_id: self.session_id.clone(),
            avps: AvpBuf::new(),
        };
        self.net.command(self.node, node::Command::Request(request)).unwrap();
        self.net.run(Duration::from_secs(1));
        let again = self.net[self.nas].counters().reauthentications;
        (self.heard(), self.said(), again)
    }
}

/// RFC 6733 §8.3, §8.5: a server that keeps the sessions that it lets in asks for them by their names, and is told when they
/// have ended.
#[test]
fn a_diameter_server_has_a_station_authenticated_again_and_ends_its_session() {
    let mut k = Keeping::new(|_| {}, |_| {});
    // It is asked who it is, and stays in meanwhile.
    assert_eq!(k.ask(command::RE_AUTH), (vec![SUCCESS], vec![], 1));
    let (heard, said, _) = k.ask(command::ABORT_SESSION);
    assert_eq!(said, [ended(EndCause::Disconnected)]);
    // In this order (RFC 6733 §8.1).
    assert_eq!(heard, [SUCCESS, (command::SESSION_TERMINATION, k.session_id.clone())]);
    let (heard, said, _) = k.ask(command::ABORT_SESSION);
    assert_eq!((heard, said), (vec![(ResultCode::UNKNOWN_SESSION_ID.0, String::new())], vec![]));
}

#[test]
fn where_there_is_no_room_nobody_is_authenticated_again() {
    let mut k = Keeping::new(|config| config.max_sessions = 1, |_| {});
    let frame = [&[1, 0x80, 0xc2, 0, 0, 3][..], &mac(1).0, &[0x88, 0x8e, 1, 1, 0, 0]].concat();
    k.net.give(k.nas, Input::Frame { port: PortId(0), data: &frame });
    let full = (ResultCode::RESOURCES_EXCEEDED.0, String::new());
    // Who is not authenticated again is out, as the server knows by the answer (RFC 6733 §8.1).
    assert_eq!(k.ask(command::RE_AUTH), (vec![full], vec![ended(EndCause::Disconnected)], 0));
    assert_eq!(k.ask(command::RE_AUTH).0, [(ResultCode::UNKNOWN_SESSION_ID.0, String::new())]);
}

/// RFC 6733 §8.1: a refusal ends the session that was authenticated before.
#[test]
fn whom_the_server_refuses_when_it_is_authenticated_again_is_out() {
    let mut k = Keeping::new(|_| {}, |_| {});
    assert_eq!(k.ask(command::RE_AUTH), (vec![SUCCESS], vec![], 1));
    k.net.on_event(k.node, |event| {
        let node::Event::Request { token, message, .. } = event else { return None };
        let result = match message.header.command {
            command::DIAMETER_EAP => ResultCode::AUTHENTICATION_REJECTED,
            _ => ResultCode::SUCCESS,
        };
        Some((Duration::ZERO, node::Command::Answer { token: *token, result, avps: AvpBuf::new() }))
    });
    k.log_in();
    assert_eq!(k.said(), [Event::Rejected { station: STATION, name: user_name(0) }]);
    // That was asked under a name of its own.
    let heard: Vec<u32> = k.heard().into_iter().map(|(command, _)| command).collect();
    assert_eq!(heard, [command::DIAMETER_EAP, command::SESSION_TERMINATION]);
    assert_eq!(k.ask(command::ABORT_SESSION).0, [(ResultCode::UNKNOWN_SESSION_ID.0, String::new())]);
}

#[test]
fn of_whom_nothing_is_remembered_no_server_keeps_a_session() {
    let mut k = Keeping::new(|config| config.max_remembered = 0, |_| {});
    let unknown = (ResultCode::UNKNOWN_SESSION_ID.0, String::new());
    assert_eq!(k.ask(command::ABORT_SESSION), (vec![unknown], vec![], 0));
    assert_eq!(k.net[k.nas].counters().not_remembered, 1);
}

#[test]
fn of_a_station_of_the_hosts_the_server_is_told_when_it_is_forgotten() {
    let mut k = Keeping::new(|_| {}, |_| {});
    let station = StationId::Host(7);
    k.net.command(k.nas, Command::Begin { station, identity: Some(user_name(1)) }).unwrap();
    k.net.run(Duration::from_secs(1));
    assert!(k.said().iter().any(|event| matches!(event, Event::Authenticated(_))));
    k.session_id = k.heard().remove(0).1;
    k.net.command(k.nas, Command::Forget { station }).unwrap();
    k.net.run(Duration::from_secs(1));
    assert_eq!(k.heard(), [(command::SESSION_TERMINATION, k.session_id.clone())]);
    assert!(k.net.command(k.nas, Command::Forget { station }).is_err());
    // When it is authenticated is the host's affair: where the server wants that, its session ends.
    k.net.command(k.nas, Command::Begin { station, identity: Some(user_name(1)) }).unwrap();
    k.net.run(Duration::from_secs(1));
    k.said();
    k.session_id = k.heard().remove(0).1;
    let refused = (ResultCode::AUTHORIZATION_REJECTED.0, String::new());
    let out = Event::Ended { station, cause: EndCause::Disconnected };
    assert_eq!(k.ask(command::RE_AUTH), (vec![refused], vec![out], 0));
}

/// RFC 6733 §8.9.
#[test]
fn a_lifetime_of_zero_has_a_station_authenticated_again_after_a_pause() {
    let at_once = |avps: &mut AvpBuf| {
        avps.push_u32(codes::AUTHORIZATION_LIFETIME, 0);
    };
    let mut k = Keeping::new(|_| {}, at_once);
    let again = |k: &mut Keeping, seconds| {
        k.net.run(Duration::from_secs(seconds));
        k.net[k.nas].counters().reauthentications
    };
    assert_eq!((again(&mut k, 5), again(&mut k, 6)), (0, 1));
    k.log_in();
    assert_eq!((again(&mut k, 5), again(&mut k, 6)), (1, 2));
}
