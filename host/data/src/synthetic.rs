//! A labelled graph that needs no file: one that plain half-precision sums cannot train on.

use halfgnn_contract::rng;
use halfgnn_graph::parallel;

use super::{DataError, DataProblem, Dataset, Features, Origin, Preparation, SplitRule, Targets};
use halfgnn_graph::generate::{BlockModel, below, draw, stream};

/// A [`BlockModel`] with features that say little about one vertex's class and much about its neighbourhood's.
///
/// Feature f of vertex v is `scale · (offset + signal · s(class of v, f) + noise)`. s is 1 or −1 at random, fixed for
/// each class. The noise has mean 0 and deviation 1 (a sum of eight uniform numbers, in integers). Neighbours of one
/// class share their signal while their noise averages out, so aggregation turns a poor guess into a good one. Scale
/// and offset are those of features that were not normalised: they make a hub's sum pass 65,504, the largest half. The
/// offset does not average out. Without the scale, a sum of small numbers stops growing before it gets there.
#[derive(Debug, Clone, PartialEq)]
pub struct Synthetic {
    /// The graph and the classes.
    pub graph: BlockModel,
    /// The number of features of a vertex; at least 1.
    pub features: usize,
    /// How far a class moves each feature, in deviations of the noise.
    pub signal: f32,
    /// The mean of every feature over all classes, in deviations of the noise.
    pub offset: f32,
    /// The deviation of the noise.
    pub scale: f32,
    /// The vertices of each class to train on.
    pub train_per_class: usize,
    /// The vertices of each class to validate on; the rest is for testing.
    pub val_per_class: usize,
}

impl Default for Synthetic {
    /// 64 features, 100 training and 200 validation vertices a class, on the default [`BlockModel`].
    fn default() -> Self {
        Self {
            graph: BlockModel::default(),
            features: 64,
            signal: 0.2,
            offset: 0.15,
            scale: 32.0,
            train_per_class: 100,
            val_per_class: 200,
        }
    }
}

impl Synthetic {
    /// The dataset of `seed`, the same on every machine.
    ///
    /// # Errors
    /// [`DataProblem::Graph`] where the graph cannot be made, [`DataProblem::Shape`] without features,
    /// [`DataProblem::Value`] where signal or offset are not finite, [`DataProblem::TooLarge`].
    pub fn generate(&self, seed: u64) -> Result<Dataset, DataError> {
        const NAME: &str = "synthetic";
        let refuse = |problem| DataError::new(NAME, problem);
        let (graph, labels) = self
            .graph
            .generate(seed)
            .map_err(|error| refuse(DataProblem::graph("block model", error)))?;
        let features = ClassFeatures {
            features: self.features,
            signal: self.signal,
            offset: self.offset,
            scale: self.scale,
            label_noise: 0.0,
        };
        let features = features.generate(&labels, seed).map_err(refuse)?;
        let rule = SplitRule::PerClass {
            train: self.train_per_class,
            val: self.val_per_class,
        };
        let labels = Targets::from(labels);
        let splits = rule.split(&labels, seed).map_err(refuse)?;
        let mut dataset = Dataset::new(NAME, graph, features, labels, splits)?;
        dataset.preparations = vec![Preparation::split(rule, seed, Origin::Recipe)];
        Ok(dataset)
    }
}

/// Features that say little about one vertex's class and much about its neighbourhood's; [`Synthetic`] describes them.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct ClassFeatures {
    pub features: usize,
    pub signal: f32,
    pub offset: f32,
    pub scale: f32,
    /// The share of vertices whose label is another than their class: no model can be right about those.
    pub label_noise: f64,
}

impl Default for ClassFeatures {
    fn default() -> Self {
        Self {
            features: 64,
            signal: 0.2,
            offset: 0.15,
            scale: 32.0,
            label_noise: 0.0,
        }
    }
}

impl ClassFeatures {
    /// The features of vertices of these classes.
    pub fn generate(&self, classes: &[u32], seed: u64) -> Result<Features, DataProblem> {
        let too_large = || DataProblem::TooLarge {
            what: "features",
            rows: classes.len() as u64,
            columns: self.features as u64,
        };
        let len = classes
            .len()
            .checked_mul(self.features)
            .ok_or_else(too_large)?;
        let mut values = Vec::new();
        values.try_reserve_exact(len).map_err(|_| too_large())?;
        values.resize(len, 0.0);

        let (signs, noise) = (
            rng::key(seed, stream::CLASSES),
            rng::key(seed, stream::FEATURES),
        );
        let rows = (parallel::chunks_mut(&mut values, self.features), classes);
        parallel::for_each(rows, |vertex, (row, &class)| {
            for (feature, value) in row.iter_mut().enumerate() {
                let [sign, ..] = draw(signs, class.into(), feature as u32);
                let signal = if sign & 1 == 0 {
                    self.signal
                } else {
                    -self.signal
                };
                let noise = unit_noise(draw(noise, vertex as u64, feature as u32));
                *value = self.scale * (self.offset + signal + noise);
            }
        });
        Features::dense(self.features, values)
    }

    /// The labels of vertices of these classes: the class, but for a few, which get any label.
    pub fn labels(&self, mut classes: Vec<u32>, seed: u64) -> Vec<u32> {
        let limit = (self.label_noise * 4_294_967_296.0) as u64;
        if limit > 0 {
            let count = classes.iter().max().map_or(0, |&last| u64::from(last) + 1);
            let key = rng::key(seed, stream::LABELS);
            parallel::for_each(classes.as_mut_slice(), |vertex, class| {
                let [is_noise, high, low, _] = draw(key, vertex as u64, 0);
                if u64::from(is_noise) < limit {
                    *class = below(count, high, low) as u32;
                }
            });
        }
        classes
    }
}

/// A number of mean 0 and deviation 1 from 128 random bits: the sum of eight uniform 16-bit numbers, close to normal.
fn unit_noise(words: [u32; 4]) -> f32 {
    /// The deviation of such a sum: 2¹⁶·√(8/12).
    const DEVIATION: f32 = 53_509.9;
    let sum: u32 = words
        .iter()
        .map(|word| (word >> 16) + (word & 0xffff))
        .sum();
    // Below 2²⁴, so exact.
    (sum as f32 - 4.0 * 65_535.0) / DEVIATION
}

#[cfg(test)]
mod tests {
    use super::*;
    use halfgnn_graph::Graph;

    /// The accuracy of giving each test vertex the class whose mean training row is nearest.
    fn nearest_mean(dataset: &Dataset, rows: &[Vec<f32>]) -> f64 {
        let labels = dataset.class_labels().unwrap();
        let mut means = vec![vec![0.0_f32; dataset.feature_len()]; dataset.outputs];
        for &vertex in &dataset.train {
            let mean = &mut means[labels[vertex as usize] as usize];
            mean.iter_mut()
                .zip(&rows[vertex as usize])
                .for_each(|(mean, value)| *mean += value / 100.0);
        }
        let distance = |row: &[f32], mean: &[f32]| {
            row.iter()
                .zip(mean)
                .map(|(a, b)| (a - b) * (a - b))
                .sum::<f32>()
        };
        let right = dataset.test.iter().filter(|&&vertex| {
            let row = &rows[vertex as usize];
            let nearest = means
                .iter()
                .map(|mean| distance(row, mean))
                .enumerate()
                .min_by(|a, b| a.1.total_cmp(&b.1));
            nearest.is_some_and(|(class, _)| class == labels[vertex as usize] as usize)
        });
        right.count() as f64 / dataset.test.len() as f64
    }

    /// The mean over each vertex and its neighbours.
    fn smoothed(graph: &Graph, rows: &[Vec<f32>]) -> Vec<Vec<f32>> {
        let mean = |vertex: usize| {
            let neighbours = graph.csr().row(vertex);
            let mut mean = rows[vertex].clone();
            for &other in neighbours {
                mean.iter_mut()
                    .zip(&rows[other as usize])
                    .for_each(|(sum, value)| *sum += value);
            }
            mean.iter_mut()
                .for_each(|sum| *sum /= (neighbours.len() + 1) as f32);
            mean
        };
        parallel::map(0..graph.vertices(), |vertex, _| mean(vertex))
    }

    #[test]
    fn labels_are_learned_with_the_graph_and_not_without() {
        let dataset = Dataset::synthetic().unwrap();
        assert_eq!(
            (dataset.outputs, dataset.train.len(), dataset.val.len()),
            (8, 800, 1600)
        );
        let dense = dataset.features.to_dense().unwrap();
        let rows: Vec<_> = dense
            .chunks(dataset.feature_len())
            .map(<[f32]>::to_vec)
            .collect();
        let alone = nearest_mean(&dataset, &rows);
        let once = smoothed(&dataset.graph, &rows);
        let with_graph = nearest_mean(&dataset, &smoothed(&dataset.graph, &once));
        println!(
            "accuracy of the features alone {alone:.3}, averaged over the graph twice {with_graph:.3}"
        );
        assert!(alone < 0.55, "features alone reach {alone}");
        assert!(with_graph > 0.9, "with the graph only {with_graph}");
    }

    #[test]
    fn a_hubs_sum_passes_half() {
        let dataset = Dataset::synthetic().unwrap();
        let (vertex, degree) = (0..)
            .zip(dataset.graph.in_degrees())
            .max_by_key(|&(_, degree)| degree)
            .unwrap();
        assert_eq!(degree, 24_000);
        let mut sums = vec![0.0_f64; dataset.feature_len()];
        for &other in dataset.graph.csr().row(vertex) {
            let add = |feature: usize, value: f32| sums[feature] += f64::from(value);
            dataset.features.for_each(other as usize, add);
        }
        let past = sums.iter().filter(|sum| sum.abs() > 65_504.0).count();
        assert!(past > 40, "{past} of 64 sums pass half: {sums:?}");
    }

    #[test]
    fn noise_has_mean_zero_and_deviation_one() {
        let draws: Vec<f64> = (0..100_000)
            .map(|item| unit_noise(draw([1, 2], item, 0)).into())
            .collect();
        let mean = draws.iter().sum::<f64>() / 1e5;
        let variance = draws.iter().map(|x| (x - mean) * (x - mean)).sum::<f64>() / 1e5;
        assert!(
            mean.abs() < 0.015 && (variance - 1.0).abs() < 0.02,
            "mean {mean}, variance {variance}"
        );
        assert_eq!(unit_noise([0; 4]), -unit_noise([u32::MAX; 4]));
    }

    #[test]
    fn a_seed_fixes_the_dataset() {
        let spec = Synthetic {
            graph: BlockModel {
                vertices: 400,
                hub_degree: 300,
                ..Default::default()
            },
            ..Default::default()
        };
        let (one, again, other) = (
            spec.generate(1).unwrap(),
            spec.generate(1).unwrap(),
            spec.generate(2).unwrap(),
        );
        assert_eq!(
            (&one.graph, &one.features, &one.train),
            (&again.graph, &again.features, &again.train)
        );
        assert_ne!(one.graph, other.graph);
        assert_ne!(one.features, other.features);
    }

    #[test]
    fn what_cannot_be_made_is_refused() {
        let refused = |spec: Synthetic| spec.generate(0).unwrap_err().to_string();
        let small = BlockModel {
            vertices: 40,
            hub_degree: 20,
            ..Default::default()
        };
        let spec = || Synthetic {
            graph: small.clone(),
            ..Default::default()
        };
        assert!(
            refused(Synthetic {
                features: 0,
                ..spec()
            })
            .starts_with("synthetic: features: the shape is")
        );
        assert!(
            refused(Synthetic {
                features: usize::MAX,
                ..spec()
            })
            .contains("does not fit in memory")
        );
        assert!(
            refused(Synthetic {
                offset: f32::NAN,
                ..spec()
            })
            .contains("features[0] is NaN")
        );
        let graph = BlockModel {
            classes: 0,
            ..small.clone()
        };
        assert!(
            refused(Synthetic { graph, ..spec() })
                .starts_with("synthetic: block model: classes = 0")
        );
    }
}
