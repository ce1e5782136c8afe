//! Counter-based random numbers: Philox4x32-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC 2011).
//!
//! A number is a pure function of a key and a counter, so it does not matter which thread draws it: the same seed gives
//! the same dropout mask, the same initial weights and the same synthetic graph on every backend and machine.

const ROUNDS: usize = 10;
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
