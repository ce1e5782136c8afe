//! Metrics of a run: counts and sums on the device. Where ranks share the scores, the host ranks them.

use super::objective::Answers;
use super::ranked::{Ranked, SeenRanks};
use super::{Few, Objective, Score, Split, TrainConfig};
use crate::backend::{Backend, MemoryKind};
use crate::data::Targets;
use crate::error::Error;
use crate::metrics::{self, ColumnErrors, ErrorSums, Metric, Outcomes};
use crate::nn::Decoder;
use crate::ops::{self, ERRORS, OUTCOMES, RankSum};
use crate::tensor::{Array, Element, Matrix};

/// The metrics of a run, and their buffers.
#[derive(Debug)]
pub(super) struct Evaluation<B: Backend> {
    metric: Metric,
    others: Few<Metric>,
    correct: Option<Array<B, u32>>,
    outcomes: Option<Array<B, u32>>,
    errors: Option<Errors<B>>,
    ranks: Option<Ranked<B>>,
    /// Whether a metric reads the logits on the host.
    sees_logits: bool,
}

/// Sums of errors by column and split.
#[derive(Debug)]
struct Errors<B: Backend> {
    sums: Array<B, f64>,
    /// The squared deviations of the targets, by column and split; zeros where no metric reads them.
    deviations: Vec<f64>,
    /// The number of known entries, by column and split.
    counts: Vec<usize>,
}

impl<B: Backend> Errors<B> {
    fn new<E: Element>(
        backend: &B,
        objective: &Objective<B, E>,
        deviations: bool,
    ) -> Result<Self, Error> {
        let columns = objective.outputs();
        let deviation = |column: usize, list: &Vec<u32>| match &objective.0.targets {
            Targets::Values(values) if deviations => {
                let value = |&vertex: &u32| values.row(vertex as usize)[column];
                let known: Vec<f32> = list.iter().map(value).filter(|y| !y.is_nan()).collect();
                metrics::squared_deviations(known.into_iter())
            }
            _ => 0.0,
        };
        let lists = &objective.0.lists;
        let of_column = |column| lists.iter().map(move |list| deviation(column, list));
        let targets = &objective.0.targets;
        let count = |column: usize, list: &Vec<u32>| match targets.is_partial() {
            false => list.len(),
            true => {
                let is_known = |vertex: &&u32| targets.is_known(**vertex as usize, column);
                list.iter().filter(is_known).count()
            }
        };
        let counts = |column| lists.iter().map(move |list| count(column, list));
        Ok(Self {
            sums: Array::zeros(
                backend,
                columns * lists.len() * ERRORS,
                MemoryKind::Workspace,
            )?,
            deviations: (0..columns).flat_map(of_column).collect(),
            counts: (0..columns).flat_map(counts).collect(),
        })
    }
}

/// The default metric for choosing the best epoch.
const fn customary<B: Backend>(answers: &Answers<B>, targets: &Targets) -> Metric {
    match targets {
        _ if matches!(answers, Answers::Links(_)) => Metric::RocAuc,
        Targets::Labels(_) => Metric::MicroF1,
        Targets::Values(_) => Metric::MeanAbsoluteError,
        _ => Metric::Accuracy,
    }
}

/// Checks that a metric applies to such targets; the error names those that do.
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
        let errs = |metric| {
            use Metric::*;
            matches!(metric, MeanAbsoluteError | RootMeanSquaredError | R2)
        };
        let of_ranks: Vec<RankSum> = all().filter_map(metrics::rank_sum).collect();
        // With several ranks, each has only some of the scores. Unknown entries differ by column, while the device
        // ranks one list of rows for all columns.
        let has_all = objective.group().is_none() && objective.0.unknown.is_none();
        let on_device = !of_ranks.is_empty() && has_all;
        let sees_logits = !of_ranks.is_empty() && !on_device;
        let ranks = on_device
            .then(|| Ranked::new(backend, objective, of_ranks))
            .transpose()?;
        let errors = all()
            .any(errs)
            .then(|| Errors::new(backend, objective, all().any(|metric| metric == Metric::R2)));
        let words = 3 * OUTCOMES * objective.outputs();
        Ok(Self {
            metric,
            others: config.others,
            correct: room(all().any(|metric| metric == Metric::Accuracy), 3)?,
            outcomes: room(all().any(counts), words)?,
            errors: errors.transpose()?,
            ranks,
            sees_logits,
        })
    }

    /// Counts on the device which of `logits` are right and wrong.
    pub(super) fn count<E: Element>(
        &mut self,
        backend: &B,
        objective: &Objective<B, E>,
        (logits, decoder): (&Matrix<B, E>, Option<&Decoder<B, E>>),
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
                let unknown = objective.0.unknown.as_ref();
                let replaced = unknown.map(|unknown| unknown.replaced(backend, logits));
                let replaced = replaced.transpose()?;
                let logits = replaced.as_deref().unwrap_or(logits);
                if let Some(outcomes) = &mut self.outcomes {
                    ops::count_labels(backend, logits, targets, splits, outcomes)?;
                }
                if let Some(Errors { sums, .. }) = &mut self.errors {
                    ops::sum_errors(backend, logits, targets, splits, sums)?;
                }
            }
            // Links have ranking metrics alone.
            Answers::Links(_) => {}
        }
        if let Some(ranks) = &mut self.ranks {
            ranks.count(backend, objective, (logits, decoder))?;
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

    /// The values of the metrics: the one that chooses the epoch, and the others. They are computed from the counts and
    /// `logits`.
    pub(super) fn scores<E: Element>(
        &self,
        backend: &B,
        objective: &Objective<B, E>,
        logits: &Matrix<B, E>,
    ) -> Result<(Score, Few<Score>), Error> {
        let logits = match self.sees_logits {
            true => logits_of_all(objective, logits.to_f32(backend)?)?,
            false => Vec::new(),
        };
        let seen = Seen {
            lists: &objective.0.lists,
            targets: &objective.0.targets,
            columns: objective.outputs(),
            correct: read(backend, self.correct.as_ref())?,
            outcomes: read(backend, self.outcomes.as_ref())?,
            errors: self.errors(backend, objective)?,
            ranks: (self.ranks.as_ref())
                .map(|ranks| ranks.read(backend))
                .transpose()?,
            logits,
        };
        let others: Vec<Score> = self
            .others
            .iter()
            .map(|metric| seen.score(metric))
            .collect();
        // There are as many as there are metrics.
        let others = Few::try_from(others).unwrap_or_default();
        Ok((seen.score(self.metric), others))
    }

    /// The sums of errors of each split, over all ranks where there are several.
    fn errors<E: Element>(
        &self,
        backend: &B,
        objective: &Objective<B, E>,
    ) -> Result<[ErrorSums; 3], Error> {
        let Some(Errors {
            sums,
            deviations,
            counts,
        }) = &self.errors
        else {
            return Ok(Default::default());
        };
        let mut sums = sums.to_vec(backend)?;
        if let Some(group) = objective.group() {
            let all = group.gather("errors", &sums)?;
            sums.iter_mut().enumerate().for_each(|(at, sum)| {
                *sum = all.iter().map(|rank| rank[at]).sum();
            });
        }
        let lists = &objective.0.lists;
        let columns = sums.chunks_exact(lists.len() * ERRORS);
        let columns = columns.zip(deviations.chunks_exact(lists.len()));
        let columns = columns.zip(counts.chunks_exact(lists.len()));
        Ok([0, 1, 2].map(|split| ErrorSums {
            columns: columns
                .clone()
                .map(|((sums, deviations), counts)| ColumnErrors {
                    count: counts[split],
                    absolute: sums[split * ERRORS],
                    squared: sums[split * ERRORS + 1],
                    deviations: deviations[split],
                })
                .collect(),
        }))
    }
}

fn read<B: Backend>(backend: &B, words: Option<&Array<B, u32>>) -> Result<Vec<u32>, Error> {
    words.map_or(Ok(Vec::new()), |words| words.to_vec(backend))
}

/// The logits of all vertices in their order, gathered from all ranks.
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

/// The values that metrics are computed from, on the host.
struct Seen<'a> {
    lists: &'a [Vec<u32>; 3],
    targets: &'a Targets,
    columns: usize,
    correct: Vec<u32>,
    outcomes: Vec<u32>,
    errors: [ErrorSums; 3],
    ranks: Option<SeenRanks>,
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
        if let Some(ranks) = &self.ranks
            && metrics::rank_sum(metric).is_some()
        {
            return ranks.value(metric, split);
        }
        match metric {
            Metric::MicroF1 => self.outcomes(split).micro_f1(),
            Metric::MacroF1 => self
                .outcomes(split)
                .macro_f1(matches!(self.targets, Targets::Labels(_))),
            Metric::RocAuc => self.ranked(split, metrics::roc_auc),
            Metric::AveragePrecision => self.ranked(split, metrics::average_precision),
            Metric::MeanAbsoluteError => self.errors[split as usize].mean_absolute_error(),
            Metric::RootMeanSquaredError => self.errors[split as usize].root_mean_squared_error(),
            Metric::R2 => self.errors[split as usize].r2(),
            // Metrics of links, and the accuracy, are computed elsewhere.
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

    /// The mean over classes or labels of a measure of their scores; for two classes, the measure of the second.
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
                let known = list.iter().filter_map(|&vertex| {
                    let truth = labels.get(vertex as usize, column)?;
                    Some((f64::from(self.row(vertex)[column]), truth))
                });
                let (scores, truths): (Vec<f64>, Vec<bool>) = known.unzip();
                of(&scores, &truths)
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
}

/// The softmax of a row of logits at one column.
fn softmax(row: &[f32], column: usize) -> f64 {
    let most = row.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let exponential = |logit: f32| libm::exp(f64::from(logit) - f64::from(most));
    exponential(row[column]) / row.iter().map(|&logit| exponential(logit)).sum::<f64>()
}

#[cfg(test)]
mod tests {
    use super::super::{Goal, Loss};
    use super::*;
    use crate::backend::cpu::Cpu;
    use crate::data::{LabelSets, Values};

    const ALL: [Vec<u32>; 3] = [Vec::new(), Vec::new(), Vec::new()];

    /// A metric of the only split that has rows, computed on the device. A ranking metric is compared with the host's.
    fn value(metric: Metric, targets: &Targets, logits: &[f32]) -> f64 {
        let found = device_value(metric, targets, logits);
        if metrics::rank_sum(metric).is_some() {
            let expected = host_value(metric, targets, logits);
            assert!((found - expected).abs() < 1e-9, "{found} for {expected}");
        }
        found
    }

    fn device_value(metric: Metric, targets: &Targets, logits: &[f32]) -> f64 {
        let backend = &Cpu::new();
        let (vertices, outputs) = (targets.vertices(), targets.outputs());
        let all: Vec<u32> = (0..vertices as u32).collect();
        let goal = Goal {
            targets,
            outputs,
            loss: &Loss::of(targets),
            splits: [&all, &[], &[]],
        };
        let kind = MemoryKind::Features;
        let features = Matrix::zeros(backend, vertices, 1, kind).unwrap();
        let objective = Objective::<_, f32>::of(backend, Vec::new(), features, &goal).unwrap();
        // Another metric of the same kind is computed with it; the two must not mix.
        let beside = match metric {
            Metric::RocAuc => Metric::AveragePrecision,
            Metric::AveragePrecision => Metric::RocAuc,
            Metric::MicroF1 => Metric::MacroF1,
            _ => Metric::RootMeanSquaredError,
        };
        let config = TrainConfig {
            metric: Some(beside),
            others: Few::try_from(vec![metric]).unwrap(),
            ..TrainConfig::new(crate::tensor::Precision::Float)
        };
        let mut evaluation = Evaluation::new(backend, &objective, &config).unwrap();
        let logits = Matrix::from_f32(backend, vertices, outputs, logits, kind).unwrap();
        evaluation
            .count(backend, &objective, (&logits, None))
            .unwrap();
        let (_, others) = evaluation.scores(backend, &objective, &logits).unwrap();
        let score = others.iter().next().unwrap();
        assert!(score.of(Split::Test).is_nan());
        score.of(Split::Train)
    }

    fn host_value(metric: Metric, targets: &Targets, logits: &[f32]) -> f64 {
        let mut lists = ALL;
        lists[2] = (0..targets.vertices() as u32).collect();
        let seen = Seen {
            lists: &lists,
            targets,
            columns: targets.outputs(),
            correct: Vec::new(),
            outcomes: Vec::new(),
            errors: Default::default(),
            ranks: None,
            logits: logits.to_vec(),
        };
        let score = seen.score(metric);
        assert!(score.of(Split::Train).is_nan());
        score.of(Split::Test)
    }

    #[test]
    fn errors_of_values_are_scikit_learns() {
        // from sklearn.metrics import *; y and p in rows of two
        // mean_absolute_error(y, p), root_mean_squared_error, r2_score
        let y = vec![1.0, 10.0, 2.0, -3.0, 0.5, 4.0, -1.0, 7.5, 3.0, 2.0];
        let p = [1.5, 9.0, 2.0, -2.5, 0.0, 6.0, -1.25, 7.0, 2.0, 2.5];
        let targets = Targets::Values(Values::new(2, y).unwrap());
        for (metric, expected) in [
            (Metric::MeanAbsoluteError, 0.675),
            (Metric::RootMeanSquaredError, 0.8156987619256542),
            (Metric::R2, 0.8866724308300395),
        ] {
            let found = value(metric, &targets, &p);
            assert!((found - expected).abs() < 1e-12, "{metric}: {found}");
        }
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
        // The same for two classes, whose second is the positive one.
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
    }

    #[test]
    fn unknown_entries_are_in_no_metric() {
        let near = |value: f64, expected: f64| assert!((value - expected).abs() < 1e-9, "{value}");
        // As in ogbg-molpcba's evaluator: the known rows of each column.
        let (t, f, u) = (Some(true), Some(false), None);
        let truths = [t, f, u, t, f, u, t, f, f, t];
        let labels = Targets::Labels(LabelSets::new(2, truths.into_iter()).unwrap());
        #[rustfmt::skip]
        let logits = [1.0, -1.0,  9.0, 2.0,  3.0, 9.0,  2.0, 1.0,  -1.0, 0.5];
        // Column 0 knows rows 0, 2, 3, 4 of scores 1, 3, 2, -1, column 1 rows 0, 1, 3, 4 of scores -1, 2, 1, 0.5.
        // roc_auc_score([1, 0, 1, 0], [1, 3, 2, -1]) = 0.5, roc_auc_score([0, 1, 0, 1], [-1, 2, 1, .5]) = 0.75
        near(value(Metric::RocAuc, &labels, &logits), 62.5);
        // TP 4, FP 2 (rows 2 and 3), FN 0: f1_score of the known entries, micro.
        near(value(Metric::MicroF1, &labels, &logits), 100.0 * 8.0 / 10.0);
        let y = vec![1.0, f32::NAN, 2.0, 4.0, f32::NAN, 6.0];
        let values = Targets::Values(Values::new(2, y).unwrap());
        let predictions = [2.0, 100.0, 2.0, 3.0, -50.0, 9.0];
        near(
            value(Metric::MeanAbsoluteError, &values, &predictions),
            (0.5 + 2.0) / 2.0,
        );
        near(value(Metric::R2, &values, &predictions), (-1.0 - 4.0) / 2.0);
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
