//! Rows of features that are dealt out to ranks, each of which asks the others for those that a batch of its own wants.

use crate::backend::{Backend, MemoryKind, Rows};
use crate::distributed::Group;
use crate::error::Error;
use crate::ops;
use crate::sample::an_eighth_more;
use crate::tensor::{Array, Element, Matrix};
use halfgnn_contract::sampling::NO_VERTEX;
use std::ops::Range;
use std::sync::{Mutex, PoisonError};

/// What errors call the exchange.
const WHAT: &str = "features";

/// A rank's share of rows: of every `ranks` in a row the one whose place is the rank's. Vertices that many batches hear from often have
/// numbers beside one another, and so no rank has all of those.
#[derive(Debug)]
pub(super) struct ShardedRows<B: Backend, E: Element> {
    group: Group,
    /// Of all ranks.
    vertices: usize,
    own: Matrix<B, E>,
    /// Where the exchange of a batch lies. The next has it again, which may be recorded around it: what is given back beside a recording is not
    /// used again.
    kept: Mutex<Room<B, E>>,
}

impl<B: Backend, E: Element> ShardedRows<B, E> {
    /// This rank's share; `write_row` writes the row of a vertex.
    pub(super) fn new(
        backend: &B,
        group: &Group,
        (vertices, columns): (usize, usize),
        write_row: impl Fn(usize, &mut [f32]) + Sync,
    ) -> Result<Self, Error> {
        let (rank, ranks) = (group.rank(), group.ranks());
        let own = vertices.saturating_sub(rank).div_ceil(ranks);
        Ok(Self {
            group: group.clone(),
            vertices,
            own: Matrix::from_rows(
                backend,
                (own, columns),
                MemoryKind::Features,
                |row, values| write_row(row * ranks + rank, values),
            )?,
            kept: Mutex::new(Room::new(an_eighth_more)),
        })
    }

    /// Vertices of all ranks.
    pub(super) fn vertices(&self) -> usize {
        self.vertices
    }

    /// Has the rows of some vertices in `taken`, in memory that is kept for the next. Every rank calls it at once.
    pub(super) fn take_into(
        &self,
        backend: &B,
        vertices: &Array<B, u32>,
        taken: &mut Matrix<B, E>,
    ) -> Result<(), Error> {
        let mut room = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        self.fetch(backend, vertices, &mut room, taken)
    }

    /// The same in memory that is given back.
    pub(super) fn take_once(
        &self,
        backend: &B,
        vertices: &Array<B, u32>,
        taken: &mut Matrix<B, E>,
    ) -> Result<(), Error> {
        self.fetch(backend, vertices, &mut Room::new(|count| count), taken)
    }

    fn fetch(
        &self,
        backend: &B,
        vertices: &Array<B, u32>,
        room: &mut Room<B, E>,
        taken: &mut Matrix<B, E>,
    ) -> Result<(), Error> {
        let (group, columns) = (&self.group, self.own.columns());
        let counts_alone = backend.only_counts();
        let listed = match counts_alone {
            // As evenly as vertices are dealt out.
            true => (0..vertices.len() as u32).collect(),
            false => vertices.to_vec(backend)?,
        };
        let wanted = Wanted::new(&listed, self.vertices, (group.rank(), group.ranks()));
        // How many rows each wants of this one.
        let asked: Vec<usize> = match counts_alone {
            true => wanted.counts.iter().map(|&count| count as usize).collect(),
            false => {
                let all = group.gather(WHAT, &wanted.counts)?;
                all.iter().map(|of| of[group.rank()] as usize).collect()
            }
        };
        let receives = ranges(wanted.counts.iter().map(|&count| count as usize));
        let sends = ranges(asked.into_iter());
        let given = sends.last().map_or(0, |last| last.end);
        let Room {
            packed,
            arrived,
            places,
            with_spare,
        } = room;
        let arrived = Picked::of(arrived, backend, (wanted.rows.len(), columns), *with_spare)?;
        let packed = Picked::of(packed, backend, (given, columns), *with_spare)?;
        let mut order = wanted.rows;
        order.resize(arrived.order.len(), NO_VERTEX);
        arrived.order.write(backend, &order)?;
        let (from, to) = (&arrived.order, &packed.order);
        let words = |array| Rows::of_words(array, 1);
        group.exchange_rows(backend, WHAT, (words(from), &receives), (words(to), &sends))?;
        packed.take_from(backend, &self.own)?;
        // Among them rows that are others', in whose places theirs come.
        arrived.take_from(backend, &self.own)?;
        let from = (Rows::of_matrix(&packed.rows)?, &sends[..]);
        let to = (Rows::of_matrix(&arrived.rows)?, &receives[..]);
        group.exchange_rows(backend, WHAT, from, to)?;
        if vertices.is_empty() {
            return Ok(());
        }
        let fits = places
            .take()
            .filter(|places| places.len() == vertices.len());
        let mut order = match fits {
            Some(order) => order,
            None => Array::zeros(backend, vertices.len(), MemoryKind::Activations)?,
        };
        order.write(backend, &wanted.places)?;
        ops::take_rows(backend, &arrived.rows, &order, taken)?;
        *places = Some(order);
        Ok(())
    }
}

/// What of a list of vertices is wanted of whom.
#[derive(Debug, PartialEq)]
struct Wanted {
    /// How many each rank is asked for; none the own one.
    counts: Vec<u64>,
    /// The rows that are wanted, by their numbers in the share of who has them: those of the others in the order of ranks, and the own ones behind.
    rows: Vec<u32>,
    /// Where among them each of the list is; [`NO_VERTEX`] of what is none.
    places: Vec<u32>,
}

impl Wanted {
    fn new(listed: &[u32], vertices: usize, (rank, ranks): (usize, usize)) -> Self {
        // 32 bits number vertices, and whoever has one.
        let owner = |vertex: u32| vertex % ranks as u32;
        let is_one = |vertex: u32| (vertex as usize) < vertices;
        let mut counts = vec![0; ranks];
        for &vertex in listed.iter().filter(|&&vertex| is_one(vertex)) {
            counts[owner(vertex) as usize] += 1;
        }
        let own = std::mem::take(&mut counts[rank]);
        let mut next: Vec<usize> = ranges(counts.iter().map(|&count| count as usize))
            .iter()
            .map(|part| part.start)
            .collect();
        let others: u64 = counts.iter().sum();
        next[rank] = others as usize;
        let mut rows = vec![0; (others + own) as usize];
        let places = listed.iter().map(|&vertex| {
            if !is_one(vertex) {
                return NO_VERTEX;
            }
            let place = &mut next[owner(vertex) as usize];
            rows[*place] = vertex / ranks as u32;
            *place += 1;
            (*place - 1) as u32
        });
        let places = places.collect();
        Self {
            counts,
            rows,
            places,
        }
    }
}

/// So many one behind the other, in the order of ranks.
fn ranges(counts: impl Iterator<Item = usize>) -> Vec<Range<usize>> {
    let mut end = 0;
    let next = |count| {
        let start = end;
        end += count;
        start..end
    };
    counts.map(next).collect()
}

/// What an exchange lies in.
#[derive(Debug)]
struct Room<B: Backend, E: Element> {
    /// What others ask for.
    packed: Option<Picked<B, E>>,
    /// What is wanted.
    arrived: Option<Picked<B, E>>,
    /// Where the rows of a batch are among those.
    places: Option<Array<B, u32>>,
    /// What it has for so many rows.
    with_spare: fn(usize) -> usize,
}

impl<B: Backend, E: Element> Room<B, E> {
    fn new(with_spare: fn(usize) -> usize) -> Self {
        Self {
            packed: None,
            arrived: None,
            places: None,
            with_spare,
        }
    }
}

/// Numbers of rows, and the rows.
#[derive(Debug)]
struct Picked<B: Backend, E: Element> {
    order: Array<B, u32>,
    rows: Matrix<B, E>,
}

impl<B: Backend, E: Element> Picked<B, E> {
    /// One that has room for so many rows: `kept`, or another in its place.
    fn of<'a>(
        kept: &'a mut Option<Self>,
        backend: &B,
        (rows, columns): (usize, usize),
        with_spare: fn(usize) -> usize,
    ) -> Result<&'a mut Self, Error> {
        if kept.as_ref().is_none_or(|kept| kept.order.len() < rows) {
            // Given back before more is asked for.
            *kept = None;
        }
        match kept {
            Some(kept) => Ok(kept),
            none => {
                let (rows, kind) = (with_spare(rows), MemoryKind::Activations);
                Ok(none.insert(Self {
                    order: Array::zeros(backend, rows, kind)?,
                    rows: Matrix::uninit(backend, rows, columns, kind)?,
                }))
            }
        }
    }

    /// The rows become those of `share`.
    fn take_from(&mut self, backend: &B, share: &Matrix<B, E>) -> Result<(), Error> {
        match self.order.is_empty() {
            true => Ok(()),
            false => ops::take_rows(backend, share, &self.order, &mut self.rows),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::cpu::Cpu;
    use crate::data::FeatureRows;
    use crate::distributed::in_process;
    use std::time::Duration;

    #[test]
    fn rows_are_wanted_of_their_owners() {
        let listed = [7, NO_VERTEX, 2, 4, 0, 9, 5];
        let wanted = Wanted::new(&listed, 9, (1, 3));
        // 0 and, of rank 2, 2 and 5; then the own 7 and 4. There is no vertex 9.
        let expected = Wanted {
            counts: vec![1, 0, 2],
            rows: vec![0, 0, 1, 2, 1],
            places: vec![3, NO_VERTEX, 1, 4, 0, NO_VERTEX, 2],
        };
        assert_eq!(wanted, expected);
        let nothing = Wanted::new(&[], 9, (0, 2));
        assert_eq!(nothing.counts, [0, 0]);
        assert!(nothing.rows.is_empty() && nothing.places.is_empty());
    }

    /// Ranks that want other rows each, some of them none at all, have them, whatever was asked for before.
    #[test]
    fn ranks_have_the_rows_that_they_want() {
        const COLUMNS: usize = 9;
        let lists: [[&[u32]; 3]; 3] = [
            [&[3, NO_VERTEX, 1, 6], &[], &[6]],
            [&[], &[], &[]],
            [&[0, 1, 2, 3, 4, 5, 6], &[6, 5, 4, 3], &[NO_VERTEX]],
        ];
        for ranks in 1..=3 {
            std::thread::scope(|scope| {
                let group = in_process(ranks, "test", Duration::from_secs(60), &[]);
                for (rank, communicator) in group.into_iter().enumerate() {
                    scope.spawn(move || {
                        let (backend, group) = (&Cpu::new(), &Group::new(communicator));
                        let write = |vertex: usize, row: &mut [f32]| {
                            let values = row.iter_mut().enumerate();
                            values.for_each(|(column, to)| {
                                *to = (vertex * COLUMNS + column) as f32 + 1.0;
                            });
                        };
                        let rows =
                            FeatureRows::<_, f32>::sharded(backend, group, (7, COLUMNS), write);
                        let rows = rows.expect("room");
                        assert_eq!((rows.rows(), rows.columns()), (7, COLUMNS));
                        assert_eq!(rows.are_whole(), ranks == 1);
                        for wanted in lists.map(|of_rank| of_rank[rank]) {
                            let kind = MemoryKind::Features;
                            let list = Array::from_slice(backend, wanted, kind).expect("room");
                            let taken = rows.take(backend, &list, kind).expect("the rows");
                            let mut again = Matrix::from_f32(
                                backend,
                                wanted.len(),
                                COLUMNS,
                                &vec![7.0; wanted.len() * COLUMNS],
                                kind,
                            )
                            .expect("room");
                            rows.take_into(backend, &list, &mut again)
                                .expect("the rows");
                            let mut expected = vec![0.0; wanted.len() * COLUMNS];
                            let places = wanted.iter().zip(expected.chunks_exact_mut(COLUMNS));
                            let places = places.filter(|&(&vertex, _)| vertex != NO_VERTEX);
                            places.for_each(|(&vertex, row)| write(vertex as usize, row));
                            for taken in [&taken, &again] {
                                assert_eq!(taken.to_f32(backend).expect("values"), expected);
                            }
                        }
                    });
                }
            });
        }
    }
}
