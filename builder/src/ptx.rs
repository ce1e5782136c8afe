//! PTX, and the places in the kernels' source that it comes from.

use std::collections::HashMap;
use std::fmt;
use std::path::Path;

use ptx_syntax::{Function, Instruction, Operand, ParseError, SlotKind, Source, VariableSpace};

/// A PTX text with the comments in which LLVM says by which calls an instruction was inlined.
#[derive(Debug)]
pub struct Module<'a> {
    /// What the text declares.
    pub source: Source<'a>,
    lines: Vec<&'a str>,
}

/// A place in the source, and by which calls it was inlined.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Place {
    /// `kernels-gpu/src/spmm.rs:31:18`, innermost first, then each call site.
    pub chain: Vec<String>,
}

/// What the sources of `core` are called in `.file` lines.
pub(crate) const LIBRARY: &str = "rust-library";

impl<'a> Module<'a> {
    /// Reads a PTX text.
    ///
    /// # Errors
    /// [`ParseError`] with the line that is no PTX.
    pub fn parse(text: &'a str) -> Result<Self, ParseError> {
        Ok(Self {
            source: ptx_syntax::parse(text)?,
            lines: text.lines().collect(),
        })
    }

    /// Where an instruction comes from, if the text has `.loc` lines.
    pub fn place(&self, instruction: &Instruction<'_>) -> Option<Place> {
        let line = self
            .lines
            .get((instruction.loc_line as usize).checked_sub(1)?)?;
        let mut chain: Vec<String> = chain(line).map(str::to_owned).collect();
        if chain.is_empty() {
            // Without a comment its numbers, the first of which is a file's.
            let numbers: Vec<&str> = line.split_whitespace().skip(1).take(3).collect();
            chain.push(numbers.join(":"));
        }
        // Line 0 marks code that the compiler made up.
        let made_up = chain.len() == 1 && chain[0].contains(":0:");
        (!made_up).then(|| Place { chain }.complete(&self.source.files))
    }

    /// Bytes of static shared memory that a function names.
    pub fn static_shared(&self, function: &Function<'_>) -> u64 {
        let variables = self.source.variables.iter();
        variables
            .filter(|variable| variable.space == VariableSpace::Shared)
            .filter(|variable| {
                let operands = function.body.iter().flat_map(|i| &i.operands);
                operands
                    .flat_map(Operand::names)
                    .any(|name| name == variable.name)
            })
            .map(|variable| u64::from(variable.size))
            .sum()
    }
}

/// The places in the comment of a `.loc` line: `// a.rs:1:2 @[ b.rs:3:4 @[ c.rs:5:6 ] ]`, innermost first.
pub(crate) fn chain(line: &str) -> impl Iterator<Item = &str> {
    let comment = line.split_once("//").map(|(_, comment)| comment);
    let places = comment.into_iter().flat_map(|text| text.split("@["));
    places.map(|place| place.trim_matches([' ', ']', '\t']))
}

/// Whether an instruction reads or writes a variable in local memory, or takes its address.
pub(crate) fn uses_local(instruction: &Instruction<'_>) -> bool {
    fn is_local(operand: &Operand<'_>) -> bool {
        match operand {
            Operand::Slot(kind, ..) => *kind == SlotKind::Local,
            Operand::Address(base, _) => is_local(base),
            Operand::Vector(list) | Operand::List(list) => list.iter().any(is_local),
            _ => false,
        }
    }
    let opcode = instruction.opcode;
    opcode.starts_with("st.local")
        || opcode.starts_with("ld.local")
        || instruction.operands.iter().any(is_local)
}

impl Place {
    /// Completes each place by its `.file`: the one of that number, or, since the paths in LLVM's comments are relative
    /// to their crate, the only one that ends so.
    fn complete(mut self, files: &HashMap<u32, String>) -> Self {
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
        self
    }
}

impl fmt::Display for Place {
    /// The place in the kernels' own source: the innermost that is not in the standard library.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let is_own = |place: &&String| !place.starts_with(LIBRARY) && !place.contains("/stdarch/");
        match self.chain.iter().find(is_own).or(self.chain.first()) {
            Some(place) => f.write_str(place),
            None => f.write_str("unknown line"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PTX: &str = "
.version 8.0
.target sm_90
.address_size 64
.shared .align 16 .b8 tile[1024];
.extern .shared .align 16 .b8 smem[];
.visible .entry spmm(
	.param .u64 .ptr .align 1 spmm_param_0
)
{
	.reg .b32 	%r<9>;
	.reg .b64 	%rd<9>;
	.reg .pred 	%p<9>;
	.loc	1 15 0                          // src/lib.rs:15:0
	ld.global.v4.b32 {%r1, %r2, %r3, %r4}, [%rd1];
	.loc	2 55 5                          // rust-library/stdarch/mod.rs:55:5 @[ src/lib.rs:34:9 @[ src/spmm.rs:7:1 ] ]
	@!%p1 bra 	$L__BB0_2;
	{ .reg .pred q; mov.u64 %rd2, tile; }
$L__BB0_2:
	.loc	1 0 0                           // src/lib.rs:0:0
	ret;
}
	.file	1 \"kernels/src/lib.rs\"
";

    #[test]
    fn instructions_know_the_kernels_own_source() {
        let module = Module::parse(PTX).expect("it is PTX");
        let entry = &module.source.functions[0];
        assert_eq!(module.static_shared(entry), 1024);
        let places: Vec<Option<String>> = entry
            .body
            .iter()
            .map(|i| module.place(i).map(|place| place.to_string()))
            .collect();
        let expected = [
            Some("kernels/src/lib.rs:15:0"),
            Some("kernels/src/lib.rs:34:9"),
            Some("kernels/src/lib.rs:34:9"),
            None,
        ];
        assert_eq!(places, expected.map(|place| place.map(str::to_owned)));
        let branch = module.place(&entry.body[1]).expect("a place");
        assert_eq!(branch.chain.len(), 3);
        assert_eq!(branch.chain[2], "src/spmm.rs:7:1");
    }
}
