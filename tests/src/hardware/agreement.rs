//! How near to a card's results others must be, and what a difference looks like.

use super::Case;
use super::matrix;
use half::f16;

/// What "the same result" means for a case.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Agreement {
    /// The same bits.
    Bits,
    /// Approximate functions: as near as the PTX ISA's entry of the instruction promises.
    Near {
        /// The format of the results.
        format: Format,
        /// The error promised, relative to the result, or to `floor` where the result is smaller.
        relative: f64,
        /// Zero for a bound that is relative throughout.
        floor: f64,
    },
    /// `mma`: the ISA leaves open in which order and precision the products are added. The products are exact; a sum's
    /// error is within some units of float's last place of the largest magnitude that may stand in it, and one rounding.
    Product {
        /// Products of a sum.
        k: usize,
        /// The format of the results.
        format: Format,
        /// The type of the factors.
        factors: matrix::Factors,
    },
}

/// A floating-point format of results.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// One half.
    Half,
    /// Two halves in one register.
    HalfPair,
    /// A float.
    Single,
}

impl Format {
    fn values(self, bits: u64) -> [f64; 2] {
        match self {
            Format::Single => [f64::from(f32::from_bits(bits as u32)), 0.0],
            Format::Half | Format::HalfPair => {
                [bits as u16, (bits >> 16) as u16].map(|half| f16::from_bits(half).to_f64())
            }
        }
    }

    /// The largest number and one step more, which stands for infinity when a finite number is compared with it.
    fn overflow(self) -> f64 {
        if self == Format::Single {
            2f64.powi(128)
        } else {
            65536.0
        }
    }

    /// One unit in the last place of `x`.
    fn last_place(self, x: f64) -> f64 {
        let (precision, least) = if self == Format::Single {
            (24, -126)
        } else {
            (11, -14)
        };
        let exponent = if x == 0.0 {
            least
        } else {
            x.abs().log2().floor() as i32
        };
        2f64.powi(exponent.max(least) - (precision - 1))
    }
}

/// Units of the last place of float by which a tensor core's sum may be off for each of its terms: terms are aligned to
/// the largest one and cut (Fasi, Higham, Mikaitis and Pranesh, "Numerical behavior of NVIDIA tensor cores", 2021).
const UNITS_A_TERM: f64 = 2.0;

impl Case {
    /// Where `ours` differs from the card's results, and how often; `None` where they agree.
    ///
    /// # Panics
    /// Where either has another length than [`Case::output_bytes`].
    pub fn disagreement(&self, input: &[u8], ours: &[u8], card: &[u8]) -> Option<String> {
        assert_eq!(
            (ours.len(), card.len()),
            (self.output_bytes(), self.output_bytes()),
            "{}",
            self.name
        );
        let bytes = self.result_bytes();
        let values = |b: &[u8]| {
            b.chunks_exact(bytes)
                .map(little_endian)
                .collect::<Vec<u64>>()
        };
        let (ours, card) = (values(ours), values(card));
        let different: Vec<usize> = (0..card.len())
            .filter(|&i| ours[i] != card[i] && !self.agrees(input, i, ours[i], card[i]))
            .collect();
        let &first = different.first()?;
        let width = 2 * bytes;
        let mut text = format!(
            "{}: {} of {} results differ",
            self.name,
            different.len(),
            card.len()
        );
        let results = self.results_of_a_lane();
        if results == 0 {
            text += &format!(
                "; word {first} is {:#0w$x}, on the GPU {:#0w$x}",
                ours[first],
                card[first],
                w = width + 2
            );
            return Some(text);
        }
        // A few that differ in different ways say more than one.
        for &i in different.iter().step_by(different.len().div_ceil(4)) {
            let lane = i / results;
            let operands: Vec<String> = self
                .lane_operands(input, lane)
                .map(|v| format!("{v:#x}"))
                .collect();
            text += &format!(
                "; lane {lane} result {} of ({}) is {:#0w$x}, on the GPU {:#0w$x}",
                i % results,
                operands.join(", "),
                ours[i],
                card[i],
                w = width + 2,
            );
        }
        Some(text)
    }

    /// Whether result `i` of all is near enough.
    fn agrees(&self, input: &[u8], i: usize, ours: u64, card: u64) -> bool {
        match self.agreement {
            Agreement::Bits => false,
            Agreement::Near {
                format,
                relative,
                floor,
            } => near(format, ours, card, |x, _| relative * x.abs().max(floor)),
            Agreement::Product { k, format, factors } => {
                let (lane, register) = (i / self.results_of_a_lane(), i % self.results_of_a_lane());
                near(format, ours, card, |_, part| {
                    let terms =
                        matrix::terms(self, input, (k, factors), format, lane, register, part);
                    let largest = terms.iter().fold(0.0, |m: f64, t| m.max(t.abs()));
                    let sum: f64 = terms.iter().map(|t| t.abs()).sum();
                    UNITS_A_TERM
                        * (k + 1) as f64
                        * Format::Single.last_place(largest.max(sum / 2.0))
                })
            }
        }
    }

    /// Bytes of one result.
    fn result_bytes(&self) -> usize {
        match self.results {
            super::Results::EachLane { bytes, .. } => bytes.into(),
            super::Results::Shared { .. } => 4,
        }
    }

    fn results_of_a_lane(&self) -> usize {
        self.output_stride() / self.result_bytes()
    }
}

/// Whether numbers are within `bound` and a rounding of each other, NaN equal to NaN. `bound` is given the card's value
/// and which half of a pair it is.
fn near(format: Format, ours: u64, card: u64, bound: impl Fn(f64, usize) -> f64) -> bool {
    let parts = if format == Format::HalfPair { 2 } else { 1 };
    let (ours, card) = (format.values(ours), format.values(card));
    (0..parts).all(|part| {
        let (x, y) = (ours[part], card[part]);
        if x.is_nan() || y.is_nan() {
            return x.is_nan() && y.is_nan();
        }
        let finite = |v: f64| v.clamp(-format.overflow(), format.overflow());
        let (x, y) = (finite(x), finite(y));
        x == y || (x - y).abs() <= bound(y, part) + format.last_place(y)
    })
}

fn little_endian(bytes: &[u8]) -> u64 {
    bytes.iter().rev().fold(0, |v, b| v << 8 | u64::from(*b))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hardware::values::Values;

    fn bits(x: f32) -> u64 {
        x.to_bits().into()
    }

    #[test]
    fn approximations_have_a_bound() {
        let near = |ours: u64, card: u64| {
            near(Format::Single, ours, card, |x, _| x.abs() * 2f64.powi(-22))
        };
        assert!(near(bits(1.0), bits(1.0) + 2) && !near(bits(1.0), bits(1.0) + 4));
        assert!(
            near(0x7F80_0000, 0x7F7F_FFFF)
                && !near(0x7F80_0000, bits(1e38))
                && !near(0x7F80_0000, 0xFF80_0000)
        );
        assert!(near(0x7FC0_0000, 0xFFFF_FFFF) && !near(0x7FC0_0000, 0x7F80_0000));
        assert!(near(1, 2) && !near(1, 3));
    }

    #[test]
    fn one_bit_is_a_difference() {
        let case = Case::new("add.rn.f32", &[Values::Single; 2], 4);
        let (input, card) = (case.input(), vec![0; case.output_bytes()]);
        assert_eq!(case.disagreement(&input, &card, &card), None);
        let mut ours = card.clone();
        ours[4 * 7] = 1;
        let text = case
            .disagreement(&input, &ours, &card)
            .expect("a difference");
        assert!(
            text.starts_with("add.rn.f32: 1 of 1024")
                && text.contains("lane 7")
                && text.contains("0x00000001"),
            "{text}"
        );
    }
}
