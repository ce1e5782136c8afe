//! Float arithmetic, comparisons and conversions.

use super::modifiers::{Modifiers, Type};
use super::{Decoder, Result};
use crate::ir::*;
use ptx_syntax::Operand;

impl<'s, 'a> Decoder<'_, '_, 's, 'a> {
    pub(super) fn float2(
        &mut self,
        base: &str,
        m: &mut Modifiers<'a>,
        ty: Type,
        float: FloatType,
    ) -> Result<Op> {
        let nan = m.take("NaN");
        let arithmetic = matches!(base, "add" | "sub" | "mul" | "div");
        let rounding = if arithmetic {
            self.float_rounding(m, float)?
        } else {
            None
        };
        let mode = FloatMode {
            ftz: m.take("ftz"),
            sat: m.take("sat"),
            relu: false,
            rounding: rounding.unwrap_or_default(),
        };
        let op = match base {
            "add" => Float2::Add,
            "sub" => Float2::Sub,
            "mul" => Float2::Mul,
            "div" => {
                if rounding.is_none() && !m.take("full") && !m.take("approx") {
                    return Err(self.error("div of floats needs a rounding, .full or .approx"));
                }
                Float2::Div
            }
            "min" => {
                if nan {
                    Float2::MinNan
                } else {
                    Float2::Min
                }
            }
            "max" => {
                if nan {
                    Float2::MaxNan
                } else {
                    Float2::Max
                }
            }
            "copysign" => Float2::CopySign,
            _ => return Err(self.error(format!("{base} of floats does not exist"))),
        };
        if op == Float2::Div && matches!(float, FloatType::F16 | FloatType::F16x2) {
            return Err(self.error("div of halves does not exist"));
        }
        let [d, a, b] = self.operands()?;
        let (d, mut a, mut b) = (
            self.target(d, ty.bits())?,
            self.value(a, ty)?,
            self.value(b, ty)?,
        );
        if op == Float2::CopySign {
            // PTX: the sign of a, the rest of b.
            std::mem::swap(&mut a, &mut b);
        }
        Ok(Op::Float2 {
            op,
            ty: float,
            mode,
            d,
            a,
            b,
        })
    }

    /// The rounding of an arithmetic instruction, if it has one: single precision has all, the others the nearest.
    pub(super) fn float_rounding(
        &self,
        m: &mut Modifiers<'a>,
        float: FloatType,
    ) -> Result<Option<Rounding>> {
        match m.take_rounding() {
            Some((_, true)) => Err(self.error(format!("{} has no rounding to integers", m.base))),
            Some((rounding, _)) if rounding != Rounding::Nearest && float != FloatType::F32 => {
                Err(self.error(format!(
                    "{} of this type is implemented with .rn only",
                    m.base
                )))
            }
            other => Ok(other.map(|(rounding, _)| rounding)),
        }
    }

    pub(super) fn sign(&mut self, base: &str, m: &mut Modifiers<'a>) -> Result<Op> {
        let ty = self.ty(m)?;
        let Some(float) = ty.float() else {
            return self.int1(if base == "neg" { Int1::Neg } else { Int1::Abs }, ty);
        };
        let mode = FloatMode {
            ftz: m.take("ftz"),
            ..FloatMode::default()
        };
        let op = if base == "neg" {
            Float1::Neg
        } else {
            Float1::Abs
        };
        let [d, a] = self.operands()?;
        Ok(Op::Float1 {
            op,
            ty: float,
            mode,
            d: self.target(d, ty.bits())?,
            a: self.value(a, ty)?,
        })
    }

    pub(super) fn special(&mut self, base: &str, m: &mut Modifiers<'a>) -> Result<Op> {
        let (ftz, approximate) = (m.take("ftz"), m.take("approx"));
        let ty = self.ty(m)?;
        let float = ty
            .float()
            .ok_or_else(|| self.error(format!("{base} of this type is not implemented")))?;
        let rounding = if matches!(base, "sqrt" | "rcp") {
            self.float_rounding(m, float)?
        } else {
            None
        };
        let mode = FloatMode {
            ftz,
            rounding: rounding.unwrap_or_default(),
            ..FloatMode::default()
        };
        let rounded = rounding.is_some();
        let half = matches!(float, FloatType::F16 | FloatType::F16x2);
        let (op, exists) = match base {
            "sqrt" => (
                Float1::Sqrt,
                !half && (rounded || (approximate && float == FloatType::F32)),
            ),
            "rcp" => (Float1::Rcp, !half && (rounded || approximate)),
            "rsqrt" => (Float1::Rsqrt, !half && approximate),
            "ex2" => (Float1::Ex2, approximate && float != FloatType::F64),
            "tanh" => (Float1::Tanh, approximate && float != FloatType::F64),
            "lg2" => (Float1::Lg2, approximate && float == FloatType::F32),
            "sin" => (Float1::Sin, approximate && float == FloatType::F32),
            _ => (Float1::Cos, approximate && float == FloatType::F32),
        };
        if !exists || (rounded && approximate) {
            return Err(self.error(format!(
                "this rounding of {base} is not implemented for this type"
            )));
        }
        let [d, a] = self.operands()?;
        Ok(Op::Float1 {
            op,
            ty: float,
            mode,
            d: self.target(d, ty.bits())?,
            a: self.value(a, ty)?,
        })
    }

    pub(super) fn testp(&mut self, m: &mut Modifiers<'a>) -> Result<Op> {
        let test = m
            .take_any(&[
                ("finite", FloatTest::Finite),
                ("infinite", FloatTest::Infinite),
                ("number", FloatTest::Number),
                ("notanumber", FloatTest::NotANumber),
                ("normal", FloatTest::Normal),
                ("subnormal", FloatTest::Subnormal),
            ])
            .ok_or_else(|| self.error("testp needs a class of floats"))?;
        let ty = self.ty(m)?;
        if !matches!(ty, Type::F32 | Type::F64) {
            return Err(self.error("testp of this type does not exist"));
        }
        let [d, a] = self.operands()?;
        Ok(Op::Testp {
            test,
            wide: ty == Type::F64,
            d: self.pred_target(d)?,
            a: self.value(a, ty)?,
        })
    }

    /// Of pairs of halves, and whether they are equal.
    pub(super) fn set(&mut self, m: &mut Modifiers<'a>) -> Result<Op> {
        let is_equal = m.take("eq");
        let (to, of) = (self.ty(m)?, self.ty(m)?);
        let op = match (is_equal, to, of) {
            (true, Type::F16x2, Type::F16x2) => Float2::Equal,
            (true, Type::Unsigned(32) | Type::Signed(32), Type::F16x2) => Float2::EqualMask,
            _ => return Err(self.error("set is implemented for equal pairs of halves only")),
        };
        let [d, a, b] = self.operands()?;
        Ok(Op::Float2 {
            op,
            ty: FloatType::F16x2,
            mode: FloatMode::default(),
            d: self.target(d, 32)?,
            a: self.value(a, of)?,
            b: self.value(b, of)?,
        })
    }

    pub(super) fn setp(&mut self, m: &mut Modifiers<'a>) -> Result<Op> {
        use Compare::*;
        let cmp = m.take_any(&[
            ("eq", Eq),
            ("ne", Ne),
            ("lt", Lt),
            ("le", Le),
            ("gt", Gt),
            ("ge", Ge),
            ("lo", Lt),
            ("ls", Le),
            ("hi", Gt),
            ("hs", Ge),
            ("equ", Equ),
            ("neu", Neu),
            ("ltu", Ltu),
            ("leu", Leu),
            ("gtu", Gtu),
            ("geu", Geu),
            ("num", Num),
            ("nan", Nan),
        ]);
        let cmp = cmp.ok_or_else(|| self.error("setp needs a comparison that is implemented"))?;
        let combine = m.take_any(&[
            ("and", BoolOp::And),
            ("or", BoolOp::Or),
            ("xor", BoolOp::Xor),
        ]);
        let ftz = m.take("ftz");
        let ty = self.ty(m)?;
        let compared = match (ty.float(), ty.int()) {
            (Some(f), _) => CompareType::Float(f),
            (_, Some(i)) => CompareType::Int(i),
            _ => return Err(self.error("setp of this type is not implemented")),
        };
        if matches!(
            (compared, cmp),
            (
                CompareType::Int(_),
                Equ | Neu | Ltu | Leu | Gtu | Geu | Num | Nan
            )
        ) {
            return Err(self.error("this comparison is for floats"));
        }
        let (d, a, b, with) = match combine {
            Some(op) => {
                let [d, a, b, c] = self.operands()?;
                (d, a, b, Some((op, self.pred(c)?)))
            }
            None => {
                let [d, a, b] = self.operands()?;
                (d, a, b, None)
            }
        };
        let (d, d2) = match d {
            Operand::Pair(first, second) => {
                let target =
                    |r: &Option<u32>| r.map_or(Ok(SINK), |r| self.pred_target(&Operand::Reg(r)));
                (target(first)?, target(second)?)
            }
            other => (self.pred_target(other)?, SINK),
        };
        Ok(Op::Setp {
            cmp,
            ty: compared,
            ftz,
            d,
            d2,
            a: self.value(a, ty)?,
            b: self.value(b, ty)?,
            with,
        })
    }

    pub(super) fn cvt(&mut self, m: &mut Modifiers<'a>) -> Result<Op> {
        let rounding = m.take_rounding();
        let (ftz, sat, relu) = (m.take("ftz"), m.take("sat"), m.take("relu"));
        let (to, from) = (self.ty(m)?, self.ty(m)?);
        if [to, from]
            .iter()
            .any(|ty| matches!(ty, Type::Bf16 | Type::Bf16x2))
        {
            let given = matches!(rounding, Some((Rounding::Nearest | Rounding::Zero, false)));
            if from != Type::F32 || !given || ftz || sat {
                return Err(self.error("cvt of .bf16 is implemented from .f32 with .rn or .rz"));
            }
        }
        let (rounding, integral) = rounding.unwrap_or((Rounding::Nearest, false));
        let how = |to: ScalarType, from: ScalarType, bits: u8| Convert {
            to,
            from,
            rounding,
            integral,
            sat,
            ftz,
            relu,
            bits,
        };
        let pair = match (to, from) {
            (Type::F16x2, Type::F32) => Some(ScalarType::F16),
            (Type::Bf16x2, Type::F32) => Some(ScalarType::Bf16),
            _ => None,
        };
        if let Some(half) = pair {
            let [d, a, b] = self.operands()?;
            let d = self.target(d, 32)?;
            return Ok(Op::ConvertPair {
                d,
                a: self.value(a, from)?,
                b: self.value(b, from)?,
                how: how(half, ScalarType::F32, 16),
            });
        }
        let (Some(to), Some(from_scalar)) = (to.scalar(), from.scalar()) else {
            return Err(self.error("cvt between these types is not implemented"));
        };
        let [d, a] = self.operands()?;
        let (d, bits) = self.wide_target(d, to.bits())?;
        Ok(Op::Convert {
            d,
            a: self.wide_value(a, from)?,
            how: how(to, from_scalar, bits),
        })
    }
}
