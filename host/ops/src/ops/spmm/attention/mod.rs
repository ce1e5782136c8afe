//! Weights by attention, and two SpMMs with them at once.

pub(crate) mod cpu;
pub(crate) mod gpu;

use super::{SpmmOperators, SpmmPolicy};
use crate::backend::{Adjacency, Storage};
use crate::error::Error;
use crate::ops::check::{expect_edges, expect_shape, expect_vertices, expect_width};
use crate::ops::elementwise::check::expect_dropout;
use crate::ops::{Checked, Dropout, Operator, QuantizedMatrix};
use crate::tensor::{Array, Element, Matrix, Precision};

/// Weights of edges by attention: `α(i,j) = softmax_j(LeakyReLU(destination[i] + source[j]))`, computed where they are
/// used, so that no array of edges is stored. Scores and statistics are planes, one a head, of one float (two for the
/// statistics) a vertex: head `h`, vertex `v` at `h · vertices + v`.
#[derive(Debug)]
pub struct EdgeAttention<'a, B: Storage> {
    /// Number of heads.
    pub heads: usize,
    /// Score of each vertex as destination.
    pub destination: &'a Array<B, f32>,
    /// Score of each vertex as source.
    pub source: &'a Array<B, f32>,
    /// Maximum and reciprocal sum of exponentials of each vertex as destination.
    pub statistics: &'a Array<B, [f32; 2]>,
    /// Slope of the LeakyReLU below zero.
    pub slope: f32,
    /// Whether the adjacency is the transposed one: rows are sources, columns destinations.
    pub transposed: bool,
    /// Which weights are dropped, by the edge's end points; the others are divided by `1 − probability`.
    pub dropout: Option<Dropout<'a, B>>,
    /// As of [`AttentionScores::biases`], in the order of the adjacency.
    pub biases: Option<&'a Array<B, f32>>,
    /// What [`attention_statistics`](crate::ops::attention_statistics) left of the sum of scores and bias of each edge,
    /// in the order of the adjacency, which is not the transposed one: two sums of a device ([`attention_pair`] without
    /// a softmax's gradient) read four bytes in the place of a sector of 32 in which the source's score is. The weights
    /// are the same, and so are those of others, who read the scores.
    pub sums: Option<&'a Array<B, f32>>,
}

impl<B: Storage> EdgeAttention<'_, B> {
    /// What the scores are made of.
    pub(crate) fn scores(&self) -> AttentionScores<'_, B> {
        AttentionScores {
            heads: self.heads,
            destination: self.destination,
            source: self.source,
            slope: self.slope,
            biases: self.biases,
        }
    }

    /// Refuses weights that do not fit the graph.
    pub(crate) fn check(&self, operator: &'static str, a: &Adjacency<B>) -> Result<(), Error> {
        let (destinations, sources) = ends(a, self.transposed);
        let (heads, what) = (self.heads, "scores of destinations");
        expect_vertices(operator, what, heads, destinations, self.destination)?;
        expect_vertices(operator, "scores of sources", heads, sources, self.source)?;
        expect_vertices(operator, "statistics", heads, destinations, self.statistics)?;
        expect_biases(operator, heads, a, self.biases)?;
        if let Some(sums) = self.sums {
            expect_edges(operator, "sums of scores", heads, a, sums)?;
            if self.transposed {
                return Err(Error::Unsupported {
                    operator,
                    reason: "sums of scores lie in the order of the adjacency whose rows are destinations; leave them out where it is transposed".into(),
                });
            }
        }
        expect_dropout(operator, self.dropout)
    }
}

/// What the scores of edges are made of: `LeakyReLU(destination[i] + source[j] + bias[k])` for the edge `k` from `j` to
/// `i`.
#[derive(Debug)]
pub struct AttentionScores<'a, B: Storage> {
    /// Number of heads.
    pub heads: usize,
    /// Score of each vertex as destination.
    pub destination: &'a Array<B, f32>,
    /// Score of each vertex as source.
    pub source: &'a Array<B, f32>,
    /// Slope of the LeakyReLU below zero.
    pub slope: f32,
    /// A number for each edge and head that is added to the two scores, where there are some: planes of edges,
    /// [`edge_plane`](crate::ops::edge_plane) floats apart, such as what GAT makes of features of edges.
    pub biases: Option<&'a Array<B, f32>>,
}

/// Refuses biases that do not fit the edges.
pub(crate) fn expect_biases<B: Storage>(
    operator: &'static str,
    heads: usize,
    a: &Adjacency<B>,
    biases: Option<&Array<B, f32>>,
) -> Result<(), Error> {
    match biases {
        Some(biases) => expect_edges(operator, "biases of edges", heads, a, biases),
        None => Ok(()),
    }
}

impl<B: Storage> Clone for AttentionScores<'_, B> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<B: Storage> Copy for AttentionScores<'_, B> {}

/// Two SpMMs of `x` in one walk over the edges: with all weights of attention, and with those of the edges whose sum of
/// scores is positive; and, where asked for, the sums of a softmax's gradient. In float, each element rounded once; see
/// [`AttentionPair`]. Rows without edges become zero.
///
/// # Errors
/// [`Error::Shape`] where the operands do not fit the graph, [`Error::Unsupported`] where the columns do not divide
/// into the heads, for a dropout probability outside [0, 1), and for a policy that no kernel is built for.
pub fn attention_pair<B: SpmmOperators, E: Element>(
    backend: &B,
    a: &Adjacency<B>,
    op: AttentionPair<'_, B, E>,
    x: &Matrix<B, E>,
) -> Result<(), Error> {
    let operands = AttentionPairOperands { a, op, x };
    backend.attention_pair(Checked::new(operands)?)
}

/// [`attention_pair`] of a matrix of 8-bit values, as [`quantized_spmm`](super::quantized_spmm) is of an SpMM. On a GPU
/// the two sums of int8 are made in integers, by weights that are rounded to multiples of what the largest of a warp's
/// is over 65,535: a NaN among them makes NaNs of the rows that the warp has.
///
/// # Errors
/// As [`attention_pair`], and [`Error::Unsupported`] for outputs in float.
pub fn quantized_attention_pair<B: SpmmOperators, E: Element>(
    backend: &B,
    a: &Adjacency<B>,
    op: AttentionPair<'_, B, E>,
    x: &QuantizedMatrix<B>,
) -> Result<(), Error> {
    let operands = QuantizedAttentionPairOperands { a, op, x };
    backend.quantized_attention_pair(Checked::new(operands)?)
}

/// Two SpMMs in one walk over the edges, each of which gathers its row of `x` once: with the weights `α k` of all
/// edges, and with those of the edges whose sum of scores is positive, which is what the gradient of a LeakyReLU needs.
/// `k` are the factors of dropout.
#[derive(Debug)]
pub struct AttentionPair<'a, B: Storage, E: Element> {
    /// The weights.
    pub weights: &'a EdgeAttention<'a, B>,
    /// How it computes, as of an SpMM with these weights.
    pub policy: SpmmPolicy,
    /// Becomes the sum over all edges of each row.
    pub all: &'a mut Matrix<B, E>,
    /// Becomes the sum over those of positive sum of scores.
    pub positive: &'a mut Matrix<B, E>,
    /// A third sum, of a number an edge.
    pub softmax_gradient: Option<SoftmaxGradient<'a, B>>,
}

/// `sums[row] = Σ LeakyReLU'(score) · α · values[destination]` over the edges of each row, without dropout: what a
/// softmax's gradient takes off that of the scores, where `values` are its inner sums. Planes of floats, a number a
/// vertex.
#[derive(Debug)]
pub struct SoftmaxGradient<'a, B: Storage> {
    /// Numbers of the vertices as destinations.
    pub values: &'a Array<B, f32>,
    /// Become the sums.
    pub sums: &'a mut Array<B, f32>,
}

/// Operands of [`attention_pair`].
#[derive(Debug)]
pub struct AttentionPairOperands<'a, B: Storage, E: Element> {
    /// The graph.
    pub a: &'a Adjacency<B>,
    /// The weights and the two sums.
    pub op: AttentionPair<'a, B, E>,
    /// The input.
    pub x: &'a Matrix<B, E>,
}

impl<B: Storage, E: Element> Operator for AttentionPairOperands<'_, B, E> {
    const NAME: &'static str = "attention_pair";

    fn check(&self) -> Result<(), Error> {
        self.op.check(Self::NAME, self.a, self.x.shape())
    }
}

/// Operands of [`quantized_attention_pair`].
#[derive(Debug)]
pub struct QuantizedAttentionPairOperands<'a, B: Storage, E: Element> {
    /// The graph.
    pub a: &'a Adjacency<B>,
    /// The weights and the two sums.
    pub op: AttentionPair<'a, B, E>,
    /// The input.
    pub x: &'a QuantizedMatrix<B>,
}

impl<B: Storage, E: Element> Operator for QuantizedAttentionPairOperands<'_, B, E> {
    const NAME: &'static str = "quantized_attention_pair";

    fn check(&self) -> Result<(), Error> {
        self.op.check(Self::NAME, self.a, self.x.shape())?;
        if E::PRECISION != Precision::Float {
            return Ok(());
        }
        Err(Error::Unsupported {
            operator: Self::NAME,
            reason: super::quantized::FLOAT_OUTPUT.into(),
        })
    }
}

impl<B: Storage, E: Element> AttentionPair<'_, B, E> {
    /// Refuses what does not fit a graph and an input of this shape.
    fn check(
        &self,
        operator: &'static str,
        a: &Adjacency<B>,
        (rows, columns): (usize, usize),
    ) -> Result<(), Error> {
        let heads = self.weights.heads;
        Error::expect(operator, "rows of x", a.columns(), rows)?;
        let shape = (a.rows(), columns);
        let of_all = ["rows of the sum", "columns of the sum"];
        expect_shape(operator, of_all, shape, self.all)?;
        let of_positive = ["rows of the positive sum", "columns of the positive sum"];
        expect_shape(operator, of_positive, shape, self.positive)?;
        expect_width(operator, heads, self.all)?;
        self.weights.check(operator, a)?;
        if let Some(SoftmaxGradient { values, sums }) = &self.softmax_gradient {
            let (destinations, _) = ends(a, self.weights.transposed);
            let what = "numbers of destinations";
            expect_vertices(operator, what, heads, destinations, values)?;
            expect_vertices(operator, "sums", heads, a.rows(), sums)?;
        }
        Ok(())
    }
}

/// Numbers of destinations and of sources.
pub(crate) fn ends<B: Storage>(a: &Adjacency<B>, transposed: bool) -> (usize, usize) {
    if transposed {
        (a.columns(), a.rows())
    } else {
        (a.rows(), a.columns())
    }
}
