//! Rows of halves and bfloats as floats, and back. A row of floats is only copied.
//!
//! Conversions are exact or rounded once, so they have the same bits whatever the instructions: these take the widest.

use super::instructions::Instructions;
use super::simd::{self, Kernel, Lanes};
use crate::tensor::{Element, Precision};
use half::slice::HalfFloatSliceExt;
use half::{bf16, f16};
use std::borrow::Cow;
use std::sync::LazyLock;

pub(crate) static WIDEST: LazyLock<Instructions> = LazyLock::new(Instructions::widest);

/// Writes `row` to `floats`, exactly. Both have one length.
pub(crate) fn widen<E: Element>(row: &[E], floats: &mut [f32]) {
    match E::PRECISION {
        Precision::Half | Precision::BFloat16 => E::widen(Widen { row, floats }),
        Precision::Float => floats.copy_from_slice(bytemuck::cast_slice(row)),
    }
}

/// A row as floats, exactly.
pub struct Widen<'a, E> {
    row: &'a [E],
    floats: &'a mut [f32],
}

impl<E: Element> Kernel for Widen<'_, E> {
    type Output = ();

    fn plain(self) {
        let Self { row, floats } = self;
        match E::PRECISION {
            Precision::Half => bytemuck::cast_slice::<E, f16>(row).convert_to_f32_slice(floats),
            Precision::BFloat16 => {
                bytemuck::cast_slice::<E, bf16>(row).convert_to_f32_slice(floats)
            }
            Precision::Float => floats.copy_from_slice(bytemuck::cast_slice(row)),
        }
    }

    #[inline(always)]
    fn vectors<L: Lanes>(self, lanes: L) {
        simd::widen(lanes, self.row, self.floats);
    }
}

/// `values` as floats, without a copy where they are floats.
pub(crate) fn widened<E: Element>(values: &[E]) -> Cow<'_, [f32]> {
    match E::PRECISION {
        Precision::Half | Precision::BFloat16 => {
            let mut floats = vec![0.0; values.len()];
            widen(values, &mut floats);
            Cow::Owned(floats)
        }
        Precision::Float => Cow::Borrowed(bytemuck::cast_slice(values)),
    }
}

/// Writes `floats` to `row`, each rounded to the nearest element, ties to even. Both have one length.
pub(crate) fn round<E: Element>(floats: &[f32], row: &mut [E]) {
    match E::PRECISION {
        Precision::Half | Precision::BFloat16 => E::round(Round { floats, row }),
        Precision::Float => row.copy_from_slice(bytemuck::cast_slice(floats)),
    }
}

/// Floats as a row, each rounded to the nearest element, ties to even.
pub struct Round<'a, E> {
    floats: &'a [f32],
    row: &'a mut [E],
}

impl<E: Element> Kernel for Round<'_, E> {
    type Output = ();

    fn plain(self) {
        let Self { floats, row } = self;
        match E::PRECISION {
            Precision::Half => {
                bytemuck::cast_slice_mut::<E, f16>(row).convert_from_f32_slice(floats)
            }
            Precision::BFloat16 => {
                bytemuck::cast_slice_mut::<E, bf16>(row).convert_from_f32_slice(floats)
            }
            Precision::Float => row.copy_from_slice(bytemuck::cast_slice(floats)),
        }
    }

    #[inline(always)]
    fn vectors<L: Lanes>(self, lanes: L) {
        simd::round(lanes, self.floats, self.row);
    }
}

/// Rounds `floats` to elements in place; `room` is as long as they are.
pub(crate) fn round_to<E: Element>(floats: &mut [f32], room: &mut [E]) {
    if E::PRECISION != Precision::Float {
        round(floats, room);
        widen(room, floats);
    }
}

/// Rounds `floats` to halves in place; `halves` is memory for them. Both have one length.
pub(crate) fn round_in_place(floats: &mut [f32], halves: &mut [f16]) {
    halves.convert_from_f32_slice(floats);
    halves.convert_to_f32_slice(floats);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_bfloat_survives_and_rounding_is_to_even() {
        let all: Vec<bf16> = (0..=u16::MAX).map(bf16::from_bits).collect();
        let floats = widened(&all);
        let mut back = vec![bf16::ZERO; all.len()];
        round(&floats, &mut back);
        for (from, to) in all.iter().zip(&back) {
            assert!(from.to_bits() == to.to_bits() || from.is_nan() && to.is_nan());
        }
        let mut floats = [257.0, 259.0, 3.4e38, 1e-40, 0.0];
        round_to(&mut floats, &mut [bf16::ZERO; 5]);
        assert_eq!(floats[..2], [256.0, 260.0]);
        assert_eq!(floats[2], bf16::from_f32(3.4e38).to_f32());
        assert!(floats[3] > 0.0 && (floats[3] - 1e-40).abs() <= 2.0_f32.powi(-134));
    }

    #[test]
    fn every_half_survives_and_rounding_is_to_even() {
        let all: Vec<f16> = (0..=u16::MAX).map(f16::from_bits).collect();
        let floats = widened(&all);
        let mut back = vec![f16::ZERO; all.len()];
        round(&floats, &mut back);
        for (from, to) in all.iter().zip(&back) {
            assert!(from.to_bits() == to.to_bits() || from.is_nan() && to.is_nan());
        }
        let mut floats = [2049.0, 2051.0, 65_519.9, 65_520.0, 2e-8, 3.1e-8];
        round_in_place(&mut floats, &mut [f16::ZERO; 6]);
        assert_eq!(
            floats,
            [
                2048.0,
                2052.0,
                65_504.0,
                f32::INFINITY,
                0.0,
                2.0_f32.powi(-24)
            ]
        );
    }
}
