//! Shadow operators.

use super::{OperatorCase, Results};
use crate::input::{matrix, read, unwritten};
use half::{bf16, f16};
use halfgnn::Error;
use halfgnn::backend::Backend;
use halfgnn::ops::shadow;
use halfgnn::tensor::{Element, Matrix};

type Operator<B, E> = fn(&B, &Matrix<B, E>, &mut Matrix<B, E>) -> Result<(), Error>;

pub(super) fn cases<B: Backend + 'static>() -> Vec<OperatorCase<B>> {
    let mut cases = Vec::new();
    of_element::<B, f16>(&mut cases);
    of_element::<B, bf16>(&mut cases);
    of_element::<B, f32>(&mut cases);
    cases
}

fn of_element<B: Backend + 'static, E: Element>(cases: &mut Vec<OperatorCase<B>>) {
    let operators: [(&str, Operator<B, E>, bool); 5] = [
        ("exp", shadow::exp, false),
        ("softmax", shadow::softmax, false),
        ("log_softmax", shadow::log_softmax, false),
        ("sum", shadow::sum, true),
        ("mean", shadow::mean, true),
    ];
    for (name, operator, of_one) in operators {
        let name = format!("shadow {name} {}", E::PRECISION);
        cases.push(OperatorCase::new(name, move |backend: &B, operands| {
            let shape = (90, 41);
            let x = matrix::<B, E>(backend, shape, &operands.mixed::<E>(shape.0 * shape.1));
            let columns = if of_one { 1 } else { shape.1 };
            let mut y = unwritten::<B, E>(backend, (shape.0, columns));
            operator(backend, &x, &mut y).expect("a legal operator");
            Results::rows(&read(backend, &y), columns)
        }));
    }
}
