//! SDDMM: one launch, a warp for some tiles of edges.

use super::{
    CombineEdgesOperands, EdgeCombine, EdgeOperand, Reduction, SddmmOperands, SddmmOperators,
    SddmmPolicy,
};
use crate::backend::Adjacency;
use crate::backend::gpu::{Gpu, entry, narrow};
use crate::driver::{Driver, LaunchConfig};
use crate::error::Error;
use crate::ops::{Accumulate, Additive, Checked, HalfLoad, edge_plane, partition};
use crate::tensor::{Array, Element, Precision, padded};
use halfgnn_contract::sddmm::{self as contract, CombineParams, SddmmEntry, SddmmParams};
use halfgnn_contract::spmm::{self, Load};
use halfgnn_contract::{DevicePtr, HalfBits};

const NAME: &str = "sddmm";

/// CTAs for each multiprocessor, unless the policy says how many: as many as are resident, twice, so that those that
/// are done early leave memory for others.
const CTAS_PER_MULTIPROCESSOR: u32 = 2 * RESIDENT_CTAS;

/// CTAs that a multiprocessor holds at once.
const RESIDENT_CTAS: u32 = 12;

impl<D: Driver> SddmmOperators for Gpu<D> {
    fn sddmm<E: Element>(
        &self,
        operands: Checked<SddmmOperands<'_, Self, E>>,
    ) -> Result<(), Error> {
        let SddmmOperands { a, op, u, v, e } = operands.into_inner();
        if e.is_empty() {
            return Ok(());
        }
        let edges = narrow(NAME, "edges", a.edges())?;
        // A head is read to the end of its padding.
        let width = narrow(
            NAME,
            "columns of a head",
            padded::<E>(u.columns() / op.heads),
        )?;
        let shape = shape::<E>(op.policy, width)?;
        let loads = shape.head_loads.saturating_mul(op.heads as u32);
        let ctas = ctas(
            op.policy,
            edges,
            loads,
            self.driver().info().multiprocessors,
        );
        let stride = narrow(NAME, "bytes of a row", u.stride() * size_of::<E>())?;
        let params = SddmmParams {
            rows: self.array(a.row_ids(self)?)?,
            columns: self.array(&a.column_ids)?,
            u: self.matrix(u)?,
            v: self.matrix(v)?,
            output: self.array(e)?,
            plane: edge_plane(a.edges()) as u64,
            edges,
            u_stride: stride,
            v_stride: stride,
            head_loads: shape.head_loads,
            lanes_log2: shape.lanes_log2,
            blocks: shape.blocks,
            warps: ctas * contract::WARPS_PER_CTA,
            scale: op.scale,
            vector: DevicePtr::NULL,
            slope: 0.0,
            reserved: 0,
        };
        // SAFETY: the operator checked that `u`, `v` and `e` fit the graph, whose arrays were checked when it was made.
        unsafe { self.launch(shape.entry.name, config(ctas, op.heads), &params) }
    }

    fn combine_edges<E: Element>(
        &self,
        operands: Checked<CombineEdgesOperands<'_, Self, E>>,
    ) -> Result<(), Error> {
        let CombineEdgesOperands { a, heads, op, e } = operands.into_inner();
        const NAME: &str = "combine_edges";
        if e.is_empty() {
            return Ok(());
        }
        let (left, right) = op.operands();
        let (left, left_is, left_plane) = self.operand(a, left)?;
        let none = (DevicePtr::NULL, 0, 0);
        let (right, right_is, right_plane) =
            right.map_or(Ok(none), |right| self.operand(a, right))?;
        let edges = narrow(NAME, "edges", a.edges())?;
        let (first, second) = op.operands();
        let of_row = |operand: &EdgeOperand<'_, Self, E>| matches!(operand, EdgeOperand::Row(_));
        let of_rows = of_row(first) || second.is_some_and(of_row);
        let row_ids = of_rows.then(|| a.row_ids(self)).transpose()?;
        let params = CombineParams {
            rows: self.optional_array(row_ids)?,
            columns: self.array(&a.column_ids)?,
            left,
            right,
            output: self.array(e)?,
            plane: edge_plane(a.edges()) as u64,
            left_plane,
            edges,
            operator: match op {
                EdgeCombine::Copy(..) => contract::COPY,
                EdgeCombine::Add(..) => contract::ADD,
                EdgeCombine::Subtract(..) => contract::SUBTRACT,
                EdgeCombine::Multiply(..) => contract::MULTIPLY,
                EdgeCombine::Divide(..) => contract::DIVIDE,
            },
            left_is,
            right_is,
            right_plane,
        };
        let config = LaunchConfig {
            grid: [
                edges.div_ceil(contract::COMBINE_EDGES_PER_CTA),
                heads as u32,
                1,
            ],
            block: [contract::THREADS_PER_CTA, 1, 1],
            shared_bytes: 0,
        };
        let name = entry::<E>("sddmm_combine")?;
        // SAFETY: the operator checked that the operands and `e` fit the graph and the heads.
        unsafe { self.launch(name, config, &params) }
    }
}

/// CTAs of a launch on a GPU of a number of multiprocessors, for rows of a number of loads.
fn ctas(policy: SddmmPolicy, edges: u32, loads: u32, multiprocessors: u32) -> u32 {
    let all = contract::tiles(edges).div_ceil(contract::WARPS_PER_CTA);
    if policy.hybrid {
        let launch = partition::Launch {
            edges,
            loads,
            full_wave: u64::from(RESIDENT_CTAS) * u64::from(multiprocessors),
            warps_per_cta: contract::WARPS_PER_CTA,
        };
        let built = |edges: u32| edges.is_multiple_of(contract::TILE_EDGES);
        let edges_per_warp = launch.edges_per_warp(built).unwrap_or(contract::TILE_EDGES);
        let warps = edges.div_ceil(edges_per_warp);
        return warps.div_ceil(contract::WARPS_PER_CTA).min(all);
    }
    let ctas = policy
        .ctas_per_multiprocessor
        .unwrap_or(CTAS_PER_MULTIPROCESSOR)
        .max(1);
    all.min(multiprocessors.saturating_mul(ctas))
}

/// The launch of a number of CTAs a head.
fn config(ctas: u32, heads: usize) -> LaunchConfig {
    LaunchConfig {
        grid: [ctas, heads as u32, 1],
        block: [contract::THREADS_PER_CTA, 1, 1],
        shared_bytes: contract::SHARED_BYTES,
    }
}

impl<D: Driver> Gpu<D> {
    /// The scores of additive attention, of heads that are `width` elements wide, padding included.
    pub(crate) fn launch_additive_scores<E: Element>(
        &self,
        a: &Adjacency<Self>,
        op: &Additive<'_, Self, E>,
        width: u32,
        scores: &mut Array<Self, f32>,
    ) -> Result<(), Error> {
        let edges = narrow(NAME, "edges", a.edges())?;
        let shape = additive_shape::<E>(width)?;
        let multiprocessors = self.driver().info().multiprocessors;
        let ctas = contract::tiles(edges)
            .div_ceil(contract::WARPS_PER_CTA)
            .min(multiprocessors.saturating_mul(CTAS_PER_MULTIPROCESSOR));
        let stride = narrow(NAME, "bytes of a row", op.u.stride() * size_of::<E>())?;
        let params = SddmmParams {
            rows: self.array(a.row_ids(self)?)?,
            columns: self.array(&a.column_ids)?,
            u: self.matrix(op.u)?,
            v: self.matrix(op.v)?,
            output: self.array(scores)?,
            plane: edge_plane(a.edges()) as u64,
            edges,
            u_stride: stride,
            v_stride: stride,
            head_loads: shape.head_loads,
            lanes_log2: shape.lanes_log2,
            blocks: shape.blocks,
            warps: ctas * contract::WARPS_PER_CTA,
            scale: 1.0,
            vector: self.matrix(op.vector)?,
            slope: op.slope,
            reserved: 0,
        };
        // SAFETY: the operator checked that features, vector and scores fit the graph, whose arrays were checked when
        // it was made.
        unsafe { self.launch(shape.entry.name, config(ctas, op.heads), &params) }
    }

    /// Address of an operand, what it is a number of, and how long a plane of rows or of columns is.
    fn operand<E: Element>(
        &self,
        a: &Adjacency<Self>,
        operand: &EdgeOperand<'_, Self, E>,
    ) -> Result<(DevicePtr<HalfBits>, u32, u32), Error> {
        let plane = |vertices| narrow(NAME, "vertices", vertices);
        Ok(match operand {
            EdgeOperand::Row(values) => (self.array(values)?, contract::OF_ROW, plane(a.rows())?),
            EdgeOperand::Column(values) => (
                self.array(values)?,
                contract::OF_COLUMN,
                plane(a.columns())?,
            ),
            EdgeOperand::Edge(values) => (self.array(values)?, contract::OF_EDGE, 0),
        })
    }
}

/// An entry, and how its lanes share a row.
#[derive(Debug, PartialEq)]
struct Shape {
    entry: &'static SddmmEntry,
    head_loads: u32,
    lanes_log2: u32,
    blocks: u32,
}

/// The shape of the scores of additive attention, for heads of `width` elements, padding included.
fn additive_shape<E: Element>(width: u32) -> Result<Shape, Error> {
    let load = Load::widest(E::PRECISION.format());
    let head_loads = width / load.width();
    let lanes_log2 = spmm::lanes_log2(head_loads);
    let blocks = head_loads.div_ceil(1 << lanes_log2).max(1);
    let (reduction, accumulate) = (contract::Reduction::Shuffles, spmm::Accumulate::Additive);
    let entry = contract::sddmm(load, reduction, accumulate, blocks > 1).ok_or_else(|| {
        Error::Unsupported {
            operator: NAME,
            reason: format!("no kernel is built for additive attention of {load:?}"),
        }
    })?;
    Ok(Shape {
        entry,
        head_loads,
        lanes_log2,
        blocks,
    })
}

/// The shape for heads of `width` elements, padding included.
fn shape<E: Element>(policy: SddmmPolicy, width: u32) -> Result<Shape, Error> {
    let load = match (E::PRECISION, policy.load) {
        (Precision::Half, HalfLoad::Half2) => Load::Half2,
        (Precision::Half, HalfLoad::Half4) => Load::Half4,
        (precision, _) => Load::widest(precision.format()),
    };
    let accumulate = match (E::PRECISION, policy.accumulate) {
        (Precision::Half, Accumulate::Half) => spmm::Accumulate::InHalf,
        _ => spmm::Accumulate::InFloat,
    };
    let head_loads = width / load.width();
    let on_tensor_cores = policy.reduction == Reduction::TensorCores
        && matches!(load, Load::Half8 | Load::BFloat8)
        && accumulate == spmm::Accumulate::InFloat;
    let fitting = spmm::lanes_log2(head_loads);
    let (reduction, lanes_log2) = if on_tensor_cores {
        // Four lanes are what a row of a fragment has; twice as many load a line of 128 bytes.
        (contract::Reduction::TensorCores, fitting.clamp(2, 3))
    } else {
        (contract::Reduction::Shuffles, fitting)
    };
    let blocks = head_loads.div_ceil(1 << lanes_log2).max(1);
    // What reads rows of several blocks keeps none of them, and reads those of one block as well.
    let wide = blocks > 1 || policy.read_anew;
    let entry = contract::sddmm(load, reduction, accumulate, wide).ok_or_else(|| {
        Error::Unsupported {
            operator: NAME,
            reason: format!(
                "no kernel is built for {load:?}, {reduction:?} and {accumulate:?}; half8 has one for every policy"
            ),
        }
    })?;
    Ok(Shape {
        entry,
        head_loads,
        lanes_log2,
        blocks,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use half::f16;

    #[test]
    fn every_row_is_read_to_its_end() {
        for columns in 1..=1100 {
            for load in [HalfLoad::Half2, HalfLoad::Half4, HalfLoad::Half8] {
                for reduction in [Reduction::TensorCores, Reduction::Shuffles] {
                    let accumulate = Accumulate::Half;
                    let policy = SddmmPolicy {
                        accumulate,
                        reduction,
                        load,
                        ..SddmmPolicy::default()
                    };
                    let width = padded::<f16>(columns) as u32;
                    let shape =
                        shape::<f16>(policy, width).expect("half arithmetic has every load");
                    let lanes = 1 << shape.lanes_log2;
                    assert_eq!(shape.head_loads * shape.entry.load.width(), width);
                    assert!(lanes * shape.blocks >= shape.head_loads);
                    assert!(lanes * (shape.blocks - 1) < shape.head_loads);
                    assert_eq!(shape.entry.wide, shape.blocks > 1);
                }
            }
        }
    }

    #[test]
    fn ctas_are_those_of_the_policy() {
        let of = |policy, edges| ctas(policy, edges, 8, 132);
        let tiles = |count: u32| count * contract::TILE_EDGES;
        assert_eq!(of(SddmmPolicy::default(), tiles(9)), 3);
        assert_eq!(of(SddmmPolicy::default(), u32::MAX), 132 * 24);
        let hybrid = SddmmPolicy {
            hybrid: true,
            ..SddmmPolicy::default()
        };
        // 4 · 1,584 · n · 4 · 32 ≤ NNZ · 8: n ≤ NNZ / 101,376.
        let warps = |edges: u32, edges_per_warp: u32| edges / edges_per_warp / 4;
        assert_eq!(of(hybrid, 101_376 * 512), warps(101_376 * 512, 512));
        let fewer = 101_376 * 512 - tiles(8);
        assert_eq!(of(hybrid, fewer), warps(fewer, 256));
        assert_eq!(of(hybrid, tiles(9)), 3);
        assert_eq!(of(hybrid, 0), 0);
    }

    #[test]
    fn tensor_cores_are_the_default_in_half() {
        let of = |width| {
            shape::<f16>(SddmmPolicy::default(), width)
                .map(|shape| (shape.entry.name, shape.lanes_log2, shape.blocks))
        };
        assert_eq!(of(8).expect("built"), ("sddmm_half8_tensor", 2, 1));
        assert_eq!(of(32).expect("built"), ("sddmm_half8_tensor", 2, 1));
        assert_eq!(of(64).expect("built"), ("sddmm_half8_tensor", 3, 1));
        assert_eq!(of(256).expect("built"), ("sddmm_half8_tensor_wide", 3, 4));
        let anew = SddmmPolicy {
            read_anew: true,
            ..SddmmPolicy::default()
        };
        let anew = shape::<f16>(anew, 32).expect("built");
        assert_eq!(
            (anew.entry.name, anew.blocks),
            ("sddmm_half8_tensor_wide", 1)
        );
        let float = shape::<f32>(SddmmPolicy::default(), 64).expect("built");
        assert_eq!(
            (float.entry.name, float.lanes_log2),
            ("sddmm_float4_float", 4)
        );
    }

    #[test]
    fn what_is_not_built_is_said() {
        let policy = SddmmPolicy {
            load: HalfLoad::Half4,
            ..SddmmPolicy::default()
        };
        let error = shape::<f16>(policy, 64)
            .expect_err("half4 sums in half2 only")
            .to_string();
        assert!(
            error.starts_with("sddmm: no kernel is built for Half4"),
            "{error}"
        );
    }
}
