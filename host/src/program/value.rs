//! Values: what operators read and write.

use crate::backend::RowShare;
use crate::tensor::{Element, Precision, gathered_stride, padded};
use crate::with_element;
use std::fmt;

/// A value of a [`Program`](super::Program): a matrix that an operator writes once, or that comes from outside.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Value(pub(super) usize);

/// A set of vertices, such as those of one type, or the sources or destinations of a layer. Its size is not part of a
/// formula: [`Program::set_rows`](super::Program::set_rows) gives it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Vertices(pub(super) usize);

/// An adjacency with its degree norm, by name: from the vertices that are read to those that are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Edges(pub(super) usize);

/// Rows of a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Rows {
    /// One for each vertex of a set.
    Of(Vertices),
    /// A number of them for each vertex of a set.
    Times(Vertices, usize),
    /// One for each edge of an adjacency, in a [plane](crate::ops::edge_plane) of edges.
    Edges(Edges),
    /// One for each edge of an adjacency, in its order.
    EachEdge(Edges),
    /// As many as a rank exchanges of an adjacency that is its part of a graph.
    Exchanged(Edges, Exchanged),
    /// As many as are written at once of one for each vertex of a set, where [some come after the
    /// other](super::AggregateSignsMatmul).
    Share(Vertices),
    /// A number that the formula fixes, as of weights.
    Fixed(usize),
}

/// What the ranks of a graph exchange, by its number of rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Exchanged {
    /// A row from each rank.
    Ranks,
    /// Own rows that are packed before other ranks are given them.
    Packed,
    /// Rows of gradients that other ranks send back.
    Returned,
}

impl Exchanged {
    /// Its name in the text of a program.
    pub(super) fn name(self) -> &'static str {
        match self {
            Exchanged::Ranks => "ranks",
            Exchanged::Packed => "packed",
            Exchanged::Returned => "returned",
        }
    }
}

/// Rows and columns of a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Shape {
    /// Rows.
    pub rows: Rows,
    /// Columns, without padding.
    pub columns: usize,
}

/// How the elements of a value lie in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Format {
    /// Elements of the program's [precision](super::Program::precision).
    Element,
    /// Floats in every precision: biases, statistics, gradients of parameters.
    Float,
    /// An array of elements without padding.
    Items,
    /// An array of floats without padding: numbers of heads.
    Numbers,
    /// Quantized values of 8 bits with a scale for each column.
    Codes,
    /// Signs, a bit each: +1 or −1.
    Bits,
}

impl Format {
    /// The precision of its elements in a program of `precision`.
    pub fn precision(self, precision: Precision) -> Precision {
        match self {
            Format::Element | Format::Items | Format::Codes | Format::Bits => precision,
            Format::Float | Format::Numbers => Precision::Float,
        }
    }
}

/// Where a value comes from.
#[derive(Clone, Debug, PartialEq)]
pub enum Origin {
    /// The caller writes it before a forward pass.
    Input,
    /// A parameter.
    Parameter(Initial),
    /// Floats that operators carry on from step to step, such as running statistics. They have no gradient.
    Buffer(Buffer),
    /// Numbers that the formula fixes.
    Constant(Constant),
    /// A one for each vertex of a set: a matrix of one column.
    Ones,
    /// The features of the edges of an adjacency, of which they are a part. They have no gradient.
    EdgeFeatures(Edges),
    /// The loss writes it between the passes: the gradient of the program's output.
    Seed,
    /// An operator writes it.
    Operator,
}

/// Buffers by what they hold at first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Buffer {
    /// A running mean of 0 and a running variance of 1 of each column: two rows.
    RunningStatistics,
}

/// Initial values of a parameter.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Initial {
    /// [`glorot_uniform`](crate::nn::glorot_uniform) by the seed of a run and this number.
    Glorot(u32),
    /// The same for blocks of this many rows each, as for the weights of a block-diagonal matrix.
    GlorotBlocks {
        /// The number of the parameter.
        number: u32,
        /// Rows of a block.
        rows: usize,
    },
    /// Some rows of a matrix of that many, which is made by [`glorot_uniform`](crate::nn::glorot_uniform): the part that one of several
    /// inputs of a linear map has.
    GlorotRows {
        /// The number of the parameter.
        number: u32,
        /// Rows of the whole matrix.
        all: usize,
        /// The first of the rows.
        first: usize,
    },
    /// One number.
    Constant(f32),
    /// Those of a layer of several heads.
    Heads(HeadValues),
}

/// Initial values of a weight or of vectors of several heads, whose columns are side by side, each head from a whole vector on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HeadValues {
    /// The number of the parameter; rows of vectors count on from it.
    pub number: u32,
    /// Heads.
    pub heads: usize,
    /// Columns of a head.
    pub columns: usize,
    /// Rows that have values. Those behind them are zero.
    pub rows: usize,
    /// Whether each row is a matrix of heads × columns of its own, and not a part of one.
    pub are_vectors: bool,
}

/// Matrices that a formula fixes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Constant {
    /// Identities next to one another: `width` rows, `width · times` columns. A product with it repeats a matrix to the right.
    Repeat {
        /// Rows and columns of an identity.
        width: usize,
        /// How many there are.
        times: usize,
    },
    /// The columns of heads without the padding behind each: a product with it packs them.
    Packing {
        /// Heads.
        heads: usize,
        /// Columns of a head.
        columns: usize,
        /// Columns of a head with padding.
        distance: usize,
    },
    /// Ones in blocks along the diagonal, zeros elsewhere.
    Blocks {
        /// How many blocks there are.
        blocks: usize,
        /// Rows of a block.
        rows: usize,
        /// Columns of a block.
        columns: usize,
    },
    /// An identity with zeros on both sides: a product with it puts a matrix among more columns.
    Placing {
        /// Rows and columns of the identity.
        width: usize,
        /// The first of its columns.
        first: usize,
        /// All columns.
        columns: usize,
    },
}

impl Constant {
    /// Rows and columns.
    pub(super) fn shape(self) -> (usize, usize) {
        match self {
            Constant::Placing { width, columns, .. } => (width, columns),
            Constant::Repeat { width, times } => (width, width * times),
            Constant::Packing {
                heads,
                columns,
                distance,
            } => (heads * distance, heads * columns),
            Constant::Blocks {
                blocks,
                rows,
                columns,
            } => (blocks * rows, blocks * columns),
        }
    }

    /// The values, row-major.
    pub(super) fn values(self) -> Vec<f32> {
        let (rows, columns) = self.shape();
        let is_one = |row: usize, column: usize| match self {
            Constant::Placing { first, .. } => column == first + row,
            Constant::Repeat { width, .. } => column % width == row,
            Constant::Packing {
                columns: width,
                distance,
                ..
            } => row == column / width * distance + column % width,
            Constant::Blocks {
                rows: height,
                columns: width,
                ..
            } => row / height == column / width,
        };
        let values = (0..rows).flat_map(|row| (0..columns).map(move |column| (row, column)));
        values
            .map(|(row, column)| f32::from(is_one(row, column)))
            .collect()
    }
}

/// What a program knows of a value.
#[derive(Clone, Debug, PartialEq)]
pub struct Description {
    /// Its name: of inputs and parameters as the caller gave it, else empty.
    pub name: String,
    /// Rows and columns.
    pub shape: Shape,
    /// How elements lie in memory.
    pub format: Format,
    /// Where it comes from.
    pub origin: Origin,
}

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "%{}", self.0)
    }
}

/// Columns of a head among several, from whole vector to whole vector; of a single one as they are.
pub(super) fn head_distance(precision: Precision, heads: usize, columns: usize) -> usize {
    match heads {
        1 => columns,
        _ => with_element!(precision, E => padded::<E>(columns)),
    }
}

/// Bytes of the rows that are written at once, where [few shares](RowShare::MOST) make that possible.
const BYTES_OF_SHARE: usize = 16 << 20;

/// The number of shares that `rows` rows are written in.
pub(super) fn shares_of(precision: Precision, rows: usize, columns: usize) -> usize {
    let row = bytes_of(precision, 1, columns, false) as usize;
    rows.saturating_mul(row).div_ceil(BYTES_OF_SHARE)
}

/// The most rows of a share.
pub(super) fn share_rows(precision: Precision, rows: usize, columns: usize) -> usize {
    let shares = RowShare::each(shares_of(precision, rows, columns));
    let rows_of = |share: RowShare| share.rows(rows).len();
    shares.map(rows_of).max().unwrap_or(0)
}

/// Bytes of an element.
pub(super) fn element_bytes(precision: Precision) -> u64 {
    with_element!(precision, E => size_of_element::<E>()) as u64
}

/// Bytes of a matrix, padding included. With `gathered` its rows are as far apart as a sum over neighbours reads fastest.
pub(super) fn bytes_of(precision: Precision, rows: usize, columns: usize, gathered: bool) -> u64 {
    let row = with_element!(precision, E => {
        let stride = match gathered {
            true => gathered_stride::<E>(columns),
            false => padded::<E>(columns),
        };
        stride.saturating_mul(size_of_element::<E>())
    });
    // Of sizes that no device has it is the most there is.
    (rows as u64).saturating_mul(row as u64)
}

const fn size_of_element<E: Element>() -> usize {
    size_of::<E>()
}
