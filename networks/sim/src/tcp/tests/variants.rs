//! Where stacks differ: each variant beside what the RFCs have.

use super::*;

fn with(set: impl FnOnce(&mut Variants)) -> Config {
    let mut config = Config { challenge_ack_interval: Duration::ZERO, ..config() };
    set(&mut config.variants);
    config
}

#[test]
fn a_reset_in_the_window_is_challenged_or_resets() {
    let mut s = Script::open(with(|_| ()));
    s.inject("R 100:100(0)");
    s.expect(&["0 . 1:1(0) ack 1"]);
    let mut s = Script::open(with(|v| v.strict_rst = false));
    s.inject("R 70000:70000(0)");
    assert_eq!(s.c.state(), State::Established, "it lies beyond the window");
    s.inject("R 100:100(0)");
    s.closed_for(CloseReason::Reset);
    s.expect(&[]);
}

#[test]
fn a_syn_in_the_window_is_challenged_or_resets() {
    let mut s = Script::open(with(|_| ()));
    s.inject("S 100:100(0)");
    s.expect(&["0 . 1:1(0) ack 1"]);
    let mut s = Script::open(with(|v| v.strict_syn = false));
    s.inject("S 70000:70000(0)");
    s.expect(&["0 . 1:1(0) ack 1"]);
    s.inject("S 100:100(0)");
    s.expect(&["0 R. 1:1(0) ack 1 win 0"]);
    s.closed_for(CloseReason::Reset);
}

#[test]
fn a_reset_ends_time_wait_or_not() {
    let waiting = |config| {
        let mut s = Script::open(config);
        s.shutdown();
        s.inject("F. 1:1(0) ack 2");
        assert_eq!(s.c.state(), State::TimeWait);
        s.inject("R 2:2(0)");
        s.c.state()
    };
    assert_eq!(waiting(with(|_| ())), State::Closed);
    assert_eq!(waiting(with(|v| v.time_wait_ignores_rst = true)), State::TimeWait);
}

#[test]
fn a_fin_that_crossed_ours_is_acknowledged_alone_or_with_ours() {
    let crossed = |config| {
        let mut s = Script::open(config);
        s.shutdown();
        s.sent.clear();
        s.inject("F. 1:1(0) ack 1");
        assert_eq!(s.c.state(), State::Closing);
        s
    };
    crossed(with(|_| ())).expect(&["0 . 2:2(0) ack 2"]);
    let mut s = crossed(with(|v| v.fin_again = true));
    s.expect(&["0 F. 1:1(0) ack 2"]);
    assert_eq!(s.c.stats().retransmitted, 1);
    // Once only.
    s.inject(". 2000000:2000000(0) ack 1");
    s.expect(&["0 . 2:2(0) ack 2"]);
    s.inject(". 2:2(0) ack 2");
    assert_eq!(s.c.state(), State::TimeWait);
}

#[test]
fn what_came_twice_is_told_by_the_first_block() {
    let sack = |duplicate_sack| {
        let mut config = with(|v| v.duplicate_sack = duplicate_sack);
        config.recovery = Recovery::Sack;
        config.delayed_ack = None;
        Script::open_to(config, "S. 0:0(0) ack 1 <mss 1000,sackOK>")
    };
    let lines =
        ["P. 101:201(100) ack 1", "P. 151:301(150) ack 1", "P. 1:101(100) ack 1", "P. 1:51(50) ack 1"];
    let mut s = sack(false);
    lines.iter().for_each(|l| s.inject(l));
    s.expect(&[
        "0 . 1:1(0) ack 1 <sack 101:201>",
        "0 . 1:1(0) ack 1 <sack 101:301>",
        "0 . 1:1(0) ack 301",
        "0 . 1:1(0) ack 301",
    ]);
    let mut s = sack(true);
    lines.iter().for_each(|l| s.inject(l));
    // The run that holds the duplicate follows it (RFC 2883 4); data that is the window's own tells nothing.
    s.expect(&[
        "0 . 1:1(0) ack 1 <sack 101:201>",
        "0 . 1:1(0) ack 1 <sack 151:201,sack 101:301>",
        "0 . 1:1(0) ack 301",
        "0 . 1:1(0) ack 301 <sack 1:51>",
    ]);
    s.write(10);
    s.expect(&["0 P. 1:11(10) ack 301"]);
}

#[test]
fn a_partly_old_segment_is_acknowledged_at_once_where_it_is_told_of() {
    let mut config = with(|v| v.duplicate_sack = true);
    config.recovery = Recovery::Sack;
    let mut s = Script::open_to(config, "S. 0:0(0) ack 1 <mss 1000,sackOK>");
    s.inject("P. 1:101(100) ack 1");
    s.expect(&[]);
    s.inject("P. 1:201(200) ack 1");
    s.expect(&["0 . 1:1(0) ack 201 <sack 1:101>"]);
}

#[test]
fn the_window_grows_by_segments_or_at_every_segment() {
    let unread = |window_update| {
        let mut config = with(|v| v.window_update = window_update);
        config.receive_buffer = 10_000;
        config.delayed_ack = None;
        let mut s = Script::open(config);
        s.c.set_auto_read(false);
        s.inject("P. 1:1001(1000) ack 1");
        s.c.read(900);
        s.listen();
        s.flush();
        s.inject("P. 1001:1011(10) ack 1");
        s
    };
    // 900 bytes are less than a segment: the edge stays at 10 001.
    unread(WindowUpdate::Rfc9293).expect(&["0 . 1:1(0) ack 1001 win 9000", "0 . 1:1(0) ack 1011 win 8990"]);
    // 110 bytes are not read.
    unread(WindowUpdate::Bsd).expect(&["0 . 1:1(0) ack 1001 win 9000", "0 . 1:1(0) ack 1011 win 9890"]);
}

#[test]
fn room_for_one_segment_is_not_silly() {
    let mut config = with(|v| v.window_update = WindowUpdate::Bsd);
    config.receive_buffer = 10_000;
    config.delayed_ack = None;
    let last = |read: u32| {
        let mut s = Script::open(config.clone());
        s.c.set_auto_read(false);
        for seq in (1..9001).step_by(1000) {
            s.inject(&format!("P. {seq}:{}(1000) ack 1", seq + 1000));
        }
        s.inject("P. 9001:9501(500) ack 1");
        s.c.read(read);
        s.inject("P. 9501:9511(10) ack 1");
        s.sent.last().cloned().unwrap()
    };
    // With 510 read there is room for 1000, one segment, less than a quarter of the buffer; with 509 the edge stays.
    assert_eq!(last(510), "0 . 1:1(0) ack 9511 win 1000");
    assert_eq!(last(509), "0 . 1:1(0) ack 9511 win 490");
}

#[test]
fn a_buffer_beyond_the_windows_reach_is_used_once_it_is_set() {
    let config = with(|v| v.window_update = WindowUpdate::Bsd);
    let mut s = Script::open(config.clone());
    s.c.set_auto_read(false);
    s.c.reconfigure(Arc::new(Config { receive_buffer: 65_700, ..config }));
    s.inject("P. 1:101(100) ack 1");
    s.run_to(200);
    s.expect(&["200 . 1:1(0) ack 101"]);
    s.inject("P. 101:301(200) ack 1");
    s.run_to(400);
    s.expect(&["400 . 1:1(0) ack 301 win 65400"]);
}

#[test]
fn a_buffer_beyond_the_windows_reach_is_none_before_and_after_the_connection_is_open() {
    let mut config = with(|v| v.window_update = WindowUpdate::Bsd);
    config.receive_buffer = 70_000;
    // The window ends at 65 536, the buffer at 70 001.
    let beyond = |s: &mut Script| {
        s.inject(". 68000:68010(10) ack 1");
        s.c.stats().unacceptable
    };
    let mut s = Script::accept(config.clone(), "S 0:0(0)");
    assert_eq!((s.c.state(), beyond(&mut s)), (State::SynReceived, 1));
    s.inject(". 1:1(0) ack 1");
    assert_eq!((s.c.state(), beyond(&mut s)), (State::Established, 1));
    let mut s = Script::open(config.clone());
    assert_eq!(beyond(&mut s), 0);
    let mut s = Script::open(config);
    s.shutdown();
    s.inject("F. 1:1(0) ack 2");
    assert_eq!((s.c.state(), beyond(&mut s)), (State::TimeWait, 1));
}

#[test]
fn slop_is_added_to_every_timeout_but_the_first() {
    let mut s = Script::connect(with(|v| v.rto_slop = Duration::from_millis(200)));
    s.run_to(8000);
    let syn = |at: u32| format!("{at} S 0:0(0) <mss 1000>");
    s.expect(&[&syn(0), &syn(1000), &syn(3200), &syn(7400)]);
}

#[test]
fn a_connection_without_options_neither_sends_nor_takes_any() {
    let mut config = with(|v| v.options = false);
    config.window_scale = None;
    let mut s = Script::connect(config.clone());
    s.expect(&["0 S 0:0(0)"]);
    s.inject("S. 0:0(0) ack 1 <mss 9000,sackOK,ts 5:0>");
    s.expect(&["0 . 1:1(0) ack 1"]);
    assert_eq!(s.c.mss(), 536);
    assert_eq!(s.c.negotiated(), (false, false, false));
    Script::accept(config, "S 0:0(0) <mss 900>").expect(&["0 S. 0:0(0) ack 1"]);
}

#[test]
fn a_fin_on_a_syn_is_left_for_later() {
    let mut s = Script::accept(config(), "SF 0:0(0)");
    s.expect(&["0 S. 0:0(0) ack 1 <mss 1000>"]);
    s.inject("F. 1:1(0) ack 1");
    s.hear(&["connected", "peer closed"]);
    assert_eq!(s.c.state(), State::CloseWait);
}
