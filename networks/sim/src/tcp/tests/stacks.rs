//! What stacks and simulators do otherwise than the RFCs, each setting alone on a trace worked out by hand.

use super::*;

#[test]
fn the_back_off_ends_with_a_measurement_or_with_any_acknowledgement() {
    // The handshake measured nothing but the lower bound of 1 s. What a timeout sent again measures nothing (Karn): by
    // RFC 6298 the next segment waits the doubled 2 s, in ns-2 the 1 s that was measured.
    for (backoff_reset, again) in [(BackoffReset::Measurement, 3200), (BackoffReset::Acknowledgement, 2200)] {
        let mut s = Script::open(Config { backoff_reset, ..config() });
        s.write(200);
        s.run_to(1100);
        s.inject(". 1:1(0) ack 201");
        s.run_to(1200);
        s.write(200);
        s.run_to(again);
        s.expect(&[
            "0 P. 1:201(200) ack 1",
            "1000 P. 1:201(200) ack 1",
            "1200 P. 201:401(200) ack 1",
            &format!("{again} P. 201:401(200) ack 1"),
        ]);
    }
}

#[test]
fn without_a_measurement_the_back_off_ends_at_the_initial_timeout() {
    // The SYN-ACK came to a SYN that was sent twice, so that nothing is measured and 3 s hold (RFC 6298 section 5.7).
    let backoff_reset = BackoffReset::Acknowledgement;
    let mut s = Script::connect(Config { backoff_reset, initial_rto: Duration::from_secs(2), ..config() });
    s.run_to(2100);
    s.inject("S. 0:0(0) ack 1 <mss 1000>");
    s.write(200);
    s.run_to(5100);
    assert_eq!(s.c.rto(), Duration::from_secs(6));
    s.inject(". 1:1(0) ack 201");
    assert_eq!(s.c.rto(), Duration::from_secs(2));
}

/// A hundred bytes are unacknowledged and fifty wait for Nagle's sake; at 10 ms 200 bytes come.
fn held(nagle_variant: NagleVariant) -> Script {
    let mut s = Script::open(Config { nagle: true, nagle_variant, ..config() });
    s.write(100);
    s.write(50);
    s.expect(&["0 P. 1:101(100) ack 1"]);
    s.run_to(10);
    s.inject("P. 1:201(200) ack 1");
    s
}

#[test]
fn a_due_acknowledgement_takes_along_what_nagle_holds_as_bsd_has_it() {
    for (variant, line) in [
        (NagleVariant::Rfc896, "210 . 101:101(0) ack 201"),
        (NagleVariant::Minshall, "210 . 101:101(0) ack 201"),
        (NagleVariant::Bsd, "210 P. 101:151(50) ack 201"),
    ] {
        let mut s = held(variant);
        s.run_to(210);
        s.expect(&[line]);
    }
}

#[test]
fn a_retransmission_takes_along_what_nagle_holds_as_bsd_has_it() {
    for (variant, line, unsent) in [
        (NagleVariant::Rfc896, "1000 . 1:101(100) ack 201", 50),
        (NagleVariant::Bsd, "1000 P. 1:151(150) ack 201", 0),
    ] {
        let mut s =
            Script::open(Config { nagle: true, nagle_variant: variant, delayed_ack: None, ..config() });
        s.inject("P. 1:201(200) ack 1");
        s.expect(&["0 . 1:1(0) ack 201"]);
        s.write(100);
        s.write(50);
        s.expect(&["0 P. 1:101(100) ack 201"]);
        s.run_to(1000);
        s.expect(&[line]);
        assert_eq!(s.c.bytes_unsent(), unsent);
        // What the retransmission carried is acknowledged with it, and nothing is sent twice.
        s.inject(&format!(". 201:201(0) ack {}", 151 - unsent));
        let rest = if unsent == 0 { vec![] } else { vec!["1000 P. 101:151(50) ack 201"] };
        s.expect(&rest);
    }
}

#[test]
fn one_small_segment_may_be_under_way_as_minshall_has_it() {
    for (variant, second) in [(NagleVariant::Rfc896, false), (NagleVariant::Minshall, true)] {
        let mut s = Script::open(Config { nagle: true, nagle_variant: variant, ..config() });
        // A full segment, whose rest of 100 is small.
        s.write(1100);
        let mut lines = vec!["0 . 1:1001(1000) ack 1"];
        lines.extend(second.then_some("0 P. 1001:1101(100) ack 1"));
        s.expect(&lines);
        // Another small one waits either way, for Minshall until the small one before is acknowledged.
        s.write(50);
        s.expect(&[]);
        s.inject(". 1:1(0) ack 1001");
        if !second {
            s.expect(&["0 P. 1001:1151(150) ack 1"]);
            continue;
        }
        s.expect(&[]);
        s.inject(". 1:1(0) ack 1101");
        s.expect(&["0 P. 1101:1151(50) ack 1"]);
    }
}

#[test]
fn acknowledgements_wait_for_the_tick_of_a_clock_that_runs_on_its_own() {
    let timeout = Duration::from_millis(100);
    let delayed_ack = Some(DelayedAck { timeout, ..Default::default() });
    for (ack_timer, times) in [(AckTimer::FromArrival, [130, 300, 480]), (AckTimer::Tick, [100, 300, 400])] {
        let mut s = Script::open(Config { delayed_ack, ack_timer, ..config() });
        // At a tick itself the next one is waited for.
        for (i, at) in [30, 200, 380].into_iter().enumerate() {
            s.run_to(at);
            s.inject(&format!("P. {}:0(200) ack 1", 1 + 200 * i));
        }
        s.run_to(1000);
        let lines = times.iter().enumerate().map(|(i, at)| format!("{at} . 1:1(0) ack {}", 201 + 200 * i));
        let lines: Vec<String> = lines.collect();
        s.expect(&lines.iter().map(String::as_str).collect::<Vec<_>>());
    }
}

#[test]
fn small_segments_wait_for_the_tick_where_bytes_are_counted() {
    // ns-2's FullTcp with segsperack_ 1 and interval_ 0.1: a message of 200 bytes is not a segment's worth of 1000 and
    // waits; the byte that completes one is acknowledged at once.
    let timeout = Duration::from_millis(100);
    let delayed_ack = Some(DelayedAck { timeout, every: AckEvery::FullSized(1) });
    let mut s = Script::open(Config { delayed_ack, ack_timer: AckTimer::Tick, ..config() });
    s.run_to(40);
    s.inject("P. 1:201(200) ack 1");
    s.run_to(150);
    s.inject(". 201:1101(900) ack 1");
    s.inject(". 1101:1201(100) ack 1");
    s.expect(&["100 . 1:1(0) ack 201", "150 . 1:1(0) ack 1201"]);
}

#[test]
fn duplicates_of_what_a_timeout_sent_again_may_mean_nothing_to_reno_either() {
    for (reno_recover, entered) in [(false, 1), (true, 0)] {
        let initial_window = InitialWindow::Segments(8);
        let config = Config {
            recovery: Recovery::Reno,
            limited_transmit: false,
            reno_recover,
            initial_window,
            ..config()
        };
        let mut s = Script::open(config);
        s.write(8000);
        s.run_to(1000);
        for _ in 0..3 {
            s.inject(". 1:1(0) ack 1");
        }
        assert_eq!((s.c.stats().timeouts, s.c.stats().fast_retransmits), (1, entered));
    }
}
