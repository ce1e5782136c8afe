//! A round of label propagation as it is defined: the votes for each neighbour's label.

use super::{CommunityOperators, PropagateOperands};
use crate::backend::cpu::Cpu;
use crate::error::Error;
use crate::ops::Checked;
use halfgnn_contract::communities::{NEIGHBORS, chance, first_place, listens, rank, wins};
use halfgnn_graph::parallel;
use std::sync::atomic::{AtomicU64, Ordering};

impl CommunityOperators for Cpu {
    fn propagate_labels(
        &self,
        operands: Checked<PropagateOperands<'_, Self>>,
    ) -> Result<u64, Error> {
        let of = operands.into_inner();
        let (offsets, columns) = (
            of.neighbors.offsets.buffer.read(),
            of.neighbors.columns.buffer.read(),
        );
        let labels = of.labels.buffer.read();
        let moved = AtomicU64::new(0);
        let next = of.next.buffer.get_mut();
        // Some thousand vertices at once, so that threads seldom meet where they count.
        parallel::pieces(next, 1 << 12, &|first, next| {
            let mut moved_here = 0;
            for (vertex, next) in (first..).zip(next) {
                let own = labels[vertex];
                let chance = chance(vertex as u32, of.round);
                *next = if listens(chance, of.round) {
                    let end = (offsets[vertex + 1] as usize).min(columns.len());
                    let begin = (offsets[vertex] as usize).min(end);
                    most_common(&columns[begin..end], &labels, own, chance)
                } else {
                    own
                };
                moved_here += u64::from(*next != own);
            }
            moved.fetch_add(moved_here, Ordering::Relaxed);
        });
        Ok(moved.into_inner())
    }
}

/// The label that most of the neighbours have of those that this round looks at.
fn most_common(neighbors: &[u32], labels: &[u32], own: u32, chance: u32) -> u32 {
    let degree = neighbors.len();
    let first = first_place(chance, degree as u32) as usize;
    let mut heard = [0; NEIGHBORS as usize];
    let mut count = 0;
    for at in 0..degree.min(heard.len()) {
        let place = first + at;
        let place = if place < degree {
            place
        } else {
            place - degree
        };
        if let Some(&label) = labels.get(neighbors[place] as usize) {
            heard[count] = label;
            count += 1;
        }
    }
    let heard = &mut heard[..count];
    heard.sort_unstable();
    let mut best = (rank(0, true), own);
    for alike in heard.chunk_by(|a, b| a == b) {
        let label = alike[0];
        let this = (rank(alike.len() as u32, label == own), label);
        if wins(this, best) {
            best = this;
        }
    }
    best.1
}
