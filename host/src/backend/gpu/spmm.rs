//! SpMM: two launches, the edge-parallel kernel and its follow-up.

use super::attention::edge_attention;
use super::{
    Gpu, array, dense_config, matrix, narrow, optional_array, optional_matrix, stride_vectors,
};
use crate::backend::{
    Accumulate, Activation, Adjacency, Aggregation, Combine, DenseOperators, EdgeAttention,
    EdgeWeights, NormalizeOperators, Scaling, SoftmaxGradient, SparseOperators, Spmm, SpmmEpilogue,
    Write,
};
use crate::driver::{Driver, LaunchConfig};
use crate::error::Error;
use crate::tensor::{Element, Matrix, Precision};
use halfgnn_contract::attention::{self, RecordsParams, edge_plane_stride};
use halfgnn_contract::dense::THREADS_PER_CTA;
use halfgnn_contract::spmm::{self as contract, Load, Scale, SpmmParams, Weights};
use halfgnn_contract::{DevicePtr, HalfBits};

const NAME: &str = "spmm";

impl<D: Driver> SparseOperators for Gpu<D> {
    fn spmm<E: Element>(
        &self,
        a: &Adjacency<Self>,
        op: &Spmm<'_, Self, E>,
        x: &Matrix<Self, E>,
        y: &mut Matrix<Self, E>,
    ) -> Result<(), Error> {
        self.launch_spmm(a, op, x, y, None)
    }
}

/// The second sum of an SpMM with the weights of attention: what [`crate::backend::AttentionPair`] has beside the first.
pub(super) struct Second<'a, D: Driver> {
    /// The output, of the shape of the first.
    pub(super) positive: DevicePtr<HalfBits>,
    pub(super) weights: &'a EdgeAttention<'a, Gpu<D>>,
    pub(super) through: Option<SoftmaxGradient<'a, Gpu<D>>>,
}

impl<D: Driver> Gpu<D> {
    /// An SpMM, of one sum or of two.
    pub(super) fn launch_spmm<E: Element>(
        &self,
        a: &Adjacency<Self>,
        op: &Spmm<'_, Self, E>,
        x: &Matrix<Self, E>,
        y: &mut Matrix<Self, E>,
        second_sum: Option<Second<'_, D>>,
    ) -> Result<(), Error> {
        if y.rows() == 0 || y.columns() == 0 {
            return Ok(());
        }
        let (first, second) = entries::<D, E>(op, second_sum.as_ref())?;
        let fused = first.scale == Scale::Finished;
        let edges = narrow(NAME, "edges", a.edges())?;
        let empty_count = narrow(NAME, "rows without edges", a.empty_rows.len())?;
        let x_stride = stride_vectors(NAME, x)?;
        let load = first.load;
        // A row is read to the end of its padding, in as many loads as fit into its 16-byte vectors.
        let feature_loads = x_stride * E::LANES as u32 / load.width();
        let heads = match op.weights {
            EdgeWeights::Ones | EdgeWeights::Columns(_) | EdgeWeights::Features(_) => 1,
            EdgeWeights::Planes { heads, .. } => heads,
            EdgeWeights::Attention(of) => of.heads,
        };
        let heads = narrow(NAME, "heads", heads)?;
        let head_loads = feature_loads / heads;
        let lanes_log2 = contract::lanes_log2(head_loads);
        let tiles = contract::feature_tiles(head_loads);
        let work = Work {
            edges,
            rows: narrow(NAME, "rows", a.vertices() - a.empty_rows.len())?,
            lanes_log2,
            passes: tiles * heads,
        };
        let cta_edges_log2 = match op.policy.edges_per_warp {
            Some(edges) => forced(edges, lanes_log2)?,
            None => choose(&work, self.driver.info().multiprocessors),
        };
        let ctas = contract::ctas(edges, cta_edges_log2);
        let sums = first.accumulate.sums();
        let staged_row = contract::staged_row(feature_loads * load.width(), sums, heads);
        let through = second_sum.as_ref().and_then(|of| of.through.as_ref());
        // Records come first, since they are as long as vectors.
        let records = through.map_or(0, |through| through.values.len() as u64);
        let floats = 4 * records + contract::staging_floats(ctas, staged_row);
        let workspace = self.workspace.floats(&self.driver, &self.ledger, floats)?;
        let staging = DevicePtr::new(workspace.address() + 16 * records);

        let (mut edge_weights, mut column_scale) = (DevicePtr::NULL, DevicePtr::NULL);
        let mut attention = attention::EdgeAttention::NONE;
        match op.weights {
            EdgeWeights::Ones => {}
            EdgeWeights::Features(weights) => edge_weights = array(weights),
            EdgeWeights::Columns(scale) => column_scale = array(scale),
            EdgeWeights::Planes { values, .. } => edge_weights = array(values),
            EdgeWeights::Attention(of) => {
                attention = edge_attention(of, a)?;
            }
        }
        let itself = op.epilogue.itself;
        let params = SpmmParams {
            rows: array(&a.rows),
            columns: array(&a.columns),
            offsets: array(&a.offsets),
            edge_weights,
            column_scale,
            row_scale: optional_array(op.row_scale),
            x: matrix(x),
            y: matrix(y),
            y_positive: second_sum
                .as_ref()
                .map_or(DevicePtr::NULL, |of| of.positive),
            term_sums: through.map_or(DevicePtr::NULL, |through| array(&*through.sums)),
            records: DevicePtr::new(workspace.address()),
            staging,
            starts: array(&a.starts),
            filled_rows: array(&a.filled_rows),
            empty_rows: array(&a.empty_rows),
            epsilon: optional_matrix(itself.and_then(|itself| itself.epsilon)),
            bias: optional_matrix(op.epilogue.bias),
            edges,
            empty_count,
            x_stride,
            y_stride: stride_vectors(NAME, y)?,
            feature_loads,
            features: narrow(NAME, "feature length", x.columns())?,
            lanes_log2,
            ctas,
            cta_edges_log2,
            staged_row,
            self_factor: itself.map_or(0.0, |itself| itself.factor),
            relu: op.epilogue.relu.into(),
            scale: op.scale,
            head_loads,
            edge_plane_stride: edge_plane_stride(u64::from(edges)),
            attention,
        };
        let config = |ctas, shared_bytes| LaunchConfig {
            grid: [ctas, tiles, heads],
            block: [contract::THREADS_PER_CTA, 1, 1],
            shared_bytes,
        };
        // SAFETY: the operator checked that `x`, `y`, weights and factors fit the graph, whose arrays were checked when
        // it was made; the staging buffer has `staging_floats`.
        unsafe {
            let lane = sums.floats(load.width());
            let shared_bytes = contract::shared_bytes(lane, cta_edges_log2, first.weights.words())
                + first.scale.own_rows_bytes();
            if let Some(Second {
                weights,
                through: Some(through),
                ..
            }) = &second_sum
            {
                self.pack_records(weights, through, params.records)?;
            }
            // Atomics add to zeros, and so does nothing to the rows without edges.
            let clearing = if second.is_some() {
                empty_count.div_ceil(contract::EMPTY_ROWS_PER_CTA)
            } else {
                self.driver.fill(y.buffer.memory(), 0)?;
                0
            };
            let config_of_first = config(ctas + clearing, shared_bytes);
            self.kernels
                .launch(&self.driver, first.name, config_of_first, &params)?;
            if let Some(second) = second {
                // One CTA leaves nothing to complete.
                let follow_up = contract::follow_up_ctas(ctas, lanes_log2);
                self.kernels
                    .launch(&self.driver, second.name, config(follow_up, 0), &params)?;
            }
        }
        drop(workspace);
        if fused {
            return Ok(());
        }
        self.finish(&op.epilogue, x, y)
    }
}

impl<D: Driver> Gpu<D> {
    /// An epilogue of an SpMM whose kernels have none, in passes of its own.
    fn finish<E: Element>(
        &self,
        epilogue: &SpmmEpilogue<'_, Self>,
        x: &Matrix<Self, E>,
        y: &mut Matrix<Self, E>,
    ) -> Result<(), Error> {
        if let Some(itself) = epilogue.itself {
            let sum = Combine {
                x_factor: itself.factor,
                epsilon: itself.epsilon,
                y_factor: 1.0,
            };
            self.combine(&sum, x, y)?;
        }
        if epilogue.bias.is_some() || epilogue.relu {
            let activation = Activation {
                bias: epilogue.bias,
                relu: epilogue.relu,
                dropout: None,
            };
            self.activate(&activation, None, y)?;
        }
        Ok(())
    }
}

impl<D: Driver> Gpu<D> {
    /// Puts what an edge wants to know of its destination side by side.
    ///
    /// # Safety
    /// The operator checked that all of it has a number for each head of each vertex; for so many records there is room.
    unsafe fn pack_records(
        &self,
        of: &EdgeAttention<'_, Self>,
        through: &SoftmaxGradient<'_, Self>,
        records: DevicePtr<[f32; 4]>,
    ) -> Result<(), Error> {
        let len = through.values.len() as u64;
        let params = RecordsParams {
            statistics: array(of.statistics),
            destination: array(of.destination),
            values: array(through.values),
            records,
            len,
        };
        let ctas = len.div_ceil(THREADS_PER_CTA.into());
        let config = dense_config(NAME, ctas, 1, 0)?;
        // SAFETY: the caller's promise.
        unsafe {
            self.kernels
                .launch(&self.driver, "attention_records", config, &params)
        }
    }
}

/// The entry for what is asked, and its follow-up if it leaves anything to complete.
fn entries<D: Driver, E: Element>(
    op: &Spmm<'_, Gpu<D>, E>,
    second_sum: Option<&Second<'_, D>>,
) -> Result<
    (
        &'static contract::SpmmEntry,
        Option<&'static contract::FollowUpEntry>,
    ),
    Error,
> {
    let weights = match op.weights {
        EdgeWeights::Ones => Weights::Ones,
        EdgeWeights::Features(_) | EdgeWeights::Planes { .. } => Weights::EdgeFeatures,
        EdgeWeights::Columns(_) => Weights::ColumnScale,
        EdgeWeights::Attention(_) => match second_sum {
            None => Weights::Attention,
            Some(Second { through: None, .. }) => Weights::SignedAttention,
            Some(Second {
                through: Some(_), ..
            }) => Weights::AttentionGradient,
        },
    };
    let load = match E::PRECISION {
        Precision::Half => Load::Half8,
        Precision::Float => Load::Float4,
    };
    // Column factors and attention are float, and so is what is added up with them.
    let in_half = E::PRECISION == Precision::Half
        && op.policy.accumulate == Accumulate::Half
        && matches!(weights, Weights::Ones | Weights::EdgeFeatures);
    let accumulate = match op.aggregation {
        Aggregation::Max => contract::Accumulate::Largest,
        Aggregation::Sum if second_sum.is_some() => contract::Accumulate::BothInFloat,
        Aggregation::Sum if in_half => contract::Accumulate::InHalf,
        Aggregation::Sum => contract::Accumulate::InFloat,
    };
    let scale = match (op.aggregation, op.policy.scaling, op.policy.write) {
        (Aggregation::Max, ..) => Some(Scale::Maximum),
        (_, Scaling::Discretized, Write::Staged) => Some(Scale::Discretized),
        (_, Scaling::Discretized, Write::Atomic) => Some(Scale::Atomic),
        (_, Scaling::PostReduction, Write::Staged) => Some(Scale::PostReduction),
        (_, Scaling::PreReduction, Write::Staged) => Some(Scale::PreReduction),
        _ => None,
    };
    let finished = (scale == Some(Scale::Discretized) && !op.epilogue.is_none())
        .then(|| contract::spmm(load, weights, Scale::Finished, accumulate))
        .flatten();
    let first = finished
        .or_else(|| scale.and_then(|scale| contract::spmm(load, weights, scale, accumulate)));
    let Some(first) = first else {
        return Err(Error::Unsupported {
            operator: NAME,
            reason: format!(
                "no kernel is built for the {:?} in {} with {weights:?} and {:?}; discretized scaling, float accumulation \
                 and the staged write have one for every sum",
                op.aggregation,
                E::PRECISION,
                op.policy
            ),
        });
    };
    let follow_up = contract::follow_up(load, first.scale, first.accumulate.sums());
    Ok((first, follow_up))
}

/// What an SpMM has to share out.
struct Work {
    edges: u32,
    /// Rows that have edges.
    rows: u32,
    /// Base-2 logarithm of the lanes of a sub-warp.
    lanes_log2: u32,
    /// How often the edges are walked: feature tiles times heads.
    passes: u32,
}

/// CTAs that a multiprocessor holds at once, of 48 registers a thread.
const CTAS_PER_MULTIPROCESSOR: u64 = 10;

/// Waves of CTAs under which smaller CTAs are better: with fewer the last, partial one is too large a part of all.
const WAVES: u64 = 4;

/// Mean edges of a row, of those that have some, under which a CTA has no more than [`contract::EDGES_PER_CTA`]. In
/// shorter rows there is little to merge, and the gathered rows of fewer edges fit the first-level cache.
const LONG_ROWS: u64 = 12;

/// The most edges of a CTA, as a base-2 logarithm, for so many edges in so many rows.
pub(crate) fn most_cta_edges_log2(edges: u64, rows: u64) -> u32 {
    if edges < LONG_ROWS.saturating_mul(rows) {
        contract::EDGES_PER_CTA.ilog2()
    } else {
        contract::CTA_EDGES_LOG2_MAX
    }
}

/// Edges of a CTA as a base-2 logarithm: the most that still make [`WAVES`] full waves on a card of so many
/// multiprocessors (HP-SpMM's dynamic task partition). The more edges a CTA has the fewer rows cross CTAs and the less
/// the merge costs an edge; but too few CTAs leave multiprocessors idle at the end, or from the start on.
fn choose(work: &Work, multiprocessors: u32) -> u32 {
    let enough = WAVES * CTAS_PER_MULTIPROCESSOR * u64::from(multiprocessors);
    let fewest = contract::cta_edges_log2_min(work.lanes_log2);
    let most = most_cta_edges_log2(work.edges.into(), work.rows.into());
    (fewest..=most)
        .rev()
        .find(|&log2| {
            u64::from(contract::ctas(work.edges, log2)) * u64::from(work.passes) >= enough
        })
        .unwrap_or(fewest)
}

/// Edges of a CTA as a base-2 logarithm, for warps of so many as a caller wants.
fn forced(edges_per_warp: u32, lanes_log2: u32) -> Result<u32, Error> {
    let fewest = contract::cta_edges_log2_min(lanes_log2);
    let most = contract::CTA_EDGES_LOG2_MAX;
    let log2 = (edges_per_warp.max(1) * contract::WARPS_PER_CTA).ilog2();
    if edges_per_warp.is_power_of_two() && (fewest..=most).contains(&log2) {
        return Ok(log2);
    }
    let warp = |log2: u32| (1 << log2) / contract::WARPS_PER_CTA;
    Err(Error::Unsupported {
        operator: NAME,
        reason: format!(
            "{edges_per_warp} edges a warp; rows of this length want a power of two from {} to {}",
            warp(fewest),
            warp(most)
        ),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chosen(edges: u32, lanes_log2: u32, passes: u32) -> u32 {
        let work = Work {
            edges,
            rows: edges / 32,
            lanes_log2,
            passes,
        };
        choose(&work, 132)
    }

    #[test]
    fn large_graphs_get_large_ctas_and_small_ones_enough_of_them() {
        assert_eq!(chosen(u32::MAX, 3, 1), contract::CTA_EDGES_LOG2_MAX);
        assert_eq!(chosen(67_108_864, 2, 1), contract::CTA_EDGES_LOG2_MAX);
        // A graph that a card cannot be filled with.
        assert_eq!(chosen(13_264, 3, 1), contract::cta_edges_log2_min(3));
        assert_eq!(chosen(0, 5, 1), contract::cta_edges_log2_min(5));
        assert_eq!(chosen(13_264, 0, 1), contract::cta_edges_log2_min(0));
        for edges in [1 << 20, 3 << 20, 1 << 22, 5 << 20] {
            let log2 = chosen(edges, 3, 1);
            let enough = WAVES * CTAS_PER_MULTIPROCESSOR * 132;
            assert!(u64::from(contract::ctas(edges, log2)) >= enough);
            assert!(u64::from(contract::ctas(edges, log2 + 1)) < enough);
            // Every further pass is as good as further edges.
            assert_eq!(chosen(edges, 3, 2), log2 + 1);
        }
    }

    #[test]
    fn short_rows_get_no_large_ctas() {
        let work = Work {
            edges: 1 << 27,
            rows: 1 << 25,
            lanes_log2: 3,
            passes: 1,
        };
        assert_eq!(1 << choose(&work, 132), contract::EDGES_PER_CTA);
    }

    #[test]
    fn what_is_forced_is_checked() {
        assert_eq!(forced(128, 0).expect("legal"), 9);
        assert_eq!(forced(256, 0).expect("legal"), 10);
        assert_eq!(forced(16, 3).expect("legal"), 6);
        for (edges, lanes_log2) in [(0, 3), (8, 5), (16, 2), (100, 3), (512, 3)] {
            let message = forced(edges, lanes_log2)
                .expect_err("no legal size")
                .to_string();
            assert!(message.contains("edges a warp"), "{message}");
        }
    }
}
