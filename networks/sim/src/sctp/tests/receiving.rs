//! When SACKs are sent (RFC 9260 §6.2), and which packets are dropped (§6.5, §8.5, §3.2).

use super::*;

fn data_chunk(tsn: u32) -> DataChunk {
    DataChunk {
        tsn,
        ppid: 46,
        beginning: true,
        ending: true,
        payload: Payload::with_length(10),
        ..DataChunk::default()
    }
}
fn to_b(chunks: Vec<Chunk>) -> SctpPacket {
    SctpPacket { vtag: 11, chunks }
}

#[test]
fn a_lone_packet_is_acknowledged_after_200_ms() {
    let mut w = SctpTestNetwork::established(test_config(), test_config(), 1);
    w.send_message(A, 0, 100);
    w.run_to(2000);
    w.expect_sent(&["200 A0 DATA 1 0:0 100", "450 B0 SACK 1"]);
    assert_eq!(w.end_b().stats().control_packets, 2, "COOKIE ACK and this");
    w.is_idle();
}

#[test]
fn a_sack_is_as_long_as_was_said_before_it_was_made() {
    // Every third of 300 chunks is received, some twice.
    let mut inbound = crate::sctp::inbound::SctpReceiver::new(1);
    for tsn in (1..=300).filter(|tsn| tsn % 3 == 0) {
        inbound.record_tsn(tsn);
        if tsn % 30 == 0 {
            let _ = inbound.classify_tsn(tsn, 10, 100_000);
        }
    }
    for most in [16, 18, 20, 100, 399, 400, 456, 460, 1000] {
        // Chunk header, cumulative TSN, window and the two counts take 16 octets, each gap or duplicate 4
        // (RFC 9260 section 3.3.4).
        let len = inbound.sack_len(most);
        let mut again = crate::sctp::inbound::SctpReceiver::new(1);
        std::mem::swap(&mut again, &mut inbound);
        let sack = again.build_sack(most, 100_000);
        assert_eq!(len, 16 + 4 * (sack.gaps.len() + sack.duplicates.len()) as u32, "{most}");
        assert_eq!((len <= most, len), (true, sack.wire_len()));
        for tsn in sack.duplicates {
            let _ = again.classify_tsn(tsn, 10, 100_000);
        }
        inbound = again;
    }
}

#[test]
fn outstanding_bytes_were_sent_and_are_not_yet_acknowledged() {
    let mut w = SctpTestNetwork::established(test_config(), test_config(), 1);
    for stream in 0..3 {
        w.send_message(A, stream, 100);
    }
    assert_eq!((w.end_a().bytes_outstanding(), w.end_b().bytes_outstanding()), (300, 0));
    w.run_to(2000);
    w.is_idle();
}

#[test]
fn every_second_packet_is_acknowledged_at_once() {
    let mut w = SctpTestNetwork::established(test_config(), test_config(), 1);
    for at in [200, 210, 220] {
        w.run_to(at);
        w.send_message(A, 0, 100);
    }
    w.run_to(2000);
    w.expect_only("SACK", &["260 B0 SACK 2", "470 B0 SACK 3"]);
}

#[test]
fn the_count_and_the_delay_can_be_others() {
    let other = SctpConfig { sack_delay: Some(millis(40)), sack_frequency: 3, ..test_config() };
    let mut w = SctpTestNetwork::established(test_config(), other, 1);
    for at in [200, 210, 220, 230] {
        w.run_to(at);
        w.send_message(A, 0, 100);
    }
    w.run_to(2000);
    w.expect_only("SACK", &["270 B0 SACK 3", "320 B0 SACK 4"]);
    let mut w =
        SctpTestNetwork::established(test_config(), SctpConfig { sack_delay: None, ..test_config() }, 1);
    w.send_message(A, 0, 100);
    w.run_to(2000);
    w.expect_only("SACK", &["250 B0 SACK 1"]);
}

#[test]
fn the_first_data_is_acknowledged_at_once() {
    let asked = SctpConfig::default().first_sack_at_once;
    let mut w = SctpTestNetwork::established(
        test_config(),
        SctpConfig { first_sack_at_once: asked, ..test_config() },
        1,
    );
    for at in [200, 500] {
        w.run_to(at);
        w.send_message(A, 0, 100);
    }
    w.run_to(2000);
    w.expect_only("SACK", &["250 B0 SACK 1", "750 B0 SACK 2"]);
}

#[test]
fn settings_change_while_it_runs() {
    let mut w = SctpTestNetwork::established(
        SctpConfig { heartbeat_interval: Some(millis(500)), ..test_config() },
        test_config(),
        1,
    );
    w.run_to(1000);
    w.with_end(B, |b, _| b.reconfigure(Arc::new(SctpConfig { sack_delay: None, ..test_config() })));
    w.with_end(A, |a, _| a.reconfigure(Arc::new(SctpConfig { heartbeat_interval: None, ..test_config() })));
    w.clear_log();
    w.send_message(A, 0, 100);
    w.run_to(60_000);
    w.expect_sent(&["1000 A0 DATA 1 0:0 100", "1050 B0 SACK 1"]);
}

#[test]
fn an_answer_carries_the_sack() {
    let mut w = SctpTestNetwork::established(test_config(), test_config(), 1);
    w.send_message(A, 0, 100);
    w.run_to(300);
    w.send_message(B, 0, 100);
    w.run_to(2000);
    w.expect_sent(&["200 A0 DATA 1 0:0 100", "300 B0 SACK 1 | DATA 1001 0:0 100", "550 A0 SACK 1001"]);
}

#[test]
fn a_sack_may_go_alone_and_when_it_is_due() {
    let alone = SctpConfig { bundle_sacks: false, ..test_config() };
    let mut w = SctpTestNetwork::established(test_config(), alone, 1);
    w.send_message(A, 0, 100);
    w.run_to(300);
    w.send_message(B, 0, 100);
    w.run_to(2000);
    w.expect_sent(&[
        "200 A0 DATA 1 0:0 100",
        "300 B0 DATA 1001 0:0 100",
        // B's is due 200 ms after 250, A's 200 ms after 350.
        "450 B0 SACK 1",
        "550 A0 SACK 1001",
    ]);
    // With the second packet it is due at once, and precedes pending data.
    for at in [3000, 3010] {
        w.run_to(at);
        w.send_message(A, 0, 100);
    }
    w.run_to(3059);
    w.expect_sent(&["3000 A0 DATA 2 0:1 100", "3010 A0 DATA 3 0:2 100"]);
    w.run_to(3060);
    w.send_message(B, 0, 100);
    w.run_to(4000);
    w.expect_sent(&["3060 B0 SACK 3", "3060 B0 DATA 1002 0:1 100", "3310 A0 SACK 1002"]);
}

#[test]
fn the_sender_may_ask_for_a_sack_at_once() {
    let mut w = SctpTestNetwork::established(test_config(), test_config(), 1);
    w.inject_packet(B, 0, to_b(vec![Chunk::Data(DataChunk { immediate: true, ..data_chunk(1) })]));
    w.expect_sent(&["200 B0 SACK 1"]);
}

#[test]
fn gaps_and_duplicates_are_reported_at_once() {
    let mut w = SctpTestNetwork::established(test_config(), test_config(), 1);
    for tsn in [3, 2, 5, 7, 6, 5, 1, 4] {
        w.inject_packet(B, 0, to_b(vec![Chunk::Data(DataChunk { unordered: true, ..data_chunk(tsn) })]));
    }
    w.expect_sent(&[
        "200 B0 SACK 0 gap 3-3",
        "200 B0 SACK 0 gap 2-3",
        "200 B0 SACK 0 gap 2-3,5-5",
        "200 B0 SACK 0 gap 2-3,5-5,7-7",
        "200 B0 SACK 0 gap 2-3,5-7",
        "200 B0 SACK 0 gap 2-3,5-7 dup 5",
        "200 B0 SACK 3 gap 2-4",
        "200 B0 SACK 7",
    ]);
    w.inject_packet(B, 0, to_b(vec![Chunk::Data(data_chunk(4))]));
    w.expect_sent(&["200 B0 SACK 7 dup 4"]);
    assert_eq!(w.end_b().stats().duplicates, 2);
    assert_eq!(w.messages[B].len(), 7);
}

#[test]
fn data_on_an_unnegotiated_stream_gets_an_error_and_a_sack() {
    let mut w = SctpTestNetwork::established(test_config(), test_config(), 1);
    w.inject_packet(B, 0, to_b(vec![Chunk::Data(DataChunk { stream: 10, ..data_chunk(1) })]));
    w.run_to(420);
    w.expect_sent(&["200 B0 ERROR [InvalidStream(10)]", "400 B0 SACK 1"]);
    assert_eq!(w.end_b().stats().invalid_stream, 1);
    w.expect_events(B, &[]);
    assert_eq!(w.end_b().state(), SctpAssociationState::Established);
}

#[test]
fn a_wrong_tag_is_counted_and_nothing_else() {
    let mut w = SctpTestNetwork::established(test_config(), test_config(), 1);
    let abort = |reflected| Chunk::Abort { reflected, causes: vec![] };
    for (vtag, chunk) in [
        (10, Chunk::Data(data_chunk(1))),
        (0, Chunk::Data(data_chunk(1))),
        (10, abort(false)),
        (11, abort(true)),
        (12, abort(true)),
        (11, Chunk::Init(Box::default())),
    ] {
        w.inject_packet(B, 0, SctpPacket { vtag, chunks: vec![chunk] });
    }
    assert_eq!(w.end_b().stats().bad_tag, 6);
    w.expect_sent(&[]);
    w.expect_events(B, &[]);
    // A reflected tag must be our own.
    w.inject_packet(B, 0, SctpPacket { vtag: 10, chunks: vec![abort(true)] });
    w.expect_events(B, &["200 down Reset"]);
}

#[test]
fn data_without_data_aborts() {
    let mut w = SctpTestNetwork::established(test_config(), test_config(), 1);
    w.inject_packet(
        B,
        0,
        to_b(vec![Chunk::Data(DataChunk { payload: Payload::default(), ..data_chunk(1) })]),
    );
    w.expect_sent(&["200 B0 ABORT [NoUserData(1)]"]);
    w.expect_events(B, &["200 down Reset"]);
}

#[test]
fn pieces_that_contradict_each_other_abort() {
    for second in [
        DataChunk { beginning: true, ending: false, ..data_chunk(2) },
        DataChunk { beginning: false, ending: true, stream: 1, ..data_chunk(2) },
        DataChunk { beginning: false, ending: true, ssn: 1, ..data_chunk(2) },
        DataChunk { beginning: false, ending: true, unordered: true, ..data_chunk(2) },
    ] {
        for swapped in [false, true] {
            let mut w = SctpTestNetwork::established(test_config(), test_config(), 1);
            let mut both = vec![DataChunk { ending: false, ..data_chunk(1) }, second.clone()];
            if swapped {
                both.reverse();
            }
            w.inject_packet(B, 0, to_b(both.into_iter().map(Chunk::Data).collect()));
            w.expect_events(B, &["200 down Reset"]);
        }
    }
}

#[test]
fn the_two_highest_bits_of_an_unknown_chunk_say_what_to_do() {
    let unknown = |kind| Chunk::Unknown { kind, flags: 0, value: vec![9] };
    let report = |kind| format!("200 B0 ERROR [UnrecognizedChunk([{kind}, 0, 0, 5, 9])]");
    for (kind, lines, messages) in
        [(0x3f, vec![], 0), (0x7f, vec![report(0x7f)], 0), (0xbf, vec![], 1), (0xff, vec![report(0xff)], 1)]
    {
        let mut w = SctpTestNetwork::established(test_config(), test_config(), 1);
        w.inject_packet(B, 0, to_b(vec![unknown(kind), Chunk::Data(data_chunk(1))]));
        w.expect_sent(&lines.iter().map(String::as_str).collect::<Vec<_>>());
        assert_eq!(w.messages[B].len(), messages, "{kind:#x}");
        assert_eq!(w.end_b().stats().unknown_chunks, 1);
    }
}

#[test]
fn what_finds_no_room_is_dropped_and_told() {
    let small = SctpConfig { receive_buffer: 1500, sack_delay: None, ..test_config() };
    let mut w = SctpTestNetwork::established(test_config(), small, 1);
    let chunk = |tsn: u32, len| {
        Chunk::Data(DataChunk { payload: Payload::with_length(len), ssn: tsn as u16 - 1, ..data_chunk(tsn) })
    };
    w.inject_packet(B, 0, to_b(vec![chunk(2, 900)]));
    w.inject_packet(B, 0, to_b(vec![chunk(3, 601)]));
    w.expect_sent(&["200 B0 SACK 0 gap 2-2 win 600", "200 B0 SACK 0 gap 2-2 win 600"]);
    assert_eq!(w.end_b().stats().no_room, 1);
    // The chunk that fills the gap is accepted against a closed window.
    w.inject_packet(B, 0, to_b(vec![chunk(1, 700)]));
    w.expect_sent(&["200 B0 SACK 2 win 1500"]);
    w.expect_events(B, &["200 message 0:700", "200 message 0:900"]);
}

#[test]
fn a_message_that_never_fits_the_buffer_aborts() {
    let mut w =
        SctpTestNetwork::established(test_config(), SctpConfig { receive_buffer: 1500, ..test_config() }, 1);
    w.send_message(A, 0, 4000);
    w.run_to(20_000);
    // Two fragments do not fit together: the second probes the window a second after the SACK of 600.
    w.expect_events(A, &["1600 down Reset"]);
}

#[test]
fn a_window_that_was_closed_is_announced_when_it_opens() {
    let mut w =
        SctpTestNetwork::established(test_config(), SctpConfig { receive_buffer: 1500, ..test_config() }, 1);
    let chunk = |tsn, len| {
        Chunk::Data(DataChunk { unordered: true, payload: Payload::with_length(len), ..data_chunk(tsn) })
    };
    let (now, b) = (w.now, w.end_b());
    // The application does not read.
    b.handle_packet(now, 0, to_b(vec![chunk(1, 800)]));
    b.handle_packet(now, 0, to_b(vec![chunk(2, 700)]));
    let window = |t: Option<OutgoingSctpPacket>| match &t.unwrap().packet.chunks[0] {
        Chunk::Sack(sack) => sack.window,
        other => panic!("{other:?}"),
    };
    assert_eq!(window(b.poll_transmit(now)), 0);
    assert!(b.poll_event().is_some());
    assert_eq!(window(b.poll_transmit(now)), 800);
    assert!(b.poll_event().is_some());
    assert_eq!(window(b.poll_transmit(now)), 1500);
    assert_eq!(b.poll_transmit(now), None);
}

#[test]
fn heartbeats_are_answered() {
    let mut w = SctpTestNetwork::established(test_config(), test_config(), 2);
    w.inject_packet(B, 1, to_b(vec![Chunk::Heartbeat(vec![1, 2, 3])]));
    w.expect_sent(&["200 B1 HEARTBEAT-ACK"]);
    w.inject_packet(B, 1, to_b(vec![Chunk::HeartbeatAck(vec![1, 2, 3])]));
    assert_eq!(w.end_b().stats().unexpected, 1);
}

#[test]
fn what_fills_the_last_gap_is_acknowledged_at_once_or_waits() {
    for (filled_gap_at_once, last) in [(true, "1350 B0 SACK 3"), (false, "1550 B0 SACK 3")] {
        let mut w = SctpTestNetwork::established(
            test_config(),
            SctpConfig { filled_gap_at_once, ..test_config() },
            1,
        );
        w.loss = Box::new(|from, _, n, _| from == A && n == 1);
        for _ in 0..3 {
            w.send_message(A, 0, 100);
        }
        // The SACK of the first is back at 300, and T3-rtx runs from there.
        w.run_to(3000);
        w.expect_only("SACK", &["250 B0 SACK 1 gap 2-2 win 130972", last]);
        w.is_idle();
    }
}

#[test]
fn a_sack_for_a_duplicate_ends_the_delay_or_leaves_it() {
    for (duplicate_resets_delay, more) in [(true, None), (false, Some("1450 B0 SACK 1"))] {
        let receiver = SctpConfig { duplicate_resets_delay, bundle_sacks: false, ..test_config() };
        let mut w = SctpTestNetwork::established(test_config(), receiver, 1);
        w.loss = Box::new(|from, _, n, _| from == B && n == 0);
        w.send_message(A, 0, 100);
        w.run_to(3000);
        let lines: Vec<&str> = ["450 B0 SACK 1", "1250 B0 SACK 1 dup 1"].into_iter().chain(more).collect();
        w.expect_only("SACK", &lines);
    }
}
