//! The CUDA driver on a real GPU; on a machine without one, what is said of that.
#![cfg(feature = "cuda")]

use halfgnn_device::cuda::Cuda;
use halfgnn_device::{DeviceBuffer, Driver, DriverError, LaunchConfig};

/// What the kernel takes: the address of 32-bit integers, their count, and what to add.
#[repr(C)]
#[derive(Clone, Copy, bytemuck::Pod, bytemuck::Zeroable)]
struct Params {
    values: u64,
    count: u32,
    addend: u32,
}

/// `values[i] += addend` by way of dynamic shared memory, its first words and its last; with one by-value parameter.
const PTX: &str = r#"
.version 7.0
.target sm_80
.address_size 64
.extern .shared .align 16 .b8 smem[];
.visible .entry add(.param .align 8 .b8 params[16])
{
    .reg .pred %p;
    .reg .b32 %r<9>;
    .reg .b64 %rd<4>;
    ld.param.u64 %rd0, [params];
    ld.param.u32 %r0, [params+8];
    ld.param.u32 %r1, [params+12];
    mov.u32 %r2, %ctaid.x;
    mov.u32 %r3, %ntid.x;
    mov.u32 %r4, %tid.x;
    mad.lo.u32 %r5, %r2, %r3, %r4;
    setp.ge.u32 %p, %r5, %r0;
    @%p ret;
    cvta.to.global.u64 %rd0, %rd0;
    mad.wide.u32 %rd1, %r5, 4, %rd0;
    ld.global.u32 %r6, [%rd1];
    mov.u32 %r7, %dynamic_smem_size;
    mul.lo.u32 %r8, %r3, 4;
    sub.u32 %r7, %r7, %r8;
    mad.lo.u32 %r7, %r4, 4, %r7;
    mov.u32 %r8, smem;
    add.u32 %r7, %r7, %r8;
    st.shared.u32 [%r7], %r6;
    ld.shared.u32 %r6, [%r7];
    add.u32 %r6, %r6, %r1;
    st.global.u32 [%rd1], %r6;
    ret;
}
"#;

#[test]
fn a_card_computes_or_its_absence_is_told() {
    match Cuda::open(0) {
        Ok(cuda) => computes(&cuda),
        Err(DriverError::Unavailable(reason)) => {
            assert!(
                reason.contains("libcuda") && !reason.contains('\n'),
                "{reason}"
            );
            eprintln!("no GPU: {reason}");
        }
        Err(error) => panic!("{error}"),
    }
}

fn computes(cuda: &Cuda) {
    let info = cuda.info();
    assert!(
        info.multiprocessors > 0 && info.l2_bytes > 0 && info.memory_bytes > 1 << 30,
        "{info:?}"
    );
    assert!(info.max_shared_bytes >= 99 << 10, "{info:?}");

    // Odd lengths, and 48 KiB of shared memory exceeded, reached and left.
    let module = cuda.load(PTX).expect("it compiles");
    let add = cuda.function(&module, "add").expect("it is there");
    for (count, shared_bytes) in [
        (1, 1 << 10),
        (100_003, 99 << 10),
        (2_000_001, 48 << 10),
        (129, 64 << 10),
    ] {
        let values: Vec<u32> = (0..count).collect();
        let buffer = cuda.alloc(4 * values.len()).expect("it fits");
        assert_eq!(buffer.address() % 256, 0);
        cuda.upload(&buffer, 0, bytemuck::cast_slice(&values))
            .expect("it uploads");
        let params = Params {
            values: buffer.address(),
            count,
            addend: 7,
        };
        let config = LaunchConfig {
            grid: [count.div_ceil(256), 1, 1],
            block: [256, 1, 1],
            shared_bytes,
        };
        let start = cuda.record().expect("it records");
        // SAFETY: `Params` is what the kernel declares; the buffer has `count` integers and outlives the download.
        unsafe { cuda.launch(&add, config, bytemuck::bytes_of(&params)) }.expect("it launches");
        let end = cuda.record().expect("it records");
        assert!(cuda.elapsed_ms(&start, &end).expect("it has run") > 0.0);
        let mut sums = vec![0_u32; values.len()];
        cuda.download(&buffer, 0, bytemuck::cast_slice_mut(&mut sums))
            .expect("it downloads");
        assert!(
            sums.iter()
                .zip(&values)
                .all(|(&sum, &value)| sum == value + 7),
            "{count} values"
        );
    }
    assert!(cuda.resident_ctas(&add, 256, 0).expect("it fits") >= 4);

    // Nothing was taken from the GPU that does not go back.
    let (free, _) = cuda.memory_info().expect("the GPU tells");
    let returned = cuda.trim().expect("nothing has failed");
    assert!(returned > 0 && cuda.memory_info().expect("the GPU tells").0 >= free);

    assert!(matches!(
        cuda.function(&module, "subtract"),
        Err(DriverError::NoEntry(_))
    ));
    let broken = cuda
        .load(&PTX.replace("add.u32 %r6, %r6, %r1;", "frobnicate %r6;"))
        .expect_err("no such word");
    assert!(
        broken.to_string().contains("frobnicate") && !broken.to_string().contains('\n'),
        "{broken}"
    );
    let huge = cuda.alloc(1 << 50).expect_err("no GPU has it");
    assert!(
        matches!(huge, DriverError::OutOfMemory { asked, .. } if asked == 1 << 50),
        "{huge}"
    );
}
