//! The peer automaton row by row, from outside: one node and its peer's behaviour.

use super::world::*;
use crate::avp::AvpBuf;
use crate::codes::{self, command};
use crate::message::{CommandFlags, MessageHeader};
use crate::node::peers::PeerEntry;
use crate::node::*;
use crate::peer::automaton::{Action, Event as On, PeerAutomaton, State};
use crate::peer::watchdog::{WatchdogAutomaton, tests::run_all_watchdog_rows};
use usher_core::CloseReason;

/// A step of the peer or of the node's host.
#[derive(Clone, Copy, Debug)]
enum TestStep {
    /// The node connects; its connection comes up or ends.
    Call,
    Up,
    Lost,
    /// The peer connects and sends a CER; it closes.
    Cer,
    HangsUp,
    /// A message on the node's connection, or on the peer's.
    Ours(u32, bool),
    Theirs(u32, bool),
    /// The node gets the command to disconnect.
    Stop,
    /// Silence until the node gives up.
    Silence,
}
use State::*;
use TestStep::{Call, Cer, HangsUp, Lost, Ours, Silence, Stop, Theirs, Up};

const CEA: TestStep = Ours(command::CAPABILITIES_EXCHANGE, false);
const WATCHDOG: u32 = command::DEVICE_WATCHDOG;
const DISCONNECT: u32 = command::DISCONNECT_PEER;
const EAP: u32 = command::DIAMETER_EAP;

fn peer_message(command: u32, request: bool) -> Vec<u8> {
    let mut avps = AvpBuf::new();
    avps.push_u32(codes::RESULT_CODE, ResultCode::SUCCESS.0)
        .push_str(codes::ORIGIN_HOST, "n.example")
        .push_str(codes::ORIGIN_REALM, "example")
        .push_address(codes::HOST_IP_ADDRESS, [10, 0, 0, 9].into())
        .push_u32(codes::VENDOR_ID, 0)
        .push_str(codes::PRODUCT_NAME, "test")
        .push_u32(codes::AUTH_APPLICATION_ID, 5);
    let flags = CommandFlags(if request { CommandFlags::REQUEST } else { 0 });
    let header = MessageHeader { flags, command, application: 0, hop_by_hop: 1, end_to_end: 1 };
    let mut wire = Vec::new();
    crate::DiameterMessage { header, avps }.encode_into(&mut wire).unwrap();
    wire
}

/// Runs steps on a node of this name with the peer n.example, and returns its states.
fn run_steps(host: &str, does: &[TestStep]) -> Vec<State> {
    let mut w = NodeTestNetwork::new(vec![
        test_config(host).connect_to("n.example", node_address(1)),
        test_config("n.example"),
    ]);
    let mut calls = 0;
    let step = |does: &TestStep| {
        let ours = w.connections(0).into_iter().find(|conn| !conn.is_accepted());
        let connected =
            |i| StreamEvent::Connected { remote: node_address(i), local: None, certificate: None };
        let theirs = ConnId::nth_accepted_connection(0);
        match *does {
            Call => w.send_command(0, DiameterNodeCommand::Connect { peer: PeerId(0) }),
            Up => w.feed_stream(0, ours.unwrap(), connected(1)),
            Lost => w.feed_stream(0, ours.unwrap(), StreamEvent::Closed(CloseReason::Reset)),
            Cer => {
                let conn = ConnId::nth_accepted_connection(calls);
                calls += 1;
                w.feed_stream(0, conn, accepted_event(1));
                w.feed_stream(
                    0,
                    conn,
                    StreamEvent::Data(&peer_message(command::CAPABILITIES_EXCHANGE, true)),
                );
            }
            HangsUp => w.feed_stream(0, theirs, StreamEvent::Closed(CloseReason::Closed)),
            Ours(command, request) => {
                w.feed_stream(0, ours.unwrap(), StreamEvent::Data(&peer_message(command, request)))
            }
            Theirs(command, request) => {
                w.feed_stream(0, theirs, StreamEvent::Data(&peer_message(command, request)))
            }
            Stop => {
                let cause = DisconnectCause::Rebooting;
                w.send_command(0, DiameterNodeCommand::Disconnect { peer: PeerId(0), cause });
            }
            Silence => {
                w.net.drop_in_flight();
                w.net.run_for(w[0].config.establish_timeout);
            }
        }
        w.first_peer_state(0)
    };
    does.iter().map(step).collect()
}

/// The sequences of a node that loses elections.
fn courses_of_peers() {
    let course = |does: &[TestStep], expected: &[State]| {
        assert_eq!(run_steps("m.example", does), expected, "{does:?}");
    };
    let opened = [WaitConnAck, WaitICea, IOpen];
    let ours = |does: &[TestStep], expected: &[State]| {
        course(&[&[Call, Up, CEA], does].concat(), &[&opened, expected].concat());
    };
    ours(&[Ours(WATCHDOG, true), Ours(WATCHDOG, false), Ours(EAP, true), Cer], &[IOpen; 4]);
    ours(&[Stop, Ours(DISCONNECT, false)], &[Closing, Closed]);
    ours(&[Ours(DISCONNECT, true), Lost], &[Closing, Closed]);
    ours(&[Lost], &[Closed]);
    course(&[Cer, Theirs(WATCHDOG, true), Theirs(WATCHDOG, false), Theirs(EAP, true), Cer], &[ROpen; 5]);
    course(&[Cer, Stop, Theirs(DISCONNECT, false)], &[ROpen, Closing, Closed]);
    course(&[Cer, Theirs(DISCONNECT, true), HangsUp], &[ROpen, Closing, Closed]);
    course(&[Cer, HangsUp], &[ROpen, Closed]);
    course(&[Cer, Stop, Silence], &[ROpen, Closing, Closed]);
    course(&[Call, Lost], &[WaitConnAck, Closed]);
    course(&[Call, Silence], &[WaitConnAck, Closed]);
    course(
        &[Call, Cer, Cer, Up, Cer, CEA],
        &[WaitConnAck, WaitConnAckElect, WaitConnAckElect, WaitReturns, WaitReturns, IOpen],
    );
    course(&[Call, Cer, Lost], &[WaitConnAck, WaitConnAckElect, ROpen]);
    course(&[Call, Cer, HangsUp], &[WaitConnAck, WaitConnAckElect, WaitConnAck]);
    course(&[Call, Cer, Silence], &[WaitConnAck, WaitConnAckElect, Closed]);
    course(&[Call, Up, Cer, Lost], &[WaitConnAck, WaitICea, WaitReturns, ROpen]);
    course(&[Call, Up, Cer, HangsUp, Lost], &[WaitConnAck, WaitICea, WaitReturns, WaitICea, Closed]);
    course(&[Call, Up, Cer, Silence], &[WaitConnAck, WaitICea, WaitReturns, Closed]);
    course(&[Call, Up, Ours(WATCHDOG, true)], &[WaitConnAck, WaitICea, Closed]);
    course(&[Call, Up, Silence], &[WaitConnAck, WaitICea, Closed]);
    // Another message than a CEA during an election ends our connection, as if the peer had closed it.
    course(&[Call, Up, Cer, Ours(WATCHDOG, true)], &[WaitConnAck, WaitICea, WaitReturns, ROpen]);
}

#[test]
fn every_row_is_taken() {
    PeerAutomaton::cover(|| {
        courses_of_peers();
        assert_eq!(run_steps("o.example", &[Call, Up, Cer]), [WaitConnAck, WaitICea, ROpen]);
        // Application messages take the connection in the rows of Send-Message.
        for state in State::ALL {
            let mut peer = PeerEntry::new_unconfigured_peer("n.example".into());
            (peer.state, peer.ours, peer.theirs) =
                (*state, Some(ConnId::nth_opened_connection(0)), Some(ConnId::nth_accepted_connection(0)));
            let by = match PeerAutomaton::step(*state, On::SendMessage).map(|row| row.actions) {
                Some([Action::ISndMessage]) => peer.ours,
                Some([Action::RSndMessage]) => peer.theirs,
                _ => None,
            };
            assert_eq!(peer.active_connection(), by, "{state:?}");
        }
    });
}

#[test]
fn no_watchdog_meets_what_cannot_be() {
    WatchdogAutomaton::cover(|| {
        run_all_watchdog_rows();
        courses_of_peers();
        super::stream::a_silent_peer_is_left_for_the_alternate_with_the_t_flag();
        super::stream::a_lost_connection_comes_back_after_tc_with_its_requests();
        super::stream::disconnection_in_good_order();
    });
}
