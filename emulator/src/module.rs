//! A parsed PTX text.

use crate::allocate::allocate;
use crate::decode::Names;
use crate::ir::Program;
use ptx_syntax::{ParseError, shorten};
use ptx_syntax::{Source, VariableSpace};
use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

/// A PTX text, parsed, linked and typed: every instruction of it can be executed.
#[derive(Debug)]
pub struct Module {
    /// Distinguishes modules on a device.
    pub(crate) id: u64,
    text: Arc<str>,
    version: (u32, u32),
    target: Arc<str>,
    files: Arc<HashMap<u32, String>>,
    entries: Arc<[Entry]>,
    pub(crate) variables: Arc<[GlobalVariable]>,
}

/// A number that no other module of the process has.
fn next_id() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    NEXT.fetch_add(1, Ordering::Relaxed)
}

/// A `.global` or `.const` variable.
#[derive(Debug)]
pub(crate) struct GlobalVariable {
    pub name: String,
    /// The index by which programs refer to it.
    pub index: u32,
    pub bytes: Vec<u8>,
    /// Addresses of other variables inside: at which byte, of which index, plus what.
    pub relocations: Vec<(u32, u32, i64)>,
}

/// A parameter of a kernel.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Param {
    /// Where it begins in the buffer of parameters.
    pub offset: usize,
    /// Bytes.
    pub size: usize,
    /// Alignment in bytes.
    pub align: usize,
}

/// A kernel.
#[derive(Debug)]
pub struct Entry {
    /// Its name.
    pub name: String,
    /// Its parameters in order.
    pub params: Vec<Param>,
    /// Bytes of static shared memory that it uses.
    pub static_shared: usize,
    /// Threads of a block at most, where the text says so.
    pub max_threads: Option<u32>,
    /// Instructions of the kernel and of all functions that it reaches.
    pub instructions: usize,
    /// As the text has it.
    program: Program,
    /// As it is run: made at the first launch.
    allocated: OnceLock<Program>,
}

impl Entry {
    /// What runs.
    pub(crate) fn program(&self) -> &Program {
        self.allocated
            .get_or_init(|| allocate(self.program.clone()))
    }

    /// Bytes of the buffer of parameters: from the first to the end of the last.
    pub fn param_bytes(&self) -> usize {
        self.params.last().map_or(0, |p| p.offset + p.size)
    }
}

impl Module {
    /// Parses a PTX text and decodes every instruction in it.
    ///
    /// # Errors
    /// For text that is not PTX, and for any instruction, type or modifier that is not implemented: nothing is left to
    /// be found out at a launch.
    pub fn parse(ptx: &str) -> Result<Module, ParseError> {
        let source = ptx_syntax::parse(ptx)?;
        let names = Names::new(&source)?;
        let mut reached = Vec::new();
        let mut entries = Vec::new();
        for (i, function) in source
            .functions
            .iter()
            .enumerate()
            .filter(|(_, f)| f.is_entry && f.defined)
        {
            let program = names.link(i)?;
            reached.extend(program.functions.iter().map(|(_, name)| name.clone()));
            entries.push(entry(function, program));
        }
        // A function that no kernel calls is read all the same.
        for (i, f) in source
            .functions
            .iter()
            .enumerate()
            .filter(|(_, f)| f.defined)
        {
            if !f.is_entry && !reached.iter().any(|name| name == f.name) {
                names.link(i)?;
            }
        }
        Ok(Module {
            id: next_id(),
            text: ptx.into(),
            version: source.version,
            target: source.target.into(),
            files: source.files.clone().into(),
            variables: variables(&source, &names)?.into(),
            entries: entries.into(),
        })
    }

    /// The same text once more, as if it had been parsed again: on a device it has variables of its own.
    pub fn again(&self) -> Module {
        Module {
            id: next_id(),
            text: self.text.clone(),
            version: self.version,
            target: self.target.clone(),
            files: self.files.clone(),
            entries: self.entries.clone(),
            variables: self.variables.clone(),
        }
    }

    /// The text that it was read from.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// The kernels, in the text's order.
    pub fn entries(&self) -> impl Iterator<Item = &Entry> {
        self.entries.iter()
    }

    /// The kernel of this name.
    pub fn entry(&self, name: &str) -> Option<&Entry> {
        self.entries.iter().find(|e| e.name == name)
    }

    /// The initial bytes of a `.global` or `.const` variable; addresses in it are zero until it is on a device.
    pub fn global(&self, name: &str) -> Option<&[u8]> {
        self.variables
            .iter()
            .find(|v| v.name == name)
            .map(|v| v.bytes.as_slice())
    }

    /// `.target`, such as `sm_90`.
    pub fn target(&self) -> &str {
        &self.target
    }

    /// `.version`, such as (8, 0).
    pub fn version(&self) -> (u32, u32) {
        self.version
    }

    /// The text of an instruction, on one line.
    pub(crate) fn instruction_text(&self, (start, end): (u32, u32)) -> String {
        match self.text.get(start as usize..end as usize) {
            Some("") | None => "end of the function".to_owned(),
            Some(text) => shorten(text),
        }
    }

    /// The file and line that a `.loc` named.
    pub(crate) fn source_line(&self, (file, line): (u32, u32)) -> Option<(String, u32)> {
        self.files.get(&file).map(|path| (path.clone(), line))
    }
}

fn entry(function: &ptx_syntax::Function<'_>, program: Program) -> Entry {
    let mut at = 0usize;
    let params = function
        .params
        .iter()
        .map(|p| {
            let (size, align) = (p.size as usize, p.align as usize);
            let offset = at.next_multiple_of(align);
            at = offset + size;
            Param {
                offset,
                size,
                align,
            }
        })
        .collect();
    Entry {
        name: function.name.to_owned(),
        params,
        static_shared: program.static_shared as usize,
        max_threads: function.max_threads,
        instructions: program.instructions.len(),
        program,
        allocated: OnceLock::new(),
    }
}

fn variables(
    source: &Source<'_>,
    names: &Names<'_, '_>,
) -> Result<Vec<GlobalVariable>, ParseError> {
    let global = |i: usize| source.variables[i].space != VariableSpace::Shared;
    let listed = source
        .variables
        .iter()
        .enumerate()
        .filter(|(i, _)| global(*i));
    listed
        .map(|(index, v)| {
            let mut bytes = v.init.clone();
            bytes.resize(v.size as usize, 0);
            let relocations =
                v.relocations
                    .iter()
                    .map(|(at, name, offset)| match names.variable(name) {
                        Some(i) if global(i) => Ok((*at, i as u32, *offset)),
                        _ => Err(ParseError::new(
                            v.line,
                            v.name,
                            format!("its initial value names {name}, which is no variable here"),
                        )),
                    });
            let relocations = relocations.collect::<Result<_, _>>()?;
            Ok(GlobalVariable {
                name: v.name.to_owned(),
                index: index as u32,
                bytes,
                relocations,
            })
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error(body: &str) -> String {
        let text = format!(
            ".version 8.0\n.target sm_80\n.address_size 64\n.visible .entry k(.param .u64 p) {{\n.reg .pred %p<4>; .reg .b16 %rs<4>; .reg .b32 %r<4>; .reg .b64 %rd<4>;\n{body}\nret;\n}}"
        );
        Module::parse(&text)
            .map(|_| ())
            .expect_err(body)
            .to_string()
    }

    #[test]
    fn what_is_not_implemented_is_named_with_its_line() {
        for (body, expected) in [
            (
                "wgmma.fence.sync.aligned;",
                "the instruction wgmma is not implemented",
            ),
            ("add.rn.bf16 %rs1, %rs2, %rs3;", ".bf16 is not implemented"),
            (
                "ld.global.nc.L3.b32 %r1, [%rd1];",
                "the modifier .L3 of ld is not implemented",
            ),
            (
                "add.s32 %r1, %rd1, %r2;",
                "an operand of 32 bits cannot be a register of 64",
            ),
            (
                "add.s32 %rd1, %r1, %r2;",
                "a result of 32 bits cannot go to a register of 64",
            ),
            (
                "add.s32 %r1, %r2;",
                "3 operands are expected here, and 2 are given",
            ),
            (
                "mov.b32 %r1, %cluster_ctaid.x;",
                "the special register %cluster_ctaid.x is not implemented",
            ),
            ("mov.b64 %rd1, nothing;", "nothing here is called nothing"),
            ("bra NOWHERE;", "there is no label NOWHERE here"),
            (
                "mov.b32 %r1, 4294967296;",
                "4294967296 does not fit 32 bits",
            ),
            ("bar.sync 16;", "barriers are numbered 0 to 15"),
            ("call.uni f, ();", "the function f has no body in this text"),
            (
                "fma.rz.f64 %rd1, %rd2, %rd3, %rd1;",
                "implemented with .rn only",
            ),
            (
                "ld.param.b64 %rd1, [p+8];",
                "this load lies outside the parameter's 8 bytes",
            ),
            (
                "cp.async.cg.shared.global [%r1], [%rd1], 8;",
                "cp.async cannot copy 8 bytes like this",
            ),
            (
                "mma.sync.aligned.m8n8k16.row.col.s32.s8.s8.s32 {%r1}, {%r1}, {%r1}, {%r1};",
                "mma of this shape is not implemented",
            ),
        ] {
            let message = error(body);
            assert!(
                message.starts_with("PTX line 6: ") && message.contains(expected),
                "{message}"
            );
        }
    }

    #[test]
    fn recursion_is_refused() {
        let text = ".version 8.0 .target sm_80
            .func g();
            .func f() { call.uni g, (); ret; }
            .func g() { call.uni f, (); ret; }
            .visible .entry k() { call.uni f, (); ret; }";
        let message = Module::parse(text).unwrap_err().to_string();
        assert!(
            message.contains("recursion is not implemented"),
            "{message}"
        );
    }

    #[test]
    fn a_text_tells_about_itself() {
        let text = ".version 8.3 .target sm_90, debug .address_size 64
            .const .align 8 .b8 table[12] = {1, 2, 3};
            .global .align 8 .u64 pointer = table + 4;
            .shared .align 4 .b8 fixed[20];
            .extern .shared .align 16 .b8 dynamic[];
            .visible .entry k(.param .b32 a, .param .align 8 .b8 b[12], .param .u16 c) .maxntid 32, 4, 1 {
                .reg .b32 %r<3>;
                mov.u32 %r1, fixed;
                mov.u32 %r2, dynamic;
                ret;
            }";
        let module = Module::parse(text).unwrap();
        assert_eq!((module.version(), module.target()), ((8, 3), "sm_90"));
        assert_eq!(
            module.global("table"),
            Some(&[1u8, 2, 3, 0, 0, 0, 0, 0, 0, 0, 0, 0][..])
        );
        assert_eq!(module.global("fixed"), None);
        let entry = module.entry("k").unwrap();
        let params: Vec<_> = entry
            .params
            .iter()
            .map(|p| (p.offset, p.size, p.align))
            .collect();
        assert_eq!(params, [(0, 4, 4), (8, 12, 8), (20, 2, 2)]);
        // Dynamic memory begins at its own alignment behind the static.
        assert_eq!(
            (entry.param_bytes(), entry.max_threads, entry.static_shared),
            (22, Some(128), 32)
        );
        assert_eq!(module.entries().count(), 1);
    }
}
