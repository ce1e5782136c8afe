//! What a graph is made of, as the host makes it.

use super::{
    ConstructOperators, DegreeFactorsOperands, RowIdsOperands, RowIndex, RowIndexOperands,
    RowOffsetsOperands, TakeWordsOperands,
};
use crate::backend::MemoryKind;
use crate::backend::cpu::Cpu;
use crate::error::Error;
use crate::graph::Starts;
use crate::ops::Checked;
use crate::tensor::{Array, Element};
use bytemuck::Pod;
use halfgnn_contract::construct::degree_factor;
use halfgnn_graph::parallel;

/// Edges whose rows are found one after the other.
const CHUNK_EDGES: usize = 1 << 12;

impl ConstructOperators for Cpu {
    const WALKS_ROWS: bool = true;

    fn row_ids(&self, operands: Checked<RowIdsOperands<'_, Self>>) -> Result<(), Error> {
        let RowIdsOperands { offsets, ids } = operands.into_inner();
        let offsets = offsets.buffer.read();
        let chunks = parallel::chunks_mut(ids.buffer.get_mut(), CHUNK_EDGES);
        parallel::for_each(chunks, |chunk, ids| {
            let first = chunk * CHUNK_EDGES;
            let mut row = offsets[1..].partition_point(|&end| end <= first as u64);
            for (edge, id) in (first as u64..).zip(ids) {
                while offsets.get(row + 1).is_some_and(|&end| end <= edge) {
                    row += 1;
                }
                *id = row as u32;
            }
        });
        Ok(())
    }

    fn row_offsets(&self, operands: Checked<RowOffsetsOperands<'_, Self>>) -> Result<(), Error> {
        let RowOffsetsOperands { ids, offsets } = operands.into_inner();
        let ids = ids.buffer.read();
        parallel::for_each(offsets.buffer.get_mut(), |row, first| {
            *first = ids.partition_point(|&id| u64::from(id) < row as u64) as u64;
        });
        Ok(())
    }

    fn take_words(&self, operands: Checked<TakeWordsOperands<'_, Self>>) -> Result<(), Error> {
        take(operands.into_inner());
        Ok(())
    }

    fn take_values<E: Element>(
        &self,
        operands: Checked<TakeWordsOperands<'_, Self, E>>,
    ) -> Result<(), Error> {
        take(operands.into_inner());
        Ok(())
    }

    fn row_index(
        &self,
        operands: Checked<RowIndexOperands<'_, Self>>,
    ) -> Result<RowIndex<Self>, Error> {
        let RowIndexOperands { offsets, .. } = operands.into_inner();
        let offsets = offsets.buffer.read();
        let starts = Starts::of_offsets(&offsets);
        let lengths = offsets.windows(2).map(|ends| ends[1] - ends[0]);
        let empty: Vec<u32> = (0..)
            .zip(lengths.clone())
            .filter(|&(_, length)| length == 0)
            .map(|(row, _)| row)
            .collect();
        let upload = |words: &[u32]| Array::from_slice(self, words, MemoryKind::Graph);
        Ok(RowIndex {
            starts: Array::from_slice(self, &starts.words, MemoryKind::Graph)?,
            filled_rows: upload(&starts.filled)?,
            empty_rows: upload(&empty)?,
            longest_row: lengths.max().unwrap_or(0) as u32,
        })
    }

    fn largest_word(&self, words: &Array<Self, u32>) -> Result<u32, Error> {
        Ok(words.buffer.read().iter().copied().max().unwrap_or(0))
    }

    fn degree_factors(
        &self,
        operands: Checked<DegreeFactorsOperands<'_, Self>>,
    ) -> Result<(), Error> {
        let of = operands.into_inner();
        let offsets = of.offsets.buffer.read();
        let degrees = offsets.windows(2).map(|ends| ends[1] - ends[0]);
        let factors = of.factors.buffer.get_mut().iter_mut();
        factors.zip(degrees).for_each(|(factor, degree)| {
            *factor = degree_factor(degree, of.power.word(), f32::sqrt);
        });
        Ok(())
    }
}

/// What an order picks, zeros where there is nothing.
fn take<T: Pod + Send + Sync>(of: TakeWordsOperands<'_, Cpu, T>) {
    let (words, order) = (of.words.buffer.read(), of.order.buffer.read());
    let taken = (of.taken.buffer.get_mut(), &*order);
    parallel::for_each(taken, |_, (taken, &at)| {
        *taken = words.get(at as usize).copied().unwrap_or(T::zeroed());
    });
}
