//! Rows of features that are dealt out to ranks, each of which asks the others for those that a batch of its own wants.

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

/// A rank's share of rows: of every `ranks` in a row the one whose place is the rank's. Vertices that many batches hear from often have
/// numbers beside one another, and so no rank has all of those.
#[derive(Debug)]
pub(super) struct ShardedRows<B: Backend, E: Element> {
    group: Group,
    deal: Deal<B>,
    /// Behind a row of zeros, which is that of what is no vertex.
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
            deal: Deal::new(backend, vertices, (rank, ranks))?,
            own: Matrix::from_rows(
                backend,
                (own + 1, columns),
                MemoryKind::Features,
                |row, values| match row {
                    0 => values.fill(0.0),
                    _ => write_row((row - 1) * ranks + rank, values),
                },
            )?,
            kept: Mutex::new(Room::new(an_eighth_more)),
        })
    }

    /// Vertices of all ranks.
    pub(super) fn vertices(&self) -> usize {
        self.deal.rows.len()
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
        let Room {
            wanted,
            arrived,
            packed,
            with_spare,
        } = room;
        let wanted = Wanted::of(wanted, backend, vertices.len(), group.ranks())?;
        let receives = self.deal.sort(backend, vertices, wanted, group.rank())?;
        let counts: Vec<u64> = receives.iter().map(|part| part.len() as u64).collect();
        // How many rows each wants of this one.
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
        // Among them rows that are others', in whose places theirs come.
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

/// Who has the row of each vertex, and where: two words a vertex, so that lists of vertices stay on the device.
#[derive(Debug)]
struct Deal<B: Backend> {
    /// A number of who has it: from 1 on the other ranks in their order, and behind them the own one. 0 is that of what is no vertex.
    owners: Array<B, u32>,
    /// Its row in the share of who has it, from 1 on. 0 is that of what is no vertex.
    rows: Array<B, u32>,
}

impl<B: Backend> Deal<B> {
    fn new(backend: &B, vertices: usize, (rank, ranks): (usize, usize)) -> Result<Self, Error> {
        // 32 bits number vertices, and whoever has one.
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

    /// Puts what is wanted in the order of who has it, and tells where that of each other rank lies; what is no vertex lies before all, and what
    /// this rank has itself behind. Counts alone come to the host.
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
            // As evenly as vertices are dealt out.
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

/// What of a list of vertices is wanted of whom.
#[derive(Debug)]
struct Wanted<B: Backend> {
    /// Who has each, and the same in order.
    owners: Array<B, u32>,
    sorted_owners: Array<B, u32>,
    /// Which of the list each is that is wanted.
    order: Array<B, u32>,
    /// The rows that are wanted, by their numbers in the share of who has them.
    rows: Array<B, u32>,
    /// Where among them each of the list is.
    places: Array<B, u32>,
    /// The first of what is no vertex, of each owner, and the end.
    offsets: Array<B, u64>,
}

impl<B: Backend> Wanted<B> {
    /// One of a list of so many vertices: `kept`, or another in its place.
    fn of<'a>(
        kept: &'a mut Option<Self>,
        backend: &B,
        vertices: usize,
        ranks: usize,
    ) -> Result<&'a mut Self, Error> {
        if kept.as_ref().is_none_or(|kept| kept.rows.len() != vertices) {
            // Given back before more is asked for.
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

/// So many one behind the other from `first` on, in the order of ranks.
fn ranges(first: usize, counts: impl Iterator<Item = usize>) -> Vec<Range<usize>> {
    let mut end = first;
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
    /// What is wanted, and its rows.
    wanted: Option<Wanted<B>>,
    arrived: Option<Matrix<B, E>>,
    /// What others ask for.
    packed: Option<Packed<B, E>>,
    /// What it has for so many rows that others ask for.
    with_spare: fn(usize) -> usize,
}

impl<B: Backend, E: Element> Room<B, E> {
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
}

/// A room of `count` and an eighth more, for the exchange of a batch that wants more than those before it.
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
            let deal = Deal::new(backend, vertices, (rank, ranks)).expect("room");
            let list = Array::from_slice(backend, listed, MemoryKind::Features).expect("room");
            let mut kept = None;
            let wanted = Wanted::of(&mut kept, backend, listed.len(), ranks).expect("room");
            let of_ranks = deal.sort(backend, &list, wanted, rank).expect("a list");
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
