//! Passes by the text of a program before and after them.

use super::setup::{compiled, hidden, last, program};
use halfgnn::nn::Norm;
use halfgnn::program::Builder;
use halfgnn::program::layers::{Appnp, Gcn, Gcnii, Layer, Sage};
use halfgnn::program::passes::fuse::Fuse;
use halfgnn::program::passes::{Recompute, Reorder, apply};
use halfgnn::program::{Edges, Program, Value, differentiate};
use halfgnn::tensor::Precision;

fn gcn(edges: Edges, outputs: usize) -> impl Fn(&mut Builder, Value) -> Value {
    move |g, x| {
        let y = Gcn { edges, outputs }.build(g, x);
        last(g, y)
    }
}

#[test]
fn print() {
    let p = program(Precision::Half, (10, 8), Norm::Both, |g, edges, x| {
        let y = g.layer(0, |g| {
            let x = g.dropout(x, 0.5);
            let y = Gcn { edges, outputs: 4 }.build(g, x);
            hidden(g, y)
        });
        g.layer(1, |g| {
            let y = g.dropout(y, 0.5);
            gcn(edges, 2)(g, y)
        })
    });
    let mut p = p;
    println!("{}", p.listing());
    differentiate(&mut p).unwrap();
    println!("{}", p.listing());
    apply(&mut p, &[&Fuse], |_, _| ()).unwrap();
    println!("{p}");
    let p = program(Precision::Half, (10, 4), Norm::Right, |g, edges, x| {
        let y = g.layer(0, |g| {
            let y = Sage { edges, outputs: 8 }.build(g, x);
            hidden(g, y)
        });
        let y = g.layer(1, |g| {
            let y = Sage { edges, outputs: 16 }.build(g, y);
            hidden(g, y)
        });
        g.layer(2, |g| Sage { edges, outputs: 2 }.build(g, y))
    });
    let mut q = p.clone();
    apply(&mut q, &[&Reorder], |_, _| ()).unwrap();
    println!("{}", q.listing());
    println!("{}", compiled(p.clone(), false).listing());
    println!("{}", compiled(p, true).listing());
    let p: Program = program(Precision::Half, (10, 4), Norm::Both, |g, edges, x| {
        let w = g.weight("w", (4, 4));
        let x = g.matmul(x, w);
        Appnp { edges, steps: 2, alpha: 0.25, dropout: 0.0 }.build(g, x)
    });
    println!("APPNP\n{}", p.listing());
    println!("{}", compiled(p, false).listing());
    let p: Program = program(Precision::Half, (10, 4), Norm::Both, |g, edges, x| {
        let w = g.weight("w", (4, 4));
        let initial = g.matmul(x, w);
        let y = Gcnii { edges, initial, alpha: 0.25, beta: 0.5 }.build(g, initial);
        g.relu(y)
    });
    println!("GCNII\n{}", p.listing());
    println!("{}", compiled(p, false).listing());
    let p = program(Precision::Half, (10, 8), Norm::Right, |g, edges, x| {
        let root = g.weight("root", (8, 8));
        let own = g.matmul(x, root);
        let w = g.block_diagonal("w", (8, 8), 2);
        let message = g.matmul(x, w);
        let terms = [own, g.aggregate(edges, message), g.aggregate(edges, x)];
        let y = g.sum(&terms);
        hidden(g, y)
    });
    println!("sums\n{}", p.listing());
    println!("{}", compiled(p, false).listing());
    let p = program(Precision::Half, (10, 8), Norm::Right, |g, _, mut x| {
        for layer in 0..5 {
            x = g.layer(layer, |g| {
                let w = g.weight("w", (8, 8));
                let y = g.matmul(x, w);
                let y = g.relu(y);
                g.dropout(y, 0.5)
            });
        }
        x
    });
    let before = compiled(p.clone(), false);
    println!("recompute\n{}", before.listing());
    let after = compiled(p, true);
    println!("{}", after.listing());
    println!("{} {}", halfgnn::program::Plan::new(&before).activations(), halfgnn::program::Plan::new(&after).activations());
    let _ = Recompute;
}
