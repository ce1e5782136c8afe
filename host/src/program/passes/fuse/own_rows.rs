//! The rows of a block's destinations, which are its first sources, read where they lie.

use crate::program::list::Program;
use crate::program::operator::Operator;
use crate::program::value::{Edges, Value};

/// The rule: products that read a copy of own rows read them of the matrix that the copy is of, where those are its first rows.
pub(super) fn run(program: &mut Program) {
    for number in 0..program.nodes.len() {
        let Operator::Matmul(mut product) = program.nodes[number].operator.clone() else {
            continue;
        };
        if let Some((edges, x)) = copied(program, product.a) {
            (product.a, product.reads_own[0]) = (x, Some(edges));
        }
        if let Some([a, _]) = &mut product.second
            && let Some((edges, x)) = copied(program, *a)
        {
            (*a, product.reads_own[1]) = (x, Some(edges));
        }
        program.nodes[number].operator = Operator::Matmul(product);
    }
    let mut number = 0;
    while number < program.nodes.len() {
        let result = program.nodes[number].results[0];
        let is_copy = matches!(program.nodes[number].operator, Operator::OwnRows { .. });
        let is_read = program.readers(result).next().is_some()
            || program.output == Some(result)
            || program.kept.contains(&result);
        match is_copy && !is_read {
            true => {
                program.remove(number);
            }
            false => number += 1,
        }
    }
}

/// The adjacency and the matrix of a value that is a copy of own rows.
fn copied(program: &Program, value: Value) -> Option<(Edges, Value)> {
    match program.nodes[program.writer(value)?].operator {
        Operator::OwnRows { edges, x } if !program.edges[edges.0].picks_own_rows => {
            Some((edges, x))
        }
        _ => None,
    }
}
