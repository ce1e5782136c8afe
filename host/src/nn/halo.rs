//! The exchanges of a shard on a backend: rows of in-neighbours, and their gradients back.

use crate::backend::{Adjacency, Backend, MemoryKind, Rows};
use crate::distributed::{Group, Shard};
use crate::error::Error;
use crate::graph::Csr;
use crate::ops::{self, Addend, Combine, Dropout, QuantizedMatrix, Spmm, SpmmEpilogue};
use crate::tensor::{Array, Element, Matrix};
use std::ops::Range;

/// What a rank exchanges at each layer that aggregates neighbours.
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
    /// Own rows that other ranks need, rank by rank, where these are packed before they are sent. None where each rank
    /// gets all rows.
    packing: Option<Array<B, u32>>,
    /// The rows sent to each rank: of the packed ones, or of the own ones as they lie.
    sends: Vec<Range<usize>>,
    /// The rows received from each rank.
    receives: Vec<Range<usize>>,
    /// Where the gradients of the rows sent to each rank come back, one after the other.
    returned: Vec<Range<usize>>,
    /// Own rows × rows that come back. None where no other rank needs any.
    returns: Option<Adjacency<B>>,
    /// Whether the whole graph is symmetric.
    mutual: bool,
}

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
    pub(crate) fn counts_there(&self) -> &Array<B, u32> {
        &self.counts_there
    }

    /// The share of the own rows in the rows of all ranks.
    pub(crate) fn share(&self) -> f32 {
        let rows: usize = self.counts.iter().sum();
        (self.own as f64 / rows.max(1) as f64) as f32
    }

    /// Rows that are packed before they are sent; 0 where own rows are sent as they lie.
    pub(crate) fn packed_rows(&self) -> usize {
        self.packing.as_ref().map_or(0, Array::len)
    }

    /// Rows of gradients that other ranks send back.
    pub(crate) fn returned_rows(&self) -> usize {
        self.returned.last().map_or(0, |of_last| of_last.end)
    }

    /// [`Halo::extend`] that packs [rows](Halo::packed_rows) in `packed`, which has the columns of `x`.
    ///
    /// # Errors
    /// Those of [`Halo::extend`].
    pub(crate) fn extend_by<E: Element>(
        &self,
        backend: &B,
        what: &str,
        packed: &mut Matrix<B, E>,
        x: &Matrix<B, E>,
        all: &mut Matrix<B, E>,
    ) -> Result<(), Error> {
        const NAME: &str = "Halo::extend";
        Error::expect(NAME, "own rows", self.own, x.rows())?;
        Error::expect(NAME, "rows", self.sources, all.rows())?;
        let from = self.packed(backend, packed, x)?;
        let from = (Rows::of_matrix(from)?, &self.sends[..]);
        let to = (Rows::of_matrix(all)?, &self.receives[..]);
        self.group.begin_rows(backend, what, from, to)?;
        // The rows of others come after these.
        ops::combine_rows(backend, self.own, &Combine::copy(), x, all)?;
        let to = (Rows::of_matrix(all)?, &self.receives[..]);
        self.group.end_rows(backend, to)
    }

    /// The rows of `x` that others need, packed into `packed`; `x` itself where each rank gets all rows as they lie.
    fn packed<'a, E: Element>(
        &self,
        backend: &B,
        packed: &'a mut Matrix<B, E>,
        x: &'a Matrix<B, E>,
    ) -> Result<&'a Matrix<B, E>, Error> {
        let Some(packing) = &self.packing else {
            return Ok(x);
        };
        if self.returns.is_some() {
            ops::take_rows(backend, x, packing, packed)?;
        }
        Ok(packed)
    }

    /// [`Halo::begin_codes`] that packs [rows](Halo::packed_rows) in `packed`, which has as many words as they take.
    ///
    /// # Errors
    /// Those of [`Halo::begin_codes`].
    pub(crate) fn begin_codes_by(
        &self,
        backend: &B,
        what: &str,
        packed: &mut Array<B, u32>,
        codes: &mut QuantizedMatrix<B>,
    ) -> Result<(), Error> {
        Error::expect("Halo::begin_codes", "own rows", self.own, codes.rows())?;
        if let Some(packing) = self.packing.as_ref().filter(|_| self.returns.is_some()) {
            ops::take_codes(backend, codes, packing, packed)?;
        }
        codes.set_rows(self.sources)?;
        let from = match &self.packing {
            Some(_) => codes.rows_of(packed),
            None => codes.as_rows(),
        };
        let from = (from, &self.sends[..]);
        let to = (codes.as_rows(), &self.receives[..]);
        self.group.begin_rows(backend, what, from, to)
    }

    /// Waits for what [`Halo::begin_codes_by`] has begun.
    ///
    /// # Errors
    /// Those of [`Group::end_rows`].
    pub(crate) fn end_codes_by(
        &self,
        backend: &B,
        codes: &QuantizedMatrix<B>,
    ) -> Result<(), Error> {
        let to = (codes.as_rows(), &self.receives[..]);
        self.group.end_rows(backend, to)
    }

    /// [`Halo::begin_fold`] whose [rows](Halo::returned_rows) come back in `returned`, which has the columns of `all`.
    ///
    /// # Errors
    /// Those of [`Halo::begin_fold`].
    pub(crate) fn begin_fold_by<E: Element>(
        &self,
        backend: &B,
        what: &str,
        returned: &Matrix<B, E>,
        all: &Matrix<B, E>,
    ) -> Result<(), Error> {
        Error::expect("Halo::begin_fold", "rows", self.sources, all.rows())?;
        let from = (Rows::of_matrix(all)?, &self.receives[..]);
        let to = (Rows::of_matrix(returned)?, &self.returned[..]);
        self.group.begin_rows(backend, what, from, to)
    }

    /// [`Halo::end_fold`] of what [`Halo::begin_fold_by`] has asked for.
    ///
    /// # Errors
    /// Those of [`Halo::end_fold`].
    pub(crate) fn end_fold_by<E: Element>(
        &self,
        backend: &B,
        (all, returned): (&Matrix<B, E>, &Matrix<B, E>),
        d: &mut Matrix<B, E>,
    ) -> Result<(), Error> {
        Error::expect("Halo::end_fold", "own rows", self.own, d.rows())?;
        let to = (Rows::of_matrix(returned)?, &self.returned[..]);
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
                ops::spmm(backend, returns, &sum, returned, d)?;
            }
        }
        Ok(())
    }

    /// Whether every edge has its reverse, so that gradients take the same way as activations.
    pub fn is_mutual(&self) -> bool {
        self.mutual
    }

    /// Own rows.
    pub(crate) fn own(&self) -> usize {
        self.own
    }

    /// The graph's vertex of each of `rows` rows: of the own ones, or of all.
    pub(crate) fn vertices(&self, rows: usize) -> &Array<B, u32> {
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
