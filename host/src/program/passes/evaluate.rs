//! A program for evaluation, of one for training.

use super::Pass;
use crate::error::Error;
use crate::nn::Statistics;
use crate::program::list::{Program, refuse};
use crate::program::operator::{Activate, Operator, Take};

/// The pass. It leaves dropout out and has batch normalisations read what an evaluation reads. Values keep their numbers, so that
/// parameters of the program for training are those of the same values.
#[derive(Clone, Copy, Debug)]
pub struct Evaluate;

impl Pass for Evaluate {
    fn name(&self) -> &'static str {
        "evaluate"
    }

    fn run(&self, program: &mut Program) -> Result<(), Error> {
        if program.seed.is_some() {
            return refuse("a program with a backward list is for training; evaluate the program before it is differentiated".into());
        }
        let mut number = 0;
        while number < program.nodes.len() {
            match &mut program.nodes[number].operator {
                Operator::Matmul(op) => op.drop = None,
                Operator::Activate(op) => op.drop = None,
                Operator::Standardize { evaluates, .. } => *evaluates = true,
                Operator::AdditiveAttention(op) => op.drop = None,
                Operator::DotAttention(op) => op.drop = None,
                Operator::Attention(op) => {
                    (op.drop, op.trains) = (None, false);
                    program.nodes[number].results.truncate(1);
                }
                Operator::BatchStatistics(op) => {
                    op.take = match op.evaluate_with {
                        Statistics::Batch => Take::Batch,
                        Statistics::Running => Take::Running,
                    };
                    // All ranks carry the same ones on.
                    if op.take == Take::Running {
                        op.of_rank = None;
                        program.renew_scratch(number);
                    }
                }
                _ => {}
            }
            match leave_out(program, number) {
                true => {}
                false => number += 1,
            }
        }
        Ok(())
    }
}

/// Leaves an activation out that does nothing any more.
fn leave_out(program: &mut Program, number: usize) -> bool {
    let x = match program.nodes[number].operator {
        Operator::Activate(Activate {
            x,
            add: None,
            bias: None,
            relu: false,
            drop: None,
        })
        | Operator::DropRows { x, .. } => x,
        _ => return false,
    };
    let result = program.nodes[number].results[0];
    if program.kept.contains(&result) {
        return false;
    }
    program.remove(number);
    for node in &mut program.nodes[number..] {
        node.operator.rename(result, x);
    }
    if program.output == Some(result) {
        program.output = Some(x);
    }
    true
}
