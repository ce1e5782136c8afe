//! Reads as much of a PTX file as its checks and the manifest need: entries, parameters, statements with their source
//! lines, shared memory. It reads what LLVM writes; a full parser is the emulator's business.

mod reader;

use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;

/// A PTX file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Module {
    /// `.version`, e.g. `8.0`.
    pub version: String,
    /// `.target`, e.g. `sm_90`.
    pub target: String,
    /// Entries and functions with a body, in the file's order.
    pub functions: Vec<Function>,
    /// Functions that are declared and not defined: unresolved externs.
    pub externs: Vec<String>,
    /// Variables at module level.
    pub globals: Vec<Global>,
    /// Source files by number, as `.file` names them.
    pub files: BTreeMap<u32, String>,
}

/// A kernel (`.entry`) or a device function (`.func`).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Function {
    /// The symbol.
    pub name: String,
    /// `.entry`, or else `.func`.
    pub is_entry: bool,
    /// Its line in the PTX file, from 1.
    pub line: usize,
    /// Parameters, in order.
    pub params: Vec<Param>,
    /// `.maxntid` in all three dimensions multiplied, if given.
    pub max_threads: Option<u32>,
    /// `.minnctapersm`, if given.
    pub min_ctas: Option<u32>,
    /// Declarations and instructions, in order.
    pub statements: Vec<Statement>,
}

/// One parameter of an entry.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Param {
    /// Size in bytes.
    pub size: u32,
    /// Alignment in bytes.
    pub align: u32,
    /// PTX's type: `u64`, `f32`, `b8` for an aggregate.
    pub ty: String,
}

/// A variable at module level.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Global {
    /// The symbol.
    pub name: String,
    /// The state space: `global`, `shared`, `const`.
    pub space: String,
    /// Size in bytes; 0 for an extern array, whose size the launch gives.
    pub size: u64,
    /// Whether the host can find it (`.visible`).
    pub is_visible: bool,
}

/// A statement of a function's body.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Statement {
    /// Its line in the PTX file, from 1.
    pub line: usize,
    /// What it is.
    pub kind: StatementKind,
    /// Where it comes from, if the file has `.loc` lines.
    pub source: Option<Source>,
}

/// The kinds of statement that are told apart.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StatementKind {
    /// A jump target.
    Label(String),
    /// A variable in the body, whole: `.reg .b32 %r<9>`, `.local .align 8 .b8 __local_depot0[16]`.
    Declaration(String),
    /// An instruction.
    Instruction {
        /// The guard's register, with its `!`, if there is one.
        guard: Option<String>,
        /// `ld.global.b32`.
        opcode: String,
        /// What follows the opcode.
        operands: String,
    },
}

/// A place in the source, and by which calls it was inlined.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Source {
    /// `kernels-gpu/src/spmm.rs:31:18`, innermost first, then each call site.
    pub chain: Vec<String>,
}

/// What the sources of `core` are called in `.file` lines.
pub(crate) const LIBRARY: &str = "rust-library";

impl Source {
    /// Completes each place by its `.file`: the one of that number, or, since the paths in LLVM's comments are relative to
    /// their crate, the only one that ends so.
    fn complete(&mut self, files: &BTreeMap<u32, String>) {
        for place in &mut self.chain {
            let path = place.split(':').next().unwrap_or_default();
            let end = path.len();
            let mut fitting = files
                .values()
                .filter(|file| Path::new(file).ends_with(path));
            let file = match path.parse() {
                Ok(number) => files.get(&number),
                Err(_) => fitting.next().filter(|_| fitting.next().is_none()),
            };
            if let Some(file) = file {
                place.replace_range(..end, file);
            }
        }
    }
}

impl fmt::Display for Source {
    /// The place in the kernels' own source: the innermost that is not in the standard library.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let is_own = |place: &&String| !place.starts_with(LIBRARY) && !place.contains("/stdarch/");
        match self.chain.iter().find(is_own).or(self.chain.first()) {
            Some(place) => f.write_str(place),
            None => f.write_str("unknown line"),
        }
    }
}

impl Module {
    /// Reads a PTX text. Never fails: what it does not know is skipped.
    pub fn read(text: &str) -> Self {
        reader::read(text)
    }

    /// The entries, in the file's order.
    pub fn entries(&self) -> impl Iterator<Item = &Function> {
        self.functions.iter().filter(|function| function.is_entry)
    }

    fn complete_sources(&mut self) {
        let files = std::mem::take(&mut self.files);
        let statements = self
            .functions
            .iter_mut()
            .flat_map(|function| &mut function.statements);
        for source in statements.filter_map(|statement| statement.source.as_mut()) {
            source.complete(&files);
        }
        self.files = files;
    }

    /// Bytes of static shared memory that a function names.
    pub fn static_shared(&self, function: &Function) -> u64 {
        self.globals
            .iter()
            .filter(|global| global.space == "shared")
            .filter(|global| {
                function
                    .instructions()
                    .any(|(_, _, operands)| words(operands).any(|word| word == global.name))
            })
            .map(|global| global.size)
            .sum()
    }
}

impl Function {
    /// The instructions: statement, opcode, operands.
    pub fn instructions(&self) -> impl Iterator<Item = (&Statement, &str, &str)> {
        self.statements
            .iter()
            .filter_map(|statement| match &statement.kind {
                StatementKind::Instruction {
                    opcode, operands, ..
                } => Some((statement, opcode.as_str(), operands.as_str())),
                _ => None,
            })
    }
}

/// The identifiers in a piece of PTX.
pub(crate) fn words(text: &str) -> impl Iterator<Item = &str> {
    text.split(|c: char| !(c.is_alphanumeric() || matches!(c, '_' | '$' | '%')))
        .filter(|word| !word.is_empty())
}
