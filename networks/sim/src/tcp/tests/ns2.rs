//! Differences of ns-2's FullTcp from the RFCs in windows and timers, each setting alone.

use super::*;

#[test]
fn the_window_grows_by_bytes_or_by_acknowledgements() {
    use WindowGrowth::{Acknowledgements, Bytes};
    for (window_growth, initial_ssthresh, after, segments) in
        [(Bytes, u32::MAX, 2200, 2), (Acknowledgements, u32::MAX, 3000, 3), (Acknowledgements, 2000, 2500, 2)]
    {
        let initial_window = InitialWindow::Segments(2);
        let mut s = ScriptedConnection::established(TcpConfig {
            window_growth,
            initial_ssthresh,
            initial_window,
            ..test_config()
        });
        s.write(200);
        s.inject_segment(". 1:1(0) ack 201");
        assert_eq!(s.c.cwnd(), after, "{window_growth:?}");
        s.write(9000);
        // A window of two and a half segments sends two.
        assert_eq!(s.c.bytes_in_flight(), segments * 1000, "{window_growth:?}");
    }
}

#[test]
fn a_timeout_halves_the_flight_once_or_the_window_each_time() {
    for (loss_halves, first, second) in [(LossHalves::Flight, 3000, 3000), (LossHalves::Window, 4000, 2000)] {
        let initial_window = InitialWindow::Segments(8);
        let mut s =
            ScriptedConnection::established(TcpConfig { loss_halves, initial_window, ..test_config() });
        s.write(6000);
        s.run_to(1000);
        assert_eq!((s.c.cwnd(), s.c.ssthresh()), (1000, first), "{loss_halves:?}");
        s.run_to(3000);
        assert_eq!((s.c.cwnd(), s.c.ssthresh()), (1000, second), "{loss_halves:?}");
    }
}

#[test]
fn a_fast_retransmission_halves_the_window_or_what_is_in_flight() {
    for (loss_halves, threshold) in [(LossHalves::Flight, 3000), (LossHalves::Window, 4000)] {
        let initial_window = InitialWindow::Segments(8);
        let limited_transmit = false;
        let mut s = ScriptedConnection::established(TcpConfig {
            loss_halves,
            initial_window,
            limited_transmit,
            ..test_config()
        });
        s.write(6000);
        for _ in 0..3 {
            s.inject_segment(". 1:1(0) ack 1");
        }
        assert_eq!((s.c.ssthresh(), s.c.cwnd()), (threshold, threshold + 3000), "{loss_halves:?}");
    }
}

#[test]
fn the_timer_restarts_with_the_new_or_the_old_timeout() {
    // The handshake took no time, so the timeout is 200 ms. The first segment takes 180 ms: a smoothed round trip of
    // 22.5 ms and a variation of 45 ms, a timeout of 202.5 ms.
    for (rto_restart, at) in [(RtoRestart::NewTimeout, 382), (RtoRestart::OldTimeout, 380)] {
        let mut s = ScriptedConnection::established(TcpConfig {
            rto_restart,
            min_rto: Duration::from_millis(200),
            ..test_config()
        });
        s.write(2000);
        s.run_to(180);
        s.inject_segment(". 1:1(0) ack 1001");
        s.run_to(390);
        s.expect_sent(&[
            "0 . 1:1001(1000) ack 1",
            "0 P. 1001:2001(1000) ack 1",
            &format!("{at} P. 1001:2001(1000) ack 1"),
        ]);
    }
}

#[test]
fn an_ack_of_new_data_may_restart_the_duplicate_count() {
    for (advancing_duplicates, again) in [(true, 1), (false, 0)] {
        let initial_window = InitialWindow::Segments(8);
        let config = TcpConfig {
            advancing_duplicates,
            recovery: LossRecoveryAlgorithm::Sack,
            initial_window,
            ..test_config()
        };
        let mut s = ScriptedConnection::open_to(config, "S. 0:0(0) ack 1 <mss 1000,sackOK>");
        s.write(8000);
        s.inject_segment(". 1:1(0) ack 1001 <sack 2001:5001>");
        assert_eq!(s.c.stats().fast_retransmits, again);
    }
}

#[test]
fn a_fast_retransmission_may_restart_the_timer() {
    for (fast_retransmit_restarts, at) in [(false, 1000), (true, 1500)] {
        let initial_window = InitialWindow::Segments(8);
        let mut s = ScriptedConnection::established(TcpConfig {
            fast_retransmit_restarts,
            initial_window,
            ..test_config()
        });
        s.write(8000);
        s.run_to(500);
        for _ in 0..3 {
            s.inject_segment(". 1:1(0) ack 1");
        }
        assert_eq!(s.c.stats().fast_retransmits, 1);
        assert_eq!(s.c.poll_timeout(), Some(at_millis(at)));
    }
}

#[test]
fn round_trips_may_be_counted_in_ticks() {
    let rtt_tick = Duration::from_millis(10);
    let mut s = ScriptedConnection::established(TcpConfig {
        rtt_tick,
        min_rto: Duration::from_millis(1),
        ..test_config()
    });
    // A round trip of zero counts as a tick: 10 + 4 * 5 ms.
    assert_eq!(s.c.rto(), Duration::from_millis(30));
    s.run_to(5);
    s.write(200);
    s.run_to(27);
    s.inject_segment(". 1:1(0) ack 201");
    // From 5 to 27 ms the clock ticks twice: 11.25 ms, of it ten count, and a variation of 7.5 ms.
    assert_eq!(s.c.srtt(), Some(Duration::from_micros(11_250)));
    assert_eq!(s.c.rto(), Duration::from_millis(40));
}

#[test]
fn silence_is_long_by_the_timeout_or_by_the_round_trips_alone() {
    for (idle_restart, window) in [(IdleRestart::Rto, 2200), (IdleRestart::MeasuredRto, 2000)] {
        let initial_window = InitialWindow::Segments(2);
        let mut s =
            ScriptedConnection::established(TcpConfig { idle_restart, initial_window, ..test_config() });
        s.write(200);
        s.inject_segment(". 1:1(0) ack 201");
        s.run_to(500);
        s.write(200);
        assert_eq!(s.c.cwnd(), window, "{idle_restart:?}");
    }
}

#[test]
fn a_lost_syn_may_leave_the_initial_window() {
    for (syn_loss_shrinks, loss_halves, window, threshold) in
        [(true, LossHalves::Flight, 1000, u32::MAX), (false, LossHalves::Window, 4000, 2000)]
    {
        let mut s = ScriptedConnection::connect(TcpConfig { syn_loss_shrinks, loss_halves, ..test_config() });
        s.run_to(1100);
        s.inject_segment("S. 0:0(0) ack 1 <mss 1000>");
        assert_eq!((s.c.cwnd(), s.c.ssthresh()), (window, threshold));
    }
}

#[test]
fn what_is_sent_again_with_something_new_is_timed_as_bsd_has_it() {
    for (nagle_variant, srtt) in [(NagleVariant::Rfc896, 0), (NagleVariant::Bsd, 37_500)] {
        let mut s = ScriptedConnection::established(TcpConfig {
            nagle: true,
            nagle_variant,
            delayed_ack: None,
            ..test_config()
        });
        s.write(100);
        s.write(50);
        s.run_to(1300);
        // An eighth of the 300 ms since 1000 ms, when it was retransmitted.
        s.inject_segment(". 1:1(0) ack 101");
        assert_eq!(s.c.srtt(), Some(Duration::from_micros(srtt)), "{nagle_variant:?}");
    }
}
