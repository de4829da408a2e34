//! Wire format.

use super::*;
use proptest::prelude::*;

pub(super) fn any_options() -> impl Strategy<Value = Option<Box<TcpOptions>>> {
    let sack = proptest::collection::vec((any::<u32>(), any::<u32>()), 0..=4);
    let fields =
        (any::<Option<u16>>(), any::<Option<u8>>(), any::<bool>(), any::<Option<(u32, u32)>>(), sack);
    let cookie = proptest::option::of((0..=16_usize, any::<u8>()));
    proptest::option::of((fields, cookie).prop_map(|(fields, cookie)| {
        let (mss, window_scale, sack_permitted, timestamps, blocks) = fields;
        let fast_open = cookie.and_then(|(len, byte)| FastOpenCookie::new(&vec![byte; len])).map(Box::new);
        let mut o =
            TcpOptions { mss, window_scale, sack_permitted, timestamps, fast_open, ..Default::default() };
        for (left, right) in blocks {
            o.sack.push(left, right);
        }
        Box::new(o)
    }))
}

fn encoded_segment(s: &Segment) -> Vec<u8> {
    let mut out = Vec::new();
    s.encode_into(1812, 40_000, &mut out);
    out
}

#[test]
fn a_syn_has_the_bytes_of_the_standards() {
    let syn = parse_segment("S 16909060:0(0) win 65535 <mss 1460,wscale 7,sackOK,ts 10:0>");
    #[rustfmt::skip]
    let expected = [
        0x07, 0x14, 0x9c, 0x40, 1, 2, 3, 4, 0, 0, 0, 0, 0xa0, 0x02, 0xff, 0xff, 0, 0, 0, 0,
        2, 4, 0x05, 0xb4, 4, 2, 8, 10, 0, 0, 0, 10, 0, 0, 0, 0, 1, 3, 3, 7,
    ];
    assert_eq!(encoded_segment(&syn), expected);
    assert_eq!(syn.header_len(), 40);
}

#[test]
fn options_never_outgrow_the_header() {
    let four = parse_segment(". 1:0(0) ack 1 <sack 1:2,sack 3:4,sack 5:6,sack 7:8>");
    assert_eq!(four.header_len(), 56);
    let three = parse_segment(". 1:0(0) ack 1 <ts 1:1,sack 1:2,sack 3:4,sack 5:6,sack 7:8>");
    assert_eq!(three.header_len(), 60);
    let (_, _, parsed) = Segment::parse(&encoded_segment(&three)).unwrap();
    assert_eq!(parsed.options.unwrap().sack.as_slice(), [(1, 2), (3, 4), (5, 6)]);
}

#[test]
fn counts_go_out_as_zeros() {
    let bytes = encoded_segment(&parse_segment("P. 1:0(3) ack 1"));
    assert_eq!(bytes[20..], [0, 0, 0]);
}

#[test]
fn what_is_no_segment_is_told_apart() {
    let good = encoded_segment(&parse_segment("S 1:0(0) <mss 1460>"));
    assert_eq!(Segment::parse(&good[..19]), Err(ParseError::Truncated));
    assert_eq!(Segment::parse(&good[..22]), Err(ParseError::DataOffset(6)));
    let with = |at: usize, byte| {
        let mut b = good.clone();
        b[at] = byte;
        Segment::parse(&b)
    };
    assert_eq!(with(12, 0x40), Err(ParseError::DataOffset(4)));
    assert_eq!(with(21, 3), Err(ParseError::OptionLength { kind: 2 }));
    assert_eq!(with(21, 1), Err(ParseError::OptionLength { kind: 2 }));
    assert_eq!(with(21, 9), Err(ParseError::OptionLength { kind: 2 }));
    assert_eq!(with(20, 254).unwrap().2.options, None);
    assert_eq!(with(20, 0).unwrap().2.options, None);
}

proptest! {
    #[test]
    fn what_is_written_is_read(seq: u32, ack: u32, window: u16, flags: u8, opts in any_options(), data: Vec<u8>) {
        let segment = Segment {
            seq,
            ack,
            window,
            flags: SegmentFlags(flags),
            len: data.len() as u32,
            options: opts.filter(|o| **o != TcpOptions::default()),
            payload: (!data.is_empty()).then(|| Arc::from(data)),
        };
        let mut expected = segment.clone();
        if let Some(o) = &mut expected.options {
            let fitting = o.fitting_sack_block_count();
            o.sack.truncate(fitting);
        }
        let bytes = encoded_segment(&segment);
        prop_assert_eq!(bytes.len() as u32, segment.wire_len());
        prop_assert_eq!(Segment::parse(&bytes), Ok((1812, 40_000, expected)));
    }

    #[test]
    fn arbitrary_bytes_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..80)) {
        round_trip(&bytes);
        let mut shaped = vec![0; 12];
        shaped.push(0xf0);
        shaped.extend(bytes);
        round_trip(&shaped);
    }
}
