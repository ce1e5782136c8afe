//! A stand-in for libnccl.so.2, compiled by `tests/nccl.rs`: it moves nothing, and writes a line on each call to the
//! file that FAKE_NCCL_LOG names. With `--cfg old` it is of 2.18, with `--cfg lacks_send` it has no `ncclSend`. A group
//! that sends 13 bytes ends when it is aborted, as one of a rank without an answer; one that sends 14 leaves an error
//! for a later query.
#![allow(
    non_snake_case,
    unexpected_cfgs,
    clippy::missing_safety_doc,
    clippy::undocumented_unsafe_blocks
)]

use std::ffi::{c_char, c_int, c_void};
use std::io::Write;
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};
use std::time::Duration;

static ABORTED: AtomicBool = AtomicBool::new(false);
static HANGS: AtomicBool = AtomicBool::new(false);
static ERROR: AtomicI32 = AtomicI32::new(0);
const COMM: usize = 0x77;

fn log(line: std::fmt::Arguments<'_>) -> c_int {
    let Some(file) = std::env::var_os("FAKE_NCCL_LOG") else {
        return 0;
    };
    let file = std::fs::OpenOptions::new().append(true).create(true).open(file);
    writeln!(file.unwrap(), "{line}").unwrap();
    0
}

#[repr(C)]
pub struct Id([u8; 128]);

#[unsafe(no_mangle)]
pub unsafe extern "C" fn ncclGetVersion(version: *mut c_int) -> c_int {
    unsafe { version.write(if cfg!(old) { 21_803 } else { 22_809 }) };
    0
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn ncclGetUniqueId(id: *mut Id) -> c_int {
    unsafe { id.write(Id(std::array::from_fn(|at| at as u8))) };
    0
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn ncclCommInitRank(
    comm: *mut usize,
    ranks: c_int,
    id: Id,
    rank: c_int,
) -> c_int {
    if id.0[127] != 127 {
        return 4;
    }
    ABORTED.store(false, Ordering::SeqCst);
    unsafe { comm.write(COMM) };
    log(format_args!("init {rank} of {ranks}"))
}

#[unsafe(no_mangle)]
pub extern "C" fn ncclCommDestroy(comm: usize) -> c_int {
    assert_eq!(comm, COMM);
    log(format_args!("destroy"))
}

#[unsafe(no_mangle)]
pub extern "C" fn ncclCommAbort(comm: usize) -> c_int {
    assert_eq!(comm, COMM);
    ABORTED.store(true, Ordering::SeqCst);
    log(format_args!("abort"))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn ncclCommGetAsyncError(_comm: usize, status: *mut c_int) -> c_int {
    unsafe { status.write(ERROR.swap(0, Ordering::SeqCst)) };
    0
}

#[unsafe(no_mangle)]
pub extern "C" fn ncclGetErrorString(status: c_int) -> *const c_char {
    match status {
        4 => c"invalid argument".as_ptr(),
        6 => c"remote process exited".as_ptr(),
        _ => std::ptr::null(),
    }
}

#[unsafe(no_mangle)]
pub extern "C" fn ncclGroupStart() -> c_int {
    log(format_args!("start"))
}

#[unsafe(no_mangle)]
pub extern "C" fn ncclGroupEnd() -> c_int {
    if HANGS.swap(false, Ordering::SeqCst) {
        while !ABORTED.load(Ordering::SeqCst) {
            std::thread::sleep(Duration::from_millis(5));
        }
        return 3;
    }
    log(format_args!("end"))
}

#[cfg(not(lacks_send))]
#[unsafe(no_mangle)]
pub extern "C" fn ncclSend(
    from: usize,
    count: usize,
    ty: c_int,
    peer: c_int,
    comm: usize,
    stream: *mut c_void,
) -> c_int {
    assert_eq!(comm, COMM);
    match count {
        13 => HANGS.store(true, Ordering::SeqCst),
        14 => ERROR.store(6, Ordering::SeqCst),
        _ => {}
    }
    log(format_args!("send {count} of {ty} to {peer} from {from:#x} in {stream:p}"))
}

#[unsafe(no_mangle)]
pub extern "C" fn ncclRecv(
    to: usize,
    count: usize,
    ty: c_int,
    peer: c_int,
    comm: usize,
    stream: *mut c_void,
) -> c_int {
    assert_eq!(comm, COMM);
    log(format_args!("receive {count} of {ty} from {peer} to {to:#x} in {stream:p}"))
}

#[unsafe(no_mangle)]
pub extern "C" fn ncclAllReduce(
    from: usize,
    to: usize,
    count: usize,
    ty: c_int,
    op: c_int,
    comm: usize,
    stream: *mut c_void,
) -> c_int {
    assert_eq!(comm, COMM);
    log(format_args!("reduce {count} of {ty} by {op} from {from:#x} to {to:#x} in {stream:p}"))
}
