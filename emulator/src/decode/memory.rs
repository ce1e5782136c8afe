//! Loads, stores, atomics, asynchronous copies and address conversions.

use super::modifiers::{Modifiers, Type};
use super::{Decoder, Result};
use crate::ir::*;
use ptx_syntax::{Operand, SlotKind};

/// Whether the order of blocks can be seen through this instruction: an atomic's old value, a float sum, a strong
/// access.
///
/// Integer reductions commute and return nothing, so blocks that use only those may run side by side; 64-bit ones are
/// two words of the emulated memory and may not.
pub(super) fn orders_blocks(op: &Op) -> bool {
    match op {
        Op::Atomic {
            op, ty, d, access, ..
        } => {
            let commutes = matches!(
                op,
                AtomicOp::Add
                    | AtomicOp::Min
                    | AtomicOp::Max
                    | AtomicOp::And
                    | AtomicOp::Or
                    | AtomicOp::Xor
            );
            let narrow_int = matches!(ty, AtomicType::Int(_)) && access.bytes == 4;
            access.space != Space::Shared && (*d != SINK || !commutes || !narrow_int)
        }
        Op::Load { access, .. } | Op::Store { access, .. } => {
            access.strong && access.space != Space::Shared
        }
        _ => false,
    }
}

impl<'s, 'a> Decoder<'_, '_, 's, 'a> {
    pub(super) fn memory(&mut self, base: &str, m: &mut Modifiers<'a>) -> Result<Option<Op>> {
        Ok(Some(match base {
            "ld" | "ldu" => self.load(m)?,
            "st" => self.store(m)?,
            "atom" | "red" => self.atomic(base, m)?,
            "cvta" => {
                let to_space = m.take("to");
                let space = self.space(m, &[])?;
                let ty = self.ty_of_bits(m, 64)?;
                let [d, a] = self.operands()?;
                let (d, a) = (self.target(d, 64)?, self.value(a, ty)?);
                if to_space {
                    Op::FromGeneric { d, a, space }
                } else {
                    Op::ToGeneric { d, a, space }
                }
            }
            "isspacep" => {
                let space = self.space(m, &[])?;
                let [d, a] = self.operands()?;
                Op::IsSpace {
                    d: self.pred_target(d)?,
                    a: self.value(a, Type::Bits(64))?,
                    space,
                }
            }
            "prefetch" | "prefetchu" | "applypriority" | "discard" => {
                self.space(m, &[])?;
                m.take("L1");
                m.take("L2");
                let [a] = self.operands()?;
                self.address(a)?;
                if base == "discard" || base == "applypriority" {
                    return Err(self.error(format!("the instruction {base} is not implemented")));
                }
                Op::Nop
            }
            "cp" => self.copy(m)?,
            _ => return Ok(None),
        }))
    }

    /// The state space; `also` names modifiers that stand where a space could.
    fn space(&self, m: &mut Modifiers<'a>, also: &[&str]) -> Result<Space> {
        for name in also {
            m.take(name);
        }
        let space = m.take_any(&[
            ("global", Space::Global),
            ("const", Space::Global),
            ("shared", Space::Shared),
            ("shared::cta", Space::Shared),
            ("local", Space::Local),
            ("param", Space::Param),
            ("param::entry", Space::Param),
            ("param::func", Space::Param),
        ]);
        Ok(space.unwrap_or(Space::Generic))
    }

    /// What `ld` and `st` share: order, scope, caching hints, shape.
    fn access(&mut self, m: &mut Modifiers<'a>, address: &Operand<'a>) -> Result<(Access, Type)> {
        let mut strong = false;
        for order in ["volatile", "relaxed", "acquire", "release"] {
            strong |= m.take(order);
        }
        m.take("weak");
        for scope in ["cta", "cluster", "gpu", "sys"] {
            m.take(scope);
        }
        for hint in [
            "ca",
            "cg",
            "cs",
            "lu",
            "cv",
            "wb",
            "wt",
            "L1::evict_normal",
            "L1::evict_unchanged",
            "L1::evict_first",
            "L1::evict_last",
            "L1::no_allocate",
            "L2::64B",
            "L2::128B",
            "L2::256B",
        ] {
            m.take(hint);
        }
        let space = self.space(m, &["nc"])?;
        let count = m.take_any(&[("v2", 2), ("v4", 4)]).unwrap_or(1);
        let ty = self.ty(m)?;
        let bytes = match ty {
            Type::Pred => return Err(self.error("a predicate cannot be loaded or stored")),
            ty => ty.bits() / 8,
        };
        if u32::from(bytes) * u32::from(count) > 16 {
            return Err(self.error("more than 16 bytes a lane are not implemented"));
        }
        let signed = matches!(ty, Type::Signed(_));
        let (address, offset) = self.address(address)?;
        Ok((
            Access {
                space,
                bytes,
                count,
                signed,
                strong,
                address,
                offset,
            },
            ty,
        ))
    }

    fn load(&mut self, m: &mut Modifiers<'a>) -> Result<Op> {
        let [d, address] = self.operands()?;
        let (mut access, ty) = self.access(m, address)?;
        let mut rows = [SINK; 4];
        let mut width = 0;
        for (row, element) in rows.iter_mut().zip(self.elements(d, access.count.into())?) {
            let (target, bits) = self.wide_target(element, ty.bits())?;
            *row = target;
            if target == SINK {
                continue;
            }
            if width != 0 && width != bits {
                return Err(self.error("the registers of one vector must have one width"));
            }
            width = bits;
        }
        if let Some((kind, index, offset)) = self.named_slot(address) {
            if (kind == SlotKind::Local) != (access.space == Space::Local)
                && access.space != Space::Generic
            {
                return Err(self.error("this variable lies in another state space"));
            }
            if kind == SlotKind::Param && self.function.is_entry && access.space == Space::Param {
                let size = self.function.params[index as usize].size;
                let end = offset.checked_add(i64::from(access.total()));
                if offset < 0 || end.is_none_or(|e| e > i64::from(size)) {
                    return Err(self.error(format!(
                        "this load lies outside the parameter's {size} bytes"
                    )));
                }
                let at = self.slot_address(kind, index) + offset as u32;
                if !at.is_multiple_of(access.total()) {
                    return Err(self.error("this load of a parameter is misaligned"));
                }
                return Ok(Op::LoadParam {
                    d: rows,
                    offset: at,
                    access,
                    width,
                });
            }
        }
        if access.space == Space::Param {
            access.strong = false;
        }
        Ok(Op::Load {
            d: rows,
            access,
            width,
        })
    }

    fn store(&mut self, m: &mut Modifiers<'a>) -> Result<Op> {
        let [address, s] = self.operands()?;
        let (access, ty) = self.access(m, address)?;
        let mut rows = [SINK; 4];
        for (row, element) in rows.iter_mut().zip(self.elements(s, access.count.into())?) {
            *row = self.wide_value(element, ty)?;
        }
        Ok(Op::Store { s: rows, access })
    }

    fn atomic(&mut self, base: &str, m: &mut Modifiers<'a>) -> Result<Op> {
        for order in ["relaxed", "acquire", "release", "acq_rel"] {
            m.take(order);
        }
        for scope in ["cta", "cluster", "gpu", "sys"] {
            m.take(scope);
        }
        let space = self.space(m, &["noftz"])?;
        if !matches!(space, Space::Generic | Space::Global | Space::Shared) {
            return Err(self.error("atomics in this state space do not exist"));
        }
        let op = m
            .take_any(&[
                ("add", AtomicOp::Add),
                ("min", AtomicOp::Min),
                ("max", AtomicOp::Max),
                ("and", AtomicOp::And),
                ("or", AtomicOp::Or),
                ("xor", AtomicOp::Xor),
                ("exch", AtomicOp::Exch),
                ("cas", AtomicOp::Cas),
                ("inc", AtomicOp::Inc),
                ("dec", AtomicOp::Dec),
            ])
            .ok_or_else(|| self.error("this atomic operation is not implemented"))?;
        let ty = self.ty(m)?;
        let kind = match (ty.float(), ty.int()) {
            (Some(f), _) if op == AtomicOp::Add => AtomicType::Float(f),
            (_, Some(i)) => AtomicType::Int(i),
            _ => return Err(self.error("this atomic on this type is not implemented")),
        };
        if ty.bits() == 16
            && !matches!(
                (op, kind),
                (AtomicOp::Cas, _) | (AtomicOp::Add, AtomicType::Float(_))
            )
        {
            return Err(self.error("this atomic on 16 bits does not exist"));
        }
        let mut operands = self.instruction.operands.iter();
        let mut next = || {
            operands
                .next()
                .ok_or_else(|| self.error("an operand is missing"))
        };
        let d = if base == "atom" { Some(next()?) } else { None };
        let (address, b) = (next()?, next()?);
        let c = if op == AtomicOp::Cas {
            Some(next()?)
        } else {
            None
        };
        if operands.next().is_some() {
            return Err(self.error("there are too many operands"));
        }
        let d = d.map_or(Ok(SINK), |d| self.target(d, ty.bits()))?;
        let (address, offset) = self.address(address)?;
        let access = Access {
            space,
            bytes: ty.bits() / 8,
            count: 1,
            signed: false,
            strong: true,
            address,
            offset,
        };
        let b = self.value(b, ty)?;
        let c = c.map_or(Ok(b), |c| self.value(c, ty))?;
        Ok(Op::Atomic {
            op,
            ty: kind,
            d,
            access,
            b,
            c,
        })
    }

    fn copy(&mut self, m: &mut Modifiers<'a>) -> Result<Op> {
        if !m.take("async") {
            return Err(self.error("only cp.async is implemented"));
        }
        if m.take("commit_group") {
            let [] = self.operands()?;
            return Ok(Op::CopyCommit);
        }
        if m.take("wait_all") {
            let [] = self.operands()?;
            return Ok(Op::CopyWait { pending: WAIT_ALL });
        }
        if m.take("wait_group") {
            let [n] = self.operands()?;
            return Ok(Op::CopyWait {
                pending: self.immediate(n, 1 << 20)? as u32,
            });
        }
        let whole_line = m.take("cg");
        if !whole_line && !m.take("ca") {
            return Err(self.error("this form of cp.async is not implemented"));
        }
        if !(m.take("shared") || m.take("shared::cta")) || !m.take("global") {
            return Err(self.error("cp.async copies from .global to .shared"));
        }
        for hint in ["L2::64B", "L2::128B", "L2::256B"] {
            m.take(hint);
        }
        let operands = &self.instruction.operands;
        let (Some(to), Some(from), Some(bytes)) =
            (operands.first(), operands.get(1), operands.get(2))
        else {
            return Err(self.error("an operand is missing"));
        };
        let bytes = self.immediate(bytes, 16)? as u8;
        if !(bytes == 16 || (!whole_line && matches!(bytes, 4 | 8))) {
            return Err(self.error(format!("cp.async cannot copy {bytes} bytes like this")));
        }
        let (mut from_bytes, mut ignore) = (self.int_constant(bytes.into(), 32)?, None);
        match operands.get(3) {
            None => {}
            Some(o @ Operand::Not(_)) => ignore = Some(self.pred(o)?),
            Some(o @ Operand::Reg(r)) if self.bits_of(*r) == 1 => ignore = Some(self.pred(o)?),
            Some(o) => from_bytes = self.value(o, Type::Unsigned(32))?,
        }
        if operands.len() > 4 {
            return Err(self.error("there are too many operands"));
        }
        let ((to, to_offset), (from, from_offset)) = (self.address(to)?, self.address(from)?);
        Ok(Op::CopyAsync {
            to,
            to_offset,
            from,
            from_offset,
            bytes,
            from_bytes,
            ignore,
        })
    }
}
