//! Counter-based random numbers: Philox4x32-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC 2011).
//!
//! A number is a pure function of a key and a counter, so it does not matter which thread draws it: the same seed gives
//! the same dropout mask, the same initial weights and the same synthetic graph on every backend and machine.

const ROUNDS: usize = 10;

/// Rounds of [`rounding_bits`]: the fewest that pass all tests of BigCrush (Salmon et al., table 2). Ten, and a call for every four
/// elements, took longer than all else that makes codes of a matrix.
const ROUNDING_ROUNDS: usize = 7;

const MULTIPLIERS: [u32; 2] = [0xD251_1F53, 0xCD9E_8D57];
const WEYL: [u32; 2] = [0x9E37_79B9, 0xBB67_AE85];

/// Four independent uniform 32-bit numbers for `key` and `counter`.
#[inline]
pub fn philox(key: [u32; 2], counter: [u32; 4]) -> [u32; 4] {
    philox_by(key, counter, |a, b| {
        let product = a as u64 * b as u64;
        [product as u32, (product >> 32) as u32]
    })
}

/// [`philox`] with `multiply` for the product of two words as its low and its high word: compilers for machines of
/// 32-bit words do not always see in a 64-bit product that both factors have 32.
#[inline(always)]
pub fn philox_by(
    key: [u32; 2],
    counter: [u32; 4],
    multiply: impl Fn(u32, u32) -> [u32; 2],
) -> [u32; 4] {
    philox_of::<ROUNDS>(key, counter, multiply)
}

/// [`philox_by`] of so many rounds.
#[inline(always)]
fn philox_of<const ROUNDS: usize>(
    mut key: [u32; 2],
    mut counter: [u32; 4],
    multiply: impl Fn(u32, u32) -> [u32; 2],
) -> [u32; 4] {
    let mut round = 0;
    while round < ROUNDS {
        let [a_low, a_high] = multiply(MULTIPLIERS[0], counter[0]);
        let [b_low, b_high] = multiply(MULTIPLIERS[1], counter[2]);
        counter = [
            b_high ^ counter[1] ^ key[0],
            b_low,
            a_high ^ counter[3] ^ key[1],
            a_low,
        ];
        key = [key[0].wrapping_add(WEYL[0]), key[1].wrapping_add(WEYL[1])];
        round += 1;
    }
    counter
}

/// A seed and a stream as a key: numbers of two streams are independent.
#[inline]
pub const fn key(seed: u64, stream: u32) -> [u32; 2] {
    // The stream is mixed into both words, so that seeds that differ in one word only do not collide with streams.
    [
        seed as u32 ^ stream.wrapping_mul(0x85EB_CA6B),
        (seed >> 32) as u32 ^ stream.wrapping_mul(0xC2B2_AE35),
    ]
}

/// The `index`-th uniform 32-bit number of the stream of `key`.
#[inline]
pub fn uniform_u32(key: [u32; 2], index: u64) -> u32 {
    let block = index / 4;
    philox(key, [block as u32, (block >> 32) as u32, 0, 0])[(index % 4) as usize]
}

/// `bits` as a float in [0, 1), from its 24 highest bits, so that the result is exact.
#[inline]
pub const fn unit_f32(bits: u32) -> f32 {
    (bits >> 8) as f32 * (1.0 / (1u32 << 24) as f32)
}

/// The numbers that decide over elements `4 · block ..` of a row, as dropout draws them at a training step.
#[inline]
pub fn dropout_bits(key: [u32; 2], step: u32, row: u64, block: u32) -> [u32; 4] {
    philox(key, dropout_counter(step, row, block))
}

/// The counter of [`dropout_bits`].
#[inline]
pub const fn dropout_counter(step: u32, row: u64, block: u32) -> [u32; 4] {
    [block, row as u32, (row >> 32) as u32, step]
}

/// Elements whose numbers for stochastic rounding come of one call.
pub const ROUNDED_TOGETHER: u32 = 8;

/// The numbers that decide how elements `8 · block ..` of a row are rounded at a training step, 16 bits for each: see
/// [`rounding_noise`]. `multiply` is that of [`philox_by`].
#[inline(always)]
pub fn rounding_bits_by(
    key: [u32; 2],
    step: u32,
    row: u64,
    block: u32,
    multiply: impl Fn(u32, u32) -> [u32; 2],
) -> [u32; 4] {
    philox_of::<ROUNDING_ROUNDS>(key, dropout_counter(step, row, block), multiply)
}

/// [`rounding_bits_by`] by 64-bit products.
#[inline]
pub fn rounding_bits(key: [u32; 2], step: u32, row: u64, block: u32) -> [u32; 4] {
    rounding_bits_by(key, step, row, block, |a, b| {
        let product = a as u64 * b as u64;
        [product as u32, (product >> 32) as u32]
    })
}

/// Of [`rounding_bits`] those of element `8 · block + i`, in the upper half of a word, with zeros below.
#[inline(always)]
pub const fn rounding_noise(bits: [u32; 4], i: u32) -> u32 {
    let word = bits[(i / 2) as usize];
    if i.is_multiple_of(2) {
        word << 16
    } else {
        word & 0xffff_0000
    }
}

/// The counter of the number that decides over the edge from `source` to `destination` at a training step: the first of
/// its four. The end points tell edges apart and not their place, so that both edge orders of a graph draw the same;
/// edges with the same end points share a number. Wants a stream of its own, apart from that of any
/// [`dropout_counter`].
#[inline]
pub const fn edge_dropout_counter(step: u32, head: u32, destination: u32, source: u32) -> [u32; 4] {
    [destination, source, head, step]
}

/// A number below which a uniform 32-bit number falls with probability `p`, for a comparison in integers.
/// `p` is taken to lie in [0, 1].
#[inline]
pub const fn threshold(p: f32) -> u32 {
    // A float to integer cast saturates, so 1.0 gives the largest number.
    (p as f64 * 4_294_967_296.0) as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The known answers that come with Random123 (`kat_vectors`).
    #[test]
    fn known_answers() {
        assert_eq!(
            philox([0, 0], [0, 0, 0, 0]),
            [0x6627_e8d5, 0xe169_c58d, 0xbc57_ac4c, 0x9b00_dbd8]
        );
        assert_eq!(
            philox([!0, !0], [!0, !0, !0, !0]),
            [0x408f_276d, 0x41c8_3b0e, 0xa20b_c7c6, 0x6d54_51fd]
        );
        assert_eq!(
            philox(
                [0xa409_3822, 0x299f_31d0],
                [0x243f_6a88, 0x85a3_08d3, 0x1319_8a2e, 0x0370_7344]
            ),
            [0xd16c_fe09, 0x94fd_cceb, 0x5001_e420, 0x2412_6ea1]
        );
    }

    /// Those of seven rounds in the same list, of which the elements in turn have the low and the high half of a word.
    #[test]
    fn known_answers_of_rounding() {
        let multiply = |a: u32, b: u32| {
            let product = a as u64 * b as u64;
            [product as u32, (product >> 32) as u32]
        };
        let known = [0x5f6f_b709, 0x0d89_3f64, 0x4f12_1f81, 0x4f73_0a48];
        assert_eq!(philox_of::<7>([0; 2], [0; 4], multiply), known);
        assert_eq!(rounding_bits([0; 2], 0, 0, 0), known);
        let noise = |i| rounding_noise(known, i);
        assert_eq!([noise(0), noise(1)], [0xb709_0000, 0x5f6f_0000]);
        assert_eq!([noise(6), noise(7)], [0x0a48_0000, 0x4f73_0000]);
    }

    #[test]
    fn floats_stay_below_one() {
        assert_eq!(unit_f32(0), 0.0);
        assert!(unit_f32(u32::MAX) < 1.0);
        assert_eq!(threshold(0.0), 0);
        assert_eq!(threshold(0.5), 1 << 31);
        assert_eq!(threshold(1.0), u32::MAX);
    }

    #[test]
    fn streams_differ() {
        assert_ne!(key(7, 0), key(7, 1));
        assert_ne!(uniform_u32(key(7, 0), 5), uniform_u32(key(7, 1), 5));
    }
}
