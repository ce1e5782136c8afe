//! Segment reductions, row by row in the order of the edges, in float.

use super::{EdgeValues, SegmentOperators, SegmentReduceOperands, SegmentReduction};
use crate::backend::cpu::Cpu;
use crate::backend::cpu::view::with_edges;
use crate::error::Error;
use crate::ops::{Checked, edge_plane};
use crate::tensor::Element;

impl SegmentOperators for Cpu {
    fn segment_reduce<E: Element>(
        &self,
        operands: Checked<SegmentReduceOperands<'_, Self, E>>,
    ) -> Result<(), Error> {
        let of = operands.into_inner();
        let plane_stride = edge_plane(of.a.edges());
        let mut reduce = |value: &(dyn Fn(usize, usize) -> f32 + Sync)| {
            with_edges(of.a, |edges| {
                edges.for_rows(of.result.buffer.get_mut(), |head, row| {
                    let first = head * plane_stride;
                    let of_row = edges.of_row(row).map(|edge| value(first, edge));
                    match of.reduction {
                        SegmentReduction::Sum => of_row.sum(),
                        // A NaN is the largest.
                        SegmentReduction::Max => of_row.fold(f32::NEG_INFINITY, |max, value| {
                            if max > value || max.is_nan() {
                                max
                            } else {
                                value
                            }
                        }),
                    }
                });
            });
        };
        match of.values {
            EdgeValues::Plane(plane) => {
                let plane = plane.buffer.read();
                let plane: &[E] = &plane;
                reduce(&|first, edge| plane[first + edge].to_f32());
            }
            EdgeValues::Product(plane, factors) => {
                let (plane, factors) = (plane.buffer.read(), factors.buffer.read());
                let (plane, factors): (&[E], &[E]) = (&plane, &factors);
                reduce(&|first, edge| {
                    plane[first + edge].to_f32() * factors[first + edge].to_f32()
                });
            }
            EdgeValues::Gathered(plane, map) => {
                let (plane, map) = (plane.buffer.read(), map.edges().buffer.read());
                let (plane, map): (&[E], &[u32]) = (&plane, &map);
                reduce(&|first, edge| plane[first + map[edge] as usize].to_f32());
            }
        }
        Ok(())
    }
}
