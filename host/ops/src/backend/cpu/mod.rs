//! The reference: every operator on the CPU, plain and readable, in half and in float.
//!
//! Each operator is the twin of a GPU kernel and computes the same formula. Work is shared out over the threads of
//! the surrounding rayon pool in pieces that depend on shapes alone, and sums are merged in a fixed order, so that a
//! result has the same bits for any number of threads.

mod access;
mod attention;
mod buffer;
mod convert;
mod elementwise;
mod loss;
mod matmul;
mod normalize;
mod optimizer;
mod sddmm;
mod shadow;
mod spmm;
#[cfg(test)]
mod tests;

pub use buffer::Buffer;

use super::{
    Activation, DenseOperators, EdgeWeights, Ledger, LossOperators, LossScaling, MemoryKind,
    MemoryReport, OptimizerOperators, OptimizerState, SddmmOperators, SparseOperators, Storage,
};
use crate::error::Error;
use crate::ops;
use crate::ops::{
    ActivateBackwardOperands, ActivateOperands, AdamOperands, CheckFiniteOperands, Checked,
    ColumnSumsOperands, CombineEdgesOperands, CountCorrectOperands, CrossEntropyOperands,
    MatmulOperands, SddmmOperands, SpmmOperands,
};
use crate::tensor::{Array, Element, Matrix};
use buffer::Reading;
use bytemuck::Pod;
use matmul::{Finish, First, View, ViewMut};
use normalize::Known;
use std::convert::Infallible;

/// The CPU of this machine, through the threads of the surrounding rayon pool. However many there are, they are one device:
/// the memory is the process's, and operands of one are operands of any. Clones count what they allocate together.
#[derive(Clone, Debug, Default)]
pub struct Cpu {
    ledger: Ledger,
}

impl Cpu {
    /// The CPU.
    pub fn new() -> Self {
        Self::default()
    }
}

impl Storage for Cpu {
    type Buffer<T: Pod> = Buffer<T>;
    type Recording = Infallible;

    fn name(&self) -> String {
        format!("CPU ({} threads)", rayon::current_num_threads())
    }

    fn alloc<T: Pod>(&self, len: usize, kind: MemoryKind) -> Result<Buffer<T>, Error> {
        Ok(Buffer::zeroed(len, |bytes| self.ledger.track(bytes, kind))?)
    }

    fn clear<T: Pod>(&self, buffer: &Buffer<T>) -> Result<(), Error> {
        buffer.clear();
        Ok(())
    }

    fn upload<T: Pod>(&self, buffer: &Buffer<T>, source: &[T]) -> Result<(), Error> {
        Ok(buffer.write(source)?)
    }

    fn download<T: Pod>(&self, buffer: &Buffer<T>, target: &mut [T]) -> Result<(), Error> {
        Ok(buffer.copy_to(target)?)
    }

    /// A call costs nothing here.
    fn record(
        &self,
        _work: impl FnOnce() -> Result<(), Error>,
    ) -> Result<Option<Infallible>, Error> {
        Ok(None)
    }

    fn replay(&self, recording: &Infallible) -> Result<(), Error> {
        match *recording {}
    }

    fn synchronize(&self) -> Result<(), Error> {
        Ok(())
    }

    fn timed(&self, work: impl FnOnce() -> Result<(), Error>) -> Result<f64, Error> {
        let start = std::time::Instant::now();
        work()?;
        Ok(start.elapsed().as_secs_f64() * 1e3)
    }

    fn memory(&self) -> MemoryReport {
        self.ledger.report()
    }

    fn reset_peak(&self) {
        self.ledger.reset_peak();
    }
}

impl SparseOperators for Cpu {
    fn spmm<E: Element>(&self, operands: Checked<SpmmOperands<'_, Self, E>>) -> Result<(), Error> {
        let SpmmOperands { a, op, x, y } = operands.into_inner();
        let (edge_weights, column_scale, attention);
        let mut heads = 1;
        let weights = match op.weights {
            EdgeWeights::Ones => spmm::Weights::Ones,
            EdgeWeights::Features(array) => {
                edge_weights = array.buffer.read();
                spmm::Weights::Edges(&edge_weights)
            }
            EdgeWeights::Planes {
                values,
                heads: planes,
            } => {
                edge_weights = values.buffer.read();
                heads = planes;
                spmm::Weights::Edges(&edge_weights)
            }
            EdgeWeights::Columns(array) => {
                column_scale = array.buffer.read();
                spmm::Weights::Columns(&column_scale)
            }
            EdgeWeights::Attention(of) => {
                attention = spmm::Attention::new(of, a, false);
                heads = of.heads;
                spmm::Weights::Attention(&attention)
            }
        };
        let row_scale = read(op.row_scale);
        let operands = spmm::Operands {
            offsets: &a.offsets.buffer.read(),
            columns: &a.column_ids.buffer.read(),
            weights,
            heads,
            row_scale: row_scale.as_deref(),
            scale: op.scale,
            aggregation: op.aggregation,
            x: &x.buffer.read(),
            stride: x.stride(),
            epilogue: spmm::Epilogue {
                addend: op.epilogue.addend.map(|addend| {
                    let epsilon = addend.epsilon.map(|epsilon| epsilon.buffer.read()[0]);
                    spmm::Addend {
                        values: addend.matrix.buffer.read(),
                        stride: addend.matrix.stride(),
                        factor: epsilon
                            .map_or(addend.factor, |epsilon| addend.factor * (1.0 + epsilon)),
                        row_scale: read(addend.row_scale),
                    }
                }),
                bias: read_matrix(op.epilogue.bias),
                relu: op.epilogue.relu,
            },
        };
        spmm::spmm(&operands, op.policy, x.columns(), y.buffer.get_mut());
        Ok(())
    }
}

impl SddmmOperators for Cpu {
    fn sddmm<E: Element>(
        &self,
        operands: Checked<SddmmOperands<'_, Self, E>>,
    ) -> Result<(), Error> {
        let SddmmOperands { a, op, u, v, e } = operands.into_inner();
        let operands = sddmm::Operands {
            rows: &a.row_ids(self)?.buffer.read(),
            columns: &a.column_ids.buffer.read(),
            u: &u.buffer.read(),
            v: &v.buffer.read(),
            stride: u.stride(),
        };
        sddmm::sddmm(&operands, op, u.columns() / op.heads, e.buffer.get_mut());
        Ok(())
    }

    fn combine_edges<E: Element>(
        &self,
        operands: Checked<CombineEdgesOperands<'_, Self, E>>,
    ) -> Result<(), Error> {
        let CombineEdgesOperands { a, heads: _, op, e } = operands.into_inner();
        sddmm::combine(self, a, op, e.buffer.get_mut())
    }
}

impl DenseOperators for Cpu {
    fn matmul<E: Element, O: Element>(
        &self,
        operands: Checked<MatmulOperands<'_, Self, E, O>>,
    ) -> Result<(), Error> {
        let MatmulOperands {
            form,
            a,
            b,
            epilogue,
            beside,
            c,
        } = operands.into_inner();
        if let Some(sums) = beside.column_sums {
            ops::column_sums(self, b, sums)?;
        }
        let positive = read_matrix(beside.positive);
        let (row_scale, bias) = (read(epilogue.row_scale), read_matrix(epilogue.bias));
        let finish = Finish {
            alpha: epilogue.alpha,
            row_scale: row_scale.as_deref(),
            bias: bias.as_deref(),
            relu: epilogue.relu,
            positive: positive.as_deref(),
        };
        let (a_values, b_values) = (a.buffer.read(), b.buffer.read());
        let known = beside.normalization.map(Known::new);
        matmul::matmul(
            form,
            First {
                matrix: view(a, &a_values),
                known: known.as_ref(),
            },
            view(b, &b_values),
            &finish,
            view_mut(c),
        );
        Ok(())
    }

    fn activate<E: Element>(
        &self,
        operands: Checked<ActivateOperands<'_, Self, E>>,
    ) -> Result<(), Error> {
        let ActivateOperands { op, x, y } = operands.into_inner();
        let bias = read_matrix(op.bias);
        elementwise::activate(
            &steps(op, bias.as_deref()),
            read_matrix(x).as_deref(),
            view_mut(y),
        );
        Ok(())
    }

    fn activate_backward<E: Element>(
        &self,
        operands: Checked<ActivateBackwardOperands<'_, Self, E>>,
    ) -> Result<(), Error> {
        let ActivateBackwardOperands {
            op,
            y,
            row_scale,
            d,
        } = operands.into_inner();
        let (y, row_scale) = (read_matrix(y), read(row_scale));
        elementwise::activate_backward(
            &steps(op, None),
            y.as_deref(),
            row_scale.as_deref(),
            view_mut(d),
        );
        Ok(())
    }

    fn column_sums<E: Element>(
        &self,
        operands: Checked<ColumnSumsOperands<'_, Self, E>>,
    ) -> Result<(), Error> {
        let ColumnSumsOperands { x, sums } = operands.into_inner();
        elementwise::column_sums(view(x, &x.buffer.read()), sums.buffer.get_mut());
        Ok(())
    }
}

impl LossOperators for Cpu {
    fn cross_entropy<E: Element>(
        &self,
        operands: Checked<CrossEntropyOperands<'_, Self, E>>,
    ) -> Result<(), Error> {
        let CrossEntropyOperands {
            logits,
            targets,
            count,
            state,
            gradient,
            loss,
        } = operands.into_inner();
        loss.buffer.get_mut()[0] = loss::cross_entropy(
            view(logits, &logits.buffer.read()),
            &targets.buffer.read(),
            count,
            optimizer::loss_scale(&state.words.buffer.read()),
            view_mut(gradient),
        );
        Ok(())
    }

    fn count_correct<E: Element>(
        &self,
        operands: Checked<CountCorrectOperands<'_, Self, E>>,
    ) -> Result<(), Error> {
        let CountCorrectOperands {
            logits,
            labels,
            splits,
            correct,
        } = operands.into_inner();
        let counts = loss::count_correct(
            view(logits, &logits.buffer.read()),
            &labels.buffer.read(),
            &splits.buffer.read(),
        );
        correct.buffer.get_mut().copy_from_slice(&counts);
        Ok(())
    }
}

impl OptimizerOperators for Cpu {
    fn check_finite(&self, operands: Checked<CheckFiniteOperands<'_, Self>>) -> Result<(), Error> {
        let CheckFiniteOperands { gradients, state } = operands.into_inner();
        let mut words = state.words.to_vec(self)?;
        for gradient in gradients {
            optimizer::check_finite(&gradient.buffer.read(), &mut words);
        }
        self.upload(&state.words.buffer, &words)
    }

    fn adam<E: Element>(
        &self,
        operands: Checked<AdamOperands<'_, '_, Self, E>>,
    ) -> Result<(), Error> {
        let AdamOperands {
            hyper,
            state,
            parameters,
        } = operands.into_inner();
        for parameter in parameters {
            optimizer::adam(
                hyper,
                &state.words.buffer.read(),
                view(parameter.gradient, &parameter.gradient.buffer.read()),
                optimizer::Parameter {
                    master: view_mut(parameter.master),
                    first_moment: parameter.first_moment.buffer.get_mut(),
                    second_moment: parameter.second_moment.buffer.get_mut(),
                    rounded: parameter.rounded.as_deref_mut().map(view_mut),
                },
            );
        }
        Ok(())
    }

    fn end_step(
        &self,
        scaling: &LossScaling,
        state: &mut OptimizerState<Self>,
    ) -> Result<(), Error> {
        let mut words = state.words.to_vec(self)?;
        optimizer::end_step(scaling, &mut words);
        self.upload(&state.words.buffer, &words)
    }
}

fn read<'a, T: Pod + Send + Sync>(array: Option<&'a Array<Cpu, T>>) -> Option<Reading<'a, T>> {
    array.map(|array| array.buffer.read())
}

fn read_matrix<'a, E: Element>(matrix: Option<&'a Matrix<Cpu, E>>) -> Option<Reading<'a, E>> {
    matrix.map(|matrix| matrix.buffer.read())
}

fn view<'a, E: Element>(matrix: &Matrix<Cpu, E>, values: &'a Reading<'_, E>) -> View<'a, E> {
    View {
        values,
        rows: matrix.rows(),
        columns: matrix.columns(),
        stride: matrix.stride(),
    }
}

fn view_mut<E: Element>(matrix: &mut Matrix<Cpu, E>) -> ViewMut<'_, E> {
    let (columns, stride) = (matrix.columns(), matrix.stride());
    ViewMut {
        values: matrix.buffer.get_mut(),
        columns,
        stride,
    }
}

fn steps<'a>(op: &Activation<'_, Cpu>, bias: Option<&'a [f32]>) -> elementwise::Steps<'a> {
    elementwise::Steps {
        bias,
        relu: op.relu,
        mask: op.dropout.map(elementwise::Mask::new),
    }
}
