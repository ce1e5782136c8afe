//! A shard's exchanges on a backend: rows of neighbours to where they are heard, their gradients back.

use super::Pool;
use crate::backend::{Adjacency, Backend, MemoryKind, Rows};
use crate::distributed::{Group, Shard};
use crate::error::Error;
use crate::graph::Csr;
use crate::ops::{self, Addend, Combine, Dropout, QuantizedMatrix, Spmm, SpmmEpilogue};
use crate::tensor::{Array, Element, Matrix};
use std::ops::Range;

/// What a rank exchanges at each layer that hears from neighbours.
#[derive(Debug)]
pub struct Halo<B: Backend> {
    group: Group,
    /// Own vertices of each rank, on the host and on the backend.
    counts: Vec<usize>,
    counts_there: Array<B, u32>,
    own: usize,
    sources: usize,
    /// The graph's vertex of each own row, and of each row.
    vertices: [Array<B, u32>; 2],
    /// Own rows that others want, rank by rank, where those are packed before they are sent: not where each is given all.
    packing: Option<Array<B, u32>>,
    /// The rows that each rank is given: of the packed ones, or of the own ones as they lie.
    sends: Vec<Range<usize>>,
    /// The rows that each rank gives.
    receives: Vec<Range<usize>>,
    /// Where the gradients of what each rank was given come back, one behind the other.
    returned: Vec<Range<usize>>,
    /// Own rows × rows that come back. None where no other rank wants any.
    returns: Option<Adjacency<B>>,
    /// Whether the whole graph is symmetric.
    mutual: bool,
}

/// Codes that are on their way: packed, where they are not sent as they lie.
#[derive(Debug)]
pub(super) struct SentCodes<B: Backend>(Option<Array<B, u32>>);

impl<B: Backend> Halo<B> {
    /// The exchanges of a shard, which is of this rank of `group`.
    ///
    /// # Errors
    /// [`Error::Shape`] where it is of another; [`Error::Driver`] where there is not enough memory.
    pub fn new(backend: &B, shard: &Shard, group: &Group) -> Result<Self, Error> {
        const NAME: &str = "Halo";
        Error::expect(NAME, "ranks of the shard", group.ranks(), shard.sends.len())?;
        Error::expect(NAME, "rank of the shard", group.rank(), shard.rank)?;
        let upload = |values: &[u32]| Array::from_slice(backend, values, MemoryKind::Graph);
        let (own, packing) = (shard.part.own().len(), shard.sends.concat());
        let mut returned = Vec::with_capacity(shard.sends.len());
        let mut start = 0;
        for wanted in &shard.sends {
            returned.push(start..start + wanted.len());
            start += wanted.len();
        }
        let sends = match shard.whole {
            false => returned.clone(),
            true => {
                let others = (shard.sends.iter().enumerate()).filter(|&(to, _)| to != shard.rank);
                for (to, wanted) in others {
                    if !wanted.iter().copied().eq(0..own as u32) {
                        return Err(Error::Unsupported {
                            operator: NAME,
                            reason: format!(
                                "rank {to} is to be given all rows, and is given others; make the shard by Shard::gathering"
                            ),
                        });
                    }
                }
                let ends = returned.iter().map(|of_rank| of_rank.len());
                ends.map(|end| 0..end).collect()
            }
        };
        if group.library().is_some() {
            group.expect_fit("rows to exchange", &sends, &shard.receives)?;
        }
        let counts: Vec<u32> = shard.counts.iter().map(|&count| count as u32).collect();
        let returns = if packing.is_empty() {
            None
        } else {
            let places: Vec<u32> = (0..packing.len() as u32).collect();
            let shape = (own, packing.len());
            let csr = Csr::rectangular_from_edges(shape, &packing, &places)?;
            Some(Adjacency::new(backend, &csr)?)
        };
        Ok(Self {
            group: group.clone(),
            counts: shard.counts.clone(),
            counts_there: upload(&counts)?,
            own,
            sources: shard.part.vertices().len(),
            vertices: [upload(shard.part.own())?, upload(shard.part.vertices())?],
            packing: match shard.whole {
                true => None,
                false => Some(upload(&packing)?),
            },
            sends,
            receives: shard.receives.clone(),
            returned,
            returns,
            mutual: shard.mutual,
        })
    }

    /// The ranks.
    pub fn group(&self) -> &Group {
        &self.group
    }

    /// Own rows of each rank.
    pub fn counts(&self) -> &[usize] {
        &self.counts
    }

    /// The same on the backend.
    pub(super) fn counts_there(&self) -> &Array<B, u32> {
        &self.counts_there
    }

    /// `all` becomes the own rows `x`, and behind them what others have in theirs. Every rank calls it at once.
    ///
    /// # Errors
    /// Those of [`Communicator::exchange`](crate::distributed::Communicator::exchange) and of the device.
    pub fn extend<E: Element>(
        &self,
        backend: &B,
        what: &str,
        pool: &mut Pool<B, E>,
        x: &Matrix<B, E>,
        all: &mut Matrix<B, E>,
    ) -> Result<(), Error> {
        const NAME: &str = "Halo::extend";
        Error::expect(NAME, "own rows", self.own, x.rows())?;
        Error::expect(NAME, "rows", self.sources, all.rows())?;
        let packed = self.packed(backend, pool, x)?;
        let from = packed.as_ref().unwrap_or(x);
        let from = (Rows::of_matrix(from)?, &self.sends[..]);
        let to = (Rows::of_matrix(all)?, &self.receives[..]);
        self.group.begin_rows(backend, what, from, to)?;
        // The rows of others come behind these.
        ops::combine_rows(backend, self.own, &Combine::copy(), x, all)?;
        let to = (Rows::of_matrix(all)?, &self.receives[..]);
        self.group.end_rows(backend, to)?;
        packed.into_iter().for_each(|packed| pool.give(packed));
        Ok(())
    }

    /// [`Halo::extend`] of own rows that are in `all` already.
    pub(super) fn extend_own<E: Element>(
        &self,
        backend: &B,
        what: &str,
        pool: &mut Pool<B, E>,
        all: &mut Matrix<B, E>,
    ) -> Result<(), Error> {
        Error::expect("Halo::extend_own", "rows", self.sources, all.rows())?;
        let packed = self.packed(backend, pool, all)?;
        let from = packed.as_ref().unwrap_or(all);
        let from = (Rows::of_matrix(from)?, &self.sends[..]);
        let to = (Rows::of_matrix(all)?, &self.receives[..]);
        self.group.exchange_rows(backend, what, from, to)?;
        packed.into_iter().for_each(|packed| pool.give(packed));
        Ok(())
    }

    /// Those of the first rows of `x` that others want, one behind the other; none where they are given all as they lie.
    fn packed<E: Element>(
        &self,
        backend: &B,
        pool: &mut Pool<B, E>,
        x: &Matrix<B, E>,
    ) -> Result<Option<Matrix<B, E>>, Error> {
        let Some(packing) = &self.packing else {
            return Ok(None);
        };
        let mut packed = pool.take(backend, (packing.len(), x.columns()))?;
        if self.returns.is_some() {
            ops::take_rows(backend, x, packing, &mut packed)?;
        }
        Ok(Some(packed))
    }

    /// `codes`, whose first rows are those of the own rows, get behind them what others have in theirs: all have one scale a column, so
    /// codes mean the same. Every rank calls it at once. They are on their way until [`Halo::end_codes`] is given what comes back.
    ///
    /// # Errors
    /// [`Error::Shape`] where there is no room for all, and those of [`Group::begin_rows`].
    pub(super) fn begin_codes<E: Element>(
        &self,
        backend: &B,
        what: &str,
        pool: &mut Pool<B, E>,
        codes: &mut QuantizedMatrix<B>,
    ) -> Result<SentCodes<B>, Error> {
        Error::expect("Halo::begin_codes", "own rows", self.own, codes.rows())?;
        let mut packed = None;
        if let Some(packing) = &self.packing {
            let words = QuantizedMatrix::<B>::words(packing.len(), codes.columns())?;
            let packed = packed.insert(pool.take_words(backend, words)?);
            if self.returns.is_some() {
                ops::take_codes(backend, codes, packing, packed)?;
            }
        }
        codes.set_rows(self.sources)?;
        let from = match &packed {
            Some(packed) => codes.rows_of(packed),
            None => codes.as_rows(),
        };
        let from = (from, &self.sends[..]);
        let to = (codes.as_rows(), &self.receives[..]);
        self.group.begin_rows(backend, what, from, to)?;
        Ok(SentCodes(packed))
    }

    /// Waits for what [`Halo::begin_codes`] has begun.
    ///
    /// # Errors
    /// Those of [`Group::end_rows`].
    pub(super) fn end_codes<E: Element>(
        &self,
        backend: &B,
        pool: &mut Pool<B, E>,
        (codes, SentCodes(packed)): (&QuantizedMatrix<B>, SentCodes<B>),
    ) -> Result<(), Error> {
        let to = (codes.as_rows(), &self.receives[..]);
        self.group.end_rows(backend, to)?;
        packed
            .into_iter()
            .for_each(|packed| pool.give_words(packed));
        Ok(())
    }

    /// Gives the gradients in `all` of rows of other ranks to these: they are on their way until [`Halo::end_fold`] is given what comes
    /// back, and stay as they are. The own rows are not sent. Every rank calls it at once.
    ///
    /// # Errors
    /// [`Error::Shape`] where `all` has not the own rows and those of others, and those of [`Group::begin_rows`].
    pub(crate) fn begin_fold<E: Element>(
        &self,
        backend: &B,
        what: &str,
        pool: &mut Pool<B, E>,
        all: &Matrix<B, E>,
    ) -> Result<Matrix<B, E>, Error> {
        Error::expect("Halo::begin_fold", "rows", self.sources, all.rows())?;
        let rows = self.returned.last().map_or(0, |of_last| of_last.end);
        let packed = pool.take(backend, (rows, all.columns()))?;
        let from = (Rows::of_matrix(all)?, &self.receives[..]);
        let to = (Rows::of_matrix(&packed)?, &self.returned[..]);
        self.group.begin_rows(backend, what, from, to)?;
        Ok(packed)
    }

    /// Waits for what was begun, of which nothing is wanted any more.
    ///
    /// # Errors
    /// Those of [`Group::end_rows`].
    pub(super) fn forget_fold<E: Element>(
        &self,
        backend: &B,
        pool: &mut Pool<B, E>,
        packed: Matrix<B, E>,
    ) -> Result<(), Error> {
        let to = (Rows::of_matrix(&packed)?, &self.returned[..]);
        self.group.end_rows(backend, to)?;
        pool.give(packed);
        Ok(())
    }

    /// `d` becomes the gradient of the own rows: that in `all`, and those of the ranks that heard them, which [`Halo::begin_fold`] has
    /// asked for, added up in float in their order and rounded once.
    ///
    /// # Errors
    /// Those of [`Group::end_rows`] and of the device.
    pub(crate) fn end_fold<E: Element>(
        &self,
        backend: &B,
        pool: &mut Pool<B, E>,
        (all, packed): (&Matrix<B, E>, Matrix<B, E>),
        d: &mut Matrix<B, E>,
    ) -> Result<(), Error> {
        Error::expect("Halo::end_fold", "own rows", self.own, d.rows())?;
        let to = (Rows::of_matrix(&packed)?, &self.returned[..]);
        self.group.end_rows(backend, to)?;
        match &self.returns {
            None => ops::combine_rows(backend, self.own, &Combine::copy(), all, d)?,
            Some(returns) => {
                let own = Addend {
                    matrix: all,
                    factor: 1.0,
                    row_scale: None,
                    epsilon: None,
                };
                let sum = Spmm {
                    epilogue: SpmmEpilogue {
                        addend: Some(own),
                        ..SpmmEpilogue::default()
                    },
                    ..Spmm::default()
                };
                ops::spmm(backend, returns, &sum, &packed, d)?;
            }
        }
        pool.give(packed);
        Ok(())
    }

    /// Whether vertices are heard by those that they hear, so that gradients go the way of activations.
    pub fn is_mutual(&self) -> bool {
        self.mutual
    }

    /// Own rows.
    pub(super) fn own(&self) -> usize {
        self.own
    }

    /// Own rows and those of others.
    pub(super) fn sources(&self) -> usize {
        self.sources
    }

    /// The graph's vertex of each of so many rows: of the own ones, or of all.
    pub(super) fn vertices(&self, rows: usize) -> &Array<B, u32> {
        let [own, all] = &self.vertices;
        if rows == own.len() { own } else { all }
    }

    /// Drops of `x`, which has the own rows or all, what a single rank would drop of the same vertices.
    ///
    /// # Errors
    /// Those of [`ops::drop_rows`].
    pub fn drop_rows<E: Element>(
        &self,
        backend: &B,
        dropout: Dropout<'_, B>,
        x: &mut Matrix<B, E>,
    ) -> Result<(), Error> {
        ops::drop_rows(backend, dropout, self.vertices(x.rows()), x)
    }
}
