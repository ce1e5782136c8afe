//! What each operator calls: the only code of a program that is compiled for each backend and precision.

mod attention;
mod binary;
mod elementwise;
mod messages;
mod norm;
mod quantize;
mod ranks;

pub(crate) use binary::{row_dots, sign};

use super::machine::{Bank, Elements, Floats, Typed};
use crate::backend::Backend;
use crate::error::Error;
use crate::nn::{DROPOUT_STREAM, Propagation, balancing_power, check_policy_of_weights};
use crate::ops::{
    self, Combine, EdgeWeights, Epilogue, MatmulFusion, QuantizedMatrix, RowGroups, Spmm,
    SpmmEpilogue,
};
use crate::program::list::refuse;
use crate::program::operator::{
    Addend, Aggregate, Direction, Dropout, End, Matmul, Node, Normalization, Operator, OwnCall,
    OwnOperands, ReadFactors, RowFactors,
};
use crate::program::value::{Edges, Format, Value};
use crate::tensor::{Array, Element, Matrix};

impl<B: Backend, E: Element> Typed<'_, B, E> {
    /// Runs one operator.
    pub(super) fn execute(&mut self, node: &Node) -> Result<(), Error> {
        let y = node.results[0];
        match (&node.operator, self.program.format(y)) {
            (Operator::Matmul(op), format) => match (self.program.format(op.a), format) {
                (Format::Codes, _) => self.product_of_stored(op, node),
                (Format::Element, Format::Element) => self.matmul::<Elements, Elements>(op, node),
                (Format::Element, _) => self.matmul::<Elements, Floats>(op, node),
                _ => self.matmul::<Floats, Floats>(op, node),
            },
            (Operator::Quantize { x, .. }, _) => self.quantize(*x, node),
            (Operator::Store { x }, _) => self.store(*x, y),
            (Operator::Dequantize { x }, _) => self.dequantize(*x, y),
            (Operator::Aggregate(op), _) => match op.codes {
                None => self.aggregate((op, None), y),
                Some(codes) => self.with_codes(codes, |machine, codes| {
                    machine.aggregate((op, Some(codes)), y)
                }),
            },
            (Operator::OwnRows { .. } | Operator::OwnRowsGradient { .. }, _) => self.own_rows(node),
            (Operator::Extend { .. } | Operator::Fold { .. } | Operator::DropRows { .. }, _) => {
                self.ranks(node)
            }
            (Operator::Dot { alpha, x, y: other }, _) => match self.program.format(*x) {
                Format::Element => self.dot::<Elements>(*alpha, [*x, *other], y),
                _ => self.dot::<Floats>(*alpha, [*x, *other], y),
            },
            (Operator::ColumnSums { x }, _) => match self.program.format(*x) {
                Format::Element => self.column_sums::<Elements>(*x, y),
                _ => self.column_sums::<Floats>(*x, y),
            },
            (Operator::Attention(op), _) => self.attention(op, node),
            (Operator::AttentionGradient(op), _) => self.attention_gradient(op, node),
            (Operator::AdditiveAttention(op), _) => self.additive_attention(op, node),
            (Operator::AdditiveGradient(op), _) => self.additive_gradient(op, node),
            (Operator::DotAttention(op), _) => self.dot_attention(op, node),
            (Operator::DotAttentionGradient(op), _) => self.dot_attention_gradient(op, node),
            (Operator::MessageSums(op), _) => self.message_sums(op, y),
            (Operator::MessageGradient(op), _) => self.message_gradient(op, node),
            (Operator::ReduceMessages(op), _) => self.reduce_messages(op, node),
            (Operator::ReduceMessagesGradient(op), _) => self.reduce_messages_gradient(op, node),
            (Operator::EdgeTerms(op), _) => self.edge_terms(op, node),
            (Operator::EdgeTermsGradient { of, zeros, d }, _) => {
                self.edge_terms_gradient((of, *zeros, *d), node)
            }
            (
                Operator::Maximum { .. }
                | Operator::MaximumGradient { .. }
                | Operator::GroupMaximum { .. }
                | Operator::GroupMaximumGradient { .. }
                | Operator::HeadMean { .. }
                | Operator::HeadMeanGradient { .. },
                _,
            ) => self.maximum_or_mean(node),
            (Operator::BatchStatistics(op), _) => self.batch_statistics(op, node),
            (Operator::NormalizeGradient(op), _) => self.normalize_gradient(op, node),
            (
                Operator::NormalizeRows { .. }
                | Operator::NormalizeRowsGradient { .. }
                | Operator::NormalizeGroups { .. }
                | Operator::NormalizeGroupsGradient { .. },
                _,
            ) => self.norm(node),
            (Operator::Own(own), _) => self.write::<Elements>(y, |machine, result| {
                let operands = own.operands.iter();
                let operands = operands.map(|it| Elements::matrix(machine, *it));
                let of = OwnOperands {
                    backend: &machine.backend,
                    operands: operands.collect::<Result<_, Error>>()?,
                    result,
                };
                own.operator.run(OwnCall::new(own.operator.name(), of))
            }),
            (
                Operator::Standardize { .. }
                | Operator::Binarize { .. }
                | Operator::BinarizeWeight { .. }
                | Operator::BinarizeWeightGradient { .. }
                | Operator::ScaleRows { .. }
                | Operator::SignOf { .. }
                | Operator::Pack { .. }
                | Operator::BinarySigns { .. }
                | Operator::BinaryMatmul(_)
                | Operator::AggregateSigns(_)
                | Operator::AggregateSignsMatmul(_),
                _,
            ) => self.binary(node),
            (operator, Format::Element) => self.element_wise::<Elements>(operator, y),
            (operator, _) => self.element_wise::<Floats>(operator, y),
        }
    }

    /// Rows of destinations among those of sources, and their gradient.
    fn own_rows(&mut self, node: &Node) -> Result<(), Error> {
        let y = node.results[0];
        match &node.operator {
            Operator::OwnRows { edges, x } => {
                let edges = self.edges[edges.0];
                self.write::<Elements>(y, |machine, rows| {
                    let (backend, x) = (&machine.backend, Elements::matrix(machine, *x)?);
                    match edges.own() {
                        Some(own) => ops::take_rows(backend, x, own, rows),
                        None => ops::combine_rows(backend, rows.rows(), &Combine::copy(), x, rows),
                    }
                })
            }
            Operator::OwnRowsGradient { edges, d } => {
                if self.edges[edges.0].own().is_some() {
                    return refuse("rows that are picked from all vertices have no gradient; sample blocks with the sources that they meet".into());
                }
                self.write::<Elements>(y, |machine, rows| {
                    let (backend, d) = (&machine.backend, Elements::matrix(machine, *d)?);
                    rows.clear(backend)?;
                    ops::combine_rows(backend, d.rows(), &Combine::copy(), d, rows)
                })
            }
            other => refuse(format!("{} picks no rows", other.name())),
        }
    }

    /// Maxima over values, over the vertices of graphs, and means over heads.
    fn maximum_or_mean(&mut self, node: &Node) -> Result<(), Error> {
        let y = node.results[0];
        match &node.operator {
            Operator::Maximum { terms } => self.maximum(terms, y),
            Operator::MaximumGradient { terms, y, d } => {
                self.maximum_gradient(terms, [*y, *d], node)
            }
            Operator::GroupMaximum { edges, x } => {
                let edges = self.edges[edges.0];
                self.write::<Elements>(y, |machine, y| {
                    let (backend, x) = (&machine.backend, Elements::matrix(machine, *x)?);
                    ops::group_maximum(backend, groups(edges, backend)?, x, y)
                })
            }
            Operator::GroupMaximumGradient { edges, x, y: of, d } => {
                let edges = self.edges[edges.0];
                self.write::<Elements>(y, |machine, dx| {
                    let [x, of, d] = [x, of, d].map(|it| Elements::matrix(machine, *it));
                    let (backend, of) = (&machine.backend, (x?, of?));
                    ops::group_maximum_backward(backend, groups(edges, backend)?, of, d?, dx)
                })
            }
            Operator::HeadMean { heads, x, .. } => self.write::<Elements>(y, |machine, y| {
                let x = Elements::matrix(machine, *x)?;
                ops::head_mean(&machine.backend, *heads, x, y)
            }),
            Operator::HeadMeanGradient { heads, d } => self.write::<Elements>(y, |machine, dx| {
                let d = Elements::matrix(machine, *d)?;
                ops::head_mean_backward(&machine.backend, *heads, d, dx)
            }),
            other => refuse(format!("{} is neither a maximum nor a mean", other.name())),
        }
    }

    /// Has `work` write the matrix of a value, which is put back in any case.
    fn write<K: Bank<B, E>>(
        &mut self,
        value: Value,
        work: impl FnOnce(&Self, &mut Matrix<B, K::Item>) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let mut matrix = K::take(self, value)?;
        let done = work(self, &mut matrix);
        K::put(self, value, matrix);
        done
    }

    /// Whether a result is written over an operand.
    fn overwrites(&self, result: Value, operand: Value) -> bool {
        self.places[result.0] == self.places[operand.0]
    }

    /// Has the operand in the result: by nothing where the plan has it written over, else by a copy.
    fn begin_with<K: Bank<B, E>>(
        &self,
        (result, y): (Value, &mut Matrix<B, K::Item>),
        operand: Value,
    ) -> Result<(), Error> {
        match self.overwrites(result, operand) {
            true => Ok(()),
            false => ops::combine(
                &self.backend,
                &Combine::copy(),
                K::matrix(self, operand)?,
                y,
            ),
        }
    }

    fn row_factors(&self, factors: Option<RowFactors>) -> Option<&Array<B, f32>> {
        let RowFactors { edges, end, .. } = factors?;
        let edges = &self.edges[edges.0];
        match end {
            End::Sources => edges.column_scale(),
            End::Destinations => edges.row_scale(),
        }
    }

    /// The power of two that balanced factors are multiplied by; 1 of others.
    fn power(&self, factors: Option<RowFactors>) -> f32 {
        let balanced = factors.filter(|factors| factors.balanced);
        balanced.map_or(1.0, |factors| {
            balancing_power(self.edges[factors.edges.0].largest_degree())
        })
    }

    fn normalization(&self, norm: Normalization) -> Result<ops::Normalization<'_, B>, Error> {
        Ok(ops::Normalization {
            statistics: Floats::matrix(self, norm.statistics)?,
            weight: Floats::matrix(self, norm.weight)?,
            bias: Floats::matrix(self, norm.bias)?,
            relu: norm.relu,
        })
    }

    fn bias(&self, bias: Option<Value>) -> Result<Option<&Matrix<B, f32>>, Error> {
        bias.map(|bias| Floats::matrix(self, bias)).transpose()
    }

    fn drop(&self, drop: Option<Dropout>) -> Option<ops::Dropout<'_, B>> {
        drop.map(|drop| ops::Dropout {
            probability: drop.probability,
            stream: DROPOUT_STREAM.wrapping_add(drop.stream),
            random: &self.random,
        })
    }

    fn matmul<A: Bank<B, E>, O: Bank<B, E>>(
        &mut self,
        op: &Matmul,
        node: &Node,
    ) -> Result<(), Error> {
        match op.positive {
            Some(stored) if self.program.format(stored) == Format::Codes => self
                .with_codes(stored, |machine, stored| {
                    machine.matmul_masked::<A, O>((op, Some(stored)), node)
                }),
            _ => self.matmul_masked::<A, O>((op, None), node),
        }
    }

    /// A product, with the output of the ReLU that it undoes where that is stored in 8 bits.
    fn matmul_masked<A: Bank<B, E>, O: Bank<B, E>>(
        &mut self,
        (op, stored): (&Matmul, Option<&QuantizedMatrix<B>>),
        node: &Node,
    ) -> Result<(), Error> {
        match op.coding {
            None => self.matmul_of::<A, O>((op, stored, None), node),
            Some(_) => self.coded(node, |machine, codes| {
                machine.matmul_of::<A, O>((op, stored, codes), node)
            }),
        }
    }

    fn matmul_of<A: Bank<B, E>, O: Bank<B, E>>(
        &mut self,
        (op, stored, codes): (
            &Matmul,
            Option<&QuantizedMatrix<B>>,
            Option<&mut QuantizedMatrix<B>>,
        ),
        node: &Node,
    ) -> Result<(), Error> {
        let result = node.results[0];
        let of_sums = node.results.get(1).filter(|_| op.column_sums);
        let mut sums = match of_sums {
            Some(sums) => Some(Floats::take(self, *sums)?),
            None => None,
        };
        let done = self.write::<O>(result, |machine, y| {
            if let Some(sum) = op.sum {
                machine.begin_with::<O>((result, &mut *y), sum)?;
            }
            let of = |value: Value| O::matrix(machine, value);
            let second = op.second.map(|[a, b]| Ok::<_, Error>([of(a)?, of(b)?]));
            let epilogue = Epilogue {
                alpha: op.alpha * machine.power(op.rows),
                row_scale: match op.row_scale {
                    Some(factors) => Some(machine.numbers(factors)?),
                    None => machine.row_factors(op.rows),
                },
                bias: machine.bias(op.bias)?,
                relu: op.relu,
            };
            let norm = op.norm.map(|norm| machine.normalization(norm));
            let norm = norm.transpose()?;
            let own = |edges: Edges| machine.edges[edges.0].destinations();
            let fusion = MatmulFusion {
                normalization: norm.as_ref(),
                first_rows: op.reads_own[0].map(own),
                second_pair: second.transpose()?,
                positive: match stored {
                    Some(_) => None,
                    None => op.positive.map(of).transpose()?,
                },
                positive_codes: stored,
                sum: op.sum.is_some(),
                column_sums: sums.as_mut(),
                dropout: machine.drop(op.drop),
                coding: machine.coding(op.coding, codes)?,
            };
            let (a, b) = (A::matrix(machine, op.a)?, A::matrix(machine, op.b)?);
            let rows = op.adds_to_own.map_or(y.rows(), own);
            let to = (0..rows, y);
            ops::matmul_fused_to_rows(&machine.backend, op.form, [a, b], &epilogue, fusion, to)
        });
        if let (Some(value), Some(sums)) = (of_sums, sums) {
            Floats::put(self, *value, sums);
        }
        done
    }

    /// A sum of the matrix, or of quantized values of it.
    fn aggregate(
        &mut self,
        (op, codes): (&Aggregate, Option<&mut QuantizedMatrix<B>>),
        result: Value,
    ) -> Result<(), Error> {
        let edges = self.edges[op.edges.0];
        self.write::<Elements>(result, |machine, y| {
            let backend = &machine.backend;
            let factors = edges.edge_factors::<E>()?;
            if factors.is_some() {
                check_policy_of_weights(op.policy)?;
            }
            let ends = [edges.column_scale(), edges.row_scale()];
            let (adjacency, [read, written], of_edges) = match op.direction {
                Direction::Forward => {
                    (edges.forward(), ends, factors.as_ref().map(|it| it.forward))
                }
                Direction::Backward if op.is_mutual => {
                    if codes.is_none() {
                        return refuse("a sum against edges that go both ways reads quantized values, which have factors of the degree norm in them".into());
                    }
                    (edges.forward(), [None, edges.sent_scale(true)], None)
                }
                Direction::Backward => {
                    let [columns, rows] = ends;
                    let against = factors.as_ref().map(|it| it.backward);
                    (edges.backward(backend)?, [rows, columns], against)
                }
            };
            let in_sum = op.read_factors == ReadFactors::InSum;
            let weights = match (of_edges, read.filter(|_| in_sum)) {
                (Some(factors), _) => EdgeWeights::Features(factors),
                (None, Some(read)) => EdgeWeights::Columns(read),
                (None, None) => EdgeWeights::Ones,
            };
            let (power, divisor) = match op.read_factors {
                ReadFactors::Balanced => {
                    let power = balancing_power(edges.largest_degree());
                    (power, edges.row_divisor(backend)?)
                }
                ReadFactors::InSum | ReadFactors::InOperand => (1.0, None),
            };
            let addend = op.addend.map(|addend: Addend| {
                let epsilon = addend.epsilon.map(|it| Floats::matrix(machine, it));
                Ok::<_, Error>(ops::Addend {
                    matrix: Elements::matrix(machine, addend.value)?,
                    factor: addend.factor / power,
                    row_scale: divisor,
                    epsilon: epsilon.transpose()?,
                })
            });
            let addend = addend.transpose()?;
            // Against the edges not every row of the result is one of the operand's.
            let of_first = addend.filter(|addend| addend.matrix.rows() < y.rows());
            let positive = op.positive.map(|value| Elements::matrix(machine, value));
            let spmm = Spmm {
                weights,
                row_scale: written,
                scale: op.factor / power * factors.as_ref().map_or(1.0, |it| it.scale),
                epilogue: SpmmEpilogue {
                    addend: addend.filter(|_| of_first.is_none()),
                    bias: machine.bias(op.bias)?,
                    relu: op.relu,
                    positive: positive.transpose()?,
                },
                policy: op.policy,
                ..Spmm::default()
            };
            match codes {
                Some(codes) => ops::quantized_spmm(backend, adjacency, &spmm, codes, y)?,
                None => {
                    let x = Elements::matrix(machine, op.x)?;
                    ops::spmm(backend, adjacency, &spmm, x, y)?;
                }
            }
            let Some(own) = of_first else {
                return Ok(());
            };
            let add = Combine {
                x_factor: own.factor,
                epsilon: own.epsilon,
                x_scale: own.row_scale,
                y_factor: 1.0,
            };
            ops::combine_rows(backend, own.matrix.rows(), &add, own.matrix, y)
        })
    }

    fn dot<K: Bank<B, E>>(
        &mut self,
        alpha: f32,
        [a, b]: [Value; 2],
        result: Value,
    ) -> Result<(), Error> {
        self.write::<Floats>(result, |machine, y| {
            let (a, b) = (K::matrix(machine, a)?, K::matrix(machine, b)?);
            ops::dot(&machine.backend, alpha, a, b, y)
        })
    }

    fn column_sums<K: Bank<B, E>>(&mut self, x: Value, result: Value) -> Result<(), Error> {
        self.write::<Floats>(result, |machine, y| {
            ops::column_sums(&machine.backend, K::matrix(machine, x)?, y)
        })
    }
}

/// Which rows are of one graph.
fn groups<'a, B: Backend>(
    edges: &'a Propagation<B>,
    backend: &B,
) -> Result<&'a RowGroups<B>, Error> {
    match edges.row_groups(backend)? {
        Some(groups) => Ok(groups),
        None => refuse(
            "what is taken of the rows of each graph is taken by an adjacency of Readout::propagation"
                .into(),
        ),
    }
}
