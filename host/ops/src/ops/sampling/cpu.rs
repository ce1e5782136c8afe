//! What is drawn at random, and the places of what was drawn.

use super::{
    FirstEdgesOperands, MarkVerticesOperands, NEIGHBORS, NeighborPolicy, PlaceMarkedOperands,
    PlaceVerticesOperands, Places, RelabelOperands, STREAM, SampleNeighborsOperands,
    SamplePairsOperands, SamplingOperators, TakeCodesOperands, TakeRowsOperands,
};
use crate::backend::cpu::Cpu;
use crate::backend::cpu::view::{view, view_mut};
use crate::error::Error;
use crate::ops::Checked;
use crate::tensor::{Element, padded};
use halfgnn_contract::rng::{key, philox};
use halfgnn_contract::sampling::{
    ATTEMPTS, NO_VERTEX, choice, neighbor_counter, pair, pair_counter, sampled,
};
use halfgnn_graph::parallel;

impl SamplingOperators for Cpu {
    fn sample_pairs(&self, operands: Checked<SamplePairsOperands<'_, Self>>) -> Result<(), Error> {
        let of = operands.into_inner();
        let graph = of.edges.map(|edges| {
            (
                edges.row_offsets().buffer.read(),
                edges.column_ids.buffer.read(),
            )
        });
        let graph = graph
            .as_ref()
            .map(|(offsets, columns)| (&offsets[..], &columns[..]));
        let is_edge = |[row, column]: [u32; 2]| {
            graph.is_some_and(|(offsets, columns)| {
                let [begin, end] = [0, 1].map(|next| offsets[row as usize + next] as usize);
                columns[begin..end].binary_search(&column).is_ok()
            })
        };
        let (key, step, vertices) = (key(of.seed, STREAM), of.step, of.vertices as u32);
        let drawn = |at, attempt| pair(philox(key, pair_counter(step, attempt, at)), vertices);
        let pairs = (of.firsts.buffer.get_mut(), of.seconds.buffer.get_mut());
        parallel::for_each(pairs, |at, (first, second)| {
            let mut pairs = (0..ATTEMPTS).map(|attempt| drawn(at as u64, attempt));
            let accepted = pairs.find(|&pair| !is_edge(pair));
            [*first, *second] = accepted.unwrap_or_else(|| drawn(at as u64, ATTEMPTS - 1));
        });
        Ok(())
    }

    fn first_edges(&self, operands: Checked<FirstEdgesOperands<'_, Self>>) -> Result<(), Error> {
        let of = operands.into_inner();
        let offsets = of.graph.row_offsets().buffer.read();
        let vertices = of.vertices.buffer.read();
        let mut sum = 0_u32;
        let counts = vertices.iter().map(|&vertex| {
            degree(&offsets, vertex).map_or(0, |(_, degree)| of_row(degree, of.policy))
        });
        let firsts = of.firsts.buffer.get_mut();
        for (first, count) in firsts.iter_mut().zip(counts.chain([0])) {
            *first = sum;
            sum = sum.wrapping_add(count);
        }
        Ok(())
    }

    fn sample_neighbors(
        &self,
        operands: Checked<SampleNeighborsOperands<'_, Self>>,
    ) -> Result<(), Error> {
        /// Vertices that a thread draws for at a time.
        const PART: usize = 512;
        let of = operands.into_inner();
        let offsets = of.graph.row_offsets().buffer.read();
        let columns = of.graph.column_ids.buffer.read();
        let (policy, draw) = (of.policy, of.draw);
        let key = key(draw.seed, NEIGHBORS);
        let steps = of.steps.map_or(0, |steps| steps.buffer.read()[0]);
        let step = draw.step.wrapping_add(steps);
        let vertices = of.vertices.buffer.read();
        let parts = parallel::map(parallel::chunks(&vertices, PART), |_, part| {
            let mut drawn = Vec::new();
            for &vertex in part {
                let Some((begin, degree)) = degree(&offsets, vertex) else {
                    continue;
                };
                drawn.extend(policy.self_loops.then_some(vertex));
                let first = drawn.len();
                places(degree, policy, &mut drawn, |index, choices| {
                    let counter = neighbor_counter(step, draw.layer, vertex, index);
                    choice(philox(key, counter)[0], choices)
                });
                for place in &mut drawn[first..] {
                    *place = columns[begin + *place as usize];
                }
            }
            drawn
        });
        let mut drawn = parts.iter().flatten().copied();
        let firsts = of.firsts.buffer.read();
        let (rows, neighbors) = (of.rows.buffer.get_mut(), of.neighbors.buffer.get_mut());
        let sum = firsts[vertices.len()];
        let padding = (sum as usize).min(rows.len())..;
        rows[padding.clone()].fill(NO_VERTEX);
        neighbors[padding].fill(NO_VERTEX);
        if let Some(total) = of.total {
            total.words.buffer.get_mut()[total.at] = sum;
        }
        if let Some(offsets) = of.row_offsets {
            let room = rows.len() as u64;
            let offsets = offsets.buffer.get_mut().iter_mut().zip(&*firsts);
            offsets.for_each(|(offset, &first)| *offset = u64::from(first).min(room));
        }
        let mut marks = of.marks.map(|places| {
            let Places { known, marks, .. } = places;
            (known.buffer.read(), marks.buffer.get_mut())
        });
        for (row, (&vertex, &first)) in vertices.iter().zip(&*firsts).enumerate() {
            let count = degree(&offsets, vertex).map_or(0, |(_, degree)| of_row(degree, policy));
            let edges = first as usize..first as usize + count as usize;
            let drawn = drawn.by_ref().take(count as usize);
            if let Some(neighbors) = neighbors.get_mut(edges.clone()) {
                neighbors
                    .iter_mut()
                    .zip(drawn)
                    .for_each(|(to, from)| *to = from);
                rows[edges].fill(row as u32);
                if let Some((known, marks)) = &mut marks {
                    (neighbors.iter()).for_each(|&vertex| mark(known, marks, vertex));
                }
            } else {
                drawn.for_each(drop);
            }
        }
        Ok(())
    }

    fn place_vertices(
        &self,
        operands: Checked<PlaceVerticesOperands<'_, Self>>,
    ) -> Result<(), Error> {
        let PlaceVerticesOperands { places, vertices } = operands.into_inner();
        let known = places.known.buffer.get_mut();
        let places = places.places.buffer.get_mut();
        for (&vertex, at) in vertices.buffer.read().iter().zip(0..) {
            if let Some(place) = places.get_mut(vertex as usize) {
                *place = at;
                known[vertex as usize / 32] |= 1 << (vertex % 32);
            }
        }
        Ok(())
    }

    fn mark_vertices(
        &self,
        operands: Checked<MarkVerticesOperands<'_, Self>>,
    ) -> Result<(), Error> {
        let MarkVerticesOperands { places, vertices } = operands.into_inner();
        let count = places.vertices();
        let known = places.known.buffer.read();
        let marks = places.marks.buffer.get_mut();
        for &vertex in vertices.buffer.read().iter() {
            if (vertex as usize) < count {
                mark(&known, marks, vertex);
            }
        }
        Ok(())
    }

    fn rank_marked(&self, places: &mut Places<Self>) -> Result<(), Error> {
        let mut before = 0;
        for [marked, rank] in places.marks.buffer.get_mut() {
            *rank = before;
            before += marked.count_ones();
        }
        Ok(())
    }

    fn place_marked(&self, operands: Checked<PlaceMarkedOperands<'_, Self>>) -> Result<(), Error> {
        let of = operands.into_inner();
        let destinations = of.destinations.buffer.read();
        let sources = of.sources.buffer.get_mut();
        sources[..destinations.len()].copy_from_slice(&destinations);
        let state = of.places;
        let (known, places) = (state.known.buffer.get_mut(), state.places.buffer.get_mut());
        let marks = state.marks.buffer.get_mut();
        let mut place = destinations.len();
        for (word, (known, [marked, _])) in known.iter_mut().zip(marks).enumerate() {
            *known |= *marked;
            let mut bits = std::mem::take(marked);
            while bits != 0 {
                let vertex = word as u32 * 32 + bits.trailing_zeros();
                if let Some(source) = sources.get_mut(place) {
                    *source = vertex;
                    places[vertex as usize] = place as u32;
                }
                bits &= bits - 1;
                place += 1;
            }
        }
        let padding = place.min(sources.len())..;
        sources[padding].fill(NO_VERTEX);
        if let Some(total) = of.total {
            total.words.buffer.get_mut()[total.at] = (place - destinations.len()) as u32;
        }
        Ok(())
    }

    fn relabel(&self, operands: Checked<RelabelOperands<'_, Self>>) -> Result<(), Error> {
        // Nothing is counted: grouping does it by itself here.
        let RelabelOperands {
            places, vertices, ..
        } = operands.into_inner();
        let places = places.places.buffer.read();
        parallel::for_each(vertices.buffer.get_mut(), |_, vertex| {
            *vertex = places.get(*vertex as usize).copied().unwrap_or(*vertex);
        });
        Ok(())
    }

    fn take_rows<E: Element>(
        &self,
        operands: Checked<TakeRowsOperands<'_, Self, E>>,
    ) -> Result<(), Error> {
        let TakeRowsOperands {
            rows,
            cache,
            order,
            taken,
        } = operands.into_inner();
        let values = rows.buffer.read();
        let cached = cache.map(|it| (it.marks.buffer.read(), &it.copies, it.copies.buffer.read()));
        let (from, order) = (view(rows, &values), order.buffer.read());
        let width = padded::<E>(from.columns);
        let to = view_mut(taken);
        let cached = cached
            .as_ref()
            .map(|(marks, copies, values)| (marks, view(copies, values)));
        let row_of = |row: u32| {
            if row as usize >= from.rows {
                return None;
            }
            if let Some((marks, copies)) = &cached {
                let ([word, before], bit) = (marks[row as usize / 32], 1_u32 << (row % 32));
                if word & bit != 0 {
                    let place = before + (word & (bit - 1)).count_ones();
                    return Some(copies.row(place as usize, width));
                }
            }
            Some(from.row(row as usize, width))
        };
        let rows = (parallel::chunks_mut(to.values, width), &*order);
        parallel::for_each(rows, |_, (to, &row)| match row_of(row) {
            Some(from) => to.copy_from_slice(from),
            None => to.fill(E::zeroed()),
        });
        Ok(())
    }

    fn take_codes(&self, operands: Checked<TakeCodesOperands<'_, Self>>) -> Result<(), Error> {
        let TakeCodesOperands {
            codes,
            order,
            taken,
        } = operands.into_inner();
        let (words, order) = (codes.codes.buffer.read(), order.buffer.read());
        let width = codes.stride() / size_of::<u32>();
        let rows = words[..codes.rows() * width].chunks_exact(width.max(1));
        let rows: Vec<&[u32]> = rows.collect();
        let taken = taken.buffer.get_mut().chunks_exact_mut(width.max(1));
        for (to, &row) in taken.zip(order.iter()) {
            match rows.get(row as usize) {
                Some(from) => to.copy_from_slice(from),
                None => to.fill(0),
            }
        }
        Ok(())
    }
}

/// Marks a vertex that is not known.
fn mark(known: &[u32], marks: &mut [[u32; 2]], vertex: u32) {
    let (word, bit) = (vertex as usize / 32, 1 << (vertex % 32));
    if known[word] & bit == 0 {
        marks[word][0] |= bit;
    }
}

/// The first edge of a row and how many there are, if it is one.
fn degree(offsets: &[u64], row: u32) -> Option<(usize, u32)> {
    let ends = offsets.get(row as usize..)?.get(..2)?;
    Some((ends[0] as usize, (ends[1] - ends[0]) as u32))
}

/// Edges that a row of so many neighbours gets.
fn of_row(degree: u32, policy: NeighborPolicy) -> u32 {
    sampled(degree, policy.fanout.word(), policy.replace) + u32::from(policy.self_loops)
}

/// Adds places in a row of so many neighbours by the numbers that `draw` gives of an index and of how many to choose from.
fn places(
    degree: u32,
    policy: NeighborPolicy,
    places: &mut Vec<u32>,
    draw: impl Fn(u32, u32) -> u32,
) {
    let (first, count) = (
        places.len(),
        sampled(degree, policy.fanout.word(), policy.replace),
    );
    if policy.replace && policy.fanout.word() == count {
        places.extend((0..count).map(|index| draw(index, degree)));
    } else if count == degree {
        places.extend(0..degree);
    } else {
        for index in 0..count {
            let itself = degree - count + index;
            let drawn = draw(index, itself + 1);
            let taken = places[first..].contains(&drawn);
            places.push(if taken { itself } else { drawn });
        }
    }
}
