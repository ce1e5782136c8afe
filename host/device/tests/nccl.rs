//! NCCL's side of the host, against stand-ins for libnccl and libcuda: what is opened and refused, what is asked of it
//! with which ranks, addresses and counts, and how a rank that waits in vain comes out of it.
#![cfg(feature = "cuda")]

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use halfgnn_device::cuda::nccl::{LIBRARY_VARIABLE, Nccl, NcclLink};
use halfgnn_device::cuda::{Cuda, CudaBuffer};
use halfgnn_device::{DeviceBuffer, Driver, DriverError, LinkPlace, Part, Watch};

/// One test, since a process has one driver and one NCCL.
#[test]
fn nccl_on_a_stand_in() {
    let cuda = stand_in("fake_libcuda", "libhalfgnn_cuda_of_nccl.so.1", &[]);
    let nccl = stand_in("fake_libnccl", "libhalfgnn_fake_nccl.so.2", &[]);
    let log = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("fake_nccl.log");
    // SAFETY: the only test of this program; the harness's main thread waits for it and reads no variable meanwhile.
    unsafe {
        std::env::set_var("HALFGNN_LIBCUDA", cuda);
        std::env::set_var(LIBRARY_VARIABLE, nccl);
        std::env::set_var("FAKE_NCCL_LOG", &log);
    }
    other_libraries_are_refused();
    let cuda = Cuda::open(0).expect("GPU 0 opens");
    let log = Log(log);
    // An earlier run's.
    log.take();
    calls_are_those_of_the_documentation(&cuda, &log);
    a_graph_holds_its_link(&cuda, &log);
    a_recorded_transfer_goes_on_beside(&cuda, &log);
    who_waits_in_vain_comes_out(&cuda, &log);
}

/// Compiles a stand-in and returns its path.
fn stand_in(source: &str, library: &str, flags: &[&str]) -> PathBuf {
    let library = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(library);
    let source = format!("{}/tests/data/{source}.rs", env!("CARGO_MANIFEST_DIR"));
    let output = Command::new("rustc")
        .args([
            "--edition=2024",
            "--crate-type=cdylib",
            "--crate-name=stand_in",
            "-Cpanic=abort",
        ])
        .args(flags)
        .arg("-o")
        .arg(&library)
        .arg(source)
        .output()
        .expect("rustc starts: it has just compiled this test");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
    library
}

/// What the stand-in was asked since the last look.
struct Log(PathBuf);

impl Log {
    fn take(&self) -> Vec<String> {
        let text = std::fs::read_to_string(&self.0).unwrap_or_default();
        let _ = std::fs::remove_file(&self.0);
        text.lines().map(str::to_owned).collect()
    }
}

fn other_libraries_are_refused() {
    let refused = |file: &Path| Nccl::open(file).expect_err("refused").to_string();
    let old = stand_in("fake_libnccl", "libhalfgnn_old_nccl.so.2", &["--cfg=old"]);
    let told = refused(&old);
    assert!(
        told.contains("is NCCL 2.18.3, and 2.19 is the oldest that is taken"),
        "{told}"
    );
    let lacks = stand_in(
        "fake_libnccl",
        "libhalfgnn_less_nccl.so.2",
        &["--cfg=lacks_send"],
    );
    let told = refused(&lacks);
    assert!(
        told.contains("no NCCL from 2.19 on") && told.contains("ncclSend"),
        "{told}"
    );
    let none = refused(Path::new("/nowhere/libnccl.so.2"));
    assert!(none.starts_with("no NCCL: /nowhere/libnccl.so.2"), "{none}");
    for told in [refused(&old), refused(&lacks), none] {
        assert!(
            told.contains("pip install nvidia-nccl-cu13") && !told.contains('\n'),
            "{told}"
        );
    }
}

fn link(cuda: &Cuda, watch: Watch) -> NcclLink {
    let id = cuda.link_id().expect("an id");
    assert_eq!(id.len(), 128);
    let place = LinkPlace {
        id: &id,
        rank: 1,
        ranks: 3,
    };
    cuda.link(place, watch).expect("it is linked")
}

fn part(rank: usize, buffer: &CudaBuffer, offset: usize, len: usize) -> Part<'_, CudaBuffer> {
    Part {
        rank,
        buffer,
        offset,
        len,
    }
}

fn calls_are_those_of_the_documentation(cuda: &Cuda, log: &Log) {
    let interconnect = cuda.interconnect().expect("NCCL and a GPU");
    assert_eq!(interconnect.library, "NCCL 2.28.9");
    assert_eq!(interconnect.device, [1; 16]);
    let linked = link(cuda, Watch::new(|_| None));
    assert_eq!(log.take(), ["init 1 of 3"]);
    let [from, to] = [(); 2].map(|()| cuda.alloc(256).expect("it fits"));
    let sends = [
        part(0, &from, 0, 32),
        part(2, &from, 32, 0),
        part(2, &from, 32, 64),
    ];
    let receives = [part(2, &to, 128, 48)];
    cuda.transfer(&linked, &sends, &receives)
        .expect("it is queued");
    let (source, target, stream) = (from.address(), to.address(), cuda.raw_stream());
    let expected = [
        "start".to_owned(),
        format!("send 32 of 1 to 0 from {source:#x} in {stream:p}"),
        format!("send 64 of 1 to 2 from {:#x} in {stream:p}", source + 32),
        format!(
            "receive 48 of 1 from 2 to {:#x} in {stream:p}",
            target + 128
        ),
        "end".to_owned(),
    ];
    assert_eq!(log.take(), expected);
    cuda.sum_words(&linked, &to, 5).expect("it is queued");
    let expected = format!("reduce 5 of 3 by 0 from {target:#x} to {target:#x} in {stream:p}");
    assert_eq!(log.take(), [expected]);
    for (sends, receives) in [
        (&[part(0, &from, 200, 64)][..], &[][..]),
        (&[], &[part(0, &to, 0, 257)]),
    ] {
        let refused = cuda.transfer(&linked, sends, receives);
        assert!(
            matches!(refused, Err(DriverError::OutOfRange { .. })),
            "{refused:?}"
        );
    }
    assert!(matches!(
        cuda.sum_words(&linked, &to, 65),
        Err(DriverError::OutOfRange { .. })
    ));
    assert!(log.take().is_empty());
    drop(linked);
    assert_eq!(log.take(), ["destroy"]);
    let short = LinkPlace {
        id: &[0; 7],
        rank: 0,
        ranks: 2,
    };
    assert!(cuda.link(short, Watch::new(|_| None)).is_err());
    let foreign = LinkPlace {
        id: &[0; 128],
        rank: 0,
        ranks: 2,
    };
    let told = cuda
        .link(foreign, Watch::new(|_| None))
        .expect_err("no such id");
    assert!(
        told.to_string()
            .starts_with("ncclCommInitRank: invalid argument"),
        "{told}"
    );
}

fn a_graph_holds_its_link(cuda: &Cuda, log: &Log) {
    let linked = link(cuda, Watch::new(|_| None));
    let buffer = cuda.alloc(64).expect("it fits");
    log.take();
    let graph = cuda.capture::<DriverError>(|| {
        cuda.transfer(
            &linked,
            &[part(0, &buffer, 0, 8)],
            &[part(2, &buffer, 8, 8)],
        )?;
        cuda.sum_words(&linked, &buffer, 2)
    });
    let graph = graph.expect("transfers can be recorded");
    let calls = log.take();
    let own = format!("in {:p}", cuda.raw_stream());
    assert_eq!(calls.len(), 5);
    for call in [&calls[1], &calls[2], &calls[4]] {
        assert!(call.contains(" in 0x") && !call.ends_with(&own), "{call}");
    }
    drop(linked);
    assert!(log.take().is_empty(), "the graph has work of it");
    drop(graph);
    assert_eq!(log.take(), ["destroy"]);
}

fn a_recorded_transfer_goes_on_beside(cuda: &Cuda, log: &Log) {
    let linked = link(cuda, Watch::new(|_| None));
    let buffer = cuda.alloc(64).expect("it fits");
    let (sends, receives) = ([part(0, &buffer, 0, 8)], [part(2, &buffer, 8, 8)]);
    log.take();
    let graph = cuda.capture::<DriverError>(|| {
        for _ in 0..2 {
            cuda.transfer_begin(&linked, &sends, &receives)?;
            cuda.transfer_end(&linked, &receives)?;
        }
        cuda.sum_words(&linked, &buffer, 2)
    });
    drop(graph.expect("both halves can be recorded"));
    let calls = log.take();
    let aside = calls[0].split(' ').nth(1).expect("a stream");
    let own = calls[1].split(' ').next_back().expect("a stream");
    assert_ne!(aside, own);
    let (from, to) = (buffer.address(), buffer.address() + 8);
    let transfer = [
        format!("wait in {aside} for {own}"),
        "start".to_owned(),
        format!("send 8 of 1 to 0 from {from:#x} in {aside}"),
        format!("receive 8 of 1 from 2 to {to:#x} in {aside}"),
        "end".to_owned(),
        format!("wait in {own} for {aside}"),
    ];
    let mut expected = vec![format!("stream {aside} of priority {}", i32::MIN)];
    expected.extend(transfer.iter().chain(&transfer).cloned());
    expected.push(format!(
        "reduce 2 of 3 by 0 from {from:#x} to {from:#x} in {own}"
    ));
    assert_eq!(calls, expected);
    // Where nothing is recorded, in the order of the calls.
    cuda.transfer_begin(&linked, &sends, &receives)
        .expect("it is queued");
    cuda.transfer_end(&linked, &receives).expect("it is there");
    let calls = log.take();
    let raw = format!("in {:p}", cuda.raw_stream());
    assert_eq!(calls.len(), 4, "{calls:?}");
    assert!(
        calls[1].ends_with(&raw) && calls[2].ends_with(&raw),
        "{calls:?}"
    );
    let out = cuda.transfer_begin(&linked, &[part(0, &buffer, 60, 8)], &[]);
    assert!(
        matches!(out, Err(DriverError::OutOfRange { .. })),
        "{out:?}"
    );
    drop(linked);
    assert_eq!(log.take(), ["destroy"]);
}

fn who_waits_in_vain_comes_out(cuda: &Cuda, log: &Log) {
    let buffer = cuda.alloc(64).expect("it fits");
    let told = |result: Result<(), DriverError>| result.expect_err("it has ended").to_string();
    // Inside NCCL, until the watch gives up.
    let late =
        Watch::new(|waited| (waited > Duration::from_millis(150)).then(|| "nobody answers".into()));
    let linked = link(cuda, late);
    cuda.synchronize().expect("nothing is wrong yet");
    let start = Instant::now();
    let sent = cuda.transfer(&linked, &[part(0, &buffer, 0, 13)], &[]);
    assert_eq!(told(sent), "nobody answers");
    assert!(start.elapsed() < Duration::from_secs(10));
    // From then on every wait says so, and nothing is asked of NCCL.
    log.take();
    assert_eq!(told(cuda.synchronize()), "nobody answers");
    assert_eq!(
        told(cuda.download(&buffer, 0, &mut [0; 4])),
        "nobody answers"
    );
    assert_eq!(told(cuda.sum_words(&linked, &buffer, 1)), "nobody answers");
    drop(linked);
    assert!(
        log.take().is_empty(),
        "it was aborted, and is not destroyed again"
    );
    cuda.synchronize().expect("the link has gone");
    // Behind a kernel that waits for another rank: a copy to the host's memory waits by itself.
    let late =
        Watch::new(|waited| (waited > Duration::from_millis(150)).then(|| "nobody answers".into()));
    let linked = link(cuda, late);
    log.take();
    let read = cuda.download(&buffer, 0, &mut [0; 13]);
    assert_eq!(told(read), "nobody answers");
    drop(linked);
    assert!(log.take().contains(&"abort".to_owned()));
    // What NCCL finds by itself, where there are no better words; and where there are.
    for (words, expected) in [
        (None, "NCCL: remote process exited"),
        (Some("rank 2 ended"), "rank 2 ended"),
    ] {
        let linked = link(cuda, Watch::new(move |_| words.map(str::to_owned)));
        if words.is_none() {
            cuda.transfer(&linked, &[part(0, &buffer, 0, 14)], &[])
                .expect("it is queued");
        }
        let told = loop {
            match cuda.synchronize() {
                Ok(()) if words.is_some() => {
                    // The watch is asked while a caller waits.
                    let sent = cuda.transfer(&linked, &[part(0, &buffer, 0, 13)], &[]);
                    break told(sent);
                }
                Ok(()) => std::thread::sleep(Duration::from_millis(5)),
                Err(error) => break error.to_string(),
            }
        };
        assert!(told.starts_with(expected), "{told}");
        drop(linked);
        assert!(log.take().contains(&"abort".to_owned()));
    }
    // Those that are asked to end.
    let linked = link(cuda, Watch::new(|_| None));
    cuda.cut(&linked, "it is enough");
    assert_eq!(told(cuda.synchronize()), "it is enough");
    drop(linked);
    cuda.synchronize().expect("the link has gone");
}
