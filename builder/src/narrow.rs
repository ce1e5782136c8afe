//! Finds addresses in global memory that are made of a product of 32 bits.
//!
//! A row's number times its stride passes 2³² where a matrix passes 4 GiB; multiplied in 32 bits and widened afterwards
//! it names another row, on large graphs only. So a product that goes into an address is made in 64 bits (`mul.wide`,
//! `mad.wide`). Products by a constant are left alone: those are sizes of elements and shares of a CTA.
//!
//! Numbers are followed from register to register, wherever they may go: through sums, moves, conversions and further
//! products, but not through what makes a smaller number of one (a quotient, a remainder, a shift to the right, a
//! mask).

use std::collections::{HashMap, HashSet};

use ptx_syntax::{Function, Instruction, Operand};

/// The products of two variables in 32 bits that end in an address of global memory, in order.
pub(crate) fn products<'f, 'a>(function: &'f Function<'a>) -> Vec<&'f Instruction<'a>> {
    let mut sources: HashMap<u32, Vec<u32>> = HashMap::new();
    let mut found = Vec::new();
    let mut pending = Vec::new();
    for instruction in &function.body {
        let opcode = instruction.opcode;
        let name = opcode.split('.').next().unwrap_or_default();
        match name {
            "ld" | "ldu" | "st" | "red" | "atom" | "cp" | "prefetch" => {
                if is_global(opcode) {
                    pending.extend(address(&instruction.operands));
                }
                continue;
            }
            "setp" | "call" | "bra" | "ret" | "bar" | "barrier" => continue,
            _ => {}
        }
        let Some((to, from)) = instruction.operands.split_first() else {
            continue;
        };
        let to = to.registers();
        let is_register = |factor: &Operand<'_>| matches!(factor, Operand::Reg(_));
        if let (true, Some(product)) = (is_narrow_product(opcode), to.first())
            && from.iter().take(2).all(is_register)
        {
            found.push((instruction, *product));
        }
        let flowing = match name {
            "div" | "rem" | "shr" | "and" | "bfe" => &[][..],
            // A remainder is a number less a multiple.
            "sub" => &from[..from.len().min(1)],
            _ => from,
        };
        for to in to {
            let of = sources.entry(to).or_default();
            of.extend(flowing.iter().flat_map(Operand::registers));
        }
    }
    let mut reached = HashSet::new();
    while let Some(register) = pending.pop() {
        if reached.insert(register) {
            pending.extend(sources.get(&register).into_iter().flatten());
        }
    }
    found.retain(|(_, product)| reached.contains(product));
    found
        .into_iter()
        .map(|(instruction, _)| instruction)
        .collect()
}

/// Whether an instruction goes to global memory, or may.
fn is_global(opcode: &str) -> bool {
    let mut spaces = opcode.split('.');
    let others = ["shared", "shared::cta", "local", "param", "const"];
    opcode.contains(".global") || !spaces.any(|part| others.contains(&part))
}

/// The registers of the last address among the operands: of a copy the global one.
fn address(operands: &[Operand<'_>]) -> Vec<u32> {
    let is_address = |operand: &&Operand<'_>| matches!(operand, Operand::Address(..));
    let last = operands.iter().rfind(is_address);
    last.map(Operand::registers).unwrap_or_default()
}

fn is_narrow_product(opcode: &str) -> bool {
    let mut parts = opcode.split('.');
    matches!(parts.next(), Some("mul" | "mad"))
        && parts.next() == Some("lo")
        && matches!(parts.next(), Some("s32" | "u32" | "b32"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(body: &str) -> Vec<u32> {
        let text = format!(
            ".version 8.0 .visible .entry k() {{ .reg .pred %p<9>; .reg .b32 %r<19>; .reg .b64 %rd<9>;\n{body}\n}}"
        );
        let source = ptx_syntax::parse(&text).expect("it is PTX");
        let found = products(&source.functions[0]);
        found.iter().map(|product| product.line - 1).collect()
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
            assert_eq!(lines(body), [0_u32; 0], "{body}");
        }
    }
}
