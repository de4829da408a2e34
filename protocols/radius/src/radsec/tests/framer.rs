use crate::packet::MAX_LEN;
use crate::radsec::{BadLength, Framer};
use proptest::prelude::*;

fn packet(length: usize) -> Vec<u8> {
    let mut p: Vec<u8> = (0..length).map(|i| i as u8).collect();
    p[2..4].copy_from_slice(&(length as u16).to_be_bytes());
    p
}
fn cut(framer: &mut Framer, mut data: &[u8]) -> Result<Vec<Vec<u8>>, BadLength> {
    let mut all = Vec::new();
    while let Some(p) = framer.next(&mut data)? {
        all.push(p.to_vec());
    }
    Ok(all)
}

#[test]
fn lengths_that_no_packet_has_end_the_stream() {
    for bad in [0, 19, 4097, 65535] {
        let mut p = packet(4200);
        p[2..4].copy_from_slice(&u16::to_be_bytes(bad));
        assert_eq!(cut(&mut Framer::new(), &p), Err(BadLength(bad)));
        let mut framer = Framer::new();
        assert_eq!(cut(&mut framer, &p[..3]), Ok(vec![]));
        assert_eq!(cut(&mut framer, &p[3..]), Err(BadLength(bad)));
    }
}

proptest! {
    #[test]
    fn any_cut_gives_the_same_packets(lengths in proptest::collection::vec(20usize..=4096, 1..6),
            pieces in proptest::collection::vec(1usize..3000, 1..40)) {
        let packets: Vec<Vec<u8>> = lengths.iter().map(|&l| packet(l)).collect();
        let stream = packets.concat();
        let (mut framer, mut at, mut got) = (Framer::new(), 0, Vec::new());
        for piece in pieces.iter().cycle() {
            let end = (at + piece).min(stream.len());
            got.extend(cut(&mut framer, &stream[at..end]).unwrap());
            prop_assert!(framer.held() <= MAX_LEN);
            at = end;
            if at == stream.len() {
                break;
            }
        }
        prop_assert_eq!(got, packets);
        prop_assert_eq!(framer.held(), 0);
    }

    #[test]
    fn arbitrary_streams_never_hold_more_than_a_packet(pieces in proptest::collection::vec(
            proptest::collection::vec(any::<u8>(), 0..200), 0..50)) {
        let mut framer = Framer::new();
        for piece in &pieces {
            if cut(&mut framer, piece).is_err() {
                break;
            }
            prop_assert!(framer.held() < MAX_LEN);
        }
    }
}
