//! Random pairs of vertices: a thread a pair.

use super::{STREAM, SamplePairsOperands, SamplingOperators};
use crate::backend::gpu::{Gpu, dense_config, narrow};
use crate::driver::Driver;
use crate::error::Error;
use crate::ops::Checked;
use halfgnn_contract::elementwise::THREADS_PER_CTA;
use halfgnn_contract::rng::key;
use halfgnn_contract::sampling::SamplePairsParams;

impl<D: Driver> SamplingOperators for Gpu<D> {
    fn sample_pairs(&self, operands: Checked<SamplePairsOperands<'_, Self>>) -> Result<(), Error> {
        const NAME: &str = "sample_pairs";
        let of = operands.into_inner();
        let pairs = of.firsts.len() as u64;
        let params = SamplePairsParams {
            offsets: self.optional_array(of.edges.map(|edges| &edges.offsets))?,
            columns: self.optional_array(of.edges.map(|edges| &edges.column_ids))?,
            firsts: self.array(of.firsts)?,
            seconds: self.array(of.seconds)?,
            pairs,
            key: key(of.seed, STREAM),
            step: of.step,
            vertices: narrow(NAME, "vertices", of.vertices)?,
        };
        let config = dense_config(NAME, pairs.div_ceil(THREADS_PER_CTA.into()), 1, 0)?;
        // SAFETY: the operator checked that there is room for both vertices of each pair and that the graph has a row a vertex.
        unsafe { self.launch(NAME, config, &params) }
    }
}
