//! Several types of vertices and edges.

use super::error::{DataError, DataProblem};
use super::{Dataset, Features, Origin, Preparation, Splits, Targets};
use halfgnn_graph::{Csr, Graph, GraphError};
use std::ops::Range;

/// The types of a graph's vertices and edges.
///
/// All vertices have one numbering: those of a type are a [range](Types::range) of it, in the order of the types. Edges
/// of a type lead from vertices of one type to vertices of another or the same one, and are a matrix of their own,
/// whose rows and columns are numbered from 0 within both types.
///
/// ```
/// use halfgnn_data::{Dataset, EdgeType, Features, Splits, Types, VertexType};
/// use halfgnn_graph::Csr;
///
/// let paper = VertexType::new("paper", 3, Some(Features::dense(1, vec![0.5, 1.0, 2.0])?))?;
/// let author = VertexType::new("author", 2, None)?;
/// // Author 0 writes papers 0 and 1, author 1 writes paper 2.
/// let edges = Csr::rectangular_from_edges((3, 2), &[0, 1, 2], &[0, 0, 1])?;
/// let writes = EdgeType { source: 1, name: "writes".into(), destination: 0, edges };
/// let types = Types::new(vec![paper, author], vec![writes])?;
/// let splits = Splits { train: vec![0, 1], test: vec![2], ..Splits::default() };
/// let dataset = Dataset::of_types("papers", types, "paper", vec![0, 0, 1], splits)?;
/// assert_eq!((dataset.outputs, dataset.edges()), (2, 3));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone, PartialEq)]
pub struct Types {
    vertices: Vec<VertexType>,
    edges: Vec<EdgeType>,
    labelled: usize,
    /// Whether vertices of the labelled type have features, which are those of the dataset.
    has_features: bool,
}

/// A type of vertices.
#[derive(Debug, Clone, PartialEq)]
pub struct VertexType {
    /// Its name.
    pub name: String,
    /// How many vertices are of it.
    pub vertices: usize,
    features: Option<Features>,
}

/// A type of edges.
#[derive(Debug, Clone, PartialEq)]
pub struct EdgeType {
    /// The type of the vertices that edges start at.
    pub source: usize,
    /// Its name: the relation between both types. Several types of edges may share it, between other types of vertices.
    pub name: String,
    /// The type of the vertices that edges lead to.
    pub destination: usize,
    /// A row for each destination, a column for each source.
    pub edges: Csr,
}

impl VertexType {
    /// A type of `vertices` vertices, which have features or none.
    ///
    /// # Errors
    /// [`DataProblem::Shape`] where there is not a row of features for each vertex.
    pub fn new(
        name: impl Into<String>,
        vertices: usize,
        features: Option<Features>,
    ) -> Result<Self, DataProblem> {
        let name = name.into();
        if let Some(features) = features.as_ref().filter(|of| of.vertices() != vertices) {
            let shape = [features.vertices() as u64, features.feature_len() as u64];
            return Err(DataProblem::shape(
                &format!("features of {name}"),
                &shape,
                format!("a row for each of {vertices} vertices"),
            ));
        }
        Ok(Self {
            name,
            vertices,
            features,
        })
    }
}

impl Types {
    /// Types of vertices and of edges between them, whose ends are indices into `vertices`. They are sorted by their
    /// names.
    ///
    /// # Errors
    /// [`DataProblem::Types`] where there are no types, two have the same name or name and ends, a name is empty or has
    /// a character that is no part of a name, an edge type names no type of vertices, or there are more vertices than
    /// 2³² − 1; [`DataProblem::Shape`] where a matrix of edges is of other vertices.
    pub fn new(vertices: Vec<VertexType>, edges: Vec<EdgeType>) -> Result<Self, DataProblem> {
        let refuse = |reason: String| Err(DataProblem::Types { reason });
        if vertices.is_empty() || edges.is_empty() {
            return refuse(format!(
                "{} types of vertices and {} types of edges; there is at least one of each",
                vertices.len(),
                edges.len()
            ));
        }
        let names = vertices.iter().map(|of| &of.name);
        for name in names.chain(edges.iter().map(|of| &of.name)) {
            check_name(name)?;
        }
        for (number, of) in vertices.iter().enumerate() {
            if vertices[..number].iter().any(|other| other.name == of.name) {
                return refuse(format!("two types of vertices are called {}", of.name));
            }
        }
        let all = vertices.iter().map(|of| of.vertices as u64).sum::<u64>();
        if all > u32::MAX.into() {
            return refuse(format!(
                "{all} vertices of all types; there can be {}",
                u32::MAX
            ));
        }
        for (number, of) in edges.iter().enumerate() {
            let ends = [of.source, of.destination];
            if let Some(end) = ends.iter().find(|end| **end >= vertices.len()) {
                return refuse(format!(
                    "edges {} have an end of type {end}, and there are {} types of vertices, numbered from 0",
                    of.name,
                    vertices.len()
                ));
            }
            let wanted = (
                vertices[of.destination].vertices,
                vertices[of.source].vertices,
            );
            if of.edges.shape() != wanted {
                let (rows, columns) = of.edges.shape();
                return Err(DataProblem::shape(
                    &format!("edges {}", of.name),
                    &[rows as u64, columns as u64],
                    format!("({}, {}), destinations and sources", wanted.0, wanted.1),
                ));
            }
            let is_same = |other: &EdgeType| {
                (other.source, &other.name, other.destination)
                    == (of.source, &of.name, of.destination)
            };
            if edges[..number].iter().any(is_same) {
                return refuse(format!(
                    "two types of edges are called {} and have the same ends",
                    of.name
                ));
            }
        }
        Ok(Self::in_order(vertices, edges))
    }

    /// The types by their names, so that they have one order wherever they come from.
    fn in_order(vertices: Vec<VertexType>, mut edges: Vec<EdgeType>) -> Self {
        let mut vertices: Vec<(usize, VertexType)> = vertices.into_iter().enumerate().collect();
        vertices.sort_by(|(_, a), (_, b)| a.name.cmp(&b.name));
        let place = |of: usize| vertices.iter().position(|(before, _)| *before == of);
        for of in &mut edges {
            of.source = place(of.source).unwrap_or(0);
            of.destination = place(of.destination).unwrap_or(0);
        }
        edges.sort_by(|a, b| {
            let key = |of: &EdgeType| (of.source, of.destination);
            (&a.name, key(a)).cmp(&(&b.name, key(b)))
        });
        Self {
            vertices: vertices.into_iter().map(|(_, of)| of).collect(),
            edges,
            labelled: 0,
            has_features: false,
        }
    }

    /// The types of vertices.
    pub fn vertices(&self) -> &[VertexType] {
        &self.vertices
    }

    /// The types of edges.
    pub fn edges(&self) -> &[EdgeType] {
        &self.edges
    }

    /// The type whose vertices have labels and splits: the vertices of the dataset.
    pub fn labelled(&self) -> usize {
        self.labelled
    }

    /// The type of vertices of a name.
    pub fn named(&self, name: &str) -> Option<usize> {
        self.vertices.iter().position(|of| of.name == name)
    }

    /// The vertices of a type, in the numbering of all vertices.
    ///
    /// # Panics
    /// If there is no such type.
    pub fn range(&self, of: usize) -> Range<usize> {
        let first = self.vertices[..of].iter().map(|of| of.vertices).sum();
        first..first + self.vertices[of].vertices
    }

    /// Vertices of all types.
    pub fn vertex_count(&self) -> usize {
        self.vertices.iter().map(|of| of.vertices).sum()
    }

    /// Edges of all types.
    pub fn edge_count(&self) -> usize {
        self.edges.iter().map(|of| of.edges.edges()).sum()
    }

    /// The name of a type of edges with those of both ends: `author writes paper`.
    ///
    /// # Panics
    /// If it is none of these types.
    pub fn title(&self, of: &EdgeType) -> String {
        let ends = [of.source, of.destination].map(|end| &self.vertices[end].name);
        format!("{} {} {}", ends[0], of.name, ends[1])
    }

    /// The same with the reverse of each edge: a type `rev_NAME` for each type of edges between two types of vertices,
    /// and edges of the same type within one type of vertices, where each edge is there once. It is PyG's
    /// `ToUndirected`.
    ///
    /// # Errors
    /// [`DataProblem::Graph`] where there is not enough memory, and those of [`Types::new`] where a type `rev_NAME` is
    /// there already.
    pub fn with_reverses(&self) -> Result<Self, DataProblem> {
        let mut edges = Vec::with_capacity(2 * self.edges.len());
        let mut reverses = Vec::new();
        for of in &self.edges {
            if of.source == of.destination {
                let (offsets, columns) = of.edges.clone().into_offsets();
                let refuse = |error: GraphError| DataProblem::graph(&of.name, error);
                let graph = Graph::from_offsets(offsets, columns).map_err(refuse)?;
                let both = graph.to_undirected().map_err(refuse)?;
                edges.push(EdgeType {
                    edges: both.csr().clone(),
                    ..of.clone()
                });
                continue;
            }
            edges.push(of.clone());
            reverses.push(EdgeType {
                source: of.destination,
                name: format!("rev_{}", of.name),
                destination: of.source,
                edges: of.edges.transposed(),
            });
        }
        edges.extend(reverses);
        let of_edges = Self::new(self.vertices.clone(), edges)?;
        Ok(Self {
            labelled: self.labelled,
            has_features: self.has_features,
            ..of_edges
        })
    }

    /// The same with labels of the vertices of a type, whose features become those of the dataset; one feature, 1,
    /// where they have none.
    pub(crate) fn with_labels_of(
        mut self,
        labelled: &str,
    ) -> Result<(Self, Features), DataProblem> {
        let Some(number) = self.named(labelled) else {
            let names: Vec<&str> = self.vertices.iter().map(|of| &*of.name).collect();
            return Err(DataProblem::Types {
                reason: format!(
                    "vertices of type {labelled} have the labels, and there are {}",
                    names.join(", ")
                ),
            });
        };
        let of = &mut self.vertices[number];
        self.has_features = of.features.is_some();
        self.labelled = number;
        let features = match of.features.take() {
            Some(features) => features,
            None => Features::ones(of.vertices)?,
        };
        Ok((self, features))
    }
}

/// A graph of vertices without edges.
pub(crate) fn without_edges(vertices: usize) -> Result<Graph, DataProblem> {
    let graph = Graph::from_offsets(vec![0; vertices + 1], Vec::new());
    graph.map_err(|error| DataProblem::graph("vertices", error))
}

/// That a name can stand in the name of a parameter and of a file.
pub(crate) fn check_name(name: &str) -> Result<(), DataProblem> {
    let is_part = |it: char| it.is_alphanumeric() || matches!(it, '_' | '-' | ' ' | ':');
    match name.chars().find(|it| !is_part(*it)) {
        None if !name.is_empty() => Ok(()),
        None => Err(DataProblem::Types {
            reason: "a type has an empty name".into(),
        }),
        Some(other) => Err(DataProblem::Types {
            reason: format!(
                "a type is called {name:?}, and {other:?} is no part of a name; letters, digits, spaces and the signs _ - : are"
            ),
        }),
    }
}

impl Dataset {
    /// A dataset of several types. Its vertices, features, targets, splits and ids are those of the `labelled` type,
    /// and its [graph](Dataset::graph) has these vertices and no edges: all edges are in [`Dataset::types`]. Where the
    /// labelled type has no features, those of the dataset are a one for each vertex.
    ///
    /// # Errors
    /// [`DataProblem::Types`] where there is no such type, and those of [`Dataset::new`].
    pub fn of_types(
        name: impl Into<String>,
        types: Types,
        labelled: &str,
        targets: impl Into<Targets>,
        splits: Splits,
    ) -> Result<Self, DataError> {
        let name = name.into();
        let refuse = |problem| DataError::new(&name, problem);
        let (types, features) = types.with_labels_of(labelled).map_err(refuse)?;
        let vertices = types.vertices[types.labelled].vertices;
        let graph = without_edges(vertices).map_err(refuse)?;
        Ok(Self {
            types: Some(types),
            ..Self::new(name, graph, features, targets, splits)?
        })
    }

    /// Features of the vertices of a type, where they have some.
    ///
    /// # Panics
    /// If there are several types, and this is none of them.
    pub fn features_of_type(&self, of: usize) -> Option<&Features> {
        match &self.types {
            None => Some(&self.features),
            Some(types) if of == types.labelled => types.has_features.then_some(&self.features),
            Some(types) => types.vertices[of].features.as_ref(),
        }
    }

    /// Adds the reverse of each edge of each type, and records it: see [`Types::with_reverses`]. A dataset of one type
    /// does not change.
    ///
    /// # Errors
    /// Those of [`Types::with_reverses`].
    pub fn add_reverse_types(&mut self) -> Result<(), DataError> {
        let Some(types) = &self.types else {
            return Ok(());
        };
        let more = types.with_reverses();
        let more = more.map_err(|problem| DataError::new(&self.name, problem))?;
        let what = format!(
            "the reverse of each added, of two types as a type rev_NAME: {} became {}",
            types.edge_count(),
            more.edge_count()
        );
        self.types = Some(more);
        let done = Preparation::new("edges", what, Origin::Option);
        self.preparations.push(done);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn vertices() -> Vec<VertexType> {
        let features = Features::dense(2, vec![1.0; 6]).unwrap();
        vec![
            VertexType::new("author", 2, None).unwrap(),
            VertexType::new("paper", 3, Some(features)).unwrap(),
        ]
    }

    fn edges(name: &str, [source, destination]: [usize; 2], pairs: &[[u32; 2]]) -> EdgeType {
        let counts = [2, 3];
        let shape = (counts[destination], counts[source]);
        let (rows, columns): (Vec<u32>, Vec<u32>) = pairs.iter().map(|it| (it[0], it[1])).unzip();
        EdgeType {
            source,
            name: name.into(),
            destination,
            edges: Csr::rectangular_from_edges(shape, &rows, &columns).unwrap(),
        }
    }

    fn types() -> Types {
        let writes = edges("writes", [0, 1], &[[0, 0], [1, 0], [2, 1]]);
        let cites = edges("cites", [1, 1], &[[0, 1], [1, 0], [2, 0]]);
        Types::new(vertices(), vec![writes, cites]).unwrap()
    }

    #[test]
    fn types_are_ranges_of_one_numbering() {
        let types = types();
        assert_eq!((types.range(0), types.range(1)), (0..2, 2..5));
        assert_eq!((types.vertex_count(), types.edge_count()), (5, 6));
        assert_eq!(types.title(&types.edges()[1]), "author writes paper");
        assert_eq!(
            (types.named("paper"), types.named("venue")),
            (Some(1), None)
        );
    }

    #[test]
    fn types_have_one_order_wherever_they_come_from() {
        let mut reversed = vertices();
        reversed.reverse();
        let writes = edges("writes", [0, 1], &[[0, 0], [1, 0], [2, 1]]);
        let cites = edges("cites", [1, 1], &[[0, 1], [1, 0], [2, 0]]);
        let other = |of: EdgeType| EdgeType {
            source: 1 - of.source,
            destination: 1 - of.destination,
            ..of
        };
        let found = Types::new(reversed, vec![other(cites), other(writes)]);
        assert_eq!(found.unwrap(), types());
    }

    #[test]
    fn a_dataset_has_the_labelled_vertices_and_the_edges_of_all_types() {
        let splits = Splits {
            train: vec![0, 2],
            ..Splits::default()
        };
        let dataset =
            Dataset::of_types("mag", types(), "paper", vec![0, 1, 1], splits.clone()).unwrap();
        assert_eq!((dataset.graph.vertices(), dataset.edges()), (3, 6));
        assert_eq!((dataset.feature_len(), dataset.largest_degree()), (2, 1));
        assert_eq!(dataset.features_of_type(0), None);
        assert_eq!(dataset.features_of_type(1), Some(&dataset.features));
        let of_authors = Splits {
            train: vec![0],
            ..Splits::default()
        };
        let dataset = Dataset::of_types("mag", types(), "author", vec![0, 1], of_authors).unwrap();
        assert_eq!(dataset.features_of_type(0), None);
        assert_eq!(
            dataset.features_of_type(1).map(Features::feature_len),
            Some(2)
        );
        let refused =
            Dataset::of_types("mag", types(), "venue", vec![0, 1, 1], splits).unwrap_err();
        assert!(
            refused
                .to_string()
                .contains("vertices of type venue have the labels"),
            "{refused}"
        );
    }

    #[test]
    fn reverses_are_types_of_their_own_or_join_the_edges_within_a_type() {
        let both = types().with_reverses().unwrap();
        let names: Vec<String> = both.edges().iter().map(|of| both.title(of)).collect();
        assert_eq!(
            names,
            [
                "paper cites paper",
                "paper rev_writes author",
                "author writes paper"
            ]
        );
        let pairs = |of: usize| both.edges()[of].edges.iter().collect::<Vec<_>>();
        assert_eq!(pairs(0), [(0, 1), (0, 2), (1, 0), (2, 0)]);
        assert_eq!(pairs(1), [(0, 0), (0, 1), (1, 2)]);
    }

    #[test]
    fn what_does_not_fit_is_refused() {
        let message = |vertices, edges| Types::new(vertices, edges).unwrap_err().to_string();
        let writes = || edges("writes", [0, 1], &[[0, 0]]);
        assert!(message(Vec::new(), vec![writes()]).contains("0 types of vertices"));
        assert!(message(vertices(), Vec::new()).contains("0 types of edges"));
        assert!(message(vertices(), vec![writes(), writes()]).contains("two types of edges"));
        let mut twice = vertices();
        twice[1].name = "author".into();
        assert!(message(twice, vec![writes()]).contains("two types of vertices are called author"));
        let far = EdgeType {
            source: 4,
            ..writes()
        };
        assert!(message(vertices(), vec![far]).contains("an end of type 4"));
        let swapped = EdgeType {
            source: 1,
            destination: 0,
            ..writes()
        };
        assert!(message(vertices(), vec![swapped]).contains("destinations and sources"));
        let odd = EdgeType {
            name: "a.b".into(),
            ..writes()
        };
        assert!(message(vertices(), vec![odd]).contains("'.' is no part of a name"));
        let rows = Features::dense(1, vec![0.0; 4]).unwrap();
        let refused = VertexType::new("venue", 5, Some(rows)).unwrap_err();
        assert!(
            refused.to_string().starts_with("features of venue"),
            "{refused}"
        );
    }
}
