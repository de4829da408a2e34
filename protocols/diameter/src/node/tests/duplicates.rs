//! Duplicate requests: the recipients of a cached answer, and the origin of a request.

use super::world::*;
use crate::avp::AvpBuf;
use crate::codes;
use crate::message::{CommandFlags, DiameterMessage, MessageView};
use crate::node::*;

const MSK: &[u8] = b"the master session key";

/// A server (0) with the peers a.example (1) and b.example (2). b.example may relay for `relayed`.
fn server_network(relayed: &[&str]) -> NodeTestNetwork {
    let mut server = test_config("s.example").accept_from("a.example").accept_from("b.example");
    server.peers[1].origins = relayed.iter().map(ToString::to_string).collect();
    let clients =
        ["a.example", "b.example"].map(|host| test_config(host).connect_to("s.example", node_address(0)));
    let mut w = NodeTestNetwork::new([vec![server], clients.to_vec()].concat());
    w.run_secs(1);
    w
}

/// The server's connection with a client.
fn server_connection(w: &NodeTestNetwork, client: usize) -> ConnId {
    w.net.connections(w.nodes[0]).find(|(_, other)| *other == client).unwrap().0
}

/// Sends the server a message as if from a client.
fn inject_message(w: &mut NodeTestNetwork, client: usize, message: &DiameterMessage) {
    let mut wire = Vec::new();
    message.encode_into(&mut wire).unwrap();
    w.feed_stream(0, server_connection(w, client), StreamEvent::Data(&wire));
}

/// The last EAP request that a client sent, with the T flag.
fn retransmitted_request(w: &NodeTestNetwork, client: usize) -> DiameterMessage {
    let of = |(from, bytes): &&(usize, &[u8])| *from == client && bytes[5..8] == [0, 1, 12];
    let mut message = MessageView::parse(w.sent_messages().iter().rfind(of).unwrap().1).unwrap().to_owned();
    message.header.flags = CommandFlags(message.header.flags.0 | CommandFlags::RETRANSMITTED);
    message
}

/// Adds Route-Record, as a relay does.
fn with_route_record(mut message: DiameterMessage, by: &str) -> DiameterMessage {
    message.avps.push_str(codes::ROUTE_RECORD, by);
    message
}

/// The requests at the service: tokens and origins.
fn received_requests(w: &mut NodeTestNetwork) -> Vec<(u64, String)> {
    let asked = |event| match event {
        DiameterNodeEvent::Request { token, origin, .. } => Some((token, origin.to_string())),
        _ => None,
    };
    w.take_events(0).into_iter().filter_map(asked).collect()
}

fn answer_with_key(w: &mut NodeTestNetwork, token: u64) {
    let mut avps = AvpBuf::new();
    avps.push(codes::EAP_MASTER_SESSION_KEY, MSK);
    w.send_command(0, DiameterNodeCommand::Answer { token, result: ResultCode::SUCCESS, avps });
}

/// The number of messages with the key that the server has sent.
fn keys_sent(w: &NodeTestNetwork) -> usize {
    w.sent_messages()
        .iter()
        .filter(|(from, bytes)| *from == 0 && bytes.windows(MSK.len()).any(|s| s == MSK))
        .count()
}

/// Answers a request of a.example with the key.
fn answered_network(relayed: &[&str]) -> NodeTestNetwork {
    let mut w = server_network(relayed);
    w.send_command(1, eap_request(1, b"proof"));
    w.run_secs(2);
    let all = received_requests(&mut w);
    assert_eq!(all.len(), 1);
    assert_eq!(all[0].1, "a.example");
    answer_with_key(&mut w, all[0].0);
    w.run_secs(3);
    assert_eq!(keys_sent(&w), 1);
    w
}

#[test]
fn what_one_peer_was_answered_no_other_peer_is_answered() {
    for relays in [&[][..], &["a.example"], &["*"]] {
        let mut w = answered_network(relays);
        let stolen = with_route_record(retransmitted_request(&w, 1), "a.example");
        inject_message(&mut w, 2, &stolen);
        assert_eq!((keys_sent(&w), w[0].counters().duplicate_request), (1, 0), "{relays:?}");
        let origin = if relays.is_empty() { "b.example" } else { "a.example" };
        assert_eq!(received_requests(&mut w).last().map(|(_, o)| o.as_str()), Some(origin));
        // The peer itself gets the answer.
        let own = retransmitted_request(&w, 1);
        inject_message(&mut w, 1, &own);
        assert_eq!((keys_sent(&w), w[0].counters().duplicate_request), (2, 1));
    }
}

#[test]
fn what_is_under_way_stays_with_its_peer() {
    let mut w = server_network(&["*"]);
    w.send_command(1, eap_request(1, b"proof"));
    w.run_secs(2);
    let first = received_requests(&mut w);
    let stolen = with_route_record(retransmitted_request(&w, 1), "a.example");
    inject_message(&mut w, 2, &stolen);
    answer_with_key(&mut w, first[0].0);
    w.run_secs(3);
    assert_eq!(received_answers(&w.take_events(1)), [(1, ResultCode::SUCCESS)]);
    assert!(received_answers(&w.take_events(2)).is_empty() && received_requests(&mut w).len() == 1);
}

#[test]
fn a_new_request_with_the_same_identifier_is_no_retransmission() {
    let mut w = answered_network(&[]);
    let mut other = retransmitted_request(&w, 1);
    other.avps.push_str(codes::USER_NAME, "eve");
    inject_message(&mut w, 1, &other);
    assert_eq!((keys_sent(&w), w[0].counters().duplicate_request), (1, 0));
    let token = received_requests(&mut w)[0].0;
    // It has replaced the first request and must not get that request's answer.
    inject_message(&mut w, 1, &other);
    assert_eq!(w[0].counters().duplicate_request, 1);
    w.send_command(
        0,
        DiameterNodeCommand::Answer {
            token,
            result: ResultCode::AUTHENTICATION_REJECTED,
            avps: AvpBuf::new(),
        },
    );
    inject_message(&mut w, 1, &other);
    assert_eq!((keys_sent(&w), w[0].counters().duplicate_request), (1, 2));
}

#[test]
fn a_late_answer_is_not_kept_for_the_request_that_replaced_it() {
    let mut w = server_network(&[]);
    w.send_command(1, eap_request(1, b"proof"));
    w.run_secs(2);
    let first = received_requests(&mut w)[0].0;
    let mut other = retransmitted_request(&w, 1);
    other.avps.push_str(codes::USER_NAME, "eve");
    inject_message(&mut w, 1, &other);
    answer_with_key(&mut w, first);
    inject_message(&mut w, 1, &other);
    assert_eq!((keys_sent(&w), w[0].counters().duplicate_request), (1, 1));
}

#[test]
fn a_repeated_answer_carries_the_proxy_info_of_its_own_route() {
    let proxy_info = |message: &mut DiameterMessage, state: &str| {
        message.avps.push_group(codes::PROXY_INFO, |g| {
            g.push_str(codes::PROXY_HOST, "relay.example").push_str(codes::PROXY_STATE, state);
        });
    };
    let mut w = server_network(&[]);
    w.send_command(1, eap_request(1, b"proof"));
    w.run_secs(2);
    received_requests(&mut w);
    let mut first = retransmitted_request(&w, 1);
    first.header.end_to_end += 1;
    let mut second = first.clone();
    proxy_info(&mut first, "first");
    proxy_info(&mut second, "second");
    inject_message(&mut w, 1, &first);
    let token = received_requests(&mut w)[0].0;
    answer_with_key(&mut w, token);
    inject_message(&mut w, 1, &second);
    assert_eq!((keys_sent(&w), w[0].counters().duplicate_request), (2, 1));
    let states: Vec<_> = w.sent_messages()[w.sent_messages().len() - 2..]
        .iter()
        .map(|(_, bytes)| {
            let avps = MessageView::parse(bytes).unwrap().avps();
            let all: Vec<_> = avps.get_all(codes::PROXY_INFO).collect();
            assert_eq!(all.len(), 1);
            all[0].as_group().unwrap().get(codes::PROXY_STATE).unwrap().as_utf8().unwrap().to_owned()
        })
        .collect();
    assert_eq!(states, ["first", "second"]);
}

#[test]
fn who_speaks_for_another_says_by_which_way() {
    let mut w = server_network(&["*"]);
    w.send_command(1, eap_request(1, b"proof"));
    w.run_secs(2);
    received_requests(&mut w);
    let mut stolen = retransmitted_request(&w, 1);
    stolen.header.flags = CommandFlags(CommandFlags::REQUEST);
    inject_message(&mut w, 2, &stolen);
    assert_eq!(w[0].counters().foreign_origin, 1);
    let refusal = MessageView::parse(w.sent_messages().last().unwrap().1).unwrap();
    assert_eq!(refusal.avps().get(codes::RESULT_CODE).unwrap().as_u32(), Ok(5003));
    assert!(received_requests(&mut w).is_empty());
}

#[test]
fn a_peer_speaks_for_nodes_named_in_full_or_by_realm() {
    for (named, origin) in [
        ("A.example", "a.example"),
        ("*.EXAMPLE", "a.example"),
        ("*", "a.example"),
        ("a", "b.example"),
        ("*.other.example", "b.example"),
        ("", "b.example"),
    ] {
        let mut w = server_network(&[named]);
        w.send_command(1, eap_request(1, b"proof"));
        w.run_secs(2);
        received_requests(&mut w);
        let passed_on = with_route_record(retransmitted_request(&w, 1), "a.example");
        inject_message(&mut w, 2, &passed_on);
        assert_eq!(received_requests(&mut w)[0].1, origin, "{named}");
    }
}

#[test]
fn long_requests_do_not_fill_the_memory() {
    let mut w = server_network(&[]);
    w[0].config.duplicates = 8;
    for i in 0..40 {
        w.send_command(1, eap_request(i, &[7; 4000]));
    }
    w.run_secs(2);
    let all = received_requests(&mut w);
    assert_eq!(all.len(), 40);
    assert!(w[0].server.cached_octets() <= 8 * 1024 + 5000, "{}", w[0].server.cached_octets());
    for (token, _) in all {
        answer_with_key(&mut w, token);
    }
    w.run_secs(3);
    assert_eq!(received_answers(&w.take_events(1)).len(), 40);
}
