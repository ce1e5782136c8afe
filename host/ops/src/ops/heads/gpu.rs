//! Operators on heads, a launch each; sums of rows take as many as it takes to one row.

use super::{
    HeadDots, HeadDotsOperands, HeadDotsOuterOperands, HeadDotsPairOperands,
    HeadMeanBackwardOperands, HeadMeanOperands, HeadOperators, HeadOuterOperands,
    HeadScoresOperands, HeadSumsOperands,
};
use crate::backend::gpu::{Gpu, dense_config, entry, narrow, stride_vectors};
use crate::driver::Driver;
use crate::error::Error;
use crate::ops::Checked;
use crate::tensor::{Array, Element, Matrix};
use halfgnn_contract::DevicePtr;
use halfgnn_contract::elementwise::{self, ColumnSumsParams};
use halfgnn_contract::heads::{
    self, HeadDotsParams, HeadMeanParams, HeadOuterParams, HeadScoresParams, Heads,
};

const NAME: &str = "attention";

/// What dots are multiplied by in the same pass.
struct Outer<'a, D: Driver, E: Element> {
    /// Rows that are destinations, and their numbers.
    destinations: usize,
    destination: &'a Array<Gpu<D>, f32>,
    /// The two attention vectors.
    vectors: &'a Matrix<Gpu<D>, E>,
    /// Become the two sums of rows, where they are made in the same pass as well.
    sums: Option<&'a Matrix<Gpu<D>, f32>>,
}

impl<D: Driver> HeadOperators for Gpu<D> {
    fn head_scores<E: Element>(
        &self,
        operands: Checked<HeadScoresOperands<'_, Self, E>>,
    ) -> Result<(), Error> {
        let of = operands.into_inner();
        let x = of.x;
        let params = HeadScoresParams {
            heads: deal_heads(of.heads, x)?,
            x: self.matrix(x)?,
            vectors: self.matrix(of.vectors)?,
            destination: self.array(of.destination)?,
            source: self.array(of.source)?,
            destinations: of.destinations as u64,
        };
        let name = entry::<E>("head_scores")?;
        let config = dense_config(NAME, params.heads.ctas(), 1, 0)?;
        // SAFETY: the operator checked that `vectors` is as wide as `x`, and that there is a score for each head of
        // each row, and of each that is a destination.
        unsafe { self.launch(name, config, &params) }
    }

    fn head_dots<E: Element>(
        &self,
        operands: Checked<HeadDotsOperands<'_, Self, E>>,
    ) -> Result<(), Error> {
        let HeadDotsOperands { op, y } = operands.into_inner();
        self.launch_dots(op, y, None, None)
    }

    fn head_dots_pair<E: Element>(
        &self,
        operands: Checked<HeadDotsPairOperands<'_, Self, E>>,
    ) -> Result<(), Error> {
        let of = operands.into_inner();
        let (delta, v) = of.v;
        let op = HeadDots {
            u: Some((delta, &*of.u)),
            v: Some(v),
            ..HeadDots::new(of.heads, of.a, of.b)
        };
        self.launch_dots(&op, of.y, Some(of.d), None)
    }

    fn head_dots_outer<E: Element>(
        &self,
        operands: Checked<HeadDotsOuterOperands<'_, Self, E>>,
    ) -> Result<(), Error> {
        let of = operands.into_inner();
        let (beta, b) = of.b;
        let op = HeadDots {
            c: Some(of.c),
            u: Some(of.u),
            ..HeadDots::new(of.heads, of.a, (beta, &*b))
        };
        let (head_vectors, _) = head_vectors(of.heads, of.a)?;
        let one_a_lane = of.heads == 1 && head_vectors <= heads::MOST_DOTS_SUM_VECTORS;
        let in_one_pass = one_a_lane && of.a.rows() > 0;
        let outer = Outer {
            destinations: of.destinations,
            destination: of.destination,
            vectors: of.vectors,
            sums: in_one_pass.then_some(&*of.sums),
        };
        self.launch_dots(&op, of.y, None, Some(outer))?;
        if in_one_pass {
            return Ok(());
        }
        let sums = HeadSumsOperands {
            heads: of.heads,
            destinations: of.destinations,
            x: of.a,
            destination: of.destination,
            source: of.y,
            sums: of.sums,
        };
        self.head_sums(Checked::new(sums)?)
    }

    fn head_outer<E: Element>(
        &self,
        operands: Checked<HeadOuterOperands<'_, Self, E>>,
    ) -> Result<(), Error> {
        let of = operands.into_inner();
        let x = of.x;
        let (head_vectors, stride) = head_vectors(of.heads, x)?;
        let params = HeadOuterParams {
            x: self.matrix(x)?,
            vectors: self.matrix(of.vectors)?,
            destination: self.array(of.destination)?,
            source: self.array(of.source)?,
            sums: DevicePtr::NULL,
            rows: x.rows() as u64,
            destinations: of.destinations as u64,
            rows_per_cta: elementwise::rows_per_cta(stride),
            head_vectors,
            stride,
            columns: narrow(NAME, "columns", x.columns())?,
            sum_stride: 0,
            reciprocal: elementwise::reciprocal(stride),
        };
        let ctas = params.rows.div_ceil(params.rows_per_cta as u64);
        let name = entry::<E>("head_outer")?;
        // SAFETY: the operator checked that `vectors` is as wide as `x`, and that there is a number for each head of
        // each row, and of each that is a destination.
        unsafe { self.launch(name, dense_config(NAME, ctas, 1, 0)?, &params) }
    }

    /// Sums of blocks of rows, then their sums.
    fn head_sums<E: Element>(
        &self,
        operands: Checked<HeadSumsOperands<'_, Self, E>>,
    ) -> Result<(), Error> {
        let of = operands.into_inner();
        let (rows, sums) = (of.x.rows(), of.sums);
        if rows == 0 {
            return sums.clear(self);
        }
        let (head_vectors, stride) = head_vectors(of.heads, of.x)?;
        let rows = rows as u64;
        let rows_per_cta = elementwise::sum_rows_per_cta(rows);
        let ctas = rows.div_ceil(rows_per_cta as u64);
        let params = HeadOuterParams {
            x: self.matrix(of.x)?,
            vectors: DevicePtr::NULL,
            destination: self.array(of.destination)?,
            source: self.array(of.source)?,
            sums: DevicePtr::NULL,
            rows,
            destinations: of.destinations as u64,
            rows_per_cta,
            head_vectors,
            stride,
            columns: narrow(NAME, "columns", of.x.columns())?,
            sum_stride: 0,
            reciprocal: 0,
        };
        let name = entry::<E>("head_sums")?;
        let config = dense_config(
            NAME,
            ctas,
            stride.div_ceil(heads::SUM_VECTORS),
            heads::SUM_SHARED_BYTES,
        )?;
        // SAFETY: all but the memory for sums as the operator checked it.
        unsafe {
            self.sums_of_blocks(ctas, sums, |sums, sum_stride| {
                let params = HeadOuterParams {
                    sums,
                    sum_stride,
                    ..params
                };
                self.launch(name, config, &params)
            })
        }
    }

    fn head_mean<E: Element>(
        &self,
        operands: Checked<HeadMeanOperands<'_, Self, E>>,
    ) -> Result<(), Error> {
        let HeadMeanOperands { heads, x, y } = operands.into_inner();
        self.launch_mean(entry::<E>("head_mean")?, heads, x, y)
    }

    fn head_mean_backward<E: Element>(
        &self,
        operands: Checked<HeadMeanBackwardOperands<'_, Self, E>>,
    ) -> Result<(), Error> {
        let HeadMeanBackwardOperands { heads, dy, dx } = operands.into_inner();
        let name = entry::<E>("head_mean_backward")?;
        self.launch_mean(name, heads, dx, dy)
    }
}

impl<D: Driver> Gpu<D> {
    /// Has `launch` write two rows of sums for each of a number of CTAs, of floats so far apart, and adds those up to
    /// `sums`.
    ///
    /// # Safety
    /// `launch` writes that much.
    unsafe fn sums_of_blocks(
        &self,
        ctas: u64,
        sums: &Matrix<Self, f32>,
        launch: impl FnOnce(DevicePtr<f32>, u32) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let sum_stride = stride_vectors(NAME, sums)? * 4;
        if ctas == 1 {
            return launch(self.matrix(sums)?, sum_stride);
        }
        let most = ctas * 2 * sum_stride as u64;
        let workspace = self.lend(2 * most)?;
        let turns = [1, 0].map(|turn| workspace.address() + turn * most * 4);
        launch(DevicePtr::new(turns[1]), sum_stride)?;
        // The blocks' sums are a matrix of one row a block.
        let rest = ColumnSumsParams {
            x: DevicePtr::new(turns[1]),
            sums: self.matrix(sums)?,
            rows: ctas,
            rows_per_cta: 0,
            columns: 2 * sum_stride,
            vectors: sum_stride / 2,
            sum_vectors: sum_stride / 2,
        };
        // SAFETY: a half of the workspace has two rows of `sum_stride` for each block.
        unsafe { self.sum_rows("column_sums_f32", rest, turns) }
    }

    /// Dots of heads. With a `d`, `u` becomes its dots with `a`; with an `outer`, products with the attention vectors
    /// are added to `b`, and sums made of them where there is a matrix for those.
    fn launch_dots<E: Element>(
        &self,
        op: &HeadDots<'_, Self, E>,
        y: &Array<Self, f32>,
        d: Option<&Matrix<Self, E>>,
        outer: Option<Outer<'_, D, E>>,
    ) -> Result<(), Error> {
        let outer = outer.as_ref();
        let params = HeadDotsParams {
            heads: deal_heads(op.heads, op.a)?,
            a: self.matrix(op.a)?,
            b: self.matrix(op.b.1)?,
            c: self.optional_matrix(op.c.map(|(_, c)| c))?,
            d: self.optional_matrix(d)?,
            vectors: self.optional_matrix(outer.map(|outer| outer.vectors))?,
            destination: self.optional_array(outer.map(|outer| outer.destination))?,
            u: self.optional_array(op.u.map(|(_, u)| u))?,
            v: self.optional_array(op.v)?,
            y: self.array(y)?,
            destinations: outer.map_or(0, |outer| outer.destinations as u64),
            beta: op.b.0,
            gamma: op.c.map_or(0.0, |(gamma, _)| gamma),
            delta: op.u.map_or(0.0, |(delta, _)| delta),
            columns: narrow(NAME, "columns", op.a.columns())?,
            sums: DevicePtr::NULL,
            sum_stride: 0,
            reserved: 0,
        };
        let ctas = params.heads.ctas();
        // SAFETY: the operators checked that the matrices have one shape, that `vectors` is as wide, and that there is
        // a number for each head of each row; what is written is used by them alone. Sums are asked for of one head
        // that fits.
        unsafe {
            let Some(sums) = outer.and_then(|outer| outer.sums) else {
                let config = dense_config(NAME, ctas, 1, 0)?;
                return self.launch(entry::<E>("head_dots")?, config, &params);
            };
            let name = entry::<E>("head_dots_sums")?;
            let config = dense_config(NAME, ctas, 1, heads::SUM_SHARED_BYTES)?;
            self.sums_of_blocks(ctas, sums, |sums, sum_stride| {
                let params = HeadDotsParams {
                    sums,
                    sum_stride,
                    ..params
                };
                self.launch(name, config, &params)
            })
        }
    }

    /// The mean over heads or its gradient: `x` has the heads, `y` one.
    fn launch_mean<E: Element>(
        &self,
        name: &'static str,
        heads: usize,
        x: &Matrix<Self, E>,
        y: &Matrix<Self, E>,
    ) -> Result<(), Error> {
        let (head_vectors, stride) = head_vectors(heads, x)?;
        let params = HeadMeanParams {
            x: self.matrix(x)?,
            y: self.matrix(y)?,
            rows: x.rows() as u64,
            heads: narrow(NAME, "heads", heads)?,
            head_vectors,
            stride,
            columns: narrow(NAME, "columns", y.columns())?,
            rows_per_cta: elementwise::rows_per_cta(head_vectors),
            reciprocal: elementwise::reciprocal(head_vectors),
            scale: 1.0 / heads as f32,
            reserved: 0,
        };
        let ctas = params.rows.div_ceil(params.rows_per_cta as u64);
        // SAFETY: the operator checked that a head of `x` is a row of `y`.
        unsafe { self.launch(name, dense_config(NAME, ctas, 1, 0)?, &params) }
    }
}

/// Vectors of a head of a matrix of `heads` heads, and of a row.
fn head_vectors<D: Driver, E: Element>(
    heads: usize,
    x: &Matrix<Gpu<D>, E>,
) -> Result<(u32, u32), Error> {
    let stride = stride_vectors(NAME, x)?;
    Ok((stride / narrow(NAME, "heads", heads)?, stride))
}

/// How the heads of the rows of a matrix are distributed to sub-warps.
fn deal_heads<D: Driver, E: Element>(heads: usize, x: &Matrix<Gpu<D>, E>) -> Result<Heads, Error> {
    let (head_vectors, stride) = head_vectors(heads, x)?;
    let heads = narrow(NAME, "heads", heads)?;
    Ok(Heads::new(x.rows() as u64, heads, head_vectors, stride))
}
