//! The text of a PTX file, piece by piece, into a [`Module`].

use super::{Function, Global, Module, Param, Source, Statement, StatementKind};

pub(super) fn read(text: &str) -> Module {
    Reader::default().read(text)
}

/// Bytes of a fundamental type: `u64` is 8.
fn type_size(ty: &str) -> Option<u32> {
    let digits: String = ty.chars().filter(char::is_ascii_digit).collect();
    match ty {
        "f16x2" | "bf16x2" => Some(4),
        "pred" => Some(1),
        _ => digits.parse::<u32>().ok().map(|bits| bits / 8),
    }
}

#[derive(Default)]
struct Reader {
    module: Module,
    function: Option<Function>,
    /// Depth of braces inside the function; 0 while its head is read.
    depth: usize,
    source: Option<Source>,
    in_block_comment: bool,
}

impl Reader {
    fn read(mut self, text: &str) -> Module {
        let mut pending = String::new();
        let mut pending_line = 0;
        for (index, line) in text.lines().enumerate() {
            let code = self.strip_comments(line);
            if code.split_whitespace().next() == Some(".loc") {
                self.source = location(line);
                continue;
            }
            for piece in split_statements(&code) {
                if pending.trim().is_empty() {
                    pending.clear();
                    pending_line = index + 1;
                }
                match piece {
                    Piece::Text(text) => {
                        pending.push_str(text);
                        pending.push(' ');
                    }
                    Piece::Open => self.open(&mut pending, pending_line),
                    Piece::Close => self.close(&mut pending),
                    Piece::End => {
                        let statement = std::mem::take(&mut pending);
                        self.statement(statement.trim(), pending_line);
                    }
                }
            }
            // Labels and the file's directives end with their line.
            let text = pending.trim();
            if text.starts_with(".version")
                || text.starts_with(".target")
                || text.starts_with(".address_size")
                || text.starts_with(".file")
            {
                self.directive(&std::mem::take(&mut pending));
            } else if self.depth > 0 && text.ends_with(':') {
                let statement = std::mem::take(&mut pending);
                self.statement(statement.trim(), pending_line);
            }
        }
        self.module.complete_sources();
        self.module
    }

    /// The line without comments.
    fn strip_comments(&mut self, line: &str) -> String {
        let mut code = String::with_capacity(line.len());
        let mut rest = line;
        loop {
            if self.in_block_comment {
                match rest.split_once("*/") {
                    Some((_, after)) => {
                        self.in_block_comment = false;
                        rest = after;
                    }
                    None => return code,
                }
            }
            let block = rest.find("/*");
            let end = rest.find("//").unwrap_or(rest.len());
            match block {
                Some(at) if at < end => {
                    code.push_str(&rest[..at]);
                    self.in_block_comment = true;
                    rest = &rest[at + 2..];
                }
                _ => {
                    code.push_str(&rest[..end]);
                    return code;
                }
            }
        }
    }

    fn directive(&mut self, text: &str) {
        let mut words = text.split_whitespace();
        let value = |word: Option<&str>| word.unwrap_or_default().trim_end_matches(',').to_owned();
        match words.next() {
            Some(".version") => self.module.version = value(words.next()),
            Some(".target") => self.module.target = value(words.next()),
            Some(".file") => {
                let number = words.next().and_then(|word| word.parse().ok());
                let path = text.split('"').nth(1).map(str::to_owned);
                self.module.files.extend(number.zip(path));
            }
            _ => {}
        }
    }

    fn open(&mut self, pending: &mut String, line: usize) {
        if self.function.is_some() {
            self.depth += 1;
            return;
        }
        let head = pending.trim();
        if let Some(function) = function_head(head, line) {
            self.function = Some(function);
            self.depth = 1;
            self.source = None;
            pending.clear();
        } else {
            // An initialiser or a section: part of a statement at module level.
            pending.push('{');
        }
    }

    fn close(&mut self, pending: &mut String) {
        if self.function.is_none() {
            pending.push('}');
            if pending.trim_start().starts_with(".section") {
                pending.clear();
            }
            return;
        }
        self.depth -= 1;
        if self.depth == 0 {
            self.module.functions.extend(self.function.take());
            pending.clear();
        }
    }

    fn statement(&mut self, text: &str, line: usize) {
        if text.is_empty() {
            return;
        }
        let source = self.source.clone();
        let Some(function) = &mut self.function else {
            if let Some(global) = global(text) {
                self.module.globals.push(global);
            } else if let Some(head) = function_head(text, line).filter(|_| text.contains(".func"))
            {
                self.module.externs.push(head.name);
            }
            return;
        };
        let mut text = text;
        while let Some((label, rest)) = text.split_once(':').filter(|(label, _)| is_label(label)) {
            let kind = StatementKind::Label(label.trim().to_owned());
            function.statements.push(Statement {
                line,
                kind,
                source: source.clone(),
            });
            text = rest.trim_start();
        }
        if text.is_empty() {
            return;
        }
        let kind = if text.starts_with('.') {
            StatementKind::Declaration(text.to_owned())
        } else {
            instruction(text)
        };
        function.statements.push(Statement { line, kind, source });
    }
}

enum Piece<'a> {
    Text(&'a str),
    Open,
    Close,
    End,
}

/// Cuts a line at semicolons and at braces that stand for blocks; a vector operand `{%r1, %r2}` stays whole.
fn split_statements(code: &str) -> Vec<Piece<'_>> {
    let mut pieces = Vec::new();
    let mut start = 0;
    let mut in_vector = false;
    for (at, c) in code.char_indices() {
        let before = code[start..at].trim();
        let piece = match c {
            ';' => Piece::End,
            '}' if in_vector => {
                in_vector = false;
                continue;
            }
            '{' if !before.is_empty()
                && !before.starts_with('.')
                && !before.ends_with([')', ':', ';']) =>
            {
                in_vector = true;
                continue;
            }
            '{' => Piece::Open,
            '}' => Piece::Close,
            _ => continue,
        };
        if !before.is_empty() {
            pieces.push(Piece::Text(before));
        }
        pieces.push(piece);
        start = at + 1;
    }
    let rest = code[start..].trim();
    if !rest.is_empty() {
        pieces.push(Piece::Text(rest));
    }
    pieces
}

fn is_label(text: &str) -> bool {
    let text = text.trim();
    !text.is_empty()
        && text
            .chars()
            .all(|c| c.is_alphanumeric() || matches!(c, '_' | '$' | '%'))
}

fn instruction(text: &str) -> StatementKind {
    let (guard, text) = match text.strip_prefix('@') {
        Some(rest) => {
            let (guard, rest) = rest.split_once(char::is_whitespace).unwrap_or((rest, ""));
            (Some(guard.to_owned()), rest.trim_start())
        }
        None => (None, text),
    };
    let (opcode, operands) = text.split_once(char::is_whitespace).unwrap_or((text, ""));
    StatementKind::Instruction {
        guard,
        opcode: opcode.to_owned(),
        operands: operands.trim().to_owned(),
    }
}

/// `.visible .entry name( params ) directives`, or the like with `.func`.
fn function_head(head: &str, line: usize) -> Option<Function> {
    let (is_entry, rest) = match (head.split_once(".entry"), head.split_once(".func")) {
        (Some((_, rest)), _) => (true, rest),
        (None, Some((_, rest))) => (false, rest),
        (None, None) => return None,
    };
    let mut rest = rest.trim_start();
    if let Some(after) = rest.strip_prefix('(') {
        // A function's return value.
        rest = after.split_once(')')?.1.trim_start();
    }
    let end = rest
        .find(|c: char| c == '(' || c.is_whitespace())
        .unwrap_or(rest.len());
    let (name, rest) = rest.split_at(end);
    let (params, tail) = match rest.trim_start().strip_prefix('(') {
        Some(inside) => inside.split_once(')')?,
        None => ("", rest),
    };
    let number = |directive: &str| -> Option<u32> {
        let (_, after) = tail.split_once(directive)?;
        let values = after.split('.').next()?;
        values
            .split([',', ' '])
            .filter(|word| !word.is_empty())
            .map(|word| word.parse::<u32>().ok())
            .try_fold(1u32, |product, value| product.checked_mul(value?))
    };
    Some(Function {
        name: name.to_owned(),
        is_entry,
        line,
        params: params.split(',').filter_map(param).collect(),
        max_threads: number(".maxntid"),
        min_ctas: number(".minnctapersm"),
        statements: Vec::new(),
    })
}

/// `.param .u64 .ptr .align 1 name`, `.param .align 4 .b8 name[12]`.
fn param(text: &str) -> Option<Param> {
    let mut ty = None;
    let mut align = None;
    let mut is_pointer = false;
    let mut tokens = text.split_whitespace().peekable();
    let mut name = "";
    while let Some(token) = tokens.next() {
        match token {
            ".param" => {}
            ".ptr" => is_pointer = true,
            // What follows `.ptr` describes the memory pointed to, not the parameter.
            ".align" => {
                let value = tokens.next().and_then(|value| value.parse().ok());
                if !is_pointer {
                    align = value;
                }
            }
            _ => match token.strip_prefix('.') {
                Some(word) if type_size(word).is_some() => ty = Some(word.to_owned()),
                Some(_) => {}
                None => name = token,
            },
        }
    }
    let ty = ty?;
    let element = type_size(&ty)?;
    let count = match name.split_once('[') {
        Some((_, count)) => count.trim_end_matches(']').parse().ok()?,
        None => 1,
    };
    Some(Param {
        size: element.checked_mul(count)?,
        align: align.unwrap_or(element),
        ty,
    })
}

/// `.visible .global .align 8 .b8 name[8] = {7}`, `.extern .shared .align 16 .b8 smem[]`.
fn global(text: &str) -> Option<Global> {
    let declaration = text.split('=').next()?;
    let mut space = None;
    let mut element = None;
    let mut is_visible = false;
    let mut name = "";
    let mut tokens = declaration.split_whitespace();
    while let Some(token) = tokens.next() {
        match token {
            ".visible" => is_visible = true,
            ".global" | ".shared" | ".const" => space = Some(token[1..].to_owned()),
            ".align" => drop(tokens.next()),
            ".func" | ".entry" => return None,
            _ => match token.strip_prefix('.') {
                Some(word) => element = type_size(word).or(element),
                None => name = token,
            },
        }
    }
    let (name, size) = match name.split_once('[') {
        Some((name, count)) => (name, count.trim_end_matches(']').parse().unwrap_or(0)),
        None => (name, 1),
    };
    Some(Global {
        name: name.to_owned(),
        space: space?,
        size: u64::saturating_mul(size, u64::from(element?)),
        is_visible,
    })
}

/// The chain of a `.loc` line, from LLVM's comment: `// a.rs:1:2 @[ b.rs:3:4 @[ c.rs:5:6 ] ]`; without a comment, its
/// numbers `1:2:3`, the first of which is a file's.
fn location(line: &str) -> Option<Source> {
    let chain: Vec<String> = match line.split_once("//") {
        Some((_, comment)) => comment
            .split("@[")
            .map(|place| place.trim_matches([' ', ']', '\t']).to_owned())
            .collect(),
        None => vec![
            line.split_whitespace()
                .skip(1)
                .take(3)
                .collect::<Vec<_>>()
                .join(":"),
        ],
    };
    let place = chain.first()?;
    // Line 0 marks code that the compiler made up.
    if place.contains(":0:") && chain.len() == 1 {
        return None;
    }
    Some(Source { chain })
}

#[cfg(test)]
mod tests {
    use super::*;

    const PTX: &str = "
.version 8.0
.target sm_90
.address_size 64
/* a comment
   over lines */
.visible .global .align 8 .b8 CONTRACT[8] = {7, 0};
.shared .align 16 .b8 tile[1024];
.extern .shared .align 16 .b8 smem[];
.extern .func (.param .b32 retval) helper
(
	.param .b64 helper_param_0
)
;
.visible .entry spmm(
	.param .u64 .ptr .align 1 spmm_param_0,
	.param .align 8 .b8 spmm_param_1[24],
	.param .f32 spmm_param_2
)
.maxntid 128, 1, 1
.minnctapersm 8
{
	.local .align 4 .b8 	__local_depot0[16];
	.reg .b32 	%r<9>;
	.loc	1 15 0                          // src/lib.rs:15:0
	ld.global.v4.b32 {%r1, %r2, %r3, %r4}, [%rd1];
	.loc	2 55 5                          // rust-library/stdarch/mod.rs:55:5 @[ src/lib.rs:34:9 @[ src/spmm.rs:7:1 ] ]
	@!%p1 bra 	$L__BB0_2;
	{ .reg .pred q; mov.u64 %rd2, tile; }
$L__BB0_2:
	ret;
}
	.file	1 \"kernels/src/lib.rs\"
";

    #[test]
    fn entries_parameters_bounds_and_memory_are_read() {
        let module = Module::read(PTX);
        assert_eq!(
            (module.version.as_str(), module.target.as_str()),
            ("8.0", "sm_90")
        );
        assert_eq!(module.externs, ["helper"]);
        let entry = module.entries().next().expect("spmm is an entry");
        assert_eq!(entry.name, "spmm");
        let shapes: Vec<(u32, u32)> = entry.params.iter().map(|p| (p.size, p.align)).collect();
        assert_eq!(shapes, [(8, 8), (24, 8), (4, 4)]);
        assert_eq!((entry.max_threads, entry.min_ctas), (Some(128), Some(8)));
        assert_eq!(module.static_shared(entry), 1024);
        let contract = &module.globals[0];
        assert!(contract.is_visible && contract.size == 8 && contract.name == "CONTRACT");
    }

    #[test]
    fn statements_carry_their_line_and_the_kernels_own_source() {
        let module = Module::read(PTX);
        let entry = &module.functions[0];
        let found: Vec<(&str, &str)> = entry
            .instructions()
            .map(|(_, opcode, operands)| (opcode, operands))
            .collect();
        assert_eq!(
            found,
            [
                ("ld.global.v4.b32", "{%r1, %r2, %r3, %r4}, [%rd1]"),
                ("bra", "$L__BB0_2"),
                ("mov.u64", "%rd2, tile"),
                ("ret", "")
            ]
        );
        let (branch, _, _) = entry.instructions().nth(1).expect("a branch");
        assert_eq!(
            branch.source.as_ref().expect("a source").to_string(),
            "kernels/src/lib.rs:34:9"
        );
        assert_eq!(
            PTX.lines().nth(branch.line - 1).map(str::trim),
            Some("@!%p1 bra 	$L__BB0_2;")
        );
        assert!(
            entry
                .statements
                .iter()
                .any(|s| s.kind == StatementKind::Label("$L__BB0_2".to_owned()))
        );
    }

    #[test]
    fn local_memory_is_no_loc_line() {
        let module = Module::read(PTX);
        let first = module.functions[0]
            .statements
            .first()
            .map(|statement| &statement.kind);
        let expected =
            StatementKind::Declaration(".local .align 4 .b8 \t__local_depot0[16]".to_owned());
        assert_eq!(first, Some(&expected));
    }

    #[test]
    fn nonsense_is_skipped() {
        for text in [
            ".global .b64 x[18446744073709551615];",
            ".visible .entry f(.param .b64 x[4294967295]) .maxntid 65536, 65536, 65536 { é: @é {é} ; }",
            "",
            "}",
            "{",
            ";;;",
            ".entry",
            ".visible .entry f(",
            "@",
            ".loc",
            "*/ /* //",
        ] {
            let _ = Module::read(text);
        }
        assert_eq!(
            Module::read(".visible .entry f() { ret; }").functions.len(),
            1
        );
    }
}
