//! Every operator on random operands with NaN, infinities and subnormals among them, to be recorded on a card: its
//! kernels, as the card's compiler made them of the same PTX, must give what the emulator gives.
//!
//! What is stored belongs to an operator and its operands and not to a kernel's text, so a kernel may be rewritten. A
//! rewrite that rounds differently shows here; the recording is then made again, on a card:
//!
//! ```text
//! cargo run --release -p halfgnn-tests --features cuda --bin record_hardware -- tests/data/hardware --operators
//! ```
//!
//! Of results that must have the same bits a hash of each row is stored. Products on tensor cores are stored as numbers:
//! the order of their sums is the card's own, and the distance is bounded by the sizes of their terms.

mod attention;
mod bits;
mod construct;
mod dense;
mod normalize;
mod quantized;
mod sampling;
mod shadow;
mod sparse;
mod training;

use super::values::fnv;
use crate::input::Random;
use crate::reference::{FLOAT, roundoff, subnormal_error};
use halfgnn::backend::Backend;
use halfgnn::tensor::Element;
use std::path::PathBuf;

/// Where the results are kept in the repository.
pub fn folder() -> PathBuf {
    super::store::folder().join("operators")
}

/// Runs an operator, and says how its results are to be compared.
type Run<B> = Box<dyn Fn(&B, &mut Operands) -> Results + Send + Sync>;

/// One operator with its operands.
pub struct OperatorCase<B> {
    /// Unique.
    pub name: String,
    run: Run<B>,
}

impl<B> OperatorCase<B> {
    fn new(
        name: impl Into<String>,
        run: impl Fn(&B, &mut Operands) -> Results + Send + Sync + 'static,
    ) -> Self {
        Self {
            name: name.into(),
            run: Box::new(run),
        }
    }

    /// Runs it.
    ///
    /// # Panics
    /// Where the operator refuses its operands or fails; on the emulator, with the fault.
    pub fn run(&self, backend: &B) -> Outcome {
        let mut operands = Operands {
            seed: fnv(self.name.as_bytes()) as u32,
            fingerprint: 0,
        };
        let results = (self.run)(backend, &mut operands);
        Outcome {
            fingerprint: operands.fingerprint,
            results,
        }
    }
}

/// All cases.
pub fn cases<B: Backend + 'static>() -> Vec<OperatorCase<B>> {
    let mut cases = sparse::cases();
    cases.extend(attention::cases());
    cases.extend(dense::cases());
    cases.extend(normalize::cases());
    cases.extend(shadow::cases());
    cases.extend(training::cases());
    cases.extend(bits::cases());
    cases.extend(construct::cases());
    cases.extend(sampling::cases());
    cases.extend(quantized::cases());
    cases
}

/// Draws the operands of a case, from its name, and remembers what it drew.
pub struct Operands {
    seed: u32,
    fingerprint: u64,
}

/// What stands among the random numbers, about one in 24.
const CORNERS: [f32; 16] = [
    0.0,
    -0.0,
    1.0,
    -1.0,
    // Subnormal in half, and in float.
    6e-8,
    -3e-5,
    5e-7,
    1e-40,
    -1e-45,
    2048.0,
    -2049.0,
    0.333_333_34,
    // Behind here, what leaves little of a sum.
    65_504.0,
    f32::INFINITY,
    f32::NEG_INFINITY,
    f32::NAN,
];

/// How many of the corners leave a sum what it is.
const MILD: usize = 12;

impl Operands {
    fn next(&mut self) -> Random {
        self.seed = self.seed.wrapping_add(1);
        Random(self.seed)
    }

    fn note(&mut self, bytes: &[u8]) {
        self.fingerprint = self.fingerprint.rotate_left(1) ^ fnv(bytes);
    }

    fn noted<T: Copy, const N: usize>(
        &mut self,
        values: Vec<T>,
        bytes: fn(T) -> [u8; N],
    ) -> Vec<T> {
        let all: Vec<u8> = values.iter().flat_map(|&value| bytes(value)).collect();
        self.note(&all);
        values
    }

    /// In [-1, 1).
    fn uniform<E: Element>(&mut self, len: usize) -> Vec<f32> {
        let values = self.next().uniform::<E>(len);
        self.noted(values, f32::to_le_bytes)
    }

    /// In [-1, 1), and corners among them.
    fn mixed<E: Element>(&mut self, len: usize) -> Vec<f32> {
        self.with_corners::<E>(len, |_| &CORNERS)
    }

    /// In [-1, 1), and corners among them that leave a sum what it is.
    fn mild<E: Element>(&mut self, len: usize) -> Vec<f32> {
        self.with_corners::<E>(len, |_| &CORNERS[..MILD])
    }

    /// A matrix in [-1, 1) with all corners in each third column, so that sums of others stay finite.
    fn striped<E: Element>(&mut self, rows: usize, columns: usize) -> Vec<f32> {
        self.with_corners::<E>(rows * columns, |i| match i % columns % 3 {
            0 => &CORNERS,
            _ => &CORNERS[..MILD],
        })
    }

    fn with_corners<E: Element>(
        &mut self,
        len: usize,
        corners: impl Fn(usize) -> &'static [f32],
    ) -> Vec<f32> {
        let mut values = self.next().uniform::<E>(len);
        let random = self.next();
        for (i, value) in values.iter_mut().enumerate() {
            let bits = random.bits(i);
            if bits.is_multiple_of(24) {
                let corners = corners(i);
                *value = E::from_f32(corners[(bits / 24) as usize % corners.len()]).to_f32();
            }
        }
        self.noted(values, f32::to_le_bytes)
    }

    /// Integers of at most `most`, of both signs.
    fn integers(&mut self, most: u32, len: usize) -> Vec<f32> {
        let values = self.next().integers(most, len);
        self.noted(values, f32::to_le_bytes)
    }

    /// Numbers below `bound`.
    fn below(&mut self, bound: u32, len: usize) -> Vec<u32> {
        let words = self.next().below(bound, len);
        self.noted(words, u32::to_le_bytes)
    }
}

/// What an operator gave.
#[derive(Clone, Debug, PartialEq)]
pub struct Outcome {
    /// Of the operands: what is compared must have been given the same.
    pub fingerprint: u64,
    /// The results.
    pub results: Results,
}

/// The results of a case, of one matrix or several, in the form in which they are compared.
#[derive(Clone, Debug, PartialEq)]
pub enum Results {
    /// The same bits: a hash of each row.
    Bits(Vec<u32>),
    /// Numbers, and how far each may be from the card's.
    Near(Vec<f32>, Vec<f64>),
}

/// How far sums of `terms` products on two tensor cores may be apart: on either each term is cut at two units in float's
/// last place of the largest magnitude (see [`agreement`](super::agreement)), and the sum is rounded once.
fn product_bound<O: Element>(terms: usize, size: f64) -> f64 {
    4.0 * (terms + 1) as f64 * FLOAT * size
        + 2.0 * (roundoff::<O>() * size + subnormal_error::<O>())
}

impl Results {
    /// Rows of this length that must have the same bits.
    fn rows(values: &[f32], columns: usize) -> Self {
        let hash = |row: &[f32]| {
            let bytes: Vec<u8> = row
                .iter()
                .flat_map(|value| value.to_bits().to_le_bytes())
                .collect();
            let hash = fnv(&bytes);
            (hash ^ hash >> 32) as u32
        };
        Self::Bits(values.chunks(columns.max(1)).map(hash).collect())
    }

    /// Words that must be the same, a hash for each 64.
    fn words(words: &[u32]) -> Self {
        let values: Vec<f32> = words.iter().map(|&word| f32::from_bits(word)).collect();
        Self::rows(&values, 64)
    }

    /// These and others behind them, both of which must have the same bits.
    fn and(self, others: Self) -> Self {
        match (self, others) {
            (Self::Bits(mut all), Self::Bits(more)) => {
                all.extend(more);
                Self::Bits(all)
            }
            _ => unreachable!("cases of two results compare their bits"),
        }
    }

    /// As they are stored.
    pub fn to_bytes(&self) -> Vec<u8> {
        match self {
            Self::Bits(hashes) => hashes.iter().flat_map(|hash| hash.to_le_bytes()).collect(),
            Self::Near(values, _) => values
                .iter()
                .flat_map(|value| value.to_le_bytes())
                .collect(),
        }
    }

    /// Where these differ from the card's; `None` where they agree.
    pub fn disagreement(&self, card: &[u8]) -> Option<String> {
        let ours = self.to_bytes();
        if ours.len() != card.len() {
            return Some(format!(
                "{} bytes, and the GPU wrote {}",
                ours.len(),
                card.len()
            ));
        }
        let words = |bytes: &[u8]| -> Vec<u32> {
            let word = |word: &[u8]| u32::from_le_bytes(word.try_into().expect("four bytes"));
            bytes.chunks_exact(4).map(word).collect()
        };
        let (ours, card) = (words(&ours), words(card));
        let differ = |&i: &usize| match self {
            Self::Bits(_) => ours[i] != card[i],
            Self::Near(_, bounds) => {
                let (x, y) = (f32::from_bits(ours[i]), f32::from_bits(card[i]));
                let near = x.is_finite() && y.is_finite() && f64::from((x - y).abs()) <= bounds[i];
                !(x == y || (x.is_nan() && y.is_nan()) || near)
            }
        };
        let different: Vec<usize> = (0..card.len()).filter(differ).collect();
        let &first = different.first()?;
        let (all, count) = (card.len(), different.len());
        Some(match self {
            Self::Bits(_) => format!("{count} of {all} rows differ, the first is row {first}"),
            Self::Near(values, bounds) => format!(
                "{count} of {all} numbers differ; number {first} is {}, on the GPU {}, and {:e} is allowed",
                values[first],
                f32::from_bits(card[first]),
                bounds[first]
            ),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn differences_are_told() {
        let bits = Results::rows(&[1.0, 2.0, 3.0, -0.0], 2);
        let card = bits.to_bytes();
        assert_eq!(bits.disagreement(&card), None);
        let zero = Results::rows(&[1.0, 2.0, 3.0, 0.0], 2);
        let told = zero.disagreement(&card).expect("a difference");
        assert_eq!(told, "1 of 2 rows differ, the first is row 1");
        let near = Results::Near(vec![1.0, f32::NAN, f32::INFINITY], vec![0.1; 3]);
        let card = |values: [f32; 3]| Results::Near(values.to_vec(), Vec::new()).to_bytes();
        assert_eq!(
            near.disagreement(&card([1.05, -f32::NAN, f32::INFINITY])),
            None
        );
        for other in [
            [1.2, f32::NAN, f32::INFINITY],
            [1.0, 2.0, f32::INFINITY],
            [1.0, f32::NAN, 3.0],
        ] {
            assert!(near.disagreement(&card(other)).is_some(), "{other:?}");
        }
        assert!(near.disagreement(&[0; 8]).is_some());
    }

    #[test]
    fn operands_hold_corners_and_leave_most_rows_finite() {
        let mut operands = Operands {
            seed: 3,
            fingerprint: 0,
        };
        let values = operands.mixed::<f32>(20_000);
        for corner in CORNERS {
            let same = |value: &f32| value.to_bits() == corner.to_bits();
            assert!(values.iter().any(same), "{corner}");
        }
        let lost = values.iter().filter(|value| !value.is_finite()).count();
        assert!((50..400).contains(&lost), "{lost} of 20000");
    }
}
