//! Graphs of tiles: a launch, a warp a row of tiles.

use super::{FrdcOperands, FrdcOperators, FrdcSignsOperands, TiledAdjacency, Trinary};
use crate::backend::gpu::{Gpu, entry, linear_config, narrow};
use crate::driver::Driver;
use crate::error::Error;
use crate::ops::{BitMatrix, Checked};
use crate::tensor::Element;
use halfgnn_contract::DevicePtr;
use halfgnn_contract::bits::THREADS_PER_CTA;
use halfgnn_contract::frdc::{FrdcParams, TILE, ctas};

const NAME: &str = "frdc_bspmm";

impl<D: Driver> FrdcOperators for Gpu<D> {
    fn frdc_bspmm<E: Element>(
        &self,
        operands: Checked<FrdcOperands<'_, Self, E>>,
    ) -> Result<(), Error> {
        let of = operands.into_inner();
        let params = FrdcParams {
            y: self.matrix(of.y)?,
            row_scale: self.optional_array(of.row_scale)?,
            y_stride: narrow(NAME, "columns", of.y.stride())?,
            scale: of.scale,
            ..self.frdc_params(of.a, of.x)?
        };
        let name = match of.trinary {
            Trinary::IfElse => "frdc_if_else",
            Trinary::TwoCounts => "frdc_two_counts",
            Trinary::OneCount => "frdc_one_count",
        };
        // SAFETY: the operator checked that the operands fit the graph.
        unsafe { self.sum_tiles(entry::<E>(name)?, &params) }
    }

    fn frdc_bspmm_signs(
        &self,
        operands: Checked<FrdcSignsOperands<'_, Self>>,
    ) -> Result<(), Error> {
        let FrdcSignsOperands { a, x, trinary, y } = operands.into_inner();
        let params = FrdcParams {
            y: self.array(&y.words)?,
            y_stride: narrow(NAME, "columns", y.stride())?,
            ..self.frdc_params(a, x)?
        };
        let name = match trinary {
            Trinary::IfElse => "frdc_if_else_sign",
            Trinary::TwoCounts => "frdc_two_counts_sign",
            Trinary::OneCount => "frdc_one_count_sign",
        };
        // SAFETY: as above.
        unsafe { self.sum_tiles(name, &params) }
    }
}

impl<D: Driver> Gpu<D> {
    /// What both kinds of output share.
    fn frdc_params(
        &self,
        a: &TiledAdjacency<Self>,
        x: &BitMatrix<Self>,
    ) -> Result<FrdcParams, Error> {
        let rows = narrow(NAME, "rows", a.rows())?;
        Ok(FrdcParams {
            tile_offsets: self.array(&a.offsets)?,
            tile_columns: self.array(&a.columns)?,
            tiles: self.array(&a.tiles)?,
            x: self.array(&x.words)?,
            y: DevicePtr::NULL,
            row_scale: DevicePtr::NULL,
            tile_rows: rows.div_ceil(TILE),
            rows,
            sources: narrow(NAME, "columns of the graph", a.columns())?,
            x_stride: narrow(NAME, "columns", x.stride())?,
            y_stride: 0,
            features: narrow(NAME, "columns", x.columns())?,
            scale: 1.0,
            reserved: 0,
        })
    }

    /// The sums of all words of rows.
    ///
    /// # Safety
    /// Operands in `params` are as its page asks for.
    unsafe fn sum_tiles(&self, entry: &'static str, params: &FrdcParams) -> Result<(), Error> {
        let ctas = ctas(params.tile_rows).into();
        let config = linear_config(NAME, ctas, THREADS_PER_CTA, 0)?;
        // SAFETY: the caller's promise.
        unsafe { self.launch(entry, config, params) }
    }
}
