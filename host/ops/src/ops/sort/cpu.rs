//! A stable sort, and prefix sums, by the standard library and rayon.

use super::{ExclusiveSumOperands, GroupPairsOperands, SortOperators, SortPairsOperands};
use crate::backend::cpu::Cpu;
use crate::error::Error;
use crate::ops::Checked;
use halfgnn_graph::parallel;
use rayon::prelude::*;

impl SortOperators for Cpu {
    fn sort_pairs(&self, operands: Checked<SortPairsOperands<'_, Self>>) -> Result<(), Error> {
        let of = operands.into_inner();
        let keys = of.keys.buffer.read();
        let mask = ((1_u64 << of.bits) - 1) as u32;
        let mut order: Vec<u32> = (0..keys.len() as u32).collect();
        order.par_sort_by_key(|&at| keys[at as usize] & mask);
        let values = of.values.map(|values| values.buffer.read());
        let sorted = (
            of.sorted_keys.buffer.get_mut(),
            of.sorted_values.buffer.get_mut(),
        );
        parallel::for_each((sorted, &*order), |_, ((key, value), &at)| {
            *key = keys[at as usize];
            *value = values.as_ref().map_or(at, |values| values[at as usize]);
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
