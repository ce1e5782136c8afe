//! Order and prefix sums: one to three launches a scan, and two more a digit.

use super::{ExclusiveSumOperands, GroupPairsOperands, SortOperators, SortPairsOperands};
use crate::backend::gpu::{Gpu, linear_config, narrow};
use crate::driver::{Driver, LaunchConfig};
use crate::error::Error;
use crate::ops::{Checked, row_offsets, sort_pairs};
use halfgnn_contract::DevicePtr;
use halfgnn_contract::scan::{self, ScanParams};
use halfgnn_contract::sort::{self as contract, GroupParams, SortParams};

/// Entries of a scan.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Scan {
    /// Sums of CTAs.
    pub sums: &'static str,
    /// What is done with the prefixes.
    pub scan: &'static str,
}

/// First edges of vertices in a batch: the sums, and what is done of one CTA; else the scan is that of [`WORDS`].
pub(crate) const FIRST_EDGES: Scan = Scan {
    sums: "scan_sums_of_neighbors",
    scan: "scan_neighbors",
};

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

/// Words of the workspace in which a GPU sorts the given number of pairs.
fn sort_workspace(pairs: u64) -> u64 {
    let ctas = contract::ctas(u32::try_from(pairs).unwrap_or(u32::MAX));
    let counts = contract::count_words(ctas, contract::MOST_DIGIT_BITS);
    counts + scan::partial_words(counts) + 2 * pairs
}

/// Words of the workspace in which a GPU groups the given number of pairs.
pub fn group_workspace(pairs: u64, groups: u64) -> u64 {
    match grouped_by_counts(pairs) {
        Some(pairs) => GroupWorkspace::of(pairs, groups).words,
        None => sort_workspace(pairs),
    }
}

/// A number of pairs, if a count of each key groups them.
pub(crate) fn grouped_by_counts(pairs: u64) -> Option<u32> {
    let pairs = u32::try_from(pairs).ok();
    pairs.filter(|&pairs| pairs <= contract::MOST_GROUPED_PAIRS)
}

/// Where what grouping takes lies in the workspace, in words.
struct GroupWorkspace {
    /// Prefix sums of the groups' pairs, which lie at the beginning; behind them what a scan adds up.
    sums: u64,
    members: u64,
    long_groups: u64,
    words: u64,
}

impl GroupWorkspace {
    fn of(pairs: u32, groups: u64) -> Self {
        let sums = groups + 1;
        let members = sums + scan::partial_words(sums);
        let long_groups = members + u64::from(pairs);
        Self {
            sums,
            members,
            long_groups,
            words: long_groups + contract::long_group_words(pairs),
        }
    }
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
            // SAFETY: the operator checked that all four arrays are of one length, the workspace has the counts, their
            // partial sums and memory for the pairs, and no pass reads what it writes: the operands are apart as Rust
            // has it.
            unsafe {
                self.launch("sort_count", config, &params)?;
                self.scan(WORDS, &counts)?;
                self.launch("sort_move", config, &params)?;
            }
            from = to;
        }
        Ok(())
    }

    fn group_pairs(&self, operands: Checked<GroupPairsOperands<'_, Self>>) -> Result<(), Error> {
        const NAME: &str = "group_pairs";
        let of = operands.into_inner();
        let groups = narrow(NAME, "groups", of.firsts.len() - 1)?;
        let Some(pairs) = grouped_by_counts(of.keys.len() as u64) else {
            // Numbers that are no group's come last; those that were counted are groups or have all bits.
            let bits = match of.counted {
                true => contract::bits_below(u64::from(groups) + 1),
                false => u32::BITS,
            };
            let values = Some(of.values);
            sort_pairs(
                self,
                of.keys,
                values,
                bits,
                of.sorted_keys,
                of.sorted_values,
            )?;
            return row_offsets(self, of.sorted_keys, of.firsts);
        };
        let room = GroupWorkspace::of(pairs, groups.into());
        let workspace = self.lend(room.words)?;
        let at = |words: u64| DevicePtr::new(workspace.address() + words * 4);
        let params = GroupParams {
            keys: self.array(of.keys)?,
            values: self.array(of.values)?,
            tally: self.array(&of.room.tally)?,
            firsts: at(0),
            slots: self.array(&of.room.slots)?,
            members: at(room.members),
            long_groups: at(room.long_groups),
            offsets: self.array(of.firsts)?,
            sorted_keys: self.array(of.sorted_keys)?,
            sorted_values: self.array(of.sorted_values)?,
            pairs,
            groups,
        };
        let sums = ScanParams {
            words: params.tally,
            partials: at(room.sums),
            result: params.firsts,
            ..no_items(room.sums)
        };
        let threads = contract::THREADS_PER_CTA;
        let config = |ctas: u64, shared: u32| linear_config(NAME, ctas, threads, shared);
        let of_pairs = config(contract::group_ctas(pairs.max(1).into()), 0)?;
        let of_groups = config(contract::group_ctas(room.sums), 0)?;
        let long = contract::long_group_words(pairs) - 1;
        // SAFETY: the operator checked that all lists of pairs are of one length, and that there is an offset more than
        // groups; the workspace has what a pair or a group has of each. Kernels look whether what was counted is a
        // place, and a member a pair.
        unsafe {
            if !of.counted {
                self.launch("group_count", of_pairs, &params)?;
            }
            self.scan(WORDS, &sums)?;
            self.launch("group_place", of_pairs, &params)?;
            self.launch("group_order", of_groups, &params)?;
            if long > 0 {
                let ctas = long.min(contract::LONG_GROUP_CTAS.into());
                let config = config(ctas, contract::group_shared_bytes(pairs))?;
                self.launch("group_order_long", config, &params)?;
            }
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
        graph_rows: 0,
        added: 0,
        fanout: 0,
        replace: 0,
        own: 0,
    }
}

impl<D: Driver> Gpu<D> {
    /// A scan whole.
    ///
    /// # Safety
    /// `params` are as their page asks for, and `of` is of that kind of items.
    pub(crate) unsafe fn scan(&self, of: Scan, params: &ScanParams) -> Result<(), Error> {
        // SAFETY: the caller's promise.
        unsafe { self.scan_kept(of, params, (of, params)) }
    }

    /// A scan whole; of several CTAs the last launch is another's, of what the sums have kept.
    ///
    /// # Safety
    /// As [`Gpu::scan`], of both.
    pub(crate) unsafe fn scan_kept(
        &self,
        of: Scan,
        params: &ScanParams,
        (then, kept): (Scan, &ScanParams),
    ) -> Result<(), Error> {
        let config = scan_config(params.items)?;
        // SAFETY: the caller's promise.
        unsafe {
            match scan::ctas(params.items) {
                0 | 1 => self.launch(of.scan, config, params),
                2..=scan::MOST_ADDED => {
                    self.launch(of.sums, config, params)?;
                    self.launch(then.scan, config, kept)
                }
                _ => {
                    self.scan_sums(of, params)?;
                    self.scan_added(then, kept)
                }
            }
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
