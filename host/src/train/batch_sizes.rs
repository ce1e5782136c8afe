//! Sizes of batches, estimated before the first training step.

use super::batches::{Batches, Drawn};
use super::fixed_batches::LOOKED_AT;
use crate::backend::{Backend, Block, MemoryKind};
use crate::error::Error;
use crate::graph::RowCounts;
use crate::nn::{ModelTypes, Norm, Propagation};
use crate::ops::{GroupRoom, Places, group_workspace};
use crate::sample::{LayerSources, room_beyond};
use crate::tensor::{Array, Element, Matrix};

/// The assumed sizes of the largest batch: the most over the first batches of a run, plus twice their spread, and at
/// least 1/32 more. There are never more vertices than the graph has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BatchSizes {
    /// The sizes of each aggregating layer in the order of computation: rows are destinations, columns sources. With
    /// several types, the sizes of each type of edges.
    pub layers: Vec<RowCounts>,
    /// Whether edges have factors of the whole graph, and blocks their transposes from the start, as in subgraphs.
    pub induced: bool,
    /// The number of the graph's vertices, where all batches use the same buffers. Each vertex then has a place in
    /// them.
    pub in_place: Option<usize>,
    /// The number of batches that are sampled during a training step, each in its own buffers.
    pub drawn_ahead: usize,
    /// The sources of the first layer, where all batches use the same buffers. For all vertices no features are copied.
    pub sources: LayerSources,
    /// The vertices of a batch by type, where there are several types.
    pub types: Option<TypeSizes>,
}

/// The sampled vertices of each type.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TypeSizes {
    /// The number of vertices of each type.
    pub vertices: Vec<usize>,
    /// The types of the model.
    pub of: ModelTypes,
}

impl TypeSizes {
    /// A counted graph for each type of edges. After them comes one for each type without features, from all its
    /// vertices to the sampled ones.
    fn graphs<B: Backend>(
        &self,
        backend: &B,
        layers: &[RowCounts],
        norm: Norm,
    ) -> Result<Vec<Propagation<B>>, Error> {
        let relations = layers.iter().map(|of| {
            let block = Block::counted(backend, of)?;
            Propagation::of_sampled(backend, block, norm)
        });
        let samples = self.of.without_features().map(|of| {
            let counts = RowCounts {
                rows: self.vertices[of],
                columns: self.of.vertices[of].vertices,
                edges: self.vertices[of],
                empty: 0,
                longest: 1,
            };
            let block = Block::counted(backend, &counts)?;
            Propagation::of_sampled(backend, block, Norm::None)
        });
        relations.chain(samples).collect()
    }

    /// Zeroed features of all types other than the labelled one.
    pub(super) fn features<B: Backend, E: Element>(
        &self,
        backend: &B,
    ) -> Result<Vec<Matrix<B, E>>, Error> {
        let of_type = |of: usize| {
            let (rows, columns) = (self.vertices[of], self.of.vertices[of].features);
            Matrix::zeros(backend, rows, columns, MemoryKind::Features)
        };
        self.of.others_with_features().map(of_type).collect()
    }
}

/// The numbers of vertices of each type and of edges of each type.
#[derive(Clone, Debug)]
pub(super) struct TypeCounts {
    pub(super) vertices: Vec<usize>,
    pub(super) edges: Vec<usize>,
}

impl TypeCounts {
    /// Combines each pair of counts by `choose`.
    pub(super) fn each(mut self, other: &Self, choose: fn(usize, usize) -> usize) -> Self {
        let pairs = self.vertices.iter_mut().zip(&other.vertices);
        for (own, other) in pairs.chain(self.edges.iter_mut().zip(&other.edges)) {
            *own = choose(*own, *other);
        }
        self
    }
}

/// The arrays of a batch other than its graphs.
pub(super) type Beside<B, E> = (Vec<Array<B, u32>>, Vec<Array<B, E>>, Option<Places<B>>);

impl BatchSizes {
    /// Vertices whose features are inputs; those of the whole graph where sources are [all](LayerSources::All).
    pub fn inputs(&self) -> usize {
        match &self.types {
            Some(types) => types.vertices[types.of.labelled],
            None => self.layers.first().map_or(0, |layer| layer.columns),
        }
    }

    /// Vertices of a batch: those whose features are inputs. Where features are read in place, the destinations of the
    /// first layer.
    pub fn vertices(&self) -> usize {
        if let Some(types) = &self.types {
            return types.vertices.iter().sum();
        }
        match self.sources {
            LayerSources::Met => self.inputs(),
            LayerSources::All => self.layers.first().map_or(0, |layer| layer.rows),
        }
    }

    /// Vertices that the model predicts.
    pub fn destinations(&self) -> usize {
        match &self.types {
            Some(types) => types.vertices[types.of.labelled],
            None => self.layers.last().map_or(0, |layer| layer.rows),
        }
    }

    /// Edges of all layers.
    pub fn edges(&self) -> usize {
        self.layers.iter().map(|layer| layer.edges).sum()
    }

    fn of<B: Backend>(drawn: &Drawn<B>) -> Self {
        let counts = |block: &Block<B>| RowCounts {
            rows: block.destinations(),
            columns: block.sources(),
            edges: block.forward().edges(),
            empty: 0,
            longest: block.forward().longest_row(),
        };
        let layers = match drawn {
            Drawn::Sampled(batch) => batch.blocks.iter().map(counts).collect(),
            Drawn::Subgraph(drawn) => vec![counts(&drawn.subgraph.block)],
        };
        Self {
            layers,
            induced: matches!(drawn, Drawn::Subgraph(_)),
            in_place: None,
            drawn_ahead: 0,
            sources: LayerSources::Met,
            types: None,
        }
    }

    /// The sizes of batches over several types, from the counts of the smallest and the largest batch that were seen.
    pub(super) fn of_types(of: &ModelTypes, [fewest, most]: &[TypeCounts; 2]) -> Self {
        let beyond = |fewest: &[usize], most: &[usize]| -> Vec<usize> {
            let pairs = fewest.iter().zip(most);
            pairs
                .map(|(&fewest, &most)| room_beyond(fewest, most))
                .collect()
        };
        let mut vertices = beyond(&fewest.vertices, &most.vertices);
        for (vertices, of) in vertices.iter_mut().zip(&of.vertices) {
            *vertices = of.vertices.min(*vertices);
        }
        let edges = beyond(&fewest.edges, &most.edges);
        let layers = of.edges.iter().zip(edges).map(|(of, edges)| RowCounts {
            rows: vertices[of.destination],
            columns: vertices[of.source],
            edges,
            empty: 0,
            longest: 0,
        });
        Self {
            layers: layers.collect(),
            induced: false,
            in_place: None,
            drawn_ahead: 0,
            sources: LayerSources::Met,
            types: Some(TypeSizes {
                vertices,
                of: of.clone(),
            }),
        }
    }

    /// Combines each pair of counts by `choose`, layer by layer.
    fn each(mut self, other: &Self, choose: fn(usize, usize) -> usize) -> Self {
        for (layer, other) in self.layers.iter_mut().zip(&other.layers) {
            layer.rows = choose(layer.rows, other.rows);
            layer.columns = choose(layer.columns, other.columns);
            layer.edges = choose(layer.edges, other.edges);
            layer.longest = choose(layer.longest as usize, other.longest as usize) as u32;
        }
        self
    }

    /// The graphs of such a batch, with zeroed arrays.
    pub(super) fn graphs<B: Backend>(
        &self,
        backend: &B,
        norm: Norm,
    ) -> Result<Vec<Propagation<B>>, Error> {
        if let Some(types) = &self.types {
            return types.graphs(backend, &self.layers, norm);
        }
        let layers = self.layers.iter().enumerate();
        layers
            .map(|(number, layer)| {
                let block = Block::counted(backend, layer)?;
                let block = match number == 0 && self.sources == LayerSources::All {
                    true => {
                        let own = Array::zeros(backend, layer.rows, MemoryKind::Graph)?;
                        block.with_own(own)?
                    }
                    false => block,
                };
                Propagation::of_sampled(backend, block, norm)
            })
            .collect()
    }

    /// The arrays of a batch other than its graphs: the ids of its inputs and, for a subgraph, of its edges. Batches in
    /// place also have the arrays that sampling needs.
    pub(super) fn beside<B: Backend, E: Element>(
        &self,
        backend: &B,
    ) -> Result<Beside<B, E>, Error> {
        let kind = MemoryKind::Graph;
        // The layers whose sources are sampled vertices.
        let (inputs, met) = match self.sources {
            LayerSources::Met => (self.inputs(), &self.layers[..]),
            LayerSources::All => (0, &self.layers[1..]),
        };
        let mut words = vec![Array::zeros(backend, inputs, kind)?];
        let mut factors = Vec::new();
        if self.induced {
            for _ in 0..2 {
                words.push(Array::zeros(backend, self.edges(), kind)?);
                factors.push(Array::zeros(backend, self.edges(), kind)?);
            }
        }
        let mut places = None;
        if let Some(vertices) = self.in_place {
            places = Some(Places::new(backend, vertices)?);
            for layer in &self.layers {
                words.push(Array::zeros(backend, layer.rows + 1, kind)?);
            }
            for layer in met {
                words.push(Array::zeros(backend, layer.columns, kind)?);
            }
            if self.drawn_ahead > 0 {
                // Sampling ahead builds transposes in a workspace. It fits any layer, because only the model knows
                // which layers need a transpose.
                let of_layer =
                    |layer: &RowCounts| group_workspace(layer.edges as u64, layer.columns as u64);
                let most = met.iter().map(of_layer).max().unwrap_or(0) as usize;
                words.push(Array::zeros(backend, most, MemoryKind::Workspace)?);
            }
            for layer in met {
                let room = GroupRoom::<B>::words(layer.edges, layer.columns);
                words.push(Array::zeros(backend, room * (1 + self.drawn_ahead), kind)?);
            }
            for _ in 0..=self.drawn_ahead {
                words.push(Array::zeros(backend, inputs, kind)?);
            }
        }
        Ok((words, factors, places))
    }
}

impl<B: Backend, E: Element> Batches<B, E> {
    /// The sizes of batches, or of this rank's parts of them, estimated from the first ones of the run. There are none
    /// for whole graphs, which are not sampled.
    ///
    /// # Errors
    /// Those of the sampler.
    pub fn sizes(&mut self, backend: &B) -> Result<Option<BatchSizes>, Error> {
        if !self.are_drawn() {
            return Ok(None);
        }
        if self.is_of_types() {
            return self.sizes_of_types(backend);
        }
        let mut seen: Option<[BatchSizes; 2]> = None;
        for number in 0..LOOKED_AT.min(self.count()) {
            let (step, vertices) = self.seeds(0, number)?;
            let own = &vertices[self.share().of(vertices.len())];
            if own.is_empty() {
                continue;
            }
            let drawn = BatchSizes::of(&self.draw(backend, step, own)?);
            seen = Some(match seen {
                None => [drawn.clone(), drawn],
                Some([fewest, most]) => [
                    fewest.each(&drawn, usize::min),
                    most.each(&drawn, usize::max),
                ],
            });
        }
        let vertices = self.vertices();
        if let Some([fewest, most]) = &mut seen {
            most.in_place = self.will_be_in_place(backend)?.then_some(vertices);
            if most.in_place.is_some() {
                most.drawn_ahead = self.will_be_drawn_ahead(backend);
                most.sources = self.inputs(backend);
            }
            // Destinations of the last layer are the batch, which is never larger. Those of each other layer are the
            // sources of the next.
            let induced = most.induced;
            let mut rows = most.destinations();
            for (layer, fewest) in most.layers.iter_mut().zip(&fewest.layers).rev() {
                let met = |layer: &RowCounts| layer.columns.saturating_sub(layer.rows);
                let (most_met, fewest_met) = (met(layer), met(fewest).min(met(layer)));
                layer.rows = rows;
                layer.columns = match induced {
                    true => room_beyond(fewest.columns, layer.columns).min(vertices),
                    false => rows + room_beyond(fewest_met, most_met).min(vertices),
                };
                layer.edges = room_beyond(fewest.edges, layer.edges);
                rows = layer.columns;
                if induced {
                    layer.rows = rows;
                }
            }
            if let (LayerSources::All, Some(first)) = (most.sources, most.layers.first_mut()) {
                first.columns = vertices;
            }
        }
        Ok(seen.map(|[_, most]| most))
    }
}
