//! Parts of attention: softmax over the edges of a row, reductions of values of edges, and what attention does to heads
//! of features.

use crate::backend::{
    Adjacency, AttentionPair, AttentionScores, Backend, EdgeStep, EdgeValues, HeadDots,
    SegmentReduction, SoftmaxGradient, Storage,
};
use crate::error::Error;
use crate::ops::{
    Checked, MOST_HEADS, Operator, check_attention, check_dropout, check_heads, ends, expect_shape,
};
use crate::tensor::{Array, Element, Matrix};
use bytemuck::Pod;
use halfgnn_contract::attention::edge_plane_stride;

/// Length of an array of a number for each edge and head of `a`.
pub fn edge_values<B: Storage>(a: &Adjacency<B>, heads: usize) -> usize {
    heads.saturating_mul(edge_plane_stride(a.edges() as u64) as usize)
}

pub(super) fn expect_heads(operator: &'static str, heads: usize) -> Result<(), Error> {
    if (1..=MOST_HEADS).contains(&heads) {
        return Ok(());
    }
    Err(Error::Unsupported {
        operator,
        reason: format!("{heads} heads; 1 to {MOST_HEADS} are possible"),
    })
}

/// Refuses features that are not `heads` heads of whole vectors.
fn expect_width<B: Storage, E: Element>(
    operator: &'static str,
    heads: usize,
    features: &Matrix<B, E>,
) -> Result<(), Error> {
    expect_heads(operator, heads)?;
    check_heads::<E>(operator, heads, features.columns())?;
    if features.columns() == 0 {
        return Err(Error::Unsupported {
            operator,
            reason: "the features have no columns".into(),
        });
    }
    Ok(())
}

fn expect_vertices<B: Storage, T: Pod + Send + Sync>(
    operator: &'static str,
    operand: &'static str,
    heads: usize,
    vertices: usize,
    numbers: &Array<B, T>,
) -> Result<(), Error> {
    Error::expect(
        operator,
        operand,
        heads.saturating_mul(vertices),
        numbers.len(),
    )
}

fn expect_edges<B: Storage, T: Pod + Send + Sync>(
    operator: &'static str,
    operand: &'static str,
    heads: usize,
    a: &Adjacency<B>,
    numbers: &Array<B, T>,
) -> Result<(), Error> {
    Error::expect(operator, operand, edge_values(a, heads), numbers.len())
}

fn expect_scores<B: Storage>(
    operator: &'static str,
    scores: &AttentionScores<'_, B>,
    a: &Adjacency<B>,
) -> Result<(), Error> {
    let heads = scores.heads;
    expect_heads(operator, heads)?;
    let (destination, source) = (scores.destination, scores.source);
    expect_vertices(
        operator,
        "scores as destination",
        heads,
        a.rows(),
        destination,
    )?;
    expect_vertices(operator, "scores as source", heads, a.columns(), source)
}

/// Scores of every head of every vertex, `destination[h, v] = x[v, h] · vectors[0, h]` and
/// `source[h, v] = x[v, h] · vectors[1, h]`, in one pass over the features and in float.
///
/// # Errors
/// [`Error::Shape`] where the operands do not fit, [`Error::Unsupported`] where the columns are not so many heads.
pub fn head_scores<B: Backend, E: Element>(
    backend: &B,
    heads: usize,
    x: &Matrix<B, E>,
    vectors: &Matrix<B, E>,
    destination: &mut Array<B, f32>,
    source: &mut Array<B, f32>,
) -> Result<(), Error> {
    let operands = HeadScoresOperands {
        heads,
        x,
        vectors,
        destination,
        source,
    };
    backend.head_scores(Checked::new(operands)?)
}

/// Operands of [`head_scores`].
#[derive(Debug)]
pub struct HeadScoresOperands<'a, B: Storage, E: Element> {
    /// Number of heads.
    pub heads: usize,
    /// The features.
    pub x: &'a Matrix<B, E>,
    /// The two attention vectors.
    pub vectors: &'a Matrix<B, E>,
    /// Become the scores as destination.
    pub destination: &'a mut Array<B, f32>,
    /// Become the scores as source.
    pub source: &'a mut Array<B, f32>,
}

impl<B: Storage, E: Element> Operator for HeadScoresOperands<'_, B, E> {
    const NAME: &'static str = "head_scores";

    fn check(&self) -> Result<(), Error> {
        let heads = self.heads;
        let HeadScoresOperands {
            x,
            vectors,
            destination,
            source,
            ..
        } = self;
        expect_width(Self::NAME, heads, x)?;
        expect_vectors(Self::NAME, x, vectors)?;
        expect_vertices(
            Self::NAME,
            "scores as destination",
            heads,
            x.rows(),
            destination,
        )?;
        expect_vertices(Self::NAME, "scores as source", heads, x.rows(), source)?;
        Ok(())
    }
}

/// The two attention vectors, destination and source, lie in a matrix of two rows.
fn expect_vectors<B: Storage, E: Element, V: Element>(
    operator: &'static str,
    x: &Matrix<B, E>,
    vectors: &Matrix<B, V>,
) -> Result<(), Error> {
    expect_shape(
        operator,
        [
            "rows of the attention vectors",
            "columns of the attention vectors",
        ],
        (2, x.columns()),
        vectors,
    )
}

/// Softmax statistics of the scores `LeakyReLU(destination[i] + source[j])` of the edges of each row `i`: the largest
/// score and the reciprocal of `Σ exp(score − largest)`, from which [`EdgeAttention`](crate::backend::EdgeAttention) has the weight of every edge, and, in
/// `positive_share`, the sum of the weights of the edges whose `destination + source` is positive. One pass over the
/// edges, in float; `exp` is taken of nothing positive, so scores of any size are safe. Zeros for a row without edges.
///
/// # Errors
/// [`Error::Shape`] where the operands do not fit the graph, [`Error::Unsupported`] for no heads or too many.
pub fn attention_statistics<B: Backend>(
    backend: &B,
    a: &Adjacency<B>,
    scores: &AttentionScores<'_, B>,
    statistics: &mut Array<B, [f32; 2]>,
    positive_share: Option<&mut Array<B, f32>>,
) -> Result<(), Error> {
    let operands = AttentionStatisticsOperands {
        a,
        scores,
        statistics,
        positive_share,
    };
    backend.attention_statistics(Checked::new(operands)?)
}

/// Operands of [`attention_statistics`].
#[derive(Debug)]
pub struct AttentionStatisticsOperands<'a, B: Storage> {
    /// The graph.
    pub a: &'a Adjacency<B>,
    /// Scores of its vertices.
    pub scores: &'a AttentionScores<'a, B>,
    /// Become the statistics.
    pub statistics: &'a mut Array<B, [f32; 2]>,
    /// Becomes the share of positive sums of scores.
    pub positive_share: Option<&'a mut Array<B, f32>>,
}

impl<B: Storage> Operator for AttentionStatisticsOperands<'_, B> {
    const NAME: &'static str = "attention_statistics";

    fn check(&self) -> Result<(), Error> {
        let AttentionStatisticsOperands {
            a,
            scores,
            statistics,
            positive_share,
        } = self;
        expect_scores(Self::NAME, scores, a)?;
        expect_vertices(Self::NAME, "statistics", scores.heads, a.rows(), statistics)?;
        if let Some(share) = &positive_share {
            expect_vertices(Self::NAME, "positive shares", scores.heads, a.rows(), share)?;
        }
        Ok(())
    }
}

/// Two SpMMs of `x` in one walk over the edges: with all weights of attention, and with those of the edges whose sum of
/// scores is positive; and, where asked for, the sums of a softmax's gradient. In float, each element rounded once; see
/// [`AttentionPair`]. Rows without edges become zero.
///
/// # Errors
/// [`Error::Shape`] where the operands do not fit the graph, [`Error::Unsupported`] where the columns are not so many heads,
/// for a dropout probability outside [0, 1), and for a policy that no kernel is built for.
pub fn attention_pair<B: Backend, E: Element>(
    backend: &B,
    a: &Adjacency<B>,
    op: AttentionPair<'_, B, E>,
    x: &Matrix<B, E>,
) -> Result<(), Error> {
    let operands = AttentionPairOperands { a, op, x };
    backend.attention_pair(Checked::new(operands)?)
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
        let AttentionPairOperands { a, op, x } = self;
        let heads = op.weights.heads;
        let shape = (a.columns(), x.columns());
        expect_shape(Self::NAME, ["rows of x", "columns of x"], shape, x)?;
        let shape = (a.rows(), x.columns());
        let of_all = ["rows of the sum", "columns of the sum"];
        expect_shape(Self::NAME, of_all, shape, op.all)?;
        let of_positive = ["rows of the positive sum", "columns of the positive sum"];
        expect_shape(Self::NAME, of_positive, shape, op.positive)?;
        expect_width(Self::NAME, heads, x)?;
        check_attention(Self::NAME, a, op.weights)?;
        if let Some(SoftmaxGradient { values, sums }) = &op.through {
            let (destinations, _) = ends(a, op.weights.transposed);
            expect_vertices(
                Self::NAME,
                "numbers of destinations",
                heads,
                destinations,
                values,
            )?;
            expect_vertices(Self::NAME, "sums", heads, a.rows(), sums)?;
        }
        Ok(())
    }
}

/// A number a row from the values of its edges: their sum, added up in float in a fixed order, or their maximum.
///
/// # Errors
/// [`Error::Shape`] where the operands do not fit the graph, [`Error::Unsupported`] for a maximum of anything but plain
/// values, for no heads or too many.
pub fn segment_reduce<B: Backend, E: Element>(
    backend: &B,
    a: &Adjacency<B>,
    heads: usize,
    reduction: SegmentReduction,
    values: &EdgeValues<'_, B, E>,
    result: &mut Array<B, f32>,
) -> Result<(), Error> {
    let operands = SegmentReduceOperands {
        a,
        heads,
        reduction,
        values,
        result,
    };
    backend.segment_reduce(Checked::new(operands)?)
}

/// Operands of [`segment_reduce`].
#[derive(Debug)]
pub struct SegmentReduceOperands<'a, B: Storage, E: Element> {
    /// The graph.
    pub a: &'a Adjacency<B>,
    /// Number of heads.
    pub heads: usize,
    /// What is made of the values of a row.
    pub reduction: SegmentReduction,
    /// The values of the edges.
    pub values: &'a EdgeValues<'a, B, E>,
    /// Becomes a number a row and head.
    pub result: &'a mut Array<B, f32>,
}

impl<B: Storage, E: Element> Operator for SegmentReduceOperands<'_, B, E> {
    const NAME: &'static str = "segment_reduce";

    fn check(&self) -> Result<(), Error> {
        let heads = self.heads;
        let reduction = self.reduction;
        let SegmentReduceOperands {
            a, values, result, ..
        } = self;
        expect_heads(Self::NAME, heads)?;
        expect_vertices(Self::NAME, "result", heads, a.rows(), result)?;
        match values {
            EdgeValues::Plane(plane) => expect_edges(Self::NAME, "edge values", heads, a, plane)?,
            EdgeValues::Product(plane, factors) => {
                expect_edges(Self::NAME, "edge values", heads, a, plane)?;
                expect_edges(Self::NAME, "edge factors", heads, a, factors)?;
            }
            EdgeValues::Gathered(plane, map) => {
                expect_edges(Self::NAME, "edge values", heads, a, plane)?;
                Error::expect(Self::NAME, "edge map", a.edges(), map.len())?;
            }
        }
        if reduction == SegmentReduction::Max && !matches!(values, EdgeValues::Plane(_)) {
            return Err(Error::Unsupported {
                operator: Self::NAME,
                reason: "maxima are of plain values only, not of products or gathered ones".into(),
            });
        }
        Ok(())
    }
}

/// One step of an edge softmax or of its gradient; see [`EdgeStep`]. In place where `x` is absent.
///
/// # Errors
/// [`Error::Shape`] where the operands do not fit the graph, [`Error::Unsupported`] for no heads or too many, and for a
/// dropout probability outside [0, 1).
pub fn edge_step<B: Backend, E: Element>(
    backend: &B,
    a: &Adjacency<B>,
    heads: usize,
    step: &EdgeStep<'_, B, E>,
    x: Option<&Array<B, E>>,
    y: &mut Array<B, E>,
) -> Result<(), Error> {
    let operands = EdgeStepOperands {
        a,
        heads,
        step,
        x,
        y,
    };
    backend.edge_map(Checked::new(operands)?)
}

/// Operands of [`edge_step`].
#[derive(Debug)]
pub struct EdgeStepOperands<'a, B: Storage, E: Element> {
    /// The graph.
    pub a: &'a Adjacency<B>,
    /// Number of heads.
    pub heads: usize,
    /// The step.
    pub step: &'a EdgeStep<'a, B, E>,
    /// The input; in place where absent.
    pub x: Option<&'a Array<B, E>>,
    /// Becomes the output.
    pub y: &'a mut Array<B, E>,
}

impl<B: Storage, E: Element> Operator for EdgeStepOperands<'_, B, E> {
    const NAME: &'static str = "edge_step";

    fn check(&self) -> Result<(), Error> {
        let heads = self.heads;
        let EdgeStepOperands { a, step, x, y, .. } = self;
        expect_heads(Self::NAME, heads)?;
        if let Some(x) = x {
            expect_edges(Self::NAME, "edge values", heads, a, x)?;
        }
        expect_edges(Self::NAME, "result", heads, a, y)?;
        match step {
            EdgeStep::Scores(of) | EdgeStep::ScoresBackward(of) => {
                Error::expect(Self::NAME, "heads of the scores", heads, of.heads)?;
                expect_scores(Self::NAME, of, a)?;
            }
            EdgeStep::Exp { row } | EdgeStep::Divide { row } => {
                expect_vertices(Self::NAME, "numbers of rows", heads, a.rows(), row)?;
            }
            EdgeStep::SoftmaxBackward { factor, row } => {
                expect_edges(Self::NAME, "edge factors", heads, a, factor)?;
                expect_vertices(Self::NAME, "numbers of rows", heads, a.rows(), row)?;
            }
            EdgeStep::Dropout(dropout) => check_dropout(Self::NAME, Some(*dropout))?,
        }
        Ok(())
    }
}

/// Dots of the heads of each row, in float; see [`HeadDots`].
///
/// # Errors
/// [`Error::Shape`] where the operands do not fit, [`Error::Unsupported`] where the columns are not so many heads.
pub fn head_dots<B: Backend, E: Element>(
    backend: &B,
    op: &HeadDots<'_, B, E>,
    y: &mut Array<B, f32>,
) -> Result<(), Error> {
    let operands = HeadDotsOperands { op, y };
    backend.head_dots(Checked::new(operands)?)
}

/// Operands of [`head_dots`].
#[derive(Debug)]
pub struct HeadDotsOperands<'a, B: Storage, E: Element> {
    /// What is multiplied.
    pub op: &'a HeadDots<'a, B, E>,
    /// Becomes a number a head and row.
    pub y: &'a mut Array<B, f32>,
}

impl<B: Storage, E: Element> Operator for HeadDotsOperands<'_, B, E> {
    const NAME: &'static str = "head_dots";

    fn check(&self) -> Result<(), Error> {
        let HeadDotsOperands { op, y } = self;
        expect_width(Self::NAME, op.heads, op.a)?;
        let rows = op.a.rows();
        let shape = op.a.shape();
        expect_shape(Self::NAME, ["rows of b", "columns of b"], shape, op.b.1)?;
        if let Some((_, c)) = op.c {
            expect_shape(Self::NAME, ["rows of c", "columns of c"], shape, c)?;
        }
        for numbers in [op.u.map(|(_, u)| u), op.v].into_iter().flatten() {
            expect_vertices(Self::NAME, "numbers of vertices", op.heads, rows, numbers)?;
        }
        expect_vertices(Self::NAME, "result", op.heads, rows, y)?;
        Ok(())
    }
}

/// Adds `destination[h, v] · vectors[0, h] + source[h, v] · vectors[1, h]` to every head of every row of `x`: the gradient
/// of [`head_scores`] for the features.
///
/// # Errors
/// [`Error::Shape`] where the operands do not fit, [`Error::Unsupported`] where the columns are not so many heads.
pub fn head_outer<B: Backend, E: Element>(
    backend: &B,
    heads: usize,
    destination: &Array<B, f32>,
    source: &Array<B, f32>,
    vectors: &Matrix<B, E>,
    x: &mut Matrix<B, E>,
) -> Result<(), Error> {
    let operands = HeadOuterOperands {
        heads,
        destination,
        source,
        vectors,
        x,
    };
    backend.head_outer(Checked::new(operands)?)
}

/// Operands of [`head_outer`].
#[derive(Debug)]
pub struct HeadOuterOperands<'a, B: Storage, E: Element> {
    /// Number of heads.
    pub heads: usize,
    /// Numbers of the rows as destinations.
    pub destination: &'a Array<B, f32>,
    /// Numbers of the rows as sources.
    pub source: &'a Array<B, f32>,
    /// The two attention vectors.
    pub vectors: &'a Matrix<B, E>,
    /// What is added to.
    pub x: &'a mut Matrix<B, E>,
}

impl<B: Storage, E: Element> Operator for HeadOuterOperands<'_, B, E> {
    const NAME: &'static str = "head_outer";

    fn check(&self) -> Result<(), Error> {
        let heads = self.heads;
        let HeadOuterOperands {
            destination,
            source,
            vectors,
            x,
            ..
        } = self;
        expect_width(Self::NAME, heads, x)?;
        expect_vectors(Self::NAME, x, vectors)?;
        expect_vertices(
            Self::NAME,
            "numbers as destination",
            heads,
            x.rows(),
            destination,
        )?;
        expect_vertices(Self::NAME, "numbers as source", heads, x.rows(), source)?;
        Ok(())
    }
}

/// `sums[0, h] = Σ_v destination[h, v] · x[v, h]` and `sums[1, h] = Σ_v source[h, v] · x[v, h]`, in float and in a fixed
/// order: the gradient of [`head_scores`] for the attention vectors.
///
/// # Errors
/// [`Error::Shape`] where the operands do not fit, [`Error::Unsupported`] where the columns are not so many heads.
pub fn head_sums<B: Backend, E: Element>(
    backend: &B,
    heads: usize,
    x: &Matrix<B, E>,
    destination: &Array<B, f32>,
    source: &Array<B, f32>,
    sums: &mut Matrix<B, f32>,
) -> Result<(), Error> {
    let operands = HeadSumsOperands {
        heads,
        x,
        destination,
        source,
        sums,
    };
    backend.head_sums(Checked::new(operands)?)
}

/// Operands of [`head_sums`].
#[derive(Debug)]
pub struct HeadSumsOperands<'a, B: Storage, E: Element> {
    /// Number of heads.
    pub heads: usize,
    /// The features.
    pub x: &'a Matrix<B, E>,
    /// Numbers of the rows as destinations.
    pub destination: &'a Array<B, f32>,
    /// Numbers of the rows as sources.
    pub source: &'a Array<B, f32>,
    /// Become the two rows of sums.
    pub sums: &'a mut Matrix<B, f32>,
}

impl<B: Storage, E: Element> Operator for HeadSumsOperands<'_, B, E> {
    const NAME: &'static str = "head_sums";

    fn check(&self) -> Result<(), Error> {
        let heads = self.heads;
        let HeadSumsOperands {
            x,
            destination,
            source,
            sums,
            ..
        } = self;
        expect_width(Self::NAME, heads, x)?;
        expect_vectors(Self::NAME, x, sums)?;
        expect_vertices(
            Self::NAME,
            "numbers as destination",
            heads,
            x.rows(),
            destination,
        )?;
        expect_vertices(Self::NAME, "numbers as source", heads, x.rows(), source)?;
        Ok(())
    }
}

/// The mean of the heads of `x`, in float, rounded once. A head of `x` is as wide as a row of `y`, padded to a whole vector
/// where there is more than one head.
///
/// # Errors
/// [`Error::Shape`] where the operands do not fit, [`Error::Unsupported`] where the columns are not so many heads.
pub fn head_mean<B: Backend, E: Element>(
    backend: &B,
    heads: usize,
    x: &Matrix<B, E>,
    y: &mut Matrix<B, E>,
) -> Result<(), Error> {
    let operands = HeadMeanOperands { heads, x, y };
    backend.head_mean(Checked::new(operands)?)
}

/// Operands of [`head_mean`].
#[derive(Debug)]
pub struct HeadMeanOperands<'a, B: Storage, E: Element> {
    /// Number of heads.
    pub heads: usize,
    /// The features.
    pub x: &'a Matrix<B, E>,
    /// Becomes their mean.
    pub y: &'a mut Matrix<B, E>,
}

impl<B: Storage, E: Element> Operator for HeadMeanOperands<'_, B, E> {
    const NAME: &'static str = "head_mean";

    fn check(&self) -> Result<(), Error> {
        let heads = self.heads;
        let HeadMeanOperands { x, y, .. } = self;
        expect_mean("head_mean", heads, x, y)?;
        Ok(())
    }
}

/// The gradient of [`head_mean`]: every head of `dx` becomes `dy` over the number of heads.
///
/// # Errors
/// Those of [`head_mean`].
pub fn head_mean_backward<B: Backend, E: Element>(
    backend: &B,
    heads: usize,
    dy: &Matrix<B, E>,
    dx: &mut Matrix<B, E>,
) -> Result<(), Error> {
    let operands = HeadMeanBackwardOperands { heads, dy, dx };
    backend.head_mean_backward(Checked::new(operands)?)
}

/// Operands of [`head_mean_backward`].
#[derive(Debug)]
pub struct HeadMeanBackwardOperands<'a, B: Storage, E: Element> {
    /// Number of heads.
    pub heads: usize,
    /// Gradient of the mean.
    pub dy: &'a Matrix<B, E>,
    /// Becomes that of the features.
    pub dx: &'a mut Matrix<B, E>,
}

impl<B: Storage, E: Element> Operator for HeadMeanBackwardOperands<'_, B, E> {
    const NAME: &'static str = "head_mean_backward";

    fn check(&self) -> Result<(), Error> {
        let heads = self.heads;
        let HeadMeanBackwardOperands { dy, dx, .. } = self;
        expect_mean("head_mean_backward", heads, dx, dy)?;
        Ok(())
    }
}

fn expect_mean<B: Storage, E: Element>(
    operator: &'static str,
    heads: usize,
    with_heads: &Matrix<B, E>,
    mean: &Matrix<B, E>,
) -> Result<(), Error> {
    expect_width(operator, heads, with_heads)?;
    let operands = ["rows of the mean", "padded columns of the mean"];
    Error::expect(operator, operands[0], with_heads.rows(), mean.rows())?;
    Error::expect(
        operator,
        operands[1],
        with_heads.stride() / heads,
        mean.stride(),
    )
}
