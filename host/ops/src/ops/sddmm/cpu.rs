//! SDDMM edge by edge: the plain twin of the kernels (HalfGNN §4.2).

use super::{CombineEdgesOperands, EdgeCombine, EdgeOperand, SddmmOperands, SddmmOperators};
use crate::backend::Adjacency;
use crate::backend::cpu::convert::{round, widen};
use crate::backend::cpu::simd::{Floats, Kernel, Lanes, load, store};
use crate::backend::cpu::{Cpu, Reading};
use crate::error::Error;
use crate::ops::{Accumulate, Checked, edge_plane};
use crate::tensor::{Element, Precision, padded};
use half::f16;
use halfgnn_graph::parallel;
use pulp::Simd;

/// Edges that are one piece of work.
pub(crate) const CHUNK_EDGES: usize = 1024;

/// Halves whose products a lane of the kernels adds up in half.
const LANE_HALVES: usize = 8;

impl SddmmOperators for Cpu {
    fn sddmm<E: Element>(
        &self,
        operands: Checked<SddmmOperands<'_, Self, E>>,
    ) -> Result<(), Error> {
        let SddmmOperands { a, op, u, v, e } = operands.into_inner();
        // Of one head with its padding, which is zero in both.
        let features = padded::<E>(u.columns()) / op.heads;
        let strides = [u.stride(), v.stride()];
        let (rows, columns) = (a.row_ids(self)?.buffer.read(), a.column_ids.buffer.read());
        let (u, v) = (u.buffer.read(), v.buffer.read());
        let (rows, columns): (&[u32], &[u32]) = (&rows, &columns);
        let (u, v): (&[E], &[E]) = (&u, &v);
        let e = e.buffer.get_mut();
        let plane = edge_plane(rows.len());
        if plane == 0 {
            return Ok(());
        }
        let in_half = E::PRECISION == Precision::Half && op.policy.accumulate == Accumulate::Half;
        for (head, e) in e.chunks_exact_mut(plane).enumerate() {
            let first = head * features;
            parallel::for_each(parallel::chunks_mut(e, CHUNK_EDGES), |chunk, e| {
                let mut sums = vec![0.0; e.len()];
                let edges = chunk * CHUNK_EDGES..rows.len();
                if !in_half {
                    let last = edges.end.min(edges.start + sums.len());
                    E::dots(
                        self,
                        Dots {
                            u: &u[first..],
                            v: &v[first..],
                            strides,
                            features,
                            ends: (&rows[edges.start..last], &columns[edges.start..last]),
                            scale: op.scale,
                            sums: &mut sums,
                        },
                    );
                    return round(&sums, e);
                }
                let mut of_row = Features::new(u, strides[0], first, features);
                let mut of_column = Features::new(v, strides[1], first, features);
                for (sum, edge) in sums.iter_mut().zip(edges) {
                    let (u, v) = (of_row.of(rows[edge]), of_column.of(columns[edge]));
                    *sum = op.scale * dot_in_half(u, v);
                }
                round(&sums, e);
            });
        }
        Ok(())
    }

    fn combine_edges<E: Element>(
        &self,
        operands: Checked<CombineEdgesOperands<'_, Self, E>>,
    ) -> Result<(), Error> {
        let CombineEdgesOperands { a, heads: _, op, e } = operands.into_inner();
        let edges = a.edges();
        let plane = edge_plane(edges);
        if plane == 0 {
            return Ok(());
        }
        let (left, right) = op.operands();
        let (left, right) = (
            Operand::new(self, a, left)?,
            right
                .map(|right| Operand::new(self, a, right))
                .transpose()?,
        );
        for (head, e) in e.buffer.get_mut().chunks_exact_mut(plane).enumerate() {
            parallel::for_each(parallel::chunks_mut(e, CHUNK_EDGES), |chunk, e| {
                for (i, e) in e.iter_mut().enumerate() {
                    let edge = chunk * CHUNK_EDGES + i;
                    if edge >= edges {
                        *e = E::zeroed();
                        continue;
                    }
                    let x = left.of(plane, head, edge);
                    let y = right
                        .as_ref()
                        .map_or(0.0, |right| right.of(plane, head, edge));
                    *e = E::from_f32(match op {
                        EdgeCombine::Copy(..) => x,
                        EdgeCombine::Add(..) => x + y,
                        EdgeCombine::Subtract(..) => x - y,
                        EdgeCombine::Multiply(..) => x * y,
                        EdgeCombine::Divide(..) => x / y,
                    });
                }
            });
        }
        Ok(())
    }
}

/// The features of one head of a vertex, widened.
pub(crate) struct Features<'a, E> {
    values: &'a [E],
    stride: usize,
    first: usize,
    vertex: Option<u32>,
    floats: Vec<f32>,
}

impl<'a, E: Element> Features<'a, E> {
    pub(crate) fn new(values: &'a [E], stride: usize, first: usize, features: usize) -> Self {
        Self {
            values,
            stride,
            first,
            vertex: None,
            floats: vec![0.0; features],
        }
    }

    /// Those of `vertex`, which often is that of the call before.
    pub(crate) fn of(&mut self, vertex: u32) -> &[f32] {
        if self.vertex != Some(vertex) {
            let start = vertex as usize * self.stride + self.first;
            widen(
                &self.values[start..start + self.floats.len()],
                &mut self.floats,
            );
            self.vertex = Some(vertex);
        }
        &self.floats
    }
}

/// Parts that a dot product in float is kept in: feature `i` belongs to part `i % PARTS`, whatever the vectors.
pub(crate) const PARTS: usize = 16;

/// The sum of the parts, in halves.
#[inline(always)]
pub(crate) fn sum_parts(mut parts: [f32; PARTS]) -> f32 {
    let mut left = PARTS / 2;
    while left > 0 {
        for part in 0..left {
            parts[part] += parts[part + left];
        }
        left /= 2;
    }
    parts[0]
}

/// Dot products in float of the edges with these `ends`, times `scale`.
pub struct Dots<'a, E> {
    /// From the first feature of the head, as `v`.
    u: &'a [E],
    v: &'a [E],
    /// From one row of each to the next.
    strides: [usize; 2],
    features: usize,
    ends: (&'a [u32], &'a [u32]),
    scale: f32,
    sums: &'a mut [f32],
}

impl<E: Element> Kernel for Dots<'_, E> {
    type Output = ();

    fn plain(self) {
        let (rows, columns) = self.ends;
        let mut of_row = Features::new(self.u, self.strides[0], 0, self.features);
        let mut of_column = Features::new(self.v, self.strides[1], 0, self.features);
        for (sum, (&row, &column)) in self.sums.iter_mut().zip(rows.iter().zip(columns)) {
            let mut parts = [0.0; PARTS];
            let products = of_row.of(row).iter().zip(of_column.of(column));
            for (feature, (u, v)) in products.enumerate() {
                parts[feature % PARTS] += u * v;
            }
            *sum = self.scale * sum_parts(parts);
        }
    }

    #[inline(always)]
    fn vectors<L: Lanes>(self, lanes: L) {
        let (rows, columns) = self.ends;
        let whole = self.features / PARTS * PARTS;
        for edge in 0..rows.len() {
            let u = &self.u[rows[edge] as usize * self.strides[0]..][..self.features];
            let v = &self.v[columns[edge] as usize * self.strides[1]..][..self.features];
            // Each part is a lane of one vector, so that the parts are added to in the order of the features.
            let mut parts = [0.0; PARTS];
            for first in (0..PARTS).step_by(L::LANES) {
                let mut sum = lanes.simd().splat_f32s(0.0);
                let mut at = first;
                while at < whole {
                    sum = add_product(lanes, sum, &u[at..], &v[at..]);
                    at += PARTS;
                }
                if at < self.features {
                    let (mut u_rest, mut v_rest) = ([E::zeroed(); PARTS], [E::zeroed(); PARTS]);
                    let rest = (self.features - at).min(L::LANES);
                    for i in 0..rest {
                        (u_rest[i], v_rest[i]) = (u[at + i], v[at + i]);
                    }
                    sum = add_product(lanes, sum, &u_rest, &v_rest);
                }
                store(lanes, sum, &mut parts[first..]);
            }
            self.sums[edge] = self.scale * sum_parts(parts);
        }
    }
}

#[inline(always)]
fn add_product<L: Lanes, E: Element>(lanes: L, sum: Floats<L>, u: &[E], v: &[E]) -> Floats<L> {
    let simd = lanes.simd();
    simd.add_f32s(sum, simd.mul_f32s(load(lanes, u), load(lanes, v)))
}

/// Sums of even and of odd features of eight, in half, and everything else in float.
fn dot_in_half(u: &[f32], v: &[f32]) -> f32 {
    let mut sum = 0.0;
    for (u, v) in u.chunks(LANE_HALVES).zip(v.chunks(LANE_HALVES)) {
        let mut lane = [0.0f32; 2];
        for (i, (&u, &v)) in u.iter().zip(v).enumerate() {
            // Float holds the product of two halves.
            lane[i % 2] = f16::from_f32(lane[i % 2] + u * v).to_f32();
        }
        sum += lane[0] + lane[1];
    }
    sum
}

/// An operand of the numbers of edges, as slices.
enum Operand<'a, E> {
    /// Ids, numbers, and the length of a plane of them.
    Vertices(Reading<'a, u32>, Reading<'a, f32>, usize),
    Edges(Reading<'a, E>),
}

impl<'a, E: Element> Operand<'a, E> {
    fn new(
        cpu: &Cpu,
        a: &'a Adjacency<Cpu>,
        operand: &'a EdgeOperand<'_, Cpu, E>,
    ) -> Result<Self, Error> {
        Ok(match operand {
            EdgeOperand::Row(values) => Operand::Vertices(
                a.row_ids(cpu)?.buffer.read(),
                values.buffer.read(),
                a.rows(),
            ),
            EdgeOperand::Column(values) => Operand::Vertices(
                a.column_ids.buffer.read(),
                values.buffer.read(),
                a.columns(),
            ),
            EdgeOperand::Edge(values) => Operand::Edges(values.buffer.read()),
        })
    }

    fn of(&self, plane: usize, head: usize, edge: usize) -> f32 {
        match self {
            Operand::Vertices(ids, values, plane) => values[head * plane + ids[edge] as usize],
            Operand::Edges(values) => values[head * plane + edge].to_f32(),
        }
    }
}
