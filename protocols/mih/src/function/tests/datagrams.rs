//! Messages over UDP.

use super::*;
use usher_core::TransportProtocol;

const PROCESSING: Duration = Duration::from_millis(200);

fn udp_pair(ack: bool) -> MihfPair {
    MihfPair::new(TransportProtocol::Udp, ack, |_| ())
}

#[test]
fn an_indication_without_acknowledgement_is_done_at_once() {
    let mut pair = udp_pair(false);
    pair.send_message(STATION, 1, test_indication());
    pair.run_until(at_millis(1000));
    assert_eq!(pair.sent_log(), ["0 mn indication"]);
    assert_eq!(pair.done_events(), [(0, 1, "done".into())]);
    assert_eq!(pair.delivered_count(POS), 1);
    assert_eq!(pair.mihf_mut(STATION).transaction_count(), 0);
    assert_eq!(pair.counters(STATION).unreliable, 1);
    assert_eq!(pair.mihf_mut(POS).transaction_count(), 1);
}

#[test]
fn an_indication_with_acknowledgement_is_done_when_that_comes() {
    let mut pair = udp_pair(true);
    pair.send_message(STATION, 1, test_indication());
    pair.run_until(at_millis(1000));
    assert_eq!(pair.sent_log(), ["0 mn indication+req", "20 pos ack"]);
    assert_eq!(pair.done_events(), [(40, 1, "done".into())]);
    let c = pair.counters(STATION);
    assert_eq!((c.messages, c.packets, c.retransmissions), (1, 1, 0));
    let c = pair.counters(POS);
    assert_eq!((c.messages, c.packets, c.acks), (0, 1, 1));
}

#[test]
fn a_request_without_acknowledgement() {
    let mut pair = udp_pair(false);
    pair.send_message(STATION, 1, test_request());
    pair.serve_until(PROCESSING, at_millis(1000));
    assert_eq!(pair.sent_log(), ["0 mn request", "220 pos response"]);
    assert_eq!(pair.done_events(), [(240, 1, "response".into())]);
}

#[test]
fn a_request_with_acknowledgement() {
    let mut pair = udp_pair(true);
    pair.send_message(STATION, 1, test_request());
    pair.serve_until(PROCESSING, at_millis(1000));
    assert_eq!(pair.sent_log(), ["0 mn request+req", "20 pos ack", "220 pos response+req+rsp", "240 mn ack"]);
    assert_eq!(pair.done_events(), [(240, 1, "response".into())]);
    let total = |pair: &MihfPair| pair.counters(STATION).packets + pair.counters(POS).packets;
    assert_eq!(total(&pair), 4, "two packets a message");
}

#[test]
fn an_answer_that_is_ready_carries_the_acknowledgement() {
    let mut pair = udp_pair(true);
    pair.send_message(STATION, 1, test_request());
    pair.serve_until(Duration::ZERO, at_millis(1000));
    assert_eq!(pair.sent_log(), ["0 mn request+req", "20 pos response+req+rsp", "40 mn ack"]);
    assert_eq!(pair.counters(POS).piggybacked, 1);
    assert_eq!(pair.done_events(), [(40, 1, "response".into())]);
}

#[test]
fn the_wait_for_a_piggybacked_acknowledgement_is_configurable() {
    let delayed = |c: &mut MihfConfig| c.ack_delay = Duration::from_millis(50);
    let mut pair = MihfPair::new(TransportProtocol::Udp, true, delayed);
    pair.send_message(STATION, 1, test_request());
    pair.serve_until(Duration::from_millis(40), at_millis(1000));
    assert_eq!(pair.sent_log(), ["0 mn request+req", "60 pos response+req+rsp", "80 mn ack"]);
    let mut pair = MihfPair::new(TransportProtocol::Udp, true, delayed);
    pair.send_message(STATION, 1, test_request());
    pair.serve_until(Duration::from_millis(60), at_millis(1000));
    let expected = ["0 mn request+req", "70 pos ack", "80 pos response+req+rsp", "100 mn ack"];
    assert_eq!(pair.sent_log(), expected);
}

#[test]
fn a_retransmission_after_a_lost_ack_is_acknowledged_again() {
    let mut pair = udp_pair(true).lose_packets(&[1]);
    pair.send_message(STATION, 1, test_indication());
    pair.run_until(at_millis(1000));
    assert_eq!(
        pair.sent_log(),
        ["0 mn indication+req", "20 pos ack", "100 mn indication+req", "120 pos ack"]
    );
    assert_eq!((pair.done_events(), pair.delivered_count(POS)), (vec![(140, 1, "done".into())], 1));
    assert_eq!(pair.counters(POS).duplicates, 1);
}

#[test]
fn an_unacknowledged_message_ends_after_two_retransmissions() {
    let mut pair = udp_pair(true).lose_packets(&[0, 1, 2]);
    pair.send_message(STATION, 1, test_indication());
    pair.run_until(at_millis(1000));
    assert_eq!(pair.sent_log(), ["0 mn indication+req", "100 mn indication+req", "200 mn indication+req"]);
    assert_eq!(pair.done_events(), [(300, 1, "NoAcknowledgement".into())]);
    assert_eq!(pair.counters(STATION).gave_up, 1);
}

#[test]
fn packets_that_are_not_messages_are_counted() {
    let mut pair = udp_pair(true);
    pair.inject_datagram(POS, &[0x10, 0, 0x14]);
    pair.inject_datagram(POS, &[0x20, 0, 0x14, 1, 0, 0, 0, 0]);
    pair.inject_datagram(POS, &[0x10, 0, 0x94, 1, 0, 0, 0, 0]);
    let c = pair.counters(POS);
    assert_eq!((c.malformed, c.unknown_service, c.received), (2, 1, 3));
    assert!(pair.sent_log().is_empty());
}
