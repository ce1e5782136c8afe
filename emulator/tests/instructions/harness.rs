//! Kernels around one instruction, operands for it, and exact rounding to compare with.

use ptx_emulator::{Device, DeviceOptions, LaunchOptions, Module};

/// Runs a whole PTX text: entry `kernel` with the addresses of `input` and of `output_bytes` zeroed bytes.
pub fn launch(
    text: &str,
    grid: [u32; 3],
    block: [u32; 3],
    shared: u32,
    input: &[u8],
    output_bytes: usize,
) -> Vec<u8> {
    let module = Module::parse(text).unwrap_or_else(|e| panic!("{e}\n{text}"));
    let mut first = None;
    for seed in [0, 1, 7] {
        let device = Device::new(DeviceOptions::default());
        let from = device.alloc(input.len().max(16) as u64).unwrap();
        device.write(from, input).unwrap();
        let to = device.alloc(output_bytes as u64).unwrap();
        device.fill(to, 0, output_bytes as u64).unwrap();
        let params: Vec<u8> = [from, to].iter().flat_map(|p| p.to_le_bytes()).collect();
        let options = LaunchOptions {
            seed,
            ..LaunchOptions::default()
        };
        device
            .launch(&module, "kernel", grid, block, shared, &params, &options)
            .unwrap_or_else(|e| panic!("{e}\n{text}"));
        let mut output = vec![0; output_bytes];
        device.read(to, &mut output).unwrap();
        assert_eq!(
            *first.get_or_insert_with(|| output.clone()),
            output,
            "seed {seed} gives another result"
        );
    }
    first.unwrap()
}

/// A text with one entry `kernel`, whose body finds `input` and `output` (addresses), `tid` and `lane`.
pub fn module(outside: &str, body: &str) -> String {
    format!(
        ".version 8.0
.target sm_80
.address_size 64
{outside}
.visible .entry kernel(.param .u64 kernel_param_0, .param .u64 kernel_param_1)
{{
    .reg .pred p, q, r;
    .reg .b16 %h<32>;
    .reg .b32 tid, lane, block, %r<64>;
    .reg .f32 %f<32>;
    .reg .b64 input, output, %d<32>;
    ld.param.u64 input, [kernel_param_0];
    ld.param.u64 output, [kernel_param_1];
    mov.u32 tid, %tid.x;
    mov.u32 lane, %laneid;
    mov.u32 block, %ctaid.x;
{body}
    ret;
}}
"
    )
}

/// `count` words of 32 bits that thread `t` of one block leaves at index `t`: the body puts them in `%r1`.
pub fn per_thread(outside: &str, body: &str, threads: u32) -> Vec<u32> {
    let body = format!(
        "{body}
        mul.wide.u32 %d30, tid, 4;
        add.s64 %d30, output, %d30;
        st.global.u32 [%d30], %r1;"
    );
    let bytes = launch(
        &module(outside, &body),
        [1, 1, 1],
        [threads, 1, 1],
        0,
        &[],
        4 * threads as usize,
    );
    words(&bytes)
}

pub fn words(bytes: &[u8]) -> Vec<u32> {
    bytes
        .chunks_exact(4)
        .map(|b| u32::from_le_bytes(b.try_into().unwrap()))
        .collect()
}

/// Executes `instruction` once for each triple of operands. It may use `d`, of type `.{to}`, and `x`, `y`, `z`, of type
/// `.{from}`, and the predicates `p` and `q`.
pub fn evaluate(instruction: &str, to: &str, from: &str, operands: &[[u64; 3]]) -> Vec<u64> {
    let body = format!(
        "    .reg .{to} d;
    .reg .{from} x, y, z;
    mov.u32 %r60, %ntid.x;
    mad.lo.u32 %r61, block, %r60, tid;
    setp.ge.u32 p, %r61, {};
    @p bra DONE;
    mul.wide.u32 %d28, %r61, 24;
    add.s64 %d28, input, %d28;
    ld.global.{from} x, [%d28];
    ld.global.{from} y, [%d28+8];
    ld.global.{from} z, [%d28+16];
    {instruction}
    mul.wide.u32 %d29, %r61, 8;
    add.s64 %d29, output, %d29;
    st.global.{to} [%d29], d;
    DONE:",
        operands.len()
    );
    let input: Vec<u8> = operands
        .iter()
        .flatten()
        .flat_map(|v| v.to_le_bytes())
        .collect();
    let grid = [(operands.len() as u32).div_ceil(256), 1, 1];
    let output = launch(
        &module("", &body),
        grid,
        [256, 1, 1],
        0,
        &input,
        8 * operands.len(),
    );
    output
        .chunks_exact(8)
        .map(|b| u64::from_le_bytes(b.try_into().unwrap()))
        .collect()
}

/// Compares an instruction with `expected` on all operands.
#[track_caller]
pub fn check(
    instruction: &str,
    to: &str,
    from: &str,
    operands: &[[u64; 3]],
    expected: impl Fn(u64, u64, u64) -> u64,
) {
    for (o, found) in operands
        .iter()
        .zip(evaluate(instruction, to, from, operands))
    {
        let right = expected(o[0], o[1], o[2]);
        assert_eq!(
            found, right,
            "{instruction} of {o:#x?} gives {found:#x} and not {right:#x}"
        );
    }
}

/// SplitMix64.
pub struct Random(pub u64);

impl Random {
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }
}

/// All triples of the first `special` values (at most 13 of them), and as many random ones, masked to `bits`.
pub fn operands(special: &[u64], bits: u32, seed: u64) -> Vec<[u64; 3]> {
    let mask = u64::MAX >> (64 - bits);
    let mut list = Vec::new();
    for &x in special {
        for &y in special {
            for &z in special.iter().take(13) {
                list.push([x & mask, y & mask, z & mask]);
            }
        }
    }
    let mut random = Random(seed);
    for _ in 0..2000 {
        list.push([(); 3].map(|()| random.next() & mask));
    }
    list
}

/// A direction of rounding.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Round {
    Nearest,
    Zero,
    Down,
    Up,
}

impl Round {
    pub const ALL: [(Round, &'static str); 4] = [
        (Round::Nearest, "rn"),
        (Round::Zero, "rz"),
        (Round::Down, "rm"),
        (Round::Up, "rp"),
    ];
}

/// `exact · 2^scale` as a float of `precision` bits whose least step is `2^least`, rounded once; as a double, which
/// holds it.
pub fn round(exact: i128, scale: i32, precision: u32, least: i32, how: Round) -> f64 {
    let magnitude = exact.unsigned_abs();
    let length = 128 - magnitude.leading_zeros();
    let drop = (length.saturating_sub(precision) as i32)
        .max(least - scale)
        .clamp(0, 127) as u32;
    let (kept, rest) = (magnitude >> drop, magnitude & ((1 << drop) - 1));
    let half = if drop == 0 { 1 } else { 1 << (drop - 1) };
    let away = match how {
        Round::Nearest => rest > half || rest == half && drop > 0 && kept & 1 == 1,
        Round::Zero => false,
        Round::Down => rest > 0 && exact < 0,
        Round::Up => rest > 0 && exact > 0,
    };
    let value = (kept + u128::from(away)) as f64 * f64::exp2(f64::from(scale + drop as i32));
    if exact < 0 { -value } else { value }
}
