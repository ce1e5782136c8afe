//! Tokens to declarations and instructions. By hand: PTX's grammar is flat, and errors should name what a person wrote.

mod body;
mod initial;

use crate::error::ParseError;
use crate::lexer::{Bodies, Lexeme, Token, lex};
use crate::source::{Function, Slot, Source, Variable, VariableSpace};

/// What all variables of a text may take together: tables of kernels are small, and a garbled size must not allocate.
const MAX_VARIABLE_BYTES: u64 = 64 << 20;
/// What one `.param` or `.local` variable may take; CUDA's own limits are 32,764 bytes and 512 KiB.
const MAX_SLOT_BYTES: u64 = 512 << 10;

/// Reads a whole PTX text.
///
/// # Errors
/// [`ParseError`] at the first place that is no PTX, or declares what is not implemented: other sizes of addresses,
/// variables of other modules, textures and surfaces.
pub fn parse(text: &str) -> Result<Source<'_>, ParseError> {
    read(text, Bodies::Read)
}

/// Reads what a PTX text declares and leaves all bodies empty, in a small part of the time.
///
/// # Errors
/// Those of [`parse`], outside of bodies.
pub fn outline(text: &str) -> Result<Source<'_>, ParseError> {
    read(text, Bodies::Skipped)
}

fn read(text: &str, bodies: Bodies) -> Result<Source<'_>, ParseError> {
    let mut parser = Parser {
        text,
        lexemes: lex(text, bodies)?,
        at: 0,
        variable_bytes: 0,
    };
    let mut source = Source {
        text,
        ..Source::default()
    };
    while parser.peek() != Token::End {
        parser.item(&mut source)?;
    }
    if source.version == (0, 0) {
        return Err(ParseError::new(
            1,
            "",
            "a PTX text begins with .version; this one has none",
        ));
    }
    Ok(source)
}

struct Parser<'a> {
    text: &'a str,
    lexemes: Vec<Lexeme<'a>>,
    at: usize,
    variable_bytes: u64,
}

type Result<T, E = ParseError> = std::result::Result<T, E>;

impl<'a> Parser<'a> {
    fn lexeme(&self) -> Lexeme<'a> {
        self.lexemes[self.at.min(self.lexemes.len() - 1)]
    }

    fn peek(&self) -> Token<'a> {
        self.lexeme().token
    }

    fn peek_next(&self) -> Token<'a> {
        self.lexemes[(self.at + 1).min(self.lexemes.len() - 1)].token
    }

    fn advance(&mut self) -> Token<'a> {
        let token = self.peek();
        self.at += usize::from(token != Token::End);
        token
    }

    /// An error at the token under the cursor.
    fn error(&self, message: impl Into<String>) -> ParseError {
        let l = self.lexeme();
        let shown = if l.token == Token::End {
            "end of text"
        } else {
            &self.text[l.start as usize..l.end as usize]
        };
        ParseError::new(l.line, shown, message)
    }

    fn eat(&mut self, c: u8) -> bool {
        let found = self.peek() == Token::Punct(c);
        self.at += usize::from(found);
        found
    }

    fn expect(&mut self, c: u8) -> Result<()> {
        if self.eat(c) {
            Ok(())
        } else {
            Err(self.error(format!("expected `{}`", c as char)))
        }
    }

    fn word(&mut self, what: &str) -> Result<&'a str> {
        match self.peek() {
            Token::Word(w) => {
                self.at += 1;
                Ok(w)
            }
            _ => Err(self.error(format!("expected {what}"))),
        }
    }

    fn int(&mut self, what: &str) -> Result<u64> {
        match self.peek() {
            Token::Int(v) => {
                self.at += 1;
                Ok(v)
            }
            _ => Err(self.error(format!("expected {what}"))),
        }
    }

    /// A count that fits 32 bits: a size, an alignment, a line.
    fn small_int(&mut self, what: &str) -> Result<u32> {
        let before = self.at;
        let v = self.int(what)?;
        u32::try_from(v).map_err(|_| {
            self.at = before;
            self.error(format!("{what} of {v} is too large"))
        })
    }

    /// Skips to just after the next `;`.
    fn skip_statement(&mut self) -> Result<()> {
        loop {
            match self.advance() {
                Token::Punct(b';') => return Ok(()),
                Token::End => return Err(self.error("expected `;`")),
                _ => {}
            }
        }
    }

    fn item(&mut self, source: &mut Source<'a>) -> Result<()> {
        let at = self.at;
        let word = self.word("a directive")?;
        match word {
            ".version" => source.version = self.version()?,
            ".target" => {
                source.target = self.word("a target such as sm_90")?;
                while self.eat(b',') {
                    self.word("a target option")?;
                }
            }
            ".address_size" => {
                if self.int("an address size")? != 64 {
                    self.at -= 1;
                    return Err(self.error("only 64-bit addresses are implemented"));
                }
            }
            ".file" => self.file(source)?,
            ".section" => self.skip_section()?,
            ".pragma" => self.skip_statement()?,
            ".extern" | ".visible" | ".weak" | ".common" => match self.peek() {
                Token::Word(".func" | ".entry") => {
                    let is_entry = self.advance() == Token::Word(".entry");
                    self.function(source, is_entry)?;
                }
                _ => {
                    let mut variable = self.module_variable(word == ".extern")?;
                    variable.visible = word == ".visible";
                    source.variables.push(variable);
                }
            },
            ".func" | ".entry" => self.function(source, word == ".entry")?,
            ".global" | ".const" | ".shared" => {
                self.at = at;
                let variable = self.module_variable(false)?;
                source.variables.push(variable);
            }
            _ => {
                self.at = at;
                return Err(self.error("this directive is not implemented at module level"));
            }
        }
        Ok(())
    }

    /// `8.0`: the lexer reads it as a decimal number.
    fn version(&mut self) -> Result<(u32, u32)> {
        let l = self.lexeme();
        let shown = &self.text[l.start as usize..l.end as usize];
        let parsed = shown
            .split_once('.')
            .and_then(|(a, b)| Some((a.parse().ok()?, b.parse().ok()?)));
        let version = parsed
            .filter(|v| *v != (0, 0))
            .ok_or_else(|| self.error("expected a version such as 8.0"))?;
        self.at += 1;
        Ok(version)
    }

    fn file(&mut self, source: &mut Source<'a>) -> Result<()> {
        let number = self.small_int("a file number")?;
        let Token::Str(path) = self.peek() else {
            return Err(self.error("expected a file name"));
        };
        self.at += 1;
        source.files.insert(number, path.to_owned());
        while self.eat(b',') {
            self.int("a time stamp or size")?;
        }
        Ok(())
    }

    /// Debug information: not read.
    fn skip_section(&mut self) -> Result<()> {
        self.word("a section name")?;
        self.expect(b'{')?;
        loop {
            match self.advance() {
                Token::Punct(b'}') => return Ok(()),
                Token::End => return Err(self.error("this section is never closed")),
                _ => {}
            }
        }
    }

    fn alignment(&mut self) -> Result<u32> {
        let align = self.small_int("an alignment")?;
        if align.is_power_of_two() && align <= 1 << 16 {
            return Ok(align);
        }
        self.at -= 1;
        Err(self.error(format!(
            "an alignment is a power of two up to 65536, not {align}"
        )))
    }

    /// `.param .u64 .ptr .global .align 8 name` or `.param .align 8 .b8 name[56]`; also `.local`.
    fn slot(&mut self) -> Result<Slot<'a>> {
        let line = self.lexeme().line;
        let (mut align, mut ty) = (0, None);
        let name = loop {
            let word = self.word("a type or a name")?;
            match word {
                ".align" => align = self.alignment()?,
                ".ptr" => {
                    // Where the pointer points; its own type came before.
                    while let Token::Word(w) = self.peek() {
                        match w {
                            ".global" | ".shared" | ".const" | ".local" => self.at += 1,
                            ".align" => {
                                self.at += 1;
                                self.alignment()?;
                            }
                            _ => break,
                        }
                    }
                }
                _ if word.starts_with('.') => {
                    let bytes = type_bytes(word).ok_or_else(|| {
                        self.at -= 1;
                        self.error("this type is not implemented for a variable")
                    })?;
                    ty = Some((&word[1..], bytes));
                }
                _ => break word,
            }
        };
        let (ty, element) =
            ty.ok_or_else(|| self.error(format!("the variable {name} has no type")))?;
        let size = self.dimensions(element, MAX_SLOT_BYTES)?.unwrap_or(element);
        Ok(Slot {
            name,
            ty,
            align: align.max(element),
            size,
            line,
        })
    }

    /// `[2][3]` after a name: the size in bytes; 0 for `[]`, nothing where there are no brackets.
    fn dimensions(&mut self, element: u32, limit: u64) -> Result<Option<u32>> {
        let mut size: Option<u64> = None;
        while self.eat(b'[') {
            if self.eat(b']') {
                size = Some(0);
                continue;
            }
            let n = self.int("a number of elements")?;
            let total = size
                .unwrap_or(u64::from(element))
                .checked_mul(n)
                .filter(|s| *s <= limit);
            size = Some(total.ok_or_else(|| {
                self.at -= 1;
                self.error(format!("this variable is larger than {limit} bytes"))
            })?);
            self.expect(b']')?;
        }
        Ok(size.map(|s| s as u32))
    }

    fn module_variable(&mut self, is_extern: bool) -> Result<Variable<'a>> {
        let line = self.lexeme().line;
        let space = match self.word("a state space")? {
            ".global" => VariableSpace::Global,
            ".const" => VariableSpace::Const,
            ".shared" => VariableSpace::Shared,
            _ => {
                self.at -= 1;
                return Err(self.error("variables of this state space are not implemented here"));
            }
        };
        let variable = self.variable(space, is_extern, line)?;
        if variable.dynamic && !(is_extern && space == VariableSpace::Shared) {
            return Err(ParseError::new(
                line,
                variable.name,
                "only an .extern .shared variable may leave its size open",
            ));
        }
        if is_extern && !variable.dynamic {
            return Err(ParseError::new(
                line,
                variable.name,
                "a variable of another module cannot be linked",
            ));
        }
        Ok(variable)
    }

    /// What follows the state space: `.align 4 .b8 name[8] = {…};`.
    fn variable(
        &mut self,
        space: VariableSpace,
        is_extern: bool,
        line: u32,
    ) -> Result<Variable<'a>> {
        let (mut align, mut ty) = (0, None);
        let name = loop {
            let word = self.word("a type or a name")?;
            match word {
                ".align" => align = self.alignment()?,
                ".attribute" => {
                    self.at -= 1;
                    return Err(self.error("attributes of variables are not implemented"));
                }
                _ if word.starts_with('.') => {
                    ty = Some((
                        word,
                        type_bytes(word).ok_or_else(|| {
                            self.at -= 1;
                            self.error("this type is not implemented for a variable")
                        })?,
                    ));
                }
                _ => break word,
            }
        };
        let (ty, element) =
            ty.ok_or_else(|| self.error(format!("the variable {name} has no type")))?;
        let size = self.dimensions(element, MAX_VARIABLE_BYTES)?;
        let mut variable = Variable {
            name,
            space,
            align: align.max(element),
            size: size.unwrap_or(element),
            dynamic: size == Some(0) && is_extern,
            visible: false,
            init: Vec::new(),
            initialised: false,
            relocations: Vec::new(),
            line,
        };
        self.variable_bytes += u64::from(variable.size);
        if self.variable_bytes > MAX_VARIABLE_BYTES {
            return Err(self.error(format!(
                "the variables take more than {MAX_VARIABLE_BYTES} bytes"
            )));
        }
        if self.eat(b'=') {
            self.initialiser(&mut variable, ty, element)?;
        }
        self.expect(b';')?;
        Ok(variable)
    }

    fn function(&mut self, source: &mut Source<'a>, is_entry: bool) -> Result<()> {
        let line = self.lexeme().line;
        let mut function = Function {
            is_entry,
            line,
            scope_parents: vec![0],
            ..Function::default()
        };
        if self.peek() == Token::Punct(b'(') {
            function.results = self.slots()?;
        }
        function.name = self.word("the function's name")?;
        if self.peek() == Token::Punct(b'(') {
            function.params = self.slots()?;
        }
        loop {
            match self.peek() {
                Token::Word(".noreturn") => self.at += 1,
                Token::Word(".maxntid" | ".reqntid") => {
                    self.at += 1;
                    let mut threads = self.small_int("a number of threads")?;
                    while self.eat(b',') {
                        threads = threads.saturating_mul(self.small_int("a number of threads")?);
                    }
                    function.max_threads = Some(threads);
                }
                Token::Word(".minnctapersm") => {
                    self.at += 1;
                    function.min_ctas = Some(self.small_int("a number of blocks")?);
                }
                Token::Word(".maxnctapersm" | ".maxnreg") => {
                    self.at += 1;
                    self.int("a number")?;
                }
                Token::Word(".pragma") => self.skip_statement()?,
                Token::Punct(b';') => {
                    self.at += 1;
                    break;
                }
                Token::Punct(b'{') => {
                    self.at += 1;
                    function.defined = true;
                    self.body(&mut function, source)?;
                    break;
                }
                _ => {
                    return Err(self.error(
                        "expected the function's body, or a directive that is implemented",
                    ));
                }
            }
        }
        source.functions.push(function);
        Ok(())
    }

    fn slots(&mut self) -> Result<Vec<Slot<'a>>> {
        self.expect(b'(')?;
        let mut slots = Vec::new();
        while !self.eat(b')') {
            if !slots.is_empty() {
                self.expect(b',')?;
            }
            if self.word("a parameter")? != ".param" {
                self.at -= 1;
                return Err(self.error("only .param parameters are implemented"));
            }
            slots.push(self.slot()?);
        }
        Ok(slots)
    }
}

/// Bytes of a variable's element type.
fn type_bytes(ty: &str) -> Option<u32> {
    Some(match ty {
        ".b8" | ".u8" | ".s8" => 1,
        ".b16" | ".u16" | ".s16" | ".f16" => 2,
        ".b32" | ".u32" | ".s32" | ".f32" | ".f16x2" => 4,
        ".b64" | ".u64" | ".s64" | ".f64" => 8,
        ".b128" => 16,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "
.version 8.0 .target sm_90 .address_size 64
.visible .global .align 8 .b8 CONTRACT[8] = {7, 0};
.extern .shared .align 16 .b8 smem[];
.extern .func (.param .b32 retval) helper ( .param .b64 helper_param_0 ) ;
.visible .entry spmm(
	.param .u64 .ptr .align 1 spmm_param_0,
	.param .align 8 .b8 spmm_param_1[24]
)
.maxntid 128, 1, 1
.minnctapersm 8
{
	.local .align 4 .b8 	__local_depot0[16];
	.reg .b64 %rd<3>; // a brace: }
	{ .reg .pred q; mov.u64 %rd2, smem; }
	ret;
}
.section .debug_loc { .b8 1 }
.global .align 4 .b8 LAST[4] = {1, {2, 3}};
";

    #[test]
    fn an_outline_is_the_text_without_bodies() {
        let (whole, outline) = (parse(TEXT).unwrap(), outline(TEXT).unwrap());
        assert_eq!(
            (
                whole.functions[1].body.len(),
                whole.functions[1].locals.len()
            ),
            (2, 1)
        );
        assert_eq!(
            (
                outline.functions[1].body.len(),
                outline.functions[1].locals.len()
            ),
            (0, 0)
        );
        for source in [whole, outline] {
            let entry = source.entries().next().unwrap();
            assert_eq!((entry.name, entry.line), ("spmm", 6));
            let shapes: Vec<_> = entry
                .params
                .iter()
                .map(|p| (p.ty, p.size, p.align))
                .collect();
            assert_eq!(shapes, [("u64", 8, 8), ("b8", 24, 8)]);
            assert_eq!((entry.max_threads, entry.min_ctas), (Some(128), Some(8)));
            assert!(!source.functions[0].defined && source.functions[0].name == "helper");
            let contract = source.variable("CONTRACT").unwrap();
            assert!(contract.visible && contract.init == [7, 0]);
            let last = source.variable("LAST").unwrap();
            assert_eq!((last.line, &last.init[..]), (19, &[1, 2, 3][..]));
        }
        for text in [
            ".version 8.0 .entry f() {",
            ".version 8.0 .entry f() { \"",
            ".version 8.0 .entry f() { /*",
        ] {
            assert!(super::outline(text).is_err(), "{text}");
        }
    }
}
