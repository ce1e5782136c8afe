//! Instructions that lanes of a warp execute together.

use super::modifiers::{Modifiers, Type};
use super::{Decoder, Result};
use crate::ir::*;
use ptx_syntax::Operand;

const B32: Type = Type::Bits(32);

impl<'s, 'a> Decoder<'_, '_, 's, 'a> {
    pub(super) fn warp(&mut self, base: &str, m: &mut Modifiers<'a>) -> Result<Option<Op>> {
        Ok(Some(match base {
            "shfl" => {
                self.need_sync(m)?;
                let mode = m
                    .take_any(&[
                        ("up", ShuffleMode::Up),
                        ("down", ShuffleMode::Down),
                        ("bfly", ShuffleMode::Bfly),
                        ("idx", ShuffleMode::Idx),
                    ])
                    .ok_or_else(|| self.error("shfl needs .up, .down, .bfly or .idx"))?;
                self.ty_of_bits(m, 32)?;
                let [d, a, b, c, mask] = self.operands()?;
                let (d, valid) = self.with_predicate(d)?;
                let what = Collective::Shuffle {
                    mode,
                    d,
                    valid,
                    a: self.value(a, B32)?,
                    b: self.value(b, B32)?,
                    c: self.value(c, B32)?,
                };
                Op::Collective {
                    what,
                    mask: self.value(mask, B32)?,
                    aligned: false,
                }
            }
            "vote" => {
                self.need_sync(m)?;
                let mode = m
                    .take_any(&[
                        ("all", VoteMode::All),
                        ("any", VoteMode::Any),
                        ("uni", VoteMode::Uni),
                        ("ballot", VoteMode::Ballot),
                    ])
                    .ok_or_else(|| self.error("vote needs .all, .any, .uni or .ballot"))?;
                self.ty(m)?;
                let [d, p, mask] = self.operands()?;
                let d = if mode == VoteMode::Ballot {
                    self.target(d, 32)?
                } else {
                    self.pred_target(d)?
                };
                let p = self.pred(p)?;
                let what = Collective::Vote {
                    mode,
                    d,
                    p: p.pred,
                    negated: p.negated,
                };
                Op::Collective {
                    what,
                    mask: self.value(mask, B32)?,
                    aligned: false,
                }
            }
            "match" => {
                let all = m.take("all");
                if !all && !m.take("any") {
                    return Err(self.error("match needs .any or .all"));
                }
                self.need_sync(m)?;
                let ty = self.ty(m)?;
                let [d, a, mask] = self.operands()?;
                let (d, valid) = self.with_predicate(d)?;
                let what = Collective::Match {
                    wide: ty.bits() == 64,
                    all,
                    d,
                    valid,
                    a: self.value(a, ty)?,
                };
                Op::Collective {
                    what,
                    mask: self.value(mask, B32)?,
                    aligned: false,
                }
            }
            "redux" => {
                self.need_sync(m)?;
                let name = m.take_any(&[
                    ("add", 0),
                    ("and", 1),
                    ("or", 2),
                    ("xor", 3),
                    ("min", 4),
                    ("max", 5),
                ]);
                let ty = self.ty_of_bits(m, 32)?;
                let signed = matches!(ty, Type::Signed(_));
                let op = match name {
                    Some(0) => ReduxOp::Add,
                    Some(1) => ReduxOp::And,
                    Some(2) => ReduxOp::Or,
                    Some(3) => ReduxOp::Xor,
                    Some(4) => {
                        if signed {
                            ReduxOp::MinS
                        } else {
                            ReduxOp::MinU
                        }
                    }
                    Some(_) => {
                        if signed {
                            ReduxOp::MaxS
                        } else {
                            ReduxOp::MaxU
                        }
                    }
                    None => return Err(self.error("redux needs an operation that is implemented")),
                };
                if ty.int().is_none() {
                    return Err(self.error("redux of floats is not implemented"));
                }
                let [d, a, mask] = self.operands()?;
                let what = Collective::Redux {
                    op,
                    d: self.target(d, 32)?,
                    a: self.value(a, B32)?,
                };
                Op::Collective {
                    what,
                    mask: self.value(mask, B32)?,
                    aligned: false,
                }
            }
            "activemask" => {
                self.ty_of_bits(m, 32)?;
                let [d] = self.operands()?;
                Op::ActiveMask {
                    d: self.target(d, 32)?,
                }
            }
            "ldmatrix" => self.load_matrix(m)?,
            "mma" => self.mma(m)?,
            _ => return Ok(None),
        }))
    }

    fn need_sync(&self, m: &mut Modifiers<'a>) -> Result<()> {
        if m.take("sync") {
            Ok(())
        } else {
            Err(self.error(format!("only the .sync form of {} is implemented", m.base)))
        }
    }

    /// `d` or `d|p`.
    fn with_predicate(&self, operand: &Operand<'a>) -> Result<(Row, Pred)> {
        match operand {
            Operand::Pair(d, p) => {
                let or_sink = |r: &Option<u32>| r.map_or(Operand::Sink, Operand::Reg);
                Ok((
                    self.target(&or_sink(d), 32)?,
                    self.pred_target(&or_sink(p))?,
                ))
            }
            other => Ok((self.target(other, 32)?, SINK)),
        }
    }

    /// Registers of a fragment.
    fn fragment<const N: usize>(
        &mut self,
        operand: &Operand<'a>,
        count: usize,
        result: bool,
    ) -> Result<[Row; N]> {
        let mut rows = [SINK; N];
        for (row, element) in rows.iter_mut().zip(self.elements(operand, count)?) {
            *row = if result {
                self.target(element, 32)?
            } else {
                self.value(element, B32)?
            };
        }
        Ok(rows)
    }

    fn load_matrix(&mut self, m: &mut Modifiers<'a>) -> Result<Op> {
        self.need_sync(m)?;
        let aligned = m.take("aligned");
        if !m.take("m8n8") {
            return Err(self.error("ldmatrix of this shape is not implemented"));
        }
        let count = m
            .take_any(&[("x1", 1), ("x2", 2), ("x4", 4)])
            .ok_or_else(|| self.error("ldmatrix needs .x1, .x2 or .x4"))?;
        let transposed = m.take("trans");
        if !(m.take("shared") || m.take("shared::cta")) {
            return Err(self.error("ldmatrix reads .shared memory"));
        }
        self.ty_of_bits(m, 16)?;
        let [d, address] = self.operands()?;
        let d = self.fragment(d, count.into(), true)?;
        let (address, offset) = self.address(address)?;
        let mask = self.int_constant(0xFFFF_FFFF, 32)?;
        Ok(Op::Collective {
            what: Collective::LoadMatrix {
                d,
                count,
                transposed,
                address,
                offset,
            },
            mask,
            aligned,
        })
    }

    fn mma(&mut self, m: &mut Modifiers<'a>) -> Result<Op> {
        self.need_sync(m)?;
        let aligned = m.take("aligned");
        let k: u16 = m
            .take_any(&[
                ("m16n8k8", 8),
                ("m16n8k16", 16),
                ("m16n8k32", 32),
                ("m16n8k128", 128),
                ("m16n8k256", 256),
            ])
            .ok_or_else(|| self.error("mma of this shape is not implemented"))?;
        if !m.take("row") || !m.take("col") {
            return Err(self.error("mma is implemented for .row.col"));
        }
        let kind = if k >= 128 {
            if !(m.take("s32") && m.take("b1") && m.take("b1") && m.take("s32")) {
                return Err(self.error("mma of these types is not implemented"));
            }
            let and = m
                .take_any(&[("xor", false), ("and", true)])
                .filter(|_| m.take("popc"))
                .ok_or_else(|| self.error("mma of bits needs .and.popc or .xor.popc"))?;
            MmaKind::Bits { k, and }
        } else {
            let types = [self.ty(m)?, self.ty(m)?, self.ty(m)?, self.ty(m)?];
            let k = k as u8;
            let floats = |half_out, bfloats| MmaKind::Floats {
                k,
                half_out,
                bfloats,
            };
            match types {
                [Type::F32, Type::F16, Type::F16, Type::F32] if k <= 16 => floats(false, false),
                [Type::F16, Type::F16, Type::F16, Type::F16] if k <= 16 => floats(true, false),
                [Type::F32, Type::Bf16, Type::Bf16, Type::F32] if k <= 16 => floats(false, true),
                [
                    Type::Signed(32),
                    a @ (Type::Unsigned(8) | Type::Signed(8)),
                    b @ (Type::Unsigned(8) | Type::Signed(8)),
                    Type::Signed(32),
                ] if k >= 16 => MmaKind::Bytes {
                    k,
                    signed: [a, b].map(|ty| ty == Type::Signed(8)),
                },
                _ => return Err(self.error("mma of these types is not implemented")),
            }
        };
        let [d, a, b, c] = self.operands()?;
        let [of_a, of_b, accumulators] = kind.registers();
        let what = Collective::Mma {
            kind,
            d: self.fragment(d, accumulators, true)?,
            a: self.fragment(a, of_a, false)?,
            b: self.fragment(b, of_b, false)?,
            c: self.fragment(c, accumulators, false)?,
        };
        Ok(Op::Collective {
            what,
            mask: self.int_constant(0xFFFF_FFFF, 32)?,
            aligned,
        })
    }
}
