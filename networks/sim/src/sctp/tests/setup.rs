//! The four-way setup, its losses and its collisions (RFC 9260 §5).

use super::*;
use crate::sctp::setup::{COOKIE_ECHOES, CookieAction, TieTagMatch, VerificationTagMatch, cookie_action};

#[test]
fn four_packets_set_it_up() {
    let mut w =
        SctpTestNetwork::new(test_config(), SctpConfig { accepted_streams: Some(4), ..test_config() }, 1);
    w.connect_end(A);
    w.run_to(1000);
    w.expect_sent(&["0 A0 INIT 10", "50 B0 INIT-ACK 11", "100 A0 COOKIE-ECHO", "150 B0 COOKIE-ACK"]);
    w.expect_events(A, &["200 up 10 4"]);
    w.expect_events(B, &["150 up 4 10"]);
    assert_eq!(w.end_a().srtt(0), Some(millis(100)));
    assert_eq!(w.end_a().rto(0), millis(1000));
    w.is_idle();
}

#[test]
fn the_acceptor_grants_the_requested_streams_unless_configured() {
    for (asked, offers, takes, up, accepted) in [
        (100, None, 2048, "200 up 100 100", "150 up 100 100"),
        (1, None, 2048, "200 up 1 1", "150 up 1 1"),
        (100, Some(16), 2048, "200 up 100 16", "150 up 16 100"),
        // The peer's limit bounds the offer, in both directions.
        (100, Some(300), 40, "200 up 100 40", "150 up 40 100"),
    ] {
        let opener = SctpConfig { outbound_streams: asked, max_inbound_streams: takes, ..test_config() };
        let mut w = SctpTestNetwork::new(opener, SctpConfig { accepted_streams: offers, ..test_config() }, 1);
        w.connect_end(A);
        w.run_to(1000);
        w.expect_events(A, &[up]);
        w.expect_events(B, &[accepted]);
    }
}

#[test]
fn where_both_sides_ask_at_once_init_ack_says_what_init_said() {
    let asks = |n| SctpConfig { outbound_streams: n, accepted_streams: Some(77), ..test_config() };
    let mut w = SctpTestNetwork::new(asks(5), asks(6), 1);
    w.connect_end(A);
    w.connect_end(B);
    w.run_to(1000);
    for (end, text) in [(A, "up 5 6"), (B, "up 6 5")] {
        assert!(w.event_lines[end].last().is_some_and(|h| h.ends_with(text)), "{:?}", w.event_lines[end]);
    }
}

#[test]
fn data_rides_behind_the_cookie() {
    let mut w = SctpTestNetwork::new(test_config(), test_config(), 1);
    w.connect_end(A);
    w.send_message(A, 0, 600);
    w.send_message(A, 1, 100);
    w.send_message(A, 0, 600);
    w.run_to(450);
    w.expect_sent(&[
        "0 A0 INIT 10",
        "50 B0 INIT-ACK 11",
        "100 A0 COOKIE-ECHO | DATA 1 0:0 600 | DATA 2 1:0 100",
        "150 B0 COOKIE-ACK",
        "200 A0 DATA 3 0:1 600",
        "250 B0 SACK 3",
    ]);
    w.expect_events(B, &["150 up 10 10", "150 message 0:600", "150 message 1:100", "250 message 0:600"]);
    w.is_idle();
}

#[test]
fn each_packet_of_the_set_up_may_be_lost() {
    // The setup ends a second later, whichever packet is lost.
    let lost = ["INIT 10", "INIT-ACK", "COOKIE-ECHO", "COOKIE-ACK"];
    for which in lost {
        let mut left = 1;
        let mut w = SctpTestNetwork::new(test_config(), test_config(), 1).with_loss(move |_, _, _, text| {
            let hit = text.starts_with(which) && left > 0;
            left -= i32::from(hit);
            hit
        });
        w.connect_end(A);
        w.send_message(A, 0, 100);
        w.run_to(10_000);
        w.expect_events(A, &["1200 up 10 10"]);
        assert_eq!(w.messages[B], [test_message(0, 100)], "{which}");
        w.is_idle();
    }
}

#[test]
fn init_is_given_up_after_eight_retransmissions_with_backoff() {
    let mut w = SctpTestNetwork::new(test_config(), test_config(), 1).with_loss(|_, _, _, _| true);
    w.connect_end(A);
    w.run_to(secs_as_millis(400));
    let at = [0, 1, 3, 7, 15, 31, 63, 123, 183];
    let lines: Vec<String> = at.iter().map(|s| format!("{} A0 INIT 10", s * 1000)).collect();
    w.expect_sent(&lines.iter().map(String::as_str).collect::<Vec<_>>());
    w.expect_events(A, &["243000 down TimedOut"]);
    assert!(w.end_a().is_closed());
}

#[test]
fn without_a_limit_init_is_never_given_up() {
    let unlimited = SctpConfig { max_init_retransmissions: None, rto_max: millis(4000), ..test_config() };
    let mut w = SctpTestNetwork::new(unlimited, test_config(), 1).with_loss(|_, _, _, _| true);
    w.connect_end(A);
    w.run_to(secs_as_millis(403));
    assert_eq!(w.end_a().state(), SctpAssociationState::CookieWait);
    assert_eq!(w.end_a().stats().packets_sent, 3 + 100);
}

#[test]
fn init_tries_the_paths_in_turn() {
    let mut w = SctpTestNetwork::new(test_config(), test_config(), 2).with_loss(|_, path, _, _| path == 0);
    w.connect_end(A);
    w.run_to(2000);
    w.expect_events(A, &["1200 up 10 10"]);
}

#[test]
fn nobody_listening_refuses() {
    let mut w = SctpTestNetwork::new(test_config(), test_config(), 1);
    w.connect_end(A);
    let answer = reply_out_of_the_blue(&w.end_a().init_packet()).unwrap();
    assert_eq!(answer.vtag, 10);
    w.inject_packet(A, 0, answer);
    w.expect_events(A, &["0 down Refused"]);
    w.expect_sent(&["0 A0 INIT 10"]);
}

#[test]
fn both_sides_may_begin_at_once() {
    let mut w = SctpTestNetwork::new(test_config(), test_config(), 1);
    w.connect_end(A);
    w.connect_end(B);
    w.run_to(5000);
    w.expect_sent(&[
        "0 A0 INIT 10",
        "0 B0 INIT 11",
        "50 B0 INIT-ACK 11",
        "50 A0 INIT-ACK 10",
        "100 A0 COOKIE-ECHO",
        "100 B0 COOKIE-ECHO",
        "150 B0 COOKIE-ACK",
        "150 A0 COOKIE-ACK",
    ]);
    w.expect_events(A, &["150 up 10 10"]);
    w.expect_events(B, &["150 up 10 10"]);
    w.send_message(A, 0, 10);
    w.send_message(B, 0, 20);
    w.run_to(6000);
    assert_eq!((w.messages[B].len(), w.messages[A].len()), (1, 1));
    w.is_idle();
}

#[test]
fn the_table_of_cookie_echoes() {
    use CookieAction::*;
    let tags = [VerificationTagMatch::Matches, VerificationTagMatch::Differs, VerificationTagMatch::Unknown];
    let ties = [TieTagMatch::Match, TieTagMatch::None, TieTagMatch::Differ];
    for local in tags {
        for peer in tags {
            for tie in ties {
                let expected = match (local, peer, tie) {
                    (VerificationTagMatch::Differs, VerificationTagMatch::Differs, TieTagMatch::Match) => {
                        Restart
                    }
                    (
                        VerificationTagMatch::Matches,
                        VerificationTagMatch::Differs | VerificationTagMatch::Unknown,
                        _,
                    ) => Collide,
                    (VerificationTagMatch::Matches, VerificationTagMatch::Matches, _) => Confirm,
                    _ => Discard,
                };
                assert_eq!(cookie_action(local, peer, tie), expected, "{local:?} {peer:?} {tie:?}");
            }
        }
    }
    assert_eq!(COOKIE_ECHOES.len(), 5);
}

#[test]
fn a_peer_that_lost_its_memory_begins_anew() {
    let mut w = SctpTestNetwork::established(test_config(), test_config(), 1);
    w.send_message(A, 0, 10);
    w.send_message(B, 0, 10);
    w.run_to(1000);
    w.ends[A] = None;
    let again = SctpAssociation::connect(Arc::new(test_config()), w.now, test_initial_values(77, 5000), 1);
    w.ends[A] = Some(again);
    w.clear_log();
    w.expect_events(B, &["250 message 0:10"]);
    w.with_end(A, |a, now| a.send_message(now, test_message(3, 33)).unwrap());
    w.run_to(1300);
    w.expect_events(B, &["1150 up 10 10", "1150 message 3:33"]);
    w.send_message(B, 0, 44);
    w.run_to(3000);
    assert_eq!(w.messages[A].last(), Some(&test_message(0, 44)), "stream sequence numbers begin anew too");
    assert_eq!(w.end_a().state(), SctpAssociationState::Established);
    w.is_idle();
}

#[test]
fn a_late_cookie_of_an_older_attempt_is_discarded() {
    let mut w = SctpTestNetwork::new(test_config(), test_config(), 1);
    let mut old = SctpAssociation::connect(Arc::new(test_config()), w.now, test_initial_values(10, 1), 1);
    let init = old.poll_transmit(w.now).unwrap().packet;
    let SctpListenerAction::Reply(ack) = handle_listener_packet(
        &Arc::new(test_config()),
        w.now,
        test_initial_values(99, 9),
        (3868, 40_000),
        0,
        1,
        init,
    ) else {
        panic!("an answer to INIT")
    };
    old.handle_packet(w.now, 0, ack);
    let echo = old.poll_transmit(w.now).unwrap().packet;
    // B, which answered with tag 99, opens its own association meanwhile: X M 0 0.
    w.connect_end(B);
    w.ends[A] = Some(old);
    w.run_to(100);
    assert_eq!(w.end_b().state(), SctpAssociationState::CookieEchoed);
    let unexpected = w.end_b().stats().unexpected;
    w.inject_packet(B, 0, echo);
    assert_eq!(w.end_b().stats().unexpected, unexpected + 1);
    assert_eq!(w.end_b().state(), SctpAssociationState::CookieEchoed);
}

fn cookie_echo(w: &mut SctpTestNetwork) -> SctpPacket {
    w.connect_end(A);
    let init = w.end_a().init_packet();
    let SctpListenerAction::Reply(ack) = handle_listener_packet(
        &Arc::new(test_config()),
        at_millis(0),
        test_initial_values(11, 1001),
        (3868, 40_000),
        0,
        1,
        init,
    ) else {
        panic!("an answer to INIT")
    };
    w.end_a().handle_packet(at_millis(0), 0, ack);
    w.end_a().poll_transmit(at_millis(0)).unwrap().packet
}

#[test]
fn a_cookie_that_was_tampered_with_is_discarded() {
    let mut w = SctpTestNetwork::new(test_config(), test_config(), 1);
    let good = cookie_echo(&mut w);
    let Chunk::CookieEcho(cookie) = &good.chunks[0] else { panic!("a cookie") };
    let answer = |packet: SctpPacket, ports| {
        handle_listener_packet(
            &Arc::new(test_config()),
            at_millis(1),
            test_initial_values(5, 5),
            ports,
            0,
            1,
            packet,
        )
    };
    for at in 0..cookie.len() {
        let mut bad = cookie.clone();
        bad[at] ^= 1;
        let bad = SctpPacket { vtag: 11, chunks: vec![Chunk::CookieEcho(bad)] };
        assert!(matches!(answer(bad, (3868, 40_000)), SctpListenerAction::Discard), "byte {at}");
    }
    let short = SctpPacket { vtag: 11, chunks: vec![Chunk::CookieEcho(cookie[..20].to_vec())] };
    assert!(matches!(answer(short, (3868, 40_000)), SctpListenerAction::Discard));
    assert!(matches!(answer(good.clone(), (3868, 40_001)), SctpListenerAction::Discard), "another port");
    let other_tag = SctpPacket { vtag: 12, ..good.clone() };
    assert!(matches!(answer(other_tag, (3868, 40_000)), SctpListenerAction::Discard));
    let SctpListenerAction::Accept(a) = answer(good, (3868, 40_000)) else { panic!("the cookie is good") };
    assert_eq!(a.state(), SctpAssociationState::Established);
}

#[test]
fn a_stale_cookie_is_told_and_the_set_up_begins_again() {
    // The cookie lives 60 ms; the round trip takes 100 ms, except the second time.
    let short = SctpConfig { cookie_life: millis(60), ..test_config() };
    let mut w = SctpTestNetwork::new(test_config(), short, 1);
    w.connect_end(A);
    w.run_to(160);
    w.expect_only("ERROR", &["150 B0 ERROR [StaleCookie(40000)]"]);
    w.delay = millis(20);
    w.run_to(1000);
    w.expect_sent(&["200 A0 INIT 10", "220 B0 INIT-ACK 11", "240 A0 COOKIE-ECHO", "260 B0 COOKIE-ACK"]);
    w.expect_events(A, &["280 up 10 10"]);
}

#[test]
fn cookies_that_are_always_stale_end_the_set_up() {
    let mut w =
        SctpTestNetwork::new(test_config(), SctpConfig { cookie_life: millis(60), ..test_config() }, 1);
    w.connect_end(A);
    w.run_to(10_000);
    w.expect_events(A, &["1800 down TimedOut"]);
    assert!(w.ends[B].is_none());
}

#[test]
fn a_forged_cookie_does_not_disturb_an_association() {
    let mut w = SctpTestNetwork::established(test_config(), test_config(), 1);
    w.inject_packet(B, 0, SctpPacket { vtag: 11, chunks: vec![Chunk::CookieEcho(vec![0; 80])] });
    assert_eq!(w.end_b().stats().bad_cookie, 1);
    w.expect_sent(&[]);
}

#[test]
fn bad_fields_of_init_are_refused() {
    let good = InitChunk { tag: 3, window: 1500, outbound: 1, inbound: 1, tsn: 0, ..InitChunk::default() };
    let answer = |init: InitChunk| {
        let packet = SctpPacket { vtag: 0, chunks: vec![Chunk::Init(Box::new(init))] };
        handle_listener_packet(
            &Arc::new(test_config()),
            at_millis(0),
            test_initial_values(5, 5),
            (1, 2),
            0,
            1,
            packet,
        )
    };
    let aborts = |answer: SctpListenerAction| match answer {
        SctpListenerAction::Reply(p) => {
            p.vtag == 3 && matches!(p.chunks[0], Chunk::Abort { reflected: false, .. })
        }
        _ => false,
    };
    assert!(matches!(answer(InitChunk { tag: 0, ..good.clone() }), SctpListenerAction::Discard));
    assert!(aborts(answer(InitChunk { window: 1499, ..good.clone() })));
    assert!(aborts(answer(InitChunk { outbound: 0, ..good.clone() })));
    assert!(aborts(answer(InitChunk { inbound: 0, ..good.clone() })));
    let unknown = vec![ChunkParameter { kind: 0xc000, value: vec![1] }];
    let SctpListenerAction::Reply(ack) = answer(InitChunk { unknown: unknown.clone(), ..good }) else {
        panic!("an answer")
    };
    let Chunk::InitAck(ack) = &ack.chunks[0] else { panic!("INIT ACK") };
    assert_eq!(ack.unrecognized, unknown);
}

#[test]
fn an_init_ack_without_cookie_ends_the_set_up() {
    let mut w = SctpTestNetwork::new(test_config(), test_config(), 1);
    w.connect_end(A);
    let ack = InitChunk { tag: 11, window: 1500, outbound: 1, inbound: 1, tsn: 0, ..InitChunk::default() };
    w.inject_packet(A, 0, SctpPacket { vtag: 10, chunks: vec![Chunk::InitAck(Box::new(ack))] });
    w.expect_sent(&["0 A0 INIT 10", "0 A0 ABORT [MissingParameters([7])]"]);
    assert_eq!(w.end_a().stats().malformed, 1);
    w.expect_events(A, &["0 down Reset"]);
}

#[test]
fn messages_on_ungranted_streams_are_dropped_and_counted() {
    let mut w =
        SctpTestNetwork::new(test_config(), SctpConfig { max_inbound_streams: 2, ..test_config() }, 1);
    w.connect_end(A);
    for stream in [0, 2, 1, 9] {
        w.send_message(A, stream, 10);
    }
    w.run_to(1000);
    w.expect_events(A, &["200 up 2 10"]);
    w.expect_events(B, &["150 up 10 2", "150 message 0:10", "150 message 1:10"]);
    assert_eq!((w.end_a().stats().unsendable, w.end_a().outbound_streams()), (2, 2));
    let now = w.now;
    assert!(matches!(w.end_a().send_message(now, test_message(2, 1)), Err(CommandError::Invalid(_))));
}

#[test]
fn what_comes_out_of_the_blue() {
    let of = |chunk| SctpPacket { vtag: 9, chunks: vec![chunk] };
    let t_abort = Some(of(Chunk::Abort { reflected: true, causes: vec![] }));
    assert_eq!(reply_out_of_the_blue(&of(Chunk::Data(DataChunk::default()))), t_abort);
    assert_eq!(reply_out_of_the_blue(&of(Chunk::Shutdown { cumulative: 1 })), t_abort);
    let complete = Some(of(Chunk::ShutdownComplete { reflected: true }));
    assert_eq!(reply_out_of_the_blue(&of(Chunk::ShutdownAck)), complete);
    for quiet in [
        Chunk::Abort { reflected: false, causes: vec![] },
        Chunk::ShutdownComplete { reflected: false },
        Chunk::CookieAck,
        Chunk::Error(vec![ErrorCause::StaleCookie(1)]),
    ] {
        assert_eq!(reply_out_of_the_blue(&of(quiet)), None);
    }
    assert_eq!(reply_out_of_the_blue(&SctpPacket { vtag: 9, chunks: vec![] }), None);
}

/// §12.3: "The receiver of an INIT chunk MUST silently discard the INIT chunk and all further chunks if the INIT chunk
/// is bundled with other chunks".
#[test]
fn init_with_other_chunks_is_discarded_in_silence() {
    let init = InitChunk { tag: 3, window: 1500, outbound: 1, inbound: 1, tsn: 0, ..InitChunk::default() };
    let chunks = vec![Chunk::Init(Box::new(init)), Chunk::Data(DataChunk::default())];
    let packet = SctpPacket { vtag: 0, chunks };
    assert_eq!(reply_out_of_the_blue(&packet), None);
    let answer = handle_listener_packet(
        &Arc::new(test_config()),
        at_millis(0),
        test_initial_values(5, 5),
        (1, 2),
        0,
        1,
        packet,
    );
    assert!(matches!(answer, SctpListenerAction::Discard), "{answer:?}");
}

/// §3.3.2.1.4: a chunk with a host name MUST be answered by ABORT, also an INIT ACK.
#[test]
fn a_host_name_is_refused() {
    let name = Some(b"a.b\0".to_vec());
    let init =
        InitChunk { tag: 3, window: 1500, outbound: 1, inbound: 1, host_name: name, ..InitChunk::default() };
    let cause = ErrorCause::UnresolvableAddress(ChunkParameter { kind: 11, value: b"a.b\0".to_vec() });
    let packet = SctpPacket { vtag: 0, chunks: vec![Chunk::Init(Box::new(init.clone()))] };
    let answer = handle_listener_packet(
        &Arc::new(test_config()),
        at_millis(0),
        test_initial_values(5, 5),
        (1, 2),
        0,
        1,
        packet,
    );
    let SctpListenerAction::Reply(reply) = answer else { panic!("{answer:?}") };
    let abort = Chunk::Abort { reflected: false, causes: vec![cause] };
    assert_eq!(reply, SctpPacket { vtag: 3, chunks: vec![abort] });

    let mut w = SctpTestNetwork::new(test_config(), test_config(), 1);
    w.connect_end(A);
    let ack = InitChunk { tag: 11, cookie: Some(vec![0; 8]), ..init };
    w.inject_packet(A, 0, SctpPacket { vtag: 10, chunks: vec![Chunk::InitAck(Box::new(ack))] });
    w.expect_events(A, &["0 down Reset"]);
    assert!(
        w.log.last().is_some_and(|line| line.starts_with("0 A0 ABORT [UnresolvableAddress")),
        "{:?}",
        w.log
    );
}

/// §3.3.3: INIT ACK with tag 0 destroys the TCB, and SHOULD be answered by ABORT with the T bit.
#[test]
fn an_init_ack_without_tag_is_answered_by_what_it_was_sent_with() {
    let mut w = SctpTestNetwork::new(test_config(), test_config(), 1);
    w.connect_end(A);
    let ack =
        InitChunk { window: 1500, outbound: 1, inbound: 1, cookie: Some(vec![0; 8]), ..InitChunk::default() };
    w.inject_packet(A, 0, SctpPacket { vtag: 10, chunks: vec![Chunk::InitAck(Box::new(ack))] });
    w.expect_sent(&["0 A0 INIT 10", "0 A0 ABORT T [InvalidParameter]"]);
    w.expect_events(A, &["0 down Reset"]);
}

/// §5.2.2: an INIT that adds addresses MUST be answered by ABORT and change nothing; one with those that the
/// association was set up with is a restart.
#[test]
fn init_with_new_addresses_does_not_restart() {
    let init = |tag, addresses: &[[u8; 4]]| {
        let addresses = addresses.iter().map(|a| (*a).into()).collect();
        let init =
            InitChunk { tag, window: 1500, outbound: 1, inbound: 1, addresses, ..InitChunk::default() };
        SctpPacket { vtag: 0, chunks: vec![Chunk::Init(Box::new(init))] }
    };
    let config = Arc::new(test_config());
    let hear = |packet| {
        handle_listener_packet(&config, at_millis(0), test_initial_values(5, 5), (1, 2), 0, 1, packet)
    };
    let SctpListenerAction::Reply(ack) = hear(init(3, &[[10, 0, 0, 1]])) else { panic!("INIT ACK") };
    let Chunk::InitAck(ack) = &ack.chunks[0] else { panic!("INIT ACK") };
    let echo = Chunk::CookieEcho(ack.cookie.clone().unwrap_or_default());
    let SctpListenerAction::Accept(mut a) = hear(SctpPacket { vtag: ack.tag, chunks: vec![echo] }) else {
        panic!("a cookie")
    };
    let mut answer = |packet| {
        while a.poll_transmit(at_millis(0)).is_some() {}
        a.handle_packet(at_millis(0), 0, packet);
        a.poll_transmit(at_millis(0)).map(|t| t.packet)
    };
    let added = ErrorCause::NewAddresses(vec![ChunkParameter { kind: 5, value: vec![10, 0, 0, 2] }]);
    let abort = Chunk::Abort { reflected: false, causes: vec![added] };
    let both = init(4, &[[10, 0, 0, 1], [10, 0, 0, 2]]);
    assert_eq!(answer(both), Some(SctpPacket { vtag: 4, chunks: vec![abort] }));
    let known = answer(init(4, &[[10, 0, 0, 1]]));
    assert!(known.is_some_and(|p| matches!(p.chunks[0], Chunk::InitAck(_))));
    assert_eq!(a.state(), SctpAssociationState::Established);
}

/// §5.1.1: an end uses no more streams than the peer accepts, and states so.
#[test]
fn init_ack_asks_for_no_more_streams_than_init_takes() {
    let init = InitChunk { tag: 3, window: 1500, outbound: 100, inbound: 1, ..InitChunk::default() };
    let packet = SctpPacket { vtag: 0, chunks: vec![Chunk::Init(Box::new(init))] };
    let offers = SctpConfig { accepted_streams: Some(2), ..test_config() };
    let answer = handle_listener_packet(
        &Arc::new(offers),
        at_millis(0),
        test_initial_values(5, 5),
        (1, 2),
        0,
        1,
        packet,
    );
    let SctpListenerAction::Reply(ack) = answer else { panic!("INIT ACK") };
    assert!(matches!(&ack.chunks[0], Chunk::InitAck(ack) if ack.outbound == 1), "{ack:?}");
}
