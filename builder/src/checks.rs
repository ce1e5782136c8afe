//! Rules that emitted PTX must keep, each checked on the text that the driver gets.
//!
//! | rule | why |
//! |---|---|
//! | every exported symbol is there | a kernel that was optimised away is an error at launch |
//! | no entry calls a function | a call left in means a panic path, a missing `#[inline]`, or an unresolved symbol |
//! | no synchronising instruction is copied into two arms of a branch | lanes would wait in different places |
//! | barriers and shuffles are as many as declared | the same, for kernels that say how many they have |
//! | no local memory | an array that was meant for registers costs a trip to memory |
//! | no more products of 32 bits in addresses than declared | a row's offset that is cut off at 4 GiB |
//! | no `f64` | a stray `f64` runs at 1/64 of the speed of `f32` on most GPUs |

use std::fmt;

use serde::Deserialize;

use ptx_syntax::{Function, Instruction, Operand};

use crate::narrow;
use crate::pattern;
use crate::ptx::{self, Module};
use crate::twins;

/// What is allowed in, and expected of, the entries that a pattern names. The default allows nothing and expects no
/// count.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields, default)]
pub struct Rules {
    /// Local memory (`.local`) is meant.
    pub local: bool,
    /// Double precision is meant.
    pub f64: bool,
    /// Calls of device functions are meant. Calls of what is nowhere defined remain an error.
    pub calls: bool,
    /// Copies of a synchronising instruction in two arms of a branch are meant: a macro that writes both arms itself.
    pub twins: bool,
    /// How many products of two 32-bit variables may end in an address of global memory: those that are known to stay
    /// below 2³², such as a head times the loads of a head.
    pub narrow_products: u32,
    /// How many bytes `ptxas` may spill to local memory, and as many read back, on any architecture.
    pub spills: u32,
    /// How many barriers (`bar`, `barrier`) the PTX holds.
    pub barriers: Option<u32>,
    /// How many shuffles (`shfl`) the PTX holds.
    pub shuffles: Option<u32>,
}

/// A broken rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// The entry or symbol.
    pub entry: String,
    /// The line of the PTX file, if the fault has one.
    pub line: Option<usize>,
    /// The place in the kernels' source, if known.
    pub source: Option<String>,
    /// Which rule, and what broke it.
    pub message: String,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.entry, self.message)?;
        match (self.line, &self.source) {
            (Some(line), Some(source)) => write!(f, " (PTX line {line}, from {source})"),
            (Some(line), None) => write!(f, " (PTX line {line})"),
            (None, _) => Ok(()),
        }
    }
}

/// Checks a module: `exports` are the symbols it must hold, `rules` gives the rules of an entry by its name.
/// Returns every fault, in the order of the file.
pub fn check(module: &Module<'_>, exports: &[String], rules: impl Fn(&str) -> Rules) -> Vec<Fault> {
    let source = &module.source;
    let mut faults = Vec::new();
    for export in exports {
        let is_there = defined(module).any(|function| function.name == export)
            || source.variable(export).is_some_and(|it| it.visible);
        if !is_there {
            faults.push(Fault {
                entry: export.clone(),
                line: None,
                source: None,
                message: "the crate exports it, but it is not in the PTX".to_owned(),
            });
        }
    }
    for function in defined(module) {
        if is_panic_machinery(&demangled(function.name)) {
            // The entry that calls it is at fault.
            continue;
        }
        let rules = rules(function.name);
        check_calls(module, function, rules, &mut faults);
        check_memory_and_types(module, function, rules, &mut faults);
        if function.is_entry {
            check_counts(module, function, rules, &mut faults);
        }
        check_products(module, function, rules, &mut faults);
        if !rules.twins {
            check_twins(module, function, &mut faults);
        }
    }
    faults
}

/// Kernels and functions with a body.
fn defined<'m, 'a>(module: &'m Module<'a>) -> impl Iterator<Item = &'m Function<'a>> {
    let functions = module.source.functions.iter();
    functions.filter(|function| function.defined)
}

/// Patterns that match no entry: a misspelled name would otherwise switch a rule off unseen.
pub(crate) fn unused_patterns<'a>(
    entries: &[&str],
    patterns: impl IntoIterator<Item = &'a String>,
    table: &str,
) -> Vec<Fault> {
    patterns
        .into_iter()
        .filter(|pattern| !entries.iter().any(|entry| pattern::matches(pattern, entry)))
        .map(|pattern| Fault {
            entry: pattern.clone(),
            line: None,
            source: None,
            message: format!("[package.metadata.ptx.{table}] names it, but no entry matches"),
        })
        .collect()
}

fn check_calls(
    module: &Module<'_>,
    function: &Function<'_>,
    rules: Rules,
    faults: &mut Vec<Fault>,
) {
    for instruction in &function.body {
        if base(instruction) != "call" {
            continue;
        }
        // `(retval0), name, (param0)`; a register stands for a name where the callee is a pointer.
        let callee = instruction
            .operands
            .iter()
            .find_map(|operand| match operand {
                Operand::Name(name, 0) => Some(*name),
                Operand::Reg(_) => Some("%"),
                _ => None,
            });
        let callee = callee.unwrap_or_default();
        let name = demangled(callee);
        let is_defined = defined(module).any(|other| other.name == callee);
        let message = if module.source.entries().any(|entry| entry.name == callee) {
            format!("calls the entry {name}; an entry can only be launched")
        } else if is_panic_machinery(&name) {
            format!(
                "can panic: it calls {name}; make the condition provable, or use an operation that does not check"
            )
        } else if callee.starts_with('%') {
            "calls through a function pointer; the callee is not known when the kernel is compiled"
                .to_owned()
        } else if !is_defined {
            format!("calls {name}, which is defined nowhere")
        } else if !rules.calls {
            format!(
                "calls {name}; mark that function #[inline(always)], or allow it by checks.calls"
            )
        } else {
            continue;
        };
        faults.push(fault(module, function, instruction, message));
    }
}

/// The opcode without its modifiers.
fn base<'a>(instruction: &Instruction<'a>) -> &'a str {
    instruction.opcode.split('.').next().unwrap_or_default()
}

fn demangled(symbol: &str) -> String {
    format!("{:#}", rustc_demangle::demangle(symbol))
}

/// What the language calls when a check fails: `core::panicking::…`, `core::slice::index::slice_index_fail`, ….
fn is_panic_machinery(name: &str) -> bool {
    name.starts_with("core::")
        && (name.contains("panic") || name.ends_with("_fail") || name.ends_with("_failed"))
}

fn check_memory_and_types(
    module: &Module<'_>,
    function: &Function<'_>,
    rules: Rules,
    faults: &mut Vec<Fault>,
) {
    // One fault of each kind is enough.
    if let (false, Some(local)) = (rules.local, function.locals.first()) {
        let message = format!(
            "keeps {} bytes in local memory; index arrays by constants once loops are unrolled, or allow it by checks.local",
            local.size
        );
        let used = function.body.iter().find(|i| ptx::uses_local(i));
        faults.push(match used {
            Some(instruction) => fault(module, function, instruction, message),
            None => fault_at(function, local.line, message),
        });
    }
    let is_f64 = |i: &&Instruction<'_>| i.opcode.split('.').any(|part| part == "f64");
    if let (false, Some(instruction)) = (rules.f64, function.body.iter().find(is_f64)) {
        let message = format!(
            "computes in double precision ({}); use f32, or allow it by checks.f64",
            instruction.opcode
        );
        faults.push(fault(module, function, instruction, message));
    }
}

fn check_counts(
    module: &Module<'_>,
    function: &Function<'_>,
    rules: Rules,
    faults: &mut Vec<Fault>,
) {
    let expected = [
        ("barriers", rules.barriers, &["bar", "barrier"][..]),
        ("shuffles", rules.shuffles, &["shfl"][..]),
    ];
    for (what, declared, opcodes) in expected {
        let Some(declared) = declared else { continue };
        let body = function.body.iter();
        let found: Vec<_> = body.filter(|i| opcodes.contains(&base(i))).collect();
        if found.len() != declared as usize {
            let message = format!(
                "has {} {what} where checks.{what} declares {declared}",
                found.len()
            );
            faults.push(match found.last() {
                Some(instruction) => fault(module, function, instruction, message),
                None => fault_at(function, function.line, message),
            });
        }
    }
}

fn check_products(
    module: &Module<'_>,
    function: &Function<'_>,
    rules: Rules,
    faults: &mut Vec<Fault>,
) {
    let found = narrow::products(function);
    let allowed = rules.narrow_products;
    if let (true, Some(last)) = (found.len() > allowed as usize, found.last()) {
        let lines: Vec<String> = found.iter().map(|at| at.line.to_string()).collect();
        let message = format!(
            "makes addresses of {} products of 32 bits where checks.narrow-products allows {allowed} (PTX lines {}); \
             multiply in 64 bits, or declare one more if none can reach 2^32",
            found.len(),
            lines.join(", ")
        );
        faults.push(fault(module, function, last, message));
    }
}

fn check_twins(module: &Module<'_>, function: &Function<'_>, faults: &mut Vec<Fault>) {
    for (first, second) in twins::find(module, function) {
        let message = format!(
            "{} was copied into two arms of a branch, here and in PTX line {}; use the LLVM intrinsic in place of asm!",
            second.opcode, first.line
        );
        faults.push(fault(module, function, second, message));
    }
}

fn fault(
    module: &Module<'_>,
    function: &Function<'_>,
    instruction: &Instruction<'_>,
    message: String,
) -> Fault {
    Fault {
        source: module.place(instruction).map(|place| place.to_string()),
        ..fault_at(function, instruction.line, message)
    }
}

/// A fault in a line that comes from no place in the source.
fn fault_at(function: &Function<'_>, line: u32, message: String) -> Fault {
    Fault {
        entry: demangled(function.name),
        line: Some(line as usize),
        source: None,
        message,
    }
}
