//! Integer arithmetic and bits.

use crate::harness::{check, operands};

const WORDS: [u64; 13] = [
    0,
    1,
    2,
    7,
    31,
    32,
    33,
    0x7fff_ffff,
    0x8000_0000,
    0xffff_ffff,
    0xffff_fffe,
    0x0001_0203,
    0x89ab_cdef,
];

fn signed(v: u64) -> i64 {
    i64::from(v as u32 as i32)
}

#[test]
fn words() {
    let all = operands(&WORDS, 32, 1);
    let u = |instruction: &str, f: fn(u32, u32, u32) -> u32| {
        check(instruction, "b32", "b32", &all, |x, y, z| {
            f(x as u32, y as u32, z as u32).into()
        });
    };
    u("add.s32 d, x, y;", |x, y, _| x.wrapping_add(y));
    u("sub.u32 d, x, y;", |x, y, _| x.wrapping_sub(y));
    u("mul.lo.s32 d, x, y;", |x, y, _| x.wrapping_mul(y));
    u("mul.hi.u32 d, x, y;", |x, y, _| {
        ((u64::from(x) * u64::from(y)) >> 32) as u32
    });
    u("mul.hi.s32 d, x, y;", |x, y, _| {
        ((i64::from(x as i32) * i64::from(y as i32)) >> 32) as u32
    });
    u("mad.lo.s32 d, x, y, z;", |x, y, z| {
        x.wrapping_mul(y).wrapping_add(z)
    });
    u("min.u32 d, x, y;", |x, y, _| x.min(y));
    u("max.s32 d, x, y;", |x, y, _| {
        (x as i32).max(y as i32) as u32
    });
    u("and.b32 d, x, y;", |x, y, _| x & y);
    u("or.b32 d, x, y;", |x, y, _| x | y);
    u("xor.b32 d, x, y;", |x, y, _| x ^ y);
    u("not.b32 d, x;", |x, _, _| !x);
    u("neg.s32 d, x;", |x, _, _| x.wrapping_neg());
    u("abs.s32 d, x;", |x, _, _| (x as i32).wrapping_abs() as u32);
    u("popc.b32 d, x;", |x, _, _| x.count_ones());
    u("clz.b32 d, x;", |x, _, _| x.leading_zeros());
    u("brev.b32 d, x;", |x, _, _| x.reverse_bits());
    // Shifts of 32 and more leave nothing, or the sign: amounts are clamped, not taken modulo.
    u("shl.b32 d, x, y;", |x, y, _| x.checked_shl(y).unwrap_or(0));
    u("shr.u32 d, x, y;", |x, y, _| x.checked_shr(y).unwrap_or(0));
    u("shr.s32 d, x, y;", |x, y, _| {
        ((x as i32) >> y.min(31)) as u32
    });
    u("shf.l.wrap.b32 d, x, y, z;", |x, y, z| {
        ((((u64::from(y) << 32) | u64::from(x)) << (z & 31)) >> 32) as u32
    });
    u("shf.r.wrap.b32 d, x, y, z;", |x, y, z| {
        (((u64::from(y) << 32) | u64::from(x)) >> (z & 31)) as u32
    });
    u("shf.r.clamp.b32 d, x, y, z;", |x, y, z| {
        (((u64::from(y) << 32) | u64::from(x)) >> z.min(32)) as u32
    });
    u("lop3.b32 d, x, y, z, 0xE8;", |x, y, z| {
        x & y | x & z | y & z
    });
    u("lop3.b32 d, x, y, z, 0x96;", |x, y, z| x ^ y ^ z);
}

#[test]
fn quotients() {
    let all: Vec<_> = operands(&WORDS, 32, 2)
        .into_iter()
        .filter(|o| o[1] != 0)
        .collect();
    check("div.u32 d, x, y;", "b32", "b32", &all, |x, y, _| x / y);
    check("rem.u32 d, x, y;", "b32", "b32", &all, |x, y, _| x % y);
    let all: Vec<_> = all
        .into_iter()
        .filter(|o| (o[0], o[1]) != (0x8000_0000, 0xffff_ffff))
        .collect();
    check("div.s32 d, x, y;", "b32", "b32", &all, |x, y, _| {
        (signed(x) / signed(y)) as u32 as u64
    });
    check("rem.s32 d, x, y;", "b32", "b32", &all, |x, y, _| {
        (signed(x) % signed(y)) as u32 as u64
    });
    let wide: Vec<_> = operands(&[1, 3, u64::MAX, 1 << 63, 1 << 32, 12_345_678_901], 64, 3);
    check("div.u64 d, x, y;", "b64", "b64", &wide, |x, y, _| x / y);
    check("rem.u64 d, x, y;", "b64", "b64", &wide, |x, y, _| x % y);
}

#[test]
fn to_twice_the_width() {
    let all = operands(&WORDS, 32, 4);
    check("mul.wide.u32 d, x, y;", "b64", "b32", &all, |x, y, _| x * y);
    check("mul.wide.s32 d, x, y;", "b64", "b32", &all, |x, y, _| {
        (signed(x) * signed(y)) as u64
    });
    let add = "mul.wide.u32 %d1, x, z; mad.wide.u32 d, x, y, %d1;";
    check(add, "b64", "b32", &all, |x, y, z| {
        (x * y).wrapping_add(x * z)
    });
    let all = operands(&[0, 1, 0x7fff, 0x8000, 0xffff], 16, 5);
    check("mul.wide.u16 d, x, y;", "b32", "b16", &all, |x, y, _| x * y);
    check("mul.wide.s16 d, x, y;", "b32", "b16", &all, |x, y, _| {
        (i32::from(x as u16 as i16) * i32::from(y as u16 as i16)) as u32 as u64
    });
}

#[test]
fn double_words() {
    let special = [
        0,
        1,
        63,
        64,
        65,
        u64::MAX,
        1 << 63,
        (1 << 63) - 1,
        0xffff_ffff,
        1 << 32,
    ];
    let all = operands(&special, 64, 6);
    let u =
        |instruction: &str, f: fn(u64, u64, u64) -> u64| check(instruction, "b64", "b64", &all, f);
    u("add.s64 d, x, y;", |x, y, _| x.wrapping_add(y));
    u("sub.s64 d, x, y;", |x, y, _| x.wrapping_sub(y));
    u("mul.lo.s64 d, x, y;", |x, y, _| x.wrapping_mul(y));
    u("mul.hi.u64 d, x, y;", |x, y, _| {
        ((u128::from(x) * u128::from(y)) >> 64) as u64
    });
    u("mad.lo.s64 d, x, y, z;", |x, y, z| {
        x.wrapping_mul(y).wrapping_add(z)
    });
    u("neg.s64 d, x;", |x, _, _| x.wrapping_neg());
    u("min.u64 d, x, y;", |x, y, _| x.min(y));
    u("max.s64 d, x, y;", |x, y, _| {
        (x as i64).max(y as i64) as u64
    });
    u("xor.b64 d, x, y;", |x, y, _| x ^ y);
    u("cvt.u32.u64 %r1, y; shl.b64 d, x, %r1;", |x, y, _| {
        x.checked_shl(y as u32).unwrap_or(0)
    });
    u("cvt.u32.u64 %r1, y; shr.u64 d, x, %r1;", |x, y, _| {
        x.checked_shr(y as u32).unwrap_or(0)
    });
    u("cvt.u32.u64 %r1, y; shr.s64 d, x, %r1;", |x, y, _| {
        ((x as i64) >> (y as u32).min(63)) as u64
    });
    u(
        "mov.b64 {%r1, %r2}, x; mov.b64 d, {%r2, %r1};",
        |x, _, _| x.rotate_left(32),
    );
    u("mov.b64 {_, %r2}, x; cvt.u64.u32 d, %r2;", |x, _, _| {
        x >> 32
    });
    u("setp.lt.u64 p, x, y; selp.b64 d, x, y, p;", |x, y, _| {
        x.min(y)
    });
    u("setp.ge.s64 p, x, y; selp.b64 d, x, y, p;", |x, y, _| {
        (x as i64).max(y as i64) as u64
    });
}

#[test]
fn half_words() {
    let all = operands(&[0, 1, 15, 16, 0x7fff, 0x8000, 0xffff, 0x1234], 16, 7);
    let u = |instruction: &str, f: fn(u16, u16, u16) -> u16| {
        check(instruction, "b16", "b16", &all, |x, y, z| {
            f(x as u16, y as u16, z as u16).into()
        });
    };
    u("add.s16 d, x, y;", |x, y, _| x.wrapping_add(y));
    u("sub.s16 d, x, y;", |x, y, _| x.wrapping_sub(y));
    u("mul.lo.s16 d, x, y;", |x, y, _| x.wrapping_mul(y));
    u("and.b16 d, x, y;", |x, y, _| x & y);
    u("or.b16 d, x, y;", |x, y, _| x | y);
    u("not.b16 d, x;", |x, _, _| !x);
    u("max.u16 d, x, y;", |x, y, _| x.max(y));
    u("min.s16 d, x, y;", |x, y, _| {
        (x as i16).min(y as i16) as u16
    });
    u("cvt.u32.u16 %r1, y; shl.b16 d, x, %r1;", |x, y, _| {
        x.checked_shl(y.into()).unwrap_or(0)
    });
    u("setp.ne.b16 p, x, y; selp.b16 d, x, z, p;", |x, y, z| {
        if x == y { z } else { x }
    });
}

#[test]
fn fields_of_bits() {
    // Position and length are the low bytes of their operands.
    let mut all = operands(
        &[
            0,
            1,
            5,
            8,
            31,
            32,
            33,
            63,
            255,
            256,
            0xdead_beef,
            0x8000_0000,
        ],
        32,
        8,
    );
    for o in &mut all[1728..] {
        o[1] &= 0x3f;
        o[2] &= 0x3f;
    }
    check("bfe.u32 d, x, y, z;", "b32", "b32", &all, |x, y, z| {
        (0..z & 0xff)
            .map(|i| (i, (y & 0xff) + i))
            .filter(|(i, at)| *i < 32 && *at < 32)
            .map(|(i, at)| (x >> at & 1) << i)
            .sum()
    });
    check("bfe.s32 d, x, y, z;", "b32", "b32", &all, |x, y, z| {
        let (at, len) = (y & 0xff, z & 0xff);
        let sign = if len == 0 {
            0
        } else {
            x >> (at + len - 1).min(31) & 1
        };
        (0..32)
            .map(|i| {
                if i < len && at + i < 32 {
                    (x >> (at + i) & 1) << i
                } else {
                    sign << i
                }
            })
            .sum()
    });
    check(
        "bfi.b32 d, x, 0x12345678, y, z;",
        "b32",
        "b32",
        &all,
        |x, y, z| {
            let (at, len) = (y & 0xff, z & 0xff);
            (0..32)
                .map(|i| {
                    if i >= at && i < at + len {
                        (x >> (i - at) & 1) << i
                    } else {
                        (0x1234_5678 >> i & 1) << i
                    }
                })
                .sum()
        },
    );
    let all = operands(&WORDS, 32, 11);
    for (half, first) in [("lo", 0), ("hi", 2)] {
        let name = format!("dp2a.{half}.u32.s32 d, x, y, z;");
        check(&name, "b32", "b32", &all, |x, y, z| {
            let bytes = (y as u32).to_le_bytes();
            let product = |i: usize| {
                let halfword = (x as u32 >> (16 * i)) & 0xffff;
                (halfword as i32).wrapping_mul(i32::from(bytes[first + i] as i8))
            };
            u64::from(
                (z as u32)
                    .wrapping_add(product(0) as u32)
                    .wrapping_add(product(1) as u32),
            )
        });
        let name = format!("dp2a.{half}.s32.u32 d, x, y, z;");
        check(&name, "b32", "b32", &all, |x, y, z| {
            let bytes = (y as u32).to_le_bytes();
            let product = |i: usize| {
                let halfword = (x as u32 >> (16 * i)) as i16;
                i32::from(halfword) * i32::from(bytes[first + i])
            };
            u64::from(
                (z as u32)
                    .wrapping_add(product(0) as u32)
                    .wrapping_add(product(1) as u32),
            )
        });
    }
    let all = operands(&WORDS, 32, 9);
    check("prmt.b32 d, x, y, z;", "b32", "b32", &all, |x, y, z| {
        let bytes = [x as u32, y as u32].map(u32::to_le_bytes).concat();
        let byte = |i: u32| {
            let selector = z >> (4 * i) & 0xf;
            let byte = bytes[selector as usize & 7];
            let byte = if selector & 8 == 0 {
                byte
            } else if byte & 0x80 == 0 {
                0
            } else {
                0xff
            };
            u64::from(byte) << (8 * i)
        };
        (0..4).map(byte).sum()
    });
}

#[test]
fn predicates() {
    let all = operands(&WORDS, 32, 10);
    let u = |instruction: &str, f: fn(u64, u64, u64) -> bool| {
        let instruction = format!("{instruction} selp.u32 d, 1, 0, p;");
        check(&instruction, "b32", "b32", &all, |x, y, z| {
            f(x, y, z).into()
        });
    };
    u("setp.lo.u32 p, x, y;", |x, y, _| x < y);
    u("setp.le.s32 p, x, y;", |x, y, _| signed(x) <= signed(y));
    u("setp.gt.s32 p|q, x, y;", |x, y, _| signed(x) > signed(y));
    u(
        "setp.eq.s32 q, x, y; setp.lt.and.u32 p, x, z, q;",
        |x, y, z| x == y && x < z,
    );
    u(
        "setp.eq.s32 q, x, y; setp.lt.or.u32 p, x, z, !q;",
        |x, y, z| x != y || x < z,
    );
    u(
        "setp.lt.u32 p, x, y; setp.lt.u32 q, y, z; or.pred p, p, q;",
        |x, y, z| x < y || y < z,
    );
    u(
        "setp.lt.u32 p, x, y; setp.lt.u32 q, y, z; and.pred p, p, q;",
        |x, y, z| x < y && y < z,
    );
    u(
        "setp.lt.u32 p, x, y; setp.lt.u32 q, y, z; xor.pred p, p, q;",
        |x, y, z| (x < y) != (y < z),
    );
    u("setp.lt.u32 q, x, y; not.pred p, q;", |x, y, _| x >= y);
    u("setp.lt.u32 q, x, y; mov.pred p, q;", |x, y, _| x < y);
}
