//! A server that judges hosts and is told of sessions by Diameter, and ends them by the same connection (RFC 6733 §8.3, §8.5).

use super::*;
use AuthenticationProtocol as P;
use usher_core::ListenerId;
use usher_diameter::ResultCode;
use usher_diameter::accounting::{Aca, Acr, RecordType};
use usher_diameter::avp::AvpBuf;
use usher_diameter::codes::{self, application, command};
use usher_diameter::node::{self, Node};
use usher_diameter::peer::capabilities::Application;

const AAA: &str = r#"
[listen]
interfaces = ["eth1"]
[service]
address = "10.0.0.1"
pools = ["students"]
[authentication]
protocols = ["chap", "pap"]
[[pool]]
name = "students"
ranges = ["10.0.0.0/28"]
[aaa]
nas_identifier = "campus.usher.test"
accounting = true
[aaa.diameter]
identity = "ac.usher.test"
realm = "usher.test"
stateful = true
[[aaa.diameter.peer]]
identity = "aaa.usher.test"
address = "203.0.113.1:3868"
[tracking]
"#;

/// What the server has heard of sessions.
#[derive(Clone, PartialEq, Debug)]
enum Heard {
    Record(RecordType),
    /// With its Termination-Cause.
    Terminated(u32),
}

struct Site {
    world: World,
    server: At<Node>,
    heard: Rc<RefCell<Vec<Heard>>>,
    /// The Session-Ids of logins.
    ids: Rc<RefCell<Vec<String>>>,
}

impl Site {
    /// With a server that lets Ann in, whatever she shows, and keeps her session.
    fn new(clients: Vec<ClientConfig>) -> Self {
        let mut world = World::new(AAA, clients);
        let applications = [
            Application::auth(application::EAP),
            Application::auth(application::NASREQ),
            Application::acct(application::ACCOUNTING),
        ];
        let mut config = node::Config::new("aaa.usher.test", "usher.test", &applications);
        config.local.addresses.push(SERVER.parse().unwrap());
        let node = Node::new(config.accept("ac.usher.test"), world.net.now(), SecureRng::from_seed([3; 32]));
        let server = world.net.add(node, &[SERVER.parse().unwrap()]);
        world.net.listen(server, ListenerId::own(0), at(SERVER, 3868));
        let (heard, ids) = (Rc::<RefCell<Vec<_>>>::default(), Rc::<RefCell<Vec<_>>>::default());
        let (notes, logins) = (heard.clone(), ids.clone());
        world.net.on_event(server, move |event| {
            let node::Event::Request { token, message, .. } = event else { return None };
            let view = message.avps.view();
            let (mut result, mut avps) = (ResultCode::SUCCESS, AvpBuf::new());
            match message.header.command {
                command::AA => {
                    avps.push_u32(codes::AUTH_REQUEST_TYPE, 3).push_u32(codes::AUTH_SESSION_STATE, 0);
                    avps.push(codes::FRAMED_IP_ADDRESS, &[10, 0, 0, 9]);
                    if view.get(codes::USER_NAME).unwrap().data != b"ann" {
                        result = ResultCode::AUTHENTICATION_REJECTED;
                    }
                    let id = view.get(codes::SESSION_ID).unwrap().utf8().unwrap();
                    logins.borrow_mut().push(id.to_owned());
                }
                command::ACCOUNTING => {
                    let acr = Acr::parse(view).unwrap();
                    let Acr { record_type, record_number, .. } = acr;
                    notes.borrow_mut().push(Heard::Record(record_type));
                    avps = Aca { record_type, record_number }.avps();
                }
                command::SESSION_TERMINATION => {
                    let cause = view.get(codes::TERMINATION_CAUSE).unwrap().u32().unwrap();
                    notes.borrow_mut().push(Heard::Terminated(cause));
                }
                other => panic!("command {other}"),
            }
            Some((Duration::ZERO, node::Command::Answer { token: *token, result, avps }))
        });
        // Diameter connects.
        world.net.run(secs(1));
        Self { world, server, heard, ids }
    }
    /// What the concentrator answers when the server asks this of a session.
    fn ask(&mut self, command: u32, session_id: &str) -> ResultCode {
        let request = node::Request {
            token: 9,
            application: application::NASREQ,
            command,
            destination_realm: "usher.test".into(),
            destination_host: Some("ac.usher.test".into()),
            session_id: session_id.into(),
            avps: AvpBuf::new(),
        };
        self.world.net.command(self.server, node::Command::Request(request)).unwrap();
        self.world.net.run(secs(2));
        let said = self.world.net.take(self.server).into_iter().find_map(|(_, event)| match event {
            node::Event::Answer { token: 9, result, .. } => Some(result),
            _ => None,
        });
        said.expect("an answer")
    }
}

#[test]
fn the_server_judges_hosts_and_is_told_of_their_sessions() {
    for protocol in [P::Chap, P::Pap] {
        let clients = vec![client(1, protocol, "ann", "any"), client(2, protocol, "eve", "any")];
        let mut site = Site::new(clients);
        site.world.up(0);
        site.world.up(1);
        let status = site.world.status();
        assert_eq!((status.len(), status[0].ipv4), (1, Some(Ipv4Addr::new(10, 0, 0, 9))), "{protocol}");
        assert_eq!(site.world.failures()[0], LoginFailure::Rejected);
        site.world.net.command(site.world.clients[0], ClientCommand::Disconnect).unwrap();
        site.world.net.run(secs(3));
        // User-Request of RADIUS is DIAMETER_LOGOUT (RFC 6733 §8.15).
        let heard = [Heard::Record(RecordType::Start), Heard::Record(RecordType::Stop), Heard::Terminated(1)];
        assert_eq!(*site.heard.borrow(), heard, "{protocol}");
    }
}

#[test]
fn the_server_ends_a_session_that_it_keeps() {
    let mut site = Site::new(vec![client(1, P::Chap, "ann", "any")]);
    site.world.up(0);
    let id = site.ids.borrow()[0].clone();
    assert_eq!(site.ask(command::ABORT_SESSION, "another;1;2;3"), ResultCode::UNKNOWN_SESSION_ID);
    assert_eq!(site.world.status().len(), 1);
    assert_eq!(site.ask(command::ABORT_SESSION, &id), ResultCode::SUCCESS);
    assert!(site.world.status().is_empty() && site.world.installed().is_empty());
    assert_eq!(site.world.ended(), ["disconnected-by-aaa"]);
    // The server hears of the end, by both of its applications.
    let heard = [Heard::Record(RecordType::Start), Heard::Record(RecordType::Stop), Heard::Terminated(16)];
    assert_eq!(*site.heard.borrow(), heard);
    assert_eq!(site.ask(command::ABORT_SESSION, &id), ResultCode::UNKNOWN_SESSION_ID);
}

/// A host shows who it is when it begins: a concentrator that is to have it do so again ends its session (RFC 6733 §8.1).
#[test]
fn a_session_ends_whose_user_is_to_be_authenticated_again() {
    let mut site = Site::new(vec![client(1, P::Chap, "ann", "any")]);
    site.world.up(0);
    let id = site.ids.borrow()[0].clone();
    assert_eq!(site.ask(command::RE_AUTH, &id), ResultCode::AUTHORIZATION_REJECTED);
    assert!(site.world.status().is_empty() && site.world.installed().is_empty());
    assert_eq!(*site.heard.borrow(), [Heard::Record(RecordType::Start), Heard::Record(RecordType::Stop)]);
}
