//! When data is sent: bundling, fragmentation, congestion windows, bursts, Nagle (RFC 9260 §6.1, §6.9, §6.10,
//! §7.2).

use super::*;

/// Acknowledges every packet at once.
fn prompt_config() -> SctpConfig {
    SctpConfig { sack_delay: None, ..test_config() }
}

#[test]
fn messages_that_wait_together_share_a_packet() {
    let mut w = SctpTestNetwork::established(test_config(), test_config(), 1);
    w.with_end(A, |a, now| {
        for len in [100, 201, 300, 320] {
            a.send_message(now, test_message(0, len)).unwrap();
        }
    });
    // 116 + 220 + 316 + 336 = 988 of 1000 bytes.
    w.expect_sent(&["200 A0 DATA 1 0:0 100 | DATA 2 0:1 201 | DATA 3 0:2 300 | DATA 4 0:3 320"]);
    assert_eq!(w.end_a().stats().packets_sent, 4 + 1 - 2, "INIT, COOKIE ECHO and this");
}

#[test]
fn long_messages_go_in_pieces() {
    let mut w = SctpTestNetwork::established(prompt_config(), prompt_config(), 1);
    w.send_message(A, 2, 984);
    w.send_message(A, 2, 2000);
    w.run_to(1000);
    w.expect_sent(&[
        "200 A0 DATA 1 2:0 984",
        "200 A0 DATA 2 2:1 984 B",
        "200 A0 DATA 3 2:1 984 M",
        "200 A0 DATA 4 2:1 32 E",
        "250 B0 SACK 1",
        "250 B0 SACK 2 win 130088",
        "250 B0 SACK 3 win 129104",
        "250 B0 SACK 4",
    ]);
    w.expect_events(B, &["250 message 2:984", "250 message 2:2000"]);
}

#[test]
fn pieces_with_bytes_are_joined() {
    let mut w = SctpTestNetwork::established(test_config(), test_config(), 1);
    let bytes: Vec<u8> = (0..2500u32).map(|i| i as u8).collect();
    let text = UserMessage { payload: Payload::copy_from_slice(&bytes), ..test_message(0, 0) };
    w.with_end(A, |a, now| a.send_message(now, text.clone()).unwrap());
    w.run_to(1000);
    assert_eq!(w.messages[B], [text]);
}

#[test]
fn slow_start_adds_a_packet_for_each_that_is_acknowledged() {
    let one = SctpConfig { initial_window: InitialWindow::Packets(1), max_burst: None, ..prompt_config() };
    let mut w = SctpTestNetwork::established(one.clone(), one, 1);
    assert_eq!(w.end_a().cwnd(0), 1000);
    w.with_end(A, |a, now| {
        for _ in 0..7 {
            a.send_message(now, test_message(0, 984)).unwrap();
        }
    });
    w.run_to(1000);
    let data = |at: u64, n: u32| format!("{at} A0 DATA {n} 0:{} 984", n - 1);
    let rounds = [(200, 1), (300, 2), (300, 3), (400, 4), (400, 5), (400, 6), (400, 7)];
    let lines: Vec<String> = rounds.iter().map(|&(at, n)| data(at, n)).collect();
    w.expect_only("DATA", &lines.iter().map(String::as_str).collect::<Vec<_>>());
    // The last round did not fill the window, so the SACKs of its first chunks found no full flight.
    assert_eq!(w.end_a().cwnd(0), 5000);
}

#[test]
fn an_application_limited_sender_does_not_grow_its_window() {
    let mut w = SctpTestNetwork::established(prompt_config(), prompt_config(), 1);
    for i in 0..50 {
        w.run_to(1000 + 200 * i);
        w.send_message(A, 0, 100);
    }
    w.run_to(30_000);
    assert_eq!(w.end_a().cwnd(0), 4000);
}

#[test]
fn an_idle_window_is_halved_once_for_each_timeout() {
    let wide = SctpConfig { initial_window: InitialWindow::Packets(40), ..prompt_config() };
    let mut w = SctpTestNetwork::established(wide.clone(), wide, 1);
    w.send_message(A, 0, 10);
    w.run_to(1000);
    w.send_message(A, 0, 10);
    assert_eq!(w.end_a().cwnd(0), 40_000);
    w.run_to(4100);
    w.send_message(A, 0, 10);
    assert_eq!(w.end_a().cwnd(0), 5000, "three timeouts of a second");
    w.run_to(secs_as_millis(100));
    w.send_message(A, 0, 10);
    assert_eq!(w.end_a().cwnd(0), 4000, "four packets remain");
}

#[test]
fn one_occasion_lets_out_a_burst_at_most() {
    let wide =
        SctpConfig { initial_window: InitialWindow::Packets(40), max_burst: Some(2), ..prompt_config() };
    let mut w = SctpTestNetwork::established(wide.clone(), wide, 1);
    w.with_end(A, |a, now| {
        for _ in 0..5 {
            a.send_message(now, test_message(0, 984)).unwrap();
        }
    });
    w.run_to(5000);
    let lines: Vec<String> = [(200, 1), (200, 2), (300, 3), (300, 4), (300, 5)]
        .iter()
        .map(|(at, n)| format!("{at} A0 DATA {n} 0:{} 984", n - 1))
        .collect();
    w.expect_only("DATA", &lines.iter().map(String::as_str).collect::<Vec<_>>());
}

#[test]
fn the_senders_delay_waits_for_one_round_trip() {
    let mut w =
        SctpTestNetwork::established(SctpConfig { nagle: true, ..prompt_config() }, prompt_config(), 1);
    w.send_message(A, 0, 100);
    w.run_to(210);
    w.send_message(A, 1, 100);
    w.run_to(220);
    w.send_message(A, 2, 100);
    w.run_to(1000);
    w.expect_sent(&[
        "200 A0 DATA 1 0:0 100",
        "250 B0 SACK 1",
        "300 A0 DATA 2 1:0 100 | DATA 3 2:0 100",
        "350 B0 SACK 3",
    ]);
    w.is_idle();
}

#[test]
fn with_delayed_sacks_it_waits_for_those_too() {
    let mut w = SctpTestNetwork::established(SctpConfig { nagle: true, ..test_config() }, test_config(), 1);
    w.send_message(A, 0, 100);
    w.send_message(A, 0, 100);
    w.run_to(1000);
    w.expect_sent(&["200 A0 DATA 1 0:0 100", "450 B0 SACK 1", "500 A0 DATA 2 0:1 100", "750 B0 SACK 2"]);
}

#[test]
fn the_delay_spares_full_packets_and_pieces() {
    let mut w =
        SctpTestNetwork::established(SctpConfig { nagle: true, ..prompt_config() }, prompt_config(), 1);
    w.send_message(A, 0, 10);
    w.send_message(A, 0, 600);
    w.expect_sent(&["200 A0 DATA 1 0:0 10"]);
    w.send_message(A, 0, 600);
    w.expect_sent(&["200 A0 DATA 2 0:1 600"]);
    w.run_to(1000);
    w.clear_log();
    w.send_message(A, 0, 10);
    w.send_message(A, 0, 1000);
    w.expect_sent(&["1000 A0 DATA 4 0:3 10", "1000 A0 DATA 5 0:4 984 B", "1000 A0 DATA 6 0:4 16 E"]);
}

#[test]
fn without_the_delay_nothing_waits() {
    let mut w = SctpTestNetwork::established(test_config(), test_config(), 1);
    w.send_message(A, 0, 100);
    w.run_to(210);
    w.send_message(A, 0, 100);
    w.expect_sent(&["200 A0 DATA 1 0:0 100", "210 A0 DATA 2 0:1 100"]);
}

/// A without a peer: its packets are lost, and the test injects SACKs.
fn lone_sender(config: SctpConfig) -> SctpTestNetwork {
    let mut w = SctpTestNetwork::established(config, prompt_config(), 1);
    w.loss = Box::new(|_, _, _, _| true);
    w
}
fn sack_packet(cumulative: u32, window: u32) -> SctpPacket {
    SctpPacket {
        vtag: 10,
        chunks: vec![Chunk::Sack(SackChunk { cumulative, window, ..SackChunk::default() })],
    }
}

#[test]
fn one_chunk_probes_a_closed_window_and_ends_no_association() {
    let mut w = lone_sender(SctpConfig { max_association_retransmissions: Some(1), ..test_config() });
    w.send_message(A, 0, 100);
    w.inject_packet(A, 0, sack_packet(1, 0));
    w.send_message(A, 0, 200);
    w.send_message(A, 0, 300);
    w.run_to(1199);
    // The first probe is sent one RTO after the window closed.
    let mut expected = vec!["200 A0 DATA 1 0:0 100".to_owned(), "1200 A0 DATA 2 0:1 200".to_owned()];
    let mut at = 1200;
    for wait in [1000, 2000, 4000, 8000] {
        w.run_to(at + 100);
        w.inject_packet(A, 0, sack_packet(1, 0));
        at += wait;
        expected.push(format!("{at} A0 DATA 2 0:1 200"));
    }
    w.run_to(at + 100);
    w.expect_events(A, &[]);
    // The window opens. The probe waits for its timer like any lost chunk; after a timeout no other data may be in
    // flight.
    w.inject_packet(A, 0, sack_packet(1, 5000));
    w.run_to(at + 20_000);
    expected.push(format!("{} A0 DATA 2 0:1 200", at + 16_000));
    w.inject_packet(A, 0, sack_packet(2, 5000));
    expected.push(format!("{} A0 DATA 3 0:2 300", at + 20_000));
    w.expect_sent(&expected.iter().map(String::as_str).collect::<Vec<_>>());
}

#[test]
fn a_window_that_opens_ends_the_wait_for_a_probe() {
    let mut w = lone_sender(test_config());
    w.send_message(A, 0, 100);
    w.inject_packet(A, 0, sack_packet(1, 0));
    w.send_message(A, 0, 200);
    w.run_to(700);
    w.inject_packet(A, 0, sack_packet(1, 5000));
    w.expect_sent(&["200 A0 DATA 1 0:0 100", "700 A0 DATA 2 0:1 200"]);
    // The window closes again, and the wait restarts.
    w.inject_packet(A, 0, sack_packet(2, 0));
    w.send_message(A, 0, 300);
    w.run_to(1800);
    w.expect_sent(&["1700 A0 DATA 3 0:2 300"]);
}

#[test]
fn a_closed_window_may_be_probed_at_once() {
    let mut w = lone_sender(SctpConfig { probe_at_once: true, ..test_config() });
    w.send_message(A, 0, 100);
    w.inject_packet(A, 0, sack_packet(1, 0));
    w.send_message(A, 0, 200);
    w.expect_sent(&["200 A0 DATA 1 0:0 100", "200 A0 DATA 2 0:1 200"]);
}

#[test]
fn no_more_leaves_than_the_window_takes() {
    let mut w = lone_sender(test_config());
    w.send_message(A, 0, 100);
    w.inject_packet(A, 0, sack_packet(1, 500));
    for _ in 0..3 {
        w.send_message(A, 0, 240);
    }
    w.expect_sent(&["200 A0 DATA 1 0:0 100", "200 A0 DATA 2 0:1 240", "200 A0 DATA 3 0:2 240"]);
    w.inject_packet(A, 0, sack_packet(2, 260));
    w.expect_sent(&[]);
    w.inject_packet(A, 0, sack_packet(3, 260));
    w.expect_sent(&["200 A0 DATA 4 0:3 240"]);
}

#[test]
fn commands_out_of_place_are_refused() {
    let mut w = SctpTestNetwork::established(test_config(), test_config(), 1);
    w.with_end(A, |a, now| {
        assert!(matches!(a.send_message(now, test_message(10, 5)), Err(CommandError::Invalid(_))));
        assert!(matches!(a.send_message(now, test_message(0, 0)), Err(CommandError::Invalid(_))));
        assert!(matches!(a.send_message(now, test_message(0, u32::MAX)), Err(CommandError::Full(_))));
        a.shutdown(now);
        assert!(matches!(a.send_message(now, test_message(0, 5)), Err(CommandError::WrongState(_))));
    });
}

fn gap_packet(cumulative: u32, first: u16, last: u16) -> SctpPacket {
    let sack = SackChunk { cumulative, window: 100_000, gaps: vec![(first, last)], ..SackChunk::default() };
    SctpPacket { vtag: 10, chunks: vec![Chunk::Sack(sack)] }
}

#[test]
fn what_gap_blocks_acknowledge_grows_the_window_once() {
    let mut w = lone_sender(SctpConfig { max_burst: None, ..test_config() });
    w.with_end(A, |a, now| {
        a.send_message(now, test_message(0, 484)).unwrap();
        for _ in 0..20 {
            a.send_message(now, test_message(0, 984)).unwrap();
        }
    });
    assert_eq!(w.end_a().cwnd(0), 4000);
    // The window is full. Slow start: a packet for a full chunk, whether the cumulative TSN advances or not.
    w.inject_packet(A, 0, gap_packet(0, 2, 2));
    assert_eq!(w.end_a().cwnd(0), 5000);
    w.inject_packet(A, 0, gap_packet(0, 2, 2));
    assert_eq!(w.end_a().cwnd(0), 5000);
    // The first chunk is half a packet; the chunk of the gap block is not counted again.
    w.inject_packet(A, 0, sack_packet(2, 100_000));
    assert_eq!(w.end_a().cwnd(0), 5500);
}

#[test]
fn congestion_avoidance_counts_gap_blocks_too() {
    let mut w = lone_sender(SctpConfig { max_burst: None, ..test_config() });
    w.end_a().paths[0].ssthresh = 3999;
    w.with_end(A, |a, now| {
        for _ in 0..20 {
            a.send_message(now, test_message(0, 984)).unwrap();
        }
    });
    // Four packets of four: the window grows by one after a full window is acknowledged.
    for (first, last, cwnd) in [(2, 2, 4000), (2, 3, 4000)] {
        w.inject_packet(A, 0, gap_packet(0, first, last));
        assert_eq!(w.end_a().cwnd(0), cwnd);
    }
    w.inject_packet(A, 0, sack_packet(3, 100_000));
    assert_eq!(w.end_a().cwnd(0), 4000);
    w.inject_packet(A, 0, sack_packet(4, 100_000));
    assert_eq!(w.end_a().cwnd(0), 5000);
}

/// RFC 9260 §7.2.2: acknowledgements while the window is not full count for one window at most.
#[test]
fn a_window_that_is_not_full_saves_up_one_step_of_its_growth() {
    let mut w = lone_sender(SctpConfig { max_burst: None, ..test_config() });
    w.end_a().paths[0].ssthresh = 3999;
    let send = |w: &mut SctpTestNetwork, packets: u32| (0..packets).for_each(|_| w.send_message(A, 0, 984));
    // Six packets are acknowledged, with three in flight where four may be.
    send(&mut w, 2);
    for acknowledged in 1..=6 {
        send(&mut w, 1);
        w.inject_packet(A, 0, sack_packet(acknowledged, 100_000));
    }
    assert_eq!(w.end_a().cwnd(0), 4000);
    // The first that finds the window full is the fifth that counts: one remains of a step of five.
    send(&mut w, 2);
    w.inject_packet(A, 0, sack_packet(7, 100_000));
    assert_eq!(w.end_a().cwnd(0), 5000);
    send(&mut w, 2);
    w.inject_packet(A, 0, sack_packet(9, 100_000));
    assert_eq!(w.end_a().cwnd(0), 5000);
}

#[test]
fn the_window_counts_padding() {
    let one = SctpConfig { initial_window: InitialWindow::Packets(1), ..prompt_config() };
    let mut w = SctpTestNetwork::established(one, prompt_config(), 1);
    w.end_a().paths[0].ssthresh = 999;
    // Fifty chunks of 17 bytes take 20 each: the packet, and the window, is full.
    w.with_end(A, |a, now| {
        for _ in 0..50 {
            a.send_message(now, test_message(0, 1)).unwrap();
        }
    });
    assert_eq!(w.end_a().paths[0].flight, 1000);
    w.run_to(1000);
    assert_eq!(w.end_a().cwnd(0), 2000);
    w.is_idle();
}

#[test]
fn memory_is_the_control_block_the_streams_and_what_waits() {
    let size = std::mem::size_of::<SctpAssociation>() + std::mem::size_of::<super::super::path::SctpPath>();
    let own = SctpAssociation::CONTROL_BLOCK;
    assert!(size <= own as usize && size + 64 > own as usize, "{size} bytes are what counts for its state");
    let mut w = SctpTestNetwork::established(prompt_config(), prompt_config(), 1);
    let idle = own + 2 * u32::from(w.end_a().outbound_streams() + w.end_a().inbound_streams());
    assert_eq!(w.end_a().memory_octets(), idle);
    w.with_end(A, |a, now| a.send_message(now, test_message(0, 101)).unwrap());
    assert_eq!(w.end_a().memory_octets(), idle + 16 + 104, "with its header, padded");
    w.run_to(1000);
    assert_eq!(w.end_a().memory_octets(), idle, "acknowledged");
}
