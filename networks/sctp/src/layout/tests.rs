use super::*;
use proptest::prelude::*;
use std::mem::offset_of;

/// Encodes a notification of this type, with fields behind its header and padding.
fn encode_notification(kind: u16, octets: usize, fields: &[(usize, &[u8])]) -> Vec<u8> {
    let mut value = vec![0; octets];
    value[..2].copy_from_slice(&kind.to_ne_bytes());
    value[4..8].copy_from_slice(&u32::try_from(octets).unwrap().to_ne_bytes());
    for (at, field) in fields {
        value[*at..*at + field.len()].copy_from_slice(field);
    }
    value
}

/// Encodes a control message as the system does.
fn encode_control(level: i32, kind: i32, body: &[u8]) -> Vec<u8> {
    let mut value = Vec::new();
    value.extend((HEAD + body.len()).to_ne_bytes());
    value.extend(level.to_ne_bytes());
    value.extend(kind.to_ne_bytes());
    value.extend(body);
    value.resize(value.len().next_multiple_of(size_of::<usize>()), 0);
    value
}

/// Encodes `sctp_rcvinfo`, with its fields at libc's offsets.
fn encode_rcvinfo(stream: u16, flags: u16, ppid: u32) -> Vec<u8> {
    let mut body = vec![0; size_of::<libc::sctp_rcvinfo>()];
    let mut put = |at: usize, field: &[u8]| body[at..at + field.len()].copy_from_slice(field);
    put(offset_of!(libc::sctp_rcvinfo, rcv_sid), &stream.to_ne_bytes());
    put(offset_of!(libc::sctp_rcvinfo, rcv_flags), &flags.to_ne_bytes());
    put(offset_of!(libc::sctp_rcvinfo, rcv_ppid), &ppid.to_be_bytes());
    encode_control(libc::IPPROTO_SCTP, libc::SCTP_RCVINFO, &body)
}

#[test]
fn numbers_are_those_of_the_systems_header() {
    let ours = [
        (option::RTOINFO, libc::SCTP_RTOINFO),
        (option::ASSOCINFO, libc::SCTP_ASSOCINFO),
        (option::INITMSG, libc::SCTP_INITMSG),
        (option::NODELAY, libc::SCTP_NODELAY),
        (option::EVENTS, libc::SCTP_EVENTS),
        (option::STATUS, libc::SCTP_STATUS),
        (option::DELAYED_SACK, libc::SCTP_DELAYED_SACK),
        (option::RECVRCVINFO, libc::SCTP_RECVRCVINFO),
        (CMSG_SNDINFO, libc::SCTP_SNDINFO),
        (CMSG_RCVINFO, libc::SCTP_RCVINFO),
        (i32::from(UNORDERED), libc::SCTP_UNORDERED),
    ];
    for (n, (own, system)) in ours.into_iter().enumerate() {
        assert_eq!(own, system, "entry {n}");
    }
    assert_eq!(HEAD, size_of::<libc::cmsghdr>());
    assert_eq!(STORAGE, size_of::<libc::sockaddr_storage>());
}

#[test]
fn options_have_the_layout_of_the_systems_header() {
    let init = encode_initmsg(3, 5, 7, 900);
    assert_eq!(init.len(), size_of::<libc::sctp_initmsg>());
    let at = |at: usize| u16::from_ne_bytes([init[at], init[at + 1]]);
    assert_eq!(at(offset_of!(libc::sctp_initmsg, sinit_num_ostreams)), 3);
    assert_eq!(at(offset_of!(libc::sctp_initmsg, sinit_max_instreams)), 5);
    assert_eq!(at(offset_of!(libc::sctp_initmsg, sinit_max_attempts)), 7);
    assert_eq!(at(offset_of!(libc::sctp_initmsg, sinit_max_init_timeo)), 900);
    // Not in libc: three words behind the association's number, two words, and 20 octets with a u16 at offset 4.
    assert_eq!(FieldReader(&encode_rtoinfo(300, 6000, 100)).read_u32(12), Some(100));
    assert_eq!(
        (encode_rtoinfo(1, 2, 3).len(), encode_delayed_sack(1, 2).len(), encode_assocparams(4).len()),
        (16, 12, 20)
    );
    assert_eq!(FieldReader(&encode_assocparams(4)).read_u16(4), Some(4));
}

#[test]
fn a_message_says_how_it_is_sent_and_how_it_came() {
    let sent = write_sndinfo(SendInfo { stream: 300, ppid: 46, unordered: true });
    assert_eq!(sent.len(), HEAD + size_of::<libc::sctp_sndinfo>());
    let body = FieldReader(&sent[HEAD..]);
    assert_eq!(body.read_u16(offset_of!(libc::sctp_sndinfo, snd_sid)), Some(300));
    assert_eq!(body.read_u16(offset_of!(libc::sctp_sndinfo, snd_flags)), Some(1));
    assert_eq!(body.read_array(offset_of!(libc::sctp_sndinfo, snd_ppid)), Some([0, 0, 0, 46]));
    assert_eq!(FieldReader(&write_sndinfo(SendInfo::default())[HEAD..]).read_u16(2), Some(0));

    let came = ReceiveInfo { stream: 9, ppid: 46, unordered: true };
    assert_eq!(read_rcvinfo(&encode_rcvinfo(9, 1, 46)), Some(came));
    // Behind other control messages, of this level and of another.
    let others = [
        encode_control(libc::IPPROTO_SCTP, 4, &[7; 20]),
        encode_control(libc::SOL_SOCKET, CMSG_RCVINFO, &[7; 28]),
    ];
    let all = [others.concat(), encode_rcvinfo(9, 1, 46)].concat();
    assert_eq!(read_rcvinfo(&all), Some(came));
    assert_eq!(read_rcvinfo(&others.concat()), None);
    for cut in 0..encode_rcvinfo(9, 1, 46).len() - 4 {
        assert_eq!(read_rcvinfo(&encode_rcvinfo(9, 1, 46)[..cut]), None, "{cut}");
    }
}

#[test]
fn notifications_are_read_whole_or_not_at_all() {
    let change = |state: u16| {
        let fields = [(8, state), (10, 12), (12, 10), (14, 32)];
        let fields = fields.map(|(at, value): (usize, u16)| (at, value.to_ne_bytes()));
        encode_notification(ASSOC_CHANGE, 20, &fields.each_ref().map(|(at, value)| (*at, &value[..])))
    };
    let states = [
        AssociationStateChange::Up,
        AssociationStateChange::Lost,
        AssociationStateChange::Restarted,
        AssociationStateChange::ShutDown,
        AssociationStateChange::CannotStart,
    ];
    for (number, state) in (0..).zip(states) {
        let whole = change(number);
        let read = SctpNotification::Association { state, error: 12, outbound: 10, inbound: 32 };
        assert_eq!(read_notification(&whole), read);
        assert_eq!(read_notification(&whole[..15]), SctpNotification::Other);
    }
    assert_eq!(read_notification(&change(5)), SctpNotification::Other, "a state that is none");

    for text in ["192.0.2.7:3868", "[2001:db8::7]:3868"] {
        let expected: SocketAddr = text.parse().unwrap();
        let mut address = Vec::new();
        write_address(expected, &mut address);
        let whole = encode_notification(PEER_ADDR_CHANGE, 148, &[(8, &address), (136, &1_u32.to_ne_bytes())]);
        let read = SctpNotification::Address { address: expected, state: PeerAddressState::Unreachable };
        assert_eq!(read_notification(&whole), read);
        assert_eq!(read_notification(&whole[..139]), SctpNotification::Other);
    }
    assert_eq!(read_notification(&encode_notification(SHUTDOWN_EVENT, 12, &[])), SctpNotification::Shutdown);
    let aborted = encode_notification(PARTIAL_DELIVERY_EVENT, 24, &[]);
    assert_eq!(read_notification(&aborted), SctpNotification::DeliveryAborted);
    assert_eq!(read_notification(&encode_notification(0x8003, 40, &[])), SctpNotification::Other);
    assert_eq!(read_notification(&[]), SctpNotification::Other);
}

#[test]
fn addresses_come_back_as_they_went() {
    let all: Vec<SocketAddr> =
        ["192.0.2.1:1", "[2001:db8::1]:2", "198.51.100.9:65535"].map(|text| text.parse().unwrap()).into();
    let mut answer = encode_words([0, 3]);
    all.iter().for_each(|address| write_address(*address, &mut answer));
    assert_eq!(answer.len(), ADDRESSES + 16 + 28 + 16);
    assert_eq!(read_addresses(&answer), all);
    assert_eq!(read_addresses(&answer[..answer.len() - 1]), all[..2], "the last is cut off");
    // A system whose socket is of IPv6 writes addresses of IPv4 as such.
    let mut mapped = Vec::new();
    write_address("[::ffff:192.0.2.1]:1".parse().unwrap(), &mut mapped);
    assert_eq!(read_address(&mapped), Some((all[0], 28)));
}

#[test]
fn a_status_is_read_from_its_places() {
    let mut value = vec![0; STATUS];
    let mut put = |at: usize, field: &[u8]| value[at..at + field.len()].copy_from_slice(field);
    let primary: SocketAddr = "192.0.2.1:3868".parse().unwrap();
    let mut address = Vec::new();
    write_address(primary, &mut address);
    put(16, &7_u16.to_ne_bytes());
    put(18, &5_u16.to_ne_bytes());
    put(28, &address);
    for (at, number) in [(160, 4380_u32), (164, 101), (168, 1000), (172, 1500)] {
        put(at, &number.to_ne_bytes());
    }
    let status = RawStatus { outbound: 5, inbound: 7, primary, cwnd: 4380, srtt: 101, rto: 1000, mtu: 1500 };
    assert_eq!(parse_association_status(&value), Some(status));
    assert_eq!(parse_association_status(&value[..STATUS - 1]), None);
}

proptest! {
    #[test]
    fn whatever_the_system_says_is_read(octets in proptest::collection::vec(any::<u8>(), 0..300), kind in 0x8000_u16..0x8010) {
        let mut octets = octets;
        let _ = (read_notification(&octets), read_rcvinfo(&octets), read_addresses(&octets));
        let _ = (parse_association_status(&octets), read_address(&octets));
        if octets.len() > 1 {
            octets[..2].copy_from_slice(&kind.to_ne_bytes());
            let _ = read_notification(&octets);
        }
    }
}
