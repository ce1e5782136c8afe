//! Rows of features that are sharded over ranks. Each rank fetches from the others those that its own batch needs.

use crate::backend::{Backend, MemoryKind, Rows};
use crate::distributed::Group;
use crate::error::Error;
use crate::ops;
use crate::tensor::{Array, Element, Matrix};
use halfgnn_contract::sort::bits_below;
use std::ops::Range;
use std::sync::{Mutex, PoisonError};

/// What errors call the exchange.
const WHAT: &str = "features";

/// A rank's shard of rows: those of every `ranks`-th vertex. Vertices that many batches read tend to have consecutive
/// numbers, and so no rank has all of them.
#[derive(Debug)]
pub(super) struct ShardedRows<B: Backend, E: Element> {
    group: Group,
    placement: Placement<B>,
    /// Behind a row of zeros, which is that of what is no vertex.
    own: Matrix<B, E>,
    /// The buffers of a batch's exchange, kept for the next, around which a recording may be made. Memory that is
    /// released outside of a recording is not reused.
    kept: Mutex<Buffers<B, E>>,
}

impl<B: Backend, E: Element> ShardedRows<B, E> {
    /// This rank's shard; `write_row` writes the row of a vertex.
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
            placement: Placement::new(backend, vertices, (rank, ranks))?,
            own: Matrix::from_rows(
                backend,
                (own + 1, columns),
                MemoryKind::Features,
                |row, values| match row {
                    0 => values.fill(0.0),
                    _ => write_row((row - 1) * ranks + rank, values),
                },
            )?,
            kept: Mutex::new(Buffers::new(an_eighth_more)),
        })
    }

    /// Vertices of all ranks.
    pub(super) fn vertices(&self) -> usize {
        self.placement.rows.len()
    }

    /// Takes the rows of some vertices into `taken`, with buffers that are kept for the next. All ranks call it at
    /// once.
    pub(super) fn take_into(
        &self,
        backend: &B,
        vertices: &Array<B, u32>,
        taken: &mut Matrix<B, E>,
    ) -> Result<(), Error> {
        let mut buffers = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        self.fetch(backend, vertices, &mut buffers, taken)
    }

    /// The same with buffers that are released.
    pub(super) fn take_once(
        &self,
        backend: &B,
        vertices: &Array<B, u32>,
        taken: &mut Matrix<B, E>,
    ) -> Result<(), Error> {
        self.fetch(backend, vertices, &mut Buffers::new(|count| count), taken)
    }

    fn fetch(
        &self,
        backend: &B,
        vertices: &Array<B, u32>,
        buffers: &mut Buffers<B, E>,
        taken: &mut Matrix<B, E>,
    ) -> Result<(), Error> {
        let (group, columns) = (&self.group, self.own.columns());
        let Buffers {
            wanted,
            arrived,
            packed,
            with_spare,
        } = buffers;
        let wanted = Wanted::of(wanted, backend, vertices.len(), group.ranks())?;
        let receives = self
            .placement
            .sort(backend, vertices, wanted, group.rank())?;
        let counts: Vec<u64> = receives.iter().map(|part| part.len() as u64).collect();
        // How many rows each rank needs of this one.
        let asked = match backend.only_counts() {
            true => counts,
            false => {
                let all = group.gather(WHAT, &counts)?;
                all.iter().map(|of| of[group.rank()]).collect()
            }
        };
        let sends = ranges(0, asked.into_iter().map(|count| count as usize));
        let given = sends.last().map_or(0, |last| last.end);
        let fits = arrived.take().filter(|rows| rows.rows() == vertices.len());
        let arrived = arrived.insert(match fits {
            Some(rows) => rows,
            None => Matrix::uninit(backend, vertices.len(), columns, MemoryKind::Activations)?,
        });
        let packed = Packed::of(packed, backend, (given, columns), *with_spare)?;
        let (from, to) = (&wanted.rows, &packed.order);
        let words = |array| Rows::of_words(array, 1);
        group.exchange_rows(backend, WHAT, (words(from), &receives), (words(to), &sends))?;
        take_rows(backend, &self.own, &packed.order, &mut packed.rows)?;
        // The rows include those of other ranks, which theirs overwrite.
        take_rows(backend, &self.own, &wanted.rows, arrived)?;
        let from = (Rows::of_matrix(&packed.rows)?, &sends[..]);
        let to = (Rows::of_matrix(arrived)?, &receives[..]);
        group.exchange_rows(backend, WHAT, from, to)?;
        take_rows(backend, arrived, &wanted.places, taken)
    }
}

/// [`ops::take_rows`], which launches nothing where none is taken.
fn take_rows<B: Backend, E: Element>(
    backend: &B,
    rows: &Matrix<B, E>,
    order: &Array<B, u32>,
    taken: &mut Matrix<B, E>,
) -> Result<(), Error> {
    match order.is_empty() {
        true => Ok(()),
        false => ops::take_rows(backend, rows, order, taken),
    }
}

/// Which rank has the row of each vertex, and where: two words a vertex, so that lists of vertices stay on the device.
#[derive(Debug)]
struct Placement<B: Backend> {
    /// The owner of each row: from 1 on the other ranks in their order, and last this rank. 0 stands for no vertex.
    owners: Array<B, u32>,
    /// Its row in the owner's shard, from 1 on. 0 stands for no vertex.
    rows: Array<B, u32>,
}

impl<B: Backend> Placement<B> {
    fn new(backend: &B, vertices: usize, (rank, ranks): (usize, usize)) -> Result<Self, Error> {
        // Vertices, and so ranks, are numbered with 32 bits.
        let owner = |vertex: usize| match vertex % ranks {
            owner if owner == rank => ranks as u32,
            owner if owner < rank => owner as u32 + 1,
            owner => owner as u32,
        };
        let owners: Vec<u32> = (0..vertices).map(owner).collect();
        let rows: Vec<u32> = (0..vertices)
            .map(|vertex| (vertex / ranks) as u32 + 1)
            .collect();
        let kind = MemoryKind::Graph;
        Ok(Self {
            owners: Array::from_slice(backend, &owners, kind)?,
            rows: Array::from_slice(backend, &rows, kind)?,
        })
    }

    /// Sorts the requested vertices by owner, and returns the range of each other rank. What is no vertex comes first,
    /// and what this rank owns last. Only counts come to the host.
    fn sort(
        &self,
        backend: &B,
        vertices: &Array<B, u32>,
        wanted: &mut Wanted<B>,
        rank: usize,
    ) -> Result<Vec<Range<usize>>, Error> {
        let Wanted {
            owners,
            sorted_owners,
            order,
            rows,
            places,
            offsets,
        } = wanted;
        let (count, ranks) = (vertices.len(), offsets.len() - 2);
        if count == 0 {
            return Ok(vec![0..0; ranks]);
        }
        let bits = bits_below(ranks as u64 + 1);
        ops::take_words(backend, &self.owners, vertices, owners)?;
        ops::sort_pairs(backend, owners, None, bits, sorted_owners, order)?;
        ops::row_offsets(backend, sorted_owners, offsets)?;
        ops::take_words(backend, &self.rows, vertices, places)?;
        ops::take_words(backend, places, order, rows)?;
        // The order of an order is its inverse.
        let bits = bits_below(count as u64);
        ops::sort_pairs(backend, order, None, bits, owners, places)?;
        let firsts: Vec<usize> = match backend.only_counts() {
            // As evenly as vertices are partitioned.
            true => (0..=ranks).map(|owner| owner * count / ranks).collect(),
            false => {
                let offsets = offsets.to_vec(backend)?;
                offsets[1..].iter().map(|&first| first as usize).collect()
            }
        };
        let others = firsts.windows(2).map(|ends| ends[1] - ends[0]);
        let mut counts: Vec<usize> = others.take(ranks - 1).collect();
        counts.insert(rank, 0);
        Ok(ranges(firsts[0], counts.into_iter()))
    }
}

/// The owners of a list of requested vertices.
#[derive(Debug)]
struct Wanted<B: Backend> {
    /// The owner of each vertex, and the same sorted.
    owners: Array<B, u32>,
    sorted_owners: Array<B, u32>,
    /// The index in the list of each sorted vertex.
    order: Array<B, u32>,
    /// The requested rows, by their numbers in the shards of their owners.
    rows: Array<B, u32>,
    /// Where among them the row of each vertex of the list is.
    places: Array<B, u32>,
    /// The first index of what is no vertex and of each owner, and the end.
    offsets: Array<B, u64>,
}

impl<B: Backend> Wanted<B> {
    /// One for a list of `vertices` vertices: `kept`, or another in its place.
    fn of<'a>(
        kept: &'a mut Option<Self>,
        backend: &B,
        vertices: usize,
        ranks: usize,
    ) -> Result<&'a mut Self, Error> {
        if kept.as_ref().is_none_or(|kept| kept.rows.len() != vertices) {
            // Released before more is allocated.
            *kept = None;
        }
        match kept {
            Some(kept) => Ok(kept),
            none => {
                let kind = MemoryKind::Activations;
                let words = || Array::zeros(backend, vertices, kind);
                Ok(none.insert(Self {
                    owners: words()?,
                    sorted_owners: words()?,
                    order: words()?,
                    rows: words()?,
                    places: words()?,
                    offsets: Array::zeros(backend, ranks + 2, kind)?,
                }))
            }
        }
    }
}

/// Consecutive ranges of `counts` elements from `first` on, in the order of ranks.
fn ranges(first: usize, counts: impl Iterator<Item = usize>) -> Vec<Range<usize>> {
    let mut end = first;
    let next = |count| {
        let start = end;
        end += count;
        start..end
    };
    counts.map(next).collect()
}

/// The buffers of an exchange.
#[derive(Debug)]
struct Buffers<B: Backend, E: Element> {
    /// What is requested, and its rows.
    wanted: Option<Wanted<B>>,
    arrived: Option<Matrix<B, E>>,
    /// What others request.
    packed: Option<Packed<B, E>>,
    /// The capacity for a given number of rows that others request.
    with_spare: fn(usize) -> usize,
}

impl<B: Backend, E: Element> Buffers<B, E> {
    fn new(with_spare: fn(usize) -> usize) -> Self {
        Self {
            wanted: None,
            arrived: None,
            packed: None,
            with_spare,
        }
    }
}

/// Numbers of rows, and the rows.
#[derive(Debug)]
struct Packed<B: Backend, E: Element> {
    order: Array<B, u32>,
    rows: Matrix<B, E>,
}

impl<B: Backend, E: Element> Packed<B, E> {
    /// One with capacity for `rows` rows: `kept`, or another in its place.
    fn of<'a>(
        kept: &'a mut Option<Self>,
        backend: &B,
        (rows, columns): (usize, usize),
        with_spare: fn(usize) -> usize,
    ) -> Result<&'a mut Self, Error> {
        if kept.as_ref().is_none_or(|kept| kept.order.len() < rows) {
            // Released before more is allocated.
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
}

/// `count` and an eighth more, for later batches that need more rows.
fn an_eighth_more(count: usize) -> usize {
    (count + count / 8 + 64).next_multiple_of(64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::cpu::Cpu;
    use crate::data::FeatureRows;
    use crate::distributed::in_process;
    use halfgnn_contract::sampling::NO_VERTEX;
    use std::time::Duration;

    #[test]
    fn rows_are_wanted_of_their_owners() {
        let backend = &Cpu::new();
        let sorted = |listed: &[u32], vertices, (rank, ranks)| {
            let placement = Placement::new(backend, vertices, (rank, ranks)).expect("memory");
            let list = Array::from_slice(backend, listed, MemoryKind::Features).expect("memory");
            let mut kept = None;
            let wanted = Wanted::of(&mut kept, backend, listed.len(), ranks).expect("memory");
            let of_ranks = placement
                .sort(backend, &list, wanted, rank)
                .expect("a list");
            let read = |words: &Array<_, u32>| words.to_vec(backend).expect("words");
            (of_ranks, read(&wanted.rows), read(&wanted.places))
        };
        let listed = [7, NO_VERTEX, 2, 4, 0, 9, 5];
        let (of_ranks, rows, places) = sorted(&listed, 9, (1, 3));
        // Two that are none, as there is no vertex 9; 0 of rank 0, 2 and 5 of rank 2; then the own 7 and 4.
        assert_eq!(of_ranks, [2..3, 3..3, 3..5]);
        assert_eq!(rows, [0, 0, 1, 1, 2, 3, 2]);
        assert_eq!(places, [5, 0, 3, 6, 2, 1, 4]);
        let (of_ranks, rows, places) = sorted(&[], 9, (0, 2));
        assert_eq!(of_ranks, [0..0, 0..0]);
        assert!(rows.is_empty() && places.is_empty());
    }

    /// Ranks that need different rows, some of them none at all, get them, whatever was requested before.
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
                        let rows = rows.expect("memory");
                        assert_eq!((rows.rows(), rows.columns()), (7, COLUMNS));
                        assert_eq!(rows.are_whole(), ranks == 1);
                        for wanted in lists.map(|of_rank| of_rank[rank]) {
                            let kind = MemoryKind::Features;
                            let list = Array::from_slice(backend, wanted, kind).expect("memory");
                            let taken = rows.take(backend, &list, kind).expect("the rows");
                            let mut again = Matrix::from_f32(
                                backend,
                                wanted.len(),
                                COLUMNS,
                                &vec![7.0; wanted.len() * COLUMNS],
                                kind,
                            )
                            .expect("memory");
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
