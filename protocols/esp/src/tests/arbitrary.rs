use crate::fuzz;
use proptest::collection::vec;
use proptest::prelude::*;

proptest! {
    #[test]
    fn any_octets_are_read(octets in vec(any::<u8>(), 0..200)) {
        prop_assert!(fuzz::fuzz_ip_packet(&octets));
    }

    #[test]
    fn a_peer_with_the_keys_breaks_nothing(octets in vec(any::<u8>(), 0..600), v4: bool) {
        let mut octets = octets;
        if let Some(first) = octets.get_mut(2) {
            *first = if v4 { 0x45 } else { 0x60 };
        }
        prop_assert!(fuzz::fuzz_data_plane(&octets));
    }
}
