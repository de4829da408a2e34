//! Two Diameter peers. The second sends messages in the name of the first.

use crate::accounting::{TestHost, build_acr, instant_at};
use crate::build::{PASSWORD, diameter_server, test_users, user_name};
use crate::world::{nas_address, server_address};
use std::net::SocketAddr;
use usher_aaa::DIAMETER_LISTENER;
use usher_aaa::ledger::LedgerConfig;
use usher_core::bench::TestMachine;
use usher_core::{ConnId, Instant, Machine, MachineInput, Seed, StreamEvent, StreamOp, Transmit};
use usher_crypto::digest::md5;
use usher_diameter::accounting::{AccountingRecordType, AccountingRequest};
use usher_diameter::avp::AvpBuf;
use usher_diameter::codes::{self, application};
use usher_diameter::eap::{DiameterEapAnswer, DiameterEapRequest};
use usher_diameter::nasreq::{AuthRequestType, NasInfo};
use usher_diameter::node::{self, DiameterNode};
use usher_diameter::peer::capabilities::DiameterApplication;
use usher_diameter::{CommandFlags, DiameterMessage, MessageHeader, MessageView, ResultCode};

const NAMES: [&str; 2] = ["a.example.org", "b.example.org"];

pub(crate) struct DiameterPeerPair {
    pub(crate) host: TestHost,
    clients: [TestMachine<DiameterNode>; 2],
    /// The last message that each client sent and received.
    sent: [Vec<u8>; 2],
    got: [Vec<u8>; 2],
}

impl DiameterPeerPair {
    /// The second peer may relay for these nodes.
    fn new(origins: &[&str]) -> Self {
        Self::with_config(origins, |_| {})
    }
    pub(crate) fn with_config(
        origins: &[&str],
        change: impl FnOnce(&mut usher_aaa::AaaServerConfig),
    ) -> Self {
        let spoken = [
            DiameterApplication::for_authentication(application::EAP),
            DiameterApplication::for_accounting(application::ACCOUNTING),
        ];
        let mut config = diameter_server(0, test_users(Seed::new(1), 1));
        if let Some(node) = &mut config.diameter {
            node.local.applications = spoken.to_vec();
            *node = node.clone().accept_from(NAMES[0]).accept_from(NAMES[1]);
            if let Some(peer) = node.peers.last_mut() {
                peer.origins = origins.iter().map(ToString::to_string).collect();
            }
        }
        change(&mut config);
        let client = |i: usize| {
            let mut config = node::DiameterNodeConfig::new(NAMES[i], "example.org", &spoken);
            config.local.addresses.push(nas_address(i));
            let config = config.connect_to("aaa0.example.org", SocketAddr::new(server_address(0), 3868));
            TestMachine::new(DiameterNode::new(
                config,
                Instant::ZERO,
                Seed::new(4).derive_secure_rng("client", i as u64),
            ))
        };
        let host = TestHost::new(config, LedgerConfig::default());
        let mut peers =
            Self { host, clients: [client(0), client(1)], sent: Default::default(), got: Default::default() };
        peers.deliver_all(instant_at(0));
        for client in &mut peers.clients {
            assert!(matches!(client.poll_event(), Some(node::DiameterNodeEvent::PeerUp { .. })));
        }
        peers
    }
    fn deliver_event(&mut self, now: Instant, i: usize, event: StreamEvent<'_>) {
        let conn = ConnId::nth_accepted_at_listener(DIAMETER_LISTENER, i as u32);
        self.host.server.handle_input(now, MachineInput::Stream { conn, event });
        self.host.run_jobs(now);
    }
    fn deliver_all(&mut self, now: Instant) {
        let mut buf = Vec::new();
        let mut idle = false;
        self.clients.iter_mut().for_each(|client| client.handle_input(now, MachineInput::Timeout));
        while !core::mem::replace(&mut idle, true) {
            for i in 0..2 {
                while let Some(Transmit::Stream { conn, op }) = self.clients[i].poll_transmit(&mut buf) {
                    idle = false;
                    if let StreamOp::Connect { remote, .. } = op {
                        let (listener, at) = (DIAMETER_LISTENER, SocketAddr::new(nas_address(i), 50_000));
                        let event =
                            StreamEvent::Accepted { listener, remote: at, local: None, certificate: None };
                        self.deliver_event(now, i, event);
                        let event = StreamEvent::Connected { remote, local: None, certificate: None };
                        self.clients[i].handle_input(now, MachineInput::Stream { conn, event });
                    } else {
                        self.sent[i].clone_from(&buf);
                        self.deliver_event(now, i, StreamEvent::Data(&buf));
                    }
                }
            }
            while let Some(Transmit::Stream { conn, .. }) = self.host.server.poll_transmit(&mut buf) {
                idle = false;
                let i = conn.n as usize;
                self.got[i].clone_from(&buf);
                let (conn, event) = (ConnId::nth_opened_connection(0), StreamEvent::Data(&buf));
                self.clients[i].handle_input(now, MachineInput::Stream { conn, event });
            }
        }
    }
    /// Sends a request of the first peer.
    fn send_request(&mut self, request: node::DiameterRequest) -> (ResultCode, AvpBuf) {
        self.clients[0].handle_command(instant_at(1), node::DiameterNodeCommand::Request(request)).unwrap();
        self.deliver_all(instant_at(1));
        match self.clients[0].poll_event() {
            Some(node::DiameterNodeEvent::Answer { result, avps, .. }) => (result, avps),
            other => panic!("{other:?}"),
        }
    }
    /// Sends a message by the second peer as if relayed for the first. Returns the answer's result code.
    fn pass_on(&mut self, mut message: DiameterMessage) -> u32 {
        message.avps.push_str(codes::ROUTE_RECORD, NAMES[0]);
        let mut wire = Vec::new();
        message.encode_into(&mut wire).unwrap();
        self.got[1].clear();
        self.deliver_event(instant_at(1), 1, StreamEvent::Data(&wire));
        self.deliver_all(instant_at(1));
        let answer = MessageView::parse(&self.got[1]).expect("it is answered");
        answer.avps().get(codes::RESULT_CODE).unwrap().as_u32().unwrap()
    }
    /// Returns the first peer's last message.
    fn last_sent_message(&self) -> DiameterMessage {
        MessageView::parse(&self.sent[0]).unwrap().to_owned()
    }
    fn open_session_count(&self) -> usize {
        self.host.rows().iter().filter(|row| row.acctstoptime.is_none()).count()
    }
    /// Sends an accounting record of the first peer's session.
    pub(crate) fn send_record(&mut self, acr: &AccountingRequest<'_>) {
        let request = acr.to_request(1, "a.example.org;1;7".into(), "example.org".into(), None);
        assert_eq!(self.send_request(request).0, ResultCode::SUCCESS);
    }
    fn send_accounting(&mut self, record: AccountingRecordType, number: u32, length: u32) {
        self.send_record(&build_acr(record, number, length));
    }
}

/// A Stop of the first peer's session, as that peer would send it.
fn stop_message() -> DiameterMessage {
    let mut other = DiameterPeerPair::new(&[]);
    other.send_accounting(AccountingRecordType::Stop, 2, 90);
    other.last_sent_message()
}

#[test]
fn no_peer_ends_the_sessions_of_another() {
    for (origins, open) in
        [(&[][..], 1), (&["c.example.org"], 1), (&["a.example.org"], 0), (&["*.example.org"], 0)]
    {
        let mut peers = DiameterPeerPair::new(origins);
        peers.send_accounting(AccountingRecordType::Start, 0, 0);
        assert_eq!(peers.open_session_count(), 1);
        assert_eq!(peers.pass_on(stop_message()), 2001, "what the second tells is kept, as its own");
        assert_eq!(peers.open_session_count(), open, "{origins:?}");
        peers.send_accounting(AccountingRecordType::Stop, 2, 90);
        assert_eq!(peers.open_session_count(), 0);
        assert_eq!(peers.host.rows().len(), 1 + open, "{origins:?}");
    }
}

#[test]
fn no_peer_terminates_the_sessions_of_another() {
    let mut peers = DiameterPeerPair::new(&["*"]);
    peers.send_accounting(AccountingRecordType::Start, 0, 0);
    for command in [274, 275] {
        let header = MessageHeader {
            flags: CommandFlags(0xc0),
            command,
            application: 5,
            hop_by_hop: 7,
            end_to_end: 7,
        };
        let mut message = DiameterMessage { header, avps: AvpBuf::new() };
        message.avps.push_str(codes::SESSION_ID, "a.example.org;1;7").push_str(codes::ORIGIN_HOST, NAMES[0]);
        assert!(peers.pass_on(message) >= 3000, "this server keeps no state that they would end");
    }
    assert_eq!(peers.open_session_count(), 1);
}

fn build_der(eap: &[u8], state: Option<&[u8]>) -> node::DiameterRequest {
    let name = String::from_utf8(user_name(0)).unwrap();
    let der = DiameterEapRequest {
        request_type: AuthRequestType::AuthorizeAuthenticate,
        eap,
        user_name: Some(&name),
        state,
        nas: NasInfo::default(),
    };
    der.to_request(1, "a.example.org;1;1".into(), "example.org".into(), None)
}

/// Returns the first peer's response to a challenge, which is not sent.
fn answer_challenge(peers: &mut DiameterPeerPair) -> node::DiameterRequest {
    let name = user_name(0);
    let identity = [&[2, 0, 0, name.len() as u8 + 5, 1], &name[..]].concat();
    let (result, avps) = peers.send_request(build_der(&identity, None));
    assert_eq!(result, ResultCode::MULTI_ROUND_AUTH);
    let dea = DiameterEapAnswer::parse(avps.as_sequence()).unwrap();
    let challenge = dea.eap.unwrap();
    let digest = md5(&[&[challenge[1]], PASSWORD, &challenge[6..22]]);
    build_der(&[&[2, challenge[1], 0, 22, 4, 16][..], &digest].concat(), dea.state)
}

/// Returns a request as a message of the first peer.
fn message_from_first_peer(request: &node::DiameterRequest) -> DiameterMessage {
    let flags = CommandFlags(0xc0);
    let header = MessageHeader { flags, command: 268, application: 5, hop_by_hop: 99, end_to_end: 99 };
    let mut message = DiameterMessage { header, avps: AvpBuf::new() };
    message.avps.push_str(codes::SESSION_ID, &request.session_id).push_str(codes::ORIGIN_HOST, NAMES[0]);
    message.avps.push_u32(codes::AUTH_APPLICATION_ID, 5).push_str(codes::ORIGIN_REALM, "example.org");
    message.avps.push_str(codes::DESTINATION_REALM, "example.org").extend(&request.avps);
    message
}

#[test]
fn no_peer_goes_on_with_the_login_of_another() {
    let mut peers = DiameterPeerPair::new(&[]);
    let response = answer_challenge(&mut peers);
    assert_eq!(peers.pass_on(message_from_first_peer(&response)), 4001);
    let counters = peers.host.server.counters();
    assert_eq!((counters.unknown_session, counters.accepted_eap_md5), (1, 0));
    assert_eq!(peers.send_request(response).0, ResultCode::SUCCESS, "the login itself goes on");
}

#[test]
fn a_login_goes_on_by_a_relay_that_is_believed_about_its_origin() {
    let mut peers = DiameterPeerPair::new(&["a.example.org"]);
    let response = answer_challenge(&mut peers);
    assert_eq!(peers.pass_on(message_from_first_peer(&response)), 2001);
    assert_eq!(peers.host.server.counters().accepted_eap_md5, 1);
}
