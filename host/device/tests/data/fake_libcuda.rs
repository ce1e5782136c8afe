//! A stand-in for libcuda.so.1, compiled by `tests/cuda_driver.rs`: two GPUs, device memory in the process, and streams
//! that do nothing until a caller waits for them, so that a premature reuse of memory is found out.
//!
//! GPU 0 is an sm_90 with 64 MiB, GPU 1 an sm_75. Of modules it knows the kernels `add_one`, which adds one to each of
//! `len` bytes, and `fault`, which fails as an illegal address does: late, and for good. PTX with the word `nonsense`
//! does not compile. As in the real driver, most calls fail where another context than the GPU's is the thread's, or
//! none, and a launch whose dynamic shared memory is above 48 KiB fails unless it was asked for before.
#![allow(
    non_snake_case,
    clippy::missing_safety_doc,
    clippy::undocumented_unsafe_blocks
)]

use std::alloc::Layout;
use std::cell::Cell;
use std::collections::{HashMap, VecDeque};
use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::io::Write as _;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

const CARD_BYTES: usize = 64 << 20;
/// What the host lets be locked.
const HOST_BYTES: usize = 96 << 20;
const SHARED_BYTES: c_int = 232_448;
const HANDLE: usize = 0x1000;

type Work = Box<dyn FnOnce() -> c_uint + Send>;
/// A launch, to be made any number of times.
type Launch = fn(AddOne) -> c_uint;

/// What a stream has to do.
enum Item {
    Work(Work),
    /// Wait for the first items that were queued in a stream, of a number.
    After(usize, usize),
}

#[derive(Default)]
struct Queue {
    items: VecDeque<Item>,
    /// Items that are done.
    done: usize,
}

#[derive(Default)]
struct State {
    /// By stream.
    queues: Option<HashMap<usize, Queue>>,
    /// Where a stream was when an event was recorded in it.
    events: Option<HashMap<usize, (usize, usize)>>,
    fault: c_uint,
    allocated: Option<HashMap<u64, usize>>,
    dynamic_shared: c_int,
    /// Where the linker writes what it says, and how much of it.
    link_log: (usize, usize),
    /// The launches into each stream that is being captured, and of each graph, by handle.
    captures: Option<HashMap<usize, Vec<(Launch, AddOne)>>>,
    graphs: Option<HashMap<usize, Vec<(Launch, AddOne)>>>,
}

static STATE: Mutex<State> = Mutex::new(State {
    queues: None,
    events: None,
    fault: 0,
    allocated: None,
    dynamic_shared: 49_152,
    link_log: (0, 0),
    captures: None,
    graphs: None,
});
thread_local!(static CURRENT: Cell<usize> = const { Cell::new(0) });

/// Runs `call` with the state where the thread has a context and nothing has failed.
fn with(call: impl FnOnce(&mut State) -> c_uint) -> c_uint {
    if CURRENT.get() != HANDLE {
        return 201;
    }
    let mut state = STATE.lock().unwrap();
    if state.fault != 0 {
        state.fault
    } else {
        call(&mut state)
    }
}

impl State {
    fn push(&mut self, stream: usize, item: Item) {
        let queue = self.queues.get_or_insert_default().entry(stream);
        queue.or_default().items.push_back(item);
    }

    /// Items that were ever queued in `stream`.
    fn queued(&mut self, stream: usize) -> usize {
        let queue = self.queues.get_or_insert_default().entry(stream);
        let queue = queue.or_default();
        queue.done + queue.items.len()
    }

    /// Does what `stream` has to do up to its item `end`, and first what that waits for.
    fn run(&mut self, stream: usize, end: usize) {
        loop {
            let queue = self.queues.get_or_insert_default().entry(stream);
            let queue = queue.or_default();
            if queue.done >= end {
                return;
            }
            let Some(item) = queue.items.pop_front() else {
                return;
            };
            queue.done += 1;
            match item {
                Item::Work(work) => self.fault = self.fault.max(work()),
                Item::After(stream, end) => self.run(stream, end),
            }
        }
    }

    /// Writes a line to the file that FAKE_NCCL_LOG names, while a stream is captured.
    fn log(&self, line: std::fmt::Arguments<'_>) {
        let captures = self.captures.as_ref().is_some_and(|all| !all.is_empty());
        if let (true, Some(file)) = (captures, std::env::var_os("FAKE_NCCL_LOG")) {
            let file = std::fs::OpenOptions::new()
                .append(true)
                .create(true)
                .open(file);
            writeln!(file.unwrap(), "{line}").unwrap();
        }
    }

    fn is_idle(&self) -> bool {
        self.queues
            .iter()
            .flat_map(HashMap::values)
            .all(|queue| queue.items.is_empty())
    }
}

fn enqueue(stream: usize, work: impl FnOnce() -> c_uint + Send + 'static) -> c_uint {
    with(|state| {
        state.push(stream, Item::Work(Box::new(work)));
        0
    })
}

/// Does what every stream has to do.
fn drain(state: &mut State) -> c_uint {
    let streams: Vec<usize> = state
        .queues
        .iter()
        .flat_map(HashMap::keys)
        .copied()
        .collect();
    for stream in streams {
        state.run(stream, usize::MAX);
    }
    state.fault
}

/// A handle that nothing else has.
fn new_handle() -> usize {
    static NEXT: AtomicUsize = AtomicUsize::new(HANDLE + 1);
    NEXT.fetch_add(1, Ordering::Relaxed)
}

fn layout(bytes: usize) -> Layout {
    Layout::from_size_align(bytes, 256).unwrap()
}

#[unsafe(no_mangle)]
pub extern "C" fn cuInit(_flags: c_uint) -> c_uint {
    0
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuGetErrorName(error: c_uint, name: *mut *const c_char) -> c_uint {
    let known = match error {
        1 => c"CUDA_ERROR_INVALID_VALUE",
        201 => c"CUDA_ERROR_INVALID_CONTEXT",
        218 => c"CUDA_ERROR_INVALID_PTX",
        700 => c"CUDA_ERROR_ILLEGAL_ADDRESS",
        _ => return 1,
    };
    unsafe { name.write(known.as_ptr()) };
    0
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuGetErrorString(_error: c_uint, text: *mut *const c_char) -> c_uint {
    unsafe { text.write(c"the meaning".as_ptr()) };
    0
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuDriverGetVersion(version: *mut c_int) -> c_uint {
    unsafe { version.write(13_010) };
    0
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuDeviceGetCount(count: *mut c_int) -> c_uint {
    unsafe { count.write(2) };
    0
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuDeviceGet(device: *mut c_int, ordinal: c_int) -> c_uint {
    unsafe { device.write(ordinal) };
    0
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuDeviceGetUuid(uuid: *mut [u8; 16], device: c_int) -> c_uint {
    unsafe { uuid.write([device as u8 + 1; 16]) };
    0
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuDeviceGetName(name: *mut c_char, _len: c_int, device: c_int) -> c_uint {
    let text = if device == 0 {
        c"Fake H200"
    } else {
        c"Fake T4"
    };
    unsafe { name.copy_from_nonoverlapping(text.as_ptr(), text.to_bytes_with_nul().len()) };
    0
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuDeviceGetAttribute(
    value: *mut c_int,
    attribute: c_uint,
    device: c_int,
) -> c_uint {
    let known = match attribute {
        16 => 132,
        36 => [3_201_000, 0][device as usize],
        37 => 6_144,
        38 => 50 << 20,
        75 => [9, 7][device as usize],
        76 => [0, 5][device as usize],
        97 => SHARED_BYTES,
        _ => return 1,
    };
    unsafe { value.write(known) };
    0
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuDeviceTotalMem_v2(bytes: *mut usize, _device: c_int) -> c_uint {
    unsafe { bytes.write(CARD_BYTES) };
    0
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuDevicePrimaryCtxRetain(context: *mut usize, _device: c_int) -> c_uint {
    unsafe { context.write(HANDLE) };
    0
}

#[unsafe(no_mangle)]
pub extern "C" fn cuDevicePrimaryCtxRelease_v2(_device: c_int) -> c_uint {
    0
}

#[unsafe(no_mangle)]
pub extern "C" fn cuCtxSetCurrent(context: usize) -> c_uint {
    CURRENT.set(context);
    0
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuCtxGetCurrent(context: *mut usize) -> c_uint {
    unsafe { context.write(CURRENT.get()) };
    0
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuStreamCreateWithPriority(
    stream: *mut usize,
    _flags: c_uint,
    priority: c_int,
) -> c_uint {
    with(|state| {
        let handle = new_handle();
        state.log(format_args!("stream {handle:#x} of priority {priority}"));
        unsafe { stream.write(handle) };
        0
    })
}

/// Ends a capture under way, as the real driver does.
#[unsafe(no_mangle)]
pub extern "C" fn cuStreamDestroy_v2(stream: usize) -> c_uint {
    STATE
        .lock()
        .unwrap()
        .captures
        .get_or_insert_default()
        .remove(&stream);
    0
}

#[unsafe(no_mangle)]
pub extern "C" fn cuStreamBeginCapture_v2(stream: usize, _mode: c_uint) -> c_uint {
    with(|state| {
        state
            .captures
            .get_or_insert_default()
            .insert(stream, Vec::new());
        0
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuStreamEndCapture(stream: usize, graph: *mut usize) -> c_uint {
    with(|state| {
        let Some(launches) = state.captures.get_or_insert_default().remove(&stream) else {
            return 1;
        };
        let handle = new_handle();
        state
            .graphs
            .get_or_insert_default()
            .insert(handle, launches);
        unsafe { graph.write(handle) };
        0
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuGraphInstantiateWithFlags(
    executable: *mut usize,
    graph: usize,
    _flags: u64,
) -> c_uint {
    with(|state| {
        let graphs = state.graphs.get_or_insert_default();
        let Some(launches) = graphs.get(&graph).cloned() else {
            return 1;
        };
        let handle = new_handle();
        graphs.insert(handle, launches);
        unsafe { executable.write(handle) };
        0
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn cuGraphDestroy(graph: usize) -> c_uint {
    with(|state| {
        u32::from(
            state
                .graphs
                .get_or_insert_default()
                .remove(&graph)
                .is_none(),
        )
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn cuGraphExecDestroy(executable: usize) -> c_uint {
    cuGraphDestroy(executable)
}

#[unsafe(no_mangle)]
pub extern "C" fn cuGraphLaunch(executable: usize, stream: usize) -> c_uint {
    with(|state| {
        let Some(launches) = state
            .graphs
            .get_or_insert_default()
            .get(&executable)
            .cloned()
        else {
            return 1;
        };
        for (launch, params) in launches {
            state.push(stream, Item::Work(Box::new(move || launch(params))));
        }
        0
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn cuStreamSynchronize(stream: usize) -> c_uint {
    with(|state| {
        state.run(stream, usize::MAX);
        state.fault
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn cuStreamWaitEvent(stream: usize, event: usize, _flags: c_uint) -> c_uint {
    with(|state| {
        let Some(&(of, end)) = state.events.get_or_insert_default().get(&event) else {
            return 1;
        };
        state.push(stream, Item::After(of, end));
        state.log(format_args!("wait in {stream:#x} for {of:#x}"));
        0
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemGetInfo_v2(free: *mut usize, total: *mut usize) -> c_uint {
    with(|state| {
        let used: usize = state.allocated.iter().flat_map(HashMap::values).sum();
        unsafe {
            free.write(CARD_BYTES - used);
            total.write(CARD_BYTES);
        }
        0
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemAlloc_v2(address: *mut u64, bytes: usize) -> c_uint {
    with(|state| {
        let allocated = state.allocated.get_or_insert_default();
        if bytes == 0 {
            return 1;
        }
        if allocated.values().sum::<usize>() + bytes > CARD_BYTES {
            return 2;
        }
        let new = unsafe { std::alloc::alloc(layout(bytes)) } as u64;
        allocated.insert(new, bytes);
        unsafe { address.write(new) };
        0
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemFree_v2(address: u64) -> c_uint {
    with(|state| {
        drain(state);
        let Some(bytes) = state.allocated.get_or_insert_default().remove(&address) else {
            return 1;
        };
        unsafe { std::alloc::dealloc(address as *mut u8, layout(bytes)) };
        0
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemAllocHost_v2(address: *mut *mut u8, bytes: usize) -> c_uint {
    with(|_| {
        unsafe { address.write(std::alloc::alloc_zeroed(layout(bytes))) };
        0
    })
}

/// Gives no more than a machine might lock.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemHostAlloc(
    address: *mut *mut u8,
    bytes: usize,
    flags: c_uint,
) -> c_uint {
    const PORTABLE_AND_MAPPED: c_uint = 3;
    if bytes > HOST_BYTES {
        return 2;
    }
    assert_eq!(flags, PORTABLE_AND_MAPPED);
    unsafe { cuMemAllocHost_v2(address, bytes) }
}

/// The GPU has memory of the host's at its own address.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemHostGetDevicePointer_v2(
    device: *mut u64,
    host: *mut u8,
    _flags: c_uint,
) -> c_uint {
    unsafe { device.write(host as u64) };
    0
}

/// Keeps the memory, since its size is not known.
#[unsafe(no_mangle)]
pub extern "C" fn cuMemFreeHost(_address: usize) -> c_uint {
    with(idle_or_fault)
}

/// What is taken from under queued work makes it fail.
fn idle_or_fault(state: &mut State) -> c_uint {
    if !state.is_idle() {
        state.fault = 700;
    }
    state.fault
}

fn copy(target: usize, source: usize, bytes: usize, stream: usize) -> c_uint {
    enqueue(stream, move || {
        unsafe { std::ptr::copy_nonoverlapping(source as *const u8, target as *mut u8, bytes) };
        0
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn cuMemcpyHtoDAsync_v2(
    target: usize,
    source: usize,
    bytes: usize,
    stream: usize,
) -> c_uint {
    copy(target, source, bytes, stream)
}

#[unsafe(no_mangle)]
pub extern "C" fn cuMemcpyDtoHAsync_v2(
    target: usize,
    source: usize,
    bytes: usize,
    stream: usize,
) -> c_uint {
    // Into memory that is not locked a copy returns when it is done: one of 13 bytes stands behind a kernel that waits
    // for another rank, until NCCL is aborted.
    if let (13, Some(log)) = (bytes, std::env::var_os("FAKE_NCCL_LOG")) {
        let is_aborted = || std::fs::read_to_string(&log).is_ok_and(|log| log.contains("abort"));
        for _ in 0..500 {
            if is_aborted() {
                break;
            }
            std::thread::sleep(std::time::Duration::from_millis(10));
        }
    }
    copy(target, source, bytes, stream)
}

#[unsafe(no_mangle)]
pub extern "C" fn cuMemsetD8Async(address: usize, byte: u8, bytes: usize, stream: usize) -> c_uint {
    enqueue(stream, move || {
        unsafe { std::ptr::write_bytes(address as *mut u8, byte, bytes) };
        0
    })
}

/// Expects the error log and its size as the options.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuLinkCreate_v2(
    count: c_uint,
    options: *const c_uint,
    values: *const *mut c_void,
    linker: *mut usize,
) -> c_uint {
    with(|state| unsafe {
        let (options, values) = (
            std::slice::from_raw_parts(options, count as usize),
            std::slice::from_raw_parts(values, count as usize),
        );
        if options != [5, 6] {
            return 1;
        }
        state.link_log = (values[0] as usize, values[1] as usize);
        linker.write(HANDLE);
        0
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuLinkAddData_v2(
    _linker: usize,
    _kind: c_uint,
    data: *const c_char,
    _size: usize,
    _name: *const c_char,
    _count: c_uint,
    _options: *const c_uint,
    _values: *const *mut c_void,
) -> c_uint {
    with(|state| unsafe {
        let text = CStr::from_ptr(data).to_bytes();
        if text.windows(8).any(|word| word == b"nonsense") {
            let log =
                b"ptxas application ptx input, line 3; error : nonsense\nptxas fatal : aborted\n\0";
            let (place, length) = state.link_log;
            let log = &log[..log.len().min(length)];
            (place as *mut u8).copy_from_nonoverlapping(log.as_ptr(), log.len());
            return 218;
        }
        0
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuLinkComplete(
    _linker: usize,
    code: *mut *const c_char,
    size: *mut usize,
) -> c_uint {
    const CODE: &[u8; 4] = b"code";
    with(|_| unsafe {
        code.write(CODE.as_ptr().cast());
        size.write(CODE.len());
        0
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn cuLinkDestroy(_linker: usize) -> c_uint {
    with(|_| 0)
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuModuleLoadData(module: *mut usize, _image: *const c_void) -> c_uint {
    with(|_| unsafe {
        module.write(HANDLE);
        0
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn cuModuleUnload(_module: usize) -> c_uint {
    with(idle_or_fault)
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuModuleGetFunction(
    function: *mut usize,
    _module: usize,
    name: *const c_char,
) -> c_uint {
    with(|_| {
        let handle = match unsafe { CStr::from_ptr(name) }.to_bytes() {
            b"add_one" => 1,
            b"fault" => 2,
            _ => return 500,
        };
        unsafe { function.write(handle) };
        0
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuFuncGetAttribute(
    value: *mut c_int,
    attribute: c_uint,
    _function: usize,
) -> c_uint {
    with(|state| {
        unsafe {
            value.write([256, 0, 0, 0, 32, 90, 90, 0, state.dynamic_shared][attribute as usize])
        };
        0
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn cuFuncSetAttribute(_function: usize, attribute: c_uint, value: c_int) -> c_uint {
    with(|state| {
        if attribute != 8 || value > SHARED_BYTES {
            return 1;
        }
        state.dynamic_shared = value;
        0
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuOccupancyMaxActiveBlocksPerMultiprocessor(
    ctas: *mut c_int,
    _function: usize,
    threads: c_int,
    shared: usize,
) -> c_uint {
    let by_shared = SHARED_BYTES.checked_div(shared as c_int).unwrap_or(32);
    unsafe { ctas.write((2048 / threads).min(by_shared)) };
    0
}

#[repr(C)]
#[derive(Clone, Copy)]
struct AddOne {
    bytes: u64,
    len: u64,
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuLaunchKernel(
    function: usize,
    _grid_x: c_uint,
    _grid_y: c_uint,
    _grid_z: c_uint,
    _block_x: c_uint,
    _block_y: c_uint,
    _block_z: c_uint,
    shared_bytes: c_uint,
    stream: usize,
    params: *const *const AddOne,
    _extra: usize,
) -> c_uint {
    let dynamic_shared = STATE.lock().unwrap().dynamic_shared;
    if shared_bytes as c_int > dynamic_shared {
        return 1;
    }
    let launch: Launch = if function == 2 { |_| 700 } else { add_one };
    // Read now, as the real driver does: the caller may reuse them.
    let params = unsafe { (*params).read_unaligned() };
    with(|state| {
        match state.captures.get_or_insert_default().get_mut(&stream) {
            Some(capture) => capture.push((launch, params)),
            None => state.push(stream, Item::Work(Box::new(move || launch(params)))),
        }
        0
    })
}

fn add_one(AddOne { bytes, len }: AddOne) -> c_uint {
    let bytes = unsafe { std::slice::from_raw_parts_mut(bytes as *mut u8, len as usize) };
    bytes
        .iter_mut()
        .for_each(|byte| *byte = byte.wrapping_add(1));
    0
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuEventCreate(event: *mut usize, _flags: c_uint) -> c_uint {
    with(|_| {
        unsafe { event.write(new_handle()) };
        0
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn cuEventDestroy_v2(_event: usize) -> c_uint {
    0
}

#[unsafe(no_mangle)]
pub extern "C" fn cuEventRecord(event: usize, stream: usize) -> c_uint {
    with(|state| {
        let end = state.queued(stream);
        state
            .events
            .get_or_insert_default()
            .insert(event, (stream, end));
        0
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn cuEventSynchronize(_event: usize) -> c_uint {
    with(drain)
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuEventElapsedTime(
    milliseconds: *mut f32,
    _start: usize,
    _end: usize,
) -> c_uint {
    with(|state| {
        unsafe { milliseconds.write(1.5) };
        // Not ready while work is queued.
        if state.is_idle() { 0 } else { 600 }
    })
}
