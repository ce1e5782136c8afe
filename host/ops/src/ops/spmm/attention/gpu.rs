//! What kernels take for weights by attention.

use super::{AttentionScores, EdgeAttention, SoftmaxGradient, ends};
use crate::backend::Adjacency;
use crate::backend::gpu::{Gpu, dense_config, narrow};
use crate::driver::Driver;
use crate::error::Error;
use crate::ops::Dropout;
use halfgnn_contract::attention::{self as contract, RecordsParams};
use halfgnn_contract::elementwise::THREADS_PER_CTA;
use halfgnn_contract::{DevicePtr, rng};

const NAME: &str = "attention";

impl<D: Driver> Gpu<D> {
    /// What kernels take for scores.
    pub(crate) fn scores(
        &self,
        of: &AttentionScores<'_, Self>,
        a: &Adjacency<Self>,
        transposed: bool,
    ) -> Result<contract::EdgeAttention, Error> {
        let (destinations, sources) = ends(a, transposed);
        Ok(contract::EdgeAttention {
            destination: self.array(of.destination)?,
            source: self.array(of.source)?,
            destinations: narrow(NAME, "destinations", destinations)?,
            sources: narrow(NAME, "sources", sources)?,
            slope: of.slope,
            ..contract::EdgeAttention::NONE
        })
    }

    /// What kernels take for a dropout of edges.
    pub(crate) fn with_dropout(
        &self,
        of: contract::EdgeAttention,
        dropout: Option<Dropout<'_, Self>>,
    ) -> Result<contract::EdgeAttention, Error> {
        Ok(match dropout.filter(|dropout| dropout.probability > 0.0) {
            None => of,
            Some(dropout) => contract::EdgeAttention {
                flags: of.flags | contract::DROPOUT,
                step: self.step(dropout)?,
                key: rng::key(dropout.random.seed(), dropout.stream),
                threshold: rng::threshold(dropout.probability),
                keep_scale: 1.0 / (1.0 - dropout.probability),
                ..of
            },
        })
    }

    /// What kernels take for weights by attention.
    pub(crate) fn edge_attention(
        &self,
        of: &EdgeAttention<'_, Self>,
        a: &Adjacency<Self>,
    ) -> Result<contract::EdgeAttention, Error> {
        let params = contract::EdgeAttention {
            statistics: self.array(of.statistics)?,
            sums: self.optional_array(of.sums)?,
            flags: if of.transposed {
                contract::TRANSPOSED
            } else {
                0
            },
            ..self.scores(&of.scores(), a, of.transposed)?
        };
        self.with_dropout(params, of.dropout)
    }
}

/// Floats that an edge needs of its destination.
pub(crate) const RECORD_FLOATS: u64 = (size_of::<[f32; 4]>() / size_of::<f32>()) as u64;

impl<D: Driver> Gpu<D> {
    /// Puts what an edge needs of its destination side by side.
    ///
    /// # Safety
    /// The operator checked that all of it has a number for each head of each vertex; there is memory for that many
    /// records.
    pub(crate) unsafe fn pack_records(
        &self,
        of: &EdgeAttention<'_, Self>,
        softmax_gradient: &SoftmaxGradient<'_, Self>,
        records: DevicePtr<[f32; 4]>,
    ) -> Result<(), Error> {
        let len = softmax_gradient.values.len() as u64;
        let params = RecordsParams {
            statistics: self.array(of.statistics)?,
            destination: self.array(of.destination)?,
            values: self.array(softmax_gradient.values)?,
            records,
            len,
        };
        let ctas = len.div_ceil(THREADS_PER_CTA.into());
        let config = dense_config(NAME, ctas, 1, 0)?;
        // SAFETY: the caller's promise.
        unsafe { self.launch("attention_records", config, &params) }
    }
}
