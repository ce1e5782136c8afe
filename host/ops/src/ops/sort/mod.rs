//! A stable sort by keys, and prefix sums: what lists on a device are put in order by.

mod cpu;
mod gpu;

pub use gpu::group_workspace;
pub(crate) use gpu::{FIRST_EDGES, STARTS, Scan, WORDS, grouped_by_counts, no_items};

use super::{Checked, Operator};
use crate::backend::{MemoryKind, Storage};
use crate::error::Error;
use crate::tensor::Array;

/// Pairs in the ascending order of the lowest `bits` bits of their keys; of pairs with the same, the order stays.
/// `values` of `None` are the pairs' numbers from 0 on, so that `sorted_values` becomes the order itself. Radix sort,
/// least significant digit first (Merrill and Grimshaw 2011), without atomics.
///
/// On a GPU it borrows two words a pair of the workspace, and a 16th of one; of a million pairs at most, a quarter of
/// one.
///
/// # Errors
/// [`Error::Shape`] where lengths differ, [`Error::Unsupported`] for more than 32 bits or 2³² − 1 pairs.
pub fn sort_pairs<B: SortOperators>(
    backend: &B,
    keys: &Array<B, u32>,
    values: Option<&Array<B, u32>>,
    bits: u32,
    sorted_keys: &mut Array<B, u32>,
    sorted_values: &mut Array<B, u32>,
) -> Result<(), Error> {
    let operands = SortPairsOperands {
        keys,
        values,
        bits,
        sorted_keys,
        sorted_values,
    };
    backend.sort_pairs(Checked::new(operands)?)
}

/// Pairs whose keys are below a number of groups, in the order of their keys; of pairs with the same, the order stays.
/// What has another key is no pair; what is in order behind those that are has all bits, or keys that are no group
/// where there are many pairs. `firsts` become the first pair of each group, and the number of pairs.
///
/// It is what [`sort_pairs`] and [`row_offsets`](super::row_offsets) make, by one count of each key where pairs are
/// some hundred thousand at most.
///
/// # Errors
/// [`Error::Shape`] where lengths differ, [`Error::Unsupported`] for more than 2³² − 1 pairs or 2³² − 2 groups.
pub fn group_pairs<B: SortOperators>(
    backend: &B,
    [keys, values]: [&Array<B, u32>; 2],
    room: &mut GroupRoom<B>,
    firsts: &mut Array<B, u64>,
    [sorted_keys, sorted_values]: [&mut Array<B, u32>; 2],
) -> Result<(), Error> {
    let operands = GroupPairsOperands {
        keys,
        values,
        room,
        counted: false,
        firsts,
        sorted_keys,
        sorted_values,
    };
    backend.group_pairs(Checked::new(operands)?)
}

/// The sum of the words before each, by 32 bits: it wraps around.
///
/// # Errors
/// [`Error::Shape`] where lengths differ.
pub fn exclusive_sum<B: SortOperators>(
    backend: &B,
    words: &Array<B, u32>,
    sums: &mut Array<B, u32>,
) -> Result<(), Error> {
    backend.exclusive_sum(Checked::new(ExclusiveSumOperands { words, sums })?)
}

/// Operands of [`sort_pairs`].
#[derive(Debug)]
pub struct SortPairsOperands<'a, B: Storage> {
    /// A key a pair.
    pub keys: &'a Array<B, u32>,
    /// A value a pair, or its number.
    pub values: Option<&'a Array<B, u32>>,
    /// How many of the lowest bits of keys are looked at.
    pub bits: u32,
    /// Becomes the keys in order.
    pub sorted_keys: &'a mut Array<B, u32>,
    /// Becomes the values in the same order.
    pub sorted_values: &'a mut Array<B, u32>,
}

impl<B: Storage> Operator for SortPairsOperands<'_, B> {
    const NAME: &'static str = "sort_pairs";

    fn check(&self) -> Result<(), Error> {
        let pairs = self.keys.len();
        let values = self.values.map_or(pairs, Array::len);
        Error::expect(Self::NAME, "values", pairs, values)?;
        Error::expect(Self::NAME, "sorted keys", pairs, self.sorted_keys.len())?;
        Error::expect(Self::NAME, "sorted values", pairs, self.sorted_values.len())?;
        let unsupported = |reason| Error::Unsupported {
            operator: Self::NAME,
            reason,
        };
        if self.bits > u32::BITS {
            return Err(unsupported(format!("{} bits; a key has 32", self.bits)));
        }
        if u32::try_from(pairs).is_err() {
            return Err(unsupported(format!(
                "{pairs} pairs; 2^32 - 1 are the most that 32-bit numbers tell apart"
            )));
        }
        Ok(())
    }
}

/// Where [`group_pairs`] counts: 4 bytes a pair and a group. What is counted is zeros, and zeros again behind it, since
/// a recording clears nothing; what a failure left there is none, and goes with it.
#[derive(Debug)]
pub struct GroupRoom<B: Storage> {
    /// A word a group, and one: zeros, and zeros again behind it.
    pub(crate) tally: Array<B, u32>,
    /// A word a pair.
    pub(crate) slots: Array<B, u32>,
}

impl<B: Storage> GroupRoom<B> {
    /// For numbers of pairs and groups.
    ///
    /// # Errors
    /// [`Error::Driver`] where there is not enough memory.
    pub fn new(backend: &B, pairs: usize, groups: usize) -> Result<Self, Error> {
        Ok(Self {
            tally: Array::zeros(backend, groups.saturating_add(1), MemoryKind::Graph)?,
            slots: Array::uninit(backend, pairs, MemoryKind::Graph)?,
        })
    }

    /// Words of it.
    pub fn words(pairs: usize, groups: usize) -> usize {
        pairs + groups + 1
    }
}

/// Operands of [`group_pairs`].
#[derive(Debug)]
pub struct GroupPairsOperands<'a, B: Storage> {
    /// A key a pair.
    pub keys: &'a Array<B, u32>,
    /// A value a pair.
    pub values: &'a Array<B, u32>,
    /// Where pairs are counted.
    pub room: &'a mut GroupRoom<B>,
    /// Whether the operator that made the keys has [counted](crate::ops::RelabelOperands::counted) them there.
    pub counted: bool,
    /// Becomes the first pair of each group, and the number of pairs.
    pub firsts: &'a mut Array<B, u64>,
    /// Becomes the keys in order.
    pub sorted_keys: &'a mut Array<B, u32>,
    /// Becomes the values in the same order.
    pub sorted_values: &'a mut Array<B, u32>,
}

impl<B: Storage> Operator for GroupPairsOperands<'_, B> {
    const NAME: &'static str = "group_pairs";

    fn check(&self) -> Result<(), Error> {
        let (pairs, groups) = (self.keys.len(), self.firsts.len());
        Error::expect(Self::NAME, "values", pairs, self.values.len())?;
        Error::expect(
            Self::NAME,
            "words of the tally",
            groups,
            self.room.tally.len(),
        )?;
        Error::expect(Self::NAME, "slots", pairs, self.room.slots.len())?;
        Error::expect(Self::NAME, "sorted keys", pairs, self.sorted_keys.len())?;
        Error::expect(Self::NAME, "sorted values", pairs, self.sorted_values.len())?;
        let unsupported = |reason| Error::Unsupported {
            operator: Self::NAME,
            reason,
        };
        if groups == 0 {
            return Err(unsupported("no room for a first pair".into()));
        }
        match [pairs, groups]
            .into_iter()
            .all(|it| u32::try_from(it).is_ok())
        {
            true => Ok(()),
            false => Err(unsupported(format!(
                "{pairs} pairs in {} groups; 32-bit numbers tell 2^32 - 1 and 2^32 - 2 apart at the most",
                groups - 1
            ))),
        }
    }
}

/// Operands of [`exclusive_sum`].
#[derive(Debug)]
pub struct ExclusiveSumOperands<'a, B: Storage> {
    /// What is added up.
    pub words: &'a Array<B, u32>,
    /// Becomes the sum of the words before each.
    pub sums: &'a mut Array<B, u32>,
}

impl<B: Storage> Operator for ExclusiveSumOperands<'_, B> {
    const NAME: &'static str = "exclusive_sum";

    fn check(&self) -> Result<(), Error> {
        Error::expect(Self::NAME, "sums", self.words.len(), self.sums.len())
    }
}

/// Order and prefix sums.
pub trait SortOperators: Storage {
    /// Puts pairs in order.
    ///
    /// # Errors
    /// Those of the device.
    fn sort_pairs(&self, operands: Checked<SortPairsOperands<'_, Self>>) -> Result<(), Error>;

    /// Groups pairs.
    ///
    /// # Errors
    /// Those of the device.
    fn group_pairs(&self, operands: Checked<GroupPairsOperands<'_, Self>>) -> Result<(), Error>;

    /// Adds up words.
    ///
    /// # Errors
    /// Those of the device.
    fn exclusive_sum(&self, operands: Checked<ExclusiveSumOperands<'_, Self>>)
    -> Result<(), Error>;
}
