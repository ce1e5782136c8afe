//! Options that say what a model is to predict, what is made small, and what chooses the epoch.

use crate::failure::Failure;
use clap::{Args, ValueEnum};
use halfgnn::data::{Dataset, LabelSets, Origin, Preparation, Targets, UNLABELLED, Values};
use halfgnn::metrics::Metric;
use halfgnn::nn::LinkDecoder;
use halfgnn::train::{Few, HeldOut, Learning, LinkSplit, Loss, TrainConfig};

/// What a model is to predict, and how it is measured.
#[derive(Args)]
pub struct TaskArgs {
    /// What to predict of each vertex, or of pairs of them; auto takes what the targets of the dataset are
    #[arg(long, value_enum, default_value_t = TaskName::Auto)]
    pub task: TaskName,
    /// What is made small, of a regression [default: mse]
    #[arg(long, value_enum)]
    pub loss: Option<LossName>,
    /// What vertices of each class count in the loss: numbers by class, or balanced, so that all classes count the same
    #[arg(long, value_name = "balanced|W0,W1,…", value_parser = weights)]
    pub class_weights: Option<Weights>,
    /// What a label that a vertex has counts, relative to one that it has not: numbers by label, or balanced
    #[arg(long, value_name = "balanced|W0,W1,…", value_parser = weights)]
    pub pos_weight: Option<Weights>,
    /// The metric whose value on the validation vertices chooses the best epoch: accuracy, micro-f1, macro-f1, roc-auc,
    /// average-precision, mrr, hits@K, mae, rmse or r2 [default: accuracy; multi-label micro-f1, regression mae, link
    /// roc-auc]
    #[arg(long, value_name = "NAME")]
    pub metric: Option<Metric>,
    /// Other metrics to show, of the same names
    #[arg(long, value_name = "NAME,…", value_delimiter = ',')]
    pub metrics: Vec<Metric>,
    /// Learn from the subgraph of the training vertices alone; the whole graph is seen in evaluation only
    #[arg(long)]
    pub inductive: bool,
    /// How the score of a pair is made of its two embeddings, the mean of its two orders where they differ [default:
    /// dot]
    #[arg(long, value_enum)]
    pub decoder: Option<DecoderName>,
    /// Width of the embeddings that links are scored by [default: 16]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=65536))]
    pub embedding: Option<u32>,
    /// Shares of the edges that are held out to validate and to test links [default: 0.05,0.1]
    #[arg(long, value_name = "VAL,TEST", value_parser = shares)]
    pub held_out: Option<Shares>,
}

/// What to predict.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum TaskName {
    /// What the targets of the dataset are
    Auto,
    /// One class of each vertex
    SingleLabel,
    /// Any number of labels of each vertex
    MultiLabel,
    /// Numbers of each vertex
    Regression,
    /// Which pairs of vertices are edges, by embeddings of both
    Link,
}

/// How links are predicted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum DecoderName {
    /// Their dot product; nothing is learnt
    Dot,
    /// By a matrix between them, as wide as they are
    Bilinear,
    /// By a hidden layer of their width, a ReLU and a map to one number, of both side by side
    Mlp,
}

impl From<DecoderName> for LinkDecoder {
    fn from(name: DecoderName) -> Self {
        match name {
            DecoderName::Dot => Self::Dot,
            DecoderName::Bilinear => Self::Bilinear,
            DecoderName::Mlp => Self::Mlp,
        }
    }
}

impl TaskName {
    fn name(self) -> String {
        let value = self.to_possible_value();
        value.map_or_else(String::new, |value| value.get_name().to_owned())
    }

    /// What such targets are predicted by.
    fn of(targets: &Targets) -> Self {
        match targets {
            Targets::Labels(_) => Self::MultiLabel,
            Targets::Values(_) => Self::Regression,
            _ => Self::SingleLabel,
        }
    }
}

/// What is made small, of a regression.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum LossName {
    /// The mean squared error
    Mse,
    /// The mean absolute error
    Mae,
}

/// Weights of classes or labels.
#[derive(Clone, Debug, PartialEq)]
pub enum Weights {
    /// Such that all count the same.
    Balanced,
    /// These.
    Given(Vec<f32>),
}

fn weights(text: &str) -> Result<Weights, String> {
    if text == "balanced" {
        return Ok(Weights::Balanced);
    }
    let number = |part: &str| {
        part.trim()
            .parse()
            .ok()
            .filter(|x: &f32| x.is_finite() && *x >= 0.0)
    };
    let numbers: Option<Vec<f32>> = text.split(',').map(number).collect();
    let wanted = "it must be `balanced`, or numbers from 0 on with commas between them";
    numbers.map(Weights::Given).ok_or_else(|| wanted.into())
}

/// Shares of edges to validate and to test.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Shares(pub [f64; 2]);

fn shares(text: &str) -> Result<Shares, String> {
    let numbers: Option<Vec<f64>> = text
        .split(',')
        .map(|part| part.trim().parse().ok())
        .collect();
    match numbers.as_deref() {
        Some(&[validation, test])
            if validation >= 0.0 && test >= 0.0 && validation + test < 1.0 =>
        {
            Ok(Shares([validation, test]))
        }
        _ => Err(
            "it must be two shares from 0 on that add up to less than 1, such as 0.05,0.1".into(),
        ),
    }
}

/// What is trained, in the end.
#[derive(Clone, Debug)]
pub enum Goal {
    /// Targets of vertices.
    Vertices {
        /// What is made small.
        loss: Loss,
        /// Whether training sees the training vertices alone.
        inductive: bool,
    },
    /// Links.
    Links {
        /// Which.
        split: Box<LinkSplit>,
        /// Numbers of an embedding.
        width: usize,
    },
}

impl Goal {
    /// What memory is counted of, with the targets that are learnt from. Links have none.
    pub fn counting<'a>(&self, learning: Learning<'a>, dataset: &Dataset) -> Learning<'a> {
        match self {
            Self::Vertices { .. } => learning.of_targets(&dataset.targets),
            Self::Links { .. } => learning,
        }
    }
}

impl Default for Goal {
    fn default() -> Self {
        Self::Vertices {
            loss: Loss::CrossEntropy {
                class_weights: None,
            },
            inductive: false,
        }
    }
}

impl Goal {
    /// What is predicted: `classes`, `labels`, `values` or `links`.
    pub fn unit(&self, dataset: &Dataset) -> &'static str {
        match self {
            Self::Vertices { .. } => dataset.targets.unit(),
            Self::Links { .. } => "links",
        }
    }

    /// What is made small, in words.
    pub fn loss(&self) -> &'static str {
        match self {
            Self::Vertices { loss, .. } => loss.name(),
            Self::Links { .. } => "binary cross-entropy",
        }
    }

    /// The numbers that a model gives of a vertex.
    pub fn outputs(&self, dataset: &Dataset) -> usize {
        match self {
            Self::Vertices { .. } => dataset.outputs,
            Self::Links { width, .. } => *width,
        }
    }
}

/// Makes the targets of a dataset those that a model was trained on, by its loss.
pub fn take_targets_of(loss: &Loss, dataset: &mut Dataset) -> Result<(), Failure> {
    let task = match loss {
        Loss::BinaryCrossEntropy { .. } => TaskName::MultiLabel,
        Loss::SquaredError | Loss::AbsoluteError => TaskName::Regression,
        _ => TaskName::SingleLabel,
    };
    if task != TaskName::of(&dataset.targets) {
        has_numbers(dataset, task)?;
        dataset.targets = converted(&dataset.targets, task, &dataset.name)?;
        dataset.outputs = dataset.targets.outputs();
    }
    Ok(())
}

impl TaskArgs {
    /// Whether something was given that a run which goes on has of its own.
    pub fn is_given(&self) -> bool {
        self.task != TaskName::Auto
            || self.loss.is_some()
            || self.class_weights.is_some()
            || self.pos_weight.is_some()
            || self.metric.is_some()
            || !self.metrics.is_empty()
            || self.inductive
            || self.decoder.is_some()
            || self.embedding.is_some()
            || self.held_out.is_some()
    }

    /// How links are predicted, where they are.
    pub fn decoder(&self) -> LinkDecoder {
        self.decoder.map_or(LinkDecoder::Dot, LinkDecoder::from)
    }

    /// The metrics of a run.
    pub fn measure(&self, train: TrainConfig) -> Result<TrainConfig, Failure> {
        let mut others = self.metrics.clone();
        others.retain(|other| Some(*other) != self.metric);
        let others = Few::try_from(others);
        Ok(TrainConfig {
            metric: self.metric,
            others: others.map_err(|problem| Failure::Input(format!("--metrics: {problem}")))?,
            ..train
        })
    }

    /// Makes the targets of a dataset those of the task, and says what is trained.
    pub fn goal(&self, dataset: &mut Dataset, seed: u64) -> Result<Goal, Failure> {
        let found = TaskName::of(&dataset.targets);
        let task = match self.task {
            TaskName::Auto => found,
            given => given,
        };
        let of = |option: &str, wanted: TaskName| {
            Failure::Input(format!(
                "{option} is of --task {}, and this is {}; leave one of them out",
                wanted.name(),
                task.name()
            ))
        };
        let given = [
            ("--loss", self.loss.is_some(), TaskName::Regression),
            (
                "--class-weights",
                self.class_weights.is_some(),
                TaskName::SingleLabel,
            ),
            (
                "--pos-weight",
                self.pos_weight.is_some(),
                TaskName::MultiLabel,
            ),
            ("--decoder", self.decoder.is_some(), TaskName::Link),
            ("--embedding", self.embedding.is_some(), TaskName::Link),
            ("--held-out", self.held_out.is_some(), TaskName::Link),
        ];
        if let Some(&(option, _, wanted)) = given
            .iter()
            .find(|(_, given, wanted)| *given && *wanted != task)
        {
            return Err(of(option, wanted));
        }
        if let Some(graphs) = &dataset.graphs {
            let refuse = |reason: &str| {
                let graphs = graphs.graphs();
                Failure::Input(format!("{}: it is {graphs} graphs, {reason}", dataset.name))
            };
            if task == TaskName::Link {
                return Err(refuse("and links are told of one; leave --task link out"));
            }
            if self.inductive {
                return Err(refuse(
                    "whose edges stay within each, so that training on some is inductive by itself; leave --inductive out, and take --batch N to learn from the training graphs alone",
                ));
            }
        }
        if task == TaskName::Link {
            return self.links(dataset, seed);
        }
        if task != found {
            let before = dataset.targets.description();
            has_numbers(dataset, task)?;
            dataset.targets = converted(&dataset.targets, task, &dataset.name)?;
            dataset.outputs = dataset.targets.outputs();
            let mut what = format!("{before} taken as {}", dataset.targets.description());
            let vertices = 0..dataset.targets.vertices();
            let unknown = vertices.filter(|&vertex| !dataset.targets.is_labelled(vertex));
            match unknown.count() {
                0 => {}
                // Of whole numbers -1 is none; of others it is a value.
                count => what.push_str(&format!(
                    "; {count} of them are unknown (-1 of whole numbers, or missing), and in no split"
                )),
            }
            dataset
                .preparations
                .push(Preparation::new("labels", what, Origin::Option));
        }
        let (targets, outputs) = (&dataset.targets, dataset.outputs);
        let numbers = |weights: &Option<Weights>| match weights {
            None => None,
            Some(Weights::Given(numbers)) => Some(numbers.clone()),
            Some(Weights::Balanced) => Loss::balanced_weights(targets, outputs, &dataset.train),
        };
        let loss = match (task, self.loss) {
            (TaskName::MultiLabel, _) => Loss::BinaryCrossEntropy {
                positive_weights: numbers(&self.pos_weight),
            },
            (TaskName::Regression, Some(LossName::Mae)) => Loss::AbsoluteError,
            (TaskName::Regression, _) => Loss::SquaredError,
            _ => Loss::CrossEntropy {
                class_weights: numbers(&self.class_weights),
            },
        };
        if self.inductive {
            let what = "training sees the subgraph of the training vertices alone".to_owned();
            dataset
                .preparations
                .push(Preparation::new("edges", what, Origin::Option));
        }
        Ok(Goal::Vertices {
            loss,
            inductive: self.inductive,
        })
    }

    /// Holds edges of a dataset out.
    fn links(&self, dataset: &mut Dataset, seed: u64) -> Result<Goal, Failure> {
        if self.inductive {
            return Err(Failure::Input(
                "--inductive is of tasks whose vertices are split, and links split edges; leave it out".into(),
            ));
        }
        if dataset.edge_weights.is_some() {
            return Err(Failure::Input(format!(
                "the edges of {} have weights, and links are told without; add --ignore-edge-weights",
                dataset.name
            )));
        }
        let Shares(shares) = self.held_out.unwrap_or(Shares([0.05, 0.1]));
        let width = self.embedding.unwrap_or(16) as usize;
        hold_out(dataset, HeldOut { shares, seed }, width)
    }
}

/// Holds edges of a dataset out, whose links are predicted by embeddings of the given width.
pub fn hold_out(dataset: &mut Dataset, held_out: HeldOut, width: usize) -> Result<Goal, Failure> {
    if dataset.outline().is_some() {
        return Err(Failure::Input(format!(
            "{}: --task link is trained by one rank, and several read its parts; leave the ranks out",
            dataset.name
        )));
    }
    let split = LinkSplit::new(&dataset.graph, held_out)
        .map_err(|error| Failure::Input(format!("{}: {error}", dataset.name)))?;
    dataset.graph = split.graph.clone();
    // They are of the edges before, and the first lines say that they are not used.
    dataset.edge_features = None;
    let [train, validation, test] = [0, 1, 2].map(|of| split.edges[of].len());
    let what = format!(
        "{train} links to learn from, {validation} to validate, {test} to test, from seed {}",
        held_out.seed
    );
    dataset
        .preparations
        .push(Preparation::new("splits", what, Origin::Option));
    Ok(Goal::Links {
        split: Box::new(split),
        width,
    })
}

/// Refuses a regression on classes that have names: the number of a class is its place in the alphabet, and no value.
fn has_numbers(dataset: &Dataset, task: TaskName) -> Result<(), Failure> {
    match &dataset.class_names {
        Some(names) if task == TaskName::Regression => Err(Failure::Input(format!(
            "{}: --task regression learns numbers, and its labels are names, such as '{}'; write numbers, or leave --task out",
            dataset.name,
            names.first().map_or("", String::as_str)
        ))),
        _ => Ok(()),
    }
}

/// Targets as those of another task.
fn converted(targets: &Targets, task: TaskName, name: &str) -> Result<Targets, Failure> {
    let refuse = |why: &str| {
        Failure::Input(format!(
            "{name} has {}, and --task {} wants {why}; leave --task out",
            targets.description(),
            task.name()
        ))
    };
    match (targets, task) {
        (Targets::Classes(classes), TaskName::Regression) => {
            let value = |&class: &u32| match class {
                UNLABELLED => f32::NAN,
                class => class as f32,
            };
            let values = Values::new(1, classes.iter().map(value).collect());
            values.map(Targets::Values).map_err(|_| refuse("numbers"))
        }
        (Targets::Classes(classes), TaskName::MultiLabel) => {
            let columns = targets.outputs().max(1);
            let truths: Vec<Option<bool>> = classes
                .iter()
                .flat_map(|&class| {
                    (0..columns).map(move |column| {
                        (class != UNLABELLED).then_some(class as usize == column)
                    })
                })
                .collect();
            let labels = LabelSets::new(columns, truths.into_iter());
            labels
                .map(Targets::Labels)
                .map_err(|_| refuse("fewer classes"))
        }
        (Targets::Values(values), TaskName::MultiLabel) => {
            let truth = |&value: &f32| match value {
                value if value.is_nan() => Ok(None),
                0.0 => Ok(Some(false)),
                1.0 => Ok(Some(true)),
                _ => Err(refuse("zeros and ones")),
            };
            let truths = values
                .values()
                .iter()
                .map(truth)
                .collect::<Result<Vec<_>, _>>()?;
            let labels = LabelSets::new(values.columns(), truths.into_iter());
            labels
                .map(Targets::Labels)
                .map_err(|_| refuse("zeros and ones"))
        }
        (Targets::Values(values), TaskName::SingleLabel) if values.columns() == 1 => {
            let class = |&value: &f32| match value {
                value if value.is_nan() => Ok(UNLABELLED),
                value if value >= 0.0 && value.fract() == 0.0 && value < 65_536.0 => {
                    Ok(value as u32)
                }
                _ => Err(refuse("whole numbers from 0 on")),
            };
            let classes = values
                .values()
                .iter()
                .map(class)
                .collect::<Result<Vec<_>, _>>()?;
            Ok(Targets::Classes(classes))
        }
        (Targets::Labels(labels), TaskName::Regression) => {
            let columns = labels.columns();
            let values = (0..targets.vertices()).flat_map(|vertex| {
                (0..columns)
                    .map(move |column| labels.get(vertex, column).map_or(f32::NAN, f32::from))
            });
            let values = Values::new(columns, values.collect());
            values.map(Targets::Values).map_err(|_| refuse("numbers"))
        }
        _ => Err(refuse("one class of each vertex")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn weights_are_numbers_or_balanced() {
        assert_eq!(weights("balanced"), Ok(Weights::Balanced));
        assert_eq!(weights("1, 0,2.5"), Ok(Weights::Given(vec![1.0, 0.0, 2.5])));
        for wrong in ["", "1,", "-1", "nan", "inf,1", "Balanced"] {
            assert!(weights(wrong).is_err(), "{wrong}");
        }
        assert_eq!(shares("0.05,0.1"), Ok(Shares([0.05, 0.1])));
        for wrong in ["0.5", "0.5,0.5", "-0.1,0.2", "nan,0.1", "1,2,3"] {
            assert!(shares(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn targets_become_those_of_a_task_where_they_can() {
        let to = |targets: &Targets, task| converted(targets, task, "x");
        let classes = Targets::from(vec![1, UNLABELLED, 0]);
        let Ok(Targets::Values(values)) = to(&classes, TaskName::Regression) else {
            panic!("no values")
        };
        assert!(values.row(0) == [1.0] && values.row(1)[0].is_nan() && values.row(2) == [0.0]);
        let values = Targets::Values(values);
        assert_eq!(
            to(&values, TaskName::SingleLabel).ok(),
            Some(classes.clone())
        );
        let Ok(labels) = to(&classes, TaskName::MultiLabel) else {
            panic!("no labels")
        };
        let Targets::Labels(sets) = &labels else {
            panic!("no labels")
        };
        assert!(sets.has(0, 1) && !sets.has(0, 0) && sets.has(2, 0) && !labels.is_labelled(1));
        assert!(matches!(
            to(&labels, TaskName::Regression),
            Ok(Targets::Values(_))
        ));
        let halves = Targets::Values(Values::new(1, vec![0.5]).expect("a value"));
        for task in [TaskName::SingleLabel, TaskName::MultiLabel] {
            let refused = to(&halves, task).expect_err("a half").to_string();
            assert!(refused.ends_with("; leave --task out"), "{refused}");
        }
        assert!(to(&labels, TaskName::SingleLabel).is_err());
    }
}
