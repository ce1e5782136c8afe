//! A stable radix sort, least significant digit first, and prefix sums.

use super::{ExclusiveSumOperands, GroupPairsOperands, SortOperators, SortPairsOperands};
use crate::backend::cpu::Cpu;
use crate::error::Error;
use crate::ops::Checked;
use halfgnn_graph::parallel;
use rayon::prelude::*;

/// Bits of a digit: the next places of all of its values lie in the first-level cache.
const DIGIT_BITS: u32 = 11;

/// The fewest pairs that a thread distributes.
const MIN_PAIRS: usize = 1 << 15;

/// A digit of keys, which are the high words of pairs.
#[derive(Clone, Copy)]
struct Digit {
    shift: u32,
    bits: u32,
}

impl Digit {
    fn of(self, pair: u64) -> usize {
        (pair >> self.shift) as usize & ((1 << self.bits) - 1)
    }

    /// Puts pairs in the order of the digit, those of the same digit in the order that they have. Pairs that all have
    /// one digit stay, and it says so.
    ///
    /// Each chunk of pairs has a slice of its own for each digit, so that threads write side by side.
    fn distribute(self, pairs: &[u64], sorted: &mut [u64]) -> bool {
        let chunks = rayon::current_num_threads().min(pairs.len().div_ceil(MIN_PAIRS));
        let chunk = pairs.len().div_ceil(chunks.max(1)).max(1);
        let counts = parallel::map(parallel::chunks(pairs, chunk), |_, pairs| {
            let mut counts = vec![0_usize; 1 << self.bits];
            pairs.iter().for_each(|&pair| counts[self.of(pair)] += 1);
            counts
        });
        let first = pairs.first().map_or(0, |&pair| self.of(pair));
        if counts.iter().map(|counts| counts[first]).sum::<usize>() == pairs.len() {
            return false;
        }
        let mut places: Vec<Vec<std::slice::IterMut<'_, u64>>> = counts
            .iter()
            .map(|_| Vec::with_capacity(1 << self.bits))
            .collect();
        let mut left = sorted;
        for digit in 0..1 << self.bits {
            for (counts, places) in counts.iter().zip(&mut places) {
                let slice = left.split_off_mut(..counts[digit]).unwrap_or_default();
                places.push(slice.iter_mut());
            }
        }
        let work = (parallel::chunks(pairs, chunk), &mut *places);
        parallel::for_each(work, |_, (pairs, places)| {
            for &pair in pairs {
                // There is a place for each pair that was counted.
                if let Some(place) = places[self.of(pair)].next() {
                    *place = pair;
                }
            }
        });
        true
    }
}

impl SortOperators for Cpu {
    fn sort_pairs(&self, operands: Checked<SortPairsOperands<'_, Self>>) -> Result<(), Error> {
        let of = operands.into_inner();
        let keys = of.keys.buffer.read();
        let keys: &[u32] = &keys;
        let values = of.values.map(|values| values.buffer.read());
        let value = |at: usize| values.as_ref().map_or(at as u32, |values| values[at]);
        let mask = ((1_u64 << of.bits) - 1) as u32;
        let sorted = (
            of.sorted_keys.buffer.get_mut(),
            of.sorted_values.buffer.get_mut(),
        );
        if keys
            .par_windows(2)
            .all(|two| two[0] & mask <= two[1] & mask)
        {
            parallel::for_each(sorted, |at, (sorted_key, sorted_value)| {
                (*sorted_key, *sorted_value) = (keys[at], value(at));
            });
            return Ok(());
        }
        let mut pairs = vec![0_u64; keys.len()];
        parallel::for_each(&mut *pairs, |at, pair| {
            *pair = u64::from(keys[at]) << 32 | u64::from(value(at));
        });
        let mut other = vec![0_u64; pairs.len()];
        for shift in (0..of.bits).step_by(DIGIT_BITS as usize) {
            let digit = Digit {
                shift: 32 + shift,
                bits: DIGIT_BITS.min(of.bits - shift),
            };
            if digit.distribute(&pairs, &mut other) {
                std::mem::swap(&mut pairs, &mut other);
            }
        }
        parallel::for_each((sorted, &*pairs), |_, ((key, value), &pair)| {
            (*key, *value) = ((pair >> 32) as u32, pair as u32);
        });
        Ok(())
    }

    fn group_pairs(&self, operands: Checked<GroupPairsOperands<'_, Self>>) -> Result<(), Error> {
        let of = operands.into_inner();
        let (keys, values) = (of.keys.buffer.read(), of.values.buffer.read());
        let firsts = of.firsts.buffer.get_mut();
        let groups = firsts.len() - 1;
        let group_of = |pair: usize| Some(keys[pair] as usize).filter(|&key| key < groups);
        firsts.fill(0);
        (0..keys.len())
            .filter_map(group_of)
            .for_each(|group| firsts[group + 1] += 1);
        for group in 0..groups {
            firsts[group + 1] += firsts[group];
        }
        let (sorted_keys, sorted_values) = (
            of.sorted_keys.buffer.get_mut(),
            of.sorted_values.buffer.get_mut(),
        );
        sorted_keys.fill(u32::MAX);
        sorted_values.fill(u32::MAX);
        let mut next = firsts.to_vec();
        for pair in 0..keys.len() {
            if let Some(group) = group_of(pair) {
                let place = next[group] as usize;
                next[group] += 1;
                (sorted_keys[place], sorted_values[place]) = (keys[pair], values[pair]);
            }
        }
        Ok(())
    }

    fn exclusive_sum(
        &self,
        operands: Checked<ExclusiveSumOperands<'_, Self>>,
    ) -> Result<(), Error> {
        let ExclusiveSumOperands { words, sums } = operands.into_inner();
        let mut before = 0_u32;
        for (sum, word) in sums.buffer.get_mut().iter_mut().zip(&*words.buffer.read()) {
            *sum = before;
            before = before.wrapping_add(*word);
        }
        Ok(())
    }
}
