//! The gradient of a bias, next to the gradient of a weight of the same layer.

use crate::ops::Form;
use crate::program::list::Program;
use crate::program::operator::Operator;
use crate::program::value::Format;

/// The rule: sums of columns are a row more of the first product `aᵀ · b` whose `b` they are of.
pub(super) fn run(program: &mut Program) {
    let mut number = 0;
    while number < program.nodes.len() {
        let Some(product) = product(program, number) else {
            number += 1;
            continue;
        };
        let sums = program.nodes[number].results[0];
        if let Operator::Matmul(op) = &mut program.nodes[product].operator {
            op.column_sums = true;
        }
        program.nodes[product].results.push(sums);
        program.remove(number);
    }
}

fn product(program: &Program, number: usize) -> Option<usize> {
    let Operator::ColumnSums { x } = program.nodes[number].operator else {
        return None;
    };
    let sums = program.nodes[number].results[0];
    let is_of = |number: usize| match &program.nodes[number].operator {
        Operator::Matmul(op) => op.form == Form::TN && op.b == x && !op.column_sums,
        _ => false,
    };
    let product = program.readers(x).find(|&reader| is_of(reader))?;
    let is_element = program.values[x.0].format == Format::Element;
    // Nothing may read the sums before the product has them.
    let is_early = program.readers(sums).any(|reader| reader <= product);
    (is_element && !is_early).then_some(product)
}
