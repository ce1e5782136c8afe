//! Operands to rows, predicates and addresses, with their widths checked.

use super::modifiers::Type;
use super::{Decoder, Result};
use crate::ir::{CONSTANT, Constant, Guard, Pred, Row, SINK};
use ptx_syntax::{Operand, SlotKind, VariableSpace};

impl<'s, 'a> Decoder<'_, '_, 's, 'a> {
    /// The operands, if there are `N` of them.
    pub(super) fn operands<const N: usize>(&self) -> Result<[&'s Operand<'a>; N]> {
        let operands = &self.instruction.operands;
        if operands.len() != N {
            return Err(self.error(format!(
                "{N} operands are expected here, and {} are given",
                operands.len()
            )));
        }
        Ok(std::array::from_fn(|i| &operands[i]))
    }

    pub(super) fn bits_of(&self, register: u32) -> u8 {
        self.function.registers[register as usize].bits
    }

    fn row_of(&self, register: u32) -> Row {
        self.frame.registers[register as usize]
    }

    /// A destination register of exactly `bits` bits.
    pub(super) fn target(&self, operand: &Operand<'a>, bits: u8) -> Result<Row> {
        match operand {
            Operand::Reg(r) if self.bits_of(*r) == bits => Ok(self.row_of(*r)),
            Operand::Sink => Ok(SINK),
            Operand::Reg(r) => Err(self.error(format!(
                "a result of {bits} bits cannot go to a register of {}",
                self.bits_of(*r)
            ))),
            _ => Err(self.error("the result must go to a register")),
        }
    }

    /// A destination register of at least `bits` bits, and its width.
    pub(super) fn wide_target(&self, operand: &Operand<'a>, bits: u8) -> Result<(Row, u8)> {
        match operand {
            Operand::Reg(r) if self.bits_of(*r) >= bits.max(16) => {
                Ok((self.row_of(*r), self.bits_of(*r)))
            }
            Operand::Sink => Ok((SINK, bits.max(16))),
            Operand::Reg(r) => Err(self.error(format!(
                "a result of {bits} bits cannot go to a register of {}",
                self.bits_of(*r)
            ))),
            _ => Err(self.error("the result must go to a register")),
        }
    }

    pub(super) fn pred_target(&self, operand: &Operand<'a>) -> Result<Pred> {
        match operand {
            Operand::Reg(r) if self.bits_of(*r) == 1 => Ok(self.row_of(*r)),
            Operand::Sink => Ok(SINK),
            _ => Err(self.error("a predicate register is expected here")),
        }
    }

    /// A predicate register to read.
    pub(super) fn pred(&self, operand: &Operand<'a>) -> Result<Guard> {
        match operand {
            Operand::Reg(r) if self.bits_of(*r) == 1 => Ok(Guard {
                pred: self.row_of(*r),
                negated: false,
            }),
            Operand::Not(r) if self.bits_of(*r) == 1 => Ok(Guard {
                pred: self.row_of(*r),
                negated: true,
            }),
            _ => Err(self.error("a predicate register is expected here")),
        }
    }

    /// A register or a number to read as `ty`.
    pub(super) fn value(&mut self, operand: &Operand<'a>, ty: Type) -> Result<Row> {
        let bits = ty.bits();
        match operand {
            Operand::Reg(r) if self.bits_of(*r) == bits => Ok(self.row_of(*r)),
            Operand::Reg(r) => Err(self.error(format!(
                "an operand of {bits} bits cannot be a register of {}",
                self.bits_of(*r)
            ))),
            _ => self.literal(operand, ty),
        }
    }

    /// A register of at least the type's width, or a number; the executor looks at the low bits only.
    pub(super) fn wide_value(&mut self, operand: &Operand<'a>, ty: Type) -> Result<Row> {
        match operand {
            Operand::Reg(r) if self.bits_of(*r) >= ty.bits().max(16) => Ok(self.row_of(*r)),
            Operand::Reg(r) => Err(self.error(format!(
                "an operand of {} bits cannot be a register of {}",
                ty.bits(),
                self.bits_of(*r)
            ))),
            _ => self.literal(operand, ty),
        }
    }

    fn literal(&mut self, operand: &Operand<'a>, ty: Type) -> Result<Row> {
        let bits = ty.bits();
        let is_float = matches!(ty, Type::F32 | Type::F64);
        let value = match operand {
            Operand::Int(v) if !is_float => return self.int_constant(*v, bits),
            Operand::F32(v) if bits == 32 => u64::from(*v),
            Operand::F64(v) if bits == 64 => *v,
            Operand::F64(v) if ty == Type::F32 => u64::from((f64::from_bits(*v) as f32).to_bits()),
            Operand::Name(..) | Operand::Slot(..) if bits >= 32 && !is_float => {
                return self.symbol(operand);
            }
            _ => {
                return Err(self.error(format!(
                    "a register or a number of {bits} bits is expected here"
                )));
            }
        };
        Ok(self.linker.constant(Constant::Value(value)))
    }

    pub(super) fn int_constant(&mut self, v: i128, bits: u8) -> Result<Row> {
        let mask = u64::MAX >> (64 - bits.clamp(1, 64));
        if v > i128::from(mask) || v < -(1i128 << (bits - 1)) {
            return Err(self.error(format!("{v} does not fit {bits} bits")));
        }
        Ok(self.linker.constant(Constant::Value(v as u64 & mask)))
    }

    /// The address of a variable, in its own space.
    fn symbol(&mut self, operand: &Operand<'a>) -> Result<Row> {
        let constant = match operand {
            Operand::Slot(kind, index, offset) => Constant::Value(
                u64::from(self.slot_address(*kind, *index)).wrapping_add(*offset as u64),
            ),
            Operand::Name(name, offset) => {
                let names = self.linker.names;
                let v = names
                    .variable(name)
                    .ok_or_else(|| self.error(format!("nothing here is called {name}")))?;
                match names.source.variables[v].space {
                    VariableSpace::Global | VariableSpace::Const => {
                        Constant::Global(v as u32, *offset)
                    }
                    VariableSpace::Shared => {
                        let base = self.linker.shared.get(&v).copied().unwrap_or_default();
                        Constant::Value(u64::from(base).wrapping_add(*offset as u64))
                    }
                }
            }
            _ => return Err(self.error("a variable is expected here")),
        };
        Ok(self.linker.constant(constant))
    }

    /// `[register + 8]`, `[variable + 8]` or `[1024]`: the row that holds the base, and the offset.
    pub(super) fn address(&mut self, operand: &Operand<'a>) -> Result<(Row, i64)> {
        let Operand::Address(base, offset) = operand else {
            return Err(self.error("an address in brackets is expected here"));
        };
        let row = match &**base {
            Operand::Reg(r) if self.bits_of(*r) >= 32 => self.row_of(*r),
            Operand::Int(v) => self.int_constant(*v, 64)?,
            symbol @ (Operand::Name(..) | Operand::Slot(..)) => self.symbol(symbol)?,
            _ => {
                return Err(
                    self.error("an address is a register of 32 or 64 bits, a variable or a number")
                );
            }
        };
        Ok((row, *offset))
    }

    /// The variable of the function that an address names, if it names one.
    pub(super) fn named_slot(&self, operand: &Operand<'a>) -> Option<(SlotKind, u32, i64)> {
        match operand {
            Operand::Address(base, offset) => match **base {
                Operand::Slot(kind, index, _) => Some((kind, index, *offset)),
                _ => None,
            },
            _ => None,
        }
    }

    /// The elements of `{a, b}`, or the operand itself.
    pub(super) fn elements<'o>(
        &self,
        operand: &'o Operand<'a>,
        count: usize,
    ) -> Result<Vec<&'o Operand<'a>>> {
        let list: Vec<&Operand<'a>> = match operand {
            Operand::Vector(list) => list.iter().collect(),
            other => vec![other],
        };
        if list.len() == count {
            return Ok(list);
        }
        Err(self.error(format!(
            "{count} registers are expected here, and {} are given",
            list.len()
        )))
    }

    /// An immediate of at most `limit`.
    pub(super) fn immediate(&self, operand: &Operand<'a>, limit: i128) -> Result<u64> {
        match operand {
            Operand::Int(v) if (0..=limit).contains(v) => Ok(*v as u64),
            _ => Err(self.error(format!("a number up to {limit} is expected here"))),
        }
    }

    /// The value of a row that is a plain constant.
    pub(super) fn constant_value(&self, row: Row) -> Option<u64> {
        if row == SINK || row & CONSTANT == 0 {
            return None;
        }
        match self.linker.program.constants[(row & !CONSTANT) as usize] {
            Constant::Value(v) => Some(v),
            Constant::Global(..) => None,
        }
    }
}
