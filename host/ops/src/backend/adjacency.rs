//! A graph on a backend: the arrays that SpMM and SDDMM kernels read.

use super::cpu::{Cpu, Words};
use super::{MemoryKind, RowShare, Storage};
use crate::error::Error;
use crate::graph::{self, Csr, Graph, GraphCounts, RowCounts, Starts, rows_of};
use crate::ops::{
    Checked, ConstructOperators, GroupPairsOperands, GroupRoom, RowIndex, RowIndexOperands,
    SortOperators, row_offsets, sort_pairs, take_words,
};
use crate::tensor::Array;
use bytemuck::Pod;
use halfgnn_contract::sort::bits_below;
use std::ops::Range;
use std::sync::{Arc, OnceLock};

/// One edge order of a graph: column ids and row offsets, and where rows start ([`Starts`]). The row of each edge, four
/// bytes an edge, is made when an operator first asks for it; a GCN never does. So is the [`RowIndex`] of one that was
/// sampled, whose size a host would have to wait for: the vertex-parallel kernels do without. And of one that was made
/// of [row ids](Adjacency::from_row_ids) the offsets as well, without which SpMM and SDDMM do.
#[derive(Debug)]
pub struct Adjacency<B: Storage> {
    rows: usize,
    columns: usize,
    /// Edges of the longest row; where it was sampled a bound of them.
    longest_row: u32,
    rows_are: Rows,
    row_ids: OnceLock<Array<B, u32>>,
    pub(crate) column_ids: Array<B, u32>,
    /// Of these and the row ids one is there from the start.
    offsets: OnceLock<Array<B, u64>>,
    index: OnceLock<RowIndex<B>>,
    /// Edges before each cut of [`RowShare`].
    edges_before: OnceLock<Vec<u64>>,
    /// Of a transpose that is made again and again, where its edges are counted.
    grouping: OnceLock<GroupRoom<B>>,
}

/// Why there are lists to be written.
const DRAWN: &str = "an adjacency that was drawn has its rows and offsets";

/// What a host knows of the rows of an adjacency.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Rows {
    /// All.
    Known,
    /// Nothing before the first request: they were sampled on the device.
    Drawn,
    /// The row of each edge, and no more: a COO.
    Ids,
    /// Nothing, ever: they are sampled again and again in the same memory, of which the last rows and edges are none.
    DrawnAgain,
}

impl<B: Storage> Adjacency<B> {
    /// Copies an adjacency to the backend.
    ///
    /// # Errors
    /// [`Error::Driver`] where there is not enough memory.
    pub fn new(backend: &B, csr: &Csr) -> Result<Self, Error> {
        let upload = |values: &[u32]| Array::from_slice(backend, values, MemoryKind::Graph);
        let starts = Starts::new(csr);
        Ok(Self {
            index: OnceLock::from(RowIndex {
                starts: Array::from_slice(backend, &starts.words, MemoryKind::Graph)?,
                filled_rows: upload(&starts.filled)?,
                empty_rows: upload(&csr.empty_rows())?,
                longest_row: csr.longest_row(),
            }),
            ..Self::lists(backend, csr, MemoryKind::Graph)?
        })
    }

    /// Copies the lists of an adjacency to the backend, of which neighbours are sampled: where each row begins, and the
    /// columns in memory of `kind`, which may be the host's ([`MemoryKind::HostGraph`]). Of where rows start in edges,
    /// which sums ask for, it has nothing until one does.
    ///
    /// # Errors
    /// [`Error::Driver`] where there is not enough memory.
    pub fn lists(backend: &B, csr: &Csr, kind: MemoryKind) -> Result<Self, Error> {
        let offsets = Array::from_slice(backend, csr.offsets(), MemoryKind::Graph)?;
        let columns = Array::from_slice(backend, csr.cols(), kind)?;
        Ok(Self::of_lists(csr, offsets, columns))
    }

    /// The lists of an adjacency in arrays.
    fn of_lists(csr: &Csr, offsets: Array<B, u64>, column_ids: Array<B, u32>) -> Self {
        let (rows, columns) = csr.shape();
        Self {
            rows,
            columns,
            longest_row: csr.longest_row(),
            rows_are: Rows::Known,
            row_ids: OnceLock::new(),
            column_ids,
            offsets: OnceLock::from(offsets),
            index: OnceLock::new(),
            edges_before: OnceLock::from(edges_before(csr.offsets())),
            grouping: OnceLock::new(),
        }
    }

    /// An adjacency of arrays that were sampled on the device, edges in order and ids in range, and no row longer than
    /// `longest_row`.
    pub(crate) fn of_drawn_parts(
        (rows, columns): (usize, usize),
        row_ids: Array<B, u32>,
        column_ids: Array<B, u32>,
        offsets: Array<B, u64>,
        longest_row: u32,
    ) -> Self {
        Self {
            rows,
            columns,
            longest_row,
            rows_are: Rows::Drawn,
            row_ids: OnceLock::from(row_ids),
            column_ids,
            offsets: OnceLock::from(offsets),
            index: OnceLock::new(),
            edges_before: OnceLock::new(),
            grouping: OnceLock::new(),
        }
    }

    /// An adjacency of arrays that are there, such as those of [`Adjacency::into_arrays`] in memory of another
    /// program's. Nothing is copied, and nothing but lengths is checked.
    ///
    /// # Safety
    /// The arrays hold what [`AdjacencyArrays`] says of them, and go on to: kernels follow them without looking.
    ///
    /// # Errors
    /// [`Error::Shape`] where lengths do not agree.
    pub unsafe fn from_arrays(arrays: AdjacencyArrays<B>) -> Result<Self, Error> {
        const NAME: &str = "Adjacency::from_arrays";
        let AdjacencyArrays {
            columns,
            longest_row,
            row_ids,
            column_ids,
            offsets,
            starts,
            filled_rows,
            empty_rows,
        } = arrays;
        let rows = offsets.len().checked_sub(1).ok_or(Error::Shape {
            operator: NAME,
            operand: "offsets",
            expected: 1,
            actual: 0,
        })?;
        let edges = column_ids.len();
        Error::expect(NAME, "row ids", edges, row_ids.len())?;
        Error::expect(NAME, "starts", Starts::words(edges), starts.len())?;
        let filled = rows.saturating_sub(empty_rows.len());
        Error::expect(
            NAME,
            "filled rows",
            Starts::filled(filled),
            filled_rows.len(),
        )?;
        Ok(Self {
            rows,
            columns,
            longest_row,
            rows_are: Rows::Known,
            row_ids: OnceLock::from(row_ids),
            column_ids,
            offsets: OnceLock::from(offsets),
            index: OnceLock::from(RowIndex {
                starts,
                filled_rows,
                empty_rows,
                longest_row,
            }),
            edges_before: OnceLock::new(),
            grouping: OnceLock::new(),
        })
    }

    /// The arrays of an adjacency of `counts`, without any edge in them: for a backend that only counts memory.
    ///
    /// # Errors
    /// [`Error::Unsupported`] on a backend that runs operators, which would read them; [`Error::Driver`] where there is
    /// not enough memory.
    pub fn counted(backend: &B, counts: &RowCounts) -> Result<Self, Error> {
        if !backend.only_counts() {
            return Err(Error::Unsupported {
                operator: "Adjacency::counted",
                reason: "a graph without edges is for a backend that only counts memory".into(),
            });
        }
        let zeros = |len| Array::zeros(backend, len, MemoryKind::Graph);
        let RowCounts {
            rows,
            columns,
            edges,
            empty,
            longest,
        } = *counts;
        let kind = MemoryKind::Graph;
        Ok(Self {
            rows,
            columns,
            longest_row: longest,
            rows_are: Rows::Known,
            row_ids: OnceLock::new(),
            column_ids: zeros(edges)?,
            offsets: OnceLock::from(Array::zeros(backend, rows + 1, kind)?),
            index: OnceLock::from(RowIndex {
                starts: Array::zeros(backend, Starts::words(edges), kind)?,
                filled_rows: zeros(Starts::filled(rows - empty))?,
                empty_rows: zeros(empty)?,
                longest_row: longest,
            }),
            edges_before: OnceLock::new(),
            grouping: OnceLock::new(),
        })
    }

    /// Number of rows: of vertices that aggregate others.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// Number of columns: of vertices that are sources.
    pub fn columns(&self) -> usize {
        self.columns
    }

    /// Number of edges.
    pub fn edges(&self) -> usize {
        self.column_ids.len()
    }

    /// Edges of the longest row; of a layer that was [sampled](crate::ops::Places::hop) what it has at most.
    pub fn longest_row(&self) -> u32 {
        self.longest_row
    }

    /// Whether it was sampled: then its [`RowIndex`] is better not asked for.
    pub(crate) fn is_drawn(&self) -> bool {
        self.rows_are != Rows::Known
    }

    /// The edges (COO) on the host: edge `k` is (`rows[k]`, `columns[k]`), in the order of rows.
    ///
    /// # Errors
    /// [`Error::Driver`] with the failure of an earlier operator, if one failed.
    pub fn to_coo(&self, backend: &B) -> Result<[Vec<u32>; 2], Error> {
        let rows = match (self.row_ids.get(), self.rows_are) {
            (Some(ids), Rows::Ids) => ids.to_vec(backend)?,
            _ => rows_of(&self.offsets_that_are_there().to_vec(backend)?),
        };
        Ok([rows, self.column_ids.to_vec(backend)?])
    }

    /// The row of each edge, ascending: made from the offsets the first time, and kept.
    ///
    /// # Errors
    /// [`Error::Driver`] where there is not enough memory, or where operators are recorded: what a recorded step needs
    /// is made by a step before it.
    pub fn row_ids(&self, backend: &B) -> Result<&Array<B, u32>, Error> {
        if let Some(ids) = self.row_ids.get() {
            return Ok(ids);
        }
        let ids = if backend.only_counts() {
            Array::zeros(backend, self.edges(), MemoryKind::Graph)?
        } else {
            let ids = rows_of(&self.offsets_that_are_there().to_vec(backend)?);
            Array::from_slice(backend, &ids, MemoryKind::Graph)?
        };
        Ok(self.row_ids.get_or_init(|| ids))
    }

    /// The first edge of each row, of an adjacency that is not made of row ids or whose offsets have been made.
    fn offsets_that_are_there(&self) -> &Array<B, u64> {
        let offsets = self.offsets.get();
        offsets.expect("an adjacency without row ids has offsets")
    }

    /// Refuses rows that are sampled again in the same memory, where the last edges are none.
    ///
    /// # Errors
    /// [`Error::Unsupported`] with what such rows do not have or do.
    pub(crate) fn expect_all_edges(&self, refusal: &str) -> Result<(), Error> {
        if self.rows_are != Rows::DrawnAgain {
            return Ok(());
        }
        Err(Error::Unsupported {
            operator: "Adjacency",
            reason: format!(
                "rows that are drawn again in the same memory {refusal}; sum them up by the default policy, or draw each batch in memory of its own"
            ),
        })
    }

    /// Whether nothing but the row and the column of each edge is there, so that operators that want no more are to be
    /// preferred.
    pub(crate) fn is_coo_alone(&self) -> bool {
        self.rows_are == Rows::Ids && self.index.get().is_none()
    }
}

/// The edges before each cut of [`RowShare`], of the rows with these offsets.
fn edges_before(offsets: &[u64]) -> Vec<u64> {
    let rows = offsets.len() - 1;
    let cuts = (0..=RowShare::MOST).map(|cut| RowShare::cut(rows, cut));
    cuts.map(|row| offsets[row]).collect()
}

/// A list of a graph as memory of the CPU.
struct ListOf {
    graph: Graph,
    bytes: fn(&Graph) -> &[u8],
}

impl Words for ListOf {
    fn bytes(&self) -> &[u8] {
        (self.bytes)(&self.graph)
    }
}

impl Adjacency<Cpu> {
    /// The [lists](Adjacency::lists) of a graph where they lie, be it memory or a [file](Csr::to_disk): nothing is
    /// copied.
    pub fn shared(backend: &Cpu, graph: &Graph) -> Self {
        let list = |bytes| {
            let graph = graph.clone();
            Arc::new(ListOf { graph, bytes })
        };
        let offsets = backend.share(list(|graph| bytemuck::cast_slice(graph.offsets())));
        let columns = backend.share(list(|graph| bytemuck::cast_slice(graph.cols())));
        Self::of_lists(graph.csr(), offsets, columns)
    }

    /// The first edge of each row, and the number of edges behind them. The CPU walks rows, so it has them from the
    /// start.
    pub(crate) fn row_offsets(&self) -> &Array<Cpu, u64> {
        self.offsets_that_are_there()
    }
}

impl<B: ConstructOperators + SortOperators> Adjacency<B> {
    /// The edges of a share of the rows: where the host never knew them, read from the backend the first time, and
    /// kept.
    ///
    /// # Errors
    /// [`Error::Driver`] with the failure of an earlier operator, or where operators are recorded; those of
    /// [`Adjacency::offsets`].
    pub(crate) fn edges_of(&self, backend: &B, share: RowShare) -> Result<Range<u64>, Error> {
        let cuts = match self.edges_before.get() {
            Some(cuts) => cuts,
            None => {
                let cuts = edges_before(&self.offsets(backend)?.to_vec(backend)?);
                self.edges_before.get_or_init(|| cuts)
            }
        };
        let [first, end] = share.cuts();
        Ok(cuts[first]..cuts[end])
    }

    /// Memory for rows that are sampled again and again, `edges` of them in all at most and `longest` in one: nothing
    /// in it yet.
    pub(crate) fn to_be_drawn(
        backend: &B,
        shape: (usize, usize),
        edges: usize,
        longest: u32,
    ) -> Result<Self, Error> {
        let room = || Array::uninit(backend, edges, MemoryKind::Graph);
        let offsets = Array::uninit(backend, shape.0 + 1, MemoryKind::Graph)?;
        Ok(Self {
            rows_are: Rows::DrawnAgain,
            ..Self::of_drawn_parts(shape, room()?, room()?, offsets, longest)
        })
    }

    /// The row and the column of each edge, to be written; [`Adjacency::renew_offsets`] follows.
    pub(crate) fn edges_mut(&mut self) -> (&mut Array<B, u32>, &mut Array<B, u32>) {
        let (_, [rows, columns]) = self.rows_mut();
        (rows, columns)
    }

    /// The offsets of the rows, and the row and the column of each edge, to be written all.
    pub(crate) fn rows_mut(&mut self) -> (&mut Array<B, u64>, [&mut Array<B, u32>; 2]) {
        let offsets = self.offsets.get_mut().expect(DRAWN);
        let rows = self.row_ids.get_mut().expect(DRAWN);
        self.edges_before.take();
        (offsets, [rows, &mut self.column_ids])
    }

    /// Offsets of rows that were written anew.
    pub(crate) fn renew_offsets(&mut self, backend: &B) -> Result<(), Error> {
        let ids = self.row_ids.get().expect(DRAWN);
        let offsets = self.offsets.get_mut().expect(DRAWN);
        row_offsets(backend, ids, offsets)
    }

    /// Where edges of a transpose are counted that is made again and again, which is this.
    pub(crate) fn group_room(&mut self, backend: &B) -> Result<&mut GroupRoom<B>, Error> {
        if self.grouping.get().is_none() {
            let room = GroupRoom::new(backend, self.edges(), self.rows)?;
            self.grouping = OnceLock::from(room);
        }
        Ok(self.grouping.get_mut().expect("it was made above"))
    }

    /// Makes `into` the transpose, sampled again in the same memory: what this has of columns was counted in its
    /// [memory](Adjacency::group_room).
    ///
    /// # Panics
    /// If there is no such memory.
    pub(crate) fn transpose_into(&self, backend: &B, into: &mut Self) -> Result<(), Error> {
        into.edges_before.take();
        let room = into.grouping.get_mut();
        let done = backend.group_pairs(Checked::new(GroupPairsOperands {
            keys: &self.column_ids,
            values: self.row_ids(backend)?,
            room: room.expect("the edges were counted there"),
            counted: true,
            firsts: into.offsets.get_mut().expect(DRAWN),
            sorted_keys: into.row_ids.get_mut().expect(DRAWN),
            sorted_values: &mut into.column_ids,
        })?);
        if done.is_err() {
            // What was counted there would be counted once more.
            into.grouping.take();
        }
        done
    }

    /// The bits of a column's number, and of what stands for no column and is to come last.
    fn column_bits(&self) -> u32 {
        let padded = self.rows_are == Rows::DrawnAgain;
        bits_below(self.columns() as u64 + u64::from(padded))
    }

    /// The transpose, and which of these edges each of its edges is. Nothing of it is waited for.
    pub(crate) fn transpose(&self, backend: &B) -> Result<(Self, Array<B, u32>), Error> {
        // Of as many edges as there may be of a row.
        let longest = u32::try_from(self.edges()).unwrap_or(u32::MAX);
        let shape = (self.columns(), self.rows());
        let mut a = Self::to_be_drawn(backend, shape, self.edges(), longest)?;
        let mut order = Array::uninit(backend, self.edges(), MemoryKind::Graph)?;
        let (rows, columns) = a.edges_mut();
        let bits = self.column_bits();
        sort_pairs(backend, &self.column_ids, None, bits, rows, &mut order)?;
        take_words(backend, self.row_ids(backend)?, &order, columns)?;
        a.renew_offsets(backend)?;
        if self.rows_are != Rows::DrawnAgain {
            a.rows_are = Rows::Drawn;
        }
        Ok((a, order))
    }
}

impl<B: ConstructOperators> Adjacency<B> {
    /// The first edge of each row, and the number of edges behind them: of row ids made on the device the first time,
    /// and kept.
    ///
    /// # Errors
    /// Those of [`Adjacency::row_ids`].
    pub(crate) fn offsets(&self, backend: &B) -> Result<&Array<B, u64>, Error> {
        if let Some(offsets) = self.offsets.get() {
            return Ok(offsets);
        }
        let mut offsets = Array::uninit(backend, self.rows + 1, MemoryKind::Graph)?;
        row_offsets(backend, self.row_ids(backend)?, &mut offsets)?;
        Ok(self.offsets.get_or_init(|| offsets))
    }

    /// Of `shape` (rows, columns) from a plain COO in order of rows: edge `k` is (`row_ids[k]`, `column_ids[k]`).
    /// Nothing is made of it: no offsets, no starts, no lists of rows. SpMM and SDDMM read the two lists as they are
    /// (GNNOne §4); what another operator needs is made when it first asks. Edges of a row may be in any order.
    ///
    /// # Errors
    /// [`Error::Graph`] where the lists differ in length, for an id that is no row's or no column's, for a row that
    /// comes before that of the edge before it, or too many of anything; [`Error::Driver`] where there is not enough
    /// memory.
    pub fn from_row_ids(
        backend: &B,
        shape: (usize, usize),
        row_ids: &[u32],
        column_ids: &[u32],
    ) -> Result<Self, Error> {
        let longest_row = graph::check_sorted_coo(shape, row_ids, column_ids)?;
        let upload = |ids: &[u32]| Array::from_slice(backend, ids, MemoryKind::Graph);
        let a = Self {
            rows: shape.0,
            columns: shape.1,
            longest_row,
            rows_are: Rows::Ids,
            row_ids: OnceLock::from(upload(row_ids)?),
            column_ids: upload(column_ids)?,
            offsets: OnceLock::new(),
            index: OnceLock::new(),
            edges_before: OnceLock::new(),
            grouping: OnceLock::new(),
        };
        if B::WALKS_ROWS {
            a.offsets(backend)?;
        }
        Ok(a)
    }

    /// Offsets and columns (CSR) on the host.
    ///
    /// # Errors
    /// Those of [`Adjacency::row_ids`].
    pub fn to_csr(&self, backend: &B) -> Result<(Vec<u64>, Vec<u32>), Error> {
        let offsets = self.offsets(backend)?.to_vec(backend)?;
        Ok((offsets, self.column_ids.to_vec(backend)?))
    }

    /// Where rows start and which have edges: made the first time, which waits for the device, and kept.
    ///
    /// # Errors
    /// Those of [`Adjacency::row_ids`].
    pub(crate) fn index(&self, backend: &B) -> Result<&RowIndex<B>, Error> {
        if let Some(index) = self.index.get() {
            return Ok(index);
        }
        self.expect_all_edges("have no index")?;
        let index = backend.row_index(Checked::new(RowIndexOperands {
            ids: self.row_ids(backend)?,
            offsets: self.offsets(backend)?,
        })?)?;
        Ok(self.index.get_or_init(|| index))
    }

    /// The same with its [`RowIndex`], which says how long its longest row is.
    pub(crate) fn indexed(mut self, backend: &B) -> Result<Self, Error> {
        self.longest_row = self.index(backend)?.longest_row;
        self.rows_are = Rows::Known;
        Ok(self)
    }

    /// Its arrays, the row of each edge among them.
    ///
    /// # Errors
    /// Those of [`Adjacency::row_ids`].
    pub fn into_arrays(mut self, backend: &B) -> Result<AdjacencyArrays<B>, Error> {
        self.row_ids(backend)?;
        self.index(backend)?;
        let (Some(row_ids), Some(offsets), Some(index)) =
            (self.row_ids.take(), self.offsets.take(), self.index.take())
        else {
            unreachable!("they have just been made");
        };
        Ok(AdjacencyArrays {
            columns: self.columns,
            longest_row: index.longest_row,
            row_ids,
            column_ids: self.column_ids,
            offsets,
            starts: index.starts,
            filled_rows: index.filled_rows,
            empty_rows: index.empty_rows,
        })
    }

    /// What all arrays hold, and the longest row. For tests.
    ///
    /// # Errors
    /// [`Error::Driver`] with the failure of an earlier operator, if one failed.
    #[doc(hidden)]
    pub fn arrays(&self, backend: &B) -> Result<Arrays, Error> {
        let index = self.index(backend)?;
        Ok(Arrays {
            offsets: self.offsets(backend)?.to_vec(backend)?,
            starts: index.starts.to_vec(backend)?,
            lists: [
                self.row_ids(backend)?.to_vec(backend)?,
                self.column_ids.to_vec(backend)?,
                index.empty_rows.to_vec(backend)?,
                index.filled_rows.to_vec(backend)?,
            ],
            longest_row: index.longest_row,
        })
    }
}

/// What an [`Adjacency`] is made of, on its device.
#[derive(Debug)]
pub struct AdjacencyArrays<B: Storage> {
    /// Number of columns.
    pub columns: usize,
    /// Edges of the longest row.
    pub longest_row: u32,
    /// The row of each edge, ascending.
    pub row_ids: Array<B, u32>,
    /// The column of each edge, less than [`AdjacencyArrays::columns`], ascending within a row.
    pub column_ids: Array<B, u32>,
    /// The first edge of each row, and the number of edges: one more than there are rows.
    pub offsets: Array<B, u64>,
    /// Where rows start: [`Starts::words`].
    pub starts: Array<B, [u32; 2]>,
    /// The rows that have edges, ascending, and what follows them: [`Starts::filled`].
    pub filled_rows: Array<B, u32>,
    /// The rows without edges, ascending.
    pub empty_rows: Array<B, u32>,
}

/// An adjacency's arrays on the host.
#[doc(hidden)]
#[derive(Debug, PartialEq, Eq)]
pub struct Arrays {
    offsets: Vec<u64>,
    starts: Vec<[u32; 2]>,
    lists: [Vec<u32>; 4],
    longest_row: u32,
}

impl Arrays {
    /// All of it as words, one array after the other.
    pub fn words(&self) -> Vec<u32> {
        let offsets = self.offsets.iter().map(|&offset| offset as u32);
        let starts = self.starts.iter().flatten().copied();
        let lists = self.lists.iter().flatten().copied();
        let all = offsets.chain(starts).chain(lists);
        all.chain([self.longest_row]).collect()
    }
}

/// A graph on a backend, in both edge orders; a symmetric graph has one.
#[derive(Debug)]
pub struct DeviceGraph<B: Storage> {
    forward: Adjacency<B>,
    backward: Option<Adjacency<B>>,
}

impl<B: Storage> DeviceGraph<B> {
    /// Copies a graph and, unless it is symmetric, its transpose to the backend.
    ///
    /// # Errors
    /// [`Error::Driver`] and [`Error::Graph`] where there is not enough memory.
    pub fn new(backend: &B, graph: &Graph) -> Result<Self, Error> {
        graph.check_room_for_transpose()?;
        let backward = if graph.is_symmetric() {
            None
        } else {
            Some(Adjacency::new(backend, graph.transposed())?)
        };
        Ok(Self {
            forward: Adjacency::new(backend, graph.csr())?,
            backward,
        })
    }

    /// A graph of its adjacency and, unless it is symmetric, the transpose.
    pub(crate) fn of(forward: Adjacency<B>, backward: Option<Adjacency<B>>) -> Self {
        Self { forward, backward }
    }

    /// The arrays of a graph of `counts`, as [`Adjacency::counted`] has them.
    ///
    /// # Errors
    /// [`Error::Driver`] where there is not enough memory.
    pub fn counted(backend: &B, counts: &GraphCounts) -> Result<Self, Error> {
        Ok(Self {
            forward: Adjacency::counted(backend, &counts.forward)?,
            backward: match &counts.backward {
                Some(backward) => Some(Adjacency::counted(backend, backward)?),
                None => None,
            },
        })
    }

    /// The adjacency: row `i` lists the vertices that `i` aggregates.
    pub fn forward(&self) -> &Adjacency<B> {
        &self.forward
    }

    /// The transposed adjacency, along which gradients flow.
    pub fn backward(&self) -> &Adjacency<B> {
        self.backward.as_ref().unwrap_or(&self.forward)
    }

    /// Number of vertices.
    pub fn vertices(&self) -> usize {
        self.forward.rows()
    }
}

/// A sampled layer, or a part of a graph with its in-neighbours, on a backend; see [`graph::Block`]. The transpose of
/// one that was sampled is made at the first request: of the layer whose sources are inputs there is often none.
///
/// The destinations are the first sources. Only where the sources are all vertices of the graph that a layer was
/// sampled of ([`LayerSources::All`](crate::ops::LayerSources::All)) they lie anywhere among them, and there is a
/// [list](Block::own).
#[derive(Debug)]
pub struct Block<B: Storage> {
    forward: Adjacency<B>,
    backward: OnceLock<Adjacency<B>>,
    own: Option<Array<B, u32>>,
}

impl<B: Storage> Block<B> {
    /// Copies a block and its transpose to the backend.
    ///
    /// # Errors
    /// [`Error::Driver`] where there is not enough memory.
    pub fn new(backend: &B, block: &graph::Block) -> Result<Self, Error> {
        Ok(Self {
            forward: Adjacency::new(backend, block.csr())?,
            backward: OnceLock::from(Adjacency::new(backend, &block.csr().transposed())?),
            own: None,
        })
    }

    /// The arrays of a block that is sampled with at most these numbers of edges and vertices, without any edge in
    /// them: for a backend that only counts memory.
    ///
    /// # Errors
    /// Those of [`Adjacency::counted`].
    pub fn counted(backend: &B, counts: &RowCounts) -> Result<Self, Error> {
        if !backend.only_counts() {
            return Err(Error::Unsupported {
                operator: "Block::counted",
                reason: "a graph without edges is for a backend that only counts memory".into(),
            });
        }
        let zeros = |len| Array::zeros(backend, len, MemoryKind::Graph);
        let offsets = Array::zeros(backend, counts.rows + 1, MemoryKind::Graph)?;
        Ok(Self::of_forward(Adjacency::of_drawn_parts(
            (counts.rows, counts.columns),
            zeros(counts.edges)?,
            zeros(counts.edges)?,
            offsets,
            counts.longest,
        )))
    }

    /// A block of its adjacency and the transpose.
    pub(crate) fn of(forward: Adjacency<B>, backward: Adjacency<B>) -> Self {
        Self {
            forward,
            backward: OnceLock::from(backward),
            own: None,
        }
    }

    /// A block of its adjacency alone.
    pub(crate) fn of_forward(forward: Adjacency<B>) -> Self {
        Self {
            forward,
            backward: OnceLock::new(),
            own: None,
        }
    }

    /// The same, whose destinations are these of its sources.
    ///
    /// # Errors
    /// [`Error::Shape`] where they are not as many.
    pub fn with_own(self, own: Array<B, u32>) -> Result<Self, Error> {
        Error::expect("Block", "sources that hear", self.destinations(), own.len())?;
        Ok(Self {
            own: Some(own),
            ..self
        })
    }

    /// Which sources the destinations are, where those are not the first;
    /// [`NO_VERTEX`](halfgnn_contract::sampling::NO_VERTEX) is none, of an empty row.
    pub fn own(&self) -> Option<&Array<B, u32>> {
        self.own.as_ref()
    }

    /// The same, to be sampled again.
    pub(crate) fn own_mut(&mut self) -> Option<&mut Array<B, u32>> {
        self.own.as_mut()
    }

    /// The adjacency: row `i` lists the sources that destination `i` aggregates.
    pub fn forward(&self) -> &Adjacency<B> {
        &self.forward
    }

    /// The adjacency alone.
    pub fn into_forward(self) -> Adjacency<B> {
        self.forward
    }

    /// Number of vertices that aggregate; they are the first sources, where there is no [list](Block::own) of them.
    pub fn destinations(&self) -> usize {
        self.forward.rows()
    }

    /// Number of sources, of which the destinations are the first.
    pub fn sources(&self) -> usize {
        self.forward.columns()
    }
}

impl Block<Cpu> {
    /// Copies a block that was sampled on the CPU to another backend, its transpose to be made there.
    ///
    /// # Errors
    /// [`Error::Driver`] where there is not enough memory, [`Error::Unsupported`] of one that is sampled again in the
    /// same memory.
    pub fn copied_to<B: Storage>(&self, backend: &B) -> Result<Block<B>, Error> {
        fn copy<B: Storage, T: Pod + Send + Sync>(
            backend: &B,
            array: &Array<Cpu, T>,
        ) -> Result<Array<B, T>, Error> {
            Array::from_slice(backend, &array.buffer.read(), MemoryKind::Graph)
        }
        let forward = &self.forward;
        forward.expect_all_edges("are not copied")?;
        let offsets = forward.row_offsets();
        let rows = match forward.row_ids.get() {
            Some(rows) => copy(backend, rows)?,
            None => {
                Array::from_slice(backend, &rows_of(&offsets.buffer.read()), MemoryKind::Graph)?
            }
        };
        let (shape, longest) = ((forward.rows, forward.columns), forward.longest_row);
        let columns = copy(backend, &forward.column_ids)?;
        let offsets = copy(backend, offsets)?;
        let copied = Adjacency::of_drawn_parts(shape, rows, columns, offsets, longest);
        let own = self.own.as_ref().map(|own| copy(backend, own));
        Ok(Block {
            own: own.transpose()?,
            ..Block::of_forward(copied)
        })
    }
}

impl<B: ConstructOperators + SortOperators> Block<B> {
    /// A block of `(destinations, sources)` from edges in order of their rows, which are copied to the backend. Edge
    /// `k` goes to `rows[k]` from `columns[k]`. The transpose is made when it is first asked for.
    ///
    /// # Errors
    /// [`Error::Shape`] where there is not a column for each row, [`Error::Unsupported`] where a row or a column is
    /// out of range or rows are out of order, [`Error::Driver`] where there is not enough memory.
    pub fn of_edges(
        backend: &B,
        shape: (usize, usize),
        rows: &[u32],
        columns: &[u32],
    ) -> Result<Self, Error> {
        const NAME: &str = "Block::of_edges";
        Error::expect(NAME, "columns of edges", rows.len(), columns.len())?;
        let in_order = rows.is_sorted() && rows.last().is_none_or(|row| (*row as usize) < shape.0);
        let last = columns.iter().max();
        if !in_order || last.is_some_and(|column| *column as usize >= shape.1) {
            return Err(Error::Unsupported {
                operator: NAME,
                reason: format!(
                    "edges of a block of {} destinations and {} sources are in order of their rows and in range",
                    shape.0, shape.1
                ),
            });
        }
        let longest = rows.chunk_by(|a, b| a == b).map(<[u32]>::len).max();
        let upload = |ids: &[u32]| Array::from_slice(backend, ids, MemoryKind::Graph);
        let (ids, column_ids) = (upload(rows)?, upload(columns)?);
        let longest = longest.unwrap_or(0) as u32;
        let forward = Adjacency::of_drawn(backend, shape, ids, column_ids, longest)?;
        Ok(Self::of_forward(forward))
    }

    /// The transposed adjacency, along which gradients flow: of a block that was sampled made the first time, and kept.
    ///
    /// # Errors
    /// [`Error::Driver`] where there is not enough memory, or where operators are recorded: what a recorded step needs
    /// is made by a step before it.
    pub fn backward(&self, backend: &B) -> Result<&Adjacency<B>, Error> {
        if let Some(backward) = self.backward.get() {
            return Ok(backward);
        }
        if self.own.is_some() {
            return Err(Error::Unsupported {
                operator: "Block::backward",
                reason: "the sources are all vertices of a graph, and a step on a part of it makes no gradient of theirs; draw the layer with the sources that it meets".into(),
            });
        }
        let (backward, _) = self.forward.transpose(backend)?;
        Ok(self.backward.get_or_init(|| backward))
    }

    /// Both edge orders, to be sampled again; the transpose if it has been asked for.
    pub(crate) fn parts_mut(&mut self) -> (&mut Adjacency<B>, Option<&mut Adjacency<B>>) {
        (&mut self.forward, self.backward.get_mut())
    }
}
