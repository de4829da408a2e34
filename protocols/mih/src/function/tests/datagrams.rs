//! Over UDP.

use super::*;
use usher_core::TransportProtocol;

const PROCESSING: Duration = Duration::from_millis(200);

fn pair(ack: bool) -> Pair {
    Pair::new(TransportProtocol::Udp, ack, |_| ())
}

#[test]
fn an_indication_without_acknowledgement_is_done_at_once() {
    let mut pair = pair(false);
    pair.send(STATION, 1, indication());
    pair.run(at(1000));
    assert_eq!(pair.log(), ["0 mn indication"]);
    assert_eq!(pair.done(), [(0, 1, "done".into())]);
    assert_eq!(pair.delivered(POS), 1);
    assert_eq!(pair.side(STATION).remembered(), 0);
    assert_eq!(pair.counters(STATION).unreliable, 1);
    assert_eq!(pair.side(POS).remembered(), 1);
}

#[test]
fn an_indication_with_acknowledgement_is_done_when_that_comes() {
    let mut pair = pair(true);
    pair.send(STATION, 1, indication());
    pair.run(at(1000));
    assert_eq!(pair.log(), ["0 mn indication+req", "20 pos ack"]);
    assert_eq!(pair.done(), [(40, 1, "done".into())]);
    let c = pair.counters(STATION);
    assert_eq!((c.messages, c.packets, c.retransmissions), (1, 1, 0));
    let c = pair.counters(POS);
    assert_eq!((c.messages, c.packets, c.acks), (0, 1, 1));
}

#[test]
fn a_request_without_acknowledgement() {
    let mut pair = pair(false);
    pair.send(STATION, 1, request());
    pair.serve(PROCESSING, at(1000));
    assert_eq!(pair.log(), ["0 mn request", "220 pos response"]);
    assert_eq!(pair.done(), [(240, 1, "response".into())]);
}

#[test]
fn a_request_with_acknowledgement() {
    let mut pair = pair(true);
    pair.send(STATION, 1, request());
    pair.serve(PROCESSING, at(1000));
    assert_eq!(pair.log(), ["0 mn request+req", "20 pos ack", "220 pos response+req+rsp", "240 mn ack"]);
    assert_eq!(pair.done(), [(240, 1, "response".into())]);
    let total = |pair: &Pair| pair.counters(STATION).packets + pair.counters(POS).packets;
    assert_eq!(total(&pair), 4, "two packets a message");
}

#[test]
fn an_answer_that_is_ready_carries_the_acknowledgement() {
    let mut pair = pair(true);
    pair.send(STATION, 1, request());
    pair.serve(Duration::ZERO, at(1000));
    assert_eq!(pair.log(), ["0 mn request+req", "20 pos response+req+rsp", "40 mn ack"]);
    assert_eq!(pair.counters(POS).piggybacked, 1);
    assert_eq!(pair.done(), [(40, 1, "response".into())]);
}

#[test]
fn the_wait_for_an_answer_that_carries_the_acknowledgement_is_a_setting() {
    let delayed = |c: &mut Config| c.ack_delay = Duration::from_millis(50);
    let mut pair = Pair::new(TransportProtocol::Udp, true, delayed);
    pair.send(STATION, 1, request());
    pair.serve(Duration::from_millis(40), at(1000));
    assert_eq!(pair.log(), ["0 mn request+req", "60 pos response+req+rsp", "80 mn ack"]);
    let mut pair = Pair::new(TransportProtocol::Udp, true, delayed);
    pair.send(STATION, 1, request());
    pair.serve(Duration::from_millis(60), at(1000));
    let expected = ["0 mn request+req", "70 pos ack", "80 pos response+req+rsp", "100 mn ack"];
    assert_eq!(pair.log(), expected);
}

#[test]
fn a_lost_acknowledgement_brings_the_message_again_and_that_is_acknowledged_again() {
    let mut pair = pair(true).lose(&[1]);
    pair.send(STATION, 1, indication());
    pair.run(at(1000));
    assert_eq!(pair.log(), ["0 mn indication+req", "20 pos ack", "100 mn indication+req", "120 pos ack"]);
    assert_eq!((pair.done(), pair.delivered(POS)), (vec![(140, 1, "done".into())], 1));
    assert_eq!(pair.counters(POS).duplicates, 1);
}

#[test]
fn what_is_never_acknowledged_is_given_up_after_two_retransmissions() {
    let mut pair = pair(true).lose(&[0, 1, 2]);
    pair.send(STATION, 1, indication());
    pair.run(at(1000));
    assert_eq!(pair.log(), ["0 mn indication+req", "100 mn indication+req", "200 mn indication+req"]);
    assert_eq!(pair.done(), [(300, 1, "NoAcknowledgement".into())]);
    assert_eq!(pair.counters(STATION).gave_up, 1);
}

#[test]
fn packets_that_are_not_messages_are_counted() {
    let mut pair = pair(true);
    pair.inject(POS, &[0x10, 0, 0x14]);
    pair.inject(POS, &[0x20, 0, 0x14, 1, 0, 0, 0, 0]);
    pair.inject(POS, &[0x10, 0, 0x94, 1, 0, 0, 0, 0]);
    let c = pair.counters(POS);
    assert_eq!((c.malformed, c.unknown_service, c.received), (2, 1, 3));
    assert!(pair.log().is_empty());
}
