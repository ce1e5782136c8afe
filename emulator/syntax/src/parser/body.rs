//! Function bodies: declarations, labels and instructions, with their names resolved by scope.

use super::{Parser, Result};
use crate::error::ParseError;
use crate::lexer::Token;
use crate::source::{
    Function, Instruction, Operand, Register, Slot, SlotKind, Source, VariableSpace,
};
use std::collections::HashMap;

/// Blocks may be nested this deeply; LLVM's call sequences and inline assembly nest two.
const MAX_DEPTH: usize = 64;
/// Registers that one function may use.
const MAX_REGISTERS: usize = 1 << 20;

/// What a name means inside a scope.
#[derive(Clone, Copy)]
enum Meaning {
    Register {
        bits: u8,
    },
    /// `%r<10>`: the names `%r0` to `%r9`.
    Numbered {
        bits: u8,
        count: u64,
    },
    Slot(SlotKind, u32),
}

struct Scope<'a> {
    id: u32,
    names: HashMap<&'a str, Meaning>,
}

struct Body<'a, 'f> {
    function: &'f mut Function<'a>,
    scopes: Vec<Scope<'a>>,
    /// Registers that were used, by the scope that declares them and their name.
    used: HashMap<(u32, &'a str), u32>,
    loc: (u32, u32),
    loc_line: u32,
}

impl<'a> Parser<'a> {
    /// Everything up to the function's closing brace; the opening one was read.
    pub(super) fn body(
        &mut self,
        function: &mut Function<'a>,
        source: &mut Source<'a>,
    ) -> Result<()> {
        let mut names = HashMap::new();
        for (kind, slots) in [
            (SlotKind::Param, &function.params),
            (SlotKind::Result, &function.results),
        ] {
            names.extend(
                slots
                    .iter()
                    .enumerate()
                    .map(|(i, s)| (s.name, Meaning::Slot(kind, i as u32))),
            );
        }
        let scopes = vec![Scope { id: 0, names }];
        let mut body = Body {
            function,
            scopes,
            used: HashMap::new(),
            loc: (0, 0),
            loc_line: 0,
        };
        while !body.scopes.is_empty() {
            self.statement(&mut body, source)?;
        }
        Ok(())
    }

    fn statement(&mut self, body: &mut Body<'a, '_>, source: &mut Source<'a>) -> Result<()> {
        match self.peek() {
            Token::Punct(b'{') => {
                if body.scopes.len() >= MAX_DEPTH {
                    return Err(self.error(format!("blocks are nested more than {MAX_DEPTH} deep")));
                }
                self.at += 1;
                let id = body.function.scope_parents.len() as u32;
                body.function.scope_parents.push(body.scope());
                body.scopes.push(Scope {
                    id,
                    names: HashMap::new(),
                });
                Ok(())
            }
            Token::Punct(b'}') => {
                self.at += 1;
                body.scopes.pop();
                Ok(())
            }
            Token::Punct(b';') => {
                self.at += 1;
                Ok(())
            }
            Token::Punct(b'@') => self.instruction(body),
            Token::Word(w) if w.starts_with('.') => {
                self.at += 1;
                self.declaration(w, body, source)
            }
            Token::Word(label) if self.peek_next() == Token::Punct(b':') => self.label(label, body),
            Token::Word(_) => self.instruction(body),
            Token::End => Err(self.error(format!(
                "the body of {} is never closed",
                body.function.name
            ))),
            _ => Err(self.error("expected an instruction, a label or a declaration")),
        }
    }

    fn declaration(
        &mut self,
        word: &'a str,
        body: &mut Body<'a, '_>,
        source: &mut Source<'a>,
    ) -> Result<()> {
        match word {
            ".reg" => self.registers(body),
            ".local" | ".param" => {
                let slot = self.slot()?;
                self.expect(b';')?;
                let kind = if word == ".local" {
                    SlotKind::Local
                } else {
                    SlotKind::Call
                };
                body.declare_slot(kind, slot);
                Ok(())
            }
            ".shared" => {
                let line = self.lexeme().line;
                let variable = self.variable(VariableSpace::Shared, false, line)?;
                source.variables.push(variable);
                Ok(())
            }
            ".loc" => self.loc(body),
            ".file" => self.file(source),
            ".pragma" => self.skip_statement(),
            _ => {
                self.at -= 1;
                Err(self.error("this directive is not implemented inside a function"))
            }
        }
    }

    /// `.loc file line column[, function_name label[+offset], inlined_at file line column]`.
    fn loc(&mut self, body: &mut Body<'a, '_>) -> Result<()> {
        body.loc_line = self.lexeme().line;
        let file = self.small_int("a file number")?;
        let line = self.small_int("a line")?;
        self.int("a column")?;
        // Line 0 means that the compiler does not know: the last known line is the better answer.
        if line != 0 {
            body.loc = (file, line);
        }
        while self.eat(b',') {
            match self.word("function_name or inlined_at")? {
                "function_name" => {
                    self.word("a label")?;
                    if self.eat(b'+') {
                        self.int("an offset")?;
                    }
                }
                "inlined_at" => {
                    for what in ["a file number", "a line", "a column"] {
                        self.int(what)?;
                    }
                }
                _ => {
                    self.at -= 1;
                    return Err(self.error("this option of .loc is not implemented"));
                }
            }
        }
        Ok(())
    }

    fn registers(&mut self, body: &mut Body<'a, '_>) -> Result<()> {
        let ty = self.word("a register type")?;
        let bits = match ty {
            ".pred" => 1,
            ".b16" | ".u16" | ".s16" | ".f16" => 16,
            ".b32" | ".u32" | ".s32" | ".f32" | ".f16x2" => 32,
            ".b64" | ".u64" | ".s64" | ".f64" => 64,
            ".b128" => 128,
            _ => {
                self.at -= 1;
                return Err(self.error("registers of this type are not implemented"));
            }
        };
        loop {
            let name = self.word("a register's name")?;
            let meaning = if self.eat(b'<') {
                let count = self.int("a number of registers")?;
                self.expect(b'>')?;
                Meaning::Numbered { bits, count }
            } else {
                Meaning::Register { bits }
            };
            body.innermost().names.insert(name, meaning);
            if !self.eat(b',') {
                return self.expect(b';');
            }
        }
    }

    fn label(&mut self, label: &'a str, body: &mut Body<'a, '_>) -> Result<()> {
        let key = (body.scope(), label);
        if body.function.labels.contains_key(&key) || body.function.tables.contains_key(&key) {
            return Err(self.error("this label stands twice in one scope"));
        }
        self.at += 2;
        match self.peek() {
            Token::Word(".branchtargets") => {
                self.at += 1;
                let mut targets = vec![self.word("a label")?];
                while self.eat(b',') {
                    targets.push(self.word("a label")?);
                }
                self.expect(b';')?;
                body.function.tables.insert(key, targets);
            }
            Token::Word(".callprototype" | ".calltargets") => {
                return Err(self.error("indirect calls are not implemented"));
            }
            _ => {
                body.function
                    .labels
                    .insert(key, body.function.body.len() as u32);
            }
        }
        Ok(())
    }

    fn instruction(&mut self, body: &mut Body<'a, '_>) -> Result<()> {
        let first = self.lexeme();
        let mut guard = None;
        if self.eat(b'@') {
            let negated = self.eat(b'!');
            let name = self.word("a predicate register")?;
            let register = body.register(name).map_err(|m| self.behind(m))?;
            match register {
                Some(r) if body.function.registers[r as usize].bits == 1 => {
                    guard = Some((r, negated))
                }
                _ => return Err(self.behind("expected a declared predicate register".into())),
            }
        }
        let opcode = self.word("an opcode")?;
        let mut operands = Vec::new();
        while self.peek() != Token::Punct(b';') {
            if !operands.is_empty() {
                self.expect(b',')?;
            }
            let operand = self.operand(body, true)?;
            operands.push(operand);
        }
        let span = (first.start, self.lexeme().end);
        self.at += 1;
        let (line, loc, scope) = (first.line, body.loc, body.scope());
        body.function.body.push(Instruction {
            line,
            span,
            loc,
            loc_line: body.loc_line,
            guard,
            opcode,
            operands,
            scope,
        });
        Ok(())
    }

    /// An error at the token before the cursor.
    fn behind(&mut self, message: String) -> ParseError {
        self.at = self.at.saturating_sub(1);
        self.error(message)
    }

    fn operand(&mut self, body: &mut Body<'a, '_>, nested: bool) -> Result<Operand<'a>> {
        match self.peek() {
            Token::Punct(open @ (b'{' | b'(')) if nested => {
                self.at += 1;
                let close = if open == b'{' { b'}' } else { b')' };
                let mut list = Vec::new();
                while !self.eat(close) {
                    if !list.is_empty() {
                        self.expect(b',')?;
                    }
                    list.push(self.operand(body, false)?);
                }
                Ok(if open == b'{' {
                    Operand::Vector(list)
                } else {
                    Operand::List(list)
                })
            }
            Token::Punct(b'[') if nested => {
                self.at += 1;
                let base = self.operand(body, false)?;
                let offset = self.offset()?;
                self.expect(b']')?;
                Ok(match base {
                    Operand::Name(name, o) => {
                        Operand::Address(Box::new(Operand::Name(name, 0)), o.wrapping_add(offset))
                    }
                    Operand::Slot(k, i, o) => {
                        Operand::Address(Box::new(Operand::Slot(k, i, 0)), o.wrapping_add(offset))
                    }
                    base => Operand::Address(Box::new(base), offset),
                })
            }
            Token::Punct(b'!') => {
                self.at += 1;
                let name = self.word("a predicate register")?;
                match body.register(name).map_err(|m| self.behind(m))? {
                    Some(r) => Ok(Operand::Not(r)),
                    None => Err(self.behind("this register was not declared".into())),
                }
            }
            Token::Punct(b'-') => {
                self.at += 1;
                match self.advance() {
                    Token::Int(v) => Ok(Operand::Int(-i128::from(v))),
                    Token::F32(v) => Ok(Operand::F32(v ^ 1 << 31)),
                    Token::F64(v) => Ok(Operand::F64(v ^ 1 << 63)),
                    _ => Err(self.behind("expected a number".into())),
                }
            }
            Token::Int(v) => {
                self.at += 1;
                Ok(Operand::Int(i128::from(v)))
            }
            Token::F32(v) => {
                self.at += 1;
                Ok(Operand::F32(v))
            }
            Token::F64(v) => {
                self.at += 1;
                Ok(Operand::F64(v))
            }
            Token::Word(name) => {
                self.at += 1;
                self.name(name, body)
            }
            _ => Err(self.error("expected an operand")),
        }
    }

    /// A register, a pair of predicates, a variable with an offset, or a name that `decode` resolves.
    fn name(&mut self, name: &'a str, body: &mut Body<'a, '_>) -> Result<Operand<'a>> {
        let sink = name == "_";
        let register = if sink {
            None
        } else {
            body.register(name).map_err(|m| self.behind(m))?
        };
        if (sink || register.is_some()) && self.eat(b'|') {
            let other = self.word("a register")?;
            let second = body.register(other).map_err(|m| self.behind(m))?;
            if second.is_none() && other != "_" {
                return Err(self.behind("this register was not declared".into()));
            }
            return Ok(Operand::Pair(register, second));
        }
        if sink {
            return Ok(Operand::Sink);
        }
        if let Some(r) = register {
            return Ok(Operand::Reg(r));
        }
        if let Some((kind, index)) = body.slot(name) {
            return Ok(Operand::Slot(kind, index, self.offset()?));
        }
        let offset = self.offset()?;
        Ok(Operand::Name(name, offset))
    }

    /// `+8`, `-8` or `+-8`, or nothing.
    fn offset(&mut self) -> Result<i64> {
        let negative = match self.peek() {
            Token::Punct(b'+') => {
                self.at += 1;
                self.eat(b'-')
            }
            Token::Punct(b'-') => {
                self.at += 1;
                true
            }
            _ => return Ok(0),
        };
        let value = self.int("an offset")? as i64;
        Ok(if negative {
            value.wrapping_neg()
        } else {
            value
        })
    }
}

impl<'a> Body<'a, '_> {
    fn innermost(&mut self) -> &mut Scope<'a> {
        self.scopes
            .last_mut()
            .expect("a body's own scope is open while it is read")
    }

    fn scope(&self) -> u32 {
        self.scopes.last().map_or(0, |s| s.id)
    }

    fn declare_slot(&mut self, kind: SlotKind, slot: Slot<'a>) {
        let slots = match kind {
            SlotKind::Local => &mut self.function.locals,
            _ => &mut self.function.call_slots,
        };
        let (name, index) = (slot.name, slots.len() as u32);
        slots.push(slot);
        self.innermost()
            .names
            .insert(name, Meaning::Slot(kind, index));
    }

    fn slot(&self, name: &str) -> Option<(SlotKind, u32)> {
        self.scopes
            .iter()
            .rev()
            .find_map(|s| match s.names.get(name) {
                Some(Meaning::Slot(kind, index)) => Some((*kind, *index)),
                _ => None,
            })
    }

    /// The number of the register that `name` means here, if it means one.
    fn register(&mut self, name: &'a str) -> Result<Option<u32>, String> {
        let stem = name.trim_end_matches(|c: char| c.is_ascii_digit());
        let number = &name[stem.len()..];
        let found = self
            .scopes
            .iter()
            .rev()
            .find_map(|scope| match scope.names.get(name) {
                Some(Meaning::Register { bits }) => Some((scope.id, *bits)),
                _ if number.is_empty() || (number.len() > 1 && number.starts_with('0')) => None,
                _ => match scope.names.get(stem) {
                    Some(Meaning::Numbered { bits, count })
                        if number.parse::<u64>().is_ok_and(|n| n < *count) =>
                    {
                        Some((scope.id, *bits))
                    }
                    _ => None,
                },
            });
        let Some((scope, bits)) = found else {
            return Ok(None);
        };
        let next = self.function.registers.len();
        let index = *self.used.entry((scope, name)).or_insert(next as u32);
        if index as usize == next {
            if next >= MAX_REGISTERS {
                return Err(format!("a function may use {MAX_REGISTERS} registers"));
            }
            self.function.registers.push(Register { bits });
        }
        Ok(Some(index))
    }
}
