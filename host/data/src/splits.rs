//! Which vertices are trained on, validated on and tested on.

use halfgnn_contract::rng;

use super::error::DataProblem;
use super::{Targets, UNLABELLED};
use halfgnn_graph::generate::{shuffled, stream};

/// Three lists of vertices that share none. A vertex may be in no list.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Splits {
    /// The vertices whose labels the model learns from.
    pub train: Vec<u32>,
    /// The vertices that choose the epoch.
    pub val: Vec<u32>,
    /// The vertices that measure how good the model is.
    pub test: Vec<u32>,
}

/// How labelled vertices are split by chance.
///
/// As text: `per-class:20,30`, `public:20,500,1000`, `fractions:0.6,0.2`, `fold:3` of ten, `fold:3,5`.
#[derive(Debug, Clone, Copy, PartialEq)]
#[non_exhaustive]
pub enum SplitRule {
    /// [`Splits::per_class`]: a number of each class to train and to validate on, the rest to test on.
    PerClass {
        /// Vertices of each class to train on.
        train: usize,
        /// Vertices of each class to validate on.
        val: usize,
    },
    /// A number of each class to train on, and a number of all classes together to validate and to test on; the rest is
    /// in no split. With 20, 500 and 1,000 it resembles Planetoid's public splits of Cora, Citeseer and PubMed (Yang et
    /// al., 2016).
    Public {
        /// Vertices of each class to train on.
        train: usize,
        /// Vertices to validate on.
        val: usize,
        /// Vertices to test on.
        test: usize,
    },
    /// Shares of the labelled vertices, whatever their class; the rest to test on.
    Fractions {
        /// The share to train on.
        train: f64,
        /// The share to validate on.
        val: f64,
    },
    /// Cross-validation: one of several folds to test on, the next (after the last the first) to validate on, the
    /// others to train on. Folds are of equal size, overall and in each class. GIN's paper uses ten stratified folds of
    /// whole graphs (Xu et al., 2019).
    Fold {
        /// Which is tested on, from 0.
        fold: usize,
        /// How many there are, from 3 on.
        of: usize,
    },
}

impl Default for SplitRule {
    /// 20 of each class to train on, 30 to validate on, the rest to test on (Shchur et al., 2018).
    fn default() -> Self {
        Self::PerClass { train: 20, val: 30 }
    }
}

impl SplitRule {
    /// The default rule of targets: the default of classes, and `fractions:0.6,0.2` where there are none.
    pub fn default_of(targets: &Targets) -> Self {
        match targets {
            Targets::Classes(_) => Self::default(),
            _ => Self::Fractions {
                train: 0.6,
                val: 0.2,
            },
        }
    }

    /// The default rule of many graphs: `fractions:0.8,0.1`.
    pub const fn default_of_graphs() -> Self {
        Self::Fractions {
            train: 0.8,
            val: 0.1,
        }
    }

    /// The splits of the vertices of `targets` by `seed`, the same on every machine. Vertices without a label are in
    /// none.
    ///
    /// # Errors
    /// [`DataProblem::NoClasses`] of a rule by class where targets are none.
    pub fn split(self, targets: &Targets, seed: u64) -> Result<Splits, DataProblem> {
        let order = || {
            shuffled(targets.vertices(), rng::key(seed, stream::SPLIT))
                .into_iter()
                .filter(|&vertex| targets.is_labelled(vertex as usize))
        };
        let classes = || {
            targets.classes().ok_or(DataProblem::NoClasses {
                found: targets.description(),
            })
        };
        Ok(match self {
            Self::PerClass { train, val } => Splits::per_class(classes()?, train, val, seed),
            Self::Public { train, val, test } => {
                let splits = Splits::per_class(classes()?, train, 0, seed);
                let mut rest = order().filter(|vertex| splits.train.binary_search(vertex).is_err());
                let mut take = |count| {
                    let mut list: Vec<u32> = rest.by_ref().take(count).collect();
                    list.sort_unstable();
                    list
                };
                let (val, test) = (take(val), take(test));
                Splits {
                    val,
                    test,
                    ..splits
                }
            }
            Self::Fractions { train, val } => {
                let order: Vec<u32> = order().collect();
                let share = |fraction: f64| (fraction * order.len() as f64).round() as usize;
                let train = share(train).min(order.len());
                let val = share(val).min(order.len() - train);
                let sorted = |list: &[u32]| {
                    let mut list = list.to_vec();
                    list.sort_unstable();
                    list
                };
                Splits {
                    train: sorted(&order[..train]),
                    val: sorted(&order[train..train + val]),
                    test: sorted(&order[train + val..]),
                }
            }
            Self::Fold { fold, of } => {
                let mut order: Vec<u32> = order().collect();
                if let Some(classes) = targets.classes() {
                    // A stable sort: within a class it stays random.
                    order.sort_by_key(|&vertex| classes[vertex as usize]);
                }
                let mut splits = Splits::default();
                for (at, vertex) in order.into_iter().enumerate() {
                    let list = match at % of {
                        part if part == fold => &mut splits.test,
                        part if part == (fold + 1) % of => &mut splits.val,
                        _ => &mut splits.train,
                    };
                    list.push(vertex);
                }
                splits.sort();
                splits
            }
        })
    }
}

impl std::fmt::Display for SplitRule {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::PerClass { train, val } => write!(f, "per-class:{train},{val}"),
            Self::Public { train, val, test } => write!(f, "public:{train},{val},{test}"),
            Self::Fractions { train, val } => write!(f, "fractions:{train},{val}"),
            Self::Fold { fold, of } => write!(f, "fold:{fold},{of}"),
        }
    }
}

impl std::str::FromStr for SplitRule {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        fn numbers<T: std::str::FromStr>(text: &str) -> Option<Vec<T>> {
            text.split(',')
                .map(|word| word.trim().parse().ok())
                .collect()
        }
        let (rule, values) = text.split_once(':').unwrap_or((text, ""));
        let read = match rule {
            "per-class" => numbers(values).and_then(|numbers| match numbers[..] {
                [train, val] => Some(Self::PerClass { train, val }),
                _ => None,
            }),
            "public" => numbers(values).and_then(|numbers| match numbers[..] {
                [train, val, test] => Some(Self::Public { train, val, test }),
                _ => None,
            }),
            "fractions" => numbers::<f64>(values).and_then(|numbers| match numbers[..] {
                [train, val] if train >= 0.0 && val >= 0.0 && train + val <= 1.0 => {
                    Some(Self::Fractions { train, val })
                }
                _ => None,
            }),
            "fold" => numbers(values).and_then(|numbers| match numbers[..] {
                [fold] if fold < 10 => Some(Self::Fold { fold, of: 10 }),
                [fold, of] if fold < of && of > 2 => Some(Self::Fold { fold, of }),
                _ => None,
            }),
            _ => None,
        };
        read.ok_or_else(|| {
            "a split is per-class:TRAIN,VAL or public:TRAIN,VAL,TEST (counts), fractions:TRAIN,VAL (from 0 to 1) or fold:K of 10 or fold:K,PARTS (K from 0, 3 parts or more)".into()
        })
    }
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
        splits.sort();
        splits
    }

    /// The splits without members that have no known label or value, which OGB's masked losses cannot use, and how many
    /// these are. A member without a class stays, and [`check`](Self::check) refuses it: only a mistake puts it into a
    /// split.
    pub fn labelled(mut self, targets: &Targets) -> (Self, usize) {
        let mut left_out = 0;
        if targets.classes().is_none() {
            for list in [&mut self.train, &mut self.val, &mut self.test] {
                let before = list.len();
                // What is no member is refused later.
                let stays = |at: &u32| {
                    targets.vertices() <= *at as usize || targets.is_labelled(*at as usize)
                };
                list.retain(stays);
                left_out += before - list.len();
            }
        }
        (self, left_out)
    }

    fn sort(&mut self) {
        for list in [&mut self.train, &mut self.val, &mut self.test] {
            list.sort_unstable();
        }
    }

    /// That every vertex of the lists exists, has a label and is in one list, once.
    ///
    /// # Errors
    /// [`DataProblem::Value`] and [`DataProblem::Overlap`].
    pub fn check(&self, targets: &Targets) -> Result<(), DataProblem> {
        let lists = [
            ("train", &self.train),
            ("val", &self.val),
            ("test", &self.test),
        ];
        let mut owner: Vec<Option<&'static str>> = vec![None; targets.vertices()];
        for (name, list) in lists {
            for (at, &vertex) in list.iter().enumerate() {
                let Some(owner) = owner.get_mut(vertex as usize) else {
                    let why = format!("but there are {} vertices", targets.vertices());
                    return Err(DataProblem::value(name, at as u64, vertex, why));
                };
                if !targets.is_labelled(vertex as usize) {
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
    use super::super::Values;
    use super::*;

    #[test]
    fn a_split_by_class_takes_what_it_says() {
        let mut labels: Vec<u32> = (0..300).map(|vertex| vertex % 3).collect();
        labels.extend([3, 3, 3, UNLABELLED]);
        let splits = Splits::per_class(&labels, 2, 30, 9);
        splits.check(&labels.clone().into()).unwrap();
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
    fn rules_split_as_they_say() {
        let mut labels: Vec<u32> = (0..2000).map(|vertex| vertex % 4).collect();
        labels[7] = UNLABELLED;
        let labels = Targets::from(labels);
        let sizes = |rule: &str| {
            let rule: SplitRule = rule.parse().unwrap();
            assert_eq!(rule.to_string().parse(), Ok(rule));
            let splits = rule.split(&labels, 3).unwrap();
            splits.check(&labels).unwrap();
            assert_eq!(splits, rule.split(&labels, 3).unwrap());
            assert_ne!(splits, rule.split(&labels, 4).unwrap());
            [splits.train.len(), splits.val.len(), splits.test.len()]
        };
        assert_eq!(sizes("per-class:20,30"), [80, 120, 1799]);
        assert_eq!(sizes("public:20,500,1000"), [80, 500, 1000]);
        assert_eq!(sizes("public:20,500,100000"), [80, 500, 1419]);
        assert_eq!(sizes("fractions:0.6,0.2"), [1199, 400, 400]);
        assert_eq!(sizes("fractions: 0.9, 0.5e-1"), [1799, 100, 100]);
        let folds: Vec<_> = (0..5)
            .map(|fold| SplitRule::Fold { fold, of: 5 }.split(&labels, 3).unwrap())
            .collect();
        let mut tested: Vec<u32> = folds.iter().flat_map(|fold| fold.test.clone()).collect();
        tested.sort_unstable();
        assert_eq!(tested, (0..2000).filter(|&v| v != 7).collect::<Vec<u32>>());
        assert_eq!(folds[0].val, folds[1].test);
        assert_eq!(folds[4].val, folds[0].test);
        for fold in &folds {
            let first = fold.test.iter().filter(|&&vertex| vertex % 4 == 0);
            assert_eq!(first.count(), 100);
        }
        assert_eq!(sizes("fold:2,5"), [1199, 400, 400]);
        assert_eq!("fold:9".parse(), Ok(SplitRule::Fold { fold: 9, of: 10 }));
        for text in [
            "fold:10",
            "fold:2,2",
            "fold:5,5",
            "",
            "per-class",
            "per-class:1",
            "public:1,2",
            "fractions:0.8,0.3",
            "fractions:nan,0",
            "half:1,2",
            "per-class:-1,2",
        ] {
            assert!(
                text.parse::<SplitRule>()
                    .unwrap_err()
                    .starts_with("a split is"),
                "{text}"
            );
        }
    }

    #[test]
    fn only_classes_are_split_by_class() {
        let values = Values::new(1, (0..10).map(|x| x as f32).collect()).unwrap();
        let targets = Targets::from(values);
        let splits = SplitRule::default_of(&targets).split(&targets, 0).unwrap();
        assert_eq!(
            [splits.train.len(), splits.val.len(), splits.test.len()],
            [6, 2, 2]
        );
        for rule in ["per-class:1,1", "public:1,1,1"] {
            let rule: SplitRule = rule.parse().unwrap();
            let refused = rule.split(&targets, 0).unwrap_err().to_string();
            assert!(refused.starts_with("there are no classes to split by"));
        }
    }

    #[test]
    fn splits_are_checked() {
        let labels = Targets::from(vec![0, 1, 0, UNLABELLED]);
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
