//! Differences between stacks: each variant beside the RFCs' behaviour.

use super::*;

fn config_with(set: impl FnOnce(&mut TcpStackVariants)) -> TcpConfig {
    let mut config = TcpConfig { challenge_ack_interval: Duration::ZERO, ..test_config() };
    set(&mut config.variants);
    config
}

#[test]
fn a_reset_in_the_window_is_challenged_or_resets() {
    let mut s = ScriptedConnection::established(config_with(|_| ()));
    s.inject_segment("R 100:100(0)");
    s.expect_sent(&["0 . 1:1(0) ack 1"]);
    let mut s = ScriptedConnection::established(config_with(|v| v.strict_rst = false));
    s.inject_segment("R 70000:70000(0)");
    assert_eq!(s.c.state(), TcpState::Established, "it lies beyond the window");
    s.inject_segment("R 100:100(0)");
    s.closed_for(CloseReason::Reset);
    s.expect_sent(&[]);
}

#[test]
fn a_syn_in_the_window_is_challenged_or_resets() {
    let mut s = ScriptedConnection::established(config_with(|_| ()));
    s.inject_segment("S 100:100(0)");
    s.expect_sent(&["0 . 1:1(0) ack 1"]);
    let mut s = ScriptedConnection::established(config_with(|v| v.strict_syn = false));
    s.inject_segment("S 70000:70000(0)");
    s.expect_sent(&["0 . 1:1(0) ack 1"]);
    s.inject_segment("S 100:100(0)");
    s.expect_sent(&["0 R. 1:1(0) ack 1 win 0"]);
    s.closed_for(CloseReason::Reset);
}

#[test]
fn a_reset_ends_time_wait_or_not() {
    let waiting = |config| {
        let mut s = ScriptedConnection::established(config);
        s.shutdown();
        s.inject_segment("F. 1:1(0) ack 2");
        assert_eq!(s.c.state(), TcpState::TimeWait);
        s.inject_segment("R 2:2(0)");
        s.c.state()
    };
    assert_eq!(waiting(config_with(|_| ())), TcpState::Closed);
    assert_eq!(waiting(config_with(|v| v.time_wait_ignores_rst = true)), TcpState::TimeWait);
}

#[test]
fn a_fin_that_crossed_ours_is_acknowledged_alone_or_with_ours() {
    let crossed = |config| {
        let mut s = ScriptedConnection::established(config);
        s.shutdown();
        s.sent.clear();
        s.inject_segment("F. 1:1(0) ack 1");
        assert_eq!(s.c.state(), TcpState::Closing);
        s
    };
    crossed(config_with(|_| ())).expect_sent(&["0 . 2:2(0) ack 2"]);
    let mut s = crossed(config_with(|v| v.fin_again = true));
    s.expect_sent(&["0 F. 1:1(0) ack 2"]);
    assert_eq!(s.c.stats().retransmitted, 1);
    // Once only.
    s.inject_segment(". 2000000:2000000(0) ack 1");
    s.expect_sent(&["0 . 2:2(0) ack 2"]);
    s.inject_segment(". 2:2(0) ack 2");
    assert_eq!(s.c.state(), TcpState::TimeWait);
}

#[test]
fn what_came_twice_is_told_by_the_first_block() {
    let sack = |duplicate_sack| {
        let mut config = config_with(|v| v.duplicate_sack = duplicate_sack);
        config.recovery = LossRecoveryAlgorithm::Sack;
        config.delayed_ack = None;
        ScriptedConnection::open_to(config, "S. 0:0(0) ack 1 <mss 1000,sackOK>")
    };
    let lines =
        ["P. 101:201(100) ack 1", "P. 151:301(150) ack 1", "P. 1:101(100) ack 1", "P. 1:51(50) ack 1"];
    let mut s = sack(false);
    lines.iter().for_each(|l| s.inject_segment(l));
    s.expect_sent(&[
        "0 . 1:1(0) ack 1 <sack 101:201>",
        "0 . 1:1(0) ack 1 <sack 101:301>",
        "0 . 1:1(0) ack 301",
        "0 . 1:1(0) ack 301",
    ]);
    let mut s = sack(true);
    lines.iter().for_each(|l| s.inject_segment(l));
    // The run with the duplicate follows it (RFC 2883 4); in-order data of the window is not reported.
    s.expect_sent(&[
        "0 . 1:1(0) ack 1 <sack 101:201>",
        "0 . 1:1(0) ack 1 <sack 151:201,sack 101:301>",
        "0 . 1:1(0) ack 301",
        "0 . 1:1(0) ack 301 <sack 1:51>",
    ]);
    s.write(10);
    s.expect_sent(&["0 P. 1:11(10) ack 301"]);
}

#[test]
fn a_partly_old_segment_gets_a_duplicate_sack_at_once() {
    let mut config = config_with(|v| v.duplicate_sack = true);
    config.recovery = LossRecoveryAlgorithm::Sack;
    let mut s = ScriptedConnection::open_to(config, "S. 0:0(0) ack 1 <mss 1000,sackOK>");
    s.inject_segment("P. 1:101(100) ack 1");
    s.expect_sent(&[]);
    s.inject_segment("P. 1:201(200) ack 1");
    s.expect_sent(&["0 . 1:1(0) ack 201 <sack 1:101>"]);
}

#[test]
fn the_window_grows_by_segments_or_at_every_segment() {
    let unread = |window_update| {
        let mut config = config_with(|v| v.window_update = window_update);
        config.receive_buffer = 10_000;
        config.delayed_ack = None;
        let mut s = ScriptedConnection::established(config);
        s.c.set_auto_read(false);
        s.inject_segment("P. 1:1001(1000) ack 1");
        s.c.grant_credit(900);
        s.collect_events();
        s.collect_output();
        s.inject_segment("P. 1001:1011(10) ack 1");
        s
    };
    // 900 bytes are less than a segment: the edge stays at 10 001.
    unread(ReceiveWindowUpdateRule::Rfc9293)
        .expect_sent(&["0 . 1:1(0) ack 1001 win 9000", "0 . 1:1(0) ack 1011 win 8990"]);
    // 110 octets are unread.
    unread(ReceiveWindowUpdateRule::Bsd)
        .expect_sent(&["0 . 1:1(0) ack 1001 win 9000", "0 . 1:1(0) ack 1011 win 9890"]);
}

#[test]
fn room_for_one_segment_is_not_silly() {
    let mut config = config_with(|v| v.window_update = ReceiveWindowUpdateRule::Bsd);
    config.receive_buffer = 10_000;
    config.delayed_ack = None;
    let last = |read: u32| {
        let mut s = ScriptedConnection::established(config.clone());
        s.c.set_auto_read(false);
        for seq in (1..9001).step_by(1000) {
            s.inject_segment(&format!("P. {seq}:{}(1000) ack 1", seq + 1000));
        }
        s.inject_segment("P. 9001:9501(500) ack 1");
        s.c.grant_credit(read);
        s.inject_segment("P. 9501:9511(10) ack 1");
        s.sent.last().cloned().unwrap()
    };
    // After a read of 510 there is room for 1000, one segment, less than a quarter of the buffer; after 509 the edge
    // stays.
    assert_eq!(last(510), "0 . 1:1(0) ack 9511 win 1000");
    assert_eq!(last(509), "0 . 1:1(0) ack 9511 win 490");
}

#[test]
fn a_buffer_beyond_the_windows_reach_is_used_once_it_is_set() {
    let config = config_with(|v| v.window_update = ReceiveWindowUpdateRule::Bsd);
    let mut s = ScriptedConnection::established(config.clone());
    s.c.set_auto_read(false);
    s.c.reconfigure(Arc::new(TcpConfig { receive_buffer: 65_700, ..config }));
    s.inject_segment("P. 1:101(100) ack 1");
    s.run_to(200);
    s.expect_sent(&["200 . 1:1(0) ack 101"]);
    s.inject_segment("P. 101:301(200) ack 1");
    s.run_to(400);
    s.expect_sent(&["400 . 1:1(0) ack 301 win 65400"]);
}

#[test]
fn buffer_beyond_the_window_counts_only_on_an_open_connection() {
    let mut config = config_with(|v| v.window_update = ReceiveWindowUpdateRule::Bsd);
    config.receive_buffer = 70_000;
    // The window ends at 65 536, the buffer at 70 001.
    let beyond = |s: &mut ScriptedConnection| {
        s.inject_segment(". 68000:68010(10) ack 1");
        s.c.stats().unacceptable
    };
    let mut s = ScriptedConnection::accept(config.clone(), "S 0:0(0)");
    assert_eq!((s.c.state(), beyond(&mut s)), (TcpState::SynReceived, 1));
    s.inject_segment(". 1:1(0) ack 1");
    assert_eq!((s.c.state(), beyond(&mut s)), (TcpState::Established, 1));
    let mut s = ScriptedConnection::established(config.clone());
    assert_eq!(beyond(&mut s), 0);
    let mut s = ScriptedConnection::established(config);
    s.shutdown();
    s.inject_segment("F. 1:1(0) ack 2");
    assert_eq!((s.c.state(), beyond(&mut s)), (TcpState::TimeWait, 1));
}

#[test]
fn slop_is_added_to_every_timeout_but_the_first() {
    let mut s = ScriptedConnection::connect(config_with(|v| v.rto_slop = Duration::from_millis(200)));
    s.run_to(8000);
    let syn = |at: u32| format!("{at} S 0:0(0) <mss 1000>");
    s.expect_sent(&[&syn(0), &syn(1000), &syn(3200), &syn(7400)]);
}

#[test]
fn a_connection_without_options_neither_sends_nor_takes_any() {
    let mut config = config_with(|v| v.options = false);
    config.window_scale = None;
    let mut s = ScriptedConnection::connect(config.clone());
    s.expect_sent(&["0 S 0:0(0)"]);
    s.inject_segment("S. 0:0(0) ack 1 <mss 9000,sackOK,ts 5:0>");
    s.expect_sent(&["0 . 1:1(0) ack 1"]);
    assert_eq!(s.c.mss(), 536);
    assert_eq!(s.c.negotiated_options(), (false, false, false));
    ScriptedConnection::accept(config, "S 0:0(0) <mss 900>").expect_sent(&["0 S. 0:0(0) ack 1"]);
}

#[test]
fn a_fin_on_a_syn_is_left_for_later() {
    let mut s = ScriptedConnection::accept(test_config(), "SF 0:0(0)");
    s.expect_sent(&["0 S. 0:0(0) ack 1 <mss 1000>"]);
    s.inject_segment("F. 1:1(0) ack 1");
    s.expect_events(&["connected", "peer closed"]);
    assert_eq!(s.c.state(), TcpState::CloseWait);
}
