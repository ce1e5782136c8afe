//! Which operands maxima take.

use super::{
    GroupMaximumBackwardOperands, GroupMaximumOperands, MaximumBackwardOperands, MaximumOperands,
};
use crate::backend::Storage;
use crate::error::Error;
use crate::ops::Operator;
use crate::ops::check::expect_shape;
use crate::tensor::Element;

const Y: [&str; 2] = ["rows of y", "columns of y"];
const D: [&str; 2] = ["rows of d", "columns of d"];
const DX: [&str; 2] = ["rows of dx", "columns of dx"];

impl<B: Storage, E: Element> Operator for MaximumOperands<'_, B, E> {
    const NAME: &'static str = "maximum";

    fn check(&self) -> Result<(), Error> {
        expect_shape(Self::NAME, Y, self.x.shape(), self.y)
    }
}

impl<B: Storage, E: Element> Operator for MaximumBackwardOperands<'_, B, E> {
    const NAME: &'static str = "maximum_backward";

    fn check(&self) -> Result<(), Error> {
        let shape = self.x.shape();
        expect_shape(Self::NAME, Y, shape, self.y)?;
        expect_shape(Self::NAME, D, shape, self.d)?;
        expect_shape(Self::NAME, DX, shape, self.dx)
    }
}

impl<B: Storage, E: Element> Operator for GroupMaximumOperands<'_, B, E> {
    const NAME: &'static str = "group_maximum";

    fn check(&self) -> Result<(), Error> {
        let (rows, columns) = self.x.shape();
        Error::expect(Self::NAME, "rows of the groups", rows, self.groups.rows())?;
        expect_shape(Self::NAME, Y, (self.groups.groups(), columns), self.y)
    }
}

impl<B: Storage, E: Element> Operator for GroupMaximumBackwardOperands<'_, B, E> {
    const NAME: &'static str = "group_maximum_backward";

    fn check(&self) -> Result<(), Error> {
        let (rows, columns) = self.x.shape();
        Error::expect(Self::NAME, "rows of the groups", rows, self.groups.rows())?;
        let of_groups = (self.groups.groups(), columns);
        expect_shape(Self::NAME, Y, of_groups, self.y)?;
        expect_shape(
            Self::NAME,
            ["rows of dy", "columns of dy"],
            of_groups,
            self.dy,
        )?;
        expect_shape(Self::NAME, DX, (rows, columns), self.dx)
    }
}
