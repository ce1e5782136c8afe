//! Maxima on a CPU, by the contract's formulas.

use super::{
    GroupMaximumBackwardOperands, GroupMaximumOperands, MaximumBackwardOperands, MaximumOperands,
    MaximumOperators,
};
use crate::backend::cpu::Cpu;
use crate::error::Error;
use crate::ops::{Checked, RowGroups};
use crate::tensor::Element;
use halfgnn_contract::maximum::{larger, share};
use halfgnn_contract::norms::GROUP_WORDS;
use halfgnn_graph::parallel;
use std::ops::Range;

/// Elements that a thread takes at once.
const PIECE: usize = 1 << 14;

/// The larger of two elements.
fn larger_element<E: Element>(x: E, y: E) -> E {
    E::from_f32(larger(x.to_f32(), y.to_f32()))
}

/// What an element takes of a gradient, and what it leaves.
fn shares<E: Element>(x: E, largest: E, gradient: E) -> [E; 2] {
    share(x.to_f32(), largest.to_f32(), gradient.to_f32()).map(E::from_f32)
}

/// The rows of each group.
fn rows(groups: &RowGroups<Cpu>) -> Vec<Range<usize>> {
    let words = groups.groups.buffer.read();
    let of_group = |words: &[u32]| {
        let (rows, first) = (words[2] as usize, words[3] as usize);
        first..first + rows
    };
    words.chunks_exact(GROUP_WORDS).map(of_group).collect()
}

impl MaximumOperators for Cpu {
    fn maximum<E: Element>(
        &self,
        operands: Checked<MaximumOperands<'_, Self, E>>,
    ) -> Result<(), Error> {
        let MaximumOperands { x, y } = operands.into_inner();
        let x = x.buffer.read();
        let pieces = parallel::chunks_mut(y.buffer.get_mut(), PIECE);
        parallel::for_each((pieces, parallel::chunks(&x, PIECE)), |_, (y, x)| {
            for (y, &x) in y.iter_mut().zip(x) {
                *y = larger_element(x, *y);
            }
        });
        Ok(())
    }

    fn maximum_backward<E: Element>(
        &self,
        operands: Checked<MaximumBackwardOperands<'_, Self, E>>,
    ) -> Result<(), Error> {
        let MaximumBackwardOperands { x, y, d, dx } = operands.into_inner();
        let (x, y) = (x.buffer.read(), y.buffer.read());
        let inputs = (parallel::chunks(&x, PIECE), parallel::chunks(&y, PIECE));
        let [d, dx] = [d, dx].map(|of| parallel::chunks_mut(of.buffer.get_mut(), PIECE));
        parallel::for_each(((d, dx), inputs), |_, ((d, dx), (x, y))| {
            for (at, (&x, &y)) in x.iter().zip(y).enumerate() {
                [dx[at], d[at]] = shares(x, y, d[at]);
            }
        });
        Ok(())
    }

    fn group_maximum<E: Element>(
        &self,
        operands: Checked<GroupMaximumOperands<'_, Self, E>>,
    ) -> Result<(), Error> {
        let GroupMaximumOperands { groups, x, y } = operands.into_inner();
        let stride = x.stride().max(1);
        let (x, groups) = (x.buffer.read(), rows(groups));
        let of_groups = parallel::chunks_mut(y.buffer.get_mut(), stride);
        parallel::for_each((of_groups, &*groups), |_, (y, rows)| {
            y.fill(E::from_f32(0.0));
            let mut rows = x[rows.start * stride..rows.end * stride].chunks_exact(stride);
            if let Some(first) = rows.next() {
                y.copy_from_slice(first);
            }
            for row in rows {
                for (y, &x) in y.iter_mut().zip(row) {
                    *y = larger_element(x, *y);
                }
            }
        });
        Ok(())
    }

    fn group_maximum_backward<E: Element>(
        &self,
        operands: Checked<GroupMaximumBackwardOperands<'_, Self, E>>,
    ) -> Result<(), Error> {
        let GroupMaximumBackwardOperands {
            groups,
            x,
            y,
            dy,
            dx,
        } = operands.into_inner();
        let stride = x.stride().max(1);
        let (x, y, dy) = (x.buffer.read(), y.buffer.read(), dy.buffer.read());
        // Groups are the rows from the first to the last, in their order.
        let mut left = dx.buffer.get_mut();
        let mut pieces = Vec::new();
        for (group, rows) in rows(groups).into_iter().enumerate() {
            let (dx, rest) = std::mem::take(&mut left).split_at_mut(rows.len() * stride);
            left = rest;
            pieces.push((group, rows, dx));
        }
        parallel::for_each(pieces.as_mut_slice(), |_, (group, rows, dx)| {
            let of_group = *group * stride..(*group + 1) * stride;
            let (largest, mut d) = (&y[of_group.clone()], dy[of_group].to_vec());
            let inputs = x[rows.start * stride..rows.end * stride].chunks_exact(stride);
            for (dx, x) in dx.chunks_exact_mut(stride).zip(inputs) {
                for (column, dx) in dx.iter_mut().enumerate() {
                    [*dx, d[column]] = shares(x[column], largest[column], d[column]);
                }
            }
        });
        Ok(())
    }
}
