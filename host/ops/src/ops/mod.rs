//! The operators: shapes are checked here, once for every backend, and nothing is launched where they do not fit.

mod attention;
mod checked;
mod normalize;
mod sddmm;
pub mod shadow;

pub use attention::{
    Attention, AttentionBackward, AttentionForward, AttentionPairOperands,
    AttentionStatisticsOperands, EdgeStepOperands, HeadDotsOperands, HeadMeanBackwardOperands,
    HeadMeanOperands, HeadOuterOperands, HeadScoresOperands, HeadSumsOperands,
    SegmentReduceOperands, attention_pair, attention_statistics, edge_softmax,
    edge_softmax_backward, edge_step, edge_values, head_dots, head_mean, head_mean_backward,
    head_outer, head_scores, head_sums, segment_reduce,
};
pub use checked::{Checked, Operator};
pub use normalize::{
    BatchStatisticsOperands, CombineOperands, DotOperands, NormalizeBackwardOperands,
    NormalizeOperands, RunningStatisticsOperands, batch_statistics, combine, combine_rows, dot,
    normalize, normalize_backward, running_statistics,
};
pub use sddmm::{CombineEdgesOperands, SddmmOperands, combine_edges, sddmm};
pub use shadow::ShadowOperands;

use crate::backend::{
    Accumulate, Activation, AdamHyper, Adjacency, Backend, Beside, Dropout, EdgeAttention,
    EdgeWeights, Epilogue, Form, LossScaling, MemoryKind, OptimizerSnapshot, OptimizerState,
    ParameterMut, Scaling, Spmm, SpmmPolicy, Storage, Write,
};
use crate::error::Error;
use crate::tensor::{Array, Element, Matrix, Precision};
use halfgnn_contract::attention::edge_plane_stride;
use std::sync::Arc;

/// The most heads of an operator: CTAs in y or z of a grid.
pub const MOST_HEADS: usize = 65_535;

fn expect_shape<B: Storage, E: Element>(
    operator: &'static str,
    operands: [&'static str; 2],
    expected: (usize, usize),
    matrix: &Matrix<B, E>,
) -> Result<(), Error> {
    Error::expect(operator, operands[0], expected.0, matrix.rows())?;
    Error::expect(operator, operands[1], expected.1, matrix.columns())
}

fn expect_len<B: Storage, T: bytemuck::Pod + Send + Sync>(
    operator: &'static str,
    operand: &'static str,
    expected: usize,
    array: Option<&Array<B, T>>,
) -> Result<(), Error> {
    array.map_or(Ok(()), |array| {
        Error::expect(operator, operand, expected, array.len())
    })
}

/// Refuses logits without a class: nothing could be right, and a loss has no meaning.
fn expect_classes<B: Storage, E: Element>(
    operator: &'static str,
    logits: &Matrix<B, E>,
) -> Result<(), Error> {
    if logits.columns() == 0 {
        return Err(Error::Unsupported {
            operator,
            reason: "the logits have no columns, one a class".into(),
        });
    }
    Ok(())
}

/// Refuses what would be added up in elements that have no arithmetic.
fn check_arithmetic<E: Element>(operator: &'static str, policy: SpmmPolicy) -> Result<(), Error> {
    let wanted = policy.accumulate == Accumulate::Half
        || policy.scaling != Scaling::Discretized
        || policy.write == Write::Atomic;
    match E::PRECISION.without_arithmetic(wanted) {
        Some(reason) => Err(Error::Unsupported { operator, reason }),
        None => Ok(()),
    }
}

/// Sparse times dense (HalfGNN §4.3): `y[i] = scale · s[i] · Σ_j w(i,j) · x[j]` over the edges of row `i`, and what
/// [`Spmm::epilogue`] makes of it.
///
/// `x` is columns × F and `y` rows × F, for any F; several heads must be equally wide and begin at 16 bytes. A row without edges
/// has a sum of zero. In half precision and with the default
/// policy every batch of edges is summed up and scaled in float, and the row is rounded once.
///
/// # Errors
/// [`Error::Shape`] where an operand does not fit the graph, [`Error::Unsupported`] where no kernel has the policy.
pub fn spmm<B: Backend, E: Element>(
    backend: &B,
    a: &Adjacency<B>,
    op: &Spmm<'_, B, E>,
    x: &Matrix<B, E>,
    y: &mut Matrix<B, E>,
) -> Result<(), Error> {
    let operands = SpmmOperands { a, op, x, y };
    backend.spmm(Checked::new(operands)?)
}

/// Operands of an [SpMM](spmm).
#[derive(Debug)]
pub struct SpmmOperands<'a, B: Storage, E: Element> {
    /// The graph.
    pub a: &'a Adjacency<B>,
    /// What is computed, and how.
    pub op: &'a Spmm<'a, B, E>,
    /// The input, columns × F.
    pub x: &'a Matrix<B, E>,
    /// Becomes the output, rows × F.
    pub y: &'a mut Matrix<B, E>,
}

impl<B: Storage, E: Element> Operator for SpmmOperands<'_, B, E> {
    const NAME: &'static str = "spmm";

    fn check(&self) -> Result<(), Error> {
        let SpmmOperands { a, op, x, y } = self;
        expect_shape(
            Self::NAME,
            ["rows of x", "columns of x"],
            (a.columns(), y.columns()),
            x,
        )?;
        expect_shape(
            Self::NAME,
            ["rows of y", "columns of y"],
            (a.rows(), x.columns()),
            y,
        )?;
        check_arithmetic::<E>(Self::NAME, op.policy)?;
        match op.weights {
            EdgeWeights::Ones => {}
            EdgeWeights::Features(weights) => {
                Error::expect(Self::NAME, "edge weights", a.edges(), weights.len())?
            }
            EdgeWeights::Planes { values, heads } => {
                check_heads::<E>(Self::NAME, heads, x.columns())?;
                let plane = edge_plane_stride(a.edges() as u64) as usize;
                Error::expect(Self::NAME, "edge weights", heads * plane, values.len())?
            }
            EdgeWeights::Columns(scale) => {
                Error::expect(Self::NAME, "column factors", a.columns(), scale.len())?
            }
            EdgeWeights::Attention(of) => {
                check_heads::<E>(Self::NAME, of.heads, x.columns())?;
                check_attention(Self::NAME, a, of)?;
            }
        }
        expect_len(Self::NAME, "row factors", a.rows(), op.row_scale)?;
        if let Some(addend) = op.epilogue.addend {
            // More rows than the product has are not read.
            let rows = addend.matrix.rows().min(a.rows());
            Error::expect(Self::NAME, "rows of the addend", a.rows(), rows)?;
            let columns = addend.matrix.columns();
            Error::expect(Self::NAME, "columns of the addend", x.columns(), columns)?;
            if let Some(epsilon) = addend.epsilon {
                let what = ["rows of epsilon", "columns of epsilon"];
                expect_shape(Self::NAME, what, (1, 1), epsilon)?;
            }
            let what = "row factors of the addend";
            expect_len(Self::NAME, what, a.rows(), addend.row_scale)?;
        }
        expect_bias(Self::NAME, x.columns(), op.epilogue.bias)?;
        Ok(())
    }
}

/// Numbers of destinations and of sources.
fn ends<B: Storage>(a: &Adjacency<B>, transposed: bool) -> (usize, usize) {
    if transposed {
        (a.columns(), a.rows())
    } else {
        (a.rows(), a.columns())
    }
}

/// Refuses weights that do not fit the graph.
fn check_attention<B: Storage>(
    operator: &'static str,
    a: &Adjacency<B>,
    of: &EdgeAttention<'_, B>,
) -> Result<(), Error> {
    let (destinations, sources) = ends(a, of.transposed);
    let (destination, source) = (of.destination.len(), of.source.len());
    let planes = of.heads.saturating_mul(destinations);
    Error::expect(operator, "scores of destinations", planes, destination)?;
    let of_sources = of.heads.saturating_mul(sources);
    Error::expect(operator, "scores of sources", of_sources, source)?;
    Error::expect(operator, "statistics", planes, of.statistics.len())?;
    check_dropout(operator, of.dropout)
}

/// Refuses heads into which `columns` cannot be cut.
fn check_heads<E: Element>(
    operator: &'static str,
    heads: usize,
    columns: usize,
) -> Result<(), Error> {
    let legal = match heads {
        0 => false,
        1 => true,
        _ => (columns / E::LANES).is_multiple_of(heads) && columns.is_multiple_of(E::LANES),
    };
    if legal {
        return Ok(());
    }
    Err(Error::Unsupported {
        operator,
        reason: format!(
            "{columns} columns cannot be cut into {heads} heads of whole vectors of {} elements",
            E::LANES
        ),
    })
}

/// Dense product of two matrices in one of three forms, with an epilogue; see [`Form`] and [`Epilogue`].
///
/// # Errors
/// [`Error::Shape`] where the operands do not fit one another.
pub fn matmul<B: Backend, E: Element, O: Element>(
    backend: &B,
    form: Form,
    a: &Matrix<B, E>,
    b: &Matrix<B, E>,
    epilogue: &Epilogue<'_, B>,
    c: &mut Matrix<B, O>,
) -> Result<(), Error> {
    matmul_beside(backend, form, a, b, epilogue, Beside::default(), c)
}

/// [`matmul`], and what a layer's backward pass has of the same product beside it: see [`Beside`].
///
/// # Errors
/// [`Error::Shape`] where the operands do not fit one another, [`Error::Unsupported`] for a normalised operand of another
/// product than [`Beside`] says.
pub fn matmul_beside<B: Backend, E: Element, O: Element>(
    backend: &B,
    form: Form,
    a: &Matrix<B, E>,
    b: &Matrix<B, E>,
    epilogue: &Epilogue<'_, B>,
    beside: Beside<'_, B, O>,
    c: &mut Matrix<B, O>,
) -> Result<(), Error> {
    let operands = MatmulOperands {
        form,
        a,
        b,
        epilogue,
        beside,
        c,
    };
    backend.matmul(Checked::new(operands)?)
}

/// Operands of a [matrix product](matmul_beside).
#[derive(Debug)]
pub struct MatmulOperands<'a, B: Storage, E: Element, O: Element> {
    /// Which operand is transposed.
    pub form: Form,
    /// The first operand.
    pub a: &'a Matrix<B, E>,
    /// The second operand.
    pub b: &'a Matrix<B, E>,
    /// What becomes of the sums.
    pub epilogue: &'a Epilogue<'a, B>,
    /// What is computed beside the product.
    pub beside: Beside<'a, B, O>,
    /// Becomes the product.
    pub c: &'a mut Matrix<B, O>,
}

impl<B: Storage, E: Element, O: Element> Operator for MatmulOperands<'_, B, E, O> {
    const NAME: &'static str = "matmul";

    fn check(&self) -> Result<(), Error> {
        let form = self.form;
        let MatmulOperands {
            a,
            b,
            epilogue,
            beside,
            c,
            ..
        } = self;
        let ((m, k), (k_b, n)) = match form {
            Form::NN => (a.shape(), b.shape()),
            Form::NT => (a.shape(), (b.columns(), b.rows())),
            Form::TN => ((a.columns(), a.rows()), b.shape()),
        };
        Error::expect(Self::NAME, "inner dimension of b", k, k_b)?;
        expect_shape(Self::NAME, ["rows of c", "columns of c"], (m, n), c)?;
        expect_len(Self::NAME, "row factors", m, epilogue.row_scale)?;
        expect_bias(Self::NAME, n, epilogue.bias)?;
        if let Some(normalization) = beside.normalization {
            normalize::check(Self::NAME, normalization, a.columns())?;
            let output = match form {
                Form::NN => Some(E::PRECISION),
                Form::NT => None,
                Form::TN => Some(Precision::Float),
            };
            if output != Some(O::PRECISION) {
                return Err(Error::Unsupported {
                    operator: Self::NAME,
                    reason: format!(
                        "a product of the form {form:?} in {} takes no normalised operand; normalise it before",
                        O::PRECISION
                    ),
                });
            }
        }
        if let Some(positive) = beside.positive {
            let what = ["rows of the ReLU's output", "columns of the ReLU's output"];
            expect_shape(Self::NAME, what, (m, n), positive)?;
        }
        if let Some(sums) = &beside.column_sums {
            let what = ["rows of the sums", "columns of the sums"];
            expect_shape(Self::NAME, what, (1, b.columns()), sums)?;
        }
        Ok(())
    }
}

fn expect_bias<B: Storage>(
    operator: &'static str,
    columns: usize,
    bias: Option<&Matrix<B, f32>>,
) -> Result<(), Error> {
    bias.map_or(Ok(()), |bias| {
        expect_shape(
            operator,
            ["rows of the bias", "columns of the bias"],
            (1, columns),
            bias,
        )
    })
}

fn check_activation<B: Storage>(
    operator: &'static str,
    op: &Activation<'_, B>,
    columns: usize,
) -> Result<(), Error> {
    expect_bias(operator, columns, op.bias)?;
    check_dropout(operator, op.dropout)
}

fn check_dropout<B: Storage>(
    operator: &'static str,
    dropout: Option<Dropout<'_, B>>,
) -> Result<(), Error> {
    match dropout {
        Some(dropout) if !(0.0..1.0).contains(&dropout.probability) => Err(Error::Unsupported {
            operator,
            reason: format!(
                "dropout probability {} is not in [0, 1)",
                dropout.probability
            ),
        }),
        _ => Ok(()),
    }
}

/// `y = dropout(relu(x + bias))`, each part where `op` has it; in place where `x` is absent.
///
/// # Errors
/// [`Error::Shape`] where the operands do not fit, [`Error::Unsupported`] for a probability outside [0, 1).
pub fn activate<B: Backend, E: Element>(
    backend: &B,
    op: &Activation<'_, B>,
    x: Option<&Matrix<B, E>>,
    y: &mut Matrix<B, E>,
) -> Result<(), Error> {
    let operands = ActivateOperands { op, x, y };
    backend.activate(Checked::new(operands)?)
}

/// Operands of [`activate`].
#[derive(Debug)]
pub struct ActivateOperands<'a, B: Storage, E: Element> {
    /// What is done.
    pub op: &'a Activation<'a, B>,
    /// The input; in place where absent.
    pub x: Option<&'a Matrix<B, E>>,
    /// Becomes the output.
    pub y: &'a mut Matrix<B, E>,
}

impl<B: Storage, E: Element> Operator for ActivateOperands<'_, B, E> {
    const NAME: &'static str = "activate";

    fn check(&self) -> Result<(), Error> {
        let ActivateOperands { op, x, y } = self;
        if let Some(x) = x {
            expect_shape(Self::NAME, ["rows of y", "columns of y"], x.shape(), y)?;
        }
        check_activation(Self::NAME, op, y.columns())?;
        Ok(())
    }
}

/// The gradient of [`activate`] in place: `d` holds dL/dy and becomes dL/dx, each row times its factor of `row_scale`.
/// `y` is the output of the forward pass, wanted where `op` has a ReLU.
///
/// # Errors
/// [`Error::Shape`] where the operands do not fit, [`Error::Unsupported`] where `y` is wanted and absent.
pub fn activate_backward<B: Backend, E: Element>(
    backend: &B,
    op: &Activation<'_, B>,
    y: Option<&Matrix<B, E>>,
    row_scale: Option<&Array<B, f32>>,
    d: &mut Matrix<B, E>,
) -> Result<(), Error> {
    let operands = ActivateBackwardOperands {
        op,
        y,
        row_scale,
        d,
    };
    backend.activate_backward(Checked::new(operands)?)
}

/// Operands of [`activate_backward`].
#[derive(Debug)]
pub struct ActivateBackwardOperands<'a, B: Storage, E: Element> {
    /// What was done.
    pub op: &'a Activation<'a, B>,
    /// The output of the forward pass.
    pub y: Option<&'a Matrix<B, E>>,
    /// Factors of the rows.
    pub row_scale: Option<&'a Array<B, f32>>,
    /// The gradient, in place.
    pub d: &'a mut Matrix<B, E>,
}

impl<B: Storage, E: Element> Operator for ActivateBackwardOperands<'_, B, E> {
    const NAME: &'static str = "activate_backward";

    fn check(&self) -> Result<(), Error> {
        let ActivateBackwardOperands {
            op,
            y,
            row_scale,
            d,
        } = self;
        check_activation(Self::NAME, op, d.columns())?;
        match y {
            Some(y) => expect_shape(Self::NAME, ["rows of y", "columns of y"], d.shape(), y)?,
            None if op.relu => {
                let reason = "the gradient of a ReLU wants the output of the forward pass".into();
                return Err(Error::Unsupported {
                    operator: Self::NAME,
                    reason,
                });
            }
            None => {}
        }
        expect_len(Self::NAME, "row factors", d.rows(), *row_scale)?;
        Ok(())
    }
}

/// Sums of the columns of `x`, in float and in a fixed order: the gradient of a bias.
///
/// # Errors
/// [`Error::Shape`] where `sums` is not 1 × the columns of `x`.
pub fn column_sums<B: Backend, E: Element>(
    backend: &B,
    x: &Matrix<B, E>,
    sums: &mut Matrix<B, f32>,
) -> Result<(), Error> {
    let operands = ColumnSumsOperands { x, sums };
    backend.column_sums(Checked::new(operands)?)
}

/// Operands of [`column_sums`].
#[derive(Debug)]
pub struct ColumnSumsOperands<'a, B: Storage, E: Element> {
    /// What is added up.
    pub x: &'a Matrix<B, E>,
    /// Becomes the sums, 1 × N.
    pub sums: &'a mut Matrix<B, f32>,
}

impl<B: Storage, E: Element> Operator for ColumnSumsOperands<'_, B, E> {
    const NAME: &'static str = "column_sums";

    fn check(&self) -> Result<(), Error> {
        let ColumnSumsOperands { x, sums } = self;
        expect_shape(
            "column_sums",
            ["rows of the sums", "columns of the sums"],
            (1, x.columns()),
            sums,
        )?;
        Ok(())
    }
}

/// Mean cross-entropy of the log-softmax of the rows that have a target, and its gradient times the loss scale.
///
/// `targets` holds a class or [`NO_TARGET`](crate::backend::NO_TARGET) for each row; `count` of them are classes, all
/// below the columns of `logits`. `loss` is one float, not scaled.
///
/// # Errors
/// [`Error::Shape`] where the operands do not fit, [`Error::Unsupported`] where there are no classes or no row has a
/// target.
pub fn cross_entropy<B: Backend, E: Element>(
    backend: &B,
    logits: &Matrix<B, E>,
    targets: &Array<B, u32>,
    count: usize,
    state: &OptimizerState<B>,
    gradient: &mut Matrix<B, E>,
    loss: &mut Array<B, f32>,
) -> Result<(), Error> {
    let operands = CrossEntropyOperands {
        logits,
        targets,
        count,
        state,
        gradient,
        loss,
    };
    backend.cross_entropy(Checked::new(operands)?)
}

/// Operands of [`cross_entropy`].
#[derive(Debug)]
pub struct CrossEntropyOperands<'a, B: Storage, E: Element> {
    /// The logits, a row a vertex.
    pub logits: &'a Matrix<B, E>,
    /// A class a row, or none.
    pub targets: &'a Array<B, u32>,
    /// Rows that have a class.
    pub count: usize,
    /// Holds the loss scale.
    pub state: &'a OptimizerState<B>,
    /// Becomes the gradient of the logits.
    pub gradient: &'a mut Matrix<B, E>,
    /// Becomes the loss.
    pub loss: &'a mut Array<B, f32>,
}

impl<B: Storage, E: Element> Operator for CrossEntropyOperands<'_, B, E> {
    const NAME: &'static str = "cross_entropy";

    fn check(&self) -> Result<(), Error> {
        let count = self.count;
        let CrossEntropyOperands {
            logits,
            targets,
            gradient,
            loss,
            ..
        } = self;
        Error::expect(Self::NAME, "targets", logits.rows(), targets.len())?;
        expect_shape(
            Self::NAME,
            ["rows of the gradient", "columns of the gradient"],
            logits.shape(),
            gradient,
        )?;
        Error::expect(Self::NAME, "loss", 1, loss.len())?;
        expect_classes(Self::NAME, logits)?;
        if count == 0 {
            return Err(Error::Unsupported {
                operator: Self::NAME,
                reason: "no row has a target".into(),
            });
        }
        Ok(())
    }
}

/// How many rows of each of three splits have their largest logit at their label.
///
/// `splits` holds 0, 1, 2 or [`NO_TARGET`](crate::backend::NO_TARGET) for each row; `correct` is three counts.
///
/// # Errors
/// [`Error::Shape`] where the operands do not fit, [`Error::Unsupported`] where there are no classes.
pub fn count_correct<B: Backend, E: Element>(
    backend: &B,
    logits: &Matrix<B, E>,
    labels: &Array<B, u32>,
    splits: &Array<B, u32>,
    correct: &mut Array<B, u32>,
) -> Result<(), Error> {
    let operands = CountCorrectOperands {
        logits,
        labels,
        splits,
        correct,
    };
    backend.count_correct(Checked::new(operands)?)
}

/// Operands of [`count_correct`].
#[derive(Debug)]
pub struct CountCorrectOperands<'a, B: Storage, E: Element> {
    /// The logits, a row a vertex.
    pub logits: &'a Matrix<B, E>,
    /// A class a row.
    pub labels: &'a Array<B, u32>,
    /// A split a row, or none.
    pub splits: &'a Array<B, u32>,
    /// Become the three counts.
    pub correct: &'a mut Array<B, u32>,
}

impl<B: Storage, E: Element> Operator for CountCorrectOperands<'_, B, E> {
    const NAME: &'static str = "count_correct";

    fn check(&self) -> Result<(), Error> {
        let CountCorrectOperands {
            logits,
            labels,
            splits,
            correct,
        } = self;
        Error::expect(Self::NAME, "labels", logits.rows(), labels.len())?;
        Error::expect(Self::NAME, "splits", logits.rows(), splits.len())?;
        Error::expect(Self::NAME, "counts", 3, correct.len())?;
        expect_classes(Self::NAME, logits)?;
        Ok(())
    }
}

/// Sets the overflow flag of `state` where one of `gradients` holds an infinity or a NaN.
///
/// # Errors
/// Those of the device.
pub fn check_finite<B: Backend>(
    backend: &B,
    gradients: &[&Matrix<B, f32>],
    state: &mut OptimizerState<B>,
) -> Result<(), Error> {
    let operands = CheckFiniteOperands { gradients, state };
    backend.check_finite(Checked::new(operands)?)
}

/// Operands of [`check_finite`].
#[derive(Debug)]
pub struct CheckFiniteOperands<'a, B: Storage> {
    /// What is looked through.
    pub gradients: &'a [&'a Matrix<B, f32>],
    /// Has the overflow flag.
    pub state: &'a mut OptimizerState<B>,
}

impl<B: Storage> Operator for CheckFiniteOperands<'_, B> {
    const NAME: &'static str = "check_finite";

    fn check(&self) -> Result<(), Error> {
        Ok(())
    }
}

/// One step of Adam for all `parameters`; see [`OptimizerOperators::adam`](crate::backend::OptimizerOperators::adam).
///
/// # Errors
/// [`Error::Shape`] where the matrices of a parameter differ in shape; then no parameter is changed.
pub fn adam<B: Backend, E: Element>(
    backend: &B,
    hyper: &AdamHyper,
    state: &OptimizerState<B>,
    parameters: &mut [ParameterMut<'_, B, E>],
) -> Result<(), Error> {
    let operands = AdamOperands {
        hyper,
        state,
        parameters,
    };
    backend.adam(Checked::new(operands)?)
}

/// Operands of [`adam`].
#[derive(Debug)]
pub struct AdamOperands<'a, 'p, B: Storage, E: Element> {
    /// Its constants.
    pub hyper: &'a AdamHyper,
    /// Steps and overflow.
    pub state: &'a OptimizerState<B>,
    /// What is changed.
    pub parameters: &'a mut [ParameterMut<'p, B, E>],
}

impl<B: Storage, E: Element> Operator for AdamOperands<'_, '_, B, E> {
    const NAME: &'static str = "adam";

    fn check(&self) -> Result<(), Error> {
        let AdamOperands { parameters, .. } = self;
        for parameter in parameters.iter() {
            let shape = parameter.master.shape();
            expect_shape(
                Self::NAME,
                ["rows of the gradient", "columns of the gradient"],
                shape,
                parameter.gradient,
            )?;
            expect_shape(
                Self::NAME,
                ["rows of the first moment", "columns of the first moment"],
                shape,
                parameter.first_moment,
            )?;
            expect_shape(
                Self::NAME,
                ["rows of the second moment", "columns of the second moment"],
                shape,
                parameter.second_moment,
            )?;
            if let Some(rounded) = &parameter.rounded {
                expect_shape(
                    Self::NAME,
                    [
                        "rows of the rounded weights",
                        "columns of the rounded weights",
                    ],
                    shape,
                    rounded,
                )?;
            }
        }
        Ok(())
    }
}

/// Ends an optimiser step; see [`OptimizerOperators::end_step`](crate::backend::OptimizerOperators::end_step).
///
/// # Errors
/// Those of the device.
pub fn end_step<B: Backend>(
    backend: &B,
    scaling: &LossScaling,
    state: &mut OptimizerState<B>,
) -> Result<(), Error> {
    backend.end_step(scaling, state)
}

impl<B: Backend> OptimizerState<B> {
    /// The state before the first step.
    ///
    /// # Errors
    /// [`Error::Driver`] where there is not enough memory.
    pub fn new(backend: &B, scaling: &LossScaling) -> Result<Self, Error> {
        let start = OptimizerSnapshot {
            loss_scale: scaling.initial,
            steps: 0,
            skipped: 0,
            since_change: 0,
        };
        Self::resume(backend, &start)
    }

    /// The state after the steps that `snapshot` tells of.
    ///
    /// # Errors
    /// [`Error::Driver`] where there is not enough memory.
    pub fn resume(backend: &B, snapshot: &OptimizerSnapshot) -> Result<Self, Error> {
        let words = [
            snapshot.loss_scale.to_bits(),
            snapshot.steps,
            snapshot.skipped,
            snapshot.since_change,
            0,
            snapshot.steps.wrapping_add(snapshot.skipped),
        ];
        Ok(Self {
            words: Arc::new(Array::from_slice(backend, &words, MemoryKind::Weights)?),
        })
    }

    /// What the state is after all work on the backend is done.
    ///
    /// # Errors
    /// The failure of an earlier operator.
    pub fn snapshot(&self, backend: &B) -> Result<OptimizerSnapshot, Error> {
        let words = self.words.to_vec(backend)?;
        Ok(OptimizerSnapshot {
            loss_scale: f32::from_bits(words[0]),
            steps: words[1],
            skipped: words[2],
            since_change: words[3],
        })
    }
}
