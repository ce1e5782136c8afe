//! Elementary functions in plain float arithmetic, so that the CPU and a GPU compute the same bits.
//!
//! Only additions, multiplications and divisions that round once each are used, and none is contracted.

/// 2ⁿ for n in −126 ..= 127.
#[inline]
const fn exp2i(n: i32) -> f32 {
    f32::from_bits((n.wrapping_add(127) as u32) << 23)
}

/// Adding and taking away 1.5 · 2²³ rounds to the nearest integer, and leaves it in the low bits meanwhile.
const ROUND: f32 = 12_582_912.0;

/// ln 2 in two parts, the first of so few bits that a small integer times it is exact (Cody and Waite).
const LN_2: [f32; 2] = [0.693_359_4, -2.121_944_4e-4];

/// eʳ − 1 of `r` between −½ ln 2 and ½ ln 2.
#[inline(always)]
const fn exp_m1_of_rest(r: f32) -> f32 {
    let p = 1.987_569_2e-4;
    let p = p * r + 1.398_2e-3;
    let p = p * r + 8.333_452e-3;
    let p = p * r + 4.166_579_6e-2;
    let p = p * r + 0.166_666_66;
    let p = p * r + 0.5;
    p * (r * r) + r
}

/// eʳ of such an `r`.
#[inline(always)]
const fn exp_of_rest(r: f32) -> f32 {
    exp_m1_of_rest(r) + 1.0
}

/// eˣ within 2 ulp. Overflows to infinity and underflows to zero as the exact value does; a NaN stays one.
///
/// Without a branch, so that a lane works on several at a time.
#[inline]
pub const fn exp(x: f32) -> f32 {
    const OVERFLOW: f32 = 88.722_84;
    // Its exponential is zero, and so is that of what is less.
    const UNDERFLOW: f32 = -104.0;
    let within = if x < UNDERFLOW { UNDERFLOW } else { x };
    let within = if within > OVERFLOW { OVERFLOW } else { within };
    let rounded = within * core::f32::consts::LOG2_E + ROUND;
    let n = rounded - ROUND;
    let y = exp_of_rest(within - n * LN_2[0] - n * LN_2[1]);
    // In two factors, because 2ⁿ itself may be subnormal or too large. Of a NaN they are anything, and y is a NaN.
    let n = rounded.to_bits().wrapping_sub(ROUND.to_bits()) as i32;
    let half = n >> 1;
    let y = y * exp2i(half) * exp2i(n.wrapping_sub(half));
    if x > OVERFLOW { f32::INFINITY } else { y }
}

/// [`exp`] of an `x` that is not above zero, in three quarters of the instructions: the same bits, but zero from −87.683 on, where
/// results are subnormal. A NaN stays one.
///
/// `mul_add(a, b, c)` is `a · b + c`. Since `a · b` is exact, an instruction that rounds once gives what two give.
#[inline(always)]
pub fn exp_nonpositive_by(x: f32, mul_add: impl Fn(f32, f32, f32) -> f32) -> f32 {
    // Here 2ⁿ, whose exponent is made in place, is 2⁻¹²⁷, of which the bits are those of zero.
    const UNDERFLOW: f32 = -88.0;
    let within = if x < UNDERFLOW { UNDERFLOW } else { x };
    let rounded = within * core::f32::consts::LOG2_E + ROUND;
    let n = rounded - ROUND;
    let y = exp_of_rest(mul_add(n, -LN_2[0], within) - n * LN_2[1]);
    let power = (rounded.to_bits() << 23).wrapping_add(1.0f32.to_bits());
    y * f32::from_bits(power)
}

/// [`exp_nonpositive_by`] where a product and a sum are two instructions.
#[inline(always)]
pub fn exp_nonpositive(x: f32) -> f32 {
    exp_nonpositive_by(x, |a, b, c| a * b + c)
}

/// 2ˣ within 3 ulp for `x` from −126 to 127; zero below −127. A NaN stays one. Above 128 the result is meaningless.
///
/// `mul_add(a, b, c)` is `a · b + c`, rounded once or twice: the polynomial is the same to 1 ulp.
#[inline(always)]
pub fn exp2_by(x: f32, mul_add: impl Fn(f32, f32, f32) -> f32) -> f32 {
    // Of −127 the power's bits are those of zero.
    const UNDERFLOW: f32 = -127.0;
    let within = if x < UNDERFLOW { UNDERFLOW } else { x };
    let rounded = within + ROUND;
    let rest = within - (rounded - ROUND);
    // Minimax by the relative error, 7.5e-8, between −½ and ½ (Remez).
    let y = mul_add(rest, 1.327_647_4e-3, 9.675_541e-3);
    let y = mul_add(rest, y, 5.550_713_4e-2);
    let y = mul_add(rest, y, 0.240_221_2);
    let y = mul_add(rest, y, 0.693_146_94);
    let y = mul_add(rest, y, 1.000_000_1);
    let power = (rounded.to_bits() << 23).wrapping_add(1.0f32.to_bits());
    y * f32::from_bits(power)
}

/// eˣ − 1 within 2 ulp, also where that is next to nothing; −1 of what is far below zero. A NaN stays one.
#[inline]
pub const fn exp_m1(x: f32) -> f32 {
    // Where `exp` itself takes no whole power of two away.
    if -0.34 < x && x < 0.34 {
        exp_m1_of_rest(x)
    } else {
        exp(x) - 1.0
    }
}

/// ln x within 2 ulp for positive, finite, normal `x`; zero gives −∞, infinity gives infinity, a NaN or a negative
/// number a NaN.
#[inline]
pub const fn ln(x: f32) -> f32 {
    if x == 0.0 {
        return f32::NEG_INFINITY;
    }
    if !(x > 0.0 && x < f32::INFINITY) {
        return if x == f32::INFINITY { x } else { f32::NAN };
    }
    // x = m · 2ᵉ with m in [√½, √2).
    let bits = x.to_bits();
    let mut e = (bits >> 23) as i32 - 127;
    let mut m = f32::from_bits(bits & 0x007f_ffff | 0x3f80_0000);
    if m > core::f32::consts::SQRT_2 {
        m *= 0.5;
        e += 1;
    }
    ln_of_parts(m, e as f32)
}

/// [`ln`] of an `x` from 1 to 2: the same bits, without a branch. A NaN stays one.
#[inline(always)]
pub fn ln_from_one_to_two(x: f32) -> f32 {
    let is_above = x > core::f32::consts::SQRT_2;
    let (half, e) = if is_above { (0.5, 1.0) } else { (1.0, 0.0) };
    ln_of_parts(x * half, e)
}

/// ln of `m · 2ᵉ` with `m` in [√½, √2).
#[inline(always)]
const fn ln_of_parts(m: f32, e: f32) -> f32 {
    let r = m - 1.0;
    let z = r * r;
    let p = 7.037_683_6e-2;
    let p = p * r - 0.115_146_1;
    let p = p * r + 0.116_769_98;
    let p = p * r - 0.124_201_41;
    let p = p * r + 0.142_493_23;
    let p = p * r - 0.166_680_57;
    let p = p * r + 0.200_007_14;
    let p = p * r - 0.249_999_94;
    let p = p * r + 0.333_333_3;
    let tail = r * z * p + e * -2.121_944_4e-4 - 0.5 * z;
    r + tail + e * 0.693_359_4
}

/// 1 − βᵗ: what Adam's moments are divided by after `t` steps. The power is taken in double, by squaring.
#[inline]
pub const fn bias_correction(beta: f32, t: u32) -> f32 {
    let (mut power, mut square, mut left) = (1.0, beta as f64, t);
    while left > 0 {
        if left & 1 == 1 {
            power *= square;
        }
        square *= square;
        left >>= 1;
    }
    (1.0 - power) as f32
}

#[cfg(test)]
mod tests {
    use super::*;
    extern crate std;

    fn ulps(actual: f32, expected: f64) -> f64 {
        let nearest = expected as f32;
        let ulp = f32::from_bits(nearest.abs().to_bits() + 1) as f64 - nearest.abs() as f64;
        (actual as f64 - expected).abs() / ulp
    }

    #[test]
    fn exp_is_close_everywhere() {
        let mut x = -87.0f32;
        while x < 88.7 {
            assert!(ulps(exp(x), (x as f64).exp()) <= 2.0, "{x}");
            x += 0.000_731;
        }
        // Subnormal results round twice.
        assert!((exp(-100.0) as f64 - (-100.0f64).exp()).abs() <= 2.0 * f32::from_bits(1) as f64);
        assert_eq!(exp(0.0), 1.0);
        assert_eq!(exp(f32::NEG_INFINITY), 0.0);
        assert_eq!(exp(-65_504.0), 0.0);
        assert_eq!(exp(f32::INFINITY), f32::INFINITY);
        assert!(exp(f32::NAN).is_nan());
    }

    #[test]
    fn ln_from_one_to_two_has_the_bits_of_ln() {
        for bits in 1.0f32.to_bits()..=2.0f32.to_bits() {
            let x = f32::from_bits(bits);
            assert_eq!(ln_from_one_to_two(x).to_bits(), ln(x).to_bits(), "{x}");
        }
        assert!(ln_from_one_to_two(f32::NAN).is_nan());
    }

    #[test]
    fn exp_nonpositive_has_the_bits_of_exp() {
        let fused = |x| exp_nonpositive_by(x, f32::mul_add);
        // What rounds to the 127th power.
        const LAST: f32 = -87.683_13;
        // Every 1,009th number from −0 to −∞.
        for bits in ((-0.0f32).to_bits()..=f32::NEG_INFINITY.to_bits()).step_by(1009) {
            let x = f32::from_bits(bits);
            let expected = if x <= LAST { 0.0 } else { exp(x) };
            assert_eq!(exp_nonpositive(x).to_bits(), expected.to_bits(), "{x}");
            assert_eq!(fused(x).to_bits(), expected.to_bits(), "{x}");
        }
        assert_eq!(exp_nonpositive(f32::NEG_INFINITY), 0.0);
        assert!(exp_nonpositive(f32::NAN).is_nan());
    }

    #[test]
    fn exp2_is_close_where_attention_needs_it() {
        let twice = |x| exp2_by(x, |a, b, c| a * b + c);
        let once = |x| exp2_by(x, f32::mul_add);
        let mut x = -126.0f32;
        while x < 127.0 {
            let expected = f64::from(x).exp2();
            for found in [twice(x), once(x)] {
                assert!(ulps(found, expected) <= 3.0, "2^{x} is not {found}");
            }
            x += 0.000_917;
        }
        for x in [-127.0, -1e30, f32::MIN, f32::NEG_INFINITY] {
            assert_eq!(twice(x), 0.0, "{x}");
        }
        assert!(twice(f32::NAN).is_nan());
    }

    #[test]
    fn ln_is_close_everywhere() {
        let mut x = 1e-30f32;
        while x < 1e30 {
            let expected = (x as f64).ln();
            assert!(
                ulps(ln(x), expected) <= 2.0 || (ln(x) as f64 - expected).abs() < 1e-7,
                "{x}"
            );
            x *= 1.000_37;
        }
        assert_eq!(ln(1.0), 0.0);
        assert_eq!(ln(0.0), f32::NEG_INFINITY);
        assert_eq!(ln(f32::INFINITY), f32::INFINITY);
        assert!(ln(-1.0).is_nan() && ln(f32::NAN).is_nan());
    }

    #[test]
    fn bias_correction_is_the_power() {
        for t in [1, 2, 3, 10, 1000, u32::MAX] {
            let expected = (1.0 - (0.999f32 as f64).powf(t as f64)) as f32;
            assert!(
                (bias_correction(0.999, t) - expected).abs() <= expected * 2e-7,
                "{t}"
            );
        }
        assert_eq!(bias_correction(0.9, 0), 0.0);
    }
}
