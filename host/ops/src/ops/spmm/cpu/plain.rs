//! Sums element by element, for every policy: what the vectors' sums are compared with.

use super::{Chunk, Input, Operands, Plan, Summation, Weights};
use crate::backend::cpu::convert::{round, round_in_place, widen};
use crate::ops::edge_plane;
use crate::ops::elementwise::cpu::KeepPositive;
use crate::ops::spmm::Scaling;
use crate::tensor::Element;
use half::f16;
use halfgnn_contract::normalize::combine;

/// Sums in plain Rust.
#[derive(Clone, Copy)]
pub(super) struct Plain;

/// What a thread computes in: rows of floats.
pub(super) struct Room {
    /// The present row of `x`.
    input: Vec<f32>,
    /// The sum of the present batch.
    batch: Vec<f32>,
    halves: Vec<f16>,
}

impl<E: Element> Summation<E> for Plain {
    type Room = Room;

    fn room(self, operands: &Operands<'_, E>) -> Room {
        Room {
            input: vec![0.0; operands.width],
            batch: vec![0.0; operands.width],
            halves: vec![f16::ZERO; operands.width],
        }
    }

    fn chunk(
        self,
        operands: &Operands<'_, E>,
        plan: Plan,
        chunk: Chunk,
        room: &mut Room,
        merged: &mut [f32],
    ) {
        let Chunk { row, edges, factor } = chunk;
        merged.fill(0.0);
        let mut start = edges.start;
        while start < edges.end {
            let end = edges.end.min(start.saturating_add(plan.batch()));
            room.batch.fill(0.0);
            for edge in start..end {
                operands.add_edge(row, edge, factor, plan, room);
            }
            let scale = match plan.scaling {
                Scaling::Discretized | Scaling::PostReduction => factor,
                Scaling::PreReduction => 1.0,
            };
            for (merged, batch) in merged.iter_mut().zip(&room.batch) {
                *merged += scale * batch;
            }
            start = end;
        }
    }

    fn largest(
        self,
        operands: &Operands<'_, E>,
        chunk: Chunk,
        room: &mut Room,
        merged: &mut [f32],
    ) {
        let Chunk { row, edges, factor } = chunk;
        let width = operands.width / operands.heads;
        let plane = edge_plane(operands.columns.len());
        merged.fill(f32::NEG_INFINITY);
        for edge in edges {
            let column = operands.columns[edge] as usize;
            operands.x.row(column, &mut room.input);
            let heads = merged.chunks_exact_mut(width);
            for (head, (merged, input)) in heads.zip(room.input.chunks_exact(width)).enumerate() {
                let weight = operands.weights.of(edge, row, column, head, plane);
                for (largest, value) in merged.iter_mut().zip(input) {
                    // Rounded as the product of two elements is.
                    let value = E::from_f32(weight * value).to_f32();
                    if value > *largest || value.is_nan() {
                        *largest = value;
                    }
                }
            }
        }
        merged.iter_mut().for_each(|largest| *largest *= factor);
    }

    fn finish(
        self,
        operands: &Operands<'_, E>,
        row: usize,
        room: &mut Room,
        merged: &mut [f32],
        y: &mut [E],
    ) {
        let epilogue = &operands.epilogue;
        if let Input::Codes { scales, .. } = &operands.x {
            for (sum, scale) in merged.iter_mut().zip(*scales) {
                *sum *= scale;
            }
        }
        if let Some(addend) = &epilogue.addend {
            let values = &addend.values[row * addend.stride..][..operands.width];
            widen(values, &mut room.input);
            let factor = addend.factor_of(row);
            for (sum, value) in merged.iter_mut().zip(&room.input) {
                *sum = combine(factor, *value, 1.0, *sum);
            }
        }
        if let Some(bias) = &epilogue.bias {
            add(merged, bias);
        }
        if epilogue.relu {
            for sum in merged.iter_mut() {
                // Not `max`, which would make a zero of a NaN.
                if *sum < 0.0 {
                    *sum = 0.0;
                }
            }
        }
        if let Some(output) = epilogue.positive_row(row, operands.width) {
            E::keep_positive(KeepPositive::new(merged, &output[..merged.len()], 1.0));
        }
        round(merged, y);
    }
}

impl<E: Element> Operands<'_, E> {
    /// Adds `w · x` of one edge to the batch.
    fn add_edge(&self, row: usize, edge: usize, factor: f32, plan: Plan, room: &mut Room) {
        let Room {
            input,
            batch,
            halves,
        } = room;
        let column = self.columns[edge] as usize;
        self.x.row(column, input);
        let width = self.width / self.heads;
        let plane = edge_plane(self.columns.len());
        let weight = |head| self.weights.of(edge, row, column, head, plane);
        if plan.scaling == Scaling::PreReduction {
            for (head, part) in input.chunks_exact_mut(width).enumerate() {
                let weight = weight(head) * factor;
                part.iter_mut().for_each(|value| *value *= weight);
            }
            if plan.in_half {
                round_in_place(input, halves);
            }
            add(batch, input);
        } else if matches!(self.weights, Weights::Ones) {
            add(batch, input);
        } else {
            let parts = batch.chunks_exact_mut(width).zip(input.chunks_exact(width));
            for (head, (batch, input)) in parts.enumerate() {
                let weight = weight(head);
                for (sum, value) in batch.iter_mut().zip(input) {
                    *sum += weight * value;
                }
            }
        }
        if plan.in_half {
            // Float holds the sum of two halves, so this rounds as an addition in half does.
            round_in_place(batch, halves);
        }
    }
}

/// Adds to each sum.
pub(super) fn add(sums: &mut [f32], values: &[f32]) {
    for (sum, value) in sums.iter_mut().zip(values) {
        *sum += value;
    }
}

impl<E: Element> Weights<'_, E> {
    /// That of an edge from `column` to `row`, where a plane of edge weights is `plane` long.
    #[inline]
    fn of(&self, edge: usize, row: usize, column: usize, head: usize, plane: usize) -> f32 {
        match self {
            Weights::Ones => 1.0,
            Weights::Edges(values) => values[head * plane + edge].to_f32(),
            Weights::Columns(scale) => scale[column],
            Weights::Attention(attention) => attention.of(edge, row, column, head),
        }
    }
}
