//! With any losses and reordering, each message arrives once, in its stream's order, and then all is quiet.

use super::*;
use proptest::prelude::*;

#[derive(Clone, Debug)]
struct TransferPlan {
    /// Pause before it in milliseconds, sender, stream, unordered, length.
    messages: Vec<(u64, usize, u16, bool, u32)>,
    /// True for each lost packet in turn; all later ones arrive.
    lost: Vec<bool>,
    /// Extra delay of each packet in turn, in milliseconds.
    late: Vec<u64>,
    paths: u8,
    nagle: bool,
    sack_delay: Option<Duration>,
    buffer: u32,
    limits: Option<u32>,
}

fn any_plan() -> impl Strategy<Value = TransferPlan> {
    let pause = prop_oneof![Just(0), 0..30u64, 0..3000u64];
    let len = prop_oneof![1..300u32, 1..3000u32];
    let message = (pause, 0..2usize, 0..3u16, any::<bool>(), len);
    let lost = (proptest::collection::vec(any::<u8>(), 0..60), prop_oneof![Just(40u8), Just(128), Just(230)])
        .prop_map(|(draws, below)| draws.into_iter().map(|d| d < below).collect::<Vec<_>>());
    (
        proptest::collection::vec(message, 1..25),
        lost,
        proptest::collection::vec(0..120u64, 1..10),
        1..4u8,
        any::<bool>(),
        prop_oneof![Just(None), Just(Some(millis(200)))],
        prop_oneof![Just(4000u32), Just(131_072)],
        prop_oneof![Just(None), Just(Some(4u32))],
    )
        .prop_map(|(messages, lost, late, paths, nagle, sack_delay, buffer, limits)| TransferPlan {
            messages,
            lost,
            late,
            paths,
            nagle,
            sack_delay,
            buffer,
            limits,
        })
}

/// A message's content: its number, then a count.
fn message_content(i: usize, len: u32) -> Vec<u8> {
    (0..len).map(|at| if at == 0 { i as u8 } else { at as u8 }).collect()
}

fn run_plan(plan: TransferPlan, heartbeats: bool) {
    let config = SctpConfig {
        nagle: plan.nagle,
        sack_delay: plan.sack_delay,
        receive_buffer: plan.buffer,
        max_burst: plan.limits,
        max_association_retransmissions: None,
        max_init_retransmissions: None,
        max_path_retransmissions: 2,
        heartbeat_interval: heartbeats.then(|| millis(5000)),
        rto_max: millis(8000),
        ..test_config()
    };
    let mut lost = plan.lost.into_iter();
    let mut late = plan.late.into_iter().cycle();
    let mut w = SctpTestNetwork::new(config.clone(), config, plan.paths);
    w.as_bytes = true;
    w.loss = Box::new(move |_, _, _, _| lost.next().unwrap_or(false));
    w.jitter = Box::new(move || millis(late.next().unwrap_or(0)));
    w.connect_end(A);
    let mut at = 0;
    let mut sent: [Vec<(u16, bool, Vec<u8>)>; 2] = Default::default();
    for (i, (pause, end, stream, unordered, len)) in plan.messages.into_iter().enumerate() {
        at += pause;
        w.run_to(at);
        let end = if w.ends[end].is_some() { end } else { A };
        let bytes = message_content(i, len);
        let message = UserMessage { stream, ppid: 1, unordered, payload: Payload::copy_from_slice(&bytes) };
        w.with_end(end, |a, now| a.send_message(now, message)).unwrap();
        sent[end].push((stream, unordered, bytes));
    }
    w.run_to(at + secs_as_millis(3000));
    for (end, sent) in [(B, &sent[A]), (A, &sent[B])] {
        let come: Vec<_> =
            w.messages[end].iter().map(|m| (m.stream, m.unordered, m.payload.as_slice().to_vec())).collect();
        let (mut all, mut expected) = (come.clone(), sent.clone());
        all.sort();
        expected.sort();
        assert_eq!(all, expected, "each message comes once");
        for stream in 0..3 {
            let ordered = |list: &[(u16, bool, Vec<u8>)]| -> Vec<Vec<u8>> {
                list.iter().filter(|m| m.0 == stream && !m.1).map(|m| m.2.clone()).collect()
            };
            assert_eq!(ordered(&come), ordered(sent), "in the order of stream {stream}");
        }
    }
    for end in w.ends.iter().flatten() {
        assert_eq!(end.bytes_outstanding(), 0);
        assert_eq!(end.state(), SctpAssociationState::Established);
    }
    if !heartbeats {
        w.is_idle();
    }
    // An end that loses too many packets is cut short by T5-shutdown-guard.
    w.loss = Box::new(|_, _, _, _| false);
    w.with_end(A, |a, now| a.shutdown(now));
    w.run_to(at + secs_as_millis(3600));
    assert!(w.end_a().is_closed() && w.end_b().is_closed());
    w.is_idle();
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn every_message_comes_once_and_in_order(plan in any_plan()) {
        run_plan(plan, false);
    }

    #[test]
    fn heartbeats_change_nothing_of_that(plan in any_plan()) {
        run_plan(plan, true);
    }
}

#[test]
fn one_small_message_at_a_time_with_pauses_never_stalls() {
    for (nagle, sack_delay) in
        [(false, None), (true, None), (false, Some(millis(200))), (true, Some(millis(200)))]
    {
        let config = SctpConfig { nagle, sack_delay, ..test_config() };
        let mut w = SctpTestNetwork::established(config.clone(), config, 1);
        for i in 0..2000u64 {
            w.run_to(1000 + 37 * i);
            w.send_message(A, (i % 7) as u16, 100);
            if i % 3 == 0 {
                w.send_message(B, 0, 50);
            }
        }
        w.run_to(secs_as_millis(100));
        assert_eq!((w.messages[B].len(), w.messages[A].len()), (2000, 667));
        assert_eq!(w.end_a().stats().timeouts + w.end_b().stats().timeouts, 0);
        w.is_idle();
    }
}
