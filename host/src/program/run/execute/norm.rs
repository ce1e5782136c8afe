//! What norms call.

use super::groups;
use crate::backend::{Backend, Floats as Numbers};
use crate::error::Error;
use crate::ops::{
    self, AffineGradients, BatchNorm, GroupGradients, GroupNormalization, LayerNorm,
    NormalizationGradients, QuantizedMatrix, RowGroups, StatisticsOfParts,
};
use crate::program::list::refuse;
use crate::program::operator::{
    BatchStatistics, GroupNorm, Node, NormalizeGradient, Operator, Take,
};
use crate::program::run::machine::{Bank, Elements, Floats, Typed};
use crate::program::value::{Edges, Value};
use crate::tensor::{Element, Matrix};

/// Added to the variance of a row or a column of a graph before its root is taken.
const EPSILON: f32 = 1e-5;

impl<B: Backend, E: Element> Typed<'_, B, E> {
    pub(super) fn batch_statistics(
        &mut self,
        op: &BatchStatistics,
        node: &Node,
    ) -> Result<(), Error> {
        let mut running = self.take_buffer(op.running)?;
        let default = BatchNorm::default();
        let norm = BatchNorm {
            epsilon: default.epsilon * op.scale * op.scale,
            momentum: match op.take {
                Take::Training => default.momentum,
                Take::Batch | Take::Running => 0.0,
            },
        };
        let done = match (op.take, op.of_rank) {
            (Take::Training | Take::Batch, Some(edges)) => {
                self.statistics_of_ranks((op, edges), node, (&norm, &mut running))
            }
            (take, _) => self.write::<Floats>(node.results[0], |machine, statistics| {
                let backend = &machine.backend;
                if take == Take::Running {
                    return ops::running_statistics(backend, &norm, &running, statistics);
                }
                let x = Elements::matrix(machine, op.x)?;
                ops::batch_statistics(backend, &norm, x, &mut running, statistics)
            }),
        };
        self.put_buffer(op.running, running);
        done
    }

    /// Statistics of the rows of all ranks: the moments of each are put together, in double and in the order of ranks.
    fn statistics_of_ranks(
        &mut self,
        (op, edges): (&BatchStatistics, Edges),
        node: &Node,
        (norm, running): (&BatchNorm, &mut Matrix<B, f32>),
    ) -> Result<(), Error> {
        self.with_taken(&node.written(), |machine, taken| {
            let ([statistics, moments], all) = (&mut taken.floats[..], &mut taken.numbers[..])
            else {
                return missing();
            };
            let (backend, halo) = (&machine.backend, machine.halo(edges)?);
            let x = Elements::matrix(machine, op.x)?;
            // They are carried on from numbers that are finite, with no weight.
            moments.clear(backend)?;
            if x.rows() > 0 {
                let alone = BatchNorm {
                    momentum: 1.0,
                    ..*norm
                };
                ops::batch_statistics(backend, &alone, x, moments, statistics)?;
            } else {
                statistics.clear(backend)?;
            }
            let own = [Numbers::Matrix(moments), Numbers::Matrix(statistics)];
            let what = format!("layers.{} moments", op.layer);
            halo.group().gather_floats_in(backend, &what, &own, all)?;
            let [moments, deviations] = all else {
                return missing();
            };
            let parts = StatisticsOfParts {
                counts: halo.counts_there(),
                moments,
                deviations,
            };
            let running = (op.take == Take::Training).then_some(running);
            ops::merge_statistics(backend, norm, parts, running, statistics)
        })
    }

    pub(super) fn normalize_gradient(
        &mut self,
        op: &NormalizeGradient,
        node: &Node,
    ) -> Result<(), Error> {
        self.coded(node, |machine, codes| match op.of_rank {
            Some(edges) => machine.normalize_gradient_of_ranks((op, edges), codes, node),
            None => machine.normalize_gradient_of((op, codes), node),
        })
    }

    fn normalize_gradient_of(
        &mut self,
        (op, codes): (&NormalizeGradient, Option<&mut QuantizedMatrix<B>>),
        node: &Node,
    ) -> Result<(), Error> {
        let result = node.results[0];
        self.with_taken(&node.results[..3], |machine, taken| {
            let ([d], [weight, bias]) = (&mut taken.elements[..], &mut taken.floats[..]) else {
                return missing();
            };
            machine.begin_with::<Elements>((result, &mut *d), op.d)?;
            let gradients = NormalizationGradients {
                weight,
                bias,
                scale: machine.power(op.rows),
                row_scale: machine.row_factors(op.rows),
                coding: machine.coding(op.coding, codes)?,
            };
            let (norm, x) = (
                machine.normalization(op.norm)?,
                Elements::matrix(machine, op.x)?,
            );
            ops::normalize_backward(&machine.backend, &norm, x, d, gradients)
        })
    }

    /// The gradient by means over the rows of all ranks. Those of scales and shifts are of own rows.
    fn normalize_gradient_of_ranks(
        &mut self,
        (op, edges): (&NormalizeGradient, Edges),
        codes: Option<&mut QuantizedMatrix<B>>,
        node: &Node,
    ) -> Result<(), Error> {
        let result = node.results[0];
        // Behind these is what quantized values are packed in.
        let values = [&node.results[..3], &node.scratch[..4]].concat();
        self.with_taken(&values, |machine, taken| {
            let ([d], [weight, bias, of_weight, of_bias], all) = (
                &mut taken.elements[..],
                &mut taken.floats[..],
                &mut taken.numbers[..],
            ) else {
                return missing();
            };
            machine.begin_with::<Elements>((result, &mut *d), op.d)?;
            let (backend, halo) = (&machine.backend, machine.halo(edges)?);
            let (norm, x) = (
                machine.normalization(op.norm)?,
                Elements::matrix(machine, op.x)?,
            );
            let (scale, row_scale) = (machine.power(op.rows), machine.row_factors(op.rows));
            if x.rows() > 0 {
                let gradients = NormalizationGradients {
                    weight: &mut *weight,
                    bias: &mut *bias,
                    scale,
                    row_scale,
                    coding: None,
                };
                ops::normalization_sums(backend, &norm, x, d, gradients)?;
            } else {
                weight.clear(backend)?;
                bias.clear(backend)?;
            }
            let own = [Numbers::Matrix(weight), Numbers::Matrix(bias)];
            let (group, what) = (halo.group(), format!("layers.{} means", op.layer));
            group.gather_floats_in(backend, &what, &own, all)?;
            // The operator divides by the rows that it reads.
            let share = halo.share();
            for (sum, all) in [&mut *of_weight, &mut *of_bias].into_iter().zip(&*all) {
                let parts = (all, group.ranks());
                ops::sum_parts(backend, share, parts, Numbers::Matrix(sum))?;
            }
            if x.rows() == 0 {
                return Ok(());
            }
            let gradients = NormalizationGradients {
                weight: of_weight,
                bias: of_bias,
                scale,
                row_scale,
                coding: machine.coding(op.coding, codes)?,
            };
            ops::normalize_backward_of(backend, &norm, x, d, gradients)
        })
    }

    /// Norms of rows and of whole graphs, and their gradients.
    pub(super) fn norm(&mut self, node: &Node) -> Result<(), Error> {
        let result = node.results[0];
        if let Operator::NormalizeGroups {
            x, groups: None, ..
        }
        | Operator::NormalizeGroupsGradient {
            x, groups: None, ..
        } = node.operator
        {
            let rows = Elements::matrix(self, x)?.rows();
            if !self.memory.wholes.contains_key(&rows) {
                let whole = RowGroups::whole(&self.backend, rows)?;
                self.memory.wholes.insert(rows, whole);
            }
        }
        self.with_taken(&node.written(), |machine, taken| {
            let [y] = &mut taken.elements[..] else {
                return missing();
            };
            machine.norm_of(&node.operator, (result, y), &mut taken.floats)
        })
    }

    fn norm_of(
        &self,
        operator: &Operator,
        (result, y): (Value, &mut Matrix<B, E>),
        floats: &mut [Matrix<B, f32>],
    ) -> Result<(), Error> {
        let backend = &self.backend;
        let float = |value: Value| Floats::matrix(self, value);
        match (operator, floats) {
            (Operator::NormalizeRows { x, weight, bias }, [statistics]) => {
                let op = LayerNorm {
                    weight: float(*weight)?,
                    bias: float(*bias)?,
                    epsilon: EPSILON,
                    relu: false,
                };
                let x = Elements::matrix(self, *x)?;
                ops::normalize_rows(backend, &op, x, statistics, y)
            }
            (
                Operator::NormalizeRowsGradient {
                    x,
                    weight,
                    statistics,
                    d,
                },
                [d_weight, d_bias],
            ) => {
                self.begin_with::<Elements>((result, &mut *y), *d)?;
                let gradients = AffineGradients {
                    weight: d_weight,
                    bias: d_bias,
                };
                let (x, statistics) = (Elements::matrix(self, *x)?, float(*statistics)?);
                let weight = float(*weight)?;
                ops::normalize_rows_backward(backend, weight, x, statistics, y, gradients)
            }
            (Operator::NormalizeGroups { norm, groups, x }, [statistics]) => {
                let x = Elements::matrix(self, *x)?;
                let groups = self.groups(*groups, x.rows())?;
                let (of, [weight, bias]) = self.group_norm(*norm)?;
                ops::group_statistics(backend, &of, EPSILON, groups, x, statistics)?;
                let op = GroupNormalization {
                    groups,
                    statistics,
                    weight,
                    bias,
                    relu: false,
                };
                ops::normalize_groups(backend, &op, x, y)
            }
            (
                Operator::NormalizeGroupsGradient {
                    norm,
                    groups,
                    x,
                    statistics,
                    d,
                },
                floats,
            ) => {
                self.begin_with::<Elements>((result, &mut *y), *d)?;
                let x = Elements::matrix(self, *x)?;
                let (of, [weight, bias]) = self.group_norm(*norm)?;
                let op = GroupNormalization {
                    groups: self.groups(*groups, x.rows())?,
                    statistics: float(*statistics)?,
                    weight,
                    bias,
                    relu: false,
                };
                // Of one graph its parts of the gradients are the gradients.
                let several = groups.map_or(0, |_| floats.len() / 2);
                let (sums, parts) = floats.split_at_mut(several);
                let of_graphs = match &mut *parts {
                    [weight, bias, mean_scale] => Some(GroupGradients {
                        weight,
                        bias,
                        mean_scale,
                    }),
                    _ => None,
                };
                ops::normalize_groups_backward(backend, &of, &op, x, y, of_graphs)?;
                let mut sums = sums.iter_mut().zip(parts);
                sums.try_for_each(|(sums, part)| ops::column_sums(backend, part, sums))
            }
            _ => missing(),
        }
    }

    /// The rows of each graph, or all as one.
    fn groups(&self, edges: Option<Edges>, rows: usize) -> Result<&RowGroups<B>, Error> {
        match edges {
            Some(edges) => groups(self.edges[edges.0], &self.backend),
            None => self.memory.wholes.get(&rows).map_or_else(missing, Ok),
        }
    }

    fn group_norm(&self, norm: GroupNorm) -> Result<NormOf<'_, B>, Error> {
        let float = |value: Value| Floats::matrix(self, value);
        Ok(match norm {
            GroupNorm::Pair => (ops::GroupNorm::Pair, [None, None]),
            GroupNorm::Graph(of) => (
                ops::GroupNorm::Graph(float(of.mean_scale)?),
                [Some(float(of.weight)?), Some(float(of.bias)?)],
            ),
        })
    }
}

/// A norm, and its scales and shifts.
type NormOf<'a, B> = (ops::GroupNorm<'a, B>, [Option<&'a Matrix<B, f32>>; 2]);

fn missing<T>() -> Result<T, Error> {
    refuse("a norm is without one of its results".into())
}
