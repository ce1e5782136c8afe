//! Branches, calls, barriers and fences.

use super::modifiers::{Modifiers, Type};
use super::{Decoder, Result, is_call};
use crate::ir::*;
use ptx_syntax::{Operand, SlotKind};

impl<'s, 'a> Decoder<'_, '_, 's, 'a> {
    pub(super) fn control(&mut self, base: &str, m: &mut Modifiers<'a>) -> Result<Option<Op>> {
        Ok(Some(match base {
            "bra" => {
                m.take("uni");
                let [label] = self.operands()?;
                Op::Branch {
                    target: self.label(label)?,
                }
            }
            "brx" => {
                m.take("uni");
                if !m.take("idx") {
                    return Err(self.error("brx needs .idx"));
                }
                let [index, table] = self.operands()?;
                let index = self.value(index, Type::Unsigned(32))?;
                Op::BranchIndexed {
                    index,
                    table: self.branch_table(table)?,
                }
            }
            "call" => {
                m.take("uni");
                self.call()?
            }
            "ret" | "exit" | "trap" | "brkpt" => {
                m.take("uni");
                let [] = self.operands()?;
                match base {
                    "ret" if self.function.is_entry => Op::Exit,
                    "ret" => Op::Return,
                    "exit" => Op::Exit,
                    "trap" => Op::Trap,
                    _ => return Err(self.error("breakpoints are not implemented")),
                }
            }
            "nanosleep" => {
                self.ty_of_bits(m, 32)?;
                let [t] = self.operands()?;
                self.value(t, Type::Unsigned(32))?;
                Op::Nop
            }
            "pmevent" | "griddepcontrol" => {
                return Err(self.error(format!("the instruction {base} is not implemented")));
            }
            "membar" | "fence" => {
                for word in [
                    "sc", "acq_rel", "acquire", "release", "cta", "cluster", "gpu", "gl", "sys",
                ] {
                    m.take(word);
                }
                let [] = self.operands()?;
                Op::Nop
            }
            "bar" if m.take("warp") => {
                if !m.take("sync") {
                    return Err(self.error("bar.warp needs .sync"));
                }
                let [mask] = self.operands()?;
                let mask = self.value(mask, Type::Bits(32))?;
                Op::Collective {
                    what: Collective::WarpBarrier,
                    mask,
                    aligned: false,
                }
            }
            "bar" | "barrier" => self.barrier(base, m)?,
            _ => return Ok(None),
        }))
    }

    fn label(&self, operand: &Operand<'a>) -> Result<u32> {
        let Operand::Name(name, 0) = operand else {
            return Err(self.error("a label is expected here"));
        };
        self.label_named(name)
    }

    fn label_named(&self, name: &'a str) -> Result<u32> {
        self.function
            .label(self.instruction.scope, name)
            .map(|index| self.frame.start + index)
            .ok_or_else(|| self.error(format!("there is no label {name} here")))
    }

    fn branch_table(&mut self, operand: &Operand<'a>) -> Result<u32> {
        let Operand::Name(name, 0) = operand else {
            return Err(self.error("a list of labels is expected here"));
        };
        let targets = self
            .function
            .table(self.instruction.scope, name)
            .ok_or_else(|| self.error(format!("there is no .branchtargets {name} here")))?;
        let targets = targets
            .iter()
            .map(|t| self.label_named(t))
            .collect::<Result<Vec<u32>>>()?;
        self.linker.program.branch_tables.push(targets);
        Ok(self.linker.program.branch_tables.len() as u32 - 1)
    }

    /// `call (result), function, (arguments)`, where results and arguments are `.param` variables.
    fn call(&mut self) -> Result<Op> {
        debug_assert!(is_call(self.instruction.opcode));
        let callee = self.linker.names.callee(self.instruction)?;
        let target = self.linker.source(callee);
        let split = self
            .instruction
            .operands
            .iter()
            .position(|o| matches!(o, Operand::Name(..)))
            .unwrap_or(0);
        let (before, after) = self.instruction.operands.split_at(split);
        let list = |operands: &'s [Operand<'a>]| -> Result<&'s [Operand<'a>]> {
            match operands {
                [] => Ok(&[]),
                [Operand::List(list)] => Ok(list),
                _ => Err(self.error("the arguments of a call stand in parentheses")),
            }
        };
        let (results, arguments) = (list(before)?, list(&after[1..])?);
        let frame = self.linker.frames.get(&callee);
        let frame = frame.ok_or_else(|| self.error("recursion is not implemented"))?;
        let (params_at, results_at) = (frame.params.clone(), frame.results.clone());
        let mut site = CallSite {
            target: frame.start,
            ..CallSite::default()
        };
        for (what, given, slots, at) in [
            ("arguments", arguments, &target.params, params_at),
            ("results", results, &target.results, results_at),
        ] {
            if given.len() != slots.len() {
                return Err(self.error(format!(
                    "{} has {} {what}, and {} are given",
                    target.name,
                    slots.len(),
                    given.len()
                )));
            }
            for ((operand, slot), at) in given.iter().zip(slots).zip(at) {
                let Operand::Slot(kind @ (SlotKind::Call | SlotKind::Param), index, 0) = operand
                else {
                    return Err(self.error("arguments and results of calls are .param variables"));
                };
                let own = if *kind == SlotKind::Call {
                    &self.function.call_slots
                } else {
                    &self.function.params
                };
                let size = own[*index as usize].size;
                let address = self.slot_address(*kind, *index);
                if size != slot.size || address < ARENA_BASE {
                    return Err(self.error(format!(
                        "{} has {} bytes where {size} are given",
                        slot.name, slot.size
                    )));
                }
                let own = address - ARENA_BASE;
                if what == "arguments" {
                    site.arguments.push((own, at, size));
                } else {
                    site.results.push((at, own, size));
                }
            }
        }
        self.linker.program.calls.push(site);
        Ok(Op::Call {
            site: self.linker.program.calls.len() as u32 - 1,
        })
    }

    fn barrier(&mut self, base: &str, m: &mut Modifiers<'a>) -> Result<Op> {
        m.take("cta");
        let aligned = m.take("aligned") || base == "bar";
        m.take("all");
        let u32 = Type::Unsigned(32);
        if m.take("red") {
            let reduce = m
                .take_any(&[
                    ("popc", BarrierReduce::Popc),
                    ("and", BarrierReduce::And),
                    ("or", BarrierReduce::Or),
                ])
                .ok_or_else(|| self.error("bar.red needs .popc, .and or .or"))?;
            self.ty(m)?;
            let operands = &self.instruction.operands;
            let (d, id, count, p) = match operands.as_slice() {
                [d, id, p] => (d, id, None, p),
                [d, id, count, p] => (d, id, Some(count), p),
                _ => return Err(self.error("3 or 4 operands are expected here")),
            };
            let d = if reduce == BarrierReduce::Popc {
                self.target(d, 32)?
            } else {
                self.pred_target(d)?
            };
            let id = self.value(id, u32)?;
            let count = count.map(|c| self.value(c, u32)).transpose()?;
            return Ok(Op::Barrier {
                id,
                count,
                arrive: false,
                reduce: Some((reduce, self.pred(p)?, d)),
            });
        }
        let arrive = m.take("arrive");
        if !arrive && !m.take("sync") {
            return Err(self.error(format!("{base} needs .sync, .arrive or .red")));
        }
        if !aligned {
            return Err(self.error("barriers without .aligned are not implemented"));
        }
        let (id, count) = match self.instruction.operands.as_slice() {
            [id] if !arrive => (id, None),
            [id, count] => (id, Some(count)),
            _ => return Err(self.error("a barrier and a number of threads are expected here")),
        };
        let id = self.value(id, u32)?;
        if self.constant_value(id).is_some_and(|id| id > 15) {
            return Err(self.error("barriers are numbered 0 to 15"));
        }
        let count = count.map(|c| self.value(c, u32)).transpose()?;
        Ok(Op::Barrier {
            id,
            count,
            arrive,
            reduce: None,
        })
    }
}
