//! Cross-entropy of the log-softmax with its gradient: a sub-warp a row, whose lanes take its vectors in turn.
//!
//! What a row needs once (its label, its weight, a logarithm) a lane does for a row of its own, as many rows at a time as the
//! sub-warp has lanes.

use super::policy::RowWeight;
use super::rows::{add_floats, leave, scale};
use crate::device::float;
use crate::device::global::Global;
use crate::device::registers::recomputed;
use crate::device::thread::{block_idx_x, thread_idx_x};
use crate::device::vector::{Floats, Vector};
use crate::device::warp::{self, Shuffle, all, lane_id, shuffle_idx};
use core::marker::PhantomData;
use halfgnn_contract::elementwise::THREADS_PER_CTA;
use halfgnn_contract::loss::{LossParams, NO_TARGET};
use halfgnn_contract::math::{exp_nonpositive_by, ln};
use halfgnn_contract::{DevicePtr, HalfBits, VECTOR_BYTES, WARP};

/// # Safety
/// The launch contract of [`LossParams`]: `ctas` CTAs of `rows_per_cta` rows.
#[inline(always)]
pub unsafe fn cross_entropy<V: Vector<Bits = [u32; 4]>, W: RowWeight>(
    weight: W,
    _: PhantomData<V>,
    params: &LossParams,
) {
    // SAFETY: the caller's promise; all lanes take the same way, that of the number of lanes that share a row.
    unsafe {
        let total = if params.vectors > WARP {
            SubWarp::<V, WARP, true>::new(params).loss(weight)
        } else {
            match params.lanes_log2 {
                0 => SubWarp::<V, 1, false>::new(params).loss(weight),
                1 => SubWarp::<V, 2, false>::new(params).loss(weight),
                2 => SubWarp::<V, 4, false>::new(params).loss(weight),
                3 => SubWarp::<V, 8, false>::new(params).loss(weight),
                4 => SubWarp::<V, 16, false>::new(params).loss(weight),
                _ => SubWarp::<V, WARP, false>::new(params).loss(weight),
            }
        };
        leave(params, [warp::sum(total).to_bits(), 0, 0, 0], add_floats);
    }
}

/// The rows of a sub-warp of `LANES` as one lane sees them. `LONG`: there are rows of more vectors than lanes.
struct SubWarp<'a, V, const LANES: u32, const LONG: bool> {
    params: &'a LossParams,
    lane: u32,
    /// The first row.
    first: u64,
    /// Rows that it goes through, as many as any other sub-warp.
    rounds: u32,
    /// Those of them that there are.
    rows: u32,
    vector: PhantomData<V>,
}

impl<'a, V: Vector<Bits = [u32; 4]>, const LANES: u32, const LONG: bool>
    SubWarp<'a, V, LANES, LONG>
{
    /// Sub-warps of the CTA: the distance of a sub-warp's rows.
    const COUNT: u32 = THREADS_PER_CTA / LANES;

    #[inline(always)]
    fn new(params: &'a LossParams) -> Self {
        let first =
            block_idx_x() as u64 * params.rows_per_cta as u64 + (thread_idx_x() / LANES) as u64;
        let rounds = params.rows_per_cta / Self::COUNT;
        let rows = (params.rows + (Self::COUNT - 1) as u64).saturating_sub(first);
        Self {
            params,
            lane: thread_idx_x() % LANES,
            first,
            rounds,
            rows: (rows / Self::COUNT as u64).min(rounds as u64) as u32,
            vector: PhantomData,
        }
    }

    /// Row `round` of the sub-warp.
    #[inline(always)]
    fn row(&self, round: u32) -> u64 {
        self.first + round as u64 * Self::COUNT as u64
    }

    /// Writes the gradients and returns the losses, in one lane of the sub-warp.
    ///
    /// # Safety
    /// The launch contract; all lanes of the warp come together, each with as many `rounds`.
    #[inline(always)]
    unsafe fn loss<W: RowWeight>(&self, weight: W) -> f32 {
        let params = self.params;
        // SAFETY: `round` is one that all lanes are in; rows below `rows` are rows of the matrix.
        unsafe {
            let factor = scale(params) / params.divisor;
            let mask = self.mask(self.lane);
            // A row that is not there has the place of the last that is, and a lane without a vector that of the last.
            let row = self.first.min(params.rows.saturating_sub(1));
            let vector = self.lane.min(params.vectors - 1);
            let row_bytes = params.vectors as u64 * VECTOR_BYTES as u64;
            let mut at = row * row_bytes + (vector * VECTOR_BYTES) as u64;
            let step = Self::COUNT as u64 * row_bytes;
            let stored = if self.lane < params.vectors {
                self.rows
            } else {
                0
            };
            let mut total = 0.0;
            let mut round = 0;
            while round < self.rounds {
                let own = OwnRow::new(self, weight, round + self.lane);
                let own_factor = factor * own.weight;
                let (mut own_sum, mut own_max) = (1.0, 0.0);
                let end = if self.rounds - round < LANES {
                    self.rounds
                } else {
                    round + LANES
                };
                let mut lane = 0;
                while round < end {
                    let target = self.shuffle(own.target, lane);
                    let place = Place {
                        at,
                        stored: round < stored,
                    };
                    // Few vertices of a graph have a label to train on, and most warps none at all.
                    if all(target == NO_TARGET) {
                        self.clear(place);
                    } else {
                        let factor = self.shuffle(own_factor, lane);
                        let (sum, max) = self.gradient(place, mask, target, factor);
                        if self.lane == lane {
                            (own_sum, own_max) = (sum, max);
                        }
                    }
                    lane += 1;
                    round += 1;
                    at += if round < self.rows { step } else { 0 };
                }
                if !all(own.target == NO_TARGET) {
                    let loss = own.loss(self, own_sum, own_max);
                    let mut lane = 0;
                    while lane < LANES {
                        // As many numbers of lanes would be kept in registers.
                        total += self.shuffle(loss, recomputed(lane));
                        lane += 1;
                    }
                }
            }
            if self.lane == 0 { total } else { 0.0 }
        }
    }

    /// Writes the gradient of a row without a label.
    ///
    /// # Safety
    /// The launch contract.
    #[inline(always)]
    unsafe fn clear(&self, place: Place) {
        if place.stored {
            // SAFETY: vectors of the row, the lane's own.
            self.for_each(place, |place, _| unsafe {
                place.of(self.params.gradient).store([0; 4])
            });
        }
    }

    /// Writes the gradient of a row, and returns the sum of its exponentials and its largest logit.
    ///
    /// # Safety
    /// The launch contract; all lanes of the warp come together.
    #[inline(always)]
    unsafe fn gradient(
        &self,
        place: Place,
        mask: [u32; 4],
        target: u32,
        factor: f32,
    ) -> (f32, f32) {
        // SAFETY: places are vectors of the matrix, those that are stored the lane's own.
        unsafe {
            // A lane's only vector stays in registers.
            let only = (!LONG).then(|| self.load(place, mask));
            let load = |place, vector| match only {
                Some(logits) => logits,
                None => self.load(place, self.mask(vector)),
            };
            let mut largest = V::lowest();
            self.for_each(place, |place, vector| {
                largest = largest.max(load(place, vector));
            });
            let max = warp::combine(largest.largest(), LANES, float::max);
            let exponentials = |logits: V| {
                let exp = |logit| exp_nonpositive_by(logit - max, float::mul_add);
                logits.widen().map(exp)
            };
            let only = only.map(exponentials);
            let exponentials = |place, vector| match only {
                Some(exponentials) => exponentials,
                None => exponentials(load(place, vector)),
            };
            // The sum of no number is −0, to which 0 may be added.
            let mut sum = -0.0;
            self.for_each(place, |place, vector| {
                sum = add::<V>(sum, exponentials(place, vector));
            });
            let sum = warp::combine(sum, LANES, |a, b| a + b);
            let reciprocal = 1.0 / sum;
            if place.stored && target == NO_TARGET {
                self.clear(place);
            } else if place.stored {
                self.for_each(place, |place, vector| {
                    let target = target.wrapping_sub(vector * V::WIDTH);
                    let mut values = exponentials(place, vector).map(|value| value * reciprocal);
                    let mut i = 0;
                    while i < V::WIDTH {
                        if i == target {
                            values = values.with(i as usize, values.get(i as usize) - 1.0);
                        }
                        i += 1;
                    }
                    let [a, b, c, d] = V::narrow(values.map(|value| value * factor)).to_bits();
                    let [e, f, g, h] = if LONG { self.mask(vector) } else { mask };
                    place
                        .of(self.params.gradient)
                        .store([a & e, b & f, c & g, d & h]);
                });
            }
            (sum, max)
        }
    }

    /// Calls `f(place, vector of the row)` for the lane's vectors, the first of which is at `place`.
    #[inline(always)]
    fn for_each(&self, mut place: Place, mut f: impl FnMut(Place, u32)) {
        if !LONG {
            return f(place, self.lane);
        }
        let mut vector = self.lane;
        while vector < self.params.vectors {
            f(place, vector);
            place.at += (LANES * VECTOR_BYTES) as u64;
            vector += LANES;
        }
    }

    /// Which bits of a vector of a row are those of classes.
    #[inline(always)]
    fn mask(&self, vector: u32) -> [u32; 4] {
        let classes = self.params.columns.saturating_sub(vector * V::WIDTH);
        V::from_bits([u32::MAX; 4]).first(classes).to_bits()
    }

    /// The logits of a vector, −∞ where there is no class.
    ///
    /// # Safety
    /// `place` is a vector of the logits.
    #[inline(always)]
    unsafe fn load(&self, place: Place, mask: [u32; 4]) -> V {
        // SAFETY: the caller's promise; nothing writes logits during the launch.
        let mut words = unsafe { place.of(self.params.logits).read() };
        let lowest = V::lowest().to_bits();
        let mut i = 0;
        while i < 4 {
            words[i] = words[i] & mask[i] | lowest[i] & !mask[i];
            i += 1;
        }
        V::from_bits(words)
    }

    /// The value of lane `lane` of the sub-warp.
    ///
    /// # Safety
    /// All lanes of the warp come together.
    #[inline(always)]
    unsafe fn shuffle<T: Shuffle>(&self, value: T, lane: u32) -> T {
        if LANES == 1 {
            return value;
        }
        // SAFETY: the caller's promise.
        unsafe { shuffle_idx(value, lane_id() - self.lane + lane) }
    }
}

/// Where a vector of a row is.
#[derive(Clone, Copy)]
struct Place {
    /// Its first byte in the matrix.
    at: u64,
    /// Whether it is this row's and this lane's, and not only in its place.
    stored: bool,
}

impl Place {
    #[inline(always)]
    fn of(self, matrix: DevicePtr<HalfBits>) -> Global<[u32; 4]> {
        Global::cast(Global::<u8>::new(matrix).at(self.at))
    }
}

/// The row of which a lane does what is done once.
struct OwnRow {
    round: u32,
    target: u32,
    weight: f32,
}

impl OwnRow {
    /// Row `round` of the sub-warp.
    ///
    /// # Safety
    /// The launch contract.
    #[inline(always)]
    unsafe fn new<V: Vector<Bits = [u32; 4]>, W: RowWeight, const LANES: u32, const LONG: bool>(
        of: &SubWarp<V, LANES, LONG>,
        weight: W,
        round: u32,
    ) -> Self {
        let params = of.params;
        let at = of.row(round);
        let (mut target, mut row_weight) = (NO_TARGET, 1.0);
        // SAFETY: the row is there; there are a label and, where weights are given, a weight for each.
        unsafe {
            if round < of.rows {
                target = Global::<u32>::new(params.labels).at(at).read();
                let weights = Global::<f32>::new(params.row_weights);
                if !weights.is_null() {
                    row_weight = weights.at(at).read();
                }
            }
            Self {
                round,
                target,
                weight: weight.of(params, target) * row_weight,
            }
        }
    }

    /// The loss of the row, of which the exponentials have the sum `sum`; none of a row without a label.
    ///
    /// # Safety
    /// The launch contract.
    #[inline(always)]
    unsafe fn loss<V: Vector<Bits = [u32; 4]>, const LANES: u32, const LONG: bool>(
        &self,
        of: &SubWarp<V, LANES, LONG>,
        sum: f32,
        max: f32,
    ) -> f32 {
        let params = of.params;
        if self.target == NO_TARGET {
            return 0.0;
        }
        // A NaN, as of no probability, where there is no such class.
        let mut logit = f32::NAN;
        if self.target < params.columns {
            let first = of.row(self.round) * params.vectors as u64 * V::WIDTH as u64;
            let logits = Global::<V::Feature>::new(params.logits).at(first);
            // SAFETY: a logit of the row.
            logit = V::weight_to_f32(unsafe { V::weight(logits.at(self.target as u64)) });
        }
        (ln(sum) - (logit - max)) * self.weight
    }
}

/// `sum` and then a vector's elements, in order.
#[inline(always)]
fn add<V: Vector>(mut sum: f32, values: V::Floats) -> f32 {
    let mut i = 0;
    while i < V::WIDTH {
        sum += values.get(i as usize);
        i += 1;
    }
    sum
}
