//! The checksum of SCTP packets: CRC-32C (RFC 9260 appendix A, RFC 3720 §12.1).

/// The polynomial 0x1EDC6F41, its bits reversed.
const POLYNOMIAL: u32 = 0x82f6_3b78;

const TABLE: [u32; 256] = {
    let mut table = [0; 256];
    let mut i = 0;
    while i < 256 {
        let mut remainder = i as u32;
        let mut bit = 0;
        while bit < 8 {
            remainder = if remainder & 1 == 1 { (remainder >> 1) ^ POLYNOMIAL } else { remainder >> 1 };
            bit += 1;
        }
        table[i] = remainder;
        i += 1;
    }
    table
};

/// Returns the CRC-32C of several pieces in sequence. The wire has its lowest octet first.
pub(super) fn crc32c(pieces: &[&[u8]]) -> u32 {
    let step = |crc: u32, byte: &u8| (crc >> 8) ^ TABLE[usize::from(crc as u8 ^ byte)];
    !pieces.iter().fold(!0, |crc, piece| piece.iter().fold(crc, step))
}

#[cfg(test)]
mod tests {
    use super::crc32c;

    #[test]
    fn the_vectors_of_rfc_3720_appendix_b_4() {
        let up: Vec<u8> = (0..32).collect();
        let down: Vec<u8> = (0..32).rev().collect();
        assert_eq!(crc32c(&[&[0; 32]]), 0x8a91_36aa);
        assert_eq!(crc32c(&[&[0xff; 32]]), 0x62a8_ab43);
        assert_eq!(crc32c(&[&up]), 0x46dd_794e);
        assert_eq!(crc32c(&[&down[..9], &down[9..]]), 0x113f_db5c);
    }
}
