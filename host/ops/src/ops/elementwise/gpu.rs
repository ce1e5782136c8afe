//! What is done element by element, a launch each, and sums of columns.

use super::{
    ActivateBackwardOperands, ActivateOperands, Activation, ColumnSumsOperands, DropRowsOperands,
    Dropout, ElementwiseOperators, MultiplyOperands, OfParts, SumPartsOperands,
};
use crate::backend::Floats;
use crate::backend::gpu::{Gpu, dense_config, entry, narrow, stride_vectors};
use crate::driver::{Driver, LaunchConfig};
use crate::error::Error;
use crate::ops::{Checked, RandomState};
use crate::tensor::{Element, Matrix};
use halfgnn_contract::elementwise::{
    self as contract, ActivateParams, ColumnSumsParams, DropRowsParams, DropoutParams,
    SumPartsParams,
};
use halfgnn_contract::sddmm::{self, CombineParams};
use halfgnn_contract::{DevicePtr, HalfBits, rng};

/// Elements that a launch multiplies at most: fewer than its kernel counts in 32 bits, and whole vectors.
const PRODUCTS: u64 = 1 << 31;

impl<D: Driver> ElementwiseOperators for Gpu<D> {
    fn activate<E: Element>(
        &self,
        operands: Checked<ActivateOperands<'_, Self, E>>,
    ) -> Result<(), Error> {
        let ActivateOperands {
            op,
            x,
            order,
            sum,
            y,
        } = operands.into_inner();
        let input = match (x, order) {
            (Some(x), Some(_)) => self.strided(x)?,
            _ => self.matrix(x.unwrap_or(y))?,
        };
        let (mut params, config) = self.activate_params(op, input, y)?;
        params.flags |= if sum { contract::SUM } else { 0 };
        if let (Some(x), Some(_)) = (x, order) {
            params.order = self.optional_array(order)?;
            params.x_rows = x.rows() as u64;
            params.x_vectors = stride_vectors("activate", x)?;
        }
        // SAFETY: the operator checked that `x`, `y` and the bias fit one another, and that an order has a number for
        // each row of `y`.
        unsafe { self.launch(entry::<E>("activate")?, config, &params) }
    }

    fn activate_backward<E: Element>(
        &self,
        operands: Checked<ActivateBackwardOperands<'_, Self, E>>,
    ) -> Result<(), Error> {
        let of = operands.into_inner();
        let (params, config) = self.activate_params(of.op, self.optional_matrix(of.y)?, of.d)?;
        let params = ActivateParams {
            row_scale: self.optional_array(of.row_scale)?,
            ..params
        };
        let name = entry::<E>("activate_backward")?;
        // SAFETY: the operator checked that the operands fit one another, and that `y` is there where it is read.
        unsafe { self.launch(name, config, &params) }
    }

    /// By the kernel that combines two numbers of each edge, of which all elements are the edges: their numbers lie one
    /// after the other.
    fn multiply<E: Element>(
        &self,
        operands: Checked<MultiplyOperands<'_, Self, E>>,
    ) -> Result<(), Error> {
        let MultiplyOperands { x, by, y } = operands.into_inner();
        let elements = y.rows() as u64 * y.stride() as u64;
        let all: [DevicePtr<HalfBits>; 3] = [
            self.matrix(x.unwrap_or(y))?,
            self.matrix(by)?,
            self.matrix(y)?,
        ];
        let name = entry::<E>("sddmm_combine")?;
        for first in (0..elements).step_by(PRODUCTS as usize) {
            let count = PRODUCTS.min(elements - first) as u32;
            let bytes = first * size_of::<E>() as u64;
            let [left, right, output] = all.map(|it| DevicePtr::new(it.address() + bytes));
            let params = CombineParams {
                rows: DevicePtr::NULL,
                columns: DevicePtr::NULL,
                left,
                right,
                output,
                plane: count.into(),
                left_plane: 0,
                edges: count,
                operator: sddmm::MULTIPLY,
                left_is: sddmm::OF_EDGE,
                right_is: sddmm::OF_EDGE,
                right_plane: 0,
            };
            let config = LaunchConfig {
                grid: [count.div_ceil(sddmm::COMBINE_EDGES_PER_CTA), 1, 1],
                block: [sddmm::THREADS_PER_CTA, 1, 1],
                shared_bytes: 0,
            };
            // SAFETY: the operator checked that the matrices have one shape and lie in one piece. `count` is a multiple
            // of the four elements of a thread, as rows are whole vectors. Numbers of edges alone are read, so that
            // there are no ids. There is one plane, so that its distance to another is not used. A thread reads what it
            // writes before it writes it.
            unsafe { self.launch(name, config, &params)? };
        }
        Ok(())
    }

    fn drop_rows<E: Element>(
        &self,
        operands: Checked<DropRowsOperands<'_, Self, E>>,
    ) -> Result<(), Error> {
        let DropRowsOperands {
            dropout,
            vertices,
            y,
        } = operands.into_inner();
        const NAME: &str = "drop_rows";
        let vectors = stride_vectors(NAME, y)?;
        let rows_per_cta = contract::rows_per_cta(vectors);
        let params = DropRowsParams {
            y: self.matrix(y)?,
            vertices: self.array(vertices)?,
            dropout: self.dropout_params(Some(dropout))?,
            rows: y.rows() as u64,
            rows_per_cta,
            vectors,
            reciprocal: contract::reciprocal(vectors),
            reserved: 0,
        };
        let ctas = match vectors {
            0 => 0,
            _ => params.rows.div_ceil(rows_per_cta.into()),
        };
        let config = dense_config(NAME, ctas, 1, 0)?;
        // SAFETY: the operator checked that there is a number for each row.
        unsafe { self.launch(entry::<E>(NAME)?, config, &params) }
    }

    /// Adds up blocks of rows, then the blocks in the same way, until one row is left.
    fn column_sums<E: Element>(
        &self,
        operands: Checked<ColumnSumsOperands<'_, Self, E>>,
    ) -> Result<(), Error> {
        let ColumnSumsOperands { x, sums } = operands.into_inner();
        const NAME: &str = "column_sums";
        if x.rows() == 0 || x.columns() == 0 {
            return sums.clear(self);
        }
        let sum_vectors = stride_vectors(NAME, sums)?;
        let most = sum_blocks(x.rows() as u64) * sum_vectors as u64 * 4;
        let workspace = self.lend(2 * most)?;
        let params = ColumnSumsParams {
            x: self.matrix(x)?,
            sums: self.matrix(sums)?,
            rows: x.rows() as u64,
            rows_per_cta: 0,
            columns: narrow(NAME, "columns", x.columns())?,
            vectors: stride_vectors(NAME, x)?,
            sum_vectors,
        };
        let name = entry::<E>("column_sums")?;
        let turns = [0, 1].map(|turn| workspace.address() + turn * most * 4);
        // SAFETY: the operator checked that `sums` has a column for each of `x`; a half of the workspace holds a row
        // for each block.
        unsafe { self.sum_rows(name, params, turns) }
    }

    fn sum_parts(&self, operands: Checked<SumPartsOperands<'_, Self>>) -> Result<(), Error> {
        let SumPartsOperands {
            of,
            factor,
            parts,
            count,
            sums,
        } = operands.into_inner();
        const NAME: &str = "sum_parts";
        let name = match of {
            OfParts::Sum => NAME,
            OfParts::Largest => "largest_of_parts",
        };
        let params = SumPartsParams {
            parts: self.array(parts)?,
            sums: match &sums {
                Floats::Matrix(matrix) => self.matrix(matrix)?,
                Floats::Array(array) => self.array(array)?,
            },
            len: sums.len() as u64,
            count: narrow(NAME, "parts", count)?,
            factor,
        };
        let ctas = params.len.div_ceil(contract::THREADS_PER_CTA.into());
        let config = dense_config(NAME, ctas, 1, 0)?;
        // SAFETY: the operator checked that there are the given number of parts, each as long as the sums.
        unsafe { self.launch(name, config, &params) }
    }
}

impl<D: Driver> Gpu<D> {
    fn activate_params<E: Element>(
        &self,
        op: &Activation<'_, Self>,
        x: DevicePtr<u16>,
        y: &Matrix<Self, E>,
    ) -> Result<(ActivateParams, LaunchConfig), Error> {
        const NAME: &str = "activate";
        let vectors = stride_vectors(NAME, y)?;
        let rows_per_cta = contract::rows_per_cta(vectors);
        let params = ActivateParams {
            x,
            y: self.matrix(y)?,
            bias: self.optional_matrix(op.bias)?,
            row_scale: DevicePtr::NULL,
            dropout: self.dropout_params(op.dropout)?,
            order: DevicePtr::NULL,
            rows: y.rows() as u64,
            x_rows: y.rows() as u64,
            rows_per_cta,
            columns: narrow(NAME, "columns", y.columns())?,
            vectors,
            flags: if op.relu { contract::RELU } else { 0 },
            reciprocal: contract::reciprocal(vectors),
            x_vectors: vectors,
        };
        let ctas = if vectors == 0 {
            0
        } else {
            params.rows.div_ceil(rows_per_cta as u64)
        };
        Ok((params, dense_config(NAME, ctas, 1, 0)?))
    }
}

/// Blocks that [`Gpu::sum_rows`] cuts rows into at first.
pub(crate) fn sum_blocks(rows: u64) -> u64 {
    rows.div_ceil(contract::sum_rows_per_cta(rows) as u64)
}

impl<D: Driver> Gpu<D> {
    /// Adds up blocks of rows, then the blocks in the same way, until one row is left, in `params.sums`.
    ///
    /// # Safety
    /// The operands in `params` are as its page asks for; `turns` are addresses of memory for a row for each block, of
    /// which the first is not `params.x`.
    pub(crate) unsafe fn sum_rows(
        &self,
        mut name: &'static str,
        mut params: ColumnSumsParams,
        turns: [u64; 2],
    ) -> Result<(), Error> {
        const NAME: &str = "column_sums";
        let result = params.sums;
        for turn in turns.into_iter().cycle() {
            let ctas = sum_blocks(params.rows);
            params.rows_per_cta = contract::sum_rows_per_cta(params.rows);
            params.sums = if ctas == 1 {
                result
            } else {
                DevicePtr::new(turn)
            };
            let ctas_y = params.vectors.div_ceil(contract::SUM_VECTORS);
            let config = dense_config(NAME, ctas, ctas_y, contract::SUM_SHARED_BYTES)?;
            // SAFETY: the caller's promise.
            unsafe { self.launch(name, config, &params)? };
            if ctas == 1 {
                break;
            }
            name = "column_sums_f32";
            (params.x, params.rows, params.vectors) = (
                DevicePtr::new(params.sums.address()),
                ctas,
                params.sum_vectors,
            );
        }
        Ok(())
    }
}

impl<D: Driver> Gpu<D> {
    /// What a launch drops.
    pub(crate) fn dropout_params(
        &self,
        dropout: Option<Dropout<'_, Self>>,
    ) -> Result<DropoutParams, Error> {
        let Some(dropout) = dropout.filter(|it| it.probability > 0.0) else {
            return Ok(DropoutParams::NONE);
        };
        Ok(DropoutParams {
            step: self.step(dropout)?,
            key: rng::key(dropout.random.seed(), dropout.stream),
            threshold: rng::threshold(dropout.probability),
            keep_scale: 1.0 / (1.0 - dropout.probability),
        })
    }

    /// Address of the word that distinguishes the dropout of one step from that of the next.
    pub(crate) fn step(&self, dropout: Dropout<'_, Self>) -> Result<DevicePtr<u32>, Error> {
        self.step_of(dropout.random)
    }

    /// Address of the word that distinguishes the random numbers of one step from those of the next.
    pub(crate) fn step_of(&self, random: &RandomState<Self>) -> Result<DevicePtr<u32>, Error> {
        let (words, at) = random.count();
        let words: DevicePtr<u32> = self.array(words)?;
        Ok(DevicePtr::new(
            words.address() + (at * size_of::<u32>()) as u64,
        ))
    }
}
