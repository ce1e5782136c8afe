//! Integer arithmetic, per type and operation.

use crate::ir::{Compare, Int1, Int2, Int3, PrmtMode};

/// An integer type as lanes hold it.
pub(crate) trait Lane: Copy + Ord {
    const BITS: u32;
    const SIGNED: bool;
    /// From the low bits of a lane.
    fn get(v: u64) -> Self;
    /// Zero above the type's width.
    fn put(self) -> u64;
    /// Extended to 128 bits by its own sign.
    fn wide(self) -> i128;
    fn add(self, other: Self) -> Self;
    fn sub(self, other: Self) -> Self;
    fn mul(self, other: Self) -> Self;
    /// All ones when the divisor is zero, which the PTX ISA leaves open and the hardware gives.
    fn div(self, other: Self) -> Self;
    /// All ones when the divisor is zero, as for [`Lane::div`].
    fn rem(self, other: Self) -> Self;
    fn shr(self, n: u32) -> Self;
}

macro_rules! lanes {
    ($($signed:ty, $unsigned:ty, $ty:ty, $is_signed:literal;)*) => {$(
        impl Lane for $ty {
            const BITS: u32 = <$ty>::BITS;
            const SIGNED: bool = $is_signed;
            #[inline(always)]
            fn get(v: u64) -> Self {
                v as $ty
            }
            #[inline(always)]
            fn put(self) -> u64 {
                self as $unsigned as u64
            }
            #[inline(always)]
            fn wide(self) -> i128 {
                self as i128
            }
            #[inline(always)]
            fn add(self, other: Self) -> Self {
                self.wrapping_add(other)
            }
            #[inline(always)]
            fn sub(self, other: Self) -> Self {
                self.wrapping_sub(other)
            }
            #[inline(always)]
            fn mul(self, other: Self) -> Self {
                self.wrapping_mul(other)
            }
            #[inline(always)]
            fn div(self, other: Self) -> Self {
                if other == 0 { <$unsigned>::MAX as $ty } else { self.wrapping_div(other) }
            }
            #[inline(always)]
            fn rem(self, other: Self) -> Self {
                if other == 0 { <$unsigned>::MAX as $ty } else { self.wrapping_rem(other) }
            }
            #[inline(always)]
            fn shr(self, n: u32) -> Self {
                if n < <$ty>::BITS { self >> n } else if $is_signed && (self as $signed) < 0 { <$unsigned>::MAX as $ty } else { 0 }
            }
        }
    )*};
}

lanes! {
    i16, u16, u16, false;
    i16, u16, i16, true;
    i32, u32, u32, false;
    i32, u32, i32, true;
    i64, u64, u64, false;
    i64, u64, i64, true;
}

#[inline(always)]
pub(crate) fn binary<T: Lane>(op: Int2, a: u64, b: u64) -> u64 {
    let (x, y) = (T::get(a), T::get(b));
    match op {
        Int2::Add => x.add(y).put(),
        Int2::Sub => x.sub(y).put(),
        Int2::AddSat => (x.wide() + y.wide()).clamp(i32::MIN.into(), i32::MAX.into()) as u32 as u64,
        Int2::SubSat => (x.wide() - y.wide()).clamp(i32::MIN.into(), i32::MAX.into()) as u32 as u64,
        Int2::MulLo => x.mul(y).put(),
        // A 64-bit unsigned product may not fit i128, but wraps to the same bits.
        Int2::MulHi => T::get((x.wide().wrapping_mul(y.wide()) >> T::BITS) as u64).put(),
        Int2::MulWide => mask(x.wide().wrapping_mul(y.wide()) as u64, T::BITS * 2),
        Int2::Mul24 => {
            let low = |v: u64| {
                if T::SIGNED {
                    i64::from((v as i32) << 8 >> 8)
                } else {
                    (v & 0xFF_FFFF) as i64
                }
            };
            low(a).wrapping_mul(low(b)) as u32 as u64
        }
        Int2::Div => x.div(y).put(),
        Int2::Rem => x.rem(y).put(),
        Int2::Min => x.min(y).put(),
        Int2::Max => x.max(y).put(),
        Int2::And => a & b,
        Int2::Or => a | b,
        Int2::Xor => a ^ b,
        // Amounts are 32 bits and clamp at the width.
        Int2::Shl => {
            if (b as u32) < T::BITS {
                mask(a << b, T::BITS)
            } else {
                0
            }
        }
        Int2::Shr => x.shr(b as u32).put(),
    }
}

#[inline(always)]
fn mask(v: u64, bits: u32) -> u64 {
    if bits >= 64 { v } else { v & ((1 << bits) - 1) }
}

pub(crate) fn unary<T: Lane>(op: Int1, a: u64) -> u64 {
    let x = T::get(a);
    match op {
        Int1::Neg => T::get(0).sub(x).put(),
        Int1::Abs => {
            if x.wide() < 0 {
                T::get(0).sub(x).put()
            } else {
                a
            }
        }
        Int1::Not => mask(!a, T::BITS),
        Int1::Popc => a.count_ones().into(),
        Int1::Clz => (a.leading_zeros() - (64 - T::BITS)).into(),
        Int1::Brev => a.reverse_bits() >> (64 - T::BITS),
        Int1::Cnot => u64::from(a == 0),
        Int1::Bfind(shift_amount) => {
            let v = if T::SIGNED && x.wide() < 0 {
                mask(!a, T::BITS)
            } else {
                a
            };
            match v {
                0 => u32::MAX.into(),
                v if shift_amount => u64::from(v.leading_zeros() - (64 - T::BITS)),
                v => u64::from(63 - v.leading_zeros()),
            }
        }
    }
}

#[inline(always)]
pub(crate) fn ternary<T: Lane>(op: Int3, a: u64, b: u64, c: u64) -> u64 {
    let (x, y, z) = (T::get(a), T::get(b), T::get(c));
    match op {
        Int3::MadLo => x.mul(y).add(z).put(),
        Int3::MadHi => T::get((x.wide().wrapping_mul(y.wide()) >> T::BITS) as u64)
            .add(z)
            .put(),
        Int3::MadWide => mask(
            (x.wide().wrapping_mul(y.wide()) as u64).wrapping_add(c),
            T::BITS * 2,
        ),
        Int3::Sad => z.add(if x < y { y.sub(x) } else { x.sub(y) }).put(),
        Int3::Bfe => extract::<T>(a, b as u32, c as u32),
        Int3::ShfLeft { wrap } => {
            let n = if wrap {
                c & 31
            } else {
                (c & u64::from(u32::MAX)).min(32)
            };
            (((b << 32 | a) << n) >> 32) as u32 as u64
        }
        Int3::ShfRight { wrap } => {
            let n = if wrap {
                c & 31
            } else {
                (c & u64::from(u32::MAX)).min(32)
            };
            ((b << 32 | a) >> n) as u32 as u64
        }
        Int3::Lop3(lut) => lop3(lut, a, b, c),
        Int3::Prmt(mode) => prmt(mode, a as u32, b as u32, c as u32).into(),
        Int3::Dp2a {
            high,
            a_signed,
            b_signed,
        } => {
            let half = |i: u32| {
                let v = (a >> (16 * i)) as u16;
                if a_signed {
                    i32::from(v as i16)
                } else {
                    i32::from(v)
                }
            };
            let first = if high { 2 } else { 0 };
            let dot = (0..2)
                .map(|i| half(i) * byte(b, first + i, b_signed))
                .sum::<i32>();
            u64::from((c as u32).wrapping_add(dot as u32))
        }
        Int3::Dp4a { a_signed, b_signed } => {
            let dot = (0..4)
                .map(|i| byte(a, i, a_signed) * byte(b, i, b_signed))
                .sum::<i32>();
            u64::from((c as u32).wrapping_add(dot as u32))
        }
    }
}

/// Byte `i` of a word.
fn byte(v: u64, i: u32, signed: bool) -> i32 {
    let v = (v >> (8 * i)) as u8;
    if signed {
        i32::from(v as i8)
    } else {
        i32::from(v)
    }
}

/// Positions and lengths of bit fields. The PTX ISA restricts them to 0 to 255: of larger ones the hardware takes the
/// low 8 bits where the field is of 32 bits, and the whole where it is of 64.
fn field_operand(v: u32, bits: u32) -> u32 {
    if bits == 64 { v } else { v & 0xFF }
}

/// `bfe`: a field of `a`, its sign extended for signed types (the last bit of `a` where the field runs past it).
fn extract<T: Lane>(a: u64, position: u32, length: u32) -> u64 {
    let [position, length] = [position, length].map(|v| field_operand(v, T::BITS));
    if length == 0 {
        return 0;
    }
    let top = T::BITS - 1;
    let sign = T::SIGNED && a >> position.saturating_add(length - 1).min(top) & 1 == 1;
    let field = if position > top { 0 } else { a >> position };
    let available = length.min((top + 1).saturating_sub(position));
    let fill = if sign && available < T::BITS {
        u64::MAX << available
    } else {
        0
    };
    mask(mask(field, available) | fill, T::BITS)
}

/// `bfi`: `length` bits of `a` into `b` at `position`.
pub(crate) fn insert(wide: bool, a: u64, b: u64, position: u64, length: u64) -> u64 {
    let bits = if wide { 64 } else { 32 };
    let [position, length] = [position, length].map(|v| field_operand(v as u32, bits));
    if position >= bits || length == 0 {
        return b;
    }
    let field = mask(u64::MAX, length.min(bits - position)) << position;
    b & !field | a << position & field
}

fn lop3(lut: u8, a: u64, b: u64, c: u64) -> u64 {
    let term = |i: u32, x: u64| if i == 1 { x } else { !x };
    let all = (0..8u32).filter(|i| lut >> i & 1 == 1).fold(0, |r, i| {
        r | term(i >> 2 & 1, a) & term(i >> 1 & 1, b) & term(i & 1, c)
    });
    all & u64::from(u32::MAX)
}

fn prmt(mode: PrmtMode, a: u32, b: u32, c: u32) -> u32 {
    let bytes = (u64::from(b) << 32 | u64::from(a)).to_le_bytes();
    let n = (c & 3) as usize;
    let pick = |indices: [usize; 4]| u32::from_le_bytes(indices.map(|i| bytes[i]));
    match mode {
        PrmtMode::Index => u32::from_le_bytes(std::array::from_fn(|i| {
            let selector = c >> (4 * i);
            let byte = bytes[(selector & 7) as usize];
            if selector & 8 != 0 {
                (byte as i8 >> 7) as u8
            } else {
                byte
            }
        })),
        PrmtMode::Forward4 => pick([n, n + 1, n + 2, n + 3]),
        PrmtMode::Backward4 => pick([n, (n + 7) % 8, (n + 6) % 8, (n + 5) % 8]),
        PrmtMode::Replicate8 => pick([n; 4]),
        PrmtMode::EdgeLeft => pick([n, n.max(1), n.max(2), 3]),
        PrmtMode::EdgeRight => pick([0, n.min(1), n.min(2), n]),
        PrmtMode::Replicate16 => {
            let n = 2 * (n & 1);
            pick([n, n + 1, n, n + 1])
        }
    }
}

#[inline(always)]
pub(crate) fn compare<T: Lane>(cmp: Compare, a: u64, b: u64) -> bool {
    let (x, y) = (T::get(a), T::get(b));
    match cmp {
        Compare::Eq | Compare::Equ => x == y,
        Compare::Ne | Compare::Neu => x != y,
        Compare::Lt | Compare::Ltu => x < y,
        Compare::Le | Compare::Leu => x <= y,
        Compare::Gt | Compare::Gtu => x > y,
        Compare::Ge | Compare::Geu => x >= y,
        Compare::Num => true,
        Compare::Nan => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn products_and_quotients() {
        assert_eq!(binary::<u64>(Int2::MulHi, u64::MAX, u64::MAX), u64::MAX - 1);
        assert_eq!(binary::<i64>(Int2::MulHi, u64::MAX, 5), u64::MAX);
        assert_eq!(
            binary::<i32>(Int2::MulWide, u64::from(u32::MAX), 3),
            (-3i64) as u64
        );
        assert_eq!(binary::<u16>(Int2::MulWide, 0xFFFF, 0xFFFF), 0xFFFE_0001);
        assert_eq!(
            binary::<i32>(Int2::Div, 0x8000_0000, u64::from(u32::MAX)),
            0x8000_0000
        );
        assert_eq!(binary::<u32>(Int2::Div, 5, 0), u64::from(u32::MAX));
        assert_eq!(binary::<u32>(Int2::Rem, 5, 0), u64::from(u32::MAX));
        assert_eq!(binary::<i16>(Int2::Rem, 5, 0), 0xFFFF);
        assert_eq!(binary::<i32>(Int2::AddSat, 0x7FFF_FFFF, 1), 0x7FFF_FFFF);
        assert_eq!(ternary::<u32>(Int3::MadWide, 1 << 31, 2, 1), (1 << 32) + 1);
    }

    #[test]
    fn shifts_clamp_at_the_width() {
        assert_eq!(binary::<u32>(Int2::Shl, 1, 32), 0);
        assert_eq!(
            binary::<i32>(Int2::Shr, 0x8000_0000, 40),
            u64::from(u32::MAX)
        );
        assert_eq!(binary::<u64>(Int2::Shr, 1 << 63, 63), 1);
        assert_eq!(binary::<u16>(Int2::Shl, 0xFFFF, 4), 0xFFF0);
        assert_eq!(
            ternary::<u32>(Int3::ShfLeft { wrap: true }, 0x8000_0000, 1, 33),
            3
        );
        assert_eq!(ternary::<u32>(Int3::ShfLeft { wrap: false }, 7, 9, 40), 7);
        assert_eq!(ternary::<u32>(Int3::ShfRight { wrap: false }, 7, 9, 32), 9);
    }

    #[test]
    fn fields() {
        assert_eq!(ternary::<u32>(Int3::Bfe, 0xABCD, 4, 8), 0xBC);
        assert_eq!(ternary::<i32>(Int3::Bfe, 0x80, 4, 4), 0xFFFF_FFF8);
        assert_eq!(
            ternary::<i32>(Int3::Bfe, 0x8000_0000, 40, 4),
            u64::from(u32::MAX)
        );
        assert_eq!(ternary::<u64>(Int3::Bfe, u64::MAX, 60, 10), 15);
        assert_eq!(insert(false, 0xF, 0, 30, 8), 0xC000_0000);
        assert_eq!(insert(true, 1, 0, 63, 1), 1 << 63);
        assert_eq!(insert(false, 1, 5, 32, 4), 5);
        // Past 255: 0x108 is 8 where the field is of 32 bits and itself where it is of 64.
        assert_eq!(ternary::<u32>(Int3::Bfe, 0xABCD, 4, 0x108), 0xBC);
        assert_eq!(ternary::<u64>(Int3::Bfe, 0xABCD, 4, 0x108), 0xABC);
        assert_eq!(ternary::<i64>(Int3::Bfe, 1 << 63, 1 << 31, 8), u64::MAX);
        assert_eq!(insert(false, 0xFFF, 0, 0, 0x108), 0xFF);
        assert_eq!(insert(true, 0xFFF, 0, 0, 0x108), 0xFFF);
    }

    #[test]
    fn bits() {
        assert_eq!(
            ternary::<u32>(Int3::Lop3(0xE8), 0b1100, 0b1010, 0b0110),
            0b1110
        );
        assert_eq!(ternary::<u32>(Int3::Lop3(0x96), 1, 1, 1), 1);
        assert_eq!(
            ternary::<u32>(
                Int3::Prmt(PrmtMode::Index),
                0x8766_5544,
                0x3322_1100,
                0xB07F
            ),
            0xFF44_3300
        );
        assert_eq!(unary::<u32>(Int1::Clz, 0), 32);
        assert_eq!(unary::<u64>(Int1::Clz, 1), 63);
        assert_eq!(unary::<u32>(Int1::Brev, 1), 1 << 31);
        assert_eq!(
            unary::<i32>(Int1::Bfind(false), u64::from(u32::MAX)),
            u64::from(u32::MAX)
        );
        assert_eq!(unary::<i32>(Int1::Abs, 0x8000_0000), 0x8000_0000);
        assert_eq!(unary::<i16>(Int1::Neg, 1), 0xFFFF);
        let dot = Int3::Dp4a {
            a_signed: true,
            b_signed: true,
        };
        assert_eq!(
            ternary::<u32>(dot, 0x0102_03FF, 0x0101_0102, 10),
            (10 + 1 + 2 + 3 - 2) as u64
        );
    }
}
