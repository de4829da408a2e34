use crate::packet::MAX_LEN;
use crate::radsec::{BadLength, PacketFramer};
use proptest::prelude::*;

fn test_packet(length: usize) -> Vec<u8> {
    let mut p: Vec<u8> = (0..length).map(|i| i as u8).collect();
    p[2..4].copy_from_slice(&(length as u16).to_be_bytes());
    p
}
fn split_packets(framer: &mut PacketFramer, mut data: &[u8]) -> Result<Vec<Vec<u8>>, BadLength> {
    let mut all = Vec::new();
    while let Some(p) = framer.next_packet(&mut data)? {
        all.push(p.to_vec());
    }
    Ok(all)
}

#[test]
fn lengths_that_no_packet_has_end_the_stream() {
    for bad in [0, 19, 4097, 65535] {
        let mut p = test_packet(4200);
        p[2..4].copy_from_slice(&u16::to_be_bytes(bad));
        assert_eq!(split_packets(&mut PacketFramer::new(), &p), Err(BadLength(bad)));
        let mut framer = PacketFramer::new();
        assert_eq!(split_packets(&mut framer, &p[..3]), Ok(vec![]));
        assert_eq!(split_packets(&mut framer, &p[3..]), Err(BadLength(bad)));
    }
}

proptest! {
    #[test]
    fn any_cut_gives_the_same_packets(lengths in proptest::collection::vec(20usize..=4096, 1..6),
            pieces in proptest::collection::vec(1usize..3000, 1..40)) {
        let packets: Vec<Vec<u8>> = lengths.iter().map(|&l| test_packet(l)).collect();
        let stream = packets.concat();
        let (mut framer, mut at, mut got) = (PacketFramer::new(), 0, Vec::new());
        for piece in pieces.iter().cycle() {
            let end = (at + piece).min(stream.len());
            got.extend(split_packets(&mut framer, &stream[at..end]).unwrap());
            prop_assert!(framer.buffered_octets() <= MAX_LEN);
            at = end;
            if at == stream.len() {
                break;
            }
        }
        prop_assert_eq!(got, packets);
        prop_assert_eq!(framer.buffered_octets(), 0);
    }

    #[test]
    fn arbitrary_streams_never_hold_more_than_a_packet(pieces in proptest::collection::vec(
            proptest::collection::vec(any::<u8>(), 0..200), 0..50)) {
        let mut framer = PacketFramer::new();
        for piece in &pieces {
            if split_packets(&mut framer, piece).is_err() {
                break;
            }
            prop_assert!(framer.buffered_octets() < MAX_LEN);
        }
    }
}
