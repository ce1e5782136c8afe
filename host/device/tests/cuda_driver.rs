//! The CUDA driver's side of the host, against a stand-in for libcuda that defers all work: what is allocated, copied,
//! launched and reported of failures, on machines without a GPU.
#![cfg(feature = "cuda")]

use std::path::PathBuf;
use std::process::Command;
use std::ptr;

use cust::sys::{self, CUcontext, CUresult};
use halfgnn_device::cuda::{Cuda, CudaBuffer, NO_POOL_VARIABLE};
use halfgnn_device::{DeviceBuffer, Driver, DriverError, LaunchConfig, MemoryUse};

const PTX: &str = ".version 8.0\n.target sm_80\n.address_size 64\n";

/// One test, since a process has one driver.
#[test]
fn the_cuda_driver_on_a_stand_in() {
    // SAFETY: the only test of this program; the harness's main thread waits for it and reads no variable meanwhile.
    unsafe { std::env::set_var("HALFGNN_LIBCUDA", stand_in()) };

    // Loads the driver.
    cards_are_described_or_refused();
    for before in [ptr::null_mut(), SOMEBODY_ELSES] {
        for part in [
            cards_are_described_or_refused,
            copies_arrive_although_the_source_is_reused,
            ranges_and_owners_are_checked,
            freed_memory_is_reused_and_given_back,
            without_a_pool_memory_is_taken_and_given_back_as_it_is_asked_for,
            a_full_card_is_told,
            memory_of_the_host_is_read_and_written_by_launches,
            modules_load_or_say_why,
            launches_run_or_say_why,
            what_is_queued_runs_although_its_owners_go,
            any_thread_may_call,
            launches_are_recorded_and_replayed,
            streams_wait_for_what_they_share,
            somebody_elses_stream_is_used,
        ] {
            leaves_the_context(before, part);
        }
    }
    a_context_stays_where_that_is_asked_for();
    // The last, since a fault stays.
    leaves_the_context(SOMEBODY_ELSES, a_fault_shows_when_it_is_waited_for);
}

/// A context that a framework has made current: of another GPU, for instance.
const SOMEBODY_ELSES: CUcontext = ptr::without_provenance_mut(0x77);

/// The thread's context.
fn current() -> CUcontext {
    let mut context = ptr::null_mut();
    // SAFETY: writes one handle; the driver is loaded.
    let status = unsafe { sys::cuCtxGetCurrent(&mut context) };
    assert_eq!(status, CUresult::CUDA_SUCCESS);
    context
}

/// Makes `context` the thread's.
fn set_current(context: CUcontext) {
    // SAFETY: the stand-in takes any number, and uses none.
    let status = unsafe { sys::cuCtxSetCurrent(context) };
    assert_eq!(status, CUresult::CUDA_SUCCESS);
}

/// Runs `part`, which drops all that it makes, in a thread whose context is `before`, and then has to be so again.
fn leaves_the_context(before: CUcontext, part: fn()) {
    set_current(before);
    part();
    assert_eq!(current(), before);
    set_current(ptr::null_mut());
}

fn a_context_stays_where_that_is_asked_for() {
    let cuda = open();
    assert!(current().is_null());
    cuda.make_current().expect("it is");
    let own = current();
    assert!(!own.is_null());
    drop(cuda.alloc(8).expect("it fits"));
    drop(cuda);
    assert_eq!(current(), own);
    set_current(ptr::null_mut());
}

/// Compiles the stand-in and returns its path.
fn stand_in() -> PathBuf {
    let library = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("libhalfgnn_fake_cuda.so.1");
    let output = Command::new("rustc")
        .args([
            "--edition=2024",
            "--crate-type=cdylib",
            "--crate-name=fake_libcuda",
            "-Cpanic=abort",
            "-o",
        ])
        .arg(&library)
        .arg(concat!(
            env!("CARGO_MANIFEST_DIR"),
            "/tests/data/fake_libcuda.rs"
        ))
        .output()
        .expect("rustc starts: it has just compiled this test");
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    library
}

fn open() -> Cuda {
    Cuda::open(0).expect("GPU 0 opens")
}

fn free(cuda: &Cuda) -> u64 {
    cuda.memory_info().expect("the GPU tells").0
}

fn threads(block: u32, shared_bytes: u32) -> LaunchConfig {
    LaunchConfig {
        grid: [1; 3],
        block: [block, 1, 1],
        shared_bytes,
    }
}

/// The parameters of the stand-in's `add_one`: the whole of `buffer`.
fn params(buffer: &impl DeviceBuffer) -> Vec<u8> {
    [buffer.address(), buffer.len() as u64]
        .iter()
        .flat_map(|word| word.to_ne_bytes())
        .collect()
}

fn cards_are_described_or_refused() {
    let cuda = open();
    let info = cuda.info();
    assert_eq!(info.name, "Fake H200");
    assert_eq!(
        (info.compute_capability, info.multiprocessors),
        ((9, 0), 132)
    );
    assert_eq!(
        (info.l2_bytes, info.memory_bytes, info.max_shared_bytes),
        (50 << 20, 64 << 20, 232_448)
    );
    assert_eq!(info.driver_version, Some((13, 1)));
    // 3.2 GHz, two transfers a cycle, 768 bytes wide.
    assert_eq!(info.memory_bytes_per_second, Some(4_916_736_000_000));

    let (library, cards) = Cuda::survey().expect("the driver answers");
    assert!(library.ends_with("libhalfgnn_fake_cuda.so.1"), "{library}");
    assert_eq!(cards.len(), 2);
    assert_eq!(&cards[0], info);
    assert_eq!(cards[1].compute_capability, (7, 5));
    assert_eq!(cards[1].memory_bytes_per_second, None);

    for (ordinal, parts) in [
        (1, ["Fake T4", "7.5", "8.0"]),
        (2, ["no GPU 2", "2 visible", "from 0"]),
    ] {
        let error = Cuda::open(ordinal).expect_err("refused");
        assert!(matches!(error, DriverError::Unavailable(_)), "{error:?}");
        assert!(
            parts.iter().all(|part| error.to_string().contains(part)),
            "{error}"
        );
    }
}

/// 5 MiB in pieces of odd lengths, through the pinned memory several times over and past it.
fn copies_arrive_although_the_source_is_reused() {
    let cuda = open();
    let expected: Vec<u8> = (0..5 << 20)
        .map(|i: u32| (i.wrapping_mul(2_654_435_761) >> 24) as u8)
        .collect();
    let buffer = cuda.alloc(expected.len()).expect("it fits");
    let mut source = Vec::new();
    let (mut offset, mut len) = (0, 1);
    while offset < expected.len() {
        let end = (offset + len).min(expected.len());
        source.clear();
        source.extend_from_slice(&expected[offset..end]);
        cuda.upload(&buffer, offset, &source).expect("it uploads");
        source.fill(0xee);
        (offset, len) = (end, len * 3 % 300_007 + 1);
    }
    let mut actual = vec![0; expected.len()];
    cuda.download(&buffer, 0, &mut actual)
        .expect("it downloads");
    assert!(actual == expected);

    cuda.fill(&buffer, 7).expect("it fills");
    let mut middle = [0; 3];
    cuda.download(&buffer, 1000, &mut middle)
        .expect("it downloads");
    assert_eq!(middle, [7; 3]);
}

fn ranges_and_owners_are_checked() {
    let cuda = open();
    let buffer = cuda.alloc(10).expect("it fits");
    for (offset, len) in [(0, 11), (10, 1), (usize::MAX, 1), (11, 0)] {
        let mut bytes = vec![0; len];
        assert!(matches!(
            cuda.upload(&buffer, offset, &bytes),
            Err(DriverError::OutOfRange { len: 10, .. })
        ));
        assert!(matches!(
            cuda.download(&buffer, offset, &mut bytes),
            Err(DriverError::OutOfRange { .. })
        ));
    }
    cuda.upload(&buffer, 10, &[]).expect("nothing, at the end");

    let empty = cuda.alloc(0).expect("legal");
    assert!(empty.is_empty() && empty.address() != 0);
    cuda.fill(&empty, 1).expect("nothing to fill");

    let error = open().fill(&buffer, 0).expect_err("of another driver");
    assert!(error.to_string().contains("another driver"), "{error}");
}

fn freed_memory_is_reused_and_given_back() {
    let cuda = open();
    let total = free(&cuda);
    let epoch = || -> Vec<_> {
        [100, 5_000, 3 << 20, 100, 17 << 20]
            .map(|len| cuda.alloc(len).expect("it fits"))
            .into_iter()
            .collect()
    };
    let first = epoch();
    let after_first = free(&cuda);
    assert!(after_first < total);
    let in_use = 200 + 5_000 + (20 << 20);
    assert_eq!(
        cuda.memory(),
        MemoryUse {
            current: in_use,
            peak: in_use
        }
    );
    drop(first);
    assert_eq!(
        cuda.memory(),
        MemoryUse {
            current: 0,
            peak: in_use
        }
    );

    drop(epoch());
    assert_eq!(free(&cuda), after_first, "the second epoch allocated");
    cuda.reset_peak();
    assert_eq!(cuda.memory(), MemoryUse::default());

    assert_eq!(cuda.trim().expect("nothing failed"), total - after_first);
    assert_eq!(free(&cuda), total);

    // What a driver kept goes with it, once its last buffer has gone.
    let last = cuda.alloc(1 << 20).expect("it fits");
    drop(epoch());
    drop(cuda);
    assert!(free(&open()) < total);
    drop(last);
    assert_eq!(free(&open()), total);
}

fn without_a_pool_memory_is_taken_and_given_back_as_it_is_asked_for() {
    // SAFETY: the one thread of this test's; see above.
    unsafe { std::env::set_var(NO_POOL_VARIABLE, "1") };
    let cuda = open();
    // SAFETY: as above.
    unsafe { std::env::remove_var(NO_POOL_VARIABLE) };
    let total = free(&cuda);
    let buffer = cuda.alloc(1_001).expect("it fits");
    assert_eq!(free(&cuda), total - 1_001);
    let empty = cuda.alloc(0).expect("legal");
    drop(buffer);
    drop(empty);
    assert_eq!(free(&cuda), total);
    assert_eq!(
        cuda.memory(),
        MemoryUse {
            current: 0,
            peak: 1_001
        }
    );
}

fn a_full_card_is_told() {
    let cuda = open();
    // What lies in the pool does not stand in the way.
    drop(cuda.alloc(40 << 20).expect("it fits"));
    let half = cuda
        .alloc(33 << 20)
        .expect("it fits once the pool is empty");
    for asked in [32_u64 << 20, 65 << 20, u64::MAX] {
        match cuda.alloc(asked as usize) {
            Err(DriverError::OutOfMemory {
                asked: told,
                free,
                total,
            }) => {
                assert_eq!(told, asked);
                assert_eq!(total, 64 << 20);
                assert!((30 << 20..32 << 20).contains(&free), "{free}");
            }
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(cuda.memory().current, half.len() as u64);
}

/// It is none of the GPU's, larger than that, and work on it is waited for before a copy and before it goes.
fn memory_of_the_host_is_read_and_written_by_launches() {
    let cuda = open();
    let before = (free(&cuda), cuda.memory());
    drop(cuda.alloc_host(80 << 20).expect("the host has it"));
    let module = cuda.load(PTX).expect("it compiles");
    let add_one = cuda.function(&module, "add_one").expect("it is there");
    let buffer = cuda.alloc_host(3_000).expect("the host has it");
    assert_eq!((free(&cuda), cuda.memory()), before);

    let read = |offset: usize, expected: &[u8]| {
        let mut bytes = vec![0; expected.len()];
        cuda.download(&buffer, offset, &mut bytes)
            .expect("nothing has failed");
        assert_eq!(bytes, expected);
    };
    let launch = || {
        // SAFETY: the two parameters of `add_one`; a buffer waits for the work on it before it goes.
        unsafe { cuda.launch(&add_one, threads(32, 0), &params(&buffer)) }.expect("it launches");
    };
    cuda.fill(&buffer, 4).expect("it fills");
    cuda.upload(&buffer, 2_990, &[8; 10]).expect("it fits");
    launch();
    read(2_985, &[5, 5, 5, 5, 5, 9, 9, 9, 9, 9, 9]);
    // Not before what is queued.
    launch();
    cuda.upload(&buffer, 0, &[1; 2]).expect("it fits");
    launch();
    read(0, &[2, 2, 7]);
    launch();
    drop(buffer);
    cuda.synchronize().expect("it was there until the end");

    let error = cuda.alloc_host(97 << 20).expect_err("too much");
    assert!(
        matches!(error, DriverError::OutOfHostMemory { asked } if asked == 97 << 20),
        "{error}"
    );
    let buffer = cuda.alloc_host(10).expect("the host has it");
    for outside in [
        cuda.upload(&buffer, 8, &[0; 3]),
        cuda.download(&buffer, usize::MAX, &mut [0]),
    ] {
        let error = outside.expect_err("past the end");
        assert!(matches!(error, DriverError::OutOfRange { .. }), "{error}");
    }
    let error = open().upload(&buffer, 0, &[1]).expect_err("another GPU's");
    assert!(error.to_string().contains("another driver"), "{error}");
}

fn modules_load_or_say_why() {
    let cuda = open();
    let module = cuda.load(PTX).expect("it compiles");
    assert_eq!(
        cuda.function(&module, "add_one")
            .expect("it is there")
            .name(),
        "add_one"
    );
    for name in ["subtract_one", "", "a\0b"] {
        let error = cuda.function(&module, name).expect_err("it is not there");
        assert!(
            matches!(&error, DriverError::NoEntry(missing) if missing == name),
            "{error:?}"
        );
    }
    for (ptx, parts) in [
        (
            format!("{PTX}nonsense"),
            [
                "CUDA_ERROR_INVALID_PTX",
                "line 3; error : nonsense; ptxas fatal : aborted",
            ],
        ),
        (PTX.replace("sm_80", "sm_100"), ["sm_100", "sm_90"]),
        (format!("{PTX}\0"), ["zero byte", "at 44"]),
    ] {
        let error = cuda.load(&ptx).expect_err("it does not load");
        assert!(matches!(error, DriverError::Module(_)), "{error:?}");
        let text = error.to_string();
        assert!(
            parts.iter().all(|part| text.contains(part)) && !text.contains('\n'),
            "{text}"
        );
    }
}

fn launches_run_or_say_why() {
    let cuda = open();
    let module = cuda.load(PTX).expect("it compiles");
    let add_one = cuda.function(&module, "add_one").expect("it is there");
    drop(module);
    let buffer = cuda.alloc(1000).expect("it fits");
    cuda.fill(&buffer, 40).expect("it fills");
    let start = cuda.record().expect("it records");
    for shared_bytes in [0, 200_000, 100_000] {
        // SAFETY: the two parameters of `add_one`, and a buffer that outlives the download below.
        unsafe { cuda.launch(&add_one, threads(32, shared_bytes), &params(&buffer)) }
            .expect("it launches");
    }
    let end = cuda.record().expect("it records");
    assert_eq!(cuda.elapsed_ms(&start, &end).expect("it has run"), 1.5);
    let mut bytes = vec![0; 1000];
    cuda.download(&buffer, 0, &mut bytes).expect("it downloads");
    assert!(bytes.iter().all(|&byte| byte == 43));

    for (config, figure) in [
        (threads(257, 0), "256"),
        (threads(0, 0), "empty"),
        (threads(32, 300_000), "232448"),
    ] {
        // SAFETY: as above; and it does not run.
        let error =
            unsafe { cuda.launch(&add_one, config, &params(&buffer)) }.expect_err("refused");
        assert!(
            matches!(&error, DriverError::Launch { kernel, .. } if kernel == "add_one"),
            "{error:?}"
        );
        assert!(error.to_string().contains(figure), "{error}");
    }
    // SAFETY: as above; and it does not run.
    let error =
        unsafe { open().launch(&add_one, threads(32, 0), &params(&buffer)) }.expect_err("refused");
    assert!(error.to_string().contains("another driver"), "{error}");

    assert_eq!(
        cuda.resident_ctas(&add_one, 256, 100_000)
            .expect("they fit"),
        2
    );
    assert_eq!(cuda.resident_ctas(&add_one, 256, 0).expect("they fit"), 8);
}

/// The module goes while its kernel is queued, and everything while an upload is.
fn what_is_queued_runs_although_its_owners_go() {
    let cuda = open();
    let buffer = cuda.alloc(10).expect("it fits");
    cuda.fill(&buffer, 1).expect("it fills");
    let module = cuda.load(PTX).expect("it compiles");
    let add_one = cuda.function(&module, "add_one").expect("it is there");
    // SAFETY: the two parameters of `add_one`, and a buffer that outlives the download below.
    unsafe { cuda.launch(&add_one, threads(32, 0), &params(&buffer)) }.expect("it launches");
    drop((module, add_one));
    let mut bytes = [0; 10];
    cuda.download(&buffer, 0, &mut bytes)
        .expect("nothing has failed");
    assert_eq!(bytes, [2; 10]);

    cuda.upload(&buffer, 0, &bytes).expect("it uploads");
    drop((buffer, cuda));
    open().synchronize().expect("nothing has failed");
}

fn any_thread_may_call() {
    let cuda = open();
    let module = cuda.load(PTX).expect("it compiles");
    let add_one = cuda.function(&module, "add_one").expect("it is there");
    std::thread::scope(|scope| {
        for thread in 0..4_u8 {
            let (cuda, add_one) = (&cuda, add_one.clone());
            scope.spawn(move || {
                let buffer = cuda.alloc(50_000).expect("it fits");
                for round in 0..20 {
                    cuda.upload(&buffer, 0, &[thread * 20 + round; 50_000])
                        .expect("it uploads");
                    // SAFETY: the two parameters of `add_one`, and a buffer that outlives the download below.
                    unsafe { cuda.launch(&add_one, threads(32, 0), &params(&buffer)) }
                        .expect("it launches");
                    let mut bytes = vec![0; 50_000];
                    cuda.download(&buffer, 0, &mut bytes).expect("it downloads");
                    assert!(bytes.iter().all(|&byte| byte == thread * 20 + round + 1));
                }
            });
        }
    });
}

/// What a thread launches while it records is made by replays alone, and what other threads launch meanwhile at once.
fn launches_are_recorded_and_replayed() {
    let cuda = open();
    let module = cuda.load(PTX).expect("it loads");
    let add_one = cuda.function(&module, "add_one").expect("it is there");
    let [recorded, direct] = [(); 2].map(|()| cuda.alloc(3).expect("it fits"));
    cuda.fill(&recorded, 0).expect("it fills");
    cuda.fill(&direct, 0).expect("it fills");
    let launch = |buffer: &_| {
        // SAFETY: these are the entry's parameters, of a buffer that outlives the test's work.
        unsafe { cuda.launch(&add_one, threads(32, 0), &params(buffer)) }
    };
    let bytes = |buffer: &_| {
        let mut bytes = [0; 3];
        cuda.download(buffer, 0, &mut bytes).expect("it downloads");
        bytes
    };
    let graph = cuda.capture::<DriverError>(|| {
        launch(&recorded)?;
        std::thread::scope(|scope| scope.spawn(|| launch(&direct)).join()).expect("no panic")?;
        launch(&recorded)
    });
    let graph = graph.expect("launches can be recorded");
    assert_eq!((bytes(&recorded), bytes(&direct)), ([0; 3], [1; 3]));
    // The module lives as long as what was recorded of it.
    drop((add_one.clone(), module));
    for made in 1..=3 {
        // SAFETY: the buffers live.
        unsafe { cuda.replay(&graph) }.expect("it is launched");
        assert_eq!(bytes(&recorded), [2 * made; 3]);
    }
    assert_eq!(bytes(&direct), [1; 3]);

    let refused = cuda.capture::<DriverError>(|| cuda.alloc(8).map(drop));
    assert!(
        matches!(
            refused,
            Err(DriverError::Recording {
                call: "an allocation"
            })
        ),
        "{refused:?}"
    );
    cuda.alloc(8).expect("nothing is recorded any more");
    let other = open();
    // SAFETY: nothing is launched.
    let error = unsafe { other.replay(&graph) }
        .expect_err("refused")
        .to_string();
    assert!(error.contains("another driver"), "{error}");
}

/// A block that is freed while one stream still works on it goes to another behind that work; events order the rest.
fn streams_wait_for_what_they_share() {
    let first = open();
    let module = first.load(PTX).expect("it compiles");
    let add_one = first.function(&module, "add_one").expect("it is there");
    let launch = |cuda: &Cuda, buffer: &CudaBuffer| {
        // SAFETY: the two parameters of `add_one`; the pool sees to what outlives what.
        unsafe { cuda.launch(&add_one, threads(32, 0), &params(buffer)) }.expect("it launches");
    };
    let read = |cuda: &Cuda, buffer: &CudaBuffer| {
        let mut bytes = [9; 3000];
        cuda.download(buffer, 0, &mut bytes)
            .expect("nothing has failed");
        assert!(bytes.iter().all(|byte| *byte == bytes[0]));
        bytes[0]
    };
    let early = first.alloc(3000).expect("it fits");
    launch(&first, &early);
    let address = early.address();
    drop(early);

    // Freed when there was one stream: the second begins behind it.
    let second = first.new_stream().expect("another stream");
    let buffer = second.alloc(3000).expect("it fits");
    assert_eq!(buffer.address(), address);
    second.fill(&buffer, 5).expect("it fills");
    first.synchronize().expect("nothing has failed");
    assert_eq!(read(&second, &buffer), 5);

    // Freed when there are two.
    launch(&first, &buffer);
    drop(buffer);
    let buffer = second.alloc(3000).expect("it fits");
    assert_eq!(buffer.address(), address);
    second.fill(&buffer, 7).expect("it fills");
    second.synchronize().expect("nothing has failed");
    first.synchronize().expect("nothing has failed");
    assert_eq!(read(&second, &buffer), 7);

    // An operand that one writes and the other reads.
    launch(&first, &buffer);
    second
        .wait(&first.record().expect("a point"))
        .expect("it waits");
    assert_eq!(read(&second, &buffer), 8);
    // An upload is there for every stream when it returns.
    first.upload(&buffer, 0, &[3; 3000]).expect("it uploads");
    assert_eq!(read(&second, &buffer), 3);
    let other = open().record().expect("a point");
    let error = second.wait(&other).expect_err("another driver's event");
    assert!(error.to_string().contains("another driver"), "{error}");
}

/// What is launched there runs when its owner waits for it.
fn somebody_elses_stream_is_used() {
    let theirs = open();
    let ours = open();
    // SAFETY: a stream of the same context, which outlives `borrowed`.
    let borrowed = unsafe { ours.on_foreign_stream(theirs.raw_stream()) }.expect("a handle");
    assert_eq!(borrowed.raw_stream(), theirs.raw_stream());
    let buffer = borrowed.alloc(10).expect("it fits");
    borrowed.fill(&buffer, 4).expect("it fills");
    theirs.synchronize().expect("nothing has failed");
    let mut bytes = [0; 10];
    ours.download(&buffer, 0, &mut bytes)
        .expect("nothing has failed");
    assert_eq!(bytes, [4; 10]);
    drop(borrowed);
    theirs.synchronize().expect("the stream is its owner's");
}

fn a_fault_shows_when_it_is_waited_for() {
    let cuda = open();
    let module = cuda.load(PTX).expect("it compiles");
    let fault = cuda.function(&module, "fault").expect("it is there");
    let buffer = cuda.alloc(100).expect("it fits");
    // SAFETY: the parameters of the other kernel, which this one takes and does not use.
    unsafe { cuda.launch(&fault, threads(32, 0), &params(&buffer)) }.expect("it is queued");
    let error = cuda.synchronize().expect_err("it has failed");
    assert!(
        matches!(
            error,
            DriverError::Device {
                call: "cuStreamSynchronize",
                ..
            }
        ),
        "{error:?}"
    );
    for part in [
        "CUDA_ERROR_ILLEGAL_ADDRESS",
        "the meaning",
        "compute-sanitizer",
    ] {
        assert!(error.to_string().contains(part), "{error}");
    }
    assert!(cuda.download(&buffer, 0, &mut [0]).is_err(), "it stays");
    // Nothing panics on the way out.
    drop((buffer, fault, module, cuda));
}
