//! Binary weights as bits. Weights that multiply by their sign alone are stored as the signs of each row and its one
//! magnitude.
//!
//! | tensor | holds |
//! |---|---|
//! | `layers.0.binary_weight.bits`, U64, outputs × ⌈inputs / 64⌉ | the signs: bit `k % 64` of word `k / 64` is set where weight `k` is not negative; others zero |
//! | `layers.0.binary_weight.magnitudes`, F32, outputs × 1 | the factors of the signs |
//!
//! Only a tensor whose rows have one magnitude each is written in this way. It reads back bit for bit.

use super::{Checkpoint, CheckpointError};
use crate::error::Error;
use crate::nn::magnitudes_of_rows;
use crate::tensor::{Element, Precision};
use crate::train::{Tensor, Tensors};
use crate::with_element;
use safetensors::tensor::{Dtype, SafeTensors, TensorView};
use std::path::Path;

/// The suffix of names of weights that multiply by their sign.
const BINARY: &str = "binary_weight";
/// The suffix for their signs.
const BITS: &str = ".bits";
/// The suffix for their magnitudes.
const MAGNITUDES: &str = ".magnitudes";
/// Bits per word.
const WORD: usize = 64;

/// Signs and magnitudes of a tensor, little-endian.
pub(super) struct Packed {
    pub(super) rows: usize,
    pub(super) words: usize,
    pub(super) bits: Vec<u8>,
    pub(super) magnitudes: Vec<u8>,
}

impl Packed {
    /// Packs a tensor that signs and magnitudes represent exactly.
    pub(super) fn of(name: &str, tensor: &Tensor) -> Option<Self> {
        if !name.ends_with(BINARY) || tensor.columns == 0 {
            return None;
        }
        let words = tensor.columns.div_ceil(WORD);
        let (mut bits, mut magnitudes) = (Vec::new(), Vec::new());
        for row in tensor.values.chunks_exact(tensor.columns) {
            let magnitude = row[0].abs();
            // Neither a negative zero nor a NaN would read back unchanged.
            let is_one = |value: &f32| {
                value.abs() == magnitude && !(magnitude == 0.0 && value.is_sign_negative())
            };
            if !row.iter().all(is_one) {
                return None;
            }
            magnitudes.extend(magnitude.to_le_bytes());
            for some in row.chunks(WORD) {
                let signs = some.iter().enumerate();
                let word = signs.fold(0, |word, (at, value)| word | u64::from(*value >= 0.0) << at);
                bits.extend(word.to_le_bytes());
            }
        }
        Some(Self {
            rows: tensor.rows,
            words,
            bits,
            magnitudes,
        })
    }

    /// The tensors that it is written as.
    pub(super) fn views(
        &self,
        name: &str,
    ) -> Result<[(String, TensorView<'_>); 2], safetensors::SafeTensorError> {
        let bits = TensorView::new(Dtype::U64, vec![self.rows, self.words], &self.bits)?;
        let magnitudes = TensorView::new(Dtype::F32, vec![self.rows, 1], &self.magnitudes)?;
        Ok([
            (format!("{name}{BITS}"), bits),
            (format!("{name}{MAGNITUDES}"), magnitudes),
        ])
    }
}

/// The weights that a tensor of a file is part of, and whether it has their signs. None where it has neither signs nor
/// magnitudes.
pub(super) fn of_weights(name: &str) -> Option<(&str, bool)> {
    let is_binary = |name: &&str| name.ends_with(BINARY);
    let signs = name
        .strip_suffix(BITS)
        .filter(is_binary)
        .map(|name| (name, true));
    signs.or_else(|| {
        let name = name.strip_suffix(MAGNITUDES).filter(is_binary)?;
        Some((name, false))
    })
}

/// Reads the weights `name`, which have `columns` columns.
pub(super) fn unpack(file: &SafeTensors<'_>, name: &str, columns: usize) -> Result<Tensor, String> {
    let find = |suffix: &str, dtype: Dtype| {
        let name = format!("{name}{suffix}");
        let view = file
            .tensor(&name)
            .map_err(|_| format!("it has no tensor `{name}`"))?;
        match view.dtype() == dtype {
            true => Ok((name, view)),
            false => Err(format!(
                "tensor `{name}` is of {}, not {dtype}",
                view.dtype()
            )),
        }
    };
    let (bits_name, bits) = find(BITS, Dtype::U64)?;
    let (magnitudes_name, magnitudes) = find(MAGNITUDES, Dtype::F32)?;
    let &[rows, words] = bits.shape() else {
        return Err(format!("tensor `{bits_name}` is no matrix"));
    };
    if words != columns.div_ceil(WORD) {
        return Err(format!(
            "tensor `{bits_name}` has rows of {words} words, and the model has {columns} weights a row"
        ));
    }
    if magnitudes.shape() != [rows, 1] {
        return Err(format!(
            "tensor `{magnitudes_name}` has not {rows} rows of one number"
        ));
    }
    let word = |bytes: &[u8]| u64::from_le_bytes(std::array::from_fn(|at| bytes[at]));
    let magnitude = |bytes: &[u8]| f32::from_le_bytes(std::array::from_fn(|at| bytes[at]));
    let mut values = Vec::with_capacity(rows * columns);
    let rows_of_bits = bits.data().chunks_exact((words * 8).max(1));
    for (row, magnitude) in rows_of_bits.zip(magnitudes.data().chunks_exact(4).map(magnitude)) {
        let words: Vec<u64> = row.chunks_exact(8).map(word).collect();
        let past = columns % WORD;
        if past != 0 && words.last().is_some_and(|last| last >> past != 0) {
            return Err(format!(
                "tensor `{bits_name}` has bits past column {columns}; they are zero"
            ));
        }
        let value = |at: usize| match words[at / WORD] >> (at % WORD) & 1 {
            0 => -magnitude,
            _ => magnitude,
        };
        values.extend((0..columns).map(value));
    }
    Ok(Tensor {
        rows,
        columns,
        values,
    })
}

impl Checkpoint {
    /// Reduces a checkpoint to what prediction needs: the parameters of the best validation epoch. Weights that
    /// multiply by their sign become the sign times the mean magnitude of their row, as binary layers use them. The
    /// file then has one bit per weight.
    ///
    /// # Errors
    /// [`CheckpointError::StateDict`] for a model without binary layers.
    pub fn packed(&self, path: &Path) -> Result<Self, CheckpointError> {
        if self.model.binary.is_none() {
            return Err(CheckpointError::StateDict {
                path: path.to_owned(),
                reason: "its model has no layers of one bit (train --binary), so that its weights are more than signs".into(),
            });
        }
        let tensors: Tensors = (self.snapshot.tensors.iter())
            .filter(|(name, _)| !is_of_resuming(name))
            .map(|(name, tensor)| {
                let tensor = match name.ends_with(BINARY) {
                    true => signs_and_magnitudes(tensor, self.precision)?,
                    false => tensor.clone(),
                };
                Ok((name.clone(), tensor))
            })
            .collect::<Result<_, Error>>()
            .map_err(|error| CheckpointError::StateDict {
                path: path.to_owned(),
                reason: error.to_string(),
            })?;
        let mut packed = self.clone();
        packed.snapshot.tensors = tensors;
        Ok(packed)
    }

    /// Whether it has what resuming a run needs. Prediction needs less.
    pub fn can_go_on(&self) -> bool {
        self.snapshot
            .tensors
            .keys()
            .any(|name| is_of_resuming(name))
    }
}

fn is_of_resuming(name: &str) -> bool {
    name.starts_with(crate::train::snapshot::RESUME)
}

/// The sign of each weight, as kernels read it, times the mean magnitude of its row.
fn signs_and_magnitudes(tensor: &Tensor, precision: Precision) -> Result<Tensor, Error> {
    fn of<E: Element>(tensor: &Tensor) -> Result<Vec<f32>, Error> {
        let shape = (tensor.rows, tensor.columns);
        let magnitudes = magnitudes_of_rows::<E>(shape, &tensor.values)?;
        let rows = tensor.values.chunks_exact(tensor.columns.max(1));
        let signed = rows.zip(magnitudes).flat_map(|(row, magnitude)| {
            row.iter()
                .map(move |&value| match E::from_f32(value).to_f32() >= 0.0 {
                    true => magnitude,
                    false => -magnitude,
                })
        });
        Ok(signed.collect())
    }
    Ok(Tensor {
        values: with_element!(precision, E => of::<E>(tensor))?,
        ..*tensor
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tensor(columns: usize, values: &[f32]) -> Tensor {
        Tensor {
            rows: values.len() / columns,
            columns,
            values: values.to_vec(),
        }
    }

    #[test]
    fn what_has_one_magnitude_a_row_is_packed_and_unpacked() {
        let name = "layers.1.binary_weight";
        for columns in [1, 7, 63, 64, 65, 130] {
            let value = |at: usize| match (at * at % 5 < 2, at / columns) {
                (_, 2) => 0.0,
                (true, row) => 0.1 + row as f32,
                (false, row) => -0.1 - row as f32,
            };
            let values: Vec<f32> = (0..3 * columns).map(value).collect();
            let tensor = tensor(columns, &values);
            let packed = Packed::of(name, &tensor).expect("one magnitude a row");
            let views = packed.views(name).expect("matrices");
            let bytes = safetensors::serialize(views, None).expect("a file");
            let file = SafeTensors::deserialize(&bytes).expect("a file");
            assert_eq!(
                unpack(&file, name, columns),
                Ok(tensor),
                "{columns} columns"
            );
            let told = unpack(&file, name, columns + 64).expect_err("too few words");
            assert!(told.contains("weights a row"), "{told}");
            if columns % 64 > 1 {
                let told = unpack(&file, name, columns - 1).expect_err("a bit too many");
                assert!(told.contains("bits past column"), "{told}");
            }
        }
    }

    #[test]
    fn what_would_not_come_back_is_not_packed() {
        let packs = |name, values: &[f32]| Packed::of(name, &tensor(2, values)).is_some();
        assert!(packs("a.binary_weight", &[0.5, -0.5]));
        assert!(!packs("a.weight", &[0.5, -0.5]));
        assert!(!packs("a.binary_weight", &[0.5, -0.25]));
        assert!(!packs("a.binary_weight", &[0.0, -0.0]));
        assert!(!packs("a.binary_weight", &[f32::NAN, f32::NAN]));
    }

    #[test]
    fn signs_are_those_of_rounded_weights() {
        let weights = tensor(3, &[-1e-9, 0.5, -0.25]);
        let made = |precision| {
            signs_and_magnitudes(&weights, precision)
                .expect("room")
                .values
        };
        // In half the first is zero, whose sign is +1.
        assert_eq!(made(Precision::Half), [0.25, 0.25, -0.25]);
        assert!(made(Precision::Float)[0] < 0.0);
    }
}
