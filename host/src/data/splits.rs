//! Which vertices are trained on, validated on and tested on.

use halfgnn_contract::rng;

use super::UNLABELLED;
use super::error::DataProblem;
use crate::graph::generate::{shuffled, stream};

/// Three lists of vertices that share none. A vertex may be in no list.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Splits {
    /// The vertices whose labels the model learns from.
    pub train: Vec<u32>,
    /// The vertices that choose the epoch.
    pub val: Vec<u32>,
    /// The vertices that tell how good the model is.
    pub test: Vec<u32>,
}

impl Splits {
    /// `train` vertices of each class to train on, `val` of each to validate on, and all others that are labelled to
    /// test on, chosen by `seed`: Shchur et al., "Pitfalls of graph neural network evaluation", 2018, with 20 and 30.
    /// A class that is too small gives what it has, to training first.
    pub fn per_class(labels: &[u32], train: usize, val: usize, seed: u64) -> Self {
        let mut splits = Self::default();
        let mut taken = std::collections::HashMap::<u32, usize>::new();
        for vertex in shuffled(labels.len(), rng::key(seed, stream::SPLIT)) {
            let label = labels[vertex as usize];
            if label == UNLABELLED {
                continue;
            }
            let taken = taken.entry(label).or_default();
            let list = match *taken {
                before if before < train => &mut splits.train,
                before if before < train.saturating_add(val) => &mut splits.val,
                _ => &mut splits.test,
            };
            *taken += 1;
            list.push(vertex);
        }
        for list in [&mut splits.train, &mut splits.val, &mut splits.test] {
            list.sort_unstable();
        }
        splits
    }

    /// That every vertex of the lists exists, has a label and is in one list, once.
    ///
    /// # Errors
    /// [`DataProblem::Value`] and [`DataProblem::Overlap`].
    pub fn check(&self, labels: &[u32]) -> Result<(), DataProblem> {
        let lists = [
            ("train", &self.train),
            ("val", &self.val),
            ("test", &self.test),
        ];
        let mut owner: Vec<Option<&'static str>> = vec![None; labels.len()];
        for (name, list) in lists {
            for (at, &vertex) in list.iter().enumerate() {
                let Some(owner) = owner.get_mut(vertex as usize) else {
                    let why = format!("but there are {} vertices", labels.len());
                    return Err(DataProblem::value(name, at as u64, vertex, why));
                };
                if labels[vertex as usize] == UNLABELLED {
                    return Err(DataProblem::value(
                        name,
                        at as u64,
                        vertex,
                        "a vertex without a label",
                    ));
                }
                if let Some(first) = owner.replace(name) {
                    return Err(DataProblem::Overlap {
                        vertex,
                        first,
                        second: name,
                    });
                }
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_split_by_class_takes_what_it_says() {
        let mut labels: Vec<u32> = (0..300).map(|vertex| vertex % 3).collect();
        labels.extend([3, 3, 3, UNLABELLED]);
        let splits = Splits::per_class(&labels, 2, 30, 9);
        splits.check(&labels).unwrap();
        let of = |list: &[u32]| {
            let count = |class| {
                list.iter()
                    .filter(|&&vertex| labels[vertex as usize] == class)
                    .count()
            };
            [0, 1, 2, 3].map(count)
        };
        assert_eq!(
            [of(&splits.train), of(&splits.val), of(&splits.test)],
            [[2; 4], [30, 30, 30, 1], [68, 68, 68, 0]]
        );
        assert_eq!(splits, Splits::per_class(&labels, 2, 30, 9));
        assert_ne!(splits, Splits::per_class(&labels, 2, 30, 10));
    }

    #[test]
    fn splits_are_checked() {
        let labels = [0, 1, 0, UNLABELLED];
        let message = |train: &[u32], val: &[u32], test: &[u32]| {
            let splits = Splits {
                train: train.to_vec(),
                val: val.to_vec(),
                test: test.to_vec(),
            };
            splits.check(&labels).unwrap_err().to_string()
        };
        assert_eq!(
            message(&[0], &[1, 4], &[]),
            "val[1] is 4, but there are 4 vertices"
        );
        assert_eq!(
            message(&[0], &[], &[3]),
            "test[0] is 3, a vertex without a label"
        );
        assert!(
            message(&[0, 1], &[2], &[1]).starts_with("vertex 1 is in train and again in test;")
        );
        assert!(message(&[0, 0], &[], &[]).starts_with("vertex 0 is in train and again in train;"));
        Splits::default().check(&labels).unwrap();
    }
}
