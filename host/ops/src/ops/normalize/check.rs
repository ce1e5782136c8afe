//! Which operands normalisations and weighted sums take.

use super::{
    BatchStatisticsOperands, CombineOperands, DotOperands, MergeStatisticsOperands, Normalization,
    NormalizeBackwardOperands, NormalizeOperands, RunningStatisticsOperands,
};
use crate::backend::Storage;
use crate::error::Error;
use crate::ops::Operator;
use crate::ops::check::{expect_epsilon, expect_len, expect_shape};
use crate::tensor::Element;

const Y: [&str; 2] = ["rows of y", "columns of y"];
const STATISTICS: [&str; 2] = ["rows of the statistics", "columns of the statistics"];
const RUNNING: [&str; 2] = [
    "rows of the running statistics",
    "columns of the running statistics",
];

impl<B: Storage, E: Element> Operator for CombineOperands<'_, B, E> {
    const NAME: &'static str = "combine";

    fn check(&self) -> Result<(), Error> {
        let (rows, op, x, y) = (self.rows, self.op, self.x, &*self.y);
        for (operand, matrix) in [("rows of x", x), ("rows of y", y)] {
            Error::expect(Self::NAME, operand, rows, matrix.rows().min(rows))?;
        }
        Error::expect(Self::NAME, "columns of y", x.columns(), y.columns())?;
        expect_epsilon(Self::NAME, op.epsilon)?;
        expect_len(Self::NAME, "row factors", rows, op.x_scale)
    }
}

impl<B: Storage, E: Element> Operator for BatchStatisticsOperands<'_, B, E> {
    const NAME: &'static str = "batch_statistics";

    fn check(&self) -> Result<(), Error> {
        if self.x.rows() == 0 {
            return Err(Error::Unsupported {
                operator: Self::NAME,
                reason: "a matrix without rows has no mean".into(),
            });
        }
        let shape = (2, self.x.columns());
        expect_shape(Self::NAME, RUNNING, shape, self.running)?;
        expect_shape(Self::NAME, STATISTICS, shape, self.statistics)
    }
}

impl<B: Storage> Operator for RunningStatisticsOperands<'_, B> {
    const NAME: &'static str = "running_statistics";

    fn check(&self) -> Result<(), Error> {
        let running = self.running;
        expect_shape(Self::NAME, RUNNING, (2, running.columns()), running)?;
        expect_shape(Self::NAME, STATISTICS, running.shape(), self.statistics)
    }
}

impl<B: Storage> Operator for MergeStatisticsOperands<'_, B> {
    const NAME: &'static str = "merge_statistics";

    fn check(&self) -> Result<(), Error> {
        let (parts, statistics) = (&self.parts, &*self.statistics);
        let shape = (2, statistics.columns());
        expect_shape(Self::NAME, STATISTICS, shape, statistics)?;
        if let Some(running) = &self.running {
            expect_shape(Self::NAME, RUNNING, shape, running)?;
        }
        let floats = 2 * statistics.stride() * parts.counts.len();
        Error::expect(
            Self::NAME,
            "floats of the moments",
            floats,
            parts.moments.len(),
        )?;
        let len = parts.deviations.len();
        Error::expect(Self::NAME, "floats of the deviations", floats, len)
    }
}

impl<B: Storage, E: Element> Operator for NormalizeOperands<'_, B, E> {
    const NAME: &'static str = "normalize";

    fn check(&self) -> Result<(), Error> {
        expect_shape(Self::NAME, Y, self.x.shape(), self.y)?;
        expect_normalization(Self::NAME, self.op, self.x.columns())
    }
}

impl<B: Storage, E: Element> Operator for NormalizeBackwardOperands<'_, B, E> {
    const NAME: &'static str = "normalize_backward";

    fn check(&self) -> Result<(), Error> {
        let (x, gradients) = (self.x, &self.gradients);
        expect_shape(Self::NAME, ["rows of d", "columns of d"], x.shape(), self.d)?;
        expect_normalization(Self::NAME, self.op, x.columns())?;
        let row = (1, x.columns());
        let what = [
            "rows of the scales' gradient",
            "columns of the scales' gradient",
        ];
        expect_shape(Self::NAME, what, row, gradients.weight)?;
        let what = [
            "rows of the shifts' gradient",
            "columns of the shifts' gradient",
        ];
        expect_shape(Self::NAME, what, row, gradients.bias)?;
        if let Some(coding) = &gradients.coding {
            coding.check(Self::NAME, self.d)?;
        }
        expect_len(Self::NAME, "row factors", x.rows(), gradients.row_scale)
    }
}

impl<B: Storage, E: Element> Operator for DotOperands<'_, B, E> {
    const NAME: &'static str = "dot";

    fn check(&self) -> Result<(), Error> {
        expect_shape(Self::NAME, Y, self.x.shape(), self.y)?;
        let what = ["rows of the result", "columns of the result"];
        expect_shape(Self::NAME, what, (1, 1), self.result)
    }
}

/// A normalisation of `columns` columns.
pub(crate) fn expect_normalization<B: Storage>(
    operator: &'static str,
    op: &Normalization<'_, B>,
    columns: usize,
) -> Result<(), Error> {
    expect_shape(operator, STATISTICS, (2, columns), op.statistics)?;
    let what = ["rows of the scales", "columns of the scales"];
    expect_shape(operator, what, (1, columns), op.weight)?;
    let what = ["rows of the shifts", "columns of the shifts"];
    expect_shape(operator, what, (1, columns), op.bias)
}
