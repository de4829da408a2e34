//! Two Diameter peers, of which the second says what the first could have said.

use crate::accounting::{Host, acr, at};
use crate::build::{PASSWORD, diameter_server, user_name, users};
use crate::world::{nas_address, server_address};
use std::net::SocketAddr;
use usher_aaa::DIAMETER_LISTENER;
use usher_aaa::ledger::LedgerConfig;
use usher_core::bench::Tap;
use usher_core::{ConnId, Input, Instant, Machine, Seed, StreamEvent, StreamOp, Transmit};
use usher_crypto::digest::md5;
use usher_diameter::accounting::{Acr, RecordType};
use usher_diameter::avp::AvpBuf;
use usher_diameter::codes::{self, application};
use usher_diameter::eap::{Dea, Der};
use usher_diameter::nasreq::{AuthRequestType, NasInfo};
use usher_diameter::node::{self, Node};
use usher_diameter::peer::capabilities::Application;
use usher_diameter::{Flags, Header, Message, MessageView, ResultCode};

const NAMES: [&str; 2] = ["a.example.org", "b.example.org"];

pub(crate) struct Peers {
    pub(crate) host: Host,
    clients: [Tap<Node>; 2],
    /// The last message that each client sent, and the last that it got.
    sent: [Vec<u8>; 2],
    got: [Vec<u8>; 2],
}

impl Peers {
    /// The second peer is believed about these nodes.
    fn new(origins: &[&str]) -> Self {
        Self::with(origins, |_| {})
    }
    pub(crate) fn with(origins: &[&str], change: impl FnOnce(&mut usher_aaa::Config)) -> Self {
        let spoken = [Application::auth(application::EAP), Application::acct(application::ACCOUNTING)];
        let mut config = diameter_server(0, users(Seed::new(1), 1));
        if let Some(node) = &mut config.diameter {
            node.local.applications = spoken.to_vec();
            *node = node.clone().accept(NAMES[0]).accept(NAMES[1]);
            if let Some(peer) = node.peers.last_mut() {
                peer.origins = origins.iter().map(ToString::to_string).collect();
            }
        }
        change(&mut config);
        let client = |i: usize| {
            let mut config = node::Config::new(NAMES[i], "example.org", &spoken);
            config.local.addresses.push(nas_address(i));
            let config = config.connect_to("aaa0.example.org", SocketAddr::new(server_address(0), 3868));
            Tap::new(Node::new(config, Instant::ZERO, Seed::new(4).secure("client", i as u64)))
        };
        let host = Host::new(config, LedgerConfig::default());
        let mut peers =
            Self { host, clients: [client(0), client(1)], sent: Default::default(), got: Default::default() };
        peers.settle(at(0));
        for client in &mut peers.clients {
            assert!(matches!(client.poll_event(), Some(node::Event::PeerUp { .. })));
        }
        peers
    }
    fn hear(&mut self, now: Instant, i: usize, event: StreamEvent<'_>) {
        let conn = ConnId::accepted_at(DIAMETER_LISTENER, i as u32);
        self.host.server.handle(now, Input::Stream { conn, event });
        self.host.serve(now);
    }
    fn settle(&mut self, now: Instant) {
        let mut buf = Vec::new();
        let mut idle = false;
        self.clients.iter_mut().for_each(|client| client.handle(now, Input::Timeout));
        while !core::mem::replace(&mut idle, true) {
            for i in 0..2 {
                while let Some(Transmit::Stream { conn, op }) = self.clients[i].poll_transmit(&mut buf) {
                    idle = false;
                    if let StreamOp::Connect { remote, .. } = op {
                        let (listener, at) = (DIAMETER_LISTENER, SocketAddr::new(nas_address(i), 50_000));
                        let event =
                            StreamEvent::Accepted { listener, remote: at, local: None, certificate: None };
                        self.hear(now, i, event);
                        let event = StreamEvent::Connected { remote, local: None, certificate: None };
                        self.clients[i].handle(now, Input::Stream { conn, event });
                    } else {
                        self.sent[i].clone_from(&buf);
                        self.hear(now, i, StreamEvent::Data(&buf));
                    }
                }
            }
            while let Some(Transmit::Stream { conn, .. }) = self.host.server.poll_transmit(&mut buf) {
                idle = false;
                let i = conn.n as usize;
                self.got[i].clone_from(&buf);
                let (conn, event) = (ConnId::opened(0), StreamEvent::Data(&buf));
                self.clients[i].handle(now, Input::Stream { conn, event });
            }
        }
    }
    /// What the first peer asks for.
    fn ask(&mut self, request: node::Request) -> (ResultCode, AvpBuf) {
        self.clients[0].command(at(1), node::Command::Request(request)).unwrap();
        self.settle(at(1));
        match self.clients[0].poll_event() {
            Some(node::Event::Answer { result, avps, .. }) => (result, avps),
            other => panic!("{other:?}"),
        }
    }
    /// The second peer says something as if it had passed it on for the first; the result code of its answer.
    fn pass_on(&mut self, mut message: Message) -> u32 {
        message.avps.push_str(codes::ROUTE_RECORD, NAMES[0]);
        let mut wire = Vec::new();
        message.emit(&mut wire).unwrap();
        self.got[1].clear();
        self.hear(at(1), 1, StreamEvent::Data(&wire));
        self.settle(at(1));
        let answer = MessageView::parse(&self.got[1]).expect("it is answered");
        answer.avps().get(codes::RESULT_CODE).unwrap().u32().unwrap()
    }
    /// What the first peer said last.
    fn said(&self) -> Message {
        MessageView::parse(&self.sent[0]).unwrap().to_owned()
    }
    fn open(&self) -> usize {
        self.host.rows().iter().filter(|row| row.acctstoptime.is_none()).count()
    }
    /// The first peer tells of its session.
    pub(crate) fn tell(&mut self, acr: &Acr<'_>) {
        let request = acr.request(1, "a.example.org;1;7".into(), "example.org".into(), None);
        assert_eq!(self.ask(request).0, ResultCode::SUCCESS);
    }
    fn account(&mut self, record: RecordType, number: u32, length: u32) {
        self.tell(&acr(record, number, length));
    }
}

/// A Stop of the first peer's session, as it itself would send it.
fn stop() -> Message {
    let mut other = Peers::new(&[]);
    other.account(RecordType::Stop, 2, 90);
    other.said()
}

#[test]
fn no_peer_ends_the_sessions_of_another() {
    for (origins, open) in
        [(&[][..], 1), (&["c.example.org"], 1), (&["a.example.org"], 0), (&["*.example.org"], 0)]
    {
        let mut peers = Peers::new(origins);
        peers.account(RecordType::Start, 0, 0);
        assert_eq!(peers.open(), 1);
        assert_eq!(peers.pass_on(stop()), 2001, "what the second tells is kept, as its own");
        assert_eq!(peers.open(), open, "{origins:?}");
        peers.account(RecordType::Stop, 2, 90);
        assert_eq!(peers.open(), 0);
        assert_eq!(peers.host.rows().len(), 1 + open, "{origins:?}");
    }
}

#[test]
fn no_peer_terminates_the_sessions_of_another() {
    let mut peers = Peers::new(&["*"]);
    peers.account(RecordType::Start, 0, 0);
    for command in [274, 275] {
        let header = Header { flags: Flags(0xc0), command, application: 5, hop_by_hop: 7, end_to_end: 7 };
        let mut message = Message { header, avps: AvpBuf::new() };
        message.avps.push_str(codes::SESSION_ID, "a.example.org;1;7").push_str(codes::ORIGIN_HOST, NAMES[0]);
        assert!(peers.pass_on(message) >= 3000, "this server keeps no state that they would end");
    }
    assert_eq!(peers.open(), 1);
}

fn der(eap: &[u8], state: Option<&[u8]>) -> node::Request {
    let name = String::from_utf8(user_name(0)).unwrap();
    let der = Der {
        request_type: AuthRequestType::AuthorizeAuthenticate,
        eap,
        user_name: Some(&name),
        state,
        nas: NasInfo::default(),
    };
    der.request(1, "a.example.org;1;1".into(), "example.org".into(), None)
}

/// What the first peer says to a challenge, kept back; and what it answers.
fn challenged(peers: &mut Peers) -> node::Request {
    let name = user_name(0);
    let identity = [&[2, 0, 0, name.len() as u8 + 5, 1], &name[..]].concat();
    let (result, avps) = peers.ask(der(&identity, None));
    assert_eq!(result, ResultCode::MULTI_ROUND_AUTH);
    let dea = Dea::parse(avps.view()).unwrap();
    let challenge = dea.eap.unwrap();
    let digest = md5(&[&[challenge[1]], PASSWORD, &challenge[6..22]]);
    der(&[&[2, challenge[1], 0, 22, 4, 16][..], &digest].concat(), dea.state)
}

/// As a message on its way, of the first peer.
fn on_its_way(request: &node::Request) -> Message {
    let flags = Flags(0xc0);
    let header = Header { flags, command: 268, application: 5, hop_by_hop: 99, end_to_end: 99 };
    let mut message = Message { header, avps: AvpBuf::new() };
    message.avps.push_str(codes::SESSION_ID, &request.session_id).push_str(codes::ORIGIN_HOST, NAMES[0]);
    message.avps.push_u32(codes::AUTH_APPLICATION_ID, 5).push_str(codes::ORIGIN_REALM, "example.org");
    message.avps.push_str(codes::DESTINATION_REALM, "example.org").extend(&request.avps);
    message
}

#[test]
fn no_peer_goes_on_with_the_login_of_another() {
    let mut peers = Peers::new(&[]);
    let response = challenged(&mut peers);
    assert_eq!(peers.pass_on(on_its_way(&response)), 4001);
    let counters = peers.host.server.counters();
    assert_eq!((counters.unknown_session, counters.accepted_eap_md5), (1, 0));
    assert_eq!(peers.ask(response).0, ResultCode::SUCCESS, "the login itself goes on");
}

#[test]
fn a_login_goes_on_by_a_relay_that_is_believed_about_its_origin() {
    let mut peers = Peers::new(&["a.example.org"]);
    let response = challenged(&mut peers);
    assert_eq!(peers.pass_on(on_its_way(&response)), 2001);
    assert_eq!(peers.host.server.counters().accepted_eap_md5, 1);
}
