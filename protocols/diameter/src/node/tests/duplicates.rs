//! Requests that come again: who is given the answer of the first, and whose a request is.

use super::world::*;
use crate::avp::AvpBuf;
use crate::codes;
use crate::message::{Flags, Message, MessageView};
use crate::node::*;

const MSK: &[u8] = b"the master session key";

/// A server (0) with the peers a.example (1), b.example (2), which is believed about `relayed`.
fn world(relayed: &[&str]) -> World {
    let mut server = config("s.example").accept("a.example").accept("b.example");
    server.peers[1].origins = relayed.iter().map(ToString::to_string).collect();
    let clients = ["a.example", "b.example"].map(|host| config(host).connect_to("s.example", addr(0)));
    let mut w = World::new([vec![server], clients.to_vec()].concat());
    w.run_secs(1);
    w
}

/// The server's connection with a client.
fn conn(w: &World, client: usize) -> ConnId {
    w.net.connections(w.nodes[0]).find(|(_, other)| *other == client).unwrap().0
}

/// Sends the server a message as if from a client.
fn inject(w: &mut World, client: usize, message: &Message) {
    let mut wire = Vec::new();
    message.emit(&mut wire).unwrap();
    w.feed(0, conn(w, client), StreamEvent::Data(&wire));
}

/// The last request for admission that a client sent, marked as one that comes again.
fn again(w: &World, client: usize) -> Message {
    let of = |(from, bytes): &&(usize, &[u8])| *from == client && bytes[5..8] == [0, 1, 12];
    let mut message = MessageView::parse(w.sent().iter().rfind(of).unwrap().1).unwrap().to_owned();
    message.header.flags = Flags(message.header.flags.0 | Flags::RETRANSMITTED);
    message
}

/// As a relay passes it on.
fn relayed(mut message: Message, by: &str) -> Message {
    message.avps.push_str(codes::ROUTE_RECORD, by);
    message
}

/// What the server is asked: tokens and origins.
fn asked(w: &mut World) -> Vec<(u64, String)> {
    let asked = |event| match event {
        Event::Request { token, origin, .. } => Some((token, origin.to_string())),
        _ => None,
    };
    w.take(0).into_iter().filter_map(asked).collect()
}

fn grant(w: &mut World, token: u64) {
    let mut avps = AvpBuf::new();
    avps.push(codes::EAP_MASTER_SESSION_KEY, MSK);
    w.command(0, Command::Answer { token, result: ResultCode::SUCCESS, avps });
}

/// How many messages with the key the server has sent.
fn keys_sent(w: &World) -> usize {
    w.sent().iter().filter(|(from, bytes)| *from == 0 && bytes.windows(MSK.len()).any(|s| s == MSK)).count()
}

/// Answers a request of a.example's by the key.
fn granted(relayed: &[&str]) -> World {
    let mut w = world(relayed);
    w.command(1, der(1, b"proof"));
    w.run_secs(2);
    let all = asked(&mut w);
    assert_eq!(all.len(), 1);
    assert_eq!(all[0].1, "a.example");
    grant(&mut w, all[0].0);
    w.run_secs(3);
    assert_eq!(keys_sent(&w), 1);
    w
}

#[test]
fn what_one_peer_was_answered_no_other_peer_is_answered() {
    for relays in [&[][..], &["a.example"], &["*"]] {
        let mut w = granted(relays);
        let stolen = relayed(again(&w, 1), "a.example");
        inject(&mut w, 2, &stolen);
        assert_eq!((keys_sent(&w), w[0].counters().duplicate_request), (1, 0), "{relays:?}");
        let origin = if relays.is_empty() { "b.example" } else { "a.example" };
        assert_eq!(asked(&mut w).last().map(|(_, o)| o.as_str()), Some(origin));
        // The peer itself gets it.
        let own = again(&w, 1);
        inject(&mut w, 1, &own);
        assert_eq!((keys_sent(&w), w[0].counters().duplicate_request), (2, 1));
    }
}

#[test]
fn what_is_under_way_stays_with_its_peer() {
    let mut w = world(&["*"]);
    w.command(1, der(1, b"proof"));
    w.run_secs(2);
    let first = asked(&mut w);
    let stolen = relayed(again(&w, 1), "a.example");
    inject(&mut w, 2, &stolen);
    grant(&mut w, first[0].0);
    w.run_secs(3);
    assert_eq!(answers(&w.take(1)), [(1, ResultCode::SUCCESS)]);
    assert!(answers(&w.take(2)).is_empty() && asked(&mut w).len() == 1);
}

#[test]
fn another_request_of_the_same_identifier_is_none_that_came_again() {
    let mut w = granted(&[]);
    let mut other = again(&w, 1);
    other.avps.push_str(codes::USER_NAME, "eve");
    inject(&mut w, 1, &other);
    assert_eq!((keys_sent(&w), w[0].counters().duplicate_request), (1, 0));
    let token = asked(&mut w)[0].0;
    // It has taken the place of the first, whose answer it must not be given.
    inject(&mut w, 1, &other);
    assert_eq!(w[0].counters().duplicate_request, 1);
    w.command(0, Command::Answer { token, result: ResultCode::AUTHENTICATION_REJECTED, avps: AvpBuf::new() });
    inject(&mut w, 1, &other);
    assert_eq!((keys_sent(&w), w[0].counters().duplicate_request), (1, 2));
}

#[test]
fn a_late_answer_is_not_kept_for_the_request_that_took_its_place() {
    let mut w = world(&[]);
    w.command(1, der(1, b"proof"));
    w.run_secs(2);
    let first = asked(&mut w)[0].0;
    let mut other = again(&w, 1);
    other.avps.push_str(codes::USER_NAME, "eve");
    inject(&mut w, 1, &other);
    grant(&mut w, first);
    inject(&mut w, 1, &other);
    assert_eq!((keys_sent(&w), w[0].counters().duplicate_request), (1, 1));
}

#[test]
fn an_answer_given_again_bears_the_proxy_info_of_the_way_it_goes() {
    let proxy_info = |message: &mut Message, state: &str| {
        message.avps.push_group(codes::PROXY_INFO, |g| {
            g.push_str(codes::PROXY_HOST, "relay.example").push_str(codes::PROXY_STATE, state);
        });
    };
    let mut w = world(&[]);
    w.command(1, der(1, b"proof"));
    w.run_secs(2);
    asked(&mut w);
    let mut first = again(&w, 1);
    first.header.end_to_end += 1;
    let mut second = first.clone();
    proxy_info(&mut first, "first");
    proxy_info(&mut second, "second");
    inject(&mut w, 1, &first);
    let token = asked(&mut w)[0].0;
    grant(&mut w, token);
    inject(&mut w, 1, &second);
    assert_eq!((keys_sent(&w), w[0].counters().duplicate_request), (2, 1));
    let states: Vec<_> = w.sent()[w.sent().len() - 2..]
        .iter()
        .map(|(_, bytes)| {
            let avps = MessageView::parse(bytes).unwrap().avps();
            let all: Vec<_> = avps.all(codes::PROXY_INFO).collect();
            assert_eq!(all.len(), 1);
            all[0].grouped().unwrap().get(codes::PROXY_STATE).unwrap().utf8().unwrap().to_owned()
        })
        .collect();
    assert_eq!(states, ["first", "second"]);
}

#[test]
fn who_speaks_for_another_says_by_which_way() {
    let mut w = world(&["*"]);
    w.command(1, der(1, b"proof"));
    w.run_secs(2);
    asked(&mut w);
    let mut stolen = again(&w, 1);
    stolen.header.flags = Flags(Flags::REQUEST);
    inject(&mut w, 2, &stolen);
    assert_eq!(w[0].counters().foreign_origin, 1);
    let refusal = MessageView::parse(w.sent().last().unwrap().1).unwrap();
    assert_eq!(refusal.avps().get(codes::RESULT_CODE).unwrap().u32(), Ok(5003));
    assert!(asked(&mut w).is_empty());
}

#[test]
fn nodes_that_a_peer_is_believed_about_are_named_whole_or_by_their_realm() {
    for (named, origin) in [
        ("A.example", "a.example"),
        ("*.EXAMPLE", "a.example"),
        ("*", "a.example"),
        ("a", "b.example"),
        ("*.other.example", "b.example"),
        ("", "b.example"),
    ] {
        let mut w = world(&[named]);
        w.command(1, der(1, b"proof"));
        w.run_secs(2);
        asked(&mut w);
        let passed_on = relayed(again(&w, 1), "a.example");
        inject(&mut w, 2, &passed_on);
        assert_eq!(asked(&mut w)[0].1, origin, "{named}");
    }
}

#[test]
fn long_requests_do_not_fill_the_memory() {
    let mut w = world(&[]);
    w[0].config.duplicates = 8;
    for i in 0..40 {
        w.command(1, der(i, &[7; 4000]));
    }
    w.run_secs(2);
    let all = asked(&mut w);
    assert_eq!(all.len(), 40);
    assert!(w[0].server.kept() <= 8 * 1024 + 5000, "{}", w[0].server.kept());
    for (token, _) in all {
        grant(&mut w, token);
    }
    w.run_secs(3);
    assert_eq!(answers(&w.take(1)).len(), 40);
}
