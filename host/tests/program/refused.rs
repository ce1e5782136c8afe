//! What is refused, in one line, and where.

use super::setup::{compiled, graph, numbers, program, runner};
use halfgnn::backend::cpu::Cpu;
use halfgnn::nn::Norm;
use halfgnn::ops::{Accumulate, CodeFormat, SpmmPolicy};
use halfgnn::program::passes::fuse::Fuse;
use halfgnn::program::passes::{Pass, Quantize, Recompute, Reorder};
use halfgnn::program::{Builder, Program, differentiate};
use halfgnn::tensor::Precision;

fn linear() -> Program {
    program(
        Precision::Float,
        (graph().vertices(), 4),
        Norm::None,
        |g, edges, x| {
            let w = g.weight("w", (4, 2));
            let y = g.matmul(x, w);
            g.aggregate(edges, y)
        },
    )
}

/// The error of a formula over papers and authors.
fn refused(build: impl FnOnce(&mut Builder)) -> String {
    let mut g = Builder::new(Precision::Half);
    build(&mut g);
    let papers = g.vertices("more papers", 3);
    let x = g.input("more", papers, 2);
    g.finish(x).expect_err("a wrong formula").to_string()
}

#[test]
fn operands_that_do_not_fit_are_named() {
    let text = refused(|g| {
        let papers = g.vertices("papers", 3);
        let x = g.input("x", papers, 5);
        let w = g.weight("w", (4, 2));
        let product = g.matmul(x, w);
        // What comes behind the first error adds none.
        let _ = g.relu(product);
    });
    assert_eq!(
        text,
        "Program: matmul of x (papers x 5 half) and w (4 x 2 half) in the form NN: inner sizes or formats differ"
    );
    let text = refused(|g| {
        let (papers, authors) = (g.vertices("papers", 3), g.vertices("authors", 4));
        let x = g.input("x", papers, 5);
        let writes = g.edges("writes", authors, papers, Norm::Right);
        let _ = g.aggregate(writes, x);
    });
    assert_eq!(
        text,
        "Program: aggregate over `writes` reads elements with a row for each of `authors`, and x (papers x 5 half) is another value"
    );
}

#[test]
fn names_probabilities_and_blocks_are_checked() {
    let twice = refused(|g| {
        let _ = [g.bias("b", 2), g.bias("b", 2)];
    });
    assert_eq!(twice, "Program: two inputs or parameters are called b");
    let dropout = refused(|g| {
        let papers = g.vertices("papers", 3);
        let x = g.input("x", papers, 5);
        let _ = g.dropout(x, 1.0);
    });
    assert_eq!(dropout, "Program: dropout probability 1 is not in [0, 1)");
    let blocks = refused(|g| {
        let _ = g.block_diagonal("w", (6, 4), 4);
    });
    assert_eq!(
        blocks,
        "Program: w: 6 x 4 is not 4 blocks of one size; take a divisor of both"
    );
}

#[test]
fn passes_and_gradients_come_in_their_order() {
    let mut program = linear();
    let early = Recompute.run(&mut program).expect_err("no backward list");
    assert!(
        early.to_string().contains("differentiate it before"),
        "{early}"
    );
    differentiate(&mut program).expect("parameters");
    let twice = differentiate(&mut program).expect_err("a second time");
    assert!(
        twice.to_string().contains("has a backward pass already"),
        "{twice}"
    );
    let late = Reorder.run(&mut program).expect_err("a backward list");
    assert!(
        late.to_string()
            .contains("before the program is differentiated"),
        "{late}"
    );
    let build = |g: &mut Builder| {
        let papers = g.vertices("papers", 3);
        let x = g.input("x", papers, 5);
        let w = g.weight("w", (5, 2));
        let (product, bias) = (g.matmul(x, w), g.bias("b", 2));
        g.add_bias(product, bias)
    };
    let mut g = Builder::new(Precision::Half);
    let y = build(&mut g);
    let mut fused = g.finish(y).expect("operands fit");
    Fuse.run(&mut fused).expect("a forward list");
    let fused = differentiate(&mut fused).expect_err("an epilogue");
    assert!(fused.to_string().contains("differentiate first"), "{fused}");
}

/// A sum of 8-bit values is rounded in one way.
#[test]
fn quantized_messages_have_no_other_policy() {
    let mut program = program(Precision::Half, (10, 4), Norm::Both, |g, edges, x| {
        let w = g.weight("w", (4, 2));
        let y = g.matmul(x, w);
        g.aggregate(edges, y)
    });
    program.set_policy(SpmmPolicy {
        accumulate: Accumulate::Half,
        ..SpmmPolicy::default()
    });
    assert!(program.listing().contains(", Discretized in Half"));
    differentiate(&mut program).expect("parameters");
    let format = CodeFormat::Int8;
    let refused = Quantize { format }.run(&mut program).expect_err("in half");
    let refused = refused.to_string();
    assert!(refused.contains("summed in one way"), "{refused}");
}

#[test]
fn a_runner_is_read_and_written_in_the_order_of_a_step() {
    let backend = Cpu::new();
    let program = compiled(linear(), false);
    let (output, weight) = (
        program.output().expect("one"),
        program.named("w").expect("one"),
    );
    let mut runner = runner(&backend, program, Norm::None);
    let early = runner.backward().expect_err("no forward pass").to_string();
    assert!(early.contains("follows a forward pass"), "{early}");
    assert!(runner.gradient(weight).is_err());
    assert!(
        runner.write(output, &[0.0]).is_err(),
        "an operator writes it"
    );
    assert!(runner.read(output).is_err(), "nothing is there");
    runner.forward().expect("a forward pass");
    let logits = runner.read(output).expect("logits");
    runner
        .write_seed(&numbers(1, logits.len()))
        .expect("memory");
    runner.backward().expect("a backward pass");
    assert!(runner.backward().is_err(), "twice");
    assert_eq!(runner.gradient(weight).expect("a gradient").len(), 8);
}
