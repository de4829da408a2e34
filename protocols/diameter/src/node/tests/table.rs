//! The peer automaton row by row, from outside: one node, and what its peer says and does.

use super::world::*;
use crate::avp::AvpBuf;
use crate::codes::{self, command};
use crate::message::{Flags, Header};
use crate::node::peers::Peer;
use crate::node::*;
use crate::peer::automaton::{Action, Event as On, PeerAutomaton, State};
use crate::peer::watchdog::{WatchdogAutomaton, tests::courses};
use usher_core::CloseReason;

/// What the peer does, or its own host.
#[derive(Clone, Copy, Debug)]
enum Does {
    /// The node calls; its connection comes up, or ends.
    Call,
    Up,
    Lost,
    /// The peer calls, and says who it is; it hangs up.
    Cer,
    HangsUp,
    /// A message on the node's connection, or on the peer's.
    Ours(u32, bool),
    Theirs(u32, bool),
    /// The node is to disconnect.
    Stop,
    /// Nothing, for so long that the node gives up.
    Nothing,
}
use Does::{Call, Cer, HangsUp, Lost, Nothing, Ours, Stop, Theirs, Up};
use State::*;

const CEA: Does = Ours(command::CAPABILITIES_EXCHANGE, false);
const WATCHDOG: u32 = command::DEVICE_WATCHDOG;
const DISCONNECT: u32 = command::DISCONNECT_PEER;
const EAP: u32 = command::DIAMETER_EAP;

fn message(command: u32, request: bool) -> Vec<u8> {
    let mut avps = AvpBuf::new();
    avps.push_u32(codes::RESULT_CODE, ResultCode::SUCCESS.0)
        .push_str(codes::ORIGIN_HOST, "n.example")
        .push_str(codes::ORIGIN_REALM, "example")
        .push_address(codes::HOST_IP_ADDRESS, [10, 0, 0, 9].into())
        .push_u32(codes::VENDOR_ID, 0)
        .push_str(codes::PRODUCT_NAME, "test")
        .push_u32(codes::AUTH_APPLICATION_ID, 5);
    let flags = Flags(if request { Flags::REQUEST } else { 0 });
    let header = Header { flags, command, application: 0, hop_by_hop: 1, end_to_end: 1 };
    let mut wire = Vec::new();
    crate::Message { header, avps }.emit(&mut wire).unwrap();
    wire
}

/// A node of this name whose peer is n.example; its states as these things happen.
fn states(host: &str, does: &[Does]) -> Vec<State> {
    let mut w = World::new(vec![config(host).connect_to("n.example", addr(1)), config("n.example")]);
    let mut calls = 0;
    let step = |does: &Does| {
        let ours = w.conns(0).into_iter().find(|conn| !conn.is_accepted());
        let connected = |i| StreamEvent::Connected { remote: addr(i), local: None, certificate: None };
        let theirs = ConnId::accepted(0);
        match *does {
            Call => w.command(0, Command::Connect { peer: PeerId(0) }),
            Up => w.feed(0, ours.unwrap(), connected(1)),
            Lost => w.feed(0, ours.unwrap(), StreamEvent::Closed(CloseReason::Reset)),
            Cer => {
                let conn = ConnId::accepted(calls);
                calls += 1;
                w.feed(0, conn, accepted(1));
                w.feed(0, conn, StreamEvent::Data(&message(command::CAPABILITIES_EXCHANGE, true)));
            }
            HangsUp => w.feed(0, theirs, StreamEvent::Closed(CloseReason::Closed)),
            Ours(command, request) => w.feed(0, ours.unwrap(), StreamEvent::Data(&message(command, request))),
            Theirs(command, request) => w.feed(0, theirs, StreamEvent::Data(&message(command, request))),
            Stop => {
                let cause = DisconnectCause::Rebooting;
                w.command(0, Command::Disconnect { peer: PeerId(0), cause });
            }
            Nothing => {
                w.net.clear();
                w.net.run(w[0].config.establish_timeout);
            }
        }
        w.state(0)
    };
    does.iter().map(step).collect()
}

/// Those of a node that loses elections.
fn courses_of_peers() {
    let course = |does: &[Does], expected: &[State]| {
        assert_eq!(states("m.example", does), expected, "{does:?}");
    };
    let opened = [WaitConnAck, WaitICea, IOpen];
    let ours = |does: &[Does], expected: &[State]| {
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
    course(&[Cer, Stop, Nothing], &[ROpen, Closing, Closed]);
    course(&[Call, Lost], &[WaitConnAck, Closed]);
    course(&[Call, Nothing], &[WaitConnAck, Closed]);
    course(
        &[Call, Cer, Cer, Up, Cer, CEA],
        &[WaitConnAck, WaitConnAckElect, WaitConnAckElect, WaitReturns, WaitReturns, IOpen],
    );
    course(&[Call, Cer, Lost], &[WaitConnAck, WaitConnAckElect, ROpen]);
    course(&[Call, Cer, HangsUp], &[WaitConnAck, WaitConnAckElect, WaitConnAck]);
    course(&[Call, Cer, Nothing], &[WaitConnAck, WaitConnAckElect, Closed]);
    course(&[Call, Up, Cer, Lost], &[WaitConnAck, WaitICea, WaitReturns, ROpen]);
    course(&[Call, Up, Cer, HangsUp, Lost], &[WaitConnAck, WaitICea, WaitReturns, WaitICea, Closed]);
    course(&[Call, Up, Cer, Nothing], &[WaitConnAck, WaitICea, WaitReturns, Closed]);
    course(&[Call, Up, Ours(WATCHDOG, true)], &[WaitConnAck, WaitICea, Closed]);
    course(&[Call, Up, Nothing], &[WaitConnAck, WaitICea, Closed]);
    // What is no CEA in an election ends our connection, as if the peer had closed it.
    course(&[Call, Up, Cer, Ours(WATCHDOG, true)], &[WaitConnAck, WaitICea, WaitReturns, ROpen]);
}

#[test]
fn every_row_is_taken() {
    PeerAutomaton::cover(|| {
        courses_of_peers();
        assert_eq!(states("o.example", &[Call, Up, Cer]), [WaitConnAck, WaitICea, ROpen]);
        // What the application sends goes where the rows of Send-Message say.
        for state in State::ALL {
            let mut peer = Peer::guest("n.example".into());
            (peer.state, peer.ours, peer.theirs) =
                (*state, Some(ConnId::opened(0)), Some(ConnId::accepted(0)));
            let by = match PeerAutomaton::step(*state, On::SendMessage).map(|row| row.actions) {
                Some([Action::ISndMessage]) => peer.ours,
                Some([Action::RSndMessage]) => peer.theirs,
                _ => None,
            };
            assert_eq!(peer.conn(), by, "{state:?}");
        }
    });
}

#[test]
fn no_watchdog_meets_what_cannot_be() {
    WatchdogAutomaton::cover(|| {
        courses();
        courses_of_peers();
        super::stream::a_silent_peer_is_left_for_the_alternate_with_the_t_flag();
        super::stream::a_lost_connection_comes_back_after_tc_and_its_requests_with_it();
        super::stream::disconnection_in_good_order();
    });
}
