//! How fast kernels run: lane-instructions a second of one core, with all checks and with none.
//!
//! `cargo run --release -p ptx-emulator --example throughput [repetitions]` runs two kernels of the test corpus: a
//! sparse matrix product in half precision (loads, packed half arithmetic, shared memory, divergence) and a dense one
//! on tensor cores (asynchronous copies, `ldmatrix`, `mma`).

use ptx_emulator::{Checks, Device, DeviceOptions, LaunchOptions, Module};
use std::time::Instant;

const SPMM: &str = include_str!("../tests/corpus/spmm_v_half8_discretized_half.ptx");
const GEMM: &str = include_str!("../tests/corpus/gemm_nt_f16_to_f32_128x16.ptx");

/// One launch, with its parameters in place.
struct Case {
    name: &'static str,
    module: Module,
    device: Device,
    grid: [u32; 3],
    threads: u32,
    shared: u32,
    params: Vec<u8>,
}

/// SplitMix64, for operands.
fn random(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut z = *state;
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// Halves between 0.5 and 1.
fn halves(count: usize) -> Vec<u8> {
    let mut state = 1;
    (0..count)
        .flat_map(|_| (0x3800 | (random(&mut state) & 0x3ff) as u16).to_le_bytes())
        .collect()
}

fn words(values: impl IntoIterator<Item = u32>) -> Vec<u8> {
    values.into_iter().flat_map(u32::to_le_bytes).collect()
}

fn upload(device: &Device, name: &str, bytes: &[u8]) -> u64 {
    let address = device.alloc(bytes.len() as u64).expect("the operands fit");
    device
        .name_allocation(address, name)
        .expect("it was allocated");
    device.write(address, bytes).expect("it is long enough");
    address
}

/// Pointers, then words: how both kernels take their parameters.
fn params(pointers: &[u64], words: &[u32]) -> Vec<u8> {
    pointers
        .iter()
        .flat_map(|p| p.to_le_bytes())
        .chain(words.iter().flat_map(|w| w.to_le_bytes()))
        .collect()
}

/// 64 features a vertex; degrees from 1 to 63.
fn spmm(vertices: u32) -> Case {
    let device = Device::new(DeviceOptions::default());
    let mut state = 2;
    let (mut rows, mut columns, mut offsets) = (Vec::new(), Vec::new(), vec![0u64]);
    for row in 0..vertices {
        for _ in 0..1 + random(&mut state) % 63 {
            rows.push(row);
            columns.push((random(&mut state) % u64::from(vertices)) as u32);
        }
        offsets.push(rows.len() as u64);
    }
    let edges = rows.len() as u32;
    let ctas = edges.div_ceil(512);
    let feature_bytes = vertices as usize * 128;
    let offsets: Vec<u8> = offsets.iter().flat_map(|o| o.to_le_bytes()).collect();
    let pointers = [
        upload(&device, "rows", &words(rows)),
        upload(&device, "columns", &words(columns)),
        upload(&device, "offsets", &offsets),
        0, // no edge weights
        0, // no column scale
        0, // no row scale
        upload(&device, "x", &halves(feature_bytes / 2)),
        upload(&device, "y", &vec![0xff; feature_bytes]),
        upload(&device, "staging", &vec![0xff; ctas as usize * 2 * 64 * 4]),
        0, // no empty rows
    ];
    // Edges, empty rows, the strides of x and y, loads a row, features, lanes of a sub-warp (log2), CTAs, factor, zero.
    let params = params(
        &pointers,
        &[edges, 0, 8, 8, 8, 64, 3, ctas, 1f32.to_bits(), 0],
    );
    let module = Module::parse(SPMM).expect("the corpus parses");
    let shared = 4 * 512 * 4 + 128 * 4 + 2 * 128 * 8 * 4;
    Case {
        name: "spmm_v_half8_discretized_half",
        module,
        device,
        grid: [ctas, 1, 1],
        threads: 128,
        shared,
        params,
    }
}

/// A of `m` by 256 times B of 16 by 256, transposed.
fn gemm(m: u32) -> Case {
    let device = Device::new(DeviceOptions::default());
    let (n, k) = (16, 256);
    let pointers = [
        upload(&device, "a", &halves((m * k) as usize)),
        upload(&device, "b", &halves((n * k) as usize)),
        upload(&device, "c", &vec![0xff; (m * n * 4) as usize]),
        0, // no bias
        0, // no row scale
        0, // no workspace
    ];
    // m, n, k, the strides of A, B, C and the workspace, tiles across, steps of a split, splits, flags, factor.
    let words = [
        m,
        n,
        k,
        k / 8,
        k / 8,
        n / 4,
        0,
        1,
        k / 32,
        1,
        0,
        1f32.to_bits(),
    ];
    let params = params(&pointers, &words);
    let module = Module::parse(GEMM).expect("the corpus parses");
    // Four steps of A and B under way, 64 bytes a row.
    let (grid, shared) = ([m.div_ceil(128), 1, 1], 4 * (128 + 16) * 64);
    Case {
        name: "gemm_nt_f16_to_f32_128x16",
        module,
        device,
        grid,
        threads: 128,
        shared,
        params,
    }
}

/// Processor time of this thread in seconds where Linux reports it, so that a busy machine does not count; else the
/// clock's.
fn seconds(start: Instant) -> f64 {
    let own = std::fs::read_to_string("/proc/thread-self/schedstat").ok();
    let nanoseconds = own.and_then(|text| text.split(' ').next()?.parse::<u64>().ok());
    nanoseconds.map_or_else(|| start.elapsed().as_secs_f64(), |n| n as f64 * 1e-9)
}

impl Case {
    /// Launches the kernel `repetitions` times: lane-instructions, and the seconds of the fastest launch.
    fn measure(&self, checks: Checks, repetitions: u32) -> (u64, f64) {
        let options = LaunchOptions {
            checks,
            ..LaunchOptions::default()
        };
        let start = Instant::now();
        let mut best = (0, f64::INFINITY);
        for _ in 0..repetitions {
            let begun = seconds(start);
            let block = [self.threads, 1, 1];
            let report = self.device.launch(
                &self.module,
                self.name,
                self.grid,
                block,
                self.shared,
                &self.params,
                &options,
            );
            let seconds = seconds(start) - begun;
            let report = report.unwrap_or_else(|e| panic!("{e}"));
            if seconds < best.1 {
                best = (report.counts.lane_instructions(), seconds);
            }
        }
        best
    }
}

fn main() {
    let repetitions = std::env::args()
        .nth(1)
        .and_then(|n| n.parse().ok())
        .unwrap_or(5);
    // One thread, so that the figure is a core's.
    let pool = rayon::ThreadPoolBuilder::new()
        .num_threads(1)
        .build()
        .expect("a thread can be started");
    pool.install(|| {
        for case in [spmm(4000), gemm(8192)] {
            for (label, checks) in [("all checks", Checks::ALL), ("no checks", Checks::NONE)] {
                let (lanes, seconds) = case.measure(checks, repetitions);
                let rate = lanes as f64 / seconds / 1e6;
                println!("{:32} {label:10} {lanes:>12} lane-instructions {seconds:>8.3} s {rate:>8.1} M/s", case.name);
            }
        }
    });
}
