//! The weight of an edge by attention, in float, from the scores and the statistics of its two ends.

use crate::device::float::mul_add;
use crate::device::global::Global;
use crate::device::integer::wide_product;
use halfgnn_contract::attention::{self, DROPOUT, EdgeAttention, TRANSPOSED};
use halfgnn_contract::rng::{edge_dropout_counter, philox_by};

/// What belongs to the row and to the column of an edge as what belongs to its destination and to its source, or the reverse.
#[inline(always)]
fn turned<T>(of: &EdgeAttention, first: T, second: T) -> (T, T) {
    if of.flags & TRANSPOSED == 0 {
        (first, second)
    } else {
        (second, first)
    }
}

/// The scores of a head, of the vertices that rows name and of those that columns name.
#[derive(Clone, Copy)]
pub struct HeadScores {
    rows: Global<f32>,
    columns: Global<f32>,
}

impl HeadScores {
    /// Those of head `head`.
    #[inline(always)]
    pub fn new(of: &EdgeAttention, head: u32) -> Self {
        let plane =
            |scores, vertices: u32| Global::<f32>::new(scores).at(head as u64 * vertices as u64);
        let destination = plane(of.destination, of.destinations);
        let source = plane(of.source, of.sources);
        let (rows, columns) = turned(of, destination, source);
        Self { rows, columns }
    }

    /// The sum of the scores of both ends of an edge.
    ///
    /// # Safety
    /// As [`Ends::sum_of_scores`].
    #[inline(always)]
    pub unsafe fn sum(&self, row: u32, column: u32) -> f32 {
        // SAFETY: the caller's promise.
        unsafe { self.rows.at(row as u64).load() + self.columns.at(column as u64).load() }
    }
}

/// The two ends of an edge, for one head.
#[derive(Clone, Copy)]
pub struct Ends {
    head: u32,
    destination: u32,
    source: u32,
}

impl Ends {
    /// The ends of an edge of this row and column.
    #[inline(always)]
    pub fn new(of: &EdgeAttention, head: u32, row: u32, column: u32) -> Self {
        let (destination, source) = turned(of, row, column);
        Self {
            head,
            destination,
            source,
        }
    }

    /// Where numbers of the destination stand in planes of numbers of destinations.
    #[inline(always)]
    pub fn destination_at(&self, of: &EdgeAttention) -> u64 {
        self.head as u64 * of.destinations as u64 + self.destination as u64
    }

    /// The sum of the scores of both.
    ///
    /// # Safety
    /// Both are vertices, and planes of destinations and of sources are as long as there are such.
    #[inline(always)]
    pub unsafe fn sum_of_scores(&self, of: &EdgeAttention) -> f32 {
        // SAFETY: the caller's promise.
        unsafe {
            Global::<f32>::new(of.destination)
                .at(self.destination_at(of))
                .load()
                + self.source_score(of)
        }
    }

    /// The score of the source.
    ///
    /// # Safety
    /// As [`Ends::sum_of_scores`].
    #[inline(always)]
    pub unsafe fn source_score(&self, of: &EdgeAttention) -> f32 {
        let at = self.head as u64 * of.sources as u64 + self.source as u64;
        // SAFETY: the caller's promise.
        unsafe { Global::<f32>::new(of.source).at(at).load() }
    }

    /// `α` of the edge, whose scores have this sum.
    ///
    /// # Safety
    /// As [`Ends::sum_of_scores`], for the statistics.
    #[inline(always)]
    pub unsafe fn weight(&self, of: &EdgeAttention, sum_of_scores: f32) -> f32 {
        // SAFETY: the caller's promise.
        attention::weight_by(
            sum_of_scores,
            of.slope,
            unsafe { self.statistics(of) },
            mul_add,
        )
    }

    /// `m` and `1/z` of the destination.
    ///
    /// # Safety
    /// As [`Ends::sum_of_scores`], for the statistics.
    #[inline(always)]
    pub unsafe fn statistics(&self, of: &EdgeAttention) -> [f32; 2] {
        let at = self.destination_at(of);
        // SAFETY: the caller's promise.
        let statistics: [u32; 2] = unsafe { Global::new(of.statistics).at(at).load() };
        statistics.map(f32::from_bits)
    }

    /// What becomes of the edge's weight, or of a gradient of it, by dropout.
    ///
    /// # Safety
    /// The step is there where there is dropout.
    #[inline(always)]
    pub unsafe fn dropout(&self, of: &EdgeAttention, weight: f32) -> f32 {
        if of.flags & DROPOUT == 0 {
            return weight;
        }
        // Word by word: as a whole the key would go through local memory. SAFETY: the caller's promise.
        unsafe { self.dropped(of, || [of.key[0], of.key[1]], weight) }
    }

    /// [`Ends::dropout`] by `key`, where there is dropout.
    ///
    /// # Safety
    /// The step is there.
    #[inline(always)]
    pub unsafe fn dropped(
        &self,
        of: &EdgeAttention,
        key: impl FnOnce() -> [u32; 2],
        weight: f32,
    ) -> f32 {
        // SAFETY: the caller's promise.
        let step = unsafe { Global::<u32>::new(of.step).read() };
        let counter = edge_dropout_counter(step, self.head, self.destination, self.source);
        if philox_by(key(), counter, wide_product)[0] < of.threshold {
            0.0
        } else {
            weight * of.keep_scale
        }
    }
}
