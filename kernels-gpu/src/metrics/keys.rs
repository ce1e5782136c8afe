//! Words that order as scores do: a thread a row of the list, column by column.

use crate::device::global::Global;
use crate::device::thread::global_idx_x;
use crate::device::vector::Vector;
use halfgnn_contract::metrics::{POSITIVE, RankKeysParams, SPLITS, Shares, score_key, scores};

/// # Safety
/// The launch contract of [`RankKeysParams`]: a thread for each of the list.
#[inline(always)]
pub unsafe fn rank_keys<V: Vector>(params: &RankKeysParams) {
    let at = global_idx_x();
    if at >= params.listed as u64 {
        return;
    }
    let split = (at >= params.second as u64) as u32 + (at >= params.third as u64) as u32;
    // SAFETY: the list has that many rows; what it names is looked at where it is a row. Each item is one thread's.
    unsafe {
        let row = Global::<u32>::new(params.list).at(at).read() as u64;
        let there = row < params.rows;
        let of = Row::<V>::new(params, row);
        let label = match there && !params.labels.is_null() {
            true => Global::<u32>::new(params.labels).at(row).read(),
            false => u32::MAX,
        };
        let shares = match params.kind {
            scores::CLASSES if there => {
                Some(Shares::new(params.all_columns, |column| of.score(column)))
            }
            _ => None,
        };
        let mut i = 0;
        while i < params.columns {
            let column = params.first_column + i;
            let (score, positive) = match params.kind {
                _ if !there => (f32::NAN, false),
                scores::LABELS => (of.score(column), of.target(column) > 0.5),
                scores::TWO_CLASSES => (of.score(1) - of.score(0), label == 1),
                scores::GIVEN => (of.score(0), label == 1),
                _ => match &shares {
                    Some(shares) => (shares.log_odds(column, of.score(column)), label == column),
                    None => (f32::NAN, false),
                },
            };
            let item = i as u64 * params.listed as u64 + at;
            let segment = i * SPLITS + split;
            let positive = if positive { POSITIVE } else { 0 };
            Global::<u32>::new(params.keys)
                .at(item)
                .store(score_key(score));
            Global::<u32>::new(params.segments)
                .at(item)
                .store(segment | positive);
            i += 1;
        }
    }
}

/// A row of scores.
struct Row<'a, V> {
    params: &'a RankKeysParams,
    row: u64,
    vector: core::marker::PhantomData<V>,
}

impl<'a, V: Vector> Row<'a, V> {
    #[inline(always)]
    fn new(params: &'a RankKeysParams, row: u64) -> Self {
        Self {
            params,
            row,
            vector: core::marker::PhantomData,
        }
    }

    /// What the model gives in a column.
    ///
    /// # Safety
    /// The row is there, and the column.
    #[inline(always)]
    unsafe fn score(&self, column: u32) -> f32 {
        let at = self.row * self.params.stride as u64 + column as u64;
        // SAFETY: the caller's promise.
        V::weight_to_f32(unsafe { V::weight(Global::<V::Feature>::new(self.params.scores).at(at)) })
    }

    /// What it should give.
    ///
    /// # Safety
    /// The row is there, and the column, and there are targets.
    #[inline(always)]
    unsafe fn target(&self, column: u32) -> f32 {
        let at = self.row * self.params.target_stride as u64 + column as u64;
        // SAFETY: the caller's promise.
        unsafe { Global::<f32>::new(self.params.targets).at(at).read() }
    }
}
