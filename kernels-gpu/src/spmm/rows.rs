//! Which row an edge is in: the bits that say where rows start, and the list of the rows that have edges.

use crate::device::global::Global;
use halfgnn_contract::spmm::SpmmParams;

/// Two neighbouring words of starts, and how many rows start before them.
#[derive(Clone, Copy)]
pub struct Words {
    first: [u32; 2],
    second: u32,
}

/// The starts of rows among the edges to come.
#[derive(Clone, Copy)]
pub struct Starts {
    /// The lowest bit is that of the next edge.
    bits: u32,
    /// The word after the one that `bits` are of.
    next: u32,
}

impl Starts {
    /// Asks for the words from `edge` on.
    ///
    /// # Safety
    /// The launch contract; `edge` is at most the number of edges.
    #[inline(always)]
    pub unsafe fn ask(params: &SpmmParams, edge: u32) -> Words {
        let words = Global::<u32>::new(params.starts).at(2 * (edge / 32) as u64);
        // SAFETY: there is a word for each 32 edges, and two more.
        unsafe {
            Words {
                first: Global::<[u32; 2]>::cast(words).fetch(),
                second: words.at(2).fetch(),
            }
        }
    }

    /// From `edge` on, an edge of the first of the words, and which of the rows with edges it is in.
    #[inline(always)]
    pub fn at(words: Words, edge: u32) -> (Self, u32) {
        let [bits, rank] = words.first;
        let upto = bits & (2u32 << (edge % 32)).wrapping_sub(1);
        let starts = Self {
            bits: bits >> (edge % 32),
            next: words.second,
        };
        (starts, rank + upto.count_ones() - 1)
    }

    /// Whether the next edge is the first of its row; from now on it is taken as if it were not.
    #[inline(always)]
    pub fn take(&mut self) -> bool {
        let first = self.bits & 1 != 0;
        self.bits &= !1;
        first
    }

    /// The bit of the next edge.
    #[inline(always)]
    pub fn one(&self) -> u32 {
        self.bits & 1
    }

    /// The bits of the next four edges.
    #[inline(always)]
    pub fn four(&self) -> u32 {
        self.bits & 15
    }

    /// Passes `count` edges, so that `edge` is the next. Where that begins a word, and `more` are to come, the word after
    /// it is asked for: it is wanted 32 edges later.
    ///
    /// # Safety
    /// The launch contract; `edge` is at most the number of edges, and less where there are more.
    #[inline(always)]
    pub unsafe fn pass(&mut self, params: &SpmmParams, count: u32, edge: u32, more: bool) {
        self.bits >>= count;
        if edge % 32 == 0 {
            self.bits = self.next;
            if more {
                // SAFETY: the caller's promise: two words follow the one of the last edge.
                self.next = unsafe { word_after(params, edge) };
            }
        }
    }
}

/// The starts of the word after that of `edge`.
///
/// # Safety
/// The launch contract; `edge` is an edge of the graph.
#[inline(always)]
unsafe fn word_after(params: &SpmmParams, edge: u32) -> u32 {
    let words = Global::<u32>::new(params.starts);
    // SAFETY: two words follow the one of the last edge.
    unsafe { words.at(2 * (edge / 32 + 1) as u64).read() }
}

/// A row and its factor, which are asked for when its edges are come to and wanted when they are left.
#[derive(Clone, Copy)]
pub struct Rows {
    /// The row.
    pub row: u32,
    /// Which of the rows with edges it is.
    pub index: u32,
    /// Its factor, without that of the whole product: to multiply them here would be to wait for it here.
    factor: f32,
}

impl Rows {
    /// The `index`-th of the rows with edges.
    ///
    /// # Safety
    /// The launch contract; there is such a row.
    #[inline(always)]
    pub unsafe fn at(params: &SpmmParams, index: u32) -> Self {
        let list = Global::<u32>::new(params.filled_rows);
        // SAFETY: the caller's promise.
        unsafe {
            let row = list.at(index as u64).read();
            Self {
                row,
                index,
                factor: factor_of(params, row),
            }
        }
    }

    /// The row's factor.
    #[inline(always)]
    pub fn scale(&self, params: &SpmmParams) -> f32 {
        params.scale * self.factor
    }

    /// The next row.
    ///
    /// # Safety
    /// The launch contract; there is a next row.
    #[inline(always)]
    pub unsafe fn next(self, params: &SpmmParams) -> Self {
        // SAFETY: the caller's promise.
        unsafe { Self::at(params, self.index + 1) }
    }
}

/// The factor of a row.
///
/// # Safety
/// The launch contract; `row` is a row.
#[inline(always)]
pub unsafe fn scale_of(params: &SpmmParams, row: u32) -> f32 {
    // SAFETY: the caller's promise.
    params.scale * unsafe { factor_of(params, row) }
}

/// The factor of a row, without that of the whole product.
///
/// # Safety
/// The launch contract; `row` is a row.
#[inline(always)]
unsafe fn factor_of(params: &SpmmParams, row: u32) -> f32 {
    let scales = Global::<f32>::new(params.row_scale);
    if scales.is_null() {
        1.0
    } else {
        // SAFETY: the caller's promise.
        unsafe { scales.at(row as u64).read() }
    }
}
