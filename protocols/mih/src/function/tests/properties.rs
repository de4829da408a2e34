//! Properties that hold for any loss, delay and duplication.

use super::*;
use proptest::prelude::*;
use usher_core::TransportProtocol;

/// The fate of each packet in turn: lost, or delivered once or twice after these milliseconds.
fn packet_fates() -> impl Strategy<Value = Vec<Vec<u64>>> {
    let fate = proptest::collection::vec(prop_oneof![3 => 5u64..40, 1 => 40u64..900], 0..3);
    proptest::collection::vec(fate, 1..40)
}

#[derive(Clone, Debug)]
struct PairConfig {
    ack: bool,
    response: Option<u64>,
    unanswered: ResponseTimeoutPolicy,
    ack_delay: u64,
    lifetime: u64,
    max_transactions: usize,
}

fn any_pair_config() -> impl Strategy<Value = PairConfig> {
    let unanswered = prop_oneof![
        Just(ResponseTimeoutPolicy::Wait),
        Just(ResponseTimeoutPolicy::Retransmit),
        Just(ResponseTimeoutPolicy::Abort)
    ];
    (any::<bool>(), proptest::option::of(10u64..500), unanswered, 0u64..300, 0u64..3000, 2usize..30).prop_map(
        |(ack, response, unanswered, ack_delay, lifetime, max_transactions)| PairConfig {
            ack,
            response,
            unanswered,
            ack_delay,
            lifetime,
            max_transactions,
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    #[test]
    fn whatever_is_sent_is_done_once(
        fates in packet_fates(),
        setting in any_pair_config(),
        transport in prop_oneof![3 => Just(TransportProtocol::Udp), 1 => Just(TransportProtocol::Tcp), 1 => Just(TransportProtocol::Sctp)],
        sent in proptest::collection::vec((0u64..2000, 0usize..2, any::<bool>()), 1..20),
        processing in 0u64..500,
        cut in proptest::option::of(0u64..2000),
    ) {
        let s = setting.clone();
        let mut pair = MihfPair::new(transport, s.ack, move |c| {
            c.timing.response = s.response.map(Duration::from_millis);
            c.timing.unanswered = s.unanswered;
            c.ack_delay = Duration::from_millis(s.ack_delay);
            c.lifetime = Duration::from_millis(s.lifetime);
            c.max_transactions = s.max_transactions;
            c.transaction = Some(Duration::from_secs(5));
        });
        let mut n = 0;
        pair.set_datagram_fate(move |_, _| {
            n += 1;
            fates[n % fates.len()].iter().map(|ms| Duration::from_millis(*ms)).collect()
        });
        let mut sent = sent;
        sent.sort();
        let mut accepted = Vec::new();
        for (token, (ms, side, ask)) in sent.iter().enumerate() {
            pair.serve_until(Duration::from_millis(processing), at_millis(*ms));
            if cut.is_some_and(|cut| cut < *ms) {
                pair.reset_connections();
            }
            let message = if *ask { test_request() } else { test_indication() };
            let to = mihf_id(1 - side);
            if pair.issue_command(*side, MihfCommand::Send { token: token as u64, to, message }).is_ok() {
                accepted.push(token as u64);
            }
        }
        pair.serve_until(Duration::from_millis(processing), at_millis(60_000));
        let mut done: Vec<u64> = pair.done_events().into_iter().map(|(_, token, _)| token).collect();
        done.sort_unstable();
        prop_assert_eq!(done, accepted);
        for side in [STATION, POS] {
            prop_assert!(pair.mihf_mut(side).peak_transactions() <= setting.max_transactions);
            let next = pair.mihf_mut(side).poll_timeout();
            prop_assert_eq!(next, None, "nothing is under way any more");
        }
    }

    #[test]
    fn without_loss_everything_succeeds_and_is_delivered_once(
        setting in any_pair_config(),
        transport in prop_oneof![Just(TransportProtocol::Udp), Just(TransportProtocol::Tcp), Just(TransportProtocol::Sctp)],
        chunk in 1usize..60,
        sent in proptest::collection::vec((0u64..2000, 0usize..2, any::<bool>()), 1..20),
    ) {
        let mut pair = MihfPair::new(transport, setting.ack, |c| c.ack_delay = Duration::from_millis(setting.ack_delay % 50));
        pair.net.set_segment_size(chunk);
        let mut sent = sent;
        sent.sort();
        for (token, (ms, side, ask)) in sent.iter().enumerate() {
            pair.serve_until(Duration::from_millis(5), at_millis(*ms));
            pair.send_message(*side, token as u64, if *ask { test_request() } else { test_indication() });
        }
        pair.serve_until(Duration::from_millis(5), at_millis(60_000));
        let done = pair.done_events();
        prop_assert!(done.iter().all(|(_, _, how)| matches!(&how[..], "done" | "response")));
        prop_assert_eq!(done.len(), sent.len());
        prop_assert_eq!(pair.delivered_count(STATION) + pair.delivered_count(POS), sent.len());
    }
}
