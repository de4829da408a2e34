//! The anti-replay window (RFC 4303 §3.4.3, appendix A2).

use alloc::boxed::Box;
use alloc::vec;

/// The reason why a sequence number is rejected.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ReplayError {
    /// It was already received.
    Replayed,
    /// It is left of the window.
    BelowWindow,
}

/// The received sequence numbers, as far back as the window reaches.
///
/// ```text
///        B = T - W + 1            T
///   late │ taken, or not (a bit) │ new
/// ```
#[derive(Clone, Debug)]
pub struct ReplayWindow {
    /// T: the highest authenticated number.
    highest: u64,
    /// W: the size.
    size: u64,
    extended: bool,
    /// A ring of bits, indexed by the number modulo their count. The count exceeds W by a word, so that a whole word
    /// can be cleared before its first bit enters the window.
    bits: Box<[u64]>,
}

impl ReplayWindow {
    /// The default size.
    pub const DEFAULT: u32 = 1024;
    /// The smallest size (RFC 4303 §3.4.3) and the largest: 8 KiB of bits.
    pub const BOUNDS: (u32, u32) = (32, 65_536);

    /// Creates a window of this size, limited to [`BOUNDS`](Self::BOUNDS), with or without extended sequence numbers.
    #[must_use]
    pub fn new(size: u32, extended: bool) -> Self {
        let size = u64::from(size.clamp(Self::BOUNDS.0, Self::BOUNDS.1));
        let words = (size.div_ceil(64) + 1).next_power_of_two();
        Self { highest: 0, size, extended, bits: vec![0; words as usize].into() }
    }

    /// The highest authenticated number.
    #[must_use]
    pub const fn highest_authenticated_sequence(&self) -> u64 {
        self.highest
    }

    /// Returns the whole sequence number for its low 32 bits (RFC 4303 appendix A2.2).
    #[must_use]
    pub fn infer_sequence(&self, low: u32) -> u64 {
        if !self.extended {
            return low.into();
        }
        let (top, high) = (self.highest as u32, self.highest >> 32);
        let left = top.wrapping_sub(self.size as u32 - 1);
        let within = u64::from(top) >= self.size - 1;
        let high = match (within, low >= left) {
            (true, true) | (false, false) => Some(high),
            (true, false) => high.checked_add(1).filter(|high| *high <= u64::from(u32::MAX)),
            // The window reaches into the previous subspace of 2^32 numbers, where this number lies. The first subspace
            // has no previous one, so the number is rejected.
            (false, true) => high.checked_sub(1),
        };
        // If that subspace does not exist, the result is 0, which is never a valid number.
        high.map_or(0, |high| high << 32 | u64::from(low))
    }

    /// Checks that a number may be new. It changes nothing, since the packet is not yet authenticated.
    ///
    /// # Errors
    /// The number is not acceptable.
    pub fn check_sequence(&self, sequence: u64) -> Result<(), ReplayError> {
        if sequence > self.highest {
            return Ok(());
        }
        // RFC 4303, 2.2: a sender begins with 1.
        if sequence == 0 || self.highest - sequence >= self.size {
            return Err(ReplayError::BelowWindow);
        }
        let (word, bit) = self.bit_position(sequence);
        // RFC 4303, 3.4.3: a duplicate is dropped.
        if self.bits[word] & bit == 0 { Ok(()) } else { Err(ReplayError::Replayed) }
    }

    /// Records the number of an authentic packet that [`check_sequence`](Self::check_sequence) has accepted. True if
    /// it is the highest so far.
    pub fn accept_sequence(&mut self, sequence: u64) -> bool {
        let newest = sequence > self.highest;
        if newest {
            let (from, to) = (self.highest / 64, sequence / 64);
            for word in 1..=(to - from).min(self.bits.len() as u64) {
                let at = self.word_index(from + word);
                self.bits[at] = 0;
            }
            self.highest = sequence;
        }
        let (word, bit) = self.bit_position(sequence);
        self.bits[word] |= bit;
        newest
    }

    fn word_index(&self, word: u64) -> usize {
        word as usize & (self.bits.len() - 1)
    }

    fn bit_position(&self, sequence: u64) -> (usize, u64) {
        (self.word_index(sequence / 64), 1 << (sequence % 64))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::collections::BTreeSet;
    use proptest::prelude::*;

    /// A model of the window in the RFC's terms: the set of all received numbers.
    struct ReplayWindowModel {
        accepted_numbers: BTreeSet<u64>,
        size: u64,
    }

    impl ReplayWindowModel {
        fn check_sequence(&self, sequence: u64) -> Result<(), ReplayError> {
            let highest = self.accepted_numbers.last().copied().unwrap_or(0);
            if sequence == 0 || sequence + self.size <= highest {
                return Err(ReplayError::BelowWindow);
            }
            if self.accepted_numbers.contains(&sequence) { Err(ReplayError::Replayed) } else { Ok(()) }
        }
    }

    proptest! {
        #[test]
        fn a_window_is_what_a_set_of_all_numbers_would_be(
            size in 32u32..300, start in prop_oneof![Just(0u64), Just((1 << 32) - 100), any::<u32>().prop_map(u64::from)],
            steps in proptest::collection::vec(
                prop_oneof![4 => -400i64..40, 2 => 1i64..3, 1 => 40i64..5000, 1 => Just(0)], 1..300),
        ) {
            let mut window = ReplayWindow::new(size, true);
            let mut model = ReplayWindowModel { accepted_numbers: BTreeSet::new(), size: size.into() };
            if start > 0 {
                window.accept_sequence(start);
                model.accepted_numbers.insert(start);
            }
            for step in steps {
                let highest = window.highest_authenticated_sequence();
                let sequence = highest.saturating_add_signed(step);
                prop_assert_eq!(window.check_sequence(sequence), model.check_sequence(sequence), "{} at {}", sequence, highest);
                if window.check_sequence(sequence).is_ok() {
                    // The receiver gets only the low half.
                    prop_assert_eq!(window.infer_sequence(sequence as u32), sequence);
                    prop_assert_eq!(window.accept_sequence(sequence), sequence > highest);
                    model.accepted_numbers.insert(sequence);
                    prop_assert_eq!(window.check_sequence(sequence), Err(ReplayError::Replayed));
                }
            }
        }
    }

    #[test]
    fn the_high_half_is_inferred_as_appendix_a2_says() {
        let mut window = ReplayWindow::new(64, true);
        // Case A: the window is within one subspace.
        window.accept_sequence(5 << 32 | 1000);
        for (low, high) in [(937, 5), (1000, 5), (u32::MAX, 5), (936, 6), (0, 6)] {
            assert_eq!(window.infer_sequence(low), high << 32 | u64::from(low), "{low}");
        }
        // Case B: it reaches into the previous subspace.
        window.accept_sequence(6 << 32 | 10);
        for (low, high) in [(u32::MAX - 52, 5), (u32::MAX, 5), (u32::MAX - 53, 6), (0, 6), (10, 6), (11, 6)] {
            assert_eq!(window.infer_sequence(low), high << 32 | u64::from(low), "{low}");
        }
        // Without extension, the low half is the number.
        let mut window = ReplayWindow::new(64, false);
        window.accept_sequence(u64::from(u32::MAX));
        assert_eq!((window.infer_sequence(3), window.check_sequence(3)), (3, Err(ReplayError::BelowWindow)));
    }

    #[test]
    fn beyond_its_ends_there_is_no_number() {
        let mut window = ReplayWindow::new(64, true);
        assert_eq!(
            (window.infer_sequence(u32::MAX), window.check_sequence(0)),
            (0, Err(ReplayError::BelowWindow)),
            "before the first subspace"
        );
        window.accept_sequence(u64::MAX);
        assert_eq!(
            (window.infer_sequence(5), window.check_sequence(5)),
            (0, Err(ReplayError::BelowWindow)),
            "after the last"
        );
        assert_eq!(ReplayWindow::new(1, false).size, 32);
        assert_eq!(ReplayWindow::new(u32::MAX, false).size, 65_536);
    }
}
