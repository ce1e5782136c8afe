//! Batch normalisation inside the products that read its output.

use crate::ops::Form;
use crate::program::list::Program;
use crate::program::operator::Operator;
use crate::program::value::Value;

/// The rule: where products alone read a normalised matrix, as their first operand, each normalises what it reads. The normalised matrix
/// is then never stored.
pub(super) fn run(program: &mut Program) {
    let mut number = 0;
    while number < program.nodes.len() {
        let Operator::Normalize { norm, x } = program.nodes[number].operator else {
            number += 1;
            continue;
        };
        let result = program.nodes[number].results[0];
        let readers: Vec<usize> = program.readers(result).collect();
        let is_outside = program.output == Some(result) || program.kept.contains(&result);
        let all_can = readers.iter().all(|&reader| can(program, reader, result));
        if is_outside || readers.is_empty() || !all_can {
            number += 1;
            continue;
        }
        for reader in readers {
            if let Operator::Matmul(product) = &mut program.nodes[reader].operator {
                (product.a, product.norm) = (x, Some(norm));
            }
        }
        program.remove(number);
    }
}

fn can(program: &Program, reader: usize, value: Value) -> bool {
    let Operator::Matmul(product) = &program.nodes[reader].operator else {
        return false;
    };
    let operands = program.nodes[reader].operator.operands();
    let once = operands.iter().filter(|it| **it == value).count() == 1;
    let is_free = product.second.is_none() && product.norm.is_none();
    once && is_free
        && product.a == value
        && product.form != Form::NT
        && product.reads_own[0].is_none()
}
