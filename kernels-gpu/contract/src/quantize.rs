//! Matrices of 8-bit codes: a code times the scale of its column is an element.
//!
//! | format | a code is | largest |
//! |---|---|---|
//! | int8 | a whole number, stored [`INT8_ZERO`] larger than it is, so that codes are added up as they lie in memory | 127 |
//! | e4m3 | a float of 4 bits of exponent and 3 of mantissa (OCP's, without its NaN) | 448 |
//!
//! What a scale should be is told by the largest magnitude of its column, which is kept while codes are made: those of one step
//! are the scales of the next (delayed scaling). What is larger than a code can say becomes the largest, and is counted.

use crate::format::table;
use crate::{DevicePtr, EntrySpec, HalfBits, param_struct};

/// The int8 code of zero.
pub const INT8_ZERO: u32 = 128;

/// No scale is smaller, so that its reciprocal is a float.
pub const SMALLEST_SCALE: f32 = 7.888_609e-31; // 2⁻¹⁰⁰

/// Threads of a CTA.
pub const THREADS_PER_CTA: u32 = 256;

/// Most lanes side by side of a row, as a base-2 logarithm.
const MOST_LANES_LOG2: u32 = 5;

/// [`CodesParams::format`] of [`CodeFormat::Int8`].
pub const INT8: u32 = 0;
/// [`CodesParams::format`] of [`CodeFormat::E4m3`].
pub const E4M3: u32 = 1;

/// Word of [`CodesParams::counts`]: elements that were larger than a code can say.
pub const SATURATED: u32 = 0;
/// Word of [`CodesParams::counts`]: infinities, and NaNs, which became zero.
pub const NOT_FINITE: u32 = 1;
/// Words of [`CodesParams::counts`].
pub const COUNTS: u32 = 2;

/// Adding it rounds a number below 2²² to the nearest integer, ties to even, and leaves that in the low bits.
const ROUND: f32 = 12_582_912.0; // 1.5 · 2²³

/// How a number is told by 8 bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum CodeFormat {
    /// Whole numbers from −127 to 127: of numbers of one magnitude the more exact.
    Int8,
    /// Floats of 3 bits of mantissa, from 2⁻⁹ to 448: of numbers of many magnitudes the more exact.
    E4m3,
}

impl CodeFormat {
    /// All of them.
    pub const ALL: [Self; 2] = [Self::Int8, Self::E4m3];

    /// What it is called.
    #[inline]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Int8 => "int8",
            Self::E4m3 => "e4m3",
        }
    }

    /// The largest number.
    #[inline]
    pub const fn limit(self) -> f32 {
        match self {
            Self::Int8 => 127.0,
            Self::E4m3 => 448.0,
        }
    }

    /// What is larger is nearer to the number that would follow the largest.
    #[inline]
    pub const fn saturation(self) -> f32 {
        match self {
            Self::Int8 => 127.5,
            Self::E4m3 => 464.0,
        }
    }

    /// The code of zero.
    #[inline]
    pub const fn zero(self) -> u8 {
        match self {
            Self::Int8 => INT8_ZERO as u8,
            Self::E4m3 => 0,
        }
    }

    /// As parameters have it.
    #[inline]
    pub const fn word(self) -> u32 {
        match self {
            Self::Int8 => INT8,
            Self::E4m3 => E4M3,
        }
    }

    /// The code of `number`: the nearest, ties to even, or with 16 random bits in the upper half of `noise` one of the two neighbours,
    /// so that its expectation is the number. What is too large becomes the largest, a NaN zero.
    #[inline(always)]
    pub const fn encode(self, number: f32, noise: Option<u32>) -> u32 {
        self.encode_within(self.within(number), noise)
    }

    /// The number nearest to `number` that is no larger than the largest; of a NaN zero.
    #[inline(always)]
    pub const fn within(self, number: f32) -> f32 {
        let limit = self.limit();
        let number = if number.is_nan() { 0.0 } else { number };
        let number = if number > limit { limit } else { number };
        if number < -limit { -limit } else { number }
    }

    /// [`CodeFormat::encode`] of a number that is [within](CodeFormat::within) the format: most are, and a few instructions do.
    #[inline(always)]
    pub const fn encode_within(self, number: f32, noise: Option<u32>) -> u32 {
        match self {
            Self::Int8 => match noise {
                None => int8_bits(number) & 0xff,
                Some(noise) => int8_drawn(number, noise >> 16) as u32,
            },
            Self::E4m3 => {
                let sign = number.to_bits() >> 24 & 0x80;
                let magnitude = f32::from_bits(number.to_bits() & 0x7fff_ffff);
                // Below 2⁻⁶ codes are multiples of 2⁻⁹.
                let small = magnitude * 512.0;
                let code = if small < 8.0 {
                    match noise {
                        None => (small + ROUND).to_bits() & 0xf,
                        Some(noise) => (small + (noise >> 16) as f32 * (1.0 / 65536.0)) as u32,
                    }
                } else {
                    let bits = magnitude.to_bits();
                    let added = match noise {
                        None => 0x7_ffff + (bits >> 20 & 1),
                        Some(noise) => noise >> 12,
                    };
                    // The exponent's bias is 7 and that of a float 127.
                    ((bits + added) >> 20) - (120 << 3)
                };
                sign | code
            }
        }
    }

    /// The number of a code.
    #[inline]
    pub const fn decode(self, code: u8) -> f32 {
        match self {
            Self::Int8 => (code as i32 - INT8_ZERO as i32) as f32,
            Self::E4m3 => {
                let (exponent, mantissa) = (code as u32 >> 3 & 0xf, code as u32 & 7);
                let magnitude = if exponent == 0 {
                    mantissa as f32 * (1.0 / 512.0)
                } else {
                    f32::from_bits((exponent + 120) << 23 | mantissa << 20)
                };
                if code & 0x80 != 0 {
                    -magnitude
                } else {
                    magnitude
                }
            }
        }
    }

    /// The scale for a column whose largest magnitude was `largest`, with room for `margin` times that; the `previous` one where
    /// there was nothing but zeros, or an infinity.
    #[inline]
    pub const fn next_scale(self, largest: f32, margin: f32, previous: f32) -> f32 {
        let scale = largest * margin / self.limit();
        // A NaN is in neither range.
        if scale > 0.0 && scale < f32::INFINITY {
            if scale < SMALLEST_SCALE {
                SMALLEST_SCALE
            } else {
                scale
            }
        } else {
            previous
        }
    }
}

/// What is coded instead of `value` where a positive one is to stay positive: one less than the column's scale becomes that. So its
/// nearest code is no zero, and whether a ReLU let it through can be told from it.
#[inline(always)]
pub const fn kept_positive(value: f32, scale: f32) -> f32 {
    if value > 0.0 && value < scale {
        scale
    } else {
        value
    }
}

/// A word whose lowest byte is the nearest int8 code of a number within its range.
#[inline(always)]
pub const fn int8_bits(number: f32) -> u32 {
    (number + (ROUND + INT8_ZERO as f32)).to_bits()
}

/// What the int8 code of a number within its range is the whole part of: the number, [`INT8_ZERO`], and a fraction of the 16 bits of
/// `noise`, which are the last bits of a float between 128 and 129. In [1, 256).
#[inline(always)]
pub const fn int8_drawn(number: f32, noise: u32) -> f32 {
    // Of 23 bits behind the leading one seven are before the point.
    const { assert!(INT8_ZERO == 1 << 7) };
    number + f32::from_bits((INT8_ZERO as f32).to_bits() | noise)
}

/// Codes between the starts of two rows of so many columns: whole 16-byte vectors.
#[inline]
pub const fn row_codes(columns: u64) -> u64 {
    columns.next_multiple_of(crate::VECTOR_BYTES as u64)
}

/// Lanes side by side of a row of `vectors`, as a base-2 logarithm.
#[inline]
pub const fn lanes_log2(vectors: u32) -> u32 {
    if vectors > 1 << MOST_LANES_LOG2 {
        MOST_LANES_LOG2
    } else {
        vectors.next_power_of_two().ilog2()
    }
}

/// Rows of a CTA: some for each of its rows of lanes, and so many that there are at most 2,048 CTAs.
#[inline]
pub const fn rows_per_cta(rows: u64) -> u32 {
    let few = crate::elementwise::rows_of_few_ctas(rows);
    if few < 64 { 64 } else { few }
}

/// Bytes of shared memory in which the threads of a CTA put the largest magnitudes of their columns together: eight words each.
#[inline]
pub const fn largest_bytes(threads: u32) -> u32 {
    threads * 8 * 4
}

param_struct! {
    /// Where the codes of a matrix go, and how they are made: `y = x · row_scale / scales`. Of `quantize`, and of the entries that
    /// make codes of what they write.
    pub struct CodesParams {
        /// Codes, rows of `stride`; past the last column the code of zero.
        pub y: DevicePtr<u32>,
        /// Scale of each column, positive; `stride` long.
        pub scales: DevicePtr<f32>,
        /// Factor of each row, or null for 1.
        pub row_scale: DevicePtr<f32>,
        /// Bits of the largest magnitude of each column so far, before the scale, infinite for a NaN; `stride` long.
        pub largest: DevicePtr<u32>,
        /// What was counted so far: [`COUNTS`] words.
        pub counts: DevicePtr<u32>,
        /// The step that random numbers are of, or null to round to the nearest.
        pub step: DevicePtr<u32>,
        /// By which number random ones are drawn for each row, or null for its place.
        pub numbers: DevicePtr<u32>,
        /// Rows from here on are not counted.
        pub counted: u64,
        /// Key of the random numbers.
        pub key: [u32; 2],
        /// Distance of two rows of `y` in codes: a multiple of 16.
        pub stride: u32,
        /// [`INT8`] or [`E4M3`].
        pub format: u32,
    }
}

impl CodesParams {
    /// None are made.
    pub const NONE: Self = Self {
        y: DevicePtr::NULL,
        scales: DevicePtr::NULL,
        row_scale: DevicePtr::NULL,
        largest: DevicePtr::NULL,
        counts: DevicePtr::NULL,
        step: DevicePtr::NULL,
        numbers: DevicePtr::NULL,
        counted: 0,
        key: [0; 2],
        stride: 0,
        format: INT8,
    };
}

param_struct! {
    /// Parameters of `quantize`, and of `quantize_positive`, which takes [`kept_positive`] of each element. CTAs in x have [`rows_per_cta`] rows each, in y `1 << lanes_log2` vectors of each row of codes,
    /// where a vector is as many columns as 16 bytes of `x` have.
    pub struct QuantizeParams {
        /// Input.
        pub x: DevicePtr<HalfBits>,
        /// The codes.
        pub codes: CodesParams,
        /// Rows.
        pub rows: u64,
        /// Rows of a CTA.
        pub rows_per_cta: u32,
        /// Columns, padding not counted.
        pub columns: u32,
        /// Distance of two rows of `x` in 16-byte vectors.
        pub x_vectors: u32,
        /// Base-2 logarithm of the lanes side by side of a row.
        pub lanes_log2: u32,
    }
}

param_struct! {
    /// Parameters of `dequantize`, `y = codes · scales`, padding included: a CTA for each `rows_per_cta` rows, of
    /// [`elementwise::THREADS_PER_CTA`](crate::elementwise::THREADS_PER_CTA).
    pub struct DequantizeParams {
        /// Codes, rows of `stride`; past the last column the code of zero.
        pub codes: DevicePtr<u32>,
        /// Scale of each column; `stride` long.
        pub scales: DevicePtr<f32>,
        /// Output. Its rows have no more elements than those of the codes, padding included.
        pub y: DevicePtr<HalfBits>,
        /// Rows.
        pub rows: u64,
        /// Rows of a CTA: [`elementwise::rows_per_cta`](crate::elementwise::rows_per_cta).
        pub rows_per_cta: u32,
        /// 16-byte vectors of a row of `y`.
        pub vectors: u32,
        /// [`elementwise::reciprocal`](crate::elementwise::reciprocal) of them.
        pub reciprocal: u32,
        /// Distance of two rows of codes: a multiple of 16.
        pub stride: u32,
        /// [`INT8`] or [`E4M3`].
        pub format: u32,
        /// Zero.
        pub reserved: u32,
    }
}

param_struct! {
    /// Parameters of `update_scales`: a thread a column. [`CodeFormat::next_scale`], and the largest magnitudes become zero.
    pub struct UpdateScalesParams {
        /// Scale of each column.
        pub scales: DevicePtr<f32>,
        /// Bits of the largest magnitude of each column.
        pub largest: DevicePtr<u32>,
        /// How many times the largest magnitude there is to be room for.
        pub margin: f32,
        /// Columns.
        pub columns: u32,
        /// [`INT8`] or [`E4M3`].
        pub format: u32,
        /// Zero.
        pub reserved: u32,
    }
}

/// Calls `$with!` with the entries of this family: see [`crate::format`].
#[macro_export]
macro_rules! quantize_entries {
    ($with:ident) => {
        $with! {
            formats {
                /// Codes of elements.
                quantize(QuantizeParams): F16 = quantize_f16, F32 = quantize_f32, BF16 = quantize_bf16;
                /// Codes of elements, of which what is positive stays so.
                quantize_positive(QuantizeParams):
                    F16 = quantize_positive_f16, F32 = quantize_positive_f32, BF16 = quantize_positive_bf16;
                /// Elements of codes.
                dequantize(DequantizeParams): F16 = dequantize_f16, F32 = dequantize_f32, BF16 = dequantize_bf16;
            }
            plain {
                /// Scales from the largest magnitudes.
                update_scales(UpdateScalesParams);
            }
        }
    };
}

/// The entries of this family.
pub const ENTRIES: &[&[EntrySpec]] = &[quantize_entries!(table)];

#[cfg(test)]
mod tests {
    use super::*;

    const FORMATS: [CodeFormat; 2] = [CodeFormat::Int8, CodeFormat::E4m3];

    /// The codes that are made, by what they stand for: not int8's 0, which would be −128, nor e4m3's NaNs and −0.
    fn codes(format: CodeFormat) -> impl Iterator<Item = u8> {
        (0..=u8::MAX).filter(move |&code| match format {
            CodeFormat::Int8 => code != 0,
            CodeFormat::E4m3 => code & 0x7f != 0x7f && code != 0x80,
        })
    }

    #[test]
    fn a_number_that_is_a_code_is_that_code() {
        for format in FORMATS {
            for code in codes(format) {
                let number = format.decode(code);
                assert_eq!(format.encode(number, None), code.into(), "{number}");
                for noise in [0, 0x8000_0000, u32::MAX] {
                    let made = format.encode(number, Some(noise)) as u8;
                    assert_eq!(format.decode(made), number, "{format:?} {noise:x}");
                }
            }
            assert_eq!(format.decode(format.zero()), 0.0);
        }
        let known = [(0x7e, 448.0), (0x08, 0.015_625), (0x01, 0.001_953_125)];
        for (code, number) in known {
            assert_eq!(CodeFormat::E4m3.decode(code), number);
        }
    }

    #[test]
    fn others_become_the_nearest_ties_to_even() {
        for format in FORMATS {
            for step in 0..40_000 {
                // Also where e4m3 is subnormal.
                let number =
                    (step as f32 - 20_000.0) * format.limit() / 20_000.0 / 4f32.powi(step % 9);
                let made = format.decode(format.encode(number, None) as u8);
                let nearest = codes(format)
                    .map(|code| (format.decode(code) - number).abs())
                    .fold(f32::INFINITY, f32::min);
                assert_eq!((made - number).abs(), nearest, "{format:?} {number}");
            }
        }
        for (number, even) in [(0.5, 0.0), (1.5, 2.0), (-2.5, -2.0)] {
            let code = CodeFormat::Int8.encode(number, None) as u8;
            assert_eq!(CodeFormat::Int8.decode(code), even);
        }
        assert_eq!(CodeFormat::E4m3.encode(17.0, None), 0x58); // 16 and 18
        assert_eq!(CodeFormat::E4m3.encode(19.0, None), 0x5a); // 18 and 20
    }

    #[test]
    fn noise_makes_either_neighbour_as_often_as_it_is_near() {
        for (format, number, below, above, share) in [
            (CodeFormat::Int8, -3.25, -4.0, -3.0, 0.75),
            (CodeFormat::E4m3, 17.5, 16.0, 18.0, 0.75),
            (CodeFormat::E4m3, 0.001, 0.0, 0.001_953_125, 0.512),
        ] {
            let mut up = 0;
            for noise in (0..=u32::MAX).step_by(1 << 16) {
                let made = format.decode(format.encode(number, Some(noise)) as u8);
                assert!(made == below || made == above, "{format:?}: {made}");
                up += u32::from(made == above);
            }
            assert!(
                (up as f32 / 65536.0 - share).abs() < 1e-3,
                "{format:?}: {up}"
            );
        }
    }

    #[test]
    fn what_is_no_number_or_too_large() {
        for format in FORMATS {
            for noise in [None, Some(u32::MAX)] {
                for (number, expected) in [
                    (f32::NAN, 0.0),
                    (f32::INFINITY, format.limit()),
                    (f32::NEG_INFINITY, -format.limit()),
                    (1e9, format.limit()),
                ] {
                    let made = format.decode(format.encode(number, noise) as u8);
                    assert_eq!(made, expected, "{format:?} {number} {noise:?}");
                }
            }
            assert_eq!(format.next_scale(0.0, 1.5, 3.0), 3.0);
            assert_eq!(format.next_scale(f32::INFINITY, 1.5, 3.0), 3.0);
            assert_eq!(format.next_scale(f32::MAX, 1.5, 3.0), 3.0);
            assert_eq!(format.next_scale(1e-38, 1.5, 3.0), SMALLEST_SCALE);
            assert!((1.0 / SMALLEST_SCALE).is_finite());
            assert_eq!(format.next_scale(format.limit(), 1.5, 3.0), 1.5);
        }
    }

    #[test]
    fn lanes_cover_rows() {
        assert_eq!([0, 16, 17].map(row_codes), [0, 16, 32]);
        for vectors in 1..100 {
            let lanes = 1 << lanes_log2(vectors);
            assert!(vectors.div_ceil(lanes) == 1 || lanes == 32);
            // A thread an element of the lanes adds up what all rows of lanes found.
            assert!(lanes * 8 <= THREADS_PER_CTA);
        }
        assert!(u64::from(u32::MAX).div_ceil(rows_per_cta(u32::MAX as u64) as u64) <= 2048);
    }
}
