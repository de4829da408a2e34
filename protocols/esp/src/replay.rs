//! The window that drops what came before (RFC 4303 §3.4.3, appendix A2).

use alloc::boxed::Box;
use alloc::vec;

/// Why a sequence number is not taken.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Stale {
    /// It was taken before.
    Replayed,
    /// It is left of the window.
    Late,
}

/// The sequence numbers that were received, as far back as the window reaches.
///
/// ```text
///        B = T - W + 1            T
///   late │ taken, or not (a bit) │ new
/// ```
#[derive(Clone, Debug)]
pub struct ReplayWindow {
    /// T: the highest number that was authenticated.
    highest: u64,
    /// W.
    size: u64,
    extended: bool,
    /// A ring of bits: that of a number is at the number modulo their count, which is above W by a word, so that a whole word
    /// can be cleared before its first bit comes into the window.
    bits: Box<[u64]>,
}

impl ReplayWindow {
    /// The default size.
    pub const DEFAULT: u32 = 1024;
    /// The smallest size (RFC 4303 §3.4.3), and the largest that is kept: 8 KiB of bits.
    pub const BOUNDS: (u32, u32) = (32, 65_536);

    /// A window of so many numbers, within [`BOUNDS`](Self::BOUNDS); with extended sequence numbers, or without.
    #[must_use]
    pub fn new(size: u32, extended: bool) -> Self {
        let size = u64::from(size.clamp(Self::BOUNDS.0, Self::BOUNDS.1));
        let words = (size.div_ceil(64) + 1).next_power_of_two();
        Self { highest: 0, size, extended, bits: vec![0; words as usize].into() }
    }

    /// The highest number that was authenticated.
    #[must_use]
    pub const fn highest(&self) -> u64 {
        self.highest
    }

    /// The whole sequence number of which these are the low 32 bits (appendix A2.2).
    #[must_use]
    pub fn infer(&self, low: u32) -> u64 {
        if !self.extended {
            return low.into();
        }
        let (top, high) = (self.highest as u32, self.highest >> 32);
        let left = top.wrapping_sub(self.size as u32 - 1);
        let within = u64::from(top) >= self.size - 1;
        let high = match (within, low >= left) {
            (true, true) | (false, false) => Some(high),
            (true, false) => high.checked_add(1).filter(|high| *high <= u64::from(u32::MAX)),
            // The window reaches into the subspace before, which the first one has not: nothing of it is taken.
            (false, true) => high.checked_sub(1),
        };
        // Without extension nothing follows after the last number, and 0 is never one.
        high.map_or(0, |high| high << 32 | u64::from(low))
    }

    /// Whether a number may be new. It is said before the packet is known to be authentic, and changes nothing.
    ///
    /// # Errors
    /// It is not.
    pub fn check(&self, sequence: u64) -> Result<(), Stale> {
        if sequence > self.highest {
            return Ok(());
        }
        // A sender begins with 1.
        if sequence == 0 || self.highest - sequence >= self.size {
            return Err(Stale::Late);
        }
        let (word, bit) = self.place(sequence);
        if self.bits[word] & bit == 0 { Ok(()) } else { Err(Stale::Replayed) }
    }

    /// Takes the number of an authentic packet, which [`check`](Self::check) has let pass. True: it is the highest so far.
    pub fn take(&mut self, sequence: u64) -> bool {
        let newest = sequence > self.highest;
        if newest {
            let (from, to) = (self.highest / 64, sequence / 64);
            for word in 1..=(to - from).min(self.bits.len() as u64) {
                let at = self.index(from + word);
                self.bits[at] = 0;
            }
            self.highest = sequence;
        }
        let (word, bit) = self.place(sequence);
        self.bits[word] |= bit;
        newest
    }

    fn index(&self, word: u64) -> usize {
        word as usize & (self.bits.len() - 1)
    }

    fn place(&self, sequence: u64) -> (usize, u64) {
        (self.index(sequence / 64), 1 << (sequence % 64))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::collections::BTreeSet;
    use proptest::prelude::*;

    /// What the window must do, in the words of the RFC: a set of all numbers that were taken.
    struct Model {
        taken: BTreeSet<u64>,
        size: u64,
    }

    impl Model {
        fn check(&self, sequence: u64) -> Result<(), Stale> {
            let highest = self.taken.last().copied().unwrap_or(0);
            if sequence == 0 || sequence + self.size <= highest {
                return Err(Stale::Late);
            }
            if self.taken.contains(&sequence) { Err(Stale::Replayed) } else { Ok(()) }
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
            let mut model = Model { taken: BTreeSet::new(), size: size.into() };
            if start > 0 {
                window.take(start);
                model.taken.insert(start);
            }
            for step in steps {
                let highest = window.highest();
                let sequence = highest.saturating_add_signed(step);
                prop_assert_eq!(window.check(sequence), model.check(sequence), "{} at {}", sequence, highest);
                if window.check(sequence).is_ok() {
                    // The receiver learns the low half alone.
                    prop_assert_eq!(window.infer(sequence as u32), sequence);
                    prop_assert_eq!(window.take(sequence), sequence > highest);
                    model.taken.insert(sequence);
                    prop_assert_eq!(window.check(sequence), Err(Stale::Replayed));
                }
            }
        }
    }

    #[test]
    fn the_high_half_is_inferred_as_appendix_a2_says() {
        let mut window = ReplayWindow::new(64, true);
        // Case A: the window is within one subspace.
        window.take(5 << 32 | 1000);
        for (low, high) in [(937, 5), (1000, 5), (u32::MAX, 5), (936, 6), (0, 6)] {
            assert_eq!(window.infer(low), high << 32 | u64::from(low), "{low}");
        }
        // Case B: it reaches into the one before.
        window.take(6 << 32 | 10);
        for (low, high) in [(u32::MAX - 52, 5), (u32::MAX, 5), (u32::MAX - 53, 6), (0, 6), (10, 6), (11, 6)] {
            assert_eq!(window.infer(low), high << 32 | u64::from(low), "{low}");
        }
        // Without extension the number is what it says.
        let mut window = ReplayWindow::new(64, false);
        window.take(u64::from(u32::MAX));
        assert_eq!((window.infer(3), window.check(3)), (3, Err(Stale::Late)));
    }

    #[test]
    fn beyond_its_ends_there_is_no_number() {
        let mut window = ReplayWindow::new(64, true);
        assert_eq!(
            (window.infer(u32::MAX), window.check(0)),
            (0, Err(Stale::Late)),
            "before the first subspace"
        );
        window.take(u64::MAX);
        assert_eq!((window.infer(5), window.check(5)), (0, Err(Stale::Late)), "after the last");
        assert_eq!(ReplayWindow::new(1, false).size, 32);
        assert_eq!(ReplayWindow::new(u32::MAX, false).size, 65_536);
    }
}
