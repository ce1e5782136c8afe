//! Weights by attention, edge by edge.

use super::{AttentionPairOperands, AttentionScores, EdgeAttention, SoftmaxGradient, ends};
use crate::backend::Adjacency;
use crate::backend::cpu::view::with_edges;
use crate::backend::cpu::{Cpu, Reading};
use crate::ops::Aggregation;
use crate::ops::elementwise::cpu::Mask;
use crate::ops::spmm::cpu as product;
use crate::tensor::Element;
use halfgnn_contract::attention::{leaky_relu_derivative, weight};

/// Where the numbers of an edge's two ends stand: planes, one a head, of destinations and of sources.
#[derive(Clone, Copy)]
pub(crate) struct Planes {
    destinations: usize,
    sources: usize,
    transposed: bool,
}

impl Planes {
    /// Those of `a`, whose rows are sources where it is `transposed`, else destinations.
    pub(crate) fn new(a: &Adjacency<Cpu>, transposed: bool) -> Self {
        let (destinations, sources) = ends(a, transposed);
        Self {
            destinations,
            sources,
            transposed,
        }
    }

    /// Destination and source of an edge.
    fn ends(self, row: usize, column: usize) -> (usize, usize) {
        if self.transposed {
            (column, row)
        } else {
            (row, column)
        }
    }

    /// Where numbers of an edge's destination stand, and those of its source.
    pub(crate) fn of(self, head: usize, row: usize, column: usize) -> [usize; 2] {
        let (destination, source) = self.ends(row, column);
        [
            head * self.destinations + destination,
            head * self.sources + source,
        ]
    }
}

/// Scores and statistics of the vertices, in planes.
pub(crate) struct Weights<'a> {
    destination: Reading<'a, f32>,
    source: Reading<'a, f32>,
    statistics: Reading<'a, [f32; 2]>,
    planes: Planes,
    slope: f32,
    positive_only: bool,
    dropout: Option<Mask>,
}

impl<'a> Weights<'a> {
    /// `positive_only` leaves weights to the edges whose sum of scores is positive.
    pub(crate) fn new(
        of: &EdgeAttention<'a, Cpu>,
        a: &Adjacency<Cpu>,
        positive_only: bool,
    ) -> Self {
        let dropout = of.dropout.filter(|dropout| dropout.probability > 0.0);
        Self {
            destination: of.destination.buffer.read(),
            source: of.source.buffer.read(),
            statistics: of.statistics.buffer.read(),
            planes: Planes::new(a, of.transposed),
            slope: of.slope,
            positive_only,
            dropout: dropout.map(Mask::new),
        }
    }

    pub(crate) fn of(&self, row: usize, column: usize, head: usize) -> f32 {
        let [destination, source] = self.planes.of(head, row, column);
        let sum = self.destination[destination] + self.source[source];
        if self.positive_only && sum <= 0.0 {
            return 0.0;
        }
        let weight = weight(sum, self.slope, self.statistics[destination]);
        match &self.dropout {
            Some(mask) => {
                let (destination, source) = self.planes.ends(row, column);
                mask.edge(weight, head, destination, source)
            }
            None => weight,
        }
    }
}

/// Scores of vertices, as slices.
pub(crate) struct Scores<'a> {
    destination: &'a [f32],
    source: &'a [f32],
    pub(crate) slope: f32,
    planes: Planes,
}

impl Scores<'_> {
    /// `l + r` of an edge, and where the numbers of its destination stand.
    pub(crate) fn of(&self, head: usize, row: usize, column: usize) -> (f32, usize) {
        let [destination, source] = self.planes.of(head, row, column);
        (
            self.destination[destination] + self.source[source],
            destination,
        )
    }
}

/// Calls `f` with the scores as slices.
pub(crate) fn with_scores<T>(
    of: &AttentionScores<'_, Cpu>,
    planes: Planes,
    f: impl FnOnce(&Scores<'_>) -> T,
) -> T {
    f(&Scores {
        destination: &of.destination.buffer.read(),
        source: &of.source.buffer.read(),
        slope: of.slope,
        planes,
    })
}

/// Two SpMMs, one after the other, and the sums of a softmax's gradient.
pub(crate) fn pair<E: Element>(operands: AttentionPairOperands<'_, Cpu, E>) {
    let AttentionPairOperands { a, op, x } = operands;
    let of = op.weights;
    for (positive_only, y) in [(false, op.all), (true, op.positive)] {
        let weights = Weights::new(of, a, positive_only);
        let operands = product::Operands {
            offsets: &a.offsets.buffer.read(),
            columns: &a.column_ids.buffer.read(),
            weights: product::Weights::Attention(&weights),
            heads: of.heads,
            row_scale: None,
            scale: 1.0,
            aggregation: Aggregation::Sum,
            x: &x.buffer.read(),
            stride: x.stride(),
            epilogue: product::Epilogue::NONE,
        };
        product::spmm(&operands, op.policy, x.columns(), y.buffer.get_mut());
    }
    let Some(SoftmaxGradient { values, sums }) = op.through else {
        return;
    };
    let (statistics, values) = (of.statistics.buffer.read(), values.buffer.read());
    with_edges(a, |edges| {
        with_scores(&of.scores(), Planes::new(a, of.transposed), |scores| {
            edges.for_rows(sums.buffer.get_mut(), |head, row| {
                let term = |edge: usize| {
                    let (sum, at) = scores.of(head, row, edges.columns[edge] as usize);
                    leaky_relu_derivative(sum, of.slope)
                        * weight(sum, of.slope, statistics[at])
                        * values[at]
                };
                edges.of_row(row).map(term).sum()
            });
        });
    });
}
