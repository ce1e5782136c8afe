//! What the metrics of a run say of a model: counts that are made on the device, and ranks and errors on the host.

use super::links::Links;
use super::objective::Answers;
use super::{Few, Objective, Score, Split, TrainConfig};
use crate::backend::{Backend, MemoryKind};
use crate::data::Targets;
use crate::error::Error;
use crate::metrics::{self, Metric, Outcomes};
use crate::ops::{self, OUTCOMES};
use crate::tensor::{Array, Element, Matrix};

/// The metrics of a run, and room for what they are made of.
#[derive(Debug)]
pub(super) struct Evaluation<B: Backend> {
    metric: Metric,
    others: Few<Metric>,
    correct: Option<Array<B, u32>>,
    outcomes: Option<Array<B, u32>>,
    /// Whether one wants to see what the model gives.
    sees_logits: bool,
}

/// The metric that chooses where nobody says which.
const fn customary<B: Backend>(answers: &Answers<B>, targets: &Targets) -> Metric {
    match targets {
        _ if matches!(answers, Answers::Links(_)) => Metric::RocAuc,
        Targets::Labels(_) => Metric::MicroF1,
        Targets::Values(_) => Metric::MeanAbsoluteError,
        _ => Metric::Accuracy,
    }
}

/// Whether a metric is one of such targets, or which are.
fn check<B: Backend>(metric: Metric, answers: &Answers<B>, targets: &Targets) -> Result<(), Error> {
    use Metric::*;
    let links = matches!(answers, Answers::Links(_));
    let (fits, instead) = match targets {
        _ if links => (
            matches!(
                metric,
                RocAuc | AveragePrecision | MeanReciprocalRank | HitsAt(_)
            ),
            "roc-auc, average-precision, mrr or hits@K",
        ),
        Targets::Labels(_) => (
            matches!(metric, MicroF1 | MacroF1 | RocAuc | AveragePrecision),
            "micro-f1, macro-f1, roc-auc or average-precision",
        ),
        Targets::Values(_) => (
            matches!(metric, MeanAbsoluteError | RootMeanSquaredError | R2),
            "mae, rmse or r2",
        ),
        _ => (
            matches!(
                metric,
                Accuracy | MicroF1 | MacroF1 | RocAuc | AveragePrecision
            ),
            "accuracy, micro-f1, macro-f1, roc-auc or average-precision",
        ),
    };
    if fits {
        return Ok(());
    }
    Err(Error::Unsupported {
        operator: "Trainer",
        reason: format!(
            "{metric} is no metric of {}; take {instead}",
            if links {
                "links"
            } else {
                targets.description()
            }
        ),
    })
}

impl<B: Backend> Evaluation<B> {
    /// The metrics of `config` on a task.
    pub(super) fn new<E: Element>(
        backend: &B,
        objective: &Objective<B, E>,
        config: &TrainConfig,
    ) -> Result<Self, Error> {
        let (answers, targets) = (&objective.0.answers, &objective.0.targets);
        let metric = config.metric.unwrap_or(customary(answers, targets));
        let all = || std::iter::once(metric).chain(config.others.iter());
        all().try_for_each(|metric| check(metric, answers, targets))?;
        let room = |wanted: bool, len| {
            let room = || Array::zeros(backend, len, MemoryKind::Workspace);
            wanted.then(room).transpose()
        };
        let counts = |metric| matches!(metric, Metric::MicroF1 | Metric::MacroF1);
        let words = 3 * OUTCOMES * objective.outputs();
        Ok(Self {
            metric,
            others: config.others,
            correct: room(all().any(|metric| metric == Metric::Accuracy), 3)?,
            outcomes: room(all().any(counts), words)?,
            sees_logits: all().any(|metric| metric != Metric::Accuracy && !counts(metric)),
        })
    }

    /// Counts on the device what is right and wrong in `logits`.
    pub(super) fn count<E: Element>(
        &mut self,
        backend: &B,
        objective: &Objective<B, E>,
        logits: &Matrix<B, E>,
    ) -> Result<(), Error> {
        let splits = &objective.0.splits;
        match &objective.0.answers {
            Answers::Classes { labels, .. } => {
                if let Some(correct) = &mut self.correct {
                    ops::count_correct(backend, logits, labels, splits, correct)?;
                }
                if let Some(outcomes) = &mut self.outcomes {
                    ops::count_classes(backend, logits, labels, splits, outcomes)?;
                }
            }
            Answers::Elements { targets, .. } => {
                if let Some(outcomes) = &mut self.outcomes {
                    ops::count_labels(backend, logits, targets, splits, outcomes)?;
                }
            }
            // They are ranked on the host.
            Answers::Links(_) => {}
        }
        let Some(group) = objective.group() else {
            return Ok(());
        };
        let counts = self.correct.iter_mut().chain(&mut self.outcomes);
        for counts in counts {
            group.sum_counts(backend, "counts", counts)?;
        }
        Ok(())
    }

    /// What the metrics say of what was counted, and of `logits`: the one that chooses, and the others.
    pub(super) fn scores<E: Element>(
        &self,
        backend: &B,
        objective: &Objective<B, E>,
        logits: &Matrix<B, E>,
    ) -> Result<(Score, Few<Score>), Error> {
        let links = match &objective.0.answers {
            Answers::Links(links) => Some(links),
            _ => None,
        };
        let logits = match self.sees_logits {
            true => logits_of_all(objective, logits.to_f32(backend)?)?,
            false => Vec::new(),
        };
        let seen = Seen {
            links: links.map(|links| scores_of_pairs(links, objective.outputs(), &logits)),
            lists: &objective.0.lists,
            targets: &objective.0.targets,
            columns: objective.outputs(),
            correct: read(backend, self.correct.as_ref())?,
            outcomes: read(backend, self.outcomes.as_ref())?,
            logits,
        };
        let others: Vec<Score> = self
            .others
            .iter()
            .map(|metric| seen.score(metric))
            .collect();
        // As many as there are metrics.
        let others = Few::try_from(others).unwrap_or_default();
        Ok((seen.score(self.metric), others))
    }
}

fn read<B: Backend>(backend: &B, words: Option<&Array<B, u32>>) -> Result<Vec<u32>, Error> {
    words.map_or(Ok(Vec::new()), |words| words.to_vec(backend))
}

/// The logits of all vertices in their order, of which a rank has some.
fn logits_of_all<B: Backend, E: Element>(
    objective: &Objective<B, E>,
    own: Vec<f32>,
) -> Result<Vec<f32>, Error> {
    let Some(ranks) = &objective.0.ranks else {
        return Ok(own);
    };
    let columns = objective.outputs();
    let counts: Vec<usize> = ranks.counts.iter().map(|count| count * columns).collect();
    let rows = ranks.group.gather_of("logits", &own, &counts)?.concat();
    let mut all = vec![0.0; rows.len()];
    for (&vertex, row) in ranks.vertices.iter().zip(rows.chunks_exact(columns.max(1))) {
        all[vertex as usize * columns..][..columns].copy_from_slice(row);
    }
    Ok(all)
}

/// The scores of the edges of each split, and of the pairs beside them.
fn scores_of_pairs<B: Backend>(links: &Links<B>, width: usize, rows: &[f32]) -> [[Vec<f64>; 2]; 3] {
    let row = |vertex: u32| {
        rows[vertex as usize * width..][..width]
            .iter()
            .copied()
            .map(f64::from)
    };
    let score = |&[a, b]: &[u32; 2]| row(a).zip(row(b)).map(|(a, b)| a * b).sum();
    let scores = |pairs: &[[u32; 2]]| pairs.iter().map(score).collect();
    [0, 1, 2].map(|split| [scores(&links.edges[split]), scores(&links.others[split])])
}

/// What metrics are made of, on the host.
struct Seen<'a> {
    /// The scores of links and other pairs, by split.
    links: Option<[[Vec<f64>; 2]; 3]>,
    lists: &'a [Vec<u32>; 3],
    targets: &'a Targets,
    columns: usize,
    correct: Vec<u32>,
    outcomes: Vec<u32>,
    logits: Vec<f32>,
}

impl Seen<'_> {
    fn score(&self, metric: Metric) -> Score {
        if metric == Metric::Accuracy {
            let correct = [0, 1, 2].map(|split| self.correct[split]);
            return Score::accuracy(correct, [0, 1, 2].map(|split| self.lists[split].len()));
        }
        let factor = if metric.is_percent() { 100.0 } else { 1.0 };
        Score::new(
            metric,
            Split::ALL.map(|split| factor * self.value(metric, split)),
        )
    }

    fn value(&self, metric: Metric, split: Split) -> f64 {
        if let Some(links) = &self.links {
            let [edges, others] = &links[split as usize];
            return of_links(metric, edges, others);
        }
        match metric {
            Metric::MicroF1 => self.outcomes(split).micro_f1(),
            Metric::MacroF1 => self
                .outcomes(split)
                .macro_f1(matches!(self.targets, Targets::Labels(_))),
            Metric::RocAuc => self.ranked(split, metrics::roc_auc),
            Metric::AveragePrecision => self.ranked(split, metrics::average_precision),
            Metric::MeanAbsoluteError => self.errors(split, metrics::mean_absolute_error),
            Metric::RootMeanSquaredError => self.errors(split, metrics::root_mean_squared_error),
            Metric::R2 => self.errors(split, metrics::r2),
            // Metrics of links, and the accuracy, which are told elsewhere.
            _ => f64::NAN,
        }
    }

    fn outcomes(&self, split: Split) -> Outcomes {
        let words = OUTCOMES * self.columns;
        let counts = self.outcomes[split as usize * words..][..words].chunks_exact(OUTCOMES);
        Outcomes {
            counts: counts
                .map(|counts| [counts[0], counts[1], counts[2]])
                .collect(),
        }
    }

    fn row(&self, vertex: u32) -> &[f32] {
        &self.logits[vertex as usize * self.columns..][..self.columns]
    }

    /// The mean over classes or labels of a measure of their scores: of two classes that of the second.
    fn ranked(&self, split: Split, of: impl Fn(&[f64], &[bool]) -> Option<f64>) -> f64 {
        let list = &self.lists[split as usize];
        let measure = |score: &dyn Fn(&[f32]) -> f64, has: &dyn Fn(usize) -> bool| {
            let scores: Vec<f64> = list.iter().map(|&vertex| score(self.row(vertex))).collect();
            let truths: Vec<bool> = list.iter().map(|&vertex| has(vertex as usize)).collect();
            of(&scores, &truths)
        };
        let difference = |row: &[f32]| f64::from(row[1]) - f64::from(row[0]);
        let columns = 0..self.columns;
        match self.targets {
            Targets::Labels(labels) => metrics::mean(columns.map(|column| {
                measure(&|row| row[column].into(), &|vertex| {
                    labels.has(vertex, column)
                })
            })),
            Targets::Classes(classes) if self.columns == 2 => {
                metrics::mean([measure(&difference, &|vertex| classes[vertex] == 1)].into_iter())
            }
            Targets::Classes(classes) => metrics::mean(columns.map(|column| {
                let share = |row: &[f32]| softmax(row, column);
                measure(&share, &|vertex| classes[vertex] as usize == column)
            })),
            _ => f64::NAN,
        }
    }

    /// A measure of how far off values are.
    fn errors(&self, split: Split, of: impl Fn(usize, &[f32], &[f32]) -> f64) -> f64 {
        let Targets::Values(values) = self.targets else {
            return f64::NAN;
        };
        let list = self.lists[split as usize].iter();
        let truths: Vec<f32> = list
            .clone()
            .flat_map(|&vertex| values.row(vertex as usize))
            .copied()
            .collect();
        let predictions: Vec<f32> = list.flat_map(|&vertex| self.row(vertex)).copied().collect();
        of(self.columns, &truths, &predictions)
    }
}

/// A metric of the scores of edges and of other pairs.
fn of_links(metric: Metric, edges: &[f64], others: &[f64]) -> f64 {
    let ranked = |of: fn(&[f64], &[bool]) -> Option<f64>| {
        let scores: Vec<f64> = edges.iter().chain(others).copied().collect();
        let truths: Vec<bool> = (0..scores.len()).map(|at| at < edges.len()).collect();
        of(&scores, &truths).unwrap_or(f64::NAN)
    };
    match metric {
        Metric::RocAuc => ranked(metrics::roc_auc),
        Metric::AveragePrecision => ranked(metrics::average_precision),
        Metric::MeanReciprocalRank => metrics::mean_reciprocal_rank(edges, others),
        Metric::HitsAt(k) => metrics::hits_at(k, edges, others),
        _ => f64::NAN,
    }
}

/// The probability of a column of a row of logits.
fn softmax(row: &[f32], column: usize) -> f64 {
    let most = row.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let exponential = |logit: f32| (f64::from(logit) - f64::from(most)).exp();
    exponential(row[column]) / row.iter().map(|&logit| exponential(logit)).sum::<f64>()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::{LabelSets, Values};

    const ALL: [Vec<u32>; 3] = [Vec::new(), Vec::new(), Vec::new()];

    fn value(metric: Metric, targets: &Targets, logits: &[f32]) -> f64 {
        let mut lists = ALL;
        lists[2] = (0..targets.vertices() as u32).collect();
        let seen = Seen {
            links: None,
            lists: &lists,
            targets,
            columns: targets.outputs(),
            correct: Vec::new(),
            outcomes: Vec::new(),
            logits: logits.to_vec(),
        };
        let score = seen.score(metric);
        assert!(score.of(Split::Train).is_nan());
        score.of(Split::Test)
    }

    #[test]
    fn areas_of_classes_and_labels_are_scikit_learns() {
        let near = |value: f64, expected: f64| assert!((value - expected).abs() < 1e-9, "{value}");
        // from sklearn.metrics import *; y the classes, p the softmax of the rows
        // roc_auc_score(y, p, multi_class="ovr"), average_precision_score(np.eye(3)[y], p)
        let classes = Targets::from(vec![0, 1, 2, 2, 1, 0, 2, 1, 0, 2, 2, 1]);
        #[rustfmt::skip]
        let logits = [
            2.0, 0.0, 1.0,  0.0, 1.0, 1.0,  0.0, 0.0, 3.0,  2.0, 0.0, 1.0,  0.0, 2.0, 0.0,  0.0, 1.0, 1.0,
            0.0, 0.0, 3.0,  2.0, 0.0, 1.0,  0.0, 2.0, 0.0,  0.0, 1.0, 1.0,  0.0, 0.0, 3.0,  0.0, 2.0, 0.0,
        ];
        near(value(Metric::RocAuc, &classes, &logits), 77.7876984126984);
        near(
            value(Metric::AveragePrecision, &classes, &logits),
            58.24074074074074,
        );
        // The same of two classes, whose second is the positive one.
        let two = Targets::from(vec![0, 1, 1, 0, 1, 0, 0, 1, 1, 0]);
        let scores = [0.1, 0.4, 0.4, 0.4, 0.8, 0.8, 0.2, 0.9, 0.3, 0.3];
        let logits: Vec<f32> = scores.into_iter().flat_map(|score| [0.0, score]).collect();
        near(value(Metric::RocAuc, &two, &logits), 76.0);
        // roc_auc_score(y, s, average="macro"), average_precision_score(y, s)
        let has = [1, 0, 1, 0, 0, 1, 1, 1, 0, 1, 0, 0, 0, 1, 1, 0, 0, 0].map(|bit| Some(bit == 1));
        let labels = Targets::Labels(LabelSets::new(3, has.into_iter()).unwrap());
        #[rustfmt::skip]
        let logits = [
            0.5, -1.0, 2.0,  0.5, -1.0, -0.5,  1.0, 0.25, 0.25,  -2.0, -0.75, 0.25,  -2.0, 3.0, 0.25,  -1.0, 3.0, -4.0,
        ];
        near(value(Metric::RocAuc, &labels, &logits), 71.52777777777777);
        near(
            value(Metric::AveragePrecision, &labels, &logits),
            66.85185185185185,
        );
        let values = Targets::Values(Values::new(1, vec![2.0, 2.0, 5.0]).unwrap());
        near(
            value(Metric::MeanAbsoluteError, &values, &[2.0, 1.0, 3.0]),
            1.0,
        );
    }

    #[test]
    fn metrics_of_other_targets_are_refused() {
        let classes = Targets::from(vec![0, 1]);
        let answers = Answers::<crate::backend::cpu::Cpu>::Classes {
            labels: Array::from_slice(&Default::default(), &[0, 1], MemoryKind::Features).unwrap(),
            weights: None,
        };
        let check = |metric| check(metric, &answers, &classes);
        let refused = check(Metric::R2).unwrap_err().to_string();
        assert!(
            refused.ends_with(
                "r2 is no metric of a class of each vertex; take accuracy, micro-f1, macro-f1, roc-auc or average-precision"
            ),
            "{refused}"
        );
        assert!(check(Metric::HitsAt(3)).is_err());
        assert!(check(customary(&answers, &classes)).is_ok());
    }
}
