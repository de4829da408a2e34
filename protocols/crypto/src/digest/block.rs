//! The compression function of MD5 (RFC 1321 §3.4) and its blocks.
//!
//! Each of the 64 steps depends on the previous one, which leaves most of a processor idle. So two independent messages
//! run side by side in the time of one.

use super::DigestInputPatch;

/// The chaining variables A to D.
pub(super) type Md5State = [u32; 4];
/// The length of a block in octets.
pub(super) const BLOCK: usize = 64;
/// The octets of a last block for data, beside the message length.
const DATA_CAPACITY: usize = BLOCK - 8;

/// The initial values.
pub(super) const INITIAL: Md5State = [0x6745_2301, 0xefcd_ab89, 0x98ba_dcfe, 0x1032_5476];

/// The integer parts of 2³² · |sin i|, i from 1.
const SINES: [u32; 64] = [
    0xd76a_a478,
    0xe8c7_b756,
    0x2420_70db,
    0xc1bd_ceee,
    0xf57c_0faf,
    0x4787_c62a,
    0xa830_4613,
    0xfd46_9501,
    0x6980_98d8,
    0x8b44_f7af,
    0xffff_5bb1,
    0x895c_d7be,
    0x6b90_1122,
    0xfd98_7193,
    0xa679_438e,
    0x49b4_0821,
    0xf61e_2562,
    0xc040_b340,
    0x265e_5a51,
    0xe9b6_c7aa,
    0xd62f_105d,
    0x0244_1453,
    0xd8a1_e681,
    0xe7d3_fbc8,
    0x21e1_cde6,
    0xc337_07d6,
    0xf4d5_0d87,
    0x455a_14ed,
    0xa9e3_e905,
    0xfcef_a3f8,
    0x676f_02d9,
    0x8d2a_4c8a,
    0xfffa_3942,
    0x8771_f681,
    0x6d9d_6122,
    0xfde5_380c,
    0xa4be_ea44,
    0x4bde_cfa9,
    0xf6bb_4b60,
    0xbebf_bc70,
    0x289b_7ec6,
    0xeaa1_27fa,
    0xd4ef_3085,
    0x0488_1d05,
    0xd9d4_d039,
    0xe6db_99e5,
    0x1fa2_7cf8,
    0xc4ac_5665,
    0xf429_2244,
    0x432a_ff97,
    0xab94_23a7,
    0xfc93_a039,
    0x655b_59c3,
    0x8f0c_cc92,
    0xffef_f47d,
    0x8584_5dd1,
    0x6fa8_7e4f,
    0xfe2c_e6e0,
    0xa301_4314,
    0x4e08_11a1,
    0xf753_7e82,
    0xbd3a_f235,
    0x2ad7_d2bb,
    0xeb86_d391,
];
/// The rotations of the steps of each round.
const ROTATIONS: [[u32; 4]; 4] = [[7, 12, 17, 22], [5, 9, 14, 20], [4, 11, 16, 23], [6, 10, 15, 21]];

/// Returns the index of the word that a step uses.
const fn word_index(step: usize) -> usize {
    match step / 16 {
        0 => step,
        1 => (5 * step + 1) % 16,
        2 => (3 * step + 5) % 16,
        _ => (7 * step) % 16,
    }
}

/// Performs one step. The sum that is independent of the previous step, `b`, comes first.
#[inline(always)]
fn step<const I: usize>([a, b, c, d]: Md5State, words: &[u32; 16]) -> Md5State {
    let early = a.wrapping_add(SINES[I]).wrapping_add(words[word_index(I)]);
    let sum = match I / 16 {
        0 => early.wrapping_add(d ^ (b & (c ^ d))),
        1 => early.wrapping_add(c & !d).wrapping_add(b & d),
        2 => early.wrapping_add(b ^ (c ^ d)),
        _ => early.wrapping_add(c ^ (b | !d)),
    };
    [d, sum.rotate_left(ROTATIONS[I / 16][I % 4]).wrapping_add(b), b, c]
}

/// Returns the words of a block.
#[inline(always)]
fn block_words(block: &[u8; BLOCK]) -> [u32; 16] {
    let mut words = [0; 16];
    for (word, octets) in words.iter_mut().zip(block.as_chunks().0) {
        *word = u32::from_le_bytes(*octets);
    }
    words
}

/// Compresses one block into each of `L` independent states.
#[inline(never)]
pub(super) fn compress_blocks<const L: usize>(states: [&mut Md5State; L], blocks: &[[u8; BLOCK]; L]) {
    let words = blocks.each_ref().map(block_words);
    let mut s = states.each_ref().map(|state| **state);
    // The compiler considers this function too long to inline more calls, so an iterator would add a call per step.
    macro_rules! steps {
        ($($i:literal)*) => { $(
            let mut lane = 0;
            while lane < L {
                s[lane] = step::<$i>(s[lane], &words[lane]);
                lane += 1;
            }
        )* };
    }
    steps!(0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23 24 25 26 27 28 29 30 31);
    steps!(32 33 34 35 36 37 38 39 40 41 42 43 44 45 46 47 48 49 50 51 52 53 54 55 56 57 58 59 60 61 62 63);
    for (state, s) in states.into_iter().zip(s) {
        for (variable, change) in state.iter_mut().zip(s) {
            *variable = variable.wrapping_add(change);
        }
    }
}

/// Returns the digest of a state.
pub(super) fn state_digest(state: Md5State) -> [u8; 16] {
    let mut out = [0; 16];
    for (octets, variable) in out.as_chunks_mut().0.iter_mut().zip(state) {
        *octets = variable.to_le_bytes();
    }
    out
}

/// Copies the overlapping part of an overlay over data that starts at `offset`.
#[inline]
fn apply_overlay(&(begin, octets): &DigestInputPatch<'_>, offset: usize, data: &mut [u8]) {
    if begin.saturating_add(octets.len()) <= offset || begin >= offset + data.len() {
        return;
    }
    if begin >= offset
        && let Some((_, data)) = data.split_at_mut_checked(begin - offset)
        && let Some(data) = data.first_chunk_mut()
    {
        *data = *octets;
    } else {
        apply_partial_overlay(begin, octets, offset, data);
    }
}

/// Does the same for a partial overlap.
#[cold]
fn apply_partial_overlay(begin: usize, octets: &[u8; 16], offset: usize, data: &mut [u8]) {
    for (at, octet) in (begin..).zip(octets) {
        if let Some(data) = at.checked_sub(offset).and_then(|at| data.get_mut(at)) {
            *data = *octet;
        }
    }
}

/// The contents of a message's next block.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Md5BlockContents {
    Data,
    /// All data is in; the length did not fit beside it.
    Length,
    Done,
}

/// A message in compression: its remaining parts.
pub(super) struct Md5Computation<'a> {
    pub(super) state: Md5State,
    parts: &'a [&'a [u8]],
    overlays: &'a [DigestInputPatch<'a>],
    /// The octets of the first part that are in.
    consumed: usize,
    /// The octets of all parts that are in.
    offset: usize,
    /// The octets before the parts: the block of the inner key.
    before: u64,
    next: Md5BlockContents,
    /// HMAC: the state after the outer key, which takes the digest.
    outer: Option<Md5State>,
}

impl<'a> Md5Computation<'a> {
    pub(super) const fn for_parts(parts: &'a [&'a [u8]], over: &'a [DigestInputPatch<'a>]) -> Self {
        Self {
            state: INITIAL,
            parts,
            overlays: over,
            consumed: 0,
            offset: 0,
            before: 0,
            next: Md5BlockContents::Data,
            outer: None,
        }
    }
    /// A message that starts from the states after the inner and the outer key block.
    pub(super) const fn with_key_states(
        inner: Md5State,
        outer: Md5State,
        parts: &'a [&'a [u8]],
        over: &'a [DigestInputPatch<'a>],
    ) -> Self {
        let before = BLOCK as u64;
        Self {
            state: inner,
            parts,
            overlays: over,
            consumed: 0,
            offset: 0,
            before,
            next: Md5BlockContents::Data,
            outer: Some(outer),
        }
    }

    /// Fills the next block, for the caller to compress into the state. Returns false if none is left.
    #[inline]
    fn fill_block(&mut self, block: &mut [u8; BLOCK]) -> bool {
        match self.next {
            Md5BlockContents::Data => {
                let at = self.copy_data_to_block(block);
                for overlay in self.overlays {
                    apply_overlay(overlay, self.offset, &mut block[..at]);
                }
                self.offset += at;
                if at < BLOCK {
                    block[at] = 0x80;
                    self.next = Md5BlockContents::Length;
                }
                if at < DATA_CAPACITY {
                    self.write_length(block, self.before + self.offset as u64);
                }
            }
            Md5BlockContents::Length => {
                *block = [0; BLOCK];
                self.write_length(block, self.before + self.offset as u64);
            }
            Md5BlockContents::Done => {
                let Some(outer) = self.outer.take() else { return false };
                *block = [0; BLOCK];
                block[..16].copy_from_slice(&state_digest(self.state));
                block[16] = 0x80;
                self.write_length(block, BLOCK as u64 + 16);
                self.state = outer;
            }
        }
        true
    }

    /// Copies data into a block and fills the rest with zeros. Returns the octets copied.
    #[inline]
    fn copy_data_to_block(&mut self, block: &mut [u8; BLOCK]) -> usize {
        // Most blocks lie inside one part. For these, a copy of constant length is faster.
        if let Some((part, rest)) = self.parts.split_first()
            && let Some((now, after)) = part[self.consumed..].split_first_chunk()
        {
            *block = *now;
            (self.parts, self.consumed) =
                if after.is_empty() { (rest, 0) } else { (self.parts, self.consumed + BLOCK) };
            return BLOCK;
        }
        *block = [0; BLOCK];
        let mut at = 0;
        while let Some((part, rest)) = self.parts.split_first() {
            let left = &part[self.consumed..];
            let room = &mut block[at..];
            if left.len() > room.len() {
                let (now, _) = left.split_at(room.len());
                room.copy_from_slice(now);
                self.consumed += now.len();
                return BLOCK;
            }
            room[..left.len()].copy_from_slice(left);
            at += left.len();
            (self.parts, self.consumed) = (rest, 0);
        }
        at
    }

    #[inline]
    fn write_length(&mut self, block: &mut [u8; BLOCK], length: u64) {
        block[DATA_CAPACITY..].copy_from_slice(&(length * 8).to_le_bytes());
        self.next = Md5BlockContents::Done;
    }

    /// Returns the digest.
    #[inline]
    pub(super) fn compute_digest(mut self) -> [u8; 16] {
        let mut blocks = [[0; BLOCK]];
        while self.fill_block(&mut blocks[0]) {
            compress_blocks([&mut self.state], &blocks);
        }
        state_digest(self.state)
    }
}

/// Returns the digests of two messages, computed side by side.
pub(super) fn digest_pair(mut a: Md5Computation<'_>, mut b: Md5Computation<'_>) -> ([u8; 16], [u8; 16]) {
    let mut blocks = [[0; BLOCK]; 2];
    loop {
        let [first, second] = &mut blocks;
        match (a.fill_block(first), b.fill_block(second)) {
            (true, true) => compress_blocks([&mut a.state, &mut b.state], &blocks),
            (true, false) => compress_blocks([&mut a.state], &[blocks[0]]),
            (false, true) => compress_blocks([&mut b.state], &[blocks[1]]),
            (false, false) => return (state_digest(a.state), state_digest(b.state)),
        }
    }
}
