//! Matrices in fragments: `ldmatrix` and `mma` against three plain loops.

use crate::harness::{Random, launch, module, per_thread};
use half::{bf16, f16};

/// Where lane `lane` holds what of a fragment of 8x8 halves: row, and the first of two columns.
fn place(lane: usize) -> (usize, usize) {
    (lane / 4, lane % 4 * 2)
}

/// Eight rows of eight numbers each, at 16-byte steps of shared memory, from matrix to matrix.
const FILL: &str = "shl.b32 %r2, tid, 4;
    mov.u32 %r3, tile;
    add.u32 %r4, %r3, %r2;
    mul.lo.u32 %r5, tid, 8;
    mov.u32 %r6, 0;
    FILL:
    add.u32 %r7, %r5, %r6;
    cvt.u16.u32 %h1, %r7;
    shl.b32 %r8, %r6, 1;
    add.u32 %r8, %r8, %r4;
    st.shared.b16 [%r8], %h1;
    add.u32 %r6, %r6, 1;
    setp.lt.u32 p, %r6, 8;
    @p bra FILL;
    bar.sync 0;";

#[test]
fn ldmatrix_hands_out_rows() {
    for (count, registers) in [
        (1, "{%r10}"),
        (2, "{%r10, %r11}"),
        (4, "{%r10, %r11, %r12, %r13}"),
    ] {
        for transposed in [false, true] {
            let trans = if transposed { ".trans" } else { "" };
            for register in 0..count {
                let body = format!(
                    "{FILL}
                    ldmatrix.sync.aligned.m8n8.x{count}{trans}.shared.b16 {registers}, [%r4];
                    mov.u32 %r1, %r{};",
                    10 + register
                );
                let found = per_thread(".shared .align 16 .b8 tile[512];", &body, 32);
                for (lane, found) in found.into_iter().enumerate() {
                    let (row, column) = place(lane);
                    let element = |row: usize, column: usize| {
                        let (row, column) = if transposed {
                            (column, row)
                        } else {
                            (row, column)
                        };
                        (register * 8 + row) * 8 + column
                    };
                    let right = element(row, column) | element(row, column + 1) << 16;
                    assert_eq!(
                        found as usize, right,
                        "x{count}{trans} register {register} lane {lane}"
                    );
                }
            }
        }
    }
}

/// An element of a fragment.
trait Element: Copy {
    const NAME: &'static str;
    fn of(value: f64) -> Self;
    fn bits(self) -> u16;
    fn value(self) -> f64;
}

macro_rules! element {
    ($ty:ident, $name:literal) => {
        impl Element for $ty {
            const NAME: &'static str = $name;
            fn of(value: f64) -> Self {
                $ty::from_f64(value)
            }
            fn bits(self) -> u16 {
                self.to_bits()
            }
            fn value(self) -> f64 {
                self.to_f64()
            }
        }
    };
}

element!(f16, "f16");
element!(bf16, "bf16");

/// D = A·B + C on one warp, fragments loaded as the ISA's figures show them. A is 16 by k, B is k by 8, row by row.
fn multiply<E: Element>(k: usize, half_out: bool, a: &[E], b: &[E], c: &[f32]) -> Vec<f32> {
    let mut input = Vec::new();
    let mut output_bytes = 0;
    // A: 8x8 blocks in the order (rows 0-7, k 0-7), (rows 8-15, k 0-7), then k 8-15; B: by columns.
    for lane in 0..32 {
        let (group, pair) = place(lane);
        let mut words: Vec<[u16; 2]> = Vec::new();
        for block in 0..k / 4 {
            let (row, column) = (group + block % 2 * 8, pair + block / 2 * 8);
            words.push([a[row * k + column].bits(), a[row * k + column + 1].bits()]);
        }
        for block in 0..k / 8 {
            let row = pair + block * 8;
            words.push([b[row * 8 + group].bits(), b[(row + 1) * 8 + group].bits()]);
        }
        words.resize(6, [0; 2]);
        input.extend(words.iter().flatten().flat_map(|h| h.to_le_bytes()));
        for row in [group, group + 8] {
            for column in [pair, pair + 1] {
                let value = c[row * 8 + column];
                if half_out {
                    input.extend(f16::from_f32(value).to_le_bytes());
                } else {
                    input.extend(value.to_le_bytes());
                }
            }
        }
        input.resize(40 * (lane + 1), 0);
        output_bytes += 16;
    }
    let (a_registers, b_registers) = if k == 16 {
        ("{%r10, %r11, %r12, %r13}", "{%r14, %r15}")
    } else {
        ("{%r10, %r11}", "{%r12}")
    };
    let (d, c, ty) = if half_out {
        ("{%r30, %r31}", "{%r20, %r21}", "f16")
    } else {
        (
            "{%r30, %r31, %r32, %r33}",
            "{%r20, %r21, %r22, %r23}",
            "f32",
        )
    };
    let loads: String = (0..10)
        .map(|i| {
            format!(
                "ld.global.u32 %r{}, [%d1+{}];\n",
                if i < 6 { 10 + i } else { 14 + i },
                4 * i
            )
        })
        .collect();
    let element = E::NAME;
    let body = format!(
        "mul.wide.u32 %d1, tid, 40;
        add.s64 %d1, input, %d1;
        {loads}
        mov.u32 %r32, 0;
        mov.u32 %r33, 0;
        mma.sync.aligned.m16n8k{k}.row.col.{ty}.{element}.{element}.{ty} {d}, {a_registers}, {b_registers}, {c};
        mul.wide.u32 %d2, tid, 16;
        add.s64 %d2, output, %d2;
        st.global.v4.u32 [%d2], {{%r30, %r31, %r32, %r33}};"
    );
    let output = launch(
        &module("", &body),
        [1, 1, 1],
        [32, 1, 1],
        0,
        &input,
        output_bytes,
    );
    let mut result = vec![0.0; 128];
    for lane in 0..32 {
        let (group, pair) = place(lane);
        for i in 0..4 {
            let at = (group + i / 2 * 8) * 8 + pair + i % 2;
            let bytes = &output[lane * 16..];
            result[at] = if half_out {
                f16::from_le_bytes(bytes[2 * i..][..2].try_into().unwrap()).to_f32()
            } else {
                f32::from_le_bytes(bytes[4 * i..][..4].try_into().unwrap())
            };
        }
    }
    result
}

/// Sums in double precision, and those of the magnitudes.
fn plain<E: Element>(k: usize, a: &[E], b: &[E], c: &[f32]) -> Vec<(f64, f64)> {
    let element = |i: usize, j: usize| {
        let products = (0..k).map(|l| a[i * k + l].value() * b[l * 8 + j].value());
        products.fold(
            (f64::from(c[i * 8 + j]), f64::from(c[i * 8 + j]).abs()),
            |(s, m), p| (s + p, m + p.abs()),
        )
    };
    (0..128).map(|at| element(at / 8, at % 8)).collect()
}

/// The forms that there are of `E`: k, and whether sums are halves.
fn small_integers<E: Element>(forms: &[(usize, bool)]) {
    let mut random = Random(3);
    let mut small = |n: usize| -> Vec<E> {
        (0..n)
            .map(|_| E::of((random.next() % 9) as f64 - 4.0))
            .collect()
    };
    for &(k, half_out) in forms {
        let (a, b) = (small(16 * k), small(8 * k));
        let c: Vec<f32> = small(128).into_iter().map(|v| v.value() as f32).collect();
        let right: Vec<f32> = plain(k, &a, &b, &c)
            .into_iter()
            .map(|v| v.0 as f32)
            .collect();
        assert_eq!(
            multiply(k, half_out, &a, &b, &c),
            right,
            "{}, k = {k}, halves out: {half_out}",
            E::NAME
        );
    }
}

#[test]
fn products_of_small_integers_are_exact() {
    small_integers::<f16>(&[(16, false), (8, false), (16, true), (8, true)]);
    small_integers::<bf16>(&[(16, false), (8, false)]);
}

fn anything<E: Element>(exponents: u64, forms: &[(usize, bool, f64)]) {
    let mut random = Random(4);
    let mut any = |n: usize| -> Vec<E> {
        (0..n)
            .map(|_| {
                E::of(
                    (random.next() as f64 / u64::MAX as f64 - 0.5)
                        * f64::exp2((random.next() % exponents) as f64 - exponents as f64 / 2.0),
                )
            })
            .collect()
    };
    for &(k, half_out, step) in forms {
        let (a, b) = (any(16 * k), any(8 * k));
        let c: Vec<f32> = any(128).into_iter().map(|v| v.value() as f32).collect();
        let found = multiply(k, half_out, &a, &b, &c);
        for (at, (sum, magnitude)) in plain(k, &a, &b, &c).into_iter().enumerate() {
            let error = (f64::from(found[at]) - sum).abs();
            assert!(
                error <= magnitude * step * 2.0 + 2f64.powi(-24),
                "{}, k = {k}, element {at}: {} for {sum}",
                E::NAME,
                found[at]
            );
        }
    }
}

#[test]
fn products_of_anything_are_near() {
    let single = 2f64.powi(-23);
    anything::<f16>(
        12,
        &[
            (16, false, single),
            (8, false, single),
            (16, true, 2f64.powi(-10)),
        ],
    );
    // Far beyond half's range.
    anything::<bf16>(80, &[(16, false, single), (8, false, single)]);
}

#[test]
fn infinities_and_nan_stay_in_their_row() {
    let one = f16::from_f32(1.0);
    let (mut a, b, c) = (vec![one; 256], vec![one; 128], vec![0.0; 128]);
    a[3 * 16 + 5] = f16::INFINITY;
    a[9 * 16] = f16::NAN;
    let found = multiply(16, false, &a, &b, &c);
    for (at, found) in found.into_iter().enumerate() {
        match at / 8 {
            3 => assert_eq!(found, f32::INFINITY),
            9 => assert!(found.is_nan()),
            _ => assert_eq!(found, 16.0),
        }
    }
}

#[test]
fn bytes_have_the_signs_that_the_instruction_says() {
    for (k, a, b, expected) in [
        (16, "u8", "u8", 16 * 255 * 254),
        (32, "u8", "u8", 32 * 255 * 254),
        (32, "s8", "u8", -32 * 254),
        (32, "u8", "s8", 32 * 255 * -2),
        (32, "s8", "s8", 32 * 2),
    ] {
        let (of_a, of_b) = match k {
            16 => ("{%r10, %r10}", "{%r11}"),
            _ => ("{%r10, %r10, %r10, %r10}", "{%r11, %r11}"),
        };
        let body = format!(
            "mov.u32 %r10, 0xffffffff;
            mov.u32 %r11, 0xfefefefe;
            mov.u32 %r12, 7;
            mma.sync.aligned.m16n8k{k}.row.col.s32.{a}.{b}.s32
                {{%r1, %r2, %r3, %r4}}, {of_a}, {of_b}, {{%r12, %r12, %r12, %r12}};"
        );
        for found in per_thread("", &body, 32) {
            assert_eq!(found as i32, expected + 7, "k = {k}, {a} and {b}");
        }
    }
}
