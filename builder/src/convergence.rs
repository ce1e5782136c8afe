//! Marks in LLVM's IR what must not be duplicated, and how each entry is launched.
//!
//! A barrier or a shuffle that is copied into both arms of a branch deadlocks or exchanges the wrong lanes' values.
//! LLVM's word for "do not make this depend on more control flow than it does" is `convergent`. Its NVPTX intrinsics
//! carry it, and so do all functions that rustc emits for a GPU (rust-lang/rust#153995), but inline assembly does
//! not: a `shfl.sync` in `asm!` was seen to be copied. So, before any optimisation has run, every call of inline
//! assembly that synchronises is marked here, and every function that is not marked already. LLVM takes the mark off
//! a function again where nothing in it needs it.
//!
//! Launch bounds become the function attributes `nvvm.maxntid` and `nvvm.minctasm`, from which LLVM writes
//! `.maxntid` and `.minnctapersm`, and by which it knows the range of the thread index.

use std::collections::HashSet;

use crate::package::LaunchBounds;

/// First parts of the PTX instructions that several lanes or threads carry out together (PTX ISA, "Parallel
/// Synchronization and Communication Instructions", "Warp Level Matrix Instructions", "Asynchronous Warpgroup Level
/// Matrix Instructions"), as far as they must be reached by all of them at once.
const SYNCHRONISING: [&str; 17] = [
    "bar",
    "barrier",
    "shfl",
    "vote",
    "match",
    "redux",
    "activemask",
    "elect",
    "mma",
    "wmma",
    "wgmma",
    "ldmatrix",
    "stmatrix",
    "movmatrix",
    "setmaxnreg",
    "griddepcontrol",
    "tcgen05",
];

/// Whether an instruction is carried out by several threads together. `opcode` is as in `shfl.sync.bfly.b32`.
pub(crate) fn synchronises(opcode: &str) -> bool {
    let first = opcode.split('.').next().unwrap_or(opcode);
    SYNCHRONISING.contains(&first)
}

/// Marks the module's text. `bounds` gives an entry's launch bounds by its name.
pub(crate) fn annotate(ir: &str, bounds: impl Fn(&str) -> Option<LaunchBounds>) -> String {
    let convergent = convergent_groups(ir);
    let mut marked = String::with_capacity(ir.len() + ir.len() / 64);
    for line in ir.split_inclusive('\n') {
        let mut attributes = String::new();
        let place = if line.starts_with("define ") {
            let place = attribute_place(line);
            if !is_convergent(line, &convergent) {
                attributes.push_str(" convergent");
            }
            if let Some(bounds) = entry_name(line).and_then(&bounds) {
                attributes.push_str(&format!(" \"nvvm.maxntid\"=\"{}\"", bounds.max_threads));
                if let Some(ctas) = bounds.min_ctas {
                    attributes.push_str(&format!(" \"nvvm.minctasm\"=\"{ctas}\""));
                }
            }
            place
        } else if inline_assembly(line).is_some_and(|text| opcodes(&text).any(synchronises)) {
            if !is_convergent(line, &convergent) {
                attributes.push_str(" convergent");
            }
            attribute_place(line)
        } else {
            0
        };
        let (before, after) = line.split_at(place);
        marked.push_str(before);
        marked.push_str(&attributes);
        marked.push_str(after);
    }
    marked
}

/// The numbers `#N` of attribute groups that hold `convergent`.
fn convergent_groups(ir: &str) -> HashSet<&str> {
    ir.lines()
        .filter_map(|line| line.strip_prefix("attributes "))
        .filter_map(|line| line.split_once(" = {"))
        .filter(|(_, attributes)| {
            attributes
                .split_whitespace()
                .any(|word| word == "convergent")
        })
        .map(|(group, _)| group)
        .collect()
}

fn is_convergent(line: &str, groups: &HashSet<&str>) -> bool {
    line[attribute_place(line)..]
        .split_whitespace()
        .any(|word| word == "convergent" || groups.contains(word.trim_end_matches(',')))
}

/// Where function attributes may be put on a `define` or `call` line: after the parameter list
/// and `unnamed_addr`. No parenthesis follows the parameters, save in attributes such as `memory(…)`, which stand in
/// groups when LLVM prints.
fn attribute_place(line: &str) -> usize {
    let end = line.rfind(')').map_or(0, |at| at + 1);
    ["local_unnamed_addr", "unnamed_addr"]
        .iter()
        .find_map(|word| line[end..].find(word).map(|at| end + at + word.len()))
        .unwrap_or(end)
}

/// The name in `define ptx_kernel void @name(`.
pub(crate) fn entry_name(line: &str) -> Option<&str> {
    if !line.starts_with("define ") || !line.contains(" ptx_kernel ") {
        return None;
    }
    let (_, rest) = line.split_once('@')?;
    rest.split_once('(').map(|(name, _)| name.trim_matches('"'))
}

/// The text of a call of inline assembly, with LLVM's escapes (`\0A`) undone.
fn inline_assembly(line: &str) -> Option<String> {
    let (head, rest) = line.split_once(" asm ")?;
    if !head.contains("call ") {
        return None;
    }
    let (_, quoted) = rest.split_once('"')?;
    let (text, _) = quoted.split_once('"')?;
    let mut plain = String::with_capacity(text.len());
    let mut characters = text.chars();
    while let Some(character) = characters.next() {
        if character == '\\' {
            let code: String = characters.by_ref().take(2).collect();
            plain.extend(u8::from_str_radix(&code, 16).ok().map(char::from));
        } else {
            plain.push(character);
        }
    }
    Some(plain)
}

/// The opcodes in a piece of PTX; labels and guards come along and match nothing.
fn opcodes(text: &str) -> impl Iterator<Item = &str> {
    text.split([';', '{', '}', '\n', '\t', ' '])
        .filter(|word| !word.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    const IR: &str = r#"define ptx_kernel void @spmm(ptr %x, i32 %n) unnamed_addr #0 !dbg !5 {
  %a = call i32 asm sideeffect alignstack "shfl.sync.bfly.b32 $0, $1, 1, 31, -1;", "=r,r"(i32 %n) #2, !dbg !6, !srcloc !7
  %b = call i32 asm "{\0A\09.reg .pred p;\0A\09vote.sync.any.pred p, $1, -1;}", "=r,r"(i32 %n), !dbg !6
  %c = call i32 asm sideeffect "ld.global.nc.b32 $0, [$1];", "=r,l"(ptr %x) #2, !dbg !6
  ret void
}
define internal void @helper() {
attributes #0 = { convergent nounwind }
attributes #2 = { nounwind memory(none) }
"#;

    #[test]
    fn synchronising_assembly_is_marked_and_loads_are_not() {
        let marked = annotate(IR, |_| None);
        assert!(
            marked.contains(r#""=r,r"(i32 %n) convergent #2, !dbg !6, !srcloc !7"#),
            "{marked}"
        );
        assert!(
            marked.contains(r#""=r,r"(i32 %n) convergent, !dbg !6"#),
            "{marked}"
        );
        assert!(marked.contains(r#""=r,l"(ptr %x) #2"#), "{marked}");
    }

    #[test]
    fn a_function_without_the_mark_gets_it() {
        let marked = annotate(IR, |_| None);
        assert!(
            marked.contains("define internal void @helper() convergent {"),
            "{marked}"
        );
        assert!(marked.contains("unnamed_addr #0 !dbg"), "{marked}");
    }

    #[test]
    fn bounds_become_attributes_of_their_entry() {
        let bounds = LaunchBounds {
            max_threads: 128,
            min_ctas: Some(8),
        };
        let marked = annotate(IR, |name| (name == "spmm").then_some(bounds));
        assert!(
            marked
                .contains(r#"unnamed_addr "nvvm.maxntid"="128" "nvvm.minctasm"="8" #0 !dbg !5 {"#),
            "{marked}"
        );
    }

    #[test]
    fn opcodes_that_synchronise() {
        for opcode in [
            "bar.sync",
            "barrier.sync.aligned",
            "shfl.sync.idx.b32",
            "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32",
        ] {
            assert!(synchronises(opcode), "{opcode}");
        }
        for opcode in [
            "ld.global.v4.b32",
            "barycentre",
            "red.global.add.f32",
            "membar.cta",
        ] {
            assert!(!synchronises(opcode), "{opcode}");
        }
    }
}
