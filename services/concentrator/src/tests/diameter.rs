//! A Diameter server that authenticates hosts, keeps accounting, and ends sessions over the same connection (RFC 6733
//! §8.3, §8.5).

use super::*;
use usher_core::ListenerId;
use usher_diameter::ResultCode;
use usher_diameter::accounting::{AccountingAnswer, AccountingRecordType, AccountingRequest};
use usher_diameter::avp::AvpBuf;
use usher_diameter::codes::{self, application, command};
use usher_diameter::node::{self, DiameterNode};
use usher_diameter::peer::capabilities::DiameterApplication;

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

/// A request that the server received about a session.
#[derive(Clone, PartialEq, Debug)]
enum SessionNotice {
    Record(AccountingRecordType),
    /// The Termination-Cause.
    Terminated(u32),
}

struct DiameterFixture {
    world: ConcentratorTestNetwork,
    server: NetworkHostHandle<DiameterNode>,
    received_notices: Rc<RefCell<Vec<SessionNotice>>>,
    /// The Session-Ids of logins.
    ids: Rc<RefCell<Vec<String>>>,
}

impl DiameterFixture {
    /// Creates a network with a server that accepts Ann with any proof and keeps her session.
    fn new(clients: Vec<ClientConfig>) -> Self {
        let mut world = ConcentratorTestNetwork::new(AAA, clients);
        let applications = [
            DiameterApplication::for_authentication(application::EAP),
            DiameterApplication::for_authentication(application::NASREQ),
            DiameterApplication::for_accounting(application::ACCOUNTING),
        ];
        let mut config = node::DiameterNodeConfig::new("aaa.usher.test", "usher.test", &applications);
        config.local.addresses.push(SERVER.parse().unwrap());
        let node = DiameterNode::new(
            config.accept_from("ac.usher.test"),
            world.net.now(),
            SecureRng::from_seed([3; 32]),
        );
        let server = world.net.add_host(node, &[SERVER.parse().unwrap()]);
        world.net.add_listener(server, ListenerId::from_number(0), socket_address(SERVER, 3868));
        let (heard, ids) = (Rc::<RefCell<Vec<_>>>::default(), Rc::<RefCell<Vec<_>>>::default());
        let (notes, logins) = (heard.clone(), ids.clone());
        world.net.on_event(server, move |event| {
            let node::DiameterNodeEvent::Request { token, message, .. } = event else { return None };
            let view = message.avps.as_sequence();
            let (mut result, mut avps) = (ResultCode::SUCCESS, AvpBuf::new());
            match message.header.command {
                command::AA => {
                    avps.push_u32(codes::AUTH_REQUEST_TYPE, 3).push_u32(codes::AUTH_SESSION_STATE, 0);
                    avps.push(codes::FRAMED_IP_ADDRESS, &[10, 0, 0, 9]);
                    if view.get(codes::USER_NAME).unwrap().data != b"ann" {
                        result = ResultCode::AUTHENTICATION_REJECTED;
                    }
                    let id = view.get(codes::SESSION_ID).unwrap().as_utf8().unwrap();
                    logins.borrow_mut().push(id.to_owned());
                }
                command::ACCOUNTING => {
                    let acr = AccountingRequest::parse(view).unwrap();
                    let AccountingRequest { record_type, record_number, .. } = acr;
                    notes.borrow_mut().push(SessionNotice::Record(record_type));
                    avps = AccountingAnswer { record_type, record_number }.to_avps();
                }
                command::SESSION_TERMINATION => {
                    let cause = view.get(codes::TERMINATION_CAUSE).unwrap().as_u32().unwrap();
                    notes.borrow_mut().push(SessionNotice::Terminated(cause));
                }
                other => panic!("command {other}"),
            }
            Some((Duration::ZERO, node::DiameterNodeCommand::Answer { token: *token, result, avps }))
        });
        // Wait for the Diameter connection.
        world.net.run_for(secs(1));
        Self { world, server, received_notices: heard, ids }
    }
    /// Sends a request of the server about a session. Returns the concentrator's result code.
    fn send_server_request(&mut self, command: u32, session_id: &str) -> ResultCode {
        let request = node::DiameterRequest {
            token: 9,
            application: application::NASREQ,
            command,
            destination_realm: "usher.test".into(),
            destination_host: Some("ac.usher.test".into()),
            session_id: session_id.into(),
            avps: AvpBuf::new(),
        };
        self.world.net.send_command(self.server, node::DiameterNodeCommand::Request(request)).unwrap();
        self.world.net.run_for(secs(2));
        let said = self.world.net.take_events(self.server).into_iter().find_map(|(_, event)| match event {
            node::DiameterNodeEvent::Answer { token: 9, result, .. } => Some(result),
            _ => None,
        });
        said.expect("an answer")
    }
}

#[test]
fn the_server_judges_hosts_and_is_told_of_their_sessions() {
    for protocol in [AuthenticationProtocol::Chap, AuthenticationProtocol::Pap] {
        let clients =
            vec![client_config(1, protocol, "ann", "any"), client_config(2, protocol, "eve", "any")];
        let mut site = DiameterFixture::new(clients);
        site.world.connect_and_wait(0);
        site.world.connect_and_wait(1);
        let status = site.world.session_statuses();
        assert_eq!((status.len(), status[0].ipv4), (1, Some(Ipv4Addr::new(10, 0, 0, 9))), "{protocol}");
        assert_eq!(site.world.login_failures()[0], LoginFailure::Rejected);
        site.world.net.send_command(site.world.clients[0], ClientCommand::Disconnect).unwrap();
        site.world.net.run_for(secs(3));
        // RFC 6733 §8.15: RADIUS's User-Request is DIAMETER_LOGOUT.
        let heard = [
            SessionNotice::Record(AccountingRecordType::Start),
            SessionNotice::Record(AccountingRecordType::Stop),
            SessionNotice::Terminated(1),
        ];
        assert_eq!(*site.received_notices.borrow(), heard, "{protocol}");
    }
}

#[test]
fn the_server_ends_a_session_that_it_keeps() {
    let mut site = DiameterFixture::new(vec![client_config(1, AuthenticationProtocol::Chap, "ann", "any")]);
    site.world.connect_and_wait(0);
    let id = site.ids.borrow()[0].clone();
    assert_eq!(
        site.send_server_request(command::ABORT_SESSION, "another;1;2;3"),
        ResultCode::UNKNOWN_SESSION_ID
    );
    assert_eq!(site.world.session_statuses().len(), 1);
    assert_eq!(site.send_server_request(command::ABORT_SESSION, &id), ResultCode::SUCCESS);
    assert!(site.world.session_statuses().is_empty() && site.world.installed_sessions().is_empty());
    assert_eq!(site.world.end_reasons(), ["disconnected-by-aaa"]);
    // Both applications of the server receive the end.
    let heard = [
        SessionNotice::Record(AccountingRecordType::Start),
        SessionNotice::Record(AccountingRecordType::Stop),
        SessionNotice::Terminated(16),
    ];
    assert_eq!(*site.received_notices.borrow(), heard);
    assert_eq!(site.send_server_request(command::ABORT_SESSION, &id), ResultCode::UNKNOWN_SESSION_ID);
}

/// A host authenticates only at its start. To reauthenticate it, the concentrator ends its session (RFC 6733 §8.1).
#[test]
fn a_session_ends_whose_user_is_to_be_authenticated_again() {
    let mut site = DiameterFixture::new(vec![client_config(1, AuthenticationProtocol::Chap, "ann", "any")]);
    site.world.connect_and_wait(0);
    let id = site.ids.borrow()[0].clone();
    assert_eq!(site.send_server_request(command::RE_AUTH, &id), ResultCode::AUTHORIZATION_REJECTED);
    assert!(site.world.session_statuses().is_empty() && site.world.installed_sessions().is_empty());
    assert_eq!(
        *site.received_notices.borrow(),
        [
            SessionNotice::Record(AccountingRecordType::Start),
            SessionNotice::Record(AccountingRecordType::Stop)
        ]
    );
}
