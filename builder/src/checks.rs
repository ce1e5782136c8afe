//! Rules that emitted PTX must keep, each checked on the text that the driver gets.
//!
//! | rule | why |
//! |---|---|
//! | every exported symbol is there | a kernel that was optimised away is an error at launch |
//! | no entry calls a function | a call left in means a panic path, a missing `#[inline]`, or an unresolved symbol |
//! | no synchronising instruction is copied into two arms of a branch | lanes would wait for each other in different places |
//! | barriers and shuffles are as many as declared | the same, for kernels that say how many they have |
//! | no local memory | an array that was meant for registers costs a trip to memory |
//! | no more products of 32 bits in addresses than declared | a row's offset that is cut off at 4 GiB |
//! | no `f64` | a stray `f64` runs at 1/64 of the speed of `f32` on most cards |

use std::fmt;

use serde::Deserialize;

use crate::narrow;
use crate::pattern;
use crate::ptx::{Function, Module, StatementKind};
use crate::twins;

/// What is allowed in, and expected of, the entries that a pattern names. The default allows nothing and expects no count.
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
pub fn check(module: &Module, exports: &[String], rules: impl Fn(&str) -> Rules) -> Vec<Fault> {
    let mut faults = Vec::new();
    for export in exports {
        let is_there = module
            .functions
            .iter()
            .any(|function| &function.name == export)
            || module
                .globals
                .iter()
                .any(|global| &global.name == export && global.is_visible);
        if !is_there {
            faults.push(Fault {
                entry: export.clone(),
                line: None,
                source: None,
                message: "the crate exports it, but it is not in the PTX".to_owned(),
            });
        }
    }
    for function in &module.functions {
        if is_panic_machinery(&demangled(&function.name)) {
            // The entry that calls it is at fault.
            continue;
        }
        let rules = rules(&function.name);
        check_calls(module, function, rules, &mut faults);
        check_memory_and_types(function, rules, &mut faults);
        if function.is_entry {
            check_counts(function, rules, &mut faults);
        }
        check_products(function, rules, &mut faults);
        if !rules.twins {
            check_twins(function, &mut faults);
        }
    }
    faults
}

/// Patterns that match no entry: a misspelled name would otherwise switch a rule off unseen.
pub(crate) fn unused_patterns<'a>(
    module: &Module,
    patterns: impl Iterator<Item = &'a String>,
    table: &str,
) -> Vec<Fault> {
    patterns
        .filter(|pattern| {
            !module
                .functions
                .iter()
                .any(|function| pattern::matches(pattern, &function.name))
        })
        .map(|pattern| Fault {
            entry: pattern.clone(),
            line: None,
            source: None,
            message: format!("[package.metadata.ptx.{table}] names it, but no entry matches"),
        })
        .collect()
}

fn check_calls(module: &Module, function: &Function, rules: Rules, faults: &mut Vec<Fault>) {
    for (statement, opcode, operands) in function.instructions() {
        if opcode != "call" && !opcode.starts_with("call.") {
            continue;
        }
        let callee = callee(operands);
        let name = demangled(callee);
        let message = if module
            .functions
            .iter()
            .any(|other| other.is_entry && other.name == callee)
        {
            format!("calls the entry {name}; an entry can only be launched")
        } else if is_panic_machinery(&name) {
            format!(
                "can panic: it calls {name}; make the condition provable, or use an operation that does not check"
            )
        } else if module.externs.iter().any(|name| name == callee) {
            format!("calls {name}, which is defined nowhere")
        } else if callee.starts_with('%') {
            "calls through a function pointer; the callee is not known when the kernel is compiled"
                .to_owned()
        } else if !rules.calls {
            format!(
                "calls {name}; mark that function #[inline(always)], or allow it by checks.calls"
            )
        } else {
            continue;
        };
        faults.push(fault(function, statement, message));
    }
}

fn demangled(symbol: &str) -> String {
    format!("{:#}", rustc_demangle::demangle(symbol))
}

/// What the language calls when a check fails: `core::panicking::…`, `core::slice::index::slice_index_fail`, ….
fn is_panic_machinery(name: &str) -> bool {
    name.starts_with("core::")
        && (name.contains("panic") || name.ends_with("_fail") || name.ends_with("_failed"))
}

/// `(retval0), name, (param0)` or `name, (param0)` or `name`.
fn callee(operands: &str) -> &str {
    let rest = match operands.strip_prefix('(') {
        Some(returned) => returned.split_once(')').map_or("", |(_, rest)| rest),
        None => operands,
    };
    rest.trim_start_matches([',', ' ', '\t'])
        .split([',', ' ', '(', '\t'])
        .next()
        .unwrap_or_default()
}

fn check_memory_and_types(function: &Function, rules: Rules, faults: &mut Vec<Fault>) {
    // One fault of each kind tells enough.
    if !rules.local {
        let local = function
            .statements
            .iter()
            .find_map(|statement| match &statement.kind {
                StatementKind::Declaration(text) if text.starts_with(".local") => {
                    Some((statement, text))
                }
                _ => None,
            });
        if let Some((declared, text)) = local {
            let used = function
                .instructions()
                .find(|(_, opcode, _)| {
                    opcode.starts_with("st.local") || opcode.starts_with("ld.local")
                })
                .or_else(|| {
                    function
                        .instructions()
                        .find(|(.., operands)| operands.contains("__local_depot"))
                });
            let bytes = text
                .rsplit_once('[')
                .map_or("?", |(_, rest)| rest.trim_end_matches(']'));
            let statement = used.map_or(declared, |(statement, _, _)| statement);
            faults.push(fault(
                function,
                statement,
                format!("keeps {bytes} bytes in local memory; index arrays by constants once loops are unrolled, or allow it by checks.local"),
            ));
        }
    }
    if !rules.f64 {
        let is_f64 = |opcode: &str| opcode.split('.').any(|part| part == "f64");
        if let Some((statement, opcode, _)) = function
            .instructions()
            .find(|(_, opcode, _)| is_f64(opcode))
        {
            faults.push(fault(
                function,
                statement,
                format!(
                    "computes in double precision ({opcode}); use f32, or allow it by checks.f64"
                ),
            ));
        }
    }
}

fn check_counts(function: &Function, rules: Rules, faults: &mut Vec<Fault>) {
    let expected = [
        ("barriers", rules.barriers, &["bar", "barrier"][..]),
        ("shuffles", rules.shuffles, &["shfl"][..]),
    ];
    for (what, declared, opcodes) in expected {
        let Some(declared) = declared else { continue };
        let found: Vec<_> = function
            .instructions()
            .filter(|(_, opcode, _)| {
                opcode
                    .split('.')
                    .next()
                    .is_some_and(|first| opcodes.contains(&first))
            })
            .collect();
        if found.len() != declared as usize {
            let message = format!(
                "has {} {what} where checks.{what} declares {declared}",
                found.len()
            );
            match found.last() {
                Some((statement, _, _)) => faults.push(fault(function, statement, message)),
                None => faults.push(Fault {
                    entry: function.name.clone(),
                    line: Some(function.line),
                    source: None,
                    message,
                }),
            }
        }
    }
}

fn check_products(function: &Function, rules: Rules, faults: &mut Vec<Fault>) {
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
        faults.push(fault(function, last, message));
    }
}

fn check_twins(function: &Function, faults: &mut Vec<Fault>) {
    for (first, second) in twins::find(function) {
        let StatementKind::Instruction { opcode, .. } = &second.kind else {
            continue;
        };
        faults.push(fault(
            function,
            second,
            format!(
                "{opcode} was copied into two arms of a branch, here and in PTX line {}; use the LLVM intrinsic in place of \
                 asm!",
                first.line
            ),
        ));
    }
}

fn fault(function: &Function, statement: &crate::ptx::Statement, message: String) -> Fault {
    Fault {
        entry: demangled(&function.name),
        line: Some(statement.line),
        source: statement.source.as_ref().map(ToString::to_string),
        message,
    }
}
