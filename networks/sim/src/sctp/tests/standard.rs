//! Further requirements of RFC 9260: faulty setup chunks, packets out of the blue, timers of setup and shutdown,
//! and the counts of measurements, missing reports and failures.

use super::*;
use crate::sctp::crc32c::crc32c;

fn good_init() -> InitChunk {
    InitChunk { tag: 3, window: 1500, outbound: 1, inbound: 1, tsn: 0, ..InitChunk::default() }
}
fn packet_with(vtag: u32, chunk: Chunk) -> SctpPacket {
    SctpPacket { vtag, chunks: vec![chunk] }
}
fn data_chunk(tsn: u32) -> Chunk {
    Chunk::Data(DataChunk {
        tsn,
        beginning: true,
        ending: true,
        unordered: true,
        payload: Payload::with_length(10),
        ..DataChunk::default()
    })
}
fn sack_packet(cumulative: u32, gaps: &[(u16, u16)]) -> SctpPacket {
    let sack = SackChunk { cumulative, window: 100_000, gaps: gaps.to_vec(), ..SackChunk::default() };
    packet_with(10, Chunk::Sack(sack))
}

#[test]
fn data_behind_the_cookie_is_acknowledged_with_it() {
    let asked = SctpConfig { first_sack_at_once: true, ..test_config() };
    let mut w = SctpTestNetwork::new(asked.clone(), asked, 1);
    w.connect_end(A);
    w.send_message(A, 0, 100);
    w.run_to(1000);
    w.expect_sent(&[
        "0 A0 INIT 10",
        "50 B0 INIT-ACK 11",
        "100 A0 COOKIE-ECHO | DATA 1 0:0 100",
        "150 B0 COOKIE-ACK | SACK 1",
    ]);
    // A restarted association has a first chunk again.
    w.ends[A] = None;
    let again = SctpAssociation::connect(Arc::new(test_config()), w.now, test_initial_values(77, 5000), 1);
    w.ends[A] = Some(again);
    w.with_end(A, |a, now| a.send_message(now, test_message(0, 33)).unwrap());
    w.run_to(2000);
    w.expect_only("SACK", &["1150 B0 COOKIE-ACK | SACK 5000"]);
}

#[test]
fn an_init_ack_with_too_small_a_window_is_refused_harmlessly() {
    let mut w = SctpTestNetwork::new(test_config(), test_config(), 1);
    w.connect_end(A);
    let small = InitChunk { window: 1499, cookie: Some(vec![1]), ..good_init() };
    w.inject_packet(A, 0, packet_with(10, Chunk::InitAck(Box::new(small))));
    w.expect_sent(&["0 A0 INIT 10", "0 A0 ABORT [InvalidParameter]"]);
    assert_eq!(w.end_a().state(), SctpAssociationState::CookieWait);
    w.run_to(1000);
    w.expect_events(A, &["200 up 10 10"]);
}

#[test]
fn an_init_ack_without_tag_or_streams_aborts_the_attempt() {
    for (init, line) in [
        (InitChunk { tag: 0, ..good_init() }, "0 A0 ABORT T [InvalidParameter]"),
        (InitChunk { outbound: 0, ..good_init() }, "0 A0 ABORT [InvalidParameter]"),
        (InitChunk { inbound: 0, ..good_init() }, "0 A0 ABORT [InvalidParameter]"),
    ] {
        let mut w = SctpTestNetwork::new(test_config(), test_config(), 1);
        w.connect_end(A);
        let ack = Chunk::InitAck(Box::new(InitChunk { cookie: Some(vec![1]), ..init }));
        w.inject_packet(A, 0, packet_with(10, ack.clone()));
        w.expect_sent(&["0 A0 INIT 10", line]);
        w.expect_events(A, &["0 down Reset"]);
        // Unexpected, it is dropped.
        let mut w = SctpTestNetwork::established(test_config(), test_config(), 1);
        w.inject_packet(A, 0, packet_with(10, ack));
        w.expect_sent(&[]);
        assert_eq!((w.end_a().state(), w.end_a().stats().unexpected), (SctpAssociationState::Established, 1));
    }
}

#[test]
fn init_ack_offers_no_more_streams_than_init_takes() {
    let outbound = |packet: &SctpPacket| match &packet.chunks[0] {
        Chunk::InitAck(init) => init.outbound,
        other => panic!("{other:?}"),
    };
    let many = Arc::new(SctpConfig { accepted_streams: Some(300), ..test_config() });
    let asks =
        |inbound| packet_with(0, Chunk::Init(Box::new(InitChunk { outbound: 100, inbound, ..good_init() })));
    for (inbound, offered) in [(40, 40), (2048, 300)] {
        match handle_listener_packet(
            &many,
            at_millis(0),
            test_initial_values(5, 5),
            (1, 2),
            0,
            1,
            asks(inbound),
        ) {
            SctpListenerAction::Reply(packet) => assert_eq!(outbound(&packet), offered),
            other => panic!("{other:?}"),
        }
    }
    // With an existing association, its own number is offered, and INIT's bounds it too.
    for (inbound, offered) in [(2048, 10), (4, 4)] {
        let mut w = SctpTestNetwork::established(test_config(), test_config(), 1);
        let now = w.now;
        w.end_b().handle_packet(now, 0, asks(inbound));
        assert_eq!(outbound(&w.end_b().poll_transmit(now).unwrap().packet), offered);
    }
}

#[test]
fn the_order_of_rules_for_what_comes_out_of_the_blue() {
    let together = |vtag, chunks| reply_out_of_the_blue(&SctpPacket { vtag, chunks });
    let init = || Chunk::Init(Box::new(good_init()));
    let complete = Some(packet_with(9, Chunk::ShutdownComplete { reflected: true }));
    let abort = |vtag, reflected| Some(packet_with(vtag, Chunk::Abort { reflected, causes: vec![] }));
    let no_tag = Chunk::Init(Box::new(InitChunk { tag: 0, ..good_init() }));
    for (vtag, chunks, answer) in [
        (0, vec![init()], abort(3, false)),
        (0, vec![no_tag], None),
        // Only INIT has tag 0, and no chunk is bundled with INIT.
        (0, vec![init(), data_chunk(1)], None),
        (0, vec![data_chunk(1)], None),
        (0, vec![Chunk::ShutdownAck], None),
        // INIT has no tag (§12.3).
        (9, vec![init()], None),
        (9, vec![data_chunk(1), Chunk::Abort { reflected: false, causes: vec![] }], None),
        (9, vec![Chunk::CookieAck, Chunk::ShutdownAck], complete),
        (9, vec![data_chunk(1), Chunk::CookieAck], None),
        (9, vec![Chunk::Heartbeat(vec![1])], abort(9, true)),
        (9, vec![Chunk::Error(vec![ErrorCause::OutOfResource])], abort(9, true)),
    ] {
        assert_eq!(together(vtag, chunks.clone()), answer, "{vtag} {chunks:?}");
    }
}

#[test]
fn what_stands_before_a_partial_chunk_is_taken() {
    let cut = |chunks: Vec<Chunk>, less: usize| {
        let mut bytes = Vec::new();
        SctpPacket { vtag: 11, chunks }.encode_into(1, 2, &mut bytes);
        bytes.truncate(bytes.len() - less);
        bytes[8..12].fill(0);
        let crc = crc32c(&[&bytes]);
        bytes[8..12].copy_from_slice(&crc.to_le_bytes());
        SctpPacket::parse(&bytes)
    };
    let taken = |parsed: Result<(u16, u16, SctpPacket), ParseError>| {
        let tsn = |chunk: &Chunk| match chunk {
            Chunk::Data(data) => data.tsn,
            other => panic!("{other:?}"),
        };
        parsed.unwrap().2.chunks.iter().map(tsn).collect::<Vec<_>>()
    };
    for less in [4, 8, 24, 27] {
        assert_eq!(taken(cut(vec![data_chunk(1), data_chunk(2)], less)), [1], "{less}");
    }
    assert_eq!(cut(vec![data_chunk(1)], 4), Err(ParseError::Truncated));
    // A chunk that must be alone is dropped among others.
    let init = Chunk::Init(Box::new(good_init()));
    assert_eq!(cut(vec![init, data_chunk(2)], 4), Err(ParseError::Truncated));
    // A malformed chunk ends the parse as well.
    let bad = Chunk::Unknown { kind: 7, flags: 0, value: vec![1, 2] };
    assert_eq!(taken(cut(vec![data_chunk(1), bad, data_chunk(2)], 0)), [1]);
}

#[test]
fn a_heartbeat_is_answered_before_the_cookie_is() {
    let mut w = SctpTestNetwork::new(test_config(), test_config(), 1);
    w.connect_end(A);
    w.inject_packet(A, 0, packet_with(10, Chunk::Heartbeat(vec![1])));
    w.run_to(120);
    assert_eq!(w.end_a().state(), SctpAssociationState::CookieEchoed);
    w.clear_log();
    w.inject_packet(A, 0, packet_with(10, Chunk::Heartbeat(vec![1])));
    w.expect_sent(&["120 A0 HEARTBEAT-ACK"]);
}

#[test]
fn heartbeats_end_with_shutdown() {
    let beating = SctpConfig { heartbeat_interval: Some(millis(500)), ..test_config() };
    for (who, first, last) in [("A0", 200, "SHUTDOWN 1000"), ("B0", 250, "SHUTDOWN-ACK")] {
        let mut w = SctpTestNetwork::established(beating.clone(), beating.clone(), 1);
        w.loss = Box::new(move |from, _, _, _| from == B || first == 200);
        w.with_end(A, |a, now| a.shutdown(now));
        w.run_to(first);
        w.loss = Box::new(|_, _, _, _| true);
        w.run_to(secs_as_millis(20));
        let lines = [0, 1000, 3000, 7000, 15_000].map(|after| format!("{} {who} {last}", first + after));
        w.expect_only(who, &lines.iter().map(String::as_str).collect::<Vec<_>>());
    }
}

#[test]
fn a_failed_path_is_still_probed_and_its_errors_stop_counting() {
    let beating =
        SctpConfig { heartbeat_interval: Some(millis(500)), max_path_retransmissions: 1, ..test_config() };
    let mut w = SctpTestNetwork::established(beating, test_config(), 2);
    w.loss = Box::new(|_, path, _, _| path == 1);
    w.run_to(secs_as_millis(100));
    w.expect_events(A, &["5200 path 1 down"]);
    assert_eq!(w.end_a().paths[1].errors, 2);
    w.clear_log();
    w.run_to(secs_as_millis(200));
    assert!(w.log.iter().any(|line| line.contains("A1 HEARTBEAT")), "{:?}", w.log);
}

#[test]
fn the_timers_of_the_set_up_last_the_paths_rto_and_double_it() {
    let slow = SctpConfig { rto_initial: millis(3000), ..test_config() };
    let mut left = 2;
    let mut w = SctpTestNetwork::new(slow.clone(), slow, 1).with_loss(move |_, _, _, text| {
        let hit = text.starts_with("COOKIE-ECHO") && left > 0;
        left -= i32::from(hit);
        hit
    });
    w.connect_end(A);
    w.run_to(10_000);
    // INIT's answer measured 100 ms: a second is the lower bound.
    w.expect_only("COOKIE-ECHO", &["100 A0 COOKIE-ECHO", "1100 A0 COOKIE-ECHO", "3100 A0 COOKIE-ECHO"]);
    assert_eq!(w.end_a().rto(0), millis(4000), "what was sent again measures nothing");
}

#[test]
fn whatever_comes_restarts_the_timer_of_shutdown() {
    let mut w = SctpTestNetwork::established(
        SctpConfig { max_association_retransmissions: Some(1), ..test_config() },
        test_config(),
        1,
    );
    w.loss = Box::new(|_, _, _, _| true);
    w.with_end(A, |a, now| a.shutdown(now));
    for at in [700, 1500, 2200] {
        w.run_to(at);
        w.inject_packet(A, 0, packet_with(10, Chunk::HeartbeatAck(vec![])));
    }
    // The first timeout, a second after the last packet, is one of the two before failure.
    w.run_to(secs_as_millis(4));
    w.expect_sent(&["200 A0 SHUTDOWN 1000", "3200 A0 SHUTDOWN 1000"]);
    w.inject_packet(A, 0, packet_with(10, Chunk::HeartbeatAck(vec![])));
    w.run_to(secs_as_millis(7));
    w.expect_sent(&["6000 A0 SHUTDOWN 1000"]);
    w.expect_events(A, &[]);
    w.run_to(secs_as_millis(20));
    w.expect_events(A, &["10000 down TimedOut"]);
}

#[test]
fn nothing_behind_a_retransmission_is_measured() {
    for (measured, timed) in [(false, None), (true, Some((6, at_millis(301))))] {
        check_rtt_behind_retransmission(measured, timed);
    }
}

fn check_rtt_behind_retransmission(measure_behind_retransmission: bool, timed: Option<(u32, Instant)>) {
    let prompt = SctpConfig { sack_delay: None, measure_behind_retransmission, ..test_config() };
    let mut w = SctpTestNetwork::established(prompt.clone(), prompt, 1);
    w.loss = Box::new(|from, _, n, _| from == A && n == 1);
    for at in [200, 201, 202, 203, 210, 301] {
        w.run_to(at);
        w.send_message(A, 0, 100);
    }
    // The SACK of the first is back at 300, so the sixth is timed. That of the fifth, at 310, is the third missing
    // report of the second.
    assert_eq!(w.end_a().paths[0].timed, Some((6, at_millis(301))));
    w.run_to(310);
    assert_eq!(w.end_a().stats().fast_retransmits, 1);
    assert_eq!(w.end_a().paths[0].timed, timed);
}

#[test]
fn a_variation_below_the_clocks_granularity_counts_as_that() {
    let bare = SctpConfig { rto_min: Duration::from_micros(1), sack_delay: None, ..test_config() };
    let mut w = SctpTestNetwork::established(bare.clone(), bare, 1);
    for i in 0..60 {
        w.run_to(1000 + 200 * i);
        w.send_message(A, 0, 100);
    }
    w.run_to(20_000);
    // 100 ms each time, and four times a millisecond.
    assert_eq!(w.end_a().rto(0), millis(104));
}

#[test]
fn a_word_taken_back_counts_one_miss() {
    let mut w = SctpTestNetwork::established(test_config(), test_config(), 1);
    w.loss = Box::new(|_, _, _, _| true);
    for _ in 0..3 {
        w.send_message(A, 0, 100);
    }
    let missing = |w: &mut SctpTestNetwork| w.end_a().out.sent.iter().map(|s| s.missing).collect::<Vec<_>>();
    w.inject_packet(A, 0, sack_packet(0, &[(3, 3)]));
    assert_eq!(missing(&mut w), [1, 1, 0]);
    w.inject_packet(A, 0, sack_packet(0, &[]));
    assert_eq!(missing(&mut w), [1, 1, 1]);
    // Also beside a gap block; its new TSN counts the chunks before it.
    w.inject_packet(A, 0, sack_packet(0, &[(3, 3)]));
    w.inject_packet(A, 0, sack_packet(0, &[(2, 2)]));
    assert_eq!((w.end_a().out.sent[2].missing, w.end_a().stats().fast_retransmits), (2, 1));
}

#[test]
fn after_a_timeout_one_packet_is_in_flight_until_data_is_acked() {
    for (one_packet_after_timeout, second) in
        [(true, "1500 A0 DATA 2 0:1 100"), (false, "1210 A0 DATA 2 0:1 100")]
    {
        let mut w = SctpTestNetwork::established(
            SctpConfig { one_packet_after_timeout, ..test_config() },
            test_config(),
            1,
        );
        w.loss = Box::new(|_, _, _, _| true);
        w.send_message(A, 0, 100);
        w.run_to(1199);
        w.loss = Box::new(|_, _, _, _| false);
        w.run_to(1210);
        // 116 of a window of 1000 bytes are in flight.
        w.send_message(A, 0, 100);
        w.inject_packet(A, 0, sack_packet(0, &[]));
        w.run_to(3000);
        w.expect_only("DATA", &["200 A0 DATA 1 0:0 100", "1200 A0 DATA 1 0:0 100", second]);
        w.is_idle();
    }
}

#[test]
fn staleness_is_rounded_up() {
    let short = SctpConfig { cookie_life: Duration::from_nanos(59_999_999), ..test_config() };
    let mut w = SctpTestNetwork::new(test_config(), short, 1);
    w.connect_end(A);
    w.run_to(160);
    // The cookie of 50 ms comes back at 150 ms: 40.000001 ms too late.
    w.expect_only("ERROR", &["150 B0 ERROR [StaleCookie(40001)]"]);
}

#[test]
fn no_more_chunks_are_under_way_than_a_sack_can_tell_apart() {
    let mut w =
        SctpTestNetwork::established(SctpConfig { max_burst: None, ..test_config() }, test_config(), 1);
    w.loss = Box::new(|_, _, _, _| true);
    w.end_a().paths[0].cwnd = u32::MAX;
    w.end_a().peer_window = u32::MAX;
    w.with_end(A, |a, now| {
        for _ in 0..70_000 {
            a.send_message(now, test_message(0, 1)).unwrap();
        }
    });
    assert_eq!(w.end_a().out.sent.len(), 65_535);
    // So a SACK has no data to ride on, though some is pending: it is delayed (RFC 9260 §6.2).
    w.clear_log();
    w.inject_packet(A, 0, packet_with(10, data_chunk(1001)));
    w.expect_sent(&[]);
    w.run_to(400);
    w.expect_sent(&["400 A0 SACK 1001"]);
}

#[test]
fn giving_up_may_tell_the_other_side() {
    let telling =
        SctpConfig { abort_unreachable: true, max_association_retransmissions: Some(0), ..test_config() };
    for closes in [false, true] {
        let mut w = SctpTestNetwork::established(telling.clone(), test_config(), 1);
        w.loss = Box::new(|_, _, _, _| true);
        w.with_end(A, |a, now| {
            if closes { a.shutdown(now) } else { a.send_message(now, test_message(0, 10)).unwrap() }
        });
        w.run_to(secs_as_millis(10));
        w.expect_only("ABORT", &["1200 A0 ABORT []"]);
        w.expect_events(A, &["1200 down TimedOut"]);
    }
    let mut w =
        SctpTestNetwork::new(SctpConfig { max_init_retransmissions: Some(0), ..telling }, test_config(), 1);
    w.loss = Box::new(|_, _, _, _| true);
    w.connect_end(A);
    w.run_to(secs_as_millis(10));
    // A peer with an unknown tag gets no packet.
    w.expect_sent(&["0 A0 INIT 10"]);
}

#[test]
fn an_unknown_chunk_is_shown_whole_where_it_fits_into_a_packet() {
    for (len, shown) in [(200, 204), (2000, 992)] {
        let mut w = SctpTestNetwork::established(test_config(), test_config(), 1);
        let chunk = Chunk::Unknown { kind: 0x7f, flags: 0, value: vec![0; len] };
        let now = w.now;
        w.end_b().handle_packet(now, 0, packet_with(11, chunk));
        let packet = w.end_b().poll_transmit(now).unwrap().packet;
        let [Chunk::Error(causes)] = &packet.chunks[..] else { panic!("{packet:?}") };
        let [ErrorCause::UnrecognizedChunk(quoted)] = &causes[..] else { panic!("{causes:?}") };
        assert_eq!((quoted.len(), packet.len() <= 1012), (shown, true));
    }
}

#[test]
fn one_packet_is_answered_by_one() {
    let mut w = SctpTestNetwork::established(test_config(), test_config(), 1);
    let chunks = (0..40).map(|_| Chunk::Unknown { kind: 0xff, flags: 0, value: vec![0; 20] }).collect();
    w.inject_packet(B, 0, SctpPacket { vtag: 11, chunks });
    // Each report takes 32 bytes: 31 of them fit into 1000.
    assert_eq!(w.log.len(), 1, "{:?}", w.log);
    assert_eq!(w.log[0].matches("ERROR").count(), 31);
}

#[test]
fn unknown_init_ack_parameters_are_reported_after_the_cookie() {
    let mut w = SctpTestNetwork::new(test_config(), test_config(), 1);
    w.connect_end(A);
    let unknown = vec![ChunkParameter { kind: 0xc001, value: vec![1] }];
    let ack = InitChunk { cookie: Some(vec![1; 8]), unknown, ..good_init() };
    w.inject_packet(A, 0, packet_with(10, Chunk::InitAck(Box::new(ack))));
    w.expect_sent(&[
        "0 A0 INIT 10",
        "0 A0 COOKIE-ECHO | ERROR [UnrecognizedParameters([ChunkParameter { kind: 49153, value: [1] }])]",
    ]);
}

#[test]
fn shutdown_ack_during_the_set_up_is_out_of_the_blue() {
    let mut w = SctpTestNetwork::new(test_config(), test_config(), 1);
    w.connect_end(A);
    w.clear_log();
    w.inject_packet(A, 0, packet_with(10, Chunk::ShutdownAck));
    w.expect_sent(&["0 A0 SHUTDOWN-COMPLETE T"]);
    w.run_to(120);
    w.clear_log();
    w.inject_packet(A, 0, packet_with(10, Chunk::ShutdownAck));
    w.expect_sent(&["120 A0 SHUTDOWN-COMPLETE T"]);
    w.run_to(1000);
    w.expect_events(A, &["200 up 10 10"]);
}

#[test]
fn a_restart_while_shutting_down_is_told_so() {
    let mut w = SctpTestNetwork::established(test_config(), test_config(), 1);
    let now = w.now;
    let mut again = SctpAssociation::connect(Arc::new(test_config()), now, test_initial_values(77, 5000), 1);
    w.end_b().handle_packet(now, 0, again.poll_transmit(now).unwrap().packet);
    let ack = w.end_b().poll_transmit(now).unwrap().packet;
    again.handle_packet(now, 0, ack);
    w.inject_packet(B, 0, packet_with(11, Chunk::Shutdown { cumulative: 1000 }));
    assert_eq!(w.end_b().state(), SctpAssociationState::ShutdownAckSent);
    w.clear_log();
    w.inject_packet(B, 0, again.poll_transmit(now).unwrap().packet);
    w.expect_sent(&["200 B0 SHUTDOWN-ACK | ERROR [CookieWhileShuttingDown]"]);
    assert_eq!(w.end_b().state(), SctpAssociationState::ShutdownAckSent);
}
