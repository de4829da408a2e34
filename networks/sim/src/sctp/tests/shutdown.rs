//! The end, in good order and at once (RFC 9260 §9).

use super::*;

#[test]
fn three_packets_close_it() {
    let mut w = World::up(config(), config(), 1);
    w.on(A, |a, now| a.shutdown(now));
    w.run_to(secs(1000));
    w.expect(&["200 A0 SHUTDOWN 1000", "250 B0 SHUTDOWN-ACK", "300 A0 SHUTDOWN-COMPLETE"]);
    w.hear(A, &["300 down Closed"]);
    w.hear(B, &["350 down Closed"]);
    w.is_idle();
}

#[test]
fn what_was_sent_is_acknowledged_first() {
    let mut w = World::up(config(), config(), 1);
    w.send(A, 0, 100);
    w.on(A, |a, now| a.shutdown(now));
    assert_eq!(w.a().state(), State::ShutdownPending);
    w.run_to(2000);
    w.expect(&[
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
    let mut w = World::up(config(), config(), 1);
    w.run_to(240);
    w.send(B, 0, 700);
    w.on(B, |b, now| b.send(now, message(0, 700)).unwrap());
    w.run_to(245);
    w.forget();
    w.on(A, |a, now| a.shutdown(now));
    w.run_to(2000);
    w.expect(&[
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
        let mut w = World::up(config(), config(), 1);
        let mut left = 1;
        w.loss = Box::new(move |_, _, _, text| {
            let hit = text == which && left > 0;
            left -= i32::from(hit);
            hit
        });
        w.on(A, |a, now| a.shutdown(now));
        w.run_to(5000);
        w.hear(A, &[a]);
        w.hear(B, &[b]);
        w.is_idle();
    }
}

#[test]
fn both_may_close_at_once() {
    let mut w = World::up(config(), config(), 1);
    w.on(A, |a, now| a.shutdown(now));
    w.on(B, |b, now| b.shutdown(now));
    w.run_to(5000);
    w.hear(A, &["300 down Closed"]);
    w.hear(B, &["300 down Closed"]);
    w.is_idle();
}

#[test]
fn nobody_answering_ends_it_all_the_same() {
    let two = Config { max_association_retransmissions: Some(2), ..config() };
    let mut w = World::up(two, config(), 1);
    w.loss = Box::new(|_, _, _, _| true);
    w.on(A, |a, now| a.shutdown(now));
    w.run_to(20_000);
    w.expect(&["200 A0 SHUTDOWN 1000", "1200 A0 SHUTDOWN 1000", "3200 A0 SHUTDOWN 1000"]);
    w.hear(A, &["7200 down TimedOut"]);
}

#[test]
fn the_guard_bounds_an_end_that_takes_for_ever() {
    let mut w = World::up(Config { max_association_retransmissions: None, ..config() }, config(), 1);
    w.loss = Box::new(|_, _, _, _| true);
    w.on(A, |a, now| a.shutdown(now));
    w.run_to(secs(1000));
    w.hear(A, &["300200 down TimedOut"]);
    w.expect_only("ABORT", &["300200 A0 ABORT [UserAbort([])]"]);
}

#[test]
fn closing_before_it_is_up() {
    let mut w = World::new(config(), config(), 1);
    w.connect(A);
    w.run_to(120);
    w.send(A, 0, 100);
    w.on(A, |a, now| a.shutdown(now));
    w.run_to(5000);
    w.hear(B, &["150 up 10 10", "250 message 0:100", "650 down Closed"]);
    let mut w = World::new(config(), config(), 1);
    w.connect(A);
    w.on(A, |a, now| a.shutdown(now));
    assert!(w.a().is_closed());
    w.run_to(5000);
    w.hear(A, &[]);
}

#[test]
fn abort_ends_both_sides() {
    let mut w = World::up(config(), config(), 1);
    w.send(A, 0, 100);
    w.on(A, |a, now| a.abort(now));
    w.run_to(5000);
    w.expect(&["200 A0 DATA 1 0:0 100", "200 A0 ABORT [UserAbort([])]"]);
    w.hear(A, &[]);
    w.hear(B, &["250 message 0:100", "250 down Reset"]);
    w.is_idle();
}

#[test]
fn what_comes_after_the_end_is_out_of_the_blue() {
    let mut w = World::up(config(), config(), 1);
    w.on(A, |a, now| a.abort(now));
    w.run_to(1000);
    w.forget();
    w.inject(A, 0, Packet { vtag: 10, chunks: vec![Chunk::Shutdown { cumulative: 0 }] });
    w.expect(&["1000 A0 ABORT T []"]);
}

#[test]
fn an_abort_refuses_the_set_up() {
    let mut w = World::new(config(), config(), 1);
    w.connect(A);
    w.inject(A, 0, Packet { vtag: 10, chunks: vec![Chunk::Abort { reflected: false, causes: vec![] }] });
    w.hear(A, &["0 down Refused"]);
}

/// A sends three chunks, of which the first is lost: two gap reports, too few for fast retransmit.
fn with_a_gap(paths: u8) -> World {
    let mut w = World::up(config(), config(), paths);
    w.loss = Box::new(|from, _, n, _| from == A && n == 0);
    for _ in 0..3 {
        w.send(A, 0, 500);
    }
    w
}

#[test]
fn a_shutdown_takes_back_no_gap_report() {
    let mut w = with_a_gap(1);
    w.run_to(260);
    w.on(B, |b, now| b.shutdown(now));
    w.run_to(1199);
    assert_eq!(w.a().state(), State::ShutdownReceived);
    assert_eq!(w.a().stats().fast_retransmits, 0);
    assert_eq!(w.a().paths[0].flight, 516, "the first chunk alone");
    w.forget();
    w.run_to(5000);
    // What has come stays so: the timer's expiry sends the first chunk again, and it alone.
    w.expect_only("DATA", &["1200 A0 DATA 1 0:0 500"]);
    w.hear(B, &["1250 message 0:500", "1250 message 0:500", "1250 message 0:500", "1350 down Closed"]);
    w.is_idle();
}

#[test]
fn only_what_is_newly_told_counts_as_a_missing_report_beside_shutdown() {
    let mut w = with_a_gap(1);
    w.run_to(260);
    w.on(B, |b, now| b.shutdown(now));
    w.run_to(320);
    // B has both chunks again, twice each, and answers each with SHUTDOWN and SACK.
    for tsn in [2, 3, 2, 3] {
        let payload = Payload::counted(500);
        let data =
            Data { tsn, ssn: tsn as u16 - 1, beginning: true, ending: true, payload, ..Data::default() };
        w.inject(B, 0, Packet { vtag: 11, chunks: vec![Chunk::Data(data)] });
    }
    w.run_to(1000);
    assert_eq!(w.a().stats().fast_retransmits, 0);
    assert_eq!(w.a().stats().retransmitted_chunks, 0);
    w.run_to(5000);
    assert_eq!(w.a().stats().retransmitted_chunks, 1);
    w.is_idle();
}

#[test]
fn a_shutdown_starts_no_retransmission_timer() {
    let mut w = with_a_gap(2);
    // The first chunk goes again on the other path, whose timer runs alone.
    w.run_to(1100);
    w.loss = Box::new(|from, path, _, _| from == A && path == 1);
    w.run_to(1210);
    w.on(B, |b, now| b.shutdown(now));
    let before = w.a().poll_timeout();
    assert_eq!(before, Some(ms(2200)));
    w.run_to(1261);
    assert_eq!(w.a().state(), State::ShutdownReceived);
    assert_eq!(w.a().poll_timeout(), before);
    assert_eq!(w.a().paths[0].t3_at, Instant::FAR_FUTURE);
    assert_eq!(w.a().paths[0].flight, 0);
}

/// §6.10: SHUTDOWN COMPLETE is alone in its packet.
#[test]
fn shutdown_complete_with_other_chunks_ends_nothing() {
    let mut w = World::up(config(), config(), 1);
    w.loss = Box::new(|end, _, _, _| end == A);
    w.inject(A, 0, Packet { vtag: 10, chunks: vec![Chunk::Shutdown { cumulative: 0 }] });
    let complete = Chunk::ShutdownComplete { reflected: false };
    let data = Chunk::Data(Data { tsn: 1001, ..Data::default() });
    w.inject(A, 0, Packet { vtag: 10, chunks: vec![complete.clone(), data] });
    assert_eq!(w.a().state(), State::ShutdownAckSent);
    w.inject(A, 0, Packet { vtag: 10, chunks: vec![complete] });
    assert_eq!(w.a().state(), State::Closed);
}
