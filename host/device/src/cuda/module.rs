//! Modules and their entries.

use std::ffi::{CString, c_void};
use std::fmt;
use std::ptr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use cust::sys::{self, CUfunction, CUfunction_attribute, CUjit_option, CUmodule, CUresult};

use super::context::Context;
use super::error::{check, words};
use super::patience::told_if_slow;
use crate::DriverError;

/// How long the driver may compile before somebody is told what takes so long.
const PATIENCE: Duration = Duration::from_secs(2);

/// Bytes for what the driver's compiler says.
const LOG_BYTES: usize = 16 << 10;

/// PTX that the driver has compiled for its card. Clones share it; it is unloaded with the last of them and of its
/// functions.
#[derive(Clone, Debug)]
pub struct CudaModule(Arc<Loaded>);

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
    /// Compiles `ptx` for the context's card.
    pub(super) fn load(context: &Arc<Context>, ptx: &str) -> Result<Self, DriverError> {
        check_target(ptx, context.info().compute_capability).map_err(DriverError::Module)?;
        let ptx = CString::new(ptx).map_err(|error| {
            DriverError::Module(format!(
                "it holds a zero byte at {}: it is no PTX text",
                error.nul_position()
            ))
        })?;
        let _entered = context.enter()?;

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
        let mut module = ptr::null_mut();
        let card = &context.info().name;
        let tell = || {
            tracing::warn!(
                "the driver compiles the kernels for {card}, which takes up to a minute the first time; it keeps them, by default in ~/.nv/ComputeCache"
            );
        };
        let result = told_if_slow(PATIENCE, tell, || {
            // SAFETY: `ptx` ends with a zero byte, the options are two with two values, and the log has the size that they
            // name; all of it outlives the call, which reads the PTX and writes the log, the sizes and the handle.
            unsafe {
                sys::cuModuleLoadDataEx(
                    &mut module,
                    ptx.as_ptr().cast(),
                    options.len() as u32,
                    options.as_mut_ptr(),
                    values.as_mut_ptr(),
                )
            }
        });
        match result {
            CUresult::CUDA_SUCCESS => Ok(Self(Arc::new(Loaded {
                module,
                context: Arc::clone(context),
            }))),
            failure => Err(DriverError::Module(match joined_lines(&log) {
                log if log.is_empty() => words(failure),
                log => format!("{}: {log}", words(failure)),
            })),
        }
    }

    /// The entry `name`.
    pub(super) fn function(&self, name: &str) -> Result<CudaFunction, DriverError> {
        let no_entry = || DriverError::NoEntry(name.to_owned());
        let c_name = CString::new(name).map_err(|_| no_entry())?;
        let _entered = self.0.context.enter()?;
        let mut function = ptr::null_mut();
        // SAFETY: the module is loaded as long as `self` lives; the name is a C string; the call writes the handle.
        match unsafe { sys::cuModuleGetFunction(&mut function, self.0.module, c_name.as_ptr()) } {
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
            module: self.clone(),
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
    module: CudaModule,
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
        &self.0.module.0.context
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

/// Says what is wrong where `ptx` was built for a card other than one of `capability`, in words clearer than the
/// driver's. PTX of an older architecture runs on a newer card, that of an architecture-specific target (`sm_90a`) on
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
        "it was built for {target} and the card is sm_{}{}",
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
    fn the_log_becomes_one_line() {
        let log = b"ptxas application ptx input, line 5; error   : Unknown symbol 'x'\n\nptxas fatal : aborted\n\0\0junk";
        let line = "ptxas application ptx input, line 5; error   : Unknown symbol 'x'; ptxas fatal : aborted";
        assert_eq!(joined_lines(log), line);
        assert_eq!(joined_lines(&[]), "");
    }
}
