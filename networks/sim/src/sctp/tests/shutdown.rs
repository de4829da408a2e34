//! The end of an association, gracefully and by ABORT (RFC 9260 §9).

use super::*;

#[test]
fn three_packets_close_it() {
    let mut w = SctpTestNetwork::established(test_config(), test_config(), 1);
    w.with_end(A, |a, now| a.shutdown(now));
    w.run_to(secs_as_millis(1000));
    w.expect_sent(&["200 A0 SHUTDOWN 1000", "250 B0 SHUTDOWN-ACK", "300 A0 SHUTDOWN-COMPLETE"]);
    w.expect_events(A, &["300 down Closed"]);
    w.expect_events(B, &["350 down Closed"]);
    w.is_idle();
}

#[test]
fn what_was_sent_is_acknowledged_first() {
    let mut w = SctpTestNetwork::established(test_config(), test_config(), 1);
    w.send_message(A, 0, 100);
    w.with_end(A, |a, now| a.shutdown(now));
    assert_eq!(w.end_a().state(), SctpAssociationState::ShutdownPending);
    w.run_to(2000);
    w.expect_sent(&[
        "200 A0 DATA 1 0:0 100",
        "450 B0 SACK 1",
        "500 A0 SHUTDOWN 1000",
        "550 B0 SHUTDOWN-ACK",
        "600 A0 SHUTDOWN-COMPLETE",
    ]);
    w.is_idle();
}

#[test]
fn the_other_side_sends_what_it_has_left() {
    let mut w = SctpTestNetwork::established(test_config(), test_config(), 1);
    w.run_to(240);
    w.send_message(B, 0, 700);
    w.with_end(B, |b, now| b.send_message(now, test_message(0, 700)).unwrap());
    w.run_to(245);
    w.clear_log();
    w.with_end(A, |a, now| a.shutdown(now));
    w.run_to(2000);
    w.expect_sent(&[
        "245 A0 SHUTDOWN 1000",
        "290 A0 SHUTDOWN 1001 | SACK 1001",
        "290 A0 SHUTDOWN 1002 | SACK 1002",
        "340 B0 SHUTDOWN-ACK",
        "390 A0 SHUTDOWN-COMPLETE",
    ]);
    assert_eq!(w.messages[A].len(), 2);
    w.is_idle();
}

#[test]
fn each_packet_of_the_end_may_be_lost() {
    for (which, a, b) in [
        ("SHUTDOWN 1000", "1300 down Closed", "1350 down Closed"),
        ("SHUTDOWN-ACK", "1300 down Closed", "1350 down Closed"),
        ("SHUTDOWN-COMPLETE", "300 down Closed", "1350 down Closed"),
    ] {
        let mut w = SctpTestNetwork::established(test_config(), test_config(), 1);
        let mut left = 1;
        w.loss = Box::new(move |_, _, _, text| {
            let hit = text == which && left > 0;
            left -= i32::from(hit);
            hit
        });
        w.with_end(A, |a, now| a.shutdown(now));
        w.run_to(5000);
        w.expect_events(A, &[a]);
        w.expect_events(B, &[b]);
        w.is_idle();
    }
}

#[test]
fn both_may_close_at_once() {
    let mut w = SctpTestNetwork::established(test_config(), test_config(), 1);
    w.with_end(A, |a, now| a.shutdown(now));
    w.with_end(B, |b, now| b.shutdown(now));
    w.run_to(5000);
    w.expect_events(A, &["300 down Closed"]);
    w.expect_events(B, &["300 down Closed"]);
    w.is_idle();
}

#[test]
fn nobody_answering_ends_it_all_the_same() {
    let two = SctpConfig { max_association_retransmissions: Some(2), ..test_config() };
    let mut w = SctpTestNetwork::established(two, test_config(), 1);
    w.loss = Box::new(|_, _, _, _| true);
    w.with_end(A, |a, now| a.shutdown(now));
    w.run_to(20_000);
    w.expect_sent(&["200 A0 SHUTDOWN 1000", "1200 A0 SHUTDOWN 1000", "3200 A0 SHUTDOWN 1000"]);
    w.expect_events(A, &["7200 down TimedOut"]);
}

#[test]
fn the_guard_bounds_an_end_that_takes_for_ever() {
    let mut w = SctpTestNetwork::established(
        SctpConfig { max_association_retransmissions: None, ..test_config() },
        test_config(),
        1,
    );
    w.loss = Box::new(|_, _, _, _| true);
    w.with_end(A, |a, now| a.shutdown(now));
    w.run_to(secs_as_millis(1000));
    w.expect_events(A, &["300200 down TimedOut"]);
    w.expect_only("ABORT", &["300200 A0 ABORT [UserAbort([])]"]);
}

#[test]
fn closing_before_it_is_up() {
    let mut w = SctpTestNetwork::new(test_config(), test_config(), 1);
    w.connect_end(A);
    w.run_to(120);
    w.send_message(A, 0, 100);
    w.with_end(A, |a, now| a.shutdown(now));
    w.run_to(5000);
    w.expect_events(B, &["150 up 10 10", "250 message 0:100", "650 down Closed"]);
    let mut w = SctpTestNetwork::new(test_config(), test_config(), 1);
    w.connect_end(A);
    w.with_end(A, |a, now| a.shutdown(now));
    assert!(w.end_a().is_closed());
    w.run_to(5000);
    w.expect_events(A, &[]);
}

#[test]
fn abort_ends_both_sides() {
    let mut w = SctpTestNetwork::established(test_config(), test_config(), 1);
    w.send_message(A, 0, 100);
    w.with_end(A, |a, now| a.abort(now));
    w.run_to(5000);
    w.expect_sent(&["200 A0 DATA 1 0:0 100", "200 A0 ABORT [UserAbort([])]"]);
    w.expect_events(A, &[]);
    w.expect_events(B, &["250 message 0:100", "250 down Reset"]);
    w.is_idle();
}

#[test]
fn what_comes_after_the_end_is_out_of_the_blue() {
    let mut w = SctpTestNetwork::established(test_config(), test_config(), 1);
    w.with_end(A, |a, now| a.abort(now));
    w.run_to(1000);
    w.clear_log();
    w.inject_packet(A, 0, SctpPacket { vtag: 10, chunks: vec![Chunk::Shutdown { cumulative: 0 }] });
    w.expect_sent(&["1000 A0 ABORT T []"]);
}

#[test]
fn an_abort_refuses_the_set_up() {
    let mut w = SctpTestNetwork::new(test_config(), test_config(), 1);
    w.connect_end(A);
    w.inject_packet(
        A,
        0,
        SctpPacket { vtag: 10, chunks: vec![Chunk::Abort { reflected: false, causes: vec![] }] },
    );
    w.expect_events(A, &["0 down Refused"]);
}

/// A sends three chunks, and the first is lost: two gap reports, too few for fast retransmit.
fn with_a_gap(paths: u8) -> SctpTestNetwork {
    let mut w = SctpTestNetwork::established(test_config(), test_config(), paths);
    w.loss = Box::new(|from, _, n, _| from == A && n == 0);
    for _ in 0..3 {
        w.send_message(A, 0, 500);
    }
    w
}

#[test]
fn a_shutdown_takes_back_no_gap_report() {
    let mut w = with_a_gap(1);
    w.run_to(260);
    w.with_end(B, |b, now| b.shutdown(now));
    w.run_to(1199);
    assert_eq!(w.end_a().state(), SctpAssociationState::ShutdownReceived);
    assert_eq!(w.end_a().stats().fast_retransmits, 0);
    assert_eq!(w.end_a().paths[0].flight, 516, "the first chunk alone");
    w.clear_log();
    w.run_to(5000);
    // Received chunks stay acknowledged: the timeout sends only the first chunk again.
    w.expect_only("DATA", &["1200 A0 DATA 1 0:0 500"]);
    w.expect_events(
        B,
        &["1250 message 0:500", "1250 message 0:500", "1250 message 0:500", "1350 down Closed"],
    );
    w.is_idle();
}

#[test]
fn beside_shutdown_only_new_reports_count_as_missing_reports() {
    let mut w = with_a_gap(1);
    w.run_to(260);
    w.with_end(B, |b, now| b.shutdown(now));
    w.run_to(320);
    // B gets both chunks again, twice each, and answers each with SHUTDOWN and SACK.
    for tsn in [2, 3, 2, 3] {
        let payload = Payload::with_length(500);
        let data = DataChunk {
            tsn,
            ssn: tsn as u16 - 1,
            beginning: true,
            ending: true,
            payload,
            ..DataChunk::default()
        };
        w.inject_packet(B, 0, SctpPacket { vtag: 11, chunks: vec![Chunk::Data(data)] });
    }
    w.run_to(1000);
    assert_eq!(w.end_a().stats().fast_retransmits, 0);
    assert_eq!(w.end_a().stats().retransmitted_chunks, 0);
    w.run_to(5000);
    assert_eq!(w.end_a().stats().retransmitted_chunks, 1);
    w.is_idle();
}

#[test]
fn a_shutdown_starts_no_retransmission_timer() {
    let mut w = with_a_gap(2);
    // The first chunk is retransmitted on the other path, where the only timer runs.
    w.run_to(1100);
    w.loss = Box::new(|from, path, _, _| from == A && path == 1);
    w.run_to(1210);
    w.with_end(B, |b, now| b.shutdown(now));
    let before = w.end_a().poll_timeout();
    assert_eq!(before, Some(at_millis(2200)));
    w.run_to(1261);
    assert_eq!(w.end_a().state(), SctpAssociationState::ShutdownReceived);
    assert_eq!(w.end_a().poll_timeout(), before);
    assert_eq!(w.end_a().paths[0].t3_at, Instant::FAR_FUTURE);
    assert_eq!(w.end_a().paths[0].flight, 0);
}

/// §6.10: SHUTDOWN COMPLETE is alone in its packet.
#[test]
fn shutdown_complete_with_other_chunks_ends_nothing() {
    let mut w = SctpTestNetwork::established(test_config(), test_config(), 1);
    w.loss = Box::new(|end, _, _, _| end == A);
    w.inject_packet(A, 0, SctpPacket { vtag: 10, chunks: vec![Chunk::Shutdown { cumulative: 0 }] });
    let complete = Chunk::ShutdownComplete { reflected: false };
    let data = Chunk::Data(DataChunk { tsn: 1001, ..DataChunk::default() });
    w.inject_packet(A, 0, SctpPacket { vtag: 10, chunks: vec![complete.clone(), data] });
    assert_eq!(w.end_a().state(), SctpAssociationState::ShutdownAckSent);
    w.inject_packet(A, 0, SctpPacket { vtag: 10, chunks: vec![complete] });
    assert_eq!(w.end_a().state(), SctpAssociationState::Closed);
}
