//! SpMM: two launches, the edge-parallel kernel and its follow-up.

use super::{Gpu, array, matrix, narrow, optional_array, stride_vectors};
use crate::backend::{Accumulate, Adjacency, EdgeWeights, Scaling, Spmm};
use crate::driver::{Driver, LaunchConfig};
use crate::error::Error;
use crate::tensor::{Element, Matrix, Precision};
use halfgnn_contract::DevicePtr;
use halfgnn_contract::spmm::{self as contract, Load, Scale, SpmmParams, Weights};

const NAME: &str = "spmm";

impl<D: Driver> Gpu<D> {
    pub(super) fn launch_spmm<E: Element>(
        &self,
        a: &Adjacency<Self>,
        op: &Spmm<'_, Self, E>,
        x: &Matrix<Self, E>,
        y: &mut Matrix<Self, E>,
    ) -> Result<(), Error> {
        if y.rows() == 0 || y.columns() == 0 {
            return Ok(());
        }
        let (first, second) = entries::<D, E>(op)?;
        let edges = narrow(NAME, "edges", a.edges())?;
        let empty_count = narrow(NAME, "rows without edges", a.empty_rows.len())?;
        let x_stride = stride_vectors(NAME, x)?;
        let load = first.load;
        // A row is read to the end of its padding, in as many loads as fit into its 16-byte vectors.
        let feature_loads = x_stride * E::LANES as u32 / load.width();
        let lanes_log2 = contract::lanes_log2(feature_loads);
        let tiles = contract::feature_tiles(feature_loads);
        let ctas = contract::ctas(edges);
        let floats = contract::staging_floats(ctas, feature_loads * load.width());
        let staging = self.workspace.floats(&self.driver, &self.ledger, floats)?;

        let (mut edge_weights, mut column_scale) = (DevicePtr::NULL, DevicePtr::NULL);
        match op.weights {
            EdgeWeights::Ones => {}
            EdgeWeights::Features(weights) => edge_weights = array(weights),
            EdgeWeights::Columns(scale) => column_scale = array(scale),
        }
        let params = SpmmParams {
            rows: array(&a.rows),
            columns: array(&a.columns),
            offsets: array(&a.offsets),
            edge_weights,
            column_scale,
            row_scale: optional_array(op.row_scale),
            x: matrix(x),
            y: matrix(y),
            staging: DevicePtr::new(staging.address()),
            empty_rows: array(&a.empty_rows),
            edges,
            empty_count,
            x_stride,
            y_stride: stride_vectors(NAME, y)?,
            feature_loads,
            features: narrow(NAME, "feature length", x.columns())?,
            lanes_log2,
            ctas,
            scale: op.scale,
            reserved: 0,
        };
        let config = |ctas, shared_bytes| LaunchConfig {
            grid: [ctas, tiles, 1],
            block: [contract::THREADS_PER_CTA, 1, 1],
            shared_bytes,
        };
        // SAFETY: the operator checked that `x`, `y`, weights and factors fit the graph, whose arrays were checked when
        // it was made; the staging buffer has `staging_floats`.
        unsafe {
            self.kernels.launch(
                &self.driver,
                first.name,
                config(ctas, contract::shared_bytes(load.width())),
                &params,
            )?;
            // One CTA leaves nothing to complete.
            let follow_up = contract::follow_up_ctas(if ctas > 1 { ctas } else { 0 }, empty_count);
            let params = SpmmParams {
                ctas: if ctas > 1 { ctas } else { 0 },
                ..params
            };
            self.kernels
                .launch(&self.driver, second.name, config(follow_up, 0), &params)
        }
    }
}

/// The two entries for what is asked.
fn entries<D: Driver, E: Element>(
    op: &Spmm<'_, Gpu<D>, E>,
) -> Result<
    (
        &'static contract::SpmmEntry,
        &'static contract::FollowUpEntry,
    ),
    Error,
> {
    let weights = match op.weights {
        EdgeWeights::Ones => Weights::Ones,
        EdgeWeights::Features(_) => Weights::EdgeFeatures,
        EdgeWeights::Columns(_) => Weights::ColumnScale,
    };
    let (load, accumulate) = match (E::PRECISION, op.policy.accumulate) {
        (Precision::Float, _) => (Load::Float4, contract::Accumulate::InFloat),
        // Column factors are float, and so is what is added up with them.
        (Precision::Half, Accumulate::Half) if weights != Weights::ColumnScale => {
            (Load::Half8, contract::Accumulate::InHalf)
        }
        (Precision::Half, _) => (Load::Half8, contract::Accumulate::InFloat),
    };
    let scale = match op.policy.scaling {
        Scaling::Discretized => Scale::Discretized,
        Scaling::PostReduction => Scale::PostReduction,
        Scaling::PreReduction => Scale::PreReduction,
    };
    contract::spmm(load, weights, scale, accumulate).zip(contract::follow_up(load, scale)).ok_or_else(|| {
        Error::Unsupported {
            operator: NAME,
            reason: format!(
                "no kernel is built for {} with {weights:?}, {scale:?} and {accumulate:?}; discretized scaling and \
                 float accumulation have one for every input",
                E::PRECISION
            ),
        }
    })
}
