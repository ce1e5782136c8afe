//! Modules and their entries.

use std::collections::HashMap;
use std::ffi::{CString, c_void};
use std::fmt;
use std::ptr;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use cust::sys::{
    self, CUfunction, CUfunction_attribute, CUjit_option, CUjitInputType, CUlinkState, CUmodule,
    CUresult,
};

use super::context::Context;
use super::error::{check, words};
use super::pieces::Pieces;
use crate::DriverError;

/// Bytes for what the driver's compiler says.
const LOG_BYTES: usize = 16 << 10;

/// Kernels for a GPU: machine code, or PTX that the driver compiles. Clones share it; it is unloaded with the last of
/// them and of its functions.
///
/// Of PTX each kernel is compiled when it is first asked for.
#[derive(Clone, Debug)]
pub struct CudaModule(Arc<Source>);

/// What a module's functions are taken from.
#[derive(Debug)]
enum Source {
    /// A module of the driver's.
    Whole(Arc<Loaded>),
    /// PTX, and a module of the driver's for each kernel that was asked for.
    Pieces {
        context: Arc<Context>,
        pieces: Pieces,
        loaded: Mutex<HashMap<String, Piece>>,
    },
}

/// A kernel that is compiled once, by whichever thread asks first; the others wait for it.
type Piece = Arc<OnceLock<Result<Arc<Loaded>, String>>>;

/// A module of the driver's.
#[derive(Debug)]
struct Loaded {
    module: CUmodule,
    context: Arc<Context>,
}

// SAFETY: a module's handle belongs to a context and not to a thread: any thread in which the context is current may
// use it, and the driver's calls may be made from several threads at a time.
unsafe impl Send for Loaded {}
// SAFETY: as above.
unsafe impl Sync for Loaded {}

impl CudaModule {
    /// Takes PTX for the context's GPU.
    pub(super) fn load(context: &Arc<Context>, ptx: &str) -> Result<Self, DriverError> {
        check_target(ptx, context.info().compute_capability).map_err(DriverError::Module)?;
        let source = match Pieces::split(ptx) {
            Some(pieces) => Source::Pieces {
                context: Arc::clone(context),
                pieces,
                loaded: Mutex::default(),
            },
            None => {
                let compiled = compile(context, ptx).map_err(DriverError::Module)?;
                Source::Whole(Arc::new(Loaded::new(context, &compiled)?))
            }
        };
        Ok(Self(Arc::new(source)))
    }

    /// Loads machine code, as `ptxas` writes it.
    pub(super) fn load_machine_code(
        context: &Arc<Context>,
        code: &[u8],
    ) -> Result<Self, DriverError> {
        // The driver reads as many bytes as the headers say.
        check_elf(code).map_err(DriverError::Module)?;
        let loaded = Arc::new(Loaded::new(context, code)?);
        Ok(Self(Arc::new(Source::Whole(loaded))))
    }

    /// The entry `name`.
    pub(super) fn function(&self, name: &str) -> Result<CudaFunction, DriverError> {
        match &*self.0 {
            Source::Whole(loaded) => loaded.function(name),
            Source::Pieces {
                context,
                pieces,
                loaded,
            } => {
                let ptx = || {
                    pieces
                        .of(name)
                        .ok_or_else(|| DriverError::NoEntry(name.to_owned()))
                };
                let piece = {
                    let mut loaded = loaded.lock().unwrap_or_else(PoisonError::into_inner);
                    match loaded.get(name) {
                        Some(piece) => Arc::clone(piece),
                        None => {
                            // That there is such a kernel, before there is a place for it.
                            ptx()?;
                            Arc::clone(loaded.entry(name.to_owned()).or_default())
                        }
                    }
                };
                let made = piece.get_or_init(|| {
                    let ptx = ptx().map_err(|error| error.to_string())?;
                    let code = compile(context, &ptx)?;
                    Loaded::new(context, &code)
                        .map(Arc::new)
                        .map_err(|error| error.to_string())
                });
                match made {
                    Ok(loaded) => loaded.function(name),
                    Err(reason) => Err(DriverError::Module(format!("kernel `{name}`: {reason}"))),
                }
            }
        }
    }
}

/// The machine code that the driver makes of PTX. Several threads may compile at a time, which the call that compiles
/// and loads at once does not let them.
fn compile(context: &Arc<Context>, ptx: &str) -> Result<Vec<u8>, String> {
    let text = CString::new(ptx).map_err(|error| {
        format!(
            "it holds a zero byte at {}: it is no PTX text",
            error.nul_position()
        )
    })?;
    let entered = context.enter().map_err(|error| error.to_string())?;
    let mut log = vec![0_u8; LOG_BYTES];
    // An option's value is the pointer itself, or an integer in its place.
    let mut options = [
        CUjit_option::CU_JIT_ERROR_LOG_BUFFER,
        CUjit_option::CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES,
    ];
    let mut values: [*mut c_void; 2] = [
        log.as_mut_ptr().cast(),
        ptr::without_provenance_mut(LOG_BYTES),
    ];
    let mut linker = Linker(ptr::null_mut());
    // SAFETY: there are two options with two values; the log has the size that they name and, declared before the
    // linker, outlives it. The call writes the handle.
    let mut result = unsafe {
        let count = options.len() as u32;
        sys::cuLinkCreate_v2(
            count,
            options.as_mut_ptr(),
            values.as_mut_ptr(),
            &mut linker.0,
        )
    };
    if result == CUresult::CUDA_SUCCESS {
        let bytes = text.as_bytes_with_nul();
        // SAFETY: the linker was just made; the text has as many bytes, its final zero included, and is copied; there
        // are no options for it, and no name is a null pointer, which the driver takes.
        result = unsafe {
            sys::cuLinkAddData_v2(
                linker.0,
                CUjitInputType::CU_JIT_INPUT_PTX,
                bytes.as_ptr().cast_mut().cast(),
                bytes.len(),
                ptr::null(),
                0,
                ptr::null_mut(),
                ptr::null_mut(),
            )
        };
    }
    let (mut code, mut length) = (ptr::null_mut(), 0);
    if result == CUresult::CUDA_SUCCESS {
        // SAFETY: the linker is live; the call writes the address and the length of memory that the linker owns.
        result = unsafe { sys::cuLinkComplete(linker.0, &mut code, &mut length) };
    }
    if result == CUresult::CUDA_SUCCESS {
        // SAFETY: the driver has just said so, and the linker, which owns the bytes, lives until the end of this
        // function.
        let code = unsafe { std::slice::from_raw_parts(code.cast::<u8>(), length) }.to_vec();
        drop(linker);
        drop(entered);
        return Ok(code);
    }
    drop(linker);
    drop(entered);
    Err(match joined_lines(&log) {
        log if log.is_empty() => words(result),
        log => format!("{}: {log}", words(result)),
    })
}

/// A compilation of the driver's.
struct Linker(CUlinkState);

impl Drop for Linker {
    fn drop(&mut self) {
        if !self.0.is_null() {
            // SAFETY: the driver has given the handle, and it is destroyed here alone. What it says is of no use.
            let _ = unsafe { sys::cuLinkDestroy(self.0) };
        }
    }
}

impl Loaded {
    /// Loads machine code that is whole: see [`check_elf`], or the driver's own.
    fn new(context: &Arc<Context>, code: &[u8]) -> Result<Self, DriverError> {
        let _entered = context.enter()?;
        let mut module = ptr::null_mut();
        // SAFETY: the bytes are an object file that ends within them; the driver copies it and writes the handle.
        match unsafe { sys::cuModuleLoadData(&mut module, code.as_ptr().cast()) } {
            CUresult::CUDA_SUCCESS => Ok(Self {
                module,
                context: Arc::clone(context),
            }),
            failure => Err(DriverError::Module(words(failure))),
        }
    }

    /// The entry `name`.
    fn function(self: &Arc<Self>, name: &str) -> Result<CudaFunction, DriverError> {
        let no_entry = || DriverError::NoEntry(name.to_owned());
        let c_name = CString::new(name).map_err(|_| no_entry())?;
        let _entered = self.context.enter()?;
        let mut function = ptr::null_mut();
        // SAFETY: the module is loaded as long as `self` lives; the name is a C string; the call writes the handle.
        match unsafe { sys::cuModuleGetFunction(&mut function, self.module, c_name.as_ptr()) } {
            CUresult::CUDA_ERROR_NOT_FOUND => return Err(no_entry()),
            result => check("cuModuleGetFunction", result)?,
        }
        // SAFETY: the driver has just given the handle, of a module that is loaded.
        let attribute = |attribute| unsafe { attribute_of(function, attribute) };
        Ok(CudaFunction(Arc::new(Entry {
            function,
            name: name.to_owned(),
            max_threads: attribute(CUfunction_attribute::CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK)?,
            static_shared_bytes: attribute(
                CUfunction_attribute::CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES,
            )?,
            dynamic_shared_bytes: AtomicU32::new(attribute(
                CUfunction_attribute::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES,
            )?),
            module: Arc::clone(self),
        })))
    }
}

impl Drop for Loaded {
    fn drop(&mut self) {
        // Kernels of the module may still be queued.
        let unloaded = self.context.enter().and_then(|_entered| {
            let waited = self.context.streams().synchronize();
            // SAFETY: no function of the module is left, since each holds the module.
            let unloaded = check("cuModuleUnload", unsafe {
                sys::cuModuleUnload(self.module)
            });
            waited.and(unloaded)
        });
        if let Err(error) = unloaded {
            tracing::debug!(%error, "unloading a CUDA module");
        }
    }
}

/// An attribute of a function, as a count.
///
/// # Safety
/// `function` is the handle of a function whose module is loaded, and its context is current.
unsafe fn attribute_of(
    function: CUfunction,
    attribute: CUfunction_attribute,
) -> Result<u32, DriverError> {
    let mut value = 0;
    // SAFETY: what this function asks of its caller; the call writes one integer.
    check("cuFuncGetAttribute", unsafe {
        sys::cuFuncGetAttribute(&mut value, attribute, function)
    })?;
    Ok(u32::try_from(value).unwrap_or(0))
}

/// A kernel of a module, which it keeps loaded.
#[derive(Clone)]
pub struct CudaFunction(Arc<Entry>);

/// An entry with what a launch asks of it.
struct Entry {
    function: CUfunction,
    name: String,
    max_threads: u32,
    static_shared_bytes: u32,
    /// The most dynamic shared memory that the driver grants as things stand.
    dynamic_shared_bytes: AtomicU32,
    module: Arc<Loaded>,
}

// SAFETY: a function's handle belongs to a context and not to a thread, as a module's does.
unsafe impl Send for Entry {}
// SAFETY: as above; what changes is atomic.
unsafe impl Sync for Entry {}

impl CudaFunction {
    /// The driver's handle, valid as long as `self` lives.
    pub(super) fn raw(&self) -> CUfunction {
        self.0.function
    }

    /// The context that the module was loaded in.
    pub(super) fn context(&self) -> &Arc<Context> {
        &self.0.module.context
    }

    /// The entry's name.
    pub fn name(&self) -> &str {
        &self.0.name
    }

    /// The most threads that a CTA of this kernel may have: 1,024, or what its registers or `.maxntid` allow.
    pub fn max_threads(&self) -> u32 {
        self.0.max_threads
    }

    /// Bytes of shared memory that the kernel declares itself.
    pub fn static_shared_bytes(&self) -> u32 {
        self.0.static_shared_bytes
    }

    /// Makes the driver grant `bytes` of dynamic shared memory. Above 48 KiB, static memory included, it must be asked.
    pub(super) fn allow_dynamic_shared(&self, bytes: u32) -> Result<(), DriverError> {
        let allowed = &self.0.dynamic_shared_bytes;
        if bytes <= allowed.load(Ordering::Relaxed) {
            return Ok(());
        }
        let value = i32::try_from(bytes).unwrap_or(i32::MAX);
        // SAFETY: the handle is valid as long as `self` lives.
        check("cuFuncSetAttribute", unsafe {
            sys::cuFuncSetAttribute(
                self.raw(),
                CUfunction_attribute::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES,
                value,
            )
        })?;
        // Two threads may set it at a time: the smaller is remembered, so that the larger is asked for again.
        allowed.store(bytes, Ordering::Relaxed);
        Ok(())
    }
}

impl fmt::Debug for CudaFunction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("CudaFunction").field(&self.0.name).finish()
    }
}

/// The compiler's log without its line breaks, and without what follows its end.
fn joined_lines(log: &[u8]) -> String {
    let text = log.split(|&byte| byte == 0).next().unwrap_or_default();
    let text = String::from_utf8_lossy(text);
    text.lines()
        .map(str::trim)
        .filter(|line| !line.is_empty())
        .collect::<Vec<_>>()
        .join("; ")
}

/// Says what is wrong where `code` is no whole 64-bit ELF file: its section headers, which come last, end within it.
fn check_elf(code: &[u8]) -> Result<(), String> {
    let no_code = || "it is no machine code (a 64-bit ELF file)".to_owned();
    let header = code
        .get(..64)
        .filter(|head| head.starts_with(b"\x7fELF\x02"));
    let header = header.ok_or_else(no_code)?;
    let number = |at: usize, bytes: usize| {
        let little_endian = header[at..at + bytes].iter().rev();
        little_endian.fold(0_u64, |number, &byte| number << 8 | u64::from(byte))
    };
    // ELF-64 object file format, "File header": e_shoff, e_shentsize, e_shnum.
    let (offset, size, count) = (number(40, 8), number(58, 2), number(60, 2));
    match offset.checked_add(size * count) {
        Some(end) if offset >= 64 && end <= code.len() as u64 => Ok(()),
        _ => Err("the machine code is cut off".to_owned()),
    }
}

/// Says what is wrong where `ptx` was built for a GPU other than one of `capability`, in words clearer than the
/// driver's. PTX of an older architecture runs on a newer GPU, that of an architecture-specific target (`sm_90a`) on
/// its own only, that of a family-specific one (`sm_100f`) within its major number.
fn check_target(ptx: &str, capability: (u32, u32)) -> Result<(), String> {
    let Some(target) = ptx
        .lines()
        .find_map(|line| line.trim_start().strip_prefix(".target"))
    else {
        return Err("it has no `.target` line: it is no PTX, or only a part of one".into());
    };
    let target = target.split(',').next().unwrap_or_default().trim();
    let number = target.strip_prefix("sm_").unwrap_or_default();
    let digits = number.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let Ok(code) = digits.parse::<u32>() else {
        return Err(format!(
            "its `.target` is `{target}` and not one such as `sm_80`"
        ));
    };
    let built_for = (code / 10, code % 10);
    let runs = match &number[digits.len()..] {
        "" => built_for <= capability,
        "f" => built_for.0 == capability.0 && built_for <= capability,
        _ => built_for == capability,
    };
    if runs {
        return Ok(());
    }
    Err(format!(
        "it was built for {target} and the GPU is sm_{}{}",
        capability.0, capability.1
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ptx_of_older_targets_runs_and_of_newer_ones_does_not() {
        let ptx =
            |target: &str| format!("//\n.version 8.0\n  .target {target}\n.address_size 64\n");
        for target in [
            "sm_80",
            "sm_90",
            "sm_90a",
            "sm_90f",
            "sm_90, debug",
            "sm_86 , texmode_unified",
        ] {
            assert_eq!(check_target(&ptx(target), (9, 0)), Ok(()), "{target}");
        }
        for target in ["sm_100", "sm_80a", "sm_89f", "sm_120f", "sm_91"] {
            let error = check_target(&ptx(target), (9, 0)).expect_err(target);
            assert!(error.contains(target) && error.contains("sm_90"), "{error}");
        }
        assert_eq!(check_target(&ptx("sm_100"), (12, 0)), Ok(()));
    }

    #[test]
    fn what_is_no_ptx_is_told() {
        for text in [
            "",
            "hello",
            "\u{0}\u{7f}ELF",
            ".target",
            ".target compute_90",
            ".target sm_",
            ".target sm_é9",
        ] {
            assert!(check_target(text, (9, 0)).is_err(), "{text:?}");
        }
    }

    #[test]
    fn machine_code_is_whole_or_refused() {
        let mut code = vec![0_u8; 64 + 2 * 64];
        code[..5].copy_from_slice(b"\x7fELF\x02");
        code[40] = 64; // where section headers begin
        code[58] = 64; // bytes of one
        code[60] = 2; // how many there are
        assert_eq!(check_elf(&code), Ok(()));
        assert!(check_elf(&code[..code.len() - 1]).is_err(), "cut off");
        code[47] = 0xff;
        assert!(check_elf(&code).is_err(), "headers beyond any file");
        for text in [&b""[..], b"\x7fELF", &[0; 64], b".version 8.0"] {
            assert!(check_elf(text).is_err(), "{text:?}");
        }
    }

    #[test]
    fn the_log_becomes_one_line() {
        let log = b"ptxas application ptx input, line 5; error   : Unknown symbol 'x'\n\nptxas fatal : aborted\n\0\0junk";
        let line = "ptxas application ptx input, line 5; error   : Unknown symbol 'x'; ptxas fatal : aborted";
        assert_eq!(joined_lines(log), line);
        assert_eq!(joined_lines(&[]), "");
    }
}
