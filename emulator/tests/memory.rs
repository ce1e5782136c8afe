//! What a launch takes of the machine's memory: the buffers, and the state by which races are found.
#![cfg(target_os = "linux")]

use ptx_emulator::{Checks, Device, DeviceOptions, LaunchOptions, Module};

/// Adds one to the first `words` words of a buffer.
const KERNEL: &str = ".version 8.0 .target sm_80 .address_size 64
    .visible .entry increment(.param .u64 data, .param .u64 words) {
        .reg .pred %p; .reg .b32 %r<8>; .reg .b64 %rd<8>;
        ld.param.b64 %rd1, [data];
        ld.param.b64 %rd2, [words];
        mov.u32 %r1, %ctaid.x;
        mov.u32 %r2, %tid.x;
        mad.lo.u32 %r3, %r1, 256, %r2;
        cvt.u64.u32 %rd3, %r3;
        setp.ge.u64 %p, %rd3, %rd2;
        @%p bra DONE;
        shl.b64 %rd4, %rd3, 2;
        add.s64 %rd5, %rd1, %rd4;
        ld.global.b32 %r4, [%rd5];
        add.s32 %r4, %r4, 1;
        st.global.b32 [%rd5], %r4;
        DONE: ret;
    }";

/// Bytes of this process that are in memory.
fn resident() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").expect("Linux tells it");
    let line = status.lines().find(|line| line.starts_with("VmRSS:"));
    let figure = line.and_then(|line| line.split_whitespace().nth(1));
    figure
        .and_then(|kib| kib.parse::<usize>().ok())
        .expect("a figure")
        * 1024
}

/// How often the buffer's own size a launch that touches `part` of it takes.
fn taken(part: f64, checks: Checks) -> f64 {
    const BYTES: u64 = 32 << 20;
    let before = resident();
    let module = Module::parse(KERNEL).expect("PTX");
    let device = Device::new(DeviceOptions::default());
    let data = device.alloc(BYTES).expect("room");
    device.fill(data, 0, BYTES).expect("room");
    let words = (part * (BYTES / 4) as f64) as u64;
    let params: Vec<u8> = [data, words].iter().flat_map(|p| p.to_le_bytes()).collect();
    let options = LaunchOptions {
        checks,
        ..LaunchOptions::default()
    };
    let grid = [words.div_ceil(256) as u32, 1, 1];
    device
        .launch(
            &module,
            "increment",
            grid,
            [256, 1, 1],
            0,
            &params,
            &options,
        )
        .expect("no fault");
    (resident() - before) as f64 / BYTES as f64
}

#[test]
fn a_launch_takes_little_more_than_its_buffers_and_their_shadow() {
    // The words, and a bit for each byte.
    let buffers = taken(0.02, Checks::NONE);
    assert!(buffers < 1.3, "{buffers} times the buffer");
    // The access history is four times what is touched, and nothing for what is not.
    let little = taken(0.02, Checks::ALL);
    assert!(little < 1.4, "{little} times the buffer");
    let all = taken(1.0, Checks::ALL);
    assert!((4.0..5.4).contains(&all), "{all} times the buffer");
    println!("{buffers:.2}, {little:.2} with 2 % touched, {all:.2} with all touched");
}
