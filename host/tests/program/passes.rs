//! Passes by the text of a program before and after them.

use super::setup::{compiled, hidden, last, program};
use halfgnn::nn::{Gat as GatConfig, Gin as GinConfig, Norm};
use halfgnn::ops::CodeFormat;
use halfgnn::program::layers::{Appnp, Gat, Gcn, Gcnii, Gin, Layer, Sage};
use halfgnn::program::passes::fuse::Fuse;
use halfgnn::program::passes::{Evaluate, Quantize, Recompute, Reorder, apply};
use halfgnn::program::{Builder, Edges, Plan, Program, Value, differentiate};
use halfgnn::tensor::Precision;

/// A program of 10 vertices in half.
fn of(
    features: usize,
    norm: Norm,
    build: impl FnOnce(&mut Builder, Edges, Value) -> Value,
) -> Program {
    program(Precision::Half, (10, features), norm, build)
}

/// The text without the empty first line and the indentation of a test.
fn text(of: &str) -> String {
    let lines = of.lines().skip(1).map(str::trim_start);
    lines
        .map(|line| format!("{line}\n"))
        .collect::<String>()
        .trim_end()
        .to_owned()
        + "\n"
}

/// Two layers with dropouts. `docs/how-it-works/training-step.md` lists the kernels.
fn gcn(g: &mut Builder, edges: Edges, x: Value) -> Value {
    let y = g.layer(0, |g| {
        let x = g.dropout(x, 0.5);
        let y = Gcn { edges, outputs: 4 }.build(g, x);
        hidden(g, y)
    });
    g.layer(1, |g| {
        let y = g.dropout(y, 0.5);
        let y = Gcn { edges, outputs: 2 }.build(g, y);
        last(g, y)
    })
}

#[test]
fn the_backward_list_is_made_an_operator_at_a_time() {
    let mut program = of(8, Norm::Both, gcn);
    differentiate(&mut program).expect("parameters");
    assert_eq!(
        program.listing(),
        text(
            "
            %1 = activate x, dropout 0.5 #0 (kept)
            %3 = matmul %1 layers.0.weight
            %4 = aggregate edges %3
            %6 = activate %4, bias layers.0.bias
            %7 = activate %6, relu (kept)
            %8 = activate %7, dropout 0.5 #1 (kept)
            %10 = matmul %8 layers.1.weight
            %11 = aggregate edges %10
            %13 = activate %11, bias layers.1.bias
            backward
            %15 = column_sums seed
            %16 = aggregate edgesᵀ seed
            %17 = matmul %16 layers.1.weightᵀ
            %18 = matmul %8ᵀ %16
            %19 = activate_gradient %17, dropout 0.5 #1
            %20 = activate_gradient %19, where positive %7
            %21 = column_sums %20
            %22 = aggregate edgesᵀ %20
            %23 = matmul %1ᵀ %22
            "
        )
    );
}

#[test]
fn fuse_joins_activations_and_has_factors_and_masks_in_epilogues() {
    let mut program = of(8, Norm::Both, gcn);
    differentiate(&mut program).expect("parameters");
    apply(&mut program, &[&Fuse], |_, _| ()).expect("both lists");
    assert_eq!(
        program.to_string(),
        text(
            "
            input x: vertices x 8 half, 160 B
            parameter layers.0.weight: 8 x 4 half, 128 B
            parameter layers.0.bias: 1 x 4 float, 16 B
            parameter layers.1.weight: 4 x 2 half, 64 B
            parameter layers.1.bias: 1 x 2 float, 16 B
            %1 = activate x, dropout 0.5 #0: vertices x 8 half, 160 B, moves 320 B, kept for %23
            %3 = matmul %1 layers.0.weight, rows C[edges]: vertices x 4 half, 160 B, moves 448 B
            %4 = aggregate edges %3, operand is scaled: vertices x 4 half, 160 B, moves 160 B
            %8 = activate %4, bias layers.0.bias, relu, dropout 0.5 #1: vertices x 4 half, 160 B, moves 336 B, kept for %20
            %10 = matmul %8 layers.1.weight, rows C[edges]: vertices x 2 half, 160 B, moves 384 B
            %13 = aggregate edges %10, operand is scaled, bias layers.1.bias: vertices x 2 half, 160 B, moves 176 B
            backward
            %15 = column_sums seed: 1 x 2 float, 16 B, moves 176 B
            %24 = activate_gradient seed, rows R[edges]: vertices x 2 half, 160 B, moves 320 B
            %16 = aggregate edgesᵀ %24, operand is scaled: vertices x 2 half, 160 B, moves 160 B
            %20 = matmul %16 layers.1.weightᵀ, alpha 2, where positive %8: vertices x 4 half, 160 B, moves 544 B
            %18 = matmul %8ᵀ %16: 4 x 2 float, 64 B, moves 384 B
            %21 = column_sums %20: 1 x 4 float, 16 B, moves 176 B
            %25 = activate_gradient %20, rows R[edges]: vertices x 4 half, 160 B, moves 320 B
            %22 = aggregate edgesᵀ %25, operand is scaled: vertices x 4 half, 160 B, moves 160 B
            %23 = matmul %1ᵀ %22: 8 x 4 float, 128 B, moves 448 B
            gradient of layers.0.weight: %23
            gradient of layers.0.bias: %21
            gradient of layers.1.weight: %18
            gradient of layers.1.bias: %15
            output %13
            "
        )
    );
}

/// Three layers, of which the first two widen their rows.
fn sage(g: &mut Builder, edges: Edges, x: Value) -> Value {
    let y = g.layer(0, |g| {
        let y = Sage { edges, outputs: 8 }.build(g, x);
        hidden(g, y)
    });
    g.layer(1, |g| Sage { edges, outputs: 2 }.build(g, y))
}

#[test]
fn reorder_aggregates_what_is_narrower() {
    let mut program = of(4, Norm::Right, sage);
    assert_eq!(
        program.listing(),
        text(
            "
            %3 = matmul x layers.0.neighbours.weight
            %4 = aggregate edges %3
            %5 = matmul x layers.0.self.weight
            %6 = combine %4 + %5
            %8 = activate %6, bias layers.0.bias
            %9 = activate %8, relu
            %12 = matmul %9 layers.1.neighbours.weight
            %13 = aggregate edges %12
            %14 = matmul %9 layers.1.self.weight
            %15 = combine %13 + %14
            "
        )
    );
    let mut seen = Vec::new();
    apply(&mut program, &[&Reorder], |name, program| {
        seen.push((name.to_owned(), program.listing()))
    })
    .expect("a forward list");
    let after = text(
        "
        %16 = aggregate edges x
        %4 = matmul %16 layers.0.neighbours.weight
        %5 = matmul x layers.0.self.weight
        %6 = combine %4 + %5
        %8 = activate %6, bias layers.0.bias
        %9 = activate %8, relu
        %12 = matmul %9 layers.1.neighbours.weight
        %13 = aggregate edges %12
        %14 = matmul %9 layers.1.self.weight
        %15 = combine %13 + %14
        ",
    );
    assert_eq!(seen, [("reorder".to_owned(), after)]);
    let mut narrowing = of(8, Norm::None, |g, edges, x| {
        let w = g.weight("w", (8, 2));
        let sum = g.aggregate(edges, x);
        g.matmul(sum, w)
    });
    apply(&mut narrowing, &[&Reorder], |_, _| ()).expect("a forward list");
    assert_eq!(
        narrowing.listing(),
        "%4 = matmul x w\n%3 = aggregate edges %4\n"
    );
}

#[test]
fn fuse_adds_products_and_gradients_where_they_are_made() {
    assert_eq!(
        compiled(of(4, Norm::Right, sage), false).listing(),
        text(
            "
            %16 = aggregate edges x (kept)
            %9 = matmul %16 layers.0.neighbours.weight + x layers.0.self.weight, bias layers.0.bias, relu (kept)
            %12 = matmul %9 layers.1.neighbours.weight
            %14 = matmul %9 layers.1.self.weight
            %15 = aggregate edges %12, plus %14
            backward
            %19 = matmul %9ᵀ seed
            %20 = aggregate edgesᵀ seed
            %21 = matmul %20 layers.1.neighbours.weightᵀ, where positive %9
            %24 = matmul seed layers.1.self.weightᵀ, where positive %9, added to %21
            %23 = matmul %9ᵀ %20
            %26, %25 = matmul xᵀ %24, column sums
            %27 = matmul %16ᵀ %24
            "
        )
    );
}

#[test]
fn fuse_has_multiples_of_other_rows_in_sums_over_neighbours() {
    let appnp = of(4, Norm::Both, |g, edges, x| {
        let w = g.weight("w", (4, 4));
        let x = g.matmul(x, w);
        let steps = Appnp {
            initial: None,
            edges,
            steps: 2,
            alpha: 0.25,
            dropout: 0.0,
        };
        steps.build(g, x)
    });
    assert_eq!(
        compiled(appnp, false).listing(),
        text(
            "
            %2 = matmul x w
            %4 = aggregate edges %2, factor 0.75, plus 0.25 %2
            %6 = aggregate edges %4, factor 0.75, plus 0.25 %2
            backward
            %8 = aggregate edgesᵀ seed, factor 0.75
            %9 = combine 0.25 seed + 0.25 %8
            %11 = aggregate edgesᵀ %8, factor 0.75, plus %9
            %12 = matmul xᵀ %11
            "
        )
    );
    let gcnii = of(4, Norm::Both, |g, edges, x| {
        let w = g.weight("w", (4, 4));
        let initial = g.matmul(x, w);
        let layer = Gcnii {
            edges,
            initial,
            alpha: 0.25,
            beta: 0.5,
        };
        let y = layer.build(g, initial);
        g.relu(y)
    });
    assert_eq!(
        compiled(gcnii, false).listing(),
        text(
            "
            %2 = matmul x w
            %5 = aggregate edges %2, factor 0.75, plus 0.25 %2 (kept)
            %6 = matmul %5 weight, alpha 0.5
            %7 = combine %6 + 0.5 %5
            %8 = activate %7, relu (kept)
            backward
            %10 = activate_gradient seed, where positive %8
            %11 = matmul %10 weightᵀ, alpha 0.5
            %12 = combine 0.5 %10 + %11
            %13 = matmul %5ᵀ %10, alpha 0.5
            %15 = aggregate edgesᵀ %12, factor 0.75, plus 0.25 %12
            %16 = matmul xᵀ %15
            "
        )
    );
}

#[test]
fn several_sums_over_neighbours_add_up_one_to_the_next() {
    let program = of(8, Norm::Right, |g, edges, x| {
        let root = g.weight("root", (8, 8));
        let own = g.matmul(x, root);
        let w = g.block_diagonal("w", (8, 8), 2);
        let message = g.matmul(x, w);
        let terms = [own, g.aggregate(edges, message), g.aggregate(edges, x)];
        let y = g.sum(&terms);
        hidden(g, y)
    });
    assert_eq!(
        compiled(program, false).listing(),
        text(
            "
            %2 = matmul x root
            %6 = matmul w %4, where positive %5
            %7 = matmul x %6
            %24 = aggregate edges %7, plus %2
            %13 = aggregate edges x, plus %24, bias bias, relu (kept)
            backward
            %15 = activate_gradient seed, where positive %13
            %17 = aggregate edgesᵀ %15
            %18 = matmul xᵀ %17
            %20 = activate_gradient %18, where positive %19
            %22 = matmul %20 %21ᵀ
            %23, %16 = matmul xᵀ %15, column sums
            "
        )
    );
}

/// Layers of one width without edges.
fn perceptron(dropout: f32) -> Program {
    of(8, Norm::None, |g, _, mut x| {
        for layer in 0..5 {
            x = g.layer(layer, |g| {
                let w = g.weight("w", (8, 8));
                let y = g.matmul(x, w);
                let y = g.relu(y);
                g.dropout(y, dropout)
            });
        }
        x
    })
}

#[test]
fn recompute_rebuilds_every_other_activation() {
    let before = compiled(perceptron(0.0), false);
    let after = compiled(perceptron(0.0), true);
    assert_eq!(
        before.listing(),
        text(
            "
            %3 = matmul x layers.0.w, relu (kept)
            %6 = matmul %3 layers.1.w, relu (kept)
            %9 = matmul %6 layers.2.w, relu (kept)
            %12 = matmul %9 layers.3.w, relu (kept)
            %15 = matmul %12 layers.4.w, relu (kept)
            backward
            %17 = activate_gradient seed, where positive %15
            %20 = matmul %17 layers.4.wᵀ, where positive %12
            %19 = matmul %12ᵀ %17
            %23 = matmul %20 layers.3.wᵀ, where positive %9
            %22 = matmul %9ᵀ %20
            %26 = matmul %23 layers.2.wᵀ, where positive %6
            %25 = matmul %6ᵀ %23
            %29 = matmul %26 layers.1.wᵀ, where positive %3
            %28 = matmul %3ᵀ %26
            %30 = matmul xᵀ %29
            "
        )
    );
    assert_eq!(
        after.listing(),
        text(
            "
            %3 = matmul x layers.0.w, relu
            %6 = matmul %3 layers.1.w, relu (kept)
            %9 = matmul %6 layers.2.w, relu
            %12 = matmul %9 layers.3.w, relu (kept)
            %15 = matmul %12 layers.4.w, relu (kept)
            backward
            %17 = activate_gradient seed, where positive %15
            %20 = matmul %17 layers.4.wᵀ, where positive %12
            %19 = matmul %12ᵀ %17
            %32 = matmul %6 layers.2.w, relu
            %23 = matmul %20 layers.3.wᵀ, where positive %32
            %22 = matmul %32ᵀ %20
            %26 = matmul %23 layers.2.wᵀ, where positive %6
            %25 = matmul %6ᵀ %23
            %31 = matmul x layers.0.w, relu
            %29 = matmul %26 layers.1.wᵀ, where positive %31
            %28 = matmul %31ᵀ %26
            %30 = matmul xᵀ %29
            "
        )
    );
    // Rows of 8 halves are 160 bytes: seven matrices, and five. The output stays readable behind the backward pass.
    assert_eq!(Plan::new(&before).activations(), 1120);
    assert_eq!(Plan::new(&after).activations(), 800);
}

#[test]
fn recompute_draws_the_same_dropout_again() {
    let after = compiled(perceptron(0.5), true).listing();
    // The product behind an activation is kept by nothing, so both are rebuilt.
    assert!(
        after.contains(&text(
            "
            %43 = matmul %8 layers.2.w
            %44 = activate %43, relu, dropout 0.5 #2
            %31 = matmul %27 layers.3.wᵀ, alpha 2, where positive %44
            "
        )),
        "{after}"
    );
}

#[test]
fn recompute_leaves_a_program_that_it_does_not_make_smaller() {
    let shallow = || of(8, Norm::Both, gcn);
    assert_eq!(
        compiled(shallow(), true).listing(),
        compiled(shallow(), false).listing()
    );
    let mut program = shallow();
    differentiate(&mut program).expect("parameters");
    let before = Plan::new(&program).activations();
    apply(&mut program, &[&Recompute], |_, _| ()).expect("both lists");
    assert!(Plan::new(&program).activations() <= before);
}

#[test]
fn on_a_block_own_rows_are_read_where_they_lie() {
    let build = || {
        let mut g = Builder::new(Precision::Half);
        let (sources, destinations) = (g.vertices("sources", 30), g.vertices("destinations", 10));
        let edges = g.edges("block", sources, destinations, Norm::Right);
        let x = g.input("x", sources, 8);
        let w = g.weight("w", (8, 8));
        let x = g.matmul(x, w);
        let x = g.relu(x);
        let y = Sage { edges, outputs: 4 }.build(&mut g, x);
        g.finish(y).expect("operands fit")
    };
    assert_eq!(
        compiled(build(), false).listing(),
        text(
            "
            %3 = matmul x w, relu (kept)
            %6 = matmul %3 neighbours.weight
            %9 = matmul own[block] %3 self.weight
            %10 = aggregate block %6, plus %9
            backward
            %13 = matmul own[block] %3ᵀ seed
            %15 = aggregate blockᵀ seed
            %16 = matmul %15 neighbours.weightᵀ, where positive %3
            %19 = matmul seed self.weightᵀ, where positive %3, added to own[block] %16
            %18 = matmul %3ᵀ %15
            %20 = matmul xᵀ %19
            "
        )
    );
}

fn gin(g: &mut Builder, edges: Edges, x: Value) -> Value {
    let layer = Gin {
        edges,
        hidden: 4,
        outputs: 2,
        options: GinConfig {
            lambda: 0.5,
            epsilon: 0.25,
            ..GinConfig::default()
        },
    };
    layer.build(g, x)
}

#[test]
fn fuse_normalizes_inside_products_and_balances_gradients_of_means() {
    let program = of(8, Norm::Right, gin);
    assert_eq!(
        program.listing(),
        text(
            "
            %1 = aggregate edges x, factor 0.5, plus 1.25 x
            %3 = matmul %1 mlp.0.weight
            %7 = batch_statistics %3, carried on in norm.running
            %8 = normalize %3, by %7, weight norm.weight, bias norm.bias, relu
            %10 = matmul %8 mlp.1.weight
            "
        )
    );
    assert_eq!(
        compiled(program, false).listing(),
        text(
            "
            %11 = matmul x mlp.0.weight
            %3 = aggregate edges %11, factor 0.5, plus 1.25 %11 (kept)
            %7 = batch_statistics %3, carried on in norm.running (kept)
            %10 = matmul %3 mlp.1.weight, normalized by %7, weight norm.weight, bias norm.bias, relu
            backward
            %13 = matmul seed mlp.1.weightᵀ
            %14 = matmul %3ᵀ seed, normalized by %7, weight norm.weight, bias norm.bias, relu
            %15, %16, %17 = normalize_gradient %13 of %3, by %7, weight norm.weight, bias norm.bias, relu, rows R[edges] balanced
            %18 = aggregate edgesᵀ %15, factor 0.5, operand is balanced, plus 1.25 %15
            %19 = matmul xᵀ %18
            "
        )
    );
}

#[test]
fn evaluate_leaves_dropout_out_and_reads_running_statistics() {
    let mut program = of(8, Norm::Right, |g, edges, x| {
        let x = g.dropout(x, 0.5);
        let y = gin(g, edges, x);
        let options = GatConfig {
            heads: 2,
            attention_dropout: 0.25,
            ..GatConfig::default()
        };
        let y = g.layer(1, |g| {
            let y = g.dropout(y, 0.5);
            let layer = Gat {
                edges,
                outputs: 16,
                averaged: false,
                options,
            };
            layer.build(g, y)
        });
        g.relu(y)
    });
    let dropouts = program.listing().matches("dropout").count();
    assert_eq!(dropouts, 3, "{}", program.listing());
    apply(&mut program, &[&Evaluate], |_, _| ()).expect("a forward list");
    assert_eq!(
        program.listing(),
        text(
            "
            %2 = aggregate edges x, factor 0.5, plus 1.25 x
            %4 = matmul %2 mlp.0.weight
            %8 = batch_statistics %4, of the batch
            %9 = normalize %4, by %8, weight norm.weight, bias norm.bias, relu
            %11 = matmul %9 mlp.1.weight
            %15 = matmul %11 layers.1.weight
            %16 = attention edges %15, scores layers.1.attention, 2 heads
            %18 = activate %16, relu
            "
        )
    );
    differentiate(&mut program).expect_err("attention that is evaluated has no gradient");
}

#[test]
fn attention_has_one_operator_each_way() {
    let program = of(8, Norm::None, |g, edges, x| {
        let layer = Gat {
            edges,
            outputs: 16,
            averaged: false,
            options: GatConfig {
                heads: 2,
                ..GatConfig::default()
            },
        };
        let y = layer.build(g, x);
        g.relu(y)
    });
    assert_eq!(
        compiled(program, false).listing(),
        text(
            "
            %3 = matmul x weight (kept)
            %4, %5 = attention edges %3, scores attention, 2 heads (kept)
            %6 = activate %4, relu (kept)
            backward
            %8 = activate_gradient seed, where positive %6
            %9, %10 = attention_gradient %8 of %4, edges %3, scores attention, 2 heads
            %16 = matmul xᵀ %9
            "
        )
    );
}

#[test]
fn quantize_has_sums_read_quantized_values_with_factors_in_them() {
    let mut program = compiled(of(8, Norm::Both, gcn), false);
    let format = CodeFormat::Int8;
    apply(&mut program, &[&Quantize { format }], |_, _| ()).expect("both lists");
    assert_eq!(
        program.listing(),
        text(
            "
            %1 = activate x, dropout 0.5 #0 (kept)
            %3, %26 = matmul %1 layers.0.weight, rows C[edges], quantized to Int8 alone, nearest
            %4 = aggregate edges %26
            %8 = activate %4, bias layers.0.bias, relu, dropout 0.5 #1 (kept)
            %10, %27 = matmul %8 layers.1.weight, rows C[edges], quantized to Int8 alone, nearest
            %13 = aggregate edges %27, bias layers.1.bias
            backward
            %15 = column_sums seed
            %28 = quantize seed to Int8, stochastic #1919907183, rows R[edges]
            %16 = aggregate edgesᵀ %28
            %20, %29 = matmul %16 layers.1.weightᵀ, alpha 2, where positive %8, quantized to Int8, stochastic #1919907182, rows R[edges]
            %18 = matmul %8ᵀ %16
            %21 = column_sums %20
            %22 = aggregate edgesᵀ %29
            %23 = matmul %1ᵀ %22
            "
        )
    );
}
