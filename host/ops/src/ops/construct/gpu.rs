//! What a graph is made of, by kernels: a thread an edge, a row or a word.

use super::{
    ConstructOperators, DegreeFactorsOperands, RowIdsOperands, RowIndex, RowIndexOperands,
    RowOffsetsOperands, TakeWordsOperands,
};
use crate::backend::MemoryKind;
use crate::backend::gpu::{Gpu, linear_config};
use crate::driver::{Driver, LaunchConfig};
use crate::error::Error;
use crate::graph::Starts;
use crate::ops::Checked;
use crate::ops::sort::{STARTS, Scan, no_items};
use crate::tensor::{Array, Element, Precision};
use bytemuck::Pod;
use halfgnn_contract::DevicePtr;
use halfgnn_contract::construct::{self as contract, ConstructParams, DegreeParams};
use halfgnn_contract::scan::{self, ScanParams};

/// Lists of rows.
const ROWS: Scan = Scan {
    sums: "scan_sums_of_rows",
    scan: "scan_rows",
};

const NOTHING: ConstructParams = ConstructParams {
    rows: DevicePtr::NULL,
    offsets: DevicePtr::NULL,
    starts: DevicePtr::NULL,
    words: DevicePtr::NULL,
    order: DevicePtr::NULL,
    result: DevicePtr::NULL,
    row_count: 0,
    edges: 0,
    words_len: 0,
    results: 0,
};

fn config(ctas: u64, shared_bytes: u32) -> Result<LaunchConfig, Error> {
    linear_config("construct", ctas, contract::THREADS_PER_CTA, shared_bytes)
}

impl<D: Driver> ConstructOperators for Gpu<D> {
    fn row_ids(&self, operands: Checked<RowIdsOperands<'_, Self>>) -> Result<(), Error> {
        let RowIdsOperands { offsets, ids } = operands.into_inner();
        let params = ConstructParams {
            rows: self.array(ids)?,
            offsets: self.array(offsets)?,
            row_count: offsets.len() as u64 - 1,
            edges: ids.len() as u64,
            ..NOTHING
        };
        let config = config(contract::ctas(params.edges), 8)?;
        // SAFETY: the operator checked that there is an offset more than rows; a search ends among them whatever they
        // are.
        unsafe { self.launch("row_ids", config, &params) }
    }

    fn row_offsets(&self, operands: Checked<RowOffsetsOperands<'_, Self>>) -> Result<(), Error> {
        let RowOffsetsOperands { ids, offsets } = operands.into_inner();
        let params = ConstructParams {
            rows: self.array(ids)?,
            offsets: self.array(offsets)?,
            row_count: offsets.len() as u64 - 1,
            edges: ids.len() as u64,
            ..NOTHING
        };
        let config = config(contract::ctas(offsets.len() as u64), 0)?;
        // SAFETY: as above, among the edges.
        unsafe { self.launch("row_offsets", config, &params) }
    }

    fn take_words(&self, operands: Checked<TakeWordsOperands<'_, Self>>) -> Result<(), Error> {
        self.take("take_words", operands.into_inner())
    }

    fn take_values<E: Element>(
        &self,
        operands: Checked<TakeWordsOperands<'_, Self, E>>,
    ) -> Result<(), Error> {
        let name = match E::PRECISION {
            Precision::Float => "take_words",
            Precision::Half | Precision::BFloat16 => "take_halfwords",
        };
        self.take(name, operands.into_inner())
    }

    fn row_index(
        &self,
        operands: Checked<RowIndexOperands<'_, Self>>,
    ) -> Result<RowIndex<Self>, Error> {
        let RowIndexOperands { ids, offsets } = operands.into_inner();
        let (rows, edges) = (offsets.len() - 1, ids.len());
        let kind = MemoryKind::Graph;
        let longest_row = self.largest(
            "longest_row",
            ConstructParams {
                offsets: self.array(offsets)?,
                row_count: rows as u64,
                ..NOTHING
            },
            rows,
        )?;

        let sums_len = scan::partial_words(rows as u64) as usize;
        let sums = Array::<Self, u32>::zeros(self, sums_len, MemoryKind::Workspace)?;
        let of_rows = ScanParams {
            offsets: self.array(offsets)?,
            partials: self.array(&sums)?,
            ..no_items(rows as u64)
        };
        // SAFETY: there is an offset more than rows, and a partial sum a CTA and one.
        unsafe { self.scan_sums(ROWS, &of_rows)? };
        let filled = sums.to_vec(self)?.last().map_or(0, |&sum| sum as usize);
        let filled_rows = Array::zeros(self, Starts::filled(filled), kind)?;
        let empty_rows = Array::zeros(self, rows - filled, kind)?;
        let of_rows = ScanParams {
            result: self.array(&filled_rows)?,
            empty_rows: self.array(&empty_rows)?,
            ..of_rows
        };
        // SAFETY: the lists are as long as the same offsets were counted to be.
        unsafe { self.scan_added(ROWS, &of_rows)? };

        let words = Starts::words(edges);
        let starts = Array::zeros(self, words, kind)?;
        let params = ConstructParams {
            rows: self.array(ids)?,
            starts: self.array(&starts)?,
            edges: edges as u64,
            results: words as u64,
            ..NOTHING
        };
        let workspace = self.lend(scan::partial_words(words as u64))?;
        let of_starts = ScanParams {
            starts: params.starts,
            partials: DevicePtr::new(workspace.address()),
            ..no_items(words as u64)
        };
        // SAFETY: a word of starts for each 32 edges and the end, which were just made; a partial sum a CTA and one.
        unsafe {
            let config = config(contract::start_ctas(words as u64), 0)?;
            self.launch("row_starts", config, &params)?;
            // In three launches of small graphs too, which what was recorded of a GPU then stands for.
            self.scan_sums(STARTS, &of_starts)?;
            self.scan_added(STARTS, &of_starts)?;
        }
        Ok(RowIndex {
            starts,
            filled_rows,
            empty_rows,
            longest_row,
        })
    }

    fn largest_word(&self, words: &Array<Self, u32>) -> Result<u32, Error> {
        let params = ConstructParams {
            words: self.array(words)?,
            words_len: words.len() as u64,
            ..NOTHING
        };
        self.largest("largest_word", params, words.len())
    }

    fn degree_factors(
        &self,
        operands: Checked<DegreeFactorsOperands<'_, Self>>,
    ) -> Result<(), Error> {
        let of = operands.into_inner();
        let params = DegreeParams {
            offsets: self.array(of.offsets)?,
            factors: self.array(of.factors)?,
            row_count: of.factors.len() as u64,
            power: of.power.word(),
            unused: 0,
        };
        let config = config(contract::ctas(params.row_count), 0)?;
        // SAFETY: the operator checked that there is an offset more than factors.
        unsafe { self.launch("degree_factors", config, &params) }
    }
}

impl<D: Driver> Gpu<D> {
    /// What an order picks, by the entry for numbers of that width.
    fn take<T: Pod + Send + Sync>(
        &self,
        entry: &'static str,
        of: TakeWordsOperands<'_, Self, T>,
    ) -> Result<(), Error> {
        let params = ConstructParams {
            words: self.array(of.words)?,
            order: self.array(of.order)?,
            result: self.array(of.taken)?,
            words_len: of.words.len() as u64,
            results: of.taken.len() as u64,
            ..NOTHING
        };
        let config = config(contract::ctas(params.results), 0)?;
        // SAFETY: the operator checked that there is a result for each of the order, and the entry is for numbers of
        // `T`'s width; the kernel looks at the length of words.
        unsafe { self.launch(entry, config, &params) }
    }

    /// The largest of the numbers that an entry looks at.
    fn largest(
        &self,
        entry: &'static str,
        params: ConstructParams,
        numbers: usize,
    ) -> Result<u32, Error> {
        let ctas = contract::largest_ctas(numbers as u64);
        let of_ctas = Array::<Self, u32>::zeros(self, ctas as usize, MemoryKind::Workspace)?;
        let params = ConstructParams {
            result: self.array(&of_ctas)?,
            results: ctas,
            ..params
        };
        let config = config(ctas, contract::LARGEST_SHARED_BYTES)?;
        // SAFETY: a word a CTA; what is looked at was made by the callers above, with its length.
        unsafe { self.launch(entry, config, &params)? };
        Ok(of_ctas.to_vec(self)?.into_iter().max().unwrap_or(0))
    }
}
