//! What metrics are made of on the device, against the host's own forms of the metrics.

use crate::Scale;
use crate::input::{KIND, Random, matrix, words};
use half::{bf16, f16};
use halfgnn::backend::Backend;
use halfgnn::backend::cpu::Cpu;
use halfgnn::metrics::{
    ColumnErrors, ErrorSums, Metric, average_precision, hits_at, mean_absolute_error,
    mean_reciprocal_rank, of_ranks, r2, rank_sum, roc_auc, root_mean_squared_error,
    squared_deviations,
};
use halfgnn::ops::{self, ERRORS, NO_TARGET, RANKS, RankSum, Ranking, Ranks, Scores};
use halfgnn::tensor::{Array, Element};
use halfgnn_contract::metrics::{RANKS_PER_CHUNK, ROWS_PER_CHUNK};

/// How far a metric may be off.
const OFF: f64 = 1e-6;

/// The split of each row: one of three, and of every seventh none.
fn splits(seed: u32, rows: usize) -> Vec<u32> {
    let split = |(at, split): (usize, u32)| if at % 7 == 5 { NO_TARGET } else { split };
    Random(seed)
        .below(3, rows)
        .into_iter()
        .enumerate()
        .map(split)
        .collect()
}

fn sums<B: Backend, E: Element>(
    backend: &B,
    columns: usize,
    predictions: &[f32],
    targets: &[f32],
    splits: &[u32],
) -> Vec<f64> {
    let shape = (splits.len(), columns);
    let unwritten = vec![f64::NAN; 3 * ERRORS * columns];
    let mut sums = Array::from_slice(backend, &unwritten, KIND).expect("room for sums");
    ops::sum_errors(
        backend,
        &matrix::<B, E>(backend, shape, predictions),
        &matrix::<B, f32>(backend, shape, targets),
        &words(backend, splits),
        &mut sums,
    )
    .expect("legal sums");
    sums.to_vec(backend).expect("no failure before")
}

/// The rows of a split, side by side.
fn rows_of(split: u32, splits: &[u32], columns: usize, values: &[f32]) -> Vec<f32> {
    let rows = splits.iter().zip(values.chunks_exact(columns));
    rows.filter(|&(&of, _)| of == split)
        .flat_map(|(_, row)| row.iter().copied())
        .collect()
}

/// Errors of every shape, in the same bits as on the CPU, and their metrics as the host has them of the rows.
pub fn errors<B: Backend>(backend: &B, scale: Scale) {
    fn every<B: Backend, E: Element>(backend: &B, scale: Scale) {
        let chunk = ROWS_PER_CHUNK as usize;
        for (seed, (rows, columns)) in (400..).zip([
            (1, 1),
            (33, 3),
            (chunk - 1, 1),
            (chunk + 130, 2),
            (41, 130),
            (scale.pick(3 * chunk + 7, 130 * chunk + 9), 1),
        ]) {
            let len = rows * columns;
            // Far from zero, where sums of squares would cancel.
            let targets: Vec<f32> = (Random(seed).uniform::<f32>(len).iter())
                .map(|y| 100.0 + y)
                .collect();
            let off = Random(seed + 20).uniform::<f32>(len);
            let predictions: Vec<f32> = (targets.iter().zip(off))
                .map(|(y, off)| E::from_f32(y + off / 3.0).to_f32())
                .collect();
            let splits = splits(seed + 40, rows);
            let found = sums::<B, E>(backend, columns, &predictions, &targets, &splits);
            let plain = sums::<_, E>(&Cpu::new(), columns, &predictions, &targets, &splits);
            let bits = |sums: &[f64]| sums.iter().map(|sum| sum.to_bits()).collect::<Vec<_>>();
            assert_eq!(bits(&found), bits(&plain), "{rows} x {columns}");
            for split in 0..3 {
                let y = rows_of(split, &splits, columns, &targets);
                let x = rows_of(split, &splits, columns, &predictions);
                let of_column = |(column, sums): (usize, &[f64])| ColumnErrors {
                    count: y.len() / columns,
                    absolute: sums[split as usize * ERRORS],
                    squared: sums[split as usize * ERRORS + 1],
                    deviations: squared_deviations(y.iter().skip(column).step_by(columns).copied()),
                };
                let sums = ErrorSums {
                    columns: found
                        .chunks_exact(3 * ERRORS)
                        .enumerate()
                        .map(of_column)
                        .collect(),
                };
                for (found, expected) in [
                    (
                        sums.mean_absolute_error(),
                        mean_absolute_error(columns, &y, &x),
                    ),
                    (
                        sums.root_mean_squared_error(),
                        root_mean_squared_error(columns, &y, &x),
                    ),
                    (sums.r2(), r2(columns, &y, &x)),
                ] {
                    let near = (found - expected).abs() <= OFF * (1.0 + expected.abs());
                    assert!(
                        near || found.is_nan() && expected.is_nan(),
                        "{rows} x {columns}, split {split}: {found} for {expected}"
                    );
                }
            }
        }
    }
    every::<B, f16>(backend, scale);
    every::<B, bf16>(backend, scale);
    every::<B, f32>(backend, scale);
}

/// A NaN and an infinity are of their column and split alone; of a row that is not selected they are nowhere. No rows have no errors.
pub fn errors_stay_where_they_are<B: Backend>(backend: &B, _: Scale) {
    let splits = [0, 1, 2, NO_TARGET, 1];
    let predictions = [
        f32::NAN,
        1.0,
        2.0,
        f32::INFINITY,
        -3.0,
        0.5,
        f32::NAN,
        f32::INFINITY,
        4.0,
        4.0,
    ];
    let targets = [0.0, 0.0, 1.0, 1.0, 1.0, 0.5, 1.0, 1.0, 1.0, 1.0];
    let found = sums::<B, f16>(backend, 2, &predictions, &targets, &splits);
    let infinite = f64::INFINITY;
    let expected = [
        [f64::NAN, f64::NAN, 4.0, 10.0, 4.0, 16.0],
        [1.0, 1.0, infinite, infinite, 0.0, 0.0],
    ];
    for (at, (found, expected)) in found.iter().zip(expected.concat()).enumerate() {
        assert!(
            *found == expected || found.is_nan() && expected.is_nan(),
            "sum {at}: {found} for {expected}"
        );
    }
    assert_eq!(sums::<B, f32>(backend, 1, &[], &[], &[]), [0.0; 6]);
}

const RANKED: [Metric; 5] = [
    Metric::RocAuc,
    Metric::AveragePrecision,
    Metric::MeanReciprocalRank,
    Metric::HitsAt(1),
    Metric::HitsAt(20),
];

/// Scores and truths of the rows of some splits, in several columns.
struct Case {
    name: String,
    /// Classes of the rows, or words of scores that are given.
    labels: Option<Vec<u32>>,
    given: bool,
    columns: usize,
    scores: Vec<f32>,
    targets: Vec<f32>,
    splits: [Vec<u32>; 3],
    /// How many columns are ranked at once.
    at_once: usize,
}

/// The score of a numbered row, and whether it is a positive.
type Scored<'a> = dyn Fn((usize, &[f32])) -> (f64, bool) + 'a;

impl Case {
    /// Scores of labels, of so many levels, 264 at most, that some or most are tied; every format holds them.
    fn labels(seed: u32, [rows, columns]: [usize; 2], levels: u32) -> Self {
        let level = |level: u32| level as f32 / 8.0 - 1.0;
        let scores = Random(seed).below(levels, rows * columns);
        let targets = Random(seed + 1).below(3, rows * columns);
        Self {
            name: format!("{rows} x {columns} of {levels} levels"),
            labels: None,
            given: false,
            columns,
            scores: scores.into_iter().map(level).collect(),
            targets: targets.into_iter().map(|of| f32::from(of == 0)).collect(),
            splits: lists(seed + 2, rows),
            at_once: columns,
        }
    }

    /// Logits of classes.
    fn classes<E: Element>(seed: u32, [rows, columns]: [usize; 2]) -> Self {
        Self {
            name: format!("{rows} of {columns} classes"),
            labels: Some(Random(seed + 1).below(columns as u32, rows)),
            scores: (Random(seed).uniform::<f32>(rows * columns).iter())
                .map(|x| E::from_f32(8.0 * x).to_f32())
                .collect(),
            at_once: if columns == 2 { 1 } else { columns },
            ..Self::labels(seed, [rows, columns], 2)
        }
    }

    /// Scores by themselves.
    fn given(seed: u32, rows: usize, levels: u32) -> Self {
        Self {
            name: format!("{rows} given of {levels} levels"),
            labels: Some(Random(seed + 1).below(2, rows)),
            given: true,
            ..Self::labels(seed, [rows, 1], levels)
        }
    }

    /// What is ranked in each column: of each row a score, and whether it is a positive.
    fn ranked(&self) -> Vec<Vec<(f64, bool)>> {
        let rows = || self.scores.chunks_exact(self.columns).enumerate();
        let column = |of: &Scored<'_>| rows().map(of).collect();
        let Some(labels) = &self.labels else {
            let of = |at: usize, row: usize| self.targets[row * self.columns + at] > 0.5;
            let all = 0..self.columns;
            let all = all.map(|at| column(&|(row, x)| (x[at].into(), of(at, row))));
            return all.collect();
        };
        if self.given {
            return vec![column(&|(row, x)| (x[0].into(), labels[row] == 1))];
        }
        if self.columns == 2 {
            let less = |x: &[f32]| f64::from(x[1]) - f64::from(x[0]);
            return vec![column(&|(row, x)| (less(x), labels[row] == 1))];
        }
        let share = |x: &[f32], at: usize| {
            let most = x.iter().copied().fold(f32::NEG_INFINITY, f32::max);
            let exponential = |x: f32| (f64::from(x) - f64::from(most)).exp();
            exponential(x[at]) / x.iter().map(|&x| exponential(x)).sum::<f64>()
        };
        let all = 0..self.columns;
        let all = all.map(|at| column(&|(row, x)| (share(x, at), labels[row] as usize == at)));
        all.collect()
    }

    /// The words of [`RANKED`]'s sums.
    fn words<B: Backend, E: Element>(&self, backend: &B) -> Vec<u64> {
        let of: Vec<RankSum> = RANKED.into_iter().filter_map(rank_sum).collect();
        let shape = (self.scores.len() / self.columns, self.columns);
        let logits = matrix::<B, E>(backend, shape, &self.scores);
        let targets = matrix::<B, f32>(backend, shape, &self.targets);
        let labels = self.labels.as_ref().map(|labels| words(backend, labels));
        let given: Vec<E> = self.scores.iter().map(|&x| E::from_f32(x)).collect();
        let given = Array::from_slice(backend, &given, KIND).expect("room");
        let scores = match (&labels, self.given) {
            (None, _) => Scores::Labels {
                logits: &logits,
                targets: &targets,
            },
            (Some(labels), false) => Scores::Classes {
                logits: &logits,
                labels,
            },
            (Some(positives), true) => Scores::Given {
                scores: &given,
                positives,
            },
        };
        let splits = self.splits.each_ref().map(|list| &list[..]);
        let mut ranking =
            Ranking::of_columns(backend, splits, self.at_once).expect("room for ranks");
        let unwritten = vec![u64::MAX; of.len() * scores.columns() * 3 * RANKS];
        let mut sums = Array::from_slice(backend, &unwritten, KIND).expect("room for sums");
        ops::sum_ranks(backend, scores, &of, &mut ranking, &mut sums).expect("legal sums");
        sums.to_vec(backend).expect("no failure before")
    }

    /// Compares every metric of every column and split with the host's own, and the words with the CPU's.
    fn check<B: Backend, E: Element>(&self, backend: &B) {
        let found = self.words::<B, E>(backend);
        assert_eq!(found, self.words::<Cpu, E>(&Cpu::new()), "{}", self.name);
        let mut ranks = found.as_chunks().0.iter().copied().map(Ranks::from_words);
        let columns = self.ranked();
        for metric in RANKED {
            for (at, column) in columns.iter().enumerate() {
                for (split, list) in self.splits.iter().enumerate() {
                    let ranks = ranks.next().expect("as many as there are");
                    let found = of_ranks(metric, ranks, list.len()).unwrap_or(-1.0);
                    let expected = of_scores(metric, column, list);
                    assert!(
                        (found - expected).abs() <= OFF || found.is_nan() && expected.is_nan(),
                        "{}: {metric} of column {at}, split {split}: {found} for {expected}",
                        self.name
                    );
                }
            }
        }
    }
}

/// The rows of three splits, some of none, in no order.
fn lists(seed: u32, rows: usize) -> [Vec<u32>; 3] {
    let splits = splits(seed, rows);
    let order = |row: &u32| Random(seed + 1).bits(*row as usize);
    [0, 1, 2].map(|split| {
        let mut list: Vec<u32> = (0..rows as u32)
            .filter(|&row| splits[row as usize] == split)
            .collect();
        list.sort_by_key(order);
        list
    })
}

/// A metric as the host has it of scores; -1 where it is not defined.
fn of_scores(metric: Metric, column: &[(f64, bool)], list: &[u32]) -> f64 {
    let row = |&row: &u32| column.get(row as usize).copied();
    let rows: Vec<(f64, bool)> = (list.iter().map(row))
        .map(|row| row.unwrap_or((f64::NAN, false)))
        .collect();
    let (scores, truths): (Vec<f64>, Vec<bool>) = rows.iter().copied().unzip();
    let of = |wanted: bool| -> Vec<f64> {
        let of = rows.iter().filter(|(_, truth)| *truth == wanted);
        of.map(|&(score, _)| score).collect()
    };
    let (positives, others) = (of(true), of(false));
    let of_links = |value: f64| match positives.is_empty() && !value.is_infinite() {
        true if scores.iter().all(|score| !score.is_nan()) => -1.0,
        _ => value,
    };
    match metric {
        Metric::RocAuc => roc_auc(&scores, &truths).unwrap_or(-1.0),
        Metric::AveragePrecision => average_precision(&scores, &truths).unwrap_or(-1.0),
        Metric::HitsAt(k) => of_links(hits_at(k, &positives, &others)),
        _ => of_links(mean_reciprocal_rank(&positives, &others)),
    }
}

/// Every kind of scores, tied and not, in segments that end about the ends of chunks, columns at once and in parts.
pub fn ranks<B: Backend>(backend: &B, scale: Scale) {
    fn every<B: Backend, E: Element>(backend: &B, scale: Scale) {
        let chunk = RANKS_PER_CHUNK as usize;
        let mut cases = vec![
            Case::labels(500, [1, 1], 3),
            Case::labels(510, [40, 3], 2),
            Case::labels(520, [300, 7], 100),
            Case::labels(530, [scale.pick(3 * chunk, 70 * chunk) + 500, 1], 17),
            Case::labels(540, [60, scale.pick(90, 700)], 9),
            Case::classes::<E>(550, [200, 1]),
            Case::classes::<E>(560, [250, 2]),
            Case::classes::<E>(570, [170, 3]),
            Case::classes::<E>(580, [scale.pick(150, 5000), 41]),
            Case::given(590, 500, 37),
            Case::given(600, 90, 1),
        ];
        // The last columns overlap with those before.
        let mut parts = Case::labels(610, [50, 7], 12);
        parts.at_once = 3;
        cases.push(parts);
        // A split has nothing, and another all there is.
        let mut whole = Case::given(620, chunk + 1, 200);
        whole.splits = [Vec::new(), (0..=chunk as u32).collect(), Vec::new()];
        cases.push(whole);
        for case in cases {
            case.check::<B, E>(backend);
        }
    }
    every::<B, f16>(backend, scale);
    every::<B, bf16>(backend, scale);
    every::<B, f32>(backend, scale);
}

/// A NaN is of its column and split alone, zeros of either sign and infinities of one are tied, and shares that come to 1 are not. A row
/// that there is not has a NaN for a score.
pub fn ranks_of_extremes<B: Backend>(backend: &B, _: Scale) {
    let mut case = Case::labels(700, [120, 2], 9);
    for (at, score) in case.scores.iter_mut().enumerate() {
        *score = match at % 11 {
            0 => f32::INFINITY,
            3 => f32::NEG_INFINITY,
            5 => -0.0,
            7 => 0.0,
            _ => *score,
        };
    }
    case.check::<B, f16>(backend);
    let row = case.splits[1][4] as usize;
    case.scores[2 * row + 1] = -f32::NAN;
    case.splits[2].push(120);
    let nans = |words: &[u64]| {
        words
            .iter()
            .skip(2)
            .step_by(RANKS)
            .copied()
            .collect::<Vec<_>>()
    };
    let words = case.words::<B, f32>(backend);
    assert_eq!(nans(&words[..6 * RANKS]), [0, 0, 1, 0, 1, 1]);
    case.check::<B, f32>(backend);

    // from sklearn.metrics import roc_auc_score, average_precision_score
    let mut tied = Case::given(0, 10, 2);
    tied.scores = vec![0.1, 0.4, 0.4, 0.4, 0.8, 0.8, 0.2, 0.9, 0.3, 0.3];
    tied.labels = Some(vec![0, 1, 1, 0, 1, 0, 0, 1, 1, 0]);
    tied.splits = [(0..10).collect(), Vec::new(), Vec::new()];
    let words = tied.words::<B, f32>(backend);
    for (at, metric, expected) in [
        (0, Metric::RocAuc, 0.76),
        (1, Metric::AveragePrecision, 0.7249999999999999),
    ] {
        let words = words[at * 3 * RANKS..]
            .first_chunk()
            .expect("the first split");
        let found = of_ranks(metric, Ranks::from_words(*words), 10).expect("both there are");
        assert!((found - expected).abs() < 1e-12, "{metric}: {found}");
    }

    // Logits so far apart that all shares are 0 or 1 in double, and yet in order.
    let mut far = Case::classes::<f32>(720, [4, 3]);
    far.scores = [800.0, 801.0, 802.0, 803.0]
        .into_iter()
        .flat_map(|x| [0.0, x, 0.0])
        .collect();
    far.labels = Some(vec![0, 0, 1, 1]);
    far.splits = [(0..4).collect(), Vec::new(), Vec::new()];
    let words = far.words::<B, f32>(backend);
    let second = words[3 * RANKS..].first_chunk().expect("the second class");
    let auc = of_ranks(Metric::RocAuc, Ranks::from_words(*second), 4);
    assert_eq!(auc, Some(1.0));
}

/// Dot products of pairs, in the bits of the CPU, and close to those in double.
pub fn scores_of_pairs<B: Backend>(backend: &B, scale: Scale) {
    fn score<B: Backend, E: Element>(
        backend: &B,
        columns: usize,
        rows: [&[f32]; 2],
        pairs: &[[u32; 2]],
    ) -> Vec<f32> {
        let [a, b] = rows.map(|rows| matrix(backend, (rows.len() / columns, columns), rows));
        let end = |of: usize| {
            words(
                backend,
                &pairs.iter().map(|pair| pair[of]).collect::<Vec<_>>(),
            )
        };
        let mut scores = Array::from_slice(backend, &vec![-1.0; pairs.len()], KIND).expect("room");
        ops::score_pairs::<B, E>(backend, [&a, &b], [&end(0), &end(1)], &mut scores)
            .expect("legal pairs");
        scores.to_vec(backend).expect("no failure before")
    }
    fn every<B: Backend, E: Element>(backend: &B, scale: Scale) {
        for (seed, (columns, count)) in (800..).zip([
            (1, 1),
            (16, 130),
            (41, scale.pick(77, 9000)),
            (300, 33),
            (7, 0),
        ]) {
            let rows = [50, 30];
            let [a, b] =
                [0, 1].map(|of| Random(seed + 10 * of as u32).uniform::<E>(rows[of] * columns));
            let [firsts, seconds] =
                [0, 1].map(|of| Random(seed + 30 + of as u32).below(rows[of] as u32, count));
            let mut pairs: Vec<[u32; 2]> = firsts
                .into_iter()
                .zip(seconds)
                .map(|(a, b)| [a, b])
                .collect();
            let found = score::<B, E>(backend, columns, [&a, &b], &pairs);
            let plain = score::<_, E>(&Cpu::new(), columns, [&a, &b], &pairs);
            assert_eq!(crate::input::bits(&found), crate::input::bits(&plain));
            for (found, &[first, second]) in found.iter().zip(&pairs) {
                let [a, b] = [(&a, first), (&b, second)]
                    .map(|(rows, row)| &rows[row as usize * columns..][..columns]);
                let expected: f64 = a
                    .iter()
                    .zip(b)
                    .map(|(&a, &b)| f64::from(a) * f64::from(b))
                    .sum();
                let near = (f64::from(*found) - expected).abs() <= 6e-8 * expected.abs() + 1e-12;
                assert!(near, "{columns} columns: {found} for {expected}");
            }
            // What is no row has no score.
            pairs.extend([[50, 0], [0, 30], [u32::MAX; 2]]);
            let found = score::<B, E>(backend, columns, [&a, &b], &pairs);
            assert!(found[count..].iter().all(|score| score.is_nan()));
            assert!(found[..count].iter().all(|score| !score.is_nan()));
        }
    }
    every::<B, f16>(backend, scale);
    every::<B, bf16>(backend, scale);
    every::<B, f32>(backend, scale);
}

/// What does not fit is refused, with the operand's name.
pub fn misfits_are_refused<B: Backend>(backend: &B, _: Scale) {
    let predictions = matrix::<B, f16>(backend, (3, 2), &[0.0; 6]);
    let targets =
        |shape: (usize, usize)| matrix::<B, f32>(backend, shape, &vec![0.0; shape.0 * shape.1]);
    let run = |shape, rows: usize, len: usize| {
        let mut sums = Array::from_slice(backend, &vec![0.0; len], KIND).expect("room");
        let (targets, splits) = (targets(shape), words(backend, &vec![0; rows]));
        ops::sum_errors(backend, &predictions, &targets, &splits, &mut sums)
            .map_err(|error| error.to_string())
    };
    run((3, 2), 3, 12).expect("legal");
    for (shape, rows, len, told) in [
        ((2, 2), 3, 12, "rows of the targets should be 3, is 2"),
        ((3, 1), 3, 12, "columns of the targets should be 2, is 1"),
        ((3, 2), 4, 12, "splits should be 3, is 4"),
        ((3, 2), 3, 6, "sums should be 12, is 6"),
    ] {
        let error = run(shape, rows, len).expect_err(told);
        assert_eq!(error, format!("sum_errors: {told}"));
    }

    let (words, few) = (words(backend, &[0; 3]), words(backend, &[0; 2]));
    let floats = Array::from_slice(backend, &[0.0_f32; 3], KIND).expect("room");
    let ranked = |scores: Scores<'_, B, f16>, columns: usize, len: usize| {
        let mut ranking =
            Ranking::of_columns(backend, [&[0], &[2, 1], &[]], columns).expect("room");
        let mut sums = Array::from_slice(backend, &vec![0; len], KIND).expect("room");
        let of = [RankSum::Concordant];
        ops::sum_ranks(backend, scores, &of, &mut ranking, &mut sums)
            .map_err(|error| error.to_string())
    };
    let (logits, right) = (&predictions, targets((3, 2)));
    let labels = |targets| Scores::Labels { logits, targets };
    let classes = |labels| Scores::Classes { logits, labels };
    ranked(labels(&right), 2, 18).expect("legal");
    ranked(classes(&words), 1, 9).expect("legal");
    for (scores, columns, len, told) in [
        (
            labels(&targets((3, 3))),
            2,
            18,
            "columns of the targets should be 2, is 3",
        ),
        (classes(&few), 1, 9, "labels should be 3, is 2"),
        (labels(&right), 2, 9, "sums should be 18, is 9"),
        (
            labels(&right),
            3,
            18,
            "3 columns from column 0 of 2, and splits that begin at 1 and 3 of 3 rows",
        ),
    ] {
        let error = ranked(scores, columns, len).expect_err(told);
        assert_eq!(error, format!("sum_ranks: {told}"));
    }
    let given = Scores::Given {
        scores: &floats,
        positives: &few,
    };
    let mut ranking = Ranking::new(backend, [&[0], &[2, 1], &[]], 1).expect("room");
    let mut sums = Array::from_slice(backend, &[0; 9], KIND).expect("room");
    let error = ops::sum_ranks(backend, given, &[RankSum::Hits(1)], &mut ranking, &mut sums);
    let told = "sum_ranks: positives should be 3, is 2";
    assert_eq!(error.expect_err(told).to_string(), told);

    let mut scores = floats;
    let narrow = matrix::<B, f16>(backend, (3, 1), &[0.0; 3]);
    for (b, seconds, told) in [
        (&narrow, &words, "columns of b should be 2, is 1"),
        (logits, &few, "seconds should be 3, is 2"),
    ] {
        let error = ops::score_pairs(backend, [logits, b], [&words, seconds], &mut scores);
        let error = error.expect_err(told).to_string();
        assert_eq!(error, format!("score_pairs: {told}"));
    }
    let ends = [&few, &few];
    let error = ops::score_pairs(backend, [logits, logits], ends, &mut scores)
        .expect_err("a score too many");
    assert_eq!(error.to_string(), "score_pairs: scores should be 2, is 3");
}
