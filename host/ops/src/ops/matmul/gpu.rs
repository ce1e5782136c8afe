//! Matrix product: one launch, or two where the sum is split.

use super::{
    Epilogue, Form, MatmulFusion, MatmulOperands, MatmulOperators, QuantizedMatmulOperands,
};
use crate::backend::gpu::{Gpu, narrow, stride_vectors};
use crate::driver::{Driver, LaunchConfig};
use crate::error::Error;
use crate::ops::{self, Activation, Checked};
use crate::tensor::{Element, Matrix};
use halfgnn_contract::matmul::{self as contract, MatmulParams, Split, Tile};
use halfgnn_contract::quantize::CodesParams;
use halfgnn_contract::{DevicePtr, Format, HalfBits};

const NAME: &str = "matmul";

impl<D: Driver> MatmulOperators for Gpu<D> {
    fn matmul<E: Element, O: Element>(
        &self,
        operands: Checked<MatmulOperands<'_, Self, E, O>>,
    ) -> Result<(), Error> {
        let operands = operands.into_inner();
        let rows = operands.rows_of_a();
        let MatmulOperands {
            form,
            a,
            b,
            epilogue,
            fusion,
            c,
        } = operands;
        let left = Left {
            data: self.strided(a)?,
            stride: stride_vectors(NAME, a)?,
            inner: match form {
                Form::NN | Form::NT => a.columns(),
                Form::TN => rows,
            },
            operand: match (fusion.normalization, fusion.second_pair) {
                (Some(_), _) => contract::Operand::Normalized,
                (None, Some(_)) => contract::Operand::Pair,
                (None, None) => contract::Operand::Plain,
            },
            row_scale: self.optional_array(epilogue.row_scale)?,
        };
        self.product((form, left, b), epilogue, fusion, c)
    }

    fn quantized_matmul<E: Element>(
        &self,
        operands: Checked<QuantizedMatmulOperands<'_, Self, E>>,
    ) -> Result<(), Error> {
        let QuantizedMatmulOperands {
            a,
            b,
            alpha,
            column_sums,
            c,
        } = operands.into_inner();
        let left = Left {
            data: self.array(&a.codes)?,
            stride: narrow(NAME, "columns of the codes", a.stride())? / contract::CODE_VECTOR_BYTES,
            inner: b.rows(),
            operand: contract::Operand::Codes,
            // Columns of quantized values are rows of the product.
            row_scale: self.matrix(&a.scales.scales)?,
        };
        let epilogue = Epilogue {
            alpha,
            ..Epilogue::default()
        };
        let fusion = MatmulFusion {
            column_sums,
            ..MatmulFusion::default()
        };
        self.product((Form::TN, left, b), &epilogue, fusion, c)
    }
}

/// The first operand of a product, as kernels take it.
struct Left {
    data: DevicePtr<HalfBits>,
    /// Distance of two rows in vectors.
    stride: u32,
    /// Terms of each sum.
    inner: usize,
    operand: contract::Operand,
    /// Factor of each row of the result, or null.
    row_scale: DevicePtr<f32>,
}

impl<D: Driver> Gpu<D> {
    /// The product of operands that were checked, of which `left` is the first.
    fn product<E: Element, O: Element>(
        &self,
        (form, left, b): (Form, Left, &Matrix<Self, E>),
        epilogue: &Epilogue<'_, Self>,
        fusion: MatmulFusion<'_, Self, O>,
        c: &mut Matrix<Self, O>,
    ) -> Result<(), Error> {
        let extent = |what: &'static str, value: usize| {
            let value = narrow(NAME, what, value)?;
            if value <= contract::MAX_EXTENT {
                return Ok(value);
            }
            let reason = format!("{what}: {value} is more than 2^31");
            Err(Error::Unsupported {
                operator: NAME,
                reason,
            })
        };
        let (m, n) = (
            extent("rows of c", c.rows())?,
            extent("columns of c", c.columns())?,
        );
        let k = extent("inner dimension", left.inner)?;
        let (input, output) = (E::PRECISION.format(), O::PRECISION.format());
        let second = fusion.second_pair;
        let k2 = second.map_or(0, |[a, _]| a.columns());
        let k2 = extent("inner dimension of the second pair", k2)?;
        // The second pair begins with a step of its own.
        let first_steps = k.div_ceil(contract::per_step(input));
        let terms = match second {
            Some(_) => first_steps as usize * contract::per_step(input) as usize + k2 as usize,
            None => k as usize,
        };
        let terms = extent("inner dimensions", terms)?;
        let mut sums = fusion.column_sums;
        // The product has them where it has a row of C to spare.
        let fused =
            form == Form::TN && output == Format::F32 && m > 0 && contract::sums_fit(input, m);
        if !fused && let Some(sums) = sums.take() {
            ops::column_sums(self, b, sums)?;
        }
        if m == 0 || n == 0 {
            return Ok(());
        }
        let multiprocessors = self.driver().info().multiprocessors;
        let partial = PartialSums::of(input, [m, n, terms], sums.is_some(), multiprocessors);
        // The other forms have a pass of their own for it.
        let (positive, apart) = match form {
            Form::NT => (fusion.positive, None),
            Form::NN | Form::TN => (None, fusion.positive),
        };
        if let Some(positive) = positive {
            // The kernel takes one distance for both.
            Error::expect(
                NAME,
                "stride of the ReLU's output",
                c.stride(),
                positive.stride(),
            )?;
        }
        let drops = contract::drops(left.operand, output) && partial.split.splits == 1;
        let (dropout, dropped_apart) = match drops {
            true => (fusion.dropout, None),
            false => (None, fusion.dropout),
        };
        if apart.is_some() || dropped_apart.is_some() {
            self.matrix::<O, O>(c)?;
        }
        let form = match form {
            Form::NN => contract::Form::Nn,
            Form::NT => contract::Form::Nt,
            Form::TN => contract::Form::Tn,
        };
        let (normalization, operand) = (fusion.normalization, left.operand);
        let built =
            contract::product(form, operand, input, output, n).zip(contract::reduction(output));
        // Where the sum is not split; else quantized values have a pass of their own.
        let coded = contract::coded_product(form, input, n).filter(|_| {
            let plain = operand == contract::Operand::Plain && output == input;
            let written_once = apart.is_none() && dropped_apart.is_none();
            plain && partial.split.splits == 1 && written_once
        });
        let (coding, coded, codes_apart) = match (fusion.coding, coded) {
            (Some(coding), Some(entry)) => (Some(coding), Some(entry), None),
            (coding, _) => (None, None, coding),
        };
        let (entry, follow_up) = built.ok_or_else(|| Error::Unsupported {
            operator: NAME,
            reason: format!(
                "no kernel is built for a product of {} in {}",
                E::PRECISION,
                O::PRECISION
            ),
        })?;
        let tile = Tile::for_columns(n);
        let workspace = match partial.floats(n) {
            0 => None,
            floats => Some(self.lend(floats)?),
        };
        let flag = |set: bool, bit: u32| if set { bit } else { 0 };
        let flags = flag(epilogue.relu, contract::RELU)
            | flag(normalization.is_some_and(|op| op.relu), contract::A_RELU)
            | flag(
                coding.as_ref().is_some_and(|coding| coding.alone),
                contract::CODES_ALONE,
            )
            | flag(fusion.positive_codes.is_some(), contract::POSITIVE_CODES)
            | flag(fusion.sum, contract::SUM);
        let params = MatmulParams {
            a: left.data,
            b: self.strided(b)?,
            a2: second.map_or(Ok(DevicePtr::NULL), |[a, _]| self.strided(a))?,
            b2: second.map_or(Ok(DevicePtr::NULL), |[_, b]| self.strided(b))?,
            c: self.strided(c)?,
            bias: self.optional_matrix(epilogue.bias)?,
            row_scale: left.row_scale,
            positive: match (positive, fusion.positive_codes) {
                (Some(positive), _) => self.strided(positive)?,
                (None, Some(codes)) => self.array(&codes.codes)?,
                (None, None) => DevicePtr::NULL,
            },
            column_sums: self.optional_matrix(sums.as_deref())?,
            statistics: self.optional_matrix(normalization.map(|op| op.statistics))?,
            norm_weight: self.optional_matrix(normalization.map(|op| op.weight))?,
            norm_bias: self.optional_matrix(normalization.map(|op| op.bias))?,
            workspace: workspace
                .as_ref()
                .map_or(DevicePtr::NULL, |buffer| DevicePtr::new(buffer.address())),
            m,
            n,
            k,
            k2,
            first_steps,
            a2_stride: second.map_or(Ok(0), |[a, _]| stride_vectors(NAME, a))?,
            b2_stride: second.map_or(Ok(0), |[_, b]| stride_vectors(NAME, b))?,
            a_stride: left.stride,
            b_stride: stride_vectors(NAME, b)?,
            c_stride: stride_vectors(NAME, c)?,
            workspace_stride: contract::workspace_stride(n),
            column_tiles: tile.across(n),
            steps_per_split: partial.split.steps_per_split,
            splits: partial.split.splits,
            flags,
            alpha: epilogue.alpha,
            sum_rows: partial.rows,
            float_vectors: match normalization {
                Some(op) => stride_vectors(NAME, op.statistics)?,
                None => 0,
            },
            dropout: self.dropout_params(dropout)?,
            codes: match coding {
                Some(of) => self.codes_params(NAME, of.row_scale, of.rounding, of.codes)?,
                None => CodesParams::NONE,
            },
        };
        let config = |ctas: u64, splits: u32, shared_bytes: u32| {
            Ok::<_, Error>(LaunchConfig {
                grid: [narrow(NAME, "tiles of c", ctas as usize)?, splits, 1],
                block: [contract::THREADS_PER_CTA, 1, 1],
                shared_bytes,
            })
        };
        // SAFETY: the operator checked that the operands fit one another, those of the fusion and quantized values too,
        // and that a normalisation has a column for each of A's; the workspace has `workspace_floats`. A product that
        // makes quantized values is not split.
        unsafe {
            let product = config(tile.count(m, n), partial.split.splits, tile.shared_bytes())?;
            self.launch(coded.unwrap_or(entry).name, product, &params)?;
            if partial.split.splits > 1 {
                let reduction = config(
                    contract::reduce_ctas(output, partial.rows, n),
                    1,
                    contract::REDUCE_SHARED_BYTES,
                )?;
                self.launch(follow_up, reduction, &params)?;
            }
        }
        drop(workspace);
        if apart.is_some() {
            let relu = Activation {
                bias: None,
                relu: true,
                dropout: None,
            };
            ops::activate_backward(self, &relu, apart, None, c)?;
        }
        if dropped_apart.is_some() {
            let drop = Activation {
                dropout: dropped_apart,
                ..Activation::default()
            };
            ops::activate(self, &drop, None, c)?;
        }
        match codes_apart {
            Some(coding) => coding.of(self, c),
            None => Ok(()),
        }
    }
}

/// How a product is split, and the rows of a split's sums.
#[derive(Clone, Copy)]
struct PartialSums {
    split: Split,
    rows: u32,
}

impl PartialSums {
    /// Of an `m × n` output with an inner dimension of `k`; with `column_sums` those of B are summed up with it.
    fn of(input: Format, [m, n, k]: [u32; 3], column_sums: bool, multiprocessors: u32) -> Self {
        Self {
            split: contract::split(input, m, n, k, multiprocessors),
            rows: if column_sums {
                contract::sum_row(input, m) + 1
            } else {
                m
            },
        }
    }

    /// Floats of the workspace for `n` columns.
    fn floats(self, n: u32) -> u64 {
        contract::workspace_floats(self.rows, n, self.split.splits)
    }
}
