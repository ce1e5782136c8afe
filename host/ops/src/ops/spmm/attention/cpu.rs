//! Weights by attention, edge by edge.

use super::{AttentionScores, EdgeAttention, ends};
use crate::backend::Adjacency;
use crate::backend::cpu::view::read;
use crate::backend::cpu::{Cpu, Reading};
use crate::ops::edge_plane;
use crate::ops::elementwise::cpu::Mask;
use halfgnn_contract::attention::weight;
use halfgnn_contract::spmm::EDGES_PER_WARP;

/// Where the numbers of an edge's two ends stand: planes, one a head, of destinations and of sources.
#[derive(Clone, Copy)]
pub(crate) struct Planes {
    destinations: usize,
    sources: usize,
    transposed: bool,
    edges: usize,
}

impl Planes {
    /// Those of `a`, whose rows are sources where it is `transposed`, else destinations.
    pub(crate) fn new(a: &Adjacency<Cpu>, transposed: bool) -> Self {
        let (destinations, sources) = ends(a, transposed);
        Self {
            destinations,
            sources,
            transposed,
            edges: a.edges(),
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

    /// What becomes of a number of an edge by dropout.
    pub(crate) fn dropped(
        self,
        mask: &Mask,
        x: f32,
        head: usize,
        row: usize,
        column: usize,
    ) -> f32 {
        let (destination, source) = self.ends(row, column);
        mask.edge(x, head, destination, source)
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
    biases: Option<Reading<'a, f32>>,
    /// Distance of two planes of biases.
    plane: usize,
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
            biases: read(of.biases),
            plane: edge_plane(a.edges()),
        }
    }

    pub(crate) fn of(&self, edge: usize, row: usize, column: usize, head: usize) -> f32 {
        let [destination, source] = self.planes.of(head, row, column);
        let mut sum = self.destination[destination] + self.source[source];
        if let Some(biases) = &self.biases {
            sum += biases[head * self.plane + edge];
        }
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

/// Most edges whose weights are computed at a time.
pub(crate) const MOST_EDGES: usize = EDGES_PER_WARP as usize;

impl Weights<'_> {
    /// Writes the weights of a row's edges from number `first` on, which lead from `columns`, at most [`MOST_EDGES`],
    /// as [`Weights::of`] has them: what is gathered first, then what has no branches, so that it is done in vectors.
    #[inline(always)]
    pub(crate) fn of_edges(
        &self,
        first: usize,
        row: usize,
        columns: &[u32],
        head: usize,
        weights: &mut [f32],
    ) {
        let (mut sums, mut maxima) = ([0.0; MOST_EDGES], [0.0; MOST_EDGES]);
        let mut reciprocals = [0.0; MOST_EDGES];
        let count = columns.len();
        for edge in 0..count {
            let [destination, source] = self.planes.of(head, row, columns[edge] as usize);
            sums[edge] = self.destination[destination] + self.source[source];
            [maxima[edge], reciprocals[edge]] = self.statistics[destination];
        }
        if let Some(biases) = &self.biases {
            let biases = &biases[head * self.plane + first..][..count];
            for edge in 0..count {
                sums[edge] += biases[edge];
            }
        }
        let (sums, maxima) = (&sums[..count], &maxima[..count]);
        let (reciprocals, weights) = (&reciprocals[..count], &mut weights[..count]);
        for edge in 0..count {
            let weight = weight(sums[edge], self.slope, [maxima[edge], reciprocals[edge]]);
            let dropped = self.positive_only && sums[edge] <= 0.0;
            weights[edge] = if dropped { 0.0 } else { weight };
        }
        if let Some(mask) = &self.dropout {
            for edge in 0..count {
                if !self.positive_only || sums[edge] > 0.0 || sums[edge].is_nan() {
                    let (destination, source) = self.planes.ends(row, columns[edge] as usize);
                    weights[edge] = mask.edge(weights[edge], head, destination, source);
                }
            }
        }
    }
}

/// Scores of vertices, as slices.
pub(crate) struct Scores<'a> {
    destination: &'a [f32],
    source: &'a [f32],
    pub(crate) slope: f32,
    planes: Planes,
    biases: Option<&'a [f32]>,
    /// Distance of two planes of biases.
    plane: usize,
}

impl Scores<'_> {
    /// `l + r`, and the bias, of an edge, and where the numbers of its destination stand.
    pub(crate) fn of(&self, head: usize, edge: usize, row: usize, column: usize) -> (f32, usize) {
        let [destination, source] = self.planes.of(head, row, column);
        let sum = self.destination[destination] + self.source[source];
        let sum = match self.biases {
            Some(biases) => sum + biases[head * self.plane + edge],
            None => sum,
        };
        (sum, destination)
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
        biases: read(of.biases).as_deref(),
        plane: edge_plane(planes.edges),
        planes,
    })
}
