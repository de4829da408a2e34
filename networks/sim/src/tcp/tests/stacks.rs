//! Differences of stacks and simulators from the RFCs, each setting alone on a trace calculated by hand.

use super::*;

#[test]
fn the_backoff_ends_with_a_measurement_or_with_any_ack() {
    // The handshake measured only the lower bound of 1 s. A retransmission gives no measurement (Karn). By RFC 6298
    // the next segment waits the doubled 2 s, in ns-2 the measured 1 s.
    for (backoff_reset, again) in [(BackoffReset::Measurement, 3200), (BackoffReset::Acknowledgement, 2200)] {
        let mut s = ScriptedConnection::established(TcpConfig { backoff_reset, ..test_config() });
        s.write(200);
        s.run_to(1100);
        s.inject_segment(". 1:1(0) ack 201");
        s.run_to(1200);
        s.write(200);
        s.run_to(again);
        s.expect_sent(&[
            "0 P. 1:201(200) ack 1",
            "1000 P. 1:201(200) ack 1",
            "1200 P. 201:401(200) ack 1",
            &format!("{again} P. 201:401(200) ack 1"),
        ]);
    }
}

#[test]
fn without_measurement_the_backoff_ends_at_the_initial_timeout() {
    // The SYN-ACK answers a retransmitted SYN, so there is no measurement and 3 s apply (RFC 6298 section 5.7).
    let backoff_reset = BackoffReset::Acknowledgement;
    let mut s = ScriptedConnection::connect(TcpConfig {
        backoff_reset,
        initial_rto: Duration::from_secs(2),
        ..test_config()
    });
    s.run_to(2100);
    s.inject_segment("S. 0:0(0) ack 1 <mss 1000>");
    s.write(200);
    s.run_to(5100);
    assert_eq!(s.c.rto(), Duration::from_secs(6));
    s.inject_segment(". 1:1(0) ack 201");
    assert_eq!(s.c.rto(), Duration::from_secs(2));
}

/// A hundred octets are unacknowledged and Nagle delays fifty; at 10 ms 200 octets arrive.
fn nagle_blocked_connection(nagle_variant: NagleVariant) -> ScriptedConnection {
    let mut s = ScriptedConnection::established(TcpConfig { nagle: true, nagle_variant, ..test_config() });
    s.write(100);
    s.write(50);
    s.expect_sent(&["0 P. 1:101(100) ack 1"]);
    s.run_to(10);
    s.inject_segment("P. 1:201(200) ack 1");
    s
}

#[test]
fn on_bsd_a_due_ack_carries_the_data_that_nagle_holds() {
    for (variant, line) in [
        (NagleVariant::Rfc896, "210 . 101:101(0) ack 201"),
        (NagleVariant::Minshall, "210 . 101:101(0) ack 201"),
        (NagleVariant::Bsd, "210 P. 101:151(50) ack 201"),
    ] {
        let mut s = nagle_blocked_connection(variant);
        s.run_to(210);
        s.expect_sent(&[line]);
    }
}

#[test]
fn a_retransmission_takes_along_what_nagle_holds_as_bsd_has_it() {
    for (variant, line, unsent) in [
        (NagleVariant::Rfc896, "1000 . 1:101(100) ack 201", 50),
        (NagleVariant::Bsd, "1000 P. 1:151(150) ack 201", 0),
    ] {
        let mut s = ScriptedConnection::established(TcpConfig {
            nagle: true,
            nagle_variant: variant,
            delayed_ack: None,
            ..test_config()
        });
        s.inject_segment("P. 1:201(200) ack 1");
        s.expect_sent(&["0 . 1:1(0) ack 201"]);
        s.write(100);
        s.write(50);
        s.expect_sent(&["0 P. 1:101(100) ack 201"]);
        s.run_to(1000);
        s.expect_sent(&[line]);
        assert_eq!(s.c.bytes_unsent(), unsent);
        // The retransmitted data is acknowledged with it, and no data is sent twice.
        s.inject_segment(&format!(". 201:201(0) ack {}", 151 - unsent));
        let rest = if unsent == 0 { vec![] } else { vec!["1000 P. 101:151(50) ack 201"] };
        s.expect_sent(&rest);
    }
}

#[test]
fn one_small_segment_may_be_under_way_as_minshall_has_it() {
    for (variant, second) in [(NagleVariant::Rfc896, false), (NagleVariant::Minshall, true)] {
        let mut s = ScriptedConnection::established(TcpConfig {
            nagle: true,
            nagle_variant: variant,
            ..test_config()
        });
        // A full segment and a small rest of 100.
        s.write(1100);
        let mut lines = vec!["0 . 1:1001(1000) ack 1"];
        lines.extend(second.then_some("0 P. 1001:1101(100) ack 1"));
        s.expect_sent(&lines);
        // Another small one waits in both variants, for Minshall until the small one before is acknowledged.
        s.write(50);
        s.expect_sent(&[]);
        s.inject_segment(". 1:1(0) ack 1001");
        if !second {
            s.expect_sent(&["0 P. 1001:1151(150) ack 1"]);
            continue;
        }
        s.expect_sent(&[]);
        s.inject_segment(". 1:1(0) ack 1101");
        s.expect_sent(&["0 P. 1101:1151(50) ack 1"]);
    }
}

#[test]
fn acks_wait_for_the_tick_of_a_free_running_clock() {
    let timeout = Duration::from_millis(100);
    let delayed_ack = Some(DelayedAck { timeout, ..Default::default() });
    for (ack_timer, times) in [(AckTimer::FromArrival, [130, 300, 480]), (AckTimer::Tick, [100, 300, 400])] {
        let mut s = ScriptedConnection::established(TcpConfig { delayed_ack, ack_timer, ..test_config() });
        // At a tick itself the acknowledgement waits for the next.
        for (i, at) in [30, 200, 380].into_iter().enumerate() {
            s.run_to(at);
            s.inject_segment(&format!("P. {}:0(200) ack 1", 1 + 200 * i));
        }
        s.run_to(1000);
        let lines = times.iter().enumerate().map(|(i, at)| format!("{at} . 1:1(0) ack {}", 201 + 200 * i));
        let lines: Vec<String> = lines.collect();
        s.expect_sent(&lines.iter().map(String::as_str).collect::<Vec<_>>());
    }
}

#[test]
fn small_segments_wait_for_the_tick_where_bytes_are_counted() {
    // ns-2's FullTcp with segsperack_ 1 and interval_ 0.1: a message of 200 octets is less than a segment of 1000
    // and waits. The octet that completes one is acknowledged at once.
    let timeout = Duration::from_millis(100);
    let delayed_ack = Some(DelayedAck { timeout, every: AckThreshold::FullSized(1) });
    let mut s = ScriptedConnection::established(TcpConfig {
        delayed_ack,
        ack_timer: AckTimer::Tick,
        ..test_config()
    });
    s.run_to(40);
    s.inject_segment("P. 1:201(200) ack 1");
    s.run_to(150);
    s.inject_segment(". 201:1101(900) ack 1");
    s.inject_segment(". 1101:1201(100) ack 1");
    s.expect_sent(&["100 . 1:1(0) ack 201", "150 . 1:1(0) ack 1201"]);
}

#[test]
fn reno_may_ignore_duplicates_of_timeout_retransmissions() {
    for (reno_recover, entered) in [(false, 1), (true, 0)] {
        let initial_window = InitialWindow::Segments(8);
        let config = TcpConfig {
            recovery: LossRecoveryAlgorithm::Reno,
            limited_transmit: false,
            reno_recover,
            initial_window,
            ..test_config()
        };
        let mut s = ScriptedConnection::established(config);
        s.write(8000);
        s.run_to(1000);
        for _ in 0..3 {
            s.inject_segment(". 1:1(0) ack 1");
        }
        assert_eq!((s.c.stats().timeouts, s.c.stats().fast_retransmits), (1, entered));
    }
}
