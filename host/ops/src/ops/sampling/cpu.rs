//! What is sampled at random, and the places of what was sampled.

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
        let (offsets, vertices) = (
            of.graph.row_offsets().buffer.read(),
            of.vertices.buffer.read(),
        );
        let (offsets, vertices) = (&offsets[..], &vertices[..]);
        let mut sum = 0_u32;
        let counts = parallel::map(vertices, |_, &vertex| {
            degree(offsets, vertex).map_or(0, |(_, degree)| of_row(degree, of.policy))
        });
        let firsts = of.firsts.buffer.get_mut();
        for (first, count) in firsts.iter_mut().zip(counts.into_iter().chain([0])) {
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
        /// What is sampled for them, from number `first` on.
        struct Part<'a> {
            first: usize,
            vertices: &'a [u32],
            firsts: &'a [u32],
            rows: &'a mut [u32],
            neighbors: &'a mut [u32],
        }
        let of = operands.into_inner();
        let offsets = of.graph.row_offsets().buffer.read();
        let (columns, firsts) = (of.graph.column_ids.buffer.read(), of.firsts.buffer.read());
        let vertices = of.vertices.buffer.read();
        let (firsts, vertices) = (&firsts[..], &vertices[..]);
        let steps = of.steps.map_or(0, |steps| steps.buffer.read()[0]);
        let lists = Lists {
            offsets: &offsets,
            columns: &columns,
            policy: of.policy,
            key: key(of.draw.seed, NEIGHBORS),
            step: of.draw.step.wrapping_add(steps),
            layer: of.draw.layer,
        };
        let (rows, neighbors) = (of.rows.buffer.get_mut(), of.neighbors.buffer.get_mut());
        let (room, sum) = (rows.len(), firsts[vertices.len()]);
        let padding = (sum as usize).min(room)..;
        rows[padding.clone()].fill(NO_VERTEX);
        neighbors[padding].fill(NO_VERTEX);
        if let Some(total) = of.total {
            total.words.buffer.get_mut()[total.at] = sum;
        }
        if let Some(offsets) = of.row_offsets {
            let offsets = offsets.buffer.get_mut().iter_mut().zip(firsts);
            offsets.for_each(|(offset, &first)| *offset = u64::from(first).min(room as u64));
        }
        // The first rows that have memory, one behind the other: those of sums all up to the first that has none.
        let fits = |(ends, vertex): &(&[u32], &u32)| {
            ends[1] as usize <= room && ends[0].checked_add(lists.count(**vertex)) == Some(ends[1])
        };
        let fitting = firsts.windows(2).zip(vertices).take_while(fits).count();
        let mut parts = Vec::with_capacity(fitting.div_ceil(PART));
        let begin = firsts[0] as usize;
        let mut left =
            [&mut *rows, &mut *neighbors].map(|of| of.get_mut(begin..).unwrap_or_default());
        for (number, vertices) in vertices[..fitting].chunks(PART).enumerate() {
            let first = number * PART;
            let firsts = &firsts[first..=first + vertices.len()];
            let edges = (firsts[vertices.len()] - firsts[0]) as usize;
            let [rows, neighbors] = left
                .each_mut()
                .map(|left| left.split_off_mut(..edges).unwrap_or_default());
            parts.push(Part {
                first,
                vertices,
                firsts,
                rows,
                neighbors,
            });
        }
        parallel::for_each(&mut parts[..], |_, part| {
            let mut drawn = Vec::new();
            let start = part.firsts[0];
            for (row, &vertex) in part.vertices.iter().enumerate() {
                lists.draw(vertex, &mut drawn);
                let own = [0, 1].map(|next| (part.firsts[row + next] - start) as usize);
                part.rows[own[0]..own[1]].fill((part.first + row) as u32);
                part.neighbors[own[0]..own[1]].copy_from_slice(&drawn);
            }
        });
        let mut marks = of.marks;
        if let Some(places) = &mut marks {
            let written = begin..firsts[fitting] as usize;
            mark(places, neighbors.get(written).unwrap_or_default());
        }
        // Of a vertex whose edges do not fit nothing is written.
        let mut drawn = Vec::new();
        for (row, &vertex) in vertices.iter().enumerate().skip(fitting) {
            let first = firsts[row] as usize;
            let own = first..first + lists.count(vertex) as usize;
            if let Some(neighbors) = neighbors.get_mut(own.clone()) {
                lists.draw(vertex, &mut drawn);
                neighbors.copy_from_slice(&drawn);
                rows[own].fill(row as u32);
                if let Some(places) = &mut marks {
                    mark(places, neighbors);
                }
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
        mark(places, &vertices.buffer.read());
        Ok(())
    }

    fn rank_marked(&self, places: &mut Places<Self>) -> Result<(), Error> {
        let marks = places.marks.buffer.get_mut();
        let before = before_each(marks);
        let chunks = (parallel::chunks_mut(marks, WORDS), &before[..]);
        parallel::for_each(chunks, |_, (marks, &before)| {
            let mut before = before;
            for [marked, rank] in marks {
                *rank = before;
                before += marked.count_ones();
            }
        });
        Ok(())
    }

    fn place_marked(&self, operands: Checked<PlaceMarkedOperands<'_, Self>>) -> Result<(), Error> {
        /// Some words, the vertices whose bits they have, and the sources that those become which are marked.
        struct Part<'a> {
            first: u32,
            known: &'a mut [u32],
            marks: &'a mut [[u32; 2]],
            places: &'a mut [u32],
            place: usize,
            sources: &'a mut [u32],
        }
        let of = operands.into_inner();
        let destinations = of.destinations.buffer.read();
        let (count, sources) = (destinations.len(), of.sources.buffer.get_mut());
        let (own, sources) = sources.split_at_mut(count);
        own.copy_from_slice(&destinations);
        let state = of.places;
        let (known, places) = (state.known.buffer.get_mut(), state.places.buffer.get_mut());
        let marks = state.marks.buffer.get_mut();
        let before = before_each(marks);
        let met = before.last().map_or(0, |&before| before as usize);
        let padding = met.min(sources.len())..;
        sources[padding].fill(NO_VERTEX);
        let mut parts = Vec::with_capacity(before.len());
        let mut left = &mut *sources;
        let mut places = places.chunks_mut(32 * WORDS);
        let words = known.chunks_mut(WORDS).zip(marks.chunks_mut(WORDS));
        for (number, (known, marks)) in words.enumerate() {
            let [place, end] = [0, 1].map(|next| before[number + next] as usize);
            let own = (end - place).min(left.len());
            let sources = left.split_off_mut(..own).unwrap_or_default();
            parts.push(Part {
                first: (number * WORDS) as u32,
                known,
                marks,
                places: places.next().unwrap_or_default(),
                place: count + place,
                sources,
            });
        }
        parallel::for_each(&mut parts[..], |_, part| {
            let mut places = part.place as u32..;
            let mut sources = part.sources.iter_mut();
            for (word, (known, [marked, _])) in
                part.known.iter_mut().zip(&mut *part.marks).enumerate()
            {
                *known |= *marked;
                let mut bits = std::mem::take(marked);
                while bits != 0 {
                    let vertex = word as u32 * 32 + bits.trailing_zeros();
                    if let (Some(source), Some(place)) = (sources.next(), places.next()) {
                        *source = part.first * 32 + vertex;
                        part.places[vertex as usize] = place;
                    }
                    bits &= bits - 1;
                }
            }
        });
        if let Some(total) = of.total {
            total.words.buffer.get_mut()[total.at] = met as u32;
        }
        Ok(())
    }

    fn relabel(&self, operands: Checked<RelabelOperands<'_, Self>>) -> Result<(), Error> {
        // Nothing is counted: grouping does it by itself here.
        let RelabelOperands {
            places, vertices, ..
        } = operands.into_inner();
        let places = places.places.buffer.read();
        let places = &places[..];
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

/// Words of marks that a thread has at a time.
const WORDS: usize = 1 << 12;

/// How many are marked before each chunk of [`WORDS`] words, and in all.
fn before_each(marks: &[[u32; 2]]) -> Vec<u32> {
    let counts = parallel::map(parallel::chunks(marks, WORDS), |_, marks| {
        marks
            .iter()
            .map(|[marked, _]| marked.count_ones())
            .sum::<u32>()
    });
    let mut before = vec![0];
    for count in counts {
        before.push(before[before.len() - 1] + count);
    }
    before
}

/// Marks the vertices that are not known; numbers that are no vertices are passed over.
fn mark(places: &mut Places<Cpu>, vertices: &[u32]) {
    /// Where a thread goes through all of them for its share of the words.
    const MANY: usize = 1 << 13;
    let count = places.vertices();
    let known = places.known.buffer.read();
    let (known, marks) = (&known[..], places.marks.buffer.get_mut());
    let threads = match vertices.len() < MANY {
        true => 1,
        false => rayon::current_num_threads(),
    };
    let share = marks.len().div_ceil(threads).max(1);
    parallel::for_each(parallel::chunks_mut(marks, share), |number, marks| {
        let first = number * share;
        for &vertex in vertices {
            let (word, bit) = (vertex as usize / 32, 1 << (vertex % 32));
            if let Some([marked, _]) = marks.get_mut(word.wrapping_sub(first))
                && (vertex as usize) < count
                && known[word] & bit == 0
            {
                *marked |= bit;
            }
        }
    });
}

/// The lists of a graph, and how neighbours are sampled of them.
struct Lists<'a> {
    offsets: &'a [u64],
    columns: &'a [u32],
    policy: NeighborPolicy,
    key: [u32; 2],
    step: u32,
    layer: u32,
}

impl Lists<'_> {
    /// Edges that a vertex gets.
    fn count(&self, vertex: u32) -> u32 {
        degree(self.offsets, vertex).map_or(0, |(_, degree)| of_row(degree, self.policy))
    }

    /// Has `drawn` be the neighbours that it gets.
    fn draw(&self, vertex: u32, drawn: &mut Vec<u32>) {
        drawn.clear();
        let Some((begin, degree)) = degree(self.offsets, vertex) else {
            return;
        };
        drawn.extend(self.policy.self_loops.then_some(vertex));
        let first = drawn.len();
        places(degree, self.policy, drawn, |index, choices| {
            let counter = neighbor_counter(self.step, self.layer, vertex, index);
            choice(philox(self.key, counter)[0], choices)
        });
        for place in &mut drawn[first..] {
            *place = self.columns[begin + *place as usize];
        }
    }
}

/// The first edge of a row and how many there are, if it is one.
fn degree(offsets: &[u64], row: u32) -> Option<(usize, u32)> {
    let ends = offsets.get(row as usize..)?.get(..2)?;
    Some((ends[0] as usize, (ends[1] - ends[0]) as u32))
}

/// Edges that a row of a number of neighbours gets.
fn of_row(degree: u32, policy: NeighborPolicy) -> u32 {
    sampled(degree, policy.fanout.word(), policy.replace) + u32::from(policy.self_loops)
}

/// Adds places in a row of a number of neighbours by the numbers that `draw` gives of an index and of how many to
/// choose from.
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
