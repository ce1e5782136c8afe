//! `mma.sync` on a whole warp's fragments: m16n8k8 and m16n8k16 of halves or of bfloats, m16n8k16 and m16n8k32 of
//! bytes, m16n8k128 and m16n8k256 of bits.
//!
//! Products of bits are counts, and those of bytes integers, exact and in 32 bits that wrap.
//!
//! Products of halves and of bfloats are exact. Each group of eight products along k is summed with the accumulator in
//! double and rounded to float once, groups in ascending k. Tensor cores sum in an order and with a truncation that
//! NVIDIA does not document, so results agree with the hardware's within a few units of the last place of the largest
//! term, not bit for bit.

type Fragment = [u64; 32];

/// The 16 bits of one element of a fragment's register: lane `lane`, lower or upper half.
fn element(register: &Fragment, lane: usize, upper: bool) -> u16 {
    let bits = register[lane] as u32;
    if upper {
        (bits >> 16) as u16
    } else {
        bits as u16
    }
}

/// The four accumulators of each lane: `a` has `k/4` registers, `b` has `k/8`, whose elements `widen` makes singles of.
///
/// The layout is the PTX ISA's: with `g = lane / 4` and `t = lane % 4`, `a`'s registers hold rows g, g+8, g, g+8 at
/// columns 2t, 2t, 2t+8, 2t+8; `b`'s hold column g at rows 2t, 2t+8; accumulators are (g, 2t), (g, 2t+1), (g+8, 2t),
/// (g+8, 2t+1).
pub(crate) fn multiply(
    a: &[Fragment],
    b: &[Fragment],
    c: [[f32; 32]; 4],
    widen: fn(u16) -> f32,
) -> [[f32; 32]; 4] {
    let element =
        |register: &Fragment, lane, upper| f64::from(widen(element(register, lane, upper)));
    let k = b.len() * 8;
    let mut rows = [[0f64; 16]; 16];
    let mut columns = [[0f64; 16]; 8];
    for lane in 0..32 {
        let (g, t) = (lane / 4, lane % 4);
        for (i, register) in a.iter().enumerate() {
            let (row, column) = (g + 8 * (i % 2), 2 * t + 8 * (i / 2));
            rows[row][column] = element(register, lane, false);
            rows[row][column + 1] = element(register, lane, true);
        }
        for (i, register) in b.iter().enumerate() {
            columns[g][2 * t + 8 * i] = element(register, lane, false);
            columns[g][2 * t + 8 * i + 1] = element(register, lane, true);
        }
    }
    let mut out = c;
    for lane in 0..32 {
        for (i, register) in out.iter_mut().enumerate() {
            let (row, column) = (
                &rows[lane / 4 + 8 * (i / 2)],
                &columns[2 * (lane % 4) + i % 2],
            );
            let mut sum = register[lane];
            for group in 0..k / 8 {
                let products = (8 * group..8 * group + 8).map(|j| row[j] * column[j]);
                sum = (f64::from(sum) + products.sum::<f64>()) as f32;
            }
            register[lane] = sum;
        }
    }
    out
}

/// The accumulators of a product of bytes, which have a sign in `a` and in `b` where `signed` says so.
///
/// The layout is the PTX ISA's (Matrix Fragments for mma.m16n8k16 with integer type, and m16n8k32): with `g = lane / 4`
/// and `t = lane % 4`, `a`'s registers hold rows g, g+8, g, g+8 at columns 4t, 4t, 4t+16, 4t+16 and the three after
/// each; `b`'s hold column g at rows 4t, 4t+16.
pub(crate) fn multiply_bytes(
    a: &[Fragment],
    b: &[Fragment],
    c: &[Fragment],
    signed: [bool; 2],
) -> Vec<Fragment> {
    let bytes = |register: u64, signed: bool| {
        (register as u32).to_le_bytes().map(|byte| match signed {
            true => i32::from(byte as i8),
            false => i32::from(byte),
        })
    };
    let mut out = c.to_vec();
    for (i, register) in out.iter_mut().enumerate() {
        for (lane, sum) in register.iter_mut().enumerate() {
            let (row, column) = (lane / 4, 2 * (lane % 4) + i % 2);
            for (k, of_b) in b.iter().enumerate() {
                let of_a = &a[2 * k + i / 2];
                for t in 0..4 {
                    let (a, b) = (of_a[4 * row + t], of_b[4 * column + t]);
                    let pairs = bytes(a, signed[0]).into_iter().zip(bytes(b, signed[1]));
                    let product: i32 = pairs.map(|(a, b)| a * b).sum();
                    *sum = u64::from((*sum as u32).wrapping_add(product as u32));
                }
            }
        }
    }
    out
}

/// The accumulators of a product of bits: to each is added how many bits of its row of `a` and its column of `b` are
/// both set, or, without `and`, differ.
///
/// The layout is the PTX ISA's (Matrix Fragments for mma.m16n8k128 and m16n8k256): with `g = lane / 4` and
/// `t = lane % 4`, `a`'s registers hold rows g, g+8, g, g+8 at bits 32t, 32t, 32t+128, 32t+128 and the 31 after each;
/// `b`'s hold column g at bits 32t, 32t+128.
pub(crate) fn count(a: &[Fragment], b: &[Fragment], c: &[Fragment], and: bool) -> Vec<Fragment> {
    let mut out = c.to_vec();
    for (i, register) in out.iter_mut().enumerate() {
        for (lane, sum) in register.iter_mut().enumerate() {
            let (row, column) = (lane / 4, 2 * (lane % 4) + i % 2);
            let mut counted = 0;
            for (k, of_b) in b.iter().enumerate() {
                let of_a = &a[2 * k + i / 2];
                for t in 0..4 {
                    let (a, b) = (of_a[4 * row + t] as u32, of_b[4 * column + t] as u32);
                    counted += if and { a & b } else { a ^ b }.count_ones();
                }
            }
            *sum = u64::from((*sum as u32).wrapping_add(counted));
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::alu::half;

    /// Packs a row-major matrix into fragments and multiplies: against the plain triple loop.
    #[test]
    fn layout_is_that_of_a_matrix_product() {
        let half_of = |v: i32| u64::from(::half::f16::from_f32(v as f32).to_bits());
        for k in [8, 16] {
            let a = |i: usize, j: usize| ((i * 7 + j * 3) % 11) as i32 - 5;
            let b = |i: usize, j: usize| ((i * 5 + j * 2) % 9) as i32 - 4;
            let mut fa = vec![[0u64; 32]; k / 4];
            let mut fb = vec![[0u64; 32]; k / 8];
            for lane in 0..32 {
                let (g, t) = (lane / 4, lane % 4);
                for (r, f) in fa.iter_mut().enumerate() {
                    let (i, j) = (g + 8 * (r % 2), 2 * t + 8 * (r / 2));
                    f[lane] = half_of(a(i, j)) | half_of(a(i, j + 1)) << 16;
                }
                for (r, f) in fb.iter_mut().enumerate() {
                    let i = 2 * t + 8 * r;
                    f[lane] = half_of(b(i, g)) | half_of(b(i + 1, g)) << 16;
                }
            }
            let out = multiply(&fa, &fb, [[1.0; 32]; 4], half::to_f32);
            for lane in 0..32 {
                for (r, register) in out.iter().enumerate() {
                    let (i, j) = (lane / 4 + 8 * (r / 2), 2 * (lane % 4) + r % 2);
                    let expected = 1 + (0..k).map(|l| a(i, l) * b(l, j)).sum::<i32>();
                    assert_eq!(register[lane], expected as f32);
                }
            }
        }
    }

    /// Packs two matrices of bits into fragments and multiplies: against the plain triple loop.
    #[test]
    fn bits_are_counted_where_the_layout_says() {
        for k in [128, 256] {
            let a = |i: usize, j: usize| (i * 7 + j * j * 3) % 5 < 2;
            let b = |i: usize, j: usize| (i * i + j * 11) % 7 < 3;
            let word = |bit: &dyn Fn(usize) -> bool| {
                (0..32).fold(0u64, |word, at| word | u64::from(bit(at)) << at)
            };
            let mut fa = vec![[0u64; 32]; k / 64];
            let mut fb = vec![[0u64; 32]; k / 128];
            for lane in 0..32 {
                let (g, t) = (lane / 4, lane % 4);
                for (r, f) in fa.iter_mut().enumerate() {
                    f[lane] = word(&|at| a(g + 8 * (r % 2), 32 * t + 128 * (r / 2) + at));
                }
                for (r, f) in fb.iter_mut().enumerate() {
                    f[lane] = word(&|at| b(32 * t + 128 * r + at, g));
                }
            }
            for and in [true, false] {
                let out = count(&fa, &fb, &[[u64::from(u32::MAX); 32]; 4], and);
                for lane in 0..32 {
                    for (r, register) in out.iter().enumerate() {
                        let (i, j) = (lane / 4 + 8 * (r / 2), 2 * (lane % 4) + r % 2);
                        let counts = |l: &usize| {
                            let (a, b) = (a(i, *l), b(*l, j));
                            if and { a && b } else { a != b }
                        };
                        let expected = (0..k).filter(counts).count() as u32;
                        // The accumulator was -1.
                        assert_eq!(register[lane], u64::from(expected.wrapping_sub(1)));
                    }
                }
            }
        }
    }

    /// Packs two matrices of bytes into fragments and multiplies: against the plain triple loop.
    #[test]
    fn bytes_are_multiplied_where_the_layout_says() {
        for (k, signed) in [
            (16, [false, true]),
            (32, [false; 2]),
            (32, [true, false]),
            (32, [true; 2]),
        ] {
            let a = |i: usize, j: usize| (i * 37 + j * j * 29) as u8;
            let b = |i: usize, j: usize| (i * i * 41 + j * 83 + 7) as u8;
            let word =
                |byte: &dyn Fn(usize) -> u8| u64::from(u32::from_le_bytes([0, 1, 2, 3].map(byte)));
            let mut fa = vec![[0u64; 32]; k / 8];
            let mut fb = vec![[0u64; 32]; k / 16];
            for lane in 0..32 {
                let (g, t) = (lane / 4, lane % 4);
                for (r, f) in fa.iter_mut().enumerate() {
                    f[lane] = word(&|at| a(g + 8 * (r % 2), 4 * t + 16 * (r / 2) + at));
                }
                for (r, f) in fb.iter_mut().enumerate() {
                    f[lane] = word(&|at| b(4 * t + 16 * r + at, g));
                }
            }
            let value = |byte: u8, signed: bool| match signed {
                true => i32::from(byte as i8),
                false => i32::from(byte),
            };
            let out = multiply_bytes(&fa, &fb, &[[u64::from(u32::MAX); 32]; 4], signed);
            for lane in 0..32 {
                for (r, register) in out.iter().enumerate() {
                    let (i, j) = (lane / 4 + 8 * (r / 2), 2 * (lane % 4) + r % 2);
                    let terms =
                        (0..k).map(|l| value(a(i, l), signed[0]) * value(b(l, j), signed[1]));
                    // The accumulator was -1.
                    let expected = terms.sum::<i32>() - 1;
                    assert_eq!(register[lane], u64::from(expected as u32));
                }
            }
        }
    }

    #[test]
    fn sums_beyond_half_and_nan() {
        let big = [0x7BFF_7BFFu64; 32];
        let out = multiply(&[big; 4], &[big; 2], [[0.0; 32]; 4], half::to_f32);
        assert_eq!(out[0][0], 16.0 * 65504.0 * 65504.0);
        let mut one_nan = [0u64; 32];
        one_nan[0] = 0x7FFF;
        let out = multiply(&[one_nan; 4], &[big; 2], [[0.0; 32]; 4], half::to_f32);
        assert!(out[0][0].is_nan() && !out[0][4].is_nan());
    }
}
