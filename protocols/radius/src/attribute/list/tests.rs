use super::*;
use proptest::prelude::*;

#[test]
fn an_eap_packet_goes_in_pieces_of_253() {
    let packet: Vec<u8> = (0..600).map(|i| i as u8).collect();
    let mut a = AttributeList::new();
    a.push_eap(&packet);
    assert_eq!(a.iter().map(|a| a.value.len()).collect::<Vec<_>>(), [253, 253, 94]);
    let mut joined = Vec::new();
    assert!(a.read_eap_packet(&mut joined) && joined == packet);
    assert!(!AttributeList::new().read_eap_packet(&mut joined));
}

#[test]
fn every_limit_is_the_longest_that_fits() {
    let mut a = AttributeList::new();
    let long = [7; 254];
    assert!(a.push_bytes(1, &long[..253]).is_ok() && a.push_bytes(1, &long).is_err());
    assert!(
        a.push_tagged_bytes(82, 1, &long[..252]).is_ok() && a.push_tagged_bytes(82, 1, &long[..253]).is_err()
    );
    assert!(a.push_vendor(9, 1, &long[..247]).is_ok() && a.push_vendor(9, 1, &long[..248]).is_err());
    assert!(a.push_extended(241, 1, &long[..252]).is_ok() && a.push_extended(241, 1, &long[..253]).is_err());
    assert!(a.push_evs(241, 9, 1, &long[..247]).is_ok() && a.push_evs(241, 9, 1, &long[..248]).is_err());
    assert!(a.push_user_password(&long[..128]).is_ok() && a.push_user_password(&long[..129]).is_err());
    assert!(
        a.push_tunnel_password(1, &long[..239]).is_ok() && a.push_tunnel_password(1, &long[..240]).is_err()
    );
    assert!(a.push_vendor_salted(9, 1, &long[..239]).is_ok());
    assert!(a.push_vendor_salted(9, 1, &long[..240]).is_err());
    assert_eq!(AttributeList::parse_attribute_list(a.as_bytes()).unwrap().iter().count(), 8);
}

#[test]
fn typed_values_come_back() {
    let mut a = AttributeList::new();
    a.push_u32(5, 7).push_ipv4(4, Ipv4Addr::new(10, 0, 0, 1)).push_tagged_u32(64, 3, 13);
    a.push_tagged_bytes(81, 2, b"42").unwrap().push_vendor(311, 9, b"x").unwrap();
    assert_eq!((a.get_u32(5), a.get_ipv4(4)), (Some(7), Some(Ipv4Addr::new(10, 0, 0, 1))));
    assert_eq!(a.get_tagged_u32(64), Some(TaggedValue { tag: Some(3), value: 13 }));
    assert_eq!(a.get_tagged(81), Some(TaggedValue { tag: Some(2), value: &b"42"[..] }));
    assert_eq!(a.get_vendor(311, 9), Some(&b"x"[..]));
    assert_eq!((a.get_vendor(311, 8), a.get_u32(1)), (None, None));
}

#[test]
fn removing_moves_what_is_to_be_hidden() {
    let mut a = AttributeList::new();
    a.push_bytes(33, b"gone").unwrap().push_user_password(b"pw").unwrap();
    assert_eq!(a.remove(33), 1);
    let mut out = Vec::new();
    a.encode_into(&mut out, b"s", &[1; 16], 0);
    assert_eq!(crate::attribute::reveal_password(b"s", &[1; 16], &out[2..]).unwrap(), b"pw");
    assert!(!format!("{a:?}").contains("7077"), "{a:?}");
    assert_eq!((a.remove(2), a.has_hidden()), (1, false));
}

/// RFC 2868 §3.5: the salts of a packet differ, and each has its top bit set.
#[test]
fn no_salt_comes_twice_in_a_packet() {
    let secret_of = |tag: u8| format!("of tunnel {tag}").into_bytes();
    let mut list = AttributeList::new();
    for tag in 1..=31 {
        list.push_tunnel_password(tag, &secret_of(tag)).unwrap();
    }
    list.push_vendor_salted(9, 1, b"of a vendor").unwrap();
    for first in (0..=u16::MAX).step_by(101).chain([0x7fe1, 0x7fff, 0x8000, u16::MAX]) {
        let mut packet = Vec::new();
        list.encode_into(&mut packet, b"a secret", &[3; 16], first);
        let read = AttributeList::parse_attribute_list(&packet).unwrap();
        let mut salts: Vec<[u8; 2]> = read.get_all(69).map(|value| [value[1], value[2]]).collect();
        salts.extend(read.get_vendor(9, 1).map(|value| [value[0], value[1]]));
        assert!(salts.iter().all(|salt| salt[0] & 0x80 != 0), "{first:#x}");
        salts.sort_unstable();
        salts.dedup();
        assert_eq!(salts.len(), 32, "{first:#x}");
        for value in read.get_all(69) {
            let clear = crate::attribute::reveal_salted(b"a secret", &[3; 16], &value[1..]).unwrap();
            assert_eq!(clear, secret_of(value[0]), "{first:#x}");
        }
    }
}

#[test]
fn a_list_takes_anothers_hidden_values_along() {
    let (mut front, mut tail, mut whole) = (AttributeList::new(), AttributeList::new(), AttributeList::new());
    front.push_u32(kind::NAS_PORT, 7);
    tail.push_user_password(b"hello").unwrap();
    whole.push_u32(kind::NAS_PORT, 7).push_user_password(b"hello").unwrap();
    assert_eq!(front.extend(&tail), &whole);
}

#[test]
fn a_fragment_that_promises_more_is_not_an_attribute() {
    let mut a = AttributeList::new();
    a.push_bytes(245, &[1, 0x80, 5]).unwrap().push_bytes(245, &[2, 0, 6]).unwrap();
    assert_eq!(a.get_extended(245, 1), None);
    assert_eq!(a.get_extended(245, 2).unwrap(), &[6][..]);
}

proptest! {
    #[test]
    fn extended_values_come_back(ext: u8, kind in 245u8..=246, value in proptest::collection::vec(any::<u8>(), 0..1200)) {
        let mut a = AttributeList::new();
        a.push_u32(5, 1).push_long_extended(kind, ext, &value).push_u32(6, 1);
        prop_assert_eq!(a.get_extended(kind, ext).unwrap(), &value[..]);
        let wire = AttributeList::parse_attribute_list(a.as_bytes()).unwrap();
        prop_assert_eq!(wire, a);
    }
    #[test]
    fn what_is_not_there_is_not_found_and_what_is_there_is(
        received in proptest::collection::vec((0u8..8, 0usize..3), 0..6),
        changes in proptest::collection::vec((0u8..8, any::<bool>()), 0..6),
    ) {
        // Types that differ by 64 share a bit of the set.
        let kind = |n: u8| n % 4 + 64 * (n / 4);
        let mut a = AttributeList::new();
        for (n, length) in received {
            a.push_bytes(kind(n), &[n, n][..length]).unwrap();
        }
        let mut a = AttributeList::parse_attribute_list(a.as_bytes()).unwrap();
        let found = |a: &AttributeList| (0..8).all(|n| a.get(kind(n)) == a.get_all(kind(n)).next());
        prop_assert!(found(&a));
        for (n, add) in changes {
            if add {
                a.push_bytes(kind(n), &[n]).unwrap();
            } else {
                a.remove(kind(n));
            }
            prop_assert!(found(&a));
        }
        a.clear();
        prop_assert!(found(&a));
    }
}
