//! The largest of some vectors' elements, and how many are equal to it.

use super::bfloat::BFloat2;
use super::float;
use super::half::{Half2, Pair};
use super::vector::{Float4, Floats, Packed, Vector};

/// Vectors of which the largest elements are counted: 2,048 of them at most.
pub trait Ties: Vector<Bits = [u32; 4]> {
    /// The largest so far, each with how many have it.
    type Found: Copy;
    /// Of no vector: −∞, and zero.
    const NOTHING: Self::Found;
    /// The bits of the elements' signs.
    const SIGNS: u32;
    /// With a vector more. A NaN is the largest, and equal to none.
    fn one_more(found: Self::Found, x: Self) -> Self::Found;
    /// Of the vectors of both.
    fn of_both(a: Self::Found, b: Self::Found) -> Self::Found;
    /// The same with each word replaced.
    fn map(found: Self::Found, f: impl FnMut(u32) -> u32) -> Self::Found;
    /// The largest and the numbers, in float.
    fn in_float(found: Self::Found) -> [Self::Floats; 2];
    /// `sum` and those elements of `x` that stand where elements of two vectors are equal.
    fn add_where_equal(sum: Self::Floats, x: Self, ends: [Self; 2]) -> Self::Floats;

    /// Each element with the other sign where `signs` are [`Ties::SIGNS`], and as it is where they are 0.
    #[inline(always)]
    fn flipped(self, signs: u32) -> Self {
        Self::from_bits(self.to_bits().map(|word| word ^ signs))
    }
}

/// Numbers of 16 bits, which half counts exactly as far as they go here.
impl Ties for Packed<Half2, 4> {
    type Found = [[Half2; 2]; 4];
    const NOTHING: Self::Found = [[Half2(0xfc00_fc00), Half2::ZERO]; 4];
    const SIGNS: u32 = 0x8000_8000;

    #[inline(always)]
    fn one_more(mut found: Self::Found, x: Self) -> Self::Found {
        let words = x.to_bits();
        let mut i = 0;
        while i < 4 {
            let ([before, count], x) = (found[i], Half2(words[i]));
            let most = before.max(x);
            let count = count.mul_add(before.equal(most), x.equal(most));
            found[i] = [most, count];
            i += 1;
        }
        found
    }
    #[inline(always)]
    fn of_both(mut a: Self::Found, b: Self::Found) -> Self::Found {
        let mut i = 0;
        while i < 4 {
            let ([of_a, count_a], [of_b, count_b]) = (a[i], b[i]);
            let most = of_a.max(of_b);
            let count = count_a.mul(of_a.equal(most));
            a[i] = [most, count_b.mul_add(of_b.equal(most), count)];
            i += 1;
        }
        a
    }
    #[inline(always)]
    fn map(found: Self::Found, mut f: impl FnMut(u32) -> u32) -> Self::Found {
        found.map(|pair| pair.map(|word| Half2(f(word.0))))
    }
    #[inline(always)]
    fn in_float(found: Self::Found) -> [[f32; 8]; 2] {
        [0, 1].map(|of| Self::from_bits(found.map(|pair| pair[of].0)).widen())
    }
    #[inline(always)]
    fn add_where_equal(sum: [f32; 8], x: Self, [a, b]: [Self; 2]) -> [f32; 8] {
        let (mut x, a, b) = (x.to_bits(), a.to_bits(), b.to_bits());
        let mut i = 0;
        while i < 4 {
            x[i] &= Half2(a[i]).equal_mask(Half2(b[i]));
            i += 1;
        }
        sum.zip(Self::from_bits(x).widen(), |sum, x| sum + x)
    }
}

/// In float: what has no comparison of pairs, or no pairs.
macro_rules! in_float {
    ($vector:ty, $width:literal, $signs:literal) => {
        impl Ties for $vector {
            type Found = [[f32; $width]; 2];
            const NOTHING: Self::Found = [<[f32; $width]>::LEAST, <[f32; $width]>::ZERO];
            const SIGNS: u32 = $signs;

            #[inline(always)]
            fn one_more(found: Self::Found, x: Self) -> Self::Found {
                Self::of_both(found, [x.widen(), <[f32; $width]>::ONE])
            }
            #[inline(always)]
            fn of_both([a, of_a]: Self::Found, [b, of_b]: Self::Found) -> Self::Found {
                let most = a.zip(b, float::max);
                let count = |count: [f32; $width], of: [f32; $width]| {
                    let same = of.zip(most, |of, most| if of == most { 1.0 } else { 0.0 });
                    count.zip(same, |count, same| if same != 0.0 { count } else { 0.0 })
                };
                [most, count(of_a, a).zip(count(of_b, b), |a, b| a + b)]
            }
            #[inline(always)]
            fn map(found: Self::Found, mut f: impl FnMut(u32) -> u32) -> Self::Found {
                found.map(|floats| floats.map(|value| f32::from_bits(f(value.to_bits()))))
            }
            #[inline(always)]
            fn in_float(found: Self::Found) -> [[f32; $width]; 2] {
                found
            }
            #[inline(always)]
            fn add_where_equal(sum: [f32; $width], x: Self, ends: [Self; 2]) -> [f32; $width] {
                let ([a, b], x) = (ends.map(Self::widen), x.widen());
                let mut sum = sum;
                let mut i = 0;
                while i < $width {
                    sum[i] += if a[i] == b[i] { x[i] } else { 0.0 };
                    i += 1;
                }
                sum
            }
        }
    };
}

in_float!(Packed<BFloat2, 4>, 8, 0x8000_8000);
in_float!(Float4, 4, 0x8000_0000);
