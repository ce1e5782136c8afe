//! Losses of single elements, and counts of labels: a sub-warp a row, whose lanes take its vectors in turn.

use super::policy::ElementLoss;
use super::rows::{Row, add_floats, for_rows, leave, scale};
use crate::device::global::{Global, count_one};
use crate::device::registers::unroll;
use crate::device::vector::{Floats, Vector};
use crate::device::warp;
use core::marker::PhantomData;
use halfgnn_contract::loss::{LossParams, NO_TARGET, OUTCOMES};

/// # Safety
/// The launch contract of [`LossParams`]: `ctas` CTAs of `rows_per_cta` rows.
#[inline(always)]
pub unsafe fn loss<V: Vector, L: ElementLoss>(loss: L, _: PhantomData<V>, params: &LossParams) {
    let mut total = 0.0;
    let gradient = Global::<V::Bits>::new(params.gradient);
    // SAFETY: every lane of the warp comes with the same number of rows; elements below `columns` have a target.
    unsafe {
        let factor = scale(params) / params.divisor;
        for_rows(params, |place| {
            let selected = place.word(params.labels) != NO_TARGET;
            let weight = place.weight(params);
            let factor = factor * weight;
            let row = Row::<V>::new(params, &place);
            row.for_each_vector(|at, vector| {
                let mut values = V::Floats::ZERO;
                if selected {
                    let logits = row.load(at);
                    // By hand: the compiler leaves a loop of logarithms rolled, and the values in local memory.
                    unroll!(i in 0..V::WIDTH => {
                        let column = vector * V::WIDTH + i;
                        if column < params.columns {
                            let (term, slope) =
                                loss.of(params, column, logits.get(i as usize), row.target(column));
                            total += term * weight;
                            values = values.with(i as usize, slope * factor);
                        }
                    });
                }
                gradient.at(at).store(V::narrow(values).to_bits());
            });
        });
        leave(params, [warp::sum(total).to_bits(), 0, 0, 0], add_floats);
    }
}

/// # Safety
/// The launch contract of [`LossParams`]: `ctas` CTAs of `rows_per_cta` rows.
#[inline(always)]
pub unsafe fn count_labels<V: Vector>(params: &LossParams) {
    // SAFETY: elements below `columns` have a target and counts.
    unsafe {
        for_rows(params, |place| {
            let split = place.word(params.splits);
            let row = Row::<V>::new(params, &place);
            if split >= 3 {
                return;
            }
            row.for_each_vector(|at, vector| {
                let logits = row.load(at);
                let mut i = 0;
                while i < V::WIDTH {
                    let column = vector * V::WIDTH + i;
                    if column < params.columns {
                        let told = logits.get(i as usize) > 0.0;
                        let has = row.target(column) > 0.5;
                        let outcome = if told {
                            if has { 0 } else { 1 }
                        } else if has {
                            2
                        } else {
                            OUTCOMES
                        };
                        if outcome < OUTCOMES {
                            count_one(row.outcome(split, column, outcome));
                        }
                    }
                    i += 1;
                }
            });
        });
    }
}
