//! CUBIC (RFC 9438) in whole connections.

use super::*;

/// A sender with much pending data and `segments` of 1000 octets in flight, to a peer 100 ms away with a large
/// window.
fn bulk_sender(congestion: CongestionControl, segments: u32) -> ScriptedConnection {
    let initial_window = InitialWindow::Segments(segments);
    let mut s = ScriptedConnection::connect(TcpConfig {
        congestion,
        initial_window,
        initial_ssthresh: segments * 1000,
        limited_transmit: false,
        window_scale: Some(8),
        ..test_config()
    });
    s.run_to(100);
    s.inject_segment("S. 0:0(0) ack 1 <mss 1000,wscale 8>");
    s.inject_segment(". 1:1(0) ack 1");
    s.write(100_000_000);
    assert_eq!(s.c.bytes_in_flight(), segments * 1000);
    s
}

/// A round trip later, acknowledges each segment of the flight.
fn ack_round(s: &mut ScriptedConnection, ms: u64) {
    let (from, to) = (s.c.una, s.c.max);
    s.run_to(s.now.as_nanos() / 1_000_000 + ms);
    for ack in (from + 1000..=to).step_by(1000) {
        s.inject_segment(&format!(". 1:1(0) ack {ack}"));
    }
}

/// A round trip later, the others report the first segment missing, and it is repaired.
fn lose_first_segment(s: &mut ScriptedConnection) {
    let (from, to) = (s.c.una, s.c.max);
    s.run_to(s.now.as_nanos() / 1_000_000 + 100);
    for _ in (from + 2000..=to).step_by(1000) {
        s.inject_segment(&format!(". 1:1(0) ack {from}"));
    }
    s.inject_segment(&format!(". 1:1(0) ack {to}"));
    assert_eq!((s.c.stats().timeouts, s.c.in_recovery), (0, false));
}

/// The window in segments.
fn window_segments(s: &ScriptedConnection) -> f64 {
    f64::from(s.c.cwnd()) / 1000.0
}

#[test]
fn a_loss_keeps_seven_tenths_and_a_timeout_one_segment() {
    let mut s = bulk_sender(CongestionControl::Cubic, 10);
    lose_first_segment(&mut s);
    assert_eq!((s.c.cwnd(), s.c.ssthresh()), (7000, 7000));
    s.run_to(2000);
    assert_eq!((s.c.cwnd(), s.c.ssthresh(), s.c.stats().timeouts), (1000, 4900, 1));
    let mut s = bulk_sender(CongestionControl::Cubic, 2);
    s.run_to(1500);
    assert_eq!((s.c.ssthresh(), s.c.stats().timeouts), (2000, 1), "two segments are the least");
}

#[test]
fn the_window_follows_the_cubic_to_the_old_maximum_and_beyond() {
    let mut s = bulk_sender(CongestionControl::Cubic, 150);
    lose_first_segment(&mut s);
    assert_eq!(s.c.cwnd(), 105_000);
    // K = cbrt(45 / 0.4) = 4.827 s; W(1) = 105 + 0.4 (112.5 - 3.827³) = 127.6; W(3) = 147.6; W(7) = 154.1;
    // W(9) = 179.1. The window is that of the next round trip, less a round trip's lag.
    let mut at = Vec::new();
    for _ in 0..90 {
        ack_round(&mut s, 100);
        at.push(window_segments(&s));
    }
    for (n, expected) in [(10, 127.6), (30, 147.6), (48, 150.0), (70, 154.1), (90, 179.1)] {
        let w = at[n - 1];
        assert!((w - expected).abs() <= 3.0, "{w} after {n} round trips, not {expected}");
    }
    assert!(at.is_sorted(), "no loss, no step down");
}

#[test]
fn on_short_round_trips_cubic_matches_the_average_of_reno() {
    let mut s = bulk_sender(CongestionControl::Cubic, 20);
    lose_first_segment(&mut s);
    assert_eq!(s.c.cwnd(), 14_000);
    // 6 segments at 9/17 a round trip are 11.3 of them, or 0.06 s of K = 2.47 s; then one a round trip.
    for _ in 0..11 {
        ack_round(&mut s, 5);
    }
    assert!((19.0..=20.0).contains(&window_segments(&s)), "{}", window_segments(&s));
    for _ in 0..11 {
        ack_round(&mut s, 5);
    }
    assert!((29.0..=31.0).contains(&window_segments(&s)), "{}", window_segments(&s));
}

#[test]
fn a_second_loss_below_the_maximum_plateaus_earlier() {
    let mut s = bulk_sender(CongestionControl::Cubic, 100);
    lose_first_segment(&mut s);
    ack_round(&mut s, 100);
    assert_eq!(s.c.cwnd(), 70_000);
    lose_first_segment(&mut s);
    assert_eq!(s.c.cwnd(), 49_000);
    // Fast convergence: the plateau is at 0.85 · 70 = 59.5, reached at K = cbrt(10.5 / 0.4) = 2.97 s; without
    // it at 70 after 3.74 s. W_est gains 9/17 a round trip, and is above from about 2 s on.
    for (rounds, least, most) in [(10, 55.5, 57.0), (10, 58.0, 60.0), (10, 63.0, 65.0)] {
        (0..rounds).for_each(|_| ack_round(&mut s, 100));
        assert!((least..=most).contains(&window_segments(&s)), "{} after {rounds}", window_segments(&s));
    }
}

#[test]
fn after_a_timeout_cubic_grows_without_a_plateau() {
    let mut s = bulk_sender(CongestionControl::Cubic, 100);
    s.run_to(1200);
    assert_eq!((s.c.cwnd(), s.c.ssthresh(), s.c.stats().timeouts), (1000, 70_000, 1));
    // The peer missed only the first segment.
    let to = s.c.max;
    s.inject_segment(&format!(". 1:1(0) ack {to}"));
    while s.c.cwnd() < s.c.ssthresh() {
        ack_round(&mut s, 100);
    }
    let begun = window_segments(&s);
    for _ in 0..20 {
        ack_round(&mut s, 100);
    }
    // K = 0: 0.4 · 2³ = 3.2 by the function; W_est gains 9/17 in each of the 20 round trips, and is the
    // larger one.
    let gained = window_segments(&s) - begun;
    assert!((9.0..=12.0).contains(&gained), "{gained}");
}

#[test]
fn a_dialogue_does_not_widen_the_window() {
    let mut cubic =
        ScriptedConnection::established(TcpConfig { congestion: CongestionControl::Cubic, ..test_config() });
    let mut reno = ScriptedConnection::established(test_config());
    for s in [&mut cubic, &mut reno] {
        for i in 1..=100 {
            s.write(200);
            s.run_to(10 * i);
            s.inject_segment(&format!(". 1:1(0) ack {}", 1 + 200 * i));
        }
    }
    assert_eq!(cubic.c.cwnd(), 4000);
    assert_eq!(reno.c.cwnd(), 4000 + 100 * 200, "RFC 5681 asks for no more than an acknowledgement");
}

#[test]
fn on_a_long_path_it_outgrows_reno_after_a_loss() {
    let [cubic, reno] = [CongestionControl::Cubic, CongestionControl::Reno].map(|congestion| {
        let mut s = bulk_sender(congestion, 400);
        lose_first_segment(&mut s);
        let mut acknowledged = 0;
        for _ in 0..100 {
            acknowledged += s.c.bytes_in_flight() / 1000;
            ack_round(&mut s, 100);
        }
        acknowledged
    });
    // Reno: 200 + n after n round trips, 100 · 250 = 25 000. CUBIC: K = cbrt(120 / 0.4) = 6.7 s,
    // 100 · 400 - 0.4 · 10 · (6.7⁴ - 3.3⁴) / 4 = 38 100.
    assert!((24_500..=25_500).contains(&reno), "{reno}");
    assert!((37_500..=38_700).contains(&cubic), "{cubic}");
}
