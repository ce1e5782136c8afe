//! Initial values of variables.

use super::{Parser, Result};
use crate::lexer::Token;
use crate::source::Variable;

impl<'a> Parser<'a> {
    /// `{1, 2, {3}}`, one value, or addresses of other variables.
    pub(super) fn initialiser(
        &mut self,
        variable: &mut Variable<'a>,
        ty: &str,
        element: u32,
    ) -> Result<()> {
        // PTX ISA, "Initializers": all types have them but these and `.pred`, of which there are no variables in
        // memory.
        if matches!(ty, ".f16" | ".f16x2") {
            return Err(self.error(format!(
                "a variable of type {ty} has no initial value; write its bits as .b16 or .b32"
            )));
        }
        variable.initialised = true;
        let mut depth = 0u32;
        loop {
            if self.eat(b'{') {
                depth += 1;
                continue;
            }
            if depth > 0 && self.eat(b'}') {
                depth -= 1;
            } else {
                self.value(variable, ty, element)?;
            }
            while depth > 0 && self.eat(b'}') {
                depth -= 1;
            }
            if depth == 0 {
                return Ok(());
            }
            self.expect(b',')?;
        }
    }

    fn value(&mut self, variable: &mut Variable<'a>, ty: &str, element: u32) -> Result<()> {
        if variable.init.len() as u64 + u64::from(element) > u64::from(variable.size) {
            return Err(self.error(format!(
                "{} has {} bytes, and this value lies after them",
                variable.name, variable.size
            )));
        }
        let negative = self.eat(b'-');
        let is_float = ty.starts_with(".f");
        let bits = match self.peek() {
            Token::Int(v) if !is_float => {
                if negative {
                    v.wrapping_neg()
                } else {
                    v
                }
            }
            Token::Int(v) => float_bits(v as f64, negative, ty),
            Token::F32(v) if element == 4 => u64::from(v) ^ (u64::from(negative) << 31),
            Token::F64(v) => float_bits(f64::from_bits(v), negative, ty),
            Token::Word(name) if element == 8 && !negative => {
                self.relocation(variable, name)?;
                0
            }
            _ => return Err(self.error(format!("this is no initial value of type {ty}"))),
        };
        self.at += 1;
        variable
            .init
            .extend_from_slice(&bits.to_le_bytes()[..element as usize]);
        // `name + 8`, after the name was taken.
        let is_address = variable
            .relocations
            .last()
            .is_some_and(|r| r.0 as usize + 8 == variable.init.len());
        if is_address && self.eat(b'+') {
            let negative = self.eat(b'-');
            let offset = i64::from(self.small_int("an offset")?);
            if let Some(last) = variable.relocations.last_mut() {
                last.2 = if negative { -offset } else { offset };
            }
        }
        Ok(())
    }

    /// `name` or `generic(name)`: leaves the cursor on the last token of it.
    fn relocation(&mut self, variable: &mut Variable<'a>, name: &'a str) -> Result<()> {
        let mut name = name;
        if name == "generic" {
            self.at += 1;
            self.expect(b'(')?;
            name = self.word("a variable's name")?;
            if self.peek() != Token::Punct(b')') {
                return Err(self.error("expected `)`"));
            }
        }
        variable
            .relocations
            .push((variable.init.len() as u32, name, 0));
        Ok(())
    }
}

/// The bits of `value` as a variable of type `ty` holds it.
fn float_bits(value: f64, negative: bool, ty: &str) -> u64 {
    let value = if negative { -value } else { value };
    match ty {
        ".f64" => value.to_bits(),
        ".f32" => u64::from((value as f32).to_bits()),
        _ => value as u64,
    }
}
