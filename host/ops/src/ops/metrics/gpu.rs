//! What metrics are made of, on a GPU: two launches for sums, which those of ranks have behind a sort and a scan.

use super::{
    MetricsOperators, RANKS, RankKeysOperands, RankSum, ScorePairsOperands, Scores,
    SumErrorsOperands, SumRanksOperands,
};
use crate::backend::gpu::{Gpu, dense_config, entry, narrow, stride_vectors};
use crate::driver::Driver;
use crate::error::Error;
use crate::ops::Checked;
use crate::ops::sort::{WORDS, no_items};
use crate::tensor::Element;
use halfgnn_contract::DevicePtr;
use halfgnn_contract::elementwise::THREADS_PER_CTA;
use halfgnn_contract::metrics::{
    self as contract, COLUMN_SUMS, ERROR_SHARED_BYTES, ErrorParams, PairScoreParams,
    RANKS_PER_CHUNK, ROWS_PER_CHUNK, RankKeysParams, RankSumsParams, SPLITS, SUM_BYTES,
};
use halfgnn_contract::scan::{self, ScanParams};
use halfgnn_contract::spmm::lanes_log2;

impl<D: Driver> MetricsOperators for Gpu<D> {
    fn sum_errors<E: Element>(
        &self,
        operands: Checked<SumErrorsOperands<'_, Self, E>>,
    ) -> Result<(), Error> {
        const NAME: &str = "sum_errors";
        let of = operands.into_inner();
        let rows = of.predictions.rows() as u64;
        let columns = narrow(NAME, "columns", of.predictions.columns())?;
        let chunks = rows.div_ceil(ROWS_PER_CHUNK.into());
        let results = u64::from(columns) * u64::from(COLUMN_SUMS);
        let partials = self.lend(chunks.saturating_mul(2 * results))?;
        let params = ErrorParams {
            predictions: self.matrix(of.predictions)?,
            targets: self.matrix(of.targets)?,
            splits: self.array(of.splits)?,
            partials: DevicePtr::new(partials.address()),
            result: self.array(of.sums)?,
            rows,
            chunks,
            columns,
            stride: narrow(NAME, "columns", of.predictions.stride())?,
            target_stride: narrow(NAME, "columns", of.targets.stride())?,
            reserved: 0,
        };
        let of_chunks = dense_config(NAME, chunks, 1, ERROR_SHARED_BYTES)?;
        let of_results = dense_config(NAME, results, 1, SUM_BYTES)?;
        // SAFETY: the operator checked that there is a target of each prediction, a split a row and memory for the
        // sums; the workspace has a double for each sum of each chunk, and is held until both launches are under way.
        unsafe {
            self.launch(entry::<E>(NAME)?, of_chunks, &params)?;
            self.launch("reduce_error_sums", of_results, &params)
        }
    }

    fn score_pairs<E: Element>(
        &self,
        operands: Checked<ScorePairsOperands<'_, Self, E>>,
    ) -> Result<(), Error> {
        const NAME: &str = "score_pairs";
        let of = operands.into_inner();
        let pairs = of.firsts.len() as u64;
        let vectors = stride_vectors(NAME, of.a)?;
        let lanes_log2 = lanes_log2(vectors);
        let params = PairScoreParams {
            a: self.matrix(of.a)?,
            b: self.matrix(of.b)?,
            firsts: self.array(of.firsts)?,
            seconds: self.array(of.seconds)?,
            scores: self.array(of.scores)?,
            pairs,
            a_rows: of.a.rows() as u64,
            b_rows: of.b.rows() as u64,
            vectors,
            lanes_log2,
        };
        let ctas = pairs.div_ceil(u64::from(THREADS_PER_CTA >> lanes_log2));
        let config = dense_config(NAME, ctas, 1, 0)?;
        // SAFETY: the operator checked that both matrices have the same columns, and there are two rows and a score for
        // each pair, which are compared with the rows that there are.
        unsafe { self.launch(entry::<E>(NAME)?, config, &params) }
    }

    fn rank_keys<E: Element>(
        &self,
        operands: Checked<RankKeysOperands<'_, Self, E>>,
    ) -> Result<(), Error> {
        const NAME: &str = "sum_ranks";
        let of = operands.into_inner();
        let none = (DevicePtr::NULL, 0);
        let (scores, stride, targets, labels, kind) = match of.scores {
            Scores::Labels { logits, targets } => (
                self.matrix(logits)?,
                logits.stride(),
                (self.matrix(targets)?, targets.stride()),
                DevicePtr::NULL,
                contract::scores::LABELS,
            ),
            Scores::Classes { logits, labels } => (
                self.matrix(logits)?,
                logits.stride(),
                none,
                self.array(labels)?,
                match logits.columns() {
                    2 => contract::scores::TWO_CLASSES,
                    _ => contract::scores::CLASSES,
                },
            ),
            Scores::Given { scores, positives } => (
                self.array(scores)?,
                1,
                none,
                self.array(positives)?,
                contract::scores::GIVEN,
            ),
        };
        let listed = narrow(NAME, "rows", of.list.len())?;
        let params = RankKeysParams {
            scores,
            targets: targets.0,
            labels,
            list: self.array(of.list)?,
            keys: self.array(of.keys)?,
            segments: self.array(of.segments)?,
            rows: of.scores.rows() as u64,
            listed,
            second: of.begins[0],
            third: of.begins[1],
            first_column: narrow(NAME, "columns", of.first_column)?,
            columns: narrow(NAME, "columns", of.columns)?,
            all_columns: narrow(NAME, "columns", of.scores.columns())?,
            stride: narrow(NAME, "columns", stride)?,
            target_stride: narrow(NAME, "columns", targets.1)?,
            kind,
            reserved: 0,
        };
        let ctas = u64::from(listed.div_ceil(THREADS_PER_CTA));
        let config = dense_config(NAME, ctas, 1, 0)?;
        // SAFETY: the operator checked that there is a target or a label of each row, that the columns are some of the
        // scores', and that there are a key and a segment of each item. What the list names is compared with the rows.
        unsafe { self.launch(entry::<E>("rank_keys")?, config, &params) }
    }

    fn sum_ranks(&self, operands: Checked<SumRanksOperands<'_, Self>>) -> Result<(), Error> {
        const NAME: &str = "sum_ranks";
        let of = operands.into_inner();
        let items = narrow(NAME, "items", of.keys.len())?;
        let listed = narrow(NAME, "rows", of.listed)?;
        let [second, third] = of.begins;
        let longest = second.max(third - second).max(listed - third);
        let chunks = longest.div_ceil(RANKS_PER_CHUNK);
        let segments = narrow(NAME, "columns", of.columns)? * SPLITS;
        // The doubles first, so that they are aligned.
        let partial_words = 2 * u64::from(chunks) * u64::from(segments);
        let scan_words = scan::partial_words(items.into());
        let workspace = self.lend(partial_words + u64::from(items) + scan_words)?;
        let at = |words: u64| workspace.address() + words * 4;
        let positives = DevicePtr::new(at(partial_words));
        let result = self.array::<u64, u64>(of.sums)?;
        let params = RankSumsParams {
            keys: self.array(of.keys)?,
            segments: self.array(of.segments)?,
            positives,
            partials: DevicePtr::new(at(0)),
            result,
            items,
            listed,
            second,
            third,
            chunks,
            most: 0,
        };
        let counted = ScanParams {
            words: positives,
            partials: DevicePtr::new(at(partial_words + u64::from(items))),
            result: positives,
            ..no_items(items.into())
        };
        let truths = dense_config(NAME, items.div_ceil(THREADS_PER_CTA).into(), 1, 0)?;
        let sums = dense_config(NAME, chunks.into(), segments, SUM_BYTES)?;
        let results = dense_config(NAME, segments.into(), 1, SUM_BYTES)?;
        // SAFETY: the operator checked that there are a key and a segment of each item of each column, and words for
        // the results of each sum; the workspace has a word an item, the partial sums of a scan and a double for each
        // chunk of each segment, and is held until all launches are under way.
        unsafe {
            self.launch("rank_truths", truths, &params)?;
            self.scan(WORDS, &counted)?;
            for (i, &kind) in of.of.iter().enumerate() {
                let (sum, reduce, most) = match kind {
                    RankSum::Concordant => ("sum_concordant", "reduce_rank_counts", 0),
                    RankSum::Hits(most) => ("sum_hits", "reduce_rank_counts", most),
                    RankSum::Precisions => ("sum_precisions", "reduce_rank_sums", 0),
                    RankSum::ReciprocalRanks => ("sum_reciprocal_ranks", "reduce_rank_sums", 0),
                };
                let column = i as u64 * of.all_columns as u64 + of.first_column as u64;
                let words = column * u64::from(SPLITS) * RANKS as u64;
                let params = RankSumsParams {
                    result: DevicePtr::new(result.address() + words * 8),
                    most,
                    ..params
                };
                self.launch(sum, sums, &params)?;
                self.launch(reduce, results, &params)?;
            }
        }
        Ok(())
    }
}
