//! Finds synchronising instructions that the optimiser copied into two arms of a branch.
//!
//! Inlining and unrolling copy instructions too, and rightly: an inlined copy has another chain of call sites, and an
//! unrolled copy runs before or after its twin, never instead of it. So the sign of a wrong copy is: the same opcode
//! from the same place of the source by the same chain of calls, and neither copy can reach the other without going
//! round a loop.

use std::collections::HashMap;

use ptx_syntax::{Function, Instruction, Operand};

use crate::convergence::synchronises;
use crate::ptx::Module;

/// Pairs of instructions, each the copy of the other in another arm.
pub(crate) fn find<'f, 'a>(
    module: &Module<'a>,
    function: &'f Function<'a>,
) -> Vec<(&'f Instruction<'a>, &'f Instruction<'a>)> {
    let mut copies: HashMap<_, Vec<usize>> = HashMap::new();
    for (index, instruction) in function.body.iter().enumerate() {
        if synchronises(instruction.opcode)
            && let Some(place) = module.place(instruction)
        {
            copies
                .entry((instruction.opcode, place))
                .or_default()
                .push(index);
        }
    }
    copies.retain(|_, at| at.len() > 1);
    if copies.is_empty() {
        return Vec::new();
    }
    let graph = Graph::of(function);
    let mut pairs = Vec::new();
    for at in copies.values() {
        for (n, &first) in at.iter().enumerate() {
            let reached = graph.reach(first);
            let twin = at[n + 1..]
                .iter()
                .copied()
                .find(|&second| !reached[second] && !graph.reach(second)[first]);
            pairs.extend(twin.map(|second| (first, second)));
        }
    }
    pairs.sort_unstable();
    pairs
        .into_iter()
        .map(|(first, second)| (&function.body[first], &function.body[second]))
        .collect()
}

/// The control flow between instructions, with the edges that close a loop left out.
struct Graph {
    next: Vec<Vec<usize>>,
}

impl Graph {
    fn of(function: &Function<'_>) -> Self {
        let end = function.body.len();
        let mut next: Vec<Vec<usize>> = function
            .body
            .iter()
            .enumerate()
            .map(|(index, instruction)| {
                let jump = instruction.opcode.split('.').next().unwrap_or_default();
                let mut targets: Vec<u32> = match (jump, instruction.operands.first()) {
                    ("bra", Some(Operand::Name(label, 0))) => {
                        let target = function.label(instruction.scope, label);
                        target.into_iter().collect()
                    }
                    // The targets stand in a `.branchtargets` list; any label may be one.
                    ("brx", _) => function.labels.values().copied().collect(),
                    _ => Vec::new(),
                };
                let leaves = matches!(jump, "bra" | "brx" | "ret" | "exit" | "trap");
                if !leaves || instruction.guard.is_some() {
                    targets.push(index as u32 + 1);
                }
                let targets = targets.into_iter().map(|target| target as usize);
                targets.filter(|target| *target < end).collect()
            })
            .collect();
        remove_back_edges(&mut next);
        Self { next }
    }

    fn reach(&self, from: usize) -> Vec<bool> {
        let mut reached = vec![false; self.next.len()];
        let mut pending = vec![from];
        while let Some(at) = pending.pop() {
            for &target in &self.next[at] {
                if !std::mem::replace(&mut reached[target], true) {
                    pending.push(target);
                }
            }
        }
        reached
    }
}

/// Takes out the edges that lead to an instruction which a depth-first walk from the top has not left yet.
fn remove_back_edges(next: &mut [Vec<usize>]) {
    #[derive(Clone, Copy, PartialEq)]
    enum Visit {
        Not,
        Open,
        Done,
    }
    let mut visits = vec![Visit::Not; next.len()];
    for root in 0..next.len() {
        if visits[root] != Visit::Not {
            continue;
        }
        let mut path = vec![(root, 0)];
        visits[root] = Visit::Open;
        while let Some((at, edge)) = path.last_mut() {
            let Some(&target) = next[*at].get(*edge) else {
                visits[*at] = Visit::Done;
                path.pop();
                continue;
            };
            match visits[target] {
                Visit::Open => drop(next[*at].remove(*edge)),
                Visit::Not => {
                    *edge += 1;
                    visits[target] = Visit::Open;
                    path.push((target, 0));
                }
                Visit::Done => *edge += 1,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn twins_of(body: &str) -> usize {
        let text = format!(
            ".version 8.0 .visible .entry k() {{ .reg .pred %p<10>; .reg .b32 %r<9>;\n{body}\n}}"
        );
        let module = Module::parse(&text).expect("it is PTX");
        find(&module, &module.source.functions[0]).len()
    }

    #[test]
    fn a_copy_in_each_arm_is_found() {
        let body = "
            @%p1 bra $A;
            .loc 1 5 3 // k.rs:5:3
            shfl.sync.bfly.b32 %r1, %r2, 1, 31, -1;
            bra.uni $B;
            $A:
            .loc 1 5 3 // k.rs:5:3
            shfl.sync.bfly.b32 %r1, %r3, 1, 31, -1;
            $B:
            ret;";
        assert_eq!(twins_of(body), 1);
        assert_eq!(
            twins_of(&format!(
                "$TOP:\n{}",
                body.replace("ret;", "@%p2 bra $TOP; ret;")
            )),
            1
        );
    }

    #[test]
    fn an_unrolled_copy_is_no_twin() {
        let copy = ".loc 1 5 3 // k.rs:5:3\n bar.sync 0;\n";
        assert_eq!(twins_of(&format!("{copy}{copy}{copy} ret;")), 0);
        let guarded = |n: u32| format!("@%p{n} bra $L{n};\n{copy}$L{n}:\n");
        assert_eq!(
            twins_of(&format!(
                "$T:\n{}{} @%p9 bra $T; ret;",
                guarded(1),
                guarded(2)
            )),
            0
        );
    }

    #[test]
    fn two_call_sites_are_no_twins() {
        let body = "
            @%p1 bra $A;
            .loc 1 5 3 // k.rs:5:3 @[ k.rs:9:1 ]
            bar.sync 0;
            bra.uni $B;
            $A:
            .loc 1 5 3 // k.rs:5:3 @[ k.rs:11:1 ]
            bar.sync 0;
            $B:
            ret;";
        assert_eq!(twins_of(body), 0);
    }
}
