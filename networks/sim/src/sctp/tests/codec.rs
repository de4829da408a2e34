//! Wire format (RFC 9260 §3).

use super::*;
use proptest::collection::vec;
use proptest::prelude::*;
use std::net::IpAddr;

fn encoded_packet(packet: &SctpPacket) -> Vec<u8> {
    let mut out = Vec::new();
    packet.encode_into(3868, 40_000, &mut out);
    out
}

#[test]
fn a_data_packet_has_the_bytes_of_the_standard() {
    let data = DataChunk {
        tsn: 0x0102_0304,
        stream: 5,
        ssn: 6,
        ppid: 46,
        beginning: true,
        ending: true,
        payload: Payload::copy_from_slice(b"abc"),
        ..DataChunk::default()
    };
    let packet = SctpPacket { vtag: 0xa0b0_c0d0, chunks: vec![Chunk::Data(data)] };
    let bytes = encoded_packet(&packet);
    #[rustfmt::skip]
    let expected = [
        0, 3, 0, 19, 1, 2, 3, 4, 0, 5, 0, 6, 0, 0, 0, 46, b'a', b'b', b'c', 0,
    ];
    assert_eq!(bytes[..8], [0x0f, 0x1c, 0x9c, 0x40, 0xa0, 0xb0, 0xc0, 0xd0]);
    assert_eq!(bytes[12..], expected);
    assert_eq!(packet.len(), 32);
    assert_eq!(SctpPacket::parse(&bytes), Ok((3868, 40_000, packet)));
}

#[test]
fn one_flipped_bit_is_found() {
    let good = encoded_packet(&SctpPacket { vtag: 1, chunks: vec![Chunk::Shutdown { cumulative: 7 }] });
    for bit in 0..good.len() * 8 {
        let mut bad = good.clone();
        bad[bit / 8] ^= 1 << (bit % 8);
        assert_eq!(SctpPacket::parse(&bad), Err(ParseError::Checksum), "bit {bit}");
    }
    assert_eq!(SctpPacket::parse(&good[..11]), Err(ParseError::Truncated));
}

#[test]
fn counts_go_out_as_zeros() {
    let data = DataChunk { payload: Payload::with_length(3), ..DataChunk::default() };
    let bytes = encoded_packet(&SctpPacket { vtag: 1, chunks: vec![Chunk::Data(data)] });
    assert_eq!(bytes[28..], [0; 4]);
}

/// Parses chunks behind a common header with a valid checksum.
fn parse_chunks(chunks: &[u8]) -> Result<Vec<Chunk>, ParseError> {
    let mut bytes = vec![0; 12];
    bytes.extend_from_slice(chunks);
    let crc = crate::sctp::crc32c::crc32c(&[&bytes]);
    bytes[8..12].copy_from_slice(&crc.to_le_bytes());
    SctpPacket::parse(&bytes).map(|(_, _, packet)| packet.chunks)
}

#[test]
fn what_is_no_chunk_is_told_apart() {
    assert_eq!(parse_chunks(&[3, 0, 0, 3]), Err(ParseError::Chunk { kind: 3 }));
    assert_eq!(parse_chunks(&[3, 0, 0, 8, 1, 2, 3]), Err(ParseError::Truncated));
    assert_eq!(parse_chunks(&[7, 0, 0, 6, 1, 2]), Err(ParseError::Chunk { kind: 7 }));
    assert_eq!(parse_chunks(&[8, 0, 0, 8, 1, 2, 3, 4]), Err(ParseError::Chunk { kind: 8 }));
    assert_eq!(parse_chunks(&[9, 0, 0, 8, 0, 1, 0, 4]), Err(ParseError::Chunk { kind: 9 }));
    assert_eq!(parse_chunks(&[11, 0, 0, 4]), Ok(vec![Chunk::CookieAck]));
}

#[test]
fn the_two_highest_bits_of_an_unknown_parameter_say_what_to_do() {
    let init = |parameters: &[u8]| {
        let mut bytes = vec![1, 0, 0, 20 + parameters.len() as u8];
        bytes.extend_from_slice(&[0; 16]);
        bytes.extend_from_slice(parameters);
        match parse_chunks(&bytes).unwrap().pop() {
            Some(Chunk::Init(init)) => (init.unknown.len(), init.addresses.len()),
            other => panic!("{other:?}"),
        }
    };
    let address = [0, 5, 0, 8, 1, 2, 3, 4];
    for (high, expected) in [(0x00, (0, 0)), (0x40, (1, 0)), (0x80, (0, 1)), (0xc0, (1, 1))] {
        let mut parameters = vec![high, 99, 0, 5, 1, 0, 0, 0];
        parameters.extend_from_slice(&address);
        assert_eq!(init(&parameters), expected, "{high:#x}");
    }
}

#[test]
fn addresses_are_bounded() {
    let address = IpAddr::from([10, 0, 0, 1]);
    let init = InitChunk { addresses: vec![address; 100], ..InitChunk::default() };
    let bytes = encoded_packet(&SctpPacket { vtag: 0, chunks: vec![Chunk::Init(Box::new(init))] });
    let (_, _, packet) = SctpPacket::parse(&bytes).unwrap();
    let Chunk::Init(init) = &packet.chunks[0] else { panic!("INIT") };
    assert_eq!(init.addresses, vec![address; InitChunk::MAX_ADDRESSES]);
}

fn any_bytes() -> impl Strategy<Value = Vec<u8>> {
    vec(any::<u8>(), 0..20)
}

fn any_init() -> impl Strategy<Value = Box<InitChunk>> {
    let parameter = |kinds| (kinds, any_bytes()).prop_map(|(kind, value)| ChunkParameter { kind, value });
    let fields = (any::<u32>(), any::<u32>(), any::<u16>(), any::<u16>(), any::<u32>());
    let lists = (
        vec(any::<IpAddr>(), 0..4),
        proptest::option::of(any_bytes()),
        proptest::option::of(any_bytes()),
        any::<Option<u32>>(),
        vec(any::<u16>(), 0..3),
        vec(parameter(0..=u16::MAX), 0..3),
        vec(parameter(0xc000..=u16::MAX), 0..3),
    );
    (fields, lists).prop_map(|((tag, window, outbound, inbound, tsn), lists)| {
        let (addresses, cookie, host_name, cookie_preservative, address_types, unrecognized, unknown) = lists;
        Box::new(InitChunk {
            tag,
            window,
            outbound,
            inbound,
            tsn,
            addresses,
            cookie,
            cookie_preservative,
            host_name,
            address_types,
            unrecognized,
            unknown,
        })
    })
}

fn any_cause() -> impl Strategy<Value = ErrorCause> {
    let parameter = || (any::<u16>(), any_bytes()).prop_map(|(kind, value)| ChunkParameter { kind, value });
    prop_oneof![
        any::<u16>().prop_map(ErrorCause::InvalidStream),
        vec(any::<u16>(), 0..4).prop_map(ErrorCause::MissingParameters),
        any::<u32>().prop_map(ErrorCause::StaleCookie),
        Just(ErrorCause::OutOfResource),
        parameter().prop_map(ErrorCause::UnresolvableAddress),
        any_bytes().prop_map(ErrorCause::UnrecognizedChunk),
        Just(ErrorCause::InvalidParameter),
        vec(parameter(), 0..3).prop_map(ErrorCause::UnrecognizedParameters),
        vec(parameter(), 0..3).prop_map(ErrorCause::NewAddresses),
        any::<u32>().prop_map(ErrorCause::NoUserData),
        Just(ErrorCause::CookieWhileShuttingDown),
        any_bytes().prop_map(ErrorCause::UserAbort),
        any_bytes().prop_map(ErrorCause::ProtocolViolation),
        (14..=u16::MAX, any_bytes()).prop_map(|(code, info)| ErrorCause::Other { code, info }),
    ]
}

fn any_data() -> impl Strategy<Value = DataChunk> {
    let numbers = (any::<u32>(), any::<u16>(), any::<u16>(), any::<u32>());
    (numbers, any::<[bool; 4]>(), any_bytes()).prop_map(|((tsn, stream, ssn, ppid), flags, payload)| {
        let [unordered, beginning, ending, immediate] = flags;
        let payload = Payload::copy_from_slice(&payload);
        DataChunk { tsn, stream, ssn, ppid, unordered, beginning, ending, immediate, payload }
    })
}

fn any_sack() -> impl Strategy<Value = SackChunk> {
    let lists = (vec(any::<(u16, u16)>(), 0..5), vec(any::<u32>(), 0..5));
    (any::<u32>(), any::<u32>(), lists).prop_map(|(cumulative, window, (gaps, duplicates))| SackChunk {
        cumulative,
        window,
        gaps,
        duplicates,
    })
}

pub(super) fn any_chunk() -> impl Strategy<Value = Chunk> {
    prop_oneof![
        any_data().prop_map(Chunk::Data),
        any_init().prop_map(Chunk::Init),
        any_init().prop_map(Chunk::InitAck),
        any_sack().prop_map(Chunk::Sack),
        any_bytes().prop_map(Chunk::Heartbeat),
        any_bytes().prop_map(Chunk::HeartbeatAck),
        (any::<bool>(), vec(any_cause(), 0..3))
            .prop_map(|(reflected, causes)| Chunk::Abort { reflected, causes }),
        any::<u32>().prop_map(|cumulative| Chunk::Shutdown { cumulative }),
        Just(Chunk::ShutdownAck),
        vec(any_cause(), 0..3).prop_map(Chunk::Error),
        any_bytes().prop_map(Chunk::CookieEcho),
        Just(Chunk::CookieAck),
        any::<bool>().prop_map(|reflected| Chunk::ShutdownComplete { reflected }),
        (15..=255u8, any::<u8>(), any_bytes()).prop_map(|(kind, flags, value)| Chunk::Unknown {
            kind,
            flags,
            value
        }),
    ]
}

proptest! {
    #[test]
    fn what_is_written_is_read(vtag: u32, chunks in vec(any_chunk(), 0..6)) {
        let packet = SctpPacket { vtag, chunks };
        let bytes = encoded_packet(&packet);
        prop_assert_eq!(bytes.len() as u32, packet.len());
        prop_assert_eq!(bytes.len() % 4, 0);
        prop_assert_eq!(SctpPacket::parse(&bytes), Ok((3868, 40_000, packet)));
    }

    #[test]
    fn arbitrary_bytes_never_panic(
        kind in 0..16u8,
        flags: u8,
        value in vec(any::<u8>(), 0..80),
        header: [u8; 12],
    ) {
        round_trip(&value);
        let mut shaped = header.to_vec();
        shaped.extend([kind, flags, 0, 4 + value.len() as u8]);
        shaped.extend(value);
        round_trip(&shaped);
    }
}
