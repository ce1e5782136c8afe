//! The types of vertices and edges of a model.

use super::{ModelConfig, Norm, Propagation};
use crate::backend::{Backend, MemoryKind};
use crate::data::{Dataset, Features, Types};
use crate::error::Error;
use crate::tensor::{Element, Matrix};
use serde::{Deserialize, Serialize};

/// The types of vertices and edges that a model reads, and the type that it predicts.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ModelTypes {
    /// The types of vertices.
    pub vertices: Vec<ModelVertexType>,
    /// The types of edges, each of which has a graph of its own, in this order.
    pub edges: Vec<ModelEdgeType>,
    /// The type of vertices that the model predicts.
    pub labelled: usize,
}

/// A type of vertices.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ModelVertexType {
    /// Its name.
    pub name: String,
    /// The number of vertices. For a type with features it is that of the training graph, and other graphs may have
    /// more or fewer.
    pub vertices: usize,
    /// Features of each; 0 for a type without features, whose vertices each have a learnt row.
    pub features: usize,
}

/// A type of edges.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ModelEdgeType {
    /// The type of vertices that edges start at.
    pub source: usize,
    /// Its name.
    pub name: String,
    /// The type of vertices that edges lead to.
    pub destination: usize,
}

impl ModelTypes {
    /// The name of a type of edges with those of both ends, as in names of parameters: `author__writes__paper`.
    ///
    /// # Panics
    /// If it has an end of no type.
    pub fn title(&self, of: &ModelEdgeType) -> String {
        let ends = [of.source, of.destination].map(|end| &self.vertices[end].name);
        format!("{}__{}__{}", ends[0], of.name, ends[1])
    }

    /// The types whose features a pass is given besides those of the labelled type, in their order.
    pub fn others_with_features(&self) -> impl Iterator<Item = usize> + '_ {
        let all = 0..self.vertices.len();
        all.filter(|of| *of != self.labelled && self.vertices[*of].features > 0)
    }

    /// The types without features, whose vertices each have a learnt row, in their order.
    pub fn without_features(&self) -> impl Iterator<Item = usize> + '_ {
        (0..self.vertices.len()).filter(|of| self.vertices[*of].features == 0)
    }

    /// The types of vertices that each layer writes, for layers that aggregate or do not, and those that the first one
    /// reads: the types on which the last layer's output for the labelled type depends.
    pub(crate) fn written(&self, aggregates: &[bool]) -> (Vec<bool>, Vec<Vec<bool>>) {
        let mut read: Vec<bool> = (0..self.vertices.len())
            .map(|of| of == self.labelled)
            .collect();
        let mut layers = Vec::with_capacity(aggregates.len());
        for aggregates in aggregates.iter().rev() {
            let written = read.clone();
            for of in self.edges.iter().filter(|_| *aggregates) {
                read[of.source] |= written[of.destination];
            }
            layers.push(written);
        }
        layers.reverse();
        (read, layers)
    }

    /// Checks that ends are types, and that names are unique.
    pub(super) fn check(&self, model: &ModelConfig) -> Result<(), String> {
        let count = self.vertices.len();
        let mut ends = self.edges.iter().flat_map(|of| [of.source, of.destination]);
        let last = ends.clone().chain([self.labelled]).max().unwrap_or(0);
        if ends.next().is_none() || last >= count {
            return Err(format!(
                "a model of {count} types of vertices and {} types of edges, one of which has an end of type {last}, numbered from 0",
                self.edges.len()
            ));
        }
        let names: Vec<String> = self.edges.iter().map(|of| self.title(of)).collect();
        let titles = self.vertices.iter().map(|of| &of.name).chain(&names);
        let mut all: Vec<&String> = titles.collect();
        all.sort_unstable();
        if let Some(twice) = all.windows(2).find(|two| two[0] == two[1]) {
            return Err(format!("two types are called {}", twice[0]));
        }
        if !model.convolution.knows_types() {
            return Err(format!(
                "{} reads vertices and edges of one type; rgcn, hetero and hgt read several",
                model.convolution.name()
            ));
        }
        let refused = [
            (model.jumping.is_some(), "jumping knowledge"),
            (model.readout.is_some(), "a readout"),
            (model.messages.is_some(), "messages of 8 bits"),
            (model.binary.is_some(), "layers of one bit"),
            (!model.decoder.is_dot(), "a decoder of links"),
        ];
        match refused.into_iter().find(|(is_so, _)| *is_so) {
            Some((_, what)) => Err(format!(
                "{what} is of models of one type of vertices; leave it out"
            )),
            None => Ok(()),
        }
    }
}

impl ModelConfig {
    /// The number of input columns of the first layer of a model of several types. A linear map takes features to
    /// the width of a hidden layer, which learnt rows have as well.
    pub fn input_width(&self) -> usize {
        self.hidden_of(0)
    }
}

impl ModelTypes {
    /// Those of a dataset, where it has several types.
    pub fn of(dataset: &Dataset) -> Option<Self> {
        let types = dataset.types.as_ref()?;
        let vertices = types.vertices().iter().enumerate();
        let vertices = vertices.map(|(number, of)| ModelVertexType {
            name: of.name.clone(),
            vertices: of.vertices,
            features: dataset
                .features_of_type(number)
                .map_or(0, Features::feature_len),
        });
        let edges = types.edges().iter().map(|of| ModelEdgeType {
            source: of.source,
            name: of.name.clone(),
            destination: of.destination,
        });
        Some(Self {
            vertices: vertices.collect(),
            edges: edges.collect(),
            labelled: types.labelled(),
        })
    }

    /// Checks that a dataset has these types, with the same numbers of features.
    ///
    /// # Errors
    /// [`Error::Unsupported`] with the first that differs.
    pub fn expect(&self, dataset: &Dataset) -> Result<(), Error> {
        let refuse = |reason: String| {
            Err(Error::Unsupported {
                operator: "ModelTypes",
                reason,
            })
        };
        let Some(found) = Self::of(dataset) else {
            return refuse(format!(
                "the model reads several types of vertices, and {} has one",
                dataset.name
            ));
        };
        let names = |of: &Self| -> Vec<String> {
            let edges = of.edges.iter().map(|edge| of.title(edge));
            let vertices = of.vertices.iter().map(|of| of.name.clone());
            vertices.chain(edges).collect()
        };
        let (wanted, there) = (names(self), names(&found));
        if wanted != there || self.labelled != found.labelled {
            return refuse(format!(
                "the model reads {} and predicts something of {}, and {} has {} and labels of {}; read it as the model's dataset was, such as with --undirected",
                wanted.join(", "),
                self.vertices[self.labelled].name,
                dataset.name,
                there.join(", "),
                found.vertices[found.labelled].name,
            ));
        }
        let mut pairs = self.vertices.iter().zip(&found.vertices);
        match pairs.find(|(own, found)| {
            own.features != found.features || own.features == 0 && own.vertices != found.vertices
        }) {
            Some((own, found)) if own.features == found.features => refuse(format!(
                "a row is learnt for each of {} vertices of type {}, which has no features, and {} has {} of them; take the graph that was trained on",
                own.vertices, own.name, dataset.name, found.vertices
            )),
            Some((own, found)) => refuse(format!(
                "the model reads {} features of vertices of type {}, and {} has {}",
                own.features, own.name, dataset.name, found.features
            )),
            None => Ok(()),
        }
    }

    /// The graph of each type of edges with the factors of `norm`, as a pass reads them.
    ///
    /// # Errors
    /// Those of [`Propagation::bipartite`].
    pub fn graphs<B: Backend>(
        backend: &B,
        types: &Types,
        norm: Norm,
    ) -> Result<Vec<Propagation<B>>, Error> {
        let edges = types.edges().iter();
        edges
            .map(|of| Propagation::bipartite(backend, &of.edges, norm))
            .collect()
    }

    /// The features of the types besides the labelled one that have some, as a pass reads them.
    ///
    /// # Errors
    /// Those of [`UploadFeatures::upload_features`](crate::data::UploadFeatures::upload_features).
    pub fn features<B: Backend, E: Element>(
        &self,
        backend: &B,
        dataset: &Dataset,
    ) -> Result<Vec<Matrix<B, E>>, Error> {
        let features = self.others_with_features();
        let features = features.filter_map(|of| dataset.features_of_type(of));
        let upload = |features: &Features| {
            let shape = (features.vertices(), features.feature_len());
            Matrix::from_rows(backend, shape, MemoryKind::Features, |vertex, row| {
                features.write_row(vertex, row);
            })
        };
        features.map(upload).collect()
    }
}
