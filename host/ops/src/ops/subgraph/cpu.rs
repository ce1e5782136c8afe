//! Walks, and the edges between vertices.

use super::{
    EdgeNormOperands, EdgeNorms, FrontierWalkOperands, MarkDrawOperands, RandomWalkOperands,
    STREAM, SizeDrawsOperands, SubgraphOperators, TakeEdgesOperands, TallyDrawsOperands,
    WithinOperands,
};
use crate::backend::cpu::Cpu;
use crate::error::Error;
use crate::ops::Checked;
use crate::tensor::Element;
use halfgnn_contract::rng::{key, philox};
use halfgnn_contract::sampling::choice;
use halfgnn_contract::subgraph::{edge_norm, frontier_counter, walk_counter, wide_choice};
use halfgnn_graph::parallel;
use std::ops::Range;

/// The first edge of a row and how many there are, none of what is no row.
fn row(offsets: &[u64], vertex: u32) -> (usize, u32) {
    match offsets
        .get(vertex as usize..)
        .and_then(|ends| ends.get(..2))
    {
        Some(ends) => (ends[0] as usize, (ends[1] - ends[0]) as u32),
        None => (0, 0),
    }
}

/// Whether a vertex is known, by the bits of those that are.
fn is_known(known: &[u32], vertex: u32) -> bool {
    known[vertex as usize / 32] >> (vertex % 32) & 1 != 0
}

/// Edges that a thread takes at a time.
const EDGES: usize = 1 << 14;

/// Each of some edges of a graph with its row, in order.
fn with_rows(offsets: &[u64], edges: Range<usize>) -> impl Iterator<Item = (usize, usize)> + '_ {
    let mut row = offsets.partition_point(|&offset| offset <= edges.start as u64) - 1;
    edges.map(move |edge| {
        while offsets[row + 1] <= edge as u64 {
            row += 1;
        }
        (row, edge)
    })
}

/// Gives `take` what `norms` have for some edges, in order.
fn each_norm(norms: &EdgeNorms<'_, Cpu>, edges: Range<usize>, mut take: impl FnMut(f32)) {
    let offsets = norms.graph.row_offsets().buffer.read();
    let columns = norms.graph.column_ids.buffer.read();
    let (of_vertices, of_edges) = (
        norms.vertex_counts.buffer.read(),
        norms.edge_counts.buffer.read(),
    );
    let weights = norms.weights.map(|weights| weights.buffer.read());
    let sides = norms
        .sides
        .map(|sides| sides.map(|factors| factors.buffer.read()));
    for (row, edge) in with_rows(&offsets, edges) {
        let weight = weights
            .as_ref()
            .map_or(1.0, |weights| f64::from(weights[edge]));
        let factor = match &sides {
            Some([rows, of_columns]) => rows[row] * weight * of_columns[columns[edge] as usize],
            None => weight,
        };
        take(factor as f32 * edge_norm(of_vertices[row], of_edges[edge]));
    }
}

impl SubgraphOperators for Cpu {
    fn random_walks(&self, operands: Checked<RandomWalkOperands<'_, Self>>) -> Result<(), Error> {
        let of = operands.into_inner();
        let offsets = of.graph.row_offsets().buffer.read();
        let columns = of.graph.column_ids.buffer.read();
        let roots = of.roots.map(|roots| roots.buffer.read());
        let (key, step, length) = (key(of.draw.seed, STREAM), of.draw.step, of.length);
        let walks = of.vertices.buffer.get_mut();
        let walks = parallel::chunks_mut(walks, length as usize + 1);
        parallel::for_each(walks, |walk, vertices| {
            let draw = |edges| philox(key, walk_counter(step, walk as u32, edges));
            let numbers = draw(0);
            let mut vertex = match &roots {
                Some(roots) => roots[choice(numbers[0], roots.len() as u32) as usize],
                None => {
                    let edge = wide_choice([numbers[0], numbers[1]], columns.len() as u64);
                    columns[edge as usize]
                }
            };
            vertices[0] = vertex;
            for (edges, place) in (1..=length).zip(&mut vertices[1..]) {
                let (begin, degree) = row(&offsets, vertex);
                if degree > 0 {
                    vertex = columns[begin + choice(draw(edges)[0], degree) as usize];
                }
                *place = vertex;
            }
        });
        Ok(())
    }

    fn frontier_walk(
        &self,
        operands: Checked<FrontierWalkOperands<'_, Self>>,
    ) -> Result<(), Error> {
        /// Vertices of a part of the frontier, whose degrees are added up.
        const PART: usize = 64;
        let of = operands.into_inner();
        let offsets = of.graph.row_offsets().buffer.read();
        let columns = of.graph.column_ids.buffer.read();
        let roots = of.roots.buffer.read();
        let key = key(of.draw.seed, STREAM);
        let draw = |index| philox(key, frontier_counter(of.draw.step, index));
        let degree = |vertex| u64::from(row(&offsets, vertex).1);
        let (first, rest) = of
            .vertices
            .buffer
            .get_mut()
            .split_at_mut(of.frontier as usize);
        for (vertex, index) in first.iter_mut().zip(0..) {
            *vertex = roots[choice(draw(index)[0], roots.len() as u32) as usize];
        }
        let mut frontier = first.to_vec();
        let sum = |part: &[u32]| part.iter().map(|&vertex| degree(vertex)).sum();
        let mut parts: Vec<u64> = frontier.chunks(PART).map(sum).collect();
        for (vertex, index) in rest.iter_mut().zip(of.frontier..) {
            let numbers = draw(index);
            let total: u64 = parts.iter().sum();
            if total == 0 {
                *vertex = frontier[0];
                continue;
            }
            let mut left = wide_choice([numbers[0], numbers[1]], total);
            let mut falls_into = |sum: u64| {
                let found = left < sum;
                left -= if found { 0 } else { sum };
                found
            };
            let part = parts.iter().position(|&sum| falls_into(sum));
            let part = part.expect("a number below the sum of all");
            let members = frontier[part * PART..].iter().take(PART);
            let at = members.map(|&vertex| degree(vertex)).position(falls_into);
            let member = &mut frontier[part * PART + at.expect("a number below the sum of a part")];
            let (begin, count) = row(&offsets, *member);
            *member = columns[begin + choice(numbers[2], count) as usize];
            parts[part] = parts[part] + degree(*member) - u64::from(count);
            *vertex = *member;
        }
        Ok(())
    }

    fn count_within(&self, operands: Checked<WithinOperands<'_, Self>>) -> Result<(), Error> {
        let of = operands.into_inner();
        let offsets = of.graph.row_offsets().buffer.read();
        let columns = of.graph.column_ids.buffer.read();
        let known = of.places.known.buffer.read();
        let vertices = of.vertices.buffer.read();
        let counts = of.counts.buffer.get_mut();
        parallel::for_each((&mut *counts, &*vertices), |_, (count, &vertex)| {
            let (begin, degree) = row(&offsets, vertex);
            let columns = &columns[begin..begin + degree as usize];
            let within = columns.iter().filter(|&&column| is_known(&known, column));
            *count = within.count() as u32;
        });
        counts[vertices.len()] = 0;
        Ok(())
    }

    fn take_within(&self, operands: Checked<TakeEdgesOperands<'_, Self>>) -> Result<(), Error> {
        let of = operands.into_inner();
        let offsets = of.graph.row_offsets().buffer.read();
        let columns = of.graph.column_ids.buffer.read();
        let (known, places) = (
            of.places.known.buffer.read(),
            of.places.places.buffer.read(),
        );
        let (vertices, firsts) = (of.vertices.buffer.read(), of.firsts.buffer.read());
        let (rows, neighbors) = (of.rows.buffer.get_mut(), of.neighbors.buffer.get_mut());
        let edges = of.edges.buffer.get_mut();
        for (place, &vertex) in vertices.iter().enumerate() {
            let (first, end) = (firsts[place] as usize, firsts[place + 1] as usize);
            if end > rows.len() {
                continue;
            }
            let (begin, degree) = row(&offsets, vertex);
            let within =
                (begin..begin + degree as usize).filter(|&edge| is_known(&known, columns[edge]));
            for (to, edge) in (first..end).zip(within) {
                rows[to] = place as u32;
                neighbors[to] = places[columns[edge] as usize];
                edges[to] = edge as u32;
            }
        }
        Ok(())
    }

    fn mark_draw(&self, operands: Checked<MarkDrawOperands<'_, Self>>) -> Result<(), Error> {
        let of = operands.into_inner();
        let members = of.members.buffer.get_mut();
        for &vertex in of.vertices.buffer.read().iter() {
            if let Some(draws) = members.get_mut(vertex as usize) {
                *draws |= 1 << of.draw;
            }
        }
        Ok(())
    }

    fn size_draws(&self, operands: Checked<SizeDrawsOperands<'_, Self>>) -> Result<(), Error> {
        let SizeDrawsOperands { members, sizes } = operands.into_inner();
        let sizes = sizes.buffer.get_mut();
        for &draws in members.buffer.read().iter() {
            let mut left = draws;
            while left != 0 {
                sizes[left.trailing_zeros() as usize] += 1;
                left &= left - 1;
            }
        }
        Ok(())
    }

    fn tally_draws(&self, operands: Checked<TallyDrawsOperands<'_, Self>>) -> Result<(), Error> {
        let of = operands.into_inner();
        let offsets = of.graph.row_offsets().buffer.read();
        let columns = of.graph.column_ids.buffer.read();
        let members = of.members.buffer.read();
        let vertices = (of.vertex_counts.buffer.get_mut(), &*members);
        parallel::for_each(vertices, |_, (count, &draws)| {
            *count += (draws & of.draws).count_ones();
        });
        let edge_counts = of.edge_counts.buffer.get_mut();
        parallel::for_each(parallel::chunks_mut(edge_counts, EDGES), |chunk, counts| {
            let first = chunk * EDGES;
            let edges = with_rows(&offsets, first..first + counts.len());
            for ((row, edge), count) in edges.zip(counts) {
                let common = members[row] & members[columns[edge] as usize] & of.draws;
                *count += common.count_ones();
            }
        });
        Ok(())
    }

    fn edge_norms<E: Element>(
        &self,
        operands: Checked<EdgeNormOperands<'_, Self, E>>,
    ) -> Result<(), Error> {
        let EdgeNormOperands {
            norms,
            scale,
            values,
        } = operands.into_inner();
        let values = parallel::chunks_mut(values.buffer.get_mut(), EDGES);
        parallel::for_each(values, |chunk, values| {
            let (first, count) = (chunk * EDGES, values.len());
            let mut values = values.iter_mut();
            each_norm(&norms, first..first + count, |norm| {
                if let Some(value) = values.next() {
                    *value = E::from_f32(norm / scale);
                }
            });
        });
        Ok(())
    }

    fn largest_edge_norm(&self, norms: Checked<EdgeNorms<'_, Self>>) -> Result<f32, Error> {
        let norms = norms.into_inner();
        let counts = norms.edge_counts.buffer.read();
        let of_chunks = parallel::map(parallel::chunks(&counts, EDGES), |chunk, counts| {
            let (first, mut most) = (chunk * EDGES, 0.0_f32);
            each_norm(&norms, first..first + counts.len(), |norm| {
                most = most.max(norm.abs());
            });
            most
        });
        Ok(of_chunks.into_iter().fold(0.0, f32::max))
    }
}
