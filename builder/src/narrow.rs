//! Finds addresses in global memory that are made of a product of 32 bits.
//!
//! A row's number times its stride passes 2³² where a matrix passes 4 GiB; multiplied in 32 bits and widened afterwards
//! it names another row, on large graphs only. So a product that goes into an address is made in 64 bits (`mul.wide`,
//! `mad.wide`). Products by a constant are left alone: those are sizes of elements and shares of a CTA.
//!
//! Numbers are followed from register to register, wherever they may go: through sums, moves, conversions and further
//! products, but not through what makes a smaller number of one (a quotient, a remainder, a shift to the right, a mask).

use std::collections::{HashMap, HashSet};

use crate::ptx::{Function, Statement, words};

/// The products of two variables in 32 bits that end in an address of global memory, in order.
pub(crate) fn products(function: &Function) -> Vec<&Statement> {
    let mut sources: HashMap<&str, Vec<&str>> = HashMap::new();
    let mut found = Vec::new();
    let mut pending = Vec::new();
    for (statement, opcode, operands) in function.instructions() {
        let name = opcode.split('.').next().unwrap_or_default();
        match name {
            "ld" | "ldu" | "st" | "red" | "atom" | "cp" | "prefetch" => {
                if is_global(opcode) {
                    pending.extend(address(operands));
                }
                continue;
            }
            "setp" | "call" | "bra" | "ret" | "bar" | "barrier" => continue,
            _ => {}
        }
        let Some((to, from)) = assignment(operands) else {
            continue;
        };
        if is_narrow_product(opcode) && from.iter().take(2).all(|factor| is_register(factor)) {
            found.push((statement, to[0]));
        }
        let flowing = match name {
            "div" | "rem" | "shr" | "and" | "bfe" => &[][..],
            // A remainder is a number less a multiple.
            "sub" => &from[..1],
            _ => &from[..],
        };
        for to in to {
            let of = sources.entry(to).or_default();
            of.extend(flowing.iter().flat_map(|from| registers(from)));
        }
    }
    let mut reached = HashSet::new();
    while let Some(register) = pending.pop() {
        if reached.insert(register) {
            pending.extend(sources.get(register).into_iter().flatten());
        }
    }
    found.retain(|(_, product)| reached.contains(product));
    found.into_iter().map(|(statement, _)| statement).collect()
}

/// Whether an instruction goes to global memory, or may.
fn is_global(opcode: &str) -> bool {
    let mut spaces = opcode.split('.');
    let others = ["shared", "shared::cta", "local", "param", "const"];
    opcode.contains(".global") || !spaces.any(|part| others.contains(&part))
}

/// The registers of the last address among the operands: of a copy the global one.
fn address(operands: &str) -> impl Iterator<Item = &str> {
    let last = operands.rsplit_once('[').map_or("", |(_, rest)| rest);
    registers(last.split(']').next().unwrap_or_default())
}

fn is_narrow_product(opcode: &str) -> bool {
    let mut parts = opcode.split('.');
    matches!(parts.next(), Some("mul" | "mad"))
        && parts.next() == Some("lo")
        && matches!(parts.next(), Some("s32" | "u32" | "b32"))
}

/// The registers that an instruction writes, one at least, and its other operands.
fn assignment(operands: &str) -> Option<(Vec<&str>, Vec<&str>)> {
    let (to, from) = match operands.strip_prefix('{') {
        Some(vector) => vector.split_once('}')?,
        None => operands.split_once(',')?,
    };
    let to: Vec<&str> = registers(to).collect();
    let from = from.split(',').map(str::trim);
    let from: Vec<&str> = from.filter(|operand| !operand.is_empty()).collect();
    (!to.is_empty() && !from.is_empty()).then_some((to, from))
}

fn is_register(operand: &str) -> bool {
    operand.starts_with('%')
}

fn registers(operand: &str) -> impl Iterator<Item = &str> {
    words(operand).filter(|word| is_register(word))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ptx::Module;

    fn lines(body: &str) -> Vec<usize> {
        let module = Module::read(&format!(".visible .entry k() {{\n{body}\n}}"));
        products(&module.functions[0])
            .iter()
            .map(|statement| statement.line - 1)
            .collect()
    }

    #[test]
    fn a_product_is_followed_to_its_address() {
        for body in [
            "mul.lo.s32 %r3, %r1, %r2;\ncvt.u64.u32 %rd2, %r3;\nadd.s64 %rd3, %rd1, %rd2;\nld.global.v4.b32 {%r5, %r6, %r7, %r8}, [%rd3+16];",
            "mad.lo.s32 %r3, %r1, %r2, %r4;\nmul.wide.u32 %rd2, %r3, 16;\nadd.s64 %rd3, %rd1, %rd2;\nst.global.cs.b32 [%rd3], %r5;",
            "mul.lo.u32 %r3, %r1, %r2;\nmov.b32 %r9, %r3;\nmad.wide.u32 %rd3, %r9, 4, %rd1;\nred.global.or.b32 [%rd3], %r5;",
            "mul.lo.s32 %r3, %r1, %r2;\ncvt.u64.u32 %rd3, %r3;\ncp.async.cg.shared.global [%r7], [%rd3], 16, %r5;",
            "mul.lo.s32 %r3, %r1, %r2;\nmov.b64 %rd3, {%r3, %r4};\nld.b32 %r5, [%rd3];",
        ] {
            assert_eq!(lines(body), [1], "{body}");
        }
    }

    #[test]
    fn what_is_wide_bounded_or_in_shared_memory_is_none() {
        for body in [
            "mad.wide.u32 %rd3, %r1, %r2, %rd1;\nld.global.b32 %r5, [%rd3];",
            "mul.wide.u32 %rd2, %r1, %r2;\nadd.s64 %rd3, %rd1, %rd2;\nld.global.b32 %r5, [%rd3];",
            // By a constant.
            "mul.lo.s32 %r3, %r1, 12;\nmul.wide.u32 %rd3, %r3, 16;\nld.global.b32 %r5, [%rd3];",
            // A remainder.
            "mul.lo.s32 %r3, %r1, %r2;\nsub.s32 %r4, %r6, %r3;\nmul.wide.u32 %rd3, %r4, 16;\nld.global.b32 %r5, [%rd3];",
            "mul.lo.s32 %r3, %r1, %r2;\nld.shared.b32 %r5, [%r3];",
            "mul.lo.s32 %r3, %r1, %r2;\ncp.async.cg.shared.global [%r3], [%rd3], 16;",
            // A value and no address.
            "mul.lo.s32 %r3, %r1, %r2;\nst.global.b32 [%rd3], %r3;",
            "mul.lo.s32 %r3, %r1, %r2;\nsetp.lt.u32 %p1, %r3, %r4;\nselp.b64 %rd3, %rd1, %rd2, %p1;\nld.global.b32 %r5, [%rd3];",
        ] {
            assert_eq!(lines(body), [0; 0], "{body}");
        }
    }
}
