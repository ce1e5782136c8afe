//! Order and prefix sums: one to three launches a scan, and two more a digit.

use super::{ExclusiveSumOperands, SortOperators, SortPairsOperands};
use crate::backend::gpu::{Gpu, linear_config, narrow};
use crate::driver::{Driver, LaunchConfig};
use crate::error::Error;
use crate::ops::Checked;
use halfgnn_contract::DevicePtr;
use halfgnn_contract::scan::{self, ScanParams};
use halfgnn_contract::sort::{self as contract, SortParams};

/// Entries of a scan.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Scan {
    /// Sums of CTAs.
    pub sums: &'static str,
    /// What is done with the prefixes.
    pub scan: &'static str,
}

/// Prefix sums of words.
pub(crate) const WORDS: Scan = Scan {
    sums: "scan_sums_of_words",
    scan: "scan_words",
};

/// Ranks of words of bits.
pub(crate) const STARTS: Scan = Scan {
    sums: "scan_sums_of_starts",
    scan: "scan_starts",
};

/// Words of the workspace in which a card sorts so many pairs.
pub fn sort_workspace(pairs: u64) -> u64 {
    let ctas = contract::ctas(u32::try_from(pairs).unwrap_or(u32::MAX));
    let counts = contract::count_words(ctas, contract::MOST_DIGIT_BITS);
    counts + scan::partial_words(counts) + 2 * pairs
}

impl<D: Driver> SortOperators for Gpu<D> {
    fn sort_pairs(&self, operands: Checked<SortPairsOperands<'_, Self>>) -> Result<(), Error> {
        const NAME: &str = "sort_pairs";
        let of = operands.into_inner();
        let pairs = narrow(NAME, "pairs", of.keys.len())?;
        let ctas = contract::ctas(pairs);
        let passes = contract::passes(of.bits);
        let counts = contract::count_words(ctas, contract::MOST_DIGIT_BITS);
        let words = u64::from(pairs);
        let workspace = self.lend(sort_workspace(words))?;
        let at = |words: u64| DevicePtr::new(workspace.address() + words * 4);
        let (counts_at, partials) = (at(0), at(counts));
        let between = counts + scan::partial_words(counts);
        // Passes take turns so that the last one writes the result.
        let places = [
            (self.array(of.sorted_keys)?, self.array(of.sorted_values)?),
            (at(between), at(between + words)),
        ];
        let mut from = (self.array(of.keys)?, self.optional_array(of.values)?);
        let (threads, shared_bytes) = (contract::THREADS_PER_CTA, contract::SHARED_BYTES);
        let config = linear_config(NAME, ctas.into(), threads, shared_bytes)?;
        for pass in 0..passes {
            let to = places[((passes - 1 - pass) % 2) as usize];
            let (shift, digit_bits) = contract::digit(of.bits, pass);
            let params = SortParams {
                keys: from.0,
                values: from.1,
                sorted_keys: to.0,
                sorted_values: to.1,
                counts: counts_at,
                pairs,
                ctas,
                shift,
                digit_bits,
                pairs_per_lane: contract::pairs_per_lane(pairs),
                unused: 0,
            };
            let counts = ScanParams {
                words: counts_at,
                partials,
                result: counts_at,
                ..no_items(contract::count_words(ctas, digit_bits))
            };
            // SAFETY: the operator checked that all four arrays are of one length, the workspace has the counts, their partial
            // sums and room for the pairs, and no pass reads what it writes: the operands are apart as Rust has it.
            unsafe {
                self.launch("sort_count", config, &params)?;
                self.scan(WORDS, &counts)?;
                self.launch("sort_move", config, &params)?;
            }
            from = to;
        }
        Ok(())
    }

    fn exclusive_sum(
        &self,
        operands: Checked<ExclusiveSumOperands<'_, Self>>,
    ) -> Result<(), Error> {
        let ExclusiveSumOperands { words, sums } = operands.into_inner();
        let items = words.len() as u64;
        let workspace = self.lend(scan::partial_words(items))?;
        let params = ScanParams {
            words: self.array(words)?,
            partials: DevicePtr::new(workspace.address()),
            result: self.array(sums)?,
            ..no_items(items)
        };
        // SAFETY: the operator checked that there is a sum a word; the workspace has the partial sums.
        unsafe { self.scan(WORDS, &params) }
    }
}

/// A scan of `items` items that lie nowhere yet.
pub(crate) const fn no_items(items: u64) -> ScanParams {
    ScanParams {
        words: DevicePtr::NULL,
        offsets: DevicePtr::NULL,
        starts: DevicePtr::NULL,
        partials: DevicePtr::NULL,
        result: DevicePtr::NULL,
        empty_rows: DevicePtr::NULL,
        items,
        added: 0,
        unused: 0,
    }
}

impl<D: Driver> Gpu<D> {
    /// A scan whole.
    ///
    /// # Safety
    /// `params` are as their page asks for, and `of` is of that kind of items.
    pub(crate) unsafe fn scan(&self, of: Scan, params: &ScanParams) -> Result<(), Error> {
        let config = scan_config(params.items)?;
        // SAFETY: the caller's promise.
        unsafe {
            match scan::ctas(params.items) {
                0 | 1 => {}
                2..=scan::MOST_ADDED => self.launch(of.sums, config, params)?,
                _ => {
                    self.scan_sums(of, params)?;
                    return self.scan_added(of, params);
                }
            }
            self.launch(of.scan, config, params)
        }
    }

    /// The last launch of a scan, behind [`Gpu::scan_sums`].
    ///
    /// # Safety
    /// As [`Gpu::scan`].
    pub(crate) unsafe fn scan_added(&self, of: Scan, params: &ScanParams) -> Result<(), Error> {
        let params = ScanParams {
            added: 1,
            ..*params
        };
        // SAFETY: the caller's promise.
        unsafe { self.launch(of.scan, scan_config(params.items)?, &params) }
    }

    /// The first two launches of a scan: the partial sums are then added, and the last of them is the sum of all.
    ///
    /// # Safety
    /// As [`Gpu::scan`].
    pub(crate) unsafe fn scan_sums(&self, of: Scan, params: &ScanParams) -> Result<(), Error> {
        let config = scan_config(params.items)?;
        let one = LaunchConfig {
            grid: [1, 1, 1],
            ..config
        };
        // SAFETY: the caller's promise.
        unsafe {
            self.launch(of.sums, config, params)?;
            self.launch("scan_partials", one, params)
        }
    }
}

/// The launch of a scan's items.
fn scan_config(items: u64) -> Result<LaunchConfig, Error> {
    let (threads, shared_bytes) = (scan::THREADS_PER_CTA, scan::SHARED_BYTES);
    linear_config("exclusive_sum", scan::ctas(items), threads, shared_bytes)
}
