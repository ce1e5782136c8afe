//! A graph of the shape of ogbn-mag: papers, authors, institutions and fields of study.

use super::Recipe;
use crate::synthetic::ClassFeatures;
use crate::types::{EdgeType, Types, VertexType};
use crate::{DataError, DataProblem, Dataset, Origin, Preparation, SplitRule, Targets};
use halfgnn_contract::rng;
use halfgnn_graph::generate::{below, draw};
use halfgnn_graph::{Csr, parallel};

/// Vertices of each type of ogbn-mag (Hu et al., 2020).
const VERTICES: [(&str, f64); 4] = [
    ("paper", 736_389.0),
    ("author", 1_134_649.0),
    ("institution", 8_740.0),
    ("field_of_study", 59_965.0),
];

/// Source, name, destination and number of the edges of each type of ogbn-mag.
const EDGES: [(usize, &str, usize, f64); 4] = [
    (AUTHOR, "affiliated_with", INSTITUTION, 1_043_998.0),
    (AUTHOR, "writes", PAPER, 7_145_660.0),
    (PAPER, "cites", PAPER, 5_416_271.0),
    (PAPER, "has_topic", FIELD, 7_505_078.0),
];

const PAPER: usize = 0;
const AUTHOR: usize = 1;
const INSTITUTION: usize = 2;
const FIELD: usize = 3;

/// Venues of ogbn-mag's papers.
const VENUES: f64 = 349.0;

/// Features of a paper.
pub(super) const FEATURES: usize = 128;

/// The share of edges whose ends are of one class.
const WITHIN: f64 = 0.7;

/// How features of papers are made: they say less of a class than edges do.
const OF_PAPERS: ClassFeatures = ClassFeatures {
    features: FEATURES,
    signal: 0.1,
    offset: 0.0,
    scale: 1.0,
    label_noise: 0.05,
};

/// Random numbers of a recipe of this kind: of the classes of papers, and of each type of edges from here on.
const CLASSES_OF_PAPERS: u32 = 0x6d61_6763;
const ENDS: u32 = 0x6d61_6765;

/// Papers of each split of ogbn-mag, by year, as shares.
const SPLIT: SplitRule = SplitRule::Fractions {
    train: 0.855,
    val: 0.088,
};

/// Vertices of each type, edges of each type before those that occur twice are removed, and classes.
pub(super) struct Sizes {
    pub(super) vertices: [u64; 4],
    pub(super) edges: [u64; 4],
    pub(super) classes: u32,
}

impl Sizes {
    pub(super) fn of(scale: f64) -> Self {
        let scaled = |all: f64| (all * scale).round().max(1.0) as u64;
        Self {
            vertices: VERTICES.map(|(_, count)| scaled(count)),
            edges: EDGES.map(|(_, _, _, count)| scaled(count)),
            classes: (VENUES * scale.sqrt()).round().clamp(8.0, VENUES) as u32,
        }
    }
}

impl Recipe {
    /// Papers with features, and authors, institutions and fields without. Each vertex has a class. Most edges stay
    /// within one; destinations and authors follow a power law.
    pub(super) fn mag_like(&self, scale: f64, seed: u64) -> Result<Dataset, DataError> {
        let name = self.to_string();
        let refuse = |problem| DataError::new(&name, problem);
        let sizes = Sizes::of(scale);
        let classes = u64::from(sizes.classes);
        let key = rng::key(seed, CLASSES_OF_PAPERS);
        let of_papers = parallel::map(0..sizes.vertices[PAPER] as usize, |paper, _| {
            let [high, low, ..] = draw(key, paper as u64, 0);
            below(classes, high, low) as u32
        });
        let members = Members {
            papers: papers_of_classes(&of_papers, sizes.classes as usize),
            of_papers: &of_papers,
            counts: sizes.vertices,
            classes,
        };
        let mut edges = Vec::with_capacity(EDGES.len());
        for (number, (source, title, destination, _)) in EDGES.into_iter().enumerate() {
            let key = rng::key(seed, ENDS + number as u32);
            let sampled = members.edges((number, sizes.edges[number]), key);
            let shape = [destination, source].map(|of| sizes.vertices[of] as usize);
            let edges_of = matrix((shape[0], shape[1]), sampled);
            edges.push(EdgeType {
                source,
                name: title.into(),
                destination,
                edges: edges_of.map_err(refuse)?,
            });
        }
        let features = OF_PAPERS.generate(&of_papers, seed).map_err(refuse)?;
        let labels = Targets::from(OF_PAPERS.labels(of_papers, seed));
        let splits = SPLIT.split(&labels, seed).map_err(refuse)?;
        let mut features = Some(features);
        let vertices = VERTICES.iter().zip(sizes.vertices);
        let vertices = vertices.map(|((name, _), count)| {
            let features = features.take();
            VertexType::new(*name, count as usize, features)
        });
        let vertices = vertices.collect::<Result<_, _>>().map_err(refuse)?;
        let types = Types::new(vertices, edges).map_err(refuse)?;
        let mut dataset =
            Dataset::of_types(name.clone(), types, VERTICES[PAPER].0, labels, splits)?;
        let split = Preparation::split(SPLIT, seed, Origin::Recipe);
        dataset.preparations = vec![self.source(seed), split];
        Ok(dataset)
    }
}

/// Which vertices are of which class: papers at random, others round-robin.
struct Members<'a> {
    papers: Vec<Vec<u32>>,
    of_papers: &'a [u32],
    counts: [u64; 4],
    classes: u64,
}

impl Members<'_> {
    /// Edges of a type as (destination, source) in no order; some occur several times.
    fn edges(&self, (number, count): (usize, u64), key: [u32; 2]) -> Vec<u64> {
        let (source, _, destination, _) = EDGES[number];
        // The end of which each vertex has about as many edges; the other one is taken by a power law.
        let (even, skewed) = match number {
            1 => (destination, source),
            _ => (source, destination),
        };
        let within = (WITHIN * 4_294_967_296.0) as u64;
        parallel::map(0..count as usize, |edge, _| {
            let [a, b, c, d] = draw(key, edge as u64, 0);
            let [e, f, ..] = draw(key, edge as u64, 1);
            let first = below(self.counts[even], a, b);
            let class = match u64::from(c) < within {
                true => self.class(even, first),
                false => below(self.classes, d, c),
            };
            // The square of a uniform number: half of all edges are those of a quarter of the vertices.
            let uniform = (f64::from(e) + f64::from(f) / 4_294_967_296.0) / 4_294_967_296.0;
            let second = self.member(skewed, class, uniform * uniform);
            let (row, column) = match even == destination {
                true => (first, second),
                false => (second, first),
            };
            row << 32 | column
        })
    }

    fn class(&self, of: usize, vertex: u64) -> u64 {
        match of {
            PAPER => self.of_papers[vertex as usize].into(),
            _ => vertex % self.classes,
        }
    }

    /// A vertex of a class, at this share of those of its class; of a class without one any vertex.
    fn member(&self, of: usize, class: u64, at: f64) -> u64 {
        let all = self.counts[of];
        if of == PAPER {
            let papers = &self.papers[class as usize];
            let place = (at * papers.len() as f64) as usize;
            return papers
                .get(place)
                .map_or(class % all, |paper| u64::from(*paper));
        }
        if class >= all {
            return class % all;
        }
        let members = (all - class).div_ceil(self.classes);
        let place = ((at * members as f64) as u64).min(members - 1);
        class + place * self.classes
    }
}

fn papers_of_classes(of_papers: &[u32], classes: usize) -> Vec<Vec<u32>> {
    let mut papers = vec![Vec::new(); classes];
    for (paper, class) in of_papers.iter().enumerate() {
        papers[*class as usize].push(paper as u32);
    }
    papers
}

/// The edges, each once.
fn matrix(shape: (usize, usize), mut edges: Vec<u64>) -> Result<Csr, DataProblem> {
    edges.sort_unstable();
    edges.dedup();
    let (rows, columns): (Vec<u32>, Vec<u32>) = edges
        .iter()
        .map(|edge| ((edge >> 32) as u32, *edge as u32))
        .unzip();
    Csr::rectangular_from_edges(shape, &rows, &columns)
        .map_err(|error| DataProblem::graph("edges", error))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn dataset(seed: u64) -> Dataset {
        let recipe: Recipe = "mag-like:0.005".parse().unwrap();
        recipe.dataset_of_types(seed).unwrap()
    }

    #[test]
    fn the_shape_is_that_of_ogbn_mag() {
        let dataset = dataset(1);
        let types = dataset.types.as_ref().unwrap();
        let counts: Vec<_> = types.vertices().iter().map(|of| of.vertices).collect();
        assert_eq!(counts, [5673, 300, 44, 3682]);
        assert_eq!((dataset.feature_len(), dataset.outputs), (FEATURES, 25));
        let titles: Vec<_> = types.edges().iter().map(|of| types.title(of)).collect();
        assert_eq!(
            titles,
            [
                "author affiliated_with institution",
                "paper cites paper",
                "paper has_topic field_of_study",
                "author writes paper"
            ]
        );
        for of in types.edges() {
            let count = EDGES
                .iter()
                .find(|it| it.1 == of.name)
                .map_or(0.0, |it| it.3);
            // Some are sampled twice.
            let (found, sampled) = (of.edges.edges() as f64, count * 0.005);
            assert!(
                found <= sampled && found > 0.75 * sampled,
                "{}: {found} of {sampled}",
                of.name
            );
            assert_eq!(of.edges.repeated_edges(), 0);
        }
        let writes = &types.edges()[3].edges;
        let papers = writes.column_degrees();
        let mean = writes.edges() as f64 / papers.len() as f64;
        let most = papers.iter().max().copied().unwrap_or(0);
        assert!(
            f64::from(most) > 8.0 * mean,
            "{most} papers of an author, {mean} of the mean one"
        );
        assert_eq!(
            (0..3)
                .filter(|of| dataset.features_of_type(*of).is_some())
                .count(),
            0
        );
    }

    #[test]
    fn a_seed_fixes_it() {
        let [one, again, other] = [3, 3, 4].map(dataset);
        assert_eq!(one.types, again.types);
        assert_eq!(one.features, again.features);
        assert_ne!(one.types, other.types);
    }

    #[test]
    fn relations_carry_the_labels_better_than_features_do() {
        let dataset = dataset(2);
        let types = dataset.types.as_ref().unwrap();
        let labels = dataset.class_labels().unwrap();
        // The class that most papers have which a paper cites.
        let cites = types.edges()[1].edges.transposed();
        let mut right = (0, 0);
        for (paper, label) in labels
            .iter()
            .enumerate()
            .filter(|(paper, _)| cites.row(*paper).len() > 3)
        {
            let mut votes = vec![0; dataset.outputs];
            cites
                .row(paper)
                .iter()
                .for_each(|other| votes[labels[*other as usize] as usize] += 1);
            let most = votes.iter().max().copied().unwrap_or(0);
            right.0 += usize::from(votes[*label as usize] == most);
            right.1 += 1;
        }
        let by_edges = right.0 as f64 / right.1 as f64;
        // The class whose mean row of features is nearest.
        let rows = dataset.features.to_dense().unwrap();
        let row = |paper: usize| &rows[paper * FEATURES..(paper + 1) * FEATURES];
        let mut means = vec![[0.0_f32; FEATURES]; dataset.outputs];
        let mut counts = vec![0.0_f32; dataset.outputs];
        for &paper in &dataset.train {
            let label = labels[paper as usize] as usize;
            counts[label] += 1.0;
            let sums = means[label].iter_mut().zip(row(paper as usize));
            sums.for_each(|(sum, value)| *sum += value);
        }
        let distance = |paper: usize, class: usize| -> f32 {
            let mean = means[class].iter().map(|sum| sum / counts[class]);
            mean.zip(row(paper)).map(|(a, b)| (a - b).powi(2)).sum()
        };
        let nearest = |paper: usize| {
            let classes = 0..dataset.outputs;
            classes.min_by(|a, b| distance(paper, *a).total_cmp(&distance(paper, *b)))
        };
        let test = dataset.test.iter().map(|paper| *paper as usize);
        let right = test.filter(|paper| nearest(*paper) == Some(labels[*paper] as usize));
        let by_features = right.count() as f64 / dataset.test.len() as f64;
        println!("by edges {by_edges:.2}, by features {by_features:.2}");
        assert!(by_edges > 0.7, "{by_edges}");
        assert!((0.1..0.6).contains(&by_features), "{by_features}");
    }

    #[test]
    fn who_knows_one_type_refuses_it() {
        let recipe: Recipe = "mag-like:0.001".parse().unwrap();
        for refused in [recipe.dataset(0).unwrap_err(), recipe.graph(0).unwrap_err()] {
            assert!(refused.to_string().contains("several types"), "{refused}");
        }
    }
}
