//! The new value of an atomic.

use super::{float, half};
use crate::ir::{AtomicOp, AtomicType, Float2, FloatType, IntType};

/// The memory that an atomic works on: sums of floats differ in their corners.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Unit {
    Global,
    Shared,
}

/// What `op` stores where `old` stands.
pub(crate) fn apply(op: AtomicOp, ty: AtomicType, unit: Unit, old: u64, b: u64, c: u64) -> u64 {
    let signed = matches!(
        ty,
        AtomicType::Int(IntType::S32 | IntType::S64 | IntType::S16)
    );
    let (wide, narrow) = match ty {
        AtomicType::Int(t) => (t.bits() == 64, t.bits() == 16),
        AtomicType::Float(_) => (false, false),
    };
    let as_signed = |v: u64| if wide { v as i64 } else { i64::from(v as i32) };
    let mask = if wide {
        u64::MAX
    } else if narrow {
        0xFFFF
    } else {
        0xFFFF_FFFF
    };
    match op {
        AtomicOp::Add => match ty {
            AtomicType::Int(_) => old.wrapping_add(b) & mask,
            AtomicType::Float(FloatType::F16) => half::add(old as u16, b as u16).into(),
            AtomicType::Float(FloatType::F16x2) => {
                half::pair(old as u32, b as u32, half::add).into()
            }
            AtomicType::Float(FloatType::F32) => add_single(unit, old as u32, b as u32),
            AtomicType::Float(FloatType::F64) => add_double(unit, old, b),
        },
        AtomicOp::Min if signed => {
            if as_signed(b) < as_signed(old) {
                b
            } else {
                old
            }
        }
        AtomicOp::Max if signed => {
            if as_signed(b) > as_signed(old) {
                b
            } else {
                old
            }
        }
        AtomicOp::Min => old.min(b),
        AtomicOp::Max => old.max(b),
        AtomicOp::And => old & b,
        AtomicOp::Or => old | b,
        AtomicOp::Xor => old ^ b,
        AtomicOp::Exch => b,
        AtomicOp::Cas => {
            if old == b {
                c
            } else {
                old
            }
        }
        AtomicOp::Inc => {
            if old >= b {
                0
            } else {
                old + 1
            }
        }
        AtomicOp::Dec => {
            if old == 0 || old > b {
                b
            } else {
                old - 1
            }
        }
    }
}

/// On global memory subnormal operands and results become zeros of their sign, as the PTX ISA says of `atom.add.f32`.
fn add_single(unit: Unit, old: u32, b: u32) -> u64 {
    match unit {
        Unit::Shared => float::binary32(Float2::Add, old, b),
        Unit::Global => {
            let sum = float::binary32(Float2::Add, float::flush(old), float::flush(b));
            float::flush(sum as u32).into()
        }
    }
}

/// Of two NaN, global memory takes the operand and shared memory keeps its own; on global memory a NaN that signals
/// stays so.
fn add_double(unit: Unit, old: u64, b: u64) -> u64 {
    match unit {
        Unit::Shared => float::binary64(Float2::Add, b, old),
        Unit::Global => [b, old]
            .into_iter()
            .find(|v| float::is_nan64(*v))
            .unwrap_or_else(|| float::binary64(Float2::Add, old, b)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_operation() {
        let u = AtomicType::Int(IntType::U32);
        let s = AtomicType::Int(IntType::S32);
        let minus = u64::from(u32::MAX);
        for (op, ty, old, b, c, expected) in [
            (AtomicOp::Add, u, minus, 2, 0, 1),
            (AtomicOp::Min, u, 5, minus, 0, 5),
            (AtomicOp::Min, s, 5, minus, 0, minus),
            (AtomicOp::Max, s, 5, minus, 0, 5),
            (AtomicOp::Cas, u, 7, 7, 9, 9),
            (AtomicOp::Cas, u, 6, 7, 9, 6),
            (AtomicOp::Inc, u, 3, 3, 0, 0),
            (AtomicOp::Dec, u, 0, 3, 0, 3),
            (AtomicOp::Exch, u, 1, 2, 0, 2),
            (
                AtomicOp::Add,
                AtomicType::Float(FloatType::F32),
                0x3F80_0000,
                0x4000_0000,
                0,
                0x4040_0000,
            ),
            (
                AtomicOp::Add,
                AtomicType::Float(FloatType::F16x2),
                0x3C00_4000,
                0x3C00_3C00,
                0,
                0x4000_4200,
            ),
        ] {
            for unit in [Unit::Global, Unit::Shared] {
                assert_eq!(apply(op, ty, unit, old, b, c), expected, "{op:?} {ty:?}");
            }
        }
    }

    #[test]
    fn sums_of_floats_differ_by_memory() {
        let add = |ty, unit, old, b| apply(AtomicOp::Add, AtomicType::Float(ty), unit, old, b, 0);
        let single = |unit, old, b| add(FloatType::F32, unit, old, b);
        assert_eq!(single(Unit::Global, 0x8000_0001, 0x8000_0000), 0x8000_0000);
        assert_eq!(single(Unit::Shared, 0x8000_0001, 0x8000_0000), 0x8000_0001);
        // Both operands normal, their difference not.
        assert_eq!(single(Unit::Global, 0x0080_0001, 0x8080_0000), 0);
        assert_eq!(single(Unit::Shared, 0x0080_0001, 0x8080_0000), 1);
        let double = |unit, old, b| add(FloatType::F64, unit, old, b);
        let (signalling, negative) = (0x7FF0_0000_0000_0001, 0xFFF8_1234_5678_9ABC);
        assert_eq!(double(Unit::Global, negative, signalling), signalling);
        assert_eq!(double(Unit::Global, signalling, 0), signalling);
        assert_eq!(double(Unit::Shared, negative, signalling), negative);
        assert_eq!(double(Unit::Shared, signalling, 0), signalling | 1 << 51);
    }
}
