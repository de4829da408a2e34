//! An association neither panics nor exceeds its limits on any input.

use super::*;
use proptest::collection::vec;
use proptest::prelude::*;

/// Input of [`disturb`]: chunks with valid lengths and numbers near those in use, among noise.
fn any_fuzz_input() -> impl Strategy<Value = Vec<u8>> {
    let numbered = (0..12u8, any::<u8>(), 0..6u8, vec(0..8u8, 0..24)).prop_map(|(kind, flags, tsn, rest)| {
        let mut value = vec![0xff, 0xff, 0xff, 0xf0 + tsn];
        value.extend(rest);
        value.resize(value.len().next_multiple_of(4), 0);
        let mut event = vec![5 + 8 * u8::from(kind == 1), 4 + value.len() as u8];
        event.extend([kind, flags, 0, 4 + value.len() as u8]);
        event.extend(value);
        event
    });
    let noise = vec(any::<u8>(), 0..12);
    let events = vec(prop_oneof![4 => numbered, 1 => noise, 1 => Just(vec![3]), 1 => Just(vec![1])], 0..60);
    (any::<[u8; 2]>(), 0..5u8, events).prop_map(|(start, exchanges, events)| {
        let mut bytes = start.to_vec();
        bytes.push(exchanges);
        bytes.extend(events.concat());
        bytes
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn any_course_of_events_is_survived(bytes in any_fuzz_input()) {
        fuzz_association(&bytes);
    }

    #[test]
    fn any_chunks_are_survived(packets in vec((any::<bool>(), vec(codec::any_chunk(), 1..4)), 1..12)) {
        let mut w = SctpTestNetwork::established(test_config(), test_config(), 2);
        for (good_tag, chunks) in packets {
            let vtag = if good_tag { 11 } else { 0 };
            w.inject_packet(B, 1, SctpPacket { vtag, chunks });
        }
        w.run_to(secs_as_millis(100));
    }
}

/// The seed inputs of a fuzz target.
fn corpus_inputs(target: &str) -> Vec<Vec<u8>> {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus").join(target);
    let files = std::fs::read_dir(folder).unwrap().flatten();
    files.map(|file| std::fs::read(file.path()).unwrap()).collect()
}

#[test]
fn the_fuzzers_begin_with_good_inputs() {
    let packets = corpus_inputs("sctp_packet");
    assert!(packets.len() > 10);
    for bytes in packets {
        assert!(SctpPacket::parse(&bytes).is_ok(), "{bytes:?}");
        round_trip(&bytes);
    }
    corpus_inputs("sctp_association").iter().for_each(|bytes| fuzz_association(bytes));
}
