//! A parsed PTX text.

use crate::decode::Names;
use crate::error::{ParseError, shorten};
use crate::ir::Program;
use crate::parser::syntax::{Source, VariableSpace};
use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};

/// A PTX text, parsed, linked and typed: every instruction of it can be executed.
#[derive(Debug)]
pub struct Module {
    /// Distinguishes modules on a device.
    pub(crate) id: u64,
    text: String,
    version: (u32, u32),
    target: String,
    files: HashMap<u32, String>,
    entries: Vec<Entry>,
    pub(crate) variables: Vec<GlobalVariable>,
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
    pub(crate) program: Program,
}

impl Entry {
    /// Bytes of the buffer of parameters: from the first to the end of the last.
    pub fn param_bytes(&self) -> usize {
        self.params.last().map_or(0, |p| p.offset + p.size)
    }
}

impl Module {
    /// Parses a PTX text and decodes every instruction in it.
    ///
    /// # Errors
    /// For text that is not PTX, and for any instruction, type or modifier that is not implemented: nothing is left to be
    /// found out at a launch.
    pub fn parse(ptx: &str) -> Result<Module, ParseError> {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        let source = crate::parser::parse(ptx)?;
        let names = Names::new(ptx, &source)?;
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
            id: NEXT.fetch_add(1, Ordering::Relaxed),
            text: ptx.to_owned(),
            version: source.version,
            target: source.target.to_owned(),
            files: source.files.clone(),
            variables: variables(&source, &names)?,
            entries,
        })
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

fn entry(function: &crate::parser::syntax::Function<'_>, program: Program) -> Entry {
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
