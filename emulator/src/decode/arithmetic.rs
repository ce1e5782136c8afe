//! Moves and integer arithmetic; what floats share with integers is separated here.

use super::modifiers::{Modifiers, Type};
use super::{Decoder, Result};
use crate::ir::*;
use ptx_syntax::Operand;

impl<'s, 'a> Decoder<'_, '_, 's, 'a> {
    pub(super) fn arithmetic(&mut self, base: &str, m: &mut Modifiers<'a>) -> Result<Option<Op>> {
        Ok(Some(match base {
            "mov" => self.mov(m)?,
            "add" | "sub" | "min" | "max" | "mul" | "div" | "rem" | "copysign" => {
                self.two(base, m)?
            }
            "mul24" => {
                let ty = self.int_type(m)?;
                if !m.take("lo") || !matches!(ty, IntType::U32 | IntType::S32) {
                    return Err(self.error("only mul24.lo of 32 bits is implemented"));
                }
                self.int2(Int2::Mul24, ty)?
            }
            "mad" | "fma" => self.mad(base, m)?,
            "and" | "or" | "xor" => self.logic(base, m)?,
            "not" => match self.ty(m)? {
                Type::Pred => {
                    let [d, a] = self.operands()?;
                    let (d, a) = (self.pred_target(d)?, self.pred(a)?);
                    Op::PredLogic {
                        op: BoolOp::And,
                        d,
                        a: a.pred,
                        a_negated: !a.negated,
                        b: a.pred,
                        b_negated: !a.negated,
                    }
                }
                ty => self.int1(Int1::Not, ty)?,
            },
            "shl" | "shr" => {
                let ty = self.ty(m)?;
                let int = ty
                    .int()
                    .ok_or_else(|| self.error("this type cannot be shifted"))?;
                let [d, a, b] = self.operands()?;
                let op = if base == "shl" { Int2::Shl } else { Int2::Shr };
                Op::Int2 {
                    op,
                    ty: int,
                    d: self.target(d, ty.bits())?,
                    a: self.value(a, ty)?,
                    b: self.value(b, Type::Unsigned(32))?,
                }
            }
            "neg" | "abs" => self.sign(base, m)?,
            "popc" | "clz" | "brev" | "cnot" | "bfind" => {
                let op = match base {
                    "popc" => Int1::Popc,
                    "clz" => Int1::Clz,
                    "brev" => Int1::Brev,
                    "cnot" => Int1::Cnot,
                    _ => Int1::Bfind(m.take("shiftamt")),
                };
                let ty = self.ty(m)?;
                self.int1(op, ty)?
            }
            "sad" => {
                let ty = self.ty(m)?;
                self.int3(Int3::Sad, ty, [ty; 3], ty)?
            }
            "bfe" => {
                let ty = self.ty(m)?;
                self.int3(
                    Int3::Bfe,
                    ty,
                    [ty, Type::Unsigned(32), Type::Unsigned(32)],
                    ty,
                )?
            }
            "bfi" => {
                let ty = self.ty(m)?;
                let [d, a, b, position, length] = self.operands()?;
                let u32 = Type::Unsigned(32);
                Op::Bfi {
                    wide: ty.bits() == 64,
                    d: self.target(d, ty.bits())?,
                    a: self.value(a, ty)?,
                    b: self.value(b, ty)?,
                    position: self.value(position, u32)?,
                    length: self.value(length, u32)?,
                }
            }
            "shf" => {
                let left = m.take("l");
                if !left && !m.take("r") {
                    return Err(self.error("shf needs .l or .r"));
                }
                let wrap = m.take("wrap");
                if !wrap && !m.take("clamp") {
                    return Err(self.error("shf needs .wrap or .clamp"));
                }
                let ty = self.ty_of_bits(m, 32)?;
                self.int3(
                    if left {
                        Int3::ShfLeft { wrap }
                    } else {
                        Int3::ShfRight { wrap }
                    },
                    ty,
                    [ty; 3],
                    ty,
                )?
            }
            "lop3" => {
                let ty = self.ty_of_bits(m, 32)?;
                let [d, a, b, c, lut] = self.operands()?;
                let lut = self.immediate(lut, 255)? as u8;
                let (d, a, b, c) = (
                    self.target(d, 32)?,
                    self.value(a, ty)?,
                    self.value(b, ty)?,
                    self.value(c, ty)?,
                );
                Op::Int3 {
                    op: Int3::Lop3(lut),
                    ty: IntType::U32,
                    d,
                    a,
                    b,
                    c,
                }
            }
            "prmt" => {
                let ty = self.ty_of_bits(m, 32)?;
                let mode = m
                    .take_any(&[
                        ("f4e", PrmtMode::Forward4),
                        ("b4e", PrmtMode::Backward4),
                        ("rc8", PrmtMode::Replicate8),
                        ("ecl", PrmtMode::EdgeLeft),
                        ("ecr", PrmtMode::EdgeRight),
                        ("rc16", PrmtMode::Replicate16),
                    ])
                    .unwrap_or(PrmtMode::Index);
                self.int3(Int3::Prmt(mode), ty, [ty; 3], ty)?
            }
            name @ ("dp2a" | "dp4a") => {
                let high = m.take("hi");
                if name == "dp2a" && !high && !m.take("lo") {
                    return Err(self.error("dp2a needs .lo or .hi"));
                }
                let (a, b) = (self.ty_of_bits(m, 32)?, self.ty_of_bits(m, 32)?);
                let signed = |t: Type| matches!(t, Type::Signed(_));
                let (a_signed, b_signed) = (signed(a), signed(b));
                let op = if name == "dp2a" {
                    Int3::Dp2a {
                        high,
                        a_signed,
                        b_signed,
                    }
                } else {
                    Int3::Dp4a { a_signed, b_signed }
                };
                self.int3(
                    op,
                    Type::Unsigned(32),
                    [Type::Unsigned(32); 3],
                    Type::Unsigned(32),
                )?
            }
            "sqrt" | "rcp" | "rsqrt" | "ex2" | "lg2" | "sin" | "cos" | "tanh" => {
                self.special(base, m)?
            }
            "testp" => self.testp(m)?,
            "setp" => self.setp(m)?,
            "set" => self.set(m)?,
            "selp" => {
                let ty = self.ty(m)?;
                let [d, a, b, p] = self.operands()?;
                let p = self.pred(p)?;
                if p.negated {
                    return Err(self.error("the predicate of selp cannot be negated"));
                }
                Op::Selp {
                    d: self.target(d, ty.bits())?,
                    a: self.value(a, ty)?,
                    b: self.value(b, ty)?,
                    p: p.pred,
                }
            }
            "cvt" => self.cvt(m)?,
            _ => return Ok(None),
        }))
    }

    /// The type that the opcode must name.
    pub(super) fn ty(&self, m: &mut Modifiers<'a>) -> Result<Type> {
        let ty = m.take_type().ok_or_else(|| {
            let unknown = m
                .last()
                .map_or(String::new(), |l| format!("; .{l} is not implemented"));
            self.error(format!("{} needs a type{unknown}", m.base))
        })?;
        // There are conversions and matrix products of them on every GPU of this PTX, and no arithmetic before sm_90.
        if matches!(ty, Type::Bf16 | Type::Bf16x2) && !matches!(m.base, "cvt" | "mma") {
            return Err(self.error(format!("{} of .bf16 is not implemented", m.base)));
        }
        Ok(ty)
    }

    pub(super) fn ty_of_bits(&self, m: &mut Modifiers<'a>, bits: u8) -> Result<Type> {
        let ty = self.ty(m)?;
        if ty.bits() == bits {
            Ok(ty)
        } else {
            Err(self.error(format!("{} of this type is not implemented", m.base)))
        }
    }

    fn int_type(&self, m: &mut Modifiers<'a>) -> Result<IntType> {
        let ty = self.ty(m)?;
        ty.int()
            .ok_or_else(|| self.error(format!("{} of this type is not implemented", m.base)))
    }

    fn mov(&mut self, m: &mut Modifiers<'a>) -> Result<Op> {
        let ty = self.ty(m)?;
        let [d, a] = self.operands()?;
        match (d, a) {
            (_, Operand::Vector(parts)) => self.pack(d, parts, ty),
            (Operand::Vector(parts), _) => self.unpack(parts, a, ty),
            _ if ty == Type::Pred => {
                let d = self.pred_target(d)?;
                if let Operand::Int(v) = a {
                    return Ok(Op::PredConst { d, value: *v != 0 });
                }
                let a = self.pred(a)?;
                Ok(Op::PredLogic {
                    op: BoolOp::And,
                    d,
                    a: a.pred,
                    a_negated: a.negated,
                    b: a.pred,
                    b_negated: a.negated,
                })
            }
            (_, Operand::Name(name, 0)) if name.starts_with('%') => {
                let s = special(name).ok_or_else(|| {
                    self.error(format!("the special register {name} is not implemented"))
                })?;
                // `mov.u16 %rs1, %tid.x` and `mov.u64` exist; the executor masks to the register.
                Ok(Op::Special {
                    d: self.target(d, ty.bits())?,
                    s,
                })
            }
            _ => Ok(Op::Mov {
                d: self.target(d, ty.bits())?,
                a: self.value(a, ty)?,
            }),
        }
    }

    fn pack(&mut self, d: &Operand<'a>, parts: &[Operand<'a>], ty: Type) -> Result<Op> {
        let (count, bits) = self.split(parts.len(), ty)?;
        let mut s = [SINK; 4];
        for (row, part) in s.iter_mut().zip(parts) {
            *row = self.value(part, Type::Bits(bits))?;
        }
        Ok(Op::Pack {
            d: self.target(d, ty.bits())?,
            s,
            count,
            bits,
        })
    }

    fn unpack(&mut self, parts: &[Operand<'a>], a: &Operand<'a>, ty: Type) -> Result<Op> {
        let (count, bits) = self.split(parts.len(), ty)?;
        let mut d = [SINK; 4];
        for (row, part) in d.iter_mut().zip(parts) {
            *row = self.target(part, bits)?;
        }
        Ok(Op::Unpack {
            d,
            count,
            bits,
            a: self.value(a, ty)?,
        })
    }

    /// Into how many parts of how many bits a register is cut.
    fn split(&self, parts: usize, ty: Type) -> Result<(u8, u8)> {
        match (parts, ty.bits()) {
            (2, 32) => Ok((2, 16)),
            (2, 64) => Ok((2, 32)),
            (4, 64) => Ok((4, 16)),
            (n, bits) => Err(self.error(format!("{bits} bits in {n} parts are not implemented"))),
        }
    }

    pub(super) fn int1(&mut self, op: Int1, ty: Type) -> Result<Op> {
        let int = ty
            .int()
            .ok_or_else(|| self.error("this instruction on this type is not implemented"))?;
        let [d, a] = self.operands()?;
        let bits = if matches!(op, Int1::Popc | Int1::Clz | Int1::Bfind(_)) {
            32
        } else {
            ty.bits()
        };
        Ok(Op::Int1 {
            op,
            ty: int,
            d: self.target(d, bits)?,
            a: self.value(a, ty)?,
        })
    }

    fn int2(&mut self, op: Int2, ty: IntType) -> Result<Op> {
        let [d, a, b] = self.operands()?;
        let bits = ty.bits();
        let result = if op == Int2::MulWide { bits * 2 } else { bits };
        if result > 64 {
            return Err(self.error("a product of 128 bits is not implemented"));
        }
        let t = Type::Bits(bits);
        Ok(Op::Int2 {
            op,
            ty,
            d: self.target(d, result)?,
            a: self.value(a, t)?,
            b: self.value(b, t)?,
        })
    }

    fn int3(&mut self, op: Int3, ty: Type, sources: [Type; 3], result: Type) -> Result<Op> {
        let int = ty
            .int()
            .ok_or_else(|| self.error("this instruction on this type is not implemented"))?;
        let [d, a, b, c] = self.operands()?;
        let d = self.target(d, result.bits())?;
        let (a, b, c) = (
            self.value(a, sources[0])?,
            self.value(b, sources[1])?,
            self.value(c, sources[2])?,
        );
        Ok(Op::Int3 {
            op,
            ty: int,
            d,
            a,
            b,
            c,
        })
    }

    /// `add`, `sub`, `mul`, `div`, `rem`, `min`, `max` of integers and floats.
    fn two(&mut self, base: &str, m: &mut Modifiers<'a>) -> Result<Op> {
        let ty = self.ty(m)?;
        if let Some(float) = ty.float() {
            return self.float2(base, m, ty, float);
        }
        let int = ty
            .int()
            .ok_or_else(|| self.error(format!("{base} of this type is not implemented")))?;
        let op = match base {
            "add" if m.take("sat") => Int2::AddSat,
            "add" => Int2::Add,
            "sub" if m.take("sat") => Int2::SubSat,
            "sub" => Int2::Sub,
            "mul" => m
                .take_any(&[
                    ("lo", Int2::MulLo),
                    ("hi", Int2::MulHi),
                    ("wide", Int2::MulWide),
                ])
                .ok_or_else(|| self.error("mul of integers needs .lo, .hi or .wide"))?,
            "div" => Int2::Div,
            "rem" => Int2::Rem,
            "min" => Int2::Min,
            "max" => Int2::Max,
            _ => return Err(self.error(format!("{base} of integers does not exist"))),
        };
        if matches!(op, Int2::AddSat | Int2::SubSat) && int != IntType::S32 {
            return Err(self.error("saturating integers are .s32"));
        }
        self.int2(op, int)
    }

    fn mad(&mut self, base: &str, m: &mut Modifiers<'a>) -> Result<Op> {
        let ty = self.ty(m)?;
        if let Some(float) = ty.float() {
            let rounding = self.float_rounding(m, float)?;
            let rounding = rounding.ok_or_else(|| {
                self.error(format!("{base} of floats needs a rounding such as .rn"))
            })?;
            let mode = FloatMode {
                ftz: m.take("ftz"),
                sat: m.take("sat"),
                relu: m.take("relu"),
                rounding,
            };
            let [d, a, b, c] = self.operands()?;
            let d = self.target(d, ty.bits())?;
            return Ok(Op::Fma {
                ty: float,
                mode,
                d,
                a: self.value(a, ty)?,
                b: self.value(b, ty)?,
                c: self.value(c, ty)?,
            });
        }
        let op = m
            .take_any(&[
                ("lo", Int3::MadLo),
                ("hi", Int3::MadHi),
                ("wide", Int3::MadWide),
            ])
            .filter(|_| base == "mad")
            .ok_or_else(|| self.error(format!("{base} of this type is not implemented")))?;
        if op != Int3::MadWide {
            return self.int3(op, ty, [ty; 3], ty);
        }
        let wide = match ty.bits() {
            16 => Type::Bits(32),
            32 => Type::Bits(64),
            _ => return Err(self.error("a product of 128 bits is not implemented")),
        };
        self.int3(op, ty, [ty, ty, wide], wide)
    }

    fn logic(&mut self, base: &str, m: &mut Modifiers<'a>) -> Result<Op> {
        let ty = self.ty(m)?;
        if ty == Type::Pred {
            let op = match base {
                "and" => BoolOp::And,
                "or" => BoolOp::Or,
                _ => BoolOp::Xor,
            };
            let [d, a, b] = self.operands()?;
            let (d, a, b) = (self.pred_target(d)?, self.pred(a)?, self.pred(b)?);
            return Ok(Op::PredLogic {
                op,
                d,
                a: a.pred,
                a_negated: a.negated,
                b: b.pred,
                b_negated: b.negated,
            });
        }
        let op = match base {
            "and" => Int2::And,
            "or" => Int2::Or,
            _ => Int2::Xor,
        };
        let int = ty
            .int()
            .ok_or_else(|| self.error(format!("{base} of this type is not implemented")))?;
        self.int2(op, int)
    }
}

fn special(name: &str) -> Option<Special> {
    let axis = |s: &str| {
        ["x", "y", "z"]
            .iter()
            .position(|a| *a == s)
            .map(|i| i as u8)
    };
    let (head, tail) = name.split_once('.').unwrap_or((name, ""));
    Some(match (head, tail) {
        ("%tid", t) => Special::Tid(axis(t)?),
        ("%ntid", t) => Special::Ntid(axis(t)?),
        ("%ctaid", t) => Special::Ctaid(axis(t)?),
        ("%nctaid", t) => Special::Nctaid(axis(t)?),
        ("%laneid", "") => Special::LaneId,
        ("%warpid", "") => Special::WarpId,
        ("%nwarpid", "") => Special::NWarpId,
        ("%smid", "") => Special::SmId,
        ("%nsmid", "") => Special::NSmId,
        ("%gridid", "") => Special::GridId,
        ("%lanemask_eq", "") => Special::LaneMaskEq,
        ("%lanemask_le", "") => Special::LaneMaskLe,
        ("%lanemask_lt", "") => Special::LaneMaskLt,
        ("%lanemask_ge", "") => Special::LaneMaskGe,
        ("%lanemask_gt", "") => Special::LaneMaskGt,
        ("%clock" | "%clock64" | "%globaltimer", "") => Special::Clock,
        ("%dynamic_smem_size", "") => Special::DynamicShared,
        ("%total_smem_size", "") => Special::TotalShared,
        _ => return None,
    })
}
